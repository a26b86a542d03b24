//! Second attempts at tasks that are slow. Spec: mapreduce/09 §E.

use corona_mapreduce::{TaskKey, TaskKind, TaskState};
use serde::{Deserialize, Serialize};

use super::{JobEngine, JobRefusal, JobStage, Turn};

/// Sums of the rates of all tasks of a kind that were ever launched, in progress per millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Statistics {
    launched: u32,
    #[serde(with = "corona_mapreduce::exact")]
    sum: f64,
    #[serde(with = "corona_mapreduce::exact")]
    squares: f64,
}

impl Statistics {
    /// Another attempt was launched. Its rate is 0 so far.
    pub(super) fn launched(&mut self) {
        self.launched += 1;
    }

    fn replace(&mut self, old: f64, new: f64) {
        self.sum += new - old;
        self.squares += new * new - old * old;
    }

    fn mean(&self) -> f64 {
        if self.launched == 0 { 0.0 } else { self.sum / f64::from(self.launched) }
    }

    fn deviation(&self) -> f64 {
        if self.launched == 0 {
            return 0.0;
        }
        let mean = self.mean();
        (self.squares / f64::from(self.launched) - mean * mean).max(0.0).sqrt()
    }
}

impl JobEngine {
    /// Whether some task could become slow as time passes.
    pub(super) fn may_speculate(&self) -> bool {
        self.stage == JobStage::Running
            && TaskKind::ALL.into_iter().any(|kind| {
                self.spec.settings.speculation[kind].enabled && self.counts[kind].live > 0
            })
    }

    /// The rate of a task is that of its best attempt.
    pub(super) fn update_rate(&mut self, key: TaskKey) {
        if !self.role(key).is_work() {
            return;
        }
        let now = self.last;
        let task = self.task_mut(key);
        let runs = |state| {
            matches!(state, TaskState::Running | TaskState::Succeeded | TaskState::CommitPending)
        };
        let rates =
            task.attempts.iter().filter(|attempt| runs(attempt.state)).map(|attempt| {
                f64::from(attempt.progress) / now.since(attempt.launched).max(1) as f64
            });
        let rate = rates.fold(0.0, f64::max);
        let old = std::mem::replace(&mut task.rate, rate);
        self.statistics[key.kind].replace(old, rate);
    }

    /// Finds the tasks that are slow now, and requests slots for those that have none that is unused: a
    /// request may have been withdrawn, or granted where it was of no use.
    pub(super) fn look_for_slow_tasks(&mut self, turn: &mut Turn) {
        if !self.may_speculate() || self.last < self.speculation_due {
            return;
        }
        self.speculation_due = self.last.plus_ms(self.spec.settings.speculation_refresh_ms);
        for kind in TaskKind::ALL {
            if self.spec.settings.speculation[kind].enabled {
                self.look_for_slow(kind, turn);
            }
        }
    }

    fn look_for_slow(&mut self, kind: TaskKind, turn: &mut Turn) {
        let running: Vec<TaskKey> = (0..self.sizes[kind])
            .map(|number| TaskKey { kind, number })
            .filter(|key| self.task(*key).live().next().is_some())
            .collect();
        for key in &running {
            self.update_rate(*key);
        }
        let second: usize = running.iter().map(|key| self.task(*key).live().count() - 1).sum();
        let mut slow: Vec<TaskKey> =
            running.iter().copied().filter(|key| self.is_slow(*key)).collect();
        slow.sort_by(|one, other| self.order(*one).total_cmp(&self.order(*other)));
        let part = self.spec.settings.speculative_cap * running.len() as f64;
        let cap = part.max(10.0) as usize;
        slow.truncate(cap.saturating_sub(second));
        slow.sort_unstable();
        for key in running {
            let is_slow = slow.binary_search(&key).is_ok();
            self.task_mut(key).candidate = is_slow;
            if is_slow && !self.has_unused_slot(key) {
                self.request(key, turn);
            }
        }
    }

    /// Slowest first: the rate over what is left to do.
    fn order(&self, key: TaskKey) -> f64 {
        let task = self.task(key);
        task.rate / f64::from(1.0 - task.progress()).max(0.0001)
    }

    /// Whether a task may have a second attempt at all.
    fn may_have_second(&self, key: TaskKey) -> bool {
        let task = self.task(key);
        let mut live = task.live();
        let one = matches!((live.next(), live.next()), (Some((_, only)), None)
            if only.state != TaskState::CommitPending && only.kill.is_none());
        let skips = self.spec.settings.max_skipped[key.kind] > 0
            && task.failed >= self.spec.settings.attempts_before_skipping;
        one && task.is_open()
            && !skips
            && task.to_clean().is_none()
            && task.may_start_another(self.spec.settings.max_attempts[key.kind])
    }

    fn is_slow(&self, key: TaskKey) -> bool {
        let (task, settings) = (self.task(key), &self.spec.settings);
        let of_kind = &settings.speculation[key.kind];
        let launched = task.attempts.iter().map(|attempt| attempt.launched).max();
        let young = launched.is_none_or(|launched| self.last.since(launched) < of_kind.lag_ms);
        if !self.may_have_second(key) || young {
            return false;
        }
        let duration_ms = of_kind.duration_s as f64 * 1000.0;
        if duration_ms > 0.0 && task.rate > 1.0 / duration_ms {
            return false;
        }
        let total = self.sizes[key.kind];
        let counts = self.counts[key.kind];
        let unfinished = total - counts.finished - counts.failed;
        if unfinished == 1
            || f64::from(unfinished) < of_kind.unfinished_threshold * f64::from(total)
        {
            return true;
        }
        let statistics = &self.statistics[key.kind];
        let (mean, deviation) = (statistics.mean(), statistics.deviation());
        let spread =
            if deviation == 0.0 { mean / 3.0 } else { settings.slow_task_threshold * deviation };
        mean - task.rate > spread.min(settings.max_deviation_ratio * mean)
    }

    /// Whether a slot may be used for a second attempt at the task.
    pub(super) fn is_worth_a_second_attempt(&self, key: TaskKey) -> bool {
        let task = self.task(key);
        self.may_have_second(key) && (task.wanted_again || (task.candidate && self.is_slow(key)))
    }

    /// A user wants a second attempt.
    pub(super) fn speculate(&mut self, key: TaskKey, turn: &mut Turn) -> Result<(), JobRefusal> {
        let exists = key.number < self.sizes[key.kind];
        if !exists || self.stage != JobStage::Running || !self.may_have_second(key) {
            return Err(JobRefusal::UnknownTask);
        }
        self.task_mut(key).wanted_again = true;
        self.request_if_lacking(key, turn);
        Ok(())
    }
}
