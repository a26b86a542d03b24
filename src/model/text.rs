//! Texts of bounded length.

/// The end of the longest beginning of a text that has at most so many bytes. It never parts a character.
pub fn boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0)
}

/// The longest beginning of a text that has at most so many bytes.
pub fn cut(text: &str, most: usize) -> &str {
    text.get(..boundary(text, most)).unwrap_or_default()
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
}
