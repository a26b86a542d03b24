//! A job: a session that requests slots, holds each for as long as a task takes, and releases it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::machine::{Condition, Machine, Task};
use super::news::News;
use super::random::between;
use super::settings::SESSION_EXPIRY_MS;
use super::stage::{Stage, add};
use corona_model::random::Random;
use corona_session_driver::{
    DriverError, Ending, Event, Grant, Lost, NodeUsage, Options, PoolName, ResourceType,
    SessionDriver, SessionEvents, SessionPriority, SessionStatus, SlotRequest, Timers,
};

/// Failed tasks of a job on one node after which it uses the node no more and reports it.
const MOST_FAILURES: i32 = 2;
/// How soon a task on a broken node fails, in seconds of the demo.
const FAILURE_SECONDS: f64 = 0.7;
/// How often it is looked whether a node that is off is on again.
const LOOK_SECONDS: f64 = 1.0;
/// Copies of each block of the input.
const COPIES: usize = 3;

/// The work of a job.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) name: Arc<str>,
    pub(super) user: &'static str,
    pub(super) pool: PoolName,
    pub(super) priority: SessionPriority,
    pub(super) maps: usize,
    pub(super) reduces: usize,
    /// Shortest and longest map and reduce, in seconds of the demo.
    pub(super) map_seconds: (f64, f64),
    pub(super) reduce_seconds: (f64, f64),
    /// Where all of its input is, and nowhere else.
    pub(super) input_on: Option<Arc<Machine>>,
    /// Whether it fails when half of its maps are done.
    pub(super) fails: bool,
    pub(super) scripted: bool,
}

/// A piece of work on a node.
#[derive(Debug)]
struct Piece {
    kind: ResourceType,
    node: Arc<str>,
    /// `None` on nodes that are not the demo's.
    task: Option<Task>,
    /// Whether it fails when it ends.
    fails: bool,
}

/// A job's failures on one node.
#[derive(Debug, Default)]
struct Trouble {
    host: Arc<str>,
    failures: i32,
    reported: bool,
}

/// Runs a job from its start to its end.
pub(super) async fn run(stage: Arc<Stage>, plan: Plan, random: Random) {
    let mut options = Options::new(stage.manager.clone(), plan.user);
    options.name = Some(plan.name.to_string());
    options.pool = plan.pool.clone();
    options.priority = plan.priority;
    options.timers = Timers::for_session_expiry(Duration::from_millis(SESSION_EXPIRY_MS));
    let (driver, events) = match stage.host.start(options).await {
        Ok(started) => started,
        Err(error) => {
            let (name, user, reason) = (plan.name, plan.user, error.to_string());
            return stage.tell(News::JobRefused { name, user, reason });
        }
    };
    let session = driver.handle().clone();
    stage.job_started(session.clone(), plan.name.clone());
    stage.tell(News::JobStarted {
        session: session.clone(),
        name: plan.name.clone(),
        user: plan.user,
        pool: driver.pool().to_string(),
        maps: plan.maps,
        reduces: plan.reduces,
        scripted: plan.scripted,
    });
    let mut job = Job {
        stage: stage.clone(),
        plan,
        random,
        driver,
        events,
        pieces: HashMap::new(),
        ends: BTreeSet::new(),
        done: [0, 0],
        asked_for_reduces: false,
        troubles: BTreeMap::new(),
    };
    let status = match job.work().await {
        Ok(status) => match &*job.driver.end(status).await {
            Ending::Ended(_) => status.name(),
            _ => GONE,
        },
        Err(_) => GONE,
    };
    if status == SessionStatus::Successful.name() {
        add(&stage.counts.succeeded, 1);
    }
    stage.job_ended(&session);
    let Plan { name, user, scripted, .. } = job.plan;
    stage.tell(News::JobEnded { session, name, user, status, scripted });
}

/// The cluster manager has ended the session.
const GONE: &str = "GONE";

struct Job {
    stage: Arc<Stage>,
    plan: Plan,
    random: Random,
    driver: SessionDriver,
    events: SessionEvents,
    /// By the id of the request.
    pieces: HashMap<i32, Piece>,
    ends: BTreeSet<(Instant, i32)>,
    /// Maps and reduces.
    done: [usize; 2],
    asked_for_reduces: bool,
    troubles: BTreeMap<Arc<str>, Trouble>,
}

impl Job {
    /// Works until everything is done. An error means that the session is over.
    async fn work(&mut self) -> Result<SessionStatus, DriverError> {
        let maps = (0..self.plan.maps).map(|_| self.map()).collect();
        self.driver.request(maps)?;
        while self.done != [self.plan.maps, self.plan.reduces] {
            if self.done[0] * 2 >= self.plan.maps {
                if self.plan.fails {
                    return Ok(SessionStatus::Failed);
                }
                if !self.asked_for_reduces {
                    self.asked_for_reduces = true;
                    let reduce = SlotRequest::new(ResourceType::Reduce);
                    self.driver.request(vec![reduce; self.plan.reduces])?;
                }
            }
            let next = self.ends.first().map(|(at, _)| *at);
            let wait = async {
                match next {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = self.events.next() => match event {
                    Some(Event::Granted(grants)) => self.begin(grants),
                    Some(Event::Revoked(lost) | Event::DeadNode { lost, .. }) => {
                        self.begin_again(&lost)?;
                    }
                    Some(Event::Ended(_)) | None => return Err(DriverError::Over),
                    Some(_) => {}
                },
                () = wait => self.finish()?,
            }
        }
        Ok(SessionStatus::Successful)
    }

    /// A map near the copies of its input.
    fn map(&mut self) -> SlotRequest {
        let near: Vec<Arc<str>> = match &self.plan.input_on {
            Some(machine) => vec![machine.host.clone()],
            None => self.copies(),
        };
        let avoided: Vec<Arc<str>> = self.avoided().collect();
        let near: Vec<_> = near.into_iter().filter(|host| !avoided.contains(host)).collect();
        SlotRequest::new(ResourceType::Map).near(near).avoiding(avoided)
    }

    /// Where a block of the input lies: on two hosts of a rack and one elsewhere, as in HDFS.
    fn copies(&mut self) -> Vec<Arc<str>> {
        let all = self.stage.machines.all();
        let mut hosts: Vec<Arc<str>> = Vec::with_capacity(COPIES);
        let first = self.random.pick(all);
        let neighbours: Vec<&Arc<Machine>> =
            all.iter().filter(|other| other.rack == first.rack).collect();
        let second = *self.random.pick(&neighbours);
        let third = self.random.pick(all);
        for machine in [first, second, third] {
            if !hosts.contains(&machine.host) {
                hosts.push(machine.host.clone());
            }
        }
        hosts
    }

    fn avoided(&self) -> impl Iterator<Item = Arc<str>> {
        let bad = self.troubles.values().filter(|trouble| trouble.failures >= MOST_FAILURES);
        bad.map(|trouble| trouble.host.clone())
    }

    fn begin(&mut self, grants: Vec<Grant>) {
        let now = Instant::now();
        for Grant { id, node_name, kind, .. } in grants {
            let machine = self.stage.machines.named(&node_name);
            let fails = machine.is_some_and(|machine| machine.condition() == Condition::Faulty);
            let (least, most) = match kind {
                ResourceType::Map => self.plan.map_seconds,
                _ => self.plan.reduce_seconds,
            };
            let seconds =
                if fails { FAILURE_SECONDS } else { between(&mut self.random, least, most) };
            let task = machine.map(|machine| Task::start(machine, kind));
            self.pieces.insert(id, Piece { kind, node: node_name, task, fails });
            self.ends.insert((now + self.stage.pace.seconds(seconds), id));
        }
    }

    /// Requests slots again that were revoked or died with their node.
    fn begin_again(&mut self, lost: &[Lost]) -> Result<(), DriverError> {
        for lost in lost {
            self.pieces.remove(&lost.request.id);
        }
        self.ends.retain(|(_, id)| self.pieces.contains_key(id));
        self.driver.replace(lost)?;
        Ok(())
    }

    /// Releases the slots of tasks that have ended.
    fn finish(&mut self) -> Result<(), DriverError> {
        let now = Instant::now();
        let (mut release, mut again) = (Vec::new(), Vec::new());
        while let Some((at, id)) = self.ends.first().copied() {
            if at > now {
                break;
            }
            self.ends.remove(&(at, id));
            let Some(piece) = self.pieces.get_mut(&id) else { continue };
            let is_off =
                piece.task.as_ref().is_some_and(|task| task.machine.condition() == Condition::Off);
            if is_off {
                // It reports nothing until the cluster manager declares the node dead, or until the
                // node is back without the task.
                piece.fails = true;
                self.ends.insert((now + self.stage.pace.seconds(LOOK_SECONDS), id));
                continue;
            }
            let Some(piece) = self.pieces.remove(&id) else { continue };
            release.push(id);
            if piece.fails {
                add(&self.stage.counts.tasks_failed, 1);
                self.note_failure(&piece)?;
                again.push(piece.kind);
            } else {
                add(&self.stage.counts.tasks, 1);
                self.done[usize::from(piece.kind != ResourceType::Map)] += 1;
            }
        }
        self.driver.release(release)?;
        let again: Vec<SlotRequest> = again.into_iter().map(|kind| self.request(kind)).collect();
        if !again.is_empty() {
            self.driver.request(again)?;
        }
        Ok(())
    }

    fn request(&mut self, kind: ResourceType) -> SlotRequest {
        match kind {
            ResourceType::Map => self.map(),
            _ => SlotRequest::new(kind).avoiding(self.avoided()),
        }
    }

    /// Too many failures on a node are reported to the cluster manager, once.
    fn note_failure(&mut self, piece: &Piece) -> Result<(), DriverError> {
        let Some(task) = &piece.task else { return Ok(()) };
        let trouble = self.troubles.entry(piece.node.clone()).or_default();
        trouble.host = task.machine.host.clone();
        trouble.failures += 1;
        if trouble.failures < MOST_FAILURES || trouble.reported {
            return Ok(());
        }
        trouble.reported = true;
        let failed = trouble.failures;
        let mut usage = NodeUsage::new(piece.node.clone());
        (usage.total_tasks, usage.failed) = (failed, failed);
        self.driver.feedback(vec![usage])
    }
}
