//! What either side has decided and the other has not yet: the grants, revocations and dead nodes
//! of each session.
//!
//! Pure data. Everything here waits for the other side for a bounded time, or for the end of its
//! session.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use corona_model::types::{Grant, ResourceType};

/// A grant that was decided here, and that the primary has not told yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OurGrant {
    pub(super) id: i32,
    /// Where it is in our books now.
    pub(super) node: Arc<str>,
    /// Whether our own choice of a node was on a host that was asked for.
    pub(super) near: bool,
    /// Tells entries with the same id apart.
    pub(super) stamp: u64,
    /// The session has given it back before it was told of it.
    pub(super) released: bool,
}

/// A revocation that was decided here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OurRevocation {
    pub(super) id: i32,
    pub(super) node: Arc<str>,
    pub(super) stamp: u64,
    pub(super) released: bool,
}

/// What the primary has told a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Theirs {
    Granted(Grant),
    Revoked(Grant),
    DeadNode(Arc<str>),
}

impl Theirs {
    /// The method that tells it.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Theirs::Granted(_) => "grantResource",
            Theirs::Revoked(_) => "revokeResource",
            Theirs::DeadNode(_) => "processDeadNode",
        }
    }
}

/// Something that the primary has told and that is not matched yet.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) since: Instant,
    pub(super) what: Theirs,
}

/// One type of one session.
#[derive(Clone, Debug, Default)]
pub(super) struct Topic {
    pub(super) grants: VecDeque<OurGrant>,
    /// Those that the primary has not told in time. They keep their slots here, so that nothing
    /// follows from it, until something of the primary needs the room.
    pub(super) overdue: BTreeMap<i32, OurGrant>,
    pub(super) revocations: VecDeque<OurRevocation>,
    /// Requests that were granted here and wait again, since the primary chose otherwise. While
    /// there are any, the order of requests is not what it was.
    pub(super) put_back: BTreeSet<i32>,
    /// How often in a row the primary has served another session instead.
    pub(super) passed_over: u32,
    /// Another order than ours was told of for all decisions up to this stamp.
    out_of_order: u64,
}

impl Topic {
    /// Takes out our grant of a request. If others should have come first, and that is not told
    /// yet, gives the first of these as well.
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

    /// One that is told out of order puts those around it out of order, too.
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
pub(super) struct Session {
    pub(super) topics: [Topic; 3],
    pub(super) dead_nodes: VecDeque<(Arc<str>, u64)>,
    /// Nodes that the primary has granted something on.
    pub(super) used: HashSet<Arc<str>>,
    /// What the primary has told, in its order, and is not matched yet.
    pub(super) held: VecDeque<Held>,
    /// The port of its driver.
    pub(super) driver_port: u16,
    /// Notices of the primary that its driver has not answered.
    pub(super) telling: u32,
    /// When either side last gave it something or took something back.
    pub(super) moved_at: Option<Instant>,
}

/// How long the primary may take to count what it has decided. Spec: cluster-manager/05 §4, 09 §4.6.
const SETTLED: std::time::Duration = std::time::Duration::from_millis(1_200);

impl Session {
    pub(super) fn topic(&mut self, kind: ResourceType) -> &mut Topic {
        &mut self.topics[kind.index()]
    }

    /// Whether its counts may differ, since something is on its way.
    pub(super) fn is_moving(&self) -> bool {
        self.moved_at.is_some_and(|at| at.elapsed() < SETTLED)
    }

    /// Decisions that wait for the other side.
    pub(super) fn waiting(&self) -> usize {
        let of = |topic: &Topic| topic.grants.len() + topic.revocations.len();
        self.topics.iter().map(of).sum::<usize>() + self.dead_nodes.len() + self.held.len()
    }
}

/// Something of ours that is due when nobody has confirmed it.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) at: Instant,
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

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) sessions: HashMap<Arc<str>, Session>,
    /// What is unconfirmed, by node: session and request.
    pub(super) unconfirmed: HashMap<Arc<str>, BTreeSet<(Arc<str>, i32)>>,
    /// Stamps of decisions of ours that wait for the primary.
    pub(super) open: HashSet<u64>,
    /// When they are due. Those that do not wait any more are passed over.
    pub(super) due: VecDeque<Due>,
    /// Sessions of which something is held.
    pub(super) holding: BTreeSet<Arc<str>>,
    /// Revocations of each type that the primary has told and that are held.
    pub(super) held_revocations: [usize; 3],
    /// What was given back lately.
    pub(super) gone: Recent<(Arc<str>, i32)>,
    /// Sessions that ended lately.
    pub(super) ended: Recent<Arc<str>>,
    stamps: u64,
}

impl Books {
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

    /// Takes a session out with all that is noted of it.
    pub(super) fn end(&mut self, handle: &Arc<str>) -> Option<Session> {
        let session = self.sessions.remove(handle)?;
        let revocations = session.topics.iter().flat_map(|topic| &topic.revocations);
        let stamps = revocations.map(|ours| ours.stamp);
        for stamp in stamps.chain(session.dead_nodes.iter().map(|(_, stamp)| *stamp)) {
            self.open.remove(&stamp);
        }
        for grant in session.topics.iter().flat_map(|topic| &topic.grants) {
            self.open.remove(&grant.stamp);
        }
        for topic in &session.topics {
            for grant in topic.grants.iter().chain(topic.overdue.values()) {
                self.is_settled_on(&grant.node, handle, grant.id);
            }
        }
        for held in &session.held {
            if let Theirs::Revoked(grant) = &held.what {
                self.held_revocations[grant.kind.index()] -= 1;
            }
        }
        self.holding.remove(handle);
        self.ended.note(handle.clone());
        Some(session)
    }

    /// Decisions that wait for the other side.
    pub(super) fn waiting(&self) -> usize {
        self.open.len() + self.holding.len()
    }
}

/// The last so many of something.
#[derive(Debug)]
pub(super) struct Recent<T> {
    order: VecDeque<(T, Instant)>,
    count: HashMap<T, u32>,
    max: usize,
    /// When the last one was forgotten that was still recent.
    forgot_at: Option<Instant>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent { order: VecDeque::new(), count: HashMap::new(), max: MAX_RECENT, forgot_at: None }
    }
}

/// Things that are remembered as recent.
const MAX_RECENT: usize = 200_000;
/// For how long.
const RECENT: std::time::Duration = std::time::Duration::from_secs(60);

impl<T: Clone + Eq + std::hash::Hash> Recent<T> {
    pub(super) fn note(&mut self, what: T) {
        let now = Instant::now();
        while let Some((oldest, at)) = self.order.front().cloned() {
            let recent = now.saturating_duration_since(at) < RECENT;
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
    pub(super) fn may_lack_some(&self) -> bool {
        self.forgot_at.is_some_and(|at| at.elapsed() < RECENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recent_is_bounded_and_says_when_it_forgets() {
        let mut recent = Recent { max: 3, ..Recent::default() };
        for number in [1, 2, 1] {
            recent.note(number);
        }
        assert!(recent.has(&1) && recent.has(&2) && !recent.may_lack_some());
        recent.note(3);
        assert!(recent.has(&1), "it was there twice");
        recent.note(4);
        assert!(!recent.has(&2) && recent.may_lack_some());
        assert_eq!((recent.order.len(), recent.count.len()), (3, 3));
    }

    #[test]
    fn another_order_is_told_once_for_all_that_it_concerns() {
        let mut topic = Topic::default();
        for id in 1..=6 {
            let (node, stamp) = ("n".into(), id as u64);
            let ours = OurRevocation { id, node, stamp, released: false };
            topic.revocations.push_back(ours);
        }
        let mut early = |id| topic.take_revocation(id).map(|(_, first)| first);
        assert_eq!(early(1), Some(None));
        assert_eq!([early(4), early(3), early(2)], [Some(Some(2)), Some(None), Some(None)]);
        assert_eq!([early(5), early(6), early(6)], [Some(None), Some(None), None]);
    }

    #[test]
    fn an_ended_session_leaves_nothing_but_its_name() {
        let mut books = Books::default();
        let (handle, node): (Arc<str>, Arc<str>) = ("1.1".into(), "n".into());
        let stamp = books.stamp();
        let session = books.sessions.entry(handle.clone()).or_default();
        let grant = OurGrant { id: 4, node: node.clone(), near: true, stamp, released: false };
        session.topic(ResourceType::Map).grants.push_back(grant);
        books.is_unconfirmed_on(&node, &handle, 4);
        assert_eq!(books.end(&handle).map(|session| session.waiting()), Some(1));
        assert!(books.unconfirmed.is_empty() && books.sessions.is_empty());
        assert!(books.ended.has(&handle));
    }
}
