//! Keeps what passes, off the path: a bounded queue, and a thread that writes it to the file.
//!
//! Knows connections and bytes, no sockets. Nothing here waits for the disk except that thread.
//! When the queue is full, data is counted instead of kept, and a gap is recorded as soon as there
//! is room again. When the disk refuses, recording ends for good and relaying does not notice.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::conformance::capture::{ConnectionId, Opening, Side};
use crate::conformance::conversation::Offered;
use crate::conformance::recording::{
    Entry, GapReason, Header, Record, RecordingWriter, Unrecorded,
};

/// How old the records of a block may become before it is written.
const BLOCK_AGE: Duration = Duration::from_secs(1);

/// What an entry costs in the queue on top of its data, in bytes.
const ENTRY_BYTES: usize = 96;

/// Connections whose records may be in the queue, or may still come to it. The room for how a
/// connection ends is kept for each of them, so that no end is lost when the queue is full.
const MAX_TAPS: usize = 32_768;

/// Where a recording is kept.
pub trait Store: Write + Send + 'static {
    /// Takes everything from this many bytes on away.
    fn cut_to(&mut self, bytes: u64) -> io::Result<()>;

    /// Has everything on the disk.
    fn sync(&mut self) -> io::Result<()>;
}

impl Store for File {
    fn cut_to(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Records what taps tell. Clones are the same recorder.
#[derive(Clone, Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
}

/// What has become of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Connections in the file.
    pub connections: u64,
    /// Bytes of data in the file.
    pub bytes: u64,
    /// What passed and is not in the file.
    pub unrecorded: Unrecorded,
    /// Why recording ended early, if it did.
    pub failure: Option<String>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Something is in the queue, or it is closed.
    filled: Condvar,
    /// The writer has come to its end.
    ended: Condvar,
    started: Instant,
    max_bytes: usize,
    /// Recording has ended early: nothing is taken any more.
    stopped: AtomicBool,
    full_told: AtomicBool,
    unrecorded_bytes: AtomicU64,
    unrecorded_connections: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// What the data in it costs.
    bytes: usize,
    taps: usize,
    opened: u64,
    closed: bool,
    written: Option<Recorded>,
}

impl Recorder {
    /// Starts the writer with a file to which it writes the header at once. At most `max_bytes` of
    /// data wait for the disk.
    ///
    /// Errors: the header cannot be written, or there is no thread to be had.
    pub fn start(file: impl Store, header: &Header, max_bytes: usize) -> io::Result<Self> {
        let writer = RecordingWriter::new(file, header)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            filled: Condvar::new(),
            ended: Condvar::new(),
            started: Instant::now(),
            max_bytes,
            stopped: AtomicBool::new(false),
            full_told: AtomicBool::new(false),
            unrecorded_bytes: AtomicU64::new(0),
            unrecorded_connections: AtomicU64::new(0),
        });
        let writing = Arc::clone(&shared);
        thread::Builder::new().name("recording".into()).spawn(move || write(&writing, writer))?;
        Ok(Recorder { shared })
    }

    /// A connection that was opened now. Its time is set here.
    pub(super) fn open(&self, opening: Opening, service: Offered) -> Tap {
        let mut queue = self.shared.queue();
        if queue.taps >= MAX_TAPS || self.shared.is_over(&queue) {
            self.shared.unrecorded_connections.fetch_add(1, Ordering::Relaxed);
            return Tap { shared: Arc::clone(&self.shared), id: None, owed: Mutex::default() };
        }
        queue.taps += 1;
        let id = ConnectionId(queue.opened);
        queue.opened += 1;
        let at = self.shared.now();
        let record = Record::Opened { opening: Opening { at, ..opening }, service: Some(service) };
        self.shared.push(&mut queue, Entry { at, connection: id, record });
        Tap { shared: Arc::clone(&self.shared), id: Some(id), owed: Mutex::default() }
    }

    /// Ends the recording: what is in the queue is written, unless that takes longer than
    /// `patience`. Blocks the thread.
    pub fn finish(&self, patience: Duration) -> Recorded {
        let shared = &*self.shared;
        let mut queue = shared.queue();
        queue.closed = true;
        shared.filled.notify_all();
        let waited =
            shared.ended.wait_timeout_while(queue, patience, |queue| queue.written.is_none());
        let (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let late = || Recorded {
            failure: Some(format!("the disk has not taken the rest within {patience:?}")),
            ..Recorded::default()
        };
        let written = queue.written.clone().unwrap_or_else(late);
        // Connections went on after a failure.
        Recorded { unrecorded: shared.unrecorded(), ..written }
    }

    /// Data that waits for the disk, in bytes of memory.
    pub fn waiting_bytes(&self) -> usize {
        self.shared.queue().bytes
    }

    /// Whether recording has ended early.
    pub fn has_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Relaxed)
    }
}

/// One connection's way to the recorder. Dropping it closes the connection in the recording.
#[derive(Debug)]
pub(super) struct Tap {
    shared: Arc<Shared>,
    /// None when the connection is not recorded.
    id: Option<ConnectionId>,
    /// Bytes of client and server that were not kept and are not recorded as a gap yet.
    owed: Mutex<[u64; 2]>,
}

impl Tap {
    pub(super) fn accepted(&self) {
        self.tell(Record::Accepted);
    }

    /// These bytes passed now.
    pub(super) fn data(&self, from: Side, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let shared = &*self.shared;
        let bytes = data.len() as u64;
        if self.id.is_none() || shared.stopped.load(Ordering::Relaxed) {
            shared.unrecorded_bytes.fetch_add(bytes, Ordering::Relaxed);
            return;
        }
        let copy = data.to_vec();
        let mut owed = self.owed();
        let mut queue = shared.queue();
        let cost = data.len() + 2 * ENTRY_BYTES;
        if queue.bytes.saturating_add(cost) > shared.max_bytes {
            drop(queue);
            *place(&mut owed, from) += bytes;
            shared.unrecorded_bytes.fetch_add(bytes, Ordering::Relaxed);
            if !shared.full_told.swap(true, Ordering::Relaxed) {
                tracing::error!(
                    "the recording has gaps: its buffer of {} bytes is full, \
                     as the disk is too slow; connections go on",
                    shared.max_bytes
                );
            }
            return;
        }
        self.settle(&mut queue, &mut owed, from);
        self.push(&mut queue, Record::Data(from, copy));
    }

    pub(super) fn end(&self, from: Side) {
        self.tell_after_gap(from, Record::End(from));
    }

    pub(super) fn reset(&self, from: Side) {
        self.tell_after_gap(from, Record::Reset(from));
    }

    fn tell_after_gap(&self, from: Side, record: Record) {
        let mut owed = self.owed();
        let mut queue = self.shared.queue();
        self.settle(&mut queue, &mut owed, from);
        self.push(&mut queue, record);
    }

    fn tell(&self, record: Record) {
        self.push(&mut self.shared.queue(), record);
    }

    /// Records what was not kept before.
    fn settle(&self, queue: &mut Queue, owed: &mut [u64; 2], from: Side) {
        let bytes = std::mem::take(place(owed, from));
        if bytes > 0 {
            self.push(queue, Record::Gap(from, bytes, GapReason::BufferFull));
        }
    }

    fn push(&self, queue: &mut Queue, record: Record) {
        let Some(connection) = self.id else { return };
        let at = self.shared.now();
        self.shared.push(queue, Entry { at, connection, record });
    }

    fn owed(&self) -> MutexGuard<'_, [u64; 2]> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let mut owed = self.owed();
        let mut queue = self.shared.queue();
        for side in [Side::Client, Side::Server] {
            self.settle(&mut queue, &mut owed, side);
        }
        self.push(&mut queue, Record::Closed);
    }
}

fn place(owed: &mut [u64; 2], side: Side) -> &mut u64 {
    let [client, server] = owed;
    match side {
        Side::Client => client,
        Side::Server => server,
    }
}

/// What an entry counts for in the queue. Only data counts, and the gap before it: all else is
/// bounded by the number of taps.
fn cost(record: &Record) -> usize {
    match record {
        Record::Data(_, data) => data.len() + 2 * ENTRY_BYTES,
        _ => 0,
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called with the queue held, so that times in the file never go back.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn is_over(&self, queue: &Queue) -> bool {
        queue.closed || self.stopped.load(Ordering::Relaxed)
    }

    fn push(&self, queue: &mut Queue, entry: Entry) {
        if self.is_over(queue) {
            return;
        }
        queue.bytes += cost(&entry.record);
        queue.entries.push_back(entry);
        // The writer waits only for the first one.
        if queue.entries.len() == 1 {
            self.filled.notify_one();
        }
    }

    fn unrecorded(&self) -> Unrecorded {
        Unrecorded {
            connections: self.unrecorded_connections.load(Ordering::Relaxed),
            bytes: self.unrecorded_bytes.load(Ordering::Relaxed),
        }
    }

    /// Everything that waits, none when the queue is closed and empty. Waits no longer than
    /// `patience`.
    fn take(&self, patience: Option<Duration>) -> Option<VecDeque<Entry>> {
        let queue = self.queue();
        let waits = |queue: &mut Queue| queue.entries.is_empty() && !queue.closed;
        let mut queue = match patience {
            None => self.filled.wait_while(queue, waits).unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                let waited = self.filled.wait_timeout_while(queue, patience, waits);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let over = queue.closed && queue.entries.is_empty();
        (!over).then(|| std::mem::take(&mut queue.entries))
    }

    fn free(&self, freed: Freed) {
        let mut queue = self.queue();
        queue.bytes = queue.bytes.saturating_sub(freed.bytes);
        queue.taps = queue.taps.saturating_sub(freed.taps);
    }
}

/// Room in the queue that entries leave when they are written.
#[derive(Default)]
struct Freed {
    bytes: usize,
    taps: usize,
}

impl Freed {
    fn add(&mut self, record: &Record) {
        self.bytes += cost(record);
        self.taps += usize::from(*record == Record::Closed);
    }
}

/// The writer's thread.
fn write(shared: &Shared, writer: RecordingWriter<impl Store>) {
    let mut writing = Writing { writer, recorded: Recorded::default(), open: Counts::default() };
    if let Err(error) = writing.run(shared) {
        let failure = error.to_string();
        tracing::error!("recording has stopped for good: {failure}; connections go on");
        writing.give_up(shared);
        writing.recorded.failure = Some(failure);
    }
    let mut queue = shared.queue();
    writing.recorded.unrecorded = shared.unrecorded();
    queue.written = Some(writing.recorded);
    shared.ended.notify_all();
}

struct Writing<S> {
    writer: RecordingWriter<S>,
    recorded: Recorded,
    /// What is in records that are not in a whole block yet.
    open: Counts,
}

#[derive(Default)]
struct Counts {
    connections: u64,
    bytes: u64,
}

impl Counts {
    fn add(&mut self, record: &Record) {
        match record {
            Record::Opened { .. } => self.connections += 1,
            Record::Data(_, data) => self.bytes += data.len() as u64,
            _ => {}
        }
    }
}

impl<S: Store> Writing<S> {
    fn run(&mut self, shared: &Shared) -> io::Result<()> {
        let mut due = None;
        loop {
            let patience = due.map(|due: Instant| due.saturating_duration_since(Instant::now()));
            let Some(mut entries) = shared.take(patience) else { break };
            let written = self.write(&mut entries, shared);
            if let Err(error) = written {
                entries.iter().for_each(|entry| self.open.add(&entry.record));
                return Err(error);
            }
            if due.is_some_and(|due| due <= Instant::now()) {
                self.writer.flush()?;
                self.count_whole();
            }
            let next = || Instant::now() + BLOCK_AGE;
            due = self
                .writer
                .has_open_block()
                .then(|| due.filter(|due| *due > Instant::now()).unwrap_or_else(next));
        }
        let (at, record) = (shared.now(), Record::Finished(shared.unrecorded()));
        self.writer.write(&Entry { at, connection: ConnectionId(0), record })?;
        self.writer.flush()?;
        self.count_whole();
        self.writer.get_mut().sync()
    }

    /// Writes entries from the front and frees their room; those after a failure are left.
    fn write(&mut self, entries: &mut VecDeque<Entry>, shared: &Shared) -> io::Result<()> {
        let mut freed = Freed::default();
        let mut outcome = Ok(());
        while let Some(entry) = entries.pop_front() {
            let before = self.writer.whole_bytes();
            self.open.add(&entry.record);
            freed.add(&entry.record);
            outcome = self.writer.write(&entry);
            if outcome.is_err() {
                break;
            }
            if self.writer.whole_bytes() != before {
                self.count_whole();
                shared.free(std::mem::take(&mut freed));
            }
        }
        shared.free(freed);
        outcome
    }

    fn count_whole(&mut self) {
        let Counts { connections, bytes } = std::mem::take(&mut self.open);
        self.recorded.connections += connections;
        self.recorded.bytes += bytes;
    }

    /// Stops recording: counts what was taken in vain, and takes half a block off the file, which
    /// would only look like damage.
    fn give_up(&mut self, shared: &Shared) {
        shared.stopped.store(true, Ordering::Relaxed);
        let waiting = std::mem::take(&mut shared.queue().entries);
        waiting.iter().for_each(|entry| self.open.add(&entry.record));
        shared.unrecorded_bytes.fetch_add(self.open.bytes, Ordering::Relaxed);
        shared.unrecorded_connections.fetch_add(self.open.connections, Ordering::Relaxed);
        let whole = self.writer.whole_bytes();
        if let Err(error) = self.writer.get_mut().cut_to(whole) {
            tracing::warn!("the file may end with a part of a block: {error}");
        }
    }
}
