//! Objects of Hadoop within JSON: the class, and the bytes that travel on the wire, which never change.

use corona_hadoop::io::{DecodeError, Reader, Writer};
use corona_hadoop::writables::Named;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The largest object, in bytes: more than any call that brings one.
const MAX_BYTES: usize = 256 << 20;

/// An object of Hadoop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encoded {
    class: String,
    hex: String,
}

/// Why there is no object.
#[derive(Debug, Error)]
pub enum NotEncoded {
    /// The bytes are not those of an object of the class.
    #[error("a {class} cannot be read: {error}")]
    Bytes {
        /// The class of the object.
        class: String,
        /// Where its bytes are wrong.
        error: DecodeError,
    },
    /// An object of another class stands there. That class.
    #[error("{0:?} is not the class of such an object")]
    Class(String),
    /// Its text is not hexadecimal.
    #[error("an object is not in hexadecimal digits")]
    Digits,
    /// The name of an attempt or job is not of its form. That name.
    #[error("a name cannot be read: {0}")]
    Name(String),
}

impl Encoded {
    /// The same object. One that is too large becomes empty, and cannot be read.
    pub fn of<T: Named>(object: &T) -> Encoded {
        let mut writer = Writer::new(MAX_BYTES);
        object.encode_fields(&mut writer);
        let hex = hex(&writer.finish().unwrap_or_default());
        Encoded { class: object.class().to_owned(), hex }
    }

    /// The object.
    ///
    /// # Errors
    /// It is of another class, or damaged.
    pub fn read<T: Named>(&self) -> Result<T, NotEncoded> {
        if !T::CLASSES.contains(&self.class.as_str()) {
            return Err(NotEncoded::Class(self.class.clone()));
        }
        let bytes = unhex(&self.hex).ok_or(NotEncoded::Digits)?;
        T::decode_fields(&self.class, &mut Reader::new(&bytes))
            .map_err(|error| NotEncoded::Bytes { class: self.class.clone(), error })
    }
}

/// A name such as that of an attempt.
///
/// # Errors
/// The text is no such name.
pub fn named<T: std::str::FromStr>(text: &str) -> Result<T, NotEncoded> {
    text.parse().map_err(|_| NotEncoded::Name(text.chars().take(200).collect()))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| DIGITS.get(usize::from(value)).map_or('0', |digit| char::from(*digit));
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    rest.is_empty().then(|| bytes.collect())?
}
