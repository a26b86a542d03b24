//! The time that a relay that records, or has a shadow, adds to a call, on loopback.
//!
//!     cargo bench --bench relay [-- ROUNDS]
//!
//! An upstream answers each heartbeat of a node with the same bytes. One client asks it directly,
//! through a relay that records to a file, through one that looks for the addresses of session
//! drivers as well, and through one with a shadow; they take turns, so that a busy moment hits all of
//! them.

#![expect(clippy::print_stdout, reason = "the result is for a person")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use corona::conformance::recording::Header;
use corona::conformance::relay::{Feed, FeedEntries, Recorder, Relay, RelayOptions, feed};
use corona::conformance::replay::USUAL_TOLERANCE;
use corona::conformance::shadow::{Shadow, ShadowOptions};
use corona::wire::calls::{ClusterManager, ClusterManagerCall, ClusterManagerReply};
use corona::wire::generated as wire;
use corona::wire::server::Answer;
use corona::wire::value::RawMessage;
use corona::wire::{Framing, Service};
use tokio::sync::watch;

const WARM_UP: usize = 500;

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(20_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("threads can be started");
    let talk = Talk::new();
    let upstream = upstream(&talk);
    let (stop, stopped) = watch::channel(false);
    let relay = |relay_callbacks, feed: Feed| {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options =
            RelayOptions { relay_callbacks, ..RelayOptions::new(listen, upstream.to_string()) };
        let _in_runtime = runtime.enter();
        let relay = Relay::bind(options).expect("the relay listens");
        let address = relay.address();
        tokio::spawn(relay.run(vec![feed], stopped.clone()));
        address
    };
    let (plain_recorder, callbacks_recorder) = (recorder(false), recorder(true));
    let (for_shadow, entries) = feed(MAX_BYTES, "the shadow is too slow");
    let shadow = shadow(upstream, entries);

    let ways = [
        ("direct", upstream),
        ("relay", relay(false, plain_recorder.feed())),
        ("relay, callbacks", relay(true, callbacks_recorder.feed())),
        ("shadow", relay(true, for_shadow)),
    ];
    let mut clients = ways.map(|(_, address)| connect(address));
    let mut times: [Vec<Duration>; 4] = Default::default();
    for round in 0..WARM_UP + rounds {
        for (client, times) in clients.iter_mut().zip(&mut times) {
            let time = talk.ask(client);
            if round >= WARM_UP {
                times.push(time);
            }
        }
    }
    println!("{rounds} calls each              median      99 %");
    for ((name, _), times) in ways.iter().zip(&mut times) {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
        println!("{name:<20} {:>14.1?} {:>9.1?}", at(50), at(99));
    }
    drop(clients);
    for recorder in [plain_recorder, callbacks_recorder] {
        let recorded = recorder.finish(Duration::from_secs(30));
        assert_eq!(recorded.unrecorded.bytes, 0, "everything was recorded");
    }
    stop.send_replace(true);
    let watched = shadow.stats();
    assert!(shadow.finish(), "the shadow saw all of it");
    let stats = watched.now();
    assert_eq!(stats.all_calls().equal, (WARM_UP + rounds) as u64, "everything was compared");
    println!("the shadow was {:.1?} behind at most", stats.worst_lag);
}

/// The most data that may wait for the disk, and for the shadow.
const MAX_BYTES: usize = 64 << 20;

fn recorder(relay_callbacks: bool) -> Recorder {
    let header = Header { relay_callbacks, ..Header::default() };
    let file = tempfile::tempfile().expect("a file");
    Recorder::start(file, &header, MAX_BYTES).expect("the file is written")
}

fn shadow(upstream: SocketAddr, entries: FeedEntries) -> Shadow {
    let load = || corona::config::load(None, &[]).map_err(|_| "wrong defaults".to_owned());
    let options = ShadowOptions {
        primary: upstream.to_string(),
        patience: Duration::from_secs(10),
        time_tolerance: USUAL_TOLERANCE,
    };
    let loaded = load().expect("the defaults are right");
    Shadow::start(loaded, Box::new(load), options, entries, None).expect("the shadow starts")
}

/// A heartbeat of a node, and its answer.
#[derive(Clone)]
struct Talk {
    question: Vec<u8>,
    answer: Vec<u8>,
}

impl Talk {
    fn new() -> Talk {
        let address = wire::InetAddress::new("node1".to_owned(), 50_000);
        let total = wire::ComputeSpecs::new(8, 1_000, 65_536, 1_000);
        let apps = BTreeMap::from([(wire::ResourceType::MAP, "node1:1".to_owned())]);
        let node =
            wire::ClusterNodeInfo::new("node1".to_owned(), address, total, None, apps, None, None);
        let call = ClusterManagerCall::NodeHeartbeat { node: Some(node) };
        let said = wire::NodeHeartbeatResponse::new(false, None);
        let answer = Answer::Reply(ClusterManagerReply::NodeHeartbeat(said));
        let answer = RawMessage::of_answer::<ClusterManager>("nodeHeartbeat", &answer, 0);
        let question = RawMessage::of_call::<ClusterManager>(&call);
        Talk { question: framed(question), answer: framed(answer) }
    }

    fn ask(&self, stream: &mut TcpStream) -> Duration {
        let mut answer = vec![0; self.answer.len()];
        let started = Instant::now();
        stream.write_all(&self.question).expect("somebody reads");
        stream.read_exact(&mut answer).expect("somebody answers");
        started.elapsed()
    }
}

fn framed(message: Option<RawMessage>) -> Vec<u8> {
    let message = message.expect("the contract has it").decode();
    let mut bytes = Vec::new();
    let written = message.write(ClusterManager::schema(), Framing::Framed, &mut bytes);
    written.expect("it is of its types");
    bytes
}

/// Answers every question, on any number of connections. A client that asks anything else is
/// disconnected.
fn upstream(talk: &Talk) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    let talk = talk.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            stream.set_nodelay(true).expect("an option that every system has");
            let talk = talk.clone();
            thread::spawn(move || {
                let mut question = vec![0; talk.question.len()];
                let (length, rest) = question.split_at_mut(4);
                while stream.read_exact(length).is_ok() && *length == talk.question[..4] {
                    stream.read_exact(rest).expect("the rest of the frame comes");
                    stream.write_all(&talk.answer).expect("the client listens");
                }
            });
        }
    });
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_nodelay(true).expect("an option that every system has");
    stream
}
