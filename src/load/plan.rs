//! The load of a run: complete and bounded before anything is sent.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

pub use corona_model::text::grouped as number;

/// A run of load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The scenario's name, such as `churn`.
    pub scenario: &'static str,
    /// The cluster manager's Thrift service.
    pub manager: SocketAddr,
    /// How long it runs before anything is measured.
    pub warm_up: Duration,
    /// How long is measured.
    pub duration: Duration,
    /// Emulated task trackers.
    pub nodes: Nodes,
    /// Emulated sessions, from the start to the end.
    pub crowds: Vec<Crowd>,
    /// The same, from the middle of the measured time to the end. The report separates the
    /// measurements without and with them.
    pub late_crowds: Vec<Crowd>,
    /// Connections beside those of nodes and sessions.
    pub connections: Connections,
    /// Threads that make the load.
    pub threads: usize,
    /// For how long nodes and sessions try to reconnect when a connection is lost, and repeat the call: the
    /// cluster manager may be restarted meanwhile. Zero: a lost connection is a fault.
    pub reconnect: Duration,
    /// The process of the cluster manager, if it is on this machine and of interest.
    pub process_id: Option<u32>,
}

/// Emulated task trackers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nodes {
    /// How many.
    pub count: usize,
    /// CPUs of each.
    pub cpus: i16,
    /// MAP slots that the cluster manager gives a node with so many CPUs; REDUCE slots are not
    /// checked.
    pub map_slots: u32,
    /// Connections that the nodes share, each with as many of them.
    pub connections: usize,
    /// When they send heartbeats.
    pub heartbeats: Heartbeats,
}

/// When nodes send heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Heartbeats {
    /// Each node at this interval; the nodes are spread over it.
    Every(Duration),
    /// On each connection one after another, as fast as they are answered.
    ClosedLoop,
}

/// Connections beside those of nodes and sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Connections {
    /// None.
    None,
    /// All nodes lose theirs and reconnect at the same time, again and again. Between these storms
    /// they send no heartbeats.
    Storms,
    /// So many over which nothing is sent but one heartbeat at the start and one at the end.
    Idle(usize),
}

/// Emulated sessions that do the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crowd {
    /// The name of its measures.
    pub name: &'static str,
    /// How many run at a time.
    pub sessions: usize,
    /// The work of each.
    pub job: Job,
    /// Jobs of one session, one after another, before it ends and a new one starts. None: one
    /// session does them all.
    pub jobs_per_session: Option<u32>,
    /// How its sessions take notifications.
    pub driver: Driver,
}

/// The requests of one job of a session. The job is done when all of them were granted and
/// released.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Job {
    /// MAP slots.
    pub maps: u32,
    /// REDUCE slots.
    pub reduces: u32,
    /// Hosts that each map wants to be near to; 0 is anywhere.
    pub hosts: u32,
    /// How these hosts are chosen.
    pub placement: Placement,
    /// How long a slot is held.
    pub hold: Duration,
    /// Requests in one call.
    pub request_batch: u32,
    /// Slots that are released in one call, unless no more are held.
    pub release_batch: u32,
    /// Pause after each job.
    pub pause: Duration,
}

/// Which hosts a map wants to be near to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Those next to one another: map i those of the nodes i, i + 1, ...
    Neighbours,
    /// Anywhere, as a file system spreads its blocks.
    Scattered,
}

/// How a session takes notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// At once.
    Prompt,
    /// There is no listener at its address.
    Dead,
    /// Its listener takes connections and neither reads nor answers.
    Stuck,
}

/// An error in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct PlanError(String);

/// The longest run, without the start and the end.
const LONGEST_SECONDS: u64 = 3_600;

impl Plan {
    /// Holds everything against its bounds.
    pub fn check(&self) -> Result<(), PlanError> {
        within("the seconds of warm-up", self.warm_up.as_secs(), 0, LONGEST_SECONDS)?;
        within("the seconds of the run", self.duration.as_secs(), 1, LONGEST_SECONDS)?;
        within("seconds to reconnect", self.reconnect.as_secs(), 0, LONGEST_SECONDS)?;
        within("threads", self.threads as u64, 1, 64)?;
        let Nodes { count, cpus, map_slots, connections, .. } = self.nodes;
        // Without a node nothing is granted, so that nothing could be right or wrong.
        let least_nodes = u64::from(!matches!(self.connections, Connections::Idle(_)));
        within("nodes", count as u64, least_nodes, 1_000_000)?;
        within("CPUs", u64::try_from(cpus).unwrap_or(0), 1, 1_024)?;
        within("MAP slots of a node", map_slots.into(), 0, 100_000)?;
        let most_connections = count.min(50_000) as u64;
        match self.connections {
            Connections::Storms => within("nodes in a storm", count as u64, 1, 50_000)?,
            Connections::Idle(idle) => within("idle connections", idle as u64, 1, 50_000)?,
            Connections::None => {}
        }
        let least = if self.connections == Connections::None { count.min(1) as u64 } else { 0 };
        within("connections of nodes", connections as u64, least, most_connections)?;
        if let Heartbeats::Every(interval) = self.nodes.heartbeats {
            let ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
            within("milliseconds between heartbeats", ms, 10, 600_000)?;
        }
        let crowds = || self.crowds.iter().chain(&self.late_crowds);
        let sessions = crowds().map(|crowd| crowd.sessions as u64).sum();
        within("sessions", sessions, 0, 50_000)?;
        for crowd in crowds() {
            crowd.check()?;
        }
        let each = |crowd: &Crowd| crowd.sessions as u64 * crowd.job.slots();
        within("outstanding requests", crowds().map(each).sum(), 0, 20_000_000)
    }

    /// Connections that may be open at a time, in both directions.
    pub fn most_connections(&self) -> usize {
        let sessions = self.crowds.iter().chain(&self.late_crowds).map(|crowd| crowd.sessions);
        let others = match self.connections {
            Connections::None => 0,
            Connections::Storms => self.nodes.count,
            Connections::Idle(idle) => idle,
        };
        // Each session has one to the cluster manager and one from it.
        others + self.nodes.connections + 2 * sessions.sum::<usize>() + 1
    }

    /// The longest that the run may take.
    pub fn most_time(&self) -> Duration {
        super::SET_UP_TIME + self.warm_up + self.duration + super::ENDING_TIME
    }
}

impl Crowd {
    fn check(&self) -> Result<(), PlanError> {
        let Job { hosts, hold, request_batch, release_batch, pause, .. } = self.job;
        within("sessions", self.sessions as u64, 1, 50_000)?;
        within("slots of a session", self.job.slots(), 1, 1_000_000)?;
        within("hosts of a request", hosts.into(), 0, 100)?;
        within("requests in one call", request_batch.into(), 1, 100_000)?;
        within("releases in one call", release_batch.into(), 1, 100_000)?;
        within("seconds that a slot is held", hold.as_secs(), 0, LONGEST_SECONDS)?;
        within("seconds between two jobs", pause.as_secs(), 0, LONGEST_SECONDS)?;
        within("jobs of a session", self.jobs_per_session.unwrap_or(1).into(), 1, 1_000_000)
    }
}

impl Job {
    /// Slots of both types.
    pub(super) fn slots(&self) -> u64 {
        u64::from(self.maps) + u64::from(self.reduces)
    }
}

fn within(what: &'static str, found: u64, least: u64, most: u64) -> Result<(), PlanError> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(PlanError(format!("{what} must be from {least} to {most}, not {found}")))
}

impl Plan {
    /// The load, one line for each part, at most 79 columns.
    pub fn describe(&self) -> Vec<String> {
        let mut lines = match self.connections {
            Connections::None => vec![self.nodes.describe()],
            Connections::Storms => {
                let nodes = number(self.nodes.count as u64);
                vec![format!("{nodes} nodes that reconnect at the same time, again and again")]
            }
            Connections::Idle(idle) => {
                vec![format!("{} idle connections", number(idle as u64))]
            }
        };
        lines.extend(self.crowds.iter().map(|crowd| crowd.describe("")));
        lines.extend(self.late_crowds.iter().map(|crowd| crowd.describe("later, ")));
        lines.push(format!(
            "{} after {} of warm-up, at most {} with start and end",
            seconds(self.duration),
            seconds(self.warm_up),
            seconds(self.most_time()),
        ));
        lines
    }
}

impl Nodes {
    fn describe(&self) -> String {
        let Nodes { count, cpus, map_slots, connections, heartbeats } = self;
        if *count == 0 {
            return "no nodes".into();
        }
        let (count, connections) = (number(*count as u64), number(*connections as u64));
        let beat = match heartbeats {
            Heartbeats::Every(interval) => format!("each {}", seconds(*interval)),
            Heartbeats::ClosedLoop => "in closed loop".into(),
        };
        let slots = number((*map_slots).into());
        format!(
            "{count} nodes of {cpus} CPUs and {slots} maps, heartbeats {beat} over {connections} \
             connections"
        )
    }
}

impl Crowd {
    fn describe(&self, when: &str) -> String {
        let Crowd { name, sessions, job, driver, .. } = self;
        let mut text = format!("{when}{}", many(*sessions as u64, "session"));
        text += &format!(" ({name}) of {}", many(job.maps.into(), "map"));
        if job.hosts > 0 {
            text += &format!(" near {}", many(job.hosts.into(), "host"));
        }
        if job.reduces > 0 {
            text += &format!(" and {}", many(job.reduces.into(), "reduce"));
        }
        if !job.hold.is_zero() {
            text += &format!(", held {}", seconds(job.hold));
        }
        if !job.pause.is_zero() {
            text += &format!(", {} between jobs", seconds(job.pause));
        }
        match driver {
            Driver::Prompt => {}
            Driver::Dead => text += ", not listening",
            Driver::Stuck => text += ", not answering",
        }
        text
    }
}

/// A number and the name of the counted things.
fn many(count: u64, what: &str) -> String {
    format!("{} {what}{}", number(count), if count == 1 { "" } else { "s" })
}

/// A time in seconds, with as many places as it needs.
fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
