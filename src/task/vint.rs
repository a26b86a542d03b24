//! Hadoop's integers of variable length, as records of map outputs have them, on the hot path.
//!
//! The rule is `corona_hadoop::io::varint`; this module adds a way without a call for one byte.

use corona_hadoop::io::varint;

/// Appends an integer.
#[inline]
pub(crate) fn put(value: i64, out: &mut Vec<u8>) {
    match u8::try_from(value) {
        Ok(byte) if byte < 0x80 => out.push(byte),
        _ => varint::encode(value, |bytes| out.extend_from_slice(bytes)),
    }
}

/// Appends a length.
#[inline]
pub(crate) fn put_length(length: usize, out: &mut Vec<u8>) {
    put(i64::try_from(length).unwrap_or(i64::MAX), out);
}

/// The bytes that an integer takes.
#[inline]
pub(crate) fn size(value: i64) -> usize {
    let mut size = 1;
    if !(-112..=127).contains(&value) {
        varint::encode(value, |bytes| size = bytes.len());
    }
    size
}

/// The integer at the start, and the bytes that it takes. None if it is not whole, or is negative and
/// not -1, or is larger than lengths can be.
#[inline]
pub(crate) fn length(bytes: &[u8]) -> Option<(i64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((i64::from(first), 1));
    }
    let mut taken = 1;
    let value = varint::decode(first, |count| {
        taken += count;
        bytes.get(1..=count).ok_or(corona_hadoop::io::DecodeError::Truncated)
    });
    value.ok().filter(|value| (-1..=i64::from(i32::MAX)).contains(value)).map(|v| (v, taken))
}

/// The longest encoding of a length.
pub(crate) const MOST_BYTES: usize = 9;

/// Appends a text as Hadoop writes one: its length, then its bytes.
#[inline]
pub(crate) fn put_text(text: &[u8], out: &mut Vec<u8>) {
    put_length(text.len(), out);
    out.extend_from_slice(text);
}

/// The content of a text as Hadoop writes one: the bytes after its length. Bytes that are not a
/// text are their own content.
#[inline]
pub(crate) fn text(bytes: &[u8]) -> &[u8] {
    match length(bytes) {
        Some((_, taken)) => bytes.get(taken..).unwrap_or_default(),
        None => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_are_read_as_they_are_written() {
        for value in [0, 1, 127, 128, 255, 256, 65_535, 65_536, i64::from(i32::MAX), -1] {
            let mut bytes = Vec::new();
            put(value, &mut bytes);
            assert_eq!(length(&bytes), Some((value, bytes.len())), "{value}");
            assert_eq!(size(value), bytes.len());
            assert_eq!(length(&bytes[..bytes.len() - 1]), None, "{value}");
        }
        for bytes in [&[][..], &[0x8b, 0x7f, 0xff, 0xff, 0xff, 0xff], &[0x90]] {
            assert_eq!(length(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let _ = (length(&bytes), text(&bytes));
        }

        #[test]
        fn texts_keep_their_content(content in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = Vec::new();
            put_text(&content, &mut bytes);
            prop_assert_eq!(text(&bytes), &content[..]);
        }
    }
}
