//! Reads bzip2 files. Pure: it knows only [`Read`].
//!
//! A file is one or more streams, as `pbzip2` writes several. A stream has blocks of up to 900,000 bytes,
//! each compressed on its own: runs of equal bytes are shortened, the block is sorted by its rotations
//! (Burrows-Wheeler), bytes are replaced by their places in a list of the latest ones (move to front), and
//! the places are written in Huffman codes. Every block and every stream has a checksum.
//!
//! A reader needs 4 bytes for each byte of a block: at most 3.6 MB.

use std::io::{self, Read};

use thiserror::Error;

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// What the level of a stream is multiplied by to get the size of its blocks.
const LEVEL_BYTES: usize = 100_000;
/// The marks before a block and at the end of a stream.
const BLOCK_MARK: u64 = 0x3141_5926_5359;
const END_MARK: u64 = 0x1772_4538_5090;
/// Symbols that share the choice of a code.
const GROUP_SYMBOLS: usize = 50;
/// The most codes of a block, and the most symbols and bits of a code.
const MOST_CODES: usize = 6;
const MOST_SYMBOLS: usize = 258;
const MOST_BITS: usize = 20;
/// The bits that find the symbols of short codes in one step.
const FAST_BITS: u32 = 10;
/// A run of equal bytes of this length is followed by the number of further ones.
const FULL_RUN: u8 = 4;

/// Why bytes are no bzip2 file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum Damage {
    #[error("the file is no bzip2 file, or other data follows a stream of it")]
    NoStream,
    #[error("the bzip2 data is damaged: a block does not begin with its mark")]
    NoBlock,
    #[error(
        "a block is randomised, as versions of bzip2 before 0.9.5 wrote it, which is not supported"
    )]
    Randomised,
    #[error("the bzip2 data is damaged: {0}")]
    Block(&'static str),
    #[error("the checksum of a bzip2 block is {found:08x} and should be {expected:08x}")]
    BlockChecksum { found: u32, expected: u32 },
    #[error("the checksum of a bzip2 stream is {found:08x} and should be {expected:08x}")]
    StreamChecksum { found: u32, expected: u32 },
}

impl From<Damage> for io::Error {
    fn from(damage: Damage) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, damage)
    }
}

/// Reads the content of a bzip2 file.
pub struct Decoder<R> {
    bits: Bits<R>,
    next: Next,
    most_bytes: usize,
    block: Block,
    /// The checksum that the stream should have after the blocks so far.
    stream_sum: u32,
}

impl<R> std::fmt::Debug for Decoder<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("next", &self.next).finish_non_exhaustive()
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    FirstStream,
    FurtherStream,
    BlockOrEnd,
    InBlock,
    Over,
}

impl<R: Read> Decoder<R> {
    /// A reader of the streams in these bytes.
    pub fn new(inner: R) -> Decoder<R> {
        let bits = Bits::new(inner);
        let block = Block::default();
        Decoder { bits, next: Next::FirstStream, most_bytes: 0, block, stream_sum: 0 }
    }

    /// Moves on to what follows.
    fn advance(&mut self) -> io::Result<()> {
        self.next = match self.next {
            Next::FurtherStream if self.bits.is_over()? => Next::Over,
            Next::FirstStream | Next::FurtherStream => self.begin_stream()?,
            Next::BlockOrEnd => match self.bits.take_mark()? {
                BLOCK_MARK => {
                    self.block.read(&mut self.bits, self.most_bytes)?;
                    Next::InBlock
                }
                END_MARK => self.end_stream()?,
                _ => return Err(Damage::NoBlock.into()),
            },
            Next::InBlock => {
                let sum = self.block.checked()?;
                self.stream_sum = self.stream_sum.rotate_left(1) ^ sum;
                Next::BlockOrEnd
            }
            Next::Over => Next::Over,
        };
        Ok(())
    }

    fn begin_stream(&mut self) -> io::Result<Next> {
        let header = self.bits.take(32)?.to_be_bytes();
        let [b'B', b'Z', b'h', level @ b'1'..=b'9'] = header else {
            return Err(Damage::NoStream.into());
        };
        self.most_bytes = usize::from(level - b'0') * LEVEL_BYTES;
        self.stream_sum = 0;
        Ok(Next::BlockOrEnd)
    }

    fn end_stream(&mut self) -> io::Result<Next> {
        let (found, expected) = (self.stream_sum, self.bits.take(32)?);
        if found != expected {
            return Err(Damage::StreamChecksum { found, expected }.into());
        }
        self.bits.skip_to_byte();
        Ok(Next::FurtherStream)
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let written = match self.next {
                Next::InBlock => self.block.write(to),
                _ => 0,
            };
            if written > 0 || to.is_empty() || self.next == Next::Over {
                return Ok(written);
            }
            self.advance()?;
        }
    }
}

/// The bits of a stream, the highest of each byte first.
struct Bits<R> {
    inner: R,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    /// Bits that were read and not taken, at the upper end; the others are 0.
    held: u64,
    count: u32,
}

impl<R: Read> Bits<R> {
    fn new(inner: R) -> Bits<R> {
        Bits { inner, buffer: vec![0; BUFFER_BYTES], from: 0, to: 0, held: 0, count: 0 }
    }

    /// Holds at least 32 bits, or all that there are.
    #[inline]
    fn fill(&mut self) -> io::Result<()> {
        while self.count < 32 {
            if let Some(word) = self.buffer[self.from..self.to].first_chunk() {
                self.held |= u64::from(u32::from_be_bytes(*word)) << (32 - self.count);
                self.from += 4;
                self.count += 32;
                return Ok(());
            }
            if self.from == self.to {
                (self.from, self.to) = (0, 0);
                self.to = loop {
                    match self.inner.read(&mut self.buffer) {
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        read => break read?.min(BUFFER_BYTES),
                    }
                };
                if self.to == 0 {
                    return Ok(());
                }
            }
            self.held |= u64::from(self.buffer[self.from]) << (56 - self.count);
            self.from += 1;
            self.count += 8;
        }
        Ok(())
    }

    /// The next bits, at most 32 and at least one, with zeros behind the end of the stream.
    #[inline]
    fn peek(&mut self, count: u32) -> io::Result<u32> {
        if self.count < count {
            self.fill()?;
        }
        Ok((self.held >> (64 - count)) as u32)
    }

    #[inline]
    fn skip(&mut self, count: u32) -> io::Result<()> {
        if self.count < count {
            let why = "the bzip2 data is truncated";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        self.held <<= count;
        self.count -= count;
        Ok(())
    }

    #[inline]
    fn take(&mut self, count: u32) -> io::Result<u32> {
        let bits = self.peek(count)?;
        self.skip(count)?;
        Ok(bits)
    }

    fn take_bit(&mut self) -> io::Result<bool> {
        Ok(self.take(1)? == 1)
    }

    fn take_mark(&mut self) -> io::Result<u64> {
        let high = u64::from(self.take(24)?);
        Ok(high << 24 | u64::from(self.take(24)?))
    }

    fn skip_to_byte(&mut self) {
        let odd = self.count % 8;
        self.held <<= odd;
        self.count -= odd;
    }

    fn is_over(&mut self) -> io::Result<bool> {
        self.fill()?;
        Ok(self.count == 0)
    }
}

/// The codes of some symbols of a block.
struct Code {
    /// For the first bits of what is read, a symbol and the bits of its code, or zeros for longer codes.
    fast: [(u16, u8); 1 << FAST_BITS],
    /// For each length, the first code behind those of this length, if codes are filled up with zeros to
    /// the most bits.
    limits: [u32; MOST_BITS + 1],
    /// For each length, what is added to a code to get the place of its symbol.
    offsets: [u32; MOST_BITS + 1],
    symbols: [u16; MOST_SYMBOLS],
    count: u32,
}

impl Code {
    /// The code whose symbols have these lengths.
    fn new(lengths: &[u8]) -> Result<Code, Damage> {
        let mut code = Code {
            fast: [(0, 0); 1 << FAST_BITS],
            limits: [0; MOST_BITS + 1],
            offsets: [0; MOST_BITS + 1],
            symbols: [0; MOST_SYMBOLS],
            count: 0,
        };
        let mut next = 0_u32;
        for length in 1..=MOST_BITS {
            let space = MOST_BITS - length;
            code.offsets[length] = code.count.wrapping_sub(next >> space);
            let of_length =
                lengths.iter().enumerate().filter(|(_, bits)| **bits as usize == length);
            for (symbol, bits) in of_length {
                code.symbols[code.count as usize] = symbol as u16;
                code.count += 1;
                let first = (next >> (MOST_BITS as u32 - FAST_BITS)) as usize;
                next += 1 << space;
                if next > 1 << MOST_BITS {
                    return Err(Damage::Block("a code has more symbols than its lengths allow"));
                }
                if length as u32 <= FAST_BITS {
                    let places = 1 << (FAST_BITS as usize - length);
                    code.fast[first..first + places].fill((symbol as u16, *bits));
                }
            }
            code.limits[length] = next;
        }
        Ok(code)
    }

    #[inline]
    fn take<R: Read>(&self, bits: &mut Bits<R>) -> io::Result<u16> {
        let next = bits.peek(MOST_BITS as u32)?;
        let (symbol, length) = self.fast[(next >> (MOST_BITS as u32 - FAST_BITS)) as usize];
        if length > 0 {
            bits.skip(u32::from(length))?;
            return Ok(symbol);
        }
        self.take_long(next, bits)
    }

    #[cold]
    fn take_long<R: Read>(&self, next: u32, bits: &mut Bits<R>) -> io::Result<u16> {
        let lengths = FAST_BITS as usize + 1..=MOST_BITS;
        for length in lengths {
            if next < self.limits[length] {
                bits.skip(length as u32)?;
                let code = next >> (MOST_BITS - length);
                let at = code.wrapping_add(self.offsets[length]);
                let symbol = self.symbols.get(at as usize);
                return Ok(*symbol.ok_or(Damage::Block("a code is not used"))?);
            }
        }
        // Behind the end of a truncated file there are zeros, which may be no code.
        bits.skip(MOST_BITS as u32)?;
        Err(Damage::Block("a code is not used").into())
    }
}

/// A block: its content, sorted by rotations, and how much of it was written.
#[derive(Default)]
struct Block {
    /// A byte, and above it the place of the byte behind it.
    table: Vec<u32>,
    /// The place of the next byte, and how many there still are.
    at: u32,
    left: usize,
    /// The last byte, how often it came, and how often it is still to be written.
    last: u8,
    run: u8,
    repeats: u8,
    sum: u32,
    expected: u32,
}

impl Block {
    /// Reads a block of at most so many bytes.
    fn read<R: Read>(&mut self, bits: &mut Bits<R>, most_bytes: usize) -> io::Result<()> {
        self.expected = bits.take(32)?;
        self.sum = u32::MAX;
        (self.run, self.repeats) = (0, 0);
        if bits.take_bit()? {
            return Err(Damage::Randomised.into());
        }
        let first = bits.take(24)?;
        let header = Header::read(bits)?;
        self.table.clear();
        self.table.reserve_exact(most_bytes);
        self.places(bits, header, most_bytes)?;
        Ok(self.link(first)?)
    }

    /// Reads the symbols of a block, and puts the bytes that they mean into the table.
    fn places<R: Read>(
        &mut self,
        bits: &mut Bits<R>,
        header: Header,
        most_bytes: usize,
    ) -> io::Result<()> {
        let Header { mut bytes, used, choices, codes } = header;
        let end = used + 1;
        // The length of a run is written in digits of 1 and 2, the lowest first.
        let (mut run, mut digit) = (0_usize, 1_usize);
        for choice in choices {
            let Some(code) = codes.get(usize::from(choice)) else { break };
            for _ in 0..GROUP_SYMBOLS {
                let symbol = usize::from(code.take(bits)?);
                if symbol <= 1 {
                    run += digit << symbol;
                    digit <<= 1;
                    if self.table.len() + run > most_bytes {
                        return Err(Damage::Block("a block is too long").into());
                    }
                    continue;
                }
                if run > 0 {
                    self.table.resize(self.table.len() + run, u32::from(bytes[0]));
                    (run, digit) = (0, 1);
                }
                if symbol >= end {
                    return Ok(());
                }
                if self.table.len() == most_bytes {
                    return Err(Damage::Block("a block is too long").into());
                }
                let place = symbol - 1;
                let byte = bytes[place];
                bytes.copy_within(..place, 1);
                bytes[0] = byte;
                self.table.push(u32::from(byte));
            }
        }
        Err(Damage::Block("a block has no end").into())
    }

    /// Finds the byte that follows each one, and the first one.
    fn link(&mut self, first: u32) -> Result<(), Damage> {
        let mut starts = [0_u32; 256];
        for entry in &self.table {
            starts[usize::from(*entry as u8)] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += std::mem::replace(start, sum);
        }
        for at in 0..self.table.len() {
            let start = &mut starts[usize::from(self.table[at] as u8)];
            // Each place is below the number of bytes.
            self.table[*start as usize] |= (at as u32) << 8;
            *start += 1;
        }
        let entry = self.table.get(first as usize);
        self.at = *entry.ok_or(Damage::Block("a block begins behind its end"))? >> 8;
        self.left = self.table.len();
        Ok(())
    }

    /// Writes as much as there is and fits.
    fn write(&mut self, to: &mut [u8]) -> usize {
        let mut written = 0;
        while written < to.len() {
            if self.repeats > 0 {
                let times = usize::from(self.repeats).min(to.len() - written);
                to[written..written + times].fill(self.last);
                written += times;
                self.repeats -= times as u8;
                continue;
            }
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            let entry = self.table[self.at as usize];
            self.at = entry >> 8;
            let byte = entry as u8;
            if self.run == FULL_RUN {
                self.repeats = byte;
                self.run = 0;
                continue;
            }
            self.run = if byte == self.last { self.run + 1 } else { 1 };
            self.last = byte;
            to[written] = byte;
            written += 1;
        }
        self.sum = checksum(self.sum, &to[..written]);
        written
    }

    /// The checksum, if it is right.
    fn checked(&self) -> Result<u32, Damage> {
        let (found, expected) = (!self.sum, self.expected);
        match found == expected {
            true => Ok(found),
            false => Err(Damage::BlockChecksum { found, expected }),
        }
    }
}

/// What stands before the symbols of a block.
struct Header {
    /// The bytes that the block has, in their order.
    bytes: [u8; 256],
    used: usize,
    /// Which code each group of symbols has.
    choices: Vec<u8>,
    codes: Vec<Code>,
}

impl Header {
    fn read<R: Read>(bits: &mut Bits<R>) -> io::Result<Header> {
        let (bytes, used) = used_bytes(bits)?;
        let codes = bits.take(3)? as usize;
        if !(2..=MOST_CODES).contains(&codes) {
            return Err(Damage::Block("a block has too few or too many codes").into());
        }
        let choices = choices(bits, codes)?;
        let codes = (0..codes).map(|_| code(bits, used + 2)).collect::<io::Result<_>>()?;
        Ok(Header { bytes, used, choices, codes })
    }
}

/// The bytes that a block has, and how many there are.
fn used_bytes<R: Read>(bits: &mut Bits<R>) -> io::Result<([u8; 256], usize)> {
    let ranges = bits.take(16)?;
    let (mut bytes, mut used) = ([0; 256], 0);
    for range in (0..16_u8).filter(|range| ranges & (0x8000 >> range) != 0) {
        let in_range = bits.take(16)?;
        for byte in (0..16_u8).filter(|byte| in_range & (0x8000 >> byte) != 0) {
            bytes[used] = range << 4 | byte;
            used += 1;
        }
    }
    match used {
        0 => Err(Damage::Block("a block has no bytes").into()),
        used => Ok((bytes, used)),
    }
}

/// Which code each group of symbols has.
fn choices<R: Read>(bits: &mut Bits<R>, codes: usize) -> io::Result<Vec<u8>> {
    let count = bits.take(15)?;
    if count == 0 {
        return Err(Damage::Block("a block has no symbols").into());
    }
    let mut latest: [u8; MOST_CODES] = [0, 1, 2, 3, 4, 5];
    let mut choices = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let mut place = 0;
        while bits.take_bit()? {
            place += 1;
            if place >= codes {
                return Err(Damage::Block("a block names a code that it does not have").into());
            }
        }
        let choice = latest[place];
        latest.copy_within(..place, 1);
        latest[0] = choice;
        choices.push(choice);
    }
    Ok(choices)
}

/// Reads the lengths of a code.
fn code<R: Read>(bits: &mut Bits<R>, symbols: usize) -> io::Result<Code> {
    let mut lengths = [0_u8; MOST_SYMBOLS];
    let mut length = bits.take(5)?;
    let lengths = &mut lengths[..symbols];
    for of_symbol in &mut *lengths {
        loop {
            if !(1..=MOST_BITS as u32).contains(&length) {
                return Err(Damage::Block("a code is too long or too short").into());
            }
            if !bits.take_bit()? {
                break;
            }
            match bits.take_bit()? {
                true => length -= 1,
                false => length += 1,
            }
        }
        *of_symbol = length as u8;
    }
    Ok(Code::new(lengths)?)
}

/// The checksum of bzip2: CRC-32 with the highest bit of a byte first.
fn checksum(mut sum: u32, bytes: &[u8]) -> u32 {
    for byte in bytes {
        sum = sum << 8 ^ SUMS[usize::from((sum >> 24) as u8 ^ byte)];
    }
    sum
}

const SUMS: [u32; 256] = {
    let mut sums = [0_u32; 256];
    let mut at = 0;
    while at < 256 {
        let mut sum = (at as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum >> 31 == 1 { sum << 1 ^ 0x04c1_1db7 } else { sum << 1 };
            bit += 1;
        }
        sums[at] = sum;
        at += 1;
    }
    sums
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(file: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        Decoder::new(file).read_to_end(&mut content).map(|_| content)
    }

    fn why(file: &[u8]) -> String {
        decoded(file).unwrap_err().to_string()
    }

    /// The lines of the golden files: words of a few bytes, long runs, and bytes of every value.
    fn lines(bytes: usize) -> Vec<u8> {
        let mut lines = Vec::with_capacity(bytes + 300);
        let mut state = 1_u32;
        while lines.len() < bytes {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match state >> 28 {
                0 => lines.extend([b'x'].repeat((state >> 16 & 0x1ff) as usize)),
                1 => lines.extend((state >> 8).to_be_bytes()),
                word => lines.extend(format!("word{word} ").bytes()),
            }
            if state >> 12 & 7 == 0 {
                lines.push(b'\n');
            }
        }
        lines.truncate(bytes);
        lines
    }

    /// Written by bzip2 1.0.8 with each level, from the same lines.
    const LEVELS: [&[u8]; 9] = [
        include_bytes!("golden/lines-1.bz2"),
        include_bytes!("golden/lines-2.bz2"),
        include_bytes!("golden/lines-3.bz2"),
        include_bytes!("golden/lines-4.bz2"),
        include_bytes!("golden/lines-5.bz2"),
        include_bytes!("golden/lines-6.bz2"),
        include_bytes!("golden/lines-7.bz2"),
        include_bytes!("golden/lines-8.bz2"),
        include_bytes!("golden/lines-9.bz2"),
    ];
    /// The same of 250,000 bytes with the level 1, which makes three blocks.
    const BLOCKS: &[u8] = include_bytes!("golden/blocks.bz2");
    /// The same of 1,000,000 zeros, and of nothing.
    const ZEROS: &[u8] = include_bytes!("golden/zeros.bz2");
    const NOTHING: &[u8] = b"BZh9\x17\x72\x45\x38\x50\x90\0\0\0\0";

    #[test]
    fn files_of_the_original_program_are_read() {
        for (level, file) in (1..).zip(LEVELS) {
            assert_eq!(file[3], b'0' + level);
            assert!(decoded(file).unwrap() == lines(6000), "level {level}");
        }
        assert!(decoded(BLOCKS).unwrap() == lines(250_000));
        assert!(decoded(ZEROS).unwrap() == vec![0; 1_000_000]);
        assert_eq!(decoded(NOTHING).unwrap(), b"");
    }

    #[test]
    fn files_of_several_streams_are_read_to_their_end() {
        let file = [LEVELS[0], NOTHING, BLOCKS, LEVELS[8]].concat();
        let expected = [lines(6000), lines(250_000), lines(6000)].concat();
        assert!(decoded(&file).unwrap() == expected);
        assert!(why(&[LEVELS[0], b"text"].concat()).contains("other data follows"));
    }

    #[test]
    fn a_truncated_file_is_an_error_at_every_length() {
        for length in 0..LEVELS[8].len() {
            let error = decoded(&LEVELS[8][..length]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length}: {error}");
        }
    }

    #[test]
    fn every_damaged_bit_is_noticed() {
        let file = LEVELS[8];
        let damaged = |bit: usize| {
            let mut file = file.to_vec();
            file[bit / 8] ^= 0x80 >> (bit % 8);
            decoded(&file)
        };
        // A larger level means larger blocks only, and the last bits fill up the last byte.
        let is_free = |bit: usize| (28..32).contains(&bit) || bit / 8 == file.len() - 1;
        for bit in (0..file.len() * 8).filter(|bit| !is_free(*bit)) {
            assert!(damaged(bit).is_err(), "bit {bit}");
        }
        assert!(why(&[file, &[0; 9]].concat()).contains("other data follows"));
    }

    #[test]
    fn errors_name_the_reason() {
        let changed = |at: usize, byte: u8| {
            let mut file = LEVELS[8].to_vec();
            file[at] ^= byte;
            why(&file)
        };
        for (at, byte, expected) in [
            (0, 0x80, "no bzip2 file"),
            (3, 9, "no bzip2 file"),
            (4, 0x80, "does not begin with its mark"),
            (10, 0x80, "the checksum of a bzip2 block is"),
            (14, 0x80, "randomised"),
        ] {
            let why = changed(at, byte);
            assert!(why.contains(expected), "{at}: {why}");
        }
    }

    /// Reads whatever there is with a small buffer, without holding it.
    fn read_through(file: &[u8]) {
        let mut decoder = Decoder::new(file);
        let mut buffer = [0; 4096];
        while decoder.read(&mut buffer).is_ok_and(|read| read > 0) {}
        assert!(decoder.block.table.capacity() <= 9 * LEVEL_BYTES);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            read_through(&bytes);
            // The same as the content of a block.
            read_through(&[b"BZh9\x31\x41\x59\x26\x53\x59", &bytes[..]].concat());
        }

        #[test]
        fn no_damage_panics(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            level in 0_usize..9,
        ) {
            let mut file = LEVELS[level].to_vec();
            for (at, byte) in changes {
                let at = at.index(file.len());
                file[at] = byte;
            }
            read_through(&file);
        }

        #[test]
        fn the_sizes_of_reads_do_not_matter(sizes in prop::collection::vec(1_usize..700, 1..20)) {
            let mut decoder = Decoder::new(LEVELS[8]);
            let mut content = Vec::new();
            for size in sizes.iter().cycle() {
                let mut part = vec![0; *size];
                let read = decoder.read(&mut part).unwrap();
                if read == 0 {
                    break;
                }
                content.extend_from_slice(&part[..read]);
            }
            prop_assert!(content == lines(6000));
        }
    }
}
