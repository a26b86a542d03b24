//! The scheduler in an [`Image`](crate::Image).
//!
//! Groups and pools take their settings, their sessions and their counts from elsewhere in the image,
//! and the queues follow from these.

use std::sync::Arc;

use corona_model::form::{FIFTH, Later, SIXTH, THIRD};
use corona_model::resources::Amounts;
use indexmap::IndexSet;
use serde::{Deserialize, Serialize};

use super::preemption::Clock;
use super::tree::{Group, Hunger, Pool};
use super::{Expired, Reservations, Scheduler, SessionKey, Tree};
use crate::arena::{Arena, ArenaImage};
use crate::check::{ImageError, check};
use crate::index::{GroupIdx, NodeIdx, PoolIdx, SessionIdx};
use crate::lookup::{HashSeed, Lookup};
use crate::sessions::{Demand, Sessions};
use crate::settings::Settings;
use crate::types::{Millis, PerType, PoolName, ResourceType};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SchedulerImage {
    groups: ArenaImage<GroupImage>,
    pools: ArenaImage<PoolImage>,
    /// In the order in which they were set aside.
    blocked: PerType<Vec<SessionIdx>>,
    pass: u64,
    wanted: PerType<bool>,
    preemption: PerType<Clock>,
    /// The slots of which limits are parts, if any are.
    slots: Later<PerType<u64>>,
    /// The resources of the cluster, if they are counted.
    whole: Later<Option<Amounts>>,
    reservations: Later<Reservations, THIRD>,
    reserved_last: Later<Option<Millis>, THIRD>,
    expired: Later<Expired, FIFTH>,
    /// The resources of which limits are parts, if any are.
    amounts: Later<Amounts, SIXTH>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct GroupImage {
    name: Arc<str>,
    share: PerType<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PoolImage {
    name: PoolName,
    group: GroupIdx,
    kinds: PerType<PoolStateImage>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PoolStateImage {
    share: f64,
    last_above_share: Option<Millis>,
    last_above_minimum: Option<Millis>,
    last_preempt: Option<Millis>,
    passed_over: Later<u32, SIXTH>,
}

impl Scheduler {
    pub(crate) fn image(&self) -> SchedulerImage {
        let Tree { groups, pools, .. } = &self.tree;
        SchedulerImage {
            groups: groups.image(|_, group| GroupImage {
                name: group.name.clone(),
                share: group.kinds.map_ref(|state| state.share),
            }),
            pools: pools.image(|_, pool| PoolImage {
                name: pool.name.clone(),
                group: pool.group,
                kinds: PerType(ResourceType::ALL.map(|kind| {
                    let hunger = pool.hunger[kind];
                    PoolStateImage {
                        share: pool.kinds[kind].share,
                        last_above_share: hunger.last_above_share,
                        last_above_minimum: hunger.last_above_minimum,
                        last_preempt: hunger.last_preempt,
                        passed_over: Later(hunger.passed_over),
                    }
                })),
            }),
            blocked: self.blocked.map_ref(|set| set.iter().copied().collect()),
            pass: self.pass,
            wanted: self.wanted,
            preemption: self.preemption,
            slots: Later(self.tree.slots),
            whole: Later(self.tree.whole),
            reservations: Later(self.reservations.clone()),
            reserved_last: Later(self.reserved_last),
            expired: Later(self.expired.clone()),
            amounts: Later(self.tree.amounts),
        }
    }

    /// Puts the sessions into the queues of their pools as well.
    pub(crate) fn from_image(
        image: SchedulerImage,
        settings: &Settings,
        sessions: &mut Sessions,
        seed: HashSeed,
    ) -> Result<Self, ImageError> {
        let SchedulerImage {
            groups,
            pools,
            blocked,
            pass,
            wanted,
            preemption,
            slots,
            whole,
            reservations,
            reserved_last,
            expired,
            amounts,
        } = image;
        check(
            whole.is_some() == settings.resources.are_counted(),
            "resources are counted by half",
        )?;
        let mut scheduler = Scheduler::new(seed);
        scheduler.tree = Tree::from_image(groups, pools, settings, seed)?;
        scheduler.tree.whole = *whole;
        check(whole.is_some() || reservations.is_empty(), "a node is reserved where slots count")?;
        (scheduler.reservations, scheduler.reserved_last) = (reservations.0, *reserved_last);
        let known = |pool: &PoolIdx| scheduler.tree.pools.get(*pool).is_some();
        check(expired.keys().all(known), "a reservation of no pool has taken too long")?;
        scheduler.expired = expired.0;
        (scheduler.pass, scheduler.wanted, scheduler.preemption) = (pass, wanted, preemption);
        for (set, image) in scheduler.blocked.0.iter_mut().zip(blocked.0) {
            *set = IndexSet::with_capacity_and_hasher(image.len(), seed.state());
            set.extend(image);
        }
        scheduler.enter(sessions)?;
        scheduler.tree.count_anew();
        for kind in ResourceType::ALL {
            scheduler.tree.count_slots(kind, slots[kind]);
        }
        check(scheduler.tree.slots == *slots, "slots are counted of which there are no parts")?;
        scheduler.tree.count_amounts(*amounts);
        let same = scheduler.tree.amounts == *amounts;
        check(same, "resources are counted of which there are no parts")?;
        let waiting = |sessions: &Sessions| {
            sessions.iter().filter(|(_, session)| session.gate.is_some()).count()
        };
        let before = waiting(sessions);
        scheduler.tree.enter_all_crowds(sessions);
        check(waiting(sessions) == before, "a session waits for its turn that has it")?;
        scheduler.enqueue_all(sessions);
        scheduler.tree.refresh_all();
        Ok(scheduler)
    }

    /// Nodes that are kept for requests, some of them perhaps gone.
    pub(crate) fn reserved_nodes(&self) -> impl Iterator<Item = NodeIdx> {
        self.reservations.values().map(|reservation| reservation.node)
    }

    /// Adds the sessions to their pools, and counts their requests and grants.
    fn enter(&mut self, sessions: &Sessions) -> Result<(), ImageError> {
        for (session, entry) in sessions.iter() {
            let pool = self.tree.pools.get_mut(entry.pool);
            let pool = pool.ok_or_else(|| ImageError::new("a session is in no pool"))?;
            pool.sessions.insert(session);
            for kind in ResourceType::ALL {
                let Demand { tally, held, .. } = entry.demand(kind);
                self.pending[kind] += tally.pending;
                let state = &mut pool.kinds[kind];
                state.tally.add(*tally);
                state.held = state.held.plus(*held);
            }
        }
        Ok(())
    }

    /// Puts the sessions into the queues of their pools.
    fn enqueue_all(&mut self, sessions: &mut Sessions) {
        for (session, entry) in sessions.iter_mut() {
            let pool = entry.pool;
            let mode = self.tree[pool].mode;
            for kind in ResourceType::ALL {
                let until = entry.demand(kind).blocked.and_then(|blocked| blocked.until);
                self.wakes.extend(until.map(|until| (until, session, kind)));
                if self.may_be_given(entry, kind) {
                    let key = SessionKey::new(mode, entry.standing(kind, self.tree.whole), session);
                    self.tree.enqueue(pool, kind, key.clone(), &entry.info.user_id);
                    entry.demand_mut(kind).place = Some(key);
                }
            }
        }
    }
}

impl Tree {
    fn from_image(
        groups: ArenaImage<GroupImage>,
        pools: ArenaImage<PoolImage>,
        settings: &Settings,
        seed: HashSeed,
    ) -> Result<Self, ImageError> {
        let mut tree = Tree::new(seed);
        let mut by_name = Lookup::new(seed);
        tree.groups = Arena::from_image(groups, |group, image: GroupImage| {
            let known = by_name.insert(image.name.clone(), group);
            check(known.is_none(), "two pool groups have one name")?;
            let mut group = Group::new(image.name.clone(), image.name, 0, None);
            for (state, share) in group.kinds.0.iter_mut().zip(image.share.0) {
                state.share = share;
            }
            Ok(group)
        })?;
        tree.group_by_name = by_name;
        let mut by_name = Lookup::new(seed);
        let groups = &mut tree.groups;
        tree.pools = Arena::from_image(pools, |pool, image: PoolImage| {
            let PoolImage { name, group, kinds } = image;
            let known = by_name.insert(name.clone(), pool);
            check(known.is_none(), "two pools have one name")?;
            match groups.get_mut(group) {
                Some(group) if group.name == name.group => group.pools.insert(pool),
                _ => return Err(ImageError::new("a pool is not in its group")),
            };
            let mut pool = Pool::new(name, group);
            for (kind, image) in ResourceType::ALL.into_iter().zip(kinds.0) {
                pool.kinds[kind].share = image.share;
                pool.hunger[kind] = Hunger {
                    last_above_share: image.last_above_share,
                    last_above_minimum: image.last_above_minimum,
                    last_preempt: image.last_preempt,
                    passed_over: *image.passed_over,
                };
            }
            Ok(pool)
        })?;
        tree.pool_by_name = by_name;
        tree.settle_from_image(settings)?;
        Ok(tree)
    }
}
