//! A lock on each local directory: their files are deleted at the start, so two task trackers must
//! never share one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

/// The file that is locked. It stays when the process ends; the lock does not.
const LOCK: &str = "corona-lock";

/// Held as long as this lives.
#[derive(Debug)]
pub struct DirLocks {
    _files: Vec<File>,
}

/// Why a directory is not ours.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process has it.
    #[error("local directory {} (mapred.local.dir) is in use by another task tracker", .0.display())]
    Taken(PathBuf),
    /// It cannot be locked.
    #[error("cannot lock local directory {} (mapred.local.dir): {error}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl DirLocks {
    /// Locks all of them. Errors: the first that cannot be had; none is locked then.
    pub fn acquire(dirs: &[PathBuf]) -> Result<DirLocks, LockError> {
        let files = dirs.iter().map(|dir| lock(dir)).collect::<Result<_, _>>()?;
        Ok(DirLocks { _files: files })
    }
}

fn lock(dir: &Path) -> Result<File, LockError> {
    let failed = |error| LockError::Io { dir: dir.to_owned(), error };
    let file = File::options().create(true).append(true).open(dir.join(LOCK)).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LockError::Taken(dir.to_owned())),
        Err(error) => Err(failed(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_task_tracker_at_a_time() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dirs = [a.path().to_owned(), b.path().to_owned()];
        let locks = DirLocks::acquire(&dirs[1..]).unwrap();
        let told = DirLocks::acquire(&dirs).unwrap_err().to_string();
        assert!(told.ends_with("(mapred.local.dir) is in use by another task tracker"), "{told}");
        assert!(told.contains(&*dirs[1].to_string_lossy()), "{told}");
        drop(locks);
        let locks = DirLocks::acquire(&dirs).unwrap();
        assert!(DirLocks::acquire(&dirs[..1]).is_err());
        drop(locks);
        let error = DirLocks::acquire(&["/no/such/directory".into()]).unwrap_err();
        assert!(matches!(error, LockError::Io { .. }), "{error}");
    }
}
