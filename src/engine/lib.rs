//! The engine: everything that the cluster manager decides, as a pure state machine.
//!
//! It has no sockets, no threads, no clock, no randomness and no files. Time and inputs are
//! arguments; effects are returned as data:
//!
//! ```
//! use corona_engine::settings::Settings;
//! use corona_engine::types::Millis;
//! use corona_engine::{Engine, Input, Reply, Start};
//!
//! let start = Start { now: Millis(0), id_prefix: "202611210900".into(), hash_seed: 1 };
//! let mut engine = Engine::new(Settings::default(), start);
//! let outcome = engine.apply(Millis(5), Input::NextSessionId);
//! assert_eq!(outcome.reply, Ok(Reply::SessionId("202611210900.1".into())));
//! ```
//!
//! Two inputs are the caller's duty: [`Input::Pass`] while [`Engine::wants_pass`] (many inputs may
//! share one pass), and [`Input::Tick`] once [`Engine::next_deadline`] is reached. The same inputs
//! at the same times give the same outcomes, always.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]

mod arena;
mod audit;
mod check;
pub mod codec;
#[cfg(test)]
mod explain_tests;
mod image;
mod index;
mod input;
mod lookup;
#[cfg(test)]
mod model_tests;
mod node_calls;
mod nodes;
mod observed;
mod pending;
mod remains;
mod repeats;
mod requests;
mod restarts;
mod scheduler;
mod session_calls;
mod sessions;
mod slices;
mod slots;
pub mod snapshot;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod topology;
mod views;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use corona_model::{settings, types};
use serde::{Deserialize, Serialize};

pub use self::check::ImageError;
pub use self::image::Image;
use self::index::NodeIdx;
pub use self::input::{
    Asked, Effect, Input, NodeUsageReport, Notification, Observed, Outcome, PoolObjection, Record,
    Refusal, Reply, RequestSummary, SessionView, Starvation, StepMismatch,
};
use self::lookup::HashSeed;
pub use self::nodes::Complaint;
use self::nodes::Nodes;
pub use self::observed::{Objection, ObservedState};
use self::remains::Remains;
use self::restarts::Restarts;
use self::scheduler::Scheduler;
pub use self::scheduler::{
    Ahead, Competition, Holder, HolderClaim, IdRange, Lack, Precedence, Preemption, ReservedNode,
    Rivals, Unusable, WaitReason, WaitingRequests,
};
pub use self::sessions::RetiredSession;
use self::sessions::Sessions;
use self::settings::{Hosts, Settings};
pub use self::slices::Slice;
pub use self::topology::DEFAULT_RACK;
use self::topology::Topology;
use self::types::{AccessId, Millis, PerType};
pub use self::views::{
    GrantView, Holding, NodeDetail, NodeFaults, NodeGrant, NodeView, PoolView, RackWanted,
    ReservedFor, RunningSession, SessionTally, SlotCounts, TypeCounts, Visitor, fill_in_shares,
};
use corona_model::resources::Amounts;

/// Nodes, and sessions, that expire in one tick. When more are overdue, the next tick is due at once.
const EXPIRED_AT_ONCE: usize = 1000;

/// The state machine. See the module's text.
#[derive(Debug)]
pub struct Engine {
    settings: Arc<Settings>,
    legal: PerType<bool>,
    started: Millis,
    /// The time of the last input.
    now: Millis,
    /// Inputs applied so far.
    inputs: u64,
    id_prefix: Arc<str>,
    sessions_numbered: i64,
    safe_mode: bool,
    hosts: Arc<Hosts>,
    topology: Topology,
    nodes: Nodes,
    sessions: Sessions,
    scheduler: Scheduler,
    restarts: Restarts,
    remains: Remains,
}

/// The inputs of an engine's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The present time.
    pub now: Millis,
    /// The prefix of session ids: the start time as `yyyyMMddHHmm`. Spec: cluster-manager/02 §3.1.
    pub id_prefix: Arc<str>,
    /// Secret key of the hash tables, so that peers cannot choose names that collide. It does not
    /// influence any outcome.
    pub hash_seed: u64,
}

impl Engine {
    /// An engine without nodes and sessions, not in safe mode.
    pub fn new(settings: Settings, start: Start) -> Self {
        let seed = HashSeed(start.hash_seed);
        let mut engine = Engine {
            legal: settings.partitioning.legal_types(),
            settings: Arc::new(settings),
            started: start.now,
            now: start.now,
            inputs: 0,
            id_prefix: start.id_prefix,
            sessions_numbered: 0,
            safe_mode: false,
            hosts: Arc::default(),
            topology: Topology::new(seed),
            nodes: Nodes::new(seed),
            sessions: Sessions::new(seed),
            scheduler: Scheduler::new(seed),
            restarts: Restarts::default(),
            remains: Remains::default(),
        };
        let resources = &engine.settings.resources;
        engine.nodes.forget_used(resources.counted);
        engine.scheduler.tree.whole = resources.are_counted().then_some(Amounts::ZERO);
        engine.scheduler.tree.configure(&engine.settings);
        engine
    }

    /// Takes one input at the time `now`. Time does not run backwards: an input with an earlier time
    /// than the one before it counts as simultaneous with that.
    pub fn apply(&mut self, now: Millis, input: Input) -> Outcome {
        self.now = self.now.max(now);
        let now = self.now;
        self.inputs += 1;
        let mut effects = Vec::new();
        let reply = self.dispatch(now, input, &mut effects);
        Outcome { reply, effects }
    }

    /// Whether [`Input::Pass`] may give something out.
    pub fn wants_pass(&self) -> bool {
        !self.safe_mode && (self.pass_is_wanted() || !self.remains.is_empty())
    }

    /// When time alone changes something, [`Input::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Millis> {
        if self.safe_mode {
            return None;
        }
        let at = |(_, heard): (NodeIdx, Millis)| heard;
        let session = self.sessions.most_silent();
        let after = |heard: Option<Millis>, expiry_ms: i64| {
            heard.map(|heard| heard.plus_ms(expiry_ms).plus_ms(1))
        };
        [
            after(self.nodes.most_silent().map(at), self.settings.node_expiry_ms),
            after(self.nodes.most_silent_on_time().map(at), self.settings.node_late_ms),
            after(session.map(|(_, heard)| heard), self.settings.session_expiry_ms),
            self.scheduler.next_deadline(),
            self.reservations_due(),
            self.restarts.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The prefix of session ids, and the number of the last one that was given.
    pub fn session_ids(&self) -> (&Arc<str>, i64) {
        (&self.id_prefix, self.sessions_numbered)
    }

    /// The settings in force.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// How many inputs have been applied, refused ones included. See [`Asked::input`].
    pub fn inputs(&self) -> u64 {
        self.inputs
    }

    /// The time of the last input, or of the start.
    pub fn now(&self) -> Millis {
        self.now
    }

    /// The access for which the certificate of a node was issued, if it shows one; `None` for an unknown node.
    pub fn node_access_of(&self, node: &str) -> Option<Option<AccessId>> {
        Some(self.nodes.get(self.nodes.find(node)?)?.access)
    }

    /// The access of all nodes whose access was not revoked, each once, sorted.
    pub fn node_accesses(&self) -> Vec<AccessId> {
        let nodes = self.nodes.iter().filter(|(_, node)| !node.revoked);
        let all: BTreeSet<AccessId> = nodes.filter_map(|(_, node)| node.access).collect();
        all.into_iter().collect()
    }

    /// The host files in force.
    pub fn hosts(&self) -> &Arc<Hosts> {
        &self.hosts
    }

    /// Whether safe mode is on.
    pub fn safe_mode(&self) -> bool {
        self.safe_mode
    }

    fn dispatch(
        &mut self,
        now: Millis,
        input: Input,
        effects: &mut Vec<Effect>,
    ) -> Result<Reply, Refusal> {
        if self.safe_mode && gated(&input) {
            return Err(Refusal::SafeMode);
        }
        match input {
            Input::NextSessionId => return Ok(Reply::SessionId(self.next_session_id())),
            Input::StartSession { handle, info } => {
                return self.start_session(now, handle, info, effects);
            }
            Input::UpdateSession { handle, info } => {
                self.update_session(now, &handle, info, effects)?;
            }
            Input::EndSession { handle, status } => {
                self.end_session(&handle, status, now, effects)?
            }
            Input::HeartbeatSession { handle, view } => {
                self.heartbeat_session(now, &handle, view, effects)?;
            }
            Input::RequestResources { handle, requests, racks } => {
                self.request_resources(now, &handle, requests, &racks, effects)?;
            }
            Input::ExpectRequests { handle, summary } => {
                self.expect_requests(now, &handle, &summary)?;
            }
            Input::MoreRequests { handle, requests, racks } => {
                self.more_requests(now, &handle, requests, &racks, effects)?;
            }
            Input::ReleaseResources { handle, ids } => {
                self.release_resources(now, &handle, &ids, effects)?;
            }
            Input::HeartbeatNode { report, rack } => {
                let restart = self.heartbeat_node(now, report, rack, effects)?;
                return Ok(Reply::NodeHeard { restart });
            }
            Input::NodeFeedback { handle, kinds, reports } => {
                self.node_feedback(now, &handle, &kinds, &reports, effects);
            }
            Input::ClearBlacklist { node, kind } => {
                return Ok(self.clear_blacklist(&node, kind, effects));
            }
            Input::HostsChanged { hosts } => self.hosts_changed(hosts, effects),
            Input::RestartNodes { force, batch_size } => {
                self.restart_nodes(now, force, batch_size, effects);
            }
            Input::KillSession { handle } => self.kill_session(&handle, now, effects),
            Input::SetSafeMode { on } => self.set_safe_mode(now, on, effects),
            Input::SettingsChanged { settings } => self.settings_changed(now, *settings, effects),
            Input::NotificationFailed { handle } => {
                self.notification_failed(&handle, now, effects)?;
            }
            Input::HeldUp { ms } => self.held_up(now, ms, effects),
            Input::Observed(observed) => {
                return Ok(Reply::Observed { entered: self.observe(now, observed) });
            }
            Input::NodesEnded { host, names } => self.nodes_ended(now, &host, &names, effects),
            Input::DrainNode { node, on } => self.drain_node(&node, on, effects),
            Input::NodeAccess { node, access } => self.node_access(&node, access, effects),
            Input::AccessRevoked { ids } => self.access_revoked(now, ids, effects),
            Input::Tick => self.tick(now, effects),
            Input::Pass => {
                self.clear_remains();
                self.pass(now, effects);
            }
        }
        Ok(Reply::Done)
    }

    fn tick(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        self.expire_nodes(now, effects);
        self.find_late_nodes(now, effects);
        self.expire_sessions(now, effects);
        self.restarts.release_batch_if_due(now, self.settings.restart_interval_ms);
        self.want_passes_due(now);
    }

    fn held_up(&mut self, now: Millis, ms: i64, effects: &mut Vec<Effect>) {
        if ms > 0 {
            self.nodes.pardon(now, ms);
            self.forgive_late_nodes(now, effects);
            self.sessions.pardon(now, ms);
            effects.push(Effect::Record(Record::HeldUp { ms }));
        }
    }

    fn set_safe_mode(&mut self, now: Millis, on: bool, effects: &mut Vec<Effect>) {
        if !on {
            self.nodes.all_heard(now);
            self.forgive_late_nodes(now, effects);
            self.sessions.all_heard(now);
        }
        self.safe_mode = on;
        if !on {
            effects.push(Effect::ResumeNotifications);
        }
        effects.push(Effect::Record(Record::SafeMode { on }));
    }

    /// New limits and modes apply from the next pass on. Sessions stay in their pools, grants stay
    /// even where a node now has fewer slots.
    fn settings_changed(&mut self, now: Millis, settings: Settings, effects: &mut Vec<Effect>) {
        effects.push(Effect::Record(Record::SettingsChanged));
        self.legal = settings.partitioning.legal_types();
        let settings = self.with_vanished_queues(settings);
        let counts_otherwise = self.settings.resources != settings.resources;
        if counts_otherwise {
            self.end_reservations(effects);
        }
        self.settings = Arc::new(settings);
        if counts_otherwise {
            self.count_all_anew();
        }
        self.reconfigure_queues();
        self.forgive_late_nodes(now, effects);
        for node in self.nodes.numbers() {
            let cpus = self.nodes[node].total.num_cpus;
            let slots = self.settings.partitioning.slots(cpus).unwrap_or(PerType::all(0));
            self.nodes.set_slots(node, slots);
            self.nodes.reindex(node, &self.settings);
        }
    }
}

/// Whether safe mode refuses the input. Spec: cluster-manager/02 §2. The service's own work
/// continues, except for ending sessions and granting slots; decisions of another cluster manager
/// are always applied, and what is revoked is revoked at once.
fn gated(input: &Input) -> bool {
    !matches!(
        input,
        Input::SetSafeMode { .. }
            | Input::SettingsChanged { .. }
            | Input::Observed(_)
            | Input::AccessRevoked { .. }
    )
}
