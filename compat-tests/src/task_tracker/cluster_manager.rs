//! A cluster manager with scripted answers to heartbeats of nodes, and a proxy job tracker.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corona::wire::Exception;
use corona::wire::calls::{
    ClusterManager as ClusterManagerService, ClusterManagerCall, ClusterManagerReply,
    ProxyJobTracker, ProxyJobTrackerCall, ProxyJobTrackerReply,
};
use corona::wire::generated::{
    ClusterNodeInfo, DisallowedNode, NodeHeartbeatResponse, ResourceType, SafeModeException,
};
use corona::wire::server::Answer;
use tokio::sync::watch;

use super::until;
use crate::serving::serve;

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeAnswer {
    /// Well.
    #[default]
    Fine,
    /// The node is to restart.
    Restart,
    /// The node is not wanted.
    Disallowed,
    /// It is in safe mode.
    SafeMode,
}

/// The cluster manager and the proxy job tracker.
#[derive(Debug)]
pub struct ClusterManager {
    address: SocketAddr,
    proxy: SocketAddr,
    state: Arc<Mutex<ManagerState>>,
    _stop: [watch::Sender<bool>; 2],
}

/// The calls that they received, and their answers.
#[derive(Debug, Default)]
pub struct ManagerState {
    /// The heartbeats.
    pub heartbeats: Vec<ClusterNodeInfo>,
    /// How the next ones are answered.
    pub answer: NodeAnswer,
    /// Whether the proxy job tracker reports safe mode.
    pub safe_mode: bool,
    /// How often it was asked.
    pub polls: usize,
}

impl ClusterManager {
    /// Starts both on free ports of loopback. Must be called within a runtime.
    ///
    /// # Panics
    /// When there is no port.
    pub fn start() -> ClusterManager {
        let state = Arc::new(Mutex::new(ManagerState::default()));
        let shared = state.clone();
        let handler = move |_, call: ClusterManagerCall| {
            let answer = answer(&shared, call);
            async move { answer }
        };
        let (address, stop) = serve::<ClusterManagerService>(handler);
        let shared = state.clone();
        let handler = move |_, call: ProxyJobTrackerCall| {
            let answer = proxy_answer(&shared, &call);
            async move { answer }
        };
        let (proxy, stop_proxy) = serve::<ProxyJobTracker>(handler);
        ClusterManager { address, proxy, state, _stop: [stop, stop_proxy] }
    }

    /// Where the cluster manager listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the proxy job tracker listens.
    pub fn proxy(&self) -> SocketAddr {
        self.proxy
    }

    /// The calls that they received; also to change their answers.
    pub fn state(&self) -> MutexGuard<'_, ManagerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first heartbeat after so many, once it has come.
    pub async fn heartbeat(&self, after: usize) -> ClusterNodeInfo {
        until("a heartbeat of the node", || self.state().heartbeats.get(after).cloned()).await
    }

    /// Where the node takes actions, as `host:port`.
    ///
    /// # Panics
    /// When its log has no such line.
    pub async fn actions(&self) -> String {
        let node = self.heartbeat(0).await;
        let infos = node.resource_infos.expect("a node says where it takes actions");
        infos.get(&ResourceType::MAP).expect("for maps").clone()
    }
}

fn answer(state: &Mutex<ManagerState>, call: ClusterManagerCall) -> Answer<ClusterManagerReply> {
    let ClusterManagerCall::NodeHeartbeat { node: Some(node) } = call else {
        return Answer::Close;
    };
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let host = node.address.host.clone();
    state.heartbeats.push(node);
    let fine = |restart_flag| {
        Answer::Reply(ClusterManagerReply::NodeHeartbeat(NodeHeartbeatResponse {
            restart_flag,
            restart_in_place: None,
        }))
    };
    match state.answer {
        NodeAnswer::Fine => fine(false),
        NodeAnswer::Restart => fine(true),
        NodeAnswer::Disallowed => {
            Answer::Exception(Exception::DisallowedNode(DisallowedNode { host }))
        }
        NodeAnswer::SafeMode => Answer::Exception(Exception::SafeMode(SafeModeException {})),
    }
}

fn proxy_answer(
    state: &Mutex<ManagerState>,
    call: &ProxyJobTrackerCall,
) -> Answer<ProxyJobTrackerReply> {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    match call {
        ProxyJobTrackerCall::GetClusterManagerSafeModeFlag => {
            state.polls += 1;
            let flag = state.safe_mode;
            Answer::Reply(ProxyJobTrackerReply::GetClusterManagerSafeModeFlag(flag))
        }
        _ => Answer::Close,
    }
}
