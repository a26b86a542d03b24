//! Delivers notifications to sessions: one ordered queue for each session, with its own task, so
//! that no session waits for another.
//!
//! Spec: cluster-manager/05 §4. A call is retried until it is answered (at least once), with
//! growing pauses; a session that is unreachable for too long is given up. Unlike in the original,
//! which closes a connection as soon as its queue is empty, it is kept open for a short time for
//! the next grant.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::commits::Commits;
use super::journal::appender::Acknowledged;
use super::journal::outbox::Outbox;
use super::names::{NameError, Names};
use super::translate;
use super::undelivered::Undelivered;
use corona_cluster_pages::QueueCounts;
use corona_cluster_pages::metrics::Metrics;
use corona_engine::Notification;
use corona_model::types::Address;
use corona_net::memory::Memory;
use corona_process::panics::caught;
use corona_web::events::Commits as _;
use corona_wire::calls::SessionDriver;
use corona_wire::client::{CallError, Client, ClientOptions, ConnectError};

/// Sessions that wait to be given up. With more, the conversations of the others wait.
const GIVE_UPS: usize = 64;
/// Look-ups for sessions that were registered before this process started count against this peer.
const UNKNOWN_PEER: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Timeouts, retries and bounds of the notifier.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    /// For a connection, and for an answer. `cm.server.sotimeout`
    pub(super) timeout: Duration,
    /// Pause between attempts towards a session that was never reached.
    pub(super) poll_interval: Duration,
    /// First pause after a failure towards one that was.
    pub(super) retry_start: Duration,
    /// Each pause is this many times the one before.
    pub(super) retry_factor: u32,
    /// The session is given up when this many retries and one more have failed.
    pub(super) retry_max: u32,
    /// Calls of one session that may wait; with more it is given up.
    pub(super) max_queue: usize,
    /// Bytes of an answer.
    pub(super) max_reply_bytes: usize,
    /// How long an idle connection is kept.
    pub(super) linger: Duration,
}

/// How sessions are reached.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    /// Where the addresses of their hosts come from.
    pub(super) names: Arc<Names>,
    /// Where their answers are counted while they arrive.
    pub(super) memory: Arc<Memory>,
}

/// A session that cannot be notified: it is to be ended.
#[derive(Debug)]
pub(super) struct GiveUp {
    /// The session.
    pub(super) handle: Arc<str>,
    conversation: Arc<Signals>,
    answer: oneshot::Sender<GaveUp>,
}

/// The answer to a [`GiveUp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GaveUp {
    /// The session does not run any more.
    Ended,
    /// Sessions cannot be ended in safe mode: the session is to be tried again.
    NotInSafeMode,
}

impl GiveUp {
    /// Notifies the conversation with the session of the outcome.
    pub(super) fn answer(self, answer: GaveUp) {
        // Without the conversation, the answer is not needed.
        let _ = self.answer.send(answer);
    }
}

/// The queues of all sessions with pending notifications.
#[derive(Debug)]
pub(super) struct Notifier {
    queues: Mutex<HashMap<Arc<str>, Queue>>,
    /// Changed only while the queues are locked: no attempt starts once it is true.
    paused: watch::Sender<bool>,
    /// Attempts in flight.
    under_way: watch::Sender<usize>,
    patience: Patience,
    metrics: Arc<Metrics>,
    reach: Reach,
    /// The peers that have registered sessions under the name of a host.
    peers: Mutex<HashMap<Arc<str>, IpAddr>>,
    /// Where sessions are reported that cannot be notified.
    give_ups: mpsc::Sender<GiveUp>,
    recorded: Recorded,
}

/// A notification's place in the journal; both are 0 without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JournalPosition {
    /// The record that must be committed before the notification leaves.
    pub(super) record: u64,
    /// Its serial number.
    pub(super) serial: u64,
}

/// The notifier's side of the journal.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    /// How far records are committed.
    pub(super) commits: Commits,
    /// Takes the acknowledgements of sessions; `None` without a journal.
    pub(super) acknowledged: Option<Arc<Acknowledged>>,
}

impl Recorded {
    /// Without a journal.
    #[cfg(test)]
    pub(super) fn nowhere() -> Recorded {
        Recorded { commits: Commits::everything(), acknowledged: None }
    }
}

/// A pending notification.
#[derive(Debug)]
struct Waiting {
    call: Notification,
    place: JournalPosition,
    /// When it was decided.
    since: Instant,
}

#[derive(Debug)]
struct Queue {
    to: Address,
    calls: VecDeque<Arc<Waiting>>,
    signals: Arc<Signals>,
    task: AbortHandle,
}

impl Queue {
    /// Whether this is the queue of the conversation with these signals. A conversation that was
    /// aborted runs up to its next await, and its session may have started again by then.
    fn belongs_to(&self, conversation: &Arc<Signals>) -> bool {
        Arc::ptr_eq(&self.signals, conversation)
    }
}

/// The signals from a queue to its task. Each conversation has its own, which identify it.
#[derive(Debug, Default)]
struct Signals {
    /// There is a call.
    arrived: Notify,
    /// There are more calls than may wait.
    overflow: Notify,
}

/// The task of a session that has a call to deliver, to be woken.
#[derive(Debug)]
#[must_use = "the call is delivered when the task is woken"]
pub(super) struct Wake(Arc<Signals>);

impl Wake {
    /// Wakes the task.
    pub(super) fn now(self) {
        self.0.arrived.notify_one();
    }
}

impl Notifier {
    /// The receiver yields sessions that must be ended because they cannot be notified. While it is
    /// not read, their conversations wait.
    pub(super) fn new(
        patience: Patience,
        metrics: Arc<Metrics>,
        reach: Reach,
        recorded: Recorded,
    ) -> (Arc<Notifier>, mpsc::Receiver<GiveUp>) {
        let (give_ups, received) = mpsc::channel(GIVE_UPS);
        let notifier = Arc::new(Notifier {
            queues: Mutex::new(HashMap::new()),
            paused: watch::Sender::new(false),
            under_way: watch::Sender::new(0),
            patience,
            metrics,
            reach,
            peers: Mutex::default(),
            give_ups,
            recorded,
        });
        (notifier, received)
    }

    /// Notes on whose behalf a session's host is looked up.
    pub(super) fn note_peer(&self, handle: &Arc<str>, peer: IpAddr) {
        self.peers().insert(handle.clone(), peer);
    }

    /// Forgets the peer of a session that has ended.
    pub(super) fn forget_peer(&self, handle: &Arc<str>) {
        self.peers().remove(handle);
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<Arc<str>, IpAddr>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a call to the session's pending notifications. The returned task delivers it once it is
    /// woken. Needs a tokio runtime.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        handle: &Arc<str>,
        to: Address,
        call: Notification,
        place: JournalPosition,
    ) -> Wake {
        let mut queues = self.queues();
        let queue = queues.entry(handle.clone()).or_insert_with(|| {
            let signals = Arc::new(Signals::default());
            let conversation = Conversation::new(self, handle.clone(), to.clone(), signals.clone());
            let task = tokio::spawn(conversation.run()).abort_handle();
            Queue { to, calls: VecDeque::new(), signals, task }
        });
        queue.calls.push_back(Arc::new(Waiting { call, place, since: Instant::now() }));
        if queue.calls.len() > self.patience.max_queue {
            queue.signals.overflow.notify_one();
        }
        Wake(queue.signals.clone())
    }

    /// Adds the pending notifications of another cluster manager. Needs a tokio runtime.
    pub(super) fn restore(self: &Arc<Self>, outbox: Outbox) {
        for (handle, pending) in outbox.into_sessions() {
            for (serial, call) in pending.calls {
                // Recovered notifications are committed.
                let place = JournalPosition { record: 0, serial };
                self.enqueue(&handle, pending.to.clone(), call, place).now();
            }
        }
    }

    /// Starts no attempt any more until [`Self::resume`].
    pub(super) fn pause(&self) {
        let _queues = self.queues();
        self.paused.send_replace(true);
    }

    /// Resumes after [`Self::pause`].
    pub(super) fn resume(&self) {
        let _queues = self.queues();
        self.paused.send_replace(false);
    }

    /// Waits for the attempts in flight, but at most for `limit`. A call that is still in flight
    /// then may or may not arrive.
    pub(super) async fn settle(&self, limit: Duration) {
        let mut under_way = self.under_way.subscribe();
        if timeout(limit, under_way.wait_for(|count| *count == 0)).await.is_err() {
            let count = *self.under_way.borrow();
            tracing::warn!(
                "{count} sessions did not acknowledge in time; their last notification may be delivered twice"
            );
        }
    }

    /// Pending notifications by session. Complete and final only between [`Self::pause`] with
    /// [`Self::settle`] and [`Self::resume`].
    pub(super) fn snapshot(&self) -> Vec<Undelivered> {
        let queues = self.queues();
        let waiting = queues.iter().filter(|(_, queue)| !queue.calls.is_empty());
        let mut undelivered: Vec<Undelivered> = waiting
            .map(|(handle, queue)| Undelivered {
                handle: handle.clone(),
                to: queue.to.clone(),
                calls: queue.calls.iter().map(|waiting| waiting.call.clone()).collect(),
            })
            .collect();
        undelivered.sort_by(|a, b| a.handle.cmp(&b.handle));
        undelivered
    }

    /// Takes the first call of a session as delivered; returns its serial number.
    #[cfg(test)]
    pub(super) fn deliver_first(&self, handle: &Arc<str>) -> u64 {
        let mut queues = self.queues();
        let delivered = queues.get_mut(handle).and_then(|queue| queue.calls.pop_front());
        delivered.map_or(0, |waiting| waiting.place.serial)
    }

    /// Removes an ended session with its pending notifications.
    pub(super) fn forget(&self, handle: &Arc<str>) {
        self.forget_peer(handle);
        if let Some(queue) = self.queues().remove(handle) {
            queue.task.abort();
            tracing::info!("Close session {handle}");
        }
    }

    /// How much waits, and how it is spread over sessions.
    pub(super) fn counts(&self) -> QueueCounts {
        let queues = self.queues();
        let lengths = queues.values().map(|queue| queue.calls.len());
        QueueCounts {
            calls: lengths.clone().sum(),
            queues: queues.len() as u64,
            longest: lengths.max().unwrap_or(0) as u64,
        }
    }

    /// Whether a session is still that of the conversation which has given it up. If not, it has ended,
    /// and one of the same id that has started since is another one.
    pub(super) fn still_concerns(&self, given_up: &GiveUp) -> bool {
        let queues = self.queues();
        queues.get(&given_up.handle).is_some_and(|queue| queue.belongs_to(&given_up.conversation))
    }

    /// Has a session ended that cannot be notified. Returns false if that is not possible in safe mode:
    /// it is to be tried again.
    async fn give_up(&self, handle: &Arc<str>, own: &Arc<Signals>) -> bool {
        let (answer, answered) = oneshot::channel();
        let give_up = GiveUp { handle: handle.clone(), conversation: own.clone(), answer };
        if !self.still_concerns(&give_up) {
            return true;
        }
        // Without a receiver, the service is about to stop.
        let _ = self.give_ups.send(give_up).await;
        if let Ok(GaveUp::NotInSafeMode) = answered.await {
            tracing::info!("Cluster Manager in Safe Mode");
            sleep(self.patience.poll_interval).await;
            return false;
        }
        // The end of the session has dropped the queue, or there is no such session any more.
        let mut queues = self.queues();
        if queues.get(handle).is_some_and(|queue| queue.belongs_to(own)) {
            queues.remove(handle);
        }
        true
    }

    /// Runs the conversation with a session. After a panic in it the session can no longer be
    /// notified: it is given up, like an unreachable one.
    async fn or_give_up(
        &self,
        handle: &Arc<str>,
        own: &Arc<Signals>,
        talk: impl Future<Output = ()>,
    ) {
        let Err(panic) = caught(talk).await else { return };
        tracing::error!(%panic, "the notification task of session {handle} panicked; ending the session");
        while !self.give_up(handle, own).await {}
    }

    /// The next step of the conversation with these signals.
    fn head(&self, handle: &Arc<str>, own: &Arc<Signals>) -> Head<'_> {
        let queues = self.queues();
        let queue = queues.get(handle).filter(|queue| queue.belongs_to(own));
        match queue.and_then(|queue| queue.calls.front()) {
            None => Head::Empty,
            Some(_) if *self.paused.borrow() => Head::Paused,
            Some(call) if !self.recorded.commits.has(call.place.record) => {
                Head::Uncommitted(call.place.record)
            }
            Some(call) => {
                self.under_way.send_modify(|count| *count += 1);
                Head::Call(call.clone(), UnderWay(self))
            }
        }
    }

    /// Takes the first call out of the queue of the conversation with these signals.
    fn delivered(&self, handle: &Arc<str>, own: &Arc<Signals>) {
        let mut queues = self.queues();
        if let Some(queue) = queues.get_mut(handle).filter(|queue| queue.belongs_to(own)) {
            let delivered = queue.calls.pop_front();
            if let (Some(waiting), Some(acknowledged)) = (delivered, &self.recorded.acknowledged) {
                acknowledged.note(handle, waiting.place.serial);
            }
        }
    }

    /// Ends the conversation with these signals unless calls wait for it. Returns whether it has ended.
    fn retire(&self, handle: &Arc<str>, own: &Arc<Signals>) -> bool {
        let mut queues = self.queues();
        let Some(queue) = queues.get(handle).filter(|queue| queue.belongs_to(own)) else {
            return true;
        };
        let empty = queue.calls.is_empty();
        if empty {
            queues.remove(handle);
        }
        empty
    }

    /// No panic happens while the lock is held; the queues are whole whatever happened elsewhere.
    fn queues(&self) -> MutexGuard<'_, HashMap<Arc<str>, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next step for a session.
enum Head<'a> {
    Empty,
    /// Something, but not now.
    Paused,
    /// Something, once this record is committed.
    Uncommitted(u64),
    /// The first call. An attempt has begun.
    Call(Arc<Waiting>, UnderWay<'a>),
}

/// An attempt, until it is dropped.
struct UnderWay<'a>(&'a Notifier);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}

/// The talk with one session.
struct Conversation {
    notifier: Arc<Notifier>,
    handle: Arc<str>,
    to: Address,
    signals: Arc<Signals>,
    connection: Option<Client<SessionDriver>>,
    /// Failures in a row.
    retries: u32,
    /// Pause after the next failure; zero until the session was reached once.
    pause: Duration,
}

impl Conversation {
    fn new(
        notifier: &Arc<Notifier>,
        handle: Arc<str>,
        to: Address,
        signals: Arc<Signals>,
    ) -> Conversation {
        let pause = Duration::ZERO;
        let notifier = notifier.clone();
        Conversation { notifier, handle, to, signals, connection: None, retries: 0, pause }
    }

    /// Delivers notifications until the queue is empty.
    async fn run(self) {
        let (notifier, handle) = (self.notifier.clone(), self.handle.clone());
        let own = self.signals.clone();
        notifier.or_give_up(&handle, &own, self.talk()).await;
    }

    async fn talk(mut self) {
        let signals = self.signals.clone();
        loop {
            // A session that hangs must not keep its queue from being seen to overflow.
            let ended = tokio::select! {
                biased;
                () = signals.overflow.notified() => {
                    let max_queue = self.notifier.patience.max_queue;
                    tracing::warn!("Session {} has more than {max_queue} calls waiting", self.handle);
                    self.give_up().await
                }
                ended = self.attend() => ended,
            };
            if ended {
                return;
            }
        }
    }

    /// One attempt to deliver the oldest call, or a wait for one. Returns whether all is over.
    async fn attend(&mut self) -> bool {
        let notifier = self.notifier.clone();
        let (call, under_way) = match notifier.head(&self.handle, &self.signals) {
            Head::Call(call, under_way) => (call, under_way),
            Head::Empty => return !self.wait_for_a_call().await,
            Head::Paused => {
                // The sender lives as long as the notifier, which is held here.
                let _ = notifier.paused.subscribe().wait_for(|paused| !*paused).await;
                return false;
            }
            Head::Uncommitted(record) => {
                notifier.recorded.commits.wait_for(record).await;
                return false;
            }
        };
        let delivered = self.deliver(&call.call).await;
        if delivered.is_ok() {
            self.succeeded(&call);
        }
        drop(under_way);
        match delivered {
            Ok(()) => false,
            Err(failure) => self.failed(&call.call, &failure).await,
        }
    }

    /// Waits with the connection open, then closes it. Returns whether there is a call.
    async fn wait_for_a_call(&mut self) -> bool {
        let arrived = self.signals.arrived.notified();
        if timeout(self.notifier.patience.linger, arrived).await.is_ok() {
            return true;
        }
        self.connection = None;
        !self.notifier.retire(&self.handle, &self.signals)
    }

    /// One attempt. A connection that was kept may have been closed by the session meanwhile: that
    /// counts only if a fresh one fails as well.
    async fn deliver(&mut self, call: &Notification) -> Result<(), Failure> {
        let call = translate::notification(&self.handle, call);
        let commits = &self.notifier.recorded.commits;
        if let Some(mut kept) = self.connection.take() {
            commits.check_lease().await;
            match kept.call(&call).await {
                Ok(_) => {
                    self.connection = Some(kept);
                    return Ok(());
                }
                Err(CallError::Closed | CallError::Io(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let patience = &self.notifier.patience;
        let options = ClientOptions {
            connect_timeout: patience.timeout,
            call_timeout: patience.timeout,
            max_reply_bytes: patience.max_reply_bytes,
            ..ClientOptions::default()
        };
        let port = u16::try_from(self.to.port).map_err(|_| Failure::Port(self.to.port))?;
        let peer = self.notifier.peers().get(&self.handle).copied();
        let Reach { names, memory } = &self.notifier.reach;
        let addresses = names.addresses(&self.to.host, peer.unwrap_or(UNKNOWN_PEER)).await?;
        let addresses: Vec<SocketAddr> =
            addresses.iter().map(|address| (*address, port).into()).collect();
        let mut connection = Client::connect(&addresses[..], options).await?;
        connection.hold_in(memory).map_err(CallError::Io)?;
        self.notifier.recorded.commits.check_lease().await;
        connection.call(&call).await?;
        self.connection = Some(connection);
        Ok(())
    }

    fn succeeded(&mut self, Waiting { call, since, .. }: &Waiting) {
        self.notifier.delivered(&self.handle, &self.signals);
        self.notifier.metrics.count_delivered(call, since.elapsed());
        self.retries = 0;
        self.pause = self.notifier.patience.retry_start;
        let handle = &self.handle;
        match call {
            Notification::Granted(grants) => {
                tracing::debug!("Dispatching grant {handle} {}", grants.len());
            }
            Notification::Revoked(grants) => {
                tracing::debug!("Dispatching revoke {handle} {}", grants.len());
            }
            Notification::DeadNode(_) => tracing::debug!("Dispatching deadnode  {handle}"),
        }
    }

    /// Waits before the next attempt. Returns whether the session was given up.
    async fn failed(&mut self, call: &Notification, failure: &Failure) -> bool {
        self.notifier.metrics.notification_failures.add(1);
        let patience = &self.notifier.patience;
        let (retry_max, poll_interval) = (patience.retry_max, patience.poll_interval);
        let retry_factor = patience.retry_factor;
        tracing::warn!(
            "Call to session: {} for call: {}, numRetry: {}(retryCountMax={retry_max}) failed: \
             {failure}",
            self.handle,
            translate::java_name(call),
            self.retries,
        );
        if self.retries > retry_max {
            return self.give_up().await;
        }
        self.retries += 1;
        sleep(self.pause.max(poll_interval)).await;
        self.pause = self.pause.saturating_mul(retry_factor);
        false
    }

    async fn give_up(&self) -> bool {
        self.notifier.give_up(&self.handle, &self.signals).await
    }
}

/// Why a call did not get through.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{0} is not a port")]
    Port(i32),
    #[error(transparent)]
    Name(#[from] NameError),
}

#[cfg(test)]
mod tests;
