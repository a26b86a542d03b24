//! Events of ended attempts, for reduces and clients. Spec: mapreduce/02 §2.8.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::AttemptKey;

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventStatus {
    /// It failed.
    Failed,
    /// It was killed.
    Killed,
    /// It succeeded.
    Succeeded,
    /// It succeeded, but its output is lost.
    Obsolete,
    /// It failed, and with it its task.
    TipFailed,
}

impl EventStatus {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "FAILED",
            Self::Killed => "KILLED",
            Self::Succeeded => "SUCCEEDED",
            Self::Obsolete => "OBSOLETE",
            Self::TipFailed => "TIPFAILED",
        }
    }
}

/// An attempt has ended. Its number is its place in the job's list of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionEvent {
    /// The attempt, of the job whose list this is.
    pub attempt: AttemptKey,
    /// Whether it was a map whose output reduces fetch; set-up and clean-up tasks are not.
    pub is_map: bool,
    /// The attempt's result.
    pub status: EventStatus,
    /// Where its output can be fetched, such as `http://host:50060`; absent where no report brought it.
    pub tracker_http: Option<Arc<str>>,
    /// How long it ran, in milliseconds.
    pub run_time_ms: i32,
}
