//! Writes a recording: records into blocks, blocks into a file.
//!
//! It has no thread and no clock of its own: the caller decides when a block is due.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::DeflateEncoder;

use super::layout::{block_head, header_bytes, push_entry};
use super::{Entry, Header, MAX_DATA_BYTES, Record};

/// A block is closed when its records have this many bytes.
const BLOCK_BYTES: usize = 1 << 20;

/// Turns entries into blocks. Nothing is written of a block before it is whole, and a block is
/// written with a single call where the system takes it.
#[derive(Debug)]
pub struct RecordingWriter<W> {
    out: W,
    /// The records of the next block.
    open: Vec<u8>,
    /// Bytes of the file up to the end of the last whole block.
    whole_bytes: u64,
}

impl<W: Write> RecordingWriter<W> {
    /// Writes the header.
    pub fn new(mut out: W, header: &Header) -> io::Result<Self> {
        let bytes = header_bytes(header);
        out.write_all(&bytes)?;
        out.flush()?;
        Ok(RecordingWriter { out, open: Vec::new(), whole_bytes: bytes.len() as u64 })
    }

    /// Adds an entry to the open block, which is written when it is large. Data of more than
    /// [`MAX_DATA_BYTES`] becomes several records.
    pub fn write(&mut self, entry: &Entry) -> io::Result<()> {
        match &entry.record {
            Record::Data(side, data) if data.len() > MAX_DATA_BYTES => {
                for piece in data.chunks(MAX_DATA_BYTES) {
                    let record = Record::Data(*side, piece.to_vec());
                    self.push(&Entry { record, ..*entry })?;
                }
                Ok(())
            }
            _ => self.push(entry),
        }
    }

    /// Writes the open block, if there is anything in it.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&self.open)?;
        let packed = encoder.finish()?;
        let mut block = block_head(&packed, self.open.len()).to_vec();
        block.extend_from_slice(&packed);
        self.open.clear();
        self.out.write_all(&block)?;
        self.out.flush()?;
        self.whole_bytes += block.len() as u64;
        Ok(())
    }

    /// Whether records wait for their block to be written.
    pub fn has_open_block(&self) -> bool {
        !self.open.is_empty()
    }

    /// Where the last whole block ends, in bytes from the start of the file.
    pub fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// The output.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    fn push(&mut self, entry: &Entry) -> io::Result<()> {
        push_entry(&mut self.open, entry);
        if self.open.len() >= BLOCK_BYTES { self.flush() } else { Ok(()) }
    }
}
