//! Selects the task to kill when the disks are full. Spec: mapreduce/04 §4.2.

use super::{AttemptRun, AttemptTable};
use corona_hadoop::writables::TaskState;

impl AttemptTable {
    /// The working run whose end costs least: a reduce before a map, since it has more on disk,
    /// then the one with the least progress.
    pub fn cheapest(&self) -> Option<AttemptRun> {
        let entries = self.jobs.values().flat_map(|job| job.attempts.values());
        let working = entries.filter(|entry| {
            let state = entry.attempt.status().state;
            matches!(state, TaskState::Running | TaskState::CommitPending)
        });
        let cost = |entry: &&super::Entry| {
            (entry.attempt.task().is_map(), entry.attempt.status().progress)
        };
        let cheapest = working.min_by(|a, b| {
            let ((a_map, a_progress), (b_map, b_progress)) = (cost(a), cost(b));
            a_map.cmp(&b_map).then(a_progress.total_cmp(&b_progress))
        });
        cheapest.map(super::Entry::run)
    }
}
