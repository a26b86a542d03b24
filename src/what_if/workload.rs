//! What a cluster was asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use corona_model::resources::says_nothing;
use corona_model::types::{ComputeSpecs, PoolName, ResourceType, SessionPriority};
use serde::{Deserialize, Serialize};

/// The largest time of a workload, in milliseconds: some 31,000 years.
pub(crate) const MOST_MS: i64 = 1_000_000_000_000_000;

/// Nodes and sessions, with times in milliseconds since the beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// Its name, for people.
    pub name: String,
    /// The beginning, in milliseconds since the Unix epoch.
    pub began_ms: i64,
    /// The end of what is known.
    pub until_ms: i64,
    /// All nodes that are in the cluster at some time.
    pub nodes: Vec<Node>,
    /// In the order of their start.
    pub sessions: Vec<Session>,
    /// Nodes that fail, beyond those that the workload has leave.
    pub failures: Vec<Failure>,
    /// What is assumed where the source does not say it, as sentences.
    pub assumptions: BTreeSet<String>,
}

/// A node, while it is in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// The name of its host, which requests prefer or exclude.
    pub host: Arc<str>,
    /// Absent for the default rack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<Arc<str>>,
    /// Its slots follow from this number and `cm.cpu.to.resource.partitioning`.
    pub cpus: i16,
    /// Absent if it is not known, like disk space and network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<i32>,
    /// Its disk space, in gigabytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_gb: Option<i32>,
    /// Its network, in megabytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_mbps: Option<i16>,
    /// When it joins the cluster.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub from_ms: i64,
    /// Absent if it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
    /// Spans in between in which it is lost, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<(i64, i64)>,
    /// Spans in which it is granted nothing, because an operator drains it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drained: Vec<(i64, i64)>,
}

impl Node {
    /// A node that is there all the time.
    pub(crate) fn new(name: Arc<str>, host: Arc<str>, total: ComputeSpecs) -> Node {
        let ComputeSpecs { num_cpus, network_mbps, memory_mb, disk_gb } = positive(total);
        let cpus = num_cpus.max(1);
        Node { name, host, cpus, memory_mb, disk_gb, network_mbps, ..Node::default() }
    }

    /// What it reports, as far as it is known.
    pub(crate) fn total(&self) -> ComputeSpecs {
        let Node { cpus, memory_mb, disk_gb, network_mbps, .. } = *self;
        ComputeSpecs { num_cpus: cpus, network_mbps, memory_mb, disk_gb }
    }
}

/// A node that fails at a time, and returns at another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The node's name.
    pub node: Arc<str>,
    /// When it fails.
    pub at_ms: i64,
    /// When it returns; none if it does not.
    pub until_ms: Option<i64>,
}

/// One job tracker's session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    /// Its id in the recording or file.
    pub id: Arc<str>,
    /// The job's name.
    pub name: Arc<str>,
    /// The user whose job it is.
    pub user: Arc<str>,
    /// Groups of the user.
    pub groups: Arc<[Arc<str>]>,
    /// The pool that it asks for; none for the default one.
    pub pool: Option<PoolName>,
    /// Its priority, if it names one.
    pub priority: Option<SessionPriority>,
    /// Whether its grants may not be taken back.
    pub no_preempt: bool,
    /// When it should have ended.
    pub deadline_ms: Option<i64>,
    /// When it starts, unless it follows another session.
    pub at_ms: i64,
    /// The place of the session after whose end it starts, and so many milliseconds later.
    pub follows: Option<(u32, i64)>,
    /// The time from the end of its last task to its own end.
    pub lingers_ms: i64,
    /// How long it took, if that was seen.
    pub recorded_ms: Option<i64>,
    /// Its tasks. Others refer to them by their place in this list.
    pub tasks: Vec<Task>,
}

/// A request for one slot, and the work that is done there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The type of its slot.
    pub kind: ResourceType,
    /// What it requests of a node. 0 CPUs are none named.
    pub takes: Option<ComputeSpecs>,
    /// How long the work takes. Of a reduce that shuffles, from the end of the session's maps.
    pub ms: i64,
    /// How long it takes where none of the preferred hosts is, if that is known to differ.
    pub away_ms: Option<i64>,
    /// It is requested when so many tasks of the session have ended.
    pub after: u32,
    /// And so many milliseconds later.
    pub delay_ms: i64,
    /// Its work counts from the end of the session's maps, if these end later than it begins.
    pub shuffles: bool,
    /// Hosts where it would like to run.
    pub hosts: Arc<[Arc<str>]>,
    /// Hosts where it must not run.
    pub exclude: Arc<[Arc<str>]>,
    /// How long it waited for its slot, if that was seen.
    pub waited_ms: Option<i64>,
    /// How long it held its slot, if that was seen.
    pub held_ms: Option<i64>,
}

impl Task {
    /// A task that is requested at the start of its session.
    pub fn new(kind: ResourceType, ms: i64) -> Task {
        Task {
            kind,
            takes: None,
            ms,
            away_ms: None,
            after: 0,
            delay_ms: 0,
            shuffles: false,
            hosts: Arc::default(),
            exclude: Arc::default(),
            waited_ms: None,
            held_ms: None,
        }
    }
}

/// A workload that was read, and what could not be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// All that could be read.
    pub workload: Workload,
    /// What was left out and why, as sentences.
    pub left_out: Vec<String>,
}

impl Workload {
    /// Tasks of all sessions.
    pub fn tasks(&self) -> usize {
        self.sessions.iter().map(|session| session.tasks.len()).sum()
    }

    pub(crate) fn assume(&mut self, what: &str) {
        if !self.assumptions.contains(what) {
            self.assumptions.insert(what.to_owned());
        }
    }
}

pub(crate) fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// What a request names of a node's resources. The numbers that the original's job trackers always send name nothing.
pub(crate) fn named(specs: Option<ComputeSpecs>) -> Option<ComputeSpecs> {
    let specs = specs.filter(|specs| !says_nothing(specs)).map(positive);
    specs.filter(|specs| *specs != ComputeSpecs::default())
}

/// Without numbers that are no amounts.
fn positive(specs: ComputeSpecs) -> ComputeSpecs {
    ComputeSpecs {
        num_cpus: specs.num_cpus.max(0),
        network_mbps: specs.network_mbps.filter(|amount| *amount > 0),
        memory_mb: specs.memory_mb.filter(|amount| *amount > 0),
        disk_gb: specs.disk_gb.filter(|amount| *amount > 0),
    }
}

/// A pool as `group.pool`; a name without a dot is a pool of the group `default`.
pub(crate) fn pool_of(text: &str) -> PoolName {
    let (group, pool) = text.split_once('.').unwrap_or(("default", text));
    PoolName::new(group, pool)
}
