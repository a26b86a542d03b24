//! The engine in service: one short mutex around it, a clock, and a task that gives it its passes
//! and ticks.
//!
//! Handlers of all connections apply their inputs themselves, so that a heartbeat costs no switch
//! of tasks. What the engine wants done is handed on before the mutex is released, so that each
//! session is told things in the order in which they were decided. The mutex is never held across
//! an await; a pass is bounded, and others get their turn between two passes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, watch};

use super::log;
use super::notifier::Notifier;
use super::state_file::SavedState;
use crate::engine::types::Millis;
use crate::engine::{Effect, Engine, Input, Record, Refusal, Reply};

/// The engine, shared by all that talk to it.
#[derive(Debug)]
pub(super) struct Core {
    state: Mutex<State>,
    /// Wakes [`Core::drive`].
    due: Notify,
    clock: Clock,
    notifier: Arc<Notifier>,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    /// When the driving task will look again by itself.
    wakes_at: Option<Millis>,
}

impl Core {
    pub(super) fn new(engine: Engine, clock: Clock, notifier: Arc<Notifier>) -> Core {
        let state = Mutex::new(State { engine, wakes_at: None });
        Core { state, due: Notify::new(), clock, notifier }
    }

    /// Applies one input.
    pub(super) fn apply(&self, input: Input) -> Result<Reply, Refusal> {
        let mut state = self.state();
        let (reply, records) = self.apply_to(&mut state.engine, input);
        let sooner = match (state.engine.next_deadline(), state.wakes_at) {
            (Some(deadline), Some(wakes_at)) => deadline < wakes_at,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if sooner || state.engine.wants_pass() {
            self.due.notify_one();
        }
        drop(state);
        records.iter().for_each(log::record);
        reply
    }

    /// Looks at the engine at the present time.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Engine, Millis) -> T) -> T {
        let state = self.state();
        look(&state.engine, self.clock.now())
    }

    /// The engine and what sessions are still to be told, at one moment.
    pub(super) fn save(&self) -> SavedState {
        let state = self.state();
        SavedState { engine: state.engine.snapshot(), undelivered: self.notifier.snapshot() }
    }

    /// Who tells sessions what the engine decides.
    pub(super) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Gives the engine its passes and ticks until `stop` becomes true.
    pub(super) async fn drive(&self, mut stop: watch::Receiver<bool>) {
        loop {
            while self.run_one_pass() {
                tokio::task::yield_now().await;
            }
            let sleep = self.sleep_until_deadline();
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                () = self.due.notified() => {}
                () = sleep => self.tick(),
            }
        }
    }

    /// Returns whether another pass is wanted.
    fn run_one_pass(&self) -> bool {
        let mut state = self.state();
        if !state.engine.wants_pass() {
            return false;
        }
        // A pass is never refused outside safe mode, and not wanted in it.
        let (_, records) = self.apply_to(&mut state.engine, Input::Pass);
        let wants_another = state.engine.wants_pass();
        drop(state);
        records.iter().for_each(log::record);
        wants_another
    }

    fn tick(&self) {
        // In safe mode time stands still.
        let (_, records) = self.apply_to(&mut self.state().engine, Input::Tick);
        records.iter().for_each(log::record);
    }

    fn sleep_until_deadline(&self) -> impl Future<Output = ()> + use<> {
        let mut state = self.state();
        state.wakes_at = state.engine.next_deadline();
        let wakes_at = state.wakes_at.map(|deadline| self.clock.instant(deadline));
        async move {
            match wakes_at {
                Some(wakes_at) => tokio::time::sleep_until(wakes_at.into()).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Applies an input and hands on what sessions are to be told. What happened is given back, to
    /// be logged when the mutex is free again.
    fn apply_to(&self, engine: &mut Engine, input: Input) -> (Result<Reply, Refusal>, Vec<Record>) {
        let outcome = engine.apply(self.clock.now(), input);
        let mut records = Vec::new();
        for effect in outcome.effects {
            match effect {
                Effect::Notify { handle, to, notification } => {
                    self.notifier.enqueue(&handle, to, notification);
                }
                Effect::ForgetSession { handle } => self.notifier.forget(&handle),
                Effect::Record(record) => {
                    if let Record::SafeMode { on: false } = record {
                        self.notifier.resume();
                    }
                    records.push(record);
                }
            }
        }
        (outcome.reply, records)
    }

    /// The engine leaves no half-done change behind: it does not panic, which the simulation
    /// shows. If it did, going on with what it knows serves the cluster better than ending.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Milliseconds since the epoch that never run backwards, whatever is done to the machine's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
    start_ms: i64,
}

impl Clock {
    /// A clock that shows the machine's time now.
    pub(super) fn new() -> Clock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        Clock { start: Instant::now(), start_ms }
    }

    pub(super) fn now(&self) -> Millis {
        let elapsed_ms = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        Millis(self.start_ms.saturating_add(elapsed_ms))
    }

    /// The instant at which this clock shows `at`; for the far future, a day from now.
    fn instant(&self, at: Millis) -> Instant {
        const FAR_MS: i64 = 24 * 60 * 60 * 1000;
        let now = self.now();
        let wait_ms = at.since(now).clamp(0, FAR_MS);
        Instant::now() + std::time::Duration::from_millis(wait_ms.unsigned_abs())
    }
}
