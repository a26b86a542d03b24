//! The events that a demo reports: as a sentence for people, or serialised for programs.

use std::fmt;
use std::sync::Arc;

use corona_model::types::ResourceType;
use serde::Serialize;

/// Slots, or tasks, by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Slots {
    /// Of maps.
    pub map: i64,
    /// Of reduces.
    pub reduce: i64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum News {
    /// A user submitted a job; it has a session.
    JobStarted {
        /// The session's id.
        session: Arc<str>,
        /// The job's name.
        name: Arc<str>,
        /// The user whose job it is.
        user: &'static str,
        /// `group.pool`.
        pool: String,
        /// Its maps.
        maps: usize,
        /// Its reduces.
        reduces: usize,
        /// Whether it is part of the script; the others come by chance.
        scripted: bool,
    },
    /// A job is over.
    JobEnded {
        /// The session's id.
        session: Arc<str>,
        /// The job's name.
        name: Arc<str>,
        /// The user whose job it is.
        user: &'static str,
        /// How: `SUCCESSFUL`, `FAILED`, or `GONE` when the cluster manager ended the session, as
        /// for an operator who killed it.
        status: &'static str,
        /// Whether it is part of the script.
        scripted: bool,
    },
    /// A job did not start.
    JobRefused {
        /// The job's name.
        name: Arc<str>,
        /// The user whose job it is.
        user: &'static str,
        /// Why.
        reason: String,
    },
    /// The demo switched a node off.
    PowerCut {
        /// The node's name.
        node: Arc<str>,
    },
    /// The demo switched a node on again.
    PowerBack {
        /// The node's name.
        node: Arc<str>,
    },
    /// From now on tasks on this node fail.
    DiskFailing {
        /// The node's name.
        node: Arc<str>,
    },
    /// The demo took a node away to repair it.
    Repair {
        /// The node's name.
        node: Arc<str>,
    },
    /// The demo plugged a new node in.
    NewNode {
        /// The node's name.
        node: Arc<str>,
    },
    /// The demo took the new node away, so that it can come again.
    NodeReturned {
        /// The node's name.
        node: Arc<str>,
    },
    /// The cluster manager added a node.
    NodeJoined {
        /// The node's name.
        node: Arc<str>,
    },
    /// The cluster manager misses heartbeats of a node.
    NodeLate {
        /// The node's name.
        node: Arc<str>,
    },
    /// The cluster manager removed a node.
    NodeLost {
        /// The node's name.
        node: Arc<str>,
        /// Whether it was silent for too long; otherwise it restarts.
        expired: bool,
    },
    /// The cluster manager stopped using a node for a type.
    NodeBlacklisted {
        /// The node's name.
        node: Arc<str>,
        /// The type.
        #[serde(rename = "type")]
        kind: ResourceType,
    },
    /// The cluster manager found that a pool has lacked its minimum or its share for too long.
    PoolStarving {
        /// `group.pool`.
        pool: String,
        /// The type.
        #[serde(rename = "type")]
        kind: ResourceType,
        /// `minimum` or `share`.
        cause: String,
        /// Slots that the pool holds.
        granted: i64,
    },
    /// The cluster manager took slots of a session back.
    SlotsPreempted {
        /// The session's id.
        session: Arc<str>,
        /// The job's name, if it is one of the demo's.
        name: Option<Arc<str>>,
        /// The type.
        #[serde(rename = "type")]
        kind: ResourceType,
        /// How many.
        count: u64,
        /// The pools that lacked slots, as `group.pool`.
        pools: Vec<String>,
    },
    /// The cluster manager read changed scheduling files.
    ConfigurationReloaded,
    /// How busy the cluster is.
    Status {
        /// Jobs that run.
        running: usize,
        /// Jobs that have ended.
        ended: u64,
        /// Tasks that run, each in a slot.
        tasks: Slots,
        /// Slots of the nodes that are on.
        slots: Slots,
    },
}

impl News {
    /// Whether it is part of the story, and not only of the daily work.
    pub fn is_notable(&self) -> bool {
        match self {
            News::JobStarted { scripted, .. } => *scripted,
            News::JobEnded { scripted, status, .. } => *scripted || *status == "GONE",
            News::PoolStarving { .. } => false,
            _ => true,
        }
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::JobStarted { session, name, user, pool, maps, reduces, .. } => write!(
                f,
                "{user} submits {name} to pool {pool}: {maps} maps, {reduces} reduces (session \
                 {session})"
            ),
            News::JobEnded { session, name, user, status, .. } => match *status {
                "GONE" => write!(f, "{name} of {user} was ended from outside (session {session})"),
                status => write!(f, "{name} of {user} has ended: {status} (session {session})"),
            },
            News::JobRefused { name, user, reason } => {
                write!(f, "{name} of {user} did not start: {reason}")
            }
            News::PowerCut { node } => write!(f, "{node} loses power, with the tasks on it"),
            News::PowerBack { node } => write!(f, "{node} has power again"),
            News::DiskFailing { node } => write!(f, "{node} has a broken disk: its tasks fail"),
            News::Repair { node } => write!(f, "{node} is switched off for repair"),
            News::NewNode { node } => write!(f, "{node} is new and switched on"),
            News::NodeReturned { node } => write!(f, "{node} is switched off and removed"),
            News::NodeJoined { node } => write!(f, "{node} joined the cluster"),
            News::NodeLate { node } => write!(f, "{node} is late: it has missed heartbeats"),
            News::NodeLost { node, expired: true } => {
                write!(
                    f,
                    "{node} is dead: no heartbeat for too long; its tasks run again elsewhere"
                )
            }
            News::NodeLost { node, expired: false } => write!(f, "{node} restarts"),
            News::NodeBlacklisted { node, kind } => {
                write!(f, "{node} is blacklisted for {kind}: sessions reported failures on it")
            }
            News::PoolStarving { pool, kind, cause, granted } => write!(
                f,
                "{pool} has had less than its {cause} of {kind} slots for too long: it holds \
                 {granted}"
            ),
            News::SlotsPreempted { session, name, kind, count, pools } => {
                let slots = if *count == 1 { "slot" } else { "slots" };
                let who = name.as_deref().unwrap_or(session);
                let were = if *count == 1 { "was" } else { "were" };
                write!(f, "{count} {kind} {slots} of {who} {were} preempted")?;
                match &pools[..] {
                    [] => Ok(()),
                    pools => write!(f, " for {}", pools.join(" and ")),
                }
            }
            News::ConfigurationReloaded => {
                write!(f, "the cluster manager read the changed scheduling files")
            }
            News::Status { running, ended, tasks, slots } => write!(
                f,
                "{running} jobs running, {ended} ended; {} of {} MAP and {} of {} REDUCE slots in \
                 use",
                tasks.map, slots.map, tasks.reduce, slots.reduce
            ),
        }
    }
}

/// The counts of the whole demo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// How long the demo ran.
    #[serde(skip)]
    pub seconds: f64,
    /// Jobs whose session has started.
    pub jobs_started: u64,
    /// Jobs that ended successfully.
    pub jobs_succeeded: u64,
    /// Tasks that were finished.
    pub tasks: u64,
    /// Tasks that failed on broken nodes.
    pub tasks_failed: u64,
    /// Slots that were taken back for other pools.
    pub slots_preempted: u64,
    /// Nodes that expired.
    pub nodes_lost: u64,
    /// Nodes that joined after the start.
    pub nodes_joined: u64,
    /// Nodes that were blacklisted, counted once for each type.
    pub blacklistings: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stopped after {:.0} s: {} jobs started, {} succeeded; {} tasks finished, {} failed; {} \
             slots preempted; {} nodes died, {} joined",
            self.seconds,
            self.jobs_started,
            self.jobs_succeeded,
            self.tasks,
            self.tasks_failed,
            self.slots_preempted,
            self.nodes_lost,
            self.nodes_joined,
        )
    }
}
