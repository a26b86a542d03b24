//! The engine in service: one short mutex around it, a clock, and a task that gives it its passes
//! and ticks.
//!
//! Handlers of all connections apply their inputs themselves, so that a heartbeat costs no switch
//! of tasks. What the engine wants done is handed on before the mutex is released, so that each
//! session is told things in the order in which they were decided. The mutex is never held across
//! an await; a pass is bounded, and others get their turn between two passes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, watch};

use super::log;
use super::metrics::Metrics;
use super::notifier::Notifier;
use super::state_file::SavedState;
use super::web::events::Events;
use corona_engine::{Asked, Effect, Engine, Input, Notification, Record, Refusal, Reply};
use corona_model::types::{Millis, ResourceType};

/// How often the driving task shows that it is alive when there is nothing to do.
const BEAT: Duration = Duration::from_secs(1);
/// What comes later than this was held up: by a machine that slept, swapped, moved or is busy.
const PROMPT: Duration = Duration::from_millis(250);

/// The engine, shared by all that talk to it.
#[derive(Debug)]
pub(super) struct Core {
    state: Mutex<State>,
    /// Wakes [`Core::drive`].
    due: Notify,
    clock: Clock,
    notifier: Arc<Notifier>,
    metrics: Arc<Metrics>,
    events: Arc<Events>,
    /// The types that are scheduled.
    kinds: Vec<ResourceType>,
    /// What would have been told, where nobody is told anything.
    told: Option<Mutex<Vec<Told>>>,
}

/// What a cluster manager that tells nobody would have done.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// A session would have been told something.
    Notice(Arc<str>, Notification),
    /// A session has ended, and would be told nothing more.
    Ended(Arc<str>),
}

#[derive(Debug)]
struct State {
    engine: Engine,
    arrivals: Arrivals,
    /// When the driving task will look again by itself.
    wakes_at: Option<Millis>,
}

impl Core {
    pub(super) fn new(
        engine: Engine,
        clock: Clock,
        notifier: Arc<Notifier>,
        metrics: Arc<Metrics>,
        events: Arc<Events>,
    ) -> Core {
        metrics.set_safe_mode(engine.safe_mode());
        let kinds = engine.legal_types().collect();
        let state = Mutex::new(State { engine, arrivals: Arrivals::new(), wakes_at: None });
        let due = Notify::new();
        Core { state, due, clock, notifier, metrics, events, kinds, told: None }
    }

    /// The same core, but what it decides is only collected, for [`Core::take_told`].
    pub(super) fn telling_nobody(self) -> Core {
        Core { told: Some(Mutex::default()), ..self }
    }

    /// What would have been told since the last call.
    pub(super) fn take_told(&self) -> Vec<Told> {
        let Some(told) = &self.told else { return Vec::new() };
        std::mem::take(&mut told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the engine at the present time other than by an input.
    pub(super) fn follow<T>(&self, change: impl FnOnce(&mut Engine, Millis) -> T) -> T {
        let mut state = self.state();
        change(&mut state.engine, self.clock.now())
    }

    /// Does what is due now, for who has no [`Core::drive`]. `late_ms` is how long nobody was
    /// listened to. Gives when something is due next.
    pub(super) async fn settle(&self, late_ms: i64) -> Option<Instant> {
        if late_ms > 0 {
            let (_, records) = self.apply_to(&mut self.state(), Input::HeldUp { ms: late_ms });
            self.tell(&records);
        }
        let mut ticked_for = None;
        loop {
            while self.run_one_pass() {
                tokio::task::yield_now().await;
            }
            let deadline = self.next_deadline()?;
            if deadline > Instant::now() {
                return Some(deadline);
            }
            let due = self.look(|engine, _| engine.next_deadline());
            if due == ticked_for {
                // Time that has come and changes nothing is not looked at again at once.
                return Some(Instant::now() + PROMPT);
            }
            ticked_for = due;
            self.tick();
        }
    }

    /// Applies one input.
    pub(super) fn apply(&self, input: Input) -> Result<Reply, Refusal> {
        let mut state = self.state();
        let (reply, records) = self.apply_to(&mut state, input);
        let sooner = match (state.engine.next_deadline(), state.wakes_at) {
            (Some(deadline), Some(wakes_at)) => deadline < wakes_at,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if sooner || state.engine.wants_pass() {
            self.due.notify_one();
        }
        drop(state);
        self.tell(&records);
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
            self.metrics.beat();
            let mut due = Instant::now();
            while self.run_one_pass() {
                self.metrics.beat();
                tokio::task::yield_now().await;
                due = self.note_delay(due);
            }
            self.note_delay(due);
            let deadline = self.next_deadline();
            let beat = Instant::now() + BEAT;
            let due = deadline.map_or(beat, |deadline| deadline.min(beat));
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                () = self.due.notified() => {}
                () = tokio::time::sleep_until(due.into()) => {}
            }
            let now = self.note_delay(due);
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.tick();
            }
        }
    }

    /// Tells the engine when what was due comes late: until then nobody else was listened to
    /// either. Gives back the present time.
    fn note_delay(&self, due: Instant) -> Instant {
        let now = Instant::now();
        let late = now.saturating_duration_since(due);
        if late > PROMPT {
            let ms = i64::try_from(late.as_millis()).unwrap_or(i64::MAX);
            let (_, records) = self.apply_to(&mut self.state(), Input::HeldUp { ms });
            self.tell(&records);
        }
        now
    }

    /// Returns whether another pass is wanted.
    fn run_one_pass(&self) -> bool {
        let mut state = self.state();
        if !state.engine.wants_pass() {
            return false;
        }
        let started = Instant::now();
        // A pass is never refused outside safe mode, and not wanted in it.
        let (_, records) = self.apply_to(&mut state, Input::Pass);
        let wants_another = state.engine.wants_pass();
        drop(state);
        let took = started.elapsed();
        self.metrics.count_pass(took);
        self.tell(&records);
        if self.told.is_none() {
            log::pass(&records, took);
        }
        wants_another
    }

    fn tick(&self) {
        // In safe mode time stands still.
        let (_, records) = self.apply_to(&mut self.state(), Input::Tick);
        self.tell(&records);
    }

    /// When the engine wants to be looked at without an input.
    fn next_deadline(&self) -> Option<Instant> {
        let mut state = self.state();
        state.wakes_at = state.engine.next_deadline();
        state.wakes_at.map(|deadline| self.clock.instant(deadline))
    }

    /// Applies an input and hands on what sessions are to be told. What happened is given back, to
    /// be told when the mutex is free again.
    fn apply_to(&self, state: &mut State, input: Input) -> (Result<Reply, Refusal>, Vec<Record>) {
        let at = Instant::now();
        let now = self.clock.at(at);
        let outcome = state.engine.apply(now, input);
        state.arrivals.note(state.engine.inputs(), at);
        let mut records = Vec::new();
        for effect in outcome.effects {
            match effect {
                Effect::Notify { handle, to, notification } => match &self.told {
                    Some(told) => note(told, Told::Notice(handle, notification)),
                    None => self.notifier.enqueue(&handle, to, notification),
                },
                Effect::ForgetSession { handle } => match &self.told {
                    Some(told) => note(told, Told::Ended(handle)),
                    None => self.notifier.forget(&handle),
                },
                Effect::Record(record) => {
                    if self.events.publish(now, &record) {
                        self.metrics.events.add(1);
                    }
                    match &record {
                        Record::SafeMode { on: false } => self.notifier.resume(),
                        Record::Assigned { kind, asked, .. } => {
                            let waits = &self.metrics.request_to_grant[kind.index()];
                            state.arrivals.waits(asked, now, |wait, count| {
                                waits.record_times(wait, count);
                            });
                        }
                        _ => {}
                    }
                    records.push(record);
                }
            }
        }
        (outcome.reply, records)
    }

    /// Counts and logs what happened.
    fn tell(&self, records: &[Record]) {
        for record in records {
            self.metrics.record(record);
            // The log is about what was done.
            if self.told.is_none() {
                log::record(record, &self.kinds);
            }
        }
    }

    /// The engine leaves no half-done change behind: it does not panic, which the simulation
    /// shows. If it did, going on with what it knows serves the cluster better than ending.
    fn state(&self) -> MutexGuard<'_, State> {
        match self.state.try_lock() {
            Ok(state) => {
                self.metrics.lock_wait.record(Duration::ZERO);
                state
            }
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let asked = Instant::now();
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                self.metrics.lock_wait.record(asked.elapsed());
                state
            }
        }
    }
}

fn note(told: &Mutex<Vec<Told>>, what: Told) {
    told.lock().unwrap_or_else(PoisonError::into_inner).push(what);
}

/// When the last inputs arrived, more finely than the engine's clock shows.
#[derive(Debug)]
struct Arrivals {
    /// By the number of the input, modulo [`Arrivals::KEPT`].
    ring: Box<[Instant]>,
    /// The number of the last input.
    last: u64,
}

impl Arrivals {
    /// Inputs whose arrival is known. So many take so long that for an earlier one the engine's
    /// milliseconds will do.
    const KEPT: u64 = 1 << 14;

    fn new() -> Arrivals {
        let ring = (0..Arrivals::KEPT).map(|_| Instant::now()).collect();
        Arrivals { ring, last: 0 }
    }

    fn note(&mut self, input: u64, at: Instant) {
        self.last = input;
        if let Some(place) = self.ring.get_mut((input % Arrivals::KEPT) as usize) {
            *place = at;
        }
    }

    /// How long requests have waited that are granted by the last input, which came at `now`. Those
    /// of one input come together, with their count.
    fn waits(&self, asked: &[Asked], now: Millis, mut count: impl FnMut(Duration, u64)) {
        let decided = Instant::now();
        for together in asked.chunk_by(|a, b| a.input == b.input) {
            let Some(asked) = together.first() else { continue };
            let kept = self.last.saturating_sub(asked.input) < Arrivals::KEPT;
            let place = (asked.input % Arrivals::KEPT) as usize;
            let wait = match self.ring.get(place).filter(|_| kept) {
                Some(arrived) => decided.saturating_duration_since(*arrived),
                None => Duration::from_millis(now.since(asked.at).unsigned_abs()),
            };
            count(wait, together.len() as u64);
        }
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
        self.at(Instant::now())
    }

    /// What this clock shows at an instant.
    fn at(&self, instant: Instant) -> Millis {
        let elapsed = instant.saturating_duration_since(self.start);
        let elapsed_ms = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
        Millis(self.start_ms.saturating_add(elapsed_ms))
    }

    /// The instant at which this clock shows `at`; for the far future, a day from now.
    fn instant(&self, at: Millis) -> Instant {
        const FAR_MS: i64 = 24 * 60 * 60 * 1000;
        let now = self.now();
        let wait_ms = at.since(now).clamp(0, FAR_MS);
        Instant::now() + Duration::from_millis(wait_ms.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_fine_for_late_inputs_and_in_milliseconds_for_early_ones() {
        let mut arrivals = Arrivals::new();
        let start = Instant::now();
        let asked = |input| Asked { at: Millis(1_000), input };
        for input in 1..=Arrivals::KEPT + 10 {
            arrivals.note(input, start);
        }
        let mut waits = Vec::new();
        let requests = [10, 10, 11, 11, 11].map(asked);
        arrivals.waits(&requests, Millis(61_000), |wait, count| waits.push((wait, count)));
        let [(early, 2), (late, 3)] = waits[..] else { panic!("{waits:?}") };
        assert_eq!(early, Duration::from_secs(60), "by the engine's clock");
        assert!(late <= start.elapsed(), "by the instants");
    }
}
