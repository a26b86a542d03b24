//! Texts of bounded length, their order, and their characters that people do not see.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Write;

/// The end of the longest beginning of a text that has at most so many bytes. It never parts a character.
pub fn boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0)
}

/// The longest beginning of a text that has at most so many bytes.
pub fn cut(text: &str, most: usize) -> &str {
    text.get(..boundary(text, most)).unwrap_or_default()
}

/// A text as one word of a shell.
pub fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A text as one word of a command that a person reads: as [`shell_word`] where a shell needs that.
pub fn word_of_line(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._/:@,+=".contains(c);
    match !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => shell_word(text),
    }
}

/// A text as the text of an element, or as the value of an attribute in double quotes, of XML and HTML.
pub fn escape_markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Whether a character is not seen, or changes how others are seen: it controls a terminal, ends a
/// line, turns the direction of writing, or has no width. In a peer's name it can make a text look like
/// another one, so logs, terminals and pages show it [escaped](escape).
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            // Format characters of Unicode, without the signs of numbers and verses that are seen.
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}')
}

/// A text with its [hidden](is_hidden) characters as Rust writes them in literals.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_where(text, is_hidden, |shown, character| shown.extend(character.escape_default()))
}

/// A text of several lines, such as a page: the ends of its lines and its tabs stay.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    let is_harmful = |character| is_hidden(character) && !matches!(character, '\t' | '\n' | '\r');
    escape_where(text, is_harmful, |shown, character| shown.extend(character.escape_default()))
}

/// JSON of one line that means the same, without [hidden](is_hidden) characters.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    escape_where(json, is_hidden, |shown, character| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a text does not fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    })
}

fn escape_where(
    text: &str,
    is_harmful: impl Fn(char) -> bool,
    escape: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    if !text.contains(&is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match is_harmful(character) {
            true => escape(&mut shown, character),
            false => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// A number with commas between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The order of names in which `node9` precedes `node10`: runs of digits compare as numbers.
/// Names that differ only in leading zeros are ordered by their text.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    loop {
        let (left_digits, left_rest) = run(left, u8::is_ascii_digit);
        let (right_digits, right_rest) = run(right, u8::is_ascii_digit);
        if !left_digits.is_empty() && !right_digits.is_empty() {
            // Without leading zeros the longer number is the larger one.
            let [(_, x), (_, y)] =
                [left_digits, right_digits].map(|digits| run(digits, |digit| *digit == b'0'));
            match x.len().cmp(&y.len()).then_with(|| x.cmp(y)) {
                Ordering::Equal => {}
                other => return other,
            }
            (left, right) = (left_rest, right_rest);
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

/// The bytes of a kind that a text begins with, and the rest.
fn run(text: &[u8], is_of_kind: impl Fn(&u8) -> bool) -> (&[u8], &[u8]) {
    let length = text.iter().take_while(|byte| is_of_kind(byte)).count();
    text.split_at_checked(length).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_copied_to_a_shell() {
        for (name, word) in [
            (
                "tracker_n1.example.com:localhost/127.0.0.1:3",
                "tracker_n1.example.com:localhost/127.0.0.1:3",
            ),
            ("", "''"),
            ("-x", "'-x'"),
            ("n 1", "'n 1'"),
            ("n'; reboot '", r"'n'\''; reboot '\'''"),
        ] {
            assert_eq!(word_of_line(name), word);
        }
    }

    #[test]
    fn characters_that_are_not_seen_are_escaped() {
        for (text, shown) in [
            ("plain", "plain"),
            ("é漢字😀", "é漢字😀"),
            ("a\tb\n", "a\\tb\\n"),
            ("\u{1b}[2J\u{7f}\u{9b}", "\\u{1b}[2J\\u{7f}\\u{9b}"),
            ("gnp.exe\u{202e}", "gnp.exe\\u{202e}"),
            ("\u{200e}\u{61c}\u{2066}x\u{2069}", "\\u{200e}\\u{61c}\\u{2066}x\\u{2069}"),
            ("ali\u{200b}ce\u{feff}\u{ad}", "ali\\u{200b}ce\\u{feff}\\u{ad}"),
            ("\u{2028}\u{2029}", "\\u{2028}\\u{2029}"),
            ("\u{e0041}", "\\u{e0041}"),
        ] {
            assert_eq!(escape(text), shown);
        }
        assert_eq!(escape_lines("<p>\n\ta\u{202e}\u{0}\r\n"), "<p>\n\ta\\u{202e}\\u{0}\r\n");
        let json = "{\"a\": \"\u{202e}\u{7f}\u{e0041}é\"}";
        assert_eq!(escape_json(json), "{\"a\": \"\\u202e\\u007f\\udb40\\udc41é\"}");
        assert!(matches!(escape("plain"), Cow::Borrowed(_)));
        let hostile = "a\u{1b}\u{9b}\u{202e}\u{7f}é";
        let json = escape_json(&serde_json::to_string(hostile).unwrap()).into_owned();
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), hostile);
    }

    #[test]
    fn no_character_is_parted() {
        for (text, most, expected) in
            [("", 0, ""), ("ab", 1, "a"), ("ab", 9, "ab"), ("a€b", 3, "a"), ("a€b", 4, "a€")]
        {
            assert_eq!(cut(text, most), expected, "{text} {most}");
        }
    }

    #[test]
    fn numbers_have_commas() {
        let grouped = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(grouped, ["0", "999", "1,000", "1,234,567"]);
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
