//! Read-only views of the engine.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use corona_model::queues::QueueRules;
use corona_model::resources::Amounts;
use serde::Serialize;

use super::Engine;
use super::index::{ReqIdx, SessionIdx};
use super::input::Refusal;
use super::node_calls::allowed;
use super::nodes::{Complaint, Node};
use super::requests::RequestState;
use super::scheduler::Lack;
use super::scheduler::shares::{self, Claim};
use super::sessions::{FirstWait, RetiredSession, Session, Tally};
use super::settings::{Scheduling, SchedulingMode, UNLIMITED};
use super::types::{
    Address, ComputeSpecs, Grant, Millis, PerType, PoolName, ResourceType, SessionInfo,
    SessionPriority,
};

/// Counts of one type for a session, a pool or a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TypeCounts {
    /// Pending, granted and lost requests.
    pub requested: i64,
    /// Requests that wait.
    pub pending: i64,
    /// Requests that hold a slot.
    pub granted: i64,
}

impl From<Tally> for TypeCounts {
    fn from(tally: Tally) -> Self {
        let Tally { requested, pending, granted, .. } = tally;
        TypeCounts { requested, pending, granted }
    }
}

/// A running session at a glance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunningSession {
    /// The session's id.
    pub handle: Arc<str>,
    /// The session's current description of itself.
    pub info: SessionInfo,
    /// Priority in force.
    pub priority: SessionPriority,
    /// Deadline in force, 0 for none.
    pub deadline: i64,
    /// Its pool after redirects.
    pub pool: PoolName,
    /// The pool in which it is scheduled.
    pub scheduling_pool: PoolName,
    /// Its start.
    pub started: Millis,
    /// When its last heartbeat came.
    pub last_heartbeat: Millis,
    /// Counts of its requests.
    pub counts: PerType<SessionTally>,
    /// The resources that its grants take, where they are counted.
    pub holding: Holding,
    /// Usage numbers as last reported.
    pub usages: [Vec<i64>; 3],
}

/// The resources that grants take. Nothing while only slots are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Holding {
    /// What they take.
    pub held: Amounts,
    /// The largest part that this is of any resource of the cluster, from 0 to 1.
    pub dominant_share: f64,
}

/// A session's counts of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionTally {
    /// Counts now.
    pub now: TypeCounts,
    /// The most grants that it held at a time.
    pub max_granted: i64,
    /// Grants that were not taken back.
    pub fulfilled: i64,
    /// Grants that were taken back or lost.
    pub revoked: i64,
    /// Milliseconds from the session's start until the first grant; absent while there was none.
    pub first_wait_ms: Option<i64>,
    /// Milliseconds from the session's start until now, if it has made requests and never had a
    /// grant.
    pub ungranted_ms: Option<i64>,
}

/// A grant of a running session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GrantView {
    /// The grant, as the session was notified of it.
    pub grant: Grant,
}

/// A node at a glance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeView {
    /// The node's name.
    pub name: Arc<str>,
    /// Where its task tracker listens.
    pub address: Address,
    /// The path of its rack.
    pub rack: Arc<str>,
    /// The node's total resources.
    pub total: ComputeSpecs,
    /// The free resources that the node last reported.
    pub free: ComputeSpecs,
    /// When its last heartbeat came.
    pub last_heartbeat: Millis,
    /// Whether it has missed too many heartbeats.
    pub late: bool,
    /// Whether it is given no grants because it is late.
    pub skipped: bool,
    /// Slots by its CPU count, used slots, and where it serves the type.
    pub slots: PerType<SlotCounts>,
    /// Where it serves each type; absent for types that it does not serve.
    pub apps: PerType<Option<Arc<str>>>,
    /// Types for which it is blacklisted.
    pub blacklisted: PerType<bool>,
    /// Whether its host is allowed by the host files.
    pub allowed: bool,
    /// Whether an operator drains it.
    pub draining: bool,
    /// Whether its access to the cluster was revoked.
    pub revoked: bool,
    /// Whether it keeps its reserved memory and disk free.
    pub has_reserve: bool,
    /// Running sessions that ever had a grant on it.
    pub sessions: usize,
    /// The resources that it gives out. Nothing while only slots are counted.
    pub capacity: Amounts,
    /// The resources that its grants take.
    pub held: Amounts,
    /// The request that it is kept for; nothing else is granted there.
    pub reserved_for: Option<ReservedFor>,
}

/// The request that a node is kept for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservedFor {
    /// The session's handle.
    pub session: Arc<str>,
    /// The request's id.
    pub id: i32,
    /// The type of the request.
    pub kind: ResourceType,
    /// When the reservation was made.
    pub since: Millis,
    /// When the node serves everybody again, at the latest.
    pub until: Millis,
}

impl NodeView {
    /// The resources that are left.
    pub fn spare(&self) -> Amounts {
        self.capacity.minus(self.held)
    }

    /// Slots of the type that are free, whatever else speaks against the node; none where it does
    /// not serve the type.
    pub fn room(&self, kind: ResourceType) -> u64 {
        let SlotCounts { total, used } = self.slots[kind];
        self.apps[kind].as_ref().map_or(0, |_| total.saturating_sub(used))
    }

    /// Whether the node can be given more of the type now.
    pub fn is_usable(&self, kind: ResourceType) -> bool {
        self.is_open() && !self.blacklisted[kind] && self.room(kind) > 0
    }

    /// Whether the node can be given more of any type, whatever is left there.
    pub fn is_open(&self) -> bool {
        let admitted = self.allowed && !self.draining && !self.revoked;
        admitted && self.has_reserve && !self.skipped
    }
}

/// A node with the complaints about it. [`Engine::node_grants_slice`] returns its grants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeDetail {
    /// The node's entry in the list of nodes.
    pub node: NodeView,
    /// The faults that count towards a blacklisting.
    pub faults: PerType<NodeFaults>,
    /// The last complaints of sessions that were counted, the oldest first.
    pub complaints: Vec<Complaint>,
    /// The running sessions that ever had a grant on it.
    pub visitors: Vec<Visitor>,
}

/// A running session that had a grant on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Visitor {
    /// The session's id.
    pub session: Arc<str>,
    /// The session's user.
    pub user: Arc<str>,
    /// Where its job tracker says more of it.
    pub url: Option<Arc<str>>,
}

/// Faults that count towards a node's blacklisting for one type. Spec: cluster-manager/02 §5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeFaults {
    /// Sessions that reported too many failures.
    pub failures: u32,
    /// Sessions that could not connect to it often enough.
    pub failed_connections: u32,
    /// Since when it is blacklisted.
    pub blacklisted_since: Option<Millis>,
}

/// A grant on a node and its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeGrant {
    /// The session's handle.
    pub session: Arc<str>,
    /// The session's name.
    pub name: Arc<str>,
    /// The session's user.
    pub user: Arc<str>,
    /// The pool in which the session is scheduled.
    pub pool: PoolName,
    /// The id of the request.
    pub id: i32,
    /// The type of the slots.
    pub kind: ResourceType,
    /// Slots that it takes.
    pub slots: u32,
    /// Resources that it takes. Nothing while only slots are counted.
    pub takes: Amounts,
    /// When it was given.
    pub granted_at: Millis,
}

/// Whether the rack of a node's host has to be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RackWanted {
    /// The heartbeat will be refused.
    No,
    /// The node is known, in this rack.
    Known(Arc<str>),
    /// The node is new.
    Yes,
}

/// Slots of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlotCounts {
    /// All slots.
    pub total: u64,
    /// Granted slots.
    pub used: u64,
}

/// A pool, or a group when `pool` is absent, at a glance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolView {
    /// The group's name.
    pub group: Arc<str>,
    /// The pool in it.
    pub pool: Option<Arc<str>>,
    /// The names from an outermost group to this queue.
    pub path: Arc<str>,
    /// The group around a group; none for the outermost ones and for pools.
    pub parent: Option<Arc<str>>,
    /// The rules of a tree.
    pub rules: QueueRules,
    /// Sessions that wait for their turn in it, because it has enough.
    pub sessions_waiting: usize,
    /// Order of its sessions.
    pub mode: SchedulingMode,
    /// Whether its grants may be taken back.
    pub preemptable: bool,
    /// Whether one call may not ask for more than its maximum.
    pub request_max: bool,
    /// Its priority in the group.
    pub priority: i32,
    /// Its weight in the group.
    pub weight: f64,
    /// Whether the pools file names it.
    pub configured: bool,
    /// Running sessions.
    pub sessions: usize,
    /// Counts of requests.
    pub counts: PerType<TypeCounts>,
    /// Shares as last computed, in slots.
    pub share: PerType<f64>,
    /// Guaranteed slots.
    pub minimum: PerType<i32>,
    /// Slots at most.
    pub maximum: PerType<i32>,
    /// Its lack, as last checked; nothing for groups.
    pub lacks: PerType<Lack>,
    /// The resources that its grants take, where they are counted.
    pub holding: Holding,
    /// The resources that it is guaranteed, of all types together; none of those without a minimum.
    pub minimum_amounts: Amounts,
    /// The most of each resource; [`Amounts::MOST`] of those without a maximum.
    pub maximum_amounts: Amounts,
}

/// The shares that pools and groups are due of `used` slots, by their current requests. The engine
/// computes its own only while requests wait; these are the same at any time, but that no pool is due more
/// than it requests. `pools` must be in the order of [`Engine::pools`], whole groups together. Spec: cluster-manager/04 §9.1.
pub fn fill_in_shares(pools: &mut [PoolView], used: PerType<u64>) {
    let mut inside: BTreeMap<Option<Arc<str>>, Vec<usize>> = BTreeMap::new();
    for (place, view) in pools.iter().enumerate() {
        let around = match view.pool {
            Some(_) => Some(view.group.clone()),
            None => view.parent.clone(),
        };
        inside.entry(around).or_default().push(place);
    }
    for kind in ResourceType::ALL {
        let outermost = inside.get(&None).map(Vec::as_slice).unwrap_or_default();
        let claims: Vec<Claim> = outermost.iter().map(|place| pools[*place].claim(kind)).collect();
        let shares = shares::fair(used[kind] as f64, &claims);
        for (place, share) in outermost.iter().zip(shares) {
            share_inside(pools, &inside, kind, *place, share);
        }
    }
}

/// Notes the share of the queue at `place`, and shares that of a group among the queues in it.
fn share_inside(
    pools: &mut [PoolView],
    inside: &BTreeMap<Option<Arc<str>>, Vec<usize>>,
    kind: ResourceType,
    place: usize,
    share: f64,
) {
    let view = &mut pools[place];
    if view.pool.is_some() {
        view.share[kind] = share.max(0.0);
        return;
    }
    view.share[kind] = share;
    let (group, order) = (Some(view.group.clone()), view.rules.order);
    let members = inside.get(&group).map(Vec::as_slice).unwrap_or_default();
    let claims: Vec<Claim> = members
        .iter()
        .map(|place| pools[*place].claim(kind).ordered(order).within_demand())
        .collect();
    for (place, share) in members.iter().zip(shares::by_priority(share, &claims)) {
        share_inside(pools, inside, kind, *place, share);
    }
}

impl PoolView {
    /// Whether it is in a group within a group, or has rules of its own: then its path is shown.
    pub fn is_of_tree(&self) -> bool {
        let levels = self.path.split('.').count();
        self.rules != QueueRules::default() || levels > 1 + usize::from(self.pool.is_some())
    }

    /// Slots of its minimum that others use, or may use.
    pub fn lent(&self, kind: ResourceType) -> i64 {
        let unused = i64::from(self.minimum[kind]) - self.counts[kind].granted;
        if self.rules.lend { unused.max(0) } else { 0 }
    }

    /// Slots that it holds beyond its minimum.
    pub fn borrowed(&self, kind: ResourceType) -> i64 {
        (self.counts[kind].granted - i64::from(self.minimum[kind])).max(0)
    }

    /// Milliseconds for which the pool has been allowed to preempt, negative while it still has to
    /// wait, as in the original: also for a pool without pending requests. Spec: cluster-manager/08
    /// §4.2.
    pub fn starving_ms(&self, kind: ResourceType, now: Millis, scheduling: &Scheduling) -> i64 {
        let Lack { minimum_since, share_since } = self.lacks[kind];
        let lacking_ms = |since: Option<Millis>| since.map_or(0, |since| now.since(since));
        let minimum = lacking_ms(minimum_since) - scheduling.starving_time_for_minimum_ms;
        let share = lacking_ms(share_since) - scheduling.starving_time_for_share_ms;
        minimum.max(share)
    }

    /// Milliseconds for which the pool has been allowed to preempt, if it may and has pending requests.
    pub fn starved_ms(
        &self,
        kind: ResourceType,
        now: Millis,
        scheduling: &Scheduling,
    ) -> Option<i64> {
        let starving_ms = self.starving_ms(kind, now, scheduling);
        (starving_ms >= 0 && self.counts[kind].pending > 0).then_some(starving_ms)
    }

    fn claim(&self, kind: ResourceType) -> Claim {
        Claim {
            requested: self.counts[kind].requested,
            minimum: i64::from(self.minimum[kind]),
            maximum: i64::from(self.maximum[kind]),
            weight: self.weight,
            priority: i64::from(self.priority),
        }
    }
}

impl Engine {
    /// When this engine was first started.
    pub fn started(&self) -> Millis {
        self.started
    }

    /// The types that are scheduled.
    pub fn legal_types(&self) -> impl Iterator<Item = ResourceType> + '_ {
        ResourceType::ALL.into_iter().filter(|kind| self.legal[*kind])
    }

    /// All running sessions, in the order of their start. Refused in safe mode.
    pub fn running_sessions(&self, now: Millis) -> Result<Vec<RunningSession>, Refusal> {
        self.check_safe_mode()?;
        Ok(self.sessions_at(now))
    }

    /// As [`Self::running_sessions`], in safe mode as well.
    pub fn sessions_at(&self, now: Millis) -> Vec<RunningSession> {
        let numbers = self.sessions.in_order_of_start();
        numbers.into_iter().map(|session| self.running_session(session, now)).collect()
    }

    /// A session's description of itself. Refused in safe mode and for unknown handles.
    pub fn session_info(&self, handle: &str) -> Result<SessionInfo, Refusal> {
        self.check_safe_mode()?;
        match self.sessions.find(handle) {
            Some(session) => Ok(self.sessions[session].info.clone()),
            None => Err(Refusal::UnknownSession(handle.into())),
        }
    }

    /// Whether a call of this session would be accepted now.
    pub fn check_session(&self, handle: &str) -> Result<(), Refusal> {
        self.check_safe_mode()?;
        let running = self.sessions.find(handle).is_some();
        if running { Ok(()) } else { Err(Refusal::UnknownSession(handle.into())) }
    }

    /// Whether there is a running session with this handle.
    pub fn is_running(&self, handle: &str) -> bool {
        self.sessions.find(handle).is_some()
    }

    /// Whether a node has this name.
    pub fn knows_node(&self, name: &str) -> bool {
        self.nodes.find(name).is_some()
    }

    /// Whether the rack of a node's host has to be known for its heartbeat.
    pub fn rack_wanted(&self, node: &Arc<str>, host: &Arc<str>) -> RackWanted {
        match self.nodes.find(node) {
            Some(node) => RackWanted::Known(self.topology.rack_path(self.nodes[node].rack).clone()),
            None if self.safe_mode || !allowed(&self.hosts, host) => RackWanted::No,
            None => RackWanted::Yes,
        }
    }

    /// A running session.
    pub fn session_at(&self, handle: &str, now: Millis) -> Option<RunningSession> {
        self.sessions.find(handle).map(|session| self.running_session(session, now))
    }

    /// The grants of a running session, by request id.
    pub fn grants(&self, handle: &str) -> Option<Vec<GrantView>> {
        let session = self.sessions.find(handle)?;
        let requests = self.sessions[session].requests.iter();
        let mut grants: Vec<GrantView> = requests
            .filter_map(|(req, _)| self.grant_of(session, req))
            .map(|grant| GrantView { grant })
            .collect();
        grants.sort_by_key(|view| view.grant.id);
        Some(grants)
    }

    /// Ended sessions that are remembered, the oldest first.
    pub fn retired_sessions(&self) -> &VecDeque<RetiredSession> {
        self.sessions.retired()
    }

    /// The pool that a job of this input size would run in, and its whitelist.
    /// Refused in safe mode and, with configured pools only, for other pools.
    /// Spec: cluster-manager/02 §3.16.
    pub fn actual_pool(
        &self,
        asked: &PoolName,
        input_size_bytes: i64,
    ) -> Result<(PoolName, Arc<str>), Refusal> {
        self.check_safe_mode()?;
        let mut pool = self.redirect(asked);
        if let Some(redirect) = self.settings.pools.size_redirects.get(&pool)
            && input_size_bytes >= redirect.input_size_limit_bytes
        {
            pool = redirect.destination.clone();
        }
        self.check_pool(Some(&pool)).map_err(Refusal::Pool)?;
        let settings = self.settings.pools.pools.get(&pool);
        let whitelist = settings.and_then(|pool| pool.whitelist.clone()).unwrap_or_default();
        Ok((pool, whitelist))
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> Vec<NodeView> {
        let mut views: Vec<NodeView> =
            self.nodes.iter().map(|(_, node)| self.node_view(node)).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }

    /// Nodes that are known.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Nodes that have missed too many heartbeats but have not expired.
    pub fn late_nodes(&self) -> usize {
        self.nodes.late_count()
    }

    /// The oldest last heartbeat of any node.
    pub fn oldest_heartbeat(&self) -> Option<Millis> {
        self.nodes.most_silent().map(|(_, heard)| heard)
    }

    /// Sessions that run.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Slots of the type on the nodes that serve it.
    pub fn slots(&self, kind: ResourceType) -> SlotCounts {
        SlotCounts { total: self.nodes.offered(kind), used: self.nodes.allocated(kind) }
    }

    /// Slots of the type by the CPU counts of all nodes, including those that do not serve it, as
    /// the Java cluster manager counts them.
    pub fn slots_of_all_nodes(&self, kind: ResourceType) -> SlotCounts {
        SlotCounts { total: self.nodes.capacity(kind), used: self.nodes.allocated(kind) }
    }

    /// A node with the complaints about it.
    pub fn node_detail(&self, name: &str) -> Option<NodeDetail> {
        let node = &self.nodes[self.nodes.find(name)?];
        let faults = ResourceType::ALL.map(|kind| {
            let count = node.faults[kind];
            let trouble = node.trouble.as_ref();
            NodeFaults {
                failures: count.failures,
                failed_connections: count.failed_connections,
                blacklisted_since: trouble.and_then(|trouble| trouble.blacklisted_since[kind]),
            }
        });
        let complaints = node.trouble.iter().flat_map(|trouble| &trouble.complaints);
        let visitors = node.sessions.iter().map(|(session, _)| {
            let entry = &self.sessions[session];
            Visitor {
                session: entry.handle.clone(),
                user: entry.info.user_id.clone(),
                url: entry.info.url.clone(),
            }
        });
        Some(NodeDetail {
            node: self.node_view(node),
            faults: PerType(faults),
            complaints: complaints.cloned().collect(),
            visitors: visitors.collect(),
        })
    }

    /// All groups and pools by their paths: each group before the queues in it.
    pub fn pools(&self) -> Vec<PoolView> {
        let tree = &self.scheduler.tree;
        let groups = tree.groups().map(|(_, group)| PoolView {
            group: group.name.clone(),
            pool: None,
            path: group.path.clone(),
            parent: group.parent.map(|parent| tree.group(parent).name.clone()),
            rules: group.rules.clone(),
            sessions_waiting: group.crowd.sessions_waiting(),
            mode: self.settings.scheduling.default_mode,
            preemptable: true,
            request_max: false,
            priority: 0,
            weight: group.rules.weight,
            configured: self.settings.pools.groups.contains_key(&group.name),
            sessions: tree.sessions_in(group),
            counts: PerType(ResourceType::ALL.map(|kind| group.kinds[kind].tally.into())),
            share: PerType(ResourceType::ALL.map(|kind| group.kinds[kind].share)),
            minimum: group.kinds.map_ref(|state| as_limit(state.minimum)),
            maximum: group.kinds.map_ref(|state| as_limit(state.maximum)),
            lacks: PerType::default(),
            holding: self.holding(group.kinds.map_ref(|state| state.held)),
            minimum_amounts: group.quota.minimum,
            maximum_amounts: group.quota.maximum,
        });
        let pools = tree.pools().map(|(_, pool)| PoolView {
            group: pool.name.group.clone(),
            pool: Some(pool.name.pool.clone()),
            path: tree.pool_path(pool),
            parent: None,
            rules: pool.rules.clone(),
            sessions_waiting: pool.crowd.sessions_waiting(),
            mode: pool.mode,
            preemptable: pool.is_preemptable(),
            request_max: pool.settings.request_max,
            priority: pool.settings.priority,
            weight: pool.settings.weight,
            configured: pool.configured,
            sessions: pool.sessions.len(),
            counts: PerType(ResourceType::ALL.map(|kind| pool.kinds[kind].tally.into())),
            share: PerType(ResourceType::ALL.map(|kind| pool.kinds[kind].share)),
            minimum: pool.kinds.map_ref(|state| as_limit(state.minimum)),
            maximum: pool.kinds.map_ref(|state| as_limit(state.maximum)),
            lacks: PerType(ResourceType::ALL.map(|kind| self.lack(pool, kind))),
            holding: self.holding(pool.kinds.map_ref(|state| state.held)),
            minimum_amounts: pool.quota.minimum,
            maximum_amounts: pool.quota.maximum,
        });
        let mut views: Vec<PoolView> = groups.chain(pools).collect();
        views.sort_by(|a, b| a.path.split('.').cmp(b.path.split('.')));
        views
    }

    /// What grants of all types take together.
    fn holding(&self, held: PerType<Amounts>) -> Holding {
        let held = held.0.into_iter().fold(Amounts::ZERO, Amounts::plus);
        let share = held.dominant_share(&self.nodes.whole()) as f64 / (1_u64 << 32) as f64;
        Holding { held, dominant_share: share }
    }

    /// The request that a node is kept for.
    fn reservation_of(&self, node: &Node) -> Option<ReservedFor> {
        let mut all = self.scheduler.reservations.values().filter(|_| node.reserved);
        let reservation = all.find(|it| self.nodes[it.node].name == node.name)?;
        Some(ReservedFor {
            session: reservation.handle.clone(),
            id: reservation.id,
            kind: reservation.kind,
            since: reservation.since,
            until: self.reservation_end(reservation),
        })
    }

    fn check_safe_mode(&self) -> Result<(), Refusal> {
        if self.safe_mode { Err(Refusal::SafeMode) } else { Ok(()) }
    }

    pub(super) fn node_view(&self, node: &Node) -> NodeView {
        NodeView {
            name: node.name.clone(),
            address: node.address.clone(),
            rack: self.topology.rack_path(node.rack).clone(),
            total: node.total,
            free: node.free,
            last_heartbeat: node.last_heartbeat,
            late: node.late,
            skipped: node.is_skipped(&self.settings),
            slots: PerType(ResourceType::ALL.map(|kind| SlotCounts {
                total: u64::from(node.slots[kind]),
                used: u64::from(node.used[kind]),
            })),
            apps: node.apps.clone(),
            blacklisted: PerType(ResourceType::ALL.map(|kind| node.faults[kind].blacklisted)),
            allowed: node.allowed,
            draining: node.draining,
            revoked: node.revoked,
            has_reserve: node.has_reserve(&self.settings),
            sessions: node.sessions.len(),
            capacity: node.capacity,
            held: node.held,
            reserved_for: self.reservation_of(node),
        }
    }

    /// A grant as its node has it; `None` for a request that holds none.
    pub(super) fn node_grant(&self, session: SessionIdx, req: ReqIdx) -> Option<NodeGrant> {
        let entry = self.sessions.get(session)?;
        let request = entry.requests.get(req)?;
        let RequestState::Granted { at, .. } = request.state else { return None };
        Some(NodeGrant {
            session: entry.handle.clone(),
            name: entry.info.name.clone(),
            user: entry.info.user_id.clone(),
            pool: self.scheduler.tree[entry.pool].name.clone(),
            id: request.id,
            kind: request.kind,
            slots: request.need(),
            takes: entry.requests.demand(req),
            granted_at: at,
        })
    }

    pub(super) fn running_session(&self, session: SessionIdx, now: Millis) -> RunningSession {
        let entry = &self.sessions[session];
        RunningSession {
            handle: entry.handle.clone(),
            info: entry.info.clone(),
            priority: entry.priority(),
            deadline: entry.deadline,
            pool: entry.pool_name.clone(),
            scheduling_pool: self.scheduler.tree[entry.pool].name.clone(),
            started: entry.started,
            last_heartbeat: entry.last_heartbeat,
            counts: PerType(ResourceType::ALL.map(|kind| session_tally(entry, kind, now))),
            holding: self.holding(PerType(ResourceType::ALL.map(|kind| entry.demand(kind).held))),
            usages: ResourceType::ALL.map(|kind| entry.demand(kind).usages.clone()),
        }
    }
}

/// A limit in force as a number of a file.
fn as_limit(slots: i64) -> i32 {
    i32::try_from(slots).unwrap_or(UNLIMITED)
}

fn session_tally(session: &Session, kind: ResourceType, now: Millis) -> SessionTally {
    let demand = session.demand(kind);
    let (first_wait_ms, ungranted_ms) = match demand.first_wait {
        FirstWait::NotAsked => (None, None),
        FirstWait::Waiting => (None, Some(now.since(session.started))),
        FirstWait::After(ms) => (Some(ms), None),
    };
    SessionTally {
        now: demand.tally.into(),
        max_granted: demand.max_granted,
        fulfilled: demand.fulfilled,
        revoked: demand.revoked,
        first_wait_ms,
        ungranted_ms,
    }
}
