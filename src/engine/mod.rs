//! The engine: everything that the cluster manager decides, as a pure state machine.
//!
//! It has no sockets, no threads, no clock, no randomness and no files. Time and inputs are
//! arguments; what is to be done is handed back as data.

pub mod settings;
pub mod types;
