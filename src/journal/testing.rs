//! A storage for tests, whose writes wait or fail as a test wants. Everything else is done by another storage.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::{Storage, StorageError, StorageFile};

/// The faults of a storage, shared by all its files.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<(Mutex<FaultState>, Condvar)>);

#[derive(Debug, Default)]
struct FaultState {
    /// Writes wait.
    held: bool,
    /// Writes that have begun and not ended.
    writing: usize,
    /// How long each write takes.
    pause: Duration,
    /// The names of the threads that have written.
    writers: Vec<String>,
    write: Option<io::ErrorKind>,
    sync: Option<io::ErrorKind>,
    /// Syncs that have failed.
    failed_syncs: usize,
    /// Syncs that were tried after the first of them.
    later_syncs: usize,
}

impl Faults {
    /// A storage with these faults.
    pub fn on(&self, storage: impl Storage) -> Arc<dyn Storage> {
        Arc::new(Faulty { storage, faults: self.clone() })
    }

    /// Has writes wait, or continue.
    pub fn hold(&self, held: bool) {
        self.state().held = held;
        self.0.1.notify_all();
    }

    /// Blocks the thread until a write has begun that has not ended.
    pub fn wait_for_write(&self) {
        let waited = self
            .0
            .1
            .wait_timeout_while(self.state(), Duration::from_secs(60), |it| it.writing == 0);
        let (_state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "nothing is written");
    }

    /// Has each write take this long.
    pub fn pause(&self, pause: Duration) {
        self.state().pause = pause;
    }

    /// The names of the threads that have written since the last call.
    pub fn take_writers(&self) -> Vec<String> {
        std::mem::take(&mut self.state().writers)
    }

    /// Has all writes from now on fail, and making files.
    pub fn fail_writes(&self, kind: io::ErrorKind) {
        self.state().write = Some(kind);
    }

    /// Has all syncs from now on fail.
    pub fn fail_syncs(&self, kind: io::ErrorKind) {
        self.state().sync = Some(kind);
    }

    /// Syncs that have failed, and syncs that were tried after the first of them. Writes do not count: one that
    /// another thread has begun may reach the disk after a sync has failed and before the journal has heard of it.
    pub fn syncs(&self) -> (usize, usize) {
        let state = self.state();
        (state.failed_syncs, state.later_syncs)
    }

    fn state(&self) -> MutexGuard<'_, FaultState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn before_write(&self) -> io::Result<()> {
        let mut state = self.state();
        state.writers.push(thread::current().name().unwrap_or_default().to_owned());
        state.writing += 1;
        self.0.1.notify_all();
        let held = self.0.1.wait_while(state, |state| state.held);
        let mut state = held.unwrap_or_else(PoisonError::into_inner);
        state.writing -= 1;
        let (pause, write) = (state.pause, state.write);
        drop(state);
        thread::sleep(pause);
        write.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn before_create(&self) -> io::Result<()> {
        self.state().write.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn before_sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.later_syncs += usize::from(state.failed_syncs > 0);
        let Some(kind) = state.sync else { return Ok(()) };
        state.failed_syncs += 1;
        Err(kind.into())
    }
}

struct Faulty<S> {
    storage: S,
    faults: Faults,
}

struct FaultyFile {
    name: String,
    file: Arc<dyn StorageFile>,
    faults: Faults,
}

impl<S> Faulty<S> {
    fn opened(
        &self,
        name: &str,
        file: Result<Arc<dyn StorageFile>, StorageError>,
    ) -> Result<Arc<dyn StorageFile>, StorageError> {
        let (name, faults) = (name.to_owned(), self.faults.clone());
        Ok(Arc::new(FaultyFile { name, file: file?, faults }))
    }
}

impl<S: Storage> Storage for Faulty<S> {
    fn list(&self) -> Result<Vec<String>, StorageError> {
        self.storage.list()
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, StorageError> {
        self.storage.read(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn StorageFile>, StorageError> {
        self.faults.before_create().map_err(error(name, "create"))?;
        self.opened(name, self.storage.create(name))
    }

    fn append(&self, name: &str) -> Result<Arc<dyn StorageFile>, StorageError> {
        self.opened(name, self.storage.append(name))
    }

    fn truncate(&self, name: &str, length: u64) -> Result<(), StorageError> {
        self.storage.truncate(name, length)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        self.storage.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.storage.remove(name)
    }

    fn replace(&self, name: &str, bytes: &[u8], durably: bool) -> Result<(), StorageError> {
        self.storage.replace(name, bytes, durably)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.storage.sync()
    }

    fn release(&self) {
        self.storage.release();
    }
}

fn error(name: &str, operation: &'static str) -> impl FnOnce(io::Error) -> StorageError {
    move |source| StorageError::System { path: name.into(), operation, source }
}

impl StorageFile for FaultyFile {
    fn write(&self, bytes: &[u8]) -> Result<(), StorageError> {
        self.faults.before_write().map_err(error(&self.name, "write"))?;
        self.file.write(bytes)
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.faults.before_sync().map_err(error(&self.name, "sync"))?;
        self.file.sync()
    }
}
