//! What a recording relay adds to the time of a call, on loopback.
//!
//!     cargo bench --bench relay [-- ROUNDS]
//!
//! An upstream answers each question of 100 bytes with 100 bytes. One client asks it directly,
//! through a relay that records to a file, and through one that looks for the addresses of session
//! drivers as well; the three take turns, so that a busy moment hits all of them.

#![expect(clippy::print_stdout, reason = "the result is for a person")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use corona::conformance::recording::{Header, Origin};
use corona::conformance::relay::{Recorder, Relay, RelayOptions};
use tokio::sync::watch;

const WARM_UP: usize = 500;

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(20_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("threads can be started");
    let upstream = upstream();
    let (_stop, stopped) = watch::channel(false);
    let relay = |relay_callbacks| {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options =
            RelayOptions { relay_callbacks, ..RelayOptions::new(listen, upstream.to_string()) };
        let relay = Relay::bind(options).expect("the relay listens");
        let address = relay.address();
        let header = Header {
            started_at_us: 0,
            origin: Origin::Relay,
            relay_callbacks,
            listener: address.to_string(),
            upstream: upstream.to_string(),
        };
        let file = tempfile::tempfile().expect("a file");
        let recorder = Recorder::start(file, &header, 64 << 20).expect("the file is written");
        tokio::spawn(relay.run(vec![recorder.feed()], stopped.clone()));
        (address, recorder)
    };
    let ((plain, plain_recorder), (callbacks, callbacks_recorder)) =
        runtime.block_on(async { (relay(false), relay(true)) });

    let ways = [("direct", upstream), ("relay", plain), ("relay, callbacks", callbacks)];
    let mut clients = ways.map(|(_, address)| client(address));
    let mut times: [Vec<Duration>; 3] = Default::default();
    for round in 0..WARM_UP + rounds {
        for (client, times) in clients.iter_mut().zip(&mut times) {
            let time = ask(client);
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
}

/// Answers every question, on any number of connections.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            stream.set_nodelay(true).expect("an option that every system has");
            thread::spawn(move || {
                let mut question = [0; QUESTION.len()];
                while stream.read_exact(&mut question).is_ok() {
                    stream.write_all(&question).expect("the client listens");
                }
            });
        }
    });
    address
}

fn client(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_nodelay(true).expect("an option that every system has");
    stream
}

/// A frame of 96 bytes that holds a call of a method that the relay has no interest in.
const QUESTION: [u8; 100] = {
    let head = *b"\0\0\0\x60\x80\x01\0\x01\0\0\0\x0dnodeHeartbeat\0\0\0\x01";
    let mut question = [0; 100];
    let mut at = 0;
    while at < head.len() {
        question[at] = head[at];
        at += 1;
    }
    question
};

fn ask(stream: &mut TcpStream) -> Duration {
    let mut answer = [0; QUESTION.len()];
    let started = Instant::now();
    stream.write_all(&QUESTION).expect("somebody reads");
    stream.read_exact(&mut answer).expect("somebody answers");
    started.elapsed()
}
