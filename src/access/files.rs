//! Files that hold keys and secrets: for their owner only, and whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Why a file cannot be used.
#[derive(Debug, Error)]
pub enum FileError {
    /// The system refuses to read or write it.
    #[error("cannot use {path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// It has other content than this program writes.
    #[error("{path} is damaged: {problem}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// A file with other content than this program writes.
pub(crate) fn damaged(path: &Path, problem: impl ToString) -> FileError {
    FileError::Damaged { path: path.to_owned(), problem: problem.to_string() }
}

/// A file that the system refuses to read or write.
pub(crate) fn file(path: &Path) -> impl Fn(io::Error) -> FileError {
    let path = path.to_owned();
    move |error| FileError::Io { path: path.clone(), error }
}

/// Reads JSON with a number of its version, which is looked at before anything else.
///
/// Errors: what is wrong with it.
pub(crate) fn versioned<T: DeserializeOwned>(content: &[u8], known: u32) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } =
        serde_json::from_slice(content).map_err(|error| error.to_string())?;
    if version != known {
        return Err(format!(
            "it has the unknown version {version}; this version of corona reads {known} only"
        ));
    }
    serde_json::from_slice(content).map_err(|error| error.to_string())
}

/// Bytes of any file of this crate; a longer one is refused.
const MAX_BYTES: u64 = 64 << 20;

/// Makes a directory that only its owner may enter, and those above it. One that is there must be such a
/// directory of this user: no other one's rights are changed.
pub(crate) fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let found = fs::metadata(directory)?;
    let path = directory.display();
    let text = if found.uid() != rustix::process::geteuid().as_raw() {
        format!("{path} belongs to another user; name a directory that does not exist")
    } else if found.mode() & 0o077 != 0 {
        format!(
            "others may enter {path}: name a directory that does not exist, or run chmod 700 {path}"
        )
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Tells apart the files that [`replace`] has put at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

/// The stamp of a file.
pub(crate) fn stamp(path: &Path) -> io::Result<Stamp> {
    let found = fs::metadata(path)?;
    let changed = (found.ctime(), found.ctime_nsec());
    Ok(Stamp { inode: found.ino(), bytes: found.len(), changed })
}

/// Replaces a file of mode 0600: readers see the old or the new content, also after a crash.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    // Threads of one process may replace the same file.
    static REPLACED: AtomicU64 = AtomicU64::new(0);
    let number = REPLACED.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}.{number}.new", std::process::id()));
    let fresh = directory.join(name);
    // One that a crash left behind may have other rights.
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh);
    let written = written.and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| fs::rename(&fresh, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    renamed?;
    File::open(directory)?.sync_all()
}

/// Reads a file that nobody but its owner may read.
pub(crate) fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mode = file.metadata()?.mode();
    if mode & 0o077 != 0 {
        let path = path.display();
        let text = format!("others may read {path}, which holds a key: run chmod 600 {path}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    limited(file)
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    limited(File::open(path)?)
}

fn limited(file: File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too large"));
    }
    Ok(content)
}
