//! The audit of the books: invariants that must hold after every input. For tests and simulations.

use std::collections::BTreeSet;

use corona_mapreduce::{AttemptKey, TaskKind, TaskRole, TaskState};
use corona_model::types::Millis;

use super::tasks::{SlotUse, Stage, Task};
use super::{JobEngine, JobStage};

impl JobEngine {
    /// Compares what is stored in more than one place, and looks for work that nothing will continue.
    ///
    /// # Errors
    /// The first thing that does not agree.
    pub fn audit(&self) -> Result<(), String> {
        self.audit_slots()?;
        self.audit_counts()?;
        match self.stage {
            JobStage::New => Ok(()),
            JobStage::Over(_) if self.slots.is_empty() && self.next_deadline().is_none() => Ok(()),
            JobStage::Over(_) => Err("slots or deadlines are left after the end".into()),
            _ => self.audit_liveness(),
        }
    }

    fn audit_slots(&self) -> Result<(), String> {
        let looked_up: BTreeSet<AttemptKey> = self.due.iter().map(|(_, key)| *key).collect();
        for (id, slot) in &self.slots {
            let fail = |what: &str| Err(format!("slot {}: {what}: {slot:?}", id.0));
            let is_free = matches!(slot.use_, SlotUse::Free(_));
            if is_free != self.free.contains(id) {
                return fail("is not in the right set");
            }
            if slot.owner.is_some_and(|owner| !self.task(owner).slots.contains(id)) {
                return fail("is not known to its task");
            }
            if let SlotUse::Runs(key) = slot.use_ {
                let attempt = self.attempt(key);
                let runs =
                    attempt.state.is_live() || (attempt.state.is_unclean() && attempt.cleaning);
                if !runs || attempt.slot != Some(*id) {
                    return fail("runs an attempt that does not run");
                }
                if attempt.due < Millis(i64::MAX) && !looked_up.contains(&key) {
                    return fail("runs an attempt whose silence nobody would notice");
                }
            }
        }
        if let Some(id) = self.free.iter().find(|id| !self.slots.contains_key(id)) {
            return Err(format!("slot {} is free and does not exist", id.0));
        }
        Ok(())
    }

    fn audit_counts(&self) -> Result<(), String> {
        let is_over = matches!(self.stage, JobStage::Over(_));
        for kind in TaskKind::ALL {
            let work = || self.tasks[kind].iter().take(self.sizes[kind] as usize);
            let live: usize = work().map(|task| task.live().count()).sum();
            let finished = work().filter(|task| task.is_complete()).count();
            let failed = work().filter(|task| task.stage == Stage::Failed).count();
            let counts = self.counts[kind];
            let stored = [counts.live, counts.finished, counts.failed].map(|count| count as usize);
            if stored != [live, finished, failed] {
                return Err(format!(
                    "{kind:?}: {counts:?}, but {live}, {finished}, {failed} are found"
                ));
            }
            let is_quiet = |task: &Task| task.to_clean().is_none() && task.attempts.len() < 2;
            if self.each_attempt_succeeded(kind) && !work().all(is_quiet) {
                return Err(format!("{kind:?}: more attempts than were counted"));
            }
            for (number, task) in work().enumerate() {
                let commits = task.committing.map(|number| task.attempts[number as usize].state);
                if commits.is_some_and(|state| state != TaskState::CommitPending) {
                    return Err(format!(
                        "{kind:?} {number}: an attempt commits that does not wait"
                    ));
                }
                let missing = task.slots.iter().any(|id| !self.slots.contains_key(id));
                if missing && !is_over {
                    return Err(format!("{kind:?} {number}: has a slot that does not exist"));
                }
            }
        }
        Ok(())
    }

    /// Everything that must still be done has a slot, or a request for one.
    fn audit_liveness(&self) -> Result<(), String> {
        for key in self.keys().filter(|key| self.is_working() && self.role(*key).is_work()) {
            let task = self.task(key);
            if self.requested[key.kind] && task.lacks_slot() && !self.has_unused_slot(key) {
                return Err(format!("{key:?} has nothing that runs and no request"));
            }
            if task.live().count() > 2 {
                return Err(format!("{key:?} has more than two attempts that run"));
            }
        }
        let role = match self.stage {
            JobStage::Prep => TaskRole::Setup,
            JobStage::CleaningUp(_) => TaskRole::Cleanup,
            _ => return Ok(()),
        };
        let runs = self.keys().filter(|key| self.role(*key) == role);
        let live: usize = runs.map(|key| self.task(key).live().count()).sum();
        let unused = self.slots.values().any(|slot| !matches!(slot.use_, SlotUse::Runs(_)));
        match (live, unused) {
            (1, _) | (0, true) => Ok(()),
            _ => Err(format!("{live} attempts for the job, and no request: {:?}", self.stage)),
        }
    }
}
