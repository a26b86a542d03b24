//! Seeded random clusters around the engine, and their invariants.
//!
//! A run follows from its seed: peers that request, run, fail and lie, operators who change
//! settings, time that jumps. After every step a plain model of all messages is compared with the
//! engine's outcome, and regularly with the engine's whole state. A run that fails returns the
//! inputs up to the failure, which can be replayed without the peers.
//!
//! It has no threads, clock or files; printing is the caller's.

mod digest;
mod invariants;
#[cfg(test)]
mod loop_tests;
mod model;
mod peers;
mod queues;
mod quotas;
mod reservations;
mod resources;
#[cfg(test)]
mod resources_tests;
mod room;
mod shares;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tree_tests;
mod weather;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

pub use self::digest::Digest;
use self::invariants::{Fairness, WaitLimits, compare, explained};
use self::model::Model;
use self::peers::{BEGIN, ID_PREFIX, Peers};
use corona_engine::{Effect, Engine, Input, Notification, Outcome, Record, Start};
pub use corona_model::random::Random;
use corona_model::settings::Settings;
use corona_model::types::{Millis, ResourceType};
use corona_process::panics::Panic;

/// All books are compared after each so many steps of a run that has not failed yet.
const AUDIT_EVERY: u64 = 16;

/// Inputs that the farewell may take at most.
const FAREWELL_STEPS: u64 = 20_000;

/// Which run, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Everything that happens follows from it.
    pub seed: u64,
    /// Inputs, not counting those with which every peer leaves in the end.
    pub steps: u64,
    /// Whether processes of nodes start again in place of earlier ones and leave in order, operators drain nodes, and
    /// access of nodes is revoked.
    pub restarts: bool,
    /// Whether the queues are a tree with rules, which operators change.
    pub trees: bool,
    /// Whether resources are counted beside slots, at first or from some time on.
    pub resources: bool,
}

/// The result of a run without violations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Inputs that the engine took.
    pub inputs: u64,
    /// Slots that were given.
    pub granted: u64,
    /// Slots that were taken back.
    pub revoked: u64,
    /// Notices of nodes that were lost.
    pub dead_nodes: u64,
    /// Inputs that were refused.
    pub refused: u64,
    /// Nodes that were kept for requests.
    pub reserved: u64,
}

impl Summary {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: Summary) {
        self.inputs += other.inputs;
        self.granted += other.granted;
        self.revoked += other.revoked;
        self.dead_nodes += other.dead_nodes;
        self.refused += other.refused;
        self.reserved += other.reserved;
    }

    fn count(&mut self, outcome: &Outcome) {
        self.inputs += 1;
        self.refused += u64::from(outcome.reply.is_err());
        for effect in &outcome.effects {
            if let Effect::Record(Record::NodeReserved { .. }) = effect {
                self.reserved += 1;
            }
            let Effect::Notify { notification, .. } = effect else { continue };
            match notification {
                Notification::Granted(grants) => self.granted += grants.len() as u64,
                Notification::Revoked(grants) => self.revoked += grants.len() as u64,
                Notification::DeadNode(_) => self.dead_nodes += 1,
            }
        }
    }
}

/// A run in which something did not hold.
#[derive(Clone, Debug, thiserror::Error)]
#[error("seed {} fails at step {}: {what}", plan.seed, history.inputs.len())]
pub struct Failure {
    /// The shortest run of the seed that shows it.
    pub plan: Plan,
    /// The invariant that did not hold, or the engine's panic.
    pub what: String,
    /// The settings and the inputs up to the failure; the last one shows it.
    pub history: History,
}

/// The start and the inputs of an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The settings at the start.
    pub settings: Settings,
    /// Inputs with their times.
    pub inputs: Vec<(Millis, Input)>,
}

/// The receiver of inputs: the engine, or in tests an engine with a fault.
trait Subject {
    fn apply(&mut self, now: Millis, input: Input) -> Outcome;
    fn engine(&self) -> &Engine;
}

impl Subject for Engine {
    fn apply(&mut self, now: Millis, input: Input) -> Outcome {
        Engine::apply(self, now, input)
    }

    fn engine(&self) -> &Engine {
        self
    }
}

/// Runs a simulation.
///
/// # Errors
/// The first thing that does not hold, with the shortest prefix of the run's inputs that shows it.
pub fn run(plan: Plan) -> Result<Summary, Box<Failure>> {
    run_with(plan, new_engine)
}

/// Runs a simulation and returns the digest of all its inputs and outcomes as well.
///
/// # Errors
/// As [`run`].
pub fn run_with_digest(plan: Plan) -> Result<(Summary, Digest), Box<Failure>> {
    run_digested(plan, new_engine)
}

fn run_digested<S: Subject>(
    plan: Plan,
    subject: impl Fn(&Settings) -> S,
) -> Result<(Summary, Digest), Box<Failure>> {
    let last = Cell::new(digest::Running::new(&Settings::default()).digest());
    let summary = run_with(plan, |settings: &Settings| Digested {
        subject: subject(settings),
        running: digest::Running::new(settings),
        last: &last,
    })?;
    Ok((summary, last.get()))
}

/// A subject whose inputs and outcomes are digested.
struct Digested<'a, S> {
    subject: S,
    running: digest::Running,
    last: &'a Cell<Digest>,
}

impl<S: Subject> Subject for Digested<'_, S> {
    fn apply(&mut self, now: Millis, input: Input) -> Outcome {
        let outcome = self.subject.apply(now, input.clone());
        self.running.step(now, &input, &outcome, self.subject.engine());
        self.last.set(self.running.digest());
        outcome
    }

    fn engine(&self) -> &Engine {
        self.subject.engine()
    }
}

/// Applies the inputs of a history to a new engine, with all checks after each of them.
///
/// # Errors
/// The violated invariant, with the number of inputs up to there.
pub fn replay(history: &History) -> Result<Summary, (usize, String)> {
    let settings = history.settings.clone();
    let mut watch = Watch::new(new_engine(&settings), settings, 1);
    for (at, (now, input)) in history.inputs.iter().enumerate() {
        guarded(|| watch.step(*now, input)).map_err(|what| (at + 1, what))?;
    }
    Ok(watch.summary)
}

fn new_engine(settings: &Settings) -> Engine {
    let start = Start { now: BEGIN, id_prefix: ID_PREFIX.into(), hash_seed: 1 };
    Engine::new(settings.clone(), start)
}

fn run_with<S: Subject>(
    plan: Plan,
    subject: impl Fn(&Settings) -> S,
) -> Result<Summary, Box<Failure>> {
    let first = match attempt(plan, &subject, AUDIT_EVERY, None) {
        Ok(summary) => return Ok(summary),
        Err(what) => what,
    };
    // Again, this time with all checks after each step, so that it stops at the first one that
    // shows the fault. Closer checks may be kinder to waits; then the first run is repeated.
    for audit_every in [1, AUDIT_EVERY] {
        let mut history = History { settings: Settings::default(), inputs: Vec::new() };
        if let Err(what) = attempt(plan, &subject, audit_every, Some(&mut history)) {
            let steps = plan.steps.min(history.inputs.len() as u64);
            let short = Plan { steps, ..plan };
            let repeats = attempt(short, &subject, AUDIT_EVERY, None).is_err();
            let plan = if repeats { short } else { plan };
            return Err(Box::new(Failure { plan, what, history }));
        }
    }
    let what = format!("{first}; but not when the run is repeated");
    let history = History { settings: Settings::default(), inputs: Vec::new() };
    Err(Box::new(Failure { plan, what, history }))
}

fn attempt<S: Subject>(
    plan: Plan,
    subject: impl Fn(&Settings) -> S,
    audit_every: u64,
    mut history: Option<&mut History>,
) -> Result<Summary, String> {
    guarded(|| {
        let mut random = Random::new(plan.seed);
        let mut settings = weather::settings(&mut random);
        if plan.trees {
            weather::tree(&mut random, &mut settings);
        }
        if plan.resources {
            weather::resources(&mut random, &mut settings);
        }
        if plan.trees && plan.resources {
            weather::quotas(&random, &mut settings);
        }
        if let Some(history) = &mut history {
            history.settings = settings.clone();
        }
        let mut watch = Watch::new(subject(&settings), settings, audit_every);
        let mut peers = Peers::new(random, plan);
        let mut steps = 0;
        loop {
            let engine = watch.subject.engine();
            let next = match steps < plan.steps {
                true => Some(peers.next(&watch.model, engine)),
                false => peers.farewell(&watch.model, engine),
            };
            let Some((now, input)) = next else { break };
            if let Some(history) = &mut history {
                history.inputs.push((now, input.clone()));
            }
            watch.step(now, &input)?;
            steps += 1;
            if steps == plan.steps {
                watch.inspect(now)?;
            }
            if steps > plan.steps + FAREWELL_STEPS {
                return Err("the engine never comes to rest".into());
            }
        }
        watch.finish()
    })
}

/// Turns a panic into an error.
fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|left| Err(Panic::of(&*left).to_string()))
}

/// An engine, or one with a fault, under watch.
struct Watch<S> {
    subject: S,
    model: Model,
    patience: WaitLimits,
    fairness: Fairness,
    summary: Summary,
    audit_every: u64,
    /// Steps since it was last looked for requests that wait without a reason.
    unwatched: u64,
}

impl<S: Subject> Watch<S> {
    fn new(subject: S, settings: Settings, audit_every: u64) -> Self {
        Watch {
            subject,
            model: Model::new(settings, ID_PREFIX.into()),
            patience: WaitLimits::default(),
            fairness: Fairness::default(),
            summary: Summary::default(),
            audit_every,
            unwatched: 0,
        }
    }

    fn step(&mut self, now: Millis, input: &Input) -> Result<(), String> {
        let outcome = self.subject.apply(now, input.clone());
        self.summary.count(&outcome);
        self.model.observe(now, input, &outcome)?;
        self.patience.note(input, &outcome);
        let quiet = self.is_quiet(now);
        self.fairness.check(&self.model, now, input, &outcome, quiet)?;
        self.unwatched += 1;
        if quiet && self.unwatched >= self.audit_every {
            self.unwatched = 0;
            self.patience.check(&self.model, now)?;
            self.model.check_reservations(now)?;
        }
        if self.summary.inputs.is_multiple_of(self.audit_every) {
            self.compare_all(now)?;
        }
        Ok(())
    }

    /// Makes all checks that can be made now.
    fn inspect(&mut self, now: Millis) -> Result<(), String> {
        if self.is_quiet(now) {
            self.patience.check(&self.model, now)?;
            self.model.check_reservations(now)?;
        }
        self.compare_all(now)
    }

    fn compare_all(&self, now: Millis) -> Result<(), String> {
        self.subject.engine().audit()?;
        compare(&self.model, self.subject.engine(), now)?;
        explained(&self.model, self.subject.engine(), now, self.is_quiet(now))
    }

    /// Whether the engine has nothing left to do at `now`.
    fn is_quiet(&self, now: Millis) -> bool {
        let engine = self.subject.engine();
        let idle = !engine.safe_mode() && !engine.wants_pass();
        idle && engine.next_deadline().is_none_or(|at| at > now)
    }

    /// All peers have left: nothing may remain.
    fn finish(self) -> Result<Summary, String> {
        let engine = self.subject.engine();
        engine.audit()?;
        let left = (engine.node_count(), engine.session_count());
        let used: u64 = ResourceType::ALL.into_iter().map(|kind| engine.slots(kind).used).sum();
        let pools =
            engine.pools().into_iter().filter(|pool| pool.pool.is_some() && !pool.configured);
        match (left, used, pools.count()) {
            ((0, 0), 0, 0) => Ok(self.summary),
            (left, used, pools) => Err(format!(
                "after all have left: nodes and sessions {left:?}, {used} slots in use, \
                 {pools} pools of nobody"
            )),
        }
    }
}
