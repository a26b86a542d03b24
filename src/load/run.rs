//! A run from the first connection to the last: nodes join, sessions start, the load is measured,
//! all grants are released, the cluster manager's counts are checked, sessions end.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use super::callbacks::CallbackServer;
use super::connections::{self, Idle};
use super::crowd::{self, CrowdRun};
use super::faults::FaultKind;
use super::machine::{ProcessUse, allow_connections};
use super::meter::locked;
use super::plan::{Connections, Crowd, Driver, Plan, PlanError};
use super::report::{Report, Timeline, Timing};
use super::world::{LoadWorld, Phase};
use super::{ENDING_TIME, SET_UP_TIME, audit, nodes};

/// Why there is no report.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The plan exceeds a limit.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The listener for notifications cannot be opened.
    #[error("cannot listen for notifications: {0}")]
    Listen(#[from] io::Error),
    /// The system allows too few open files, or the nodes did not join.
    #[error("{0}")]
    SetUp(String),
}

/// The progress of a run, for an operator who watches it.
#[derive(Debug, Default)]
pub struct Progress {
    line: Mutex<String>,
}

impl Progress {
    /// A few words, at most 79 columns.
    pub fn line(&self) -> String {
        locked(&self.line).clone()
    }

    fn say(&self, line: String) {
        *locked(&self.line) = line;
    }
}

/// Runs a plan. It ends early, in the same orderly way, when `stop` is done. Must be called within
/// a tokio runtime; no task of it outlives the call.
///
/// Errors: when it could not begin. Later faults are in the report.
pub async fn run(
    plan: Plan,
    progress: &Progress,
    stop: impl Future<Output = ()>,
) -> Result<Report, LoadError> {
    let stop = pin!(stop);
    let work: Pin<Box<dyn Future<Output = _>>> = Box::pin(run_until(plan, progress, stop));
    work.await
}

async fn run_until(
    plan: Plan,
    progress: &Progress,
    stop: Pin<&mut dyn Future<Output = ()>>,
) -> Result<Report, LoadError> {
    plan.check()?;
    let needed = plan.most_connections();
    allow_connections(needed).map_err(|most| {
        LoadError::SetUp(format!(
            "{needed} connections are needed and the system allows {most}; \
             raise the limit of open files (ulimit -Hn) or ask for fewer"
        ))
    })?;
    let world = Arc::new(LoadWorld::new(plan));
    let mut run = LoadRun { world, progress, tasks: JoinSet::new(), stopped_early: false };
    let result = run.play(stop).await;
    run.world.phase.send_replace(Phase::Over);
    run.tasks.shutdown().await;
    result
}

struct LoadRun<'a> {
    world: Arc<LoadWorld>,
    progress: &'a Progress,
    tasks: JoinSet<()>,
    stopped_early: bool,
}

/// The channel on which crowds report that they have released everything.
struct Crowds {
    callbacks: Arc<CallbackServer>,
    drained: mpsc::Sender<()>,
    runs: Vec<Arc<CrowdRun>>,
    started: u64,
}

impl LoadRun<'_> {
    async fn play(&mut self, stop: impl Future<Output = ()>) -> Result<Report, LoadError> {
        let mut stop = pin!(stop);
        let (callbacks, idle) = tokio::select! {
            set_up = self.set_up() => set_up?,
            () = stop.as_mut() => {
                let what = "stopped before it had begun".into();
                return Err(self.set_up_error(what));
            }
        };
        let (drained, mut all_drained) = mpsc::channel(1);
        let mut crowds =
            Crowds { callbacks: Arc::new(callbacks), drained, runs: vec![], started: 0 };
        let plan = self.world.plan.clone();
        for crowd in &plan.crowds {
            self.start_crowd(&mut crowds, crowd);
        }
        if plan.connections == Connections::Storms {
            self.tasks.spawn(connections::storms(self.world.clone(), plan.nodes.count));
        }
        let idle_bytes = self.world.meter.count("bytes for each idle connection");
        let measured = self.measure(&plan, &mut crowds, stop).await;
        self.look_for_grants(&crowds.runs);

        if let Some(idle) = idle {
            self.world.meter.set_open(true);
            idle.count(&idle_bytes);
            self.world.meter.set_open(false);
            if timeout(ENDING_TIME / 3, idle.close(&self.world)).await.is_err() {
                let what = || "idle connections were not answered in time".to_owned();
                self.world.faults.note(FaultKind::CallFailed, what);
            }
        }
        self.progress.say("giving everything back".into());
        self.world.phase.send_replace(Phase::Stopping);
        drop(crowds.drained);
        // No message is sent: the channel closes when the last task is done.
        if timeout(ENDING_TIME / 3, all_drained.recv()).await.is_err() {
            let what = || "sessions could not give everything back in time".to_owned();
            self.world.faults.note(FaultKind::CallFailed, what);
        }
        self.audit().await;
        self.progress.say("ending sessions".into());
        self.world.phase.send_replace(Phase::Ending);
        let ended = async {
            while !self.world.sessions().is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        if timeout(ENDING_TIME / 3, ended).await.is_err() {
            let left = self.world.sessions().len() as u64;
            let what = || format!("{left} sessions could not be ended in time");
            self.world.faults.note_times(FaultKind::CallFailed, left, what);
        }
        self.world.cluster.judge(&self.world.faults);
        Ok(self.report(measured))
    }

    /// A run without a single grant has shown nothing, however short it was.
    fn look_for_grants(&self, crowds: &[Arc<CrowdRun>]) {
        let (waiting, granted) = waiting_and_granted(crowds);
        if waiting > 0 && granted == 0 && !self.stopped_early {
            self.world.faults.note(FaultKind::Stalled, || {
                format!("{waiting} requests were pending for the whole run and none was granted")
            });
        }
    }

    /// Every node joins; the listener opens on the address from which they are connected.
    async fn set_up(&mut self) -> Result<(CallbackServer, Option<Idle>), LoadError> {
        let first = self.world.connect().await;
        let first = first.map_err(|failure| self.set_up_error(failure.0))?;
        let callbacks = CallbackServer::open(self.world.clone(), first.local.ip())?;
        drop(first);
        let connections = self.world.plan.nodes.connections;
        let (joined, mut joins) = mpsc::channel(64);
        for number in 0..connections {
            self.tasks.spawn(nodes::run(self.world.clone(), number, joined.clone()));
        }
        drop(joined);
        let all = async {
            for done in 0..connections {
                self.progress.say(format!("nodes join: {done} of {connections} connections"));
                match joins.recv().await {
                    Some(Ok(())) => {}
                    Some(Err(failure)) => return Err(failure.0),
                    None => return Err("a node's task has ended".into()),
                }
            }
            Ok(())
        };
        let late = || Err(format!("not all nodes had joined after {} s", SET_UP_TIME.as_secs()));
        let joined: Result<(), String> = timeout(SET_UP_TIME, all).await.unwrap_or_else(|_| late());
        joined.map_err(|what| self.set_up_error(what))?;
        let Connections::Idle(count) = self.world.plan.connections else {
            return Ok((callbacks, None));
        };
        let opened = timeout(SET_UP_TIME, Idle::open(&self.world, count)).await;
        let opened = opened.map_err(|_| self.set_up_error("connections open too slowly".into()))?;
        let idle = opened.map_err(|failure| self.set_up_error(failure.0))?;
        Ok((callbacks, Some(idle)))
    }

    fn set_up_error(&self, what: String) -> LoadError {
        LoadError::SetUp(format!("the cluster manager at {}: {what}", self.world.plan.manager))
    }

    fn start_crowd(&mut self, crowds: &mut Crowds, plan: &Crowd) {
        let run = Arc::new(CrowdRun::new(&self.world, plan.clone()));
        crowds.runs.push(run.clone());
        // Those that hold slots for a while are spread over that while, but all are there when the
        // measurement begins.
        let spread = plan.job.hold.min(self.world.plan.warm_up);
        for place in 0..plan.sessions {
            crowds.started += 1;
            let delay = spread.mul_f64(place as f64 / plan.sessions as f64);
            let (world, callbacks) = (self.world.clone(), crowds.callbacks.clone());
            let drained = crowds.drained.clone();
            let number = crowds.started;
            self.tasks.spawn(crowd::run(world, run.clone(), callbacks, (number, delay), drained));
        }
    }

    /// Warms up, measures, and starts late crowds in the middle.
    async fn measure(
        &mut self,
        plan: &Plan,
        crowds: &mut Crowds,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Measured {
        let mut measured = Measured::default();
        let mut watch = Watch::new(self.world.clone());
        let mut wait = async |this: &mut Self, words: &str, time: Duration, crowds: &Crowds| {
            let looks = this.look_on(words, time, &crowds.runs, &mut watch);
            tokio::select! {
                () = looks => {}
                () = stop.as_mut() => this.stopped_early = true,
            }
        };
        wait(self, "warming up", plan.warm_up, crowds).await;
        let halves = plan.late_crowds.is_empty();
        let parts: &[Option<&str>] = if halves { &[None] } else { &[Some("before"), Some("with")] };
        let process = plan.process_id.and_then(ProcessUse::of);
        for part in parts {
            if self.stopped_early {
                break;
            }
            if *part == Some("with") {
                for crowd in &plan.late_crowds {
                    self.start_crowd(crowds, crowd);
                }
                wait(self, "late sessions start", plan.warm_up, crowds).await;
            }
            let time = plan.duration / parts.len() as u32;
            let begin = Instant::now();
            self.world.meter.take();
            self.world.meter.set_open(true);
            wait(self, "measuring", time, crowds).await;
            self.world.meter.set_open(false);
            let took = begin.elapsed();
            let timings = self.world.meter.take().into_iter().filter_map(|(name, times)| {
                Timing::new(name, part.map(str::to_owned), &times, took)
            });
            measured.timings.extend(timings);
            measured.time += took;
        }
        let used = plan.process_id.and_then(ProcessUse::of);
        measured.process = used.zip(process).map(|(used, before)| used.since(before));
        measured.timeline = watch.timeline;
        measured.timeline.seen.retain(|_, seen| seen.iter().any(|seen| *seen > 0));
        measured
    }

    /// Waits, reports progress, and checks whether the run is stalled.
    async fn look_on(
        &self,
        words: &str,
        time: Duration,
        crowds: &[Arc<CrowdRun>],
        watch: &mut Watch,
    ) {
        let begin = tokio::time::Instant::now();
        let is_measured = words == "measuring";
        let step = STEP.max(time / 100);
        let mut at = begin;
        loop {
            let left = begin + time - at;
            if left.is_zero() {
                return;
            }
            at += step.min(left);
            sleep_until(at).await;
            let seen = watch.look(crowds, is_measured.then_some(step));
            let (done, of) = (begin.elapsed().as_secs(), time.as_secs());
            self.progress.say(format!("{words}: {done} of {of} s, {seen}"));
            if is_measured && watch.audit_is_due() {
                self.audit().await;
            }
        }
    }

    async fn audit(&self) {
        if self.world.sessions().is_empty() {
            return;
        }
        if let Err(failure) = audit::audit(&self.world).await {
            self.world.faults.note(FaultKind::CallFailed, || failure.0);
        }
    }

    fn report(&self, measured: Measured) -> Report {
        let plan = &self.world.plan;
        let counted = self.world.meter.counted().into_iter().filter(|(_, number)| *number > 0);
        Report {
            scenario: plan.scenario.into(),
            manager: plan.manager.to_string(),
            plan: plan.describe(),
            measured_ms: u64::try_from(measured.time.as_millis()).unwrap_or(u64::MAX),
            measures: measured.timings,
            counts: counted.map(|(name, number)| (name.to_owned(), number)).collect(),
            process: measured.process,
            timeline: measured.timeline,
            errors: self.world.faults.list(),
            stopped_early: self.stopped_early,
        }
    }
}

/// Pending requests and grants so far, of sessions whose driver reports them.
fn waiting_and_granted(crowds: &[Arc<CrowdRun>]) -> (i64, u64) {
    let prompt = crowds.iter().filter(|crowd| crowd.plan.driver == Driver::Prompt);
    prompt.fold((0, 0), |(waiting, granted), crowd| {
        let (wait, grant) = crowd.waiting_and_granted();
        (waiting + wait, granted + grant)
    })
}

#[derive(Default)]
struct Measured {
    timings: Vec<Timing>,
    timeline: Timeline,
    process: Option<ProcessUse>,
    time: Duration,
}

/// The shortest time between two looks at a run.
const STEP: Duration = Duration::from_millis(100);
/// Between two looks at the cluster manager's own count.
const AUDIT_EVERY: Duration = Duration::from_secs(10);
/// Requests may wait beside free slots for so long, such as for a nearer node.
const STALL: Duration = Duration::from_secs(15);

/// A sample of a run's progress.
struct Watch {
    world: Arc<LoadWorld>,
    timeline: Timeline,
    seen: BTreeMap<String, u64>,
    looked: Instant,
    audited: Instant,
    granted: u64,
    /// Since when there have been requests, nothing held, and no grant.
    still_since: Option<Instant>,
}

impl Watch {
    fn new(world: Arc<LoadWorld>) -> Watch {
        let (looked, audited) = (Instant::now(), Instant::now());
        let (timeline, seen) = (Timeline::default(), BTreeMap::new());
        Watch { world, timeline, seen, looked, audited, granted: 0, still_since: None }
    }

    /// Takes a sample, keeps it if it belongs to the timeline, and summarizes it in a few words.
    fn look(&mut self, crowds: &[Arc<CrowdRun>], step: Option<Duration>) -> String {
        let mut most = (String::new(), 0);
        let places = self.timeline.seen.values().map(Vec::len).max().unwrap_or(0);
        for (name, seen) in self.world.meter.seen() {
            let new = seen - self.seen.insert(name.clone(), seen).unwrap_or(0);
            if new > most.1 {
                most = (name.clone(), new);
            }
            if step.is_some() {
                let line = self.timeline.seen.entry(name).or_default();
                line.resize(places, 0);
                line.push(new);
            }
        }
        if let Some(step) = step {
            self.timeline.step_ms = u64::try_from(step.as_millis()).unwrap_or(u64::MAX);
        }
        let rate = most.1 as f64 / self.looked.elapsed().as_secs_f64().max(1e-9);
        self.looked = Instant::now();
        self.look_for_stalls(crowds);
        let (name, rate) = (most.0.chars().take(30).collect::<String>(), rate.round());
        format!("{name} {rate} a second")
    }

    fn look_for_stalls(&mut self, crowds: &[Arc<CrowdRun>]) {
        let (waiting, granted) = waiting_and_granted(crowds);
        let stands = waiting > 0 && granted == self.granted && self.world.cluster.held() == 0;
        self.granted = granted;
        let since = *self.still_since.get_or_insert_with(Instant::now);
        if !stands {
            self.still_since = None;
        } else if since.elapsed() >= STALL {
            self.still_since = None;
            self.world.faults.note(FaultKind::Stalled, || {
                format!("{waiting} requests waited {} s and no slot was held", STALL.as_secs())
            });
        }
    }

    fn audit_is_due(&mut self) -> bool {
        let due = self.audited.elapsed() >= AUDIT_EVERY;
        if due {
            self.audited = Instant::now();
        }
        due
    }
}
