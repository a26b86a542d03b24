//! Finished jobs and statistics as JSON.

use std::sync::Arc;

use corona_mapreduce::{Counters, HistoryAttempt, JobHistory, JobId, TaskKey};
use corona_web::budget::BudgetStatus;
use corona_web::exchange;
use hyper::StatusCode;
use serde_json::{Value, json};

use super::figures::{ROLES, counts, phases};
use super::{Page, Parameters, Shared, bad_request, file_of, list_query, status_of};
use crate::histories::{Contents, HistoryError};
use crate::index::{Entry, state_name};

/// Jobs and attempts of one reply at most.
const MOST: usize = 1000;
const USUAL: usize = 100;

/// The reply at an address below `/api/v1`; none if there is nothing.
pub(super) async fn answer(
    shared: &Arc<Shared>,
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
    let value = match *segments {
        ["status"] => Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "indexed": shared.index.jobs().len(),
            "budget": BudgetStatus::now(),
        })),
        ["jobs"] => {
            let found = shared.index.find(&list_query(query));
            let jobs: Vec<Value> =
                found.iter().skip(offset).take(limit).map(|entry| summary(entry)).collect();
            Ok(json!({
                "total": found.len(),
                "indexed": shared.index.jobs().len(),
                "offset": offset,
                "jobs": jobs,
            }))
        }
        ["jobs", job] => read(shared, job).await.map(|contents| whole_job(shared, &contents)),
        ["jobs", job, "tasks"] => {
            read(shared, job).await.map(|contents| tasks(&contents, query, offset, limit))
        }
        ["jobs", job, "configuration"] => {
            match file_of(shared, Some(job), &Parameters::parse(b"")).await {
                Ok(file) => shared.histories.conf(&file).await.map(|properties| {
                    let properties: serde_json::Map<String, Value> =
                        properties.into_iter().map(|(name, value)| (name, value.into())).collect();
                    Value::Object(properties)
                }),
                Err(error) => Err(error),
            }
        }
        ["statistics"] => Ok(statistics(shared)),
        _ => return None,
    };
    let (status, value) = match value {
        Ok(value) => (StatusCode::OK, value),
        Err(error) => (status_of(&error), json!({ "error": error.to_string() })),
    };
    Some(exchange::json(status, value.to_string()))
}

async fn read(shared: &Arc<Shared>, job: &str) -> Result<Arc<Contents>, HistoryError> {
    let file = file_of(shared, Some(job), &Parameters::parse(b"")).await?;
    shared.histories.read(&file).await
}

fn summary(entry: &Entry) -> Value {
    json!({
        "id": entry.id,
        "name": entry.name,
        "user": entry.user,
        "pool": entry.pool,
        "state": entry.state_name(),
        "submit_ms": entry.submit_ms,
        "launch_ms": entry.launch_ms,
        "finish_ms": entry.finish_ms,
        "maps": entry.maps,
        "reduces": entry.reduces,
        "failed_maps": entry.failed_maps,
        "failed_reduces": entry.failed_reduces,
    })
}

fn whole_job(shared: &Shared, contents: &Contents) -> Value {
    let history: &JobHistory = &contents.history;
    let pool = shared.index.job(contents.file.job.as_str()).map(|entry| entry.pool.clone());
    let kinds: serde_json::Map<String, Value> = ROLES
        .iter()
        .map(|(role, name)| {
            let counts = counts(history, *role);
            let value = json!({
                "tasks": counts.tasks,
                "attempts": counts.attempts,
                "succeeded": counts.succeeded,
                "failed": counts.failed,
                "killed": counts.killed,
                "start_ms": counts.start_ms,
                "finish_ms": counts.finish_ms,
            });
            (name.to_lowercase(), value)
        })
        .collect();
    let phases: serde_json::Map<String, Value> =
        phases(history).into_iter().map(|(name, _, ms)| (name.to_owned(), ms.into())).collect();
    json!({
        "id": contents.file.job.as_str(),
        "name": history.name,
        "user": history.user,
        "pool": pool,
        "state": state_name(history.state.filter(|_| history.has_ended())),
        "submit_ms": history.submit_ms,
        "launch_ms": history.launch_ms,
        "finish_ms": history.finish_ms,
        "maps": history.maps,
        "reduces": history.reduces,
        "file": contents.path,
        "damaged_records": contents.damaged,
        "is_cut": contents.is_cut,
        "kinds": kinds,
        "phases_ms": phases,
        "counters": counters(&history.counters[2]),
        "map_counters": counters(&history.counters[0]),
        "reduce_counters": counters(&history.counters[1]),
    })
}

/// Groups by their names, and in each counters by theirs.
fn counters(text: &str) -> Value {
    let counters = Counters::of_text(text).unwrap_or_default();
    let groups = counters.groups.iter().map(|group| {
        let counters = group.counters.iter();
        let counters: serde_json::Map<String, Value> =
            counters.map(|counter| (counter.name.to_string(), counter.value.into())).collect();
        (group.name.to_string(), Value::Object(counters))
    });
    Value::Object(groups.collect())
}

fn tasks(contents: &Contents, query: &Parameters, offset: usize, limit: usize) -> Value {
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
    let shown: Vec<Value> = attempts
        .iter()
        .skip(offset)
        .take(limit)
        .map(|(key, attempt, role)| attempt_of(&contents.file.job, *key, attempt, role))
        .collect();
    json!({ "total": attempts.len(), "offset": offset, "attempts": shown })
}

fn attempt_of(job: &JobId, key: TaskKey, attempt: &HistoryAttempt, role: &str) -> Value {
    json!({
        "task": job.task(key),
        "attempt": job.attempt(key.attempt(attempt.number)),
        "type": role,
        "status": attempt.state.name(),
        "host": &*attempt.host,
        "tracker": &*attempt.tracker,
        "start_ms": attempt.start_ms,
        "shuffle_ms": attempt.shuffle_ms,
        "sort_ms": attempt.sort_ms,
        "finish_ms": attempt.finish_ms,
        "error": &*attempt.error,
        "state_text": &*attempt.state_text,
    })
}

/// By the original's names: the record `proxyjobtracker`, and `pool-<pool>` for each pool.
fn statistics(shared: &Shared) -> Value {
    let sums = shared.statistics.sums();
    let record = |sum: &crate::statistics::Sum| {
        let stats = sum.stats.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
        let counters = crate::metrics::counters(sum);
        let counters = counters.into_iter().map(|(name, value)| (name, value.into()));
        Value::Object(stats.chain(counters).collect())
    };
    let pools = sums.pools.iter().map(|(pool, sum)| (format!("pool-{pool}"), record(sum)));
    let all = std::iter::once(("proxyjobtracker".to_owned(), record(&sums.all)));
    Value::Object(all.chain(pools).collect())
}
