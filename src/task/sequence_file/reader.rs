//! Reads sequence files, from their beginning or from the first mark of a split.

use std::io::{self, BufReader, Cursor, Read};

use corona_hadoop::io::{DecodeError, varint};
use corona_mapreduce::native::Codec;
use thiserror::Error;

use super::class::{self, Class};
use super::{ESCAPE, LATEST, MAGIC, MARK_BYTES};
use crate::codec;
use crate::lines::progress;

/// The oldest version that is read: the first with blocks.
const OLDEST: u8 = 4;
/// The longest name of a class.
const MOST_NAME_BYTES: usize = 1000;
/// The largest header; metadata may hold a schema.
pub(crate) const MOST_HEADER_BYTES: usize = 1 << 20;
/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// The same of each part of a block, which lies in memory.
const PART_BUFFER_BYTES: usize = 4 << 10;
/// Memory is reserved in such pieces.
const PIECE_BYTES: usize = 1 << 20;
/// A compressed block that is read in any case, however small the largest record may be.
const LEAST_BLOCK_BYTES: usize = 16 << 20;

/// Why a sequence file cannot be read.
#[derive(Debug, Error)]
pub enum SequenceError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(io::Error),
    /// It is something else.
    #[error("it is no sequence file: it does not begin with SEQ and a version")]
    NotOne,
    /// Nobody writes it any more, or not yet.
    #[error("version {0} of sequence files is not read; 4 to 6 are")]
    Version(u8),
    /// Only Java knows it.
    #[error(
        "its {part} are of the class {name:?}, whose text is not known; those of {} are",
        class::names()
    )]
    Class {
        /// Keys or values.
        part: &'static str,
        /// The class.
        name: String,
    },
    /// Only Java knows it.
    #[error("it is compressed by {0:?}; DefaultCodec, GzipCodec and BZip2Codec are read")]
    Codec(String),
    /// The bytes make no sense.
    #[error("the sequence file is damaged before byte {at}: {why}")]
    Damaged {
        /// Where it was noticed.
        at: u64,
        /// How.
        why: String,
    },
    /// Something is missing at the end.
    #[error("the sequence file ends in the middle of {0}")]
    Truncated(&'static str),
    /// A compressed block is larger than a task may hold.
    #[error(
        "a compressed block has more than {limit} bytes: raise corona.task.max.record.bytes, or the file is damaged \
         before byte {at}"
    )]
    BlockTooLong {
        /// The limit.
        limit: usize,
        /// Where it was noticed.
        at: u64,
    },
    /// A record is larger than a task may hold. It has been left out.
    #[error("a record has more than {limit} bytes (corona.task.max.record.bytes)")]
    TooLong {
        /// The limit.
        limit: usize,
    },
}

impl From<io::Error> for SequenceError {
    fn from(error: io::Error) -> SequenceError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => SequenceError::Truncated("a record or block"),
            _ => SequenceError::Io(error),
        }
    }
}

/// What a file begins with.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    /// The name of the class of keys.
    pub(crate) key_class: String,
    /// The name of the class of values.
    pub(crate) value_class: String,
    key: Class,
    value: Class,
    codec: Option<Codec>,
    has_blocks: bool,
    mark: [u8; MARK_BYTES],
    /// Its length.
    pub(crate) bytes: u64,
}

impl Header {
    /// Reads it from the beginning of a file.
    ///
    /// # Errors
    /// It is not one of a sequence file, or says that the file cannot be read here.
    pub(crate) fn read(file: &mut impl Read) -> Result<Header, SequenceError> {
        let mut from = Counted { inner: file.take(MOST_HEADER_BYTES as u64), at: 0 };
        Header::parse(&mut from).map_err(|error| match error {
            SequenceError::Truncated(_) if from.at >= MOST_HEADER_BYTES as u64 => {
                from.damaged(format!("its header has more than {MOST_HEADER_BYTES} bytes"))
            }
            SequenceError::Truncated(_) if from.at < 4 => SequenceError::NotOne,
            SequenceError::Truncated(_) => SequenceError::Truncated("its header"),
            error => error,
        })
    }

    fn parse(from: &mut Counted<impl Read>) -> Result<Header, SequenceError> {
        let [magic @ .., version] = from.array::<4>()?;
        if magic != *MAGIC {
            return Err(SequenceError::NotOne);
        }
        if !(OLDEST..=LATEST).contains(&version) {
            return Err(SequenceError::Version(version));
        }
        let (key_class, value_class) = (from.name()?, from.name()?);
        let class = |part, name: &str| {
            Class::of(name).ok_or_else(|| SequenceError::Class { part, name: name.to_owned() })
        };
        let (key, value) = (class("keys", &key_class)?, class("values", &value_class)?);
        let [is_compressed, has_blocks] = from.array::<2>()?.map(|flag| flag != 0);
        let codec = match is_compressed {
            false => None,
            true if version == OLDEST => Some(Codec::Deflate),
            true => {
                let name = from.name()?;
                Some(Codec::named(&name).ok_or(SequenceError::Codec(name))?)
            }
        };
        if version == LATEST {
            let entries = i32::from_be_bytes(from.array()?);
            for _ in 0..from.checked(entries)? * 2 {
                let length = from.vint()?;
                let length = from.checked(length)?;
                from.skip(length as u64)?;
            }
        }
        let mark = from.array()?;
        let has_blocks = is_compressed && has_blocks;
        Ok(Header { key_class, value_class, key, value, codec, has_blocks, mark, bytes: from.at })
    }
}

/// Counts what is read.
struct Counted<R> {
    inner: R,
    at: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl<R: Read> Counted<R> {
    fn damaged(&self, why: impl Into<String>) -> SequenceError {
        SequenceError::Damaged { at: self.at, why: why.into() }
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut array = [0; N];
        self.read_exact(&mut array)?;
        Ok(array)
    }

    /// The next bytes, or none at the end.
    fn array_or_end<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        let mut array = [0; N];
        let (first, rest) = array.split_at_mut(1);
        loop {
            match self.read(first) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.read_exact(rest)?;
        Ok(Some(array))
    }

    /// A length or a number of things.
    fn checked(&self, length: i32) -> Result<usize, SequenceError> {
        usize::try_from(length).map_err(|_| self.damaged(format!("{length} is no length")))
    }

    fn vint(&mut self) -> io::Result<i32> {
        vint(self)
    }

    fn name(&mut self) -> Result<String, SequenceError> {
        let length = self.vint()?;
        let length = self.checked(length)?;
        if length > MOST_NAME_BYTES {
            return Err(self.damaged(format!("a name has {length} bytes")));
        }
        let mut name = Vec::new();
        fill(self, length, &mut name)?;
        Ok(String::from_utf8_lossy(&name).into_owned())
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.take(bytes), &mut io::sink())?;
        if skipped < bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

/// Fills a buffer, which grows with the bytes that there are, whatever their announced number is.
fn fill(from: &mut impl Read, bytes: usize, to: &mut Vec<u8>) -> io::Result<()> {
    to.clear();
    let mut from = from.take(bytes as u64);
    // The memory grows with what has arrived, by pieces: a length alone reserves nothing, and nothing is doubled.
    while to.len() < bytes {
        let piece = (bytes - to.len()).min(PIECE_BYTES);
        to.reserve_exact(piece);
        if from.by_ref().take(piece as u64).read_to_end(to)? < piece {
            break;
        }
    }
    if to.len() < bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// An integer of variable length.
#[allow(clippy::cast_possible_truncation, reason = "as in the original")]
fn vint(from: &mut impl Read) -> io::Result<i32> {
    let (mut first, mut rest) = ([0], [0; 8]);
    from.read_exact(&mut first)?;
    let (mut failed, part) = (None, &mut rest);
    let value = varint::decode(first[0], |count| {
        let part = part.get_mut(..count).ok_or(DecodeError::Truncated)?;
        from.read_exact(part).map_err(|error| {
            failed = Some(error);
            DecodeError::Truncated
        })?;
        Ok(part)
    });
    match (value, failed) {
        (Ok(value), _) => Ok(value as i32),
        (Err(_), Some(error)) => Err(error),
        (Err(error), None) => Err(io::Error::other(error)),
    }
}

/// The parts of a block that lie compressed in memory and are read record by record.
struct Block {
    records: usize,
    key_lengths: Part,
    keys: Part,
    value_lengths: Part,
    values: Part,
}

type Part = BufReader<Box<dyn Read + Send>>;

/// The records of a split of a sequence file.
pub(crate) struct SequenceRecords<R> {
    input: Counted<BufReader<R>>,
    header: Header,
    start: u64,
    end: u64,
    /// The largest record.
    most: usize,
    block: Option<Block>,
    /// Whether the mark before what comes next has been read.
    is_behind_mark: bool,
    is_over: bool,
    key: Vec<u8>,
    value: Vec<u8>,
    compressed: Vec<u8>,
}

impl<R> std::fmt::Debug for SequenceRecords<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SequenceRecords").field("header", &self.header).finish_non_exhaustive()
    }
}

impl<R: Read> SequenceRecords<R> {
    /// The records that belong to the bytes from `start` to `end`: those behind marks that begin there, and for the first bytes
    /// also those behind the header. `inner` reads the file from `start`, or from the end of the header if that is later. No record
    /// may be larger than `most` bytes.
    pub(crate) fn new(
        inner: R,
        header: Header,
        start: u64,
        end: u64,
        most: usize,
    ) -> Result<SequenceRecords<R>, SequenceError> {
        let start = start.max(header.bytes);
        let inner = BufReader::with_capacity(BUFFER_BYTES, inner);
        let is_first = start == header.bytes;
        let mut records = SequenceRecords {
            input: Counted { inner, at: start },
            header,
            start,
            end,
            most,
            block: None,
            is_behind_mark: false,
            is_over: start >= end,
            key: Vec::new(),
            value: Vec::new(),
            compressed: Vec::new(),
        };
        if !is_first && !records.is_over {
            records.is_behind_mark = records.find_mark()?;
            records.is_over = !records.is_behind_mark;
        }
        Ok(records)
    }

    /// Where the next record or block begins, or its mark.
    pub(crate) fn position(&self) -> u64 {
        self.input.at
    }

    /// How much of the split has been read, from 0 to 1.
    pub(crate) fn progress(&self) -> f32 {
        progress(self.input.at, self.start, self.end)
    }

    /// Reads up to the end of the first mark that begins in the split. False: there is none.
    fn find_mark(&mut self) -> Result<bool, SequenceError> {
        let wanted = u128::from_be_bytes(self.header.mark);
        let (mut before, mut last) = (0_u32, 0_u128);
        while let Some([byte]) = self.input.array_or_end::<1>()? {
            before = before << 8 | (last >> 120) as u32;
            last = last << 8 | u128::from(byte);
            let begins = self.input.at.saturating_sub((ESCAPE.len() + MARK_BYTES) as u64);
            if begins >= self.end && self.input.at > self.end {
                return Ok(false);
            }
            if last == wanted && before == u32::from_be_bytes(ESCAPE) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes to the next record. False at the end of the split. After [`SequenceError::TooLong`] there may be others.
    pub(crate) fn advance(&mut self) -> Result<bool, SequenceError> {
        if self.header.has_blocks { self.next_of_block() } else { self.next_alone() }
    }

    /// The key and the value of the record, as the file has them.
    pub(crate) fn record(&self) -> (&[u8], &[u8]) {
        (&self.key, &self.value)
    }

    /// Makes a line of the record: the text of the key, a tab and the text of the value. Returns the length of the key's text.
    /// `as_java`: the texts are those of `toString`.
    pub(crate) fn put_line(
        &self,
        as_java: bool,
        line: &mut Vec<u8>,
    ) -> Result<usize, SequenceError> {
        let Header { key, value, key_class, value_class, .. } = &self.header;
        let wrong = |part: &str, class: &str, error: DecodeError| {
            let simple = class.rsplit('.').next().unwrap_or_default();
            self.input.damaged(format!("a {part} is no {simple}: {error}"))
        };
        line.clear();
        let put = key.put_text(&self.key, as_java, line);
        put.map_err(|error| wrong("key", key_class, error))?;
        let length = line.len();
        line.push(b'\t');
        let put = value.put_text(&self.value, as_java, line);
        put.map_err(|error| wrong("value", value_class, error))?;
        Ok(length)
    }

    /// What the file begins with.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    fn check_mark(&mut self) -> Result<(), SequenceError> {
        match self.input.array::<MARK_BYTES>()? == self.header.mark {
            true => Ok(()),
            false => Err(self.input.damaged("a mark is not that of the header")),
        }
    }

    fn next_alone(&mut self) -> Result<bool, SequenceError> {
        while !self.is_over {
            let begins = self.input.at;
            let Some(length) = self.input.array_or_end::<4>()? else {
                self.is_over = true;
                break;
            };
            if length != ESCAPE {
                return self.read_record(i32::from_be_bytes(length)).map(|()| true);
            }
            self.check_mark()?;
            // The records behind it belong to the next split.
            self.is_over = begins >= self.end;
        }
        Ok(false)
    }

    fn read_record(&mut self, length: i32) -> Result<(), SequenceError> {
        let length = self.input.checked(length)?;
        let key_length = i32::from_be_bytes(self.input.array()?);
        let key_length = self.input.checked(key_length)?;
        let Some(value_length) = length.checked_sub(key_length) else {
            let why = format!("a record of {length} bytes has a key of {key_length}");
            return Err(self.input.damaged(why));
        };
        if length > self.most {
            self.input.skip(length as u64)?;
            return Err(SequenceError::TooLong { limit: self.most });
        }
        fill(&mut self.input, key_length, &mut self.key)?;
        let Some(codec) = self.header.codec else {
            return Ok(fill(&mut self.input, value_length, &mut self.value)?);
        };
        fill(&mut self.input, value_length, &mut self.compressed)?;
        self.value.clear();
        let most = self.most.saturating_sub(key_length);
        let mut compressed = &self.compressed[..];
        let read = match compressed.is_empty() {
            true => Ok(0),
            false => codec::read_bounded(codec, &mut compressed, most as u64, &mut self.value),
        };
        match read {
            Ok(bytes) if bytes > most => Err(SequenceError::TooLong { limit: self.most }),
            Ok(_) => Ok(()),
            Err(error) => Err(self.input.damaged(format!("a value cannot be unpacked: {error}"))),
        }
    }

    fn next_of_block(&mut self) -> Result<bool, SequenceError> {
        loop {
            if let Some(block) = &mut self.block
                && block.records > 0
            {
                block.records -= 1;
                let read = block.next(self.most, &mut self.key, &mut self.value);
                return match read {
                    Ok(true) => Ok(true),
                    Ok(false) => Err(SequenceError::TooLong { limit: self.most }),
                    Err(error) => {
                        Err(self.input.damaged(format!("a block cannot be unpacked: {error}")))
                    }
                };
            }
            self.block = None;
            if !self.next_block()? {
                return Ok(false);
            }
        }
    }

    fn next_block(&mut self) -> Result<bool, SequenceError> {
        if self.is_over {
            return Ok(false);
        }
        if !std::mem::take(&mut self.is_behind_mark) {
            let begins = self.input.at;
            let Some(escape) = self.input.array_or_end::<4>()? else {
                self.is_over = true;
                return Ok(false);
            };
            if escape != ESCAPE {
                return Err(self.input.damaged("a block has no mark"));
            }
            self.check_mark()?;
            if begins >= self.end {
                self.is_over = true;
                return Ok(false);
            }
        }
        let records = self.input.vint()?;
        let records = self.input.checked(records)?;
        let mut room = self.room();
        let (key_lengths, keys) = (self.part(&mut room)?, self.part(&mut room)?);
        let (value_lengths, values) = (self.part(&mut room)?, self.part(&mut room)?);
        self.block = Some(Block { records, key_lengths, keys, value_lengths, values });
        Ok(true)
    }

    /// The bytes that a block may have: a writer ends it with the record that makes it large enough.
    fn room(&self) -> usize {
        self.most.saturating_mul(2).saturating_add(LEAST_BLOCK_BYTES)
    }

    /// Reads a part of a block, which takes its bytes of the room for the block.
    fn part(&mut self, room: &mut usize) -> Result<Part, SequenceError> {
        let length = self.input.vint()?;
        let length = self.input.checked(length)?;
        *room = room
            .checked_sub(length)
            .ok_or(SequenceError::BlockTooLong { limit: self.room(), at: self.input.at })?;
        let mut compressed = Vec::new();
        fill(&mut self.input, length, &mut compressed)?;
        let codec = self.header.codec.filter(|_| !compressed.is_empty());
        Ok(BufReader::with_capacity(
            PART_BUFFER_BYTES,
            codec::reader(codec, Cursor::new(compressed)),
        ))
    }
}

impl Block {
    /// Reads the next record. False: it is larger than `most` bytes, and left out.
    fn next(&mut self, most: usize, key: &mut Vec<u8>, value: &mut Vec<u8>) -> io::Result<bool> {
        let length = |lengths: &mut Part| {
            let length = vint(lengths)?;
            usize::try_from(length).map_err(|_| io::Error::other(format!("{length} is no length")))
        };
        let (key_length, value_length) =
            (length(&mut self.key_lengths)?, length(&mut self.value_lengths)?);
        if key_length.saturating_add(value_length) > most {
            for (part, length) in [(&mut self.keys, key_length), (&mut self.values, value_length)] {
                let skipped = io::copy(&mut part.take(length as u64), &mut io::sink())?;
                if skipped < length as u64 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            return Ok(false);
        }
        fill(&mut self.keys, key_length, key)?;
        fill(&mut self.values, value_length, value)?;
        Ok(true)
    }
}

/// The records of a whole file as lines of text, as Java's `toString` has them.
pub struct SequenceText<R> {
    records: SequenceRecords<R>,
    line: Vec<u8>,
    at: usize,
}

impl<R> std::fmt::Debug for SequenceText<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SequenceText").finish_non_exhaustive()
    }
}

impl<R: Read> SequenceText<R> {
    /// The lines of a file that is read from its beginning. No record may be larger than `most` bytes, which no setting
    /// changes.
    ///
    /// # Errors
    /// It is no sequence file, or not of classes whose text is known.
    pub fn new(mut file: R, most: usize) -> Result<SequenceText<R>, SequenceError> {
        let header = Header::read(&mut file)?;
        let records = SequenceRecords::new(file, header, 0, u64::MAX, most)?;
        Ok(SequenceText { records, line: Vec::new(), at: 0 })
    }
}

/// The error of a reader whose limit is fixed: the key of a task's limit changes nothing there.
fn of_fixed_limit(error: SequenceError) -> io::Error {
    io::Error::other(match error {
        SequenceError::BlockTooLong { limit, at } => format!(
            "a compressed block has more than {limit} bytes, or the file is damaged before byte {at}"
        ),
        SequenceError::TooLong { limit } => format!("a record has more than {limit} bytes"),
        other => return io::Error::other(other),
    })
}

impl<R: Read> Read for SequenceText<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.line.len() {
            if !self.records.advance().map_err(of_fixed_limit)? {
                return Ok(0);
            }
            self.records.put_line(true, &mut self.line).map_err(of_fixed_limit)?;
            self.line.push(b'\n');
            self.at = 0;
        }
        let rest = self.line.get(self.at..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..read), rest.get(..read)) {
            to.copy_from_slice(from);
        }
        self.at += read;
        Ok(read)
    }
}
