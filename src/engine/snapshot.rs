//! The engine's state as plain data: taken from an engine, and made into one again.
//!
//! Spec: cluster-manager/07. The data contain only state that must survive a restart and cannot be
//! derived: the holder of a slot is only in the session's request; counts and indexes are rebuilt.
//! It knows no file and no format.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::index::{HostIdx, ReqIdx, SessionIdx};
use super::input::Asked;
use super::node_calls::allowed;
use super::nodes::Node;
use super::requests::{Request, RequestState};
use super::session_calls::{default_pool, rack_in, scheduling_pool_name};
pub use super::sessions::{FirstWait, Step};
use super::sessions::{Session, Tally};
use super::settings::{Hosts, Settings};
use super::types::{
    Address, ComputeSpecs, Millis, PerType, PoolName, ResourceRequest, ResourceType, SessionInfo,
};
use super::{Engine, Start};

/// Everything of an engine that outlives a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineState {
    /// The first start. A recovery does not change it.
    pub started: Millis,
    /// The prefix of session ids.
    pub id_prefix: Arc<str>,
    /// The number of the last assigned session id.
    pub sessions_numbered: i64,
    /// All nodes.
    pub nodes: Vec<NodeState>,
    /// The running sessions, in the order of their start.
    pub sessions: Vec<SessionState>,
}

/// A node and the sessions that used it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeState {
    /// The node's name.
    pub name: Arc<str>,
    /// Where its task tracker listens.
    pub address: Address,
    /// The node's total resources.
    pub total: ComputeSpecs,
    /// The free resources that the node last reported.
    pub free: ComputeSpecs,
    /// For each type that it serves, where.
    pub apps: PerType<Option<Arc<str>>>,
    /// Running sessions that ever had a grant on it. An engine gives them in the order of their start.
    pub visits: Vec<Visit>,
}

/// A session on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    /// The session.
    pub handle: Arc<str>,
    /// The types for which it ever had a grant there.
    pub granted: Vec<ResourceType>,
}

/// A running session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionState {
    /// The session's id.
    pub handle: Arc<str>,
    /// The session's description of itself.
    pub info: SessionInfo,
    /// The deadline in force, 0 for none.
    pub deadline: i64,
    /// Its pool after redirects.
    pub pool: PoolName,
    /// Its start.
    pub started: Millis,
    /// How long it waited for its first grant of each type.
    pub first_wait: PerType<FirstWait>,
    /// The step expected of its next heartbeat.
    pub expected: Step,
    /// The step of its last heartbeat, if it was a different one.
    pub last_seen: Step,
    /// When it was last in step.
    pub last_sync: Millis,
    /// All requests that it has not released. Pending ones come last, type by type, each in the
    /// order of arrival; the others before them, by id.
    pub requests: Vec<RequestInState>,
}

/// A request and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestInState {
    /// The request, as the session made it.
    pub request: ResourceRequest,
    /// Its state.
    pub standing: Standing,
}

/// The state of a request. Spec: cluster-manager/05 §2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// It waits.
    Pending,
    /// It holds a slot.
    Granted {
        /// The name of the node.
        node: Arc<str>,
        /// Since when.
        at: Millis,
    },
    /// Its grant was taken back or died with its node. Counts as requested until it is released.
    Lost,
}

/// The inputs of a recovery besides settings and state.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// The current time: all nodes and sessions count as heard now.
    pub now: Millis,
    /// As [`Start::hash_seed`].
    pub hash_seed: u64,
    /// The contents of the host files.
    pub hosts: Hosts,
    /// Racks of those of [`EngineState::hosts`] that are not in the default rack; sorted by host.
    pub racks: Vec<(Arc<str>, Arc<str>)>,
}

/// An engine that continues from a state. It is in safe mode.
#[derive(Debug)]
pub struct Restored {
    /// The engine.
    pub engine: Engine,
    /// Inconsistencies of the state that were repaired.
    pub repairs: Vec<Repair>,
}

/// Something in a state that did not fit together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Repair {
    /// A grant on a node that is not in the state, or does not serve the type, or has too many
    /// grants to count. The request counts as lost.
    #[error("session {handle}: the grant of request {id} on node {node} is lost: {why}")]
    GrantLost {
        /// The session.
        handle: Arc<str>,
        /// The request.
        id: i32,
        /// The name of the node that the state says it was granted on.
        node: Arc<str>,
        /// The inconsistency.
        why: &'static str,
    },
    /// A node was used by a session that is not in the state.
    #[error("node {node} was used by {handle}, which is no session")]
    UnknownVisitor {
        /// The node's name.
        node: Arc<str>,
        /// The session.
        handle: Arc<str>,
    },
}

/// Why a state cannot be made into an engine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// Two nodes of one name.
    #[error("node {0} appears twice")]
    DuplicateNode(Arc<str>),
    /// Two sessions of one handle.
    #[error("session {0} appears twice")]
    DuplicateSession(Arc<str>),
    /// Two requests of one id in one session.
    #[error("session {handle}: request {id} appears twice")]
    DuplicateRequest {
        /// The session.
        handle: Arc<str>,
        /// The request.
        id: i32,
    },
    /// No session could be given an id.
    #[error("{0} sessions numbered, which is not from 0 to 2147483646")]
    SessionCounter(i64),
}

impl EngineState {
    /// The hosts of nodes and those that requests prefer, some more than once. Their racks are
    /// needed to restore the state.
    pub fn hosts(&self) -> impl Iterator<Item = &Arc<str>> {
        let of_nodes = self.nodes.iter().map(|node| &node.address.host);
        let requests = self.sessions.iter().flat_map(|session| &session.requests);
        let of_requests = requests.flat_map(|known| &known.request.hosts);
        of_nodes.chain(of_requests)
    }
}

impl Engine {
    /// All that outlives a restart. A node whose access was revoked has nothing to keep, and the form does not say why
    /// it is granted nothing.
    pub fn snapshot(&self) -> EngineState {
        let sessions = self.sessions.in_order_of_start();
        EngineState {
            started: self.started,
            id_prefix: self.id_prefix.clone(),
            sessions_numbered: self.sessions_numbered,
            nodes: self.node_states(|_| true),
            sessions: sessions.into_iter().map(|session| self.session_state(session)).collect(),
        }
    }

    /// The same for another cluster manager, which can be told of no drain: without drained nodes that are
    /// silent and that no running session has used. They were stopped, and slots there would be granted until
    /// they expire; one that lives is added by its next heartbeat.
    pub fn handover(&self) -> EngineState {
        let left = |node: &Node| node.draining && node.late && self.node_view(node).sessions == 0;
        EngineState { nodes: self.node_states(|node| !left(node)), ..self.snapshot() }
    }

    fn node_states(&self, stays: impl Fn(&Node) -> bool) -> Vec<NodeState> {
        let kept = self.nodes.iter().filter(|(_, node)| !node.revoked && stays(node));
        kept.map(|(_, node)| self.node_state(node)).collect()
    }

    /// An engine in safe mode that continues from `state`. Spec: cluster-manager/07 §5, except that
    /// lost requests stay counted (09, 3.11).
    ///
    /// # Errors
    /// If the state is inconsistent beyond repair. Repairs are reported.
    pub fn restore(
        settings: Settings,
        state: EngineState,
        recovery: Recovery,
    ) -> Result<Restored, RestoreError> {
        let EngineState { started, id_prefix, sessions_numbered, nodes, sessions } = state;
        // Numbers of session ids have 32 bits.
        if !(0..i64::from(i32::MAX)).contains(&sessions_numbered) {
            return Err(RestoreError::SessionCounter(sessions_numbered));
        }
        let Recovery { now, hash_seed, hosts, racks } = recovery;
        let mut engine = Engine::new(settings, Start { now, id_prefix, hash_seed });
        engine.started = started;
        engine.sessions_numbered = sessions_numbered;
        engine.safe_mode = true;
        engine.hosts = Arc::new(hosts);
        let mut repairs = Vec::new();
        for node in &nodes {
            engine.restore_node(node, &racks, now)?;
        }
        let mut restored = Vec::with_capacity(sessions.len());
        for state in sessions {
            restored.push(engine.restore_session(state, now)?);
        }
        for node in &nodes {
            engine.restore_visits(node, &mut repairs);
        }
        for (session, requests) in restored {
            engine.restore_requests(session, requests, &racks, now, &mut repairs)?;
        }
        for node in engine.nodes.numbers() {
            engine.nodes.reindex(node, &engine.settings);
        }
        Ok(Restored { engine, repairs })
    }

    fn node_state(&self, node: &Node) -> NodeState {
        let visits = node.sessions.iter().map(|(session, visit)| (&self.sessions[session], visit));
        let mut visits: Vec<_> = visits.collect();
        visits.sort_unstable_by_key(|(session, _)| session.serial);
        let visits = visits.into_iter().map(|(session, visit)| Visit {
            handle: session.handle.clone(),
            granted: ResourceType::ALL.into_iter().filter(|k| visit.granted.contains(*k)).collect(),
        });
        NodeState {
            name: node.name.clone(),
            address: node.address.clone(),
            total: node.total,
            free: node.free,
            apps: node.apps.clone(),
            visits: visits.collect(),
        }
    }

    fn session_state(&self, session: SessionIdx) -> SessionState {
        let entry = &self.sessions[session];
        let mut requests: Vec<_> = entry
            .requests
            .iter()
            .map(|(req, request)| match entry.requests.seq(req) {
                Some(seq) => ((true, request.kind.index(), seq), req, request),
                // Ids in the order of their numbers, negative ones first.
                None => ((false, 0, request.id.cast_unsigned() ^ (1 << 31)), req, request),
            })
            .collect();
        requests.sort_unstable_by_key(|(place, ..)| *place);
        let requests = requests
            .into_iter()
            .map(|(_, req, request)| self.request_state(request, entry.requests.specs(req)));
        let first_wait = |kind| match entry.demand(kind).first_wait {
            // A clock that was set back must not make it look like something else.
            FirstWait::After(ms) => FirstWait::After(ms.max(0)),
            other => other,
        };
        SessionState {
            handle: entry.handle.clone(),
            info: entry.info.clone(),
            deadline: entry.deadline,
            pool: entry.pool_name.clone(),
            started: entry.started,
            first_wait: PerType(ResourceType::ALL.map(first_wait)),
            expected: entry.expected,
            last_seen: entry.last_seen,
            last_sync: entry.last_sync,
            requests: requests.collect(),
        }
    }

    fn request_state(&self, request: &Request, specs: Option<ComputeSpecs>) -> RequestInState {
        let names = |hosts: &[HostIdx]| -> Vec<Arc<str>> {
            hosts.iter().map(|host| self.topology.host_name(*host).clone()).collect()
        };
        RequestInState {
            request: ResourceRequest {
                id: request.id,
                hosts: names(&request.hosts),
                specs,
                kind: request.kind,
                exclude_hosts: names(&request.excluded),
            },
            standing: match request.state {
                RequestState::Pending { .. } => Standing::Pending,
                RequestState::Granted { node, at, .. } => {
                    Standing::Granted { node: self.nodes[node].name.clone(), at }
                }
                RequestState::Lost => Standing::Lost,
            },
        }
    }

    /// Capacity comes from the current partitioning. A node whose CPU count it does not contain has
    /// no slots; the reply to its heartbeat says so.
    fn restore_node(
        &mut self,
        state: &NodeState,
        racks: &[(Arc<str>, Arc<str>)],
        now: Millis,
    ) -> Result<(), RestoreError> {
        let NodeState { name, address, total, free, apps, visits: _ } = state;
        if self.nodes.find(name).is_some() {
            return Err(RestoreError::DuplicateNode(name.clone()));
        }
        let host = self.topology.acquire(&address.host, || rack_in(racks, &address.host));
        let rack = self.topology.rack_of(host);
        let node = self.nodes.insert(name.clone(), address.clone(), host, rack, now);
        let slots = self.settings.partitioning.slots(total.num_cpus);
        self.nodes.set_slots(node, slots.unwrap_or(PerType::all(0)));
        let entry = &mut self.nodes[node];
        entry.total = *total;
        entry.free = *free;
        entry.allowed = allowed(&self.hosts, &address.host);
        for kind in ResourceType::ALL {
            self.nodes.set_app(node, kind, apps[kind].clone());
        }
        Ok(())
    }

    fn restore_session(
        &mut self,
        state: SessionState,
        now: Millis,
    ) -> Result<(SessionIdx, Vec<RequestInState>), RestoreError> {
        let SessionState { handle, info, deadline, pool: pool_name, started, .. } = state;
        if self.sessions.find(&handle).is_some() {
            return Err(RestoreError::DuplicateSession(handle));
        }
        let name = scheduling_pool_name(&pool_name, &info.user_id);
        let name = name.unwrap_or_else(|_illegal| default_pool());
        let pool = self.scheduler.tree.acquire_pool(&name, &self.settings);
        let session = self.sessions.insert(handle, info, pool_name, pool, now);
        self.join_pool(session);
        let entry = &mut self.sessions[session];
        entry.deadline = deadline;
        entry.started = started;
        entry.expected = state.expected;
        entry.last_seen = state.last_seen;
        entry.last_sync = state.last_sync;
        for kind in ResourceType::ALL {
            entry.demand_mut(kind).first_wait = state.first_wait[kind];
        }
        Ok((session, state.requests))
    }

    fn restore_visits(&mut self, state: &NodeState, repairs: &mut Vec<Repair>) {
        let Some(node) = self.nodes.find(&state.name) else { return };
        for Visit { handle, granted } in &state.visits {
            let Some(session) = self.sessions.find(handle) else {
                let (node, handle) = (state.name.clone(), handle.clone());
                repairs.push(Repair::UnknownVisitor { node, handle });
                continue;
            };
            self.sessions[session].nodes.insert(node);
            let visit = self.nodes[node].sessions.enter(session);
            granted.iter().for_each(|kind| visit.granted.insert(*kind));
        }
    }

    fn restore_requests(
        &mut self,
        session: SessionIdx,
        requests: Vec<RequestInState>,
        racks: &[(Arc<str>, Arc<str>)],
        now: Millis,
        repairs: &mut Vec<Repair>,
    ) -> Result<(), RestoreError> {
        // Their waits start again.
        let asked = Asked { at: now, input: self.inputs };
        let mut changes = PerType::all(Tally::default());
        for RequestInState { request, standing } in requests {
            let (id, kind) = (request.id, request.kind);
            if self.sessions[session].requests.find(id).is_some() {
                let handle = self.sessions[session].handle.clone();
                return Err(RestoreError::DuplicateRequest { handle, id });
            }
            let req = self.insert_request(session, request, asked, racks);
            let change = &mut changes[kind];
            change.requested += 1;
            match standing {
                Standing::Pending => {
                    let Session { requests, demand, .. } = &mut self.sessions[session];
                    demand[kind].pending.push(requests, &self.topology, req);
                    change.pending += 1;
                }
                Standing::Granted { node, at } => match self.restore_grant(session, req, &node, at)
                {
                    Ok(()) => {
                        change.granted += 1;
                        change.slots += i64::from(self.sessions[session].requests[req].need());
                    }
                    Err(why) => {
                        let handle = self.sessions[session].handle.clone();
                        repairs.push(Repair::GrantLost { handle, id, node, why });
                    }
                },
                Standing::Lost => {}
            }
        }
        for kind in ResourceType::ALL {
            if changes[kind] != Tally::default() {
                self.settle(session, kind, changes[kind], now);
            }
        }
        Ok(())
    }

    /// Gives a request its slot back, even where the node has fewer slots today. Returns the reason
    /// if that is impossible.
    fn restore_grant(
        &mut self,
        session: SessionIdx,
        req: ReqIdx,
        node: &str,
        at: Millis,
    ) -> Result<(), &'static str> {
        let request = &self.sessions[session].requests[req];
        let (kind, need) = (request.kind, request.need());
        let node = self.nodes.find(node).ok_or("there is no such node")?;
        let entry = &self.nodes[node];
        entry.apps[kind].as_ref().ok_or("the node does not serve the type")?;
        entry.used[kind].checked_add(need).ok_or("the node has too many grants")?;
        self.assign(session, req, node, at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::{NodeReport, SessionPriority, SessionStatus};
    use crate::{Effect, Input, NodeUsageReport, Notification, SessionView};

    fn settings() -> Settings {
        let mut settings = Settings::default();
        settings.partitioning.0.insert(1, ResourceType::ALL.map(|kind| (kind, 1)).into());
        settings
            .partitioning
            .0
            .insert(8, [(ResourceType::Map, 6), (ResourceType::Reduce, 2)].into());
        settings.scheduling.node_locality_wait_ms = PerType::all(500);
        settings.scheduling.rack_locality_wait_ms = PerType::all(500);
        settings.restart_interval_ms = 700;
        settings.node_expiry_ms = 20_000;
        settings.session_expiry_ms = 30_000;
        settings
    }

    fn new_engine() -> Engine {
        let start = Start { now: Millis(1_000), id_prefix: "2026".into(), hash_seed: 7 };
        Engine::new(settings(), start)
    }

    fn recovery(now: i64) -> Recovery {
        let racks = (0..4).map(|host| (format!("h{host}").into(), format!("/r{host}").into()));
        let racks = racks.collect();
        Recovery { now: Millis(now), hash_seed: 8, hosts: Hosts::default(), racks }
    }

    fn restore(state: EngineState, now: i64) -> Restored {
        Engine::restore(settings(), state, recovery(now)).unwrap()
    }

    fn node(number: u8, host: u8, apps: u8, cpus: i16) -> Input {
        let app =
            |kind: u8| (apps & (1 << kind) != 0).then(|| Arc::from(format!("app:{}", apps / 8)));
        Input::HeartbeatNode {
            report: NodeReport {
                name: format!("n{number}").into(),
                address: Address { host: format!("h{host}").into(), port: 5000 },
                total: ComputeSpecs { num_cpus: cpus, ..ComputeSpecs::default() },
                free: None,
                apps: PerType([app(0), app(1), app(2)]),
            },
            rack: Some(format!("/r{host}").into()),
        }
    }

    fn info(number: u8) -> SessionInfo {
        // Legal, without a name of its own, and illegal.
        let pools = [("g", "p"), ("g", ""), ("G", "Upper"), ("other", "p")];
        let (group, pool) = pools[usize::from(number) % pools.len()];
        SessionInfo {
            address: Address { host: "driver".into(), port: i32::from(number) },
            name: format!("name{number}").into(),
            user_id: "u".into(),
            group_ids: None,
            pool: (number % 5 != 4).then(|| PoolName::new(group, pool)),
            priority: SessionPriority::from_number(i32::from(number) % 7),
            no_preempt: number.is_multiple_of(2).then_some(number.is_multiple_of(4)),
            url: None,
            deadline: number.is_multiple_of(3).then_some(i64::from(number)),
        }
    }

    fn requests(first: i32, number: u8, shape: u8) -> Vec<ResourceRequest> {
        let hosts = |bits: u8| -> Vec<Arc<str>> {
            (0..3).filter(|host| bits & (1 << host) != 0).map(|h| format!("h{h}").into()).collect()
        };
        (0..i32::from(number % 6))
            .map(|place| {
                let cpus = i16::from(shape % 3);
                ResourceRequest {
                    id: first - place,
                    hosts: hosts(shape / 3),
                    specs: (cpus > 0).then_some(ComputeSpecs {
                        num_cpus: cpus,
                        memory_mb: Some(9),
                        ..ComputeSpecs::default()
                    }),
                    kind: ResourceType::ALL[(usize::from(shape) + place as usize) % 3],
                    exclude_hosts: hosts(!(shape / 3) & (shape / 24)),
                }
            })
            .collect()
    }

    /// One step of a random life: four numbers that choose an input.
    type Turn = (u8, u8, u8, u8);

    fn handle(number: u8) -> Arc<str> {
        format!("2026.{}", number % 6).into()
    }

    fn input((what, a, b, c): Turn) -> Input {
        match what % 14 {
            0..=2 => node(a % 5, b % 4, c % 16, if c % 4 == 0 { 8 } else { 2 }),
            3 => Input::NextSessionId,
            4 | 5 => Input::StartSession { handle: handle(a), info: info(b) },
            6 | 7 => {
                let requests = requests(i32::from(b) - 60, c, b ^ c);
                Input::RequestResources { handle: handle(a), requests, racks: recovery(0).racks }
            }
            8 => Input::ReleaseResources {
                handle: handle(a),
                ids: (0..i32::from(c)).map(|id| i32::from(b) - 60 - id).collect(),
            },
            9 if c % 3 == 0 => {
                Input::EndSession { handle: handle(a), status: SessionStatus::Successful }
            }
            9 => Input::UpdateSession { handle: handle(a), info: info(b) },
            10 => Input::HeartbeatSession {
                handle: handle(a),
                view: (c % 8 != 0).then_some(SessionView {
                    request_id: i32::from(b) - 60,
                    grant_id: i32::from(c),
                    usages: PerType::default(),
                }),
            },
            11 => Input::NodeFeedback {
                handle: handle(a),
                kinds: ResourceType::ALL.to_vec(),
                reports: vec![NodeUsageReport {
                    node_name: format!("n{}", b % 5).into(),
                    failed: 99,
                    failed_connections: 99,
                }],
            },
            12 if c % 16 == 0 => Input::RestartNodes { force: false, batch_size: 2 },
            12 => Input::Tick,
            _ => Input::Pass,
        }
    }

    fn live(engine: &mut Engine, turns: &[Turn], from: i64) -> i64 {
        let mut now = from;
        for turn in turns {
            now += i64::from(turn.3) * 10;
            // Refusals are part of life.
            let _ = engine.apply(Millis(now), input(*turn));
        }
        now
    }

    fn finish(engine: &mut Engine, now: i64) -> Vec<Notification> {
        let mut told = Vec::new();
        while engine.wants_pass() {
            for effect in engine.apply(Millis(now), Input::Pass).effects {
                if let Effect::Notify { notification, .. } = effect {
                    told.push(notification);
                }
            }
        }
        told
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_restored_engine_has_the_same_state_and_books(
            turns in proptest::collection::vec(any::<Turn>(), 0..120),
            more in proptest::collection::vec(any::<Turn>(), 0..40),
        ) {
            let mut engine = new_engine();
            let now = live(&mut engine, &turns, 1_000);
            let state = engine.snapshot();
            let Restored { engine: mut restored, repairs } = restore(state.clone(), now);
            prop_assert_eq!(repairs, vec![]);
            prop_assert_eq!(restored.snapshot(), state.clone());
            prop_assert_eq!(restored.audit(), Ok(()));
            prop_assert_eq!(counts(&restored, now), counts(&engine, now));

            // The restored engine keeps working, and returned slots are free again.
            restored.apply(Millis(now), Input::SetSafeMode { on: false }).reply.unwrap();
            let now = live(&mut restored, &more, now);
            finish(&mut restored, now);
            prop_assert_eq!(restored.audit(), Ok(()));
            let again = restore(restored.snapshot(), now);
            prop_assert_eq!(counts(&again.engine, now), counts(&restored, now));
            for session in restored.snapshot().sessions {
                let end = Input::KillSession { handle: session.handle };
                restored.apply(Millis(now), end).reply.unwrap();
            }
            for kind in ResourceType::ALL {
                prop_assert_eq!(restored.slots(kind).used, 0);
            }
            prop_assert!(restored.pools().is_empty());
        }

        #[test]
        fn no_state_makes_it_panic(state in hostile_state(), turns in proptest::collection::vec(any::<Turn>(), 0..40)) {
            if let Ok(Restored { mut engine, .. }) =
                Engine::restore(settings(), state, recovery(5_000))
            {
                prop_assert!(engine.safe_mode());
                prop_assert_eq!(engine.audit(), Ok(()));
                engine.apply(Millis(5_000), Input::SetSafeMode { on: false }).reply.unwrap();
                let now = live(&mut engine, &turns, 5_000);
                finish(&mut engine, now);
                prop_assert_eq!(engine.audit(), Ok(()));
                let again = restore(engine.snapshot(), now);
                prop_assert_eq!(again.repairs, vec![]);
            }
        }
    }

    /// The counts of sessions, pools and nodes, as seen from outside.
    fn counts(engine: &Engine, now: i64) -> impl PartialEq + std::fmt::Debug + use<> {
        let sessions = engine.sessions_at(Millis(now)).into_iter().map(|session| {
            let counts = ResourceType::ALL.map(|kind| session.counts[kind].now);
            (session.handle, session.scheduling_pool, session.started, session.deadline, counts)
        });
        let pools = engine.pools().into_iter().map(|pool| (pool.group, pool.pool, pool.counts));
        let nodes = engine.nodes().into_iter().map(|node| (node.name, node.rack, node.slots));
        let slots = ResourceType::ALL.map(|kind| engine.slots(kind));
        let lists: (Vec<_>, Vec<_>, Vec<_>) =
            (sessions.collect(), pools.collect(), nodes.collect());
        (lists, slots)
    }

    /// Arbitrary unchecked states, made of few names so that they collide.
    fn hostile_state() -> impl Strategy<Value = EngineState> {
        let name = || "[a-c]".prop_map(Arc::<str>::from);
        let number = || prop_oneof![Just(i64::MIN), Just(-1), Just(0), Just(9), Just(i64::MAX)];
        let kind = || (0..3_i32).prop_map(|kind| ResourceType::from_number(kind).unwrap());
        let specs = || {
            prop_oneof![Just(i16::MIN), Just(0), Just(1), Just(i16::MAX)]
                .prop_map(|num_cpus| ComputeSpecs { num_cpus, ..ComputeSpecs::default() })
        };
        let visit = (name(), proptest::collection::vec(kind(), 0..3));
        let node = (name(), specs(), any::<[bool; 3]>(), proptest::collection::vec(visit, 0..3));
        let node = node.prop_map(|(name, specs, apps, visits)| NodeState {
            address: Address { host: name.clone(), port: -1 },
            name,
            total: specs,
            free: specs,
            apps: PerType(apps.map(|app| app.then(|| "app".into()))),
            visits: visits.into_iter().map(|(handle, granted)| Visit { handle, granted }).collect(),
        });
        let standing = prop_oneof![
            Just(Standing::Pending),
            Just(Standing::Lost),
            (name(), number()).prop_map(|(node, at)| Standing::Granted { node, at: Millis(at) }),
        ];
        let request = (0..6_i32, kind(), proptest::option::of(specs()), name(), standing);
        let request = request.prop_map(|(id, kind, specs, host, standing)| RequestInState {
            request: ResourceRequest {
                id,
                hosts: vec![host.clone()],
                specs,
                kind,
                exclude_hosts: vec![host],
            },
            standing,
        });
        let wait = prop_oneof![
            Just(FirstWait::NotAsked),
            Just(FirstWait::Waiting),
            number().prop_map(FirstWait::After)
        ];
        let requests = proptest::collection::vec(request, 0..5);
        let session = (name(), any::<u8>(), number(), number(), requests, wait);
        let session =
            session.prop_map(|(handle, number, deadline, at, requests, wait)| SessionState {
                handle,
                info: info(number),
                deadline,
                pool: PoolName::new("Illegal", ""),
                started: Millis(at),
                first_wait: PerType::all(wait),
                expected: Step { request_id: i32::MIN, grant_id: i32::MAX },
                last_seen: Step::default(),
                last_sync: Millis(at),
                requests,
            });
        let nodes = proptest::collection::vec(node, 0..4);
        let sessions = proptest::collection::vec(session, 0..4);
        (number(), number(), nodes, sessions).prop_map(|(started, numbered, nodes, sessions)| {
            EngineState {
                started: Millis(started),
                id_prefix: "2026".into(),
                sessions_numbered: numbered,
                nodes,
                sessions,
            }
        })
    }

    fn request(id: i32, kind: ResourceType) -> ResourceRequest {
        ResourceRequest { id, hosts: vec![], specs: None, kind, exclude_hosts: vec![] }
    }

    /// A node of 2 CPUs; a session with requests 1 and 2 granted, 4 and 3 waiting, 5 lost.
    fn small_state() -> EngineState {
        use ResourceType::Map;
        let granted = || Standing::Granted { node: "n".into(), at: Millis(3) };
        let known = |id, standing| RequestInState { request: request(id, Map), standing };
        let specs = ComputeSpecs { num_cpus: 2, ..ComputeSpecs::default() };
        EngineState {
            started: Millis(1),
            id_prefix: "2026".into(),
            sessions_numbered: 7,
            nodes: vec![NodeState {
                name: "n".into(),
                address: Address { host: "h1".into(), port: 1 },
                total: specs,
                free: specs,
                apps: PerType([Some("app".into()), None, None]),
                visits: vec![Visit { handle: "2026.7".into(), granted: vec![Map] }],
            }],
            sessions: vec![SessionState {
                handle: "2026.7".into(),
                info: info(0),
                deadline: 5,
                pool: PoolName::new("stored", "pool"),
                started: Millis(2),
                first_wait: PerType([
                    FirstWait::After(1),
                    FirstWait::NotAsked,
                    FirstWait::NotAsked,
                ]),
                expected: Step { request_id: 5, grant_id: 2 },
                last_seen: Step::default(),
                last_sync: Millis(4),
                requests: vec![
                    known(1, granted()),
                    known(2, granted()),
                    known(5, Standing::Lost),
                    known(4, Standing::Pending),
                    known(3, Standing::Pending),
                ],
            }],
        }
    }

    #[test]
    fn an_engine_goes_on_where_another_stopped() {
        let Restored { mut engine, repairs } = restore(small_state(), 1_000_000);
        assert_eq!(repairs, []);
        assert!(engine.safe_mode());
        let session = engine.session_at("2026.7", Millis(1_000_000)).unwrap();
        let map = session.counts[ResourceType::Map];
        let now = (map.now.requested, map.now.pending, map.now.granted);
        assert_eq!((now, map.fulfilled, map.max_granted), ((5, 2, 2), 2, 2), "lost ones count");
        // The pool is the stored one, whatever today's configuration is.
        assert_eq!(session.scheduling_pool, PoolName::new("stored", "pool"));
        assert_eq!(session.last_heartbeat, Millis(1_000_000));
        assert_eq!(&*engine.nodes()[0].rack, "/r1");

        let now = Millis(1_000_001);
        engine.apply(now, Input::SetSafeMode { on: false }).reply.unwrap();
        let next = engine.apply(now, Input::NextSessionId).reply.unwrap();
        assert_eq!(next, crate::Reply::SessionId("2026.8".into()));
        assert_eq!(finish(&mut engine, now.0), [], "the node is full");
        for (released, expected) in [(1, 4), (2, 3)] {
            let release = Input::ReleaseResources { handle: "2026.7".into(), ids: vec![released] };
            engine.apply(now, release).reply.unwrap();
            let told = finish(&mut engine, now.0);
            let [Notification::Granted(grants)] = &told[..] else { panic!("{told:?}") };
            let ids: Vec<i32> = grants.iter().map(|grant| grant.id).collect();
            assert_eq!(ids, [expected], "in the order in which they waited");
        }
    }

    #[test]
    fn contradictions_are_repaired_and_reported() {
        let node_gone = "session 2026.7: the grant of request 1 on node n is lost: there is no such \
                         node";
        type Damage = fn(&mut EngineState);
        let cases: [(&str, Damage); 4] = [
            (node_gone, |state| state.nodes.clear()),
            ("does not serve the type", |state| state.nodes[0].apps = PerType::default()),
            ("has too many grants", |state| {
                let mut huge = state.sessions[0].requests[0].clone();
                huge.request.specs =
                    Some(ComputeSpecs { num_cpus: i16::MAX, ..ComputeSpecs::default() });
                for id in 100..(1 << 17) + 200 {
                    huge.request.id = id;
                    state.sessions[0].requests.push(huge.clone());
                }
            }),
            ("node n was used by ghost, which is no session", |state| {
                state.nodes[0].visits.push(Visit { handle: "ghost".into(), granted: vec![] });
            }),
        ];
        for (expected, damage) in cases {
            let mut state = small_state();
            damage(&mut state);
            let restored = restore(state, 10);
            let found = restored.repairs.first().unwrap().to_string();
            assert!(found.contains(expected), "expected {expected:?}, found {found:?}");
            let again = restore(restored.engine.snapshot(), 10);
            assert_eq!(again.repairs, [], "{expected}");
            assert_eq!(again.engine.audit(), Ok(()), "{expected}");
            assert_eq!(again.engine.session_count(), 1);
        }
    }

    #[test]
    fn a_grant_without_its_node_becomes_a_lost_request() {
        let mut state = small_state();
        state.nodes.clear();
        let engine = restore(state, 10).engine;
        let counts = engine.session_at("2026.7", Millis(10)).unwrap().counts[ResourceType::Map].now;
        assert_eq!((counts.requested, counts.pending, counts.granted), (5, 2, 0));
    }

    #[test]
    fn a_state_that_contradicts_itself_is_refused() {
        type Damage = fn(&mut EngineState);
        let cases: [(RestoreError, Damage); 5] = [
            (RestoreError::DuplicateNode("n".into()), |state| {
                state.nodes.push(state.nodes[0].clone());
            }),
            (RestoreError::DuplicateSession("2026.7".into()), |state| {
                state.sessions.push(state.sessions[0].clone());
            }),
            (RestoreError::DuplicateRequest { handle: "2026.7".into(), id: 4 }, |state| {
                let again = state.sessions[0].requests[3].clone();
                state.sessions[0].requests.push(again);
            }),
            (RestoreError::SessionCounter(-1), |state| state.sessions_numbered = -1),
            (RestoreError::SessionCounter(i64::MAX), |state| state.sessions_numbered = i64::MAX),
        ];
        for (expected, damage) in cases {
            let mut state = small_state();
            damage(&mut state);
            assert_eq!(Engine::restore(settings(), state, recovery(10)).unwrap_err(), expected);
        }
    }

    #[test]
    fn capacity_and_hosts_are_those_of_today() {
        let mut today = settings();
        today.partitioning.0.insert(2, [(ResourceType::Map, 1)].into());
        let mut without_h1 = recovery(10);
        without_h1.hosts.exclude.insert("h1".into());
        let engine = Engine::restore(today, small_state(), without_h1).unwrap().engine;
        let node = &engine.nodes()[0];
        let slots = node.slots[ResourceType::Map];
        assert_eq!((slots.total, slots.used, node.allowed), (1, 2, false));
        // Without an entry for the node's CPUs it has no slots, but its grants stay.
        let none = Settings::default();
        let engine = Engine::restore(none, small_state(), recovery(10)).unwrap().engine;
        let slots = engine.nodes()[0].slots[ResourceType::Map];
        assert_eq!((slots.total, slots.used), (0, 2));
    }
}
