//! The whole service in this process, where that is needed to replace a part of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::names::Resolver;
use super::{Beginning, ClusterManager, Failure};
use corona_wire::calls::{
    ClusterManager as Contract, ClusterManagerCall as Call, ClusterManagerReply as Reply,
    SessionDriver, SessionDriverCall, SessionDriverReply,
};
use corona_wire::client::{Client, ClientOptions};
use corona_wire::generated as wire;
use corona_wire::server::{Answer, Limits, ListenOn, Server, listen};

/// In what time a healthy peer must be served.
const NORMAL: Duration = Duration::from_secs(5);

async fn start(
    settings: &[(&str, &str)],
    resolver: Resolver,
) -> (SocketAddr, SocketAddr, watch::Sender<bool>) {
    let ports = [
        ("cm.server.address", "localhost:0"),
        ("cm.server.http.address", "localhost:0"),
        ("cm.state", "none"),
    ];
    let overrides: Vec<(String, String)> =
        ports.iter().chain(settings).map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let loaded = corona_config::load(None, &overrides).unwrap();
    let manager = ClusterManager::bind_with(loaded, Beginning::Clean, resolver).await.unwrap();
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

/// A driver, and the ids that it is granted.
fn driver() -> (u16, mpsc::Receiver<i32>) {
    let listener = listen(ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = mpsc::channel(100);
    let answer = move |_: SocketAddr, call| {
        let tell = tell.clone();
        async move {
            if let SessionDriverCall::GrantResource { granted: Some(granted), .. } = call {
                for grant in granted {
                    let _ = tell.send(grant.id).await;
                }
            }
            Answer::Reply(SessionDriverReply::GrantResource)
        }
    };
    let (stop, stopped) = watch::channel(false);
    let server = Server::new(listener, answer, Limits::default()).run::<SessionDriver>(stopped);
    tokio::spawn(async move {
        let _stop = stop;
        server.await;
    });
    (port, told)
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
    let (port, mut told) = driver();
    let mut healthy = peer([127, 0, 0, 2], thrift).await;
    let handle = begin(&mut healthy, "healthy", port).await;
    for id in 1..20 {
        let asked = Instant::now();
        ask(&mut healthy, &handle, id).await;
        assert_eq!(timeout(NORMAL, told.recv()).await.expect("in time"), Some(id));
        assert!(asked.elapsed() < NORMAL);
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
        let node = wire::ClusterNodeInfo::new(name, address, specs.clone(), None, None);
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

/// Counts the look-ups that are under way, at present and at most. None of them ends.
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
        let node = wire::ClusterNodeInfo::new(name, address, specs, None, None);
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
        let (port, mut told) = driver();
        let mut client = peer([127, 0, 0, 1], thrift).await;
        for _ in 0..3 {
            let handle = begin(&mut client, "driver", port).await;
            ask(&mut client, &handle, 1).await;
            assert_eq!(timeout(NORMAL, told.recv()).await.expect("in time"), Some(1));
        }
        assert_eq!(asked.load(Ordering::SeqCst), expected, "{keep_ms}");
    }
}

/// Whoever supervises the process starts it again; nobody is served from books that may be wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_the_engine_ends_the_service_unless_nothing_is_lost() {
    let overrides = [
        ("cm.server.address", "localhost:0"),
        ("cm.server.http.address", "localhost:0"),
        ("cm.state", "none"),
    ];
    let overrides = overrides.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let loaded = corona_config::load(None, &overrides).unwrap();
    let manager = ClusterManager::bind(loaded, Beginning::Clean).await.unwrap();
    let (thrift, core) = (manager.thrift_address(), manager.core.clone());
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
