//! The rules of the job engine, as short scripts with the expected effects inline.
//!
//! An attempt is written `m0.1`: the second attempt at the first map. A node `a` has the host `a` and the
//! name `tracker_a:1`. Records of the history are left out, except where a test looks at them.

mod attempts;
mod counters;
mod efforts;
pub(crate) mod image;
mod large;
mod life;
mod nodes;
mod reach;
mod restore;
mod slow;
mod traps;

use std::sync::Arc;

use corona_mapreduce::{
    AttemptKey, HistoryRecord, JobSettings, RecordRange, ReduceProgress, Split, TaskKey, TaskKind,
    TaskState, TaskStatus,
};
use corona_model::types::Millis;

use super::*;

pub(super) struct TestJob {
    pub(super) job: JobEngine,
    pub(super) now: Millis,
    pub(super) records: Vec<HistoryRecord>,
    pub(super) last: Vec<JobEffect>,
}

/// A job of so many maps and reduces with the default settings, submitted at 1000.
pub(super) fn world(maps: usize, reduces: u32) -> TestJob {
    world_with(maps, reduces, |_| {})
}

pub(super) fn world_with(
    maps: usize,
    reduces: u32,
    change: impl FnOnce(&mut JobSettings),
) -> TestJob {
    let mut settings = JobSettings::default();
    change(&mut settings);
    let spec = JobSpec {
        id: "job_202611210043.1_0001".parse().unwrap(),
        name: "test".into(),
        user: "alice".into(),
        conf: "file:/job.xml".into(),
        tracker: "null:null:null".into(),
        splits: vec![Split::default(); maps],
        reduces,
        settings,
        racks: Vec::new(),
    };
    TestJob { job: JobEngine::new(spec), now: Millis(1000), records: Vec::new(), last: Vec::new() }
}

/// `m0.1` as a key.
pub(super) fn key(name: &str) -> AttemptKey {
    let (task, number) = name.split_once('.').unwrap();
    let kind = if task.starts_with('m') { TaskKind::Map } else { TaskKind::Reduce };
    TaskKey { kind, number: task[1..].parse().unwrap() }.attempt(number.parse().unwrap())
}

fn name(key: AttemptKey) -> String {
    format!("{}.{}", task_name(key.task), key.number)
}

fn task_name(task: TaskKey) -> String {
    let letter = if task.kind == TaskKind::Map { 'm' } else { 'r' };
    format!("{letter}{}", task.number)
}

fn host(at: &Tracker) -> &str {
    at.node.strip_prefix("tracker_").and_then(|rest| rest.split(':').next()).unwrap()
}

fn ids(ids: &[RequestId]) -> String {
    ids.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(",")
}

/// An effect as scripts write it; nothing for records.
fn text(effect: &JobEffect) -> Vec<String> {
    match effect {
        JobEffect::Request(requests) => requests
            .iter()
            .map(|request| {
                let mut text = format!("request {} {}", request.id, request.kind.name());
                for (word, hosts) in [(" near ", &request.hosts), (" not ", &request.exclude_hosts)]
                {
                    if !hosts.is_empty() {
                        text.push_str(word);
                        text.push_str(&hosts.join(","));
                    }
                }
                text
            })
            .collect(),
        JobEffect::Release(released) => vec![format!("release {}", ids(released))],
        JobEffect::Launch(Launch { attempt, at, slot, work }) => {
            let what = match work {
                Work::Task { skipping: false, .. } => String::new(),
                Work::Task { skip, write_skipped, .. } => {
                    format!(" skipping {:?} {write_skipped}", skip.records())
                }
                Work::Setup => " as set-up".into(),
                Work::Cleanup { state } => format!(" as clean-up {state:?}"),
                Work::TaskCleanup { failed } => format!(" cleaned, failed {failed}"),
            };
            vec![format!("launch {} on {} with {}{what}", name(*attempt), host(at), slot.0)]
        }
        JobEffect::Kill { attempt, at } => vec![format!("kill {} on {}", name(*attempt), host(at))],
        JobEffect::Commit { attempt, at } => {
            vec![format!("commit {} on {}", name(*attempt), host(at))]
        }
        JobEffect::KillJob { at } => vec![format!("forget on {}", host(at))],
        JobEffect::Event { id, event } => {
            let status = event.status.name();
            vec![format!("event {id} {} {status}", name(event.attempt))]
        }
        JobEffect::EventObsolete { id } => vec![format!("obsolete {id}")],
        JobEffect::Record(_) => Vec::new(),
        JobEffect::DoneWithout(HistoryRecord::TaskFailed { task, .. }) => {
            vec![format!("without {}", task_name(*task))]
        }
        JobEffect::DoneWithout(other) => panic!("{other:?}"),
        JobEffect::UpdatePriority(priority) => vec![format!("priority {}", priority.name())],
        JobEffect::CountersLeftOut { attempt, count } => {
            vec![format!("{} loses {count} counters", name(*attempt))]
        }
        JobEffect::EndSession { status, .. } => vec![format!("end {}", status.name())],
    }
}

impl TestJob {
    /// Applies an input; the effects as texts. The books are compared after each input.
    pub(super) fn apply(&mut self, input: JobInput) -> Vec<String> {
        let outcome = self.job.apply(self.now, input);
        outcome.reply.unwrap();
        if let Err(what) = self.job.audit() {
            panic!("{what}\nafter {:?}", outcome.effects);
        }
        for effect in &outcome.effects {
            if let JobEffect::Record(record) = effect {
                self.records.push(record.clone());
            }
        }
        let texts = outcome.effects.iter().flat_map(text).collect();
        self.last = outcome.effects;
        texts
    }

    pub(super) fn submit(&mut self) -> Vec<String> {
        self.apply(JobInput::Submitted)
    }

    /// Grants a slot on a node.
    pub(super) fn grant(&mut self, id: i32, node: &str) -> Vec<String> {
        let slots = vec![GrantedSlot {
            id: RequestId(id),
            node: format!("tracker_{node}:1").into(),
            host: node.into(),
            address: format!("{node}:2").into(),
        }];
        self.apply(JobInput::Granted { slots })
    }

    pub(super) fn heartbeat(&mut self, node: &str, reports: Vec<TaskStatus>) -> Vec<String> {
        let host: Arc<str> = node.into();
        let node = format!("tracker_{node}:1").into();
        self.apply(JobInput::Heartbeat { node, host, http_port: 50060, reports })
    }

    /// Reports one attempt from a node.
    pub(super) fn report(&mut self, node: &str, attempt: &str, state: TaskState) -> Vec<String> {
        self.heartbeat(node, vec![TaskStatus::new(key(attempt), state)])
    }

    pub(super) fn after(&mut self, span_ms: i64) -> &mut TestJob {
        self.now = self.now.plus_ms(span_ms);
        self
    }

    pub(super) fn tick(&mut self) -> Vec<String> {
        self.apply(JobInput::Tick)
    }

    pub(super) fn lose(&mut self, node: &str) -> Vec<String> {
        self.apply(JobInput::NodeLost { node: format!("tracker_{node}:1").into() })
    }

    pub(super) fn hosts(&mut self, kind: TaskKind, hosts: &[&str]) -> Vec<String> {
        let hosts = hosts.iter().map(|host| (*host).into()).collect();
        self.apply(JobInput::HostsKnown { kind, hosts })
    }

    /// Submits, and has the set-up run on the first request's slot on node `a`.
    pub(super) fn set_up(&mut self, setup: &str) -> Vec<String> {
        self.submit();
        self.grant(1, "a");
        self.report("a", setup, TaskState::Succeeded)
    }

    /// The statuses of all events, in order.
    pub(super) fn events(&self) -> Vec<String> {
        let events = self.job.events(0, usize::MAX);
        events.iter().map(|it| format!("{} {}", name(it.attempt), it.status.name())).collect()
    }
}

/// A job whose only map has succeeded on the node `a`, and whose five reduces run on `b`.
pub(super) fn fetching() -> TestJob {
    let mut world = world(1, 5);
    world.set_up("m2.0");
    for id in 2..=6 {
        world.grant(id, "b");
    }
    world.grant(7, "b");
    world.report("a", "m0.0", TaskState::Succeeded);
    world
}

/// A reduce's report that it could not fetch a map.
pub(super) fn fetch_failure(reduce: &str, map: &str) -> TaskStatus {
    TaskStatus {
        reduce: Some(ReduceProgress { failed_fetches: vec![key(map)], ..Default::default() }),
        ..TaskStatus::new(key(reduce), TaskState::Running)
    }
}

/// A failure at a range of records.
pub(super) fn failure_at(attempt: &str, start: i64, length: i64) -> TaskStatus {
    let next_records = RecordRange { start, length };
    TaskStatus { next_records, ..TaskStatus::new(key(attempt), TaskState::Failed) }
}
