//! Where and how the cluster manager keeps its journal.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::typed::Wrong;

/// How the journal is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// Its directory; `None` if there is no journal.
    pub directory: Option<PathBuf>,
    /// When a record counts as committed.
    pub sync: JournalSync,
    /// With [`JournalSync::Write`]: the pause between two times of making everything durable.
    pub sync_interval: Duration,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes of records after which an image is made.
    pub image_bytes: u64,
}

/// When a record counts as committed, so that its consequences may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalSync {
    /// When it is written to the file: it survives the death of the process.
    #[default]
    Write,
    /// When it is on disk: it survives a power cut.
    Always,
}

impl JournalSync {
    /// Its value in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            JournalSync::Write => "write",
            JournalSync::Always => "always",
        }
    }
}

/// The value for no journal.
const NONE: &str = "none";

/// The directory of a configured value, which is empty where none is set.
pub(super) fn directory(configured: &str, state_file: &Path) -> Option<PathBuf> {
    match configured {
        NONE => None,
        "" => {
            let mut beside = state_file.as_os_str().to_owned();
            beside.push(".journal");
            Some(beside.into())
        }
        path => Some(path.into()),
    }
}

pub(super) fn sync(text: &str) -> Result<JournalSync, Wrong> {
    let known = [JournalSync::Write, JournalSync::Always];
    known
        .into_iter()
        .find(|sync| sync.name() == text)
        .ok_or_else(|| Wrong::new("is no way to write the journal", "write or always"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_lies_beside_the_state_file_unless_it_is_put_elsewhere() {
        for (configured, state_file, expected) in [
            ("", "cm.state", Some("cm.state.journal")),
            ("", "/var/lib/corona/cm.state", Some("/var/lib/corona/cm.state.journal")),
            ("/fast/journal", "/var/lib/corona/cm.state", Some("/fast/journal")),
            ("none", "cm.state", None),
        ] {
            let found = directory(configured, Path::new(state_file));
            assert_eq!(found.as_deref(), expected.map(Path::new), "{configured:?} {state_file}");
        }
    }

    #[test]
    fn there_are_two_ways_to_write_it() {
        assert_eq!(sync("write"), Ok(JournalSync::Write));
        assert_eq!(sync("always"), Ok(JournalSync::Always));
        assert!(sync("Always").is_err() && sync("").is_err());
    }
}
