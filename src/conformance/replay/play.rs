//! The run of a replay: one step after another, and the comparison at the end.
//!
//! The cluster manager under test and the time are behind [`ReplayTarget`]; this file reads no clock and opens no
//! socket.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::time::Duration;

use tokio::sync::watch;

use super::cluster::ClusterModel;
use super::conclude::NewPoolRevocation;
use super::gaps::Gaps;
use super::judge::{self, Circumstances};
use super::ledger::{NotificationLedger, Topic};
use super::names::LiveNames;
use super::older::Older;
use super::script::{Step, StepKind, is_call};
use super::values::translate_message;
use super::world::{Arrival, Callback, ReplayTarget};
use super::{NoRestart, Progress, ReplayOptions, Report, Silence};
use crate::answers::{Verdict, answer_instead_of_close, handle_of, show, text};
use crate::capture::ConnectionId;
use crate::conversation::typed_calls;
use crate::inspect::{Shape, body_text};
use crate::report::times::{Times, Tolerance};
use crate::report::{Finding, Subject};
use corona_wire::calls::{ClusterManager, ClusterManagerCall, SessionDriverCall};
use corona_wire::generated::{ClusterNodeInfo, ResourceGrant};
use corona_wire::value::Message;
use corona_wire::{Framing, Service};

/// The state of a run.
pub(super) struct Play<W> {
    pub(super) world: W,
    pub(super) options: ReplayOptions,
    pub(super) older: Older,
    pub(super) gaps: Gaps,
    pub(super) clock: PlayClock,
    pub(super) connections: HashMap<ConnectionId, ClientConnection>,
    pub(super) names: LiveNames,
    /// The cluster with the grants of the manager under test.
    pub(super) cluster: ClusterModel,
    /// The same with those of the recorded one.
    pub(super) recorded_cluster: ClusterModel,
    pub(super) ledger: NotificationLedger,
    /// Recorded notifications that are not compared, and of which this run may have some.
    pub(super) not_judged: BTreeMap<Topic, Vec<i32>>,
    /// Requests that were withdrawn here before they were granted, or in the recording, because
    /// another session was served first.
    pub(super) exchanged: HashSet<(String, i32)>,
    /// Session ids that were handed out here and whose recorded ones are missing.
    unnamed: VecDeque<String>,
    /// How long to wait for a notification beyond its recorded time.
    pub(super) patience: Duration,
    pub(super) silence: Silence,
    pub(super) new_pool_revocations: Vec<NewPoolRevocation>,
    /// Grants by session and request: recorded and live.
    pub(super) recorded_grants: BTreeMap<(String, i32), ResourceGrant>,
    pub(super) live_grants: BTreeMap<(String, i32), ResourceGrant>,
    pub(super) safe_mode: (Vec<bool>, Vec<bool>),
    pub(super) report: Report,
    /// The recorded time of the step that is played.
    pub(super) at: Duration,
    progress: watch::Sender<Progress>,
}

/// A recorded client's connection to the cluster manager under test.
#[derive(Debug, Default)]
pub(super) struct ClientConnection {
    /// Recorded calls without a reply yet, the oldest first.
    pub(super) unanswered: VecDeque<Message>,
    /// Calls whose replies have not come in time, by method and sequence id. They may come late.
    overdue: VecDeque<(String, i32)>,
    /// Whether the cluster manager is known to have ended it.
    is_dead: bool,
    /// Whether the client has ended it.
    has_hung_up: bool,
}

impl ClientConnection {
    /// Whether its end is expected.
    pub(super) fn may_end(&self) -> bool {
        self.is_dead || self.has_hung_up
    }
}

/// Recorded time as the world's time. It is set back whenever the cluster manager under test is slower than
/// the recorded one, so that pauses between the steps of a client never get shorter.
pub(super) struct PlayClock {
    pub(super) zero: Duration,
    pub(super) base: Duration,
    pub(super) speed: f64,
}

impl PlayClock {
    pub(super) fn due(&self, at: Duration) -> Duration {
        self.base + at.saturating_sub(self.zero).div_f64(self.speed)
    }

    fn reached(&mut self, at: Duration, now: Duration) {
        self.base += now.saturating_sub(self.due(at));
    }
}

/// The session ids that the recorded manager handed out.
fn handed_out(steps: &[Step]) -> impl Iterator<Item = &str> {
    steps.iter().filter_map(|step| match &step.what {
        StepKind::Answer(answer) if answer.name == "getNextSessionId" => {
            text(answer.body.as_ref().ok()?, "success")
        }
        _ => None,
    })
}

impl<W: ReplayTarget> Play<W> {
    /// For a play of `steps`.
    pub(super) fn new(
        world: W,
        mut options: ReplayOptions,
        older: Older,
        gaps: Gaps,
        progress: watch::Sender<Progress>,
        steps: &[Step],
    ) -> Play<W> {
        let speed = if options.speed > 0.0 { options.speed } else { 1.0 };
        let names = LiveNames::new(options.sessions_per_log_dir, handed_out(steps));
        // Slots that older sessions held are free here, and those of older nodes do not exist.
        options.compare_notices &= older.is_empty();
        let early_expiry = options.node_expiry.unwrap_or_default() / 2;
        let tolerance = Tolerance { time: options.time_tolerance, early_expiry };
        let report = Report {
            name: options.name.clone(),
            target: options.target.clone(),
            speed,
            times: Times::new(tolerance),
            ..Report::default()
        };
        let recorded_cluster = ClusterModel::of_known_nodes(nodes(steps).iter());
        let (patience, silence) = (options.notice_within, Silence::of(options.silence));
        let clock = PlayClock { zero: Duration::ZERO, base: world.now(), speed };
        Play {
            world,
            options,
            older,
            gaps,
            clock,
            connections: HashMap::new(),
            names,
            cluster: ClusterModel::default(),
            recorded_cluster,
            ledger: NotificationLedger::default(),
            not_judged: BTreeMap::new(),
            exchanged: HashSet::new(),
            unnamed: VecDeque::new(),
            patience,
            silence,
            new_pool_revocations: Vec::new(),
            recorded_grants: BTreeMap::new(),
            live_grants: BTreeMap::new(),
            safe_mode: (Vec::new(), Vec::new()),
            report,
            at: Duration::ZERO,
            progress,
        }
    }

    /// Plays all steps; the report has the verdict then.
    pub(super) async fn run(&mut self, steps: &[Step]) {
        let first = steps.iter().find(|step| matches!(step.what, StepKind::Open));
        self.clock.zero = first.map_or(Duration::ZERO, |step| step.at);
        let end = steps.last().map_or(Duration::ZERO, |step| step.at);
        self.report.recorded_for = end.saturating_sub(self.clock.zero);
        self.clock.base = self.world.now();
        let mut stop = pin!(stopped(self.options.stop.clone()));
        let mut judged = end;
        for (place, step) in steps.iter().enumerate() {
            let later = steps.get(place + 1..).unwrap_or_default();
            self.at = step.at;
            self.progress.send_replace(Progress {
                played: step.at.saturating_sub(self.clock.zero),
                of: self.report.recorded_for,
            });
            if matches!(step.what, StepKind::Restart) {
                self.world.wait_until(self.clock.due(step.at)).await;
                match self.world.restart().await {
                    Ok(()) => self.restarted(),
                    Err(why) => {
                        self.cannot_go_on(step.at, &why, later);
                        break;
                    }
                }
            } else {
                let ended = tokio::select! {
                    biased;
                    why = &mut stop => Some(format!("it was ended by {why}")),
                    () = self.step(step, later) => self.silence.is_too_long(),
                };
                if let Some(why) = ended {
                    judged = step.at;
                    self.report.ended(step.at.saturating_sub(self.clock.zero), why);
                    self.leaves_out(later);
                    break;
                }
            }
            self.take_callbacks();
            self.clock.reached(step.at, self.world.now());
        }
        if judged == end {
            self.settle(end).await;
        }
        self.conclude_connections(judged);
        self.conclude(judged);
        self.report.stalls.add(&self.world.stalls());
    }

    /// These steps are not played.
    fn leaves_out(&mut self, steps: &[Step]) {
        for step in steps {
            match &step.what {
                StepKind::Answer(answer) => self.report.leaves_out_call(&answer.name),
                StepKind::HungUp => self.report.leaves_out_call("no call"),
                StepKind::Notice(call) => self.does_not_judge(call),
                _ => {}
            }
        }
    }

    /// Receives messages that are still in flight when the recording ends. Effects of the time
    /// after it, such as expiries, are not part of the recording.
    async fn settle(&mut self, at: Duration) {
        let ReplayOptions { settle, node_expiry, session_expiry, .. } = self.options;
        let mut end = self.world.now() + settle;
        let expiry = self.cluster.next_expiry(at, node_expiry, session_expiry);
        // Where there are no pauses, everything expires in its own time.
        if let Some(expiry) = expiry.filter(|_| self.clock.speed.is_finite()) {
            end = end.min(self.clock.due(expiry));
        }
        while let Some((came, callback)) = self.world.callback(end).await {
            let call = match &callback {
                Callback::Session(_, call) => Some(call),
                Callback::SafeMode(_) => None,
            };
            if let Some(SessionDriverCall::ProcessDeadNode { node: Some(node), .. }) = call
                && self.has_outlived(node, at)
            {
                break;
            }
            self.called_back(came, callback);
        }
    }

    /// Whether a node that is dead now should not have died before `at`, the end of the recording.
    /// It has been silent for most of its expiry interval; the clock, which was set back since, may
    /// show only a part of that.
    fn has_outlived(&self, node: &str, at: Duration) -> bool {
        let heartbeat_at = self.cluster.heartbeat_at(node);
        let both = heartbeat_at.zip(self.options.node_expiry);
        both.is_some_and(|(heartbeat_at, expiry)| {
            heartbeat_at + expiry > at
                && self.clock.speed.is_finite()
                && self.world.now() >= self.clock.due(heartbeat_at + expiry / 2)
        })
    }

    async fn step(&mut self, step: &Step, later: &[Step]) {
        let (at, connection) = (step.at, step.connection);
        let is_clients = matches!(
            step.what,
            StepKind::Open
                | StepKind::Send { .. }
                | StepKind::HangUp { .. }
                | StepKind::ProxyListens(_)
        );
        if is_clients {
            self.world.wait_until(self.clock.due(at)).await;
        }
        self.take_callbacks();
        match &step.what {
            StepKind::Open => {
                self.open(at, connection).await;
            }
            StepKind::Send { raw, calls } => self.send(at, connection, raw, calls).await,
            StepKind::HangUp { broken } => {
                if let Some(known) = self.connections.get_mut(&connection) {
                    known.has_hung_up = true;
                    self.world.hang_up(connection, *broken).await;
                }
            }
            StepKind::Answer(recorded) => self.answer(at, connection, recorded, later).await,
            StepKind::HungUp => self.hung_up(at, connection).await,
            StepKind::Notice(call) => self.notice(at, call).await,
            StepKind::SafeMode(flag) => self.safe_mode(at, *flag).await,
            StepKind::Restart => {}
            StepKind::ProxyListens(listens) => {
                if let Err(error) = self.world.set_proxy(*listens).await {
                    let listens = format!("listens: {listens}");
                    self.run_differs(at, "the proxy job tracker", listens, error.to_string());
                }
            }
        }
    }

    /// The cluster manager was restarted, and has closed all connections.
    fn restarted(&mut self) {
        self.take_callbacks();
        self.connections.clear();
    }

    /// The cluster manager under test was not restarted where the recorded one was.
    fn cannot_go_on(&mut self, at: Duration, why: &NoRestart, later: &[Step]) {
        match why {
            NoRestart::Failed(why) => {
                let recorded = "the cluster manager is started again".to_owned();
                self.run_differs(at, "the whole recording", recorded, why.clone());
            }
            NoRestart::NotPossible => {
                let is_answer =
                    |step: &&Step| matches!(step.what, StepKind::Answer(_) | StepKind::HungUp);
                let answers = later.iter().filter(is_answer).count();
                self.report.does_not_compare(&format!(
                    "{answers} calls from {:.1} s on, where the recorded cluster manager was started \
                     again: this one cannot be.",
                    at.saturating_sub(self.clock.zero).as_secs_f64()
                ));
            }
        }
    }

    async fn open(&mut self, at: Duration, connection: ConnectionId) {
        match self.world.connect(connection).await {
            Ok(()) => {
                self.connections.insert(connection, ClientConnection::default());
            }
            Err(error) => {
                let place = format!("connection {}", connection.0);
                self.run_differs(at, &place, "accepted".to_owned(), error.to_string());
            }
        }
    }

    async fn send(
        &mut self,
        at: Duration,
        connection: ConnectionId,
        raw: &[u8],
        calls: &[Message],
    ) {
        if self.gaps.connections.contains(&connection) {
            self.take_unrecorded_replies(at, connection).await;
        }
        for call in typed_calls::<ClusterManager>(raw) {
            self.about_to_call(at, &call).await;
        }
        if self.connections.get(&connection).is_none_or(|known| known.is_dead) {
            // The manager under test has closed it; a client would reconnect.
            self.open(at, connection).await;
        }
        let bytes = self.rewrite(calls);
        let Some(known) = self.connections.get_mut(&connection) else { return };
        known.unanswered.extend(calls.iter().filter(|call| is_call(call)).cloned());
        // If it cannot be sent, the missing reply shows it.
        let _ = self.world.send(connection, bytes.as_deref().unwrap_or(raw)).await;
    }

    /// A call changes the model of the cluster; a session that starts needs its driver.
    async fn about_to_call(&mut self, at: Duration, call: &ClusterManagerCall) {
        if let ClusterManagerCall::SessionStart { handle: Some(handle), .. } = call
            && !self.names.is_known(handle)
            && let Some(live) = self.unnamed.pop_front()
        {
            self.names.session(handle, &live);
        }
        if let ClusterManagerCall::SessionStart { info: Some(info), .. } = call {
            let recorded = (info.address.host.clone(), info.address.port);
            match self.world.open_driver(&recorded).await {
                Ok(live) => {
                    let live = (live.ip().to_string(), i32::from(live.port()));
                    self.names.driver(recorded, live);
                }
                Err(error) => {
                    let listens = format!("{}:{} listens", recorded.0, recorded.1);
                    self.run_differs(at, "session driver", listens, error.to_string());
                }
            }
        }
        match call {
            ClusterManagerCall::ReleaseResource { handle: Some(handle), ids: Some(ids) } => {
                self.withdraws(handle, ids);
            }
            ClusterManagerCall::SessionEnd { handle: Some(handle), .. } => {
                let ids = self.cluster.requests_of(handle);
                self.withdraws(handle, &ids);
            }
            _ => {}
        }
        self.cluster.called(at, call);
        self.recorded_cluster.called(at, call);
    }

    /// A session gives requests up. Those that only one side has granted by now, while the other has
    /// served another session, are a free choice.
    fn withdraws(&mut self, handle: &str, ids: &[i32]) {
        for id in ids {
            let Some(kind) = self.cluster.kind_of(handle, *id) else { continue };
            let [recorded, live] =
                [false, true].map(|live| self.ledger.is_granted(handle, kind, *id, live));
            if recorded != live && self.ledger.others(handle, kind, recorded) {
                self.exchanged.insert((handle.to_owned(), *id));
            }
        }
    }

    /// On a connection with gaps, replies to earlier calls that are not there when the client calls
    /// again are missing in the recording.
    async fn take_unrecorded_replies(&mut self, at: Duration, connection: ConnectionId) {
        while let Some(call) = self.next_unanswered(connection) {
            let live = self.next_arrival(at, connection).await;
            self.report.leaves_out_call(&call.name);
            let body = live.ok().filter(|_| call.name == "getNextSessionId");
            let id =
                body.and_then(|live| Some(text(live.body.as_ref().ok()?, "success")?.to_owned()));
            self.unnamed.extend(id);
        }
    }

    /// Whether a call that is missing may have changed this answer.
    fn may_be_touched(&self, at: Duration, call: &Message) -> bool {
        self.gaps.changes_at.is_some_and(|changes_at| at >= changes_at)
            && (call.name == "getSessions"
                || handle_of(call).is_some_and(|handle| self.gaps.sessions.contains(handle)))
    }

    /// The calls with translated names, each in a frame; none when nothing in them is translated.
    fn rewrite(&self, calls: &[Message]) -> Option<Vec<u8>> {
        let live: Vec<_> = calls.iter().map(|call| translate_message(call, &self.names)).collect();
        if live == calls {
            return None;
        }
        let mut bytes = Vec::new();
        for message in live {
            message.write(ClusterManager::schema(), Framing::Framed, &mut bytes).ok()?;
        }
        Some(bytes)
    }

    async fn answer(
        &mut self,
        at: Duration,
        connection: ConnectionId,
        recorded: &Message,
        later: &[Step],
    ) {
        let Some(call) = self.next_unanswered(connection) else {
            // Its call is not in the recording, or was made before its beginning.
            return self.report.leaves_out_call(&recorded.name);
        };
        let is_touched = self.may_be_touched(at, &call);
        let call = Some(call);
        let live = match self.reply_to(at, connection, call.as_ref()).await {
            _ if is_touched => return self.report.leaves_out_call(&recorded.name),
            Ok(live) => live,
            Err(what) => {
                let expected = translate_message(recorded, &self.names);
                let both = (show(&expected), what);
                let found = self.about_answer(at, connection, call.as_ref(), recorded, both);
                return self.report.add(found);
            }
        };
        if recorded.name == "getNextSessionId" && self.learn_session(recorded, &live) {
            return self.report.equal(&recorded.name);
        }
        let soon = |handle: &str, kind: i32| {
            let horizon = at + self.options.grant_delay;
            granted_until(later, horizon, handle, kind)
        };
        let circumstances = Circumstances {
            at,
            names: &self.names,
            cluster: &self.cluster,
            session_expiry: self.options.session_expiry,
            node_expiry: self.options.node_expiry,
            same_slots: self.older.is_empty(),
            granted_soon: &soon,
            exchanged: &|handle, kind| self.ledger.exchanged(handle, kind),
        };
        let rule = match judge::answer(call.as_ref(), recorded, &live, &circumstances) {
            Verdict::Equal => return self.report.equal(&recorded.name),
            Verdict::Explained(rule) => Some(rule),
            Verdict::Different => None,
        };
        let expected = translate_message(recorded, &self.names);
        let both = (show(&expected), show(&live));
        let found = self.about_answer(at, connection, call.as_ref(), recorded, both);
        let found = found.with_messages(&expected, &live);
        self.report.add(Finding { rule, ..found });
    }

    /// A finding about the answer to a call.
    fn about_answer(
        &self,
        at: Duration,
        connection: ConnectionId,
        call: Option<&Message>,
        answer: &Message,
        both: (String, String),
    ) -> Finding {
        let place = format!("{} {} on connection {}", answer.name, answer.seqid, connection.0);
        let arguments =
            call.map(|call| body_text(&translate_message(call, &self.names), Shape::Short));
        let found = Finding::of_words(at, Subject::Call(answer.name.clone()), place, both);
        Finding { arguments: arguments.unwrap_or_default(), ..found }
    }

    /// Both managers handed out an id: they mean the same session.
    fn learn_session(&mut self, recorded: &Message, live: &Message) -> bool {
        let id = |message: &Message| {
            let body = message.body.as_ref().ok()?;
            Some(text(body, "success")?.to_owned())
        };
        let (Some(old), Some(new)) = (id(recorded), id(live)) else { return false };
        let same_kind = recorded.kind == live.kind && recorded.seqid == live.seqid;
        same_kind && self.names.session(&old, &new)
    }

    async fn hung_up(&mut self, at: Duration, connection: ConnectionId) {
        let call = self.next_unanswered(connection);
        if call.is_none() && self.gaps.connections.contains(&connection) {
            return self.report.leaves_out_call("no call");
        }
        let method = call.as_ref().map_or("no call", |call| &call.name).to_owned();
        let live = match self.next_arrival(at, connection).await {
            Err(what) if what == CLOSED => return self.report.equal(&method),
            live => live,
        };
        let place = match &call {
            Some(call) => format!("{} {} on connection {}", call.name, call.seqid, connection.0),
            None => format!("connection {}", connection.0),
        };
        let both = (CLOSED.to_owned(), live.as_ref().map_or_else(String::clone, show));
        let found = Finding::of_words(at, Subject::Call(method), place, both);
        let found = match &call {
            Some(call) => {
                let call = translate_message(call, &self.names);
                Finding { arguments: body_text(&call, Shape::Short), ..found }
            }
            None => found,
        };
        let Ok(live) = live else { return self.report.add(found) };
        let verdict = call.as_ref().map(|call| answer_instead_of_close(call, &live));
        self.report.add(match verdict {
            Some(Verdict::Explained(rule)) => Finding { rule: Some(rule), ..found },
            _ => found,
        });
        // The recorded client's connection has ended, so it sends nothing more on it.
        self.connections.remove(&connection);
        self.world.close(connection);
    }

    fn next_unanswered(&mut self, connection: ConnectionId) -> Option<Message> {
        self.connections.get_mut(&connection)?.unanswered.pop_front()
    }

    /// The reply to a call. `Err` describes the event that came instead. Late replies to earlier calls
    /// are left out.
    async fn reply_to(
        &mut self,
        at: Duration,
        connection: ConnectionId,
        call: Option<&Message>,
    ) -> Result<Message, String> {
        let name_of = |message: &Message| (message.name.clone(), message.seqid);
        let expected = call.map(name_of);
        loop {
            let live = self.next_arrival(at, connection).await;
            let Some(known) = self.connections.get_mut(&connection) else { return live };
            match (&live, &expected) {
                (Ok(live), expected)
                    if known.overdue.front() == Some(&name_of(live))
                        && *expected != Some(name_of(live)) =>
                {
                    known.overdue.pop_front();
                }
                (Err(_), Some(expected)) if !known.is_dead => {
                    known.overdue.push_back(expected.clone());
                    return live;
                }
                _ => return live,
            }
        }
    }

    /// The next message on a connection. `Err` describes the event that came instead.
    async fn next_arrival(
        &mut self,
        at: Duration,
        connection: ConnectionId,
    ) -> Result<Message, String> {
        let due = self.clock.due(at);
        let deadline = due + self.options.answer_within;
        let known =
            self.connections.get_mut(&connection).ok_or_else(|| NO_CONNECTION.to_owned())?;
        if known.is_dead {
            return Err(CLOSED.to_owned());
        }
        let Some(arrival) = self.world.arrival(connection, deadline).await else {
            let within = self.options.answer_within;
            self.silence.waited(within);
            return Err(format!("nothing within {} s", within.as_secs_f64()));
        };
        known.is_dead = !matches!(arrival, Arrival::Message(_));
        match arrival {
            Arrival::Message(message) => {
                self.report.stalls.answered(self.world.now().saturating_sub(due));
                Ok(*message)
            }
            Arrival::Closed => Err(CLOSED.to_owned()),
            Arrival::Nonsense(why) => Err(format!("no message: {why}")),
        }
    }

    /// Reports a difference that concerns no single call.
    pub(super) fn run_differs(
        &mut self,
        at: Duration,
        place: &str,
        recorded: String,
        live: String,
    ) {
        let both = (recorded, live);
        self.report.add(Finding::of_words(at, Subject::Run, place.to_owned(), both));
    }
}

pub(super) const CLOSED: &str = "the connection is closed";
const NO_CONNECTION: &str = "there is no connection";

/// Why the replay is to end; never if nobody wants that.
async fn stopped(stop: Option<watch::Receiver<Option<String>>>) -> String {
    if let Some(mut stop) = stop
        && let Ok(why) = stop.wait_for(Option::is_some).await
    {
        return why.clone().unwrap_or_default();
    }
    std::future::pending().await
}

/// What the nodes say of themselves in these steps.
fn nodes(steps: &[Step]) -> Vec<ClusterNodeInfo> {
    let sent = steps.iter().filter_map(|step| match &step.what {
        StepKind::Send { raw, .. } => Some(raw),
        _ => None,
    });
    let calls = sent.flat_map(|raw| typed_calls::<ClusterManager>(raw));
    calls
        .filter_map(|call| match call {
            ClusterManagerCall::NodeHeartbeat { node } => node,
            _ => None,
        })
        .collect()
}

/// The number of grants of a type to a session in these steps until `horizon`.
fn granted_until(steps: &[Step], horizon: Duration, handle: &str, kind: i32) -> usize {
    let of_step = |step: &Step| match &step.what {
        StepKind::Notice(call) => match &**call {
            SessionDriverCall::GrantResource { handle: Some(session), granted: Some(granted) }
                if session == handle =>
            {
                granted.iter().filter(|grant| grant.type_.0 == kind).count()
            }
            _ => 0,
        },
        _ => 0,
    };
    steps.iter().take_while(|step| step.at <= horizon).map(of_step).sum()
}
