//! The storage of a journal: a flat directory of files. A trait, so that tests can lose writes that
//! were not yet synced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corona_process::descriptors::patiently;
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
    /// Writes over the beginning of a file, which is created if needed and is not open elsewhere.
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
    /// Held while it is open. None if it is only looked at, or released, or if a directory above it is locked.
    lock: Mutex<Option<File>>,
    /// Segments are open only while something is to be written or made durable.
    unsynced: Option<Unsynced>,
}

/// The segments of many journals that are open since they were written and are not durable yet. A journal of
/// which nothing is to be written holds no open file.
#[derive(Clone, Debug)]
pub struct Unsynced {
    open: Arc<AtomicUsize>,
    most: usize,
    /// The file whose lock marks all these journals as in use.
    lock: Arc<Path>,
}

impl Unsynced {
    /// At most so many are open. With more, what is written is made durable at once. The caller holds the lock
    /// of the file `lock`, in a directory above all these journals.
    pub fn at_most(most: usize, lock: &Path) -> Unsynced {
        Unsynced { open: Arc::default(), most, lock: lock.into() }
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

/// The file whose lock marks the directory as in use.
const LOCK: &str = "lock";

impl DiskStorage {
    /// Opens a directory, creating it if needed.
    ///
    /// # Errors
    /// It cannot be made or locked, or another process uses it.
    pub fn open(directory: &Path) -> Result<DiskStorage, StorageError> {
        make(directory)?;
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
        let lock = Mutex::new(Some(lock));
        Ok(DiskStorage { directory: directory.to_owned(), lock, unsynced: None })
    }

    /// Opens one of many directories, creating it if needed. It costs no descriptor: its lock is the
    /// one that the caller holds for all of them, by another name. So other programs find that it is in use.
    ///
    /// # Errors
    /// It cannot be made, or another process uses it.
    pub fn open_among(directory: &Path, unsynced: &Unsynced) -> Result<DiskStorage, StorageError> {
        make(directory)?;
        let name = directory.join(LOCK);
        if is_locked_elsewhere(&name, &unsynced.lock) {
            return Err(StorageError::InUse { path: directory.to_owned() });
        }
        // An earlier one may be that of another service. A file system that has no links has no lock here.
        let _ = fs::remove_file(&name);
        let _ = fs::hard_link(&unsynced.lock, &name);
        let (directory, lock) = (directory.to_owned(), Mutex::new(None));
        Ok(DiskStorage { directory, lock, unsynced: Some(unsynced.clone()) })
    }

    /// A directory to look at only: another process may be writing to it.
    ///
    /// # Errors
    /// It cannot be listed.
    pub fn look(directory: &Path) -> Result<DiskStorage, StorageError> {
        let (lock, unsynced) = (Mutex::new(None), None);
        let storage = DiskStorage { directory: directory.to_owned(), lock, unsynced };
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

    /// Opens a file; one of many waits while there is no free descriptor.
    fn opening(&self, mut open: impl FnMut() -> io::Result<File>) -> io::Result<File> {
        match self.unsynced {
            Some(_) => patiently(open),
            None => open(),
        }
    }

    fn opened(&self, name: &str, file: File) -> Arc<dyn StorageFile> {
        let path = self.path(name);
        match &self.unsynced {
            None => Arc::new(DiskFile { path, file }),
            Some(unsynced) => {
                unsynced.open.fetch_add(1, Ordering::Relaxed);
                // What a crash of the process left written may not be durable.
                let state = Brief { file: Some(Arc::new(file)), writes: 0 };
                Arc::new(BriefFile { path, unsynced: unsynced.clone(), state: Mutex::new(state) })
            }
        }
    }
}

/// Whether a process holds the lock of a journal that is not a further name of the lock above it: it repairs it.
fn is_locked_elsewhere(name: &Path, above: &Path) -> bool {
    let Ok(file) = File::open(name) else { return false };
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let own = fs::metadata(above).map(id).ok();
    file.metadata().map(id).ok() != own
        && flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
}

fn make(directory: &Path) -> Result<(), StorageError> {
    if !directory.is_dir() {
        fs::create_dir_all(directory).map_err(system(directory, "make the directory"))?;
        sync_parent(directory).map_err(system(directory, "sync the parent of"))?;
    }
    Ok(())
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
        if self.unsynced.is_some() {
            // Versions before 0.2.0 lock this file itself, beside the one above, of which it is a further name.
            let _ = fs::remove_file(self.path(LOCK));
        }
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
            self.opening(|| OpenOptions::new().append(true).create_new(true).mode(0o600).open(path))
        })?;
        Ok(self.opened(name, file))
    }

    fn append(&self, name: &str) -> Result<Arc<dyn StorageFile>, StorageError> {
        let file = self
            .on(name, "open", |path| self.opening(|| OpenOptions::new().append(true).open(path)))?;
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

/// A file that is open from a write until that is durable.
struct BriefFile {
    path: PathBuf,
    unsynced: Unsynced,
    state: Mutex<Brief>,
}

#[derive(Default)]
struct Brief {
    file: Option<Arc<File>>,
    /// Writes so far.
    writes: u64,
}

impl BriefFile {
    /// No panic happens while it is held.
    fn lock(&self) -> MutexGuard<'_, Brief> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, operation: &'static str) -> impl FnOnce(io::Error) -> StorageError {
        system(&self.path, operation)
    }

    fn open(&self) -> Result<Arc<File>, StorageError> {
        let open = || OpenOptions::new().append(true).open(&self.path);
        let file = patiently(open).map_err(self.error("open"))?;
        self.unsynced.open.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(file))
    }

    fn close(&self, state: &mut Brief) {
        if state.file.take().is_some() {
            self.unsynced.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl StorageFile for BriefFile {
    fn write(&self, bytes: &[u8]) -> Result<(), StorageError> {
        let mut state = self.lock();
        let file = match &state.file {
            Some(file) => file.clone(),
            None => state.file.insert(self.open()?).clone(),
        };
        (&*file).write_all(bytes).map_err(self.error("write"))?;
        state.writes += 1;
        if self.unsynced.open() > self.unsynced.most {
            file.sync_data().map_err(self.error("sync"))?;
            self.close(&mut state);
        }
        Ok(())
    }

    /// What is not open was made durable.
    fn sync(&self) -> Result<(), StorageError> {
        let (file, writes) = match &*self.lock() {
            Brief { file: Some(file), writes } => (file.clone(), *writes),
            Brief { file: None, .. } => return Ok(()),
        };
        file.sync_data().map_err(self.error("sync"))?;
        let mut state = self.lock();
        if state.writes == writes {
            self.close(&mut state);
        }
        Ok(())
    }
}

impl Drop for BriefFile {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.file.is_some() {
            self.unsynced.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Journal, Options, Sync, Writers};

    /// Descriptors of this process that lead below a directory.
    fn open_below(directory: &Path) -> usize {
        let entries = fs::read_dir("/proc/self/fd").unwrap();
        let targets = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        targets.filter(|target| target.starts_with(directory)).count()
    }

    /// Waits for a condition that holds soon.
    fn until(what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..6000 {
            if is_so() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{what}");
    }

    #[test]
    fn a_journal_among_others_is_in_use_while_the_lock_above_them_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let (path, journal) = (dir.path().join("lock"), dir.path().join("jobs/1/journal"));
        for _ in 0..2 {
            let held = File::options().create(true).append(true).open(&path).unwrap();
            flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
            let unsynced = Unsynced::at_most(4, &path);
            let storage = DiskStorage::open_among(&journal, &unsynced).unwrap();
            let refused = DiskStorage::open(&journal).unwrap_err();
            assert!(matches!(refused, StorageError::InUse { .. }), "{refused}");
            assert!(DiskStorage::look(&journal).unwrap().list().unwrap().is_empty());
            // A version before 0.2.0 holds the lock above, and locks each journal.
            storage.release();
            let repair = DiskStorage::open(&journal).unwrap();
            let refused = DiskStorage::open_among(&journal, &unsynced).unwrap_err();
            assert!(matches!(refused, StorageError::InUse { .. }), "{refused}");
            drop(repair);
            drop((held, DiskStorage::open_among(&journal, &unsynced).unwrap()));
            // The service was killed: the journal may be repaired, and no service starts meanwhile.
            let _repair = DiskStorage::open(&journal).unwrap();
            let again = File::options().append(true).open(&path).unwrap();
            flock(&again, FlockOperation::NonBlockingLockExclusive).unwrap_err();
        }
    }

    #[test]
    fn journals_of_which_nothing_is_to_be_written_hold_no_open_file() {
        for sync in [Sync::Write, Sync::Always] {
            let dir = tempfile::tempdir().unwrap();
            let unsynced = Unsynced::at_most(4, Path::new("/no/lock"));
            let writers = Writers::start(2, 2).unwrap();
            let options = Options { sync, segment_bytes: 200, ..Options::default() };
            let open = |number: usize, seen: &mut Vec<Vec<u8>>| {
                let directory = dir.path().join(number.to_string());
                let storage = Arc::new(DiskStorage::open_among(&directory, &unsynced).unwrap());
                let visit = |entry: Entry<'_>| {
                    if let Entry::Record { bytes, .. } = entry {
                        seen.push(bytes.to_vec());
                    }
                    Ok(())
                };
                Journal::open_with(writers.clone(), storage, options, visit).unwrap().0
            };
            let journals: Vec<Journal> = (0..30).map(|it| open(it, &mut Vec::new())).collect();
            let idle = || unsynced.open() == 0 && open_below(dir.path()) == 0;
            assert!(idle(), "{} {}", unsynced.open(), open_below(dir.path()));
            // Some records start further segments.
            for round in 0..20_u8 {
                for journal in &journals {
                    journal.append(&[round; 20]).unwrap();
                    // One more for each thread that writes.
                    assert!(unsynced.open() <= 4 + 2, "{}", unsynced.open());
                }
                if round % 10 == 0 {
                    until("all files are closed", idle);
                }
            }
            for journal in &journals {
                journal.close().unwrap();
            }
            until("all files are closed", idle);
            drop(journals);
            for number in 0..30 {
                let mut seen = Vec::new();
                drop(open(number, &mut seen));
                let expected: Vec<Vec<u8>> = (0..20_u8).map(|round| vec![round; 20]).collect();
                assert_eq!(seen, expected);
            }
        }
    }
}
