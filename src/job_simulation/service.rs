//! What the job tracker service does around its engines, and what happens to it: its submissions, step by
//! step, its deaths between any two of them, its stalls, its clock, outages of the cluster manager and of the
//! network, and what comes after the end of its jobs.

use std::collections::BTreeSet;
use std::sync::Arc;

use corona_engine::{Input, Reply};
use corona_job_engine::reach::{Answer, Judgement, Reach, machine};
use corona_job_engine::{JobEffect, JobInput, Tracker};
use corona_mapreduce::AttemptKey;
use corona_model::types::{Address, Millis, SessionInfo, SessionStatus};

use super::Subject;
use super::trackers::{JobNumber, NodeOrder};
use super::world::{Call, Happening, ServiceSimulation, ends_session};

/// The pause between two looks at silent task trackers, and when one that does not answer is lost.
const REACH_PAUSE_MS: i64 = 1_000;
const UNREACHABLE_MS: i64 = 6_000;
/// So long after the last report on a job that has ended its output is removed.
const QUIET_MS: i64 = 10_000;

pub(crate) fn new_reach() -> Reach {
    Reach::new(UNREACHABLE_MS)
}

/// How the service and its nodes behave. Tests give it the habits that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habits {
    /// Failures of calls in a row after which it gives a session up.
    pub(crate) gives_up_after: Option<u32>,
    /// It sends the end of a session until it is acknowledged, not once.
    pub(crate) repeats_ends: bool,
    /// It notes a session before it starts it.
    pub(crate) notes_sessions: bool,
    /// It begins a job whose first input is not in its journal, rather than to go on with it.
    pub(crate) begins_again: bool,
    /// Its time does not jump with the machine's clock.
    pub(crate) has_own_clock: bool,
    /// It notices that it did not run.
    pub(crate) notices_stalls: bool,
    /// It notices that it is cut off itself when most nodes are silent.
    pub(crate) notices_cut_offs: bool,
    /// Nodes ask whether a job still runs before they carry out an old order to launch.
    pub(crate) confirms_launches: bool,
    /// It removes what attempts leave after the end of their job.
    pub(crate) sweeps: bool,
}

impl Habits {
    /// Those of the service.
    pub(crate) const GOOD: Habits = Habits {
        gives_up_after: None,
        repeats_ends: true,
        notes_sessions: true,
        begins_again: true,
        has_own_clock: true,
        notices_stalls: true,
        notices_cut_offs: true,
        confirms_launches: true,
        sweeps: true,
    };
}

/// What a death of the service leaves of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    /// It is noted that the session must end.
    pub(crate) is_noted: bool,
    /// The journal has its first record: the job and its session.
    pub(crate) has_base: bool,
    /// It has the first input.
    pub(crate) has_begun: bool,
}

/// A step of a submission, between any two of which the service may die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Note,
    StartSession,
    WriteBase,
    Begin,
    Reply,
}

impl<S: Subject> ServiceSimulation<S> {
    /// A client submits its job, again until it has an answer.
    pub(crate) fn submit(&mut self, number: JobNumber) -> Result<(), String> {
        let job = &self.jobs[number];
        if job.is_accepted || job.is_refused {
            return Ok(());
        }
        let waits = !job.up || job.is_submitting || self.is_without_manager(number);
        let has_id = !job.handle.is_empty();
        self.after(1_000, Happening::Submit(number));
        if waits {
            return Ok(());
        }
        if !has_id {
            let Ok(Reply::SessionId(id)) = self.apply_to_cluster(Input::NextSessionId)? else {
                return Err("no session id".into());
            };
            self.jobs[number].handle = id.into();
        }
        let job = &mut self.jobs[number];
        if job.disk.has_base {
            // It was submitted before.
            job.is_accepted = true;
            return Ok(());
        }
        // A session that was begun before ends first.
        if !job.calls.is_empty() {
            return Ok(());
        }
        job.is_submitting = true;
        let run = (number, job.restarts);
        self.after(0, Happening::SubmissionStep(run, Step::Note));
        Ok(())
    }

    pub(crate) fn submission_step(&mut self, number: JobNumber, step: Step) -> Result<(), String> {
        let run = (number, self.jobs[number].restarts);
        if self.wrong(self.weather.submission_deaths) {
            self.go_down(number);
            return Ok(());
        }
        let next = match step {
            Step::Note => {
                self.jobs[number].disk.is_noted = self.habits.notes_sessions;
                Step::StartSession
            }
            Step::StartSession if self.is_without_manager(number) => Step::StartSession,
            Step::StartSession => match self.start_session(number)? {
                true => Step::WriteBase,
                false => return Ok(()),
            },
            Step::WriteBase => {
                self.jobs[number].disk.has_base = true;
                Step::Begin
            }
            Step::Begin => {
                self.begin(number)?;
                Step::Reply
            }
            Step::Reply => {
                let job = &mut self.jobs[number];
                (job.is_accepted, job.is_submitting, job.disk.is_noted) = (true, false, false);
                return Ok(());
            }
        };
        let delay = if next == step { 1_000 } else { self.random.between(0, 20) };
        self.after(delay, Happening::SubmissionStep(run, next));
        Ok(())
    }

    /// False: the cluster manager refuses the session.
    fn start_session(&mut self, number: JobNumber) -> Result<bool, String> {
        let handle = self.jobs[number].handle.clone();
        let info = SessionInfo {
            address: Address { host: "driver".into(), port: 1 },
            name: "simulated".into(),
            user_id: "nobody".into(),
            pool: Some(self.jobs[number].pool.clone()),
            ..SessionInfo::default()
        };
        match self.apply_to_cluster(Input::StartSession { handle, info })? {
            Ok(_) => Ok(true),
            Err(_) => {
                let job = &mut self.jobs[number];
                (job.is_refused, job.is_submitting) = (true, false);
                Ok(false)
            }
        }
    }

    fn begin(&mut self, number: JobNumber) -> Result<(), String> {
        let job = &mut self.jobs[number];
        (job.submitted, job.disk.has_begun) = (true, true);
        self.after(10_000, Happening::SessionBeat(number));
        self.after(REACH_PAUSE_MS, Happening::Reach((number, self.jobs[number].restarts)));
        if self.weather.hosts_known {
            self.after(0, Happening::Hosts(number));
        }
        self.apply_to_job(number, JobInput::Submitted)
    }

    /// As the service does it: the engine is that of the journal, the cluster manager releases what it does
    /// not have, and everything that was in flight is in doubt.
    pub(crate) fn resume(&mut self, number: JobNumber) -> Result<(), String> {
        let (now, machine_ms, habits) = (self.now, self.machine_ms, self.habits);
        let job = &mut self.jobs[number];
        (job.up, job.is_submitting) = (true, false);
        job.reach = new_reach();
        let last = job.subject.engine().last();
        job.clock_ms = machine_ms;
        if habits.has_own_clock {
            job.clock_ms += last.since(now.plus_ms(machine_ms)).max(0);
        }
        for notification in std::mem::take(&mut job.missed) {
            self.after(0, Happening::Notice(number, Box::new(notification)));
        }
        let job = &mut self.jobs[number];
        if !job.disk.has_base {
            if job.disk.is_noted {
                job.calls.push_back(Call::End(SessionStatus::Killed));
            }
            return self.call_soon(number, 5);
        }
        if !job.disk.has_begun {
            job.disk.has_begun = true;
            job.submitted = true;
            return match habits.begins_again {
                true => self.begin(number),
                false => self.apply_to_job(number, JobInput::Resumed),
            };
        }
        let engine = job.subject.engine();
        if let Some(status) = job.status {
            let trackers = engine.trackers();
            job.is_untidy &= !engine.was_left_uncleaned();
            job.calls.push_back(Call::End(status));
            let forget = trackers.into_iter().map(|at| JobEffect::KillJob { at });
            return self.carry_out(number, forget.collect());
        }
        let open: BTreeSet<i32> =
            engine.open_requests().into_iter().map(|(request, _)| request.id).collect();
        let released = (1..=engine.last_request().0).filter(|id| !open.contains(id));
        let released: Vec<i32> = released.collect();
        job.ledger.lets_go(&released).map_err(|what| format!("job {number}: {what}"))?;
        job.calls.push_back(Call::Release(released));
        job.calls.push_back(Call::Request(Vec::new()));
        let run = (number, job.restarts);
        self.after(REACH_PAUSE_MS, Happening::Reach(run));
        self.apply_to_job(number, JobInput::Resumed)
    }

    // The cluster manager is away, and comes back with all that it knew.

    pub(crate) fn manager_is_away(&self) -> bool {
        self.away_since.is_some()
    }

    pub(crate) fn manager_goes(&mut self) {
        if self.away_since.is_some() || !self.random.percent(self.weather.outages) {
            return;
        }
        let span_ms = *self.random.pick(&[1_000, 15_000, 120_000, 400_000]);
        self.away_since = Some(self.now);
        self.summary.outages += 1;
        self.after(span_ms, Happening::ManagerBack);
    }

    pub(crate) fn manager_is_back(&mut self) -> Result<(), String> {
        let Some(since) = self.away_since.take() else { return Ok(()) };
        // Nobody could reach it.
        let ms = self.now.since(since);
        self.apply_to_cluster(Input::HeldUp { ms }).map(drop)
    }

    /// A call of a session has failed.
    pub(crate) fn call_fails(&mut self, number: JobNumber) -> Result<(), String> {
        let job = &mut self.jobs[number];
        job.failures += 1;
        if matches!(job.calls.front(), Some(Call::End(_))) {
            if !self.habits.repeats_ends {
                job.calls.pop_front();
            }
            return Ok(());
        }
        match self.habits.gives_up_after {
            Some(most) if job.failures >= most && job.status.is_none() => {
                job.calls.clear();
                self.apply_to_job(number, JobInput::SessionLost { aborted: false })
            }
            _ => Ok(()),
        }
    }

    /// Whether a job cannot reach the cluster manager.
    pub(crate) fn is_without_manager(&self, number: JobNumber) -> bool {
        self.manager_is_away() || self.jobs[number].is_cut_off()
    }

    // The network of a job tracker is away for a while.

    pub(crate) fn cut_off(&mut self, number: JobNumber) {
        let now = self.now;
        if self.jobs[number].is_cut_off() || !self.random.percent(self.weather.cut_offs) {
            return;
        }
        let span_ms = *self.random.pick(&[5_000, 40_000, 90_000]);
        self.jobs[number].ledger.cut_off_since = Some(now);
        self.summary.cut_offs += 1;
        self.after(span_ms, Happening::Reconnect(number));
    }

    /// What could not be delivered is delivered now.
    pub(crate) fn reconnect(&mut self, number: JobNumber) -> Result<(), String> {
        let job = &mut self.jobs[number];
        job.ledger.cut_off_since = None;
        if !job.up {
            return Ok(());
        }
        for notification in std::mem::take(&mut job.missed) {
            self.after(0, Happening::Notice(number, Box::new(notification)));
        }
        self.call_soon(number, 5)
    }

    /// A job tracker looks after the task trackers that are silent. The cluster manager is another machine.
    pub(crate) fn look_after_silent(&mut self, number: JobNumber) -> Result<(), String> {
        let (now, run) = (self.now, (number, self.jobs[number].restarts));
        let job = &mut self.jobs[number];
        if job.ledger.end.is_some() || !job.up {
            return Ok(());
        }
        self.after(REACH_PAUSE_MS, Happening::Reach(run));
        let job = &mut self.jobs[number];
        if !job.runs() {
            return Ok(());
        }
        let is_silent = |at: &Tracker| {
            job.heard.get(&at.node).is_none_or(|heard| now.since(*heard) >= 2 * REACH_PAUSE_MS)
        };
        let (silent, others): (Vec<Tracker>, Vec<Tracker>) =
            job.subject.engine().trackers().into_iter().partition(is_silent);
        let attempts: Vec<(Tracker, Answer)> =
            silent.into_iter().map(|at| (at.clone(), self.answer(number, &at))).collect();
        let mut in_contact: BTreeSet<&str> = others.iter().map(machine).collect();
        if !self.is_without_manager(number) {
            in_contact.insert("cluster manager");
        }
        let everybody: Vec<String> = (0..attempts.len()).map(|other| other.to_string()).collect();
        if !self.habits.notices_cut_offs {
            in_contact.extend(everybody.iter().map(String::as_str));
        }
        let Judgement { lost, cut_off_ms, out_of_reach } =
            self.jobs[number].reach.judge(now, &in_contact, &attempts);
        for at in lost {
            if self.is_alive(&at.node) {
                return Err(format!("job {number}: {} is given up and is alive", at.node));
            }
            self.summary.given_up += 1;
            self.apply_to_job(number, JobInput::NodeLost { node: at.node })?;
        }
        match cut_off_ms {
            0 => Ok(()),
            ms => self.apply_to_job(number, JobInput::CutOff { nodes: out_of_reach, ms }),
        }
    }

    // What comes after the end of a job.

    /// A node reports on a job that has ended: it is sent the end again, and what its attempts have left is
    /// removed once nobody reports any more.
    pub(crate) fn late_report(&mut self, number: JobNumber, node: Arc<str>) {
        let run = (number, self.jobs[number].restarts);
        self.sweep_later(number);
        self.after(100, Happening::Orders(run, node, vec![NodeOrder::KillJob]));
    }

    pub(crate) fn sweep_later(&mut self, number: JobNumber) {
        if self.habits.sweeps {
            self.jobs[number].late_reported = Some(self.now);
            self.after(QUIET_MS, Happening::Sweep(number));
        }
    }

    pub(crate) fn sweep(&mut self, number: JobNumber) {
        let now = self.now;
        let job = &mut self.jobs[number];
        if job.late_reported.is_some_and(|last| now.since(last) >= QUIET_MS) {
            job.late_reported = None;
            if std::mem::take(&mut job.is_untidy) {
                self.summary.sweeps += 1;
            }
        }
    }

    /// Whether a node that asks learns that a job runs.
    pub(crate) fn confirms(&self, number: JobNumber) -> bool {
        let job = &self.jobs[number];
        !self.habits.confirms_launches
            || (job.runs() && !job.is_cut_off() && job.ledger.end.is_none())
    }

    // Its process stops for a while, and somebody sets the machine's clock.

    pub(crate) fn stalls(&mut self, number: JobNumber) {
        let job = &mut self.jobs[number];
        if job.stalled_since.is_some() || !self.random.percent(self.weather.stalls) {
            return;
        }
        let span_ms = *self.random.pick(&[3_000, 25_000, 80_000]);
        job.stalled_since = Some(self.now);
        self.summary.stalls += 1;
        self.after(span_ms, Happening::Continue(number));
    }

    /// What has come meanwhile is read after time has had its say.
    pub(crate) fn goes_on(&mut self, number: JobNumber) -> Result<(), String> {
        let now = self.now;
        let job = &mut self.jobs[number];
        let Some(since) = job.stalled_since.take() else { return Ok(()) };
        let waiting = std::mem::take(&mut job.waiting);
        if !job.runs() {
            return Ok(());
        }
        let heard: BTreeSet<AttemptKey> = waiting.iter().flat_map(reported).collect();
        if self.habits.notices_stalls {
            self.apply_to_job(number, JobInput::Stalled { ms: now.since(since) })?;
        }
        let clock = self.clock_of(number);
        let due = self.jobs[number].subject.engine().next_deadline();
        if due.is_some_and(|due| due <= clock) {
            self.jobs[number].ledger.expects(heard);
            self.apply_to_job(number, JobInput::Tick)?;
            self.jobs[number].ledger.expects(BTreeSet::new());
        }
        for input in waiting {
            self.apply_to_job(number, input)?;
        }
        self.call_soon(number, 5)
    }

    pub(crate) fn clock_jumps(&mut self) {
        if self.random.percent(self.weather.clock_jumps) {
            self.machine_ms += *self.random.pick(&[-3_600_000, 3_600_000]);
            self.summary.clock_jumps += 1;
        }
        if !self.habits.has_own_clock {
            let machine_ms = self.machine_ms;
            self.jobs.iter_mut().for_each(|job| job.clock_ms = machine_ms);
        }
    }

    /// The time as a job's engine has it.
    pub(crate) fn clock_of(&self, number: JobNumber) -> Millis {
        self.now.plus_ms(self.jobs[number].clock_ms)
    }

    /// At the end nothing is left at the cluster manager.
    pub(crate) fn leaves_no_session(&self) -> Result<(), String> {
        match self.cluster.sessions_at(self.now).len() {
            0 => Ok(()),
            left => Err(format!("{left} sessions are left after all jobs have ended")),
        }
    }
}

/// Attempts of which an input says that they run.
fn reported(input: &JobInput) -> Vec<AttemptKey> {
    match input {
        JobInput::Heartbeat { reports, .. } => {
            let runs = reports.iter().filter(|report| report.state.is_live());
            runs.map(|report| report.attempt).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a reply ends a session that should run.
pub(crate) fn is_lost(reply: &Result<Reply, corona_engine::Refusal>) -> bool {
    matches!(reply, Err(refusal) if ends_session(refusal))
}
