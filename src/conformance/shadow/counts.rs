//! How far the primary's count of a session's slots may be from ours, since decisions and releases were on
//! their way when it answered.
//!
//! Our count is that of the moment of the call. The primary's is of some moment between the call and its
//! answer, and it notifies sessions after it has counted. A change that our count has and the primary's may
//! lack, or the reverse, lets the counts differ by one.

use std::collections::VecDeque;
use std::time::Duration;

use super::books::{SessionBooks, TheirDecision, TypeBooks};
use corona_model::types::ResourceType;

/// How long before its notification the primary may have made a decision, and how long after a call it
/// may execute it. Spec: cluster-manager/05 §4, 09 §4.6.
const SETTLED: Duration = Duration::from_millis(1_200);
/// How long changes are kept.
const KEPT: Duration = Duration::from_secs(20);
/// An answer that took longer cannot be judged any more.
pub(super) const LONGEST_ANSWER: Duration = Duration::from_secs(15);

/// A slot that a session gained or lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) gain: bool,
    /// When our count had it.
    pub(super) ours: (Duration, Duration),
    /// The time by which the primary's had it, if it ever did.
    pub(super) theirs: Option<Duration>,
}

/// Forever.
pub(super) const ON: Duration = Duration::MAX;

/// The finished changes of one session and type.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes(VecDeque<(Duration, Change)>);

/// How many slots fewer and more than ours the primary may count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slack {
    pub(super) fewer: u64,
    pub(super) more: u64,
}

impl Changes {
    pub(super) fn note(&mut self, now: Duration, change: Change) {
        while self.0.front().is_some_and(|(at, _)| now.saturating_sub(*at) > KEPT) {
            self.0.pop_front();
        }
        self.0.push_back((now, change));
    }

    /// A request that held a slot is released by the session.
    pub(super) fn released(&mut self, now: Duration) {
        let theirs = Some(now.saturating_add(SETTLED));
        self.note(now, Change { gain: false, ours: (now, ON), theirs });
    }

    /// The primary has answered a release of this time.
    pub(super) fn release_answered(&mut self, called: Duration, now: Duration) {
        let of_then = self.0.iter_mut().rev().map(|(_, change)| change);
        let of_then = of_then.take_while(|change| change.ours.0 >= called);
        for change in of_then.filter(|change| change.ours.0 == called && !change.gain) {
            change.theirs = change.theirs.min(Some(now));
        }
    }
}

impl Slack {
    /// Adds a change. The call was made and answered at these times.
    fn add(&mut self, change: Change, [called, answered]: [Duration; 2]) {
        let (from, until) = change.ours;
        let ours = from <= called && called < until;
        let certain = change.theirs.is_some_and(|at| at <= called);
        // The primary is ahead of us only where timers decide.
        let possible = change.theirs.is_some_and(|at| {
            at <= answered.saturating_add(SETTLED) && (from <= answered || at <= from)
        });
        match (ours, change.gain) {
            (true, gain) if !certain => *(if gain { &mut self.fewer } else { &mut self.more }) += 1,
            (false, gain) if possible => {
                *(if gain { &mut self.more } else { &mut self.fewer }) += 1
            }
            _ => {}
        }
    }
}

impl SessionBooks {
    /// The slack of a type, for a call that was made and answered at these times.
    pub(super) fn slack(&self, kind: ResourceType, times: [Duration; 2]) -> Slack {
        let books = &self.types[kind];
        let mut slack = Slack::default();
        let finished = books.changes.0.iter().map(|(_, change)| *change);
        finished.chain(books.pending_changes()).for_each(|change| slack.add(change, times));
        for unmatched in &self.unmatched {
            let (TheirDecision::Granted(grant) | TheirDecision::Revoked(grant)) = &unmatched.what
            else {
                continue;
            };
            if grant.kind == kind {
                let gain = matches!(unmatched.what, TheirDecision::Granted(_));
                let change = Change { gain, ours: (ON, ON), theirs: Some(unmatched.since) };
                slack.add(change, times);
            }
        }
        slack
    }

    /// Whether slots may have been lost with a node around the time of a call.
    pub(super) fn has_lost_nodes(&self, called: Duration) -> bool {
        let lately = self.lost_node_at.is_some_and(|at| at.saturating_add(SETTLED) >= called);
        lately || !self.dead_nodes.is_empty()
    }
}

impl TypeBooks {
    /// Our decisions that the primary has not made yet.
    fn pending_changes(&self) -> impl Iterator<Item = Change> {
        let grants = self.grants.iter().chain(self.overdue.values());
        let grants = grants.filter(|ours| !ours.released).map(|ours| (true, ours.made.at));
        let revocations = self.revocations.iter().map(|ours| (false, ours.made.at));
        grants.chain(revocations).map(|(gain, at)| Change { gain, ours: (at, ON), theirs: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_on_their_way_let_counts_differ() {
        let at = Duration::from_secs;
        // The call is made at 100 s, and answered at 101 s.
        let slack = |change| {
            let mut slack = Slack::default();
            slack.add(change, [at(100), at(101)]);
            (slack.fewer, slack.more)
        };
        for (name, ours, theirs, expected) in [
            ("both had it before", (at(90), ON), Some(at(91)), (0, 0)),
            ("the primary's notification came later", (at(90), ON), Some(at(101)), (1, 0)),
            ("only ours", (at(90), ON), None, (1, 0)),
            ("only ours, and taken back before", (at(90), at(95)), None, (0, 0)),
            ("ours after the call, theirs long after", (at(101), ON), Some(at(110)), (0, 0)),
            ("ours after the call, theirs at once", (at(101), ON), Some(at(102)), (0, 1)),
            ("ours after the answer", (at(102), ON), Some(at(102) + SETTLED / 9), (0, 0)),
            ("ours after the answer, theirs before", (at(102), ON), Some(at(101)), (0, 1)),
            ("only theirs", (ON, ON), Some(at(100)), (0, 1)),
        ] {
            let gain = Change { gain: true, ours, theirs };
            assert_eq!(slack(gain), expected, "{name}");
            let (fewer, more) = expected;
            assert_eq!(slack(Change { gain: false, ..gain }), (more, fewer), "{name}, a loss");
        }
        let mut changes = Changes::default();
        for second in [1, 2, 30] {
            changes.released(at(second));
        }
        assert_eq!(changes.0.len(), 1, "changes are kept for a time");
        changes.released(at(31));
        changes.release_answered(at(30), at(31));
        let theirs: Vec<Option<Duration>> = changes.0.iter().map(|(_, it)| it.theirs).collect();
        assert_eq!(theirs, [Some(at(31)), Some(at(31) + SETTLED)]);
    }
}
