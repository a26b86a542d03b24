//! The pending requests of one session and type, in order of arrival, indexed by the nodes, hosts
//! and racks that could serve them.
//!
//! Spec: cluster-manager/04 §7: the original walks its list with a cursor that it keeps between
//! walks. [`Pending`] gives the element that such a walk would find first, without the walk.

mod image;

use std::hint::black_box;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

pub(super) use self::image::PendingImage;
use super::arena::Arena;
use super::check::hold;
use super::index::{ClassIdx, HostIdx, Idx, IdxVec, RackIdx, ReqIdx};
use super::lookup::{HashSeed, Lookup};
use super::nodes::PREFETCHED_AT_ONCE;
use super::requests::{Request, RequestState, Requests, Seq, Wish};
use super::scheduler::Front;
use super::topology::Topology;
use super::types::ResourceType;

/// Requests that the same nodes can serve when no host is preferred.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClassKey {
    /// Hosts not to be used, sorted.
    pub(super) excluded: Box<[HostIdx]>,
    /// What a request takes.
    pub(super) wish: Wish,
}

/// A [`ClassKey`] and its pending requests.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) key: Arc<ClassKey>,
    live: usize,
    hostless: Arrivals,
    hosted: Arrivals,
    /// The runnable index's generation at which no node at all could serve this class.
    pub(super) unserved_at: Option<u64>,
}

/// Where a walk starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Cursor {
    At(ReqIdx),
    /// So many places behind the end, 0 for the place where the next request will be put.
    BehindEnd(u32),
}

/// Pending requests of one session and type.
#[derive(Debug)]
pub(super) struct Pending {
    head: ReqIdx,
    tail: ReqIdx,
    len: usize,
    cursor: Cursor,
    classes: Arena<ClassIdx, Class>,
    class_by_key: Lookup<Arc<ClassKey>, ClassIdx>,
    /// Present for types that are matched by place.
    places: Option<Places>,
    /// Findings of the searches of a pass. [`Search::find`] maintains them.
    ///
    /// [`Search::find`]: super::scheduler::Search::find
    pub(super) front: Option<Box<Front>>,
    /// Numbers of classes below this one have been dropped, see [`Pending::dismantle`].
    dismantled: u32,
    seed: HashSeed,
}

#[derive(Debug)]
struct Places {
    by_host: IndexMap<HostIdx, Arrivals, ahash::RandomState>,
    by_rack: IndexMap<RackIdx, Arrivals, ahash::RandomState>,
    entries: usize,
    live: usize,
}

impl Pending {
    /// `by_place`: whether requests of the type are matched by host and rack.
    pub(super) fn new(seed: HashSeed, by_place: bool) -> Self {
        Pending {
            head: ReqIdx::NONE,
            tail: ReqIdx::NONE,
            len: 0,
            cursor: Cursor::BehindEnd(0),
            classes: Arena::new(),
            class_by_key: Lookup::new(seed),
            places: by_place.then(|| Places::new(seed)),
            front: None,
            dismantled: 0,
            seed,
        }
    }

    /// Appends a request; it becomes pending. There must be a place left for it.
    pub(super) fn push(&mut self, requests: &mut Requests, topology: &Topology, req: ReqIdx) {
        let prev = self.tail;
        match prev {
            ReqIdx::NONE => self.head = req,
            tail => requests.set_next(tail, req),
        }
        self.tail = req;
        self.len += 1;
        self.cursor = match self.cursor {
            Cursor::BehindEnd(0) => Cursor::At(req),
            Cursor::BehindEnd(places) => Cursor::BehindEnd(places - 1),
            at => at,
        };
        let class = self.class_of(requests, req);
        let seq = requests.enter(req, prev, class);
        let request = &requests[req];
        let class = &mut self.classes[class];
        class.live += 1;
        if request.hosts.is_empty() {
            class.hostless.push(seq, req);
            return;
        }
        class.hosted.push(seq, req);
        if let Some(places) = &mut self.places {
            places.push(&request.hosts, topology, seq, req);
        }
    }

    /// Takes a pending request out; it becomes lost.
    pub(super) fn remove(&mut self, requests: &mut Requests, topology: &Topology, req: ReqIdx) {
        let RequestState::Pending { class } = requests[req].state else {
            return;
        };
        let seq = requests.seq(req);
        let next = requests.next(req);
        self.cursor = match self.cursor {
            Cursor::At(at) if at == req => Cursor::at_or_end(next),
            Cursor::At(at) if requests.seq(at) > seq => Cursor::at_or_end(requests.next(at)),
            Cursor::BehindEnd(places) => Cursor::BehindEnd(places.saturating_add(1)),
            at => at,
        };
        let (prev, next) = requests.leave(req);
        if prev == ReqIdx::NONE {
            self.head = next;
        }
        if next == ReqIdx::NONE {
            self.tail = prev;
        }
        self.len -= 1;
        if self.len == 0 {
            return self.forget_all();
        }
        let hosts = &requests[req].hosts;
        if let (Some(places), false) = (&mut self.places, hosts.is_empty()) {
            places.live -= entries_of(hosts, topology);
            places.sweep_if_stale(requests);
        }
        self.classes[class].live -= 1;
        if self.classes[class].live == 0 {
            let gone = self.classes.remove(class);
            self.class_by_key.remove(&gone.key);
        } else {
            self.classes[class].sweep_if_stale(requests);
        }
    }

    /// Drops a part of the indexes; the requests are of no interest any more. Returns whether more is
    /// left.
    pub(super) fn dismantle(&mut self, entries: usize) -> bool {
        let mut left = entries;
        if let Some(places) = &mut self.places {
            left -= (0..left).map_while(|_| places.by_host.pop()).count();
            left -= (0..left).map_while(|_| places.by_rack.pop()).count();
        }
        let classes = self.classes.places() as u32;
        while left > 0 && self.dismantled < classes {
            if let Some(class) = self.classes.take(ClassIdx::from_number(self.dismantled)) {
                self.class_by_key.remove(&class.key);
            }
            self.dismantled += 1;
            left -= 1;
        }
        left == 0
    }

    /// Gives all pending requests new places in the same order, after
    /// [`Requests::forget_order`].
    pub(super) fn enter_anew(&mut self, requests: &mut Requests, topology: &Topology) {
        let order: Vec<ReqIdx> = self.order(requests).collect();
        let cursor = self.cursor;
        self.forget_all();
        for req in order {
            self.push(requests, topology, req);
        }
        self.cursor = cursor;
    }

    /// The pending requests in the order of arrival.
    pub(super) fn order<'a>(&self, requests: &'a Requests) -> impl Iterator<Item = ReqIdx> + 'a {
        let some = |req: ReqIdx| Some(req).filter(|req| *req != ReqIdx::NONE);
        std::iter::successors(some(self.head), move |req| some(requests.next(*req)))
    }

    /// Moves the cursor as a walk does that stops at `req`. Call before removing it.
    pub(super) fn stop_at(&mut self, requests: &Requests, req: ReqIdx) {
        self.cursor = match requests.next(req) {
            ReqIdx::NONE => Cursor::at_or_end(self.head),
            next => Cursor::At(next),
        };
    }

    /// Puts a cursor that is behind the end back to the start, as each walk does first. Gives the
    /// request there and its place in the order of arrival.
    pub(super) fn start(&mut self, requests: &Requests) -> Option<(ReqIdx, Seq)> {
        if let Cursor::BehindEnd(_) = self.cursor {
            self.cursor = Cursor::at_or_end(self.head);
        }
        match self.cursor {
            Cursor::At(req) => requests.seq(req).map(|seq| (req, seq)),
            Cursor::BehindEnd(_) => None,
        }
    }

    /// The request after `req`, from the end back to the start.
    pub(super) fn next_around(&self, requests: &Requests, req: ReqIdx) -> ReqIdx {
        match requests.next(req) {
            ReqIdx::NONE => self.head,
            next => next,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Numbers of the classes, in a defined order.
    pub(super) fn class_numbers(&self) -> Vec<ClassIdx> {
        self.classes.iter().map(|(number, _)| number).collect()
    }

    /// The class of this number, if it has requests.
    pub(super) fn class(&mut self, number: ClassIdx) -> Option<&mut Class> {
        self.classes.get_mut(number)
    }

    /// First request of a class without preferred hosts, from place `from` on and around.
    pub(super) fn first_hostless(
        &mut self,
        requests: &Requests,
        class: ClassIdx,
        from: Seq,
    ) -> Option<(Seq, ReqIdx)> {
        self.classes.get_mut(class)?.hostless.first_around(from, requests)
    }

    /// First request of a class with preferred hosts, from place `from` on and around.
    pub(super) fn first_hosted(
        &mut self,
        requests: &Requests,
        class: ClassIdx,
        from: Seq,
    ) -> Option<(Seq, ReqIdx)> {
        self.classes.get_mut(class)?.hosted.first_around(from, requests)
    }

    /// Distinct hosts that pending requests may name.
    pub(super) fn host_count(&self) -> usize {
        self.places.as_ref().map_or(0, |places| places.by_host.len())
    }

    /// Distinct racks of hosts that pending requests may name.
    pub(super) fn rack_count(&self) -> usize {
        self.places.as_ref().map_or(0, |places| places.by_rack.len())
    }

    /// The host at place `position` of a defined order of [`Self::host_count`] hosts.
    pub(super) fn host_at(&self, position: usize) -> Option<HostIdx> {
        self.places.as_ref()?.by_host.get_index(position).map(|(host, _)| *host)
    }

    /// The rack at place `position` of a defined order of [`Self::rack_count`] racks.
    pub(super) fn rack_at(&self, position: usize) -> Option<RackIdx> {
        self.places.as_ref()?.by_rack.get_index(position).map(|(rack, _)| *rack)
    }

    /// Prefetches the memory that the first searches for requests of the hosts will read.
    pub(super) fn bring_hosts_near(&self, requests: &Requests, hosts: &[HostIdx]) {
        if let Some(places) = &self.places {
            prefetch(&places.by_host, requests, hosts);
        }
    }

    /// As [`Self::bring_hosts_near`], for racks.
    pub(super) fn bring_racks_near(&self, requests: &Requests, racks: &[RackIdx]) {
        if let Some(places) = &self.places {
            prefetch(&places.by_rack, requests, racks);
        }
    }

    /// First request from `from` on and around that names `host` and that `fits`.
    pub(super) fn first_on_host(
        &mut self,
        requests: &Requests,
        host: HostIdx,
        from: Seq,
        fits: impl FnMut(ReqIdx) -> bool,
    ) -> Option<(Seq, ReqIdx)> {
        let Places { by_host, entries, .. } = self.places.as_mut()?;
        by_host.get_mut(&host)?.first_around_counted(from, requests, fits, entries)
    }

    /// First request from `from` on and around that names a host of `rack` and that `fits`.
    pub(super) fn first_on_rack(
        &mut self,
        requests: &Requests,
        rack: RackIdx,
        from: Seq,
        fits: impl FnMut(ReqIdx) -> bool,
    ) -> Option<(Seq, ReqIdx)> {
        let Places { by_rack, entries, .. } = self.places.as_mut()?;
        by_rack.get_mut(&rack)?.first_around_counted(from, requests, fits, entries)
    }

    /// Whether a pending request may accept any node; also true for one that was just removed.
    pub(super) fn may_have_hostless(&self) -> bool {
        self.classes.iter().any(|(_, class)| !class.hostless.is_empty())
    }

    /// Whether a pending request may name `host`; also true for one that was just removed.
    pub(super) fn may_name_host(&self, host: HostIdx) -> bool {
        self.places.as_ref().is_some_and(|places| places.by_host.contains_key(&host))
    }

    /// Recomputes the order of arrival and the indexes over the pending requests of the type.
    pub(super) fn audit(
        &self,
        requests: &Requests,
        topology: &Topology,
        kind: ResourceType,
    ) -> Result<(), String> {
        let (mut last, mut last_seq) = (ReqIdx::NONE, None);
        let mut live = 0;
        let mut live_of_class = IdxVec::of(0, self.classes.places());
        let mut live_entries = 0;
        let mut req = self.head;
        while req != ReqIdx::NONE {
            let request = &requests[req];
            let (RequestState::Pending { class }, Some(seq)) = (request.state, requests.seq(req))
            else {
                return Err(format!("request {} is listed as pending", request.id));
            };
            let in_order = request.kind == kind && last_seq < Some(seq);
            let in_order = in_order && requests.prev(req) == last;
            hold(in_order, || format!("request {} is out of its order", request.id))?;
            let entry = self.classes.get(class);
            let entry = entry.ok_or_else(|| format!("request {} has no class", request.id))?;
            entry.audit_member(requests, seq, req)?;
            live_of_class[class] += 1;
            if let (Some(places), false) = (&self.places, request.hosts.is_empty()) {
                places.audit_member(request, topology, seq, req)?;
                live_entries += entries_of(&request.hosts, topology);
            }
            live += 1;
            (last, last_seq, req) = (req, Some(seq), requests.next(req));
        }
        hold(self.tail == last, || "wrong end".into())?;

        hold(self.len == live, || format!("{live} pending, not {}", self.len))?;
        if let Cursor::At(at) = self.cursor {
            let sound = requests.seq(at).is_some() && requests[at].kind == kind;
            hold(sound, || "the cursor is on a request that does not wait".into())?;
        }
        hold(self.class_by_key.len() == self.classes.len(), || "classes by key".into())?;
        for (number, class) in self.classes.iter() {
            let found = self.class_by_key.get(&class.key) == Some(&number);
            hold(found, || "a class is not found by its key".into())?;
            let live = live_of_class[number];
            let items = class.hostless.items.len() + class.hosted.items.len();
            hold(class.live == live && live > 0, || format!("class of {live}: {}", class.live))?;
            hold(items <= 2 * live + 64, || format!("class of {live} has {items} items"))?;
            let sorted = class.hostless.items.is_sorted() && class.hosted.items.is_sorted();
            hold(sorted, || "a class is not in the order of arrival".into())?;
        }
        self.places.as_ref().map_or(Ok(()), |places| places.audit(live_entries))
    }

    fn class_of(&mut self, requests: &Requests, req: ReqIdx) -> ClassIdx {
        let request = &requests[req];
        let mut excluded = request.excluded.clone();
        excluded.sort_unstable();
        let key = ClassKey { excluded, wish: requests.wish(req) };
        if let Some(class) = self.class_by_key.get(&key) {
            return *class;
        }
        let key = Arc::new(key);
        let class = self.classes.insert(Class {
            key: key.clone(),
            live: 0,
            hostless: Arrivals::default(),
            hosted: Arrivals::default(),
            unserved_at: None,
        });
        self.class_by_key.insert(key, class);
        class
    }

    fn forget_all(&mut self) {
        let by_place = self.places.is_some();
        let cursor = self.cursor;
        *self = Pending::new(self.seed, by_place);
        self.cursor = cursor;
    }
}

impl Class {
    fn audit_member(&self, requests: &Requests, seq: Seq, req: ReqIdx) -> Result<(), String> {
        let request = &requests[req];
        let mut excluded = request.excluded.clone();
        excluded.sort_unstable();
        let fits = self.key.wish == requests.wish(req) && self.key.excluded == excluded;
        hold(fits, || format!("request {} is in a wrong class", request.id))?;
        let list = if request.hosts.is_empty() { &self.hostless } else { &self.hosted };
        list.audit_member(seq, req)
    }

    /// As [`Places::sweep_if_stale`].
    fn sweep_if_stale(&mut self, requests: &Requests) {
        if self.hostless.items.len() + self.hosted.items.len() > 2 * self.live + 64 {
            self.hostless.keep(requests);
            self.hosted.keep(requests);
        }
    }
}

impl Cursor {
    fn at_or_end(req: ReqIdx) -> Cursor {
        if req == ReqIdx::NONE { Cursor::BehindEnd(0) } else { Cursor::At(req) }
    }
}

impl Places {
    fn new(seed: HashSeed) -> Self {
        Places {
            by_host: IndexMap::with_hasher(seed.state()),
            by_rack: IndexMap::with_hasher(seed.state()),
            entries: 0,
            live: 0,
        }
    }

    fn push(&mut self, hosts: &[HostIdx], topology: &Topology, seq: Seq, req: ReqIdx) {
        for host in hosts {
            self.by_host.entry(*host).or_default().push(seq, req);
        }
        for rack in racks_of(hosts, topology) {
            self.by_rack.entry(rack).or_default().push(seq, req);
        }
        let entries = entries_of(hosts, topology);
        self.entries += entries;
        self.live += entries;
    }

    fn audit_member(
        &self,
        request: &Request,
        topology: &Topology,
        seq: Seq,
        req: ReqIdx,
    ) -> Result<(), String> {
        let hosts = request.hosts.iter().map(|host| self.by_host.get(host));
        let racks = racks_of(&request.hosts, topology).map(|rack| self.by_rack.get(&rack));
        for list in hosts.chain(racks) {
            let list = list.ok_or_else(|| format!("request {} has no place", request.id))?;
            list.audit_member(seq, req)?;
        }
        Ok(())
    }

    fn audit(&self, live: usize) -> Result<(), String> {
        hold(self.live == live, || format!("{live} live places, not {}", self.live))?;
        let lists = || self.by_host.values().chain(self.by_rack.values());
        let sorted = lists().all(|list| list.items.is_sorted());
        hold(sorted, || "a place is not in the order of arrival".into())?;
        let listed: usize = lists().map(|list| list.items.len()).sum();
        hold(listed == self.entries && listed <= 2 * live + 64, || {
            format!("{listed} places are listed, counted as {}, of {live} live", self.entries)
        })
    }

    /// Entries of removed requests stay until they outnumber the live ones, so that a removal costs
    /// O(1) on average and memory stays in proportion.
    fn sweep_if_stale(&mut self, requests: &Requests) {
        if self.entries <= 2 * self.live + 64 {
            return;
        }
        sweep(&mut self.by_host, requests);
        sweep(&mut self.by_rack, requests);
        self.entries = self.live;
    }
}

/// Drops the entries of removed requests from all lists, and then the empty lists.
fn sweep<I: Idx>(lists: &mut IndexMap<I, Arrivals, ahash::RandomState>, requests: &Requests) {
    const AHEAD: usize = 16;
    for at in 0..lists.len() {
        // Each list is memory of its own: prefetched now, it is in the cache when its turn comes.
        let ahead = lists.get_index(at + AHEAD);
        black_box(ahead.and_then(|(_, list)| list.items.first().copied()));
        if let Some((_, list)) = lists.get_index_mut(at) {
            list.keep(requests);
        }
    }
    lists.retain(|_, list| !list.is_empty());
}

/// Prefetches for the whole batch. Each step dereferences pointers that the previous one loaded;
/// running each step for all places overlaps the cache misses.
fn prefetch<I: Idx>(
    lists: &IndexMap<I, Arrivals, ahash::RandomState>,
    requests: &Requests,
    places: &[I],
) {
    let (mut near, mut items) = (Vec::new(), Vec::new());
    for places in places.chunks(PREFETCHED_AT_ONCE) {
        near.reserve(places.len());
        near.extend(places.iter().filter_map(|place| lists.get(place)));
        items.reserve(places.len());
        items.extend(near.drain(..).filter_map(|list: &Arrivals| list.items.get(list.near())));
        for (_, req) in items.drain(..).copied() {
            black_box((requests.seq(req), requests.get(req).map(|request| request.kind)));
            black_box(requests.asked(req));
        }
    }
}

fn entries_of(hosts: &[HostIdx], topology: &Topology) -> usize {
    hosts.len() + racks_of(hosts, topology).count()
}

/// Racks of the hosts, in their order; neighbours in the same rack count once.
fn racks_of<'a>(
    hosts: &'a [HostIdx],
    topology: &'a Topology,
) -> impl Iterator<Item = RackIdx> + 'a {
    hosts
        .iter()
        .map(|host| topology.rack_of(*host))
        .scan(RackIdx::NONE, |last, rack| {
            Some((std::mem::replace(last, rack) != rack).then_some(rack))
        })
        .flatten()
}

/// Requests in the order of their arrival. Removed ones stay until a search passes them.
///
/// There is one for each host that a session's requests name: in a large cluster most have one
/// request or two, for which there is room in the list itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Arrivals {
    items: SmallVec<[(Seq, ReqIdx); 2]>,
    /// Where the last search began; the next one begins near it.
    near: u32,
    /// Entries of removed requests that searches passed without dropping them.
    passed_over: u32,
}

impl Arrivals {
    fn push(&mut self, seq: Seq, req: ReqIdx) {
        self.items.push((seq, req));
    }

    fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn near(&self) -> usize {
        self.near as usize
    }

    /// Whether the list is in order and has the request.
    fn audit_member(&self, seq: Seq, req: ReqIdx) -> Result<(), String> {
        let at = self.items.partition_point(|(listed, _)| *listed < seq);
        let found = self.items.get(at) == Some(&(seq, req));
        hold(found, || format!("request number {} is missing in a list", req.number()))
    }

    /// Drops the entries of removed requests.
    fn keep(&mut self, requests: &Requests) {
        self.items.retain(|(seq, req)| requests.is_at(*req, *seq));
        self.passed_over = 0;
    }

    fn first_around(&mut self, from: Seq, requests: &Requests) -> Option<(Seq, ReqIdx)> {
        self.first_around_that(from, requests, |_| true)
    }

    /// As [`Self::first_around_that`]; entries that are dropped are taken off `entries`.
    fn first_around_counted(
        &mut self,
        from: Seq,
        requests: &Requests,
        fits: impl FnMut(ReqIdx) -> bool,
        entries: &mut usize,
    ) -> Option<(Seq, ReqIdx)> {
        let before = self.items.len();
        let found = self.first_around_that(from, requests, fits);
        *entries -= before - self.items.len();
        found
    }

    /// The first pending request from `from` on and around that `fits`.
    fn first_around_that(
        &mut self,
        from: Seq,
        requests: &Requests,
        mut fits: impl FnMut(ReqIdx) -> bool,
    ) -> Option<(Seq, ReqIdx)> {
        let start = self.begin(from);
        let end = self.items.len();
        let found = self.scan(start, end, requests, &mut fits);
        // The first scan may have dropped entries behind `start` only.
        let found = found.or_else(|| self.scan(0, start, requests, &mut fits));
        if self.passed_over > 32 && self.passed_over as usize > self.items.len() {
            self.keep(requests);
        }
        found
    }

    /// The index of the first entry that is not before `from`.
    fn begin(&mut self, from: Seq) -> usize {
        // The cursor moves on a little between searches.
        const STEPS: usize = 4;
        let mut at = self.near().min(self.items.len());
        let before = |at: usize| self.items.get(at).is_some_and(|(seq, _)| *seq < from);
        for _ in 0..STEPS {
            if !before(at) {
                break;
            }
            at += 1;
        }
        if before(at) || (at > 0 && !before(at - 1)) {
            at = self.items.partition_point(|(seq, _)| *seq < from);
        }
        // A session cannot have more requests than numbers for them.
        self.near = at as u32;
        at
    }

    /// The first pending request from index `start` to `end` that `fits`. Drops entries of removed
    /// requests where they are adjacent and that is cheap.
    fn scan(
        &mut self,
        start: usize,
        end: usize,
        requests: &Requests,
        fits: &mut impl FnMut(ReqIdx) -> bool,
    ) -> Option<(Seq, ReqIdx)> {
        const WORTH_DROPPING: usize = 4;
        const MOVED_FOR_ONE: usize = 64;
        let gone = |entry: &(Seq, ReqIdx)| !requests.is_at(entry.1, entry.0);
        let run = self.items[start..end].iter().take_while(|entry| gone(entry)).count();
        let moved = self.items.len() - start - run;
        let mut first = start + run;
        let mut end = end;
        if run >= WORTH_DROPPING && moved <= run * MOVED_FOR_ONE {
            self.items.drain(start..first);
            first = start;
            end -= run;
        } else {
            self.passed_over = self.passed_over.saturating_add(run as u32);
        }
        self.items[first..end].iter().copied().find(|(seq, req)| {
            let pending = requests.is_at(*req, *seq);
            self.passed_over = self.passed_over.saturating_add(u32::from(!pending));
            pending && fits(*req)
        })
    }
}
