//! Clients of logs, map output and pages that do not read: the node and all others continue.

use std::fs::File;
use std::net::SocketAddr;
use std::time::Duration;

use compat_tests::task_tracker::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::{TestNode, block_on, run_map};

/// Hosts that each open so many connections. The readers of logs alone are more than the 512 threads
/// that the executor has for everything that blocks.
const ATTACKERS: [[u8; 4]; 3] = [[127, 0, 0, 2], [127, 0, 0, 3], [127, 0, 0, 4]];
const READERS: usize = 230;
/// More than the buffers of a connection hold.
const LARGE: u64 = 64 << 20;
/// The time in which other peers are served. It takes some milliseconds where nothing else runs.
const NORMAL: Duration = Duration::from_secs(10);

async fn ask(stream: &mut TcpStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the node takes a request");
}

/// The response that an innocent peer gets, in normal time.
pub(super) async fn get(node: SocketAddr, path: &str) -> Vec<u8> {
    let getting = async {
        let mut stream = TcpStream::connect(node).await.expect("a connection");
        ask(&mut stream, path).await;
        let mut answer = vec![];
        stream.read_to_end(&mut answer).await.expect("an answer");
        answer
    };
    timeout(NORMAL, getting).await.unwrap_or_else(|_| panic!("{path} has no answer in {NORMAL:?}"))
}

#[test]
fn hundreds_of_readers_that_do_not_read_take_nothing_from_anybody() {
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, job) = world.session().await;
        let job = job.sized(1, 1).with("test.output.bytes", &LARGE.to_string());
        job.write().unwrap();
        let map = run_map(&job_tracker, &job, 0).await;
        let (other_tracker, other_job) = world.session().await;
        let other_job = other_job.sized(1, 1);
        other_job.write().unwrap();
        let other_map = run_map(&other_tracker, &other_job, 0).await;
        let node = world.http(&job_tracker).await;
        let log = world.home.logs_of(&map.to_string()).join("stdout");
        File::create(log).unwrap().set_len(LARGE).unwrap();
        let log = format!("/tasklog?taskid={map}&filter=stdout");
        let output = format!("/mapOutput?job={}&map={map}&reduce=0", job.id);
        let other_output = format!("/mapOutput?job={}&map={other_map}&reduce=0", other_job.id);
        let plain_log = format!("{log}&plaintext=true");
        let mut readers = vec![];
        for from in ATTACKERS {
            for number in 0..READERS {
                let path = match number % 10 {
                    0 => &output,
                    1 => &log,
                    _ => &plain_log,
                };
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind((from, 0).into()).unwrap();
                let mut reader = socket.connect(node).await.unwrap();
                ask(&mut reader, path).await;
                readers.push(reader);
            }
        }
        // All of them are served, up to where they do not read.
        for reader in &readers {
            timeout(NORMAL, reader.readable()).await.expect("some bytes for each").unwrap();
        }
        let heartbeats = world.manager.state().heartbeats.len();
        for _ in 0..5 {
            for path in ["/", "/healthz", "/metrics", "/api/v1/tracker"] {
                let answer = get(node, path).await;
                assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{path}");
            }
            let tail = get(node, &format!("{plain_log}&start=-10")).await;
            assert!(tail.starts_with(b"HTTP/1.1 200 OK\r\n"));
            let answer = get(node, &other_output).await;
            assert!(answer.len() > 1000, "{}", answer.len());
        }
        // Heartbeats are due every 50 milliseconds.
        let come = || (world.manager.state().heartbeats.len() > heartbeats + 20).then_some(());
        timeout(NORMAL, until("heartbeats", come)).await.expect("heartbeats in normal time");
        other_tracker.kill_job(&other_job.id).await;
        world.end_last_job(&job_tracker, &job).await;
        world.still_works().await;
        drop(readers);
    });
}
