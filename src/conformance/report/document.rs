//! A report for people, before it has a form: the content of the reports of replays and shadows, in
//! their order.
//!
//! `text` and `html` render it. The JSON of each tool has members of its own, which programs know.

use std::borrow::Cow;

use super::{Finding, Rule};

/// The contents of a report.
pub(crate) struct Document<'a> {
    /// The heading, such as `Replay of monday.corec`.
    pub(crate) heading: String,
    /// The name of the recording or primary.
    pub(crate) name: &'a str,
    /// Whether every difference is explained.
    pub(crate) agrees: bool,
    /// The verdict in a sentence.
    pub(crate) verdict: String,
    /// Facts about the run.
    pub(crate) facts: Vec<Fact>,
    /// Counts by method.
    pub(crate) tables: Vec<CountTable<'a>>,
    /// The rows of `docs/reference/compatibility.md` that explain differences, and how many.
    pub(crate) rows: Vec<(Rule, u64)>,
    /// The parts that were not compared, as sentences or as reasons with a count.
    pub(crate) not_compared: Vec<(Option<u64>, &'a str)>,
    /// The names of the two cluster managers, in lower case.
    pub(crate) sides: [&'static str; 2],
    /// Findings that nothing explains.
    pub(crate) different: Cow<'a, [Finding]>,
    /// Findings that a row explains.
    pub(crate) explained: Cow<'a, [Finding]>,
    /// The number of findings that were not kept.
    pub(crate) left_out: u64,
}

/// A label with one or more lines.
pub(crate) struct Fact {
    pub(crate) label: &'static str,
    pub(crate) lines: Vec<String>,
}

impl Fact {
    /// A label with one line.
    pub(crate) fn new(label: &'static str, line: String) -> Fact {
        Fact { label, lines: vec![line] }
    }
}

/// Counts by method.
pub(crate) struct CountTable<'a> {
    pub(crate) heading: &'static str,
    /// The heads of all columns. The first column has the methods.
    pub(crate) heads: [&'static str; 5],
    pub(crate) rows: Vec<TableRow<'a>>,
}

/// The counts of one method.
pub(crate) struct TableRow<'a> {
    pub(crate) method: &'a str,
    /// Whether it has an unexplained difference.
    pub(crate) differs: bool,
    pub(crate) counts: [u64; 4],
}
