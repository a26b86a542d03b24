//! Heartbeats and expiry of nodes. Spec: cluster-manager/03, 02 §5 and §6.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Engine;
use super::index::{NodeIdx, SessionIdx};
use super::input::{Effect, NodeUsageReport, Notification, Record, Refusal, Reply};
use super::nodes::{Complaint, FaultCount, Kinds, Visits};
use super::settings::Hosts;
use super::types::{AccessId, Millis, NodeReport, PerType, ResourceType};

impl Engine {
    /// Returns whether the node is to restart.
    pub(super) fn heartbeat_node(
        &mut self,
        now: Millis,
        report: NodeReport,
        rack: Option<Arc<str>>,
        effects: &mut Vec<Effect>,
    ) -> Result<bool, Refusal> {
        let known = self.nodes.find(&report.name);
        if !allowed(&self.hosts, &report.address.host) {
            let Some(node) = known else {
                return Err(Refusal::DisallowedNode(report.address.host));
            };
            self.hear_node(node, now, effects);
            if let Some(free) = report.free {
                self.nodes[node].free = free;
                self.reindex_node(node, effects);
            }
            return Ok(false);
        }
        let node = match known {
            Some(node) => node,
            None => self.add_node(now, &report, rack, effects)?,
        };
        self.hear_node(node, now, effects);
        self.take_over_report(node, &report, effects)?;
        let host = self.topology.host_name(self.nodes[node].host);
        self.nodes[node].allowed = allowed(&self.hosts, host);
        self.reindex_node(node, effects);
        Ok(self.restart_if_told(&report.name, now, effects))
    }

    pub(super) fn nodes_ended(
        &mut self,
        now: Millis,
        host: &Arc<str>,
        names: &[Arc<str>],
        effects: &mut Vec<Effect>,
    ) {
        for name in names {
            let node = self.nodes.find(name);
            let of_host = |node: &NodeIdx| self.topology.host_name(self.nodes[*node].host) == host;
            if let Some(node) = node.filter(of_host) {
                self.lose_node(node, false, now, effects);
            }
        }
    }

    pub(super) fn node_feedback(
        &mut self,
        now: Millis,
        handle: &Arc<str>,
        kinds: &[ResourceType],
        reports: &[NodeUsageReport],
        effects: &mut Vec<Effect>,
    ) {
        let session = self.sessions.find(handle);
        for report in reports {
            match self.nodes.find(&report.node_name) {
                Some(node) => {
                    if let Some(session) = session {
                        self.blame(now, node, session, kinds, report, effects);
                    }
                }
                None => {
                    let name = report.node_name.clone();
                    effects.push(Effect::Record(Record::FeedbackForUnknownNode { name }));
                }
            }
        }
    }

    /// A node whose host is allowed again serves again from its next heartbeat on, as with the original: it
    /// may be the former node of a machine that was replaced meanwhile.
    pub(super) fn hosts_changed(&mut self, hosts: Hosts, effects: &mut Vec<Effect>) {
        self.hosts = Arc::new(hosts);
        for node in self.nodes.numbers() {
            let host = self.topology.host_name(self.nodes[node].host);
            self.nodes[node].allowed &= allowed(&self.hosts, host);
            self.reindex_node(node, effects);
        }
    }

    pub(super) fn drain_node(&mut self, name: &Arc<str>, on: bool, effects: &mut Vec<Effect>) {
        let Some(node) = self.nodes.find(name) else { return };
        if std::mem::replace(&mut self.nodes[node].draining, on) != on {
            let name = self.nodes[node].name.clone();
            effects.push(Effect::Record(Record::NodeDraining { name, on }));
            self.reindex_node(node, effects);
        }
    }

    pub(super) fn node_access(
        &mut self,
        name: &Arc<str>,
        access: Option<AccessId>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(node) = self.nodes.find(name) else { return };
        let entry = &mut self.nodes[node];
        if entry.access == access {
            return;
        }
        let former = std::mem::replace(&mut entry.access, access);
        if let (true, Some(access)) = (std::mem::take(&mut entry.revoked), former) {
            let (name, on, told) = (entry.name.clone(), false, 0);
            effects.push(Effect::Record(Record::NodeRevoked { name, access, on, told }));
            self.reindex_node(node, effects);
        }
    }

    pub(super) fn access_revoked(
        &mut self,
        now: Millis,
        ids: Vec<AccessId>,
        effects: &mut Vec<Effect>,
    ) {
        let ids: BTreeSet<AccessId> = ids.into_iter().collect();
        for node in self.nodes.numbers() {
            let entry = &self.nodes[node];
            if let Some(access) = entry.access.filter(|id| !entry.revoked && ids.contains(id)) {
                self.revoke_node(node, access, now, effects);
            }
        }
    }

    /// A node stays known until it expires, but all that it had is lost, as when it is lost itself.
    fn revoke_node(
        &mut self,
        node: NodeIdx,
        access: AccessId,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        let name = self.nodes[node].name.clone();
        self.restarts.forget(&name);
        self.nodes[node].revoked = true;
        // Nothing that is freed below may be given out again.
        self.reindex_node(node, effects);
        let told = self.lose_work_of(node, now, effects);
        self.nodes[node].sessions = Visits::default();
        let record = Record::NodeRevoked { name: name.clone(), access, on: true, told: told.len() };
        effects.push(Effect::Record(record));
        for session in told {
            self.tell_dead_node(session, &name, effects);
        }
    }

    /// The grants of a node are lost, and it is kept for no request. Returns the running sessions that ever had a
    /// grant there, which forget it.
    fn lose_work_of(
        &mut self,
        node: NodeIdx,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) -> Vec<SessionIdx> {
        if self.nodes[node].reserved {
            self.end_reservation_of(node, effects);
        }
        let entry = &self.nodes[node];
        let told: Vec<SessionIdx> = entry.sessions.iter().map(|(session, _)| session).collect();
        let lost: Vec<_> = entry.grants.iter().map(|(_, holder)| *holder).collect();
        for (session, req) in lost {
            self.lose_grant(session, req, now);
        }
        for session in &told {
            self.sessions[*session].nodes.swap_remove(&node);
        }
        told
    }

    pub(super) fn restart_nodes(
        &mut self,
        now: Millis,
        force: bool,
        batch_size: i32,
        effects: &mut Vec<Effect>,
    ) {
        let nodes = self.nodes.len();
        effects.push(Effect::Record(Record::RestartRequested { nodes, batch_size }));
        if nodes > 0 {
            let names = self.nodes.iter().map(|(_, node)| node.name.clone());
            let interval_ms = self.settings.restart_interval_ms;
            self.restarts.add(now, names, force, batch_size, interval_ms);
        }
    }

    pub(super) fn expire_nodes(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        for _ in 0..super::EXPIRED_AT_ONCE {
            let Some((node, heard)) = self.nodes.most_silent() else { break };
            if now.since(heard) <= self.settings.node_expiry_ms {
                break;
            }
            self.lose_node(node, true, now, effects);
        }
    }

    /// Finds nodes that are late from now on. Takes a bounded number at a time: while there are
    /// more, [`Engine::next_deadline`] is not later than now.
    pub(super) fn find_late_nodes(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        const AT_ONCE: usize = 1000;
        for _ in 0..AT_ONCE {
            let Some((node, heard)) = self.nodes.most_silent_on_time() else { return };
            let silent_ms = now.since(heard);
            if silent_ms <= self.settings.node_late_ms {
                return;
            }
            self.nodes.set_late(node);
            let name = self.nodes[node].name.clone();
            effects.push(Effect::Record(Record::NodeLate { name, silent_ms }));
            self.reindex_node(node, effects);
        }
    }

    /// Nodes are on time again without a heartbeat: silence was forgiven, or settings have changed.
    pub(super) fn forgive_late_nodes(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        for node in self.nodes.forgive_late(now, self.settings.node_late_ms) {
            let name = self.nodes[node].name.clone();
            effects.push(Effect::Record(Record::NodeOnTime { name }));
            self.reindex_node(node, effects);
        }
    }

    /// Notes a heartbeat.
    fn hear_node(&mut self, node: NodeIdx, now: Millis, effects: &mut Vec<Effect>) {
        if self.nodes.heard(node, now) {
            let name = self.nodes[node].name.clone();
            effects.push(Effect::Record(Record::NodeOnTime { name }));
            // The rest of the heartbeat may be refused.
            self.reindex_node(node, effects);
        }
    }

    fn add_node(
        &mut self,
        now: Millis,
        report: &NodeReport,
        rack: Option<Arc<str>>,
        effects: &mut Vec<Effect>,
    ) -> Result<NodeIdx, Refusal> {
        let known = self.nodes.len();
        if known >= self.settings.bounds.nodes {
            return Err(Refusal::TooManyNodes { known });
        }
        self.check_cpus(report)?;
        let host = self.topology.acquire(&report.address.host, || rack);
        let rack = self.topology.rack_of(host);
        let name = report.name.clone();
        let node = self.nodes.insert(name, report.address.clone(), host, rack, now);
        self.nodes[node].free = report.free.unwrap_or(report.total);
        let (report, nodes) = (Box::new(report.clone()), self.nodes.len());
        effects.push(Effect::Record(Record::NodeAdded { report, nodes }));
        Ok(node)
    }

    fn check_cpus(&self, report: &NodeReport) -> Result<(), Refusal> {
        let num_cpus = report.total.num_cpus;
        let slots = self.settings.partitioning.slots(num_cpus);
        slots.map(|_| ()).ok_or(Refusal::UnknownCpuCount { num_cpus })
    }

    /// Takes over the node's report. A type that it no longer serves, or serves elsewhere, loses
    /// its grants.
    fn take_over_report(
        &mut self,
        node: NodeIdx,
        report: &NodeReport,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        self.check_cpus(report)?;
        let entry = &mut self.nodes[node];
        // A report without free resources leaves the last one in force.
        entry.free = report.free.unwrap_or(entry.free);
        let capacity_changed =
            entry.total.num_cpus != report.total.num_cpus || entry.slots == Default::default();
        entry.total = report.total;
        let now = entry.last_heartbeat;
        for kind in ResourceType::ALL {
            let app = report.apps[kind].clone();
            let previous = &self.nodes[node].apps[kind];
            if *previous == app {
                continue;
            }
            if previous.is_some() {
                self.lose_app(node, kind, now, effects);
            }
            self.nodes.set_app(node, kind, app);
        }
        if let (true, Some(slots)) =
            (capacity_changed, self.settings.partitioning.slots(report.total.num_cpus))
        {
            self.nodes.set_slots(node, slots);
        }
        Ok(())
    }

    fn reindex_node(&mut self, node: NodeIdx, effects: &mut Vec<Effect>) {
        let changed = self.nodes.reindex(node, &self.settings);
        for kind in ResourceType::ALL {
            if let Some(runnable) = changed[kind] {
                let name = self.nodes[node].name.clone();
                effects.push(Effect::Record(Record::NodeRunnable { name, kind, runnable }));
            }
        }
    }

    fn restart_if_told(&mut self, name: &Arc<str>, now: Millis, effects: &mut Vec<Effect>) -> bool {
        if !self.restarts.take(name) {
            return false;
        }
        effects.push(Effect::Record(Record::RestartTold { name: name.clone() }));
        if let Some(node) = self.nodes.find(name) {
            self.lose_node(node, false, now, effects);
        }
        true
    }

    /// A node is lost with its grants. Every running session that ever had a grant there is
    /// notified, because results of finished tasks are lost as well.
    fn lose_node(&mut self, node: NodeIdx, expired: bool, now: Millis, effects: &mut Vec<Effect>) {
        let name = self.nodes[node].name.clone();
        self.restarts.forget(&name);
        // Nothing that is freed below may be given out again.
        self.nodes.retire(node);
        let told = self.lose_work_of(node, now, effects);
        let entry = self.nodes.remove(node);
        self.topology.release(entry.host);
        effects.push(Effect::Record(Record::NodeLost {
            name: name.clone(),
            expired,
            nodes: self.nodes.len(),
            told: told.len(),
        }));
        for session in told {
            self.tell_dead_node(session, &name, effects);
        }
    }

    /// A node stops serving a type: sessions that used it for the type are notified first, then its
    /// grants of the type are lost.
    fn lose_app(
        &mut self,
        node: NodeIdx,
        kind: ResourceType,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        let entry = &self.nodes[node];
        let name = entry.name.clone();
        let used = entry.sessions.iter().filter(|(_, visit)| visit.granted.contains(kind));
        let told: Vec<SessionIdx> = used.map(|(session, _)| session).collect();
        for session in told {
            self.tell_dead_node(session, &name, effects);
        }
        let lost: Vec<_> = self.nodes[node]
            .grants
            .iter()
            .map(|(_, holder)| *holder)
            .filter(|(session, req)| self.sessions[*session].requests[*req].kind == kind)
            .collect();
        for (session, req) in lost {
            self.lose_grant(session, req, now);
        }
    }

    fn tell_dead_node(&self, session: SessionIdx, name: &Arc<str>, effects: &mut Vec<Effect>) {
        let entry = &self.sessions[session];
        effects.push(Effect::Notify {
            handle: entry.handle.clone(),
            to: entry.info.address.clone(),
            notification: Notification::DeadNode(name.clone()),
        });
    }

    /// Counts a session's complaint about a node that it has used, once for each type and kind of
    /// trouble, so that no session can blacklist a node alone.
    fn blame(
        &mut self,
        now: Millis,
        node: NodeIdx,
        session: SessionIdx,
        kinds: &[ResourceType],
        report: &NodeUsageReport,
        effects: &mut Vec<Effect>,
    ) {
        let limits = &self.settings.faults;
        let entry = &mut self.nodes[node];
        let Some(visit) = entry.sessions.get_mut(session) else { return };
        let connections = report.failed_connections > limits.failed_connections_of_a_session;
        let failures = report.failed > limits.failures_of_a_session;
        let mut counted = PerType::all(false);
        let mut blacklisted = Vec::new();
        for kind in kinds.iter().copied().collect::<BTreeSet<_>>() {
            if entry.apps[kind].is_none() {
                continue;
            }
            let count = &mut entry.faults[kind];
            let of_connections = connections && note(&mut visit.blamed_for_connections, kind);
            let of_failures = failures && note(&mut visit.blamed_for_failures, kind);
            count.failed_connections += u32::from(of_connections);
            count.failures += u32::from(of_failures);
            counted[kind] = of_connections || of_failures;
            let too_many = count.failures > limits.failure_sessions
                || count.failed_connections > limits.failed_connection_sessions;
            if too_many && !count.blacklisted {
                count.blacklisted = true;
                blacklisted.push(kind);
            }
        }
        if counted != PerType::all(false) {
            let complainer = &self.sessions[session];
            let trouble = entry.trouble.get_or_insert_default();
            trouble.note(Complaint {
                session: complainer.handle.clone(),
                user: complainer.info.user_id.clone(),
                at: now,
                kinds: counted,
                failed: report.failed,
                failed_connections: report.failed_connections,
            });
            for kind in &blacklisted {
                trouble.blacklisted_since[*kind] = Some(now);
            }
        }
        for kind in blacklisted {
            let name = self.nodes[node].name.clone();
            effects.push(Effect::Record(Record::NodeBlacklisted { name, kind }));
            self.nodes.reindex(node, &self.settings);
        }
    }

    /// Forgets the complaints about a node for the types for which it is blacklisted, or for one of
    /// them. Sessions that have complained are not counted again: their reports are totals.
    pub(super) fn clear_blacklist(
        &mut self,
        name: &Arc<str>,
        only: Option<ResourceType>,
        effects: &mut Vec<Effect>,
    ) -> Reply {
        let mut cleared = Vec::new();
        if let Some(node) = self.nodes.find(name) {
            let entry = &mut self.nodes[node];
            for kind in
                ResourceType::ALL.into_iter().filter(|kind| only.is_none_or(|it| it == *kind))
            {
                if !entry.faults[kind].blacklisted {
                    continue;
                }
                entry.faults[kind] = FaultCount::default();
                if let Some(trouble) = &mut entry.trouble {
                    trouble.forget(kind);
                }
                let name = entry.name.clone();
                effects.push(Effect::Record(Record::BlacklistCleared { name, kind }));
                cleared.push(kind);
            }
            if !cleared.is_empty() {
                self.reindex_node(node, effects);
            }
        }
        Reply::BlacklistCleared { kinds: cleared }
    }
}

/// Enters `kind`; false when it was in.
fn note(kinds: &mut Kinds, kind: ResourceType) -> bool {
    let new = !kinds.contains(kind);
    kinds.insert(kind);
    new
}

/// Whether the host may heartbeat. Spec: cluster-manager/03 §4.
pub(super) fn allowed(hosts: &Hosts, host: &Arc<str>) -> bool {
    (hosts.include.is_empty() || hosts.include.contains(host)) && !hosts.exclude.contains(host)
}
