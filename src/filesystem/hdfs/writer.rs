//! A file that is written: block after block, each through a pipeline of data nodes.
//!
//! When a data node fails, the block is abandoned and written again, from its first byte, to nodes
//! without that one. A block that was there before, or that readers may have seen, is recovered
//! instead: the other nodes bring their replicas to one length and a new generation, and it is written
//! on from there. Spec: hdfs/01 §1.4, §1.6.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::HdfsContext;
use super::kept::BlockBytes;
use super::lease::Held;
use super::pipeline::{Failure, Packet, Pipeline, Target};
use super::transfer::{
    HEADER_BYTES, Layout, OLDEST_WRITTEN_VERSION, PacketHeader, SUM_BYTES, SumKind, Sums, VERSION,
    WriteKind,
};
use crate::given_up::{Unfinished, in_background};
use crate::{Answer, ErrorKind, FileWriter, FsError, FsPath, Replay};
use corona_hadoop::writables::{Block, DatanodeInfo, LocatedBlock, LocatedBlockWithMetaInfo};
use corona_net::Backoff;

/// The first pause before a block or the end of a file is requested again. Spec: hdfs/01 §1.4.5.
const PAUSE: Duration = Duration::from_millis(400);
/// The longest.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Time to delete or to close a file that was given up.
const GIVE_UP_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before the recovery of a block is retried.
const RECOVERY_PAUSE: Duration = Duration::from_secs(1);
/// What follows the last packet of a block.
const END_MARK: [u8; 4] = [0; 4];
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
    shared: Arc<HdfsContext>,
    path: FsPath,
    held: Held,
    shape: Shape,
    /// Whether this writer has made the file. Another one is not deleted when something fails.
    is_new: bool,
    sums: Sums,
    chunks_per_packet: usize,
    /// Bytes of blocks that are finished.
    finished: u64,
    last: Option<Block>,
    /// Bytes that the block at hand had before.
    base: u64,
    /// The bytes of the block at hand behind those, without those of `packet`.
    kept: BlockBytes,
    current: Option<Current>,
    /// What has not been sent; none while it is.
    packet: Option<PacketBuilder>,
    seqno: i64,
    /// Failures of the block at hand.
    tries: u32,
    excluded: Vec<DatanodeInfo>,
    has_cleared_excluded: bool,
    /// Whether the name node was asked to remember the block at hand, and whether readers may have
    /// seen bytes of it.
    is_persisted: bool,
    is_seen: bool,
    state: WriterState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterState {
    Open,
    /// Something failed for good: the file is to be given up.
    Failed,
    /// Closed, deleted, or not ours any more.
    Over,
}

/// The block at hand; without a pipeline it has not been set up, or has failed.
struct Current {
    namespace: i32,
    version: i16,
    block: Block,
    nodes: Vec<DatanodeInfo>,
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
        shared: Arc<HdfsContext>,
        path: FsPath,
        shape: Shape,
        replay: Replay,
    ) -> Result<HdfsWriter, FsError> {
        let mut writer = HdfsWriter::new(shared, path, shape, replay, true)?;
        Unfinished::during(writer.create_file()).await?;
        writer.state = WriterState::Open;
        Ok(writer)
    }

    /// Opens a file that is complete, to be written at its end.
    pub(super) async fn append(
        shared: Arc<HdfsContext>,
        path: FsPath,
        shape: Shape,
    ) -> Result<HdfsWriter, FsError> {
        let mut writer = HdfsWriter::new(shared, path, shape, Replay::Kept, false)?;
        writer.reopen_file().await?;
        Ok(writer)
    }

    fn new(
        shared: Arc<HdfsContext>,
        path: FsPath,
        shape: Shape,
        replay: Replay,
        is_new: bool,
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
            let call = if is_new { "create" } else { "append" };
            return Err(FsError::new(ErrorKind::Invalid, call, &path, message));
        }
        let held = shared.lease.hold();
        let chunk = covered + SUM_BYTES;
        let packet_bytes = shared.settings.packet_bytes as usize;
        let chunks_per_packet = packet_bytes.saturating_sub(HEADER_BYTES).div_ceil(chunk).max(1);
        let kept = BlockBytes::new(replay, &shared.settings.buffer_dir);
        let sums = Sums { kind: SumKind::Crc32, covered };
        Ok(HdfsWriter {
            shared,
            path,
            held,
            shape,
            is_new,
            sums,
            chunks_per_packet,
            finished: 0,
            last: None,
            base: 0,
            kept,
            current: None,
            packet: Some(PacketBuilder::new(0, chunks_per_packet, sums, Vec::new())),
            seqno: 0,
            tries: 0,
            excluded: Vec::new(),
            has_cleared_excluded: false,
            is_persisted: false,
            is_seen: false,
            // So far there is nothing to give up.
            state: WriterState::Over,
        })
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
                // It is unknown whether the file was created.
                Err(error) if error.kind == ErrorKind::Unknown && !is_unsure => is_unsure = true,
                // It was: it is ours, and empty.
                Err(error) if error.kind == ErrorKind::BeingWritten && is_unsure => {
                    self.shared.name_node.delete(self.path.path(), false).await?;
                    is_unsure = false;
                }
                Err(error) if error.kind == ErrorKind::BeingWritten && retries > 0 => {
                    tracing::warn!(%error, retries, "somebody else writes the file");
                    sleep(settings.create_pause).await;
                    retries -= 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the file at its end, waiting as long as somebody else writes it.
    async fn reopen_file(&mut self) -> Result<(), FsError> {
        let name_node = self.shared.name_node.clone();
        let settings = self.shared.settings.clone();
        let path = self.path.path().to_owned();
        let client = self.held.client_name().to_owned();
        let (mut retries, mut is_unsure) = (settings.create_retries, false);
        let found = loop {
            match name_node.append(&path, &client).await {
                Ok(found) => break found,
                // It is unknown whether the file was opened: if it was, it is closed again some time later.
                Err(error) if error.kind == ErrorKind::Unknown && !is_unsure => {
                    is_unsure = true;
                    if let Err(error) = name_node.abandon_file(&path, &client).await {
                        tracing::debug!(%error, "the file was not opened");
                    }
                }
                Err(error) if error.kind == ErrorKind::BeingWritten && retries > 0 => {
                    tracing::warn!(%error, retries, "somebody else writes the file");
                    sleep(settings.create_pause).await;
                    retries -= 1;
                }
                Err(error) => return Err(error),
            }
        };
        self.state = WriterState::Open;
        let Some(found) = found else {
            // From here on only this writer changes its length.
            let status = name_node.status(&path).await?;
            self.finished = status.map_or(0, |status| u64::try_from(status.length).unwrap_or(0));
            if let Some(end) = self.finished.checked_sub(1) {
                let blocks = name_node.blocks(&path, end, 1).await?;
                let last = blocks.and_then(|blocks| blocks.located.blocks.last().cloned());
                self.last = last.map(|last| last.block);
            }
            return Ok(());
        };
        let (old_generation, found) = (found.old_generation, found.located);
        let LocatedBlock { offset, block, locations, .. } = found.located.clone();
        let wrong = || {
            let message = format!("the last block has {} bytes, from {offset} on", block.bytes);
            FsError::new(ErrorKind::Malformed, "append", &path, message).at(name_node.address())
        };
        self.finished = u64::try_from(offset).map_err(|_| wrong())?;
        self.base = u64::try_from(block.bytes).map_err(|_| wrong())?;
        if self.base > self.shape.block_bytes {
            return Err(wrong());
        }
        self.packet = Some(self.new_packet(self.base));
        let old = Block { generation: old_generation, ..block };
        // Until the name node knows the new generation, the block has the old one.
        self.set_current(found.namespace, found.data_version, old, locations)?;
        match self.open_pipeline(block, WriteKind::Append).await {
            Ok(pipeline) => {
                let Some(current) = &mut self.current else { return Ok(()) };
                let updated = name_node.update_pipeline(&client, old, block, &current.nodes).await;
                (current.block, current.pipeline) = (block, Some(pipeline));
                updated.map_err(|error| self.fail(error))
            }
            Err(failure) => self.send_again(Some(failure), self.base, false).await,
        }
    }

    fn set_current(
        &mut self,
        namespace: i32,
        data_version: i32,
        block: Block,
        nodes: Vec<DatanodeInfo>,
    ) -> Result<(), FsError> {
        let version = i16::try_from(data_version).unwrap_or(i16::MAX).min(VERSION);
        self.current = Some(Current { namespace, version, block, nodes, pipeline: None });
        if version < OLDEST_WRITTEN_VERSION {
            let message = format!("data transfer of version {data_version} is not supported");
            return Err(FsError::new(ErrorKind::Unsupported, "write", &self.path, message));
        }
        Ok(())
    }

    async fn open_pipeline(&self, block: Block, kind: WriteKind) -> Result<Pipeline, Failure> {
        let Some(current) = &self.current else { return Err(Failure::of("there is no block")) };
        let target = Target {
            namespace: current.namespace,
            version: current.version,
            block,
            kind,
            nodes: current.nodes.clone(),
            sums: self.sums,
        };
        Pipeline::open(&self.shared, target).await
    }

    fn new_packet(&mut self, offset: u64) -> PacketBuilder {
        let buffer = self.kept.buffer();
        PacketBuilder::new(offset, self.chunks_per_packet, self.sums, buffer)
    }

    /// Bytes of the block at hand.
    fn in_block(&self) -> u64 {
        self.packet.as_ref().map_or(0, PacketBuilder::end)
    }

    async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), FsError> {
        self.check()?;
        while let Some(packet) = self.packet.as_mut().filter(|_| !bytes.is_empty()) {
            let left = self.shape.block_bytes - packet.end();
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            let (piece, rest) = bytes.split_at(packet.room().min(left).min(bytes.len()));
            packet.add(piece);
            bytes = rest;
            let is_full = packet.end() == self.shape.block_bytes;
            if is_full || packet.room() == 0 {
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
        let Some(packet) = self.packet.take() else { return Ok(()) };
        let upto = packet.end();
        let (data, end) = (packet.head, packet.head + packet.data().len());
        let packet = packet.finish(self.seqno, is_last);
        self.seqno += 1;
        let pipeline = self.current.as_mut().and_then(|current| current.pipeline.as_mut());
        let sent = match pipeline {
            Some(pipeline) => {
                pipeline.send(packet).await.map_err(|(why, bytes)| (Some(why), bytes))
            }
            None => Err((None, packet.bytes)),
        };
        let (failure, mut bytes) = match sent {
            Ok(bytes) => (None, bytes),
            Err((failure, bytes)) => (Some(failure), bytes),
        };
        bytes.truncate(end);
        if let Err(error) = self.kept.add(bytes, data).await {
            // Without these bytes the block could not be written again.
            return Err(self.fail(error));
        }
        self.packet = Some(self.new_packet(upto));
        match failure {
            None => Ok(()),
            Some(failure) => self.send_again(failure, upto, is_last).await,
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
            let started = match failure.take() {
                None => self.start_block().await,
                Some(failure) => {
                    self.count_failure(&failure)?;
                    match self.base > 0 || self.is_seen {
                        true => self.recover_block(failure, upto).await,
                        false => {
                            self.abandon_block().await?;
                            self.start_block().await
                        }
                    }
                }
            };
            let sent = match started {
                Ok(from) => self.resend(from, upto, is_last).await,
                Err(trouble) => Err(trouble),
            };
            match sent {
                Ok(()) => return Ok(()),
                Err(Trouble::Nodes(again)) => failure = Some(again),
                Err(Trouble::Final(error)) => return Err(self.fail(error)),
            }
        }
    }

    /// Takes note of a failure, and excludes the node for further blocks. Errors: it was one too many.
    fn count_failure(&mut self, failure: &Failure) -> Result<(), FsError> {
        let error = &failure.error;
        self.tries += 1;
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
            let message = format!(
                "a block could not be written {} times; last: {}",
                self.tries, error.message
            );
            let (kind, call, server) = (error.kind, error.call, error.server.clone());
            let path = self.path.to_string();
            return Err(self.fail(FsError { kind, call, path, server, message }));
        }
        tracing::warn!(path = %self.path, %error, tries = self.tries, "a block is written again");
        if let Some(bad) = &failure.bad
            && self.excluded.len() < MAX_EXCLUDED
            && !self.excluded.iter().any(|node| node.name == bad.name)
        {
            self.excluded.push(bad.as_ref().clone());
        }
        Ok(())
    }

    /// Abandons the block, which is written again to other nodes. Spec: hdfs/01 §1.6.6.
    async fn abandon_block(&mut self) -> Result<(), FsError> {
        self.shared.counters.rebuilt_blocks.add(1);
        let Some(current) = self.current.take() else { return Ok(()) };
        let name_node = self.shared.name_node.clone();
        let (path, client) = (self.path.path(), self.held.client_name());
        match name_node.abandon_block(current.block, path, client).await {
            Err(error) if error.kind == ErrorKind::Lease => Err(self.fail(error)),
            // A reply may have been lost: then the block is not there any more.
            Err(error) => {
                tracing::warn!(%error, "the block may not be abandoned");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Has the nodes that are left bring their replicas to one length and a new generation, and sets
    /// a pipeline of them up. Gives that length. Without a node, a block of which this writer has all
    /// bytes is written to others.
    async fn recover_block(&mut self, failure: Failure, upto: u64) -> Result<u64, Trouble> {
        let Some(current) = &mut self.current else {
            return Err(FsError { path: self.path.to_string(), ..failure.error }.into());
        };
        current.pipeline = None;
        let is_good =
            |node: &&DatanodeInfo| failure.bad.as_ref().is_none_or(|bad| bad.name != node.name);
        let nodes: Vec<_> = current.nodes.iter().filter(is_good).cloned().collect();
        let (namespace, block) = (current.namespace, current.block);
        if nodes.is_empty() {
            if self.base > 0 {
                let last = &failure.error.message;
                let message = format!("all data nodes of the last block failed; last: {last}");
                let error = FsError::new(failure.error.kind, "append", &self.path, message);
                return Err(FsError { server: failure.error.server, ..error }.into());
            }
            self.abandon_block().await?;
            return self.start_block().await;
        }
        // One node is left out at a time: which one is to blame for silence is but a guess.
        let Failure { error: mut last, mut bad } = failure;
        for primary in &nodes {
            let recovered = match self.shared.recover(primary, namespace, block, &nodes).await {
                Ok(recovered) => recovered,
                // Somebody else has closed the file, or is about to.
                Err(error) if error.kind == ErrorKind::Lease => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(%error, "a data node cannot recover a block");
                    if matches!(error.kind, ErrorKind::Connection | ErrorKind::TooSlow) {
                        bad = Some(Box::new(primary.clone()));
                    }
                    last = error;
                    continue;
                }
            };
            let length = recovered.as_ref().and_then(|found| u64::try_from(found.block.bytes).ok());
            let length = length.filter(|length| (self.base..=upto).contains(length));
            let (Some(recovered), Some(length)) = (recovered, length) else {
                let message = "data nodes have lost bytes of the last block";
                let error =
                    FsError::new(ErrorKind::BlockMissing, "recoverBlock", &self.path, message);
                return Err(error.at(&primary.name).into());
            };
            let has_it = |node: &DatanodeInfo| {
                recovered.locations.iter().any(|other| other.name == node.name)
            };
            if let Some(current) = &mut self.current {
                current.nodes.retain(has_it);
                current.block = recovered.block;
            }
            self.shared.counters.recovered_blocks.add(1);
            self.is_persisted = false;
            let pipeline = self.open_pipeline(recovered.block, WriteKind::Recovered).await?;
            if let Some(current) = &mut self.current {
                current.pipeline = Some(pipeline);
            }
            return Ok(length);
        }
        // The name node refuses to have a block recovered twice at short intervals.
        sleep(RECOVERY_PAUSE).await;
        Err(Failure { error: last, bad }.into())
    }

    /// Asks for a block and sets a pipeline up. Gives 0, the bytes that its nodes have.
    async fn start_block(&mut self) -> Result<u64, Trouble> {
        let found = self.locate_block().await?;
        let nodes = found.located.locations.len();
        // The times that a pipeline may take grow with it.
        if nodes > usize::try_from(self.shape.replication).unwrap_or(1).max(1) {
            let replication = self.shape.replication;
            let message = format!("{nodes} data nodes are named for {replication} replicas");
            let error = FsError::new(ErrorKind::Malformed, "addBlock", &self.path, message);
            return Err(error.at(self.shared.name_node.address()).into());
        }
        let block = Block { bytes: 0, ..found.located.block };
        self.is_persisted = false;
        self.set_current(found.namespace, found.data_version, block, found.located.locations)?;
        let pipeline = self.open_pipeline(block, WriteKind::New).await?;
        if let Some(current) = &mut self.current {
            current.pipeline = Some(pipeline);
        }
        Ok(0)
    }

    /// Sends what the block has between two places, from what is kept.
    async fn resend(&mut self, from: u64, upto: u64, is_last: bool) -> Result<(), Trouble> {
        let mut at = from;
        while at < upto || is_last {
            let mut packet = self.new_packet(at);
            let wanted = usize::try_from(upto - at).unwrap_or(usize::MAX).min(packet.room());
            packet.add(&self.kept.read(at - self.base, wanted).await?);
            if packet.end() == at && at < upto {
                let message = "the file that is copied has become shorter";
                return Err(FsError::new(ErrorKind::Io, "write", &self.path, message).into());
            }
            at = packet.end();
            let packet = packet.finish(self.seqno, is_last && at == upto);
            self.seqno += 1;
            match self.current.as_mut().and_then(|current| current.pipeline.as_mut()) {
                Some(pipeline) => pipeline.send(packet).await.map_err(|(why, _)| why)?,
                None => return Err(Failure::of("there is no pipeline").into()),
            };
            if at >= upto {
                break;
            }
        }
        Ok(())
    }

    /// A new block of the file. Spec: hdfs/01 §1.4.3, §1.3.5.
    async fn locate_block(&mut self) -> Result<LocatedBlockWithMetaInfo, FsError> {
        let mut pauses = Backoff::new(PAUSE, Duration::MAX);
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
                    sleep(pauses.pause()).await;
                    retries -= 1;
                }
                ErrorKind::NoSpace if !self.excluded.is_empty() && !self.has_cleared_excluded => {
                    self.excluded.clear();
                    self.has_cleared_excluded = true;
                }
                // Asked again, the name node gives the same block, but for the first one.
                ErrorKind::Unknown if !is_unsure => is_unsure = true,
                ErrorKind::Remote
                    if is_unsure
                        && self.is_new
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
                Err(failure) => self.send_again(Some(failure), self.in_block(), true).await?,
            }
        }
        self.shared.counters.written_bytes.add(self.kept.len());
        self.last = self.current.take().map(|current| current.block);
        self.finished += self.in_block();
        self.kept.next_block();
        self.base = 0;
        self.packet = Some(self.new_packet(0));
        self.tries = 0;
        self.is_seen = false;
        Ok(())
    }

    async fn make_visible(&mut self) -> Result<(), FsError> {
        self.check()?;
        if self.packet.as_ref().is_some_and(|packet| !packet.data().is_empty()) {
            self.send(false).await?;
        }
        if self.kept.len() == 0 {
            return Ok(());
        }
        self.is_seen = true;
        loop {
            let seqno = self.seqno - 1;
            let pipeline = self.current.as_mut().and_then(|current| current.pipeline.as_mut());
            let Some(pipeline) = pipeline else { break };
            match pipeline.acknowledged(seqno).await {
                Ok(()) => break,
                Err(failure) => {
                    self.send_again(Some(failure), self.in_block(), false).await?;
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
        if self.in_block() > 0 {
            self.send(true).await?;
            self.finish_block().await?;
        }
        let deadline = Instant::now() + self.shared.settings.close_timeout;
        let mut pauses = Backoff::new(PAUSE, MAX_PAUSE);
        loop {
            let (path, client) = (self.path.path(), self.held.client_name());
            let completed =
                self.shared.name_node.complete(path, client, self.finished, self.last).await;
            match completed {
                Ok(true) => {
                    self.state = WriterState::Over;
                    return Ok(());
                }
                Ok(false) => {}
                // It may be asked twice.
                Err(error) if error.kind == ErrorKind::Unknown => {
                    tracing::warn!(%error, "completing the file failed; retrying");
                }
                Err(error) => return Err(self.fail(error)),
            }
            if Instant::now() + pauses.upcoming() > deadline {
                let due = self.shared.settings.close_timeout;
                let message = format!(
                    "the name node has not received a report of the last block within {} ms",
                    due.as_millis()
                );
                let error = FsError::new(ErrorKind::TooSlow, "complete", &self.path, message);
                return Err(self.fail(error));
            }
            sleep(pauses.pause()).await;
        }
    }

    /// Nothing can be written any more. A file that is somebody else's by now must not be deleted.
    fn fail(&mut self, error: FsError) -> FsError {
        let is_ours = !matches!(error.kind, ErrorKind::Lease | ErrorKind::BeingWritten);
        self.state = if is_ours { WriterState::Failed } else { WriterState::Over };
        self.current = None;
        FsError { path: self.path.to_string(), ..error }
    }

    fn check(&mut self) -> Result<(), FsError> {
        // A packet that is neither here nor sent was being sent when its writer was dropped.
        if self.state != WriterState::Open || self.packet.is_none() {
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

/// Deletes a file that was not finished. One that was there before is closed instead, with what data
/// nodes have of it.
async fn give_up(shared: &HdfsContext, path: &FsPath, is_new: bool) -> Result<(), FsError> {
    let call = if is_new { "delete" } else { "abandonFile" };
    let given_up = async {
        match is_new {
            true => shared.name_node.delete(path.path(), false).await.map(drop),
            false => shared.name_node.abandon_file(path.path(), shared.lease.name()).await,
        }
    };
    timeout(GIVE_UP_TIMEOUT, given_up).await.unwrap_or_else(|_| {
        let message = format!("no reply within {} ms", GIVE_UP_TIMEOUT.as_millis());
        Err(FsError::new(ErrorKind::TooSlow, call, path, message))
    })
}

impl FileWriter for HdfsWriter {
    fn position(&self) -> u64 {
        self.finished + self.in_block()
    }

    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Answer<'a, ()> {
        Box::pin(self.write_all(bytes))
    }

    fn flush(&mut self) -> Answer<'_, ()> {
        Box::pin(self.make_visible())
    }

    fn close(mut self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move {
            let Err(error) = self.end().await else { return Ok(()) };
            // Now, and not when it is dropped: the program may end before that is done.
            if let Err(left) = self.abort().await {
                tracing::warn!(error = %left, "a file that was given up is left");
            }
            Err(error)
        })
    }

    fn abort(mut self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move {
            self.current = None;
            if self.state == WriterState::Over {
                return Ok(());
            }
            let given_up = give_up(&self.shared, &self.path, self.is_new).await;
            // Not before: one that is dropped meanwhile is given up again.
            self.state = WriterState::Over;
            given_up
        })
    }
}

impl Drop for HdfsWriter {
    fn drop(&mut self) {
        if self.state == WriterState::Over {
            return;
        }
        self.current = None;
        // Without a runtime the file is left to the end of its lease.
        let (shared, path, is_new) = (self.shared.clone(), self.path.clone(), self.is_new);
        in_background(async move {
            let given_up = give_up(&shared, &path, is_new).await;
            if let Err(error) = &given_up {
                tracing::warn!(%error, "a file that was given up is left to the end of its lease");
            }
            given_up.is_ok()
        });
    }
}

/// A packet that is being filled. Room for the header and the checksums is kept before its data.
#[derive(Debug)]
struct PacketBuilder {
    /// Where in the block it begins.
    offset: u64,
    /// Bytes of data that it can take in all.
    capacity: usize,
    sums: Sums,
    /// Bytes that are kept for the header and the checksums.
    head: usize,
    bytes: Vec<u8>,
}

impl PacketBuilder {
    /// `buffer` is empty; its memory is used.
    fn new(offset: u64, chunks: usize, sums: Sums, buffer: Vec<u8>) -> PacketBuilder {
        // A chunk that was begun is continued first.
        let begun = sums.begun(offset);
        let head = HEADER_BYTES + chunks * SUM_BYTES;
        let capacity = chunks * sums.covered - begun;
        PacketBuilder { offset, capacity, sums, head, bytes: buffer }
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
            // The mark of the end of a block may follow.
            let room = self.head + bytes.len().max(self.capacity.min(64 << 10)) + END_MARK.len();
            self.bytes.reserve_exact(room);
            self.bytes.resize(self.head, 0);
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The packet with its header and its checksums.
    fn finish(mut self, seqno: i64, is_last: bool) -> Packet {
        self.bytes.resize(self.bytes.len().max(self.head), 0);
        let (head, data) = self.bytes.split_at_mut(self.head);
        let begun = self.sums.begun(self.offset);
        let (first, rest) = data.split_at(data.len().min(self.sums.covered - begun));
        let chunks = std::iter::once(first).filter(|first| !first.is_empty());
        let chunks = chunks.chain(rest.chunks(self.sums.covered));
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
            self.bytes.extend(END_MARK);
        }
        Packet { seqno, start, bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::super::transfer::{Next, verify};
    use super::*;
    use corona_hadoop::io::Reader;

    #[test]
    fn packets_of_all_lengths_and_places_are_right() {
        let sums = Sums { kind: SumKind::Crc32, covered: 512 };
        assert_eq!(PacketBuilder::new(0, 127, sums, Vec::new()).room(), 65_024);
        for offset in [0, 1, 48, 464, 511, 512, 2000] {
            for length in [0, 1, 48, 100, 511, 512, 513, 1500] {
                let mut packet = PacketBuilder::new(offset, 127, sums, Vec::new());
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
