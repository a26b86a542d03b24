//! Writes Java's encodings, up to a limit.

use thiserror::Error;

use super::{utf8, varint};

/// The output is larger than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("more than {max_bytes} bytes")]
pub struct TooLarge {
    /// The limit, in bytes.
    pub max_bytes: usize,
}

/// Bytes that grow up to a limit. Beyond it nothing is kept, and [`finish`](Writer::finish) returns
/// an error.
#[derive(Clone, Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    max_bytes: usize,
    overflown: bool,
}

impl Writer {
    /// An empty writer for at most this many bytes.
    pub fn new(max_bytes: usize) -> Writer {
        Writer { bytes: Vec::new(), max_bytes, overflown: false }
    }

    /// The written bytes.
    ///
    /// Errors: it was too large, or had more items than a count can hold.
    pub fn finish(self) -> Result<Vec<u8>, TooLarge> {
        match self.overflown {
            false => Ok(self.bytes),
            true => Err(TooLarge { max_bytes: self.max_bytes }),
        }
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// These bytes as they are.
    pub fn put(&mut self, bytes: &[u8]) {
        let fits = self.max_bytes.saturating_sub(self.bytes.len()) >= bytes.len();
        if fits && !self.overflown {
            self.bytes.extend_from_slice(bytes);
        } else {
            self.overflown = true;
        }
    }

    /// A number of items or bytes as Java counts them.
    pub fn count(&mut self, count: usize) -> i32 {
        i32::try_from(count).unwrap_or_else(|_| {
            self.overflown = true;
            0
        })
    }

    /// A Java `boolean`.
    pub fn bool(&mut self, value: bool) {
        self.put(&[value.into()]);
    }

    /// A Java `byte`.
    pub fn i8(&mut self, value: i8) {
        self.put(&value.to_be_bytes());
    }

    /// A Java `short`.
    pub fn i16(&mut self, value: i16) {
        self.put(&value.to_be_bytes());
    }

    /// A Java `char`.
    pub fn u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    /// A Java `int`.
    pub fn i32(&mut self, value: i32) {
        self.put(&value.to_be_bytes());
    }

    /// A Java `long`.
    pub fn i64(&mut self, value: i64) {
        self.put(&value.to_be_bytes());
    }

    /// A Java `float`.
    pub fn f32(&mut self, value: f32) {
        self.put(&value.to_be_bytes());
    }

    /// A Java `double`.
    pub fn f64(&mut self, value: f64) {
        self.put(&value.to_be_bytes());
    }

    /// A `VLong`.
    pub fn vlong(&mut self, value: i64) {
        varint::encode(value, |bytes| self.put(bytes));
    }

    /// A `VInt`.
    pub fn vint(&mut self, value: i32) {
        self.vlong(value.into());
    }

    /// A `Text`.
    pub fn text(&mut self, text: &str) {
        let length = self.count(text.len());
        self.vint(length);
        self.put(text.as_bytes());
    }

    /// A string after its length as an `int`, or a null.
    pub fn wstring(&mut self, text: Option<&str>) {
        let length = text.map_or(-1, |text| self.count(text.len()));
        self.i32(length);
        self.put(text.unwrap_or_default().as_bytes());
    }

    /// A string in Hadoop's old encoding, cut to the longest that it can hold. Spec: mapreduce/01
    /// §1.5.3.
    pub fn utf8(&mut self, text: &str) {
        let encoded = utf8::encode(text);
        self.u16(u16::try_from(encoded.len()).unwrap_or(u16::MAX));
        self.put(&encoded);
    }
}
