//! A job whose job tracker runs on a node: its parent at work. The task of the job owns the pure
//! [`Parent`], journals its inputs and carries out its effects; another task submits the job to the
//! remote job tracker and watches it. Calls of clients are forwarded.
//! Spec: mapreduce/05 §5.7, mapreduce/03 §3.4.

mod remains;
mod watcher;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corona_hadoop::io::Reader;
use corona_hadoop::io::formats::Writable;
use corona_hadoop::protocols::corona_task_tracker::CoronaTaskTrackerClient;
use corona_hadoop::protocols::job_submission::JobSubmissionClient;
use corona_hadoop::rpc::{CallError, ClientOptions, Fault, User};
use corona_hadoop::writables as wire;
use corona_hadoop::writables::{InetAddress, SessionInfo};
use corona_mapreduce::history::JobEnd;
use corona_mapreduce::{AttemptKey, Counters, JobState, PerKind, TaskDemand};
use corona_model::types::{Millis, ResourceRequest, SessionPriority, SessionStatus};
use corona_process::panics::{Panic, TaskPanicked, caught, run_essential, spawn_detached};
use corona_session_driver::{Contact, InfoUpdate, SessionDriver, SessionEvents};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::remains::Remains;
use self::watcher::Watcher;
use super::actor::{Actor, AskError, JobClock, Records, SessionChange, Subject, queued};
use super::end::Jobs;
use super::job::{WITHOUT_HISTORY, lost_reason, note_of_silence};
use super::log::Log;
use super::owed::Debt;
use super::session_types;
use super::store::Retired;
use crate::clock::now;
use crate::launch::launcher::parse;
use crate::rpc::answers;
use crate::rpc::inter_tracker::session_trackers;
use crate::submit::submission::Description;
use crate::whole_part;
use corona_job_engine::parent::{
    EndReason, Parent, ParentEffect, ParentInput, ParentOutcome, ParentRefusal, ParentReply,
    Remote, SavedUpdate,
};
use corona_job_engine::{GrantedSlot, JobProgress};
use corona_job_wire::translate;

/// How long a forwarded call waits while the remote job tracker is replaced.
const REPLACED: Duration = Duration::from_secs(10);
/// Calls of a remote job tracker that may fail in a row, with longer and longer pauses.
/// Spec: mapreduce/05 §5.7.
const TRIES: u32 = 10;
const TRY_PAUSE: Duration = Duration::from_secs(1);
/// How long one call may take: the remote job tracker closes a job before it says that it has ended.
const CALL_TIMEOUT: Duration = Duration::from_secs(600);
/// How long the details of a job that has ended can be asked for: the remote job tracker stays.
const LINGER: Duration = Duration::from_secs(30);
/// The class by which a node knows the task that stands for a job tracker. Spec: mapreduce/05 §5.7.
const SPLIT_CLASS: &str = "org.apache.hadoop.mapred.JobClient$RawSplit";
/// Characters of a note of a remote job tracker.
const MAX_NOTE: usize = 1000;

/// A job that a remote job tracker runs. Copies are the same job.
#[derive(Clone, Debug)]
pub(crate) struct RemoteJob {
    description: Arc<Description>,
    inbox: mpsc::Sender<Message>,
    progress: watch::Receiver<Arc<JobProgress>>,
    place: watch::Receiver<RemoteLocation>,
    heard: Heard,
    options: Arc<ClientOptions>,
    contact: Contact,
}

/// Where the remote job tracker is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RemoteLocation {
    /// The key by which nodes know the current remote job tracker.
    key: AttemptKey,
    remote: Option<Remote>,
    /// It has taken the job. The original's fails all calls before.
    has_job: bool,
    /// All addresses that the job has had.
    addresses: Vec<(Arc<str>, u16)>,
    may_restart: bool,
    /// Those of the job once it has ended there.
    counters: Option<Arc<Counters>>,
    /// What it waits for, or why the service has ended it.
    note: Option<Arc<str>>,
    /// The address of the pages of the remote job tracker.
    pages: Option<Arc<str>>,
}

/// When the remote job tracker was last heard of.
type Heard = Arc<Mutex<Instant>>;
type Reply = oneshot::Sender<Result<ParentReply, ParentRefusal>>;
/// What a remote job tracker left, the session in which it ran the job, and how many were lost.
type Left = (Vec<SavedUpdate>, String, u32);

/// A message for the task of a job.
#[derive(Debug)]
pub(crate) enum Message {
    Input(ParentInput, Option<Reply>),
    /// What was left for the remote job tracker of this attempt.
    Saved(u32, oneshot::Sender<Result<Left, ParentRefusal>>),
    /// How the job stands, as the remote job tracker of this attempt reports it.
    Status(u32, Box<wire::JobStatus>),
    /// Where its pages are.
    Pages(u32, Arc<str>),
    /// It has taken the job.
    Submitted(u32),
    /// It reports that the job has ended.
    Ended(u32, JobState, Counters),
    /// Has its handling panic.
    #[cfg(test)]
    Panic,
}

/// What the task of a job is made of.
pub(crate) struct Parts {
    pub(crate) description: Arc<Description>,
    pub(crate) parent: Parent,
    /// None if it failed.
    pub(crate) log: Option<Log>,
    pub(crate) driver: Arc<SessionDriver>,
    pub(crate) events: Option<SessionEvents>,
    pub(crate) jobs: Arc<Jobs>,
    /// Where its unfinished output is.
    pub(crate) temporary: Option<String>,
    /// The priority that the job has now.
    pub(crate) priority: SessionPriority,
    /// Maps and reduces.
    pub(crate) total: PerKind<u32>,
    pub(crate) submitted: Millis,
    /// The address of this service, for nodes and for the remote job tracker.
    pub(crate) address: InetAddress,
    /// For calls of task trackers.
    pub(crate) service_user: User,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) max_queued: usize,
    /// Becomes true when the program ends.
    pub(crate) stop: watch::Receiver<bool>,
}

impl RemoteJob {
    /// Starts the task of a job with this first input.
    pub(crate) fn start(mut parts: Parts, first: ParentInput) -> RemoteJob {
        let (inbox, messages) = mpsc::channel(parts.max_queued.max(1));
        let progress = Arc::new(JobProgress {
            state: JobState::Prep,
            setup: 0.0,
            work: PerKind::default(),
            cleanup: 0.0,
            total: parts.total,
            finished: PerKind::default(),
            failed: PerKind::default(),
            live: PerKind::default(),
            requested: 0,
            submitted: parts.submitted,
            finished_at: None,
            priority: parts.priority,
        });
        let (publish, progress) = watch::channel(progress);
        let (publish_place, place) = watch::channel(place_of(&parts.parent, None, None));
        let heard: Heard = Arc::new(Mutex::new(Instant::now()));
        // The calls are those of the job's user: a remote job tracker serves no other user.
        let user = parts.description.user.to_string();
        let options = ClientOptions {
            attempt_timeout: parts.connect_timeout,
            connect_patience: Duration::ZERO,
            call_timeout: Some(CALL_TIMEOUT),
            ..ClientOptions::new(User { groups: vec![user.clone()], name: user })
        };
        let job = RemoteJob {
            description: parts.description.clone(),
            inbox: inbox.clone(),
            progress,
            place,
            heard: heard.clone(),
            options: Arc::new(options.clone()),
            contact: parts.driver.contact(),
        };
        let id = parts.description.id.clone();
        let clock = JobClock::after(parts.parent.last());
        let (log, events) = (parts.log.take(), parts.events.take());
        let stop = parts.stop.clone();
        let subject = ParentWork {
            parts,
            records: Records::new(id.clone(), log),
            inbox: inbox.downgrade(),
            publish,
            publish_place,
            heard,
            options,
            next: Vec::new(),
            effects: Vec::new(),
            waiting: Vec::new(),
            submitted: None,
            counters: Counters::default(),
            why: None,
            without_history: None,
            pages: None,
            is_over: false,
            lingers: false,
            remote_session: None,
            remote_debt: None,
            closing: None,
            killing: None,
        };
        let mut actor = Actor { subject, mail: messages, events, clock, stop };
        tokio::spawn(async move {
            let run = async {
                actor.subject.end_again().await;
                actor.run(vec![first]).await;
            };
            if let Err(panic) = caught(run).await {
                tracing::error!(job = %id, %panic, "the handling of a job panicked; the job fails");
                let subject = &mut actor.subject;
                if let Err(panic) = caught(subject.lost(&panic)).await {
                    tracing::error!(job = %id, %panic, "the end of a job panicked; the next start ends it again");
                    subject.parts.jobs.store.remote_ended(&id);
                }
            }
            if actor.subject.is_over {
                actor.subject.linger(actor.mail).await;
            }
        });
        job
    }

    pub(crate) fn description(&self) -> &Arc<Description> {
        &self.description
    }

    /// How far it was a moment ago.
    pub(crate) fn progress(&self) -> Arc<JobProgress> {
        self.progress.borrow().clone()
    }

    /// Gives its parent an input. Returns when that cannot be lost any more.
    pub(crate) async fn apply(
        &self,
        input: ParentInput,
    ) -> Result<Result<ParentReply, ParentRefusal>, AskError> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Input(input, Some(reply))).await?;
        answer.await.map_err(|_| AskError::Gone)
    }

    /// The remote job tracker of this attempt has ended the job.
    #[cfg(test)]
    pub(crate) async fn ends(&self, attempt: u32) {
        let ended = Message::Ended(attempt, JobState::Succeeded, Counters::default());
        self.send(ended).await.unwrap();
    }

    /// The remote job tracker of this attempt says how the job stands.
    #[cfg(test)]
    pub(crate) async fn stands(&self, attempt: u32, status: wire::JobStatus) {
        self.send(Message::Status(attempt, Box::new(status))).await.unwrap();
    }

    #[cfg(test)]
    pub(crate) async fn panic(&self) {
        self.send(Message::Panic).await.unwrap();
    }

    async fn send(&self, message: Message) -> Result<(), AskError> {
        queued(self.inbox.send(message)).await
    }

    /// A client of the remote job tracker, if that has the job.
    pub(crate) fn present_client(&self) -> Option<JobSubmissionClient> {
        let place = self.place.borrow();
        let remote = place.remote.as_ref().filter(|_| place.has_job)?;
        Some(client(remote, ClientOptions::clone(&self.options)))
    }

    /// A client of the remote job tracker. Until that has the job the call waits.
    pub(crate) async fn client(&self) -> Result<JobSubmissionClient, Fault> {
        let mut place = self.place.clone();
        // Too late or not at all: it is not there.
        let _ = timeout(REPLACED, place.wait_for(|place| place.has_job)).await;
        let id = &self.description.id;
        let absent =
            || Fault::io(format!("the remote job tracker of {id} is being started; try again"));
        self.present_client().ok_or_else(absent)
    }

    /// The session of the remote job tracker, if one works.
    pub(crate) fn session(&self) -> Option<Arc<str>> {
        Some(self.place.borrow().remote.as_ref()?.session.clone())
    }

    /// The counters of a job that has ended.
    pub(crate) fn counters(&self) -> Option<Arc<Counters>> {
        self.place.borrow().counters.clone()
    }

    /// What the job waits for while it has no job tracker, and why the service has ended it, if it has.
    pub(crate) fn note(&self) -> Option<Arc<str>> {
        let note = self.place.borrow().note.clone();
        let silence = note_of_silence(&self.contact, &self.progress.borrow());
        match (note, silence) {
            (Some(note), Some(silence)) => Some(format!("{note}; {silence}").into()),
            (note, silence) => note.or(silence.map(Into::into)),
        }
    }

    /// Whether it waits for a job tracker.
    pub(crate) fn awaits_job_tracker(&self) -> bool {
        let place = self.place.borrow();
        place.note.is_some() && place.counters.is_none()
    }

    /// The address before the names of the pages of the remote job tracker, if it has any.
    pub(crate) fn pages(&self) -> Option<Arc<str>> {
        self.place.borrow().pages.clone()
    }

    /// The result of a forwarded call.
    pub(crate) fn checked<T>(&self, result: Result<T, CallError>) -> Result<T, Fault> {
        result.map_err(|error| match error {
            CallError::Remote(error) => Fault::io(error.message().to_owned()),
            other => {
                let id = &self.description.id;
                Fault::io(format!("the remote job tracker of {id}: {other}; try again"))
            }
        })
    }

    /// The number of the attempt that a remote job tracker names, if it can be one of this job.
    pub(crate) fn attempt(&self, key: AttemptKey) -> Option<u32> {
        (key.task == self.place.borrow().key.task).then_some(key.number)
    }

    /// A remote job tracker reports.
    pub(crate) async fn reported(&self, remote: Remote) -> Result<(), Fault> {
        let attempt = remote.attempt;
        let is_known = self.place.borrow().remote.as_ref().is_some_and(|it| it.attempt == attempt);
        if !is_known {
            self.asked(ParentInput::Reported(remote)).await?;
        }
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(())
    }

    /// Gives its parent an input that a remote job tracker has sent.
    pub(crate) async fn asked(&self, input: ParentInput) -> Result<ParentReply, Fault> {
        let reply = self.apply(input).await.map_err(|error| Fault::io(error.to_string()))?;
        reply.map_err(|refusal| self.refused(&refusal))
    }

    /// What was left for a remote job tracker.
    pub(crate) async fn saved(&self, attempt: u32) -> Result<wire::JobTrackerState, Fault> {
        let (reply, answer) = oneshot::channel();
        let sent = self.send(Message::Saved(attempt, reply)).await;
        sent.map_err(|error| Fault::io(error.to_string()))?;
        let answer = answer.await.map_err(|_| Fault::io(AskError::Gone.to_string()))?;
        let (updates, session, lost) = answer.map_err(|refusal| self.refused(&refusal))?;
        let read = |update: SavedUpdate| wire::StateUpdate::decode(&mut Reader::new(&update.bytes));
        let updates: Result<Vec<wire::StateUpdate>, _> = updates.into_iter().map(read).collect();
        let updates = updates.map_err(|error| Fault::io(format!("the saved state: {error}")))?;
        let restarts = i32::try_from(lost).unwrap_or(i32::MAX);
        Ok(wire::JobTrackerState { updates, session, restarts })
    }

    fn refused(&self, refusal: &ParentRefusal) -> Fault {
        match refusal {
            // As the original words it, with the whole names.
            ParentRefusal::NotCurrent { attempt, current } => {
                let task = self.place.borrow().key.task;
                let name = |number: &u32| self.description.id.attempt(task.attempt(*number));
                Fault::io(format!(
                    "Attempt {} does not match current attempt {}",
                    name(attempt),
                    name(current)
                ))
            }
            other => Fault::io(other.to_string()),
        }
    }

    /// Where a peer of this job finds the remote job tracker that replaced the one at an address; the
    /// outer `None`: no remote job tracker of this job was there. Errors: none replaces it.
    pub(crate) fn successor(
        &self,
        failed: &InetAddress,
    ) -> Option<Result<Option<InetAddress>, Fault>> {
        let place = self.place.borrow();
        let is_at = |(host, port): &(Arc<str>, u16)| **host == *failed.host && *port == failed.port;
        place.addresses.iter().find(|address| is_at(address))?;
        if !place.may_restart {
            return Some(Err(Fault::io("Restarting remote JT is disabled.")));
        }
        let current = place.remote.as_ref().filter(|it| !is_at(&(it.host.clone(), it.port)));
        Some(Ok(current.map(address)))
    }
}

/// Where the remote job tracker is. Which attempt has taken the job, and which has pages, may be known of
/// an earlier one.
fn place_of(
    parent: &Parent,
    submitted: Option<u32>,
    pages: Option<&(u32, Arc<str>)>,
) -> RemoteLocation {
    let remote = parent.remote().cloned();
    let is_present = |attempt: u32| remote.as_ref().is_some_and(|remote| remote.attempt == attempt);
    RemoteLocation {
        key: parent.key(parent.attempt()),
        has_job: submitted.is_some_and(is_present),
        pages: pages.filter(|(attempt, _)| is_present(*attempt)).map(|(_, at)| at.clone()),
        remote,
        addresses: parent.addresses().to_vec(),
        may_restart: parent.may_restart(),
        counters: None,
        note: parent.awaits().map(Into::into),
    }
}

fn address(remote: &Remote) -> InetAddress {
    InetAddress { host: remote.host.to_string(), port: remote.port }
}

fn client(remote: &Remote, options: ClientOptions) -> JobSubmissionClient {
    JobSubmissionClient::new(address(remote), options)
}

/// The parent of a job, and what surrounds it.
struct ParentWork {
    /// Without the journal, which is in `records`, and the events of the session.
    parts: Parts,
    records: Records,
    inbox: mpsc::WeakSender<Message>,
    publish: watch::Sender<Arc<JobProgress>>,
    publish_place: watch::Sender<RemoteLocation>,
    heard: Heard,
    options: ClientOptions,
    /// Inputs of its own making.
    next: Vec<ParentInput>,
    /// What follows from the inputs of this turn.
    effects: Vec<ParentEffect>,
    waiting: Vec<Waiting>,
    /// The remote job tracker that has taken the job.
    submitted: Option<u32>,
    /// Those of the job when it has ended.
    counters: Counters,
    /// Why the job ends without a remote job tracker that has ended it.
    why: Option<String>,
    /// What the remote job tracker says of a history that it could not write.
    without_history: Option<String>,
    /// Where the pages of the remote job tracker of this attempt are.
    pages: Option<(u32, Arc<str>)>,
    is_over: bool,
    /// The remote job tracker has ended the job, and can be asked about it.
    lingers: bool,
    /// The session of that job tracker, and its end, if the cluster manager may not have answered it.
    remote_session: Option<Arc<str>>,
    remote_debt: Option<Debt>,
    /// Does the last of what follows the end.
    closing: Option<JoinHandle<Result<(), TaskPanicked>>>,
    /// The remote job tracker on which the job is being killed.
    killing: Option<(Remote, JoinHandle<()>)>,
}

/// What waits until the inputs before it are safe.
struct Waiting(Reply, Result<ParentReply, ParentRefusal>);

impl Subject for ParentWork {
    type Input = ParentInput;
    type Message = Message;

    fn stalled(ms: i64) -> ParentInput {
        ParentInput::Stalled { ms }
    }

    fn tick() -> ParentInput {
        ParentInput::Tick
    }

    fn session_input(&mut self, change: SessionChange) -> ParentInput {
        match change {
            SessionChange::Granted(slots) => ParentInput::Granted { slots },
            SessionChange::Revoked(ids) => ParentInput::Revoked { ids },
            SessionChange::NodeLost(node) => ParentInput::NodeLost { node },
            SessionChange::Ended(ending) => {
                self.why = Some(ending);
                ParentInput::SessionLost
            }
        }
    }

    fn next_deadline(&self) -> Option<Millis> {
        self.parts.parent.next_deadline()
    }

    fn is_done(&self) -> bool {
        self.is_over
    }

    fn own_inputs(&mut self) -> Vec<ParentInput> {
        std::mem::take(&mut self.next)
    }

    fn records(&mut self) -> &mut Records {
        &mut self.records
    }

    fn apply(&mut self, now: Millis, input: ParentInput) {
        // Nobody waits for the reply to what the parent itself noticed.
        let _ = self.replied(now, input);
    }

    fn take(&mut self, now: Millis, message: Message) {
        match message {
            Message::Input(input, reply) => {
                let result = self.replied(now, input);
                self.waiting.extend(reply.map(|reply| Waiting(reply, result)));
            }
            Message::Saved(attempt, reply) => {
                let left = self.parts.parent.saved(attempt).map(|(saved, session)| {
                    let updates = saved.in_order().into_iter().cloned().collect();
                    (updates, session.to_owned(), self.parts.parent.lost())
                });
                // The remote job tracker may be gone.
                drop(reply.send(left));
            }
            Message::Status(attempt, status) => self.show(attempt, &status),
            Message::Pages(attempt, address) => self.pages = Some((attempt, address)),
            Message::Submitted(attempt) => self.submitted = Some(attempt),
            #[cfg(test)]
            Message::Panic => panic!("a test"),
            Message::Ended(attempt, state, counters) => {
                let remote = self.parts.parent.remote();
                if let Some(remote) = remote.filter(|remote| remote.attempt == attempt) {
                    self.remote_session = Some(remote.session.clone());
                    (self.counters, self.lingers) = (counters, true);
                }
                self.apply(now, ParentInput::Ended { attempt, state });
            }
        }
    }

    async fn follow(&mut self) {
        let place = place_of(&self.parts.parent, self.submitted, self.pages.as_ref());
        if self.parts.parent.end().is_none() {
            self.publish_place.send_if_modified(|known| {
                let is_new = *known != place;
                *known = place;
                is_new
            });
        }
        for Waiting(reply, result) in std::mem::take(&mut self.waiting) {
            // The peer may have given up.
            drop(reply.send(result));
        }
        for effect in std::mem::take(&mut self.effects) {
            self.carry_out(effect).await;
        }
    }

    fn leave(&mut self) {
        self.parts.driver.leave();
    }
}

impl ParentWork {
    /// Ends a job again that had ended in an earlier process, if what follows the end was missing.
    async fn end_again(&mut self) {
        if let Some(state) = self.parts.parent.end() {
            self.recall().await;
            self.end(state, session_end(state)).await;
        }
    }

    /// Ends a job whose handling panicked: it has failed for everybody who asks or waits.
    async fn lost(&mut self, panic: &Panic) {
        if self.is_over {
            return;
        }
        // Nobody gets a reply that may not be safe.
        self.waiting.clear();
        // The remote job tracker ends the job's tasks, and its own session with them.
        if let Some(remote) = self.parts.parent.remote().cloned() {
            self.kill(remote);
        }
        self.why = Some(lost_reason(panic));
        self.end(JobState::Failed, SessionStatus::Failed).await;
    }

    fn replied(&mut self, now: Millis, input: ParentInput) -> Result<ParentReply, ParentRefusal> {
        let at = match input {
            // It may have waited since.
            ParentInput::Submitted => self.parts.submitted,
            _ => now,
        };
        let kept = input.clone();
        let kept_all = self.parts.parent.has_whole_state();
        let ParentOutcome { reply, effects } = self.parts.parent.apply(at, input);
        // What is refused changes nothing, so its sender does not fill the disk.
        if reply.is_ok() || kept_all != self.parts.parent.has_whole_state() {
            self.records.append(|log| log.parent_input(at, &kept));
        }
        self.effects.extend(effects);
        reply
    }

    async fn carry_out(&mut self, effect: ParentEffect) {
        let job = self.parts.description.id.clone();
        match effect {
            ParentEffect::Request(request) => self.request(request),
            ParentEffect::Release(id) => {
                if let Err(error) = self.parts.driver.release([id.0]) {
                    tracing::warn!(%job, %error, "cannot release the slot of a remote job tracker");
                }
            }
            ParentEffect::Start { attempt, slot } => self.start_remote(attempt, slot),
            ParentEffect::Watch(remote) => {
                self.name(format!("Launched session {}", remote.session));
                self.watch(remote);
            }
            ParentEffect::Kill(remote) => self.kill(remote),
            ParentEffect::EndRemoteSession(session) => {
                tracing::warn!(%job, %session, "the remote job tracker of a job is lost");
                self.end_session_of_remote(session).await;
            }
            ParentEffect::UpdatePriority(priority) => self.update_priority(priority),
            ParentEffect::End { state, reason } => {
                let status = match (&reason, state) {
                    (Some(_), JobState::Failed) => SessionStatus::FailedJobtracker,
                    _ => session_end(state),
                };
                let detail = self.why.take().filter(|_| reason == Some(EndReason::SessionLost));
                self.why = reason.map(|reason| match detail {
                    Some(detail) => format!("{reason}: {detail}"),
                    None => reason.to_string(),
                });
                if let Some(reason) = &self.why {
                    tracing::error!(%job, reason, "a job ends without its job tracker");
                }
                self.end(state, status).await;
            }
        }
    }

    /// The session of a remote job tracker that is lost ends, also if the service dies meanwhile.
    async fn end_session_of_remote(&self, handle: Arc<str>) {
        let (owed, status) = (&self.parts.jobs.owed, SessionStatus::TimedOut);
        let (user, feedback) = (self.parts.description.user.clone(), Vec::new());
        let debt = Debt { handle, user, status, feedback };
        self.note_debt(debt.clone()).await;
        owed.pay(debt);
    }

    async fn note_debt(&self, debt: Debt) {
        let session = debt.handle.clone();
        if let Err(error) = self.parts.jobs.owed.note(debt).await {
            let job = &self.parts.description.id;
            tracing::warn!(%job, %session, %error, "cannot keep that a session is to be ended");
        }
    }

    /// A job tracker on a node that has ended its job ends its session itself, for as long as it lives. If the
    /// cluster manager does not answer meanwhile, this service ends it then, or when it is started next.
    async fn note_end_of_remote(&self, status: SessionStatus) -> Option<Debt> {
        let handle = self.remote_session.clone()?;
        let user = self.parts.description.user.clone();
        let debt = Debt { handle, user, status, feedback: Vec::new() };
        self.note_debt(debt.clone()).await;
        Some(debt)
    }

    fn request(&mut self, request: ResourceRequest) {
        self.name(format!("Launch pending for {}", self.parts.description.name));
        let job = &self.parts.description.id;
        let id = request.id;
        match self.parts.driver.request(vec![session_types::slot(request, TaskDemand::default())]) {
            Ok(given) if given == [id] => return,
            Ok(given) => tracing::error!(%job, id, ?given, "request ids differ"),
            Err(error) => {
                tracing::warn!(%job, %error, "cannot request a slot; the job ends");
                self.why = Some(error.to_string());
            }
        }
        self.next.push(ParentInput::SessionLost);
    }

    fn name(&self, name: String) {
        let mut update = InfoUpdate::default();
        update.name = Some(name);
        self.update(update);
    }

    fn update_priority(&self, priority: SessionPriority) {
        let mut update = InfoUpdate::default();
        update.priority = Some(session_types::priority(priority));
        self.update(update);
        self.publish.send_modify(|progress| Arc::make_mut(progress).priority = priority);
    }

    fn update(&self, update: InfoUpdate) {
        if let Err(error) = self.parts.driver.update_info(update) {
            let job = &self.parts.description.id;
            tracing::warn!(%job, %error, "cannot update the session of a job");
        }
    }

    /// Orders a task tracker to start a remote job tracker. Spec: mapreduce/05 §5.7.
    fn start_remote(&self, attempt: u32, slot: GrantedSlot) {
        let job = self.parts.description.id.clone();
        let task = self.order(attempt);
        let session = SessionInfo {
            handle: Some(self.parts.driver.handle().to_string()),
            trackers: session_trackers(&self.parts.address),
        };
        let options = ClientOptions {
            attempt_timeout: self.parts.connect_timeout,
            connect_patience: self.parts.connect_timeout,
            call_timeout: Some(self.parts.call_timeout),
            ..ClientOptions::new(self.parts.service_user.clone())
        };
        let inbox = self.inbox.clone();
        tokio::spawn(async move {
            let started = async {
                let task = task.ok_or("a number is too large")?;
                let to = parse(&slot.address).ok_or("the node's address is not host:port")?;
                let mut tracker = CoronaTaskTrackerClient::new(to, options);
                let called = tracker.start_corona_job_tracker(task, session).await;
                called.map_err(|error| error.to_string())
            };
            let started: Result<(), String> =
                caught(started).await.unwrap_or_else(|panic| Err(panic.to_string()));
            match started {
                Ok(()) => {
                    tracing::info!(%job, attempt, node = %slot.node, "started a remote job tracker");
                }
                Err(error) => {
                    tracing::warn!(
                        %job, attempt, node = %slot.node, error,
                        "cannot start a remote job tracker; another host is tried"
                    );
                    tell(&inbox, Message::Input(ParentInput::StartFailed { attempt }, None)).await;
                }
            }
        });
    }

    /// The task that stands for a job tracker.
    fn order(&self, attempt: u32) -> Option<wire::Task> {
        let description = &self.parts.description;
        let attempt = translate::attempt_id(&description.id, self.parts.parent.key(attempt))?;
        let split = wire::Split { class: SPLIT_CLASS.to_owned(), data: Vec::new() };
        Some(translate::job_tracker_task(attempt, &description.conf, &description.user, split))
    }

    /// Submits the job to a remote job tracker and watches it.
    fn watch(&self, remote: Remote) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let Some(job) = answers::job_id(&self.parts.description.id) else { return };
        let watcher = Watcher {
            client: client(&remote, self.options.clone()),
            job,
            remote,
            inbox: self.inbox.clone(),
            place: self.publish_place.subscribe(),
            heard: self.heard.clone(),
        };
        tokio::spawn(watcher.run());
    }

    /// Kills the job on its node, unless that is already being tried.
    fn kill(&mut self, remote: Remote) {
        let is_same =
            |(of, trying): &(Remote, JoinHandle<()>)| *of == remote && !trying.is_finished();
        if self.killing.as_ref().is_some_and(is_same) {
            return;
        }
        let Some(id) = answers::job_id(&self.parts.description.id) else { return };
        let mut client = client(&remote, self.options.clone());
        let trying = spawn_detached("the kill of a job on a node", async move {
            for tries in 1..=TRIES {
                match client.kill_job(id.clone()).await {
                    Ok(()) => return,
                    // The watcher notices one that is lost.
                    Err(error) if is_gone(&error) => return,
                    Err(error) => {
                        tracing::info!(job = %id, %error, tries, "cannot kill a job");
                        sleep(TRY_PAUSE * tries).await;
                    }
                }
            }
        });
        self.killing = Some((remote, trying));
    }

    /// Publishes how the job stands.
    fn show(&mut self, attempt: u32, status: &wire::JobStatus) {
        if attempt != self.parts.parent.attempt() {
            return;
        }
        let part = |part: f32| if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
        self.without_history = Some(&*status.scheduling_info)
            .filter(|note| note.starts_with(WITHOUT_HISTORY))
            .map(|note| note.chars().take(MAX_NOTE).collect());
        self.publish.send_modify(|progress| {
            let progress = Arc::make_mut(progress);
            progress.state = match answers::state_of(status.run_state) {
                Some(JobState::Prep) => JobState::Prep,
                _ => JobState::Running,
            };
            progress.setup = part(status.setup_progress);
            progress.cleanup = part(status.cleanup_progress);
            let work =
                PerKind { map: part(status.map_progress), reduce: part(status.reduce_progress) };
            progress.work = work;
            // The parent sees no tasks: as many as the progress comes to.
            let total = progress.total;
            progress.finished =
                PerKind::of(|kind| whole_part(f64::from(work[kind]) * f64::from(total[kind])));
        });
    }

    /// Everything that follows the end of a job.
    async fn end(&mut self, state: JobState, status: SessionStatus) {
        self.is_over = true;
        let Parts { jobs, description, driver, temporary, .. } = &self.parts;
        jobs.ended(description, driver.handle(), state);
        let (handle, user) = (driver.handle().clone(), description.user.clone());
        let debt = Debt { handle, user, status, feedback: Vec::new() };
        let remote_debt = self.note_end_of_remote(status).await;
        match (jobs.end_session(driver.clone(), debt).await, remote_debt) {
            // It has answered the job tracker on the node as well.
            (true, Some(debt)) => jobs.owed.settle(&debt.handle).await,
            (_, remote_debt) => self.remote_debt = remote_debt,
        }
        let mut progress = JobProgress::clone(&self.publish.borrow());
        progress.state = state;
        progress.cleanup = 1.0;
        // Spec: mapreduce/09 §H.
        progress.work = PerKind { map: 1.0, reduce: 1.0 };
        if state == JobState::Succeeded {
            progress.finished = progress.total;
        }
        progress.finished_at.get_or_insert_with(now);
        let progress = Arc::new(progress);
        if self.without_history.is_some() {
            jobs.meter.without_history.add(1);
        }
        let reason = self.reason();
        let retired = || Retired {
            description: description.clone(),
            progress: progress.clone(),
            counters: self.counters.clone(),
            reason: reason.clone(),
        };
        jobs.store.remote_ended(&description.id);
        // A client that sees the end of the job must not be sent to a job tracker that has ended.
        if self.lingers {
            let counters = Arc::new(self.counters.clone());
            self.publish_place.send_modify(|place| {
                (place.counters, place.note) = (Some(counters), reason.clone());
            });
        } else {
            jobs.store.retire(retired());
        }
        self.publish.send_replace(progress.clone());
        let log_path = driver.session_log();
        jobs.keep(retired(), log_path).await;
        let finish_ms = progress.finished_at.map_or(0, |at| at.0);
        // One that has ended the job has ended its history, and cleaned up.
        let remains = (!self.lingers).then(|| Remains {
            end: JobEnd::without_counts(state, finish_ms),
            log_path: log_path.to_owned(),
            temporary: temporary.clone(),
        });
        let (jobs, description) = (jobs.clone(), description.clone());
        let log = self.records.log().cloned();
        self.closing = Some(tokio::spawn(run_essential("the end of a job", async move {
            if let Some(remains) = remains {
                remains.complete(&jobs, &description).await;
            }
            jobs.close(&description, state, log.as_ref()).await;
        })));
    }

    /// What an earlier run has kept of a job that had ended.
    async fn recall(&mut self) {
        let (jobs, id) = (self.parts.jobs.clone(), self.parts.description.id.clone());
        let found = tokio::task::spawn_blocking(move || jobs.finished.find(&id)).await;
        if let Ok(Some(Retired { progress, counters, reason, .. })) = found {
            self.publish.send_replace(progress);
            self.counters = counters;
            self.why = reason.as_deref().map(str::to_owned);
        }
    }

    fn retired(&self) -> Retired {
        Retired {
            description: self.parts.description.clone(),
            progress: self.publish.borrow().clone(),
            counters: self.counters.clone(),
            reason: self.reason(),
        }
    }

    /// Why the service has ended the job, or that it has no history.
    fn reason(&self) -> Option<Arc<str>> {
        self.why.as_deref().or(self.without_history.as_deref()).map(Into::into)
    }

    /// Lets the remote job tracker answer a while longer, then forgets it.
    async fn linger(mut self, mut messages: mpsc::Receiver<Message>) {
        let mut stop = self.parts.stop.clone();
        if self.lingers {
            let until = Instant::now() + LINGER;
            loop {
                let message = tokio::select! {
                    biased;
                    _ = stop.wait_for(|stop| *stop) => return,
                    () = sleep_until(until) => break,
                    message = messages.recv() => message,
                };
                match message {
                    Some(Message::Input(_, Some(reply))) => {
                        drop(reply.send(Err(ParentRefusal::Ended)));
                    }
                    Some(_) => {}
                    None => break,
                }
            }
            if let Some(debt) = self.remote_debt.take() {
                self.parts.jobs.owed.pay(debt);
            }
            // From now on the reports of the remote job tracker are refused, so it ends.
            self.parts.jobs.store.retire(self.retired());
        }
        if let Some(closing) = self.closing.take() {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                closed = closing => if !matches!(closed, Ok(Ok(()))) { return },
            }
        }
        let log = self.records.log().cloned();
        self.parts.jobs.remove_data(&self.parts.description, log).await;
    }
}

/// How the session of a job ends.
fn session_end(state: JobState) -> SessionStatus {
    match state {
        JobState::Succeeded => SessionStatus::Successful,
        JobState::Failed => SessionStatus::Failed,
        _ => SessionStatus::Killed,
    }
}

/// Whether nobody listens where the remote job tracker was.
fn is_gone(error: &CallError) -> bool {
    matches!(error, CallError::Connect { error, .. } if error.kind() == io::ErrorKind::ConnectionRefused)
}

async fn tell(inbox: &mpsc::WeakSender<Message>, message: Message) {
    // A job that is over needs no message.
    if let Some(inbox) = inbox.upgrade() {
        let _ = inbox.send(message).await;
    }
}
