//! Preemption: revokes grants of pools and sessions above their share, for starving pools.
//!
//! Spec: cluster-manager/04 §9.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::order::PoolKey;
use super::reasons::Preemption;
use super::shares::{self, Claim};
use super::tree::{Group, Pool};
use super::{Scheduler, SessionKey};
use crate::Engine;
use crate::index::{GroupIdx, PoolIdx, ReqIdx, SessionIdx};
use crate::input::{Effect, Notification, Record, Starvation};
use crate::requests::{Request, RequestState};
use crate::settings::SchedulingMode;
use crate::types::{Millis, ResourceType};

/// Shares are looked at when more than this has passed since the last time.
const PERIOD_MS: i64 = 1000;

/// When shares of a type were last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Clock {
    last_round: Option<Millis>,
    /// Until then no request waited, so every pool had all that it requested.
    nobody_waited_until: Option<Millis>,
}

/// Since when a pool lacks slots that it is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lack {
    /// Slots of its minimum; absent while it has them.
    pub minimum_since: Option<Millis>,
    /// Since when it holds less than the required part of its share; absent while it holds it.
    pub share_since: Option<Millis>,
}

/// The slots that a group and its pools should have.
pub(super) struct GroupShare {
    group: GroupIdx,
    share: f64,
    pub(super) pools: Vec<(PoolIdx, f64)>,
}

impl Clock {
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
        self.distribute_shares(kind);
        let wanted = self.slots_wanted_by_starving_pools(kind, now, effects);
        if wanted > 0 {
            effects.push(Effect::Record(Record::PreemptionFound { kind, count: wanted as u64 }));
            self.preempt(kind, wanted, now, effects);
        }
    }

    /// Computes the share of every group and pool in the slots allocated now.
    fn distribute_shares(&mut self, kind: ResourceType) {
        for GroupShare { group, share, pools } in self.shares(kind) {
            let tree = &mut self.scheduler.tree;
            tree.group_mut(group).kinds[kind].share = share;
            for (pool, share) in pools {
                tree[pool].kinds[kind].share = share;
            }
        }
    }

    /// The present shares of all groups and pools.
    pub(super) fn shares(&self, kind: ResourceType) -> Vec<GroupShare> {
        let tree = &self.scheduler.tree;
        let claims: Vec<Claim> = tree.groups().map(|(_, entry)| entry.claim(kind)).collect();
        let shares = shares::fair(self.nodes.allocated(kind) as f64, &claims);
        let with_pools = |((group, entry), share): ((GroupIdx, &Group), f64)| {
            let pools = entry.pools.iter();
            let claims: Vec<Claim> = pools.clone().map(|pool| tree[*pool].claim(kind)).collect();
            let shares = shares::by_priority(share, &claims);
            GroupShare { group, share, pools: pools.copied().zip(shares).collect() }
        };
        tree.groups().zip(shares).map(with_pools).collect()
    }

    fn slots_wanted_by_starving_pools(
        &mut self,
        kind: ResourceType,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) -> i64 {
        let mut wanted = 0;
        for pool in self.scheduler.tree.pool_numbers() {
            let Some(cause) = self.is_starving(pool, kind, now) else { continue };
            let entry = &self.scheduler.tree[pool];
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
                    minimum: i64::from(entry.settings.minimum[kind]),
                    granted: state.tally.granted,
                }));
            }
            // Truncated toward zero at every addition, as in the original.
            wanted = (wanted as f64 + lacking.min(state.tally.pending as f64)) as i64;
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
        let scheduling = &self.settings.scheduling;
        let idle = self.scheduler.preemption[kind].nobody_waited_until;
        let entry = &mut self.scheduler.tree[pool];
        let minimum = f64::from(entry.settings.minimum[kind]);
        let state = &mut entry.kinds[kind];
        let granted = state.tally.granted as f64;
        if granted >= (state.share * scheduling.share_starving_ratio).ceil() {
            state.last_above_share = Some(now);
        }
        if granted >= state.share.min(minimum) {
            state.last_above_minimum = Some(now);
        }
        let above_share = state.last_above_share.max(idle).unwrap_or(now);
        let above_minimum = state.last_above_minimum.max(idle).unwrap_or(now);
        state.last_above_share = Some(above_share);
        state.last_above_minimum = Some(above_minimum);
        let resting = state
            .last_preempt
            .is_some_and(|last| now.since(last) < scheduling.min_preempt_period_ms);
        let cause = if resting {
            None
        } else if now.since(above_minimum) >= scheduling.starving_time_for_minimum_ms {
            Some(Starvation::Minimum)
        } else if now.since(above_share) >= scheduling.starving_time_for_share_ms {
            Some(Starvation::Share)
        } else {
            None
        };
        if cause.is_some() {
            state.last_preempt = Some(now);
        }
        cause
    }

    /// When slots are taken back for a pool of that share, as far as is known at `now`. `None` if
    /// it lacks nothing, or less than a whole slot. `shares` are the present ones of all pools.
    pub(super) fn preemption_for(
        &self,
        pool: PoolIdx,
        kind: ResourceType,
        share: f64,
        shares: &[GroupShare],
        now: Millis,
    ) -> Option<Preemption> {
        self.scheduler.preemption_due(kind)?;
        let scheduling = &self.settings.scheduling;
        let entry = &self.scheduler.tree[pool];
        let state = &entry.kinds[kind];
        let granted = state.tally.granted as f64;
        if (share - granted).min(state.tally.pending as f64) < 1.0 {
            return None;
        }
        let idle = self.scheduler.preemption[kind].nobody_waited_until;
        let due = |lacks: bool, last: Option<Millis>, patience_ms: i64| {
            lacks.then(|| last.max(idle).unwrap_or(now).plus_ms(patience_ms))
        };
        let minimum = share.min(f64::from(entry.settings.minimum[kind]));
        let patience_ms = scheduling.starving_time_for_minimum_ms;
        let minimum = due(granted < minimum, state.last_above_minimum, patience_ms);
        let enough = (share * scheduling.share_starving_ratio).ceil();
        let patience_ms = scheduling.starving_time_for_share_ms;
        let fair = due(granted < enough, state.last_above_share, patience_ms);
        let causes = [(minimum, Starvation::Minimum), (fair, Starvation::Share)];
        let (due, cause) = causes
            .into_iter()
            .filter_map(|(due, cause)| Some((due?, cause)))
            .min_by_key(|(due, _)| *due)?;
        let rested = state.last_preempt.map(|last| last.plus_ms(scheduling.min_preempt_period_ms));
        let due = rested.map_or(due, |rested| due.max(rested));
        Some(Preemption { cause, due, possible: self.may_preempt_anything(kind, shares, now) })
    }

    /// Whether some session has a grant that a preemption may take back. Returns true if the search
    /// would take long.
    fn may_preempt_anything(&self, kind: ResourceType, shares: &[GroupShare], now: Millis) -> bool {
        const REQUESTS_LOOKED_AT: usize = 100_000;
        let scheduling = &self.settings.scheduling;
        let doublings = scheduling.preemption_rounds.saturating_sub(1).min(62);
        let limit_ms = scheduling.preempted_task_max_running_time_ms.saturating_mul(1 << doublings);
        let is_young = |request: &Request| match request.state {
            RequestState::Granted { at, .. } => request.kind == kind && now.since(at) < limit_ms,
            _ => false,
        };
        let mut left = REQUESTS_LOOKED_AT;
        for (pool, share) in shares.iter().flat_map(|group| &group.pools) {
            if !self.scheduler.tree[*pool].settings.preemptable {
                continue;
            }
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
        let state = &pool.kinds[kind];
        let granted = state.tally.granted as f64;
        let idle = self.scheduler.preemption[kind].nobody_waited_until;
        let lacks = |last: Option<Millis>, enough: f64| last.max(idle).filter(|_| granted < enough);
        let minimum = f64::from(pool.settings.minimum[kind]);
        let ratio = self.settings.scheduling.share_starving_ratio;
        Lack {
            minimum_since: lacks(state.last_above_minimum, state.share.min(minimum)),
            share_since: lacks(state.last_above_share, (state.share * ratio).ceil()),
        }
    }

    /// Takes `wanted` slots back, in rounds that accept ever older grants.
    fn preempt(&mut self, kind: ResourceType, wanted: i64, now: Millis, effects: &mut Vec<Effect>) {
        let mut missing = wanted;
        let mut limit_ms = self.settings.scheduling.preempted_task_max_running_time_ms;
        let rounds = self.settings.scheduling.preemption_rounds.max(1);
        for _ in 0..rounds {
            missing -= self.preempt_round(kind, missing, limit_ms, now, effects);
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

    /// One round: the most over-served group, its most over-served pool, its last session, and so
    /// on until `wanted` slots are revoked or none is above its share. Returns the number of
    /// revoked slots.
    fn preempt_round(
        &mut self,
        kind: ResourceType,
        wanted: i64,
        limit_ms: i64,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) -> i64 {
        let mut queues = Queues::new(self, kind);
        let mut taken = 0;
        while taken < wanted {
            let Some((pool, session, share)) = queues.next(self, kind) else { break };
            let granted = self.sessions[session].demand(kind).tally.granted as f64;
            let over = (granted - share) as i64;
            let count = over.min(wanted - taken);
            if count > 0 {
                taken += self.revoke_youngest(session, kind, count, limit_ms, now, effects);
            }
            queues.put_back(self, kind, pool);
        }
        taken
    }

    /// Takes back up to `count` of a session's grants that are younger than the limit, the
    /// youngest first.
    fn revoke_youngest(
        &mut self,
        session: SessionIdx,
        kind: ResourceType,
        count: i64,
        limit_ms: i64,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) -> i64 {
        let requests = self.sessions[session].requests.iter();
        let mut candidates: Vec<(Reverse<Millis>, Reverse<i32>, ReqIdx)> = requests
            .filter(|(_, request)| request.kind == kind)
            .filter_map(|(req, request)| match request.state {
                RequestState::Granted { at, .. } if now.since(at) < limit_ms => {
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
        let grants = candidates
            .iter()
            .filter_map(|(.., req)| self.lose_grant(session, *req, now))
            .collect::<Vec<_>>();
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

/// Groups, pools and sessions in the order in which they are taken from: the reverse of the order
/// in which they are given to. Each session is looked at once.
struct Queues {
    groups: BTreeSet<Reverse<PoolKey<GroupIdx>>>,
    pools: Vec<(GroupIdx, BTreeSet<Reverse<PoolKey<PoolIdx>>>)>,
    sessions: Vec<(PoolIdx, Vec<(SessionIdx, f64)>)>,
}

impl Queues {
    fn new(engine: &Engine, kind: ResourceType) -> Self {
        let tree = &engine.scheduler.tree;
        let groups = tree.groups().map(|(group, entry)| Reverse(entry.key(kind, group)));
        Queues { groups: groups.collect(), pools: Vec::new(), sessions: Vec::new() }
    }

    /// The session to take from next, its pool, and its share.
    fn next(&mut self, engine: &Engine, kind: ResourceType) -> Option<(PoolIdx, SessionIdx, f64)> {
        while let Some(Reverse(key)) = self.groups.pop_first() {
            let group = key.index;
            while let Some(Reverse(key)) = self.pools_of(engine, kind, group).pop_first() {
                let pool = key.index;
                if let Some((session, share)) = self.sessions_of(engine, kind, pool).pop() {
                    return Some((pool, session, share));
                }
            }
        }
        None
    }

    /// Puts a pool and its group back with their present grants.
    fn put_back(&mut self, engine: &Engine, kind: ResourceType, pool: PoolIdx) {
        let group = engine.scheduler.tree[pool].group;
        self.pools_of(engine, kind, group)
            .insert(Reverse(engine.scheduler.tree[pool].key(kind, pool)));
        self.groups.insert(Reverse(engine.scheduler.tree.group(group).key(kind, group)));
    }

    fn pools_of(
        &mut self,
        engine: &Engine,
        kind: ResourceType,
        group: GroupIdx,
    ) -> &mut BTreeSet<Reverse<PoolKey<PoolIdx>>> {
        let position = self.pools.iter().position(|(of, _)| *of == group).unwrap_or_else(|| {
            let pools = engine.scheduler.tree.group(group).pools.iter();
            let keys = pools
                .filter(|pool| engine.scheduler.tree[**pool].settings.preemptable)
                .map(|pool| Reverse(engine.scheduler.tree[*pool].key(kind, *pool)));
            self.pools.push((group, keys.collect()));
            self.pools.len() - 1
        });
        &mut self.pools[position].1
    }

    /// The pool's sessions with their shares; the one to take from next is the last.
    fn sessions_of(
        &mut self,
        engine: &Engine,
        kind: ResourceType,
        pool: PoolIdx,
    ) -> &mut Vec<(SessionIdx, f64)> {
        let position = self.sessions.iter().position(|(of, _)| *of == pool).unwrap_or_else(|| {
            let share = engine.scheduler.tree[pool].kinds[kind].share;
            self.sessions.push((pool, session_shares(engine, kind, pool, share)));
            self.sessions.len() - 1
        });
        &mut self.sessions[position].1
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
            let standing = engine.sessions[*session].standing(kind);
            (SessionKey::new(entry.mode, standing, *session), *session)
        })
        .collect();
    ordered.sort_unstable();
    let claims: Vec<Claim> = ordered
        .iter()
        .map(|(_, session)| engine.sessions[*session].demand(kind).tally.requested)
        .map(Claim::of_session)
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
