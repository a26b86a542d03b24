//! Seeded random jobs on a simulated cluster: job engines and the cluster engine together, in virtual time.
//!
//! A run follows from its seed. Nodes die, hang, come back and carry out what they were ordered long ago, report
//! late, twice, and what is not so; calls are lost on the way there and on the way back; the cluster manager goes
//! away and comes back, and so does the network of a job tracker; job trackers
//! die, between any two steps of a submission too, stall, see clocks that jump, and are restarted from their journals;
//! attempts hang, and records are bad; users kill attempts and jobs; slots are taken back. After some minutes
//! the trouble ends. What must hold in each run:
//!
//! * every job that is submitted runs and ends, and no session is left;
//! * no session is lost that nobody has ended, and no attempt is given up while its report waits;
//! * no node that is alive counts as lost, nor an attempt as silent, because its job tracker was cut off;
//! * the directory of unfinished output is gone in the end, whatever nodes do late;
//! * a slot runs one attempt at a time, only while it is granted, and no slot is in use after the end;
//! * no attempt may commit while another one of its task may;
//! * each task that succeeded was committed by the attempt that succeeded;
//! * a job fails only if more of its tasks failed than its settings allow, each as often as they allow, and
//!   succeeds only without such tasks; an attempt whose node was lost has not failed;
//! * an attempt is given up only after its timeout, not counting the time without a job tracker;
//! * after a restart no slot is forgotten, and nothing waits for what may have been missed;
//! * a task that hangs, and may have a second attempt, has one soon when there is room for it;
//! * an attempt that only tests some records neither commits nor succeeds, and few tests find bad records;
//! * an engine that is written and read again continues as before.
//!
//! Then the same seed makes a job whose job tracker runs on a node, and dies there: see `fail_over`.
//!
//! It has no threads, clock or files; printing is the caller's.

mod fail_over;
mod ledger;
mod service;
#[cfg(test)]
mod tests;
mod trackers;
mod weather;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use corona_job_engine::{JobEngine, JobInput, JobOutcome, JobSpec};
use corona_model::types::Millis;
use corona_process::panics::Panic;
use corona_simulation::Random;

use self::service::Habits;
use self::world::ServiceSimulation;

/// Counts of one run, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Inputs that job engines took.
    pub inputs: u64,
    /// Jobs that succeeded.
    pub succeeded: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were killed.
    pub killed: u64,
    /// Attempts that were launched.
    pub launched: u64,
    /// Attempts that were launched while another one of their task ran.
    pub second_attempts: u64,
    /// Tasks that succeeded without some records, since these were bad.
    pub skipped: u64,
    /// Attempts that failed for a fault of their node, which does not count against their tasks.
    pub spared: u64,
    /// Attempts that committed.
    pub committed: u64,
    /// Slots that were taken back.
    pub revoked: u64,
    /// Nodes that jobs lost.
    pub lost_nodes: u64,
    /// Calls that were lost, there or back.
    pub lost_calls: u64,
    /// Engines that were written and read again.
    pub restored: u64,
    /// Job trackers that died in the middle of a job and were restarted.
    pub restarts: u64,
    /// Job trackers on nodes that were lost.
    pub lost_job_trackers: u64,
    /// Restarts of parents of such job trackers.
    pub parent_restarts: u64,
    /// Tasks that one job tracker on a node took over from another one.
    pub saved: u64,
    /// Times when the cluster manager was away.
    pub outages: u64,
    /// Times when the process of a job tracker did not run.
    pub stalls: u64,
    /// Jumps of the machine's clock.
    pub clock_jumps: u64,
    /// Times when the network of a job tracker was away.
    pub cut_offs: u64,
    /// Nodes that a job tracker has given up before the cluster manager did.
    pub given_up: u64,
    /// Orders to launch that a node found after it had hung, and did not carry out.
    pub stale_launches: u64,
    /// Jobs whose late output was removed after their end.
    pub sweeps: u64,
}

impl Summary {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: Summary) {
        self.inputs += other.inputs;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.killed += other.killed;
        self.launched += other.launched;
        self.second_attempts += other.second_attempts;
        self.skipped += other.skipped;
        self.spared += other.spared;
        self.committed += other.committed;
        self.revoked += other.revoked;
        self.lost_nodes += other.lost_nodes;
        self.lost_calls += other.lost_calls;
        self.restored += other.restored;
        self.restarts += other.restarts;
        self.lost_job_trackers += other.lost_job_trackers;
        self.parent_restarts += other.parent_restarts;
        self.saved += other.saved;
        self.outages += other.outages;
        self.stalls += other.stalls;
        self.clock_jumps += other.clock_jumps;
        self.cut_offs += other.cut_offs;
        self.given_up += other.given_up;
        self.stale_launches += other.stale_launches;
        self.sweeps += other.sweeps;
    }
}

/// A run in which something did not hold.
#[derive(Clone, Debug, thiserror::Error)]
#[error("seed {seed} fails: {what}")]
pub struct Failure {
    /// The run.
    pub seed: u64,
    /// What did not hold, or how an engine panicked.
    pub what: String,
    /// The jobs and their inputs up to the failure.
    pub histories: Vec<History>,
}

/// What a job engine was made of and what it took.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The job.
    pub spec: JobSpec,
    /// Inputs with their times.
    pub inputs: Vec<(Millis, JobInput)>,
}

/// What takes inputs: a job engine, or in tests one with a fault.
trait Subject {
    fn apply(&mut self, now: Millis, input: JobInput) -> JobOutcome;
    fn engine(&mut self) -> &mut JobEngine;
}

impl Subject for JobEngine {
    fn apply(&mut self, now: Millis, input: JobInput) -> JobOutcome {
        JobEngine::apply(self, now, input)
    }

    fn engine(&mut self) -> &mut JobEngine {
        self
    }
}

/// Runs a simulation.
///
/// # Errors
/// The first thing that does not hold.
pub fn run(seed: u64) -> Result<Summary, Box<Failure>> {
    let mut summary = run_with(seed, Habits::GOOD, JobEngine::new)?;
    let failed = |what| Box::new(Failure { seed, what, histories: Vec::new() });
    let fail_over = catch_unwind(|| fail_over::run(seed));
    let fail_over = fail_over.unwrap_or_else(|left| Err(Panic::of(&*left).to_string()));
    summary.add(fail_over.map_err(failed)?);
    Ok(summary)
}

fn run_with<S: Subject>(
    seed: u64,
    habits: Habits,
    subject: impl Fn(JobSpec) -> S,
) -> Result<Summary, Box<Failure>> {
    let mut histories = Vec::new();
    let first = match attempt(seed, &subject, habits, None) {
        Ok(summary) => return Ok(summary),
        Err(what) => what,
    };
    // The same again, and this time with the inputs kept.
    let what = match attempt(seed, &subject, habits, Some(&mut histories)) {
        Err(what) => what,
        Ok(_) => format!("{first}; but not when the run is repeated"),
    };
    Err(Box::new(Failure { seed, what, histories }))
}

fn attempt<S: Subject>(
    seed: u64,
    subject: &impl Fn(JobSpec) -> S,
    habits: Habits,
    histories: Option<&mut Vec<History>>,
) -> Result<Summary, String> {
    let mut world = ServiceSimulation::new(Random::new(seed), subject, habits, histories.is_some());
    let run = catch_unwind(AssertUnwindSafe(|| world.run()));
    let result = run.unwrap_or_else(|left| Err(Panic::of(&*left).to_string()));
    if let Some(histories) = histories {
        *histories = world.histories();
    }
    result
}
