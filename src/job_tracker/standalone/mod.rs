//! The remote job tracker: one job, for a parent elsewhere, in a process that a task tracker has started.
//!
//! ```text
//!  parent ──► submission ─┐                ┌──► live, launcher ──► task trackers
//!  task trackers ──►      ├─► job ── outlet┤
//!    reports ─────────────┘                └──► saver ──► parent
//!  parent ◄── a report each second
//! ```
//!
//! It opens a session of its own at the cluster manager, reports its address to the parent, and waits for
//! the submission. With state restoring on, the parent has each launch before it leaves and each end of an
//! attempt before it is acknowledged; a job tracker that takes this one's place begins with that. It ends
//! when the parent does not answer any more. Spec: mapreduce/05 §5.7, mapreduce/09 §I.
//!
//! * `arguments`: the words of its start; pure;
//! * `parent`: the calls to the parent; `outlet`: what carries out the decisions of the job;
//! * `submission`, `reports`: the calls of Hadoop RPC.

mod arguments;
mod outlet;
mod parent;
mod reports;
mod submission;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corona_access::{Gate, GateError};
use corona_config::{
    ConfigErrors, HostPort, JobConf, JobTrackerServiceSettings, LoadedJobTracker, SiteProperties,
    keys,
};
use corona_filesystem::{FileSystems, FsError};
use corona_hadoop::protocols::{ALL, inter_tracker, job_submission};
use corona_hadoop::rpc::{self, CallError, User};
use corona_hadoop::writables as wire;
use corona_hadoop::writables::{InetAddress, SessionInfo, SessionTrackers};
use corona_mapreduce::settings::pool_of_job;
use corona_model::types::session_directory;
use corona_process::Boxed;
use corona_process::panics::{Loops, ServiceTasks, spawn_detached};
use corona_session_driver::{
    DriverHost, Listen, SessionDriver, SessionEvents, SessionStatus, StartError as NoSession,
};
use thiserror::Error;
use tokio::net::{TcpListener, lookup_host};
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use self::outlet::ToParent;
use self::parent::{Item, Parent, is_refused};
use self::reports::Reports;
use self::submission::Submissions;
use crate::clock;
use crate::jobs::job::Job;
use crate::jobs::session_types;
use crate::jobs::store::Store;
use crate::launch::builds::Builds;
use crate::launch::cluster::Cluster;
use crate::launch::launcher::Launcher;
use crate::launch::reach;
use crate::meter::Meter;
use crate::pages::Pages;
use crate::pages::sources::PageSources;
use crate::service::{endpoint, session_options};
use crate::submit::submission::count;
use corona_job_engine::JobInput;

pub use self::arguments::{Arguments, NotArguments};

/// The pause between reports to the parent. Spec: mapreduce/03 §3.4.
const REPORT_PAUSE: Duration = Duration::from_secs(1);
/// Updates and orders that wait for the parent; with more, the job tracker ends.
const MAX_ITEMS: usize = 1_000_000;
/// How long the proxy job tracker may take for a connection, and for a reply.
const PROXY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end of the job may take when the parent is gone.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How long orders to forget the job may take then.
const FORGET_TIMEOUT: Duration = Duration::from_secs(2);

/// How a remote job tracker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The job was over, and its parent answered for as long as somebody might ask.
    Lingered,
    /// The parent does not answer, or has another job tracker for the job.
    ParentGone,
    /// It was asked to stop.
    Stopped,
    /// A part of it panicked.
    Panicked,
}

/// Why a remote job tracker does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The job's configuration cannot be used.
    #[error("{path}: {error}", path = path.display())]
    Conf {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: ConfigErrors,
    },
    /// Its certificate cannot be used.
    #[error(transparent)]
    Access(#[from] GateError),
    /// There is nowhere to listen.
    #[error("cannot listen at {host}: {error}")]
    Listen {
        /// The name of this machine.
        host: String,
        /// Why not.
        error: io::Error,
    },
    /// The directory for the files of jobs cannot be used.
    #[error("corona.system.dir: {0}")]
    Files(#[from] FsError),
    /// The cluster manager gives no session.
    #[error("no session at the cluster manager: {0}")]
    Session(#[from] NoSession),
    /// The parent does not answer, or knows another job tracker for the job.
    #[error("the parent at {address}: {error}")]
    Parent {
        /// Where it is.
        address: InetAddress,
        /// What it said.
        error: CallError,
    },
}

/// A remote job tracker that its parent knows.
pub struct RemoteJobTracker {
    gate: Arc<Gate>,
    running: Arc<Running>,
    server: rpc::Server,
    /// For the pages.
    listener: TcpListener,
    stop_serving: watch::Sender<bool>,
    save_failed: Option<oneshot::Receiver<CallError>>,
    linger: Duration,
}

/// What all parts of it share.
pub(crate) struct Running {
    arguments: Arguments,
    settings: Arc<JobTrackerServiceSettings>,
    site: SiteProperties,
    /// The file with the job's configuration, on this machine.
    job_xml: PathBuf,
    conf: JobConf,
    user: User,
    files: Arc<FileSystems>,
    /// The directory of the job's files, qualified.
    job_dir: String,
    builds: Builds,
    /// Where it listens, as others reach it.
    address: InetAddress,
    parent: Parent,
    /// Other job trackers that may take this one's place.
    restarts: Restarts,
    /// Those that were before it.
    fail_overs: u32,
    driver: Arc<SessionDriver>,
    launcher: Launcher,
    cluster: Arc<Cluster>,
    meter: Arc<Meter>,
    /// What the pages show.
    sources: Arc<PageSources>,
    /// The events of the session and the state of an earlier job tracker, until the job begins.
    beginning: Mutex<Option<Beginning>>,
    to_parent: Option<ToParent>,
    job: OnceLock<Job>,
    keeps_tasks: Arc<AtomicBool>,
    /// Becomes true when the job is over and everything that follows is done.
    closed: watch::Sender<bool>,
    /// Becomes true when the program ends.
    stop: watch::Sender<bool>,
}

/// What the job begins with.
struct Beginning {
    events: SessionEvents,
    first: JobInput,
    /// What the outlet of the job leaves with the parent; the saver starts with the job.
    items: Option<mpsc::Receiver<Item>>,
    save_failed: oneshot::Sender<CallError>,
}

/// Whether another job tracker may continue the job. Spec: mapreduce/05 §5.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Restarts {
    /// How often.
    allowed: u32,
    /// Whether it gets the state of this one.
    restoring: bool,
}

impl Restarts {
    fn of(conf: &JobConf) -> Restarts {
        let allowed = count(conf, &keys::JOB_REMOTE_RESTARTS);
        Restarts { allowed, restoring: allowed > 0 && conf.is_true(&keys::JOB_REMOTE_RESTORES) }
    }

    /// Whether this job tracker, before which there were so many, is the last one.
    fn is_last(self, job: &wire::JobId, before: u32) -> bool {
        match self.restoring {
            true => before >= self.allowed,
            // Without its state, each one has a job of its own. Spec: mapreduce/05 §5.7.
            false => job.number > i32::try_from(self.allowed).unwrap_or(i32::MAX),
        }
    }
}

impl std::fmt::Debug for RemoteJobTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteJobTracker")
            .field("job", &self.running.arguments.job)
            .finish_non_exhaustive()
    }
}

impl RemoteJobTracker {
    /// Opens a session and a port, and reports to the parent. `loaded` are the settings with those of the
    /// job above them, `job_xml` its configuration. Must be called within a tokio runtime.
    pub fn start(
        arguments: Arguments,
        loaded: LoadedJobTracker,
        job_xml: PathBuf,
    ) -> Boxed<'static, Result<RemoteJobTracker, StartError>> {
        Box::pin(RemoteJobTracker::open(arguments, loaded, job_xml))
    }

    async fn open(
        arguments: Arguments,
        loaded: LoadedJobTracker,
        job_xml: PathBuf,
    ) -> Result<RemoteJobTracker, StartError> {
        let LoadedJobTracker { settings, site, file_systems, user, .. } = loaded;
        let gate = Gate::open(&settings.tls)?;
        let conf = JobConf::read(&site, &job_xml)
            .map_err(|error| StartError::Conf { path: job_xml.clone(), error })?;
        let process_user = user.unwrap_or_else(|| "unknown".into());
        let user = conf.text_if_set(&keys::JOB_USER).unwrap_or_else(|| process_user.clone());
        let user = User { groups: vec![user.clone()], name: user };
        let parent = Parent {
            address: arguments.parent.clone(),
            attempt: arguments.attempt.clone(),
            user: User { groups: vec![process_user.clone()], name: process_user },
            connect: settings.parent_connect_timeout,
            call: settings.parent_call_timeout,
        };
        let restarts = Restarts::of(&conf);
        let files = Arc::new(FileSystems::new(file_systems)?);
        let (_, system_dir) = files.resolve(&named_system_dir(&settings).await)?;
        let job_dir = format!("{}/{}", system_dir.to_string().trim_end_matches('/'), arguments.job);
        let (listener, pages, address, pages_at) = listen(&arguments).await?;
        // The session is opened while the parent looks for what an earlier job tracker has left.
        let (state, session) = tokio::join!(
            saved_state(&parent, restarts),
            open_session(&settings, &conf, &user.name, &gate)
        );
        let (driver, events) = session?;
        let driver = Arc::new(driver);
        let (first, fail_overs) = match state {
            Err(error) => {
                driver.end(SessionStatus::Killed).await;
                return Err(StartError::Parent { address: parent.address, error });
            }
            Ok(None) => (JobInput::Submitted, 0),
            Ok(Some(state)) => {
                let before = u32::try_from(state.restarts).unwrap_or(0);
                (corona_job_wire::saved::input(&arguments.job, state), before)
            }
        };
        let (tell_failure, save_failed) = oneshot::channel();
        let (to_parent, items) = restarts.restoring.then(|| mpsc::channel(MAX_ITEMS)).unzip();
        let to_parent = to_parent.map(ToParent::new);
        let beginning = Beginning { events, first, items, save_failed: tell_failure };
        let linger = settings.linger;
        let (store, job, host) = (Store::of_one(), Some(arguments.job.clone()), &address.host);
        let settings = Arc::new(settings);
        let sources =
            PageSources::new(settings.clone(), store, files.clone(), None, job, host, pages_at);
        let running = Arc::new(Running {
            job_dir,
            conf,
            files,
            builds: Builds::new(&settings.build_version, None),
            address,
            restarts,
            fail_overs,
            driver,
            launcher: Launcher::new(
                user.clone(),
                settings.launch_connect_timeout,
                settings.launch_call_timeout,
            ),
            cluster: sources.cluster.clone(),
            meter: sources.meter.clone(),
            sources,
            beginning: Mutex::new(Some(beginning)),
            to_parent,
            job: OnceLock::new(),
            keeps_tasks: Arc::default(),
            closed: watch::Sender::new(false),
            stop: watch::Sender::new(false),
            arguments,
            site,
            job_xml,
            user,
            parent,
            settings,
        });
        let limits = rpc::Limits {
            max_total_inflight_bytes: running.settings.rpc_max_total_inflight_bytes,
            ..rpc::Limits::default()
        };
        let services = rpc::Services::new()
            .offer(job_submission::Served::new(Arc::new(Submissions(running.clone()))))
            .offer(inter_tracker::Served::new(Arc::new(Reports(running.clone()))))
            .know(ALL);
        let server = rpc::Server::new(listener, services, limits).with_gate(gate.clone());
        let stop_serving = watch::Sender::new(false);
        let save_failed = running.restarts.restoring.then_some(save_failed);
        Ok(RemoteJobTracker {
            gate,
            running,
            server,
            listener: pages,
            stop_serving,
            save_failed,
            linger,
        })
    }

    /// Where it listens, as the parent learns it.
    pub fn address(&self) -> &InetAddress {
        &self.running.address
    }

    /// Its session.
    pub fn session(&self) -> &str {
        self.running.driver.handle()
    }

    /// Serves until the parent is gone, nobody asks any more, or `stop` becomes true. Nothing of it is
    /// left then: its session is ended, and task trackers forget the job unless another job tracker goes
    /// on with it.
    pub fn run(self, stop: watch::Receiver<bool>) -> Boxed<'static, Ending> {
        Box::pin(self.serve(stop))
    }

    async fn serve(self, mut stop: watch::Receiver<bool>) -> Ending {
        let RemoteJobTracker { gate, running, server, listener, stop_serving, save_failed, linger } =
            self;
        let mut loops = Loops::default();
        let (renewed, stopped) = (gate.clone(), running.stop.subscribe());
        loops.spawn("the renewal of certificates", move || {
            renewed.clone().maintain(stopped.clone())
        });
        let watched = running.clone();
        loops.spawn("the watch of task trackers", move || watch_trackers(watched.clone()));
        loops.spawn("the watch for stalls", clock::watch);
        let pages = Arc::new(Pages::new(running.sources.clone(), gate));
        let pages = corona_web::server::serve(pages, listener, running.stop.subscribe());
        // The job goes on without them.
        let pages = spawn_detached("the server for pages", pages);
        let mut servers = ServiceTasks::default();
        servers.spawn("the server", server.run(stop_serving.subscribe()));
        let save_failed = async move {
            match save_failed {
                Some(failed) => match failed.await {
                    Ok(error) => error,
                    Err(_) => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        };
        let (ending, refused) = tokio::select! {
            error = running.report(linger) => match error {
                None => (Ending::Lingered, false),
                Some(error) => (Ending::ParentGone, running.parent_gone(&error)),
            },
            error = save_failed => (Ending::ParentGone, running.parent_gone(&error)),
            // Its sender lives as long as the program.
            _ = stop.wait_for(|stop| *stop) => (Ending::Stopped, false),
            Err(_) = servers.ended() => (Ending::Panicked, false),
        };
        running.end(refused, &stop_serving).await;
        pages.abort();
        ending
    }
}

/// Watches for task trackers that have died without a word.
async fn watch_trackers(running: Arc<Running>) {
    let jobs = || running.job().into_iter().collect();
    let Running { cluster, settings, .. } = &*running;
    let manager = settings.cluster_manager.clone();
    reach::watch(cluster.clone(), manager, jobs, settings.node_unreachable).await;
}

impl Running {
    /// The job, once it was submitted.
    pub(crate) fn job(&self) -> Option<Job> {
        self.job.get().cloned()
    }

    /// What orders to task trackers say of the job's session.
    fn session_info(&self) -> SessionInfo {
        let trackers = SessionTrackers {
            job_tracker: self.address.clone(),
            // It knows the address of the job tracker that takes this one's place.
            secondary: self.restarts.restoring.then(|| self.parent.address.clone()),
        };
        SessionInfo { handle: Some(self.driver.handle().to_string()), trackers }
    }

    /// Reports to the parent each second. Returns the error of a report, or nothing when the job has been
    /// over for so long.
    async fn report(&self, linger: Duration) -> Option<CallError> {
        let mut client = self.parent.client();
        let mut closed_at: Option<Instant> = None;
        loop {
            let attempt = self.arguments.attempt.to_string();
            let InetAddress { host, port } = self.address.clone();
            let session = self.driver.handle().to_string();
            let report =
                client.report_remote_corona_job_tracker(attempt, host, port.into(), session);
            if let Err(error) = report.await {
                return Some(error);
            }
            if self.to_parent.as_ref().is_some_and(ToParent::is_full) {
                tracing::error!("the parent takes updates too slowly");
                return Some(CallError::Closed);
            }
            if *self.closed.borrow() {
                let since = *closed_at.get_or_insert_with(Instant::now);
                if since.elapsed() >= linger {
                    return None;
                }
            }
            sleep(REPORT_PAUSE.min(linger)).await;
        }
    }

    /// The parent does not answer as it should; whether nobody listens there any more.
    fn parent_gone(&self, error: &CallError) -> bool {
        let parent = &self.parent.address;
        match *self.closed.borrow() {
            true => tracing::info!(%parent, %error, "the parent is gone; this job tracker ends"),
            false => tracing::error!(%parent, %error, "no report to the parent; the job ends here"),
        }
        is_refused(error)
    }

    /// Ends the job, if it runs, and the session. Another job tracker may continue its tasks unless the
    /// parent has ended.
    async fn end(&self, parent_ended: bool, stop_serving: &watch::Sender<bool>) {
        if *self.closed.borrow() {
            self.launcher.drained(FORGET_TIMEOUT).await;
            return;
        }
        let goes_on = self.restarts.allowed > 0 && !parent_ended && !self.is_last_try();
        self.keeps_tasks.store(goes_on, Ordering::Release);
        // No call begins a job from here on.
        self.beginning.lock().await.take();
        if goes_on {
            // Task trackers ask the parent for the next one.
            stop_serving.send_replace(true);
        }
        match self.job() {
            Some(job) => {
                job.notify(JobInput::SessionLost { aborted: false });
                let mut closed = self.closed.subscribe();
                if timeout(END_TIMEOUT, closed.wait_for(|closed| *closed)).await.is_err() {
                    tracing::warn!("the job did not end in time");
                }
            }
            None => drop(self.driver.end(SessionStatus::Killed).await),
        }
        self.launcher.drained(FORGET_TIMEOUT).await;
        self.stop.send_replace(true);
    }

    fn is_last_try(&self) -> bool {
        self.restarts.is_last(self.arguments.attempt.job(), self.fail_overs)
    }
}

/// The directory of the files of jobs: as configured, else as the proxy job tracker names it, else the
/// default. Spec: mapreduce/05 §5.1.
async fn named_system_dir(settings: &JobTrackerServiceSettings) -> String {
    let (false, Some(proxy)) = (settings.system_dir_is_set, &settings.proxy_job_tracker) else {
        return settings.system_dir.clone();
    };
    match corona_session_driver::system_dir(&endpoint(proxy), PROXY_TIMEOUT).await {
        Ok(directory) => directory,
        Err(error) => {
            let directory = settings.system_dir.clone();
            tracing::warn!(%error, directory, "the proxy job tracker does not name the directory of jobs");
            directory
        }
    }
}

/// What an earlier job tracker of the job has left; nothing if there was none.
async fn saved_state(
    parent: &Parent,
    restarts: Restarts,
) -> Result<Option<wire::JobTrackerState>, CallError> {
    if !restarts.restoring {
        return Ok(None);
    }
    let state = parent.client().get_corona_job_tracker_state(parent.attempt.clone()).await?;
    Ok(Some(state).filter(|state| state.restarts > 0 || !state.updates.is_empty()))
}

/// Opens a session, named as the original's until the job is submitted. Spec: mapreduce/05 §5.2.
async fn open_session(
    settings: &JobTrackerServiceSettings,
    conf: &JobConf,
    user: &str,
    gate: &Arc<Gate>,
) -> Result<(SessionDriver, SessionEvents), StartError> {
    let manager = endpoint(&settings.cluster_manager);
    let mut listen = Listen::default();
    listen.gate = gate.clone();
    let host = DriverHost::open(&manager, &listen).await.map_err(|error| StartError::Listen {
        host: settings.cluster_manager.to_string(),
        error,
    })?;
    let mut options = session_options(settings, user);
    options.pool = session_types::pool(&pool_of_job(conf, user, &conf.text(&keys::JOB_QUEUE)));
    // The engine releases what is lost.
    options.release_lost = false;
    Ok(host.start(options).await?)
}

/// Listens at any two ports of this node, under the name that its task tracker has: for calls, and for
/// pages. The address is that for calls.
async fn listen(
    arguments: &Arguments,
) -> Result<(TcpListener, TcpListener, InetAddress, HostPort), StartError> {
    let host = match &arguments.node {
        Some((host, _)) => host.clone(),
        None => corona_process::machine_name().unwrap_or_default(),
    };
    let failed = |error| StartError::Listen { host: host.clone(), error };
    let found = lookup_host((host.as_str(), 0)).await.map_err(failed)?.next();
    let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let socket = found.ok_or_else(none).map_err(failed)?;
    let at_any_port = || corona_net::listen(corona_net::ListenOn::Address(socket)).map_err(failed);
    let (listener, pages) = (at_any_port()?, at_any_port()?);
    let port = |listener: &TcpListener| listener.local_addr().map(|at| at.port()).map_err(failed);
    let at = HostPort { host: host.as_str().into(), port: port(&pages)? };
    let port = port(&listener)?;
    Ok((listener, pages, InetAddress { host, port }, at))
}

/// The directory of the history of a session, as the cluster manager chooses it: the job keeps the id of
/// its parent's session. Spec: mapreduce/05 §5.7, cluster-manager/05 §3.1.
fn session_log(conf: &JobConf, session: &str) -> String {
    let root = conf.text(&keys::SESSIONS_LOG_DIR);
    let most = conf.number(&keys::SESSIONS_PER_LOG_DIR).unwrap_or(1).max(1);
    let most = i32::try_from(most).unwrap_or(i32::MAX);
    let directory = session_directory(session, most).unwrap_or_else(|| format!("{session}.0"));
    format!("{}/{directory}", root.trim_end_matches('/'))
}

/// The page of the job. The proxy job tracker passes requests on while this process runs, and shows the
/// history of the job afterwards. Spec: mapreduce/05 §5.6.
fn tracking_url(conf: &JobConf, arguments: &Arguments, at: &HostPort) -> String {
    const PAGE: &str = "coronajobdetails.jsp";
    let session = &arguments.attempt.job().tracker;
    let job = format!("job_{session}_0001");
    match conf.text_if_set(&keys::CLIENT_PROXY) {
        Some(proxy) => {
            let HostPort { host, port } = at;
            format!("http://{proxy}/proxy?host={host}&port={port}&path={PAGE}&jobid={job}")
        }
        None => format!("http://{at}/{PAGE}?jobid={job}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::submission::tests::conf;

    #[test]
    fn restarts_are_those_of_the_job() {
        let of = |properties: &[(&str, &str)]| Restarts::of(&conf(properties));
        let count = "mapred.coronajobtracker.restart.count";
        let restoring = "mapred.coronajobtracker.remote.state.restoring";
        assert_eq!(of(&[]), Restarts { allowed: 0, restoring: false });
        assert_eq!(of(&[(count, "2")]), Restarts { allowed: 2, restoring: true });
        let without = of(&[(count, "2"), (restoring, "false")]);
        assert_eq!(without, Restarts { allowed: 2, restoring: false });
        let job = |number| wire::JobId { number, tracker: "20.1".into() };
        let with = of(&[(count, "2")]);
        assert_eq!([0, 1, 2].map(|before| with.is_last(&job(1), before)), [false, false, true]);
        assert_eq!([1, 2, 3].map(|number| without.is_last(&job(number), 0)), [false, false, true]);
    }

    #[test]
    fn the_history_lies_where_that_of_the_parents_session_does() {
        let conf =
            conf(&[("corona.sessions.log.dir", "/h/"), ("corona.history.max.per.dir", "10")]);
        assert_eq!(session_log(&conf, "202611210044.1"), "/h/202611210044.0");
        assert_eq!(session_log(&conf, "202611210044.27"), "/h/202611210044.2");
    }

    #[test]
    fn the_address_of_the_page_is_one() {
        let words = "job_20.1_0002 attempt_20.1_0002_m_100003_0 p 7 n1 50060".split(' ');
        let words: Vec<String> = words.map(str::to_owned).collect();
        let arguments = Arguments::parse(&words).unwrap();
        let at = |host: &str| HostPort { host: host.into(), port: 81 };
        let proxied = conf(&[("mapred.job.tracker.corona.proxyaddr", "proxy:50032")]);
        assert_eq!(
            tracking_url(&proxied, &arguments, &at("n1")),
            "http://proxy:50032/proxy?host=n1&port=81&path=coronajobdetails.jsp&jobid=job_20.1_0001"
        );
        let own = |host| tracking_url(&conf(&[]), &arguments, &at(host));
        assert_eq!(own("n1"), "http://n1:81/coronajobdetails.jsp?jobid=job_20.1_0001");
        assert_eq!(own("::1"), "http://[::1]:81/coronajobdetails.jsp?jobid=job_20.1_0001");
    }
}
