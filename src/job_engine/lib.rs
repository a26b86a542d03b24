//! The job engine: everything that is decided about one job, and nothing that is done.
//!
//! [`JobEngine::apply`] takes one input at a time and returns a reply and effects. It has no socket,
//! thread, clock, randomness or file; [`JobEngine::next_deadline`] says when time alone changes something.
//! The engine is its own image: written and read again, it gives the same outcomes for all further inputs.
//!
//! The rules are those of the original's job tracker, without its traps. Spec: mapreduce/05 §5.3, §5.5,
//! §5.6, with the corrections of mapreduce/09.
//!
//! [`parent`] decides the same about a job whose job tracker runs on a node.
//!
//! A job goes through these stages:
//!
//! ```text
//! new ──Submitted──► set-up ──► work ──► clean-up ──► over
//!                      └─ too many failures ─┘  ▲
//!                                 └─────────────┘
//! ```
//!
//! Its user may kill it at any time: then only its clean-up is left, which must not take long. Slots are requested for a certain task; a slot
//! that comes runs, in this order, the job's clean-up, its set-up, the clean-up of an attempt of its task,
//! or its task.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]

mod audit;
mod efforts;
mod finish;
mod input;
mod nodes;
mod outlines;
pub mod parent;
pub mod reach;
mod records;
mod reports;
mod restore;
mod skipping;
mod slots;
mod speculation;
mod tasks;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use corona_mapreduce::{
    AttemptKey, CompletionEvent, CounterNames, EventStatus, HistoryRecord, JobState, PerKind,
    TaskKey, TaskKind, TaskRole,
};
use corona_model::types::{Millis, ResourceRequest, SessionPriority};
use serde::{Deserialize, Serialize};

pub use self::efforts::Efforts;
pub use self::input::{
    GrantedSlot, JobEffect, JobInput, JobOutcome, JobRefusal, JobReply, JobSpec, JobTotals, Launch,
    NodeUsage, Order, RequestId, SavedEvent, Tracker, Work,
};
use self::nodes::{HostIdx, Hosts, NodeIdx, Nodes};
pub use self::outlines::{
    AttemptSpan, AttemptTimes, NodeOutline, NodeUse, TaskOutline, TaskStanding,
};
pub use self::reports::{MAX_NODE_FAULTS, TIMEOUT_TEXTS};
use self::speculation::Statistics;
use self::tasks::{Attempt, Slot, Task};
pub use self::views::{AttemptView, JobProgress, TaskView};

/// The group of the counters of tasks that the original defines.
pub const TASK_COUNTERS: &str = "org.apache.hadoop.mapred.Task$Counter";

/// One job. See the module's text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobEngine {
    /// The submitted job; the splits are in the tasks once these are made.
    spec: JobSpec,
    /// The latest time of an input.
    last: Millis,
    stage: JobStage,
    submitted: Millis,
    finished: Millis,
    priority: SessionPriority,
    hosts: Hosts,
    nodes: Nodes,
    /// Maps, or reduces, of the job's work.
    sizes: PerKind<u32>,
    /// The tasks of the work, then the clean-up task, then the set-up task of the kind.
    tasks: PerKind<Vec<Task>>,
    counts: PerKind<Counts>,
    slots: BTreeMap<RequestId, Slot>,
    /// The granted slots that run nothing.
    free: BTreeSet<RequestId>,
    last_request: i32,
    /// Whether slots for the tasks of the kind have been requested.
    requested: PerKind<bool>,
    /// The hosts that can serve requests, sorted; none if that is not known.
    known_hosts: PerKind<Vec<HostIdx>>,
    /// When to look whether an attempt was heard of. An entry may be older than the attempt's own time.
    due: BTreeSet<(Millis, AttemptKey)>,
    /// When requests that exclude hosts have waited long enough.
    exclusions_due: BTreeSet<(Millis, RequestId)>,
    statistics: PerKind<Statistics>,
    speculation_due: Millis,
    /// When a job that was killed ends although its clean-up has not.
    killed_due: Millis,
    events: Vec<StoredEvent>,
    counter_names: CounterNames,
    totals: JobTotals,
    #[serde(skip)]
    ran_on: RanOn,
}

/// Where attempts ran whose clean-up was launched on another node. Only pages show it, so it is not kept in
/// images, and makes no two jobs differ.
#[derive(Clone, Debug, Default)]
struct RanOn(BTreeMap<AttemptKey, NodeIdx>);

impl PartialEq for RanOn {
    fn eq(&self, _other: &RanOn) -> bool {
        true
    }
}

/// How far the job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum JobStage {
    /// It was not submitted.
    New,
    /// Its set-up has not succeeded.
    Prep,
    /// Its tasks run.
    Running,
    /// Only its clean-up is left. It ends in this state.
    CleaningUp(JobState),
    /// It has ended.
    Over(JobState),
}

/// Tasks and attempts of the work, by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    /// Tasks that have succeeded.
    finished: u32,
    /// Tasks that have failed.
    failed: u32,
    /// Attempts that were launched and have not ended.
    live: u32,
}

/// A completion event without what follows from its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredEvent {
    attempt: AttemptKey,
    status: EventStatus,
    /// Whose URL it has.
    node: Option<NodeIdx>,
    run_time_ms: i32,
}

/// The effects of an input, while they are collected.
#[derive(Debug, Default)]
struct Turn {
    effects: Vec<JobEffect>,
    requests: Vec<ResourceRequest>,
    releases: Vec<RequestId>,
    /// Slots that were granted or became free.
    fresh: Vec<RequestId>,
    /// Free slots that could not be used so far may be of use now.
    recheck: bool,
}

impl Turn {
    fn record(&mut self, record: HistoryRecord) {
        self.effects.push(JobEffect::Record(record));
    }

    /// The effects, in order: those on attempts, then the requests, then the releases, as the
    /// original sends them. Spec: mapreduce/09 §A.
    fn into_effects(self) -> Vec<JobEffect> {
        let Turn { mut effects, requests, releases, .. } = self;
        if !requests.is_empty() {
            effects.push(JobEffect::Request(requests));
        }
        if !releases.is_empty() {
            effects.push(JobEffect::Release(releases));
        }
        effects
    }
}

impl JobEngine {
    /// A job that was not submitted yet.
    pub fn new(spec: JobSpec) -> JobEngine {
        let sizes = PerKind { map: spec.splits.len() as u32, reduce: spec.reduces };
        JobEngine {
            spec,
            last: Millis(i64::MIN),
            stage: JobStage::New,
            submitted: Millis(0),
            finished: Millis(0),
            priority: SessionPriority::Normal,
            hosts: Hosts::default(),
            nodes: Nodes::default(),
            sizes,
            tasks: PerKind::default(),
            counts: PerKind::default(),
            slots: BTreeMap::new(),
            free: BTreeSet::new(),
            last_request: 0,
            requested: PerKind::default(),
            known_hosts: PerKind::default(),
            due: BTreeSet::new(),
            exclusions_due: BTreeSet::new(),
            statistics: PerKind::default(),
            speculation_due: Millis(i64::MAX),
            killed_due: Millis(i64::MAX),
            events: Vec::new(),
            counter_names: CounterNames::default(),
            totals: JobTotals::default(),
            ran_on: RanOn::default(),
        }
    }

    /// Takes one input at the time `now`. A time before that of an earlier input counts as that time.
    pub fn apply(&mut self, now: Millis, input: JobInput) -> JobOutcome {
        self.last = self.last.max(now);
        let mut turn = Turn::default();
        let reply = self.dispatch(input, &mut turn);
        if reply.is_ok() && self.is_active() {
            self.request_reduces_if_due(&mut turn);
            self.use_free_slots(&mut turn);
            self.request_for_the_job(&mut turn);
        }
        JobOutcome { reply, effects: turn.into_effects() }
    }

    /// Whether the job has begun: [`JobInput::Submitted`] or [`JobInput::Restored`] was taken.
    pub fn has_begun(&self) -> bool {
        self.stage != JobStage::New
    }

    /// The latest time of an input; long ago if there was none.
    pub fn last(&self) -> Millis {
        self.last
    }

    /// When time alone changes something, [`JobInput::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Millis> {
        let attempts = self.due.first().map(|(due, _)| *due);
        let exclusions = self.exclusions_due.first().map(|(due, _)| *due);
        let speculation = self.may_speculate().then_some(self.speculation_due);
        let killed =
            (self.killed_due < Millis(i64::MAX) && self.is_active()).then_some(self.killed_due);
        [attempts, exclusions, speculation, killed].into_iter().flatten().min()
    }

    fn dispatch(&mut self, input: JobInput, turn: &mut Turn) -> Result<JobReply, JobRefusal> {
        match (self.stage, &input) {
            (JobStage::New, JobInput::Submitted) => self.submit(turn),
            (JobStage::New, JobInput::Restored { fail_overs, events }) => {
                self.restore(*fail_overs, events, turn);
            }
            (_, JobInput::Submitted | JobInput::Restored { .. }) => {
                return Err(JobRefusal::AlreadySubmitted);
            }
            (JobStage::Over(_), JobInput::KillJob | JobInput::SessionLost { .. }) => {}
            (JobStage::Over(_), JobInput::Granted { .. } | JobInput::Revoked { .. }) => {}
            (JobStage::Over(_), JobInput::NodeLost { .. } | JobInput::Tick) => {}
            (
                JobStage::Over(_),
                JobInput::Resumed | JobInput::Stalled { .. } | JobInput::CutOff { .. },
            ) => {}
            (JobStage::Over(_), JobInput::ResumedInPlace | JobInput::NotLaunched { .. }) => {}
            (JobStage::Over(_), JobInput::HostsKnown { .. } | JobInput::CallFailed { .. }) => {}
            (JobStage::Over(_), _) => return Err(JobRefusal::Ended),
            _ => return self.dispatch_active(input, turn),
        }
        Ok(JobReply::Done)
    }

    fn dispatch_active(
        &mut self,
        input: JobInput,
        turn: &mut Turn,
    ) -> Result<JobReply, JobRefusal> {
        match input {
            JobInput::Submitted | JobInput::Restored { .. } => {}
            JobInput::Granted { slots } => {
                slots.iter().for_each(|slot| self.granted(slot, turn));
            }
            JobInput::Revoked { ids } => ids.iter().for_each(|id| self.revoked(*id, turn)),
            JobInput::NodeLost { node } => {
                if let Some(node) = self.nodes.find(&node) {
                    self.node_lost(node, turn);
                }
            }
            JobInput::Heartbeat { node, host, http_port, reports } => {
                let node = self.nodes.find(&node).ok_or(JobRefusal::UnknownNode)?;
                self.heard(node, host, http_port, &reports, turn);
            }
            JobInput::CallFailed { node, orders } => {
                let node = self.nodes.find(&node).ok_or(JobRefusal::UnknownNode)?;
                self.call_failed(node, &orders, turn);
            }
            JobInput::HostsKnown { kind, hosts } => self.hosts_known(kind, &hosts, turn),
            JobInput::KillJob => self.kill(turn),
            JobInput::SessionLost { aborted } => {
                use corona_model::types::SessionStatus::{Killed, KilledAborted};
                let status = if aborted { KilledAborted } else { Killed };
                self.finish(JobState::Killed, status, turn);
            }
            JobInput::KillAttempt { attempt, fail } => {
                return self.kill_attempt(attempt, fail, turn).map(JobReply::Killed);
            }
            JobInput::SetPriority { priority } => {
                self.priority = priority;
                turn.effects.push(JobEffect::UpdatePriority(priority));
            }
            JobInput::Speculate { kind, number } => {
                self.speculate(TaskKey { kind, number }, turn)?
            }
            JobInput::Resumed => {
                self.resume(turn);
                self.give_up_launches(self.attempts_in_doubt(), turn);
            }
            JobInput::ResumedInPlace => {
                self.resume(turn);
                self.await_launches();
            }
            JobInput::NotLaunched { attempts } => self.give_up_launches(attempts, turn),
            JobInput::Stalled { ms } => self.excuse(ms.max(0), |_| true),
            JobInput::CutOff { nodes, ms } => {
                let nodes: BTreeSet<NodeIdx> =
                    nodes.iter().filter_map(|node| self.nodes.find(node)).collect();
                self.excuse(ms.max(0), |node| nodes.contains(&node));
            }
            JobInput::Tick => self.tick(turn),
        }
        Ok(JobReply::Done)
    }

    /// Makes the tasks and requests slots. Spec: mapreduce/05 §5.3, mapreduce/09 §D.
    fn submit(&mut self, turn: &mut Turn) {
        self.make_tasks(turn);
        self.requested.map = true;
        for number in 0..self.sizes.map {
            self.request(TaskKey { kind: TaskKind::Map, number }, turn);
        }
    }

    fn make_tasks(&mut self, turn: &mut Turn) {
        self.submitted = self.last;
        for kind in TaskKind::ALL {
            self.tasks[kind].reserve_exact(self.sizes[kind] as usize + 2);
        }
        for split in mem::take(&mut self.spec.splits) {
            let hosts = split.hosts.iter().map(|host| self.hosts.number(host)).collect();
            self.tasks.map.push(Task::new(hosts));
        }
        for kind in TaskKind::ALL {
            let size = self.sizes[kind] as usize + 2;
            self.tasks[kind].resize_with(size, || Task::new(Box::default()));
        }
        self.stage = JobStage::Prep;
        self.record_start(turn);
        if !self.spec.settings.setup_cleanup_needed {
            self.begin_work(turn);
        }
    }

    /// The set-up is done or not needed.
    fn begin_work(&mut self, turn: &mut Turn) {
        self.stage = JobStage::Running;
        self.speculation_due = self.last.plus_ms(self.spec.settings.speculation_refresh_ms);
        turn.record(HistoryRecord::Running);
        turn.recheck = true;
        self.clean_up_if_done(turn);
    }

    fn request_reduces_if_due(&mut self, turn: &mut Turn) {
        if !self.is_working() || self.requested.reduce || self.sizes.reduce == 0 {
            return;
        }
        let settings = &self.spec.settings;
        let (maps, reduces) = (self.sizes.map as usize, self.sizes.reduce as usize);
        let counts = self.counts.map;
        let enough = (settings.slow_start * maps as f64).ceil();
        let due = maps <= settings.rush_maps
            || reduces <= settings.rush_reduces
            || f64::from(counts.finished + counts.failed) >= enough;
        if due {
            self.requested.reduce = true;
            for number in 0..self.sizes.reduce {
                self.request(TaskKey { kind: TaskKind::Reduce, number }, turn);
            }
        }
    }

    /// Whether tasks of the work may still begin: it is being set up, or runs.
    fn is_working(&self) -> bool {
        matches!(self.stage, JobStage::Prep | JobStage::Running)
    }

    /// Whether inputs may still change something.
    fn is_active(&self) -> bool {
        !matches!(self.stage, JobStage::New | JobStage::Over(_))
    }

    /// The purpose of a task. Spec: mapreduce/05 §5.3.
    pub fn role(&self, task: TaskKey) -> TaskRole {
        match (task.number.checked_sub(self.sizes[task.kind]), task.kind) {
            (None, TaskKind::Map) => TaskRole::Map,
            (None, TaskKind::Reduce) => TaskRole::Reduce,
            (Some(0), _) => TaskRole::Cleanup,
            (Some(_), _) => TaskRole::Setup,
        }
    }

    /// The clean-up task of a kind.
    fn cleanup_task(&self, kind: TaskKind) -> TaskKey {
        TaskKey { kind, number: self.sizes[kind] }
    }

    /// The set-up task of a kind.
    fn setup_task(&self, kind: TaskKind) -> TaskKey {
        TaskKey { kind, number: self.sizes[kind] + 1 }
    }

    fn task(&self, key: TaskKey) -> &Task {
        &self.tasks[key.kind][key.number as usize]
    }

    fn task_mut(&mut self, key: TaskKey) -> &mut Task {
        &mut self.tasks[key.kind][key.number as usize]
    }

    fn attempt(&self, key: AttemptKey) -> &Attempt {
        &self.task(key.task).attempts[key.number as usize]
    }

    fn attempt_mut(&mut self, key: AttemptKey) -> &mut Attempt {
        &mut self.task_mut(key.task).attempts[key.number as usize]
    }

    /// Whether the job has this attempt. All keys that come from outside pass here.
    fn has(&self, key: AttemptKey) -> bool {
        let task = self.tasks[key.task.kind].get(key.task.number as usize);
        task.is_some_and(|task| (key.number as usize) < task.attempts.len())
    }

    /// All tasks, those of the work and the others.
    fn keys(&self) -> impl Iterator<Item = TaskKey> + use<> {
        let sizes = PerKind::of(|kind| self.tasks[kind].len() as u32);
        TaskKind::ALL
            .into_iter()
            .flat_map(move |kind| (0..sizes[kind]).map(move |number| TaskKey { kind, number }))
    }

    /// Adds an event and returns its place. Spec: mapreduce/02 §2.8.
    fn add_event(
        &mut self,
        attempt: AttemptKey,
        status: EventStatus,
        node: Option<NodeIdx>,
        turn: &mut Turn,
    ) -> u32 {
        let Attempt { start_ms, finish_ms, .. } = *self.attempt(attempt);
        let run_time_ms = match start_ms {
            0 => 0,
            start => finish_ms.saturating_sub(start).clamp(0, i32::MAX.into()) as i32,
        };
        let id = self.events.len() as u32;
        self.events.push(StoredEvent { attempt, status, node, run_time_ms });
        turn.effects.push(JobEffect::Event { id, event: self.event(id as usize) });
        id
    }

    fn event(&self, id: usize) -> CompletionEvent {
        let StoredEvent { attempt, status, node, run_time_ms } = self.events[id];
        let http = node.and_then(|node| self.nodes[node].http.as_ref());
        CompletionEvent {
            attempt,
            is_map: self.role(attempt.task) == TaskRole::Map,
            status,
            tracker_http: http.map(|http| http.url.clone()),
            run_time_ms,
        }
    }

    fn host_names(&self, hosts: &[HostIdx]) -> Vec<Arc<str>> {
        hosts.iter().map(|host| self.hosts.name(*host).clone()).collect()
    }
}
