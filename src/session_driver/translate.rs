//! Between the types of the wire and the plain ones of this room. Decides nothing.

use std::sync::Arc;

use super::outgoing::NodeUsage;
use corona_model::types as engine;
use corona_wire::generated as wire;

pub(super) fn request(request: &engine::ResourceRequest) -> wire::ResourceRequest {
    wire::ResourceRequest {
        id: request.id,
        hosts: texts(&request.hosts),
        specs: request.specs.map(specs),
        type_: resource_type(request.kind),
        exclude_hosts: texts(&request.exclude_hosts),
    }
}

/// `None` when the type is unknown.
pub(super) fn grant(grant: wire::ResourceGrant) -> Option<engine::Grant> {
    Some(engine::Grant {
        id: grant.id,
        node_name: grant.node_name.into(),
        address: engine::Address { host: grant.address.host.into(), port: grant.address.port },
        granted_at: engine::Millis(grant.granted_time),
        kind: engine::ResourceType::from_number(grant.type_.0)?,
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

pub(super) fn resource_type(kind: engine::ResourceType) -> wire::ResourceType {
    wire::ResourceType(kind.index() as i32)
}

pub(super) fn priority(priority: engine::SessionPriority) -> wire::SessionPriority {
    wire::SessionPriority(priority as i32)
}

/// The numbers start at 1.
pub(super) fn status(status: engine::SessionStatus) -> wire::SessionStatus {
    wire::SessionStatus(status as i32 + 1)
}

pub(super) fn pool(pool: &engine::PoolName) -> wire::PoolInfoStrings {
    wire::PoolInfoStrings {
        pool_group_name: pool.group.to_string(),
        pool_name: pool.pool.to_string(),
    }
}

pub(super) fn pool_name(pool: &wire::PoolInfoStrings) -> engine::PoolName {
    engine::PoolName::new(&pool.pool_group_name, &pool.pool_name)
}

fn specs(specs: engine::ComputeSpecs) -> wire::ComputeSpecs {
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
