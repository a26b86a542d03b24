//! The state of a tracker, for pages, the JSON API and metrics.

use tokio::sync::Semaphore;

use super::{Identity, Tracker, launch};
use crate::child::TaskUsage;
use crate::localise::TaskKind;
use corona_hadoop::writables::{NodeHealth, Phase, TaskState};

/// The status of a tracker.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// How it names itself to job trackers.
    pub identity: Identity,
    /// Its slots for maps.
    pub maps: SlotUse,
    /// Its slots for reduces.
    pub reduces: SlotUse,
    /// Attempts that failed since it started.
    pub failures: u32,
    /// Jobs that it knows.
    pub jobs: Vec<JobSnapshot>,
    /// Processes that wait for a further task.
    pub idle_processes: usize,
    /// What all attempts have used since it started. Memory is not counted.
    pub used: TaskUsage,
    /// The state of the archive of the classes of the install; `None` if it is not used.
    pub class_archive: Option<String>,
    /// The last result of the node's health script.
    pub health: NodeHealth,
    /// Why it takes no new tasks; empty if it does.
    pub obstacles: Vec<String>,
}

/// How many slots of a type there are and are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotUse {
    /// All there are.
    pub total: u32,
    /// Those that tasks have.
    pub used: u32,
}

/// A job, with its attempts on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSnapshot {
    /// Its name.
    pub id: String,
    /// The handle of its session.
    pub session: String,
    /// Where its job tracker listened when it last launched something: `host:port`.
    pub job_tracker: String,
    /// Its attempts, those included that have ended and whose output is served.
    pub attempts: Vec<AttemptSnapshot>,
}

/// An attempt on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptSnapshot {
    /// Its name.
    pub id: String,
    /// Its purpose.
    pub kind: TaskKind,
    /// Whether it is started as a map.
    pub is_map: bool,
    /// Its state, as job trackers receive it.
    pub state: TaskState,
    /// The part of its work that it is at.
    pub phase: Phase,
    /// From 0 to 1.
    pub progress: f32,
    /// The state that it reports.
    pub state_string: String,
    /// Milliseconds since the Unix epoch, 0 if it has not begun.
    pub start_time_ms: i64,
    /// Milliseconds since the Unix epoch, 0 if it has not ended.
    pub finish_time_ms: i64,
    /// The slots that it takes.
    pub slots: i32,
    /// Its process, while there is one.
    pub pid: Option<i32>,
    /// What it has used, as far as that is known.
    pub usage: TaskUsage,
}

impl Tracker {
    /// Its present status.
    pub fn snapshot(&self) -> Snapshot {
        let shared = &self.shared;
        let used = |slots: &Semaphore, total: u32| {
            let free = u32::try_from(slots.available_permits()).unwrap_or(u32::MAX);
            SlotUse { total, used: total.saturating_sub(free) }
        };
        let state = shared.lock();
        let attempts = |job| {
            let runs = state.table.runs(job).map(|(number, attempt)| {
                let (task, status) = (attempt.task(), attempt.status());
                let process = state.live.get(&number).and_then(|live| live.process.as_ref());
                AttemptSnapshot {
                    id: task.attempt.to_string(),
                    kind: launch::kind(task),
                    is_map: task.is_map(),
                    state: status.state,
                    phase: status.phase,
                    progress: status.progress,
                    state_string: status.state_string.clone(),
                    start_time_ms: status.start_time_ms,
                    finish_time_ms: status.finish_time_ms,
                    slots: task.slots,
                    pid: process.map(|process| process.child.pid()),
                    usage: state.table.usage(&task.attempt),
                }
            });
            runs.collect()
        };
        let jobs = state.table.jobs().map(|(job, session)| JobSnapshot {
            id: job.to_string(),
            session: session.handle.clone().unwrap_or_default(),
            job_tracker: session.trackers.job_tracker.to_string(),
            attempts: attempts(job),
        });
        Snapshot {
            identity: shared.parts.identity.clone(),
            maps: used(&shared.map_slots, shared.parts.slots.maps),
            reduces: used(&shared.reduce_slots, shared.parts.slots.reduces),
            failures: state.table.failures(),
            jobs: jobs.collect(),
            idle_processes: state.jvms.idle(true) + state.jvms.idle(false),
            used: state.table.usage_of_all(),
            class_archive: shared.parts.archives.as_ref().map(|archives| archives.status()),
            health: shared.parts.health.borrow().clone(),
            obstacles: shared.parts.fitness.obstacles(),
        }
    }
}
