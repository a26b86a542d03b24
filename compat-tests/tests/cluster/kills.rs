//! A cluster manager is killed repeatedly under load. Afterwards it still knows every grant that it
//! announced and every call that it acknowledged.
//!
//! `CORONA_KILLS` is the number of kills; 5 if it is not set.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(super) use compat_tests::PATIENCE;
use compat_tests::serving::{fetch, free_address, serve};
use compat_tests::start;
use corona::conformance::launch::{Launch, LaunchedManager};
use corona::wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply, SessionDriver,
    SessionDriverCall, SessionDriverReply,
};
use corona::wire::client::{CallError, Client, ClientOptions};
use corona::wire::generated as wire;
use corona::wire::server::{Answer, Peer};
use serde_json::Value as Json;
use tokio::task::JoinSet;

pub(super) const SLOTS: usize = 4;
/// Grants that are made between two kills.
const GRANTS_BETWEEN: u64 = 60;

/// How many nodes and sessions there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) nodes: usize,
    pub(super) sessions: usize,
}

impl Size {
    pub(super) const SMALL: Size = Size { nodes: 4, sessions: 6 };

    /// Between two heartbeats of a node. Many nodes together send as many as few.
    fn beat(self) -> Duration {
        Duration::from_millis(3 * self.nodes as u64).max(Duration::from_millis(100))
    }

    /// Between two turns of a session: all sessions together take about 1,000 turns a second.
    fn pause(self) -> Duration {
        Duration::from_millis(self.sessions as u64)
    }

    /// Requests of a session that are not released, at most: enough to use all slots.
    fn open_requests(self) -> usize {
        200 + 2 * self.nodes * SLOTS / self.sessions
    }
}

/// What a session knows.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Requests that the cluster manager has acknowledged and that were not released.
    open: BTreeSet<i32>,
    /// Requests whose release it has acknowledged.
    released: BTreeSet<i32>,
    /// Requests that are about to be released: their grants may still arrive.
    releasing: BTreeSet<i32>,
    /// Grants that it was notified of, with their nodes.
    granted: BTreeMap<i32, String>,
    /// What must not happen.
    wrong: Vec<String>,
}

impl Ledger {
    fn hear(&mut self, grants: Vec<wire::ResourceGrant>) {
        for grant in grants {
            if self.released.contains(&grant.id) || self.releasing.contains(&grant.id) {
                continue;
            }
            match self.granted.insert(grant.id, grant.node_name.clone()) {
                Some(node) if node != grant.node_name => self.wrong.push(format!(
                    "request {} was granted on {node} and then on {}",
                    grant.id, grant.node_name
                )),
                _ => {}
            }
        }
    }
}

/// The address of the cluster manager, and whether all is to come to an end.
#[derive(Debug)]
pub(super) struct KillContext {
    pub(super) manager: SocketAddr,
    pub(super) size: Size,
    pub(super) quiet: AtomicBool,
    pub(super) grants: AtomicU64,
    replies: Mutex<Replies>,
}

/// When calls were answered.
#[derive(Debug)]
struct Replies {
    last: Instant,
    longest_gap: Duration,
}

impl KillContext {
    pub(super) fn new(manager: SocketAddr, size: Size) -> Arc<KillContext> {
        Arc::new(KillContext {
            manager,
            size,
            quiet: AtomicBool::new(false),
            grants: AtomicU64::new(0),
            replies: Mutex::new(Replies { last: Instant::now(), longest_gap: Duration::ZERO }),
        })
    }

    fn has_replied(&self) {
        let mut replies = self.replies.lock().unwrap();
        let now = Instant::now();
        replies.longest_gap = replies.longest_gap.max(now - replies.last);
        replies.last = now;
    }

    /// The longest time without any reply since the last call of this function.
    pub(super) fn take_longest_gap(&self) -> Duration {
        std::mem::take(&mut self.replies.lock().unwrap().longest_gap)
    }

    /// Starts the nodes and the sessions.
    pub(super) fn populate(self: &Arc<KillContext>) -> (JoinSet<()>, Sessions) {
        let (mut nodes, mut sessions) = (JoinSet::new(), JoinSet::new());
        for number in 0..self.size.nodes {
            nodes.spawn(node(self.clone(), number));
        }
        for number in 0..self.size.sessions {
            sessions.spawn(session(self.clone(), number));
        }
        (nodes, sessions)
    }
}

/// Sessions that run. Each returns its id with what it knows.
pub(super) type Sessions = JoinSet<(String, Arc<Mutex<Ledger>>)>;

/// Repeats a call until it is answered, as job trackers do.
async fn call(
    world: &KillContext,
    connection: &mut Option<Client<ClusterManager>>,
    call: &Call,
) -> Result<Reply, CallError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if connection.is_none() {
            *connection = Client::connect(world.manager, ClientOptions::default()).await.ok();
        }
        if let Some(client) = connection {
            match client.call(call).await {
                Err(CallError::Closed | CallError::Io(_)) => *connection = None,
                answered => {
                    world.has_replied();
                    return answered;
                }
            }
        }
        assert!(Instant::now() < deadline, "no answer to {call:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn node(world: Arc<KillContext>, number: usize) {
    let name = format!("node{number}");
    let specs = wire::ComputeSpecs::new(1, None, 1 << 20, 1 << 20);
    let apps = [(wire::ResourceType::MAP, format!("{name}:1"))].into();
    let address = wire::InetAddress::new(format!("10.1.{}.{}", number / 250, number % 250), 1);
    let node =
        wire::ClusterNodeInfo::new(name, address, specs.clone(), specs, Some(apps), None, None);
    let mut connection = None;
    while !world.quiet.load(Ordering::SeqCst) {
        let heartbeat = Call::NodeHeartbeat { node: Some(node.clone()) };
        call(&world, &mut connection, &heartbeat).await.unwrap();
        tokio::time::sleep(world.size.beat()).await;
    }
}

/// Requests, releases and heartbeats until the end, and returns its id with what it knows.
async fn session(world: Arc<KillContext>, number: usize) -> (String, Arc<Mutex<Ledger>>) {
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let (heard, counted) = (ledger.clone(), world.clone());
    let (driver, stop) = serve::<SessionDriver>(move |_: Peer, call| {
        let (heard, counted) = (heard.clone(), counted.clone());
        async move {
            match call {
                SessionDriverCall::GrantResource { granted: Some(granted), .. } => {
                    counted.grants.fetch_add(granted.len() as u64, Ordering::SeqCst);
                    heard.lock().unwrap().hear(granted);
                    Answer::Reply(SessionDriverReply::GrantResource)
                }
                other => {
                    heard.lock().unwrap().wrong.push(format!("{other:?}"));
                    Answer::Close
                }
            }
        }
    });
    // The driver must keep serving after this function has returned.
    Box::leak(Box::new(stop));
    let mut connection = None;
    let Ok(Reply::GetNextSessionId(handle)) =
        call(&world, &mut connection, &Call::GetNextSessionId).await
    else {
        panic!("no id")
    };
    let address = wire::InetAddress::new(Ipv4Addr::LOCALHOST.to_string(), driver.port().into());
    let (name, user) = (format!("job{number}"), "user".to_owned());
    let info = wire::SessionInfo::new(address, name, user, None, None, None, None, None, None);
    let start = Call::SessionStart { handle: Some(handle.clone()), info: Some(info) };
    match call(&world, &mut connection, &start).await {
        // The first attempt was not answered, and has started it.
        Ok(_) | Err(CallError::Exception(_)) => {}
        Err(other) => panic!("{other}"),
    }
    let (mut id, mut turn) = (0, 0);
    while !world.quiet.load(Ordering::SeqCst) {
        turn += 1;
        // At the limit as many as are released below.
        let is_below = ledger.lock().unwrap().open.len() < world.size.open_requests();
        let count = if is_below { 4 } else { 3 };
        let ids: Vec<i32> = (id..id + count).collect();
        id += count;
        let request =
            |id: &i32| wire::ResourceRequest::new(*id, None, None, wire::ResourceType::MAP, None);
        let requests = Some(ids.iter().map(request).collect());
        let asked = Call::RequestResource { handle: Some(handle.clone()), requests };
        call(&world, &mut connection, &asked).await.unwrap();
        ledger.lock().unwrap().open.extend(ids);
        // Release some granted and some waiting requests, so that slots turn over.
        let give_back: Vec<i32> = {
            let mut ledger = ledger.lock().unwrap();
            let held: Vec<i32> = ledger.granted.keys().copied().take(3).collect();
            let waiting = ledger.open.iter().filter(|id| !ledger.granted.contains_key(id));
            let withdrawn: Vec<i32> = waiting.copied().take(usize::from(turn % 4 == 0)).collect();
            let all = [held, withdrawn].concat();
            ledger.releasing.extend(&all);
            all
        };
        let ids = Some(give_back.clone());
        let release = Call::ReleaseResource { handle: Some(handle.clone()), ids };
        call(&world, &mut connection, &release).await.unwrap();
        {
            let mut ledger = ledger.lock().unwrap();
            for id in &give_back {
                ledger.granted.remove(id);
                ledger.open.remove(id);
            }
            ledger.released.extend(give_back);
        }
        let heartbeat = Call::SessionHeartbeat { handle: Some(handle.clone()) };
        call(&world, &mut connection, &heartbeat).await.unwrap();
        tokio::time::sleep(world.size.pause()).await;
    }
    (handle, ledger)
}

fn get(web: SocketAddr, path: &str) -> Json {
    let (_, body) = fetch(&web.to_string(), path).expect("an answer");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

fn launch(directory: &std::path::Path, port: u16) -> Launch {
    compat_tests::launch(&[
        ("cm.server.address", &format!("localhost:{port}")),
        ("cm.state", &directory.join("cm.state").display().to_string()),
        ("cm.cpu.to.resource.partitioning", &format!("{{\"1\":{{\"MAP\":{SLOTS}}}}}")),
        ("corona.cm.journal.dir", &directory.join("journal").display().to_string()),
        // Images are made on the way.
        ("corona.cm.journal.image.bytes", "262144"),
        ("corona.cm.journal.segment.bytes", "131072"),
        ("cm.session.expiryinterval", "600000"),
        ("cm.notifier.pollinterval", "20"),
        ("cm.notifier.retry.interval.start", "20"),
        ("cm.notifier.retry.interval.factor", "1"),
        ("cm.notifier.retry.max", "10000"),
    ])
}

pub(super) async fn started(launch: Launch) -> LaunchedManager {
    tokio::task::spawn_blocking(move || start(&launch)).await.unwrap()
}

fn kills() -> u64 {
    std::env::var("CORONA_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(5)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_address().port();
    let mut running = started(launch(directory.path(), port)).await;
    let world = KillContext::new(running.thrift(), Size::SMALL);
    let (nodes, sessions) = world.populate();
    for kill in 0..kills() {
        let before = world.grants.load(Ordering::SeqCst);
        let deadline = Instant::now() + PATIENCE;
        // At another place of the work each time.
        let enough = before + GRANTS_BETWEEN + kill % 7;
        while world.grants.load(Ordering::SeqCst) < enough {
            assert!(Instant::now() < deadline, "no grants any more: {}", running.log());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        running.stop();
        running = started(launch(directory.path(), port)).await;
        let status = get(running.http().expect("pages"), "/api/v1/status");
        assert!(status["journal"]["recovery"].is_object(), "it has resumed: {status}");
    }
    check_ledgers(&world, nodes, sessions, running.http().expect("pages")).await;
}

/// Ends the load, and compares what the sessions know with what the cluster manager shows.
pub(super) async fn check_ledgers(
    world: &KillContext,
    mut nodes: JoinSet<()>,
    mut sessions: Sessions,
    web: SocketAddr,
) {
    world.quiet.store(true, Ordering::SeqCst);
    let mut ledgers = Vec::new();
    while let Some(ended) = sessions.join_next().await {
        ledgers.push(ended.unwrap());
    }
    while let Some(ended) = nodes.join_next().await {
        ended.unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = get(web, "/api/v1/status");
        // Requests wait, so every slot is given away in the end.
        let slots = &status["slots"]["MAP"];
        if status["pending_notifications"] == 0 && slots["total"] == slots["used"] {
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut on_nodes: BTreeMap<String, usize> = BTreeMap::new();
    for (handle, ledger) in &ledgers {
        let detail = get(web, &format!("/api/v1/sessions/{handle}"));
        let ledger = ledger.lock().unwrap();
        assert!(ledger.wrong.is_empty(), "{handle}: {:?}", ledger.wrong);
        let grants = detail["grants"].as_array().unwrap();
        let node_of = |grant: &Json| {
            (grant["id"].as_i64().unwrap() as i32, grant["node"].as_str().unwrap().to_owned())
        };
        let known: BTreeMap<i32, String> = grants.iter().map(node_of).collect();
        assert_eq!(known, ledger.granted, "{handle}: the grants");
        for node in known.values() {
            *on_nodes.entry(node.clone()).or_default() += 1;
        }
        let open = ledger.open.len();
        let counts = &detail["types"]["MAP"];
        let pending = counts["waiting"].as_u64().unwrap() as usize;
        assert_eq!(pending + known.len(), open, "{handle}: the queue; {counts}");
    }
    assert_eq!(on_nodes.len(), world.size.nodes);
    assert!(on_nodes.values().all(|grants| *grants <= SLOTS), "{on_nodes:?}");
}
