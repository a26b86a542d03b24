//! The most that heartbeats could reach: a server of the same runtime that returns every byte, in a
//! process of its own, and clients that send it as many bytes as a heartbeat has and wait for them.
//!
//!     cargo bench --bench echo [-- CONNECTIONS SECONDS]
//!
//! Since `corona load heartbeats` does more for each answer than these clients do, there is also a
//! server that does next to nothing and can replace a cluster manager:
//!
//!     cargo bench --bench echo -- answer 19556
//!     corona load heartbeats --address localhost:19556
//!
//! It answers each call of `nodeHeartbeat` with the same reply, and listens until it is ended.

#![expect(clippy::print_stdout, reason = "the result is for a person")]

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The size of a node's heartbeat in `corona load`.
const SIZE: usize = 200;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("threads can be started");
    if words.first().is_some_and(|word| word == "serve") {
        return runtime.block_on(serve());
    }
    if words.first().is_some_and(|word| word == "answer") {
        let port = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(19_556);
        return runtime.block_on(answer(port));
    }
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
    let (connections, seconds) = (number(0).unwrap_or(16), number(1).unwrap_or(5));
    let program = std::env::current_exe().expect("this program has a name");
    let server = Command::new(program).arg("serve").stdout(Stdio::piped()).spawn();
    let mut server = server.expect("this program can be started again");
    let mut line = String::new();
    let said = server.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    assert!(matches!(said, Some(Ok(_))), "the server says where it listens");
    let address = line.trim().parse().expect("an address");
    let echoes =
        runtime.block_on(exchange(address, connections, Duration::from_secs(seconds.into())));
    println!(
        "{connections} connections, {SIZE} bytes: {:.0} echoes a second",
        echoes as f64 / f64::from(seconds)
    );
    server.kill().and_then(|()| server.wait()).expect("the server is a child of this process");
}

async fn serve() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    println!("{}", listener.local_addr().expect("it has an address"));
    loop {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("an option that every system has");
        tokio::spawn(async move {
            let mut bytes = vec![0; 4_096];
            while let Ok(size @ 1..) = stream.read(&mut bytes).await {
                if stream.write_all(&bytes[..size]).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Answers each frame with a reply to `nodeHeartbeat` that has the frame's sequence number and does
/// not ask the node to restart.
async fn answer(port: u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.expect("a free port");
    println!("{}", listener.local_addr().expect("it has an address"));
    loop {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("an option that every system has");
        tokio::spawn(async move {
            let (mut arrived, mut replies) = (BytesMut::new(), vec![]);
            while let Ok(1..) = stream.read_buf(&mut arrived).await {
                while let Some(reply) = next_reply(&mut arrived) {
                    replies.extend_from_slice(&reply);
                }
                if stream.write_all(&replies).await.is_err() {
                    return;
                }
                replies.clear();
            }
        });
    }
}

/// The reply to the first frame, if it is complete. The frame is taken out.
fn next_reply(arrived: &mut BytesMut) -> Option<[u8; 38]> {
    const BEFORE: &[u8] = b"\0\0\0\x22\x80\x01\0\x02\0\0\0\x0dnodeHeartbeat";
    const AFTER: &[u8] = b"\x0c\0\0\x02\0\x01\0\0\0";
    let length = u32::from_be_bytes(arrived.get(..4)?.try_into().ok()?) as usize;
    let frame = arrived.get(4..4 + length)?;
    let number = frame.get(21..25)?;
    let reply = [BEFORE, number, AFTER].concat().try_into().ok()?;
    arrived.advance(4 + length);
    Some(reply)
}

/// Echoes of all connections in so long, after a second of warm-up.
async fn exchange(address: SocketAddr, connections: u32, time: Duration) -> u64 {
    let echoes = Arc::new(AtomicU64::new(0));
    let warm = Duration::from_secs(1);
    let begin = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let echoes = echoes.clone();
        clients.spawn(async move {
            let mut stream = TcpStream::connect(address).await.expect("the server listens");
            stream.set_nodelay(true).expect("an option that every system has");
            let (question, mut answer) = ([7; SIZE], [0; SIZE]);
            while begin.elapsed() < warm + time {
                stream.write_all(&question).await.expect("the server reads");
                stream.read_exact(&mut answer).await.expect("the server answers");
                if begin.elapsed() >= warm {
                    echoes.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    clients.join_all().await;
    echoes.load(Ordering::Relaxed)
}
