//! Emulated task trackers: their heartbeats, over connections that they share. A node is an encoded
//! call; thousands of them are one task.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};

use super::faults::FaultKind;
use super::meter::{Count, Measure};
use super::plan::Heartbeats;
use super::world::{Caller, Failure, LoadWorld, Phase, is_disconnected};
use corona_wire::Exception;
use corona_wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply,
};
use corona_wire::client::{CallError, PreparedCall};

/// After a failure, before the next connection is opened.
const PAUSE: Duration = Duration::from_millis(200);

/// The nodes that share one connection.
struct Group {
    world: Arc<LoadWorld>,
    nodes: Vec<Node>,
    heartbeat: Arc<Measure>,
    overdue: Arc<Count>,
}

struct Node {
    number: u32,
    call: PreparedCall<ClusterManager>,
}

/// Joins the nodes of connection `number` to the cluster, reports the result over `joined`, and
/// sends their heartbeats until the end.
pub(super) async fn run(
    world: Arc<LoadWorld>,
    number: usize,
    joined: mpsc::Sender<Result<(), Failure>>,
) {
    let group = Group::new(world, number);
    let mut phase = group.world.phase.subscribe();
    let work = async {
        let mut caller = match group.join().await {
            Ok(caller) => caller,
            Err(failure) => return drop(joined.send(Err(failure)).await),
        };
        let _ = joined.send(Ok(())).await;
        drop(joined);
        loop {
            if let Err(error) = group.beat(&mut caller).await {
                if is_disconnected(&error)
                    && let Some(again) = group.world.reconnect().await
                {
                    caller = again;
                    continue;
                }
                group.blame(FaultKind::CallFailed, &error);
                caller = group.reconnect().await;
            }
        }
    };
    tokio::select! {
        () = work => {}
        _ = phase.wait_for(|phase| *phase == Phase::Over) => {}
    }
}

impl Group {
    fn new(world: Arc<LoadWorld>, number: usize) -> Group {
        let (count, connections) = (world.cluster.count(), world.plan.nodes.connections);
        let numbers = (0..count).skip(number).step_by(connections.max(1));
        let node = |number| {
            let node = Some(world.cluster.info(number));
            let call = PreparedCall::new(&Call::NodeHeartbeat { node }).ok()?;
            Some(Node { number, call })
        };
        let nodes = numbers.filter_map(node).collect();
        let (heartbeat, overdue) =
            (world.meter.measure("nodeHeartbeat"), world.meter.count("heartbeats overdue"));
        Group { world, nodes, heartbeat, overdue }
    }

    /// The first heartbeat of each node.
    async fn join(&self) -> Result<Caller, Failure> {
        let mut caller = self.world.connect().await?;
        for node in &self.nodes {
            let reply = caller.call_prepared(&node.call).await;
            reply.map_err(|error| Failure(format!("a node cannot join: {error}")))?;
        }
        Ok(caller)
    }

    async fn reconnect(&self) -> Caller {
        loop {
            sleep(PAUSE).await;
            match self.world.connect().await {
                Ok(caller) => return caller,
                Err(failure) => self.blame(FaultKind::CallFailed, &failure),
            }
        }
    }

    /// Sends heartbeats as the plan has it until one fails.
    async fn beat(&self, caller: &mut Caller) -> Result<(), CallError> {
        match self.world.plan.nodes.heartbeats {
            Heartbeats::ClosedLoop => loop {
                for node in &self.nodes {
                    self.send(caller, node, Instant::now()).await?;
                }
            },
            Heartbeats::Every(interval) => self.beat_every(caller, interval).await,
        }
    }

    /// A heartbeat whose time has come while the one before it was not answered counts from the
    /// time when it was due, so that a stalled cluster manager does not get fewer of them.
    async fn beat_every(&self, caller: &mut Caller, interval: Duration) -> Result<(), CallError> {
        let count = f64::from(self.world.cluster.count().max(1));
        let offset = |node: &Node| interval.mul_f64(f64::from(node.number) / count);
        let mut round = Instant::now();
        loop {
            for node in &self.nodes {
                let due = round + offset(node);
                let mut begin = due;
                if Instant::now() < due {
                    sleep_until(due.into()).await;
                    begin = Instant::now();
                }
                self.send(caller, node, begin).await?;
                if due.elapsed() > interval {
                    self.overdue.add(1);
                }
            }
            round += interval;
        }
    }

    async fn send(&self, caller: &mut Caller, node: &Node, due: Instant) -> Result<(), CallError> {
        match caller.call_prepared(&node.call).await {
            Ok(Reply::NodeHeartbeat(response)) => {
                self.heartbeat.record_since(due);
                if response.restart_flag {
                    self.blame(FaultKind::NodeRefused, &"a node is to restart");
                }
            }
            Ok(_) => {}
            Err(error @ CallError::Exception(Exception::DisallowedNode(_))) => {
                self.blame(FaultKind::NodeRefused, &error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn blame(&self, kind: FaultKind, what: &dyn std::fmt::Display) {
        self.world.faults.note(kind, || format!("nodeHeartbeat: {what}"));
    }
}
