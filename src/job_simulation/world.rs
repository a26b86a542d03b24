//! The whole of a run: nodes, jobs, the cluster manager, and everything that is on its way between them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use corona_engine::{
    Effect, Engine, Input, NodeView, Notification, Outcome, Refusal, Reply, Start,
};
use corona_job_engine::reach::{Answer, Reach};
use corona_job_engine::{
    GrantedSlot, JobEffect, JobEngine, JobInput, JobSpec, Order, RequestId, Tracker,
};
use corona_mapreduce::{AttemptKey, JobState, TaskKey, TaskKind, TaskRole, TaskState, TaskStatus};
use corona_model::types::{Millis, PoolName, ResourceRequest, ResourceType, SessionStatus};
use corona_simulation::Random;

use super::ledger::Ledger;
use super::service::{Disk, Habits, Step, is_lost, new_reach};
use super::trackers::{JobNumber, Next, Node, NodeOrder};
use super::weather::{self, Temper, Weather};
use super::{History, Subject, Summary};

const BEGIN: Millis = Millis(1_790_000_000_000);
/// A run that takes more inputs than this does not come to its end.
const MAX_STEPS: u64 = 100_000;
/// A task that hangs has a second attempt when there was room for one for so long.
const SECOND_ATTEMPT_MS: i64 = 10_000;
/// A call with orders that a node does not answer fails after this time.
const CALL_TIMEOUT_MS: i64 = 3_000;
/// No job takes longer than this after the trouble has ended.
const HORIZON_MS: i64 = 1_800_000;

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A client submits its job.
    Submit(JobNumber),
    /// A submission goes on.
    SubmissionStep(Run, Step),
    /// The cluster manager is there again.
    ManagerBack,
    /// The process of a job tracker runs again.
    Continue(JobNumber),
    /// A node heartbeats to the cluster manager.
    NodeBeat(usize),
    /// A session heartbeats.
    SessionBeat(JobNumber),
    /// A job reads the list of hosts.
    Hosts(JobNumber),
    /// The next call of a session's queue is made.
    Call(JobNumber),
    /// A notification arrives.
    Notice(JobNumber, Box<Notification>),
    /// Orders of a run of a job tracker arrive at a node.
    Orders(Run, Arc<str>, Vec<NodeOrder>),
    /// A call with orders has failed.
    OrdersFailed(Run, Arc<str>, Vec<Order>),
    /// A task tracker reports to a job.
    Report(usize, JobNumber),
    /// A report arrives, again or late.
    Arrives(JobNumber, Arc<str>, Arc<str>, Vec<TaskStatus>),
    /// An attempt makes progress.
    Step(usize, JobNumber, AttemptKey, u64, bool),
    /// Something goes wrong, or a user does something.
    Trouble,
    /// A node that died starts again.
    Restart(usize),
    /// The job tracker of a job is there again.
    Resume(JobNumber),
    /// Tasks that hang are looked for.
    Watch,
    /// The network of a job tracker is there again.
    Reconnect(JobNumber),
    /// A run of a job tracker looks after silent task trackers.
    Reach(Run),
    /// A node that hung finds orders.
    LateOrders(Run, Arc<str>, Vec<NodeOrder>),
    /// Late reports on a job that has ended may be over.
    Sweep(JobNumber),
}

/// A job, and how often its job tracker was restarted before.
pub(crate) type Run = (JobNumber, u32);

/// What a job tracker that dies has still done of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    /// Its journal does not have the input.
    Before,
    /// Its journal has the input, and a part of the effects has left.
    After,
}

#[derive(Debug)]
pub(crate) enum Call {
    Request(Vec<ResourceRequest>),
    Release(Vec<i32>),
    End(SessionStatus),
}

pub(crate) struct Job<S> {
    pub(crate) subject: S,
    temper: Temper,
    pub(crate) pool: PoolName,
    /// Empty until its client has an id.
    pub(crate) handle: Arc<str>,
    /// A submission is being carried out.
    pub(crate) is_submitting: bool,
    /// Its client knows that it is submitted, or that it is not.
    pub(crate) is_accepted: bool,
    pub(crate) is_refused: bool,
    pub(crate) disk: Disk,
    /// Its engine has begun.
    pub(crate) submitted: bool,
    /// Whether its job tracker runs.
    pub(crate) up: bool,
    pub(crate) restarts: u32,
    /// Since when its process does not run, and what waits for it.
    pub(crate) stalled_since: Option<Millis>,
    pub(crate) waiting: Vec<JobInput>,
    /// By how much its time is ahead.
    pub(crate) clock_ms: i64,
    /// Calls of its session that failed in a row.
    pub(crate) failures: u32,
    /// Notifications that came while no job tracker ran.
    pub(crate) missed: Vec<Notification>,
    /// When task trackers reported last, and which of them do not answer.
    pub(crate) heard: BTreeMap<Arc<str>, Millis>,
    pub(crate) reach: Reach,
    /// Its directory of unfinished output exists.
    pub(crate) is_untidy: bool,
    /// When a node last reported on it after its end.
    pub(crate) late_reported: Option<Millis>,
    /// How its session must end, once the job has.
    pub(crate) status: Option<SessionStatus>,
    pub(crate) calls: VecDeque<Call>,
    calling: bool,
    /// Orders and notifications keep their order.
    last_order: BTreeMap<Arc<str>, Millis>,
    last_notice: Millis,
    pub(crate) ledger: Ledger,
    history: History,
    must_fail: bool,
}

impl<S> Job<S> {
    /// Whether it runs as the cluster manager and its nodes see it.
    pub(crate) fn runs(&self) -> bool {
        self.submitted && self.up && self.stalled_since.is_none()
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        self.ledger.cut_off_since.is_some()
    }

    /// When time alone changes something, by the true clock.
    fn next_deadline(&mut self) -> Option<Millis>
    where
        S: Subject,
    {
        Some(self.subject.engine().next_deadline()?.plus_ms(-self.clock_ms))
    }

    /// Whether it and its session have ended.
    fn is_over(&self) -> bool {
        let has_ended = self.ledger.end.is_some() || self.is_refused;
        has_ended && self.up && self.stalled_since.is_none() && self.calls.is_empty()
    }
}

pub(crate) struct ServiceSimulation<S> {
    pub(crate) random: Random,
    pub(crate) now: Millis,
    numbered: u64,
    agenda: BTreeMap<(Millis, u64), Happening>,
    pub(crate) weather: Weather,
    pub(crate) habits: Habits,
    pub(crate) cluster: Engine,
    /// Since when the cluster manager is away.
    pub(crate) away_since: Option<Millis>,
    /// By how much the machine's clock is wrong.
    pub(crate) machine_ms: i64,
    nodes: Vec<Node>,
    pub(crate) jobs: Vec<Job<S>>,
    /// Orders that wait at nodes which hang.
    late_orders: usize,
    /// Since when tasks hang and could have a second attempt.
    hanging: BTreeMap<(JobNumber, AttemptKey), Millis>,
    keeps_inputs: bool,
    pub(crate) summary: Summary,
}

impl<S: Subject> ServiceSimulation<S> {
    pub(crate) fn new(
        mut random: Random,
        subject: &impl Fn(JobSpec) -> S,
        habits: Habits,
        keeps_inputs: bool,
    ) -> ServiceSimulation<S> {
        let weather = Weather::new(&mut random);
        let nodes: Vec<Node> = (0..weather.nodes)
            .map(|number| {
                let host = if weather.shared_hosts { number / 2 } else { number };
                Node::new(number, format!("h{host}").into())
            })
            .collect();
        let hosts: Vec<Arc<str>> = nodes.iter().map(|node| node.host.clone()).collect();
        let settings = weather::cluster_settings(&mut random);
        let start = Start { now: BEGIN, id_prefix: "202611210900".into(), hash_seed: 1 };
        let jobs = weather::jobs(&mut random, &hosts).into_iter().map(|(spec, temper, pool)| {
            let doomed = temper.failures(TaskKey { kind: TaskKind::Map, number: 0 }) == u32::MAX;
            let settings = &spec.settings;
            let may_lose_one = settings.failures_percent.map as usize * spec.splits.len() >= 100;
            let matters = !may_lose_one && !settings.finish_when_reduces_done;
            Job {
                must_fail: doomed && matters && !spec.splits.is_empty(),
                history: History { spec: spec.clone(), inputs: Vec::new() },
                subject: subject(spec),
                temper,
                pool,
                handle: "".into(),
                is_submitting: false,
                is_accepted: false,
                is_refused: false,
                disk: Disk::default(),
                submitted: false,
                up: true,
                restarts: 0,
                stalled_since: None,
                waiting: Vec::new(),
                clock_ms: 0,
                failures: 0,
                missed: Vec::new(),
                heard: BTreeMap::new(),
                reach: new_reach(),
                is_untidy: false,
                late_reported: None,
                status: None,
                calls: VecDeque::new(),
                calling: false,
                last_order: BTreeMap::new(),
                last_notice: BEGIN,
                ledger: Ledger::default(),
            }
        });
        ServiceSimulation {
            now: BEGIN,
            numbered: 0,
            agenda: BTreeMap::new(),
            cluster: Engine::new(settings, start),
            nodes,
            jobs: jobs.collect(),
            late_orders: 0,
            hanging: BTreeMap::new(),
            habits,
            away_since: None,
            machine_ms: 0,
            weather,
            random,
            keeps_inputs,
            summary: Summary::default(),
        }
    }

    pub(crate) fn histories(self) -> Vec<History> {
        self.jobs.into_iter().map(|job| job.history).collect()
    }

    /// Runs until all jobs have ended and all slots are free.
    pub(crate) fn run(&mut self) -> Result<Summary, String> {
        for node in 0..self.nodes.len() {
            let delay = self.random.between(0, 2_000);
            self.after(delay, Happening::NodeBeat(node));
        }
        for job in 0..self.jobs.len() {
            let delay = self.random.between(0, 30_000);
            self.after(delay, Happening::Submit(job));
        }
        self.after(500, Happening::Trouble);
        if self.weather.attempt_hangs > 0 {
            self.after(1_000, Happening::Watch);
        }
        for steps in 0.. {
            if self.jobs.iter().all(Job::is_over) && self.is_quiet() {
                break;
            }
            let lasts = self.now.since(BEGIN) - self.weather.trouble_ms;
            if steps > MAX_STEPS || lasts > HORIZON_MS {
                return Err(self.stuck());
            }
            self.step()?;
        }
        self.close()
    }

    /// Whether no node does anything late any more.
    fn is_quiet(&self) -> bool {
        self.late_orders == 0
            && self.jobs.iter().all(|job| job.late_reported.is_none())
            && self.nodes.iter().all(|node| node.attempts.is_empty())
    }

    fn stuck(&self) -> String {
        let open = self.jobs.iter().enumerate().filter(|(_, job)| job.ledger.end.is_none());
        let numbers: Vec<usize> = open.map(|(number, _)| number).collect();
        format!("jobs {numbers:?} never end; {:?}", self.weather)
    }

    fn close(&mut self) -> Result<Summary, String> {
        let honest = self.weather.lies == 0;
        self.leaves_no_session()?;
        for (number, job) in self.jobs.iter_mut().enumerate() {
            if job.is_refused {
                return Err(format!("job {number} is refused"));
            }
            let Job { subject, ledger, temper, must_fail, is_untidy, .. } = job;
            if *is_untidy {
                return Err(format!("job {number}: its unfinished output is left"));
            }
            ledger
                .close(subject.engine(), honest, temper.commits, *must_fail)
                .map_err(|what| format!("job {number}: {what}"))?;
            self.summary.second_attempts += ledger.second_attempts;
            self.summary.skipped += ledger.skipped;
            self.summary.spared +=
                ledger.spared.values().map(|spared| spared.len() as u64).sum::<u64>();
            match ledger.end {
                Some(JobState::Succeeded) => self.summary.succeeded += 1,
                Some(JobState::Failed) => self.summary.failed += 1,
                _ => self.summary.killed += 1,
            }
        }
        for kind in ResourceType::ALL {
            let used = self.cluster.slots(kind).used;
            if used > 0 {
                return Err(format!("{used} slots of {kind} are in use after all jobs have ended"));
            }
        }
        Ok(self.summary)
    }

    pub(crate) fn after(&mut self, span_ms: i64, what: Happening) {
        let at = self.now.plus_ms(span_ms);
        self.at(at, what);
    }

    fn at(&mut self, at: Millis, what: Happening) {
        self.numbered += 1;
        self.agenda.insert((at, self.numbered), what);
    }

    /// Lets time pass until the next thing happens.
    fn step(&mut self) -> Result<(), String> {
        let next = self.agenda.first_key_value().map(|(at, _)| at.0);
        let cluster = self.cluster.next_deadline().filter(|_| !self.manager_is_away());
        let jobs = self.jobs.iter_mut().filter(|job| job.runs());
        let job = jobs.filter_map(Job::next_deadline).min();
        let due = [next, cluster, job].into_iter().flatten().min().unwrap_or(self.now);
        self.now = self.now.max(due);
        if cluster == Some(due) {
            return self.apply_to_cluster(Input::Tick).map(|_| ());
        }
        for number in 0..self.jobs.len() {
            let job = &mut self.jobs[number];
            if job.runs() && job.next_deadline() == Some(due) {
                return self.apply_to_job(number, JobInput::Tick);
            }
        }
        match self.agenda.pop_first() {
            Some((_, happening)) => self.happens(happening),
            None => Err("nothing happens any more".into()),
        }
    }

    fn troubled(&self) -> bool {
        self.now.since(BEGIN) < self.weather.trouble_ms
    }

    /// Whether something with this chance goes wrong now.
    pub(crate) fn wrong(&mut self, chance: usize) -> bool {
        self.troubled() && self.random.percent(chance)
    }

    fn happens(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::Submit(job) => self.submit(job),
            Happening::SubmissionStep((job, run), _) if run != self.jobs[job].restarts => Ok(()),
            Happening::SubmissionStep((job, _), step) => self.submission_step(job, step),
            Happening::ManagerBack => self.manager_is_back(),
            Happening::Continue(job) => self.goes_on(job),
            Happening::NodeBeat(node) => self.node_beat(node),
            Happening::SessionBeat(job) => self.session_beat(job),
            Happening::Hosts(job) => self.read_hosts(job),
            Happening::Call(job) => self.call(job),
            Happening::Notice(job, notification) => self.notice(job, *notification),
            Happening::Orders(run, node, orders) => self.orders(run, &node, orders),
            // A job tracker that has died does not wait for its calls.
            Happening::OrdersFailed((job, run), ..) if run != self.jobs[job].restarts => Ok(()),
            Happening::OrdersFailed((job, _), node, orders) => {
                self.apply_to_job(job, JobInput::CallFailed { node, orders })
            }
            Happening::Report(node, job) => self.report(node, job),
            Happening::Arrives(job, node, host, reports) => {
                let is_here = self.jobs[job].submitted && self.jobs[job].up;
                let is_here = is_here && !self.jobs[job].is_cut_off();
                if is_here && self.jobs[job].ledger.end.is_some() {
                    self.late_report(job, node);
                    return Ok(());
                }
                if is_here {
                    self.jobs[job].heard.insert(node.clone(), self.now);
                }
                let input = JobInput::Heartbeat { node, host, http_port: 50060, reports };
                if is_here {
                    return self.apply_to_job(job, input);
                }
                self.repeat(job, input);
                Ok(())
            }
            Happening::Step(node, job, attempt, serial, killed) => {
                self.attempt_steps(node, job, attempt, serial, killed)
            }
            Happening::Trouble => self.trouble(),
            Happening::Resume(job) => self.resume(job),
            Happening::Watch => self.watch(),
            Happening::Reconnect(job) => self.reconnect(job),
            Happening::Reach((job, run)) if run != self.jobs[job].restarts => Ok(()),
            Happening::Reach((job, _)) => self.look_after_silent(job),
            Happening::LateOrders(run, node, orders) => self.carry_out_late(run, &node, orders),
            Happening::Sweep(job) => {
                self.sweep(job);
                Ok(())
            }
            Happening::Restart(node) => {
                if !self.nodes[node].alive {
                    self.nodes[node].starts_again();
                    self.after(0, Happening::NodeBeat(node));
                }
                Ok(())
            }
        }
    }

    // The cluster manager.

    pub(crate) fn apply_to_cluster(
        &mut self,
        input: Input,
    ) -> Result<Result<Reply, Refusal>, String> {
        let Outcome { reply, effects } = self.cluster.apply(self.now, input);
        let mut all = effects;
        while self.cluster.wants_pass() {
            all.extend(self.cluster.apply(self.now, Input::Pass).effects);
        }
        for effect in all {
            let Effect::Notify { handle, notification, .. } = effect else { continue };
            let Some(job) = self.jobs.iter().position(|job| job.handle == handle) else { continue };
            if let Notification::Revoked(grants) = &notification {
                self.summary.revoked += grants.len() as u64;
            }
            let delay = self.random.between(0, 200);
            let at = self.now.plus_ms(delay).max(self.jobs[job].last_notice);
            self.jobs[job].last_notice = at;
            let twice = self.wrong(self.weather.report_twice);
            self.at(at, Happening::Notice(job, Box::new(notification.clone())));
            if twice {
                self.at(at, Happening::Notice(job, Box::new(notification)));
            }
        }
        Ok(reply)
    }

    fn node_beat(&mut self, node: usize) -> Result<(), String> {
        if !self.nodes[node].alive {
            return Ok(());
        }
        if self.manager_is_away() {
            self.after(2_000, Happening::NodeBeat(node));
            return Ok(());
        }
        let report = self.nodes[node].report_to_cluster();
        let _ = self.apply_to_cluster(Input::HeartbeatNode { report, rack: None })?;
        self.after(2_000, Happening::NodeBeat(node));
        Ok(())
    }

    fn session_beat(&mut self, job: JobNumber) -> Result<(), String> {
        if self.jobs[job].ledger.end.is_some() {
            return Ok(());
        }
        let is_away = self.is_without_manager(job);
        self.after(if is_away { 1_000 } else { 10_000 }, Happening::SessionBeat(job));
        if !self.jobs[job].runs() {
            return Ok(());
        }
        if is_away {
            return self.call_fails(job);
        }
        self.jobs[job].failures = 0;
        let handle = self.jobs[job].handle.clone();
        let reply = self.apply_to_cluster(Input::HeartbeatSession { handle, view: None })?;
        if is_lost(&reply) { Err(lost_session(job)) } else { Ok(()) }
    }

    fn read_hosts(&mut self, job: JobNumber) -> Result<(), String> {
        if self.jobs[job].ledger.end.is_some() {
            return Ok(());
        }
        if self.is_without_manager(job) {
            self.after(3_000, Happening::Hosts(job));
            return Ok(());
        }
        let nodes = self.cluster.nodes();
        let mut hosts: Vec<Arc<str>> = nodes.iter().map(|it| it.address.host.clone()).collect();
        hosts.sort();
        hosts.dedup();
        for kind in TaskKind::ALL {
            self.apply_to_job(job, JobInput::HostsKnown { kind, hosts: hosts.clone() })?;
        }
        self.after(3_000, Happening::Hosts(job));
        Ok(())
    }

    /// Makes the oldest call of the queue, again and again until an answer has come.
    fn call(&mut self, job: JobNumber) -> Result<(), String> {
        self.jobs[job].calling = false;
        // Its process does not run.
        if self.jobs[job].stalled_since.is_some() || !self.jobs[job].up {
            return Ok(());
        }
        if self.is_without_manager(job) || self.wrong(self.weather.call_lost) {
            self.summary.lost_calls += 1;
            self.call_fails(job)?;
            return self.call_soon(job, 1_000);
        }
        let answer_is_lost = self.wrong(self.weather.call_lost);
        let handle = self.jobs[job].handle.clone();
        let Some(call) = self.jobs[job].calls.front() else { return Ok(()) };
        let input = match call {
            Call::Request(requests) => {
                Input::RequestResources { handle, requests: requests.clone(), racks: Vec::new() }
            }
            Call::Release(ids) => Input::ReleaseResources { handle, ids: ids.clone() },
            Call::End(status) => Input::EndSession { handle, status: *status },
        };
        let ends = matches!(call, Call::End(_));
        let reply = self.apply_to_cluster(input)?;
        if answer_is_lost {
            self.summary.lost_calls += 1;
            self.call_fails(job)?;
            return self.call_soon(job, 1_000);
        }
        self.jobs[job].failures = 0;
        self.jobs[job].calls.pop_front();
        match reply {
            Ok(_) => {}
            Err(refusal) if ends && ends_session(&refusal) => {}
            Err(refusal) if ends_session(&refusal) => {
                return Err(lost_session(job));
            }
            Err(refusal) => return Err(format!("job {job}: a call is refused: {refusal}")),
        }
        self.call_soon(job, 5)
    }

    pub(crate) fn call_soon(&mut self, job: JobNumber, span_ms: i64) -> Result<(), String> {
        if !self.jobs[job].calling && !self.jobs[job].calls.is_empty() {
            self.jobs[job].calling = true;
            self.after(span_ms, Happening::Call(job));
        }
        Ok(())
    }

    fn notice(&mut self, job: JobNumber, notification: Notification) -> Result<(), String> {
        if !self.jobs[job].up || self.jobs[job].is_cut_off() {
            self.jobs[job].missed.push(notification);
            return Ok(());
        }
        let input = match notification {
            Notification::Granted(grants) => {
                let slots = grants.into_iter().map(|grant| GrantedSlot {
                    id: RequestId(grant.id),
                    node: grant.node_name,
                    host: grant.address.host,
                    address: grant.app_info,
                });
                JobInput::Granted { slots: slots.collect() }
            }
            Notification::Revoked(grants) => {
                JobInput::Revoked { ids: grants.iter().map(|grant| RequestId(grant.id)).collect() }
            }
            Notification::DeadNode(node) => {
                self.summary.lost_nodes += 1;
                JobInput::NodeLost { node }
            }
        };
        self.apply_to_job(job, input)
    }

    // Jobs.

    pub(crate) fn apply_to_job(
        &mut self,
        number: JobNumber,
        input: JobInput,
    ) -> Result<(), String> {
        let job = &mut self.jobs[number];
        if job.submitted && job.up && job.stalled_since.is_some() {
            job.waiting.push(input);
            return Ok(());
        }
        if !job.runs() {
            return Ok(());
        }
        let death = self.dies(&input);
        if death == Some(Death::Before) {
            self.go_down(number);
            self.repeat(number, input);
            return Ok(());
        }
        let (now, clock) = (self.now, self.clock_of(number));
        let restores = self.random.percent(self.weather.restores);
        let job = &mut self.jobs[number];
        if self.keeps_inputs {
            job.history.inputs.push((clock, input.clone()));
        }
        if restores {
            self.summary.restored += 1;
            restore(job.subject.engine())?;
        }
        let outcome = job.subject.apply(clock, input.clone());
        self.summary.inputs += 1;
        job.ledger
            .enter(now, &input, &outcome, job.subject.engine())
            .map_err(|what| format!("job {number}: {what}"))?;
        let mut effects = outcome.effects;
        self.note_end(number, &effects);
        if death.is_none() {
            return self.carry_out(number, effects);
        }
        effects.truncate(self.random.below(effects.len() + 1));
        self.carry_out(number, effects)?;
        self.go_down(number);
        self.repeat(number, input);
        Ok(())
    }

    /// Whether the job tracker dies at an input. The submission is one that a client repeats.
    fn dies(&mut self, input: &JobInput) -> Option<Death> {
        if *input == JobInput::Submitted || !self.wrong(self.weather.restarts) {
            return None;
        }
        Some(*self.random.pick(&[Death::Before, Death::After]))
    }

    /// The job tracker dies, and with it all calls that were not made.
    pub(crate) fn go_down(&mut self, number: JobNumber) {
        let delay = *self.random.pick(&[100, 3_000, 20_000]);
        self.after(delay, Happening::Resume(number));
        let job = &mut self.jobs[number];
        job.up = false;
        job.restarts += 1;
        job.calls.clear();
        // What waited is lost with the connections; task trackers repeat it.
        job.stalled_since = None;
        let waited = std::mem::take(&mut job.waiting);
        self.summary.restarts += 1;
        waited.into_iter().for_each(|input| self.repeat(number, input));
    }

    /// A task tracker repeats a report that got no answer. A notification is not repeated: it was acknowledged,
    /// although no journal has it.
    fn repeat(&mut self, job: JobNumber, input: JobInput) {
        if let JobInput::Heartbeat { node, host, reports, .. } = input {
            self.after(1_000, Happening::Arrives(job, node, host, reports));
        }
    }

    fn note_end(&mut self, number: JobNumber, effects: &[JobEffect]) {
        if let Some(JobEffect::EndSession { status, .. }) = effects.last() {
            let job = &mut self.jobs[number];
            job.status = Some(*status);
            // The service removes what a job without its clean-up has left.
            job.is_untidy &= !job.subject.engine().was_left_uncleaned();
            if job.subject.engine().may_have_late_attempts() {
                self.sweep_later(number);
            }
        }
    }

    pub(crate) fn carry_out(
        &mut self,
        job: JobNumber,
        effects: Vec<JobEffect>,
    ) -> Result<(), String> {
        let run = self.jobs[job].restarts;
        let mut orders: Vec<(Arc<str>, Vec<NodeOrder>)> = Vec::new();
        let mut order = |node: Arc<str>, order: NodeOrder| match orders
            .iter_mut()
            .find(|(other, _)| *other == node)
        {
            Some((_, batch)) => batch.push(order),
            None => orders.push((node, vec![order])),
        };
        for effect in effects {
            match effect {
                JobEffect::Request(requests) => {
                    self.jobs[job].calls.push_back(Call::Request(requests));
                }
                JobEffect::Release(ids) => {
                    let ids = ids.into_iter().map(|id| id.0).collect();
                    self.jobs[job].calls.push_back(Call::Release(ids));
                }
                JobEffect::EndSession { status, .. } => {
                    // What was not sent yet is not sent any more.
                    self.jobs[job].calls.clear();
                    self.jobs[job].calls.push_back(Call::End(status));
                }
                JobEffect::Launch(launch) => {
                    self.summary.launched += 1;
                    order(launch.at.node.clone(), NodeOrder::Launch(launch));
                }
                JobEffect::Kill { attempt, at } => order(at.node, NodeOrder::Kill(attempt)),
                JobEffect::Commit { attempt, at } => order(at.node, NodeOrder::Commit(attempt)),
                JobEffect::KillJob { at } => order(at.node, NodeOrder::KillJob),
                _ => {}
            }
        }
        for (node, batch) in orders {
            let delay = self.random.between(1, 100);
            let before = self.jobs[job].last_order.get(&node).copied().unwrap_or(self.now);
            let at = self.now.plus_ms(delay).max(before);
            self.jobs[job].last_order.insert(node.clone(), at);
            self.at(at, Happening::Orders((job, run), node, batch));
        }
        self.call_soon(job, 5)
    }

    // Nodes.

    fn orders(&mut self, run: Run, name: &Arc<str>, orders: Vec<NodeOrder>) -> Result<(), String> {
        let job = run.0;
        // A job tracker that has died has perhaps not sent them.
        if self.jobs[job].restarts != run.1 && self.random.percent(50) {
            return Ok(());
        }
        let names: Vec<Order> = orders.iter().map(NodeOrder::name).collect();
        let node = self.living(name).filter(|_| !self.jobs[job].is_cut_off());
        let Some(node) = node else {
            self.after(CALL_TIMEOUT_MS, Happening::OrdersFailed(run, name.clone(), names));
            return Ok(());
        };
        if !self.nodes[node].works(self.now) {
            // They wait in its connection, whatever becomes of the call.
            if self.nodes[node].hangs_until.since(self.now) > CALL_TIMEOUT_MS {
                self.after(CALL_TIMEOUT_MS, Happening::OrdersFailed(run, name.clone(), names));
            }
            self.late(node, run, name, orders);
            return Ok(());
        }
        if self.wrong(self.weather.call_lost) {
            self.summary.lost_calls += 1;
            // Perhaps it arrived, and only the answer was lost.
            self.after(1_000, Happening::OrdersFailed(run, name.clone(), names));
            if self.random.percent(50) {
                return Ok(());
            }
        }
        self.obey_all(node, job, orders);
        Ok(())
    }

    fn living(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.alive && *node.name() == *name)
    }

    pub(crate) fn is_alive(&self, name: &str) -> bool {
        self.living(name).is_some()
    }

    /// What a job tracker sees that connects to a task tracker.
    pub(crate) fn answer(&self, job: JobNumber, at: &Tracker) -> Answer {
        let node = self.nodes.iter().find(|node| node.address() == at.address);
        match node {
            Some(node) if !self.jobs[job].is_cut_off() => node.answer(),
            _ => Answer::Nothing,
        }
    }

    fn late(&mut self, node: usize, run: Run, name: &Arc<str>, orders: Vec<NodeOrder>) {
        self.late_orders += 1;
        let at = self.nodes[node].hangs_until.plus_ms(1);
        self.at(at, Happening::LateOrders(run, name.clone(), orders));
    }

    /// A node that hung carries out what it was ordered meanwhile, but starts nothing for a job that does not run
    /// any more.
    fn carry_out_late(
        &mut self,
        run: Run,
        name: &Arc<str>,
        mut orders: Vec<NodeOrder>,
    ) -> Result<(), String> {
        self.late_orders -= 1;
        let Some(node) = self.living(name) else { return Ok(()) };
        if !self.nodes[node].works(self.now) {
            self.late(node, run, name, orders);
            return Ok(());
        }
        if !self.confirms(run.0) {
            let before = orders.len();
            orders.retain(|order| !matches!(order, NodeOrder::Launch(_)));
            self.summary.stale_launches += (before - orders.len()) as u64;
        }
        self.obey_all(node, run.0, orders);
        Ok(())
    }

    fn obey_all(&mut self, node: usize, job: JobNumber, orders: Vec<NodeOrder>) {
        for order in orders {
            self.obey(node, job, order);
        }
        if self.nodes[node].reports_to.insert(job) {
            let delay = self.random.between(50, 1_000);
            self.after(delay, Happening::Report(node, job));
        }
    }

    fn obey(&mut self, node: usize, job: JobNumber, order: NodeOrder) {
        match order {
            NodeOrder::Launch(launch) => {
                self.numbered += 1;
                let (serial, now) = (self.numbered, self.now);
                // Attempts hang and vanish only while there is trouble.
                let mut weather = self.weather.clone();
                if !self.troubled() {
                    (weather.attempt_hangs, weather.attempt_vanishes) = (0, 0);
                    weather.node_full = false;
                }
                let temper = &self.jobs[job].temper;
                let (node_state, random) = (&mut self.nodes[node], &mut self.random);
                let delay =
                    node_state.launch((job, &launch), (temper, &weather), (now, serial), random);
                let launched = node_state.attempts.get(&(job, launch.attempt));
                if self.weather.lies == 0 && launched.is_some_and(|it| it.is_for_records) {
                    self.jobs[job].ledger.is_for_records(launch.attempt);
                }
                self.after(delay, Happening::Step(node, job, launch.attempt, serial, false));
            }
            NodeOrder::Kill(attempt) => {
                if let Some(running) = self.nodes[node].attempts.get(&(job, attempt))
                    && !running.has_ended()
                {
                    let serial = running.serial;
                    self.after(50, Happening::Step(node, job, attempt, serial, true));
                }
            }
            NodeOrder::Commit(attempt) => {
                if let Some(running) = self.nodes[node].attempts.get(&(job, attempt))
                    && running.state == TaskState::CommitPending
                {
                    let serial = running.serial;
                    self.after(20, Happening::Step(node, job, attempt, serial, false));
                }
            }
            NodeOrder::KillJob => self.nodes[node].attempts.retain(|(other, _), _| *other != job),
        }
    }

    fn attempt_steps(
        &mut self,
        node: usize,
        job: JobNumber,
        attempt: AttemptKey,
        serial: u64,
        killed: bool,
    ) -> Result<(), String> {
        let works = self.nodes[node].works(self.now);
        let hung_until = self.nodes[node].hangs_until;
        let Some(running) = self.nodes[node].attempts.get_mut(&(job, attempt)) else {
            return Ok(());
        };
        if running.serial != serial || running.has_ended() {
            return Ok(());
        }
        if !works {
            self.after(500, Happening::Step(node, job, attempt, serial, killed));
            return Ok(());
        }
        let waited = running.has_waited_since(hung_until);
        if waited && self.habits.confirms_launches && self.jobs[job].ledger.end.is_some() {
            self.nodes[node].attempts.remove(&(job, attempt));
            self.summary.stale_launches += 1;
            return Ok(());
        }
        let Some(running) = self.nodes[node].attempts.get_mut(&(job, attempt)) else {
            return Ok(());
        };
        let is_reduce = attempt.task.kind == TaskKind::Reduce;
        if is_reduce && !killed && running.is_about_to_succeed() {
            let missing = self.missing_maps(job, attempt.task);
            if let Some(missing) = missing {
                let running = self.nodes[node].attempts.get_mut(&(job, attempt));
                if let Some(running) = running {
                    running.failed_fetches.extend(missing);
                }
                self.after(700, Happening::Step(node, job, attempt, serial, false));
                return Ok(());
            }
        }
        let random = &mut self.random;
        let Some(running) = self.nodes[node].attempts.get_mut(&(job, attempt)) else {
            return Ok(());
        };
        let commits = !killed && running.state == TaskState::CommitPending;
        let before = running.state;
        match running.step(killed, random) {
            None => {
                self.nodes[node].attempts.remove(&(job, attempt));
            }
            Some(Next::Wait) => {}
            Some(Next::Step(span_ms)) => {
                self.after(span_ms, Happening::Step(node, job, attempt, serial, false));
            }
        }
        self.note_output(node, job, attempt, before);
        if commits {
            self.summary.committed += 1;
            self.jobs[job].ledger.commits(attempt);
        }
        Ok(())
    }

    /// An attempt that starts makes the directory of unfinished output, and the job's clean-up removes it. A job
    /// without set-up and clean-up does that itself.
    fn note_output(&mut self, node: usize, job: JobNumber, attempt: AttemptKey, before: TaskState) {
        let Some(running) = self.nodes[node].attempts.get(&(job, attempt)) else { return };
        let state = running.state;
        let job = &mut self.jobs[job];
        let engine: &JobEngine = job.subject.engine();
        let Some(view) = engine.task_view(attempt.task) else { return };
        if !engine.spec().settings.setup_cleanup_needed {
            return;
        }
        match (view.role, before, state) {
            (TaskRole::Cleanup, _, TaskState::Succeeded) => job.is_untidy = false,
            (TaskRole::Cleanup, ..) => {}
            (_, TaskState::Unassigned, TaskState::Running) => job.is_untidy = true,
            _ => {}
        }
    }

    /// For a reduce of the work that cannot have all map outputs yet: those that it knows of and cannot
    /// fetch. Nothing if it has all.
    fn missing_maps(&mut self, job: JobNumber, task: TaskKey) -> Option<Vec<AttemptKey>> {
        let engine: &JobEngine = self.jobs[job].subject.engine();
        if !engine.task_view(task)?.role.is_work() {
            return None;
        }
        let (mut lost, mut waits) = (Vec::new(), false);
        for number in 0..engine.progress().total.map {
            let view = engine.task_view(TaskKey { kind: TaskKind::Map, number })?;
            match view.succeeded {
                Some(attempt) => {
                    let node = &view.attempts[attempt as usize].node;
                    let there = |it: &Node| it.name() == *node && it.works(self.now);
                    if !self.nodes.iter().any(there) {
                        lost.push(view.task.attempt(attempt));
                    }
                }
                None => waits |= !view.failed,
            }
        }
        (waits || !lost.is_empty()).then_some(lost)
    }

    fn report(&mut self, node: usize, job: JobNumber) -> Result<(), String> {
        let now = self.now;
        if !self.nodes[node].alive {
            return Ok(());
        }
        if !self.nodes[node].works(now) {
            self.after(500, Happening::Report(node, job));
            return Ok(());
        }
        if self.jobs[job].is_cut_off() {
            self.after(1_000, Happening::Report(node, job));
            return Ok(());
        }
        let lies = self.wrong(self.weather.lies);
        let mut reports: Vec<TaskStatus> = self.nodes[node]
            .attempts
            .iter_mut()
            .filter(|((of, _), _)| *of == job)
            .map(|((_, attempt), running)| running.status(*attempt, now))
            .collect();
        if reports.is_empty() && !lies {
            self.nodes[node].reports_to.remove(&job);
            return Ok(());
        }
        let delay = self.random.between(300, 1_500);
        self.after(delay, Happening::Report(node, job));
        if self.wrong(self.weather.call_lost) {
            self.summary.lost_calls += 1;
            return Ok(());
        }
        let answer_is_lost = self.wrong(self.weather.call_lost);
        if lies {
            reports.push(self.lie());
        }
        let (name, host) = (self.nodes[node].name(), self.nodes[node].host.clone());
        if !answer_is_lost {
            // Ends are reported once, and forgotten when the answer has come.
            self.nodes[node].attempts.retain(|(of, _), running| *of != job || !running.has_ended());
        }
        if self.wrong(self.weather.report_twice) {
            let delay = self.random.between(1, 20_000);
            let again = Happening::Arrives(job, name.clone(), host.clone(), reports.clone());
            self.after(delay, again);
        }
        let late =
            if self.wrong(self.weather.report_late) { self.random.between(1, 8_000) } else { 0 };
        self.after(late, Happening::Arrives(job, name, host, reports));
        Ok(())
    }

    /// A report on any attempt, with any state.
    fn lie(&mut self) -> TaskStatus {
        use TaskState::{
            CommitPending, Failed, FailedUnclean, Killed, KilledUnclean, Running, Succeeded,
            Unassigned,
        };
        let kind = *self.random.pick(&TaskKind::ALL);
        let number = self.random.below(30) as u32;
        let attempt = TaskKey { kind, number }.attempt(self.random.below(4) as u32);
        let states = [
            CommitPending,
            Failed,
            FailedUnclean,
            Killed,
            KilledUnclean,
            Running,
            Succeeded,
            Unassigned,
        ];
        let progress = *self.random.pick(&[0.0, 0.5, 7.0, f32::NAN]);
        TaskStatus { progress, ..TaskStatus::new(attempt, *self.random.pick(&states)) }
    }

    /// Looks for attempts that hang, and whose task has had room for a second one for too long. There is none
    /// while the cluster manager is away, which grants nothing.
    fn watch(&mut self) -> Result<(), String> {
        self.after(2_000, Happening::Watch);
        let now = self.now;
        let working = self.nodes.iter().filter(|node| node.works(now));
        let hang = working.flat_map(|node| {
            let hang = node.attempts.iter().filter(|(_, running)| running.hangs());
            hang.map(|(key, _)| (*key, node.host.clone()))
        });
        let hang: Vec<_> = hang.collect();
        let slots = if hang.is_empty() { Vec::new() } else { self.cluster.nodes() };
        let mut hanging = BTreeMap::new();
        for ((job, attempt), host) in hang {
            let is_in_reach =
                |node: &NodeView| self.is_in_reach(job, attempt.task.kind, &host, node);
            let is_granted = !self.is_without_manager(job);
            if is_granted && slots.iter().any(is_in_reach) && self.deserves_second(job, attempt) {
                let since = self.hanging.get(&(job, attempt)).copied().unwrap_or(now);
                if now.since(since) > SECOND_ATTEMPT_MS {
                    return Err(format!("job {job}: {attempt:?} hangs and stays alone"));
                }
                hanging.insert((job, attempt), since);
            }
        }
        self.hanging = hanging;
        Ok(())
    }

    /// Whether an attempt that hangs must count as slow: others are faster, or it is the last one.
    fn deserves_second(&mut self, number: JobNumber, attempt: AttemptKey) -> bool {
        let job = &mut self.jobs[number];
        if !job.runs() {
            return false;
        }
        let engine: &JobEngine = job.subject.engine();
        let (settings, kind) = (&engine.spec().settings, attempt.task.kind);
        if engine.state() != JobState::Running
            || !settings.speculation[kind].enabled
            || !job.ledger.may_have_second(attempt, settings)
        {
            return false;
        }
        let Some(view) = engine.task_view(attempt.task).filter(|view| view.role.is_work()) else {
            return false;
        };
        let mut open = view.attempts.iter().filter(|other| !other.state.is_final());
        let is_alone = open.all(|other| {
            // A report may lie about its progress.
            other.attempt == attempt && other.state == TaskState::Running && other.progress == 0.0
        });
        let progress = engine.progress();
        let unfinished = progress.total[kind] - progress.finished[kind] - progress.failed[kind];
        let is_slow = progress.finished[kind] > 0 || unfinished == 1;
        let is_known = view.attempts.iter().any(|other| other.attempt == attempt);
        // More may run than may have second attempts.
        let is_first = progress.live[kind] <= 10;
        is_known && is_alone && is_slow && is_first && view.succeeded.is_none() && !view.failed
    }

    /// Whether a slot is free on a node with another host, on which nothing of the job has failed.
    fn is_in_reach(&self, job: JobNumber, kind: TaskKind, host: &str, node: &NodeView) -> bool {
        let kind = match kind {
            TaskKind::Map => ResourceType::Map,
            TaskKind::Reduce => ResourceType::Reduce,
        };
        let other = &node.address.host;
        node.is_usable(kind) && **other != *host && !self.jobs[job].ledger.is_bad_host(other)
    }

    // Trouble.

    fn trouble(&mut self) -> Result<(), String> {
        if !self.troubled() {
            // From now on everything is well.
            for node in 0..self.nodes.len() {
                self.nodes[node].hangs_until = self.now;
                self.after(0, Happening::Restart(node));
            }
            return (0..self.jobs.len()).try_for_each(|job| self.reconnect(job));
        }
        self.after(1_000, Happening::Trouble);
        self.manager_goes();
        self.clock_jumps();
        for node in 0..self.nodes.len() {
            if self.nodes[node].alive && self.random.percent(self.weather.node_dies) {
                self.node_dies(node);
                let delay = *self.random.pick(&[500, 5_000, 30_000]);
                self.after(delay, Happening::Restart(node));
            }
            if self.nodes[node].alive && self.random.percent(self.weather.node_hangs) {
                let span_ms = *self.random.pick(&[2_000, 15_000, 60_000]);
                self.nodes[node].hangs_until = self.now.plus_ms(span_ms);
            }
        }
        for job in 0..self.jobs.len() {
            let is_over = self.jobs[job].is_over();
            // All that has left its engine may have left the job tracker too.
            if self.jobs[job].runs() && !is_over && self.random.percent(self.weather.restarts) {
                self.go_down(job);
            }
            if self.jobs[job].runs() && !is_over {
                self.stalls(job);
                self.cut_off(job);
            }
            if !self.random.percent(self.weather.user_kills) || self.jobs[job].ledger.end.is_some()
            {
                continue;
            }
            let kind = *self.random.pick(&TaskKind::ALL);
            let number = self.random.below(30) as u32;
            let attempt = TaskKey { kind, number }.attempt(self.random.below(3) as u32);
            let input = match self.random.below(12) {
                0 => JobInput::KillJob,
                1..=5 => JobInput::Speculate { kind, number },
                _ => JobInput::KillAttempt { attempt, fail: self.random.percent(30) },
            };
            self.apply_to_job(job, input)?;
        }
        Ok(())
    }
}

impl<S: Subject> ServiceSimulation<S> {
    fn node_dies(&mut self, node: usize) {
        // Nobody hears of what its late attempts have left.
        for (number, job) in self.jobs.iter_mut().enumerate() {
            let had_some = self.nodes[node].attempts.keys().any(|(of, _)| *of == number);
            job.is_untidy &= job.ledger.end.is_none() || !had_some;
        }
        let is_off = self.random.percent(self.weather.power_lost);
        self.nodes[node].dies(is_off);
    }
}

/// No session is ended here but by its own job tracker.
fn lost_session(job: JobNumber) -> String {
    format!("job {job}: its session is lost, although nobody has ended it")
}

/// Whether the cluster manager does not know the session any more.
pub(crate) fn ends_session(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::UnknownSession(_) | Refusal::OutOfStep(_))
}

/// Writes the engine and reads it again.
fn restore(engine: &mut JobEngine) -> Result<(), String> {
    let text = serde_json::to_string(engine).map_err(|error| error.to_string())?;
    let restored = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if *engine != restored {
        return Err("an engine that was written and read again is another one".into());
    }
    *engine = restored;
    Ok(())
}
