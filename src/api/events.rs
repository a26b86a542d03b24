//! The events of the cluster manager and of the job tracker service, and their form in the streams at
//! `/api/v1/events`: server-sent events with the members as one line of JSON.

use std::fmt::Write;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use corona_model::types::{ResourceType, SessionStatus};

/// An event. In the stream, the line `event:` has its name, and the line `data:` the other members after `time_ms`,
/// when it happened; `missed` has no time. Those of jobs come from the job tracker service, the others from the
/// cluster manager; `privileged_action` and `missed` from both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A session has started.
    SessionStarted {
        /// Its handle.
        session: Arc<str>,
        /// Its name.
        name: Arc<str>,
        /// The pool group in which it is scheduled.
        group: Arc<str>,
        /// The pool within the group.
        pool: Arc<str>,
    },
    /// A session was given slots.
    SessionGranted {
        /// Its handle.
        session: Arc<str>,
        /// The type of the slots.
        #[serde(rename = "type")]
        kind: ResourceType,
        /// How many.
        count: u64,
    },
    /// Slots of a session were taken back.
    SessionRevoked {
        /// Its handle.
        session: Arc<str>,
        /// The type of the slots.
        #[serde(rename = "type")]
        kind: ResourceType,
        /// How many.
        count: u64,
    },
    /// A session has ended.
    SessionEnded {
        /// Its handle.
        session: Arc<str>,
        /// How.
        status: SessionStatus,
    },
    /// A node has come.
    NodeAdded {
        /// Its name.
        node: Arc<str>,
    },
    /// A node expired or restarted.
    NodeLost {
        /// Its name.
        node: Arc<str>,
        /// Whether it was silent for too long; otherwise it restarts.
        expired: bool,
    },
    /// A node has missed too many heartbeats.
    NodeLate {
        /// Its name.
        node: Arc<str>,
        /// The time since its last heartbeat in milliseconds.
        silent_ms: i64,
    },
    /// A late node sent a heartbeat, or its delay was forgiven because the cluster manager itself was stalled.
    NodeOnTime {
        /// Its name.
        node: Arc<str>,
    },
    /// A node is given no more work of a type.
    NodeBlacklisted {
        /// Its name.
        node: Arc<str>,
        /// The type.
        #[serde(rename = "type")]
        kind: ResourceType,
    },
    /// An operator has lifted the blacklisting of a node.
    BlacklistCleared {
        /// Its name.
        node: Arc<str>,
        /// The type.
        #[serde(rename = "type")]
        kind: ResourceType,
    },
    /// An operator drains a node, or lets it serve again.
    NodeDraining {
        /// Its name.
        node: Arc<str>,
        /// Whether it drains from now on.
        on: bool,
    },
    /// The access of a node was revoked and its grants are lost, or it has another access now.
    NodeRevoked {
        /// Its name.
        node: Arc<str>,
        /// The access that was revoked.
        access: String,
        /// Whether it is without access from now on.
        on: bool,
    },
    /// A pool may take slots from others.
    PoolStarving {
        /// Its pool group.
        group: Arc<str>,
        /// The pool within the group.
        pool: Arc<str>,
        /// The type of the slots.
        #[serde(rename = "type")]
        kind: ResourceType,
        /// The pool's lack: `minimum` or `share`.
        cause: String,
        /// Slots that it has.
        granted: i64,
    },
    /// Safe mode was switched.
    SafeMode {
        /// Whether it is on now.
        on: bool,
    },
    /// Changed configuration files are in force.
    ConfigurationReloaded,
    /// Somebody has changed the cluster, a job or the access to them: for administrators only.
    PrivilegedAction {
        /// `cluster` or `jobs`.
        changes: String,
        /// The role of a member; a plain peer and a user of the head's machine have none.
        role: Option<String>,
        /// The member, or who else it was.
        name: String,
        /// The access string that the member's certificate was issued for.
        access: Option<String>,
        /// The address and the port, or where else it was.
        from: String,
        /// The call, or the path of the page.
        action: String,
        /// `done`, perhaps with a result, or why not.
        outcome: String,
    },
    /// This instance leads: the first event of each leader.
    LeaderElected {
        /// Its name.
        instance: Arc<str>,
        /// The number of the leadership.
        epoch: u64,
    },
    /// The leader was asked to hand over to a standby.
    SteppingDown {
        /// The leader's name.
        instance: Arc<str>,
    },
    /// A standby has a complete copy of the journal and may take over.
    StandbyReady {
        /// Its name.
        instance: Arc<str>,
    },
    /// A standby may not take over any more.
    StandbyLost {
        /// Its name.
        instance: Arc<str>,
    },
    /// A job was submitted.
    JobSubmitted {
        /// Its id.
        job: Arc<str>,
        /// Its name.
        name: String,
        /// The user whose job it is.
        user: String,
    },
    /// The tasks of a job were made.
    JobLaunched {
        /// Its id.
        job: Arc<str>,
        /// Its maps.
        maps: usize,
        /// Its reduces.
        reduces: usize,
    },
    /// The set-up of a job is done.
    JobRunning {
        /// Its id.
        job: Arc<str>,
    },
    /// A job has ended.
    JobEnded {
        /// Its id.
        job: Arc<str>,
        /// `SUCCEEDED`, `FAILED` or `KILLED`.
        state: String,
    },
    /// An attempt was sent to its node.
    AttemptLaunched {
        /// The id of its job.
        job: Arc<str>,
        /// Its id.
        attempt: String,
        /// The task tracker.
        node: String,
    },
    /// An attempt has succeeded.
    AttemptSucceeded(AttemptEnded),
    /// An attempt has failed.
    AttemptFailed(AttemptEnded),
    /// An attempt was killed.
    AttemptKilled(AttemptEnded),
    /// A task has succeeded.
    TaskSucceeded(TaskEnded),
    /// A task has failed.
    TaskFailed(TaskEnded),
    /// Events that this stream did not get, those of other jobs included: it read too slowly, or was disconnected
    /// for too long.
    Missed {
        /// How many; left out if the program was restarted in between.
        #[serde(skip_serializing_if = "Option::is_none")]
        count: Option<u64>,
    },
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnded {
    /// The id of its job.
    pub job: Arc<str>,
    /// Its id.
    pub attempt: String,
    /// `MAP`, `REDUCE`, `SETUP` or `CLEANUP`.
    pub purpose: String,
    /// The task tracker.
    pub node: String,
    /// The first 1,000 bytes of the reason; a success has none.
    pub reason: Option<String>,
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnded {
    /// The id of its job.
    pub job: Arc<str>,
    /// Its id.
    pub task: String,
    /// `MAP`, `REDUCE`, `SETUP` or `CLEANUP`.
    pub purpose: String,
    /// The first 1,000 bytes of the reason; a success has none.
    pub reason: Option<String>,
}

impl Event {
    /// The job that it is about.
    pub fn job(&self) -> Option<&str> {
        match self {
            Event::JobSubmitted { job, .. }
            | Event::JobLaunched { job, .. }
            | Event::JobRunning { job }
            | Event::JobEnded { job, .. }
            | Event::AttemptLaunched { job, .. }
            | Event::AttemptSucceeded(AttemptEnded { job, .. })
            | Event::AttemptFailed(AttemptEnded { job, .. })
            | Event::AttemptKilled(AttemptEnded { job, .. })
            | Event::TaskSucceeded(TaskEnded { job, .. })
            | Event::TaskFailed(TaskEnded { job, .. }) => Some(job),
            _ => None,
        }
    }

    /// Appends the event to a stream.
    pub fn write(&self, out: &mut String, time_ms: Option<i64>) {
        // {"event":"NAME","MEMBER":...}. Numbers and strings always become JSON.
        let json = serde_json::to_string(self).unwrap_or_default();
        let named = json.strip_prefix("{\"event\":\"").and_then(|rest| rest.split_once('"'));
        let Some((name, members)) = named else { return };
        // Writing to a string does not fail.
        let _ = match time_ms {
            Some(time) => write!(out, "event: {name}\ndata: {{\"time_ms\":{time}{members}\n\n"),
            None => write!(out, "event: {name}\ndata: {{{}\n\n", members.trim_start_matches(',')),
        };
    }
}

/// An event that this version knows, and when it happened.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Dated {
    /// `None` for missed events.
    #[serde(default)]
    pub time_ms: Option<i64>,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

impl Dated {
    /// `None` for an event of a later version.
    pub fn of(members: Map<String, Value>) -> Option<Dated> {
        serde_json::from_value(Value::Object(members)).ok()
    }
}

/// What an event is about, also one of a later version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subjects {
    session: Option<String>,
    node: Option<String>,
    job: Option<String>,
    task: Option<String>,
    attempt: Option<String>,
    group: Option<String>,
    pool: Option<String>,
}

impl Subjects {
    /// Those of an event with these members.
    pub fn of(members: &Map<String, Value>) -> Subjects {
        let text = |key: &str| members.get(key).and_then(Value::as_str).map(str::to_owned);
        Subjects {
            session: text("session"),
            node: text("node"),
            job: text("job"),
            task: text("task"),
            attempt: text("attempt"),
            group: text("group"),
            pool: text("pool"),
        }
    }

    /// Whether one of them has this name: a session, node, job, task, attempt, or a pool as `GROUP.POOL`.
    pub fn include(&self, name: &str) -> bool {
        let Subjects { session, node, job, task, attempt, group, pool } = self;
        let is_pool = || matches!((group, pool), (Some(group), Some(pool)) if name == format!("{group}.{pool}"));
        [session, node, job, task, attempt].into_iter().flatten().any(|one| one == name)
            || is_pool()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::EventReader;

    #[test]
    fn an_event_is_a_name_and_a_line_of_json_with_its_members() {
        let (kind, session) = (ResourceType::Map, "2026.1\n\"".into());
        let started = Event::SessionStarted {
            session,
            name: "<b>".into(),
            group: "g".into(),
            pool: "p".into(),
        };
        let starving = Event::PoolStarving {
            group: "g".into(),
            pool: "p".into(),
            kind,
            cause: "share".into(),
            granted: 2,
        };
        let privileged = Event::PrivilegedAction {
            changes: "jobs".into(),
            role: None,
            name: "u".into(),
            access: None,
            from: "h:1".into(),
            action: "killJob".into(),
            outcome: "done".into(),
        };
        let succeeded = Event::AttemptSucceeded(AttemptEnded {
            job: "job_1".into(),
            attempt: "a".into(),
            purpose: "MAP".into(),
            node: "n".into(),
            reason: None,
        });
        for (event, time, lines) in [
            (
                started,
                Some(5),
                r#"session_started {"time_ms":5,"session":"2026.1\n\"","name":"<b>","group":"g","pool":"p"}"#,
            ),
            (
                Event::SessionRevoked { session: "1.1".into(), kind, count: 3 },
                Some(5),
                r#"session_revoked {"time_ms":5,"session":"1.1","type":"MAP","count":3}"#,
            ),
            (
                starving,
                Some(5),
                r#"pool_starving {"time_ms":5,"group":"g","pool":"p","type":"MAP","cause":"share","granted":2}"#,
            ),
            (Event::SafeMode { on: true }, Some(-5), r#"safe_mode {"time_ms":-5,"on":true}"#),
            (Event::ConfigurationReloaded, Some(5), r#"configuration_reloaded {"time_ms":5}"#),
            (
                privileged,
                Some(5),
                r#"privileged_action {"time_ms":5,"changes":"jobs","role":null,"name":"u","access":null,"from":"h:1","action":"killJob","outcome":"done"}"#,
            ),
            (
                succeeded,
                Some(5),
                r#"attempt_succeeded {"time_ms":5,"job":"job_1","attempt":"a","purpose":"MAP","node":"n","reason":null}"#,
            ),
            (Event::Missed { count: Some(6) }, None, r#"missed {"count":6}"#),
            (Event::Missed { count: None }, None, "missed {}"),
        ] {
            let mut written = String::new();
            event.write(&mut written, time);
            let (name, data) = lines.split_once(' ').unwrap();
            assert_eq!(written, format!("event: {name}\ndata: {data}\n\n"));
            let received = EventReader::default().push(written.as_bytes());
            assert_eq!(received.len(), 1);
            let read = received[0].members().and_then(Dated::of);
            assert_eq!(read, Some(Dated { time_ms: time, event }));
        }
    }
}
