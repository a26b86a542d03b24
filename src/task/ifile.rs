//! `IFile`, the format of map outputs between maps and reduces: records with lengths before key and
//! value, an end mark, and a checksum over all bytes, compressed or not.
//!
//! Keys and values are bytes as their classes have written them. Nothing here knows a file or a
//! socket, only [`Read`] and [`Write`]. Spec: mapreduce/02 §2.13, mapreduce/04 §4.9.

use std::io::{self, Read, Write};

use thiserror::Error;

use crate::codec::{self, Codec, Compressed};
use crate::run::RecordStream;
use crate::vint;

/// The lengths of the end mark: -1 and -1.
const END: [u8; 2] = [0xff, 0xff];
/// The bytes of the checksum.
pub const CHECKSUM_BYTES: u64 = 4;
/// Bytes that are written at a time.
const BUFFER_BYTES: usize = 128 << 10;

/// Why a map output cannot be read.
#[derive(Debug, Error)]
pub enum IFileError {
    /// The stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It ends before its end mark, or continues after it.
    #[error("map output is cut off: {0}")]
    Cut(&'static str),
    /// A length is none.
    #[error("map output has a wrong length of a key or value")]
    Length,
    /// A record is larger than a task may hold.
    #[error(
        "map output has a record of {bytes} bytes; the limit is {limit} (corona.task.max.record.bytes)"
    )]
    TooLarge {
        /// The bytes of the record.
        bytes: u64,
        /// The limit.
        limit: usize,
    },
    /// The bytes are not those that were written.
    #[error("map output has checksum {found:08x}, and {expected:08x} was written")]
    Checksum {
        /// The checksum of the bytes.
        found: u32,
        /// The checksum at the end.
        expected: u32,
    },
}

/// How long a map output is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Bytes of records and end mark, uncompressed.
    pub raw: u64,
    /// Bytes in the file, the checksum included.
    pub part: u64,
}

/// Computes the checksum of the bytes that pass.
#[derive(Debug)]
struct Summed<W> {
    inner: W,
    sum: crc32fast::Hasher,
    bytes: u64,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum.update(bytes.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes one map output: the part of one reduce.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: Compressed<Summed<W>>,
    buffer: Vec<u8>,
    raw: u64,
    records: u64,
}

impl<W: Write> Writer<W> {
    /// A map output into this stream.
    pub fn new(inner: W, codec: Option<Codec>) -> Writer<W> {
        let summed = Summed { inner, sum: crc32fast::Hasher::new(), bytes: 0 };
        let buffer = Vec::with_capacity(BUFFER_BYTES + 4096);
        Writer { out: Compressed::new(codec, summed), buffer, raw: 0, records: 0 }
    }

    /// Appends a record.
    #[inline]
    pub fn append(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let before = self.buffer.len();
        vint::put_length(key.len(), &mut self.buffer);
        vint::put_length(value.len(), &mut self.buffer);
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(value);
        self.raw += (self.buffer.len() - before) as u64;
        self.records += 1;
        if self.buffer.len() >= BUFFER_BYTES {
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Writes the end mark and the checksum.
    pub fn finish(mut self) -> io::Result<(W, Lengths)> {
        self.buffer.extend_from_slice(&END);
        self.out.write_all(&self.buffer)?;
        let mut summed = self.out.finish()?;
        summed.inner.write_all(&summed.sum.finalize().to_be_bytes())?;
        let raw = self.raw + END.len() as u64;
        Ok((summed.inner, Lengths { raw, part: summed.bytes + CHECKSUM_BYTES }))
    }
}

/// Hands on the bytes before the checksum, and compares that when they are at their end.
#[derive(Debug)]
pub struct Checked<R> {
    inner: R,
    left: u64,
    sum: crc32fast::Hasher,
    is_checked: bool,
}

impl<R: Read> Checked<R> {
    /// The bytes of a part of this length.
    pub fn new(inner: R, part_bytes: u64) -> Checked<R> {
        let left = part_bytes.saturating_sub(CHECKSUM_BYTES);
        Checked { inner, left, sum: crc32fast::Hasher::new(), is_checked: false }
    }

    /// The checksum of the bytes so far.
    pub fn sum(&self) -> u32 {
        self.sum.clone().finalize()
    }

    fn check(&mut self) -> io::Result<()> {
        let mut written = [0; size_of::<u32>()];
        self.inner.read_exact(&mut written)?;
        let (expected, found) = (u32::from_be_bytes(written), self.sum());
        self.is_checked = true;
        if expected == found {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, IFileError::Checksum { found, expected }))
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            if !self.is_checked {
                self.check()?;
            }
            return Ok(0);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let part = buffer.get_mut(..most).unwrap_or_default();
        let read = self.inner.read(part)?;
        if read == 0 && most > 0 {
            let why = IFileError::Cut("the stream ended before its part did");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        self.sum.update(part.get(..read).unwrap_or_default());
        self.left -= read as u64;
        Ok(read)
    }
}

/// Reads one map output.
pub struct Reader<R> {
    inner: R,
    buffer: Vec<u8>,
    /// The part of the buffer that was read and not taken.
    from: usize,
    to: usize,
    max_record_bytes: usize,
    key: (usize, usize),
    value: (usize, usize),
    is_over: bool,
}

impl<R> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

/// Reads the part of a stream that a map output of this length takes.
pub fn read<'a, R: Read + Send + 'a>(
    inner: R,
    part_bytes: u64,
    codec: Option<Codec>,
    max_record_bytes: usize,
) -> Reader<Box<dyn Read + Send + 'a>> {
    Reader::new(codec::reader(codec, Checked::new(inner, part_bytes)), max_record_bytes)
}

impl<R: Read> Reader<R> {
    /// Reads records from a stream of them that is uncompressed and without a checksum.
    pub fn new(inner: R, max_record_bytes: usize) -> Reader<R> {
        let buffer = vec![0; BUFFER_BYTES];
        let nothing = (0, 0);
        Reader {
            inner,
            buffer,
            from: 0,
            to: 0,
            max_record_bytes,
            key: nothing,
            value: nothing,
            is_over: false,
        }
    }

    /// Has at least so many bytes in the buffer, or all that there are.
    fn fill(&mut self, wanted: usize) -> Result<(), IFileError> {
        if self.to - self.from >= wanted {
            return Ok(());
        }
        self.buffer.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        if wanted > self.buffer.len() {
            self.buffer.resize(wanted, 0);
        }
        while self.to < wanted {
            match self.inner.read(self.buffer.get_mut(self.to..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(read) => self.to += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// After the end mark nothing may follow, and the checksum must be right.
    fn end(&mut self) -> Result<bool, IFileError> {
        self.is_over = true;
        self.fill(1)?;
        match self.to - self.from {
            0 => Ok(false),
            _ => Err(IFileError::Cut("records follow the end mark")),
        }
    }
}

impl<R: Read> RecordStream for Reader<R> {
    #[inline]
    fn advance(&mut self) -> Result<bool, IFileError> {
        if self.is_over {
            return Ok(false);
        }
        self.fill(2 * vint::MOST_BYTES)?;
        let bytes = self.buffer.get(self.from..self.to).unwrap_or_default();
        let (key, value, taken) = match lengths(bytes) {
            None if bytes.len() < 2 * vint::MOST_BYTES => {
                return Err(IFileError::Cut("there is no end mark"));
            }
            None => return Err(IFileError::Length),
            Some(lengths) => lengths,
        };
        if (key, value) == (-1, -1) {
            self.from += taken;
            return self.end();
        }
        let (Ok(key), Ok(value)) = (usize::try_from(key), usize::try_from(value)) else {
            return Err(IFileError::Length);
        };
        let whole = key + value;
        // Key and value are texts, each behind its own length, which the limit does not count.
        if whole > self.max_record_bytes.saturating_add(2 * vint::MOST_BYTES) {
            let limit = self.max_record_bytes;
            return Err(IFileError::TooLarge { bytes: whole as u64, limit });
        }
        self.from += taken;
        self.fill(whole)?;
        if self.to - self.from < whole {
            return Err(IFileError::Cut("a record is not whole"));
        }
        self.key = (self.from, self.from + key);
        self.value = (self.from + key, self.from + whole);
        self.from += whole;
        Ok(true)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.buffer.get(self.key.0..self.key.1).unwrap_or_default()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.buffer.get(self.value.0..self.value.1).unwrap_or_default()
    }
}

/// The lengths of key and value at the start, and the bytes that they take.
#[inline]
fn lengths(bytes: &[u8]) -> Option<(i64, i64, usize)> {
    let (key, first) = vint::length(bytes)?;
    let (value, second) = vint::length(bytes.get(first..)?)?;
    Some((key, value, first + second))
}

/// A map output in memory, uncompressed: records and the end mark.
#[derive(Debug)]
pub struct InMemory {
    bytes: Vec<u8>,
    at: usize,
    key: (usize, usize),
    value: (usize, usize),
}

impl InMemory {
    /// The records in these bytes.
    pub fn new(bytes: Vec<u8>) -> InMemory {
        InMemory { bytes, at: 0, key: (0, 0), value: (0, 0) }
    }

    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl RecordStream for InMemory {
    #[inline]
    fn advance(&mut self) -> Result<bool, IFileError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (key, value, taken) = lengths(rest).ok_or(IFileError::Length)?;
        if (key, value) == (-1, -1) {
            let is_end = rest.len() == taken;
            return if is_end {
                Ok(false)
            } else {
                Err(IFileError::Cut("records follow the end mark"))
            };
        }
        let (Ok(key), Ok(value)) = (usize::try_from(key), usize::try_from(value)) else {
            return Err(IFileError::Length);
        };
        let start = self.at + taken;
        if rest.len() < taken + key + value {
            return Err(IFileError::Cut("a record is not whole"));
        }
        self.key = (start, start + key);
        self.value = (start + key, start + key + value);
        self.at = start + key + value;
        Ok(true)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.bytes.get(self.key.0..self.key.1).unwrap_or_default()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.bytes.get(self.value.0..self.value.1).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn written(records: &Pairs, codec: Option<Codec>) -> (Vec<u8>, Lengths) {
        let mut writer = Writer::new(Vec::new(), codec);
        for (key, value) in records {
            writer.append(key, value).unwrap();
        }
        writer.finish().unwrap()
    }

    fn all<R: RecordStream>(run: &mut R) -> Result<Pairs, IFileError> {
        let mut records = Vec::new();
        while run.advance()? {
            records.push((run.key().to_vec(), run.value().to_vec()));
        }
        Ok(records)
    }

    fn back(bytes: &[u8], codec: Option<Codec>) -> Result<Pairs, IFileError> {
        all(&mut read(bytes, bytes.len() as u64, codec, 1 << 20))
    }

    /// The end of a response in the recorded sleep job: the output of a Java map as a Java reduce fetched
    /// it, with a record of an `IntWritable` and a `NullWritable`.
    #[test]
    fn bytes_are_those_of_the_original() {
        let response = include_bytes!("golden/two-maps.response");
        let recorded = &response[response.len() - 12..];
        let records = back(recorded, None).unwrap();
        assert_eq!(records, [(vec![0; 4], vec![])]);
        let (bytes, lengths) = written(&records, None);
        assert_eq!(bytes, recorded);
        assert_eq!(lengths, Lengths { raw: 8, part: 12 });
    }

    #[test]
    fn an_empty_part_has_six_bytes() {
        let (bytes, lengths) = written(&vec![], None);
        assert_eq!(lengths, Lengths { raw: 2, part: 6 });
        assert_eq!(&bytes[..2], [0xff, 0xff]);
        assert_eq!(back(&bytes, None).unwrap(), vec![]);
    }

    #[test]
    fn damage_is_noticed() {
        let records = vec![(b"key".to_vec(), b"value".to_vec()); 3];
        for codec in [None, Some(Codec::Gzip), Some(Codec::Deflate)] {
            let (bytes, _) = written(&records, codec);
            for at in 0..bytes.len() {
                let mut broken = bytes.clone();
                broken[at] ^= 0x10;
                // The header of gzip has bits that mean nothing, but the checksum covers them.
                assert!(back(&broken, codec).is_err(), "{codec:?} byte {at}");
                assert!(back(&bytes[..at], codec).is_err(), "{codec:?} cut at {at}");
            }
        }
    }

    #[test]
    fn a_record_larger_than_allowed_is_refused_before_it_is_read() {
        let mut bytes = Vec::new();
        vint::put(i64::from(i32::MAX), &mut bytes);
        vint::put(0, &mut bytes);
        bytes.extend([0; 40]);
        let error = back(&bytes, None).unwrap_err().to_string();
        assert!(error.contains("corona.task.max.record.bytes"), "{error}");
    }

    #[test]
    fn the_largest_record_is_that_of_a_map() {
        let limit = 1024;
        for (key, value) in [(limit, 0), (0, limit), (500, 524)] {
            let text = |bytes: usize| {
                let mut text = Vec::new();
                vint::put_text(&vec![b'x'; bytes], &mut text);
                text
            };
            let records = vec![(text(key), text(value))];
            let (bytes, _) = written(&records, None);
            let found = all(&mut read(&bytes[..], bytes.len() as u64, None, limit));
            assert_eq!(found.unwrap(), records, "{key} {value}");
        }
        let (bytes, _) = written(&vec![(vec![b'x'; 2 * limit], vec![])], None);
        assert!(all(&mut read(&bytes[..], bytes.len() as u64, None, limit)).is_err());
    }

    proptest! {
        #[test]
        fn values_survive_writing_and_reading(
            records in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(any::<u8>(), 0..40)),
                0..50,
            ),
            codec in prop::sample::select(vec![None, Some(Codec::Gzip), Some(Codec::Deflate)]),
        ) {
            let (bytes, lengths) = written(&records, codec);
            prop_assert_eq!(lengths.part, bytes.len() as u64);
            prop_assert_eq!(&back(&bytes, codec).unwrap(), &records);
            if codec.is_none() {
                let raw = bytes[..lengths.raw as usize].to_vec();
                prop_assert_eq!(&all(&mut InMemory::new(raw)).unwrap(), &records);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = back(&bytes, None);
            let _ = all(&mut InMemory::new(bytes));
        }
    }
}
