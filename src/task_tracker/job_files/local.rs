//! `file:`, read by the task tracker itself. What a client has put into the directory of its job's files is read with
//! rights that it may not have, so that it is reached by no link, and belongs to the owner of that directory.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

use super::{Answer, FileError, FileStatus, JobFiles, Location, unfinished};
use crate::ids::JobId;
use corona_filesystem::{millis, without_links};

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
        let metadata = match Staged::find(location) {
            Some(staged) => staged.open().and_then(|file| file.metadata()),
            None => fs::metadata(location.path()),
        };
        let metadata = metadata.map_err(failed)?;
        if !metadata.is_file() {
            return Err(FileError::NotAFile(location.clone()));
        }
        let modified = metadata.modified().map_err(failed)?;
        Ok(FileStatus { bytes: metadata.len(), modified_ms: millis(modified) })
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
        let from = match Staged::find(location) {
            Some(staged) => staged.open(),
            None => File::open(location.path()),
        };
        let mut from = from.map_err(read)?;
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

/// A file below a directory with the name of a job.
struct Staged {
    /// The directory of the jobs' directories, which an administrator may have linked.
    root: PathBuf,
    below: PathBuf,
}

const STEP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// A pipe must not be waited for.
const PLAIN: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

impl Staged {
    fn find(location: &Location) -> Option<Staged> {
        let is_of_a_job = |part: &Component<'_>| {
            part.as_os_str().to_str().is_some_and(|it| it.parse::<JobId>().is_ok())
        };
        let parts: Vec<Component<'_>> = Path::new(location.path()).components().collect();
        let (root, below) = parts.split_at(parts.iter().position(is_of_a_job)?);
        Some(Staged { root: root.iter().collect(), below: below.iter().collect() })
    }

    fn open(&self) -> io::Result<File> {
        let mut directory = openat(CWD, &self.root, STEP, Mode::empty())?;
        let mut owner = None;
        let mut parts = self.below.components().peekable();
        while let Some(part) = parts.next() {
            let Component::Normal(name) = part else { return Err(refused("is no name of a file")) };
            if parts.peek().is_none() {
                let file = openat(&directory, name, PLAIN, Mode::empty()).map_err(without_links)?;
                return checked(File::from(file), owner);
            }
            let flags = STEP | OFlags::NOFOLLOW;
            directory = openat(&directory, name, flags, Mode::empty()).map_err(without_links)?;
            owner = Some(same_owner(&directory, owner)?);
        }
        Err(refused("is a directory"))
    }
}

fn same_owner(directory: &OwnedFd, owner: Option<u32>) -> io::Result<u32> {
    let found = fstat(directory)?.st_uid;
    compare(found, owner).map(|()| found)
}

fn checked(file: File, owner: Option<u32>) -> io::Result<File> {
    let metadata: Metadata = file.metadata()?;
    compare(metadata.uid(), owner).map(|()| file)
}

fn compare(found: u32, owner: Option<u32>) -> io::Result<()> {
    match owner {
        Some(owner) if owner != found => {
            Err(refused("does not belong to the owner of its job's directory"))
        }
        _ => Ok(()),
    }
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
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
        let time = std::time::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        File::options().write(true).open(&from).unwrap().set_modified(time).unwrap();
        let files = LocalFiles { max_bytes: content.len() as u64, ..files() };
        let status = files.status(&location(&from)).await.unwrap();
        let bytes = content.len() as u64;
        assert_eq!(status, FileStatus { bytes, modified_ms: 1_700_000_000_123 });
        assert_eq!(files.fetch(&location(&from), &to).await.unwrap(), bytes);
        assert_eq!(fs::read_to_string(&to).unwrap(), content);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    fn files() -> LocalFiles {
        LocalFiles { timeout: Duration::from_secs(600), max_bytes: 1 << 20 }
    }

    #[tokio::test]
    async fn files_of_jobs_are_reached_by_no_link_and_other_files_are() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for directory in ["system/job_7.1_0001/files", "home"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        for file in ["home/secret", "system/job_7.1_0001/job.xml", "system/job_7.1_0001/files/side"]
        {
            fs::write(at(file), file).unwrap();
        }
        let link = |to: &str, from: &str| std::os::unix::fs::symlink(at(to), at(from)).unwrap();
        link("home/secret", "system/job_7.1_0001/job.jar");
        link("home", "system/job_7.1_0001/libjars");
        link("system/job_7.1_0001", "system/job_7.2_0001");
        link("home/secret", "home/link");
        // The administrator may link the directory itself.
        link("system", "linked");
        let files = files();
        for staging in ["system", "linked"] {
            for (name, refused) in [
                ("job_7.1_0001/job.xml", None),
                ("job_7.1_0001/files/side", None),
                ("./job_7.1_0001//files/./side", None),
                ("job_7.1_0001/job.jar", Some("is reached by a symbolic link")),
                ("job_7.1_0001/libjars/secret", Some("is reached by a symbolic link")),
                ("job_7.2_0001/job.xml", Some("is reached by a symbolic link")),
                ("job_7.1_0001/files", Some("is not a file")),
                ("job_7.1_0001/none", Some("does not exist")),
            ] {
                let from = Location::from_path(&format!("{}/{name}", at(staging).display()));
                let fetched = files.fetch(&from.unwrap(), &at("to")).await;
                match (fetched, refused) {
                    (Ok(_), None) => fs::remove_file(at("to")).unwrap(),
                    (Err(error), Some(why)) => {
                        assert!(error.to_string().contains(why), "{name}: {error}");
                        assert!(!at("to").exists(), "{name}");
                    }
                    (fetched, _) => panic!("{name}: {fetched:?}"),
                }
            }
            // What a user names elsewhere is read as the user sees it.
            assert!(files.fetch(&location(&at("home/link")), &at("to")).await.is_ok());
        }
    }

    #[test]
    fn files_of_jobs_belong_to_the_owner_of_their_directory() {
        assert!(compare(7, None).is_ok() && compare(7, Some(7)).is_ok());
        assert!(compare(7, Some(8)).unwrap_err().to_string().contains("does not belong"));
    }

    #[tokio::test]
    async fn failed_copies_leave_nothing() {
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
        let files = LocalFiles { max_bytes: 4, ..files() };
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
