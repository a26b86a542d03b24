//! Decisions of either side without a counterpart on the other: the grants, revocations and dead
//! nodes of each session.
//!
//! Pure data: time is an argument, counted from the start of the run. Every entry waits for the other side
//! for a bounded time, or for the end of its session.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::counts::Changes;
use corona_model::types::{Grant, PerType, ResourceType};

/// A grant that was decided here; the primary has not notified the session of an equal one yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OurGrant {
    pub(super) id: i32,
    /// The node that it is on in our books now.
    pub(super) node: Arc<str>,
    /// Whether the node that we chose is on a preferred host.
    pub(super) near: bool,
    pub(super) made: Made,
    /// Distinguishes entries with the same id.
    pub(super) stamp: u64,
    /// Whether the session has released it before it was notified.
    pub(super) released: bool,
}

/// A revocation that was decided here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OurRevocation {
    pub(super) id: i32,
    pub(super) node: Arc<str>,
    pub(super) made: Made,
    pub(super) stamp: u64,
    pub(super) released: bool,
}

/// A node that was found dead here.
#[derive(Clone, Debug)]
pub(super) struct OurDeadNode {
    pub(super) node: Arc<str>,
    pub(super) stamp: u64,
    pub(super) made: Made,
}

/// When a decision was made here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) at: Duration,
    /// For how long the session's driver had had notifications to answer by then.
    pub(super) busy: Duration,
}

/// For how long a session's driver has had notifications to answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Busy {
    before: Duration,
    since: Option<Duration>,
}

impl Busy {
    pub(super) fn begins(&mut self, now: Duration) {
        self.since.get_or_insert(now);
    }

    pub(super) fn ends(&mut self, now: Duration) {
        self.before = self.until(now);
        self.since = None;
    }

    /// In all until now.
    pub(super) fn until(self, now: Duration) -> Duration {
        let now = self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        self.before.saturating_add(now)
    }
}

/// A decision that the primary has sent to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TheirDecision {
    Granted(Grant),
    Revoked(Grant),
    DeadNode(Arc<str>),
}

impl TheirDecision {
    /// The method that notifies a session of it.
    pub(super) fn method(&self) -> &'static str {
        match self {
            TheirDecision::Granted(_) => "grantResource",
            TheirDecision::Revoked(_) => "revokeResource",
            TheirDecision::DeadNode(_) => "processDeadNode",
        }
    }
}

/// A decision of the primary that is not matched yet.
#[derive(Clone, Debug)]
pub(super) struct Unmatched {
    pub(super) since: Duration,
    pub(super) what: TheirDecision,
}

/// The slots of one type of one session.
#[derive(Clone, Debug, Default)]
pub(super) struct TypeBooks {
    pub(super) grants: VecDeque<OurGrant>,
    /// Grants that the primary has not made in time. They keep their slots here, so that nothing
    /// follows from it, until a grant of the primary needs the room.
    pub(super) overdue: BTreeMap<i32, OurGrant>,
    pub(super) revocations: VecDeque<OurRevocation>,
    /// Requests that were granted here and wait again, since the primary chose differently. While
    /// there are any, the order of requests is not the original one.
    pub(super) put_back: BTreeSet<i32>,
    /// How often in a row the primary has served another session instead.
    pub(super) passed_over: u32,
    /// Changes of the slots that it holds on either side.
    pub(super) changes: Changes,
    /// A different order has been reported for all decisions up to this stamp.
    out_of_order: u64,
}

impl TypeBooks {
    /// Takes out our grant of a request. If others should have come first, and that is not reported
    /// yet, returns the first of these as well.
    pub(super) fn take_grant(&mut self, id: i32) -> Option<(OurGrant, Option<i32>)> {
        if let Some(late) = self.overdue.remove(&id) {
            return Some((late, None));
        }
        let place = self.grants.iter().position(|ours| ours.id == id)?;
        let first = self.grants.front().map(|first| first.id);
        let last = self.grants.back().map_or(0, |last| last.stamp);
        let ours = self.grants.remove(place)?;
        let early = place > 0 && self.is_news(ours.stamp, last) && self.put_back.is_empty();
        Some((ours, first.filter(|_| early)))
    }

    /// As [`Self::take_grant`], for our revocation.
    pub(super) fn take_revocation(&mut self, id: i32) -> Option<(OurRevocation, Option<i32>)> {
        let place = self.revocations.iter().position(|ours| ours.id == id)?;
        let first = self.revocations.front().map(|first| first.id);
        let last = self.revocations.back().map_or(0, |last| last.stamp);
        let ours = self.revocations.remove(place)?;
        let early = place > 0 && self.is_news(ours.stamp, last);
        Some((ours, first.filter(|_| early)))
    }

    /// A decision that comes out of order puts those around it out of order, too.
    fn is_news(&mut self, stamp: u64, last: u64) -> bool {
        let news = stamp > self.out_of_order;
        if news {
            self.out_of_order = last;
        }
        news
    }
}

/// One session that is followed.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionBooks {
    pub(super) types: PerType<TypeBooks>,
    pub(super) dead_nodes: VecDeque<OurDeadNode>,
    /// When either side last found a node dead that it had used.
    pub(super) lost_node_at: Option<Duration>,
    /// Nodes that the primary has granted something on.
    pub(super) used: HashSet<Arc<str>>,
    /// Decisions of the primary that are not matched yet, in its order.
    pub(super) unmatched: VecDeque<Unmatched>,
    pub(super) driver_port: u16,
    /// Notifications of the primary that its driver has not answered.
    pub(super) notifications: u32,
    pub(super) busy: Busy,
    /// Requests that not both sides have granted: when they were made, and whether they prefer hosts.
    pub(super) asked: HashMap<i32, (Duration, bool)>,
}

impl SessionBooks {
    /// For a decision about it that is made now.
    pub(super) fn made(&self, now: Duration) -> Made {
        Made { at: now, busy: self.busy.until(now) }
    }

    pub(super) fn of_type(&mut self, kind: ResourceType) -> &mut TypeBooks {
        &mut self.types[kind]
    }

    /// Whether the primary has granted the request of this grant of ours, and that is still to be judged.
    pub(super) fn is_matched_soon(&self, kind: ResourceType, stamp: u64) -> bool {
        let ours = self.types[kind].grants.iter().find(|ours| ours.stamp == stamp);
        ours.is_some_and(|ours| {
            let is_it = |what: &TheirDecision| matches!(what, TheirDecision::Granted(it) if it.id == ours.id);
            self.unmatched.iter().any(|unmatched| is_it(&unmatched.what))
        })
    }

    /// Decisions that wait for the other side.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        let of = |of_type: &TypeBooks| of_type.grants.len() + of_type.revocations.len();
        self.types.0.iter().map(of).sum::<usize>() + self.dead_nodes.len() + self.unmatched.len()
    }
}

/// The time by which the primary should have made a decision of ours as well.
#[derive(Clone, Debug)]
pub(super) struct ExpectedDecision {
    pub(super) at: Duration,
    pub(super) handle: Arc<str>,
    pub(super) what: DueWhat,
    pub(super) stamp: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DueWhat {
    Grant(ResourceType),
    Revocation(ResourceType),
    DeadNode,
}

/// The books of all sessions.
#[derive(Debug, Default)]
pub(super) struct DecisionBooks {
    pub(super) sessions: HashMap<Arc<str>, SessionBooks>,
    /// Grants of ours that the primary has not confirmed, by node: session and request.
    pub(super) unconfirmed: HashMap<Arc<str>, BTreeSet<(Arc<str>, i32)>>,
    /// Stamps of decisions of ours that wait for the primary.
    pub(super) open: HashSet<u64>,
    /// When they are due, in order. Those that do not wait any more are skipped.
    pub(super) due: VecDeque<ExpectedDecision>,
    /// Sessions with decisions of the primary that are not matched yet.
    pub(super) with_unmatched: BTreeSet<Arc<str>>,
    /// Unmatched revocations of the primary, by type.
    pub(super) unmatched_revocations: PerType<usize>,
    /// Requests that were released lately.
    pub(super) released: Recent<(Arc<str>, i32)>,
    /// Sessions that ended lately.
    pub(super) ended: Recent<Arc<str>>,
    stamps: u64,
}

impl DecisionBooks {
    pub(super) fn stamp(&mut self) -> u64 {
        self.stamps += 1;
        self.stamps
    }

    pub(super) fn is_unconfirmed_on(&mut self, node: &Arc<str>, handle: &Arc<str>, id: i32) {
        self.unconfirmed.entry(node.clone()).or_default().insert((handle.clone(), id));
    }

    pub(super) fn is_settled_on(&mut self, node: &Arc<str>, handle: &Arc<str>, id: i32) {
        if let Some(all) = self.unconfirmed.get_mut(node) {
            all.remove(&(handle.clone(), id));
            if all.is_empty() {
                self.unconfirmed.remove(node);
            }
        }
    }

    /// Removes a session with all that is noted about it.
    pub(super) fn end(&mut self, handle: &Arc<str>, now: Duration) -> Option<SessionBooks> {
        let session = self.sessions.remove(handle)?;
        let revocations = session.types.0.iter().flat_map(|books| &books.revocations);
        let stamps = revocations.map(|ours| ours.stamp);
        for stamp in stamps.chain(session.dead_nodes.iter().map(|ours| ours.stamp)) {
            self.open.remove(&stamp);
        }
        for grant in session.types.0.iter().flat_map(|books| &books.grants) {
            self.open.remove(&grant.stamp);
        }
        for books in &session.types.0 {
            for grant in books.grants.iter().chain(books.overdue.values()) {
                self.is_settled_on(&grant.node, handle, grant.id);
            }
        }
        for unmatched in &session.unmatched {
            if let TheirDecision::Revoked(grant) = &unmatched.what {
                let count = &mut self.unmatched_revocations[grant.kind];
                *count = count.saturating_sub(1);
            }
        }
        self.with_unmatched.remove(handle);
        self.ended.note(handle.clone(), now);
        Some(session)
    }

    /// Decisions that wait for the other side.
    pub(super) fn waiting(&self) -> usize {
        self.open.len() + self.with_unmatched.len()
    }
}

/// The last so many of something.
#[derive(Debug)]
pub(super) struct Recent<T> {
    order: VecDeque<(T, Duration)>,
    count: HashMap<T, u32>,
    max: usize,
    /// When the last one was forgotten that was still recent.
    forgot_at: Option<Duration>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent { order: VecDeque::new(), count: HashMap::new(), max: MAX_RECENT, forgot_at: None }
    }
}

/// Things that are remembered as recent.
const MAX_RECENT: usize = 200_000;
/// For how long.
const RECENT: Duration = Duration::from_secs(60);

impl<T: Clone + Eq + std::hash::Hash> Recent<T> {
    pub(super) fn note(&mut self, what: T, now: Duration) {
        while let Some((oldest, at)) = self.order.front().cloned() {
            let recent = now.saturating_sub(at) < RECENT;
            if recent && self.order.len() < self.max {
                break;
            }
            if recent {
                self.forgot_at = Some(now);
            }
            self.order.pop_front();
            match self.count.get_mut(&oldest) {
                Some(count) if *count > 1 => *count -= 1,
                _ => {
                    self.count.remove(&oldest);
                }
            }
        }
        *self.count.entry(what.clone()).or_default() += 1;
        self.order.push_back((what, now));
    }

    pub(super) fn has(&self, what: &T) -> bool {
        self.count.contains_key(what)
    }

    /// Whether there may have been more than are remembered.
    pub(super) fn may_lack_some(&self, now: Duration) -> bool {
        self.forgot_at.is_some_and(|at| now.saturating_sub(at) < RECENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recent_is_bounded_in_number_and_time_and_reports_what_it_forgets() {
        let mut recent = Recent { max: 3, ..Recent::default() };
        let at = Duration::from_secs;
        for number in [1, 2, 1] {
            recent.note(number, at(1));
        }
        assert!(recent.has(&1) && recent.has(&2) && !recent.may_lack_some(at(1)));
        recent.note(3, at(2));
        assert!(recent.has(&1), "it was there twice");
        recent.note(4, at(3));
        assert!(!recent.has(&2) && recent.may_lack_some(at(62)) && !recent.may_lack_some(at(63)));
        assert_eq!((recent.order.len(), recent.count.len()), (3, 3));
        recent.note(5, at(62));
        assert!(
            !recent.has(&1) && !recent.has(&3) && recent.has(&4) && !recent.may_lack_some(at(63))
        );
    }

    #[test]
    fn another_order_is_reported_once_for_all_decisions_that_it_concerns() {
        let mut books = TypeBooks::default();
        for id in 1..=6 {
            let (node, stamp) = ("n".into(), id as u64);
            let ours = OurRevocation { id, node, made: Made::default(), stamp, released: false };
            books.revocations.push_back(ours);
        }
        let mut early = |id| books.take_revocation(id).map(|(_, first)| first);
        assert_eq!(early(1), Some(None));
        assert_eq!([early(4), early(3), early(2)], [Some(Some(2)), Some(None), Some(None)]);
        assert_eq!([early(5), early(6), early(6)], [Some(None), Some(None), None]);
    }

    #[test]
    fn an_ended_session_leaves_nothing_but_its_name() {
        let mut books = DecisionBooks::default();
        let (handle, node): (Arc<str>, Arc<str>) = ("1.1".into(), "n".into());
        let stamp = books.stamp();
        let session = books.sessions.entry(handle.clone()).or_default();
        let (id, made) = (4, Made::default());
        let grant = OurGrant { id, node: node.clone(), near: true, made, stamp, released: false };
        session.of_type(ResourceType::Map).grants.push_back(grant);
        books.is_unconfirmed_on(&node, &handle, 4);
        assert_eq!(books.end(&handle, Duration::ZERO).map(|session| session.waiting()), Some(1));
        assert!(books.unconfirmed.is_empty() && books.sessions.is_empty());
        assert!(books.ended.has(&handle));
    }
}
