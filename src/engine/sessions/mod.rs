//! Sessions as the engine keeps them, and records of ended ones.
//!
//! Spec: cluster-manager/05 §1.

mod image;

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use indexmap::IndexSet;
use serde::{Deserialize, Serialize};

pub(super) use self::image::SessionsImage;
use super::arena::Arena;
use super::check::hold;
use super::index::{NodeIdx, PoolIdx, SessionIdx};
use super::input::Asked;
use super::lookup::{Chains, HashSeed, Lookup};
use super::pending::Pending;
use super::requests::Requests;
use super::scheduler::crowd::Gate;
use super::scheduler::{Locality, SessionKey, SessionStanding};
use super::types::{
    Grant, Millis, PerType, PoolName, ResourceType, SessionInfo, SessionPriority, SessionStatus,
};
use corona_model::resources::Amounts;

/// Counts of requests of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Pending, granted and lost.
    pub(super) requested: i64,
    pub(super) pending: i64,
    pub(super) granted: i64,
    /// Slots of the granted ones, each of which takes one or more.
    pub(super) slots: i64,
}

impl Tally {
    /// The change when a pending request that takes so many slots is granted.
    pub(super) fn of_grant(need: u32) -> Self {
        Tally { requested: 0, pending: -1, granted: 1, slots: need.into() }
    }

    pub(super) fn add(&mut self, change: Tally) {
        self.requested += change.requested;
        self.pending += change.pending;
        self.granted += change.granted;
        self.slots += change.slots;
    }
}

/// How long a session waited for its first grant of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FirstWait {
    /// Never asked.
    #[default]
    NotAsked,
    /// Asked, nothing granted yet.
    Waiting,
    /// So many milliseconds after the start of the session.
    After(i64),
}

/// A session's requests and grants of one type.
#[derive(Debug)]
pub(super) struct Demand {
    pub(super) tally: Tally,
    /// The resources of its grants.
    pub(super) held: Amounts,
    pub(super) pending: Pending,
    /// The most grants that it held at a time.
    pub(super) max_granted: i64,
    pub(super) fulfilled: i64,
    pub(super) revoked: i64,
    pub(super) usages: Vec<i64>,
    pub(super) first_wait: FirstWait,
    pub(super) locality: Locality,
    /// The place in the pool's queue, while it is in.
    pub(super) place: Option<SessionKey>,
    /// Set while nothing that has room could serve any of the pending requests.
    pub(super) blocked: Option<Blocked>,
    /// Grants of the current pass.
    pub(super) batch: Vec<Grant>,
    /// When they were requested.
    pub(super) batch_asked: Vec<Asked>,
}

/// A session that was tried without a grant; it is tried again after an event that may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Blocked {
    /// When its wait for a near node ends.
    pub(super) until: Option<Millis>,
}

/// The ids by which a session and the cluster manager check that they are in step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Largest id of the latest requests.
    pub request_id: i32,
    /// Largest id of the latest grants.
    pub grant_id: i32,
}

/// A running session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) handle: Arc<str>,
    /// Counts sessions in the order of their start.
    pub(super) serial: u64,
    pub(super) info: SessionInfo,
    /// The deadline in force, 0 for none. `info` keeps whether the session named one at its start.
    pub(super) deadline: i64,
    /// The name at the start, by which ties are decided for good.
    pub(super) start_name: Arc<str>,
    /// The pool after redirects, as the session receives it.
    pub(super) pool_name: PoolName,
    /// The pool in which it is scheduled.
    pub(super) pool: PoolIdx,
    /// Where it waits for its turn, while its queues have enough sessions.
    pub(super) gate: Option<Gate>,
    pub(super) started: Millis,
    pub(super) last_heartbeat: Millis,
    pub(super) expected: Step,
    pub(super) last_seen: Step,
    pub(super) last_sync: Millis,
    pub(super) requests: Requests,
    pub(super) demand: PerType<Demand>,
    /// Nodes on which it ever had a grant.
    pub(super) nodes: IndexSet<NodeIdx, ahash::RandomState>,
}

impl Session {
    /// The priority; NORMAL for a session that names none.
    pub(super) fn priority(&self) -> SessionPriority {
        self.info.priority.unwrap_or_default()
    }

    /// The values that decide the session's place in its pool. `whole` are the resources of the cluster, if
    /// they are counted.
    pub(super) fn standing(
        &self,
        kind: ResourceType,
        whole: Option<Amounts>,
    ) -> SessionStanding<'_> {
        let demand = self.demand(kind);
        SessionStanding {
            priority: self.priority(),
            granted: weighed(demand.tally.granted, &demand.held, whole),
            deadline: self.deadline,
            started: self.started,
            name: &self.start_name,
        }
    }

    pub(super) fn demand(&self, kind: ResourceType) -> &Demand {
        &self.demand[kind]
    }

    pub(super) fn demand_mut(&mut self, kind: ResourceType) -> &mut Demand {
        &mut self.demand[kind]
    }
}

/// By what those who hold grants are compared: their number or, where resources are counted, their dominant
/// share of the whole.
pub(super) fn weighed(granted: i64, held: &Amounts, whole: Option<Amounts>) -> i64 {
    whole.map_or(granted, |whole| held.dominant_share(&whole))
}

/// The record of an ended session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetiredSession {
    /// The id that it had.
    pub handle: Arc<str>,
    /// The session's description of itself.
    pub info: SessionInfo,
    /// Its pool after redirects.
    pub pool: PoolName,
    /// Its start.
    pub started: Millis,
    /// Its end.
    pub ended: Millis,
    /// How it ended.
    pub status: SessionStatus,
    /// The most grants that it held at a time.
    pub max_granted: PerType<i64>,
    /// Grants that were not taken back.
    pub fulfilled: PerType<i64>,
    /// Grants that were taken back or lost.
    pub revoked: PerType<i64>,
    /// The last usage numbers that it reported.
    pub usages: [Vec<i64>; 3],
}

/// All running sessions, and the last ones that ended.
#[derive(Debug)]
pub(super) struct Sessions {
    slab: Arena<SessionIdx, Session>,
    by_handle: Lookup<Arc<str>, SessionIdx>,
    by_heartbeat: Chains<SessionIdx, 1>,
    next_serial: u64,
    retired: VecDeque<RetiredSession>,
    /// Sessions that have ended, forgotten ones included.
    retired_ever: u64,
    seed: HashSeed,
}

impl Sessions {
    pub(super) fn new(seed: HashSeed) -> Self {
        Sessions {
            slab: Arena::new(),
            by_handle: Lookup::new(seed),
            by_heartbeat: Chains::default(),
            next_serial: 0,
            retired: VecDeque::new(),
            retired_ever: 0,
            seed,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn find(&self, handle: &str) -> Option<SessionIdx> {
        self.by_handle.get(handle).copied()
    }

    /// The session of this number, if it runs.
    pub(super) fn get(&self, session: SessionIdx) -> Option<&Session> {
        self.slab.get(session)
    }

    /// All numbers are below this one.
    pub(super) fn places(&self) -> usize {
        self.slab.places()
    }

    /// All running sessions in a defined order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SessionIdx, &Session)> {
        self.slab.iter()
    }

    /// As [`Self::iter`], to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (SessionIdx, &mut Session)> {
        self.slab.iter_mut()
    }

    /// Numbers of all running sessions, in the order of their start.
    pub(super) fn in_order_of_start(&self) -> Vec<SessionIdx> {
        let mut numbers: Vec<_> =
            self.iter().map(|(session, entry)| (entry.serial, session)).collect();
        numbers.sort_unstable();
        numbers.into_iter().map(|(_, session)| session).collect()
    }

    /// Adds a session that wants nothing yet. The handle must be new.
    pub(super) fn insert(
        &mut self,
        handle: Arc<str>,
        info: SessionInfo,
        pool_name: PoolName,
        pool: PoolIdx,
        now: Millis,
    ) -> SessionIdx {
        let seed = self.seed;
        let demand = |kind: ResourceType| Demand {
            tally: Tally::default(),
            held: Amounts::ZERO,
            pending: Pending::new(seed, kind == ResourceType::Map),
            max_granted: 0,
            fulfilled: 0,
            revoked: 0,
            usages: Vec::new(),
            first_wait: FirstWait::NotAsked,
            locality: Locality::default(),
            place: None,
            blocked: None,
            batch: Vec::new(),
            batch_asked: Vec::new(),
        };
        let serial = self.next_serial;
        self.next_serial += 1;
        let session = self.slab.insert(Session {
            handle: handle.clone(),
            serial,
            deadline: info.deadline.unwrap_or(0),
            start_name: info.name.clone(),
            info,
            pool_name,
            pool,
            gate: None,
            started: now,
            last_heartbeat: now,
            expected: Step::default(),
            last_seen: Step::default(),
            last_sync: now,
            requests: Requests::new(seed),
            demand: PerType(ResourceType::ALL.map(demand)),
            nodes: IndexSet::with_hasher(seed.state()),
        });
        self.by_handle.insert(handle, session);
        self.by_heartbeat.push_back(0, 0, session);
        session
    }

    /// Takes the requests away from a session that ends.
    pub(super) fn take_requests(&mut self, session: SessionIdx) -> Requests {
        let none = Requests::new(self.seed);
        std::mem::replace(&mut self[session].requests, none)
    }

    /// Takes the indexes over its pending requests away from a session that ends.
    pub(super) fn take_pending(&mut self, session: SessionIdx) -> PerType<Pending> {
        let seed = self.seed;
        let demand = &mut self[session].demand;
        let take =
            |demand: &mut Demand| std::mem::replace(&mut demand.pending, Pending::new(seed, false));
        PerType(demand.0.each_mut().map(take))
    }

    pub(super) fn remove(&mut self, session: SessionIdx) -> Session {
        self.by_heartbeat.remove(0, 0, session);
        let entry = self.slab.remove(session);
        self.by_handle.remove(&entry.handle);
        entry
    }

    /// Notes that the session is alive.
    pub(super) fn heard(&mut self, session: SessionIdx, now: Millis) {
        self.slab[session].last_heartbeat = now;
        self.by_heartbeat.remove(0, 0, session);
        self.by_heartbeat.push_back(0, 0, session);
    }

    /// The session that has been silent for longest.
    pub(super) fn most_silent(&self) -> Option<(SessionIdx, Millis)> {
        let session = self.by_heartbeat.first(0, 0)?;
        Some((session, self.slab[session].last_heartbeat))
    }

    /// Resets the silence of every session, as the end of safe mode does.
    pub(super) fn all_heard(&mut self, now: Millis) {
        for session in self.slab.values_mut() {
            session.last_heartbeat = now;
        }
    }

    /// Does not count `ms` of the silence of each session.
    pub(super) fn pardon(&mut self, now: Millis, ms: i64) {
        for session in self.slab.values_mut() {
            session.last_heartbeat = session.last_heartbeat.plus_ms(ms).min(now);
        }
    }

    /// Recomputes the indexes over the sessions.
    pub(super) fn audit(&self) -> Result<(), String> {
        hold(self.by_handle.len() == self.slab.len(), || "sessions by handle: too many".into())?;
        for (session, entry) in self.iter() {
            let named = self.by_handle.get(&entry.handle) == Some(&session);
            hold(named, || format!("session {} is not found by handle", entry.handle))?;
            hold(entry.serial < self.next_serial, || "a session is yet to come".into())?;
        }
        let all = |session: SessionIdx| self.slab.contains(session).then_some(0);
        self.by_heartbeat.audit(0, "sessions by heartbeat", self.slab.len(), all)?;
        let heard = self.by_heartbeat.iter(0, 0).map(|session| self[session].last_heartbeat);
        hold(heard.is_sorted(), || "sessions are not in the order of their heartbeats".into())
    }

    /// Remembers an ended session; of the oldest ones at most `keep` stay.
    pub(super) fn retire(&mut self, retired: RetiredSession, keep: usize) {
        self.retired_ever += 1;
        self.retired.push_back(retired);
        while self.retired.len() > keep {
            self.retired.pop_front();
        }
    }

    /// Sessions that have ended, forgotten ones included.
    pub(super) fn retired_ever(&self) -> u64 {
        self.retired_ever
    }

    /// Ended sessions, the oldest first.
    pub(super) fn retired(&self) -> &VecDeque<RetiredSession> {
        &self.retired
    }
}

impl Index<SessionIdx> for Sessions {
    type Output = Session;
    fn index(&self, session: SessionIdx) -> &Session {
        &self.slab[session]
    }
}

impl IndexMut<SessionIdx> for Sessions {
    fn index_mut(&mut self, session: SessionIdx) -> &mut Session {
        &mut self.slab[session]
    }
}
