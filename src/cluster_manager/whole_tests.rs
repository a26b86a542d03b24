//! The whole service in this process, for tests that replace a part of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use super::journal::opening::Disk;
use super::names::Resolver;
use super::testing::driver;
use super::{Beginning, ClusterManager, Failure};
use corona_engine::Input;
use corona_journal::testing::Faults;
use corona_wire::calls::{
    ClusterManager as Contract, ClusterManagerCall as Call, ClusterManagerReply as Reply,
};
use corona_wire::client::{Client, ClientOptions};
use corona_wire::generated as wire;

/// The time in which a healthy peer must be served.
const NORMAL: Duration = Duration::from_secs(60);

const WITHOUT_STATE: [(&str, &str); 2] = [("cm.state", "none"), ("corona.cm.journal.dir", "none")];

/// Settings of a cluster manager on free ports.
fn loaded(own: &[(&str, &str)], more: &[(&str, &str)]) -> corona_config::Loaded {
    let ports = [("cm.server.address", "localhost:0"), ("cm.server.http.address", "localhost:0")];
    let all = ports.iter().chain(own).chain(more);
    let overrides: Vec<(String, String)> =
        all.map(|(key, value)| ((*key).into(), (*value).into())).collect();
    corona_config::load(None, &overrides).unwrap()
}

async fn start(
    settings: &[(&str, &str)],
    resolver: Resolver,
) -> (SocketAddr, SocketAddr, watch::Sender<bool>) {
    let loaded = loaded(&WITHOUT_STATE, settings);
    let manager =
        ClusterManager::bind_with(loaded, Beginning::Resume, resolver, Disk::system(), None).await;
    let manager = manager.unwrap();
    let (thrift, web) = (manager.thrift_address(), manager.web_address());
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move { manager.run(stopped).await.unwrap() });
    (thrift, web, stop)
}

/// A client whose connection comes from this address of loopback.
async fn peer(host: [u8; 4], thrift: SocketAddr) -> Client<Contract> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::from(host), 0).into()).unwrap();
    let stream = socket.connect((Ipv4Addr::LOCALHOST, thrift.port()).into()).await.unwrap();
    Client::over(stream, ClientOptions::default())
}

async fn begin(client: &mut Client<Contract>, host: &str, port: u16) -> String {
    let Reply::GetNextSessionId(handle) = client.call(&Call::GetNextSessionId).await.unwrap()
    else {
        panic!("no id");
    };
    let address = wire::InetAddress::new(host.to_owned(), port.into());
    let (name, user) = ("job".to_owned(), "user".to_owned());
    let info = wire::SessionInfo::new(address, name, user, None, None, None, None, None, None);
    let start = Call::SessionStart { handle: Some(handle.clone()), info: Some(info) };
    client.call(&start).await.unwrap();
    handle
}

async fn ask(client: &mut Client<Contract>, handle: &str, id: i32) {
    let request = wire::ResourceRequest::new(id, None, None, wire::ResourceType::MAP, None);
    let (handle, requests) = (Some(handle.to_owned()), Some(vec![request]));
    client.call(&Call::RequestResource { handle, requests }).await.unwrap();
}

/// The status line of a page.
async fn page(web: SocketAddr, path: &str) -> String {
    let answer = fetch(web, path).await;
    answer.lines().next().unwrap_or_default().to_owned()
}

async fn fetch(web: SocketAddr, path: &str) -> String {
    let get = async {
        let mut stream = TcpStream::connect(web).await.unwrap();
        let host = format!("localhost:{}", web.port());
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    timeout(NORMAL, get).await.unwrap_or_else(|_| panic!("{path} is not served in time"))
}

/// A name server that does not answer, as far as it concerns names that begin with `slow`.
fn slow_names() -> (Resolver, Arc<(Mutex<bool>, Condvar)>) {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let held = gate.clone();
    let resolver = Resolver::new(move |host: &str| {
        if host.starts_with("slow") {
            let open = held.0.lock().unwrap();
            drop(held.1.wait_while(open, |open| !*open).unwrap());
        }
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    });
    (resolver, gate)
}

async fn add_node(thrift: SocketAddr) {
    let specs = wire::ComputeSpecs::new(2000, None, 1 << 20, 1 << 20);
    let apps = [(wire::ResourceType::MAP, "app:1".to_owned())];
    let address = wire::InetAddress::new("127.0.0.1".to_owned(), 1);
    let node = wire::ClusterNodeInfo::new(
        "n".to_owned(),
        address,
        specs.clone(),
        specs,
        Some(apps.into()),
        None,
        None,
    );
    let mut client = peer([127, 0, 0, 1], thrift).await;
    client.call(&Call::NodeHeartbeat { node: Some(node) }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_names_of_sessions_delay_neither_pages_nor_other_sessions() {
    let (resolver, gate) = slow_names();
    let (thrift, web, _stop) = start(&[], resolver).await;
    add_node(thrift).await;
    let mut attacker = peer([127, 0, 0, 1], thrift).await;
    for number in 0..700 {
        let handle = begin(&mut attacker, &format!("slow{number}"), 9).await;
        ask(&mut attacker, &handle, 1).await;
    }
    let (port, mut told, _driver) = driver(0);
    let mut healthy = peer([127, 0, 0, 2], thrift).await;
    let handle = begin(&mut healthy, "healthy", port).await;
    for id in 1..20 {
        ask(&mut healthy, &handle, id).await;
        assert_eq!(timeout(NORMAL, told.recv()).await.expect("in time"), Some(vec![id]));
        for path in ["/metrics", "/", "/healthz"] {
            assert_eq!(page(web, path).await, "HTTP/1.1 200 OK", "{path}");
        }
    }
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
}

/// Only hosts that are looked up for peers which have a session are looked up at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_names_of_requests_delay_neither_new_nodes_nor_other_sessions() {
    let (resolver, gate) = slow_names();
    let mapping = [(
        "topology.node.switch.mapping.impl",
        "org.apache.hadoop.net.IPv4AddressTruncationMapping",
    )];
    let (thrift, _, _stop) = start(&mapping, resolver).await;
    let mut attackers = Vec::new();
    for _ in 0..4 {
        let mut client = peer([127, 0, 0, 1], thrift).await;
        let handle = begin(&mut client, "127.0.0.1", 9).await;
        attackers.push(tokio::spawn(async move {
            for call in 0.. {
                let hosts = (0..1000).map(|number| format!("slow{call}.{number}")).collect();
                let kind = wire::ResourceType::MAP;
                let request = wire::ResourceRequest::new(call, Some(hosts), None, kind, None);
                let (handle, requests) = (Some(handle.clone()), Some(vec![request]));
                let _ = client.call(&Call::RequestResource { handle, requests }).await;
            }
        }));
    }
    // New nodes under a name, from another machine and from that of the attacker.
    let specs = wire::ComputeSpecs::new(1, None, 1 << 20, 1 << 20);
    for number in 0..20_u8 {
        let name = format!("new{number}");
        let address = wire::InetAddress::new(name.clone(), 1);
        let node = wire::ClusterNodeInfo::new(name, address, specs.clone(), None, None, None, None);
        let mut client = peer([127, 0, 0, 1 + number % 2], thrift).await;
        let heartbeat = Call::NodeHeartbeat { node: Some(node) };
        let answer = timeout(NORMAL, client.call(&heartbeat)).await;
        assert!(matches!(answer.expect("in time"), Ok(Reply::NodeHeartbeat(_))));
        let mut client = peer([127, 0, 0, 2], thrift).await;
        let handle = begin(&mut client, "127.0.0.1", 9).await;
        let hosts = Some(vec![format!("wanted{number}")]);
        let request = wire::ResourceRequest::new(1, hosts, None, wire::ResourceType::MAP, None);
        let request = Call::RequestResource { handle: Some(handle), requests: Some(vec![request]) };
        let answer = timeout(NORMAL, client.call(&request)).await;
        assert_eq!(answer.expect("in time").unwrap(), Reply::RequestResource);
    }
    for attacker in attackers {
        assert!(!attacker.is_finished());
        attacker.abort();
    }
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
}

/// Counts the look-ups in flight: the present number and the peak. None of them ends.
fn endless_names() -> (Resolver, Arc<AtomicUsize>) {
    let running = Arc::new(AtomicUsize::new(0));
    let counted = running.clone();
    let resolver = Resolver::new(move |_: &str| {
        counted.fetch_add(1, Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    });
    (resolver, running)
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(4 * NORMAL, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

/// The settings that bound look-ups, each with a value of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_on_look_ups_are_in_force() {
    let settings = [
        ("corona.cm.names.max.lookups", "5"),
        ("corona.cm.names.max.lookups.per.peer", "3"),
        ("corona.cm.names.timeout.ms", "300"),
    ];
    let (resolver, running) = endless_names();
    let (thrift, web, _stop) = start(&settings, resolver).await;
    add_node(thrift).await;
    for (host, expected) in [(1, 3), (2, 5)] {
        let mut client = peer([127, 0, 0, host], thrift).await;
        for number in 0..10 {
            let handle = begin(&mut client, &format!("name{host}.{number}"), 9).await;
            ask(&mut client, &handle, 1).await;
        }
        until("as many as one peer may have", async || running.load(Ordering::SeqCst) == expected)
            .await;
    }
    until("look-ups count as failed in time", async || {
        let metrics = fetch(web, "/metrics").await;
        let failures =
            metrics.lines().filter(|line| line.starts_with("corona_notification_failures_total"));
        failures.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>() >= 20
    })
    .await;
    assert_eq!(running.load(Ordering::SeqCst), 5);

    let settings = [
        ("topology.node.switch.mapping.impl", "org.apache.hadoop.net.IPv4AddressTruncationMapping"),
        ("corona.cm.racks.max.lookups", "5"),
        ("corona.cm.racks.max.lookups.per.peer", "3"),
        ("corona.cm.racks.timeout.ms", "300"),
        ("corona.cm.racks.max.names.per.call", "7"),
    ];
    let (resolver, running) = endless_names();
    let (thrift, _, _stop) = start(&settings, resolver).await;
    let mut client = peer([127, 0, 0, 1], thrift).await;
    let handle = begin(&mut client, "127.0.0.1", 9).await;
    let mut texts = Vec::new();
    for hosts in [7, 8] {
        let hosts = (0..hosts).map(|number| format!("name{number}")).collect();
        let request =
            wire::ResourceRequest::new(1, Some(hosts), None, wire::ResourceType::MAP, None);
        let (handle, requests) = (Some(handle.clone()), Some(vec![request]));
        let answer = client.call(&Call::RequestResource { handle, requests }).await;
        texts.push(answer.unwrap_err().to_string());
    }
    assert!(texts[0].contains("within 300 ms"), "{texts:?}");
    assert!(texts[1].contains("more than 7 hosts"), "{texts:?}");
    assert_eq!(running.load(Ordering::SeqCst), 3);
    for number in 0..10_u8 {
        let name = format!("new{number}");
        let address = wire::InetAddress::new(name.clone(), 1);
        let specs = wire::ComputeSpecs::new(1, None, None, None);
        let node = wire::ClusterNodeInfo::new(name, address, specs, None, None, None, None);
        let mut client = peer([127, 0, 0, 1 + number % 2], thrift).await;
        let heartbeat = client.call(&Call::NodeHeartbeat { node: Some(node) }).await;
        assert!(heartbeat.unwrap_err().to_string().contains("within 300 ms"));
    }
    assert_eq!(running.load(Ordering::SeqCst), 3 + 5, "heartbeats have look-ups of their own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_are_kept_as_long_as_configured() {
    for (keep_ms, expected) in [("0", 3), ("60000", 1)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let resolver = Resolver::new(move |_: &str| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(vec![Ipv4Addr::LOCALHOST.into()])
        });
        let (thrift, _, _stop) = start(&[("corona.cm.names.cache.ms", keep_ms)], resolver).await;
        add_node(thrift).await;
        let (port, mut told, _driver) = driver(0);
        let mut client = peer([127, 0, 0, 1], thrift).await;
        for _ in 0..3 {
            let handle = begin(&mut client, "driver", port).await;
            ask(&mut client, &handle, 1).await;
            assert_eq!(timeout(NORMAL, told.recv()).await.expect("in time"), Some(vec![1]));
        }
        assert_eq!(asked.load(Ordering::SeqCst), expected, "{keep_ms}");
    }
}

/// Settings of a cluster manager that keeps its state file and its journal in a directory.
fn in_directory(directory: &std::path::Path, more: &[(&str, &str)]) -> corona_config::Loaded {
    let state = directory.join("cm.state").display().to_string();
    loaded(&[("cm.state", &state)], more)
}

/// A cluster manager that serves, and how to stop it.
struct Serving {
    thrift: SocketAddr,
    web: SocketAddr,
    core: Arc<crate::core::Core>,
    stop: watch::Sender<bool>,
    ended: tokio::task::JoinHandle<Result<(), Failure>>,
}

impl Serving {
    async fn start(loaded: corona_config::Loaded, beginning: Beginning) -> Serving {
        Serving::start_on(Disk::system(), loaded, beginning).await
    }

    async fn start_on(disk: Disk, loaded: corona_config::Loaded, beginning: Beginning) -> Serving {
        let resolver = Resolver::system();
        let manager =
            ClusterManager::bind_with(loaded, beginning, resolver, disk, None).await.unwrap();
        let (thrift, web) = (manager.thrift_address(), manager.web_address());
        let core = manager.parts.core.clone();
        let (stop, stopped) = watch::channel(false);
        let ended = tokio::spawn(manager.run(stopped));
        Serving { thrift, web, core, stop, ended }
    }

    /// Stops it, and waits until every part of it has ended.
    async fn stop(self) {
        let journal = self.journal().await.directory;
        self.stop.send_replace(true);
        timeout(2 * NORMAL, self.ended).await.expect("it stops").unwrap().unwrap();
        drop(self.core);
        let path = std::path::Path::new(&journal);
        until("the journal is free", async || corona_journal::DiskStorage::open(path).is_ok())
            .await;
    }

    async fn status(&self) -> corona_api::cluster::Status {
        let answer = fetch(self.web, "/api/v1/status").await;
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        serde_json::from_str(body).expect(body)
    }

    async fn journal(&self) -> corona_api::cluster::JournalStatus {
        self.status().await.journal.expect("a journal")
    }
}

/// A driver that listens and never answers.
fn silent_driver() -> (u16, std::net::TcpListener) {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    (listener.local_addr().unwrap().port(), listener)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_resumes_where_the_journal_ends() {
    let directory = tempfile::tempdir().unwrap();
    let settings = [("cm.cpu.to.resource.partitioning", r#"{"1":{"MAP":1}}"#)];
    let one = Serving::start(in_directory(directory.path(), &settings), Beginning::Resume).await;
    add_node(one.thrift).await;
    let mut client = peer([127, 0, 0, 1], one.thrift).await;
    let (port, mut told, _driver) = driver(0);
    let healthy = begin(&mut client, "127.0.0.1", port).await;
    for id in 1..=3 {
        ask(&mut client, &healthy, id).await;
        assert_eq!(timeout(NORMAL, told.recv()).await.expect("in time"), Some(vec![id]));
    }
    // The next cluster manager delivers a notification again that was not acknowledged.
    let pending = async || one.status().await.pending_notifications;
    until("the acknowledgements", async || pending().await == 0).await;
    // One is never reached, and one has ended.
    let (port, _listener) = silent_driver();
    let silent = begin(&mut client, "127.0.0.1", port).await;
    ask(&mut client, &silent, 7).await;
    let ended = begin(&mut client, "127.0.0.1", port).await;
    let end = Call::SessionEnd { handle: Some(ended.clone()), status: None };
    client.call(&end).await.unwrap();
    until("the grant is decided", async || {
        one.core.look(|engine, _| engine.standing(&silent, 7))
            == Some(corona_engine::ObservedState::Granted("n".into()))
    })
    .await;
    one.stop().await;

    // The configuration has changed meanwhile, and the host files as well.
    std::fs::write(directory.path().join("hosts"), "127.0.0.1\n").unwrap();
    let hosts = directory.path().join("hosts").display().to_string();
    let pools = directory.path().join("pools.xml");
    let group = "<group name='new'><maxMAP>400</maxMAP></group>";
    std::fs::write(&pools, format!("<configuration>{group}</configuration>")).unwrap();
    let pools = pools.display().to_string();
    let changed = [
        ("cm.cpu.to.resource.partitioning", r#"{"1":{"MAP":2}}"#),
        ("cm.hosts", &hosts),
        ("cm.pools.config.file", &pools),
    ];
    let two = Serving::start(in_directory(directory.path(), &changed), Beginning::Resume).await;
    two.core.look(|engine, _| {
        assert!(engine.is_running(&healthy) && engine.is_running(&silent));
        assert!(!engine.is_running(&ended));
        for id in 1..=3 {
            let granted = Some(corona_engine::ObservedState::Granted("n".into()));
            assert_eq!(engine.standing(&healthy, id), granted, "{id}");
        }
        let slots = engine.slots(corona_model::types::ResourceType::Map);
        assert_eq!((slots.used, slots.total), (4, 4000), "by the new settings");
        assert!(engine.settings().pools.groups.contains_key("new"), "the pools file is in force");
        engine.audit().unwrap();
    });
    let host_files = async || two.core.look(|engine, _| engine.hosts().include.len() == 1);
    until("the host files are in force", host_files).await;
    assert_eq!(two.journal().await.recovery.expect("it has resumed").image_record, 0);
    let mut client = peer([127, 0, 0, 1], two.thrift).await;
    ask(&mut client, &healthy, 4).await;
    let granted = timeout(NORMAL, told.recv()).await.expect("in time");
    assert_eq!(granted, Some(vec![4]), "not 1 to 3 again");
    let next = begin(&mut client, "127.0.0.1", 9).await;
    let number = |handle: &str| handle.rsplit('.').next().unwrap().parse::<u32>().unwrap();
    assert!(number(&next) > number(&ended), "{next} after {ended}");
    let path = two.journal().await.directory;
    let settings = two.core.look(|engine, _| engine.settings().clone());
    two.stop().await;
    // Settings and host files of a start are in the journal like any other input.
    let storage = corona_journal::DiskStorage::look(std::path::Path::new(&path)).unwrap();
    let mut reader = crate::journal::follower::Reader::new(7);
    corona_journal::show(&storage, |entry| Ok(reader.visit(entry)?)).unwrap();
    let found = reader.finish().expect("a state").engine;
    assert_eq!(*found.settings(), settings);
    assert_eq!(found.hosts().include.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_made_while_the_service_runs() {
    let directory = tempfile::tempdir().unwrap();
    let small = [
        ("corona.cm.journal.image.bytes", "65536"),
        ("corona.cm.journal.segment.bytes", "65536"),
        ("corona.cm.journal.sync", "always"),
    ];
    let loaded = || in_directory(directory.path(), &small);
    let one = Serving::start(loaded(), Beginning::Resume).await;
    add_node(one.thrift).await;
    let mut client = peer([127, 0, 0, 1], one.thrift).await;
    let (port, _listener) = silent_driver();
    let handle = begin(&mut client, "127.0.0.1", port).await;
    let mut id = 0;
    until("there is an image", async || {
        let requests = (0..100).map(|_| {
            id += 1;
            let hosts = Some(vec!["some.host.example.com".to_owned()]);
            wire::ResourceRequest::new(id, hosts, None, wire::ResourceType::REDUCE, None)
        });
        let (handle, requests) = (Some(handle.clone()), Some(requests.collect()));
        client.call(&Call::RequestResource { handle, requests }).await.unwrap();
        one.journal().await.image_record.is_some()
    })
    .await;
    let before = one.core.look(|engine, _| engine.snapshot());
    one.stop().await;
    let two = Serving::start(loaded(), Beginning::Resume).await;
    let journal = two.journal().await;
    assert!(journal.recovery.as_ref().is_some_and(|it| it.image_record > 0), "{journal:?}");
    assert!(journal.image_ms.is_some() && journal.sync == "always", "{journal:?}");
    assert_eq!(two.core.look(|engine, _| engine.snapshot()).sessions, before.sessions);
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_can_leave_the_journal_aside() {
    let directory = tempfile::tempdir().unwrap();
    let loaded = || in_directory(directory.path(), &[]);
    let one = Serving::start(loaded(), Beginning::Resume).await;
    let mut client = peer([127, 0, 0, 1], one.thrift).await;
    let handle = begin(&mut client, "127.0.0.1", 9).await;
    let second = ClusterManager::bind(loaded(), Beginning::Fresh).await.unwrap_err();
    assert!(second.to_string().contains("another process uses this journal"), "{second}");
    one.stop().await;

    let state_file = directory.path().join("cm.state");
    std::fs::write(&state_file, "{").unwrap();
    for beginning in [Beginning::Resume, Beginning::Fresh] {
        let refused = ClusterManager::bind(loaded(), beginning).await.unwrap_err();
        assert!(matches!(refused, crate::StartError::StateFileExists { .. }), "{refused}");
    }
    // A start that fails changes nothing.
    ClusterManager::bind(loaded(), Beginning::StateFile).await.unwrap_err();
    std::fs::remove_file(&state_file).unwrap();

    let two = Serving::start(loaded(), Beginning::Fresh).await;
    assert!(!two.core.look(|engine, _| engine.is_running(&handle)));
    two.stop().await;
    let (path, aside) = ("cm.state.journal", "cm.state.journal.old");
    let (path, aside) = (directory.path().join(path), directory.path().join(aside));
    corona_journal::DiskStorage::remove_all(&path).unwrap();
    corona_journal::DiskStorage::rename_all(&aside, &path).unwrap();
    let three = Serving::start(loaded(), Beginning::StateFileIfPresent).await;
    assert!(three.core.look(|engine, _| engine.is_running(&handle)), "the old journal is whole");
    three.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_can_prefer_the_journal_to_a_state_file() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let start = || Serving::start(in_directory(directory.path(), &[]), Beginning::JournalIfPresent);
    let one = start().await;
    let mut client = peer([127, 0, 0, 1], one.thrift).await;
    let saved = begin(&mut client, "127.0.0.1", 9).await;
    one.core.apply(Input::SetSafeMode { on: true }).unwrap();
    let written = client.call(&Call::PersistState).await.unwrap();
    assert_eq!(written, Reply::PersistState(true));
    one.stop().await;
    assert!(at("cm.state").exists());
    std::fs::copy(at("cm.state"), at("kept")).unwrap();

    let two = start().await;
    assert!(two.core.look(|engine, _| engine.is_running(&saved)));
    assert!(!at("cm.state").exists() && at("cm.state.outdated").exists());
    let mut client = peer([127, 0, 0, 1], two.thrift).await;
    let later = begin(&mut client, "127.0.0.1", 9).await;
    two.stop().await;

    // A file that the journal is ahead of.
    std::fs::copy(at("kept"), at("cm.state")).unwrap();
    let three = start().await;
    for handle in [&saved, &later] {
        assert!(three.core.look(|engine, _| engine.is_running(handle)), "{handle}");
    }
    three.stop().await;
    assert!(!at("cm.state.recovered").exists() && !at("cm.state.journal.old").exists());

    // A state file does not hide that the journal is lost.
    std::fs::remove_dir_all(at("cm.state.journal")).unwrap();
    std::fs::copy(at("kept"), at("cm.state")).unwrap();
    let loaded = in_directory(directory.path(), &[]);
    let refused = ClusterManager::bind(loaded, Beginning::JournalIfPresent).await.unwrap_err();
    assert!(refused.to_string().contains("lost: the journal was stored up to record"), "{refused}");
    corona_journal::DiskStorage::remove_all(&at("cm.state.journal")).unwrap();
    let four = start().await;
    assert!(four.core.look(|engine, _| engine.is_running(&saved)));
    assert!(!four.core.look(|engine, _| engine.is_running(&later)));
    assert!(!at("cm.state").exists() && at("cm.state.recovered").exists());
    four.stop().await;
}

/// After a write or a sync that fails, calls that wait for the journal are never answered, heartbeats that change nothing are
/// answered until the end, and the process ends with one line that names the file. After a sync that failed none is tried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_of_the_disk_ends_the_service() {
    for (sync, fails) in [("write", "write"), ("write", "sync"), ("always", "sync")] {
        let directory = tempfile::tempdir().unwrap();
        let faults = Faults::default();
        let loaded = || in_directory(directory.path(), &[("corona.cm.journal.sync", sync)]);
        let one = Serving::start_on(Disk::with(&faults), loaded(), Beginning::Resume).await;
        let mut client = peer([127, 0, 0, 1], one.thrift).await;
        let acknowledged = begin(&mut client, "127.0.0.1", 9).await;
        match fails {
            "write" => faults.fail_writes(std::io::ErrorKind::StorageFull),
            _ => faults.fail_syncs(std::io::ErrorKind::Other),
        }
        let mut answered = 0;
        let asking = async {
            while client.call(&Call::GetNextSessionId).await.is_ok() {
                answered += 1;
            }
        };
        timeout(4 * NORMAL, asking).await.expect("nobody is answered any more");
        // With `write`, a failure of the disk in the background is noticed with the next sync.
        assert!(sync != fails && sync == "write" || answered == 0, "{sync}, {fails}: {answered}");
        let Serving { ended, core, stop, .. } = one;
        let ended = timeout(NORMAL, ended).await.expect("it ends by itself").unwrap();
        let Err(failure @ Failure::Journal(_)) = ended else { panic!("{ended:?}") };
        let line = failure.to_string();
        let named = format!("00000000000000000001.journal: cannot {fails}: ");
        assert!(line.starts_with("the journal failed: ") && line.contains(&named), "{line}");
        assert!(!line.contains('\n'), "{line}");
        if fails == "sync" {
            assert_eq!(faults.syncs(), (1, 0), "{sync}: no sync is tried after it");
        }
        drop((core, client, stop));
        let path = directory.path().join("cm.state.journal");
        until("the journal is free", async || corona_journal::DiskStorage::open(&path).is_ok())
            .await;
        // On a sound disk everything that was acknowledged is there.
        let two = Serving::start(loaded(), Beginning::Resume).await;
        assert!(two.core.look(|engine, _| engine.is_running(&acknowledged)), "{sync}");
        two.stop().await;
    }
}

/// Releases a stalled disk when a test fails, so that the test ends.
struct Release(Faults);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.hold(false);
    }
}

/// While the disk accepts nothing, heartbeats that change nothing are answered; calls that change
/// something wait, and are answered as soon as the disk resumes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_disk_delays_only_what_it_must_keep() {
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::default();
    let loaded = in_directory(directory.path(), &[]);
    let one = Serving::start_on(Disk::with(&faults), loaded, Beginning::Resume).await;
    add_node(one.thrift).await;
    faults.hold(true);
    let _release = Release(faults.clone());
    let mut asking = peer([127, 0, 0, 1], one.thrift).await;
    let asking = tokio::spawn(async move { asking.call(&Call::GetNextSessionId).await });
    for _ in 0..3 {
        timeout(NORMAL, add_node(one.thrift)).await.expect("the node says nothing new");
    }
    until("the status shows that it stalls", async || {
        let journal = one.journal().await;
        journal.stalled_ms > 0 && journal.committed_record < journal.last_record
    })
    .await;
    let page = fetch(one.web, "/").await;
    let journal = ["<dt>Journal</dt>", "<dt>Last image</dt>", "<dt>Recovery at the start</dt>"];
    assert!(journal.iter().all(|part| page.contains(part)), "{page}");
    let metrics = fetch(one.web, "/metrics").await;
    // The pass for the new node may be among them.
    let uncommitted = ["1", "2"]
        .map(|count| metrics.contains(&format!("\ncorona_journal_uncommitted_records {count}\n")));
    assert!(uncommitted.contains(&true), "{metrics}");
    assert!(!asking.is_finished());
    faults.hold(false);
    timeout(NORMAL, asking).await.expect("in time").unwrap().unwrap();
    one.stop().await;
}

/// The supervisor of the process restarts it; no caller is served from a state that may be wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_the_engine_ends_the_service_unless_nothing_is_lost() {
    let loaded = loaded(&WITHOUT_STATE, &[]);
    let manager = ClusterManager::bind(loaded, Beginning::Resume).await.unwrap();
    let (thrift, core) = (manager.thrift_address(), manager.parts.core.clone());
    let (_stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(manager.run(stopped));

    let mut client = peer([127, 0, 0, 1], thrift).await;
    client.call(&Call::GetNextSessionId).await.unwrap();
    core.plant_a_fault();
    client.call(&Call::GetNextSessionId).await.unwrap_err();
    let mut client = peer([127, 0, 0, 1], thrift).await;
    client.call(&Call::GetNextSessionId).await.expect("it goes on");

    core.plant_a_fault();
    let end = Call::SessionEnd { handle: Some("none".to_owned()), status: None };
    client.call(&end).await.unwrap_err();
    let ended = timeout(NORMAL, serving).await.expect("it ends by itself").unwrap();
    let Err(Failure::Engine(broken)) = ended else { panic!("{ended:?}") };
    assert!(broken.to_string().contains("planted"), "{broken}");
}
