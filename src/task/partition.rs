//! Which reduce gets a key: the same as in Java, so that maps of both kinds can feed one reduce.
//!
//! Pure. Spec: mapreduce/04 §4.9.

use corona_mapreduce::native::{KeyField, Partitioning};
use memchr::memmem;

/// Distributes keys to reduces.
#[derive(Clone, Debug)]
pub struct Partitioner {
    reduces: u32,
    by: Partitioning,
}

impl Partitioner {
    /// A partitioner for so many reduces, at least one.
    pub fn new(by: Partitioning, reduces: u32) -> Partitioner {
        Partitioner { reduces: reduces.max(1), by }
    }

    /// The number of the reduce for a key's content.
    #[inline]
    pub fn of(&self, key: &[u8]) -> u32 {
        if self.reduces == 1 {
            return 0;
        }
        let hash = match &self.by {
            Partitioning::Hash => add(1, key),
            Partitioning::KeyFields { fields, .. } if fields.is_empty() => text_hash(key),
            Partitioning::KeyFields { separator, fields } => fields_hash(key, separator, fields),
        };
        (hash.cast_unsigned() & 0x7fff_ffff) % self.reduces
    }
}

/// Java's hash over bytes, which are signed there.
#[inline]
fn add(hash: i32, bytes: &[u8]) -> i32 {
    bytes
        .iter()
        .fold(hash, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte.cast_signed())))
}

/// The hash of a Java string: of its UTF-16 units.
fn text_hash(key: &[u8]) -> i32 {
    let text = String::from_utf8_lossy(key);
    text.encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

fn fields_hash(key: &[u8], separator: &[u8], fields: &[KeyField]) -> i32 {
    let parts = fields.iter().filter_map(|field| {
        let start = part_start(key, separator, field)?;
        key.get(start..part_end(key, separator, field))
    });
    parts.fold(0, add)
}

/// The lengths of the fields. As in the original, a separator counts as one byte, however long it is,
/// where the next field is looked for.
fn lengths<'a>(key: &'a [u8], separator: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let mut rest = Some(key);
    std::iter::from_fn(move || {
        let field = rest?;
        let found = match separator {
            [] => None,
            [one] => memchr::memchr(*one, field),
            _ => memmem::find(field, separator),
        };
        rest = found.and_then(|at| field.get(at + 1..));
        Some(found.unwrap_or(field.len()))
    })
}

/// The first byte of a part of a key. None: the key has no such part.
pub(crate) fn part_start(key: &[u8], separator: &[u8], part: &KeyField) -> Option<usize> {
    let mut lengths = lengths(key, separator);
    let mut at = 0;
    for _ in 1..part.begin_field {
        at += lengths.next()? + separator.len();
    }
    lengths.next()?;
    let at = at.checked_add(part.begin_char)?;
    (at <= key.len()).then(|| at.saturating_sub(1))
}

/// The place behind the last byte of a part, which may lie before its first byte.
pub(crate) fn part_end(key: &[u8], separator: &[u8], part: &KeyField) -> usize {
    let end = || {
        let mut lengths = lengths(key, separator);
        let mut at = 0;
        for _ in 1..part.end_field {
            at += lengths.next()? + separator.len();
        }
        let last = lengths.next()?;
        let at = if part.end_char == 0 { at + last } else { at.checked_add(part.end_char)? };
        (at <= key.len()).then_some(at)
    };
    if part.end_field == 0 { key.len() } else { end().unwrap_or(key.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(begin_field: usize, begin_char: usize, end_field: usize, end_char: usize) -> KeyField {
        KeyField { begin_field, begin_char, end_field, end_char }
    }

    /// Values that the original's `Text.hashCode` gives: 31 times the hash, plus each signed byte, from 1.
    #[test]
    fn hashes_are_those_of_java() {
        for (key, expected) in [
            (&b""[..], 1),
            (b"a", 128),
            (b"ab", 31 * 128 + 98),
            ("\u{e9}".as_bytes(), (31 - 61) * 31 - 87),
        ] {
            assert_eq!(add(1, key), expected, "{key:?}");
        }
        assert_eq!(text_hash(b"hello"), 99_162_322);
        assert_eq!(add(0, b"hello"), 99_162_322);
        let hashed = Partitioner::new(Partitioning::Hash, 7);
        assert_eq!(hashed.of(b"ab"), (31 * 128 + 98) % 7);
        // A negative hash counts without its sign.
        assert_eq!(hashed.of("\u{e9}".as_bytes()), ((-1017_i32 as u32) & 0x7fff_ffff) % 7);
    }

    #[test]
    fn parts_of_keys_are_cut_as_the_original_cuts_them() {
        let key = b"ab.cde.f";
        for (field, expected) in [
            (field(1, 1, 0, 0), Some(&b"ab.cde.f"[..])),
            (field(2, 1, 0, 0), Some(b"cde.f")),
            (field(2, 1, 2, 0), Some(b"cde")),
            (field(2, 2, 2, 2), Some(b"d")),
            (field(1, 2, 2, 1), Some(b"b.c")),
            (field(3, 1, 3, 9), Some(b"f")),
            (field(4, 1, 4, 0), None),
            (field(3, 2, 3, 0), Some(b"")),
        ] {
            let part = part_start(key, b".", &field)
                .and_then(|from| key.get(from..part_end(key, b".", &field)));
            assert_eq!(part.unwrap_or_default(), expected.unwrap_or_default(), "{field:?}");
        }
    }

    #[test]
    fn keys_with_the_same_part_go_to_the_same_reduce() {
        let by =
            Partitioning::KeyFields { separator: b".".to_vec(), fields: vec![field(1, 1, 2, 0)] };
        let partitioner = Partitioner::new(by, 97);
        assert_eq!(partitioner.of(b"11.12.1"), partitioner.of(b"11.12.2"));
        assert_ne!(partitioner.of(b"11.12.1"), partitioner.of(b"11.14.1"));
    }

    proptest! {
        #[test]
        fn no_key_panics(
            key in prop::collection::vec(any::<u8>(), 0..30),
            numbers in prop::collection::vec(0_usize..6, 4),
            separator in "[a.]{0,3}",
        ) {
            let part = field(numbers[0] + 1, numbers[1] + 1, numbers[2], numbers[3]);
            let by = Partitioning::KeyFields { separator: separator.into_bytes(), fields: vec![part] };
            prop_assert!(Partitioner::new(by, 5).of(&key) < 5);
        }
    }
}
