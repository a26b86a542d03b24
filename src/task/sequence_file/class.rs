//! The classes of keys and values whose texts are known.

use corona_hadoop::io::{DecodeError, Reader};

/// A class of keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Text,
    Bytes,
    Byte,
    Int,
    Long,
    VInt,
    VLong,
    Boolean,
    Null,
}

const PACKAGE: &str = "org.apache.hadoop.io.";
const CLASSES: [(&str, Class); 9] = [
    ("Text", Class::Text),
    ("BytesWritable", Class::Bytes),
    ("ByteWritable", Class::Byte),
    ("IntWritable", Class::Int),
    ("LongWritable", Class::Long),
    ("VIntWritable", Class::VInt),
    ("VLongWritable", Class::VLong),
    ("BooleanWritable", Class::Boolean),
    ("NullWritable", Class::Null),
];

/// The names of all, for people.
pub(super) fn names() -> String {
    CLASSES.map(|(name, _)| name).join(", ")
}

impl Class {
    /// The class of this name of Java.
    pub(super) fn of(name: &str) -> Option<Class> {
        let simple = name.strip_prefix(PACKAGE)?;
        CLASSES.into_iter().find(|(name, _)| *name == simple).map(|(_, class)| class)
    }

    /// Appends the text of an object from its bytes: as streaming passes it to programs, or as Java's `toString` has it, which
    /// differs for `BytesWritable`.
    ///
    /// # Errors
    /// The bytes are none of the class.
    pub(super) fn put_text(
        self,
        bytes: &[u8],
        as_java: bool,
        to: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut number = |number: i64| to.extend_from_slice(number.to_string().as_bytes());
        match self {
            Class::Text => {
                let length = reader.vint()?;
                let length = reader.length(length.into())?;
                to.extend_from_slice(reader.take(length)?);
            }
            Class::Bytes => {
                let length = reader.i32()?;
                let length = reader.length(length.into())?;
                let bytes = reader.take(length)?;
                if as_java { put_hexadecimal(bytes, to) } else { to.extend_from_slice(bytes) }
            }
            Class::Byte => number(reader.i8()?.into()),
            Class::Int => number(reader.i32()?.into()),
            Class::Long => number(reader.i64()?),
            Class::VInt => number(reader.vint()?.into()),
            Class::VLong => number(reader.vlong()?),
            Class::Boolean => {
                let text: &[u8] = if reader.bool()? { b"true" } else { b"false" };
                to.extend_from_slice(text);
            }
            Class::Null => to.extend_from_slice(b"(null)"),
        }
        match reader.rest() {
            [] => Ok(()),
            _ => Err(DecodeError::Length { length: bytes.len() as i64, left: reader.position() }),
        }
    }
}

/// Pairs of digits with blanks between.
fn put_hexadecimal(bytes: &[u8], to: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |byte: u8| DIGITS.get(usize::from(byte)).copied().unwrap_or_default();
    for (number, byte) in bytes.iter().enumerate() {
        if number > 0 {
            to.push(b' ');
        }
        to.extend([digit(byte >> 4), digit(byte & 15)]);
    }
}
