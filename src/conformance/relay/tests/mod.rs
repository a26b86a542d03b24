//! The relay between scripted peers: the data that pass, the recording, and the effects of peers or
//! disks that are slow, disconnected or full.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use corona_net::testing::{soon, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::Traffic;
use crate::capture::{Ending, EventKind, Limits, Side};
use crate::recording::Header;

mod callbacks;
mod feeds;

const PATIENCE: Duration = Duration::from_secs(40);

/// A file in memory, whose disk can be slow or full.
#[derive(Clone, Default)]
struct Disk(Arc<(Mutex<DiskState>, Condvar)>);

#[derive(Default)]
struct DiskState {
    bytes: Vec<u8>,
    room: Option<usize>,
    stuck: bool,
}

impl Disk {
    fn change(&self, change: impl FnOnce(&mut DiskState)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.0.lock().unwrap().bytes.clone()
    }

    fn traffic(&self) -> Traffic {
        Traffic::read(&*self.bytes(), &Limits::default()).unwrap()
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let state = self.0.0.lock().unwrap();
        let mut state = self.0.1.wait_while(state, |state| state.stuck).unwrap();
        let room = state.room.map_or(usize::MAX, |room| room.saturating_sub(state.bytes.len()));
        let taken = bytes.len().min(room);
        if taken == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Store for Disk {
    fn cut_to(&mut self, bytes: u64) -> io::Result<()> {
        self.change(|state| state.bytes.truncate(bytes as usize));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A relay that runs, with its disk.
struct Running {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    recorder: Recorder,
    disk: Disk,
}

const LOOPBACK: &str = "127.0.0.1:0";

fn header() -> Header {
    Header { started_at_us: 5, ..Header::default() }
}

impl Running {
    fn start(upstream: SocketAddr, change: impl FnOnce(&mut RelayOptions)) -> Self {
        Self::with_buffer(upstream, 64 << 20, change)
    }

    fn with_buffer(
        upstream: SocketAddr,
        max_bytes: usize,
        change: impl FnOnce(&mut RelayOptions),
    ) -> Self {
        let disk = Disk::default();
        let recorder = Recorder::start(disk.clone(), &header(), max_bytes).unwrap();
        let mut options = RelayOptions::new(LOOPBACK.parse().unwrap(), upstream.to_string());
        change(&mut options);
        let relay = Relay::bind(options).unwrap();
        let address = relay.address();
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(relay.run(vec![recorder.feed()], stopped));
        Running { address, stop, task, recorder, disk }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Ends the relay and the recording.
    async fn end(self) -> (RecorderSummary, Disk) {
        self.stop.send_replace(true);
        soon(self.task).await.unwrap();
        let recorder = self.recorder;
        let recorded = tokio::task::spawn_blocking(move || recorder.finish(PATIENCE)).await;
        (recorded.unwrap(), self.disk)
    }
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// One connection's events, with neighbouring data of a side joined.
fn story(traffic: &Traffic, number: usize) -> Vec<(Side, EventKind)> {
    let mut story: Vec<(Side, EventKind)> = Vec::new();
    for event in &traffic.capture.connections[number].events {
        match (story.last_mut(), &event.what) {
            (Some((side, EventKind::Data(before))), EventKind::Data(more))
                if *side == event.from =>
            {
                before.extend_from_slice(more);
            }
            (_, what) => story.push((event.from, what.clone())),
        }
    }
    story
}

fn data(text: &[u8]) -> EventKind {
    EventKind::Data(text.to_vec())
}

#[tokio::test]
async fn half_closes_pass_and_everything_is_recorded() {
    let (server, upstream) = listener().await;
    let relay = Running::start(upstream, |_| {});
    let mut client = relay.connect().await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let (mut served, _) = soon(server.accept()).await.unwrap();
    let mut heard = Vec::new();
    soon(served.read_to_end(&mut heard)).await.unwrap();
    assert_eq!(heard, b"question", "the end of the question came, the answer is still to come");
    served.write_all(b"answer").await.unwrap();
    drop(served);
    let mut answer = Vec::new();
    soon(client.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, b"answer");
    let own = client.local_addr().unwrap();

    let (recorded, disk) = relay.end().await;
    assert_eq!((recorded.connections, recorded.bytes), (1, 14));
    assert_eq!((recorded.unrecorded, recorded.failure), (Default::default(), None));
    let traffic = disk.traffic();
    assert_eq!(traffic.capture.ending, Ending::Complete);
    let connection = &traffic.capture.connections[0];
    assert_eq!((connection.opening.client, connection.opening.server), (own, upstream));
    assert!(connection.accepted && connection.opening.whole);
    let expected = [
        (Side::Client, data(b"question")),
        (Side::Client, EventKind::End),
        (Side::Server, data(b"answer")),
        (Side::Server, EventKind::End),
    ];
    assert_eq!(story(&traffic, 0), expected);
}

#[tokio::test]
async fn resets_pass_in_both_directions() {
    let (server, upstream) = listener().await;
    for breaker in [Side::Client, Side::Server] {
        let relay = Running::start(upstream, |_| {});
        let mut client = relay.connect().await;
        client.write_all(b"x").await.unwrap();
        let (mut served, _) = soon(server.accept()).await.unwrap();
        soon(served.read_exact(&mut [0])).await.unwrap();
        let mut left = match breaker {
            Side::Client => {
                pump::break_off(&client);
                drop(client);
                served
            }
            Side::Server => {
                pump::break_off(&served);
                drop(served);
                client
            }
        };
        let error = soon(left.read(&mut [0])).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{breaker:?}");
        let (_, disk) = relay.end().await;
        let expected = [(Side::Client, data(b"x")), (breaker, EventKind::Reset)];
        assert_eq!(story(&disk.traffic(), 0), expected, "{breaker:?}");
    }
}

#[tokio::test]
async fn a_reset_passes_while_the_other_side_takes_nothing() {
    let (server, upstream) = listener().await;
    let relay = Running::start(upstream, |_| {});
    let client = relay.connect().await;
    let (served, _) = soon(server.accept()).await.unwrap();
    // Fill everything on the way until nothing more goes in.
    fill(&client).await;
    pump::break_off(&client);
    drop(client);
    until("the server hears of it", || {
        let mut rest = [0; 1 << 16];
        loop {
            match served.try_read(&mut rest) {
                Ok(0) => panic!("an orderly end"),
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    })
    .await;
    relay.end().await;
}

/// Writes until nothing is accepted for a while. Returns how much was accepted.
async fn fill(stream: &TcpStream) -> usize {
    let piece = [7; 1 << 16];
    let mut written = 0;
    loop {
        match tokio::time::timeout(Duration::from_millis(300), stream.writable()).await {
            Err(_) => return written,
            Ok(writable) => writable.unwrap(),
        }
        if let Ok(size) = stream.try_write(&piece) {
            written += size;
        }
        assert!(written < 256 << 20, "nothing holds the writer back");
    }
}

#[tokio::test]
async fn a_slow_reader_loses_nothing_and_holds_the_writer_back() {
    const BYTES: usize = 48 << 20;
    let (server, upstream) = listener().await;
    let relay = Running::with_buffer(upstream, 256 << 20, |_| {});
    let mut client = relay.connect().await;
    let (served, _) = soon(server.accept()).await.unwrap();
    let held_back = fill(&served).await;
    assert!(held_back < BYTES);
    let writer = tokio::spawn(async move {
        let mut served = served;
        let rest: Vec<u8> = (0..BYTES - held_back).map(|number| (number % 251) as u8).collect();
        served.write_all(&rest).await.unwrap();
    });
    let mut heard = Vec::new();
    soon(client.read_to_end(&mut heard)).await.unwrap();
    writer.await.unwrap();
    assert_eq!(heard.len(), BYTES);
    assert!(heard[..held_back].iter().all(|byte| *byte == 7));
    let in_order = |(number, byte): (usize, &u8)| (number % 251) as u8 == *byte;
    assert!(heard[held_back..].iter().enumerate().all(in_order));
    drop(client);
    let (recorded, disk) = relay.end().await;
    assert_eq!(recorded.bytes, BYTES as u64);
    assert_eq!(story(&disk.traffic(), 0)[0], (Side::Server, EventKind::Data(heard)));
}

#[tokio::test]
async fn a_manager_that_is_down_closes_the_clients_connection() {
    let nobody = corona_net::testing::nobody();
    let relay = Running::start(nobody.address(), |_| {});
    let mut client = relay.connect().await;
    let end = soon(client.read(&mut [0])).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    let (_, disk) = relay.end().await;
    let traffic = disk.traffic();
    assert!(!traffic.capture.connections[0].accepted);
    assert_eq!(story(&traffic, 0), []);
}

#[tokio::test]
async fn one_connection_too_many_is_closed_and_the_others_go_on() {
    let (server, upstream) = listener().await;
    let relay = Running::start(upstream, |options| options.max_connections = 1);
    let mut first = relay.connect().await;
    let (mut served, _) = soon(server.accept()).await.unwrap();
    let mut second = relay.connect().await;
    let end = soon(second.read(&mut [0])).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    first.write_all(b"y").await.unwrap();
    let mut heard = [0];
    soon(served.read_exact(&mut heard)).await.unwrap();
    drop((first, served));
    // Its place is free when both ends are closed.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let third = relay.connect().await;
        if tokio::time::timeout(Duration::from_millis(100), server.accept()).await.is_ok() {
            break;
        }
        drop(third);
        assert!(Instant::now() < deadline);
    }
    relay.end().await;
}

/// Sends `bytes` through the relay to `server`, in pieces, each of which is waited for.
async fn send_through(client: &mut TcpStream, served: &mut TcpStream, bytes: usize) {
    let piece = vec![1; 1_000];
    for _ in 0..bytes / piece.len() {
        client.write_all(&piece).await.unwrap();
        soon(served.read_exact(&mut piece.clone())).await.unwrap();
    }
}

#[tokio::test]
async fn a_slow_disk_leaves_a_gap_and_recording_goes_on() {
    let (server, upstream) = listener().await;
    let relay = Running::with_buffer(upstream, 20_000, |_| {});
    let mut client = relay.connect().await;
    let (mut served, _) = soon(server.accept()).await.unwrap();
    relay.disk.change(|state| state.stuck = true);
    // The first block is due after a second; by then far more than the buffer has passed.
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(1_300) {
        send_through(&mut client, &mut served, 20_000).await;
    }
    send_through(&mut client, &mut served, 100_000).await;
    relay.disk.change(|state| state.stuck = false);
    let recorder = relay.recorder.clone();
    until("the buffer is free again", || recorder.feed().waiting_bytes() == 0).await;
    client.write_all(b"after the gap").await.unwrap();
    soon(served.read_exact(&mut [0; 13])).await.unwrap();
    drop((client, served));
    let (recorded, disk) = relay.end().await;
    assert_eq!(recorded.failure, None);
    assert!(recorded.unrecorded.bytes > 0);
    let traffic = disk.traffic();
    assert_eq!(traffic.unrecorded, Some(recorded.unrecorded));
    let story = story(&traffic, 0);
    let missing: u64 = story
        .iter()
        .map(|(_, what)| if let EventKind::Missing(bytes) = what { *bytes } else { 0 })
        .sum();
    assert_eq!(missing, recorded.unrecorded.bytes);
    let last = story.iter().rev().find_map(|(_, what)| match what {
        EventKind::Data(data) => Some(data.ends_with(b"after the gap")),
        _ => None,
    });
    assert_eq!(last, Some(true));
}

#[tokio::test]
async fn a_full_disk_ends_the_recording_and_nothing_else() {
    let (server, upstream) = listener().await;
    let relay = Running::start(upstream, |_| {});
    let disk = relay.disk.clone();
    let header = disk.bytes().len();
    let mut client = relay.connect().await;
    let (mut served, _) = soon(server.accept()).await.unwrap();
    send_through(&mut client, &mut served, 10_000).await;
    until("the first block is written", || disk.bytes().len() > header).await;
    let whole = disk.bytes().len();
    disk.change(|state| state.room = Some(whole + 20));
    send_through(&mut client, &mut served, 10_000).await;
    let recorder = relay.recorder.clone();
    until("recording has stopped", || recorder.feed().has_stopped()).await;
    send_through(&mut client, &mut served, 50_000).await;
    drop((client, served));
    let (recorded, disk) = relay.end().await;
    assert!(recorded.failure.is_some());
    assert_eq!(recorded.bytes + recorded.unrecorded.bytes, 70_000);
    assert_eq!(disk.bytes().len(), whole, "half a block was taken back");
    let traffic = disk.traffic();
    assert_eq!(traffic.capture.ending, Ending::Truncated);
    let EventKind::Data(kept) = &story(&traffic, 0)[0].1 else { panic!("no data") };
    assert_eq!(kept.len() as u64, recorded.bytes);
}
