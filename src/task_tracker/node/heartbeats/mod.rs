//! Heartbeats to the cluster manager, and the effects of their replies.
//!
//! It knows no job and no task. Spec: mapreduce/04 §4.2, mapreduce/03 §3.7, §3.9.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::fitness::{Fitness, NO_ROOM_GB};
use super::former;
use super::link::Link;
use crate::local_dirs::LocalDirs;
use crate::machine_stats::{Gauge, MachineStats};
use corona_config::{HostPort, TaskTrackerSettings};
use corona_process::panics::TaskPanicked;
use corona_process::threads::Threads;
use corona_wire::calls::{ClusterManager, ProxyJobTracker};
use corona_wire::client::{CallError, Client, ClientOptions, ConnectError};
use corona_wire::generated::{
    ClusterNodeInfo, ComputeSpecs, InetAddress, NodeHeartbeatResponse, Program, ResourceType,
};
use corona_wire::{Exception, Service};

/// How a node presents itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The task tracker's name.
    pub name: String,
    /// The host under which others reach it.
    pub host: String,
    /// The port of its Thrift service.
    pub callback_port: u16,
    /// Where job trackers find it, by the types of slots that it offers.
    pub applications: BTreeMap<ResourceType, String>,
}

/// Times between heartbeats. The original's, except where they are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// After each heartbeat.
    pub interval: Duration,
    /// Before that, after one that failed.
    pub after_failure: Duration,
    /// Between looks whether safe mode is over.
    pub safe_mode: Duration,
    /// The pause when the safe mode is not known.
    pub unknown_mode: Duration,
    /// How many heartbeats fail, none of which was ever answered, before it is given up.
    pub failures: u32,
}

impl Pauses {
    /// With this interval.
    pub fn new(interval: Duration) -> Pauses {
        Pauses {
            interval,
            after_failure: Duration::from_secs(10),
            safe_mode: Duration::from_secs(1),
            unknown_mode: Duration::from_secs(5),
            failures: 10,
        }
    }
}

/// Why there are no more heartbeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was stopped.
    Stopped,
    /// The cluster manager ordered a restart of the task tracker.
    Restart,
    /// The cluster manager does not let this host take part.
    Disallowed {
        /// The host as the cluster manager calls it.
        host: String,
    },
    /// The cluster manager has never answered.
    Unreachable {
        /// How many heartbeats failed in a row.
        failures: u32,
        /// The result of the last heartbeat.
        last: String,
    },
    /// An essential part of the task tracker failed.
    TaskPanicked(TaskPanicked),
}

/// Something that is done after an answer when the local directories have run full. It does not block.
pub type MakeRoom = Arc<dyn Fn() + Send + Sync>;

/// Sends heartbeats.
pub struct Heartbeats {
    cluster_manager: HostPort,
    proxy_job_tracker: HostPort,
    node: NodeInfo,
    pauses: Pauses,
    measure: Measure,
    link: Arc<Link>,
    /// Nothing that peers cause runs on them: a node that cannot look at itself, or look up its
    /// cluster manager, is lost to the cluster.
    threads: Threads,
    make_room: MakeRoom,
    /// Names of nodes that have ended, which the cluster manager is still to learn.
    ended: Vec<String>,
    /// Whether a former program in this process was this node.
    goes_on: bool,
}

/// A node, for the program that takes the place of this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedNode {
    /// Its name.
    pub name: String,
    /// Names of nodes that have ended, which the cluster manager is still to learn.
    ended: Vec<String>,
    /// Whether the cluster manager has answered a heartbeat.
    is_known: bool,
}

/// How long the cluster manager may take to learn that a node leaves.
const LEAVING: Duration = Duration::from_secs(3);

/// The measurement before each heartbeat.
struct Measure {
    settings: Arc<TaskTrackerSettings>,
    dirs: Arc<LocalDirs>,
    fitness: Arc<Fitness>,
    gauge: Gauge,
}

/// Why a heartbeat brought no answer.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Heartbeats {
    /// Heartbeats of this node. Blocking work is done on these threads.
    #[expect(clippy::too_many_arguments, reason = "each is another part of the node")]
    pub fn new(
        settings: Arc<TaskTrackerSettings>,
        node: NodeInfo,
        pauses: Pauses,
        dirs: Arc<LocalDirs>,
        fitness: Arc<Fitness>,
        link: Arc<Link>,
        threads: Threads,
        make_room: MakeRoom,
    ) -> Heartbeats {
        Heartbeats {
            cluster_manager: settings.cluster_manager.clone(),
            proxy_job_tracker: settings.proxy_job_tracker.clone(),
            node,
            pauses,
            measure: Measure { settings, dirs, fitness, gauge: Gauge::default() },
            link,
            threads,
            make_room,
            ended: Vec::new(),
            goes_on: false,
        }
    }

    /// Goes on as the node of a former program in this process.
    #[must_use]
    pub fn as_former(self, former: HandedNode) -> Heartbeats {
        if former.is_known {
            self.link.answered();
        }
        Heartbeats { ended: former.ended, goes_on: true, ..self }
    }

    /// Hands the node over.
    pub fn hand_over(&self) -> HandedNode {
        HandedNode {
            name: self.node.name.clone(),
            ended: self.ended.clone(),
            is_known: self.link.state().answered > 0,
        }
    }

    /// Sends heartbeats until `stop` becomes true or its sender is dropped, or until it must end.
    pub async fn run(&mut self, mut stop: watch::Receiver<bool>) -> Ending {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => Ending::Stopped,
            ending = self.beat() => ending,
        }
    }

    /// Reports that this node ends, so that its slots are not granted any more and what ran on them runs elsewhere
    /// at once. A cluster manager that cannot be reached learns it from the next process of this node, or when
    /// the node expires.
    pub async fn leave(mut self) {
        if self.link.state().answered == 0 {
            return;
        }
        let leaving = async {
            let mut node = self.look().await;
            // For a cluster manager that does not know the field, this is a heartbeat like any other.
            node.ended = Some(vec![self.node.name.clone()]);
            self.heartbeat(&mut None, node).await
        };
        match timeout(LEAVING, leaving).await {
            Ok(Ok(_)) => {
                tracing::info!("Cluster Manager knows that this node has ended");
                // A disk that hangs must not delay the end: the next process reports this one again.
                let _ = timeout(LEAVING, self.note(Vec::new())).await;
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot report to the cluster manager that this node ends");
            }
            Err(_) => tracing::warn!("the cluster manager did not answer that this node ends"),
        }
    }

    async fn beat(&mut self) -> Ending {
        let mut connection = None;
        if !self.goes_on {
            let (dirs, own) = (self.measure.dirs.clone(), self.node.name.clone());
            self.ended = self.threads.run(move || former::claim(&dirs, &own)).await;
            self.goes_on = true;
        }
        if !self.ended.is_empty() {
            tracing::info!(nodes = ?self.ended, "this node replaces earlier processes");
        }
        loop {
            let node = self.look().await;
            match self.heartbeat(&mut connection, node).await {
                Ok(answer) if answer.restart_flag => return Ending::Restart,
                Ok(answer) => {
                    self.link.answered();
                    if answer.restart_in_place == Some(true) {
                        self.link.ask_restart();
                    }
                    if !std::mem::take(&mut self.ended).is_empty() {
                        self.note(vec![self.node.name.clone()]).await;
                    }
                    self.make_room_if_full().await;
                }
                Err(Failure::Call(CallError::Exception(Exception::DisallowedNode(node)))) => {
                    return Ending::Disallowed { host: node.host };
                }
                Err(Failure::Call(CallError::Exception(Exception::SafeMode(_)))) => {
                    tracing::info!("Cluster Manager is in Safe Mode");
                    self.link.waits("the cluster manager is in safe mode");
                    if let Err(error) = self.wait_while_safe_mode().await {
                        tracing::warn!(%error, "cannot get the safe mode flag from the proxy job tracker");
                    }
                }
                Err(failure) => {
                    connection = None;
                    if let Some(ending) = self.after_failure(&failure).await {
                        return ending;
                    }
                }
            }
            sleep(self.pauses.interval).await;
        }
    }

    /// Sends one heartbeat.
    async fn heartbeat(
        &self,
        connection: &mut Option<Client<ClusterManager>>,
        node: ClusterNodeInfo,
    ) -> Result<NodeHeartbeatResponse, Failure> {
        let client = match connection {
            Some(client) => client,
            none => {
                tracing::info!("Connecting to Cluster Manager at {}", self.cluster_manager);
                none.insert(self.connect(&self.cluster_manager).await?)
            }
        };
        Ok(client.node_heartbeat(node).await?)
    }

    /// Waits until there may be another attempt. Returns the reason if there may be none: a node that has been
    /// answered may have tasks, which outlive any outage of the cluster manager.
    async fn after_failure(&self, failure: &Failure) -> Option<Ending> {
        let last = failure.to_string();
        let failures = self.link.failed(last.clone());
        let (most, after) = (self.pauses.failures, self.pauses.after_failure);
        let never_answered = self.link.state().answered == 0;
        if never_answered && failures >= most {
            return Some(Ending::Unreachable { failures, last });
        }
        let cluster_manager = &self.cluster_manager;
        let of = if never_answered { format!(" of {most}") } else { String::new() };
        tracing::error!(%cluster_manager, "heartbeat attempt {failures}{of} failed: {last}; retrying in {after:?}");
        sleep(after).await;
        if let Err(error) = self.wait_while_safe_mode().await {
            tracing::warn!(%error, "cannot get the safe mode flag from the proxy job tracker");
            sleep(self.pauses.unknown_mode).await;
        }
        None
    }

    /// Waits until the proxy job tracker reports that there is no safe mode.
    ///
    /// Errors: it cannot be asked.
    async fn wait_while_safe_mode(&self) -> Result<(), Failure> {
        let mut client: Client<ProxyJobTracker> = self.connect(&self.proxy_job_tracker).await?;
        while client.get_cluster_manager_safe_mode_flag().await? {
            self.link
                .waits("the proxy job tracker reports that the cluster manager is in safe mode");
            sleep(self.pauses.safe_mode).await;
        }
        Ok(())
    }

    /// Measures the machine, on a thread that may wait for disks. A node that cannot take tasks has less free
    /// disk space than there can be.
    async fn look(&mut self) -> ClusterNodeInfo {
        let measure = &mut self.measure;
        let (settings, dirs) = (measure.settings.clone(), measure.dirs.clone());
        let fitness = measure.fitness.clone();
        let mut gauge = std::mem::take(&mut measure.gauge);
        let reading = self.threads.run(move || {
            let (total, free) = gauge.read(&settings, &dirs);
            let disk_gb = if fitness.look() { free.disk_gb } else { NO_ROOM_GB };
            (gauge, (total, MachineStats { disk_gb, ..free }))
        });
        let (gauge, (total, free)) = reading.await;
        self.measure.gauge = gauge;
        let NodeInfo { name, host, callback_port, applications } = self.node.clone();
        let address = InetAddress { host, port: callback_port.into() };
        let ended = Some(self.ended.clone()).filter(|ended| !ended.is_empty());
        let program = Program {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_ms: corona_process::started_ms(),
            refused: self.link.state().refused,
        };
        let (total, free) = (specs(total), specs(free));
        ClusterNodeInfo::new(name, address, total, free, applications, ended, program)
    }

    /// Notes the processes of this node that the cluster manager knows.
    async fn note(&self, names: Vec<String>) {
        let dirs = self.measure.dirs.clone();
        let noting = move || {
            former::note(&dirs, &names.iter().map(String::as_str).collect::<Vec<_>>());
        };
        self.threads.run(noting).await;
    }

    async fn make_room_if_full(&self) {
        let dirs = self.measure.dirs.clone();
        if self.threads.run(move || dirs.must_kill()).await {
            (self.make_room)();
        }
    }

    async fn connect<S: Service>(&self, to: &HostPort) -> Result<Client<S>, ConnectError> {
        // Answers are small, whatever the other end is.
        let options = ClientOptions { max_reply_bytes: 1 << 20, ..ClientOptions::default() };
        let (host, port) = (to.host.clone(), to.port);
        let look_up = self.threads.run(move || {
            (&*host, port).to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>)
        });
        let found = timeout(options.connect_timeout, look_up).await;
        let found = found.map_err(|_| ConnectError::Timeout(options.connect_timeout))??;
        Client::connect(&*found, options).await
    }
}

impl std::fmt::Debug for Heartbeats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heartbeats").field("node", &self.node).finish_non_exhaustive()
    }
}

fn specs(stats: MachineStats) -> ComputeSpecs {
    let network = i16::try_from(stats.network_mbps).unwrap_or(i16::MAX);
    ComputeSpecs::new(stats.num_cpus, network, stats.memory_mb, stats.disk_gb)
}

#[cfg(test)]
mod tests;
