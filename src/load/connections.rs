//! Loads that are connections and little else: storms of reconnecting nodes, and connections on which
//! nothing happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::faults::FaultKind;
use super::machine::ProcessUse;
use super::meter::Count;
use super::world::{Caller, Failure, LoadWorld};
use corona_wire::calls::{ClusterManager, ClusterManagerCall as Call};
use corona_wire::client::PreparedCall;

/// Between the end of a storm and the next.
const CALM: Duration = Duration::from_millis(200);

/// Makes so many nodes lose their connections and reconnect at the same time, again and again.
pub(super) async fn storms(world: Arc<LoadWorld>, nodes: usize) {
    let calls: Option<Vec<_>> = (0..nodes).map(|number| heartbeat(&world, number)).collect();
    let Some(calls) = calls.map(Arc::new) else { return };
    let (all, one) =
        (world.meter.measure("storm: all back"), world.meter.measure("storm: one back"));
    while world.is_running() {
        let begin = Instant::now();
        let mut storm = JoinSet::new();
        for number in 0..nodes {
            let (world, calls, one) = (world.clone(), calls.clone(), one.clone());
            storm.spawn(async move {
                let back = async {
                    let mut caller = world.connect_at_once().await?;
                    if let Some(call) = calls.get(number) {
                        say(&mut caller, call).await?;
                    }
                    Ok::<_, Failure>(caller)
                };
                match back.await {
                    Ok(caller) => {
                        one.record_since(begin);
                        Some(caller)
                    }
                    Err(failure) => {
                        world
                            .faults
                            .note(FaultKind::CallFailed, || format!("in a storm: {failure}"));
                        None
                    }
                }
            });
        }
        // All stay until the last is back.
        let callers = storm.join_all().await;
        all.record_since(begin);
        drop(callers);
        sleep(CALM).await;
    }
}

/// Connections on which one heartbeat was sent and then nothing.
#[derive(Debug)]
pub(super) struct Idle {
    callers: Vec<(Caller, PreparedCall<ClusterManager>)>,
    bytes_for_each: Option<u64>,
}

impl Idle {
    /// Opens so many, one after another.
    pub(super) async fn open(world: &LoadWorld, count: usize) -> Result<Idle, Failure> {
        let used = || Some(ProcessUse::of(world.plan.process_id?)?.resident_bytes);
        let before = used();
        let mut callers = Vec::with_capacity(count);
        for number in 0..count {
            let call = heartbeat(world, number % (world.cluster.count().max(1) as usize));
            let Some(call) = call else { continue };
            let mut caller = world.connect().await?;
            say(&mut caller, &call).await?;
            callers.push((caller, call));
        }
        let grown = used().zip(before).map(|(after, before)| after.saturating_sub(before));
        let bytes_for_each = grown.and_then(|grown| grown.checked_div(count as u64));
        Ok(Idle { callers, bytes_for_each })
    }

    /// Counts their use of memory.
    pub(super) fn count(&self, bytes: &Count) {
        bytes.add(self.bytes_for_each.unwrap_or(0));
    }

    /// Sends one more heartbeat over each; one that does not work is a fault.
    pub(super) async fn close(self, world: &LoadWorld) {
        for (mut caller, call) in self.callers {
            if let Err(failure) = say(&mut caller, &call).await {
                let what = || format!("a connection that was idle: {failure}");
                world.faults.note(FaultKind::CallFailed, what);
            }
        }
    }
}

fn heartbeat(world: &LoadWorld, number: usize) -> Option<PreparedCall<ClusterManager>> {
    let node = Some(world.cluster.info(u32::try_from(number).ok()?));
    PreparedCall::new(&Call::NodeHeartbeat { node }).ok()
}

async fn say(caller: &mut Caller, call: &PreparedCall<ClusterManager>) -> Result<(), Failure> {
    let said = caller.call_prepared(call).await;
    said.map(drop).map_err(|error| Failure(format!("nodeHeartbeat: {error}")))
}
