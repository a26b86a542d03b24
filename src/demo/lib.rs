//! A small cluster for a first look, all in one process: a cluster manager with its pages, emulated
//! nodes in several racks, and users whose jobs come and go.
//!
//! Nodes and sessions speak to the cluster manager over the real wire, as those of other machines
//! would. [`Demo::start`] brings the cluster up; [`Demo::run`] keeps it busy and causes typical
//! events of clusters (`script`): a job that fills everything, a pool that claims its minimum, a
//! node that loses power, one whose tasks fail, one that is added. The cluster manager's decisions
//! are read from its own stream of events (`observer`) and reported as [`News`].
//!
//! **Invariant:** nothing here decides anything about a cluster, and every reported decision of the
//! cluster manager comes from the cluster manager.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]

mod job;
mod machine;
mod news;
mod observer;
mod pace;
mod random;
mod script;
mod settings;
mod stage;
#[cfg(test)]
mod tests;
mod work;

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use machine::Machines;
pub use news::{News, Slots, Summary};
use pace::Pace;
pub use settings::Directory;
use stage::Stage;

use corona_cluster_manager::{Beginning, ClusterManager, Failure, ReloadRequest, StartError};
use corona_config::{ConfigErrors, Interfaces};
use corona_session_driver::{DriverHost, Endpoint, Listen};

/// The fewest and the most nodes of a demo.
pub const NODES: std::ops::RangeInclusive<usize> = 6..=500;
/// The slowest and the fastest pace.
pub const SPEEDS: std::ops::RangeInclusive<f64> = 0.1..=20.0;

/// News that wait to be reported.
const MAX_NEWS: usize = 10_000;
/// How long the nodes may take to join, and the cluster manager to stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two reports of the state, in seconds of the demo.
const STATUS_SECONDS: f64 = 10.0;

/// Options of a demo.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Port of the pages; 0: any free one.
    pub web_port: u16,
    /// Port of the Thrift service; 0: any free one.
    pub thrift_port: u16,
    /// Nodes at the start, within [`NODES`].
    pub nodes: usize,
    /// Which jobs come, and which nodes have trouble.
    pub seed: u64,
    /// How many times faster than usual everything happens, within [`SPEEDS`].
    pub speed: f64,
}

/// Why there is no demo, or no more.
#[derive(Debug, Error)]
pub enum DemoError {
    /// The directory for the configuration files cannot be made.
    #[error("cannot write the configuration of the demo: {0}")]
    Files(#[source] io::Error),
    /// The configuration cannot be used.
    #[error(transparent)]
    Configuration(#[from] ConfigErrors),
    /// The cluster manager does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Sessions cannot listen for notifications.
    #[error("cannot listen for notifications: {0}")]
    Listen(#[source] io::Error),
    /// The nodes did not all join in time.
    #[error("only {joined} of {nodes} nodes joined within {PATIENCE:?}")]
    Nodes {
        /// Nodes that did.
        joined: usize,
        /// Nodes that were started.
        nodes: usize,
    },
    /// The cluster manager has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The cluster manager has panicked or does not stop.
    #[error("the cluster manager did not stop in order")]
    Stop,
}

/// A cluster that is up and waits for [`Demo::run`].
#[derive(Debug)]
pub struct Demo {
    stage: Arc<Stage>,
    news: mpsc::Receiver<News>,
    web: SocketAddr,
    thrift: SocketAddr,
    seed: u64,
    reload: ReloadRequest,
    manager: tokio::task::JoinHandle<Result<(), Failure>>,
    stop_manager: watch::Sender<bool>,
    tasks: JoinSet<()>,
    directory: Directory,
    started: Instant,
}

impl Demo {
    /// Starts the cluster manager and its nodes, and returns when all nodes have joined. Must be
    /// called within a tokio runtime.
    ///
    /// # Errors
    /// When the ports are taken, most likely.
    pub async fn start(options: &Options) -> Result<Demo, DemoError> {
        let started = Instant::now();
        let pace = Pace::new(options.speed);
        let machines = Machines::new(options.nodes);
        let directory = Directory::create().map_err(DemoError::Files)?;
        settings::write(&directory, &machines, pace).map_err(DemoError::Files)?;
        let overrides = settings::overrides(&directory, &machines, options, pace);
        let mut loaded = corona_config::load(None, &overrides)?;
        // A demo is for the machine that it runs on.
        loaded.settings.interfaces = Interfaces::Loopback;
        let manager = ClusterManager::bind(loaded, Beginning::Resume).await?;
        let (web, port) = (manager.web_address(), manager.thrift_address().port());
        let thrift = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let reload = manager.reload_request();
        let (stop_manager, stopped) = watch::channel(false);
        let manager = tokio::spawn(manager.run(stopped));

        let endpoint = Endpoint::new(thrift.ip().to_string(), thrift.port());
        let mut listen = Listen::default();
        listen.address = Some(thrift.ip());
        let host = DriverHost::open(&endpoint, &listen).await.map_err(DemoError::Listen)?;
        let (tell, news) = mpsc::channel(MAX_NEWS);
        let stage = Arc::new(Stage::new(machines, host, endpoint, pace, tell));

        let mut tasks = JoinSet::new();
        for machine in stage.machines.all() {
            tasks.spawn(machine.clone().run(thrift, pace));
        }
        let joined = stage.machines.wait_until_joined(options.nodes);
        if timeout(PATIENCE, joined).await.is_err() {
            let joined = stage.machines.joined();
            return Err(DemoError::Nodes { joined, nodes: options.nodes });
        }
        let (listening, is_listening) = tokio::sync::oneshot::channel();
        tasks.spawn(observer::run(stage.clone(), web, listening));
        // Without its events the demo still runs, and has less to report.
        let _ = timeout(PATIENCE, is_listening).await;
        let seed = options.seed;
        Ok(Demo {
            stage,
            news,
            web,
            thrift,
            seed,
            reload,
            manager,
            stop_manager,
            tasks,
            directory,
            started,
        })
    }

    /// Where the pages are.
    pub fn web_address(&self) -> SocketAddr {
        self.web
    }

    /// Where the Thrift service listens.
    pub fn thrift_address(&self) -> SocketAddr {
        self.thrift
    }

    /// Nodes that are up, racks, and slots by type.
    pub fn size(&self) -> (usize, usize, Slots) {
        let machines = &self.stage.machines;
        (machines.joined(), machines.racks(), machines.slots())
    }

    /// Where the files are that may be edited while the demo runs.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A way to have the scheduling files read again at once.
    pub fn reload_request(&self) -> ReloadRequest {
        self.reload.clone()
    }

    /// Keeps the cluster busy until `stop` is done, and reports events, with the time since the
    /// start. Then stops everything.
    ///
    /// # Errors
    /// When the cluster manager has failed.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        mut report: impl FnMut(Duration, &News),
    ) -> Result<Summary, DemoError> {
        let Demo { stage, mut news, mut manager, stop_manager, mut tasks, started, .. } = self;
        tasks.spawn(work::run(stage.clone(), self.seed));
        tasks.spawn(script::run(stage.clone(), self.seed));
        let mut status = tokio::time::interval(stage.pace.seconds(STATUS_SECONDS));
        status.reset();
        tokio::pin!(stop);
        let ended_early = loop {
            tokio::select! {
                biased;
                () = &mut stop => break None,
                ended = &mut manager => break Some(ended),
                Some(item) = news.recv() => report(started.elapsed(), &item),
                _ = status.tick() => report(started.elapsed(), &stage.status()),
            }
        };
        tasks.shutdown().await;
        let ended = match ended_early {
            Some(ended) => ended,
            None => {
                stop_manager.send_replace(true);
                timeout(PATIENCE, manager).await.map_err(|_| DemoError::Stop)?
            }
        };
        ended.map_err(|_| DemoError::Stop)??;
        Ok(stage.summary(started.elapsed()))
    }
}
