//! What a shadow has found so far: counts, and the first differences. Bounded, however long it runs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use crate::replay::{About, Finding, Rule};

/// What became of answers or of entries of notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The same on both sides.
    pub equal: u64,
    /// Others, which a row of the compatibility table allows.
    pub explained: u64,
    /// Others.
    pub different: u64,
    /// What could not be compared.
    pub not_compared: u64,
}

impl Tally {
    /// All that was compared.
    pub fn compared(&self) -> u64 {
        self.equal + self.explained + self.different
    }

    /// Both together.
    pub fn plus(self, other: Tally) -> Tally {
        Tally {
            equal: self.equal + other.equal,
            explained: self.explained + other.explained,
            different: self.different + other.different,
            not_compared: self.not_compared + other.not_compared,
        }
    }
}

/// Why the shadow began anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// When, since the start.
    pub at: Duration,
    /// A sentence.
    pub why: String,
}

/// Everything that a shadow has to tell.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The cluster manager that is compared.
    pub primary: String,
    /// When it began.
    pub began: SystemTime,
    began_at: Instant,
    /// Answers by method.
    pub calls: BTreeMap<String, Tally>,
    /// Entries of notices by method: grants, revocations, dead nodes.
    pub notices: BTreeMap<&'static str, Tally>,
    /// Why something was not compared, and how often.
    pub reasons: BTreeMap<&'static str, u64>,
    /// How often which row has explained something.
    pub rows: BTreeMap<Rule, u64>,
    /// Grants of requests that named hosts and were given on both sides: how many there are, and how
    /// many are on one of the hosts, at the primary and here.
    pub near: Near,
    /// Sessions that are followed now.
    pub sessions: usize,
    /// Sessions that run at the primary and are not followed, as far as is known.
    pub unfollowed: usize,
    /// Decisions of either side that wait for the other now.
    pub waiting: usize,
    /// How far behind the clients the shadow is.
    pub lag: Duration,
    /// The largest of these.
    pub worst_lag: Duration,
    /// How often the shadow began anew.
    pub beginnings: u64,
    /// The last few of these.
    pub last_beginnings: Vec<Beginning>,
    /// The first differences that nothing explains.
    pub different: Vec<Finding>,
    /// The first that a row explains.
    pub explained: Vec<Finding>,
}

/// How many grants are near to what was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Near {
    /// Grants.
    pub of: u64,
    /// By the primary's choice.
    pub primary: u64,
    /// By this program's.
    pub ours: u64,
}

/// Differences of a kind that are kept; the others are counted.
pub const MAX_KEPT: usize = 200;
/// Methods that are counted by name.
const MAX_METHODS: usize = 100;
const MAX_BEGINNINGS: usize = 10;

impl Figures {
    pub(crate) fn new(primary: &str) -> Figures {
        Figures {
            primary: primary.to_owned(),
            began: SystemTime::now(),
            began_at: Instant::now(),
            calls: BTreeMap::new(),
            notices: BTreeMap::new(),
            reasons: BTreeMap::new(),
            rows: BTreeMap::new(),
            near: Near::default(),
            sessions: 0,
            unfollowed: 0,
            waiting: 0,
            lag: Duration::ZERO,
            worst_lag: Duration::ZERO,
            beginnings: 0,
            last_beginnings: Vec::new(),
            different: Vec::new(),
            explained: Vec::new(),
        }
    }

    /// How long it has run.
    pub fn ran_for(&self) -> Duration {
        self.began_at.elapsed()
    }

    /// Whether nothing differs that no row explains.
    pub fn agrees(&self) -> bool {
        self.different.is_empty()
    }

    /// All answers.
    pub fn all_calls(&self) -> Tally {
        self.calls.values().copied().fold(Tally::default(), Tally::plus)
    }

    /// All entries of notices.
    pub fn all_notices(&self) -> Tally {
        self.notices.values().copied().fold(Tally::default(), Tally::plus)
    }

    /// Differences that are counted but not kept, of either kind.
    pub fn left_out(&self) -> u64 {
        let all = self.all_calls().plus(self.all_notices());
        let kept = (self.different.len() + self.explained.len()) as u64;
        (all.explained + all.different).saturating_sub(kept)
    }

    pub(crate) fn call(&mut self, method: &str) -> &mut Tally {
        let known = self.calls.contains_key(method) || self.calls.len() < MAX_METHODS;
        self.calls.entry(if known { method } else { "others" }.to_owned()).or_default()
    }

    pub(super) fn notice(&mut self, method: &'static str) -> &mut Tally {
        self.notices.entry(method).or_default()
    }

    pub(super) fn not_compared(&mut self, reason: &'static str) {
        *self.reasons.entry(reason).or_default() += 1;
    }

    /// Keeps a difference if there is room. It is counted elsewhere.
    pub(super) fn keep(&mut self, finding: Finding) {
        if let Some(rule) = finding.rule {
            *self.rows.entry(rule).or_default() += 1;
        }
        let kept = match finding.rule {
            Some(_) => &mut self.explained,
            None => &mut self.different,
        };
        if kept.len() < MAX_KEPT {
            kept.push(finding);
        }
    }

    /// A difference that concerns no single call.
    pub(super) fn run_differs(&mut self, place: &str, primary: &str, ours: &str) {
        let both = (primary.to_owned(), ours.to_owned());
        let at = self.ran_for();
        self.keep(Finding::of_words(at, About::Run, place.to_owned(), both));
    }

    pub(super) fn begin_anew(&mut self, why: String) {
        self.beginnings += 1;
        if self.last_beginnings.len() >= MAX_BEGINNINGS {
            self.last_beginnings.remove(0);
        }
        self.last_beginnings.push(Beginning { at: self.began_at.elapsed(), why });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_has_a_bound_and_what_is_counted_has_none() {
        let mut figures = Figures::new("primary");
        for number in 0..1_000 {
            figures.call(&format!("method{number}")).different += 1;
            figures.run_differs("place", "one", "other");
            figures.begin_anew(format!("reason {number}"));
        }
        assert_eq!(figures.all_calls().different, 1_000);
        assert!(figures.calls.len() <= MAX_METHODS + 1);
        assert_eq!(figures.different.len(), MAX_KEPT);
        assert_eq!(figures.left_out(), 1_000 - MAX_KEPT as u64);
        assert_eq!((figures.beginnings, figures.last_beginnings.len()), (1_000, MAX_BEGINNINGS));
        assert!(!figures.agrees());
    }
}
