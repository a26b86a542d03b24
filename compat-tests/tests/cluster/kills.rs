//! A cluster manager is killed repeatedly under load. Afterwards it still knows every grant that it
//! announced and every call that it acknowledged.
//!
//! `CORONA_KILLS` is the number of kills; 5 if it is not set.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use compat_tests::corona_program;
use compat_tests::serving::serve;
use corona::conformance::launch::{Launch, Running};
use corona::wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply, SessionDriver,
    SessionDriverCall, SessionDriverReply,
};
use corona::wire::client::{CallError, Client, ClientOptions};
use corona::wire::generated as wire;
use corona::wire::server::Answer;
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const NODES: usize = 4;
const SLOTS: usize = 4;
const SESSIONS: usize = 6;
/// Grants that are made between two kills.
const GRANTS_BETWEEN: u64 = 60;

/// What a session knows.
#[derive(Debug, Default)]
struct Ledger {
    /// Requests that the cluster manager has acknowledged.
    requested: BTreeSet<i32>,
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
struct World {
    manager: SocketAddr,
    quiet: AtomicBool,
    grants: AtomicU64,
}

/// Repeats a call until it is answered, as job trackers do.
async fn call(
    world: &World,
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
                answered => return answered,
            }
        }
        assert!(Instant::now() < deadline, "no answer to {call:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn node(world: Arc<World>, number: usize) {
    let name = format!("node{number}");
    let specs = wire::ComputeSpecs::new(1, None, 1 << 20, 1 << 20);
    let apps = [(wire::ResourceType::MAP, format!("{name}:1"))].into();
    let address = wire::InetAddress::new(format!("10.1.0.{number}"), 1);
    let node = wire::ClusterNodeInfo::new(name, address, specs.clone(), specs, Some(apps));
    let mut connection = None;
    while !world.quiet.load(Ordering::SeqCst) {
        let heartbeat = Call::NodeHeartbeat { node: Some(node.clone()) };
        call(&world, &mut connection, &heartbeat).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Requests, releases and heartbeats until the end, and returns its id with what it knows.
async fn session(world: Arc<World>, number: usize) -> (String, Arc<Mutex<Ledger>>) {
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let (heard, counted) = (ledger.clone(), world.clone());
    let (driver, stop) = serve::<SessionDriver>(move |_: SocketAddr, call| {
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
        let ids: Vec<i32> = (0..4).map(|more| id + more).collect();
        id += 4;
        let request =
            |id: &i32| wire::ResourceRequest::new(*id, None, None, wire::ResourceType::MAP, None);
        let requests = Some(ids.iter().map(request).collect());
        let asked = Call::RequestResource { handle: Some(handle.clone()), requests };
        call(&world, &mut connection, &asked).await.unwrap();
        ledger.lock().unwrap().requested.extend(ids);
        // Release some granted and some waiting requests, so that slots turn over.
        let give_back: Vec<i32> = {
            let mut ledger = ledger.lock().unwrap();
            let held: Vec<i32> = ledger.granted.keys().copied().take(3).collect();
            let waiting = ledger.requested.difference(&ledger.released);
            let waiting = waiting.filter(|id| !ledger.granted.contains_key(*id));
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
            }
            ledger.released.extend(give_back);
        }
        let heartbeat = Call::SessionHeartbeat { handle: Some(handle.clone()) };
        call(&world, &mut connection, &heartbeat).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (handle, ledger)
}

async fn get(web: SocketAddr, path: &str) -> Json {
    let mut stream = TcpStream::connect(web).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\r\n",
        web.port()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
}

fn launch(directory: &std::path::Path, port: u16) -> Launch {
    let overrides = [
        ("cm.server.address", format!("localhost:{port}")),
        ("cm.server.http.address", "localhost:0".to_owned()),
        ("cm.state", directory.join("cm.state").display().to_string()),
        ("cm.cpu.to.resource.partitioning", format!("{{\"1\":{{\"MAP\":{SLOTS}}}}}")),
        // Images are made on the way.
        ("corona.cm.journal.image.bytes", "262144".to_owned()),
        ("corona.cm.journal.segment.bytes", "131072".to_owned()),
        ("cm.session.expiryinterval", "600000".to_owned()),
        ("cm.notifier.pollinterval", "20".to_owned()),
        ("cm.notifier.retry.interval.start", "20".to_owned()),
        ("cm.notifier.retry.interval.factor", "1".to_owned()),
        ("cm.notifier.retry.max", "10000".to_owned()),
    ];
    Launch {
        program: corona_program().to_path_buf(),
        conf_dir: None,
        overrides: overrides.map(|(key, value)| (key.to_owned(), value)).to_vec(),
        arguments: vec![],
        ready_within: PATIENCE,
    }
}

async fn started(launch: Launch) -> Running {
    let running = tokio::task::spawn_blocking(move || launch.start()).await.unwrap();
    running.unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let kills = std::env::var("CORONA_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills = kills.unwrap_or(5);
    let directory = tempfile::tempdir().unwrap();
    let mut running = started(launch(directory.path(), 0)).await;
    let world = Arc::new(World {
        manager: running.thrift(),
        quiet: AtomicBool::new(false),
        grants: AtomicU64::new(0),
    });
    let mut nodes = JoinSet::new();
    for number in 0..NODES {
        nodes.spawn(node(world.clone(), number));
    }
    let mut sessions = JoinSet::new();
    for number in 0..SESSIONS {
        sessions.spawn(session(world.clone(), number));
    }
    let port = world.manager.port();
    for kill in 0..kills {
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
        let status = get(running.http().expect("pages"), "/api/v1/status").await;
        assert!(status["journal"]["recovery"].is_object(), "it has resumed: {status}");
    }
    world.quiet.store(true, Ordering::SeqCst);
    let mut ledgers = Vec::new();
    while let Some(ended) = sessions.join_next().await {
        ledgers.push(ended.unwrap());
    }
    while let Some(ended) = nodes.join_next().await {
        ended.unwrap();
    }
    let web = running.http().expect("pages");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = get(web, "/api/v1/status").await;
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
        let detail = get(web, &format!("/api/v1/sessions/{handle}")).await;
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
        let open = ledger.requested.difference(&ledger.released).count();
        let counts = &detail["types"]["MAP"];
        let pending = counts["waiting"].as_u64().unwrap() as usize;
        assert_eq!(pending + known.len(), open, "{handle}: the queue; {counts}");
    }
    assert_eq!(on_nodes.len(), NODES);
    assert!(on_nodes.values().all(|grants| *grants <= SLOTS), "{on_nodes:?}");
}
