//! One run of an attempt: from its launch until nothing is left of its process.
//!
//! Spec: mapreduce/04 §4.3 to §4.7, §4.10.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep_until, timeout};

use super::launch::{self, Ready, Reuse};
use super::reporter::still_runs;
use super::{TrackerCore, TrackerState, name, usage};
use crate::attempt::Cause;
use crate::child::{self, CgroupLimits, DebugScript, Exit, RunningChild, TaskGroup, TaskUsage};
use crate::ids::AttemptId;
use crate::localise::TaskKind;
use crate::machine_stats::machine;
use crate::table::{AttemptRun, Started};
use corona_config::keys;
use corona_hadoop::protocols::inter_tracker::InterTrackerClient;
use corona_hadoop::writables::JvmId;
use corona_mapreduce::TaskDemand;
use corona_model::types::ResourceType;
use corona_process::panics::{blocking, caught};

/// The least pause between two looks whether a process with tasks is idle.
const LEAST_IDLE_LOOK: Duration = Duration::from_secs(1);

/// A run that has begun and is not over.
#[derive(Debug)]
pub(super) struct LiveAttempt {
    pub(super) run: AttemptRun,
    pub(super) name: AttemptId,
    /// The number of its place among all works.
    pub(super) place: u64,
    pub(super) order: watch::Sender<StopOrder>,
    /// What it is started with, once that is known.
    pub(super) ready: Option<Arc<Ready>>,
    /// Its process, once there is one.
    pub(super) process: Option<Process>,
    /// The process that was started for it and may run further tasks.
    pub(super) hosted: Option<(JvmId, RunningChild)>,
}

/// The process of a run.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) child: RunningChild,
    /// The memory limit of its job, in bytes.
    pub(super) memory_bytes: u64,
    /// What it had used before it took the task.
    pub(super) base: TaskUsage,
    pub(super) role: Role,
}

/// How far the end of a run has been ordered, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum StopOrder {
    /// Nothing yet.
    Nothing,
    /// Its work is done.
    Release,
    End,
}

impl LiveAttempt {
    /// One that has just been begun.
    pub(super) fn new(run: AttemptRun, name: AttemptId, order: StopOrder) -> LiveAttempt {
        let order = watch::Sender::new(order);
        LiveAttempt { run, name, place: 0, order, ready: None, process: None, hosted: None }
    }

    /// Orders the run to end, unless it has this order already.
    pub(super) fn order(&self, order: StopOrder) {
        self.order.send_if_modified(|current| {
            let more = order > *current;
            *current = (*current).max(order);
            more
        });
    }
}

/// Begins a run. It waits for its turn and for slots.
pub(super) fn begin(shared: &Arc<TrackerCore>, state: &mut TrackerState, run: AttemptRun) {
    begin_with(shared, state, run, Runner::work_in_line);
}

/// The same, with the work to do when its turn has come.
pub(super) fn begin_with<W>(
    shared: &Arc<TrackerCore>,
    state: &mut TrackerState,
    run: AttemptRun,
    work: impl FnOnce(Runner, &TrackerState) -> W,
) where
    W: Future<Output = ()> + Send + 'static,
{
    // More than there are attempts: some may have to wait for runs that were killed long ago.
    let limit = shared.parts.settings.table.attempts.saturating_mul(2);
    let refused = match name(&run) {
        Ok(_) if state.live.len() >= limit => "the task tracker ends too many tasks".to_owned(),
        Err(wrong) => wrong.to_string(),
        Ok(name) => {
            if let Some(idle) = state.jvms.retire(&run.attempt) {
                idle.kill();
            }
            let live = LiveAttempt::new(run, name, StopOrder::Nothing);
            return enter(shared, state, live, work);
        }
    };
    let why = format!("Error initializing {}:\n{refused}", run.attempt);
    let orders = state.table.kill(&run, Cause::Failure, &why, super::now());
    for order in orders {
        shared.carry_out(state, order);
    }
}

/// Enters a run among the others, and begins its work when its turn has come.
pub(super) fn enter<W>(
    shared: &Arc<TrackerCore>,
    state: &mut TrackerState,
    mut live: LiveAttempt,
    work: impl FnOnce(Runner, &TrackerState) -> W,
) where
    W: Future<Output = ()> + Send + 'static,
{
    let run = live.run.clone();
    let place = state.queues.attempt(&run.attempt);
    live.place = place.number;
    let runner = Runner {
        shared: shared.clone(),
        run: run.clone(),
        name: live.name.clone(),
        listen: live.order.subscribe(),
        is_doubtful: shared.pulse().doubts(Instant::now()),
        is_next: place.is_next(),
        slots: None,
    };
    state.live.insert(run.number, live);
    let job = run.attempt.job().clone();
    let work = to_the_end(shared.clone(), run, work(runner, state));
    shared.spawn(shared.clone().in_turn(job, place, work));
}

/// Does the work of a run. Whatever its result, its attempt and its process have ended afterwards.
async fn to_the_end(shared: Arc<TrackerCore>, run: AttemptRun, work: impl Future<Output = ()>) {
    let done = caught(work).await;
    let why = match done {
        Err(panic) => Some(panic.to_string()),
        Ok(()) if shared.is_open(&run) => Some("it ended without an outcome".to_owned()),
        Ok(()) => None,
    };
    if let Some(why) = why {
        tracing::error!(attempt = %run.attempt, why, "the handling of an attempt panicked; ending the attempt");
        let child = {
            let mut state = shared.lock();
            let hosted = state.jvms.take_of(&run);
            let own = state.live.get(&run.number).and_then(|live| live.process.clone());
            hosted.or(own.map(|process| process.child))
        };
        if let Some(child) = child {
            child.kill();
            // None of its files may be deleted before.
            child.wait_until_gone().await;
        }
        let why = format!("The task tracker failed while it handled {}: {why}\n", run.attempt);
        shared.apply(|table, now| table.exited(&run, &why, now));
    }
    shared.lock().live.remove(&run.number);
}

/// The tools of a run.
pub(super) struct Runner {
    shared: Arc<TrackerCore>,
    run: AttemptRun,
    name: AttemptId,
    listen: watch::Receiver<StopOrder>,
    /// Whether the order to begin it may be older than the end of its job.
    is_doubtful: bool,
    /// Whether its turn has come as it is entered.
    is_next: bool,
    /// Its slots, if it has a place among those that wait for slots.
    slots: Option<SlotsToCome>,
}

/// Slots that were asked for: among those who wait, they go in the order of the requests.
type SlotsToCome = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send + Sync>>;

/// Asks for so many slots now.
fn ask(slots: Arc<Semaphore>, wanted: u32) -> SlotsToCome {
    // It is never closed.
    let mut asked: SlotsToCome =
        Box::pin(async move { slots.acquire_many_owned(wanted).await.ok() });
    match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(slots) => Box::pin(std::future::ready(slots)),
        Poll::Pending => asked,
    }
}

/// A process, and the run that it belongs to.
pub(super) struct Task {
    child: RunningChild,
    /// Its slots, until its work is done.
    slots: Option<OwnedSemaphorePermit>,
    /// How long it may be silent.
    timeout: Option<Duration>,
    role: Role,
}

/// The role of a process for the run whose task it has.
#[derive(Clone, Debug)]
pub(super) enum Role {
    /// It was started for the run, and runs this task alone.
    Single,
    /// It was started for the run, and may run further tasks.
    Host(JvmId),
    /// Another run has started it.
    Guest {
        jvm: JvmId,
        /// Whether it may run further tasks after this one.
        has_more: bool,
    },
}

impl Role {
    /// The process, if it may take another task after this one.
    fn has_more(&self) -> Option<&JvmId> {
        match self {
            Role::Host(jvm) | Role::Guest { jvm, has_more: true } => Some(jvm),
            Role::Single | Role::Guest { has_more: false, .. } => None,
        }
    }

    fn is_guest(&self) -> bool {
        matches!(self, Role::Guest { .. })
    }
}

/// How the time of a run with a process ends.
enum AfterTask {
    /// The process has ended.
    Ended,
    /// The task is done, and the process waits for another one.
    Idle(JvmId),
    /// The process of another run was to take the task, and did not.
    NotTaken,
}

impl Runner {
    /// Works, with a place among those that wait for slots from now on: tasks take slots in the order of their
    /// launches, in whatever order threads begin with them.
    pub(super) fn work_in_line(
        mut self,
        state: &TrackerState,
    ) -> impl Future<Output = ()> + Send + use<> {
        if self.is_next
            && let Some((slots, wanted)) = self.shared.wanted_slots(state, &self.run)
        {
            self.slots = (wanted > 0).then(|| ask(slots, wanted));
        }
        self.work()
    }

    async fn work(mut self) {
        // The following state is large, and of many launched runs most wait.
        if let Some(slots) = self.slots().await {
            Box::pin(self.with_slots(slots)).await;
        }
    }

    /// Waits until at least `least` was ordered.
    async fn ordered(listen: &mut watch::Receiver<StopOrder>, least: StopOrder) {
        if listen.wait_for(|order| *order >= least).await.is_err() {
            // The sender was dropped, so there are no more orders.
            std::future::pending::<()>().await;
        }
    }

    /// Waits for slots. None if it is to end.
    pub(super) async fn slots(&mut self) -> Option<OwnedSemaphorePermit> {
        let (slots, wanted) = self.shared.wanted_slots(&self.shared.lock(), &self.run)?;
        if wanted == 0 {
            self.fail("this task tracker has no slots for such tasks");
            return None;
        }
        let asked = self.slots.take().unwrap_or_else(|| ask(slots, wanted));
        tokio::select! {
            biased;
            () = Self::ordered(&mut self.listen, StopOrder::End) => None,
            slots = asked => slots,
        }
    }

    /// Goes on with a run that a former program has begun.
    pub(super) async fn go_on(mut self, ready: Arc<Ready>, slots: Option<OwnedSemaphorePermit>) {
        let (process, hosted) = {
            let state = self.shared.lock();
            let Some(live) = state.live.get(&self.run.number) else { return };
            (live.process.clone(), live.hosted.clone())
        };
        match (process, hosted) {
            (Some(Process { child, role, .. }), _) => {
                let task = Task { child, slots, timeout: ready.silence(), role };
                Box::pin(self.see_through(task, &ready)).await;
            }
            (None, Some((jvm, child))) => self.host(&jvm, &child).await,
            (None, None) => {}
        }
    }

    async fn with_slots(&mut self, slots: OwnedSemaphorePermit) {
        let Some((spec, kind)) = self.spec() else { return };
        let ready = self.localise(spec, slots).await;
        let started = match ready {
            Some((ready, slots)) if self.is_confirmed().await => {
                self.start(ready.into(), slots).await
            }
            Some(_) | None => None,
        };
        match started {
            Some((task, ready)) => self.see_through(task, &ready).await,
            None => self.shared.forget_attempt(&self.name, kind, false).await,
        }
    }

    /// Whether the job of the run still runs, if the order to begin it may be an old one. An attempt that starts
    /// after the end of its job would make directories again that the end has deleted.
    async fn is_confirmed(&mut self) -> bool {
        // It may have waited in this process too, while that hung.
        if !self.is_doubtful && !self.shared.pulse().doubts(Instant::now()) {
            return true;
        }
        let job = self.run.attempt.job().clone();
        let Some(session) = self.shared.lock().table.session(&job).cloned() else { return false };
        let address = session.trackers.job_tracker.clone();
        let mut client = InterTrackerClient::new(address, self.shared.client_options());
        let asked = tokio::select! {
            biased;
            () = Self::ordered(&mut self.listen, StopOrder::End) => return false,
            asked = still_runs(&mut client, &job) => asked,
        };
        match asked {
            Ok(true) => true,
            Ok(false) => {
                tracing::info!(attempt = %self.name, "an order to launch was older than the end of its job; deleting the job's files");
                let handle = session.handle.unwrap_or_default();
                self.shared.apply(|table, _| table.purge_session(&handle));
                false
            }
            Err(error) => {
                self.fail(&format!("this node hung when the order came, and the job tracker does not confirm it: {error}"));
                false
            }
        }
    }

    /// From the start of a process until the run needs none any more, and no other run needs one that
    /// was started for it.
    async fn see_through(&mut self, mut task: Task, ready: &Arc<Ready>) {
        loop {
            let child = task.child.clone();
            match self.attend(&mut task, ready).await {
                AfterTask::Ended => {
                    if let Role::Host(jvm) = &task.role {
                        self.shared.lock().jvms.remove(jvm);
                    }
                    // Its end is reported, so that the next task may have been granted the slots already.
                    task.slots = None;
                    // None of its files may be deleted before.
                    return child.wait_until_gone().await;
                }
                AfterTask::Idle(jvm) => {
                    if !task.role.is_guest() {
                        // Its files in the cache, which are on the class path, stay with it.
                        self.host(&jvm, &child).await;
                    }
                    return;
                }
                AfterTask::NotTaken => {
                    child.kill();
                    let slots = task.slots.take();
                    match self.start_elsewhere(ready, slots).await {
                        Some(other) => task = other,
                        None => return,
                    }
                }
            }
        }
    }

    /// Keeps a process that was started for this run as long as other tasks may come, and ends it
    /// when none has come for long.
    async fn host(&mut self, jvm: &JvmId, child: &RunningChild) {
        let limit = self.shared.parts.settings.jvm_idle;
        let mut is_ended = false;
        loop {
            let now = Instant::now();
            let until = match self.shared.lock().jvms.remove_if_idle(jvm, limit, now) {
                Err(over) => over.or_else(|| now.checked_add(limit.max(LEAST_IDLE_LOOK))),
                Ok(()) => None,
            };
            let later = async move {
                match until {
                    Some(until) => sleep_until(until.into()).await,
                    None => std::future::pending().await,
                }
            };
            if until.is_none() {
                child.kill();
            }
            tokio::select! {
                biased;
                _ = child.wait() => break,
                () = Self::ordered(&mut self.listen, StopOrder::End), if !is_ended => {
                    is_ended = true;
                    self.shared.lock().jvms.remove(jvm);
                    child.kill();
                }
                () = later => {}
            }
        }
        self.shared.lock().jvms.remove(jvm);
        self.shared.apply(|table, _| {
            table.jvm_gone(jvm);
            vec![]
        });
        child.wait_until_gone().await;
    }

    /// The files to localise. None if they are not wanted any more, or cannot be read.
    pub(super) fn spec(&self) -> Option<(launch::Spec, TaskKind)> {
        let spec = {
            let state = self.shared.lock();
            let task = state.table.task(&self.run)?;
            let session = state.table.session(self.run.attempt.job())?;
            let is_short = state.table.is_short(&self.run.attempt);
            let reserved = self.shared.parts.settings.memory.reserved_bytes;
            launch::spec(task, is_short, session, &self.name, reserved)
        };
        match spec {
            Ok(spec) => Some((spec.clone(), spec.attempt.kind)),
            Err(error) => {
                self.fail(&error.to_string());
                None
            }
        }
    }

    /// Brings everything here. None if that fails, or if the run is to end. In any case nothing is
    /// being brought here any more when it returns, but the slots are free as soon as they can be.
    pub(super) async fn localise(
        &mut self,
        spec: launch::Spec,
        slots: OwnedSemaphorePermit,
    ) -> Option<(Ready, OwnedSemaphorePermit)> {
        let mut localising = tokio::spawn(launch::prepare(self.shared.clone(), spec));
        let limit = self.shared.parts.settings.localise_timeout;
        let localised = tokio::select! {
            biased;
            () = Self::ordered(&mut self.listen, StopOrder::End) => None,
            localised = timeout(limit, &mut localising) => Some(localised),
        };
        match localised {
            Some(Ok(Ok(Ok(ready)))) => return Some((ready, slots)),
            Some(Ok(Ok(Err(error)))) => self.fail(&error.to_string()),
            Some(Ok(Err(_))) => self.fail("localisation was stopped"),
            Some(Err(_)) => self.fail(&format!("its files were not here within {limit:?}")),
            None => {}
        }
        drop(slots);
        if !localising.is_finished() {
            // Its result is of no use.
            let _ = localising.await;
        }
        None
    }

    /// Starts the process. None if there is none.
    pub(super) async fn start(
        &mut self,
        ready: Arc<Ready>,
        slots: OwnedSemaphorePermit,
    ) -> Option<(Task, Arc<Ready>)> {
        if let Some(live) = self.shared.lock().live.get_mut(&self.run.number) {
            live.ready = Some(ready.clone());
        }
        if let Some(task) = self.start_as_guest(&ready, slots) {
            return match task {
                Ok(task) => Some((task, ready)),
                Err(slots) => self.start_own(&ready, slots).await.map(|task| (task, ready)),
            };
        }
        None
    }

    /// Gives the task to a process of an earlier one of its job, if there is one that waits for it and
    /// the job allows that: `Err` if not. None if the task is not wanted any more.
    fn start_as_guest(
        &self,
        ready: &Ready,
        slots: OwnedSemaphorePermit,
    ) -> Option<Result<Task, OwnedSemaphorePermit>> {
        if ready.reuse.is_none() {
            return Some(Err(slots));
        }
        let claim = {
            let mut state = self.shared.lock();
            loop {
                let Some(claim) = state.jvms.claim(&self.run.attempt) else {
                    return Some(Err(slots));
                };
                if claim.child.exit().is_none() {
                    break claim;
                }
                state.jvms.remove(&claim.jvm);
            }
        };
        let started = ready.started(claim.jvm.clone(), claim.has_more);
        if !self.may_start(started) {
            self.give_back(&claim.jvm, &claim.child);
            return None;
        }
        tracing::debug!(attempt = %self.name, pid = claim.child.pid(), "an idle process takes a further task");
        let role = Role::Guest { jvm: claim.jvm, has_more: claim.has_more };
        Some(Ok(self.task(ready, claim.child, Some(slots), role)))
    }

    /// Starts a process for the task. None if there is none.
    async fn start_own(&self, ready: &Arc<Ready>, slots: OwnedSemaphorePermit) -> Option<Task> {
        if !self.may_start(ready.started(ready.jvm.clone(), ready.reuse.is_some())) {
            return None;
        }
        self.spawn(ready, Some(slots)).await
    }

    /// Starts a process for a task that another one was to take, and did not. None if there is none.
    async fn start_elsewhere(
        &self,
        ready: &Arc<Ready>,
        slots: Option<OwnedSemaphorePermit>,
    ) -> Option<Task> {
        tracing::info!(attempt = %self.name, "an idle process did not take a task; starting another process");
        self.spawn(ready, slots).await
    }

    fn may_start(&self, started: Started) -> bool {
        let mut wanted = false;
        self.shared.apply(|table, now| {
            wanted = table.start(&self.run, started, now);
            vec![]
        });
        wanted
    }

    async fn spawn(&self, ready: &Arc<Ready>, slots: Option<OwnedSemaphorePermit>) -> Option<Task> {
        self.shared.end_an_idle_process(self.run.attempt.task.is_map);
        let (shared, run, name) = (self.shared.clone(), self.run.clone(), self.name.clone());
        let slots_of_task = self.shared.lock().table.task(&self.run).map_or(1, |task| task.slots);
        let (limits, theirs) = (ready.limits(slots_of_task), ready.clone());
        // A program that hands its processes over waits for those that are being started.
        let starting = shared.stop.subscribe();
        let started = blocking(move || {
            let delay = shared.parts.settings.sigkill_delay;
            let group = shared.group(&name, limits);
            let child = child::start(&name, &theirs.command, &shared.parts.notes, delay, group);
            let started = child.map(|child| {
                let role = shared.host(&run, &theirs, &child);
                shared.enter_process(&run, &theirs, &child, &role);
                (child, role)
            });
            drop(starting);
            started
        });
        match started.await {
            Ok((child, role)) => Some(Task { child, slots, timeout: ready.silence(), role }),
            Err(error) => {
                self.exited(&format!("Error initializing {}:\n{error}\n", self.name));
                None
            }
        }
    }

    /// A process that has the task.
    fn task(
        &self,
        ready: &Ready,
        child: RunningChild,
        slots: Option<OwnedSemaphorePermit>,
        role: Role,
    ) -> Task {
        self.shared.enter_process(&self.run, ready, &child, &role);
        Task { child, slots, timeout: ready.silence(), role }
    }

    /// The task of this run is done: its process waits for another one, or ends.
    fn give_back(&self, jvm: &JvmId, child: &RunningChild) {
        let mut state = self.shared.lock();
        if let Some(live) = state.live.get_mut(&self.run.number) {
            live.process = None;
        }
        if !state.jvms.give_back(jvm, Instant::now()) {
            child.kill();
        }
    }

    /// Whether the process of another run has not asked for the task, which this run takes back then:
    /// it is to be started elsewhere.
    fn takes_back(&self, task: &Task, ready: &Ready) -> bool {
        if !task.role.is_guest() {
            return false;
        }
        let mut is_taken_back = false;
        self.shared.apply(|table, _| {
            let started = ready.started(ready.jvm.clone(), ready.reuse.is_some());
            is_taken_back = table.start_elsewhere(&self.run, started);
            vec![]
        });
        is_taken_back
    }

    /// Waits for the end of the process or of its task, and causes it when that is needed.
    async fn attend(&mut self, task: &mut Task, ready: &Ready) -> AfterTask {
        let mut seen = StopOrder::Nothing;
        let mut grace_over: Option<Instant> = None;
        let mut to_be_taken = task
            .role
            .is_guest()
            .then(|| Instant::now().checked_add(self.shared.parts.settings.jvm_take_timeout))
            .flatten();
        let exit = loop {
            let silent_at = self.silent_at(task.timeout);
            let at = |time: Option<Instant>| async move {
                match time {
                    Some(time) => sleep_until(time.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                exit = task.child.wait() => break exit,
                () = Self::ordered(&mut self.listen, next(seen)), if seen < StopOrder::End => {
                    seen = *self.listen.borrow();
                    if seen >= StopOrder::Release {
                        task.slots = None;
                        if let Some(jvm) = task.role.has_more()
                            && seen == StopOrder::Release
                        {
                            let jvm = jvm.clone();
                            let process = self.shared.process_of(&self.run);
                            // At once, for the next task that comes.
                            self.shared.apply(|table, _| table.released(&self.run));
                            self.give_back(&jvm, &task.child);
                            self.record_length(process, ready).await;
                            return AfterTask::Idle(jvm);
                        }
                        grace_over = Some(Instant::now() + self.shared.parts.settings.exit_grace);
                    }
                    let process = self.shared.process_of(&self.run);
                    if seen == StopOrder::End {
                        self.shared.record_last_usage(&self.run, process).await;
                        task.child.kill();
                    } else {
                        self.record_length(process, ready).await;
                    }
                }
                () = at(grace_over), if grace_over.is_some() => {
                    grace_over = None;
                    task.child.kill();
                }
                () = at(to_be_taken), if to_be_taken.is_some() && seen == StopOrder::Nothing => {
                    to_be_taken = None;
                    if self.takes_back(task, ready) {
                        return AfterTask::NotTaken;
                    }
                }
                () = at(silent_at), if seen == StopOrder::Nothing => self.check_silence(task.timeout),
            }
        };
        if seen == StopOrder::Nothing && self.takes_back(task, ready) {
            return AfterTask::NotTaken;
        }
        // A task that has said why it failed does not say that it is done.
        let has_failed = self.shared.lock().table.is_explained(&self.run);
        if seen == StopOrder::Nothing && !has_failed {
            let late = Self::ordered(&mut self.listen, StopOrder::Release);
            let _ = timeout(self.shared.parts.settings.late_done, late).await;
        }
        self.shared.record_last_usage(&self.run, self.shared.process_of(&self.run)).await;
        let debugged = match seen {
            StopOrder::Nothing => self.debug(ready).await,
            StopOrder::Release | StopOrder::End => None,
        };
        let out_of_memory = self.out_of_memory(&task.child, ready).await;
        self.shared.apply(|table, now| {
            let mut why = why(exit, table.is_explained(&self.run));
            why.push_str(&out_of_memory);
            why.push_str(debugged.as_deref().unwrap_or_default());
            table.exited(&self.run, &why, now)
        });
        AfterTask::Ended
    }

    /// Records what a task has used whose work is done, and whether that was short.
    async fn record_length(&self, process: Option<Process>, ready: &Ready) {
        self.shared.record_last_usage(&self.run, process).await;
        if ready.attempt.kind == TaskKind::Work {
            self.shared.lock().table.count_length(&self.run);
        }
    }

    /// The diagnostics of a task that the kernel has killed for its memory; job trackers count a word in
    /// them. Empty for other tasks.
    async fn out_of_memory(&self, child: &RunningChild, ready: &Ready) -> String {
        let (shared, child, attempt) = (self.shared.clone(), child.clone(), self.name.clone());
        let limit_bytes = ready.memory_bytes();
        let looked = blocking(move || {
            let group = child.group().filter(|group| group.is_out_of_memory())?;
            let wanted_bytes = group.usage().peak_memory_bytes;
            let node_bytes = machine(&shared.parts.settings.memory).memory_bytes;
            let sentence = child::exceeded(&attempt, limit_bytes, wanted_bytes, node_bytes);
            Some(format!(
                "Failing CGroup_high_memory task:{attempt} pid:{} taskMemoryLimit:{limit_bytes}\n\
                 {sentence}\n",
                child.pid(),
            ))
        });
        looked.await.unwrap_or_default()
    }

    /// Runs the job's debug script, if its task has failed of its own accord. It is reported as running
    /// meanwhile, and an order to end it ends the script.
    /// Returns its output for the diagnostics.
    async fn debug(&mut self, ready: &Ready) -> Option<String> {
        let script = DebugScript::of(&ready.attempt, &self.shared.parts.logs)?;
        if !self.shared.lock().table.is_active(&self.run) {
            return None;
        }
        let limit = self.shared.parts.settings.debug_timeout;
        let run = tokio::select! {
            biased;
            () = Self::ordered(&mut self.listen, StopOrder::End) => return None,
            run = script.run(limit) => run,
        };
        run.inspect_err(|error| {
            tracing::warn!(attempt = %self.name, %error, "cannot run the debug script of a job");
        })
        .ok()
    }

    /// When the process will have been silent for too long, if it sends nothing until then.
    fn silent_at(&self, timeout: Option<Duration>) -> Option<Instant> {
        let now = super::now();
        let silence = self.shared.lock().table.silence(&self.run, now)?;
        // A moment more, since it is compared in whole milliseconds at the most.
        let left = timeout?.saturating_sub(silence) + Duration::from_millis(1);
        now.instant.checked_add(left)
    }

    fn check_silence(&self, timeout: Option<Duration>) {
        self.shared.apply(|table, now| {
            let silence = table.silence(&self.run, now)?;
            if silence <= timeout? {
                return None;
            }
            let seconds = silence.as_secs();
            let attempt = &self.name;
            let why =
                format!("Task {attempt} failed to report status for {seconds} seconds. Killing!");
            Some(table.kill(&self.run, Cause::Failure, &why, now))
        });
    }

    fn fail(&self, why: &str) {
        let why = format!("Error initializing {}:\n{why}\n", self.name);
        self.shared.apply(|table, now| table.kill(&self.run, Cause::Failure, &why, now));
    }

    fn exited(&self, why: &str) {
        self.shared.apply(|table, now| table.exited(&self.run, why, now));
    }
}

/// The next order after this one.
fn next(order: StopOrder) -> StopOrder {
    match order {
        StopOrder::Nothing => StopOrder::Release,
        StopOrder::Release | StopOrder::End => StopOrder::End,
    }
}

/// The diagnostics of a process that ended without reporting that its work is done. The original
/// has none for status 0, with which a Java task ends that has reported its failure.
fn why(exit: Exit, is_explained: bool) -> String {
    match exit.shell_status() {
        0 if is_explained => String::new(),
        0 => "Task process exited with status 0 before it reported that its work is done.\n".into(),
        status => format!(
            "java.lang.Throwable: Child Error\n\
             Caused by: java.io.IOException: Task process exit with nonzero status of {status}.\n"
        ),
    }
}

impl TrackerCore {
    /// Enters a process that was started for a run, if it may run several tasks. Returns its role for the run.
    fn host(&self, run: &AttemptRun, ready: &Ready, child: &RunningChild) -> Role {
        let Some(Reuse { further }) = ready.reuse else { return Role::Single };
        let jvm = ready.jvm.clone();
        let mut state = self.lock();
        state.jvms.add(jvm.clone(), child.clone(), run.clone(), further);
        if let Some(live) = state.live.get_mut(&run.number) {
            live.hosted = Some((jvm.clone(), child.clone()));
        }
        Role::Host(jvm)
    }

    /// Enters the process that has the task of a run.
    fn enter_process(&self, run: &AttemptRun, ready: &Ready, child: &RunningChild, role: &Role) {
        let base = match role.is_guest() {
            true => usage::before_task(child),
            false => TaskUsage::default(),
        };
        let (child, memory_bytes) = (child.clone(), ready.memory_bytes());
        if let Some(live) = self.lock().live.get_mut(&run.number) {
            live.process = Some(Process { child, memory_bytes, base, role: role.clone() });
        }
    }

    /// Whether a run has still to come to an end: its attempt, or its process.
    fn is_open(&self, run: &AttemptRun) -> bool {
        let state = self.lock();
        !state.stopped && state.table.is_open(run)
    }

    /// The slots for a run, and how many it takes; 0 if there are none at all. None if the run is not
    /// wanted any more.
    pub(super) fn wanted_slots(
        &self,
        state: &TrackerState,
        run: &AttemptRun,
    ) -> Option<(Arc<Semaphore>, u32)> {
        let task = state.table.task(run)?;
        let (slots, all) = match task.is_map() {
            true => (&self.map_slots, self.parts.slots.maps),
            false => (&self.reduce_slots, self.parts.slots.reduces),
        };
        // One that wants more than there are gets all.
        let wanted = u32::try_from(task.slots).unwrap_or(0).max(1).min(all);
        Some((slots.clone(), wanted))
    }
}

impl TrackerCore {
    /// A control group for a process, if tasks have groups here. Without one it runs nevertheless.
    fn group(&self, name: &AttemptId, limits: CgroupLimits) -> Option<TaskGroup> {
        let made = self.parts.cgroups.as_ref()?.make(name.as_str(), limits);
        made.inspect_err(|error| {
            tracing::warn!(attempt = %name, %error, "cannot make a cgroup; starting the task without one");
        })
        .ok()
    }

    /// Ends a process that has been idle for long, if there are as many processes of the type as the
    /// tracker runs tasks. Spec: the original's `JvmManager`.
    fn end_an_idle_process(&self, is_map: bool) {
        let slots = if is_map { self.parts.slots.maps } else { self.parts.slots.reduces };
        let mut state = self.lock();
        let of_type = |live: &&LiveAttempt| live.run.attempt.task.is_map == is_map;
        let busy = state.live.values().filter(of_type).filter(|live| live.process.is_some());
        let processes = busy.count() + state.jvms.idle(is_map);
        let limit = usize::try_from(slots).unwrap_or(usize::MAX);
        if let Some(idle) = state.jvms.make_room(is_map, processes, limit) {
            idle.kill();
        }
    }
}

impl Ready {
    /// Its start in this process.
    fn started(&self, jvm: JvmId, has_more: bool) -> Started {
        let job_file = self.attempt.job_xml.display().to_string();
        Started { jvm, job_file, keep: self.attempt.keep, has_more }
    }

    /// How long its process may be silent.
    fn silence(&self) -> Option<Duration> {
        let timeout_ms = self.attempt.conf.number(&keys::JOB_TASK_TIMEOUT)?;
        u64::try_from(timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// Its limits for the kernel. CPUs that its job names go before its slots: the cluster manager takes them for
    /// slots where it counts no resources.
    pub(super) fn limits(&self, slots: i32) -> CgroupLimits {
        let kind = if self.attempt.is_map { ResourceType::Map } else { ResourceType::Reduce };
        let named = TaskDemand::of(&self.attempt.conf).cpus(kind);
        let cpus = named.unwrap_or_else(|| u32::try_from(slots).unwrap_or(1));
        let memory_bytes = Some(self.memory_bytes()).filter(|bytes| *bytes != u64::MAX);
        CgroupLimits { memory_bytes, cpus }
    }

    /// The memory limit of its process, in bytes.
    fn memory_bytes(&self) -> u64 {
        let key =
            if self.attempt.is_map { &keys::JOB_MAP_MEMORY } else { &keys::JOB_REDUCE_MEMORY };
        let mib = self.attempt.conf.number(key).and_then(|mib| u64::try_from(mib).ok());
        mib.map_or(u64::MAX, |mib| mib.saturating_mul(1 << 20))
    }
}
