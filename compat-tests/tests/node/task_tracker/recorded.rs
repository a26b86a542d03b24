//! Recorded jobs against the running task tracker: the calls to the original's trackers, in the
//! same order, and each answer as theirs, byte for byte.
//!
//! A process is started for each attempt, and sends nothing: the test sends the recorded process's
//! calls over the umbilical protocol. Values that must differ are replaced before: addresses, the
//! paths of the job's files, and the numbers that processes call themselves by.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use compat_tests::repository;
use compat_tests::task_tracker::job::Job;
use compat_tests::task_tracker::job_tracker::JobTracker;
use corona::conformance::capture::{Limits, Side};
use corona::conformance::hadoop_rpc::{HadoopConversation, HadoopSaid, hadoop_conversations};
use corona::conformance::open;
use corona::hadoop::io::Reader;
use corona::hadoop::io::formats::Writable;
use corona::hadoop::rpc::{Argument, Call, ConnectionHeader, MAGIC, Outcome, Parameters, Reply};
use corona::hadoop::writables::{
    Action, JobId, JvmContext, JvmTask, Task, TaskAttemptId, TaskState, TaskStatus,
    TaskTrackerAction, TaskTrackerStatus, to_bytes,
};
use corona::task_tracker::attempt::is_last_report;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{TestNode, block_on, note_of, test_task};

const MAX_BYTES: usize = 1 << 24;

/// A call that was answered.
pub(crate) struct Exchange {
    pub(crate) at: Duration,
    /// The connection that it came on.
    talk: usize,
    pub(crate) call: Call,
    /// The bytes of the call, its length included.
    raw: Vec<u8>,
    pub(crate) answer: Reply,
    /// The bytes of the answer.
    answer_raw: Vec<u8>,
}

/// The calls that one recorded task tracker received, and its reports.
#[derive(Default)]
struct Recorded {
    /// The beginnings of its connections, those to the umbilical port marked.
    talks: Vec<(ConnectionHeader, bool)>,
    exchanges: Vec<Exchange>,
    /// The time and the content of the last report of each run of each attempt.
    ends: VecDeque<(Duration, TaskStatus)>,
}

/// The recorded trackers by name, `tt1` and `tt2`.
fn recorded(job: &str) -> BTreeMap<String, Recorded> {
    let directory = repository().join("fixtures/recordings/jobs").join(job);
    let ports = std::fs::read_to_string(directory.join("ports.json")).unwrap();
    let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
    let label = |port: u16| {
        let label = ports[port.to_string()]["label"].as_str().unwrap_or_default();
        label.split_once('-').map(|(name, what)| (name.to_owned(), what.to_owned()))
    };
    let traffic = open(&directory.join("traffic.pcap"), &Limits::default()).unwrap();
    let mut trackers = BTreeMap::<String, Recorded>::new();
    for talk in hadoop_conversations(&traffic.capture) {
        let (name, what) = label(talk.server.port()).unwrap_or_default();
        match (what.as_str(), talk.header.protocol.rsplit('.').next()) {
            ("action" | "umbilical", _) => {
                let tracker = trackers.entry(name).or_default();
                tracker.talks.push((talk.header.clone(), what == "umbilical"));
                let number = tracker.talks.len() - 1;
                tracker.exchanges.extend(exchanges(talk, number));
            }
            (_, Some("InterTrackerProtocol")) => {
                for exchange in exchanges(talk, 0) {
                    let at = exchange.at;
                    let (name, ends) = reported(exchange.call, label);
                    let ends = ends.into_iter().map(|end| (at, end));
                    trackers.entry(name).or_default().ends.extend(ends);
                }
            }
            _ => {}
        }
    }
    for tracker in trackers.values_mut() {
        tracker.exchanges.sort_by_key(|exchange| exchange.at);
        tracker.ends.make_contiguous().sort_by_key(|(at, _)| *at);
    }
    trackers.retain(|_, tracker| !tracker.exchanges.is_empty());
    trackers
}

pub(crate) fn exchanges(talk: HadoopConversation, number: usize) -> Vec<Exchange> {
    let mut open = HashMap::new();
    let mut all = vec![];
    for part in talk.parts {
        match part.said {
            HadoopSaid::Call(call) if part.from == Side::Client => {
                open.insert(call.id, (part.at, call, part.raw));
            }
            HadoopSaid::Reply(answer) => {
                let Some((at, call, raw)) = open.remove(&answer.id) else { continue };
                let answer_raw = part.raw;
                all.push(Exchange { at, talk: number, call, raw, answer, answer_raw });
            }
            _ => {}
        }
    }
    all
}

/// The tracker that sent a heartbeat, and the attempts whose end it reported.
fn reported(
    call: Call,
    label: impl Fn(u16) -> Option<(String, String)>,
) -> (String, Vec<TaskStatus>) {
    if call.method != "heartbeat" {
        return Default::default();
    }
    let status: TaskTrackerStatus = Parameters::new(call.parameters).take().unwrap();
    let port = status.name.rsplit(':').next().and_then(|port| port.parse().ok());
    let name = port.and_then(label).map(|(name, _)| name).unwrap_or_default();
    (name, status.tasks.into_iter().filter(is_last_report).collect())
}

/// The tasks that were launched in a recorded job, in order.
pub(super) fn launches(job: &str) -> Vec<Task> {
    let mut exchanges: Vec<Exchange> =
        recorded(job).into_values().flat_map(|tracker| tracker.exchanges).collect();
    exchanges.sort_by_key(|exchange| exchange.at);
    let mut tasks = vec![];
    for exchange in exchanges.iter().filter(|exchange| exchange.call.method == "submitActions") {
        let actions = Parameters::new(exchange.call.parameters.clone()).take();
        let actions: Vec<TaskTrackerAction> = actions.unwrap();
        tasks.extend(actions.into_iter().filter_map(|action| match action.action {
            Action::Launch(task) => Some(*task),
            _ => None,
        }));
    }
    tasks
}

/// The last reports of the attempts of a recorded job.
pub(super) fn recorded_ends(job: &str) -> Vec<TaskStatus> {
    let ends = recorded(job).into_values().flat_map(|tracker| tracker.ends);
    ends.map(|(_, end)| end).collect()
}

/// A connection whose bytes are those of the test.
pub(crate) struct Talk {
    stream: TcpStream,
    inbox: Vec<u8>,
}

impl Talk {
    pub(crate) async fn open(address: &str, header: &ConnectionHeader) -> Talk {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let header = to_bytes(header, MAX_BYTES).unwrap();
        stream.write_all(&[&MAGIC[..], &length(&header), &header].concat()).await.unwrap();
        Talk { stream, inbox: vec![] }
    }

    /// The bytes of the answer to a call.
    pub(crate) async fn exchange(&mut self, call: &[u8]) -> Vec<u8> {
        self.stream.write_all(call).await.unwrap();
        loop {
            let mut reader = Reader::partial(&self.inbox, MAX_BYTES);
            if Reply::decode(&mut reader).is_ok() {
                let rest = self.inbox.split_off(reader.position());
                return std::mem::replace(&mut self.inbox, rest);
            }
            let read = self.stream.read_buf(&mut self.inbox).await.unwrap();
            assert_ne!(read, 0, "the connection ended");
        }
    }
}

fn length(bytes: &[u8]) -> [u8; 4] {
    i32::try_from(bytes.len()).unwrap().to_be_bytes()
}

/// The job trackers of a recorded job and the files of its jobs.
struct Peers {
    sessions: HashMap<String, JobTracker>,
    jobs: HashMap<JobId, Job>,
    /// The session of each job: that of its remote job tracker, if it has one.
    session_of: HashMap<JobId, String>,
}

impl Peers {
    /// The job tracker of a session.
    fn job_tracker(&mut self, session: &str) -> &JobTracker {
        self.sessions.entry(session.to_owned()).or_insert_with(|| JobTracker::start(session))
    }

    /// The job tracker of a job that was launched.
    fn of(&self, job: &JobId) -> &JobTracker {
        &self.sessions[&self.session_of[job]]
    }

    /// The job of a task, with its files.
    fn job(&mut self, root: &Path, id: &JobId) -> &Job {
        self.jobs.entry(id.clone()).or_insert_with(|| {
            let directory = root.join("jobs").join(id.to_string());
            let mut job = Job::new(&id.tracker, &directory, test_task()).unwrap();
            job.id = id.clone();
            let job = job.with("test.steps", "rest");
            job.write().unwrap();
            job
        })
    }

    /// Waits until an end has been reported as it was recorded.
    async fn told(&self, end: &TaskStatus) {
        let job_tracker = self.of(end.attempt.job());
        let fits = |ours: &TaskStatus| is_last_report(ours) && ours.state == end.state;
        let ours = job_tracker.report(&format!("end {}", end.state), &end.attempt, fits).await;
        let said = |status: &TaskStatus| {
            // The original takes back the progress of ended attempts, sooner or later.
            let succeeded = status.state == TaskState::Succeeded;
            let progress = succeeded.then(|| status.progress.to_bits());
            (progress, status.phase, status.slots, status.counters.clone())
        };
        assert_eq!(said(&ours), said(end), "{}", end.attempt);
    }

    /// The call with replacements for values that must differ.
    fn adapted(&mut self, root: &Path, call: &Call) -> Call {
        let actions = Parameters::new(call.parameters.clone()).take();
        let mut actions: Vec<TaskTrackerAction> = actions.unwrap();
        for action in &mut actions {
            let session = action.session.as_mut().expect("recorded actions have a session");
            let handle = session.handle.clone().expect("and that a handle");
            session.trackers = self.job_tracker(&handle).session().trackers.clone();
            if let Action::Launch(task) = &mut action.action {
                self.session_of.insert(task.attempt.job().clone(), handle);
                let job = self.job(root, task.attempt.job());
                task.job_file = format!("file:{}", job.path().display());
            }
        }
        Call { parameters: vec![actions.into_object()], ..call.clone() }
    }
}

pub(crate) fn read(answer: &[u8]) -> Reply {
    Reply::decode(&mut Reader::new(answer)).unwrap()
}

/// A call with its length.
pub(crate) fn framed(call: &Call) -> Vec<u8> {
    let bytes = to_bytes(call, MAX_BYTES).unwrap();
    [&length(&bytes)[..], &bytes].concat()
}

/// The name of a run in notes.
fn run(task: &Task) -> String {
    format!("{}{}", task.attempt, if task.task_cleanup { ".cleanup" } else { "" })
}

/// Plays the calls to one recorded tracker. Returns how often each method was answered as recorded.
async fn play(mut tracker: Recorded, compared: &mut BTreeMap<String, usize>) {
    let world = TestNode::new().await;
    let root = world.root.path();
    let actions = world.manager.actions().await;
    let mut peers =
        Peers { sessions: HashMap::new(), jobs: HashMap::new(), session_of: HashMap::new() };
    let mut talks: HashMap<usize, Talk> = HashMap::new();
    // The run whose process each connection belongs to.
    let mut runs: HashMap<usize, (TaskAttemptId, String)> = HashMap::new();
    let tasks = tracker.exchanges.iter().filter(|exchange| exchange.call.method == "getTask");
    for exchange in tasks {
        let Outcome::Value(value) = exchange.answer.outcome.clone() else { continue };
        if let Some(task) = JvmTask::from_object(value).unwrap().task {
            runs.insert(exchange.talk, (task.attempt.clone(), run(&task)));
        }
    }
    for exchange in tracker.exchanges {
        // Reports that were sent before are not sent again when a job is over.
        while tracker.ends.front().is_some_and(|(at, _)| *at < exchange.at) {
            let Some((_, end)) = tracker.ends.pop_front() else { break };
            peers.told(&end).await;
            *compared.entry("ends".to_owned()).or_default() += 1;
        }
        let (header, to_umbilical) = &tracker.talks[exchange.talk];
        let method = exchange.call.method.clone();
        let (mut call, mut expected) = (exchange.raw, exchange.answer_raw);
        let mut address = actions.clone();
        if *to_umbilical {
            let Some((attempt, name)) = runs.get(&exchange.talk) else { continue };
            let job = peers.job(root, attempt.job()).clone();
            address = note_of(&job, name, "umbilical").await;
            if method == "getTask" {
                let mut context: JvmContext =
                    Parameters::new(exchange.call.parameters.clone()).take().unwrap();
                context.jvm.number = note_of(&job, name, "jvm").await.parse().unwrap();
                let parameters = vec![context.into_object()];
                call = framed(&Call { parameters, ..exchange.call });
                let Outcome::Value(value) = exchange.answer.outcome else { continue };
                let mut answer = JvmTask::from_object(value).unwrap();
                let task = answer.task.as_mut().expect("only those with a task are played");
                task.job_file = note_of(&job, name, "job file").await;
                let outcome = Outcome::Value(answer.into_object());
                expected = to_bytes(&Reply { id: exchange.answer.id, outcome }, MAX_BYTES).unwrap();
            }
        } else if method == "submitActions" {
            call = framed(&peers.adapted(root, &exchange.call));
        } else if method == "startCoronaJobTracker" {
            // This node offers no slots for job trackers.
            continue;
        }
        let talk = match talks.entry(exchange.talk) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(entry) => entry.insert(Talk::open(&address, header).await),
        };
        let answer =
            tokio::time::timeout(compat_tests::task_tracker::PATIENCE, talk.exchange(&call));
        let answer = answer.await.unwrap_or_else(|_| panic!("no answer to {method}"));
        let at = exchange.at;
        assert_eq!(read(&answer), read(&expected), "{method} at {at:?}");
        assert_eq!(answer, expected, "{method} at {at:?}");
        *compared.entry(method.clone()).or_default() += 1;
        if method == "done" {
            let (attempt, name) = &runs[&exchange.talk];
            peers.job(root, attempt.job()).notes().let_go(name).unwrap();
        }
    }
    while let Some((_, end)) = tracker.ends.pop_front() {
        peers.told(&end).await;
        *compared.entry("ends".to_owned()).or_default() += 1;
    }
    for id in peers.jobs.keys() {
        let job_tracker = peers.of(id);
        job_tracker.use_tracker(&actions).await;
        job_tracker.kill_job(id).await;
    }
    world.home.nothing_left().await;
}

/// Plays all trackers of a recorded job.
fn replay(job: &str, expected: &[(&str, usize)]) {
    block_on(async {
        let mut compared = BTreeMap::new();
        for (_, tracker) in recorded(job) {
            play(tracker, &mut compared).await;
        }
        let compared: Vec<(&str, usize)> =
            compared.iter().map(|(method, times)| (method.as_str(), *times)).collect();
        assert_eq!(compared, expected, "{job}");
    });
}

#[test]
fn a_job_with_its_tracker_in_the_client_is_answered_as_recorded() {
    replay(
        "inproc-sleep",
        &[
            ("done", 6),
            ("ends", 5),
            ("getProtocolSignature", 8),
            ("getTask", 6),
            ("statusUpdate", 9),
            ("submitActions", 7),
        ],
    );
}

#[test]
fn a_job_with_a_remote_tracker_is_answered_as_recorded() {
    replay(
        "remote-sleep",
        &[
            ("done", 6),
            ("ends", 5),
            ("getProtocolSignature", 9),
            ("getTask", 6),
            ("ping", 1),
            ("statusUpdate", 10),
            ("submitActions", 7),
        ],
    );
}

#[test]
fn a_word_count_is_answered_as_recorded() {
    replay(
        "wc-remote",
        &[
            ("canCommit", 2),
            ("commitPending", 1),
            ("done", 6),
            ("ends", 5),
            ("getProtocolSignature", 9),
            ("getTask", 6),
            ("ping", 1),
            ("statusUpdate", 10),
            ("submitActions", 9),
        ],
    );
}

#[test]
fn a_job_that_loses_a_node_is_answered_as_recorded() {
    replay(
        "nodedeath",
        &[
            ("done", 7),
            ("ends", 6),
            ("getProtocolSignature", 11),
            ("getTask", 9),
            ("ping", 12),
            ("statusUpdate", 41),
            ("submitActions", 9),
        ],
    );
}

#[test]
fn preempted_jobs_are_answered_as_recorded() {
    replay(
        "preempt",
        &[
            ("done", 20),
            ("ends", 22),
            ("getProtocolSignature", 27),
            ("getTask", 23),
            ("ping", 33),
            ("statusUpdate", 149),
            ("submitActions", 30),
        ],
    );
}
