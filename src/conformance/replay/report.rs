//! The verdict of a replay: what was compared, what was equal, what differs and why it may.
//!
//! Knows nothing of how the comparison was made.

use std::fmt;
use std::time::Duration;

use super::{EarlierPlay, HoldUps};

/// What came out of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What was replayed.
    pub name: String,
    /// Calls whose answers were compared.
    pub calls: usize,
    /// Answers that are equal once ids, times and ports are translated.
    pub equal_calls: usize,
    /// Grants, revocations and dead-node notices that the recording holds.
    pub recorded_notices: usize,
    /// The same, as the cluster manager under test sent them.
    pub live_notices: usize,
    /// Differences that a row of the compatibility table allows.
    pub explained: Vec<Finding>,
    /// Differences that nothing allows.
    pub different: Vec<Finding>,
    /// What kept the replay from keeping the recorded times.
    pub hold_ups: HoldUps,
    /// Plays before this one, whose verdicts do not count.
    pub earlier: Vec<EarlierPlay>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// When, in the recording: since its first packet.
    pub at: Duration,
    /// Which conversation and call, or which session.
    pub place: String,
    /// What the recording has.
    pub recorded: String,
    /// What the cluster manager under test did.
    pub live: String,
    /// The row that allows it, if there is one.
    pub rule: Option<Rule>,
}

/// Why a difference is none: a row of `docs/compatibility.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// The name of the row; for a free choice, how it begins.
    pub row: &'static str,
}

impl Rule {
    /// Which node serves a request is free when several are equally near.
    pub const FREE_NODE: Rule = Rule { row: "which node, when several are equally near" };
    /// Which of two equal sessions or tasks comes first is free.
    pub const FREE_ORDER: Rule = Rule { row: "which of two equal sessions or pools comes first" };
    /// Grants come at once, not with the next turn of a scheduler thread.
    pub const PROMPT_GRANTS: Rule = Rule { row: "S-1" };
    /// Overdue nodes and sessions are found at once, not at the next half interval.
    pub const PROMPT_EXPIRY: Rule = Rule { row: "S-8" };
    /// A failed call is answered with an EXCEPTION message instead of a closed connection.
    pub const FAULT_INSTEAD_OF_CLOSE: Rule = Rule { row: "D-2.1" };
    /// Unknown sessions are passed over when they are to be killed.
    pub const KILLED_UNKNOWN: Rule = Rule { row: "D-2.2" };
    /// A pool without whitelist has an empty one.
    pub const NO_WHITELIST: Rule = Rule { row: "D-2.3" };
    /// Without a pools file no pool has a limit.
    pub const NO_POOLS_FILE: Rule = Rule { row: "D-2.4" };
    /// A session without a pool gets the default one.
    pub const NO_POOL: Rule = Rule { row: "D-2.5" };
    /// A malformed handle is an invalid one.
    pub const MALFORMED_HANDLE: Rule = Rule { row: "D-2.6" };
    /// A node may change what it offers.
    pub const OFFER_CHANGED: Rule = Rule { row: "D-3.4" };

    /// All of them.
    pub const ALL: [Rule; 11] = [
        Self::FREE_NODE,
        Self::FREE_ORDER,
        Self::PROMPT_GRANTS,
        Self::PROMPT_EXPIRY,
        Self::FAULT_INSTEAD_OF_CLOSE,
        Self::KILLED_UNKNOWN,
        Self::NO_WHITELIST,
        Self::NO_POOLS_FILE,
        Self::NO_POOL,
        Self::MALFORMED_HANDLE,
        Self::OFFER_CHANGED,
    ];
}

impl Report {
    /// Whether nothing differs that no rule explains.
    pub fn agrees(&self) -> bool {
        self.different.is_empty()
    }

    /// Adds a difference where it belongs.
    pub(super) fn add(&mut self, finding: Finding) {
        match finding.rule {
            Some(_) => self.explained.push(finding),
            None => self.different.push(finding),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} calls compared, {} equal; {} notices recorded, {} seen; {} explained, {} different",
            self.name,
            self.calls,
            self.equal_calls,
            self.recorded_notices,
            self.live_notices,
            self.explained.len(),
            self.different.len(),
        )?;
        if self.hold_ups.any() {
            writeln!(f, "held up: {}", self.hold_ups)?;
        }
        for play in &self.earlier {
            let EarlierPlay { different, hold_ups } = play;
            writeln!(f, "played again: {different} different in a play held up: {hold_ups}")?;
        }
        for finding in self.different.iter().chain(&self.explained) {
            writeln!(f, "{finding}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            Some(rule) => write!(f, "explained by '{}'", rule.row)?,
            None => write!(f, "DIFFERENT")?,
        }
        writeln!(f, " at {:.4} s, {}", self.at.as_secs_f64(), self.place)?;
        writeln!(f, "  recorded: {}", self.recorded)?;
        write!(f, "  live:     {}", self.live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_both_sides_and_the_row() {
        let finding = |rule| Finding {
            at: Duration::from_millis(1_500),
            place: "connection 3, getSessions".to_owned(),
            recorded: "one".to_owned(),
            live: "two".to_owned(),
            rule,
        };
        let mut report = Report { name: "grants".to_owned(), calls: 2, ..Report::default() };
        report.add(finding(Some(Rule::PROMPT_GRANTS)));
        assert!(report.agrees());
        report.add(finding(None));
        assert!(!report.agrees());
        assert_eq!(
            report.to_string(),
            "grants: 2 calls compared, 0 equal; 0 notices recorded, 0 seen; 1 explained, 1 different\n\
             DIFFERENT at 1.5000 s, connection 3, getSessions\n  recorded: one\n  live:     two\n\
             explained by 'S-1' at 1.5000 s, connection 3, getSessions\n  recorded: one\n  live:     two\n"
        );
    }
}
