//! A disk whose writes wait or fail as a test wants. Everything else is done by a real directory.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::opening::Disk;
use corona_journal::{DiskStorage, Storage, StorageError, StorageFile};

/// What is wrong with a disk. Shared by all files on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Arc<(Mutex<FaultState>, Condvar)>);

#[derive(Debug, Default)]
struct FaultState {
    /// Writes wait.
    held: bool,
    write: Option<io::ErrorKind>,
    sync: Option<io::ErrorKind>,
    /// Syncs that have failed.
    failed_syncs: usize,
    /// Syncs that were tried after the first of them.
    later_syncs: usize,
}

impl Faults {
    /// A disk with these faults.
    pub(crate) fn disk(&self) -> Disk {
        let faults = self.clone();
        Disk::behind(move |disk| Arc::new(Faulty { disk, faults: faults.clone() }))
    }

    /// Has writes wait, or continue.
    pub(crate) fn hold(&self, held: bool) {
        self.state().held = held;
        self.0.1.notify_all();
    }

    /// Has all writes from now on fail.
    pub(crate) fn fail_writes(&self, kind: io::ErrorKind) {
        self.state().write = Some(kind);
    }

    /// Has all syncs from now on fail.
    pub(crate) fn fail_syncs(&self, kind: io::ErrorKind) {
        self.state().sync = Some(kind);
    }

    /// Syncs that have failed, and syncs that were tried after the first of them. Writes do not count: one that
    /// another thread has begun may reach the disk after a sync has failed and before the journal has heard of it.
    pub(crate) fn syncs(&self) -> (usize, usize) {
        let state = self.state();
        (state.failed_syncs, state.later_syncs)
    }

    fn state(&self) -> MutexGuard<'_, FaultState> {
        self.0.0.lock().unwrap()
    }

    fn before_write(&self) -> io::Result<()> {
        let state = self.0.1.wait_while(self.state(), |state| state.held).unwrap();
        state.write.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn before_sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.later_syncs += usize::from(state.failed_syncs > 0);
        let Some(kind) = state.sync else { return Ok(()) };
        state.failed_syncs += 1;
        Err(kind.into())
    }
}

struct Faulty {
    disk: DiskStorage,
    faults: Faults,
}

struct FaultyFile {
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    faults: Faults,
}

impl Faulty {
    fn opened(
        &self,
        name: &str,
        file: Result<Arc<dyn StorageFile>, StorageError>,
    ) -> Result<Arc<dyn StorageFile>, StorageError> {
        let (path, faults) = (self.disk.directory().join(name), self.faults.clone());
        Ok(Arc::new(FaultyFile { path, file: file?, faults }))
    }
}

impl Storage for Faulty {
    fn list(&self) -> Result<Vec<String>, StorageError> {
        self.disk.list()
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, StorageError> {
        self.disk.read(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn StorageFile>, StorageError> {
        self.opened(name, self.disk.create(name))
    }

    fn append(&self, name: &str) -> Result<Arc<dyn StorageFile>, StorageError> {
        self.opened(name, self.disk.append(name))
    }

    fn truncate(&self, name: &str, length: u64) -> Result<(), StorageError> {
        self.disk.truncate(name, length)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.disk.remove(name)
    }

    fn replace(&self, name: &str, bytes: &[u8], durably: bool) -> Result<(), StorageError> {
        self.disk.replace(name, bytes, durably)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.disk.sync()
    }

    fn release(&self) {
        self.disk.release();
    }
}

impl FaultyFile {
    fn error(&self, operation: &'static str) -> impl FnOnce(io::Error) -> StorageError {
        move |source| StorageError::System { path: self.path.clone(), operation, source }
    }
}

impl StorageFile for FaultyFile {
    fn write(&self, bytes: &[u8]) -> Result<(), StorageError> {
        self.faults.before_write().map_err(self.error("write"))?;
        self.file.write(bytes)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.faults.before_sync().map_err(self.error("sync"))?;
        self.file.sync()
    }
}
