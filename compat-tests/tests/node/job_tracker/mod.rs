//! The built program as a job tracker: with the built cluster manager and task tracker, and clients
//! that speak as the original's do.

mod jobs;
mod outages;
mod pages;
mod parent;
mod recorded;
mod recorded_jobs;
mod recorded_remote;
mod remote;
mod restarts;
mod waiting;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use compat_tests::daemons::{first_line, start_daemon, tell_end};
use compat_tests::serving::keep_address;
use compat_tests::task_tracker::job::Job;
use compat_tests::task_tracker::job_tracker::BUILD;
use compat_tests::task_tracker::node::{Home, Node, signal};
use compat_tests::task_tracker::{PATIENCE, until};
use compat_tests::{corona, corona_program, start_with};
use corona::conformance::launch::LaunchedManager;
use corona::hadoop::io::Writer;
use corona::hadoop::io::formats::Writable;
use corona::hadoop::protocols::job_submission::JobSubmissionClient;
use corona::hadoop::rpc::{ClientOptions, User};
use corona::hadoop::writables::{InetAddress, JobId, JobStatus, RawSplit, SplitFile};
use tempfile::TempDir;

/// The states of jobs on the wire.
const RUNNING: i32 = 1;
const SUCCEEDED: i32 = 2;
const KILLED: i32 = 5;

/// The program as a job tracker. It is ended, at once, when this is dropped.
struct JobTracker {
    child: Child,
    address: InetAddress,
    ready: String,
    log: PathBuf,
}

impl JobTracker {
    /// Starts it with its files below `root` and waits until it is ready.
    fn start(root: &Path, manager: &LaunchedManager, settings: &[(&str, &str)]) -> JobTracker {
        JobTracker::limited(root, manager, settings, None)
    }

    /// The same with at most so many open files.
    fn limited(
        root: &Path,
        manager: &LaunchedManager,
        settings: &[(&str, &str)],
        files: Option<u32>,
    ) -> JobTracker {
        let mut command = match files {
            None => Command::new(corona_program()),
            Some(files) => {
                let mut shell = Command::new("sh");
                let script = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
                shell.args(["-c", &script]).arg(corona_program());
                shell
            }
        };
        command.arg("job-tracker").current_dir(root);
        let own = [
            ("cm.server.address", manager.thrift().to_string()),
            ("cm.server.http.address", manager.http().expect("its pages").to_string()),
            ("corona.jt.address", "127.0.0.1:0".to_owned()),
            ("mapred.job.tracker.http.address", "127.0.0.1:0".to_owned()),
            ("corona.jt.data.dir", root.join("jt").display().to_string()),
            ("corona.system.dir", format!("file:{}", root.join("system").display())),
            ("corona.jobtracker.heartbeat.interval", "50".to_owned()),
            ("hadoop.tmp.dir", root.join("tmp").display().to_string()),
            ("corona.jt.build.version", BUILD.to_owned()),
        ];
        let own = own.iter().map(|(key, value)| (*key, value.as_str()));
        let log = root.join("job-tracker.log");
        let mut child = start_daemon(command, own.chain(settings.iter().copied()), &log);
        let ready = first_line(&mut child);
        let told = || fs::read_to_string(&log).unwrap_or_default();
        let mut words = ready.split_whitespace().skip_while(|word| *word != "rpc").skip(1);
        let address = words.next().unwrap_or_else(|| panic!("not ready: {ready:?}\n{}", told()));
        let (host, port) = address.rsplit_once(':').expect("host:port");
        let port = port.parse().expect("a port");
        let address = InetAddress { host: host.to_owned(), port };
        JobTracker { child, address, ready, log }
    }

    /// The address of its pages, without the slash at the end.
    fn pages(&self) -> &str {
        let pages = self.ready.split_whitespace().find(|word| word.starts_with("http://"));
        pages.expect("an address of pages").trim_end_matches('/')
    }

    /// Ends it at once, as kill -9 does.
    fn crash(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.keep_address();
    }

    /// Keeps its address, where it is started again.
    fn keep_address(&self) {
        let InetAddress { host, port } = &self.address;
        keep_address(format!("{host}:{port}").parse().expect("an address"));
    }

    /// Stops it as an operator does, and waits until it has ended.
    async fn stop(&mut self) {
        signal("TERM", self.child.id());
        let child = &mut self.child;
        let status = until("the end of the job tracker", || child.try_wait().ok().flatten()).await;
        assert!(status.success(), "{status}\n{}", self.log());
        self.keep_address();
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for JobTracker {
    fn drop(&mut self) {
        self.crash();
        if std::thread::panicking() {
            tell_end("the end of the job tracker's log", &self.log(), 40);
        }
    }
}

/// A whole cluster, and the directory where everything of it lies.
struct TestCluster {
    job_tracker: JobTracker,
    node: Node,
    home: Home,
    manager: LaunchedManager,
    root: TempDir,
}

impl TestCluster {
    async fn new(settings: &[(&str, &str)]) -> TestCluster {
        TestCluster::with(&[], settings).await
    }

    /// A cluster with these settings of its cluster manager, and those of the job tracker.
    async fn with(of_manager: &[(&str, &str)], settings: &[(&str, &str)]) -> TestCluster {
        let root = tempfile::tempdir().expect("a directory");
        let history = root.path().join("history").display().to_string();
        let own = [
            ("corona.sessions.log.dir", &*history),
            ("cm.cpu.to.resource.partitioning", r#"{"1":{"MAP":1,"REDUCE":1}}"#),
        ];
        let manager = start_with(&[&own[..], of_manager].concat());
        let nobody = ([127, 0, 0, 1], 1).into();
        let home = Home::new(root.path(), manager.thrift(), nobody);
        let node = home.start().await;
        let job_tracker = JobTracker::start(root.path(), &manager, settings);
        TestCluster { job_tracker, node, home, manager, root }
    }

    fn client(&self, user: &str) -> JobSubmissionClient {
        let user = User { name: user.to_owned(), groups: vec!["users".to_owned()] };
        let options = ClientOptions { call_timeout: Some(PATIENCE), ..ClientOptions::new(user) };
        JobSubmissionClient::new(self.job_tracker.address.clone(), options)
    }

    /// Prepares a job as the original's client does: an id, its directory, its files, `job.xml` last.
    async fn prepare(
        &self,
        client: &mut JobSubmissionClient,
        maps: i32,
        reduces: i32,
        change: impl FnOnce(Job) -> Job,
    ) -> Job {
        let id = client.get_new_job_id().await.expect("an id").expect("an id");
        self.files(client, id, maps, reduces, change).await
    }

    /// The files of a job that has its id.
    async fn files(
        &self,
        client: &mut JobSubmissionClient,
        id: JobId,
        maps: i32,
        reduces: i32,
        change: impl FnOnce(Job) -> Job,
    ) -> Job {
        let system = client.get_system_dir().await.expect("a directory").expect("a directory");
        let system = system.strip_prefix("file:").expect("a local directory").to_owned();
        let directory = Path::new(&system).join(id.to_string());
        write_files(self.root.path(), &directory, id, maps, reduces, change)
    }

    /// Where the tasks of a job leave notes.
    fn notes(&self, job: &Job) -> compat_tests::task_tracker::notes::Notes {
        let directory = self.root.path().join("notes").join(job.id.to_string());
        compat_tests::task_tracker::notes::Notes::new(&directory)
    }

    /// Follows a job as a client does, until its state is not the one of preparing or running.
    async fn ended(&self, client: &mut JobSubmissionClient, job: &Job) -> JobStatus {
        follow(client, job).await
    }
}

/// The files of a job in its directory, as the original's client leaves them; tasks leave their notes
/// below `root`.
fn write_files(
    root: &Path,
    directory: &Path,
    id: JobId,
    maps: i32,
    reduces: i32,
    change: impl FnOnce(Job) -> Job,
) -> Job {
    let notes = root.join("notes").join(id.to_string());
    fs::create_dir_all(&notes).expect("a directory for notes");
    let task = Path::new(env!("CARGO_BIN_EXE_test-task"));
    let mut job = Job::new(&id.tracker, directory, task).expect("a directory for a job");
    job.id = id;
    let job = job
        .sized(maps, reduces)
        .with("test.directory", &notes.display().to_string())
        .with("mapred.job.name", "a job of a test")
        .with("user.name", "alice");
    let job = change(job);
    let split = |number: i32| RawSplit {
        class: "test.Split".to_owned(),
        length: i64::from(100 - number),
        data: job.map(number).to_string().into_bytes(),
        hosts: vec!["localhost".to_owned()],
    };
    let splits = SplitFile { splits: (0..maps).map(split).collect() };
    let mut writer = Writer::new(1 << 20);
    splits.encode(&mut writer);
    let bytes = writer.finish().expect("a small file");
    fs::write(directory.join("job.split"), bytes).expect("a split file");
    job.write().expect("a configuration");
    job
}

/// Follows a job as a client does, until its state is not the one of preparing or running.
async fn follow(client: &mut JobSubmissionClient, job: &Job) -> JobStatus {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let status = client.get_job_status(job.id.clone()).await.expect("a status");
        let status = status.expect("a job that is known");
        if ![RUNNING, 4].contains(&status.run_state) {
            return status;
        }
        assert!(std::time::Instant::now() < deadline, "{status:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until all maps have come so far.
async fn until_progress(client: &mut JobSubmissionClient, job: &Job, progress: f32) {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let status = client.get_job_status(job.id.clone()).await.unwrap().unwrap();
        if status.map_progress >= progress {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{status:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
