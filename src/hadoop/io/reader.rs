//! Reads Java's encodings from bytes that a stranger sent.

use thiserror::Error;

use super::{utf8, varint};

/// Why bytes cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// More bytes are needed. From a [partial](Reader::partial) reader this means "not yet".
    #[error("the bytes end too early")]
    Truncated,
    /// A length or count that is negative, or greater than the bytes that may follow.
    #[error("a length of {length} where at most {left} bytes can follow")]
    Length {
        /// The encoded length.
        length: i64,
        /// The number of bytes that may follow.
        left: usize,
    },
    /// A null where the original takes none.
    #[error("a null where a string is due")]
    Null,
    /// The name of no constant of this enum.
    #[error("{name:?} is not a valid {kind}")]
    Constant {
        /// The enum.
        kind: &'static str,
        /// The found name, cut to a sensible length.
        name: String,
    },
    /// A class that does not exist, or may not stand here.
    #[error("class {0:?} is not known here")]
    Class(String),
    /// A number that is no port.
    #[error("{0} is not a port")]
    Port(i32),
    /// A number that has no meaning at its place.
    #[error("{value} is not a valid {kind}")]
    Number {
        /// The expected kind.
        kind: &'static str,
        /// The found value.
        value: i64,
    },
    /// Arrays inside one another beyond any sense.
    #[error("arrays are nested too deeply")]
    Depth,
    /// A checksum that does not fit its bytes.
    #[error("the checksum is wrong")]
    Checksum,
}

/// The longest name that an error quotes, in characters.
const QUOTED_CHARS: usize = 120;

impl DecodeError {
    /// An error about a name that a peer sent: it is cut, since errors are logged.
    pub(crate) fn constant(kind: &'static str, name: &str) -> DecodeError {
        DecodeError::Constant { kind, name: beginning_of(name) }
    }

    /// The same for the name of a class.
    pub(crate) fn class(name: &str) -> DecodeError {
        DecodeError::Class(beginning_of(name))
    }
}

fn beginning_of(name: &str) -> String {
    name.chars().take(QUOTED_CHARS).collect()
}

/// A place in a slice of bytes.
///
/// All numbers are big-endian. Nothing is allocated before the bytes that fill it are known to be
/// there.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    /// No position can ever be beyond this; more than `bytes` if more may come.
    limit: usize,
}

impl<'a> Reader<'a> {
    /// A reader of complete bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, position: 0, limit: bytes.len() }
    }

    /// A reader of the beginning of a stream, which may grow to `max_bytes`. Incomplete data give
    /// [`DecodeError::Truncated`]; data that could never be complete within the limit give
    /// [`DecodeError::Length`].
    pub fn partial(bytes: &'a [u8], max_bytes: usize) -> Reader<'a> {
        Reader { bytes, position: 0, limit: max_bytes.max(bytes.len()) }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Available bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// The most that may still follow, in bytes.
    fn left(&self) -> usize {
        self.limit - self.position
    }

    /// Checks a number of bytes, or of items of at least a byte each, against the bytes that may
    /// follow.
    ///
    /// Errors: it is negative or too great.
    pub fn length(&self, length: i64) -> Result<usize, DecodeError> {
        let left = self.left();
        let wrong = DecodeError::Length { length, left };
        match usize::try_from(length) {
            Ok(length) if length <= left => Ok(length),
            _ => Err(wrong),
        }
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let length = self.length(i64::try_from(length).unwrap_or(i64::MAX))?;
        let taken = self.rest().get(..length).ok_or(DecodeError::Truncated)?;
        self.position += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let taken = self.rest().first_chunk().ok_or(DecodeError::Truncated)?;
        self.position += N;
        Ok(*taken)
    }

    /// One byte; any that is not zero is true.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        self.array::<1>().map(|[byte]| byte != 0)
    }

    /// A Java `byte`.
    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        self.array().map(i8::from_be_bytes)
    }

    /// A Java `short`.
    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        self.array().map(i16::from_be_bytes)
    }

    /// A Java `char`.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    /// A Java `int`.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.array().map(i32::from_be_bytes)
    }

    /// A Java `long`.
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.array().map(i64::from_be_bytes)
    }

    /// A Java `float`.
    pub fn f32(&mut self) -> Result<f32, DecodeError> {
        self.array().map(f32::from_be_bytes)
    }

    /// A Java `double`.
    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        self.array().map(f64::from_be_bytes)
    }

    /// A `VLong` of one to nine bytes.
    pub fn vlong(&mut self) -> Result<i64, DecodeError> {
        let [first] = self.array()?;
        varint::decode(first, |bytes| self.take(bytes))
    }

    /// A `VInt`: the low 32 bits of a [`VLong`](Reader::vlong), as in the original.
    #[allow(clippy::cast_possible_truncation, reason = "as in the original")]
    pub fn vint(&mut self) -> Result<i32, DecodeError> {
        self.vlong().map(|value| value as i32)
    }

    /// A `Text`. Bytes that are not UTF-8 become U+FFFD, as in the original.
    pub fn text(&mut self) -> Result<String, DecodeError> {
        let length = self.vint()?;
        self.string(length)
    }

    /// A `Text` that may be null.
    pub fn nullable_text(&mut self) -> Result<Option<String>, DecodeError> {
        match self.vint()? {
            -1 => Ok(None),
            length => self.string(length).map(Some),
        }
    }

    /// A string after its length as an `int`; null is a length of -1.
    pub fn wstring(&mut self) -> Result<Option<String>, DecodeError> {
        match self.i32()? {
            -1 => Ok(None),
            length => self.string(length).map(Some),
        }
    }

    /// A string in Hadoop's old encoding: at most 65,535 bytes, no null. Spec: mapreduce/01 §1.5.3.
    pub fn utf8(&mut self) -> Result<String, DecodeError> {
        let length = self.u16()?;
        self.take(length.into()).map(utf8::decode)
    }

    fn string(&mut self, length: i32) -> Result<String, DecodeError> {
        let length = self.length(length.into())?;
        self.take(length).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}
