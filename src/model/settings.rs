//! The engine's settings: typed, complete, with the defaults of the original.
//!
//! The configuration files are parsed elsewhere; this is their result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::form::Later;
use crate::queues::Queues;
use crate::resources::{Amounts, Dimension, Resources};
use crate::types::{PerType, PoolName, ResourceType};

/// No limit, as the original writes it.
pub const UNLIMITED: i32 = i32::MAX;

/// Everything that the engine can be configured with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Slots of a node by its CPU count.
    pub partitioning: Partitioning,
    /// A node without a heartbeat for longer than this expires. `cm.node.expiryinterval`
    pub node_expiry_ms: i64,
    /// A node without a heartbeat for longer than this is late until its next heartbeat or its
    /// expiry: `corona.cm.node.late.heartbeats` times `corona.clustermanager.heartbeat.interval`
    pub node_late_ms: i64,
    /// Late nodes are given no grants. `corona.cm.node.late.skip`
    pub skip_late_nodes: bool,
    /// A session without a heartbeat for longer than this is ended. `cm.session.expiryinterval`
    pub session_expiry_ms: i64,
    /// Ended sessions that are remembered. `cm.sessions.num.retired`
    pub retired_sessions: usize,
    /// Free memory that a node must keep. `cm.node.reserved.memory.mb`
    pub reserved_memory_mb: i32,
    /// Free disk space that a node must keep. `cm.node.reserved.disk.gb`
    pub reserved_disk_gb: i32,
    /// When nodes are blacklisted.
    pub faults: FaultLimits,
    /// Pause between restart batches. `corona.node.restart.interval`
    pub restart_interval_ms: i64,
    /// How late a session's view may be before a line is logged. `cm.heartbeat.delay.max`
    pub heartbeat_delay_max_ms: i64,
    /// Root of the session log paths. `corona.sessions.log.dir`
    pub sessions_log_dir: Arc<str>,
    /// Sessions in one log directory. `corona.history.max.per.dir`
    pub sessions_per_log_dir: i32,
    /// Only pools of the pools file may be used. `cm.configured.pools.only`
    pub configured_pools_only: bool,
    /// Limits on the state that peers may make the engine hold.
    pub bounds: Bounds,
    /// The general scheduling file.
    pub scheduling: Scheduling,
    /// The pools file.
    pub pools: Pools,
    /// The resources that are counted beside slots.
    #[serde(default)]
    pub resources: Later<Resources>,
}

/// Slots for each type by CPU count. Spec: cluster-manager/03 §2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partitioning(pub BTreeMap<u16, BTreeMap<ResourceType, u32>>);

impl Partitioning {
    /// The types named anywhere: the only ones that are scheduled.
    pub fn legal_types(&self) -> PerType<bool> {
        let mut legal = PerType::all(false);
        for kind in self.0.values().flat_map(BTreeMap::keys) {
            legal[*kind] = true;
        }
        legal
    }

    /// Slots of a node with `num_cpus` CPUs: the entry for that count, else the entry for 1 times
    /// the count. `None` when neither exists.
    pub fn slots(&self, num_cpus: i16) -> Option<PerType<u32>> {
        let exact = u16::try_from(num_cpus).ok().and_then(|cpus| self.0.get(&cpus));
        let (entry, factor) = match exact {
            Some(entry) => (entry, 1),
            None => (self.0.get(&1)?, u32::try_from(num_cpus).unwrap_or(0)),
        };
        let mut slots = PerType::all(0);
        for (kind, count) in entry {
            slots[*kind] = count.saturating_mul(factor);
        }
        Some(slots)
    }
}

/// Thresholds of the blacklist; each is exceeded, not reached. Spec: cluster-manager/02 §5.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultLimits {
    /// `cm.node.max.failed.connections`
    pub failed_connection_sessions: u32,
    /// `cm.node.max.failed.connections.session`
    pub failed_connections_of_a_session: i32,
    /// `cm.node.max.failures`
    pub failure_sessions: u32,
    /// `cm.node.max.failures.session`
    pub failures_of_a_session: i32,
}

/// Bounds that the original does not have. A peer that would exceed one is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Sessions that run at a time. `corona.cm.max.sessions`
    pub sessions: usize,
    /// Requests known for one session, granted ones included. `corona.cm.max.requests.per.session`
    pub requests_per_session: usize,
    /// Nodes known at a time. `corona.cm.max.nodes`
    pub nodes: usize,
    /// Pools known at a time, configured ones not counted. `corona.cm.max.pools`
    pub pools: usize,
}

/// How the children of a pool are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SchedulingMode {
    /// Priority, then first come first served.
    #[default]
    Fifo,
    /// By priority, then by the fewest grants.
    Fair,
    /// Priority, then the earliest deadline.
    Deadline,
}

/// The general scheduling file. Spec: cluster-manager/06 §3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scheduling {
    /// `nodeLocalityWait<T>`
    pub node_locality_wait_ms: PerType<i64>,
    /// `rackLocalityWait<T>`
    pub rack_locality_wait_ms: PerType<i64>,
    /// `defaultSchedulingMode`
    pub default_mode: SchedulingMode,
    /// `shareStarvingRatio`, 0 to 1
    pub share_starving_ratio: f64,
    /// `grantsPerIteration`, at least 1
    pub grants_per_pass: u32,
    /// `minPreemptPeriod`
    pub min_preempt_period_ms: i64,
    /// `starvingTimeForShare`
    pub starving_time_for_share_ms: i64,
    /// `starvingTimeForMinimum`
    pub starving_time_for_minimum_ms: i64,
    /// `preemptedTaskMaxRunningTime`
    pub preempted_task_max_running_time_ms: i64,
    /// `preemptionRounds`
    pub preemption_rounds: u32,
    /// `redirect`: source to destination, one level
    #[serde(with = "by_pool")]
    pub redirects: BTreeMap<PoolName, PoolName>,
}

/// The pools file. Spec: cluster-manager/06 §4.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pools {
    /// Limits of groups, by name; also groups that only hold pools.
    pub groups: BTreeMap<Arc<str>, GroupSettings>,
    /// Settings of pools that differ from the defaults or are named.
    #[serde(with = "by_pool")]
    pub pools: BTreeMap<PoolName, PoolSettings>,
    /// Pools whose large jobs are redirected.
    #[serde(with = "by_pool")]
    pub size_redirects: BTreeMap<PoolName, SizeRedirect>,
    /// The rules of a tree of queues; empty for a file of two levels.
    #[serde(default)]
    pub queues: Later<Queues>,
}

/// A pool group's own settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSettings {
    /// `min<T>`
    pub minimum: PerType<i32>,
    /// `max<T>`
    pub maximum: PerType<i32>,
}

/// A pool's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolSettings {
    /// `min<T>`
    pub minimum: PerType<i32>,
    /// `max<T>`
    pub maximum: PerType<i32>,
    /// `weight`, finite
    pub weight: f64,
    /// `priority`, larger first
    pub priority: i32,
    /// `schedulingMode`; absent for the default mode
    pub mode: Option<SchedulingMode>,
    /// `preemptable`
    pub preemptable: bool,
    /// `requestMax`: one call may not ask for more than the pool's maximum
    pub request_max: bool,
    /// `whitelist`, opaque
    pub whitelist: Option<Arc<str>>,
}

/// `redirectJobWithLimit`: jobs of at least this input size go to another pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeRedirect {
    /// Bytes of input from which on the redirect applies.
    pub input_size_limit_bytes: i64,
    /// Where those jobs go.
    pub destination: PoolName,
}

/// The hosts that may heartbeat. Spec: cluster-manager/06 §5.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosts {
    /// Entries of the include file; empty means every host.
    pub include: BTreeSet<Arc<str>>,
    /// Entries of the exclude file; they win.
    pub exclude: BTreeSet<Arc<str>>,
}

impl Settings {
    /// What each node must keep of its resources.
    pub fn kept(&self) -> Amounts {
        let kept = |amount: i32| u64::try_from(amount).unwrap_or(0);
        let mut all = Amounts::ZERO;
        all[Dimension::Memory] = kept(self.reserved_memory_mb);
        all[Dimension::Disk] = kept(self.reserved_disk_gb);
        all
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            partitioning: Partitioning::default(),
            node_expiry_ms: 600_000,
            node_late_ms: 12_000,
            skip_late_nodes: false,
            session_expiry_ms: 3_125_000,
            retired_sessions: 1000,
            reserved_memory_mb: 0,
            reserved_disk_gb: 0,
            faults: FaultLimits {
                failed_connection_sessions: 20,
                failed_connections_of_a_session: 1,
                failure_sessions: 40,
                failures_of_a_session: 5,
            },
            restart_interval_ms: 1_800_000,
            heartbeat_delay_max_ms: 600_000,
            sessions_log_dir: "/tmp/history".into(),
            sessions_per_log_dir: 1000,
            configured_pools_only: false,
            bounds: Bounds {
                sessions: 100_000,
                requests_per_session: 5_000_000,
                nodes: 200_000,
                pools: 10_000,
            },
            scheduling: Scheduling::default(),
            pools: Pools::default(),
            resources: Later::default(),
        }
    }
}

impl Default for Scheduling {
    fn default() -> Self {
        Scheduling {
            node_locality_wait_ms: PerType::all(0),
            rack_locality_wait_ms: PerType::all(0),
            default_mode: SchedulingMode::Fifo,
            share_starving_ratio: 0.7,
            grants_per_pass: 5000,
            min_preempt_period_ms: 60_000,
            starving_time_for_share_ms: 300_000,
            starving_time_for_minimum_ms: 180_000,
            preempted_task_max_running_time_ms: 300_000,
            preemption_rounds: 10,
            redirects: BTreeMap::new(),
        }
    }
}

impl Default for GroupSettings {
    fn default() -> Self {
        GroupSettings { minimum: PerType::all(0), maximum: PerType::all(UNLIMITED) }
    }
}

impl Default for PoolSettings {
    fn default() -> Self {
        PoolSettings {
            minimum: PerType::all(0),
            maximum: PerType::all(UNLIMITED),
            weight: 1.0,
            priority: 0,
            mode: None,
            preemptable: true,
            request_max: false,
            whitelist: None,
        }
    }
}

/// Maps by pool as lists of pairs: formats such as JSON take only text as a key.
pub(crate) mod by_pool {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::PoolName;

    pub(crate) fn serialize<V: Serialize, S: Serializer>(
        map: &BTreeMap<PoolName, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(crate) fn deserialize<'de, V: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<PoolName, V>, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_json() {
        let mut settings = Settings::default();
        settings.partitioning.0.insert(4, [(ResourceType::Map, 3)].into());
        let (small, large) = (PoolName::new("g", "small"), PoolName::new("g", "large"));
        settings.scheduling.redirects.insert(small.clone(), large.clone());
        settings.pools.groups.insert("g".into(), GroupSettings::default());
        settings.pools.pools.insert(small.clone(), PoolSettings::default());
        let redirect = SizeRedirect { input_size_limit_bytes: 7, destination: large };
        settings.pools.size_redirects.insert(small, redirect);
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
    }
}
