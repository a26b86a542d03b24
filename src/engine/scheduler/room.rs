//! Preemption where resources are counted: takes back grants on one node, to make room for one request.
//!
//! What is taken back by number may leave room on no node. So each set of victims is on one node and makes room
//! for one request, which is granted there at once: nobody else takes the room. The set is minimal, the youngest
//! grants first. Nobody is left with less than is guaranteed, nor with a smaller share than the preempting queue
//! has then, which therefore never loses the room to the victim again. See
//! [resources.md](../../../docs/operate/resources.md#preemption).

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::order::{QueueIdx, QueueKey, SessionKey};
use super::preemption::DueMet;
use super::quota::Allowance;
use super::reasons::Preemption;
use super::reservation::{REQUESTS_LOOKED_AT, could_serve};
use super::{Search, Tree};
use crate::Engine;
use crate::index::{GroupIdx, HostIdx, Idx, NodeIdx, PoolIdx, ReqIdx, SessionIdx};
use crate::input::{Effect, Record, Starvation};
use crate::requests::{RequestState, Wish};
use crate::sessions::Session;
use crate::settings::SchedulingMode;
use crate::types::{Millis, ResourceType};
use corona_model::queues::PreemptionRule;
use corona_model::resources::{Amounts, Portion};

/// Nodes and grants that a round looks at, at most; a grant counts for each request that it might make room for.
/// The next round goes on from there.
const LOOKS: usize = 65_536;
/// Nodes that a round looks at to find requests that lack room, at most.
const SEARCHED: usize = 262_144;
/// Pools for which a round makes room.
const POOLS: usize = 64;
/// Different requests of a pool for which a round looks for room at the same time.
const WISHES: usize = 8;
/// Waiting requests of a pool among which these are found.
const REQUESTS_OF_POOL: usize = 1_024;
/// Grants that are taken back for one request.
const VICTIMS: usize = 64;

/// Where the next round goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rest {
    /// How often the age of grants that may be taken back was doubled.
    doublings: u32,
    node: NodeIdx,
}

/// A pool for which room is made.
struct Claimant {
    pool: PoolIdx,
    /// Whether it may be given its minimum alone.
    only_minimum: bool,
    /// The group inside which alone grants are taken back.
    fence: Option<GroupIdx>,
    /// Its sessions in scheduling order.
    sessions: Vec<SessionIdx>,
    /// Requests for which no node has room, different ones.
    wishes: Vec<(SessionIdx, ReqIdx)>,
    /// How many different requests were looked at to find these.
    looked_at: u32,
    /// Whether room was made for any of its requests.
    helped: bool,
}

/// A grant that may be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Victim {
    at: Millis,
    id: i32,
    session: SessionIdx,
    req: ReqIdx,
    pool: PoolIdx,
    wish: Wish,
}

/// The work of one round.
struct Round {
    kind: ResourceType,
    now: Millis,
    looks_left: usize,
    search_left: usize,
    /// Whether some empty node could serve a request, and whether some node has room for it.
    able: BTreeMap<(Wish, Box<[HostIdx]>), bool>,
    has_room: BTreeMap<(Wish, Box<[HostIdx]>), bool>,
    given: Vec<SessionIdx>,
}

impl Engine {
    /// A round: makes room for the requests of pools that have lacked their due for long enough.
    pub(super) fn make_room(&mut self, kind: ResourceType, now: Millis, effects: &mut Vec<Effect>) {
        let mut round = Round {
            kind,
            now,
            looks_left: LOOKS,
            search_left: SEARCHED,
            able: BTreeMap::new(),
            has_room: BTreeMap::new(),
            given: Vec::new(),
        };
        let mut claimants = Vec::new();
        let mut search_from = None;
        for (pool, only_minimum) in self.starving_for_room(kind, now) {
            if round.search_left == 0 {
                search_from = Some(pool);
                break;
            }
            let mut claimant = self.claimant(pool, only_minimum, kind);
            self.find_wishes(&mut claimant, &mut round);
            if !claimant.wishes.is_empty() {
                claimants.push(claimant);
            } else if round.search_left == 0 {
                // The others of its requests come when it has its turn again.
                self.pass_over(&claimant, kind);
            }
            if claimants.len() == POOLS {
                break;
            }
        }
        self.scheduler.preemption[kind].search_from.0 = search_from;
        let pools: Vec<PoolIdx> = claimants.iter().map(|claimant| claimant.pool).collect();
        let clock = &mut self.scheduler.preemption[kind];
        let began = match *clock.rest {
            Some(_) => clock.sweep_began.unwrap_or(now),
            None => now,
        };
        let rest = self.take_back_for(&mut claimants, &mut round, effects);
        let clock = &mut self.scheduler.preemption[kind];
        clock.rest.0 = rest;
        clock.sweep_began.0 = rest.map(|_| began);
        match rest {
            Some(Rest { node, .. }) => {
                let nodes_left = self.nodes.places().saturating_sub(node.place());
                let paused = Record::PreemptionPaused { kind, nodes_left: nodes_left as u64 };
                effects.push(Effect::Record(paused));
            }
            None => {
                for claimant in claimants.iter().filter(|claimant| !claimant.helped) {
                    self.pass_over(claimant, kind);
                }
                // One that began to starve in the middle has not seen all nodes.
                for pool in pools {
                    if self.starved_at(pool, kind, began) {
                        self.scheduler.tree[pool].hunger[kind].last_preempt = Some(now);
                    }
                }
            }
        }
        for session in round.given {
            self.hand_out(session, kind, effects);
        }
    }

    /// Nothing could help the requests of a pool that were looked at: others come first the next time.
    fn pass_over(&mut self, claimant: &Claimant, kind: ResourceType) {
        let passed_over = &mut self.scheduler.tree[claimant.pool].hunger[kind].passed_over;
        *passed_over = passed_over.wrapping_add(claimant.looked_at);
    }

    /// When room is made for a pool, if it lacks anything.
    pub(super) fn room_due(
        &self,
        pool: PoolIdx,
        kind: ResourceType,
        now: Millis,
    ) -> Option<Preemption> {
        let lack = self.lack(&self.scheduler.tree[pool], kind);
        let (due, cause) = self.turn_of(pool, kind, lack)?;
        let due = due.max(self.scheduler.preemption_due(kind)?).max(now);
        Some(Preemption { cause, due, possible: true })
    }

    /// The pools that have lacked their due for long enough, those first that had a turn longest ago, and whether
    /// each lacks its minimum alone.
    fn starving_for_room(&mut self, kind: ResourceType, now: Millis) -> Vec<(PoolIdx, bool)> {
        let most = self.most_served(kind);
        let mut starving = Vec::new();
        for pool in self.scheduler.tree.pool_numbers() {
            let tally = self.scheduler.tree[pool].kinds[kind].tally;
            let waits = tally.pending > 0;
            let has = DueMet {
                minimum: !waits || !self.scheduler.tree.is_needy(QueueIdx::Pool(pool), kind),
                share: !waits || !self.is_behind(pool, kind, &most),
            };
            let starved = self.starves(pool, kind, has, now);
            let (minimum, share) = (starved.minimum && !has.minimum, starved.share && !has.share);
            if minimum || share {
                let last = self.scheduler.tree[pool].hunger[kind].last_preempt;
                starving.push((last, pool, !share));
            }
        }
        starving.sort_unstable();
        let from = *self.scheduler.preemption[kind].search_from;
        if let Some(at) = starving.iter().position(|(_, pool, _)| Some(*pool) == from) {
            starving.rotate_left(at);
        }
        starving.into_iter().map(|(_, pool, only_minimum)| (pool, only_minimum)).collect()
    }

    /// Of the queues in each group the one that is taken from first: above its minimum, with the lowest priority, then
    /// with the largest share.
    fn most_served(&self, kind: ResourceType) -> BTreeMap<Option<GroupIdx>, QueueIdx> {
        let tree = &self.scheduler.tree;
        let gives = |queue: &QueueIdx| match queue {
            QueueIdx::Pool(pool) => tree[*pool].is_preemptable(),
            QueueIdx::Group(group) => {
                tree.group(*group).rules.preemption != PreemptionRule::Disabled
            }
        };
        let has_more = |queue: &QueueIdx| {
            let state = tree.state(*queue, kind);
            state.tally.granted > state.minimum.max(0)
                && tree.quota(*queue).has_more(tree.held(*queue))
        };
        let first = |a: &QueueIdx, b: &QueueIdx| {
            let rank = |queue: &QueueIdx| tree.claim(*queue, kind).priority;
            let share =
                |queue: &QueueIdx| self.portion(*queue, kind, tree.state(*queue, kind).held);
            rank(a).cmp(&rank(b)).then_with(|| share(b).cmp(&share(a)))
        };
        let groups = tree.groups().map(|(group, _)| group);
        let groups = groups.filter(|group| tree.allows_preemption(*group)).map(Some);
        let most = groups.chain([None]).filter_map(|group| {
            let queues = tree.inside(group).into_iter();
            Some((group, queues.filter(gives).filter(has_more).min_by(first)?))
        });
        most.collect()
    }

    /// What a queue that holds so much has for its weight among its siblings.
    fn portion(&self, queue: QueueIdx, kind: ResourceType, held: Amounts) -> Portion {
        let tree = &self.scheduler.tree;
        held.portion(&tree.whole.unwrap_or_default(), tree.claim(queue, kind).weight)
    }

    /// Whether a queue of the pool's path has much less than one of its siblings, as far as the fence.
    fn is_behind(
        &self,
        pool: PoolIdx,
        kind: ResourceType,
        most: &BTreeMap<Option<GroupIdx>, QueueIdx>,
    ) -> bool {
        let tree = &self.scheduler.tree;
        let ratio = self.settings.scheduling.share_starving_ratio;
        let ratio = (ratio.clamp(0.0, 1.0) * 1_000.0).round() as u64;
        let behind = |queue: QueueIdx, other: QueueIdx| {
            let rank = |queue: QueueIdx| tree.claim(queue, kind).priority;
            let share = |queue: QueueIdx| self.portion(queue, kind, tree.state(queue, kind).held);
            match rank(queue).cmp(&rank(other)) {
                _ if tree.is_needy(queue, kind) => true,
                Ordering::Equal => share(queue).is_below(ratio, share(other)),
                higher => higher == Ordering::Greater,
            }
        };
        let fence = tree.fence(pool);
        let mut queue = QueueIdx::Pool(pool);
        for group in tree.around(pool).map(Some).chain([None]) {
            let other = most.get(&group).filter(|other| **other != queue);
            if other.is_some_and(|other| behind(queue, *other)) {
                return true;
            }
            match group {
                Some(inner) if group != fence => queue = QueueIdx::Group(inner),
                _ => break,
            }
        }
        false
    }

    fn claimant(&self, pool: PoolIdx, only_minimum: bool, kind: ResourceType) -> Claimant {
        let tree = &self.scheduler.tree;
        let entry = &tree[pool];
        let waits = |session: &&SessionIdx| self.sessions[**session].demand(kind).tally.pending > 0;
        let key = |session: &SessionIdx| {
            let standing = self.sessions[*session].standing(kind, tree.whole);
            SessionKey::new(entry.mode, standing, *session)
        };
        let mut sessions: Vec<SessionIdx> = entry.sessions.iter().filter(waits).copied().collect();
        sessions.sort_by_cached_key(key);
        let fence = tree.fence(pool);
        let wishes = Vec::new();
        Claimant { pool, only_minimum, fence, sessions, wishes, looked_at: 0, helped: false }
    }

    /// Finds requests of a pool that may be served, that no node has room for, and that some empty node could serve.
    fn find_wishes(&self, claimant: &mut Claimant, round: &mut Round) {
        claimant.wishes.clear();
        claimant.looked_at = 0;
        let different = self.different_requests(claimant, round.kind);
        let hunger = self.scheduler.tree[claimant.pool].hunger[round.kind];
        let first = (hunger.passed_over as usize).checked_rem(different.len()).unwrap_or(0);
        let (before, from) = different.split_at(first);
        for (session, req) in from.iter().chain(before).copied() {
            if claimant.wishes.len() == WISHES || round.search_left == 0 {
                return;
            }
            claimant.looked_at += 1;
            if self.lacks_room(session, req, round) {
                claimant.wishes.push((session, req));
            }
        }
    }

    /// The first requests of a pool that may be served, each of those that want the same once.
    fn different_requests(
        &self,
        claimant: &Claimant,
        kind: ResourceType,
    ) -> Vec<(SessionIdx, ReqIdx)> {
        let (pool, tree) = (claimant.pool, &self.scheduler.tree);
        // What is taken back inside a full group makes room in it: see `stays_within`.
        let open = tree.path(pool).all(|queue| match queue {
            QueueIdx::Group(_) => tree.is_open_after(queue, kind, VICTIMS as i64, tree.held(queue)),
            QueueIdx::Pool(_) => tree.is_open(queue, kind),
        });
        let most = tree.path(pool).map(|queue| tree.quota(queue).maximum);
        let most = most.fold(Amounts::MOST, Amounts::least);
        let enough = claimant.only_minimum && !tree.is_needy(QueueIdx::Pool(pool), kind);
        let mut found = Vec::new();
        if !open || enough {
            return found;
        }
        let mut seen = BTreeSet::new();
        let mut left = REQUESTS_OF_POOL;
        for session in claimant.sessions.iter().copied() {
            let entry = &self.sessions[session];
            let (_, usable) = tree.usable_by(entry, kind, &mut BTreeMap::new());
            if usable <= 0 {
                continue;
            }
            let Session { requests, demand, .. } = entry;
            for req in demand[kind].pending.order(requests).take(REQUESTS_LOOKED_AT.min(left)) {
                left -= 1;
                let (wish, excluded) = (requests.wish(req), &requests[req].excluded);
                if wish.demand.fits(&most) && seen.insert((wish, excluded)) {
                    found.push((session, req));
                }
            }
            if left == 0 {
                break;
            }
        }
        found
    }

    /// Whether no node has room for a request, and some empty one could serve it.
    fn lacks_room(&self, session: SessionIdx, req: ReqIdx, round: &mut Round) -> bool {
        let Session { requests, pool, .. } = &self.sessions[session];
        let (kind, nodes, topology) = (round.kind, &self.nodes, &self.topology);
        let most = self.most_at_once(*pool, kind);
        let (wish, excluded) = (requests.wish(req), &requests[req].excluded);
        let key = (wish, excluded.clone());
        let mut looked_at = 0;
        let able = *round.able.entry(key.clone()).or_insert_with(|| {
            let mut nodes = nodes.iter().inspect(|_| looked_at += 1);
            nodes.any(|(_, node)| could_serve(node, kind, &wish, excluded))
        });
        // A node with room is no help to a request that a maximum or a reserve keeps waiting.
        let tree = &self.scheduler.tree;
        let allowed = most.allows(&wish) && tree.path(*pool).all(|queue| tree.is_open(queue, kind));
        let has_room = !able
            || allowed
                && *round.has_room.entry(key).or_insert_with(|| {
                    let search = Search { kind, nodes, topology, requests, most };
                    search.has_room_for(&wish, excluded, &mut looked_at)
                });
        round.search_left = round.search_left.saturating_sub(looked_at);
        !has_room
    }

    /// Takes grants back for the claimants, on one node after the other and then again those that are up to twice
    /// as old, until the claimants want nothing more or enough was looked at. Returns where to go on then.
    fn take_back_for(
        &mut self,
        claimants: &mut Vec<Claimant>,
        round: &mut Round,
        effects: &mut Vec<Effect>,
    ) -> Option<Rest> {
        let scheduling = &self.settings.scheduling;
        let shortest_ms = scheduling.preempted_task_max_running_time_ms;
        let rounds = scheduling.preemption_rounds.max(1);
        let rest = self.scheduler.preemption[round.kind].rest.0;
        let mut at = rest.unwrap_or(Rest { doublings: 0, node: NodeIdx::from_number(0) });
        let mut older = rest.is_some();
        while at.doublings < rounds && !claimants.is_empty() {
            let limit_ms = shortest_ms.saturating_mul(1 << at.doublings.min(62));
            for node in at.node.place()..self.nodes.places() {
                at.node = NodeIdx::from_number(node as u32);
                if claimants.is_empty() {
                    return None;
                }
                if round.looks_left == 0 {
                    return Some(at);
                }
                older |= self.take_back_on(at.node, limit_ms, claimants, round, effects);
            }
            if !older {
                break;
            }
            older = false;
            at = Rest { doublings: at.doublings + 1, node: NodeIdx::from_number(0) };
        }
        None
    }

    /// Takes grants of a node back. Returns whether it has older ones.
    fn take_back_on(
        &mut self,
        node: NodeIdx,
        limit_ms: i64,
        claimants: &mut Vec<Claimant>,
        round: &mut Round,
        effects: &mut Vec<Effect>,
    ) -> bool {
        round.looks_left = round.looks_left.saturating_sub(1);
        let kind = round.kind;
        if !self.nodes.get(node).is_some_and(|entry| entry.is_usable(kind)) {
            return false;
        }
        let (mut victims, older) = self.grants_to_take(node, limit_ms, round);
        if victims.is_empty() {
            return older;
        }
        let tree = &self.scheduler.tree;
        claimants.sort_by_cached_key(|claimant| tree.path_keys(claimant.pool, kind));
        let mut at = 0;
        while let Some(claimant) = claimants.get(at).filter(|_| !victims.is_empty()) {
            let looks = victims.len() * claimant.wishes.len();
            round.looks_left = round.looks_left.saturating_sub(looks);
            let found = claimant.wishes.iter().find_map(|(session, req)| {
                let set = self.victims_for(claimant, *session, *req, node, &victims)?;
                Some((*session, *req, set))
            });
            let Some((session, req, set)) = found else {
                at += 1;
                continue;
            };
            victims.retain(|victim| !set.contains(victim));
            self.exchange(session, req, node, set, round, effects);
            let claimant = &mut claimants[at];
            if self.scheduler.tree[claimant.pool].mode == SchedulingMode::Fair {
                // The others of the pool come first now.
                claimant.sessions.retain(|other| *other != session);
                claimant.sessions.push(session);
            }
            claimant.helped = true;
            self.scheduler.tree[claimant.pool].hunger[kind].passed_over = 0;
            self.find_wishes(claimant, round);
            if claimant.wishes.is_empty() {
                claimants.remove(at);
            }
            // Room goes to the pool that would be served first.
            let tree = &self.scheduler.tree;
            claimants.sort_by_cached_key(|claimant| tree.path_keys(claimant.pool, kind));
            at = 0;
        }
        older
    }

    /// The grants of a node that are old enough and not too old, the youngest first, and whether others are too old.
    /// What was granted in this round is not taken back.
    fn grants_to_take(
        &self,
        node: NodeIdx,
        limit_ms: i64,
        round: &mut Round,
    ) -> (Vec<Victim>, bool) {
        let grants = &self.nodes[node].grants;
        round.looks_left = round.looks_left.saturating_sub(grants.len());
        let mut older = false;
        let mut victims = Vec::new();
        for (_, (session, req)) in grants.iter() {
            let Session { requests, info, pool, .. } = &self.sessions[*session];
            let request = &requests[*req];
            let RequestState::Granted { at, .. } = request.state else { continue };
            let age_ms = round.now.since(at);
            let safe_ms = self.scheduler.tree[*pool].min_runtime_ms.max(1);
            if request.kind != round.kind || info.no_preempt == Some(true) || age_ms < safe_ms {
                continue;
            }
            if age_ms >= limit_ms {
                older = true;
                continue;
            }
            let (id, wish) = (request.id, requests.wish(*req));
            victims.push(Victim { at, id, session: *session, req: *req, pool: *pool, wish });
        }
        victims.sort_unstable_by_key(|victim| {
            (Reverse(victim.at), Reverse(victim.id), victim.session)
        });
        (victims, older)
    }

    /// The victims that make room for a request on the node: all are needed, and all may be taken together.
    fn victims_for(
        &self,
        claimant: &Claimant,
        session: SessionIdx,
        req: ReqIdx,
        node: NodeIdx,
        victims: &[Victim],
    ) -> Option<Vec<Victim>> {
        let (pool, tree, entry) = (claimant.pool, &self.scheduler.tree, &self.nodes[node]);
        let requests = &self.sessions[session].requests;
        let (request, wish) = (&requests[req], requests.wish(req));
        let kind = request.kind;
        if !could_serve(entry, kind, &wish, &request.excluded)
            || entry.reserved && !self.is_kept_for(node, session, req)
        {
            return None;
        }
        let fits = |set: &[Victim]| {
            let (slots, lost) = sum(set);
            let used = entry.used[kind].saturating_sub(slots);
            let spare = entry.capacity.minus(entry.held.minus(lost));
            entry.slots[kind].saturating_sub(used) >= wish.need && wish.demand.fits(&spare)
        };
        // Those that may not even be taken alone leave their places among the first to others.
        let give = |victim: &&Victim| {
            victim.pool != pool
                && tree.gives(victim.pool, claimant.fence)
                && self.may_take(pool, kind, wish.demand, &[**victim])
        };
        let giving: Vec<Victim> = victims.iter().filter(give).take(VICTIMS).copied().collect();
        if !fits(&giving) {
            return None;
        }
        let enough = |set: &[Victim]| {
            fits(set)
                && self.leaves_reserves(pool, kind, &wish, set)
                && self.stays_within(session, kind, &wish, set)
        };
        let mut set: Vec<Victim> = Vec::new();
        for victim in giving {
            if enough(&set) {
                break;
            }
            set.push(victim);
            if !self.may_take(pool, kind, wish.demand, &set) {
                set.pop();
            }
        }
        if set.is_empty() || !enough(&set) {
            return None;
        }
        for at in (0..set.len()).rev() {
            let victim = set.remove(at);
            if !enough(&set) {
                set.insert(at, victim);
            }
        }
        self.may_take(pool, kind, wish.demand, &set).then_some(set)
    }

    /// Whether all that queues do not lend stays free if the request is granted in the place of these.
    fn leaves_reserves(
        &self,
        pool: PoolIdx,
        kind: ResourceType,
        wish: &Wish,
        set: &[Victim],
    ) -> bool {
        let tree = &self.scheduler.tree;
        let (slots, _) = sum(set);
        let slots = tree.most_at_once(pool, kind, self.nodes.usable_room(kind) + u64::from(slots));
        // What is taken from a queue that does not lend its minimum stays free for it.
        let lends = |victim: &&Victim| tree.path(victim.pool).all(|queue| tree.rules(queue).lend);
        let (_, lost) = sum(&set.iter().filter(lends).copied().collect::<Vec<_>>());
        let amounts = tree.most_of_free(pool, self.nodes.usable_spare().plus(lost));
        Allowance { slots, amounts }.allows(wish)
    }

    /// Whether the session's user and all queues around it may be given the request in the place of these.
    fn stays_within(
        &self,
        session: SessionIdx,
        kind: ResourceType,
        wish: &Wish,
        set: &[Victim],
    ) -> bool {
        let (tree, entry) = (&self.scheduler.tree, &self.sessions[session]);
        let (_, usable) = tree.usable_by(entry, kind, &mut BTreeMap::new());
        usable > 0
            && tree.path(entry.pool).all(|queue| {
                let inside =
                    set.iter().filter(|victim| tree.path(victim.pool).any(|it| it == queue));
                let inside: Vec<Victim> = inside.copied().collect();
                let (_, lost) = sum(&inside);
                let left = tree.quota(queue).maximum.minus(tree.held(queue).minus(lost));
                tree.state(queue, kind).is_open_after(inside.len() as i64)
                    && wish.demand.fits(&left)
            })
    }

    /// Whether a node is kept for this request.
    fn is_kept_for(&self, node: NodeIdx, session: SessionIdx, req: ReqIdx) -> bool {
        let Session { requests, handle, pool, .. } = &self.sessions[session];
        self.scheduler.reservations.get(pool).is_some_and(|reservation| {
            (reservation.node, reservation.id) == (node, requests[req].id)
                && reservation.handle == *handle
        })
    }

    /// Whether all these grants may be taken back for a request of the pool: no queue is left with less than its
    /// minimum, and where the paths part, the queue that gives has no smaller share afterwards than the one that
    /// takes, unless the latter is below its minimum or has a higher priority.
    fn may_take(&self, pool: PoolIdx, kind: ResourceType, demand: Amounts, set: &[Victim]) -> bool {
        let tree = &self.scheduler.tree;
        let lost_in = |queue: QueueIdx| {
            let inside = |victim: &&Victim| tree.path(victim.pool).any(|around| around == queue);
            set.iter().filter(inside).fold((0, Amounts::ZERO), |(count, lost), victim| {
                (count + 1, lost.plus(victim.wish.demand))
            })
        };
        let keeps_minimum = |queue: &QueueIdx| {
            let state = tree.state(*queue, kind);
            let (count, lost) = lost_in(*queue);
            (state.minimum <= 0 || state.tally.granted - count >= state.minimum)
                && !tree.quota(*queue).is_below(tree.held(*queue).minus(lost))
        };
        let takers: Vec<QueueIdx> = tree.path(pool).collect();
        let givers: BTreeSet<PoolIdx> = set.iter().map(|victim| victim.pool).collect();
        givers.into_iter().all(|giver| {
            let path: Vec<QueueIdx> =
                tree.path(giver).take_while(|queue| !takers.contains(queue)).collect();
            let shared = tree.path(giver).nth(path.len());
            let taker = takers.iter().take_while(|queue| Some(**queue) != shared).last();
            let (Some(taker), Some(giver)) = (taker, path.last()) else { return false };
            if !path.iter().all(keeps_minimum) {
                return false;
            }
            let ranks = [*taker, *giver].map(|queue| tree.claim(queue, kind).priority);
            let is_needy = tree.is_needy(*taker, kind);
            if is_needy || ranks[0] != ranks[1] {
                return is_needy || ranks[0] > ranks[1];
            }
            let left = |queue: QueueIdx| tree.state(queue, kind).held.minus(lost_in(queue).1);
            let taken = self.portion(*taker, kind, left(*taker).plus(demand));
            taken <= self.portion(*giver, kind, left(*giver))
        })
    }

    /// Takes the victims back and grants the request in their place.
    fn exchange(
        &mut self,
        session: SessionIdx,
        req: ReqIdx,
        node: NodeIdx,
        set: Vec<Victim>,
        round: &mut Round,
        effects: &mut Vec<Effect>,
    ) {
        let Round { kind, now, .. } = *round;
        let victims = set.len() as u64;
        let mut of_sessions: BTreeMap<SessionIdx, Vec<ReqIdx>> = BTreeMap::new();
        for victim in set {
            of_sessions.entry(victim.session).or_default().push(victim.req);
        }
        for (victim, lost) in of_sessions {
            self.revoke(victim, kind, &lost, now, effects);
        }
        let Session { requests, handle, pool, .. } = &self.sessions[session];
        let cause = match self.scheduler.tree.is_needy(QueueIdx::Pool(*pool), kind) {
            true => Starvation::Minimum,
            false => Starvation::Share,
        };
        let (handle, id, pool) = (handle.clone(), requests[req].id, *pool);
        let name = self.nodes[node].name.clone();
        effects.push(Effect::Record(Record::RoomMade {
            node: name,
            handle,
            kind,
            id,
            cause,
            victims,
        }));
        if self.nodes[node].reserved {
            self.end_reservation(pool, true, effects);
        }
        if self.sessions[session].demand(kind).batch.is_empty() {
            round.given.push(session);
        }
        round.has_room.clear();
        self.commit(session, kind, req, node, now);
    }
}

impl Tree {
    /// The places of a pool and of the groups around it among their siblings, from outside inwards.
    fn path_keys(&self, pool: PoolIdx, kind: ResourceType) -> Vec<QueueKey> {
        let mut keys: Vec<QueueKey> = self.path(pool).map(|queue| self.key(queue, kind)).collect();
        keys.reverse();
        keys
    }
}

/// The slots of grants, and the resources.
fn sum(set: &[Victim]) -> (u32, Amounts) {
    set.iter().fold((0, Amounts::ZERO), |(slots, lost), victim| {
        (slots + victim.wish.need, lost.plus(victim.wish.demand))
    })
}
