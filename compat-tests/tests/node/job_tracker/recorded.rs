//! The recorded commands of the original's clients, call by call, against the service: every answer
//! has the recorded form. What must differ is replaced before: the ids of jobs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use compat_tests::repository;
use compat_tests::task_tracker::steps::TaskRole;
use corona::conformance::capture::{ConnectionId, Limits};
use corona::conformance::hadoop_rpc::hadoop_conversations;
use corona::conformance::open;
use corona::hadoop::object::{Object, Value};
use corona::hadoop::rpc::{Call, ConnectionHeader, Outcome, Reply};
use corona::hadoop::writables::JobId;

use super::super::task_tracker::block_on;
use super::super::task_tracker::recorded::{Exchange, Talk, exchanges, framed, read};
use super::*;

/// The calls of the clients of a recording, in the order in which they were made, each with its connection.
fn recorded(name: &str) -> Vec<(ConnectionId, ConnectionHeader, Exchange)> {
    let path = repository().join("fixtures/recordings/job-clients").join(name).join("traffic.pcap");
    let traffic = open(&path, &Limits::default()).expect("a recording");
    let mut all = Vec::new();
    for talk in hadoop_conversations(&traffic.capture) {
        if !talk.header.protocol.ends_with(".JobSubmissionProtocol") {
            continue;
        }
        let (connection, header) = (talk.connection, talk.header.clone());
        let exchanges = exchanges(talk, 0).into_iter();
        all.extend(exchanges.map(|exchange| (connection, header.clone(), exchange)));
    }
    all.sort_by_key(|(.., exchange)| exchange.at);
    all
}

/// The form of an answer: whether it is one, its class, and whether it is null.
fn form(answer: &Reply) -> String {
    match &answer.outcome {
        Outcome::Value(object @ Object::Null(_)) => format!("null {}", object.class()),
        Outcome::Value(Object::Boolean(value)) => format!("boolean {value}"),
        Outcome::Value(object) => object.class().to_string(),
        Outcome::Error(error) => format!("error {:?}", error.class),
        Outcome::Fatal(error) => format!("fatal {:?}", error.class),
    }
}

/// The same call about jobs of this run.
fn translated(mut call: Call, ids: &HashMap<JobId, JobId>) -> Call {
    let own = |job: &mut JobId| {
        if let Some(known) = ids.get(job) {
            *job = known.clone();
        }
    };
    for parameter in &mut call.parameters {
        match parameter {
            Object::Writable(_, Value::JobId(job)) => own(job),
            Object::Writable(_, Value::TaskAttemptId(attempt)) => own(&mut attempt.task.job),
            _ => {}
        }
    }
    call
}

fn job_of(object: &Outcome) -> JobId {
    match object {
        Outcome::Value(Object::Writable(_, Value::JobId(job))) => (**job).clone(),
        other => panic!("{other:?} is not the id of a job"),
    }
}

#[test]
fn the_recorded_commands_get_answers_of_the_recorded_form() {
    block_on(async {
        let world = TestCluster::new(&[]).await;
        let exchanges = recorded("commands");
        assert!(exchanges.len() > 70, "{}", exchanges.len());
        let mut client = world.client("root");
        let address = world.job_tracker.address.to_string();
        let mut talks = HashMap::new();
        let mut ids = HashMap::new();
        let mut methods = std::collections::BTreeSet::new();
        for (connection, header, Exchange { call, answer, .. }) in exchanges {
            let talk = match talks.entry(connection) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(new) => new.insert(Talk::open(&address, &header).await),
            };
            let call = translated(call, &ids);
            let waits = |job: Job| job.steps(TaskRole::Map, "update=0.5,wait,done");
            let mut job = None;
            if call.method == "submitJob" {
                let id = job_of(&Outcome::Value(call.parameters[0].clone()));
                job = Some(world.files(&mut client, id, 2, 1, waits).await);
            }
            let ours = read(&talk.exchange(&framed(&call)).await);
            assert_eq!(form(&ours), form(&answer), "{call:?}\n{ours:?}");
            if call.method == "getNewJobId" {
                ids.insert(job_of(&answer.outcome), job_of(&ours.outcome));
            }
            if let Some(job) = job {
                // The recorded commands came when the maps of the job were running.
                until_progress(&mut client, &job, 0.5).await;
            }
            methods.insert(call.method);
        }
        for method in ["killTask", "killJob", "getQueueAclsForCurrentUser", "getClusterStatus"] {
            assert!(methods.contains(method), "{methods:?}");
        }
    });
}

/// The jobs of a recording, and the calls with deliberately different replies.
struct Play {
    name: &'static str,
    reduces: i32,
    /// The steps of maps.
    steps: &'static str,
    /// Calls whose answers differ on purpose: method, and the recorded form.
    differ: &'static [(&'static str, &'static str)],
}

const PLAYS: [Play; 8] = [
    Play { name: "pi", reduces: 1, steps: "", differ: &[] },
    Play { name: "wordcount", reduces: 1, steps: "", differ: &[] },
    Play { name: "sleep", reduces: 1, steps: "", differ: &[] },
    Play { name: "maponly_jar_cache", reduces: 0, steps: "", differ: &[] },
    Play { name: "failing", reduces: 1, steps: "diagnose=it is bad,exit=1", differ: &[] },
    Play { name: "killed", reduces: 1, steps: "update=0.5,wait,done", differ: &[] },
    Play { name: "streaming", reduces: 1, steps: "", differ: &[] },
    // A pool is made when a job names it, and so is a queue: JS-11.
    Play { name: "errors", reduces: 1, steps: "", differ: &[("submitJob", "error")] },
];

/// The state of the job in an answer.
fn run_state(answer: &Reply) -> Option<i32> {
    match &answer.outcome {
        Outcome::Value(Object::Writable(_, Value::JobStatus(status))) => Some(status.run_state),
        _ => None,
    }
}

/// Whether an answer is of the recorded form; of a job that has ended, also the recorded state.
fn is_like(ours: &Reply, theirs: &Reply) -> bool {
    let ended = run_state(theirs).filter(|state| ![RUNNING, 4].contains(state));
    form(ours) == form(theirs) && (ended.is_none() || run_state(ours) == ended)
}

#[test]
fn every_recorded_client_gets_answers_of_the_recorded_form() {
    block_on(async {
        let world = TestCluster::new(&[]).await;
        for play in PLAYS {
            replay(&world, &play).await;
        }
    });
}

/// Makes the calls of a recording. A call that only asks is repeated until the job has come so far.
async fn replay(world: &TestCluster, play: &Play) {
    let exchanges = recorded(play.name);
    assert!(exchanges.len() > 10, "{}: {}", play.name, exchanges.len());
    let mut client = world.client("root");
    let address = world.job_tracker.address.to_string();
    let (mut talks, mut ids) = (HashMap::new(), HashMap::new());
    let mut states = std::collections::BTreeSet::new();
    for (connection, header, Exchange { call, answer, .. }) in exchanges {
        let talk = match talks.entry(connection) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(new) => new.insert(Talk::open(&address, &header).await),
        };
        let call = translated(call, &ids);
        let acts = ["submitJob", "getNewJobId", "killJob"].contains(&&*call.method);
        if call.method == "submitJob" {
            let id = job_of(&Outcome::Value(call.parameters[0].clone()));
            let change = |job: Job| {
                let job = job.with("mapred.map.max.attempts", "2");
                if play.steps.is_empty() { job } else { job.steps(TaskRole::Map, play.steps) }
            };
            world.files(&mut client, id, 2, play.reduces, change).await;
        }
        let deadline = std::time::Instant::now() + PATIENCE;
        let ours = loop {
            let ours = read(&talk.exchange(&framed(&call)).await);
            if acts || is_like(&ours, &answer) || std::time::Instant::now() > deadline {
                break ours;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let differs = |(method, theirs): &(&str, &str)| {
            call.method == *method && form(&answer).starts_with(theirs)
        };
        if play.differ.iter().any(differs) {
            assert!(!is_like(&ours, &answer), "{}: {call:?} is answered alike", play.name);
        } else {
            assert!(is_like(&ours, &answer), "{}: {call:?}\n{ours:?}\n{answer:?}", play.name);
        }
        if call.method == "getNewJobId" {
            ids.insert(job_of(&answer.outcome), job_of(&ours.outcome));
        }
        states.extend(run_state(&answer));
    }
    assert!(play.name == "errors" || states.len() > 1, "{}: no job ended", play.name);
}
