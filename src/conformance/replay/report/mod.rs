//! The verdict of a replay: counts of equal replies, differences, and the rows that explain them.
//!
//! It knows nothing of how the comparison was made. `text`, `json` and `html` are the forms of the verdict for
//! people, programs and browsers.

mod json;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::{EarlierPlay, Stalls};
use crate::report::coverage::{Coverage, Kind};
use crate::report::document::{CountTable, Document, Fact, TableRow};
use crate::report::json::as_us;
use crate::report::times::Times;
use crate::report::{self, Counts, Finding, Rule, Subject, of_method};

pub use json::json;

/// The verdict in lines of at most `width` columns where words allow it. Differences that a row explains
/// are counted by row; with `all_explained` they are shown one by one as well.
pub fn text(report: &Report, width: usize, all_explained: bool) -> String {
    report::text::text(&report.document(), width, all_explained)
}

/// The verdict as an HTML page, for light and for dark windows.
pub fn html(report: &Report) -> String {
    report::html::html(&report.document(), None)
}

/// The verdict of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The name of the recording.
    pub name: String,
    /// The cluster manager under test, for people.
    pub target: String,
    /// How much faster than recorded pauses passed; infinite when there were none.
    pub speed: f64,
    /// How long the recording took, from the first to the last step.
    pub recorded_for: Duration,
    /// Calls whose answers were compared.
    pub calls: Counts,
    /// Calls whose answers were not compared: in flight at the end, or touched by a gap.
    pub calls_left_out: usize,
    /// The same by method.
    pub by_method: BTreeMap<String, Counts>,
    /// Grants, revocations and dead-node notices.
    pub notices: Notices,
    /// Times from a cause to a decision.
    pub times: Times,
    /// Calls and entries of notifications that were in flight at the end of the recording or replay.
    pub in_flight: usize,
    /// Why the replay ended before the recording, if it did.
    pub ended: Option<Ended>,
    /// Differences that a row of the compatibility table allows, the first [`MAX_FINDINGS`].
    pub explained: Vec<Finding>,
    /// Differences that nothing allows, the first [`MAX_FINDINGS`].
    pub different: Vec<Finding>,
    /// Differences of either kind that are counted but not kept.
    pub left_out: usize,
    /// Stalls, because of which recorded times could not be kept.
    pub stalls: Stalls,
    /// Plays before this one, whose verdicts do not count.
    pub earlier: Vec<EarlierPlay>,
    /// The parts that could not be compared, each as a sentence.
    pub not_compared: Vec<String>,
}

/// The early end of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// How much of the recording was played.
    #[serde(rename = "at_us", serialize_with = "as_us")]
    pub at: Duration,
    /// The reason.
    pub why: String,
}

/// More findings of a kind than this are only counted.
pub const MAX_FINDINGS: usize = 1_000;

/// Notifications: their entries, and findings about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Notices {
    /// Entries of grants and revocations, and dead nodes, in the recording.
    pub recorded: usize,
    /// The same from the cluster manager under test.
    #[serde(rename = "told")]
    pub live: usize,
    /// Findings that a row of the compatibility table allows.
    pub explained: usize,
    /// Findings that nothing allows.
    pub different: usize,
    /// Recorded entries that are the same in this run; for a grant, on the same node.
    pub exact: usize,
    /// Recorded entries that are different, which is a free choice.
    pub free: usize,
    /// Recorded entries that were not compared.
    pub not_compared: usize,
    /// The grants among the exact ones.
    pub grants_exact: usize,
    /// The grants among the free choices.
    pub grants_free: usize,
}

impl Report {
    /// Whether something was compared, nothing differs that no rule explains, and the replay was not
    /// ended before the recording.
    pub fn agrees(&self) -> bool {
        self.different.is_empty() && self.has_compared() && self.ended.is_none()
    }

    /// Whether anything was compared: a recording of something else agrees with every cluster manager.
    fn has_compared(&self) -> bool {
        let Notices { exact, free, explained, different, .. } = self.notices;
        self.calls.compared() > 0 || exact + free + explained + different > 0
    }

    /// The replay ends before the recording.
    pub(super) fn ended(&mut self, at: Duration, why: String) {
        self.ended = Some(Ended { at, why });
    }

    /// The cluster manager under test ended by itself; its log is this.
    pub(crate) fn manager_ended(&mut self, log: &str) {
        let last: Vec<&str> = log.lines().rev().take(3).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        let here = format!("it ended during the replay; its log ends with: {}", last.join(" | "));
        let both = ("it runs".to_owned(), here);
        let (at, place) = (self.recorded_for, "the cluster manager".to_owned());
        self.different.insert(0, Finding::of_words(at, Subject::Run, place, both));
    }

    /// The answer to a call is not compared.
    pub(super) fn leaves_out_call(&mut self, method: &str) {
        self.calls_left_out += 1;
        of_method(&mut self.by_method, method);
    }

    /// An answer was equal.
    pub(super) fn equal(&mut self, method: &str) {
        self.calls.equal += 1;
        of_method(&mut self.by_method, method).equal += 1;
    }

    /// Adds a difference where it belongs.
    pub(super) fn add(&mut self, finding: Finding) {
        let is_explained = finding.rule.is_some();
        match &finding.about {
            Subject::Call(method) => {
                self.calls.differs(finding.rule);
                of_method(&mut self.by_method, method).differs(finding.rule);
            }
            Subject::Notice if is_explained => self.notices.explained += 1,
            Subject::Notice => self.notices.different += 1,
            Subject::Run | Subject::Time => {}
        }
        let findings = if is_explained { &mut self.explained } else { &mut self.different };
        match findings.len() < MAX_FINDINGS {
            true => findings.push(finding),
            false => self.left_out += 1,
        }
    }

    /// Notes, once, that something was not compared.
    pub(super) fn does_not_compare(&mut self, what: &str) {
        if !self.not_compared.iter().any(|known| known == what) {
            self.not_compared.push(what.to_owned());
        }
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

impl Report {
    /// The verdict in a sentence.
    fn verdict(&self) -> String {
        let different = self.different.len();
        let coverage = self.coverage();
        let verdict = match (different, self.explained.is_empty()) {
            (0, _) if !self.has_compared() => match self.calls_left_out + self.notices.not_compared
            {
                0 => "NOTHING WAS COMPARED: the recording has no calls to a cluster manager."
                    .to_owned(),
                _ => "NOTHING WAS COMPARED.".to_owned(),
            },
            (0, _) if self.ended.is_some() => {
                "INCOMPLETE: no unexplained differences so far.".to_owned()
            }
            (0, no_rows) => {
                let agrees = if coverage.is_low() { "AGREES IN PART" } else { "AGREES" };
                let what = if no_rows { "no differences" } else { "every difference is explained" };
                format!("{agrees}: {what}{}.", coverage.remark())
            }
            (1, _) => "DIFFERS: one unexplained difference.".to_owned(),
            (many, _) if self.left_out == 0 => {
                format!("DIFFERS: {many} unexplained differences.")
            }
            (many, _) => format!("DIFFERS: more than {many} unexplained differences."),
        };
        let ended = self.ended.as_ref().map(|Ended { at, why }| {
            let (at, all) = (at.as_secs_f64(), self.recorded_for.as_secs_f64());
            format!(" The replay ended at {at:.1} s of {all:.1} s: {why}.")
        });
        format!("{verdict}{} {}", ended.unwrap_or_default(), coverage.sentence())
    }

    /// How much was compared.
    fn coverage(&self) -> Coverage {
        let Notices { recorded, exact, free, different, not_compared, .. } = self.notices;
        let grants =
            [self.notices.grants_exact, self.notices.grants_free].map(|count| count as u64);
        let compared = recorded.saturating_sub(not_compared);
        Coverage {
            calls: Kind {
                exact: self.calls.equal + self.calls.different,
                by_a_row: self.calls.explained,
                not_compared: self.calls_left_out as u64,
            },
            notices: Kind {
                exact: if different > 0 { compared.saturating_sub(free) } else { exact } as u64,
                by_a_row: free as u64,
                not_compared: not_compared as u64,
            },
            grants,
            times: self.times.compared(),
        }
    }

    /// How long it was and how fast it was played.
    fn pace(&self) -> String {
        let seconds = self.recorded_for.as_secs_f64();
        match self.speed.is_finite() {
            true => format!("{seconds:.1} s at speed {}", self.speed),
            false => format!("{seconds:.1} s as fast as answers allow"),
        }
    }

    /// The contents of the report for people.
    fn document(&self) -> Document<'_> {
        let Notices { recorded, live, explained, different, .. } = self.notices;
        let mut facts = vec![
            Fact::new("Played", format!("{} against {}, {}", self.name, self.target, self.pace())),
            Fact::new("Calls", self.calls.to_string()),
            Fact::new(
                "Notices",
                format!(
                    "{recorded} recorded, {live} received: {explained} findings explained, \
                     {different} different"
                ),
            ),
        ];
        if self.times.compared() > 0 {
            facts.push(report::times::fact(&self.times));
        }
        if self.stalls.any() {
            facts.push(Fact::new("Stalled", self.stalls.to_string()));
        }
        let earlier = self.earlier.iter();
        facts.extend(earlier.map(|EarlierPlay { different, stalls }| {
            Fact::new("Repeated", format!("{different} different in a stalled replay: {stalls}"))
        }));
        let by_method = self.by_method.iter().map(|(method, counts)| {
            let Counts { equal, explained, different, .. } = *counts;
            let counts = [counts.compared(), equal, explained, different];
            TableRow { method, differs: different > 0, counts }
        });
        let table = CountTable {
            heading: "Calls by method",
            heads: ["Method", "Compared", "Equal", "Explained", "Different"],
            rows: by_method.collect(),
        };
        Document {
            heading: format!("Replay of {}", self.name),
            name: &self.name,
            agrees: self.agrees(),
            verdict: self.verdict(),
            facts,
            tables: [table, report::times::table(&self.times, ["Recorded ms", "Live ms"])]
                .into_iter()
                .filter(|table| !table.rows.is_empty())
                .collect(),
            rows: self.rows().into_iter().map(|(rule, times)| (rule, times as u64)).collect(),
            not_compared: self.not_compared.iter().map(|what| (None, &**what)).collect(),
            sides: ["recorded", "live"],
            different: self.different.as_slice().into(),
            explained: self.explained.as_slice().into(),
            left_out: self.left_out as u64,
        }
    }
}

impl fmt::Display for Report {
    /// The whole report in short, for the output of a test.
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
        if self.stalls.any() {
            writeln!(f, "stalled: {}", self.stalls)?;
        }
        for EarlierPlay { different, stalls } in &self.earlier {
            writeln!(f, "repeated: {different} different in a stalled replay: {stalls}")?;
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

    /// A report with one finding of each kind and hostile text.
    fn sample() -> Report {
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
        let about = Subject::Call("getSessions".to_owned());
        report.add(finding(about, Some(Rule::PROMPT_GRANTS)));
        report.add(finding(Subject::Notice, None));
        report
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
        assert_eq!(report.calls, Counts { equal: 1, explained: 1, ..Counts::default() });
        assert_eq!(report.by_method["getSessions"].explained, 1);
        assert_eq!(report.rows(), BTreeMap::from([(Rule::PROMPT_GRANTS, 1)]));
        for number in 0..1_000 {
            report.equal(&format!("method{number}"));
        }
        assert!(report.by_method.len() <= 101);
        assert_eq!(report.calls.equal, 1_001);
    }

    #[test]
    fn the_verdict_is_a_sentence() {
        let mut report = sample();
        report.different.clear();
        let begins = |report: &Report, words: &str, agrees: bool| {
            let verdict = report.verdict();
            assert!(verdict.starts_with(&format!("{words} Compared: ")), "{verdict}");
            assert_eq!(report.agrees(), agrees, "{verdict}");
        };
        report.notices = Notices::default();
        begins(&report, "AGREES: every difference is explained.", true);
        report.explained.clear();
        begins(&report, "AGREES: no differences.", true);
        report.notices = Notices { recorded: 5, exact: 1, free: 4, ..Notices::default() };
        let part =
            "AGREES IN PART: no differences, but only 1 of 5 notifications were compared exactly.";
        begins(&report, part, true);
        report.ended(Duration::from_secs(1), "it was ended by SIGINT".to_owned());
        let early = "INCOMPLETE: no unexplained differences so far. The replay ended at 1.0 s of 3.0 s: \
                     it was ended by SIGINT.";
        begins(&report, early, false);
        report.ended = None;
        (report.calls, report.notices) = (Counts::default(), Notices::default());
        let nothing = "NOTHING WAS COMPARED: the recording has no calls to a cluster manager.";
        begins(&report, nothing, false);
        report.calls_left_out = 4;
        begins(&report, "NOTHING WAS COMPARED.", false);
        report.speed = f64::INFINITY;
        assert_eq!(report.pace(), "3.0 s as fast as answers allow");
    }

    #[test]
    fn the_page_stands_alone_and_escapes_what_peers_said() {
        let mut report = sample();
        report.name = "<script>alert(1)</script>".to_owned();
        report.not_compared.push("a & b".to_owned());
        let page = html(&report);
        assert!(!page.contains("<script") && !page.contains("<b>two"), "{page}");
        for part in ["&lt;b&gt;two", "a &amp; b", "Differs: &lt;script&gt;", "S-1"] {
            assert!(page.contains(part), "{part}");
        }
        for elsewhere in ["http:", "https:", " src=", "url(", "@import", "<link"] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
    }
}
