//! One block on its way through a pipeline of data nodes. Spec: hdfs/01 §1.6.1 to §1.6.4.
//!
//! The writer of the block writes to the connection and reads acknowledgements meanwhile: no packet
//! is handed to another task. A task keeps the pipeline alive while its owner has nothing to write.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::HdfsContext;
use super::connection::{Connection, too_slow};
use super::transfer::{
    Ack, HEARTBEAT, Layout, PacketHeader, Request, Sums, WriteKind, WriteRequest, request_bytes,
};
use crate::{ErrorKind, FsError};
use corona_hadoop::io::{DecodeError, Reader};
use corona_hadoop::writables::{Block, DatanodeInfo};
use corona_process::panics::spawn_detached;

/// Packets that are written and not acknowledged, as in the original.
const MAX_UNACKNOWLEDGED: usize = 80;
/// Acknowledgements are looked for when so many are due: each look costs a system call.
const LOOK_AFTER: usize = MAX_UNACKNOWLEDGED / 4;
/// The longest name of a failed node that is believed.
const MAX_NAME_BYTES: usize = 1024;
/// Bytes of acknowledgements that are read at a time.
const ACK_BYTES: usize = 4 << 10;
/// The name of the operation in errors.
const CALL: &str = "writeBlock";

/// A packet as it is written.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) seqno: i64,
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

impl Failure {
    /// A failure that is no node's.
    pub(super) fn of(why: impl Into<String>) -> Failure {
        Failure { error: FsError::new(ErrorKind::Connection, CALL, "", why), bad: None }
    }
}

/// A block that is being written. The connection ends with it.
#[derive(Debug)]
pub(super) struct Pipeline {
    wire: Arc<Mutex<Wire>>,
    keeper: AbortHandle,
}

/// What a pipeline is made for.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) namespace: i32,
    pub(super) version: i16,
    pub(super) block: Block,
    pub(super) kind: WriteKind,
    pub(super) nodes: Vec<DatanodeInfo>,
    pub(super) sums: Sums,
}

impl Pipeline {
    /// Sets a pipeline up: returns when all its nodes are connected.
    pub(super) async fn open(
        shared: &Arc<HdfsContext>,
        target: Target,
    ) -> Result<Pipeline, Failure> {
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
        let Target { namespace, version, block, kind, sums, .. } = target;
        let name = shared.lease.name();
        let request =
            WriteRequest::new((version, namespace), block, kind, &target.nodes, name, sums);
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
        let wire = Arc::new(Mutex::new(Wire {
            connection,
            nodes: target.nodes,
            unacknowledged: VecDeque::new(),
            inbox: Vec::new(),
            outbox: Vec::new(),
            written: 0,
            last_write: Instant::now(),
            failure: None,
            read_due,
            write_due,
        }));
        let beats = keep_alive(Arc::downgrade(&wire), read_due / 2);
        let keeper = spawn_detached("the heartbeats of a pipeline", beats).abort_handle();
        Ok(Pipeline { wire, keeper })
    }

    /// Writes a packet; waits while many are not acknowledged. Gives its bytes back, which are of no
    /// use any more.
    pub(super) async fn send(&mut self, packet: Packet) -> Result<Vec<u8>, (Failure, Vec<u8>)> {
        self.wire.lock().await.send(packet).await
    }

    /// Returns when a packet has been acknowledged by all nodes.
    pub(super) async fn acknowledged(&mut self, seqno: i64) -> Result<(), Failure> {
        let mut wire = self.wire.lock().await;
        wire.write_out().await?;
        while wire.unacknowledged.front().is_some_and(|due| *due <= seqno) {
            wire.wait_for_acks().await?;
        }
        Ok(())
    }

    /// Returns when all packets have been acknowledged.
    pub(super) async fn finish(self) -> Result<(), Failure> {
        let mut wire = self.wire.lock().await;
        wire.write_out().await?;
        while !wire.unacknowledged.is_empty() {
            wire.wait_for_acks().await?;
        }
        Ok(())
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.keeper.abort();
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

/// The connection of a pipeline.
#[derive(Debug)]
struct Wire {
    connection: Connection,
    nodes: Vec<DatanodeInfo>,
    /// Numbers of packets that are written.
    unacknowledged: VecDeque<i64>,
    inbox: Vec<u8>,
    /// A packet that is being written, and how much of it is: it is continued when the caller that wrote it
    /// was dropped.
    outbox: Vec<u8>,
    written: usize,
    last_write: Instant,
    /// What went wrong while the owner had nothing to write.
    failure: Option<Failure>,
    read_due: Duration,
    write_due: Duration,
}

impl Wire {
    async fn send(&mut self, packet: Packet) -> Result<Vec<u8>, (Failure, Vec<u8>)> {
        let ready = async {
            self.write_out().await?;
            while self.unacknowledged.len() >= MAX_UNACKNOWLEDGED {
                self.wait_for_acks().await?;
            }
            Ok(())
        };
        if let Err(failure) = ready.await {
            return Err((failure, packet.bytes));
        }
        self.unacknowledged.push_back(packet.seqno);
        (self.outbox, self.written) = (packet.bytes, packet.start);
        let written = self.write_out().await;
        let bytes = std::mem::take(&mut self.outbox);
        match written {
            Ok(()) => Ok(bytes),
            Err(failure) => Err((failure, bytes)),
        }
    }

    /// Writes what has been begun. Acknowledgements are read meanwhile, so that neither side waits for
    /// the other.
    async fn write_out(&mut self) -> Result<(), Failure> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        while let Some(rest) = self.outbox.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.connection.stream.try_write(rest) {
                Ok(written) => {
                    self.written += written;
                    self.last_write = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let both = Interest::READABLE | Interest::WRITABLE;
                    let deadline = self.last_write.max(Instant::now()) + self.write_due;
                    match timeout_at(deadline, self.connection.stream.ready(both)).await {
                        Ok(Ok(ready)) if ready.is_readable() || ready.is_read_closed() => {
                            self.take_acks()?;
                        }
                        Ok(Ok(_)) => {}
                        Ok(Err(error)) => return Err(self.blame_first_for(&error)),
                        Err(_) => {
                            let node = self.first();
                            let what = "a packet was not taken";
                            let error = too_slow(CALL, &node, what, self.write_due);
                            return Err(Failure { error, bad: Some(Box::new(node)) });
                        }
                    }
                }
                Err(error) => {
                    // An acknowledgement that says which node is bad may be there already.
                    self.rest().await?;
                    return Err(self.blame_first_for(&error));
                }
            }
        }
        if self.unacknowledged.len() >= LOOK_AFTER {
            self.take_acks()?;
        }
        Ok(())
    }

    /// Waits until there is a further acknowledgement.
    async fn wait_for_acks(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + self.read_due;
        while !self.take_acks()? {
            match timeout_at(deadline, self.connection.stream.readable()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(self.blame_first_for(&error)),
                Err(_) => {
                    let node = self.first();
                    let error = too_slow(CALL, &node, "no acknowledgement", self.read_due);
                    return Err(Failure { error, bad: Some(Box::new(node)) });
                }
            }
        }
        Ok(())
    }

    /// Takes the acknowledgements that are there. False: there is none.
    fn take_acks(&mut self) -> Result<bool, Failure> {
        let before = self.unacknowledged.len();
        loop {
            self.inbox.reserve(ACK_BYTES);
            match self.connection.stream.try_read_buf(&mut self.inbox) {
                Ok(0) => return Err(self.blame_first("closed by the data node")),
                Ok(read) => {
                    self.arrived()?;
                    if read < ACK_BYTES {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(self.blame_first_for(&error)),
            }
        }
        Ok(self.unacknowledged.len() < before)
    }

    /// Reads what is there after the connection broke.
    async fn rest(&mut self) -> Result<(), Failure> {
        let due = Duration::from_millis(200);
        while let Ok(Ok(1..)) = timeout(due, self.connection.stream.read_buf(&mut self.inbox)).await
        {
            self.arrived()?;
        }
        Ok(())
    }

    fn arrived(&mut self) -> Result<(), Failure> {
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
                let node = self.nodes.get(bad).cloned().unwrap_or_else(|| self.first());
                let message = format!("the data node failed at packet {}", ack.seqno);
                let error = FsError::new(ErrorKind::Connection, CALL, "", message).at(&node.name);
                return Err(Failure { error, bad: Some(Box::new(node)) });
            }
            match self.unacknowledged.pop_front() {
                Some(due) if due == ack.seqno => {}
                due => {
                    let due = due.map_or("none".to_owned(), |due| due.to_string());
                    let why = format!("packet {} acknowledged where {due} was due", ack.seqno);
                    return Err(self.blame_first(&why));
                }
            }
        }
        self.inbox.drain(..at);
        Ok(())
    }

    /// Says that the client lives, unless something is in flight.
    async fn beat(&mut self) -> Result<(), Failure> {
        self.take_acks()?;
        if self.outbox.is_empty() && self.unacknowledged.is_empty() {
            self.send(heartbeat()).await.map_err(|(failure, _)| failure)?;
        }
        Ok(())
    }

    #[allow(clippy::indexing_slicing, reason = "a pipeline has a first node: see `Pipeline::open`")]
    fn first(&self) -> DatanodeInfo {
        self.nodes[0].clone()
    }

    fn blame_first(&self, why: &str) -> Failure {
        let bad = self.first();
        let error = FsError::new(ErrorKind::Connection, CALL, "", why).at(&bad.name);
        Failure { error, bad: Some(Box::new(bad)) }
    }

    fn blame_first_for(&self, error: &io::Error) -> Failure {
        let bad = self.first();
        Failure { error: broken(error, &bad), bad: Some(Box::new(bad)) }
    }
}

/// Data nodes would give a silent client up. It ends with the pipeline.
async fn keep_alive(wire: Weak<Mutex<Wire>>, every: Duration) {
    let mut next = Instant::now() + every;
    loop {
        sleep_until(next).await;
        let Some(wire) = wire.upgrade() else { return };
        let mut wire = wire.lock().await;
        next = wire.last_write + every;
        let now = Instant::now();
        if next > now {
            continue;
        }
        next = now + every;
        if let Err(failure) = wire.beat().await {
            wire.failure = Some(failure);
            return;
        }
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
    Packet { seqno: HEARTBEAT, start: 0, bytes: header.bytes().to_vec() }
}
