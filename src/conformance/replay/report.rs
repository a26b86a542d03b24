//! The verdict of a replay: what was compared, what was equal, what differs and why it may.
//!
//! Knows nothing of how the comparison was made. `text`, `json` and `html` are the forms of the verdict for
//! people, programs and browsers.

pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::{EarlierPlay, HoldUps};
use crate::report::{About, Finding, Rule};

pub use html::html;
pub use json::json;
pub use text::text;

/// What came out of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What was replayed.
    pub name: String,
    /// Against what it was played, for people.
    pub target: String,
    /// How much faster than recorded pauses passed; infinite when there were none.
    pub speed: f64,
    /// How long the recording took, from the first to the last step.
    pub recorded_for: Duration,
    /// Calls whose answers were compared.
    pub calls: Counts,
    /// The same by method.
    pub by_method: BTreeMap<String, Counts>,
    /// Grants, revocations and dead-node notices.
    pub notices: Notices,
    /// Differences that a row of the compatibility table allows, the first [`MAX_FINDINGS`].
    pub explained: Vec<Finding>,
    /// Differences that nothing allows, the first [`MAX_FINDINGS`].
    pub different: Vec<Finding>,
    /// Differences of either kind that are counted but not kept.
    pub left_out: usize,
    /// What kept the replay from keeping the recorded times.
    pub hold_ups: HoldUps,
    /// Plays before this one, whose verdicts do not count.
    pub earlier: Vec<EarlierPlay>,
    /// What could not be compared, each as a sentence.
    pub not_compared: Vec<String>,
}

/// More findings of a kind than this are only counted.
pub const MAX_FINDINGS: usize = 1_000;

/// What became of calls. What was compared is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answers that are equal once ids, times and ports are translated.
    pub equal: usize,
    /// Other answers, which a row of the compatibility table allows.
    pub explained: usize,
    /// Other answers.
    pub different: usize,
}

impl Counts {
    /// All of them.
    pub fn compared(&self) -> usize {
        self.equal + self.explained + self.different
    }
}

/// Notifications: their entries, and findings about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    /// Entries of grants and revocations, and dead nodes, in the recording.
    pub recorded: usize,
    /// The same from the cluster manager under test.
    pub live: usize,
    /// Findings that a row of the compatibility table allows.
    pub explained: usize,
    /// Findings that nothing allows.
    pub different: usize,
}

impl Report {
    /// Whether nothing differs that no rule explains.
    pub fn agrees(&self) -> bool {
        self.different.is_empty()
    }

    /// An answer was equal.
    pub(super) fn equal(&mut self, method: &str) {
        self.calls.equal += 1;
        self.method(method).equal += 1;
    }

    /// Adds a difference where it belongs.
    pub(super) fn add(&mut self, finding: Finding) {
        let is_explained = finding.rule.is_some();
        let count = |counts: &mut Counts| match is_explained {
            true => counts.explained += 1,
            false => counts.different += 1,
        };
        match &finding.about {
            About::Call(method) => {
                count(&mut self.calls);
                count(self.method(method));
            }
            About::Notice if is_explained => self.notices.explained += 1,
            About::Notice => self.notices.different += 1,
            About::Run => {}
        }
        let findings = if is_explained { &mut self.explained } else { &mut self.different };
        match findings.len() < MAX_FINDINGS {
            true => findings.push(finding),
            false => self.left_out += 1,
        }
    }

    /// Says that something was not compared, once.
    pub(super) fn does_not_compare(&mut self, what: &str) {
        if !self.not_compared.iter().any(|known| known == what) {
            self.not_compared.push(what.to_owned());
        }
    }

    /// The counts of a method. Methods come from a file, so their number has a bound.
    fn method(&mut self, name: &str) -> &mut Counts {
        const MAX_METHODS: usize = 100;
        let is_known = self.by_method.contains_key(name) || self.by_method.len() < MAX_METHODS;
        let name = if is_known { name } else { "others" };
        self.by_method.entry(name.to_owned()).or_default()
    }

    /// The rows that explain something, and how often.
    pub fn rows(&self) -> BTreeMap<Rule, usize> {
        let mut rows = BTreeMap::new();
        for rule in self.explained.iter().filter_map(|finding| finding.rule) {
            *rows.entry(rule).or_default() += 1;
        }
        rows
    }
}

impl fmt::Display for Report {
    /// All of it in short, for the output of a test.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} calls compared, {} equal; {} notices recorded, {} seen; {} explained, {} different",
            self.name,
            self.calls.compared(),
            self.calls.equal,
            self.notices.recorded,
            self.notices.live,
            self.explained.len(),
            self.different.len(),
        )?;
        if self.hold_ups.any() {
            writeln!(f, "stalled: {}", self.hold_ups)?;
        }
        for EarlierPlay { different, hold_ups } in &self.earlier {
            writeln!(f, "repeated: {different} different in a stalled replay: {hold_ups}")?;
        }
        for what in &self.not_compared {
            writeln!(f, "not compared: {what}")?;
        }
        for finding in self.different.iter().chain(&self.explained) {
            writeln!(f, "{finding}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report with one finding of each kind, with text in it that somebody hostile chose.
    pub(super) fn sample() -> Report {
        let finding = |about, rule| {
            let both = ("one".to_owned(), "<b>two\u{1b}[2J".to_owned());
            let place = "connection 3, getSessions 42".to_owned();
            let found = Finding::of_words(Duration::from_millis(1_500), about, place, both);
            Finding { rule, ..found }
        };
        let mut report = Report {
            name: "grants".to_owned(),
            target: "this program".to_owned(),
            speed: 2.0,
            recorded_for: Duration::from_secs(3),
            ..Report::default()
        };
        report.equal("nodeHeartbeat");
        let about = About::Call("getSessions".to_owned());
        report.add(finding(about, Some(Rule::PROMPT_GRANTS)));
        report.add(finding(About::Notice, None));
        report
    }

    #[test]
    fn a_report_shows_both_sides_and_the_row() {
        let mut report = sample();
        assert!(!report.agrees());
        assert_eq!(
            report.to_string(),
            "grants: 2 calls compared, 1 equal; 0 notices recorded, 0 seen; 1 explained, 1 different\n\
             DIFFERENT at 1.5000 s, connection 3, getSessions 42\n  recorded: one\n  live:     <b>two\u{1b}[2J\n\
             explained by 'S-1' at 1.5000 s, connection 3, getSessions 42\n  recorded: one\n  live:     <b>two\u{1b}[2J\n"
        );
        report.different.clear();
        assert!(report.agrees());
    }

    #[test]
    fn counts_are_exact_and_what_is_kept_has_a_bound() {
        let mut report = sample();
        let finding = report.different[0].clone();
        for _ in 0..MAX_FINDINGS {
            report.add(finding.clone());
        }
        assert_eq!((report.different.len(), report.left_out), (MAX_FINDINGS, 1));
        assert_eq!(report.notices.different, MAX_FINDINGS + 1);
        assert_eq!(report.calls, Counts { equal: 1, explained: 1, different: 0 });
        assert_eq!(report.by_method["getSessions"].explained, 1);
        assert_eq!(report.rows(), BTreeMap::from([(Rule::PROMPT_GRANTS, 1)]));
        for number in 0..1_000 {
            report.equal(&format!("method{number}"));
        }
        assert!(report.by_method.len() <= 101);
        assert_eq!(report.calls.equal, 1_001);
    }
}
