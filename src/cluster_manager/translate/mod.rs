//! Translates between the wire's types and the engine's. Pure, and decides nothing.

pub(crate) mod calls;

use std::collections::BTreeMap;
use std::sync::Arc;

use corona_engine::{
    NodeUsageReport, Notification, PoolObjection, Refusal, RunningSession, SessionView,
};
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

/// The reverse of [`session_info`].
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

/// A session's own view of its progress. Usages of unknown types are left out.
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

/// The call to a session's driver. `force` is never set, as in the original.
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
    let invalid_session = |text: &str| Answer::Exception(Exception::invalid_session_handle(text));
    match refusal {
        Refusal::SafeMode => Answer::Exception(Exception::safe_mode()),
        Refusal::DisallowedNode(host) => Answer::Exception(Exception::disallowed_node(&*host)),
        Refusal::UnknownSession(handle)
        | Refusal::OutOfStep(handle)
        | Refusal::MalformedHandle(handle) => invalid_session(&handle),
        Refusal::ForeignHandle(handle) => {
            invalid_session(&format!("Session belongs to a different start time {handle}"))
        }
        Refusal::AlreadyStarted(handle) => {
            invalid_session(&format!("Session already started {handle}"))
        }
        Refusal::SessionPool(objection) => invalid_session(&pool_objection(&objection)),
        Refusal::OverPoolMaximum { handle, kind, requested, allowed } => invalid_session(&format!(
            "Session {handle} requested {requested} resources for resource type {kind} but was \
             only allowed {allowed}, so failing the job"
        )),
        Refusal::Pool(objection) => {
            Answer::Exception(Exception::invalid_pool_info(pool_objection(&objection)))
        }
        Refusal::IllegalType(handle) => fault(format!("Bad resource type from session: {handle}")),
        Refusal::ContradictoryHosts(handle) => {
            fault(format!("Bad excluded hosts from session: {handle}"))
        }
        Refusal::UnknownCpuCount { num_cpus } => {
            fault(format!("No matching entry for cpu count: {num_cpus} in node and no 1 cpu map"))
        }
        Refusal::TooManySessions { running } => fault(format!("{running} sessions run already")),
        Refusal::TooManyRequests { handle, known } => {
            fault(format!("Session {handle} has {known} requests already"))
        }
        Refusal::TooManyNodes { known } => fault(format!("{known} nodes are known already")),
        Refusal::TooManyPools { used } => fault(format!("{used} pools are in use already")),
    }
}

/// The original's sentences. Spec: cluster-manager/02 §3.16.
fn pool_objection(objection: &PoolObjection) -> String {
    const MODE: &str = "This cluster is operating in configured pools only mode.  The pool group \
                        and pool was";
    const USE: &str = "Please use the Corona parameter mapred.fairscheduler.pool to set a valid";
    const FORM: &str = "pool group and pool in the format <poolgroup>.<pool>";
    match objection {
        PoolObjection::NotSpecified => format!(
            "{MODE} not specified.  {USE} poolgroup and pool in the format '<poolgroup>.<pool>'"
        ),
        PoolObjection::NotConfigured(pool) => {
            format!("{MODE} specified as '{pool}' and is not part of this cluster.  {USE} {FORM}")
        }
        PoolObjection::IllegalName(pool) => format!(
            "{MODE} specified as '{pool}' and has illegal characters (Something not in \
             .*[^0-9a-z\\-\\_].*).  {USE} {FORM}"
        ),
        PoolObjection::Draining(_) | PoolObjection::NotAllowed { .. } => objection.to_string(),
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
    wire::ResourceType(kind as i32)
}

fn priority_to_wire(priority: engine::SessionPriority) -> wire::SessionPriority {
    wire::SessionPriority(priority as i32)
}

fn texts(texts: Vec<String>) -> Vec<Arc<str>> {
    texts.into_iter().map(Arc::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer's view of a refusal: the exception's class, and its text.
    fn received(refused: Refusal) -> (&'static str, String) {
        match refusal::<()>(refused) {
            Answer::Exception(Exception::InvalidSessionHandle(it)) => ("session", it.handle),
            Answer::Exception(Exception::DisallowedNode(it)) => ("node", it.host),
            Answer::Exception(Exception::InvalidPoolInfo(it)) => ("pool", it.pool_info),
            Answer::Exception(Exception::SafeMode(_)) => ("safe mode", String::new()),
            Answer::Fault(fault) => ("fault", fault.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn refusals_reach_peers_as_the_original_words_them() {
        let handle = || Arc::from("2026.1");
        let pool = || engine::PoolName::new("g", "P");
        let kind = engine::ResourceType::Map;
        let mode = "This cluster is operating in configured pools only mode.  \
                    The pool group and pool was";
        let hint = "Please use the Corona parameter mapred.fairscheduler.pool to set a valid";
        let not_specified = format!(
            "{mode} not specified.  {hint} poolgroup and pool in the format '<poolgroup>.<pool>'"
        );
        let form = "pool group and pool in the format <poolgroup>.<pool>";
        let not_configured =
            format!("{mode} specified as 'g.P' and is not part of this cluster.  {hint} {form}");
        let illegal = format!(
            "{mode} specified as 'g.P' and has illegal characters \
             (Something not in .*[^0-9a-z\\-\\_].*).  {hint} {form}"
        );
        for (refused, class, text) in [
            (Refusal::SafeMode, "safe mode", ""),
            (Refusal::UnknownSession(handle()), "session", "2026.1"),
            (Refusal::OutOfStep(handle()), "session", "2026.1"),
            (Refusal::MalformedHandle(handle()), "session", "2026.1"),
            (
                Refusal::ForeignHandle(handle()),
                "session",
                "Session belongs to a different start time 2026.1",
            ),
            (Refusal::AlreadyStarted(handle()), "session", "Session already started 2026.1"),
            (Refusal::SessionPool(PoolObjection::NotSpecified), "session", &not_specified),
            (Refusal::Pool(PoolObjection::NotConfigured(pool())), "pool", &not_configured),
            (Refusal::SessionPool(PoolObjection::IllegalName(pool())), "session", &illegal),
            (
                Refusal::OverPoolMaximum { handle: handle(), kind, requested: 4, allowed: 3 },
                "session",
                "Session 2026.1 requested 4 resources for resource type MAP but was only allowed \
                 3, so failing the job",
            ),
            (Refusal::IllegalType(handle()), "fault", "Bad resource type from session: 2026.1"),
            (
                Refusal::ContradictoryHosts(handle()),
                "fault",
                "Bad excluded hosts from session: 2026.1",
            ),
            (Refusal::DisallowedNode("h".into()), "node", "h"),
            (
                Refusal::UnknownCpuCount { num_cpus: -3 },
                "fault",
                "No matching entry for cpu count: -3 in node and no 1 cpu map",
            ),
            (Refusal::TooManySessions { running: 5 }, "fault", "5 sessions run already"),
            (
                Refusal::TooManyRequests { handle: handle(), known: 6 },
                "fault",
                "Session 2026.1 has 6 requests already",
            ),
            (Refusal::TooManyNodes { known: 7 }, "fault", "7 nodes are known already"),
            (Refusal::TooManyPools { used: 8 }, "fault", "8 pools are in use already"),
        ] {
            assert_eq!(received(refused), (class, text.to_owned()));
        }
    }
}
