//! Logs in use for which the tracker has no task, such as those of a job tracker that runs on this
//! machine.

use std::fmt;
use std::sync::Arc;

use super::{Tracker, TrackerCore};
use crate::ids::AttemptId;

/// Logs that are not deleted for their age while this lives.
pub struct KeptLogs {
    shared: Arc<TrackerCore>,
    attempt: AttemptId,
}

impl Tracker {
    /// Keeps the logs of an attempt, for as long as the returned guard lives.
    pub fn keep_logs(&self, attempt: &AttemptId) -> KeptLogs {
        *self.shared.lock().kept_logs.entry(attempt.clone()).or_default() += 1;
        KeptLogs { shared: self.shared.clone(), attempt: attempt.clone() }
    }
}

impl Drop for KeptLogs {
    fn drop(&mut self) {
        let kept = &mut self.shared.lock().kept_logs;
        if let Some(reasons) = kept.get_mut(&self.attempt) {
            *reasons -= 1;
            if *reasons == 0 {
                kept.remove(&self.attempt);
            }
        }
    }
}

impl fmt::Debug for KeptLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeptLogs").field(&self.attempt).finish()
    }
}
