//! Texts of bounded length, and their order.

use std::cmp::Ordering;

/// The end of the longest beginning of a text that has at most so many bytes. It never parts a character.
pub fn boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0)
}

/// The longest beginning of a text that has at most so many bytes.
pub fn cut(text: &str, most: usize) -> &str {
    text.get(..boundary(text, most)).unwrap_or_default()
}

/// The order of names in which `node9` precedes `node10`: runs of digits compare as numbers.
/// Names that differ only in leading zeros are ordered by their text.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = |text: &'_ [u8], length: usize| -> (usize, usize) {
        let zeros = text[..length].iter().take_while(|byte| **byte == b'0').count();
        (zeros, length)
    };
    loop {
        let (left_digits, right_digits) = (digits(left), digits(right));
        if left_digits > 0 && right_digits > 0 {
            let (left_zeros, left_end) = number(left, left_digits);
            let (right_zeros, right_end) = number(right, right_digits);
            let (x, y) = (&left[left_zeros..left_end], &right[right_zeros..right_end]);
            // Without leading zeros the longer number is the larger one.
            match x.len().cmp(&y.len()).then_with(|| x.cmp(y)) {
                Ordering::Equal => {}
                other => return other,
            }
            (left, right) = (&left[left_end..], &right[right_end..]);
            continue;
        }
        match (left.split_first(), right.split_first()) {
            (Some((x, left_rest)), Some((y, right_rest))) if x == y => {
                (left, right) = (left_rest, right_rest);
            }
            (Some((x, _)), Some((y, _))) => return x.cmp(y),
            (None, None) => return a.cmp(b),
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_parted() {
        for (text, most, expected) in
            [("", 0, ""), ("ab", 1, "a"), ("ab", 9, "ab"), ("a€b", 3, "a"), ("a€b", 4, "a€")]
        {
            assert_eq!(cut(text, most), expected, "{text} {most}");
        }
    }

    #[test]
    fn numbers_in_names_are_ordered_as_numbers() {
        let sorted = [
            "",
            "9",
            "10",
            "a",
            "a.b",
            "n",
            "n01",
            "n1",
            "n2",
            "n2.b",
            "n10",
            "n10.a",
            "n10.b2",
            "n10.b11",
            "n99999999999999999999998",
            "n99999999999999999999999",
            "é1",
            "é2",
        ];
        for (at, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                assert_eq!(natural_order(a, b), at.cmp(&other), "{a} {b}");
            }
        }
    }
}
