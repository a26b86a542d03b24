//! Spellings of arguments that the original's scripts use, and values that several subcommands
//! take. Knows strings only.

use std::ffi::OsString;

/// Java spelling, this program's spelling. Spec: cluster-manager/06 §7.2.
const JAVA_SPELLINGS: [(&str, &str); 1] = [("-recoverFromDisk", "--recover-from-disk")];

/// The command line with the original's spellings replaced by this program's, so that scripts
/// written for the original keep working. What follows `--` stays as it is.
pub(super) fn accept_java_spellings(
    arguments: impl IntoIterator<Item = OsString>,
) -> Vec<OsString> {
    let mut options_ended = false;
    let translate = |argument: OsString| {
        options_ended |= argument == "--";
        if options_ended {
            return argument;
        }
        JAVA_SPELLINGS
            .iter()
            .find(|(java, _)| argument == *java)
            .map_or(argument, |(_, ours)| OsString::from(ours))
    };
    arguments.into_iter().map(translate).collect()
}

/// A configuration key and the value that overrides the files: `-D key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Override {
    /// The key as in a configuration file, such as `cm.server.address`.
    pub(crate) key: String,
    /// The value; everything after the first `=`, blanks included.
    pub(crate) value: String,
}

/// Splits `key=value` at the first `=`. The error names what is wrong with the text.
pub(super) fn parse_override(text: &str) -> Result<Override, String> {
    let (key, value) = text.split_once('=').ok_or("expected key=value")?;
    let key = key.trim();
    if key.is_empty() {
        return Err("the key before '=' is empty".into());
    }
    Ok(Override { key: key.into(), value: value.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_spellings_become_ours_up_to_the_double_dash() {
        for (given, expected) in [
            ("corona cluster-manager", "corona cluster-manager"),
            (
                "corona cluster-manager -recoverFromDisk",
                "corona cluster-manager --recover-from-disk",
            ),
            ("corona x --recover-from-disk", "corona x --recover-from-disk"),
            ("corona x -recoverfromdisk", "corona x -recoverfromdisk"),
            ("corona x -- -recoverFromDisk", "corona x -- -recoverFromDisk"),
        ] {
            let given = given.split(' ').map(OsString::from);
            let expected: Vec<_> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(accept_java_spellings(given), expected);
        }
    }

    #[test]
    fn override_splits_at_the_first_equals_sign() {
        for (text, key, value) in [
            ("cm.server.address=h:1", "cm.server.address", "h:1"),
            ("a=b=c", "a", "b=c"),
            (" a = b ", "a", " b "),
            ("empty=", "empty", ""),
        ] {
            let expected = Override { key: key.into(), value: value.into() };
            assert_eq!(parse_override(text), Ok(expected), "{text}");
        }
        for wrong in ["", "key", "=value", "  =value"] {
            assert!(parse_override(wrong).is_err(), "{wrong:?}");
        }
    }
}
