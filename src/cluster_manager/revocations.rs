//! Takes nodes out of scheduling whose access has been revoked. It connects the gate, which knows no node, to the
//! core, which knows no certificate.

use std::collections::HashSet;
use std::sync::Arc;

use corona_access::{Gate, Revocations};
use corona_engine::Input;
use corona_model::types::AccessId;
use corona_wire::calls::ClusterManagerCall as Call;
use corona_wire::server::Peer;

use super::core::Core;

/// The access of nodes, as the gate and the engine know it. Nothing is done where the gate is off.
#[derive(Clone, Debug)]
pub(super) struct NodeAccess {
    core: Arc<Core>,
    revocations: Option<Revocations>,
}

impl NodeAccess {
    pub(super) fn new(core: Arc<Core>, gate: &Gate) -> NodeAccess {
        NodeAccess { core, revocations: gate.revocations() }
    }

    /// The node whose heartbeat this is, if its access is looked at.
    pub(super) fn node_of(&self, call: &Call) -> Option<Arc<str>> {
        let Call::NodeHeartbeat { node: Some(node) } = call else { return None };
        self.revocations.as_ref().map(|_| node.name.as_str().into())
    }

    /// Notes with which access a node has sent a heartbeat that was accepted. One that is revoked at this moment is
    /// taken out here, or else by [`Self::follow`], which finds it with the node.
    pub(super) fn heard(&self, peer: &Peer, node: &Arc<str>) {
        let Some(revocations) = &self.revocations else { return };
        let shown = peer.identified().map(|member| member.grant);
        let access = shown.map(|grant| AccessId(grant.number()));
        let known = self.core.look(|engine, _| engine.node_access_of(node));
        if known.is_some_and(|known| known != access) {
            // Safe mode refuses it, as the heartbeat before; the next one brings it.
            let _ = self.core.apply(Input::NodeAccess { node: node.clone(), access });
            if shown.is_some_and(|grant| revocations.contains(grant)) {
                self.take_out_revoked();
            }
        }
    }

    /// Takes the nodes out whose access is revoked.
    pub(super) fn take_out_revoked(&self) {
        let Some(revocations) = &self.revocations else { return };
        let revoked = revocations.all().into_iter().map(|grant| AccessId(grant.number()));
        let revoked: HashSet<AccessId> = revoked.collect();
        let mut ids: Vec<AccessId> = self.core.look(|engine, _| engine.node_accesses());
        ids.retain(|id| revoked.contains(id));
        if !ids.is_empty() {
            // It is not refused.
            let _ = self.core.apply(Input::AccessRevoked { ids });
        }
    }

    /// Takes out the nodes of whatever is revoked, forever.
    pub(super) async fn follow(mut self) {
        loop {
            match &mut self.revocations {
                Some(revocations) => revocations.changed().await,
                None => std::future::pending().await,
            }
            self.take_out_revoked();
        }
    }
}
