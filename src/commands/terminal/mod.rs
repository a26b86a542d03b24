//! Output for people: streams with their width and colours, tables, and progress. It knows no
//! command.

pub(crate) mod console;
pub(crate) mod progress;
pub(crate) mod table;
