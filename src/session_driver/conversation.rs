//! The task that talks to the cluster manager for one session: heartbeats and calls, in order, on
//! one connection, again and again until each is answered.
//!
//! Spec: cluster-manager/05 §6, 01 §7.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::contact::Contact;
use super::driver::{Beginning, Registration, SharedDriver, StartError};
use super::events::Ending;
use super::host::{DriverHost, Notification, Registered};
use super::link::{CallFailure, Connector, Link, LinkError, Proxy};
use super::options::{Options, Timers};
use super::outgoing::OutgoingCall;
use super::snapshot::SavedSession;
use super::translate;
use super::types::{ResourceType, SessionStatus};
use corona_net::Backoff;
use corona_wire::calls::{ClusterManagerCall, ClusterManagerReply};
use corona_wire::client::CallError;
use corona_wire::generated::{HeartbeatArgs, Program};

/// While the cluster manager does not answer, that is logged at most this often.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// A call that the session can do without is dropped when the cluster manager has failed to carry it out this
/// often in a row.
const MAX_FAULTS: u32 = 3;

/// The talk of one session.
pub(super) struct Conversation {
    shared: Arc<SharedDriver>,
    tell_end: watch::Sender<Option<Arc<Ending>>>,
    ending: watch::Receiver<Option<SessionStatus>>,
    link: Link,
    proxy: Proxy,
    pace: Pace,
    heartbeat_interval: Duration,
    end_timeout: Duration,
    /// Empty until the cluster manager has given one.
    handle: Arc<str>,
    next_heartbeat: Instant,
    /// Whether a call with requests failed in such a way that it may have been carried out. The
    /// cluster manager then expects heartbeats to name these requests, and kills a session that
    /// does not know of them; so no heartbeat goes out before the call has been answered. The call
    /// counts as one. Spec: cluster-manager/02 §3.6.
    in_doubt: bool,
    /// Whether the cluster manager has answered that call, with an error. Then its heartbeats say nothing of
    /// requests, so that the session does not expire meanwhile.
    is_refused: bool,
    /// How often the first call was answered with an error.
    faults: u32,
    /// The start of the session had no answer, so that it may live.
    may_live: bool,
    /// The end is what is talked about: it does not wait for the pause of what failed before.
    is_leaving: bool,
    logged: Option<Instant>,
    /// The handle, from the start to the end of the talk: also while a failed start is ended, so that
    /// nobody else begins or ends the same session meanwhile.
    registered: Option<Registered>,
}

/// When a call that failed is made again. It is made for as long as it takes: what a session's owner
/// does meanwhile needs no cluster manager.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    first: Duration,
    /// The pauses after failures.
    pauses: Backoff,
    /// No attempt before this.
    next: Option<Instant>,
    start_timeout: Duration,
}

impl Pace {
    pub(super) fn new(timers: &Timers) -> Pace {
        let Timers { poll_interval: first, longest_pause, start_timeout, .. } = *timers;
        let pauses = Backoff::new(first, longest_pause.max(first));
        Pace { first, pauses, next: None, start_timeout }
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.next = Some(later(now, self.pauses.pause()));
    }

    /// It was refused for now.
    fn refused(&mut self, now: Instant) {
        self.next = Some(later(now, self.first));
    }

    pub(super) fn went_through(&mut self) {
        self.pauses.reset();
        self.next = None;
    }

    pub(super) async fn turn(&self) {
        if let Some(next) = self.next {
            sleep_until(next).await;
        }
    }
}

impl Conversation {
    pub(super) fn new(
        shared: Arc<SharedDriver>,
        tell_end: watch::Sender<Option<Arc<Ending>>>,
        connector: Connector,
        options: &Options,
    ) -> Conversation {
        let timers = &options.timers;
        let manager = options.cluster_manager.clone();
        let proxy = options.proxy_job_tracker.clone();
        let contact = &shared.contact;
        Conversation {
            ending: shared.ending(),
            link: Link::new(connector.clone(), manager, timers, contact.clone()),
            proxy: Proxy::new(connector, proxy, timers, contact.clone()),
            pace: Pace::new(timers),
            heartbeat_interval: timers.heartbeat_interval,
            end_timeout: timers.end_timeout,
            shared,
            tell_end,
            handle: "".into(),
            next_heartbeat: Instant::now(),
            in_doubt: false,
            is_refused: false,
            faults: 0,
            may_live: false,
            is_leaving: false,
            logged: None,
            registered: None,
        }
    }

    /// Starts the session, runs it to its end, and reports the end.
    pub(super) async fn run(
        mut self,
        host: DriverHost,
        beginning: Beginning,
        incoming: mpsc::Sender<Notification>,
        tell_start: oneshot::Sender<Result<Registration, StartError>>,
    ) {
        let registration = match self.open(&host, beginning, incoming).await {
            Ok(opened) => opened,
            Err(error) => {
                let _ = tell_start.send(Err(error));
                if self.may_live {
                    self.shared.begin_end(SessionStatus::Killed);
                    let ended = self.talk_to_the_end().await;
                    tracing::debug!("Session {} may have started: {ended}", self.handle);
                }
                return;
            }
        };
        drop(host);
        let abandoned =
            format!("Session {}: the driver panicked; the session is abandoned", self.handle);
        let _logged = LoggedPanic(abandoned);
        self.pace.went_through();
        let verb = if self.in_doubt { "Resumed" } else { "Started" };
        tracing::info!("{verb} session {}", self.handle);
        // An owner that dropped the start has requested the end.
        let _ = tell_start.send(Ok(registration));
        let ending = self.talk_to_the_end().await;
        tracing::info!("Session {}: {ending}", self.handle);
        self.shared.contact.answers();
        self.registered = None;
        self.tell_end.send_replace(Some(Arc::new(ending)));
    }

    async fn talk_to_the_end(&mut self) -> Ending {
        let overdue = overdue(self.shared.ending(), self.end_timeout);
        tokio::select! {
            biased;
            ending = self.talk() => ending,
            ending = overdue => ending,
        }
    }

    async fn open(
        &mut self,
        host: &DriverHost,
        beginning: Beginning,
        incoming: mpsc::Sender<Notification>,
    ) -> Result<Registration, StartError> {
        let mut given_up = self.ending.clone();
        self.handle = match &beginning {
            Beginning::Named(handle) => handle.clone(),
            Beginning::Resumed(resumed) => resumed.handle.clone(),
            Beginning::New => tokio::select! {
                biased;
                _ = given_up.wait_for(Option::is_some) => return Err(StartError::Cancelled),
                handle = id_from(&mut self.link, &self.proxy, self.pace.clone()) => handle?,
            },
        };
        // Grants may come before the answer to the start.
        let registered = host
            .register(&self.handle, incoming)
            .ok_or_else(|| StartError::HandleTaken(self.handle.clone()))?;
        self.registered = Some(registered);
        if let Beginning::Resumed(resumed) = beginning {
            // No heartbeat before the call with requests that waits.
            self.in_doubt = true;
            let SavedSession { handle, pool, session_log, .. } = *resumed;
            return Ok(Registration { handle, pool, session_log });
        }
        self.start_session().await
    }

    /// A call in flight is not abandoned, because it may start the session.
    async fn start_session(&mut self) -> Result<Registration, StartError> {
        let began = Instant::now();
        loop {
            let failure = match self.try_to_start().await {
                Ok(ClusterManagerReply::SessionStart(data)) => {
                    let pool = translate::pool_name(&data.pool_info_strings);
                    self.shared.state().info.pool = pool.clone();
                    let session_log = data.cluster_manager_info.job_history_location;
                    return Ok(Registration { handle: self.handle.clone(), pool, session_log });
                }
                Ok(_) => {
                    return Err(StartError::Failed(CallFailure::from_call(
                        CallError::MissingResult,
                    )));
                }
                Err(LinkError::InvalidSession(text)) => return Err(StartError::Refused(text)),
                Err(trouble) => trouble,
            };
            let waited = began.elapsed();
            let is_paused = matches!(failure, LinkError::SafeMode);
            if !is_paused && waited >= self.pace.start_timeout {
                return Err(StartError::Unreachable { waited, failure: failure.into_failure() });
            }
            self.wait_to_start_again(is_paused).await?;
        }
    }

    /// One attempt. A session that an attempt without an answer may have started is ended first.
    async fn try_to_start(&mut self) -> Result<ClusterManagerReply, LinkError> {
        let handle = Some(self.handle.to_string());
        if self.may_live {
            let end = OutgoingCall::End(SessionStatus::Killed).to_wire(&self.handle);
            let ended = self.link.call(&end).await;
            self.link.close();
            match ended {
                Ok(_) | Err(LinkError::InvalidSession(_)) => self.may_live = false,
                Err(trouble) => return Err(trouble),
            }
        }
        let info = Some(self.shared.state().info.to_wire());
        let result = self.link.call(&ClusterManagerCall::SessionStart { handle, info }).await;
        self.link.close();
        self.may_live =
            matches!(&result, Err(LinkError::Failed(failure)) if failure.may_be_carried_out());
        result
    }

    async fn wait_to_start_again(&mut self, is_paused: bool) -> Result<(), StartError> {
        let now = Instant::now();
        if is_paused {
            self.pace.refused(now)
        } else {
            self.pace.failed(now)
        }
        let mut given_up = self.ending.clone();
        tokio::select! {
            biased;
            _ = given_up.wait_for(Option::is_some) => Err(StartError::Cancelled),
            () = wait_between(&self.proxy, &self.pace) => Ok(()),
        }
    }

    async fn talk(&mut self) -> Ending {
        loop {
            self.wait_for_turn().await;
            // Its call is the last one of the queue.
            let ends = self.status_to_end_with();
            let now = Instant::now();
            let turn = if ends.is_some() { self.make_calls().await } else { self.turn(now).await };
            let failure = match (turn, ends) {
                (Ok(()), Some(status)) => return Ending::Ended(status),
                (Ok(()), None) => continue,
                (Err(LinkError::InvalidSession(text)), _) => {
                    // A session that should end and no longer exists has reached the wanted end.
                    let status = self.status_to_end_with();
                    return status.map_or_else(|| self.refused(text), Ending::Ended);
                }
                (Err(LinkError::SafeMode), _) => {
                    tracing::info!("Cluster Manager is in Safe Mode");
                    self.pace.refused(Instant::now());
                    self.sit_out_safe_mode().await;
                    continue;
                }
                (Err(trouble), _) => trouble.into_failure(),
            };
            self.failed(&failure);
            self.sit_out_safe_mode().await;
        }
    }

    fn failed(&mut self, failure: &CallFailure) {
        self.pace.failed(Instant::now());
        self.shared.state().failed_attempts += 1;
        if self.logged.is_none_or(|logged| logged.elapsed() >= LOG_PAUSE) {
            self.logged = Some(Instant::now());
            tracing::warn!(
                "Call to the cluster manager of session {} failed: {failure}; it is made until it is answered",
                self.handle
            );
        }
    }

    /// Waits until a call is pending and may be sent, or the session is to end.
    async fn wait_for_turn(&mut self) {
        let shared = self.shared.clone();
        loop {
            if !self.is_leaving && self.status_to_end_with().is_some() {
                self.is_leaving = true;
                return;
            }
            let now = Instant::now();
            let at = self.next_turn(now);
            if at <= now {
                return;
            }
            tokio::select! {
                biased;
                _ = self.ending.wait_for(Option::is_some), if !self.is_leaving => {}
                () = shared.wake.notified() => {}
                () = sleep_until(at) => return,
            }
        }
    }

    fn next_turn(&self, now: Instant) -> Instant {
        let is_idle = self.shared.state().queue.len() == 0;
        let at = if is_idle { self.next_heartbeat } else { now };
        self.pace.next.map_or(at, |next| at.max(next))
    }

    /// A heartbeat if one is due, then the calls that wait.
    async fn turn(&mut self, now: Instant) -> Result<(), LinkError> {
        let is_due = self.next_heartbeat <= now;
        if is_due && (!self.in_doubt || self.is_refused) {
            self.heartbeat().await?;
            self.went_through();
        }
        if is_due {
            self.next_heartbeat = later(now, self.heartbeat_interval);
        }
        self.make_calls().await
    }

    async fn heartbeat(&mut self) -> Result<(), LinkError> {
        let handle = Some(self.handle.to_string());
        if let Some(args) = self.progress() {
            let args = Some(args);
            let call = ClusterManagerCall::SessionHeartbeatV2 { handle: handle.clone(), args };
            match self.link.call(&call).await {
                Err(LinkError::Fault(fault)) => {
                    tracing::info!(
                        "heartbeatV2 is not supported by CM for session {}: {fault}",
                        self.handle
                    );
                    self.shared.state().heartbeats_v2 = false;
                }
                result => return result.map(drop),
            }
        }
        self.link.call(&ClusterManagerCall::SessionHeartbeat { handle }).await.map(drop)
    }

    /// The contents of a heartbeat; nothing if the cluster manager takes none, or would compare them with
    /// the last grants of a session that was resumed, which are not known here, or with requests in doubt.
    fn progress(&self) -> Option<HeartbeatArgs> {
        if self.in_doubt {
            return None;
        }
        let state = self.shared.state();
        let grant_id = state.books.last_grant_id().filter(|_| state.heartbeats_v2)?;
        let usages = ResourceType::ALL
            .into_iter()
            .map(|kind| (translate::resource_type(kind), state.usages[kind].clone()));
        Some(HeartbeatArgs {
            request_id: state.books.last_request_id(),
            grant_id,
            resource_usages: usages.collect(),
            program: self
                .shared
                .program
                .as_ref()
                .map(|program| Program::new(program.version.clone(), program.started_ms, None)),
        })
    }

    async fn make_calls(&mut self) -> Result<(), LinkError> {
        while let Some(call) = self.next_call() {
            let result = self.link.call(&call.to_wire(&self.handle)).await;
            match result {
                Ok(_) => {}
                Err(LinkError::InvalidSession(text)) if call.is_end() => {
                    tracing::warn!("sessionEnd: no such session: {text}");
                }
                Err(LinkError::Fault(fault)) if self.may_drop(&call) => {
                    tracing::warn!(
                        "the cluster manager cannot carry out a call of session {}, which goes on without it: {fault}",
                        self.handle
                    );
                }
                Err(trouble) => {
                    if matches!(trouble, LinkError::Fault(_)) {
                        self.is_refused |= matches!(*call, OutgoingCall::Request(_));
                        self.pass(&call);
                    }
                    let may_be_carried_out = match &trouble {
                        LinkError::Fault(_) => true,
                        LinkError::Failed(failure) => failure.may_be_carried_out(),
                        _ => false,
                    };
                    self.in_doubt |=
                        may_be_carried_out && matches!(*call, OutgoingCall::Request(_));
                    return Err(trouble);
                }
            }
            if matches!(*call, OutgoingCall::Request(_)) {
                (self.in_doubt, self.is_refused) = (false, false);
            }
            self.faults = 0;
            self.shared.answered(&call);
            self.went_through();
        }
        Ok(())
    }

    /// Whether a call that was answered with an error is dropped.
    fn may_drop(&mut self, call: &OutgoingCall) -> bool {
        self.faults += 1;
        call.is_dispensable() && self.faults >= MAX_FAULTS
    }

    /// Lets others pass a call that was answered with an error and that the session cannot do without.
    fn pass(&mut self, call: &Arc<OutgoingCall>) {
        if !call.is_dispensable() {
            self.faults = 0;
            self.shared.postpone(call);
        }
    }

    fn next_call(&self) -> Option<Arc<OutgoingCall>> {
        self.shared.state().queue.head()
    }

    fn went_through(&mut self) {
        self.pace.went_through();
        if self.logged.take().is_some() {
            tracing::info!("The cluster manager of session {} answers again", self.handle);
        }
    }

    /// Waits while the cluster manager is down on purpose, but not beyond the end of the session.
    async fn sit_out_safe_mode(&mut self) {
        self.link.close();
        tokio::select! {
            biased;
            _ = self.ending.wait_for(Option::is_some), if !self.is_leaving => {}
            _ = self.proxy.wait_while_in_safe_mode() => {}
        }
    }

    /// The original's cluster manager replies with the handle when it has no such session, and with
    /// a sentence when it refuses the call.
    fn refused(&self, text: String) -> Ending {
        if text == *self.handle {
            Ending::Gone { handle: self.handle.clone() }
        } else {
            Ending::Refused(text)
        }
    }

    fn status_to_end_with(&self) -> Option<SessionStatus> {
        *self.ending.borrow()
    }
}

/// An id for a session that is started later.
pub(super) async fn next_session_id(
    connector: Connector,
    options: &Options,
    contact: &Contact,
) -> Result<Arc<str>, StartError> {
    let Options { timers, cluster_manager, proxy_job_tracker, .. } = options;
    let mut link = Link::new(connector.clone(), cluster_manager.clone(), timers, contact.clone());
    let proxy = Proxy::new(connector, proxy_job_tracker.clone(), timers, contact.clone());
    id_from(&mut link, &proxy, Pace::new(timers)).await
}

async fn id_from(link: &mut Link, proxy: &Proxy, mut pace: Pace) -> Result<Arc<str>, StartError> {
    let began = Instant::now();
    loop {
        let result = link.call(&ClusterManagerCall::GetNextSessionId).await;
        link.close();
        match result {
            Ok(ClusterManagerReply::GetNextSessionId(handle)) => return Ok(handle.into()),
            Err(LinkError::SafeMode) => pace.refused(Instant::now()),
            other => {
                let failure = match other {
                    Ok(_) => CallFailure::from_call(CallError::MissingResult),
                    Err(trouble) => trouble.into_failure(),
                };
                tracing::debug!("Cannot get a session id from the cluster manager: {failure}");
                let waited = began.elapsed();
                if waited >= pace.start_timeout {
                    return Err(StartError::Unreachable { waited, failure });
                }
                pace.failed(Instant::now());
            }
        }
        wait_between(proxy, &pace).await;
    }
}

/// The pause between two attempts, and the end of safe mode. The original asks again at once when
/// the flag is not set.
async fn wait_between(proxy: &Proxy, pace: &Pace) {
    if !proxy.wait_while_in_safe_mode().await {
        pace.turn().await;
    }
}

/// The line to log if the task that holds it panics.
pub(super) struct LoggedPanic(pub(super) String);

impl Drop for LoggedPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("{}", self.0);
        }
    }
}

/// Waits until the session should have ended since long.
async fn overdue(
    mut ending: watch::Receiver<Option<SessionStatus>>,
    end_timeout: Duration,
) -> Ending {
    let status = ending.wait_for(Option::is_some).await.map_or(None, |status| *status);
    sleep(end_timeout).await;
    let status = status.unwrap_or(SessionStatus::Killed);
    Ending::NotTold { status, failure: CallFailure::TooLate(end_timeout) }
}

/// `span` after `at`, or in the far future.
fn later(at: Instant, span: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365);
    at.checked_add(span).unwrap_or(at + FAR)
}
