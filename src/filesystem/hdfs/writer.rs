//! A file that is written: block after block, each through a pipeline of data nodes.
//!
//! When a data node fails, the block is abandoned and written again, from its first byte, to nodes
//! without that one. Spec: hdfs/01 §1.4, §1.6.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::Shared;
use super::kept::Kept;
use super::lease::Held;
use super::pipeline::{Failure, Packet, Pipeline, Target};
use super::transfer::{
    HEADER_BYTES, Layout, OLDEST_VERSION, PacketHeader, SUM_BYTES, SumKind, Sums, VERSION,
};
use crate::{Answer, ErrorKind, FileWriter, FsError, FsPath, Replay};
use corona_hadoop::writables::{Block, DatanodeInfo, LocatedBlockWithMetaInfo};

/// The first pause before a block or the end of a file is asked for again. Spec: hdfs/01 §1.4.5.
const PAUSE: Duration = Duration::from_millis(400);
/// The longest.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Time to delete a file that was given up.
const DELETE_TIMEOUT: Duration = Duration::from_secs(30);
/// Nodes that are excluded for one file.
const MAX_EXCLUDED: usize = 1000;

/// How a file is made.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) permission: u16,
    pub(super) overwrite: bool,
    pub(super) replication: i16,
    pub(super) block_bytes: u64,
    pub(super) covered: u32,
}

/// A file that is written.
pub(super) struct HdfsWriter {
    shared: Arc<Shared>,
    path: FsPath,
    held: Held,
    shape: Shape,
    sums: Sums,
    chunks_per_packet: usize,
    /// Bytes of blocks that are finished.
    finished: u64,
    last: Option<Block>,
    /// The bytes of the block at hand, those of `packet` included.
    kept: Kept,
    current: Option<Current>,
    packet: PacketBuilder,
    seqno: i64,
    /// Failures of the block at hand.
    tries: u32,
    excluded: Vec<DatanodeInfo>,
    has_cleared_excluded: bool,
    /// Whether the name node was asked to remember the block at hand.
    is_persisted: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Something failed for good: the file is to be deleted.
    Failed,
    /// Closed, deleted, or not ours any more.
    Over,
}

/// The block at hand; without a pipeline it has not been set up, or has failed.
struct Current {
    block: Block,
    pipeline: Option<Pipeline>,
}

/// What keeps a block from being written.
enum Trouble {
    /// Other data nodes may take it.
    Nodes(Failure),
    /// Nothing will.
    Final(FsError),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Nodes(failure)
    }
}

impl From<FsError> for Trouble {
    fn from(error: FsError) -> Trouble {
        Trouble::Final(error)
    }
}

impl HdfsWriter {
    /// Makes the file.
    pub(super) async fn create(
        shared: Arc<Shared>,
        path: FsPath,
        shape: Shape,
        replay: Replay,
    ) -> Result<HdfsWriter, FsError> {
        let covered = shape.covered as usize;
        if covered == 0
            || shape.block_bytes == 0
            || !shape.block_bytes.is_multiple_of(covered as u64)
        {
            let message = format!(
                "a block of {} bytes is no positive multiple of {covered} bytes for a checksum",
                shape.block_bytes
            );
            return Err(FsError::new(ErrorKind::Invalid, "create", &path, message));
        }
        let held = shared.lease.hold();
        let chunk = covered + SUM_BYTES;
        let packet_bytes = shared.settings.packet_bytes as usize;
        let chunks_per_packet = packet_bytes.saturating_sub(HEADER_BYTES).div_ceil(chunk);
        let kept = Kept::new(replay, &shared.settings.buffer_dir);
        let mut writer = HdfsWriter {
            shared,
            path,
            held,
            shape,
            sums: Sums { kind: SumKind::Crc32, covered },
            chunks_per_packet: chunks_per_packet.max(1),
            finished: 0,
            last: None,
            kept,
            current: None,
            packet: PacketBuilder::default(),
            seqno: 0,
            tries: 0,
            excluded: Vec::new(),
            has_cleared_excluded: false,
            is_persisted: false,
            // So far there is nothing to delete.
            state: State::Over,
        };
        writer.create_file().await?;
        writer.state = State::Open;
        writer.packet = writer.new_packet(0);
        Ok(writer)
    }

    /// Makes the file, waiting as long as somebody else writes it. Spec: hdfs/01 §1.4.2, §1.4.7.
    async fn create_file(&self) -> Result<(), FsError> {
        let settings = &self.shared.settings;
        let (mut retries, mut is_unsure) = (settings.create_retries, false);
        loop {
            let Shape { permission, overwrite, replication, block_bytes, .. } = self.shape;
            let created = self.shared.name_node.create(
                self.path.path(),
                self.held.client_name(),
                permission,
                overwrite,
                (replication, block_bytes),
            );
            match created.await {
                Ok(()) => return Ok(()),
                // Nobody knows whether it was made.
                Err(error) if error.kind == ErrorKind::Unknown && !is_unsure => is_unsure = true,
                // It was: it is ours, and empty.
                Err(error) if error.kind == ErrorKind::Lease && is_unsure => {
                    self.shared.name_node.delete(self.path.path(), false).await?;
                    is_unsure = false;
                }
                Err(error) if error.kind == ErrorKind::Lease && retries > 0 => {
                    tracing::warn!(%error, retries, "somebody else writes the file");
                    sleep(settings.create_pause).await;
                    retries -= 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn new_packet(&self, offset: u64) -> PacketBuilder {
        PacketBuilder::new(offset, self.chunks_per_packet, self.sums)
    }

    async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), FsError> {
        self.check()?;
        while !bytes.is_empty() {
            let left = self.shape.block_bytes - self.kept.len();
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            let (piece, rest) = bytes.split_at(self.packet.room().min(left).min(bytes.len()));
            if let Err(error) = self.kept.add(piece).await {
                // Without these bytes the block could not be written again.
                return Err(self.fail(error));
            }
            self.packet.add(piece);
            bytes = rest;
            let is_full = self.kept.len() == self.shape.block_bytes;
            if is_full || self.packet.room() == 0 {
                self.send(is_full).await?;
            }
            if is_full {
                self.finish_block().await?;
            }
        }
        Ok(())
    }

    /// Sends the packet at hand.
    async fn send(&mut self, is_last: bool) -> Result<(), FsError> {
        let upto = self.packet.end();
        let next = self.new_packet(upto);
        let packet = std::mem::replace(&mut self.packet, next);
        let sent = match self.current {
            // The packet is in what is kept.
            None => Err(None),
            Some(_) => self.hand_over(packet, is_last).await.map_err(Some),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(failure) => self.send_again(failure, upto, is_last).await,
        }
    }

    async fn hand_over(&mut self, packet: PacketBuilder, is_last: bool) -> Result<(), Failure> {
        let packet = packet.finish(self.seqno, is_last);
        self.seqno += 1;
        match self.current.as_mut().and_then(|current| current.pipeline.as_mut()) {
            Some(pipeline) => pipeline.send(packet).await,
            None => Err(Failure {
                error: FsError::new(
                    ErrorKind::Connection,
                    "writeBlock",
                    "",
                    "there is no pipeline",
                ),
                bad: None,
            }),
        }
    }

    /// Writes the block at hand up to this place, to new data nodes: at first, and after a failure.
    async fn send_again(
        &mut self,
        mut failure: Option<Failure>,
        upto: u64,
        is_last: bool,
    ) -> Result<(), FsError> {
        loop {
            if let Some(failure) = failure.take() {
                self.give_block_up(failure).await?;
            }
            match self.start_block(upto, is_last).await {
                Ok(()) => return Ok(()),
                Err(Trouble::Nodes(again)) => failure = Some(again),
                Err(Trouble::Final(error)) => return Err(self.fail(error)),
            }
        }
    }

    /// Abandons the block, and excludes the node that failed. Spec: hdfs/01 §1.6.6.
    async fn give_block_up(&mut self, failure: Failure) -> Result<(), FsError> {
        let error = FsError { path: self.path.to_string(), ..failure.error };
        self.tries += 1;
        let block = self.current.take().map(|current| current.block);
        if self.held.is_lost() {
            let message = "the lease could not be renewed";
            return Err(self.fail(FsError::new(
                ErrorKind::Lease,
                "renewLease",
                &self.path,
                message,
            )));
        }
        if self.tries > 1 + self.shared.settings.block_write_retries {
            let message =
                format!("a block could not be written {} times; last: {error}", self.tries);
            return Err(self.fail(FsError { message, ..error }));
        }
        tracing::warn!(%error, tries = self.tries, "the block is written to other data nodes");
        self.shared.counters.rebuilt_blocks.add(1);
        if let Some(bad) = failure.bad
            && self.excluded.len() < MAX_EXCLUDED
            && !self.excluded.iter().any(|node| node.name == bad.name)
        {
            self.excluded.push(*bad);
        }
        let Some(block) = block else { return Ok(()) };
        let name_node = &self.shared.name_node;
        match name_node.abandon_block(block, self.path.path(), self.held.client_name()).await {
            Err(error) if error.kind == ErrorKind::Lease => Err(self.fail(error)),
            // A reply may have been lost: then the block is not there any more.
            Err(error) => {
                tracing::warn!(%error, "the block may not be abandoned");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Asks for a block, sets a pipeline up, and sends what the block has so far.
    async fn start_block(&mut self, upto: u64, is_last: bool) -> Result<(), Trouble> {
        let found = self.locate_block().await?;
        let block = Block { bytes: 0, ..found.located.block };
        self.current = Some(Current { block, pipeline: None });
        self.is_persisted = false;
        let version = i16::try_from(found.data_version).unwrap_or(i16::MAX).min(VERSION);
        if version < OLDEST_VERSION {
            let message =
                format!("data transfer of version {} is not supported", found.data_version);
            return Err(FsError::new(ErrorKind::Unsupported, "write", &self.path, message).into());
        }
        let target = Target {
            namespace: found.namespace,
            version,
            block,
            nodes: found.located.locations,
            sums: self.sums,
        };
        let pipeline = Pipeline::open(&self.shared, target).await?;
        if let Some(current) = &mut self.current {
            current.pipeline = Some(pipeline);
        }
        let mut at = 0;
        loop {
            let mut packet = self.new_packet(at);
            let wanted = usize::try_from(upto - at).unwrap_or(usize::MAX).min(packet.room());
            packet.add(&self.kept.read(at, wanted).await?);
            if packet.end() == at && at < upto {
                let message = "the file that is copied has become shorter";
                return Err(FsError::new(ErrorKind::Io, "write", &self.path, message).into());
            }
            at = packet.end();
            self.hand_over(packet, is_last && at == upto).await?;
            if at >= upto {
                return Ok(());
            }
        }
    }

    /// A new block of the file. Spec: hdfs/01 §1.4.3, §1.3.5.
    async fn locate_block(&mut self) -> Result<LocatedBlockWithMetaInfo, FsError> {
        let mut pause = PAUSE;
        let mut retries = self.shared.settings.locate_block_retries;
        let mut is_unsure = false;
        loop {
            let located = self.shared.name_node.add_block(
                self.path.path(),
                self.held.client_name(),
                &self.excluded,
                self.finished,
                self.last,
            );
            let error = match located.await {
                Ok(found) => return Ok(found),
                Err(error) => error,
            };
            match error.kind {
                // The block before has too few replicas so far.
                ErrorKind::NotYet if retries > 0 => {
                    sleep(pause).await;
                    (pause, retries) = (pause * 2, retries - 1);
                }
                ErrorKind::NoSpace if !self.excluded.is_empty() && !self.has_cleared_excluded => {
                    self.excluded.clear();
                    self.has_cleared_excluded = true;
                }
                // Asked again, the name node gives the same block, but for the first one.
                ErrorKind::Unknown if !is_unsure => is_unsure = true,
                ErrorKind::Remote
                    if is_unsure
                        && self.last.is_none()
                        && error.message.contains("File size from client side doesn't match") =>
                {
                    is_unsure = false;
                    self.shared.name_node.delete(self.path.path(), false).await?;
                    self.create_file().await?;
                }
                _ => return Err(error),
            }
        }
    }

    /// Waits until the data nodes have the whole block.
    async fn finish_block(&mut self) -> Result<(), FsError> {
        loop {
            let Some(current) = &mut self.current else { return Ok(()) };
            let Some(pipeline) = current.pipeline.take() else { return Ok(()) };
            match pipeline.finish().await {
                Ok(()) => break,
                Err(failure) => self.send_again(Some(failure), self.kept.len(), true).await?,
            }
        }
        let bytes = self.kept.len();
        self.shared.counters.written_bytes.add(bytes);
        self.last = self.current.take().map(|current| current.block);
        self.finished += bytes;
        self.kept.next_block();
        self.packet = self.new_packet(0);
        self.tries = 0;
        Ok(())
    }

    async fn make_visible(&mut self) -> Result<(), FsError> {
        self.check()?;
        if self.kept.len() == 0 {
            return Ok(());
        }
        if self.packet.end() > self.packet.offset {
            self.send(false).await?;
        }
        loop {
            let seqno = self.seqno - 1;
            let pipeline = self.current.as_mut().and_then(|current| current.pipeline.as_mut());
            let Some(pipeline) = pipeline else { break };
            match pipeline.acknowledged(seqno).await {
                Ok(()) => break,
                Err(failure) => {
                    self.send_again(Some(failure), self.packet.offset, false).await?;
                }
            }
        }
        if !self.is_persisted {
            let (path, client) = (self.path.path(), self.held.client_name());
            let synced = self.shared.name_node.fsync(path, client).await;
            synced.map_err(|error| self.fail(error))?;
            self.is_persisted = true;
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<(), FsError> {
        self.check()?;
        if self.kept.len() > 0 {
            self.send(true).await?;
            self.finish_block().await?;
        }
        let deadline = Instant::now() + self.shared.settings.close_timeout;
        let mut pause = PAUSE;
        loop {
            let (path, client) = (self.path.path(), self.held.client_name());
            let completed =
                self.shared.name_node.complete(path, client, self.finished, self.last).await;
            match completed {
                Ok(true) => {
                    self.state = State::Over;
                    return Ok(());
                }
                Ok(false) => {}
                // It may be asked twice.
                Err(error) if error.kind == ErrorKind::Unknown => {
                    tracing::warn!(%error, "the end of the file is asked for again");
                }
                Err(error) => return Err(self.fail(error)),
            }
            if Instant::now() + pause > deadline {
                let due = self.shared.settings.close_timeout;
                let message = format!(
                    "the name node has not been told of the last block within {} ms",
                    due.as_millis()
                );
                let error = FsError::new(ErrorKind::TooSlow, "complete", &self.path, message);
                return Err(self.fail(error));
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Nothing can be written any more. A file that is somebody else's by now must not be deleted.
    fn fail(&mut self, error: FsError) -> FsError {
        let is_ours = error.kind != ErrorKind::Lease;
        self.state = if is_ours { State::Failed } else { State::Over };
        self.current = None;
        FsError { path: self.path.to_string(), ..error }
    }

    fn check(&mut self) -> Result<(), FsError> {
        if self.state != State::Open {
            let message = "an earlier write failed";
            return Err(FsError::new(ErrorKind::Io, "write", &self.path, message));
        }
        if self.held.is_lost() {
            let message = "the lease could not be renewed";
            let error = FsError::new(ErrorKind::Lease, "renewLease", &self.path, message);
            return Err(self.fail(error));
        }
        Ok(())
    }
}

async fn delete(shared: &Shared, path: &FsPath) -> Result<(), FsError> {
    match timeout(DELETE_TIMEOUT, shared.name_node.delete(path.path(), false)).await {
        Ok(deleted) => deleted.map(drop),
        Err(_) => {
            let message = format!("no reply within {} ms", DELETE_TIMEOUT.as_millis());
            Err(FsError::new(ErrorKind::TooSlow, "delete", path, message))
        }
    }
}

impl FileWriter for HdfsWriter {
    fn position(&self) -> u64 {
        self.finished + self.kept.len()
    }

    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Answer<'a, ()> {
        Box::pin(self.write_all(bytes))
    }

    fn flush(&mut self) -> Answer<'_, ()> {
        Box::pin(self.make_visible())
    }

    fn close(mut self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move { self.end().await })
    }

    fn abort(mut self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move {
            self.current = None;
            let state = std::mem::replace(&mut self.state, State::Over);
            match state {
                State::Over => Ok(()),
                State::Open | State::Failed => delete(&self.shared, &self.path).await,
            }
        })
    }
}

impl Drop for HdfsWriter {
    fn drop(&mut self) {
        if self.state == State::Over {
            return;
        }
        self.current = None;
        // Without a runtime the file is left to the end of its lease.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (shared, path) = (self.shared.clone(), self.path.clone());
        runtime.spawn(async move {
            if let Err(error) = delete(&shared, &path).await {
                tracing::warn!(%error, "a file that was given up is left to the end of its lease");
            }
        });
    }
}

/// A packet that is being filled. Room for the header and the checksums is kept before its data.
#[derive(Debug, Default)]
struct PacketBuilder {
    /// Where in the block it begins.
    offset: u64,
    /// Bytes of data that it can take in all.
    capacity: usize,
    covered: usize,
    /// Bytes that are kept for the header and the checksums.
    head: usize,
    bytes: Vec<u8>,
}

impl PacketBuilder {
    fn new(offset: u64, chunks: usize, sums: Sums) -> PacketBuilder {
        // A chunk that was begun is continued first.
        let begun = (offset % sums.covered as u64) as usize;
        let head = HEADER_BYTES + chunks * SUM_BYTES;
        let capacity = chunks * sums.covered - begun;
        PacketBuilder { offset, capacity, covered: sums.covered, head, bytes: Vec::new() }
    }

    fn data(&self) -> &[u8] {
        self.bytes.get(self.head..).unwrap_or_default()
    }

    fn room(&self) -> usize {
        self.capacity - self.data().len()
    }

    /// Where in the block it ends.
    fn end(&self) -> u64 {
        self.offset + self.data().len() as u64
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.bytes.is_empty() {
            self.bytes.reserve_exact(self.head + bytes.len().max(self.capacity.min(64 << 10)));
            self.bytes.resize(self.head, 0);
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The packet with its header and its checksums.
    fn finish(mut self, seqno: i64, is_last: bool) -> Packet {
        self.bytes.resize(self.bytes.len().max(self.head), 0);
        let (head, data) = self.bytes.split_at_mut(self.head);
        let begun = (self.offset % self.covered as u64) as usize;
        let (first, rest) = data.split_at(data.len().min(self.covered - begun));
        let chunks = std::iter::once(first).filter(|first| !first.is_empty());
        let chunks = chunks.chain(rest.chunks(self.covered));
        let count = chunks.clone().count();
        let start = head.len() - count * SUM_BYTES - HEADER_BYTES;
        let header = PacketHeader {
            payload: count * SUM_BYTES + data.len(),
            layout: Layout::SumsFirst,
            offset: i64::try_from(self.offset).unwrap_or(i64::MAX),
            seqno,
            flags: u8::from(is_last),
            data: data.len(),
        };
        let (_, tail) = head.split_at_mut(start);
        let (place, sums) = tail.split_at_mut(HEADER_BYTES);
        place.copy_from_slice(&header.bytes());
        for (sum, chunk) in sums.chunks_mut(SUM_BYTES).zip(chunks) {
            sum.copy_from_slice(&crc32fast::hash(chunk).to_be_bytes());
        }
        if is_last {
            // The end of the block follows at once, or its acknowledgement never comes.
            self.bytes.extend([0; 4]);
        }
        Packet { seqno, is_last, start, bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::super::transfer::{Next, verify};
    use super::*;
    use corona_hadoop::io::Reader;

    #[test]
    fn packets_are_those_of_the_original() {
        let sums = Sums { kind: SumKind::Crc32, covered: 512 };
        let mut packet = PacketBuilder::new(0, 127, sums);
        assert_eq!(packet.room(), 65_024);
        packet.add(b"Hello HDFS of ");
        packet.add(b"hadoop-20\n");
        let packet = packet.finish(0, true);
        let mut golden = b"\0\0\0\x20\0\0\0\x01".to_vec();
        golden.extend([0; 16]);
        golden.extend(b"\x01\0\0\0\x18\x63\xb0\xfe\x1cHello HDFS of hadoop-20\n\0\0\0\0");
        assert_eq!(packet.bytes[packet.start..], golden);
    }

    #[test]
    fn packets_of_all_lengths_and_places_are_right() {
        let sums = Sums { kind: SumKind::Crc32, covered: 512 };
        for offset in [0, 1, 48, 464, 511, 512, 2000] {
            for length in [0, 1, 48, 100, 511, 512, 513, 1500] {
                let mut packet = PacketBuilder::new(offset, 127, sums);
                let data: Vec<u8> = (0..length).map(|n| n as u8).collect();
                packet.add(&data);
                let packet = packet.finish(9, false);
                let bytes = &packet.bytes[packet.start..];
                let mut reader = Reader::new(bytes);
                let next = PacketHeader::decode(&mut reader, VERSION, sums, 1 << 20).unwrap();
                let Next::Packet(header) = next else { panic!("is no end") };
                assert_eq!((header.offset, header.seqno, header.flags), (offset as i64, 9, 0));
                let mut payload = reader.rest().to_vec();
                let place = verify(&header, sums, &mut payload).unwrap();
                assert_eq!(&payload[place], data, "{length} at {offset}");
            }
        }
    }
}
