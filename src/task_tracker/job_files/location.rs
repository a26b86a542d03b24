//! Where a file lies: a file system, a path in it, and the name of a link.

use std::fmt;

use percent_encoding::percent_decode_str;
use thiserror::Error;

/// The longest location in bytes.
const MAX_BYTES: usize = 8192;

/// A path in a file system, such as `hdfs://name:8020/user/a/job.jar`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    scheme: Option<String>,
    /// Host and port; empty for none.
    authority: String,
    /// Absolute, without its escapes.
    path: String,
    fragment: Option<String>,
}

/// Why a text is no location.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} {wrong}; expected an absolute path, with a file system before it or not")]
pub struct NotALocation {
    /// The text, cut if it is long.
    pub text: String,
    /// The reason.
    pub wrong: &'static str,
}

impl Location {
    /// A path as jobs name their files: nothing in it is escaped, and no part is a link's name.
    pub fn from_path(text: &str) -> Result<Self, NotALocation> {
        Location::parse(text, text)
    }

    /// A URI as the distributed cache names its files: escapes, and the name of a link after `#`.
    pub fn from_uri(text: &str) -> Result<Self, NotALocation> {
        let (before, fragment) = match text.split_once('#') {
            Some((before, fragment)) => (before, Some(fragment)),
            None => (text, None),
        };
        let decoded = |part: &str| {
            let decoded = percent_decode_str(part).decode_utf8();
            decoded.map(|part| part.into_owned()).map_err(|_| refused(text, "is not UTF-8"))
        };
        let mut location = Location::parse(before, text)?;
        location.path = decoded(&location.path)?;
        location.check(text)?;
        location.fragment = fragment.map(decoded).transpose()?;
        Ok(location)
    }

    fn parse(before: &str, text: &str) -> Result<Self, NotALocation> {
        let (scheme, rest) = match before.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme.to_ascii_lowercase()), rest),
            _ => (None, before),
        };
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let path = if path.is_empty() && !authority.is_empty() { "/" } else { path };
        let location = Location {
            scheme,
            authority: authority.to_owned(),
            path: path.to_owned(),
            fragment: None,
        };
        location.check(text)?;
        Ok(location)
    }

    fn check(&self, text: &str) -> Result<(), NotALocation> {
        let wrong = if text.len() > MAX_BYTES {
            "is too long"
        } else if !self.path.starts_with('/') {
            "has no absolute path"
        } else if self.path.chars().chain(self.authority.chars()).any(char::is_control) {
            "has a control character"
        } else if self.path.split('/').any(|part| part == "..") {
            "has a .. in it"
        } else {
            return Ok(());
        };
        Err(refused(text, wrong))
    }

    /// The root of the file system that is not named.
    pub(super) fn root() -> Self {
        Location { scheme: None, authority: String::new(), path: "/".into(), fragment: None }
    }

    /// The kind of file system, in lower case, such as `hdfs`.
    pub fn scheme(&self) -> Option<&str> {
        self.scheme.as_deref()
    }

    /// The host without the port, if a file system with a host is named.
    pub fn host(&self) -> Option<&str> {
        let host = self.authority.rsplit_once('@').map_or(&*self.authority, |(_, host)| host);
        let host = match host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
            _ => host,
        };
        Some(host).filter(|host| !host.is_empty())
    }

    /// The path, absolute and without escapes.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The last part of the path; empty for the root.
    pub fn name(&self) -> &str {
        self.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }

    /// A file in the same directory.
    #[must_use]
    pub fn beside(&self, name: &str) -> Location {
        let directory = self.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        Location { path: format!("{directory}/{name}"), fragment: None, ..self.clone() }
    }

    /// The text after `#`.
    pub fn fragment(&self) -> Option<&str> {
        self.fragment.as_deref()
    }

    /// The same path in this file system, if the path names none, or names one without the host that this one has.
    pub fn in_file_system(&self, default: &Location) -> Location {
        let mut whole = self.clone();
        if whole.scheme.is_none() && whole.authority.is_empty() {
            whole.scheme.clone_from(&default.scheme);
            whole.authority.clone_from(&default.authority);
        } else if whole.authority.is_empty() && whole.scheme == default.scheme {
            whole.authority.clone_from(&default.authority);
        }
        whole
    }
}

impl fmt::Display for Location {
    /// As a path is named: without escapes and without the link.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = &self.scheme {
            write!(f, "{scheme}:")?;
        }
        if !self.authority.is_empty() {
            write!(f, "//{}", self.authority)?;
        }
        f.write_str(&self.path)
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

fn refused(text: &str, wrong: &'static str) -> NotALocation {
    NotALocation { text: text.chars().take(200).collect(), wrong }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_of_locations() {
        let cases = [
            (
                "hdfs://nn:8020/a/b.jar#link",
                Some("hdfs"),
                Some("nn"),
                "/a/b.jar",
                Some("link"),
                "hdfs://nn:8020/a/b.jar",
            ),
            ("HDFS://nn/a%20b%23", Some("hdfs"), Some("nn"), "/a b#", None, "hdfs://nn/a b#"),
            ("hdfs://nn", Some("hdfs"), Some("nn"), "/", None, "hdfs://nn/"),
            ("file:/a", Some("file"), None, "/a", None, "file:/a"),
            ("file:///a", Some("file"), None, "/a", None, "file:/a"),
            ("/a:b#x y", None, None, "/a:b", Some("x y"), "/a:b"),
            ("s3n://id@bucket/a", Some("s3n"), Some("bucket"), "/a", None, "s3n://id@bucket/a"),
        ];
        for (text, scheme, host, path, fragment, shown) in cases {
            let location = Location::from_uri(text).unwrap();
            assert_eq!(location.scheme(), scheme, "{text}");
            assert_eq!(location.host(), host, "{text}");
            assert_eq!((location.path(), location.fragment()), (path, fragment), "{text}");
            assert_eq!(location.to_string(), shown);
        }
        let raw = Location::from_path("/a%20#b").unwrap();
        assert_eq!((raw.path(), raw.fragment(), raw.name()), ("/a%20#b", None, "a%20#b"));
    }

    #[test]
    fn other_texts_are_refused() {
        let long = format!("/{}", "a".repeat(9000));
        let cases = [
            ("", "has no absolute path"),
            ("a/b", "has no absolute path"),
            ("file:a", "has no absolute path"),
            ("#a", "has no absolute path"),
            ("/a/../b", "has a .. in it"),
            ("/a/%2e%2e/b", "has a .. in it"),
            ("/a%00", "has a control character"),
            ("/a\n", "has a control character"),
            ("/%ff", "is not UTF-8"),
            (&long, "is too long"),
        ];
        for (text, wrong) in cases {
            assert_eq!(Location::from_uri(text).unwrap_err().wrong, wrong, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,30}|[a-z:/#%.@0-9]{0,30}") {
            if let Ok(location) = Location::from_uri(&text) {
                prop_assert!(location.path().starts_with('/'));
                let _ = (location.name().len(), location.host().map(str::len));
            }
        }
    }
}
