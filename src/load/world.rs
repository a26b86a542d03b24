//! What all parts of a run share.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::PoisonError;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::cluster::Cluster;
use super::faults::Faults;
use super::meter::{Measure, Meter};
use super::plan::Plan;
use super::session::Session;
use corona_wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply,
};
use corona_wire::client::{CallError, Client, ClientOptions, PreparedCall};

/// How far a run is.
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
/// For a connection and for an answer. A call that takes longer has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// What all parts of a run share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) cluster: Cluster,
    pub(super) meter: Meter,
    pub(super) faults: Faults,
    pub(super) phase: watch::Sender<Phase>,
    /// Sessions by their handles, for the listener.
    sessions: RwLock<HashMap<String, Arc<Session>>>,
    opening: Semaphore,
    started: Instant,
}

impl World {
    pub(super) fn new(plan: Plan) -> World {
        World {
            cluster: Cluster::new(&plan.nodes),
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

    /// Opens a connection to the cluster manager, when it is this one's turn.
    pub(super) async fn connect(&self) -> Result<Caller, Failure> {
        let _turn = self.opening.acquire().await;
        self.connect_at_once().await
    }

    /// Opens a connection to the cluster manager however many others do.
    pub(super) async fn connect_at_once(&self) -> Result<Caller, Failure> {
        let begin = Instant::now();
        let connected = timeout(PATIENCE, TcpStream::connect(self.plan.manager)).await;
        let failure = |what: &dyn fmt::Display| Failure(format!("no connection: {what}"));
        let stream = connected.map_err(|_| failure(&format!("not within {PATIENCE:?}")))?;
        let stream = stream.map_err(|error| failure(&error))?;
        stream.set_nodelay(true).map_err(|error| failure(&error))?;
        let local = stream.local_addr().map_err(|error| failure(&error))?;
        self.meter.measure("connect").record_since(begin);
        let options = ClientOptions { call_timeout: PATIENCE, ..ClientOptions::default() };
        Ok(Caller { client: Client::over(stream, options), local })
    }

    /// Lets notifications for a session in.
    pub(super) fn register(&self, session: &Arc<Session>) {
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(session.handle.clone(), session.clone());
    }

    /// No more notifications for a session.
    pub(super) fn forget(&self, handle: &str) {
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).remove(handle);
    }

    /// The session with this handle.
    pub(super) fn session(&self, handle: &str) -> Option<Arc<Session>> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        sessions.get(handle).cloned()
    }

    /// All sessions that are registered.
    pub(super) fn sessions(&self) -> Vec<Arc<Session>> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        sessions.values().cloned().collect()
    }
}

/// Why something did not work: a sentence for people.
#[derive(Debug)]
pub(super) struct Failure(pub(super) String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A connection to the cluster manager, and where it starts.
#[derive(Debug)]
pub(super) struct Caller {
    client: Client<ClusterManager>,
    pub(super) local: SocketAddr,
}

impl Caller {
    /// Makes a call and measures it.
    pub(super) async fn call(&mut self, measure: &Measure, call: Call) -> Result<Reply, CallError> {
        let begin = Instant::now();
        let reply = self.client.call(&call).await;
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
