//! Output of commands for people: streams with their width and colours, tables, and progress. It knows no
//! command.

pub mod console;
pub mod progress;
pub mod table;
pub mod wrap;

/// A line for each fact that is known, behind its label.
pub fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let known = facts.into_iter().filter_map(|(label, fact)| Some((label, fact?)));
    let line = |(label, fact): (&str, String)| {
        format!("{:<20} {}\n", format!("{label}:"), console::printable(&fact))
    };
    known.map(line).collect()
}

/// `1 run`, `2 runs`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
