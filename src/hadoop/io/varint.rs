//! Hadoop's integers of variable length. Spec: mapreduce/02 §2.1.
//!
//! One byte holds -112 to 127. Any other first byte has the sign and the number of bytes that
//! follow: the value of a positive number, the complement of a negative one.

use super::DecodeError;

/// The integer that begins with this byte; `take` returns the bytes after it.
#[inline]
pub fn decode<'a>(
    first: u8,
    take: impl FnOnce(usize) -> Result<&'a [u8], DecodeError>,
) -> Result<i64, DecodeError> {
    let first = i64::from(first.cast_signed());
    let (bytes, negative) = match first {
        -128..=-121 => (-120 - first, true),
        -120..=-113 => (-112 - first, false),
        value => return Ok(value),
    };
    let magnitude = take(usize::try_from(bytes).unwrap_or_default())?
        .iter()
        .fold(0, |value: i64, byte| value << 8 | i64::from(*byte));
    Ok(if negative { !magnitude } else { magnitude })
}

/// Puts the encoding of `value`, at most nine bytes.
#[inline]
pub fn encode(value: i64, put: impl FnOnce(&[u8])) {
    if (-112..=127).contains(&value) {
        return put(&[value.to_le_bytes()[0]]);
    }
    let (magnitude, base) = if value < 0 { (!value, -120_i8) } else { (value, -112) };
    // Of eight bytes, those before the first that is not zero: seven at most.
    let skipped = magnitude.leading_zeros() as usize / 8;
    let mut encoded = [0; 9];
    encoded[1..].copy_from_slice(&magnitude.to_be_bytes());
    let used = encoded.get_mut(skipped..).unwrap_or_default();
    if let Some(first) = used.first_mut() {
        *first = i8::try_from(8 - skipped).map_or(base, |bytes| base - bytes).cast_unsigned();
    }
    put(used);
}
