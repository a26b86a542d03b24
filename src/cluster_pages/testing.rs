//! What tests of several modules show.

use std::sync::Arc;

use crate::Programs;
use crate::gather::Overview;
use corona_api::cluster::Program;
use corona_engine::{NodeView, RetiredSession, RunningSession, SessionTally, SlotCounts, testing};
use corona_model::types::{
    Address, ComputeSpecs, Millis, PerType, PoolName, ResourceType, SessionInfo, SessionPriority,
    SessionStatus,
};

/// Nothing has said what runs it.
#[derive(Debug)]
struct NoPrograms;

impl Programs for NoPrograms {
    fn of_node(&self, _name: &str) -> Option<Program> {
        None
    }

    fn of_session(&self, _handle: &str) -> Option<Program> {
        None
    }

    fn has_heard(&self, _name: &str) -> bool {
        false
    }
}

/// A running session that has done nothing.
pub(crate) fn running_session(handle: &str) -> RunningSession {
    RunningSession {
        handle: handle.into(),
        info: info("job"),
        priority: SessionPriority::Normal,
        deadline: 0,
        pool: PoolName::new("g", "p"),
        scheduling_pool: PoolName::new("g", "p"),
        started: Millis(1_000),
        last_heartbeat: Millis(1_000),
        counts: PerType::all(SessionTally::default()),
        holding: Default::default(),
        usages: [vec![], vec![], vec![]],
    }
}

/// An ended session that has done nothing.
pub(crate) fn retired_session(handle: &str) -> RetiredSession {
    RetiredSession {
        handle: handle.into(),
        info: info("job"),
        pool: PoolName::new("g", "p"),
        started: Millis(1_000),
        ended: Millis(2_000),
        status: SessionStatus::Successful,
        max_granted: PerType::all(0),
        fulfilled: PerType::all(0),
        revoked: PerType::all(0),
        usages: [vec![], vec![], vec![]],
    }
}

/// A cluster without nodes.
pub(crate) fn overview() -> Overview {
    Overview {
        now: Millis(10_000),
        first_started: Millis(0),
        safe_mode: false,
        kinds: ResourceType::ALL.to_vec(),
        slots: PerType::all(SlotCounts::default()),
        all_slots: PerType::all(SlotCounts::default()),
        oldest_heartbeat: None,
        sessions: 0,
        settings: Arc::default(),
        hosts: Arc::default(),
        tracker_port: None,
        programs: Arc::new(NoPrograms),
    }
}

fn info(name: &str) -> SessionInfo {
    SessionInfo { pool: None, no_preempt: None, ..testing::info(name, "") }
}

/// A node without slots and grants.
pub(crate) fn node_view(name: &str) -> NodeView {
    NodeView {
        name: name.into(),
        address: Address { host: name.into(), port: 1 },
        rack: "/r".into(),
        total: ComputeSpecs::default(),
        free: ComputeSpecs::default(),
        last_heartbeat: Millis(1_000),
        late: false,
        skipped: false,
        slots: PerType::all(SlotCounts::default()),
        apps: PerType::default(),
        blacklisted: PerType::all(false),
        allowed: true,
        draining: false,
        revoked: false,
        has_reserve: true,
        sessions: 0,
        capacity: Default::default(),
        held: Default::default(),
        reserved_for: None,
    }
}
