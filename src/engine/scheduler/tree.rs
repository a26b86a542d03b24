//! The tree of pool groups, pools and sessions, kept in scheduling order by each change.
//!
//! Spec: cluster-manager/04 §2 and §5.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use super::order::{PoolKey, PoolStanding, SessionKey, SessionStanding};
use super::queue::Queue;
use super::shares::Claim;
use crate::arena::Arena;
use crate::check::hold;
use crate::index::{GroupIdx, Idx, PoolIdx, SessionIdx};
use crate::lookup::{HashSeed, Lookup};
use crate::sessions::{Sessions, Tally};
use crate::settings::{GroupSettings, PoolSettings, SchedulingMode, Settings};
use crate::types::{Millis, PerType, PoolName, ResourceType};

/// A pool group.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: Arc<str>,
    pub(crate) settings: GroupSettings,
    pub(crate) pools: BTreeSet<PoolIdx>,
    pub(crate) kinds: PerType<GroupState>,
}

/// A group's state of one type.
#[derive(Debug, Default)]
pub(crate) struct GroupState {
    pub(crate) tally: Tally,
    pub(crate) share: f64,
    /// Pools that may be given more, in order.
    order: Queue<PoolKey<PoolIdx>>,
    place: Option<PoolKey<GroupIdx>>,
}

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) name: PoolName,
    pub(crate) group: GroupIdx,
    pub(crate) settings: PoolSettings,
    pub(crate) mode: SchedulingMode,
    /// Whether the pools file names it.
    pub(crate) configured: bool,
    /// Its running sessions.
    pub(crate) sessions: BTreeSet<SessionIdx>,
    pub(crate) kinds: PerType<PoolState>,
}

/// A pool's state of one type.
#[derive(Debug, Default)]
pub(crate) struct PoolState {
    pub(crate) tally: Tally,
    pub(crate) share: f64,
    pub(crate) last_above_share: Option<Millis>,
    pub(crate) last_above_minimum: Option<Millis>,
    pub(crate) last_preempt: Option<Millis>,
    /// Sessions that may be given more, in order.
    pub(super) queue: Queue<SessionKey>,
    pub(super) place: Option<PoolKey<PoolIdx>>,
}

/// All groups and pools.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(super) groups: Arena<GroupIdx, Group>,
    pub(super) group_by_name: Lookup<Arc<str>, GroupIdx>,
    pub(super) pools: Arena<PoolIdx, Pool>,
    pub(super) pool_by_name: Lookup<PoolName, PoolIdx>,
    /// Groups that may be given more, in order, for each type.
    order: PerType<Queue<PoolKey<GroupIdx>>>,
}

impl Tree {
    pub(crate) fn new(seed: HashSeed) -> Self {
        Tree {
            groups: Arena::new(),
            group_by_name: Lookup::new(seed),
            pools: Arena::new(),
            pool_by_name: Lookup::new(seed),
            order: Default::default(),
        }
    }

    /// Takes over changed settings; configured pools exist from then on.
    pub(crate) fn configure(&mut self, settings: &Settings) {
        for name in settings.pools.pools.keys() {
            self.acquire_pool(name, settings);
        }
        for pool in self.pool_numbers() {
            self.configure_pool(pool, settings);
            self.forget_if_unused(pool);
        }
        let groups: Vec<GroupIdx> = self.groups.iter().map(|(group, _)| group).collect();
        for group in groups {
            let entry = &mut self.groups[group];
            entry.settings = settings.pools.groups.get(&entry.name).cloned().unwrap_or_default();
            for kind in ResourceType::ALL {
                self.refresh_group(group, kind);
            }
        }
    }

    /// The pool of this name, made if it does not exist.
    pub(crate) fn acquire_pool(&mut self, name: &PoolName, settings: &Settings) -> PoolIdx {
        if let Some(pool) = self.pool_by_name.get(name) {
            return *pool;
        }
        let group = self.acquire_group(&name.group, settings);
        let pool = self.pools.insert(Pool {
            name: name.clone(),
            group,
            settings: PoolSettings::default(),
            mode: SchedulingMode::Fifo,
            configured: false,
            sessions: BTreeSet::new(),
            kinds: Default::default(),
        });
        self.pool_by_name.insert(name.clone(), pool);
        self.groups[group].pools.insert(pool);
        self.configure_pool(pool, settings);
        pool
    }

    /// Forgets a pool that is not configured and has no session, and then an empty group.
    pub(crate) fn forget_if_unused(&mut self, pool: PoolIdx) {
        let entry = &self.pools[pool];
        if entry.configured || !entry.sessions.is_empty() {
            return;
        }
        let group = entry.group;
        for kind in ResourceType::ALL {
            self.set_pool_place(pool, kind, None);
            self.refresh_group(group, kind);
        }
        let entry = self.pools.remove(pool);
        self.pool_by_name.remove(&entry.name);
        let entry = &mut self.groups[group];
        entry.pools.remove(&pool);
        if entry.pools.is_empty() {
            let entry = self.groups.remove(group);
            self.group_by_name.remove(&entry.name);
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

    /// The first session of the first pool of the first group in scheduling order.
    pub(crate) fn first(&self, kind: ResourceType) -> Option<(PoolIdx, SessionIdx)> {
        let group = self.order[kind].first()?.index;
        let pool = self.groups[group].kinds[kind].order.first()?.index;
        let session = self.pools[pool].kinds[kind].queue.first()?.session;
        Some((pool, session))
    }

    /// The groups that come before one with the key, in order.
    pub(super) fn groups_before(
        &self,
        kind: ResourceType,
        key: &PoolKey<GroupIdx>,
    ) -> impl Iterator<Item = &PoolKey<GroupIdx>> {
        self.order[kind].before(key)
    }

    /// The pools of a group that come before one with the key.
    pub(super) fn pools_before(
        &self,
        group: GroupIdx,
        kind: ResourceType,
        key: &PoolKey<PoolIdx>,
    ) -> impl Iterator<Item = &PoolKey<PoolIdx>> {
        self.groups[group].kinds[kind].order.before(key)
    }

    /// The sessions of a pool that come before one with the key.
    pub(super) fn sessions_before(
        &self,
        pool: PoolIdx,
        kind: ResourceType,
        key: &SessionKey,
    ) -> impl Iterator<Item = &SessionKey> {
        self.pools[pool].kinds[kind].queue.before(key)
    }

    /// Puts a session into its pool's queue. [`Self::add`] or [`Self::refresh`] follows.
    pub(crate) fn enqueue(&mut self, pool: PoolIdx, kind: ResourceType, key: SessionKey) {
        self.pools[pool].kinds[kind].queue.insert(key);
    }

    /// Takes a session out of its pool's queue. [`Self::add`] or [`Self::refresh`] follows.
    pub(crate) fn dequeue(&mut self, pool: PoolIdx, kind: ResourceType, key: &SessionKey) {
        self.pools[pool].kinds[kind].queue.remove(key);
    }

    /// Moves a session whose number of grants has changed to its place in its pool's queue. `place`
    /// is its current place. [`Self::add`] or [`Self::refresh`] follows.
    pub(crate) fn requeue(
        &mut self,
        pool: PoolIdx,
        kind: ResourceType,
        place: &mut SessionKey,
        standing: SessionStanding<'_>,
    ) {
        let entry = &mut self.pools[pool];
        let mode = entry.mode;
        let queue = &mut entry.kinds[kind].queue;
        queue.change(place, |key| key.update(mode, &standing));
        place.update(mode, &standing);
    }

    /// Adds a change to the counts of a pool and its group.
    pub(crate) fn add(&mut self, pool: PoolIdx, kind: ResourceType, change: Tally) {
        self.count(pool, kind, change);
        self.refresh(pool, kind);
    }

    /// As [`Self::add`]; [`Self::refresh`] follows.
    pub(super) fn count(&mut self, pool: PoolIdx, kind: ResourceType, change: Tally) {
        let entry = &mut self.pools[pool];
        entry.kinds[kind].tally.add(change);
        self.groups[entry.group].kinds[kind].tally.add(change);
    }

    /// Puts a pool and its group where they belong now.
    pub(crate) fn refresh(&mut self, pool: PoolIdx, kind: ResourceType) {
        let entry = &self.pools[pool];
        let state = &entry.kinds[kind];
        let open =
            !state.queue.is_empty() && below(state.tally, i64::from(entry.settings.maximum[kind]));
        let standing = open.then(|| entry.standing(kind));
        let group = entry.group;
        self.set_pool_place(pool, kind, standing);
        self.refresh_group(group, kind);
    }

    /// Recomputes counts, queues and orders from the sessions.
    pub(crate) fn audit(&self, sessions: &Sessions) -> Result<(), String> {
        let mut members = 0;
        for (pool, entry) in self.pools() {
            self.audit_pool(pool, entry, sessions)
                .map_err(|what| format!("pool {}: {what}", entry.name))?;
            members += entry.sessions.len();
        }
        hold(members == sessions.len(), || format!("{members} sessions are in pools"))?;
        hold(self.pool_by_name.len() == self.pools.len(), || "pools by name: too many".into())?;
        for (group, entry) in self.groups() {
            self.audit_group(group, entry)
                .map_err(|what| format!("group {}: {what}", entry.name))?;
        }
        hold(self.group_by_name.len() == self.groups.len(), || "groups by name: too many".into())?;
        for kind in ResourceType::ALL {
            let placed = self.groups().filter(|(_, g)| g.kinds[kind].place.is_some());
            let (placed, order) = (placed.count(), self.order[kind].len());
            hold(placed == order, || format!("{kind}: {placed} groups have a place of {order}"))?;
        }
        Ok(())
    }

    fn audit_pool(&self, pool: PoolIdx, entry: &Pool, sessions: &Sessions) -> Result<(), String> {
        let named = self.pool_by_name.get(&entry.name) == Some(&pool);
        hold(named, || "is not found by name".into())?;
        hold(entry.configured || !entry.sessions.is_empty(), || "is of no use".into())?;
        let members = || {
            let entries = entry.sessions.iter().map(|session| (*session, sessions.get(*session)));
            entries.filter_map(|(session, entry)| entry.map(|entry| (session, entry)))
        };
        let own = members().filter(|(_, session)| session.pool == pool).count();
        hold(own == entry.sessions.len(), || "holds sessions of others".into())?;
        for kind in ResourceType::ALL {
            let state = &entry.kinds[kind];
            let mut tally = Tally::default();
            let mut waiting = 0;
            for (number, session) in members() {
                let demand = session.demand(kind);
                tally.add(demand.tally);
                let belongs = demand.tally.pending > 0 && demand.blocked.is_none();
                let key = SessionKey::new(entry.mode, session.standing(kind), number);
                let place = belongs.then_some(&key);
                hold(demand.place.as_ref() == place, || {
                    format!("{kind}: session {} is out of place", session.handle)
                })?;
                hold(!belongs || state.queue.contains(&key), || {
                    format!("{kind}: session {} is not in the queue", session.handle)
                })?;
                waiting += usize::from(belongs);
            }
            hold(state.tally == tally, || format!("{kind}: {tally:?}, not {:?}", state.tally))?;
            let queued = state.queue.len();
            hold(queued == waiting, || format!("{kind}: {waiting} may be given more: {queued}"))?;
            let open = waiting > 0 && below(tally, i64::from(entry.settings.maximum[kind]));
            let place = open.then(|| entry.key(kind, pool));
            hold(state.place == place, || format!("{kind}: at {:?}, not {place:?}", state.place))?;
            let order = &self.groups[entry.group].kinds[kind].order;
            let placed = place.is_none_or(|place| order.contains(&place));
            hold(placed, || format!("{kind}: not in the order of its group"))?;
        }
        Ok(())
    }

    fn audit_group(&self, group: GroupIdx, entry: &Group) -> Result<(), String> {
        let named = self.group_by_name.get(&entry.name) == Some(&group);
        hold(named, || "is not found by name".into())?;
        hold(!entry.pools.is_empty(), || "has no pool".into())?;
        let members = || entry.pools.iter().filter_map(|pool| self.pools.get(*pool));
        let own = members().filter(|pool| pool.group == group).count();
        hold(own == entry.pools.len(), || "holds pools of others".into())?;
        for kind in ResourceType::ALL {
            let state = &entry.kinds[kind];
            let mut tally = Tally::default();
            members().for_each(|pool| tally.add(pool.kinds[kind].tally));
            hold(state.tally == tally, || format!("{kind}: {tally:?}, not {:?}", state.tally))?;
            let placed = members().filter(|pool| pool.kinds[kind].place.is_some()).count();
            let order = state.order.len();
            hold(placed == order, || format!("{kind}: {placed} pools have a place of {order}"))?;
            let open = placed > 0 && below(tally, i64::from(entry.settings.maximum[kind]));
            let place = open.then(|| entry.key(kind, group));
            hold(state.place == place, || format!("{kind}: at {:?}, not {place:?}", state.place))?;
            let noted = place.is_none_or(|place| self.order[kind].contains(&place));
            hold(noted, || format!("{kind}: not in the order of the groups"))?;
        }
        Ok(())
    }

    fn refresh_group(&mut self, group: GroupIdx, kind: ResourceType) {
        let entry = &self.groups[group];
        let state = &entry.kinds[kind];
        let open =
            !state.order.is_empty() && below(state.tally, i64::from(entry.settings.maximum[kind]));
        let standing = open.then(|| entry.standing(kind));
        let entry = &mut self.groups[group];
        let place = &mut entry.kinds[kind].place;
        move_to(&mut self.order[kind], place, standing, &entry.name, group);
    }

    fn set_pool_place(
        &mut self,
        pool: PoolIdx,
        kind: ResourceType,
        standing: Option<PoolStanding>,
    ) {
        let entry = &mut self.pools[pool];
        let order = &mut self.groups[entry.group].kinds[kind].order;
        let place = &mut entry.kinds[kind].place;
        move_to(order, place, standing, &entry.name.pool, pool);
    }

    pub(super) fn configure_pool(&mut self, pool: PoolIdx, settings: &Settings) {
        let entry = &mut self.pools[pool];
        let configured = settings.pools.pools.get(&entry.name);
        entry.configured = configured.is_some();
        entry.settings = configured.cloned().unwrap_or_default();
        entry.mode = entry.settings.mode.unwrap_or(settings.scheduling.default_mode);
        for kind in ResourceType::ALL {
            self.refresh(pool, kind);
        }
    }

    fn acquire_group(&mut self, name: &Arc<str>, settings: &Settings) -> GroupIdx {
        if let Some(group) = self.group_by_name.get(name) {
            return *group;
        }
        let group = self.groups.insert(Group {
            name: name.clone(),
            settings: settings.pools.groups.get(name).cloned().unwrap_or_default(),
            pools: BTreeSet::new(),
            kinds: Default::default(),
        });
        self.group_by_name.insert(name.clone(), group);
        group
    }
}

impl Group {
    /// The group's claim among the groups. Spec: cluster-manager/04 §2: groups have no weight.
    pub(crate) fn claim(&self, kind: ResourceType) -> Claim {
        Claim {
            requested: self.kinds[kind].tally.requested,
            minimum: i64::from(self.settings.minimum[kind]),
            maximum: i64::from(self.settings.maximum[kind]),
            weight: 1.0,
            priority: 0,
        }
    }

    /// The group's place among the groups; `group` is its number.
    pub(super) fn key(&self, kind: ResourceType, group: GroupIdx) -> PoolKey<GroupIdx> {
        PoolKey::new(self.standing(kind), &self.name, group)
    }

    fn standing(&self, kind: ResourceType) -> PoolStanding {
        PoolStanding::new(self.kinds[kind].tally.granted, &self.claim(kind))
    }
}

impl Pool {
    /// The pool's claim among the pools of its group.
    pub(crate) fn claim(&self, kind: ResourceType) -> Claim {
        Claim {
            requested: self.kinds[kind].tally.requested,
            minimum: i64::from(self.settings.minimum[kind]),
            maximum: i64::from(self.settings.maximum[kind]),
            weight: self.settings.weight,
            priority: i64::from(self.settings.priority),
        }
    }

    /// The pool's place among the pools of its group; `pool` is its number.
    pub(super) fn key(&self, kind: ResourceType, pool: PoolIdx) -> PoolKey<PoolIdx> {
        PoolKey::new(self.standing(kind), &self.name.pool, pool)
    }

    fn standing(&self, kind: ResourceType) -> PoolStanding {
        PoolStanding::new(self.kinds[kind].tally.granted, &self.claim(kind))
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

/// Whether a group or pool may be given more. Spec: cluster-manager/04 §3, `reachedMaximum`.
fn below(tally: Tally, maximum: i64) -> bool {
    tally.granted < maximum && tally.granted < tally.requested
}

/// Moves a group or pool, of the name and number, from its place in an order to where it belongs by
/// its standing; out of the order, if it has none.
fn move_to<I: Idx>(
    order: &mut Queue<PoolKey<I>>,
    place: &mut Option<PoolKey<I>>,
    standing: Option<PoolStanding>,
    name: &Arc<str>,
    index: I,
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
        (None, Some(standing)) => {
            let key = PoolKey::new(standing, name, index);
            order.insert(key.clone());
            *place = Some(key);
        }
        (None, None) => {}
    }
}
