//! How a job comes to its end. Spec: mapreduce/05 §5.6, mapreduce/09 §C, §D.

use corona_mapreduce::{AttemptKey, JobState, TaskKey, TaskKind, TaskRole, TaskState};
use corona_model::types::SessionStatus;

use super::reports::Fate;
use super::tasks::{Slot, SlotUse, Stage};
use super::{JobEffect, JobEngine, JobStage, Turn};

impl JobEngine {
    /// Whether all tasks have succeeded, but for those that may fail.
    pub(super) fn is_work_done(&self) -> bool {
        let done = |kind: TaskKind| {
            self.counts[kind].finished + self.counts[kind].failed >= self.sizes[kind]
        };
        let maps_matter = self.sizes.reduce == 0 || !self.spec.settings.finish_when_reduces_done;
        done(TaskKind::Reduce) && (!maps_matter || done(TaskKind::Map))
    }

    /// A task has failed for good: the job too, unless it may do without. Spec: mapreduce/09 §C.
    pub(super) fn task_failed(&mut self, key: TaskKey, turn: &mut Turn) {
        for number in self.live_attempts(key) {
            self.order_kill(key.attempt(number), false, turn);
        }
        self.withdraw_requests(key, turn);
        match self.role(key) {
            TaskRole::Cleanup => {
                self.record_task_failure(key, turn);
                match self.stage {
                    JobStage::CleaningUp(JobState::Killed) => {
                        self.finish(JobState::Killed, SessionStatus::Killed, turn);
                    }
                    _ => self.finish(JobState::Failed, SessionStatus::Failed, turn),
                }
            }
            TaskRole::Setup => {
                self.record_task_failure(key, turn);
                self.fail(turn);
            }
            TaskRole::Map | TaskRole::Reduce => {
                let kind = key.kind;
                self.counts[kind].failed += 1;
                self.totals.failed_tasks[kind] += 1;
                let failed = u64::from(self.counts[kind].failed) * 100;
                let allowed = u64::from(self.spec.settings.failures_percent[kind])
                    * u64::from(self.sizes[kind]);
                if failed > allowed && self.is_working() {
                    self.record_task_failure(key, turn);
                    self.fail(turn);
                } else {
                    turn.effects.push(JobEffect::DoneWithout(self.task_failure(key)));
                    self.clean_up_if_done(turn);
                }
            }
        }
    }

    /// The job fails: nothing runs any more but its clean-up.
    fn fail(&mut self, turn: &mut Turn) {
        if !self.is_working() {
            return;
        }
        // From now on no task requests anything.
        self.stage = JobStage::CleaningUp(JobState::Failed);
        self.end_all_attempts(turn);
        self.clean_up(JobState::Failed, turn);
    }

    /// Its user ends the job: nothing runs any more but its clean-up, so that its temporary output does
    /// not stay. The original leaves that out, spec: mapreduce/09 §D. Where nothing was set up nothing is
    /// cleaned up, and a second order ends the job at once.
    pub(super) fn kill(&mut self, turn: &mut Turn) {
        let was_set_up = |kind| !self.task(self.setup_task(kind)).attempts.is_empty();
        let is_set_up = self.is_working() && TaskKind::ALL.into_iter().any(was_set_up);
        let settings = &self.spec.settings;
        let span_ms = settings.killed_cleanup_ms;
        if !is_set_up || !settings.setup_cleanup_needed || span_ms == 0 {
            return self.finish(JobState::Killed, SessionStatus::Killed, turn);
        }
        // From now on no task requests anything.
        self.stage = JobStage::CleaningUp(JobState::Killed);
        self.killed_due = self.last.plus_ms(span_ms);
        self.end_all_attempts(turn);
        self.clean_up(JobState::Killed, turn);
    }

    /// A job that was killed ends although its clean-up has not.
    pub(super) fn end_if_killed_long_ago(&mut self, turn: &mut Turn) {
        if self.stage == JobStage::CleaningUp(JobState::Killed) && self.killed_due <= self.last {
            self.finish(JobState::Killed, SessionStatus::Killed, turn);
        }
    }

    /// Books all attempts that run as killed with the job. Spec: mapreduce/09 §D.
    fn end_all_attempts(&mut self, turn: &mut Turn) {
        for key in self.keys().collect::<Vec<_>>() {
            if self.task(key).is_open() {
                self.task_mut(key).stage = Stage::Killed;
            }
            for number in self.live_attempts(key) {
                let key = key.attempt(number);
                let at = self.nodes[self.attempt(key).node].tracker();
                turn.effects.push(JobEffect::Kill { attempt: key, at });
                self.end_attempt(key, Fate::Killed, "Job killed", false, turn);
            }
        }
        // The clean-up of the job still needs its tasks.
        if matches!(self.stage, JobStage::CleaningUp(_)) {
            for kind in TaskKind::ALL {
                let key = self.cleanup_task(kind);
                if !self.task(key).is_complete() {
                    self.task_mut(key).stage = Stage::Open;
                }
            }
        }
    }

    /// Only the job's clean-up is left. It runs on a slot that is free already, else on one that is
    /// requested for it alone.
    pub(super) fn clean_up(&mut self, state: JobState, turn: &mut Turn) {
        self.stage = JobStage::CleaningUp(state);
        self.close_uncleaned(turn);
        if !self.spec.settings.setup_cleanup_needed {
            return self.end_after_cleanup(turn);
        }
        let requested = |slot: &Slot| slot.use_ == SlotUse::Requested;
        let unused = self.slots.iter().filter(|(_, slot)| requested(slot)).map(|(id, _)| *id);
        let unused: Vec<_> = unused.collect();
        for id in unused {
            self.release(id, turn);
        }
        turn.recheck = true;
    }

    /// Attempts that wait to be cleaned up after are not: the job's own clean-up does that.
    fn close_uncleaned(&mut self, turn: &mut Turn) {
        for key in self.maybe_unclean() {
            while let Some(number) = self.task(key).to_clean() {
                let key: AttemptKey = key.attempt(number);
                let failed = self.attempt(key).state == TaskState::FailedUnclean;
                let fate = if failed { Fate::Failed } else { Fate::Killed };
                self.attempt_mut(key).cleaning = true;
                self.end_attempt(key, fate, "", true, turn);
            }
        }
    }

    /// The tasks whose attempts may wait to be cleaned up after. If every attempt of a kind has succeeded, none
    /// of its work is among them, so that the end of a large job does not examine all tasks.
    fn maybe_unclean(&self) -> Vec<TaskKey> {
        let keys = TaskKind::ALL.into_iter().flat_map(|kind| {
            let first = if self.each_attempt_succeeded(kind) { self.sizes[kind] } else { 0 };
            (first..self.tasks[kind].len() as u32).map(move |number| TaskKey { kind, number })
        });
        keys.collect()
    }

    /// Whether as many tasks have succeeded as attempts were launched, so that there are no others.
    pub(super) fn each_attempt_succeeded(&self, kind: TaskKind) -> bool {
        self.totals.fail_overs == 0 && self.totals.launched[kind] == self.counts[kind].finished
    }

    /// The clean-up has ended, and the job in the state for which the clean-up ran.
    pub(super) fn end_after_cleanup(&mut self, turn: &mut Turn) {
        match self.stage {
            JobStage::CleaningUp(JobState::Succeeded) => {
                self.finish(JobState::Succeeded, SessionStatus::Successful, turn);
            }
            JobStage::CleaningUp(JobState::Killed) => {
                self.finish(JobState::Killed, SessionStatus::Killed, turn);
            }
            _ => self.finish(JobState::Failed, SessionStatus::Failed, turn),
        }
    }

    /// Ends the job. All slots go back with the session. Spec: mapreduce/05 §5.6.
    pub(super) fn finish(&mut self, state: JobState, status: SessionStatus, turn: &mut Turn) {
        if matches!(self.stage, JobStage::Over(_)) {
            return;
        }
        if state != JobState::Succeeded && self.stage != JobStage::New {
            self.stage = JobStage::CleaningUp(state);
            self.end_all_attempts(turn);
            self.close_uncleaned(turn);
        }
        let was_submitted = self.stage != JobStage::New;
        self.stage = JobStage::Over(state);
        // What has not run never will.
        for key in self.keys().collect::<Vec<_>>() {
            let task = self.task_mut(key);
            if task.is_open() && task.live().next().is_none() {
                task.stage = Stage::Killed;
            }
        }
        self.finished = self.last;
        self.slots.clear();
        self.free.clear();
        self.due.clear();
        self.exclusions_due.clear();
        turn.requests.clear();
        turn.releases.clear();
        turn.fresh.clear();
        if was_submitted {
            self.record_job_end(state, turn);
        }
        for node in self.nodes.iter().filter(|node| !node.lost) {
            turn.effects.push(JobEffect::KillJob { at: node.tracker() });
        }
        let feedback = self.nodes.iter();
        let feedback = feedback.map(|node| node.usage(state == JobState::Succeeded)).collect();
        turn.effects.push(JobEffect::EndSession { status, feedback });
    }
}
