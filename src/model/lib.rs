//! The plain types and settings that several crates share: slot types, names, times, the
//! scheduler's configuration, and texts of bounded length. It knows nothing of nodes, sessions or the wire.

pub mod files;
pub mod settings;
pub mod text;
pub mod types;
