//! How a job looks to clients: from the engine's views to the objects that travel. Pure.
//! Spec: mapreduce/07 §7.6, mapreduce/02 §2.9.

use std::collections::BTreeMap;

use corona_hadoop::writables as wire;
use corona_mapreduce::{
    CompletionEvent, EventStatus, JobId, JobState, TaskKey, TaskKind, TaskRole, TaskState,
};
use corona_model::types::SessionPriority;

use crate::submit::submission::Description;
use corona_job_engine::{AttemptView, JobEngine, JobProgress, TaskView};
use corona_job_wire::translate;

/// What a scheduler could say of a job, and mostly does not.
const NO_SCHEDULING_INFO: &str = "NA";

/// The job's id as it travels; absent if it is of no session.
pub(crate) fn job_id(id: &JobId) -> Option<wire::JobId> {
    id.as_str().parse().ok()
}

/// An id of a peer, if it is one.
pub(crate) fn known_id(id: &wire::JobId) -> Option<JobId> {
    id.to_string().parse().ok()
}

/// How the job stands. Clients see `note` as information of a scheduler.
pub(crate) fn status(
    description: &Description,
    progress: &JobProgress,
    note: Option<&str>,
) -> Option<wire::JobStatus> {
    Some(wire::JobStatus {
        job: job_id(&description.id)?,
        setup_progress: progress.setup,
        map_progress: progress.work.map,
        reduce_progress: progress.work.reduce,
        cleanup_progress: progress.cleanup,
        run_state: run_state(progress.state),
        start_time_ms: progress.submitted.0,
        user: description.user.to_string(),
        priority: priority(progress.priority),
        scheduling_info: note.unwrap_or(NO_SCHEDULING_INFO).to_owned(),
    })
}

/// What does not change of it.
pub(crate) fn profile(description: &Description) -> Option<wire::JobProfile> {
    Some(wire::JobProfile {
        job: job_id(&description.id)?,
        job_file: description.conf.to_string(),
        url: description.url.to_string(),
        user: description.user.to_string(),
        name: description.name.to_string(),
        queue: description.queue.to_string(),
    })
}

/// The states of a job by their numbers on the wire.
const RUN_STATES: [(JobState, i32); 5] = [
    (JobState::Running, 1),
    (JobState::Succeeded, 2),
    (JobState::Failed, 3),
    (JobState::Prep, 4),
    (JobState::Killed, 5),
];

fn run_state(state: JobState) -> i32 {
    // Each state is listed.
    RUN_STATES.iter().find(|(listed, _)| *listed == state).map_or(0, |(_, number)| *number)
}

/// The state of a job by its number on the wire; none if there is no such state.
pub(crate) fn state_of(run_state: i32) -> Option<JobState> {
    RUN_STATES.iter().find(|(_, number)| *number == run_state).map(|(state, _)| *state)
}

fn priority(priority: SessionPriority) -> wire::JobPriority {
    match priority {
        SessionPriority::VeryLow => wire::JobPriority::VeryLow,
        SessionPriority::Low => wire::JobPriority::Low,
        SessionPriority::Normal => wire::JobPriority::Normal,
        SessionPriority::High => wire::JobPriority::High,
        SessionPriority::VeryHigh => wire::JobPriority::VeryHigh,
    }
}

/// The events from a place on.
pub(crate) fn events(job: &JobEngine, from: usize, most: usize) -> Vec<wire::TaskCompletionEvent> {
    let events = job.events(from, most).into_iter().enumerate();
    events.filter_map(|(at, of)| event(job.id(), from + at, of)).collect()
}

fn event(job: &JobId, at: usize, event: CompletionEvent) -> Option<wire::TaskCompletionEvent> {
    let attempt = translate::attempt_id(job, event.attempt)?;
    Some(wire::TaskCompletionEvent {
        id_within_job: attempt.task.number,
        attempt,
        is_map: event.is_map,
        status: match event.status {
            EventStatus::Failed => wire::EventStatus::Failed,
            EventStatus::Killed => wire::EventStatus::Killed,
            EventStatus::Succeeded => wire::EventStatus::Succeeded,
            EventStatus::Obsolete => wire::EventStatus::Obsolete,
            EventStatus::TipFailed => wire::EventStatus::TipFailed,
        },
        tracker_http: event.tracker_http.map(|url| url.to_string()),
        run_time_ms: event.run_time_ms,
        event_id: i32::try_from(at).ok()?,
    })
}

/// The reports of the tasks of the work of a kind: those that are complete, then the others.
pub(crate) fn work_reports(job: &JobEngine, kind: TaskKind) -> Vec<wire::TaskReport> {
    let of_work = job.tasks_of(kind).filter(|key| job.role(*key).is_work());
    let tasks: Vec<TaskView> = of_work.filter_map(|key| job.task_view(key)).collect();
    let (done, open): (Vec<_>, Vec<_>) =
        tasks.into_iter().partition(|task| task.succeeded.is_some());
    let all = done.iter().chain(&open);
    all.filter_map(|task| report(job.id(), task, false)).collect()
}

/// The reports of the two tasks that prepare the job, or clean up after it: one of them runs, and the
/// other one is killed then. Spec: mapreduce/07 §7.6.
pub(crate) fn reports_for_the_job(job: &JobEngine, role: TaskRole) -> Vec<wire::TaskReport> {
    let keys = TaskKind::ALL.into_iter().flat_map(|kind| job.tasks_of(kind));
    let of_role = keys.filter(|key| job.role(*key) == role);
    let mut tasks: Vec<TaskView> = of_role.filter_map(|key| job.task_view(key)).collect();
    tasks.sort_by_key(|task| task.succeeded.is_none());
    let is_done = tasks.iter().any(|task| task.succeeded.is_some());
    tasks.iter().filter_map(|task| report(job.id(), task, is_done)).collect()
}

fn report(job: &JobId, task: &TaskView, is_done: bool) -> Option<wire::TaskReport> {
    let first = translate::attempt_id(job, task.task.attempt(0))?;
    let live: Vec<&AttemptView> = task.attempts.iter().filter(|it| it.state.is_live()).collect();
    let succeeded = task.succeeded.and_then(|number| attempt(task, task.task, number));
    let ahead = live.iter().copied().max_by(|a, b| a.progress.total_cmp(&b.progress));
    let shown = succeeded.or(ahead).or(task.attempts.last());
    let id = |view: &AttemptView| translate::attempt_id(job, view.attempt);
    let state = match (succeeded, task.failed, task.killed || is_done, live.is_empty()) {
        (Some(view), ..) => wire::TaskReportState::Complete(id(view)?),
        (None, true, ..) => wire::TaskReportState::Failed,
        (None, false, true, _) => wire::TaskReportState::Killed,
        (None, false, false, true) => wire::TaskReportState::Pending,
        (None, false, false, false) => {
            wire::TaskReportState::Running(live.iter().filter_map(|view| id(view)).collect())
        }
    };
    let counted = succeeded.or(ahead).map(|view| translate::counters_to_wire(&view.counters));
    let said = task.attempts.iter().map(|view| view.diagnostics.clone());
    Some(wire::TaskReport {
        task: first.task,
        progress: task.progress,
        state_string: shown.map(|view| view.state_string.clone()).unwrap_or_default(),
        start_time_ms: task
            .attempts
            .iter()
            .map(|view| view.start_ms)
            .find(|ms| *ms > 0)
            .unwrap_or(0),
        finish_time_ms: succeeded.map_or(0, |view| view.finish_ms),
        diagnostics: said.filter(|text| !text.is_empty()).collect(),
        counters: counted.unwrap_or_default(),
        state,
    })
}

fn attempt(task: &TaskView, key: TaskKey, number: u32) -> Option<&AttemptView> {
    task.attempts.iter().find(|view| view.attempt == key.attempt(number))
}

/// The diagnostics of an attempt, if it has any.
pub(crate) fn diagnostics(job: &JobEngine, id: &wire::TaskAttemptId) -> Option<String> {
    let key = translate::attempt_key(job.id(), id)?;
    let task = job.task_view(key.task)?;
    let view = task.attempts.into_iter().find(|view| view.attempt == key)?;
    Some(view.diagnostics).filter(|text| !text.is_empty())
}

/// The statuses of a job's attempts that run, by the places of their nodes in a sorted list.
pub(crate) fn statuses_at(
    job: &JobEngine,
    nodes: &[String],
) -> Vec<(usize, Vec<wire::TaskStatus>)> {
    let mut found: BTreeMap<usize, Vec<wire::TaskStatus>> = BTreeMap::new();
    for view in job.attempts_that_run() {
        let at = nodes.binary_search_by(|node| node.as_str().cmp(&view.node));
        if let (Ok(at), Some(status)) = (at, task_status(job.id(), &view)) {
            found.entry(at).or_default().push(status);
        }
    }
    found.into_iter().collect()
}

fn task_status(job: &JobId, view: &AttemptView) -> Option<wire::TaskStatus> {
    let is_map = view.attempt.task.kind == TaskKind::Map;
    let state = match view.state {
        TaskState::Unassigned => wire::TaskState::Unassigned,
        TaskState::CommitPending => wire::TaskState::CommitPending,
        _ => wire::TaskState::Running,
    };
    Some(wire::TaskStatus {
        progress: view.progress,
        state_string: view.state_string.clone(),
        phase: if is_map { wire::Phase::Map } else { wire::Phase::Reduce },
        start_time_ms: view.start_ms,
        output_size: 0,
        ..wire::TaskStatus::new(translate::attempt_id(job, view.attempt)?, state)
    })
}
