//! Compressed streams: which codec a job names, and its reader and writer.

use std::io::{self, BufRead, BufReader, Read, Write};

use bzip2::read::MultiBzDecoder;
use bzip2::write::BzEncoder;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::{GzEncoder, ZlibEncoder};

pub use corona_mapreduce::native::{Codec, InputCodec};

use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Memory that an xz file may need to be read, in KiB: twice of what the highest level of `xz` needs.
const MOST_XZ_KIB: u32 = 128 << 10;
/// Compressed bytes that are read at a time.
const BUFFER_BYTES: usize = 128 << 10;

/// Reads a file of the input. A file of several members or streams reads as one.
pub fn input_reader<'a>(
    codec: Option<InputCodec>,
    inner: impl Read + Send + 'a,
) -> Box<dyn Read + Send + 'a> {
    match codec {
        None => Box::new(inner),
        Some(InputCodec::Gzip) => reader(Some(Codec::Gzip), inner),
        Some(InputCodec::Deflate) => reader(Some(Codec::Deflate), inner),
        Some(InputCodec::Bzip2) => reader(Some(Codec::Bzip2), inner),
        Some(InputCodec::Xz) => Box::new(XzReader::new_mem_limit(
            BufReader::with_capacity(BUFFER_BYTES, inner),
            true,
            MOST_XZ_KIB,
        )),
        Some(InputCodec::Zstd) => Box::new(ZstdFrames::new(inner)),
    }
}

/// Reads a codec's output. A file of several members reads as one.
pub fn reader<'a>(codec: Option<Codec>, inner: impl Read + Send + 'a) -> Box<dyn Read + Send + 'a> {
    match codec {
        None => Box::new(inner),
        Some(Codec::Gzip) => Box::new(MultiGzDecoder::new(inner)),
        Some(Codec::Deflate) => Box::new(flate2::read::ZlibDecoder::new(inner)),
        Some(Codec::Bzip2) => Box::new(MultiBzDecoder::new(inner)),
    }
}

/// Reads a codec's output, at most `most` bytes, into a buffer.
pub fn read_bounded(
    codec: Codec,
    inner: &mut (impl Read + Send),
    most: u64,
    to: &mut Vec<u8>,
) -> io::Result<usize> {
    // One byte more shows that there is more than was announced.
    reader(Some(codec), inner).take(most.saturating_add(1)).read_to_end(to)
}

/// Reads all frames of a Zstandard file, and leaves out those that hold no data.
struct ZstdFrames<R> {
    source: BufReader<R>,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: Read> ZstdFrames<R> {
    fn new(inner: R) -> ZstdFrames<R> {
        let source = BufReader::with_capacity(BUFFER_BYTES, inner);
        ZstdFrames { source, decoder: FrameDecoder::new(), is_in_frame: false }
    }

    fn enter_frame(&mut self) -> io::Result<()> {
        match self.decoder.init(&mut self.source) {
            Ok(()) => self.is_in_frame = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let length = u64::from(length);
                let skipped = io::copy(&mut (&mut self.source).take(length), &mut io::sink())?;
                if skipped < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(error) => return Err(invalid(error)),
        }
        Ok(())
    }

    fn leave_frame(&mut self) -> io::Result<()> {
        self.is_in_frame = false;
        let is_right = match self.decoder.get_checksum_from_data() {
            Some(sum) => self.decoder.get_calculated_checksum() == Some(sum),
            None => true,
        };
        if is_right { Ok(()) } else { Err(invalid("the checksum of a Zstandard frame is wrong")) }
    }
}

impl<R: Read> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_in_frame {
                if self.source.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                self.enter_frame()?;
            } else if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            } else if self.decoder.is_finished() {
                self.leave_frame()?;
            } else {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one).map_err(invalid)?;
            }
        }
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A stream that may be compressed. It must be finished.
pub enum Compressed<W: Write> {
    /// It is not.
    Plain(W),
    /// `GzipCodec`
    Gzip(GzEncoder<W>),
    /// `DefaultCodec`
    Deflate(ZlibEncoder<W>),
    /// `BZip2Codec`
    Bzip2(BzEncoder<W>),
}

impl<W: Write> std::fmt::Debug for Compressed<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressed").finish_non_exhaustive()
    }
}

impl<W: Write> Compressed<W> {
    /// A stream into another one.
    pub fn new(codec: Option<Codec>, inner: W) -> Compressed<W> {
        match codec {
            None => Compressed::Plain(inner),
            Some(Codec::Gzip) => Compressed::Gzip(GzEncoder::new(inner, Compression::default())),
            Some(Codec::Deflate) => {
                Compressed::Deflate(ZlibEncoder::new(inner, Compression::default()))
            }
            // The original's block size.
            Some(Codec::Bzip2) => {
                Compressed::Bzip2(BzEncoder::new(inner, bzip2::Compression::best()))
            }
        }
    }

    /// Writes buffered data, and returns the stream below.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Compressed::Plain(inner) => Ok(inner),
            Compressed::Gzip(encoder) => encoder.finish(),
            Compressed::Deflate(encoder) => encoder.finish(),
            Compressed::Bzip2(encoder) => encoder.finish(),
        }
    }
}

impl<W: Write> Write for Compressed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Compressed::Plain(inner) => inner.write(bytes),
            Compressed::Gzip(encoder) => encoder.write(bytes),
            Compressed::Deflate(encoder) => encoder.write(bytes),
            Compressed::Bzip2(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Compressed::Plain(inner) => inner.flush(),
            Compressed::Gzip(encoder) => encoder.flush(),
            Compressed::Deflate(encoder) => encoder.flush(),
            Compressed::Bzip2(encoder) => encoder.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CODECS: [Codec; 3] = [Codec::Deflate, Codec::Gzip, Codec::Bzip2];

    fn compressed(codec: Codec, text: &[u8]) -> Vec<u8> {
        let mut stream = Compressed::new(Some(codec), Vec::new());
        stream.write_all(text).unwrap();
        stream.finish().unwrap()
    }

    fn read(codec: Codec, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        reader(Some(codec), bytes).read_to_end(&mut text).map(|_| text)
    }

    #[test]
    fn files_of_several_members_are_read_to_their_end() {
        let parts = ["a\n".repeat(10_000), String::new(), "b\n".repeat(3)];
        for codec in [Codec::Gzip, Codec::Bzip2] {
            let file = parts.iter().flat_map(|part| compressed(codec, part.as_bytes()));
            let file: Vec<u8> = file.collect();
            assert_eq!(read(codec, &file).unwrap(), parts.concat().into_bytes(), "{codec:?}");
        }
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
    /// Written by xz 5 and zstd 1 from the lines of the others, with checksums.
    const XZ: &[u8] = include_bytes!("golden/lines.xz");
    const ZSTD: &[u8] = include_bytes!("golden/lines.zst");
    /// A frame of Zstandard that holds no data.
    const SKIPPED: &[u8] = b"\x50\x2a\x4d\x18\x03\0\0\0abc";

    const FILES: [(InputCodec, &[u8]); 3] =
        [(InputCodec::Bzip2, LEVELS[8]), (InputCodec::Xz, XZ), (InputCodec::Zstd, ZSTD)];

    fn decoded(codec: InputCodec, file: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        input_reader(Some(codec), file).read_to_end(&mut content).map(|_| content)
    }

    #[test]
    fn files_of_the_programs_of_their_formats_are_read() {
        for (level, file) in (1..).zip(LEVELS) {
            assert_eq!(file[3], b'0' + level);
            assert!(decoded(InputCodec::Bzip2, file).unwrap() == lines(6000), "level {level}");
        }
        assert!(decoded(InputCodec::Bzip2, BLOCKS).unwrap() == lines(250_000));
        assert!(decoded(InputCodec::Bzip2, ZEROS).unwrap() == vec![0; 1_000_000]);
        let streams = [LEVELS[0], NOTHING, BLOCKS, LEVELS[8]].concat();
        let expected = [lines(6000), lines(250_000), lines(6000)].concat();
        assert!(decoded(InputCodec::Bzip2, &streams).unwrap() == expected);
        let twice = [lines(6000), lines(6000)].concat();
        assert!(decoded(InputCodec::Xz, &[XZ, XZ].concat()).unwrap() == twice);
        let frames = [SKIPPED, ZSTD, SKIPPED, ZSTD, SKIPPED].concat();
        assert!(decoded(InputCodec::Zstd, &frames).unwrap() == twice);
    }

    #[test]
    fn a_file_that_was_cut_damaged_or_continued_is_an_error() {
        for (codec, file) in FILES {
            assert!(decoded(codec, file).unwrap() == lines(6000), "{codec:?}");
            for length in 1..file.len() {
                assert!(decoded(codec, &file[..length]).is_err(), "{codec:?}: {length} bytes");
            }
            assert!(decoded(codec, &[file, b"text"].concat()).is_err(), "{codec:?}: text behind");
            // Some bits of the heads have no meaning. No damage changes the content without an error.
            for bit in 0..file.len() * 8 {
                let mut file = file.to_vec();
                file[bit / 8] ^= 0x80 >> (bit % 8);
                let content = decoded(codec, &file);
                assert!(
                    content.is_err() || content.unwrap() == lines(6000),
                    "{codec:?}: bit {bit}"
                );
            }
        }
        assert!(decoded(InputCodec::Zstd, &SKIPPED[..9]).is_err());
    }

    #[test]
    fn an_xz_file_that_needs_too_much_memory_is_refused() {
        // The head of a block whose dictionary has 4 GiB less one byte.
        let mut file = XZ.to_vec();
        file[16] = 40;
        let sum = crc32fast::hash(&file[12..20]);
        file[20..24].copy_from_slice(&sum.to_le_bytes());
        let error = decoded(InputCodec::Xz, &file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{error}");
    }

    /// Reads whatever there is with a small buffer, without holding it.
    fn read_through(codec: InputCodec, file: &[u8]) {
        let mut decoder = input_reader(Some(codec), file);
        let mut buffer = [0; 4096];
        let mut most = 1 << 20;
        while most > 0 && decoder.read(&mut buffer).is_ok_and(|read| read > 0) {
            most -= 1;
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for (codec, file) in FILES {
                read_through(codec, &bytes);
                // The same behind the head of a file.
                read_through(codec, &[&file[..12], &bytes].concat());
            }
        }

        #[test]
        fn no_damage_panics(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            for (codec, file) in FILES {
                let mut file = file.to_vec();
                for (at, byte) in &changes {
                    let at = at.index(file.len());
                    file[at] = *byte;
                }
                read_through(codec, &file);
            }
        }
    }

    #[test]
    fn damaged_and_truncated_files_are_errors() {
        for codec in CODECS {
            let text: Vec<u8> = (0..50_000_u32).flat_map(|n| (n % 251).to_le_bytes()).collect();
            let whole = compressed(codec, &text);
            assert_eq!(read(codec, &whole).unwrap(), text, "{codec:?}");
            let mut damaged = whole.clone();
            damaged[whole.len() / 2] ^= 0x55;
            assert!(read(codec, &damaged).is_err(), "{codec:?}: a damaged file");
            for length in [1, whole.len() / 2, whole.len() - 1] {
                assert!(read(codec, &whole[..length]).is_err(), "{codec:?}: {length} bytes");
            }
        }
    }
}
