//! The service as a whole: opens its ports and what its parts share, resumes the jobs of an earlier run, and
//! serves until it is stopped.

use std::future::pending;
use std::net::{self, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use corona_access::{Gate, GateError};
use corona_config::{HostPort, JobTrackerServiceSettings, LoadedJobTracker, SiteProperties};
use corona_filesystem::{FileSystems, FsError};
use corona_hadoop::protocols::{
    ALL, inter_corona_job_tracker, inter_tracker as tracker_protocol, job_files as file_protocol,
    job_submission,
};
use corona_hadoop::rpc::{self, User};
use corona_hadoop::writables::InetAddress;
use corona_net::{CannotListen, address_of};
use corona_process::Boxed;
use corona_process::panics::{Loops, TaskPanicked, run_essential};
use corona_session_driver::{DriverHost, Endpoint, Listen, Options, ProgramVersion, Timers};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::clock;
use crate::home::{self, Home, HomeError};
use crate::jobs::finished::Finished;
use crate::jobs::log::Journals;
use crate::jobs::owed::Owed;
use crate::jobs::store::{KnownJob, Store};
use crate::jobs::sweeps::{self, Sweeps};
use crate::launch::builds::Builds;
use crate::launch::cluster::Cluster;
use crate::launch::launcher::Launcher;
use crate::launch::reach;
use crate::meter::Meter;
use crate::pages::Pages;
use crate::pages::shown::Shown;
use crate::rpc::access::Access;
use crate::rpc::clients::LargeAnswers;
use crate::rpc::job_files;
use crate::submit::ids::Ids;
use crate::submit::staged;

/// A job tracker that listens and is ready to serve.
pub struct JobTracker {
    gate: Arc<Gate>,
    pub(crate) shared: Arc<ServiceContext>,
    server: rpc::Server,
    /// For the pages.
    listener: TcpListener,
    addresses: Addresses,
    resumed: usize,
}

/// What a service hands to the one that takes its place, so that clients do not notice: its listeners, and the
/// connections of clients and task trackers.
#[derive(Debug, Default)]
pub struct KeptService {
    /// Where clients and pages connect.
    pub listeners: Vec<net::TcpListener>,
    /// Open connections.
    pub connections: Vec<rpc::KeptConnection>,
}

/// Lets a service that is going to stop keep its connections.
#[derive(Debug)]
pub struct Keeper {
    server: rpc::Keeper,
    pages: Option<net::TcpListener>,
}

impl Keeper {
    /// From now on, connections are not closed when the service stops.
    pub fn keep(&self) {
        self.server.keep();
    }

    /// What was kept, once the service has stopped.
    pub fn take(self) -> KeptService {
        let kept = self.server.take();
        let listeners = kept.listener.into_iter().chain(self.pages).collect();
        KeptService { listeners, connections: kept.connections }
    }
}

/// Where a job tracker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The address that clients and task trackers are given: `mapred.job.tracker`.
    pub rpc: String,
    /// The same as a socket address.
    pub rpc_socket: SocketAddr,
    /// For the cluster manager's notifications.
    pub notifications: String,
    /// The address of the pages, as a URL.
    pub pages: String,
    /// The same as a socket address.
    pub pages_socket: SocketAddr,
}

/// What all parts of the service share.
pub(crate) struct ServiceContext {
    pub(crate) settings: JobTrackerServiceSettings,
    pub(crate) site: SiteProperties,
    pub(crate) store: Arc<Store>,
    pub(crate) access: Access,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) files: Arc<FileSystems>,
    /// The directory of the files of jobs, qualified.
    pub(crate) system_dir: String,
    /// The same as clients and task trackers are given it.
    pub(crate) given_dir: String,
    /// The files in it, where clients and task trackers get them by calls.
    pub(crate) kept_files: Option<job_files::KeptFiles>,
    pub(crate) builds: Builds,
    pub(crate) launcher: Launcher,
    pub(crate) finished: Arc<Finished>,
    pub(crate) sweeps: Arc<Sweeps>,
    pub(crate) ids: Arc<Ids>,
    pub(crate) owed: Arc<Owed>,
    pub(crate) journals: Journals,
    pub(crate) host: DriverHost,
    pub(crate) home: Arc<Home>,
    pub(crate) address: InetAddress,
    pub(crate) meter: Arc<Meter>,
    pub(crate) large_answers: LargeAnswers,
    /// What the pages show.
    pub(crate) shown: Arc<Shown>,
    /// Becomes true when the program ends.
    pub(crate) stop: watch::Sender<bool>,
}

/// Why a job tracker cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] CannotListen),
    /// Its certificate cannot be used.
    #[error(transparent)]
    Access(#[from] GateError),
    /// The directory of what must survive a restart cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The system starts no threads for the journals of jobs.
    #[error("the journals of jobs: {0}")]
    Journals(corona_journal::StorageError),
    /// The directory for the files of jobs cannot be used.
    #[error("corona.system.dir {directory}: {error}")]
    SystemDir {
        /// The value of the key.
        directory: String,
        /// Why it cannot.
        error: FsError,
    },
    /// The files of jobs are to be delivered, and are not on this machine.
    #[error(
        "corona.system.dir {directory}: with corona.jt.deliver.files it must be a directory of this \
         machine, file:/..."
    )]
    NotOwn {
        /// The value of the key.
        directory: String,
    },
    /// The directory for the outputs of jobs cannot be made.
    #[error("{directory}: {error}", directory = directory.display())]
    Outputs {
        /// The directory that was to be made.
        directory: PathBuf,
        /// Why it cannot.
        error: std::io::Error,
    },
}

/// How the service ended.
#[derive(Debug)]
pub enum Ending {
    /// It was asked to stop.
    Stopped,
    /// A part of it panicked.
    Panicked(TaskPanicked),
}

impl std::fmt::Debug for JobTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobTracker").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl JobTracker {
    /// Opens all ports, and resumes the jobs that an earlier run has left. Clients and task
    /// trackers are served in [`JobTracker::run`]. Must be called within a tokio runtime.
    pub fn bind(loaded: LoadedJobTracker) -> Boxed<'static, Result<JobTracker, StartError>> {
        JobTracker::bind_with(loaded, KeptService::default())
    }

    /// The same with what a former service of this process has kept.
    pub fn bind_with(
        loaded: LoadedJobTracker,
        kept: KeptService,
    ) -> Boxed<'static, Result<JobTracker, StartError>> {
        Box::pin(JobTracker::open(loaded, kept))
    }

    async fn open(loaded: LoadedJobTracker, kept: KeptService) -> Result<JobTracker, StartError> {
        let KeptService { mut listeners, connections } = kept;
        let in_place = !listeners.is_empty();
        let LoadedJobTracker { settings, site, file_systems, user, .. } = loaded;
        let gate = Gate::open(&settings.tls)?;
        let home = Home::open(&settings.data_dir)?;
        let user = user.unwrap_or_else(|| "unknown".into());
        let listener = listen(ADDRESS, &settings.address, home.ports().rpc, &mut listeners).await?;
        let socket = listener.local_addr().map_err(CannotListen::at(ADDRESS, &settings.address))?;
        let address = InetAddress { host: settings.address.host.to_string(), port: socket.port() };
        let host = notifications(&settings, home.ports().notifications, &gate).await?;
        let notifications = host.advertised().clone();
        let pages =
            listen(HTTP_ADDRESS, &settings.http_address, home.ports().pages, &mut listeners)
                .await?;
        let pages_socket =
            pages.local_addr().map_err(CannotListen::at(HTTP_ADDRESS, &settings.http_address))?;
        home.remember_ports(home::Ports {
            rpc: socket.port(),
            notifications: notifications.port,
            pages: pages_socket.port(),
        })?;
        let (files, system_dir) = system_dir(&settings, file_systems).await?;
        let kept_files = kept_files(&settings, &system_dir, home.outputs())?;
        let given_dir = match kept_files {
            Some(_) => format!("corona://{address}/"),
            None => system_dir.clone(),
        };
        let finished = Finished::new(home.finished(), settings.finished_jobs);
        let failed = |path: PathBuf, what| move |error| HomeError::System { path, what, error };
        let sync = settings.journal_sync;
        let (ids, given) = Ids::open(home.ids(), sync, clock::now())
            .map_err(failed(home.ids(), "keep ids of jobs"))?;
        let mut ends = session_options(&settings, user.clone());
        ends.timers.end_timeout = Duration::MAX;
        let (owed, debts) = Owed::open(home.owed(), sync, host.clone(), ends)
            .map_err(failed(home.owed(), "keep which sessions are to be ended"))?;
        let home = Arc::new(home);
        // One that listens on all addresses is named as clients name it.
        let at = match &*settings.http_address.host {
            "0.0.0.0" | "::" => address.host.as_str().into(),
            _ => settings.http_address.host.clone(),
        };
        let at = HostPort { host: at, port: pages_socket.port() };
        let (store, of, name) = (Store::of(&settings), Some(home.clone()), &address.host);
        let shown = Shown::new(&settings, store, files.clone(), of, None, name, at);
        let shared = Arc::new(ServiceContext {
            large_answers: LargeAnswers::default(),
            finished: Arc::new(finished),
            store: shown.store.clone(),
            stop: watch::Sender::new(false),
            access: Access {
                service_user: user.clone(),
                submitters: settings.submitters.clone(),
                viewers: settings.viewers.clone(),
                administrators: settings.administrators.clone(),
            },
            cluster: shown.cluster.clone(),
            files,
            system_dir,
            given_dir,
            kept_files,
            builds: Builds::new(&settings.build_version, Some(home.builds())),
            launcher: Launcher::new(
                User { groups: vec![user.clone()], name: user },
                settings.launch_connect_timeout,
                settings.launch_call_timeout,
            ),
            sweeps: Sweeps::new(shown.files.clone(), sweeps::QUIET),
            ids: Arc::new(ids),
            owed: Arc::new(owed),
            journals: Journals::start(
                settings.journal_sync,
                settings.journal_image_bytes,
                &home.lock(),
            )
            .map_err(StartError::Journals)?,
            host,
            home,
            address,
            meter: shown.meter.clone(),
            shown,
            site,
            settings,
        });
        for (id, user) in given {
            shared.store.give(id, user);
        }
        let resumed = shared.resume_jobs(debts, in_place).await;
        let addresses = Addresses {
            rpc: shared.address.to_string(),
            rpc_socket: socket,
            notifications: notifications.to_string(),
            pages: shared.shown.address(),
            pages_socket,
        };
        let server = rpc::Server::new(listener, services(&shared), limits(&shared.settings))
            .with_former(connections)
            .with_gate(gate.clone());
        Ok(JobTracker { gate, shared, server, listener: pages, addresses, resumed })
    }

    /// Keeps the connections of clients over its end.
    pub fn keeper(&self) -> Keeper {
        let pages = self.listener.as_fd().try_clone_to_owned().ok().map(Into::into);
        Keeper { server: self.server.keeper(), pages }
    }

    /// Where it listens.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Resumed jobs of an earlier run.
    pub fn resumed(&self) -> usize {
        self.resumed
    }

    /// Serves until `stop` becomes true or its sender is dropped. The jobs that run then resume when
    /// the service is started again; their sessions are not ended.
    pub fn run(self, stop: watch::Receiver<bool>) -> Boxed<'static, Ending> {
        Box::pin(async move {
            let mut loops = Loops::default();
            let shared = || self.shared.clone();
            let of = shared();
            loops.spawn("the list of hosts", move || of.clone().follow_hosts());
            let of = shared();
            loops.spawn("the watch of task trackers", move || of.clone().watch_trackers());
            loops.spawn("the watch for stalls", clock::watch);
            let of = shared();
            loops.spawn("the begin of jobs that wait", move || of.clone().serve_waiting());
            let of = shared();
            loops.spawn("the removal of old outputs", move || of.clone().remove_old_outputs());
            let events = self.shared.shown.events.clone();
            loops.spawn("the events of privileged actions", move || {
                let events = events.clone();
                async move { events.publish_actions().await }
            });
            let (gate, stopped) = (self.gate.clone(), stop.clone());
            loops.spawn("the renewal of certificates", move || {
                gate.clone().maintain(stopped.clone())
            });
            let pages = Arc::new(Pages::new(self.shared.shown.clone(), self.gate));
            let pages = corona_web::server::serve(pages, self.listener, stop.clone());
            let pages = run_essential("the server for pages", pages);
            let served =
                run_essential("the server for clients and task trackers", self.server.run(stop));
            // The pages may take longer than the others to end.
            let only_panics = async {
                match pages.await {
                    Ok(()) => pending().await,
                    Err(panic) => panic,
                }
            };
            let ending = tokio::select! {
                biased;
                served = served => served.map_or_else(Ending::Panicked, |()| Ending::Stopped),
                panic = only_panics => Ending::Panicked(panic),
            };
            drop(loops);
            self.shared.leave_jobs().await;
            ending
        })
    }
}

fn services(shared: &Arc<ServiceContext>) -> rpc::Services {
    rpc::Services::new()
        .offer(job_submission::Served::new(shared.clone()))
        .offer(tracker_protocol::Served::new(shared.clone()))
        .offer(inter_corona_job_tracker::Served::new(shared.clone()))
        .offer(file_protocol::Served::new(shared.clone()))
        .know(ALL)
}

fn limits(settings: &JobTrackerServiceSettings) -> rpc::Limits {
    let least = rpc::Limits::default().max_reply_bytes;
    rpc::Limits {
        max_total_inflight_bytes: settings.rpc_max_total_inflight_bytes,
        max_connections: settings.rpc_max_connections,
        // Calls wait for their job: those of one that is stuck must leave room for others.
        max_running_calls: settings.rpc_max_connections,
        // The largest is the state of a job for its next remote job tracker.
        max_reply_bytes: settings.max_remote_state_bytes.max(least),
        ..rpc::Limits::default()
    }
}

const ADDRESS: &str = "corona.jt.address";
const HTTP_ADDRESS: &str = "mapred.job.tracker.http.address";
const NOTIFICATION_PORT: &str = "corona.jt.notification.port";

/// Listens on an address; if any port will do, on that of the last run if it is free. A listener of a former
/// service at that address is used.
async fn listen(
    key: &'static str,
    address: &HostPort,
    last: u16,
    former: &mut Vec<net::TcpListener>,
) -> Result<TcpListener, CannotListen> {
    let failed = CannotListen::at(key, address);
    let mut socket = address_of(&address.host, address.port).await.map_err(&failed)?;
    let mut at = |socket| {
        let same = |listener: &net::TcpListener| listener.local_addr().is_ok_and(|at| at == socket);
        match former.iter().position(same) {
            Some(index) => {
                let listener = former.swap_remove(index);
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener)
            }
            None => corona_net::listen(corona_net::ListenOn::Address(socket)),
        }
    };
    if address.port == 0 && last != 0 {
        socket.set_port(last);
        if let Ok(listener) = at(socket) {
            return Ok(listener);
        }
        socket.set_port(0);
    }
    at(socket).map_err(failed)
}

/// Listens for the cluster manager's notifications.
async fn notifications(
    settings: &JobTrackerServiceSettings,
    last: u16,
    gate: &Arc<Gate>,
) -> Result<DriverHost, CannotListen> {
    let manager = endpoint(&settings.cluster_manager);
    let open = async |port| {
        let mut listen = Listen::default();
        listen.port = port;
        listen.gate = gate.clone();
        DriverHost::open(&manager, &listen).await
    };
    let configured = settings.notification_port;
    if configured == 0
        && last != 0
        && let Ok(host) = open(last).await
    {
        return Ok(host);
    }
    open(configured).await.map_err(CannotListen::at(NOTIFICATION_PORT, &configured))
}

/// The longest pause between heartbeats of a session: their replies report that a user has ended it.
const LONGEST_HEARTBEAT: Duration = Duration::from_secs(5);

/// A session of this user.
pub(crate) fn session_options(
    settings: &JobTrackerServiceSettings,
    user: impl Into<String>,
) -> Options {
    let mut options = Options::new(endpoint(&settings.cluster_manager), user);
    options.proxy_job_tracker = settings.proxy_job_tracker.as_ref().map(endpoint);
    options.timers = Timers::for_session_expiry(settings.session_expiry);
    let interval = &mut options.timers.heartbeat_interval;
    *interval = (*interval).min(LONGEST_HEARTBEAT);
    options.program = Some(ProgramVersion {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_ms: corona_process::started_ms(),
    });
    options
}

pub(crate) fn endpoint(address: &HostPort) -> Endpoint {
    Endpoint::new(address.host.to_string(), address.port)
}

/// The directory for the files of jobs, which is created if needed: every user may make entries
/// in it and see none. Spec: mapreduce/07 §7.3.
async fn system_dir(
    settings: &JobTrackerServiceSettings,
    file_systems: corona_filesystem::FileSystemSettings,
) -> Result<(Arc<FileSystems>, String), StartError> {
    let mode = if settings.deliver_files { 0o700 } else { 0o733 };
    let directory = &settings.system_dir;
    let failed = |error| StartError::SystemDir { directory: directory.clone(), error };
    let files = FileSystems::new(file_systems).map_err(failed)?;
    let (system, path) = files.resolve(directory).map_err(failed)?;
    if system.find(&path).await.map_err(failed)?.is_none() {
        system.mkdirs(&path, None).await.map_err(failed)?;
        system.set_permission(&path, mode).await.map_err(failed)?;
    }
    Ok((Arc::new(files), path.to_string()))
}

/// The files of jobs that clients and task trackers get by calls, if they do: those of a directory of this
/// machine.
fn kept_files(
    settings: &JobTrackerServiceSettings,
    system_dir: &str,
    outputs: PathBuf,
) -> Result<Option<job_files::KeptFiles>, StartError> {
    if !settings.deliver_files {
        return Ok(None);
    }
    let Some(directory) = system_dir.strip_prefix("file:") else {
        return Err(StartError::NotOwn { directory: system_dir.to_owned() });
    };
    let of_files = job_files::Bounds {
        of_each: settings.job_files_max_bytes,
        of_all: settings.job_files_max_total_bytes,
    };
    let of_outputs = job_files::Bounds {
        of_each: settings.job_output_max_user_bytes,
        of_all: settings.job_output_max_total_bytes,
    };
    let failed = |error| StartError::Outputs { directory: outputs.clone(), error };
    let files = (directory.into(), of_files);
    let kept = job_files::KeptFiles::open(
        files,
        (outputs.clone(), of_outputs),
        settings.job_output_retention,
    );
    kept.map(Some).map_err(failed)
}

impl ServiceContext {
    async fn watch_trackers(self: Arc<Self>) {
        let jobs = || {
            let jobs = self.store.all().into_iter().filter_map(|known| match known {
                KnownJob::Job(job) => Some(job),
                _ => None,
            });
            jobs.collect()
        };
        let ServiceContext { cluster, settings, .. } = &*self;
        let manager = settings.cluster_manager.clone();
        reach::watch(cluster.clone(), manager, jobs, settings.node_unreachable).await;
    }

    /// The directory of a job in the system directory.
    pub(crate) fn job_dir(&self, id: &str) -> String {
        format!("{}/{id}", self.system_dir.trim_end_matches('/'))
    }

    /// Where task trackers fetch the configuration of a job.
    pub(crate) fn given_conf(&self, id: &str) -> String {
        format!("{}/{id}/{}", self.given_dir.trim_end_matches('/'), staged::CONF)
    }

    /// What the service keeps of a job on this machine.
    pub(crate) fn data_dir(&self, id: &str) -> PathBuf {
        self.home.jobs().join(id)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use corona_config::Source;

    use super::*;

    /// A service with its files below `root`, whose cluster manager cannot be reached.
    pub(crate) async fn service(root: &Path) -> JobTracker {
        service_with(root, &[]).await
    }

    /// The same with these properties as well.
    pub(crate) async fn service_with(root: &Path, properties: &[(&str, &str)]) -> JobTracker {
        let path = |name: &str| root.join(name).display().to_string();
        let overrides = [
            ("cm.server.address", "localhost:1".to_owned()),
            ("corona.jt.address", "127.0.0.1:0".to_owned()),
            ("mapred.job.tracker.http.address", "127.0.0.1:0".to_owned()),
            ("corona.jt.data.dir", path("data")),
            ("corona.system.dir", format!("file:{}", path("system"))),
            ("hadoop.tmp.dir", path("tmp")),
        ];
        let more = properties.iter().map(|(key, value)| (*key, (*value).to_owned()));
        let overrides = overrides.into_iter().chain(more);
        let overrides: Vec<_> = overrides.map(|(key, value)| (key.to_owned(), value)).collect();
        let source = Source { overrides: &overrides, ..Source::default() };
        JobTracker::bind(source.load_job_tracker().unwrap()).await.unwrap()
    }
}
