//! `file:`, read by the task tracker itself.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::{Answer, FileError, FileStatus, JobFiles, Location, unfinished};

/// Bytes that are copied between two looks at the clock.
const CHUNK_BYTES: usize = 256 << 10;

/// Files of this machine and of its mounts.
#[derive(Clone, Debug)]
pub struct LocalFiles {
    /// Time for one copy.
    pub timeout: Duration,
    /// The largest file that is copied.
    pub max_bytes: u64,
}

impl JobFiles for LocalFiles {
    fn status<'a>(&'a self, location: &'a Location) -> Answer<'a, FileStatus> {
        let (files, location) = (self.clone(), location.clone());
        Box::pin(blocking(move || files.status_now(&location)))
    }

    fn fetch<'a>(&'a self, location: &'a Location, to: &'a Path) -> Answer<'a, u64> {
        let (files, location, to) = (self.clone(), location.clone(), to.to_owned());
        Box::pin(blocking(move || files.fetch_now(&location, &to)))
    }
}

/// Runs work on disks where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(stopped) => {
            let program = PathBuf::from("the task tracker");
            Err(FileError::Run { program, error: io::Error::other(stopped) })
        }
    }
}

impl LocalFiles {
    fn status_now(&self, location: &Location) -> Result<FileStatus, FileError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => FileError::Missing(location.clone()),
            _ => FileError::Read { location: location.clone(), error },
        };
        let metadata = fs::metadata(location.path()).map_err(failed)?;
        if !metadata.is_file() {
            return Err(FileError::NotAFile(location.clone()));
        }
        let modified = metadata.modified().map_err(failed)?;
        let modified_ms = match modified.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => {
                i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |before| -before)
            }
        };
        Ok(FileStatus { bytes: metadata.len(), modified_ms })
    }

    fn fetch_now(&self, location: &Location, to: &Path) -> Result<u64, FileError> {
        // Looked at before opening, since opening a pipe could wait forever.
        if self.status_now(location)?.bytes > self.max_bytes {
            return Err(self.too_large(location));
        }
        let part = unfinished(to);
        let copied = self.copy(location, &part).and_then(|bytes| {
            let renamed = fs::rename(&part, to);
            renamed.map_err(|error| FileError::Write { path: to.to_owned(), error })?;
            Ok(bytes)
        });
        if copied.is_err() {
            // It may not exist, and the error is already reported.
            let _ = fs::remove_file(&part);
        }
        copied
    }

    fn copy(&self, location: &Location, part: &Path) -> Result<u64, FileError> {
        let deadline = Instant::now() + self.timeout;
        let read = |error| FileError::Read { location: location.clone(), error };
        let write = |error| FileError::Write { path: part.to_owned(), error };
        let mut from = File::open(location.path()).map_err(read)?;
        let mut to = File::create(part).map_err(write)?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut bytes = 0;
        loop {
            let length = match from.read(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(read(error)),
            };
            if length == 0 {
                return Ok(bytes);
            }
            bytes += length as u64;
            // It may grow meanwhile.
            if bytes > self.max_bytes {
                return Err(self.too_large(location));
            }
            if Instant::now() > deadline {
                let timeout = self.timeout;
                return Err(FileError::Timeout { location: location.clone(), timeout });
            }
            to.write_all(buffer.get(..length).unwrap_or_default()).map_err(write)?;
        }
    }

    fn too_large(&self, location: &Location) -> FileError {
        FileError::TooLarge { location: location.clone(), limit_bytes: self.max_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(path: &Path) -> Location {
        Location::from_path(&format!("file:{}", path.display())).unwrap()
    }

    #[tokio::test]
    async fn a_file_is_copied_and_its_length_and_time_are_returned() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a b"), dir.path().join("to"));
        let content = "x".repeat(CHUNK_BYTES + 1);
        fs::write(&from, &content).unwrap();
        let time = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        File::options().write(true).open(&from).unwrap().set_modified(time).unwrap();
        let files =
            LocalFiles { timeout: Duration::from_secs(600), max_bytes: content.len() as u64 };
        let status = files.status(&location(&from)).await.unwrap();
        let bytes = content.len() as u64;
        assert_eq!(status, FileStatus { bytes, modified_ms: 1_700_000_000_123 });
        assert_eq!(files.fetch(&location(&from), &to).await.unwrap(), bytes);
        assert_eq!(fs::read_to_string(&to).unwrap(), content);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn what_cannot_be_copied_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        fs::write(path.join("large"), "12345").unwrap();
        fs::create_dir(path.join("dir")).unwrap();
        let shown = |name: &str| format!("file:{}", path.join(name).display());
        let cases = [
            ("missing", "to", format!("File does not exist: {}", shown("missing"))),
            ("dir", "to", format!("{} is not a file", shown("dir"))),
            ("large", "to", format!("{} is larger than 4 bytes", shown("large"))),
        ];
        let files = LocalFiles { timeout: Duration::from_secs(600), max_bytes: 4 };
        for (from, to, expected) in cases {
            let error = files.fetch(&location(&path.join(from)), &path.join(to)).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let files = LocalFiles { max_bytes: 5, ..files };
        let to = path.join("no/such/dir");
        let error = files.fetch(&location(&path.join("large")), &to).await.unwrap_err();
        assert!(matches!(error, FileError::Write { .. }), "{error}");
        let files = LocalFiles { timeout: Duration::ZERO, ..files };
        let error =
            files.fetch(&location(&path.join("large")), &path.join("to")).await.unwrap_err();
        assert!(matches!(error, FileError::Timeout { .. }), "{error}");
        assert_eq!(fs::read_dir(path).unwrap().count(), 2);
    }
}
