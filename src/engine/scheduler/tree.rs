//! The tree of groups, pools and sessions, kept in scheduling order by each change.
//!
//! Spec: cluster-manager/04 §2 and §5, for two levels; [queues.md](../../../docs/operate/queues.md) for more.
//! Groups hold groups and pools, pools hold sessions. Each group keeps its queues in order, and the
//! tree the outermost groups, so that a grant changes the places on one path only.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use super::crowd::Crowd;
use super::line::Line;
use super::order::{QueueIdx, QueueKey, QueueStanding, SessionKey, SessionStanding};
use super::queue::Queue;
use super::quota::QuotaState;
use super::shares::Claim;
use crate::arena::Arena;
use crate::check::{ImageError, check};
use crate::index::{GroupIdx, PoolIdx, SessionIdx};
use crate::lookup::{HashSeed, Lookup};
use crate::sessions::{Tally, weighed};
use crate::settings::{GroupSettings, PoolSettings, SchedulingMode, Settings};
use crate::types::{Millis, PerType, PoolName, ResourceType};
use corona_model::queues::{PreemptionRule, QueueRules, Queues, Quota, SiblingOrder};
use corona_model::resources::Amounts;

/// A pool group.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) name: Arc<str>,
    /// The names from an outermost group to this one, with dots between.
    pub(crate) path: Arc<str>,
    /// Groups around it.
    pub(super) depth: usize,
    pub(crate) parent: Option<GroupIdx>,
    pub(crate) settings: GroupSettings,
    pub(crate) rules: QueueRules,
    /// Whether the rules of a tree name it: then it stays while it has no pool.
    pub(super) configured: bool,
    pub(crate) groups: BTreeSet<GroupIdx>,
    pub(crate) pools: BTreeSet<PoolIdx>,
    pub(crate) kinds: PerType<QueueState>,
    pub(crate) quota: QuotaState,
    /// Queues in it that may be given more, in order.
    order: PerType<Queue<QueueKey>>,
    pub(crate) crowd: Crowd,
}

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) name: PoolName,
    pub(crate) group: GroupIdx,
    pub(crate) settings: PoolSettings,
    pub(crate) rules: QueueRules,
    pub(crate) mode: SchedulingMode,
    /// Whether the pools file names it.
    pub(crate) configured: bool,
    /// Its running sessions.
    pub(crate) sessions: BTreeSet<SessionIdx>,
    pub(crate) kinds: PerType<QueueState>,
    pub(crate) quota: QuotaState,
    pub(super) hunger: PerType<Hunger>,
    /// Sessions that may be given more, in order.
    pub(super) line: PerType<Line>,
    pub(crate) crowd: Crowd,
    /// Whether it or a group around it limits users or sessions.
    pub(super) crowded: bool,
    /// Whether it or a group around it limits what a user holds.
    limits_users: bool,
    /// Milliseconds for which its grants are safe from preemption.
    pub(super) min_runtime_ms: i64,
}

/// A queue's state of one type.
#[derive(Debug, Default)]
pub(crate) struct QueueState {
    pub(crate) tally: Tally,
    /// The resources of its grants.
    pub(crate) held: Amounts,
    pub(crate) share: f64,
    /// The slots that are guaranteed now.
    pub(crate) minimum: i64,
    /// The most slots now.
    pub(crate) maximum: i64,
    /// The smallest maximum from here outwards.
    reach: i64,
    /// Slots that stay free for it and the queues in it, because these do not lend.
    pub(super) reserve: i64,
    /// The reserves of the queues in it.
    inner_reserve: i64,
    /// Whether it has to wait in this pass because all free slots are reserved for others.
    waits: bool,
    pub(super) place: Option<QueueKey>,
}

/// When a pool last had its due of one type.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hunger {
    pub(super) last_above_share: Option<Millis>,
    pub(super) last_above_minimum: Option<Millis>,
    pub(super) last_preempt: Option<Millis>,
    /// Different requests, from the first on, that nothing could help when room was last made for the pool.
    pub(super) passed_over: u32,
}

/// All groups and pools.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(super) groups: Arena<GroupIdx, Group>,
    pub(super) group_by_name: Lookup<Arc<str>, GroupIdx>,
    pub(super) pools: Arena<PoolIdx, Pool>,
    pub(super) pool_by_name: Lookup<PoolName, PoolIdx>,
    /// Outermost groups that may be given more, in order, for each type.
    order: PerType<Queue<QueueKey>>,
    /// The slots of which the outermost groups have parts.
    pub(super) slots: PerType<u64>,
    /// Whether any limit is a part.
    has_parts: bool,
    /// Whether any queue does not lend.
    has_reserves: bool,
    /// Whether any queue limits users or sessions.
    pub(super) has_crowds: bool,
    /// Slots that stay free for queues that do not lend.
    reserved: PerType<i64>,
    /// The resources of the cluster, if they are counted; rounded up.
    pub(crate) whole: Option<Amounts>,
    /// Which resources are counted.
    pub(super) counted: [bool; 4],
    /// Whether any queue has a limit in resources that are counted.
    pub(super) has_quotas: bool,
    /// Whether any of these is a part.
    has_quota_parts: bool,
    /// The resources of which the outermost groups have parts.
    pub(super) amounts: Amounts,
    /// What stays free for queues that do not lend.
    pub(super) reserved_amounts: Amounts,
}

/// What more stays free for queues that do not lend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MoreKept {
    pub(crate) slots: i64,
    /// Whether it is more of some resource.
    pub(crate) amounts: bool,
}

impl Tree {
    pub(crate) fn new(seed: HashSeed) -> Self {
        Tree {
            groups: Arena::new(),
            group_by_name: Lookup::new(seed),
            pools: Arena::new(),
            pool_by_name: Lookup::new(seed),
            order: Default::default(),
            slots: PerType::all(0),
            has_parts: false,
            has_reserves: false,
            has_crowds: false,
            reserved: PerType::all(0),
            whole: None,
            counted: [false; 4],
            has_quotas: false,
            has_quota_parts: false,
            amounts: Amounts::ZERO,
            reserved_amounts: Amounts::ZERO,
        }
    }

    /// Takes over changed settings; configured queues exist from then on. Sessions that may be given
    /// more have to be entered again; [`Self::refresh_all`] follows.
    pub(crate) fn configure(&mut self, settings: &Settings) {
        self.note_rules(settings);
        for group in settings.pools.queues.groups.keys() {
            self.acquire_group(group, settings);
        }
        for name in settings.pools.pools.keys() {
            self.acquire_pool(name, settings);
        }
        self.arrange(settings);
        // Groups first: one that is configured now must outlive its last pool.
        for group in self.group_numbers() {
            self.configure_group(group, settings);
        }
        for pool in self.pool_numbers() {
            self.configure_pool(pool, settings);
            self.forget_if_unused(pool);
        }
        for group in self.group_numbers() {
            self.forget_group_if_unused(group);
        }
        self.count_anew();
        self.refresh_all();
    }

    /// As [`Self::configure`], for queues of an image, which are complete.
    pub(super) fn settle_from_image(&mut self, settings: &Settings) -> Result<(), ImageError> {
        let queues = &settings.pools.queues;
        self.note_rules(settings);
        let known = |group: &Arc<str>| self.group_by_name.get(group).is_some();
        let around =
            self.groups.iter().all(|(_, group)| queues.path(&group.name).iter().all(known));
        check(around, "a group is in a group that is missing")?;
        check(
            queues.groups.iter().all(|(name, rules)| rules.vanished || known(name)),
            "a group of the rules is missing",
        )?;
        self.arrange(settings);
        for pool in self.pool_numbers() {
            self.configure_pool(pool, settings);
        }
        for group in self.group_numbers() {
            self.configure_group(group, settings);
        }
        Ok(())
    }

    /// Notes what kinds of rules there are.
    fn note_rules(&mut self, settings: &Settings) {
        let queues: &Queues = &settings.pools.queues;
        let rules = || queues.groups.values().chain(queues.pools.values());
        let parts = |rules: &QueueRules| {
            let parts = rules.minimum.0.iter().chain(&rules.maximum.0);
            parts.flatten().next().is_some()
        };
        self.has_parts = rules().any(parts);
        if !self.has_parts {
            self.slots = PerType::all(0);
        }
        self.has_reserves = rules().any(|rules| !rules.lend);
        self.has_crowds = rules().any(Crowd::is_limited_by);
        self.counted = settings.resources.counted;
        let quotas = || {
            let quotas = rules().flat_map(|rules| [rules.quotas.minimum, rules.quotas.maximum]);
            quotas
                .flat_map(|each| each.into_iter().zip(self.counted))
                .filter_map(|(quota, counted)| quota.filter(|_| counted))
        };
        let has_parts = quotas().any(|quota| matches!(quota, Quota::Part(_)));
        self.has_quotas = quotas().next().is_some();
        self.has_quota_parts = has_parts;
        if !self.has_quota_parts {
            self.amounts = Amounts::ZERO;
        }
    }

    /// Puts every group where the settings have it. All orders are empty then.
    fn arrange(&mut self, settings: &Settings) {
        self.order = Default::default();
        let numbers = self.group_numbers();
        for group in &numbers {
            let entry = &mut self.groups[*group];
            entry.groups.clear();
            entry.order = Default::default();
            entry.kinds.0.iter_mut().for_each(|state| state.place = None);
        }
        for group in &numbers {
            let name = self.groups[*group].name.clone();
            let queues = &settings.pools.queues;
            let parent = queues.parent(&name);
            let parent = parent.and_then(|name| self.group_by_name.get(&name).copied());
            let path = queues.path(&name);
            let entry = &mut self.groups[*group];
            entry.parent = parent;
            entry.depth = path.len() - 1;
            entry.path = if parent.is_none() { name } else { path.join(".").into() };
            if let Some(parent) = parent {
                self.groups[parent].groups.insert(*group);
            }
        }
        for pool in self.pool_numbers() {
            self.pools[pool].kinds.0.iter_mut().for_each(|state| state.place = None);
        }
    }

    /// Counts what groups have by what their pools have, then limits and reserves.
    pub(super) fn count_anew(&mut self) {
        for group in self.group_numbers() {
            let entry = &mut self.groups[group];
            for state in &mut entry.kinds.0 {
                (state.tally, state.held) = (Tally::default(), Amounts::ZERO);
            }
        }
        for pool in self.pool_numbers() {
            for kind in ResourceType::ALL {
                let QueueState { tally, held, .. } = self.pools[pool].kinds[kind];
                for group in self.around(pool) {
                    let state = &mut self.groups[group].kinds[kind];
                    state.tally.add(tally);
                    state.held = state.held.plus(held);
                }
            }
        }
        self.set_limits();
    }

    /// Takes over the number of slots of the cluster, of which limits may be parts. Returns whether
    /// that changes any.
    pub(super) fn count_slots(&mut self, kind: ResourceType, slots: u64) -> bool {
        let changes = self.counts_other_slots(kind, slots);
        if changes {
            self.slots[kind] = slots;
            self.set_limits();
            self.refresh_all();
        }
        changes
    }

    /// Takes over the resources of the cluster, of which limits may be parts. Returns whether that changes any.
    pub(super) fn count_amounts(&mut self, amounts: Amounts) -> bool {
        let changes = self.counts_other_amounts(amounts);
        if changes {
            self.amounts = amounts;
            self.set_quotas();
            self.refresh_all();
        }
        changes
    }

    /// Whether limits are parts of other resources.
    pub(super) fn counts_other_amounts(&self, amounts: Amounts) -> bool {
        self.has_quota_parts && self.amounts != amounts
    }

    /// Whether limits are parts of another number of slots.
    pub(super) fn counts_other_slots(&self, kind: ResourceType, slots: u64) -> bool {
        self.has_parts && self.slots[kind] != slots
    }

    /// The limits in force, from outside inwards, then the reserves, from inside outwards.
    fn set_limits(&mut self) {
        self.set_quotas();
        let mut groups = self.group_numbers();
        groups.sort_by_key(|group| self.groups[*group].depth);
        for kind in ResourceType::ALL {
            let whole = i64::try_from(self.slots[kind]).unwrap_or(i64::MAX);
            let around = |tree: &Tree, group: Option<GroupIdx>| match group {
                None => (whole, whole),
                Some(group) => {
                    let state = &tree.groups[group].kinds[kind];
                    (state.minimum, state.reach)
                }
            };
            for group in &groups {
                let around = around(self, self.groups[*group].parent);
                let entry = &mut self.groups[*group];
                let own = (entry.settings.minimum[kind], entry.settings.maximum[kind]);
                entry.kinds[kind].limit(own, &entry.rules, kind, around);
                entry.kinds[kind].inner_reserve = 0;
            }
            self.reserved[kind] = 0;
            for pool in self.pool_numbers() {
                let around = around(self, Some(self.pools[pool].group));
                let entry = &mut self.pools[pool];
                let own = (entry.settings.minimum[kind], entry.settings.maximum[kind]);
                entry.kinds[kind].limit(own, &entry.rules, kind, around);
                entry.kinds[kind].reserve = 0;
                let reserve = entry.kinds[kind].reserve_more(0, entry.rules.lend);
                self.groups[entry.group].kinds[kind].inner_reserve += reserve;
            }
            for group in groups.iter().rev() {
                let entry = &mut self.groups[*group];
                entry.kinds[kind].reserve = 0;
                let reserve = entry.kinds[kind].reserve_more(0, entry.rules.lend);
                match entry.parent {
                    Some(parent) => self.groups[parent].kinds[kind].inner_reserve += reserve,
                    None => self.reserved[kind] += reserve,
                }
            }
        }
    }

    /// The pool of this name, made if it does not exist.
    pub(crate) fn acquire_pool(&mut self, name: &PoolName, settings: &Settings) -> PoolIdx {
        if let Some(pool) = self.pool_by_name.get(name) {
            return *pool;
        }
        let group = self.acquire_group(&name.group, settings);
        let pool = self.pools.insert(Pool::new(name.clone(), group));
        self.pool_by_name.insert(name.clone(), pool);
        self.groups[group].pools.insert(pool);
        self.configure_pool(pool, settings);
        self.set_quota_of_pool(pool);
        for kind in ResourceType::ALL {
            let group = &self.groups[group].kinds[kind];
            let around = (group.minimum, group.reach);
            let entry = &mut self.pools[pool];
            let own = (entry.settings.minimum[kind], entry.settings.maximum[kind]);
            entry.kinds[kind].limit(own, &entry.rules, kind, around);
            // Its reserve, if it has one.
            self.count(pool, kind, Tally::default());
            self.refresh(pool, kind);
        }
        pool
    }

    /// Forgets a pool that is not configured and has no session, and then an empty group. Returns whether less
    /// stays free for queues that do not lend.
    pub(crate) fn forget_if_unused(&mut self, pool: PoolIdx) -> bool {
        let entry = &self.pools[pool];
        if entry.configured || !entry.sessions.is_empty() {
            return false;
        }
        let group = entry.group;
        let kept = (self.reserved, self.reserved_amounts);
        self.pools[pool].rules.lend = true;
        for kind in ResourceType::ALL {
            // Its reserve goes with it.
            self.count(pool, kind, Tally::default());
            self.set_pool_place(pool, kind, None);
            self.refresh_groups(Some(group), kind);
        }
        let entry = self.pools.remove(pool);
        self.pool_by_name.remove(&entry.name);
        self.groups[group].pools.remove(&pool);
        self.forget_group_if_unused(group);
        kept != (self.reserved, self.reserved_amounts)
    }

    /// Forgets a group without queues that is not configured, and then an empty group around it.
    fn forget_group_if_unused(&mut self, group: GroupIdx) {
        let Some(entry) = self.groups.get(group) else { return };
        if entry.configured || !entry.pools.is_empty() || !entry.groups.is_empty() {
            return;
        }
        let entry = self.groups.remove(group);
        self.group_by_name.remove(&entry.name);
        if let Some(parent) = entry.parent {
            self.groups[parent].groups.remove(&group);
            self.forget_group_if_unused(parent);
        }
    }

    /// Pools that exist, in a defined order.
    pub(crate) fn pools(&self) -> impl Iterator<Item = (PoolIdx, &Pool)> {
        self.pools.iter()
    }

    /// Groups that exist, in a defined order.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (GroupIdx, &Group)> {
        self.groups.iter()
    }

    /// Numbers of the pools, in a defined order.
    pub(super) fn pool_numbers(&self) -> Vec<PoolIdx> {
        self.pools.iter().map(|(pool, _)| pool).collect()
    }

    fn group_numbers(&self) -> Vec<GroupIdx> {
        self.groups.iter().map(|(group, _)| group).collect()
    }

    pub(crate) fn pool_count(&self) -> usize {
        self.pools.len()
    }

    pub(crate) fn group(&self, group: GroupIdx) -> &Group {
        &self.groups[group]
    }

    pub(crate) fn group_mut(&mut self, group: GroupIdx) -> &mut Group {
        &mut self.groups[group]
    }

    pub(crate) fn find(&self, name: &PoolName) -> Option<PoolIdx> {
        self.pool_by_name.get(name).copied()
    }

    /// The queues in a group, in a defined order; without a group, the outermost ones.
    pub(super) fn inside(&self, group: Option<GroupIdx>) -> Vec<QueueIdx> {
        match group {
            None => {
                let outermost = self.groups.iter().filter(|(_, group)| group.parent.is_none());
                outermost.map(|(group, _)| QueueIdx::Group(group)).collect()
            }
            Some(group) => {
                let entry = &self.groups[group];
                let groups = entry.groups.iter().map(|group| QueueIdx::Group(*group));
                groups.chain(entry.pools.iter().map(|pool| QueueIdx::Pool(*pool))).collect()
            }
        }
    }

    /// The groups around a pool, the innermost first.
    pub(super) fn around(&self, pool: PoolIdx) -> Around {
        Around::of(self, Some(self.pools[pool].group))
    }

    /// A group and those around it, from inside outwards.
    pub(super) fn outwards(&self, group: GroupIdx) -> Around {
        Around::of(self, Some(group))
    }

    /// All groups, each before the one around it.
    pub(super) fn groups_inside_out(&self) -> Vec<GroupIdx> {
        let mut groups = self.group_numbers();
        groups.sort_by_key(|group| std::cmp::Reverse(self.groups[*group].depth));
        groups
    }

    /// The queues of a pool's path: the pool, and the groups around it.
    pub(super) fn path(&self, pool: PoolIdx) -> impl Iterator<Item = QueueIdx> + use<> {
        let pools = std::iter::once(QueueIdx::Pool(pool));
        pools.chain(self.around(pool).map(QueueIdx::Group))
    }

    /// The first session of the first pool in scheduling order: at each level the first queue.
    pub(crate) fn first(&self, kind: ResourceType) -> Option<(PoolIdx, SessionIdx)> {
        let mut order = &self.order[kind];
        loop {
            match order.first()?.index {
                QueueIdx::Group(group) => order = &self.groups[group].order[kind],
                QueueIdx::Pool(pool) => {
                    let session = self.pools[pool].line[kind].first()?.session;
                    return Some((pool, session));
                }
            }
        }
    }

    /// The queues of a group that come before one with the key, in order; without a group, the
    /// outermost groups.
    pub(super) fn before<'a>(
        &'a self,
        group: Option<GroupIdx>,
        kind: ResourceType,
        key: &'a QueueKey,
    ) -> impl Iterator<Item = &'a QueueKey> {
        let order = group.map_or(&self.order[kind], |group| &self.groups[group].order[kind]);
        order.before(key)
    }

    /// The sessions of a pool that come before one with the key.
    pub(super) fn sessions_before(
        &self,
        pool: PoolIdx,
        kind: ResourceType,
        key: &SessionKey,
    ) -> Vec<&SessionKey> {
        self.pools[pool].line[kind].before(key)
    }

    /// Puts a session into its pool's queue. [`Self::add`] or [`Self::refresh`] follows.
    pub(crate) fn enqueue(
        &mut self,
        pool: PoolIdx,
        kind: ResourceType,
        key: SessionKey,
        user: &Arc<str>,
    ) {
        let limited = self.pools[pool].limits_users;
        let limited = limited.then(|| self.user_limit(pool, user, kind).is_none());
        self.pools[pool].line[kind].insert(key, user, limited);
    }

    /// Lets a user's sessions of a pool come first or not, as the limits of users say now. Returns whether
    /// they may.
    pub(super) fn open_line(&mut self, pool: PoolIdx, kind: ResourceType, user: &str) -> bool {
        let open = self.user_limit(pool, user, kind).is_none();
        self.pools[pool].line[kind].set_open(user, open);
        self.refresh(pool, kind);
        open
    }

    /// Takes a session out of its pool's queue. [`Self::add`] or [`Self::refresh`] follows.
    pub(crate) fn dequeue(
        &mut self,
        pool: PoolIdx,
        kind: ResourceType,
        key: &SessionKey,
        user: &str,
    ) {
        self.pools[pool].line[kind].remove(key, user);
    }

    /// Moves a session whose number of grants has changed to its place in its pool's queue. `place`
    /// is its current place. [`Self::add`] or [`Self::refresh`] follows.
    pub(crate) fn requeue(
        &mut self,
        pool: PoolIdx,
        kind: ResourceType,
        place: &mut SessionKey,
        standing: SessionStanding<'_>,
        user: &str,
    ) {
        let entry = &mut self.pools[pool];
        let mode = entry.mode;
        let line = &mut entry.line[kind];
        line.change(place, user, |key| key.update(mode, &standing));
        place.update(mode, &standing);
    }

    /// A pool holds more resources. [`Self::add`] follows.
    pub(crate) fn hold_more(&mut self, pool: PoolIdx, kind: ResourceType, demand: Amounts) {
        self.each_held(pool, kind, |held| held.plus(demand));
    }

    /// A pool holds less resources. [`Self::add`] follows.
    pub(crate) fn hold_less(&mut self, pool: PoolIdx, kind: ResourceType, demand: Amounts) {
        self.each_held(pool, kind, |held| held.minus(demand));
    }

    fn each_held(
        &mut self,
        pool: PoolIdx,
        kind: ResourceType,
        change: impl Fn(Amounts) -> Amounts,
    ) {
        let around = self.around(pool);
        let states = &mut self.pools[pool].kinds;
        states[kind].held = change(states[kind].held);
        for group in around {
            let state = &mut self.groups[group].kinds[kind];
            state.held = change(state.held);
        }
    }

    /// Forgets the resources of all grants, which are counted otherwise from now on.
    pub(super) fn forget_held(&mut self) {
        let states = self.pools.values_mut().flat_map(|pool| &mut pool.kinds.0);
        states.for_each(|state| state.held = Amounts::ZERO);
        let states = self.groups.values_mut().flat_map(|group| &mut group.kinds.0);
        states.for_each(|state| state.held = Amounts::ZERO);
    }

    /// Adds a change to the counts of a pool and the groups around it. Returns what more stays free for queues
    /// that do not lend.
    pub(crate) fn add(&mut self, pool: PoolIdx, kind: ResourceType, change: Tally) -> MoreKept {
        let more_kept = self.count(pool, kind, change);
        match self.has_quotas {
            false => self.refresh(pool, kind),
            // Limits in resources are those of all types together.
            true => ResourceType::ALL.into_iter().for_each(|kind| self.refresh(pool, kind)),
        }
        more_kept
    }

    /// As [`Self::add`]; [`Self::refresh`] follows.
    pub(super) fn count(&mut self, pool: PoolIdx, kind: ResourceType, change: Tally) -> MoreKept {
        let reserves = self.has_reserves;
        let entry = &mut self.pools[pool];
        let state = &mut entry.kinds[kind];
        state.tally.add(change);
        let mut more = if reserves { state.reserve_more(0, entry.rules.lend) } else { 0 };
        let mut around = Some(entry.group);
        while let Some(group) = around {
            let entry = &mut self.groups[group];
            let state = &mut entry.kinds[kind];
            state.tally.add(change);
            if reserves {
                more = state.reserve_more(more, entry.rules.lend);
            }
            around = entry.parent;
        }
        self.reserved[kind] += more;
        let amounts = reserves && self.has_quotas && self.reserve_amounts(pool);
        MoreKept { slots: more, amounts }
    }

    /// Puts a pool and the groups around it where they belong now.
    pub(crate) fn refresh(&mut self, pool: PoolIdx, kind: ResourceType) {
        let entry = &self.pools[pool];
        let queue = QueueIdx::Pool(pool);
        let open = !entry.line[kind].is_empty() && self.is_open(queue, kind);
        let standing = open.then(|| self.standing(queue, kind));
        let group = entry.group;
        self.set_pool_place(pool, kind, standing);
        self.refresh_groups(Some(group), kind);
    }

    /// Puts all queues where they belong now.
    pub(crate) fn refresh_all(&mut self) {
        let groups = self.groups_inside_out();
        for kind in ResourceType::ALL {
            for pool in self.pool_numbers() {
                let queue = QueueIdx::Pool(pool);
                let open = !self.pools[pool].line[kind].is_empty() && self.is_open(queue, kind);
                let standing = open.then(|| self.standing(queue, kind));
                self.set_pool_place(pool, kind, standing);
            }
            for group in &groups {
                self.refresh_group(*group, kind);
            }
        }
    }

    /// The most of the `free` slots that a request of the pool may be given without touching those that
    /// stay free for queues that do not lend.
    pub(super) fn most_at_once(&self, pool: PoolIdx, kind: ResourceType, free: u64) -> u32 {
        if self.reserved[kind] == 0 {
            return u32::MAX;
        }
        let own = self.path(pool).map(|queue| self.state(queue, kind).own_reserve());
        let free = i64::try_from(free).unwrap_or(i64::MAX);
        let most = (free - self.reserved[kind]).max(0).saturating_add(own.sum());
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Whether any queue does not lend.
    pub(crate) fn has_reserves(&self) -> bool {
        self.has_reserves
    }

    /// Slots that stay free for queues that do not lend.
    pub(super) fn reserved(&self, kind: ResourceType) -> i64 {
        self.reserved[kind]
    }

    /// Lets a pool wait, and with it the outermost group around it in which no queue has a reserve.
    pub(super) fn hold(&mut self, pool: PoolIdx, kind: ResourceType) -> QueueIdx {
        let without = |queue: &QueueIdx| self.state(*queue, kind).reserve == 0;
        let held = self.path(pool).take_while(without).last().unwrap_or(QueueIdx::Pool(pool));
        self.set_held(held, kind, true);
        held
    }

    /// Lets a queue wait, or no more.
    pub(super) fn set_held(&mut self, queue: QueueIdx, kind: ResourceType, held: bool) {
        match queue {
            QueueIdx::Group(group) => {
                self.groups[group].kinds[kind].waits = held;
                self.refresh_groups(Some(group), kind);
            }
            QueueIdx::Pool(pool) => {
                self.pools[pool].kinds[kind].waits = held;
                self.refresh(pool, kind);
            }
        }
    }

    /// The running sessions of all pools in a group.
    pub(crate) fn sessions_in(&self, group: &Group) -> usize {
        let pools: usize = group.pools.iter().map(|pool| self.pools[*pool].sessions.len()).sum();
        let groups = group.groups.iter().map(|inner| self.sessions_in(&self.groups[*inner]));
        pools + groups.sum::<usize>()
    }

    /// The order of the queues in a group; without a group, that of the outermost ones.
    pub(super) fn order_in(&self, group: Option<GroupIdx>) -> SiblingOrder {
        group.map_or(SiblingOrder::Fair, |group| self.groups[group].rules.order)
    }

    /// A queue's state of a type.
    pub(super) fn state(&self, queue: QueueIdx, kind: ResourceType) -> &QueueState {
        match queue {
            QueueIdx::Group(group) => &self.groups[group].kinds[kind],
            QueueIdx::Pool(pool) => &self.pools[pool].kinds[kind],
        }
    }

    pub(super) fn rules(&self, queue: QueueIdx) -> &QueueRules {
        match queue {
            QueueIdx::Group(group) => &self.groups[group].rules,
            QueueIdx::Pool(pool) => &self.pools[pool].rules,
        }
    }

    pub(super) fn crowd(&self, queue: QueueIdx) -> &Crowd {
        match queue {
            QueueIdx::Group(group) => &self.groups[group].crowd,
            QueueIdx::Pool(pool) => &self.pools[pool].crowd,
        }
    }

    pub(super) fn crowd_mut(&mut self, queue: QueueIdx) -> &mut Crowd {
        match queue {
            QueueIdx::Group(group) => &mut self.groups[group].crowd,
            QueueIdx::Pool(pool) => &mut self.pools[pool].crowd,
        }
    }

    /// The group whose queues are the only ones from which slots are taken back for a pool.
    pub(super) fn fence(&self, pool: PoolIdx) -> Option<GroupIdx> {
        let fenced =
            |group: &GroupIdx| self.groups[*group].rules.preemption == PreemptionRule::Fence;
        self.around(pool).find(fenced)
    }

    fn standing(&self, queue: QueueIdx, kind: ResourceType) -> QueueStanding {
        let QueueState { tally, held, .. } = self.state(queue, kind);
        let below = match self.has_quotas {
            true => self.quota(queue).part_below(self.held(queue)),
            false => None,
        };
        let weighed = weighed(tally.granted, held, self.whole);
        QueueStanding::new(tally.granted, weighed, below, &self.claim(queue, kind))
    }

    /// A queue's place among its siblings.
    pub(super) fn key(&self, queue: QueueIdx, kind: ResourceType) -> QueueKey {
        match queue {
            QueueIdx::Group(group) => {
                let entry = &self.groups[group];
                QueueKey::new(self.standing(queue, kind), &entry.name, queue)
            }
            QueueIdx::Pool(pool) => {
                let entry = &self.pools[pool];
                QueueKey::new(self.standing(queue, kind), &entry.name.pool, queue)
            }
        }
    }

    /// The path of a queue as people write it.
    pub(super) fn path_of(&self, queue: QueueIdx) -> Arc<str> {
        match queue {
            QueueIdx::Group(group) => self.groups[group].path.clone(),
            QueueIdx::Pool(pool) => self.pool_path(&self.pools[pool]),
        }
    }

    /// The path of a pool as people write it.
    pub(crate) fn pool_path(&self, pool: &Pool) -> Arc<str> {
        format!("{}.{}", self.groups[pool.group].path, pool.name.pool).into()
    }

    /// The queues of a group that may be given more.
    pub(super) fn order_of(&self, group: Option<GroupIdx>, kind: ResourceType) -> &Queue<QueueKey> {
        group.map_or(&self.order[kind], |group| &self.groups[group].order[kind])
    }

    /// Puts a group and those around it where they belong now.
    fn refresh_groups(&mut self, innermost: Option<GroupIdx>, kind: ResourceType) {
        let mut at = innermost;
        while let Some(group) = at {
            at = self.refresh_group(group, kind);
        }
    }

    /// Puts a group where it belongs now. Returns the one around it.
    fn refresh_group(&mut self, group: GroupIdx, kind: ResourceType) -> Option<GroupIdx> {
        let entry = &self.groups[group];
        let parent = entry.parent;
        let queue = QueueIdx::Group(group);
        let open = !entry.order[kind].is_empty() && self.is_open(queue, kind);
        let standing = open.then(|| self.standing(queue, kind));
        let entry = &mut self.groups[group];
        let mut place = entry.kinds[kind].place.take();
        let fresh = match (&place, standing) {
            (None, Some(standing)) => {
                Some(QueueKey::new(standing, &entry.name, QueueIdx::Group(group)))
            }
            _ => None,
        };
        let order = match parent {
            Some(parent) => &mut self.groups[parent].order[kind],
            None => &mut self.order[kind],
        };
        move_to(order, &mut place, standing, fresh);
        self.groups[group].kinds[kind].place = place;
        parent
    }

    fn set_pool_place(
        &mut self,
        pool: PoolIdx,
        kind: ResourceType,
        standing: Option<QueueStanding>,
    ) {
        let entry = &mut self.pools[pool];
        let order = &mut self.groups[entry.group].order[kind];
        let place = &mut entry.kinds[kind].place;
        let fresh = match (&*place, standing) {
            (None, Some(standing)) => {
                Some(QueueKey::new(standing, &entry.name.pool, QueueIdx::Pool(pool)))
            }
            _ => None,
        };
        move_to(order, place, standing, fresh);
    }

    pub(super) fn configure_pool(&mut self, pool: PoolIdx, settings: &Settings) {
        let queues = &settings.pools.queues;
        let entry = &mut self.pools[pool];
        let configured = settings.pools.pools.get(&entry.name);
        entry.rules = queues.pools.get(&entry.name).cloned().unwrap_or_default();
        entry.configured = configured.is_some() && !entry.rules.vanished;
        entry.settings = configured.cloned().unwrap_or_default();
        entry.mode = entry.settings.mode.unwrap_or(settings.scheduling.default_mode);
        let path = queues.path(&entry.name.group);
        let groups = path.iter().rev().filter_map(|group| queues.groups.get(group));
        let rules: Vec<&QueueRules> = std::iter::once(&entry.rules).chain(groups).collect();
        let runtime = rules.iter().find_map(|rules| rules.min_runtime_ms);
        let crowded = rules.iter().copied().any(Crowd::is_limited_by);
        let limits_users = rules.iter().any(|rules| rules.max_per_user.is_some());
        entry.min_runtime_ms = runtime.unwrap_or(0);
        (entry.crowded, entry.limits_users) = (crowded, limits_users);
    }

    pub(super) fn configure_group(&mut self, group: GroupIdx, settings: &Settings) {
        let entry = &mut self.groups[group];
        let rules = settings.pools.queues.groups.get(&entry.name);
        entry.configured = rules.is_some_and(|rules| !rules.vanished);
        entry.rules = rules.cloned().unwrap_or_default();
        entry.settings = settings.pools.groups.get(&entry.name).cloned().unwrap_or_default();
    }

    /// The group of this name, made if it does not exist, with those around it.
    fn acquire_group(&mut self, name: &Arc<str>, settings: &Settings) -> GroupIdx {
        if let Some(group) = self.group_by_name.get(name) {
            return *group;
        }
        let parent = settings.pools.queues.parent(name);
        let parent = parent.map(|parent| self.acquire_group(&parent, settings));
        let (path, depth) = match parent.and_then(|parent| self.groups.get(parent)) {
            None => (name.clone(), 0),
            Some(parent) => (format!("{}.{name}", parent.path).into(), parent.depth + 1),
        };
        let group = self.groups.insert(Group::new(name.clone(), path, depth, parent));
        self.group_by_name.insert(name.clone(), group);
        if let Some(parent) = parent {
            self.groups[parent].groups.insert(group);
        }
        self.configure_group(group, settings);
        self.set_quota_of_group(group);
        for kind in ResourceType::ALL {
            let whole = i64::try_from(self.slots[kind]).unwrap_or(i64::MAX);
            let around = parent.map_or((whole, whole), |parent| {
                let state = &self.groups[parent].kinds[kind];
                (state.minimum, state.reach)
            });
            let entry = &mut self.groups[group];
            let own = (entry.settings.minimum[kind], entry.settings.maximum[kind]);
            entry.kinds[kind].limit(own, &entry.rules, kind, around);
        }
        group
    }
}

/// The groups around a queue, the innermost first.
#[derive(Debug)]
pub(super) struct Around {
    groups: smallvec::IntoIter<[GroupIdx; 4]>,
}

impl Around {
    fn of(tree: &Tree, innermost: Option<GroupIdx>) -> Self {
        let mut groups = smallvec::SmallVec::<[GroupIdx; 4]>::new();
        let mut at = innermost;
        while let Some(group) = at {
            groups.push(group);
            at = tree.groups[group].parent;
        }
        Around { groups: groups.into_iter() }
    }
}

impl Iterator for Around {
    type Item = GroupIdx;
    fn next(&mut self) -> Option<GroupIdx> {
        self.groups.next()
    }
}

impl QueueState {
    /// Whether the queue may be given more by its slots, after so many grants inside were taken back.
    /// Spec: cluster-manager/04 §3, `reachedMaximum`.
    pub(super) fn is_open_after(&self, lost: i64) -> bool {
        let granted = self.tally.granted;
        granted - lost < self.maximum && granted < self.tally.requested && !self.waits
    }

    /// Sets the limits in force, by the queue's own numbers and parts, and the minimum and the
    /// reach of the group around it.
    fn limit(
        &mut self,
        own: (i32, i32),
        rules: &QueueRules,
        kind: ResourceType,
        around: (i64, i64),
    ) {
        let minimum = rules.minimum[kind].map(|part| part.of(around.0));
        let maximum = rules.maximum[kind].map(|part| part.at_least_of(around.1));
        self.minimum = minimum.unwrap_or(own.0.into());
        self.maximum = maximum.unwrap_or(own.1.into());
        self.reach = self.maximum.min(around.1);
    }

    /// Takes over a change of the reserves inside. Returns the change of the queue's own.
    fn reserve_more(&mut self, more_inside: i64, lend: bool) -> i64 {
        self.inner_reserve += more_inside;
        let before = self.reserve;
        let own = if lend { 0 } else { self.minimum - self.tally.slots };
        self.reserve = own.max(self.inner_reserve);
        self.reserve - before
    }

    /// The slots of the reserve that all queues inside may take, and not only those that have a
    /// reserve of their own.
    fn own_reserve(&self) -> i64 {
        self.reserve - self.inner_reserve
    }
}

impl Group {
    pub(super) fn new(
        name: Arc<str>,
        path: Arc<str>,
        depth: usize,
        parent: Option<GroupIdx>,
    ) -> Self {
        Group { name, path, depth, parent, ..Group::default() }
    }

    /// The group's claim among its siblings. Spec: cluster-manager/04 §2: groups have no priority.
    pub(crate) fn claim(&self, kind: ResourceType) -> Claim {
        let state = &self.kinds[kind];
        Claim {
            requested: state.tally.requested,
            minimum: state.minimum,
            maximum: state.maximum,
            weight: self.rules.weight,
            priority: 0,
        }
    }
}

impl Pool {
    pub(super) fn new(name: PoolName, group: GroupIdx) -> Self {
        Pool {
            name,
            group,
            settings: PoolSettings::default(),
            rules: QueueRules::default(),
            mode: SchedulingMode::Fifo,
            configured: false,
            sessions: BTreeSet::new(),
            kinds: Default::default(),
            quota: QuotaState::default(),
            hunger: Default::default(),
            line: Default::default(),
            crowd: Crowd::default(),
            crowded: false,
            limits_users: false,
            min_runtime_ms: 0,
        }
    }

    /// The pool's claim among its siblings.
    pub(crate) fn claim(&self, kind: ResourceType) -> Claim {
        let state = &self.kinds[kind];
        Claim {
            requested: state.tally.requested,
            minimum: state.minimum,
            maximum: state.maximum,
            weight: self.settings.weight,
            priority: i64::from(self.settings.priority),
        }
    }

    /// Whether its grants may be taken back, as far as its own settings say.
    pub(crate) fn is_preemptable(&self) -> bool {
        self.settings.preemptable && self.rules.preemption != PreemptionRule::Disabled
    }
}

impl Index<PoolIdx> for Tree {
    type Output = Pool;
    fn index(&self, pool: PoolIdx) -> &Pool {
        &self.pools[pool]
    }
}

impl IndexMut<PoolIdx> for Tree {
    fn index_mut(&mut self, pool: PoolIdx) -> &mut Pool {
        &mut self.pools[pool]
    }
}

/// Moves a queue from its place in an order to where it belongs by its standing; out of the order, if
/// it has none. `fresh` is the key of a queue that has no place yet.
fn move_to(
    order: &mut Queue<QueueKey>,
    place: &mut Option<QueueKey>,
    standing: Option<QueueStanding>,
    fresh: Option<QueueKey>,
) {
    match (&mut *place, standing) {
        (Some(place), Some(standing)) if place.standing == standing => {}
        (Some(place), Some(standing)) => {
            order.change(place, |key| key.standing = standing);
            place.standing = standing;
        }
        (Some(old), None) => {
            order.remove(old);
            *place = None;
        }
        (None, _) => {
            if let Some(key) = &fresh {
                order.insert(key.clone());
            }
            *place = fresh;
        }
    }
}
