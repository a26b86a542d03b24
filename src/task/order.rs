//! The order of keys: by their bytes, or by parts of them as the original's `KeyFieldBasedComparator`.
//!
//! Pure. Spec: mapreduce/04 §4.9.

use std::cmp::Ordering;

use corona_mapreduce::native::{KeyOrder, SortField};

use crate::partition::{part_end, part_start};

/// Compares the contents of two keys. By parts, the order is that of the original, which for texts that
/// are no numbers need not be a total one.
#[inline]
pub(crate) fn compare(order: &KeyOrder, one: &[u8], other: &[u8]) -> Ordering {
    match order {
        KeyOrder::Bytes => one.cmp(other),
        KeyOrder::Fields { separator, fields } => by_fields(one, other, separator, fields),
    }
}

/// The first bytes of a key as a number: keys with different ones compare as these.
#[inline]
pub(crate) fn prefix(order: &KeyOrder, content: &[u8]) -> u64 {
    if !matches!(order, KeyOrder::Bytes) {
        return 0;
    }
    match content.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            for (to, from) in padded.iter_mut().zip(content) {
                *to = *from;
            }
            u64::from_be_bytes(padded)
        }
    }
}

fn by_fields(one: &[u8], other: &[u8], separator: &[u8], fields: &[SortField]) -> Ordering {
    let orders = fields.iter().map(|sorted| {
        let part = |key| Part::of(key, separator, sorted);
        let order = match (part(one), part(other)) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(one), Some(other)) if sorted.numeric => compare_numbers(&one, &other),
            (Some(one), Some(other)) => one.bytes.cmp(other.bytes),
        };
        if sorted.reverse { order.reverse() } else { order }
    });
    orders.fold(Ordering::Equal, Ordering::then)
}

/// A part of a key.
struct Part<'a> {
    bytes: &'a [u8],
    /// The key's byte where the part begins, which need not be in the part.
    first: u8,
}

impl<'a> Part<'a> {
    fn of(key: &'a [u8], separator: &[u8], sorted: &SortField) -> Option<Part<'a>> {
        let start = part_start(key, separator, &sorted.field)?;
        let end = part_end(key, separator, &sorted.field);
        // A part that ends before it begins is empty.
        let bytes = key.get(start..end.max(start))?;
        Some(Part { bytes, first: *key.get(start)? })
    }
}

/// The number at the start of a text, such as `-12.50`. The rules are those of the original:
/// what is no digit ends the number, a text without digits is a zero, and two numbers of one value whose
/// integers have the same digits but different leading zeros compare by their first bytes.
fn compare_numbers(one: &Part<'_>, other: &Part<'_>) -> Ordering {
    let is_negative = |part: &Part<'_>| part.first == b'-';
    let digits = |part: &Part<'_>| part.bytes.len().min(usize::from(is_negative(part)));
    let magnitudes = (behind(one.bytes, digits(one)), behind(other.bytes, digits(other)));
    match (is_negative(one), is_negative(other)) {
        (true, false) | (false, true) if is_zero(magnitudes.0) && is_zero(magnitudes.1) => {
            Ordering::Equal
        }
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (true, true) => {
            compare_magnitudes(magnitudes.0, magnitudes.1, one.first, other.first).reverse()
        }
        (false, false) => compare_magnitudes(magnitudes.0, magnitudes.1, one.first, other.first),
    }
}

fn behind(bytes: &[u8], count: usize) -> &[u8] {
    bytes.get(count..).unwrap_or_default()
}

fn without_zeros(bytes: &[u8]) -> &[u8] {
    behind(bytes, bytes.iter().take_while(|byte| **byte == b'0').count())
}

fn starts_with_digit(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(u8::is_ascii_digit)
}

fn is_zero(number: &[u8]) -> bool {
    let rest = without_zeros(number);
    match rest.first() {
        Some(b'.') => !has_fraction(behind(rest, 1)),
        _ => !starts_with_digit(rest),
    }
}

/// Whether the digits of a fraction are more than zeros.
fn has_fraction(digits: &[u8]) -> bool {
    starts_with_digit(without_zeros(digits))
}

fn compare_magnitudes(one: &[u8], other: &[u8], first: u8, other_first: u8) -> Ordering {
    let (one, other) = (without_zeros(one), without_zeros(other));
    let same = one.iter().zip(other).take_while(|(a, b)| a == b && a.is_ascii_digit()).count();
    let (one, other) = (behind(one, same), behind(other, same));
    let (next, other_next) = (one.first(), other.first());
    let ends = |next: Option<&u8>| !next.is_some_and(u8::is_ascii_digit);
    if (next == Some(&b'.') && ends(other_next)) || (other_next == Some(&b'.') && ends(next)) {
        return compare_fractions(one, other);
    }
    // The integer with more digits is larger; with as many, the first digit that differs decides.
    let count = |rest: &[u8]| rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // Behind its end, the original compares the first byte of the number; bytes are signed there.
    let signed = |next: Option<&u8>, first: u8| next.copied().unwrap_or(first).cast_signed();
    let by_byte = signed(next, first).cmp(&signed(other_next, other_first));
    count(one).cmp(&count(other)).then(by_byte)
}

/// Compares what follows equal integers, of which at least one begins with a point.
fn compare_fractions(one: &[u8], other: &[u8]) -> Ordering {
    let fraction = |rest: &[u8]| has_fraction(behind(rest, 1));
    match (one.first(), other.first()) {
        (Some(b'.'), Some(b'.')) => {}
        (Some(b'.'), _) => return fraction(one).cmp(&false),
        _ => return false.cmp(&fraction(other)),
    }
    let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (one, other) = (behind(one, same), behind(other, same));
    match (one.first(), other.first()) {
        (Some(a), Some(b)) => match (a.is_ascii_digit(), b.is_ascii_digit()) {
            (true, true) => a.cmp(b),
            (a_digit, b_digit) => a_digit.cmp(&b_digit),
        },
        _ => has_fraction(one).cmp(&has_fraction(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corona_mapreduce::native::KeyField;
    use proptest::prelude::*;

    fn order(fields: &[(usize, usize, &str)]) -> KeyOrder {
        let fields = fields.iter().map(|&(begin_field, end_field, options)| SortField {
            field: KeyField { begin_field, begin_char: 1, end_field, end_char: 0 },
            numeric: options.contains('n'),
            reverse: options.contains('r'),
        });
        KeyOrder::Fields { separator: b" ".to_vec(), fields: fields.collect() }
    }

    fn check(order: &KeyOrder, one: &str, other: &str, expected: Ordering) {
        assert_eq!(compare(order, one.as_bytes(), other.as_bytes()), expected, "{one:?} {other:?}");
        let reversed = expected.reverse();
        assert_eq!(compare(order, other.as_bytes(), one.as_bytes()), reversed, "{other:?} {one:?}");
    }

    #[test]
    fn numbers_compare_as_in_the_original() {
        let numeric = order(&[(1, 1, "n")]);
        let ascending = [
            "-20",
            "-3.5",
            "-3.25",
            "-0.001",
            "0",
            "0.5",
            "0.51",
            "1",
            "1.5",
            "2",
            "10",
            "10.01",
            "99",
            "100",
            "123456789012345678901234567890",
        ];
        for (at, one) in ascending.iter().enumerate() {
            check(&numeric, one, one, Ordering::Equal);
            for other in ascending.iter().skip(at + 1) {
                check(&numeric, one, other, Ordering::Less);
            }
        }
        for (one, other, expected) in [
            ("-0.0", "0", Ordering::Equal),
            ("-0.0", "0.00", Ordering::Equal),
            ("-x", "0", Ordering::Equal),
            ("-", "1", Ordering::Less),
            ("1.", "1", Ordering::Equal),
            ("1.50", "1.5", Ordering::Equal),
            (".5", "0.5", Ordering::Equal),
            ("1.5x", "1.5y", Ordering::Equal),
            ("1.5x", "1.51", Ordering::Less),
            // Leading zeros count if nothing else differs, and what follows a number does, too.
            ("01", "1", Ordering::Less),
            ("5 x", "5", Ordering::Equal),
            ("5x", "5", Ordering::Greater),
        ] {
            check(&numeric, one, other, expected);
        }
    }

    #[test]
    fn parts_of_keys_decide_one_after_the_other() {
        let mixed = order(&[(2, 2, "nr"), (1, 1, "")]);
        let sorted = ["b 20", "a 3", "c 3", "a 1", "a"];
        // A key without the part is smaller, which is last in reverse.
        for (at, one) in sorted.iter().enumerate() {
            for other in sorted.iter().skip(at + 1) {
                check(&mixed, one, other, Ordering::Less);
            }
        }
        check(&order(&[(2, 0, "")]), "a b c", "z b c", Ordering::Equal);
        check(&order(&[(2, 1, "n")]), "a b c", "z b c", Ordering::Equal);
        check(&order(&[(1, 0, "r")]), "b", "a", Ordering::Less);
        check(&KeyOrder::Bytes, "a", "ab", Ordering::Less);
    }

    proptest! {
        /// Plain numbers, of which the original's order is that of their values.
        #[test]
        fn plain_numbers_have_the_order_of_their_values(
            one in -3000_i64..3000, other in -3000_i64..3000, scale in 0_usize..3,
        ) {
            let text = |number: i64| {
                let (sign, size) = (if number < 0 { "-" } else { "" }, number.unsigned_abs());
                let whole = 10_u64.pow(scale as u32);
                match scale {
                    0 => format!("{sign}{size}"),
                    _ => format!("{sign}{}.{:0scale$}", size / whole, size % whole),
                }
            };
            let found = compare(&order(&[(1, 1, "n")]), text(one).as_bytes(), text(other).as_bytes());
            prop_assert_eq!(found, one.cmp(&other));
        }

        #[test]
        fn no_keys_panic(one in "[-0-9. a]{0,8}", other in "[-0-9. a]{0,8}", begin in 1_usize..4, end in 0_usize..4) {
            let order = order(&[(begin, end, "n"), (end + 1, begin, "r")]);
            let (one, other) = (one.as_bytes(), other.as_bytes());
            prop_assert_eq!(compare(&order, one, other), compare(&order, other, one).reverse());
        }

        #[test]
        fn prefixes_order_as_keys_do(
            one in prop::collection::vec(any::<u8>(), 0..12),
            other in prop::collection::vec(any::<u8>(), 0..12),
        ) {
            let prefix = |key: &[u8]| prefix(&KeyOrder::Bytes, key);
            if prefix(&one) != prefix(&other) {
                prop_assert_eq!(prefix(&one) < prefix(&other), one < other);
            }
        }
    }
}
