//! `/api/v1/...`: the task tracker's state as JSON. The rules of the shapes are those of the
//! cluster manager's: members are only ever added, one without a value is left out, times are
//! milliseconds since the Unix epoch and end in `_ms`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use corona_web::budget::BudgetStatus;
use hyper::StatusCode;
use serde::Serialize;

use super::{Stage, View, count, sees, since_epoch_ms};
use crate::child::TaskUsage;
use crate::http::Page;
use crate::job_trackers::JobTrackerSnapshot;
use crate::localise::TaskKind;
use crate::tracker::{AttemptSnapshot, JobSnapshot, SlotUse};

/// Attempts in one answer where no number is named, and at most.
const USUAL: usize = 1000;
const MOST: usize = 2000;

/// The answer to a path below `/api/v1/`.
pub(super) fn answer(view: &View<'_>, segments: &[String], query: &str) -> Option<Page> {
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments[..] {
        ["tracker"] => Some(json(StatusCode::OK, &tracker(view))),
        ["jobs"] => {
            let jobs = view.tracker.jobs.iter().map(summary).collect();
            Some(json(StatusCode::OK, &Jobs { now_ms: since_epoch_ms(view.now), jobs }))
        }
        ["jobs", id] => {
            let paging = match Paging::parse(query) {
                Ok(paging) => paging,
                Err(error) => return Some(json(StatusCode::BAD_REQUEST, &Failure { error })),
            };
            let found = view.tracker.jobs.iter().find(|job| job.id == id);
            Some(match found {
                Some(job) => json(StatusCode::OK, &detail(view, job, &paging)),
                None => {
                    let error = "this node has no such job".to_owned();
                    json(StatusCode::NOT_FOUND, &Failure { error })
                }
            })
        }
        ["sees"] => Some(match sees::look(query) {
            Ok(unseen) => json(StatusCode::OK, &unseen),
            Err(wrong) => json(StatusCode::BAD_REQUEST, &Failure { error: wrong.to_owned() }),
        }),
        _ => None,
    }
}

#[derive(Serialize)]
struct Failure {
    error: String,
}

#[derive(Serialize)]
struct Tracker<'a> {
    version: &'a str,
    now_ms: i64,
    started_ms: i64,
    name: &'a str,
    host: &'a str,
    /// `ok`, or `degraded` while there are problems.
    state: &'a str,
    problems: Vec<String>,
    /// Whether it takes new tasks.
    takes_tasks: bool,
    java_usable: bool,
    cluster_manager: ClusterManager<'a>,
    slots: BTreeMap<&'a str, Slots>,
    slot_multiplier: u32,
    jobs: usize,
    attempts: BTreeMap<&'a str, usize>,
    failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_trackers: Option<Vec<JobTracker<'a>>>,
    addresses: BTreeMap<&'a str, SocketAddr>,
    local_dirs: Vec<LocalDir>,
    idle_processes: usize,
    /// The state of the archive of classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    class_archive: Option<&'a str>,
    health: Health<'a>,
    /// What all attempts have used.
    tasks_used: Used,
    machine: MachineNow,
    /// What the machine allows this process.
    budget: BudgetStatus,
}

#[derive(Serialize)]
struct Health<'a> {
    healthy: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    report: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reported_ms: Option<i64>,
}

#[derive(Serialize)]
struct Used {
    cpu_ms: u64,
    read_bytes: u64,
    written_bytes: u64,
}

impl Used {
    fn of(usage: &TaskUsage) -> Used {
        let TaskUsage { cpu_ms, read_bytes, written_bytes, .. } = *usage;
        Used { cpu_ms, read_bytes, written_bytes }
    }
}

/// Counts are since the start of the machine.
#[derive(Serialize)]
struct MachineNow {
    cpus: u32,
    cpu_busy_ms: u64,
    memory_bytes: u64,
    available_memory_bytes: u64,
    disk_read_bytes: u64,
    disk_written_bytes: u64,
    network_received_bytes: u64,
    network_sent_bytes: u64,
}

#[derive(Serialize)]
struct ClusterManager<'a> {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pages: Option<&'a str>,
    last_answer_ms: i64,
    answered: u64,
    failed: u64,
    failed_in_a_row: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<&'a str>,
}

#[derive(Serialize)]
struct Slots {
    /// Slots that the cluster manager grants on it.
    total: u32,
    used: u32,
    /// The same as `total`.
    granted: u32,
    /// Attempts that the node accepts at a time.
    accepted: u32,
}

#[derive(Serialize)]
struct JobTracker<'a> {
    attempt: &'a str,
    job: &'a str,
    parent: &'a str,
    started_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
}

#[derive(Serialize)]
struct LocalDir {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Jobs<'a> {
    now_ms: i64,
    jobs: Vec<Job<'a>>,
}

#[derive(Serialize)]
struct Job<'a> {
    id: &'a str,
    session: &'a str,
    job_tracker: &'a str,
    counts: BTreeMap<&'a str, usize>,
}

#[derive(Serialize)]
struct JobDetail<'a> {
    now_ms: i64,
    #[serde(flatten)]
    job: Job<'a>,
    /// Present if there are more: the name to pass as `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'a str>,
    attempts: Vec<Attempt<'a>>,
}

#[derive(Serialize)]
struct Attempt<'a> {
    id: &'a str,
    kind: &'a str,
    r#type: &'a str,
    stage: &'a str,
    state: String,
    phase: String,
    progress: f32,
    status: &'a str,
    slots: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    memory_bytes: u64,
    peak_memory_bytes: u64,
    #[serde(flatten)]
    used: Used,
}

fn tracker<'a>(view: &'a View<'_>) -> Tracker<'a> {
    let View { about, tracker, job_trackers, link, dirs, now, .. } = view;
    let slots = |SlotUse { total: accepted, used }, granted| Slots {
        total: granted,
        used,
        granted,
        accepted,
    };
    let problems: Vec<String> = view.problems().into_iter().map(|problem| problem.text).collect();
    let to = about.addresses;
    Tracker {
        version: env!("CARGO_PKG_VERSION"),
        now_ms: since_epoch_ms(*now),
        started_ms: since_epoch_ms(about.started),
        name: &tracker.identity.name,
        host: &tracker.identity.host,
        state: if problems.is_empty() { "ok" } else { "degraded" },
        problems,
        takes_tasks: tracker.obstacles.is_empty(),
        java_usable: about.java_problem.is_none(),
        cluster_manager: ClusterManager {
            address: about.cluster_manager.to_string(),
            pages: about.cluster_manager_pages.as_deref(),
            last_answer_ms: since_epoch_ms(link.last_answer_at),
            answered: link.answered,
            failed: link.failed,
            failed_in_a_row: link.failed_in_a_row,
            trouble: link.trouble.as_deref(),
        },
        slots: [
            ("MAP", slots(tracker.maps, about.granted.maps)),
            ("REDUCE", slots(tracker.reduces, about.granted.reduces)),
        ]
        .into(),
        slot_multiplier: about.slot_multiplier,
        jobs: tracker.jobs.len(),
        attempts: count(tracker.jobs.iter().flat_map(|job| &job.attempts)).into(),
        failures: tracker.failures,
        job_trackers: job_trackers.as_ref().map(|all| all.iter().map(job_tracker).collect()),
        addresses: [
            ("http", to.http),
            ("actions", to.actions),
            ("umbilical", to.umbilical),
            ("thrift", to.callbacks),
        ]
        .into(),
        local_dirs: dirs
            .iter()
            .map(|dir| LocalDir {
                path: dir.path.display().to_string(),
                problem: dir.failed.clone(),
                total_bytes: dir.space.map(|space| space.total_bytes),
                free_bytes: dir.space.map(|space| space.free_bytes),
            })
            .collect(),
        idle_processes: tracker.idle_processes,
        class_archive: tracker.class_archive.as_deref(),
        health: Health {
            healthy: tracker.health.is_healthy,
            report: &tracker.health.report,
            reported_ms: Some(tracker.health.last_reported_ms).filter(|ms| *ms > 0),
        },
        tasks_used: Used::of(&tracker.used),
        machine: MachineNow {
            cpus: view.machine.cpus,
            cpu_busy_ms: view.machine.busy_ms(),
            memory_bytes: view.machine.memory_bytes,
            available_memory_bytes: view.machine.available_bytes,
            disk_read_bytes: view.traffic.disk_read_bytes,
            disk_written_bytes: view.traffic.disk_written_bytes,
            network_received_bytes: view.traffic.network_received_bytes,
            network_sent_bytes: view.traffic.network_sent_bytes,
        },
        budget: BudgetStatus::now(),
    }
}

fn job_tracker(one: &JobTrackerSnapshot) -> JobTracker<'_> {
    JobTracker {
        attempt: &one.attempt,
        job: &one.job,
        parent: &one.parent,
        started_ms: since_epoch_ms(one.since),
        pid: one.pid,
    }
}

fn summary(job: &JobSnapshot) -> Job<'_> {
    Job {
        id: &job.id,
        session: &job.session,
        job_tracker: &job.job_tracker,
        counts: count(job.attempts.iter()).into(),
    }
}

fn detail<'a>(view: &View<'_>, job: &'a JobSnapshot, paging: &Paging) -> JobDetail<'a> {
    let after = paging.after.as_deref().unwrap_or_default();
    let mut attempts: Vec<&AttemptSnapshot> =
        job.attempts.iter().filter(|attempt| &*attempt.id > after).collect();
    attempts.sort_by(|a, b| a.id.cmp(&b.id));
    let more = attempts.len() > paging.limit;
    attempts.truncate(paging.limit);
    JobDetail {
        now_ms: since_epoch_ms(view.now),
        job: summary(job),
        next: attempts.last().filter(|_| more).map(|last| &*last.id),
        attempts: attempts.into_iter().map(attempt).collect(),
    }
}

fn attempt(attempt: &AttemptSnapshot) -> Attempt<'_> {
    let stage = Stage::of(attempt);
    let stage = Stage::ALL.iter().find(|(own, _)| *own == stage).map_or("", |(_, name)| name);
    let if_any = |ms: i64| Some(ms).filter(|ms| *ms > 0);
    Attempt {
        id: &attempt.id,
        kind: match attempt.kind {
            TaskKind::Work => "task",
            TaskKind::JobSetup => "job set-up",
            TaskKind::JobCleanup => "job clean-up",
            TaskKind::AttemptCleanup => "attempt clean-up",
        },
        r#type: if attempt.is_map { "MAP" } else { "REDUCE" },
        stage,
        state: attempt.state.to_string(),
        phase: attempt.phase.to_string(),
        progress: attempt.progress,
        status: &attempt.state_string,
        slots: attempt.slots,
        started_ms: if_any(attempt.start_time_ms),
        finished_ms: if_any(attempt.finish_time_ms),
        pid: attempt.pid,
        memory_bytes: attempt.usage.memory_bytes,
        peak_memory_bytes: attempt.usage.peak_memory_bytes,
        used: Used::of(&attempt.usage),
    }
}

/// Paging of a list of attempts: `?limit=500&after=NAME`.
#[derive(Debug, PartialEq, Eq)]
struct Paging {
    limit: usize,
    after: Option<String>,
}

impl Paging {
    /// Other parameters are passed over. The error is a sentence.
    fn parse(query: &str) -> Result<Paging, String> {
        let mut paging = Paging { limit: USUAL, after: None };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "limit" => match value.parse() {
                    Ok(limit @ 1..=MOST) => paging.limit = limit,
                    _ => return Err(format!("limit: expected a number from 1 to {MOST}")),
                },
                "after" => paging.after = Some(value.into_owned()),
                _ => {}
            }
        }
        Ok(paging)
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Page {
    // Numbers, texts and lists of them are always JSON.
    let text = serde_json::to_string(value).unwrap_or_default();
    Page::new(status, "application/json", text)
}
