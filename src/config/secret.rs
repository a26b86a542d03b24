//! Texts that only their owner may see.

use std::fmt;
use std::hint::black_box;

/// A text that is not shown by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// A secret, however easy to guess.
    pub(super) fn new(text: &str) -> Secret {
        Secret(text.into())
    }

    /// The replacement for the text where it would be shown.
    pub const HIDDEN: &str = "(hidden)";

    /// The text, for code that has to send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether this is the same text. The comparison's time reveals nothing about the secret.
    pub fn is(&self, other: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), other.as_bytes());
        let mut difference = own.len() ^ other.len();
        // The number of steps depends on the other text alone, whatever the secret is.
        for (position, byte) in other.iter().enumerate() {
            let own = own.get(position % own.len().max(1)).copied().unwrap_or(0);
            difference |= usize::from(black_box(own ^ byte));
        }
        black_box(difference) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Secret::HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_compared_and_not_shown() {
        let token = Secret::new("a long enough token");
        for (text, same) in [
            ("a long enough token", true),
            ("a long enough tokem", false),
            ("a long enough toke", false),
            ("a long enough tokena long enough token", false),
            ("", false),
        ] {
            assert_eq!(token.is(text), same, "{text}");
        }
        assert_eq!(format!("{token:?}"), "(hidden)");
    }
}
