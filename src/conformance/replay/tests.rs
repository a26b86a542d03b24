//! Replays against a manager that behaves exactly as recorded, and against managers that lie.
//!
//! The scripted manager follows the recording step by step in virtual time, with session ids, times and ports
//! of its own. Each lie is a change of its script, and must show in the report.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::dry_manager::DriverPorts;
use super::names::LiveNames;
use super::script::StepKind;
use super::values::translate_message;
use super::world::{Arrival, ReplayTarget};
use super::*;
use crate::answers::text;
use crate::capture::ConnectionId;
use crate::conversation::{Part, Said};
use crate::recorded::{JOBS, SCENARIOS, conversations_of, directory};
use corona_wire::calls::{ClusterManager, SessionDriverCall};
use corona_wire::generated::ResourceGrant;
use corona_wire::value::{Message, MessageKind, StreamReader, Value};
use corona_wire::{Framing, Service};

/// The recording called `name`, such as `scenarios/grants`.
fn recorded(name: &str) -> Vec<Conversation> {
    conversations_of(&directory(name))
}

const PARTITIONING: &str = r#"{"1":{"MAP":1,"REDUCE":1,"JOBTRACKER":1},
    "2":{"MAP":2,"REDUCE":1,"JOBTRACKER":1},"4":{"MAP":4,"REDUCE":2,"JOBTRACKER":1},
    "8":{"MAP":8,"REDUCE":4,"JOBTRACKER":2}}"#;

fn options(name: &str) -> ReplayOptions {
    ReplayOptions {
        name: name.to_owned(),
        partitioning: Some(PARTITIONING.to_owned()),
        ..ReplayOptions::default()
    }
}

/// Plays a recording against a manager that follows a changed script.
fn play(name: &str, change: impl FnOnce(&mut Vec<Step>)) -> Report {
    play_with(name, options(name), change)
}

fn play_with(name: &str, options: ReplayOptions, change: impl FnOnce(&mut Vec<Step>)) -> Report {
    let conversations = recorded(name);
    let mut steps = script(&conversations);
    change(&mut steps);
    play_script(&conversations, options, ScriptedManager::new(steps)).0
}

/// Plays conversations against a manager; returns the report, and the time that the play took.
fn play_script(
    conversations: &[Conversation],
    options: ReplayOptions,
    manager: ScriptedManager,
) -> (Report, Duration) {
    let (steps, older, gaps) = steps_of(conversations, &options);
    let mut play = Play::new(manager, options, older, gaps, watch::Sender::default(), &steps);
    at_once(play.run(&steps));
    (play.report, play.world.now)
}

/// The output of a future that never waits for anything outside.
pub(super) fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the play waits for something outside its world"),
    }
}

/// A manager that follows a script, in virtual time. It replies and notifies at the recorded times, or as
/// soon as a call has arrived that came later than recorded.
struct ScriptedManager {
    now: Duration,
    /// The recorded time at which virtual time begins.
    zero: Duration,
    steps: VecDeque<Step>,
    connections: HashMap<ConnectionId, Pipe>,
    callbacks: VecDeque<(Duration, Callback)>,
    names: LiveNames,
    /// The recorded addresses of session drivers, by recorded session.
    drivers: HashMap<String, (String, i32)>,
    /// The live ports of session drivers, by recorded address.
    ports: DriverPorts,
    /// Whether connections are refused.
    refuses: bool,
    /// Restarts that the player asked for, and that the script has not reached.
    restarts: usize,
}

/// One connection of a scripted manager.
struct Pipe {
    from_client: StreamReader,
    /// Bytes from the client, as they were sent, that no step has taken.
    sent: VecDeque<Vec<u8>>,
    has_hung_up: bool,
    to_client: VecDeque<Arrival>,
}

impl ScriptedManager {
    fn new(steps: Vec<Step>) -> Self {
        let open = steps.iter().find(|step| matches!(step.what, StepKind::Open));
        Self {
            now: Duration::ZERO,
            zero: open.map_or(Duration::ZERO, |step| step.at),
            steps: steps.into(),
            connections: HashMap::new(),
            callbacks: VecDeque::new(),
            names: LiveNames::default(),
            drivers: HashMap::new(),
            ports: DriverPorts::default(),
            refuses: false,
            restarts: 0,
        }
    }

    /// Lets time pass until `is_there`, at most until `deadline`.
    fn pass(&mut self, deadline: Duration, is_there: impl Fn(&Self) -> bool) {
        loop {
            self.take_steps();
            if is_there(self) {
                return;
            }
            let due = self.steps.front().map(|step| self.due(step));
            match due.filter(|due| (self.now + Duration::from_nanos(1)..=deadline).contains(due)) {
                Some(due) => self.now = due,
                None => return self.now = self.now.max(deadline),
            }
        }
    }

    fn due(&self, step: &Step) -> Duration {
        step.at.saturating_sub(self.zero)
    }

    /// Takes the steps whose time has come and whose calls have arrived.
    fn take_steps(&mut self) {
        while let Some(step) = self.steps.pop_front() {
            if !self.take(&step) {
                return self.steps.push_front(step);
            }
        }
    }

    fn take(&mut self, step: &Step) -> bool {
        let is_due = self.due(step) <= self.now;
        let Some(pipe) = self.connections.get_mut(&step.connection) else {
            return match &step.what {
                StepKind::Notice(call) if is_due => self.notify(call),
                StepKind::Restart if self.restarts > 0 => {
                    self.restarts -= 1;
                    true
                }
                StepKind::SafeMode(flag) if is_due => {
                    self.callbacks.push_back((self.now, Callback::SafeMode(*flag)));
                    true
                }
                StepKind::ProxyListens(_) => true,
                _ => false,
            };
        };
        match &step.what {
            StepKind::Open => true,
            StepKind::Send { raw, calls } => {
                let Some(sent) = pipe.sent.pop_front() else { return false };
                if calls.is_empty() {
                    assert_eq!(&sent, raw);
                }
                pipe.from_client.push(&sent);
                for recorded in calls {
                    self.take_call(step.connection, recorded);
                }
                true
            }
            StepKind::Answer(message) if is_due => self.answer(step.connection, message),
            StepKind::HungUp if is_due => {
                pipe.to_client.push_back(Arrival::Closed);
                true
            }
            StepKind::HangUp { .. } => pipe.has_hung_up,
            _ => false,
        }
    }

    /// Takes the next call on a connection.
    fn take_call(&mut self, connection: ConnectionId, recorded: &Message) {
        let pipe = self.connections.get_mut(&connection).unwrap();
        let live = pipe.from_client.next_message().unwrap().unwrap();
        if recorded.name == "sessionStart" {
            let port = |message: &Message| {
                let info = message.body.as_ref().ok()?.field("info")?;
                let address = info.field("address")?;
                let Value::I32(port) = address.field("port")? else { return None };
                Some((text(address, "host")?.to_owned(), *port))
            };
            let handle = crate::answers::handle_of(recorded);
            if let (Some(handle), Some(recorded), Some(live)) =
                (handle, port(recorded), port(&live))
            {
                self.drivers.insert(handle.to_owned(), recorded.clone());
                self.names.driver(recorded, live);
            }
        }
        assert_eq!(live, translate_message(recorded, &self.names));
    }

    fn answer(&mut self, connection: ConnectionId, message: &Message) -> bool {
        if message.name == "getNextSessionId"
            && let Ok(body) = &message.body
            && let Some(id) = text(body, "success")
        {
            // Other ids than the recorded ones.
            let number: u32 = id.rsplit('.').next().unwrap().parse().unwrap();
            self.names.session(id, &format!("203001010000.{}", 100 + number));
        }
        let live = translate_message(message, &self.names);
        let pipe = self.connections.get_mut(&connection).unwrap();
        pipe.to_client.push_back(Arrival::Message(Box::new(live)));
        true
    }

    fn notify(&mut self, call: &SessionDriverCall) -> bool {
        let mut call = call.clone();
        let (SessionDriverCall::GrantResource { handle, .. }
        | SessionDriverCall::RevokeResource { handle, .. }
        | SessionDriverCall::ProcessDeadNode { handle, .. }) = &mut call;
        let recorded = handle.clone().unwrap();
        *handle = Some(self.names.live_text(&recorded));
        if let SessionDriverCall::GrantResource { granted, .. } = &mut call {
            for grant in granted.iter_mut().flatten() {
                grant.granted_time = self.epoch_ms();
            }
        }
        let port = self.ports.open(&self.drivers[&recorded]).port();
        self.callbacks.push_back((self.now, Callback::Session(port, call)));
        true
    }
}

impl ReplayTarget for ScriptedManager {
    fn now(&self) -> Duration {
        self.now
    }

    fn epoch_ms(&self) -> i64 {
        1_900_000_000_000 + self.now.as_millis() as i64
    }

    async fn wait_until(&mut self, due: Duration) {
        self.pass(due, |_| false);
    }

    async fn connect(&mut self, connection: ConnectionId) -> io::Result<()> {
        if self.refuses {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let pipe = Pipe {
            from_client: StreamReader::new(ClusterManager::schema(), Framing::Framed, 1 << 20),
            sent: VecDeque::new(),
            has_hung_up: false,
            to_client: VecDeque::new(),
        };
        self.connections.insert(connection, pipe);
        Ok(())
    }

    async fn send(&mut self, connection: ConnectionId, bytes: &[u8]) -> io::Result<()> {
        let pipe = self.connections.get_mut(&connection).ok_or(io::ErrorKind::NotConnected)?;
        pipe.sent.push_back(bytes.to_vec());
        Ok(())
    }

    async fn hang_up(&mut self, connection: ConnectionId, _broken: bool) {
        self.connections.get_mut(&connection).unwrap().has_hung_up = true;
    }

    fn close(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
    }

    async fn arrival(&mut self, connection: ConnectionId, deadline: Duration) -> Option<Arrival> {
        self.pass(deadline, |manager| !manager.connections[&connection].to_client.is_empty());
        self.present_arrival(connection)
    }

    fn present_arrival(&mut self, connection: ConnectionId) -> Option<Arrival> {
        self.connections.get_mut(&connection)?.to_client.pop_front()
    }

    async fn callback(&mut self, deadline: Duration) -> Option<(Duration, Callback)> {
        self.pass(deadline, |manager| !manager.callbacks.is_empty());
        self.present_callback()
    }

    fn present_callback(&mut self) -> Option<(Duration, Callback)> {
        self.callbacks.pop_front()
    }

    async fn set_proxy(&mut self, _listens: bool) -> io::Result<()> {
        Ok(())
    }

    async fn open_driver(&mut self, recorded: &(String, i32)) -> io::Result<SocketAddr> {
        Ok(self.ports.open(recorded))
    }

    async fn restart(&mut self) -> Result<(), NoRestart> {
        self.connections.clear();
        self.restarts += 1;
        Ok(())
    }

    fn stalls(&self) -> Stalls {
        Stalls::default()
    }
}

/// All recordings without a restart of the cluster manager.
fn all() -> impl Iterator<Item = String> {
    let scenarios = SCENARIOS.iter().map(|name| format!("scenarios/{name}"));
    scenarios.chain(JOBS.iter().map(|name| format!("jobs/{name}")))
}

#[test]
fn the_recorded_manager_agrees_with_itself() {
    for name in all() {
        let report = play(&name, |_| {});
        assert!(report.agrees() && report.explained.is_empty(), "{report}");
        assert!(report.calls.compared() >= 4, "{report}");
        assert_eq!(report.calls.equal, report.calls.compared(), "{report}");
        assert_eq!(report.notices.recorded, report.notices.live, "{report}");
    }
}

/// The findings about one changed script: unexplained ones, and the rows of the others.
fn findings(name: &str, change: impl FnOnce(&mut Vec<Step>)) -> (Vec<String>, Vec<Rule>) {
    let report = play(name, change);
    let rules = report.explained.iter().filter_map(|finding| finding.rule).collect();
    let different = report.different.iter().map(ToString::to_string).collect();
    (different, rules)
}

/// The notification of a step.
fn notice(step: &mut Step) -> Option<&mut SessionDriverCall> {
    match &mut step.what {
        StepKind::Notice(call) => Some(call),
        _ => None,
    }
}

/// The first grants.
fn grants(steps: &mut [Step]) -> &mut Vec<ResourceGrant> {
    let granted = steps.iter_mut().filter_map(notice).find_map(|call| match call {
        SessionDriverCall::GrantResource { granted, .. } => granted.as_mut(),
        _ => None,
    });
    granted.unwrap()
}

/// The place of the first notification of a dead node.
fn death(steps: &mut [Step]) -> usize {
    let is_death = |step| matches!(notice(step), Some(SessionDriverCall::ProcessDeadNode { .. }));
    steps.iter_mut().position(is_death).unwrap()
}

/// Checks that one changed script leads to a finding with these words.
fn check_lie(name: &str, words: &[&str], change: impl FnOnce(&mut Vec<Step>)) {
    let (different, _) = findings(name, change);
    let shows = |finding: &String| words.iter().all(|word| finding.contains(word));
    assert!(different.iter().any(shows), "{words:?}: {different:#?}");
}

#[test]
fn a_manager_that_refuses_connections_does_not_agree() {
    let manager = ScriptedManager { refuses: true, ..ScriptedManager::new(Vec::new()) };
    let name = "scenarios/session_lifecycle";
    let (report, _) = play_script(&recorded(name), options(name), manager);
    assert!(!report.agrees() && report.calls.equal == 0, "{report}");
}

#[test]
fn more_grants_than_a_node_has_slots_show() {
    check_lie("scenarios/exclude_hosts", &["n2: 3 of 2 MAP slots are granted"], |steps| {
        let mut one_more = grants(steps)[0].clone();
        one_more.id = 2;
        grants(steps).push(one_more);
    });
}

#[test]
fn another_node_is_a_free_choice() {
    let (different, rules) = findings("scenarios/grants", |steps| {
        // The first two job trackers, one on each node, swapped.
        let granted = grants(steps);
        let (a, b) = (granted[0].id, granted[1].id);
        granted[0].id = b;
        granted[1].id = a;
        granted.reverse();
    });
    assert_eq!((different.len(), rules), (0, vec![Rule::FREE_NODE]), "{different:#?}");
}

#[test]
fn a_host_that_was_asked_for_and_not_taken_shows() {
    let (different, _) = findings("scenarios/node_locality", |steps| {
        // Two grants of different hosts exchange their nodes.
        let granted = grants(steps);
        let other = granted.iter().position(|grant| grant.node_name != granted[0].node_name);
        let (first, other) = (granted[0].clone(), other.unwrap());
        let taken = std::mem::replace(&mut granted[other], first.clone());
        granted[other].id = taken.id;
        granted[0] = ResourceGrant { id: first.id, ..taken };
    });
    assert_eq!(different.len(), 1, "{different:#?}");
    assert!(different[0].contains("on a preferred host"), "{different:#?}");
}

#[test]
fn a_repeated_notification_of_a_dead_node_shows() {
    check_lie("scenarios/dead_node", &["dead node n1"], |steps| {
        let place = death(steps);
        steps.insert(place, steps[place].clone());
    });
}

/// While the play waits for notifications that are in flight at the end, nodes expire that were alive at the
/// end of the recording.
#[test]
fn expiries_after_the_recording_are_not_compared() {
    let dies_at_the_end = |steps: &mut Vec<Step>| {
        let place = death(steps);
        let death = steps[place].clone();
        steps.push(Step { at: steps.last().unwrap().at, ..death });
    };
    // Its last heartbeat is 0.7 s before the end.
    for (expiry_s, agrees) in [(Some(1), true), (None, false), (Some(600_000), false)] {
        let options = ReplayOptions {
            settle: Duration::from_secs(2),
            node_expiry: expiry_s.map(Duration::from_secs),
            ..options("scenarios/dead_node")
        };
        let report = play_with("scenarios/dead_node", options, dies_at_the_end);
        assert_eq!(report.agrees(), agrees, "{expiry_s:?}: {report}");
    }
}

#[test]
fn a_reordered_revocation_shows() {
    check_lie(
        "scenarios/preemption",
        &["MAP revocations", "recorded: requests 7, 6", "live:     requests 5, 6"],
        |steps| {
            let revoked = steps.iter_mut().filter_map(notice).find_map(|call| match call {
                SessionDriverCall::RevokeResource { revoked, .. } => revoked.as_mut(),
                _ => None,
            });
            let revoked = revoked.unwrap();
            assert!(revoked.len() > 1);
            revoked.reverse();
        },
    );
}

#[test]
fn an_answer_where_the_original_hung_up_shows() {
    let (different, _) = findings("scenarios/wire", |steps| {
        let hung_up = steps.iter_mut().find(|step| matches!(step.what, StepKind::HungUp));
        let body = Ok(Value::Struct(vec![]));
        hung_up.unwrap().what = StepKind::Answer(Box::new(Message {
            kind: MessageKind::Exception,
            name: "?".to_owned(),
            seqid: 0,
            body,
        }));
    });
    assert_eq!(different.len(), 1, "{different:#?}");
    assert!(different[0].contains("recorded: the connection is closed"), "{different:#?}");
}

#[test]
fn unsolicited_messages_and_ends_show() {
    check_lie("scenarios/session_lifecycle", &["nothing more", "getSessionInfo"], |steps| {
        let is_answer = |step: &&Step| matches!(step.what, StepKind::Answer(_));
        let last = steps.iter().rfind(is_answer).unwrap().clone();
        let place = steps.iter().rposition(|step| matches!(step.what, StepKind::Answer(_)));
        steps.insert(place.unwrap(), last);
    });
    check_lie("scenarios/dead_node", &["connection is closed"], |steps| {
        let place = steps.iter().rposition(|step| matches!(step.what, StepKind::Answer(_)));
        let hung_up = Step { what: StepKind::HungUp, ..steps[place.unwrap()].clone() };
        steps.truncate(place.unwrap());
        steps.push(hung_up);
    });
}

#[test]
fn a_recording_that_begins_in_the_middle_is_played_without_its_older_sessions() {
    let is_start = |part: &Part| match &part.what {
        Said::Messages { messages, .. } => {
            messages.iter().any(|message| message.name.starts_with("sessionStart"))
        }
        _ => false,
    };
    // Neither session has a beginning.
    let mut conversations = recorded("scenarios/session_expiry");
    for conversation in &mut conversations {
        conversation.parts.retain(|part| !is_start(part));
    }
    let sessions = older_sessions(&conversations);
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    let (without, older) = without(&conversations, sessions);
    assert!(older.calls >= 5, "{older:?}");
    let steps = script(&without);
    let manager = ScriptedManager::new(steps);
    let (report, _) = play_script(&conversations, options("middle"), manager);
    assert!(report.agrees() && report.explained.is_empty(), "{report}");
    assert!(report.calls.compared() > 3, "{report}");
    let said = report.not_compared.join(" ");
    assert!(said.starts_with("2 sessions that are older than the recording"), "{said}");
}

#[test]
fn no_recording_of_the_original_has_older_sessions() {
    for name in all() {
        assert_eq!(older_sessions(&recorded(&name)), std::collections::BTreeSet::new(), "{name}");
    }
}

#[test]
fn pauses_are_kept_and_shortened_by_the_speed() {
    let conversations = recorded("scenarios/locality_wait");
    for (speed, took_ms) in [(1.0, 2_141), (10.0, 214), (f64::INFINITY, 0)] {
        let options = ReplayOptions {
            speed,
            answer_within: Duration::ZERO,
            notice_within: Duration::ZERO,
            settle: Duration::ZERO,
            ..options("pauses")
        };
        let silent = ScriptedManager::new(Vec::new());
        let (_, took) = play_script(&conversations, options, silent);
        assert_eq!(took.as_millis(), took_ms, "{speed}");
    }
}

/// The reply to the `n`th call of a method comes this much later than recorded, and all that follows, too.
fn delay(steps: &mut [Step], method: &str, by: Duration) {
    let is_reply = |step: &Step| match &step.what {
        StepKind::Answer(message) => message.name == method,
        _ => false,
    };
    let first = steps.iter().position(is_reply).unwrap();
    steps[first..].iter_mut().for_each(|step| step.at += by);
}

#[test]
fn a_late_reply_is_counted_and_one_that_does_not_come_in_time_shows() {
    for (by_ms, late, agrees) in [(40, 0, true), (60, 1, true), (4_999, 1, true), (5_001, 0, false)]
    {
        let by = Duration::from_millis(by_ms);
        let report = play("scenarios/session_lifecycle", |steps| {
            delay(steps, "getSessionInfo", by);
        });
        assert_eq!(report.agrees(), agrees, "{by_ms}: {report}");
        assert_eq!(report.stalls.late_answers, late, "{by_ms}: {report}");
    }
    check_lie("scenarios/session_lifecycle", &["getSessionInfo", "nothing within 5 s"], |steps| {
        delay(steps, "getSessionInfo", Duration::from_millis(5_001));
    });
}

#[test]
fn the_play_goes_on_with_a_restarted_manager() {
    // The recording, a refused connection, and the same recording an hour later.
    let mut conversations = recorded("scenarios/wire");
    let hour = Duration::from_secs(3_600);
    let again: Vec<Conversation> = conversations.iter().map(|one| shifted(one, hour)).collect();
    let mut refused = shifted(&conversations[0], hour / 2);
    refused.accepted = false;
    refused.parts.clear();
    let before = play_with("scenarios/wire", options("wire"), |_| {}).calls.equal;
    conversations.push(refused);
    conversations.extend(again);
    let manager = ScriptedManager::new(script(&conversations));
    let (report, took) = play_script(&conversations, options("restart"), manager);
    assert!(report.agrees(), "{report}");
    assert_eq!(report.calls.equal, 2 * before, "{report}");
    assert!(took > hour, "{took:?}");
}

/// A conversation as if it had been recorded later, on connections of its own.
fn shifted(conversation: &Conversation, by: Duration) -> Conversation {
    let mut shifted = conversation.clone();
    shifted.connection.0 += by.as_millis() as u64;
    shifted.opened_at += by;
    shifted.parts.iter_mut().for_each(|part| part.at += by);
    shifted
}

/// The same over sockets, with the machine's clock.
#[tokio::test]
async fn a_stage_plays_over_sockets() {
    let conversations = recorded("scenarios/session_lifecycle");
    let nobody = corona_net::testing::nobody();
    let options = ReplayOptions { speed: f64::INFINITY, ..options("nobody") };
    let stage = Stage::set(&conversations, options).await.unwrap();
    let report = stage.play(nobody.address(), async || Err(NoRestart::NotPossible)).await;
    assert!(!report.agrees());
    assert_eq!(report.calls.equal, 0, "{report}");
}
