//! The emulated nodes: their resources, their tasks and their heartbeats.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::news::Slots;
use super::pace::Pace;
use corona_session_driver::ResourceType;
use corona_wire::calls::{
    ClusterManager as Contract, ClusterManagerCall as Call, ClusterManagerReply as Reply,
};
use corona_wire::client::{Client, ClientOptions};
use corona_wire::generated::ResourceType as WireType;
use corona_wire::generated::{ClusterNodeInfo, ComputeSpecs, InetAddress};

/// Between heartbeats, in seconds of the demo.
pub(super) const HEARTBEAT_SECONDS: f64 = 1.0;
/// How long a node is away that restarts, or that could not connect.
const RESTART_SECONDS: f64 = 3.0;
/// Nodes of a rack, about.
const NODES_OF_A_RACK: usize = 6;
const MOST_RACKS: usize = 20;
/// One node of so many is a big one.
const BIG_ONE_OF: usize = 4;

/// CPUs, MAP slots, REDUCE slots and MB of memory of each kind of node.
const SMALL: Kind = Kind { cpus: 8, maps: 6, reduces: 2, memory_mb: 32 << 10 };
const BIG: Kind = Kind { cpus: 16, maps: 12, reduces: 4, memory_mb: 64 << 10 };
/// Memory of a task.
const TASK_MB: i64 = 1536;

const NODE_PORT: i32 = 50_060;
const SERVICE_PORT: u16 = 50_061;

#[derive(Clone, Copy, Debug)]
struct Kind {
    cpus: i16,
    maps: i64,
    reduces: i64,
    memory_mb: i32,
}

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It has no power: no heartbeats, and no task ends.
    Off,
    /// It works.
    On,
    /// It heartbeats, and its tasks fail.
    Faulty,
}

/// An emulated node.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) name: Arc<str>,
    pub(super) host: Arc<str>,
    pub(super) rack: usize,
    kind: Kind,
    condition: watch::Sender<Condition>,
    /// Whether its last heartbeat was answered.
    is_in: watch::Sender<bool>,
    tasks: [AtomicI64; 2],
}

/// All nodes, those included that are to be added later.
#[derive(Debug)]
pub(super) struct Machines {
    all: Vec<Arc<Machine>>,
    by_name: HashMap<Arc<str>, Arc<Machine>>,
    racks: usize,
}

impl Machines {
    /// `count` nodes that are on, and one that is not there yet.
    pub(super) fn new(count: usize) -> Machines {
        let racks = (count / NODES_OF_A_RACK).clamp(3, MOST_RACKS);
        let machine = |number: usize| {
            let (rack, place) = (number % racks + 1, number / racks + 1);
            let condition = if number < count { Condition::On } else { Condition::Off };
            Arc::new(Machine {
                name: format!("rack{rack}-node{place:02}").into(),
                // Literal addresses: no look-up is needed.
                host: format!("10.0.{rack}.{place}").into(),
                rack,
                kind: if place % BIG_ONE_OF == 0 { BIG } else { SMALL },
                condition: watch::Sender::new(condition),
                is_in: watch::Sender::new(false),
                tasks: Default::default(),
            })
        };
        let all: Vec<Arc<Machine>> = (0..=count).map(machine).collect();
        let by_name = all.iter().map(|machine| (machine.name.clone(), machine.clone())).collect();
        Machines { all, by_name, racks }
    }

    pub(super) fn all(&self) -> &[Arc<Machine>] {
        &self.all
    }

    /// The node that is added later.
    pub(super) fn newcomer(&self) -> Option<&Arc<Machine>> {
        self.all.last()
    }

    /// Those that work, in a fixed order.
    pub(super) fn working(&self) -> Vec<Arc<Machine>> {
        let works = |machine: &&Arc<Machine>| machine.condition() == Condition::On;
        self.all.iter().filter(works).cloned().collect()
    }

    /// The node of this name; `None` for nodes that are not the demo's.
    pub(super) fn named(&self, name: &str) -> Option<&Arc<Machine>> {
        self.by_name.get(name)
    }

    pub(super) fn racks(&self) -> usize {
        self.racks
    }

    /// Nodes whose heartbeats are answered.
    pub(super) fn joined(&self) -> usize {
        self.all.iter().filter(|machine| *machine.is_in.borrow()).count()
    }

    /// Waits until the first `count` nodes have been answered.
    pub(super) async fn wait_until_joined(&self, count: usize) {
        for machine in self.all.iter().take(count) {
            // The sender is here.
            let _ = machine.is_in.subscribe().wait_for(|is_in| *is_in).await;
        }
    }

    fn on(&self) -> impl Iterator<Item = &Arc<Machine>> {
        self.all.iter().filter(|machine| machine.condition() != Condition::Off)
    }

    /// Slots of the nodes that are not off.
    pub(super) fn slots(&self) -> Slots {
        self.on().fold(Slots::default(), |sum, machine| Slots {
            map: sum.map + machine.kind.maps,
            reduce: sum.reduce + machine.kind.reduces,
        })
    }

    /// Tasks that run on nodes that are not off.
    pub(super) fn tasks(&self) -> Slots {
        let count = |kind: usize| {
            self.on().map(|machine| machine.tasks[kind].load(Ordering::Relaxed)).sum()
        };
        Slots { map: count(0), reduce: count(1) }
    }

    /// `cm.cpu.to.resource.partitioning`: the slots of each kind of node.
    pub(super) fn partitioning() -> String {
        let item = |kind: Kind| {
            format!("\"{}\":{{\"MAP\":{},\"REDUCE\":{}}}", kind.cpus, kind.maps, kind.reduces)
        };
        format!("{{{},{}}}", item(SMALL), item(BIG))
    }
}

impl Machine {
    pub(super) fn condition(&self) -> Condition {
        *self.condition.borrow()
    }

    pub(super) fn set(&self, condition: Condition) {
        self.condition.send_replace(condition);
    }

    /// A small node: losing it does not hurt much.
    pub(super) fn is_small(&self) -> bool {
        self.kind.cpus == SMALL.cpus
    }

    pub(super) fn map_slots(&self) -> i64 {
        self.kind.maps
    }

    /// Heartbeats whenever the node is not off.
    pub(super) async fn run(self: Arc<Machine>, manager: SocketAddr, pace: Pace) {
        let mut condition = self.condition.subscribe();
        // The sender lives as long as the machine.
        while condition.wait_for(|condition| *condition != Condition::Off).await.is_ok() {
            let failed = tokio::select! {
                () = self.beat(manager, pace) => true,
                _ = condition.wait_for(|condition| *condition == Condition::Off) => false,
            };
            self.is_in.send_replace(false);
            if failed {
                sleep(pace.seconds(RESTART_SECONDS)).await;
            }
        }
    }

    /// Heartbeats until one fails, or until the cluster manager wants the node to restart.
    async fn beat(&self, manager: SocketAddr, pace: Pace) {
        let Ok(mut client) = Client::<Contract>::connect(manager, ClientOptions::default()).await
        else {
            return;
        };
        let mut due = interval(pace.seconds(HEARTBEAT_SECONDS));
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            let report = Call::NodeHeartbeat { node: Some(self.report()) };
            match client.call(&report).await {
                Ok(Reply::NodeHeartbeat(response)) if response.restart_flag => return,
                Ok(_) => drop(self.is_in.send_replace(true)),
                // Refused, as an excluded host is, or disconnected.
                Err(_) => return,
            }
        }
    }

    fn report(&self) -> ClusterNodeInfo {
        let specs = |memory_mb: i32| ComputeSpecs::new(self.kind.cpus, 1000, memory_mb, 2000);
        let tasks: i64 = self.tasks.iter().map(|tasks| tasks.load(Ordering::Relaxed)).sum();
        let used = i32::try_from(tasks * TASK_MB).unwrap_or(0);
        let service = format!("{}:{SERVICE_PORT}", self.host);
        let services = [WireType::MAP, WireType::REDUCE].map(|kind| (kind, service.clone()));
        ClusterNodeInfo {
            name: self.name.to_string(),
            address: InetAddress::new(self.host.to_string(), NODE_PORT),
            total: specs(self.kind.memory_mb),
            free: Some(specs((self.kind.memory_mb - used).max(0))),
            resource_infos: Some(services.into()),
            ended: None,
            program: None,
        }
    }
}

/// A task that runs on a node, until this is dropped.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) machine: Arc<Machine>,
    kind: usize,
}

impl Task {
    pub(super) fn start(machine: &Arc<Machine>, kind: ResourceType) -> Task {
        let kind = usize::from(kind != ResourceType::Map);
        machine.tasks[kind].fetch_add(1, Ordering::Relaxed);
        Task { machine: machine.clone(), kind }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.machine.tasks[self.kind].fetch_sub(1, Ordering::Relaxed);
    }
}
