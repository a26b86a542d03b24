//! The calls of the recorded clients so far, and the rules for grants of the manager under test
//! that follow from them.
//!
//! A small model: nodes and their slots, sessions with their requests and grants. It does not
//! schedule; it only knows the rules that every correct cluster manager follows. Sessions go by
//! their recorded ids, times are those of the recording.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use corona_wire::calls::ClusterManagerCall;
use corona_wire::generated::{ClusterNodeInfo, ResourceGrant, ResourceRequest, SessionInfo};

#[derive(Clone, Debug, Default)]
pub(super) struct ClusterModel {
    nodes: BTreeMap<String, NodeModel>,
    sessions: BTreeMap<String, SessionModel>,
}

#[derive(Clone, Debug)]
struct NodeModel {
    info: ClusterNodeInfo,
    heartbeat_at: Duration,
    /// Whether any session was notified of its death.
    has_died: bool,
}

#[derive(Clone, Debug, Default)]
struct SessionModel {
    driver: (String, i32),
    /// The time of its last sign of life that counts as a heartbeat. Spec: cluster-manager/05 §3.
    sign_at: Duration,
    requests: BTreeMap<i32, ResourceRequest>,
    /// The grants of the manager under test that were not released.
    held: BTreeMap<i32, ResourceGrant>,
    /// Released grants, because a grant may have been in flight.
    released: BTreeSet<i32>,
    /// Nodes that the manager under test ever granted.
    used: BTreeSet<String>,
    ended: bool,
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
                        session.requests.entry(request.id).or_insert_with(|| request.clone());
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
                let node = NodeModel { info: info.clone(), heartbeat_at: at, has_died: false };
                let known = self.nodes.entry(info.name.clone()).or_insert(node);
                known.info = info.clone();
                known.heartbeat_at = at;
            }
            _ => {}
        }
    }

    fn start(&mut self, at: Duration, handle: &str, info: &SessionInfo) {
        let driver = (info.address.host.clone(), info.address.port);
        let session = SessionModel { driver, sign_at: at, ..SessionModel::default() };
        self.sessions.entry(handle.to_owned()).or_insert(session);
    }

    fn end(&mut self, handle: &str) {
        if let Some(session) = self.sessions.get_mut(handle) {
            session.ended = true;
        }
    }

    /// The manager under test grants this to a session. `Err` is the violated rule.
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

    /// The manager under test takes a grant back.
    pub(super) fn revoked(&mut self, handle: &str, id: i32) -> Result<(), String> {
        let session = self.sessions.get_mut(handle);
        let held = session.and_then(|session| session.held.remove(&id));
        held.map(drop).ok_or_else(|| format!("session {handle} does not hold {id}"))
    }

    /// The manager under test reports that a node died.
    pub(super) fn died(&mut self, handle: &str, node: &str) -> Result<(), String> {
        if let Some(node) = self.nodes.get_mut(node) {
            node.has_died = true;
        }
        let session =
            self.sessions.get_mut(handle).ok_or_else(|| format!("no session {handle}"))?;
        session.held.retain(|_, grant| grant.node_name != node);
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

    /// The recorded address of a session's driver.
    pub(super) fn driver(&self, handle: &str) -> Option<&(String, i32)> {
        self.sessions.get(handle).map(|session| &session.driver)
    }

    /// Whether a session has been silent for longer than `expiry` at this time, so that it may have
    /// expired. The original notices up to half of `expiry` later.
    pub(super) fn session_is_overdue(&self, handle: &str, at: Duration, expiry: Duration) -> bool {
        let session = self.sessions.get(handle);
        session.is_some_and(|session| at.saturating_sub(session.sign_at) >= expiry)
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
            node.is_none_or(|node| at.saturating_sub(node.heartbeat_at) >= expiry)
        };
        session.held.values().filter(|grant| grant.type_.0 == kind).filter(overdue).count()
    }

    /// Whether a grant is on one of the hosts that its request named.
    pub(super) fn is_local(&self, handle: &str, grant: &ResourceGrant) -> bool {
        let session = self.sessions.get(handle);
        let hosts = session
            .and_then(|session| session.requests.get(&grant.id))
            .and_then(|request| request.hosts.as_ref());
        hosts.is_some_and(|hosts| hosts.contains(&grant.address.host))
    }

    /// Nodes on which running sessions hold more than `slots` allows, by the number of CPUs and the
    /// type. Nodes that have died are left out: their last state is unknown.
    pub(super) fn overfull(&self, slots: impl Fn(i16, i32) -> usize) -> Vec<String> {
        let mut held: BTreeMap<(&str, i32), usize> = BTreeMap::new();
        for session in self.sessions.values().filter(|session| !session.ended) {
            for grant in session.held.values() {
                let request = session.requests.get(&grant.id);
                let cpus = request.and_then(|request| request.specs.as_ref());
                let cpus = usize::try_from(cpus.map_or(1, |specs| specs.num_cpus)).unwrap_or(0);
                *held.entry((&grant.node_name, grant.type_.0)).or_default() += cpus.max(1);
            }
        }
        let mut overfull = Vec::new();
        for ((name, kind), count) in held {
            let Some(node) = self.nodes.get(name).filter(|node| !node.has_died) else { continue };
            let slots = slots(node.info.total.num_cpus, kind);
            if count > slots {
                overfull.push(format!("{name}: {count} of {slots} slots of type {kind} granted"));
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
    let node = node.ok_or_else(|| format!("no node {} heartbeats", grant.node_name))?;
    let request = session.requests.get(&id).ok_or_else(|| format!("{id} was never requested"))?;
    if session.held.contains_key(&id) {
        return Err(format!("{id} is granted already"));
    }
    if request.type_ != grant.type_ {
        return Err(format!("{id} was requested as type {}", request.type_.0));
    }
    if node.info.address != grant.address {
        return Err(format!("{} is at {:?}", grant.node_name, node.info.address));
    }
    let offered = node.info.resource_infos.as_ref().and_then(|infos| infos.get(&grant.type_));
    if offered.is_none() {
        return Err(format!("{} does not offer type {}", grant.node_name, grant.type_.0));
    }
    if offered != grant.app_info.as_ref() {
        return Err(format!("{} offers the type as {offered:?}", grant.node_name));
    }
    let excluded = request.exclude_hosts.as_ref();
    if excluded.is_some_and(|hosts| hosts.contains(&grant.address.host)) {
        return Err(format!("{id} excludes {}", grant.address.host));
    }
    Ok(())
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
        let node = ClusterNodeInfo::new(name.to_owned(), address(host), total, None, infos, None);
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
            (grant(2, "n1", "h1"), Some("2 excludes h1")),
            (grant(3, "n1", "h1"), Some("3 was never requested")),
            (grant(1, "n3", "h3"), Some("no node n3 heartbeats")),
            (with(&|grant| grant.address.port = 1), Some("n1 is at ")),
            (with(&|grant| grant.app_info = None), Some("n1 offers the type as ")),
            (with(&|grant| grant.type_ = ResourceType::REDUCE), Some("1 was requested as type 0")),
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
            Err("1 is granted already".to_owned())
        );
    }

    #[test]
    fn full_nodes_are_found() {
        let mut cluster = cluster();
        cluster.granted("s", &grant(1, "n2", "h2")).unwrap();
        assert_eq!(cluster.overfull(|_, _| 1), Vec::<String>::new());
        cluster.granted("s", &grant(2, "n2", "h2")).unwrap();
        assert_eq!(cluster.overfull(|_, _| 1), ["n2: 2 of 1 slots of type 0 granted"]);
        cluster.called(Duration::ZERO, &release(1));
        assert_eq!(cluster.overfull(|_, _| 1), Vec::<String>::new());
    }

    #[test]
    fn what_died_is_no_longer_held() {
        let mut cluster = cluster();
        cluster.granted("s", &grant(1, "n1", "h1")).unwrap();
        assert!(cluster.died("s", "n2").is_err(), "never used");
        cluster.died("s", "n1").unwrap();
        assert!(cluster.revoked("s", 1).is_err());
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
        assert_eq!(cluster.held_on_overdue_nodes("s", 0, second * 2, second * 2), 1);
        cluster.called(second, &heartbeat("n1", "h1"));
        assert_eq!(cluster.held_on_overdue_nodes("s", 0, second * 2, second * 2), 0);
    }
}
