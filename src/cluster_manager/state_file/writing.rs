//! Converts a state to the contents of a state file.
//!
//! Spec: cluster-manager/07 §2. The original must be able to read the file and to continue from it:
//! numbers that are not set are 0, a request has its CPUs, and a session has a priority, because
//! the original exits when it compares sessions without one.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::SavedState;
use super::layout::{self, Entries, MapOf};
use crate::translate;
use crate::undelivered::Undelivered;
use corona_engine::Notification;
use corona_engine::snapshot::{
    EngineState, FirstWait, NodeState, RequestInState, SessionState, Standing, Step,
};
use corona_model::types::{
    Address, ComputeSpecs, Grant, Millis, PerType, PoolName, ResourceRequest, ResourceType,
    SessionInfo, SessionStatus,
};

/// The document for a state, made while it is written.
pub(super) fn document_of(state: &SavedState) -> impl Serialize + '_ {
    let EngineState { started, sessions_numbered, nodes, sessions, .. } = &state.engine;
    let slots = slots_by_node(sessions);
    let by_name: HashMap<&Arc<str>, &NodeState> =
        nodes.iter().map(|node| (&node.name, node)).collect();
    let visitors = |node: &NodeState| {
        (node.name.clone(), node.visits.iter().map(|visit| visit.handle.clone()).collect())
    };
    // The original cannot read an entry without any service.
    let serving = nodes.iter().filter(|node| node.apps.0.iter().any(Option::is_some));
    layout::Document {
        start_time: started.0,
        node_manager: layout::NodeManager {
            name_to_node: MapOf(nodes, move |state: &NodeState| {
                let slots = slots.get(&state.name).map_or(&[][..], Vec::as_slice);
                (state.name.clone(), node(state, slots))
            }),
            hosts_to_sessions: Entries(nodes.iter().map(visitors).collect()),
            name_to_apps: Entries(
                serving.map(|node| (node.name.clone(), apps(&node.apps))).collect(),
            ),
        },
        session_manager: layout::SessionManager {
            sessions: MapOf(sessions, move |state: &SessionState| {
                (state.handle.clone(), session(state, &by_name))
            }),
            session_counter: *sessions_numbered,
        },
        session_notifier: layout::SessionNotifier {
            total_sessions_to_ctx: state.undelivered.len(),
            sessions_to_ctx: Entries(state.undelivered.iter().map(context).collect()),
            total_deleted_sessions: 0,
            deleted_sessions: Vec::new(),
        },
    }
}

/// A session and one of its requests that holds a slot.
type Slot<'a> = (&'a Arc<str>, &'a ResourceRequest);

fn slots_by_node(sessions: &[SessionState]) -> HashMap<&Arc<str>, Vec<Slot<'_>>> {
    let mut slots: HashMap<&Arc<str>, Vec<Slot<'_>>> = HashMap::new();
    for session in sessions {
        for known in &session.requests {
            if let Standing::Granted { node, .. } = &known.standing {
                slots.entry(node).or_default().push((&session.handle, &known.request));
            }
        }
    }
    slots
}

fn node(state: &NodeState, slots: &[Slot<'_>]) -> layout::Node {
    let grant = |(handle, request): &Slot<'_>| {
        let grant_id = layout::GrantId { session_id: Arc::clone(handle), request_id: request.id };
        let grant = layout::KnownRequest { request: resource_request(request) };
        (format!("{handle}{}", request.id).into(), layout::NodeGrant { grant_id, grant })
    };
    layout::Node {
        cluster_node_info: layout::NodeInfo {
            name: Some(state.name.clone()),
            address: address(&state.address),
            total: specs(state.total),
            free: Some(specs(state.free)),
            resource_infos: Some(apps(&state.apps)),
        },
        grants: Entries(slots.iter().map(grant).collect()),
    }
}

fn session(state: &SessionState, nodes: &HashMap<&Arc<str>, &NodeState>) -> layout::SavedSession {
    let pending = |known: &&RequestInState| known.standing == Standing::Pending;
    let waits = ResourceType::ALL.into_iter().filter_map(|kind| match state.first_wait[kind] {
        FirstWait::NotAsked => None,
        FirstWait::Waiting => Some((kind, -1)),
        FirstWait::After(ms) => Some((kind, ms.max(0))),
    });
    layout::SavedSession {
        id_to_request: Entries(state.requests.iter().map(known_request).collect()),
        id_to_pending_requests: state
            .requests
            .iter()
            .filter(pending)
            .map(|known| known.request.id)
            .collect(),
        id_to_grant: Entries(
            state.requests.iter().filter_map(|known| grant_of(known, nodes)).collect(),
        ),
        status: SessionStatus::Running,
        session_id: Some(state.handle.clone()),
        deleted: false,
        deleted_time: -1,
        info: info(&state.info, state.deadline),
        start_time: state.started.0,
        pool_info: Some(pool(&state.pool)),
        type_to_first_wait: Entries(waits.collect()),
        expected_info: Some(heartbeat_args(state.expected)),
        last_heartbeat: Some(heartbeat_args(state.last_seen)),
        last_sync_time: Some(state.last_sync.0),
    }
}

fn known_request(known: &RequestInState) -> (i32, layout::KnownRequest) {
    (known.request.id, layout::KnownRequest { request: resource_request(&known.request) })
}

fn grant_of(
    known: &RequestInState,
    nodes: &HashMap<&Arc<str>, &NodeState>,
) -> Option<(i32, layout::Grant)> {
    let Standing::Granted { node, at } = &known.standing else { return None };
    let ResourceRequest { id, kind, .. } = known.request;
    let state = nodes.get(node)?;
    let grant = Grant {
        id,
        node_name: node.clone(),
        address: state.address.clone(),
        granted_at: *at,
        kind,
        app_info: state.apps[kind].clone().unwrap_or_default(),
    };
    Some((id, layout_grant(&grant)))
}

fn context(queue: &Undelivered) -> (Arc<str>, layout::Context) {
    let Undelivered { handle, to, calls } = queue;
    let calls: Vec<_> = calls.iter().map(|call| pending_call(handle, call)).collect();
    let context = layout::Context {
        handle: Some(handle.clone()),
        host: to.host.clone(),
        port: to.port,
        num_pending_calls: calls.len(),
        pending_calls: calls,
    };
    (handle.clone(), context)
}

fn pending_call(handle: &Arc<str>, call: &Notification) -> layout::PendingCall {
    let handle = Some(handle.clone());
    let all = |grants: &[Grant]| Some(grants.iter().map(layout_grant).collect());
    let arguments = match call {
        Notification::Granted(grants) => {
            layout::Call { handle, granted: all(grants), ..layout::Call::default() }
        }
        // The original keeps it with force and sends it without.
        Notification::Revoked(grants) => layout::Call {
            handle,
            revoked: all(grants),
            force: Some(true),
            ..layout::Call::default()
        },
        Notification::DeadNode(node) => {
            layout::Call { handle, node: Some(node.clone()), ..layout::Call::default() }
        }
    };
    layout::PendingCall { call_type: translate::java_name(call).into(), call: arguments }
}

fn layout_grant(grant: &Grant) -> layout::Grant {
    let Grant { id, node_name, address: at, granted_at: Millis(granted_time), kind, app_info } =
        grant;
    layout::Grant {
        id: Some(*id),
        node_name: node_name.clone(),
        address: Some(address(at)),
        granted_time: *granted_time,
        kind: *kind,
        app_info: Some(app_info.clone()),
    }
}

fn resource_request(request: &ResourceRequest) -> layout::Request {
    let hosts = |hosts: &Vec<Arc<str>>| Some(hosts.clone()).filter(|hosts| !hosts.is_empty());
    // The request's slots on a node here, so that it takes as many there.
    let asked = request.specs.unwrap_or_default();
    let asked = ComputeSpecs { num_cpus: asked.num_cpus.max(1), ..asked };
    layout::Request {
        id: Some(request.id),
        hosts: hosts(&request.hosts),
        specs: Some(specs(asked)),
        kind: request.kind,
        exclude_hosts: hosts(&request.exclude_hosts),
    }
}

fn info(info: &SessionInfo, deadline: i64) -> layout::Info {
    layout::Info {
        address: address(&info.address),
        name: info.name.clone(),
        user_id: info.user_id.clone(),
        group_ids: info.group_ids.clone(),
        pool_info_strings: info.pool.as_ref().map(pool),
        priority: Some(info.priority.unwrap_or_default()),
        no_preempt: Some(info.no_preempt.unwrap_or(false)),
        url: info.url.clone(),
        deadline: Some(deadline),
    }
}

fn heartbeat_args(step: Step) -> layout::HeartbeatArgs {
    let Step { request_id, grant_id } = step;
    layout::HeartbeatArgs { request_id, grant_id, resource_usages: () }
}

fn apps(apps: &PerType<Option<Arc<str>>>) -> layout::Apps {
    let served = ResourceType::ALL.into_iter();
    Entries(served.filter_map(|kind| Some((kind, apps[kind].clone()?))).collect())
}

fn address(address: &Address) -> layout::Address {
    layout::Address { host: address.host.clone(), port: address.port }
}

fn pool(pool: &PoolName) -> layout::Pool {
    layout::Pool { pool_group_name: pool.group.clone(), pool_name: pool.pool.clone() }
}

fn specs(specs: ComputeSpecs) -> layout::Specs {
    layout::Specs {
        num_cpus: specs.num_cpus,
        network_mbps: Some(specs.network_mbps.unwrap_or(0)),
        memory_mb: Some(specs.memory_mb.unwrap_or(0)),
        disk_gb: Some(specs.disk_gb.unwrap_or(0)),
    }
}
