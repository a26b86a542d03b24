//! Recorded Java sessions, repeated with the library: its notifications and its owner's requests
//! are taken from the recording, and the calls that it makes must be those of the recording, in the
//! same order and on as many connections. Ports, dates and empty lists of hosts aside.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use compat_tests::repository;
use compat_tests::serving::serve;
use compat_tests::task_tracker::until;
use corona::conformance::capture::{Capture, Limits as CaptureLimits, Side};
use corona::conformance::conversation::{Conversation, Offered, conversations};
use corona::conformance::setup::RecordedSetup;
use corona::session_driver::{
    Endpoint, Event, InfoUpdate, Lost, NodeUsage, Options, PoolName, ResourceType, SessionDriver,
    SessionEvents, SessionPriority, SessionStatus, SlotRequest,
};
use corona::wire::calls::{
    self, ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply,
    SessionDriverCall,
};
use corona::wire::client::{Client, ClientOptions};
use corona::wire::generated as wire;
use corona::wire::server::{Answer, Peer};
use corona::wire::value::{Message, Value};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{SOON, block_on, next};

/// The actions and notifications of a recorded session.
#[derive(Clone, Debug)]
enum Step {
    /// It called the cluster manager.
    Called(Box<Made>),
    /// It was called.
    Received(SessionDriverCall),
}

/// A call to the cluster manager.
#[derive(Clone, Debug)]
struct Made {
    /// The client's end of the connection.
    from: SocketAddr,
    call: Call,
}

/// Plays all sessions of a recording again. `replaced`: how many slots were lost and asked for
/// again, over all of them.
fn check(name: &str, sessions: usize, replaced: usize) {
    let recorded = sessions_of(name);
    assert_eq!(recorded.len(), sessions, "{name}");
    let again: usize = recorded.iter().map(|(handle, steps)| block_on(repeat(handle, steps))).sum();
    assert_eq!(again, replaced, "{name}");
}

#[test]
fn inproc_sleep() {
    check("inproc-sleep", 1, 0);
}

#[test]
fn remote_sleep() {
    check("remote-sleep", 2, 0);
}

#[test]
fn word_count() {
    check("wc-remote", 2, 0);
}

#[test]
fn node_death() {
    check("nodedeath", 1, 2);
}

#[test]
fn preemption() {
    check("preempt", 2, 3);
}

/// The sessions of a recording with their steps in the order of time.
fn sessions_of(name: &str) -> Vec<(String, Vec<Step>)> {
    let directory = repository().join("fixtures/recordings/jobs").join(name);
    let setup = RecordedSetup::read(&directory).expect("the recorded configuration");
    let file = File::open(directory.join("traffic.pcap")).expect("the recorded traffic");
    let capture = Capture::read(file, &CaptureLimits::default()).expect("a packet capture");
    let conversations = conversations(&capture, &setup.ports);
    let mut steps: Vec<_> = conversations.iter().flat_map(steps_of).collect();
    steps.sort_by_key(|(at, _, _)| *at);
    let handles: BTreeSet<_> = steps.iter().map(|(_, handle, _)| handle.clone()).collect();
    let of = |handle: &String| {
        let own = steps.iter().filter(|(_, owner, _)| owner == handle);
        (handle.clone(), own.map(|(_, _, step)| step.clone()).collect())
    };
    handles.iter().map(of).collect()
}

fn steps_of(conversation: &Conversation) -> Vec<(std::time::Duration, String, Step)> {
    let mut steps = Vec::new();
    let from = conversation.client;
    let mut messages = conversation.messages().peekable();
    while let Some((part, message)) = messages.next() {
        if part.from != Side::Client {
            continue;
        }
        let handle = match message.name.as_str() {
            // The id in the reply is the only trace of the caller.
            "getNextSessionId" => messages.peek().and_then(|(_, answer)| given_id(answer)),
            _ => handle_of(message),
        };
        let Some(handle) = handle else { continue };
        let step = match conversation.service {
            Offered::ClusterManager => {
                let call = message.call::<ClusterManager>().expect("a recorded call");
                Step::Called(Box::new(Made { from, call }))
            }
            Offered::SessionDriver => {
                Step::Received(message.call::<calls::SessionDriver>().expect("a recorded call"))
            }
            Offered::ProxyJobTracker => continue,
        };
        steps.push((part.at, handle, step));
    }
    steps
}

fn given_id(answer: &Message) -> Option<String> {
    match answer.answer::<ClusterManager>().ok()? {
        Answer::Reply(Reply::GetNextSessionId(id)) => Some(id),
        _ => None,
    }
}

fn handle_of(message: &Message) -> Option<String> {
    match message.body.as_ref().ok()?.field("handle")? {
        Value::String(handle) => Some(handle.clone()),
        _ => None,
    }
}

/// Repeats the recorded session and compares. Returns how many slots were replaced.
async fn repeat(handle: &str, steps: &[Step]) -> usize {
    let recorded: Vec<_> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Called(made) => Some((**made).clone()),
            Step::Received(_) => None,
        })
        .collect();
    let start = recorded.iter().find_map(|made| match &made.call {
        Call::SessionStart { info, .. } => info.clone(),
        _ => None,
    });
    let manager = Manager::start(handle);
    let options = options(&manager, &start.expect("a session starts"));
    let (driver, events) = SessionDriver::start(options).await.expect("the session starts");
    let mut owner = Owner { manager, driver, events, lost: vec![], replaced: 0 };
    owner.manager.until_called(3).await;
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Received(call) => owner.hear(call).await,
            Step::Called(made) => owner.act(&made.call, &steps[at + 1..]).await,
        }
    }
    let made = owner.manager.made();
    let port = owner.manager.session_address().1;
    compare(&recorded, &made, port);
    owner.replaced
}

/// The owner of a session that repeats a recorded one.
struct Owner {
    manager: Manager,
    driver: SessionDriver,
    events: SessionEvents,
    /// Slots that were lost and not requested again.
    lost: Vec<Lost>,
    replaced: usize,
}

impl Owner {
    /// Receives a notification of the recorded session.
    async fn hear(&mut self, call: &SessionDriverCall) {
        let options = ClientOptions::default();
        let address = self.manager.session_address();
        let mut client = Client::<calls::SessionDriver>::connect(address, options).await.unwrap();
        timeout(SOON, client.call(call)).await.expect("an answer in time").expect("no error");
        let event = next(&mut self.events).await;
        let ids = |grants: &Option<Vec<wire::ResourceGrant>>| -> Vec<i32> {
            grants.iter().flatten().map(|grant| grant.id).collect()
        };
        match (call, event) {
            (SessionDriverCall::GrantResource { granted, .. }, Event::Granted(grants)) => {
                let told: Vec<_> = grants.iter().map(|grant| grant.id).collect();
                assert_eq!(told, ids(granted));
            }
            (SessionDriverCall::RevokeResource { revoked, .. }, Event::Revoked(lost)) => {
                let told: Vec<_> = lost.iter().map(|lost| lost.grant.id).collect();
                assert_eq!(told, ids(revoked));
                self.lost.extend(lost);
            }
            (
                SessionDriverCall::ProcessDeadNode { node, .. },
                Event::DeadNode { node: told, lost },
            ) => {
                assert_eq!(Some(&*told), node.as_deref());
                self.lost.extend(lost);
            }
            (call, event) => panic!("{call:?} led to {event:?}"),
        }
    }

    /// Makes the owner's request of the recorded session, and waits until the call is made.
    async fn act(&mut self, call: &Call, later: &[Step]) {
        let before = self.manager.made().len();
        let driver = &self.driver;
        match call.clone() {
            Call::SessionUpdateInfo { info, .. } => {
                driver.update_info(update(info.unwrap())).unwrap();
            }
            Call::RequestResource { requests, .. } => {
                if self.is_lost(next_release(later)) {
                    // Both calls: the new requests, and the release of the old ones.
                    self.replaced += self.lost.len();
                    driver.replace(&self.lost).unwrap();
                    return self.manager.until_called(before + 2).await;
                }
                let requests = requests.unwrap();
                let ids = driver.request(requests.iter().map(slot).collect()).unwrap();
                assert_eq!(ids, requests.iter().map(|request| request.id).collect::<Vec<_>>());
            }
            Call::ReleaseResource { ids, .. } => {
                if self.is_lost(ids.as_deref()) {
                    self.lost.clear();
                    return;
                }
                driver.release(ids.unwrap()).unwrap();
            }
            Call::NodeFeedback { reports, .. } => {
                driver.feedback(reports.unwrap().iter().map(usage).collect()).unwrap();
            }
            Call::SessionEnd { status, .. } => {
                let status = SessionStatus::from_number(status.unwrap().0).unwrap();
                driver.end(status).await;
            }
            // These go by themselves.
            Call::GetNextSessionId
            | Call::SessionStart { .. }
            | Call::SessionHeartbeatV2 { .. } => {
                return;
            }
            other => panic!("a session does not call {other:?}"),
        }
        self.manager.until_called(before + 1).await;
    }

    fn is_lost(&self, ids: Option<&[i32]>) -> bool {
        let lost: BTreeSet<_> = self.lost.iter().map(|lost| lost.request.id).collect();
        !lost.is_empty() && ids.is_some_and(|ids| ids.iter().copied().eq(lost))
    }
}

/// The ids released in the next call, if that is a release.
fn next_release(later: &[Step]) -> Option<&[i32]> {
    let call = later.iter().find_map(|step| match step {
        Step::Called(made) => Some(&made.call),
        Step::Received(_) => None,
    });
    match call {
        Some(Call::ReleaseResource { ids, .. }) => ids.as_deref(),
        _ => None,
    }
}

fn options(manager: &Manager, info: &wire::SessionInfo) -> Options {
    let pool = info.pool_info_strings.as_ref().unwrap();
    let endpoint = Endpoint::new(manager.address.ip().to_string(), manager.address.port());
    let default_name = format!("{}@{}:{}-", info.user_id, info.address.host, info.address.port);
    let mut options = Options::new(endpoint, info.user_id.clone());
    options.name = (!info.name.starts_with(&default_name)).then(|| info.name.clone());
    options.pool = PoolName::new(&*pool.pool_group_name, &*pool.pool_name);
    options.release_lost = false;
    options
}

fn update(info: wire::SessionInfo) -> InfoUpdate {
    let mut update = InfoUpdate::default();
    update.name = Some(info.name);
    update.priority = info.priority.and_then(|priority| SessionPriority::from_number(priority.0));
    update.url = info.url;
    update
}

fn slot(request: &wire::ResourceRequest) -> SlotRequest {
    let specs = request.specs.as_ref().unwrap();
    let kind = ResourceType::from_number(request.type_.0).unwrap();
    let slot = SlotRequest::new(kind).near(request.hosts.iter().flatten().map(String::as_str));
    let mut asked = slot.specs;
    asked.num_cpus = specs.num_cpus;
    asked.network_mbps = specs.network_m_bps;
    asked.memory_mb = specs.memory_m_b;
    asked.disk_gb = specs.disk_g_b;
    assert_eq!(slot.specs, asked, "what a Java job tracker asks for is what is asked for");
    slot.avoiding(request.exclude_hosts.iter().flatten().map(String::as_str))
}

fn usage(report: &wire::NodeUsageReport) -> NodeUsage {
    let mut usage = NodeUsage::new(&*report.node_name);
    usage.total_tasks = report.num_total_tasks;
    usage.succeeded = report.num_succeeded;
    usage.killed = report.num_killed;
    usage.failed = report.num_failed;
    usage.timed_out = report.num_timeout;
    usage.slow = report.num_slow;
    usage.failed_connections = report.num_failed_connections;
    usage
}

fn compare(recorded: &[Made], made: &[Made], port: u16) {
    let plain = |made: &[Made]| -> Vec<_> {
        made.iter().map(|made| normalise(made.call.clone())).collect()
    };
    let (expected, found) = (plain(recorded), plain(made));
    for (nth, (expected, found)) in expected.iter().zip(&found).enumerate() {
        assert_eq!(found, expected, "call {nth}");
    }
    assert_eq!(found.len(), expected.len());
    assert_eq!(connections(made), connections(recorded));
    for made in made {
        if let Call::SessionStart { info: Some(info), .. } = &made.call {
            assert_eq!(info.address.port, i32::from(port));
        }
    }
}

/// The connections of calls, numbered as they first appear.
fn connections(made: &[Made]) -> Vec<usize> {
    let mut known = Vec::new();
    let number = |made: &Made| {
        known.iter().position(|from| *from == made.from).unwrap_or_else(|| {
            known.push(made.from);
            known.len() - 1
        })
    };
    made.iter().map(number).collect()
}

/// A call without the parts that differ from run to run.
fn normalise(mut call: Call) -> Call {
    match &mut call {
        Call::SessionStart { info: Some(info), .. }
        | Call::SessionUpdateInfo { info: Some(info), .. } => {
            let own_address = format!("{}:{}-", info.address.host, info.address.port);
            if let Some((user, date)) = info.name.clone().split_once(&own_address) {
                info.name = format!("{user}HOST:PORT-{}", shape(date));
            }
            info.address.port = 0;
        }
        // The original names no hosts to be excluded in some requests, and none in a list in others.
        Call::RequestResource { requests: Some(requests), .. } => {
            for request in requests {
                for hosts in [&mut request.hosts, &mut request.exclude_hosts] {
                    *hosts = hosts.take().filter(|hosts| !hosts.is_empty());
                }
            }
        }
        _ => {}
    }
    call
}

/// `Sat Nov 21 00:43:47 UTC 2026` as `aaa aaa 00 00:00:00 zone 0000`.
fn shape(date: &str) -> String {
    let class = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' => 'a',
        '0'..='9' => '0',
        other => other,
    };
    let word = |(nth, word): (usize, &str)| match nth {
        4 => "zone".to_owned(),
        _ => word.chars().map(class).collect(),
    };
    date.split(' ').enumerate().map(word).collect::<Vec<_>>().join(" ")
}

/// A cluster manager that agrees to everything and remembers it.
struct Manager {
    address: SocketAddr,
    made: Arc<Mutex<Vec<Made>>>,
    _stop: watch::Sender<bool>,
}

impl Manager {
    /// One that gives sessions this handle.
    fn start(handle: &str) -> Manager {
        let made = Arc::new(Mutex::new(vec![]));
        let (memory, handle) = (made.clone(), handle.to_owned());
        let (address, stop) = serve::<ClusterManager>(move |from: Peer, call: Call| {
            let from = from.address;
            memory.lock().unwrap().push(Made { from, call: call.clone() });
            let reply = reply(call, &handle);
            async move { Answer::Reply(reply) }
        });
        Manager { address, made, _stop: stop }
    }

    fn made(&self) -> Vec<Made> {
        self.made.lock().unwrap().clone()
    }

    async fn until_called(&self, times: usize) {
        until("the next call", || (self.made.lock().unwrap().len() >= times).then_some(())).await;
    }

    fn session_address(&self) -> (String, u16) {
        let address = self.made().iter().find_map(|made| match &made.call {
            Call::SessionStart { info: Some(info), .. } => Some(info.address.clone()),
            _ => None,
        });
        let address = address.expect("the session has started");
        (address.host, u16::try_from(address.port).unwrap())
    }
}

fn reply(call: Call, handle: &str) -> Reply {
    match call {
        Call::GetNextSessionId => Reply::GetNextSessionId(handle.to_owned()),
        Call::SessionStart { info, .. } => Reply::SessionStart(wire::SessionRegistrationData {
            handle: handle.to_owned(),
            cluster_manager_info: wire::ClusterManagerInfo::new(String::new(), "/log".into()),
            pool_info_strings: info.unwrap().pool_info_strings.unwrap(),
        }),
        Call::SessionUpdateInfo { .. } => Reply::SessionUpdateInfo,
        Call::SessionEnd { .. } => Reply::SessionEnd,
        Call::SessionHeartbeatV2 { .. } => Reply::SessionHeartbeatV2,
        Call::RequestResource { .. } => Reply::RequestResource,
        Call::ReleaseResource { .. } => Reply::ReleaseResource,
        Call::NodeFeedback { .. } => Reply::NodeFeedback,
        other => panic!("a session does not call {other:?}"),
    }
}
