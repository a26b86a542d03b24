//! The calls of the recorded clients so far, and the rules for grants of the manager under test
//! that follow from them.
//!
//! A small model: nodes and their slots, sessions with their requests and grants. It does not
//! schedule; it only knows the rules that every correct cluster manager follows. Sessions go by
//! their recorded ids, times are those of the recording. The grants in it are those of one side.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use corona_model::types::ResourceType;
use corona_wire::calls::ClusterManagerCall;
use corona_wire::generated::{ClusterNodeInfo, ResourceGrant, ResourceRequest, SessionInfo};

#[derive(Clone, Debug, Default)]
pub(super) struct ClusterModel {
    nodes: BTreeMap<String, NodeModel>,
    sessions: BTreeMap<String, SessionModel>,
    /// When resources of a type were requested, by anyone.
    requested_at: BTreeMap<i32, Vec<Duration>>,
    /// When resources of a type were first requested in a pool, in the order of time.
    first_in_pools: BTreeMap<i32, Vec<Duration>>,
    /// Pools and types of `first_in_pools`.
    pools: BTreeSet<(Pool, i32)>,
    /// Whether nodes are known from the beginning, with all that they ever said of themselves.
    knows_all_nodes: bool,
}

/// The group and the name of a pool, as a session wants it; the user's, if it names none.
type Pool = (String, String);

#[derive(Clone, Debug)]
struct NodeModel {
    /// How it describes itself; more than once where its times are not compared.
    infos: Vec<ClusterNodeInfo>,
    /// When it sent heartbeats, in order.
    heartbeats: Vec<Duration>,
    heartbeat_at: Duration,
    /// Whether any session was notified of its death.
    has_died: bool,
}

#[derive(Clone, Debug, Default)]
struct SessionModel {
    driver: (String, i32),
    pool: Pool,
    /// The time of its last sign of life that counts as a heartbeat. Spec: cluster-manager/05 §3.
    sign_at: Duration,
    /// Requests, and when they were made.
    requests: BTreeMap<i32, (Duration, ResourceRequest)>,
    /// Grants that were not released.
    held: BTreeMap<i32, ResourceGrant>,
    /// Released requests, because a grant or a revocation may have been in flight.
    released: BTreeSet<i32>,
    /// Requests that lost their grants with a node, because a revocation may have been in flight.
    lost: BTreeSet<i32>,
    /// Nodes that the manager under test ever granted.
    used: BTreeSet<String>,
    ended: bool,
}

impl NodeModel {
    fn new(heartbeat_at: Duration) -> NodeModel {
        NodeModel { infos: vec![], heartbeats: vec![], heartbeat_at, has_died: false }
    }
}

impl ClusterModel {
    /// A client makes this call, at this time of the recording.
    pub(super) fn called(&mut self, at: Duration, call: &ClusterManagerCall) {
        use ClusterManagerCall as Call;
        if let Some(handle) = sign_of_life(call)
            && let Some(session) = self.sessions.get_mut(handle)
        {
            session.sign_at = at;
        }
        match call {
            Call::SessionStart { handle: Some(handle), info: Some(info) } => {
                self.start(at, handle, info);
            }
            Call::RequestResource { handle: Some(handle), requests: Some(requests) } => {
                if let Some(session) = self.sessions.get_mut(handle) {
                    for request in requests {
                        let kind = request.type_.0;
                        let first = || (at, request.clone());
                        session.requests.entry(request.id).or_insert_with(first);
                        self.requested_at.entry(kind).or_default().push(at);
                        if self.pools.insert((session.pool.clone(), kind)) {
                            self.first_in_pools.entry(kind).or_default().push(at);
                        }
                    }
                }
            }
            Call::ReleaseResource { handle: Some(handle), ids: Some(ids) } => {
                if let Some(session) = self.sessions.get_mut(handle) {
                    session.held.retain(|id, _| !ids.contains(id));
                    session.released.extend(ids);
                }
            }
            Call::SessionEnd { handle: Some(handle), .. }
            | Call::KillSession { id: Some(handle) } => self.end(handle),
            Call::KillSessions { args: Some(args) } => {
                for handle in &args.session_ids {
                    self.end(handle);
                }
            }
            Call::NodeHeartbeat { node: Some(info) } => {
                let node = NodeModel::new(at);
                let known = self.nodes.entry(info.name.clone()).or_insert(node);
                if !self.knows_all_nodes {
                    known.infos = vec![info.clone()];
                }
                known.heartbeat_at = at;
                known.heartbeats.push(at);
            }
            _ => {}
        }
    }

    fn start(&mut self, at: Duration, handle: &str, info: &SessionInfo) {
        let driver = (info.address.host.clone(), info.address.port);
        let pool = info.pool_info_strings.as_ref().map_or_else(
            || (String::new(), info.user_id.clone()),
            |pool| (pool.pool_group_name.clone(), pool.pool_name.clone()),
        );
        let session = SessionModel { driver, pool, sign_at: at, ..SessionModel::default() };
        self.sessions.entry(handle.to_owned()).or_insert(session);
    }

    fn end(&mut self, handle: &str) {
        if let Some(session) = self.sessions.get_mut(handle) {
            session.ended = true;
        }
    }

    /// A model that knows these nodes from the beginning: a recording may begin before their first
    /// heartbeats, and contain grants on them.
    pub(super) fn of_known_nodes<'a>(nodes: impl Iterator<Item = &'a ClusterNodeInfo>) -> Self {
        let mut model = ClusterModel { knows_all_nodes: true, ..ClusterModel::default() };
        for info in nodes {
            let unknown = NodeModel::new(Duration::ZERO);
            let node = model.nodes.entry(info.name.clone()).or_insert(unknown);
            if !node.infos.iter().any(|known| is_same_offer(known, info)) {
                node.infos.push(info.clone());
            }
        }
        model
    }

    /// This is granted to a session. `Err` is the violated rule.
    pub(super) fn granted(&mut self, handle: &str, grant: &ResourceGrant) -> Result<(), String> {
        let session =
            self.sessions.get_mut(handle).ok_or_else(|| format!("no session {handle}"))?;
        let verdict = judge(session, self.nodes.get(&grant.node_name), grant);
        if !session.released.contains(&grant.id) {
            session.held.insert(grant.id, grant.clone());
        }
        session.used.insert(grant.node_name.clone());
        verdict
    }

    /// A grant is taken back. `Err` is the violated rule: it is one that the session holds, and as it was
    /// granted.
    pub(super) fn revoked(&mut self, handle: &str, grant: &ResourceGrant) -> Result<(), String> {
        let id = grant.id;
        let session =
            self.sessions.get_mut(handle).ok_or_else(|| format!("no session {handle}"))?;
        match session.held.remove(&id) {
            Some(held) if is_same_slot(&held, grant) => Ok(()),
            Some(held) => Err(format!("request {id} holds another grant: {}", slot(&held))),
            None if session.released.contains(&id) || session.lost.remove(&id) => Ok(()),
            None => Err(format!("session {handle} holds nothing for request {id}")),
        }
    }

    /// A session is notified that a node died. `Err` is the violated rule.
    pub(super) fn died(&mut self, handle: &str, node: &str) -> Result<(), String> {
        if let Some(node) = self.nodes.get_mut(node) {
            node.has_died = true;
        }
        let session =
            self.sessions.get_mut(handle).ok_or_else(|| format!("no session {handle}"))?;
        let (lost, held) =
            std::mem::take(&mut session.held).into_iter().partition(|(_, it)| it.node_name == node);
        session.held = held;
        session.lost.extend(BTreeMap::into_keys(lost));
        if session.used.contains(node) {
            Ok(())
        } else {
            Err(format!("session {handle} never had a grant on {node}"))
        }
    }

    /// Whether the manager under test ever granted a session something on a node.
    pub(super) fn has_used(&self, handle: &str, node: &str) -> bool {
        self.sessions.get(handle).is_some_and(|session| session.used.contains(node))
    }

    /// Whether a session has ended by a call.
    pub(super) fn has_ended(&self, handle: &str) -> bool {
        self.sessions.get(handle).is_none_or(|session| session.ended)
    }

    /// The type of a request.
    pub(super) fn kind_of(&self, handle: &str, id: i32) -> Option<i32> {
        let (_, request) = self.sessions.get(handle)?.requests.get(&id)?;
        Some(request.type_.0)
    }

    /// All requests of a session.
    pub(super) fn requests_of(&self, handle: &str) -> Vec<i32> {
        let session = self.sessions.get(handle);
        session.map(|session| session.requests.keys().copied().collect()).unwrap_or_default()
    }

    /// When a request was made, and whether it prefers hosts.
    pub(super) fn requested(&self, handle: &str, id: i32) -> Option<(Duration, bool)> {
        let (at, request) = self.sessions.get(handle)?.requests.get(&id)?;
        Some((*at, request.hosts.as_ref().is_some_and(|hosts| !hosts.is_empty())))
    }

    /// When a resource of this type was last requested before `at`.
    pub(super) fn last_request_before(&self, kind: i32, at: Duration) -> Option<Duration> {
        let all = self.requested_at.get(&kind)?;
        all.get(all.partition_point(|requested| *requested <= at).checked_sub(1)?).copied()
    }

    /// When a resource of this type was last requested in a pool that had requested none before, within
    /// this time before `at`.
    pub(super) fn new_pool_before(
        &self,
        kind: i32,
        at: Duration,
        within: Duration,
    ) -> Option<Duration> {
        let all = self.first_in_pools.get(&kind)?;
        let last = all.get(all.partition_point(|first| *first <= at).checked_sub(1)?).copied();
        last.filter(|first| at.saturating_sub(*first) <= within)
    }

    /// The recorded address of a session's driver.
    pub(super) fn driver(&self, handle: &str) -> Option<&(String, i32)> {
        self.sessions.get(handle).map(|session| &session.driver)
    }

    /// Whether a session has been silent for so long at this time that it may have expired, and the
    /// original may not have noticed: that takes it up to half of `expiry` longer.
    pub(super) fn session_is_overdue(&self, handle: &str, at: Duration, expiry: Duration) -> bool {
        let session = self.sessions.get(handle);
        session.is_some_and(|session| is_overdue(at.saturating_sub(session.sign_at), expiry))
    }

    /// The first time after this one at which a node or a session may expire without further calls.
    pub(super) fn next_expiry(
        &self,
        at: Duration,
        of_nodes: Option<Duration>,
        of_sessions: Option<Duration>,
    ) -> Option<Duration> {
        let nodes = self.nodes.values().filter_map(|node| Some(node.heartbeat_at + of_nodes?));
        let sessions = self.sessions.values().filter(|session| !session.ended);
        let sessions = sessions.filter_map(|session| Some(session.sign_at + of_sessions?));
        nodes.chain(sessions).filter(|expiry| *expiry > at).min()
    }

    /// The last heartbeat of a node.
    pub(super) fn heartbeat_at(&self, node: &str) -> Option<Duration> {
        self.nodes.get(node).map(|node| node.heartbeat_at)
    }

    /// The last heartbeat of a node before this time.
    pub(super) fn heartbeat_before(&self, node: &str, at: Duration) -> Option<Duration> {
        let all = &self.nodes.get(node)?.heartbeats;
        all.get(all.partition_point(|heartbeat| *heartbeat <= at).checked_sub(1)?).copied()
    }

    /// How many grants of a type a session holds on nodes that have been silent for longer than
    /// `expiry`.
    pub(super) fn held_on_overdue_nodes(
        &self,
        handle: &str,
        kind: i32,
        at: Duration,
        expiry: Duration,
    ) -> usize {
        let Some(session) = self.sessions.get(handle) else { return 0 };
        let overdue = |grant: &&ResourceGrant| {
            let node = self.nodes.get(&grant.node_name);
            node.is_none_or(|node| is_overdue(at.saturating_sub(node.heartbeat_at), expiry))
        };
        session.held.values().filter(|grant| grant.type_.0 == kind).filter(overdue).count()
    }

    /// Whether a grant is on one of the hosts that its request named.
    pub(super) fn is_local(&self, handle: &str, grant: &ResourceGrant) -> bool {
        let session = self.sessions.get(handle);
        let hosts = session
            .and_then(|session| session.requests.get(&grant.id))
            .and_then(|(_, request)| request.hosts.as_ref());
        hosts.is_some_and(|hosts| hosts.contains(&grant.address.host))
    }

    /// Nodes on which running sessions hold more than `slots` allows, by the number of CPUs and the
    /// type. The CPUs of a request are the slots that it takes, unless resources are counted beside them. Nodes that
    /// have died are left out: their last state is unknown.
    pub(super) fn overfull(
        &self,
        slots: impl Fn(i16, i32) -> usize,
        counts_resources: bool,
    ) -> Vec<String> {
        let mut held: BTreeMap<(&str, i32), usize> = BTreeMap::new();
        for session in self.sessions.values().filter(|session| !session.ended) {
            for grant in session.held.values() {
                let request = session.requests.get(&grant.id);
                let cpus = request.and_then(|(_, request)| request.specs.as_ref());
                let cpus = cpus.filter(|_| !counts_resources).map_or(1, |specs| specs.num_cpus);
                let taken = usize::try_from(cpus).unwrap_or(0).max(1);
                *held.entry((&grant.node_name, grant.type_.0)).or_default() += taken;
            }
        }
        let mut overfull = Vec::new();
        for ((name, kind), count) in held {
            let Some(node) = self.nodes.get(name).filter(|node| !node.has_died) else { continue };
            let Some(info) = node.infos.last() else { continue };
            let slots = slots(info.total.num_cpus, kind);
            if count > slots {
                let kind = kind_name(kind);
                overfull.push(format!("{name}: {count} of {slots} {kind} slots are granted"));
            }
        }
        overfull
    }
}

/// The session that a call speaks for, if the call counts as a heartbeat.
/// Spec: cluster-manager/05 §3.
fn sign_of_life(call: &ClusterManagerCall) -> Option<&String> {
    use ClusterManagerCall as Call;
    match call {
        Call::SessionHeartbeat { handle }
        | Call::SessionHeartbeatV2 { handle, .. }
        | Call::SessionUpdateInfo { handle, .. }
        | Call::RequestResource { handle, .. }
        | Call::ReleaseResource { handle, .. } => handle.as_ref(),
        _ => None,
    }
}

/// The rules of a grant. Spec: cluster-manager/02 §3.7, 03 §4.
fn judge(
    session: &SessionModel,
    node: Option<&NodeModel>,
    grant: &ResourceGrant,
) -> Result<(), String> {
    let id = grant.id;
    let name = &grant.node_name;
    let kind = kind_name(grant.type_.0);
    let node = node.ok_or_else(|| format!("no node {name} has sent a heartbeat"))?;
    let found = session.requests.get(&id);
    let (_, request) = found.ok_or_else(|| format!("request {id} was never made"))?;
    if session.held.contains_key(&id) {
        return Err(format!("request {id} is granted already"));
    }
    if request.type_ != grant.type_ {
        let wanted = kind_name(request.type_.0);
        return Err(format!("request {id} is for a {wanted} slot, not for {kind}"));
    }
    let there = |info: &&ClusterNodeInfo| info.address == grant.address;
    let Some(last) = node.infos.iter().rfind(there) else {
        let addresses = node.infos.iter().map(|info| &info.address);
        let addresses: Vec<_> = addresses.map(|at| format!("{}:{}", at.host, at.port)).collect();
        let (host, port) = (&grant.address.host, grant.address.port);
        return Err(format!("{name} is at {}, not at {host}:{port}", addresses.join(" or ")));
    };
    let offer = |info: &ClusterNodeInfo| {
        let all = info.resource_infos.as_ref()?;
        all.get(&grant.type_).cloned()
    };
    let Some(offered) = offer(last) else {
        return Err(format!("{name} does not offer {kind} slots"));
    };
    let mut infos = node.infos.iter().filter(there);
    if !infos.any(|info| offer(info) == grant.app_info) {
        let granted = grant.app_info.as_deref().unwrap_or("nothing");
        return Err(format!("{name} offers {kind} slots with appInfo {offered}, not {granted}"));
    }
    let excluded = request.exclude_hosts.as_ref();
    if excluded.is_some_and(|hosts| hosts.contains(&grant.address.host)) {
        return Err(format!("request {id} excludes host {}", grant.address.host));
    }
    Ok(())
}

/// A grant's slot, for people.
fn slot(grant: &ResourceGrant) -> String {
    let ResourceGrant { node_name, address, type_, app_info, .. } = grant;
    let (kind, app_info) = (kind_name(type_.0), app_info.as_deref().unwrap_or("nothing"));
    format!("{kind} on {node_name} at {}:{} with appInfo {app_info}", address.host, address.port)
}

/// Whether two grants are of the same slot.
fn is_same_slot(one: &ResourceGrant, other: &ResourceGrant) -> bool {
    let slot = |it: &ResourceGrant| {
        (it.type_, it.node_name.clone(), it.address.clone(), it.app_info.clone())
    };
    slot(one) == slot(other)
}

/// Whether two heartbeats of a node describe it in the same way.
fn is_same_offer(one: &ClusterNodeInfo, other: &ClusterNodeInfo) -> bool {
    (&one.address, &one.resource_infos) == (&other.address, &other.resource_infos)
}

/// How much longer than the specified time the original may take to notice, on a busy machine.
const BUSY: Duration = Duration::from_secs(1);

/// Whether something that has been silent for so long has expired, and the original may not have
/// noticed yet. Spec: cluster-manager/05 §5.
fn is_overdue(silent: Duration, expiry: Duration) -> bool {
    (expiry..=expiry.saturating_add(expiry / 2).saturating_add(BUSY)).contains(&silent)
}

/// The name of a type of resource.
pub(super) fn kind_name(kind: i32) -> String {
    let known = ResourceType::from_number(kind);
    known.map_or_else(|| format!("type {kind}, which does not exist"), |known| known.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use corona_wire::generated::{ComputeSpecs, InetAddress, ResourceType};

    const MAP: ResourceType = ResourceType::MAP;

    fn address(host: &str) -> InetAddress {
        InetAddress::new(host.to_owned(), 50_000)
    }

    fn heartbeat(name: &str, host: &str) -> ClusterManagerCall {
        let total = ComputeSpecs::new(1, None, None, None);
        let infos = BTreeMap::from([(MAP, format!("{host}:1"))]);
        let node =
            ClusterNodeInfo::new(name.to_owned(), address(host), total, None, infos, None, None);
        ClusterManagerCall::NodeHeartbeat { node: Some(node) }
    }

    fn request(id: i32, exclude: &[&str]) -> ClusterManagerCall {
        let exclude: Vec<String> = exclude.iter().map(|host| (*host).to_owned()).collect();
        let hosts = vec!["h1".to_owned()];
        let request = ResourceRequest::new(id, hosts, None, MAP, exclude);
        ClusterManagerCall::RequestResource {
            handle: Some("s".to_owned()),
            requests: Some(vec![request]),
        }
    }

    fn grant(id: i32, name: &str, host: &str) -> ResourceGrant {
        ResourceGrant::new(id, name.to_owned(), address(host), 5, MAP, format!("{host}:1"))
    }

    fn release(id: i32) -> ClusterManagerCall {
        ClusterManagerCall::ReleaseResource { handle: Some("s".to_owned()), ids: Some(vec![id]) }
    }

    /// Two nodes, and a session that asks for 1, and for 2 but not on `h1`.
    fn cluster() -> ClusterModel {
        let mut cluster = ClusterModel::default();
        let info = SessionInfo::new(
            address("driver"),
            "job".to_owned(),
            "user".to_owned(),
            None,
            None,
            None,
            None,
            None,
            None,
        );
        let start =
            ClusterManagerCall::SessionStart { handle: Some("s".to_owned()), info: Some(info) };
        for call in [
            heartbeat("n1", "h1"),
            heartbeat("n2", "h2"),
            start,
            request(1, &[]),
            request(2, &["h1"]),
        ] {
            cluster.called(Duration::ZERO, &call);
        }
        cluster
    }

    #[test]
    fn grants_that_no_manager_may_give_are_reported() {
        let with = |change: &dyn Fn(&mut ResourceGrant)| {
            let mut grant = grant(1, "n1", "h1");
            change(&mut grant);
            grant
        };
        for (grant, complaint) in [
            (grant(1, "n1", "h1"), None),
            (grant(1, "n2", "h2"), None),
            (grant(2, "n2", "h2"), None),
            (grant(2, "n1", "h1"), Some("request 2 excludes host h1")),
            (grant(3, "n1", "h1"), Some("request 3 was never made")),
            (grant(1, "n3", "h3"), Some("no node n3 has sent a heartbeat")),
            (with(&|grant| grant.address.port = 1), Some("n1 is at h1:50000, not at h1:1")),
            (
                with(&|grant| grant.app_info = None),
                Some("n1 offers MAP slots with appInfo h1:1, not nothing"),
            ),
            (
                with(&|grant| grant.type_ = ResourceType::REDUCE),
                Some("request 1 is for a MAP slot, not for REDUCE"),
            ),
        ] {
            let verdict = cluster().granted("s", &grant);
            match complaint {
                None => assert_eq!(verdict, Ok(())),
                Some(text) => {
                    assert!(verdict.clone().unwrap_err().starts_with(text), "{verdict:?}")
                }
            }
        }
        assert!(cluster().granted("other", &grant(1, "n1", "h1")).is_err());
    }

    #[test]
    fn nothing_is_granted_twice() {
        let mut cluster = cluster();
        assert_eq!(cluster.granted("s", &grant(1, "n1", "h1")), Ok(()));
        assert_eq!(
            cluster.granted("s", &grant(1, "n2", "h2")),
            Err("request 1 is granted already".to_owned())
        );
    }

    #[test]
    fn full_nodes_are_found() {
        let mut cluster = cluster();
        cluster.granted("s", &grant(1, "n2", "h2")).unwrap();
        assert_eq!(cluster.overfull(|_, _| 1, false), Vec::<String>::new());
        cluster.granted("s", &grant(2, "n2", "h2")).unwrap();
        assert_eq!(cluster.overfull(|_, _| 1, false), ["n2: 2 of 1 MAP slots are granted"]);
        cluster.called(Duration::ZERO, &release(1));
        assert_eq!(cluster.overfull(|_, _| 1, false), Vec::<String>::new());
        // CPUs are slots, unless they are counted beside them.
        let large =
            ResourceRequest::new(3, None, ComputeSpecs::new(3, None, None, None), MAP, None);
        let (handle, requests) = (Some("s".to_owned()), Some(vec![large]));
        cluster.called(Duration::ZERO, &ClusterManagerCall::RequestResource { handle, requests });
        cluster.granted("s", &grant(3, "n1", "h1")).unwrap();
        assert_eq!(cluster.overfull(|_, _| 1, false), ["n1: 3 of 1 MAP slots are granted"]);
        assert_eq!(cluster.overfull(|_, _| 1, true), Vec::<String>::new());
    }

    #[test]
    fn grants_on_dead_nodes_are_no_longer_held() {
        let mut cluster = cluster();
        cluster.granted("s", &grant(1, "n1", "h1")).unwrap();
        assert!(cluster.died("s", "n2").is_err(), "never used");
        cluster.died("s", "n1").unwrap();
        assert_eq!(cluster.revoked("s", &grant(1, "n1", "h1")), Ok(()), "it may be in flight");
        assert!(cluster.revoked("s", &grant(1, "n1", "h1")).is_err());
    }

    #[test]
    fn revocations_are_of_grants_that_are_held() {
        let mut cluster = cluster();
        cluster.granted("s", &grant(1, "n1", "h1")).unwrap();
        cluster.granted("s", &grant(2, "n2", "h2")).unwrap();
        cluster.called(Duration::ZERO, &release(2));
        for (revoked, complaint) in [
            (grant(1, "n2", "h1"), Some("request 1 holds another grant: MAP on n1 at h1:50000")),
            (grant(1, "n1", "h1"), Some("session s holds nothing for request 1")),
            (grant(2, "n2", "h2"), None),
            (grant(9, "n1", "h1"), Some("session s holds nothing for request 9")),
        ] {
            let verdict = cluster.revoked("s", &revoked);
            match complaint {
                None => assert_eq!(verdict, Ok(())),
                Some(text) => {
                    assert!(verdict.clone().unwrap_err().starts_with(text), "{verdict:?}")
                }
            }
        }
        assert!(cluster.revoked("other", &grant(1, "n1", "h1")).is_err());
    }

    #[test]
    fn pools_are_new_until_the_first_request_in_them() {
        let second = Duration::from_secs(1);
        let mut cluster = cluster();
        let new = |cluster: &ClusterModel, at| cluster.new_pool_before(0, at, second);
        assert_eq!(new(&cluster, second), Some(Duration::ZERO));
        cluster.called(second * 3, &request(3, &[]));
        assert_eq!(new(&cluster, second * 3), None, "its user's pool is known");
        assert_eq!(cluster.new_pool_before(1, Duration::ZERO, second), None, "of another type");
    }

    #[test]
    fn silence_makes_overdue() {
        let second = Duration::from_secs(1);
        let mut cluster = cluster();
        cluster.granted("s", &grant(1, "n1", "h1")).unwrap();
        assert!(!cluster.session_is_overdue("s", second, second * 2));
        assert!(cluster.session_is_overdue("s", second * 2, second * 2));
        cluster.called(second, &release(7));
        assert!(!cluster.session_is_overdue("s", second * 2, second * 2));
        // The original would have noticed by now.
        assert!(!cluster.session_is_overdue("s", second * 6, second * 2));
        assert_eq!(cluster.held_on_overdue_nodes("s", 0, second * 2, second * 2), 1);
        cluster.called(second, &heartbeat("n1", "h1"));
        assert_eq!(cluster.held_on_overdue_nodes("s", 0, second * 2, second * 2), 0);
    }
}
