//! The recorded conversations of clients, job trackers, task trackers and cluster managers with the
//! original, played against the program: the same bytes in, the same bytes out.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use compat_tests::repository;
use compat_tests::task_tracker::PATIENCE;
use corona::conformance::capture::{Connection, EventKind, Limits, Side};
use corona::conformance::open;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Proxy;

/// The jobs, with the job trackers that report to the proxy job tracker in each.
const JOBS: [(&str, u64); 5] =
    [("inproc-sleep", 1), ("remote-sleep", 1), ("wc-remote", 1), ("nodedeath", 1), ("preempt", 2)];

/// The connections to a port of a recording.
fn recorded(directory: &Path, port: u16) -> Vec<Connection> {
    let traffic = open(&directory.join("traffic.pcap"), &Limits::default()).unwrap();
    let mut all = traffic.capture.connections;
    all.retain(|connection| connection.opening.server.port() == port && connection.accepted);
    all
}

/// The value of a property in a configuration file, if it has it.
fn property(xml: &str, key: &str) -> Option<String> {
    let rest = xml.split_once(&format!("<name>{key}</name>"))?.1;
    let rest = rest.split_once("<value>")?.1;
    Some(rest.split_once("</value>")?.0.trim().to_owned())
}

/// Plays one end of a connection: what the client sent, and after it exactly what the original
/// replied. Returns the bytes that were replied.
async fn play(connection: &Connection, to: SocketAddr, place: &str) -> usize {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let mut replied = 0;
    for event in &connection.events {
        match (&event.what, event.from) {
            (EventKind::Data(bytes), Side::Client) => stream.write_all(bytes).await.unwrap(),
            (EventKind::Data(bytes), Side::Server) => {
                let mut own = vec![0; bytes.len()];
                let read = timeout(PATIENCE, stream.read_exact(&mut own)).await;
                read.unwrap_or_else(|_| panic!("{place}: no reply")).unwrap();
                let (own, theirs) = (String::from_utf8_lossy(&own), String::from_utf8_lossy(bytes));
                assert_eq!(own, theirs, "{place}");
                replied += bytes.len();
            }
            (EventKind::Missing(_), _) => panic!("{place} is not whole"),
            (EventKind::End | EventKind::Reset, Side::Client) => break,
            // The original closes a connection that has been silent for 5 s (PJ-6).
            (EventKind::End | EventKind::Reset, Side::Server) => {}
        }
    }
    replied
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_peers_get_the_bytes_that_the_original_sent() {
    for (job, reports) in JOBS {
        let directory = repository().join("fixtures/recordings/jobs").join(job);
        let ports = std::fs::read_to_string(directory.join("ports.json")).unwrap();
        let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
        let port = |label: &str| -> u16 {
            let mut all = ports.as_object().unwrap().iter();
            let found = all.find(|(_, value)| value["label"] == label);
            found.and_then(|(port, _)| port.parse().ok()).unwrap_or_else(|| panic!("{label}"))
        };
        let site = ["core-site.xml", "mapred-site.xml"]
            .map(|name| std::fs::read_to_string(directory.join(name)).unwrap())
            .concat();
        let system = property(&site, "corona.system.dir").expect("the system directory");
        let root = tempfile::tempdir().unwrap();
        let settings = [("corona.system.dir", &*system), ("corona.pjt.clean.up", "off")];
        let proxy = Proxy::start(root.path(), &settings);
        let mut played = [0, 0];
        for (kind, (port, to)) in
            [(port("PJT"), proxy.thrift), (port("PJT-rpc"), proxy.rpc)].into_iter().enumerate()
        {
            for connection in recorded(&directory, port) {
                let place = format!("{job}, connection {}", connection.id.0);
                played[kind] += play(&connection, to, &place).await;
            }
        }
        assert!(played.iter().all(|bytes| *bytes > 0), "{job}: {played:?}");
        let (_, _, metrics) = proxy.get("/metrics").await;
        for line in [
            format!("corona_proxy_job_tracker_job_reports_total {reports}"),
            format!("corona_proxy_job_tracker_error_reports_total {reports}"),
        ] {
            assert!(metrics.lines().any(|own| own == line), "{job}: {line}\n{metrics}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_cluster_manager_sets_the_flag() {
    let directory: PathBuf =
        repository().join("fixtures/recordings/scenarios/safe_mode_and_recovery");
    let site = std::fs::read_to_string(directory.join("core-site.xml")).unwrap();
    let address = property(&site, "corona.proxy.job.tracker.thriftaddr").unwrap();
    let port = address.rsplit(':').next().unwrap().parse().unwrap();
    let root = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(root.path(), &[]);
    let connections = recorded(&directory, port);
    let mut flags = Vec::new();
    for connection in &connections {
        let place = format!("connection {}", connection.id.0);
        if play(connection, proxy.thrift, &place).await == 0 {
            continue;
        }
        let (_, _, metrics) = proxy.get("/metrics").await;
        let flag =
            metrics.lines().find(|line| line.starts_with("corona_proxy_job_tracker_safe_mode "));
        flags.push(flag.and_then(|line| line.chars().last()).unwrap());
    }
    // It is set, and cleared by the recovered cluster manager.
    assert!(flags.contains(&'1') && flags.last() == Some(&'0'), "{flags:?}");
}
