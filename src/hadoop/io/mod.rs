//! Java's data encodings over byte slices: primitives, variable-length integers, three kinds of
//! strings.
//!
//! Knows no Hadoop object. A [`Reader`] compares each length with the bytes that may still follow
//! before it allocates, a [`Writer`] stops at its limit, and [`formats`] name the encodings so that
//! an object can be described field by field. Spec: mapreduce/02 §2.1.

pub mod formats;
mod reader;
#[cfg(test)]
mod tests;
mod utf8;
pub mod varint;
mod writer;

pub use reader::{DecodeError, Reader};
pub use writer::{TooLarge, Writer};
