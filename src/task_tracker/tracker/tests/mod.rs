//! A tracker with a real job tracker's server on one side and real processes on the other. A real
//! client makes the umbilical calls of each process.

mod faults;
mod handed;
mod life;
mod reports;
mod reuse;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;
use crate::attempt::tests::kind;
use crate::child::{Native, test_logs};
use crate::deletion::Deletion;
use crate::job_files::{JobFiles, LocalFiles};
use crate::layout;
use crate::local_dirs::tests::settings;
use corona_config::Source;
use corona_hadoop::protocols::corona_task_tracker::CoronaTaskTrackerClient;
use corona_hadoop::protocols::inter_corona_job_tracker::{self, InterCoronaJobTracker};
use corona_hadoop::protocols::inter_tracker::{self, InterTracker};
use corona_hadoop::protocols::task_umbilical::TaskUmbilicalClient;
use corona_hadoop::rpc::{Caller, ClientOptions, Fault, Limits, Server, Services, User};
use corona_hadoop::writables::{
    Action, HeartbeatResponse, InetAddress, JobTrackerState, JvmContext, JvmId, SessionInfo,
    SessionTrackers, StateUpdate, Task, TaskCompletionEvent, TaskState, TaskStatus,
    TaskTrackerStatus,
};
use corona_net::testing::{nobody, some, soon, until};
use corona_net::{ListenOn, Reserved, listen};
use corona_process::procfs;

/// A server that runs until this is dropped.
struct Running {
    address: InetAddress,
    port: Reserved,
    stop: channel::Sender<bool>,
    server: JoinHandle<()>,
}

impl Running {
    fn start(services: Services) -> Running {
        Running::on(nobody(), services)
    }

    fn on(port: Reserved, services: Services) -> Running {
        let listener = listen(ListenOn::Address(port.address())).unwrap();
        let (stop, stopped) = channel::channel(false);
        let server = tokio::spawn(Server::new(listener, services, Limits::default()).run(stopped));
        Running { address: local(port.address().port()), port, stop, server }
    }

    /// It has no listener any more, and no other test gets its port as long as the result is held.
    async fn stop(self) -> Reserved {
        self.stop.send_replace(true);
        soon(self.server).await.unwrap();
        self.port
    }
}

fn local(port: u16) -> InetAddress {
    InetAddress { host: "127.0.0.1".to_owned(), port }
}

fn options() -> ClientOptions {
    ClientOptions::new(User { name: "alice".to_owned(), groups: vec!["users".to_owned()] })
}

/// A job tracker, and the parent of a job, that record their calls.
#[derive(Default)]
struct Peer {
    heartbeats: Mutex<Vec<(TaskTrackerStatus, bool, i16)>>,
    errors: Mutex<Vec<String>>,
    /// Whether it says that jobs have ended, if it is asked.
    is_over: AtomicBool,
    /// How often it was asked.
    questions: AtomicI32,
    /// How many heartbeats to refuse.
    refuse: AtomicI32,
    /// Which job tracker is the new one.
    new_address: Mutex<Option<InetAddress>>,
    asked_for: Mutex<Vec<InetAddress>>,
}

impl Peer {
    fn serve(self: &Arc<Peer>) -> Running {
        let services = Services::new()
            .offer(inter_tracker::Served::new(self.clone()))
            .offer(inter_corona_job_tracker::Served::new(self.clone()));
        Running::start(services)
    }

    /// The reports on an attempt, in order.
    fn said(&self, id: &TaskAttemptId) -> Vec<TaskStatus> {
        let heartbeats = self.heartbeats.lock().unwrap();
        let all = heartbeats.iter().flat_map(|(status, ..)| status.tasks.clone());
        all.filter(|status| status.attempt == *id).collect()
    }

    /// Waits until an attempt is reported in a state, and gives that report.
    async fn told(&self, id: &TaskAttemptId, state: TaskState) -> TaskStatus {
        let what = format!("{id} {state}");
        some(&what, || self.said(id).into_iter().find(|status| status.state == state)).await
    }

    fn count(&self) -> usize {
        self.heartbeats.lock().unwrap().len()
    }
}

impl InterTracker for Peer {
    async fn heartbeat(
        &self,
        _caller: &Caller,
        status: TaskTrackerStatus,
        restarted: bool,
        initial_contact: bool,
        _accept_new_tasks: bool,
        response_id: i16,
    ) -> Result<HeartbeatResponse, Fault> {
        assert!(initial_contact);
        if self.refuse.load(std::sync::atomic::Ordering::SeqCst) > 0 {
            self.refuse.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            return Err(Fault::io("not now"));
        }
        self.heartbeats.lock().unwrap().push((status, restarted, response_id));
        let response_id = response_id.wrapping_add(1);
        Ok(HeartbeatResponse { response_id, interval_ms: 5, ..Default::default() })
    }

    async fn get_build_version(&self, _caller: &Caller) -> Result<String, Fault> {
        Ok("0.20 from r1 by me on a day".to_owned())
    }

    async fn get_task_completion_events(
        &self,
        _caller: &Caller,
        job: JobId,
        from: i32,
        max: i32,
    ) -> Result<Vec<TaskCompletionEvent>, Fault> {
        assert_eq!((from, max), (0, 0));
        self.questions.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        match self.is_over.load(std::sync::atomic::Ordering::SeqCst) {
            true => Err(Fault::io(format!("the job {job} {}", inter_tracker::JOB_IS_OVER))),
            false => Ok(vec![]),
        }
    }

    async fn get_system_dir(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        Ok(None)
    }

    async fn get_filesystem_name(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        Ok(None)
    }

    async fn report_task_tracker_error(
        &self,
        _caller: &Caller,
        tracker: Option<String>,
        _error_class: Option<String>,
        message: Option<String>,
    ) -> Result<(), Fault> {
        let error = format!("{}: {}", tracker.unwrap(), message.unwrap());
        self.errors.lock().unwrap().push(error);
        Ok(())
    }
}

impl InterCoronaJobTracker for Peer {
    async fn report_remote_corona_job_tracker(
        &self,
        _caller: &Caller,
        _attempt: String,
        _host: String,
        _port: i32,
        _session: String,
    ) -> Result<(), Fault> {
        Ok(())
    }

    async fn get_new_job_tracker_address(
        &self,
        _caller: &Caller,
        failed: InetAddress,
    ) -> Result<Option<InetAddress>, Fault> {
        self.asked_for.lock().unwrap().push(failed);
        Ok(self.new_address.lock().unwrap().clone())
    }

    async fn push_corona_job_tracker_state_update(
        &self,
        _caller: &Caller,
        _attempt: TaskAttemptId,
        _updates: Vec<StateUpdate>,
    ) -> Result<(), Fault> {
        Ok(())
    }

    async fn get_corona_job_tracker_state(
        &self,
        _caller: &Caller,
        _attempt: TaskAttemptId,
    ) -> Result<JobTrackerState, Fault> {
        Err(Fault::io("no state"))
    }

    async fn get_and_set_committing(
        &self,
        _caller: &Caller,
        _attempt: TaskAttemptId,
        to_commit: Vec<TaskAttemptId>,
    ) -> Result<Vec<Option<TaskAttemptId>>, Fault> {
        Ok(to_commit.into_iter().map(Some).collect())
    }
}

/// A process that reports its id, and ends with the given status.
const PROGRAM: &str = "echo \"$CORONA_JVM_NUMBER $$\" > told.new; mv told.new told; \
    for _ in $(seq 6000); do [ -s leave ] && exit $(cat leave); sleep 0.01; done";

/// A tracker, its job tracker and its directories.
struct TestTracker {
    root: TempDir,
    tracker: Tracker,
    peer: Arc<Peer>,
    job_tracker: Running,
    actions: Running,
    umbilical: Running,
    session: SessionInfo,
}

impl TestTracker {
    async fn new() -> TestTracker {
        TestTracker::with(|_| {}).await
    }

    /// With other settings.
    async fn with(change: impl FnOnce(&mut Parts)) -> TestTracker {
        let root = tempfile::tempdir().unwrap();
        let umbilical = nobody();
        let mut parts = parts(root.path(), umbilical.address());
        change(&mut parts);
        let tracker = Tracker::start(parts);
        let actions = tracker.action_services(Arc::new(NoJobTrackers));
        let actions = Running::start(actions);
        let umbilical = Running::on(umbilical, tracker.umbilical_services());
        let peer = Arc::new(Peer::default());
        let job_tracker = peer.serve();
        let trackers =
            SessionTrackers { job_tracker: job_tracker.address.clone(), secondary: None };
        let session = SessionInfo { handle: Some("s1".to_owned()), trackers };
        TestTracker { root, tracker, peer, job_tracker, actions, umbilical, session }
    }

    /// A task whose job runs this script, with these properties besides.
    fn task(&self, name: &str, script: &str, properties: &[(&str, &str)]) -> Task {
        let program = self.root.path().join("program.sh");
        fs::write(&program, script).unwrap();
        let command = format!("bash {}", program.display());
        let own = [("corona.task.command", command.as_str())];
        let properties = own.iter().chain(properties).map(|(name, value)| {
            format!("<property><name>{name}</name><value>{value}</value></property>")
        });
        let xml = format!("<configuration>{}</configuration>", properties.collect::<String>());
        let job_file = self.root.path().join("job.xml");
        fs::write(&job_file, xml).unwrap();
        Task { job_file: format!("file:{}", job_file.display()), ..kind(name) }
    }

    /// Sends an action as a job tracker does.
    async fn act(&self, action: Action) {
        let mut client = CoronaTaskTrackerClient::new(self.actions.address.clone(), options());
        let action = TaskTrackerAction { session: Some(self.session.clone()), action };
        soon(client.submit_actions(Some(vec![action]))).await.unwrap();
    }

    async fn launch(&self, task: &Task) {
        self.act(Action::Launch(Box::new(task.clone()))).await;
    }

    /// Launches a task and waits for its process.
    async fn launched(&self, task: &Task) -> Child {
        self.launch(task).await;
        self.child(task).await
    }

    /// The process of a task that is being launched.
    async fn child(&self, task: &Task) -> Child {
        let id: AttemptId = task.attempt.to_string().parse().unwrap();
        let work = layout::attempt(&id, task.task_cleanup).join(layout::WORK);
        let told = self.local().join(&work).join("told");
        let told = some("the process", || fs::read_to_string(&told).ok()).await;
        let (number, pid) = told.trim().split_once(' ').unwrap();
        let attempt = task.attempt.clone();
        let is_map = attempt.task.is_map;
        let jvm = JvmId { number: number.parse().unwrap(), job: attempt.job().clone(), is_map };
        Child {
            umbilical: TaskUmbilicalClient::new(self.umbilical.address.clone(), options()),
            work: self.local().join(work),
            attempt,
            jvm,
            pid: pid.parse().unwrap(),
        }
    }

    fn local(&self) -> PathBuf {
        self.root.path().join("local")
    }

    /// Whether nothing is left of processes, jobs and attempts.
    fn is_empty(&self) -> bool {
        let entries = |path: &str| fs::read_dir(self.local().join(path)).map_or(0, Iterator::count);
        let snapshot = self.tracker.snapshot();
        entries("taskTracker/jobcache") == 0
            && entries(layout::PROCESSES) == 0
            && entries(layout::DISCARDED) == 0
            && snapshot.jobs.is_empty()
            && (snapshot.maps.used, snapshot.reduces.used) == (0, 0)
            && self.tracker.shared.lock().live.is_empty()
    }

    /// Ends the job, and waits until all its traces are removed.
    async fn end(&self, task: &Task) {
        self.act(Action::KillJob(task.attempt.job().clone())).await;
        until("nothing is left", || self.is_empty()).await;
    }

    fn state(&self, task: &Task) -> Option<TaskState> {
        let state = self.tracker.shared.lock();
        let mut runs = state.table.runs(task.attempt.job());
        runs.find(|(_, known)| known.task().attempt == task.attempt)
            .map(|(_, known)| known.status().state)
    }
}

fn localiser(dirs: &Arc<LocalDirs>, files: Arc<dyn JobFiles>) -> Localiser {
    let loaded = Source::default().load_task_tracker().unwrap();
    let deletion = Deletion::start(&dirs.settings().dirs).unwrap();
    Localiser::new(loaded.site, None, &loaded.settings.files, dirs.clone(), files, deletion)
}

fn parts(root: &Path, umbilical: SocketAddr) -> Parts {
    let loaded = Source::default().load_task_tracker().unwrap();
    let local = settings(&[&root.join("local")]);
    let dirs = Arc::new(LocalDirs::open(&local).unwrap());
    let files = &loaded.settings.files;
    let files = LocalFiles { timeout: files.timeout, max_bytes: files.max_bytes };
    let localiser = localiser(&dirs, Arc::new(files));
    let user = options().user;
    let mut settings = TrackerSettings::of(&loaded.settings, user);
    settings.sigkill_delay = Duration::from_secs(600);
    settings.late_done = Duration::ZERO;
    settings.reports.interval = Duration::from_millis(5);
    settings.reports.min_interval = Duration::from_millis(5);
    settings.reports.connect_pause = Duration::from_millis(5);
    Parts {
        identity: Identity {
            name: "tracker_here:localhost/127.0.0.1:1".to_owned(),
            host: "here".to_owned(),
            http_port: 50060,
        },
        slots: SlotCounts { maps: 2, reduces: 2 },
        install: Install {
            java: "java".into(),
            class_path: String::new(),
            library_path: String::new(),
            native: Native::default(),
        },
        outputs: Arc::new(MapOutputs::new(dirs.clone(), 1 << 20)),
        notes: ProcessNotes::in_local_dir(&local.dirs[0]).unwrap(),
        logs: test_logs(&root.join("logs")),
        fitness: Arc::new(Fitness::new(dirs.clone(), None)),
        dirs,
        localiser,
        umbilical,
        archives: None,
        cgroups: None,
        health: channel::channel(NodeHealth::default()).1,
        settings,
    }
}

/// The process of a task, and its side of the umbilical protocol.
struct Child {
    umbilical: TaskUmbilicalClient,
    work: PathBuf,
    attempt: TaskAttemptId,
    jvm: JvmId,
    pid: i32,
}

impl Child {
    /// Asks for its task: the task, or whether it is to end.
    async fn task(&mut self) -> Result<Task, bool> {
        let context = JvmContext { jvm: self.jvm.clone(), pid: self.pid.to_string() };
        let answer = soon(self.umbilical.get_task(context)).await.unwrap();
        answer.task.ok_or(answer.should_die)
    }

    async fn update(&mut self, change: impl FnOnce(&mut TaskStatus)) -> bool {
        let task = if self.attempt.task.is_map { "map" } else { "reduce" };
        let mut status = kind(task).status;
        status.attempt = self.attempt.clone();
        status.state = TaskState::Running;
        change(&mut status);
        match status.state {
            TaskState::CommitPending => {
                soon(self.umbilical.commit_pending(self.attempt.clone(), status)).await.unwrap();
                true
            }
            _ => soon(self.umbilical.status_update(self.attempt.clone(), status)).await.unwrap(),
        }
    }

    async fn done(&mut self) {
        soon(self.umbilical.done(self.attempt.clone())).await.unwrap();
    }

    /// Lets the process end.
    fn leave(&self, status: i32) {
        fs::write(self.work.join("leave"), status.to_string()).unwrap();
    }

    fn runs(&self) -> bool {
        procfs::Process::of(self.pid).is_some_and(|process| !process.is_zombie)
    }

    async fn gone(&self) {
        until("the process ends", || !self.runs()).await;
    }
}
