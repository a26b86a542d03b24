//! Peers that send anything but messages. The process stays up, its memory stays where it was, and
//! a well-behaved peer is served meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use compat_tests::cluster_peers::{Caller, Connection, DEFAULT, Driver, call as rpc, report};
use compat_tests::serving::page;
use compat_tests::{start_plain, start_with};
use corona::model::random::Random;
use serde_json::{Value as Json, json};

/// Malformed frames in all.
const FRAMES: usize = 10_000;
/// Connections that send them at the same time.
const ATTACKERS: usize = 8;
/// Half frames that hang at a time.
const HANGING: usize = 200;
/// How long the well-behaved peer may wait for one answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A kind of malformed frame: a name, and the bytes of the `n`-th one.
type Kind = (&'static str, fn(u32) -> Vec<u8>);

const KINDS: [Kind; 14] = [
    ("a request of a browser", |_| b"GET / HTTP/1.0\r\nHost: x\r\n\r\n".to_vec()),
    ("the hello of TLS", |_| b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec()),
    ("a frame longer than any", |_| frame_of(u32::MAX >> 1, b"")),
    ("a frame of negative length", |n| frame_of(0x8000_0000 | n, b"")),
    ("an empty frame", |_| frame_of(0, b"")),
    ("random bytes", |n| framed(&noise(n, 200))),
    ("the old header", |n| framed(&[b"\0\0\0\x04ping\x01".as_slice(), &n.to_be_bytes()].concat())),
    ("another version", |_| framed(b"\x80\x02\0\x01\0\0\0\x04ping\0\0\0\x01\0")),
    ("a name longer than the frame", |_| framed(b"\x80\x01\0\x01\x7f\xff\xff\xffping")),
    ("a list with a huge count", |_| {
        framed(&call("requestResource", b"\x0b\0\x01\0\0\0\x01x\x0f\0\x02\x0c\x7f\xff\xff\xff"))
    }),
    ("a map with a negative count", |_| {
        framed(&call("nodeHeartbeat", b"\x0c\0\x01\x0d\0\x05\x08\x0b\xff\xff\xff\xff"))
    }),
    ("deep nesting", |_| framed(&call("nodeHeartbeat", &b"\x0c\0\x09".repeat(5_000)))),
    ("fields of the wrong type", |n| {
        framed(&call("sessionHeartbeat", &[b"\x08\0\x01".as_slice(), &n.to_be_bytes()].concat()))
    }),
    ("a truncated message", |n| {
        let whole =
            framed(&call("releaseResource", b"\x0b\0\x01\0\0\0\x01x\x0f\0\x02\x08\0\0\0\x01"));
        whole[..whole.len() - 1 - n as usize % 9].to_vec()
    }),
];

#[test]
fn ten_thousand_malformed_frames_hurt_nobody() {
    let mut manager = start_plain();
    let address = manager.thrift();
    let peer = GoodPeer::start(address);

    // Memory that the process allocates once, such as threads and buffers, does not count.
    flood(address, FRAMES / 10);
    let before = peer.answers_within_patience();
    let memory_before = resident_kib(manager.process_id());

    let hanging: Vec<TcpStream> = (0..HANGING).map(|_| half_frame(address)).collect();
    flood(address, FRAMES);
    let memory_after = resident_kib(manager.process_id());
    let after = peer.answers_within_patience();
    drop(hanging);

    assert!(manager.is_alive(), "the program has ended:\n{}", manager.log());
    assert!(after > before, "the well-behaved peer was served meanwhile");
    let panics = "\ncorona_connections_ended_total{reason=\"panic\"} 0\n";
    assert!(page(&manager, "/metrics").contains(panics));
    peer.stop();
    let grown = memory_after.saturating_sub(memory_before);
    assert!(grown < 32 * 1024, "memory grew by {grown} KiB, from {memory_before} KiB");
}

/// Starts of one session and first heartbeats of one node at the same time: one start wins, the others
/// are refused, and the cluster has each node once.
#[test]
fn racing_peers_have_one_winner() {
    const RACERS: usize = 8;
    const ROUNDS: usize = 20;
    let mut manager = start_plain();
    let address = manager.thrift();
    let mut first = Connection::open(address);
    for round in 0..ROUNDS {
        let id = answer_of(&mut first, "getNextSessionId", &json!({}));
        let handle = id["success"].as_str().unwrap_or_else(|| panic!("{id}")).to_owned();
        let info = json!({
            "address": { "host": "127.0.0.1", "port": 1 }, "name": "racing", "userId": "u",
            "poolInfoStrings": { "poolGroupName": "g", "poolName": "p" },
        });
        let start = json!({ "handle": handle, "info": info });
        let beat = json!({ "node": report(&format!("racing{round}"), "10.0.0.9", 1) });
        let started = AtomicU64::new(0);
        let barrier = Barrier::new(2 * RACERS);
        thread::scope(|scope| {
            for _ in 0..RACERS {
                scope.spawn(|| {
                    let mut peer = Connection::open(address);
                    barrier.wait();
                    let answer = answer_of(&mut peer, "sessionStart", &start);
                    if answer["success"].is_object() {
                        started.fetch_add(1, Ordering::Relaxed);
                    } else {
                        assert!(answer.to_string().contains("already started"), "{answer}");
                    }
                });
                scope.spawn(|| {
                    let mut peer = Connection::open(address);
                    barrier.wait();
                    answer_of(&mut peer, "nodeHeartbeat", &beat);
                });
            }
        });
        assert_eq!(started.into_inner(), 1, "starts of {handle} that succeeded");
    }
    let sessions = answer_of(&mut first, "getSessions", &json!({}));
    assert_eq!(sessions["success"].as_array().map(Vec::len), Some(ROUNDS), "{sessions}");
    let nodes = page(&manager, "/api/v1/nodes");
    for round in 0..ROUNDS {
        assert_eq!(nodes.matches(&format!("\"racing{round}\"")).count(), 1, "{nodes}");
    }
    assert!(manager.is_alive());
}

/// The fields of an answer.
fn answer_of(connection: &mut Connection, method: &str, args: &Json) -> Json {
    connection.send(&rpc(method, args, 1));
    let message = connection.receive().unwrap_or_else(|| panic!("{method} has no answer"));
    serde_json::to_value(message.body.expect("a well-formed answer")).unwrap()
}

/// The memory for messages is full all the time. The peers that fill it lose their connections; a
/// peer that heartbeats, one that was idle, and new ones are served as ever.
#[test]
fn unfinished_messages_do_not_disturb_other_peers() {
    let manager = start_with(&[("corona.cm.wire.max.total.inflight.bytes", "4194304")]);
    let address = manager.thrift();
    let mut idle = TcpStream::connect(address).unwrap();
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(answer_to(&mut idle), 2, "a reply");
    let peer = GoodPeer::start(address);

    let stop = AtomicBool::new(false);
    let closed = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..ATTACKERS {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let mut stream = half_frame(address);
                    let _ = stream.write_all(&vec![0; 1 << 20]);
                    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                    let ended = stream.read(&mut [0]);
                    let in_time = ended.as_ref().is_err_and(|error| {
                        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
                    });
                    closed.fetch_add(u64::from(!in_time), Ordering::SeqCst);
                }
            });
        }
        let mut answered = 0;
        while answered < 200 || closed.load(Ordering::SeqCst) < 20 {
            peer.answers_within_patience();
            let mut fresh = TcpStream::connect(address).unwrap();
            fresh.set_read_timeout(Some(PATIENCE)).unwrap();
            assert_eq!(answer_to(&mut fresh), 2, "a reply");
            answered += 1;
        }
        assert_eq!(answer_to(&mut idle), 2, "a reply");
        stop.store(true, Ordering::SeqCst);
    });
    peer.stop();
}

/// Calls `getNextSessionId` and returns the kind of the reply.
fn answer_to(stream: &mut TcpStream) -> u8 {
    stream.write_all(&framed(&call("getNextSessionId", b"\0"))).unwrap();
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    let mut message = vec![0; u32::from_be_bytes(head) as usize];
    stream.read_exact(&mut message).unwrap();
    message[3]
}

/// One call beyond each bound on texts and lists, with the exception or fault that names the bound. The rest of the
/// rule is tested beside `door`.
#[test]
fn every_bound_on_texts_and_lists_is_in_force() {
    let settings = [
        ("corona.cm.max.name.bytes", "71"),
        ("corona.cm.max.url.bytes", "72"),
        ("corona.cm.max.host.bytes", "73"),
        ("corona.cm.max.id.bytes", "74"),
        ("corona.cm.max.hosts.per.request", "5"),
        ("corona.cm.max.list.entries", "17"),
        ("corona.cm.max.sessions", "6"),
        ("corona.cm.max.nodes", "7"),
        ("corona.cm.max.requests.per.session", "8"),
    ];
    let manager = start_with(&settings);
    let mut peer = Connection::open(manager.thrift());
    let id = answer_of(&mut peer, "getNextSessionId", &json!({}));
    let handle = id["success"].as_str().unwrap().to_owned();
    let text = |bytes: usize| "x".repeat(bytes);
    let start = |name, host, url| {
        let info = json!({
            "address": { "host": text(host), "port": 1 }, "name": text(name), "userId": "u",
            "url": text(url), "groupIds": vec!["g"; 17],
        });
        json!({ "handle": handle, "info": info })
    };
    let request = |hosts| {
        let request = json!({ "id": 1, "type": 0, "hosts": vec!["10.0.0.1"; hosts] });
        json!({ "handle": handle, "requestList": [request] })
    };
    let feedback = |name, reports| {
        let report = json!({
            "nodeName": text(name), "numTotalTasks": 0, "numSucceeded": 0, "numKilled": 0,
            "numFailed": 0, "numTimeout": 0, "numSlow": 0, "numFailedConnections": 0,
        });
        json!({ "handle": handle, "resourceTypes": [0], "stats": vec![report; reports] })
    };
    let beat = |name| json!({ "node": report(&text(name), "10.0.0.7", 1) });
    let kill =
        |ids| json!({ "killSessionsArgs": { "sessionIds": vec!["2"; ids], "who": "operator" } });
    let release = |ids| json!({ "handle": handle, "idList": vec![1; ids] });
    let usages = |usages| {
        let usages = json!({ "MAP": vec![1; usages] });
        let args = json!({ "requestId": 1, "grantId": 0, "resourceUsages": usages });
        json!({ "handle": handle, "heartbeatArgs": args })
    };
    for (method, fits, beyond, key) in [
        ("sessionStart", start(71, 73, 72), start(72, 73, 72), "corona.cm.max.name.bytes"),
        ("sessionUpdateInfo", start(71, 73, 72), start(71, 73, 73), "corona.cm.max.url.bytes"),
        ("sessionUpdateInfo", start(71, 73, 72), start(71, 74, 72), "corona.cm.max.host.bytes"),
        ("nodeHeartbeat", beat(74), beat(75), "corona.cm.max.id.bytes"),
        ("requestResource", request(5), request(6), "corona.cm.max.hosts.per.request"),
        ("sessionHeartbeatV2", usages(17), usages(18), "corona.cm.max.list.entries"),
        ("killSessions", kill(6), kill(7), "corona.cm.max.sessions"),
        ("nodeFeedback", feedback(74, 7), feedback(74, 8), "corona.cm.max.nodes"),
        ("nodeFeedback", feedback(74, 7), feedback(75, 1), "corona.cm.max.id.bytes"),
        ("releaseResource", release(8), release(9), "corona.cm.max.requests.per.session"),
    ] {
        let answer = answer_of(&mut peer, method, &fits).to_string();
        assert!(!answer.contains("corona.cm."), "{method}: {answer}");
        let answer = answer_of(&mut peer, method, &beyond).to_string();
        assert!(answer.contains(key), "{method}: {answer}, not {key}");
    }
}

/// Peers send names of many megabytes: they are refused, and nothing of them is kept. Others are
/// served, and the list of sessions stays small.
#[test]
fn huge_names_are_refused_and_disturb_nobody() {
    let manager = start_plain();
    let address = manager.thrift();
    let peer = GoodPeer::start(address);
    let mut attacker = Connection::open(address);
    let huge = "x".repeat(5 << 20);
    let mut attack = |rounds: usize| {
        for _ in 0..rounds {
            let id = answer_of(&mut attacker, "getNextSessionId", &json!({}));
            let info = json!({
                "address": { "host": "127.0.0.1", "port": 1 }, "name": huge, "userId": "u",
            });
            let start = json!({ "handle": id["success"], "info": info });
            let answer = answer_of(&mut attacker, "sessionStart", &start).to_string();
            assert!(answer.contains("has 5242880 bytes; at most 4096"), "{answer}");
            let beat = json!({ "node": report(&huge, "10.0.0.7", 1) });
            let answer = answer_of(&mut attacker, "nodeHeartbeat", &beat).to_string();
            assert!(answer.contains("has 5242880 bytes; at most 1024"), "{answer}");
            peer.answers_within_patience();
        }
    };
    attack(3);
    let before = resident_kib(manager.process_id());
    attack(20);
    let grown = resident_kib(manager.process_id()).saturating_sub(before);
    assert!(grown < 64 * 1024, "memory grew by {grown} KiB");
    let sessions = answer_of(&mut attacker, "getSessions", &json!({}));
    assert_eq!(sessions["success"], json!([]));
    peer.stop();
}

/// A peer whose names have a megabyte each takes no more of the log than its limits allow. The lines
/// that another session causes are written whole, and its calls are answered in normal time.
#[test]
fn long_names_in_the_log_leave_room_for_lines_of_others() {
    const ROUNDS: usize = 30;
    let manager = start_with(&[("corona.cm.max.name.bytes", "2097152")]);
    let address = manager.thrift();
    let (mut attacker, mut innocent) = (Caller::open(address), Caller::open(address));
    let huge = json!({ "name": "x".repeat(1 << 20) });
    let mut slowest = Duration::ZERO;
    for round in 0..ROUNDS {
        attacker.session(1, &huge);
        let asked = Instant::now();
        innocent.session(1, &json!({ "name": format!("innocent{round}") }));
        slowest = slowest.max(asked.elapsed());
    }
    assert!(slowest < PATIENCE, "the innocent session started after {slowest:?}");
    let whole = |log: &str, round| log.contains(&format!("-> innocent{round}@127.0.0.1:1\n"));
    let deadline = Instant::now() + PATIENCE;
    let log = loop {
        let log = manager.log();
        if (0..ROUNDS).all(|round| whole(&log, round)) {
            break log;
        }
        assert!(Instant::now() < deadline, "a line is not whole:\n{:.9000}", log);
        thread::sleep(Duration::from_millis(10));
    };
    assert!(log.contains(" bytes cut)"), "{log:.9000}");
    assert!(log.len() < ROUNDS * (64 << 10), "{} bytes", log.len());
}

/// However long the names of running sessions are, the list of them can be sent: it shortens them.
#[test]
fn a_list_of_sessions_is_shortened_when_it_is_too_long() {
    let manager = start_with(&[("corona.cm.wire.max.frame.bytes", "16384")]);
    let mut peer = Caller::open(manager.thrift());
    for _ in 0..20 {
        peer.session(1, &json!({ "name": "x".repeat(4000) }));
    }
    let sessions = peer.sessions();
    assert_eq!(sessions.len(), 20);
    for session in sessions {
        let name = session["name"].as_str().unwrap().len();
        assert!((50..800).contains(&name), "{name}");
    }
}

/// Calls with very long lists are applied while others are served: none of their heartbeats waits for
/// a whole call, and the call does all that it would have done at once. What the slices are is tested
/// beside `large_calls`.
#[test]
fn large_calls_do_not_delay_other_peers() {
    const MANY: i64 = 400_000;
    let manager = start_plain();
    let address = manager.thrift();
    let peer = GoodPeer::start(address);
    let driver = Driver::start();
    let handle = Caller::open(address).session(driver.port, DEFAULT);
    let requests: Vec<Json> = (1..=MANY).map(|id| json!({ "id": id, "type": 1 })).collect();
    let request = json!({ "handle": handle, "requestList": requests });
    let reports = vec![
        json!({
            "nodeName": "nobody", "numTotalTasks": 0, "numSucceeded": 0, "numKilled": 0,
            "numFailed": 9, "numTimeout": 0, "numSlow": 0, "numFailedConnections": 9,
        });
        200_000
    ];
    let feedback = json!({ "handle": "none", "resourceTypes": [0, 1], "stats": reports });
    let half = json!({ "handle": handle, "idList": (1..=MANY / 2).collect::<Vec<_>>() });
    let kill = json!({ "sessionId": handle });
    let pending = |expected: i64| {
        let body = page(&manager, &format!("/api/v1/sessions/{handle}"));
        let body: Json = serde_json::from_str(&body).unwrap();
        assert!(body.to_string().contains(&format!("\"requested\":{expected}")), "{body}");
    };
    let calls = [
        ("requestResource", request, Some(MANY)),
        ("nodeFeedback", feedback, Some(MANY)),
        ("releaseResource", half, Some(MANY / 2)),
        ("killSession", kill, None),
    ];
    for (method, args, expected) in calls {
        let bytes = rpc(method, &args, 1);
        thread::scope(|scope| {
            let attack = scope.spawn(|| {
                let mut attacker = Connection::open(address);
                attacker.send(&bytes);
                attacker.receive().expect("an answer").body.expect("a well-formed answer")
            });
            while !attack.is_finished() {
                peer.answers_within_patience();
            }
            let answer = serde_json::to_value(attack.join().unwrap()).unwrap().to_string();
            assert!(!answer.contains("exception"), "{method}: {answer}");
        });
        if let Some(expected) = expected {
            pending(expected);
        }
    }
    peer.stop();
}

/// The topology script is not run for a session that does not exist, and not for one host twice.
#[test]
fn calls_of_sessions_that_do_not_exist_look_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let (script, runs) = (dir.path().join("racks"), dir.path().join("runs"));
    let body = format!("#!/bin/sh\necho $# >> {}\nfor host; do echo /r; done\n", runs.display());
    std::fs::write(&script, body).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let manager = start_with(&[("topology.script.file.name", script.to_str().unwrap())]);
    let mut peer = Connection::open(manager.thrift());
    let names: Vec<Json> = (0..3000)
        .map(|id| json!({ "id": id, "type": 0, "hosts": [format!("10.7.{}.{}", id / 200, id % 200)] }))
        .collect();
    for count in [3000, 10] {
        let request = json!({ "handle": "2026.1", "requestList": names[..count] });
        let answer = answer_of(&mut peer, "requestResource", &request).to_string();
        assert!(answer.contains("2026.1"), "{answer}");
    }
    assert!(!runs.exists(), "the script was run");
    for _ in 0..2 {
        let beat = json!({ "node": report("new", "10.0.0.9", 1) });
        answer_of(&mut peer, "nodeHeartbeat", &beat);
    }
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "1\n");
}

/// Sends malformed frames of every kind over many connections, each to its end.
fn flood(address: SocketAddr, frames: usize) {
    thread::scope(|scope| {
        for attacker in 0..ATTACKERS {
            scope.spawn(move || {
                for number in (attacker..frames).step_by(ATTACKERS) {
                    let (what, bytes) = KINDS[number % KINDS.len()];
                    attack(address, &bytes(number as u32))
                        .unwrap_or_else(|error| panic!("{what}: {error}"));
                }
            });
        }
    });
}

/// Sends the bytes and reads until the connection ends. It is expected to be cut.
fn attack(address: SocketAddr, bytes: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = [0; 4096];
    while matches!(stream.read(&mut answer), Ok(count) if count > 0) {}
    Ok(())
}

/// A connection with a frame that never ends.
fn half_frame(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&frame_of(60 << 20, b"\x80\x01\0\x01\0\0\0\x04ping")).unwrap();
    stream
}

fn framed(message: &[u8]) -> Vec<u8> {
    frame_of(message.len() as u32, message)
}

fn frame_of(length: u32, content: &[u8]) -> Vec<u8> {
    [&length.to_be_bytes(), content].concat()
}

fn call(method: &str, arguments: &[u8]) -> Vec<u8> {
    let name_length = (method.len() as u32).to_be_bytes();
    [b"\x80\x01\0\x01".as_slice(), &name_length, method.as_bytes(), b"\0\0\0\x01", arguments]
        .concat()
}

/// Bytes that follow from the seed.
fn noise(seed: u32, count: usize) -> Vec<u8> {
    let mut random = Random::new(seed.into());
    std::iter::repeat_with(|| random.next().to_be_bytes()[0]).take(count).collect()
}

/// A node that heartbeats as fast as it is answered.
struct GoodPeer {
    shared: std::sync::Arc<PeerCore>,
    thread: thread::JoinHandle<()>,
}

#[derive(Default)]
struct PeerCore {
    answers: AtomicU64,
    stop: AtomicBool,
}

impl GoodPeer {
    fn start(address: SocketAddr) -> GoodPeer {
        let shared = std::sync::Arc::new(PeerCore::default());
        let of_thread = shared.clone();
        let thread = thread::spawn(move || {
            let mut calls = Caller::open(address);
            while !of_thread.stop.load(Ordering::SeqCst) {
                calls.heartbeat("good", "10.0.0.1", 1, DEFAULT);
                of_thread.answers.fetch_add(1, Ordering::SeqCst);
            }
        });
        GoodPeer { shared, thread }
    }

    /// Waits for one more answer and returns the number of all.
    fn answers_within_patience(&self) -> u64 {
        let before = self.shared.answers.load(Ordering::SeqCst);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answers = self.shared.answers.load(Ordering::SeqCst);
            if answers > before {
                return answers;
            }
            assert!(Instant::now() < deadline, "the well-behaved peer waits for its answer");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("the well-behaved peer was answered each time");
    }
}

/// Memory of a process that is in use, by the system's own account.
pub(super) fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
