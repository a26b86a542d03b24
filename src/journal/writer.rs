//! The live journal: records are appended to memory, a thread writes many of them at once, another
//! makes them durable in the background. A thread that appends may also write its record itself
//! ([`Journal::write_appended`]), which spares two switches of threads when nothing else waits.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::watch;

use super::frame;
use super::log::{Log, store_image};
use super::marker::Marker;
use super::recovery::{self, Entry, OpenError, Recovered, Rejected};
use super::storage::{Storage, StorageError, StorageFile};
use super::tap::{self, Feed, Tap, Tapped};
use super::writers::Writers;

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

/// The pause between two updates of the marker while records follow one another.
const MARK_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of memory that are kept for the next batch.
const MAX_KEPT: usize = 64 << 10;

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
    /// For how long records that were written have waited to become durable; zero if none waits.
    pub unsynced: Duration,
}

/// A journal that is open for writing. It is closed when it is dropped, without waiting for errors.
pub struct Journal {
    shared: Arc<WriterCore>,
}

pub(crate) struct WriterCore {
    storage: Arc<dyn Storage>,
    options: Options,
    state: Mutex<WriterState>,
    /// Used by one of the threads at a time: see [`WriterState::writing`].
    log: Mutex<Log>,
    writers: Writers,
    /// Something has become durable, or the journal has failed, or a thread has left it.
    changed: Condvar,
    committed: watch::Sender<u64>,
    failure: watch::Sender<Option<Failed>>,
    /// Images are stored one at a time.
    imaging: Mutex<()>,
}

#[derive(Default)]
struct WriterState {
    buffer: Vec<u8>,
    /// Memory of the last batch that a thread that appends has written.
    spare: Vec<u8>,
    /// The last write was slow.
    is_slow: bool,
    status: Status,
    /// The checksum of the last record that was appended.
    checksum: u32,
    /// When the marker was written last.
    marked_at: Option<Instant>,
    /// It waits for a thread that writes, or one writes it.
    writing: bool,
    /// Written and not durable yet: the file, and the last record as a marker names it.
    unsynced: Option<(Arc<dyn StorageFile>, Marker)>,
    /// Since when something is written and not durable.
    unsynced_since: Option<Instant>,
    /// A thread makes it durable.
    syncing: bool,
    /// The end of the pause after the last time that it was made durable.
    sync_due: Option<Instant>,
    /// A caller waits for durability before the interval is over.
    hurry: bool,
    /// Since when records wait that are not committed, or when some were committed last.
    waiting_since: Option<Instant>,
    failed: Option<Failed>,
    /// Nothing is written any more: others may have the files.
    closed: bool,
    /// Bytes of the records behind the image that was there at first.
    bytes: u64,
    /// The last record of [`Journal::read`] or [`Journal::begin_image`], and `bytes` at that time.
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
        visit: impl FnMut(Entry<'_>) -> Result<(), Rejected>,
    ) -> Result<(Journal, Recovered), OpenError> {
        Journal::open_with(Writers::start(1, 1)?, storage, options, visit)
    }

    /// The same, written by threads that other journals share.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_with(
        writers: Writers,
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
        let shared = Arc::new(WriterCore {
            storage,
            options,
            state: Mutex::new(WriterState { status, bytes, ..WriterState::default() }),
            log: Mutex::new(log),
            writers,
            changed: Condvar::new(),
            committed: watch::Sender::new(last),
            failure: watch::Sender::new(None),
            imaging: Mutex::new(()),
        });
        Ok((Journal { shared }, recovered))
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
        let number = self.shared.append(payload)?;
        self.shared.request_write();
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
        self.shared.append(payload)
    }

    /// Has all appended records written. With [`Sync::Write`] this thread does so itself if it is a
    /// matter of microseconds: little waits, no other thread is writing, no segment must be started and
    /// the last write was fast. Otherwise the thread that writes does so, and this call returns at once.
    ///
    /// A disk that accepts nothing can block one caller at a time. A failure is reported as one of the
    /// thread that writes: see [`Journal::failed`].
    pub fn write_appended(&self) {
        self.shared.write_now();
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

    /// The number of the last record that was appended. An image of the state after it may be stored later; the
    /// records behind it are counted from now on.
    pub fn begin_image(&self) -> u64 {
        let mut state = self.shared.lock();
        let appended = state.status.appended;
        state.read = (appended, state.bytes);
        appended
    }

    /// Stores the state after the record `number`, in pieces, and removes files that it makes superfluous. It
    /// takes as long as the disk needs; records are appended and committed meanwhile.
    ///
    /// # Errors
    /// The journal has failed, or fails with this.
    pub fn store_image(&self, number: u64, pieces: &[&[u8]]) -> Result<(), Failed> {
        let shared = &self.shared;
        let _one_at_a_time = shared.imaging.lock().unwrap_or_else(PoisonError::into_inner);
        // An image never goes beyond the records that are durable.
        shared.wait_until_durable(number)?;
        if let Err(error) = store_image(&*shared.storage, number, pieces) {
            return Err(shared.fail(&error));
        }
        let mut state = shared.lock();
        state.status.image = number;
        state.status.image_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let (read, bytes_then) = state.read;
        let covered = if read == number { bytes_then } else { state.bytes };
        state.status.tail_bytes = state.bytes - covered;
        Ok(())
    }

    /// The journal's status.
    pub fn status(&self) -> Status {
        let state = self.shared.lock();
        let stalled = state.waiting_since.map_or(Duration::ZERO, |since| since.elapsed());
        let unsynced = state.unsynced_since.map_or(Duration::ZERO, |since| since.elapsed());
        Status { stalled, unsynced, ..state.status.clone() }
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
        self.shared.request_write();
        let mut state = self.shared.lock();
        state.hurry = true;
        self.shared.hurry(&state);
        while state.writing || state.syncing || (state.unsynced.is_some() && state.failed.is_none())
        {
            state = self.shared.wait(state);
        }
        state.closed = true;
        drop(state);
        self.shared.storage.release();
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end();
    }
}

impl WriterCore {
    /// No panic happens while the lock is held.
    fn lock(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, WriterState>) -> MutexGuard<'a, WriterState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the journal. The first failure counts.
    fn fail(&self, error: &dyn fmt::Display) -> Failed {
        let mut state = self.lock();
        let failed = state.failed.get_or_insert_with(|| Failed(error.to_string().into())).clone();
        drop(state);
        self.failure.send_replace(Some(failed.clone()));
        self.changed.notify_all();
        failed
    }

    /// Carries out a step of a thread. A journal whose step panics has failed.
    fn guarded(&self, step: impl FnOnce() -> Result<(), StorageError>) -> bool {
        match catch_unwind(AssertUnwindSafe(step)) {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                self.fail(&error);
                false
            }
            Err(_) => {
                self.fail(&"a thread that wrote it panicked");
                false
            }
        }
    }

    /// Appends a record to those that wait.
    fn append(&self, payload: &[u8]) -> Result<u64, Failed> {
        assert!(payload.len() <= frame::MAX_PAYLOAD, "a record of {} bytes", payload.len());
        let mut state = self.lock();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        let number = state.status.appended + 1;
        let durable = state.status.durable;
        if state.waiting_since.is_none() {
            state.waiting_since = Some(Instant::now());
        }
        state.checksum = frame::write_record(&mut state.buffer, number, durable, payload);
        state.status.appended = number;
        state.status.pending_bytes = state.buffer.len();
        let bytes = (frame::RECORD_HEADER + payload.len()) as u64;
        state.bytes += bytes;
        state.status.tail_bytes += bytes;
        Ok(number)
    }

    /// Makes this thread responsible for what waits. `None` if nothing does, the journal has failed or is
    /// closed, or another thread is responsible: that one looks for more before it leaves.
    fn begin_write(&self) -> Option<MutexGuard<'_, WriterState>> {
        let mut state = self.lock();
        let is_over = state.failed.is_some() || state.closed;
        if state.buffer.is_empty() || is_over || state.writing {
            return None;
        }
        state.writing = true;
        Some(state)
    }

    /// Has what waits written by a thread that writes.
    fn request_write(self: &Arc<WriterCore>) {
        if self.begin_write().is_some() {
            self.writers.write(self.clone());
        }
    }

    /// Writes all that waits on this thread, if that is fast; else has it written.
    fn write_now(self: &Arc<WriterCore>) {
        let Some(mut state) = self.begin_write() else { return };
        let is_fast = self.options.sync == Sync::Write
            && state.buffer.len() <= MAX_OWN_WRITE
            && !state.is_slow;
        let mut batch = std::mem::take(&mut state.spare);
        drop(state);
        let log = || self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let is_left = !is_fast || log().waits_for_disk() || self.write(&mut batch);
        self.lock().spare = batch;
        if is_left {
            self.writers.write(self.clone());
        }
    }

    /// Takes all that waits, writes it in one piece, and commits it. Returns whether more waits; else the thread
    /// must leave the journal. `batch` is memory that is used again.
    pub(crate) fn write(self: &Arc<WriterCore>, batch: &mut Vec<u8>) -> bool {
        let wrote = self.guarded(|| self.write_batch(batch));
        if batch.capacity() > MAX_KEPT {
            *batch = Vec::new();
        }
        let mut state = self.lock();
        let again = wrote && state.failed.is_none() && !state.buffer.is_empty();
        state.writing = again;
        drop(state);
        if !again {
            self.changed.notify_all();
        }
        again
    }

    fn write_batch(self: &Arc<WriterCore>, batch: &mut Vec<u8>) -> Result<(), StorageError> {
        let mut state = self.lock();
        if state.failed.is_some() || state.buffer.is_empty() {
            return Ok(());
        }
        batch.clear();
        std::mem::swap(batch, &mut state.buffer);
        state.status.pending_bytes = 0;
        let last = state.status.appended;
        let mark = Marker { number: last, checksum: state.checksum };
        drop(state);

        let is_durable = self.options.sync == Sync::Always;
        let started = Instant::now();
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.write(batch, last)?;
        if is_durable {
            log.segment().sync()?;
        }
        let took = started.elapsed();
        let mut state = self.lock();
        state.is_slow = took > SLOW_WRITE;
        state.status.committed = last;
        state.waiting_since = (last < state.status.appended).then(Instant::now);
        state.status.segment_bytes = log.segment_length();
        state.status.writes += 1;
        if is_durable {
            state.status.durable = last;
            state.status.syncs += 1;
        } else {
            // While a record waits to be made durable, a thread will do it.
            let is_first = state.unsynced.is_none();
            state.unsynced_since.get_or_insert_with(Instant::now);
            state.unsynced = Some((log.segment().clone(), mark));
            if state.hurry {
                self.hurry(&state);
            } else if is_first && !state.syncing {
                let now = Instant::now();
                let due = state.sync_due.unwrap_or(now + self.options.sync_interval).max(now);
                self.writers.sync_at(due, self.clone());
            }
        }
        if !state.taps.is_empty() {
            let tapped = Tapped { last, bytes: batch.as_slice().into() };
            state.taps.retain(|feed| feed.send(&tapped));
        }
        drop(state);
        self.committed.send_replace(last);
        if is_durable {
            self.changed.notify_all();
            self.mark(mark)?;
        }
        Ok(())
    }

    /// Notes in the marker that everything up to a record is durable, unless records that follow it say so.
    /// Called by one thread at a time.
    fn mark(&self, mark: Marker) -> Result<(), StorageError> {
        let mut state = self.lock();
        let is_idle = state.buffer.is_empty() && state.unsynced.is_none();
        if !is_idle && state.marked_at.is_some_and(|at| at.elapsed() < MARK_INTERVAL) {
            return Ok(());
        }
        state.marked_at = Some(Instant::now());
        drop(state);
        mark.write(&*self.storage, false)
    }

    /// Has what was written made durable now. What a thread is at will be looked at when it is done.
    fn hurry(self: &Arc<WriterCore>, state: &WriterState) {
        if state.unsynced.is_some() && !state.syncing {
            self.writers.sync_at(Instant::now(), self.clone());
        }
    }

    /// Makes durable what was written so far.
    pub(crate) fn make_durable(self: &Arc<WriterCore>) {
        let mut state = self.lock();
        if state.failed.is_some() || state.syncing {
            return;
        }
        let Some((file, mark)) = state.unsynced.take() else { return };
        state.syncing = true;
        state.hurry = false;
        let started = Instant::now();
        drop(state);
        // Earlier segments were made durable when this one was started.
        let synced = self.guarded(|| file.sync());
        if synced {
            let mut state = self.lock();
            state.status.durable = mark.number;
            state.status.syncs += 1;
            state.unsynced_since = state.unsynced.is_some().then_some(started);
            drop(state);
            self.changed.notify_all();
            self.guarded(|| self.mark(mark));
        }
        let due = Instant::now() + self.options.sync_interval;
        let mut state = self.lock();
        state.syncing = false;
        state.sync_due = Some(due);
        if synced {
            if state.hurry {
                self.hurry(&state);
            } else if state.unsynced.is_some() {
                self.writers.sync_at(due, self.clone());
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    fn wait_until_durable(self: &Arc<WriterCore>, number: u64) -> Result<(), Failed> {
        let mut state = self.lock();
        loop {
            if let Some(failed) = &state.failed {
                return Err(failed.clone());
            }
            if state.status.durable >= number {
                return Ok(());
            }
            if !std::mem::replace(&mut state.hurry, true) {
                self.hurry(&state);
            }
            state = self.wait(state);
        }
    }
}
