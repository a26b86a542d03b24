//! The small types that the engine speaks: plain data, no bytes of the wire, no keys of a file.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since the Unix epoch, as on the wire (`grantedTime`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Millis(pub i64);

impl Millis {
    /// The time `span_ms` milliseconds later, held at the end of the range.
    pub fn plus_ms(self, span_ms: i64) -> Millis {
        Millis(self.0.saturating_add(span_ms))
    }

    /// Milliseconds from `earlier` to this time; negative when `earlier` is later.
    pub fn since(self, earlier: Millis) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A span of milliseconds as people read it: `59 s`, `1 min 1 s`, `1 h 1 min`, `1 d 1 h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub i64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.max(0) / 1000;
        match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
            (0, 0, 0, seconds) => write!(f, "{seconds} s"),
            (0, 0, minutes, seconds) => write!(f, "{minutes} min {seconds} s"),
            (0, hours, minutes, _) => write!(f, "{hours} h {minutes} min"),
            (days, hours, ..) => write!(f, "{days} d {hours} h"),
        }
    }
}

/// The purpose of a node's slot. Spec: cluster-manager/01 §5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ResourceType {
    /// A map task.
    Map,
    /// A reduce task.
    Reduce,
    /// A job tracker that runs on a node of the cluster.
    JobTracker,
}

impl ResourceType {
    /// All types, in the order of their numbers on the wire.
    pub const ALL: [ResourceType; 3] = [Self::Map, Self::Reduce, Self::JobTracker];

    /// The number on the wire, which is also an index into a [`PerType`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The type with this number on the wire.
    pub fn from_number(number: i32) -> Option<Self> {
        usize::try_from(number).ok().and_then(|index| Self::ALL.get(index).copied())
    }

    /// The name on the wire and in configuration, such as `JOBTRACKER`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "MAP",
            Self::Reduce => "REDUCE",
            Self::JobTracker => "JOBTRACKER",
        }
    }

    /// The type with this name, upper case as on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One value for each [`ResourceType`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerType<T>(pub [T; 3]);

impl<T: Copy> PerType<T> {
    /// The same value for every type.
    pub fn all(value: T) -> Self {
        PerType([value; 3])
    }
}

impl<T> PerType<T> {
    /// The results of `map` for each value.
    pub fn map_ref<U>(&self, map: impl FnMut(&T) -> U) -> PerType<U> {
        PerType(self.0.each_ref().map(map))
    }
}

impl<T> std::ops::Index<ResourceType> for PerType<T> {
    type Output = T;
    #[allow(clippy::indexing_slicing, reason = "each of the three types has its place")]
    fn index(&self, kind: ResourceType) -> &T {
        &self.0[kind.index()]
    }
}

impl<T> std::ops::IndexMut<ResourceType> for PerType<T> {
    #[allow(clippy::indexing_slicing, reason = "each of the three types has its place")]
    fn index_mut(&mut self, kind: ResourceType) -> &mut T {
        &mut self.0[kind.index()]
    }
}

/// How urgent a session is within its pool. Spec: cluster-manager/01 §5.2.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
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
    /// All priorities, in the order of their numbers on the wire.
    pub const ALL: [SessionPriority; 5] =
        [Self::VeryLow, Self::Low, Self::Normal, Self::High, Self::VeryHigh];

    /// The priority with this number on the wire.
    pub fn from_number(number: i32) -> Option<Self> {
        usize::try_from(number).ok().and_then(|index| Self::ALL.get(index).copied())
    }

    /// The name on the wire, such as `VERY_LOW`.
    pub fn name(self) -> &'static str {
        match self {
            Self::VeryLow => "VERY_LOW",
            Self::Low => "LOW",
            Self::Normal => "NORMAL",
            Self::High => "HIGH",
            Self::VeryHigh => "VERY_HIGH",
        }
    }
}

/// The state or result of a session. Spec: cluster-manager/01 §5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SessionStatus {
    /// 1: alive.
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
    /// 7: the job tracker lost step with the cluster manager.
    FailedJobtracker,
}

impl SessionStatus {
    /// All statuses, in the order of their numbers on the wire, which start at 1.
    pub const ALL: [SessionStatus; 7] = [
        Self::Running,
        Self::Failed,
        Self::Successful,
        Self::Killed,
        Self::TimedOut,
        Self::KilledAborted,
        Self::FailedJobtracker,
    ];

    /// The status with this number on the wire.
    pub fn from_number(number: i32) -> Option<Self> {
        usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_sub(1))
            .and_then(|index| Self::ALL.get(index).copied())
    }

    /// The name on the wire, such as `TIMED_OUT`.
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

/// A host and a port, as a peer wrote them. The port is not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    /// Host name or literal address.
    pub host: Arc<str>,
    /// TCP port.
    pub port: i32,
}

/// The number of an access string of a closed cluster, and of the certificates that were issued for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AccessId(pub u32);

impl fmt::Display for AccessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Resources of a node or of a request. Absent numbers are absent on the wire and count as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputeSpecs {
    /// CPUs of a node; slots that a request takes.
    pub num_cpus: i16,
    /// Megabytes a second.
    pub network_mbps: Option<i16>,
    /// Megabytes.
    pub memory_mb: Option<i32>,
    /// Gigabytes.
    pub disk_gb: Option<i32>,
}

/// The name of the directory for the histories of a session, below that of all sessions:
/// `202611210043.1` for the session `202611210043.1234` with 1,000 sessions in a directory. None if
/// the id is not that of a session, or the number per directory is zero. Spec: cluster-manager/05 §3.1.
pub fn session_directory(session: &str, sessions_per_directory: i32) -> Option<String> {
    let (stamp, number) = session.split_once('.')?;
    let number: i32 = number.parse().ok()?;
    Some(format!("{stamp}.{}", number.checked_div(sessions_per_directory)?))
}

/// The name of a pool: its group and its own name in the group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PoolName {
    /// The pool group.
    pub group: Arc<str>,
    /// The pool within the group.
    pub pool: Arc<str>,
}

impl PoolName {
    /// The pool `pool` of the group `group`.
    pub fn new(group: &str, pool: &str) -> Self {
        PoolName { group: group.into(), pool: pool.into() }
    }

    /// Whether both names are non-empty and made of `0-9 a-z - _` only.
    /// Spec: cluster-manager/02 §3.16.
    pub fn is_legal(&self) -> bool {
        [&self.group, &self.pool].into_iter().all(|name| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|b| b.is_ascii_digit() || b.is_ascii_lowercase() || b == b'-' || b == b'_')
        })
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.group, self.pool)
    }
}

/// A session's registration, sent at its start and in updates. Fields that a peer may leave out
/// stay absent, so that they can be returned unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Where the session's driver takes notifications.
    pub address: Address,
    /// Name for people, such as the job's name.
    pub name: Arc<str>,
    /// The user.
    pub user_id: Arc<str>,
    /// Groups of the user.
    pub group_ids: Option<Vec<Arc<str>>>,
    /// The pool that the session was submitted to.
    pub pool: Option<PoolName>,
    /// Priority within its pool.
    pub priority: Option<SessionPriority>,
    /// Whether its grants should not be taken back for others.
    pub no_preempt: Option<bool>,
    /// A page about the session.
    pub url: Option<Arc<str>>,
    /// Deadline in milliseconds since the epoch; 0 counts as absent.
    pub deadline: Option<i64>,
}

/// One wish of a session: a slot of a type, perhaps near some hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRequest {
    /// Chosen by the session, unique within it over all types.
    pub id: i32,
    /// Hosts to be near to, best first; empty for anywhere.
    pub hosts: Vec<Arc<str>>,
    /// The resources that the slot needs. Absent counts as one CPU.
    pub specs: Option<ComputeSpecs>,
    /// The type of the slot.
    pub kind: ResourceType,
    /// Hosts not to be used.
    pub exclude_hosts: Vec<Arc<str>>,
}

/// A slot given to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The request's id.
    pub id: i32,
    /// The node's name.
    pub node_name: Arc<str>,
    /// The node's address.
    pub address: Address,
    /// When the slot was given.
    pub granted_at: Millis,
    /// The type of the slot.
    pub kind: ResourceType,
    /// The address of the node's service for this type, as reported: `host:port`.
    pub app_info: Arc<str>,
}

/// A node's report in a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Name of the node, chosen by it; not the host.
    pub name: Arc<str>,
    /// Where the node is.
    pub address: Address,
    /// Its total resources.
    pub total: ComputeSpecs,
    /// Its free resources; absent if the node did not report them.
    pub free: Option<ComputeSpecs>,
    /// For each type that it serves, where.
    pub apps: PerType<Option<Arc<str>>>,
}
