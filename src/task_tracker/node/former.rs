//! The names under which earlier processes of this node may still be known to the cluster manager. They are
//! noted in the local directories, so that a process that starts again can report that the earlier one has ended:
//! otherwise the cluster manager grants the slots of both until the earlier one expires.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::local_dirs::LocalDirs;

/// The file in each local directory.
const FILE: &str = "corona-node";
const VERSION: u32 = 1;
/// Names that are kept. There are more than one only if several processes ended before a heartbeat was answered.
const MOST_NAMES: usize = 16;
/// The longest file that is read.
const MAX_BYTES: u64 = 64 << 10;

#[derive(Debug, Serialize, Deserialize)]
struct Noted {
    version: u32,
    /// The latest one last.
    nodes: Vec<String>,
}

/// The names of earlier processes. This one's is noted beside them, before anybody else learns it.
pub(super) fn claim(dirs: &LocalDirs, own: &str) -> Vec<String> {
    let mut former: Vec<String> = Vec::new();
    for dir in dirs.usable() {
        match read(&dir) {
            Ok(names) => former.extend(names),
            Err(error) => tracing::warn!(
                dir = %dir.display(), %error,
                "cannot read {FILE}; if an earlier process of this node has registered, its slots are granted until it expires"
            ),
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    former.retain(|name| seen.insert(name.clone()));
    former.drain(..former.len().saturating_sub(MOST_NAMES));
    let own = std::iter::once(own).filter(|own| !former.iter().any(|name| name == own));
    let all: Vec<&str> = former.iter().map(String::as_str).chain(own).collect();
    note(dirs, &all);
    former
}

/// Notes that the cluster manager knows no process of this node but these.
pub(super) fn note(dirs: &LocalDirs, names: &[&str]) {
    for dir in dirs.usable() {
        if let Err(error) = write(&dir, names) {
            tracing::warn!(dir = %dir.display(), %error, "cannot write {FILE}");
        }
    }
}

fn read(dir: &Path) -> io::Result<Vec<String>> {
    let file = match File::open(dir.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    let Noted { version, nodes } = serde_json::from_str(&text)?;
    if version != VERSION {
        let problem = format!("form {version} is not known to this version of the program");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(nodes)
}

fn write(dir: &Path, names: &[&str]) -> io::Result<()> {
    let nodes = names.iter().map(|name| (*name).to_owned()).collect();
    let text = serde_json::to_string(&Noted { version: VERSION, nodes })?;
    let new = dir.join(format!("{FILE}.new"));
    fs::write(&new, text)?;
    fs::rename(&new, dir.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corona_config::Source;

    fn dirs(root: &tempfile::TempDir) -> LocalDirs {
        let paths = ["a", "b"].map(|name| root.path().join(name).display().to_string());
        let overrides = [("mapred.local.dir".to_owned(), paths.join(","))];
        let source = Source { overrides: &overrides, ..Source::default() };
        LocalDirs::open(&source.load_task_tracker().unwrap().settings.local).unwrap()
    }

    #[test]
    fn each_process_finds_those_that_may_be_known() {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(&root);
        assert_eq!(claim(&dirs, "one"), [""; 0]);
        note(&dirs, &["one"]);
        // Neither of these two was heard before it ended.
        assert_eq!(claim(&dirs, "two"), ["one"]);
        assert_eq!(claim(&dirs, "three"), ["one", "two"]);
        // A directory is new, or another disk.
        fs::remove_file(dirs.usable()[0].join(FILE)).unwrap();
        assert_eq!(claim(&dirs, "three"), ["one", "two", "three"]);
        note(&dirs, &[]);
        assert_eq!(claim(&dirs, "four"), [""; 0]);
    }

    #[test]
    fn files_of_the_first_version_are_read() {
        let fixture = include_str!("../../../fixtures/versions/corona-node");
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(&root);
        note(&dirs, &["one", "two"]);
        for dir in dirs.usable() {
            assert_eq!(fs::read_to_string(dir.join(FILE)).unwrap(), fixture.trim_end());
            fs::write(dir.join(FILE), fixture).unwrap();
        }
        assert_eq!(claim(&dirs, "own"), ["one", "two"]);
    }

    #[test]
    fn invalid_lists_of_names_are_ignored_and_long_ones_cut() {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(&root);
        for wrong in ["", "{", "{\"version\":2,\"nodes\":[\"n\"]}", "\u{fffd}"] {
            for dir in dirs.usable() {
                fs::write(dir.join(FILE), wrong).unwrap();
            }
            assert_eq!(claim(&dirs, "own"), [""; 0], "{wrong}");
            assert_eq!(claim(&dirs, "next"), ["own"]);
        }
        let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
        note(&dirs, &names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(claim(&dirs, "own"), names[100 - MOST_NAMES..]);
    }
}
