//! The task of a shadow: takes what passes, one thing after the other, and gives it to both sides'
//! books.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::books::{Books, Recent};
use super::figures::Figures;
use super::ids::Ids;
use super::line::{Asked, GAP, Line, OurAnswer, Ours};
use super::{ReadConfiguration, ShadowError, ShadowOptions};
use crate::capture::{ConnectionId, Side};
use crate::conversation::Offered;
use crate::recording::{Entry, Record, Unrecorded};
use crate::relay::Entries;
use crate::replay::values::show;
use corona_cluster_manager::{DryRun, Told};
use corona_config::Loaded;
use corona_process::panics::{Panic, caught};
use corona_wire::Exception;
use corona_wire::calls::{ClusterManager, ClusterManagerCall as Call};
use corona_wire::server::Answer;
use corona_wire::value::{Message, RawMessage, Value};

/// How long it rests after a panic, which may come again.
const REST: Duration = Duration::from_secs(1);
/// How often what waits is looked through.
const SWEEP: Duration = Duration::from_millis(100);
/// What is later than this was held up.
const PROMPT: Duration = Duration::from_millis(250);
/// How soon it shows that a primary is gone that has closed a connection.
const GONE: Duration = Duration::from_secs(10);
/// Closed connections that may wait for that.
const MAX_CLOSED: usize = 10_000;
/// How often silence is pardoned while the shadow is behind.
const PARDON: Duration = Duration::from_secs(1);
/// How often the primary is asked for its sessions, while some are not followed.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// How long calls that crossed may explain another order.
const CROSSED: Duration = Duration::from_millis(2_500);
/// How long after its beginning the shadow may lack nodes.
const LEARNING: Duration = Duration::from_secs(15);

/// The state of a shadow.
pub(super) struct Run {
    pub(super) manager: DryRun,
    pub(super) loaded: Loaded,
    pub(super) configuration: ReadConfiguration,
    pub(super) options: ShadowOptions,
    figures: Arc<Mutex<Figures>>,
    pub(super) lines: HashMap<ConnectionId, Line>,
    pub(super) books: Books,
    pub(super) ids: Ids,
    /// Sessions that run at the primary and are not followed, with when they were last heard of.
    pub(super) unfollowed: HashMap<Arc<str>, Instant>,
    /// Whether the primary has told its sessions.
    pub(super) primary_told: bool,
    /// Sessions that were found overdue here.
    pub(super) expired: Recent<Arc<str>>,
    /// Ports of session drivers that could not be reached.
    pub(super) troubled_ports: Recent<u16>,
    pub(super) trouble_at: Option<Instant>,
    /// Changes under way: calls that are not answered.
    pub(super) changes: usize,
    crossed_at: Option<Instant>,
    pub(super) began_at: Instant,
    /// How far behind it is. For so long the silence of nodes and sessions is its own.
    lag: Duration,
    wakes_at: Option<Instant>,
    swept_at: Instant,
    pub(super) left_out: Unrecorded,
    /// What was left out since the last beginning. Nothing is looked at as long as there is any.
    pub(super) missing: Option<Missing>,
    /// Bytes of messages of which the rest has not come.
    held_bytes: usize,
    /// Calls on which the primary has closed the connection, and when.
    pub(super) closed: VecDeque<(Instant, Asked)>,
    /// Whether the primary did not take the last connection.
    primary_is_gone: bool,
    pardoned_at: Instant,
    pub(super) asked_at: Instant,
    pub(super) stop_watching: tokio::sync::watch::Sender<bool>,
}

/// That some of what passed was left out, since the shadow was too slow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    /// How much by the time of the last beginning.
    pub(super) before: Unrecorded,
    /// When more was left out the last time.
    pub(super) last_at: Instant,
}

impl Run {
    pub(super) fn new(
        loaded: Loaded,
        configuration: ReadConfiguration,
        options: ShadowOptions,
        figures: Arc<Mutex<Figures>>,
    ) -> Result<Run, ShadowError> {
        let manager = DryRun::start(&loaded)?;
        let now = Instant::now();
        Ok(Run {
            manager,
            loaded,
            configuration,
            options,
            figures,
            lines: HashMap::new(),
            books: Books::default(),
            ids: Ids::default(),
            unfollowed: HashMap::new(),
            primary_told: false,
            expired: Recent::default(),
            troubled_ports: Recent::default(),
            trouble_at: None,
            changes: 0,
            crossed_at: None,
            began_at: now,
            lag: Duration::ZERO,
            wakes_at: None,
            swept_at: now,
            left_out: Unrecorded::default(),
            missing: None,
            held_bytes: 0,
            closed: VecDeque::new(),
            primary_is_gone: false,
            pardoned_at: now,
            asked_at: now,
            stop_watching: tokio::sync::watch::Sender::new(false),
        })
    }

    /// Runs until there is nothing more to come. A panic on the way is a difference: the cluster
    /// manager of this program may have one in its place.
    pub(super) async fn run(mut self, mut entries: Entries) {
        self.watch_files();
        self.ask_primary().await;
        while let Err(panic) = caught(self.look(&mut entries)).await {
            self.broke_off(&panic);
            if let Err(panic) = caught(self.begin_anew("of a panic")).await {
                self.broke_off(&panic);
            }
            tokio::time::sleep(REST).await;
        }
        self.judge_closed(true);
        if let Some(why) = self.missed() {
            self.figures().begin_anew(why);
        }
        self.tell_counts();
        self.stop_watching.send_replace(true);
    }

    fn broke_off(&self, panic: &Panic) {
        tracing::error!(%panic, "the shadow panicked; this is a bug");
        self.figures().run_differs("this program", "goes on", &panic.to_string());
    }

    /// Looks at what comes until nothing more will.
    async fn look(&mut self, entries: &mut Entries) {
        loop {
            let sweep = self.swept_at + SWEEP;
            let wakes_at = self.wakes_at.filter(|_| self.missing.is_none());
            let wake = wakes_at.map_or(sweep, |wakes_at| wakes_at.min(sweep));
            tokio::select! {
                biased;
                entry = entries.next() => {
                    let Some(entry) = entry else { break };
                    self.lag = (entries.started() + entry.at).elapsed();
                    self.entry(entry).await;
                }
                () = tokio::time::sleep_until(wake.into()) => {
                    self.lag = Duration::ZERO;
                    self.catch_up().await;
                    if self.missing.is_none() {
                        self.decide(false).await;
                    }
                }
            }
            self.note_left_out(entries.left_out());
            if self.swept_at.elapsed() >= SWEEP {
                self.swept_at = Instant::now();
                self.judge_closed(false);
                self.tell_counts();
                if self.missing.is_some() {
                    continue;
                }
                self.sweep();
                if !self.unfollowed.is_empty() && self.asked_at.elapsed() >= ASK_AGAIN {
                    self.ask_primary().await;
                }
            }
        }
    }

    pub(super) fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether calls were under way at the same time lately, so that nobody knows which came first.
    pub(super) fn crossed(&self) -> bool {
        self.crossed_at.is_some_and(|at| at.elapsed() < CROSSED)
    }

    /// Whether nodes that were there before may not have been heard yet.
    pub(super) fn is_learning(&self) -> bool {
        self.began_at.elapsed() < LEARNING
    }

    /// Whether slots may be taken at the primary by sessions that are not followed.
    pub(super) fn may_hide_slots(&self) -> bool {
        !self.unfollowed.is_empty() || (!self.primary_told && self.is_learning())
    }

    /// Whether the primary may have ended a session lately that it could not reach.
    pub(super) fn in_trouble(&self) -> bool {
        self.trouble_at.is_some_and(|at| at.elapsed() < TROUBLE)
    }

    fn tell_counts(&self) {
        let (sessions, unfollowed) = (self.books.sessions.len(), self.unfollowed.len());
        let waiting = self.books.waiting();
        let mut figures = self.figures();
        (figures.sessions, figures.unfollowed, figures.waiting) = (sessions, unfollowed, waiting);
        figures.lag = self.lag;
        figures.worst_lag = figures.worst_lag.max(self.lag);
    }

    pub(super) fn watch_files(&self) {
        tokio::spawn(self.manager.watch_files(self.stop_watching.subscribe()));
    }

    async fn entry(&mut self, entry: Entry) {
        let Entry { connection, record, .. } = entry;
        match record {
            Record::Opened { opening, service: Some(service) } => {
                self.lines.insert(connection, Line::new(&opening, service));
            }
            Record::Accepted => {
                let Some(line) = self.lines.get_mut(&connection) else { return };
                line.accepted = true;
                if line.service == Offered::ClusterManager && self.primary_is_gone {
                    self.primary_is_gone = false;
                    // It may have been given another configuration meanwhile.
                    self.begin_anew("the primary is there again").await;
                }
            }
            Record::Data(from, _) if self.missing.is_some() => self.lose(connection, from),
            Record::Data(from, data) => {
                let Some(line) = self.lines.get_mut(&connection) else { return };
                let (service, client) = (line.service, line.client);
                let before = line.held_bytes();
                let messages = line.data(from, &data);
                self.held_bytes = self.held_bytes.saturating_sub(before) + line.held_bytes();
                if self.held_bytes > MAX_HELD_BYTES {
                    self.held_bytes = self.held_bytes.saturating_sub(line.held_bytes());
                    line.give_up();
                    self.figures().not_compared(TOO_LONG);
                }
                for message in messages {
                    match (service, from) {
                        (Offered::ClusterManager, Side::Client) => {
                            self.called(connection, client, message).await;
                        }
                        (Offered::ClusterManager, Side::Server) => {
                            self.answered(connection, &message).await;
                        }
                        (Offered::SessionDriver, Side::Client) => {
                            self.told(connection, message);
                            self.decide(false).await;
                        }
                        (Offered::SessionDriver, Side::Server) => self.heard(connection),
                        (Offered::ProxyJobTracker, _) => {}
                    }
                }
            }
            Record::Gap(from, ..) => self.lose(connection, from),
            Record::End(Side::Client) | Record::Reset(Side::Client) => {
                if let Some(line) = self.lines.get_mut(&connection) {
                    line.client_has_ended = true;
                }
            }
            Record::End(Side::Server) | Record::Reset(Side::Server) => {
                self.primary_hung_up(connection);
            }
            Record::Closed => self.closed(connection).await,
            Record::Opened { service: None, .. } | Record::Finished(_) => {}
        }
    }

    /// Some of what one side of a connection said is not known.
    fn lose(&mut self, connection: ConnectionId, from: Side) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        let (held, changes) = (line.held_bytes(), line.changes());
        line.lose(from);
        self.held_bytes = self.held_bytes.saturating_sub(held) + line.held_bytes();
        self.changes = self.changes.saturating_sub(changes) + line.changes();
        self.nothing_is_told(connection);
    }

    /// A client calls the primary.
    async fn called(&mut self, connection: ConnectionId, client: SocketAddr, message: RawMessage) {
        if message.kind.is_answer() {
            return;
        }
        let mut handle = None;
        let (ours, mut changes) = match message.call::<ClusterManager>() {
            Ok(call) => {
                handle = handle_of(&call).map(Arc::<str>::from);
                let ours = self.answer(client, &message, handle.as_deref(), call).await;
                (ours, changes(&message.name))
            }
            // How a broken call is refused is the wire's business, and has its own tests.
            Err(_) => (Ours::Nothing("calls that break the contract"), false),
        };
        changes |= self.decide(ends_session(&message.name)).await;
        if message.name == "sessionStart"
            && let Some(handle) = &handle
            && !self.manager.look(|engine| engine.has_session(handle))
        {
            self.books.sessions.remove(handle);
        }
        if changes {
            if self.changes > 0 {
                self.crossed_at = Some(Instant::now());
            }
            self.changes += 1;
        }
        if let Some(line) = self.lines.get_mut(&connection) {
            line.asks(Asked { call: message, handle, ours, changes });
        }
    }

    async fn answer(
        &mut self,
        client: SocketAddr,
        message: &RawMessage,
        handle: Option<&str>,
        call: Call,
    ) -> Ours {
        match &call {
            // Known when the primary has answered.
            Call::GetNextSessionId => return Ours::Nothing(""),
            Call::SessionStart { handle: Some(handle), info } => {
                self.ids.seen(handle);
                self.take_identity();
                self.unfollowed.remove(handle.as_str());
                let port = info.as_ref().map_or(0, |info| info.address.port);
                self.expect_session(handle, port);
            }
            Call::ReleaseResource { handle: Some(handle), ids: Some(ids) } => {
                self.gives_back(handle, ids);
            }
            _ => {}
        }
        if let Some(handle) = handle
            && self.unfollowed.contains_key(handle)
        {
            self.is_not_followed(handle);
            return Ours::Nothing(UNFOLLOWED);
        }
        match self.manager.call(client, call).await {
            None => Ours::Nothing("calls that act outside of the cluster manager"),
            Some(Answer::Close) => Ours::Close,
            Some(answer) => {
                let is_reply = matches!(answer, Answer::Reply(_));
                let is_safe_mode = matches!(answer, Answer::Exception(Exception::SafeMode(_)));
                let (name, seqid) = (&message.name, message.seqid);
                match RawMessage::of_answer::<ClusterManager>(name, &answer, seqid) {
                    Some(message) => {
                        Ours::Answer(Box::new(OurAnswer { message, is_reply, is_safe_mode }))
                    }
                    None => Ours::Close,
                }
            }
        }
    }

    /// Has this program decide what it would now, and enters it. Returns whether that was anything.
    pub(super) async fn decide(&mut self, ends: bool) -> bool {
        // Looking after silence costs time in proportion to who may be silent.
        let pardons = self.lag > PROMPT && self.pardoned_at.elapsed() > PARDON;
        let late = if pardons { self.lag } else { Duration::ZERO };
        if pardons {
            self.pardoned_at = Instant::now();
        }
        let late_ms = i64::try_from(late.as_millis()).unwrap_or(i64::MAX);
        self.wakes_at = self.manager.settle(late_ms).await;
        let told = self.manager.told();
        let any = !told.is_empty();
        for told in told {
            match told {
                Told::Notice(handle, notification) => self.decided(&handle, notification),
                Told::Ended(handle) => {
                    if !ends {
                        self.expired.note(handle.clone());
                    }
                    self.session_ended(&handle);
                }
            }
        }
        any
    }

    /// The primary answers a call.
    async fn answered(&mut self, connection: ConnectionId, message: &RawMessage) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        let changes = line.changes();
        let mut others = line.answered(message);
        self.changes = self.changes.saturating_sub(changes) + line.changes();
        // Of a call that was not understood, or not seen, the answer means nothing.
        let is_known = !line.strange && !line.has_gaps;
        let Some(asked) = others.pop_back() else {
            if is_known {
                let theirs = show(&message.decode());
                self.figures().run_differs("an answer", &theirs, "there was no call");
            }
            return;
        };
        for missed in others {
            self.not_compared(&missed.call.name, GAP);
        }
        // Most answers are the same to the last byte, and need not be decoded.
        if let Ours::Answer(ours) = &asked.ours
            && (ours.is_reply || (asked.call.name != "sessionStart" && !ours.is_safe_mode))
            && ours.message.has_bytes_of(message)
        {
            self.figures().call(&asked.call.name).equal += 1;
            return;
        }
        let message = &message.decode();
        if asked.call.name == "getNextSessionId" {
            return self.id_answered(&asked, message).await;
        }
        self.follow_safe_mode(&asked, message).await;
        self.compare(&asked, message);
    }

    async fn id_answered(&mut self, asked: &Asked, message: &Message) {
        use super::ids::Id;
        let body = message.body.as_ref().ok();
        let Some(Value::String(id)) = body.and_then(|body| body.field("success")) else {
            return self.follow_safe_mode(asked, message).await;
        };
        match self.ids.handed_out(id) {
            Id::New => self.figures().call("getNextSessionId").equal += 1,
            Id::OtherStart => {
                self.ids = Ids::default();
                self.ids.handed_out(id);
                self.begin_anew("the primary was started again").await;
            }
            Id::Again => self.id_differs(message, "an id that was not handed out before"),
            Id::Strange => self.id_differs(message, "an id: its start and a number"),
        }
        self.take_identity();
    }

    /// The server of a connection says no more. What its client is still waiting for does not come.
    fn primary_hung_up(&mut self, connection: ConnectionId) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        if line.service != Offered::ClusterManager {
            return;
        }
        let compared = !line.client_has_ended && !line.strange;
        let mut unanswered = std::mem::take(&mut line.unanswered);
        self.forget_changes(&unanswered);
        if let Some(asked) = unanswered.pop_front().filter(|_| compared) {
            self.closed.push_back((Instant::now(), asked));
        }
    }

    /// Judges calls on which connections were closed, unless it may turn out yet that the primary is
    /// gone altogether.
    fn judge_closed(&mut self, all: bool) {
        while let Some((at, _)) = self.closed.front() {
            let few = self.closed.len() <= MAX_CLOSED;
            if !all && few && at.elapsed() < GONE {
                return;
            }
            if let Some((_, asked)) = self.closed.pop_front() {
                self.compare_close(&asked);
            }
        }
    }

    fn forget_changes(&mut self, unanswered: &VecDeque<Asked>) {
        let changes = unanswered.iter().filter(|asked| asked.changes).count();
        self.changes = self.changes.saturating_sub(changes);
    }

    /// A connection is over.
    async fn closed(&mut self, connection: ConnectionId) {
        let Some(line) = self.lines.remove(&connection) else { return };
        self.held_bytes = self.held_bytes.saturating_sub(line.held_bytes());
        match line.service {
            Offered::SessionDriver => self.driver_closed(&line),
            Offered::ClusterManager => {
                self.forget_changes(&line.unanswered);
                if !line.accepted && !self.primary_is_gone {
                    self.primary_is_gone = true;
                    self.begin_anew("the primary could not be reached").await;
                    // Started again within the same minute it hands out the same ids again.
                    self.ids = Ids::default();
                }
            }
            Offered::ProxyJobTracker => {}
        }
    }
}

/// How long a session driver that was not reached explains what the primary does.
const TROUBLE: Duration = Duration::from_secs(300);

/// Bytes of messages of which the rest has not come, of all connections. What is beyond is not
/// looked at.
const MAX_HELD_BYTES: usize = 256 << 20;
const TOO_LONG: &str = "connections with more than could be kept of a message";

pub(super) const UNFOLLOWED: &str = "calls of sessions whose start was not seen";

/// Whether a call changes what others may be told.
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
