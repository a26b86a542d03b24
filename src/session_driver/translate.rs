//! Between the types of the wire and those of this crate. Decides nothing.

use std::sync::Arc;

use super::types::{
    Address, ComputeSpecs, Grant, NodeUsage, PoolName, Request, ResourceType, SessionPriority,
    SessionStatus,
};
use corona_wire::generated as wire;

pub(super) fn request(request: &Request) -> wire::ResourceRequest {
    let slot = &request.slot;
    wire::ResourceRequest {
        id: request.id,
        hosts: texts(&slot.hosts),
        specs: Some(specs(slot.specs)),
        type_: resource_type(slot.kind),
        exclude_hosts: texts(&slot.exclude_hosts),
    }
}

/// `None` when the type is unknown.
pub(super) fn grant(grant: wire::ResourceGrant) -> Option<Grant> {
    Some(Grant {
        id: grant.id,
        node_name: grant.node_name.into(),
        address: Address { host: grant.address.host.into(), port: grant.address.port },
        granted_at_ms: grant.granted_time,
        kind: ResourceType::from_number(grant.type_.0)?,
        app_info: grant.app_info.unwrap_or_default().into(),
    })
}

pub(super) fn usage(usage: &NodeUsage) -> wire::NodeUsageReport {
    wire::NodeUsageReport {
        node_name: usage.node_name.to_string(),
        num_total_tasks: usage.total_tasks,
        num_succeeded: usage.succeeded,
        num_killed: usage.killed,
        num_failed: usage.failed,
        num_timeout: usage.timed_out,
        num_slow: usage.slow,
        num_failed_connections: usage.failed_connections,
    }
}

pub(super) fn resource_type(kind: ResourceType) -> wire::ResourceType {
    wire::ResourceType(kind.number())
}

pub(super) fn priority(priority: SessionPriority) -> wire::SessionPriority {
    wire::SessionPriority(priority.number())
}

pub(super) fn status(status: SessionStatus) -> wire::SessionStatus {
    wire::SessionStatus(status.number())
}

pub(super) fn pool(pool: &PoolName) -> wire::PoolInfoStrings {
    wire::PoolInfoStrings {
        pool_group_name: pool.group.to_string(),
        pool_name: pool.pool.to_string(),
    }
}

pub(super) fn pool_name(pool: &wire::PoolInfoStrings) -> PoolName {
    PoolName::new(&*pool.pool_group_name, &*pool.pool_name)
}

fn specs(specs: ComputeSpecs) -> wire::ComputeSpecs {
    wire::ComputeSpecs {
        num_cpus: specs.num_cpus,
        network_m_bps: specs.network_mbps,
        memory_m_b: specs.memory_mb,
        disk_g_b: specs.disk_gb,
    }
}

/// An empty list is left out, as by a Java job tracker that has no hosts to name.
fn texts(texts: &[Arc<str>]) -> Option<Vec<String>> {
    (!texts.is_empty()).then(|| texts.iter().map(|text| text.to_string()).collect())
}
