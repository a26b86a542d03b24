//! The engine in service: one short mutex around it, a clock, and a task that gives it its passes
//! and ticks.
//!
//! Handlers of all connections apply their inputs themselves, so that a heartbeat costs no switch
//! of tasks. If the engine was idle they run the pass that their input makes necessary as well, which
//! saves a request one switch of tasks and one write of the journal. Effects are handed to the [`Outlet`] before the mutex is released, so that each session
//! is notified in the order in which the engine decided. The mutex is never held across an await; a
//! pass is bounded, and others get their turn between two passes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::{Notify, watch};

use super::arrivals::Arrivals;
use super::clock::Clock;
use super::commits::Commits;
use super::notifier::Wake;
use super::outlet::Outlet;
use corona_cluster_pages::metrics::Metrics;
use corona_engine::{Effect, Engine, Input, Record, Refusal, Reply};
use corona_model::types::Millis;
use corona_process::panics::Panic;
use corona_web::events::Commits as _;

/// How often the driving task shows that it is alive when there is nothing to do.
const BEAT: Duration = Duration::from_secs(1);
/// A wake-up that comes later than this was delayed: the machine slept, swapped, moved or is busy.
const PROMPT: Duration = Duration::from_millis(250);
/// An input is followed by its pass at once if the engine was idle for this many times as long as
/// the last pass took. So such passes take at most a fifth of the engine's time.
const IDLE: u32 = 4;

/// The engine, shared by all that use it.
#[derive(Debug)]
pub(super) struct Core {
    state: Mutex<CoreState>,
    /// Wakes [`Core::drive`].
    due: Notify,
    clock: Clock,
    outlet: Arc<dyn Outlet>,
    /// The number of the journal's last record, and how far the records are committed.
    recorded: AtomicU64,
    commits: Commits,
    metrics: Arc<Metrics>,
    /// Why the engine cannot be used any more.
    broken: watch::Sender<Option<EngineBroken>>,
    /// A fault that a test has planted.
    #[cfg(test)]
    fault: Mutex<Option<tests::Fault>>,
}

#[derive(Debug)]
struct CoreState {
    engine: Engine,
    arrivals: Arrivals,
    /// When the driving task will look again by itself.
    wakes_at: Option<Millis>,
    /// Since when the driving task sleeps and no pass has run; `None` while that task works.
    idle_since: Option<Instant>,
    /// How long the last pass took.
    last_pass: Duration,
    /// Whether the engine must not be used any more.
    is_broken: bool,
}

impl CoreState {
    /// Whether the engine wants a pass and was idle for long enough.
    fn has_time_for_pass(&self) -> bool {
        self.engine.wants_pass()
            && self.idle_since.is_some_and(|since| since.elapsed() > self.last_pass * IDLE)
    }
}

/// The engine's reply to an input.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) reply: Result<Reply, Refusal>,
    /// The record of the journal that must be committed before the reply leaves; 0 for none.
    pub(super) record: u64,
}

/// Effects of an input that are completed when the engine's mutex is free again.
#[derive(Debug, Default)]
struct Deferred {
    /// Tasks to wake after [`Outlet::write`].
    wakes: Vec<Wake>,
    /// For [`Outlet::records`].
    records: Vec<Record>,
}

/// A pass that has run, and its effects that are completed when the engine's mutex is free again.
#[derive(Debug)]
struct Passed {
    /// The record of the journal with its input.
    record: u64,
    deferred: Deferred,
    took: Duration,
}

/// A panic in the engine after which it cannot be used any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the engine failed with a {panic}; {damage}")]
pub struct EngineBroken {
    panic: Panic,
    damage: Damage,
}

/// The damage that a panic has done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum Damage {
    #[error("its books do not agree: {0}")]
    Books(String),
    #[error("sessions may never be notified of its last decisions")]
    Effects,
    #[error("the next start resumes from the journal")]
    Recorded,
}

impl Core {
    pub(super) fn new(
        engine: Engine,
        clock: Clock,
        outlet: Arc<dyn Outlet>,
        metrics: Arc<Metrics>,
    ) -> Core {
        metrics.set_safe_mode(engine.safe_mode());
        let arrivals = Arrivals::new(engine.inputs());
        let state = CoreState {
            engine,
            arrivals,
            wakes_at: None,
            idle_since: None,
            last_pass: Duration::ZERO,
            is_broken: false,
        };
        Core {
            state: Mutex::new(state),
            due: Notify::new(),
            clock,
            recorded: AtomicU64::new(0),
            commits: outlet.commits(),
            outlet,
            metrics,
            broken: watch::Sender::new(None),
            #[cfg(test)]
            fault: Mutex::default(),
        }
    }

    /// Applies one input.
    pub(super) fn apply(&self, input: Input) -> Result<Reply, Refusal> {
        self.apply_recorded(input).reply
    }

    /// Applies one input, and returns which record its reply has to wait for.
    pub(super) fn apply_recorded(&self, input: Input) -> Applied {
        let mut state = self.state();
        let (applied, deferred) = self.apply_to(&mut state, input);
        let passed = state.has_time_for_pass().then(|| {
            let passed = self.pass(&mut state);
            state.idle_since = Some(Instant::now());
            passed
        });
        let sooner = match (state.engine.next_deadline(), state.wakes_at) {
            (Some(deadline), Some(wakes_at)) => deadline < wakes_at,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let is_due = sooner || state.engine.wants_pass();
        drop(state);
        // If the disk blocks this thread, it has woken no task that may have to run on it.
        self.outlet.write(passed.as_ref().map_or(applied.record, |passed| passed.record));
        if is_due {
            self.due.notify_one();
        }
        self.complete(deferred);
        if let Some(passed) = passed {
            self.complete_pass(passed);
        }
        applied
    }

    /// Completes effects of an input after [`Outlet::write`]. The engine must not be locked.
    fn complete(&self, deferred: Deferred) {
        for wake in deferred.wakes {
            wake.now();
        }
        self.outlet.records(&deferred.records);
    }

    /// The same for a pass.
    fn complete_pass(&self, Passed { deferred: Deferred { wakes, records }, took, .. }: Passed) {
        wakes.into_iter().for_each(Wake::now);
        self.outlet.records(&records);
        self.outlet.pass(&records, took);
    }

    /// Waits until every input applied so far is durable. Replies wait for this if they show the
    /// present state.
    pub(super) async fn committed(&self) {
        self.commits.wait_for(self.recorded.load(Ordering::Acquire)).await;
    }

    /// Waits until a record is committed: see [`Applied::record`].
    pub(super) async fn committed_up_to(&self, record: u64) {
        self.commits.wait_for(record).await;
    }

    /// Whether replies may still leave.
    pub(super) fn may_reply(&self) -> bool {
        self.commits.may_leave()
    }

    /// Looks at the engine at the present time.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Engine, Millis) -> T) -> T {
        let state = self.state();
        look(&state.engine, self.clock.now())
    }

    /// Waits until the engine cannot be used any more.
    pub(super) async fn broken(&self) -> EngineBroken {
        let mut broken = self.broken.subscribe();
        loop {
            if let Some(why) = broken.borrow_and_update().clone() {
                return why;
            }
            // The sender lives as long as this core.
            let _ = broken.changed().await;
        }
    }

    /// Gives the engine its passes and ticks until `stop` becomes true.
    pub(super) async fn drive(&self, mut stop: watch::Receiver<bool>) {
        let mut due = Instant::now();
        let mut flushed = Instant::now();
        loop {
            self.metrics.beat();
            if flushed.elapsed() >= BEAT {
                flushed = Instant::now();
                self.flush();
            }
            let deadline = self
                .settle(|| {
                    let now = Instant::now();
                    let late = now.saturating_duration_since(std::mem::replace(&mut due, now));
                    if late <= PROMPT {
                        return 0;
                    }
                    i64::try_from(late.as_millis()).unwrap_or(i64::MAX)
                })
                .await;
            let beat = Instant::now() + BEAT;
            due = deadline.map_or(beat, |deadline| deadline.min(beat));
            self.state().idle_since = Some(Instant::now());
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                () = self.due.notified() => {}
                () = tokio::time::sleep_until(due.into()) => {}
            }
            self.state().idle_since = None;
        }
    }

    /// Runs the passes and ticks that are due, and returns the instant at which the next one is.
    /// Other inputs run between two passes. `late_ms` is called at the start and after each pass,
    /// and returns how long inputs were not processed.
    pub(super) async fn settle(&self, mut late_ms: impl FnMut() -> i64) -> Option<Instant> {
        let mut ticked_for = None;
        self.note_delay(late_ms());
        loop {
            while self.run_one_pass() {
                self.metrics.beat();
                tokio::task::yield_now().await;
                self.note_delay(late_ms());
            }
            self.note_delay(late_ms());
            let due = self.next_deadline()?;
            let deadline = self.clock.instant(due);
            if deadline > Instant::now() {
                return Some(deadline);
            }
            if ticked_for == Some(due) {
                // A deadline that has passed without a change is not looked at again at once.
                return Some(Instant::now() + PROMPT);
            }
            ticked_for = Some(due);
            self.apply_quietly(Input::Tick);
        }
    }

    /// Has the outlet write entries that wait for a later record.
    pub(super) fn flush(&self) {
        let state = self.state();
        let record = self.outlet.flush();
        drop(state);
        self.outlet.write(record);
    }

    /// Has sessions notified, which they are not before the start is complete.
    pub(super) fn resume_notifications(&self) {
        self.outlet.resume_notifications();
    }

    /// Reports to the engine for how long inputs were not processed.
    fn note_delay(&self, ms: i64) {
        if ms > 0 {
            self.apply_quietly(Input::HeldUp { ms });
        }
    }

    /// Returns whether another pass is wanted.
    fn run_one_pass(&self) -> bool {
        let mut state = self.state();
        if !state.engine.wants_pass() {
            return false;
        }
        let passed = self.pass(&mut state);
        let wants_another = state.engine.wants_pass();
        drop(state);
        self.outlet.write(passed.record);
        self.complete_pass(passed);
        wants_another
    }

    /// Runs a pass. It is never refused outside safe mode, and not wanted in it.
    fn pass(&self, state: &mut CoreState) -> Passed {
        let started = Instant::now();
        let (applied, deferred) = self.apply_to(state, Input::Pass);
        let took = started.elapsed();
        state.last_pass = took;
        Passed { record: applied.record, deferred, took }
    }

    /// Applies an input of the driving task. In safe mode it is refused, and time stands still.
    fn apply_quietly(&self, input: Input) {
        let (applied, deferred) = self.apply_to(&mut self.state(), input);
        self.outlet.write(applied.record);
        self.complete(deferred);
    }

    /// When the engine wants a tick. [`Core::apply`] wakes the driving task if that comes sooner.
    fn next_deadline(&self) -> Option<Millis> {
        let mut state = self.state();
        state.wakes_at = state.engine.next_deadline();
        state.wakes_at
    }

    /// Applies an input and hands its effects on. What is left to do when the mutex is free again is
    /// returned.
    fn apply_to(&self, state: &mut CoreState, input: Input) -> (Applied, Deferred) {
        let at = Instant::now();
        let now = self.clock.at(at);
        let concerns_others = concerns_others(&input);
        self.outlet.before(now, &input, &state.engine);
        let engine = &mut state.engine;
        let applied = catch_unwind(AssertUnwindSafe(|| {
            #[cfg(test)]
            self.fail_if_planted(tests::Fault::Before);
            let outcome = engine.apply(now, input);
            #[cfg(test)]
            self.fail_if_planted(tests::Fault::After);
            outcome
        }));
        let outcome =
            applied.unwrap_or_else(|panic| self.after_panic(state, concerns_others, panic));
        state.arrivals.note(state.engine.inputs(), at);
        let record = self.outlet.after(&outcome.reply);
        self.recorded.fetch_max(record, Ordering::AcqRel);
        let mut deferred = Deferred::default();
        for effect in outcome.effects {
            match effect {
                Effect::Notify { handle, to, notification } => {
                    deferred.wakes.extend(self.outlet.notify(handle, to, notification));
                }
                Effect::ForgetSession { handle } => self.outlet.forget_session(&handle),
                Effect::ResumeNotifications => self.outlet.resume_notifications(),
                Effect::Record(record) => {
                    self.outlet.record(now, &record, &state.arrivals);
                    deferred.records.push(record);
                }
            }
        }
        (Applied { reply: outcome.reply, record }, deferred)
    }

    /// Decides whether the engine can still be used after a panic in it, and resumes the panic,
    /// which fails the call that applied the input.
    fn after_panic(
        &self,
        state: &mut CoreState,
        concerns_others: bool,
        left: Box<dyn std::any::Any + Send>,
    ) -> ! {
        let panic = Panic::of(&*left);
        let damage = match self.outlet.is_recorded() {
            true => Some(Damage::Recorded),
            false => damage(&state.engine, concerns_others),
        };
        match damage {
            None => {
                tracing::error!(%panic, "the engine panicked, but its state is consistent; continuing")
            }
            Some(damage) => {
                state.is_broken = true;
                let broken = EngineBroken { panic, damage };
                tracing::error!("{broken}");
                self.broken.send_replace(Some(broken));
            }
        }
        resume_unwind(left)
    }

    fn state(&self) -> MutexGuard<'_, CoreState> {
        let state = match self.state.try_lock() {
            Ok(state) => {
                self.metrics.lock_wait.record(Duration::ZERO);
                state
            }
            // After a panic the books were audited: see `after_panic`.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let asked = Instant::now();
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                self.metrics.lock_wait.record(asked.elapsed());
                state
            }
        };
        if state.is_broken {
            drop(state);
            // The process is about to end. Until then no caller is served from an inconsistent
            // state.
            resume_unwind(Box::new("the engine cannot be used any more"));
        }
        state
    }
}

/// The damage that a panic has done to an engine, if there is any.
fn damage(engine: &Engine, concerns_others: bool) -> Option<Damage> {
    let audited = catch_unwind(AssertUnwindSafe(|| engine.audit()));
    match audited.unwrap_or_else(|panic| Err(Panic::of(&*panic).to_string())) {
        Err(difference) => Some(Damage::Books(difference)),
        Ok(()) if concerns_others => Some(Damage::Effects),
        Ok(()) => None,
    }
}

/// Whether an input may notify sessions or end one. If its effects are lost, no peer repeats it;
/// with other inputs the caller sees that its call has failed, and repeats it.
fn concerns_others(input: &Input) -> bool {
    match input {
        Input::EndSession { .. }
        | Input::HeartbeatSession { .. }
        | Input::HeartbeatNode { .. }
        | Input::KillSession { .. }
        | Input::SetSafeMode { .. }
        | Input::NotificationFailed { .. }
        | Input::NodesEnded { .. }
        | Input::AccessRevoked { .. }
        | Input::Tick
        | Input::Pass => true,
        Input::NextSessionId
        | Input::StartSession { .. }
        | Input::UpdateSession { .. }
        | Input::RequestResources { .. }
        | Input::ExpectRequests { .. }
        | Input::MoreRequests { .. }
        | Input::ReleaseResources { .. }
        | Input::NodeFeedback { .. }
        | Input::ClearBlacklist { .. }
        | Input::DrainNode { .. }
        | Input::NodeAccess { .. }
        | Input::HostsChanged { .. }
        | Input::RestartNodes { .. }
        | Input::SettingsChanged { .. }
        | Input::HeldUp { .. }
        | Input::Observed(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Effects, SeenEffect};
    use corona_engine::testing;
    use corona_model::types::ResourceType;

    /// When a planted fault strikes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Fault {
        /// Before the engine sees the input.
        Before,
        /// When the engine has applied the input; the effects are lost.
        After,
    }

    impl Core {
        pub(super) fn fail_if_planted(&self, now: Fault) {
            let mut fault = self.fault.lock().unwrap();
            if *fault == Some(now) {
                *fault = None;
                drop(fault);
                panic!("planted");
            }
        }

        /// Makes the engine panic in the next input.
        pub(crate) fn plant_a_fault(&self) {
            *self.fault.lock().unwrap() = Some(Fault::After);
        }
    }

    fn heartbeat() -> Input {
        testing::heartbeat("node", 4)
    }

    fn request(id: i32) -> Input {
        testing::ask("2026.1", testing::requests(id..=id, ResourceType::Map))
    }

    /// A core with a node and a session, and the effects that it requests.
    fn core() -> (Core, Arc<Effects>) {
        let effects = Arc::new(Effects::default());
        let engine = testing::engine(testing::settings());
        let core = Core::new(engine, Clock::new(), effects.clone(), Arc::<Metrics>::default());
        for input in [heartbeat(), testing::session("2026.1", "pool")] {
            core.apply(input).unwrap();
        }
        (core, effects)
    }

    #[tokio::test]
    async fn settling_runs_passes_and_reports_delays() {
        let (core, effects) = core();
        effects.take();
        core.apply(request(1)).unwrap();
        let mut delays = [700, 0, 0].into_iter();
        let next = core.settle(|| delays.next().unwrap_or(0)).await;
        assert!(next.is_some_and(|next| next > Instant::now()), "nodes and sessions expire");
        let told = effects.take();
        let records: Vec<&Record> = told
            .iter()
            .filter_map(
                |told| if let SeenEffect::Record(record) = told { Some(record) } else { None },
            )
            .collect();
        assert!(records.contains(&&Record::HeldUp { ms: 700 }), "{told:?}");
        let granted = told.iter().filter(|told| matches!(told, SeenEffect::Notified(..))).count();
        assert_eq!(granted, 1, "{told:?}");
        assert!(!core.look(|engine, _| engine.wants_pass()));
    }

    #[tokio::test]
    async fn an_input_of_an_idle_engine_is_followed_by_its_pass() {
        let (core, effects) = core();
        let core = Arc::new(core);
        let is_granted = || effects.take().iter().any(|e| matches!(e, SeenEffect::Notified(..)));
        core.apply(request(1)).unwrap();
        assert!(!is_granted(), "nothing drives the engine");
        let release = || Input::ReleaseResources { handle: "2026.1".into(), ids: vec![1] };
        core.apply(release()).unwrap();

        let (stop, stopped) = watch::channel(false);
        let driving = tokio::spawn({
            let core = core.clone();
            async move { core.drive(stopped).await }
        });
        while core.state().idle_since.is_none() {
            tokio::task::yield_now().await;
        }
        // However long it took on a busy machine.
        core.state().last_pass = Duration::ZERO;
        core.apply(request(1)).unwrap();
        assert!(is_granted());
        core.apply(release()).unwrap();
        core.state().last_pass = Duration::from_secs(3600);
        core.apply(request(1)).unwrap();
        assert!(!is_granted(), "passes would take too much of the time");
        while !is_granted() {
            tokio::task::yield_now().await;
        }
        stop.send_replace(true);
        driving.await.unwrap();
    }

    /// Applies an input in which the engine panics.
    fn apply_with(core: &Core, fault: Fault, input: Input) {
        *core.fault.lock().unwrap() = Some(fault);
        catch_unwind(AssertUnwindSafe(|| core.apply(input))).unwrap_err();
    }

    #[tokio::test]
    async fn an_engine_whose_books_agree_goes_on_after_a_panic() {
        for fault in [Fault::Before, Fault::After] {
            let (core, effects) = core();
            apply_with(&core, fault, request(1));
            assert_eq!(*core.broken.borrow(), None, "{fault:?}");
            // The caller repeats the failed call.
            core.apply(request(1)).unwrap();
            core.settle(|| 0).await;
            let granted = effects.take();
            let granted = granted.iter().filter(|told| matches!(told, SeenEffect::Notified(..)));
            assert_eq!(granted.count(), 1, "{fault:?}");
        }
    }

    #[tokio::test]
    async fn an_engine_whose_decisions_are_lost_is_not_used_again() {
        let (core, effects) = core();
        core.apply(request(1)).unwrap();
        effects.take();
        apply_with(&core, Fault::After, Input::Pass);
        let broken = core.broken().await;
        assert_eq!(
            broken.to_string(),
            "the engine failed with a panic: planted; sessions may never be notified of its last \
             decisions"
        );
        for _ in 0..2 {
            catch_unwind(AssertUnwindSafe(|| core.apply(request(2)))).unwrap_err();
            catch_unwind(AssertUnwindSafe(|| core.look(|engine, _| engine.inputs()))).unwrap_err();
        }
        assert_eq!(effects.take(), []);
    }
}
