//! The two sides of a shadow: this program's cluster manager, the decisions of both that wait for
//! each other, and the known circumstances. The verdicts go to the statistics.
//!
//! Time is `now`, which the stepper sets; it counts from the start of the run.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::books::{DecisionBooks, Recent};
use super::connections::PendingCall;
use super::ids::Ids;
use super::oracle::Oracle;
use super::stats::Stats;
use super::times::Requested;
use corona_cluster_manager::Decision;
use corona_wire::value::Message;

/// Both sides of a shadow.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) now: Duration,
    pub(super) oracle: Oracle,
    pub(super) books: DecisionBooks,
    pub(super) stats: Stats,
    pub(super) ids: Ids,
    /// How much later than this program the primary may make a decision.
    pub(super) patience: Duration,
    /// Sessions that run at the primary and are not followed.
    pub(super) unfollowed: HashSet<Arc<str>>,
    /// Whether the primary has listed its sessions.
    pub(super) primary_listed: bool,
    /// Sessions that expired here.
    pub(super) expired: Recent<Arc<str>>,
    /// Ports of session drivers that could not be reached.
    pub(super) troubled_ports: Recent<u16>,
    pub(super) trouble_at: Option<Duration>,
    /// When calls that change something were last in flight at the same time.
    pub(super) crossed_at: Option<Duration>,
    /// When this program's cluster manager was started.
    pub(super) began_at: Duration,
    pub(super) requested: Requested,
    /// Lists of sessions that differ, until decisions that may be on their way have come.
    pub(super) put_off: VecDeque<PutOff>,
}

/// An answer that is judged later.
#[derive(Debug)]
pub(super) struct PutOff {
    pub(super) answered_at: Duration,
    pub(super) call: PendingCall,
    pub(super) theirs: Message,
}

pub(super) const UNFOLLOWED: &str = "calls of sessions whose start was not seen";

/// How long calls that were in flight at the same time may explain a different order.
const CROSSED: Duration = Duration::from_millis(2_500);
/// How long after its start this program's cluster manager may lack nodes.
const LEARNING: Duration = Duration::from_secs(15);
/// How long an unreachable session driver explains the primary's behaviour.
const TROUBLE: Duration = Duration::from_secs(300);
/// Sessions that run at the primary and are not followed.
const MAX_UNFOLLOWED: usize = 65_536;

impl Comparison {
    pub(super) fn new(oracle: Oracle, stats: Stats, patience: Duration) -> Comparison {
        Comparison {
            now: Duration::ZERO,
            oracle,
            books: DecisionBooks::default(),
            stats,
            ids: Ids::default(),
            patience,
            unfollowed: HashSet::new(),
            primary_listed: false,
            expired: Recent::default(),
            troubled_ports: Recent::default(),
            trouble_at: None,
            crossed_at: None,
            began_at: Duration::ZERO,
            requested: Requested::default(),
            put_off: VecDeque::new(),
        }
    }

    /// Continues with a new cluster manager. Running sessions are not followed.
    pub(super) fn restart(&mut self, oracle: Oracle) {
        self.oracle = oracle;
        let books = std::mem::take(&mut self.books);
        self.unfollowed.clear();
        let mut handles: Vec<_> = books.sessions.into_keys().collect();
        handles.sort_unstable();
        for handle in handles {
            self.is_not_followed(&handle);
        }
        self.began_at = self.now;
        self.requested = Requested::default();
    }

    /// Whether nothing waits for the other side, or for a time.
    pub(super) fn is_idle(&self) -> bool {
        self.books.waiting() == 0
            && self.unfollowed.is_empty()
            && self.put_off.is_empty()
            && !self.stats.has_new_times()
    }

    fn since(&self, at: Duration) -> Duration {
        self.now.saturating_sub(at)
    }

    /// Whether calls were in flight at the same time lately, so that their order is not known.
    pub(super) fn has_crossed(&self) -> bool {
        self.crossed_at.is_some_and(|at| self.since(at) < CROSSED)
    }

    /// Whether nodes of the cluster may not have sent a heartbeat yet.
    pub(super) fn is_learning(&self) -> bool {
        self.since(self.began_at) < LEARNING
    }

    /// Whether sessions that are not followed may hold slots at the primary.
    pub(super) fn may_hide_slots(&self) -> bool {
        !self.unfollowed.is_empty() || (!self.primary_listed && self.is_learning())
    }

    /// Whether the primary may have ended a session lately that it could not reach.
    pub(super) fn in_trouble(&self) -> bool {
        self.trouble_at.is_some_and(|at| self.since(at) < TROUBLE)
    }

    /// A session runs at the primary whose start was not seen.
    pub(super) fn is_not_followed(&mut self, handle: &str) {
        if self.ids.seen(handle) {
            self.take_identity();
        }
        if self.unfollowed.len() < MAX_UNFOLLOWED {
            self.unfollowed.insert(handle.into());
        }
    }

    /// Numbers sessions as the primary does.
    pub(super) fn take_identity(&mut self) {
        if let Some((id_prefix, sessions_numbered)) = self.ids.identity() {
            self.oracle.take_identity(self.now, id_prefix, sessions_numbered);
        }
    }

    /// Makes the decisions of this program that are due, and enters them. Returns whether there
    /// were any. `ends` means that a call is the reason if a session ends.
    pub(super) fn decide(&mut self, ends: bool) -> bool {
        self.oracle.settle(self.now);
        let decisions = self.oracle.decisions();
        let any = !decisions.is_empty();
        let mut notified = Vec::new();
        for decision in decisions {
            match decision {
                Decision::Notified(handle, notification) => {
                    self.decided(&handle, notification);
                    notified.push(handle);
                }
                Decision::Ended(handle) => {
                    if !ends {
                        self.expired.note(handle.clone(), self.now);
                    }
                    self.match_decisions(&handle);
                    self.session_ended(&handle);
                }
            }
        }
        // What the primary has decided is judged with all of them in the books: any may be in its way.
        for handle in notified {
            self.match_decisions(&handle);
        }
        any
    }
}
