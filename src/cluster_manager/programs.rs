//! Which versions of the program run in the cluster, and which nodes are to start again. It lives beside the engine, which
//! decides nothing by it: heartbeats bring it again after a restart or a fail-over, and the command that gave an order repeats it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::core::Core;
use corona_api::cluster as api;
use corona_cluster_pages::Restart;
use corona_engine::Input;
use corona_model::types::Millis;
use corona_wire::calls::ClusterManagerCall as Call;
use corona_wire::calls::ClusterManagerReply as Answered;
use corona_wire::generated as wire;
use corona_wire::server::Answer;

/// Characters of a version, and of a reason against a restart, that are kept.
const MOST_OF_NAME: usize = 64;
const MOST_OF_REASON: usize = 300;
/// Versions that are listed.
const MOST_VERSIONS: usize = 100;
/// An order that a node has not fetched by then is forgotten: the command that gave it repeats it.
const ORDER_LASTS: Duration = Duration::from_secs(60);
/// Entries that may be of nodes and sessions that have left the cluster, beside as many as there are.
const LEFT: usize = 64;

/// What runs a node or a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) version: Arc<str>,
    pub(crate) started: Millis,
    /// Why it has not started again when it was asked to do so last.
    pub(crate) refused: Option<Arc<str>>,
}

/// What a heartbeat says of its sender, taken from it before it is answered.
#[derive(Debug)]
pub(super) enum Sender {
    Node { name: Arc<str>, host: Arc<str>, program: Option<Program> },
    Session { handle: Arc<str>, program: Program },
}

/// The programs of all nodes and sessions.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Those that this process has heard; none for a node that names no program.
    nodes: HashMap<Arc<str>, Option<Program>>,
    sessions: HashMap<Arc<str>, Program>,
    /// Nodes that start again at their next heartbeat, and when each order was given.
    orders: HashMap<Arc<str>, (Restart, Instant)>,
    /// With more entries than this, those of peers that have left the cluster are looked for.
    most: usize,
}

impl Table {
    fn entries(&self) -> usize {
        self.nodes.len() + self.sessions.len() + self.orders.len()
    }
}

impl Sender {
    /// The sender of a call, if that is a heartbeat of a node, or of a session that names its program.
    pub(super) fn of(call: &Call) -> Option<Sender> {
        match call {
            Call::NodeHeartbeat { node: Some(node) } => Some(Sender::Node {
                name: node.name.as_str().into(),
                host: node.address.host.as_str().into(),
                program: node.program.as_ref().map(Program::of),
            }),
            Call::SessionHeartbeatV2 { handle: Some(handle), args: Some(args) } => {
                let program = Program::of(args.program.as_ref()?);
                Some(Sender::Session { handle: handle.as_str().into(), program })
            }
            _ => None,
        }
    }
}

impl Program {
    fn of(program: &wire::Program) -> Program {
        // A peer that says more must not be refused for it: nothing depends on it.
        let cut = |text: &str, most| Arc::<str>::from(text.chars().take(most).collect::<String>());
        let wire::Program { version, started_ms, refused } = program;
        Program {
            version: cut(version, MOST_OF_NAME),
            started: Millis(*started_ms),
            refused: refused.as_deref().map(|reason| cut(reason, MOST_OF_REASON)),
        }
    }

    /// The same for the API.
    fn to_api(&self) -> api::Program {
        api::Program {
            version: self.version.to_string(),
            started_ms: self.started.0,
            restart_refused: self.refused.as_deref().map(str::to_owned),
        }
    }
}

impl Programs {
    /// Notes the program of a peer whose heartbeat was accepted, and adds the order to a node to start again. Returns
    /// whether the answer depends on what has been recorded here.
    pub(super) fn heard(&self, core: &Core, sender: Sender, answer: &mut Answer<Answered>) -> bool {
        let (name, host, program) = match (sender, &*answer) {
            (Sender::Node { name, host, program }, Answer::Reply(_)) => (name, host, program),
            (Sender::Session { handle, program }, Answer::Reply(_)) => {
                self.table().sessions.insert(handle, program);
                self.forget_left(core);
                return false;
            }
            _ => return false,
        };
        let order = {
            let mut table = self.table();
            let order = table.orders.remove(&name).filter(|(_, at)| at.elapsed() < ORDER_LASTS);
            let before = table.nodes.get(&name).and_then(Option::as_ref).map(|known| known.started);
            // One that has started again since has carried it out.
            let order = order.map(|(order, _)| order).filter(|order| {
                *order != Restart::InPlace || before == program.as_ref().map(|it| it.started)
            });
            let mut known = program.clone();
            if let (Some(known), Some(_)) = (&mut known, order) {
                // What it said of an earlier order does not concern this one.
                known.refused = None;
            }
            table.nodes.insert(name.clone(), known);
            order
        };
        self.forget_left(core);
        let Answer::Reply(Answered::NodeHeartbeat(response)) = answer else { return false };
        match order {
            _ if response.restart_flag => false,
            Some(Restart::InPlace) => {
                response.restart_in_place = program.map(|_| true);
                false
            }
            Some(Restart::Exit) => {
                tracing::info!("Notify {name} to restart");
                response.restart_flag = true;
                // Safe mode refuses it: then the node expires.
                let _ = core.apply(Input::NodesEnded { host, names: vec![name] });
                true
            }
            None => false,
        }
    }

    /// Has a node start again at its next heartbeat.
    pub(super) fn order(&self, core: &Core, node: &str, restart: Restart) {
        {
            let mut table = self.table();
            table.orders.insert(node.into(), (restart, Instant::now()));
            if let Some(Some(program)) = table.nodes.get_mut(node) {
                program.refused = None;
            }
        }
        self.forget_left(core);
    }

    /// Each version, with what runs it. `instances` are those of the cluster manager.
    pub(crate) fn versions(&self, core: &Core, instances: &[(&str, Millis)]) -> api::Versions {
        let (nodes, sessions) = core.look(|engine, _| {
            let table = self.table();
            let nodes = table.nodes.iter().filter(|(name, _)| engine.knows_node(name));
            let nodes: Vec<Program> = nodes.filter_map(|(_, program)| program.clone()).collect();
            (nodes, known(&table.sessions, |handle| engine.is_running(handle)))
        });
        let mut versions = BTreeMap::<String, api::VersionCount>::new();
        let now = core.look(|_, now| now);
        let mut count = |version: &str, started: Millis, of: fn(&mut api::VersionCount)| {
            // It comes from the peer's clock.
            let started = started.max(Millis(0)).min(now);
            let entry = versions.entry(version.to_owned()).or_insert_with(|| api::VersionCount {
                version: version.to_owned(),
                since_ms: started.0,
                ..api::VersionCount::default()
            });
            entry.since_ms = entry.since_ms.min(started.0);
            of(entry);
        };
        for (version, started) in instances {
            count(version, *started, |of| of.instances += 1);
        }
        for program in &nodes {
            count(&program.version, program.started, |of| of.nodes += 1);
        }
        for program in &sessions {
            count(&program.version, program.started, |of| of.sessions += 1);
        }
        let mut versions: Vec<api::VersionCount> = versions.into_values().collect();
        versions.truncate(MOST_VERSIONS);
        let mut starts: Vec<i64> = versions.iter().map(|version| version.since_ms).collect();
        starts.sort_unstable();
        // The first program of the second version has made it a mix.
        api::Versions { mixed_since_ms: starts.get(1).copied(), versions }
    }

    /// Entries of peers that have left the cluster do not pile up.
    fn forget_left(&self, core: &Core) {
        let is_full = {
            let table = self.table();
            table.entries() > table.most
        };
        if is_full {
            core.look(|engine, _| {
                let mut table = self.table();
                table.nodes.retain(|name, _| engine.knows_node(name));
                table.orders.retain(|name, _| engine.knows_node(name));
                table.sessions.retain(|handle, _| engine.is_running(handle));
                table.most = 2 * table.entries() + LEFT;
            });
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Each change leaves it whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl corona_cluster_pages::Programs for Programs {
    fn of_node(&self, name: &str) -> Option<api::Program> {
        self.table().nodes.get(name)?.as_ref().map(Program::to_api)
    }

    fn of_session(&self, handle: &str) -> Option<api::Program> {
        self.table().sessions.get(handle).map(Program::to_api)
    }

    fn has_heard(&self, name: &str) -> bool {
        self.table().nodes.contains_key(name)
    }
}

fn known(of: &HashMap<Arc<str>, Program>, is_known: impl Fn(&str) -> bool) -> Vec<Program> {
    of.iter().filter(|(name, _)| is_known(name)).map(|(_, program)| program.clone()).collect()
}
