//! Converts the contents of a state file to the state.
//!
//! Spec: cluster-manager/07 §4 and §5. Files that the original writes but cannot read itself are
//! read. Inconsistencies are repaired if the intention is clear, and reported as an [`Oddity`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use thiserror::Error;

use super::layout::{self, Entries};
use super::{SavedState, Wrong};
use crate::translate;
use crate::undelivered::Undelivered;
use corona_engine::Notification;
use corona_engine::snapshot::{
    EngineState, FirstWait, NodeState, RequestInState, SessionState, Standing, Step, Visit,
};
use corona_model::types::{
    Address, ComputeSpecs, Grant, Millis, PerType, PoolName, ResourceRequest, ResourceType,
    SessionInfo, SessionStatus,
};

/// A document that was read.
pub(super) type Document =
    layout::Document<Entries<Arc<str>, layout::Node>, Entries<Arc<str>, layout::SavedSession>>;

/// Something in a file that the original would not have written, or could not have read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Oddity {
    #[error("session {0} has ended; it is left out")]
    EndedSession(Arc<str>),
    #[error("session {0} waits for request {1}, which the file does not describe; it is left out")]
    UnknownPending(Arc<str>, i32),
    #[error("session {0} waits for request {1}, which it has been granted; the grant counts")]
    PendingAndGranted(Arc<str>, i32),
    #[error("session {0} has a grant for request {1}, which it does not know; it is kept")]
    GrantWithoutRequest(Arc<str>, i32),
    #[error("node {0} holds a slot for request {2} of {1}, which has no such grant; it is free")]
    SlotWithoutGrant(Arc<str>, Arc<str>, i32),
    #[error("{0} is named as a node, but the file does not describe it; it is left out")]
    UnknownNode(Arc<str>),
    /// In the original's words.
    #[error("Unable to serialize SessionNotificationCtx for {0}")]
    UnknownQueue(Arc<str>),
}

/// The state in the document. `now` is the time used where files of older versions have none.
pub(super) fn state_of(
    document: Document,
    now: Millis,
) -> Result<(SavedState, Vec<Oddity>), Wrong> {
    let mut oddities = Vec::new();
    let layout::Document { start_time, node_manager, session_manager, session_notifier } = document;
    let nodes = Nodes::of(node_manager.name_to_node)?;
    let mut apps_by_grants = Vec::new();
    let mut sessions = Vec::new();
    let mut handles = HashSet::new();
    for (key, session) in session_manager.sessions.0 {
        let place = || format!("sessionManager.sessions[{key:?}]");
        let handle = same(&key, session.session_id.clone(), || place() + ".sessionId")?;
        if session.deleted || session.status != SessionStatus::Running {
            oddities.push(Oddity::EndedSession(handle));
            continue;
        }
        if !handles.insert(handle.clone()) {
            return Err(Wrong::new(place(), "appears twice"));
        }
        let reader = SessionReader { place: &place, handle, nodes: &nodes, now };
        sessions.push(reader.read(session, &mut apps_by_grants, &mut oddities)?);
    }
    // In the order of their start, as far as it is known; the original's order is none.
    sessions.sort_by_key(|session| session.started);
    slots_without_grant(&nodes, &sessions, &mut oddities);
    let node_maps = NodeMaps {
        visitors: lists(node_manager.hosts_to_sessions),
        apps: lists(node_manager.name_to_apps),
        by_grants: apps_by_grants,
    };
    let nodes = node_states(nodes, node_maps, &sessions, &mut oddities);
    let undelivered = undelivered(session_notifier, &handles, &mut oddities)?;
    let engine = EngineState {
        started: Millis(start_time),
        id_prefix: id_prefix(Millis(start_time))?,
        sessions_numbered: session_manager.session_counter,
        nodes,
        sessions,
    };
    Ok((SavedState { engine, undelivered }, oddities))
}

/// The prefix of session ids. Spec: cluster-manager/02 §3.1: local time.
pub(crate) fn id_prefix(started: Millis) -> Result<Arc<str>, Wrong> {
    let timestamp = Timestamp::from_millisecond(started.0)
        .map_err(|_| Wrong::new("startTime", format!("{} is not a time", started.0)))?;
    let local = timestamp.to_zoned(TimeZone::system());
    Ok(local.strftime("%Y%m%d%H%M").to_string().into())
}

/// The nodes of the file, in its order, and which requests hold their slots.
struct Nodes {
    entries: Vec<(Arc<str>, layout::NodeInfo)>,
    /// By session and request: the node's copy of the request.
    slots: HashMap<(Arc<str>, i32), (Arc<str>, layout::Request)>,
}

impl Nodes {
    fn of(nodes: Entries<Arc<str>, layout::Node>) -> Result<Nodes, Wrong> {
        let mut read = Nodes { entries: Vec::new(), slots: HashMap::new() };
        let mut names = HashSet::new();
        for (key, node) in nodes.0 {
            let place = || format!("nodeManager.nameToNode[{key:?}]");
            let info = node.cluster_node_info;
            same(&key, info.name.clone(), || place() + ".clusterNodeInfo.name")?;
            if !names.insert(key.clone()) {
                return Err(Wrong::new(place(), "appears twice"));
            }
            for (_, layout::NodeGrant { grant_id, grant }) in node.grants.0 {
                let holder = (grant_id.session_id, grant_id.request_id);
                read.slots.insert(holder, (key.clone(), grant.request));
            }
            read.entries.push((key, info));
        }
        Ok(read)
    }
}

/// The file's data about nodes that are stored outside of the nodes.
struct NodeMaps {
    visitors: HashMap<Arc<str>, Vec<Arc<str>>>,
    apps: HashMap<Arc<str>, layout::Apps>,
    /// Services in grants: node, type and address. A node without its own entry may have been
    /// blacklisted, which makes the original drop its addresses.
    by_grants: Vec<(Arc<str>, ResourceType, Arc<str>)>,
}

fn node_states(
    nodes: Nodes,
    mut maps: NodeMaps,
    sessions: &[SessionState],
    oddities: &mut Vec<Oddity>,
) -> Vec<NodeState> {
    let had_grants: HashMap<&Arc<str>, Vec<ResourceType>> =
        sessions.iter().map(|session| (&session.handle, granted_once(session))).collect();
    let mut states = Vec::with_capacity(nodes.entries.len());
    let mut place_of = HashMap::new();
    for (name, info) in nodes.entries {
        let visitors = maps.visitors.remove(&name).unwrap_or_default();
        let visits = visitors.into_iter().map(|handle| {
            let granted = had_grants.get(&handle).cloned().unwrap_or_default();
            Visit { handle, granted }
        });
        let apps = maps.apps.remove(&name).or(info.resource_infos);
        let total = specs(info.total);
        place_of.insert(name.clone(), states.len());
        states.push(NodeState {
            name,
            address: address(info.address),
            total,
            free: info.free.map_or(total, specs),
            apps: apps.map(per_type).unwrap_or_default(),
            visits: visits.collect(),
        });
    }
    for (name, kind, app) in maps.by_grants {
        if let Some(state) = place_of.get(&name).and_then(|place| states.get_mut(*place)) {
            state.apps[kind].get_or_insert(app);
        }
    }
    let unknown: std::collections::BTreeSet<_> =
        maps.visitors.into_keys().chain(maps.apps.into_keys()).collect();
    oddities.extend(unknown.into_iter().map(Oddity::UnknownNode));
    states
}

/// The file does not contain which types a session was granted on a node. Each type that it was
/// granted anywhere is assumed, so that it is rather notified once too often of a dead node.
fn granted_once(session: &SessionState) -> Vec<ResourceType> {
    let granted = |kind: &ResourceType| matches!(session.first_wait[*kind], FirstWait::After(_));
    ResourceType::ALL.into_iter().filter(granted).collect()
}

fn slots_without_grant(nodes: &Nodes, sessions: &[SessionState], oddities: &mut Vec<Oddity>) {
    let mut held = HashSet::new();
    for session in sessions {
        for known in &session.requests {
            if let Standing::Granted { node, .. } = &known.standing {
                held.insert((&session.handle, known.request.id, node));
            }
        }
    }
    let mut stray: Vec<_> = nodes
        .slots
        .iter()
        .filter(|((handle, id), (node, _))| !held.contains(&(handle, *id, node)))
        .map(|((handle, id), (node, _))| (node.clone(), handle.clone(), *id))
        .collect();
    stray.sort_unstable();
    let stray = stray.into_iter();
    oddities.extend(stray.map(|(node, handle, id)| Oddity::SlotWithoutGrant(node, handle, id)));
}

/// Reads one session.
struct SessionReader<'a, P> {
    /// Its place in the document.
    place: &'a P,
    handle: Arc<str>,
    nodes: &'a Nodes,
    now: Millis,
}

impl<P: Fn() -> String> SessionReader<'_, P> {
    fn read(
        &self,
        session: layout::SavedSession,
        apps: &mut Vec<(Arc<str>, ResourceType, Arc<str>)>,
        oddities: &mut Vec<Oddity>,
    ) -> Result<SessionState, Wrong> {
        let mut requests = self.requests(session.id_to_request)?;
        let mut held = BTreeMap::new();
        for (key, grant) in session.id_to_grant.0 {
            let id = self.same_id(key, grant.id, "idToGrant")?;
            requests.entry(id).or_insert_with(|| {
                oddities.push(Oddity::GrantWithoutRequest(self.handle.clone(), id));
                self.request_of_grant(id, &grant)
            });
            if let Some(app) = grant.app_info {
                apps.push((grant.node_name.clone(), grant.kind, app));
            }
            let at = Millis(grant.granted_time);
            let granted = Standing::Granted { node: grant.node_name, at };
            if held.insert(id, granted).is_some() {
                return Err(self.wrong("idToGrant", id, "appears twice"));
            }
        }
        let pending = self.pending(session.id_to_pending_requests, &requests, &held, oddities);
        let mut in_state = Vec::with_capacity(requests.len());
        let mut waiting: HashMap<i32, ResourceRequest> = HashMap::with_capacity(pending.len());
        let is_pending: HashSet<i32> = pending.iter().copied().collect();
        for (id, request) in requests {
            if is_pending.contains(&id) {
                waiting.insert(id, request);
            } else {
                let standing = held.remove(&id).unwrap_or(Standing::Lost);
                in_state.push(RequestInState { request, standing });
            }
        }
        let mut waiting: Vec<_> = pending.iter().filter_map(|id| waiting.remove(id)).collect();
        waiting.sort_by_key(|request| request.kind);
        in_state.extend(waiting.into_iter().map(|request| {
            let standing = Standing::Pending;
            RequestInState { request, standing }
        }));
        let info = info(session.info);
        let pool = session.pool_info.map(pool_name);
        Ok(SessionState {
            handle: self.handle.clone(),
            deadline: info.deadline.unwrap_or(0),
            pool: pool.unwrap_or_else(|| PoolName::new("default", &info.user_id)),
            info,
            started: Millis(session.start_time),
            first_wait: first_waits(session.type_to_first_wait),
            expected: step(session.expected_info),
            last_seen: step(session.last_heartbeat),
            last_sync: session.last_sync_time.map_or(self.now, Millis),
            requests: in_state,
        })
    }

    fn requests(
        &self,
        entries: Entries<i32, layout::KnownRequest>,
    ) -> Result<BTreeMap<i32, ResourceRequest>, Wrong> {
        let mut requests = BTreeMap::new();
        for (key, layout::KnownRequest { request }) in entries.0 {
            let id = self.same_id(key, request.id, "idToRequest")?;
            if requests.insert(id, resource_request(id, request)).is_some() {
                return Err(self.wrong("idToRequest", id, "appears twice"));
            }
        }
        Ok(requests)
    }

    /// Ids of requests that wait, in the order of the file.
    fn pending(
        &self,
        ids: Vec<i32>,
        requests: &BTreeMap<i32, ResourceRequest>,
        held: &BTreeMap<i32, Standing>,
        oddities: &mut Vec<Oddity>,
    ) -> Vec<i32> {
        let mut seen = HashSet::new();
        let mut pending = Vec::with_capacity(ids.len());
        for id in ids.into_iter().filter(|id| seen.insert(*id)) {
            if held.contains_key(&id) {
                oddities.push(Oddity::PendingAndGranted(self.handle.clone(), id));
            } else if requests.contains_key(&id) {
                pending.push(id);
            } else {
                oddities.push(Oddity::UnknownPending(self.handle.clone(), id));
            }
        }
        pending
    }

    /// The node's copy of the granted request, else the data in the grant.
    fn request_of_grant(&self, id: i32, grant: &layout::Grant) -> ResourceRequest {
        let copy = self.nodes.slots.get(&(self.handle.clone(), id)).map(|(_, request)| request);
        match copy.filter(|request| request.kind == grant.kind) {
            Some(request) => resource_request(id, request.clone()),
            None => ResourceRequest {
                id,
                hosts: Vec::new(),
                specs: None,
                kind: grant.kind,
                exclude_hosts: Vec::new(),
            },
        }
    }

    fn same_id(&self, key: i32, id: Option<i32>, map: &str) -> Result<i32, Wrong> {
        match id {
            Some(id) if id != key => Err(self.wrong(map, key, &format!("has the id {id}"))),
            _ => Ok(key),
        }
    }

    fn wrong(&self, map: &str, id: i32, what: &str) -> Wrong {
        Wrong::new(format!("{}.{map}[\"{id}\"]", (self.place)()), what)
    }
}

fn undelivered(
    notifier: layout::SessionNotifier,
    handles: &HashSet<Arc<str>>,
    oddities: &mut Vec<Oddity>,
) -> Result<Vec<Undelivered>, Wrong> {
    let deleted: HashSet<Arc<str>> = notifier.deleted_sessions.into_iter().collect();
    let mut queues = Vec::new();
    for (key, context) in notifier.sessions_to_ctx.0 {
        let place = || format!("sessionNotifier.sessionsToCtx[{key:?}]");
        let handle = same(&key, context.handle, || place() + ".handle")?;
        if context.pending_calls.is_empty() || deleted.contains(&handle) {
            continue;
        }
        if !handles.contains(&handle) {
            oddities.push(Oddity::UnknownQueue(handle));
            continue;
        }
        let to = Address { host: context.host, port: context.port };
        let calls = context.pending_calls.into_iter().enumerate();
        let calls = calls.map(|(number, pending)| {
            notification(pending)
                .map_err(|what| Wrong::new(format!("{}.pendingCalls[{number}]", place()), what))
        });
        queues.push(Undelivered { handle, to, calls: calls.collect::<Result<_, _>>()? });
    }
    Ok(queues)
}

fn notification(pending: layout::PendingCall) -> Result<Notification, String> {
    let layout::PendingCall { call_type, call } = pending;
    match &*call_type {
        translate::GRANT_RESOURCE => Ok(Notification::Granted(grants(call.granted)?)),
        translate::REVOKE_RESOURCE => Ok(Notification::Revoked(grants(call.revoked)?)),
        translate::PROCESS_DEAD_NODE => {
            Ok(Notification::DeadNode(call.node.ok_or("node is missing")?))
        }
        _ => Err(format!("Unknown Class: {call_type}")),
    }
}

fn grants(grants: Option<Vec<layout::Grant>>) -> Result<Vec<Grant>, String> {
    let grant = |grant: layout::Grant| -> Result<Grant, String> {
        Ok(Grant {
            id: grant.id.unwrap_or(0),
            node_name: grant.node_name,
            address: grant.address.map(address).ok_or("a grant has no address")?,
            granted_at: Millis(grant.granted_time),
            kind: grant.kind,
            app_info: grant.app_info.unwrap_or_default(),
        })
    };
    grants.unwrap_or_default().into_iter().map(grant).collect()
}

/// The name under which an item is stored, which it must contain itself if it has one.
fn same(
    key: &Arc<str>,
    name: Option<Arc<str>>,
    place: impl Fn() -> String,
) -> Result<Arc<str>, Wrong> {
    match name {
        Some(name) if name != *key => Err(Wrong::new(place(), format!("is {name:?}"))),
        _ => Ok(key.clone()),
    }
}

/// Of entries of one name the last one counts.
fn lists<V>(entries: Entries<Arc<str>, V>) -> HashMap<Arc<str>, V> {
    entries.0.into_iter().collect()
}

fn resource_request(id: i32, request: layout::Request) -> ResourceRequest {
    ResourceRequest {
        id,
        hosts: request.hosts.unwrap_or_default(),
        specs: request.specs.map(specs),
        kind: request.kind,
        exclude_hosts: request.exclude_hosts.unwrap_or_default(),
    }
}

fn info(info: layout::Info) -> SessionInfo {
    SessionInfo {
        address: address(info.address),
        name: info.name,
        user_id: info.user_id,
        group_ids: info.group_ids,
        pool: info.pool_info_strings.map(pool_name),
        priority: info.priority,
        no_preempt: info.no_preempt,
        url: info.url,
        deadline: info.deadline,
    }
}

fn first_waits(entries: Entries<ResourceType, i64>) -> PerType<FirstWait> {
    let mut waits = PerType::all(FirstWait::NotAsked);
    for (kind, ms) in entries.0 {
        waits[kind] = match ms {
            -1 => FirstWait::Waiting,
            ms => FirstWait::After(ms.max(0)),
        };
    }
    waits
}

fn step(args: Option<layout::HeartbeatArgs>) -> Step {
    let layout::HeartbeatArgs { request_id, grant_id, .. } = args.unwrap_or_default();
    Step { request_id, grant_id }
}

fn per_type(apps: layout::Apps) -> PerType<Option<Arc<str>>> {
    let mut by_type = PerType::default();
    for (kind, app) in apps.0 {
        by_type[kind] = Some(app);
    }
    by_type
}

fn address(address: layout::Address) -> Address {
    Address { host: address.host, port: address.port }
}

fn pool_name(pool: layout::Pool) -> PoolName {
    PoolName { group: pool.pool_group_name, pool: pool.pool_name }
}

fn specs(specs: layout::Specs) -> ComputeSpecs {
    ComputeSpecs {
        num_cpus: specs.num_cpus,
        network_mbps: specs.network_mbps,
        memory_mb: specs.memory_mb,
        disk_gb: specs.disk_gb,
    }
}
