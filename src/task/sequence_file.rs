//! Writes sequence files, Hadoop's files of keys and values, in compressed blocks. Pure: it knows only
//! [`Write`].
//!
//! The form is that of the original's version 6, with `DefaultCodec`.

use std::io::{self, Write};

use crate::codec::{Codec, Compressed};
use crate::vint;

const VERSION: &[u8; 4] = b"SEQ\x06";
const CODEC: &str = "org.apache.hadoop.io.compress.DefaultCodec";
/// Bytes of keys and values that are compressed at a time, as the original has it.
const BLOCK_BYTES: usize = 1_000_000;
/// A mark stands before each block; this number, which is no length, before each mark.
const ESCAPE: [u8; 4] = [0xff; 4];
const MARK_BYTES: usize = 16;

/// A sequence file that is written. It must be finished.
#[derive(Debug)]
pub(crate) struct SequenceFile<W> {
    out: W,
    mark: [u8; MARK_BYTES],
    records: i64,
    key_lengths: Vec<u8>,
    keys: Vec<u8>,
    value_lengths: Vec<u8>,
    values: Vec<u8>,
}

impl<W: Write> SequenceFile<W> {
    /// A file of keys and values of these classes. The mark should be a random one.
    pub(crate) fn new(
        mut out: W,
        key_class: &str,
        value_class: &str,
        mark: [u8; MARK_BYTES],
    ) -> io::Result<SequenceFile<W>> {
        let mut header = VERSION.to_vec();
        vint::put_text(key_class.as_bytes(), &mut header);
        vint::put_text(value_class.as_bytes(), &mut header);
        // Compressed, and in blocks.
        header.extend([1, 1]);
        vint::put_text(CODEC.as_bytes(), &mut header);
        // No metadata.
        header.extend([0; 4]);
        header.extend(mark);
        out.write_all(&header)?;
        let nothing = Vec::new;
        Ok(SequenceFile {
            out,
            mark,
            records: 0,
            key_lengths: nothing(),
            keys: nothing(),
            value_lengths: nothing(),
            values: nothing(),
        })
    }

    /// Adds a record: key and value as their classes write them.
    pub(crate) fn append(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        vint::put(key.len() as i64, &mut self.key_lengths);
        self.keys.extend_from_slice(key);
        vint::put(value.len() as i64, &mut self.value_lengths);
        self.values.extend_from_slice(value);
        self.records += 1;
        match self.keys.len() + self.values.len() >= BLOCK_BYTES {
            true => self.write_block(),
            false => Ok(()),
        }
    }

    fn write_block(&mut self) -> io::Result<()> {
        if self.records == 0 {
            return Ok(());
        }
        let mut head = [&ESCAPE[..], &self.mark].concat();
        vint::put(std::mem::take(&mut self.records), &mut head);
        self.out.write_all(&head)?;
        for part in
            [&mut self.key_lengths, &mut self.keys, &mut self.value_lengths, &mut self.values]
        {
            let mut compressed = Compressed::new(Some(Codec::Deflate), Vec::new());
            compressed.write_all(part)?;
            let compressed = compressed.finish()?;
            let mut length = Vec::new();
            vint::put(compressed.len() as i64, &mut length);
            self.out.write_all(&length)?;
            self.out.write_all(&compressed)?;
            part.clear();
        }
        Ok(())
    }

    /// Writes what is left, and returns the stream below.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.write_block()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use corona_hadoop::io::Reader;
    use std::io::Read;

    const LONG: &str = "org.apache.hadoop.io.LongWritable";
    const TEXT: &str = "org.apache.hadoop.io.Text";
    const MARK: [u8; MARK_BYTES] = [7; MARK_BYTES];

    fn written(records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let mut file = SequenceFile::new(Vec::new(), LONG, TEXT, MARK).unwrap();
        for (key, value) in records {
            file.append(key, value).unwrap();
        }
        file.finish().unwrap()
    }

    /// Reads the blocks as the original does.
    fn blocks(file: &[u8]) -> Vec<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut reader = Reader::new(file);
        assert_eq!(reader.take(4).unwrap(), VERSION);
        let classes = [reader.text().unwrap(), reader.text().unwrap()];
        assert_eq!(classes, [LONG, TEXT]);
        assert!(reader.bool().unwrap() && reader.bool().unwrap());
        assert_eq!((reader.text().unwrap().as_str(), reader.i32().unwrap()), (CODEC, 0));
        assert_eq!(reader.take(MARK_BYTES).unwrap(), MARK);
        let mut blocks = Vec::new();
        while !reader.rest().is_empty() {
            assert_eq!(reader.take(4).unwrap(), ESCAPE);
            assert_eq!(reader.take(MARK_BYTES).unwrap(), MARK);
            let records = reader.vint().unwrap();
            let mut part = || {
                let length = reader.vint().unwrap() as usize;
                let mut content = Vec::new();
                let compressed = reader.take(length).unwrap();
                codec::reader(Some(Codec::Deflate), compressed).read_to_end(&mut content).unwrap();
                content
            };
            let (key_lengths, keys, value_lengths, values) = (part(), part(), part(), part());
            let mut parts = [(key_lengths, keys), (value_lengths, values)].map(|(lengths, all)| {
                let (mut lengths, mut all) = (Reader::new(&lengths), Reader::new(&all));
                let one = (0..records).map(|_| {
                    let length = lengths.vint().unwrap() as usize;
                    all.take(length).unwrap().to_vec()
                });
                let parts: Vec<Vec<u8>> = one.collect();
                assert!(lengths.rest().is_empty() && all.rest().is_empty());
                parts.into_iter()
            });
            let pair = || Some((parts[0].next()?, parts[1].next()?));
            blocks.push(std::iter::from_fn(pair).collect());
        }
        blocks
    }

    #[test]
    fn records_are_read_from_their_blocks() {
        let record = |n: u64| (n.to_be_bytes().to_vec(), [vec![4], b"text".to_vec()].concat());
        let few: Vec<_> = (0..3).map(record).collect();
        assert_eq!(blocks(&written(&few)), [few]);
        assert!(blocks(&written(&[])).is_empty());
        let large: Vec<_> = (0..5).map(|n| (vec![n; 8], vec![n; 400_000])).collect();
        let found = blocks(&written(&large));
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(found.concat(), large);
    }
}
