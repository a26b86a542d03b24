//! The task of one job, whichever engine decides about it: it takes what comes, in turns, and has each turn's
//! inputs safe in the job's journal before anything that follows from them leaves. What slows this job slows no
//! other. This file must not know what a job decides.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use corona_mapreduce::JobId;
use corona_model::types::Millis;
use corona_session_driver::{Event, SessionEvents};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::log::{Log, LogError};
use super::session_types;
use crate::clock::{self, now};
use corona_job_engine::{GrantedSlot, JobRefusal, RequestId};

/// Messages that are taken at a time, so that they share a wait for the disk.
const BATCH: usize = 64;
/// How long a call waits for room in the queue of its job.
const ROOM_TIMEOUT: Duration = Duration::from_secs(10);
/// A job without a deadline looks again after this time.
const NO_DEADLINE: Duration = Duration::from_secs(3600);

/// Why a job does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum AskError {
    /// Too much waits for it.
    #[error("the job has too many calls waiting; try again")]
    Busy,
    /// Its details are not kept any more, or it has failed.
    #[error("the job's details are not kept any more")]
    Gone,
    /// The engine refuses.
    #[error(transparent)]
    Refused(#[from] JobRefusal),
}

/// Waits for a message to be queued, for ten seconds at most.
pub(crate) async fn queued<E>(sent: impl Future<Output = Result<(), E>>) -> Result<(), AskError> {
    match timeout(ROOM_TIMEOUT, sent).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(AskError::Gone),
        Err(_) => Err(AskError::Busy),
    }
}

/// An engine of a job, and what surrounds it.
pub(crate) trait Subject: Send {
    /// An input of the engine.
    type Input: Send;
    /// What others ask of it.
    type Message: Send;

    /// The engine noticed how long the process has stalled.
    fn stalled(ms: i64) -> Self::Input;
    /// Time has passed.
    fn tick() -> Self::Input;
    /// Something happened to the session of the job.
    fn session_input(&mut self, change: SessionChange) -> Self::Input;

    /// When time alone changes a decision.
    fn next_deadline(&self) -> Option<Millis>;
    /// When it has something to do that is no decision.
    fn wakes_at(&self) -> Option<Instant> {
        None
    }
    /// Whether its task ends.
    fn is_done(&self) -> bool;
    /// Inputs of its own making.
    fn own_inputs(&mut self) -> Vec<Self::Input>;
    fn records(&mut self) -> &mut Records;

    /// Applies an input and journals it.
    fn apply(&mut self, now: Millis, input: Self::Input);
    /// Applies the input in a message, or keeps the message until the inputs before it are safe.
    fn take(&mut self, now: Millis, message: Self::Message);
    /// Carries out what follows from the inputs of this turn, which are safe.
    fn follow(&mut self) -> impl Future<Output = ()> + Send;
    /// The program ends: the next process goes on with the job.
    fn leave(&mut self);
}

/// What may happen to the session of a job.
pub(crate) enum SessionChange {
    Granted(Vec<GrantedSlot>),
    Revoked(Vec<RequestId>),
    NodeLost(Arc<str>),
    /// It has ended, for this reason.
    Ended(String),
}

/// The way of messages to a job.
pub(crate) trait Mail<M, I>: Send {
    /// Waits for messages or notes, and takes at most so many messages. Returns false when nobody can send any more.
    /// A caller that gives up loses nothing.
    fn wait(&mut self, messages: &mut Vec<M>, most: usize) -> impl Future<Output = bool> + Send;
    /// Takes inputs that nobody waits for.
    fn notes(&self) -> Vec<I>;
}

impl<M: Send, I> Mail<M, I> for mpsc::Receiver<M> {
    async fn wait(&mut self, messages: &mut Vec<M>, most: usize) -> bool {
        self.recv_many(messages, most).await > 0
    }

    fn notes(&self) -> Vec<I> {
        Vec::new()
    }
}

/// The journal of a job, as long as it works.
pub(crate) struct Records {
    job: JobId,
    log: Option<Log>,
    /// The last one of this turn.
    last: Option<u64>,
}

impl Records {
    pub(crate) fn new(job: JobId, log: Option<Log>) -> Records {
        Records { job, log, last: None }
    }

    /// The journal, unless it has failed or is closed.
    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    pub(crate) fn append(&mut self, append: impl FnOnce(&Log) -> Result<u64, LogError>) {
        let Some(log) = &self.log else { return };
        match append(log) {
            Ok(number) => self.last = Some(number),
            Err(error) => self.give_up(&error),
        }
    }

    /// Journals nothing more.
    pub(crate) fn close(&mut self) {
        self.log = None;
    }

    async fn make_safe(&mut self) {
        let (Some(log), Some(number)) = (&self.log, self.last.take()) else { return };
        if let Err(error) = log.committed(number).await {
            self.give_up(&error);
        }
    }

    fn give_up(&mut self, error: &LogError) {
        let job = &self.job;
        tracing::error!(%job, %error, "the journal of a job failed; a restart will not know the job");
        if let Some(log) = self.log.take() {
            log.discard();
        }
    }
}

/// The time of a job. It does not run backwards from one process to the next.
#[derive(Debug)]
pub(crate) struct JobClock {
    ahead_ms: i64,
    /// The stalls of the process that the engine knows of.
    stalled_ms: i64,
}

impl JobClock {
    /// Goes on from the last input of a job.
    pub(crate) fn after(last: Millis) -> JobClock {
        JobClock { ahead_ms: last.since(now()).max(0), stalled_ms: clock::stalled_ms() }
    }

    /// How far the last input of the job is in the future, since an earlier process had another clock.
    pub(crate) fn ahead_ms(&self) -> i64 {
        self.ahead_ms
    }

    fn now(&self) -> Millis {
        now().plus_ms(self.ahead_ms)
    }

    /// Stalls of the process since the last call.
    fn new_stalls(&mut self) -> Option<i64> {
        let ms = clock::stalled_ms() - self.stalled_ms;
        (ms > 0).then(|| {
            self.stalled_ms += ms;
            ms
        })
    }
}

/// What runs a job.
pub(crate) struct Actor<S, M> {
    pub(crate) subject: S,
    pub(crate) mail: M,
    pub(crate) events: Option<SessionEvents>,
    pub(crate) clock: JobClock,
    /// Becomes true when the program ends.
    pub(crate) stop: watch::Receiver<bool>,
}

impl<S: Subject, M: Mail<S::Message, S::Input>> Actor<S, M> {
    /// Runs the job until it is done or the program ends. `first` are its first inputs.
    pub(crate) async fn run(&mut self, first: Vec<S::Input>) {
        let (mut messages, mut next) = (Vec::with_capacity(BATCH), first);
        while !self.subject.is_done() {
            next.extend(self.subject.own_inputs());
            if next.is_empty() {
                let (wake, mut stop) = (self.wake(), self.stop.clone());
                tokio::select! {
                    biased;
                    // Its sender lives as long as the service.
                    _ = stop.wait_for(|stop| *stop) => return self.subject.leave(),
                    event = next_event(&mut self.events) => next.extend(self.session_input(event)),
                    is_wanted = self.mail.wait(&mut messages, BATCH) => if !is_wanted { return },
                    () = sleep_until(wake) => {}
                }
            }
            self.turn(&mut next, &mut messages).await;
        }
    }

    fn wake(&self) -> Instant {
        let due = self.subject.next_deadline();
        let due = due.map(|due| due.since(self.clock.now()).max(0).unsigned_abs());
        let pause = due.map_or(NO_DEADLINE, Duration::from_millis).min(NO_DEADLINE);
        let wake = Instant::now() + pause;
        self.subject.wakes_at().map_or(wake, |at| wake.min(at))
    }

    fn session_input(&mut self, event: Event) -> Option<S::Input> {
        let change = match event {
            Event::Granted(grants) => {
                SessionChange::Granted(grants.iter().map(session_types::granted).collect())
            }
            Event::Revoked(lost) => {
                let ids = lost.into_iter().map(|lost| RequestId(lost.request.id));
                SessionChange::Revoked(ids.collect())
            }
            Event::DeadNode { node, .. } => SessionChange::NodeLost(node),
            Event::Ended(ending) => {
                self.events = None;
                let job = &self.subject.records().job;
                tracing::info!(%job, %ending, "the session of a job has ended");
                SessionChange::Ended(ending.to_string())
            }
            // The driver has no other events.
            _ => return None,
        };
        Some(self.subject.session_input(change))
    }

    /// Applies pending inputs, waits until they are durable, then carries out what follows from them.
    async fn turn(&mut self, next: &mut Vec<S::Input>, messages: &mut Vec<S::Message>) {
        let now = self.clock.now();
        // Before anything that takes time for silence.
        if let Some(ms) = self.clock.new_stalls() {
            self.subject.apply(now, S::stalled(ms));
        }
        for input in next.drain(..).chain(self.mail.notes()) {
            self.subject.apply(now, input);
        }
        for message in messages.drain(..) {
            self.subject.take(now, message);
        }
        if self.subject.next_deadline().is_some_and(|due| due <= now) {
            self.subject.apply(now, S::tick());
        }
        self.subject.records().make_safe().await;
        self.subject.follow().await;
    }
}

async fn next_event(events: &mut Option<SessionEvents>) -> Event {
    match events {
        Some(events) => match events.next().await {
            Some(event) => event,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}
