//! A job tracker that sends actions and keeps the reports of trackers.
//!
//! It decides little by itself: it permits commits if configured to, and makes an event of each map
//! that succeeded, so that reduces find its output.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corona::hadoop::protocols::corona_task_tracker::CoronaTaskTrackerClient;
use corona::hadoop::protocols::inter_tracker::{InterTracker, Served};
use corona::hadoop::rpc::{Caller, ClientOptions, Fault, Limits, Server, Services, User};
use corona::hadoop::writables::{
    Action, EventStatus, HeartbeatResponse, InetAddress, JobId, SessionInfo, SessionTrackers, Task,
    TaskAttemptId, TaskCompletionEvent, TaskState, TaskStatus, TaskTrackerAction,
    TaskTrackerStatus,
};
use corona::task_tracker::attempt::is_last_report;
use corona::wire::server::{ListenOn, listen};
use tokio::sync::watch;

use super::{PATIENCE, until};

/// The build that it reports.
pub const BUILD: &str = "0.20 from test by test on a day";

/// A job tracker of one session.
#[derive(Debug)]
pub struct JobTracker {
    shared: Arc<JobTrackerCore>,
    session: SessionInfo,
    /// Where the task tracker takes actions.
    actions: tokio::sync::Mutex<Option<CoronaTaskTrackerClient>>,
    stop: Mutex<Option<watch::Sender<bool>>>,
}

#[derive(Debug)]
struct JobTrackerCore {
    state: Mutex<JobTrackerState>,
}

/// The calls that it received, and its answers.
#[derive(Debug, Default)]
pub struct JobTrackerState {
    /// All heartbeats with the arguments beside the status: restarted, initial contact, accepts new
    /// tasks, response id.
    pub heartbeats: Vec<(TaskTrackerStatus, [bool; 3], i16)>,
    /// When the first report of each attempt came.
    pub first_reports: Vec<(TaskAttemptId, Instant)>,
    /// The events for reduces.
    pub events: Vec<TaskCompletionEvent>,
    /// Errors that trackers reported.
    pub errors: Vec<String>,
    /// How often it was asked for its build.
    pub build_versions: usize,
    /// How often heartbeats are wanted.
    pub interval: Option<Duration>,
    /// So many of the next heartbeats are answered with an error.
    pub failing_heartbeats: usize,
}

impl JobTracker {
    /// Starts one for a session, on a free port of loopback. Must be called within a runtime.
    ///
    /// # Panics
    /// When there is no port.
    pub fn start(session: &str) -> JobTracker {
        let listener = listen(ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into()));
        let listener = listener.expect("a free port for the job tracker");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(JobTrackerCore { state: Mutex::default() });
        let services = Services::new().offer(Served::new(shared.clone()));
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(Server::new(listener, services, Limits::default()).run(stopped));
        let session = SessionInfo {
            handle: Some(session.to_owned()),
            trackers: SessionTrackers { job_tracker: inet(address), secondary: None },
        };
        let stop = Mutex::new(Some(stop));
        JobTracker { shared, session, actions: Default::default(), stop }
    }

    /// The session, as it appears in actions.
    pub fn session(&self) -> &SessionInfo {
        &self.session
    }

    /// Sends actions to this task tracker from now on: the address in its heartbeat to the cluster
    /// manager, `host:port`.
    ///
    /// # Panics
    /// When that is no address.
    pub async fn use_tracker(&self, address: &str) {
        let (host, port) = address.rsplit_once(':').expect("a host and a port");
        let address = InetAddress {
            host: host.to_owned(),
            port: port.parse().expect("the number of a port"),
        };
        let client = CoronaTaskTrackerClient::new(address, client_options());
        *self.actions.lock().await = Some(client);
    }

    /// Sends actions on behalf of the session, in one call.
    ///
    /// # Panics
    /// When the task tracker does not take them.
    pub async fn submit(&self, actions: Vec<Action>) {
        let session = Some(self.session.clone());
        let with_session = |action| TaskTrackerAction { session: session.clone(), action };
        let actions = actions.into_iter().map(with_session).collect();
        let mut client = self.actions.lock().await;
        let client = client.as_mut().expect("the task tracker is known");
        client.submit_actions(Some(actions)).await.expect("the task tracker takes actions");
    }

    /// Launches tasks.
    pub async fn launch(&self, tasks: impl IntoIterator<Item = Task>) {
        let launch = |task| Action::Launch(Box::new(task));
        self.submit(tasks.into_iter().map(launch).collect()).await;
    }

    /// Permits a commit.
    pub async fn permit(&self, attempt: &TaskAttemptId) {
        self.submit(vec![Action::Commit(attempt.clone())]).await;
    }

    /// Ends a task.
    pub async fn kill_task(&self, attempt: &TaskAttemptId) {
        self.submit(vec![Action::KillTask(attempt.clone())]).await;
    }

    /// Ends a job.
    pub async fn kill_job(&self, job: &JobId) {
        self.submit(vec![Action::KillJob(job.clone())]).await;
    }

    /// The calls that it received; also to change its answers.
    pub fn state(&self) -> MutexGuard<'_, JobTrackerState> {
        self.shared.state()
    }

    /// All reports of an attempt, in order.
    pub fn reports(&self, attempt: &TaskAttemptId) -> Vec<TaskStatus> {
        let state = self.state();
        let all = state.heartbeats.iter().flat_map(|(status, ..)| &status.tasks);
        all.filter(|report| report.attempt == *attempt).cloned().collect()
    }

    /// All reported diagnostics of an attempt.
    pub fn diagnostics(&self, attempt: &TaskAttemptId) -> String {
        self.reports(attempt).into_iter().map(|report| report.diagnostics).collect()
    }

    /// The first report of an attempt that fits, once it has come.
    pub async fn report(
        &self,
        what: &str,
        attempt: &TaskAttemptId,
        fits: impl Fn(&TaskStatus) -> bool,
    ) -> TaskStatus {
        let look = || self.reports(attempt).into_iter().find(|report| fits(report));
        until(&format!("{what} of {attempt}"), look).await
    }

    /// The first report of an attempt in this state.
    pub async fn state_of(&self, attempt: &TaskAttemptId, state: TaskState) -> TaskStatus {
        self.report(&format!("state {state}"), attempt, |report| report.state == state).await
    }

    /// The last report of so many runs of an attempt.
    pub async fn ended(&self, attempt: &TaskAttemptId, runs: usize) -> TaskStatus {
        let look = || {
            let mut ends = self.reports(attempt).into_iter().filter(is_last_report);
            ends.nth(runs.saturating_sub(1))
        };
        until(&format!("the end of {attempt}"), look).await
    }

    /// Waits for so many more heartbeats.
    pub async fn heartbeats(&self, more: usize) {
        let before = self.state().heartbeats.len();
        let come = || (self.state().heartbeats.len() >= before + more).then_some(());
        until("heartbeats", come).await;
    }

    /// Vanishes: its port has no listener any more.
    pub async fn vanish(&self) {
        drop(self.stop.lock().unwrap_or_else(PoisonError::into_inner).take());
        let InetAddress { host, port } = &self.session.trackers.job_tracker;
        let deadline = Instant::now() + PATIENCE;
        while tokio::net::TcpStream::connect((host.as_str(), *port)).await.is_ok() {
            assert!(Instant::now() < deadline, "the job tracker goes on to listen");
            tokio::time::sleep(super::PAUSE).await;
        }
    }
}

/// An address as job trackers write it.
pub fn inet(address: SocketAddr) -> InetAddress {
    InetAddress { host: address.ip().to_string(), port: address.port() }
}

/// How tests call.
pub fn client_options() -> ClientOptions {
    let user = User { name: "test".to_owned(), groups: vec!["test".to_owned()] };
    ClientOptions { call_timeout: Some(PATIENCE), ..ClientOptions::new(user) }
}

impl JobTrackerCore {
    fn state(&self) -> MutexGuard<'_, JobTrackerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The event that follows from a map's success.
fn event(report: &TaskStatus, tracker: &TaskTrackerStatus, event_id: usize) -> TaskCompletionEvent {
    TaskCompletionEvent {
        attempt: report.attempt.clone(),
        id_within_job: report.attempt.task.number,
        is_map: true,
        status: EventStatus::Succeeded,
        tracker_http: Some(format!("http://{}:{}", tracker.host, tracker.http_port)),
        run_time_ms: 1,
        event_id: i32::try_from(event_id).unwrap_or(i32::MAX),
    }
}

impl InterTracker for JobTrackerCore {
    async fn heartbeat(
        &self,
        _caller: &Caller,
        status: TaskTrackerStatus,
        restarted: bool,
        initial_contact: bool,
        accept_new_tasks: bool,
        response_id: i16,
    ) -> Result<HeartbeatResponse, Fault> {
        let mut state = self.state();
        if state.failing_heartbeats > 0 {
            state.failing_heartbeats -= 1;
            return Err(Fault::io("not now"));
        }
        for report in &status.tasks {
            if !state.first_reports.iter().any(|(attempt, _)| *attempt == report.attempt) {
                state.first_reports.push((report.attempt.clone(), Instant::now()));
            }
            if report.is_map() && report.state == TaskState::Succeeded && report.output_size > 0 {
                let event = event(report, &status, state.events.len());
                state.events.push(event);
            }
        }
        state.heartbeats.push((
            status,
            [restarted, initial_contact, accept_new_tasks],
            response_id,
        ));
        let interval = state.interval.unwrap_or(Duration::from_millis(50));
        Ok(HeartbeatResponse {
            response_id: response_id.wrapping_add(1),
            interval_ms: i32::try_from(interval.as_millis()).unwrap_or(i32::MAX),
            ..HeartbeatResponse::default()
        })
    }

    async fn get_build_version(&self, _caller: &Caller) -> Result<String, Fault> {
        self.state().build_versions += 1;
        Ok(BUILD.to_owned())
    }

    async fn get_task_completion_events(
        &self,
        _caller: &Caller,
        job: JobId,
        from: i32,
        max: i32,
    ) -> Result<Vec<TaskCompletionEvent>, Fault> {
        let (from, max) =
            (usize::try_from(from).unwrap_or(0), usize::try_from(max).unwrap_or_default());
        let state = self.state();
        let of_job = state.events.iter().filter(|event| *event.attempt.job() == job);
        Ok(of_job.skip(from).take(max.min(100)).cloned().collect())
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
        let told = format!("{}: {}", tracker.unwrap_or_default(), message.unwrap_or_default());
        self.state().errors.push(told);
        Ok(())
    }
}
