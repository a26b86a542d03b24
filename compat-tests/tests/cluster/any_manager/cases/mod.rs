//! The cases. The original's expected answers are its recorded ones.

pub(crate) mod nodes;
pub(crate) mod pools;
pub(crate) mod requests;
pub(crate) mod sessions;
pub(crate) mod wire;
