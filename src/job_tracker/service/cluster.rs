//! What the service knows of the cluster: the task trackers that report to it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corona_hadoop::writables::TaskTrackerStatus;
use tokio::time::Instant;

/// Task trackers that are remembered.
const MAX_TRACKERS: usize = 100_000;

/// The task trackers that were heard of lately.
#[derive(Debug)]
pub(super) struct Cluster {
    expiry: Duration,
    trackers: Mutex<BTreeMap<String, (Instant, TaskTrackerStatus)>>,
}

impl Cluster {
    /// Trackers are forgotten when nothing was heard of them for so long.
    pub(super) fn new(expiry: Duration) -> Cluster {
        Cluster { expiry, trackers: Mutex::default() }
    }

    /// A task tracker reports. What it says of its tasks is not kept.
    pub(super) fn heard(&self, status: TaskTrackerStatus) {
        let mut trackers = self.lock();
        if trackers.len() >= MAX_TRACKERS && !trackers.contains_key(&status.name) {
            trackers.retain(|_, (heard, _)| heard.elapsed() <= self.expiry);
            if trackers.len() >= MAX_TRACKERS {
                return;
            }
        }
        trackers.insert(status.name.clone(), (Instant::now(), status));
    }

    /// How many task trackers are remembered.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// The task trackers that were heard of lately, by name.
    pub(super) fn trackers(&self) -> Vec<TaskTrackerStatus> {
        let mut trackers = self.lock();
        trackers.retain(|_, (heard, _)| heard.elapsed() <= self.expiry);
        trackers.values().map(|(_, status)| status.clone()).collect()
    }

    /// No panic happens while it is held.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Instant, TaskTrackerStatus)>> {
        self.trackers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
