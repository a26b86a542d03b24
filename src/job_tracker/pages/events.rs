//! The events of jobs, for `/api/v1/events`. They are published when the inputs that they follow from are in the
//! job's journal.

use std::sync::Arc;

use corona_api::events::{AttemptEnded, Event, TaskEnded};
use corona_mapreduce::history::AttemptResult;
use corona_mapreduce::{AttemptKey, HistoryRecord, JobId, TaskKey, TaskRole};
use corona_model::text::cut;
use corona_web::events::Committed;

/// All events, and the channel to their subscribers.
pub(crate) type Events = corona_web::events::Events<Committed>;

/// A reason is cut behind so many bytes.
const MOST_REASON_BYTES: usize = 1000;

/// What a line of the history says, unless an attempt's launch has said it.
pub(crate) fn of_record(id: &JobId, record: &HistoryRecord) -> Option<Event> {
    let job: Arc<str> = id.as_str().into();
    let task_ended = |task: &TaskKey, role: &TaskRole, error: Option<&str>| TaskEnded {
        job: job.clone(),
        task: id.task(*task),
        purpose: role.name().to_owned(),
        reason: error.map(bounded),
    };
    Some(match record {
        HistoryRecord::Version | HistoryRecord::TaskStarted { .. } => return None,
        HistoryRecord::Submitted { name, user, .. } => {
            Event::JobSubmitted { job, name: name.to_string(), user: user.to_string() }
        }
        HistoryRecord::Launched { maps, reduces, .. } => {
            Event::JobLaunched { job, maps: *maps, reduces: *reduces }
        }
        HistoryRecord::Running => Event::JobRunning { job },
        HistoryRecord::Attempt(end) => {
            let (event, reason): (fn(AttemptEnded) -> Event, _) = match &end.result {
                AttemptResult::Succeeded { .. } => (Event::AttemptSucceeded, None),
                AttemptResult::Failed { error } => (Event::AttemptFailed, Some(bounded(error))),
                AttemptResult::Killed { error } => (Event::AttemptKilled, Some(bounded(error))),
            };
            event(AttemptEnded {
                job,
                attempt: id.attempt(end.attempt),
                purpose: end.role.name().to_owned(),
                node: end.tracker.to_string(),
                reason,
            })
        }
        HistoryRecord::TaskSucceeded { task, role, .. } => {
            Event::TaskSucceeded(task_ended(task, role, None))
        }
        HistoryRecord::TaskFailed { task, role, error, .. } => {
            Event::TaskFailed(task_ended(task, role, Some(error)))
        }
        HistoryRecord::Ended(end) => Event::JobEnded { job, state: end.state.name().to_owned() },
    })
}

/// An attempt is launched.
pub(crate) fn launched(job: &JobId, attempt: AttemptKey, node: &str) -> Event {
    let (id, attempt) = (job.as_str().into(), job.attempt(attempt));
    Event::AttemptLaunched { job: id, attempt, node: node.to_owned() }
}

fn bounded(text: &str) -> String {
    cut(text, MOST_REASON_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    use corona_mapreduce::history::JobEnd;
    use corona_mapreduce::{AttemptEnd, Counters, JobState, TaskKind};

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
            let event = of_record(&job, &record).unwrap();
            assert_eq!(event.job(), Some(job.as_str()));
            let mut line = String::new();
            event.write(&mut line, Some(5));
            let start = format!("event: {name}\ndata: {{\"time_ms\":5,\"job\":\"{job}\",");
            assert!(line.starts_with(&start), "{line}");
            assert!(line.ends_with(&(fields + "\n\n")), "{line}");
        }
        let hosts = Vec::<Arc<str>>::new();
        let started = HistoryRecord::TaskStarted { task, role, start_ms: 1, hosts };
        assert!(of_record(&job, &started).is_none());
    }
}
