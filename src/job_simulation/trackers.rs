//! Simulated task trackers: attempts that run, fail, hang or vanish, and what is reported of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use corona_job_engine::reach::Answer;
use corona_job_engine::{Launch, Order, Work};
use corona_mapreduce::{AttemptKey, RecordRange, TaskState, TaskStatus};
use corona_model::types::{Address, ComputeSpecs, Millis, NodeReport, PerType};
use corona_simulation::Random;

use super::weather::{Temper, Weather};

/// The number of a job in a run.
pub(crate) type JobNumber = usize;

/// A node with its task tracker.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) host: Arc<str>,
    number: usize,
    /// How often it has started.
    starts: u32,
    pub(crate) alive: bool,
    /// Its machine is gone too: nothing there refuses a connection.
    is_off: bool,
    /// Until then its task tracker does nothing, though the node heartbeats.
    pub(crate) hangs_until: Millis,
    pub(crate) attempts: BTreeMap<(JobNumber, AttemptKey), Running>,
    /// The jobs to which it reports.
    pub(crate) reports_to: BTreeSet<JobNumber>,
}

/// An attempt on a node.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    /// Distinguishes attempts with the same id.
    pub(crate) serial: u64,
    pub(crate) state: TaskState,
    plan: Plan,
    started: Millis,
    work_ms: i64,
    /// It makes no progress until it is given up.
    hangs: bool,
    /// Where it was when it failed on a bad record.
    next_records: RecordRange,
    /// It fails on a bad record, or only tests some records.
    pub(crate) is_for_records: bool,
    /// Cleans up after an attempt that failed, or was killed.
    cleans: Option<bool>,
    /// It fails because the disks of its node are full.
    has_no_room: bool,
    pub(crate) failed_fetches: Vec<AttemptKey>,
}

/// What an attempt will do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plan {
    Succeed { commit: bool },
    Fail { unclean: bool },
    Hang,
    Vanish,
}

/// What the next step of an attempt leads to.
pub(crate) enum Next {
    /// Nothing more until an order comes.
    Wait,
    /// Another step, so much later.
    Step(i64),
}

/// An order that a job gives to a node, with what it must launch.
#[derive(Clone, Debug)]
pub(crate) enum NodeOrder {
    Launch(Launch),
    Kill(AttemptKey),
    Commit(AttemptKey),
    KillJob,
}

impl NodeOrder {
    /// The order as the job engine names it.
    pub(crate) fn name(&self) -> Order {
        match self {
            NodeOrder::Launch(launch) => Order::Launch(launch.attempt),
            NodeOrder::Kill(attempt) => Order::Kill(*attempt),
            NodeOrder::Commit(attempt) => Order::Commit(*attempt),
            NodeOrder::KillJob => Order::KillJob,
        }
    }
}

impl Node {
    pub(crate) fn new(number: usize, host: Arc<str>) -> Node {
        Node {
            host,
            number,
            starts: 1,
            alive: true,
            is_off: false,
            hangs_until: Millis(0),
            attempts: BTreeMap::new(),
            reports_to: BTreeSet::new(),
        }
    }

    /// The name of this start of the node.
    pub(crate) fn name(&self) -> Arc<str> {
        format!("tracker_{}:{}.{}", self.host, self.number, self.starts).into()
    }

    pub(crate) fn dies(&mut self, is_off: bool) {
        (self.alive, self.is_off) = (false, is_off);
        self.attempts.clear();
        self.reports_to.clear();
    }

    pub(crate) fn starts_again(&mut self) {
        self.alive = true;
        self.starts += 1;
        self.hangs_until = Millis(0);
    }

    pub(crate) fn works(&self, now: Millis) -> bool {
        self.alive && self.hangs_until <= now
    }

    /// Where its task tracker takes orders.
    pub(crate) fn address(&self) -> Arc<str> {
        format!("{}:{}", self.host, 1000 + self.number).into()
    }

    /// The answer to somebody who connects to its task tracker. One that hangs has a listener still.
    pub(crate) fn answer(&self) -> Answer {
        match (self.alive, self.is_off) {
            (true, _) => Answer::Connected,
            (false, false) => Answer::Refused,
            (false, true) => Answer::Nothing,
        }
    }

    pub(crate) fn report_to_cluster(&self) -> NodeReport {
        let total = ComputeSpecs {
            num_cpus: 1,
            network_mbps: Some(1000),
            memory_mb: Some(100_000),
            disk_gb: Some(1000),
        };
        let app = self.address();
        NodeReport {
            name: self.name(),
            address: Address { host: self.host.clone(), port: 1 },
            total,
            free: None,
            apps: PerType([Some(app.clone()), Some(app), None]),
        }
    }

    /// Starts an attempt; its first step follows so many milliseconds later.
    pub(crate) fn launch(
        &mut self,
        (job, launch): (JobNumber, &Launch),
        (temper, weather): (&Temper, &Weather),
        (now, serial): (Millis, u64),
        random: &mut Random,
    ) -> i64 {
        let cleans = match launch.work {
            Work::TaskCleanup { failed } => Some(failed),
            _ => None,
        };
        let is_work = matches!(launch.work, Work::Task { .. });
        let bad = temper.bad_record(launch);
        let fails = is_work && launch.attempt.number < temper.failures(launch.attempt.task);
        let has_no_room = is_work && weather.node_full && self.number == 0;
        let plan = if has_no_room {
            Plan::Fail { unclean: random.percent(60) }
        } else if random.percent(weather.attempt_hangs) {
            Plan::Hang
        } else if random.percent(weather.attempt_vanishes) {
            Plan::Vanish
        } else if fails || bad.is_some() {
            Plan::Fail { unclean: random.percent(60) }
        } else {
            Plan::Succeed { commit: is_work && temper.commits }
        };
        let is_test = matches!(launch.work, Work::Task { write_skipped: false, .. });
        let is_for_records = match plan {
            Plan::Fail { .. } => bad.is_some() && !fails && !has_no_room,
            Plan::Succeed { .. } => is_test,
            Plan::Hang | Plan::Vanish => false,
        };
        let next_records = match (bad.filter(|_| !has_no_room), &launch.work) {
            (Some(bad), Work::Task { skipping: true, .. }) => {
                let length = random.between(1, MOST_SUSPECTS);
                RecordRange { start: (bad - random.between(0, length - 1)).max(0), length }
            }
            _ => RecordRange::default(),
        };
        let state = match cleans {
            Some(true) => TaskState::FailedUnclean,
            Some(false) => TaskState::KilledUnclean,
            None => TaskState::Unassigned,
        };
        let work_ms = if is_work { random.between(50, temper.work_ms) } else { 100 };
        let running = Running {
            serial,
            state,
            plan,
            started: now,
            work_ms,
            hangs: plan == Plan::Hang,
            next_records,
            is_for_records,
            cleans,
            has_no_room,
            failed_fetches: Vec::new(),
        };
        self.attempts.insert((job, launch.attempt), running);
        random.between(5, 300)
    }
}

/// The report of an attempt whose node has a full disk.
const NO_ROOM: &str = "java.io.IOException: No space left on device";
/// A task tracker gives up an attempt that makes no progress for so long.
const SILENCE_MS: i64 = 15_000;
/// The most records on which an attempt may have failed.
pub(crate) const MOST_SUSPECTS: i64 = 8;

impl Running {
    /// Whether it says that it runs and makes no progress.
    pub(crate) fn hangs(&self) -> bool {
        self.hangs && self.state == TaskState::Running
    }

    /// Whether it was to start before its node hung, and has not.
    pub(crate) fn has_waited_since(&self, hung_until: Millis) -> bool {
        self.state == TaskState::Unassigned && self.started < hung_until
    }

    /// Whether its next step would be its success: a reduce needs the outputs of all maps for that.
    pub(crate) fn is_about_to_succeed(&self) -> bool {
        self.state == TaskState::Running && matches!(self.plan, Plan::Succeed { .. })
    }

    /// Advances by one step; absent if it vanishes.
    pub(crate) fn step(&mut self, killed: bool, random: &mut Random) -> Option<Next> {
        if let Some(failed) = self.cleans {
            let end = if failed { TaskState::Failed } else { TaskState::Killed };
            return match self.plan {
                Plan::Vanish => None,
                Plan::Hang if !killed => {
                    self.plan = Plan::Succeed { commit: false };
                    Some(Next::Step(SILENCE_MS))
                }
                _ => {
                    self.state = end;
                    Some(Next::Wait)
                }
            };
        }
        if killed {
            let unclean = self.state != TaskState::Unassigned && random.percent(40);
            self.state = if unclean { TaskState::KilledUnclean } else { TaskState::Killed };
            return Some(Next::Wait);
        }
        match (self.state, self.plan) {
            (_, Plan::Vanish) => None,
            (TaskState::Unassigned, Plan::Hang) => {
                self.state = TaskState::Running;
                self.plan = Plan::Fail { unclean: true };
                Some(Next::Step(SILENCE_MS))
            }
            (TaskState::Unassigned, _) => {
                self.state = TaskState::Running;
                Some(Next::Step(self.work_ms))
            }
            (TaskState::Running, Plan::Succeed { commit: true }) => {
                self.state = TaskState::CommitPending;
                Some(Next::Wait)
            }
            (TaskState::Running, Plan::Succeed { .. }) | (TaskState::CommitPending, _) => {
                self.state = TaskState::Succeeded;
                Some(Next::Wait)
            }
            (TaskState::Running, Plan::Fail { unclean }) => {
                self.state = if unclean { TaskState::FailedUnclean } else { TaskState::Failed };
                Some(Next::Wait)
            }
            _ => Some(Next::Wait),
        }
    }

    /// Whether its end may be reported: it is over, and what it cleans up is not.
    pub(crate) fn has_ended(&self) -> bool {
        match self.cleans {
            Some(_) => self.state.is_final(),
            None => !self.state.is_live(),
        }
    }

    pub(crate) fn status(&mut self, attempt: AttemptKey, now: Millis) -> TaskStatus {
        let part = now.since(self.started) as f32 / self.work_ms.max(1) as f32;
        let part = if self.hangs { 0.0 } else { part };
        let finish_time_ms = if self.has_ended() { now.0 } else { 0 };
        let failed_fetches = std::mem::take(&mut self.failed_fetches);
        let reduce = corona_mapreduce::ReduceProgress { failed_fetches, ..Default::default() };
        let no_room = self.has_no_room && self.state.is_failed();
        TaskStatus {
            diagnostics: if no_room { NO_ROOM.into() } else { String::new() },
            progress: part,
            start_time_ms: self.started.0,
            finish_time_ms,
            reduce: Some(reduce),
            next_records: self.next_records,
            ..TaskStatus::new(attempt, self.state)
        }
    }
}
