//! From what can be seen of the engine to the shapes of the API. Decides nothing.

use super::{
    Address, ByType, Cluster, Grant, IdRange, Node, NodeProblem, NodeSlots, Nodes, Paging, Pool,
    PoolCounts, PoolName, PoolSettings, Pools, RetiredCounts, RetiredSession, RetiredSessions,
    Session, SessionCounts, SessionDetail, Sessions, Slots, Specs, Wait, WaitReason, handle_order,
};
use crate::cluster_manager::core::Core;
use crate::engine::settings::{SchedulingMode, UNLIMITED};
use crate::engine::types::{self, Millis, ResourceType};
use crate::engine::{self, Engine, NodeView, PoolView, RunningSession, WaitingRequests};

pub(super) fn cluster(core: &Core, pending_notifications: usize) -> Cluster {
    core.look(|engine, now| Cluster {
        version: env!("CARGO_PKG_VERSION").into(),
        now_ms: now.0,
        started_ms: engine.started().0,
        safe_mode: engine.safe_mode(),
        nodes: engine.node_count(),
        sessions: engine.session_count(),
        pending_notifications,
        slots: by_type(engine.legal_types(), |kind| {
            let slots = engine.slots(kind);
            Slots { total: slots.total, used: slots.used }
        }),
    })
}

pub(super) fn nodes(core: &Core, paging: &Paging) -> Nodes {
    let (now, views) = core.look(|engine, now| (now, engine.nodes()));
    let total = views.len();
    let after = |view: &NodeView| paging.after.as_deref().is_none_or(|after| *view.name > *after);
    let mut views = views.into_iter().filter(after);
    let nodes: Vec<Node> = views.by_ref().take(paging.limit).map(node).collect();
    let next = views.next().and_then(|_| nodes.last()).map(|last| last.name.clone());
    Nodes { now_ms: Some(now.0), total, next, nodes }
}

pub(super) fn pools(core: &Core) -> Pools {
    let (now, kinds, views) = core.look(|engine, now| (now, legal(engine), engine.pools()));
    Pools { now_ms: Some(now.0), pools: views.into_iter().map(|view| pool(view, &kinds)).collect() }
}

pub(super) fn sessions(core: &Core, paging: &Paging) -> Sessions {
    let (now, kinds, mut views) =
        core.look(|engine, now| (now, legal(engine), engine.sessions_at(now)));
    let total = views.len();
    views.sort_by(|a, b| handle_order(&a.handle, &b.handle));
    let after = |view: &RunningSession| {
        paging.after.as_deref().is_none_or(|after| handle_order(&view.handle, after).is_gt())
    };
    let mut views = views.into_iter().filter(after);
    let sessions: Vec<Session> =
        views.by_ref().take(paging.limit).map(|view| session(view, &kinds)).collect();
    let next = views.next().and_then(|_| sessions.last()).map(|last| last.handle.clone());
    Sessions { now_ms: now.0, total, next, sessions }
}

/// `None` when no session with this handle runs.
pub(super) fn session_detail(core: &Core, handle: &str) -> Option<SessionDetail> {
    let (now, kinds, view, grants, waits) = core.look(|engine, now| {
        let view = engine.session_at(handle, now)?;
        let grants = engine.grants(handle)?;
        Some((now, legal(engine), view, grants, engine.explain(handle, now)?))
    })?;
    let info = view.info.clone();
    Some(SessionDetail {
        now_ms: now.0,
        session: session(view, &kinds),
        address: address(&info.address),
        group_ids: info.group_ids.unwrap_or_default().iter().map(|id| id.to_string()).collect(),
        no_preempt: info.no_preempt.unwrap_or_default(),
        grants_total: grants.len(),
        grants: grants
            .into_iter()
            .take(SessionDetail::MOST_GRANTS)
            .map(|view| grant(&view.grant))
            .collect(),
        waits: Some(waits.into_iter().map(wait).collect()),
    })
}

pub(super) fn retired(core: &Core, limit: usize) -> RetiredSessions {
    let (now, kinds, total, latest) = core.look(|engine, now| {
        let retired = engine.retired_sessions();
        let latest: Vec<_> = retired.iter().rev().take(limit).cloned().collect();
        (now, legal(engine), retired.len(), latest)
    });
    let sessions = latest.into_iter().map(|session| retired_session(session, &kinds)).collect();
    RetiredSessions { now_ms: now.0, total, sessions }
}

fn legal(engine: &Engine) -> Vec<ResourceType> {
    engine.legal_types().collect()
}

fn by_type<T>(
    kinds: impl IntoIterator<Item = ResourceType>,
    value: impl Fn(ResourceType) -> T,
) -> ByType<T> {
    kinds.into_iter().map(|kind| (kind, value(kind))).collect()
}

fn node(view: NodeView) -> Node {
    let served = ResourceType::ALL.into_iter().filter(|kind| view.apps[*kind].is_some());
    let slots = by_type(served, |kind| NodeSlots {
        total: view.slots[kind].total,
        used: view.slots[kind].used,
        blacklisted: view.blacklisted[kind],
    });
    let problems = [
        (!view.allowed, NodeProblem::Excluded),
        (!view.has_reserve, NodeProblem::BelowReserve),
        (view.blacklisted.0.contains(&true), NodeProblem::Blacklisted),
    ];
    Node {
        name: view.name.to_string(),
        problems: problems.into_iter().filter(|(is, _)| *is).map(|(_, problem)| problem).collect(),
        address: Some(address(&view.address)),
        rack: Some(view.rack.to_string()),
        last_heartbeat_ms: Some(view.last_heartbeat.0),
        total: Some(specs(view.total)),
        free: Some(specs(view.free)),
        sessions: Some(view.sessions),
        slots: Some(slots),
    }
}

fn pool(view: PoolView, kinds: &[ResourceType]) -> Pool {
    let settings = view.pool.is_some().then(|| PoolSettings {
        mode: mode_name(view.mode).into(),
        preemptable: view.preemptable,
        request_max: view.request_max,
        priority: view.priority,
        weight: view.weight,
    });
    let types = by_type(kinds.iter().copied(), |kind| PoolCounts {
        requested: view.counts[kind].requested,
        granted: view.counts[kind].granted,
        waiting: Some(view.counts[kind].pending),
        share: view.share[kind],
        minimum: view.minimum[kind].into(),
        maximum: (view.maximum[kind] != UNLIMITED).then(|| view.maximum[kind].into()),
    });
    Pool {
        group: view.group.to_string(),
        pool: view.pool.map(|pool| pool.to_string()),
        configured: Some(view.configured),
        sessions: view.sessions,
        settings,
        types,
    }
}

fn mode_name(mode: SchedulingMode) -> &'static str {
    match mode {
        SchedulingMode::Fifo => "FIFO",
        SchedulingMode::Fair => "FAIR",
        SchedulingMode::Deadline => "DEADLINE",
    }
}

fn session(view: RunningSession, kinds: &[ResourceType]) -> Session {
    let types = by_type(kinds.iter().copied(), |kind| {
        let counts = view.counts[kind];
        SessionCounts {
            requested: counts.now.requested,
            waiting: counts.now.pending,
            granted: counts.now.granted,
            max_concurrent: counts.max_concurrent,
            fulfilled: counts.fulfilled,
            revoked: counts.revoked,
            first_wait_ms: counts.first_wait_ms,
            usage: view.usages.get(kind.index()).cloned().unwrap_or_default(),
        }
    });
    Session {
        handle: view.handle.to_string(),
        name: view.info.name.to_string(),
        user: view.info.user_id.to_string(),
        pool: pool_name(&view.pool),
        scheduling_pool: pool_name(&view.scheduling_pool),
        priority: view.priority.name().into(),
        deadline_ms: Some(view.deadline).filter(|deadline| *deadline != 0),
        url: text(view.info.url.as_deref()),
        started_ms: view.started.0,
        last_heartbeat_ms: view.last_heartbeat.0,
        types,
    }
}

fn grant(grant: &types::Grant) -> Grant {
    let Millis(granted_ms) = grant.granted_at;
    Grant {
        id: grant.id,
        kind: grant.kind,
        node: grant.node_name.to_string(),
        address: address(&grant.address),
        granted_ms,
    }
}

fn wait(waiting: WaitingRequests) -> Wait {
    let WaitingRequests { kind, ids, count, reason } = waiting;
    let ids = ids.into_iter().take(Wait::MOST_IDS);
    let ids = ids.map(|engine::IdRange { first, last }| IdRange { first, last }).collect();
    Wait { kind, requests: count, ids, reason: wait_reason(reason) }
}

fn wait_reason(reason: engine::WaitReason) -> WaitReason {
    use engine::WaitReason as Why;
    match reason {
        Why::SafeMode => WaitReason::SafeMode,
        Why::GroupAtMaximum { group, granted, maximum } => {
            WaitReason::GroupAtMaximum { group: group.to_string(), granted, maximum }
        }
        Why::PoolAtMaximum { pool, granted, maximum } => {
            WaitReason::PoolAtMaximum { pool: pool_name(&pool), granted, maximum }
        }
        Why::NotServed => WaitReason::NotServed,
        Why::NoFreeSlot { used, total, pool, pool_granted, pool_share, sessions_ahead } => {
            let pool = pool_name(&pool);
            WaitReason::NoFreeSlot { used, total, pool, pool_granted, pool_share, sessions_ahead }
        }
        Why::NodesUnusable { blacklisted, excluded, below_reserve } => {
            WaitReason::NodesUnusable { blacklisted, excluded, below_reserve }
        }
        Why::TooLarge { need, most_free } => WaitReason::TooLarge { need, most_free },
        Why::HostsExcluded { nodes } => WaitReason::HostsExcluded { nodes },
        Why::NearNode { until: Millis(until_ms), hosts, host_count } => {
            let hosts = hosts.iter().map(|host| host.to_string()).collect();
            WaitReason::NearNode { until_ms, hosts, host_count }
        }
        Why::NextPass { sessions_ahead } => WaitReason::NextPass { sessions_ahead },
    }
}

fn retired_session(view: engine::RetiredSession, kinds: &[ResourceType]) -> RetiredSession {
    let types = by_type(kinds.iter().copied(), |kind| RetiredCounts {
        max_concurrent: view.max_concurrent[kind],
        fulfilled: view.fulfilled[kind],
        revoked: view.revoked[kind],
        usage: view.usages.get(kind.index()).cloned().unwrap_or_default(),
    });
    RetiredSession {
        handle: view.handle.to_string(),
        name: view.info.name.to_string(),
        user: view.info.user_id.to_string(),
        pool: pool_name(&view.pool),
        priority: view.info.priority.unwrap_or_default().name().into(),
        url: text(view.info.url.as_deref()),
        started_ms: view.started.0,
        ended_ms: view.ended.0,
        status: view.status.name().into(),
        types,
    }
}

fn address(address: &types::Address) -> Address {
    Address { host: address.host.to_string(), port: address.port }
}

fn specs(specs: types::ComputeSpecs) -> Specs {
    Specs { cpus: specs.num_cpus, memory_mb: specs.memory_mb, disk_gb: specs.disk_gb }
}

fn pool_name(pool: &types::PoolName) -> PoolName {
    PoolName { group: pool.group.to_string(), pool: pool.pool.to_string() }
}

/// An empty text counts as none.
fn text(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}
