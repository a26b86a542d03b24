//! The cases. What is expected of the original is what it was recorded to answer.

pub(crate) mod nodes;
pub(crate) mod pools;
pub(crate) mod requests;
pub(crate) mod sessions;
pub(crate) mod wire;
