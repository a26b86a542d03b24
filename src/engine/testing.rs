//! Builders of inputs for tests and benchmarks, here and in the crates that use the engine.
//!
//! They give the plainest value of each kind; a test changes the fields that it is about.

use std::sync::Arc;

use super::settings::Settings;
use super::types::{
    Address, ComputeSpecs, Millis, NodeReport, PerType, PoolName, ResourceRequest, ResourceType,
    SessionInfo,
};
use super::{Engine, Input, Start};

/// The default settings, with one slot of each type for each CPU of a node.
pub fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.partitioning.0.insert(1, ResourceType::ALL.map(|kind| (kind, 1)).into());
    settings
}

/// An engine at time 0, whose session ids begin with `2026`.
pub fn engine(settings: Settings) -> Engine {
    let start = Start { now: Millis(0), id_prefix: "2026".into(), hash_seed: 7 };
    Engine::new(settings, start)
}

/// The report of a node that serves all types.
pub fn report(name: &str, host: &str, cpus: i16) -> NodeReport {
    let specs = ComputeSpecs { num_cpus: cpus, ..ComputeSpecs::default() };
    NodeReport {
        name: name.into(),
        address: Address { host: host.into(), port: 5000 },
        total: specs,
        free: Some(specs),
        apps: PerType(["m:1", "r:1", "j:1"].map(|app| Some(app.into()))),
    }
}

/// The heartbeat of a node on a host of its own name, in the default rack.
pub fn heartbeat(name: &str, cpus: i16) -> Input {
    Input::HeartbeatNode { report: report(name, name, cpus), rack: None }
}

/// The description of a session in a pool. `pool` is a group and a pool, as in `group.pool`.
pub fn info(name: &str, pool: &str) -> SessionInfo {
    let (group, pool) = pool.split_once('.').unwrap_or(("default", pool));
    SessionInfo {
        address: Address { host: "driver".into(), port: 1 },
        name: name.into(),
        user_id: "user".into(),
        group_ids: None,
        pool: Some(PoolName::new(group, pool)),
        priority: None,
        no_preempt: Some(false),
        url: None,
        deadline: None,
    }
}

/// The start of a session.
pub fn session(handle: &str, pool: &str) -> Input {
    Input::StartSession { handle: handle.into(), info: info(handle, pool) }
}

/// A request for one slot.
pub fn request(id: i32, kind: ResourceType, hosts: &[&str]) -> ResourceRequest {
    ResourceRequest {
        id,
        hosts: hosts.iter().map(|host| Arc::from(*host)).collect(),
        specs: Some(ComputeSpecs { num_cpus: 1, ..ComputeSpecs::default() }),
        kind,
        exclude_hosts: Vec::new(),
    }
}

/// Requests for one slot each, anywhere.
pub fn requests(ids: std::ops::RangeInclusive<i32>, kind: ResourceType) -> Vec<ResourceRequest> {
    ids.map(|id| request(id, kind, &[])).collect()
}

/// A call for slots, with all hosts in the default rack.
pub fn ask(handle: &str, requests: Vec<ResourceRequest>) -> Input {
    Input::RequestResources { handle: handle.into(), requests, racks: Vec::new() }
}
