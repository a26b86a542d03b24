//! Reading files with bounds, and noticing that they have changed.
//!
//! It knows nothing of their contents.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::problem::{Origin, Problem, ProblemKind};

/// The largest file that is read: 16 MiB.
pub(super) const MAX_FILE_BYTES: u64 = 16 << 20;
/// The most files that one load reads, includes counted each time.
const MAX_FILES: usize = 256;
/// The most bytes that one load reads in all: 64 MiB.
const MAX_TOTAL_BYTES: u64 = 64 << 20;

/// Whether the path exists. Also true if that is not known: reading then reports why.
pub(super) fn is_there(path: &Path) -> bool {
    path.try_exists().unwrap_or(true)
}

/// How a file looked just before it was read, or that it was not there.
///
/// Any difference counts as a change, also an older time: a copy put back from a backup is
/// noticed, unlike in the original. Spec: cluster-manager/09 §4.10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStamp {
    /// The file.
    pub path: PathBuf,
    /// Time of the last modification and length in bytes; `None` when there was no file.
    pub seen: Option<(SystemTime, u64)>,
}

impl FileStamp {
    /// How the file looks now.
    pub fn of(path: &Path) -> Self {
        let seen = std::fs::metadata(path)
            .ok()
            .and_then(|metadata| Some((metadata.modified().ok()?, metadata.len())));
        FileStamp { path: path.to_path_buf(), seen }
    }

    /// Whether the file looks different now.
    pub fn has_changed(&self) -> bool {
        *self != FileStamp::of(&self.path)
    }
}

/// Reads the files of one load, keeps their stamps and holds them together to a bound.
#[derive(Debug, Default)]
pub(super) struct FileReader {
    stamps: Vec<FileStamp>,
    total_bytes: u64,
    reads: usize,
}

impl FileReader {
    /// The bytes of a file. The problem is an error that names the file.
    pub(super) fn read(&mut self, path: &Path) -> Result<Vec<u8>, Problem> {
        let refuse = |kind| Problem::error(Origin::file(path), kind);
        let unreadable = |error: std::io::Error| refuse(ProblemKind::Unreadable(error.to_string()));
        self.note(path);
        self.reads += 1;
        if self.reads > MAX_FILES {
            return Err(refuse(ProblemKind::Bound(format!(
                "more than {MAX_FILES} files are read"
            ))));
        }
        // Checked before opening, since opening a pipe could wait forever.
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(refuse(ProblemKind::Unreadable("not a file".into())));
        }
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        let length = bytes.len() as u64;
        self.total_bytes += length;
        if length > MAX_FILE_BYTES {
            return Err(refuse(ProblemKind::TooLarge { limit_bytes: MAX_FILE_BYTES }));
        }
        if self.total_bytes > MAX_TOTAL_BYTES {
            let bound = format!("all files together are larger than {MAX_TOTAL_BYTES} bytes");
            return Err(refuse(ProblemKind::Bound(bound)));
        }
        Ok(bytes)
    }

    /// Remembers how a file looks now, read or not.
    pub(super) fn note(&mut self, path: &Path) {
        if !self.stamps.iter().any(|stamp| stamp.path == path) {
            self.stamps.push(FileStamp::of(path));
        }
    }

    /// The stamps of all files that were read or looked for.
    pub(super) fn into_stamps(self) -> Vec<FileStamp> {
        self.stamps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_a_new_file_and_a_lost_file_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pools.xml");
        let absent = FileStamp::of(&path);
        assert!(!absent.has_changed());
        std::fs::write(&path, "a").unwrap();
        assert!(absent.has_changed());

        let written = FileStamp::of(&path);
        assert!(!written.has_changed());
        let earlier = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
        File::options().append(true).open(&path).unwrap().set_modified(earlier).unwrap();
        assert!(written.has_changed(), "an older time is a change too");
        std::fs::remove_file(&path).unwrap();
        assert!(written.has_changed());
    }

    #[test]
    fn directories_and_oversized_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let large = dir.path().join("large");
        File::create(&large).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
        let mut files = FileReader::default();
        assert_eq!(
            files.read(&large).unwrap_err().kind,
            ProblemKind::TooLarge { limit_bytes: MAX_FILE_BYTES }
        );
        assert_eq!(
            files.read(dir.path()).unwrap_err().kind,
            ProblemKind::Unreadable("not a file".into())
        );
        assert!(matches!(
            files.read(&dir.path().join("none")).unwrap_err().kind,
            ProblemKind::Unreadable(_)
        ));
        assert_eq!(files.into_stamps().len(), 3);
    }

    #[test]
    fn the_number_and_the_sum_of_files_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let small = dir.path().join("small");
        std::fs::write(&small, "x").unwrap();
        let mut files = FileReader::default();
        for _ in 0..MAX_FILES {
            files.read(&small).unwrap();
        }
        assert!(matches!(files.read(&small).unwrap_err().kind, ProblemKind::Bound(_)));

        let large = dir.path().join("large");
        File::create(&large).unwrap().set_len(MAX_FILE_BYTES).unwrap();
        let mut files = FileReader::default();
        for _ in 0..MAX_TOTAL_BYTES / MAX_FILE_BYTES {
            files.read(&large).unwrap();
        }
        assert!(matches!(files.read(&large).unwrap_err().kind, ProblemKind::Bound(_)));
    }
}
