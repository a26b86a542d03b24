//! Shapes of `/api/v1/status`: an operator's first questions, and the reasons of failed
//! administrative calls.

use serde::{Deserialize, Serialize};

use crate::BudgetStatus;

use super::{ByResource, ByType, ClusterResource, Slots, Versions};

/// The cluster manager at a glance, for an operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// The resources of all nodes; left out while only slots are counted.
    #[serde(default, skip_serializing_if = "ByResource::is_empty")]
    pub resources: ByResource<ClusterResource>,
    /// The journal; left out when none is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalStatus>,
    /// The part in fail-over; left out when this is the only instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ha: Option<HaStatus>,
    /// The state file.
    pub state_file: StateFileStatus,
    /// The host files in force; left out by versions that do not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_files: Option<HostFilesStatus>,
    /// What the machine allows this process; left out by versions that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetStatus>,
    /// Outcomes of administrative calls since the start of the process, one entry for each kind
    /// that was called.
    pub operations: Vec<OperationStatus>,
    /// The problems, as on the cluster page; empty if there are none.
    pub problems: Vec<Problem>,
    /// The versions that run in the cluster; left out by versions that do not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
}

/// The safe mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SafeModeStatus {
    /// Whether it is on.
    pub on: bool,
    /// When it was last turned on or off, or when the process was started.
    pub since_ms: i64,
}

/// The proxy job tracker's part in safe mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// The host files, whose names are those of the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFilesStatus {
    /// The file of `cm.hosts`; left out when none is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include: Option<HostFileStatus>,
    /// The file of `cm.hosts.exclude`; left out when none is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude: Option<HostFileStatus>,
}

/// A host file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFileStatus {
    /// Its path.
    pub path: String,
    /// Hosts in it, as it was last read.
    pub hosts: usize,
}

/// The state file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// The journal, from which the next start resumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Its directory, as an absolute path.
    pub directory: String,
    /// When a reply may leave: `write`, when its record is written, or `always`, when it is on disk.
    pub sync: String,
    /// The number of the last record.
    pub last_record: u64,
    /// The number of the last record that a crash of the process cannot lose.
    pub committed_record: u64,
    /// The number of the last record that a power cut cannot lose.
    pub durable_record: u64,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Bytes of the records behind the last image.
    pub tail_bytes: u64,
    /// Bytes that wait to be written.
    pub pending_bytes: u64,
    /// For how long the disk has accepted none of the records that wait; 0 if none waits.
    #[serde(default)]
    pub stalled_ms: u64,
    /// Writes since the start of the process, each of one or more records.
    pub writes: u64,
    /// Number of times that records were synced to the disk since the start of the process.
    pub syncs: u64,
    /// The number of the last record that the last image includes; left out without an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_record: Option<u64>,
    /// Bytes of the last image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_bytes: Option<u64>,
    /// When the last image was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_ms: Option<i64>,
    /// How long the making of the last image took; left out when this process has made none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_took_ms: Option<u64>,
    /// Why the last attempt to make an image failed; left out when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_failure: Option<String>,
    /// How this process resumed from the journal; left out when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<JournalRecovery>,
}

/// The leader's part in fail-over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaStatus {
    /// `leader`.
    pub role: String,
    /// The name of this instance.
    pub instance: String,
    /// The number of the leadership.
    pub epoch: u64,
    /// The standbys that have a copy of the journal.
    pub standbys: Vec<StandbyOfLeader>,
}

/// A standby as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyOfLeader {
    /// The name of the instance.
    pub instance: String,
    /// The number of the last record that it has stored.
    pub acknowledged_record: u64,
    /// Whether it may take over.
    pub in_sync: bool,
    /// Whether it does not count because it delayed calls, until it has been fast for a while.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slow: bool,
    /// Its version; left out for versions that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The response of an instance that does not lead, to all paths of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyStatus {
    /// The role of this instance, and where the leader's pages are.
    pub error: String,
    /// The version of the program.
    pub version: String,
    /// The part in fail-over.
    pub ha: StandbyState,
}

/// The part of an instance that does not lead: `/api/v1/ha`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyState {
    /// `standby` or `fenced`.
    pub role: String,
    /// The name of this instance.
    pub instance: String,
    /// The name of the leader; left out if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The leader's pages; left out if no leader is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_pages: Option<String>,
    /// The number of the leadership; left out if no leader is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Whether ZooKeeper can be reached.
    pub zookeeper_connected: bool,
    /// Whether records of the leader arrive.
    pub copying: bool,
    /// Whether the copy of the journal is complete.
    pub copy_complete: bool,
    /// The number of the last record of the copy.
    pub last_record: u64,
    /// Connections that are relayed to the leader or wait for one.
    pub relayed_connections: u64,
    /// Why this instance was fenced; left out if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fenced_because: Option<String>,
}

/// How a process resumed from the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalRecovery {
    /// How long it took.
    pub took_ms: u64,
    /// The number of the last record that the image included; 0 without an image.
    pub image_record: u64,
    /// Records behind the image, all of which were applied.
    pub records: u64,
    /// Bytes at the end that were being written when the power went, and were cut off.
    pub torn_bytes: u64,
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
