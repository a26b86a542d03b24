//! Names of files: a file system, if one is named, and a path in it.
//!
//! Texts are read as Hadoop's `Path` reads them: nothing is unescaped, `\` is `/`, and what can be
//! resolved without looking is resolved. Spec: hdfs/01 §1.7.

use std::fmt;

use thiserror::Error;

/// The longest path of HDFS in UTF-16 units, and its most components. Spec: hdfs/01 §1.3.1.
const MAX_UNITS: usize = 8000;
const MAX_DEPTH: usize = 1000;
/// The port of name nodes.
pub const DEFAULT_PORT: u16 = 8020;

/// A path, absolute or not, in a file system that is named or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FsPath {
    root: Option<Root>,
    /// Without a slash at its end, but for the root; without doubled slashes and `.`.
    path: String,
}

/// A file system: its scheme and, where it has one, its authority, both in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Root {
    scheme: String,
    authority: String,
}

/// Why a text names no file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} {wrong}")]
pub struct NotAPath {
    /// The text, cut if it is long.
    pub text: String,
    /// What is wrong with it.
    pub wrong: &'static str,
}

impl Root {
    /// The file system of this machine.
    pub fn local() -> Root {
        Root { scheme: "file".to_owned(), authority: String::new() }
    }

    /// The name node at this host and port.
    pub fn hdfs(authority: &str) -> Root {
        Root { scheme: "hdfs".to_owned(), authority: authority.to_ascii_lowercase() }
    }

    /// The kind of file system, such as `hdfs`.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Host and port as they are named; empty for none.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Host and port, the port being [`DEFAULT_PORT`] if none is named; none without a host.
    pub fn host_and_port(&self) -> Option<(String, u16)> {
        let authority = self.authority.rsplit('@').next().unwrap_or_default();
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.is_empty() && !port.contains(']') => {
                (host, port.parse().ok()?)
            }
            _ => (authority.trim_end_matches(':'), DEFAULT_PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then(|| (host.to_owned(), port))
    }

    /// Whether both are one file system: a missing port is the usual one.
    pub fn is_same(&self, other: &Root) -> bool {
        self.scheme == other.scheme
            && (self.authority == other.authority
                || (self.scheme == "hdfs" && self.host_and_port() == other.host_and_port()))
    }

    /// The default file system as `fs.default.name` names it: `local` is `file:///`, a value
    /// without a slash is a name node.
    pub fn of_default(value: &str) -> Result<Root, NotAPath> {
        let value = value.trim();
        match value {
            "local" => Ok(Root::local()),
            _ if !value.contains('/') && !value.contains(':') => Ok(Root::hdfs(value)),
            _ if !value.contains('/')
                && value.split_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) =>
            {
                Ok(Root::hdfs(value))
            }
            _ => {
                let path = FsPath::parse(value)?;
                path.root.ok_or_else(|| refused(value, "names no file system"))
            }
        }
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.authority.as_str() {
            "" => write!(f, "{}:", self.scheme),
            authority => write!(f, "{}://{authority}", self.scheme),
        }
    }
}

impl FsPath {
    /// Reads a path as Hadoop's `Path` does.
    ///
    /// # Errors
    /// It is empty, has a malformed scheme, leads above the root, or is longer than any name
    /// node takes.
    pub fn parse(text: &str) -> Result<FsPath, NotAPath> {
        if text.is_empty() {
            return Err(refused(text, "is empty"));
        }
        let slash = text.find('/').unwrap_or(text.len());
        let (scheme, rest) = match text.find(':') {
            Some(colon) if colon < slash => {
                let (scheme, rest) = text.split_at(colon);
                if !is_scheme(scheme) {
                    return Err(refused(text, "has a ':' in its first part and no scheme"));
                }
                (Some(scheme.to_ascii_lowercase()), rest.get(1..).unwrap_or_default())
            }
            _ => (None, text),
        };
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) if scheme.is_some() => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            _ => ("", rest),
        };
        let is_root = path.is_empty() && !authority.is_empty();
        if scheme.is_some() && !path.starts_with('/') && !is_root {
            return Err(refused(text, "has a scheme and a relative path"));
        }
        let is_absolute = path.starts_with(['/', '\\']) || scheme.is_some();
        let path = normalised(text, path, is_absolute)?;
        let root = scheme.map(|scheme| Root { scheme, authority: authority.to_ascii_lowercase() });
        Ok(FsPath { root, path })
    }

    /// An absolute path in a file system.
    pub fn within(root: &Root, path: &str) -> Result<FsPath, NotAPath> {
        if !path.starts_with('/') {
            return Err(refused(path, "is not absolute"));
        }
        let path = normalised(path, path, true)?;
        Ok(FsPath { root: Some(root.clone()), path })
    }

    /// A path of this machine, which must be absolute.
    pub fn local(path: &std::path::Path) -> Result<FsPath, NotAPath> {
        let text = path
            .to_str()
            .ok_or_else(|| refused(&path.to_string_lossy(), "has a name that is not UTF-8"))?;
        FsPath::within(&Root::local(), text)
    }

    /// The path with its file system named: the default one if it names none, below the working
    /// directory if it is relative.
    ///
    /// # Errors
    /// It leads above the root; or it names a scheme that needs an authority, has none, and is not of
    /// the default file system.
    pub fn qualified(&self, default: &Root, working: &str) -> Result<FsPath, NotAPath> {
        let root = self.qualified_root(default)?;
        let path = match self.is_absolute() {
            true => self.path.clone(),
            false => normalised(&self.path, &format!("{working}/{}", self.path), true)?,
        };
        Ok(FsPath { root: Some(root), path })
    }

    /// The file system that it lies in: the default one if it names none.
    ///
    /// # Errors
    /// It names a scheme that needs an authority, has none, and is not of the default file system.
    pub fn qualified_root(&self, default: &Root) -> Result<Root, NotAPath> {
        match &self.root {
            None => Ok(default.clone()),
            Some(root) if root.authority.is_empty() && root.scheme == default.scheme => {
                Ok(default.clone())
            }
            Some(root) if root.authority.is_empty() && root.scheme == "hdfs" => {
                Err(refused(&self.to_string(), "is an incomplete HDFS URI, no host"))
            }
            Some(root) => Ok(root.clone()),
        }
    }

    /// The file system that it names.
    pub fn root(&self) -> Option<&Root> {
        self.root.as_ref()
    }

    /// The path without the file system.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether the path begins at the root.
    pub fn is_absolute(&self) -> bool {
        self.path.starts_with('/')
    }

    /// The last part; empty for the root.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// What it lies in; none for the root.
    pub fn parent(&self) -> Option<FsPath> {
        let (parent, name) = self.path.rsplit_once('/')?;
        let parent = if parent.is_empty() { "/" } else { parent };
        (!name.is_empty()).then(|| FsPath { root: self.root.clone(), path: parent.to_owned() })
    }

    /// The root of its file system.
    pub(crate) fn top(&self) -> FsPath {
        FsPath { root: self.root.clone(), path: "/".to_owned() }
    }

    /// An entry of this directory. The name is taken as it is.
    #[must_use]
    pub fn join(&self, name: &str) -> FsPath {
        let slash = if self.path.ends_with('/') { "" } else { "/" };
        FsPath { root: self.root.clone(), path: format!("{}{slash}{name}", self.path) }
    }

    /// An entry of this directory, as a server or a disk names it.
    ///
    /// # Errors
    /// It is no name of an entry, or the path gets longer than any name node takes.
    pub fn entry(&self, name: &str) -> Result<FsPath, NotAPath> {
        if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
            return Err(refused(name, "is no name of a file"));
        }
        let entry = self.join(name);
        check_length(name, &entry.path)?;
        Ok(entry)
    }

    /// Whether it is this directory or lies in it.
    pub fn is_within(&self, directory: &FsPath) -> bool {
        let same_root = match (&self.root, &directory.root) {
            (Some(one), Some(other)) => one.is_same(other),
            (None, None) => true,
            _ => false,
        };
        let rest = self.path.strip_prefix(directory.path.trim_end_matches('/'));
        same_root && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for FsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(root) = &self.root {
            root.fmt(f)?;
        }
        f.write_str(&self.path)
    }
}

/// One slash for many, none at the end, `.` and `a/..` resolved.
fn normalised(text: &str, path: &str, is_absolute: bool) -> Result<String, NotAPath> {
    if path.contains('\0') {
        return Err(refused(text, "has a zero character"));
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split(['/', '\\']) {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(last) if *last != ".." => drop(parts.pop()),
                _ if is_absolute => return Err(refused(text, "leads above the root")),
                _ => parts.push(part),
            },
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    let path = if is_absolute { format!("/{joined}") } else { joined };
    check_length(text, &path)?;
    Ok(path)
}

fn check_length(text: &str, path: &str) -> Result<(), NotAPath> {
    let depth = path.split('/').filter(|part| !part.is_empty()).count();
    match path.encode_utf16().count() > MAX_UNITS || depth > MAX_DEPTH {
        true => Err(refused(text, "is longer than any name node takes")),
        false => Ok(()),
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

fn refused(text: &str, wrong: &'static str) -> NotAPath {
    NotAPath { text: text.chars().take(200).collect(), wrong }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_normalised_as_hadoop_does() {
        let cases = [
            ("/a//b/", "/a/b"),
            ("/", "/"),
            ("//", "/"),
            ("a/./b/..", "a"),
            (r"\a\b", "/a/b"),
            ("/a/../..b", "/..b"),
            ("hdfs://NN:8020/A/b", "hdfs://nn:8020/A/b"),
            ("HDFS://nn", "hdfs://nn/"),
            ("hdfs:/a", "hdfs:/a"),
            ("hdfs:///a", "hdfs:/a"),
            ("file:///tmp/x", "file:/tmp/x"),
            ("/a%20b#c", "/a%20b#c"),
            ("/a:b", "/a:b"),
            ("../a", "../a"),
        ];
        for (text, shown) in cases {
            assert_eq!(FsPath::parse(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let long = format!("/{}", "a".repeat(9000));
        let deep = "/a".repeat(1001);
        let cases = [
            ("", "is empty"),
            ("/..", "leads above the root"),
            ("/a/../../b", "leads above the root"),
            ("a b:c", "has a ':' in its first part and no scheme"),
            ("hdfs:a", "has a scheme and a relative path"),
            ("/a\0", "has a zero character"),
            (&long, "is longer than any name node takes"),
            (&deep, "is longer than any name node takes"),
        ];
        for (text, wrong) in cases {
            assert_eq!(FsPath::parse(text).unwrap_err().wrong, wrong, "{text}");
        }
    }

    #[test]
    fn entries_have_names_and_paths_end() {
        let directory = FsPath::parse("hdfs://nn/a").unwrap();
        assert_eq!(directory.entry(r"b\c d").unwrap().path(), r"/a/b\c d");
        for name in ["", ".", "..", "b/c", "../b", "/", "a\0"] {
            assert_eq!(
                directory.entry(name).unwrap_err().wrong,
                "is no name of a file",
                "{name:?}"
            );
        }
        let deepest = |mut path: FsPath, name: &str| loop {
            match path.entry(name) {
                Ok(entry) => path = entry,
                Err(wrong) => return (path, wrong.wrong),
            }
        };
        let end = "is longer than any name node takes";
        let (path, wrong) = deepest(directory.clone(), "b");
        assert_eq!((path.path().matches('/').count(), wrong), (1000, end));
        let (path, wrong) = deepest(directory, &"x".repeat(99));
        assert_eq!((path.path().len(), wrong), (7902, end));
    }

    #[test]
    fn paths_are_qualified_by_the_default_file_system_and_the_working_directory() {
        let nn = Root::hdfs("nn:9000");
        let whole = |text: &str, root: &Root| {
            let path = FsPath::parse(text).unwrap().qualified(root, "/user/alice");
            path.map_or_else(|error| error.wrong.to_owned(), |path| path.to_string())
        };
        let local = Root::local();
        let cases = [
            ("a", &nn, "hdfs://nn:9000/user/alice/a"),
            (".", &nn, "hdfs://nn:9000/user/alice"),
            ("../bob", &nn, "hdfs://nn:9000/user/bob"),
            ("/a", &nn, "hdfs://nn:9000/a"),
            ("hdfs:/a", &nn, "hdfs://nn:9000/a"),
            ("hdfs://other/a", &nn, "hdfs://other/a"),
            ("file:/a", &nn, "file:/a"),
            ("a", &local, "file:/user/alice/a"),
            ("hdfs:/a", &local, "is an incomplete HDFS URI, no host"),
            ("../../../x", &nn, "leads above the root"),
        ];
        for (text, root, expected) in cases {
            assert_eq!(whole(text, root), expected, "{text}");
        }
    }

    #[test]
    fn default_file_systems() {
        let cases = [
            ("local", "file:"),
            ("file:///", "file:"),
            ("nn", "hdfs://nn"),
            ("nn:9000", "hdfs://nn:9000"),
            ("hdfs://nn:9000/", "hdfs://nn:9000"),
            ("hdfs://nn:9000", "hdfs://nn:9000"),
        ];
        for (text, shown) in cases {
            assert_eq!(Root::of_default(text).unwrap().to_string(), shown, "{text}");
        }
        assert!(Root::of_default("/a").is_err());
        assert!(Root::hdfs("nn").is_same(&Root::hdfs("NN:8020")));
        assert!(!Root::hdfs("nn").is_same(&Root::hdfs("nn:9000")));
        assert_eq!(Root::hdfs("[::1]:9").host_and_port(), Some(("::1".to_owned(), 9)));
        assert_eq!(Root::hdfs("nn:x").host_and_port(), None);
    }

    #[test]
    fn parents_and_names() {
        let path = FsPath::parse("hdfs://nn/a/b").unwrap();
        let parent = path.parent().unwrap();
        assert_eq!((path.name(), parent.to_string().as_str()), ("b", "hdfs://nn/a"));
        assert_eq!(parent.parent().unwrap().to_string(), "hdfs://nn/");
        assert_eq!(parent.parent().unwrap().parent(), None);
        assert_eq!(parent.parent().unwrap().join("x").to_string(), "hdfs://nn/x");
        assert!(path.is_within(&parent) && path.is_within(&path) && !parent.is_within(&path));
        assert!(!FsPath::parse("/ab").unwrap().is_within(&FsPath::parse("/a").unwrap()));
    }

    proptest! {
        #[test]
        fn displayed_paths_read_back(text in "\\PC{0,30}|[a-z:/#%.@0-9\\\\]{0,30}") {
            if let Ok(path) = FsPath::parse(&text)
                && !path.path().is_empty()
                && (path.root().is_some() || !path.path().contains(':'))
            {
                prop_assert_eq!(FsPath::parse(&path.to_string()), Ok(path));
            }
        }
    }
}
