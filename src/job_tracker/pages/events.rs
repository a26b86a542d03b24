//! The events of jobs, for `/api/v1/events`. `docs/operate/job-tracker.md` lists them. They are published when the
//! inputs that they follow from are in the job's journal.

use std::sync::Arc;

use corona_access::{Action, Rights};
use corona_mapreduce::history::AttemptResult;
use corona_mapreduce::{AttemptKey, HistoryRecord, JobId};
use corona_model::text::cut;
use corona_web::events::{Committed, PRIVILEGED_ACTION};
use serde::Serialize;

/// All events, and the channel to their subscribers.
pub(crate) type Events = corona_web::events::Events<Happening, Committed>;

/// A reason is cut behind so many bytes.
const MOST_REASON_BYTES: usize = 1000;

/// Something that happened to a job.
#[derive(Debug, Serialize)]
pub(crate) struct Happening {
    #[serde(skip)]
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobId>,
    #[serde(flatten)]
    what: What,
}

/// What happened.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum What {
    Submitted { name: String, user: String },
    Launched { maps: usize, reduces: usize },
    Running {},
    JobEnded { state: &'static str },
    Attempt { attempt: String, node: String },
    AttemptEnded { attempt: String, purpose: &'static str, node: String, reason: Option<String> },
    Task { task: String, purpose: &'static str, reason: Option<String> },
    Privileged(Arc<Action>),
}

impl Happening {
    /// What a line of the history says, unless an attempt's launch has said it.
    pub(crate) fn of(job: &JobId, record: &HistoryRecord) -> Option<Happening> {
        let (name, what) = match record {
            HistoryRecord::Version | HistoryRecord::TaskStarted { .. } => return None,
            HistoryRecord::Submitted { name, user, .. } => {
                let (name, user) = (name.to_string(), user.to_string());
                ("job_submitted", What::Submitted { name, user })
            }
            HistoryRecord::Launched { maps, reduces, .. } => {
                ("job_launched", What::Launched { maps: *maps, reduces: *reduces })
            }
            HistoryRecord::Running => ("job_running", What::Running {}),
            HistoryRecord::Attempt(end) => {
                let (name, reason) = match &end.result {
                    AttemptResult::Succeeded { .. } => ("attempt_succeeded", None),
                    AttemptResult::Failed { error } => ("attempt_failed", Some(error)),
                    AttemptResult::Killed { error } => ("attempt_killed", Some(error)),
                };
                let what = What::AttemptEnded {
                    attempt: job.attempt(end.attempt),
                    purpose: end.role.name(),
                    node: end.tracker.to_string(),
                    reason: reason.map(|text| bounded(text)),
                };
                (name, what)
            }
            HistoryRecord::TaskSucceeded { task, role, .. } => {
                let what = What::Task { task: job.task(*task), purpose: role.name(), reason: None };
                ("task_succeeded", what)
            }
            HistoryRecord::TaskFailed { task, role, error, .. } => {
                let reason = Some(bounded(error));
                ("task_failed", What::Task { task: job.task(*task), purpose: role.name(), reason })
            }
            HistoryRecord::Ended(end) => ("job_ended", What::JobEnded { state: end.state.name() }),
        };
        Some(Happening { name, job: Some(job.clone()), what })
    }

    /// An attempt is launched.
    pub(crate) fn launch(job: &JobId, attempt: AttemptKey, node: &str) -> Happening {
        let what = What::Attempt { attempt: job.attempt(attempt), node: node.to_owned() };
        Happening { name: "attempt_launched", job: Some(job.clone()), what }
    }

    /// Somebody has changed a job, or the service.
    pub(crate) fn action(action: Arc<Action>) -> Happening {
        Happening { name: PRIVILEGED_ACTION, job: None, what: What::Privileged(action) }
    }
}

impl corona_web::events::Happening for Happening {
    fn name(&self) -> &'static str {
        self.name
    }

    /// Pages list jobs and tasks themselves.
    fn is_notable(&self) -> bool {
        false
    }

    fn concerns(&self, subject: &str) -> bool {
        self.job.as_ref().is_some_and(|job| job.as_str() == subject)
    }

    fn rights(&self) -> Rights {
        match self.what {
            What::Privileged(_) => Rights::ADMIN,
            _ => Rights::MEMBERS,
        }
    }
}

fn bounded(text: &str) -> String {
    cut(text, MOST_REASON_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    use corona_mapreduce::history::JobEnd;
    use corona_mapreduce::{AttemptEnd, Counters, JobState, TaskKey, TaskKind, TaskRole};
    use corona_web::events::Happening as _;

    use super::*;

    fn end(result: AttemptResult) -> HistoryRecord {
        let task = TaskKey { kind: TaskKind::Map, number: 3 };
        HistoryRecord::Attempt(Box::new(AttemptEnd {
            attempt: task.attempt(1),
            role: TaskRole::Map,
            start_ms: 1,
            tracker: "tracker_n1:localhost/127.0.0.1:7".into(),
            http_port: None,
            finish_ms: 2,
            host: "n1".into(),
            result,
        }))
    }

    fn ended(state: JobState) -> HistoryRecord {
        HistoryRecord::Ended(Box::new(JobEnd::without_counts(state, 9)))
    }

    #[test]
    fn each_record_has_its_event() {
        let job: JobId = "job_202611240000_0001".parse().unwrap();
        let task = TaskKey { kind: TaskKind::Reduce, number: 0 };
        let role = TaskRole::Reduce;
        let long = "ä".repeat(MOST_REASON_BYTES);
        let cut = format!(r#""reason":"{}"}}"#, "ä".repeat(MOST_REASON_BYTES / 2));
        let attempt = r#""attempt":"attempt_202611240000_0001_m_000003_1","purpose":"MAP","node":"tracker_n1:localhost/127.0.0.1:7","reason":"#;
        let submitted = HistoryRecord::Submitted {
            name: "n".into(),
            user: "u".into(),
            submit_ms: 1,
            conf: "c".into(),
            tracker: "t".into(),
        };
        let succeeded = AttemptResult::Succeeded {
            phases: None,
            state_string: String::new(),
            counters: Counters::default(),
        };
        let task_failed =
            HistoryRecord::TaskFailed { task, role, finish_ms: 1, error: "why".into() };
        for (record, name, fields) in [
            (submitted, "job_submitted", r#""name":"n","user":"u"}"#.to_owned()),
            (
                HistoryRecord::Launched { launch_ms: 1, maps: 4, reduces: 2 },
                "job_launched",
                r#""maps":4,"reduces":2}"#.to_owned(),
            ),
            (end(succeeded), "attempt_succeeded", format!("{attempt}null}}")),
            (
                end(AttemptResult::Failed { error: "broke".into() }),
                "attempt_failed",
                format!("{attempt}\"broke\"}}"),
            ),
            (end(AttemptResult::Killed { error: long }), "attempt_killed", cut),
            (
                task_failed,
                "task_failed",
                r#""task":"task_202611240000_0001_r_000000","purpose":"REDUCE","reason":"why"}"#
                    .into(),
            ),
            (ended(JobState::Killed), "job_ended", r#""state":"KILLED"}"#.into()),
        ] {
            let happening = Happening::of(&job, &record).unwrap();
            assert_eq!(happening.name(), name);
            let json = serde_json::to_string(&happening).unwrap();
            assert!(json.starts_with(r#"{"job":"job_202611240000_0001","#), "{json}");
            assert!(json.ends_with(&fields), "{json}");
            assert!(happening.concerns("job_202611240000_0001"));
            assert!(!happening.concerns("job_202611240000_0002"));
        }
        let hosts = Vec::<Arc<str>>::new();
        let started = HistoryRecord::TaskStarted { task, role, start_ms: 1, hosts };
        assert!(Happening::of(&job, &started).is_none());
    }
}
