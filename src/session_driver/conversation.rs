//! The task that talks to the cluster manager for one session: heartbeats and calls, in order, on
//! one connection, again and again until each is answered.
//!
//! Spec: cluster-manager/05 §6, 01 §7.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::driver::{Beginning, Registration, Resumed, SharedDriver, StartError};
use super::events::Ending;
use super::host::{DriverHost, Notification, Registered};
use super::link::{CallFailure, Connector, Link, LinkError, Proxy};
use super::options::{Options, Timers};
use super::outgoing::OutgoingCall;
use super::translate;
use corona_model::types::{ResourceType, SessionStatus};
use corona_wire::calls::{ClusterManagerCall, ClusterManagerReply};
use corona_wire::client::CallError;
use corona_wire::generated::HeartbeatArgs;

/// The talk of one session.
pub(super) struct Conversation {
    shared: Arc<SharedDriver>,
    tell_end: watch::Sender<Option<Arc<Ending>>>,
    ending: watch::Receiver<Option<SessionStatus>>,
    link: Link,
    proxy: Proxy,
    timers: Timers,
    /// Empty until the cluster manager has given one.
    handle: Arc<str>,
    /// Failures in a row.
    failures: u32,
    /// Pause after the next failure; zero until something went through.
    pause: Duration,
    /// No call before this, except a heartbeat.
    next_dispatch: Option<Instant>,
    /// Nothing at all before this.
    next_attempt: Option<Instant>,
    next_heartbeat: Instant,
    /// Whether a call with requests failed in such a way that it may have been carried out. The
    /// cluster manager then expects heartbeats to name these requests, and kills a session that
    /// does not know of them; so no heartbeat goes out before the call has been answered. The call
    /// counts as one. Spec: cluster-manager/02 §3.6.
    in_doubt: bool,
}

impl Conversation {
    pub(super) fn new(
        shared: Arc<SharedDriver>,
        tell_end: watch::Sender<Option<Arc<Ending>>>,
        connector: Connector,
        options: &Options,
    ) -> Conversation {
        let timers = options.timers.clone();
        Conversation {
            ending: shared.ending(),
            shared,
            tell_end,
            link: Link::new(connector.clone(), options.cluster_manager.clone(), &timers),
            proxy: Proxy::new(connector, options.proxy_job_tracker.clone(), &timers),
            timers,
            handle: "".into(),
            failures: 0,
            pause: Duration::ZERO,
            next_dispatch: None,
            next_attempt: None,
            next_heartbeat: Instant::now(),
            in_doubt: false,
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
        let (registration, registered) = match self.open(&host, beginning, incoming).await {
            Ok(opened) => opened,
            Err(error) => {
                let in_doubt = matches!(error, StartError::Failed(CallFailure::Call(_)));
                let _ = tell_start.send(Err(error));
                if in_doubt {
                    self.end_what_may_have_started().await;
                }
                return;
            }
        };
        drop(host);
        let verb = if self.in_doubt { "Resumed" } else { "Started" };
        tracing::info!("{verb} session {}", self.handle);
        // An owner that dropped the start has requested the end.
        let _ = tell_start.send(Ok(registration));
        let overdue = overdue(self.shared.ending(), self.timers.end_timeout);
        let ending = tokio::select! {
            biased;
            ending = self.talk() => ending,
            ending = overdue => ending,
        };
        tracing::info!("Session {}: {ending}", self.handle);
        drop(registered);
        self.tell_end.send_replace(Some(Arc::new(ending)));
    }

    async fn open(
        &mut self,
        host: &DriverHost,
        beginning: Beginning,
        incoming: mpsc::Sender<Notification>,
    ) -> Result<(Registration, Registered), StartError> {
        let mut given_up = self.ending.clone();
        self.handle = match &beginning {
            Beginning::Named(handle) => handle.clone(),
            Beginning::Resumed(resumed) => resumed.handle.clone(),
            Beginning::New => tokio::select! {
                biased;
                _ = given_up.wait_for(Option::is_some) => return Err(StartError::Cancelled),
                handle = id_from(&mut self.link, &self.proxy, &self.timers) => handle?,
            },
        };
        // Grants may come before the answer to the start.
        let registered = host
            .register(&self.handle, incoming)
            .ok_or_else(|| StartError::HandleTaken(self.handle.clone()))?;
        if let Beginning::Resumed(resumed) = beginning {
            // No heartbeat before the call with requests that waits.
            self.in_doubt = true;
            let Resumed { handle, pool, session_log, .. } = *resumed;
            return Ok((Registration { handle, pool, session_log }, registered));
        }
        Ok((self.start_session().await?, registered))
    }

    /// A call in flight is not abandoned, because it may start the session.
    async fn start_session(&mut self) -> Result<Registration, StartError> {
        let info = self.shared.state().info.to_wire();
        let handle = Some(self.handle.to_string());
        let call = ClusterManagerCall::SessionStart { handle, info: Some(info) };
        let data = loop {
            let result = self.link.call(&call).await;
            self.link.close();
            match result {
                Ok(ClusterManagerReply::SessionStart(data)) => break data,
                Ok(_) => return Err(StartError::Failed(CallError::MissingResult.into())),
                Err(LinkError::SafeMode) => {
                    let mut given_up = self.ending.clone();
                    tokio::select! {
                        biased;
                        _ = given_up.wait_for(Option::is_some) => return Err(StartError::Cancelled),
                        waited = wait_in_safe_mode(&self.proxy, &self.timers) => waited?,
                    }
                }
                Err(LinkError::InvalidSession(text)) => return Err(StartError::Refused(text)),
                Err(trouble) => return Err(StartError::Failed(trouble.into_failure())),
            }
        };
        let pool = translate::pool_name(&data.pool_info_strings);
        self.shared.state().info.pool = pool.clone();
        let session_log = data.cluster_manager_info.job_history_location;
        Ok(Registration { handle: self.handle.clone(), pool, session_log })
    }

    /// The start of the session was not answered, so that it may live.
    async fn end_what_may_have_started(&mut self) {
        let end = OutgoingCall::End(SessionStatus::Killed).to_wire(&self.handle);
        let ended = timeout(self.timers.end_timeout, self.link.call(&end)).await;
        tracing::debug!("Session {} may have started and was ended: {ended:?}", self.handle);
    }

    async fn talk(&mut self) -> Ending {
        loop {
            self.wait_for_turn().await;
            if let Some(status) = self.status_to_end_with() {
                return self.take_leave(status).await;
            }
            let now = Instant::now();
            let Err(trouble) = self.turn(now).await else { continue };
            self.next_attempt = Some(later(Instant::now(), self.timers.poll_interval));
            let failure = match trouble {
                LinkError::InvalidSession(text) => {
                    // A session that should end and no longer exists has reached the wanted end.
                    let status = self.status_to_end_with();
                    return status.map_or_else(|| self.refused(text), Ending::Ended);
                }
                LinkError::SafeMode => {
                    tracing::info!("Cluster Manager is in Safe Mode");
                    self.sit_out_safe_mode().await;
                    continue;
                }
                trouble => trouble.into_failure(),
            };
            tracing::warn!(
                "Call to the cluster manager of session {}, numRetry: {} failed: {failure}",
                self.handle,
                self.failures
            );
            self.shared.state().failed_attempts += 1;
            self.sit_out_safe_mode().await;
            let ends = self.status_to_end_with().is_some();
            if self.failures > self.timers.retry_max && !ends {
                return Ending::GaveUp { attempts: self.failures + 1, failure };
            }
            self.failures += 1;
            self.next_dispatch = Some(later(now, self.pause));
            self.pause = self.pause.saturating_mul(self.timers.retry_factor);
        }
    }

    /// Waits until a call is pending and may be sent, or the session is to end.
    async fn wait_for_turn(&mut self) {
        let shared = self.shared.clone();
        loop {
            let now = Instant::now();
            let at = self.next_turn(now);
            if at <= now || self.status_to_end_with().is_some() {
                return;
            }
            tokio::select! {
                biased;
                _ = self.ending.wait_for(Option::is_some) => return,
                () = shared.wake.notified() => {}
                () = sleep_until(at) => return,
            }
        }
    }

    fn next_turn(&self, now: Instant) -> Instant {
        let idle = self.shared.state().queue.len() == 0;
        let heartbeat = self.next_heartbeat;
        let at = match self.next_dispatch {
            _ if idle => heartbeat,
            None => now,
            Some(dispatch) => heartbeat.min(dispatch),
        };
        self.next_attempt.map_or(at, |attempt| at.max(attempt))
    }

    /// A heartbeat if one is due, then the calls that wait.
    async fn turn(&mut self, now: Instant) -> Result<(), LinkError> {
        let heartbeat_due = self.next_heartbeat <= now;
        if heartbeat_due && !self.in_doubt {
            self.heartbeat().await?;
            self.went_through();
            self.next_heartbeat = later(now, self.timers.heartbeat_interval);
        }
        let held_back = self.next_dispatch.is_some_and(|dispatch| now < dispatch);
        if held_back && !heartbeat_due {
            return Ok(());
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
    /// the last grants of a session that was resumed, which are not known here.
    fn progress(&self) -> Option<HeartbeatArgs> {
        let state = self.shared.state();
        let grant_id = state.books.last_grant_id().filter(|_| state.heartbeats_v2)?;
        let usages = ResourceType::ALL
            .into_iter()
            .map(|kind| (translate::resource_type(kind), state.usages[kind].clone()));
        Some(HeartbeatArgs {
            request_id: state.books.last_request_id(),
            grant_id,
            resource_usages: usages.collect(),
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
                Err(trouble) => {
                    let carried_out = matches!(
                        trouble,
                        LinkError::Fault(_) | LinkError::Failed(CallFailure::Call(_))
                    );
                    self.in_doubt |= carried_out && matches!(*call, OutgoingCall::Request(_));
                    return Err(trouble);
                }
            }
            if matches!(*call, OutgoingCall::Request(_)) {
                self.in_doubt = false;
            }
            self.shared.answered(&call);
            self.went_through();
        }
        Ok(())
    }

    fn next_call(&self) -> Option<Arc<OutgoingCall>> {
        self.shared.state().queue.head()
    }

    fn went_through(&mut self) {
        self.failures = 0;
        self.pause = self.timers.retry_start;
        self.next_dispatch = None;
        self.next_attempt = None;
    }

    /// Waits while the cluster manager is down on purpose, but not beyond the end of the session.
    async fn sit_out_safe_mode(&mut self) {
        self.link.close();
        tokio::select! {
            biased;
            _ = self.ending.wait_for(Option::is_some) => {}
            waited = self.proxy.wait_while_in_safe_mode() => if let Err(error) = waited {
                tracing::warn!("Session {}: {error}", self.handle);
            },
        }
    }

    /// One more pass over the calls, the last of which ends the session. The caller limits the
    /// time.
    async fn take_leave(&mut self, status: SessionStatus) -> Ending {
        loop {
            match self.make_calls().await {
                Ok(()) => return Ending::Ended(status),
                // The session no longer exists, which was the aim.
                Err(LinkError::InvalidSession(_)) => return Ending::Ended(status),
                Err(LinkError::SafeMode) => {
                    self.link.close();
                    if !matches!(self.proxy.wait_while_in_safe_mode().await, Ok(true)) {
                        sleep(self.timers.poll_interval).await;
                    }
                }
                Err(trouble) => {
                    return Ending::NotTold { status, failure: trouble.into_failure() };
                }
            }
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
) -> Result<Arc<str>, StartError> {
    let timers = &options.timers;
    let mut link = Link::new(connector.clone(), options.cluster_manager.clone(), timers);
    let proxy = Proxy::new(connector, options.proxy_job_tracker.clone(), timers);
    id_from(&mut link, &proxy, timers).await
}

async fn id_from(link: &mut Link, proxy: &Proxy, timers: &Timers) -> Result<Arc<str>, StartError> {
    let mut failures = 0;
    loop {
        let result = link.call(&ClusterManagerCall::GetNextSessionId).await;
        link.close();
        let failure = match result {
            Ok(ClusterManagerReply::GetNextSessionId(handle)) => return Ok(handle.into()),
            Ok(_) => CallFailure::Call(CallError::MissingResult),
            Err(LinkError::SafeMode) => {
                wait_in_safe_mode(proxy, timers).await?;
                continue;
            }
            Err(trouble) => trouble.into_failure(),
        };
        tracing::warn!("Cannot get a session id from the cluster manager: {failure}");
        if failures > timers.retry_max {
            return Err(StartError::Unreachable { attempts: failures + 1, failure });
        }
        proxy.wait_while_in_safe_mode().await?;
        failures += 1;
    }
}

/// The original asks again at once when the flag is not set. Here that takes a pause.
async fn wait_in_safe_mode(proxy: &Proxy, timers: &Timers) -> Result<(), StartError> {
    if !proxy.wait_while_in_safe_mode().await? {
        sleep(timers.poll_interval).await;
    }
    Ok(())
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
