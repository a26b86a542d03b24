//! The scheduler in an [`Image`](crate::Image).
//!
//! Groups and pools take their settings, their sessions and their counts from elsewhere in the image,
//! and the queues follow from these.

use std::collections::BTreeSet;
use std::sync::Arc;

use indexmap::IndexSet;
use serde::{Deserialize, Serialize};

use super::preemption::Clock;
use super::tree::{Group, Pool, PoolState};
use super::{Scheduler, SessionKey, Tree};
use crate::arena::{Arena, ArenaImage};
use crate::check::{ImageError, check};
use crate::index::{GroupIdx, SessionIdx};
use crate::lookup::{HashSeed, Lookup};
use crate::sessions::Sessions;
use crate::settings::{PoolSettings, SchedulingMode, Settings};
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
                kinds: pool.kinds.map_ref(PoolState::image),
            }),
            blocked: self.blocked.map_ref(|set| set.iter().copied().collect()),
            pass: self.pass,
            wanted: self.wanted,
            preemption: self.preemption,
        }
    }

    /// Puts the sessions into the queues of their pools as well.
    pub(crate) fn from_image(
        image: SchedulerImage,
        settings: &Settings,
        sessions: &mut Sessions,
        seed: HashSeed,
    ) -> Result<Self, ImageError> {
        let SchedulerImage { groups, pools, blocked, pass, wanted, preemption } = image;
        let mut scheduler = Scheduler::new(seed);
        scheduler.tree = Tree::from_image(groups, pools, settings, seed)?;
        (scheduler.pass, scheduler.wanted, scheduler.preemption) = (pass, wanted, preemption);
        for (set, image) in scheduler.blocked.0.iter_mut().zip(blocked.0) {
            *set = IndexSet::with_capacity_and_hasher(image.len(), seed.state());
            set.extend(image);
        }
        scheduler.enter(sessions)?;
        for pool in scheduler.tree.pool_numbers() {
            for kind in ResourceType::ALL {
                scheduler.tree.refresh(pool, kind);
            }
        }
        Ok(scheduler)
    }

    /// Adds the sessions to their pools and queues, and counts their requests and grants.
    fn enter(&mut self, sessions: &mut Sessions) -> Result<(), ImageError> {
        for (session, entry) in sessions.iter_mut() {
            let pool = entry.pool;
            let mode = match self.tree.pools.get_mut(pool) {
                Some(pool) => {
                    pool.sessions.insert(session);
                    pool.mode
                }
                None => return Err(ImageError::new("a session is in no pool")),
            };
            for kind in ResourceType::ALL {
                let tally = entry.demand(kind).tally;
                self.pending[kind] += tally.pending;
                self.tree.count(pool, kind, tally);
                match entry.demand(kind).blocked {
                    Some(blocked) => {
                        let until = blocked.until;
                        self.wakes.extend(until.map(|until| (until, session, kind)));
                    }
                    None if tally.pending > 0 => {
                        let key = SessionKey::new(mode, entry.standing(kind), session);
                        self.tree.enqueue(pool, kind, key.clone());
                        entry.demand_mut(kind).place = Some(key);
                    }
                    None => {}
                }
            }
        }
        Ok(())
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
            let mut group = Group {
                settings: settings.pools.groups.get(&image.name).cloned().unwrap_or_default(),
                name: image.name,
                pools: BTreeSet::new(),
                kinds: Default::default(),
            };
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
            Ok(Pool {
                name,
                group,
                settings: PoolSettings::default(),
                mode: SchedulingMode::Fifo,
                configured: false,
                sessions: BTreeSet::new(),
                kinds: PerType(kinds.0.map(PoolState::from_image)),
            })
        })?;
        tree.pool_by_name = by_name;
        for pool in tree.pool_numbers() {
            tree.configure_pool(pool, settings);
        }
        Ok(tree)
    }
}

impl PoolState {
    fn image(&self) -> PoolStateImage {
        PoolStateImage {
            share: self.share,
            last_above_share: self.last_above_share,
            last_above_minimum: self.last_above_minimum,
            last_preempt: self.last_preempt,
        }
    }

    fn from_image(image: PoolStateImage) -> PoolState {
        let PoolStateImage { share, last_above_share, last_above_minimum, last_preempt } = image;
        let empty = PoolState::default();
        PoolState { share, last_above_share, last_above_minimum, last_preempt, ..empty }
    }
}
