//! The state that all parts of a run share.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::PoisonError;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::cluster::LoadedCluster;
use super::faults::Faults;
use super::meter::{Measure, Meter};
use super::plan::Plan;
use super::session::LoadSession;
use corona_access::dial;
use corona_wire::Service;
use corona_wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply,
};
use corona_wire::client::{CallError, Client, ClientOptions, PreparedCall};

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Load is made.
    Running,
    /// No new requests are made; all grants are released.
    Stopping,
    /// Sessions end.
    Ending,
    /// Nothing is sent any more.
    Over,
}

/// Connections that are being opened at a time: no more than wait to be accepted at most servers.
const OPENING: usize = 100;
/// Between two attempts to reconnect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);
/// For a connection and for an answer. A call that takes longer has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The state that all parts of a run share.
#[derive(Debug)]
pub(super) struct LoadWorld {
    pub(super) plan: Plan,
    pub(super) cluster: LoadedCluster,
    pub(super) meter: Meter,
    pub(super) faults: Faults,
    pub(super) phase: watch::Sender<Phase>,
    /// Sessions by their handles, for the listener.
    sessions: RwLock<HashMap<String, Arc<LoadSession>>>,
    opening: Semaphore,
    started: Instant,
}

impl LoadWorld {
    pub(super) fn new(plan: Plan) -> LoadWorld {
        LoadWorld {
            cluster: LoadedCluster::new(&plan.nodes),
            plan,
            meter: Meter::default(),
            faults: Faults::default(),
            phase: watch::Sender::new(Phase::Running),
            sessions: RwLock::default(),
            opening: Semaphore::new(OPENING),
            started: Instant::now(),
        }
    }

    /// Microseconds since the start. A run is far shorter than the 71 minutes that fit.
    pub(super) fn micros(&self) -> u32 {
        self.started.elapsed().as_micros() as u32
    }

    /// Whether load is still to be made.
    pub(super) fn is_running(&self) -> bool {
        *self.phase.borrow() == Phase::Running
    }

    /// Opens a connection to the cluster manager, when it is this one's turn. Repeats that for as long as
    /// the plan allows the cluster manager to be away.
    pub(super) async fn connect(&self) -> Result<Caller, Failure> {
        let due = Instant::now() + self.plan.reconnect;
        loop {
            let connected = {
                let _turn = self.opening.acquire().await;
                self.connect_at_once().await
            };
            if connected.is_ok() || Instant::now() >= due {
                return connected;
            }
            sleep(RECONNECT_PAUSE).await;
        }
    }

    /// Opens a connection to the cluster manager however many others do.
    pub(super) async fn connect_at_once(&self) -> Result<Caller, Failure> {
        let begin = Instant::now();
        let connecting = async {
            let stream = TcpStream::connect(self.plan.manager).await?;
            stream.set_nodelay(true)?;
            let local = stream.local_addr()?;
            std::io::Result::Ok((dial(ClusterManager::NAME, stream).await?, local))
        };
        let connected = timeout(PATIENCE, connecting).await;
        let failure = |what: &dyn fmt::Display| Failure(format!("no connection: {what}"));
        let stream = connected.map_err(|_| failure(&format!("not within {PATIENCE:?}")))?;
        let (stream, local) = stream.map_err(|error| failure(&error))?;
        self.meter.measure("connect").record_since(begin);
        let options = ClientOptions { call_timeout: PATIENCE, ..ClientOptions::default() };
        Ok(Caller { client: Client::over(stream, options), local })
    }

    /// Opens a connection in place of one that was lost, as nodes and job trackers do while the cluster
    /// manager is restarted. `None` if the plan does not expect that, or it takes too long.
    pub(super) async fn reconnect(&self) -> Option<Caller> {
        match self.plan.reconnect.is_zero() {
            true => None,
            false => self.connect().await.ok(),
        }
    }

    /// Makes a call and measures it. If the connection is lost, the call is repeated over a new one, as
    /// long as the plan allows. Returns whether it was repeated as well: the first attempt may have taken
    /// effect.
    pub(super) async fn call(
        &self,
        caller: &mut Caller,
        measure: &Measure,
        call: Call,
    ) -> (Result<Reply, CallError>, bool) {
        let mut repeated = false;
        loop {
            match caller.call(measure, &call).await {
                Err(error) if is_disconnected(&error) => match self.reconnect().await {
                    Some(again) => {
                        self.meter.count("calls repeated after a lost connection").add(1);
                        (*caller, repeated) = (again, true);
                    }
                    None => return (Err(error), repeated),
                },
                answered => return (answered, repeated),
            }
        }
    }

    /// Lets notifications for a session in.
    pub(super) fn register(&self, session: &Arc<LoadSession>) {
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(session.handle.clone(), session.clone());
    }

    /// No more notifications for a session.
    pub(super) fn forget(&self, handle: &str) {
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).remove(handle);
    }

    pub(super) fn session(&self, handle: &str) -> Option<Arc<LoadSession>> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        sessions.get(handle).cloned()
    }

    /// All sessions that are registered.
    pub(super) fn sessions(&self) -> Vec<Arc<LoadSession>> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        sessions.values().cloned().collect()
    }
}

/// Whether the connection of a call is lost, so that the call may be repeated over another one.
pub(super) fn is_disconnected(error: &CallError) -> bool {
    matches!(error, CallError::Closed | CallError::Io(_) | CallError::Spent)
}

/// Why something did not work: a sentence for people.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Failure(pub(super) String);

/// A connection to the cluster manager, and where it starts.
#[derive(Debug)]
pub(super) struct Caller {
    client: Client<ClusterManager>,
    pub(super) local: SocketAddr,
}

impl Caller {
    /// Makes a call and measures it.
    pub(super) async fn call(
        &mut self,
        measure: &Measure,
        call: &Call,
    ) -> Result<Reply, CallError> {
        let begin = Instant::now();
        let reply = self.client.call(call).await;
        if reply.is_ok() {
            measure.record_since(begin);
        }
        reply
    }

    /// Makes a call that was prepared.
    pub(super) async fn call_prepared(
        &mut self,
        call: &PreparedCall<ClusterManager>,
    ) -> Result<Reply, CallError> {
        self.client.call_prepared(call).await
    }
}
