//! The built program as a task tracker, among a cluster manager, job trackers and tasks of tests.

mod complete;
mod ends;
mod faults;
mod java;
mod jobs;
mod managers;
mod native;
mod readers;
pub(super) mod recorded;
mod restarts;
mod runs;

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use compat_tests::task_tracker::cluster_manager::ClusterManager;
use compat_tests::task_tracker::job::Job;
use compat_tests::task_tracker::job_tracker::JobTracker;
use compat_tests::task_tracker::node::{Home, Node};
use compat_tests::task_tracker::steps::TaskRole;
use compat_tests::task_tracker::until;
use corona::hadoop::writables::{TaskAttemptId, TaskState};

/// The program that tasks of tests run.
fn test_task() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_test-task"))
}

/// Runs a test whose servers keep running while it waits.
pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let result = runtime.block_on(test);
    runtime.shutdown_background();
    result
}

/// A task tracker in a directory of its own, and all that it talks to.
struct TestNode {
    node: Node,
    home: Home,
    manager: ClusterManager,
    sessions: AtomicUsize,
    root: tempfile::TempDir,
}

impl TestNode {
    async fn new() -> TestNode {
        TestNode::with(&[]).await
    }

    /// A task tracker with these settings.
    async fn with(settings: &[(&str, &str)]) -> TestNode {
        let root = tempfile::tempdir().expect("a directory for a test");
        let manager = ClusterManager::start();
        let home = Home::new(root.path(), manager.address(), manager.proxy());
        let home = settings.iter().fold(home, |home, (key, value)| home.with(key, value));
        TestNode::at(root, manager, home).await
    }

    /// A task tracker whose local directories are disks of so many bytes; `None` where nothing can be
    /// mounted.
    async fn on_small_disks(bytes: u64) -> Option<TestNode> {
        let root = tempfile::tempdir().expect("a directory for a test");
        let manager = ClusterManager::start();
        let home = Home::new(root.path(), manager.address(), manager.proxy());
        Some(TestNode::at(root, manager, home.on_small_disks(bytes)?).await)
    }

    async fn at(root: tempfile::TempDir, manager: ClusterManager, home: Home) -> TestNode {
        let node = home.start().await;
        TestNode { node, home, manager, sessions: AtomicUsize::new(0), root }
    }

    /// The job tracker of a new session, which knows the task tracker, and a job of it.
    async fn session(&self) -> (JobTracker, Job) {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        let session = format!("202611220000.{number}");
        let job_tracker = JobTracker::start(&session);
        job_tracker.use_tracker(&self.manager.actions().await).await;
        let directory = self.root.path().join("jobs").join(&session);
        let job = Job::new(&session, &directory, test_task()).expect("a directory for a job");
        (job_tracker, job)
    }

    /// A new session with a job whose maps take these steps, and its first map, which has come to
    /// the step at which it waits.
    async fn waiting_map(&self, steps: &str) -> (JobTracker, Job, TaskAttemptId) {
        let (job_tracker, job) = self.session().await;
        let job = job.steps(TaskRole::Map, steps);
        job.write().expect("a file for a job");
        let map = job.map(0);
        job_tracker.launch([job.task(&map)]).await;
        note(&job, &map, "waits").await;
        (job_tracker, job, map)
    }

    /// Ends the only job, and waits until all its traces are removed.
    async fn end_last_job(&self, job_tracker: &JobTracker, job: &Job) {
        job_tracker.kill_job(&job.id).await;
        self.home.nothing_left().await;
    }

    /// A job of one map goes well.
    async fn still_works(&self) {
        let (job_tracker, job) = self.session().await;
        job.write().expect("a file for a job");
        run_map(&job_tracker, &job, 0).await;
        self.end_last_job(&job_tracker, &job).await;
    }

    /// Restarts the task tracker, after the old one has ended.
    async fn start_again(&mut self) {
        self.manager.state().heartbeats.clear();
        self.node = self.home.start().await;
    }

    /// Where the task tracker serves map outputs, as reported to a job tracker.
    async fn http(&self, job_tracker: &JobTracker) -> SocketAddr {
        let port = until("a heartbeat", || {
            job_tracker.state().heartbeats.first().map(|(status, ..)| status.http_port)
        });
        ([127, 0, 0, 1], u16::try_from(port.await).expect("a port")).into()
    }
}

/// Runs a map, which succeeds.
async fn run_map(job_tracker: &JobTracker, job: &Job, number: i32) -> TaskAttemptId {
    let map = job.map(number);
    job_tracker.launch([job.task(&map)]).await;
    let report = job_tracker.ended(&map, 1).await;
    assert_eq!(report.state, TaskState::Succeeded, "{report:?}");
    map
}

/// The value of the first note of a task on something, once it is there.
async fn note(job: &Job, attempt: &TaskAttemptId, what: &str) -> String {
    note_of(job, &attempt.to_string(), what).await
}

async fn note_of(job: &Job, name: &str, what: &str) -> String {
    let look = || job.notes().of(name, what).into_iter().next();
    until(&format!("a note of {name} on {what:?}"), look).await
}

/// The process of a task, once it has started.
async fn process(job: &Job, attempt: &TaskAttemptId) -> i32 {
    let name = attempt.to_string();
    let look = || {
        let all = job.notes().all().into_iter();
        all.filter(|note| note.attempt == name && note.what == "started")
            .map(|note| note.pid)
            .next()
    };
    let pid = until(&format!("the process of {name}"), look).await;
    i32::try_from(pid).expect("a process id")
}

/// The processes of a task that forks: its own, the one beside it in its group, and the one that has
/// left the group.
async fn family(job: &Job, attempt: &TaskAttemptId) -> [i32; 3] {
    let number = async |what| note(job, attempt, what).await.parse().expect("a process id");
    [process(job, attempt).await, number("near").await, number("away").await]
}
