//! The plain types and settings that several crates share: slot types, names, times, and the
//! scheduler's configuration. It knows nothing of nodes, sessions or the wire.

pub mod files;
pub mod settings;
pub mod types;
