//! The job tracker service. A member that has no value is `null`, unless it is described as left out.
//!
//! | path | shape |
//! |---|---|
//! | `/api/v1` | [`Index`] |
//! | `/api/v1/status` | [`JobService`] |
//! | `/api/v1/events` | a stream of [`Event`] |
//! | `/api/v1/jobs` | [`Jobs`], pages by [`Paging`] with the job's id |
//! | `/api/v1/jobs/{job}` | [`JobDetail`] |
//! | `/api/v1/jobs/{job}/tasks` | [`Tasks`], pages by [`Paging`] with the task's id |
//! | `/api/v1/jobs/{job}/tasks/{task}` | [`TaskDetail`] |
//! | `/api/v1/jobs/{job}/attempts/{attempt}` | [`AttemptDetail`] |
//! | `/api/v1/jobs/{job}/failures` | [`FailedAttempts`] |
//! | `/api/v1/jobs/{job}/counters` | [`JobCounters`] |
//! | `/api/v1/jobs/{job}/events` | [`CompletionEvents`] |
//! | `/api/v1/jobs/{job}/nodes/{node}` | [`NodeUse`] |
//! | `/api/v1/jobs/{job}/waits` | [`JobWaits`] |
//! | `/api/v1/jobs/{job}/configuration` | [`JobProperties`] |
//! | `/api/v1/jobs/{job}/end`, and of a task or an attempt, by POST | [`Ended`] |
//! | any, with another status than 200 | [`Failure`] |

use serde::{Deserialize, Serialize};

use crate::{BudgetStatus, UseStatus};

/// The paths below `/api/v1/` and their responses.
pub const PATHS: [(&str, &str); 14] = [
    ("status", "the service: jobs by state, how many task trackers"),
    ("events", "a stream of events; parameters job, last, follow"),
    ("jobs", "jobs; parameters q, users, pools, state, ended=0|1, limit, after"),
    ("jobs/{job}", "a job"),
    ("jobs/{job}/tasks", "its tasks; parameters kind, state, limit, after"),
    ("jobs/{job}/tasks/{task}", "a task with its attempts"),
    ("jobs/{job}/attempts/{attempt}", "an attempt with its counters"),
    ("jobs/{job}/failures", "its attempts that failed or were killed"),
    ("jobs/{job}/counters", "its counters, of maps, of reduces and in all"),
    ("jobs/{job}/events", "its completion events; parameters from, limit"),
    ("jobs/{job}/nodes/{node}", "what the job would lose with the node"),
    ("jobs/{job}/waits", "why it waits, as the cluster manager explains it"),
    ("jobs/{job}/configuration", "its properties"),
    ("jobs/{job}/history", "its history so far, as text"),
];

/// The service at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobService {
    /// The version of the service.
    pub version: String,
    /// When the values were read.
    pub now_ms: i64,
    /// When the service was started.
    pub started_ms: i64,
    /// Its jobs by their states.
    pub jobs: JobsByState,
    /// The numbers of jobs that it accepts.
    pub limits: JobLimits,
    /// Its open files.
    pub open_files: OpenFiles,
    /// What the machine allows this process; left out by versions that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetStatus>,
    /// Task trackers that have reported lately.
    pub task_trackers: usize,
    /// Whether readers see jobs, and not only this status.
    pub jobs_are_shown: bool,
}

/// Numbers of jobs by their states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsByState {
    /// Jobs that have not begun.
    pub prep: usize,
    /// Jobs that run.
    pub running: usize,
    /// Jobs that succeeded.
    pub succeeded: usize,
    /// Jobs that failed.
    pub failed: usize,
    /// Jobs that were killed.
    pub killed: usize,
}

/// The numbers of jobs that a service accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLimits {
    /// Jobs that run at a time.
    pub running_jobs: JobLimit,
    /// The memory of jobs that run, as it is estimated; left out by versions that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_jobs_memory_bytes: Option<MemoryLimit>,
    /// Jobs that wait until they may run.
    pub waiting_jobs: JobLimit,
}

/// A limit of a number of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLimit {
    /// The number of jobs.
    pub used: usize,
    /// The most that are accepted.
    pub limit: usize,
    /// Where the limit comes from; left out of waiting jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// A limit of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    /// The bytes that are used.
    pub used: u64,
    /// The most that may be used.
    pub limit: u64,
    /// Where the limit comes from.
    pub from: String,
}

/// The open files of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFiles {
    /// Open file descriptors.
    pub used: Option<u64>,
    /// The limit of the process.
    pub limit: Option<u64>,
    /// The limits of its uses of file descriptors, which follow from the limit of the process.
    pub uses: Vec<UseStatus>,
}

/// Jobs, sorted by id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Jobs {
    /// When the values were read.
    pub now_ms: i64,
    /// The jobs.
    pub jobs: Vec<Job>,
    /// If there are more: the id to pass as `after`.
    pub next: Option<String>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its user.
    pub user: String,
    /// Its queue.
    pub queue: String,
    /// Its pool, as `group.pool`.
    pub pool: String,
    /// `VERY_LOW`, `LOW`, `NORMAL`, `HIGH` or `VERY_HIGH`.
    pub priority: String,
    /// `PREP`, `RUNNING`, `SUCCEEDED`, `FAILED` or `KILLED`.
    pub state: String,
    /// When it was submitted.
    pub submitted_ms: i64,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// The progress of its set-up, from 0 to 1.
    pub setup_progress: f32,
    /// Its maps.
    pub maps: TaskCounts,
    /// Its reduces.
    pub reduces: TaskCounts,
    /// The progress of its clean-up, from 0 to 1.
    pub cleanup_progress: f32,
    /// Slots that it requests and does not hold.
    pub requested_slots: usize,
    /// The address of its page.
    pub page: String,
}

/// Tasks of one kind of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskCounts {
    /// All tasks.
    pub total: u32,
    /// Tasks that succeeded.
    pub succeeded: u32,
    /// Tasks that failed.
    pub failed: u32,
    /// Attempts that run.
    pub running_attempts: u32,
    /// The part that is done, from 0 to 1.
    pub progress: f32,
}

/// A job with all details.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobDetail {
    /// The same as in the list.
    #[serde(flatten)]
    pub job: Job,
    /// The work so far; left out of jobs that run on a node, wait, or ended before the service was started.
    #[serde(default, flatten)]
    pub work: Option<JobWork>,
    /// A note on where it runs or what it waits for; left out if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The pages of its remote job tracker; left out if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_tracker_pages: Option<String>,
    /// The handle of the session in which it requests slots; left out if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// The work of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobWork {
    /// What its attempts used.
    pub totals: JobTotals,
    /// The nodes on which it had attempts.
    pub nodes: Vec<JobNode>,
    /// Whether a set-up task succeeded.
    pub setup_task_done: bool,
    /// Whether a clean-up task succeeded.
    pub cleanup_task_done: bool,
}

/// What the attempts of a job used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTotals {
    /// Attempts of maps.
    pub maps: AttemptTotals,
    /// Attempts of reduces.
    pub reduces: AttemptTotals,
    /// Maps that ran on a node with their input.
    pub data_local_maps: u32,
    /// Maps that ran in a rack with their input.
    pub rack_local_maps: u32,
    /// Span for which reduces copied the output of maps.
    pub copy_ms: i64,
    /// Span for which reduces sorted.
    pub sort_ms: i64,
    /// Span for which reduces reduced.
    pub reduce_ms: i64,
}

/// Attempts of one kind of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptTotals {
    /// Attempts that were launched.
    pub launched: u32,
    /// Attempts that failed.
    pub failed_attempts: u32,
    /// Attempts that were killed.
    pub killed_attempts: u32,
    /// Span for which they held slots.
    pub slot_ms: i64,
}

/// A node on which a job had attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNode {
    /// The node's name.
    pub node: String,
    /// Whether it is lost.
    pub lost: bool,
    /// Whether the job uses it no more, because attempts failed there.
    pub faulty: bool,
    /// Attempts that were launched.
    pub launched: u32,
    /// Attempts that succeeded.
    pub succeeded: u32,
    /// Attempts that failed.
    pub failed: u32,
    /// Attempts that were killed.
    pub killed: u32,
    /// Attempts that did not report in time.
    pub timeouts: u32,
    /// Connections that failed.
    pub failed_connections: u32,
}

/// Tasks of a job, sorted by id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tasks {
    /// When the values were read.
    pub now_ms: i64,
    /// The tasks.
    pub tasks: Vec<Task>,
    /// If there are more: the id to pass as `after`.
    pub next: Option<String>,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// `map` or `reduce`.
    pub kind: String,
    /// `SETUP`, `MAP`, `REDUCE` or `CLEANUP`.
    pub purpose: String,
    /// `pending`, `running`, `complete`, `failed` or `killed`.
    pub state: String,
    /// From 0 to 1.
    pub progress: f32,
    /// When an attempt was first launched.
    pub launched_ms: Option<i64>,
    /// When an attempt first began.
    pub started_ms: Option<i64>,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// All attempts.
    pub attempts: u32,
    /// Attempts that run.
    pub running_attempts: u32,
    /// Attempts that failed.
    pub failed_attempts: u32,
    /// Attempts that were killed.
    pub killed_attempts: u32,
}

/// A task with its attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskDetail {
    /// Its id.
    pub id: String,
    /// `map` or `reduce`.
    pub kind: String,
    /// `SETUP`, `MAP`, `REDUCE` or `CLEANUP`.
    pub purpose: String,
    /// `pending`, `running`, `complete`, `failed` or `killed`.
    pub state: String,
    /// From 0 to 1.
    pub progress: f32,
    /// The id of the attempt that succeeded.
    pub succeeded: Option<String>,
    /// Hosts with its input.
    pub hosts: Vec<String>,
    /// Its attempts.
    pub attempts: Vec<Attempt>,
}

/// An attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its id.
    pub id: String,
    /// Its state by the original's name, such as `RUNNING` or `SUCCEEDED`.
    pub state: String,
    /// `STARTING`, `MAP`, `SHUFFLE`, `SORT`, `REDUCE` or `CLEANUP`.
    pub phase: String,
    /// From 0 to 1.
    pub progress: f32,
    /// The name of its node.
    pub node: String,
    /// When it was launched.
    pub launched_ms: Option<i64>,
    /// When it began.
    pub started_ms: Option<i64>,
    /// When a reduce had all map outputs.
    pub shuffled_ms: Option<i64>,
    /// When a reduce had sorted them.
    pub sorted_ms: Option<i64>,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// Map outputs that it could not fetch.
    pub fetch_failures: Option<u32>,
    /// The status that it reported.
    pub status: String,
    /// Its errors.
    pub errors: String,
    /// The address of its logs.
    pub logs: Option<String>,
}

/// An attempt with its counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptDetail {
    /// The same as in the task.
    #[serde(flatten)]
    pub attempt: Attempt,
    /// Its counters.
    pub counters: Vec<Counter>,
}

/// Attempts that failed or were killed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedAttempts {
    /// The attempts.
    pub attempts: Vec<Attempt>,
}

/// The counters of a job. The counts by kind are left out of jobs that run on a node, wait or have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounters {
    /// Counters of maps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maps: Option<Vec<Counter>>,
    /// Counters of reduces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduces: Option<Vec<Counter>>,
    /// Counters of the job.
    pub total: Vec<Counter>,
}

/// A counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The name of its group.
    pub group: String,
    /// Its name.
    pub name: String,
    /// The name of its group for people.
    pub group_display_name: String,
    /// Its name for people.
    pub display_name: String,
    /// Its value.
    pub value: i64,
}

/// What a job would lose with a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUse {
    /// Attempts that run on it.
    pub running_attempts: usize,
    /// Map outputs on it that reduces may still need.
    pub map_outputs: usize,
}

/// Completion events of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionEvents {
    /// The events.
    pub events: Vec<CompletionEvent>,
    /// The number to pass as `from` for those that follow.
    pub next: usize,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionEvent {
    /// Its number.
    pub number: usize,
    /// The attempt's id.
    pub attempt: String,
    /// Whether it was a map whose output reduces fetch.
    pub map: bool,
    /// `SUCCEEDED`, `FAILED`, `KILLED`, `OBSOLETE` or `TIPFAILED`.
    pub status: String,
    /// The address of its task tracker.
    pub tracker: Option<String>,
    /// Span for which it ran.
    pub run_ms: i32,
}

/// Why a job waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobWaits {
    /// Slots that it requests and does not hold.
    #[serde(default)]
    pub requested_slots: usize,
    /// The reasons.
    pub waits: Option<Vec<JobWait>>,
    /// Why the reasons are not known.
    pub error: Option<String>,
    /// A note on where it runs or what it waits for.
    pub note: Option<String>,
}

/// Requests of a job that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobWait {
    /// The type of the slots: `MAP`, `REDUCE` or `JOBTRACKER`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The number of requests.
    pub requests: u64,
    /// Why they wait, in English.
    pub text: String,
}

/// The properties of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobProperties {
    /// The properties. Secrets are hidden.
    pub properties: Vec<JobProperty>,
}

/// A property of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobProperty {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// What was asked to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The id of the job, the task or the attempt.
    pub ended: String,
}
