//! Passes relayed data to listeners, off the path: a bounded queue for each of them.
//!
//! It knows connections and bytes, no sockets. A [`Feed`] is the relay's end of a queue and never
//! waits, [`FeedEntries`] the listener's: a thread or a task. When the queue is full, data is counted
//! instead of kept, and a gap is reported as soon as there is room again. For a dropped listener
//! nothing is kept. None of this affects relaying or other listeners.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::capture::{ConnectionId, Opening, Side};
use crate::conversation::Offered;
use crate::recording::{Entry, GapReason, Record, Unrecorded};

/// The cost of an entry in the queue beside its data, in bytes.
const ENTRY_BYTES: usize = 96;

/// Connections whose records may be in the queue, or may still come to it. The room for how a
/// connection ends is kept for each of them, so that no end is lost when the queue is full.
const MAX_TAPS: usize = 32_768;

/// The relay's end of a queue. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct Feed {
    shared: Arc<FeedState>,
}

/// The listener's end of a queue: traffic, in order. A call comes before its answer. Dropping
/// it means that the listener wants no more.
#[derive(Debug)]
pub struct FeedEntries {
    shared: Arc<FeedState>,
}

/// A queue with its two ends, in which at most `max_bytes` of data wait. `full` is logged as an
/// error, once, when data is left out for the first time.
pub fn feed(max_bytes: usize, full: impl Into<String>) -> (Feed, FeedEntries) {
    let shared = Arc::new(FeedState {
        queue: Mutex::default(),
        filled: Condvar::new(),
        filled_for_task: Notify::new(),
        started: Instant::now(),
        max_bytes,
        full: full.into(),
        full_told: AtomicBool::new(false),
        stopped: AtomicBool::new(false),
        lost_bytes: AtomicU64::new(0),
        lost_connections: AtomicU64::new(0),
    });
    (Feed { shared: Arc::clone(&shared) }, FeedEntries { shared })
}

#[derive(Debug)]
struct FeedState {
    queue: Mutex<Queue>,
    /// Something is in the queue, or it is closed: for a thread, and for a task.
    filled: Condvar,
    filled_for_task: Notify,
    started: Instant,
    max_bytes: usize,
    full: String,
    full_told: AtomicBool,
    /// The listener takes nothing any more. Changed with the queue held.
    stopped: AtomicBool,
    lost_bytes: AtomicU64,
    lost_connections: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// The cost of data that is queued, or taken and not freed yet.
    bytes: usize,
    taps: usize,
    opened: u64,
    closed: bool,
}

impl Feed {
    /// A connection that was opened now. Its time is set here.
    fn open(&self, opening: Opening, service: Offered) -> Tap {
        let mut queue = self.shared.queue();
        if queue.taps >= MAX_TAPS || self.shared.is_over(&queue) {
            self.shared.lost_connections.fetch_add(1, Ordering::Relaxed);
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

    /// Ends the feed; queued entries can still be taken. A relay calls it at its end.
    pub fn close(&self) {
        self.shared.queue().closed = true;
        self.shared.filled.notify_all();
        self.shared.filled_for_task.notify_one();
    }

    /// Data that waits for the listener, in bytes of memory.
    pub fn waiting_bytes(&self) -> usize {
        self.shared.queue().bytes
    }

    /// Whether the listener takes nothing any more.
    pub fn has_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Relaxed)
    }

    /// The traffic that was left out so far.
    pub fn left_out(&self) -> Unrecorded {
        self.shared.left_out()
    }
}

impl FeedEntries {
    /// The next entry; none when the queue is closed and empty. Its data makes room at once. The
    /// future may be dropped before it is done.
    pub async fn next(&mut self) -> Option<Entry> {
        loop {
            let told = self.shared.filled_for_task.notified();
            {
                let mut queue = self.shared.queue();
                if let Some(entry) = queue.entries.pop_front() {
                    let mut freed = Freed::default();
                    freed.add(&entry.record);
                    queue.free(&freed);
                    return Some(entry);
                }
                if queue.closed {
                    return None;
                }
            }
            told.await;
        }
    }

    /// When the times of entries begin.
    pub fn started(&self) -> Instant {
        self.shared.started
    }

    /// The traffic that was left out so far.
    pub fn left_out(&self) -> Unrecorded {
        self.shared.left_out()
    }

    /// All waiting entries, none when the queue is closed and empty. Blocks the thread, but no
    /// longer than `patience`. [`FeedEntries::free`] releases the room.
    pub(super) fn take(&self, patience: Option<Duration>) -> Option<VecDeque<Entry>> {
        let (queue, filled) = (self.shared.queue(), &self.shared.filled);
        let waits = |queue: &mut Queue| queue.entries.is_empty() && !queue.closed;
        let mut queue = match patience {
            None => filled.wait_while(queue, waits).unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                let waited = filled.wait_timeout_while(queue, patience, waits);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let over = queue.closed && queue.entries.is_empty();
        (!over).then(|| std::mem::take(&mut queue.entries))
    }

    /// Entries that were taken are done with.
    pub(super) fn free(&self, freed: &Freed) {
        self.shared.queue().free(freed);
    }

    /// The time of an entry that happens now.
    pub(super) fn now(&self) -> Duration {
        self.shared.now()
    }

    /// Stops the queue. Returns the queued entries, which are dropped without being counted.
    pub(super) fn stop(&self) -> VecDeque<Entry> {
        let mut queue = self.shared.queue();
        self.shared.stopped.store(true, Ordering::Relaxed);
        queue.bytes = 0;
        std::mem::take(&mut queue.entries)
    }

    /// This was taken, but not recorded.
    pub(super) fn count_lost(&self, lost: Unrecorded) {
        self.shared.lost_bytes.fetch_add(lost.bytes, Ordering::Relaxed);
        self.shared.lost_connections.fetch_add(lost.connections, Ordering::Relaxed);
    }
}

impl Drop for FeedEntries {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The feeds of all listeners. They are closed when it is dropped.
#[derive(Debug)]
pub(super) struct Feeds(pub(super) Vec<Feed>);

impl Feeds {
    /// A connection that was opened now.
    pub(super) fn open(&self, opening: &Opening, service: Offered) -> Taps {
        Taps(self.0.iter().map(|feed| feed.open(opening.clone(), service)).collect())
    }
}

impl Drop for Feeds {
    fn drop(&mut self) {
        self.0.iter().for_each(Feed::close);
    }
}

/// One connection's way to all listeners. Dropping it closes the connection for them.
#[derive(Debug)]
pub(super) struct Taps(Vec<Tap>);

impl Taps {
    /// The server has taken the connection.
    pub(super) fn accepted(&self) {
        self.0.iter().for_each(|tap| tap.tell(Record::Accepted));
    }

    /// These bytes passed now.
    pub(super) fn data(&self, from: Side, data: &[u8]) {
        self.0.iter().for_each(|tap| tap.data(from, data));
    }

    /// A side will send no more.
    pub(super) fn end(&self, from: Side) {
        self.0.iter().for_each(|tap| tap.tell_after_gap(Record::End(from)));
    }

    /// A side has broken the connection off.
    pub(super) fn reset(&self, from: Side) {
        self.0.iter().for_each(|tap| tap.tell_after_gap(Record::Reset(from)));
    }
}

/// One connection's way to one listener.
#[derive(Debug)]
struct Tap {
    shared: Arc<FeedState>,
    /// None if the listener does not receive the connection.
    id: Option<ConnectionId>,
    /// Bytes of client and server that were dropped and not yet reported as a gap.
    owed: Mutex<[u64; 2]>,
}

impl Tap {
    fn data(&self, from: Side, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let shared = &*self.shared;
        let bytes = data.len() as u64;
        let lose = || shared.lost_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.id.is_none() || shared.stopped.load(Ordering::Relaxed) {
            lose();
            return;
        }
        let copy = data.to_vec();
        let mut owed = self.owed();
        let mut queue = shared.queue();
        if shared.is_over(&queue) {
            lose();
            return;
        }
        let record = Record::Data(from, copy);
        if queue.bytes.saturating_add(cost(&record)) > shared.max_bytes {
            drop(queue);
            *from.of(owed.each_mut()) += bytes;
            lose();
            if !shared.full_told.swap(true, Ordering::Relaxed) {
                tracing::error!("{}", shared.full);
            }
            return;
        }
        self.settle(&mut queue, &mut owed);
        self.push(&mut queue, record);
    }

    fn tell_after_gap(&self, record: Record) {
        let mut owed = self.owed();
        let mut queue = self.shared.queue();
        self.settle(&mut queue, &mut owed);
        self.push(&mut queue, record);
    }

    fn tell(&self, record: Record) {
        self.push(&mut self.shared.queue(), record);
    }

    /// Reports data that were not kept, of both sides: an answer does not come before the gap in
    /// which its call was.
    fn settle(&self, queue: &mut Queue, owed: &mut [u64; 2]) {
        for side in [Side::Client, Side::Server] {
            let bytes = std::mem::take(side.of(owed.each_mut()));
            if bytes > 0 {
                self.push(queue, Record::Gap(side, bytes, GapReason::BufferFull));
            }
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
        self.settle(&mut queue, &mut owed);
        self.push(&mut queue, Record::Closed);
    }
}

impl FeedState {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called with the queue held, so that times never go back.
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
        // The listener waits only for the first one.
        if queue.entries.len() == 1 {
            self.filled.notify_one();
            self.filled_for_task.notify_one();
        }
    }

    fn left_out(&self) -> Unrecorded {
        Unrecorded {
            connections: self.lost_connections.load(Ordering::Relaxed),
            bytes: self.lost_bytes.load(Ordering::Relaxed),
        }
    }
}

impl Queue {
    fn free(&mut self, freed: &Freed) {
        self.bytes = self.bytes.saturating_sub(freed.bytes);
        self.taps = self.taps.saturating_sub(freed.taps);
    }
}

/// Room in the queue that entries leave when they are done with.
#[derive(Debug, Default)]
pub(super) struct Freed {
    bytes: usize,
    taps: usize,
}

impl Freed {
    pub(super) fn add(&mut self, record: &Record) {
        self.bytes += cost(record);
        self.taps += usize::from(*record == Record::Closed);
    }
}

/// The cost of an entry in the queue. Only data counts, and the gap before it: all else is
/// bounded by the number of taps.
fn cost(record: &Record) -> usize {
    match record {
        Record::Data(_, data) => data.len() + 2 * ENTRY_BYTES,
        _ => 0,
    }
}
