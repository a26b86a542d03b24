//! Checks whether the state is consistent: everything that the engine keeps in more than one place
//! is computed again from requests and nodes and compared.
//!
//! Nothing of the engine depends on this; simulations and tests call it. Each part checks its own
//! indexes, here they are compared with each other.

use super::Engine;
use super::check::hold;
use super::index::{HostIdx, Idx, IdxVec, NodeIdx, SessionIdx};
use super::requests::RequestState;
use super::sessions::{Session, Tally};
use super::types::{PerType, ResourceType};
use corona_model::resources::Amounts;

impl Engine {
    /// Recomputes every count, list and index from the requests of the sessions and the nodes
    /// themselves, and compares. To be called between inputs. Takes time in proportion to all that
    /// the engine holds.
    ///
    /// Whether a limit was respected when a slot was granted cannot be checked afterwards, because
    /// limits and capacities change; only a reader of the inputs and outcomes can check it.
    ///
    /// # Errors
    /// A sentence about the first difference found. Each is a bug of the engine.
    pub fn audit(&self) -> Result<(), String> {
        self.nodes.audit(&self.settings)?;
        self.sessions.audit()?;
        for (session, entry) in self.sessions.iter() {
            self.audit_session(session, entry)
                .map_err(|what| format!("session {}: {what}", entry.handle))?;
        }
        for (node, entry) in self.nodes.iter() {
            self.audit_node(node).map_err(|what| format!("node {}: {what}", entry.name))?;
        }
        self.scheduler.audit(&self.sessions)?;
        self.scheduler.audit_reservations(&self.nodes)?;
        self.audit_hosts()?;
        self.restarts.audit(|name| self.nodes.find(name).is_some())
    }

    fn audit_session(&self, session: SessionIdx, entry: &Session) -> Result<(), String> {
        entry.requests.audit()?;
        let held = entry.requests.held();
        for kind in ResourceType::ALL {
            let demand = entry.demand(kind);
            hold(demand.held == held[kind], || {
                format!("{kind}: holds {}, not {}", held[kind], demand.held)
            })?;
            let mut tally = Tally::default();
            for (_, request) in entry.requests.iter().filter(|(_, r)| r.kind == kind) {
                tally.requested += 1;
                match request.state {
                    RequestState::Pending { .. } => tally.pending += 1,
                    RequestState::Granted { .. } => {
                        tally.granted += 1;
                        tally.slots += i64::from(request.need());
                    }
                    RequestState::Lost => {}
                }
            }
            hold(demand.tally == tally, || format!("{kind}: {tally:?}, not {:?}", demand.tally))?;
            hold(demand.max_granted >= tally.granted, || format!("{kind}: maximum"))?;
            hold(demand.batch.is_empty(), || format!("{kind}: grants without a notification"))?;
            let at_rest = demand.pending.front.is_none();
            hold(at_rest, || format!("{kind}: a search was not brought to its end"))?;
            demand
                .pending
                .audit(&entry.requests, &self.topology, kind)
                .map_err(|what| format!("{kind}: {what}"))?;
            hold(demand.pending.len() as i64 == tally.pending, || format!("{kind}: pending"))?;
        }
        for (req, request) in entry.requests.iter() {
            let RequestState::Granted { node, slot, .. } = request.state else { continue };
            let holder = self.nodes.get(node).and_then(|node| node.grants.get(slot));
            hold(holder == Some(&(session, req)), || {
                format!("request {} holds a slot of which its node knows {holder:?}", request.id)
            })?;
        }
        for node in &entry.nodes {
            let knows = self.nodes.get(*node).is_some_and(|n| n.sessions.get(session).is_some());
            hold(knows, || format!("node number {} does not know it", node.number()))?;
        }
        Ok(())
    }

    fn audit_node(&self, node: NodeIdx) -> Result<(), String> {
        let entry = &self.nodes[node];
        let (mut used, mut counts) = (PerType::all(0), PerType::all(0));
        let mut held = Amounts::ZERO;
        for (slot, (session, req)) in entry.grants.iter() {
            let holder = self.sessions.get(*session).and_then(|s| s.requests.get(*req));
            let Some(request) = holder else {
                return Err(format!("entry {} has no owner", slot.number()));
            };
            let agrees = matches!(request.state, RequestState::Granted { node: at, slot: place, .. }
                if at == node && place == slot);
            hold(agrees, || {
                format!("entry {} belongs to a request in {:?}", slot.number(), request.state)
            })?;
            let visit = entry.sessions.get(*session);
            hold(visit.is_some_and(|visit| visit.granted.contains(request.kind)), || {
                format!("a session with a grant of {} is not noted", request.kind)
            })?;
            hold(entry.apps[request.kind].is_some(), || {
                format!("a grant of {}, which it does not serve", request.kind)
            })?;
            used[request.kind] += request.need();
            held = held.plus(self.sessions[*session].requests.demand(*req));
            counts[request.kind] += 1;
        }
        hold(entry.used == used, || format!("uses {used:?}, not {:?}", entry.used))?;
        hold(entry.held == held, || format!("holds {held}, not {}", entry.held))?;
        hold(entry.grant_counts == counts, || format!("{counts:?} grants"))?;
        for (session, _) in entry.sessions.iter() {
            let known = self.sessions.get(session).is_some_and(|s| s.nodes.contains(&node));
            hold(known, || format!("session number {} does not know it", session.number()))?;
        }
        let rack = self.topology.rack_of(entry.host);
        hold(entry.rack == rack, || "in another rack than its host".into())
    }

    fn audit_hosts(&self) -> Result<(), String> {
        let mut uses = IdxVec::new();
        let mut count = |host: HostIdx| {
            uses.reach(host, 0);
            uses[host] += 1;
        };
        for (_, node) in self.nodes.iter() {
            count(node.host);
        }
        for (_, session) in self.sessions.iter() {
            for (_, request) in session.requests.iter() {
                request.hosts.iter().chain(&*request.excluded).copied().for_each(&mut count);
            }
        }
        self.remains.hosts().for_each(&mut count);
        self.topology.audit(&uses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::PoolIdx;
    use crate::types::Millis;
    use crate::{Input, testing};

    /// Two nodes; a session with two grants and three requests that wait, one of them set aside.
    fn engine() -> Engine {
        let mut settings = testing::settings();
        settings.scheduling.node_locality_wait_ms = PerType::all(1000);
        settings.scheduling.rack_locality_wait_ms = PerType::all(1000);
        let mut engine = testing::engine(settings);
        let node = |name: &str| Input::HeartbeatNode {
            report: testing::report(name, name, 1),
            rack: Some("/r".into()),
        };
        let request = |id, kind, host: Option<&str>| {
            let mut request = testing::request(id, kind, host.as_slice());
            request.exclude_hosts = vec!["bad".into()];
            request
        };
        use ResourceType::{Map, Reduce};
        let requests = vec![
            request(1, Map, Some("a")),
            request(2, Map, Some("absent")),
            request(3, Reduce, None),
            request(4, Reduce, None),
            request(5, Reduce, None),
        ];
        for input in [
            node("a"),
            node("b"),
            testing::session("2026.1", "g.p"),
            testing::ask("2026.1", requests),
            Input::Pass,
        ] {
            engine.apply(Millis(0), input).reply.unwrap();
        }
        engine
    }

    fn session() -> SessionIdx {
        SessionIdx::from_number(0)
    }

    fn node(number: u32) -> NodeIdx {
        NodeIdx::from_number(number)
    }

    #[test]
    fn books_that_agree_pass() {
        assert_eq!(engine().audit(), Ok(()));
    }

    #[test]
    fn each_book_that_is_wrong_is_named() {
        let map = ResourceType::Map;
        let reduce = ResourceType::Reduce;
        type Damage = fn(&mut Engine, ResourceType);
        let cases: [(&str, ResourceType, Damage); 14] = [
            ("session 2026.1: MAP: Tally", map, |e, kind| {
                e.sessions[session()].demand[kind].tally.granted += 1;
            }),
            ("session 2026.1: MAP: holds nothing, not 1 CPU", map, |e, kind| {
                e.sessions[session()].demand[kind].held = Amounts([1, 0, 0, 0]);
            }),
            ("pool g.p: MAP: holds nothing, not 1 CPU", map, |e, kind| {
                let pool = e.sessions[session()].pool;
                e.scheduler.tree[pool].kinds[kind].held = Amounts([1, 0, 0, 0]);
            }),
            ("has a place without waiting or waits without one", reduce, |e, kind| {
                let session = &mut e.sessions[session()];
                let pending = &mut session.demand[kind].pending;
                let (req, _) = pending.start(&session.requests).unwrap();
                let state = session.requests[req].state;
                pending.remove(&mut session.requests, &e.topology, req);
                session.requests[req].state = state;
            }),
            ("of which its node knows", reduce, |e, _| {
                e.nodes[node(0)].grants.clear();
            }),
            ("but the totals are 2 and 2", reduce, |e, kind| e.nodes[node(1)].used[kind] = 0),
            ("in the index of MAP", map, |e, _| e.nodes[node(1)].allowed = false),
            ("session 2026.1: node number 0 does not know it", map, |e, _| {
                e.nodes[node(0)].sessions.remove(session());
            }),
            ("host bad is used", map, |e, _| {
                let host = e.sessions[session()].requests[Idx::from_number(0)].excluded[0];
                e.topology.release(host);
            }),
            ("pool g.p: MAP: Tally", map, |e, kind| {
                let pool = e.sessions[session()].pool;
                e.scheduler.tree[pool].kinds[kind].tally.pending = 0;
            }),
            ("pool g.p: holds sessions of others", map, |e, _| {
                e.scheduler.tree[PoolIdx::from_number(0)]
                    .sessions
                    .insert(SessionIdx::from_number(99));
            }),
            ("session 2026.1 is out of place", reduce, |e, kind| {
                e.sessions[session()].demand[kind].place = None;
            }),
            ("session 2026.1 is out of place", map, |e, kind| {
                let session = &mut e.sessions[session()];
                session.demand[kind].blocked = None;
            }),
            ("ghost is to restart, but is unknown", map, |e, _| {
                e.restarts.add(Millis(0), ["ghost".into()].into_iter(), true, 0, 1);
            }),
        ];
        for (expected, kind, damage) in cases {
            let mut engine = engine();
            damage(&mut engine, kind);
            let found = engine.audit().unwrap_err();
            assert!(found.contains(expected), "expected {expected:?}, found {found:?}");
        }
    }
}
