//! The include and exclude host files. Spec: cluster-manager/06 §5.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::files::{FileReader, FileStamp, is_there};
use super::keys;
use super::problem::{ConfigErrors, Origin, Problem, ProblemKind, warnings_or_errors};
use corona_model::settings::Hosts;

/// Where the host files are; both may be unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFiles {
    /// `cm.hosts`
    pub include: Option<HostFile>,
    /// `cm.hosts.exclude`
    pub exclude: Option<HostFile>,
}

/// A file that names hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// The file. A relative path starts at the working directory.
    pub path: PathBuf,
    /// Where its key is set.
    pub set_in: Origin,
}

/// The contents of the host files.
#[derive(Clone, Debug, Default)]
pub struct LoadedHosts {
    /// The entries, as written in the files.
    pub hosts: Hosts,
    /// The files that were read, and how many different entries each has.
    pub read: Vec<(PathBuf, usize)>,
    /// A file that does not exist counts as empty and is a warning.
    pub warnings: Vec<Problem>,
    /// How the files looked.
    pub files: Vec<FileStamp>,
}

impl HostFiles {
    /// Reads both files. A relative path starts at the working directory. Entries are kept as they
    /// stand: an include entry `host:port` is not split here.
    pub fn load(&self) -> Result<LoadedHosts, ConfigErrors> {
        let mut files = FileReader::default();
        let mut problems = Vec::new();
        let mut loaded = LoadedHosts::default();
        let mut load = |file: &Option<HostFile>, of: &HostFileKey, entries: &mut BTreeSet<_>| {
            let Some(file) = file else { return };
            match read(file, of, &mut files) {
                Ok(found) => {
                    loaded.read.push((file.path.clone(), found.len()));
                    *entries = found;
                }
                Err(problem) => problems.push(problem),
            }
        };
        load(&self.include, &INCLUDE, &mut loaded.hosts.include);
        load(&self.exclude, &EXCLUDE, &mut loaded.hosts.exclude);
        loaded.warnings = warnings_or_errors(problems)?;
        loaded.files = files.into_stamps();
        Ok(loaded)
    }
}

/// The key of a host file, and its effect.
struct HostFileKey {
    name: &'static str,
    /// The effect of a missing file.
    without: &'static str,
}

const INCLUDE: HostFileKey =
    HostFileKey { name: keys::HOSTS.name, without: "every host may heartbeat" };
const EXCLUDE: HostFileKey =
    HostFileKey { name: keys::HOSTS_EXCLUDE.name, without: "no host is excluded" };

fn read(
    file: &HostFile,
    of: &HostFileKey,
    files: &mut FileReader,
) -> Result<BTreeSet<Arc<str>>, Problem> {
    let HostFile { path, set_in } = file;
    if !is_there(path) {
        files.note(path);
        let kind = ProblemKind::Absent {
            path: path.display().to_string().into(),
            looked_in: Vec::new(),
            used: of.without.into(),
        };
        return Err(Problem::warning(set_in.clone(), kind).of(of.name));
    }
    // Comments may be in any encoding; a host name with other bytes matches no host.
    Ok(entries(&String::from_utf8_lossy(&files.read(path)?)))
}

/// The entries of a file: between blanks, up to a token that starts with `#`.
fn entries(text: &str) -> BTreeSet<Arc<str>> {
    text.split(['\n', '\r'])
        .flat_map(|line| {
            line.split([' ', '\t', '\x0c'])
                .filter(|token| !token.is_empty())
                .take_while(|token| !super::xml::trim(token).starts_with('#'))
        })
        .map(Arc::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_file() {
        let cases: [(&str, &[&str]); 9] = [
            ("", &[]),
            ("a\nb\n", &["a", "b"]),
            ("a b\tc\x0cd\r\ne", &["a", "b", "c", "d", "e"]),
            ("  a  \n\n  ", &["a"]),
            ("# all of it\na # b\nc", &["a", "c"]),
            ("a#b", &["a#b"]),
            ("a #b c\nd", &["a", "d"]),
            ("a:50060 A a", &["A", "a", "a:50060"]),
            ("#x\ra", &["a"]),
        ];
        for (text, expected) in cases {
            let found = entries(text);
            assert_eq!(
                found.iter().map(|entry| &**entry).collect::<Vec<_>>(),
                expected,
                "{text:?}"
            );
        }
    }

    #[test]
    fn files_that_exist_are_read_and_others_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let include = dir.path().join("include");
        std::fs::write(&include, b"a b\n# caf\xe9\n").unwrap();
        let exclude = dir.path().join("exclude");
        let file = |path: &std::path::Path| HostFile {
            path: path.to_path_buf(),
            set_in: Origin::CommandLine,
        };
        let files = HostFiles { include: Some(file(&include)), exclude: Some(file(&exclude)) };
        let loaded = files.load().unwrap();
        assert_eq!(loaded.hosts.include.len(), 2);
        assert!(loaded.hosts.exclude.is_empty());
        assert_eq!(loaded.read, [(include, 2)]);
        let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
        let expected = format!(
            "-D: cm.hosts.exclude: file {} does not exist; no host is excluded",
            exclude.display()
        );
        assert_eq!(warnings, [expected]);
        assert!(loaded.files.iter().all(|stamp| !stamp.has_changed()));
        std::fs::write(&exclude, "a").unwrap();
        assert!(loaded.files.iter().any(FileStamp::has_changed));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let include = HostFile { path: dir.path().into(), set_in: Origin::CommandLine };
        let files = HostFiles { include: Some(include), exclude: None };
        assert!(files.load().unwrap_err().to_string().ends_with("cannot be read: not a file"));
        assert_eq!(HostFiles::default().load().unwrap().hosts, Hosts::default());
    }
}
