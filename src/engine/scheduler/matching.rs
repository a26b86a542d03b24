//! Finds a request of a session and a node for it.
//!
//! Spec: cluster-manager/04 §7, 03 §7. The rule is a walk: the pending requests from the cursor on,
//! each asking for the best node at the level; the first hit wins. The walk is done for a few
//! steps; if that finds nothing the same request is found through indices of the nodes, hosts and
//! racks with room.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::index::{ClassIdx, HostIdx, Idx, NodeIdx, RackIdx, ReqIdx};
use crate::lookup::DenseSet;
use crate::nodes::{Nodes, Runnable};
use crate::pending::{ClassKey, Pending};
use crate::requests::{Request, RequestState, Requests, Seq, Wish};
use crate::topology::Topology;
use crate::types::ResourceType;

use super::Level;
use super::quota::Allowance;

/// The state that a search reads.
pub(crate) struct Search<'a> {
    pub(crate) kind: ResourceType,
    pub(crate) nodes: &'a Nodes,
    pub(crate) topology: &'a Topology,
    pub(crate) requests: &'a Requests,
    /// The most that a request may be given: more stays free for queues that do not lend, or is above a maximum.
    pub(crate) most: Allowance,
}

/// Steps that are walked before the indexes are asked.
const STEPS_WALKED: usize = 8;

impl Search<'_> {
    /// The first pending request, from the cursor on, that a node can serve at `level`, and that
    /// node. The cursor stays; see [`Pending::stop_at`].
    ///
    /// `pass` is the number of the pass. Within a pass requests and room only shrink, so findings
    /// about places with room are kept for the session's next searches.
    pub(crate) fn find(
        &self,
        pending: &mut Pending,
        level: Level,
        pass: u64,
    ) -> Option<(ReqIdx, NodeIdx)> {
        let (first, from) = pending.start(self.requests)?;
        let kept = pending.front.take().filter(|front| (front.pass, front.level) == (pass, level));
        let mut front = match kept {
            Some(front) => front,
            None => {
                let mut req = first;
                for _ in 0..STEPS_WALKED {
                    if let Some(node) = self.best_node(pending, req, level) {
                        return Some((req, node));
                    }
                    req = pending.next_around(self.requests, req);
                    if req == first {
                        return None;
                    }
                }
                self.front(pending, level, pass, from)
            }
        };
        let found = self.first_of(&mut front, pending, from);
        pending.front = Some(front);
        let req = found?;
        self.best_node(pending, req, level).map(|node| (req, node))
    }

    /// The best node for a request: for each of its hosts in turn one on the host, then, as far as
    /// the level allows, one in its rack, then any.
    fn best_node(&self, pending: &mut Pending, req: ReqIdx, level: Level) -> Option<NodeIdx> {
        let request = &self.requests[req];
        if request.hosts.is_empty() {
            return self.any_node(pending, request);
        }
        let wish = self.requests.wish(req);
        request.hosts.iter().find_map(|host| {
            self.on_host(*host, &wish)
                .or_else(|| {
                    (level >= Level::Rack).then(|| self.in_rack_of(*host, request, &wish)).flatten()
                })
                .or_else(|| {
                    (level == Level::Any).then(|| self.any_node(pending, request)).flatten()
                })
        })
    }

    fn on_host(&self, host: HostIdx, wish: &Wish) -> Option<NodeIdx> {
        if !self.most.allows(wish) {
            return None;
        }
        self.best(self.runnable().on_host(host).filter(|node| self.fits(*node, wish)))
    }

    fn in_rack_of(&self, host: HostIdx, request: &Request, wish: &Wish) -> Option<NodeIdx> {
        self.on_rack(self.topology.rack_of(host), request, wish)
    }

    fn on_rack(&self, rack: RackIdx, request: &Request, wish: &Wish) -> Option<NodeIdx> {
        if !self.most.allows(wish) {
            return None;
        }
        let fits = |node: &NodeIdx| {
            self.fits(*node, wish) && !request.excluded.contains(&self.nodes[*node].host)
        };
        self.best(self.runnable().on_rack(rack).filter(fits))
    }

    fn is_on_rack(&self, rack: RackIdx, req: ReqIdx) -> bool {
        self.on_rack(rack, &self.requests[req], &self.requests.wish(req)).is_some()
    }

    fn fits(&self, node: NodeIdx, wish: &Wish) -> bool {
        self.nodes[node].fits(self.kind, wish)
    }

    /// The first of some nodes or, where resources are counted, the one of the first few that has the least left.
    fn best(&self, mut nodes: impl Iterator<Item = NodeIdx>) -> Option<NodeIdx> {
        const LOOKED_AT: usize = 32;
        match self.nodes.counts() {
            false => nodes.next(),
            true => nodes.take(LOOKED_AT).min_by_key(|node| self.nodes.shelf(*node)),
        }
    }

    fn any_node(&self, pending: &mut Pending, request: &Request) -> Option<NodeIdx> {
        let RequestState::Pending { class, .. } = request.state else { return None };
        self.any_node_of_class(pending, class)
    }

    /// A node for a request of the class when its place does not matter. That there is none is
    /// remembered until some node gains room.
    fn any_node_of_class(&self, pending: &mut Pending, class: ClassIdx) -> Option<NodeIdx> {
        let class = pending.class(class)?;
        let ClassKey { excluded, wish } = &*class.key;
        if !self.most.allows(wish) {
            return None;
        }
        let runnable = self.runnable();
        if class.unserved_at == Some(runnable.generation()) {
            return None;
        }
        let serves = |node: &NodeIdx| {
            self.fits(*node, wish) && excluded.binary_search(&self.nodes[*node].host).is_err()
        };
        let found = match self.nodes.counts() {
            false => runnable.least_loaded().find(serves),
            true => runnable.best_fits(wish.demand).find(serves),
        };
        if found.is_none() {
            class.unserved_at = Some(runnable.generation());
        }
        found
    }

    /// Whether some node has room for a request when its place does not matter. Counts the nodes that are looked at.
    pub(crate) fn has_room_for(
        &self,
        wish: &Wish,
        excluded: &[HostIdx],
        looked_at: &mut usize,
    ) -> bool {
        self.runnable()
            .best_fits(wish.demand)
            .inspect(|_| *looked_at += 1)
            .any(|node| self.fits(node, wish) && !excluded.contains(&self.nodes[node].host))
    }

    /// All places with room that may be wanted, each with the first request that it can serve.
    fn front(&self, pending: &mut Pending, level: Level, pass: u64, from: Seq) -> Box<Front> {
        let classes = pending.class_numbers();
        let hostless = classes.iter().map(|class| RoomKey::Hostless(*class));
        let mut places: Vec<RoomKey> = hostless.collect();
        match level {
            Level::Node => {
                let runnable = self.runnable().hosts();
                let hosts = common(runnable, pending.host_count(), |at| pending.host_at(at));
                pending.bring_hosts_near(self.requests, &hosts);
                places.extend(hosts.into_iter().map(RoomKey::Host));
            }
            // A node on a preferred host is in the host's rack, so the racks alone decide.
            Level::Rack => {
                let runnable = self.runnable().racks();
                let racks = common(runnable, pending.rack_count(), |at| pending.rack_at(at));
                pending.bring_racks_near(self.requests, &racks);
                places.extend(racks.into_iter().map(RoomKey::Rack));
            }
            Level::Any => places.extend(classes.into_iter().map(RoomKey::Hosted)),
        }
        let mut candidates = Vec::with_capacity(places.len());
        candidates.extend(places.into_iter().filter_map(|place| {
            let (seq, req) = self.candidate(pending, place, from)?;
            Some(Reverse(Candidate { lap: u32::from(seq < from), seq, place, req }))
        }));
        Box::new(Front { pass, level, from, lap: 0, places: candidates.into() })
    }

    /// The first request from `from` on and around.
    fn first_of(&self, front: &mut Front, pending: &mut Pending, from: Seq) -> Option<ReqIdx> {
        front.lap += u32::from(from < front.from);
        front.from = from;
        while let Some(mut top) = front.places.peek_mut() {
            let Reverse(Candidate { lap, seq, place, req }) = *top;
            let ahead = (lap, seq) >= (front.lap, from);
            if ahead && self.requests.is_at(req, seq) && self.can_serve(pending, place, req) {
                return Some(req);
            }
            let Some((seq, req)) = self.candidate(pending, place, from) else {
                PeekMut::pop(top);
                continue;
            };
            let lap = front.lap + u32::from(seq < from);
            *top = Reverse(Candidate { lap, seq, place, req });
        }
        None
    }

    /// Whether the place can serve the request, which it could when it was last looked at.
    fn can_serve(&self, pending: &mut Pending, place: RoomKey, req: ReqIdx) -> bool {
        match place {
            RoomKey::Host(host) => self.on_host(host, &self.requests.wish(req)).is_some(),
            RoomKey::Rack(rack) => self.is_on_rack(rack, req),
            RoomKey::Hostless(class) | RoomKey::Hosted(class) => {
                self.any_node_of_class(pending, class).is_some()
            }
        }
    }

    /// The first request, from place `from` on and around, that the place can serve.
    fn candidate(&self, pending: &mut Pending, place: RoomKey, from: Seq) -> Option<(Seq, ReqIdx)> {
        match place {
            RoomKey::Host(host) => {
                let fits = |req| self.on_host(host, &self.requests.wish(req)).is_some();
                self.runnable().hosts().contains(host).then_some(())?;
                pending.first_on_host(self.requests, host, from, fits)
            }
            RoomKey::Rack(rack) => {
                let fits = |req| self.is_on_rack(rack, req);
                self.runnable().racks().contains(rack).then_some(())?;
                pending.first_on_rack(self.requests, rack, from, fits)
            }
            RoomKey::Hostless(class) => {
                self.any_node_of_class(pending, class)?;
                pending.first_hostless(self.requests, class, from)
            }
            RoomKey::Hosted(class) => {
                self.any_node_of_class(pending, class)?;
                pending.first_hosted(self.requests, class, from)
            }
        }
    }

    fn runnable(&self) -> &Runnable {
        self.nodes.runnable(self.kind)
    }
}

/// Something that has room, and by which requests are indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RoomKey {
    Host(HostIdx),
    Rack(RackIdx),
    /// Any node that can serve the class, for requests without hosts.
    Hostless(ClassIdx),
    /// The same for requests with hosts.
    Hosted(ClassIdx),
}

/// A place and the first request that it can serve: the round of the cursor in which the walk comes
/// to it, and its place in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    lap: u32,
    seq: Seq,
    place: RoomKey,
    req: ReqIdx,
}

/// The places with free slots, by the first request that each can serve. The stored value of a
/// place is never later than the true one, because requests and free slots only disappear and the
/// cursor only advances; so the first place whose value is still true has the first request of all.
#[derive(Debug)]
pub(crate) struct Front {
    pass: u64,
    level: Level,
    /// Where the last search started, and how often the cursor has wrapped before.
    from: Seq,
    lap: u32,
    places: BinaryHeap<Reverse<Candidate>>,
}

/// Places that may be both runnable and wanted: the smaller of the two lists.
fn common<I: Idx>(
    runnable: &DenseSet<I>,
    wanted: usize,
    at: impl Fn(usize) -> Option<I>,
) -> Vec<I> {
    if runnable.len() <= wanted {
        runnable.items().to_vec()
    } else {
        (0..wanted).filter_map(at).filter(|place| runnable.contains(*place)).collect()
    }
}
