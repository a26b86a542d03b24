//! Changes of attempts that come from their processes: starts, calls over the umbilical protocol,
//! and ends. Spec: mapreduce/03 §3.3, mapreduce/04 §4.6, §4.7.

use super::{AttemptRun, AttemptTable, Order};
use crate::attempt::{Cause, Now};
use corona_hadoop::writables::{
    JvmContext, JvmId, JvmTask, RecordRange, Task, TaskAttemptId, TaskState, TaskStatus,
};

/// The process that is started for an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The id under which its process asks for the task. Never used twice at the same time.
    pub jvm: JvmId,
    /// The job's configuration as a local path, for the process to read.
    pub job_file: String,
    /// Whether its job wants the files of attempts that have failed to stay, and its own then.
    pub keep_failed: bool,
}

impl AttemptTable {
    /// The process of an attempt is about to be started. False if it is not to be: the attempt has
    /// been killed or forgotten.
    pub fn start(&mut self, run: &AttemptRun, started: Started, now: Now) -> bool {
        let Some(entry) = self.run_mut(run).filter(|entry| entry.started.is_none()) else {
            return false;
        };
        if !entry.attempt.start(now) {
            return false;
        }
        let (jvm, keep_failed) = (started.jvm.clone(), started.keep_failed);
        entry.started = Some(started);
        if let Some(job) = self.jobs.get_mut(run.attempt.job()) {
            job.keeps_failed |= keep_failed;
            job.processes.insert(jvm, run.clone());
        }
        true
    }

    /// Ends an attempt: it could not be started, was silent for too long, takes too much memory.
    /// `why` is for its user.
    pub fn kill(&mut self, run: &AttemptRun, cause: Cause, why: &str, now: Now) -> Vec<Order> {
        if self.run_mut(run).is_none() {
            return vec![];
        }
        self.end(&run.attempt, cause, why, now)
    }

    /// The process of an attempt has ended, with any status, and will not report again. `why`
    /// applies if the end was not expected.
    pub fn exited(&mut self, run: &AttemptRun, why: &str, now: Now) -> Vec<Order> {
        let id = &run.attempt;
        let Some(job) = self.jobs.get_mut(id.job()) else { return vec![] };
        job.processes.retain(|_, running| running != run);
        let Some(entry) = job.attempts.get_mut(id) else {
            return vec![Order::DeleteAttempt(id.clone())];
        };
        if entry.run != run.number {
            return vec![];
        }
        entry.started = None;
        let mut orders = vec![];
        if entry.attempt.exited(now) {
            entry.attempt.add_diagnostics(why);
            orders.extend(entry.end_orders());
            self.failures = self.failures.saturating_add(1);
        }
        let is_map = entry.attempt.task().is_map();
        match entry.attempt.status().state {
            TaskState::Failed if job.keeps_failed => {}
            // The rest of it goes with the job, together with the job's files.
            TaskState::Succeeded if is_map || !job.keeps_failed => {
                orders.push(Order::DeleteWork(id.clone()));
            }
            _ => orders.push(Order::DeleteAttempt(id.clone())),
        }
        orders
    }

    /// The output of a map cannot be served: it counts as failed.
    pub fn lose_output(&mut self, id: &TaskAttemptId, why: &str) -> Vec<Order> {
        let Some(entry) = self.entry_mut(id) else { return vec![] };
        if !entry.attempt.lose_output(why) {
            return vec![];
        }
        entry.to_report = true;
        entry.end_orders()
    }

    /// Answers `getTask`: the task of this process, or that it is to end.
    pub fn get_task(&self, context: &JvmContext) -> JvmTask {
        let task = self.task_of(&context.jvm);
        JvmTask { should_die: task.is_none(), task }
    }

    fn task_of(&self, jvm: &JvmId) -> Option<Task> {
        let job = self.jobs.get(&jvm.job)?;
        let run = job.processes.get(jvm)?;
        let entry = job.attempts.get(&run.attempt).filter(|entry| entry.run == run.number)?;
        let started = entry.started.as_ref().filter(|_| !entry.attempt.has_ended())?;
        Some(Task { job_file: started.job_file.clone(), ..entry.attempt.task().clone() })
    }

    /// Answers `statusUpdate`: whether the attempt is known.
    pub fn status_update(&mut self, id: &TaskAttemptId, status: TaskStatus, now: Now) -> bool {
        let Some(entry) = self.entry_mut(id) else { return false };
        entry.attempt.update(status, now);
        true
    }

    /// Answers `ping`: whether the attempt is known.
    pub fn ping(&self, id: &TaskAttemptId) -> bool {
        self.jobs.get(id.job()).is_some_and(|job| job.attempts.contains_key(id))
    }

    /// Whether the process of a run has reported an error.
    pub fn is_explained(&self, run: &AttemptRun) -> bool {
        self.run(run).is_some_and(|entry| entry.attempt.is_explained())
    }

    /// Answers `reportDiagnosticInfo`.
    pub fn report_diagnostic_info(&mut self, id: &TaskAttemptId, text: &str) {
        if let Some(entry) = self.entry_mut(id) {
            entry.attempt.explain(text);
        }
    }

    /// Answers `reportNextRecordRange`.
    pub fn report_next_record_range(&mut self, id: &TaskAttemptId, range: RecordRange) {
        if let Some(entry) = self.entry_mut(id) {
            entry.attempt.set_next_records(range);
        }
    }

    /// Answers `commitPending`. The job tracker should know soon.
    pub fn commit_pending(
        &mut self,
        id: &TaskAttemptId,
        status: TaskStatus,
        now: Now,
    ) -> Vec<Order> {
        let known = self.status_update(id, status, now);
        if known { vec![Order::ReportSoon(id.job().clone())] } else { vec![] }
    }

    /// Answers `canCommit`: whether the job tracker permits it. An attempt that has ended may not,
    /// whatever was permitted: another one may have its place.
    pub fn can_commit(&self, id: &TaskAttemptId) -> bool {
        let entry = self.jobs.get(id.job()).and_then(|job| job.attempts.get(id));
        entry.is_some_and(|entry| entry.may_commit && !entry.attempt.has_ended())
    }

    /// Answers `done`.
    pub fn done(&mut self, id: &TaskAttemptId, now: Now) -> Vec<Order> {
        let Some(entry) = self.entry_mut(id).filter(|entry| entry.started.is_some()) else {
            return vec![];
        };
        entry.may_commit = false;
        if !entry.attempt.finish(now) {
            return vec![];
        }
        vec![Order::Release(entry.run()), Order::ReportSoon(id.job().clone())]
    }

    /// Answers `shuffleError`.
    pub fn shuffle_error(&mut self, id: &TaskAttemptId, text: &str, now: Now) -> Vec<Order> {
        self.end(id, Cause::Failure, &format!("Shuffle Error: {text}"), now)
    }

    /// Answers `fsError`.
    pub fn fs_error(&mut self, id: &TaskAttemptId, text: &str, now: Now) -> Vec<Order> {
        self.end(id, Cause::Failure, &format!("FSError: {text}"), now)
    }

    /// Answers `fatalError`.
    pub fn fatal_error(&mut self, id: &TaskAttemptId, text: &str, now: Now) -> Vec<Order> {
        self.end(id, Cause::Failure, &format!("Error: {text}"), now)
    }

    /// Ends an attempt that has not ended.
    fn end(&mut self, id: &TaskAttemptId, cause: Cause, why: &str, now: Now) -> Vec<Order> {
        let Some(entry) = self.entry_mut(id) else { return vec![] };
        if !entry.attempt.kill(cause, now) {
            return vec![];
        }
        entry.attempt.add_diagnostics(why);
        let orders = entry.end_orders();
        if cause == Cause::Failure {
            self.failures = self.failures.saturating_add(1);
        }
        orders
    }
}
