//! A shadow run as a pure state machine: events and times in, findings out.
//!
//! It knows no socket, file, clock or thread. It requests outside information ([`Stepper::wants`]),
//! and continues when the next event brings it. Time counts from the start of the run and never
//! goes back. Deadlines between two events are met at their own times, however late the second
//! event is processed, so that the findings depend on the times of events, and not on the speed of
//! the machine.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::answers::is_safe_mode;
use super::comparison::{Comparison, UNFOLLOWED};
use super::connections::{Answered, GAP, OurAnswer, PendingCall, WatchedConnections};
use super::event::{Configuration, Event, Learnt, Want};
use super::ids::{Id, Ids};
use super::oracle::Oracle;
use super::stats::Stats;
use super::times::Asked;
use super::{ShadowError, ShadowOptions};
use crate::answers::show;
use crate::capture::{ConnectionId, Side};
use crate::conversation::Offered;
use crate::recording::{Record, Unrecorded};
use crate::report::Finding;
use crate::report::times::{Times, Tolerance};
use corona_cluster_manager::Found;
use corona_model::types::Millis;
use corona_wire::calls::{ClusterManager, ClusterManagerCall as Call, SessionDriver};
use corona_wire::value::{Message, RawMessage, Value};

/// How often decisions that wait are looked through.
const SWEEP: Duration = Duration::from_millis(100);
/// How long a closed connection may precede the other signs that the primary has stopped.
const GONE: Duration = Duration::from_secs(10);
/// Closed connections that may wait for that.
const MAX_CLOSED: usize = 10_000;
/// How often the primary is asked for its sessions, while some are not followed.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// The time without a gap before the shadow restarts. Traffic until then is skipped, so that the
/// backlog is cleared soon, and the primary is not queried again and again.
const CALM: Duration = Duration::from_secs(1);

const RESTARTED: &str = "calls in flight when the shadow resynchronised";
const TOO_LONG: &str = "connections with more than could be kept of a message";

/// The state of a shadow.
#[derive(Debug)]
pub struct Stepper {
    connections: WatchedConnections,
    comparison: Comparison,
    /// When the run began, for the engine's clock.
    epoch: Millis,
    configuration: Configuration,
    /// The question that the next event must answer.
    want: Option<Want>,
    /// Work that waits for the answer to a question, in order.
    waiting: VecDeque<(Duration, Work)>,
    restart: Option<Restart>,
    left_out: Unrecorded,
    /// Traffic that was left out since the last start. Nothing is compared while this is not empty.
    missing: Option<Missing>,
    /// Calls on which the primary has closed the connection, and when.
    closed: VecDeque<(Duration, PendingCall)>,
    /// Whether the primary refused the last connection.
    primary_is_gone: bool,
    swept_at: Duration,
    asked_at: Duration,
}

/// Something to do.
#[derive(Debug)]
enum Work {
    Event(Event),
    Message(ConnectionId, Side, RawMessage),
    /// A call, with the result of its look-up.
    Call(ConnectionId, SocketAddr, RawMessage, Found),
    Compare(PendingCall, Message),
}

/// A restart in progress.
#[derive(Debug)]
struct Restart {
    why: String,
    /// Whether safe mode is on from the beginning.
    safe_mode: bool,
    /// Whether ids may be handed out again.
    forget_ids: bool,
}

/// A part of the traffic was left out, since the shadow was too slow.
#[derive(Clone, Copy, Debug)]
struct Missing {
    /// How much had been left out by the last start.
    before: Unrecorded,
    last_at: Duration,
}

impl Stepper {
    /// A run that begins at this time. The primary's sessions are wanted first.
    ///
    /// # Errors
    /// The time cannot be put into session ids.
    pub fn new(
        configuration: Configuration,
        options: &ShadowOptions,
        epoch: Millis,
    ) -> Result<Stepper, ShadowError> {
        let oracle = Oracle::start(&configuration, epoch, Duration::ZERO)?;
        let mut stats = Stats::new(&options.primary);
        stats.began_ms = epoch.0.max(0).unsigned_abs();
        let expiry_ms = u64::try_from(oracle.engine().settings().node_expiry_ms).unwrap_or(0);
        let early_expiry = Duration::from_millis(expiry_ms / 2);
        stats.times = Times::new(Tolerance { time: options.time_tolerance, early_expiry });
        Ok(Stepper {
            connections: WatchedConnections::default(),
            comparison: Comparison::new(oracle, stats, options.patience),
            epoch,
            configuration,
            want: Some(Want::Sessions),
            waiting: VecDeque::new(),
            restart: None,
            left_out: Unrecorded::default(),
            missing: None,
            closed: VecDeque::new(),
            primary_is_gone: false,
            swept_at: Duration::ZERO,
            asked_at: Duration::ZERO,
        })
    }

    /// Something happens at this time. Returns the differences that show by it.
    pub fn step(&mut self, now: Duration, event: Event) -> Vec<Finding> {
        let now = now.max(self.comparison.now);
        if let Err(event) = self.brings_wanted(event) {
            self.waiting.push_back((now, Work::Event(event)));
        }
        while self.want.is_none()
            && let Some((at, work)) = self.waiting.pop_front()
        {
            if !self.advance(at) {
                self.waiting.push_front((at, work));
                break;
            }
            self.work(work);
        }
        let Comparison { books, stats, unfollowed, now, .. } = &mut self.comparison;
        (stats.sessions, stats.unfollowed) = (books.sessions.len(), unfollowed.len());
        (stats.waiting, stats.ran_for) = (books.waiting(), *now);
        stats.take_new()
    }

    /// The question that the next event must answer.
    pub fn wants(&self) -> Option<&Want> {
        self.want.as_ref()
    }

    /// When something is due, if no event comes before.
    pub fn due(&self) -> Duration {
        self.next_due().unwrap_or(Duration::MAX)
    }

    /// The results so far.
    pub fn stats(&self) -> &Stats {
        &self.comparison.stats
    }

    fn next_due(&self) -> Option<Duration> {
        let wakes_at = self.comparison.oracle.wakes_at().filter(|_| self.missing.is_none());
        let is_idle = self.closed.is_empty() && self.comparison.is_idle();
        let sweep = (!is_idle).then(|| self.swept_at + SWEEP);
        wakes_at.into_iter().chain(sweep).min()
    }

    /// Lets time pass, and does the work that becomes due meanwhile. Returns false if a look-up is
    /// needed before.
    fn advance(&mut self, to: Duration) -> bool {
        while let Some(due) = self.next_due().filter(|due| *due <= to) {
            self.comparison.now = self.comparison.now.max(due);
            if self.comparison.oracle.wakes_at().is_some_and(|at| at <= due)
                && self.missing.is_none()
            {
                self.comparison.decide(false);
            }
            if self.comparison.now >= self.swept_at + SWEEP {
                self.sweep();
            }
            if self.want.is_some() {
                return false;
            }
        }
        self.comparison.now = self.comparison.now.max(to);
        true
    }

    fn sweep(&mut self) {
        self.swept_at = self.comparison.now;
        self.judge_closed(false);
        if self.missing.is_some() {
            return;
        }
        self.comparison.sweep();
        let asks_again = self.comparison.now >= self.asked_at + ASK_AGAIN;
        if asks_again && !self.comparison.unfollowed.is_empty() {
            self.want = Some(Want::Sessions);
        }
    }

    /// Takes an event that brings a requested result.
    fn brings_wanted(&mut self, event: Event) -> Result<(), Event> {
        match (self.want.take(), event) {
            (Some(Want::Sessions), Event::Learnt(Learnt::Sessions(sessions))) => {
                self.sessions_listed(sessions);
            }
            (Some(Want::Configuration), Event::Learnt(Learnt::Configuration(read))) => {
                self.configured(read);
            }
            (Some(Want::Lookup(lookup)), Event::Learnt(Learnt::Found(found))) => {
                match self.waiting.pop_front() {
                    Some((at, Work::Message(connection, Side::Client, message))) => {
                        let client = self.connections.get(connection).map(|it| it.client);
                        if let Some(client) = client {
                            let work = Work::Call(connection, client, message, found);
                            self.waiting.push_front((at, work));
                        }
                    }
                    Some(other) => self.waiting.push_front(other),
                    None => tracing::error!(
                        "got the result of a lookup that no call waits for, ignoring it: {lookup:?}"
                    ),
                }
            }
            (_, Event::Learnt(Learnt::Panicked(panic))) => self.panicked(&panic),
            (want, event) => {
                self.want = want;
                return Err(event);
            }
        }
        Ok(())
    }

    fn work(&mut self, work: Work) {
        match work {
            Work::Event(Event::Passed(connection, record)) => self.passed(connection, record),
            Work::Event(Event::Learnt(learnt)) => self.learnt(learnt),
            Work::Message(connection, from, message) => self.message(connection, from, message),
            Work::Call(connection, client, message, found) => {
                self.called(connection, client, message, Some(found));
            }
            Work::Compare(call, theirs) => self.comparison.compare(call, theirs),
        }
    }

    /// Puts work before everything else that waits.
    fn first(&mut self, work: Work) {
        self.waiting.push_front((self.comparison.now, work));
    }

    fn learnt(&mut self, learnt: Learnt) {
        match learnt {
            Learnt::Idle => self.catch_up(),
            Learnt::LeftOut(left_out) => self.note_left_out(left_out),
            Learnt::Settings(settings) => {
                self.comparison.oracle.change_settings(self.comparison.now, settings);
            }
            Learnt::End => self.end(),
            Learnt::Panicked(panic) => self.panicked(&panic),
            // No client has asked for it.
            Learnt::Sessions(_) | Learnt::Configuration(_) | Learnt::Found(_) => {}
        }
    }

    fn passed(&mut self, id: ConnectionId, record: Record) {
        match record {
            Record::Opened { opening, service: Some(service) } => {
                self.connections.opened(id, &opening, service);
            }
            Record::Accepted => {
                let Some(connection) = self.connections.get(id) else { return };
                connection.accepted = true;
                if connection.service == Offered::ClusterManager && self.primary_is_gone {
                    self.primary_is_gone = false;
                    // It may have been given another configuration meanwhile.
                    self.restart("the primary is there again", false);
                }
            }
            Record::Data(from, _) if self.missing.is_some() => self.lose(id, from),
            Record::Data(from, data) => {
                let (messages, is_given_up) = self.connections.data(id, from, &data);
                if is_given_up {
                    self.comparison.stats.not_compared(TOO_LONG);
                }
                for message in messages.into_iter().rev() {
                    self.first(Work::Message(id, from, message));
                }
            }
            Record::Gap(from, ..) => self.lose(id, from),
            Record::End(Side::Client) | Record::Reset(Side::Client) => {
                if let Some(connection) = self.connections.get(id) {
                    connection.client_has_ended = true;
                }
            }
            Record::End(Side::Server) | Record::Reset(Side::Server) => {
                if let Some(call) = self.connections.server_ended(id) {
                    self.closed.push_back((self.comparison.now, call));
                }
            }
            Record::Closed => self.connection_closed(id),
            Record::Opened { service: None, .. } | Record::Finished(_) | Record::Note { .. } => {}
        }
    }

    fn message(&mut self, id: ConnectionId, from: Side, message: RawMessage) {
        let Some(connection) = self.connections.get(id) else { return };
        match (connection.service, from) {
            (Offered::ClusterManager, Side::Client) => {
                let client = connection.client;
                self.called(id, client, message, None);
            }
            (Offered::ClusterManager, Side::Server) => self.answered(id, &message),
            (Offered::SessionDriver, Side::Client) => {
                if let Ok(call) = message.call::<SessionDriver>() {
                    let handle = self.comparison.notified(call);
                    if let Some(connection) = self.connections.get(id) {
                        connection.notified.push_back(handle.to_string());
                    }
                }
                self.comparison.decide(false);
            }
            (Offered::SessionDriver, Side::Server) => {
                let handle = connection.notified.pop_front();
                self.comparison.notifications_end(&handle);
            }
            (Offered::ProxyJobTracker, _) => {}
        }
    }

    /// Some of the bytes of one side of a connection were missed.
    fn lose(&mut self, id: ConnectionId, from: Side) {
        let notified = self.connections.lose(id, from);
        self.comparison.notifications_end(&notified);
    }

    /// A client calls the primary.
    fn called(
        &mut self,
        id: ConnectionId,
        client: SocketAddr,
        message: RawMessage,
        found: Option<Found>,
    ) {
        if message.kind.is_answer() {
            return;
        }
        let mut handle = None;
        let (ours, mut changes) = match message.call::<ClusterManager>() {
            Ok(call) => {
                handle = handle_of(&call).map(Arc::<str>::from);
                let requests = requests_of(&call);
                match self.answer(client, &message, handle.as_ref(), call, found) {
                    Some(ours) => {
                        if let Some(handle) = &handle {
                            self.comparison.asks(handle, &requests);
                        }
                        (ours, changes(&message.name))
                    }
                    None => return self.first(Work::Message(id, Side::Client, message)),
                }
            }
            // How a broken call is refused is the wire's business, and has its own tests.
            Err(_) => (OurAnswer::NotCompared("calls that break the contract"), false),
        };
        let now = self.comparison.now;
        changes |= self.comparison.decide(ends_session(&message.name));
        if message.name == "sessionStart"
            && let Some(handle) = &handle
            && !self.comparison.oracle.engine().has_session(handle)
        {
            self.comparison.books.sessions.remove(handle);
        }
        let call = PendingCall { call: message, handle, ours, changes, at: now };
        if self.connections.called(id, call) {
            self.comparison.crossed_at = Some(now);
        }
    }

    /// Our answer to a call; none if something is wanted for it.
    fn answer(
        &mut self,
        client: SocketAddr,
        message: &RawMessage,
        handle: Option<&Arc<str>>,
        call: Call,
        found: Option<Found>,
    ) -> Option<OurAnswer> {
        match &call {
            // Known when the primary has answered.
            Call::GetNextSessionId => return Some(OurAnswer::NotCompared("")),
            Call::SessionStart { handle: Some(handle), info } => {
                self.comparison.ids.seen(handle);
                self.comparison.take_identity();
                self.comparison.unfollowed.remove(handle.as_str());
                let port = info.as_ref().map_or(0, |info| info.address.port);
                self.comparison.expect_session(handle, port);
            }
            Call::ReleaseResource { handle: Some(handle), ids: Some(ids) } => {
                self.comparison.releases(handle, ids);
            }
            _ => {}
        }
        if let Some(handle) = handle
            && self.comparison.unfollowed.contains(handle)
        {
            self.comparison.is_not_followed(handle);
            return Some(OurAnswer::NotCompared(UNFOLLOWED));
        }
        let Comparison { oracle, now, .. } = &mut self.comparison;
        match oracle.call(*now, client, message, call, found) {
            Ok(answer) => Some(answer),
            Err(lookup) => {
                self.want = Some(Want::Lookup(lookup));
                None
            }
        }
    }

    /// The primary answers a call.
    fn answered(&mut self, id: ConnectionId, answer: &RawMessage) {
        let Some(answered) = self.connections.answered(id, answer) else { return };
        let Answered { call, missed, is_certain } = answered;
        let now = self.comparison.now;
        let Some(call) = call else {
            // Of a call that was not understood, or not seen, the answer means nothing.
            if is_certain {
                let theirs = show(&answer.decode());
                self.comparison.stats.run_differs(now, "an answer", &theirs, "there was no call");
            }
            return;
        };
        for missed in missed {
            self.comparison.not_compared(&missed.call.name, GAP);
        }
        if let (true, Some(handle)) = (call.call.name == "releaseResource", &call.handle) {
            self.comparison.release_answered(handle, call.at);
        }
        // Most answers are the same to the last byte, and need not be decoded.
        if let OurAnswer::Message(ours) = &call.ours
            && (ours.is_reply || (call.call.name != "sessionStart" && !ours.is_safe_mode))
            && ours.message.has_bytes_of(answer)
        {
            self.comparison.stats.call(&call.call.name).equal += 1;
            return;
        }
        let theirs = answer.decode();
        let is_id = call.call.name == "getNextSessionId";
        let id = theirs.body.as_ref().ok().and_then(|body| body.field("success")).filter(|_| is_id);
        if let Some(Value::String(id)) = id {
            return self.id_answered(&theirs, id);
        }
        self.follow_safe_mode(&call, &theirs);
        if !is_id {
            // If the shadow restarts, this comes afterwards.
            self.first(Work::Compare(call, theirs));
        }
    }

    fn id_answered(&mut self, theirs: &Message, id: &str) {
        match self.comparison.ids.handed_out(id) {
            Id::New => self.comparison.stats.call("getNextSessionId").equal += 1,
            Id::OtherStart => {
                self.comparison.ids = Ids::default();
                self.comparison.ids.handed_out(id);
                self.restart("the primary was started again", false);
            }
            Id::Again => self.comparison.id_differs(theirs, "an id that was not handed out before"),
            Id::Strange => self.comparison.id_differs(theirs, "an id: its start and a number"),
        }
        self.comparison.take_identity();
    }

    /// Follows the primary's safe mode, which may have been set without a call that passes the relay.
    fn follow_safe_mode(&mut self, call: &PendingCall, theirs: &Message) {
        let succeeded = || {
            let body = theirs.body.as_ref().ok();
            body.and_then(|body| body.field("success")) == Some(&Value::Bool(true))
        };
        let is_call = call.call.name == "setSafeMode";
        let wanted = match is_call.then(|| call.call.call::<ClusterManager>()) {
            Some(Ok(Call::SetSafeMode { safe_mode })) => Some(safe_mode),
            _ => None,
        };
        let on = match wanted {
            Some(false) => Some(false),
            Some(true) if succeeded() => Some(true),
            _ if is_safe_mode(theirs) => Some(true),
            _ => None,
        };
        let Comparison { oracle, now, .. } = &mut self.comparison;
        match (on, oracle.engine().safe_mode()) {
            (Some(true), false) if !is_call => self.restart("the primary is in safe mode", true),
            (Some(on), is_on) if on != is_on => oracle.set_safe_mode(*now, on),
            (None, true) if matches!(&call.ours, OurAnswer::Message(ours) if ours.is_safe_mode) => {
                oracle.set_safe_mode(*now, false);
                self.restart("the primary is no longer in safe mode", false);
            }
            _ => {}
        }
    }

    /// Judges calls whose connections were closed, unless the primary may turn out to have stopped
    /// altogether.
    fn judge_closed(&mut self, all: bool) {
        while let Some((at, _)) = self.closed.front() {
            let is_recent = self.comparison.now.saturating_sub(*at) < GONE;
            if !all && is_recent && self.closed.len() <= MAX_CLOSED {
                return;
            }
            if let Some((_, call)) = self.closed.pop_front() {
                self.comparison.compare_close(&call);
            }
        }
    }

    /// A connection is closed on both sides.
    fn connection_closed(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.closed(id) else { return };
        match connection.service {
            Offered::SessionDriver => self.comparison.driver_closed(&connection),
            Offered::ClusterManager if !connection.accepted && !self.primary_is_gone => {
                self.primary_is_gone = true;
                self.restart("the primary could not be reached", false);
                // Started again within the same minute it hands out the same ids again.
                if let Some(restart) = &mut self.restart {
                    restart.forget_ids = true;
                }
            }
            Offered::ClusterManager | Offered::ProxyJobTracker => {}
        }
    }

    fn note_left_out(&mut self, left_out: Unrecorded) {
        if left_out != self.left_out {
            let before = self.missing.map_or(self.left_out, |missing| missing.before);
            self.missing = Some(Missing { before, last_at: self.comparison.now });
            self.left_out = left_out;
        }
    }

    /// Restarts if something was missed and nothing is missed any more.
    fn catch_up(&mut self) {
        let now = self.comparison.now;
        if self.missing.is_some_and(|missing| now.saturating_sub(missing.last_at) >= CALM)
            && let Some(why) = self.missed()
        {
            self.restart(&why, false);
        }
    }

    /// The traffic that was missed until now, as a sentence; none if there was none.
    fn missed(&mut self) -> Option<String> {
        let (now, before) = (self.left_out, self.missing.take()?.before);
        let bytes = now.bytes.saturating_sub(before.bytes);
        let connections = now.connections.saturating_sub(before.connections);
        let what = match connections {
            0 => format!("{bytes} bytes"),
            _ => format!("{bytes} bytes and {connections} connections"),
        };
        Some(format!("it was too slow, and missed {what}"))
    }

    /// Forgets everything and starts a new cluster manager, as soon as the configuration and the primary's
    /// sessions are known. Sessions that run now are not followed.
    fn restart(&mut self, why: &str, safe_mode: bool) {
        tracing::warn!("the shadow resynchronises: {why}");
        self.restart = Some(Restart { why: why.to_owned(), safe_mode, forget_ids: false });
        // The primary may have been started with another configuration.
        self.want = Some(Want::Configuration);
    }

    fn configured(&mut self, read: Result<Box<Configuration>, String>) {
        let Some(restart) = &self.restart else { return };
        match read {
            Ok(configuration) => self.configuration = *configuration,
            Err(error) => {
                tracing::error!("cannot read the configuration, keeping the previous one: {error}");
            }
        }
        let now = self.comparison.now;
        let mut oracle = match Oracle::start(&self.configuration, self.epoch, now) {
            Ok(oracle) => oracle,
            Err(error) => {
                tracing::error!("the shadow cannot resynchronise: {error}");
                self.restart = None;
                return;
            }
        };
        if restart.safe_mode {
            oracle.set_safe_mode(now, true);
        }
        self.comparison.stats.restarted(now, restart.why.clone());
        self.comparison.restart(oracle);
        self.connections.forget_calls(RESTARTED);
        for (_, call) in std::mem::take(&mut self.closed) {
            self.comparison.not_compared(&call.call.name, RESTARTED);
        }
        for put_off in std::mem::take(&mut self.comparison.put_off) {
            self.comparison.not_compared(&put_off.call.call.name, RESTARTED);
        }
        self.want = Some(Want::Sessions);
    }

    fn sessions_listed(&mut self, sessions: Result<Vec<String>, String>) {
        self.comparison.primary_listed = sessions.is_ok();
        self.asked_at = self.comparison.now;
        if let Ok(sessions) = sessions {
            self.comparison.unfollowed.clear();
            for handle in sessions {
                if !self.comparison.books.sessions.contains_key(handle.as_str()) {
                    self.comparison.is_not_followed(&handle);
                }
            }
        }
        if let Some(restart) = self.restart.take() {
            self.comparison.take_identity();
            if restart.forget_ids {
                self.comparison.ids = Ids::default();
            }
        }
    }

    /// A panic is a difference: the cluster manager of this program may panic in the primary's place.
    fn panicked(&mut self, panic: &str) {
        let now = self.comparison.now;
        self.comparison.stats.run_differs(now, "this program", "goes on", panic);
        self.restart("of a panic", false);
    }

    fn end(&mut self) {
        self.judge_closed(true);
        self.comparison.judge_put_off(true);
        self.comparison.stats.judge_times();
        if let Some(why) = self.missed() {
            self.comparison.stats.restarted(self.comparison.now, why);
        }
    }
}

fn requests_of(call: &Call) -> Vec<Asked> {
    match call {
        Call::RequestResource { requests: Some(requests), .. } => {
            requests.iter().filter_map(Asked::of).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a call changes the notifications to others.
fn changes(method: &str) -> bool {
    matches!(
        method,
        "sessionStart"
            | "sessionUpdateInfo"
            | "sessionEnd"
            | "requestResource"
            | "releaseResource"
            | "nodeFeedback"
            | "refreshNodes"
            | "killSession"
            | "killSessions"
            | "setSafeMode"
    )
}

/// Whether sessions that end in the course of a call end because of it.
fn ends_session(method: &str) -> bool {
    matches!(method, "sessionEnd" | "killSession" | "killSessions" | "sessionHeartbeatV2")
}
/// The session that a call names in an argument called `handle`.
fn handle_of(call: &Call) -> Option<&str> {
    match call {
        Call::SessionStart { handle, .. }
        | Call::SessionUpdateInfo { handle, .. }
        | Call::SessionEnd { handle, .. }
        | Call::SessionHeartbeat { handle }
        | Call::SessionHeartbeatV2 { handle, .. }
        | Call::RequestResource { handle, .. }
        | Call::ReleaseResource { handle, .. }
        | Call::NodeFeedback { handle, .. }
        | Call::GetSessionInfo { handle } => handle.as_deref(),
        // A list, so that nobody forgets a call that comes later.
        Call::GetActualPoolInfo { .. }
        | Call::GetActualPoolInfoV2 { .. }
        | Call::GetNextSessionId
        | Call::NodeHeartbeat { .. }
        | Call::RefreshNodes
        | Call::RestartNodes { .. }
        | Call::GetSessions
        | Call::KillSession { .. }
        | Call::KillSessions { .. }
        | Call::SetSafeMode { .. }
        | Call::PersistState => None,
    }
}
