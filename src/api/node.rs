//! The task tracker of a node. A member that has no value is left out, never `null`.
//!
//! | path | shape |
//! |---|---|
//! | `/api/v1/tracker` | [`TaskTracker`] |
//! | `/api/v1/jobs` | [`NodeJobs`] |
//! | `/api/v1/jobs/{job}` | [`NodeJobDetail`], pages by [`Paging`] with the attempt's id |
//! | `/api/v1/sees` | [`Unseen`] |
//! | any, with another status than 200 | [`Failure`] |

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::BudgetStatus;

/// A task tracker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskTracker {
    /// The version of the task tracker.
    pub version: String,
    /// When the values were read.
    pub now_ms: i64,
    /// When it was started.
    pub started_ms: i64,
    /// Its name.
    pub name: String,
    /// Its host.
    pub host: String,
    /// `ok`, or `degraded` while there are problems.
    pub state: String,
    /// Its problems, as sentences.
    pub problems: Vec<String>,
    /// Whether it takes new tasks.
    pub takes_tasks: bool,
    /// Whether it can start Java.
    pub java_usable: bool,
    /// Its cluster manager.
    pub cluster_manager: ManagerLink,
    /// Its slots, by `MAP` and `REDUCE`.
    pub slots: BTreeMap<String, TrackerSlots>,
    /// Attempts that it accepts for each slot.
    pub slot_multiplier: u32,
    /// Its jobs.
    pub jobs: usize,
    /// Its attempts, by stage.
    pub attempts: BTreeMap<String, usize>,
    /// Attempts that failed since it was started.
    pub failures: u32,
    /// The job trackers that run on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_trackers: Option<Vec<RunningJobTracker>>,
    /// The addresses at which it listens, by `http`, `actions`, `umbilical` and `thrift`.
    pub addresses: BTreeMap<String, String>,
    /// Its local directories.
    pub local_dirs: Vec<LocalDirectory>,
    /// Processes that wait for another task of their job.
    pub idle_processes: usize,
    /// The state of the archive of classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_archive: Option<String>,
    /// What the health script reports.
    pub health: NodeHealth,
    /// What all attempts have used.
    pub tasks_used: TaskUse,
    /// The machine.
    pub machine: MachineUse,
    /// What the machine allows this process; left out by versions that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetStatus>,
}

/// What the health script of a node reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHealth {
    /// Whether the node is healthy.
    pub healthy: bool,
    /// The report of a node that is not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub report: String,
    /// When the script last reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_ms: Option<i64>,
}

/// What attempts used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskUse {
    /// Processor time.
    pub cpu_ms: u64,
    /// Bytes that were read from disks.
    pub read_bytes: u64,
    /// Bytes that were written to disks.
    pub written_bytes: u64,
}

/// The machine of a node. Counts are since the start of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineUse {
    /// Processors.
    pub cpus: u32,
    /// Processor time in use.
    pub cpu_busy_ms: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of memory that are available.
    pub available_memory_bytes: u64,
    /// Bytes that were read from disks.
    pub disk_read_bytes: u64,
    /// Bytes that were written to disks.
    pub disk_written_bytes: u64,
    /// Bytes that were received.
    pub network_received_bytes: u64,
    /// Bytes that were sent.
    pub network_sent_bytes: u64,
}

/// A task tracker's connection to its cluster manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerLink {
    /// The cluster manager's address.
    pub address: String,
    /// The address of its pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<String>,
    /// When it last answered.
    pub last_answer_ms: i64,
    /// Heartbeats that it answered.
    pub answered: u64,
    /// Heartbeats that failed.
    pub failed: u64,
    /// Heartbeats that failed since the last answer.
    pub failed_in_a_row: u32,
    /// Why the last heartbeat failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Slots of one type of a task tracker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackerSlots {
    /// Slots that the cluster manager grants on it.
    pub total: u32,
    /// Slots in use.
    pub used: u32,
    /// The same as `total`.
    pub granted: u32,
    /// Attempts that the node accepts at a time.
    pub accepted: u32,
}

/// A job tracker that runs on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningJobTracker {
    /// The id of its attempt.
    pub attempt: String,
    /// The id of its job.
    pub job: String,
    /// The address of the job tracker that submitted it.
    pub parent: String,
    /// When it was started.
    pub started_ms: i64,
    /// The number of its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
}

/// A local directory of a task tracker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalDirectory {
    /// Its path.
    pub path: String,
    /// Why it is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The size of its file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Free space of its file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
}

/// The jobs of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeJobs {
    /// When the values were read.
    pub now_ms: i64,
    /// The jobs.
    pub jobs: Vec<NodeJob>,
}

/// A job of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeJob {
    /// Its id.
    pub id: String,
    /// The handle of its session.
    pub session: String,
    /// The address of its job tracker.
    pub job_tracker: String,
    /// Its attempts on the node, by stage.
    pub counts: BTreeMap<String, usize>,
}

/// A job of a node with its attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeJobDetail {
    /// When the values were read.
    pub now_ms: i64,
    /// The same as in the list.
    #[serde(flatten)]
    pub job: NodeJob,
    /// Present if there are more: the id to pass as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The attempts, sorted by id.
    pub attempts: Vec<NodeAttempt>,
}

/// An attempt on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeAttempt {
    /// Its id.
    pub id: String,
    /// `task`, `job set-up`, `job clean-up` or `attempt clean-up`.
    pub kind: String,
    /// `MAP` or `REDUCE`.
    #[serde(rename = "type")]
    pub of: String,
    /// Its stage on the node.
    pub stage: String,
    /// Its state by the original's name.
    pub state: String,
    /// Its phase by the original's name.
    pub phase: String,
    /// From 0 to 1.
    pub progress: f32,
    /// The status that it reported.
    pub status: String,
    /// Slots that it holds.
    pub slots: i32,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<i64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_ms: Option<i64>,
    /// The number of its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Bytes of memory that its processes use.
    pub memory_bytes: u64,
    /// The most bytes of memory that they used.
    pub peak_memory_bytes: u64,
    /// What it used.
    #[serde(flatten)]
    pub used: TaskUse,
}

/// What a node does not see; empty if it sees everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// The file with the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marker: Option<String>,
    /// The first of the files that is not there, or is shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}
