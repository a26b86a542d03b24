//! Threads that write journals and make them durable: those of one journal, or those that many share.
//!
//! Each journal is written by one thread at a time. A thread takes the journal that has waited longest, and writes
//! all that waits there, so that a journal with much to write delays no other one for long.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::storage::StorageError;
use super::writer::WriterCore;

/// Threads that journals share. Copies are the same threads; these end with the last copy and the last journal.
#[derive(Clone)]
pub struct Writers {
    threads: Arc<Threads>,
}

/// Joins the threads when it is dropped.
struct Threads {
    pool: Arc<Pool>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

/// What waits for the threads.
#[derive(Default)]
struct Pool {
    queue: Mutex<Queue>,
    /// There is something to write, or the end.
    to_write: Condvar,
    /// There is something to make durable, or it is needed earlier, or the end.
    to_sync: Condvar,
}

#[derive(Default)]
struct Queue {
    write: VecDeque<Arc<WriterCore>>,
    /// With a number, as several may be due at the same time.
    sync: BTreeMap<(Instant, u64), Arc<WriterCore>>,
    numbered: u64,
    closing: bool,
}

impl fmt::Debug for Writers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writers").finish_non_exhaustive()
    }
}

impl Writers {
    /// Starts `writing` threads that write and `syncing` threads that make durable what was written, at least one of
    /// each kind.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub fn start(writing: usize, syncing: usize) -> Result<Writers, StorageError> {
        let pool = Arc::<Pool>::default();
        let threads = Arc::new(Threads { pool: pool.clone(), handles: Mutex::new(Vec::new()) });
        let writers = Writers { threads };
        for _ in 0..writing.max(1) {
            writers.spawn("journal-write", Pool::write)?;
        }
        for _ in 0..syncing.max(1) {
            writers.spawn("journal-sync", Pool::sync)?;
        }
        Ok(writers)
    }

    fn spawn(&self, name: &str, work: fn(&Pool)) -> Result<(), StorageError> {
        let pool = self.threads.pool.clone();
        let handle = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&pool))
            .map_err(|source| StorageError::System {
                path: name.into(),
                operation: "start the thread",
                source,
            })?;
        self.threads.handles.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        Ok(())
    }

    /// The journal has something to write. The caller makes sure that it does not wait already.
    pub(crate) fn write(&self, journal: Arc<WriterCore>) {
        self.threads.pool.lock().write.push_back(journal);
        self.threads.pool.to_write.notify_one();
    }

    /// The journal has something to make durable at `due`.
    pub(crate) fn sync_at(&self, due: Instant, journal: Arc<WriterCore>) {
        let mut queue = self.threads.pool.lock();
        queue.numbered += 1;
        let number = queue.numbered;
        let is_first = queue.sync.first_key_value().is_none_or(|((first, _), _)| due < *first);
        queue.sync.insert((due, number), journal);
        drop(queue);
        if is_first {
            self.threads.pool.to_sync.notify_one();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.pool.lock().closing = true;
        self.pool.to_write.notify_all();
        self.pool.to_sync.notify_all();
        let handles = self.handles.get_mut().unwrap_or_else(PoisonError::into_inner);
        for handle in handles.drain(..) {
            // A thread of its own may hold the last journal. Panics are caught where journals are written.
            if handle.thread().id() != thread::current().id() {
                let _ = handle.join();
            }
        }
    }
}

impl Pool {
    /// No panic happens while the lock is held.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that writes.
    fn write(&self) {
        let mut batch = Vec::new();
        let mut queue = self.lock();
        loop {
            if let Some(journal) = queue.write.pop_front() {
                drop(queue);
                let again = journal.write(&mut batch);
                queue = self.lock();
                if again {
                    queue.write.push_back(journal);
                } else {
                    // Not under the lock: it may be the last copy.
                    drop(queue);
                    drop(journal);
                    queue = self.lock();
                }
            } else if queue.closing {
                return;
            } else {
                queue = self.to_write.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// A thread that makes durable what is due.
    fn sync(&self) {
        let mut queue = self.lock();
        loop {
            let now = Instant::now();
            let due = queue.sync.first_key_value().map(|((due, _), _)| *due);
            queue = match due {
                Some(due) if due <= now || queue.closing => {
                    let journal = queue.sync.pop_first();
                    drop(queue);
                    if let Some((_, journal)) = journal {
                        journal.make_durable();
                    }
                    self.lock()
                }
                Some(due) => self
                    .to_sync
                    .wait_timeout(queue, due - now)
                    .map_or_else(|poisoned| poisoned.into_inner().0, |(queue, _)| queue),
                None if queue.closing => return,
                None => self.to_sync.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
