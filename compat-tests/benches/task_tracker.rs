//! The costs of a task tracker: the time from a launch action to the start of the task's process,
//! the resources of an idle one, and how fast it serves map output.
//!
//!     cargo bench -p compat-tests --bench task_tracker
//!
//! The built program on loopback, among a cluster manager, a job tracker and tasks of tests. The map
//! output has just been written, so that the disk cache holds it; a plain server that does nothing
//! but `sendfile` serves the same file to the same reader, in turns.

#![expect(clippy::print_stdout, reason = "the result is for a person")]

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use compat_tests::task_tracker::cluster_manager::ClusterManager;
use compat_tests::task_tracker::job::Job;
use compat_tests::task_tracker::job_tracker::JobTracker;
use compat_tests::task_tracker::node::{Home, Node};
use compat_tests::task_tracker::steps::TaskRole;
use compat_tests::task_tracker::until;
use corona::hadoop::writables::TaskAttemptId;

/// Tasks that are launched one after another.
const LAUNCHES: i32 = 200;
/// Bytes of a part of map output.
const PART_BYTES: usize = 256 << 20;
/// Rounds of each way to serve it.
const ROUNDS: usize = 12;

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("threads can be started");
    runtime.block_on(async {
        let root = tempfile::tempdir().expect("a directory");
        let manager = ClusterManager::start();
        let home = Home::new(root.path(), manager.address(), manager.proxy())
            .with("corona.clustermanager.heartbeat.interval", "3000");
        let node = home.start().await;
        let actions = manager.actions().await;
        idle(&node, "after its first heartbeat");
        let session = JobTracker::start("202611220000.1");
        session.use_tracker(&actions).await;
        launches(root.path(), &session).await;
        idle(&node, "after these tasks");
        shuffle(root.path(), &session).await;
        idle(&node, "after serving map output");
        home.nothing_left().await;
    });
}

/// The resources that the process holds.
fn idle(node: &Node, when: &str) {
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap_or_default();
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest.trim_start_matches(':').trim().to_owned()).unwrap_or_default()
    };
    println!("{when}: {} resident, {} threads", value("VmRSS"), value("Threads"));
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// From just before the action is sent to the first line of the program that the task is.
async fn launches(root: &Path, job_tracker: &JobTracker) {
    let program = test_task();
    let job = Job::new("202611220000.1", &root.join("jobs/launches"), program);
    let job = job.expect("a directory for the job").sized(LAUNCHES, 0);
    let job = job.with("test.steps", "ask,done");
    job.write().expect("the job's file");
    let mut times = Vec::new();
    for number in 0..LAUNCHES {
        let map = job.map(number);
        let before = now();
        job_tracker.launch([job.task(&map)]).await;
        let started = || {
            let note = job.notes().of(&map.to_string(), "started").pop()?;
            note.parse().ok().map(Duration::from_nanos)
        };
        times.push(until("a start", started).await.saturating_sub(before));
        // The next one is launched when there is nothing else to do.
        job_tracker.ended(&map, 1).await;
    }
    let first = times.remove(0);
    times.sort();
    let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
    println!(
        "launch to start of the process: first of its job {first:.1?}; the other {}: median {:.1?}, 90 % {:.1?}, most {:.1?}",
        times.len(),
        at(50),
        at(90),
        at(100),
    );
    job_tracker.kill_job(&job.id).await;
}

fn test_task() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_test-task"))
}

async fn shuffle(root: &Path, job_tracker: &JobTracker) {
    let job = Job::new("202611220000.1", &root.join("jobs/shuffle"), test_task());
    let mut job = job.expect("a directory for the job").sized(1, 1);
    // Not the job that was killed a moment ago.
    job.id.number = 2;
    let job = job.with("test.output.bytes", &PART_BYTES.to_string());
    let job = job.steps(TaskRole::Map, "output,done");
    job.write().expect("the job's file");
    let map = job.map(0);
    job_tracker.launch([job.task(&map)]).await;
    job_tracker.ended(&map, 1).await;
    let output = job.notes().of(&map.to_string(), "output").pop().expect("the map's output");
    let port = job_tracker.state().heartbeats.last().map_or(0, |(status, ..)| status.http_port);
    let tracker = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port).unwrap_or(0)));
    let plain = sendfile_server(Path::new(&output).join("file.out"));
    for connections in [1, 4] {
        let ways = [("task tracker", tracker), ("plain sendfile", plain)];
        let mut rates: [Vec<f64>; 2] = Default::default();
        for _ in 0..ROUNDS {
            for ((_, server), rates) in ways.iter().zip(&mut rates) {
                rates.push(fetch(*server, &map, connections));
            }
        }
        for ((name, _), mut rates) in ways.iter().zip(rates) {
            rates.sort_by(f64::total_cmp);
            let median = rates[rates.len() / 2];
            println!(
                "{connections} readers, {name}: median {median:.0} MB/s, best {:.0} MB/s",
                rates[rates.len() - 1]
            );
        }
    }
    job_tracker.kill_job(&job.id).await;
}

/// Megabytes a second over so many connections at once, each of which reads the part once.
fn fetch(server: SocketAddr, map: &TaskAttemptId, connections: usize) -> f64 {
    let request = format!(
        "GET /mapOutput?job={}&map={map}&reduce=0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        map.job()
    );
    let begun = Instant::now();
    let readers = (0..connections).map(|_| {
        let request = request.clone();
        thread::spawn(move || read_all(server, &request).expect("an answer"))
    });
    let readers: Vec<_> = readers.collect();
    let bytes: usize = readers.into_iter().map(|reader| reader.join().expect("a reader")).sum();
    assert!(bytes >= PART_BYTES * connections, "{bytes} bytes came");
    bytes as f64 / 1e6 / begun.elapsed().as_secs_f64()
}

fn read_all(server: SocketAddr, request: &str) -> io::Result<usize> {
    let mut stream = TcpStream::connect(server)?;
    stream.write_all(request.as_bytes())?;
    let (mut buffer, mut bytes) = (vec![0; 256 << 10], 0);
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(bytes),
            read => bytes += read,
        }
    }
}

/// A server that does nothing but to send a file: one thread a connection, the kernel's copy.
fn sendfile_server(file: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let file = file.clone();
            thread::spawn(move || send(stream, &file));
        }
    });
    address
}

fn send(mut stream: TcpStream, file: &Path) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    // From a file to a socket this is `sendfile`.
    io::copy(&mut File::open(file)?, &mut stream)?;
    Ok(())
}
