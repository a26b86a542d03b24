//! What a remote job tracker leaves with its parent, so that another can continue the job: from the
//! engine's effects to the updates that travel, and back into the input with which the next one begins.
//! Pure. Spec: mapreduce/02 §2.10, mapreduce/09 §I.
//!
//! The original sends launches, task trackers and time-outs; its receiving side also knows the ends of
//! attempts, which are sent here.

use std::sync::Arc;

use corona_hadoop::io::TooLarge;
use corona_hadoop::writables as wire;
use corona_mapreduce::history::{AttemptEnd, AttemptResult};
use corona_mapreduce::{Counters, JobId, TaskKind};
use corona_model::types::Millis;

use crate::translate;
use corona_job_engine::parent::SavedUpdate;
use corona_job_engine::{JobInput, Launch, SavedEvent};

/// An attempt that is about to be launched; absent if its numbers are larger than the wire's.
pub fn launched(job: &JobId, launch: &Launch) -> Option<wire::Update> {
    let (host, port) = launch.at.address.rsplit_once(':')?;
    let address = wire::InetAddress { host: host.to_owned(), port: port.parse().ok()? };
    Some(wire::Update::Launch(wire::TaskLaunch {
        attempt: translate::attempt_id(job, launch.attempt)?,
        tracker: Some(launch.at.node.to_string()),
        address,
        grant: launch.slot.0,
    }))
}

/// The end of an attempt, as the engine has booked it.
pub fn ended(job: &JobId, end: &AttemptEnd) -> Option<wire::Update> {
    let (state, diagnostics) = match &end.result {
        AttemptResult::Succeeded { .. } => (wire::TaskState::Succeeded, ""),
        AttemptResult::Failed { error } => (wire::TaskState::Failed, error.as_str()),
        AttemptResult::Killed { error } => (wire::TaskState::Killed, error.as_str()),
    };
    let (phases, state_string, counters) = match &end.result {
        AttemptResult::Succeeded { phases, state_string, counters } => {
            (*phases, state_string.clone(), translate::counters_to_wire(counters))
        }
        // The original's receiving side expects counters in every status.
        _ => (None, String::new(), translate::counters_to_wire(&Counters::default())),
    };
    let is_map = end.attempt.task.kind == TaskKind::Map;
    let (shuffle, sort) = phases.unwrap_or_default();
    let reduce = wire::ReduceProgress {
        shuffle_finish_time_ms: shuffle,
        sort_finish_time_ms: sort,
        failed_fetches: Vec::new(),
    };
    let status = wire::TaskStatus {
        progress: if state == wire::TaskState::Succeeded { 1.0 } else { 0.0 },
        diagnostics: diagnostics.to_owned(),
        state_string,
        phase: if is_map { wire::Phase::Map } else { wire::Phase::Reduce },
        start_time_ms: end.start_ms,
        finish_time_ms: end.finish_ms,
        counters: Some(counters),
        reduce: (!is_map).then_some(reduce),
        ..wire::TaskStatus::new(translate::attempt_id(job, end.attempt)?, state)
    };
    Some(status_update(status, &end.tracker))
}

/// A report that the next job tracker needs although it is not the end of its attempt: that it waits to
/// commit, or must be cleaned up after.
pub fn reported(status: &wire::TaskStatus, tracker: &str) -> Option<wire::Update> {
    use wire::TaskState::{CommitPending, FailedUnclean, KilledUnclean};
    let matters = matches!(status.state, CommitPending | FailedUnclean | KilledUnclean);
    matters.then(|| {
        let mut status = status.clone();
        status.counters.get_or_insert_default();
        if let Some(reduce) = &mut status.reduce {
            // They were counted when they were reported.
            reduce.failed_fetches.clear();
        }
        status_update(status, tracker)
    })
}

fn status_update(status: wire::TaskStatus, tracker: &str) -> wire::Update {
    let tracker = Some(tracker.to_owned());
    wire::Update::StatusUpdate(wire::TaskStatusUpdate { status, tracker })
}

/// A task tracker that reports for the first time, or from a new address.
pub fn tracker(name: &str, host: &str, http_port: i32) -> wire::Update {
    wire::Update::Tracker(wire::TaskTrackerInfo {
        name: name.to_owned(),
        host: host.to_owned(),
        http_port,
    })
}

/// An update as the parent keeps it, in at most so many bytes.
///
/// # Errors
/// It has more.
pub fn kept(
    job: &JobId,
    update: &wire::StateUpdate,
    max_bytes: usize,
) -> Result<SavedUpdate, TooLarge> {
    let status = match &update.update {
        wire::Update::StatusUpdate(update) => Some(&update.status),
        _ => None,
    };
    Ok(SavedUpdate {
        status_of: status.and_then(|status| translate::attempt_key(job, &status.attempt)),
        is_passing: status.is_some_and(|it| it.state == wire::TaskState::CommitPending),
        at_ms: update.at_ms,
        bytes: wire::to_bytes(update, max_bytes)?,
    })
}

/// The input with which a job tracker continues a job. The updates are in the order in which they
/// were left: the sort is stable.
pub fn input(job: &JobId, state: wire::JobTrackerState) -> JobInput {
    let mut updates = state.updates;
    updates.sort_by_key(|update| update.at_ms);
    let events = updates.into_iter().filter_map(|update| {
        let event = event(job, update.update)?;
        Some((Millis(update.at_ms), event))
    });
    let fail_overs = u32::try_from(state.restarts).unwrap_or(0);
    JobInput::Restored { fail_overs, events: events.collect() }
}

/// What an update means; nothing if it is of another job, or lacks the task tracker's name.
fn event(job: &JobId, update: wire::Update) -> Option<SavedEvent> {
    Some(match update {
        wire::Update::Launch(launch) => {
            let node = launch.tracker?;
            SavedEvent::Launched {
                attempt: translate::attempt_key(job, &launch.attempt)?,
                host: host_of(&node).unwrap_or(&launch.address.host).into(),
                address: launch.address.to_string().into(),
                node: node.into(),
            }
        }
        wire::Update::StatusUpdate(update) => SavedEvent::Reported {
            node: update.tracker?.into(),
            report: translate::status(job, update.status)?,
        },
        wire::Update::Tracker(info) => SavedEvent::Tracker {
            node: info.name.into(),
            host: info.host.into(),
            http_port: info.http_port,
        },
        wire::Update::Timeout(timeout) => SavedEvent::TimedOut { node: timeout.tracker?.into() },
        // The original turns a heartbeat into a task tracker before it sends it, and statuses
        // without a task tracker are not sent either.
        wire::Update::TrackerStatus(_) | wire::Update::Status(_) => return None,
    })
}

/// The host in the name of a task tracker, `tracker_<host>:<anything>`. Spec: mapreduce/06.
fn host_of(tracker: &str) -> Option<&str> {
    let (host, _) = tracker.strip_prefix("tracker_")?.split_once(':')?;
    Some(host).filter(|host| !host.is_empty())
}

/// The time-out of an attempt on a node.
pub fn timed_out(tracker: &Arc<str>) -> wire::Update {
    wire::Update::Timeout(wire::TaskTimeout { tracker: Some(tracker.to_string()) })
}

#[cfg(test)]
mod tests {
    use corona_mapreduce::{
        Counter, CounterGroup, HistoryRecord, JobSettings, JobState, Split, TaskState, TaskStatus,
    };

    use super::*;
    use corona_job_engine::{GrantedSlot, JobEffect, JobEngine, JobSpec, RequestId};

    const SPAN_MS: i64 = 10;

    fn spec() -> JobSpec {
        let mut settings = JobSettings::default();
        settings.max_attempts.map = 2;
        JobSpec {
            id: "job_202611210043.1_0001".parse().unwrap(),
            name: "test".into(),
            user: "alice".into(),
            conf: "file:/job.xml".into(),
            tracker: "null:null:null".into(),
            splits: vec![Split::default(); 2],
            reduces: 1,
            settings,
            racks: Vec::new(),
        }
    }

    /// A job tracker that leaves its state.
    struct First {
        engine: JobEngine,
        now: Millis,
        updates: Vec<wire::StateUpdate>,
    }

    impl First {
        fn apply(&mut self, input: JobInput) {
            self.now = self.now.plus_ms(SPAN_MS);
            if let JobInput::Heartbeat { node, host, http_port, reports } = &input {
                self.leave(tracker(node, host, *http_port));
                for report in reports {
                    let status = wire_status(self.engine.id(), report);
                    reported(&status, node).into_iter().for_each(|update| self.leave(update));
                }
            }
            let job = self.engine.id().clone();
            for effect in self.engine.apply(self.now, input).effects {
                let update = match effect {
                    JobEffect::Launch(launch) => launched(&job, &launch),
                    JobEffect::Record(HistoryRecord::Attempt(end)) => ended(&job, &end),
                    _ => None,
                };
                update.into_iter().for_each(|update| self.leave(update));
            }
        }

        fn leave(&mut self, update: wire::Update) {
            self.updates.push(wire::StateUpdate { update, at_ms: self.now.0 });
        }
    }

    fn wire_status(job: &JobId, report: &TaskStatus) -> wire::TaskStatus {
        let end = AttemptEnd {
            attempt: report.attempt,
            role: corona_mapreduce::TaskRole::Map,
            start_ms: 1,
            tracker: "tracker_a:1".into(),
            http_port: None,
            finish_ms: 0,
            host: "a".into(),
            result: AttemptResult::Killed { error: String::new() },
        };
        match ended(job, &end) {
            Some(wire::Update::StatusUpdate(update)) => {
                let state = match report.state {
                    TaskState::CommitPending => wire::TaskState::CommitPending,
                    _ => wire::TaskState::Running,
                };
                wire::TaskStatus { state, ..update.status }
            }
            other => panic!("{other:?}"),
        }
    }

    fn grant(id: i32, node: &str) -> JobInput {
        let slot = GrantedSlot {
            id: RequestId(id),
            node: format!("tracker_{node}:1").into(),
            host: node.into(),
            address: "10.0.0.1:2".into(),
        };
        JobInput::Granted { slots: vec![slot] }
    }

    fn report(node: &str, name: &str, state: TaskState) -> JobInput {
        let job: JobId = "job_202611210043.1_0001".parse().unwrap();
        let id: wire::TaskAttemptId =
            format!("attempt_202611210043.1_0001_{name}").parse().unwrap();
        let counter = Counter { name: "N".into(), display_name: "N".into(), value: 7 };
        let group =
            CounterGroup { name: "g".into(), display_name: "g".into(), counters: vec![counter] };
        let status = TaskStatus {
            start_time_ms: 1000,
            finish_time_ms: 1005,
            counters: Some(Counters { groups: vec![group] }),
            ..TaskStatus::new(translate::attempt_key(&job, &id).unwrap(), state)
        };
        JobInput::Heartbeat {
            node: format!("tracker_{node}:1").into(),
            host: node.into(),
            http_port: 50060,
            reports: vec![status],
        }
    }

    #[test]
    fn the_next_job_tracker_has_the_finished_work_of_the_first() {
        let engine = JobEngine::new(spec());
        let mut first = First { engine, now: Millis(1000), updates: Vec::new() };
        first.apply(JobInput::Submitted);
        for id in 1..=3 {
            first.apply(grant(id, "a"));
        }
        first.apply(report("a", "m_000003_0", TaskState::Succeeded));
        first.apply(report("a", "m_000000_0", TaskState::Succeeded));
        first.apply(report("a", "m_000001_0", TaskState::Failed));
        first.apply(grant(4, "b"));
        first.apply(report("b", "m_000001_1", TaskState::CommitPending));

        // As the parent keeps it and gives it back.
        let mut writer = corona_hadoop::io::Writer::new(1 << 20);
        let session = "202611210043.2".to_owned();
        let state = wire::JobTrackerState { updates: first.updates, session, restarts: 1 };
        corona_hadoop::io::formats::Writable::encode(&state, &mut writer);
        let bytes = writer.finish().unwrap();
        let mut reader = corona_hadoop::io::Reader::new(&bytes);
        let state: wire::JobTrackerState =
            corona_hadoop::io::formats::Writable::decode(&mut reader).unwrap();

        let mut second = JobEngine::new(spec());
        let outcome = second.apply(Millis(9000), input(second.id(), state));
        assert!(outcome.reply.is_ok());
        second.audit().unwrap();
        let progress = second.progress();
        assert_eq!((progress.state, progress.finished.map), (JobState::Running, 1));
        let mut requested = Vec::new();
        let mut killed = Vec::new();
        for effect in outcome.effects {
            match effect {
                JobEffect::Request(requests) => requested.extend(requests),
                JobEffect::Kill { attempt, at } => {
                    killed.push((second.id().attempt(attempt), at.address.to_string()));
                }
                _ => {}
            }
        }
        // The map that has not finished, and the reduce that ran.
        assert_eq!(requested.len(), 2, "{requested:?}");
        assert_eq!(&*requested[0].exclude_hosts[0], "a", "where it failed");
        let names: Vec<&str> = killed.iter().map(|(name, _)| &name[name.len() - 10..]).collect();
        assert_eq!(names, ["m_000001_1", "r_000000_0"]);
        assert!(killed.iter().all(|(_, address)| address == "10.0.0.1:2"));
        let counters = second.counters();
        let own = counters.groups.iter().find(|group| &*group.name == "g").unwrap();
        assert_eq!(own.counters[0].value, 7, "counters of finished work are kept");
    }

    #[test]
    fn updates_of_other_jobs_and_without_a_task_tracker_are_left_out() {
        let job: JobId = "job_202611210043.1_0001".parse().unwrap();
        let other: JobId = "job_202611210043.9_0001".parse().unwrap();
        let end = |job: &JobId| {
            let key = corona_mapreduce::TaskKey { kind: TaskKind::Reduce, number: 3 };
            let result = AttemptResult::Failed { error: "why".into() };
            let end = AttemptEnd {
                attempt: key.attempt(1),
                role: corona_mapreduce::TaskRole::Reduce,
                start_ms: 5,
                tracker: "tracker_a:1".into(),
                http_port: None,
                finish_ms: 6,
                host: "a".into(),
                result,
            };
            ended(job, &end).unwrap()
        };
        let nameless = wire::Update::Timeout(wire::TaskTimeout { tracker: None });
        let update = |(at, update)| wire::StateUpdate { update, at_ms: 100 - at };
        let all = [end(&other), nameless, end(&job), timed_out(&"tracker_a:1".into())];
        let updates = (0_i64..).zip(all).map(update).collect();
        let state = wire::JobTrackerState { updates, session: String::new(), restarts: -1 };
        let JobInput::Restored { fail_overs, events } = input(&job, state) else { panic!() };
        assert_eq!((fail_overs, events.len()), (0, 2));
        assert!(matches!(events[0], (Millis(97), SavedEvent::TimedOut { .. })), "{events:?}");
        let (at, SavedEvent::Reported { report, .. }) = &events[1] else { panic!("{events:?}") };
        assert_eq!((at.0, report.state, &*report.diagnostics), (98, TaskState::Failed, "why"));
    }

    #[test]
    fn a_host_is_that_of_the_task_trackers_name() {
        assert_eq!(host_of("tracker_n1.example.com:n1/10.0.0.1:50"), Some("n1.example.com"));
        assert_eq!(host_of("tracker_:1"), None);
        assert_eq!(host_of("n1"), None);
    }
}
