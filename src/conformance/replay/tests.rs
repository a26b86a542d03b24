//! The harness against a manager that does exactly what was recorded, and against one that lies.
//!
//! The pretended manager follows the recording step by step, with session ids, times and ports of
//! its own. Each lie is a change of its script, and must show in the report.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::names::Names;
use super::script::Happening;
use super::values::translate_message;
use super::*;
use crate::capture::{Capture, ConnectionId, Limits};
use crate::conversation::{Part, Ports, Said, conversations};
use corona_wire::calls::{ClusterManager, ClusterManagerCall, SessionDriver, SessionDriverCall};
use corona_wire::client::{Client, ClientOptions};
use corona_wire::generated::ResourceGrant;
use corona_wire::value::{Message, MessageKind, StreamReader, Value};
use corona_wire::{Framing, Service};

/// The recording called `name`, such as `scenarios/grants`.
fn recorded(name: &str) -> Vec<Conversation> {
    let root =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("fixtures/recordings");
    let file = std::fs::File::open(root.join(name).join("traffic.pcap")).unwrap();
    let capture = Capture::read(file, &Limits::default()).unwrap();
    let (cluster_manager, proxy) =
        if name.starts_with("jobs") { (18_888, 18_036) } else { (18_800, 18_802) };
    conversations(&capture, &Ports { cluster_manager, proxy_job_tracker: Some(proxy) })
}

const PARTITIONING: &str = r#"{"1":{"MAP":1,"REDUCE":1,"JOBTRACKER":1},
    "2":{"MAP":2,"REDUCE":1,"JOBTRACKER":1},"4":{"MAP":4,"REDUCE":2,"JOBTRACKER":1},
    "8":{"MAP":8,"REDUCE":4,"JOBTRACKER":2}}"#;

fn quick(name: &str) -> ReplayOptions {
    ReplayOptions {
        name: name.to_owned(),
        speed: 1_000.0,
        // A busy machine may be held up for a second at a time.
        answer_within: Duration::from_secs(20),
        notice_within: Duration::from_secs(3),
        settle: Duration::from_millis(20),
        partitioning: Some(PARTITIONING.to_owned()),
        ..ReplayOptions::default()
    }
}

/// Plays a recording against a manager that follows a changed script.
async fn play(name: &str, change: impl FnOnce(&mut Vec<Step>)) -> Report {
    // What nobody asked for comes at the end.
    let options = ReplayOptions { settle: Duration::from_millis(500), ..quick(name) };
    play_with(name, options, change).await
}

async fn play_with(
    name: &str,
    options: ReplayOptions,
    change: impl FnOnce(&mut Vec<Step>),
) -> Report {
    let conversations = recorded(name);
    let mut steps = script(&conversations);
    change(&mut steps);
    play_script(&conversations, options, steps).await
}

/// Plays conversations against a manager that follows a script.
async fn play_script(
    conversations: &[Conversation],
    options: ReplayOptions,
    steps: Vec<Step>,
) -> Report {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let manager: JoinHandle<()> = tokio::spawn(async move {
        let mut pretender = Pretender::new(listener);
        for step in &steps {
            pretender.step(step).await;
        }
        // Stays until the harness has seen the end.
        std::future::pending::<()>().await;
    });
    let stage = Stage::set(conversations, options).await.unwrap();
    let report = stage.play(target, async || Ok(target)).await;
    manager.abort();
    report
}

async fn not_again() -> Result<SocketAddr, NoRestart> {
    Err(NoRestart::NotPossible)
}

/// A manager that follows a script.
struct Pretender {
    listener: TcpListener,
    streams: HashMap<ConnectionId, (TcpStream, StreamReader)>,
    names: Names,
    /// Where the driver of a session is, by its recorded id.
    drivers: HashMap<String, (String, i32)>,
    clients: HashMap<(String, i32), Client<SessionDriver>>,
}

impl Pretender {
    fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            streams: HashMap::new(),
            names: Names::default(),
            drivers: HashMap::new(),
            clients: HashMap::new(),
        }
    }

    async fn step(&mut self, step: &Step) {
        match &step.what {
            Happening::Open => {
                let (stream, _) = self.listener.accept().await.unwrap();
                let reader = StreamReader::new(ClusterManager::schema(), Framing::Framed, 1 << 20);
                self.streams.insert(step.connection, (stream, reader));
            }
            Happening::Send { raw, calls } if calls.is_empty() => {
                let (stream, _) = self.streams.get_mut(&step.connection).unwrap();
                let mut bytes = vec![0; raw.len()];
                stream.read_exact(&mut bytes).await.unwrap();
                assert_eq!(&bytes, raw);
            }
            Happening::Send { calls, .. } => {
                for recorded in calls {
                    let live = self.next_call(step.connection).await;
                    self.learn(recorded, &live);
                    assert_eq!(live, translate_message(recorded, &self.names));
                }
            }
            Happening::Answer(message) => self.answer(step.connection, message).await,
            Happening::HungUp => drop(self.streams.remove(&step.connection)),
            Happening::Notice(call) => self.tell(call).await,
            Happening::HangUp { .. } => {
                if let Some((stream, _)) = self.streams.get_mut(&step.connection) {
                    while stream.read(&mut [0; 4_096]).await.is_ok_and(|size| size > 0) {}
                }
            }
            Happening::SafeMode(_) | Happening::ProxyListens(_) | Happening::Restart => {}
        }
    }

    async fn next_call(&mut self, connection: ConnectionId) -> Message {
        let (stream, reader) = self.streams.get_mut(&connection).unwrap();
        loop {
            if let Some(message) = reader.next_message().unwrap() {
                return message;
            }
            let mut buffer = [0; 4_096];
            let size = stream.read(&mut buffer).await.unwrap();
            assert!(size > 0, "the client is gone");
            reader.push(&buffer[..size]);
        }
    }

    /// Where the session drivers are.
    fn learn(&mut self, recorded: &Message, live: &Message) {
        let start = |message: &Message| match message.call::<ClusterManager>() {
            Ok(ClusterManagerCall::SessionStart { handle: Some(handle), info: Some(info) }) => {
                Some((handle, (info.address.host, info.address.port)))
            }
            _ => None,
        };
        if let (Some((handle, recorded)), Some((_, live))) = (start(recorded), start(live)) {
            self.drivers.insert(handle, live.clone());
            self.names.driver(recorded, live);
        }
    }

    async fn answer(&mut self, connection: ConnectionId, message: &Message) {
        if message.name == "getNextSessionId"
            && let Ok(body) = &message.body
            && let Some(Value::String(id)) = body.field("success")
        {
            // Other ids than the recorded ones.
            let number: u32 = id.rsplit('.').next().unwrap().parse().unwrap();
            self.names.session(id, &format!("203001010000.{}", 100 + number));
        }
        let live = translate_message(message, &self.names);
        let mut bytes = Vec::new();
        live.write(ClusterManager::schema(), Framing::Framed, &mut bytes).unwrap();
        let (stream, _) = self.streams.get_mut(&connection).unwrap();
        stream.write_all(&bytes).await.unwrap();
    }

    async fn tell(&mut self, call: &SessionDriverCall) {
        let mut call = call.clone();
        let (SessionDriverCall::GrantResource { handle, .. }
        | SessionDriverCall::RevokeResource { handle, .. }
        | SessionDriverCall::ProcessDeadNode { handle, .. }) = &mut call;
        let recorded = handle.clone().unwrap();
        *handle = Some(self.names.live_text(&recorded));
        if let SessionDriverCall::GrantResource { granted, .. } = &mut call {
            for grant in granted.iter_mut().flatten() {
                let now = std::time::SystemTime::now();
                let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
                grant.granted_time = now.as_millis() as i64;
            }
        }
        let address = self.drivers[&recorded].clone();
        if !self.clients.contains_key(&address) {
            let (host, port) = (address.0.as_str(), u16::try_from(address.1).unwrap());
            let client = Client::connect((host, port), ClientOptions::default()).await.unwrap();
            self.clients.insert(address.clone(), client);
        }
        self.clients.get_mut(&address).unwrap().call(&call).await.unwrap();
    }
}

const ALL: [&str; 18] = [
    "scenarios/session_lifecycle",
    "scenarios/grants",
    "scenarios/exclude_hosts",
    "scenarios/node_locality",
    "scenarios/locality_wait",
    "scenarios/fair_two_pools",
    "scenarios/min_and_max",
    "scenarios/fifo",
    "scenarios/preemption",
    "scenarios/dead_node",
    "scenarios/session_expiry",
    "scenarios/strict_pools",
    "scenarios/wire",
    "jobs/inproc-sleep",
    "jobs/remote-sleep",
    "jobs/wc-remote",
    "jobs/nodedeath",
    "jobs/preempt",
];

#[tokio::test]
async fn the_recorded_manager_agrees_with_itself() {
    for name in ALL {
        let report = play_with(name, quick(name), |_| {}).await;
        assert!(report.agrees() && report.explained.is_empty(), "{report}");
        assert!(report.calls.compared() >= 4, "{report}");
        assert_eq!(report.calls.equal, report.calls.compared(), "{report}");
        assert_eq!(report.notices.recorded, report.notices.live, "{report}");
    }
}

/// What is said of one changed script: findings that nothing explains, and the rows of the others.
async fn findings(name: &str, change: impl FnOnce(&mut Vec<Step>)) -> (Vec<String>, Vec<Rule>) {
    let report = play(name, change).await;
    let rules = report.explained.iter().filter_map(|finding| finding.rule).collect();
    let different = report.different.iter().map(ToString::to_string).collect();
    (different, rules)
}

/// The `n`th thing of a script that `pick` picks.
fn nth<T>(steps: &mut [Step], n: usize, pick: impl Fn(&mut Happening) -> Option<&mut T>) -> &mut T {
    steps.iter_mut().filter_map(|step| pick(&mut step.what)).nth(n).unwrap()
}

fn answer<'a>(steps: &'a mut [Step], method: &str, n: usize) -> &'a mut Message {
    nth(steps, n, |what| match what {
        Happening::Answer(message) if message.name == method => Some(&mut **message),
        _ => None,
    })
}

fn grants(steps: &mut [Step], n: usize) -> &mut Vec<ResourceGrant> {
    nth(steps, n, |what| match what {
        Happening::Notice(call) => match &mut **call {
            SessionDriverCall::GrantResource { granted, .. } => granted.as_mut(),
            _ => None,
        },
        _ => None,
    })
}

/// Checks that one changed script leads to a finding with these words in it.
async fn check_lie(name: &str, words: &[&str], change: impl FnOnce(&mut Vec<Step>)) {
    let (different, _) = findings(name, change).await;
    let shows = |finding: &String| words.iter().all(|word| finding.contains(word));
    assert!(different.iter().any(shows), "{words:?}: {different:#?}");
}

#[tokio::test]
async fn a_flipped_field_shows() {
    check_lie("scenarios/grants", &["nodeHeartbeat", "restartFlag\":true"], |steps| {
        let flag = Value::Struct(vec![("restartFlag", Value::Bool(true))]);
        answer(steps, "nodeHeartbeat", 0).body = Ok(Value::Struct(vec![("success", flag)]));
    })
    .await;
    check_lie("scenarios/session_lifecycle", &["getSessionInfo", "\"eve\""], |steps| {
        let message = answer(steps, "getSessionInfo", 0);
        let Ok(Value::Struct(fields)) = &mut message.body else { panic!("no struct") };
        let Value::Struct(info) = &mut fields[0].1 else { panic!("no session") };
        info.iter_mut().find(|(name, _)| *name == "userId").unwrap().1 =
            Value::String("eve".to_owned());
    })
    .await;
}

#[tokio::test]
async fn a_wrong_sequence_id_or_kind_shows() {
    check_lie("scenarios/wire", &["getSessions 42", "seq=43"], |steps| {
        answer(steps, "getSessions", 0).seqid = 43;
    })
    .await;
    check_lie("scenarios/grants", &["releaseResource", "EXCEPTION"], |steps| {
        let message = answer(steps, "releaseResource", 0);
        message.kind = MessageKind::Exception;
        message.body = Ok(Value::Struct(vec![("type", Value::I32(6))]));
    })
    .await;
}

#[tokio::test]
async fn a_grant_too_many_or_too_few_shows() {
    check_lie("scenarios/grants", &["JOBTRACKER grants", "[200, 202]"], |steps| {
        let granted = grants(steps, 0);
        assert_eq!(granted[0].type_.0, 2);
        granted.pop();
    })
    .await;
    check_lie("scenarios/exclude_hosts", &["MAP grants", "2]"], |steps| {
        let mut one_more = grants(steps, 0)[0].clone();
        one_more.id = 2;
        grants(steps, 0).push(one_more);
    })
    .await;
}

#[tokio::test]
async fn grants_in_another_order_show() {
    check_lie("scenarios/exclude_hosts", &["recorded: [1, 3]", "live:     [3, 1]"], |steps| {
        grants(steps, 0).reverse();
    })
    .await;
}

#[tokio::test]
async fn another_node_is_a_free_choice_but_an_excluded_one_is_not() {
    let (different, rules) = findings("scenarios/grants", |steps| {
        // The first two job trackers, one on each node: the other way round.
        let granted = grants(steps, 0);
        let (a, b) = (granted[0].id, granted[1].id);
        granted[0].id = b;
        granted[1].id = a;
        granted.reverse();
    })
    .await;
    assert_eq!((different.len(), rules), (0, vec![Rule::FREE_NODE]), "{different:#?}");

    let (different, _) = findings("scenarios/exclude_hosts", |steps| {
        let grant = &mut grants(steps, 0)[0];
        grant.node_name = "n1".to_owned();
        grant.address.host = "10.1.1.1".to_owned();
    })
    .await;
    assert_eq!(different.len(), 1, "{different:#?}");
    assert!(different[0].contains("1 excludes 10.1.1.1"), "{different:#?}");
}

#[tokio::test]
async fn a_host_that_was_asked_for_and_not_taken_shows() {
    let (different, _) = findings("scenarios/node_locality", |steps| {
        // Two grants of different hosts exchange their nodes.
        let granted = grants(steps, 0);
        let other = granted.iter().position(|grant| grant.node_name != granted[0].node_name);
        let (first, other) = (granted[0].clone(), other.unwrap());
        let taken = std::mem::replace(&mut granted[other], first.clone());
        granted[other].id = taken.id;
        granted[0] = ResourceGrant { id: first.id, ..taken };
    })
    .await;
    assert_eq!(different.len(), 1, "{different:#?}");
    assert!(different[0].contains("on a preferred host"), "{different:#?}");
}

#[tokio::test]
async fn a_forced_or_repeated_revocation_shows() {
    check_lie("scenarios/preemption", &["force is set"], |steps| {
        let force = nth(steps, 0, |what| match what {
            Happening::Notice(call) => match &mut **call {
                SessionDriverCall::RevokeResource { force, .. } => Some(force),
                _ => None,
            },
            _ => None,
        });
        *force = true;
    })
    .await;
    check_lie("scenarios/dead_node", &["dead node n1"], |steps| {
        let place = steps.iter().position(|step| match &step.what {
            Happening::Notice(call) => {
                matches!(**call, SessionDriverCall::ProcessDeadNode { .. })
            }
            _ => false,
        });
        let again = steps[place.unwrap()].clone();
        steps.insert(place.unwrap(), again);
    })
    .await;
}

/// A fast play ends long before what is under way is heard, and meanwhile nodes expire of whom the
/// recording says nothing more.
#[tokio::test]
async fn what_expires_after_the_recording_is_not_of_it() {
    let dies_at_the_end = |steps: &mut Vec<Step>| {
        let is_death = |step: &&Step| match &step.what {
            Happening::Notice(call) => matches!(**call, SessionDriverCall::ProcessDeadNode { .. }),
            _ => false,
        };
        let death = steps.iter().find(is_death).unwrap().clone();
        steps.push(Step { at: steps.last().unwrap().at, ..death });
    };
    // Its last heartbeat is 0.7 s before the end, which is 0.7 ms here.
    for (expiry_s, agrees) in [(Some(1), true), (None, false), (Some(600_000), false)] {
        let options = ReplayOptions {
            settle: Duration::from_secs(2),
            node_expiry: expiry_s.map(Duration::from_secs),
            ..quick("scenarios/dead_node")
        };
        let report = play_with("scenarios/dead_node", options, dies_at_the_end).await;
        assert_eq!(report.agrees(), agrees, "{expiry_s:?}: {report}");
    }
}

fn revoked(steps: &mut [Step], n: usize) -> &mut Vec<ResourceGrant> {
    nth(steps, n, |what| match what {
        Happening::Notice(call) => match &mut **call {
            SessionDriverCall::RevokeResource { revoked, .. } => revoked.as_mut(),
            _ => None,
        },
        _ => None,
    })
}

#[tokio::test]
async fn a_reordered_or_missing_revocation_shows() {
    check_lie(
        "scenarios/preemption",
        &["MAP revocations", "recorded: [", "live:     ["],
        |steps| {
            let revoked = revoked(steps, 0);
            assert!(revoked.len() > 1);
            revoked.reverse();
        },
    )
    .await;
    check_lie("scenarios/preemption", &["MAP revocations"], |steps| {
        revoked(steps, 0).pop();
    })
    .await;
}

#[tokio::test]
async fn a_dead_node_that_nobody_is_told_of_shows() {
    check_lie("scenarios/dead_node", &["dead node n1", "live:     []"], |steps| {
        steps.retain(|step| match &step.what {
            Happening::Notice(call) => !matches!(**call, SessionDriverCall::ProcessDeadNode { .. }),
            _ => true,
        });
    })
    .await;
}

#[tokio::test]
async fn a_revocation_before_its_grant_shows() {
    let (different, _) = findings("scenarios/preemption", |steps| {
        let is_notice = |step: &&Step| matches!(step.what, Happening::Notice(_));
        let notices: Vec<_> = steps.iter().filter(is_notice).cloned().collect();
        let (grant, revocation) = (notices[0].clone(), notices[1].clone());
        let mut order = [revocation, grant].into_iter();
        let mut seen = 0;
        for step in steps.iter_mut().filter(|step| matches!(step.what, Happening::Notice(_))) {
            seen += 1;
            if seen <= 2 {
                *step = order.next().unwrap();
            }
        }
    })
    .await;
    assert!(!different.is_empty());
    assert!(different.iter().any(|finding| finding.contains("does not hold")), "{different:#?}");
}

#[tokio::test]
async fn an_answer_where_the_original_hung_up_shows() {
    let (different, _) = findings("scenarios/wire", |steps| {
        let hung_up = steps.iter_mut().find(|step| matches!(step.what, Happening::HungUp));
        let body = Ok(Value::Struct(vec![]));
        hung_up.unwrap().what = Happening::Answer(Box::new(Message {
            kind: MessageKind::Exception,
            name: "?".to_owned(),
            seqid: 0,
            body,
        }));
    })
    .await;
    assert_eq!(different.len(), 1, "{different:#?}");
    assert!(different[0].contains("recorded: the connection is closed"), "{different:#?}");
}

#[tokio::test]
async fn what_nobody_asked_for_shows() {
    check_lie("scenarios/session_lifecycle", &["nothing more", "getSessionInfo"], |steps| {
        let is_answer = |step: &&Step| matches!(step.what, Happening::Answer(_));
        let last = steps.iter().rfind(is_answer).unwrap().clone();
        let place = steps.iter().rposition(|step| matches!(step.what, Happening::Answer(_)));
        steps.insert(place.unwrap(), last);
    })
    .await;
    check_lie("scenarios/dead_node", &["connection is closed"], |steps| {
        let place = steps.iter().rposition(|step| matches!(step.what, Happening::Answer(_)));
        let hung_up = Step { what: Happening::HungUp, ..steps[place.unwrap()].clone() };
        steps.truncate(place.unwrap());
        steps.push(hung_up);
    })
    .await;
}

#[tokio::test]
async fn a_recording_that_begins_in_the_middle_is_played_without_its_older_sessions() {
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
    let report = play_script(&conversations, quick("middle"), steps).await;
    assert!(report.agrees() && report.explained.is_empty(), "{report}");
    assert!(report.calls.compared() > 3, "{report}");
    let said = report.not_compared.join(" ");
    assert!(said.starts_with("2 sessions that are older than the recording"), "{said}");
}

#[test]
fn no_recording_of_the_original_has_older_sessions() {
    for name in ALL {
        assert_eq!(older_sessions(&recorded(name)), std::collections::BTreeSet::new(), "{name}");
    }
}

#[tokio::test]
async fn a_manager_that_is_not_there_shows() {
    let conversations = recorded("scenarios/session_lifecycle");
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let options = quick("nobody");
    let report = Stage::set(&conversations, options).await.unwrap().play(nobody, not_again).await;
    assert!(!report.agrees());
    assert_eq!(report.calls.equal, 0, "{report}");
}

#[tokio::test]
async fn pauses_are_kept_and_shortened_by_the_speed() {
    let conversations = recorded("scenarios/locality_wait");
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let started = Instant::now();
    let options = ReplayOptions {
        speed: 10.0,
        answer_within: Duration::ZERO,
        notice_within: Duration::ZERO,
        settle: Duration::ZERO,
        ..quick("pauses")
    };
    let target = nobody.local_addr().unwrap();
    Stage::set(&conversations, options).await.unwrap().play(target, not_again).await;
    let took = started.elapsed();
    // 2.14 s lie between the first and the last step.
    assert!(took >= Duration::from_millis(210), "{took:?}");
}
