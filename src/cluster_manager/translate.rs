//! Between the types of the wire and those of the engine. Pure, and decides nothing.

pub(crate) mod calls;

use std::collections::BTreeMap;
use std::sync::Arc;

use corona_engine::{NodeUsageReport, Notification, Refusal, RunningSession, SessionView};
use corona_model::types as engine;
use corona_wire::calls::SessionDriverCall;
use corona_wire::generated as wire;
use corona_wire::server::Answer;
use corona_wire::{ApplicationFault, Exception, FaultKind};

/// A session's own words. Empty lists of hosts count as none.
pub(super) fn session_info(info: wire::SessionInfo) -> engine::SessionInfo {
    engine::SessionInfo {
        address: address(info.address),
        name: info.name.into(),
        user_id: info.user_id.into(),
        group_ids: info.group_ids.map(texts),
        pool: info.pool_info_strings.as_ref().map(pool_name),
        priority: info
            .priority
            .and_then(|priority| engine::SessionPriority::from_number(priority.0)),
        no_preempt: info.no_preempt,
        url: info.url.map(Arc::from),
        deadline: info.deadline,
    }
}

/// The other way round.
pub(super) fn session_info_to_wire(info: engine::SessionInfo) -> wire::SessionInfo {
    wire::SessionInfo {
        address: address_to_wire(&info.address),
        name: info.name.to_string(),
        user_id: info.user_id.to_string(),
        group_ids: info.group_ids.map(|groups| groups.iter().map(|id| id.to_string()).collect()),
        pool_info_strings: info.pool.as_ref().map(pool_name_to_wire),
        priority: info.priority.map(priority_to_wire),
        no_preempt: info.no_preempt,
        url: info.url.map(|url| url.to_string()),
        deadline: info.deadline,
    }
}

pub(super) fn session_status(status: wire::SessionStatus) -> Option<engine::SessionStatus> {
    engine::SessionStatus::from_number(status.0)
}

/// How far a session believes to be. Usages of unknown types are left out.
pub(super) fn session_view(args: wire::HeartbeatArgs) -> SessionView {
    let mut usages = engine::PerType::default();
    for (kind, values) in args.resource_usages {
        if let Some(kind) = resource_type(kind) {
            usages[kind] = Some(values);
        }
    }
    SessionView { request_id: args.request_id, grant_id: args.grant_id, usages }
}

/// `None` when the type is unknown.
pub(super) fn request(request: wire::ResourceRequest) -> Option<engine::ResourceRequest> {
    Some(engine::ResourceRequest {
        id: request.id,
        hosts: texts(request.hosts.unwrap_or_default()),
        specs: request.specs.map(specs),
        kind: resource_type(request.type_)?,
        exclude_hosts: texts(request.exclude_hosts.unwrap_or_default()),
    })
}

/// A heartbeat. Services of unknown types are left out.
pub(super) fn node_report(node: wire::ClusterNodeInfo) -> engine::NodeReport {
    let mut apps = engine::PerType::default();
    for (kind, app) in node.resource_infos.unwrap_or_default() {
        if let Some(kind) = resource_type(kind) {
            apps[kind] = Some(app.into());
        }
    }
    engine::NodeReport {
        name: node.name.into(),
        address: address(node.address),
        total: specs(node.total),
        free: node.free.map(specs),
        apps,
    }
}

pub(super) fn usage_report(report: wire::NodeUsageReport) -> NodeUsageReport {
    NodeUsageReport {
        node_name: report.node_name.into(),
        failed: report.num_failed,
        failed_connections: report.num_failed_connections,
    }
}

pub(super) fn resource_type(kind: wire::ResourceType) -> Option<engine::ResourceType> {
    engine::ResourceType::from_number(kind.0)
}

pub(super) fn pool_name(pool: &wire::PoolInfoStrings) -> engine::PoolName {
    engine::PoolName::new(&pool.pool_group_name, &pool.pool_name)
}

pub(super) fn pool_name_to_wire(pool: &engine::PoolName) -> wire::PoolInfoStrings {
    wire::PoolInfoStrings {
        pool_group_name: pool.group.to_string(),
        pool_name: pool.pool.to_string(),
    }
}

/// Spec: cluster-manager/02 §3.13: all three types are always there.
pub(super) fn running_session(session: RunningSession) -> wire::RunningSession {
    let granted = |kind: engine::ResourceType| {
        let granted = session.counts[kind].now.granted;
        (resource_type_to_wire(kind), i32::try_from(granted).unwrap_or(i32::MAX))
    };
    wire::RunningSession {
        handle: session.handle.to_string(),
        name: session.info.name.to_string(),
        user_id: session.info.user_id.to_string(),
        pool_info: pool_name_to_wire(&session.pool),
        priority: session.info.priority.map(priority_to_wire),
        deadline: Some(session.deadline),
        running_resources: Some(
            engine::ResourceType::ALL.into_iter().map(granted).collect::<BTreeMap<_, _>>(),
        ),
    }
}

/// What a session's driver is called with. `force` is never set, as in the original.
pub(super) fn notification(handle: &str, notification: &Notification) -> SessionDriverCall {
    let handle = Some(handle.to_owned());
    match notification {
        Notification::Granted(grants) => SessionDriverCall::GrantResource {
            handle,
            granted: Some(grants.iter().map(grant).collect()),
        },
        Notification::Revoked(grants) => SessionDriverCall::RevokeResource {
            handle,
            revoked: Some(grants.iter().map(grant).collect()),
            force: false,
        },
        Notification::DeadNode(node) => {
            SessionDriverCall::ProcessDeadNode { handle, node: Some(node.to_string()) }
        }
    }
}

/// The original's class for a `grantResource` that waits, in its log and in its state file.
pub(super) const GRANT_RESOURCE: &str =
    "org.apache.hadoop.corona.SessionDriverService$grantResource_args";
/// As [`GRANT_RESOURCE`], for a `revokeResource`.
pub(super) const REVOKE_RESOURCE: &str =
    "org.apache.hadoop.corona.SessionDriverService$revokeResource_args";
/// As [`GRANT_RESOURCE`], for a `processDeadNode`.
pub(super) const PROCESS_DEAD_NODE: &str =
    "org.apache.hadoop.corona.SessionDriverService$processDeadNode_args";

/// The original's class for a call that waits.
pub(super) fn java_name(call: &Notification) -> &'static str {
    match call {
        Notification::Granted(_) => GRANT_RESOURCE,
        Notification::Revoked(_) => REVOKE_RESOURCE,
        Notification::DeadNode(_) => PROCESS_DEAD_NODE,
    }
}

/// The answer to a refused call. Only declared errors and faults: the connection stays.
pub(super) fn refusal<R>(refusal: Refusal) -> Answer<R> {
    match refusal {
        Refusal::SafeMode => Answer::Exception(Exception::safe_mode()),
        Refusal::InvalidSession(text) => {
            Answer::Exception(Exception::invalid_session_handle(&*text))
        }
        Refusal::DisallowedNode(host) => Answer::Exception(Exception::disallowed_node(&*host)),
        Refusal::InvalidPool(text) => Answer::Exception(Exception::invalid_pool_info(text)),
        Refusal::Malformed(text) | Refusal::TooMany(text) => fault(text),
    }
}

/// An error that the contract does not declare.
pub(super) fn fault<R>(message: impl Into<String>) -> Answer<R> {
    let message = message.into();
    Answer::Fault(ApplicationFault { kind: FaultKind::InternalError, message })
}

fn grant(grant: &engine::Grant) -> wire::ResourceGrant {
    wire::ResourceGrant {
        id: grant.id,
        node_name: grant.node_name.to_string(),
        address: address_to_wire(&grant.address),
        granted_time: grant.granted_at.0,
        type_: resource_type_to_wire(grant.kind),
        app_info: Some(grant.app_info.to_string()),
    }
}

fn address(address: wire::InetAddress) -> engine::Address {
    engine::Address { host: address.host.into(), port: address.port }
}

fn address_to_wire(address: &engine::Address) -> wire::InetAddress {
    wire::InetAddress { host: address.host.to_string(), port: address.port }
}

fn specs(specs: wire::ComputeSpecs) -> engine::ComputeSpecs {
    engine::ComputeSpecs {
        num_cpus: specs.num_cpus,
        network_mbps: specs.network_m_bps,
        memory_mb: specs.memory_m_b,
        disk_gb: specs.disk_g_b,
    }
}

fn resource_type_to_wire(kind: engine::ResourceType) -> wire::ResourceType {
    wire::ResourceType(kind.index() as i32)
}

fn priority_to_wire(priority: engine::SessionPriority) -> wire::SessionPriority {
    wire::SessionPriority(priority as i32)
}

fn texts(texts: Vec<String>) -> Vec<Arc<str>> {
    texts.into_iter().map(Arc::from).collect()
}
