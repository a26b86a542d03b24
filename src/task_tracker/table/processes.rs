//! Changes of attempts that come from their processes: starts, calls over the umbilical protocol,
//! and ends. Spec: mapreduce/03 §3.3, mapreduce/04 §4.6, §4.7.

use serde::{Deserialize, Serialize};

use super::{AttemptRun, AttemptTable, JvmUse, Order};
use crate::attempt::{Cause, Now};
use corona_hadoop::writables::{
    JvmContext, JvmId, JvmTask, RecordRange, TaskAttemptId, TaskState, TaskStatus,
};

/// The process that is started for an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The id under which its process asks for the task. Never of two tasks at the same time.
    pub jvm: JvmId,
    /// The job's configuration as a local path, for the process to read.
    pub job_file: String,
    /// Which files of its job are to stay, and whether those of the attempt are among them.
    pub keep: Keep,
    /// Whether the process may take a further task after this one.
    pub has_more: bool,
}

/// The files of attempts that stay when they are not needed any more, as their job wants it. If any
/// stay, the job's own stay too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keep {
    /// None.
    #[default]
    Nothing,
    /// The job's own, not those of this attempt.
    Job,
    /// Those of attempts that have failed.
    Failed,
    /// All files of this attempt, whatever its end.
    All,
}

impl Keep {
    /// Whether the process of the attempt must not take another task, whose files would be mixed with
    /// those that stay.
    pub fn needs_own_process(self) -> bool {
        matches!(self, Keep::Failed | Keep::All)
    }
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
        let (jvm, keep) = (started.jvm.clone(), started.keep);
        entry.started = Some(started);
        entry.keep = keep;
        if let Some(job) = self.jobs.get_mut(run.attempt.job()) {
            job.keeps_failed |= keep != Keep::Nothing;
            job.assign(jvm, run);
        }
        true
    }

    /// The process that was to take the task of an attempt has not asked for it: another one is about
    /// to be started. False if it has asked meanwhile, or the attempt has ended.
    pub fn start_elsewhere(&mut self, run: &AttemptRun, started: Started) -> bool {
        let waits = |entry: &&mut super::Entry| {
            entry.started.is_some() && !entry.is_given && !entry.attempt.has_ended()
        };
        let Some(entry) = self.run_mut(run).filter(waits) else { return false };
        let jvm = started.jvm.clone();
        entry.started = Some(started);
        if let Some(job) = self.jobs.get_mut(run.attempt.job()) {
            job.unassign(run);
            job.assign(jvm, run);
        }
        true
    }

    /// Whether the process of an attempt has got its task.
    pub fn is_given(&self, run: &AttemptRun) -> bool {
        self.run(run).is_some_and(|entry| entry.is_given)
    }

    /// Whether a run waits to be started.
    pub fn waits(&self, run: &AttemptRun) -> bool {
        let waits = |entry: &super::Entry| entry.started.is_none() && !entry.attempt.has_ended();
        self.run(run).is_some_and(waits)
    }

    /// Whether a run has not ended, as far as is known.
    pub fn is_active(&self, run: &AttemptRun) -> bool {
        self.run(run).is_some_and(|entry| !entry.attempt.has_ended())
    }

    /// The work of an attempt is done, and its process waits for another task.
    pub fn released(&mut self, run: &AttemptRun) -> Vec<Order> {
        if let Some(job) = self.jobs.get_mut(run.attempt.job()) {
            job.unassign(run);
        }
        self.process_over(run)
    }

    /// A process has ended that had no task.
    pub fn jvm_gone(&mut self, jvm: &JvmId) {
        if let Some(job) = self.jobs.get_mut(&jvm.job) {
            job.processes.remove(jvm);
        }
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
        let Some(job) = self.jobs.get_mut(run.attempt.job()) else { return vec![] };
        job.processes.retain(|_, process| process.current.as_ref() != Some(run));
        let mut orders = vec![];
        if let Some(entry) = self.run_mut(run)
            && entry.attempt.exited(now)
        {
            entry.attempt.add_diagnostics(why);
            orders = entry.end_orders();
            self.failures = self.failures.saturating_add(1);
        }
        orders.extend(self.process_over(run));
        orders
    }

    /// The orders that follow when an attempt has no process any more.
    fn process_over(&mut self, run: &AttemptRun) -> Vec<Order> {
        let id = &run.attempt;
        let Some(job) = self.jobs.get_mut(id.job()) else { return vec![] };
        let Some(entry) = job.attempts.get_mut(id) else {
            return vec![Order::DeleteAttempt(id.clone())];
        };
        if entry.run != run.number {
            return vec![];
        }
        entry.started = None;
        let mut orders = vec![];
        let is_map = entry.attempt.task().is_map();
        if entry.keep == Keep::All {
            return orders;
        }
        match entry.attempt.status().state {
            TaskState::Failed if entry.keep == Keep::Failed => {}
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
    /// A process that waits for its next task gets neither.
    pub fn get_task(&mut self, context: &JvmContext) -> JvmTask {
        let die = JvmTask { should_die: true, task: None };
        let wait = JvmTask { should_die: false, task: None };
        let Some(job) = self.jobs.get_mut(&context.jvm.job) else { return die };
        let Some(process) = job.processes.get(&context.jvm) else { return die };
        let Some(run) = &process.current else { return wait };
        let entry = job.attempts.get_mut(&run.attempt).filter(|entry| entry.run == run.number);
        let Some((entry, started)) =
            entry.and_then(|entry| entry.started.clone().map(|started| (entry, started)))
        else {
            return die;
        };
        if entry.attempt.has_ended() {
            // It may take a task after one that it has done, and not after one that was killed.
            let goes_on = started.has_more && entry.attempt.status().state == TaskState::Succeeded;
            return if goes_on { wait } else { die };
        }
        entry.is_given = true;
        let mut task = entry.attempt.task().clone();
        task.job_file = started.job_file;
        JvmTask { should_die: false, task: Some(task) }
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

impl super::Job {
    /// A process has the task of a run.
    fn assign(&mut self, jvm: JvmId, run: &AttemptRun) {
        let process = self
            .processes
            .entry(jvm)
            .or_insert_with(|| JvmUse { host: run.clone(), current: None });
        process.current = Some(run.clone());
    }

    /// No process has the task of a run any more.
    fn unassign(&mut self, run: &AttemptRun) {
        for process in self.processes.values_mut() {
            process.current.take_if(|current| current == run);
        }
    }
}
