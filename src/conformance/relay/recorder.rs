//! Writes relayed data to a file: a listener with a thread of its own.
//!
//! Nothing but that thread waits for the disk. When the disk refuses, recording ends for good.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::feed::{Feed, FeedEntries, Freed, feed};
use crate::capture::ConnectionId;
use crate::recording::{Entry, Header, Record, RecordingWriter, Unrecorded};

/// How old the records of a block may become before it is written.
const BLOCK_AGE: Duration = Duration::from_secs(1);

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

/// A recording that is being written. Clones are the same recording.
#[derive(Clone, Debug)]
pub struct Recorder {
    feed: Feed,
    end: Arc<End>,
}

/// The result of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecorderSummary {
    /// Connections in the file.
    pub connections: u64,
    /// Bytes of data in the file.
    pub bytes: u64,
    /// Traffic that passed and is not in the file.
    pub unrecorded: Unrecorded,
    /// Why recording ended early, if it did.
    pub failure: Option<String>,
}

/// How the writer ended, when it has.
#[derive(Debug, Default)]
struct End {
    recorded: Mutex<Option<RecorderSummary>>,
    reached: Condvar,
}

impl Recorder {
    /// Starts the writer with a file to which it writes the header at once. At most `max_bytes` of
    /// data wait for the disk.
    ///
    /// Errors: the header cannot be written, or no thread can be started.
    pub fn start(file: impl Store, header: &Header, max_bytes: usize) -> io::Result<Self> {
        let writer = RecordingWriter::new(file, header)?;
        let full = format!(
            "the recording has gaps: the disk is too slow and the buffer of {max_bytes} bytes is full; connections are not affected"
        );
        let (feed, entries) = feed(max_bytes, full);
        let end = Arc::new(End::default());
        let writing = Arc::clone(&end);
        let thread = thread::Builder::new().name("recording".into());
        thread.spawn(move || write(entries, writer, &writing))?;
        Ok(Recorder { feed, end })
    }

    /// The feed that is recorded.
    pub fn feed(&self) -> Feed {
        self.feed.clone()
    }

    /// Ends the recording: queued records are written, unless that takes longer than `patience`. Blocks
    /// the thread.
    pub fn finish(&self, patience: Duration) -> RecorderSummary {
        self.feed.close();
        let recorded = self.end.recorded();
        let waited =
            self.end.reached.wait_timeout_while(recorded, patience, |recorded| recorded.is_none());
        let (recorded, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let late = || RecorderSummary {
            failure: Some(format!("the disk has not taken the rest within {patience:?}")),
            ..RecorderSummary::default()
        };
        let recorded = recorded.clone().unwrap_or_else(late);
        // Connections continued after a failure.
        RecorderSummary { unrecorded: self.feed.left_out(), ..recorded }
    }
}

impl End {
    fn recorded(&self) -> MutexGuard<'_, Option<RecorderSummary>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer's thread.
fn write(entries: FeedEntries, writer: RecordingWriter<impl Store>, end: &End) {
    let (recorded, open) = (RecorderSummary::default(), Counts::default());
    let mut writing = Writing { entries, writer, recorded, open };
    if let Err(error) = writing.run() {
        let failure = error.to_string();
        tracing::error!("recording has stopped for good: {failure}; connections are not affected");
        writing.give_up();
        writing.recorded.failure = Some(failure);
    }
    *end.recorded() = Some(writing.recorded);
    end.reached.notify_all();
}

struct Writing<S> {
    entries: FeedEntries,
    writer: RecordingWriter<S>,
    recorded: RecorderSummary,
    /// Bytes of records that are not in a whole block yet.
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
    fn run(&mut self) -> io::Result<()> {
        let mut due = None;
        loop {
            let patience = due.map(|due: Instant| due.saturating_duration_since(Instant::now()));
            let Some(mut entries) = self.entries.take(patience) else { break };
            let written = self.write(&mut entries);
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
        let (at, record) = (self.entries.now(), Record::Finished(self.entries.left_out()));
        self.writer.write(&Entry { at, connection: ConnectionId(0), record })?;
        self.writer.flush()?;
        self.count_whole();
        self.writer.get_mut().sync()
    }

    /// Writes entries from the front and frees their room; those after a failure are left.
    fn write(&mut self, entries: &mut VecDeque<Entry>) -> io::Result<()> {
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
                self.entries.free(&std::mem::take(&mut freed));
            }
        }
        self.entries.free(&freed);
        outcome
    }

    fn count_whole(&mut self) {
        let Counts { connections, bytes } = std::mem::take(&mut self.open);
        self.recorded.connections += connections;
        self.recorded.bytes += bytes;
    }

    /// Stops recording: counts the entries that were taken and not recorded, and removes half a block from the file,
    /// which would only look like damage.
    fn give_up(&mut self) {
        let waiting = self.entries.stop();
        waiting.iter().for_each(|entry| self.open.add(&entry.record));
        let Counts { connections, bytes } = std::mem::take(&mut self.open);
        self.entries.count_lost(Unrecorded { connections, bytes });
        let whole = self.writer.whole_bytes();
        if let Err(error) = self.writer.get_mut().cut_to(whole) {
            tracing::warn!("the file may end with an incomplete block: {error}");
        }
    }
}
