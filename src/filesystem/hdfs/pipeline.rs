//! One block on its way through a pipeline of data nodes. Spec: hdfs/01 §1.6.1 to §1.6.4.
//!
//! A task owns the connection: it writes packets, reads acknowledgements meanwhile, and keeps the
//! pipeline alive while its owner has nothing to write. It ends with its owner.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::Shared;
use super::connection::{Connection, too_slow};
use super::transfer::{
    Ack, HEARTBEAT, Layout, PacketHeader, Request, Sums, WriteRequest, request_bytes,
};
use crate::{ErrorKind, FsError};
use corona_hadoop::io::{DecodeError, Reader};
use corona_hadoop::writables::{Block, DatanodeInfo};

/// Packets that wait to be written, and those that are written and not acknowledged.
const MAX_WAITING: usize = 4;
const MAX_UNACKNOWLEDGED: usize = 32;
/// The longest name of a failed node that is believed.
const MAX_NAME_BYTES: usize = 1024;
/// The name of the operation in errors.
const CALL: &str = "writeBlock";

/// A packet as it is written.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) seqno: i64,
    pub(super) is_last: bool,
    /// Where in `bytes` it begins.
    pub(super) start: usize,
    pub(super) bytes: Vec<u8>,
}

/// Why a block is not written, and which node is to blame.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: FsError,
    pub(super) bad: Option<Box<DatanodeInfo>>,
}

/// A block that is being written.
#[derive(Debug)]
pub(super) struct Pipeline {
    packets: Option<mpsc::Sender<Packet>>,
    /// The number of the last packet that all nodes have acknowledged.
    acknowledged: watch::Receiver<i64>,
    task: Option<JoinHandle<Result<(), Failure>>>,
}

/// What a pipeline is made for.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) namespace: i32,
    pub(super) version: i16,
    pub(super) block: Block,
    pub(super) nodes: Vec<DatanodeInfo>,
    pub(super) sums: Sums,
}

impl Pipeline {
    /// Sets a pipeline up: returns when all its nodes are connected.
    pub(super) async fn open(shared: &Arc<Shared>, target: Target) -> Result<Pipeline, Failure> {
        let Some(first) = target.nodes.first() else {
            let message = "the name node names no data node for the block";
            let error = FsError::new(ErrorKind::NoSpace, CALL, "", message);
            return Err(Failure { error, bad: None });
        };
        let settings = &shared.settings;
        let depth = u32::try_from(target.nodes.len()).unwrap_or(1);
        let read_due = settings.socket_timeout + settings.read_extension * depth;
        let write_due = settings.write_timeout + settings.write_extension * depth;
        let blamed = |error: FsError| Failure { error, bad: Some(Box::new(first.clone())) };
        let connection = Connection::open(shared, first, read_due, CALL).await.map_err(blamed)?;
        let Target { namespace, version, block, sums, .. } = target;
        let request =
            WriteRequest::new(version, namespace, block, &target.nodes, shared.lease.name(), sums);
        let mut connection = connection;
        let request = request_bytes(&Request::Write(request));
        let answer = async {
            connection.stream.write_all(&request).await?;
            read_bad_link(&mut connection.stream).await
        };
        let bad = match timeout(read_due, answer).await {
            Ok(Ok(bad)) => bad,
            Ok(Err(error)) => return Err(blamed(broken(&error, first))),
            Err(_) => return Err(blamed(too_slow(CALL, first, "no answer", read_due))),
        };
        if !bad.is_empty() {
            let node = target.nodes.iter().find(|node| node.name == bad).unwrap_or(first).clone();
            let message = "the data node before it in the pipeline cannot connect to it";
            let error = FsError::new(ErrorKind::Connection, CALL, "", message).at(&node.name);
            return Err(Failure { error, bad: Some(Box::new(node)) });
        }
        let (packets, waiting) = mpsc::channel(MAX_WAITING);
        let (acknowledge, acknowledged) = watch::channel(-1);
        let run = Run {
            connection,
            nodes: target.nodes,
            waiting,
            acknowledge,
            unacknowledged: VecDeque::new(),
            inbox: Vec::new(),
            read_due,
            write_due,
            has_ended: false,
        };
        let task = Some(tokio::spawn(run.drive()));
        Ok(Pipeline { packets: Some(packets), acknowledged, task })
    }

    /// Hands a packet over; waits while many are under way.
    pub(super) async fn send(&mut self, packet: Packet) -> Result<(), Failure> {
        if let Some(packets) = &self.packets
            && packets.send(packet).await.is_ok()
        {
            return Ok(());
        }
        self.ended().await
    }

    /// Returns when a packet has been acknowledged by all nodes.
    pub(super) async fn acknowledged(&mut self, seqno: i64) -> Result<(), Failure> {
        let is_there = self.acknowledged.wait_for(|last| *last >= seqno).await.is_ok();
        if is_there { Ok(()) } else { self.ended().await }
    }

    /// Returns when the last packet has been acknowledged.
    pub(super) async fn finish(mut self) -> Result<(), Failure> {
        self.packets = None;
        self.ended().await
    }

    /// How the pipeline has ended.
    async fn ended(&mut self) -> Result<(), Failure> {
        let stopped = |why: &str| {
            let error = FsError::new(ErrorKind::Connection, CALL, "", why);
            Failure { error, bad: None }
        };
        match self.task.take() {
            None => Err(stopped("the pipeline has failed before")),
            Some(task) => task.await.unwrap_or_else(|error| Err(stopped(&error.to_string()))),
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The name of the first node that cannot be reached; empty if all can.
async fn read_bad_link(stream: &mut TcpStream) -> io::Result<String> {
    let mut arrived = Vec::new();
    loop {
        let mut reader = Reader::partial(&arrived, MAX_NAME_BYTES);
        match reader.text() {
            Ok(name) => return Ok(name),
            Err(DecodeError::Truncated) => {}
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
        // Byte by byte: what follows belongs to somebody else.
        let byte = stream.read_u8().await?;
        arrived.push(byte);
    }
}

fn broken(error: &io::Error, node: &DatanodeInfo) -> FsError {
    let message = match error.kind() {
        io::ErrorKind::UnexpectedEof => "closed by the data node".to_owned(),
        _ => format!("the connection broke: {error}"),
    };
    FsError::new(ErrorKind::Connection, CALL, "", message).at(&node.name)
}

/// The task of a pipeline.
struct Run {
    connection: Connection,
    nodes: Vec<DatanodeInfo>,
    waiting: mpsc::Receiver<Packet>,
    acknowledge: watch::Sender<i64>,
    /// Numbers of packets that are written, with the time when they were.
    unacknowledged: VecDeque<(i64, Instant)>,
    inbox: Vec<u8>,
    read_due: Duration,
    write_due: Duration,
    /// Whether the last packet is written.
    has_ended: bool,
}

/// What happens next to a pipeline.
enum Event {
    Packet(Option<Packet>),
    Arrived(io::Result<usize>),
    Alarm,
}

impl Run {
    async fn drive(mut self) -> Result<(), Failure> {
        loop {
            if self.has_ended && self.unacknowledged.is_empty() {
                return Ok(());
            }
            let may_write = !self.has_ended && self.unacknowledged.len() < MAX_UNACKNOWLEDGED;
            let oldest = self.unacknowledged.front().map(|(_, written)| *written);
            let alarm = match oldest {
                Some(written) => written + self.read_due,
                // Data nodes would give a silent client up.
                None => Instant::now() + self.read_due / 2,
            };
            let event = tokio::select! {
                biased;
                read = self.connection.stream.read_buf(&mut self.inbox) => Event::Arrived(read),
                packet = self.waiting.recv(), if may_write => Event::Packet(packet),
                () = sleep_until(alarm) => Event::Alarm,
            };
            match event {
                Event::Arrived(read) => self.arrived(read)?,
                Event::Packet(Some(packet)) => self.write(packet).await?,
                // Its owner has given it up, or has sent the last packet.
                Event::Packet(None) if !self.has_ended => return Err(self.blame_first("given up")),
                Event::Packet(None) => {}
                Event::Alarm if oldest.is_some() => {
                    let error = too_slow(CALL, &self.nodes[0], "no acknowledgement", self.read_due);
                    return Err(Failure { error, bad: self.nodes.first().cloned().map(Box::new) });
                }
                Event::Alarm => self.write(heartbeat()).await?,
            }
        }
    }

    /// Writes a packet. Acknowledgements are read meanwhile, so that neither side waits for the other.
    async fn write(&mut self, packet: Packet) -> Result<(), Failure> {
        let mut end = packet.bytes.as_slice().get(packet.start..).unwrap_or_default();
        self.unacknowledged.push_back((packet.seqno, Instant::now()));
        self.has_ended = packet.is_last;
        let deadline = Instant::now() + self.write_due;
        while !end.is_empty() {
            let (mut from, mut to) = self.connection.stream.split();
            let inbox = &mut self.inbox;
            let event = tokio::select! {
                written = to.write(end) => Ok(written),
                read = from.read_buf(inbox) => Err(Event::Arrived(read)),
                () = sleep_until(deadline) => Err(Event::Alarm),
            };
            match event {
                Ok(Ok(written)) => end = end.get(written..).unwrap_or_default(),
                Ok(Err(error)) => {
                    // An acknowledgement that says which node is bad may be there already.
                    self.rest().await?;
                    let error = broken(&error, &self.nodes[0]);
                    return Err(Failure { error, bad: self.nodes.first().cloned().map(Box::new) });
                }
                Err(Event::Arrived(read)) => self.arrived(read)?,
                Err(_) => {
                    let (node, due) = (&self.nodes[0], self.write_due);
                    let error = too_slow(CALL, node, "a packet was not taken", due);
                    return Err(Failure { error, bad: Some(Box::new(node.clone())) });
                }
            }
        }
        Ok(())
    }

    /// Reads what is there after the connection broke.
    async fn rest(&mut self) -> Result<(), Failure> {
        let due = Duration::from_millis(200);
        while let Ok(Ok(read @ 1..)) =
            timeout(due, self.connection.stream.read_buf(&mut self.inbox)).await
        {
            self.arrived(Ok(read))?;
        }
        Ok(())
    }

    fn arrived(&mut self, read: io::Result<usize>) -> Result<(), Failure> {
        match read {
            Ok(0) => return Err(self.blame_first("closed by the data node")),
            Err(error) => {
                let error = broken(&error, &self.nodes[0]);
                return Err(Failure { error, bad: self.nodes.first().cloned().map(Box::new) });
            }
            Ok(_) => {}
        }
        let mut at = 0;
        loop {
            // An acknowledgement ends behind the first failure: it is read one reply at a time.
            let mut reader = Reader::partial(self.inbox.get(at..).unwrap_or_default(), usize::MAX);
            let ack = match Ack::decode(&mut reader, self.nodes.len()) {
                Ok(ack) => ack,
                Err(DecodeError::Truncated) => break,
                Err(error) => return Err(self.blame_first(&error.to_string())),
            };
            at += reader.position();
            if let Some(bad) = ack.bad {
                let node = self.nodes.get(bad).unwrap_or(&self.nodes[0]).clone();
                let message = format!("the data node failed at packet {}", ack.seqno);
                let error = FsError::new(ErrorKind::Connection, CALL, "", message).at(&node.name);
                return Err(Failure { error, bad: Some(Box::new(node)) });
            }
            match self.unacknowledged.pop_front() {
                Some((due, _)) if due == ack.seqno => {}
                due => {
                    let due = due.map_or("none".to_owned(), |(due, _)| due.to_string());
                    let why = format!("packet {} acknowledged where {due} was due", ack.seqno);
                    return Err(self.blame_first(&why));
                }
            }
            if ack.seqno != HEARTBEAT {
                self.acknowledge.send_replace(ack.seqno);
            }
        }
        self.inbox.drain(..at);
        Ok(())
    }

    fn blame_first(&self, why: &str) -> Failure {
        let bad = self.nodes.first().cloned().map(Box::new);
        let name = bad.as_ref().map_or("", |node| &node.name);
        let error = FsError::new(ErrorKind::Connection, CALL, "", why).at(name);
        Failure { error, bad }
    }
}

/// A packet that says that the client lives.
fn heartbeat() -> Packet {
    let header = PacketHeader {
        payload: 0,
        layout: Layout::SumsFirst,
        offset: 0,
        seqno: HEARTBEAT,
        flags: 0,
        data: 0,
    };
    Packet { seqno: HEARTBEAT, is_last: false, start: 0, bytes: header.bytes().to_vec() }
}
