//! The service as a whole: opens its ports and what its parts share, resumes the jobs of an earlier run, and
//! serves until it is stopped.

use std::future::pending;
use std::net::{self, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use corona_access::{Gate, GateError};
use corona_config::{HostPort, JobTrackerServiceSettings, LoadedJobTracker};
use corona_filesystem::{FileSystems, FsError};
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
use crate::jobs::end::{JobDirs, Jobs};
use crate::jobs::finished::Finished;
use crate::jobs::log::Journals;
use crate::jobs::owed::Owed;
use crate::jobs::store::{KnownJob, Store};
use crate::jobs::sweeps::{self, Sweeps};
use crate::launch::builds::Builds;
use crate::launch::hosts::follow_hosts;
use crate::launch::launcher::Launcher;
use crate::launch::reach;
use crate::pages::Pages;
use crate::pages::sources::PageSources;
use crate::rpc::Calls;
use crate::rpc::access::Access;
use crate::rpc::clients::{ClientCalls, LargeAnswers};
use crate::rpc::inter_tracker::TrackerCalls;
use crate::rpc::job_files::{self, FileCalls};
use crate::submit::Submitter;
use crate::submit::ids::Ids;

/// A job tracker that listens and is ready to serve.
pub struct JobTracker {
    gate: Arc<Gate>,
    pub(crate) submitter: Arc<Submitter>,
    pub(crate) calls: Calls,
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
        let settings = Arc::new(settings);
        let sources = PageSources::new(settings.clone(), store, files.clone(), of, None, name, at);
        let jobs = Arc::new(Jobs {
            store: sources.store.clone(),
            finished: Finished::new(home.finished(), settings.finished_jobs),
            owed: Arc::new(owed),
            sweeps: Sweeps::new(files.clone(), sweeps::QUIET),
            meter: sources.meter.clone(),
            dirs: JobDirs { files, system_dir, given_dir, kept: home.jobs() },
        });
        for (id, user) in given {
            jobs.store.give(id, user);
        }
        let image_bytes = settings.journal_image_bytes;
        let journals =
            Journals::start(sync, image_bytes, &home.lock()).map_err(StartError::Journals)?;
        let service_user = User { groups: vec![user.clone()], name: user };
        let launcher = Launcher::new(
            service_user.clone(),
            settings.launch_connect_timeout,
            settings.launch_call_timeout,
        );
        let submitter = Arc::new(Submitter {
            settings,
            site,
            jobs,
            home,
            ids: Arc::new(ids),
            journals,
            host,
            launcher,
            address,
            service_user,
            sources,
            stop: watch::Sender::new(false),
        });
        let resumed = submitter.resume_jobs(debts, in_place).await;
        let addresses = Addresses {
            rpc: submitter.address.to_string(),
            rpc_socket: socket,
            notifications: notifications.to_string(),
            pages: submitter.sources.address(),
            pages_socket,
        };
        let calls = calls(&submitter, kept_files);
        let server = rpc::Server::new(listener, calls.services(), limits(&submitter.settings))
            .with_former(connections)
            .with_gate(gate.clone());
        Ok(JobTracker { gate, submitter, calls, server, listener: pages, addresses, resumed })
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
            let sources = self.submitter.sources.clone();
            let of = sources.clone();
            loops.spawn("the list of hosts", move || follow_hosts(of.clone()));
            let of = sources.clone();
            loops.spawn("the watch of task trackers", move || watch_trackers(of.clone()));
            loops.spawn("the watch for stalls", clock::watch);
            let of = self.submitter.clone();
            loops.spawn("the begin of jobs that wait", move || of.clone().serve_waiting());
            let of = self.calls.files.clone();
            loops.spawn("the removal of old outputs", move || of.clone().remove_old_outputs());
            let events = sources.events.clone();
            loops.spawn("the events of privileged actions", move || {
                let events = events.clone();
                async move { events.publish_actions().await }
            });
            let (gate, stopped) = (self.gate.clone(), stop.clone());
            loops.spawn("the renewal of certificates", move || {
                gate.clone().maintain(stopped.clone())
            });
            let pages = Arc::new(Pages::new(sources, self.gate));
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
            self.submitter.leave_jobs().await;
            ending
        })
    }
}

/// The calls that it serves.
fn calls(submitter: &Arc<Submitter>, kept_files: Option<job_files::KeptFiles>) -> Calls {
    let Submitter { settings, jobs, home, launcher, address, service_user, sources, .. } =
        &**submitter;
    let access = Arc::new(Access {
        service_user: service_user.name.clone(),
        submitters: settings.submitters.clone(),
        viewers: settings.viewers.clone(),
        administrators: settings.administrators.clone(),
    });
    Calls {
        clients: Arc::new(ClientCalls {
            access: access.clone(),
            submitter: submitter.clone(),
            large_answers: LargeAnswers::default(),
        }),
        trackers: Arc::new(TrackerCalls {
            settings: settings.clone(),
            jobs: jobs.clone(),
            cluster: sources.cluster.clone(),
            builds: Builds::new(&settings.build_version, Some(home.builds())),
            launcher: launcher.clone(),
            address: address.clone(),
        }),
        files: Arc::new(FileCalls { access, kept_files, sources: sources.clone() }),
    }
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

/// Watches for task trackers that have died without a word, for as long as the service runs.
async fn watch_trackers(sources: Arc<PageSources>) {
    let jobs = || {
        let jobs = sources.store.all().into_iter().filter_map(|known| match known {
            KnownJob::Job(job) => Some(job),
            _ => None,
        });
        jobs.collect()
    };
    let PageSources { cluster, settings, .. } = &*sources;
    let manager = settings.cluster_manager.clone();
    reach::watch(cluster.clone(), manager, jobs, settings.node_unreachable).await;
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
