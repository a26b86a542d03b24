//! A session as its owner sees it, and the state that it shares with its task.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Zoned;
use thiserror::Error;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::books::{GrantNews, IdsExhausted, Lost, SlotBooks};
use super::contact::Contact;
use super::conversation::Conversation;
use super::events::{Ending, Event, SessionEvents, ending};
use super::host::{DriverHost, Notification};
use super::link::CallFailure;
use super::options::{Bounds, Endpoint, Options, ProgramVersion};
use super::outgoing::{Info, InfoUpdate, OutgoingCall, Queue};
use super::snapshot::{SavedSession, Snapshot};
use super::types::{NodeUsage, PerType, PoolName, ResourceType, SessionStatus, SlotRequest};

/// A session at a cluster manager.
///
/// Its calls never wait: they are queued, and a task sends them, in order, on one connection, until
/// each has been answered. The session's [`SessionEvents`] report the results. Heartbeats are sent
/// automatically.
///
/// Dropping it ends the session as killed, in the background: the task continues for at most
/// [`Timers::end_timeout`](super::Timers::end_timeout) on the runtime on which the session was
/// started. If that runtime is shut down before, the session expires at the cluster manager.
/// [`SessionDriver::end`] waits for the end and returns its outcome.
#[derive(Debug)]
pub struct SessionDriver {
    shared: EndOnDrop,
    registration: Registration,
    ended: watch::Receiver<Option<Arc<Ending>>>,
}

/// The cluster manager's reply when the session started.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) handle: Arc<str>,
    pub(super) pool: PoolName,
    pub(super) session_log: String,
}

/// How a session comes about.
#[derive(Debug)]
pub(super) enum Beginning {
    /// The cluster manager gives it an id, and starts it.
    New,
    /// It has this id, and is to be started.
    Named(Arc<str>),
    /// It has been started already.
    Resumed(Box<SavedSession>),
}

/// Why there is no session.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// Notifications cannot be taken.
    #[error("cannot listen for notifications: {0}")]
    Listen(#[source] io::Error),
    /// The cluster manager does not answer.
    #[error("the cluster manager did not answer for {} s: {failure}", .waited.as_secs())]
    Unreachable {
        /// For how long it was asked.
        waited: Duration,
        /// Why the last attempt failed.
        failure: CallFailure,
    },
    /// The cluster manager does not want the session, such as for its pool.
    #[error("the cluster manager refuses the session: {0}")]
    Refused(String),
    /// An answer outside the contract.
    #[error("the session did not start: {0}")]
    Failed(#[source] CallFailure),
    /// The host has another session with this id: it is used for two cluster managers.
    #[error("a session {0} is here already")]
    HandleTaken(Arc<str>),
    /// The session takes notifications elsewhere, so that the cluster manager could not reach it here.
    #[error("the session takes notifications at {saved}, and this process listens at {here}")]
    OtherAddress {
        /// Where the session started: [`SavedSession::notifications`].
        saved: Endpoint,
        /// Where the host listens: [`DriverHost::advertised`].
        here: Endpoint,
    },
    /// The runtime was shut down, or the session was given up, before it had started.
    #[error("the start was given up")]
    Cancelled,
}

/// Why a call did not join the queue.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The session has ended, or is about to end. [`SessionEvents`] have the reason.
    #[error("the session has ended")]
    Over,
    /// Too many calls wait. See [`Bounds::max_outgoing`].
    #[error("{0} calls wait already")]
    Busy(usize),
    /// A request names a host both as one to be near to and as one not to be used. A cluster
    /// manager never grants it, and the original breaks the connection.
    #[error("host {0} is both wanted and excluded")]
    HostExcluded(Arc<str>),
    /// The session has used all its request ids.
    #[error(transparent)]
    IdsExhausted(#[from] IdsExhausted),
}

/// How the talk with the cluster manager goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Pending calls, including the one in flight.
    pub waiting_calls: usize,
    /// Attempts that failed since the session started, heartbeats included.
    pub failed_attempts: u64,
    /// Whether heartbeats report the session's progress. False for good once the cluster manager
    /// has replied that it does not know `sessionHeartbeatV2`.
    pub heartbeats_v2: bool,
}

impl SessionDriver {
    /// Starts a session with a listener of its own. To start many in one process, open a
    /// [`DriverHost`] and use [`DriverHost::start`].
    ///
    /// Asks for a session id and starts the session, each again if need be: for up to
    /// [`Timers::start_timeout`](super::Timers::start_timeout), and for as long as the cluster
    /// manager is in safe mode. So it may wait for long; drop the future to give up. If the session
    /// has started by then it is ended.
    ///
    /// Must be called within a tokio runtime, which then runs a task for the session.
    pub async fn start(options: Options) -> Result<(SessionDriver, SessionEvents), StartError> {
        let host = DriverHost::open(&options.cluster_manager, &options.listen).await;
        host.map_err(StartError::Listen)?.start(options).await
    }

    pub(super) async fn start_at(
        host: DriverHost,
        options: Options,
        beginning: Beginning,
    ) -> Result<(SessionDriver, SessionEvents), StartError> {
        SessionDriver::start_prepared(host, options, beginning, |_| ()).await
    }

    /// Ends a session that an earlier process has left, after this feedback.
    pub(super) async fn end_at(
        host: DriverHost,
        options: Options,
        left: SavedSession,
        status: SessionStatus,
        feedback: Vec<NodeUsage>,
    ) -> Result<Arc<Ending>, StartError> {
        let beginning = Beginning::Resumed(Box::new(left));
        let ends = |shared: &SharedDriver| {
            if !feedback.is_empty() {
                shared.state().queue.push(OutgoingCall::Feedback(feedback));
            }
            shared.begin_end(status);
        };
        let (driver, _events) =
            SessionDriver::start_prepared(host, options, beginning, ends).await?;
        Ok(driver.end(status).await)
    }

    /// `prepare` comes before the first call.
    async fn start_prepared(
        host: DriverHost,
        options: Options,
        beginning: Beginning,
        prepare: impl FnOnce(&SharedDriver),
    ) -> Result<(SessionDriver, SessionEvents), StartError> {
        let mut info = info(&host, &options);
        if let Beginning::Resumed(resumed) = &beginning {
            info.pool = resumed.pool.clone();
            resumed.check_address(host.advertised())?;
        }
        let (arrive, incoming) = mpsc::channel(options.bounds.max_incoming.max(1));
        let (tell_end, ended) = watch::channel(None);
        let (tell_start, started) = oneshot::channel();
        let shared = EndOnDrop(Arc::new(SharedDriver::new(info, &options)));
        let beginning = shared.0.begin(beginning);
        prepare(&shared.0);
        let talk = Conversation::new(shared.0.clone(), tell_end, host.connector(), &options);
        tokio::spawn(talk.run(host, beginning, arrive, tell_start));
        let registration = started.await.unwrap_or(Err(StartError::Cancelled))?;
        let events =
            SessionEvents { shared: shared.0.clone(), incoming, ended: ended.clone(), over: false };
        Ok((SessionDriver { shared, registration, ended }, events))
    }

    /// The session's id, which is also its handle.
    pub fn handle(&self) -> &Arc<str> {
        &self.registration.handle
    }

    /// The pool that the cluster manager has put the session into.
    pub fn pool(&self) -> &PoolName {
        &self.registration.pool
    }

    /// Where the cluster manager wants the logs of the session to be: a path.
    pub fn session_log(&self) -> &str {
        &self.registration.session_log
    }

    /// Asks for slots. Returns their ids, in the same order; an id is never used again.
    pub fn request(&self, slots: Vec<SlotRequest>) -> Result<Vec<i32>, DriverError> {
        let excluded = |slot: &SlotRequest| {
            slot.hosts.iter().find(|host| slot.exclude_hosts.contains(host)).cloned()
        };
        if let Some(host) = slots.iter().find_map(excluded) {
            return Err(DriverError::HostExcluded(host));
        }
        let mut state = self.open()?;
        let requests = state.books.want(slots)?;
        let ids = requests.iter().map(|request| request.id).collect();
        for requests in requests.chunks(self.shared.0.bounds.max_ids_per_call.max(1)) {
            let call = OutgoingCall::Request(requests.to_vec());
            state.queue.push_within(call, &self.shared.0.bounds);
        }
        drop(state);
        self.shared.0.wake.notify_one();
        Ok(ids)
    }

    /// Releases grants, or withdraws requests that have not been granted. Returns those that were
    /// known and not released before.
    pub fn release(&self, ids: impl IntoIterator<Item = i32>) -> Result<Vec<i32>, DriverError> {
        let mut state = self.open()?;
        let released = state.books.release(ids);
        for ids in released.chunks(self.shared.0.bounds.max_ids_per_call.max(1)) {
            let call = OutgoingCall::Release(ids.to_vec());
            state.queue.push_within(call, &self.shared.0.bounds);
        }
        drop(state);
        self.shared.0.wake.notify_one();
        Ok(released)
    }

    /// Requests lost slots again, with new ids, and then releases the old ones unless that has
    /// happened by itself. Returns the new ids.
    pub fn replace(&self, lost: &[Lost]) -> Result<Vec<i32>, DriverError> {
        let again = lost.iter().map(|lost| SlotRequest::clone(&lost.request.slot)).collect();
        let ids = self.request(again)?;
        self.release(lost.iter().map(|lost| lost.request.id))?;
        Ok(ids)
    }

    /// Sets the session's usage of a type, in bytes, which the next heartbeats report. A Java job
    /// tracker reports three numbers for each type: the most memory, the most memory at one time,
    /// the greatest resident size. They are 0 by default.
    pub fn report_usage(&self, kind: ResourceType, usage: Vec<i64>) {
        self.shared.0.state().usages[kind] = usage;
    }

    /// Reports to the cluster manager how nodes performed.
    pub fn feedback(&self, usages: Vec<NodeUsage>) -> Result<(), DriverError> {
        self.push(|_| OutgoingCall::Feedback(usages))
    }

    /// Reports changes of the session to the cluster manager.
    pub fn update_info(&self, update: InfoUpdate) -> Result<(), DriverError> {
        self.push(|state| {
            state.info.update(update);
            OutgoingCall::UpdateInfo(state.info.clone())
        })
    }

    /// Ends another session as timed out, such as that of a job tracker that this session had
    /// started and that no longer exists.
    pub fn end_other(&self, handle: impl Into<Arc<str>>) -> Result<(), DriverError> {
        self.push(|_| OutgoingCall::EndOther(handle.into()))
    }

    /// The slots of the session as they are now, and its counts. It is a copy, which takes time and
    /// memory for each request that is not forgotten.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.shared.0.state();
        let books = &state.books;
        Snapshot {
            slots: books.slots().collect(),
            last_id: books.last_id(),
            totals: books.totals(),
        }
    }

    /// What another process, or this one after its restart, needs to go on with the session. See
    /// [`DriverHost::resume`].
    pub fn save(&self) -> SavedSession {
        let Registration { handle, pool, session_log } = &self.registration;
        let mut saved = SavedSession::new(handle.clone(), pool.clone());
        saved.session_log.clone_from(session_log);
        saved.take(self.snapshot());
        saved.notifications = Some(self.shared.0.state().info.address.clone());
        saved
    }

    /// Whether the cluster manager answers.
    pub fn contact(&self) -> Contact {
        self.shared.0.contact.clone()
    }

    /// How the talk with the cluster manager goes.
    pub fn traffic(&self) -> Traffic {
        let state = self.shared.0.state();
        Traffic {
            waiting_calls: state.queue.len(),
            failed_attempts: state.failed_attempts,
            heartbeats_v2: state.heartbeats_v2,
        }
    }

    /// Leaves the session as it is at the cluster manager: nothing ends it from now on, and only
    /// heartbeats are sent for it, until the runtime is shut down. Another process can take it over,
    /// see [`DriverHost::resume`].
    pub fn leave(&self) {
        let mut state = self.shared.0.state();
        state.is_ending = true;
        state.queue = Queue::default();
    }

    /// Ends the session and waits for how that went, at most
    /// [`Timers::end_timeout`](super::Timers::end_timeout). Calls that wait are forgotten, except
    /// feedback, which goes first. The end is sent until the cluster manager has acknowledged it.
    ///
    /// The first call decides about the status; a session that had ended before keeps its ending.
    /// A future that is dropped once it has been polled leaves the session to end in the
    /// background.
    pub async fn end(&self, status: SessionStatus) -> Arc<Ending> {
        self.shared.0.begin_end(status);
        ending(&mut self.ended.clone()).await
    }

    /// The state, if another call may join the queue.
    fn open(&self) -> Result<MutexGuard<'_, DriverState>, DriverError> {
        let state = self.shared.0.state();
        if state.is_ending || self.ended.borrow().is_some() || self.ended.has_changed().is_err() {
            return Err(DriverError::Over);
        }
        let limit = self.shared.0.bounds.max_outgoing;
        if state.queue.len() >= limit.max(1) {
            return Err(DriverError::Busy(limit));
        }
        Ok(state)
    }

    fn push(&self, call: impl FnOnce(&mut DriverState) -> OutgoingCall) -> Result<(), DriverError> {
        let mut state = self.open()?;
        let call = call(&mut state);
        state.queue.push_within(call, &self.shared.0.bounds);
        drop(state);
        self.shared.0.wake.notify_one();
        Ok(())
    }
}

/// Spec: cluster-manager/05 §6. The date is written as Java writes one.
fn info(host: &DriverHost, options: &Options) -> Info {
    let address: Endpoint = host.advertised().clone();
    let name = options.name.clone().unwrap_or_else(|| {
        let date = Zoned::now().strftime("%a %b %d %H:%M:%S %Z %Y").to_string();
        format!("{}@{address}-{date}", options.user)
    });
    Info {
        address,
        name,
        user: options.user.clone(),
        pool: options.pool.clone(),
        priority: options.priority,
        no_preempt: options.no_preempt,
        url: options.url.clone(),
        deadline_ms: options.deadline_ms,
    }
}

fn books(books: SlotBooks, in_outline: bool) -> SlotBooks {
    if in_outline { books.in_outline() } else { books }
}

/// The state that the owner, the events and the task of a session share.
#[derive(Debug)]
pub(super) struct SharedDriver {
    state: Mutex<DriverState>,
    /// A call has joined the queue.
    pub(super) wake: Notify,
    /// A call has left the queue.
    room: Notify,
    /// The status with which the session is to end, once it is.
    ending: watch::Sender<Option<SessionStatus>>,
    release_lost: bool,
    outline_requests: bool,
    pub(super) program: Option<ProgramVersion>,
    bounds: Bounds,
    pub(super) contact: Contact,
}

#[derive(Debug)]
pub(super) struct DriverState {
    pub(super) books: SlotBooks,
    pub(super) queue: Queue,
    pub(super) info: Info,
    pub(super) usages: PerType<Vec<i64>>,
    pub(super) failed_attempts: u64,
    pub(super) heartbeats_v2: bool,
    is_ending: bool,
}

impl SharedDriver {
    fn new(info: Info, options: &Options) -> SharedDriver {
        let state = DriverState {
            books: books(SlotBooks::default(), options.outline_requests),
            queue: Queue::default(),
            info,
            usages: PerType([(); 3].map(|()| vec![0; 3])),
            failed_attempts: 0,
            heartbeats_v2: true,
            is_ending: false,
        };
        SharedDriver {
            state: Mutex::new(state),
            wake: Notify::new(),
            room: Notify::new(),
            ending: watch::Sender::new(None),
            release_lost: options.release_lost,
            outline_requests: options.outline_requests,
            program: options.program.clone(),
            bounds: options.bounds.clone(),
            contact: Contact::default(),
        }
    }

    /// Restores the state of an earlier process. Requests and releases that the cluster manager may
    /// have missed are sent first: the call with requests, which may be empty, also settles the
    /// number that heartbeats have to name. Spec: cluster-manager/02 §3.6 to §3.8.
    fn begin(&self, beginning: Beginning) -> Beginning {
        let Beginning::Resumed(resumed) = &beginning else { return beginning };
        let mut state = self.state();
        let restored = SlotBooks::restored(resumed.last_id, resumed.open.clone());
        state.books = books(restored, self.outline_requests);
        let open: BTreeSet<i32> = resumed.open.iter().map(|(request, _)| request.id).collect();
        let released: Vec<i32> = (1..=resumed.last_id).filter(|id| !open.contains(id)).collect();
        for ids in released.chunks(self.bounds.max_ids_per_call.max(1)) {
            state.queue.push(OutgoingCall::Release(ids.to_vec()));
        }
        state.queue.push(OutgoingCall::Request(Vec::new()));
        drop(state);
        beginning
    }

    /// Held for short changes only, and never while the owner's code runs. No panic happens while it is
    /// held.
    pub(super) fn state(&self) -> MutexGuard<'_, DriverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the task to end the session; the first caller determines the status.
    pub(super) fn begin_end(&self, status: SessionStatus) {
        let mut state = self.state();
        if state.is_ending {
            return;
        }
        state.is_ending = true;
        state.queue.clear_for_end(status);
        drop(state);
        self.ending.send_replace(Some(status));
    }

    /// The status with which the session is to end.
    pub(super) fn ending(&self) -> watch::Receiver<Option<SessionStatus>> {
        self.ending.subscribe()
    }

    /// A call was answered.
    pub(super) fn answered(&self, call: &Arc<OutgoingCall>) {
        let mut state = self.state();
        match &**call {
            OutgoingCall::Request(requests) => {
                state.books.requested(requests.iter().map(|request| request.id));
            }
            OutgoingCall::Release(ids) => state.books.released(ids.iter().copied()),
            _ => {}
        }
        state.queue.answered(call);
        drop(state);
        self.room.notify_one();
    }

    /// The cluster manager cannot carry a call out now.
    pub(super) fn postpone(&self, call: &Arc<OutgoingCall>) {
        self.state().queue.postpone(call);
    }

    /// Waits until another call may join the queue.
    pub(super) async fn room_for_a_call(&self) {
        while self.state().queue.len() >= self.bounds.max_outgoing.max(1) {
            self.room.notified().await;
        }
    }

    /// Applies a notification. Returns an event if it has anything new.
    pub(super) fn take_in(&self, notification: Notification) -> Option<Event> {
        let mut state = self.state();
        match notification {
            Notification::Granted(grants) => {
                let GrantNews { fresh, give_back } = state.books.granted(grants);
                self.push_release(&mut state, &give_back);
                (!fresh.is_empty()).then_some(Event::Granted(fresh))
            }
            Notification::Revoked(grants) => {
                let lost = state.books.revoked(grants);
                self.release_lost(&mut state, &lost);
                (!lost.is_empty()).then_some(Event::Revoked(lost))
            }
            Notification::DeadNode(node) => {
                let lost = state.books.node_died(&node);
                self.release_lost(&mut state, &lost);
                Some(Event::DeadNode { node: node.into(), lost })
            }
        }
    }

    fn release_lost(&self, state: &mut DriverState, lost: &[Lost]) {
        if self.release_lost {
            let ids = state.books.release(lost.iter().map(|lost| lost.request.id));
            self.push_release(state, &ids);
        }
    }

    /// Each is a call of its own: notifications wait while there are too many.
    fn push_release(&self, state: &mut DriverState, ids: &[i32]) {
        if state.is_ending || ids.is_empty() {
            return;
        }
        for ids in ids.chunks(self.bounds.max_ids_per_call.max(1)) {
            state.queue.push(OutgoingCall::Release(ids.to_vec()));
        }
        self.wake.notify_one();
    }
}

/// Ends a session whose owner, or whose start, was dropped.
#[derive(Debug)]
struct EndOnDrop(Arc<SharedDriver>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.begin_end(SessionStatus::Killed);
    }
}
