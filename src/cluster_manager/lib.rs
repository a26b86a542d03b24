//! The live service: the engine behind Thrift, with timers and notifications. What it shows is in the crate
//! `corona-cluster-pages`.
//!
//! It has no scheduling rules. It translates calls for the engine, and carries out the engine's
//! effects.
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod access;
mod arrivals;
mod calls;
mod clock;
mod commits;
mod core;
mod door;
mod dry_run;
mod given_sessions;
mod ha;
mod handling;
mod journal;
mod large_calls;
mod live;
mod log;
mod names;
mod notifier;
mod origin;
mod outlet;
mod pages;
mod persist;
mod programs;
mod racks;
mod recovery;
mod reload;
mod revocations;
mod rpc;
mod safe_mode;
mod state_file;
#[cfg(test)]
mod testing;
mod translate;
mod undelivered;
mod unreachable;
#[cfg(test)]
mod whole_tests;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::interval;

use self::access::Access;
use self::commits::Commits;
use self::core::Core;
pub use self::core::EngineBroken;
pub use self::dry_run::{
    Called, Decision, DecisionSettings, DryRun, Found, HostRacks, Lookup, Lookups,
};
use self::ha::Takeover;
use self::ha::instance_role::InstanceRole;
use self::ha::role_events::RoleEvents;
pub use self::ha::{Again, End, Gateway, Instance, InstanceFailure};
use self::journal::KeptJournal;
use self::journal::appender::{Acknowledged, Journaled};
pub use self::journal::follower::{JournalWatcher, watch_journal};
use self::journal::opening::Disk;
pub use self::journal::opening::JournalError;
pub use self::journal::show::JournalRecord;
use self::large_calls::Entrance;
use self::live::Live;
use self::names::{Names, Resolver};
use self::notifier::{GiveUp, Notifier, Patience, Reach, Recorded};
pub use self::origin::Beginning;
use self::origin::{Origin, RecoveredState};
use self::outlet::Outlet;
use self::pages::Events;
use self::persist::Persist;
use self::programs::Programs;
pub use self::recovery::RecoveryError;
pub use self::reload::ReloadRequest;
use self::reload::Reloader;
use self::revocations::NodeAccess;
use self::rpc::Rpc;
use self::safe_mode::SafeModeSwitch;
pub use self::state_file::{StateFileError, Wrong, rewritten_state};
use self::unreachable::end_unreachable;
use corona_access::{Gate, GateError};
use corona_cluster_pages::Pages;
use corona_cluster_pages::metrics::Metrics;
use corona_cluster_pages::operations::Operations;
use corona_config::{ClusterManagerSettings, ConfigErrors, HaAck, HostFiles, Interfaces, Loaded};
use corona_engine::Input;
use corona_model::settings::Hosts;
use corona_net::CannotListen;
use corona_net::memory::Memory;
use corona_process::Boxed;
use corona_process::panics::{ServiceTasks, TaskPanicked, restart_on_panic, until};
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
    parts: Parts,
    thrift: Server<Rpc>,
    thrift_address: SocketAddr,
    web: TcpListener,
    web_address: SocketAddr,
    give_ups: mpsc::Receiver<GiveUp>,
    pages: Pages<Parts>,
    /// Whether its state comes from the journal.
    is_resumed: bool,
    /// The contents of the host files.
    hosts: Hosts,
}

/// What calls, pages and background tasks share.
#[derive(Clone, Debug)]
struct Parts {
    gate: Arc<Gate>,
    core: Arc<Core>,
    notifier: Arc<Notifier>,
    access: Arc<Access>,
    metrics: Arc<Metrics>,
    reloader: Arc<Reloader>,
    events: Arc<Events>,
    safe_mode: Arc<SafeModeSwitch>,
    persist: Arc<Persist>,
    operations: Arc<Operations>,
    host_files: HostFiles,
    journal: Option<Arc<KeptJournal>>,
    /// The standing as one of several instances.
    ha: Option<Arc<InstanceRole>>,
    programs: Arc<Programs>,
}

/// Why a cluster manager has stopped by itself.
#[derive(Clone, Debug, Error)]
pub enum Failure {
    /// A task that the service cannot run without.
    #[error(transparent)]
    Part(#[from] TaskPanicked),
    /// The engine panicked: nothing can be decided any more.
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
        let settings = &loaded.settings;
        let gate = Gate::open(&settings.tls)?;
        let found = Origin::find(settings, beginning, takeover.as_mut(), &resolver, &disk);
        let mut origin = found.await?;
        let (web, thrift, handed, ha) = match takeover {
            Some(Takeover { web, thrift, handed, instance_role, ack, .. }) => {
                (web, thrift, Some(handed), Some((instance_role, ack)))
            }
            None => (bind_web(settings).await?, bind_thrift(settings)?, None, None),
        };
        let metrics = Arc::<Metrics>::default();
        let limits = limits(settings);
        // Connections to sessions share the memory with those of peers.
        let connections = limits.max_connections.saturating_add(settings.engine.bounds.sessions);
        let memory = Memory::new(limits.max_total_inflight_bytes, connections);
        let names = Names::new(&settings.names, resolver);
        let reach = Reach { names: names.clone(), memory: memory.clone() };
        // From here on the files change: nothing is left that is likely to fail.
        let journal = origin.keep_journal(&disk, &settings.journal).await?;
        let commits = match &journal {
            Some(kept) => commits_of(kept, ha.as_ref()),
            None => Commits::everything(),
        };
        let (clock, is_resumed) = (origin.state.clock, origin.state.last_input.is_some());
        let (core, notifier, give_ups, events) =
            start_core(origin.state, settings, journal.as_deref(), commits, reach, &metrics);
        let access = Arc::new(Access::new(settings.access.clone(), names));
        access.log_openness(&settings.tls);
        let proxy_job_tracker = settings.proxy_job_tracker_address.clone();
        let is_expected = settings.proxy_job_tracker_expected;
        let safe_mode = Arc::new(SafeModeSwitch::new(proxy_job_tracker, is_expected, clock));
        let persist = Arc::new(Persist::new(
            core.clone(),
            notifier.clone(),
            safe_mode.clone(),
            origin.state_file,
            settings.compress_state,
            origin.sets_aside,
        ));
        let parts = Parts {
            gate: gate.clone(),
            reloader: Arc::new(Reloader::new(&loaded, core.clone())),
            programs: Arc::default(),
            core,
            notifier,
            access,
            metrics,
            events,
            safe_mode,
            persist,
            operations: Arc::default(),
            host_files: settings.host_files.clone(),
            journal,
            ha: ha.map(|(instance_role, _)| instance_role),
        };
        let rpc = Rpc::new(parts.clone(), origin.racks, Entrance::new(settings));
        let address =
            |listener: &TcpListener, key| listener.local_addr().map_err(CannotListen::at(key, &""));
        let thrift_address = address(&thrift, SERVER_ADDRESS)?;
        let mut thrift = Server::with_memory(thrift, rpc, limits, memory).with_gate(gate);
        if let Some(handed) = handed {
            thrift = thrift.with_handed(handed);
        }
        // Last, so that a start that fails leaves the file for the next one.
        if let Some(ending) = origin.aside {
            parts.persist.set_aside(ending)?;
        }
        let wire = thrift.counters();
        Ok(ClusterManager {
            thrift_address,
            web_address: address(&web, HTTP_ADDRESS)?,
            thrift,
            web,
            give_ups,
            pages: Pages::new(Arc::new(parts.clone()), wire, parts.gate.clone(), settings),
            is_resumed,
            hosts: origin.hosts,
            parts,
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
        self.parts.journal.as_ref().map(|kept| kept.journal().clone())
    }

    /// A way to have the scheduling files read again at once.
    pub fn reload_request(&self) -> ReloadRequest {
        self.parts.reloader.request()
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
        let ClusterManager { parts, thrift, web, give_ups, pages, is_resumed, hosts, .. } = self;
        let Parts { gate, core, notifier, reloader, events, safe_mode, journal, ha, .. } = parts;
        let _awake = journal.is_some().then(keep_awake);
        let mut tasks = ServiceTasks::default();
        let (audited, published) = (gate.clone(), events.clone());
        let publishing = async move { published.publish_actions().await };
        tasks.spawn("the events of privileged actions", until(stop.clone(), publishing));
        tasks.spawn("the audit of this machine", until(stop.clone(), note_acts_here(audited)));
        tasks.spawn("the renewal of the certificate", gate.clone().maintain(stop.clone()));
        if let Some(instance_role) = ha {
            let roles = RoleEvents { instance_role, events, core: core.clone() };
            tasks.spawn("the events of instances", until(stop.clone(), roles.run()));
        }
        let node_access = NodeAccess::new(core.clone(), &gate);
        // Before anything is granted.
        node_access.take_out_revoked();
        let following = until(stop.clone(), node_access.follow());
        tasks.spawn("the nodes whose access is revoked", following);
        let tell_proxy_job_tracker = safe_mode.clear_at_start(&core, is_resumed);
        // Until safe mode has ended, this is refused.
        if core.look(|engine, _| **engine.hosts() != hosts) {
            let _ = core.apply(Input::HostsChanged { hosts });
        }
        let telling = until(stop.clone(), tell_proxy_job_tracker);
        tasks.spawn("the notifier of the proxy job tracker", telling);
        let ending = end_unreachable(core.clone(), notifier, give_ups);
        tasks.spawn("ending unreachable sessions", until(stop.clone(), ending));
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

/// The engine behind the outlet that notifies sessions once its decisions are in the journal.
fn start_core(
    state: RecoveredState,
    settings: &ClusterManagerSettings,
    journal: Option<&KeptJournal>,
    commits: Commits,
    reach: Reach,
    metrics: &Arc<Metrics>,
) -> (Arc<Core>, Arc<Notifier>, mpsc::Receiver<GiveUp>, Arc<Events>) {
    let RecoveredState { engine, outbox, clock, last_input } = state;
    let acknowledged = journal.map(|_| Arc::new(Acknowledged::default()));
    let recorded = Recorded { commits: commits.clone(), acknowledged: acknowledged.clone() };
    let (notifier, give_ups) = Notifier::new(patience(settings), metrics.clone(), reach, recorded);
    let events = Events::new(clock.now(), settings.web.max_subscribers, commits.clone());
    let events = Arc::new(events);
    let live = Live::new(notifier.clone(), events.clone(), metrics.clone(), engine.legal_types());
    let outlet: Arc<dyn Outlet> = match (journal, acknowledged) {
        (Some(kept), Some(acknowledged)) => {
            let (journal, serial) = (kept.journal().clone(), outbox.last());
            Arc::new(Journaled::new(live, journal, commits, acknowledged, serial))
        }
        _ => Arc::new(live),
    };
    let core = Arc::new(Core::new(engine, clock, outlet, metrics.clone()));
    if let Some(last_input) = last_input {
        // Heartbeats could not arrive meanwhile. In safe mode this input is refused and not needed: the end of safe
        // mode forgives all silence.
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
    (core, notifier, give_ups, events)
}

/// How far replies and notifications may be sent.
fn commits_of(kept: &KeptJournal, ha: Option<&(Arc<InstanceRole>, HaAck)>) -> Commits {
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
