//! The whole task tracker in front of a cluster manager that the test answers for.

use std::fs;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::layout;
use corona_config::Source;
use corona_hadoop::protocols::corona_task_tracker::CoronaTaskTrackerClient;
use corona_hadoop::protocols::task_umbilical::TaskUmbilicalClient;
use corona_hadoop::writables::InetAddress;
use corona_net::testing::{soon, until};
use corona_wire::calls::{ClusterManager, ClusterManagerCall, ClusterManagerReply};
use corona_wire::client::{Client, ClientOptions};
use corona_wire::generated::{ClusterNodeInfo, NodeHeartbeatResponse};
use corona_wire::server::{Answer, Limits, Peer};

/// A cluster manager that records heartbeats, and its address.
fn cluster_manager() -> (SocketAddr, mpsc::Receiver<ClusterNodeInfo>) {
    let listener = listen(ListenOn::Address("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, heard) = mpsc::channel(1);
    let answer = move |_: Peer, call: ClusterManagerCall| {
        let ClusterManagerCall::NodeHeartbeat { node: Some(node) } = call else {
            panic!("{call:?}")
        };
        // The test may have dropped the receiver.
        let _ = sender.try_send(node);
        let reply = NodeHeartbeatResponse::new(false, None);
        std::future::ready(Answer::Reply(ClusterManagerReply::NodeHeartbeat(reply)))
    };
    let server = Server::new(listener, answer, Limits::default());
    tokio::spawn(async move {
        let (_stop, stopped) = watch::channel(false);
        server.run::<ClusterManager>(stopped).await;
    });
    (address, heard)
}

/// A configuration with all its directories in this one.
fn loaded(root: &TempDir, cluster_manager: SocketAddr, more: &[(&str, &str)]) -> LoadedTaskTracker {
    let root = root.path().display().to_string();
    let mut overrides: Vec<(String, String)> = [
        ("cm.server.address", &*cluster_manager.to_string()),
        ("corona.clustermanager.heartbeat.interval", "5"),
        ("hadoop.tmp.dir", &root),
        ("slave.host.name", "localhost"),
        ("mapred.task.tracker.http.address", "127.0.0.1:0"),
        ("mapred.coronatasktracker.num.cpus", "3"),
        ("corona.tt.child.class.path", "/none"),
        ("corona.tt.java.home", "/none"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    overrides.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    Source { overrides: &overrides, ..Source::default() }.load_task_tracker().unwrap()
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn a_failed_part_ends_the_task_tracker() {
    let mut servers = ServiceTasks::default();
    servers.spawn("one that lasts", std::future::pending());
    servers.spawn("one that fails", async { panic!("out of luck") });
    let ending = soon(until_broken(&mut servers, std::future::pending())).await;
    let Ending::TaskPanicked(broken) = ending else { panic!("{ending:?}") };
    assert_eq!(broken.to_string(), "one that fails panicked: panic: out of luck");
    let mut none = ServiceTasks::default();
    let ending = soon(until_broken(&mut none, async { panic!("out of luck") })).await;
    let Ending::TaskPanicked(broken) = ending else { panic!("{ending:?}") };
    assert_eq!(broken.to_string(), "the heartbeat loop panicked: panic: out of luck");
    let ending = soon(until_broken(&mut servers, async { Ending::Restart })).await;
    assert_eq!(ending, Ending::Restart);
}

#[tokio::test]
async fn it_serves_until_it_is_stopped() {
    let root = tempfile::tempdir().unwrap();
    let left = root.path().join("mapred/local").join(layout::TRACKER).join("jobcache/job_1_1");
    let merged = root.path().join("mapred/local/attempt_20.1_0001_r_000000_0/intermediate.1");
    fs::create_dir_all(&left).unwrap();
    fs::create_dir_all(&merged).unwrap();
    let (address, mut heard) = cluster_manager();
    let tracker = TaskTracker::bind(loaded(&root, address, &[]), &|_| None).await.unwrap();
    assert!(!left.exists() && !merged.exists(), "what an earlier run has left is gone");
    let (to, name) = (tracker.addresses(), tracker.name().to_owned());
    // Java's name of the address is the machine's.
    let own = name_of("127.0.0.1");
    assert_eq!(name, format!("tracker_localhost:{own}/127.0.0.1:{}", to.umbilical.port()));
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(tracker.run(stopped));

    let node = soon(heard.recv()).await.unwrap();
    assert_eq!((node.name, &*node.address.host), (name, "localhost"));
    assert_eq!(node.address.port, i32::from(to.callbacks.port()));
    assert_eq!(node.total.num_cpus, 3);
    let action = format!("127.0.0.1:{}", to.actions.port());
    // Job trackers run here by default.
    let types = [
        generated::ResourceType::MAP,
        generated::ResourceType::REDUCE,
        generated::ResourceType::JOBTRACKER,
    ];
    assert_eq!(node.resource_infos.unwrap(), types.map(|kind| (kind, action.clone())).into());

    let at = |address: SocketAddr| InetAddress { host: "127.0.0.1".into(), port: address.port() };
    let user = rpc::User { name: "alice".into(), groups: vec!["users".into()] };
    let options = rpc::ClientOptions::new(user);
    let mut job_tracker = CoronaTaskTrackerClient::new(at(to.actions), options.clone());
    soon(job_tracker.submit_actions(None)).await.unwrap();
    let mut task = TaskUmbilicalClient::new(at(to.umbilical), options);
    let nobody = "attempt_20.1_0001_m_000000_0".parse().unwrap();
    assert!(!soon(task.ping(nobody)).await.unwrap());
    // Each port has its own protocol: no client can report for a task where job trackers send
    // actions.
    let user = rpc::User { name: "mallory".into(), groups: vec![] };
    let options = rpc::ClientOptions::new(user);
    let mut stranger = TaskUmbilicalClient::new(at(to.actions), options.clone());
    let nobody = "attempt_20.1_0001_m_000000_0".parse().unwrap();
    assert!(soon(stranger.fatal_error(nobody, None)).await.is_err());
    let mut stranger = CoronaTaskTrackerClient::new(at(to.umbilical), options);
    assert!(soon(stranger.submit_actions(None)).await.is_err());
    let callbacks = (to.actions.ip(), to.callbacks.port());
    let client = Client::<CoronaTaskTracker>::connect(callbacks, ClientOptions::default()).await;
    client.unwrap().purge_session("none".to_owned()).await.unwrap();
    let answer = get(to.http, "/tasklog").await;
    assert!(answer.starts_with("HTTP/1.0 400 ") && answer.contains("taskid"), "{answer}");

    let answer = get(to.http, "/healthz").await;
    assert!(answer.starts_with("HTTP/1.0 200 ") && answer.ends_with("ok\n"), "{answer}");
    let answer = get(to.http, "/").await;
    assert!(answer.contains("Task tracker localhost"), "{answer}");
    assert!(answer.contains("No Java task can run here: /none/bin/java: No such file"), "{answer}");

    stop.send_replace(true);
    assert_eq!(soon(running).await.unwrap(), Ending::Stopped);
    // Another test may be given a port that has become free, until it ends.
    for address in [to.http, to.actions, to.umbilical] {
        until("nobody listens", || std::net::TcpStream::connect(address).is_err()).await;
    }
}

#[tokio::test]
async fn a_failed_start_names_the_key() {
    let (address, _heard) = cluster_manager();
    let taken = address.to_string();
    let table = [
        (
            ("mapred.task.tracker.http.address", &*taken),
            format!("cannot listen on {taken} (mapred.task.tracker.http.address): "),
        ),
        (
            ("mapred.task.tracker.report.address", "no-such-host.invalid:0"),
            "cannot listen on no-such-host.invalid:0 (mapred.task.tracker.report.address): ".into(),
        ),
        (
            ("slave.host.name", "no-such-host.invalid"),
            "host no-such-host.invalid has no address: ".into(),
        ),
        (
            ("cm.cpu.to.resource.partitioning", r#"{"4":{"MAP":1}}"#),
            "cm.cpu.to.resource.partitioning has no entry for 3 CPUs, and none for 1 to multiply"
                .into(),
        ),
        (("mapred.local.dir", "/proc/none"), "mapred.local.dir".into()),
    ];
    for (set, told) in table {
        let root = tempfile::tempdir().unwrap();
        let error = TaskTracker::bind(loaded(&root, address, &[set]), &|_| None).await.unwrap_err();
        assert!(error.to_string().starts_with(&told), "{error}");
    }
}

#[tokio::test]
async fn a_second_one_with_the_same_directories_does_not_start() {
    let root = tempfile::tempdir().unwrap();
    let (address, _heard) = cluster_manager();
    let first = TaskTracker::bind(loaded(&root, address, &[]), &|_| None).await.unwrap();
    let second = TaskTracker::bind(loaded(&root, address, &[]), &|_| None).await;
    assert!(matches!(second.unwrap_err(), StartError::Lock(LockError::Taken(_))));
    drop(first);
    TaskTracker::bind(loaded(&root, address, &[]), &|_| None).await.unwrap();
}

#[test]
fn slots_follow_the_processors() {
    let root = tempfile::tempdir().unwrap();
    let address = "127.0.0.1:1".parse().unwrap();
    let key = "cm.cpu.to.resource.partitioning";
    for (partitioning, multiplier, maps, reduces) in [
        (r#"{"1":{"MAP":2,"REDUCE":1}}"#, "10", 60, 30),
        (r#"{"1":{"MAP":2},"3":{"MAP":5,"REDUCE":4}}"#, "1", 5, 4),
        (r#"{"1":{"MAP":1}}"#, "2147483647", u32::MAX, 0),
    ] {
        let more = [(key, partitioning), ("corona.slot.multiplier", multiplier)];
        let settings = loaded(&root, address, &more).settings;
        let found = accepted(granted(&settings).unwrap(), settings.slot_multiplier);
        assert_eq!((found.maps, found.reduces), (maps, reduces), "{partitioning}");
    }
}

#[test]
fn people_are_led_to_pages_that_they_can_reach() {
    let root = tempfile::tempdir().unwrap();
    for (thrift, pages, expected) in [
        ("cm:7", "cm:80", Some("http://cm:80/")),
        ("cm:7", "web.example.com:80", Some("http://web.example.com:80/")),
        ("cm:7", "0.0.0.0:80", Some("http://cm:80/")),
        ("cm:7", "[::]:80", Some("http://cm:80/")),
        ("localhost:7", "localhost:80", Some("http://localhost:80/")),
        ("127.0.0.1:7", "localhost:80", Some("http://localhost:80/")),
        // On the cluster manager's own loopback, and on an unknown port.
        ("cm:7", "localhost:80", None),
        ("cm:7", "127.0.0.1:80", None),
        ("cm:7", "cm:0", None),
    ] {
        let more = [("cm.server.address", thrift), ("cm.server.http.address", pages)];
        let settings = loaded(&root, "127.0.0.1:1".parse().unwrap(), &more).settings;
        assert_eq!(pages_of(&settings).as_deref(), expected, "{thrift} {pages}");
    }
}

#[test]
fn tasks_get_an_address_that_they_can_connect_to() {
    for (bound, told) in [
        ("127.0.0.1:5", "127.0.0.1:5"),
        ("10.0.0.7:5", "10.0.0.7:5"),
        ("0.0.0.0:5", "127.0.0.1:5"),
        ("[::]:5", "[::1]:5"),
    ] {
        assert_eq!(address_for_tasks(bound.parse().unwrap()), told.parse().unwrap(), "{bound}");
    }
}
