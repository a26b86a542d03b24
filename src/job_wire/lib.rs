//! Between the objects that travel and the types of the job engine. Pure.
//!
//! [`translate`] turns reports of task trackers into inputs of the engine, and launches into orders;
//! [`saved`] turns the engine's effects into what a remote job tracker leaves with its parent, and back.

pub mod saved;
pub mod translate;
