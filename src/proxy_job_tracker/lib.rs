//! The proxy job tracker: it holds the flag of safe mode that peers poll, names the directory of the
//! files of jobs, adds up what job trackers report of their jobs, relays pages of running jobs, and
//! shows finished ones from their histories. Spec: mapreduce/05 §5.9, mapreduce/03 §3.8 and §3.9,
//! mapreduce/08 §8.8 and §8.9.
//!
//! ```text
//!  cluster manager, nodes, job trackers ──► thrift ──┐
//!  job trackers whose job has ended ──► statistics ──┤
//!  browsers, clients ──► http ─┬─► pages ──► histories, index ──► file systems
//!                              └─► relay ──► job trackers that sessions have announced
//! ```
//!
//! A file system, a job tracker or a cluster manager that does not answer delays only the requests
//! that need it.

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

mod clean_up;
mod histories;
mod http;
mod index;
mod metrics;
mod pages;
mod relay;
mod sessions;
mod statistics;
#[cfg(test)]
mod tests;
mod thrift;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corona_access::{Gate, GateError};
use corona_config::{HostPort, InForce, LoadedProxyJobTracker, ProxyJobTrackerSettings};
use corona_filesystem::{FileSystems, FsError};
use corona_hadoop::protocols::{ALL, job_aggregator};
use corona_hadoop::rpc;
use corona_model::types::Millis;
use corona_net::{CannotListen, ListenOn, listen, listen_at};
use corona_process::Boxed;
use corona_process::panics::{ServiceTasks, TaskPanicked, restart_on_panic};
use corona_web::hosts::Hosts;
use corona_web::server::{self as web, Front, Room};
use corona_wire::calls::ProxyJobTracker as Contract;
use corona_wire::server::{self, Server};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::clean_up::Cleaned;
use self::histories::Histories;
use self::index::Index;
use self::relay::Relay;
use self::sessions::Sessions;
use self::statistics::Statistics;

const THRIFT: &str = "corona.proxy.job.tracker.thriftaddr";
const RPC: &str = "corona.proxy.job.tracker.rpcaddr";
const HTTP: &str = "mapred.job.tracker.corona.proxyaddr";

/// A proxy job tracker that listens and is ready to serve.
pub struct ProxyJobTracker {
    gate: Arc<Gate>,
    shared: Arc<ProxyContext>,
    thrift: TcpListener,
    rpc: TcpListener,
    http: TcpListener,
    addresses: Addresses,
}

/// Where a proxy job tracker listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The Thrift service.
    pub thrift: SocketAddr,
    /// Hadoop RPC.
    pub rpc: SocketAddr,
    /// The pages.
    pub http: SocketAddr,
}

/// What all parts of the service share.
struct ProxyContext {
    settings: ProxyJobTrackerSettings,
    /// The name of this service on its pages.
    host: String,
    files: Arc<FileSystems>,
    histories: Arc<Histories>,
    index: Index,
    cleaned: Cleaned,
    /// The values of all keys.
    in_force: Vec<InForce>,
    /// The directory of the files of jobs, qualified.
    system_dir: String,
    /// Whether the cluster manager is in safe mode.
    safe_mode: AtomicBool,
    statistics: Statistics,
    sessions: Sessions,
    relay: Relay,
    calls: thrift::Calls,
    front: Front,
}

/// Why a proxy job tracker cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] CannotListen),
    /// Its certificate cannot be used.
    #[error(transparent)]
    Access(#[from] GateError),
    /// A directory of the configuration is not one of a file system that can be used.
    #[error("{key} {directory}: {error}")]
    Directory {
        /// The configuration key.
        key: &'static str,
        /// Its value.
        directory: String,
        /// Why it cannot be used.
        error: Box<FsError>,
    },
}

/// How the service ended.
#[derive(Debug)]
pub enum Ending {
    /// `stop` became true.
    Stopped,
    /// A part of it panicked.
    Panicked(TaskPanicked),
}

impl std::fmt::Debug for ProxyJobTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyJobTracker")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl ProxyJobTracker {
    /// Opens all ports. Nothing is read from a file system before [`ProxyJobTracker::run`], so that one
    /// that does not answer does not delay the start. Must be called within a tokio runtime.
    pub fn bind(
        loaded: LoadedProxyJobTracker,
    ) -> Boxed<'static, Result<ProxyJobTracker, StartError>> {
        Box::pin(ProxyJobTracker::open(loaded))
    }

    async fn open(loaded: LoadedProxyJobTracker) -> Result<ProxyJobTracker, StartError> {
        let LoadedProxyJobTracker { settings, file_systems, in_force, .. } = loaded;
        let gate = Gate::open(&settings.tls)?;
        let directory = |key, directory: &str| {
            let directory = directory.to_owned();
            move |error| StartError::Directory { key, directory, error: Box::new(error) }
        };
        let system = &settings.system_dir;
        let files =
            FileSystems::new(file_systems).map_err(directory("corona.system.dir", system))?;
        let (_, system_dir) =
            files.resolve(system).map_err(directory("corona.system.dir", system))?;
        let thrift = open_thrift(&settings)?;
        let rpc = open(RPC, &settings.rpc).await?;
        let http = open(HTTP, &settings.http).await?;
        let addresses = Addresses {
            thrift: local(THRIFT, &thrift)?,
            rpc: local(RPC, &rpc)?,
            http: local(HTTP, &http)?,
        };
        let sessions = &settings.sessions_dir;
        let histories = Histories::new(&files, &settings)
            .map_err(directory("corona.sessions.log.dir", sessions))?;
        let shared = Arc::new(ProxyContext {
            host: HostPort { port: addresses.http.port(), ..settings.http.clone() }.to_string(),
            files: Arc::new(files),
            histories: Arc::new(histories),
            index: Index::default(),
            cleaned: Cleaned::default(),
            in_force,
            system_dir: system_dir.to_string(),
            safe_mode: AtomicBool::new(false),
            statistics: Statistics::default(),
            sessions: Sessions::new(settings.cluster_manager.clone(), settings.relay_hosts.clone()),
            relay: Relay::new(&settings),
            calls: thrift::Calls::default(),
            front: front(&settings, gate.clone()),
            settings,
        });
        Ok(ProxyJobTracker { gate, shared, thrift, rpc, http, addresses })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Serves until `stop` becomes true or its sender is dropped.
    pub fn run(self, stop: watch::Receiver<bool>) -> Boxed<'static, Ending> {
        Box::pin(async move {
            let ProxyJobTracker { gate, shared, thrift, rpc, http, .. } = self;
            let mut tasks = ServiceTasks::default();
            tasks.spawn("the renewal of the certificate", gate.clone().maintain(stop.clone()));
            let limits = server::Limits { idle_timeout: IDLE, ..server::Limits::default() };
            let served =
                Server::<thrift::Handler>::new(thrift, thrift::Handler(shared.clone()), limits)
                    .with_gate(gate.clone());
            tasks.spawn("the Thrift server", served.run::<Contract>(stop.clone()));
            let services = rpc::Services::new()
                .offer(job_aggregator::Served::new(shared.clone()))
                .offer(thrift::safe_mode_over_rpc(shared.clone()))
                .know(ALL);
            let served = rpc::Server::new(rpc, services, rpc::Limits::default()).with_gate(gate);
            tasks.spawn("the server of Hadoop RPC", served.run(stop.clone()));
            tasks.spawn("the web server", web::serve(shared.clone(), http, stop.clone()));
            let (searching, cleaning) = (shared.clone(), shared);
            // Neither has an end: they stop with the servers.
            let background = tokio::spawn(async move {
                tokio::join!(
                    restart_on_panic("the index", || index::keep(searching.clone())),
                    restart_on_panic("the clean-up", || clean_up::keep(cleaning.clone())),
                )
            });
            let ended = tasks.ended().await;
            background.abort();
            match ended {
                Ok(()) => Ending::Stopped,
                Err(panic) => Ending::Panicked(panic),
            }
        })
    }
}

fn front(settings: &ProxyJobTrackerSettings, gate: Arc<Gate>) -> Front {
    let room = Room {
        connections: settings.max_connections,
        of_peer: settings.max_connections_per_peer,
        probes: settings.probe_connections,
    };
    let names = settings.hosts.iter().map(|name| &**name);
    let hosts = Hosts::of_machine(names.chain([&*settings.http.host]));
    Front::new(("proxy job tracker", "corona.pjt.http.hosts"), room, hosts, gate)
}

/// How long a connection of the Thrift service may be silent. The original closes after five seconds,
/// and a Java job tracker's later calls on the connection then fail.
const IDLE: Duration = Duration::from_secs(3600);

/// On all interfaces if the address is configured, as the original, unless no other machine may reach it.
fn open_thrift(settings: &ProxyJobTrackerSettings) -> Result<TcpListener, CannotListen> {
    let port = settings.thrift.port;
    let on = match settings.thrift_on_all {
        true => ListenOn::AnyAddress(port),
        false => ListenOn::Address((Ipv4Addr::LOCALHOST, port).into()),
    };
    listen(on).map_err(CannotListen::at(THRIFT, &settings.thrift))
}

async fn open(key: &'static str, address: &HostPort) -> Result<TcpListener, CannotListen> {
    listen_at(key, &address.host, address.port).await
}

fn local(key: &'static str, listener: &TcpListener) -> Result<SocketAddr, CannotListen> {
    listener.local_addr().map_err(CannotListen::at(key, &HostPort::default()))
}

/// The time of the machine's clock.
fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
