//! Workloads from recordings: calls of sessions and nodes to a cluster manager, and its notifications.

use std::sync::Arc;
use std::time::Duration;

use corona_conformance::capture::Side;
use corona_conformance::conversation::{Conversation, Offered, Said, typed_calls};
use corona_engine::Notification;
use corona_model::types::{
    Address, ComputeSpecs, PoolName, ResourceRequest, ResourceType, SessionInfo, SessionPriority,
};
use corona_wire::calls::{ClusterManager, ClusterManagerCall, SessionDriver, SessionDriverCall};
use corona_wire::generated as wire;

use crate::history::History;
use crate::workload::{Node, Reading};

/// Nodes that send a heartbeat so soon after the beginning were there before it.
const FIRST_HEARTBEATS_MS: i64 = 30_000;

/// Reads a workload from the conversations of a recording that began at a time since the Unix epoch. Nodes are
/// lost after `node_expiry_ms` without a heartbeat.
pub fn read(
    name: &str,
    conversations: &[Conversation],
    began_ms: i64,
    node_expiry_ms: i64,
) -> Reading {
    let mut events = events(conversations);
    events.sort_by_key(|(at, _)| *at);
    let mut history = History::from(0, began_ms);
    for (at, event) in events {
        history.lasts_until(ms(at));
        match event {
            Event::ToManager(call) => to_manager(&mut history, ms(at), call, node_expiry_ms),
            Event::ToDriver(call) => to_driver(&mut history, ms(at), call),
        }
    }
    let managers = conversations.iter().filter(|one| one.service == Offered::ClusterManager);
    let shows_start = managers.into_iter().next().is_some_and(|first| !first.accepted);
    let soon_ms = if shows_start { 0 } else { FIRST_HEARTBEATS_MS };
    let (mut workload, gaps) = history.finish(name, soon_ms, node_expiry_ms);
    workload.assume("All nodes are in the default rack: a recording has no racks.");
    let mut left_out = gaps.left_out("recording");
    if gaps.grants == 0 && workload.tasks() > 0 {
        left_out.insert(
            0,
            "The recording has no grants, so times of tasks are not known: 'corona record \
             --relay-callbacks' records them."
                .to_owned(),
        );
    }
    Reading { workload, left_out }
}

fn ms(at: Duration) -> i64 {
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
}

enum Event {
    ToManager(ClusterManagerCall),
    ToDriver(SessionDriverCall),
}

fn events(conversations: &[Conversation]) -> Vec<(Duration, Event)> {
    let mut events = Vec::new();
    for conversation in conversations {
        for part in conversation.parts.iter().filter(|part| part.from == Side::Client) {
            let Said::Messages { raw, .. } = &part.what else { continue };
            match conversation.service {
                Offered::ClusterManager => {
                    let calls = typed_calls::<ClusterManager>(raw).into_iter();
                    events.extend(calls.map(|call| (part.at, Event::ToManager(call))));
                }
                Offered::SessionDriver => {
                    let calls = typed_calls::<SessionDriver>(raw).into_iter();
                    events.extend(calls.map(|call| (part.at, Event::ToDriver(call))));
                }
                Offered::ProxyJobTracker => {}
            }
        }
    }
    events
}

fn to_manager(history: &mut History, at_ms: i64, call: ClusterManagerCall, node_expiry_ms: i64) {
    match call {
        ClusterManagerCall::NodeHeartbeat { node: Some(node) } => {
            heartbeat(history, at_ms, node, node_expiry_ms);
        }
        ClusterManagerCall::SessionStart { handle: Some(handle), info: Some(info) } => {
            history.session_starts(at_ms, &handle.into(), &session(info));
        }
        ClusterManagerCall::SessionEnd { handle: Some(handle), .. } => {
            history.session_ends(at_ms, &handle.into());
        }
        ClusterManagerCall::RequestResource { handle: Some(handle), requests } => {
            let requests: Vec<_> = requests.into_iter().flatten().filter_map(request).collect();
            history.requests(at_ms, &handle.into(), &requests);
        }
        ClusterManagerCall::ReleaseResource { handle: Some(handle), ids } => {
            history.releases(at_ms, &handle.into(), &ids.unwrap_or_default());
        }
        _ => {}
    }
}

fn heartbeat(history: &mut History, at_ms: i64, node: wire::ClusterNodeInfo, expiry_ms: i64) {
    for ended in node.ended.iter().flatten() {
        history.node_gone(at_ms, ended);
    }
    if node.ended.iter().flatten().any(|ended| *ended == node.name) {
        return;
    }
    let seen = Node::new(node.name.into(), node.address.host.into(), specs(node.total));
    history.node_seen(at_ms, seen, expiry_ms);
}

fn to_driver(history: &mut History, at_ms: i64, call: SessionDriverCall) {
    match call {
        SessionDriverCall::GrantResource { handle: Some(handle), granted } => {
            for grant in granted.into_iter().flatten() {
                history.granted(at_ms, &handle, grant.id, &grant.node_name.into());
            }
        }
        SessionDriverCall::RevokeResource { handle: Some(handle), revoked, .. } => {
            let revoked = revoked.into_iter().flatten();
            revoked.for_each(|grant| history.revoked(at_ms, &handle, grant.id));
        }
        SessionDriverCall::ProcessDeadNode { handle: Some(handle), node: Some(node) } => {
            history.notified(at_ms, &handle, &Notification::DeadNode(node.into()));
        }
        _ => {}
    }
}

fn session(info: wire::SessionInfo) -> SessionInfo {
    let pool = info.pool_info_strings;
    SessionInfo {
        address: Address { host: info.address.host.into(), port: info.address.port },
        name: info.name.into(),
        user_id: info.user_id.into(),
        group_ids: info.group_ids.map(|groups| groups.into_iter().map(Arc::from).collect()),
        pool: pool.map(|pool| PoolName::new(&pool.pool_group_name, &pool.pool_name)),
        priority: info.priority.and_then(|priority| SessionPriority::from_number(priority.0)),
        no_preempt: info.no_preempt,
        url: None,
        deadline: info.deadline,
    }
}

fn request(request: wire::ResourceRequest) -> Option<ResourceRequest> {
    Some(ResourceRequest {
        id: request.id,
        hosts: names(request.hosts),
        specs: request.specs.map(specs),
        kind: ResourceType::from_number(request.type_.0)?,
        exclude_hosts: names(request.exclude_hosts),
    })
}

fn specs(specs: wire::ComputeSpecs) -> ComputeSpecs {
    ComputeSpecs {
        num_cpus: specs.num_cpus,
        network_mbps: specs.network_m_bps,
        memory_mb: specs.memory_m_b,
        disk_gb: specs.disk_g_b,
    }
}

fn names(all: Option<Vec<String>>) -> Vec<Arc<str>> {
    all.into_iter().flatten().map(Arc::from).collect()
}
