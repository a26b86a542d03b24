//! The plain types and settings that several crates share: slot types, names, times, the
//! scheduler's configuration, texts of bounded length, and numbers from a seed. It knows nothing of nodes, sessions or the wire.

pub mod files;
pub mod form;
pub mod queues;
pub mod random;
pub mod resources;
pub mod settings;
pub mod text;
pub mod types;
