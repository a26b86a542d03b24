//! A part of one replica, as it comes over one connection. Spec: hdfs/01 §1.5.
//!
//! What has come is checked before anybody sees it: order and lengths of packets, and the checksum of
//! each chunk.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::HdfsContext;
use super::connection::{Connection, too_slow};
use super::transfer::{
    CHECKSUM_OK, HEADER_BYTES, Next, PacketHeader, ReadAnswer, ReadEnd, ReadRequest, Request,
    SumKind, Sums, request_bytes, verify,
};
use crate::{ErrorKind, FsError};
use corona_hadoop::io::formats::Writable;
use corona_hadoop::io::{DecodeError, Reader};
use corona_hadoop::writables::{Block, DatanodeInfo};

/// Packets without data that may follow each other. Servers of the original send none; without a limit
/// one that sends nothing else would occupy its reader forever.
const MAX_EMPTY_PACKETS: usize = 16;
/// Bytes that there is room for when more is read.
const LEAST_READ_BYTES: usize = 64 << 10;
/// Bytes that the inbox holds at least.
const INBOX_BYTES: usize = 512 << 10;
/// The name of the operation in errors.
const CALL: &str = "readBlock";

/// A part of a replica that is being read.
#[derive(Debug)]
pub(super) struct BlockReader {
    connection: Connection,
    node: DatanodeInfo,
    block: Block,
    version: i16,
    sums: Sums,
    due: Duration,
    max_packet_bytes: usize,
    /// What has arrived: `data` of the packet at hand, and from `next` on what is not looked at.
    inbox: Vec<u8>,
    data: std::ops::Range<usize>,
    next: usize,
    /// Where in the block the packet after the one at hand begins, and its number.
    expected: (u64, i64),
    /// What is still wanted: where in the block, and up to where.
    wanted: std::ops::Range<u64>,
    /// Whether a packet has ended within a chunk: it must be the last one.
    is_ragged: bool,
    /// Packets without data since the last one that had some.
    empty_packets: usize,
    is_done: bool,
}

/// What is read of a replica.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) namespace: i32,
    pub(super) version: i16,
    pub(super) block: Block,
    pub(super) range: std::ops::Range<u64>,
}

impl BlockReader {
    /// Asks a data node for a part of a block.
    pub(super) async fn open(
        shared: &HdfsContext,
        node: &DatanodeInfo,
        part: &Part,
    ) -> Result<BlockReader, FsError> {
        let due = shared.settings.socket_timeout;
        let connection = Connection::open(shared, node, due, CALL).await?;
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let range = (number(part.range.start), number(part.range.end - part.range.start));
        let Part { namespace, version, block, .. } = *part;
        let request = ReadRequest::new(version, namespace, block, range, shared.lease.name());
        let mut reader = BlockReader {
            connection,
            node: node.clone(),
            block,
            version,
            sums: Sums { kind: SumKind::None, covered: 1 },
            due,
            max_packet_bytes: shared.settings.max_packet_bytes,
            inbox: Vec::new(),
            data: 0..0,
            next: 0,
            expected: (0, 0),
            wanted: part.range.clone(),
            is_ragged: false,
            empty_packets: 0,
            is_done: false,
        };
        let request = request_bytes(&Request::Read(request));
        match timeout(due, reader.connection.stream.write_all(&request)).await {
            Ok(written) => written.map_err(|error| reader.broken(&error))?,
            Err(_) => return Err(too_slow(CALL, node, "the request was not taken", due)),
        }
        let reply = match reader.decode(ReadAnswer::decode).await? {
            ReadAnswer::Packets(reply) => reply,
            ReadAnswer::Status(status) => {
                let message = format!("the data node refuses: status {status}");
                let error = FsError::new(ErrorKind::Remote, CALL, "", message);
                return Err(error.at(&node.name));
            }
        };
        let first = u64::try_from(reply.first_chunk).ok();
        let start = part.range.start;
        let first = first.filter(|first| {
            *first <= start && start < first.saturating_add(reply.sums.covered as u64)
        });
        if reply.sums.kind == SumKind::None {
            // Clients write no block without checksums. This replica has lost them, or the data node lies.
            return Err(reader.malformed("the data node has no checksums of the block"));
        }
        reader.sums = reply.sums;
        reader.expected.0 = first.ok_or_else(|| reader.malformed("the first chunk is another"))?;
        Ok(reader)
    }

    /// Whether the data node is on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.connection.is_local
    }

    /// The data node.
    pub(super) fn node(&self) -> &DatanodeInfo {
        &self.node
    }

    /// The block.
    pub(super) fn block(&self) -> Block {
        self.block
    }

    /// Whether all that was asked for has been read.
    pub(super) fn is_read(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Where in the block the next byte is.
    pub(super) fn position(&self) -> u64 {
        self.wanted.start
    }

    /// Skips bytes that have been asked for.
    pub(super) async fn skip(&mut self, mut bytes: u64) -> Result<(), FsError> {
        while bytes > 0 {
            let there = self.available().await?;
            if there == 0 {
                return Ok(());
            }
            let skipped = usize::try_from(bytes).map_or(there, |bytes| bytes.min(there));
            self.take(skipped);
            bytes -= skipped as u64;
        }
        Ok(())
    }

    /// Reads some bytes; 0 when all that was wanted has been read.
    pub(super) async fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FsError> {
        let length = self.available().await?.min(buffer.len());
        let from = self.inbox.get(self.data.start..self.data.start + length);
        if let (Some(to), Some(from)) = (buffer.get_mut(..length), from) {
            to.copy_from_slice(from);
        }
        self.take(length);
        Ok(length)
    }

    fn take(&mut self, bytes: usize) {
        self.data.start += bytes;
        self.wanted.start += bytes as u64;
    }

    /// Bytes that are there and wanted; waits for a packet if there are none. 0: the end.
    async fn available(&mut self) -> Result<usize, FsError> {
        while self.data.is_empty() && self.wanted.start < self.wanted.end {
            self.read_packet().await?;
        }
        let wanted = usize::try_from(self.wanted.end - self.wanted.start).unwrap_or(usize::MAX);
        Ok(self.data.len().min(wanted))
    }

    /// Reads the end of the answer, and says that all checksums were right, which marks the replica
    /// as verified. Failures are of no interest any more.
    pub(super) async fn finish(mut self) {
        let finished = async {
            while !self.is_done {
                self.data = 0..0;
                if !self.read_next().await? {
                    break;
                }
            }
            self.decode(ReadEnd::decode).await?;
            let status = CHECKSUM_OK.to_be_bytes();
            self.connection.stream.write_all(&status).await.map_err(|error| self.broken(&error))
        };
        // Only the rest of a packet is behind the wanted bytes.
        if let Ok(Err(error)) = timeout(Duration::from_secs(1), finished).await {
            tracing::debug!(%error, "the end of a replica was not read");
        }
    }

    async fn read_packet(&mut self) -> Result<(), FsError> {
        if self.is_done || !self.read_next().await? {
            self.is_done = true;
            return Err(self.malformed("the answer ends before the last byte that was asked for"));
        }
        // The first chunk may begin before the wanted place.
        let before = self.wanted.start.saturating_sub(self.expected.0 - self.data.len() as u64);
        let skipped = usize::try_from(before).unwrap_or(usize::MAX).min(self.data.len());
        self.data.start += skipped;
        Ok(())
    }

    /// Takes the next packet apart. False: there is none.
    async fn read_next(&mut self) -> Result<bool, FsError> {
        let (version, sums, most) = (self.version, self.sums, self.max_packet_bytes);
        let decoded =
            self.decode(|reader| PacketHeader::decode(reader, version, sums, most)).await?;
        let Next::Packet(header) = decoded else {
            self.is_done = true;
            return Ok(false);
        };
        if (header.offset.unsigned_abs(), header.seqno) != self.expected {
            return Err(self.malformed("a packet is out of order"));
        }
        self.empty_packets = if header.data > 0 { 0 } else { self.empty_packets + 1 };
        if self.empty_packets > MAX_EMPTY_PACKETS {
            return Err(self.malformed("packets without data do not end"));
        }
        if self.is_ragged && header.data > 0 {
            return Err(self.malformed("a packet continues a chunk"));
        }
        while self.inbox.len() - self.next < header.payload {
            self.read_more(header.payload).await?;
        }
        let payload = self.inbox.get_mut(self.next..self.next + header.payload).unwrap_or_default();
        let found = verify(&header, sums, payload);
        let data = found.map_err(|wrong| {
            let message = format!("wrong checksum at {} of the replica", wrong.at);
            FsError::new(ErrorKind::Checksum, CALL, "", message).at(&self.node.name)
        })?;
        self.data = self.next + data.start..self.next + data.end;
        self.next += header.payload;
        let end = self.expected.0 + header.data as u64;
        self.expected = (end, self.expected.1 + 1);
        self.is_ragged = !end.is_multiple_of(sums.covered as u64);
        Ok(true)
    }

    /// Decodes what comes next, as soon as it is there.
    async fn decode<T>(
        &mut self,
        decode: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, FsError> {
        loop {
            let arrived = self.inbox.get(self.next..).unwrap_or_default();
            // Nothing that is decoded like this is longer than a header.
            let mut reader = Reader::partial(arrived, 2 * HEADER_BYTES + arrived.len());
            match decode(&mut reader) {
                Ok(value) => {
                    self.next += reader.position();
                    return Ok(value);
                }
                Err(DecodeError::Truncated) => self.read_more(HEADER_BYTES).await?,
                Err(error) => return Err(self.malformed(&error.to_string())),
            }
        }
    }

    /// Waits for more bytes; `wanted` are needed in all. What was read is thrown away when there is
    /// no room behind what was not.
    async fn read_more(&mut self, wanted: usize) -> Result<(), FsError> {
        let missing = wanted.saturating_sub(self.inbox.len() - self.next);
        let room = missing.max(LEAST_READ_BYTES);
        if self.next == self.inbox.len() && self.data.is_empty() {
            self.inbox.clear();
            self.next = 0;
        }
        if self.inbox.capacity() - self.inbox.len() < room {
            if self.data.is_empty() {
                self.inbox.drain(..self.next);
                self.next = 0;
                self.data = 0..0;
            }
            // Filled several times before its content is moved.
            self.inbox.reserve(room.max(INBOX_BYTES.saturating_sub(self.inbox.len())));
        }
        let read = timeout(self.due, self.connection.stream.read_buf(&mut self.inbox)).await;
        match read {
            Ok(Ok(0)) => {
                let closed =
                    io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the data node");
                Err(self.broken(&closed))
            }
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.broken(&error)),
            Err(_) => Err(too_slow(CALL, &self.node, "no data", self.due)),
        }
    }

    fn broken(&self, error: &io::Error) -> FsError {
        let message = format!("the connection broke: {error}");
        FsError::new(ErrorKind::Connection, CALL, "", message).at(&self.node.name)
    }

    fn malformed(&self, wrong: &str) -> FsError {
        FsError::new(ErrorKind::Malformed, CALL, "", wrong).at(&self.node.name)
    }
}
