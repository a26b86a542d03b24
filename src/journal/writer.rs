//! The live journal: records are appended to memory, one thread writes many of them at once, another
//! makes them durable in the background. A thread that appends may also write its record itself
//! ([`Journal::write_appended`]), which spares two switches of threads when nothing else waits.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::watch;

use super::frame;
use super::log::{Log, store_image};
use super::recovery::{self, Entry, OpenError, Recovered, Rejected};
use super::storage::{Storage, StorageError, StorageFile};
use super::tap::{self, Feed, Tap, Tapped};

/// Bytes that a thread that appends writes itself, at most. More go to the thread that writes.
const MAX_OWN_WRITE: usize = 64 << 10;
/// A write that took longer was slow: until one is faster, only the thread that writes does so.
const SLOW_WRITE: Duration = Duration::from_millis(1);

/// When a record counts as committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// When it was written to the file: a crash of the process cannot lose it. It is durable at most
    /// [`Options::sync_interval`] and the time that the disk takes later.
    #[default]
    Write,
    /// When it is durable. Records that wait together share the wait for the disk.
    Always,
}

/// How a journal is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// When a record counts as committed.
    pub sync: Sync,
    /// With [`Sync::Write`]: the pause between two times of making everything durable.
    pub sync_interval: Duration,
    /// A segment that has so many bytes is followed by another one.
    pub segment_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sync: Sync::Write,
            sync_interval: Duration::from_millis(100),
            segment_bytes: 64 << 20,
        }
    }
}

/// The journal cannot be written any more. Committed records are safe; no more will be committed.
#[derive(Clone, Debug, Error)]
#[error("the journal failed: {0}")]
pub struct Failed(Arc<str>);

/// The status of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The number of the last record that was appended.
    pub appended: u64,
    /// The number of the last record that is committed.
    pub committed: u64,
    /// The number of the last record that is durable.
    pub durable: u64,
    /// Bytes that wait to be written.
    pub pending_bytes: usize,
    /// Bytes of the segment that is being written.
    pub segment_bytes: u64,
    /// Bytes of the records behind the last image, with the accuracy that its making allows.
    pub tail_bytes: u64,
    /// The number of the last image; 0 without one.
    pub image: u64,
    /// Bytes of the last image.
    pub image_bytes: u64,
    /// Writes so far, each of one or more records.
    pub writes: u64,
    /// Times so far that records were made durable.
    pub syncs: u64,
    /// For how long records have waited without any being written; zero if none waits.
    pub stalled: Duration,
}

/// A journal that is open for writing. It is closed when it is dropped, without waiting for errors.
pub struct Journal {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    storage: Arc<dyn Storage>,
    options: Options,
    state: Mutex<State>,
    /// Held while records are written. It is locked before `state`.
    writer: Mutex<Writer>,
    /// There is something to write, or the end.
    to_write: Condvar,
    /// There is something to make durable, or the end.
    to_sync: Condvar,
    /// Something has become durable, or the journal has failed.
    synced: Condvar,
    committed: watch::Sender<u64>,
    failure: watch::Sender<Option<Failed>>,
    /// Images are stored one at a time.
    imaging: Mutex<()>,
}

/// The files, and the records that are being written.
struct Writer {
    log: Log,
    batch: Vec<u8>,
}

#[derive(Default)]
struct State {
    buffer: Vec<u8>,
    /// The last write was slow.
    is_slow: bool,
    status: Status,
    /// Written and not durable yet: the file, and the number of the last record.
    unsynced: Option<(Arc<dyn StorageFile>, u64)>,
    /// A caller waits for durability before the interval is over.
    hurry: bool,
    /// Since when records wait that are not committed, or when some were committed last.
    waiting_since: Option<Instant>,
    closing: bool,
    written_all: bool,
    failed: Option<Failed>,
    /// Bytes of the records behind the image that was there at first.
    bytes: u64,
    /// The last record that [`Journal::read`] has shown, and `bytes` at that time.
    read: (u64, u64),
    /// Subscribers to the records.
    taps: Vec<Feed>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens a journal, passes on its contents, and starts the threads that write it.
    ///
    /// # Errors
    /// It is damaged, of another version or not accessible, or `visit` rejects an entry.
    pub fn open(
        storage: impl Storage,
        options: Options,
        visit: impl FnMut(Entry<'_>) -> Result<(), Rejected>,
    ) -> Result<(Journal, Recovered), OpenError> {
        Journal::open_on(Arc::new(storage), options, visit)
    }

    /// The same, on a storage that others have as well.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_on(
        storage: Arc<dyn Storage>,
        options: Options,
        mut visit: impl FnMut(Entry<'_>) -> Result<(), Rejected>,
    ) -> Result<(Journal, Recovered), OpenError> {
        let (log, recovered) = Log::open(storage.clone(), options.segment_bytes, &mut visit)?;
        let last = log.last();
        let status = Status {
            appended: last,
            committed: last,
            durable: last,
            segment_bytes: log.segment_length(),
            tail_bytes: recovered.record_bytes,
            image: recovered.image,
            image_bytes: recovered.image_bytes,
            ..Status::default()
        };
        let bytes = recovered.record_bytes;
        let shared = Arc::new(Shared {
            storage,
            options,
            state: Mutex::new(State { status, bytes, ..State::default() }),
            writer: Mutex::new(Writer { log, batch: Vec::new() }),
            to_write: Condvar::new(),
            to_sync: Condvar::new(),
            synced: Condvar::new(),
            committed: watch::Sender::new(last),
            failure: watch::Sender::new(None),
            imaging: Mutex::new(()),
        });
        let mut threads = Vec::new();
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|source| {
                StorageError::System { path: name.into(), operation: "start the thread", source }
            })
        };
        let writing = shared.clone();
        threads.push(spawn("journal-write", Box::new(move || writing.write_all()))?);
        if options.sync == Sync::Write {
            let syncing = shared.clone();
            threads.push(spawn("journal-sync", Box::new(move || syncing.sync_now_and_then()))?);
        }
        Ok((Journal { shared, threads: Mutex::new(threads) }, recovered))
    }

    /// Appends a record and returns its number. It is not committed yet: see [`Journal::committed`].
    /// Returns at once, whatever the disk does.
    ///
    /// # Errors
    /// The journal has failed.
    ///
    /// # Panics
    /// When the record has more than 1 GiB.
    pub fn append(&self, payload: &[u8]) -> Result<u64, Failed> {
        let (number, was_empty) = self.shared.append(payload)?;
        if was_empty {
            self.shared.to_write.notify_one();
        }
        Ok(number)
    }

    /// Appends a record as [`Journal::append`] does, but does not have it written: the caller calls
    /// [`Journal::write_appended`] as soon as it holds no lock that others wait for.
    ///
    /// # Errors
    /// The journal has failed.
    ///
    /// # Panics
    /// When the record has more than 1 GiB.
    pub fn append_unwritten(&self, payload: &[u8]) -> Result<u64, Failed> {
        Ok(self.shared.append(payload)?.0)
    }

    /// Has all appended records written. With [`Sync::Write`] this thread does so itself if it is a
    /// matter of microseconds: little waits, no other thread is writing, no segment must be started and
    /// the last write was fast. Otherwise the thread that writes does so, and this call returns at once.
    ///
    /// A disk that accepts nothing can block one caller at a time. A failure is reported as one of the
    /// thread that writes: see [`Journal::failed`].
    pub fn write_appended(&self) {
        if !self.shared.write_now() {
            self.shared.to_write.notify_one();
        }
    }

    /// Reads along: every record that is not in a [`Journal::read`] made from now on, in order, when it is
    /// committed, and perhaps some that are. A reader that is `max_bytes` behind is given up.
    pub fn tap(&self, max_bytes: usize) -> Tap {
        let (feed, tap) = tap::tap(max_bytes);
        self.shared.lock().taps.push(feed);
        tap
    }

    /// The number of the last committed record, as it grows.
    pub fn committed(&self) -> watch::Receiver<u64> {
        self.shared.committed.subscribe()
    }

    /// Waits until a record is committed.
    ///
    /// # Errors
    /// The journal has failed before.
    pub async fn wait_for(&self, number: u64) -> Result<(), Failed> {
        let mut committed = self.committed();
        let mut failure = self.shared.failure.subscribe();
        tokio::select! {
            biased;
            // The senders live as long as this journal.
            _ = committed.wait_for(|committed| *committed >= number) => Ok(()),
            failed = failure.wait_for(Option::is_some) => {
                let failed = failed.ok().and_then(|failed| failed.clone());
                Err(failed.unwrap_or_else(|| Failed("it was closed".into())))
            }
        }
    }

    /// Waits until a record is durable, as long as the disk takes, whether or not it must be so to
    /// count as committed.
    ///
    /// # Errors
    /// The journal has failed before.
    pub fn sync(&self, number: u64) -> Result<(), Failed> {
        self.shared.wait_until_durable(number)
    }

    /// Waits until the journal fails.
    pub async fn failed(&self) -> Failed {
        let mut failure = self.shared.failure.subscribe();
        let failed = failure.wait_for(Option::is_some).await.ok().and_then(|failed| failed.clone());
        failed.unwrap_or_else(|| Failed("it was closed".into()))
    }

    /// Stores the state after the record `number`, and removes files that it makes superfluous. It
    /// takes as long as the disk needs; records are appended and committed meanwhile.
    ///
    /// # Errors
    /// The journal has failed, or fails with this.
    pub fn store_image(&self, number: u64, bytes: &[u8]) -> Result<(), Failed> {
        let shared = &self.shared;
        let _one_at_a_time = shared.imaging.lock().unwrap_or_else(PoisonError::into_inner);
        // An image never goes beyond the records that are durable.
        shared.wait_until_durable(number)?;
        if let Err(error) = store_image(&*shared.storage, number, bytes) {
            return Err(shared.fail(&error));
        }
        let mut state = shared.lock();
        state.status.image = number;
        state.status.image_bytes = bytes.len() as u64;
        let (read, bytes_then) = state.read;
        let covered = if read == number { bytes_then } else { state.bytes };
        state.status.tail_bytes = state.bytes - covered;
        Ok(())
    }

    /// The journal's status.
    pub fn status(&self) -> Status {
        let state = self.shared.lock();
        let stalled = state.waiting_since.map_or(Duration::ZERO, |since| since.elapsed());
        Status { stalled, ..state.status.clone() }
    }

    /// Shows the newest whole image, if there is one, and all records behind it that are committed now,
    /// from the files. Returns the number of the last record. Records are appended meanwhile.
    ///
    /// # Errors
    /// A file cannot be read or is damaged, or `visit` rejects an entry.
    pub fn read(
        &self,
        visit: impl FnMut(Entry<'_>) -> Result<(), Rejected>,
    ) -> Result<u64, OpenError> {
        // An image that is stored now removes segments that are about to be read.
        let _one_at_a_time = self.shared.imaging.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.shared.lock();
        let committed = state.status.committed;
        state.read = (committed, state.bytes);
        drop(state);
        recovery::read(&*self.shared.storage, committed, visit)
    }

    /// Writes pending records, makes them durable, and ends. Records that are appended later are
    /// lost.
    ///
    /// # Errors
    /// The journal has failed.
    pub fn close(&self) -> Result<(), Failed> {
        self.end();
        match &self.shared.lock().failed {
            Some(failed) => Err(failed.clone()),
            None => Ok(()),
        }
    }

    fn end(&self) {
        self.shared.lock().closing = true;
        self.shared.to_write.notify_all();
        self.shared.to_sync.notify_all();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A panic in it has ended the journal; there is nothing left to do.
            let _ = thread.join();
        }
        self.shared.storage.release();
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// No panic happens while the lock is held.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the journal. The first failure counts.
    fn fail(&self, error: &dyn fmt::Display) -> Failed {
        let mut state = self.lock();
        let failed = state.failed.get_or_insert_with(|| Failed(error.to_string().into())).clone();
        drop(state);
        self.failure.send_replace(Some(failed.clone()));
        self.to_write.notify_all();
        self.to_sync.notify_all();
        self.synced.notify_all();
        failed
    }

    /// Appends a record to those that wait. Returns its number, and whether no other waited.
    fn append(&self, payload: &[u8]) -> Result<(u64, bool), Failed> {
        assert!(payload.len() <= frame::MAX_PAYLOAD, "a record of {} bytes", payload.len());
        let mut state = self.lock();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        let number = state.status.appended + 1;
        let durable = state.status.durable;
        let was_empty = state.buffer.is_empty();
        if state.waiting_since.is_none() {
            state.waiting_since = Some(Instant::now());
        }
        frame::write_record(&mut state.buffer, number, durable, payload);
        state.status.appended = number;
        state.status.pending_bytes = state.buffer.len();
        let bytes = (frame::RECORD_HEADER + payload.len()) as u64;
        state.bytes += bytes;
        state.status.tail_bytes += bytes;
        Ok((number, was_empty))
    }

    /// The thread that writes: takes all that waits, writes it in one piece, and commits it.
    fn write_all(&self) {
        loop {
            let mut state = self.lock();
            while state.buffer.is_empty() && !state.closing && state.failed.is_none() {
                state = self.to_write.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            // Another thread may be writing.
            let Ok(mut writer) = self.writer.lock() else {
                // What was written of its records is unknown.
                self.fail(&"a thread panicked while it wrote");
                return;
            };
            let mut state = self.lock();
            if state.failed.is_some() || (state.buffer.is_empty() && state.closing) {
                state.written_all = true;
                drop(state);
                self.to_sync.notify_all();
                return;
            }
            if !state.buffer.is_empty() {
                self.write_pending(&mut writer, state);
            }
        }
    }

    /// Writes all that waits on this thread, if that is fast. Returns whether nothing is left to do.
    fn write_now(&self) -> bool {
        if self.options.sync == Sync::Always {
            return false;
        }
        let Ok(mut writer) = self.writer.try_lock() else {
            // What that thread has not taken must be written after it.
            return self.lock().buffer.is_empty();
        };
        let state = self.lock();
        if state.buffer.is_empty() {
            return true;
        }
        let is_ending = state.closing || state.failed.is_some();
        let is_much = state.buffer.len() > MAX_OWN_WRITE || writer.log.is_full();
        if is_ending || is_much || state.is_slow {
            return false;
        }
        self.write_pending(&mut writer, state);
        true
    }

    /// Writes all that waits, and commits it. A failure ends the journal.
    fn write_pending(&self, writer: &mut Writer, mut state: MutexGuard<'_, State>) {
        let Writer { log, batch } = writer;
        batch.clear();
        std::mem::swap(batch, &mut state.buffer);
        state.status.pending_bytes = 0;
        let last = state.status.appended;
        drop(state);

        let is_durable = self.options.sync == Sync::Always;
        let started = Instant::now();
        let mut written = log.write(batch, last);
        if is_durable {
            written = written.and_then(|()| log.segment().sync());
        }
        if let Err(error) = written {
            self.fail(&error);
            return;
        }
        let took = started.elapsed();
        let mut state = self.lock();
        // While a record waits to be made durable, the other thread wakes up by itself.
        let sync_is_due = !is_durable && state.unsynced.is_none();
        state.is_slow = took > SLOW_WRITE;
        state.status.committed = last;
        state.waiting_since = (last < state.status.appended).then(Instant::now);
        state.status.segment_bytes = log.segment_length();
        state.status.writes += 1;
        if is_durable {
            state.status.durable = last;
            state.status.syncs += 1;
        } else {
            state.unsynced = Some((log.segment().clone(), last));
        }
        if !state.taps.is_empty() {
            let tapped = Tapped { last, bytes: batch.as_slice().into() };
            state.taps.retain(|feed| feed.send(&tapped));
        }
        drop(state);
        // The writer is still locked, so that numbers are committed in order.
        self.committed.send_replace(last);
        if is_durable {
            self.synced.notify_all();
        } else if sync_is_due {
            self.to_sync.notify_one();
        }
    }

    /// The thread that makes written records durable, once in an interval, or when a caller waits.
    fn sync_now_and_then(&self) {
        let mut due = Instant::now() + self.options.sync_interval;
        loop {
            let mut state = self.lock();
            let (file, last) = loop {
                if state.failed.is_some() {
                    return;
                }
                let now = Instant::now();
                let is_due = now >= due || state.hurry || state.closing;
                if is_due && let Some(unsynced) = state.unsynced.take() {
                    state.hurry = false;
                    break unsynced;
                }
                if state.written_all && state.unsynced.is_none() {
                    return;
                }
                // Without anything to do only a notification ends the wait.
                let pause = if state.unsynced.is_none() || is_due {
                    Duration::from_secs(3600)
                } else {
                    due - now
                };
                state = self
                    .to_sync
                    .wait_timeout(state, pause)
                    .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
            };
            drop(state);
            // Earlier segments were made durable when this one was started.
            if let Err(error) = file.sync() {
                self.fail(&error);
                return;
            }
            due = Instant::now() + self.options.sync_interval;
            let mut state = self.lock();
            state.status.durable = last;
            state.status.syncs += 1;
            drop(state);
            self.synced.notify_all();
        }
    }

    fn wait_until_durable(&self, number: u64) -> Result<(), Failed> {
        let mut state = self.lock();
        loop {
            if let Some(failed) = &state.failed {
                return Err(failed.clone());
            }
            if state.status.durable >= number {
                return Ok(());
            }
            state.hurry = true;
            self.to_sync.notify_one();
            state = self.synced.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
