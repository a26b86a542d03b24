//! The statistics of a shadow: counts, and the first differences. They are bounded, however long it runs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::report::coverage::{Coverage, Kind};
use crate::report::json::as_us;
use crate::report::times::Times;
use crate::report::{Counts, Finding, Rule, Subject, of_method};

/// A restart of the shadow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resync {
    /// When, since the start of the run.
    #[serde(rename = "at_us", serialize_with = "as_us")]
    pub at: Duration,
    /// The reason, as a sentence.
    pub why: String,
}

/// The results of a shadow run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// The cluster manager in service.
    pub primary: String,
    /// When the run began, in milliseconds since the Unix epoch.
    pub began_ms: u64,
    /// How long the run has lasted.
    pub ran_for: Duration,
    /// Answers by method.
    pub calls: BTreeMap<String, Counts>,
    /// Entries of notifications by method: grants, revocations, dead nodes.
    pub notices: BTreeMap<&'static str, Counts>,
    /// How often something was not compared, by reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// How often each row has explained a difference.
    pub rows: BTreeMap<Rule, u64>,
    /// Times of decisions that both sides made.
    pub times: Times,
    /// The findings about them, as last judged.
    pub of_times: Vec<Finding>,
    /// How many times had been compared then.
    judged_times: u64,
    /// Locality of the grants that both sides made.
    pub near: Near,
    /// Sessions that are followed now.
    pub sessions: usize,
    /// Sessions that run at the primary and are not followed, as far as is known.
    pub unfollowed: usize,
    /// Pending decisions of either side that wait for the other.
    pub waiting: usize,
    /// The lag of the shadow behind the clients.
    pub lag: Duration,
    /// The largest lag so far.
    pub worst_lag: Duration,
    /// How often the shadow restarted.
    pub beginnings: u64,
    /// The last few restarts.
    pub last_beginnings: Vec<Resync>,
    /// The first differences that nothing explains.
    pub different: Vec<Finding>,
    /// The first differences that a row explains.
    pub explained: Vec<Finding>,
    /// Findings since the last [`Self::take_new`].
    new: Vec<Finding>,
}

/// How many grants are on a preferred host, or of requests that prefer none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Near {
    /// Grants.
    pub of: u64,
    /// By the primary's choice.
    pub primary: u64,
    /// By this program's choice.
    #[serde(rename = "here")]
    pub ours: u64,
}

/// Differences of a kind that are kept; the others are only counted.
pub const MAX_KEPT: usize = 200;
const MAX_BEGINNINGS: usize = 10;
/// Findings of one step that are handed out one by one.
const MAX_NEW: usize = 1_000;

impl Stats {
    pub(crate) fn new(primary: &str) -> Stats {
        Stats { primary: primary.to_owned(), ..Stats::default() }
    }

    /// Whether something was compared, and there is no difference that no row explains.
    pub fn agrees(&self) -> bool {
        let is_different = |finding: &Finding| finding.rule.is_none();
        self.different.is_empty()
            && self.all_calls().compared() > 0
            && !self.of_times.iter().any(is_different)
    }

    /// Whether times were compared since they were last judged.
    pub(super) fn has_new_times(&self) -> bool {
        self.times.compared() != self.judged_times
    }

    /// Judges the times so far.
    pub(crate) fn judge_times(&mut self) {
        if self.has_new_times() {
            (self.of_times, self.judged_times) = (self.times.findings(), self.times.compared());
        }
    }

    /// How much was compared.
    pub(crate) fn coverage(&self) -> Coverage {
        let kind = |tally: Counts| Kind {
            exact: tally.equal + tally.different,
            by_a_row: tally.explained,
            not_compared: tally.not_compared,
        };
        let grants = self.notices.get("grantResource").copied().unwrap_or_default();
        Coverage {
            calls: kind(self.all_calls()),
            notices: kind(self.all_notices()),
            grants: [grants.equal, grants.explained],
            times: self.times.compared(),
        }
    }

    /// All answers.
    pub fn all_calls(&self) -> Counts {
        self.calls.values().copied().fold(Counts::default(), Counts::plus)
    }

    /// All entries of notifications.
    pub fn all_notices(&self) -> Counts {
        self.notices.values().copied().fold(Counts::default(), Counts::plus)
    }

    /// Differences that are counted but not kept, of either kind.
    pub fn left_out(&self) -> u64 {
        let all = self.all_calls().plus(self.all_notices());
        let kept = (self.different.len() + self.explained.len()) as u64;
        (all.explained + all.different).saturating_sub(kept)
    }

    pub(crate) fn call(&mut self, method: &str) -> &mut Counts {
        of_method(&mut self.calls, method)
    }

    pub(super) fn notice(&mut self, method: &'static str) -> &mut Counts {
        self.notices.entry(method).or_default()
    }

    pub(super) fn not_compared(&mut self, reason: &'static str) {
        *self.reasons.entry(reason).or_default() += 1;
    }

    /// Keeps a difference if there is room. The caller counts it.
    pub(super) fn keep(&mut self, finding: Finding) {
        if let Some(rule) = finding.rule {
            *self.rows.entry(rule).or_default() += 1;
        }
        if self.new.len() < MAX_NEW {
            self.new.push(finding.clone());
        }
        let kept = match finding.rule {
            Some(_) => &mut self.explained,
            None => &mut self.different,
        };
        if kept.len() < MAX_KEPT {
            kept.push(finding);
        }
    }

    /// Findings since the last call.
    pub(super) fn take_new(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.new)
    }

    /// A difference that concerns no single call.
    pub(super) fn run_differs(&mut self, at: Duration, place: &str, primary: &str, ours: &str) {
        let both = (primary.to_owned(), ours.to_owned());
        self.keep(Finding::of_words(at, Subject::Run, place.to_owned(), both));
    }

    pub(super) fn restarted(&mut self, at: Duration, why: String) {
        self.beginnings += 1;
        if self.last_beginnings.len() >= MAX_BEGINNINGS {
            self.last_beginnings.remove(0);
        }
        self.last_beginnings.push(Resync { at, why });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::MAX_METHODS;

    #[test]
    fn kept_findings_have_a_bound_and_counts_have_none() {
        let mut stats = Stats::new("primary");
        for number in 0..2_000 {
            stats.call(&format!("method{number}")).different += 1;
            stats.run_differs(Duration::ZERO, "place", "one", "other");
            stats.restarted(Duration::ZERO, format!("reason {number}"));
        }
        assert_eq!(stats.all_calls().different, 2_000);
        assert!(stats.calls.len() <= MAX_METHODS + 1);
        assert_eq!((stats.different.len(), stats.take_new().len()), (MAX_KEPT, MAX_NEW));
        assert_eq!(stats.left_out(), 2_000 - MAX_KEPT as u64);
        assert_eq!((stats.beginnings, stats.last_beginnings.len()), (2_000, MAX_BEGINNINGS));
        assert!(!stats.agrees());
    }
}
