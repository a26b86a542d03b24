//! The task tracker as a whole: from its configuration to a node that serves, and to its end.
//!
//! Wiring only: each part is made once and passed to the parts that need it. Spec: mapreduce/04
//! §4.1.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::net::{self, IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::child::Install;
use super::child::{
    ArchivedInstall, Cgroups, ClassArchives, Logs, ProcessNotes, end_orphans, end_strays,
};
use super::deletion::Deletion;
use super::handover::{HandedState, KeptTracker, Listeners};
use super::http::{HttpServer, LostOutput};
use super::ids::AttemptId;
use super::job_files::{FileSystems, FileSystemsError};
use super::job_trackers::{self, HandedJobTrackers, JobTrackers};
use super::local_dirs::{LocalDirError, LocalDirs};
use super::localise::Localiser;
use super::machine_stats;
use super::map_output::MapOutputs;
use super::node::callbacks::{Callbacks, Sessions};
use super::node::fitness::Fitness;
use super::node::health::watch_health;
use super::node::heartbeats::{Ending, HandedNode, Heartbeats, NodeInfo, Pauses};
use super::node::host::{Host, HostError, name_of};
use super::node::install::{self, FoundProgram};
use super::node::link::Link;
use super::node::lock::{DirLocks, LockError};
use super::pages::{About, NodePages};
use super::table::TableLimits;
use super::tracker::{
    Former, Identity, NoJobTrackers, Parts, SlotCounts, Tracker, TrackerSettings,
};
use corona_access::{Gate, GateError, TlsMode};
use corona_config::{
    HealthSettings, HostPort, JobTrackerCommand, LoadedTaskTracker, RemoteJobTrackerSettings,
    SiteProperties, TaskTrackerSettings, keys,
};
use corona_filesystem::Counters;
use corona_hadoop::rpc;
use corona_hadoop::writables::NodeHealth;
use corona_model::types::ResourceType;
use corona_net::{CannotListen, listen_at};
use corona_process::Boxed;
use corona_process::panics::{ServiceTasks, blocking, run_essential, until};
use corona_process::threads::Threads;
use corona_web::hosts::Hosts;
use corona_wire::calls::CoronaTaskTracker;
use corona_wire::generated;
use corona_wire::server::{ListenOn, Server, listen};

pub use super::pages::Addresses;

/// Lost map outputs that wait to be reported. A reduce asks again for one that finds no room.
const LOST_OUTPUTS: usize = 1000;
/// Threads for heartbeats: a name look-up that hangs leaves one to look at the machine.
const HEARTBEAT_THREADS: usize = 2;

/// A task tracker that listens and is ready to serve.
pub struct TaskTracker {
    gate: Arc<Gate>,
    tracker: Tracker,
    job_trackers: Option<JobTrackers>,
    addresses: Addresses,
    name: String,
    heartbeats: Heartbeats,
    callbacks: Server<Callbacks<Tracker>>,
    actions: rpc::Server,
    umbilical: rpc::Server,
    http: Arc<HttpServer>,
    web: TcpListener,
    lost: mpsc::Receiver<LostOutput>,
    health: Option<(HealthSettings, watch::Sender<NodeHealth>)>,
    listeners: Listeners<net::TcpListener>,
    keeper: Keeper,
    link: Arc<Link>,
    _locks: DirLocks,
}

/// Lets a task tracker that is going to stop leave its tasks to the program that takes its place.
#[derive(Clone, Debug)]
pub struct Keeper {
    actions: rpc::Keeper,
    umbilical: rpc::Keeper,
    shared: Arc<Mutex<Keeping>>,
    tracker: Tracker,
    /// The most bytes that are handed over.
    most: usize,
}

/// There is more to hand over than is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "about {found} bytes would be handed over about jobs and attempts, and at most {most} may be \
     (corona.tt.handover.max.bytes); there are fewer when jobs have ended"
)]
pub struct TooMuch {
    found: usize,
    most: usize,
}

#[derive(Debug, Default)]
struct Keeping {
    keeps: bool,
    kept: Option<KeptTracker>,
}

impl Keeper {
    fn of(
        actions: &rpc::Server,
        umbilical: &rpc::Server,
        tracker: &Tracker,
        settings: &TaskTrackerSettings,
    ) -> Keeper {
        Keeper {
            actions: actions.keeper(),
            umbilical: umbilical.keeper(),
            shared: Arc::default(),
            tracker: tracker.clone(),
            most: settings.handover_max_bytes,
        }
    }

    /// Checks that a restart in place would not hold too much memory.
    ///
    /// # Errors
    /// It would.
    pub fn check(&self) -> Result<(), TooMuch> {
        let (found, most) = (self.tracker.handed_bytes(), self.most);
        if found > most { Err(TooMuch { found, most }) } else { Ok(()) }
    }

    /// From now on, tasks do not end when the task tracker is stopped, and connections are not closed.
    pub fn keep(&self) {
        self.actions.keep();
        self.umbilical.keep();
        self.lock().keeps = true;
    }

    /// What was kept, once the task tracker has ended. None if it has ended for another reason.
    pub fn take(&self) -> Option<KeptTracker> {
        self.lock().kept.take()
    }

    fn keeps(&self) -> bool {
        self.lock().keeps
    }

    fn lock(&self) -> MutexGuard<'_, Keeping> {
        // Each change leaves it whole.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a task tracker cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Its certificate cannot be used.
    #[error(transparent)]
    Access(#[from] GateError),
    /// This machine's name is not known.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The slots of this machine are not configured.
    #[error(
        "cm.cpu.to.resource.partitioning has no entry for {cpus} CPUs, and none for 1 to multiply"
    )]
    Slots {
        /// The CPUs of this machine.
        cpus: i16,
    },
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] CannotListen),
    /// Strangers could connect where tasks do.
    #[error(
        "mapred.task.tracker.report.address is {0}: tasks call without TLS, so where corona.tls=require it must be an \
         address of the loopback network, such as 127.0.0.1:0"
    )]
    ReportAddress(SocketAddr),
    /// No local directory can be used.
    #[error("mapred.local.dir")]
    LocalDirs(#[from] LocalDirError),
    /// A local directory is in use.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file system is not named as one.
    #[error("fs.default.name and mapred.system.dir")]
    FileSystem(#[from] FileSystemsError),
    /// Something of the machine cannot be had.
    #[error("cannot {what}: {error}")]
    Machine {
        /// The step that failed.
        what: &'static str,
        /// Why it cannot.
        error: io::Error,
    },
}

/// Checks what can be checked of the settings beside a task tracker that runs: files of TLS, slots, file systems.
///
/// # Errors
/// A task tracker cannot start with them.
pub fn check_settings(loaded: &LoadedTaskTracker) -> Result<(), StartError> {
    let LoadedTaskTracker { settings, file_systems, .. } = loaded;
    Gate::open(&settings.tls)?;
    granted(settings)?;
    FileSystems::new(&settings.files, file_systems.clone())?;
    Ok(())
}

impl TaskTracker {
    /// Ends leftover processes of an earlier run, opens all ports and gets everything ready.
    /// `variable` returns variables of the environment. Nothing is served before [`Self::run`].
    /// Must be called within a tokio runtime.
    pub fn bind<'a>(
        loaded: LoadedTaskTracker,
        variable: &'a (dyn Fn(&str) -> Option<String> + Sync),
    ) -> Boxed<'a, Result<TaskTracker, StartError>> {
        TaskTracker::bind_with(loaded, variable, None)
    }

    /// The same, going on with what a former program in this process has kept.
    pub fn bind_with<'a>(
        loaded: LoadedTaskTracker,
        variable: &'a (dyn Fn(&str) -> Option<String> + Sync),
        kept: Option<KeptTracker>,
    ) -> Boxed<'a, Result<TaskTracker, StartError>> {
        Box::pin(TaskTracker::open(loaded, variable, kept))
    }

    async fn open(
        loaded: LoadedTaskTracker,
        variable: &(dyn Fn(&str) -> Option<String> + Sync),
        kept: Option<KeptTracker>,
    ) -> Result<TaskTracker, StartError> {
        let (state, listeners, connections) = match kept {
            None => (None, None, Default::default()),
            Some(KeptTracker { state, listeners, actions, umbilical }) => {
                (Some(state), Some(listeners), (actions, umbilical))
            }
        };
        let LoadedTaskTracker { settings, site, arguments, file_systems, user, .. } = loaded;
        let settings = Arc::new(settings);
        let gate = Gate::open(&settings.tls)?;
        let place = Place::take(&settings, &gate, state.as_ref(), listeners).await?;
        let (dirs, host, addresses) = (&place.dirs, &place.host, place.addresses);
        let files = Arc::new(FileSystems::new(&settings.files, file_systems)?);
        let counters = files.counters();
        let outputs = Arc::new(MapOutputs::new(dirs.clone(), settings.index_cache_bytes));
        let logs = Logs::new(settings.logs.clone());
        let found = install::find(&settings.child, &settings.files, variable).await;
        let job_trackers =
            job_tracker_parts(&settings, &place, &found, &files, &logs, &site, &arguments).await?;
        let archives = archives(&settings, &place, &found, &site);
        let (own_host, deletion) = (settings.host.clone(), place.deletion.clone());
        let localiser =
            Localiser::new(site, own_host, &settings.files, dirs.clone(), files, deletion);
        let name = user.unwrap_or_else(|| "unknown".into());
        let user = rpc::User { groups: vec![name.clone()], name };
        let no_threads = |error| StartError::Machine { what: "start threads", error };
        let (http, lost) =
            http_server(&settings, &place, &outputs, &logs, &gate).map_err(no_threads)?;
        let heartbeat_threads =
            Threads::start("heartbeat", HEARTBEAT_THREADS).map_err(no_threads)?;
        let (health_sender, health) = watch::channel(NodeHealth::default());
        let fitness = Arc::new(Fitness::new(dirs.clone(), Some(settings.logs.log_dir.clone())));
        let about = about(&settings, &place, &found);
        let groups = state.as_ref().map(|state| state.tracker.groups()).unwrap_or_default();
        let tracker_settings = TrackerSettings::of(&settings, user);
        let (node_state, job_tracker_states, former) =
            former(state, &localiser, tracker_settings.table).await;
        let parts = Parts {
            identity: place.identity(),
            slots: accepted(place.granted, settings.slot_multiplier),
            install: found.install,
            dirs: dirs.clone(),
            fitness: fitness.clone(),
            localiser,
            notes: notes_in(dirs)?,
            logs,
            outputs,
            umbilical: addresses.umbilical,
            archives,
            cgroups: cgroups(&settings, dirs, groups).await,
            health,
            settings: tracker_settings,
        };
        let tracker = match former {
            None => Tracker::start(parts),
            Some(former) => Tracker::go_on(parts, former),
        };
        let runs_job_trackers = job_trackers.as_ref().is_some_and(|parts| parts.limit > 0);
        let job_trackers = start_job_trackers(job_trackers, &tracker, job_tracker_states);
        let services = action_services(&tracker, &job_trackers);
        let actions = host.application_address(addresses.actions.port());
        let node = place.node_info(applications(&actions, runs_job_trackers));
        let server =
            Callbacks::serve(tracker.clone(), place.listeners.callbacks, settings.callback_timeout);
        let link = Arc::new(Link::default());
        let pages = pages(about, &tracker, &job_trackers, &link, dirs, &http, counters);
        let heartbeats =
            heartbeats(&settings, node, place.dirs, fitness, &link, heartbeat_threads, &tracker);
        let heartbeats = match node_state {
            None => heartbeats,
            Some(former) => heartbeats.as_former(former),
        };
        let actions = rpc::Server::new(place.listeners.actions, services, limits(&settings))
            .with_former(connections.0)
            .with_gate(gate.clone());
        let umbilical = tracker.umbilical_services();
        let umbilical = rpc::Server::new(place.listeners.umbilical, umbilical, limits(&settings))
            .with_former(connections.1);
        let keeper = Keeper::of(&actions, &umbilical, &tracker, &settings);
        Ok(TaskTracker {
            heartbeats,
            callbacks: server.with_gate(gate.clone()),
            actions,
            gate,
            umbilical,
            listeners: place.second,
            keeper,
            link,
            http: Arc::new(http.with_pages(Arc::new(pages))),
            web: place.listeners.web,
            lost,
            health: settings.health.clone().map(|health| (health, health_sender)),
            tracker,
            job_trackers,
            addresses,
            name: place.name,
            _locks: place.locks,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Lets it leave its tasks to the program that takes its place.
    pub fn keeper(&self) -> Keeper {
        self.keeper.clone()
    }

    /// The connection to its cluster manager, which may ask for a restart in place.
    pub fn link(&self) -> Arc<Link> {
        self.link.clone()
    }

    /// Its name in the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Serves until `stop` becomes true or its sender is dropped, or the cluster manager refuses
    /// it. Then it ends the processes of its tasks and returns.
    pub fn run(self, stop: watch::Receiver<bool>) -> Boxed<'static, Ending> {
        Box::pin(self.serve(stop))
    }

    async fn serve(self, stop: watch::Receiver<bool>) -> Ending {
        let TaskTracker { tracker, mut heartbeats, callbacks, actions, umbilical, http, .. } = self;
        let (stop_servers, stopped) = watch::channel(false);
        let mut servers = ServiceTasks::default();
        let renewing = self.gate.clone().maintain(stopped.clone());
        servers.spawn("the renewal of the certificate", renewing);
        servers.spawn("the server for job trackers", actions.run(stopped.clone()));
        servers.spawn("the server for tasks", umbilical.run(stopped.clone()));
        let callbacks = callbacks.run::<CoronaTaskTracker>(stopped.clone());
        servers.spawn("the server for the cluster manager", callbacks);
        servers.spawn("the HTTP server", http.serve(self.web, stopped.clone()));
        if let Some((settings, results)) = self.health {
            let checking = until(stopped.clone(), watch_health(settings, results));
            servers.spawn("the health checks", checking);
        }
        let telling = tell_of_lost_outputs(tracker.clone(), self.lost);
        servers.spawn("the reporter of lost map outputs", until(stopped, telling));
        let ending = until_broken(&mut servers, heartbeats.run(stop)).await;
        if ending == Ending::Stopped && self.keeper.keeps() {
            stop_servers.send_replace(true);
            while servers.ended().await.is_err() {}
            let job_trackers = async {
                match &self.job_trackers {
                    Some(job_trackers) => job_trackers.hand_over().await,
                    None => HandedJobTrackers::default(),
                }
            };
            let node = heartbeats.hand_over();
            let (job_trackers, tracker) = tokio::join!(job_trackers, tracker.hand_over());
            let HandedJobTrackers { running: job_trackers, unfinished } = job_trackers;
            let state = HandedState { node, tracker, job_trackers, unfinished };
            let actions = self.keeper.actions.take().connections;
            let umbilical = self.keeper.umbilical.take().connections;
            let kept = KeptTracker { state, listeners: self.listeners, actions, umbilical };
            self.keeper.lock().kept = Some(kept);
            return ending;
        }
        // Tasks can report as long as they run.
        let stop_job_trackers = async {
            if let Some(job_trackers) = &self.job_trackers {
                job_trackers.stop().await;
            }
        };
        tokio::join!(tracker.stop(), stop_job_trackers);
        // Nothing runs here any more that could run twice.
        if matches!(ending, Ending::Stopped | Ending::TaskPanicked(_)) {
            heartbeats.leave().await;
        }
        stop_servers.send_replace(true);
        // Panics are only logged from here on.
        while servers.ended().await.is_err() {}
        ending
    }
}

/// What a task tracker has of its machine.
struct Place {
    host: Host,
    granted: SlotCounts,
    dirs: Arc<LocalDirs>,
    locks: DirLocks,
    deletion: Deletion,
    listeners: Listeners<TcpListener>,
    /// The same listeners, for the program that takes the place of this one.
    second: Listeners<net::TcpListener>,
    addresses: Addresses,
    name: String,
}

impl Place {
    fn identity(&self) -> Identity {
        Identity {
            name: self.name.clone(),
            host: self.host.name.clone(),
            http_port: self.addresses.http.port(),
        }
    }

    /// The node as its heartbeats describe it.
    fn node_info(&self, applications: BTreeMap<generated::ResourceType, String>) -> NodeInfo {
        NodeInfo {
            name: self.name.clone(),
            host: self.host.name.clone(),
            callback_port: self.addresses.callbacks.port(),
            applications,
        }
    }

    /// Takes it, or goes on with that of a former program: then its listeners stay, whatever is configured by now.
    async fn take(
        settings: &Arc<TaskTrackerSettings>,
        gate: &Gate,
        former: Option<&HandedState>,
        listeners: Option<Listeners<net::TcpListener>>,
    ) -> Result<Place, StartError> {
        let (web, actions, umbilical, callbacks) = match listeners {
            None => (None, None, None, None),
            Some(Listeners { web, actions, umbilical, callbacks }) => {
                (Some(web), Some(actions), Some(umbilical), Some(callbacks))
            }
        };
        // A second task tracker of this machine fails here, before it ends the tasks of the first.
        let web = kept_or_opened(HTTP_ADDRESS, web, &settings.http.address).await?;
        let configured = settings.host.clone();
        let host = blocking(move || Host::find(configured.as_deref())).await?;
        if host.is_hidden_from(&settings.cluster_manager.host) {
            tracing::warn!(
                "{} resolves to {}, which other machines cannot reach; set slave.host.name",
                host.name,
                host.address
            );
        }
        let granted = granted(settings)?;
        let dirs = settings.clone();
        let adopted = former.map(|former| {
            let names = former.notes();
            let names = names.iter().filter_map(|note| note.file_name().map(ToOwned::to_owned));
            (names.collect(), former.pids())
        });
        let (dirs, locks, deletion) = blocking(move || clear(&dirs, adopted)).await?;
        let umbilical = kept_or_opened(REPORT_ADDRESS, umbilical, &settings.report_address).await?;
        let reported = local(&umbilical)?;
        if gate.mode() == TlsMode::Require && !reported.ip().is_loopback() {
            return Err(StartError::ReportAddress(reported));
        }
        let host_address = host.address.to_string();
        let actions_at = HostPort { host: host_address.clone().into(), port: settings.action_port };
        let actions = kept_or_opened(ACTION_ADDRESS, actions, &actions_at).await?;
        let port = settings.callback_port;
        let (callbacks_on, callback_host) = match settings.callbacks_on_host_only {
            true => (ListenOn::Address((host.address, port).into()), &*host_address),
            false => (ListenOn::AnyAddress(port), "any address"),
        };
        let callbacks = match callbacks {
            Some(callbacks) => kept(CALLBACK_PORT, callbacks)?,
            None => listen(callbacks_on)
                .map_err(CannotListen::at(CALLBACK_PORT, &format!("{callback_host}:{port}")))?,
        };
        let addresses = Addresses {
            http: local(&web)?,
            actions: local(&actions)?,
            umbilical: address_for_tasks(local(&umbilical)?),
            callbacks: local(&callbacks)?,
        };
        let report_host = settings.report_address.host.clone();
        let report_host = blocking(move || name_of(&report_host)).await;
        let name = match former {
            Some(former) => former.node.name.clone(),
            None => host.tracker_name(&report_host, addresses.umbilical),
        };
        let second = Listeners {
            web: again(&web)?,
            actions: again(&actions)?,
            umbilical: again(&umbilical)?,
            callbacks: again(&callbacks)?,
        };
        let listeners = Listeners { web, actions, umbilical, callbacks };
        Ok(Place { host, granted, dirs, locks, deletion, listeners, second, addresses, name })
    }
}

/// What a former program has handed over, in parts.
async fn former(
    state: Option<HandedState>,
    localiser: &Localiser,
    limits: TableLimits,
) -> (Option<HandedNode>, HandedJobTrackers, Option<Former>) {
    let Some(HandedState { node, tracker, job_trackers, unfinished }) = state else {
        return (None, HandedJobTrackers::default(), None);
    };
    let job_trackers = HandedJobTrackers { running: job_trackers, unfinished };
    let localiser = localiser.clone();
    let former = blocking(move || Former::read(tracker, &localiser, limits)).await;
    (Some(node), job_trackers, Some(former))
}

/// The remote job trackers here, if any may run: those that a former program has left go on.
fn start_job_trackers(
    parts: Option<job_trackers::Parts>,
    tracker: &Tracker,
    handed: HandedJobTrackers,
) -> Option<JobTrackers> {
    let tracker = tracker.clone();
    let keep_logs = Box::new(move |id: &AttemptId| Some(tracker.keep_logs(id)));
    let job_trackers = JobTrackers::new(parts?, keep_logs);
    job_trackers.take_over(handed);
    Some(job_trackers)
}

fn action_services(tracker: &Tracker, job_trackers: &Option<JobTrackers>) -> rpc::Services {
    match job_trackers {
        Some(job_trackers) => tracker.action_services(Arc::new(job_trackers.clone())),
        None => tracker.action_services(Arc::new(NoJobTrackers)),
    }
}

/// The pages of a tracker and of the remote job trackers beside it.
fn pages(
    about: About,
    tracker: &Tracker,
    job_trackers: &Option<JobTrackers>,
    link: &Arc<Link>,
    dirs: &Arc<LocalDirs>,
    http: &HttpServer,
    files: Arc<Counters>,
) -> NodePages {
    let (tracker, job_trackers) = (tracker.clone(), job_trackers.clone());
    NodePages {
        about,
        look: Box::new(move || tracker.snapshot()),
        job_trackers: Box::new(move || job_trackers.as_ref().map(JobTrackers::snapshot)),
        link: link.clone(),
        dirs: dirs.clone(),
        http: http.counters(),
        files,
    }
}

/// The heartbeats of the node, which make room on full disks by ending tasks.
fn heartbeats(
    settings: &Arc<TaskTrackerSettings>,
    node: NodeInfo,
    dirs: Arc<LocalDirs>,
    fitness: Arc<Fitness>,
    link: &Arc<Link>,
    threads: Threads,
    tracker: &Tracker,
) -> Heartbeats {
    let pauses = Pauses::new(settings.heartbeat_interval);
    let tracker = tracker.clone();
    let make_room = Arc::new(move || tracker.kill_one_for_room());
    let (settings, link) = (settings.clone(), link.clone());
    Heartbeats::new(settings, node, pauses, dirs, fitness, link, threads, make_room)
}

/// What remote job trackers need here, if any may run.
async fn job_tracker_parts(
    settings: &TaskTrackerSettings,
    place: &Place,
    found: &FoundProgram,
    files: &Arc<FileSystems>,
    logs: &Logs,
    site: &SiteProperties,
    arguments: &[String],
) -> Result<Option<job_trackers::Parts>, StartError> {
    let Some(remote) = &settings.remote_job_trackers else { return Ok(None) };
    let slots = slots_of(settings, ResourceType::JobTracker)?;
    let slots = slots.saturating_mul(settings.slot_multiplier);
    Ok(Some(job_trackers::Parts {
        limit: usize::try_from(slots).unwrap_or(usize::MAX),
        program: job_tracker_program(remote, &found.install, arguments).await,
        install: found.install.clone(),
        site: site.clone(),
        dirs: place.dirs.clone(),
        system_dir: files.system_dir().to_string(),
        files: files.clone(),
        notes: notes_in(&place.dirs)?,
        deletion: place.deletion.clone(),
        logs: logs.clone(),
        http: (place.host.name.clone(), place.addresses.http.port()),
        sigkill_delay: settings.child.sigkill_delay,
    }))
}

fn http_server(
    settings: &TaskTrackerSettings,
    place: &Place,
    outputs: &Arc<MapOutputs>,
    logs: &Logs,
    gate: &Arc<Gate>,
) -> io::Result<(HttpServer, mpsc::Receiver<LostOutput>)> {
    let (sender, lost) = mpsc::channel(LOST_OUTPUTS);
    let (outputs, logs) = (outputs.clone(), logs.clone());
    let names = settings.http.hosts.iter().map(|name| &**name);
    let own = [&*settings.http.address.host, &*place.host.name];
    let hosts = Hosts::of_machine(names.chain(own));
    let server = HttpServer::new(outputs, logs, sender, &settings.http, hosts, gate.clone())?;
    Ok((server, lost))
}

/// What the pages say of this task tracker.
fn about(settings: &TaskTrackerSettings, place: &Place, found: &FoundProgram) -> About {
    About {
        addresses: place.addresses,
        cluster_manager: settings.cluster_manager.clone(),
        cluster_manager_pages: pages_of(settings),
        finished_jobs: settings.finished_jobs.as_ref().and_then(HostPort::page_address),
        granted: place.granted,
        slot_multiplier: settings.slot_multiplier,
        node_expiry: settings.node_expiry,
        started: SystemTime::now(),
        java_problem: found.java_problem.clone(),
        expects_java: found.expects_java,
    }
}

/// Archives of the classes of Java's tasks, if they are wanted.
fn archives(
    settings: &TaskTrackerSettings,
    place: &Place,
    found: &FoundProgram,
    site: &SiteProperties,
) -> Option<Arc<ClassArchives>> {
    settings.child.class_archive.then(|| {
        ClassArchives::new(ArchivedInstall {
            java: found.install.java.clone(),
            version: found.java_version.clone(),
            class_path: found.install.class_path.clone(),
            local_dir: place.dirs.usable().into_iter().next().unwrap_or_default(),
            umbilical: place.addresses.umbilical,
            limit: settings.child.class_archive_timeout,
            site: site.clone(),
        })
    })
}

fn limits(settings: &TaskTrackerSettings) -> rpc::Limits {
    rpc::Limits {
        max_connections: settings.rpc_max_connections,
        max_total_inflight_bytes: settings.rpc_max_total_inflight_bytes,
        ..rpc::Limits::default()
    }
}

/// How the heartbeats end, or that a server or they themselves have failed.
async fn until_broken(
    servers: &mut ServiceTasks,
    heartbeats: impl Future<Output = Ending> + Send,
) -> Ending {
    tokio::select! {
        biased;
        Err(broken) = servers.ended() => Ending::TaskPanicked(broken),
        ending = run_essential("the heartbeat loop", heartbeats) => ending.unwrap_or_else(Ending::TaskPanicked),
    }
}

impl std::fmt::Debug for TaskTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskTracker")
            .field("name", &self.name)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl Sessions for Tracker {
    fn purge_session(&self, handle: &str) {
        Tracker::purge_session(self, handle);
    }

    fn blacklist_session(&self, handle: &str) {
        Tracker::blacklist_session(self, handle);
    }
}

const HTTP_ADDRESS: &str = "mapred.task.tracker.http.address";
const REPORT_ADDRESS: &str = "mapred.task.tracker.report.address";
const ACTION_ADDRESS: &str = "slave.host.name, corona.tt.action.port";
const CALLBACK_PORT: &str = "corona.tt.callback.port";

async fn kept_or_opened(
    key: &'static str,
    listener: Option<net::TcpListener>,
    address: &HostPort,
) -> Result<TcpListener, CannotListen> {
    match listener {
        Some(listener) => kept(key, listener),
        None => listen_at(key, &address.host, address.port).await,
    }
}

/// A listener of a former program.
fn kept(key: &'static str, listener: net::TcpListener) -> Result<TcpListener, CannotListen> {
    let failed = CannotListen::at(key, &"the listener of the former program");
    listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)).map_err(failed)
}

/// The same listener once more.
fn again(listener: &TcpListener) -> Result<net::TcpListener, StartError> {
    let failed = |error| StartError::Machine { what: "keep a listener", error };
    Ok(listener.as_fd().try_clone_to_owned().map_err(failed)?.into())
}

fn local(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    let failed = |error| StartError::Machine { what: "find an own address", error };
    listener.local_addr().map_err(failed)
}

/// Tasks are on this machine, and cannot connect to "any address".
fn address_for_tasks(mut umbilical: SocketAddr) -> SocketAddr {
    if umbilical.ip().is_unspecified() {
        umbilical.set_ip(match umbilical {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    umbilical
}

/// The slots of this machine, as the cluster manager grants them.
fn granted(settings: &TaskTrackerSettings) -> Result<SlotCounts, StartError> {
    let of = |kind| slots_of(settings, kind);
    Ok(SlotCounts { maps: of(ResourceType::Map)?, reduces: of(ResourceType::Reduce)? })
}

fn slots_of(settings: &TaskTrackerSettings, kind: ResourceType) -> Result<u32, StartError> {
    let cpus = machine_stats::cpus(settings.num_cpus, &machine_stats::machine(&settings.memory));
    let slots = settings.partitioning.slots(cpus).ok_or(StartError::Slots { cpus })?;
    Ok(slots[kind])
}

/// The program of remote job trackers with its first words; none for Java. `options` lead this program to the
/// configuration that the task tracker has.
async fn job_tracker_program(
    settings: &RemoteJobTrackerSettings,
    install: &Install,
    options: &[String],
) -> Vec<String> {
    match &settings.command {
        JobTrackerCommand::Java => Vec::new(),
        JobTrackerCommand::Program(words) => words.clone(),
        JobTrackerCommand::Own => {
            let own = std::env::current_exe().unwrap_or_else(|_| "corona".into());
            let mut words =
                vec![own.display().to_string(), "job-tracker".into(), "--remote".into()];
            let build = match &settings.build_version {
                Some(configured) => Some(configured.clone()),
                None => install::build_version(install).await,
            };
            if let Some(build) = build {
                tracing::info!(
                    build,
                    "job trackers of this node report this build to task trackers"
                );
                words.extend(["-D".into(), format!("{}={build}", keys::JT_BUILD_VERSION.name)]);
            }
            words.extend(options.iter().cloned());
            words
        }
    }
}

/// How many attempts are accepted at a time: the slots times the multiplier, so that the cluster
/// manager alone limits them. Spec: mapreduce/04 §4.1 (4).
fn accepted(granted: SlotCounts, multiplier: u32) -> SlotCounts {
    let SlotCounts { maps, reduces } = granted;
    SlotCounts {
        maps: maps.saturating_mul(multiplier),
        reduces: reduces.saturating_mul(multiplier),
    }
}

/// The address of the cluster manager's pages, if people on other machines can be led there.
fn pages_of(settings: &TaskTrackerSettings) -> Option<String> {
    let (pages, thrift) = (&settings.cluster_manager_pages, &settings.cluster_manager);
    let is_any = |host: &str| host.parse().is_ok_and(|host: IpAddr| host.is_unspecified());
    let is_local = |host: &str| {
        host == "localhost" || host.parse().is_ok_and(|host: IpAddr| host.is_loopback())
    };
    let host = if is_any(&pages.host) { &thrift.host } else { &pages.host };
    // Pages on the loopback of another machine are out of reach.
    let is_hidden = is_local(host) && !is_local(&thrift.host);
    let address = HostPort { host: host.clone(), port: pages.port };
    (pages.port != 0 && !is_hidden).then(|| format!("http://{address}/"))
}

/// The control groups of tasks, if they are wanted and can be made. If not, tasks run without them,
/// which is logged once.
async fn cgroups(
    settings: &Arc<TaskTrackerSettings>,
    dirs: &LocalDirs,
    adopted: HashSet<OsString>,
) -> Option<Cgroups> {
    let wanted = settings.cgroups.clone()?;
    let dir = dirs.usable().into_iter().next().unwrap_or_default();
    let memory = wanted.memory;
    let opened = blocking(move || Cgroups::open(&wanted, &dir, &adopted)).await;
    let fallback = match memory {
        true => {
            "; the memory of each task is checked instead, every mapred.tasktracker.taskmemorymanager.monitoring-interval"
        }
        false => "",
    };
    match opened {
        Ok((cgroups, missing)) => {
            if !missing.is_empty() {
                let missing = missing.join(" and ");
                tracing::warn!("cgroup version 2 has no controller for {missing} here{fallback}");
            }
            Some(cgroups)
        }
        Err(error) => {
            tracing::warn!(%error, "tasks have no cgroups{fallback}");
            None
        }
    }
}

/// Where notes of processes are left for the next run.
fn notes_in(dirs: &LocalDirs) -> Result<ProcessNotes, StartError> {
    let dir = dirs.usable().into_iter().next().unwrap_or_default();
    ProcessNotes::in_local_dir(&dir)
        .map_err(|error| StartError::Machine { what: "keep notes of processes", error })
}

/// Checks and locks the local directories, ends the processes of an earlier run, and moves aside
/// its leftover files.
/// Processes that a former program has handed over go on: those with these notes and numbers. Its files stay.
fn clear(
    settings: &TaskTrackerSettings,
    adopted: Option<(HashSet<OsString>, Vec<i32>)>,
) -> Result<(Arc<LocalDirs>, DirLocks, Deletion), StartError> {
    let dirs = LocalDirs::open(&settings.local)?;
    for dir in dirs.states() {
        if let Some(why) = dir.failed {
            tracing::error!(path = %dir.path.display(), why, "local directory is unusable");
        }
    }
    let usable = dirs.usable();
    let locks = DirLocks::acquire(&usable)?;
    let notes = adopted.as_ref().map(|(notes, _)| notes.clone()).unwrap_or_default();
    if let Some((_, pids)) = &adopted {
        end_strays(pids);
    }
    let ended = end_orphans(&usable, settings.child.sigkill_delay, &notes);
    if ended > 0 {
        tracing::warn!("ended {ended} leftover processes of an earlier run");
    }
    if let Some((_, pids)) = &adopted {
        // Those that have ended just now, and are this process's children.
        end_strays(pids);
    }
    let deletion = Deletion::start(&settings.local.dirs)
        .map_err(|error| StartError::Machine { what: "start a thread that deletes", error })?;
    if adopted.is_none() {
        for dir in &usable {
            deletion.discard_all_in(dir);
        }
    }
    Ok((Arc::new(dirs), locks, deletion))
}

/// The service address of each type of slot. Types without one are not granted here.
fn applications(
    actions: &str,
    with_job_trackers: bool,
) -> BTreeMap<generated::ResourceType, String> {
    use generated::ResourceType as Type;

    let job_tracker = with_job_trackers.then_some(Type::JOBTRACKER);
    let types = [Type::MAP, Type::REDUCE].into_iter().chain(job_tracker);
    types.map(|kind| (kind, actions.to_owned())).collect()
}

/// A map whose output is not there has to run again.
async fn tell_of_lost_outputs(tracker: Tracker, mut lost: mpsc::Receiver<LostOutput>) {
    while let Some(LostOutput { attempt, diagnostics }) = lost.recv().await {
        tracker.lose_output(&attempt, &diagnostics);
    }
}

#[cfg(test)]
mod tests;
