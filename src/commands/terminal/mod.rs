//! Output for people: streams with their width and colours, tables, and progress. It knows no
//! command.

pub(crate) mod console;
pub(crate) mod progress;
pub(crate) mod table;

/// `1 run`, `2 runs`.
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
