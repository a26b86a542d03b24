//! The live service: the engine behind Thrift, with timers, notifications and pages.
//!
//! It has no scheduling rules. It translates calls for the engine, and carries out the engine's
//! effects.

#![allow(missing_docs, reason = "not a public API: a name that says it all needs no comment")]

mod access;
mod answers;
mod arrivals;
mod calls;
mod clock;
mod commits;
mod core;
mod door;
mod dry_run;
mod given_sessions;
mod ha;
mod journal;
mod large_calls;
mod live;
mod log;
mod metrics;
mod names;
mod notifier;
mod operations;
mod outlet;
mod persist;
mod racks;
mod recovery;
mod reload;
mod rpc;
mod safe_mode;
mod state_file;
#[cfg(test)]
mod testing;
mod translate;
mod undelivered;
mod unreachable;
mod web;
#[cfg(test)]
mod whole_tests;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::interval;

use self::access::Access;
use self::calls::Calls;
use self::clock::Clock;
use self::commits::Commits;
use self::core::Core;
pub use self::core::EngineBroken;
pub use self::dry_run::{
    Called, Decision, DecisionSettings, DryRun, Found, HostRacks, Lookup, Lookups,
};
use self::given_sessions::GivenSessions;
use self::ha::Takeover;
use self::ha::instance_role::InstanceRole;
use self::ha::role_events::RoleEvents;
pub use self::ha::{Again, End, Gateway, Instance, InstanceFailure};
use self::journal::Kept;
use self::journal::appender::{Acknowledged, Journaled};
pub use self::journal::follower::{JournalWatcher, watch_journal};
pub use self::journal::opening::JournalError;
use self::journal::opening::{self, Disk, Opened, outbox_of};
use self::journal::outbox::Outbox;
pub use self::journal::show::JournalRecord;
use self::large_calls::Entrance;
use self::live::Live;
use self::metrics::Metrics;
use self::names::{Names, Resolver};
use self::notifier::{GiveUp, Notifier, Patience, Reach, Recorded};
use self::operations::Operations;
use self::outlet::Outlet;
use self::persist::Persist;
use self::racks::Racks;
pub use self::recovery::RecoveryError;
use self::recovery::recover;
use self::reload::Reloader;
pub use self::reload::{ConfigStatus, ReloadRequest};
use self::rpc::Rpc;
use self::safe_mode::SafeModeSwitch;
pub use self::state_file::{StateFileError, Wrong, rewritten_state};
use self::unreachable::end_unreachable;
use self::web::events::{Events, Happening};
use self::web::{Pages, Parts};
use corona_access::{Gate, GateError};
use corona_config::{ClusterManagerSettings, ConfigErrors, HaAck, Interfaces, Loaded};
use corona_engine::{Engine, Input, Start};
use corona_model::settings::Hosts;
use corona_model::types::Millis;
use corona_net::CannotListen;
use corona_net::memory::Memory;
use corona_process::Boxed;
use corona_process::panics::{ServiceTasks, TaskPanicked, blocking, restart_on_panic};
use corona_wire::calls::ClusterManager as Contract;
use corona_wire::server::{Limits, ListenOn, Server, listen};

/// How long a stopping service waits for calls in flight.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is looked for what 'corona access' has done on this machine: a look at a file.
const LOOK_FOR_ACTS: Duration = Duration::from_secs(2);
/// How long an idle connection to a session is kept open.
const LINGER: Duration = Duration::from_secs(5);

/// A cluster manager that listens and is ready to serve.
#[derive(Debug)]
pub struct ClusterManager {
    gate: Arc<Gate>,
    thrift: Server<Rpc>,
    thrift_address: SocketAddr,
    web: TcpListener,
    web_address: SocketAddr,
    core: Arc<Core>,
    notifier: Arc<Notifier>,
    give_ups: mpsc::Receiver<GiveUp>,
    pages: Pages,
    reloader: Arc<Reloader>,
    safe_mode: Arc<SafeModeSwitch>,
    journal: Option<Arc<Kept>>,
    /// Whether its state comes from the journal.
    is_resumed: bool,
    /// The contents of the host files.
    hosts: Hosts,
    /// Of one of several instances.
    roles: Option<RoleEvents>,
    events: Arc<Events>,
}

/// The state from which a cluster manager starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// From the journal, or from nothing if that is empty. There must be no state file.
    Resume,
    /// From nothing; the journal is set aside. There must be no state file.
    Fresh,
    /// From the state file, which stays where it is; the journal is set aside.
    StateFile,
    /// From the state file if there is one, else as [`Beginning::Resume`]. The file is moved aside,
    /// and so is one that is written later when safe mode ends without a stop: no later start
    /// recovers from a state that is out of date by then.
    StateFileIfPresent,
    /// From the journal if it leads back to any state: it is never older than the state file, which is
    /// then moved aside. Else as [`Beginning::StateFileIfPresent`].
    JournalIfPresent,
}

impl Beginning {
    /// Whether a state file is moved aside when the state has been recovered or is out of date.
    fn sets_state_file_aside(self) -> bool {
        matches!(self, Beginning::StateFileIfPresent | Beginning::JournalIfPresent)
    }
}

/// Why a cluster manager has stopped by itself.
#[derive(Clone, Debug, Error)]
pub enum Failure {
    /// A task that the service cannot run without.
    #[error(transparent)]
    Part(#[from] TaskPanicked),
    #[error(transparent)]
    Engine(#[from] EngineBroken),
    /// The journal failed: nothing may happen that cannot be recorded.
    #[error(transparent)]
    Journal(#[from] corona_journal::Failed),
}

/// Why a cluster manager cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {}: {}{}", .0.address, .0.error, Remedy(.0))]
    Listen(#[from] CannotListen),
    /// The host files cannot be read.
    #[error(transparent)]
    HostFiles(#[from] ConfigErrors),
    /// A state file of an earlier run lies there. Spec: cluster-manager/02 §1.
    #[error(
        "state file {} exists: start with --recover-from-disk or --recover-if-present to resume \
         from it, or move it away to start with a clean state", path.display()
    )]
    StateFileExists {
        /// The file.
        path: PathBuf,
    },
    /// It cannot recover from the state file.
    #[error("cannot recover from state file {}: {error}", path.display())]
    Recovery {
        /// The file.
        path: PathBuf,
        /// Why.
        error: RecoveryError,
    },
    /// The state file cannot be moved aside after the recovery.
    #[error("cannot move state file {} aside: {error}", path.display())]
    SetAside {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The journal cannot be used.
    #[error("cannot use the journal in {} (corona.cm.journal.dir): {error}", path.display())]
    Journal {
        /// The directory.
        path: PathBuf,
        /// Why.
        error: JournalError,
    },
    /// It is not configured as one of several instances.
    #[error("corona.cm.ha.zookeeper or the journal is not configured")]
    NoInstance,
    /// Its certificate cannot be used.
    #[error(transparent)]
    Access(#[from] GateError),
    /// The clock shows no time.
    #[error("the machine's clock is wrong: {0}")]
    Clock(Wrong),
}

impl ClusterManager {
    /// Restores the state if requested, and opens both ports. Nothing is served before
    /// [`Self::run`]. Must be called within a tokio runtime.
    pub fn bind(loaded: Loaded, beginning: Beginning) -> Boxed<'static, Result<Self, StartError>> {
        let disk = Disk::system();
        Box::pin(ClusterManager::bind_with(loaded, beginning, Resolver::system(), disk, None))
    }

    /// The same, with another way to resolve names, another disk for the journal, and the state
    /// that an instance takes over from its time as a standby.
    async fn bind_with(
        loaded: Loaded,
        beginning: Beginning,
        resolver: Resolver,
        disk: Disk,
        mut takeover: Option<Takeover>,
    ) -> Result<Self, StartError> {
        let settings = loaded.settings.clone();
        let gate = Gate::open(&settings.tls)?;
        let taken = takeover.as_mut().and_then(|takeover| takeover.opened.take());
        let goes_on = taken.is_some() || takeover.as_ref().is_some_and(|one| one.goes_on);
        let beginning = if goes_on { Beginning::Resume } else { beginning };
        let state_path = std::path::absolute(&settings.state_file)
            .unwrap_or_else(|_| settings.state_file.clone());
        let is_there = state_path.exists() && !goes_on;
        if matches!(beginning, Beginning::Resume | Beginning::Fresh) && is_there {
            return Err(StartError::StateFileExists { path: state_path });
        }
        let may_be_from_file = match beginning {
            Beginning::Resume | Beginning::Fresh => false,
            Beginning::StateFile => true,
            Beginning::StateFileIfPresent | Beginning::JournalIfPresent => is_there,
        };
        let hosts = settings.host_files.load()?.hosts;
        tracing::info!(
            "Included hosts: {} Excluded hosts: {}",
            hosts.include.len(),
            hosts.exclude.len()
        );
        let racks = Racks::new(settings.topology.clone(), settings.racks.clone(), &resolver);
        let directory = settings.journal.directory.as_ref();
        let directory =
            directory.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
        let resumes = match beginning {
            Beginning::JournalIfPresent => true,
            Beginning::Fresh => false,
            _ => !may_be_from_file,
        };
        let mut journal = match &directory {
            _ if taken.is_some() => taken,
            Some(path) if resumes => Some(open_journal(&disk, path, &settings).await?),
            _ => None,
        };
        let resumed = journal.as_mut().and_then(Opened::take_state);
        let is_resumed = resumed.is_some();
        let last_input = resumed.as_ref().map(|(engine, ..)| engine.now());
        let from_file = may_be_from_file && !is_resumed;
        let (engine, outbox, clock) = if let Some((engine, outbox, now)) = resumed {
            (engine, outbox, Clock::not_before(now))
        } else if from_file {
            let clock = Clock::new();
            let recovered =
                recover(&settings, &state_path, clock.now(), hosts.clone(), &racks).await;
            let (engine, undelivered) = recovered
                .map_err(|error| StartError::Recovery { path: state_path.clone(), error })?;
            (engine, outbox_of(&undelivered), clock)
        } else {
            let clock = Clock::new();
            tracing::info!("Starting Cluster Manager with clean state");
            (new_engine(&settings, clock.now(), hosts.clone())?, Outbox::default(), clock)
        };
        let (web, thrift, handed, ha) = match takeover {
            Some(Takeover { web, thrift, handed, instance_role, ack, .. }) => {
                (web, thrift, Some(handed), Some((instance_role, ack)))
            }
            None => (bind_web(&settings).await?, bind_thrift(&settings)?, None, None),
        };

        let metrics = Arc::new(Metrics::new());
        let limits = limits(&settings);
        // Connections to sessions share the memory with those of peers.
        let connections = limits.max_connections.saturating_add(settings.engine.bounds.sessions);
        let memory = Memory::new(limits.max_total_inflight_bytes, connections);
        let names = Names::new(&settings.names, resolver);
        let reach = Reach { names: names.clone(), memory: memory.clone() };
        // From here on the files change: nothing is left that is likely to fail.
        let journal = match (&directory, journal) {
            (None, _) => None,
            (Some(_), Some(opened)) if is_resumed => Some(opened),
            (Some(path), opened) => {
                Some(start_journal(&disk, path, &settings, opened, &engine, &outbox).await?)
            }
        };
        let journal = journal.map(|opened| Arc::new(Kept::new(opened, settings.journal.clone())));
        let acknowledged = journal.as_ref().map(|_| Arc::new(Acknowledged::default()));
        let commits = match &journal {
            Some(kept) => commits_of(kept, ha.as_ref()),
            None => Commits::everything(),
        };
        let recorded = Recorded { commits: commits.clone(), acknowledged: acknowledged.clone() };
        let patience = patience(&settings);
        let (notifier, give_ups) = Notifier::new(patience, metrics.clone(), reach, recorded);
        let events = Events::new(clock.now(), settings.web.max_subscribers, commits);
        let events = Arc::new(events);
        let kinds = engine.legal_types();
        let live = Live::new(notifier.clone(), events.clone(), metrics.clone(), kinds);
        let outlet: Arc<dyn Outlet> = match (&journal, acknowledged) {
            (Some(kept), Some(acknowledged)) => {
                let journal = kept.journal().clone();
                let commits = commits_of(kept, ha.as_ref());
                let serial = outbox.last();
                Arc::new(Journaled::new(live, journal, commits, acknowledged, serial))
            }
            _ => Arc::new(live),
        };
        let core = Arc::new(Core::new(engine, clock, outlet, metrics.clone()));
        if let Some(last_input) = last_input {
            // Nobody could heartbeat meanwhile. In safe mode it is refused: its end forgives all silence.
            let _ = core.apply(Input::HeldUp { ms: clock.now().since(last_input) });
        }
        // Until safe mode ends.
        notifier.pause();
        notifier.restore(outbox);
        if core.look(|engine, _| **engine.settings() != settings.engine) {
            let settings = Box::new(settings.engine.clone());
            // Settings that were checked when they were read are not refused.
            let _ = core.apply(Input::SettingsChanged { settings });
        }

        let entrance = Entrance::new(&settings);
        let access = Arc::new(Access::new(settings.access, names));
        access.log_openness();
        let mut safe_mode = SafeModeSwitch::new(settings.proxy_job_tracker_address, clock);
        if !settings.proxy_job_tracker_expected {
            safe_mode = safe_mode.without_expecting_a_proxy_job_tracker();
        }
        let safe_mode = Arc::new(safe_mode);
        let compress = settings.compress_state;
        let mut persist = Persist::new(
            core.clone(),
            notifier.clone(),
            safe_mode.clone(),
            state_path.clone(),
            compress,
        );
        if beginning.sets_state_file_aside() {
            persist = persist.setting_aside_what_is_outdated();
        }
        let persist = Arc::new(persist);
        let operations = Arc::new(Operations::default());
        let calls = Calls {
            core: core.clone(),
            access: access.clone(),
            racks,
            host_files: settings.host_files.clone(),
            entrance,
        };
        let rpc = Rpc {
            calls,
            metrics: metrics.clone(),
            notifier: notifier.clone(),
            safe_mode: safe_mode.clone(),
            persist: persist.clone(),
            operations: operations.clone(),
            given_sessions: core.look(|engine, _| GivenSessions::new(engine)),
        };
        let address =
            |listener: &TcpListener, key| listener.local_addr().map_err(CannotListen::at(key, &""));
        let thrift_address = address(&thrift, SERVER_ADDRESS)?;
        let mut thrift = Server::with_memory(thrift, rpc, limits, memory).with_gate(gate.clone());
        if let Some(handed) = handed {
            thrift = thrift.with_handed(handed);
        }
        let reloader = Arc::new(Reloader::new(&loaded, core.clone()));
        // Last, so that a start that fails leaves the file for the next one.
        if is_there && beginning.sets_state_file_aside() {
            let name = if from_file { state_file::RECOVERED } else { state_file::OUTDATED };
            let aside = state_file::set_aside(&state_path, name)
                .map_err(|error| StartError::SetAside { path: state_path.clone(), error })?;
            persist.file_is_gone();
            tracing::info!("The state file is now {}", aside.display());
        }
        let parts = Parts {
            gate: gate.clone(),
            core: core.clone(),
            notifier: notifier.clone(),
            access,
            metrics,
            wire: thrift.counters(),
            reloader: reloader.clone(),
            events,
            safe_mode: safe_mode.clone(),
            persist,
            operations,
            host_files: settings.host_files,
            journal: journal.clone(),
            ha: ha.as_ref().map(|(instance_role, _)| instance_role.clone()),
        };
        let roles = ha.map(|(instance_role, _)| RoleEvents {
            instance_role,
            events: parts.events.clone(),
            core: core.clone(),
        });
        let events = parts.events.clone();
        Ok(ClusterManager {
            gate,
            thrift_address,
            web_address: address(&web, HTTP_ADDRESS)?,
            thrift,
            web,
            pages: Pages::new(parts, &settings.web, &settings.http_address.host),
            reloader,
            core,
            notifier,
            give_ups,
            safe_mode,
            journal,
            is_resumed,
            hosts,
            roles,
            events,
        })
    }

    /// Where the Thrift service listens.
    pub fn thrift_address(&self) -> SocketAddr {
        self.thrift_address
    }

    /// Where the pages are.
    pub fn web_address(&self) -> SocketAddr {
        self.web_address
    }

    /// The journal, if one is kept.
    fn journal(&self) -> Option<Arc<corona_journal::Journal>> {
        self.journal.as_ref().map(|kept| kept.journal().clone())
    }

    /// A way to have the scheduling files read again at once.
    pub fn reload_request(&self) -> ReloadRequest {
        self.reloader.request()
    }

    /// The state of the configuration.
    pub fn config_status(&self) -> ConfigStatus {
        self.reloader.status()
    }

    /// Ends safe mode and serves until `stop` becomes true or its sender is dropped; then it
    /// answers calls in flight and returns.
    ///
    /// # Errors
    /// A part has failed, without which the rest is useless and ends too.
    pub fn run(self, stop: watch::Receiver<bool>) -> Boxed<'static, Result<(), Failure>> {
        Box::pin(self.serve(stop))
    }

    async fn serve(self, stop: watch::Receiver<bool>) -> Result<(), Failure> {
        let ClusterManager {
            gate,
            thrift,
            web,
            core,
            notifier,
            give_ups,
            pages,
            reloader,
            safe_mode,
            journal,
            is_resumed,
            hosts,
            roles,
            events,
            ..
        } = self;
        let _awake = journal.is_some().then(keep_awake);
        let mut tasks = ServiceTasks::default();
        let (mut stop_auditing, audited) = (stop.clone(), gate.clone());
        tasks.spawn("the events of privileged actions", async move {
            tokio::select! {
                _ = stop_auditing.wait_for(|stop| *stop) => {}
                () = events.publish_actions(Happening::PrivilegedAction) => {}
                () = note_acts_here(audited) => {}
            }
        });
        tasks.spawn("the renewal of the certificate", gate.maintain(stop.clone()));
        if let Some(roles) = roles {
            let mut stop = stop.clone();
            tasks.spawn("the events of instances", async move {
                tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => {}
                    () = roles.run() => {}
                }
            });
        }
        let tell_proxy_job_tracker = safe_mode.clear_at_start(&core, is_resumed);
        // Until safe mode has ended, this is refused.
        if core.look(|engine, _| **engine.hosts() != hosts) {
            let _ = core.apply(Input::HostsChanged { hosts });
        }
        let mut stop_telling = stop.clone();
        tasks.spawn("the notifier of the proxy job tracker", async move {
            tokio::select! {
                _ = stop_telling.wait_for(|stop| *stop) => {}
                () = tell_proxy_job_tracker => {}
            }
        });
        let mut stop_ending = stop.clone();
        let ending = end_unreachable(core.clone(), notifier, give_ups);
        tasks.spawn("ending unreachable sessions", async move {
            tokio::select! {
                _ = stop_ending.wait_for(|stop| *stop) => {}
                () = ending => {}
            }
        });
        let (stop_driving, driven) = (stop.clone(), core.clone());
        tasks.spawn("the scheduler", async move {
            restart_on_panic("the scheduler", || driven.drive(stop_driving.clone())).await;
        });
        let stop_reloading = stop.clone();
        tasks.spawn("the reloader", async move {
            restart_on_panic("the reloader of the scheduling files", || {
                reloader.clone().run(stop_reloading.clone())
            })
            .await;
        });
        tasks.spawn("the HTTP server", Arc::new(pages).serve(web, stop.clone()));
        let stop_imaging = stop.clone();
        tasks.spawn("the Thrift server", thrift.run::<Contract>(stop));
        let stopped = match &journal {
            Some(kept) => {
                let making = kept.clone().make_images(stop_imaging);
                tasks.spawn("making images of the journal", making);
                tokio::select! {
                    biased;
                    broken = core.broken() => return Err(broken.into()),
                    failed = kept.failed() => return Err(failed.into()),
                    ended = tasks.ended() => ended,
                }
            }
            None => tokio::select! {
                biased;
                broken = core.broken() => return Err(broken.into()),
                ended = tasks.ended() => ended,
            },
        };
        if let Some(kept) = journal {
            kept.close().await?;
        }
        Ok(stopped?)
    }
}

/// How long connections may go unnoticed while a thread of the runtime waits for the disk.
const AWAKE: Duration = Duration::from_millis(100);

/// Wakes a thread of the runtime at times, until the returned sender is dropped.
///
/// A call may write to the journal itself, on a thread of the runtime. If the disk stalls then, and this was
/// the thread that waits for connections, another thread takes its place only when it is woken.
fn keep_awake() -> std::sync::mpsc::SyncSender<()> {
    let (stop, stopped) = std::sync::mpsc::sync_channel(0);
    let runtime = tokio::runtime::Handle::current();
    let wake = move || {
        while stopped.recv_timeout(AWAKE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            runtime.spawn(async {});
        }
    };
    let thread = std::thread::Builder::new().name("keep-awake".to_owned()).spawn(wake);
    if let Err(error) = thread {
        tracing::warn!(%error, "cannot start a thread; a stalled disk may hold up connections");
    }
    stop
}

/// Opens the journal and goes through it.
async fn open_journal(
    disk: &Disk,
    path: &Path,
    settings: &ClusterManagerSettings,
) -> Result<Opened, StartError> {
    let (disk, directory, options) = (disk.clone(), path.to_owned(), settings.journal.clone());
    let opened = blocking(move || opening::open(&disk, &directory, &options, hash_seed())).await;
    let opened = opened.map_err(|error| StartError::Journal { path: path.to_owned(), error })?;
    if let Some(resumed) = &opened.recovered {
        resumed.log(path);
    }
    Ok(opened)
}

/// Starts a new journal: in the opened one if it is empty, else in place of an existing one, which
/// is set aside.
async fn start_journal(
    disk: &Disk,
    path: &Path,
    settings: &ClusterManagerSettings,
    empty: Option<Opened>,
    engine: &Engine,
    outbox: &Outbox,
) -> Result<Opened, StartError> {
    let failed = |error| StartError::Journal { path: path.to_owned(), error };
    let first = opening::first_record(engine, outbox.clone()).map_err(failed)?;
    let (disk, directory, options) = (disk.clone(), path.to_owned(), settings.journal.clone());
    let started = blocking(move || match empty {
        Some(opened) => opening::begin(opened, &first).map(|opened| (opened, None)),
        None => opening::start_new(&disk, &directory, &options, &first),
    })
    .await;
    let (opened, aside) = started.map_err(failed)?;
    match aside {
        Some(aside) => tracing::info!("The old journal is now {}", aside.display()),
        None => tracing::info!("Starting a journal in {}", path.display()),
    }
    Ok(opened)
}

/// How far replies and notifications may be sent.
fn commits_of(kept: &Kept, ha: Option<&(Arc<InstanceRole>, HaAck)>) -> Commits {
    let committed = kept.journal().committed();
    match ha {
        None => Commits::of(committed),
        Some((instance_role, HaAck::None)) => {
            Commits::of(committed).within(instance_role.lease().clone())
        }
        Some((instance_role, HaAck::Standby)) => {
            Commits::of(instance_role.released()).within(instance_role.lease().clone())
        }
    }
}

const REPLICATION_ADDRESS: &str = "corona.cm.ha.replication.address";
const SERVER_ADDRESS: &str = "cm.server.address";
const HTTP_ADDRESS: &str = "cm.server.http.address";

/// Advice for when an address cannot be listened on.
struct Remedy<'a>(&'a CannotListen);

impl fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CannotListen { key, error, .. } = self.0;
        match error.kind() {
            io::ErrorKind::AddrInUse => {
                write!(f, "; set {key} to another port, or to port 0 for any free one")
            }
            _ => write!(f, "; set {key} to another address"),
        }
    }
}

/// Only the port of the address is used: the original listens on all interfaces.
fn bind_thrift(settings: &ClusterManagerSettings) -> Result<TcpListener, CannotListen> {
    let address = &settings.server_address;
    let on = match settings.interfaces {
        Interfaces::All => ListenOn::AnyAddress(address.port),
        Interfaces::Loopback => ListenOn::Address((Ipv4Addr::LOCALHOST, address.port).into()),
    };
    listen(on).map_err(CannotListen::at(SERVER_ADDRESS, address))
}

async fn bind_web(settings: &ClusterManagerSettings) -> Result<TcpListener, CannotListen> {
    let address = &settings.http_address;
    let opened = TcpListener::bind((&*address.host, address.port)).await;
    opened.map_err(CannotListen::at(HTTP_ADDRESS, address))
}

fn new_engine(
    settings: &ClusterManagerSettings,
    now: Millis,
    hosts: Hosts,
) -> Result<Engine, StartError> {
    let id_prefix = state_file::id_prefix(now).map_err(StartError::Clock)?;
    let start = Start { now, id_prefix, hash_seed: hash_seed() };
    let mut engine = Engine::new(settings.engine.clone(), start);
    // A fresh engine is not in safe mode and has no nodes: it refuses nothing, and nothing happens.
    let _ = engine.apply(now, Input::HostsChanged { hosts });
    Ok(engine)
}

fn hash_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn patience(settings: &ClusterManagerSettings) -> Patience {
    const NEVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);
    let notifier = &settings.notifier;
    Patience {
        timeout: settings.socket_timeout.unwrap_or(NEVER),
        poll_interval: notifier.poll_interval,
        retry_start: notifier.retry_start,
        retry_factor: notifier.retry_factor,
        retry_max: notifier.retry_max,
        max_queue: notifier.max_queue,
        max_reply_bytes: notifier.max_reply_bytes,
        linger: LINGER,
    }
}

fn limits(settings: &ClusterManagerSettings) -> Limits {
    let wire = &settings.wire;
    Limits {
        max_frame_bytes: wire.max_frame_bytes,
        max_depth: usize::try_from(wire.max_depth).unwrap_or(usize::MAX),
        max_connections: wire.max_connections,
        max_inflight_bytes: wire.max_inflight_bytes,
        max_total_inflight_bytes: wire.max_total_inflight_bytes,
        idle_timeout: settings.socket_timeout.unwrap_or_default(),
        frame_timeout: wire.frame_timeout,
        drain_timeout: DRAIN_TIMEOUT,
        ..Limits::default()
    }
}

/// Notes what users of this machine do with the authority, forever.
async fn note_acts_here(gate: Arc<Gate>) {
    let mut due = interval(LOOK_FOR_ACTS);
    loop {
        due.tick().await;
        if let Err(error) = gate.note_acts_here().await {
            tracing::warn!(error, "Cannot read what was done with the authority; trying again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster manager on free ports, which keeps its state file in a directory.
    async fn bind(
        directory: &std::path::Path,
        interfaces: Interfaces,
        beginning: Beginning,
    ) -> Result<ClusterManager, StartError> {
        let overrides = [("cm.server.http.address".to_owned(), "localhost:0".to_owned())];
        let mut loaded = corona_config::load(None, &overrides).unwrap();
        loaded.settings.server_address.port = 0;
        loaded.settings.interfaces = interfaces;
        loaded.settings.state_file = directory.join("cm.state");
        loaded.settings.journal.directory = Some(directory.join("cm.state.journal"));
        ClusterManager::bind(loaded, beginning).await
    }

    #[tokio::test]
    async fn calls_come_from_this_machine_only_unless_an_address_is_configured() {
        let directory = tempfile::tempdir().unwrap();
        for (interfaces, is_loopback) in [(Interfaces::Loopback, true), (Interfaces::All, false)] {
            let manager = bind(directory.path(), interfaces, Beginning::Resume).await.unwrap();
            assert_eq!(manager.thrift_address().ip().is_loopback(), is_loopback, "{interfaces:?}");
            assert_eq!(manager.thrift_address().ip().is_unspecified(), !is_loopback);
        }
    }

    #[tokio::test]
    async fn a_state_file_that_is_of_no_use_is_not_set_aside() {
        let directory = tempfile::tempdir().unwrap();
        let state_file = directory.path().join("cm.state");
        let beginning = Beginning::StateFileIfPresent;
        bind(directory.path(), Interfaces::Loopback, beginning).await.unwrap();
        std::fs::write(&state_file, "{").unwrap();
        let refused = bind(directory.path(), Interfaces::Loopback, beginning).await.unwrap_err();
        assert!(matches!(refused, StartError::Recovery { .. }), "{refused}");
        assert_eq!(std::fs::read_to_string(&state_file).unwrap(), "{");
    }
}
