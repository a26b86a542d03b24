//! Output of commands for people: streams with their width and colours, tables, and progress. It knows no
//! command.

pub mod console;
pub mod progress;
pub mod table;
pub mod wrap;

/// `1 run`, `2 runs`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
