//! Whole conversations over the real wire with the cluster manager in the same process: heartbeats,
//! and requests that are granted, notified and released. It measures the cluster manager and the
//! load together; for two processes use `corona load`.
//!
//!     cargo bench --bench conversations [-- SECONDS]
//!
//! Without a journal, unless `CORONA_JOURNAL` is `write` or `always`.

#![expect(clippy::print_stdout, reason = "the result is for a person")]

mod support;

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use corona::load::{
    self, Connections, Crowd, Driver, Heartbeats, Job, Nodes, Placement, Plan, Progress,
};
use tokio::sync::watch;

fn main() {
    let seconds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(5);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("threads can be started");
    println!(
        "{:<28} {:>12} {:>12} {:>12} {:>12}",
        "conversation", "a second", "median, us", "99 %, us", "99.9 %, us"
    );
    let paced = Heartbeats::Every(Duration::from_secs(3));
    let cases = [
        (nodes(1_000, 16, Heartbeats::ClosedLoop), vec![], "nodeHeartbeat"),
        (nodes(1_000, 50, paced), vec![crowd(10, 5_000, 3)], "sessions: request to grant"),
        (nodes(1_000, 50, paced), vec![crowd(20, 10, 3)], "sessions: job"),
        (nodes(1_000, 50, paced), vec![crowd(1, 1, 0)], "sessions: request to grant"),
        (nodes(1_000, 50, paced), vec![crowd(1_000, 1, 0)], "sessions: request to grant"),
    ];
    // In the last case nearly every call to a session has only one notification.
    let names = [
        "heartbeats",
        "churn, grants",
        "small jobs",
        "request to grant",
        "notices to 1,000 sessions",
    ];
    for ((nodes, crowds, measure), name) in cases.into_iter().zip(names) {
        runtime.block_on(run(name, measure, seconds, nodes, crowds));
    }
}

async fn run(name: &str, measure: &str, seconds: u64, nodes: Nodes, crowds: Vec<Crowd>) {
    let directory = tempfile::tempdir().expect("a directory for the journal");
    let manager = support::cluster_manager(directory.path()).await;
    let port = manager.thrift_address().port();
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(manager.run(stopped));
    let plan = Plan {
        scenario: "conversations",
        manager: SocketAddr::from(([127, 0, 0, 1], port)),
        warm_up: Duration::from_secs(1),
        duration: Duration::from_secs(seconds),
        nodes,
        crowds,
        late_crowds: vec![],
        connections: Connections::None,
        threads: 1,
        reconnect: Duration::ZERO,
        process_id: None,
    };
    let report = load::run(plan, &Progress::default(), pending()).await.expect("the load begins");
    assert_eq!(report.errors, [], "{name}");
    let timing = report.measures.iter().find(|timing| timing.name == measure);
    let timing = timing.expect("it was measured");
    println!(
        "{name:<28} {:>12.0} {:>12.0} {:>12.0} {:>12.0}",
        timing.per_second, timing.median_us, timing.percentile_99_us, timing.percentile_99_9_us
    );
    stop.send_replace(true);
    serving.await.expect("the manager stops in order").expect("nothing breaks down");
}

fn nodes(count: usize, connections: usize, heartbeats: Heartbeats) -> Nodes {
    // By default a node has a map slot for each of its CPUs.
    Nodes { count, cpus: 8, map_slots: 8, connections, heartbeats }
}

fn crowd(sessions: usize, maps: u32, hosts: u32) -> Crowd {
    let job = Job {
        maps,
        reduces: 0,
        hosts,
        placement: Placement::Scattered,
        hold: Duration::ZERO,
        request_batch: 1_000,
        release_batch: 1,
        pause: Duration::ZERO,
    };
    let jobs_per_session = (maps > 1).then_some(1);
    Crowd { name: "sessions", sessions, job, jobs_per_session, driver: Driver::Prompt }
}
