//! The tracker at work: the [`AttemptTable`] decides, and this module carries its orders out.
//!
//! One short mutex guards the table and the running work; no code waits while it holds it. An order
//! of the table starts at once, as a task that waits for its predecessors (`queues.rs`), so that no
//! job waits for another one's disks or job tracker.
//!
//! * `orders.rs`: the work that each order starts;
//! * `pulse.rs`: whether orders may be old, because this process has hung;
//! * `run.rs`, `launch.rs`: an attempt from its launch until nothing is left of its process;
//! * `reuse.rs`: processes that run several tasks;
//! * `services.rs`: the calls of job trackers and of processes of tasks;
//! * `reporter.rs`, `fail_over.rs`: heartbeats to the job tracker of a job;
//! * `usage.rs`: what tasks use;
//! * `watch.rs`, `kept_logs.rs`: memory, logs and disks;
//! * `handed.rs`: its state, for the program that takes the place of this one;
//! * `snapshot.rs`: its status, for people.

mod fail_over;
mod handed;
mod kept_logs;
mod launch;
mod log_budget;
mod orders;
mod pulse;
mod queues;
mod reporter;
mod reuse;
mod run;
mod services;
mod settings;
mod snapshot;
#[cfg(test)]
mod tests;
mod usage;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Semaphore, watch as channel};

use super::attempt::{Cause, Now};
use super::child::{Cgroups, ClassArchives, Install, Logs, ProcessNotes, RunningChild};
use super::ids::{AttemptId, NotAnId};
use super::local_dirs::{LocalDirs, any_jvm_number};
use super::localise::Localiser;
use super::map_output::MapOutputs;
use super::node::fitness::Fitness;
use super::table::{AttemptRun, AttemptTable, Order};
use corona_hadoop::writables::{JobId, NodeHealth, TaskAttemptId, TaskTrackerAction};
use corona_process::now_ms;
use log_budget::LogBudget;
use orders::Owed;
use pulse::Pulse;
use queues::Queues;
use reuse::JvmPool;
use run::LiveAttempt;

pub use handed::{Former, HandedTracker};
pub use kept_logs::KeptLogs;
pub use services::{JobTrackers, NoJobTrackers};
pub use settings::{ReportSettings, TrackerSettings};
pub use snapshot::{AttemptSnapshot, JobSnapshot, SlotUse, Snapshot};

/// The parts of a tracker.
pub struct Parts {
    /// How the tracker names itself to job trackers.
    pub identity: Identity,
    /// How many tasks it runs at a time.
    pub slots: SlotCounts,
    /// The programs that it runs tasks with.
    pub install: Install,
    /// Where their files lie.
    pub dirs: Arc<LocalDirs>,
    /// Whether it takes tasks.
    pub fitness: Arc<Fitness>,
    /// The reader of jobs' files.
    pub localiser: Localiser,
    /// Where notes of processes are left for the next run of the program.
    pub notes: ProcessNotes,
    /// The logs of tasks.
    pub logs: Logs,
    /// The outputs of maps, as they are served.
    pub outputs: Arc<MapOutputs>,
    /// Where the processes of tasks report to.
    pub umbilical: SocketAddr,
    /// The archive of the classes of the install, if it is used.
    pub archives: Option<Arc<ClassArchives>>,
    /// The control groups of tasks, if they have any.
    pub cgroups: Option<Cgroups>,
    /// The results of the node's health script.
    pub health: channel::Receiver<NodeHealth>,
    /// Times and bounds.
    pub settings: TrackerSettings,
}

/// A tracker's identity for the cluster manager and job trackers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name, of no other tracker and of no earlier run.
    pub name: String,
    /// The name of its machine.
    pub host: String,
    /// Where it serves map outputs and logs.
    pub http_port: u16,
}

/// How many slots there are of each type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Maps at a time.
    pub maps: u32,
    /// Reduces at a time.
    pub reduces: u32,
}

/// A tracker at work. Copies are the same tracker.
#[derive(Clone)]
pub struct Tracker {
    shared: Arc<TrackerCore>,
}

struct TrackerCore {
    parts: Parts,
    map_slots: Arc<Semaphore>,
    reduce_slots: Arc<Semaphore>,
    state: Mutex<TrackerState>,
    /// The number of the next process of a task.
    next_jvm: AtomicI32,
    /// Whether a job tracker has answered a heartbeat since the program started.
    was_heard: AtomicBool,
    pulse: Mutex<Pulse>,
    /// The machine's data in reports, and when it was read.
    machine: Mutex<Option<(Instant, reporter::Machine)>>,
    /// Becomes true when everything is to end. Each task on its own holds a receiver.
    stop: channel::Sender<bool>,
    /// Becomes true when another program is to go on with everything: each task on its own ends where it waits.
    frozen: channel::Sender<bool>,
}

/// Decisions, and work in progress.
#[derive(Debug)]
struct TrackerState {
    table: AttemptTable,
    /// Runs that have been begun and are not over, by number.
    live: HashMap<u64, LiveAttempt>,
    /// Processes that may take further tasks.
    jvms: JvmPool<RunningChild>,
    reporters: HashMap<JobId, reporter::Handle>,
    queues: Queues,
    /// Deletions that are not over, by the numbers of their places.
    owed: BTreeMap<u64, Owed>,
    /// Attempts whose logs are kept though no run of them is known here, and for how many reasons.
    kept_logs: BTreeMap<AttemptId, usize>,
    log: LogBudget,
    stopped: bool,
}

impl fmt::Debug for Tracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tracker").field(&self.shared.parts.identity).finish()
    }
}

impl Tracker {
    /// Starts to work, until [`stop`](Tracker::stop), on tasks of the executor that this is called
    /// on.
    pub fn start(parts: Parts) -> Tracker {
        let table = AttemptTable::new(parts.settings.table);
        Tracker::start_with(parts, table)
    }

    fn start_with(parts: Parts, table: AttemptTable) -> Tracker {
        let semaphore = |slots: u32| {
            let slots = usize::try_from(slots).unwrap_or(usize::MAX);
            Arc::new(Semaphore::new(slots.min(Semaphore::MAX_PERMITS)))
        };
        let state = TrackerState {
            table,
            live: HashMap::new(),
            jvms: JvmPool::default(),
            reporters: HashMap::new(),
            queues: Queues::default(),
            owed: BTreeMap::new(),
            kept_logs: BTreeMap::new(),
            log: LogBudget::default(),
            stopped: false,
        };
        // A process of an earlier run of the program must not be taken for one of this run.
        let first_jvm = any_jvm_number();
        let shared = Arc::new(TrackerCore {
            map_slots: semaphore(parts.slots.maps),
            reduce_slots: semaphore(parts.slots.reduces),
            parts,
            state: Mutex::new(state),
            next_jvm: AtomicI32::new(first_jvm),
            was_heard: AtomicBool::new(false),
            pulse: Mutex::new(Pulse::new(Instant::now())),
            machine: Mutex::default(),
            stop: channel::Sender::new(false),
            frozen: channel::Sender::new(false),
        });
        watch::start(&shared);
        Tracker { shared }
    }

    /// Takes actions of job trackers, in order. Actions without effect are logged.
    pub fn submit_actions(&self, actions: Vec<TaskTrackerAction>) {
        for action in actions {
            self.shared.apply(|table, now| table.submit(action, now));
        }
    }

    /// Ends and forgets all jobs of a session.
    pub fn purge_session(&self, handle: &str) {
        self.shared.apply(|table, _| table.purge_session(handle));
    }

    /// Takes no more actions of a session.
    pub fn blacklist_session(&self, handle: &str) {
        self.shared.lock().table.blacklist_session(handle);
    }

    /// The output of a map cannot be served: it counts as failed. `why` is for its user.
    pub fn lose_output(&self, attempt: &AttemptId, why: &str) {
        let Ok(id) = attempt.as_str().parse::<TaskAttemptId>() else { return };
        self.shared.parts.outputs.forget(attempt);
        self.shared.apply(|table, _| table.lose_output(&id, why));
    }

    /// Kills the task that loses the least work, if there is one, to free disk space.
    /// [`LocalDirs::must_kill`] decides whether that is necessary.
    pub fn kill_one_for_room(&self) {
        self.shared.apply(|table, now| {
            let run = table.cheapest()?;
            let attempt = &run.attempt;
            tracing::warn!(%attempt, "killed an attempt because the local directories are full");
            let why = "Tasktracker running out of space. Killing task.";
            Some(table.kill(&run, Cause::Request, why, now))
        });
    }

    /// Accepts no more work, ends all processes and their descendants, and waits for that up to a
    /// limit. Job trackers are not notified: they consider the tracker lost.
    pub async fn stop(&self) {
        let shared = &self.shared;
        shared.close();
        // Every task holds a receiver, and none is left when all are over.
        let over = tokio::time::timeout(shared.parts.settings.stop_timeout, shared.stop.closed());
        if over.await.is_err() {
            tracing::warn!("shutdown timed out; some task processes are still running");
        }
    }
}

impl TrackerCore {
    fn lock(&self) -> MutexGuard<'_, TrackerState> {
        // No panic is expected while it is held, and after one most of the state is still right.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The signs of life of this process.
    fn pulse(&self) -> MutexGuard<'_, Pulse> {
        self.pulse.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the table decide, and begins its orders.
    fn apply<O: Ordered>(self: &Arc<Self>, decide: impl FnOnce(&mut AttemptTable, Now) -> O) {
        let mut state = self.lock();
        if state.stopped {
            return;
        }
        let orders = decide(&mut state.table, now()).orders(&mut state.log);
        for order in orders {
            self.carry_out(&mut state, order);
        }
    }

    /// Ends everything that has been begun, and begins nothing more.
    fn close(&self) {
        let mut state = self.lock();
        state.stopped = true;
        for live in state.live.values() {
            live.order(run::StopOrder::End);
        }
        state.reporters.clear();
        self.stop.send_replace(true);
    }
}

/// The result of a decision of the table.
trait Ordered {
    fn orders(self, log: &mut LogBudget) -> Vec<Order>;
}

impl Ordered for Vec<Order> {
    fn orders(self, _log: &mut LogBudget) -> Vec<Order> {
        self
    }
}

impl Ordered for Option<Vec<Order>> {
    fn orders(self, _log: &mut LogBudget) -> Vec<Order> {
        self.unwrap_or_default()
    }
}

impl Ordered for Result<Vec<Order>, super::table::Ignored> {
    fn orders(self, log: &mut LogBudget) -> Vec<Order> {
        self.unwrap_or_else(|ignored| {
            if let Some(left_out) = log.admit(Instant::now()) {
                tracing::info!(%ignored, left_out, "ignored an action of a job tracker");
            }
            vec![]
        })
    }
}

/// The present time.
fn now() -> Now {
    Now { since_epoch_ms: now_ms(), instant: Instant::now() }
}

/// The name of an attempt as it becomes one of directories.
fn name(run: &AttemptRun) -> Result<AttemptId, NotAnId> {
    run.attempt.to_string().parse()
}
