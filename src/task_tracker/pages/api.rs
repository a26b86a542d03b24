//! `/api/v1/...`: the task tracker's state as JSON, in the shapes of `corona_api::node`.

use std::collections::BTreeMap;

use corona_api::Failure;
use corona_api::node::{
    LocalDirectory, MachineUse, ManagerLink, NodeAttempt, NodeHealth, NodeJob, NodeJobDetail,
    NodeJobs, RunningJobTracker, TaskTracker, TaskUse, TrackerSlots,
};
use corona_process::since_epoch_ms;
use corona_web::{budget, exchange};
use hyper::StatusCode;
use serde::Serialize;

use super::{Stage, View, count, sees};
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
            Some(json(StatusCode::OK, &NodeJobs { now_ms: since_epoch_ms(view.now), jobs }))
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

fn tracker(view: &View<'_>) -> TaskTracker {
    let View { about, tracker, job_trackers, link, dirs, now, .. } = view;
    let slots = |SlotUse { total: accepted, used }, granted| TrackerSlots {
        total: granted,
        used,
        granted,
        accepted,
    };
    let problems: Vec<String> = view.problems().into_iter().map(|problem| problem.text).collect();
    let to = about.addresses;
    TaskTracker {
        version: env!("CARGO_PKG_VERSION").into(),
        now_ms: since_epoch_ms(*now),
        started_ms: since_epoch_ms(about.started),
        name: tracker.identity.name.to_string(),
        host: tracker.identity.host.to_string(),
        state: if problems.is_empty() { "ok" } else { "degraded" }.into(),
        problems,
        takes_tasks: tracker.obstacles.is_empty(),
        java_usable: about.java_problem.is_none(),
        cluster_manager: ManagerLink {
            address: about.cluster_manager.to_string(),
            pages: about.cluster_manager_pages.as_deref().map(str::to_owned),
            last_answer_ms: since_epoch_ms(link.last_answer_at),
            answered: link.answered,
            failed: link.failed,
            failed_in_a_row: link.failed_in_a_row,
            trouble: link.trouble.as_deref().map(str::to_owned),
        },
        slots: [
            ("MAP".into(), slots(tracker.maps, about.granted.maps)),
            ("REDUCE".into(), slots(tracker.reduces, about.granted.reduces)),
        ]
        .into(),
        slot_multiplier: about.slot_multiplier,
        jobs: tracker.jobs.len(),
        attempts: stages(tracker.jobs.iter().flat_map(|job| &job.attempts)),
        failures: tracker.failures,
        job_trackers: job_trackers.as_ref().map(|all| all.iter().map(job_tracker).collect()),
        addresses: [
            ("http".into(), to.http.to_string()),
            ("actions".into(), to.actions.to_string()),
            ("umbilical".into(), to.umbilical.to_string()),
            ("thrift".into(), to.callbacks.to_string()),
        ]
        .into(),
        local_dirs: dirs
            .iter()
            .map(|dir| LocalDirectory {
                path: dir.path.display().to_string(),
                problem: dir.failed.clone(),
                total_bytes: dir.space.map(|space| space.total_bytes),
                free_bytes: dir.space.map(|space| space.free_bytes),
            })
            .collect(),
        idle_processes: tracker.idle_processes,
        class_archive: tracker.class_archive.as_deref().map(str::to_owned),
        health: NodeHealth {
            healthy: tracker.health.is_healthy,
            report: tracker.health.report.to_string(),
            reported_ms: Some(tracker.health.last_reported_ms).filter(|ms| *ms > 0),
        },
        tasks_used: used(&tracker.used),
        machine: MachineUse {
            cpus: view.machine.cpus,
            cpu_busy_ms: view.machine.busy_ms(),
            memory_bytes: view.machine.memory_bytes,
            available_memory_bytes: view.machine.available_bytes,
            disk_read_bytes: view.traffic.disk_read_bytes,
            disk_written_bytes: view.traffic.disk_written_bytes,
            network_received_bytes: view.traffic.network_received_bytes,
            network_sent_bytes: view.traffic.network_sent_bytes,
        },
        budget: Some(budget::now()),
    }
}

fn job_tracker(one: &JobTrackerSnapshot) -> RunningJobTracker {
    RunningJobTracker {
        attempt: one.attempt.to_string(),
        job: one.job.to_string(),
        parent: one.parent.to_string(),
        started_ms: since_epoch_ms(one.since),
        pid: one.pid,
    }
}

fn summary(job: &JobSnapshot) -> NodeJob {
    NodeJob {
        id: job.id.to_string(),
        session: job.session.to_string(),
        job_tracker: job.job_tracker.to_string(),
        counts: stages(job.attempts.iter()),
    }
}

fn detail(view: &View<'_>, job: &JobSnapshot, paging: &Paging) -> NodeJobDetail {
    let after = paging.after.as_deref().unwrap_or_default();
    let mut attempts: Vec<&AttemptSnapshot> =
        job.attempts.iter().filter(|attempt| &*attempt.id > after).collect();
    attempts.sort_by(|a, b| a.id.cmp(&b.id));
    let more = attempts.len() > paging.limit;
    attempts.truncate(paging.limit);
    NodeJobDetail {
        now_ms: since_epoch_ms(view.now),
        job: summary(job),
        next: attempts.last().filter(|_| more).map(|last| last.id.to_string()),
        attempts: attempts.into_iter().map(attempt).collect(),
    }
}

fn attempt(attempt: &AttemptSnapshot) -> NodeAttempt {
    let stage = Stage::of(attempt);
    let stage = Stage::ALL.iter().find(|(own, _)| *own == stage).map_or("", |(_, name)| name);
    let if_any = |ms: i64| Some(ms).filter(|ms| *ms > 0);
    NodeAttempt {
        id: attempt.id.to_string(),
        kind: match attempt.kind {
            TaskKind::Work => "task",
            TaskKind::JobSetup => "job set-up",
            TaskKind::JobCleanup => "job clean-up",
            TaskKind::AttemptCleanup => "attempt clean-up",
        }
        .into(),
        of: if attempt.is_map { "MAP" } else { "REDUCE" }.into(),
        stage: stage.into(),
        state: attempt.state.to_string(),
        phase: attempt.phase.to_string(),
        progress: attempt.progress,
        status: attempt.state_string.to_string(),
        slots: attempt.slots,
        started_ms: if_any(attempt.start_time_ms),
        finished_ms: if_any(attempt.finish_time_ms),
        pid: attempt.pid,
        memory_bytes: attempt.usage.memory_bytes,
        peak_memory_bytes: attempt.usage.peak_memory_bytes,
        used: used(&attempt.usage),
    }
}

/// How many attempts there are in each stage.
fn stages<'a>(attempts: impl Iterator<Item = &'a AttemptSnapshot>) -> BTreeMap<String, usize> {
    count(attempts).into_iter().map(|(stage, count)| (stage.to_owned(), count)).collect()
}

fn used(usage: &TaskUsage) -> TaskUse {
    let TaskUsage { cpu_ms, read_bytes, written_bytes, .. } = *usage;
    TaskUse { cpu_ms, read_bytes, written_bytes }
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
    exchange::json(status, text)
}
