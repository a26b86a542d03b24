//! The cluster manager's counters and histograms, which grow while it serves.
//!
//! Events are counted where they happen, with relaxed atomic additions and no lock. The engine's
//! current state is not kept here but read for each scrape ([`Gauges`](exposition::Gauges)). Spec:
//! cluster-manager/08 §4; `docs/operate/metrics.md` lists the names.

pub(crate) mod exposition;
mod fairness;
pub(crate) mod original;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corona_engine::{Notification, Record, Starvation, StepMismatch};
use corona_model::types::{PerType, SessionStatus};
pub use corona_process::histogram::{Histogram, Snapshot};
use corona_wire::Service;
use corona_wire::calls::{ClusterManager as Contract, ClusterManagerCall};
use corona_wire::server::Answer;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds so much.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything that is counted, since the start of the process.
#[derive(Debug)]
pub struct Metrics {
    requested: PerType<Counter>,
    granted: PerType<Counter>,
    revoked: PerType<Counter>,
    released: PerType<Counter>,
    duplicate_requests: Counter,
    sessions_started: Counter,
    sessions_ended: [Counter; SessionStatus::ALL.len()],
    sessions_expired: Counter,
    remote_job_trackers_timed_out: Counter,
    held_up_ms: Counter,
    steps_mismatched: [Counter; MISMATCHES.len()],
    nodes_added: Counter,
    nodes_lost: [Counter; LOSSES.len()],
    nodes_blacklisted: PerType<Counter>,
    starvations: [PerType<Counter>; STARVATIONS.len()],
    preemptions_wanted: PerType<Counter>,
    preemptions_missed: PerType<Counter>,
    safe_mode: AtomicBool,
    /// Milliseconds after `started` at which the driving task last came by.
    beat_ms: AtomicU64,
    started: Instant,
    /// From a request to its grant, as decided.
    pub request_to_grant: PerType<Histogram>,
    /// From a grant's decision to the session's answer.
    pub(crate) grant_to_delivered: Histogram,
    /// One pass of the scheduler over all types.
    pub(crate) pass: Histogram,
    last_pass_ns: AtomicU64,
    /// Waits for the mutex around the engine.
    pub lock_wait: Histogram,
    /// From the end of a call's work until its record was committed, for calls that have one.
    pub commit_wait: Histogram,
    notifications: [Counter; NOTIFICATIONS.len()],
    /// Failed attempts to deliver a notification.
    pub notification_failures: Counter,
    rpc: Box<[Method]>,
    /// Events that were published.
    pub events: Counter,
}

/// Counters of one method of the service.
#[derive(Debug, Default)]
struct Method {
    time: Histogram,
    answers: [Counter; ANSWERS.len()],
}

/// Words for the ways in which a session's view may differ, in the order of their counters.
const MISMATCHES: [&str; 4] = ["lost", "progress", "no_progress", "late"];
/// Words for the ways in which nodes go.
const LOSSES: [&str; 2] = ["expired", "restarted"];
/// Words for the two kinds of starvation.
const STARVATIONS: [&str; 2] = ["minimum", "share"];
/// Labels for the kinds of notifications.
const NOTIFICATIONS: [&str; 3] = ["granted", "revoked", "dead_node"];
/// Words for how a call is answered.
const ANSWERS: [&str; 4] = ["reply", "exception", "fault", "closed"];

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            requested: Default::default(),
            granted: Default::default(),
            revoked: Default::default(),
            released: Default::default(),
            duplicate_requests: Counter::default(),
            sessions_started: Counter::default(),
            sessions_ended: Default::default(),
            sessions_expired: Counter::default(),
            remote_job_trackers_timed_out: Counter::default(),
            held_up_ms: Counter::default(),
            steps_mismatched: Default::default(),
            nodes_added: Counter::default(),
            nodes_lost: Default::default(),
            nodes_blacklisted: Default::default(),
            starvations: Default::default(),
            preemptions_wanted: Default::default(),
            preemptions_missed: Default::default(),
            safe_mode: AtomicBool::new(false),
            beat_ms: AtomicU64::new(0),
            started: Instant::now(),
            request_to_grant: Default::default(),
            grant_to_delivered: Histogram::default(),
            pass: Histogram::default(),
            last_pass_ns: AtomicU64::new(0),
            lock_wait: Histogram::default(),
            commit_wait: Histogram::default(),
            notifications: Default::default(),
            notification_failures: Counter::default(),
            rpc: methods().iter().map(|_| Method::default()).collect(),
            events: Counter::default(),
        }
    }
}

impl Metrics {
    /// Counts the engine's events.
    pub fn record(&self, record: &Record) {
        match record {
            Record::SessionStarted { .. } => self.sessions_started.add(1),
            Record::SessionEnded { handle, status, url, .. } => {
                self.ended(*status).add(1);
                // Spec: cluster-manager/02 §3.4, step 2.
                let elsewhere = url.as_ref().is_some_and(|url| !url.contains(&**handle));
                if *status == SessionStatus::TimedOut && elsewhere {
                    self.remote_job_trackers_timed_out.add(1);
                }
            }
            Record::SessionExpired { .. } => self.sessions_expired.add(1),
            Record::OutOfStep { kind, .. } => self.mismatched(*kind).add(1),
            Record::Requested { kind, count, .. } => self.requested[*kind].add(*count),
            Record::DuplicateRequest { .. } => self.duplicate_requests.add(1),
            Record::Released { kind, count, .. } => self.released[*kind].add(*count),
            Record::Assigned { kind, count, .. } => self.granted[*kind].add(*count),
            Record::Revoked { kind, count, .. } => self.revoked[*kind].add(*count),
            Record::NodeAdded { .. } => self.nodes_added.add(1),
            Record::NodeLost { expired, .. } => {
                let [expiries, restarts] = &self.nodes_lost;
                let lost = if *expired { expiries } else { restarts };
                lost.add(1);
            }
            Record::NodeBlacklisted { kind, .. } => self.nodes_blacklisted[*kind].add(1),
            Record::PoolStarving { kind, cause, .. } => {
                let [of_minimum, of_share] = &self.starvations;
                let starvations = match cause {
                    Starvation::Minimum => of_minimum,
                    Starvation::Share => of_share,
                };
                starvations[*kind].add(1);
            }
            Record::PreemptionFound { kind, count } => {
                self.preemptions_wanted[*kind].add(*count);
            }
            Record::PreemptionFellShort { kind, missing, .. } => {
                self.preemptions_missed[*kind].add(*missing);
            }
            Record::HeldUp { ms } => self.held_up_ms.add(ms.unsigned_abs()),
            Record::SafeMode { on } => self.set_safe_mode(*on),
            Record::IllegalPool { .. }
            | Record::SessionUpdated { .. }
            | Record::NodeLate { .. }
            | Record::NodeOnTime { .. }
            | Record::NodeRunnable { .. }
            | Record::BlacklistCleared { .. }
            | Record::NodeDraining { .. }
            | Record::NodeRevoked { .. }
            | Record::NodeReserved { .. }
            | Record::ReservationEnded { .. }
            | Record::ReservationExpired { .. }
            | Record::RoomMade { .. }
            | Record::PreemptionPaused { .. }
            | Record::FeedbackForUnknownNode { .. }
            | Record::RestartRequested { .. }
            | Record::RestartTold { .. }
            | Record::SettingsChanged => {}
        }
    }

    /// Counts a pass and how long it took.
    pub fn count_pass(&self, took: Duration) {
        self.pass.record(took);
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.last_pass_ns.store(took_ns, Ordering::Relaxed);
    }

    /// How long the last pass took.
    pub(crate) fn last_pass(&self) -> Duration {
        Duration::from_nanos(self.last_pass_ns.load(Ordering::Relaxed))
    }

    /// Counts a call, by its place among the methods ([`place_of_call`]).
    pub fn count_call<R>(&self, place: usize, took: Duration, answer: &Answer<R>) {
        let Some(method) = self.rpc.get(place) else { return };
        method.time.record(took);
        let [replies, exceptions, faults, closed] = &method.answers;
        let answered = match answer {
            Answer::Reply(_) => replies,
            Answer::Exception(_) => exceptions,
            Answer::Fault(_) => faults,
            Answer::Close => closed,
        };
        answered.add(1);
    }

    /// Counts an acknowledged notification, and the time since its decision.
    pub fn count_delivered(&self, notification: &Notification, took: Duration) {
        let [granted, revoked, dead_nodes] = &self.notifications;
        let delivered = match notification {
            Notification::Granted(grants) => {
                self.grant_to_delivered.record_times(took, grants.len() as u64);
                granted
            }
            Notification::Revoked(_) => revoked,
            Notification::DeadNode(_) => dead_nodes,
        };
        delivered.add(1);
    }

    /// Notes that the task that drives the engine is alive.
    pub fn beat(&self) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.beat_ms.store(now_ms, Ordering::Relaxed);
    }

    /// How long ago the task that drives the engine was last seen alive.
    pub(crate) fn since_beat(&self) -> Duration {
        let beat = Duration::from_millis(self.beat_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(beat)
    }

    /// Notes that the engine is in safe mode, or not.
    pub fn set_safe_mode(&self, on: bool) {
        self.safe_mode.store(on, Ordering::Relaxed);
    }

    /// Whether the engine is in safe mode, without asking it.
    pub(crate) fn safe_mode(&self) -> bool {
        self.safe_mode.load(Ordering::Relaxed)
    }

    /// From request to grant, of all types.
    pub(crate) fn request_to_grant_of_all_types(&self) -> Snapshot {
        let mut all = Snapshot::default();
        for of_type in &self.request_to_grant.0 {
            all.add(&of_type.snapshot());
        }
        all
    }

    /// The counter of sessions that ended with this status.
    #[allow(clippy::indexing_slicing, reason = "there is a counter for each status")]
    fn ended(&self, status: SessionStatus) -> &Counter {
        &self.sessions_ended[status as usize]
    }

    fn mismatched(&self, kind: StepMismatch) -> &Counter {
        let [lost, progress, no_progress, late] = &self.steps_mismatched;
        match kind {
            StepMismatch::Lost => lost,
            StepMismatch::Progress => progress,
            StepMismatch::NoProgress => no_progress,
            StepMismatch::Late => late,
        }
    }
}

/// The place of a call's method among all methods.
pub fn place_of_call(call: &ClusterManagerCall) -> usize {
    fn place<S: Service>(call: &S::Call) -> usize {
        S::place_of_call(call)
    }
    place::<Contract>(call)
}

/// The methods that are counted, in the order of their places.
fn methods() -> &'static [&'static str] {
    fn names<S: Service>() -> &'static [&'static str] {
        S::METHODS
    }
    names::<Contract>()
}
