//! Whole jobs through a job tracker service: emulated task trackers over Hadoop RPC, and emulated
//! clients that submit and follow jobs. The tasks do nothing for a given time.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corona_access::Gate;
use corona_hadoop::io::Writer;
use corona_hadoop::io::formats::Writable;
use corona_hadoop::protocols::corona_task_tracker::{CoronaTaskTracker, Served};
use corona_hadoop::protocols::inter_corona_job_tracker::InterCoronaJobTrackerClient;
use corona_hadoop::protocols::inter_tracker::InterTrackerClient;
use corona_hadoop::protocols::job_submission::JobSubmissionClient;
use corona_hadoop::rpc::{CallError, Caller, ClientOptions, Fault, Limits, Server, Services, User};
use corona_hadoop::writables::{
    Action, InetAddress, JobId, NodeHealth, RawSplit, ResourceStatus, SessionInfo, SessionTrackers,
    SplitFile, Task, TaskAttemptId, TaskState, TaskStatus, TaskTrackerAction, TaskTrackerStatus,
};
use corona_net::{ListenOn, listen};
use corona_wire::calls::{ClusterManager, ClusterManagerCall as Call};
use corona_wire::client::{Client, ClientOptions as ManagerOptions};
use corona_wire::generated::{ClusterNodeInfo, ResourceType};
use serde::Serialize;
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::cluster::{host, node_info};
use super::job_trackers::{JobTrackers, JobTrackersPlan};
use super::machine::{ProcessUse, allow_connections};

/// Time between the heartbeats of a node to the cluster manager.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// The pause before the parent of a job is asked again for its job tracker.
const ASK_PAUSE: Duration = Duration::from_millis(300);
/// Reports in one call at most.
const BATCH: usize = 512;
/// Bytes of a split file at most.
const MAX_SPLITS: usize = 1 << 30;
/// The states of a job on the wire.
const RUNNING: i32 = 1;
const SUCCEEDED: i32 = 2;
const PREP: i32 = 4;

/// What a run does.
#[derive(Clone, Debug, Serialize)]
pub struct JobsPlan {
    /// The cluster manager's Thrift service.
    pub manager: SocketAddr,
    /// The job tracker's Hadoop RPC.
    pub job_tracker: SocketAddr,
    /// Emulated task trackers.
    pub nodes: u32,
    /// CPUs of each, for which the cluster manager's configuration says the slots.
    pub cpus: i16,
    /// Jobs, all submitted at once.
    pub jobs: u32,
    /// Maps of each job.
    pub maps: u32,
    /// Reduces of each job, which end when the maps have.
    pub reduces: u32,
    /// How long each task takes.
    pub task: Duration,
    /// For the whole run.
    pub patience: Duration,
    /// The process of the job tracker, to report its memory.
    pub process_id: Option<u32>,
    /// How nodes start job trackers of jobs; none: the service runs the jobs itself.
    pub job_trackers: Option<JobTrackersPlan>,
    /// Percent of the nodes that are lost when half of all maps have succeeded.
    pub lose_nodes: u32,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct JobsReport {
    /// What was done.
    pub plan: JobsPlan,
    /// Attempts of maps and reduces that were launched.
    pub launches: u64,
    /// From the first to the last of them.
    pub launch_seconds: f64,
    /// Jobs that succeeded.
    pub succeeded: usize,
    /// Milliseconds from the submission to the end that the client sees, sorted.
    pub submit_to_end_ms: Vec<f64>,
    /// Milliseconds that the tasks themselves take: set-up, maps, reduces and clean-up, one after the other.
    pub own_ms: f64,
    /// Microseconds from before the last report of a job's work to its clean-up's launch, sorted.
    pub report_to_action_us: Vec<f64>,
    /// The job tracker before the first job.
    pub idle: Option<ProcessUse>,
    /// The job tracker at the end.
    pub process: Option<ProcessUse>,
    /// The largest job tracker on a node at the end of its job.
    pub remote: Option<ProcessUse>,
    /// Launches of maps that had succeeded.
    pub repeated: u64,
    /// Milliseconds from the loss of a job tracker to the first launch by the next one, sorted.
    pub fail_over_ms: Vec<f64>,
    /// Nodes that were lost.
    pub lost_nodes: u32,
    /// What was wrong.
    pub errors: Vec<String>,
}

impl JobsReport {
    /// Launches in a second.
    pub fn launches_per_second(&self) -> f64 {
        self.launches as f64 / self.launch_seconds.max(1e-9)
    }
}

/// The middle of sorted numbers; 0 if there are none.
pub fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Why a run cannot be made.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct JobsError(String);

/// What all parts of a run share.
struct RunContext {
    plan: JobsPlan,
    user: User,
    book: Mutex<Book>,
    job_trackers: JobTrackers,
    /// Becomes true when some nodes are lost: those with the first numbers.
    nodes_lost: watch::Sender<bool>,
}

#[derive(Default)]
struct Book {
    launches: u64,
    first: Option<Instant>,
    last: Option<Instant>,
    jobs: HashMap<JobId, JobBook>,
    report_to_action: Vec<Duration>,
    fail_overs: Vec<Duration>,
    remote: Option<ProcessUse>,
    repeated: u64,
    /// Of all jobs.
    maps_done: u64,
    errors: Vec<String>,
}

struct JobBook {
    /// The maps, then the reduces, that have succeeded as their job tracker knows.
    done: Vec<bool>,
    /// Those whose success is about to be reported or was, and how many are not among them.
    sent: Vec<bool>,
    to_send: u32,
    maps_left: u32,
    last_report: Option<Instant>,
    maps_done: watch::Sender<bool>,
    /// The job tracker that was killed, and when, until another one launches something.
    killed: Option<(InetAddress, Instant)>,
    was_killed: bool,
    /// The job tracker that has launched something last.
    at: Option<InetAddress>,
}

/// A report that waits, and the job trackers of its job.
struct Waiting {
    status: TaskStatus,
    trackers: SessionTrackers,
}

/// Makes a run.
///
/// # Errors
/// It cannot begin. What goes wrong later is in the report.
pub async fn run_jobs(plan: JobsPlan) -> Result<JobsReport, JobsError> {
    let connections = plan.nodes as usize * 3 + plan.jobs as usize;
    allow_connections(connections).map_err(|most| {
        JobsError(format!("this process may have {most} connections at most; see ulimit -n"))
    })?;
    let user = User { name: "load".to_owned(), groups: vec!["load".to_owned()] };
    let shared = Arc::new(RunContext {
        plan,
        user,
        book: Mutex::default(),
        job_trackers: JobTrackers::default(),
        nodes_lost: watch::Sender::new(false),
    });
    let (stop, stopped) = watch::channel(false);
    let mut nodes = Vec::new();
    for number in 0..shared.plan.nodes {
        nodes.push(start_node(&shared, number, &stopped)?);
    }
    let mut manager = join(&shared.plan, &nodes).await?;
    let heartbeats = tokio::spawn({
        let shared = shared.clone();
        async move {
            loop {
                sleep(HEARTBEAT).await;
                for node in &nodes[shared.lost_nodes()..] {
                    let call = Call::NodeHeartbeat { node: Some(node.clone()) };
                    if let Err(error) = manager.call(&call).await {
                        shared.wrong(format!("nodeHeartbeat: {error}"));
                        return;
                    }
                }
            }
        }
    });
    let used = || shared.plan.process_id.and_then(ProcessUse::of);
    let idle = used();
    let mut clients = JoinSet::new();
    for _ in 0..shared.plan.jobs {
        clients.spawn(run_job(shared.clone()));
    }
    let mut times = Vec::new();
    let all = async {
        while let Some(done) = clients.join_next().await {
            match done {
                Ok(Ok(time)) => times.push(time.as_secs_f64() * 1e3),
                Ok(Err(error)) => shared.wrong(error),
                Err(error) => shared.wrong(error.to_string()),
            }
        }
    };
    if timeout(shared.plan.patience, all).await.is_err() {
        shared.wrong("not all jobs ended in time".to_owned());
    }
    let process = used();
    heartbeats.abort();
    stop.send_replace(true);
    times.sort_by(f64::total_cmp);
    let stages = 2 + u32::from(shared.plan.maps > 0) + u32::from(shared.plan.reduces > 0);
    let mut book = shared.lock();
    let span = book.first.zip(book.last).map(|(first, last)| last.duration_since(first));
    let mut actions: Vec<f64> =
        book.report_to_action.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    actions.sort_by(f64::total_cmp);
    Ok(JobsReport {
        plan: shared.plan.clone(),
        launches: book.launches,
        launch_seconds: span.unwrap_or_default().as_secs_f64(),
        succeeded: times.len(),
        submit_to_end_ms: times,
        own_ms: (shared.plan.task * stages).as_secs_f64() * 1e3,
        report_to_action_us: actions,
        idle,
        process,
        remote: book.remote,
        repeated: book.repeated,
        fail_over_ms: {
            let mut spans: Vec<f64> =
                book.fail_overs.iter().map(|span| span.as_secs_f64() * 1e3).collect();
            spans.sort_by(f64::total_cmp);
            spans
        },
        lost_nodes: shared.lost_nodes() as u32,
        errors: std::mem::take(&mut book.errors),
    })
}

/// Has all nodes heard of.
async fn join(
    plan: &JobsPlan,
    nodes: &[ClusterNodeInfo],
) -> Result<Client<ClusterManager>, JobsError> {
    let failed = |error: String| JobsError(format!("a node cannot join {}: {error}", plan.manager));
    let options = ManagerOptions::default();
    let mut manager = Client::<ClusterManager>::connect(plan.manager, options)
        .await
        .map_err(|error| failed(error.to_string()))?;
    for node in nodes {
        let call = Call::NodeHeartbeat { node: Some(node.clone()) };
        manager.call(&call).await.map_err(|error| failed(error.to_string()))?;
    }
    Ok(manager)
}

/// Reports of a node that may wait for its connection; tasks wait with the rest.
const MAX_REPORTS: usize = 1_024;

/// Starts a task tracker; gives what it says in its heartbeats.
fn start_node(
    shared: &Arc<RunContext>,
    number: u32,
    stop: &watch::Receiver<bool>,
) -> Result<ClusterNodeInfo, JobsError> {
    let failed = |error| JobsError(format!("cannot listen: {error}"));
    let listener = listen(ListenOn::Address(([127, 0, 0, 1], 0).into())).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?.to_string();
    let host = host(number);
    let name = format!("tracker_jobs{number}:{address}");
    let (reports, waiting) = mpsc::channel(MAX_REPORTS);
    let node = Node { shared: shared.clone(), reports };
    let may_be_lost = number < shared.nodes_to_lose();
    let server = Server::new(
        listener,
        Services::new().offer(Served::new(Arc::new(node))),
        Limits::default(),
    )
    .with_gate(Gate::of_clients());
    let reporter = report(shared.clone(), name.clone(), host.clone(), waiting);
    if may_be_lost {
        tokio::spawn(until_lost(shared.nodes_lost.subscribe(), server.run(stop.clone())));
        tokio::spawn(until_lost(shared.nodes_lost.subscribe(), reporter));
    } else {
        tokio::spawn(server.run(stop.clone()));
        tokio::spawn(reporter);
    }
    let mut services = vec![ResourceType::MAP, ResourceType::REDUCE];
    // A job tracker on a node that is lost would be lost with it.
    if shared.plan.job_trackers.is_some() && !may_be_lost {
        services.push(ResourceType::JOBTRACKER);
    }
    let services = services.into_iter().map(|kind| (kind, address.clone()));
    Ok(node_info(name, host, shared.plan.cpus, services))
}

/// Does the work of a node until that is lost.
async fn until_lost(mut lost: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        // Its sender lives as long as the run.
        _ = lost.wait_for(|lost| *lost) => {}
        () = work => {}
    }
}

/// The side of a task tracker that takes orders.
#[derive(Clone)]
struct Node {
    shared: Arc<RunContext>,
    reports: mpsc::Sender<Waiting>,
}

impl CoronaTaskTracker for Node {
    async fn submit_actions(
        &self,
        _caller: &Caller,
        actions: Option<Vec<TaskTrackerAction>>,
    ) -> Result<(), Fault> {
        for TaskTrackerAction { session, action } in actions.into_iter().flatten() {
            let (Some(session), Action::Launch(task)) = (session, action) else { continue };
            self.shared.launched(&task, &session.trackers.job_tracker);
            tokio::spawn(self.clone().work(*task, session.trackers));
        }
        Ok(())
    }

    async fn start_corona_job_tracker(
        &self,
        _caller: &Caller,
        task: Task,
        session: SessionInfo,
    ) -> Result<(), Fault> {
        match &self.shared.plan.job_trackers {
            Some(plan) => self.shared.job_trackers.start(plan, &task, &session),
            None => Err(Fault::io("an emulated task tracker starts no job tracker")),
        }
    }
}

impl Node {
    async fn work(self, task: Task, trackers: SessionTrackers) {
        if is_work(&task) && !task.status.is_map() {
            self.shared.maps_done(task.attempt.job()).await;
        }
        let start = now_ms();
        if !self.shared.plan.task.is_zero() {
            sleep(self.shared.plan.task).await;
        }
        let mut status = task.status;
        status.state = TaskState::Succeeded;
        status.progress = 1.0;
        status.start_time_ms = start;
        status.finish_time_ms = now_ms();
        // The node ends with the run.
        let _ = self.reports.send(Waiting { status, trackers }).await;
    }
}

/// Sends the reports of a node, all that wait in one call.
async fn report(
    shared: Arc<RunContext>,
    name: String,
    host: String,
    mut waiting: mpsc::Receiver<Waiting>,
) {
    let mut client: Option<(InetAddress, InterTrackerClient)> = None;
    // The job trackers that took the place of others.
    let mut successors: HashMap<(String, u16), InetAddress> = HashMap::new();
    let mut batch = Vec::new();
    let mut response_id = -1;
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let Some(trackers) = batch.first().map(|waiting| waiting.trackers.clone()) else {
            continue;
        };
        let tasks: Vec<TaskStatus> = batch.drain(..).map(|waiting| waiting.status).collect();
        let begun = Instant::now();
        loop {
            let launched_by = trackers.job_tracker.clone();
            let mut to = launched_by.clone();
            while let Some(next) = successors.get(&(to.host.clone(), to.port)) {
                to = next.clone();
            }
            let status = TaskTrackerStatus {
                name: name.clone(),
                host: host.clone(),
                http_port: 50_060,
                failures: 0,
                max_maps: i32::from(shared.plan.cpus),
                max_reduces: i32::from(shared.plan.cpus),
                resources: ResourceStatus::default(),
                tasks: tasks.clone(),
                health: NodeHealth::default(),
            };
            if client.as_ref().is_none_or(|(known, _)| *known != to) {
                let options = shared.options();
                client = Some((to.clone(), InterTrackerClient::new(to.clone(), options)));
            }
            let Some((_, open)) = &mut client else { break };
            // The next one would take their attempts for those that it launches itself.
            let counts = to == launched_by;
            if counts {
                shared.reporting(&tasks);
            }
            match open.heartbeat(status, false, response_id == -1, true, response_id).await {
                Ok(response) => {
                    response_id = response.response_id;
                    if counts {
                        shared.reported(&tasks);
                    }
                    break;
                }
                Err(error) if shared.plan.job_trackers.is_none() => {
                    shared.wrong(format!("a report failed: {error}"));
                    break;
                }
                Err(error) => {
                    client = None;
                    response_id = -1;
                    match successor(&shared, &trackers, &to).await {
                        Some(next) => drop(successors.insert((to.host, to.port), next)),
                        // As a task tracker, ask again.
                        None if begun.elapsed() < shared.plan.patience => sleep(ASK_PAUSE).await,
                        None => {
                            shared.wrong(format!("a report failed: {error}"));
                            break;
                        }
                    }
                }
            }
        }
    }
}

/// The job tracker that took the place of one that failed, if there is one yet.
async fn successor(
    shared: &RunContext,
    trackers: &SessionTrackers,
    failed: &InetAddress,
) -> Option<InetAddress> {
    let parent = trackers.secondary.clone()?;
    let mut parent = InterCoronaJobTrackerClient::new(parent, shared.options());
    parent.get_new_job_tracker_address(failed.clone()).await.ok()?
}

/// Submits a job and follows it; gives the time from the submission to its end.
async fn run_job(shared: Arc<RunContext>) -> Result<Duration, String> {
    let plan = &shared.plan;
    let address =
        InetAddress { host: plan.job_tracker.ip().to_string(), port: plan.job_tracker.port() };
    let mut client = JobSubmissionClient::new(address, shared.options());
    let text = |error: CallError| error.to_string();
    let id = client.get_new_job_id().await.map_err(text)?.ok_or("no id of a job")?;
    let system = client.get_system_dir().await.map_err(text)?.unwrap_or_default();
    let directory = system.strip_prefix("file:").ok_or("corona.system.dir must be on file:")?;
    let directory = PathBuf::from(directory).join(id.to_string());
    write_files(plan, &directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let (maps, work) = (plan.maps, plan.maps + plan.reduces);
    let job = JobBook {
        done: vec![false; work as usize],
        sent: vec![false; work as usize],
        to_send: work,
        maps_left: maps,
        last_report: None,
        maps_done: watch::Sender::new(maps == 0),
        killed: None,
        was_killed: false,
        at: None,
    };
    shared.lock().jobs.insert(id.clone(), job);
    // Many clients must not be what is measured.
    let pause = Duration::from_millis(10 + u64::from(plan.jobs) / 5);
    let begin = Instant::now();
    client.submit_job(id.clone()).await.map_err(text)?;
    loop {
        let status = client.get_job_status(id.clone()).await.map_err(text)?;
        match status.map(|status| status.run_state) {
            Some(SUCCEEDED) => {
                let time = begin.elapsed();
                shared.ended(&id);
                return Ok(time);
            }
            Some(RUNNING | PREP) => sleep(pause).await,
            other => return Err(format!("{id} ended in the state {other:?}")),
        }
    }
}

fn write_files(plan: &JobsPlan, directory: &std::path::Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let split = |number: u32| RawSplit {
        class: "load.Split".to_owned(),
        length: 1,
        data: number.to_be_bytes().to_vec(),
        hosts: Vec::new(),
    };
    let splits = SplitFile { splits: (0..plan.maps).map(split).collect() };
    let mut writer = Writer::new(MAX_SPLITS);
    splits.encode(&mut writer);
    let bytes = writer.finish().map_err(|error| io::Error::other(error.to_string()))?;
    std::fs::write(directory.join("job.split"), bytes)?;
    let forced = plan.job_trackers.is_some();
    let properties = [
        ("mapred.coronajobtracker.forceremote", forced.to_string()),
        ("mapred.coronajobtracker.restart.count", u32::from(forced).to_string()),
        ("mapred.job.name", "load".to_owned()),
        ("user.name", "load".to_owned()),
        ("mapred.map.tasks", plan.maps.to_string()),
        ("mapred.reduce.tasks", plan.reduces.to_string()),
        ("mapred.map.tasks.speculative.execution", "false".to_owned()),
        ("mapred.reduce.tasks.speculative.execution", "false".to_owned()),
    ];
    let mut xml = String::from("<configuration>\n");
    for (name, value) in properties {
        xml += &format!("<property><name>{name}</name><value>{value}</value></property>\n");
    }
    std::fs::write(directory.join("job.xml"), xml + "</configuration>\n")
}

impl RunContext {
    fn options(&self) -> ClientOptions {
        ClientOptions {
            call_timeout: Some(self.plan.patience),
            ..ClientOptions::new(self.user.clone())
        }
    }

    /// Nodes that are lost in this run.
    fn nodes_to_lose(&self) -> u32 {
        let JobsPlan { nodes, lose_nodes, .. } = self.plan;
        (nodes * lose_nodes).div_ceil(100).min(nodes.saturating_sub(1))
    }

    /// Nodes that are lost already.
    fn lost_nodes(&self) -> usize {
        if *self.nodes_lost.borrow() { self.nodes_to_lose() as usize } else { 0 }
    }

    /// The job has succeeded.
    fn ended(&self, id: &JobId) {
        let used = self.job_trackers.used(id);
        let mut book = self.lock();
        let largest = [book.remote, used].into_iter().flatten();
        book.remote = largest.max_by_key(|used| used.resident_bytes);
    }

    /// Where a task of the work is in a job's list.
    fn place(&self, attempt: &TaskAttemptId, is_map: bool) -> Option<usize> {
        let (maps, reduces) = (self.plan.maps, self.plan.reduces);
        let number = u32::try_from(attempt.task.number).ok()?;
        match is_map {
            true => (number < maps).then_some(number as usize),
            false => (number < reduces).then_some((maps + number) as usize),
        }
    }

    fn launched(&self, task: &Task, by: &InetAddress) {
        let now = Instant::now();
        let mut book = self.lock();
        if is_work(task) {
            let is_map = task.status.is_map();
            let place = self.place(&task.attempt, is_map);
            if let Some(job) = book.jobs.get_mut(task.attempt.job()) {
                let is_repeated = is_map && place.is_some_and(|place| job.done[place]);
                if job.at.as_ref() != Some(by) {
                    job.at = Some(by.clone());
                }
                let lost = job.killed.take_if(|(killed, _)| killed != by);
                book.fail_overs.extend(lost.map(|(_, at)| now.duration_since(at)));
                book.repeated += u64::from(is_repeated);
            }
            book.launches += 1;
            book.first.get_or_insert(now);
            book.last = Some(now);
        } else if task.job_cleanup.is_some() {
            let reported = book.jobs.get(task.attempt.job()).and_then(|job| job.last_report);
            book.report_to_action.extend(reported.map(|reported| now.duration_since(reported)));
        }
    }

    /// These reports are about to be sent.
    fn reporting(&self, tasks: &[TaskStatus]) {
        let now = Instant::now();
        let mut book = self.lock();
        for status in tasks {
            let Some(place) = self.place(&status.attempt, status.is_map()) else { continue };
            let Some(job) = book.jobs.get_mut(status.attempt.job()) else { continue };
            if !std::mem::replace(&mut job.sent[place], true) {
                job.to_send = job.to_send.saturating_sub(1);
                job.last_report = (job.to_send == 0).then_some(now);
            }
        }
    }

    /// The job tracker that has launched these knows that they have succeeded.
    fn reported(&self, tasks: &[TaskStatus]) {
        let mut book = self.lock();
        for status in tasks {
            let Some(place) = self.place(&status.attempt, status.is_map()) else { continue };
            let Some(job) = book.jobs.get_mut(status.attempt.job()) else { continue };
            if std::mem::replace(&mut job.done[place], true) {
                continue;
            }
            if status.is_map() {
                job.maps_left = job.maps_left.saturating_sub(1);
                if job.maps_left == 0 {
                    job.maps_done.send_replace(true);
                }
                let is_half = job.maps_left <= self.plan.maps / 2;
                let loses = self.plan.job_trackers.as_ref().is_some_and(|plan| plan.lose_first);
                if is_half
                    && loses
                    && !job.was_killed
                    && self.job_trackers.kill(status.attempt.job())
                {
                    job.was_killed = true;
                    job.killed = job.at.clone().map(|at| (at, Instant::now()));
                }
                book.maps_done += 1;
            }
        }
        let maps = u64::from(self.plan.maps) * u64::from(self.plan.jobs);
        if book.maps_done * 2 >= maps && self.plan.lose_nodes > 0 {
            self.nodes_lost.send_if_modified(|lost| !std::mem::replace(lost, true));
        }
    }

    /// Waits until all maps of a job have succeeded.
    async fn maps_done(&self, job: &JobId) {
        let done = self.lock().jobs.get(job).map(|job| job.maps_done.subscribe());
        if let Some(mut done) = done {
            // The sender lives as long as the run.
            let _ = done.wait_for(|done| *done).await;
        }
    }

    fn wrong(&self, what: String) {
        const MOST: usize = 20;
        let mut book = self.lock();
        if book.errors.len() < MOST {
            book.errors.push(what);
        }
    }

    /// No panic happens while it is held.
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_work(task: &Task) -> bool {
    !task.job_setup && task.job_cleanup.is_none() && !task.task_cleanup
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
