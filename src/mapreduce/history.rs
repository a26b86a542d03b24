//! The records of a job's history file, and their lines. Spec: mapreduce/08 §8.2, §8.3.
//!
//! Readers of the original fail for the whole file at a record type or key that they do not know, so
//! there is no room here for more than the original writes.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::ids::{AttemptKey, JobId, TaskKey, TaskKind};

/// The status or the end of a job. Spec: mapreduce/09 §H.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JobState {
    /// Its set-up has not ended.
    Prep,
    /// Its tasks run, or its clean-up.
    Running,
    /// It has ended well.
    Succeeded,
    /// Too many tasks failed.
    Failed,
    /// It was killed.
    Killed,
}

impl JobState {
    /// The name that job clients print.
    pub fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "SUCCEEDED",
            other => other.history_name(),
        }
    }

    /// The name in a history file.
    pub fn history_name(self) -> &'static str {
        match self {
            Self::Prep => "PREP",
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCESS",
            Self::Failed => "FAILED",
            Self::Killed => "KILLED",
        }
    }

    /// Whether the job has ended.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Prep | Self::Running)
    }
}

/// The role of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TaskRole {
    /// One map of the job's work.
    Map,
    /// One reduce of the job's work.
    Reduce,
    /// Prepares the job.
    Setup,
    /// Commits or aborts the output of the whole job.
    Cleanup,
}

impl TaskRole {
    /// The name in a history file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "MAP",
            Self::Reduce => "REDUCE",
            Self::Setup => "SETUP",
            Self::Cleanup => "CLEANUP",
        }
    }

    /// Whether it is part of the job's work.
    pub fn is_work(self) -> bool {
        matches!(self, Self::Map | Self::Reduce)
    }
}

/// One thing to be written to the history file, in the order of writing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum HistoryRecord {
    /// The first line of the file.
    Version,
    /// The job was submitted.
    Submitted {
        /// The job's name for people.
        name: Arc<str>,
        /// The user whose job it is.
        user: Arc<str>,
        /// Milliseconds since the Unix epoch.
        submit_ms: i64,
        /// Where its configuration is.
        conf: Arc<str>,
        /// Host and HTTP port of its tracker and the attempt of a remote job tracker, `null` where
        /// missing.
        tracker: Arc<str>,
    },
    /// Its tasks were made.
    Launched {
        /// Milliseconds since the Unix epoch.
        launch_ms: i64,
        /// Maps of its work.
        maps: usize,
        /// Reduces of its work.
        reduces: usize,
    },
    /// Its set-up is done.
    Running,
    /// The first attempt of a task was launched.
    TaskStarted {
        /// The task, of the job whose history this is.
        task: TaskKey,
        /// The task's role.
        role: TaskRole,
        /// Milliseconds since the Unix epoch.
        start_ms: i64,
        /// The hosts of a map's split.
        hosts: Vec<Arc<str>>,
    },
    /// An attempt has ended: two lines.
    Attempt(Box<AttemptEnd>),
    /// A task has succeeded.
    TaskSucceeded {
        /// The task, of the job whose history this is.
        task: TaskKey,
        /// The task's role.
        role: TaskRole,
        /// Milliseconds since the Unix epoch.
        finish_ms: i64,
        /// The task's counters.
        counters: Counters,
    },
    /// A task has failed, and the job with it.
    TaskFailed {
        /// The task, of the job whose history this is.
        task: TaskKey,
        /// The task's role.
        role: TaskRole,
        /// Milliseconds since the Unix epoch.
        finish_ms: i64,
        /// Why.
        error: String,
    },
    /// The job has ended.
    Ended(Box<JobEnd>),
}

/// An attempt that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// The attempt, of the job whose history this is.
    pub attempt: AttemptKey,
    /// The role of its task.
    pub role: TaskRole,
    /// Milliseconds since the Unix epoch.
    pub start_ms: i64,
    /// The name of its task tracker.
    pub tracker: Arc<str>,
    /// The port of the task tracker's pages; absent where the job tracker decided the end itself.
    pub http_port: Option<i32>,
    /// Milliseconds since the Unix epoch.
    pub finish_ms: i64,
    /// The task tracker's host.
    pub host: Arc<str>,
    /// How it ended.
    pub result: AttemptResult,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AttemptResult {
    /// It succeeded.
    Succeeded {
        /// For reduces: when shuffle and sort ended, in milliseconds since the Unix epoch.
        phases: Option<(i64, i64)>,
        /// The task's last status text.
        state_string: String,
        /// Its last counters.
        counters: Counters,
    },
    /// It failed.
    Failed {
        /// Why.
        error: String,
    },
    /// It was killed.
    Killed {
        /// Why.
        error: String,
    },
}

/// The end of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobEnd {
    /// How it ended.
    pub state: JobState,
    /// Milliseconds since the Unix epoch.
    pub finish_ms: i64,
    /// Maps that succeeded.
    pub finished_maps: usize,
    /// Reduces that succeeded.
    pub finished_reduces: usize,
    /// Attempts at maps that failed or were killed; written for jobs that succeeded.
    pub failed_maps: usize,
    /// Attempts at reduces that failed or were killed; written for jobs that succeeded.
    pub failed_reduces: usize,
    /// Attempts at maps that were killed; written for jobs that succeeded.
    pub killed_maps: usize,
    /// Attempts at reduces that were killed; written for jobs that succeeded.
    pub killed_reduces: usize,
    /// The sums of the maps; written for jobs that succeeded.
    pub map_counters: Counters,
    /// The sums of the reduces; written for jobs that succeeded.
    pub reduce_counters: Counters,
    /// The sums of all tasks with the job's own counters.
    pub counters: Counters,
}

impl HistoryRecord {
    /// The lines of the record, each with its line feed.
    pub fn lines(&self, job: &JobId) -> String {
        let id = ("JOBID", job.as_str());
        match self {
            Self::Version => line("Meta", &[("VERSION", "1")]),
            Self::Submitted { name, user, submit_ms, conf, tracker } => line(
                "Job",
                &[
                    id,
                    ("JOBNAME", name),
                    ("USER", user),
                    ("SUBMIT_TIME", &submit_ms.to_string()),
                    ("JOBCONF", conf),
                    ("JOBTRACKERID", tracker),
                ],
            ),
            Self::Launched { launch_ms, maps, reduces } => line(
                "Job",
                &[
                    id,
                    ("LAUNCH_TIME", &launch_ms.to_string()),
                    ("TOTAL_MAPS", &maps.to_string()),
                    ("TOTAL_REDUCES", &reduces.to_string()),
                    ("JOB_STATUS", JobState::Prep.history_name()),
                ],
            ),
            Self::Running => line("Job", &[id, ("JOB_STATUS", JobState::Running.history_name())]),
            Self::TaskStarted { task, role, start_ms, hosts } => line(
                "Task",
                &[
                    ("TASKID", &job.task(*task)),
                    ("TASK_TYPE", role.name()),
                    ("START_TIME", &start_ms.to_string()),
                    ("SPLITS", &hosts.join(",")),
                ],
            ),
            Self::Attempt(end) => end.lines(job),
            Self::TaskSucceeded { task, role, finish_ms, counters } => line(
                "Task",
                &[
                    ("TASKID", &job.task(*task)),
                    ("TASK_TYPE", role.name()),
                    ("TASK_STATUS", "SUCCESS"),
                    ("FINISH_TIME", &finish_ms.to_string()),
                    ("COUNTERS", &counters.to_text()),
                ],
            ),
            Self::TaskFailed { task, role, finish_ms, error } => line(
                "Task",
                &[
                    ("TASKID", &job.task(*task)),
                    ("TASK_TYPE", role.name()),
                    ("TASK_STATUS", "FAILED"),
                    ("FINISH_TIME", &finish_ms.to_string()),
                    ("ERROR", error),
                    ("TASK_ATTEMPT_ID", ""),
                ],
            ),
            Self::Ended(end) => end.line(id),
        }
    }
}

impl AttemptEnd {
    fn lines(&self, job: &JobId) -> String {
        let kind = match self.attempt.task.kind {
            TaskKind::Map => "MapAttempt",
            TaskKind::Reduce => "ReduceAttempt",
        };
        let (task, attempt) = (job.task(self.attempt.task), job.attempt(self.attempt));
        let first =
            [("TASK_TYPE", self.role.name()), ("TASKID", &task), ("TASK_ATTEMPT_ID", &attempt)];
        let port = self.http_port.map(|port| port.to_string()).unwrap_or_default();
        let start = self.start_ms.to_string();
        let started =
            [("START_TIME", &*start), ("TRACKER_NAME", &self.tracker), ("HTTP_PORT", &port)];
        let mut lines = line(kind, &[&first[..], &started].concat());
        let finish = self.finish_ms.to_string();
        let ended = [("FINISH_TIME", &*finish), ("HOSTNAME", &self.host)];
        let rest = match &self.result {
            AttemptResult::Succeeded { phases, state_string, counters } => {
                let mut pairs = first.to_vec();
                pairs.push(("TASK_STATUS", "SUCCESS"));
                let phases = phases.map(|(shuffle, sort)| (shuffle.to_string(), sort.to_string()));
                if let Some((shuffle, sort)) = &phases {
                    pairs.extend([("SHUFFLE_FINISHED", &**shuffle), ("SORT_FINISHED", sort)]);
                }
                pairs.extend(ended);
                let counters = counters.to_text();
                pairs.extend([("STATE_STRING", &**state_string), ("COUNTERS", &counters)]);
                line(kind, &pairs)
            }
            AttemptResult::Failed { error } => line(
                kind,
                &[&first[..], &[("TASK_STATUS", "FAILED")], &ended, &[("ERROR", error)]].concat(),
            ),
            AttemptResult::Killed { error } => line(
                kind,
                &[&first[..], &[("TASK_STATUS", "KILLED")], &ended, &[("ERROR", error)]].concat(),
            ),
        };
        lines.push_str(&rest);
        lines
    }
}

impl JobEnd {
    /// The end of a job of which nothing else is known.
    pub fn without_counts(state: JobState, finish_ms: i64) -> JobEnd {
        JobEnd {
            state,
            finish_ms,
            finished_maps: 0,
            finished_reduces: 0,
            failed_maps: 0,
            failed_reduces: 0,
            killed_maps: 0,
            killed_reduces: 0,
            map_counters: Counters::default(),
            reduce_counters: Counters::default(),
            counters: Counters::default(),
        }
    }

    fn line(&self, id: (&'static str, &str)) -> String {
        let numbers = [
            ("FINISHED_MAPS", self.finished_maps.to_string()),
            ("FINISHED_REDUCES", self.finished_reduces.to_string()),
            ("FAILED_MAPS", self.failed_maps.to_string()),
            ("FAILED_REDUCES", self.failed_reduces.to_string()),
            ("KILLED_MAPS", self.killed_maps.to_string()),
            ("KILLED_REDUCES", self.killed_reduces.to_string()),
            ("MAP_COUNTERS", self.map_counters.to_text()),
            ("REDUCE_COUNTERS", self.reduce_counters.to_text()),
        ];
        let finish = self.finish_ms.to_string();
        let counters = self.counters.to_text();
        let mut pairs =
            vec![id, ("FINISH_TIME", &finish), ("JOB_STATUS", self.state.history_name())];
        let written = if self.state == JobState::Succeeded { &numbers[..] } else { &numbers[..2] };
        pairs.extend(written.iter().map(|(key, value)| (*key, &**value)));
        pairs.push(("COUNTERS", &counters));
        line("Job", &pairs)
    }
}

/// `type KEY="value" KEY="value" .`, a blank after each pair.
fn line(kind: &str, pairs: &[(&str, &str)]) -> String {
    let mut out = format!("{kind} ");
    for (key, value) in pairs {
        // Writing to a string does not fail.
        let _ = write!(out, "{key}=\"");
        for character in value.chars() {
            if matches!(character, '\\' | '"' | '=' | '.') {
                out.push('\\');
            }
            out.push(character);
        }
        out.push_str("\" ");
    }
    out.push_str(".\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> JobId {
        "job_202611210043.1_0001".parse().unwrap()
    }

    fn attempt(kind: TaskKind, result: AttemptResult) -> HistoryRecord {
        HistoryRecord::Attempt(Box::new(AttemptEnd {
            attempt: TaskKey { kind, number: 2 }.attempt(0),
            role: TaskRole::Setup,
            start_ms: 1_795_221_828_326,
            tracker: "tracker_localhost:localhost/127.0.0.1:36123".into(),
            http_port: Some(18061),
            finish_ms: 1_795_221_828_877,
            host: "localhost".into(),
            result,
        }))
    }

    #[test]
    fn lines_are_those_of_the_original() {
        // Spec: mapreduce/08 §8.3; the lines are from the history of the recording inproc-sleep.
        let submitted = HistoryRecord::Submitted {
            name: "Sleep job".into(),
            user: "root".into(),
            submit_ms: 1_795_221_828_070,
            conf: "file:/system/job_202611210043.1_0001/job.xml".into(),
            tracker: "null:null:null".into(),
        };
        assert_eq!(
            submitted.lines(&job()),
            "Job JOBID=\"job_202611210043\\.1_0001\" JOBNAME=\"Sleep job\" USER=\"root\" \
             SUBMIT_TIME=\"1795221828070\" JOBCONF=\"file:/system/job_202611210043\\.1_0001/job\\.xml\" \
             JOBTRACKERID=\"null:null:null\" .\n"
        );
        let mut counters = Counters::default();
        counters.set("a.b", "c(1)", 5);
        let result = AttemptResult::Succeeded {
            phases: Some((1_795_221_828_875, 1_795_221_828_875)),
            state_string: "setup".into(),
            counters,
        };
        let common = "TASK_TYPE=\"SETUP\" TASKID=\"task_202611210043\\.1_0001_r_000002\" \
                      TASK_ATTEMPT_ID=\"attempt_202611210043\\.1_0001_r_000002_0\"";
        assert_eq!(
            attempt(TaskKind::Reduce, result).lines(&job()),
            format!(
                "ReduceAttempt {common} START_TIME=\"1795221828326\" \
                 TRACKER_NAME=\"tracker_localhost:localhost/127\\.0\\.0\\.1:36123\" HTTP_PORT=\"18061\" .\n\
                 ReduceAttempt {common} TASK_STATUS=\"SUCCESS\" SHUFFLE_FINISHED=\"1795221828875\" \
                 SORT_FINISHED=\"1795221828875\" FINISH_TIME=\"1795221828877\" HOSTNAME=\"localhost\" \
                 STATE_STRING=\"setup\" COUNTERS=\"{{(a\\.b)(a\\.b)[(c\\\\(1\\\\))(c\\\\(1\\\\))(5)]}}\" .\n"
            )
        );
        let failed = attempt(TaskKind::Map, AttemptResult::Failed { error: "a=\"b\"\nc".into() });
        assert!(failed.lines(&job()).ends_with(
            "TASK_STATUS=\"FAILED\" FINISH_TIME=\"1795221828877\" HOSTNAME=\"localhost\" \
                 ERROR=\"a\\=\\\"b\\\"\nc\" .\n"
        ));
    }
}
