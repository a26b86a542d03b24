//! Jobs that the service hands to a job tracker on a node. The node starts a script in its place, which
//! writes down its arguments, and the test answers and reports as a remote job tracker does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corona::hadoop::protocols::inter_corona_job_tracker::InterCoronaJobTrackerClient;
use corona::hadoop::protocols::job_submission::{JobSubmission, Served};
use corona::hadoop::rpc::{Caller, Fault, Limits, Server, Services};
use corona::hadoop::writables::{
    ClusterStatus, Counter, CounterGroup, Counters, EventStatus, JobPriority, JobProfile,
    JobQueueInfo, QueueAclsInfo, StateUpdate, TaskAttemptId, TaskCompletionEvent, TaskLaunch,
    TaskReport, Update,
};
use corona::wire::server::{ListenOn, listen};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;

use super::super::task_tracker::block_on;
use super::pages::{TOKEN, api, get, page, post};
use super::*;

const REMOTE_SESSION: &str = "202611210043.77";
const PARTITIONING: &str = r#"{"1":{"MAP":1,"REDUCE":1,"JOBTRACKER":1}}"#;

/// A cluster whose node starts job trackers, and the file in which each leaves its arguments.
async fn world() -> (TestCluster, PathBuf) {
    let root = tempfile::tempdir().expect("a directory");
    let history = root.path().join("history").display().to_string();
    let manager = start_with(&[
        ("corona.sessions.log.dir", &history),
        ("cm.cpu.to.resource.partitioning", PARTITIONING),
    ]);
    let started = root.path().join("started");
    let script = root.path().join("start-job-tracker");
    let text = format!(
        "echo \"$@\" >> {started}\nwhile [ -e {root} ] && [ ! -e {started}.$2 ]; do sleep 0.05; done\n",
        started = started.display(),
        root = root.path().display()
    );
    fs::write(&script, text).expect("a script");
    let nobody = ([127, 0, 0, 1], 1).into();
    let home = Home::new(root.path(), manager.thrift(), nobody)
        .with("cm.cpu.to.resource.partitioning", PARTITIONING)
        .with("corona.tt.job.trackers", "true")
        .with("corona.tt.job.tracker.command", &format!("/bin/sh {}", script.display()));
    let node = home.start().await;
    let settings = [("corona.jt.web.kill.token", TOKEN)];
    let job_tracker = JobTracker::start(root.path(), &manager, &settings);
    (TestCluster { job_tracker, node, home, manager, root }, started)
}

/// The state of a remote job tracker of the test.
#[derive(Debug, Default)]
struct ParentState {
    run_state: i32,
    submitted: usize,
    /// It takes the job only when this is false.
    holds: bool,
    killed: bool,
    priority: Option<String>,
}

/// A remote job tracker that the test plays.
struct Remote {
    attempt: TaskAttemptId,
    state: Arc<SharedParent>,
    parent: InterCoronaJobTrackerClient,
    address: InetAddress,
    stop: watch::Sender<bool>,
    /// Ends the process on the node.
    process: PathBuf,
}

#[derive(Debug, Default)]
struct SharedParent(Mutex<ParentState>);

impl SharedParent {
    fn lock(&self) -> MutexGuard<'_, ParentState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self, job: JobId) -> JobStatus {
        JobStatus {
            job,
            setup_progress: 1.0,
            map_progress: 0.5,
            reduce_progress: 0.0,
            cleanup_progress: 0.0,
            run_state: self.lock().run_state,
            start_time_ms: 1,
            user: "nobody".into(),
            priority: JobPriority::Normal,
            scheduling_info: "NA".into(),
        }
    }
}

fn not_asked<T>() -> Result<T, Fault> {
    Err(Fault::io("a remote job tracker is not asked this"))
}

impl JobSubmission for SharedParent {
    async fn submit_job(&self, _: &Caller, job: JobId) -> Result<Option<JobStatus>, Fault> {
        until("the job tracker to take the job", || (!self.lock().holds).then_some(())).await;
        self.lock().submitted += 1;
        Ok(Some(self.status(job)))
    }
    async fn get_job_profile(&self, _: &Caller, _: JobId) -> Result<Option<JobProfile>, Fault> {
        not_asked()
    }
    async fn get_job_status(&self, _: &Caller, job: JobId) -> Result<Option<JobStatus>, Fault> {
        Ok(Some(self.status(job)))
    }
    async fn get_job_counters(&self, _: &Caller, _: JobId) -> Result<Option<Counters>, Fault> {
        if self.lock().submitted == 0 {
            return Err(Fault::io("java.lang.NullPointerException"));
        }
        let counter = Counter { name: "N".into(), display_name: None, value: 42 };
        let (name, display_name) = ("test".to_owned(), "test".to_owned());
        let group = CounterGroup { name, display_name, counters: vec![counter] };
        Ok(Some(Counters { groups: vec![group] }))
    }
    async fn get_map_task_reports(
        &self,
        _: &Caller,
        _: JobId,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        Ok(Some(Vec::new()))
    }
    async fn get_reduce_task_reports(
        &self,
        _: &Caller,
        _: JobId,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        Ok(Some(Vec::new()))
    }
    async fn get_setup_task_reports(
        &self,
        _: &Caller,
        _: JobId,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        Ok(Some(Vec::new()))
    }
    async fn get_cleanup_task_reports(
        &self,
        _: &Caller,
        _: JobId,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        Ok(Some(Vec::new()))
    }
    async fn get_task_completion_events(
        &self,
        _: &Caller,
        job: JobId,
        from: i32,
        _: i32,
    ) -> Result<Option<Vec<TaskCompletionEvent>>, Fault> {
        if self.lock().submitted == 0 {
            return Err(Fault::io("java.lang.NullPointerException"));
        }
        let attempt = format!("attempt_{}_0001_m_000000_0", job.tracker).parse().expect("an id");
        let event = TaskCompletionEvent {
            attempt,
            id_within_job: 0,
            is_map: true,
            status: EventStatus::Succeeded,
            tracker_http: None,
            run_time_ms: 1,
            event_id: 0,
        };
        Ok(Some([event].into_iter().skip(from as usize).collect()))
    }
    async fn get_task_diagnostics(
        &self,
        _: &Caller,
        attempt: TaskAttemptId,
    ) -> Result<Option<Vec<Option<String>>>, Fault> {
        Ok(Some(vec![Some(format!("what is known of {attempt}"))]))
    }
    async fn kill_job(&self, _: &Caller, _: JobId) -> Result<(), Fault> {
        let mut state = self.lock();
        state.killed = true;
        state.run_state = KILLED;
        Ok(())
    }
    async fn kill_task(&self, _: &Caller, _: TaskAttemptId, fail: bool) -> Result<bool, Fault> {
        Ok(fail)
    }
    async fn set_job_priority(&self, _: &Caller, _: JobId, name: String) -> Result<(), Fault> {
        self.lock().priority = Some(name);
        Ok(())
    }
    async fn get_new_job_id(&self, _: &Caller) -> Result<Option<JobId>, Fault> {
        not_asked()
    }
    async fn get_system_dir(&self, _: &Caller) -> Result<Option<String>, Fault> {
        not_asked()
    }
    async fn get_filesystem_name(&self, _: &Caller) -> Result<Option<String>, Fault> {
        not_asked()
    }
    async fn jobs_to_complete(&self, _: &Caller) -> Result<Option<Vec<JobStatus>>, Fault> {
        not_asked()
    }
    async fn get_all_jobs(&self, _: &Caller) -> Result<Option<Vec<JobStatus>>, Fault> {
        not_asked()
    }
    async fn get_queues(&self, _: &Caller) -> Result<Option<Vec<JobQueueInfo>>, Fault> {
        not_asked()
    }
    async fn get_queue_info(&self, _: &Caller, _: String) -> Result<Option<JobQueueInfo>, Fault> {
        not_asked()
    }
    async fn get_jobs_from_queue(
        &self,
        _: &Caller,
        _: String,
    ) -> Result<Option<Vec<JobStatus>>, Fault> {
        not_asked()
    }
    async fn get_queue_acls_for_current_user(
        &self,
        _: &Caller,
    ) -> Result<Option<Vec<QueueAclsInfo>>, Fault> {
        not_asked()
    }
    async fn get_cluster_status(
        &self,
        _: &Caller,
        _: bool,
    ) -> Result<Option<ClusterStatus>, Fault> {
        not_asked()
    }
}

impl Remote {
    /// Waits until the node has started a job tracker, and plays it.
    async fn started(started: &Path) -> Remote {
        let line = until("the start of a remote job tracker", || {
            let lines = fs::read_to_string(started).ok()?;
            lines.lines().next().map(str::to_owned)
        });
        let line = line.await;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, attempt, host, port, ..] = words[..] else { panic!("{line}") };
        let parent = InetAddress { host: host.to_owned(), port: port.parse().expect("a port") };
        let listener = listen(ListenOn::Address(([127, 0, 0, 1], 0).into())).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(SharedParent::default());
        state.lock().run_state = RUNNING;
        let services = Services::new().offer(Served::new(state.clone()));
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(Server::new(listener, services, Limits::default()).run(stopped));
        let user = User { name: "alice".to_owned(), groups: vec!["users".to_owned()] };
        let options = ClientOptions { call_timeout: Some(PATIENCE), ..ClientOptions::new(user) };
        Remote {
            attempt: attempt.parse().expect("the id of an attempt"),
            state,
            parent: InterCoronaJobTrackerClient::new(parent, options),
            address: InetAddress { host: "127.0.0.1".to_owned(), port },
            stop,
            process: PathBuf::from(format!("{}.{attempt}", started.display())),
        }
    }

    async fn report(&mut self) -> Result<(), String> {
        let (host, port) = (self.address.host.clone(), self.address.port.into());
        let (attempt, session) = (self.attempt.to_string(), REMOTE_SESSION.to_owned());
        let called = self.parent.report_remote_corona_job_tracker(attempt, host, port, session);
        called.await.map_err(|error| error.to_string())
    }

    async fn push(&mut self) -> Result<(), String> {
        let update = Update::Launch(TaskLaunch {
            attempt: self.attempt.clone(),
            tracker: Some("tracker_a:1".to_owned()),
            address: self.address.clone(),
            grant: 7,
        });
        let updates = vec![StateUpdate { update, at_ms: 1 }];
        let called =
            self.parent.push_corona_job_tracker_state_update(self.attempt.clone(), updates);
        called.await.map_err(|error| error.to_string())
    }

    async fn until_submitted(&self) {
        until("the submission", || (self.state.lock().submitted > 0).then_some(())).await;
    }

    /// It ends at once, with its process.
    async fn dies(self) {
        self.stop.send_replace(true);
        fs::write(&self.process, "").expect("a file");
        let address = (self.address.host.as_str(), self.address.port);
        until("the end of a remote job tracker", || {
            std::net::TcpStream::connect(address).is_err().then_some(())
        })
        .await;
    }
}

fn remote(job: Job) -> Job {
    job.with("mapred.coronajobtracker.forceremote", "true")
}

/// Submits a job of so many maps, which a remote job tracker takes.
async fn taken(
    world: &TestCluster,
    client: &mut JobSubmissionClient,
    started: &Path,
    maps: i32,
    with: impl FnOnce(Job) -> Job,
) -> (Job, Remote) {
    let job = world.prepare(client, maps, 0, with).await;
    client.submit_job(job.id.clone()).await.unwrap();
    let mut remote = Remote::started(started).await;
    remote.report().await.unwrap();
    remote.until_submitted().await;
    (job, remote)
}

#[test]
fn a_job_is_handed_to_a_node_and_its_calls_are_forwarded() {
    block_on(async {
        let (world, started) = world().await;
        let mut client = world.client("alice");
        let above = |job: Job| job.with("mapred.coronajobtracker.remote.threshold", "2");
        let job = world.prepare(&mut client, 3, 1, above).await;
        let status = client.submit_job(job.id.clone()).await.unwrap().unwrap();
        assert_eq!((status.run_state, &*status.user), (4, "alice"), "{status:?}");
        let mut remote = Remote::started(&started).await;
        // The number of its task is that of the maps and 100000.
        let name = format!("attempt_{}_0001_m_100003_0", job.id.tracker);
        assert_eq!(remote.attempt.to_string(), name);
        remote.report().await.unwrap();
        remote.until_submitted().await;
        until_progress(&mut client, &job, 0.5).await;
        let id = || job.id.clone();
        // Its tasks wait in the session of the remote job tracker.
        let shown = api(&world, &format!("jobs/{}", job.id));
        assert_eq!(shown["session"], REMOTE_SESSION, "{shown}");
        // The cluster manager does not know the session of this test.
        let manager = world.manager.http().unwrap().to_string();
        let at = format!("corona.jt.address={}", world.job_tracker.address);
        let explain =
            ["jobs", "explain", &job.id.to_string(), "--http-address", &manager, "-D", &at];
        let asked = corona(&explain).output().unwrap();
        let said = String::from_utf8_lossy(&asked.stderr);
        assert!(said.contains(REMOTE_SESSION), "{said}");
        let events = client.get_task_completion_events(id(), 0, 10).await.unwrap().unwrap();
        assert_eq!(events.len(), 1);
        let attempt = events[0].attempt.clone();
        assert!(client.kill_task(attempt.clone(), true).await.unwrap());
        let texts = client.get_task_diagnostics(attempt.clone()).await.unwrap().unwrap();
        assert_eq!(texts, [Some(format!("what is known of {attempt}"))]);
        client.set_job_priority(id(), "HIGH".to_owned()).await.unwrap();
        assert_eq!(remote.state.lock().priority.as_deref(), Some("HIGH"));
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let listed = client.jobs_to_complete().await.unwrap().unwrap();
            assert_eq!(listed.len(), 1);
            if listed[0].priority == JobPriority::High {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{listed:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The job of another user.
        let mut bob = world.client("bob");
        assert!(bob.kill_job(id()).await.is_err() && !remote.state.lock().killed);
        // What another remote job tracker says is refused.
        let other = TaskAttemptId { number: 1, ..remote.attempt.clone() };
        let own = std::mem::replace(&mut remote.attempt, other);
        let refused = remote.report().await.unwrap_err();
        assert!(refused.contains("does not match current attempt"), "{refused}");
        remote.attempt = own;
        // No restart is allowed, so nothing is kept.
        assert!(remote.push().await.unwrap_err().contains("state restoring is disabled"));

        remote.state.lock().run_state = SUCCEEDED;
        let status = world.ended(&mut client, &job).await;
        assert_eq!(status.run_state, SUCCEEDED, "{}", world.job_tracker.log());
        let counters = client.get_job_counters(id()).await.unwrap().unwrap();
        assert_eq!(counters.get("test", "N"), Some(42));
        remote.dies().await;
        world.home.nothing_left().await;
    });
}

#[test]
fn calls_wait_until_the_remote_job_tracker_has_the_job() {
    block_on(async {
        let (world, started) = world().await;
        let mut client = world.client("alice");
        let job = world.prepare(&mut client, 3, 1, remote).await;
        client.submit_job(job.id.clone()).await.unwrap().unwrap();
        let mut remote = Remote::started(&started).await;
        remote.state.lock().holds = true;
        remote.report().await.unwrap();
        // A client that polls is not given an error.
        let id = || job.id.clone();
        let events = client.get_task_completion_events(id(), 0, 10).await.unwrap().unwrap();
        assert_eq!(events, []);
        let (other_id, state) = (id(), remote.state.clone());
        let mut other = world.client("alice");
        let asked = tokio::spawn(async move {
            let counters = other.get_job_counters(other_id).await;
            (counters, state.lock().submitted)
        });
        // A second report is served after the first, so the remote job tracker is known by now.
        remote.report().await.unwrap();
        client.get_job_status(id()).await.unwrap().unwrap();
        remote.state.lock().holds = false;
        let (counters, submitted) = asked.await.unwrap();
        assert_eq!((counters.unwrap().unwrap().get("test", "N"), submitted), (Some(42), 1));
        let events = client.get_task_completion_events(id(), 0, 10).await.unwrap().unwrap();
        assert_eq!(events.len(), 1);
        client.kill_job(job.id.clone()).await.unwrap();
        assert_eq!(world.ended(&mut client, &job).await.run_state, KILLED);
        assert!(remote.state.lock().killed);
        remote.dies().await;
    });
}

#[test]
fn a_job_on_a_node_is_ended_from_its_page() {
    block_on(async {
        let (world, started) = world().await;
        let mut client = world.client("alice");
        let (job, remote) = taken(&world, &mut client, &started, 1, remote).await;
        let end = format!("/jobs/{}/end", job.id);
        assert!(page(&world, &format!("/jobs/{}", job.id)).contains(&end));
        assert!(page(&world, &end).contains("End it"));
        // Its tasks are at its job tracker.
        let task = format!("/jobs/{}/tasks/{}/end", job.id, job.map(0).task);
        assert_eq!(get(&world, &task).0, 404);
        assert_eq!(post(&world, &end, "token=a+token+of+a+test").0, 303);
        assert_eq!(world.ended(&mut client, &job).await.run_state, KILLED);
        assert!(remote.state.lock().killed);
        remote.dies().await;
    });
}

#[test]
fn steps_after_the_end_of_a_job_on_a_node_are_done_after_a_restart() {
    block_on(async {
        let (mut world, started) = world().await;
        let mut client = world.client("alice");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/$jobStatus", listener.local_addr().unwrap());
        // Within the time of this test it is tried once by each process.
        let notifies = |job: Job| {
            remote(job)
                .with("job.end.notification.url", &url)
                .with("job.end.retry.attempts", "5")
                .with("job.end.retry.interval", "3600000")
        };
        let (job, mut remote) = taken(&world, &mut client, &started, 2, notifies).await;
        client.set_job_priority(job.id.clone(), "HIGH".to_owned()).await.unwrap();
        let again = |world: &mut TestCluster| {
            world.job_tracker.crash();
            world.job_tracker = JobTracker::start(world.root.path(), &world.manager, &[]);
            world.client("alice")
        };
        let mut client = again(&mut world);
        let listed = client.jobs_to_complete().await.unwrap().unwrap();
        assert_eq!((listed.len(), &listed[0].priority), (1, &JobPriority::High));

        remote.report().await.unwrap();
        remote.state.lock().run_state = SUCCEEDED;
        notified(&listener, "503 Busy").await;
        let counters = client.get_job_counters(job.id.clone()).await.unwrap().unwrap();
        assert_eq!(counters.get("test", "N"), Some(42));
        let mut client = again(&mut world);
        notified(&listener, "200 OK").await;
        let status = client.get_job_status(job.id.clone()).await.unwrap().unwrap();
        assert_eq!((status.run_state, &status.priority), (SUCCEEDED, &JobPriority::High));
        let counters = client.get_job_counters(job.id.clone()).await.unwrap().unwrap();
        assert_eq!(counters.get("test", "N"), Some(42), "they are known after a restart");
        // Its tasks are not, which is not the same as none.
        let (id, at) = (job.id.to_string(), world.job_tracker.address.to_string());
        let listed = corona(&["jobs", "tasks", &id, "--job-tracker", &at]).output().unwrap();
        let said = String::from_utf8_lossy(&listed.stdout);
        assert!(listed.status.success(), "{listed:?}");
        assert!(said.starts_with("No tasks are kept of job_"), "{said}");
        let directory = world.root.path().join("jt/jobs").join(job.id.to_string());
        until("the end of its directory", || (!directory.exists()).then_some(())).await;
        remote.dies().await;
    });
}

/// Takes the notice of the end of a job that has succeeded, and replies.
async fn notified(listener: &tokio::net::TcpListener, reply: &str) {
    let (mut stream, _) = timeout(PATIENCE, listener.accept()).await.expect("a notice").unwrap();
    let mut request = [0; 512];
    let length = stream.read(&mut request).await.unwrap();
    let request = String::from_utf8_lossy(&request[..length]);
    assert!(request.starts_with("GET /SUCCEEDED HTTP/"), "{request}");
    stream.write_all(format!("HTTP/1.1 {reply}\r\n\r\n").as_bytes()).await.unwrap();
}
