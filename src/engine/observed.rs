//! Following another cluster manager: its decisions are entered as inputs ([`Observed`]), so that the
//! next decisions of both start from the same state.
//!
//! An observed decision has no effects. A pass may be wanted afterwards.

use std::sync::Arc;

use super::Engine;
use super::index::{NodeIdx, ReqIdx, SessionIdx};
use super::input::Observed;
use super::requests::RequestState;
use super::scheduler::Level;
use super::sessions::{Session, Tally};
use super::types::{Grant, Millis, ResourceType};

/// A request's state in these books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedState {
    /// Waits.
    Waiting,
    /// Holds a slot of the node of this name.
    Granted(Arc<str>),
    /// Its grant was taken back or died with its node.
    Lost,
}

/// Why a correct cluster manager could not have made this grant.
/// Spec: cluster-manager/02 §3.7, 03 §4.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Objection {
    /// The grant names a session that does not run.
    #[error("there is no such session")]
    UnknownSession,
    /// The session has no request of this id.
    #[error("request {0} was never made, or was given back")]
    UnknownRequest(i32),
    /// The request is for another type, which is named.
    #[error("request {0} is for type {1}")]
    OtherType(i32, ResourceType),
    /// The grant is of a node that is not in the cluster.
    #[error("there is no node {0}")]
    UnknownNode(Arc<str>),
    /// The node, and the host and port that it has; the grant names others.
    #[error("node {0} is at {1}:{2}")]
    OtherAddress(Arc<str>, Arc<str>, i32),
    /// The node has no slots of the type.
    #[error("node {0} does not offer the type")]
    NotOffered(Arc<str>),
    /// The node, and where it offers the type; the grant names another place.
    #[error("node {0} offers the type at {1:?}")]
    OtherService(Arc<str>, Arc<str>),
    /// The request, and a host that it excludes and the grant names.
    #[error("request {0} excludes {1}")]
    Excluded(i32, Arc<str>),
}

impl Objection {
    /// Whether the grant can be entered all the same.
    pub fn can_be_followed(&self) -> bool {
        matches!(self, Self::OtherAddress(..) | Self::OtherService(..) | Self::Excluded(..))
    }
}

impl Engine {
    /// Enters a decision of another cluster manager. Returns whether it could be entered.
    pub(super) fn observe(&mut self, now: Millis, observed: Observed) -> bool {
        match observed {
            Observed::Identity { id_prefix, sessions_numbered } => {
                self.id_prefix = id_prefix;
                self.sessions_numbered = sessions_numbered;
                true
            }
            Observed::Granted { handle, id, node } => self.observe_grant(now, &handle, id, &node),
            Observed::Waiting { handle, id } => self.observe_wait(now, &handle, id),
            Observed::Lost { handle, id } => {
                let found = self.request_of(&handle, id);
                found.and_then(|(session, req)| self.lose_grant(session, req, now)).is_some()
            }
            Observed::Ended { handle, status } => {
                // The other cluster manager has already notified its peers.
                self.end_session(&handle, status, now, &mut Vec::new()).is_ok()
            }
        }
    }

    /// Whether a session runs.
    pub fn has_session(&self, handle: &str) -> bool {
        self.sessions.find(handle).is_some()
    }

    /// The state of a request; none if it is unknown.
    pub fn standing(&self, handle: &str, id: i32) -> Option<ObservedState> {
        let (session, req) = self.request_of(handle, id)?;
        Some(match self.sessions[session].requests[req].state {
            RequestState::Pending { .. } => ObservedState::Waiting,
            RequestState::Granted { node, .. } => {
                ObservedState::Granted(self.nodes[node].name.clone())
            }
            RequestState::Lost => ObservedState::Lost,
        })
    }

    /// The type of a request; none if it is unknown.
    pub fn kind_of(&self, handle: &str, id: i32) -> Option<ResourceType> {
        let (session, req) = self.request_of(handle, id)?;
        Some(self.sessions[session].requests[req].kind)
    }

    /// Reasons to refuse a grant, whether or not its node has room.
    ///
    /// # Errors
    /// The first objection.
    pub fn check_grant(&self, handle: &str, grant: &Grant) -> Result<(), Objection> {
        let session = self.sessions.find(handle).ok_or(Objection::UnknownSession)?;
        let requests = &self.sessions[session].requests;
        let req = requests.find(grant.id).ok_or(Objection::UnknownRequest(grant.id))?;
        let request = &requests[req];
        if request.kind != grant.kind {
            return Err(Objection::OtherType(grant.id, request.kind));
        }
        let name = || grant.node_name.clone();
        let node = self.nodes.find(&grant.node_name);
        let node = node.ok_or_else(|| Objection::UnknownNode(name()))?;
        let node = &self.nodes[node];
        let offer = node.apps[grant.kind].as_ref();
        let offer = offer.ok_or_else(|| Objection::NotOffered(name()))?;
        if node.address != grant.address {
            let address = &node.address;
            return Err(Objection::OtherAddress(name(), address.host.clone(), address.port));
        }
        if *offer != grant.app_info {
            return Err(Objection::OtherService(name(), offer.clone()));
        }
        if request.excluded.contains(&node.host) {
            return Err(Objection::Excluded(grant.id, grant.address.host.clone()));
        }
        Ok(())
    }

    /// Whether a node has room for a request, not counting the slots that the request holds there.
    pub fn has_room(&self, handle: &str, id: i32, node: &str) -> bool {
        let found = self.request_of(handle, id).zip(self.nodes.find(node));
        let Some(((session, req), node)) = found else { return false };
        let requests = &self.sessions[session].requests;
        let request = &requests[req];
        let holds = matches!(request.state, RequestState::Granted { node: at, .. } if at == node);
        holds || self.nodes[node].fits(request.kind, &requests.wish(req))
    }

    /// Whether a request may be served by a node, if that has room.
    pub fn may_serve(&self, handle: &str, id: i32, node: &str) -> bool {
        let found = self.request_of(handle, id).zip(self.nodes.find(node));
        found.is_some_and(|((session, req), node)| {
            let (request, node) = (&self.sessions[session].requests[req], &self.nodes[node]);
            node.apps[request.kind].is_some() && !request.excluded.contains(&node.host)
        })
    }

    /// Whether a node is on one of the hosts that a request named; true if it named none.
    pub fn is_near(&self, handle: &str, id: i32, node: &str) -> bool {
        let found = self.request_of(handle, id).zip(self.nodes.find(node));
        found.is_some_and(|((session, req), node)| self.level(session, req, node) == Level::Node)
    }

    /// Gives a request a slot of a node, whatever it had before, and whether or not the node has
    /// room. Session, request and node must be known, and the node must offer the type.
    fn observe_grant(&mut self, now: Millis, handle: &str, id: i32, node: &str) -> bool {
        let found = self.request_of(handle, id).zip(self.nodes.find(node));
        let Some(((session, req), node)) = found else { return false };
        let kind = self.sessions[session].requests[req].kind;
        if self.nodes[node].apps[kind].is_none() {
            return false;
        }
        let level = self.level(session, req, node);
        let granted = Tally::of_grant(self.sessions[session].requests[req].need());
        let change = match self.sessions[session].requests[req].state {
            RequestState::Granted { node: at, .. } if at == node => return true,
            RequestState::Granted { .. } => {
                self.unassign(session, req);
                // Assigning counts it again.
                self.sessions[session].demand_mut(kind).fulfilled -= 1;
                Tally::default()
            }
            RequestState::Pending { .. } => {
                let pass = self.scheduler.pass();
                self.sessions[session].demand_mut(kind).locality.granted(level, pass);
                granted
            }
            RequestState::Lost => Tally { pending: 0, ..granted },
        };
        self.assign(session, req, node, now);
        self.note_first_grant(session, kind, now);
        self.settle(session, kind, change, now);
        // The node may be one whose room counts for nobody, and a reserve is smaller now.
        if self.scheduler.tree.has_reserves() {
            self.unblock_all(kind);
        }
        true
    }

    /// Takes a slot back from a request, which waits again, behind the others of its session.
    fn observe_wait(&mut self, now: Millis, handle: &str, id: i32) -> bool {
        let Some((session, req)) = self.request_of(handle, id) else { return false };
        if !self.unassign(session, req) {
            return false;
        }
        if !self.sessions[session].requests.has_places_for(1) {
            self.number_anew(session);
        }
        let Session { requests, demand, .. } = &mut self.sessions[session];
        let kind = requests[req].kind;
        let demand = &mut demand[kind];
        demand.pending.push(requests, &self.topology, req);
        demand.fulfilled -= 1;
        let slots = -i64::from(requests[req].need());
        self.unblock(session, kind);
        self.settle(session, kind, Tally { requested: 0, pending: 1, granted: -1, slots }, now);
        true
    }

    fn request_of(&self, handle: &str, id: i32) -> Option<(SessionIdx, ReqIdx)> {
        let session = self.sessions.find(handle)?;
        Some((session, self.sessions[session].requests.find(id)?))
    }

    fn level(&self, session: SessionIdx, req: ReqIdx, node: NodeIdx) -> Level {
        let (hosts, node) = (&self.sessions[session].requests[req].hosts, &self.nodes[node]);
        if hosts.is_empty() || hosts.contains(&node.host) {
            return Level::Node;
        }
        match hosts.iter().any(|host| self.topology.rack_of(*host) == node.rack) {
            true => Level::Rack,
            false => Level::Any,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Address, SessionStatus};
    use crate::{Effect, Input, Notification, Reply, Start, testing};

    const NOW: Millis = Millis(1_000);

    /// Two slots of each type for each CPU; ids begin with "1".
    fn engine() -> Engine {
        let start = Start { now: Millis(0), id_prefix: "1".into(), hash_seed: 1 };
        let mut settings = testing::settings();
        settings.partitioning.0.insert(1, ResourceType::ALL.map(|kind| (kind, 2)).into());
        Engine::new(settings, start)
    }

    fn node(name: &str, cpus: i16) -> Input {
        testing::heartbeat(name, cpus)
    }

    fn session(handle: &str) -> Input {
        testing::session(handle, "g.p")
    }

    fn maps(handle: &str, ids: std::ops::Range<i32>) -> Input {
        let request = |id| {
            let mut request = testing::request(id, ResourceType::Map, &["a"]);
            request.exclude_hosts = vec!["c".into()];
            request
        };
        testing::ask(handle, ids.map(request).collect())
    }

    /// Applies inputs and passes; returns the grants as `session/id@node`.
    fn run(engine: &mut Engine, inputs: Vec<Input>) -> Vec<String> {
        let mut granted = vec![];
        let mut apply = |engine: &mut Engine, input| {
            let outcome = engine.apply(NOW, input);
            outcome.reply.unwrap();
            for effect in outcome.effects {
                if let Effect::Notify {
                    handle, notification: Notification::Granted(grants), ..
                } = effect
                {
                    let one = |grant: Grant| format!("{handle}/{}@{}", grant.id, grant.node_name);
                    granted.extend(grants.into_iter().map(one));
                }
            }
        };
        for input in inputs {
            apply(engine, input);
            while engine.wants_pass() {
                apply(engine, Input::Pass);
            }
        }
        engine.audit().unwrap();
        granted
    }

    /// Applies a decision of another cluster manager. Returns whether that was possible.
    fn observe(engine: &mut Engine, observed: Observed) -> bool {
        let outcome = engine.apply(NOW, Input::Observed(observed));
        assert_eq!(outcome.effects, []);
        engine.audit().unwrap();
        let Ok(Reply::Observed { entered }) = outcome.reply else { panic!("{outcome:?}") };
        entered
    }

    fn granted(id: i32, node: &str) -> Observed {
        Observed::Granted { handle: "1.1".into(), id, node: node.into() }
    }

    fn waiting(id: i32) -> Observed {
        Observed::Waiting { handle: "1.1".into(), id }
    }

    fn lost(id: i32) -> Observed {
        Observed::Lost { handle: "1.1".into(), id }
    }

    #[test]
    fn a_grant_moves_waits_again_and_is_lost() {
        let mut engine = engine();
        let all =
            run(&mut engine, vec![node("a", 1), node("b", 1), session("1.1"), maps("1.1", 0..1)]);
        assert_eq!(all, ["1.1/0@a"]);
        assert!(engine.has_room("1.1", 0, "a") && engine.is_near("1.1", 0, "a"));
        assert!(observe(&mut engine, granted(0, "b")));
        assert_eq!(engine.standing("1.1", 0), Some(ObservedState::Granted("b".into())));
        assert!(observe(&mut engine, waiting(0)));
        assert_eq!(engine.standing("1.1", 0), Some(ObservedState::Waiting));
        assert!(!observe(&mut engine, waiting(0)));
        assert_eq!(run(&mut engine, vec![Input::Tick]), ["1.1/0@a"]);
        assert!(observe(&mut engine, lost(0)));
        assert_eq!(engine.standing("1.1", 0), Some(ObservedState::Lost));
        assert!(!observe(&mut engine, lost(0)));
        assert!(observe(&mut engine, granted(0, "b")));
        assert!(!observe(&mut engine, granted(7, "b")));
        assert!(!observe(&mut engine, granted(0, "z")));
    }

    #[test]
    fn a_slot_that_is_moved_counts_as_one_grant() {
        let mut engine = engine();
        run(&mut engine, vec![node("a", 1), node("b", 1), session("1.1"), maps("1.1", 0..1)]);
        for to in ["b", "a", "a", "b"] {
            assert!(observe(&mut engine, granted(0, to)));
        }
        run(&mut engine, vec![Input::KillSession { handle: "1.1".into() }]);
        let retired = engine.retired_slice(0, 1).rows;
        assert_eq!(retired[0].fulfilled[ResourceType::Map], 1);
    }

    #[test]
    fn a_session_that_has_ended_there_ends_without_effects() {
        let mut engine = engine();
        run(&mut engine, vec![node("a", 1), session("1.1"), maps("1.1", 0..1)]);
        let ended = || {
            let (handle, status) = ("1.1".into(), SessionStatus::TimedOut);
            Observed::Ended { handle, status }
        };
        assert!(observe(&mut engine, ended()));
        assert!(!engine.has_session("1.1"));
        assert!(!observe(&mut engine, ended()));
    }

    #[test]
    fn decisions_are_observed_in_safe_mode_as_well() {
        let mut engine = engine();
        run(&mut engine, vec![node("a", 1), node("b", 1), session("1.1"), maps("1.1", 0..1)]);
        run(&mut engine, vec![Input::SetSafeMode { on: true }]);
        assert!(observe(&mut engine, granted(0, "b")));
    }

    #[test]
    fn observed_grants_are_not_made_again() {
        let mut engine = engine();
        run(&mut engine, vec![session("1.1"), session("1.2"), maps("1.1", 0..1)]);
        run(&mut engine, vec![maps("1.2", 0..3)]);
        assert_eq!(run(&mut engine, vec![node("a", 1)]), ["1.1/0@a", "1.2/0@a"]);
        // The other cluster manager has served another session instead.
        assert!(observe(&mut engine, waiting(0)));
        let other = Observed::Granted { handle: "1.2".into(), id: 1, node: "a".into() };
        assert!(observe(&mut engine, other));
        assert_eq!(run(&mut engine, vec![Input::Tick]), [""; 0]);
        assert!(!engine.has_room("1.1", 0, "a"));
        // More than there is room for is entered, too.
        assert!(observe(&mut engine, granted(0, "a")));
    }

    #[test]
    fn impossible_grants_have_an_objection() {
        let mut engine = engine();
        let nodes = vec![node("a", 1), node("c", 1), session("1.1"), maps("1.1", 0..1)];
        run(&mut engine, nodes);
        let good = |node: &str| Grant {
            id: 0,
            node_name: node.into(),
            address: Address { host: node.into(), port: 5000 },
            granted_at: NOW,
            kind: ResourceType::Map,
            app_info: "m:1".into(),
        };
        let with = |change: &dyn Fn(&mut Grant)| {
            let mut grant = good("a");
            change(&mut grant);
            grant
        };
        for (handle, grant, objection) in [
            ("1.1", good("a"), None),
            ("1.2", good("a"), Some(Objection::UnknownSession)),
            ("1.1", with(&|grant| grant.id = 9), Some(Objection::UnknownRequest(9))),
            (
                "1.1",
                with(&|grant| grant.kind = ResourceType::Reduce),
                Some(Objection::OtherType(0, ResourceType::Map)),
            ),
            ("1.1", good("z"), Some(Objection::UnknownNode("z".into()))),
            (
                "1.1",
                with(&|grant| grant.address.port = 6),
                Some(Objection::OtherAddress("a".into(), "a".into(), 5000)),
            ),
            (
                "1.1",
                with(&|grant| grant.app_info = "other".into()),
                Some(Objection::OtherService("a".into(), "m:1".into())),
            ),
            ("1.1", good("c"), Some(Objection::Excluded(0, "c".into()))),
        ] {
            assert_eq!(engine.check_grant(handle, &grant).err(), objection, "{grant:?}");
        }
    }

    #[test]
    fn ids_go_on_where_the_other_one_is() {
        let mut engine = engine();
        let id_prefix = "202611220900".into();
        assert!(observe(&mut engine, Observed::Identity { id_prefix, sessions_numbered: 7 }));
        let reply = engine.apply(NOW, Input::NextSessionId).reply;
        assert_eq!(reply, Ok(Reply::SessionId("202611220900.8".into())));
    }
}
