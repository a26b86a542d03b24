//! `/api/v1/...`: the JSON for programs. `docs/operate/job-tracker.md` describes it; fields are only added.

use corona_api::jobs::{
    self as shapes, AttemptDetail, AttemptTotals, CompletionEvents, Counter, FailedAttempts, Job,
    JobDetail, JobNode, JobTotals, JobWork, Jobs, PATHS, Task, TaskCounts, Tasks,
};
use corona_api::{Index, IndexEntry};
use corona_mapreduce::{Counters, JobId, JobState, TaskKey, TaskKind, TaskRole};
use corona_web::exchange::Parameters;

use super::gather::{Detail, Row, TaskDetail};
use super::html::jobs::Filter;
use super::html::tasks::KINDS;
use super::html::{STANDINGS, kind_name, standing_name};
use super::trackers::Places;
use corona_job_engine::{AttemptTimes, AttemptView, NodeUse, TaskOutline, TaskStanding, TaskView};

/// The most entries of one answer, and how many there are where nothing is said.
pub(super) const MOST: usize = 2000;
pub(super) const USUAL: usize = 1000;

/// The states that a job can be in.
const STATES: [JobState; 5] =
    [JobState::Prep, JobState::Running, JobState::Succeeded, JobState::Failed, JobState::Killed];

/// Where a list continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Paging {
    pub(super) limit: usize,
    pub(super) after: Option<String>,
}

impl Paging {
    /// From `limit` and `after`. The error is a sentence.
    pub(super) fn of(parameters: &Parameters) -> Result<Paging, String> {
        let limit = match parameters.text("limit").map(str::parse) {
            None => USUAL,
            Some(Ok(limit @ 1..=MOST)) => limit,
            Some(_) => return Err(format!("limit: expected a number from 1 to {MOST}")),
        };
        Ok(Paging { limit, after: parameters.text("after").map(str::to_owned) })
    }

    /// What the list continues behind, which need not be in it any more. `read` reads a name of `what`.
    fn after<K>(&self, what: &str, read: impl Fn(&str) -> Option<K>) -> Result<Option<K>, String> {
        let wrong = |after: &String| format!("after: {after:?} is not the name of {what}");
        self.after.as_ref().map(|after| read(after).ok_or_else(|| wrong(after))).transpose()
    }

    /// The first part of a list, and the name behind which more follows.
    fn cut<T>(&self, mut all: Vec<T>, name: impl Fn(&T) -> String) -> (Vec<T>, Option<String>) {
        let more = all.len() > self.limit;
        all.truncate(self.limit);
        let next = all.last().filter(|_| more).map(name);
        (all, next)
    }
}

/// Which of the names of a filter is meant, in upper or lower case. The error is a sentence.
fn one_of<T: Copy>(
    parameters: &Parameters,
    filter: &str,
    known: &[(&str, T)],
) -> Result<Option<T>, String> {
    let Some(text) = parameters.text(filter) else { return Ok(None) };
    let found = known.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    let names = || known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let wrong = || format!("{filter}: expected one of {}, and not {text:?}", names());
    Ok(Some(found.ok_or_else(wrong)?.1))
}

/// `/api/v1`
pub(super) fn index() -> Index {
    let entry = |(path, meaning): (&str, &str)| IndexEntry {
        path: format!("/api/v1/{path}"),
        meaning: meaning.to_owned(),
    };
    Index { version: env!("CARGO_PKG_VERSION").into(), paths: PATHS.map(entry).into() }
}

/// A job in short.
fn job(row: &Row) -> Job {
    let Row { description: job, progress } = row;
    let kind = |kind| TaskCounts {
        total: progress.total[kind],
        succeeded: progress.finished[kind],
        failed: progress.failed[kind],
        running_attempts: progress.live[kind],
        progress: row.done(kind),
    };
    Job {
        id: job.id.to_string(),
        name: job.name.to_string(),
        user: job.user.to_string(),
        queue: job.queue.to_string(),
        pool: job.pool.to_string(),
        priority: progress.priority.name().into(),
        state: progress.state.name().into(),
        submitted_ms: progress.submitted.0,
        ended_ms: progress.finished_at.map(|at| at.0),
        setup_progress: progress.setup,
        maps: kind(TaskKind::Map),
        reduces: kind(TaskKind::Reduce),
        cleanup_progress: progress.cleanup,
        requested_slots: progress.requested,
        page: job.url.to_string(),
    }
}

/// `jobs`
///
/// Errors: a sentence that says which parameter is wrong.
pub(super) fn jobs(
    rows: Vec<Row>,
    parameters: &Parameters,
    paging: &Paging,
    now_ms: i64,
) -> Result<Jobs, String> {
    let filter = Filter::new(parameters);
    let ended = one_of(parameters, "ended", &[("0", false), ("1", true)])?;
    // The filter compares it.
    one_of(parameters, "state", &STATES.map(|state| (state.name(), ())))?;
    let after = paging.after("a job", |name| name.parse::<JobId>().ok())?;
    let wanted = rows.into_iter().filter(|row| {
        let is_ended = row.progress.finished_at.is_some();
        // They come in the order of their ids.
        after.as_ref().is_none_or(|after| row.description.id > *after)
            && ended.is_none_or(|ended| ended == is_ended)
            && filter.wants(row)
    });
    let (rows, next) = paging.cut(wanted.collect(), |row| row.description.id.to_string());
    Ok(Jobs { now_ms, jobs: rows.iter().map(job).collect(), next })
}

/// `jobs/{job}`, without what is known of it elsewhere.
pub(super) fn one_job(row: &Row, detail: Option<&Detail>) -> JobDetail {
    let work = detail.map(work);
    JobDetail { job: job(row), work, note: None, job_tracker_pages: None, session: None }
}

fn work(detail: &Detail) -> JobWork {
    let totals = &detail.totals;
    let [copy_ms, sort_ms, reduce_ms] = totals.reduce_phase_millis;
    let kind = |kind| AttemptTotals {
        launched: totals.launched[kind],
        failed_attempts: totals.failed_attempts[kind],
        killed_attempts: totals.killed_attempts[kind],
        slot_ms: totals.slot_millis[kind],
    };
    let nodes = detail.nodes.iter().map(|node| JobNode {
        node: node.node.to_string(),
        lost: node.lost,
        faulty: node.faulty,
        launched: node.launched,
        succeeded: node.succeeded,
        failed: node.failed,
        killed: node.killed,
        timeouts: node.timeouts,
        failed_connections: node.failed_connections,
    });
    // The progress of both is 1 for a job that failed or was killed, as clients of the original see it.
    let has_run = |role| {
        let mut tasks = detail.tasks.iter().filter(|task| task.role == role);
        tasks.any(|task| task.standing == TaskStanding::Complete)
    };
    JobWork {
        totals: JobTotals {
            maps: kind(TaskKind::Map),
            reduces: kind(TaskKind::Reduce),
            data_local_maps: totals.data_local,
            rack_local_maps: totals.rack_local,
            copy_ms,
            sort_ms,
            reduce_ms,
        },
        nodes: nodes.collect(),
        setup_task_done: has_run(TaskRole::Setup),
        cleanup_task_done: has_run(TaskRole::Cleanup),
    }
}

fn outline(job: &JobId, task: &TaskOutline) -> Task {
    Task {
        id: job.task(task.task),
        kind: kind_name(task.task.kind).into(),
        purpose: task.role.name().into(),
        state: standing_name(task.standing).into(),
        progress: task.progress,
        launched_ms: known(task.launched_ms),
        started_ms: known(task.start_ms),
        ended_ms: known(task.finish_ms),
        attempts: task.attempts,
        running_attempts: task.live,
        failed_attempts: task.failed,
        killed_attempts: task.killed,
    }
}

/// A time, unless it has not come.
fn known(ms: i64) -> Option<i64> {
    (ms > 0).then_some(ms)
}

/// `jobs/{job}/tasks`
///
/// Errors: a sentence that says which parameter is wrong.
pub(super) fn tasks(
    job: &JobId,
    detail: &Detail,
    parameters: &Parameters,
    paging: &Paging,
) -> Result<Tasks, String> {
    let role = one_of(parameters, "kind", &KINDS.map(|(name, _, role)| (name, role)))?;
    let standings = STANDINGS.map(|standing| (standing_name(standing), standing));
    let state = one_of(parameters, "state", &standings)?;
    let after = paging.after("a task of the job", |name| super::gather::task_key(job, name))?;
    let wanted = detail.tasks.iter().filter(|task| {
        // They come in the order of their keys.
        after.is_none_or(|after| task.task > after)
            && role.is_none_or(|role| role == task.role)
            && state.is_none_or(|state| state == task.standing)
    });
    let (tasks, next) = paging.cut(wanted.collect(), |task| job.task(task.task));
    let tasks = tasks.into_iter().map(|task| outline(job, task)).collect();
    Ok(Tasks { now_ms: detail.now.0, tasks, next })
}

fn attempt(
    job: &JobId,
    view: &AttemptView,
    times: Option<&AttemptTimes>,
    places: &Places,
) -> shapes::Attempt {
    let name = job.attempt(view.attempt);
    let logs = places.of(&view.node).map(|at| format!("{at}tasklog?taskid={name}"));
    shapes::Attempt {
        id: name,
        state: view.state.name().into(),
        phase: view.phase.name().into(),
        progress: view.progress,
        node: view.node.to_string(),
        launched_ms: times.and_then(|times| known(times.launched_ms)),
        started_ms: known(view.start_ms),
        shuffled_ms: times.and_then(|times| known(times.shuffle_ms)),
        sorted_ms: times.and_then(|times| known(times.sort_ms)),
        ended_ms: known(view.finish_ms),
        fetch_failures: times.map(|times| times.fetch_failures),
        status: view.state_string.clone(),
        errors: view.diagnostics.clone(),
        logs,
    }
}

/// `jobs/{job}/tasks/{task}`
pub(super) fn task(job: &JobId, task: &TaskDetail, places: &Places) -> shapes::TaskDetail {
    let TaskView { task: key, role, succeeded, failed, killed, progress, hosts, attempts } =
        &task.view;
    let runs = attempts.iter().any(|attempt| attempt.state.is_live());
    let state = match (succeeded, failed, killed, runs) {
        (Some(_), ..) => "complete",
        (None, true, ..) => "failed",
        (None, false, true, _) => "killed",
        (None, false, false, true) => "running",
        (None, false, false, false) => "pending",
    };
    shapes::TaskDetail {
        id: job.task(*key),
        kind: kind_name(key.kind).into(),
        purpose: role.name().into(),
        state: state.into(),
        progress: *progress,
        succeeded: succeeded.map(|number| job.attempt(key.attempt(number))),
        hosts: hosts.iter().map(|host| host.to_string()).collect(),
        attempts: task.attempts().map(|(view, times)| attempt(job, view, times, places)).collect(),
    }
}

/// `jobs/{job}/attempts/{attempt}`
pub(super) fn one_attempt(
    job: &JobId,
    task: &TaskDetail,
    number: u32,
    places: &Places,
) -> Option<AttemptDetail> {
    let at = usize::try_from(number).ok()?;
    let view = task.view.attempts.iter().find(|view| view.attempt.number == number)?;
    let attempt = attempt(job, view, task.times.get(at), places);
    Some(AttemptDetail { attempt, counters: counters(&view.counters) })
}

/// `jobs/{job}/failures`
pub(super) fn failures(job: &JobId, tasks: &[TaskDetail], places: &Places) -> FailedAttempts {
    let attempts = tasks.iter().flat_map(TaskDetail::attempts);
    let ended =
        attempts.filter(|(view, _)| !view.state.is_live() && view.state.name() != "SUCCEEDED");
    let attempts = ended.map(|(view, times)| attempt(job, view, times, places)).collect();
    FailedAttempts { attempts }
}

/// Counters as a list.
pub(super) fn counters(counters: &Counters) -> Vec<Counter> {
    let each = counters.groups.iter().flat_map(|group| {
        group.counters.iter().map(move |counter| Counter {
            group: group.name.to_string(),
            name: counter.name.to_string(),
            group_display_name: group.display_name.to_string(),
            display_name: counter.display_name.to_string(),
            value: counter.value,
        })
    });
    each.collect()
}

/// `jobs/{job}/nodes/{node}`
pub(super) fn use_of_node(of: NodeUse) -> shapes::NodeUse {
    shapes::NodeUse { running_attempts: of.running_attempts, map_outputs: of.map_outputs }
}

/// `jobs/{job}/events`
pub(super) fn events(
    job: &JobId,
    from: usize,
    events: &[corona_mapreduce::CompletionEvent],
) -> CompletionEvents {
    let each = events.iter().enumerate().map(|(at, event)| shapes::CompletionEvent {
        number: from + at,
        attempt: job.attempt(event.attempt),
        map: event.is_map,
        status: event.status.name().into(),
        tracker: event.tracker_http.as_deref().map(str::to_owned),
        run_ms: event.run_time_ms,
    });
    CompletionEvents { events: each.collect(), next: from + events.len() }
}

/// The key of a task and the number of an attempt, from the name of either.
pub(super) fn keys(job: &JobId, name: &str) -> Option<(TaskKey, Option<u32>)> {
    if let Some((key, number)) = super::html::task::attempt_key(job, name) {
        return Some((key, Some(number)));
    }
    super::gather::task_key(job, name).map(|key| (key, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_in_parts() {
        let parameters = |query: &str| Parameters::parse(query.as_bytes());
        let all: Vec<u32> = (0..5).collect();
        let paging = |query: &str| Paging::of(&parameters(query)).unwrap();
        let cut = |query: &str| paging(query).cut(all.clone(), ToString::to_string);
        assert_eq!(cut(""), (all.clone(), None));
        assert_eq!(cut("limit=2"), (vec![0, 1], Some("1".to_owned())));
        assert_eq!(cut("limit=5"), (all.clone(), None));
        let after = |query: &str| paging(query).after("a number", |name| name.parse::<u32>().ok());
        assert_eq!((after(""), after("after=7")), (Ok(None), Ok(Some(7))));
        assert_eq!(after("after=x"), Err("after: \"x\" is not the name of a number".to_owned()));
        for wrong in ["limit=0", "limit=2001", "limit=x", "limit=-1"] {
            assert!(Paging::of(&parameters(wrong)).unwrap_err().contains("1 to 2000"), "{wrong}");
        }
    }

    #[test]
    fn names_of_tasks_and_attempts_are_read() {
        let job = JobId::new("202611210043.7", 1).unwrap();
        let key = TaskKey { kind: corona_mapreduce::TaskKind::Reduce, number: 3 };
        assert_eq!(keys(&job, &job.task(key)), Some((key, None)));
        assert_eq!(keys(&job, &job.attempt(key.attempt(12))), Some((key, Some(12))));
        for wrong in ["", "attempt_", "attempt_202611210043.7_0001_r_000003", "x"] {
            assert_eq!(keys(&job, wrong), None, "{wrong}");
        }
    }
}
