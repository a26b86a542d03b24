//! All that a tracker knows and has begun, for the program that takes the place of this one in the same process.
//!
//! The processes of tasks go on meanwhile, and stay children of this process. Works that wait end where they wait, and
//! the next program begins them again in the same order: a task that waits for slots or files, a deletion, a report.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::launch::{HandedReady, Ready};
use super::orders::Owed;
use super::reporter::{self, Position};
use super::reuse::Pooled;
use super::run::{LiveAttempt, Process, Role, Runner, StopOrder, enter};
use super::{Parts, Tracker, TrackerCore, TrackerState, name, now};
use crate::attempt::Cause;
use crate::child::{HandedChild, RunningChild, TaskUsage, adopt};
use crate::handover::encoded::{Encoded, NotEncoded, named};
use crate::localise::{HandedFiles, Localiser};
use crate::table::{
    AttemptRun, AttemptTable, HandedRun, HandedTable, Order, TableLimits, readable,
};
use corona_hadoop::writables::{InetAddress, JobId};

/// How long works may take until they wait for something. Those that do not end by then are cut off.
const FREEZE: Duration = Duration::from_secs(10);

/// All that a tracker knows and has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedTracker {
    table: HandedTable,
    files: HandedFiles,
    /// Processes of tasks that have not ended, or have left others behind.
    children: Vec<HandedChild>,
    works: Vec<HandedWork>,
    jvms: Vec<HandedJvm>,
    reporters: Vec<HandedReporter>,
    next_jvm: i32,
    was_heard: bool,
}

/// A work on an attempt or a job, in the order of their places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum HandedWork {
    Run(Box<HandedLive>),
    DeleteAttempt { attempt: String, keep_output: bool },
    DeleteJob { job: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HandedLive {
    run: HandedRun,
    order: StopOrder,
    ready: Option<HandedReady>,
    process: Option<HandedProcess>,
    /// The process that was started for it and may run further tasks.
    hosted: Option<HandedHost>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HandedProcess {
    pid: i32,
    memory_bytes: u64,
    base: TaskUsage,
    role: HandedRole,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum HandedRole {
    Single,
    Host(Encoded),
    Guest { jvm: Encoded, has_more: bool },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HandedHost {
    jvm: Encoded,
    pid: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HandedJvm {
    jvm: Encoded,
    pid: i32,
    host: HandedRun,
    left: Option<u32>,
    /// For how long it has had no task, in milliseconds.
    idle_ms: Option<u64>,
    is_retired: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HandedReporter {
    job: String,
    address: Encoded,
    launched_by: Encoded,
    response_id: i16,
    interval_ms: u64,
}

impl HandedTracker {
    /// The processes of tasks.
    pub fn children(&self) -> &[HandedChild] {
        &self.children
    }

    /// The names of the control groups of the processes.
    pub fn groups(&self) -> HashSet<OsString> {
        let name = |path: &Path| path.file_name().map(ToOwned::to_owned);
        self.children.iter().filter_map(|child| name(child.group.as_deref()?)).collect()
    }
}

impl Tracker {
    /// How long the text of all that is handed over is now, at most.
    pub fn handed_bytes(&self) -> usize {
        self.shared.lock().table.handed_bytes()
    }

    /// Stops to decide and to act, and hands everything over. Tasks go on. Calls must not come any more.
    pub async fn hand_over(&self) -> HandedTracker {
        let shared = &self.shared;
        // What works decide until they end is handed over too.
        shared.frozen.send_replace(true);
        if timeout(FREEZE, shared.stop.closed()).await.is_err() {
            tracing::warn!(
                "some work of the task tracker did not stop in time; continuing without it"
            );
        }
        shared.parts.notes.let_go().await;
        let mut state = shared.lock();
        state.stopped = true;
        state.hand_over(shared)
    }
}

impl TrackerState {
    fn hand_over(&self, shared: &TrackerCore) -> HandedTracker {
        let mut children = BTreeMap::new();
        let mut note = |child: &RunningChild| {
            children.insert(child.pid(), child.hand_over());
            child.pid()
        };
        let mut works = BTreeMap::new();
        for live in self.live.values() {
            let process = live.process.as_ref().map(|process| HandedProcess {
                pid: note(&process.child),
                memory_bytes: process.memory_bytes,
                base: process.base,
                role: HandedRole::of(&process.role),
            });
            let hosted = live.hosted.as_ref();
            let hosted =
                hosted.map(|(jvm, child)| HandedHost { jvm: Encoded::of(jvm), pid: note(child) });
            let live_handed = HandedLive {
                run: HandedRun::of(&live.run),
                order: *live.order.borrow(),
                ready: live.ready.as_ref().map(|ready| ready.hand_over()),
                process,
                hosted,
            };
            works.insert(live.place, HandedWork::Run(Box::new(live_handed)));
        }
        for (place, owed) in &self.owed {
            works.insert(*place, HandedWork::of(owed));
        }
        let now_at = now();
        let jvms = self.jvms.all().iter().map(|pooled| HandedJvm {
            jvm: Encoded::of(&pooled.jvm),
            pid: note(&pooled.child),
            host: HandedRun::of(&pooled.host),
            left: pooled.left,
            idle_ms: pooled.idle_since.map(|since| {
                let idle = now_at.instant.saturating_duration_since(since);
                u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)
            }),
            is_retired: pooled.is_retired,
        });
        let jvms = jvms.collect();
        let reporters = self.reporters.iter().map(|(job, handle)| {
            let Position { address, launched_by, response_id, interval } = handle.position();
            HandedReporter {
                job: job.to_string(),
                address: Encoded::of(&address),
                launched_by: Encoded::of(&launched_by),
                response_id,
                interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
            }
        });
        HandedTracker {
            table: self.table.hand_over(now_at),
            files: shared.parts.localiser.hand_over(),
            reporters: reporters.collect(),
            jvms,
            works: works.into_values().collect(),
            children: children.into_values().collect(),
            next_jvm: shared.next_jvm.load(Ordering::Relaxed),
            was_heard: shared.was_heard.load(Ordering::Relaxed),
        }
    }
}

impl HandedWork {
    fn of(owed: &Owed) -> HandedWork {
        match owed {
            Owed::Attempt { id, keep_output } => {
                HandedWork::DeleteAttempt { attempt: id.to_string(), keep_output: *keep_output }
            }
            Owed::Job(job) => HandedWork::DeleteJob { job: job.to_string() },
        }
    }
}

impl HandedRole {
    fn of(role: &Role) -> HandedRole {
        match role {
            Role::Single => HandedRole::Single,
            Role::Host(jvm) => HandedRole::Host(Encoded::of(jvm)),
            Role::Guest { jvm, has_more } => {
                HandedRole::Guest { jvm: Encoded::of(jvm), has_more: *has_more }
            }
        }
    }

    fn read(&self) -> Result<Role, NotEncoded> {
        Ok(match self {
            HandedRole::Single => Role::Single,
            HandedRole::Host(jvm) => Role::Host(jvm.read()?),
            HandedRole::Guest { jvm, has_more } => {
                Role::Guest { jvm: jvm.read()?, has_more: *has_more }
            }
        })
    }
}

/// What a former program has handed over, read and ready to go on.
#[derive(Debug)]
pub struct Former {
    table: AttemptTable,
    children: Vec<HandedChild>,
    works: Vec<Work>,
    jvms: Vec<Pooled<i32>>,
    reporters: Vec<(JobId, Position)>,
    next_jvm: i32,
    was_heard: bool,
}

#[derive(Debug)]
enum Work {
    Run(Box<LiveWork>),
    Delete(Order),
}

/// A run, and what it needs to go on.
#[derive(Debug)]
struct LiveWork {
    run: AttemptRun,
    order: StopOrder,
    /// What it was started with, until it is read.
    handed: Option<HandedReady>,
    /// The same, read; an error if it cannot go on.
    ready: Option<Result<Ready, String>>,
    process: Option<(i32, u64, TaskUsage, Role)>,
    hosted: Option<(corona_hadoop::writables::JvmId, i32)>,
}

impl Former {
    /// Reads what was handed over, and takes the files of jobs over. What cannot be read is lost alone. It blocks.
    pub fn read(handed: HandedTracker, localiser: &Localiser, limits: TableLimits) -> Former {
        let files = handed.files.clone();
        let mut former = Former::parse(handed, limits);
        let running = former.works.iter().filter_map(Work::live);
        let job = |live: &LiveWork| {
            let has_process = live.process.is_some() || live.hosted.is_some();
            has_process.then(|| live.run.attempt.job().to_string().parse().ok())?
        };
        let held =
            running.clone().filter_map(|live| live.handed.as_ref()).flat_map(HandedReady::held);
        localiser.take_over(&files, &held.collect::<Vec<_>>(), running.filter_map(job).collect());
        for work in &mut former.works {
            if let Work::Run(live) = work
                && let Some(handed) = live.handed.take()
            {
                let ready = Ready::take_over(handed, localiser);
                live.ready = Some(ready.map_err(|error| error.to_string()));
            }
        }
        former
    }

    /// Reads what was handed over, and no file.
    fn parse(handed: HandedTracker, limits: TableLimits) -> Former {
        let table = AttemptTable::take_over(&handed.table, limits, now());
        let read_jvm = |pooled: HandedJvm| {
            let idle = pooled.idle_ms.map(Duration::from_millis);
            let since = |idle| Instant::now().checked_sub(idle).unwrap_or_else(Instant::now);
            Ok(Pooled {
                jvm: pooled.jvm.read()?,
                child: pooled.pid,
                host: pooled.host.read()?,
                left: pooled.left,
                idle_since: idle.map(since),
                is_retired: pooled.is_retired,
            })
        };
        let read_reporter = |reporter: HandedReporter| {
            let position = Position {
                address: reporter.address.read::<InetAddress>()?,
                launched_by: reporter.launched_by.read::<InetAddress>()?,
                response_id: reporter.response_id,
                interval: Duration::from_millis(reporter.interval_ms),
            };
            Ok((named(&reporter.job)?, position))
        };
        let mut works = readable("a work", handed.works.into_iter(), Work::read);
        for work in &mut works {
            if let Work::Run(live) = work
                && !table.knows(&live.run)
            {
                live.order = StopOrder::End;
            }
        }
        // The files of jobs that were lost.
        for job in handed.files.jobs().filter_map(|job| named::<JobId>(job).ok()) {
            let is_lost = table.session(&job).is_none();
            let order = Order::DeleteJob(job);
            let is_owed = |work: &Work| matches!(work, Work::Delete(owed) if *owed == order);
            if is_lost && !works.iter().any(is_owed) {
                works.push(Work::Delete(order));
            }
        }
        Former {
            works,
            jvms: readable("a process of Java", handed.jvms.into_iter(), read_jvm),
            reporters: readable("a reporter", handed.reporters.into_iter(), read_reporter),
            table,
            children: handed.children,
            next_jvm: handed.next_jvm,
            was_heard: handed.was_heard,
        }
    }
}

impl Work {
    /// The run, if it is one.
    fn live(&self) -> Option<&LiveWork> {
        match self {
            Work::Run(live) => Some(live),
            Work::Delete(_) => None,
        }
    }

    /// Its processes.
    fn pids(&self) -> [Option<i32>; 2] {
        match self {
            Work::Run(live) => [
                live.process.as_ref().map(|(pid, ..)| *pid),
                live.hosted.as_ref().map(|(_, pid)| *pid),
            ],
            Work::Delete(_) => [None, None],
        }
    }

    fn read(work: HandedWork) -> Result<Work, NotEncoded> {
        let live = match work {
            HandedWork::DeleteAttempt { attempt, keep_output: true } => {
                return Ok(Work::Delete(Order::DeleteWork(named(&attempt)?)));
            }
            HandedWork::DeleteAttempt { attempt, keep_output: false } => {
                return Ok(Work::Delete(Order::DeleteAttempt(named(&attempt)?)));
            }
            HandedWork::DeleteJob { job } => {
                return Ok(Work::Delete(Order::DeleteJob(named(&job)?)));
            }
            HandedWork::Run(live) => *live,
        };
        let process = live.process.map(|process| {
            let HandedProcess { pid, memory_bytes, base, role } = process;
            Ok((pid, memory_bytes, base, role.read()?))
        });
        let hosted = live.hosted.map(|hosted| Ok((hosted.jvm.read()?, hosted.pid)));
        Ok(Work::Run(Box::new(LiveWork {
            run: live.run.read()?,
            order: live.order,
            handed: live.ready,
            ready: None,
            process: process.transpose()?,
            hosted: hosted.transpose()?,
        })))
    }
}

impl Tracker {
    /// Starts as [`start`](Tracker::start), and goes on with all that a former program has begun.
    pub fn go_on(parts: Parts, former: Former) -> Tracker {
        let Former { table, children, works, jvms, reporters, next_jvm, was_heard } = former;
        let tracker = Tracker::start_with(parts, table);
        let shared = &tracker.shared;
        shared.next_jvm.store(next_jvm, Ordering::Relaxed);
        shared.was_heard.store(was_heard, Ordering::Relaxed);
        let delay = shared.parts.settings.sigkill_delay;
        let adopted = children.into_iter().map(|child| {
            let (child, is_lost) = adopt(child, &shared.parts.notes, delay);
            (child.pid(), (child, is_lost))
        });
        let adopted: BTreeMap<i32, (RunningChild, bool)> = adopted.collect();
        let mut unclaimed: HashSet<i32> = adopted.keys().copied().collect();
        let of_works = works.iter().flat_map(Work::pids).flatten();
        for claimed in of_works.chain(jvms.iter().map(|jvm| jvm.child)) {
            unclaimed.remove(&claimed);
        }
        // What belongs to them was lost.
        for (child, _) in unclaimed.iter().filter_map(|pid| adopted.get(pid)) {
            child.kill();
        }
        let mut state = shared.lock();
        for pooled in jvms {
            if let Some((child, _)) = adopted.get(&pooled.child) {
                let Pooled { jvm, host, left, idle_since, is_retired, .. } = pooled;
                let child = child.clone();
                state.jvms.enter(Pooled { jvm, child, host, left, idle_since, is_retired });
            }
        }
        // Before those that wait for slots ask for them.
        let mut slots = shared.slots_of(&state, &works);
        for work in works {
            match work {
                Work::Delete(order) => shared.carry_out(&mut state, order),
                Work::Run(live) => {
                    let slots = slots.remove(&live.run.number);
                    shared.go_on(&mut state, *live, &adopted, slots);
                }
            }
        }
        let positions: BTreeMap<JobId, Position> = reporters.into_iter().collect();
        let jobs: Vec<_> = state.table.jobs().map(|(job, of)| (job.clone(), of.clone())).collect();
        for (job, session) in jobs {
            // One whose job tracker was of another build reports no more.
            if let Some(position) = positions.get(&job).cloned() {
                reporter::begin(shared, &mut state, job, session, Some(position));
            }
        }
        drop(state);
        tracker
    }
}

impl TrackerCore {
    /// Goes on with a run.
    fn go_on(
        self: &Arc<Self>,
        state: &mut TrackerState,
        live: LiveWork,
        adopted: &BTreeMap<i32, (RunningChild, bool)>,
        slots: Option<OwnedSemaphorePermit>,
    ) {
        let LiveWork { run, order, ready, process, hosted, .. } = live;
        let Ok(name) = name(&run) else { return };
        let mut live = LiveAttempt::new(run.clone(), name, order);
        let mut is_lost = false;
        live.process = process.and_then(|(pid, memory_bytes, base, role)| {
            let (child, lost) = adopted.get(&pid)?;
            is_lost |= *lost;
            Some(Process { child: child.clone(), memory_bytes, base, role })
        });
        live.hosted = hosted.and_then(|(jvm, pid)| Some((jvm, adopted.get(&pid)?.0.clone())));
        let has_process = live.process.is_some() || live.hosted.is_some();
        if !has_process {
            return match state.table.waits(&run) {
                true => enter(self, state, live, Runner::work_in_line),
                false => self.end_lost(
                    state,
                    &run,
                    "its process was not started before the task tracker restarted",
                ),
            };
        }
        match ready {
            Some(Ok(ready)) => {
                let ready = Arc::new(ready);
                live.ready = Some(ready.clone());
                enter(self, state, live, |runner, _| runner.go_on(ready, slots));
                if is_lost {
                    self.end_lost(
                        state,
                        &run,
                        "its process was not found after the task tracker restarted",
                    );
                }
            }
            other => {
                let why = match other {
                    Some(Err(error)) => error,
                    _ => "its files are not known".to_owned(),
                };
                let own = live.process.iter().map(|process| &process.child);
                for child in own.chain(live.hosted.iter().map(|(_, child)| child)) {
                    child.kill();
                }
                self.end_lost(
                    state,
                    &run,
                    &format!("the restarted task tracker cannot go on with it: {why}"),
                );
            }
        }
    }

    /// Ends a run that cannot go on. That does not count against its task.
    fn end_lost(self: &Arc<Self>, state: &mut TrackerState, run: &AttemptRun, why: &str) {
        if !state.table.is_open(run) {
            return;
        }
        tracing::warn!(attempt = %run.attempt, why, "lost an attempt in a restart");
        let why = format!("Lost in a restart of the task tracker: {why}.\n");
        let mut orders = state.table.kill(run, Cause::Request, &why, now());
        if !state.live.contains_key(&run.number) {
            orders.extend(state.table.exited(run, &why, now()));
        }
        for order in orders {
            self.carry_out(state, order);
        }
    }

    /// The slots of the runs whose tasks work, by their numbers. There may be fewer by now.
    fn slots_of(&self, state: &TrackerState, works: &[Work]) -> HashMap<u64, OwnedSemaphorePermit> {
        let take = |work: &Work| {
            let live = work.live()?;
            let works = live.process.is_some() && live.order == StopOrder::Nothing;
            let (slots, wanted) = self.wanted_slots(state, works.then_some(&live.run)?)?;
            let free = u32::try_from(slots.available_permits().min(Semaphore::MAX_PERMITS));
            let wanted = wanted.min(free.unwrap_or(u32::MAX));
            Some((live.run.number, slots.try_acquire_many_owned(wanted).ok()?))
        };
        works.iter().filter_map(take).collect()
    }
}
