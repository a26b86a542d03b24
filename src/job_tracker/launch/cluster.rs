//! What the service knows of the cluster: the task trackers that report to it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corona_hadoop::writables::TaskTrackerStatus;
use corona_model::text::boundary;
use tokio::time::Instant;

/// Task trackers that are remembered.
const MAX_TRACKERS: usize = 100_000;
/// Bytes of the name of a task tracker or of its host, and of what it says of its health.
const MAX_NAME: usize = 1024;
const MAX_REPORT: usize = 4096;

/// The task trackers that were heard of lately.
#[derive(Debug)]
pub(crate) struct Cluster {
    expiry: Duration,
    trackers: Mutex<BTreeMap<String, (Instant, TaskTrackerStatus)>>,
}

impl Cluster {
    /// Trackers are forgotten when nothing was heard of them for so long.
    pub(crate) fn new(expiry: Duration) -> Cluster {
        Cluster { expiry, trackers: Mutex::default() }
    }

    /// A task tracker reports. What it says of its tasks is not kept, nor is a long text. One with a long name
    /// is not remembered.
    pub(crate) fn heard(&self, mut status: TaskTrackerStatus) {
        if status.name.len() > MAX_NAME || status.host.len() > MAX_NAME {
            return;
        }
        status.tasks = Vec::new();
        let report = &mut status.health.report;
        if report.len() > MAX_REPORT {
            report.truncate(boundary(report, MAX_REPORT));
            report.shrink_to_fit();
        }
        let mut trackers = self.lock();
        if trackers.len() >= MAX_TRACKERS && !trackers.contains_key(&status.name) {
            trackers.retain(|_, (heard, _)| heard.elapsed() <= self.expiry);
            if trackers.len() >= MAX_TRACKERS {
                return;
            }
        }
        trackers.insert(status.name.clone(), (Instant::now(), status));
    }

    /// How long a task tracker has not reported; the longest time for one that never has.
    pub(crate) fn silence(&self, name: &str) -> Duration {
        self.lock().get(name).map_or(Duration::MAX, |(heard, _)| heard.elapsed())
    }

    /// How many task trackers were heard of lately.
    pub(crate) fn count(&self) -> usize {
        let is_recent = |(heard, _): &&(Instant, _)| heard.elapsed() <= self.expiry;
        self.lock().values().filter(is_recent).count()
    }

    /// The task trackers that were heard of lately, by name.
    pub(crate) fn trackers(&self) -> Vec<TaskTrackerStatus> {
        let mut trackers = self.lock();
        trackers.retain(|_, (heard, _)| heard.elapsed() <= self.expiry);
        trackers.values().map(|(_, status)| status.clone()).collect()
    }

    /// No panic happens while it is held.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Instant, TaskTrackerStatus)>> {
        self.trackers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use corona_hadoop::writables::{NodeHealth, ResourceStatus};

    use super::*;

    fn status(name: &str, report: String) -> TaskTrackerStatus {
        let health = NodeHealth { report, ..NodeHealth::default() };
        TaskTrackerStatus {
            name: name.into(),
            host: "h".into(),
            http_port: 1,
            failures: 0,
            max_maps: 1,
            max_reduces: 1,
            resources: ResourceStatus::default(),
            tasks: Vec::new(),
            health,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reports_of_task_trackers_take_little_memory() {
        let cluster = Cluster::new(Duration::from_secs(10));
        cluster.heard(status(&"n".repeat(MAX_NAME + 1), String::new()));
        cluster.heard(status("a", "\u{20ac}".repeat(MAX_REPORT)));
        cluster.heard(status("b", "full disk".into()));
        let kept = cluster.trackers();
        let kept: Vec<(&str, usize)> =
            kept.iter().map(|it| (&*it.name, it.health.report.len())).collect();
        assert_eq!(kept, [("a", MAX_REPORT - 1), ("b", 9)]);
        tokio::time::advance(Duration::from_secs(11)).await;
        cluster.heard(status("c", String::new()));
        assert_eq!(cluster.count(), 1, "the others are silent");
    }
}
