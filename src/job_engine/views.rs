//! Views of a job, for callers that ask for its state. Nothing here changes the job.

use std::sync::Arc;

use corona_mapreduce::{
    AttemptKey, CompletionEvent, Counters, JobId, JobState, PerKind, Phase, TaskKey, TaskKind,
    TaskRole, TaskState,
};
use corona_model::types::{Address, Grant, Millis, ResourceRequest, SessionPriority};
use serde::{Deserialize, Serialize};

use super::input::slot_type;
use super::tasks::{Attempt, SlotUse, Stage};
use super::{JobEngine, JobSpec, JobStage, JobTotals, RequestId, Tracker};

/// How far a job is. Spec: mapreduce/09 §H.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobProgress {
    /// Its state: `RUNNING` while a clean-up runs.
    pub state: JobState,
    /// Of the set-up, from 0 to 1.
    pub setup: f32,
    /// Of maps and of reduces, from 0 to 1.
    pub work: PerKind<f32>,
    /// Of the clean-up, from 0 to 1.
    pub cleanup: f32,
    /// Tasks of the work.
    pub total: PerKind<u32>,
    /// Tasks that succeeded.
    pub finished: PerKind<u32>,
    /// Tasks that failed.
    pub failed: PerKind<u32>,
    /// Attempts that run.
    pub live: PerKind<u32>,
    /// Slots that are requested and not granted.
    pub requested: usize,
    /// The submission.
    pub submitted: Millis,
    /// The end, if it has ended.
    pub finished_at: Option<Millis>,
    /// The priority of its session.
    pub priority: SessionPriority,
}

impl JobProgress {
    /// Of a job that waits to begin.
    pub fn waiting(
        submitted: Millis,
        priority: SessionPriority,
        total: PerKind<u32>,
    ) -> JobProgress {
        JobProgress {
            state: JobState::Prep,
            setup: 0.0,
            // As of a job that has begun.
            work: PerKind::of(|kind| if total[kind] == 0 { 1.0 } else { 0.0 }),
            cleanup: 0.0,
            total,
            finished: PerKind::default(),
            failed: PerKind::default(),
            live: PerKind::default(),
            requested: 0,
            submitted,
            finished_at: None,
            priority,
        }
    }

    /// Of a job that has failed, and of which nothing else is known. Spec: mapreduce/09 §H.
    pub fn failed(at: Millis) -> JobProgress {
        JobProgress {
            state: JobState::Failed,
            setup: 1.0,
            cleanup: 1.0,
            finished_at: Some(at),
            ..JobProgress::waiting(at, SessionPriority::Normal, PerKind::default())
        }
    }
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskView {
    /// Which one.
    pub task: TaskKey,
    /// Its purpose.
    pub role: TaskRole,
    /// The attempt that succeeded.
    pub succeeded: Option<u32>,
    /// Whether too many attempts failed.
    pub failed: bool,
    /// Whether the job ended without it.
    pub killed: bool,
    /// From 0 to 1.
    pub progress: f32,
    /// The hosts of its split.
    pub hosts: Vec<Arc<str>>,
    /// Its attempts in the order of their numbers.
    pub attempts: Vec<AttemptView>,
}

/// An attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptView {
    /// Which one.
    pub attempt: AttemptKey,
    /// Where it stands, as it last reported or the engine decided.
    pub state: TaskState,
    /// The part of its work that it is at.
    pub phase: Phase,
    /// From 0 to 1.
    pub progress: f32,
    /// The name of its node.
    pub node: Arc<str>,
    /// Milliseconds since the Unix epoch, 0 if it has not begun.
    pub start_ms: i64,
    /// Milliseconds since the Unix epoch, 0 if it has not ended.
    pub finish_ms: i64,
    /// The state that it reports.
    pub state_string: String,
    /// What it reported as reasons of its failure, one after the other.
    pub diagnostics: String,
    /// Its counters, as last reported.
    pub counters: Counters,
}

impl JobEngine {
    /// The job.
    pub fn id(&self) -> &JobId {
        &self.spec.id
    }

    /// The submitted job. The splits are left out once the tasks are made.
    pub fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// The priority of its session.
    pub fn priority(&self) -> SessionPriority {
        self.priority
    }

    /// How the job stands or has ended.
    pub fn state(&self) -> JobState {
        match self.stage {
            JobStage::New | JobStage::Prep => JobState::Prep,
            JobStage::Running | JobStage::CleaningUp(_) => JobState::Running,
            JobStage::Over(state) => state,
        }
    }

    /// How far the job is.
    pub fn progress(&self) -> JobProgress {
        let is_over = matches!(self.stage, JobStage::Over(_));
        let ended_badly = matches!(self.stage, JobStage::Over(JobState::Failed | JobState::Killed));
        // Tasks that have failed count as done only where that is allowed.
        let ends_badly =
            matches!(self.stage, JobStage::CleaningUp(JobState::Failed | JobState::Killed));
        let work = PerKind::of(|kind| match (ended_badly, self.sizes[kind]) {
            // Spec: mapreduce/09 §H.
            (true, _) | (false, 0) => 1.0,
            (false, size) => {
                let done = self.counts[kind].finished + self.counts[kind].failed >= size;
                let tasks = self.tasks[kind].iter().take(size as usize);
                let sum: f32 = tasks.map(super::Task::progress).sum();
                if done && !ends_badly { 1.0 } else { sum / size as f32 }
            }
        });
        let begun = !matches!(self.stage, JobStage::New | JobStage::Prep);
        JobProgress {
            state: self.state(),
            setup: if begun { 1.0 } else { 0.0 },
            work,
            cleanup: if is_over { 1.0 } else { 0.0 },
            total: self.sizes,
            finished: PerKind::of(|kind| self.counts[kind].finished),
            failed: PerKind::of(|kind| self.counts[kind].failed),
            live: PerKind::of(|kind| self.counts[kind].live),
            requested: self.slots.values().filter(|it| it.use_ == SlotUse::Requested).count(),
            submitted: self.submitted,
            finished_at: is_over.then_some(self.finished),
            priority: self.priority,
        }
    }

    /// Whether the job has ended without its clean-up although its set-up may have begun: its session was
    /// lost, or the clean-up of a killed job took too long.
    pub fn was_left_uncleaned(&self) -> bool {
        let begun = |kind| !self.task(self.setup_task(kind)).attempts.is_empty();
        let cleaned = |kind| self.task(self.cleanup_task(kind)).is_complete();
        matches!(self.stage, JobStage::Over(_))
            // A job that was never submitted has no tasks.
            && !self.tasks.map.is_empty()
            && self.spec.settings.setup_cleanup_needed
            && TaskKind::ALL.into_iter().any(begun)
            && !TaskKind::ALL.into_iter().any(cleaned)
    }

    /// Whether an attempt did not succeed. Its node may not have reported that: then it may run still.
    pub fn may_have_late_attempts(&self) -> bool {
        let mut attempts = self.keys().flat_map(|key| &self.task(key).attempts);
        attempts.any(|attempt| attempt.state != TaskState::Succeeded)
    }

    /// A task of the work, or one that sets the job up or cleans up after it.
    pub fn task_view(&self, key: TaskKey) -> Option<TaskView> {
        let task = self.tasks[key.kind].get(key.number as usize)?;
        let view = |(number, attempt)| self.attempt_view(key.attempt(number), attempt);
        let attempts = task.numbered().map(view);
        Some(TaskView {
            task: key,
            role: self.role(key),
            succeeded: match task.stage {
                Stage::Complete(number) => Some(number),
                _ => None,
            },
            failed: task.stage == Stage::Failed,
            killed: task.stage == Stage::Killed,
            progress: task.progress(),
            hosts: self.host_names(&task.hosts),
            attempts: attempts.collect(),
        })
    }

    /// The attempts that run.
    pub fn attempts_that_run(&self) -> impl Iterator<Item = AttemptView> {
        TaskKind::ALL.into_iter().flat_map(|kind| self.tasks_of(kind)).flat_map(move |key| {
            let attempts = self.task(key).numbered().filter(|(_, attempt)| attempt.state.is_live());
            attempts.map(move |(number, attempt)| self.attempt_view(key.attempt(number), attempt))
        })
    }

    fn attempt_view(&self, key: AttemptKey, attempt: &Attempt) -> AttemptView {
        AttemptView {
            attempt: key,
            state: attempt.state,
            phase: attempt.phase,
            progress: attempt.progress,
            node: self.nodes[attempt.node].name.clone(),
            start_ms: attempt.start_ms,
            finish_ms: attempt.finish_ms,
            state_string: attempt.state_string.to_string(),
            diagnostics: attempt.diagnostics.to_string(),
            counters: self.counter_names.unpack(&attempt.counters),
        }
    }

    /// All tasks of a kind, those that set the job up or clean up after it last.
    pub fn tasks_of(&self, kind: TaskKind) -> impl Iterator<Item = TaskKey> + use<> {
        (0..self.tasks[kind].len() as u32).map(move |number| TaskKey { kind, number })
    }

    /// At most `most` completion events from the place `from` on.
    pub fn events(&self, from: usize, most: usize) -> Vec<CompletionEvent> {
        let end = from.saturating_add(most).min(self.events.len());
        (from..end).map(|id| self.event(id)).collect()
    }

    /// The id of the last request; 0 before the first one.
    pub fn last_request(&self) -> RequestId {
        RequestId(self.last_request)
    }

    /// The requests that are not released, with the grants of those that were granted, as far as a
    /// session must know them after a restart: which hosts they wanted is not kept.
    pub fn open_requests(&self) -> Vec<(ResourceRequest, Option<Grant>)> {
        let open = self.slots.iter().map(|(id, slot)| {
            let kind = slot_type(slot.kind);
            let request = ResourceRequest {
                id: id.0,
                hosts: Vec::new(),
                specs: None,
                kind,
                exclude_hosts: Vec::new(),
            };
            let node = match slot.use_ {
                SlotUse::Requested => return (request, None),
                SlotUse::Free(node) => node,
                SlotUse::Runs(attempt) => self.attempt(attempt).node,
            };
            let node = &self.nodes[node];
            let at = node.tracker();
            let address = Address { host: self.hosts.name(node.host).clone(), port: 0 };
            let granted_at = Millis(0);
            let (node_name, app_info) = (at.node, at.address);
            let id = id.0;
            (request, Some(Grant { id, node_name, address, granted_at, kind, app_info }))
        });
        open.collect()
    }

    /// The task trackers on which the job had slots and that are not lost.
    pub fn trackers(&self) -> Vec<Tracker> {
        self.nodes.iter().filter(|node| !node.lost).map(|node| node.tracker()).collect()
    }

    /// The counters of the job tracker itself.
    pub fn totals(&self) -> &JobTotals {
        &self.totals
    }
}
