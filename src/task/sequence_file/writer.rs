//! Writes sequence files of version 6.

use std::io::{self, Write};

use corona_mapreduce::native::{Codec, SequenceCompression};

use super::{ESCAPE, LATEST, MAGIC, MARK_BYTES};
use crate::codec::Compressed;
use crate::vint;

/// After so many bytes without a mark there is one before the next record, as the original has it.
const MARK_INTERVAL: u64 = 100 * (ESCAPE.len() + MARK_BYTES) as u64;

/// A sequence file that is written. It must be finished.
#[derive(Debug)]
pub(crate) struct SequenceFile<W> {
    out: W,
    mark: [u8; MARK_BYTES],
    compression: SequenceCompression,
    /// What has been written, and when a mark was last.
    at: u64,
    marked_at: u64,
    records: i64,
    /// What a block has: lengths of keys, keys, lengths of values, values.
    block: [Vec<u8>; 4],
}

impl<W: Write> SequenceFile<W> {
    /// A file of keys and values of these classes. The mark should be a random one.
    pub(crate) fn new(
        out: W,
        key_class: &str,
        value_class: &str,
        compression: SequenceCompression,
        mark: [u8; MARK_BYTES],
    ) -> io::Result<SequenceFile<W>> {
        let codec = compression.codec();
        let has_blocks = matches!(compression, SequenceCompression::Blocks { .. });
        let mut header = [&MAGIC[..], &[LATEST]].concat();
        vint::put_text(key_class.as_bytes(), &mut header);
        vint::put_text(value_class.as_bytes(), &mut header);
        header.extend([u8::from(codec.is_some()), u8::from(has_blocks)]);
        if let Some(codec) = codec {
            vint::put_text(codec.class().as_bytes(), &mut header);
        }
        // No metadata.
        header.extend([0; 4]);
        header.extend(mark);
        let block = Default::default();
        let mut file =
            SequenceFile { out, mark, compression, at: 0, marked_at: 0, records: 0, block };
        file.put(&header)?;
        Ok(file)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Adds a record: key and value as their classes write them.
    pub(crate) fn append(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        match self.compression {
            SequenceCompression::None => self.write_record(key, value),
            SequenceCompression::Records(codec) => {
                let compressed = compressed(codec, value)?;
                self.write_record(key, &compressed)
            }
            SequenceCompression::Blocks { codec, bytes } => {
                let [key_lengths, keys, value_lengths, values] = &mut self.block;
                vint::put_length(key.len(), key_lengths);
                keys.extend_from_slice(key);
                vint::put_length(value.len(), value_lengths);
                values.extend_from_slice(value);
                self.records += 1;
                match keys.len() + values.len() >= bytes {
                    true => self.write_block(codec),
                    false => Ok(()),
                }
            }
        }
    }

    fn write_record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let length = |bytes: usize| {
            let length = i32::try_from(bytes);
            length.map(i32::to_be_bytes).map_err(|_| io::Error::other("a record of 2 GiB or more"))
        };
        let lengths = [length(key.len() + value.len())?, length(key.len())?].concat();
        if self.at >= self.marked_at + MARK_INTERVAL {
            self.put_mark()?;
        }
        self.put(&lengths)?;
        self.put(key)?;
        self.put(value)
    }

    fn put_mark(&mut self) -> io::Result<()> {
        let mark = [&ESCAPE[..], &self.mark].concat();
        self.put(&mark)?;
        self.marked_at = self.at;
        Ok(())
    }

    fn write_block(&mut self, codec: Codec) -> io::Result<()> {
        if self.records == 0 {
            return Ok(());
        }
        self.put_mark()?;
        let mut count = Vec::new();
        vint::put(std::mem::take(&mut self.records), &mut count);
        self.put(&count)?;
        let mut block = std::mem::take(&mut self.block);
        for part in &mut block {
            let compressed = compressed(codec, part)?;
            let mut length = Vec::new();
            vint::put_length(compressed.len(), &mut length);
            self.put(&length)?;
            self.put(&compressed)?;
            part.clear();
        }
        self.block = block;
        Ok(())
    }

    /// Writes what is left, and returns the stream below.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        if let SequenceCompression::Blocks { codec, .. } = self.compression {
            self.write_block(codec)?;
        }
        Ok(self.out)
    }
}

fn compressed(codec: Codec, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressed = Compressed::new(Some(codec), Vec::new());
    compressed.write_all(bytes)?;
    compressed.finish()
}

/// A mark that no record of the file contains by chance.
pub(crate) fn random_mark() -> [u8; MARK_BYTES] {
    use std::hash::{BuildHasher, RandomState};
    // The system chose the keys of the first state of a thread; each further one has others.
    let number = || RandomState::new().hash_one(std::process::id()).to_be_bytes();
    let mut mark = [0; MARK_BYTES];
    mark[..8].copy_from_slice(&number());
    mark[8..].copy_from_slice(&number());
    mark
}
