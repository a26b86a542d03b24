//! Seeded random jobs whose job tracker runs on a node: a parent and, one after the other, the job engines
//! of its remote job trackers, in virtual time.
//!
//! Remote job trackers die at any point: while they start, between two of their calls, after they have left
//! their state or before. Parents are restarted, and know only the inputs in their journals. Calls are lost,
//! and arrive late. What must hold in each run:
//!
//! * the job ends, and as the limits of its parent allow;
//! * two remote job trackers never have the job at the same time, and one that was replaced is refused;
//! * no slot of a remote job tracker, and no session of one, is left;
//! * under one remote job tracker, no attempt may commit while another one of its task may;
//! * a task whose success was left with the parent never runs again, unless a reduce cannot fetch it;
//! * a restarted parent is the same as before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use corona_hadoop::io::Reader;
use corona_hadoop::io::formats::Writable;
use corona_hadoop::writables as wire;
use corona_job_engine::parent::{
    Parent, ParentEffect, ParentInput, ParentReply, ParentSettings, Remote, SavedUpdate,
};
use corona_job_engine::{
    GrantedSlot, JobEffect, JobEngine, JobInput, JobSpec, Launch, RequestId, Tracker, Work,
};
use corona_job_wire::saved;
use corona_mapreduce::{
    AttemptKey, HistoryRecord, JobId, JobSettings, JobState, Split, TaskKey, TaskState, TaskStatus,
};
use corona_model::types::Millis;
use corona_simulation::Random;

use super::Summary;

const BEGIN: Millis = Millis(1_790_000_000_000);
/// A run that takes more steps than this does not come to its end.
const MAX_STEPS: u64 = 100_000;
/// How long remote job trackers die and calls are lost.
const TROUBLE_MS: i64 = 60_000;
/// The pause between two reports of a remote job tracker, and between two of a task tracker.
const REPORT_MS: i64 = 1_000;
/// A state larger than this is refused; no run comes near it.
const MAX_STATE_BYTES: usize = 1 << 30;

/// Runs one job.
///
/// # Errors
/// The first thing that does not hold.
pub(crate) fn run(seed: u64) -> Result<Summary, String> {
    FailOverSimulation::new(Random::new(seed)).run()
}

/// Something that will happen. The number of a remote is that of its attempt.
#[derive(Debug)]
enum Happening {
    /// The parent's request is granted.
    ParentGrant(RequestId, Vec<Arc<str>>),
    /// The order to start a remote arrives at its node.
    Start(u32),
    /// A remote reports to the parent.
    Report(u32),
    /// The parent submits the job to a remote.
    Submit(Remote),
    /// The parent looks at a remote.
    Look(u32),
    /// A remote's request is granted.
    Grant(u32, RequestId, Vec<Arc<str>>),
    /// A remote leaves what it has not left yet.
    Push(u32),
    /// Orders of a remote arrive.
    Launch(u32, Launch),
    Kill(AttemptKey),
    Commit(u32, AttemptKey),
    /// A task tracker reports to the remote that it knows.
    Heartbeat,
    /// An attempt makes progress.
    Step(AttemptKey, u64),
    /// Something goes wrong.
    Trouble,
}

/// A remote job tracker.
struct RemoteTracker {
    engine: JobEngine,
    is_alive: bool,
    has_job: bool,
    /// Updates that were not left with the parent yet.
    unsent: Vec<wire::StateUpdate>,
    nodes: BTreeSet<Arc<str>>,
    /// The attempts that may commit under it.
    committing: BTreeMap<TaskKey, AttemptKey>,
    ended: BTreeSet<AttemptKey>,
    end: Option<JobState>,
}

/// An attempt on a node.
#[derive(Clone, Debug)]
struct Attempt {
    serial: u64,
    /// The remote that launched it.
    of: u32,
    node: Arc<str>,
    state: TaskState,
    commits: bool,
    fails: bool,
    /// Its state when it has cleaned up, if that is its work.
    cleaned: Option<TaskState>,
}

impl Attempt {
    fn has_ended(&self) -> bool {
        match self.cleaned {
            Some(cleaned) => self.state == cleaned,
            None => !self.state.is_live(),
        }
    }
}

struct FailOverSimulation {
    random: Random,
    now: Millis,
    numbered: u64,
    agenda: BTreeMap<(Millis, u64), Happening>,
    spec: JobSpec,
    settings: ParentSettings,
    parent: Parent,
    journal: Vec<(Millis, ParentInput)>,
    /// The slots that the parent has requested and not released.
    slots: BTreeSet<RequestId>,
    /// The sessions of remotes that the parent knew, and that were not ended.
    sessions: BTreeSet<u32>,
    remotes: BTreeMap<u32, RemoteTracker>,
    attempts: BTreeMap<AttemptKey, Attempt>,
    /// The tasks whose success the parent knows.
    kept: BTreeSet<TaskKey>,
    call_lost: usize,
    remote_dies: usize,
    parent_restarts: usize,
    user_kills: bool,
    is_killed: bool,
    end: Option<JobState>,
    counts: Summary,
}

impl FailOverSimulation {
    fn new(mut random: Random) -> FailOverSimulation {
        let maps = *random.pick(&[1, 3, 12, 30]);
        let reduces = *random.pick(&[0, 1, 4]);
        let settings = ParentSettings {
            maps,
            reduces,
            max_restarts: *random.pick(&[0, 1, 5, 1_000]),
            start_attempts: 4,
            start_timeout_ms: 20_000,
            exclude_failed: true,
            exclusion_wait_ms: 3_000,
            max_state_bytes: MAX_STATE_BYTES,
        };
        let spec = JobSpec {
            id: JobId::new("simulated.1", 1).unwrap_or_else(|wrong| panic!("{wrong}")),
            name: "simulated".into(),
            user: "nobody".into(),
            conf: "file:/job.xml".into(),
            tracker: "null:null:null".into(),
            splits: vec![Split::default(); maps as usize],
            reduces,
            settings: JobSettings {
                launch_timeout_ms: 10_000,
                task_timeout_ms: 20_000,
                ..JobSettings::default()
            },
            racks: Vec::new(),
        };
        FailOverSimulation {
            now: BEGIN,
            numbered: 0,
            agenda: BTreeMap::new(),
            parent: Parent::new(settings.clone()),
            settings,
            spec,
            journal: Vec::new(),
            slots: BTreeSet::new(),
            sessions: BTreeSet::new(),
            remotes: BTreeMap::new(),
            attempts: BTreeMap::new(),
            kept: BTreeSet::new(),
            call_lost: *random.pick(&[0, 0, 5, 20]),
            remote_dies: *random.pick(&[0, 2, 5, 15]),
            parent_restarts: *random.pick(&[0, 0, 5, 15]),
            user_kills: random.percent(10),
            is_killed: false,
            end: None,
            counts: Summary::default(),
            random,
        }
    }

    fn run(&mut self) -> Result<Summary, String> {
        self.send_to_parent(ParentInput::Submitted)?;
        self.after(REPORT_MS, Happening::Heartbeat);
        self.after(500, Happening::Trouble);
        for steps in 0.. {
            if self.end.is_some() {
                break;
            }
            if steps > MAX_STEPS {
                return Err(format!("the job never ends: {:?}", self.settings));
            }
            self.step()?;
        }
        self.close()
    }

    fn close(&mut self) -> Result<Summary, String> {
        // The parent's session has ended, and with it the slot of the last remote.
        let ended = self.remotes.iter().filter(|(_, remote)| remote.end.is_some());
        let ended: Vec<u32> = ended.map(|(attempt, _)| *attempt).collect();
        self.sessions.retain(|session| !ended.contains(session));
        if let Some(session) = self.sessions.first() {
            return Err(format!("the session of remote {session} is left"));
        }
        if self.slots.len() > 1 {
            return Err(format!("slots {:?} are left", self.slots));
        }
        let lost = self.parent.lost();
        let may_fail = lost > self.settings.max_restarts || self.call_lost > 0;
        match self.end {
            Some(JobState::Succeeded) => self.counts.succeeded += 1,
            Some(JobState::Failed) if may_fail => self.counts.failed += 1,
            Some(JobState::Killed) if self.is_killed => self.counts.killed += 1,
            end => return Err(format!("the job ended as {end:?} after {lost} losses")),
        }
        self.counts.lost_job_trackers += u64::from(lost);
        Ok(self.counts)
    }

    fn troubled(&self) -> bool {
        self.now.since(BEGIN) < TROUBLE_MS
    }

    fn wrong(&mut self, percent: usize) -> bool {
        self.troubled() && self.random.percent(percent)
    }

    fn after(&mut self, span_ms: i64, what: Happening) {
        self.numbered += 1;
        self.agenda.insert((self.now.plus_ms(span_ms), self.numbered), what);
    }

    fn soon(&mut self, what: Happening) {
        let delay = self.random.between(1, 200);
        self.after(delay, what);
    }

    /// Lets time pass until the next thing happens.
    fn step(&mut self) -> Result<(), String> {
        let next = self.agenda.first_key_value().map(|((at, _), _)| *at);
        let parent = self.parent.next_deadline();
        let engines =
            self.remotes.iter().filter(|(_, it)| it.is_alive && it.has_job && it.end.is_none());
        let due = engines.filter_map(|(number, it)| Some((it.engine.next_deadline()?, *number)));
        let engine = due.min();
        let first = [next, parent, engine.map(|(at, _)| at)].into_iter().flatten().min();
        self.now = self.now.max(first.ok_or("nothing happens any more")?);
        if parent.is_some_and(|due| due <= self.now) {
            return self.send_to_parent(ParentInput::Tick).map(drop);
        }
        if let Some((at, number)) = engine
            && at <= self.now
        {
            return self.send_to_engine(number, JobInput::Tick);
        }
        match self.agenda.pop_first() {
            Some((_, happening)) => self.happens(happening),
            None => Ok(()),
        }
    }

    fn happens(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::ParentGrant(id, excluded) => self.parent_grant(id, &excluded),
            Happening::Start(attempt) => self.start(attempt),
            Happening::Report(attempt) => self.report(attempt),
            Happening::Submit(remote) => self.submit(&remote),
            Happening::Look(attempt) => self.look(attempt),
            Happening::Grant(attempt, id, excluded) => self.grant(attempt, id, &excluded),
            Happening::Push(attempt) => self.push(attempt),
            Happening::Launch(of, launch) => {
                self.launch(of, &launch);
                Ok(())
            }
            Happening::Kill(key) => {
                if let Some(attempt) = self.attempts.get_mut(&key)
                    && !attempt.has_ended()
                {
                    attempt.state = attempt.cleaned.unwrap_or(TaskState::Killed);
                }
                Ok(())
            }
            Happening::Commit(of, key) => {
                let serial = self.attempts.get(&key).filter(|it| it.of == of).map(|it| it.serial);
                serial.map_or(Ok(()), |serial| self.attempt_steps(key, serial, true))
            }
            Happening::Heartbeat => self.heartbeats(),
            Happening::Step(key, serial) => self.attempt_steps(key, serial, false),
            Happening::Trouble => self.trouble(),
        }
    }

    // The parent.

    fn send_to_parent(&mut self, input: ParentInput) -> Result<Option<ParentReply>, String> {
        self.journal.push((self.now, input.clone()));
        let outcome = self.parent.apply(self.now, input);
        for effect in outcome.effects {
            match effect {
                ParentEffect::Request(request) => {
                    let id = RequestId(request.id);
                    if !self.slots.insert(id) {
                        return Err("a request's id is used twice".into());
                    }
                    self.soon(Happening::ParentGrant(id, request.exclude_hosts));
                }
                ParentEffect::Release(id) => {
                    if !self.slots.remove(&id) {
                        return Err("a slot is released that is not there".into());
                    }
                }
                ParentEffect::Start { attempt, .. } => {
                    if self.slots.len() > 2 {
                        return Err(format!("slots pile up: {:?}", self.slots));
                    }
                    // The order may be lost: then no remote reports.
                    if !self.wrong(self.call_lost) {
                        self.soon(Happening::Start(attempt));
                    }
                }
                ParentEffect::Watch(remote) => self.soon(Happening::Submit(remote)),
                ParentEffect::Kill(remote) => {
                    self.send_to_engine(remote.attempt, JobInput::KillJob)?;
                }
                ParentEffect::EndRemoteSession(session) => {
                    let number =
                        session.parse::<u32>().map_err(|_| "a session without a number")?;
                    self.sessions.remove(&number);
                    if let Some(remote) = self.remotes.get_mut(&number) {
                        // It has lost its slots: its orders have no effect.
                        remote.is_alive = false;
                    }
                }
                ParentEffect::UpdatePriority(_) => {}
                ParentEffect::End { state, .. } => self.end = Some(state),
            }
        }
        Ok(outcome.reply.ok())
    }

    /// The parent ends, and starts again from its journal.
    fn restart_parent(&mut self) -> Result<(), String> {
        self.counts.parent_restarts += 1;
        let mut again = Parent::new(self.settings.clone());
        for (at, input) in &self.journal {
            let _ = again.apply(*at, input.clone());
        }
        if again != self.parent {
            return Err("a parent that was restarted is another one".into());
        }
        // What was on its way to and from it is lost, and what it did without an input.
        let is_lost = |happening: &Happening| {
            matches!(
                happening,
                Happening::ParentGrant(..) | Happening::Submit(_) | Happening::Look(_)
            )
        };
        self.agenda.retain(|_, happening| !is_lost(happening));
        self.send_to_parent(ParentInput::Resumed).map(drop)
    }

    fn parent_grant(&mut self, id: RequestId, excluded: &[Arc<str>]) -> Result<(), String> {
        if !self.slots.contains(&id) {
            return Ok(());
        }
        let Some(host) = self.host(["a", "b"], excluded) else { return Ok(()) };
        let slot = slot_on(id, &host);
        self.send_to_parent(ParentInput::Granted { slots: vec![slot] }).map(drop)
    }

    /// One of these hosts that is not excluded.
    fn host<const N: usize>(&mut self, all: [&str; N], excluded: &[Arc<str>]) -> Option<Arc<str>> {
        let free = |host: &&str| !excluded.iter().any(|other| **other == **host);
        let free: Vec<&str> = all.into_iter().filter(free).collect();
        if free.is_empty() { None } else { Some((*self.random.pick(&free)).into()) }
    }

    fn start(&mut self, attempt: u32) -> Result<(), String> {
        let mut spec = self.spec.clone();
        spec.tracker = format!("tracker of {attempt}").into();
        let remote = RemoteTracker {
            engine: JobEngine::new(spec),
            is_alive: true,
            has_job: false,
            unsent: Vec::new(),
            nodes: BTreeSet::new(),
            committing: BTreeMap::new(),
            ended: BTreeSet::new(),
            end: None,
        };
        self.remotes.insert(attempt, remote);
        self.soon(Happening::Report(attempt));
        Ok(())
    }

    /// A remote that is refused ends its session, and itself.
    fn report(&mut self, attempt: u32) -> Result<(), String> {
        if !self.is_alive(attempt) {
            return Ok(());
        }
        self.after(REPORT_MS, Happening::Report(attempt));
        if self.wrong(self.call_lost) {
            return Ok(());
        }
        let port = u16::try_from(attempt % 60_000).unwrap_or(0);
        let session = attempt.to_string().into();
        let remote = Remote { attempt, host: "10.0.0.1".into(), port, session };
        let is_known = self.parent.remote().is_some_and(|it| it.attempt == attempt);
        if is_known {
            return Ok(());
        }
        if self.send_to_parent(ParentInput::Reported(remote))?.is_some() {
            self.sessions.insert(attempt);
        } else if self.parent.attempt() == attempt && self.end.is_none() {
            return Err("the current remote is refused".into());
        } else {
            self.die(attempt);
            self.sessions.remove(&attempt);
        }
        Ok(())
    }

    fn submit(&mut self, remote: &Remote) -> Result<(), String> {
        let attempt = remote.attempt;
        if self.parent.remote() != Some(remote) {
            return Ok(());
        }
        self.after(200, Happening::Look(attempt));
        if !self.is_alive(attempt) || self.remotes[&attempt].has_job {
            return Ok(());
        }
        let others = self.remotes.iter().filter(|(number, it)| {
            **number != attempt && it.is_alive && it.has_job && it.end.is_none()
        });
        if let Some((other, _)) = others.into_iter().next() {
            return Err(format!("remotes {other} and {attempt} have the job"));
        }
        let input = match self.parent.saved(attempt) {
            Ok((state, session)) if !state.is_empty() => {
                let read = |update: &SavedUpdate| wire_update(&update.bytes);
                let updates = state.in_order().into_iter().map(read).collect::<Result<_, _>>()?;
                let restarts = i32::try_from(self.parent.lost()).unwrap_or(i32::MAX);
                let state =
                    wire::JobTrackerState { updates, session: session.to_owned(), restarts };
                saved::input(&self.spec.id, state)
            }
            _ => JobInput::Submitted,
        };
        if let Some(remote) = self.remotes.get_mut(&attempt) {
            remote.has_job = true;
        }
        self.send_to_engine(attempt, input)?;
        let remote = &self.remotes[&attempt];
        let saved = &remote.engine.totals().saved;
        self.counts.saved += u64::from(saved.map) + u64::from(saved.reduce);
        let is_done = |task: &TaskKey| {
            let view = remote.engine.task_view(*task);
            view.is_some_and(|view| view.succeeded.is_some())
        };
        match self.kept.iter().find(|task| !is_done(task)) {
            Some(task) if remote.end.is_none() => Err(format!("{task:?} is to run again")),
            _ => Ok(()),
        }
    }

    fn look(&mut self, attempt: u32) -> Result<(), String> {
        if self.parent.remote().is_none_or(|remote| remote.attempt != attempt) {
            return Ok(());
        }
        if !self.is_alive(attempt) {
            return self.send_to_parent(ParentInput::Unreachable { attempt }).map(drop);
        }
        self.after(REPORT_MS, Happening::Look(attempt));
        match self.remotes[&attempt].end {
            Some(state) => self.send_to_parent(ParentInput::Ended { attempt, state }).map(drop),
            None => Ok(()),
        }
    }

    // Remotes.

    fn is_alive(&self, attempt: u32) -> bool {
        self.remotes.get(&attempt).is_some_and(|remote| remote.is_alive)
    }

    fn die(&mut self, attempt: u32) {
        if let Some(remote) = self.remotes.get_mut(&attempt) {
            remote.is_alive = false;
        }
    }

    fn send_to_engine(&mut self, attempt: u32, input: JobInput) -> Result<(), String> {
        let Some(remote) = self.remotes.get_mut(&attempt) else { return Ok(()) };
        if !remote.is_alive || !remote.has_job || remote.end.is_some() {
            return Ok(());
        }
        let outcome = remote.engine.apply(self.now, input);
        remote.engine.audit()?;
        let (job, at_ms) = (self.spec.id.clone(), self.now.0);
        for effect in outcome.effects {
            match effect {
                JobEffect::Request(requests) => {
                    for request in requests {
                        let id = RequestId(request.id);
                        self.soon(Happening::Grant(attempt, id, request.exclude_hosts));
                    }
                }
                JobEffect::Launch(launch) => {
                    // It is left before the order goes out.
                    let update = saved::launched(&job, &launch).ok_or("a launch without id")?;
                    self.leave(attempt, update, at_ms);
                    self.push(attempt)?;
                    if self.is_alive(attempt) {
                        self.soon(Happening::Launch(attempt, launch));
                    }
                }
                JobEffect::Kill { attempt: key, .. } => self.soon(Happening::Kill(key)),
                JobEffect::Commit { attempt: key, .. } => self.allow(attempt, key)?,
                JobEffect::Event { event, .. } => {
                    if let Some(remote) = self.remotes.get_mut(&attempt) {
                        remote.ended.insert(event.attempt);
                    }
                }
                JobEffect::Record(HistoryRecord::Attempt(end)) => {
                    if let Some(update) = saved::ended(&job, &end) {
                        self.leave(attempt, update, at_ms);
                    }
                }
                JobEffect::Record(HistoryRecord::Ended(end)) => {
                    if let Some(remote) = self.remotes.get_mut(&attempt) {
                        remote.end = Some(end.state);
                    }
                }
                _ => {}
            }
        }
        if self.remotes.get(&attempt).is_some_and(|remote| !remote.unsent.is_empty()) {
            self.soon(Happening::Push(attempt));
        }
        Ok(())
    }

    fn leave(&mut self, attempt: u32, update: wire::Update, at_ms: i64) {
        if let Some(remote) = self.remotes.get_mut(&attempt) {
            remote.unsent.push(wire::StateUpdate { update, at_ms });
        }
    }

    /// A remote whose state is refused has been replaced.
    fn push(&mut self, attempt: u32) -> Result<(), String> {
        if !self.is_alive(attempt) || !self.parent.may_restart() {
            return Ok(());
        }
        let Some(remote) = self.remotes.get_mut(&attempt) else { return Ok(()) };
        let unsent = std::mem::take(&mut remote.unsent);
        let (mut updates, mut done) = (Vec::new(), Vec::new());
        for update in &unsent {
            let kept = saved::kept(&self.spec.id, update, MAX_STATE_BYTES);
            let kept = kept.map_err(|error| error.to_string())?;
            let has_succeeded = matches!(&update.update, wire::Update::StatusUpdate(update)
                if update.status.state == wire::TaskState::Succeeded);
            done.extend(kept.status_of.filter(|_| has_succeeded));
            updates.push(kept);
        }
        if self.send_to_parent(ParentInput::Pushed { attempt, updates })?.is_none() {
            self.die(attempt);
            self.sessions.remove(&attempt);
            return Ok(());
        }
        let maps = self.spec.splits.len() as u32;
        let is_work = |key: &AttemptKey| match key.task.kind {
            corona_mapreduce::TaskKind::Map => key.task.number < maps,
            corona_mapreduce::TaskKind::Reduce => key.task.number < self.spec.reduces,
        };
        self.kept.extend(done.iter().filter(|key| is_work(key)).map(|key| key.task));
        Ok(())
    }

    /// A remote asks the parent before an attempt may commit.
    fn allow(&mut self, attempt: u32, key: AttemptKey) -> Result<(), String> {
        if self.parent.may_restart() {
            let tasks = vec![key];
            if self.send_to_parent(ParentInput::Committing { attempt, tasks })?.is_none() {
                self.die(attempt);
                self.sessions.remove(&attempt);
                return Ok(());
            }
        }
        let Some(remote) = self.remotes.get_mut(&attempt) else { return Ok(()) };
        let other = remote.committing.insert(key.task, key);
        if other.is_some_and(|other| other != key && !remote.ended.contains(&other)) {
            return Err(format!("{other:?} may commit at the same time as {key:?}"));
        }
        self.soon(Happening::Commit(attempt, key));
        Ok(())
    }

    fn grant(&mut self, attempt: u32, id: RequestId, excluded: &[Arc<str>]) -> Result<(), String> {
        let Some(host) = self.host(["c", "d", "e"], excluded) else { return Ok(()) };
        let slot = slot_on(id, &host);
        let node = slot.node.clone();
        if let Some(remote) = self.remotes.get_mut(&attempt)
            && remote.nodes.insert(node.clone())
        {
            self.leave(attempt, saved::tracker(&node, &host, 50_060), self.now.0);
        }
        self.send_to_engine(attempt, JobInput::Granted { slots: vec![slot] })
    }

    // Nodes.

    fn launch(&mut self, of: u32, launch: &Launch) {
        let is_work = matches!(launch.work, Work::Task { .. });
        let (state, cleaned) = match launch.work {
            Work::TaskCleanup { failed: true } => {
                (TaskState::FailedUnclean, Some(TaskState::Failed))
            }
            Work::TaskCleanup { failed: false } => {
                (TaskState::KilledUnclean, Some(TaskState::Killed))
            }
            _ => (TaskState::Running, None),
        };
        self.numbered += 1;
        let serial = self.numbered;
        let attempt = Attempt {
            serial,
            of,
            node: launch.at.node.clone(),
            state,
            commits: is_work,
            fails: is_work && launch.attempt.number == 0 && self.random.percent(5),
            cleaned,
        };
        self.attempts.insert(launch.attempt, attempt);
        let span_ms = self.random.between(100, 8_000);
        self.after(span_ms, Happening::Step(launch.attempt, serial));
    }

    fn attempt_steps(&mut self, key: AttemptKey, serial: u64, allowed: bool) -> Result<(), String> {
        let Some(attempt) = self.attempts.get_mut(&key).filter(|it| it.serial == serial) else {
            return Ok(());
        };
        attempt.state = match attempt.state {
            state if attempt.cleaned.is_some() => attempt.cleaned.unwrap_or(state),
            TaskState::Running if attempt.fails => TaskState::FailedUnclean,
            TaskState::Running if attempt.commits => TaskState::CommitPending,
            TaskState::CommitPending if allowed => {
                self.counts.committed += 1;
                TaskState::Succeeded
            }
            TaskState::Running => TaskState::Succeeded,
            other => other,
        };
        Ok(())
    }

    /// Every task tracker reports to the remote that its attempts are of, or to its successor.
    fn heartbeats(&mut self) -> Result<(), String> {
        self.after(REPORT_MS, Happening::Heartbeat);
        let Some(current) = self.parent.remote().map(|remote| remote.attempt) else {
            return Ok(());
        };
        let mut of_nodes: BTreeMap<Arc<str>, Vec<TaskStatus>> = BTreeMap::new();
        for (key, attempt) in &self.attempts {
            let status = TaskStatus {
                start_time_ms: self.now.0 - 10,
                finish_time_ms: if attempt.has_ended() { self.now.0 } else { 0 },
                progress: 0.5,
                ..TaskStatus::new(*key, attempt.state)
            };
            of_nodes.entry(attempt.node.clone()).or_default().push(status);
        }
        for (node, reports) in of_nodes {
            if self.wrong(self.call_lost) || !self.is_alive(current) {
                continue;
            }
            let host: Arc<str> = host_of(&node).into();
            let input =
                JobInput::Heartbeat { node: node.clone(), host, http_port: 50_060, reports };
            self.send_to_engine(current, input)?;
            if self.is_alive(current) && self.remotes[&current].has_job {
                // Ends are reported once.
                self.attempts.retain(|_, attempt| attempt.node != node || !attempt.has_ended());
            }
        }
        Ok(())
    }

    fn trouble(&mut self) -> Result<(), String> {
        if !self.troubled() {
            return Ok(());
        }
        self.after(500, Happening::Trouble);
        let alive: Vec<u32> =
            self.remotes.keys().copied().filter(|attempt| self.is_alive(*attempt)).collect();
        for attempt in alive {
            if self.random.percent(self.remote_dies) {
                self.die(attempt);
            }
        }
        if self.user_kills && !self.is_killed && self.random.percent(2) {
            self.is_killed = true;
            self.send_to_parent(ParentInput::KillJob)?;
        }
        if self.end.is_none() && self.random.percent(self.parent_restarts) {
            self.restart_parent()?;
        }
        Ok(())
    }
}

fn slot_on(id: RequestId, host: &Arc<str>) -> GrantedSlot {
    let tracker =
        Tracker { node: format!("tracker_{host}:1").into(), address: format!("{host}:2").into() };
    GrantedSlot { id, node: tracker.node, host: host.clone(), address: tracker.address }
}

fn host_of(node: &str) -> &str {
    node.strip_prefix("tracker_").and_then(|rest| rest.split(':').next()).unwrap_or(node)
}

fn wire_update(bytes: &[u8]) -> Result<wire::StateUpdate, String> {
    wire::StateUpdate::decode(&mut Reader::new(bytes)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_end_whoever_dies() {
        let mut all = Summary::default();
        for seed in 1..=150 {
            let counts = run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            all.add(counts);
        }
        assert!(all.succeeded > 60 && all.failed > 5 && all.killed > 0, "{all:?}");
        assert!(all.lost_job_trackers > 50 && all.parent_restarts > 50, "{all:?}");
        assert!(all.saved > 100, "work is saved: {all:?}");
    }
}
