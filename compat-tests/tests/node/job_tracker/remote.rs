//! The program as a remote job tracker: a node starts it for a parent, which is played here, and nothing is
//! left whichever process is killed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use compat_tests::serving::{fetch, status};
use compat_tests::task_tracker::node::runs;
use compat_tests::task_tracker::steps::TaskRole;
use corona::hadoop::protocols::corona_task_tracker::CoronaTaskTrackerClient;
use corona::hadoop::protocols::inter_corona_job_tracker::{InterCoronaJobTracker, Served};
use corona::hadoop::rpc::{Caller, Fault, Limits, Server, Services};
use corona::hadoop::writables::{
    JobTrackerState, SessionInfo, SessionTrackers, Split, StateUpdate, Task, TaskAttemptId, TaskId,
    TaskReportState, TaskState, Update,
};
use corona::job_wire::translate;
use corona::session_driver::{
    Endpoint, Event, Grant, Options, ResourceType, SessionDriver, SessionEvents, SessionStatus,
    SlotRequest,
};
use corona::wire;
use corona::wire::calls::{ProxyJobTracker, ProxyJobTrackerCall, ProxyJobTrackerReply};
use corona::wire::server::Answer;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

use super::super::task_tracker::block_on;
use super::*;

/// What the parent knows of its remote job tracker.
#[derive(Debug, Default)]
struct Told {
    /// The attempt that may speak.
    attempt: String,
    /// The address and the session in the first report of that attempt.
    at: Option<(InetAddress, String)>,
    reports: usize,
    updates: Vec<StateUpdate>,
    session: String,
    restarts: i32,
    committing: HashMap<TaskId, TaskAttemptId>,
    /// The permissions in their order, and the attempts that had them before.
    permissions: Vec<(String, Option<String>)>,
}

/// The parent of a job, as the original's client is one.
#[derive(Default)]
pub(super) struct Parent {
    told: Mutex<Told>,
    reported: Notify,
}

impl Parent {
    /// A parent that knows a job tracker by this name.
    pub(super) fn of(attempt: &str) -> Parent {
        let parent = Parent::default();
        parent.told().attempt = attempt.to_owned();
        parent
    }

    /// Where its job tracker is, once that has reported.
    pub(super) fn at(&self) -> Option<InetAddress> {
        self.told().at.as_ref().map(|(address, _)| address.clone())
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().expect("no test panics with it")
    }

    fn check(&self, attempt: &str) -> Result<(), Fault> {
        let current = self.told().attempt.clone();
        let text = format!("Attempt {attempt} does not match current attempt {current}");
        (attempt == current).then_some(()).ok_or_else(|| Fault::io(text))
    }
}

impl InterCoronaJobTracker for Parent {
    async fn report_remote_corona_job_tracker(
        &self,
        _caller: &Caller,
        attempt: String,
        host: String,
        port: i32,
        session: String,
    ) -> Result<(), Fault> {
        self.check(&attempt)?;
        let port = u16::try_from(port).map_err(|error| Fault::io(error.to_string()))?;
        let mut told = self.told();
        told.reports += 1;
        told.session.clone_from(&session);
        told.at.get_or_insert((InetAddress { host, port }, session));
        self.reported.notify_one();
        Ok(())
    }

    async fn get_new_job_tracker_address(
        &self,
        _caller: &Caller,
        failed: InetAddress,
    ) -> Result<Option<InetAddress>, Fault> {
        let at = self.told().at.clone();
        Ok(at.map(|(address, _)| address).filter(|address| *address != failed))
    }

    async fn push_corona_job_tracker_state_update(
        &self,
        _caller: &Caller,
        attempt: TaskAttemptId,
        updates: Vec<StateUpdate>,
    ) -> Result<(), Fault> {
        self.check(&attempt.to_string())?;
        self.told().updates.extend(updates);
        Ok(())
    }

    async fn get_corona_job_tracker_state(
        &self,
        _caller: &Caller,
        attempt: TaskAttemptId,
    ) -> Result<JobTrackerState, Fault> {
        self.check(&attempt.to_string())?;
        let told = self.told();
        let mut updates = told.updates.clone();
        updates.sort_by_key(|update| update.at_ms);
        let (session, restarts) = (told.session.clone(), told.restarts);
        Ok(JobTrackerState { updates, session, restarts })
    }

    async fn get_and_set_committing(
        &self,
        _caller: &Caller,
        attempt: TaskAttemptId,
        to_commit: Vec<TaskAttemptId>,
    ) -> Result<Vec<Option<TaskAttemptId>>, Fault> {
        self.check(&attempt.to_string())?;
        let mut told = self.told();
        let each = to_commit.into_iter().map(|attempt| {
            let before = told.committing.insert(attempt.task.clone(), attempt.clone());
            let name = before.as_ref().map(ToString::to_string);
            told.permissions.push((attempt.to_string(), name));
            before
        });
        Ok(each.collect())
    }
}

/// A cluster whose node has a slot for a job tracker, and a parent with a session.
struct Remote {
    parent: Arc<Parent>,
    /// Where the parent listens; it is gone when the sender is dropped.
    listens: Option<watch::Sender<bool>>,
    address: InetAddress,
    driver: Option<SessionDriver>,
    events: SessionEvents,
    job: Job,
    attempts: i32,
    node: Node,
    home: Home,
    manager: LaunchedManager,
    root: TempDir,
}

impl Remote {
    /// A job of so many maps and reduces whose parent has a session.
    async fn new(maps: i32, reduces: i32, change: impl FnOnce(Job) -> Job) -> Remote {
        Remote::numbered(1, maps, reduces, change).await
    }

    /// The same with a job that is not the first one of the session.
    async fn numbered(
        number: i32,
        maps: i32,
        reduces: i32,
        change: impl FnOnce(Job) -> Job,
    ) -> Remote {
        let root = tempfile::tempdir().expect("a directory");
        let history = root.path().join("history").display().to_string();
        let slots = r#"{"1":{"MAP":1,"REDUCE":1,"JOBTRACKER":1}}"#;
        let manager = start_with(&[
            ("corona.sessions.log.dir", &history),
            ("cm.cpu.to.resource.partitioning", slots),
        ]);
        let nobody = ([127, 0, 0, 1], 1).into();
        let home = Home::new(root.path(), manager.thrift(), nobody)
            .with("cm.cpu.to.resource.partitioning", slots)
            .with("corona.jt.build.version", BUILD)
            .with("corona.jt.parent.connect.timeout.ms", "300")
            .with("mapred.task.tracker.http.address", "127.0.0.1:0");
        let node = home.start().await;
        let thrift = manager.thrift();
        let endpoint = Endpoint::new(thrift.ip().to_string(), thrift.port());
        let started = SessionDriver::start(Options::new(endpoint, "alice")).await;
        let (driver, events) = started.expect("a session");
        let system = root.path().join("system");
        let id = JobId { number, tracker: driver.handle().to_string() };
        let change = |job: Job| {
            let job = job
                .with("corona.system.dir", &format!("file:{}", system.display()))
                .with("corona.sessions.log.dir", &history)
                .with("corona.jobtracker.heartbeat.interval", "50")
                .with("mapred.coronajobtracker.forceremote", "true");
            change(job)
        };
        let job = write_files(root.path(), &system.join(id.to_string()), id, maps, reduces, change);
        let parent = Arc::<Parent>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let address = InetAddress { host: "127.0.0.1".into(), port };
        let (listens, stopped) = watch::channel(false);
        let services = Services::new().offer(Served::new(parent.clone()));
        tokio::spawn(Server::new(listener, services, Limits::default()).run(stopped));
        let listens = Some(listens);
        let driver = Some(driver);
        Remote {
            parent,
            listens,
            address,
            driver,
            events,
            job,
            attempts: 0,
            node,
            home,
            manager,
            root,
        }
    }

    /// Has the node start a job tracker, as the parent's grant says, and waits for its report.
    async fn start(&mut self) -> JobSubmissionClient {
        let driver = self.driver.as_ref().expect("a session");
        driver.request(vec![SlotRequest::new(ResourceType::JobTracker)]).expect("a request");
        let grant = loop {
            match self.events.next().await.expect("a session") {
                Event::Granted(grants) => break grants[0].clone(),
                other => tracing_note(&other),
            }
        };
        self.start_on(&grant).await
    }

    async fn start_on(&mut self, grant: &Grant) -> JobSubmissionClient {
        let task =
            TaskId { number: 100_000 + self.job.maps, job: self.job.id.clone(), is_map: true };
        let attempt = TaskAttemptId { number: self.attempts, task };
        self.attempts += 1;
        {
            let mut told = self.parent.told();
            told.attempt = attempt.to_string();
            told.at = None;
        }
        let trackers = SessionTrackers {
            job_tracker: self.address.clone(),
            secondary: Some(self.address.clone()),
        };
        let session = SessionInfo { handle: Some(self.job.id.tracker.clone()), trackers };
        let (host, port) = grant.app_info.rsplit_once(':').expect("host:port");
        let at = InetAddress { host: host.into(), port: port.parse().expect("a port") };
        let mut node = CoronaTaskTrackerClient::new(at, ClientOptions::new(alice()));
        let task = task_of(&self.job, attempt);
        node.start_corona_job_tracker(task, session).await.expect("a start");
        let parent = self.parent.clone();
        until("the first report", || parent.told().at.clone()).await;
        self.client()
    }

    /// A client of the remote job tracker.
    fn client(&self) -> JobSubmissionClient {
        let at = self.parent.told().at.clone().expect("a report").0;
        let options = ClientOptions { call_timeout: Some(PATIENCE), ..ClientOptions::new(alice()) };
        JobSubmissionClient::new(at, options)
    }

    fn session(&self) -> String {
        self.parent.told().at.clone().expect("a report").1
    }

    /// The process of the remote job tracker, from the pages of its node.
    async fn pid(&self) -> i32 {
        let ready = self.node.ready().to_owned();
        let mut words = ready.split(' ').skip_while(|word| *word != "http").skip(1);
        let http = words.next().expect("an address").to_owned();
        let look = || {
            let page = get(&http, "/api/v1/tracker")?;
            page["job_trackers"][0]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok())
        };
        until("the process of the job tracker", look).await
    }

    fn notes(&self) -> compat_tests::task_tracker::notes::Notes {
        let directory = self.root.path().join("notes").join(self.job.id.to_string());
        compat_tests::task_tracker::notes::Notes::new(&directory)
    }

    /// Waits until a map waits.
    async fn waits(&self, attempt: &TaskAttemptId) {
        let (notes, name) = (self.notes(), attempt.to_string());
        until("a map that waits", || notes.of(&name, "waits").into_iter().next()).await;
    }

    async fn ended(&self, client: &mut JobSubmissionClient) -> JobStatus {
        follow(client, &self.job).await
    }

    /// The sessions that the cluster manager has.
    fn sessions(&self) -> Vec<String> {
        let address = self.manager.thrift().to_string();
        let list = ["sessions", "list", "--output", "json", "--address", &address];
        let out = corona(&list).output().expect("an output");
        assert!(out.status.success(), "{out:?}");
        let list: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let sessions = list["sessions"].as_array().cloned().unwrap_or_default();
        sessions.iter().filter_map(|it| it["handle"].as_str().map(str::to_owned)).collect()
    }

    /// Waits until no session is left, no process, and no directory on the node.
    async fn nothing_left(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.end(SessionStatus::Successful).await;
        }
        until("the end of all sessions", || self.sessions().is_empty().then_some(())).await;
        self.home.nothing_left().await;
        for dir in self.home.local_dirs() {
            let trackers = dir.join("taskTracker/jobtrackers");
            let empty = || {
                let mut entries = fs::read_dir(&trackers).into_iter().flatten();
                entries.next().is_none().then_some(())
            };
            until("the end of the job tracker's directory", empty).await;
        }
    }
}

fn tracing_note(event: &Event) {
    assert!(!matches!(event, Event::Ended(_)), "{event:?}");
}

fn alice() -> User {
    User { name: "alice".into(), groups: vec!["users".into()] }
}

/// The task with which a parent has a job tracker started.
fn task_of(job: &Job, attempt: TaskAttemptId) -> Task {
    let split = Split { class: "org.apache.hadoop.mapred.JobClient$RawSplit".into(), data: vec![] };
    translate::job_tracker_task(attempt, &format!("file:{}", job.path().display()), "alice", split)
}

/// A figure, for `--nocapture`.
#[allow(clippy::print_stdout, reason = "figures are for people")]
fn show(text: &str) {
    println!("{text}");
}

/// What a page of a node says, as JSON.
fn get(at: &str, path: &str) -> Option<serde_json::Value> {
    serde_json::from_str(&fetch(at, path)?.1).ok()
}

const RESTARTS: (&str, &str) = ("mapred.coronajobtracker.restart.count", "1");

#[test]
fn a_node_runs_the_job_tracker_of_a_parent() {
    block_on(async {
        let mut remote = Remote::new(3, 2, |job| job).await;
        let begun = Instant::now();
        let mut client = remote.start().await;
        let early = client.get_job_status(remote.job.id.clone()).await.unwrap_err();
        assert!(early.to_string().contains("NullPointerException"), "{early}");
        let status = client.submit_job(remote.job.id.clone()).await.unwrap().unwrap();
        assert_eq!(status.job, remote.job.id);
        show(&format!("from the grant to the reply to the submission: {:?}", begun.elapsed()));
        let again = client.submit_job(remote.job.id.clone()).await.unwrap().unwrap();
        assert_eq!(again.start_time_ms, status.start_time_ms, "it is submitted once");
        let profile = client.get_job_profile(remote.job.id.clone()).await.unwrap().unwrap();
        assert_eq!(&*profile.name, "a job of a test");
        assert!(profile.url.starts_with("http://"), "{profile:?}");
        let other = JobId { number: 7, ..remote.job.id.clone() };
        let error = client.get_job_status(other.clone()).await.unwrap_err().to_string();
        let expected =
            format!("JobId {other} does not match the expected id of: {}", remote.job.id);
        assert!(error.contains(&expected), "{error}");
        assert_eq!(remote.sessions().len(), 2, "the parent's and its own");

        let status = remote.ended(&mut client).await;
        assert_eq!(status.run_state, SUCCEEDED, "{status:?}");
        // The status of a job that is over waits for everything that follows.
        assert_eq!(remote.sessions(), [remote.job.id.tracker.clone()]);
        let stamp = remote.job.id.tracker.split_once('.').unwrap().0.to_owned();
        let done = remote.root.path().join(format!("history/{stamp}.0/done"));
        let history = fs::read_to_string(done.join(remote.job.id.to_string())).unwrap();
        assert!(history.contains("JOB_STATUS=\"SUCCESS\""), "{history}");
        let name = remote.parent.told().attempt.clone();
        let tracker = name.replace('.', "\\.");
        assert!(history.contains(&format!(":{tracker}\"")), "{tracker}: {history}");
        let counters = client.get_job_counters(remote.job.id.clone()).await.unwrap().unwrap();
        let group = "org.apache.hadoop.mapred.JobInProgress$Counter";
        assert_eq!(counters.get(group, "TOTAL_LAUNCHED_MAPS"), Some(3));
        let reports = client.get_reduce_task_reports(remote.job.id.clone()).await.unwrap().unwrap();
        assert!(reports.iter().all(|it| matches!(it.state, TaskReportState::Complete(_))));
        assert!(remote.parent.told().updates.is_empty(), "no other one could need them");
        // It answers as long as the parent is there, and ends with it.
        let reported = remote.parent.told().reports;
        until("another report", || (remote.parent.told().reports > reported).then_some(())).await;
        let pid = remote.pid().await;
        assert!(runs(pid));
        remote.listens = None;
        until("the end of the job tracker", || (!runs(pid)).then_some(())).await;
        remote.nothing_left().await;
    });
}

/// A proxy job tracker that names a directory of jobs, and its address.
async fn naming(system: Arc<Mutex<String>>) -> (SocketAddr, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let answer = move |_, call: ProxyJobTrackerCall| {
        let system = system.lock().expect("no test panics with it").clone();
        async move {
            Answer::Reply(match call {
                ProxyJobTrackerCall::GetSystemDir => ProxyJobTrackerReply::GetSystemDir(system),
                _ => ProxyJobTrackerReply::GetClusterManagerSafeModeFlag(false),
            })
        }
    };
    let (stop, stopped) = watch::channel(false);
    let server = wire::server::Server::new(listener, answer, wire::server::Limits::default());
    tokio::spawn(server.run::<ProxyJobTracker>(stopped));
    (address, stop)
}

#[test]
fn pages_show_the_job_and_the_proxy_job_tracker_names_its_directory() {
    block_on(async {
        let system = Arc::<Mutex<String>>::default();
        let (proxy, _stop) = naming(system.clone()).await;
        let unset = |job: Job| {
            let (job, directory) = job.without("corona.system.dir");
            *system.lock().unwrap() = directory.unwrap();
            job.with("corona.proxy.job.tracker.thriftaddr", &proxy.to_string())
                .map_steps(1, "update=0.5,wait,update=1.0,done")
        };
        let mut remote = Remote::new(2, 0, unset).await;
        let mut client = remote.start().await;
        client.submit_job(remote.job.id.clone()).await.unwrap();
        remote.waits(&remote.job.map(1)).await;
        let id = remote.job.id.to_string();
        let profile = client.get_job_profile(remote.job.id.clone()).await.unwrap().unwrap();
        let rest = profile.url.strip_prefix("http://").unwrap();
        let (pages, page) = rest.split_once('/').unwrap();
        assert_eq!(page, format!("coronajobdetails.jsp?jobid={id}"));
        let job = || get(pages, &format!("/api/v1/jobs/{id}"));
        let job =
            until("a map that is done", || job().filter(|it| it["maps"]["succeeded"] == 1)).await;
        assert_eq!((&job["id"], &job["state"]), (&id.as_str().into(), &"RUNNING".into()), "{job}");
        let tasks = get(pages, &format!("/api/v1/jobs/{id}/tasks?kind=map")).unwrap();
        assert_eq!(tasks["tasks"].as_array().map(Vec::len), Some(2), "{tasks}");
        // The session leads there as well.
        let session = remote.session();
        let cluster_manager = remote.manager.http().unwrap().to_string();
        let found = get(&cluster_manager, &format!("/api/v1/sessions/{session}")).unwrap();
        assert_eq!(found["url"], *profile.url, "{found}");
        remote.notes().let_go(&remote.job.map(1).to_string()).unwrap();
        let status = remote.ended(&mut client).await;
        assert_eq!(status.run_state, SUCCEEDED, "{status:?}");
        remote.listens = None;
        remote.nothing_left().await;
    });
}

/// Without the state of the first job tracker, a parent of the original starts the job again under the
/// next number, and the address that is announced names the first one.
#[test]
fn the_announced_address_of_a_job_that_was_started_again_leads_to_it() {
    block_on(async {
        let steps = |job: Job| job.map_steps(0, "update=0.5,wait,update=1.0,done");
        let mut remote = Remote::numbered(2, 1, 0, steps).await;
        let mut client = remote.start().await;
        client.submit_job(remote.job.id.clone()).await.unwrap();
        remote.waits(&remote.job.map(0)).await;
        let profile = client.get_job_profile(remote.job.id.clone()).await.unwrap().unwrap();
        let rest = profile.url.strip_prefix("http://").unwrap();
        let (pages, page) = rest.split_once('/').unwrap();
        let first = format!("job_{}_0001", remote.job.id.tracker);
        assert_eq!(page, format!("coronajobdetails.jsp?jobid={first}"));
        let (head, _) = fetch(pages, &format!("/{page}")).unwrap();
        assert!(head.contains(&format!("location: /jobs/{first}\r\n")), "{head}");
        let (head, body) = fetch(pages, &format!("/jobs/{first}")).unwrap();
        assert_eq!(status(&head), "200", "{head}");
        let tasks = format!("href=\"/jobs/{}/tasks?kind=map\"", remote.job.id);
        assert!(body.contains(&tasks), "{body}");
        let other = first.replace("_0001", "_0003");
        assert_eq!(status(&fetch(pages, &format!("/jobs/{other}")).unwrap().0), "404");
        remote.notes().let_go(&remote.job.map(0).to_string()).unwrap();
        let status = remote.ended(&mut client).await;
        assert_eq!(status.run_state, SUCCEEDED, "{status:?}");
        remote.listens = None;
        remote.nothing_left().await;
    });
}

#[test]
fn another_job_tracker_goes_on_with_the_finished_work() {
    block_on(async {
        let steps = |job: Job| {
            let (map, reduce) = (job.map(1).to_string(), job.reduce(0).to_string());
            job.with(RESTARTS.0, RESTARTS.1)
                .with(&format!("test.steps.{map}"), "update=0.5,wait,output,update=1.0,done")
                // It must not be about to commit when its job tracker is killed.
                .with(&format!("test.steps.{reduce}"), "update=0.5,wait,commit,done")
                .steps(TaskRole::Reduce, "commit,done")
        };
        let mut remote = Remote::new(2, 1, steps).await;
        let mut client = remote.start().await;
        client.submit_job(remote.job.id.clone()).await.unwrap();
        remote.waits(&remote.job.map(1)).await;
        // The first map is done, and the parent knows it.
        let first = remote.job.map(0);
        let parent = remote.parent.clone();
        let saved = || {
            let told = parent.told();
            let mut of_first = told.updates.iter().filter_map(|update| match &update.update {
                Update::StatusUpdate(update) if update.status.attempt == first => Some(update),
                _ => None,
            });
            of_first.next_back().filter(|it| it.status.state == TaskState::Succeeded).map(|_| ())
        };
        until("the first map's end at the parent", saved).await;
        let second = remote.job.map(1);
        let updates = parent.told().updates.clone();
        let launches = updates.iter().filter(
            |update| matches!(&update.update, Update::Launch(launch) if launch.attempt == second),
        );
        assert_eq!(launches.count(), 1);

        // The parent notices the end of the job tracker, ends its session, and has another one started.
        let pid = remote.pid().await;
        signal("KILL", pid.unsigned_abs());
        let lost = remote.session();
        until("the end of the process", || (!runs(pid)).then_some(())).await;
        let driver = remote.driver.as_ref().unwrap();
        driver.end_other(lost).expect("a session");
        driver.release([1]).expect("a session");
        remote.parent.told().restarts = 1;
        let mut client = remote.start().await;
        client.submit_job(remote.job.id.clone()).await.unwrap();
        let status = client.get_job_status(remote.job.id.clone()).await.unwrap().unwrap();
        assert_eq!((status.run_state, status.setup_progress), (RUNNING, 1.0));
        assert!(status.map_progress >= 0.5, "{status:?}");
        let status = remote.ended(&mut client).await;
        assert_eq!(status.run_state, SUCCEEDED, "{status:?}");
        // Each task committed once, with the parent's permission.
        let permissions = remote.parent.told().permissions.clone();
        assert_eq!(permissions.len(), 1, "{permissions:?}");
        assert_eq!(permissions[0].1, None);
        remote.listens = None;
        remote.nothing_left().await;
    });
}

/// The process that a test kills while a map waits.
async fn killed(settings: &[(&str, &str)]) -> (Remote, i32) {
    let steps = |job: Job| {
        let job = job.steps(TaskRole::Map, "update=0.5,wait,done");
        settings.iter().fold(job, |job, (key, value)| job.with(key, value))
    };
    let mut remote = Remote::new(1, 0, steps).await;
    let mut client = remote.start().await;
    client.submit_job(remote.job.id.clone()).await.unwrap();
    remote.waits(&remote.job.map(0)).await;
    let pid = remote.pid().await;
    (remote, pid)
}

#[test]
fn nothing_is_left_of_a_parent_that_is_gone() {
    for settings in [&[][..], &[RESTARTS]] {
        block_on(async {
            let (mut remote, pid) = killed(settings).await;
            remote.listens = None;
            until("the end of the job tracker", || (!runs(pid)).then_some(())).await;
            remote.nothing_left().await;
        });
    }
}

#[test]
fn nothing_is_left_of_a_job_tracker_that_is_killed() {
    block_on(async {
        let (mut remote, pid) = killed(&[]).await;
        let session = remote.session();
        signal("KILL", pid.unsigned_abs());
        until("the end of the job tracker", || (!runs(pid)).then_some(())).await;
        // As a parent does that notices it.
        remote.driver.as_ref().unwrap().end_other(session).unwrap();
        remote.nothing_left().await;
        remote.listens = None;
    });
}

#[test]
fn nothing_is_left_of_a_job_that_is_killed() {
    block_on(async {
        let (mut remote, pid) = killed(&[]).await;
        let mut client = remote.client();
        client.kill_job(remote.job.id.clone()).await.unwrap();
        assert_eq!(remote.ended(&mut client).await.run_state, KILLED);
        assert_eq!(remote.sessions(), [remote.job.id.tracker.clone()]);
        remote.listens = None;
        until("the end of the job tracker", || (!runs(pid)).then_some(())).await;
        remote.nothing_left().await;
    });
}

#[test]
fn nothing_is_left_of_a_node_that_stops() {
    block_on(async {
        let (mut remote, pid) = killed(&[]).await;
        remote.node.ask_to_end();
        assert!(remote.node.ended().await.success());
        assert!(!runs(pid), "it ends with its node");
        until("one session", || (remote.sessions().len() == 1).then_some(())).await;
        // The files of its jobs are deleted at its next start.
        remote.node = remote.home.start().await;
        remote.nothing_left().await;
        remote.listens = None;
    });
}

#[test]
fn nothing_is_left_of_a_node_that_is_killed() {
    block_on(async {
        let (mut remote, pid) = killed(&[]).await;
        remote.node.crash();
        // The job tracker continues: its job may have tasks on other nodes.
        assert!(runs(pid));
        // The next task tracker of the node ends what the last one has left.
        remote.node = remote.home.start().await;
        until("the end of the job tracker", || (!runs(pid)).then_some(())).await;
        let session = remote.session();
        remote.driver.as_ref().unwrap().end_other(session).unwrap();
        remote.nothing_left().await;
        remote.listens = None;
    });
}

#[test]
fn a_job_tracker_that_its_parent_does_not_know_ends() {
    block_on(async {
        let (mut remote, pid) = killed(&[RESTARTS]).await;
        // The parent has another one.
        remote.parent.told().attempt = "attempt_of_another".into();
        until("the end of the job tracker", || (!runs(pid)).then_some(())).await;
        until("one session", || (remote.sessions().len() == 1).then_some(())).await;
        // Its tasks are left to the other one, until that is gone too.
        remote.listens = None;
        remote.nothing_left().await;
    });
}

#[test]
fn a_job_of_a_thousand_maps_takes_little_memory() {
    block_on(async {
        let mut remote = Remote::new(1000, 1, |job| job.steps(TaskRole::Map, "wait,done")).await;
        let mut client = remote.start().await;
        client.submit_job(remote.job.id.clone()).await.unwrap();
        remote.waits(&remote.job.map(0)).await;
        let reports = client.get_map_task_reports(remote.job.id.clone()).await.unwrap().unwrap();
        assert_eq!(reports.len(), 1000);
        let pid = remote.pid().await;
        let resident = corona::process::procfs::Process::of(pid).expect("a process").resident_bytes;
        show(&format!("resident memory with 1,000 maps: {} KiB", resident >> 10));
        // In a build that is not optimised, most of it are pages of the program itself: 64 to 67 MiB in all.
        // The aim of 30 MB is for an optimised build.
        assert!(resident < 96 << 20, "{resident}");
        client.kill_job(remote.job.id.clone()).await.unwrap();
        remote.listens = None;
        remote.nothing_left().await;
    });
}
