//! The run of a replay: one step after the other, and the comparison at the end.
//!
//! One task does it all; what arrives in the meantime waits in queues.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::cluster::Cluster;
use super::holdups::Watch;
use super::judge::{self, Circumstances};
use super::ledger::Ledger;
use super::line::{Arrival, Line};
use super::names::Names;
use super::older::Older;
use super::peers::{Heard, Peers};
use super::script::{Happening, Step, is_call};
use super::values::translate_message;
use super::{NoRestart, Progress, ReplayOptions, Report};
use crate::answers::{Verdict, answer_instead_of_close, show, text};
use crate::capture::ConnectionId;
use crate::inspect::{Shape, body_text};
use crate::report::{About, Finding};
use corona_wire::calls::{ClusterManager, ClusterManagerCall, SessionDriverCall};
use corona_wire::generated::ResourceGrant;
use corona_wire::value::Message;
use corona_wire::{Framing, Service};

/// The state of a run.
pub(super) struct Play {
    pub(super) target: SocketAddr,
    pub(super) options: ReplayOptions,
    pub(super) older: Older,
    pub(super) peers: Peers,
    pub(super) heard: mpsc::Receiver<Heard>,
    pub(super) clock: Clock,
    pub(super) lines: HashMap<ConnectionId, Line>,
    pub(super) names: Names,
    pub(super) cluster: Cluster,
    pub(super) ledger: Ledger,
    /// Grants by session and request: recorded and live.
    pub(super) recorded_grants: BTreeMap<(String, i32), ResourceGrant>,
    pub(super) live_grants: BTreeMap<(String, i32), ResourceGrant>,
    pub(super) safe_mode: (Vec<bool>, Vec<bool>),
    pub(super) report: Report,
    /// The recorded time of the step that is played.
    pub(super) at: Duration,
    progress: watch::Sender<Progress>,
}

/// Recorded time as real time. It is set back whenever the manager under test is slower than the
/// recorded one, so that pauses between the steps of a client never get shorter.
pub(super) struct Clock {
    pub(super) zero: Duration,
    pub(super) base: Instant,
    pub(super) speed: f64,
}

impl Clock {
    pub(super) fn due(&self, at: Duration) -> Instant {
        self.base + at.saturating_sub(self.zero).div_f64(self.speed)
    }

    fn reached(&mut self, at: Duration) {
        self.base += Instant::now().saturating_duration_since(self.due(at));
    }
}

/// The session ids that the recorded manager handed out.
fn handed_out(steps: &[Step]) -> impl Iterator<Item = &str> {
    steps.iter().filter_map(|step| match &step.what {
        Happening::Answer(answer) if answer.name == "getNextSessionId" => {
            text(answer.body.as_ref().ok()?, "success")
        }
        _ => None,
    })
}

impl Play {
    /// For a play of `steps`.
    pub(super) fn new(
        target: SocketAddr,
        mut options: ReplayOptions,
        older: Older,
        peers: Peers,
        heard: mpsc::Receiver<Heard>,
        progress: watch::Sender<Progress>,
        steps: &[Step],
    ) -> Play {
        let speed = if options.speed > 0.0 { options.speed } else { 1.0 };
        let names = Names::new(options.sessions_per_log_dir, handed_out(steps));
        // Slots that older sessions held are free here.
        options.compare_notices &= older.sessions.is_empty();
        let report = Report {
            name: options.name.clone(),
            target: options.target.clone(),
            speed,
            ..Report::default()
        };
        Play {
            target,
            options,
            older,
            peers,
            heard,
            clock: Clock { zero: Duration::ZERO, base: Instant::now(), speed },
            lines: HashMap::new(),
            names,
            cluster: Cluster::default(),
            ledger: Ledger::default(),
            recorded_grants: BTreeMap::new(),
            live_grants: BTreeMap::new(),
            safe_mode: (Vec::new(), Vec::new()),
            report,
            at: Duration::ZERO,
            progress,
        }
    }

    /// Plays all steps and gives the verdict.
    pub(super) async fn run(
        mut self,
        steps: &[Step],
        mut restart: impl AsyncFnMut() -> Result<SocketAddr, NoRestart>,
    ) -> Report {
        let mut watch = Watch::start();
        let first = steps.iter().find(|step| matches!(step.what, Happening::Open));
        self.clock.zero = first.map_or(Duration::ZERO, |step| step.at);
        let end = steps.last().map_or(Duration::ZERO, |step| step.at);
        self.report.recorded_for = end.saturating_sub(self.clock.zero);
        self.clock.base = Instant::now();
        for (place, step) in steps.iter().enumerate() {
            let later = steps.get(place + 1..).unwrap_or_default();
            self.at = step.at;
            self.progress.send_replace(Progress {
                played: step.at.saturating_sub(self.clock.zero),
                of: self.report.recorded_for,
            });
            if matches!(step.what, Happening::Restart) {
                sleep_until(self.clock.due(step.at)).await;
                self.report.hold_ups.add(&watch.seen());
                let restarted = restart().await;
                // Waiting for a process may have stalled everything else here.
                watch = Watch::start();
                match restarted {
                    Ok(target) => self.meet_again(target),
                    Err(why) => {
                        self.cannot_go_on(step.at, &why, later);
                        break;
                    }
                }
            } else {
                self.step(step, later).await;
            }
            self.clock.reached(step.at);
        }
        let at = steps.last().map_or(Duration::ZERO, |step| step.at);
        self.settle(at).await;
        self.conclude_lines(at);
        self.conclude(at);
        self.report.hold_ups.add(&watch.seen());
        self.report
    }

    /// Receives what is still in flight when the recording ends. Effects of the time after it, such
    /// as expiries, are not part of the recording.
    async fn settle(&mut self, at: Duration) {
        let ReplayOptions { settle, node_expiry, session_expiry, .. } = self.options;
        let mut end = Instant::now() + settle;
        let expiry = self.cluster.next_expiry(at, node_expiry, session_expiry);
        // Where there are no pauses, everything expires in its own time.
        if let Some(expiry) = expiry.filter(|_| self.clock.speed.is_finite()) {
            end = end.min(self.clock.due(expiry));
        }
        while let Ok(Some(heard)) = timeout_at(end, self.heard.recv()).await {
            if let Heard::Session(_, SessionDriverCall::ProcessDeadNode { node: Some(node), .. }) =
                &heard
                && self.has_outlived(node, at)
            {
                break;
            }
            self.hear(heard);
        }
    }

    /// Whether a node that is dead now should not have died before `at`, the end of the recording.
    /// It has been silent for most of its expiry interval; the clock, which was set back since, may
    /// not show all of it.
    fn has_outlived(&self, node: &str, at: Duration) -> bool {
        let heartbeat_at = self.cluster.heartbeat_at(node);
        let both = heartbeat_at.zip(self.options.node_expiry);
        both.is_some_and(|(heartbeat_at, expiry)| {
            heartbeat_at + expiry > at
                && self.clock.speed.is_finite()
                && Instant::now() >= self.clock.due(heartbeat_at + expiry / 2)
        })
    }

    async fn step(&mut self, step: &Step, later: &[Step]) {
        let (at, connection) = (step.at, step.connection);
        let is_clients = matches!(
            step.what,
            Happening::Open
                | Happening::Send { .. }
                | Happening::HangUp { .. }
                | Happening::ProxyListens(_)
        );
        if is_clients {
            sleep_until(self.clock.due(at)).await;
        }
        self.hear_all();
        match &step.what {
            Happening::Open => {
                self.open(at, connection).await;
            }
            Happening::Send { raw, calls } => self.send(at, connection, raw, calls).await,
            Happening::HangUp { broken } => {
                if let Some(line) = self.lines.get_mut(&connection) {
                    line.hang_up(*broken).await;
                }
            }
            Happening::Answer(recorded) => self.answer(at, connection, recorded, later).await,
            Happening::HungUp => self.hung_up(at, connection).await,
            Happening::Notice(call) => self.notice(at, call).await,
            Happening::SafeMode(flag) => self.safe_mode(at, *flag).await,
            Happening::Restart => {}
            Happening::ProxyListens(listens) => {
                if let Err(error) = self.peers.set_proxy(*listens).await {
                    let listens = format!("listens: {listens}");
                    self.run_differs(at, "the proxy job tracker", listens, error.to_string());
                }
            }
        }
    }

    /// The cluster manager was started again; no connection has outlived that.
    fn meet_again(&mut self, target: SocketAddr) {
        self.hear_all();
        self.lines.clear();
        self.target = target;
    }

    /// The cluster manager under test was not started again where the recorded one was.
    fn cannot_go_on(&mut self, at: Duration, why: &NoRestart, later: &[Step]) {
        match why {
            NoRestart::Failed(why) => {
                let recorded = "the cluster manager is started again".to_owned();
                self.run_differs(at, "the whole recording", recorded, why.clone());
            }
            NoRestart::NotPossible => {
                let is_answer =
                    |step: &&Step| matches!(step.what, Happening::Answer(_) | Happening::HungUp);
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
        match Line::open(self.target).await {
            Ok(line) => {
                self.lines.insert(connection, line);
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
        for call in calls.iter().filter_map(|call| call.call::<ClusterManager>().ok()) {
            self.about_to_call(at, &call).await;
        }
        if self.lines.get(&connection).is_none_or(|line| line.is_dead) {
            // The manager under test has closed it; a client would reconnect.
            self.open(at, connection).await;
        }
        let bytes = self.rewrite(calls).unwrap_or_else(|| raw.to_vec());
        let Some(line) = self.lines.get_mut(&connection) else { return };
        line.unanswered.extend(calls.iter().filter(|call| is_call(call)).cloned());
        // If it cannot be sent, the missing reply shows it.
        let _ = line.send(&bytes).await;
    }

    /// A call changes what the model of the cluster knows; a session that starts needs its driver.
    async fn about_to_call(&mut self, at: Duration, call: &ClusterManagerCall) {
        if let ClusterManagerCall::SessionStart { info: Some(info), .. } = call {
            let recorded = (info.address.host.clone(), info.address.port);
            match self.peers.set_driver(&recorded, true).await {
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
        self.cluster.called(at, call);
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
        let call = self.next_unanswered(connection);
        let live = match self.next_arrival(at, connection).await {
            Ok(live) => live,
            Err(what) => {
                let expected = translate_message(recorded, &self.names);
                let found = self.about_answer(at, connection, call.as_ref(), recorded);
                return self.report.add(found((show(&expected), what)));
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
            same_slots: self.older.sessions.is_empty(),
            granted_soon: &soon,
        };
        let rule = match judge::answer(call.as_ref(), recorded, &live, &circumstances) {
            Verdict::Equal => return self.report.equal(&recorded.name),
            Verdict::Explained(rule) => Some(rule),
            Verdict::Different => None,
        };
        let expected = translate_message(recorded, &self.names);
        let found = self.about_answer(at, connection, call.as_ref(), recorded);
        let found = found((show(&expected), show(&live))).with_messages(&expected, &live);
        self.report.add(Finding { rule, ..found });
    }

    /// A finding about the answer to a call, still without the two sides.
    fn about_answer(
        &self,
        at: Duration,
        connection: ConnectionId,
        call: Option<&Message>,
        answer: &Message,
    ) -> impl FnOnce((String, String)) -> Finding + use<> {
        let place = format!("{} {} on connection {}", answer.name, answer.seqid, connection.0);
        let arguments =
            call.map(|call| body_text(&translate_message(call, &self.names), Shape::Short));
        let (about, arguments) = (About::Call(answer.name.clone()), arguments.unwrap_or_default());
        move |both| Finding { arguments, ..Finding::of_words(at, about, place, both) }
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
        let found = Finding::of_words(at, About::Call(method), place, both);
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
        self.lines.remove(&connection);
    }

    fn next_unanswered(&mut self, connection: ConnectionId) -> Option<Message> {
        self.lines.get_mut(&connection)?.unanswered.pop_front()
    }

    /// The next message on a connection, or what came instead.
    async fn next_arrival(
        &mut self,
        at: Duration,
        connection: ConnectionId,
    ) -> Result<Message, String> {
        let due = self.clock.due(at);
        let deadline = due + self.options.answer_within;
        let line = self.lines.get_mut(&connection).ok_or_else(|| NO_CONNECTION.to_owned())?;
        if line.is_dead {
            return Err(CLOSED.to_owned());
        }
        match timeout_at(deadline, line.next()).await {
            Ok(Arrival::Message(message)) => {
                self.report.hold_ups.answered(Instant::now().saturating_duration_since(due));
                Ok(*message)
            }
            Ok(Arrival::Closed) => Err(CLOSED.to_owned()),
            Ok(Arrival::Nonsense(why)) => Err(format!("no message: {why}")),
            Err(_) => Err(format!("nothing within {:?}", self.options.answer_within)),
        }
    }

    /// Something that concerns no single call went otherwise.
    pub(super) fn run_differs(
        &mut self,
        at: Duration,
        place: &str,
        recorded: String,
        live: String,
    ) {
        let both = (recorded, live);
        self.report.add(Finding::of_words(at, About::Run, place.to_owned(), both));
    }
}

pub(super) const CLOSED: &str = "the connection is closed";
const NO_CONNECTION: &str = "there is no connection";

/// The number of grants of a type to a session in these steps until `horizon`.
fn granted_until(steps: &[Step], horizon: Duration, handle: &str, kind: i32) -> usize {
    let of_step = |step: &Step| match &step.what {
        Happening::Notice(call) => match &**call {
            SessionDriverCall::GrantResource { handle: Some(told), granted: Some(granted) }
                if told == handle =>
            {
                granted.iter().filter(|grant| grant.type_.0 == kind).count()
            }
            _ => 0,
        },
        _ => 0,
    };
    steps.iter().take_while(|step| step.at <= horizon).map(of_step).sum()
}
