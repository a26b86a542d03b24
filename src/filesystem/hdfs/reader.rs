//! A file that is read: block after block, from the nearest replica that can be read.
//! Spec: hdfs/01 §1.3.3, §1.5.

use std::sync::Arc;

use tokio::time::sleep;

use super::block_reader::{BlockReader, Part};
use super::transfer::{OLDEST_VERSION, VERSION};
use super::{HdfsContext, random_below};
use crate::{Answer, ErrorKind, FileReader, FsError, FsPath};
use corona_hadoop::writables::{Block, DatanodeInfo, LocatedBlock, LocatedBlocksWithMetaInfo};

/// Blocks that the name node is asked for at a time, as the original does.
const PREFETCHED_BLOCKS: u64 = 10;
/// Bytes that are read and thrown away rather than asked for in a new request.
const MAX_SKIPPED_BYTES: u64 = 256 << 10;
/// Data nodes that could not be read from and are avoided. More are forgotten.
const MAX_DEAD: usize = 256;

/// A file that is read.
pub(super) struct HdfsReader {
    shared: Arc<HdfsContext>,
    path: FsPath,
    namespace: i32,
    version: i16,
    /// Bytes that can be read.
    length: u64,
    /// Blocks that are known, in their order, with whole lengths.
    blocks: Vec<LocatedBlock>,
    position: u64,
    /// Nothing from here on is wanted.
    end: u64,
    stream: Option<(BlockReader, u64)>,
    /// Data nodes that failed, for this file.
    dead: Vec<DatanodeInfo>,
    /// How often all replicas of the block at hand failed.
    rounds: u32,
    /// The last failure, and whether all of them since the last byte were wrong checksums.
    last_failure: Option<FsError>,
    only_bad_sums: bool,
}

impl HdfsReader {
    /// Opens a file. The status has its length, unless it is being written.
    pub(super) async fn open(
        shared: Arc<HdfsContext>,
        path: FsPath,
        block_bytes: u64,
    ) -> Result<HdfsReader, FsError> {
        let mut reader = HdfsReader {
            shared,
            path,
            namespace: 0,
            version: VERSION,
            length: 0,
            blocks: Vec::new(),
            position: 0,
            end: u64::MAX,
            stream: None,
            dead: Vec::new(),
            rounds: 0,
            last_failure: None,
            only_bad_sums: true,
        };
        let wanted = block_bytes.max(1).saturating_mul(PREFETCHED_BLOCKS);
        let found = reader.fetch(0, wanted).await?;
        let mut found = found.ok_or_else(|| reader.vanished())?;
        reader.namespace = found.namespace;
        let spoken = i16::try_from(found.data_version).unwrap_or(i16::MAX).min(VERSION);
        if spoken < OLDEST_VERSION {
            let message =
                format!("data transfer of version {} is not supported", found.data_version);
            return Err(reader.error(ErrorKind::Unsupported, "open", message));
        }
        reader.version = spoken;
        reader.length = u64::try_from(found.located.file_bytes).unwrap_or(0);
        if found.located.under_construction {
            // The block that is written lies at the end of what counts as the file, or behind it.
            let end = found.located.file_bytes;
            let blocks = &mut found.located.blocks;
            let is_there = |block: &LocatedBlock| {
                let bytes = block.block.bytes.max(0);
                block.offset.saturating_add(bytes) >= end && bytes.unsigned_abs() < block_bytes
            };
            if !blocks.last().is_some_and(is_there) && reader.length > 0 {
                let last = reader.fetch(reader.length - 1, block_bytes.max(2)).await?;
                let last = last.map(|found| found.located.blocks).unwrap_or_default();
                let known = blocks.last().map_or(i64::MIN, |block| block.offset);
                blocks.extend(last.into_iter().filter(|block| block.offset > known));
            }
            reader.see_unfinished(&mut found).await;
        }
        reader.blocks = found.located.blocks;
        Ok(reader)
    }

    /// Asks a data node how much of the block that is being written can be read.
    async fn see_unfinished(&mut self, found: &mut LocatedBlocksWithMetaInfo) {
        // Since the first flush the name node knows a length, which does not grow with the block.
        let Some(last) = found.located.blocks.last_mut() else { return };
        for node in &last.locations {
            match self.shared.visible_block(node, self.namespace, last.block).await {
                Ok(Some(block)) => {
                    last.block.bytes = block.bytes.max(last.block.bytes);
                    let visible = last.offset.saturating_add(last.block.bytes.max(0));
                    self.length = self.length.max(u64::try_from(visible).unwrap_or(0));
                    return;
                }
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "a block that is written is not seen"),
            }
        }
    }

    async fn fetch(
        &self,
        offset: u64,
        length: u64,
    ) -> Result<Option<LocatedBlocksWithMetaInfo>, FsError> {
        self.shared.name_node.blocks(self.path.path(), offset, length).await
    }

    fn error(&self, kind: ErrorKind, call: &'static str, message: impl Into<String>) -> FsError {
        FsError::new(kind, call, &self.path, message).at(self.shared.name_node.address())
    }

    fn vanished(&self) -> FsError {
        self.error(ErrorKind::NotFound, "open", "File does not exist")
    }

    /// The block at the position, asked for if it is not known.
    async fn block(&mut self) -> Result<LocatedBlock, FsError> {
        let position = i64::try_from(self.position).unwrap_or(i64::MAX);
        let holds = |block: &&LocatedBlock| {
            (0..block.block.bytes).contains(&position.saturating_sub(block.offset))
        };
        if let Some(block) = self.blocks.iter().find(holds) {
            return Ok(block.clone());
        }
        let block_bytes = self.blocks.first().map_or(1, |block| block.block.bytes.unsigned_abs());
        let wanted = block_bytes.max(1).saturating_mul(PREFETCHED_BLOCKS);
        let found = self.fetch(self.position, wanted).await?.ok_or_else(|| self.vanished())?;
        self.namespace = found.namespace;
        self.blocks = found.located.blocks;
        self.blocks.iter().find(holds).cloned().ok_or_else(|| {
            let message = format!("the name node names no block at {position}");
            self.error(ErrorKind::Malformed, "openAndFetchMetaInfo", message)
        })
    }

    /// A connection to a replica of the block at the position.
    async fn connect(&mut self) -> Result<(), FsError> {
        if self.position >= self.end {
            self.end = u64::MAX;
        }
        loop {
            let block = self.block().await?;
            let is_avoided = |node: &DatanodeInfo| {
                self.dead.iter().any(|dead| dead.name == node.name && dead.storage == node.storage)
            };
            let node = block.locations.iter().find(|node| !is_avoided(node)).cloned();
            let Some(node) = node else {
                self.all_failed(&block).await?;
                continue;
            };
            let begin = u64::try_from(block.offset).unwrap_or(0);
            let block_end = begin + block.block.bytes.unsigned_abs();
            let end = block_end.min(self.end.max(self.position + 1)).min(self.length);
            let part = Part {
                namespace: self.namespace,
                version: self.version,
                block: block.block,
                range: self.position - begin..end - begin,
            };
            match BlockReader::open(&self.shared, &node, &part).await {
                Ok(stream) => {
                    let counters = &self.shared.counters;
                    let reads = match stream.is_local() {
                        true => &counters.local_reads,
                        false => &counters.remote_reads,
                    };
                    reads.add(1);
                    self.stream = Some((stream, begin));
                    return Ok(());
                }
                Err(error) => self.failed(error, node, block.block).await,
            }
        }
    }

    /// Takes note of a replica that could not be read.
    async fn failed(&mut self, error: FsError, node: DatanodeInfo, block: Block) {
        let error = FsError { path: self.path.to_string(), ..error };
        tracing::warn!(%error, block = block.id, "another replica is tried");
        self.shared.counters.failed_reads.add(1);
        if error.kind == ErrorKind::Checksum {
            self.shared.counters.corrupt_replicas.add(1);
            // A report that fails changes nothing for the reader.
            let report = self.shared.name_node.report_bad_block(self.path.path(), block, &node);
            if let Err(error) = report.await {
                tracing::warn!(%error, "a bad replica is not reported");
            }
        } else {
            self.only_bad_sums = false;
        }
        self.last_failure = Some(error);
        if self.dead.len() >= MAX_DEAD {
            self.dead.clear();
        }
        self.dead.push(node);
    }

    /// No replica is left: asks the name node again after a while, or gives up.
    /// Spec: hdfs/01 §1.5.6.
    async fn all_failed(&mut self, block: &LocatedBlock) -> Result<(), FsError> {
        let settings = &self.shared.settings;
        if self.rounds >= settings.max_acquire_failures {
            let why = match &self.last_failure {
                Some(failure) => failure.message.clone(),
                None => "no data node has reported it".to_owned(),
            };
            let is_checksum = self.only_bad_sums && self.last_failure.is_some();
            let (kind, what) = match is_checksum {
                true => (ErrorKind::Checksum, "every replica is corrupt"),
                false => (ErrorKind::BlockMissing, "Could not obtain block"),
            };
            let raid = match self.shared.is_raid {
                true => {
                    "; it may be possible to rebuild it from RAID parity, which is not supported"
                }
                false => "",
            };
            let message = format!("{what} blk_{}: {why}{raid}", block.block.id);
            return Err(self.error(kind, "read", message));
        }
        let window = settings.acquire_window;
        let pause = window * self.rounds + random_below(window * (self.rounds + 1));
        tracing::warn!(path = %self.path, block = block.block.id, ?pause, "no replica can be read");
        sleep(pause).await;
        self.rounds += 1;
        self.dead.clear();
        let known = block.block.id;
        self.blocks.clear();
        let again = self.block().await?;
        if again.block.id != known && self.position != 0 {
            let message = "the file was replaced while it was read";
            return Err(self.error(ErrorKind::NotFound, "read", message));
        }
        Ok(())
    }

    async fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, FsError> {
        loop {
            if self.position >= self.length || buffer.is_empty() {
                if let Some((stream, _)) = self.stream.take_if(|(stream, _)| stream.is_read()) {
                    stream.finish().await;
                }
                return Ok(0);
            }
            if self.stream.is_none() {
                self.connect().await?;
            }
            let Some((mut stream, begin)) = self.stream.take() else { continue };
            let ahead = self.position.saturating_sub(begin + stream.position());
            let read = async {
                stream.skip(ahead).await?;
                stream.read(buffer).await
            };
            match read.await {
                Ok(0) => stream.finish().await,
                Ok(read) => {
                    let counters = &self.shared.counters;
                    let bytes = match stream.is_local() {
                        true => &counters.local_read_bytes,
                        false => &counters.remote_read_bytes,
                    };
                    bytes.add(read as u64);
                    self.position += read as u64;
                    self.stream = Some((stream, begin));
                    (self.rounds, self.only_bad_sums) = (0, true);
                    self.last_failure = None;
                    return Ok(read);
                }
                Err(error) => {
                    let (node, block) = (stream.node().clone(), stream.block());
                    drop(stream);
                    self.failed(error, node, block).await;
                }
            }
        }
    }
}

impl FileReader for HdfsReader {
    fn length(&self) -> u64 {
        self.length
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn seek(&mut self, position: u64) {
        if let Some((stream, begin)) = &self.stream {
            let at = begin + stream.position();
            if position < at || position - at > MAX_SKIPPED_BYTES {
                self.stream = None;
            }
        }
        self.position = position;
        self.end = u64::MAX;
    }

    fn read_until(&mut self, end: u64) {
        self.end = end;
    }

    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Answer<'a, usize> {
        Box::pin(self.read_some(buffer))
    }
}
