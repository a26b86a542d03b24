//! Scheduling: passes that grant free slots to pending requests.
//!
//! Spec: cluster-manager/04. The original rebuilds everything up to ten times a second; here the
//! order is kept by each change, and a pass looks only at sessions that may be given something.
//! A session that nothing free can serve is set aside until something happens that may help.

mod audit;
pub(crate) mod crowd;
mod explain;
mod image;
mod line;
mod matching;
mod order;
mod preemption;
mod queue;
mod quota;
mod reasons;
mod reservation;
mod room;
pub(crate) mod shares;
mod tree;

use std::collections::BTreeSet;

use indexmap::IndexSet;
use serde::{Deserialize, Serialize};

pub(crate) use self::image::SchedulerImage;
pub(crate) use self::matching::{Front, Search};
pub use self::order::Precedence;
pub(crate) use self::order::{QueueIdx, SessionKey, SessionStanding};
pub use self::preemption::Lack;
pub(crate) use self::quota::Allowance;
pub use self::reasons::{
    Ahead, Competition, Holder, HolderClaim, IdRange, Preemption, ReservedNode, Rivals, Unusable,
    WaitReason, WaitingRequests,
};
pub(crate) use self::reservation::{Expired, Reservation, Reservations};
pub(crate) use self::tree::Tree;
use super::Engine;
use super::check::hold;
use super::index::{NodeIdx, PoolIdx, ReqIdx, SessionIdx};
use super::input::{Effect, Notification, Record};
use super::lookup::HashSeed;
use super::nodes::PREFETCHED_AT_ONCE;
use super::requests::RequestState;
use super::sessions::{Blocked, Session, Sessions, Tally};
use super::settings::SchedulingMode;
use super::types::{Grant, Millis, PerType, ResourceType};
use corona_model::resources::Amounts;

/// How near a node is to a request's preferred hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Level {
    /// On one of the hosts.
    #[default]
    Node,
    /// In the rack of one of the hosts.
    Rack,
    /// Anywhere.
    Any,
}

/// A session's patience for one type. Spec: cluster-manager/04 §7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Locality {
    required: Level,
    /// The level of the last match, within the pass of this number.
    last: (u64, Level),
    wait_started: Option<Millis>,
}

impl Locality {
    fn last_in(&self, pass: u64) -> Level {
        if self.last.0 == pass { self.last.1 } else { Level::Node }
    }

    fn set(&mut self, level: Level, pass: u64) {
        *self = Locality { required: level, last: (pass, level), wait_started: None };
    }

    /// Another cluster manager made a grant at this level, when passes were at this number.
    pub(crate) fn granted(&mut self, level: Level, pass: u64) {
        self.set(level, pass);
    }

    /// Widens the level when the wait for the present one is over.
    fn adjust(&mut self, now: Millis, waits: Waits, pass: u64) {
        let Some(started) = self.wait_started else { return };
        let waited = now.since(started);
        match self.required {
            Level::Node if waited > waits.node_ms => self.set(Level::Rack, pass),
            Level::Rack if waited > waits.rack_ms => self.set(Level::Any, pass),
            _ => {}
        }
    }
}

/// The configured locality waits of a type.
#[derive(Clone, Copy, Debug)]
struct Waits {
    node_ms: i64,
    rack_ms: i64,
}

impl Waits {
    /// Whether `level` must not be used by a session that requires `required`. The rack wait's
    /// length does not matter here: it only switches the waiting on, for any node as well.
    fn forbid(self, level: Level, required: Level) -> bool {
        let gated = match level {
            Level::Node => self.node_ms != 0,
            Level::Rack => self.rack_ms != 0,
            Level::Any => false,
        };
        gated && required < level
    }
}

/// The scheduler's state beside the books of nodes and sessions.
#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) tree: Tree,
    blocked: PerType<IndexSet<SessionIdx, ahash::RandomState>>,
    /// Ends of waits for near nodes.
    wakes: BTreeSet<(Millis, SessionIdx, ResourceType)>,
    pass: u64,
    wanted: PerType<bool>,
    pending: PerType<i64>,
    preemption: PerType<preemption::Clock>,
    pub(crate) reservations: Reservations,
    pub(crate) expired: Expired,
    /// When nodes were last reserved, or might have been.
    reserved_last: Option<Millis>,
}

impl Scheduler {
    pub(crate) fn new(seed: HashSeed) -> Self {
        let set = || IndexSet::with_hasher(seed.state());
        Scheduler {
            tree: Tree::new(seed),
            blocked: PerType([set(), set(), set()]),
            wakes: BTreeSet::new(),
            pass: 0,
            wanted: PerType::all(false),
            pending: PerType::all(0),
            preemption: PerType::default(),
            reservations: Reservations::new(),
            expired: Expired::new(),
            reserved_last: None,
        }
    }

    /// Recomputes the tree, the sets of sessions that were tried without a grant, and their waits.
    pub(crate) fn audit(&self, sessions: &Sessions) -> Result<(), String> {
        self.audit_tree(sessions)?;
        let mut wakes = 0;
        for kind in ResourceType::ALL {
            let mut pending = 0;
            let mut blocked = 0;
            for (session, entry) in sessions.iter() {
                let demand = entry.demand(kind);
                pending += demand.tally.pending;
                let Some(block) = demand.blocked else { continue };
                blocked += 1;
                let noted = self.blocked[kind].contains(&session);
                hold(noted && demand.tally.pending > 0, || {
                    format!("{kind}: session {} is wrongly set aside", entry.handle)
                })?;
                if let Some(at) = block.until {
                    wakes += 1;
                    let noted = self.wakes.contains(&(at, session, kind));
                    hold(noted, || format!("{kind}: nobody wakes session {}", entry.handle))?;
                }
            }
            hold(self.blocked[kind].len() == blocked, || {
                format!("{kind}: {blocked} sessions are set aside")
            })?;
            hold(self.pending[kind] == pending, || format!("{kind}: {pending} requests wait"))?;
        }
        hold(self.wakes.len() == wakes, || format!("{wakes} sessions wait for near nodes"))
    }

    /// Whether a session waits for grants and may be given some, if a node has room and its user may
    /// hold more.
    fn may_be_given(&self, session: &Session, kind: ResourceType) -> bool {
        let demand = session.demand(kind);
        let waits = demand.tally.pending > 0 && demand.blocked.is_none();
        waits && session.gate.is_none()
    }

    /// The number of the last pass.
    pub(crate) fn pass(&self) -> u64 {
        self.pass
    }

    /// When a pass is due even if nothing happens.
    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        let wake = self.wakes.first().map(|(at, ..)| *at);
        let preemption = ResourceType::ALL.into_iter().filter_map(|kind| self.preemption_due(kind));
        preemption.chain(wake).min()
    }
}

impl Engine {
    /// Whether a pass may give something out.
    pub(super) fn pass_is_wanted(&self) -> bool {
        ResourceType::ALL.into_iter().any(|kind| self.kind_wants_pass(kind))
    }

    fn kind_wants_pass(&self, kind: ResourceType) -> bool {
        self.scheduler.wanted[kind]
            || self.nodes.runnable(kind).has_fresh()
            || self.scheduler.tree.counts_other_slots(kind, self.nodes.offered(kind))
            || self.scheduler.tree.counts_other_amounts(self.nodes.whole())
    }

    /// Notes for which types time has changed something.
    pub(super) fn want_passes_due(&mut self, now: Millis) {
        for kind in ResourceType::ALL {
            let waits_over = self.scheduler.wakes.iter().take_while(|(at, ..)| *at <= now);
            let wait_over = waits_over.into_iter().any(|(.., of)| *of == kind);
            let preemption_due = self.scheduler.preemption_due(kind).is_some_and(|at| at <= now);
            self.scheduler.wanted[kind] |= wait_over || preemption_due;
        }
        if self.reservations_due().is_some_and(|at| at <= now) {
            self.scheduler.wanted = PerType::all(true);
        }
    }

    /// Matches pending requests with free slots, type by type.
    pub(super) fn pass(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        self.review_reservations(now, effects);
        self.unblock_for_more_resources();
        for kind in ResourceType::ALL {
            if self.kind_wants_pass(kind) {
                self.pass_of(kind, now, effects);
            }
        }
        self.reserve_if_due(now, effects);
    }

    fn pass_of(&mut self, kind: ResourceType, now: Millis, effects: &mut Vec<Effect>) {
        self.scheduler.wanted[kind] = false;
        self.scheduler.pass += 1;
        self.unblock_due(kind, now);
        self.unblock_for_fresh_nodes(kind);
        self.count_slots(kind);
        self.count_resources();
        let mut given: Vec<SessionIdx> = Vec::new();
        let mut held: Vec<QueueIdx> = Vec::new();
        let mut ready = self.ready_reservations(kind);
        let mut work_left = self.settings.scheduling.grants_per_pass;
        let fully_scheduled = loop {
            let next = self.scheduler.tree.first(kind);
            let has_room = self.nodes.runnable(kind).count() > 0 || !ready.is_empty();
            let (Some((pool, session)), true) = (next, has_room) else { break true };
            if work_left == 0 {
                break false;
            }
            let most = self.most_at_once(pool, kind);
            if most.slots == 0 {
                // Not counted as work: the next pass would only hold the same queues again.
                held.push(self.scheduler.tree.hold(pool, kind));
                continue;
            }
            work_left -= 1;
            match self.find_match(session, kind, most, now) {
                Some((req, node)) => {
                    if self.nodes[node].reserved {
                        ready.retain(|ready| *ready != pool);
                        self.end_reservation(pool, true, effects);
                    }
                    if self.sessions[session].demand(kind).batch.is_empty() {
                        given.push(session);
                    }
                    self.commit(session, kind, req, node, now);
                }
                None => self.block(session, kind),
            }
        };
        for queue in held {
            self.scheduler.tree.set_held(queue, kind, false);
        }
        for session in given {
            self.hand_out(session, kind, effects);
        }
        if fully_scheduled {
            // Their queues may be given nothing at present.
            for pool in ready {
                self.end_reservation(pool, false, effects);
            }
            self.preempt_if_due(kind, now, effects);
        } else {
            self.scheduler.wanted[kind] = true;
        }
    }

    /// Where resources stay free for queues that do not lend, more of them on any node may let requests of all
    /// types be served, on nodes that had room all the time.
    fn unblock_for_more_resources(&mut self) {
        let is_fresh = |kind| self.nodes.runnable(kind).has_fresh();
        if self.scheduler.tree.keeps_amounts() && ResourceType::ALL.into_iter().any(is_fresh) {
            ResourceType::ALL.into_iter().for_each(|kind| self.unblock_all(kind));
        }
    }

    /// Takes over the number of slots and the resources, of which limits and reserves may be parts.
    fn count_slots(&mut self, kind: ResourceType) {
        if self.scheduler.tree.count_slots(kind, self.nodes.offered(kind)) {
            self.unblock_all(kind);
        }
        if self.scheduler.tree.count_amounts(self.nodes.whole()) {
            for kind in ResourceType::ALL {
                self.unblock_all(kind);
                self.scheduler.wanted[kind] = true;
            }
        }
    }

    /// Takes over the resources of the cluster, of which queues and sessions have shares. They are rounded up
    /// to 7 binary digits, so that not each node that comes or goes moves all of them.
    fn count_resources(&mut self) {
        let Some(before) = self.scheduler.tree.whole else { return };
        let whole = self.nodes.whole().rounded_up(7);
        if whole == before {
            return;
        }
        self.scheduler.tree.whole = Some(whole);
        self.move_all();
    }

    /// Puts all queues and sessions where they belong now.
    fn move_all(&mut self) {
        for session in self.sessions.in_order_of_start() {
            for kind in ResourceType::ALL {
                self.requeue(session, kind);
            }
        }
        self.scheduler.tree.refresh_all();
    }

    /// Counts by changed settings what requests take and nodes have. [`Self::reconfigure_queues`] and the
    /// reindexing of all nodes follow.
    pub(super) fn count_all_anew(&mut self) {
        let settings = self.settings.clone();
        let resources = &settings.resources;
        self.nodes.forget_used(resources.counted);
        self.scheduler.tree.forget_held();
        self.scheduler.tree.whole = resources.are_counted().then_some(Amounts::ZERO);
        for session in self.sessions.in_order_of_start() {
            self.sessions[session].requests.revalue(resources);
            self.number_anew(session);
            let Session { requests, demand, pool, .. } = &mut self.sessions[session];
            let (held, mut slots) = (requests.held(), PerType::all(0));
            for (req, request) in requests.iter() {
                if let RequestState::Granted { node, .. } = request.state {
                    self.nodes.use_again(node, request.kind, requests.wish(req));
                    slots[request.kind] += i64::from(request.need());
                }
            }
            for kind in ResourceType::ALL {
                let more = slots[kind] - demand[kind].tally.slots;
                let change = Tally { slots: more, ..Tally::default() };
                (demand[kind].held, demand[kind].tally.slots) = (held[kind], slots[kind]);
                self.scheduler.tree.hold_more(*pool, kind, held[kind]);
                self.scheduler.tree.count(*pool, kind, change);
            }
        }
    }

    /// The most that a request of a pool may be given: what queues do not lend stays free, and no maximum in
    /// resources is exceeded. Within a pass it only shrinks.
    fn most_at_once(&self, pool: PoolIdx, kind: ResourceType) -> Allowance {
        let tree = &self.scheduler.tree;
        let slots = tree.most_at_once(pool, kind, self.nodes.usable_room(kind));
        let amounts = tree.most_of_free(pool, self.nodes.usable_spare()).least(tree.left_to(pool));
        Allowance { slots, amounts }
    }

    fn find_match(
        &mut self,
        session: SessionIdx,
        kind: ResourceType,
        most: Allowance,
        now: Millis,
    ) -> Option<(ReqIdx, NodeIdx)> {
        if let Some(found) = self.reserved_for(session, kind, most) {
            return Some(found);
        }
        let waits = self.waits(kind);
        let pass = self.scheduler.pass;
        let Session { requests, demand, .. } = &mut self.sessions[session];
        let demand = &mut demand[kind];
        let (nodes, topology) = (&self.nodes, &self.topology);
        let search = Search { kind, nodes, topology, requests, most };
        demand.locality.adjust(now, waits, pass);
        for level in levels(kind) {
            if *level < demand.locality.last_in(pass) {
                continue;
            }
            if waits.forbid(*level, demand.locality.required) {
                break;
            }
            if let Some(found) = search.find(&mut demand.pending, *level, pass) {
                demand.locality.set(*level, pass);
                return Some(found);
            }
        }
        demand.locality.wait_started.get_or_insert(now);
        None
    }

    fn commit(
        &mut self,
        session: SessionIdx,
        kind: ResourceType,
        req: ReqIdx,
        node: NodeIdx,
        now: Millis,
    ) {
        // Most passes follow a release and grant the slots that it freed.
        let room = self.nodes.runnable(kind).count().min(PREFETCHED_AT_ONCE);
        self.assign(session, req, node, now);
        self.note_first_grant(session, kind, now);
        let Session { requests, demand, .. } = &mut self.sessions[session];
        let demand = &mut demand[kind];
        let node = &self.nodes[node];
        if let Some(app_info) = &node.apps[kind] {
            if demand.batch.is_empty() {
                let expected = room.min(demand.pending.len() + 1);
                demand.batch.reserve(expected);
                demand.batch_asked.reserve(expected);
            }
            demand.batch_asked.push(requests.asked(req));
            demand.batch.push(Grant {
                id: requests[req].id,
                node_name: node.name.clone(),
                address: node.address.clone(),
                granted_at: now,
                kind,
                app_info: app_info.clone(),
            });
        }
        let change = Tally::of_grant(self.sessions[session].requests[req].need());
        self.settle(session, kind, change, now);
    }

    /// One notification for all that a session was given in a pass.
    fn hand_out(&mut self, session: SessionIdx, kind: ResourceType, effects: &mut Vec<Effect>) {
        let entry = &mut self.sessions[session];
        let demand = entry.demand_mut(kind);
        demand.pending.front = None;
        let (grants, asked) =
            (std::mem::take(&mut demand.batch), std::mem::take(&mut demand.batch_asked));
        entry.expected.grant_id = grants.iter().map(|grant| grant.id).fold(0, i32::max);
        let (handle, count) = (entry.handle.clone(), grants.len() as u64);
        let assigned = Record::Assigned { handle: handle.clone(), kind, count, asked };
        effects.push(Effect::Record(assigned));
        effects.push(Effect::Notify {
            handle,
            to: entry.info.address.clone(),
            notification: Notification::Granted(grants),
        });
    }

    /// Enters a change of a session's counts into all books and puts the session where it belongs.
    pub(super) fn settle(
        &mut self,
        session: SessionIdx,
        kind: ResourceType,
        change: Tally,
        now: Millis,
    ) {
        let total = &mut self.scheduler.pending[kind];
        if *total == 0 && change.pending > 0 {
            self.scheduler.preemption[kind].nobody_waited_until(now);
        }
        *total += change.pending;
        let pools = self.count_user(session, kind, change.granted);
        let entry = &mut self.sessions[session];
        let pool = entry.pool;
        let demand = entry.demand_mut(kind);
        demand.tally.add(change);
        demand.max_granted = demand.max_granted.max(demand.tally.granted);
        if demand.tally.pending == 0 {
            self.clear_block(session, kind);
        }
        let entry = &self.sessions[session];
        let belongs = self.scheduler.may_be_given(entry, kind);
        let moves = change.granted != 0 && self.scheduler.tree[pool].mode == SchedulingMode::Fair;
        if belongs != entry.demand(kind).place.is_some() {
            self.requeue(session, kind);
        } else if belongs && moves {
            self.move_in_queue(session, kind);
        }
        if change.pending < 0 {
            self.scheduler.look_at_reservation_of(pool);
        }
        let more_kept = self.scheduler.tree.add(pool, kind, change);
        let user = &self.sessions[session].info.user_id;
        for pool in pools {
            self.scheduler.wanted[kind] |= self.scheduler.tree.open_line(pool, kind, user);
        }
        // A queue that does not lend may take so many free slots more.
        if more_kept.slots > 0 {
            self.unblock_all(kind);
        }
        if more_kept.amounts {
            ResourceType::ALL.into_iter().for_each(|kind| self.unblock_all(kind));
        }
        // A released grant may have kept a pool or group at its maximum, without leaving a free
        // slot that would show it.
        if change.granted < 0 && self.scheduler.tree.first(kind).is_some() {
            self.scheduler.wanted[kind] = true;
        }
        if change.granted < 0 {
            self.unblock_below_maximum(pool);
        }
    }

    /// A pool holds less: lets those be tried again that a maximum in resources around it has kept waiting.
    fn unblock_below_maximum(&mut self, pool: PoolIdx) {
        let tree = &self.scheduler.tree;
        let Some(limited) = tree.outermost_limited(pool) else { return };
        for kind in ResourceType::ALL {
            let tree = &self.scheduler.tree;
            let inside = |session: &SessionIdx| {
                tree.path(self.sessions[*session].pool).any(|queue| queue == limited)
            };
            let blocked = self.scheduler.blocked[kind].iter().copied();
            for session in blocked.filter(inside).collect::<Vec<_>>() {
                self.unblock(session, kind);
            }
            self.scheduler.wanted[kind] |= self.scheduler.tree.first(kind).is_some();
        }
    }

    /// Puts a session into its pool's queue with its present standing, or takes it out.
    /// [`Tree::add`] or [`Tree::refresh`] follows.
    fn requeue(&mut self, session: SessionIdx, kind: ResourceType) {
        let entry = &mut self.sessions[session];
        let pool = entry.pool;
        if let Some(key) = entry.demand_mut(kind).place.take() {
            self.scheduler.tree.dequeue(pool, kind, &key, &entry.info.user_id);
        }
        if self.scheduler.may_be_given(entry, kind) {
            let mode = self.scheduler.tree[pool].mode;
            let key =
                SessionKey::new(mode, entry.standing(kind, self.scheduler.tree.whole), session);
            self.scheduler.tree.enqueue(pool, kind, key.clone(), &entry.info.user_id);
            entry.demand_mut(kind).place = Some(key);
            self.scheduler.wanted[kind] = true;
        }
    }

    /// Puts a session that is in its pool's queue and stays in where it now belongs.
    /// [`Tree::add`] or [`Tree::refresh`] follows.
    fn move_in_queue(&mut self, session: SessionIdx, kind: ResourceType) {
        let entry = &mut self.sessions[session];
        if let Some(mut place) = entry.demand_mut(kind).place.take() {
            let standing = entry.standing(kind, self.scheduler.tree.whole);
            self.scheduler.tree.requeue(
                entry.pool,
                kind,
                &mut place,
                standing,
                &entry.info.user_id,
            );
            entry.demand_mut(kind).place = Some(place);
            self.scheduler.wanted[kind] = true;
        }
    }

    /// Lets changed priorities, deadlines or modes take effect for a session.
    pub(super) fn requeue_all_kinds(&mut self, session: SessionIdx) {
        for kind in ResourceType::ALL {
            self.clear_block(session, kind);
            self.requeue(session, kind);
            self.scheduler.tree.refresh(self.sessions[session].pool, kind);
        }
    }

    /// Lets changed settings take effect for all queues and sessions.
    pub(super) fn reconfigure_queues(&mut self) {
        self.scheduler.tree.configure(&self.settings);
        self.forget_expired();
        for kind in ResourceType::ALL {
            self.scheduler.tree.count_slots(kind, self.nodes.offered(kind));
        }
        self.scheduler.tree.count_amounts(self.nodes.whole());
        self.enter_all_crowds();
        for session in self.sessions.in_order_of_start() {
            for kind in ResourceType::ALL {
                self.clear_block(session, kind);
                self.requeue(session, kind);
            }
        }
        self.scheduler.tree.refresh_all();
    }

    /// Removes an ending session from all queues. Its requests are already removed.
    pub(super) fn leave_queues(&mut self, session: SessionIdx) {
        let pool = self.sessions[session].pool;
        for kind in ResourceType::ALL {
            self.clear_block(session, kind);
        }
        self.scheduler.look_at_reservation_of(pool);
        self.leave_pool(session);
        if self.scheduler.tree.forget_if_unused(pool) {
            // Others may use its reserve now.
            for kind in ResourceType::ALL {
                self.unblock_all(kind);
                self.scheduler.wanted[kind] |= self.scheduler.tree.first(kind).is_some();
            }
        }
        self.forget_expired();
    }

    /// New requests may be served where the old ones could not.
    pub(super) fn unblock(&mut self, session: SessionIdx, kind: ResourceType) {
        if self.clear_block(session, kind) {
            self.requeue(session, kind);
            self.scheduler.tree.refresh(self.sessions[session].pool, kind);
        }
    }

    /// Something has changed that may help any session that is set aside.
    pub(super) fn unblock_all(&mut self, kind: ResourceType) {
        let blocked: Vec<SessionIdx> = self.scheduler.blocked[kind].iter().copied().collect();
        for session in blocked {
            self.unblock(session, kind);
        }
    }

    fn block(&mut self, session: SessionIdx, kind: ResourceType) {
        let waits = self.waits(kind);
        let demand = self.sessions[session].demand_mut(kind);
        demand.pending.front = None;
        let locality = demand.locality;
        let waits_for_place =
            kind == ResourceType::Map && waits.forbid(Level::Rack, locality.required);
        // The wait is over once it is exceeded.
        let until = locality
            .wait_started
            .filter(|_| waits_for_place)
            .map(|started| started.plus_ms(waits.node_ms).plus_ms(1));
        demand.blocked = Some(Blocked { until });
        if let Some(at) = until {
            self.scheduler.wakes.insert((at, session, kind));
        }
        self.scheduler.blocked[kind].insert(session);
        self.requeue(session, kind);
        self.scheduler.tree.refresh(self.sessions[session].pool, kind);
    }

    fn clear_block(&mut self, session: SessionIdx, kind: ResourceType) -> bool {
        let Some(blocked) = self.sessions[session].demand_mut(kind).blocked.take() else {
            return false;
        };
        self.scheduler.blocked[kind].swap_remove(&session);
        if let Some(at) = blocked.until {
            self.scheduler.wakes.remove(&(at, session, kind));
        }
        true
    }

    fn unblock_due(&mut self, kind: ResourceType, now: Millis) {
        let due = self.scheduler.wakes.iter().take_while(|(at, ..)| *at <= now);
        let due: Vec<_> = due.filter(|(.., of)| *of == kind).map(|(_, s, _)| *s).collect();
        for session in due {
            self.unblock(session, kind);
        }
    }

    /// Room on a node may help sessions that were tried without a grant: those that wait for a near node
    /// if they named its host, the others always. Where queues do not lend, room anywhere may let a request
    /// of several slots be served on a node that had them all the time.
    fn unblock_for_fresh_nodes(&mut self, kind: ResourceType) {
        const WORTH_LOOKING_AT: usize = 64;
        let fresh = self.nodes.take_fresh(kind);
        if fresh.is_empty() {
            return;
        }
        self.nodes.prefetch_to_allocate(&fresh[..fresh.len().min(PREFETCHED_AT_ONCE)], kind);
        let helped = |session: &SessionIdx| {
            let demand = self.sessions[*session].demand(kind);
            let waits_for_place = demand.blocked.is_some_and(|blocked| blocked.until.is_some());
            !waits_for_place
                || self.scheduler.reservations.contains_key(&self.sessions[*session].pool)
                || self.scheduler.tree.has_reserves()
                || fresh.len() > WORTH_LOOKING_AT
                || demand.pending.may_have_hostless()
                || fresh.iter().any(|node| {
                    let host = self.nodes.get(*node).map(|node| node.host);
                    host.is_some_and(|host| demand.pending.may_name_host(host))
                })
        };
        let blocked = &self.scheduler.blocked[kind];
        let helped: Vec<SessionIdx> = blocked.iter().copied().filter(helped).collect();
        for session in helped {
            self.unblock(session, kind);
        }
        self.nodes.keep_list(kind, fresh);
    }

    fn waits(&self, kind: ResourceType) -> Waits {
        let scheduling = &self.settings.scheduling;
        Waits {
            node_ms: scheduling.node_locality_wait_ms[kind],
            rack_ms: scheduling.rack_locality_wait_ms[kind],
        }
    }
}

/// The levels that are tried, best first. Spec: cluster-manager/04 §1.
fn levels(kind: ResourceType) -> &'static [Level] {
    match kind {
        ResourceType::Map => &[Level::Node, Level::Rack, Level::Any],
        ResourceType::Reduce | ResourceType::JobTracker => &[Level::Any],
    }
}
