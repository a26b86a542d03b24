//! The words of a session: slots, requests and grants. Plain data, independent of any other crate.
//!
//! Spec: cluster-manager/01 §5.2.

use std::fmt;
use std::ops::{Index, IndexMut};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The purpose of a node's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum ResourceType {
    /// A map task, or any short piece of work.
    Map,
    /// A reduce task.
    Reduce,
    /// A job tracker that runs on a node of the cluster.
    JobTracker,
}

impl ResourceType {
    /// All types, in the order of their numbers.
    pub const ALL: [ResourceType; 3] = [Self::Map, Self::Reduce, Self::JobTracker];

    /// The number of the type in the protocol, from 0.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The type with this number in the protocol.
    pub fn from_number(number: i32) -> Option<ResourceType> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The name in the protocol and in configuration, such as `JOBTRACKER`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "MAP",
            Self::Reduce => "REDUCE",
            Self::JobTracker => "JOBTRACKER",
        }
    }
}

impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One value for each [`ResourceType`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PerType<T>(pub(super) [T; 3]);

impl<T> Index<ResourceType> for PerType<T> {
    type Output = T;
    fn index(&self, kind: ResourceType) -> &T {
        let [map, reduce, job_tracker] = &self.0;
        match kind {
            ResourceType::Map => map,
            ResourceType::Reduce => reduce,
            ResourceType::JobTracker => job_tracker,
        }
    }
}

impl<T> IndexMut<ResourceType> for PerType<T> {
    fn index_mut(&mut self, kind: ResourceType) -> &mut T {
        let [map, reduce, job_tracker] = &mut self.0;
        match kind {
            ResourceType::Map => map,
            ResourceType::Reduce => reduce,
            ResourceType::JobTracker => job_tracker,
        }
    }
}

/// How urgent a session is within its pool.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum SessionPriority {
    /// 0
    VeryLow,
    /// 1
    Low,
    /// 2, the default of sessions.
    #[default]
    Normal,
    /// 3
    High,
    /// 4
    VeryHigh,
}

impl SessionPriority {
    /// All priorities, in the order of their numbers.
    pub const ALL: [SessionPriority; 5] =
        [Self::VeryLow, Self::Low, Self::Normal, Self::High, Self::VeryHigh];

    /// The number of the priority in the protocol, from 0.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The priority with this number in the protocol.
    pub fn from_number(number: i32) -> Option<SessionPriority> {
        Self::ALL.into_iter().find(|priority| priority.number() == number)
    }
}

/// The result of a session, which the cluster manager shows and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum SessionStatus {
    /// 1: alive; no session ends so.
    Running,
    /// 2
    Failed,
    /// 3
    Successful,
    /// 4
    Killed,
    /// 5: no heartbeat for the expiry interval, or not reachable.
    TimedOut,
    /// 6
    KilledAborted,
    /// 7: the session and the cluster manager no longer agree on the last calls.
    FailedJobtracker,
}

impl SessionStatus {
    /// All statuses, in the order of their numbers.
    pub const ALL: [SessionStatus; 7] = [
        Self::Running,
        Self::Failed,
        Self::Successful,
        Self::Killed,
        Self::TimedOut,
        Self::KilledAborted,
        Self::FailedJobtracker,
    ];

    /// The number of the status in the protocol, from 1.
    pub fn number(self) -> i32 {
        self as i32 + 1
    }

    /// The status with this number in the protocol.
    pub fn from_number(number: i32) -> Option<SessionStatus> {
        Self::ALL.into_iter().find(|status| status.number() == number)
    }

    /// The name in the protocol, such as `TIMED_OUT`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Failed => "FAILED",
            Self::Successful => "SUCCESSFUL",
            Self::Killed => "KILLED",
            Self::TimedOut => "TIMED_OUT",
            Self::KilledAborted => "KILLED_ABORTED",
            Self::FailedJobtracker => "FAILED_JOBTRACKER",
        }
    }
}

impl fmt::Display for SessionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of a pool, as text `group.pool`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolName {
    /// The pool group.
    pub group: Arc<str>,
    /// The pool within the group.
    pub pool: Arc<str>,
}

impl PoolName {
    /// The pool `pool` of the group `group`.
    pub fn new(group: impl Into<Arc<str>>, pool: impl Into<Arc<str>>) -> PoolName {
        PoolName { group: group.into(), pool: pool.into() }
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.group, self.pool)
    }
}

/// The text is not `group.pool`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not GROUP.POOL")]
pub struct PoolNameError(pub String);

impl FromStr for PoolName {
    type Err = PoolNameError;

    fn from_str(text: &str) -> Result<PoolName, PoolNameError> {
        match text.split_once('.') {
            Some((group, pool)) if !group.is_empty() && !pool.is_empty() => {
                Ok(PoolName::new(group, pool))
            }
            _ => Err(PoolNameError(text.to_owned())),
        }
    }
}

/// A host and a port, as a peer wrote them. The port is not checked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    /// Host name or literal address.
    pub host: Arc<str>,
    /// TCP port.
    pub port: i32,
}

/// The resources that a slot needs. Absent numbers are absent in the protocol and count as 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ComputeSpecs {
    /// CPUs.
    pub num_cpus: i16,
    /// Network, in megabytes a second.
    pub network_mbps: Option<i16>,
    /// Memory, in megabytes.
    pub memory_mb: Option<i32>,
    /// Disk, in gigabytes.
    pub disk_gb: Option<i32>,
}

impl ComputeSpecs {
    /// This many CPUs, and nothing else in particular.
    pub fn cpus(num_cpus: i16) -> ComputeSpecs {
        ComputeSpecs { num_cpus, network_mbps: None, memory_mb: None, disk_gb: None }
    }

    /// The same, with this memory in megabytes.
    pub fn with_memory_mb(self, memory_mb: i32) -> ComputeSpecs {
        ComputeSpecs { memory_mb: Some(memory_mb), ..self }
    }

    /// The same, with this disk space in gigabytes.
    pub fn with_disk_gb(self, disk_gb: i32) -> ComputeSpecs {
        ComputeSpecs { disk_gb: Some(disk_gb), ..self }
    }

    /// The same, with this network in megabytes a second.
    pub fn with_network_mbps(self, network_mbps: i16) -> ComputeSpecs {
        ComputeSpecs { network_mbps: Some(network_mbps), ..self }
    }
}

/// A slot to request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SlotRequest {
    /// The type of the slot.
    pub kind: ResourceType,
    /// Hosts to be near to, best first; empty for anywhere.
    #[serde(default)]
    pub hosts: Vec<Arc<str>>,
    /// Hosts not to be used. None of `hosts` may be among them.
    #[serde(default)]
    pub exclude_hosts: Vec<Arc<str>>,
    /// The resources of the slot.
    pub specs: ComputeSpecs,
}

impl SlotRequest {
    /// A slot anywhere, with the specs that a Java job tracker requests: one CPU, 1024 MB of
    /// memory, 10 GB of disk, and 10 MB/s of network for a map task, 50 for others. A cluster
    /// that counts resources takes exactly these as none named, and its own defaults instead. Spec:
    /// cluster-manager/05 §6.
    pub fn new(kind: ResourceType) -> SlotRequest {
        let network_mbps = if kind == ResourceType::Map { 10 } else { 50 };
        let specs = ComputeSpecs {
            num_cpus: 1,
            network_mbps: Some(network_mbps),
            memory_mb: Some(1024),
            disk_gb: Some(10),
        };
        SlotRequest { kind, hosts: vec![], exclude_hosts: vec![], specs }
    }

    /// The same slot, but near one of these hosts, best first.
    pub fn near<H: Into<Arc<str>>>(mut self, hosts: impl IntoIterator<Item = H>) -> SlotRequest {
        self.hosts = hosts.into_iter().map(Into::into).collect();
        self
    }

    /// The same slot, but on none of these hosts.
    pub fn avoiding<H: Into<Arc<str>>>(
        mut self,
        hosts: impl IntoIterator<Item = H>,
    ) -> SlotRequest {
        self.exclude_hosts = hosts.into_iter().map(Into::into).collect();
        self
    }

    /// The same slot, but with these resources. They count where the cluster counts resources
    /// (`corona.cm.resources`); elsewhere the CPUs are the slots that the request takes.
    pub fn with_specs(mut self, specs: ComputeSpecs) -> SlotRequest {
        self.specs = specs;
        self
    }
}

/// A requested slot and its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Unique in the session over all types, and never used again in it.
    pub id: i32,
    /// The slot; shared, because a session may have very many alike.
    pub slot: Arc<SlotRequest>,
}

/// A slot given to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Grant {
    /// The request's id.
    pub id: i32,
    /// The node's name. It need not be its host.
    pub node_name: Arc<str>,
    /// The node's address.
    pub address: Address,
    /// When the cluster manager granted it, by its clock: milliseconds since the Unix epoch.
    pub granted_at_ms: i64,
    /// The type of the slot.
    pub kind: ResourceType,
    /// The address of the node's service for this type, as the node reported it: `host:port`.
    pub app_info: Arc<str>,
}

impl Grant {
    /// A grant as an owner has written it down, for a [`Resumed`](crate::Resumed) session.
    pub fn new(
        id: i32,
        kind: ResourceType,
        node_name: impl Into<Arc<str>>,
        address: Address,
    ) -> Grant {
        let (node_name, app_info) = (node_name.into(), "".into());
        Grant { id, node_name, address, granted_at_ms: 0, kind, app_info }
    }
}

/// The usage of a node by one session: its tasks, counted by result.
/// Spec: cluster-manager/01 §5.3, 02 §5.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeUsage {
    /// The node's name, as in its grants.
    pub node_name: Arc<str>,
    /// All tasks.
    pub total_tasks: i32,
    /// Tasks that went well.
    pub succeeded: i32,
    /// Tasks that the session killed.
    pub killed: i32,
    /// Tasks that failed. The cluster manager takes too many as a fault of the node.
    pub failed: i32,
    /// Tasks that gave no sign of life.
    pub timed_out: i32,
    /// Tasks that were slow.
    pub slow: i32,
    /// Attempts to reach the node that failed. The cluster manager takes too many as a fault of
    /// the node.
    pub failed_connections: i32,
}

impl NodeUsage {
    /// Nothing seen of this node yet.
    pub fn new(node_name: impl Into<Arc<str>>) -> NodeUsage {
        NodeUsage {
            node_name: node_name.into(),
            total_tasks: 0,
            succeeded: 0,
            killed: 0,
            failed: 0,
            timed_out: 0,
            slow: 0,
            failed_connections: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_of_the_protocol() {
        for (at, kind) in (0..).zip(ResourceType::ALL) {
            assert_eq!(ResourceType::from_number(at), Some(kind));
        }
        for (at, priority) in (0..).zip(SessionPriority::ALL) {
            assert_eq!(SessionPriority::from_number(at), Some(priority));
        }
        for (at, status) in (1..).zip(SessionStatus::ALL) {
            assert_eq!(SessionStatus::from_number(at), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.name());
        }
        for number in [-1, 3] {
            assert_eq!(ResourceType::from_number(number), None);
        }
        assert_eq!((SessionPriority::from_number(5), SessionStatus::from_number(0)), (None, None));
    }

    #[test]
    fn names_of_pools_are_read_and_written_alike() {
        let pool: PoolName = "group.a.b".parse().unwrap();
        assert_eq!(
            (pool.clone(), &*pool.to_string()),
            (PoolName::new("group", "a.b"), "group.a.b")
        );
        for text in ["", "pool", ".pool", "group."] {
            assert_eq!(text.parse::<PoolName>(), Err(PoolNameError(text.to_owned())));
        }
    }
}
