//! One session's requests: all that it has made and not released.
//!
//! Spec: cluster-manager/05 §2. A request is pending, granted or lost (its grant was taken back or
//! died with its node). A lost one stays known, and counts as requested, until it is released.

mod image;

use std::ops::{Deref, Index, IndexMut};

pub(super) use self::image::{PendingQueue, RequestsImage};
use super::arena::Arena;
use super::check::hold;
use super::index::{ClassIdx, HostIdx, Idx, IdxVec, NodeIdx, ReqIdx, SlotIdx};
use super::input::Asked;
use super::lookup::{HashSeed, Lookup};
use super::types::{ComputeSpecs, Millis, PerType, ResourceType};
use corona_model::resources::{Amounts, Resources};

/// A place in the order in which a session's requests came, from 1.
pub(super) type Seq = u32;

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    /// Waits, together with others of its class.
    Pending { class: ClassIdx },
    /// Holds a slot: entry `slot` of the node's grants.
    Granted { node: NodeIdx, slot: SlotIdx, at: Millis },
    /// Its grant was revoked or lost.
    Lost,
}

/// A request as the engine keeps it. Accesses are scattered, so each costs a cache miss: the fields
/// that one access needs share a cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Request {
    pub(super) id: i32,
    /// Slots that the request takes.
    need: u16,
    pub(super) kind: ResourceType,
    pub(super) hosts: Wanted,
    pub(super) excluded: Box<[HostIdx]>,
    pub(super) state: RequestState,
}

impl Request {
    /// A request that has not been entered anywhere and counts as lost.
    pub(super) fn new(
        id: i32,
        kind: ResourceType,
        need: u16,
        hosts: Wanted,
        excluded: Box<[HostIdx]>,
    ) -> Self {
        Request { id, need, kind, hosts, excluded, state: RequestState::Lost }
    }

    /// Slots that the request takes, see [`Resources::slots`].
    pub(super) fn need(&self) -> u32 {
        u32::from(self.need)
    }
}

/// What a request takes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Wish {
    /// Slots.
    pub(super) need: u32,
    pub(super) demand: Amounts,
}

/// Hosts that a request wants to be near to, best first. A file's block has three; so many are kept
/// without an allocation of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The first so many of these.
    Few(u8, [HostIdx; 3]),
    #[expect(clippy::box_collection, reason = "a vector itself would make all of them larger")]
    Many(Box<Vec<HostIdx>>),
}

impl Deref for Wanted {
    type Target = [HostIdx];

    fn deref(&self) -> &[HostIdx] {
        match self {
            Wanted::Few(count, hosts) => &hosts[..usize::from(*count)],
            Wanted::Many(hosts) => hosts,
        }
    }
}

impl FromIterator<HostIdx> for Wanted {
    fn from_iter<I: IntoIterator<Item = HostIdx>>(hosts: I) -> Self {
        let mut hosts = hosts.into_iter();
        let mut few = [HostIdx::NONE; 3];
        let mut count = 0;
        for place in &mut few {
            let Some(host) = hosts.next() else { return Wanted::Few(count, few) };
            *place = host;
            count += 1;
        }
        match hosts.next() {
            None => Wanted::Few(count, few),
            Some(fourth) => {
                Wanted::Many(Box::new(few.into_iter().chain([fourth]).chain(hosts).collect()))
            }
        }
    }
}

/// A pending request's place in the order of arrival.
#[derive(Clone, Copy, Debug)]
struct QueueLinks {
    /// 0 for requests that are not pending.
    seq: Seq,
    prev: ReqIdx,
    next: ReqIdx,
}

const NOWHERE: QueueLinks = QueueLinks { seq: 0, prev: ReqIdx::NONE, next: ReqIdx::NONE };

/// All requests of a session.
#[derive(Debug)]
pub(super) struct Requests {
    slab: Arena<ReqIdx, Request>,
    by_id: Ids,
    // By the request's number. Searches look at many places, so they are kept close together; the
    // others are looked at once or never.
    places: IdxVec<ReqIdx, QueueLinks>,
    asked: IdxVec<ReqIdx, Asked>,
    specs: IdxVec<ReqIdx, Option<ComputeSpecs>>,
    /// What each takes; empty while only slots are counted.
    demands: IdxVec<ReqIdx, Amounts>,
    last_seq: Seq,
}

impl Requests {
    pub(super) fn new(seed: HashSeed) -> Self {
        Requests {
            slab: Arena::new(),
            by_id: Ids::new(seed),
            places: IdxVec::new(),
            asked: IdxVec::new(),
            specs: IdxVec::new(),
            demands: IdxVec::new(),
            last_seq: 0,
        }
    }

    /// Reserves space for this many more requests, and exactly that many if there are none yet,
    /// because a session mostly requests everything at once.
    pub(super) fn reserve(&mut self, more: usize) {
        self.slab.reserve(more);
        let places = self.slab.len().saturating_add(more);
        self.places.reserve_for(places);
        self.asked.reserve_for(places);
        self.specs.reserve_for(places);
    }

    /// Adds a request, whose id must be new, with its arrival and its specs.
    pub(super) fn insert(
        &mut self,
        request: Request,
        asked: Asked,
        specs: Option<ComputeSpecs>,
        demand: Amounts,
    ) -> ReqIdx {
        let id = request.id;
        let req = self.slab.insert(request);
        self.by_id.insert(id, req, self.slab.len());
        self.places.reach(req, NOWHERE);
        self.asked.reach(req, asked);
        self.specs.reach(req, specs);
        self.asked[req] = asked;
        self.specs[req] = specs;
        self.set_demand(req, demand);
        req
    }

    fn set_demand(&mut self, req: ReqIdx, demand: Amounts) {
        if demand != Amounts::ZERO || self.demands.len() > 0 {
            self.demands.reach(req, Amounts::ZERO);
            self.demands[req] = demand;
        }
    }

    /// Values all requests by other rules. Pending ones have to be entered again.
    pub(super) fn revalue(&mut self, resources: &Resources) {
        self.demands = IdxVec::new();
        for req in self.slab.iter().map(|(req, _)| req).collect::<Vec<_>>() {
            let specs = self.specs[req];
            let request = &mut self.slab[req];
            request.need = resources.slots(specs);
            let demand = resources.demand(request.kind, specs);
            self.set_demand(req, demand);
        }
    }

    pub(super) fn remove(&mut self, req: ReqIdx) -> Request {
        let request = self.slab.remove(req);
        self.by_id.remove(request.id);
        request
    }

    /// Takes out the request of a number, of a session that has ended: the indexes are left as they
    /// are.
    pub(super) fn discard(&mut self, req: ReqIdx) -> Option<Request> {
        self.slab.take(req)
    }

    pub(super) fn find(&self, id: i32) -> Option<ReqIdx> {
        self.by_id.get(id)
    }

    /// When the request came.
    pub(super) fn asked(&self, req: ReqIdx) -> Asked {
        self.asked[req]
    }

    /// The requested resources.
    pub(super) fn specs(&self, req: ReqIdx) -> Option<ComputeSpecs> {
        self.specs[req]
    }

    /// The resources that the request takes; nothing while only slots are counted.
    pub(super) fn demand(&self, req: ReqIdx) -> Amounts {
        self.demands.get(req).copied().unwrap_or_default()
    }

    /// What a node must have for the request.
    pub(super) fn wish(&self, req: ReqIdx) -> Wish {
        Wish { need: self[req].need(), demand: self.demand(req) }
    }

    /// What the granted requests of each type take.
    pub(super) fn held(&self) -> PerType<Amounts> {
        let mut held = PerType::all(Amounts::ZERO);
        if self.demands.len() > 0 {
            for (req, request) in self.iter() {
                if let RequestState::Granted { .. } = request.state {
                    held[request.kind] = held[request.kind].plus(self.demand(req));
                }
            }
        }
        held
    }

    /// The request of this number, if there is one.
    pub(super) fn get(&self, req: ReqIdx) -> Option<&Request> {
        self.slab.get(req)
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// All numbers are below this one.
    pub(super) fn places(&self) -> usize {
        self.slab.places()
    }

    /// All requests in a defined order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ReqIdx, &Request)> {
        self.slab.iter()
    }

    /// Recomputes the index by id.
    pub(super) fn audit(&self) -> Result<(), String> {
        hold(self.by_id.len() == self.slab.len(), || "requests by id: too many".into())?;
        for (req, request) in self.iter() {
            let found = self.by_id.get(request.id) == Some(req);
            hold(found, || format!("request {} is not found by id", request.id))?;
            let pending = matches!(request.state, RequestState::Pending { .. });
            hold(pending == self.seq(req).is_some(), || {
                format!("request {} has a place without waiting or waits without one", request.id)
            })?;
        }
        let placed = self.places.iter().filter(|place| place.seq > 0).count();
        hold(placed <= self.slab.len(), || format!("{placed} places are taken"))
    }

    /// Whether there are places left for this many more requests. If not, all pending ones must be
    /// entered again after [`Self::forget_order`].
    pub(super) fn has_places_for(&self, more: usize) -> bool {
        more <= (Seq::MAX - self.last_seq) as usize
    }

    /// Restarts the order of arrival. No pending request has a place afterwards.
    pub(super) fn forget_order(&mut self) {
        for place in self.places.iter_mut() {
            place.seq = 0;
        }
        self.last_seq = 0;
    }

    #[cfg(test)]
    pub(super) fn use_up_places(&mut self, left: Seq) {
        self.last_seq = Seq::MAX - left;
    }

    /// Makes a request pending, behind `prev`, and gives it the next place. Types share the places,
    /// so that a number and its place never come again together.
    pub(super) fn enter(&mut self, req: ReqIdx, prev: ReqIdx, class: ClassIdx) -> Seq {
        self.last_seq = self.last_seq.saturating_add(1);
        self.places[req] = QueueLinks { seq: self.last_seq, prev, next: ReqIdx::NONE };
        self[req].state = RequestState::Pending { class };
        self.last_seq
    }

    /// Unlinks a pending request from its neighbours, which are returned; it becomes lost.
    pub(super) fn leave(&mut self, req: ReqIdx) -> (ReqIdx, ReqIdx) {
        let QueueLinks { prev, next, .. } = std::mem::replace(&mut self.places[req], NOWHERE);
        if let Some(prev) = self.places.get_mut(prev) {
            prev.next = next;
        }
        if let Some(next) = self.places.get_mut(next) {
            next.prev = prev;
        }
        self[req].state = RequestState::Lost;
        (prev, next)
    }

    /// The place of a pending request in the order of arrival; `None` for any other.
    pub(super) fn seq(&self, req: ReqIdx) -> Option<Seq> {
        self.places.get(req).map(|place| place.seq).filter(|seq| *seq > 0)
    }

    /// Whether the request is pending and at this place.
    pub(super) fn is_at(&self, req: ReqIdx, seq: Seq) -> bool {
        self.places.get(req).is_some_and(|place| place.seq == seq)
    }

    /// The pending request before this pending one, or [`ReqIdx::NONE`].
    pub(super) fn prev(&self, req: ReqIdx) -> ReqIdx {
        self.places.get(req).map_or(ReqIdx::NONE, |place| place.prev)
    }

    /// The pending request after this pending one, or [`ReqIdx::NONE`].
    pub(super) fn next(&self, req: ReqIdx) -> ReqIdx {
        self.places.get(req).map_or(ReqIdx::NONE, |place| place.next)
    }

    pub(super) fn set_next(&mut self, req: ReqIdx, to: ReqIdx) {
        self.places[req].next = to;
    }
}

/// Requests by id. Sessions count their requests, mostly from 0 on, so small ids are places in a
/// list; the rest is looked up.
#[derive(Debug)]
struct Ids {
    /// By id; [`ReqIdx::NONE`] for ids that no request has.
    small: Vec<ReqIdx>,
    large: Lookup<i32, ReqIdx>,
    len: usize,
}

impl Ids {
    fn new(seed: HashSeed) -> Self {
        Ids { small: Vec::new(), large: Lookup::new(seed), len: 0 }
    }

    /// Notes that the request with the id has this number. There are `requests` with it, by which
    /// the list of small ids is kept in proportion.
    fn insert(&mut self, id: i32, req: ReqIdx, requests: usize) {
        self.len += 1;
        let room = requests.saturating_mul(2).saturating_add(64).max(self.small.len());
        match usize::try_from(id) {
            Ok(at) if at < room => {
                if self.small.len() <= at {
                    self.lengthen(at + 1);
                }
                self.small[at] = req;
            }
            _ => {
                self.large.insert(id, req);
            }
        }
    }

    /// Makes room for ids below `len`; those that were large before move.
    fn lengthen(&mut self, len: usize) {
        let old = self.small.len();
        self.small.resize(len, ReqIdx::NONE);
        if self.large.len() == 0 {
            return;
        }
        for (id, place) in (old as i32..).zip(&mut self.small[old..]) {
            if let Some(req) = self.large.remove(&id) {
                *place = req;
            }
        }
    }

    fn remove(&mut self, id: i32) {
        let small = usize::try_from(id).ok().and_then(|id| self.small.get_mut(id));
        let found = match small {
            Some(req) => std::mem::replace(req, ReqIdx::NONE) != ReqIdx::NONE,
            None => self.large.remove(&id).is_some(),
        };
        self.len -= usize::from(found);
    }

    fn get(&self, id: i32) -> Option<ReqIdx> {
        let small = usize::try_from(id).ok().and_then(|id| self.small.get(id));
        match small {
            Some(req) => Some(*req).filter(|req| *req != ReqIdx::NONE),
            None => self.large.get(&id).copied(),
        }
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Index<ReqIdx> for Requests {
    type Output = Request;
    fn index(&self, req: ReqIdx) -> &Request {
        &self.slab[req]
    }
}

impl IndexMut<ReqIdx> for Requests {
    fn index_mut(&mut self, req: ReqIdx) -> &mut Request {
        &mut self.slab[req]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_is_one_line_of_the_cache() {
        assert_eq!(size_of::<Request>(), 64);
    }

    #[test]
    fn wanted_hosts_come_back_in_their_order() {
        for count in 0..7 {
            let hosts: Vec<HostIdx> = (10..10 + count).map(HostIdx::from_number).collect();
            assert_eq!(*hosts.iter().copied().collect::<Wanted>(), hosts[..]);
        }
    }

    proptest! {
        #[test]
        fn requests_are_found_by_any_id(
            steps in prop::collection::vec(
                (any::<bool>(), prop_oneof![-2..300i32, any::<i32>(), Just(i32::MAX)]), 0..200),
        ) {
            let mut ids = Ids::new(HashSeed(1));
            let mut plain = BTreeMap::new();
            for (number, (enter, id)) in steps.into_iter().enumerate() {
                let number = ReqIdx::from_number(number as u32);
                if enter && !plain.contains_key(&id) {
                    plain.insert(id, number);
                    ids.insert(id, number, plain.len());
                } else {
                    plain.remove(&id);
                    ids.remove(id);
                }
                prop_assert_eq!(ids.len(), plain.len());
                prop_assert!(ids.small.len() <= 2 * 200 + 64);
                for id in (-3..301).chain([i32::MAX]).chain(plain.keys().copied()) {
                    prop_assert_eq!(ids.get(id), plain.get(&id).copied());
                }
            }
        }
    }
}
