//! Converts the engine's views to the shapes of the API. It reads nothing else and decides nothing.

use crate::places::Places;
use corona_api::cluster::{
    Address, Ahead, ByResource, ByType, ClusterResource, Complaint, First, Grant, Holder, IdRange,
    Node, NodeDetail, NodeFaults, NodeGrant, NodeProblem, NodeResource, NodeSlots, Nodes, Paging,
    Pool, PoolCounts, PoolName, PoolSettings, Preemption, Queue, ReservedFor, ReservedNode,
    ResourceLimit, RetiredCounts, RetiredSession, RetiredSessions, Session, SessionCounts,
    SessionDetail, SessionWaits, Sessions, Specs, Unusable, Visitor, Wait, WaitReason,
    handle_order,
};
use corona_engine::{
    self as engine, HolderClaim, Holding, NodeView, PoolView, Precedence, RunningSession,
    Starvation, WaitingRequests,
};
use corona_model::queues::Part;
use corona_model::resources::{Amounts, Dimension, Resources};
use corona_model::settings::{FaultLimits, SchedulingMode, UNLIMITED};
use corona_model::types::{self, Millis, PerType, ResourceType};

/// One page of nodes: all, or those with a problem.
pub(crate) fn nodes(
    now: Millis,
    resources: &Resources,
    views: &[NodeView],
    problem: Option<NodeProblem>,
    paging: &Paging,
) -> Nodes {
    let mut wanted: Vec<&NodeView> = views
        .iter()
        .filter(|view| paging.after.as_deref().is_none_or(|after| *view.name > *after))
        .filter(|view| problem.is_none_or(|problem| problems(view).any(|it| it == problem)))
        .collect();
    wanted.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let (nodes, more) = page(&wanted, paging.limit, |view| node(view, resources));
    let next = nodes.last().filter(|_| more).map(|last| last.name.clone());
    let of_all = cluster_resources(resources, &Places::of(views));
    Nodes { now_ms: Some(now.0), total: views.len(), next, resources: of_all, nodes }
}

/// A node, with the complaints about it and the grants on it.
pub(crate) fn node_detail(
    now: Millis,
    limits: &FaultLimits,
    resources: &Resources,
    view: engine::NodeDetail,
    mut grants: Vec<engine::NodeGrant>,
) -> NodeDetail {
    let engine::NodeDetail { node: shown, faults, complaints, mut visitors } = view;
    visitors.sort_unstable_by(|a, b| handle_order(&a.session, &b.session));
    grants.sort_unstable_by(|a, b| {
        (a.granted_at, &a.session, a.id).cmp(&(b.granted_at, &b.session, b.id))
    });
    let served = ResourceType::ALL.into_iter().filter(|kind| shown.apps[*kind].is_some());
    NodeDetail {
        now_ms: now.0,
        node: node(&shown, resources),
        faults: by_type(served, |kind| NodeFaults {
            failures: faults[kind].failures,
            failures_limit: limits.failure_sessions,
            failed_connections: faults[kind].failed_connections,
            failed_connections_limit: limits.failed_connection_sessions,
            blacklisted_since_ms: faults[kind].blacklisted_since.map(|at| at.0),
        }),
        complaints: complaints.iter().map(complaint).collect(),
        visitors: visitors.iter().take(NodeDetail::MOST_VISITORS).map(visitor).collect(),
        visitors_total: visitors.len(),
        grants_total: grants.len(),
        grants: grants
            .iter()
            .take(NodeDetail::MOST_GRANTS)
            .map(|grant| node_grant(grant, resources))
            .collect(),
    }
}

fn visitor(visitor: &engine::Visitor) -> Visitor {
    Visitor {
        session: visitor.session.to_string(),
        user: visitor.user.to_string(),
        url: text(visitor.url.as_deref()),
    }
}

fn complaint(complaint: &engine::Complaint) -> Complaint {
    let kinds = ResourceType::ALL.into_iter().filter(|kind| complaint.kinds[*kind]);
    Complaint {
        session: complaint.session.to_string(),
        user: complaint.user.to_string(),
        at_ms: complaint.at.0,
        types: kinds.collect(),
        failed: complaint.failed,
        failed_connections: complaint.failed_connections,
    }
}

fn node_grant(grant: &engine::NodeGrant, resources: &Resources) -> NodeGrant {
    NodeGrant {
        session: grant.session.to_string(),
        name: grant.name.to_string(),
        user: grant.user.to_string(),
        pool: pool_name(&grant.pool),
        id: grant.id,
        kind: grant.kind,
        slots: grant.slots,
        resources: counted(resources, |dimension| grant.takes[dimension]),
        granted_ms: grant.granted_at.0,
    }
}

/// One page of running sessions.
pub(crate) fn sessions(
    now: Millis,
    kinds: &[ResourceType],
    resources: &Resources,
    views: &[RunningSession],
    paging: &Paging,
) -> Sessions {
    let mut wanted: Vec<&RunningSession> = views
        .iter()
        .filter(|view| {
            paging.after.as_deref().is_none_or(|after| handle_order(&view.handle, after).is_gt())
        })
        .collect();
    wanted.sort_unstable_by(|a, b| handle_order(&a.handle, &b.handle));
    let (sessions, more) = page(&wanted, paging.limit, |view| session(view, kinds, resources));
    let next = sessions.last().filter(|_| more).map(|last| last.handle.clone());
    Sessions { now_ms: now.0, total: views.len(), next, sessions }
}

/// A running session, with the slots that it holds and why its requests wait.
pub(crate) fn session_detail(
    now: Millis,
    kinds: &[ResourceType],
    resources: &Resources,
    view: &RunningSession,
    mut grants: Vec<types::Grant>,
    waits: Vec<WaitingRequests>,
) -> SessionDetail {
    let info = &view.info;
    grants.sort_unstable_by_key(|grant| grant.id);
    SessionDetail {
        now_ms: now.0,
        session: session(view, kinds, resources),
        address: address(&info.address),
        group_ids: info.group_ids.iter().flatten().map(|id| id.to_string()).collect(),
        no_preempt: info.no_preempt.unwrap_or_default(),
        grants_total: grants.len(),
        grants: grants.iter().take(SessionDetail::MOST_GRANTS).map(grant).collect(),
        waits: SessionWaits { waits: Some(waits.into_iter().map(wait).collect()) },
    }
}

/// The last sessions that ended. `views` are the oldest first.
pub(crate) fn retired(
    now: Millis,
    kinds: &[ResourceType],
    views: &[engine::RetiredSession],
    limit: usize,
) -> RetiredSessions {
    let latest = views.iter().rev().take(limit);
    let sessions = latest.map(|session| retired_session(session.clone(), kinds)).collect();
    RetiredSessions { now_ms: now.0, total: views.len(), sessions }
}

/// The first entries as they are served, and whether there are more.
fn page<V, T>(views: &[V], limit: usize, serve: impl Fn(&V) -> T) -> (Vec<T>, bool) {
    (views.iter().take(limit).map(serve).collect(), views.len() > limit)
}

/// A value for each of the types.
pub(crate) fn by_type<T>(
    kinds: impl IntoIterator<Item = ResourceType>,
    value: impl Fn(ResourceType) -> T,
) -> ByType<T> {
    kinds.into_iter().map(|kind| (kind, value(kind))).collect()
}

/// A value for each resource that is counted.
fn counted<T>(resources: &Resources, value: impl Fn(Dimension) -> T) -> ByResource<T> {
    resources.dimensions().map(|dimension| (dimension, value(dimension))).collect()
}

/// The resources of the cluster.
pub(crate) fn cluster_resources(
    resources: &Resources,
    places: &Places,
) -> ByResource<ClusterResource> {
    counted(resources, |dimension| ClusterResource {
        capacity: places.capacity[dimension],
        granted: places.granted[dimension],
        free: places.free[dimension],
        largest_free: places.largest[dimension],
    })
}

/// What grants hold of the resources that are counted.
fn held(resources: &Resources, holding: &Holding) -> (ByResource<u64>, Option<f64>) {
    let share = resources.are_counted().then_some(holding.dominant_share);
    (counted(resources, |dimension| holding.held[dimension]), share)
}

fn problems(view: &NodeView) -> impl Iterator<Item = NodeProblem> + use<> {
    let problems = [
        (view.late, NodeProblem::Late),
        (!view.allowed, NodeProblem::Excluded),
        (view.draining, NodeProblem::Draining),
        (view.revoked, NodeProblem::Revoked),
        (!view.has_reserve, NodeProblem::BelowReserve),
        (view.blacklisted.0.contains(&true), NodeProblem::Blacklisted),
    ];
    problems.into_iter().filter(|(is, _)| *is).map(|(_, problem)| problem)
}

fn node(view: &NodeView, resources: &Resources) -> Node {
    let served = ResourceType::ALL.into_iter().filter(|kind| view.apps[*kind].is_some());
    let slots = by_type(served, |kind| NodeSlots {
        total: view.slots[kind].total,
        used: view.slots[kind].used,
        blacklisted: view.blacklisted[kind],
    });
    Node {
        name: view.name.to_string(),
        problems: problems(view).collect(),
        address: Some(address(&view.address)),
        rack: Some(view.rack.to_string()),
        last_heartbeat_ms: Some(view.last_heartbeat.0),
        total: Some(specs(view.total)),
        free: Some(specs(view.free)),
        sessions: Some(view.sessions),
        slots: Some(slots),
        resources: counted(resources, |dimension| NodeResource {
            capacity: view.capacity[dimension],
            granted: view.held[dimension],
            total: dimension.of(&view.total),
            used: dimension.used(&view.total, &view.free),
        }),
        reserved_for: view.reserved_for.as_ref().map(|it| ReservedFor {
            session: it.session.to_string(),
            id: it.id,
            since_ms: it.since.0,
            until_ms: Some(it.until.0),
        }),
        program: None,
        heard: false,
    }
}

/// Remarks on a pool that complement its counts.
pub(crate) struct PoolRemarks {
    /// Where the pools file redirects it.
    pub(crate) redirected_to: Option<types::PoolName>,
    /// Since when it may take slots from others; negative while it has patience.
    pub(crate) starved_ms: PerType<Option<i64>>,
    /// How long its sessions waited for their first slot, on average.
    pub(crate) first_wait_ms: PerType<Option<i64>>,
}

/// A pool, or a group, which has no remarks.
pub(crate) fn pool(
    view: &PoolView,
    remarks: Option<&PoolRemarks>,
    kinds: &[ResourceType],
    resources: &Resources,
) -> Pool {
    let limits = counted(resources, |dimension| ResourceLimit {
        minimum: Some(view.minimum_amounts[dimension]).filter(|least| *least > 0),
        maximum: Some(view.maximum_amounts[dimension]).filter(|most| *most < u64::MAX),
    });
    let limits = limits.into_iter().filter(|(_, limit)| *limit != ResourceLimit::default());
    let (resources, dominant_share) = held(resources, &view.holding);
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
        starving_ms: remarks.and_then(|remarks| remarks.starved_ms[kind]),
        first_wait_ms: remarks.and_then(|remarks| remarks.first_wait_ms[kind]),
    });
    Pool {
        group: view.group.to_string(),
        pool: view.pool.as_ref().map(|pool| pool.to_string()),
        configured: Some(view.configured),
        redirected_to: remarks.and_then(|remarks| remarks.redirected_to.as_ref()).map(pool_name),
        sessions: view.sessions,
        settings,
        queue: view.is_of_tree().then(|| queue(view, kinds)),
        types,
        resources,
        dominant_share,
        resource_limits: limits.collect(),
    }
}

fn queue(view: &PoolView, kinds: &[ResourceType]) -> Queue {
    let rules = &view.rules;
    let is_group = view.pool.is_none();
    let parts = |parts: PerType<Option<Part>>| -> ByType<String> {
        let kinds = kinds.iter().filter_map(|kind| Some((*kind, parts[*kind]?.to_string())));
        kinds.collect()
    };
    Queue {
        path: view.path.to_string(),
        parent: view.path.rsplit_once('.').map(|(parent, _)| parent.to_owned()),
        weight: is_group.then_some(view.weight),
        order: is_group.then(|| rules.order.name().to_owned()),
        lend: rules.lend,
        preemption: rules.preemption.name().to_owned(),
        state: if rules.draining { "draining" } else { "running" }.to_owned(),
        min_runtime_ms: rules.min_runtime_ms,
        max_sessions: rules.max_sessions,
        max_sessions_per_user: rules.max_sessions_per_user,
        max_per_user: rules.max_per_user,
        sessions_waiting: view.sessions_waiting,
        minimum_parts: parts(rules.minimum),
        maximum_parts: parts(rules.maximum),
        lent: by_type(kinds.iter().copied(), |kind| view.lent(kind)),
        borrowed: by_type(kinds.iter().copied(), |kind| view.borrowed(kind)),
    }
}

fn mode_name(mode: SchedulingMode) -> &'static str {
    match mode {
        SchedulingMode::Fifo => "FIFO",
        SchedulingMode::Fair => "FAIR",
        SchedulingMode::Deadline => "DEADLINE",
    }
}

fn session(view: &RunningSession, kinds: &[ResourceType], resources: &Resources) -> Session {
    let (resources, dominant_share) = held(resources, &view.holding);
    let types = by_type(kinds.iter().copied(), |kind| {
        let counts = view.counts[kind];
        SessionCounts {
            requested: counts.now.requested,
            waiting: counts.now.pending,
            granted: counts.now.granted,
            max_concurrent: counts.max_granted,
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
        asked_pool: view.info.pool.as_ref().map(pool_name),
        pool: pool_name(&view.pool),
        scheduling_pool: pool_name(&view.scheduling_pool),
        priority: view.priority.name().into(),
        deadline_ms: Some(view.deadline).filter(|deadline| *deadline != 0),
        url: text(view.info.url.as_deref()),
        started_ms: view.started.0,
        last_heartbeat_ms: view.last_heartbeat.0,
        types,
        resources,
        dominant_share,
        program: None,
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
    let WaitingRequests { kind, ids, count, reason, text } = waiting;
    let ids = ids.into_iter().take(Wait::MOST_IDS);
    let ids = ids.map(|engine::IdRange { first, last }| IdRange { first, last }).collect();
    Wait { kind, requests: count, ids, text: Some(text), reason: wait_reason(reason) }
}

fn wait_reason(reason: engine::WaitReason) -> WaitReason {
    use engine::WaitReason as Why;
    match reason {
        Why::SafeMode => WaitReason::SafeMode,
        Why::GroupAtMaximum { group, granted, maximum, ahead } => {
            let (group, ahead) = (group.to_string(), self::ahead(&ahead));
            WaitReason::GroupAtMaximum { group, granted, maximum, ahead }
        }
        Why::PoolAtMaximum { pool, granted, maximum, ahead } => {
            let (pool, ahead) = (pool_name(&pool), self::ahead(&ahead));
            WaitReason::PoolAtMaximum { pool, granted, maximum, ahead }
        }
        Why::SessionsAtMaximum { queue, user, running, maximum, before } => {
            let (queue, user) = (queue.to_string(), user.map(|user| user.to_string()));
            WaitReason::SessionsAtMaximum { queue, user, running, maximum, before }
        }
        Why::UserAtMaximum { queue, user, granted, maximum } => {
            let (queue, user) = (queue.to_string(), user.to_string());
            WaitReason::UserAtMaximum { queue, user, granted, maximum }
        }
        Why::Reserved { reserved, queues, count } => {
            let queues = queues.iter().map(|queue| queue.to_string()).collect();
            WaitReason::Reserved { reserved, queues, count }
        }
        Why::AboveMaximum { queue, demand, held, maximum, never } => {
            let demand = demand.as_ref().map(by_resource);
            let (held, maximum) = (by_resource(&held), by_resource(&maximum));
            WaitReason::AboveMaximum { queue: queue.to_string(), demand, held, maximum, never }
        }
        Why::AmountsReserved { demand, free, reserved, queues, count } => {
            let queues = queues.iter().map(|queue| queue.to_string()).collect();
            let [demand, free, reserved] = [demand, free, reserved].map(|it| by_resource(&it));
            WaitReason::AmountsReserved { demand, free, reserved, queues, count }
        }
        Why::NotServed { nodes } => WaitReason::NotServed { nodes },
        Why::NoFreeSlot { used, total, unusable, competition } => WaitReason::NoFreeSlot {
            used,
            total,
            pool: pool_name(&competition.pool),
            pool_granted: competition.granted,
            pool_minimum: competition.minimum,
            pool_share: competition.share,
            sessions_ahead: competition.ahead.sessions.count,
            ahead: ahead(&competition.ahead),
            holders: competition.holders.iter().map(holder).collect(),
            preemption: competition.preemption.map(preemption),
            unusable: self::unusable(&unusable),
        },
        Why::NodesUnusable(engine::Unusable {
            blacklisted,
            excluded,
            draining,
            revoked,
            below_reserve,
            late,
            ..
        }) => WaitReason::NodesUnusable {
            blacklisted,
            excluded,
            draining,
            revoked,
            below_reserve,
            late,
        },
        Why::TooLarge { need, most_free, most_slots, .. } => {
            WaitReason::TooLarge { need, most_free, most_slots, never: reason.is_for_ever() }
        }
        Why::TooLittle {
            demand,
            free,
            largest,
            kept,
            ref reservation,
            ref guaranteed,
            preemption: due,
            ..
        } => WaitReason::TooLittle {
            demand: by_resource(&demand),
            free: by_resource(&free),
            largest: by_resource(&largest),
            never: reason.is_for_ever(),
            kept,
            reservation: reservation.as_ref().map(reserved_node),
            guaranteed: guaranteed.iter().map(holder).collect(),
            preemption: due.map(preemption),
        },
        Why::HostsExcluded { nodes, full, .. } => {
            WaitReason::HostsExcluded { nodes, full, never: reason.is_for_ever() }
        }
        Why::NearNode { until: Millis(until_ms), hosts, host_count } => {
            let hosts = hosts.iter().map(|host| host.to_string()).collect();
            WaitReason::NearNode { until_ms, hosts, host_count }
        }
        Why::NextPass { ahead } => WaitReason::NextPass {
            sessions_ahead: ahead.sessions.count,
            ahead: self::ahead(&ahead),
        },
    }
}

fn reserved_node(reservation: &engine::ReservedNode) -> ReservedNode {
    let engine::ReservedNode { node, request, since, until } = reservation;
    ReservedNode { node: node.to_string(), request: *request, since_ms: since.0, until_ms: until.0 }
}

/// Nodes with free slots that cannot be used, if there are any.
fn unusable(nodes: &engine::Unusable) -> Option<Unusable> {
    (nodes.free_slots > 0).then_some(Unusable {
        free_slots: nodes.free_slots,
        blacklisted: nodes.blacklisted,
        excluded: nodes.excluded,
        draining: nodes.draining,
        revoked: nodes.revoked,
        below_reserve: nodes.below_reserve,
        late: nodes.late,
    })
}

/// The amounts of which there are any.
fn by_resource(amounts: &Amounts) -> ByResource<u64> {
    let some = Dimension::ALL.into_iter().filter(|dimension| amounts[*dimension] > 0);
    some.map(|dimension| (dimension, amounts[dimension])).collect()
}

fn ahead(ahead: &engine::Ahead) -> Ahead {
    fn first(because: Precedence) -> First {
        let because = because.name().to_owned();
        First { group: None, pool: None, session: None, because }
    }
    let engine::Ahead { groups, pools, sessions } = ahead;
    let named_groups = groups
        .named
        .iter()
        .map(|(group, because)| First { group: Some(group.to_string()), ..first(*because) });
    let named_pools = pools
        .named
        .iter()
        .map(|(pool, because)| First { pool: Some(pool_name(pool)), ..first(*because) });
    let named_sessions = sessions
        .named
        .iter()
        .map(|(session, because)| First { session: Some(session.to_string()), ..first(*because) });
    Ahead {
        groups: groups.count,
        pools: pools.count,
        sessions: sessions.count,
        first: named_groups.chain(named_pools).chain(named_sessions).collect(),
    }
}

fn holder(holder: &engine::Holder) -> Holder {
    let engine::Holder { pool, granted, claim } = holder;
    let mut shown = Holder {
        pool: pool_name(pool),
        granted: *granted,
        minimum: None,
        group_minimum: None,
        minimum_resources: None,
        group_minimum_resources: None,
        higher_priority: false,
    };
    match claim {
        None => {}
        Some(HolderClaim::Minimum(minimum)) => shown.minimum = Some(*minimum),
        Some(HolderClaim::GroupMinimum(minimum)) => shown.group_minimum = Some(*minimum),
        Some(HolderClaim::MinimumAmounts { minimum, .. }) => {
            shown.minimum_resources = Some(by_resource(minimum));
        }
        Some(HolderClaim::GroupMinimumAmounts(minimum)) => {
            shown.group_minimum_resources = Some(by_resource(minimum));
        }
        Some(HolderClaim::HigherPriority) => shown.higher_priority = true,
    }
    shown
}

fn preemption(preemption: engine::Preemption) -> Preemption {
    let engine::Preemption { cause, due: Millis(due_ms), possible } = preemption;
    let cause = match cause {
        Starvation::Minimum => "minimum",
        Starvation::Share => "share",
    };
    Preemption { cause: cause.into(), due_ms, possible }
}

fn retired_session(view: engine::RetiredSession, kinds: &[ResourceType]) -> RetiredSession {
    let types = by_type(kinds.iter().copied(), |kind| RetiredCounts {
        max_concurrent: view.max_granted[kind],
        fulfilled: view.fulfilled[kind],
        revoked: view.revoked[kind],
        usage: view.usages.get(kind.index()).cloned().unwrap_or_default(),
    });
    RetiredSession {
        handle: view.handle.to_string(),
        name: view.info.name.to_string(),
        user: view.info.user_id.to_string(),
        asked_pool: view.info.pool.as_ref().map(pool_name),
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
