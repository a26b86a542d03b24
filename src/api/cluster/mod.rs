//! The cluster manager. A member that has no value is left out, never `null`. Values by resource type are an
//! object with a member for each type that the cluster has, named `MAP`, `REDUCE` and `JOBTRACKER`.
//!
//! | path | shape |
//! |---|---|
//! | `/api/v1` | [`Index`] |
//! | `/api/v1/cluster` | [`Cluster`] |
//! | `/api/v1/status` | [`Status`] |
//! | `/api/v1/nodes` | [`Nodes`], pages by [`Paging`] with the node's name; `problem` leaves out nodes without it |
//! | `/api/v1/nodes/{name}` | [`NodeDetail`] |
//! | `/api/v1/nodes/{name}/clear-blacklist`, by POST | [`BlacklistCleared`] |
//! | `/api/v1/nodes/{name}/drain`, by POST | [`NodeDraining`] |
//! | `/api/v1/nodes/{name}/restart`, by POST | [`NodeRestarting`] |
//! | `/api/v1/pools` | [`Pools`] |
//! | `/api/v1/sessions` | [`Sessions`], pages by [`Paging`] with the session's handle |
//! | `/api/v1/sessions/{handle}` | [`SessionDetail`] |
//! | `/api/v1/events` | a stream of [`Event`] |
//! | `/api/v1/retired` | [`RetiredSessions`], at most `limit` |
//! | `/api/v1/silent-hosts` | [`SilentHosts`] |
//! | `/api/v1/configuration` | [`Configuration`] |
//! | `/api/v1/history` | [`History`] |
//! | `/api/v1/latencies` | [`Latencies`] |
//! | any, with another status than 200 | [`Failure`] |

mod operation;
mod status;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::operation::{
    Configuration, ConfigurationValue, History, Latencies, LatenciesOf, Latency, Sample,
    SilentHosts,
};
pub use self::status::{
    HaStatus, HostFileStatus, HostFilesStatus, JournalRecovery, JournalStatus, OperationAttempt,
    OperationStatus, Problem, ProxyJobTrackerStatus, SafeModeStatus, Severity, StandbyOfLeader,
    StandbyState, StandbyStatus, StateFileStatus, Status,
};
use corona_model::resources::Dimension;
use corona_model::types::ResourceType;

/// One value for each resource type that the cluster has.
pub type ByType<T> = BTreeMap<ResourceType, T>;

/// One for each resource that is counted and of which there is any.
pub type ByResource<T> = BTreeMap<Dimension, T>;

/// The paths below `/api/v1/` and their responses.
pub const PATHS: [(&str, &str); 13] = [
    ("cluster", "The cluster at a glance: version, safe mode, nodes, sessions and slots"),
    ("status", "Uptime, safe mode, the state file, administrative calls and problems"),
    ("nodes", "Nodes by name; ?problem=blacklisted, ?limit=N, ?after=NAME"),
    ("nodes/{name}", "A node with its grants and the complaints of sessions"),
    ("pools", "Pool groups and pools with their slots, shares and limits"),
    ("sessions", "Running sessions by id; ?limit=N, ?after=ID"),
    ("sessions/{id}", "A running session with its grants and why its requests wait"),
    ("retired", "Sessions that have ended, the latest first; ?limit=N"),
    ("silent-hosts", "Hosts of the include file that send no heartbeats"),
    ("configuration", "Every value in force, and the problems of the configuration files"),
    ("history", "Slots in use over the last hour"),
    ("latencies", "How long requests, deliveries and scheduler passes take"),
    ("events", "A stream of server-sent events"),
];

/// Paging of a list: `?limit=500&after=NAME`. A list is sorted by the value of `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paging {
    /// The maximum number of entries, 1 to [`Paging::MOST`].
    pub limit: usize,
    /// Only entries after this one, which need not exist any more.
    pub after: Option<String>,
}

impl Paging {
    /// The default limit.
    pub const USUAL: usize = 1000;
    /// The largest limit.
    pub const MOST: usize = 2000;
}

impl Default for Paging {
    fn default() -> Self {
        Paging { limit: Self::USUAL, after: None }
    }
}

/// The cluster at a glance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// The version of the cluster manager.
    pub version: String,
    /// When the values were read.
    pub now_ms: i64,
    /// When the cluster manager was first started; a recovery does not change it.
    pub started_ms: i64,
    /// Whether safe mode is on.
    pub safe_mode: bool,
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Nodes among them that have missed too many heartbeats.
    #[serde(default)]
    pub nodes_late: usize,
    /// Free slots on nodes that get no grants.
    #[serde(default)]
    pub unusable_slots: ByType<u64>,
    /// Running sessions.
    pub sessions: usize,
    /// Notifications that sessions have not acknowledged yet.
    pub pending_notifications: usize,
    /// Slots of all nodes.
    pub slots: ByType<Slots>,
    /// The resources of all nodes; left out while only slots are counted.
    #[serde(default, skip_serializing_if = "ByResource::is_empty")]
    pub resources: ByResource<ClusterResource>,
}

/// A resource of the cluster that is counted: CPUs, megabytes of memory, gigabytes of disk space, or megabytes a
/// second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterResource {
    /// What all nodes give out.
    pub capacity: u64,
    /// What grants take.
    pub granted: u64,
    /// The amount left on all nodes that take further grants.
    pub free: u64,
    /// The largest amount left on one of these nodes: no request for more can be granted now.
    pub largest_free: u64,
}

/// Slots of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// All slots.
    pub total: u64,
    /// Slots in use.
    pub used: u64,
}

/// Nodes, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Nodes {
    /// When the values were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now_ms: Option<i64>,
    /// The number of all nodes.
    pub total: usize,
    /// Present if there are more: the name to pass as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The resources of all nodes; left out while only slots are counted.
    #[serde(default, skip_serializing_if = "ByResource::is_empty")]
    pub resources: ByResource<ClusterResource>,
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// A node. A cluster manager serves all members; tools leave out those that
/// the original's pages do not show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, which it chose.
    pub name: String,
    /// Its problems; empty if it has none. Slots of a node with a problem are not granted, except
    /// those of late nodes.
    pub problems: Vec<NodeProblem>,
    /// Its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// The path of its rack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Its last heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_ms: Option<i64>,
    /// All of its resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Specs>,
    /// Its free resources, as last reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Specs>,
    /// Running sessions that ever had a slot on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<usize>,
    /// Its slots, of the types that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<ByType<NodeSlots>>,
    /// Its resources that are counted; left out while only slots are.
    #[serde(default, skip_serializing_if = "ByResource::is_empty")]
    pub resources: ByResource<NodeResource>,
    /// The request that it is kept for; left out if it is kept for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<ReservedFor>,
    /// What runs it; left out for Java's task tracker, and for versions that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Whether it has sent a heartbeat to this process of the cluster manager: without one, what runs it is not known yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heard: bool,
}

/// A resource of a node that is counted: CPUs, megabytes of memory, gigabytes of disk space, or megabytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeResource {
    /// What it gives out: its report, times the overcommitment, less what it must keep.
    pub capacity: u64,
    /// What its grants take; more than the capacity after the node reported less.
    pub granted: u64,
    /// What it has, as last reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// What is really used of it, by tasks and anything else, as last reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
}

/// The request that a node is kept for. Nothing else is granted there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedFor {
    /// The session's handle.
    pub session: String,
    /// The id of the request.
    pub id: i32,
    /// When the reservation was made.
    pub since_ms: i64,
    /// When it ends at the latest; left out by earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
}

/// What runs a node or a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its version.
    pub version: String,
    /// When it was started, also in the place of another one.
    pub started_ms: i64,
    /// Why it has not started again in place when it was asked to do so last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_refused: Option<String>,
}

/// The versions that run in a cluster, as far as the cluster manager knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Each version, at most 100.
    pub versions: Vec<VersionCount>,
    /// Since when there has been more than one, at least; left out if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed_since_ms: Option<i64>,
}

/// What runs a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionCount {
    /// The version.
    pub version: String,
    /// When the first of its programs that run was started.
    pub since_ms: i64,
    /// Instances of the cluster manager.
    pub instances: usize,
    /// Nodes.
    pub nodes: usize,
    /// Sessions that have been granted a slot.
    pub sessions: usize,
}

/// A problem of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeProblem {
    /// The host files do not allow its host.
    Excluded,
    /// An operator drains it.
    Draining,
    /// Its access to the cluster was revoked: its heartbeats are refused, and its grants are lost.
    Revoked,
    /// It has less memory or disk space free than it must keep.
    BelowReserve,
    /// Sessions reported too many failures, for at least one type: see [`NodeSlots::blacklisted`].
    Blacklisted,
    /// It has missed too many heartbeats. Its slots are not granted if `corona.cm.node.late.skip`
    /// is set.
    Late,
    /// A problem that this version does not know.
    #[serde(other)]
    Other,
}

impl NodeProblem {
    /// The problems that a list of nodes can be asked for, by name.
    pub const NAMED: [(&str, NodeProblem); 6] = [
        ("late", NodeProblem::Late),
        ("excluded", NodeProblem::Excluded),
        ("draining", NodeProblem::Draining),
        ("revoked", NodeProblem::Revoked),
        ("below_reserve", NodeProblem::BelowReserve),
        ("blacklisted", NodeProblem::Blacklisted),
    ];
}

/// Slots of one type on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSlots {
    /// All slots.
    pub total: u64,
    /// Slots in use.
    pub used: u64,
    /// Whether no slots of the type are granted, because too many sessions reported failures.
    pub blacklisted: bool,
}

/// A node with all details.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeDetail {
    /// When the values were read.
    pub now_ms: i64,
    /// The same as in the list.
    #[serde(flatten)]
    pub node: Node,
    /// The counts that lead to a blacklisting, for the types that it serves.
    pub faults: ByType<NodeFaults>,
    /// The last reports of sessions that were counted, the oldest first.
    pub complaints: Vec<Complaint>,
    /// The running sessions that ever had a grant on it, at most [`NodeDetail::MOST_VISITORS`] of them. Their
    /// jobs may still need the output of maps that ran there.
    #[serde(default)]
    pub visitors: Vec<Visitor>,
    /// How many there are.
    #[serde(default)]
    pub visitors_total: usize,
    /// All grants on it.
    pub grants_total: usize,
    /// The grants on it, the oldest first, at most [`NodeDetail::MOST_GRANTS`].
    pub grants: Vec<NodeGrant>,
}

impl NodeDetail {
    /// The most grants that are listed of a node.
    pub const MOST_GRANTS: usize = 10_000;
    /// The most sessions that are listed of a node.
    pub const MOST_VISITORS: usize = 10_000;
}

/// A running session that had a grant on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visitor {
    /// Its handle.
    pub session: String,
    /// Its user.
    pub user: String,
    /// The page that its job tracker names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// The counts that lead to the blacklisting of a node for one type. It is blacklisted when a count
/// is larger than its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFaults {
    /// Sessions that reported too many failures.
    pub failures: u32,
    /// The limit of this count: `cm.node.max.failures`.
    pub failures_limit: u32,
    /// Sessions that could not connect to it too often.
    pub failed_connections: u32,
    /// The limit of this count: `cm.node.max.failed.connections`.
    pub failed_connections_limit: u32,
    /// Since when it is blacklisted; left out while it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blacklisted_since_ms: Option<i64>,
}

/// A session's report of failures on a node that was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complaint {
    /// The session's handle.
    pub session: String,
    /// The session's user.
    pub user: String,
    /// When it was reported.
    pub at_ms: i64,
    /// The types for which it was counted.
    pub types: Vec<ResourceType>,
    /// Failures that the session reported.
    pub failed: i32,
    /// Failed connections that the session reported.
    pub failed_connections: i32,
}

/// Slots of a node that a session holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGrant {
    /// The session's handle.
    pub session: String,
    /// The session's name.
    pub name: String,
    /// The session's user.
    pub user: String,
    /// The pool in which the session is scheduled.
    pub pool: PoolName,
    /// The id of the request.
    pub id: i32,
    /// The type of the slots.
    #[serde(rename = "type")]
    pub kind: ResourceType,
    /// How many slots it takes.
    pub slots: u32,
    /// What it takes of the counted resources; left out while only slots are counted.
    #[serde(default, skip_serializing_if = "ByResource::is_empty")]
    pub resources: ByResource<u64>,
    /// When they were granted.
    pub granted_ms: i64,
}

/// The result of lifting a blacklisting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlacklistCleared {
    /// The types for which the blacklisting was lifted.
    pub cleared: Vec<ResourceType>,
}

/// The result of draining a node, or of letting it serve again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDraining {
    /// Whether it drains now.
    pub draining: bool,
}

/// The result of having a node start again: it does so at its next heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRestarting {
    /// Whether its tasks go on.
    pub in_place: bool,
}

/// A host and a port, as a peer wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Host name or literal address.
    pub host: String,
    /// TCP port.
    pub port: i32,
}

/// Resources of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Specs {
    /// CPUs.
    pub cpus: i16,
    /// Megabytes of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<i32>,
    /// Gigabytes of disk space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_gb: Option<i32>,
}

/// Groups and pools: each group before its pools, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pools {
    /// When the values were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now_ms: Option<i64>,
    /// The groups and pools.
    pub pools: Vec<Pool>,
}

/// A pool, or a group when `pool` is left out. A cluster manager serves all members;
/// tools leave out those that the original's pages do not show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// The group.
    pub group: String,
    /// The pool in the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Whether the pools file names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured: Option<bool>,
    /// The pool to which the pools file redirects its sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirected_to: Option<PoolName>,
    /// Running sessions in it.
    pub sessions: usize,
    /// Settings that only pools have.
    #[serde(default, flatten)]
    pub settings: Option<PoolSettings>,
    /// Its place and its rules in a tree of queues; left out where there are two levels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// Its slots and requests.
    pub types: ByType<PoolCounts>,
    /// What its grants take of the counted resources; left out while only slots are counted.
    #[serde(default, skip_serializing_if = "ByResource::is_empty")]
    pub resources: ByResource<u64>,
    /// The largest part that this is of any resource of the cluster, from 0 to 1; left out while only slots are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dominant_share: Option<f64>,
    /// Its limits of the counted resources, those that are limited.
    #[serde(default, skip_serializing_if = "ByResource::is_empty")]
    pub resource_limits: ByResource<ResourceLimit>,
}

/// The limits of a resource, in its unit, of all types of slots together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// The guaranteed amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<u64>,
    /// The most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<u64>,
}

/// Settings that only pools have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolSettings {
    /// Order of its sessions: `FIFO`, `FAIR` or `DEADLINE`.
    pub mode: String,
    /// Whether its slots may be preempted.
    pub preemptable: bool,
    /// Whether a call that requests more than its maximum is refused.
    pub request_max: bool,
    /// Its priority in the group, larger first.
    pub priority: i32,
    /// Its weight in the group.
    pub weight: f64,
}

/// The place and the rules of a pool or a group in a tree of queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// The names from an outermost group to this queue, with dots between.
    pub path: String,
    /// The path of the group around it; left out for the outermost ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// A group's weight among its siblings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// The order of the queues in a group: `PRIORITY` or `FAIR`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Whether others may use what is guaranteed to it and not used.
    pub lend: bool,
    /// Which grants may be taken back: `default`, `fence` or `disabled`.
    pub preemption: String,
    /// `running` or `draining`.
    pub state: String,
    /// The time for which its grants are safe from preemption, if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_runtime_ms: Option<i64>,
    /// Sessions that are served at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<u32>,
    /// Sessions of one user that are served at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sessions_per_user: Option<u32>,
    /// Slots of each type that one user holds at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_user: Option<u32>,
    /// Sessions that wait until fewer are served.
    pub sessions_waiting: usize,
    /// Minima that are parts of the parent's, such as `25%`.
    #[serde(default, skip_serializing_if = "ByType::is_empty")]
    pub minimum_parts: ByType<String>,
    /// Maxima that are parts of the parent's.
    #[serde(default, skip_serializing_if = "ByType::is_empty")]
    pub maximum_parts: ByType<String>,
    /// Slots of its minimum that it does not use and others may.
    #[serde(default)]
    pub lent: ByType<i64>,
    /// Slots that it holds beyond its minimum.
    #[serde(default)]
    pub borrowed: ByType<i64>,
}

/// Slots and requests of one type in a pool or a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolCounts {
    /// Requests that hold a slot, that wait, or that lost their slot and were not released.
    pub requested: i64,
    /// Requests that hold a slot.
    pub granted: i64,
    /// Requests that wait for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<i64>,
    /// Its share as last computed, in slots.
    pub share: f64,
    /// Slots that it is guaranteed.
    pub minimum: i64,
    /// The maximum of slots; left out if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<i64>,
    /// The time for which it has been allowed to preempt; left out while it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starving_ms: Option<i64>,
    /// The average time that its running sessions waited for their first slot; sessions that have
    /// had none do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_wait_ms: Option<i64>,
}

/// The name of a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PoolName {
    /// The group.
    pub group: String,
    /// The pool in the group.
    pub pool: String,
}

/// Running sessions, sorted by handle as [`handle_order`] does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    /// When the values were read.
    pub now_ms: i64,
    /// The number of all running sessions.
    pub total: usize,
    /// Present if there are more: the handle to pass as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The sessions.
    pub sessions: Vec<Session>,
}

/// A running session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Its handle.
    pub handle: String,
    /// Its name.
    pub name: String,
    /// Its user.
    pub user: String,
    /// The pool that it was submitted to; left out if it named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_pool: Option<PoolName>,
    /// Its pool after redirects.
    pub pool: PoolName,
    /// The pool in which it is scheduled: another one if the name of its pool is not legal.
    pub scheduling_pool: PoolName,
    /// `VERY_LOW`, `LOW`, `NORMAL`, `HIGH` or `VERY_HIGH`.
    pub priority: String,
    /// Its deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
    /// A page about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its start.
    pub started_ms: i64,
    /// Its last heartbeat.
    pub last_heartbeat_ms: i64,
    /// Its requests.
    pub types: ByType<SessionCounts>,
    /// What its grants take of the counted resources; left out while only slots are counted.
    #[serde(default, skip_serializing_if = "ByResource::is_empty")]
    pub resources: ByResource<u64>,
    /// The largest part that this is of any resource of the cluster, from 0 to 1; left out while only slots are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dominant_share: Option<f64>,
    /// What runs it; left out for Java's job tracker, for versions that do not report it, and before its first slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
}

/// Requests of one type of a running session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCounts {
    /// Requests that hold a slot, that wait, or that lost their slot and were not released.
    pub requested: i64,
    /// Requests that wait for a slot.
    pub waiting: i64,
    /// Requests that hold a slot.
    pub granted: i64,
    /// The largest number of grants that it has held at the same time.
    pub max_concurrent: i64,
    /// Grants that were not revoked.
    pub fulfilled: i64,
    /// Grants that were preempted or lost with their node.
    pub revoked: i64,
    /// The time from its start until its first slot; left out before its first slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_wait_ms: Option<i64>,
    /// Bytes of memory as it last reported them: maximum, momentary maximum, resident maximum.
    pub usage: Vec<i64>,
}

/// A running session with all details.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionDetail {
    /// When the values were read.
    pub now_ms: i64,
    /// The same as in the list.
    #[serde(flatten)]
    pub session: Session,
    /// The address to which notifications are sent.
    pub address: Address,
    /// Groups of the user, as the session named them.
    pub group_ids: Vec<String>,
    /// Whether it requested that its slots are not preempted.
    pub no_preempt: bool,
    /// All slots that it holds.
    pub grants_total: usize,
    /// The slots that it holds, by request id, at most [`SessionDetail::MOST_GRANTS`].
    pub grants: Vec<Grant>,
    /// Why its requests wait.
    #[serde(flatten)]
    pub waits: SessionWaits,
}

/// The part of a session's details that job trackers read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionWaits {
    /// Why its requests wait. Left out by a cluster manager that does not explain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Vec<Wait>>,
}

impl SessionDetail {
    /// The most grants that are listed of a session.
    pub const MOST_GRANTS: usize = 10_000;
}

/// A slot that a session holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The id of the request.
    pub id: i32,
    /// The type of the slot.
    #[serde(rename = "type")]
    pub kind: ResourceType,
    /// The name of the node.
    pub node: String,
    /// The node's address.
    pub address: Address,
    /// When the slot was granted.
    pub granted_ms: i64,
}

/// Requests of a session that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Their type.
    #[serde(rename = "type")]
    pub kind: ResourceType,
    /// Their number.
    pub requests: u64,
    /// Their ids, ascending, at most [`Wait::MOST_IDS`] ranges.
    #[serde(default)]
    pub ids: Vec<IdRange>,
    /// Why they wait, in English, as clauses without a capital letter and a full stop. Left out by
    /// versions before 0.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Why they wait.
    #[serde(flatten)]
    pub reason: WaitReason,
}

impl Wait {
    /// The most ranges of ids that are listed for one reason.
    pub const MOST_IDS: usize = 1000;
}

/// Request ids from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// The smallest id.
    pub first: i32,
    /// The largest id.
    pub last: i32,
}

/// Why a request waits: an object with the member `reason` and those of the variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum WaitReason {
    /// Nothing is granted in safe mode.
    SafeMode,
    /// The pool's group holds its maximum of grants.
    GroupAtMaximum {
        /// The group.
        group: String,
        /// Grants that it holds.
        granted: i64,
        /// The maximum of grants.
        maximum: i64,
        /// The pools and sessions that are served before the session within the group.
        #[serde(default, skip_serializing_if = "Ahead::is_nothing")]
        ahead: Ahead,
    },
    /// The pool holds its maximum of grants.
    PoolAtMaximum {
        /// The pool in which the session is scheduled.
        pool: PoolName,
        /// Grants that it holds.
        granted: i64,
        /// The maximum of grants.
        maximum: i64,
        /// The sessions that are served before this one within the pool.
        #[serde(default, skip_serializing_if = "Ahead::is_nothing")]
        ahead: Ahead,
    },
    /// A queue of the session's path serves as many sessions as it may at a time.
    SessionsAtMaximum {
        /// The path of the queue.
        queue: String,
        /// The user, if the limit is that of each user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// Sessions that are served.
        running: u32,
        /// The maximum of sessions.
        maximum: u32,
        /// Sessions that come first when one of them ends.
        before: usize,
    },
    /// The session's user holds as many grants as one user may in a queue of the path.
    UserAtMaximum {
        /// The path of the queue.
        queue: String,
        /// The user.
        user: String,
        /// Grants that the user holds there.
        granted: i64,
        /// The maximum of grants.
        maximum: u32,
    },
    /// All free slots stay free for queues that do not lend their minimum.
    Reserved {
        /// Slots that stay free.
        reserved: i64,
        /// The paths of these queues, the first few.
        queues: Vec<String>,
        /// How many queues they are.
        count: usize,
    },
    /// A queue of the path holds its maximum of a resource, or less than a request takes is left below it.
    AboveMaximum {
        /// The path of the queue.
        queue: String,
        /// What each request takes of the resources that have a maximum; left out if nothing is left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        demand: Option<ByResource<u64>>,
        /// What the queue holds of these.
        held: ByResource<u64>,
        /// Its maximum of each.
        maximum: ByResource<u64>,
        /// Whether each request takes more than the maximum.
        never: bool,
    },
    /// The resources that are left stay free for queues that do not lend their minimum.
    AmountsReserved {
        /// What each request takes.
        demand: ByResource<u64>,
        /// What is left on all usable nodes.
        free: ByResource<u64>,
        /// What stays free.
        reserved: ByResource<u64>,
        /// The paths of these queues, the first few.
        queues: Vec<String>,
        /// How many queues they are.
        count: usize,
    },
    /// No node has slots of the type and offers a service for it.
    NotServed {
        /// All nodes of the cluster.
        #[serde(default)]
        nodes: usize,
    },
    /// All slots of the type on usable nodes are in use.
    NoFreeSlot {
        /// Slots in use on usable nodes that serve the type.
        used: u64,
        /// All slots of these nodes.
        total: u64,
        /// The pool in which the session is scheduled.
        pool: PoolName,
        /// Grants that it holds.
        pool_granted: i64,
        /// Grants that it is guaranteed.
        #[serde(default)]
        pool_minimum: i64,
        /// Grants that it should have in equilibrium.
        pool_share: f64,
        /// Sessions of the pool that are served first.
        sessions_ahead: usize,
        /// The groups, pools and sessions that are served before the session.
        #[serde(default, skip_serializing_if = "Ahead::is_nothing")]
        ahead: Ahead,
        /// A few other pools that hold grants, those with most grants first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        holders: Vec<Holder>,
        /// When the pool may preempt; left out if it lacks no slots.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preemption: Option<Preemption>,
        /// Nodes with free slots that cannot be used; left out if there are none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unusable: Option<Unusable>,
    },
    /// Nodes serve the type, but none of them can be used.
    NodesUnusable {
        /// Nodes that are blacklisted for the type.
        blacklisted: usize,
        /// Nodes on hosts that the host files do not allow.
        excluded: usize,
        /// Nodes that an operator drains.
        #[serde(default)]
        draining: usize,
        /// Nodes whose access was revoked.
        #[serde(default)]
        revoked: usize,
        /// Nodes that have less memory or disk space free than they must keep.
        below_reserve: usize,
        /// Late nodes, where `corona.cm.node.late.skip` is set.
        #[serde(default)]
        late: usize,
    },
    /// No usable node has as many free slots as a request takes.
    TooLarge {
        /// Slots that a request takes.
        need: u32,
        /// The largest number of free slots on a usable node.
        most_free: u32,
        /// The largest number of slots on a node, free or not.
        #[serde(default)]
        most_slots: u32,
        /// Whether no node can ever serve the requests, whatever becomes free.
        #[serde(default)]
        never: bool,
    },
    /// No usable node has so much of the counted resources left as a request takes.
    TooLittle {
        /// What a request takes, by dimension.
        demand: ByResource<u64>,
        /// What is left on all usable nodes together.
        free: ByResource<u64>,
        /// What is left on the usable node that lacks least.
        largest: ByResource<u64>,
        /// Whether no node can ever serve the requests, whatever becomes free.
        #[serde(default)]
        never: bool,
        /// Nodes that are kept for requests of others.
        #[serde(default)]
        kept: usize,
        /// The node that is kept for one of the requests; left out if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reservation: Option<ReservedNode>,
        /// A few other pools that hold grants under a guarantee, those with most grants first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        guaranteed: Vec<Holder>,
        /// When the pool may preempt; left out if it has what it is due.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preemption: Option<Preemption>,
    },
    /// The requests exclude the hosts of all nodes with enough free slots.
    HostsExcluded {
        /// How many nodes these are; if `never` is set, all nodes with enough slots.
        nodes: usize,
        /// Usable nodes on other hosts, which have too few free slots.
        #[serde(default)]
        full: usize,
        /// Whether no node can ever serve the requests, whatever becomes free.
        #[serde(default)]
        never: bool,
    },
    /// A node could serve them, but the session still waits for a preferred host.
    NearNode {
        /// When it stops waiting.
        until_ms: i64,
        /// The first few of the hosts that the requests prefer.
        hosts: Vec<String>,
        /// How many hosts they prefer.
        host_count: usize,
    },
    /// A slot is free, and the next pass will consider the requests.
    NextPass {
        /// Sessions of the pool that are served first.
        sessions_ahead: usize,
        /// The groups, pools and sessions that are served before the session.
        #[serde(default, skip_serializing_if = "Ahead::is_nothing")]
        ahead: Ahead,
    },
    /// A reason that this version does not know.
    #[serde(other)]
    Other,
}

impl WaitReason {
    /// The value of the member `reason`.
    pub fn name(&self) -> &'static str {
        match self {
            WaitReason::SafeMode => "safe_mode",
            WaitReason::GroupAtMaximum { .. } => "group_at_maximum",
            WaitReason::PoolAtMaximum { .. } => "pool_at_maximum",
            WaitReason::SessionsAtMaximum { .. } => "sessions_at_maximum",
            WaitReason::UserAtMaximum { .. } => "user_at_maximum",
            WaitReason::Reserved { .. } => "reserved",
            WaitReason::AboveMaximum { .. } => "above_maximum",
            WaitReason::AmountsReserved { .. } => "amounts_reserved",
            WaitReason::NotServed { .. } => "not_served",
            WaitReason::NoFreeSlot { .. } => "no_free_slot",
            WaitReason::NodesUnusable { .. } => "nodes_unusable",
            WaitReason::TooLarge { .. } => "too_large",
            WaitReason::TooLittle { .. } => "too_little",
            WaitReason::HostsExcluded { .. } => "hosts_excluded",
            WaitReason::NearNode { .. } => "near_node",
            WaitReason::NextPass { .. } => "next_pass",
            WaitReason::Other => "other",
        }
    }
}

/// The groups, pools and sessions that are currently served before a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ahead {
    /// The number of other groups.
    pub groups: usize,
    /// The number of other pools in its group.
    pub pools: usize,
    /// The number of other sessions in its pool.
    pub sessions: usize,
    /// The first few of each, in the order in which they are served.
    pub first: Vec<First>,
}

impl Ahead {
    fn is_nothing(&self) -> bool {
        *self == Ahead::default()
    }
}

/// A group, a pool or a session that is served before another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct First {
    /// The group, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The pool, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// The session's handle, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Why it is first: `below_minimum`, `further_below_minimum`, `guaranteed`, `higher_priority`,
    /// `fewer_grants`, `earlier_deadline`, `earlier_start` or `name`.
    pub because: String,
}

/// Another pool that holds grants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The pool.
    pub pool: PoolName,
    /// Its grants.
    pub granted: i64,
    /// Grants that are guaranteed to it, if that counts against the session's pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<i64>,
    /// Grants that are guaranteed to its group, if that counts against the session's pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_minimum: Option<i64>,
    /// Resources that are guaranteed to it, if that counts against the session's pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_resources: Option<ByResource<u64>>,
    /// Resources that are guaranteed to its group, if that counts against the session's pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_minimum_resources: Option<ByResource<u64>>,
    /// Whether its priority is higher than that of the session's pool, in the same group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub higher_priority: bool,
}

/// A node that is kept for a request. Nothing else is granted there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedNode {
    /// The node.
    pub node: String,
    /// The id of the request.
    pub request: i32,
    /// When the reservation was made.
    pub since_ms: i64,
    /// When the node serves everybody again, at the latest.
    pub until_ms: i64,
}

/// When a pool may preempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    /// The bound that the pool is below: `minimum` or `share`.
    pub cause: String,
    /// The time from which it may preempt.
    pub due_ms: i64,
    /// Whether some session has preemptable grants above its share.
    pub possible: bool,
}

/// Nodes with free slots that cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unusable {
    /// Their free slots.
    pub free_slots: u64,
    /// Nodes that are blacklisted for the type.
    pub blacklisted: usize,
    /// Nodes on hosts that the host files do not allow.
    pub excluded: usize,
    /// Nodes that an operator drains.
    #[serde(default)]
    pub draining: usize,
    /// Nodes whose access was revoked.
    #[serde(default)]
    pub revoked: usize,
    /// Nodes that have less memory or disk space free than they must keep.
    pub below_reserve: usize,
    /// Late nodes, where `corona.cm.node.late.skip` is set.
    #[serde(default)]
    pub late: usize,
}

/// Sessions that have ended and are kept, the latest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetiredSessions {
    /// When the values were read.
    pub now_ms: i64,
    /// The number of all kept sessions.
    pub total: usize,
    /// The sessions.
    pub sessions: Vec<RetiredSession>,
}

/// A session that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetiredSession {
    /// Its handle.
    pub handle: String,
    /// Its name.
    pub name: String,
    /// Its user.
    pub user: String,
    /// The pool that it was submitted to; left out if it named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_pool: Option<PoolName>,
    /// Its pool after redirects.
    pub pool: PoolName,
    /// `VERY_LOW`, `LOW`, `NORMAL`, `HIGH` or `VERY_HIGH`.
    pub priority: String,
    /// A page about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its start.
    pub started_ms: i64,
    /// Its end.
    pub ended_ms: i64,
    /// How it ended: `SUCCESSFUL`, `KILLED`, `FAILED`, `TIMED_OUT`, `KILLED_ABORTED` or
    /// `FAILED_JOBTRACKER`.
    pub status: String,
    /// Its use of slots.
    pub types: ByType<RetiredCounts>,
}

/// The use of slots of one type by an ended session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetiredCounts {
    /// The largest number of grants that it has held at the same time.
    pub max_concurrent: i64,
    /// Grants that were not revoked.
    pub fulfilled: i64,
    /// Grants that were preempted or lost with their node.
    pub revoked: i64,
    /// Bytes of memory as it last reported them: maximum, momentary maximum, resident maximum.
    pub usage: Vec<i64>,
}

/// The order of session handles such as `202611210005.12`: by start time, then by number, so that
/// `.9` comes before `.10`. Texts that are no such handles have their place too.
pub fn handle_order(a: &str, b: &str) -> Ordering {
    let key = |handle: &str| {
        let (stamp, number) = handle.rsplit_once('.')?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let legal = digits(stamp) && digits(number);
        legal.then(|| Some((stamp.parse::<u128>().ok()?, number.parse::<u128>().ok()?))).flatten()
    };
    (key(a), a).cmp(&(key(b), b))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn handles_are_ordered_by_number() {
        let mut handles =
            ["202611210005.10", "202611210005.9", "202611210004.11", "x", "", "202611210005.09"];
        handles.sort_by(|a, b| handle_order(a, b));
        assert_eq!(
            handles,
            ["", "x", "202611210004.11", "202611210005.09", "202611210005.9", "202611210005.10"]
        );
    }

    #[test]
    fn a_reason_is_flat_and_an_unknown_one_can_be_read() {
        let pool = PoolName { group: "g".into(), pool: "p".into() };
        let first = First {
            group: None,
            pool: None,
            session: Some("1.2".into()),
            because: "earlier_start".into(),
        };
        let ahead = Ahead { sessions: 1, first: vec![first], ..Ahead::default() };
        let reason = WaitReason::PoolAtMaximum { pool, granted: 4, maximum: 4, ahead };
        let ids = vec![IdRange { first: 5, last: 7 }];
        let text = Some("pool g.p is full".to_owned());
        let wait = Wait { kind: ResourceType::Map, requests: 3, ids, text, reason };
        let mut value = json!({
            "type": "MAP", "requests": 3, "ids": [{"first": 5, "last": 7}],
            "text": "pool g.p is full", "reason": "pool_at_maximum",
            "pool": {"group": "g", "pool": "p"}, "granted": 4, "maximum": 4,
            "ahead": {
                "groups": 0, "pools": 0, "sessions": 1,
                "first": [{"session": "1.2", "because": "earlier_start"}],
            },
        });
        assert_eq!(serde_json::to_value(&wait).unwrap(), value);
        assert_eq!(value["reason"], wait.reason.name());
        assert_eq!(serde_json::from_value::<Wait>(value.clone()).unwrap(), wait);

        // As version 0.1.0 serves it.
        let members = value.as_object_mut().unwrap();
        members.remove("text");
        members.remove("ahead");
        let old = serde_json::from_value::<Wait>(value).unwrap();
        let WaitReason::PoolAtMaximum { ahead, .. } = old.reason else { panic!("{old:?}") };
        assert_eq!((old.text, ahead), (None, Ahead::default()));

        let text = json!({"type": "MAP", "requests": 1, "reason": "phase_of_the_moon", "day": 3});
        assert_eq!(serde_json::from_value::<Wait>(text).unwrap().reason, WaitReason::Other);
    }

    #[test]
    fn a_group_has_no_settings_of_a_pool_and_nothing_is_null() {
        let counts = PoolCounts { granted: 1, ..PoolCounts::default() };
        let types = ByType::from([(ResourceType::Map, counts)]);
        let group = Pool { group: "g".into(), types, ..Pool::default() };
        let text = serde_json::to_value(&group).unwrap();
        assert_eq!(
            text,
            json!({
                "group": "g", "sessions": 0,
                "types": {"MAP": {
                    "requested": 0, "granted": 1, "share": 0.0, "minimum": 0,
                }},
            })
        );
        assert_eq!(serde_json::from_value::<Pool>(text).unwrap(), group);

        let settings = PoolSettings {
            mode: "FAIR".into(),
            preemptable: true,
            request_max: false,
            priority: 2,
            weight: 1.5,
        };
        let pool = Pool { pool: Some("p".into()), settings: Some(settings), ..group };
        let text = serde_json::to_value(&pool).unwrap();
        assert_eq!(text["weight"], json!(1.5));
        assert_eq!(serde_json::from_value::<Pool>(text).unwrap(), pool);
    }
}
