//! Shapes of `/api/v1/status`: what an operator wants to know first, and why administrative calls
//! failed.

use serde::{Deserialize, Serialize};

use super::{ByType, Slots};

/// The cluster manager at a glance, for an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of the cluster manager.
    pub version: String,
    /// When the data was read.
    pub now_ms: i64,
    /// When the cluster manager was first started; a recovery does not change it.
    pub first_started_ms: i64,
    /// When this process was started.
    pub process_started_ms: i64,
    /// The time since the start of this process.
    pub uptime_ms: i64,
    /// The safe mode.
    pub safe_mode: SafeModeStatus,
    /// The copy of the safe mode flag, which clients poll.
    pub proxy_job_tracker: ProxyJobTrackerStatus,
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Running sessions.
    pub sessions: usize,
    /// Notifications that sessions have not acknowledged yet.
    pub pending_notifications: usize,
    /// Slots of all nodes.
    pub slots: ByType<Slots>,
    /// The state file.
    pub state_file: StateFileStatus,
    /// Outcomes of administrative calls since the start of the process, one entry for each kind
    /// that was called.
    pub operations: Vec<OperationStatus>,
    /// The problems, as on the cluster page; empty if there are none.
    pub problems: Vec<Problem>,
}

/// The safe mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SafeModeStatus {
    /// Whether it is on.
    pub on: bool,
    /// When it was last turned on or off, or when the process was started.
    pub since_ms: i64,
}

/// The proxy job tracker's part in safe mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyJobTrackerStatus {
    /// Its address, as `host:port`.
    pub address: String,
    /// The flag that it last accepted from this process; left out if it accepted none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flag: Option<bool>,
    /// When it accepted the flag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged_ms: Option<i64>,
}

/// The state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFileStatus {
    /// Its absolute path.
    pub path: String,
    /// When it was last saved, by this process or before its start; left out if there is no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_ms: Option<i64>,
    /// Its size in bytes at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The outcomes of administrative calls of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationStatus {
    /// `set_safe_mode`, `unset_safe_mode`, `persist_state`, `refresh_nodes` or `restart_nodes`.
    pub operation: String,
    /// The last call that has finished.
    pub last: OperationAttempt,
    /// The last call that failed; left out if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<OperationAttempt>,
}

/// The outcome of an administrative call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationAttempt {
    /// When it finished.
    pub finished_ms: i64,
    /// The address of the caller.
    pub caller: String,
    /// Whether it succeeded.
    pub succeeded: bool,
    /// Why it failed, as a sentence without a full stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Something that an operator should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// How serious it is.
    pub severity: Severity,
    /// The problem, as a sentence.
    pub text: String,
    /// The path of the page that shows more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
}

/// How serious a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something does not work.
    Error,
    /// Something may not be as intended.
    Warning,
    /// A severity that this version does not know.
    #[serde(other)]
    Other,
}
