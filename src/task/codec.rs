//! Compressed streams: which codec a job names, and its reader and writer.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::{GzEncoder, ZlibEncoder};

pub use corona_mapreduce::native::{Codec, InputCodec};

use crate::bzip2;

/// Reads a file of the input. A file of several members or streams reads as one.
pub fn input_reader<'a>(
    codec: Option<InputCodec>,
    inner: impl Read + Send + 'a,
) -> Box<dyn Read + Send + 'a> {
    match codec {
        None => Box::new(inner),
        Some(InputCodec::Gzip) => reader(Some(Codec::Gzip), inner),
        Some(InputCodec::Deflate) => reader(Some(Codec::Deflate), inner),
        Some(InputCodec::Bzip2) => Box::new(bzip2::Decoder::new(inner)),
    }
}

/// Reads a codec's output. A file of several members reads as one.
pub fn reader<'a>(codec: Option<Codec>, inner: impl Read + Send + 'a) -> Box<dyn Read + Send + 'a> {
    match codec {
        None => Box::new(inner),
        Some(Codec::Gzip) => Box::new(MultiGzDecoder::new(inner)),
        Some(Codec::Deflate) => Box::new(flate2::read::ZlibDecoder::new(inner)),
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

/// A stream that may be compressed. It must be finished.
#[derive(Debug)]
pub enum Compressed<W: Write> {
    /// It is not.
    Plain(W),
    /// `GzipCodec`
    Gzip(GzEncoder<W>),
    /// `DefaultCodec`
    Deflate(ZlibEncoder<W>),
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
        }
    }

    /// Writes buffered data, and returns the stream below.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Compressed::Plain(inner) => Ok(inner),
            Compressed::Gzip(encoder) => encoder.finish(),
            Compressed::Deflate(encoder) => encoder.finish(),
        }
    }
}

impl<W: Write> Write for Compressed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Compressed::Plain(inner) => inner.write(bytes),
            Compressed::Gzip(encoder) => encoder.write(bytes),
            Compressed::Deflate(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Compressed::Plain(inner) => inner.flush(),
            Compressed::Gzip(encoder) => encoder.flush(),
            Compressed::Deflate(encoder) => encoder.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODECS: [Codec; 2] = [Codec::Deflate, Codec::Gzip];

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
        let file = parts.iter().flat_map(|part| compressed(Codec::Gzip, part.as_bytes()));
        let file: Vec<u8> = file.collect();
        assert_eq!(read(Codec::Gzip, &file).unwrap(), parts.concat().into_bytes());
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
