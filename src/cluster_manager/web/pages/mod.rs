//! The pages, each a function from what was gathered to its content. None looks at the engine.

pub(super) mod cluster;
pub(super) mod configuration;
pub(super) mod kill;
pub(super) mod node;
pub(super) mod nodes;
pub(super) mod plot;
pub(super) mod pools;
pub(super) mod retired;
pub(super) mod session;
pub(super) mod sessions;
