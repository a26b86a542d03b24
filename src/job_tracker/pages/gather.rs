//! What pages show, taken from the jobs in pieces: a look at a job happens in its own task and must be
//! short, so it copies outlines and everything else is made from them elsewhere.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corona_mapreduce::{Counters, JobId, JobState, PerKind, TaskKey, TaskKind};
use corona_model::types::Millis;
use tokio::time::Instant;

use super::sources::PageSources;
use super::time_line::TimeLine;
use crate::clock::now;
use crate::jobs::job::{AskError, Job};
use crate::jobs::remote::RemoteJob;
use crate::jobs::store::{KnownJob, Retired};
use crate::submit::submission::Description;
use corona_job_engine::{
    AttemptTimes, AttemptView, JobEngine, JobProgress, JobTotals, NodeOutline, TaskOutline,
    TaskStanding, TaskView,
};

/// For how long a look at a job serves several readers, and one at a large job.
const AGE: Duration = Duration::from_millis(900);
const AGE_OF_LARGE: Duration = Duration::from_secs(4);
const LARGE: usize = 20_000;
/// Looks that are kept.
const MOST: usize = 16;
/// Attempts in the list of those that failed or were killed.
pub(super) const MOST_ENDED: usize = 1000;

/// A job in a list.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) description: Arc<Description>,
    pub(crate) progress: Arc<JobProgress>,
}

impl Row {
    /// How much of its maps or reduces is done, from 0 to 1. Clients of the original see 1 for a job that
    /// failed or was killed; here it is the part of its tasks that succeeded.
    pub(super) fn done(&self, kind: TaskKind) -> f32 {
        let progress = &self.progress;
        match (progress.state, progress.total[kind]) {
            (JobState::Failed | JobState::Killed, total) => {
                progress.finished[kind] as f32 / total.max(1) as f32
            }
            _ => progress.work[kind],
        }
    }
}

/// A job with its tasks.
#[derive(Clone, Debug)]
pub(crate) struct Detail {
    pub(crate) now: Millis,
    pub(crate) tasks: Vec<TaskOutline>,
    pub(crate) time_line: TimeLine,
    pub(crate) totals: JobTotals,
    pub(crate) nodes: Vec<NodeOutline>,
    pub(crate) by_kind: PerKind<Counters>,
    pub(crate) counters: Counters,
    /// The first task that failed for good, and the error of its last attempt that failed.
    pub(crate) failure: Option<(TaskKey, String)>,
}

/// A task with its attempts.
#[derive(Clone, Debug)]
pub(crate) struct TaskDetail {
    pub(crate) view: TaskView,
    pub(crate) times: Vec<AttemptTimes>,
}

impl TaskDetail {
    fn of(job: &JobEngine, key: TaskKey) -> Option<TaskDetail> {
        Some(TaskDetail { view: job.task_view(key)?, times: job.attempt_times(key) })
    }

    /// Its attempts, with their times.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = (&AttemptView, Option<&AttemptTimes>)> {
        let times = self.times.iter().map(Some).chain(std::iter::repeat(None));
        self.view.attempts.iter().zip(times)
    }
}

/// What is known of a job.
pub(crate) enum Found {
    /// It runs, or its details are kept.
    Whole(Row, Job),
    /// A job tracker on a node runs it.
    OnNode(Row, RemoteJob),
    /// It waits to begin.
    Waiting(Row, Arc<str>),
    /// Only this is kept.
    Retired(Arc<Retired>),
}

impl Found {
    pub(crate) fn row(&self) -> Row {
        match self {
            Found::Whole(row, _) | Found::OnNode(row, _) | Found::Waiting(row, _) => row.clone(),
            Found::Retired(retired) => {
                Row { description: retired.description.clone(), progress: retired.progress.clone() }
            }
        }
    }

    /// Where the pages of its job tracker are, as far as that is known, if it is one on a node.
    pub(crate) fn job_tracker(&self) -> Option<Option<Arc<str>>> {
        match self {
            Found::OnNode(_, job) => Some(job.pages()),
            Found::Whole(..) | Found::Waiting(..) | Found::Retired(_) => None,
        }
    }

    /// Whether it waits for slots, for tasks or for its job tracker, so that somebody may want to know why.
    pub(crate) fn is_waiting(&self) -> bool {
        let progress = self.row().progress;
        let awaits_job_tracker = matches!(self, Found::OnNode(_, job) if job.awaits_job_tracker());
        !progress.state.is_over() && (awaits_job_tracker || progress.requested > 0)
    }

    /// What it waits for, why the service has ended it, or that its history is missing, if there is anything to
    /// say.
    pub(crate) fn note(&self) -> Option<Arc<str>> {
        match self {
            Found::Whole(_, job) => job.note().map(Into::into),
            Found::OnNode(_, job) => job.note(),
            Found::Waiting(_, reason) => Some(reason.clone()),
            Found::Retired(retired) => retired.reason.clone(),
        }
    }
}

type Slot = Arc<tokio::sync::Mutex<Option<(Instant, Arc<Detail>)>>>;

/// Looks that were taken a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<HashMap<JobId, (Instant, Slot)>>);

impl Looks {
    /// The place for the looks at a job: one is taken at a time.
    fn slot(&self, id: &JobId) -> Slot {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known, (used, _)| known == id || used.elapsed() < AGE_OF_LARGE * 2);
        if all.len() >= MOST && !all.contains_key(id) {
            // Somebody looks at many jobs; these looks are not shared.
            return Slot::default();
        }
        let (used, slot) =
            all.entry(id.clone()).or_insert_with(|| (Instant::now(), Slot::default()));
        *used = Instant::now();
        slot.clone()
    }
}

impl PageSources {
    /// Whether somebody whose name is not known may see jobs.
    pub(crate) fn shows_jobs(&self) -> bool {
        self.settings.viewers.admits("", &[])
    }

    /// All jobs that a page may show.
    pub(crate) fn rows(&self) -> Vec<Row> {
        if self.shows_jobs() { self.all_rows() } else { Vec::new() }
    }

    /// All jobs, for sums.
    pub(crate) fn all_rows(&self) -> Vec<Row> {
        let known = self.store.all().into_iter();
        let rows = known.filter_map(|known| {
            Some(Row { description: known.description()?.clone(), progress: known.progress()? })
        });
        rows.collect()
    }

    /// A job that a page may show.
    pub(crate) fn found(&self, id: &str) -> Option<Found> {
        if !self.shows_jobs() {
            return None;
        }
        match self.store.get(&self.meant(id.parse().ok()?))? {
            KnownJob::Arriving(..) => None,
            KnownJob::Waiting(job, places) => {
                let reason = job.reason(|| places.reason().into());
                let (description, progress) = (job.description.clone(), job.progress.clone());
                Some(Found::Waiting(Row { description, progress }, reason))
            }
            KnownJob::Job(job) => {
                let row = Row { description: job.description().clone(), progress: job.progress() };
                Some(Found::Whole(row, job))
            }
            KnownJob::Remote(job) => {
                let row = Row { description: job.description().clone(), progress: job.progress() };
                Some(Found::OnNode(row, job))
            }
            KnownJob::Retired(retired) => Some(Found::Retired(retired)),
        }
    }

    /// A look at a whole job, a short while old at most.
    pub(crate) async fn detail(&self, looks: &Looks, job: &Job) -> Result<Arc<Detail>, AskError> {
        let slot = looks.slot(&job.description().id);
        let mut kept = slot.lock().await;
        if let Some((taken, detail)) = &*kept {
            let age = if detail.tasks.len() > LARGE { AGE_OF_LARGE } else { AGE };
            // One of before the end does not go with what is said of the end.
            let has_ended_since = job.progress().finished_at.is_some_and(|end| end >= detail.now);
            if taken.elapsed() < age && !has_ended_since {
                return Ok(detail.clone());
            }
        }
        let detail = Arc::new(job.look(look).await?);
        *kept = Some((Instant::now(), detail.clone()));
        Ok(detail)
    }
}

fn look(job: &JobEngine) -> Detail {
    let now = now();
    let progress = job.progress();
    let end = progress.finished_at.unwrap_or(now);
    let by_kind = PerKind::of(|kind| job.counters_of_kind(kind));
    Detail {
        now,
        tasks: job.task_outlines().collect(),
        time_line: TimeLine::of(progress.submitted.0, end.0, job.attempt_spans()),
        totals: job.totals().clone(),
        nodes: job.node_outlines(),
        counters: job.counters_with(&by_kind),
        by_kind,
        failure: failure(job),
    }
}

fn failure(job: &JobEngine) -> Option<(TaskKey, String)> {
    let key = job.task_outlines().find(|task| task.standing == TaskStanding::Failed)?.task;
    let view = job.task_view(key)?;
    let failed = view.attempts.iter().rev().filter(|attempt| attempt.state.is_failed());
    let error = failed.map(|attempt| attempt.diagnostics.trim_end()).find(|text| !text.is_empty());
    Some((key, error.unwrap_or("no reason is known").to_owned()))
}

/// A task of a job.
pub(crate) async fn task(job: &Job, key: TaskKey) -> Result<Option<TaskDetail>, AskError> {
    job.look(move |job| TaskDetail::of(job, key)).await
}

/// The tasks whose attempts failed or were killed.
pub(crate) async fn ended_attempts(job: &Job) -> Result<Vec<TaskDetail>, AskError> {
    job.look(|job| {
        let mut keys: Vec<TaskKey> =
            job.ended_attempts(MOST_ENDED).into_iter().map(|attempt| attempt.task).collect();
        keys.dedup();
        keys.into_iter().filter_map(|key| TaskDetail::of(job, key)).collect()
    })
    .await
}

/// The key of a task in a job, from its whole name.
pub(crate) fn task_key(job: &JobId, name: &str) -> Option<TaskKey> {
    let rest = name.strip_prefix("task_")?.strip_prefix(job.as_str().strip_prefix("job_")?)?;
    let (kind, number) = rest.strip_prefix('_')?.split_once('_')?;
    let kind = match kind {
        "m" => TaskKind::Map,
        "r" => TaskKind::Reduce,
        _ => return None,
    };
    let key = TaskKey { kind, number: number.parse().ok()? };
    (job.task(key) == name).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_found_by_their_whole_names_only() {
        let job = JobId::new("202611210043.7", 1).unwrap();
        for key in [(TaskKind::Map, 0), (TaskKind::Reduce, 123_456)] {
            let key = TaskKey { kind: key.0, number: key.1 };
            assert_eq!(task_key(&job, &job.task(key)), Some(key));
        }
        for wrong in [
            "",
            "task_",
            "task_202611210043.7_0001_x_000001",
            "task_202611210043.7_0001_m_1",
            "task_202611210043.8_0001_m_000001",
            "attempt_202611210043.7_0001_m_000001_0",
        ] {
            assert_eq!(task_key(&job, wrong), None, "{wrong}");
        }
    }
}
