//! Finished jobs and statistics as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use corona_api::Failure;
use corona_api::finished::{
    FinishedAttempt, FinishedAttempts, FinishedJob, FinishedJobDetail, FinishedJobs,
    FinishedProperties, FinishedService, FinishedStatistics,
};
use corona_mapreduce::{Counters, HistoryAttempt, JobHistory, JobId, TaskKey};
use corona_web::budget;
use corona_web::exchange;
use hyper::StatusCode;
use serde::Serialize;

use super::figures::{ROLES, counts, phases};
use super::{Page, Parameters, ProxyContext, bad_request, file_of, list_query, status_of};
use crate::histories::{Contents, HistoryError};
use crate::index::{Entry, state_name};

/// Jobs and attempts of one reply at most.
const MOST: usize = 1000;
const USUAL: usize = 100;

/// The reply at an address below `/api/v1`; none if there is nothing.
pub(super) async fn answer(
    shared: &Arc<ProxyContext>,
    segments: &[&str],
    query: &Parameters,
) -> Option<Page> {
    let number = |name: &str, usual: usize| match query.get(name).map(str::parse::<usize>) {
        None => Ok(usual),
        Some(number) => number.map_err(|_| format!("{name} is not a whole number")),
    };
    let (limit, offset) = match (number("limit", USUAL), number("offset", 0)) {
        (Ok(limit), Ok(offset)) => (limit.min(MOST), offset),
        (Err(wrong), _) | (_, Err(wrong)) => return Some(bad_request(&wrong)),
    };
    Some(match *segments {
        ["status"] => json(&FinishedService {
            version: env!("CARGO_PKG_VERSION").into(),
            indexed: shared.index.jobs().len(),
            budget: Some(budget::now()),
        }),
        ["jobs"] => {
            let found = shared.index.find(&list_query(query));
            let jobs = found.iter().skip(offset).take(limit).map(|entry| summary(entry));
            json(&FinishedJobs {
                total: found.len(),
                indexed: shared.index.jobs().len(),
                offset,
                jobs: jobs.collect(),
            })
        }
        ["jobs", job] => {
            json_of(read(shared, job).await.map(|contents| whole_job(shared, &contents)))
        }
        ["jobs", job, "tasks"] => {
            json_of(read(shared, job).await.map(|contents| tasks(&contents, query, offset, limit)))
        }
        ["jobs", job, "configuration"] => json_of(configuration(shared, job).await),
        ["statistics"] => json(&statistics(shared)),
        _ => return None,
    })
}

fn json_of(shape: Result<impl Serialize, HistoryError>) -> Page {
    match shape {
        Ok(shape) => json(&shape),
        Err(error) => {
            let failure = Failure { error: error.to_string() };
            let text = serde_json::to_string(&failure).unwrap_or_default();
            exchange::json(status_of(&error), text)
        }
    }
}

/// The members are sorted by name, whatever the order in the shape: a value sorts them.
fn json(shape: &impl Serialize) -> Page {
    let value = serde_json::to_value(shape).unwrap_or_default();
    exchange::json(StatusCode::OK, value.to_string())
}

async fn configuration(
    shared: &Arc<ProxyContext>,
    job: &str,
) -> Result<FinishedProperties, HistoryError> {
    let file = file_of(shared, Some(job), &Parameters::parse(b"")).await?;
    Ok(shared.histories.conf(&file).await?.into_iter().collect())
}

async fn read(shared: &Arc<ProxyContext>, job: &str) -> Result<Arc<Contents>, HistoryError> {
    let file = file_of(shared, Some(job), &Parameters::parse(b"")).await?;
    shared.histories.read(&file).await
}

fn summary(entry: &Entry) -> FinishedJob {
    FinishedJob {
        id: entry.id.to_string(),
        name: entry.name.to_string(),
        user: entry.user.to_string(),
        pool: entry.pool.to_string(),
        state: entry.state_name().into(),
        submit_ms: entry.submit_ms,
        launch_ms: entry.launch_ms,
        finish_ms: entry.finish_ms,
        maps: entry.maps,
        reduces: entry.reduces,
        failed_maps: entry.failed_maps,
        failed_reduces: entry.failed_reduces,
    }
}

fn whole_job(shared: &ProxyContext, contents: &Contents) -> FinishedJobDetail {
    let history: &JobHistory = &contents.history;
    let id = contents.file.job.as_str();
    let kinds = ROLES.iter().map(|(role, name)| (name.to_lowercase(), counts(history, *role)));
    let phases = phases(history).into_iter().map(|(name, _, ms)| (name.to_owned(), ms));
    FinishedJobDetail {
        id: id.to_owned(),
        name: history.name.to_string(),
        user: history.user.to_string(),
        pool: shared.index.job(id).map(|entry| entry.pool.to_string()),
        state: state_name(history.state.filter(|_| history.has_ended())).into(),
        submit_ms: history.submit_ms,
        launch_ms: history.launch_ms,
        finish_ms: history.finish_ms,
        maps: history.maps,
        reduces: history.reduces,
        file: contents.path.clone(),
        damaged_records: contents.damaged,
        is_cut: contents.is_cut,
        kinds: kinds.collect(),
        phases_ms: phases.collect(),
        counters: counters(&history.counters[2]),
        map_counters: counters(&history.counters[0]),
        reduce_counters: counters(&history.counters[1]),
    }
}

/// Groups by their names, and in each counters by theirs.
fn counters(text: &str) -> BTreeMap<String, BTreeMap<String, i64>> {
    let counters = Counters::of_text(text).unwrap_or_default();
    let groups = counters.groups.iter().map(|group| {
        let counters = group.counters.iter();
        let counters = counters.map(|counter| (counter.name.to_string(), counter.value));
        (group.name.to_string(), counters.collect())
    });
    groups.collect()
}

fn tasks(contents: &Contents, query: &Parameters, offset: usize, limit: usize) -> FinishedAttempts {
    let wanted = query.get("type").unwrap_or_default();
    let status = query.get("status").unwrap_or("all");
    let attempts: Vec<(TaskKey, &HistoryAttempt, &str)> = contents
        .history
        .tasks
        .iter()
        .filter(|(_, task)| wanted.is_empty() || task.role.name().eq_ignore_ascii_case(wanted))
        .flat_map(|(key, task)| {
            let role = task.role.name();
            task.attempts.iter().map(move |attempt| (*key, attempt, role))
        })
        .filter(|(_, attempt, _)| {
            status == "all" || attempt.state.name().eq_ignore_ascii_case(status)
        })
        .collect();
    let shown = attempts
        .iter()
        .skip(offset)
        .take(limit)
        .map(|(key, attempt, role)| attempt_of(&contents.file.job, *key, attempt, role));
    FinishedAttempts { total: attempts.len(), offset, attempts: shown.collect() }
}

fn attempt_of(job: &JobId, key: TaskKey, attempt: &HistoryAttempt, role: &str) -> FinishedAttempt {
    FinishedAttempt {
        task: job.task(key),
        attempt: job.attempt(key.attempt(attempt.number)),
        kind: role.to_owned(),
        status: attempt.state.name().into(),
        host: attempt.host.to_string(),
        tracker: attempt.tracker.to_string(),
        start_ms: attempt.start_ms,
        shuffle_ms: attempt.shuffle_ms,
        sort_ms: attempt.sort_ms,
        finish_ms: attempt.finish_ms,
        error: attempt.error.to_string(),
        state_text: attempt.state_text.to_string(),
    }
}

/// By the original's names: the record `proxyjobtracker`, and `pool-<pool>` for each pool.
fn statistics(shared: &ProxyContext) -> FinishedStatistics {
    let sums = shared.statistics.sums();
    let record = |sum: &crate::statistics::Sum| {
        let stats = sum.stats.iter().map(|(name, value)| ((*name).to_owned(), *value));
        stats.chain(crate::metrics::counters(sum)).collect()
    };
    let pools = sums.pools.iter().map(|(pool, sum)| (format!("pool-{pool}"), record(sum)));
    let all = std::iter::once(("proxyjobtracker".to_owned(), record(&sums.all)));
    all.chain(pools).collect()
}
