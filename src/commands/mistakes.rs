//! Texts of wrong usage for people: what the parser of options does not say.

use std::ffi::OsString;

/// What the standard library says of a text that is no number, and what is said instead.
const NUMBERS: [(&str, &str); 6] = [
    ("invalid digit found in string", "expected a whole number"),
    ("cannot parse integer from empty string", "expected a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("invalid float literal", "expected a number"),
    ("cannot parse float from empty string", "expected a number"),
];

/// The text of a wrong usage, as the parser of options has made it for these arguments.
pub(super) fn explained(text: &str, arguments: &[OsString]) -> String {
    let mut text = text.to_owned();
    for (found, instead) in NUMBERS {
        let found = format!(": {found}\n");
        text = text.replacen(&found, &format!(": {instead}\n"), 1);
    }
    match tip(&text, arguments) {
        Some(tip) => text.replacen("\n\n", &format!("\n\n  tip: {tip}\n\n"), 1),
        None => text,
    }
}

/// Options of Hadoop have one hyphen: `-input` is read as `-i`, which there is not.
fn tip(text: &str, arguments: &[OsString]) -> Option<String> {
    let option = text.strip_prefix("error: unexpected argument '")?.split('\'').next()?;
    let is_word = |word: &str| {
        word.len() > 2
            && word.bytes().skip(1).all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
    };
    let is_short = option.len() == 2 && option.starts_with('-') && option != "--";
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    let word = words.find(|word| is_short && word.starts_with(option) && is_word(word))?;
    Some(format!("'{word}' is read as options of one letter; write '-{word}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[&str]) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = corona_terminal::console::Console::of_test(&mut out, &mut err);
        super::super::run(words.iter().map(OsString::from), &mut console);
        assert!(out.is_empty());
        String::from_utf8(err).unwrap()
    }

    #[test]
    fn numbers_are_expected_in_words_for_people() {
        for (number, expected) in [
            ("abc", "expected a whole number"),
            ("", "expected a whole number"),
            ("99999999999999999999", "the number is too large"),
        ] {
            let text = said(&["corona", "jobs", "list", "--timeout", number]);
            assert!(text.contains(&format!("': {expected}\n")), "{number}: {text}");
        }
    }

    #[test]
    fn an_option_of_hadoop_gets_a_tip() {
        let text = said(&["corona", "job", "run", "-input", "a", "-output", "b", "-mapper", "cat"]);
        let start = "error: unexpected argument '-i' found\n\n  tip: '-input' is read as options of one letter; \
                     write '--input'\n\nUsage: ";
        assert!(text.starts_with(start), "{text}");
        for words in
            [&["corona", "job", "run", "-1"][..], &["corona", "job", "run", "--reduce", "-3"]]
        {
            assert!(!said(words).contains("one letter"), "{words:?}");
        }
    }
}
