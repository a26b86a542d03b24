//! The recorded jobs of the original, played again: the job engine is given what the recorded job
//! tracker heard from the cluster manager and from task trackers, and must want what that one wanted:
//! the same requests in the same order, the same slots back, the same launches down to their last
//! field, the same kills, permissions to commit, and end.
//!
//! What may differ is the time: the original looks at its grants, and collects releases, in rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use compat_tests::repository;
use corona::conformance::capture::{Capture, Limits, Side};
use corona::conformance::conversation::{Conversation, Offered, conversations};
use corona::conformance::hadoop_rpc::{HadoopConversation, HadoopSaid, hadoop_conversations};
use corona::conformance::setup::RecordedSetup;
use corona::hadoop::rpc::{Call, Parameters};
use corona::hadoop::writables::{Action, Task, TaskKind, TaskTrackerAction, TaskTrackerStatus};
use corona::job_engine::{
    GrantedSlot, JobEffect, JobEngine, JobInput, JobRefusal, JobSpec, RequestId,
};
use corona::job_wire::translate;
use corona::mapreduce::{JobId, JobSettings, Split};
use corona::model::types::{Millis, ResourceType, SessionStatus};
use corona::wire::calls::{ClusterManager, ClusterManagerCall, SessionDriver, SessionDriverCall};
use corona::wire::generated as wire;

/// The type of slots for maps on the wire, and for reduces.
const MAP: i32 = wire::ResourceType::MAP.0;
const REDUCE: i32 = wire::ResourceType::REDUCE.0;

/// What a job tracker did about one job.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Deeds {
    /// In the order in which they were filed.
    pub(super) requests: Vec<String>,
    /// Ids of requests.
    pub(super) released: BTreeSet<i32>,
    /// By attempt and purpose: where, and the object that was sent.
    pub(super) launches: BTreeMap<String, (String, Task)>,
    /// Attempts and where they were, once each.
    pub(super) kills: BTreeSet<String>,
    pub(super) commits: BTreeSet<String>,
    /// Task trackers that were to forget the job.
    pub(super) forgets: BTreeSet<String>,
    /// Of each node: launched, succeeded, killed, failed, timed out, failed connections.
    pub(super) feedback: BTreeMap<String, [i32; 6]>,
    pub(super) end: Option<SessionStatus>,
}

impl Deeds {
    /// An order to the task tracker at this address.
    pub(super) fn order(&mut self, at: &str, action: Action) {
        match action {
            Action::Launch(task) => {
                let launch = (at.to_owned(), sorted(*task));
                let before = self.launches.insert(launch_name(&launch.1), launch);
                assert_eq!(before, None, "launched twice");
            }
            Action::KillTask(attempt) => {
                self.kills.insert(format!("{attempt} at {at}"));
            }
            Action::Commit(attempt) => {
                self.commits.insert(format!("{attempt} at {at}"));
            }
            Action::KillJob(_) => {
                self.forgets.insert(at.to_owned());
            }
            Action::Reinit => {}
        }
    }
}

/// What one recorded session heard, in the order of time, and what it did.
pub(super) struct Recorded {
    pub(super) job: JobId,
    /// The job file and the user that its launches name.
    conf: String,
    pub(super) user: String,
    pub(super) hosts: Vec<Vec<Arc<str>>>,
    pub(super) reduces: u32,
    pub(super) heard: Vec<(Duration, JobInput)>,
    /// The reports as they travelled.
    pub(super) statuses: Vec<(Duration, TaskTrackerStatus)>,
    pub(super) deeds: Deeds,
}

#[test]
fn the_engine_does_what_each_recorded_job_tracker_did() {
    for (name, session) in [
        ("inproc-sleep", "202611210043.1"),
        ("remote-sleep", "202611210044.2"),
        ("wc-remote", "202611210045.2"),
        // One job loses a node, one loses slots to another job, and one takes them.
        ("nodedeath", "202611210046.1"),
        ("preempt", "202611210047.1"),
        ("preempt", "202611210047.2"),
    ] {
        same(name, session);
    }
}

#[test]
fn a_deed_that_is_missing_is_noticed() {
    let mut recorded = recorded("inproc-sleep", "202611210043.1");
    // The node of two maps never reports.
    let lost = |input: &JobInput| matches!(input, JobInput::Heartbeat { http_port: 18062, .. });
    recorded.heard.retain(|(_, input)| !lost(input));
    let ours = play(&recorded);
    assert_ne!(ours.launches, recorded.deeds.launches);
    assert_eq!(ours.end, None);
}

fn same(name: &str, session: &str) {
    let recorded = recorded(name, session);
    let ours = play(&recorded);
    let theirs = &recorded.deeds;
    assert!(theirs.requests.len() > 2 && theirs.launches.len() > 4, "{theirs:?}");
    alike_but_for_tasks(&ours, theirs);
    for (name, launch) in &theirs.launches {
        assert_eq!(&ours.launches[name], launch, "{name}");
    }
    assert_eq!(&ours, theirs);
}

/// Checks that two job trackers did the same, whatever the tasks are that they launched.
pub(super) fn alike_but_for_tasks(ours: &Deeds, theirs: &Deeds) {
    assert_eq!(ours.requests, theirs.requests);
    assert_eq!(ours.released, theirs.released);
    assert_eq!((&ours.kills, &ours.commits), (&theirs.kills, &theirs.commits));
    assert_eq!((&ours.feedback, ours.end), (&theirs.feedback, theirs.end));
    let names = |deeds: &Deeds| deeds.launches.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(ours), names(theirs));
}

/// What the engine does about the same job.
fn play(recorded: &Recorded) -> Deeds {
    let mut settings = JobSettings::default();
    // As the recorded jobs set it; the word count is over before any task could be slow.
    settings.speculation.map.enabled = false;
    settings.speculation.reduce.enabled = false;
    let split = |hosts: &Vec<Arc<str>>| Split { length: 0, hosts: hosts.clone() };
    let spec = JobSpec {
        id: recorded.job.clone(),
        name: "recorded".into(),
        user: recorded.user.as_str().into(),
        conf: recorded.conf.as_str().into(),
        tracker: "null:null:null".into(),
        splits: recorded.hosts.iter().map(split).collect(),
        reduces: recorded.reduces,
        settings,
        racks: Vec::new(),
    };
    let mut engine = JobEngine::new(spec.clone());
    let mut deeds = Deeds::default();
    for (at, input) in &recorded.heard {
        let now = Millis(i64::try_from(at.as_millis()).unwrap());
        while let Some(due) = engine.next_deadline().filter(|due| *due <= now) {
            let outcome = engine.apply(due, JobInput::Tick);
            note(&mut deeds, &spec, &recorded.deeds, outcome.effects);
        }
        let outcome = engine.apply(now, input.clone());
        assert!(
            matches!(outcome.reply, Ok(_) | Err(JobRefusal::Ended)),
            "{input:?}: {:?}",
            outcome.reply
        );
        note(&mut deeds, &spec, &recorded.deeds, outcome.effects);
    }
    deeds
}

fn note(deeds: &mut Deeds, spec: &JobSpec, theirs: &Deeds, effects: Vec<JobEffect>) {
    let maps = u32::try_from(spec.splits.len()).unwrap();
    let named = |attempt| translate::attempt_id(&spec.id, attempt).unwrap().to_string();
    for effect in effects {
        match effect {
            JobEffect::Request(requests) => deeds.requests.extend(requests.iter().map(|it| {
                let number = if it.kind == ResourceType::Map { MAP } else { REDUCE };
                request(it.id, number, &it.hosts, &it.exclude_hosts)
            })),
            JobEffect::Release(ids) => deeds.released.extend(ids.iter().map(|id| id.0)),
            JobEffect::Launch(launch) => {
                // What a map reads is a matter between its client and its task.
                let any = translate::task(spec, &launch, None, maps).unwrap();
                let name = launch_name(&any);
                let split = theirs.launches.get(&name).and_then(|(_, task)| match &task.kind {
                    TaskKind::Map { split } => split.clone(),
                    TaskKind::Reduce { .. } => None,
                });
                let task = sorted(translate::task(spec, &launch, split, maps).unwrap());
                let before = deeds.launches.insert(name, (launch.at.address.to_string(), task));
                assert_eq!(before, None, "launched twice");
            }
            JobEffect::Kill { attempt, at } => {
                deeds.kills.insert(format!("{} at {}", named(attempt), at.address));
            }
            JobEffect::Commit { attempt, at } => {
                deeds.commits.insert(format!("{} at {}", named(attempt), at.address));
            }
            JobEffect::KillJob { at } => {
                deeds.forgets.insert(at.address.to_string());
            }
            JobEffect::EndSession { status, feedback } => {
                deeds.end = Some(status);
                deeds.feedback = feedback
                    .iter()
                    .map(|node| {
                        let counts = [
                            node.total,
                            node.succeeded,
                            node.killed,
                            node.failed,
                            node.timeouts,
                            node.failed_connections,
                        ];
                        (node.node.to_string(), counts.map(|count| i32::try_from(count).unwrap()))
                    })
                    .collect();
            }
            _ => {}
        }
    }
}

pub(super) fn request(id: i32, kind: i32, near: &[Arc<str>], not: &[Arc<str>]) -> String {
    format!("{id} of type {kind} near {near:?} not {not:?}")
}

/// The counters of a new task lie in a hash table in Java: their order says nothing.
fn sorted(mut task: Task) -> Task {
    for group in task.status.counters.iter_mut().flat_map(|counters| &mut counters.groups) {
        group.counters.sort_by(|one, other| one.name.cmp(&other.name));
    }
    task
}

fn launch_name(task: &Task) -> String {
    let purpose = match (task.job_setup, task.job_cleanup.is_some(), task.task_cleanup) {
        (true, ..) => " sets up",
        (_, true, _) => " cleans up",
        (.., true) => " is cleaned up after",
        _ => "",
    };
    format!("{}{purpose}", task.attempt)
}

/// A session of a recording.
pub(super) fn recorded(name: &str, session: &str) -> Recorded {
    let directory = repository().join("fixtures/recordings/jobs").join(name);
    let setup = RecordedSetup::read(&directory).expect("the recorded configuration");
    let file = File::open(directory.join("traffic.pcap")).expect("the recorded traffic");
    let capture = Capture::read(file, &Limits::default()).expect("a packet capture");
    let mut heard = Vec::new();
    let mut deeds = Deeds::default();
    let mut filed = Vec::new();
    for conversation in conversations(&capture, &setup.ports) {
        thrift(&conversation, session, &mut heard, &mut deeds, &mut filed);
    }
    filed.sort_by_key(|(at, _)| *at);
    let first = filed.first().expect("it requests slots");
    heard.push((first.0, JobInput::Submitted));
    let lists = |list: &Option<Vec<String>>| -> Vec<Arc<str>> {
        list.iter().flatten().map(|host| host.as_str().into()).collect()
    };
    let maps = first.1.iter().filter(|it| it.type_.0 == MAP);
    let hosts: Vec<_> = maps.map(|it| lists(&it.hosts)).collect();
    let reduces = u32::try_from(first.1.len() - hosts.len()).unwrap();
    for request_of_theirs in filed.iter().flat_map(|(_, requests)| requests) {
        let (near, not) = (&request_of_theirs.hosts, &request_of_theirs.exclude_hosts);
        let text =
            request(request_of_theirs.id, request_of_theirs.type_.0, &lists(near), &lists(not));
        deeds.requests.push(text);
    }
    let talks = hadoop_conversations(&capture);
    for talk in &talks {
        orders(talk, session, &mut deeds);
    }
    let (_, task) = deeds.launches.values().next().expect("it launches something");
    let job: JobId = task.attempt.job().to_string().parse().unwrap();
    let (conf, user) = (task.job_file.clone(), task.user.clone());
    let mut statuses = Vec::new();
    for talk in &talks {
        reports(talk, &job, &mut heard, &mut statuses);
    }
    heard.sort_by_key(|(at, _)| *at);
    statuses.sort_by_key(|(at, _)| *at);
    Recorded { job, conf, user, hosts, reduces, heard, statuses, deeds }
}

/// What the session heard from the cluster manager, and what it wanted there.
fn thrift(
    conversation: &Conversation,
    session: &str,
    heard: &mut Vec<(Duration, JobInput)>,
    deeds: &mut Deeds,
    filed: &mut Vec<(Duration, Vec<wire::ResourceRequest>)>,
) {
    for (part, message) in conversation.messages() {
        if part.from != Side::Client {
            continue;
        }
        match conversation.service {
            Offered::ProxyJobTracker => {}
            Offered::ClusterManager => {
                match message.call::<ClusterManager>().expect("a recorded call") {
                    ClusterManagerCall::RequestResource { handle, requests }
                        if handle.as_deref() == Some(session) =>
                    {
                        filed.push((part.at, requests.unwrap_or_default()));
                    }
                    ClusterManagerCall::ReleaseResource { handle, ids }
                        if handle.as_deref() == Some(session) =>
                    {
                        deeds.released.extend(ids.unwrap_or_default());
                    }
                    ClusterManagerCall::NodeFeedback { handle, reports, .. }
                        if handle.as_deref() == Some(session) =>
                    {
                        deeds.feedback = reports.into_iter().flatten().map(usage).collect();
                    }
                    ClusterManagerCall::SessionEnd { handle, status, .. }
                        if handle.as_deref() == Some(session) =>
                    {
                        deeds.end = status.and_then(|it| SessionStatus::from_number(it.0));
                    }
                    _ => {}
                }
            }
            Offered::SessionDriver => {
                let input = match message.call::<SessionDriver>().expect("a recorded call") {
                    SessionDriverCall::GrantResource { handle, granted }
                        if handle.as_deref() == Some(session) =>
                    {
                        let slot = |grant: wire::ResourceGrant| GrantedSlot {
                            id: RequestId(grant.id),
                            node: grant.node_name.into(),
                            host: grant.address.host.into(),
                            address: grant.app_info.unwrap_or_default().into(),
                        };
                        JobInput::Granted {
                            slots: granted.into_iter().flatten().map(slot).collect(),
                        }
                    }
                    SessionDriverCall::RevokeResource { handle, revoked, .. }
                        if handle.as_deref() == Some(session) =>
                    {
                        let ids = revoked.into_iter().flatten().map(|grant| RequestId(grant.id));
                        JobInput::Revoked { ids: ids.collect() }
                    }
                    SessionDriverCall::ProcessDeadNode { handle, node }
                        if handle.as_deref() == Some(session) =>
                    {
                        JobInput::NodeLost { node: node.unwrap_or_default().into() }
                    }
                    _ => continue,
                };
                heard.push((part.at, input));
            }
        }
    }
}

/// What a session says of a node, as deeds have it.
pub(super) fn usage(node: wire::NodeUsageReport) -> (String, [i32; 6]) {
    let counts = [
        node.num_total_tasks,
        node.num_succeeded,
        node.num_killed,
        node.num_failed,
        node.num_timeout,
        node.num_failed_connections,
    ];
    (node.node_name, counts)
}

/// The calls of a conversation with a method of this name.
fn calls<'a>(
    talk: &'a HadoopConversation,
    method: &'a str,
) -> impl Iterator<Item = (Duration, &'a Call)> {
    talk.parts.iter().filter_map(move |part| match &part.said {
        HadoopSaid::Call(call) if call.method == method => Some((part.at, call)),
        _ => None,
    })
}

/// What the session sent to task trackers.
fn orders(talk: &HadoopConversation, session: &str, deeds: &mut Deeds) {
    // What a job tracker connects to is the address that its grant named.
    let at = talk.server.to_string();
    for (_, call) in calls(talk, "submitActions") {
        let mut parameters = Parameters::new(call.parameters.clone());
        let actions: Vec<TaskTrackerAction> = parameters.take().expect("recorded orders");
        for TaskTrackerAction { session: of, action } in actions {
            if of.and_then(|of| of.handle).as_deref() != Some(session) {
                continue;
            }
            deeds.order(&at, action);
        }
    }
}

/// What task trackers reported about the job.
fn reports(
    talk: &HadoopConversation,
    job: &JobId,
    heard: &mut Vec<(Duration, JobInput)>,
    statuses: &mut Vec<(Duration, TaskTrackerStatus)>,
) {
    for (at, call) in calls(talk, "heartbeat") {
        let mut parameters = Parameters::new(call.parameters.clone());
        let status: TaskTrackerStatus = parameters.take().expect("a recorded report");
        let whole = status.clone();
        let reports: Vec<_> =
            status.tasks.into_iter().filter_map(|it| translate::status(job, it)).collect();
        if !reports.is_empty() {
            let (node, host) = (status.name.into(), status.host.into());
            let http_port = status.http_port;
            heard.push((at, JobInput::Heartbeat { node, host, http_port, reports }));
            statuses.push((at, whole));
        }
    }
}
