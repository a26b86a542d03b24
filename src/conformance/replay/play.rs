//! The run of a replay: one step after the other, and the comparison at the end.
//!
//! One task does it all; what arrives in the meantime waits in queues.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::cluster::Cluster;
use super::holdups::Watch;
use super::judge::{self, Circumstances, Verdict};
use super::ledger::{Ledger, Page, Topic};
use super::line::{Arrival, Line};
use super::names::Names;
use super::peers::{Heard, Peers};
use super::script::{Happening, Step, is_call};
use super::values::{show, text, translate_message};
use super::{Finding, ReplayOptions, Report, Rule};
use crate::conformance::capture::ConnectionId;
use crate::wire::calls::{ClusterManager, ClusterManagerCall, SessionDriverCall};
use crate::wire::generated::ResourceGrant;
use crate::wire::value::Message;
use crate::wire::{Framing, Service};

/// The state of a run.
pub(super) struct Play {
    target: SocketAddr,
    options: ReplayOptions,
    peers: Peers,
    heard: mpsc::Receiver<Heard>,
    clock: Clock,
    lines: HashMap<ConnectionId, Line>,
    names: Names,
    cluster: Cluster,
    ledger: Ledger,
    /// Grants by session and request: recorded and live.
    recorded_grants: BTreeMap<(String, i32), ResourceGrant>,
    live_grants: BTreeMap<(String, i32), ResourceGrant>,
    safe_mode: (Vec<bool>, Vec<bool>),
    report: Report,
}

/// Recorded time as real time. It is set back whenever the manager under test is slower than the
/// recorded one, so that pauses between the steps of a client never get shorter.
struct Clock {
    zero: Duration,
    base: Instant,
    speed: f64,
}

impl Clock {
    fn due(&self, at: Duration) -> Instant {
        self.base + at.saturating_sub(self.zero).div_f64(self.speed)
    }

    fn reached(&mut self, at: Duration) {
        self.base += Instant::now().saturating_duration_since(self.due(at));
    }
}

impl Play {
    pub(super) fn new(
        target: SocketAddr,
        options: ReplayOptions,
        peers: Peers,
        heard: mpsc::Receiver<Heard>,
    ) -> Play {
        let speed = if options.speed > 0.0 { options.speed } else { 1.0 };
        let report = Report { name: options.name.clone(), ..Report::default() };
        Play {
            target,
            options,
            peers,
            heard,
            clock: Clock { zero: Duration::ZERO, base: Instant::now(), speed },
            lines: HashMap::new(),
            names: Names::default(),
            cluster: Cluster::default(),
            ledger: Ledger::default(),
            recorded_grants: BTreeMap::new(),
            live_grants: BTreeMap::new(),
            safe_mode: (Vec::new(), Vec::new()),
            report,
        }
    }

    /// Plays all steps and gives the verdict.
    pub(super) async fn run(
        mut self,
        steps: &[Step],
        mut restart: impl AsyncFnMut() -> Result<SocketAddr, String>,
    ) -> Report {
        let mut watch = Watch::start();
        let first = steps.iter().find(|step| matches!(step.what, Happening::Open));
        self.clock.zero = first.map_or(Duration::ZERO, |step| step.at);
        self.clock.base = Instant::now();
        for (place, step) in steps.iter().enumerate() {
            let later = steps.get(place + 1..).unwrap_or_default();
            if matches!(step.what, Happening::Restart) {
                sleep_until(self.clock.due(step.at)).await;
                self.report.hold_ups.add(&watch.seen());
                let restarted = restart().await;
                // Whoever waits for a process may have held up everybody else here.
                watch = Watch::start();
                match restarted {
                    Ok(target) => self.meet_again(target),
                    Err(why) => {
                        self.cannot_go_on(step.at, why);
                        break;
                    }
                }
            } else {
                self.step(step, later).await;
            }
            self.clock.reached(step.at);
        }
        let end = Instant::now() + self.options.settle;
        while let Ok(Some(heard)) = timeout_at(end, self.heard.recv()).await {
            self.hear(heard);
        }
        let at = steps.last().map_or(Duration::ZERO, |step| step.at);
        self.conclude_lines(at);
        self.conclude(at);
        self.report.hold_ups.add(&watch.seen());
        self.report
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
                    let place = "the proxy job tracker".to_owned();
                    self.differ(at, place, format!("listens: {listens}"), error.to_string());
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

    fn cannot_go_on(&mut self, at: Duration, why: String) {
        let recorded = "the cluster manager is started again".to_owned();
        self.differ(at, "the whole recording".to_owned(), recorded, why);
    }

    async fn open(&mut self, at: Duration, connection: ConnectionId) {
        match Line::open(self.target).await {
            Ok(line) => {
                self.lines.insert(connection, line);
            }
            Err(error) => {
                let place = format!("connection {}", connection.0);
                self.differ(at, place, "accepted".to_owned(), error.to_string());
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
            // The manager under test has ended it; a client would connect anew.
            self.open(at, connection).await;
        }
        let bytes = self.rewrite(calls).unwrap_or_else(|| raw.to_vec());
        let Some(line) = self.lines.get_mut(&connection) else { return };
        line.unanswered.extend(calls.iter().filter(|call| is_call(call)).cloned());
        // When it cannot be sent, the missing answer tells.
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
                    let place = "session driver".to_owned();
                    self.differ(at, place, format!("{recorded:?} listens"), error.to_string());
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
        self.report.calls += 1;
        let call = self.next_unanswered(connection);
        let place = format!("connection {}, {} {}", connection.0, recorded.name, recorded.seqid);
        let live = match self.next_arrival(at, connection).await {
            Ok(live) => live,
            Err(what) => return self.differ(at, place, show(recorded), what),
        };
        if recorded.name == "getNextSessionId" && self.learn_session(recorded, &live) {
            self.report.equal_calls += 1;
            return;
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
            granted_soon: &soon,
        };
        match judge::answer(call.as_ref(), recorded, &live, &circumstances) {
            Verdict::Equal => self.report.equal_calls += 1,
            Verdict::Explained(rule) => {
                self.explain(at, place, show(recorded), show(&live), rule);
            }
            Verdict::Different => self.differ(at, place, show(recorded), show(&live)),
        }
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
        self.report.calls += 1;
        let place = format!("connection {}", connection.0);
        let closed = "the connection is closed".to_owned();
        let live = match self.next_arrival(at, connection).await {
            Ok(live) => live,
            Err(what) if what == CLOSED => {
                self.report.equal_calls += 1;
                return;
            }
            Err(what) => return self.differ(at, place, closed, what),
        };
        let call = self.next_unanswered(connection);
        let verdict = call.as_ref().map(|call| judge::answer_instead_of_close(call, &live));
        let recorded = call.as_ref().map_or(closed, |call| format!("closed after {}", show(call)));
        match verdict {
            Some(Verdict::Explained(rule)) => {
                self.explain(at, place, recorded, show(&live), rule);
            }
            _ => self.differ(at, place, recorded, show(&live)),
        }
        // The recorded client's connection is gone, so it says nothing more on it.
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

    /// The recording tells a session something: wait until the manager under test has told as
    /// much.
    async fn notice(&mut self, at: Duration, call: &SessionDriverCall) {
        match call {
            SessionDriverCall::GrantResource { handle: Some(handle), granted: Some(granted) } => {
                for grant in granted {
                    let topic = Topic::Granted(handle.clone(), grant.type_.0);
                    self.ledger.record(topic, [grant.id]);
                    self.recorded_grants.insert((handle.clone(), grant.id), grant.clone());
                }
            }
            SessionDriverCall::RevokeResource { handle: Some(handle), revoked, .. } => {
                for grant in revoked.iter().flatten() {
                    self.ledger.record(Topic::Revoked(handle.clone(), grant.type_.0), [grant.id]);
                }
            }
            SessionDriverCall::ProcessDeadNode { handle: Some(handle), node: Some(node) } => {
                let topic = Topic::DeadNode(handle.clone(), node.clone());
                self.ledger.record(topic.clone(), [0]);
                if !self.cluster.has_used(handle, node) {
                    // Its grants went elsewhere, so the death of this node is none of its business.
                    self.ledger.forgive(&topic);
                }
            }
            _ => {}
        }
        let deadline = self.clock.due(at) + self.options.notice_within;
        loop {
            let missing = self.ledger.missing();
            if missing.is_empty() {
                return;
            }
            match timeout_at(deadline, self.heard.recv()).await {
                Ok(Some(heard)) => self.hear(heard),
                // What is still missing at the end is reported there.
                _ => return missing.iter().for_each(|topic| self.ledger.forgive(topic)),
            }
        }
    }

    async fn safe_mode(&mut self, at: Duration, flag: bool) {
        self.safe_mode.0.push(flag);
        let deadline = self.clock.due(at) + self.options.notice_within;
        while self.safe_mode.1.len() < self.safe_mode.0.len() {
            match timeout_at(deadline, self.heard.recv()).await {
                Ok(Some(heard)) => self.hear(heard),
                _ => return,
            }
        }
    }

    fn hear_all(&mut self) {
        while let Ok(heard) = self.heard.try_recv() {
            self.hear(heard);
        }
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::SafeMode(flag) => self.safe_mode.1.push(flag),
            Heard::Session(port, call) => {
                for complaint in self.hear_session(port, &call) {
                    let place = "a notice to a session".to_owned();
                    let recorded = "nothing that a correct manager does not do".to_owned();
                    self.differ(self.now(), place, recorded, format!("{complaint}: {call:?}"));
                }
            }
        }
    }

    /// Enters what a session was told, and says what is wrong with it.
    fn hear_session(&mut self, port: u16, call: &SessionDriverCall) -> Vec<String> {
        let (SessionDriverCall::GrantResource { handle, .. }
        | SessionDriverCall::RevokeResource { handle, .. }
        | SessionDriverCall::ProcessDeadNode { handle, .. }) = call;
        let Some(live) = handle else { return vec!["no session is named".to_owned()] };
        let handle = self.names.recorded_session(live);
        let mut complaints = Vec::new();
        let driver = self.cluster.driver(&handle);
        let driver = driver.and_then(|(host, port)| self.names.live_driver(host, *port));
        if driver.is_none_or(|(_, expected)| *expected != i32::from(port)) {
            complaints.push("told to the driver of another session".to_owned());
        }
        match call {
            SessionDriverCall::GrantResource { granted, .. } => {
                for grant in granted.iter().flatten() {
                    complaints.extend(self.cluster.granted(&handle, grant).err());
                    complaints.extend(not_now(grant.granted_time));
                    self.ledger.arrive(Topic::Granted(handle.clone(), grant.type_.0), [grant.id]);
                    self.live_grants.insert((handle.clone(), grant.id), grant.clone());
                }
            }
            SessionDriverCall::RevokeResource { revoked, force, .. } => {
                if *force {
                    complaints.push("force is set, which the original never does".to_owned());
                }
                for grant in revoked.iter().flatten() {
                    complaints.extend(self.cluster.revoked(&handle, grant.id).err());
                    self.ledger.arrive(Topic::Revoked(handle.clone(), grant.type_.0), [grant.id]);
                }
            }
            SessionDriverCall::ProcessDeadNode { node, .. } => {
                let Some(node) = node else { return vec!["no node is named".to_owned()] };
                complaints.extend(self.cluster.died(&handle, node).err());
                self.ledger.arrive(Topic::DeadNode(handle.clone(), node.clone()), [0]);
            }
        }
        complaints
    }

    /// The present as recorded time.
    fn now(&self) -> Duration {
        let passed = Instant::now().saturating_duration_since(self.clock.base);
        let passed = passed.as_secs_f64() * self.clock.speed;
        self.clock.zero + Duration::try_from_secs_f64(passed).unwrap_or_default()
    }

    /// Nothing may have been said that nobody asked for.
    fn conclude_lines(&mut self, at: Duration) {
        let mut surplus = Vec::new();
        for (connection, line) in &mut self.lines {
            while let Some(arrival) = line.surplus() {
                let what = match arrival {
                    Arrival::Message(message) => show(&message),
                    Arrival::Nonsense(why) => format!("no message: {why}"),
                    Arrival::Closed => CLOSED.to_owned(),
                };
                surplus.push((*connection, what));
            }
        }
        surplus.sort_by_key(|(connection, _)| *connection);
        for (connection, what) in surplus {
            let place = format!("connection {}, at the end", connection.0);
            self.differ(at, place, "nothing more".to_owned(), what);
        }
    }

    /// Compares what sessions were told over the whole run.
    fn conclude(&mut self, at: Duration) {
        let pages: Vec<(Topic, Page)> =
            self.ledger.pages().map(|(topic, page)| (topic.clone(), page.clone())).collect();
        for (topic, page) in pages {
            self.report.recorded_notices += page.recorded.len();
            self.report.live_notices += page.live.len();
            self.conclude_topic(at, &topic, &page);
        }
        if self.safe_mode.0 != self.safe_mode.1 {
            let (recorded, live) =
                (format!("{:?}", self.safe_mode.0), format!("{:?}", self.safe_mode.1));
            self.differ(at, "safe mode, told to the proxy job tracker".to_owned(), recorded, live);
        }
        let slots = self.options.partitioning.as_deref().and_then(slots);
        for node in slots.map(|slots| self.cluster.overfull(slots)).unwrap_or_default() {
            self.differ(at, "slots".to_owned(), "no node is overfull".to_owned(), node);
        }
    }

    fn conclude_topic(&mut self, at: Duration, topic: &Topic, page: &Page) {
        let (recorded, live) = (format!("{:?}", page.recorded), format!("{:?}", page.live));
        let (only_recorded, only_live) = page.difference();
        let same = only_recorded.is_empty() && only_live.is_empty();
        match topic {
            Topic::Granted(handle, kind) => {
                let place = format!("grants of type {kind} to session {handle}");
                if !same || page.recorded != page.live {
                    self.differ(at, place, recorded, live);
                } else {
                    self.conclude_nodes(at, place, handle, &page.recorded);
                }
            }
            Topic::Revoked(handle, kind) => {
                let place = format!("revocations of type {kind} from session {handle}");
                if !same && page.recorded.len() == page.live.len() {
                    self.explain(at, place, recorded, live, Rule::FREE_ORDER);
                } else if !same {
                    self.differ(at, place, recorded, live);
                }
            }
            Topic::DeadNode(handle, node) => {
                let place = format!("death of {node}, told to session {handle}");
                if !same && page.live.is_empty() && !self.cluster.has_used(handle, node) {
                    self.explain(at, place, recorded, live, Rule::FREE_NODE);
                } else if !same {
                    self.differ(at, place, recorded, live);
                }
            }
        }
    }

    /// The same requests were granted: on which nodes?
    fn conclude_nodes(&mut self, at: Duration, place: String, handle: &str, ids: &[i32]) {
        let mut nodes = (String::new(), String::new());
        let mut local = (0, 0);
        for id in ids {
            let key = (handle.to_owned(), *id);
            let (Some(recorded), Some(live)) =
                (self.recorded_grants.get(&key), self.live_grants.get(&key))
            else {
                continue;
            };
            local.0 += usize::from(self.cluster.is_local(handle, recorded));
            local.1 += usize::from(self.cluster.is_local(handle, live));
            if recorded.node_name != live.node_name {
                nodes.0.push_str(&format!("{id} on {}; ", recorded.node_name));
                nodes.1.push_str(&format!("{id} on {}; ", live.node_name));
            }
        }
        if local.1 < local.0 {
            let count = |local| format!("{local} on a host that was asked for");
            self.differ(at, place, count(local.0), count(local.1));
        } else if !nodes.0.is_empty() {
            self.explain(at, place, nodes.0, nodes.1, Rule::FREE_NODE);
        }
    }

    fn differ(&mut self, at: Duration, place: String, recorded: String, live: String) {
        self.report.add(Finding { at, place, recorded, live, rule: None });
    }

    fn explain(&mut self, at: Duration, place: String, recorded: String, live: String, rule: Rule) {
        self.report.add(Finding { at, place, recorded, live, rule: Some(rule) });
    }
}

const CLOSED: &str = "the connection is closed";
const NO_CONNECTION: &str = "there is no connection";

/// How many grants of a type to a session the recording tells in these steps until `horizon`.
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

/// A grant's time is that of this machine. A minute is far more than any delay here.
fn not_now(granted_ms: i64) -> Option<String> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
    let off_ms = now_ms.saturating_sub(granted_ms).saturating_abs();
    (off_ms > 60_000).then(|| format!("the time of the grant is {off_ms} ms off"))
}

/// Slots by number of CPUs and type. Spec: cluster-manager/03 §2.
fn slots(partitioning: &str) -> Option<impl Fn(i16, i32) -> usize + use<>> {
    let table: BTreeMap<String, BTreeMap<String, usize>> =
        serde_json::from_str(partitioning).ok()?;
    Some(move |cpus: i16, kind: i32| {
        let name = match kind {
            0 => "MAP",
            1 => "REDUCE",
            _ => "JOBTRACKER",
        };
        let of = |cpus: i16| table.get(&cpus.to_string());
        let count = |row: &BTreeMap<String, usize>| row.get(name).copied().unwrap_or(0);
        match (of(cpus), of(1)) {
            (Some(row), _) => count(row),
            (None, Some(one)) => count(one).saturating_mul(usize::try_from(cpus).unwrap_or(0)),
            (None, None) => 0,
        }
    })
}
