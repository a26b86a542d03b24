//! One attempt of a task, from its arrival to its last report. Decisions only: nothing is done here.
//!
//! It knows no process, no file and no connection; their owners report events with their times.
//! Reports of the task's process are hostile input: their effects are restricted. Spec:
//! mapreduce/04 §4.3, §4.7, §4.8, mapreduce/02 §2.3.

#[cfg(test)]
pub(super) mod tests;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::handover::encoded::{Encoded, NotEncoded};
use corona_hadoop::writables::{
    Counters, Phase, RecordRange, ReduceProgress, Task, TaskAttemptId, TaskState, TaskStatus,
};
use corona_model::text::{boundary, cut};

/// The longest diagnostic text, in bytes; the rest is left out.
const MAX_DIAGNOSTICS_BYTES: usize = 64 << 10;
/// The longest status text of a process, in bytes.
const MAX_STATE_STRING_BYTES: usize = 16 << 10;
/// The most memory that the counters of an attempt take, in bytes, as counted here.
const MAX_COUNTERS_BYTES: usize = 4 << 20;
/// The most failed fetches that wait to be reported.
const MAX_FAILED_FETCHES: usize = 10_000;
/// How often the counters of an attempt that runs are reported. Spec: mapreduce/04 §4.8.
const COUNTERS_INTERVAL: Duration = Duration::from_secs(60);

/// The present time, for people and for measuring.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Milliseconds since the Unix epoch.
    pub since_epoch_ms: i64,
    /// The same time by a clock that is never set.
    pub instant: Instant,
}

/// Why an attempt is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It counts as failed: it was silent, took too much memory, or reported that it cannot
    /// continue.
    Failure,
    /// A peer wants it to end.
    Request,
}

/// An attempt at a task.
#[derive(Clone, Debug)]
pub struct Attempt {
    task: Task,
    status: TaskStatus,
    /// Whether its process has reported that the work is done.
    done: bool,
    /// Whether its process has reported what went wrong.
    explained: bool,
    last_progress: Instant,
    counters_told: Option<Instant>,
}

impl Attempt {
    /// An attempt as a job tracker sends it. It waits to be started.
    pub fn new(mut task: Task, now: Now) -> Attempt {
        let is_map = task.is_map();
        let phase = match (task.task_cleanup, is_map) {
            (true, _) => Phase::Cleanup,
            (false, true) => Phase::Map,
            (false, false) => Phase::Shuffle,
        };
        // The original does so when it reads one, and its process is sent the task as read.
        if task.task_cleanup {
            task.status.phase = phase;
        }
        let status = TaskStatus {
            slots: task.slots,
            state_string: "initializing".to_owned(),
            phase,
            counters: Some(task.status.counters.clone().unwrap_or_default()),
            reduce: (!is_map).then(ReduceProgress::default),
            ..TaskStatus::new(task.attempt.clone(), task.status.state)
        };
        Attempt {
            task,
            status,
            done: false,
            explained: false,
            last_progress: now.instant,
            counters_told: None,
        }
    }

    /// The task as it was sent.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// Its status.
    pub fn status(&self) -> &TaskStatus {
        &self.status
    }

    /// Whether it cleans up after an attempt that failed or was killed, and has not ended.
    pub fn is_cleaning_up(&self) -> bool {
        self.status.phase == Phase::Cleanup
            && matches!(self.status.state, TaskState::FailedUnclean | TaskState::KilledUnclean)
    }

    /// Whether no more reports of it are expected.
    pub fn has_ended(&self) -> bool {
        self.status.state != TaskState::Unassigned && !self.is_active()
    }

    /// Whether its process may run.
    fn is_active(&self) -> bool {
        let runs = matches!(self.status.state, TaskState::Running | TaskState::CommitPending);
        !self.done && (runs || self.is_cleaning_up())
    }

    /// Its files are there and its process is about to be started. False if it has been killed
    /// meanwhile: nothing is to be started.
    pub fn start(&mut self, now: Now) -> bool {
        match self.status.state {
            TaskState::Unassigned => self.status.state = TaskState::Running,
            _ if self.is_cleaning_up() && self.status.start_time_ms == 0 => {}
            _ => return false,
        }
        self.status.start_time_ms = now.since_epoch_ms;
        self.last_progress = now.instant;
        true
    }

    /// Takes a report of its process. False if it is ignored: the attempt is over, or the report is
    /// older than the known state.
    pub fn update(&mut self, report: TaskStatus, now: Now) -> bool {
        let late = report.state == TaskState::Running && self.status.state != TaskState::Running;
        if !self.is_active() || late {
            return false;
        }
        self.last_progress = now.instant;
        self.add_diagnostics(&report.diagnostics);
        let cleaning_up = self.is_cleaning_up();
        let status = &mut self.status;
        // A process may report that it waits to commit, and no other change of its state.
        if status.state == TaskState::Running && report.state == TaskState::CommitPending {
            status.state = TaskState::CommitPending;
        }
        status.progress =
            if report.progress.is_nan() { 0.0 } else { report.progress.clamp(0.0, 1.0) };
        let end = boundary(&report.state_string, MAX_STATE_STRING_BYTES);
        status.state_string.clear();
        status.state_string.push_str(report.state_string.get(..end).unwrap_or_default());
        // Else a process could take its attempt out of every state that can end.
        if !cleaning_up {
            status.phase = report.phase;
        }
        status.next_records = report.next_records;
        if let Some(counters) = report.counters.filter(|told| told.bytes() <= MAX_COUNTERS_BYTES) {
            status.counters = Some(counters);
        }
        if let (Some(known), Some(told)) = (&mut status.reduce, report.reduce) {
            let later = |known: &mut i64, told: i64| {
                if told > 0 {
                    *known = told;
                }
            };
            later(&mut known.shuffle_finish_time_ms, told.shuffle_finish_time_ms);
            later(&mut known.sort_finish_time_ms, told.sort_finish_time_ms);
            let room = MAX_FAILED_FETCHES.saturating_sub(known.failed_fetches.len());
            known.failed_fetches.extend(told.failed_fetches.into_iter().take(room));
        }
        true
    }

    /// Adds to the diagnostics.
    pub fn add_diagnostics(&mut self, text: &str) {
        let room = MAX_DIAGNOSTICS_BYTES.saturating_sub(self.status.diagnostics.len());
        self.status.diagnostics.push_str(cut(text, room));
    }

    /// Its process reports an error.
    pub fn explain(&mut self, text: &str) {
        self.explained |= !text.trim().is_empty();
        self.add_diagnostics(text);
    }

    /// Whether its process has reported an error.
    pub fn is_explained(&self) -> bool {
        self.explained
    }

    /// The records that it reads next, for tasks that skip bad ones.
    pub fn set_next_records(&mut self, range: RecordRange) {
        self.status.next_records = range;
    }

    /// Its process reports that the work is done. False if that comes too late.
    pub fn finish(&mut self, now: Now) -> bool {
        if !self.is_active() {
            return false;
        }
        self.status.state = match self.status.state {
            TaskState::FailedUnclean => TaskState::Failed,
            TaskState::KilledUnclean => TaskState::Killed,
            _ => TaskState::Succeeded,
        };
        self.status.progress = 1.0;
        self.end(now);
        true
    }

    /// Its process has ended, with any status: only [`finish`](Attempt::finish) is success. True if
    /// that is a new failure.
    pub fn exited(&mut self, now: Now) -> bool {
        let failed = self.is_active() || self.status.state == TaskState::Unassigned;
        if failed {
            self.fail(Cause::Failure, now);
        }
        failed
    }

    /// Ends it. False if there is nothing to end.
    pub fn kill(&mut self, cause: Cause, now: Now) -> bool {
        let ends = self.is_active() || self.status.state == TaskState::Unassigned;
        if ends {
            self.fail(cause, now);
        }
        ends
    }

    fn fail(&mut self, cause: Cause, now: Now) {
        let work = self.task.job_cleanup.is_none() && !self.task.job_setup;
        let began = self.status.state != TaskState::Unassigned;
        let unclean = began && work && self.status.phase != Phase::Cleanup;
        self.status.state = match (self.status.state, cause, unclean) {
            (TaskState::FailedUnclean, ..) => TaskState::Failed,
            (TaskState::KilledUnclean, ..) => TaskState::Killed,
            (_, Cause::Failure, true) => TaskState::FailedUnclean,
            (_, Cause::Failure, false) => TaskState::Failed,
            (_, Cause::Request, true) => TaskState::KilledUnclean,
            (_, Cause::Request, false) => TaskState::Killed,
        };
        self.status.progress = 0.0;
        self.end(now);
    }

    /// Phases that a reduce has not reached have taken no time: job trackers count that way. Spec:
    /// mapreduce/02 §2.3.
    fn end(&mut self, now: Now) {
        self.status.finish_time_ms = now.since_epoch_ms;
        self.done = true;
        if let Some(reduce) = &mut self.status.reduce {
            for time_ms in [&mut reduce.shuffle_finish_time_ms, &mut reduce.sort_finish_time_ms] {
                if *time_ms == 0 {
                    *time_ms = now.since_epoch_ms;
                }
            }
        }
    }

    /// Its output cannot be served. True if it must be reported again, as failed.
    pub fn lose_output(&mut self, why: &str) -> bool {
        if !matches!(self.status.state, TaskState::Succeeded | TaskState::CommitPending) {
            return false;
        }
        self.status.state = TaskState::Failed;
        self.status.progress = 0.0;
        self.add_diagnostics(&format!("Map output lost, rescheduling: {why}"));
        self.done = true;
        true
    }

    /// For how long its process has reported nothing, if it should have. Signs of life do not count.
    pub fn silence(&self, now: Now) -> Option<Duration> {
        let runs = self.is_active() && self.status.start_time_ms > 0;
        runs.then(|| now.instant.saturating_duration_since(self.last_progress))
    }

    /// Its report in the next heartbeat. Diagnostics and failed fetches are reported once; counters
    /// once a minute, and whenever it does not run. `output_bytes` is the size of a map's output,
    /// which counts only for one that succeeded.
    pub fn report(&mut self, output_bytes: Option<u64>, now: Now) -> TaskStatus {
        let due = self
            .counters_told
            .is_none_or(|told| now.instant.saturating_duration_since(told) >= COUNTERS_INTERVAL);
        let with_counters = self.status.state != TaskState::Running || due;
        if with_counters {
            self.counters_told = Some(now.instant);
        }
        let succeeded = self.status.state == TaskState::Succeeded && self.status.is_map();
        let output_size = output_bytes.filter(|_| succeeded);
        let report = TaskStatus {
            output_size: output_size.map_or(-1, |size| i64::try_from(size).unwrap_or(i64::MAX)),
            counters: self.status.counters.clone().filter(|_| with_counters),
            ..self.status.clone()
        };
        self.status.diagnostics.clear();
        if let Some(reduce) = &mut self.status.reduce {
            reduce.failed_fetches.clear();
        }
        report
    }

    /// A report did not arrive: parts that are reported once are reported again.
    pub fn report_again(&mut self, lost: &TaskStatus) {
        let later = std::mem::take(&mut self.status.diagnostics);
        self.add_diagnostics(&lost.diagnostics);
        self.add_diagnostics(&later);
        if let (Some(known), Some(lost)) = (&mut self.status.reduce, &lost.reduce) {
            let room = MAX_FAILED_FETCHES.saturating_sub(known.failed_fetches.len());
            known.failed_fetches.extend(lost.failed_fetches.iter().take(room).cloned());
        }
        self.counters_told = None;
    }
}

/// An attempt, for the program that takes the place of this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedAttempt {
    task: Encoded,
    status: Encoded,
    done: bool,
    explained: bool,
    /// For how long its process has reported nothing, in milliseconds.
    silent_ms: u64,
}

impl Attempt {
    /// How long the text of its task and its status is when it is handed over, at most: two digits for each byte.
    pub fn handed_bytes(&self) -> usize {
        let status = &self.status;
        let counters = status.counters.as_ref().map_or(0, Counters::bytes);
        let fetches = status.reduce.as_ref().map_or(0, |reduce| reduce.failed_fetches.len());
        let texts = status.diagnostics.len() + status.state_string.len();
        2 * (self.task.bytes() + counters + fetches * size_of::<TaskAttemptId>() + texts)
    }

    /// Hands it over. Its counters are reported again.
    pub fn hand_over(&self, now: Now) -> HandedAttempt {
        let silent = now.instant.saturating_duration_since(self.last_progress);
        HandedAttempt {
            task: Encoded::of(&self.task),
            status: Encoded::of(&self.status),
            done: self.done,
            explained: self.explained,
            silent_ms: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Takes it over.
    ///
    /// # Errors
    /// Its task or its status cannot be read.
    pub fn take_over(handed: &HandedAttempt, now: Now) -> Result<Attempt, NotEncoded> {
        let silent = Duration::from_millis(handed.silent_ms);
        Ok(Attempt {
            task: handed.task.read()?,
            status: handed.status.read()?,
            done: handed.done,
            explained: handed.explained,
            last_progress: now.instant.checked_sub(silent).unwrap_or(now.instant),
            counters_told: None,
        })
    }
}

/// Whether an attempt that was reported like this is not to be reported any more.
pub fn is_last_report(report: &TaskStatus) -> bool {
    match report.state {
        TaskState::Running | TaskState::Unassigned | TaskState::CommitPending => false,
        TaskState::FailedUnclean | TaskState::KilledUnclean => report.phase != Phase::Cleanup,
        TaskState::Succeeded | TaskState::Failed | TaskState::Killed => true,
    }
}
