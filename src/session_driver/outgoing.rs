//! The calls that a session makes, and the queue in which they wait.

use std::collections::VecDeque;
use std::sync::Arc;

use super::options::Endpoint;
use super::translate;
use corona_model::types::{
    Millis, PoolName, ResourceRequest, ResourceType, SessionPriority, SessionStatus,
};
use corona_wire::calls::ClusterManagerCall;
use corona_wire::generated as wire;

/// The usage of a node by one session: its tasks, counted by result.
/// Spec: cluster-manager/01 §5.3, 02 §5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUsage {
    /// The node's name, as in its grants.
    pub node_name: Arc<str>,
    /// All tasks.
    pub total_tasks: i32,
    /// Tasks that went well.
    pub succeeded: i32,
    /// Tasks that the session killed.
    pub killed: i32,
    /// Tasks that failed. The cluster manager takes too many as a fault of the node.
    pub failed: i32,
    /// Tasks that gave no sign of life.
    pub timed_out: i32,
    /// Tasks that were slow.
    pub slow: i32,
    /// Attempts to reach the node that failed. The cluster manager takes too many as a fault of
    /// the node.
    pub failed_connections: i32,
}

impl NodeUsage {
    /// Nothing seen of this node yet.
    pub fn new(node_name: impl Into<Arc<str>>) -> NodeUsage {
        NodeUsage {
            node_name: node_name.into(),
            total_tasks: 0,
            succeeded: 0,
            killed: 0,
            failed: 0,
            timed_out: 0,
            slow: 0,
            failed_connections: 0,
        }
    }
}

/// A session's registration. Fields that are `None` do not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InfoUpdate {
    /// Name for people.
    pub name: Option<String>,
    /// Priority within the pool.
    pub priority: Option<SessionPriority>,
    /// A page about the session.
    pub url: Option<String>,
    /// When the session's work should be done.
    pub deadline: Option<Millis>,
}

/// The registration that the cluster manager last received.
#[derive(Clone, Debug)]
pub(super) struct Info {
    pub(super) address: Endpoint,
    pub(super) name: String,
    pub(super) user: String,
    pub(super) pool: PoolName,
    pub(super) priority: SessionPriority,
    pub(super) no_preempt: bool,
    pub(super) url: Option<String>,
    pub(super) deadline: Option<Millis>,
}

impl Info {
    pub(super) fn update(&mut self, update: InfoUpdate) {
        let InfoUpdate { name, priority, url, deadline } = update;
        if let Some(name) = name {
            self.name = name;
        }
        if let Some(priority) = priority {
            self.priority = priority;
        }
        self.url = url.or(self.url.take());
        self.deadline = deadline.or(self.deadline);
    }

    pub(super) fn to_wire(&self) -> wire::SessionInfo {
        wire::SessionInfo {
            address: wire::InetAddress {
                host: self.address.host.clone(),
                port: self.address.port.into(),
            },
            name: self.name.clone(),
            user_id: self.user.clone(),
            group_ids: None,
            pool_info_strings: Some(translate::pool(&self.pool)),
            priority: Some(translate::priority(self.priority)),
            no_preempt: Some(self.no_preempt),
            url: self.url.clone(),
            deadline: self.deadline.map(|deadline| deadline.0),
        }
    }
}

/// A queued call, with its arguments as of the time when it was made.
#[derive(Clone, Debug)]
pub(super) enum OutgoingCall {
    UpdateInfo(Info),
    Request(Vec<Arc<ResourceRequest>>),
    Release(Vec<i32>),
    Feedback(Vec<NodeUsage>),
    End(SessionStatus),
    /// The end of another session, such as that of a job tracker that this one had started.
    EndOther(Arc<str>),
}

impl OutgoingCall {
    pub(super) fn to_wire(&self, handle: &str) -> ClusterManagerCall {
        let own = Some(handle.to_owned());
        match self {
            OutgoingCall::UpdateInfo(info) => {
                ClusterManagerCall::SessionUpdateInfo { handle: own, info: Some(info.to_wire()) }
            }
            OutgoingCall::Request(requests) => ClusterManagerCall::RequestResource {
                handle: own,
                requests: Some(
                    requests.iter().map(|request| translate::request(request)).collect(),
                ),
            },
            OutgoingCall::Release(ids) => {
                ClusterManagerCall::ReleaseResource { handle: own, ids: Some(ids.clone()) }
            }
            OutgoingCall::Feedback(usages) => ClusterManagerCall::NodeFeedback {
                handle: own,
                // The original always names these two.
                types: Some(
                    [ResourceType::Map, ResourceType::Reduce].map(translate::resource_type).into(),
                ),
                reports: Some(usages.iter().map(translate::usage).collect()),
            },
            OutgoingCall::End(status) => ClusterManagerCall::SessionEnd {
                handle: own,
                status: Some(translate::status(*status)),
            },
            OutgoingCall::EndOther(other) => ClusterManagerCall::SessionEnd {
                handle: Some(other.to_string()),
                status: Some(translate::status(SessionStatus::TimedOut)),
            },
        }
    }

    /// Whether a reply that the session is unknown leaves this session alive.
    pub(super) fn is_end(&self) -> bool {
        matches!(self, OutgoingCall::End(_) | OutgoingCall::EndOther(_))
    }
}

/// Calls in the order in which they are to be made.
#[derive(Debug, Default)]
pub(super) struct Queue {
    calls: VecDeque<Arc<OutgoingCall>>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn push(&mut self, call: OutgoingCall) {
        self.calls.push_back(Arc::new(call));
    }

    pub(super) fn head(&self) -> Option<Arc<OutgoingCall>> {
        self.calls.front().cloned()
    }

    /// Takes out a call that has been answered, unless the queue was cleared meanwhile.
    pub(super) fn answered(&mut self, call: &Arc<OutgoingCall>) {
        if self.calls.front().is_some_and(|head| Arc::ptr_eq(head, call)) {
            self.calls.pop_front();
        }
    }

    /// Drops calls that no longer matter when the session ends.
    pub(super) fn clear_for_end(&mut self, status: SessionStatus) {
        let matters = |call: &Arc<OutgoingCall>| {
            matches!(**call, OutgoingCall::Feedback(_) | OutgoingCall::EndOther(_))
        };
        self.calls.retain(matters);
        self.push(OutgoingCall::End(status));
    }
}
