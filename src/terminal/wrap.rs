//! Long texts in lines of a terminal.

use unicode_width::UnicodeWidthStr;

/// The text in lines of at most `width` columns, each behind the indent; line ends of the text stay. A word
/// that is longer than a line has one of its own. Without a width nothing is wrapped. The text is safe for
/// a terminal already.
pub fn wrapped(text: &str, indent: &str, width: Option<usize>) -> String {
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(indent.width()).max(1));
    let mut all = String::new();
    let mut put = |line: &str| {
        all.push_str(format!("{indent}{line}").trim_end());
        all.push('\n');
    };
    for line in text.lines() {
        if line.width() <= room {
            put(line);
            continue;
        }
        // Blanks at the start of a line, as of a traceback, are kept.
        let lead = line.len() - line.trim_start().len();
        let (lead, words) = line.split_at(lead);
        let mut current = lead.to_owned();
        for word in words.split(' ') {
            let is_empty = current.len() == lead.len();
            if !is_empty && current.width() + 1 + word.width() > room {
                put(&current);
                current = format!("{lead}{word}");
                continue;
            }
            if !is_empty {
                current.push(' ');
            }
            current.push_str(word);
        }
        put(&current);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_long_as_the_terminal_is_wide() {
        for (text, width, expected) in [
            ("a b c", Some(80), "> a b c\n"),
            ("one two three", Some(9), "> one two\n> three\n"),
            ("one twothreefour five", Some(9), "> one\n> twothreefour\n> five\n"),
            ("x\n    indented words\n", Some(14), "> x\n>     indented\n>     words\n"),
            ("a\n\nb", Some(80), "> a\n>\n> b\n"),
            ("one two three", None, "> one two three\n"),
            ("", Some(80), ""),
            ("日本 日本", Some(7), "> 日本\n> 日本\n"),
        ] {
            assert_eq!(wrapped(text, "> ", width), expected, "{text:?} {width:?}");
        }
    }
}
