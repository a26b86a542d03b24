//! Predictions of what-if beside what happens: a live cluster manager and sessions that hold slots for a while, its journal
//! played against other pools, and the same sessions again with these pools in force.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use compat_tests::cluster_peers::{Node, PATIENCE};
use compat_tests::{corona_program, start_with};
use corona::session_driver::{
    Endpoint, Event, Options, PoolName, ResourceType, SessionDriver, SessionStatus, SlotRequest,
};
use serde_json::Value;
use tokio::time::{Instant as TokioInstant, sleep, sleep_until, timeout};

/// How long each task holds its slot.
const HOLDS: Duration = Duration::from_millis(500);
/// Slots of the cluster, on two nodes.
const CPUS: i16 = 4;
const SLOTS: &str = "{\"1\":{\"MAP\":1,\"REDUCE\":1,\"JOBTRACKER\":1}}";
/// Differences of predicted and real medians that are tolerated, as a share, and in milliseconds.
const TOLERATED: (f64, f64) = (0.1, 75.0);
/// A machine that was busy with something else gets another chance.
const ATTEMPTS: usize = 8;

/// A session: its pool, the milliseconds after which it comes, and its tasks.
type Planned = (&'static str, u64, usize);

const SESSIONS: [Planned; 9] = [
    ("g.hog", 0, 48),
    ("g.ads", 100, 16),
    ("g.ads", 1_100, 16),
    ("h.other", 200, 12),
    ("g.small", 300, 4),
    ("g.small", 1_300, 4),
    ("g.small", 2_300, 4),
    ("g.small", 3_300, 4),
    ("g.small", 4_300, 4),
];

const PRESENT: &str = "<group name=\"g\"><pool name=\"hog\"><weight>4</weight></pool>\
    <pool name=\"ads\"/><pool name=\"small\"/></group><group name=\"h\"><pool name=\"other\"/></group>";

/// Other pools: a weight, a minimum, a maximum, a priority, and an order of sessions.
const CHANGES: [(&str, &str); 5] = [
    (
        "weight",
        "<group name=\"g\"><pool name=\"hog\"><weight>1</weight></pool>\
         <pool name=\"ads\"><weight>4</weight></pool></group>",
    ),
    ("minimum", "<group name=\"g\"><pool name=\"small\"><minMAP>3</minMAP></pool></group>"),
    ("maximum", "<group name=\"g\"><pool name=\"hog\"><maxMAP>2</maxMAP></pool></group>"),
    (
        "group",
        "<group name=\"g\"><maxMAP>5</maxMAP><pool name=\"hog\"><maxMAP>3</maxMAP></pool></group>\
         <group name=\"h\"><minMAP>3</minMAP></group>",
    ),
    (
        "mode",
        "<group name=\"g\"><pool name=\"ads\"><minMAP>4</minMAP>\
         <schedulingMode>FAIR</schedulingMode></pool></group>",
    ),
];

fn pools_file(directory: &Path, name: &str, pools: &str) -> PathBuf {
    let file = directory.join(format!("{name}.xml"));
    fs::write(&file, format!("<?xml version=\"1.0\"?>\n<configuration>{pools}</configuration>\n"))
        .unwrap();
    file
}

/// The waits of each pool's tasks in milliseconds.
type Waits = BTreeMap<&'static str, Vec<f64>>;

/// Runs the sessions for real with a pools file. The journal stays where it is named.
async fn live(pools: &Path, journal: &str) -> Waits {
    let manager = start_with(&[
        ("cm.pools.config.file", pools.to_str().unwrap()),
        ("cm.cpu.to.resource.partitioning", SLOTS),
        ("corona.cm.journal.dir", journal),
    ]);
    let _nodes = ["n1", "n2"].map(|name| Node::start(manager.thrift(), name, name, CPUS));
    let (address, began) = (manager.thrift(), TokioInstant::now());
    let sessions = SESSIONS.map(|planned| {
        let endpoint = Endpoint::new(address.ip().to_string(), address.port());
        tokio::spawn(session(endpoint, began, planned))
    });
    let mut waits = Waits::new();
    for (planned, session) in SESSIONS.iter().zip(sessions) {
        let ended = timeout(PATIENCE, session).await.expect("sessions end").unwrap();
        waits.entry(planned.0).or_default().extend(ended);
    }
    waits
}

/// Runs a session. Returns the waits of its tasks.
async fn session(
    endpoint: Endpoint,
    began: TokioInstant,
    (pool, at_ms, count): Planned,
) -> Vec<f64> {
    sleep_until(began + Duration::from_millis(at_ms)).await;
    let mut options = Options::new(endpoint, "ann");
    options.pool = pool.parse::<PoolName>().unwrap();
    let (driver, mut events) = SessionDriver::start(options).await.unwrap();
    let driver = std::sync::Arc::new(driver);
    driver.request(vec![SlotRequest::new(ResourceType::Map); count]).unwrap();
    let (asked, mut waits, mut work) = (Instant::now(), Vec::new(), Vec::new());
    while waits.len() < count {
        match events.next().await.expect("the session goes on") {
            Event::Granted(grants) => {
                let waited_ms = asked.elapsed().as_secs_f64() * 1_000.0;
                for grant in grants {
                    waits.push(waited_ms);
                    let driver = driver.clone();
                    work.push(tokio::spawn(async move {
                        sleep(HOLDS).await;
                        driver.release([grant.id]).unwrap();
                    }));
                }
            }
            other => panic!("{other:?}"),
        }
    }
    for work in work {
        work.await.unwrap();
    }
    driver.end(SessionStatus::Successful).await;
    waits
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len().div_ceil(2) - 1]
}

/// What the program predicts from a journal: its own check, and for each pools file the medians of pools.
fn predicted(journal: &str, present: &Path, files: &[PathBuf]) -> Value {
    let mut command = std::process::Command::new(corona_program());
    command.args(["what-if", journal, "--json", "--compare"]).args(files);
    command.arg("-D").arg(format!("cm.pools.config.file={}", present.display()));
    command.arg("-D").arg(format!("cm.cpu.to.resource.partitioning={SLOTS}"));
    let output = command.env_remove("HADOOP_CONF_DIR").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// One run of everything: differences that are too large, as sentences.
async fn differences() -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let present = pools_file(directory.path(), "present", PRESENT);
    let files = CHANGES.map(|(name, pools)| pools_file(directory.path(), name, pools));
    let journal = directory.path().join("journal");
    let journal = journal.to_str().unwrap();
    live(&present, journal).await;
    let report = predicted(journal, &present, &files);
    let mut differences = Vec::new();
    if report["check"]["error"].as_f64().is_none_or(|error| error > 0.05) {
        differences.push(format!("with nothing changed: {}", report["check"]));
    }
    let together = files.clone().map(|file| tokio::spawn(async move { live(&file, "none").await }));
    for (place, run) in together.into_iter().enumerate() {
        let predicted = &report["runs"][place + 1];
        for (pool, mut waits) in run.await.unwrap() {
            let mut pools = predicted["pools"].as_array().unwrap().iter();
            let found = pools.find(|one| one["name"] == pool).unwrap();
            let predicted_ms = found["waits"]["median_ms"].as_f64().unwrap();
            let real_ms = median(&mut waits);
            let by = (predicted_ms - real_ms).abs();
            let name = CHANGES[place].0;
            if by > (real_ms * TOLERATED.0).max(TOLERATED.1) {
                differences.push(format!("{name}: {pool}: {predicted_ms} ms, really {real_ms} ms"));
            }
        }
    }
    differences
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn predicted_medians_are_those_of_a_live_cluster_with_these_pools() {
    for attempt in 1..=ATTEMPTS {
        let differences = differences().await;
        if differences.is_empty() {
            return;
        }
        assert!(attempt < ATTEMPTS, "{}", differences.join("\n"));
    }
}
