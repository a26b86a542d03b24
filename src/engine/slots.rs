//! A slot of a node given to a request, and taken back: the two places where that happens.
//!
//! Both keep the node and the session in step. [`Engine::settle`] then updates the counts of the
//! session, its pool and its group, so that many changes can be made together.

use super::Engine;
use super::index::{NodeIdx, ReqIdx, SessionIdx};
use super::requests::RequestState;
use super::sessions::{FirstWait, Session};
use super::types::{Millis, ResourceType};
use corona_model::resources::Amounts;

impl Engine {
    /// Assigns a slot of the node to a request that holds none, since `at`. A pending request
    /// becomes granted, and the walk over the others continues behind it.
    pub(super) fn assign(&mut self, session: SessionIdx, req: ReqIdx, node: NodeIdx, at: Millis) {
        let Session { requests, demand, nodes, pool, .. } = &mut self.sessions[session];
        let kind = requests[req].kind;
        let demand = &mut demand[kind];
        // The class of a pending request is in the cache, and what it itself takes is not.
        let wish = match requests[req].state {
            RequestState::Pending { class } => {
                let class = demand.pending.class(class).map(|class| class.key.wish);
                demand.pending.stop_at(requests, req);
                demand.pending.remove(requests, &self.topology, req);
                class.unwrap_or_else(|| requests.wish(req))
            }
            RequestState::Granted { .. } | RequestState::Lost => requests.wish(req),
        };
        let slot = self.nodes.allocate(node, kind, wish, (session, req));
        requests[req].state = RequestState::Granted { node, slot, at };
        demand.fulfilled += 1;
        if wish.demand != Amounts::ZERO {
            demand.held = demand.held.plus(wish.demand);
            self.scheduler.tree.hold_more(*pool, kind, wish.demand);
        }
        let visit = self.nodes[node].sessions.enter(session);
        if !visit.granted.contains(kind) {
            visit.granted.insert(kind);
            nodes.insert(node);
        }
    }

    /// Takes the slot back that a request holds, which is lost then. Returns whether it held one.
    pub(super) fn unassign(&mut self, session: SessionIdx, req: ReqIdx) -> bool {
        let Session { requests, demand, pool, .. } = &mut self.sessions[session];
        let wish = requests.wish(req);
        let request = &mut requests[req];
        let RequestState::Granted { node, slot, .. } = request.state else { return false };
        let kind = request.kind;
        request.state = RequestState::Lost;
        self.nodes.free(node, kind, wish, slot);
        if wish.demand != Amounts::ZERO {
            let held = &mut demand[kind].held;
            *held = held.minus(wish.demand);
            self.scheduler.tree.hold_less(*pool, kind, wish.demand);
        }
        true
    }

    /// Notes how long a session waited for its first grant of the type.
    pub(super) fn note_first_grant(
        &mut self,
        session: SessionIdx,
        kind: ResourceType,
        now: Millis,
    ) {
        let entry = &mut self.sessions[session];
        let waited = now.since(entry.started);
        let first_wait = &mut entry.demand_mut(kind).first_wait;
        if *first_wait == FirstWait::Waiting {
            *first_wait = FirstWait::After(waited);
        }
    }
}
