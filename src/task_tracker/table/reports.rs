//! The reports to job trackers about attempts, each end once. Spec: mapreduce/04 §4.8.

use super::AttemptTable;
use crate::attempt::{Now, is_last_report};
use corona_hadoop::writables::{Counter, JobId, TaskAttemptId, TaskState, TaskStatus};

/// The group of the counters of tasks, and that of the most memory.
const TASK_COUNTERS: &str = "org.apache.hadoop.mapred.Task$Counter";
const PEAK_MEMORY: &str = "MAX_RSS_MEMORY_BYTES";

impl AttemptTable {
    /// Whether there are reports for the job tracker of a job.
    pub fn has_reports(&self, job: &JobId) -> bool {
        let job = self.jobs.get(job);
        job.is_some_and(|job| job.attempts.values().any(|entry| entry.to_report))
    }

    /// The reports on a job's attempts for the next heartbeat to its job tracker. Follow it by
    /// [`reported`](Table::reported) or [`not_reported`](Table::not_reported). `output_bytes` gives
    /// the size of a map's output.
    pub fn reports(
        &mut self,
        job: &JobId,
        output_bytes: impl Fn(&TaskAttemptId) -> Option<u64>,
        now: Now,
    ) -> Vec<TaskStatus> {
        let entries = self.jobs.get_mut(job).into_iter().flat_map(|job| job.attempts.iter_mut());
        let told = entries.filter(|(_, entry)| entry.to_report);
        told.map(|(id, entry)| {
            let succeeded = entry.attempt.status().state == TaskState::Succeeded;
            let size = if succeeded { output_bytes(id) } else { None };
            let mut report = entry.attempt.report(size, now);
            if report.state != TaskState::Running {
                add_peak_memory(&mut report, entry.usage.peak_memory_bytes);
            }
            report
        })
        .collect()
    }

    /// A heartbeat with these reports has been answered. Attempts that have ended are forgotten, save
    /// maps whose output is served.
    pub fn reported(&mut self, job: &JobId, sent: &[TaskStatus]) {
        for report in sent.iter().filter(|report| is_last_report(report)) {
            // Meanwhile the output may have been lost, or the attempt returned for a clean-up: then
            // there is more to report.
            let Some(entry) = self.entry_mut(&report.attempt).filter(|entry| {
                let status = entry.attempt.status();
                report.attempt.job() == job
                    && status.state == report.state
                    && status.phase == report.phase
            }) else {
                continue;
            };
            if report.state == TaskState::Succeeded && entry.attempt.task().is_map() {
                entry.to_report = false;
            } else {
                self.forget(&report.attempt);
            }
        }
    }

    /// A heartbeat with these reports did not arrive, as far as is known: they are sent again.
    pub fn not_reported(&mut self, sent: &[TaskStatus]) {
        for report in sent {
            if let Some(entry) = self.entry_mut(&report.attempt) {
                entry.attempt.report_again(report);
            }
        }
    }
}

/// Adds the most memory that was seen of an attempt to its counters, where its process has not counted it itself.
fn add_peak_memory(report: &mut TaskStatus, peak_bytes: u64) {
    let Some(counters) = report.counters.as_mut().filter(|_| peak_bytes > 0) else { return };
    let groups = &mut counters.groups;
    let Some(group) = groups.iter_mut().find(|group| group.name == TASK_COUNTERS) else { return };
    if group.counters.iter().any(|counter| counter.name == PEAK_MEMORY) {
        return;
    }
    group.counters.push(Counter {
        name: PEAK_MEMORY.to_owned(),
        display_name: None,
        value: i64::try_from(peak_bytes).unwrap_or(i64::MAX),
    });
}
