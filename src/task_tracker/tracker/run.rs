//! One run of an attempt: from its launch until nothing is left of its process.
//!
//! Spec: mapreduce/04 §4.3 to §4.7, §4.10.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep_until, timeout};

use super::launch::{self, Ready};
use super::{Shared, State, name};
use crate::attempt::Cause;
use crate::child::{self, Exit, RunningChild};
use crate::ids::AttemptId;
use crate::localise::TaskKind;
use crate::table::{AttemptRun, Started};
use corona_config::keys;
use corona_process::panics::{blocking, caught};

/// A run that has begun and is not over.
#[derive(Debug)]
pub(super) struct LiveAttempt {
    pub(super) run: AttemptRun,
    pub(super) name: AttemptId,
    order: watch::Sender<StopOrder>,
    /// Its process, once there is one.
    pub(super) process: Option<Process>,
}

/// The process of a run.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) child: RunningChild,
    /// The memory limit of its job, in bytes.
    pub(super) memory_bytes: u64,
}

/// How far the end of a run has been ordered, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StopOrder {
    /// Nothing yet.
    Nothing,
    /// Its work is done.
    Release,
    End,
}

impl LiveAttempt {
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
pub(super) fn begin(shared: &Arc<Shared>, state: &mut State, run: AttemptRun) {
    begin_with(shared, state, run, Runner::work);
}

/// The same, with the work to do when its turn has come.
pub(super) fn begin_with<W>(
    shared: &Arc<Shared>,
    state: &mut State,
    run: AttemptRun,
    work: impl FnOnce(Runner) -> W,
) where
    W: Future<Output = ()> + Send + 'static,
{
    // More than there are attempts: some may have to wait for runs that were killed long ago.
    let limit = shared.settings.table.attempts.saturating_mul(2);
    let refused = match name(&run) {
        Ok(_) if state.live.len() >= limit => "the task tracker ends too many tasks".to_owned(),
        Err(wrong) => wrong.to_string(),
        Ok(name) => {
            let (order, listen) = watch::channel(StopOrder::Nothing);
            let live = LiveAttempt { run: run.clone(), name: name.clone(), order, process: None };
            state.live.insert(run.number, live);
            let place = state.queues.attempt(&run.attempt);
            let job = run.attempt.job().clone();
            let runner = Runner { shared: shared.clone(), run: run.clone(), name, listen };
            let work = to_the_end(shared.clone(), run, work(runner));
            return shared.spawn(shared.clone().in_turn(job, place, work));
        }
    };
    let why = format!("Error initializing {}:\n{refused}", run.attempt);
    let orders = state.table.kill(&run, Cause::Failure, &why, super::now());
    for order in orders {
        shared.carry_out(state, order);
    }
}

/// Does the work of a run. Whatever its result, its attempt and its process have ended afterwards.
async fn to_the_end(shared: Arc<Shared>, run: AttemptRun, work: impl Future<Output = ()>) {
    let done = caught(work).await;
    let why = match done {
        Err(panic) => Some(panic.to_string()),
        Ok(()) if shared.is_open(&run) => Some("it ended without an outcome".to_owned()),
        Ok(()) => None,
    };
    if let Some(why) = why {
        tracing::error!(attempt = %run.attempt, why, "the handling of an attempt panicked; ending the attempt");
        let process = shared.lock().live.get(&run.number).and_then(|live| live.process.clone());
        if let Some(Process { child, .. }) = process {
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
    shared: Arc<Shared>,
    run: AttemptRun,
    name: AttemptId,
    listen: watch::Receiver<StopOrder>,
}

/// A process, and the run that it belongs to.
pub(super) struct Task {
    child: RunningChild,
    /// Its slots, until its work is done.
    slots: Option<OwnedSemaphorePermit>,
    /// How long it may be silent.
    timeout: Option<Duration>,
}

impl Runner {
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
        let (slots, wanted) = self.shared.wanted_slots(&self.run)?;
        if wanted == 0 {
            self.fail("this task tracker has no slots for such tasks");
            return None;
        }
        tokio::select! {
            biased;
            () = Self::ordered(&mut self.listen, StopOrder::End) => None,
            // It is never closed.
            slots = slots.acquire_many_owned(wanted) => slots.ok(),
        }
    }

    async fn with_slots(&mut self, slots: OwnedSemaphorePermit) {
        let Some((spec, kind)) = self.spec() else { return };
        let ready = self.localise(spec, slots).await;
        let started = match ready {
            Some((ready, slots)) => self.start(ready, slots).await,
            None => None,
        };
        match started {
            Some((task, ready)) => {
                let child = task.child.clone();
                self.attend(task).await;
                // None of its files may be deleted before.
                child.wait_until_gone().await;
                drop(ready);
            }
            None => self.shared.forget_attempt(&self.name, kind, false).await,
        }
    }

    /// The files to localise. None if they are not wanted any more, or cannot be read.
    pub(super) fn spec(&self) -> Option<(launch::Spec, TaskKind)> {
        let spec = {
            let state = self.shared.lock();
            let task = state.table.task(&self.run)?;
            let session = state.table.session(self.run.attempt.job())?;
            launch::spec(task, session, &self.name, self.shared.settings.memory.reserved_bytes)
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
        let limit = self.shared.settings.localise_timeout;
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
        ready: Ready,
        slots: OwnedSemaphorePermit,
    ) -> Option<(Task, Ready)> {
        let started = Started {
            jvm: ready.jvm.clone(),
            job_file: ready.attempt.job_xml.display().to_string(),
            keep_failed: ready.attempt.conf.is_true(&keys::JOB_KEEP_FAILED),
        };
        let mut wanted = false;
        self.shared.apply(|table, now| {
            wanted = table.start(&self.run, started, now);
            vec![]
        });
        if !wanted {
            return None;
        }
        let (shared, name) = (self.shared.clone(), self.name.clone());
        let starting = blocking(move || {
            let delay = shared.settings.sigkill_delay;
            let child = child::start(&name, &ready.command, &shared.notes, delay);
            (child, ready)
        });
        let (child, ready) = starting.await;
        match child {
            Ok(child) => {
                let (timeout, memory_bytes) = (ready.silence(), ready.memory_bytes());
                let process = Process { child: child.clone(), memory_bytes };
                if let Some(live) = self.shared.lock().live.get_mut(&self.run.number) {
                    live.process = Some(process);
                }
                Some((Task { child, slots: Some(slots), timeout }, ready))
            }
            Err(error) => {
                self.exited(&format!("Error initializing {}:\n{error}\n", self.name));
                None
            }
        }
    }

    /// Waits for the end of the process, and causes it when that is needed.
    async fn attend(&mut self, mut task: Task) {
        let mut seen = StopOrder::Nothing;
        let mut grace_over: Option<Instant> = None;
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
                        grace_over = Some(Instant::now() + self.shared.settings.exit_grace);
                    }
                    if seen == StopOrder::End {
                        task.child.kill();
                    }
                }
                () = at(grace_over), if grace_over.is_some() => {
                    grace_over = None;
                    task.child.kill();
                }
                () = at(silent_at), if seen == StopOrder::Nothing => self.check_silence(task.timeout),
            }
        };
        // A task that has said why it failed does not say that it is done.
        let has_failed = self.shared.lock().table.is_explained(&self.run);
        if seen == StopOrder::Nothing && !has_failed {
            let late = Self::ordered(&mut self.listen, StopOrder::Release);
            let _ = timeout(self.shared.settings.late_done, late).await;
        }
        self.shared.apply(|table, now| {
            let why = why(exit, table.is_explained(&self.run));
            table.exited(&self.run, &why, now)
        });
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

impl Shared {
    /// Whether a run has still to come to an end: its attempt, or its process.
    fn is_open(&self, run: &AttemptRun) -> bool {
        let state = self.lock();
        !state.stopped && state.table.is_open(run)
    }

    /// The slots for a run, and how many it takes; 0 if there are none at all. None if the run is not
    /// wanted any more.
    fn wanted_slots(&self, run: &AttemptRun) -> Option<(Arc<Semaphore>, u32)> {
        let state = self.lock();
        let task = state.table.task(run)?;
        let (slots, all) = match task.is_map() {
            true => (&self.map_slots, self.slots.maps),
            false => (&self.reduce_slots, self.slots.reduces),
        };
        // One that wants more than there are gets all.
        let wanted = u32::try_from(task.slots).unwrap_or(0).max(1).min(all);
        Some((slots.clone(), wanted))
    }
}

impl Ready {
    /// How long its process may be silent.
    fn silence(&self) -> Option<Duration> {
        let timeout_ms = self.attempt.conf.number(&keys::JOB_TASK_TIMEOUT)?;
        u64::try_from(timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// The memory limit of its process, in bytes.
    fn memory_bytes(&self) -> u64 {
        let key =
            if self.attempt.is_map { &keys::JOB_MAP_MEMORY } else { &keys::JOB_REDUCE_MEMORY };
        let mib = self.attempt.conf.number(key).and_then(|mib| u64::try_from(mib).ok());
        mib.map_or(u64::MAX, |mib| mib.saturating_mul(1 << 20))
    }
}
