//! The proxy job tracker: finished jobs and statistics. Times of what has not happened are 0.
//!
//! | path | shape |
//! |---|---|
//! | `/api/v1/status` | [`FinishedService`] |
//! | `/api/v1/jobs` | [`FinishedJobs`], with `offset` and `limit` |
//! | `/api/v1/jobs/{job}` | [`FinishedJobDetail`] |
//! | `/api/v1/jobs/{job}/tasks` | [`FinishedAttempts`], with `offset` and `limit` |
//! | `/api/v1/jobs/{job}/configuration` | an object: the value of each property, as text |
//! | `/api/v1/statistics` | an object: by record, a whole number for each of the original's names |
//! | any, with another status than 200 | [`Failure`] |

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::BudgetStatus;

/// `/api/v1/jobs/{job}/configuration`: values by the names of the properties.
pub type FinishedProperties = BTreeMap<String, String>;

/// `/api/v1/statistics`: the record `proxyjobtracker`, and `pool-<pool>` for each pool.
pub type FinishedStatistics = BTreeMap<String, BTreeMap<String, i64>>;

/// The service at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedService {
    /// The version of the service.
    pub version: String,
    /// The number of all jobs.
    pub indexed: usize,
    /// What the machine allows this process; left out by versions that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetStatus>,
}

/// Finished jobs, the latest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedJobs {
    /// The number of jobs that were asked for.
    pub total: usize,
    /// The number of all jobs.
    pub indexed: usize,
    /// The number of jobs before the first of the list.
    pub offset: usize,
    /// The jobs.
    pub jobs: Vec<FinishedJob>,
}

/// A finished job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedJob {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its user.
    pub user: String,
    /// Its pool.
    pub pool: String,
    /// `succeeded`, `failed`, `killed` or `incomplete`.
    pub state: String,
    /// When it was submitted.
    pub submit_ms: i64,
    /// When it was launched.
    pub launch_ms: i64,
    /// When it ended.
    pub finish_ms: i64,
    /// Its maps.
    pub maps: u32,
    /// Its reduces.
    pub reduces: u32,
    /// Attempts of maps that failed; of a job that did not succeed, maps that failed.
    pub failed_maps: u32,
    /// The same of reduces.
    pub failed_reduces: u32,
}

/// A finished job, from its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedJobDetail {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its user.
    pub user: String,
    /// Its pool; `null` for a job that is not in the index.
    pub pool: Option<String>,
    /// `succeeded`, `failed`, `killed` or `incomplete`.
    pub state: String,
    /// When it was submitted.
    pub submit_ms: i64,
    /// When it was launched.
    pub launch_ms: i64,
    /// When it ended.
    pub finish_ms: i64,
    /// Its maps.
    pub maps: u64,
    /// Its reduces.
    pub reduces: u64,
    /// The path of its history.
    pub file: String,
    /// Records of the history that could not be read.
    pub damaged_records: u64,
    /// Whether the history was too long to be read to its end.
    pub is_cut: bool,
    /// Its attempts, by `setup`, `map`, `reduce` and `cleanup`.
    pub kinds: BTreeMap<String, FinishedTasks>,
    /// How long its attempts took, by phase.
    pub phases_ms: BTreeMap<String, i64>,
    /// Its counters, by group and name.
    pub counters: BTreeMap<String, BTreeMap<String, i64>>,
    /// The counters of its maps.
    pub map_counters: BTreeMap<String, BTreeMap<String, i64>>,
    /// The counters of its reduces.
    pub reduce_counters: BTreeMap<String, BTreeMap<String, i64>>,
}

/// Tasks of one purpose of a finished job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedTasks {
    /// Tasks.
    pub tasks: u64,
    /// Their attempts.
    pub attempts: u64,
    /// Attempts that succeeded.
    pub succeeded: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were killed.
    pub killed: u64,
    /// When the first attempt began.
    pub start_ms: i64,
    /// When the last attempt ended.
    pub finish_ms: i64,
}

/// Attempts of a finished job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedAttempts {
    /// The number of attempts that were asked for.
    pub total: usize,
    /// The number of attempts before the first of the list.
    pub offset: usize,
    /// The attempts.
    pub attempts: Vec<FinishedAttempt>,
}

/// An attempt of a finished job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedAttempt {
    /// The task's id.
    pub task: String,
    /// Its id.
    pub attempt: String,
    /// `SETUP`, `MAP`, `REDUCE` or `CLEANUP`.
    #[serde(rename = "type")]
    pub kind: String,
    /// How it ended.
    pub status: String,
    /// Its host.
    pub host: String,
    /// The name of its task tracker.
    pub tracker: String,
    /// When it began.
    pub start_ms: i64,
    /// When a reduce had all map outputs.
    pub shuffle_ms: i64,
    /// When a reduce had sorted them.
    pub sort_ms: i64,
    /// When it ended.
    pub finish_ms: i64,
    /// Its error.
    pub error: String,
    /// The last status that it reported.
    pub state_text: String,
}
