//! The live service: the engine behind Thrift, with timers, notifications and pages.
//!
//! It holds no rule of scheduling. What peers say is translated for the engine, and what the
//! engine wants done is done.

mod access;
mod core;
mod http;
mod log;
mod notifier;
mod page;
mod racks;
mod reload;
mod rpc;
mod safe_mode;
mod translate;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Zoned;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::access::Access;
use self::core::{Clock, Core};
use self::http::Pages;
use self::notifier::{Notifier, Patience};
use self::racks::Racks;
use self::reload::Reloader;
pub use self::reload::{ConfigStatus, ReloadRequest};
use self::rpc::Rpc;
use self::safe_mode::SafeModeSwitch;
use crate::config::{ClusterManagerSettings, ConfigErrors, Loaded};
use crate::engine::{Engine, Input, Start};
use crate::wire::calls::ClusterManager as Contract;
use crate::wire::server::{Limits, ListenOn, Server, listen};

/// How long a stopping service waits for calls under way.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection to a session is kept when there is nothing to tell it.
const LINGER: Duration = Duration::from_secs(5);

/// A cluster manager that listens and is ready to serve.
#[derive(Debug)]
pub struct ClusterManager {
    thrift: Server<Rpc>,
    thrift_address: SocketAddr,
    web: TcpListener,
    web_address: SocketAddr,
    core: Arc<Core>,
    pages: Pages,
    reloader: Arc<Reloader>,
}

/// Why a cluster manager cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({key}): {error}")]
    Listen {
        /// The configuration key.
        key: &'static str,
        /// Its value.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// The host files cannot be read.
    #[error(transparent)]
    HostFiles(#[from] ConfigErrors),
    /// A state file of an earlier run lies there. Spec: cluster-manager/02 §1.
    #[error(
        "state file {} exists: a saved state may wait to be recovered; move the file away to start \
         with a clean state", path.display()
    )]
    StateFileExists {
        /// The file.
        path: PathBuf,
    },
}

impl ClusterManager {
    /// Opens both ports. Nothing is served before [`Self::run`].
    /// Must be called within a tokio runtime.
    pub async fn bind(loaded: Loaded) -> Result<Self, StartError> {
        let settings = loaded.settings.clone();
        if settings.state_file.exists() {
            let path = std::path::absolute(&settings.state_file).unwrap_or(settings.state_file);
            return Err(StartError::StateFileExists { path });
        }
        let hosts = settings.host_files.load()?;
        let web = bind_web(&settings).await?;
        let thrift = bind_thrift(&settings)?;

        let clock = Clock::new();
        let engine = new_engine(&settings, clock);
        let notifier = Notifier::new(patience(&settings));
        let core = Arc::new(Core::new(engine, clock, notifier.clone()));
        notifier.attach(&core);
        tracing::info!(
            "Included hosts: {} Excluded hosts: {}",
            hosts.hosts.include.len(),
            hosts.hosts.exclude.len()
        );
        // A fresh engine is not in safe mode, so that it refuses nothing.
        let _ = core.apply(Input::HostsChanged { hosts: hosts.hosts });

        let limits = limits(&settings);
        let access = Arc::new(Access::new(settings.access));
        access.log_openness();
        let rpc = Rpc {
            core: core.clone(),
            access: access.clone(),
            racks: Racks::new(settings.topology),
            host_files: settings.host_files,
            safe_mode: SafeModeSwitch::new(settings.proxy_job_tracker_address),
        };
        let address = |listener: &TcpListener, key| {
            listener.local_addr().map_err(|error| StartError::Listen {
                key,
                address: String::new(),
                error,
            })
        };
        Ok(ClusterManager {
            thrift_address: address(&thrift, SERVER_ADDRESS)?,
            web_address: address(&web, HTTP_ADDRESS)?,
            thrift: Server::new(thrift, rpc, limits),
            web,
            pages: Pages { core: core.clone(), notifier, access },
            reloader: Arc::new(Reloader::new(&loaded, core.clone())),
            core,
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

    /// A way to have the scheduling files read again at once.
    pub fn reload_request(&self) -> ReloadRequest {
        self.reloader.request()
    }

    /// What is known of the configuration.
    pub fn config_status(&self) -> ConfigStatus {
        self.reloader.status()
    }

    /// Serves until `stop` becomes true or its sender is gone; then lets calls under way be
    /// answered and returns.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        let ClusterManager { thrift, web, core, pages, reloader, .. } = self;
        let mut tasks = JoinSet::new();
        let stop_driving = stop.clone();
        tasks.spawn(async move { core.drive(stop_driving).await });
        tasks.spawn(reloader.run(stop.clone()));
        tasks.spawn(Arc::new(pages).serve(web, stop.clone()));
        tasks.spawn(thrift.run::<Contract>(stop));
        while tasks.join_next().await.is_some() {}
    }
}

const SERVER_ADDRESS: &str = "cm.server.address";
const HTTP_ADDRESS: &str = "cm.server.http.address";

/// Only the port of the address is used: the original listens on all interfaces.
fn bind_thrift(settings: &ClusterManagerSettings) -> Result<TcpListener, StartError> {
    let address = &settings.server_address;
    listen(ListenOn::AnyAddress(address.port)).map_err(|error| StartError::Listen {
        key: SERVER_ADDRESS,
        address: address.to_string(),
        error,
    })
}

async fn bind_web(settings: &ClusterManagerSettings) -> Result<TcpListener, StartError> {
    let address = &settings.http_address;
    TcpListener::bind((&*address.host, address.port)).await.map_err(|error| StartError::Listen {
        key: HTTP_ADDRESS,
        address: address.to_string(),
        error,
    })
}

fn new_engine(settings: &ClusterManagerSettings, clock: Clock) -> Engine {
    // Spec: cluster-manager/02 §3.1: local time.
    let id_prefix = Zoned::now().strftime("%Y%m%d%H%M").to_string().into();
    let hash_seed = {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(std::process::id())
    };
    let start = Start { now: clock.now(), id_prefix, hash_seed };
    Engine::new(settings.engine.clone(), start)
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
        idle_timeout: settings.socket_timeout.unwrap_or_default(),
        frame_timeout: wire.frame_timeout,
        drain_timeout: DRAIN_TIMEOUT,
        ..Limits::default()
    }
}
