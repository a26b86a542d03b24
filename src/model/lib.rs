//! The plain types and settings that several crates share: slot types, names, times, and what the
//! scheduler is configured with. It knows nothing of nodes, sessions or the wire.

pub mod files;
pub mod settings;
pub mod types;
