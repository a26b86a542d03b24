//! Values that several subcommands take.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::ensure;

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

/// The directory of the configuration files: the one that was named, else `$HADOOP_CONF_DIR`, else
/// none for the defaults.
///
/// # Errors
/// When it does not exist.
pub(super) fn existing_conf_dir(
    named: Option<PathBuf>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> anyhow::Result<Option<PathBuf>> {
    let from_environment =
        || variable("HADOOP_CONF_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let conf_dir = named.or_else(from_environment);
    if let Some(dir) = &conf_dir {
        ensure!(
            dir.is_dir(),
            "configuration directory {} does not exist; name one with --conf-dir",
            dir.display()
        );
    }
    Ok(conf_dir)
}

/// Overrides as the configuration takes them.
pub(super) fn pairs(overrides: Vec<Override>) -> Vec<(String, String)> {
    overrides.into_iter().map(|Override { key, value }| (key, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
