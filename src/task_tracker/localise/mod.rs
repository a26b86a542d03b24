//! Localisation: the files of a job that a task needs are copied to this machine before it starts.
//!
//! * `job.rs`: once for each job, its configuration and its jar;
//! * `cache.rs`: the distributed cache, shared by jobs;
//! * `attempt.rs`: directories and configuration of one attempt;
//! * `keep.rs`: files that stay afterwards;
//! * `unpack.rs`: archives.
//!
//! Whatever fails leaves nothing that a later try would stumble over. Spec: mapreduce/04 §4.4.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use super::job_files::{FileError, Location, NotALocation};
use super::local_dirs::LocalDirError;
use corona_config::{ConfigErrors, WriteError};

mod attempt;
mod cache;
mod job;
mod keep;
mod unpack;

pub use attempt::{AttemptSpec, HandedLocalAttempt, LocalAttempt, TaskKind};
pub use cache::{Cache, HandedFile, Held};
pub use job::{HandedFiles, JobSpec, LocalJob, Localiser};
pub use unpack::{Kind, Limits, UnpackError, unpack};

/// Why something is not brought to this machine.
#[derive(Debug, Error)]
pub enum LocaliseError {
    /// A former program in this process has begun tasks of the job.
    #[error(
        "files of its job cannot be read, and tasks from before a restart of the task tracker use them"
    )]
    InUse,
    /// A file could not be fetched.
    #[error(transparent)]
    File(#[from] FileError),
    /// The name of a file is none.
    #[error(transparent)]
    Location(#[from] NotALocation),
    /// There is no place for it.
    #[error(transparent)]
    LocalDir(#[from] LocalDirError),
    /// The job's configuration cannot be used.
    #[error("{0}")]
    Configuration(#[from] ConfigErrors),
    /// The configuration for a task cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// An archive cannot be unpacked.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// A file or directory of the task tracker's own cannot be made.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file of the distributed cache has changed since the job was started.
    #[error("File: {0} has changed on HDFS since job started")]
    Changed(Location),
    /// Two lists of the job's configuration that belong together are not of one length.
    #[error("{files} has {count} entries, {times} has {time_count}")]
    Lists {
        /// The key of the one.
        files: &'static str,
        /// Its length.
        count: usize,
        /// The key of the second list.
        times: &'static str,
        /// Its length.
        time_count: usize,
    },
    /// A bound of the task tracker.
    #[error("more than {limit} {what}")]
    TooMany {
        /// What there is too much of, in the plural.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// A job's pattern of names is no regular expression, or too large.
    #[error("{key}: {why}")]
    Pattern {
        /// The key whose value it is.
        key: &'static str,
        /// The error in it.
        why: String,
    },
    /// The work was given up, as at the end of the process.
    #[error("localisation was stopped")]
    Stopped,
}

/// Runs work on disks where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LocaliseError> + Send + 'static,
) -> Result<T, LocaliseError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(LocaliseError::Stopped))
}

fn make_dir(path: &Path) -> Result<(), LocaliseError> {
    std::fs::create_dir_all(path)
        .map_err(|error| LocaliseError::Io { path: path.to_owned(), error })
}

/// Writes a file under another name first, so that no reader sees a part of it.
fn replace(path: &Path, content: &[u8]) -> Result<(), LocaliseError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    std::fs::write(&new, content).and_then(|()| std::fs::rename(&new, path)).map_err(|error| {
        // It may not exist, and the error is already reported.
        let _ = std::fs::remove_file(&new);
        LocaliseError::Io { path: path.to_owned(), error }
    })
}

/// A slot for the result of work that must run only once, and that continues when the caller stops
/// waiting.
type Slot<T> = Arc<tokio::sync::Mutex<Option<T>>>;

#[cfg(test)]
pub(super) mod tests;
