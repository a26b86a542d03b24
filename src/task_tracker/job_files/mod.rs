//! Files of jobs: `job.xml`, the jar, the distributed cache.
//!
//! [`JobFiles`] is everything that other modules need of a file system. [`LocalFiles`] reads
//! `file:` natively, [`HadoopCommand`] everything else through the user's Hadoop installation, and
//! [`FileSystems`] selects by location. Native clients of other file systems belong beside them.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use corona_config::JobFileSettings;
use corona_filesystem::{Counters, FileSystemSettings, FsError};

mod hadoop;
mod local;
mod location;
mod native;

pub use hadoop::HadoopCommand;
pub use local::LocalFiles;
pub use location::{Location, NotALocation};
pub use native::NativeFiles;

/// The status of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Its length.
    pub bytes: u64,
    /// When it was last changed, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// An answer that takes time.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, FileError>> + Send + 'a>>;

/// A file system, as far as files of jobs need one.
pub trait JobFiles: Send + Sync {
    /// Length and time of a file. A directory is an error.
    fn status<'a>(&'a self, location: &'a Location) -> Answer<'a, FileStatus>;

    /// Copies a file to a local path, in whose directory it may create other files meanwhile;
    /// returns its length in bytes. After an error there is nothing at the path.
    fn fetch<'a>(&'a self, location: &'a Location, to: &'a Path) -> Answer<'a, u64>;
}

/// Why a file, or its status, is not available.
#[derive(Debug, Error)]
pub enum FileError {
    /// It does not exist.
    #[error("File does not exist: {0}")]
    Missing(Location),
    /// It is a directory, a pipe, or something else.
    #[error("{0} is not a file")]
    NotAFile(Location),
    /// More than is copied.
    #[error("{location} is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The file.
        location: Location,
        /// The bound that it exceeds.
        limit_bytes: u64,
    },
    /// It took too long.
    #[error("{location}: no answer within {} ms", timeout.as_millis())]
    Timeout {
        /// The file.
        location: Location,
        /// The time that there was.
        timeout: Duration,
    },
    /// This file system cannot read the location.
    #[error("{location} cannot be fetched: {reason}")]
    Unsupported {
        /// The file.
        location: Location,
        /// Why.
        reason: &'static str,
    },
    /// The Hadoop install could not be run.
    #[error("{}: {error}", program.display())]
    Run {
        /// The program, as it was to be started.
        program: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The Hadoop install refused.
    #[error("{location}: {said}")]
    Command {
        /// The file.
        location: Location,
        /// The line of its error output that explains it.
        said: String,
    },
    /// HDFS refused, or cannot be reached.
    #[error(transparent)]
    Hdfs(Box<FsError>),
    /// Reading failed.
    #[error("{location}: {error}")]
    Read {
        /// The file.
        location: Location,
        /// Why.
        error: io::Error,
    },
    /// Writing the copy failed.
    #[error("{}: {error}", path.display())]
    Write {
        /// The copy.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Why there are no file systems.
#[derive(Debug, Error)]
pub enum FileSystemsError {
    /// A location in the configuration is none.
    #[error(transparent)]
    Location(#[from] NotALocation),
    /// The default file system is none.
    #[error(transparent)]
    Default(#[from] FsError),
}

/// All file systems, each location by the file system that it names.
#[derive(Debug)]
pub struct FileSystems {
    default_fs: Location,
    system_dir: Location,
    local: LocalFiles,
    native: NativeFiles,
    hadoop: HadoopCommand,
}

impl FileSystems {
    /// As configured. An error is a location in the configuration that cannot be used.
    pub fn new(
        settings: &JobFileSettings,
        of_hdfs: FileSystemSettings,
    ) -> Result<Self, FileSystemsError> {
        let default_fs = Location::from_path(&settings.default_fs)?;
        let system_dir = Location::from_path(&settings.system_dir)?.in_file_system(&default_fs);
        let local = LocalFiles { timeout: settings.timeout, max_bytes: settings.max_bytes };
        let hadoop = HadoopCommand {
            program: settings.hadoop_command.clone(),
            timeout: settings.timeout,
            max_bytes: settings.max_bytes,
        };
        let native = NativeFiles {
            systems: corona_filesystem::FileSystems::new(of_hdfs)?,
            timeout: settings.timeout,
            max_bytes: settings.max_bytes,
        };
        Ok(FileSystems { default_fs, system_dir, local, native, hadoop })
    }

    /// The directory of jobs' files, with its file system.
    pub fn system_dir(&self) -> &Location {
        &self.system_dir
    }

    /// The counters of the HDFS client.
    pub fn counters(&self) -> Arc<Counters> {
        self.native.systems.counters()
    }

    /// The file system that reads a location, and the location with its file system named.
    fn of(&self, location: &Location) -> (&dyn JobFiles, Location) {
        let whole = location.in_file_system(&self.default_fs);
        match whole.scheme() {
            Some("file") | None => (&self.local, whole),
            Some("hdfs" | "corona") if self.native.reads(&whole) => (&self.native, whole),
            Some(_) => (&self.hadoop, whole),
        }
    }
}

impl JobFiles for FileSystems {
    fn status<'a>(&'a self, location: &'a Location) -> Answer<'a, FileStatus> {
        Box::pin(async move {
            let (files, location) = self.of(location);
            files.status(&location).await
        })
    }

    fn fetch<'a>(&'a self, location: &'a Location, to: &'a Path) -> Answer<'a, u64> {
        Box::pin(async move {
            let (files, location) = self.of(location);
            files.fetch(&location, to).await
        })
    }
}

/// Where a copy is made before it gets its name.
fn unfinished(to: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(to.file_name().unwrap_or_default());
    name.push(".part");
    to.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_read_by_the_file_system_that_it_names() {
        let settings = JobFileSettings {
            system_dir: "/system".into(),
            default_fs: "hdfs://name:8020/".into(),
            hadoop_command: "hadoop".into(),
            timeout: Duration::from_secs(60),
            max_bytes: 1 << 20,
            max_unpacked_bytes: 1 << 20,
            max_unpacked_entries: 100,
        };
        let of_hdfs = FileSystemSettings::default;
        let systems = FileSystems::new(&settings, of_hdfs()).unwrap();
        assert_eq!(systems.system_dir().to_string(), "hdfs://name:8020/system");
        let whole = |text: &str| systems.of(&Location::from_path(text).unwrap()).1.to_string();
        assert_eq!(whole("/a b"), "hdfs://name:8020/a b");
        assert_eq!(whole("file:/a"), "file:/a");
        assert_eq!(whole("hftp://other/a"), "hftp://other/a");
        assert_eq!(whole("hdfs:///a"), "hdfs://name:8020/a");
        let local = JobFileSettings { default_fs: "file:///".into(), ..settings };
        let systems = FileSystems::new(&local, of_hdfs()).unwrap();
        assert_eq!(systems.system_dir().to_string(), "file:/system");
    }
}
