//! Between the plain types of the engines and those of the session driver. Decides nothing.

use corona_job_engine::{GrantedSlot, NodeUsage, RequestId};
use corona_mapreduce::TaskDemand;
use corona_model::types as model;
use corona_session_driver as driver;
use corona_session_driver::{
    ComputeSpecs, Grant, PoolName, Request, ResourceType, SessionPriority, SessionStatus,
    SlotRequest,
};

/// The slot of a request, with the resources that the job names for its tasks. A request without specs
/// counts as one CPU.
pub(crate) fn slot(request: model::ResourceRequest, demand: TaskDemand) -> SlotRequest {
    let mut specs = ComputeSpecs::cpus(1);
    if let Some(wanted) = demand.applied(request.kind, request.specs) {
        specs.num_cpus = wanted.num_cpus;
        specs.network_mbps = wanted.network_mbps;
        specs.memory_mb = wanted.memory_mb;
        specs.disk_gb = wanted.disk_gb;
    }
    SlotRequest::new(kind(request.kind))
        .near(request.hosts)
        .avoiding(request.exclude_hosts)
        .with_specs(specs)
}

/// A request of an earlier run that is not released, with its grant.
pub(crate) fn open(
    (request, grant): (model::ResourceRequest, Option<model::Grant>),
    demand: TaskDemand,
) -> (Request, Option<Grant>) {
    let request = Request { id: request.id, slot: slot(request, demand).into() };
    let grant = grant.map(|grant| {
        let address = driver::Address { host: grant.address.host, port: grant.address.port };
        let mut kept = Grant::new(grant.id, kind(grant.kind), grant.node_name, address);
        kept.granted_at_ms = grant.granted_at.0;
        kept.app_info = grant.app_info;
        kept
    });
    (request, grant)
}

pub(crate) fn granted(grant: &Grant) -> GrantedSlot {
    GrantedSlot {
        id: RequestId(grant.id),
        node: grant.node_name.clone(),
        host: grant.address.host.clone(),
        address: grant.app_info.clone(),
    }
}

pub(crate) fn pool(pool: &model::PoolName) -> PoolName {
    PoolName::new(pool.group.clone(), pool.pool.clone())
}

pub(crate) fn pool_of(pool: &PoolName) -> model::PoolName {
    model::PoolName { group: pool.group.clone(), pool: pool.pool.clone() }
}

pub(crate) fn priority(priority: model::SessionPriority) -> SessionPriority {
    match priority {
        model::SessionPriority::VeryLow => SessionPriority::VeryLow,
        model::SessionPriority::Low => SessionPriority::Low,
        model::SessionPriority::Normal => SessionPriority::Normal,
        model::SessionPriority::High => SessionPriority::High,
        model::SessionPriority::VeryHigh => SessionPriority::VeryHigh,
    }
}

pub(crate) fn status(status: model::SessionStatus) -> SessionStatus {
    match status {
        model::SessionStatus::Running => SessionStatus::Running,
        model::SessionStatus::Failed => SessionStatus::Failed,
        model::SessionStatus::Successful => SessionStatus::Successful,
        model::SessionStatus::Killed => SessionStatus::Killed,
        model::SessionStatus::TimedOut => SessionStatus::TimedOut,
        model::SessionStatus::KilledAborted => SessionStatus::KilledAborted,
        model::SessionStatus::FailedJobtracker => SessionStatus::FailedJobtracker,
    }
}

pub(crate) fn usage(usage: NodeUsage) -> driver::NodeUsage {
    let count = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    let mut counts = driver::NodeUsage::new(usage.node);
    counts.total_tasks = count(usage.total);
    counts.succeeded = count(usage.succeeded);
    counts.killed = count(usage.killed);
    counts.failed = count(usage.failed);
    counts.timed_out = count(usage.timeouts);
    counts.failed_connections = count(usage.failed_connections);
    counts
}

fn kind(kind: model::ResourceType) -> ResourceType {
    match kind {
        model::ResourceType::Map => ResourceType::Map,
        model::ResourceType::Reduce => ResourceType::Reduce,
        model::ResourceType::JobTracker => ResourceType::JobTracker,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_on_both_sides() {
        for one in model::SessionStatus::ALL {
            assert_eq!(status(one).name(), one.name());
        }
        for one in model::ResourceType::ALL {
            assert_eq!(kind(one).name(), one.name());
        }
        for (number, one) in (0..).zip(model::SessionPriority::ALL) {
            assert_eq!(priority(one).number(), number);
        }
    }
}
