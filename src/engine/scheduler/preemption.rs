//! Preemption: revokes grants of pools and sessions above their share, for starving pools.
//!
//! Spec: cluster-manager/04 §9. The seam *choice of victims* is [`Victims`]: which queue and session
//! gives next, and [`Engine::revoke_youngest`], which of its grants. Where resources are counted, `room` decides both.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::crowd::Promised;
use super::order::{QueueIdx, QueueKey};
use super::reasons::Preemption;
use super::room::Rest;
use super::shares::{self, Claim};
use super::tree::{Pool, Tree};
use super::{Scheduler, SessionKey};
use crate::Engine;
use crate::index::{GroupIdx, PoolIdx, ReqIdx, SessionIdx};
use crate::input::{Effect, Notification, Record, Starvation};
use crate::requests::{Request, RequestState};
use crate::settings::SchedulingMode;
use crate::types::{Grant, Millis, ResourceType};
use corona_model::form::{FIFTH, Later, SIXTH};
use corona_model::queues::{PreemptionRule, SiblingOrder};

/// Shares are looked at when more than this has passed since the last time.
const PERIOD_MS: i64 = 1000;

/// When shares of a type were last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Clock {
    last_round: Option<Millis>,
    /// Until then no request waited, so every pool had all that it requested.
    nobody_waited_until: Option<Millis>,
    /// Where the next round goes on, after one that has looked at enough.
    pub(super) rest: Later<Option<Rest>, FIFTH>,
    /// When the first of the rounds began that look at all nodes together.
    pub(super) sweep_began: Later<Option<Millis>, SIXTH>,
    /// The pool with which the next round begins, after one that has searched for requests long enough.
    pub(super) search_from: Later<Option<PoolIdx>, SIXTH>,
}

/// Which of its due a pool has, or lacks.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueMet {
    pub(super) share: bool,
    pub(super) minimum: bool,
}

/// Since when a pool lacks slots that it is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lack {
    /// Slots of its minimum; absent while it has them.
    pub minimum_since: Option<Millis>,
    /// Since when it holds less than the required part of its share; absent while it holds it.
    pub share_since: Option<Millis>,
}

/// The slots that each queue should have.
#[derive(Debug, Default)]
pub(super) struct Shares {
    groups: Vec<(GroupIdx, f64)>,
    pub(super) pools: Vec<(PoolIdx, f64)>,
}

/// Slots that starving pools want, by the group around them from which alone they are taken.
type Wanted = BTreeMap<Option<GroupIdx>, i64>;

impl Clock {
    /// Forgets where the next round goes on.
    pub(super) fn forget_sweep(&mut self) {
        (self.rest.0, self.sweep_began.0, self.search_from.0) = (None, None, None);
    }

    pub(super) fn nobody_waited_until(&mut self, now: Millis) {
        self.nobody_waited_until = Some(now);
    }
}

impl Scheduler {
    /// When shares have to be looked at next; never while nothing waits.
    pub(super) fn preemption_due(&self, kind: ResourceType) -> Option<Millis> {
        if kind == ResourceType::JobTracker || self.pending[kind] == 0 {
            return None;
        }
        let last = self.preemption[kind].last_round;
        Some(last.map_or(Millis(i64::MIN), |last| last.plus_ms(PERIOD_MS).plus_ms(1)))
    }
}

impl Engine {
    /// After a pass that granted all it could: takes back the slots that starving pools lack.
    pub(super) fn preempt_if_due(
        &mut self,
        kind: ResourceType,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        if self.scheduler.preemption_due(kind).is_none_or(|due| due > now) {
            return;
        }
        self.scheduler.preemption[kind].last_round = Some(now);
        if self.scheduler.tree.whole.is_some() {
            return self.make_room(kind, now, effects);
        }
        self.distribute_shares(kind);
        let wanted = self.slots_wanted_by_starving_pools(kind, now, effects);
        for (fence, wanted) in wanted.into_iter().filter(|(_, wanted)| *wanted > 0) {
            effects.push(Effect::Record(Record::PreemptionFound { kind, count: wanted as u64 }));
            self.preempt(kind, fence, wanted, now, effects);
        }
    }

    /// Computes the share of every group and pool in the slots allocated now.
    fn distribute_shares(&mut self, kind: ResourceType) {
        let Shares { groups, pools } = self.shares(kind);
        let tree = &mut self.scheduler.tree;
        for (group, share) in groups {
            tree.group_mut(group).kinds[kind].share = share;
        }
        for (pool, share) in pools {
            tree[pool].kinds[kind].share = share;
        }
    }

    /// The present shares of all groups and pools.
    pub(super) fn shares(&self, kind: ResourceType) -> Shares {
        let tree = &self.scheduler.tree;
        let wishes = self.wishes(kind);
        let outermost = tree.inside(None);
        let claims: Vec<Claim> =
            outermost.iter().map(|queue| wishes.claim(tree, *queue, kind)).collect();
        let shared = shares::fair(self.nodes.allocated(kind) as f64, &claims);
        let mut shares = Shares::default();
        for (queue, share) in outermost.into_iter().zip(shared) {
            shares.note(tree, &wishes, kind, queue, share);
        }
        shares
    }

    /// The requests of each queue that its limits of users and sessions let count.
    fn wishes(&self, kind: ResourceType) -> Wishes {
        let tree = &self.scheduler.tree;
        Wishes {
            of_tree: !self.settings.pools.queues.is_empty(),
            requested: tree.has_crowds.then(|| tree.usable_requests(kind, &self.sessions)),
        }
    }

    fn slots_wanted_by_starving_pools(
        &mut self,
        kind: ResourceType,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) -> Wanted {
        let mut wanted = Wanted::new();
        let mut promised = Promised::new();
        for pool in self.scheduler.tree.pool_numbers() {
            let Some(cause) = self.is_starving(pool, kind, now) else { continue };
            let tree = &self.scheduler.tree;
            let entry = &tree[pool];
            let state = &entry.kinds[kind];
            let lacking = state.share - state.tally.granted as f64;
            // The share of an idle pool is its minimum while its group requests less than its
            // minima. Such a pool has no pending requests, so it is not reported.
            if state.tally.pending > 0 {
                effects.push(Effect::Record(Record::PoolStarving {
                    pool: entry.name.clone(),
                    kind,
                    cause,
                    share: state.share,
                    minimum: state.minimum,
                    granted: state.tally.granted,
                }));
            }
            let (users, usable) = match entry.crowded {
                false => (Vec::new(), state.tally.pending),
                true => {
                    let users = tree.usable_pending(pool, kind, &self.sessions, &promised);
                    let usable = users.iter().map(|(_, pending)| pending).sum();
                    (users, usable)
                }
            };
            let wanted = wanted.entry(tree.fence(pool)).or_default();
            let before = *wanted;
            // Truncated toward zero at every addition, as in the original.
            *wanted = (before as f64 + lacking.min(usable as f64)) as i64;
            tree.promise(pool, &users, (*wanted - before).max(0), &mut promised);
        }
        wanted
    }

    /// Spec: cluster-manager/04 §9.2. The clocks of a pool start when it is first looked at.
    fn is_starving(
        &mut self,
        pool: PoolIdx,
        kind: ResourceType,
        now: Millis,
    ) -> Option<Starvation> {
        let state = &self.scheduler.tree[pool].kinds[kind];
        let (minimum, share) = (state.minimum as f64, state.share);
        let granted = state.tally.granted as f64;
        let enough = (share * self.settings.scheduling.share_starving_ratio).ceil();
        let has = DueMet { share: granted >= enough, minimum: granted >= share.min(minimum) };
        let starves = self.starves(pool, kind, has, now);
        let share = starves.share.then_some(Starvation::Share);
        let cause = if starves.minimum { Some(Starvation::Minimum) } else { share };
        if cause.is_some() {
            self.scheduler.tree[pool].hunger[kind].last_preempt = Some(now);
        }
        cause
    }

    /// Notes which of its due a pool has. Gives which it has not had for long enough, none if it has just had a turn.
    pub(super) fn starves(
        &mut self,
        pool: PoolIdx,
        kind: ResourceType,
        has: DueMet,
        now: Millis,
    ) -> DueMet {
        let scheduling = &self.settings.scheduling;
        let idle = self.scheduler.preemption[kind].nobody_waited_until;
        let state = &mut self.scheduler.tree[pool].hunger[kind];
        if has.share {
            state.last_above_share = Some(now);
        }
        if has.minimum {
            state.last_above_minimum = Some(now);
        }
        let above_share = state.last_above_share.max(idle).unwrap_or(now);
        let above_minimum = state.last_above_minimum.max(idle).unwrap_or(now);
        state.last_above_share = Some(above_share);
        state.last_above_minimum = Some(above_minimum);
        let resting = state
            .last_preempt
            .is_some_and(|last| now.since(last) < scheduling.min_preempt_period_ms);
        let over = |since: Millis, patience_ms: i64| !resting && now.since(since) >= patience_ms;
        DueMet {
            minimum: over(above_minimum, scheduling.starving_time_for_minimum_ms),
            share: over(above_share, scheduling.starving_time_for_share_ms),
        }
    }

    /// Whether a pool that lacks its due had lacked it for long enough at a time before.
    pub(super) fn starved_at(&self, pool: PoolIdx, kind: ResourceType, then: Millis) -> bool {
        let scheduling = &self.settings.scheduling;
        let hunger = &self.scheduler.tree[pool].hunger[kind];
        let over = |last: Option<Millis>, patience_ms: i64| {
            last.is_some_and(|last| then.since(last) >= patience_ms)
        };
        over(hunger.last_above_minimum, scheduling.starving_time_for_minimum_ms)
            || over(hunger.last_above_share, scheduling.starving_time_for_share_ms)
    }

    /// When slots are taken back for a pool of that share, as far as is known at `now`. `None` if
    /// it lacks nothing, or less than a whole slot. `shares` are the present ones of all pools.
    pub(super) fn preemption_for(
        &self,
        pool: PoolIdx,
        kind: ResourceType,
        share: f64,
        shares: &Shares,
        now: Millis,
    ) -> Option<Preemption> {
        self.scheduler.preemption_due(kind)?;
        if self.scheduler.tree.whole.is_some() {
            return self.room_due(pool, kind, now);
        }
        let scheduling = &self.settings.scheduling;
        let entry = &self.scheduler.tree[pool];
        let state = &entry.hunger[kind];
        let granted = entry.kinds[kind].tally.granted as f64;
        let (_, pending) = self.scheduler.tree.usable(pool, kind, &self.sessions);
        if (share - granted).min(pending as f64) < 1.0 {
            return None;
        }
        let idle = self.scheduler.preemption[kind].nobody_waited_until;
        let since =
            |lacks: bool, last: Option<Millis>| lacks.then(|| last.max(idle).unwrap_or(now));
        let minimum = share.min(entry.kinds[kind].minimum as f64);
        let enough = (share * scheduling.share_starving_ratio).ceil();
        let lack = Lack {
            minimum_since: since(granted < minimum, state.last_above_minimum),
            share_since: since(granted < enough, state.last_above_share),
        };
        let (due, cause) = self.turn_of(pool, kind, lack)?;
        let fence = self.scheduler.tree.fence(pool);
        let possible = self.may_preempt_anything(kind, fence, shares, now);
        Some(Preemption { cause, due, possible })
    }

    /// When a pool that lacks its due may preempt, and for what.
    pub(super) fn turn_of(
        &self,
        pool: PoolIdx,
        kind: ResourceType,
        lack: Lack,
    ) -> Option<(Millis, Starvation)> {
        let scheduling = &self.settings.scheduling;
        let minimum = lack.minimum_since.map(|since| {
            (since.plus_ms(scheduling.starving_time_for_minimum_ms), Starvation::Minimum)
        });
        let share = lack
            .share_since
            .map(|since| (since.plus_ms(scheduling.starving_time_for_share_ms), Starvation::Share));
        let (due, cause) = minimum.into_iter().chain(share).min_by_key(|(due, _)| *due)?;
        let last = self.scheduler.tree[pool].hunger[kind].last_preempt;
        let rested = last.map(|last| last.plus_ms(scheduling.min_preempt_period_ms));
        Some((rested.map_or(due, |rested| due.max(rested)), cause))
    }

    /// Whether some session has a grant that a preemption may take back. Returns true if the search
    /// would take long.
    fn may_preempt_anything(
        &self,
        kind: ResourceType,
        fence: Option<GroupIdx>,
        shares: &Shares,
        now: Millis,
    ) -> bool {
        const REQUESTS_LOOKED_AT: usize = 100_000;
        let scheduling = &self.settings.scheduling;
        let doublings = scheduling.preemption_rounds.saturating_sub(1).min(62);
        let limit_ms = scheduling.preempted_task_max_running_time_ms.saturating_mul(1 << doublings);
        let mut left = REQUESTS_LOOKED_AT;
        for (pool, share) in &shares.pools {
            if !self.scheduler.tree.gives(*pool, fence) {
                continue;
            }
            let safe_ms = self.scheduler.tree[*pool].min_runtime_ms;
            let is_young = |request: &Request| match request.state {
                RequestState::Granted { at, .. } => {
                    request.kind == kind && (safe_ms..limit_ms).contains(&now.since(at))
                }
                _ => false,
            };
            for (session, share) in session_shares(self, kind, *pool, *share) {
                let entry = &self.sessions[session];
                if entry.demand(kind).tally.granted as f64 - share < 1.0 {
                    continue;
                }
                if entry.requests.iter().take(left).any(|(_, request)| is_young(request)) {
                    return true;
                }
                left = left.saturating_sub(entry.requests.len());
                if left == 0 {
                    return true;
                }
            }
        }
        false
    }

    /// Since when the pool has lacked its due, as [`Self::is_starving`] counts it.
    pub(crate) fn lack(&self, pool: &Pool, kind: ResourceType) -> Lack {
        if self.scheduler.preemption_due(kind).is_none() {
            return Lack::default();
        }
        let (state, hunger) = (&pool.kinds[kind], &pool.hunger[kind]);
        let Clock { last_round, nobody_waited_until: idle, .. } = self.scheduler.preemption[kind];
        if self.scheduler.tree.whole.is_some() {
            // The last round has noted what each pool had then.
            let lacks =
                |last: Option<Millis>| last.max(idle).filter(|last| Some(*last) < last_round);
            return Lack {
                minimum_since: lacks(hunger.last_above_minimum),
                share_since: lacks(hunger.last_above_share),
            };
        }
        let granted = state.tally.granted as f64;
        let lacks = |last: Option<Millis>, enough: f64| last.max(idle).filter(|_| granted < enough);
        let minimum = state.minimum as f64;
        let ratio = self.settings.scheduling.share_starving_ratio;
        Lack {
            minimum_since: lacks(hunger.last_above_minimum, state.share.min(minimum)),
            share_since: lacks(hunger.last_above_share, (state.share * ratio).ceil()),
        }
    }

    /// Takes `wanted` slots back, in rounds that accept ever older grants.
    fn preempt(
        &mut self,
        kind: ResourceType,
        fence: Option<GroupIdx>,
        wanted: i64,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        let mut missing = wanted;
        let mut limit_ms = self.settings.scheduling.preempted_task_max_running_time_ms;
        let rounds = self.settings.scheduling.preemption_rounds.max(1);
        for _ in 0..rounds {
            missing -= self.preempt_round(kind, fence, missing, limit_ms, now, effects);
            let Some(longer) = limit_ms.checked_mul(2) else { break };
            if missing <= 0 {
                return;
            }
            limit_ms = longer;
        }
        effects.push(Effect::Record(Record::PreemptionFellShort {
            kind,
            missing: missing as u64,
            rounds,
            max_running_time_ms: limit_ms,
        }));
    }

    /// One round: the most over-served group, its most over-served queue, the last session of a pool, and so
    /// on until `wanted` slots are revoked or none is above its share. Returns the number of
    /// revoked slots.
    fn preempt_round(
        &mut self,
        kind: ResourceType,
        fence: Option<GroupIdx>,
        wanted: i64,
        limit_ms: i64,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) -> i64 {
        let mut victims = Victims::new(&self.scheduler.tree, fence);
        let mut taken = 0;
        while taken < wanted {
            let Some((pool, session, share)) = victims.next(self, kind) else { break };
            let granted = self.sessions[session].demand(kind).tally.granted as f64;
            let over = (granted - share) as i64;
            let count = over.min(wanted - taken).min(self.most_from_pool(pool, kind));
            if count > 0 {
                let ages_ms = self.scheduler.tree[pool].min_runtime_ms..limit_ms;
                taken += self.revoke_youngest(session, kind, count, ages_ms, now, effects);
            }
            victims.put_back(self, kind, pool);
        }
        taken
    }

    /// The most slots that may be taken from a pool. With two levels the original's rule holds, which looks
    /// only at the shares of sessions: a session behind others in its pool gives all that it has, though the
    /// pool may be at its share.
    fn most_from_pool(&self, pool: PoolIdx, kind: ResourceType) -> i64 {
        let state = &self.scheduler.tree[pool].kinds[kind];
        match self.settings.pools.queues.is_empty() {
            true => i64::MAX,
            false => (state.tally.granted as f64 - state.share) as i64,
        }
    }

    /// Takes back up to `count` of a session's grants of these ages, the youngest first.
    fn revoke_youngest(
        &mut self,
        session: SessionIdx,
        kind: ResourceType,
        count: i64,
        ages_ms: Range<i64>,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) -> i64 {
        let requests = self.sessions[session].requests.iter();
        let mut candidates: Vec<(Reverse<Millis>, Reverse<i32>, ReqIdx)> = requests
            .filter(|(_, request)| request.kind == kind)
            .filter_map(|(req, request)| match request.state {
                RequestState::Granted { at, .. } if ages_ms.contains(&now.since(at)) => {
                    Some((Reverse(at), Reverse(request.id), req))
                }
                _ => None,
            })
            .collect();
        candidates.sort_unstable();
        candidates.truncate(usize::try_from(count).unwrap_or(0));
        if candidates.is_empty() {
            return 0;
        }
        let lost: Vec<ReqIdx> = candidates.into_iter().map(|(.., req)| req).collect();
        self.revoke(session, kind, &lost, now, effects)
    }

    /// Takes grants of a session back. Returns how many.
    pub(super) fn revoke(
        &mut self,
        session: SessionIdx,
        kind: ResourceType,
        lost: &[ReqIdx],
        now: Millis,
        effects: &mut Vec<Effect>,
    ) -> i64 {
        let grants: Vec<Grant> =
            lost.iter().filter_map(|req| self.lose_grant(session, *req, now)).collect();
        let entry = &self.sessions[session];
        let (handle, taken) = (entry.handle.clone(), grants.len());
        effects.push(Effect::Record(Record::Revoked {
            handle: handle.clone(),
            kind,
            count: taken as u64,
        }));
        effects.push(Effect::Notify {
            handle,
            to: entry.info.address.clone(),
            notification: Notification::Revoked(grants),
        });
        taken as i64
    }
}

/// The requests of queues that count when slots are shared.
#[derive(Debug)]
struct Wishes {
    /// Whether minima count only as far as they are asked for. With two levels the original's rule holds,
    /// where a pool is due its minimum though it requests less.
    of_tree: bool,
    /// Absent if all that is requested counts.
    requested: Option<BTreeMap<QueueIdx, i64>>,
}

impl Wishes {
    /// A queue's claim among its siblings.
    fn claim(&self, tree: &Tree, queue: QueueIdx, kind: ResourceType) -> Claim {
        let claim = tree.claim_in_slots(queue, kind);
        let claim = match &self.requested {
            None => claim,
            Some(usable) => Claim { requested: usable.get(&queue).copied().unwrap_or(0), ..claim },
        };
        if self.of_tree { claim.within_demand() } else { claim }
    }
}

impl Shares {
    /// Notes a queue's share, and shares that of a group among the queues in it.
    fn note(
        &mut self,
        tree: &Tree,
        wishes: &Wishes,
        kind: ResourceType,
        queue: QueueIdx,
        share: f64,
    ) {
        let group = match queue {
            QueueIdx::Pool(pool) => return self.pools.push((pool, share)),
            QueueIdx::Group(group) => group,
        };
        self.groups.push((group, share));
        let queues = tree.inside(Some(group));
        let claims: Vec<Claim> =
            queues.iter().map(|queue| wishes.claim(tree, *queue, kind)).collect();
        for (queue, share) in queues.into_iter().zip(shares::by_priority(share, &claims)) {
            self.note(tree, wishes, kind, queue, share);
        }
    }
}

impl Tree {
    /// A queue's claim in slots among its siblings, in their order.
    fn claim_in_slots(&self, queue: QueueIdx, kind: ResourceType) -> Claim {
        let claim = match queue {
            QueueIdx::Group(group) => self.group(group).claim(kind),
            QueueIdx::Pool(pool) => self[pool].claim(kind),
        };
        claim.ordered(self.order_around(queue))
    }

    /// The claim by which a queue comes before or after its siblings: guarantees in resources count as well.
    pub(super) fn claim(&self, queue: QueueIdx, kind: ResourceType) -> Claim {
        let claim = self.claim_in_slots(queue, kind);
        if self.has_quotas && self.order_around(queue) == SiblingOrder::Capacity {
            return self.quota(queue).guaranteed(claim, self.whole.unwrap_or_default());
        }
        claim
    }

    /// The order of a queue and its siblings.
    fn order_around(&self, queue: QueueIdx) -> SiblingOrder {
        self.order_in(match queue {
            QueueIdx::Group(group) => self.group(group).parent,
            QueueIdx::Pool(pool) => Some(self[pool].group),
        })
    }

    /// Whether neither a group nor one around it forbids to take from it.
    pub(super) fn allows_preemption(&self, group: GroupIdx) -> bool {
        let disabled =
            |group: GroupIdx| self.group(group).rules.preemption == PreemptionRule::Disabled;
        !disabled(group)
            && self.group(group).parent.is_none_or(|parent| self.allows_preemption(parent))
    }

    /// Whether grants of a pool may be taken back for one behind this fence.
    pub(super) fn gives(&self, pool: PoolIdx, fence: Option<GroupIdx>) -> bool {
        self[pool].is_preemptable()
            && self.allows_preemption(self[pool].group)
            && fence.is_none_or(|fence| self.around(pool).any(|group| group == fence))
    }
}

/// Queues and sessions in the order in which they are taken from: the reverse of the order in which
/// they are given to. Each session is looked at once.
struct Victims {
    /// The group inside which they are, if not anywhere.
    fence: Option<GroupIdx>,
    /// The queues of each group; without a group, the outermost ones.
    queues: BTreeMap<Option<GroupIdx>, BTreeSet<Reverse<QueueKey>>>,
    sessions: BTreeMap<PoolIdx, Vec<(SessionIdx, f64)>>,
}

impl Victims {
    /// Nobody gives behind a fence in a group where preemption is disabled.
    fn new(tree: &Tree, fence: Option<GroupIdx>) -> Self {
        let mut queues = BTreeMap::new();
        if fence.is_some_and(|fence| !tree.allows_preemption(fence)) {
            queues.insert(fence, BTreeSet::new());
        }
        Victims { fence, queues, sessions: BTreeMap::new() }
    }

    /// The session to take from next, its pool, and its share.
    fn next(&mut self, engine: &Engine, kind: ResourceType) -> Option<(PoolIdx, SessionIdx, f64)> {
        self.next_in(engine, kind, self.fence)
    }

    fn next_in(
        &mut self,
        engine: &Engine,
        kind: ResourceType,
        group: Option<GroupIdx>,
    ) -> Option<(PoolIdx, SessionIdx, f64)> {
        while let Some(Reverse(key)) = self.queues_of(engine, kind, group).pop_first() {
            let found = match key.index {
                QueueIdx::Group(group) => self.next_in(engine, kind, Some(group)),
                QueueIdx::Pool(pool) => {
                    let session = self.sessions_of(engine, kind, pool).pop();
                    session.map(|(session, share)| (pool, session, share))
                }
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Puts a pool and the groups around it back with their present grants.
    fn put_back(&mut self, engine: &Engine, kind: ResourceType, pool: PoolIdx) {
        let tree = &engine.scheduler.tree;
        let mut queue = QueueIdx::Pool(pool);
        for group in tree.around(pool).map(Some).chain([None]) {
            self.queues_of(engine, kind, group).insert(Reverse(tree.key(queue, kind)));
            match group {
                Some(group) if self.fence != Some(group) => queue = QueueIdx::Group(group),
                _ => return,
            }
        }
    }

    fn queues_of(
        &mut self,
        engine: &Engine,
        kind: ResourceType,
        group: Option<GroupIdx>,
    ) -> &mut BTreeSet<Reverse<QueueKey>> {
        self.queues.entry(group).or_insert_with(|| {
            let tree = &engine.scheduler.tree;
            let giving = tree.inside(group).into_iter().filter(|queue| match queue {
                QueueIdx::Pool(pool) => tree[*pool].is_preemptable(),
                QueueIdx::Group(group) => {
                    tree.group(*group).rules.preemption != PreemptionRule::Disabled
                }
            });
            giving.map(|queue| Reverse(tree.key(queue, kind))).collect()
        })
    }

    /// The pool's sessions with their shares; the one to take from next is the last.
    fn sessions_of(
        &mut self,
        engine: &Engine,
        kind: ResourceType,
        pool: PoolIdx,
    ) -> &mut Vec<(SessionIdx, f64)> {
        self.sessions.entry(pool).or_insert_with(|| {
            let share = engine.scheduler.tree[pool].kinds[kind].share;
            session_shares(engine, kind, pool, share)
        })
    }
}

/// The sessions of a pool that may be taken from, in scheduling order, with their parts of its
/// share. A session that asked not to be preempted counts when shares are computed but is left out.
fn session_shares(
    engine: &Engine,
    kind: ResourceType,
    pool: PoolIdx,
    share: f64,
) -> Vec<(SessionIdx, f64)> {
    let entry = &engine.scheduler.tree[pool];
    let mut ordered: Vec<(SessionKey, SessionIdx)> = entry
        .sessions
        .iter()
        .map(|session| {
            let standing = engine.sessions[*session].standing(kind, engine.scheduler.tree.whole);
            (SessionKey::new(entry.mode, standing, *session), *session)
        })
        .collect();
    ordered.sort_unstable();
    let tree = &engine.scheduler.tree;
    let mut rooms = BTreeMap::new();
    let claims: Vec<Claim> = ordered
        .iter()
        .map(|(_, session)| tree.usable_by(&engine.sessions[*session], kind, &mut rooms))
        .map(|(granted, waiting)| Claim::of_session(granted + waiting))
        .collect();
    let shares = match entry.mode {
        SchedulingMode::Fair => shares::fair(share, &claims),
        SchedulingMode::Fifo | SchedulingMode::Deadline => shares::in_order(share, &claims),
    };
    let sessions = ordered.into_iter().map(|(_, session)| session).zip(shares);
    sessions
        .filter(|(session, _)| engine.sessions[*session].info.no_preempt != Some(true))
        .collect()
}
