//! Sequence files, Hadoop's files of keys and values, plain or compressed by records or by blocks. Pure: they know only
//! [`Read`](std::io::Read) and [`Write`](std::io::Write).
//!
//! Versions 4 to 6 of the form are read, version 6 is written.

mod class;
mod reader;
mod writer;

pub(crate) use reader::{Header, MOST_HEADER_BYTES, SequenceRecords};
pub use reader::{SequenceError, SequenceText};
pub(crate) use writer::{SequenceFile, random_mark};

/// What a file begins with, before the number of its version.
pub const MAGIC: &[u8; 3] = b"SEQ";
const LATEST: u8 = 6;
/// A mark stands before each block, and now and then before a record; this number, which is no length, before each mark.
const ESCAPE: [u8; 4] = [0xff; 4];
const MARK_BYTES: usize = 16;

#[cfg(test)]
mod tests;
