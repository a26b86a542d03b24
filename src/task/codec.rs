//! Compressed streams: which codec a job names, and its reader and writer.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::{GzEncoder, ZlibEncoder};

pub use corona_mapreduce::native::Codec;

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
