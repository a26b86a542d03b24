//! The pages, each a function from gathered data to its content. None accesses the engine.

pub(super) mod cluster;
pub(super) mod configuration;
pub(super) mod kill;
pub(super) mod links;
pub(super) mod node;
pub(super) mod nodes;
pub(super) mod plot;
pub(super) mod pools;
pub(super) mod resources;
pub(super) mod retired;
pub(super) mod session;
pub(super) mod sessions;
