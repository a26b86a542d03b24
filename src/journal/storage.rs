//! The storage of a journal: a flat directory of files. A trait, so that tests can lose writes that
//! were not yet synced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use super::marker::MARKER;

/// A flat directory of files.
pub trait Storage: Send + Sync + 'static {
    /// The names of all files.
    fn list(&self) -> Result<Vec<String>, StorageError>;
    /// The contents of a file.
    fn read(&self, name: &str) -> Result<Vec<u8>, StorageError>;
    /// Makes a file that is not there yet.
    fn create(&self, name: &str) -> Result<Arc<dyn StorageFile>, StorageError>;
    /// Opens a file that is there, to write at its end.
    fn append(&self, name: &str) -> Result<Arc<dyn StorageFile>, StorageError>;
    /// Cuts a file off at this length, durably.
    fn truncate(&self, name: &str, length: u64) -> Result<(), StorageError>;
    /// Gives a file another name; a file of that name is replaced.
    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError>;
    /// Deletes a file.
    fn remove(&self, name: &str) -> Result<(), StorageError>;
    /// Writes over the beginning of a file, which is made if it is not there; nobody has it open.
    ///
    /// # Errors
    /// The file cannot be written. Without `durably` it may also stay as it was.
    fn replace(&self, name: &str, bytes: &[u8], durably: bool) -> Result<(), StorageError>;
    /// Makes the names durable: files that were created, renamed and removed.
    fn sync(&self) -> Result<(), StorageError>;
    /// Lets others open it; nothing is written any more.
    fn release(&self) {}
}

/// A file that is open for writing at its end.
pub trait StorageFile: Send + Sync {
    /// Writes all bytes.
    fn write(&self, bytes: &[u8]) -> Result<(), StorageError>;
    /// Makes all writes durable. A failure is final: earlier writes may be lost, and another
    /// attempt would not report it.
    fn sync(&self) -> Result<(), StorageError>;
}

/// An operation on a file failed.
#[derive(Debug, Error)]
pub enum StorageError {
    /// The system refused it.
    #[error("{path}: cannot {operation}: {source}")]
    System {
        /// The file or directory.
        path: PathBuf,
        /// The operation, as a verb.
        operation: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Another process has the journal open.
    #[error("{path}: another process uses this journal")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

impl StorageError {
    /// Whether the file system has no room, for all or for this user.
    pub fn is_lack_of_room(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};

        matches!(self, StorageError::System { source, .. }
            if matches!(source.kind(), StorageFull | QuotaExceeded))
    }
}

/// A directory of a file system. While it is open no other process can open it.
#[derive(Debug)]
pub struct DiskStorage {
    directory: PathBuf,
    /// Held while it is open. None if it is only looked at, or released.
    lock: Mutex<Option<File>>,
}

/// The file whose lock marks the directory as in use.
const LOCK: &str = "lock";

impl DiskStorage {
    /// Opens a directory, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made or locked, or another process uses it.
    pub fn open(directory: &Path) -> Result<DiskStorage, StorageError> {
        if !directory.is_dir() {
            fs::create_dir_all(directory).map_err(system(directory, "make the directory"))?;
            sync_parent(directory).map_err(system(directory, "sync the parent of"))?;
        }
        let path = directory.join(LOCK);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(system(&path, "open"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| StorageError::InUse { path: directory.to_owned() })?;
        Ok(DiskStorage { directory: directory.to_owned(), lock: Mutex::new(Some(lock)) })
    }

    /// A directory to look at only: another process may be writing to it.
    ///
    /// # Errors
    /// It cannot be listed.
    pub fn look(directory: &Path) -> Result<DiskStorage, StorageError> {
        let storage = DiskStorage { directory: directory.to_owned(), lock: Mutex::new(None) };
        storage.list()?;
        Ok(storage)
    }

    /// Gives a directory that holds a journal, or what is left of one, another name, which is returned: its
    /// own with `.old`, or `.old.2` and so on, behind it. `None` if there is no journal.
    ///
    /// # Errors
    /// It cannot be renamed, or another process uses it.
    pub fn set_aside(directory: &Path) -> Result<Option<PathBuf>, StorageError> {
        let is_marked = beside(directory).exists();
        let _in_use = match directory.exists() {
            true => {
                let storage = DiskStorage::open(directory)?;
                if storage.list()?.is_empty() {
                    return Ok(None);
                }
                Some(storage)
            }
            false if is_marked => None,
            false => return Ok(None),
        };
        let name = |number: u32| match number {
            1 => with_suffix(directory, ".old"),
            _ => with_suffix(directory, &format!(".old.{number}")),
        };
        let is_free = |aside: &PathBuf| !aside.exists() && !beside(aside).exists();
        let free = (1..u32::MAX).map(name).find(is_free).unwrap_or_default();
        DiskStorage::rename_all(directory, &free)?;
        Ok(Some(free))
    }

    /// Gives the directory of a journal, and the marker beside it, other names. What is not there is left out.
    ///
    /// # Errors
    /// One of them cannot be renamed.
    pub fn rename_all(directory: &Path, to: &Path) -> Result<(), StorageError> {
        // The marker first: it must never be alone.
        for (from, to) in [(beside(directory), beside(to)), (directory.to_owned(), to.to_owned())] {
            let renamed = fs::rename(&from, to);
            if let Err(error) = renamed
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(system(&from, "rename")(error));
            }
        }
        sync_parent(directory).map_err(system(directory, "sync the parent of"))
    }

    /// Deletes the directory of a journal and the marker beside it. What is not there is left out.
    ///
    /// # Errors
    /// One of them cannot be deleted.
    pub fn remove_all(directory: &Path) -> Result<(), StorageError> {
        let marker = beside(directory);
        // The marker first: it must never be alone.
        for (path, removed) in
            [(&*marker, fs::remove_file(&marker)), (directory, fs::remove_dir_all(directory))]
        {
            if let Err(error) = removed
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(system(path, "remove")(error));
            }
        }
        Ok(())
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn on<T>(
        &self,
        name: &str,
        operation: &'static str,
        run: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Result<T, StorageError> {
        let path = self.path(name);
        run(&path).map_err(system(&path, operation))
    }

    /// Where a file is. The marker is beside the directory, so that it outlives it; where nothing may be
    /// written there, it is in the directory.
    fn path(&self, name: &str) -> PathBuf {
        let inside = self.directory.join(name);
        if name == MARKER && !inside.exists() { beside(&self.directory) } else { inside }
    }

    fn opened(&self, name: &str, file: File) -> Arc<dyn StorageFile> {
        Arc::new(DiskFile { path: self.path(name), file })
    }
}

/// Where the marker of a directory is.
fn beside(directory: &Path) -> PathBuf {
    with_suffix(directory, ".marker")
}

/// The path with a longer last name. A slash at its end does not count.
fn with_suffix(directory: &Path, suffix: &str) -> PathBuf {
    let mut path = directory.components().collect::<PathBuf>().into_os_string();
    path.push(suffix);
    path.into()
}

fn system(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> StorageError {
    let path = path.to_owned();
    move |source| StorageError::System { path, operation, source }
}

/// Writes over the beginning of a file.
fn write_over(path: &Path, bytes: &[u8], durably: bool) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(path)?;
    file.write_all_at(bytes, 0)?;
    if durably {
        file.sync_all()?;
        sync_parent(path)?;
    }
    Ok(())
}

/// Makes the name of a directory durable.
fn sync_parent(directory: &Path) -> io::Result<()> {
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

impl Storage for DiskStorage {
    fn release(&self) {
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn list(&self) -> Result<Vec<String>, StorageError> {
        self.on("", "list", |path| {
            let mut names = Vec::new();
            let is_marked = beside(&self.directory).exists();
            if is_marked {
                names.push(MARKER.to_owned());
                if !path.exists() {
                    return Ok(names);
                }
            }
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                if entry.file_type()?.is_file()
                    && let Ok(name) = entry.file_name().into_string()
                    && name != LOCK
                    && !(is_marked && name == MARKER)
                {
                    names.push(name);
                }
            }
            Ok(names)
        })
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, StorageError> {
        self.on(name, "read", |path| {
            let mut bytes = Vec::new();
            File::open(path)?.read_to_end(&mut bytes)?;
            Ok(bytes)
        })
    }

    fn create(&self, name: &str) -> Result<Arc<dyn StorageFile>, StorageError> {
        let file = self.on(name, "create", |path| {
            OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
        })?;
        Ok(self.opened(name, file))
    }

    fn append(&self, name: &str) -> Result<Arc<dyn StorageFile>, StorageError> {
        let file = self.on(name, "open", |path| OpenOptions::new().append(true).open(path))?;
        Ok(self.opened(name, file))
    }

    fn truncate(&self, name: &str, length: u64) -> Result<(), StorageError> {
        self.on(name, "truncate", |path| {
            let file = OpenOptions::new().write(true).open(path)?;
            file.set_len(length)?;
            file.sync_all()
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        let to = self.directory.join(to);
        self.on(from, "rename", |path| fs::rename(path, to))
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.on(name, "remove", |path| fs::remove_file(path))
    }

    fn replace(&self, name: &str, bytes: &[u8], durably: bool) -> Result<(), StorageError> {
        let is_there = self.path(name).exists();
        self.on(name, "write", |path| match write_over(path, bytes, durably) {
            // It stays as it is, which is true as well, and is replaced later.
            Err(_) if is_there && !durably => Ok(()),
            Err(error) if !is_there && may_not_write(&error) => {
                write_over(&self.directory.join(name), bytes, durably)
            }
            written => written,
        })
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.on("", "sync", |path| File::open(path)?.sync_all())
    }
}

fn may_not_write(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};

    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | StorageFull | QuotaExceeded)
}

struct DiskFile {
    path: PathBuf,
    file: File,
}

impl DiskFile {
    fn error(&self, operation: &'static str) -> impl FnOnce(io::Error) -> StorageError {
        move |source| StorageError::System { path: self.path.clone(), operation, source }
    }
}

impl StorageFile for DiskFile {
    fn write(&self, bytes: &[u8]) -> Result<(), StorageError> {
        (&self.file).write_all(bytes).map_err(self.error("write"))
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.file.sync_data().map_err(self.error("sync"))
    }
}
