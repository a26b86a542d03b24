//! A task tracker's report of an attempt. Spec: mapreduce/02 §2.3.

use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::ids::AttemptKey;
use crate::ranges::RecordRange;

/// The state of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskState {
    /// It runs.
    Running,
    /// It has done its work.
    Succeeded,
    /// It has failed, and its cleanup is done.
    Failed,
    /// It was launched and has not begun.
    Unassigned,
    /// It was killed, and its cleanup is done.
    Killed,
    /// It waits for the permission to commit its output.
    CommitPending,
    /// It has failed, and its output must be cleaned up.
    FailedUnclean,
    /// It was killed, and its output must be cleaned up.
    KilledUnclean,
}

impl TaskState {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Unassigned => "UNASSIGNED",
            Self::Killed => "KILLED",
            Self::CommitPending => "COMMIT_PENDING",
            Self::FailedUnclean => "FAILED_UNCLEAN",
            Self::KilledUnclean => "KILLED_UNCLEAN",
        }
    }

    /// Whether the attempt has begun no end yet.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Running | Self::Unassigned | Self::CommitPending)
    }

    /// Whether nothing follows.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Killed)
    }

    /// Whether it has failed, cleaned up after or not.
    pub fn is_failed(self) -> bool {
        matches!(self, Self::Failed | Self::FailedUnclean)
    }

    /// Whether it was killed, cleaned up after or not.
    pub fn is_killed(self) -> bool {
        matches!(self, Self::Killed | Self::KilledUnclean)
    }

    /// Whether it has ended without success and its output must be cleaned up.
    pub fn is_unclean(self) -> bool {
        matches!(self, Self::FailedUnclean | Self::KilledUnclean)
    }
}

/// The part of its work that an attempt is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Phase {
    /// Before its first phase.
    Starting,
    /// Mapping.
    Map,
    /// A reduce that fetches map outputs.
    Shuffle,
    /// A reduce that merges them.
    Sort,
    /// Reducing.
    Reduce,
    /// Cleaning up.
    Cleanup,
}

impl Phase {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "STARTING",
            Self::Map => "MAP",
            Self::Shuffle => "SHUFFLE",
            Self::Sort => "SORT",
            Self::Reduce => "REDUCE",
            Self::Cleanup => "CLEANUP",
        }
    }
}

/// A report on one attempt. The attempt belongs to the job that is addressed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// The attempt.
    pub attempt: AttemptKey,
    /// Where it stands.
    pub state: TaskState,
    /// From 0 to 1; other values are clamped to that range.
    pub progress: f32,
    /// The current phase.
    pub phase: Phase,
    /// Errors since the last report.
    pub diagnostics: String,
    /// The task's own status text.
    pub state_string: String,
    /// Milliseconds since the Unix epoch, 0 if it has not begun.
    pub start_time_ms: i64,
    /// Milliseconds since the Unix epoch, 0 if it has not ended.
    pub finish_time_ms: i64,
    /// Its counters, where the report has them.
    pub counters: Option<Counters>,
    /// The records that it reads next.
    pub next_records: RecordRange,
    /// Further fields of a reduce.
    pub reduce: Option<ReduceProgress>,
}

/// Fields that only a reduce reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReduceProgress {
    /// When the last map output was fetched; milliseconds since the Unix epoch, 0 before.
    pub shuffle_finish_time_ms: i64,
    /// When the merge was done; milliseconds since the Unix epoch, 0 before.
    pub sort_finish_time_ms: i64,
    /// Maps whose output could not be fetched since the last report.
    pub failed_fetches: Vec<AttemptKey>,
}

impl TaskStatus {
    /// A report of this state without further details.
    pub fn new(attempt: AttemptKey, state: TaskState) -> TaskStatus {
        TaskStatus {
            attempt,
            state,
            progress: 0.0,
            phase: Phase::Starting,
            diagnostics: String::new(),
            state_string: String::new(),
            start_time_ms: 0,
            finish_time_ms: 0,
            counters: None,
            next_records: RecordRange::default(),
            reduce: None,
        }
    }
}
