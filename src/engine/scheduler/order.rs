//! Scheduling order: the comparators of the original as sort keys.
//!
//! Spec: cluster-manager/04 §5. Smaller keys come first.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use serde::Serialize;

use super::shares::{Claim, GUARANTEED};
use crate::index::{GroupIdx, PoolIdx, SessionIdx};
use crate::settings::SchedulingMode;
use crate::types::{Millis, SessionPriority};

/// A group or a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueIdx {
    Group(GroupIdx),
    Pool(PoolIdx),
}

/// Orders siblings, the queues in one group or the outermost groups: those below their minimum
/// first, then by priority, then by their grants. This is the seam *order of siblings*: all that
/// decides it is in [`QueueStanding::new`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueKey {
    pub(super) standing: QueueStanding,
    name: JavaStr,
    pub(super) index: QueueIdx,
}

/// The part of a [`QueueKey`] that changes with the grants of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueStanding {
    satisfied: bool,
    rank: Reverse<i64>,
    ratio: Ratio,
    priority: Reverse<i64>,
}

impl QueueStanding {
    /// The comparator PRIORITY; with equal priorities it is FAIR. `granted` is the number of grants
    /// of the queue, `weighed` that by which queues with their minimum are compared: the same number
    /// or, where resources are counted, the dominant share. `below` is the part that it holds of its minimum in
    /// resources, if it is below that.
    pub(super) fn new(granted: i64, weighed: i64, below: Option<f64>, claim: &Claim) -> Self {
        let Claim { minimum, weight, priority, .. } = *claim;
        let of_slots = (granted < minimum).then(|| granted as f64 / minimum as f64);
        let needy = of_slots.is_some() || below.is_some();
        let ratio = match (of_slots, below) {
            (Some(of_slots), Some(below)) => of_slots.min(below),
            (part, None) | (None, part) => part.unwrap_or(weighed as f64 / weight),
        };
        QueueStanding {
            satisfied: !needy,
            rank: Reverse(if needy { 0 } else { priority }),
            ratio: Ratio(ratio),
            priority: Reverse(priority),
        }
    }
}

impl QueueKey {
    pub(super) fn new(standing: QueueStanding, name: &Arc<str>, index: QueueIdx) -> Self {
        QueueKey { standing, name: JavaStr(name.clone()), index }
    }

    /// The reason why this queue comes before `later`.
    pub(super) fn precedence(&self, later: &QueueKey) -> Precedence {
        let (first, second) = (self.standing, later.standing);
        if first.satisfied != second.satisfied {
            Precedence::BelowMinimum
        } else if first.rank != second.rank {
            match first.rank {
                Reverse(GUARANTEED) => Precedence::Guaranteed,
                _ => Precedence::HigherPriority,
            }
        } else if first.ratio != second.ratio {
            match first.satisfied {
                true => Precedence::FewerGrants,
                false => Precedence::FurtherBelowMinimum,
            }
        } else if first.priority != second.priority {
            Precedence::HigherPriority
        } else {
            Precedence::Name
        }
    }
}

/// The reason why a group, a pool or a session comes before another one: the first difference that
/// decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Precedence {
    /// It has fewer grants than its minimum, unlike the other one.
    BelowMinimum,
    /// Both are below their minima, and it has the smaller part of its own.
    FurtherBelowMinimum,
    /// It has a minimum, the other one has none, and their group is in strict capacity order.
    Guaranteed,
    /// Its priority is higher.
    HigherPriority,
    /// It has fewer grants; a pool for its weight.
    FewerGrants,
    /// Its deadline is earlier.
    EarlierDeadline,
    /// It started earlier.
    EarlierStart,
    /// All that counts is equal, and the order of the names decides.
    Name,
}

/// Orders the sessions of a pool by the pool's mode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionKey {
    priority: Reverse<SessionPriority>,
    rank: i64,
    started: Millis,
    name: JavaStr,
    pub(super) session: SessionIdx,
}

/// The values that make up a [`SessionKey`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionStanding<'a> {
    pub(crate) priority: SessionPriority,
    /// Its grants or, where resources are counted, its dominant share.
    pub(crate) granted: i64,
    /// Milliseconds since the epoch; 0 for none, which sorts last.
    pub(crate) deadline: i64,
    pub(crate) started: Millis,
    /// The name at the session's start.
    pub(crate) name: &'a Arc<str>,
}

impl SessionKey {
    pub(super) fn new(
        mode: SchedulingMode,
        standing: SessionStanding<'_>,
        session: SessionIdx,
    ) -> Self {
        SessionKey {
            priority: Reverse(standing.priority),
            rank: rank(mode, &standing),
            started: standing.started,
            name: JavaStr(standing.name.clone()),
            session,
        }
    }

    /// The reason why this session comes before `later`, which is in a pool of the same mode.
    pub(super) fn precedence(&self, later: &SessionKey, mode: SchedulingMode) -> Precedence {
        if self.priority != later.priority {
            return Precedence::HigherPriority;
        }
        match mode {
            SchedulingMode::Fair if self.rank != later.rank => Precedence::FewerGrants,
            SchedulingMode::Deadline if self.rank != later.rank => Precedence::EarlierDeadline,
            _ if self.started != later.started => Precedence::EarlierStart,
            _ => Precedence::Name,
        }
    }

    /// Takes over a changed number of grants.
    pub(super) fn update(&mut self, mode: SchedulingMode, standing: &SessionStanding<'_>) {
        self.rank = rank(mode, standing);
    }
}

fn rank(mode: SchedulingMode, standing: &SessionStanding<'_>) -> i64 {
    match mode {
        SchedulingMode::Fifo => 0,
        SchedulingMode::Fair => standing.granted,
        SchedulingMode::Deadline if standing.deadline == 0 => i64::MAX,
        SchedulingMode::Deadline => standing.deadline,
    }
}

/// A ratio of two counts. Not-a-number, as of 0 / 0, comes last, together with infinity.
#[derive(Clone, Copy, Debug)]
struct Ratio(f64);

impl Ratio {
    fn sortable(self) -> f64 {
        // Adding 0.0 makes -0.0 equal to 0.0.
        if self.0.is_nan() { f64::INFINITY } else { self.0 + 0.0 }
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sortable().total_cmp(&other.sortable())
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ratio {}

/// A string in Java's order, by UTF-16 units. It differs from the order of the bytes only where
/// characters beyond the basic plane meet ones near its end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct JavaStr(Arc<str>);

impl Ord for JavaStr {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        self.0.encode_utf16().cmp(other.0.encode_utf16())
    }
}

impl PartialOrd for JavaStr {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Idx as _;

    fn pool(granted: i64, minimum: i64, weight: f64, priority: i64) -> QueueKey {
        let claim = Claim { requested: 0, minimum, maximum: 0, weight, priority };
        let index = QueueIdx::Pool(PoolIdx::from_number(0));
        QueueKey::new(QueueStanding::new(granted, granted, None, &claim), &"p".into(), index)
    }

    #[test]
    fn pools_compare_as_in_the_original() {
        // Spec: cluster-manager/04 §10; the first of each pair comes first.
        let cases = [
            ("needy before idle without minimum", pool(9, 10, 1.0, 0), pool(0, 0, 100.0, 0)),
            ("needier first", pool(1, 2, 1.0, 0), pool(2, 3, 1.0, 0)),
            ("heavier first", pool(4, 0, 2.0, 0), pool(4, 0, 1.0, 0)),
            ("priority before count", pool(1, 0, 1.0, 2), pool(2, 0, 1.0, 1)),
            ("priority before weight", pool(2, 0, 0.5, 2), pool(2, 0, 1.0, 1)),
            ("needy before any priority", pool(1, 2, 1.0, 0), pool(0, 0, 1.0, 9)),
            ("weight 0 last", pool(1000, 0, 1.0, 0), pool(0, 0, 0.0, 0)),
        ];
        for (what, first, second) in cases {
            assert!(first < second, "{what}");
        }
    }

    #[test]
    fn sessions_compare_by_the_mode_of_their_pool() {
        use SchedulingMode::{Deadline, Fair, Fifo};
        use SessionPriority::{High, Normal};
        let name: Arc<str> = "n".into();
        let key = |mode, priority, granted, deadline, started, session| {
            let started = Millis(started);
            let standing = SessionStanding { priority, granted, deadline, started, name: &name };
            SessionKey::new(mode, standing, SessionIdx::from_number(session))
        };
        let cases = [
            ("fifo", key(Fifo, Normal, 9, 0, 1, 0), key(Fifo, Normal, 0, 0, 2, 1)),
            ("fifo, priority", key(Fifo, High, 9, 0, 2, 0), key(Fifo, Normal, 0, 0, 1, 1)),
            ("fair", key(Fair, Normal, 1, 0, 9, 0), key(Fair, Normal, 2, 0, 1, 1)),
            ("fair, priority", key(Fair, High, 5, 0, 1, 0), key(Fair, Normal, 0, 0, 1, 1)),
            ("deadline", key(Deadline, Normal, 0, 5, 2, 0), key(Deadline, Normal, 0, 6, 1, 1)),
            ("no deadline", key(Deadline, Normal, 0, 5, 2, 0), key(Deadline, Normal, 0, 0, 1, 1)),
            ("tie", key(Fair, Normal, 1, 0, 1, 0), key(Fair, Normal, 1, 0, 1, 1)),
        ];
        for (what, first, second) in cases {
            assert!(first < second, "{what}");
        }
    }

    #[test]
    fn names_compare_by_utf16_units() {
        let (astral, late) = (JavaStr("\u{1F600}".into()), JavaStr("\u{FF5E}".into()));
        assert!(astral < late);
        assert!(JavaStr("a".into()) < JavaStr("ab".into()));
    }
}
