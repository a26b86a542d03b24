//! What the service counts since it started, for its metrics. Numbers only grow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corona_mapreduce::history::AttemptResult;
use corona_mapreduce::{HistoryRecord, JobState, PerKind, TaskState, TaskStatus};
use corona_process::histogram::Histogram;

use corona_job_engine::{Launch, Work};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How attempts ended.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) succeeded: Counter,
    pub(crate) failed: Counter,
    pub(crate) killed: Counter,
}

/// What the service counts.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) jobs_submitted: Counter,
    pub(crate) jobs_refused: Counter,
    pub(crate) jobs_succeeded: Counter,
    pub(crate) jobs_failed: Counter,
    pub(crate) jobs_killed: Counter,
    /// Jobs that ended without a history.
    pub(crate) without_history: Counter,
    pub(crate) launches: PerKind<Counter>,
    /// Launches of attempts other than the first ones of their tasks.
    pub(crate) repeats: PerKind<Counter>,
    pub(crate) undelivered: Counter,
    pub(crate) ends: PerKind<Ends>,
    pub(crate) heartbeats: Counter,
    pub(crate) reports: Counter,
    pub(crate) busy: Counter,
    pub(crate) fetch_failures: Counter,
    /// From a task tracker's heartbeat to the orders that follow from it.
    pub(crate) report_to_action: Histogram,
}

impl Meter {
    /// A job has ended.
    pub(crate) fn job_ended(&self, state: JobState) {
        match state {
            JobState::Succeeded => self.jobs_succeeded.add(1),
            JobState::Failed => self.jobs_failed.add(1),
            _ => self.jobs_killed.add(1),
        }
    }

    /// An attempt is about to be launched.
    pub(crate) fn launched(&self, launch: &Launch) {
        if !matches!(launch.work, Work::Task { .. }) {
            return;
        }
        let kind = launch.attempt.task.kind;
        self.launches[kind].add(1);
        if launch.attempt.number > 0 {
            self.repeats[kind].add(1);
        }
    }

    /// A record goes to the history of a job.
    pub(crate) fn recorded(&self, record: &HistoryRecord) {
        if let HistoryRecord::Attempt(end) = record
            && end.role.is_work()
        {
            let ends = &self.ends[end.attempt.task.kind];
            match end.result {
                AttemptResult::Succeeded { .. } => ends.succeeded.add(1),
                AttemptResult::Failed { .. } => ends.failed.add(1),
                AttemptResult::Killed { .. } => ends.killed.add(1),
            }
        }
    }

    /// Reports on attempts of a job have come. Whether one of them says more than that an attempt runs.
    pub(crate) fn news(&self, reports: &[TaskStatus]) -> bool {
        self.reports.add(reports.len() as u64);
        let failures = reports.iter().filter_map(|report| report.reduce.as_ref());
        let failures: usize = failures.map(|reduce| reduce.failed_fetches.len()).sum();
        self.fetch_failures.add(failures as u64);
        reports.iter().any(|report| report.state != TaskState::Running)
    }

    /// What follows from reports was done after this time.
    pub(crate) fn applied(&self, news: bool, took: Duration) {
        if news {
            self.report_to_action.record(took);
        }
    }
}
