//! Reservations: nodes that are kept for requests for which no node has enough left.
//!
//! Only where resources are counted: small requests would take each place that becomes free, and a large one
//! would wait forever. A request that has waited for long enough and finds no room in its turn reserves a
//! node that could serve it when empty. Nothing else is granted there, so the node serves it when its present
//! grants have ended; other nodes may serve it sooner. See
//! [resources.md](../../../docs/operate/resources.md#reservations).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::quota::Allowance;
use super::{Scheduler, Search};
use crate::Engine;
use crate::check::hold;
use crate::index::{HostIdx, NodeIdx, PoolIdx, ReqIdx, SessionIdx};
use crate::input::{Effect, Record};
use crate::nodes::{Node, Nodes};
use crate::requests::{RequestState, Wish};
use crate::sessions::Session;
use crate::types::{Millis, ResourceType};
use corona_model::resources::ReserveAfter;

/// Reservations are made when more than this has passed since the last time.
const PERIOD_MS: i64 = 1000;

/// Requests of a session that are looked at, in the order of their arrival.
pub(super) const REQUESTS_LOOKED_AT: usize = 256;

/// Of so many nodes one may be reserved, and always one.
const NODES_FOR_EACH: usize = 20;

/// A node that is kept for a request of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reservation {
    pub(crate) node: NodeIdx,
    /// The session, which may have ended since.
    pub(crate) handle: Arc<str>,
    /// The request, which may not wait any more.
    pub(crate) id: i32,
    pub(crate) kind: ResourceType,
    pub(crate) since: Millis,
}

/// One for each pool, at most.
pub(crate) type Reservations = BTreeMap<PoolIdx, Reservation>;

/// The last reservation of a pool, if it ended because it took too long: its node, and when that was.
pub(crate) type Expired = BTreeMap<PoolIdx, (NodeIdx, Millis)>;

/// A request that has found no room in its turn for long enough, by the time from which it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PassedOver {
    asked: Millis,
    pool: PoolIdx,
    kind: ResourceType,
    session: SessionIdx,
    req: ReqIdx,
}

impl Scheduler {
    /// Something has happened that may end the reservation of a pool, if it has one.
    pub(super) fn look_at_reservation_of(&mut self, pool: PoolIdx) {
        if let Some(reservation) = self.reservations.get(&pool) {
            self.wanted[reservation.kind] = true;
        }
    }

    /// Compares the reservations with the marks of the nodes.
    pub(crate) fn audit_reservations(&self, nodes: &Nodes) -> Result<(), String> {
        let known: BTreeSet<NodeIdx> =
            self.reservations.values().map(|reservation| reservation.node).collect();
        hold(known.len() == self.reservations.len(), || "a node is reserved twice".into())?;
        let marked = nodes.iter().filter(|(_, entry)| entry.reserved).map(|(node, _)| node);
        hold(marked.eq(known), || "nodes are marked as reserved that are not".into())
    }
}

impl Engine {
    /// When reservations are looked at next; never while there are none and nothing waits that may get one.
    pub(crate) fn reservations_due(&self) -> Option<Millis> {
        let scheduler = &self.scheduler;
        scheduler.tree.whole?;
        let waits = scheduler.pending.0.iter().any(|pending| *pending > 0);
        let is_never = self.settings.resources.reservation.0 == ReserveAfter::NEVER;
        if (is_never || !waits) && scheduler.reservations.is_empty() {
            return None;
        }
        let last = scheduler.reserved_last;
        Some(last.map_or(Millis(i64::MIN), |last| last.plus_ms(PERIOD_MS).plus_ms(1)))
    }

    /// When the node of a reservation serves everybody again, at the latest.
    pub(crate) fn reservation_end(&self, reservation: &Reservation) -> Millis {
        reservation.since.plus_ms(self.settings.resources.reservation_limit.0.0)
    }

    /// Ends the reservations that have taken too long, and those that have lost their reason.
    pub(super) fn review_reservations(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        let stale: Vec<PoolIdx> = self
            .scheduler
            .reservations
            .iter()
            .filter(|(pool, reservation)| self.holder(**pool, reservation).is_none())
            .map(|(pool, _)| *pool)
            .collect();
        for pool in stale {
            // Its pool may not exist any more, so that nothing may be noted of it.
            self.end_reservation(pool, false, effects);
        }
        let limit_ms = self.settings.resources.reservation_limit.0.0;
        let is_over = |reservation: &Reservation| now.since(reservation.since) >= limit_ms;
        let all = self.scheduler.reservations.iter().filter(|(_, each)| is_over(each));
        for pool in all.map(|(pool, _)| *pool).collect::<Vec<_>>() {
            self.expire_reservation(pool, now, effects);
        }
    }

    /// Ends all reservations: resources are counted in another way.
    pub(crate) fn end_reservations(&mut self, effects: &mut Vec<Effect>) {
        while let Some(pool) = self.scheduler.reservations.keys().next().copied() {
            self.end_reservation(pool, false, effects);
        }
        self.scheduler.expired.clear();
        for kind in ResourceType::ALL {
            self.scheduler.preemption[kind].forget_sweep();
            for pool in self.scheduler.tree.pool_numbers() {
                self.scheduler.tree[pool].hunger[kind].passed_over = 0;
            }
        }
    }

    /// The request for which a node is kept, as long as it waits and the node could serve it when empty.
    fn holder(&self, pool: PoolIdx, reservation: &Reservation) -> Option<(SessionIdx, ReqIdx)> {
        let Reservation { node, handle, id, kind, .. } = reservation;
        let session = self.sessions.find(handle)?;
        let entry = &self.sessions[session];
        let req = entry.requests.find(*id)?;
        let request = &entry.requests[req];
        let waits = matches!(request.state, RequestState::Pending { .. }) && request.kind == *kind;
        let node = self.nodes.get(*node).filter(|node| node.reserved)?;
        let serves = could_serve(node, *kind, &entry.requests.wish(req), &request.excluded);
        (waits && serves && entry.pool == pool).then_some((session, req))
    }

    /// The pools whose reserved node has room by now for the request of the type.
    pub(super) fn ready_reservations(&self, kind: ResourceType) -> Vec<PoolIdx> {
        let of_kind = |reservation: &Reservation| reservation.kind == kind;
        let all = self.scheduler.reservations.iter().filter(|(_, each)| of_kind(each));
        all.filter(|(pool, each)| {
            self.holder(**pool, each).is_some_and(|(session, req)| {
                self.nodes[each.node].fits(kind, &self.sessions[session].requests.wish(req))
            })
        })
        .map(|(pool, _)| *pool)
        .collect()
    }

    /// The session's request with a reserved node, if the node has room for it by now.
    pub(super) fn reserved_for(
        &self,
        session: SessionIdx,
        kind: ResourceType,
        most: Allowance,
    ) -> Option<(ReqIdx, NodeIdx)> {
        let pool = self.sessions[session].pool;
        let reservation = self.scheduler.reservations.get(&pool)?;
        let (holder, req) = self.holder(pool, reservation)?;
        if holder != session || reservation.kind != kind {
            return None;
        }
        let wish = self.sessions[session].requests.wish(req);
        let fits = most.allows(&wish) && self.nodes[reservation.node].fits(kind, &wish);
        fits.then_some((req, reservation.node))
    }

    /// Ends the reservation of a node that is lost.
    pub(crate) fn end_reservation_of(&mut self, node: NodeIdx, effects: &mut Vec<Effect>) {
        let mut all = self.scheduler.reservations.iter();
        let pool = all.find(|(_, reservation)| reservation.node == node).map(|(pool, _)| *pool);
        if let Some(pool) = pool {
            self.end_reservation(pool, false, effects);
        }
    }

    /// Ends a reservation that has taken too long. The pool waits again, as the youngest one, and for
    /// another node if there is one.
    fn expire_reservation(&mut self, pool: PoolIdx, now: Millis, effects: &mut Vec<Effect>) {
        let Some(reservation) = self.scheduler.reservations.remove(&pool) else { return };
        let Reservation { node, handle, id, kind, since } = reservation;
        self.scheduler.expired.insert(pool, (node, now));
        let Some(name) = self.nodes.end_reservation(node) else { return };
        let kept_ms = now.since(since);
        let record = Record::ReservationExpired { node: name, handle, kind, id, kept_ms };
        effects.push(Effect::Record(record));
    }

    /// Forgets pools that do not exist any more.
    pub(super) fn forget_expired(&mut self) {
        let tree = &self.scheduler.tree;
        self.scheduler.expired.retain(|pool, _| tree.pools.get(*pool).is_some());
    }

    /// Lets the pool's node serve everybody again.
    pub(super) fn end_reservation(
        &mut self,
        pool: PoolIdx,
        served: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(reservation) = self.scheduler.reservations.remove(&pool) else { return };
        let Reservation { node, handle, id, kind, .. } = reservation;
        let Some(name) = self.nodes.end_reservation(node) else { return };
        effects.push(Effect::Record(Record::ReservationEnded {
            node: name,
            handle,
            kind,
            id,
            served,
        }));
    }

    /// After passes that granted all they could: reserves nodes for requests that were passed over.
    pub(super) fn reserve_if_due(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        let due = self.reservations_due().is_some_and(|due| due <= now);
        if !due || self.pass_is_wanted() {
            return;
        }
        self.scheduler.reserved_last = Some(now);
        let most = (self.nodes.len() / NODES_FOR_EACH).max(1);
        if self.scheduler.reservations.len() >= most {
            return;
        }
        for passed_over in self.passed_over(now) {
            if self.scheduler.reservations.len() >= most {
                break;
            }
            self.reserve(passed_over, now, effects);
        }
    }

    /// Of each pool without a reservation the request that has waited for longest, the oldest first.
    fn passed_over(&self, now: Millis) -> BTreeSet<PassedOver> {
        let mut oldest: BTreeMap<PoolIdx, PassedOver> = BTreeMap::new();
        let mut rooms: BTreeMap<(PoolIdx, usize), BTreeMap<&str, i64>> = BTreeMap::new();
        let mut able = BTreeMap::new();
        for kind in ResourceType::ALL {
            // Sessions that were tried in their turn. While all nodes are full, none is tried.
            for session in self.scheduler.blocked[kind].iter().copied().collect::<BTreeSet<_>>() {
                let entry = &self.sessions[session];
                let pool = entry.pool;
                let tree = &self.scheduler.tree;
                let rooms = rooms.entry((pool, kind.index())).or_default();
                let (_, usable) = tree.usable_by(entry, kind, rooms);
                let open = tree.path(pool).all(|queue| tree.is_open(queue, kind));
                if usable <= 0 || !open || self.scheduler.reservations.contains_key(&pool) {
                    continue;
                }
                let Some((asked, req)) = self.oldest_without_room(session, kind, now, &mut able)
                else {
                    continue;
                };
                let found = PassedOver { asked, pool, kind, session, req };
                let oldest = oldest.entry(pool).or_insert(found);
                *oldest = found.min(*oldest);
            }
        }
        oldest.into_values().collect()
    }

    /// The oldest request of a session that has waited for long enough, that no node has room for, and that
    /// some empty node could serve.
    fn oldest_without_room(
        &self,
        session: SessionIdx,
        kind: ResourceType,
        now: Millis,
        able: &mut BTreeMap<(ResourceType, Wish), bool>,
    ) -> Option<(Millis, ReqIdx)> {
        let Session { requests, demand, pool, .. } = &self.sessions[session];
        let most = self.most_at_once(*pool, kind);
        let (nodes, topology) = (&self.nodes, &self.topology);
        let search = Search { kind, nodes, topology, requests, most };
        let patience_ms = self.settings.resources.reservation.0.0;
        let again = self.scheduler.expired.get(pool).map_or(Millis(i64::MIN), |(_, at)| *at);
        let mut seen = BTreeSet::new();
        for req in demand[kind].pending.order(requests).take(REQUESTS_LOOKED_AT) {
            let RequestState::Pending { class } = requests[req].state else { continue };
            let asked = requests.asked(req).at.max(again);
            if now.since(asked) < patience_ms {
                return None;
            }
            let (wish, excluded) = (requests.wish(req), &requests[req].excluded);
            if !seen.insert(class) || !most.allows(&wish) {
                continue;
            }
            let empty_node_serves =
                || nodes.iter().any(|(_, node)| could_serve(node, kind, &wish, excluded));
            let able = match excluded.is_empty() {
                true => *able.entry((kind, wish)).or_insert_with(empty_node_serves),
                false => empty_node_serves(),
            };
            if able && !search.has_room_for(&wish, excluded, &mut 0) {
                return Some((asked, req));
            }
        }
        None
    }

    /// Reserves the node that lacks least, by the largest part of the demand that it lacks.
    fn reserve(&mut self, passed_over: PassedOver, now: Millis, effects: &mut Vec<Effect>) {
        let PassedOver { pool, kind, session, req, .. } = passed_over;
        let Session { requests, handle, .. } = &self.sessions[session];
        let (wish, request) = (requests.wish(req), &requests[req]);
        let able = self.nodes.iter().filter(|(_, node)| {
            !node.reserved && could_serve(node, kind, &wish, &request.excluded)
        });
        let lacks = |node: &Node| wish.demand.minus(node.spare()).dominant_share(&wish.demand);
        let in_vain = self.scheduler.expired.get(&pool).map(|(node, _)| *node);
        let place =
            |(node, entry): &(NodeIdx, &Node)| (Some(*node) == in_vain, lacks(entry), *node);
        let Some((node, _)) = able.min_by_key(place) else { return };
        self.scheduler.expired.remove(&pool);
        let (id, handle) = (request.id, handle.clone());
        let name = self.nodes.reserve(node);
        let record = Record::NodeReserved { node: name, handle: handle.clone(), kind, id };
        effects.push(Effect::Record(record));
        let reservation = Reservation { node, handle, id, kind, since: now };
        self.scheduler.reservations.insert(pool, reservation);
    }
}

/// Whether a node could serve a request if nothing ran there.
pub(super) fn could_serve(
    node: &Node,
    kind: ResourceType,
    wish: &Wish,
    excluded: &[HostIdx],
) -> bool {
    node.is_usable(kind)
        && node.slots[kind] >= wish.need
        && wish.demand.fits(&node.capacity)
        && !excluded.contains(&node.host)
}
