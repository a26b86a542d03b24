//! The journal of one job: what it was when it began, or an image of it, and every input since. After a
//! restart they lead back to the same engine.
//!
//! The journals of all jobs are written by a few threads that they share. A journal is an open file only from a
//! write until that is durable: the directory above all of them is locked instead of each.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use corona_config::JournalSync;
use corona_journal::{
    DiskStorage, Entry as Stored, Failed, Journal, OpenError, Options, Storage, StorageError, Sync,
    Unsynced, Writers,
};
use corona_mapreduce::JobState;
use corona_model::types::{Millis, PoolName, SessionStatus};
use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::history::{FILES_OF_HISTORIES, Mark};
use crate::submit::submission::Description;
use corona_job_engine::parent::{Parent, ParentInput, ParentSettings};
use corona_job_engine::{JobEffect, JobEngine, JobInput, JobSpec, NodeUsage};

/// Threads that write, and as many that make durable what was written.
const WRITERS: usize = 4;
/// Journals whose last records are written and not durable yet, as long as that can wait: each is an open file.
const MOST_UNSYNCED: usize = 48;
/// Files of journals and histories of all jobs that may be open at a time.
pub const FILES_OF_JOBS: usize = MOST_UNSYNCED + 2 * WRITERS + FILES_OF_HISTORIES;
/// Images that are made at a time: each takes memory.
const IMAGES: usize = 2;
/// An image is made in pieces of this size.
const PIECE_BYTES: usize = 256 << 10;
/// The form of images. **It is a promise** to later versions; what changes it gets a number of its own.
const IMAGE_FORM: u8 = 1;

/// A record. **Its form is a promise** to later versions: new variants come last.
#[derive(Debug, Serialize, Deserialize)]
enum Entry {
    /// The first record, unless there is an image.
    Base(Box<Base>),
    /// An input and its time.
    Input(Millis, JobInput),
    /// Everything about the job is done: nothing of it has to be kept.
    Closed,
    /// The second record of a job that a remote job tracker runs.
    Handed(ParentSettings),
    /// An input of its parent, and its time.
    Parent(Millis, Box<ParentInput>),
}

/// The same records, of parts that are not copied.
#[derive(Debug, Serialize)]
enum EntryRef<'a> {
    Base(&'a Base),
    Input(Millis, &'a JobInput),
    Closed,
    Handed(&'a ParentSettings),
    Parent(Millis, &'a ParentInput),
}

/// What a job was when it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Base {
    pub(crate) description: Description,
    pub(crate) spec: JobSpec,
    pub(crate) session: SessionBase,
}

/// The session of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionBase {
    pub(crate) handle: Arc<str>,
    pub(crate) pool: PoolName,
    pub(crate) log_path: String,
}

/// A job at one point of its journal.
#[derive(Debug, Deserialize)]
struct Image {
    facts: Facts,
    engine: JobEngine,
    /// Bytes of its history up to there.
    history_bytes: u64,
}

/// The same, of parts that are not copied.
#[derive(Debug, Serialize)]
struct ImageRef<'a> {
    facts: &'a Facts,
    engine: &'a JobEngine,
    history_bytes: u64,
}

impl ImageRef<'_> {
    /// The bytes of an image, in pieces.
    fn pieces(&self) -> Result<Vec<Vec<u8>>, postcard::Error> {
        postcard::serialize_with_flavor(self, Pieces::starting_with(IMAGE_FORM))
    }
}

/// Bytes in pieces. A single buffer would be copied to a larger one again and again, and the image of a large
/// job would need its memory twice for a moment.
struct Pieces {
    full: Vec<Vec<u8>>,
    last: Vec<u8>,
}

impl Pieces {
    fn new() -> Pieces {
        Pieces { full: Vec::new(), last: Vec::with_capacity(PIECE_BYTES) }
    }

    fn starting_with(byte: u8) -> Pieces {
        let mut pieces = Pieces::new();
        pieces.last.push(byte);
        pieces
    }

    /// The last piece, which has room for more.
    fn open(&mut self) -> &mut Vec<u8> {
        if self.last.len() >= PIECE_BYTES {
            let next = Vec::with_capacity(PIECE_BYTES);
            self.full.push(std::mem::replace(&mut self.last, next));
        }
        &mut self.last
    }
}

impl Flavor for Pieces {
    type Output = Vec<Vec<u8>>;

    fn try_push(&mut self, byte: u8) -> Result<(), postcard::Error> {
        self.open().push(byte);
        Ok(())
    }

    fn try_extend(&mut self, mut bytes: &[u8]) -> Result<(), postcard::Error> {
        while !bytes.is_empty() {
            let piece = self.open();
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - piece.len()));
            piece.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    fn finalize(mut self) -> Result<Vec<Vec<u8>>, postcard::Error> {
        self.full.push(self.last);
        Ok(self.full)
    }
}

/// What every image repeats of the first record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Facts {
    description: Description,
    session: SessionBase,
}

/// Where a journal has led to.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) description: Description,
    pub(crate) session: SessionBase,
    pub(crate) engine: JobEngine,
    /// The bytes of the history that are before what follows.
    pub(crate) history_bytes: u64,
    /// The lines of the history since then.
    pub(crate) history: String,
    /// How the job has ended, if it has.
    pub(crate) end: Option<(SessionStatus, Vec<NodeUsage>)>,
    closed: bool,
    /// The parent, of a job that a remote job tracker runs.
    pub(crate) parent: Option<Parent>,
}

/// A journal of an earlier run.
#[derive(Debug)]
pub(crate) enum Opened {
    /// A job that is to be resumed.
    Job(Log, Box<Replayed>),
    /// Everything about the job is done.
    Closed,
    /// It has no record: the job was being submitted, or its records are lost.
    Empty,
}

/// Why a journal cannot be used.
#[derive(Debug, Error)]
pub(crate) enum LogError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Failed(#[from] Failed),
    #[error("cannot write a record: {0}")]
    Encode(#[from] postcard::Error),
}

/// What all journals of the service share.
#[derive(Clone, Debug)]
pub(crate) struct Journals {
    writers: Writers,
    sync: JournalSync,
    /// Bytes of records after which an image is made.
    image_bytes: u64,
    imaging: Arc<Semaphore>,
    unsynced: Unsynced,
}

impl Journals {
    /// Starts the threads that write. `lock` is the file whose lock the service holds, above all journals.
    pub(crate) fn start(
        sync: JournalSync,
        image_bytes: u64,
        lock: &Path,
    ) -> Result<Journals, StorageError> {
        let writers = Writers::start(WRITERS, WRITERS)?;
        let imaging = Arc::new(Semaphore::new(IMAGES));
        let unsynced = Unsynced::at_most(MOST_UNSYNCED, lock);
        Ok(Journals { writers, sync, image_bytes, imaging, unsynced })
    }

    fn options(&self) -> Options {
        Options {
            sync: match self.sync {
                JournalSync::Write => Sync::Write,
                JournalSync::Always => Sync::Always,
            },
            // Segments go as wholes when an image has made them superfluous.
            segment_bytes: (self.image_bytes / 2).max(64 << 10),
            ..Options::default()
        }
    }
}

/// The journal of a job that runs.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    journal: Arc<Journal>,
    committed: watch::Receiver<u64>,
    journals: Journals,
    facts: Arc<Facts>,
    /// Where it is.
    directory: Arc<Path>,
    /// An image is being made, or one could not be made.
    imaging: Arc<AtomicBool>,
}

/// An image that can be stored.
#[derive(Debug)]
pub(crate) struct NewImage {
    log: Log,
    number: u64,
    pieces: Vec<Vec<u8>>,
    mark: Mark,
    _permit: OwnedSemaphorePermit,
}

impl Log {
    /// Begins the journal of a job in a directory, creating it if needed.
    pub(crate) fn begin(
        directory: &Path,
        journals: &Journals,
        base: &Base,
    ) -> Result<Log, LogError> {
        let storage = DiskStorage::open_among(directory, &journals.unsynced)?;
        Log::begin_on(Arc::new(storage), directory, journals, base)
    }

    fn begin_on(
        storage: Arc<dyn Storage>,
        directory: &Path,
        journals: &Journals,
        base: &Base,
    ) -> Result<Log, LogError> {
        let writers = journals.writers.clone();
        let (journal, _) = Journal::open_with(writers, storage, journals.options(), |_| Ok(()))?;
        let facts = Facts { description: base.description.clone(), session: base.session.clone() };
        let log = Log::of(journal, directory, journals, facts);
        log.append(&EntryRef::Base(base))?;
        Ok(log)
    }

    fn of(journal: Journal, directory: &Path, journals: &Journals, facts: Facts) -> Log {
        Log {
            committed: journal.committed(),
            journal: Arc::new(journal),
            journals: journals.clone(),
            facts: Arc::new(facts),
            directory: directory.into(),
            imaging: Arc::default(),
        }
    }

    /// Opens a journal of an earlier run.
    pub(crate) fn open(directory: &Path, journals: &Journals) -> Result<Opened, LogError> {
        let storage = Arc::new(DiskStorage::open_among(directory, &journals.unsynced)?);
        let mut replayed: Option<Box<Replayed>> = None;
        let writers = journals.writers.clone();
        let (journal, _) = Journal::open_with(writers, storage, journals.options(), |stored| {
            match stored {
                Stored::Image { bytes, .. } => {
                    replayed = Some(Box::new(Replayed::of_image(read_image(bytes)?)));
                }
                Stored::Record { bytes, .. } => match postcard::from_bytes(bytes)? {
                    Entry::Base(base) => replayed = Some(Box::new(Replayed::of_base(*base))),
                    Entry::Input(at, input) => {
                        replayed.as_mut().ok_or("an input before the job")?.apply(at, input);
                    }
                    Entry::Closed => {
                        replayed.as_mut().ok_or("an end before the job")?.closed = true;
                    }
                    Entry::Handed(settings) => {
                        let replayed = replayed.as_mut().ok_or("a parent before the job")?;
                        replayed.parent = Some(Parent::new(settings));
                    }
                    Entry::Parent(at, input) => {
                        let parent = replayed.as_mut().and_then(|found| found.parent.as_mut());
                        parent.ok_or("an input before the parent")?.apply(at, *input);
                    }
                },
            }
            Ok(())
        })?;
        let replayed = match replayed {
            None => return Ok(Opened::Empty),
            Some(replayed) if replayed.closed => return Ok(Opened::Closed),
            Some(replayed) => replayed,
        };
        let facts =
            Facts { description: replayed.description.clone(), session: replayed.session.clone() };
        Ok(Opened::Job(Log::of(journal, directory, journals, facts), replayed))
    }

    fn append(&self, entry: &EntryRef<'_>) -> Result<u64, LogError> {
        Ok(self.journal.append(&postcard::to_stdvec(entry)?)?)
    }

    /// Appends an input and returns the number of its record.
    pub(crate) fn input(&self, at: Millis, input: &JobInput) -> Result<u64, LogError> {
        self.append(&EntryRef::Input(at, input))
    }

    /// Notes that a remote job tracker is to run the job.
    pub(crate) fn hand_over(&self, settings: &ParentSettings) -> Result<u64, LogError> {
        self.append(&EntryRef::Handed(settings))
    }

    /// Appends an input of the parent and returns the number of its record.
    pub(crate) fn parent_input(&self, at: Millis, input: &ParentInput) -> Result<u64, LogError> {
        self.append(&EntryRef::Parent(at, input))
    }

    /// Notes that everything about the job is done.
    pub(crate) fn close(&self) -> Result<u64, LogError> {
        self.append(&EntryRef::Closed)
    }

    /// Waits until a record is safe.
    pub(crate) async fn committed(&self, number: u64) -> Result<(), LogError> {
        if *self.committed.borrow() >= number {
            return Ok(());
        }
        Ok(self.journal.wait_for(number).await?)
    }

    /// Whether so much has been written since the last image that another one is due.
    pub(crate) fn image_is_due(&self) -> bool {
        if self.imaging.load(Ordering::Acquire) {
            return false;
        }
        let status = self.journal.status();
        // Of a large job an image takes long: it is made the less often.
        status.tail_bytes >= self.journals.image_bytes.max(2 * status.image_bytes)
    }

    /// An image of the job after all inputs so far, if one is due. `mark` is the end of its history. A job
    /// that is over needs none: an image would not say what must still be done for it.
    pub(crate) fn image(
        &self,
        engine: &JobEngine,
        mark: impl FnOnce() -> Option<Mark>,
    ) -> Option<NewImage> {
        let is_over = !matches!(engine.state(), JobState::Prep | JobState::Running);
        if is_over || !self.image_is_due() {
            return None;
        }
        let permit = self.journals.imaging.clone().try_acquire_owned().ok()?;
        let mark = mark()?;
        let number = self.journal.begin_image();
        self.imaging.store(true, Ordering::Release);
        let image = ImageRef { facts: &self.facts, engine, history_bytes: mark.bytes() };
        match image.pieces() {
            Ok(pieces) => {
                Some(NewImage { log: self.clone(), number, pieces, mark, _permit: permit })
            }
            Err(error) => {
                self.no_image(&error);
                None
            }
        }
    }

    fn no_image(&self, error: &dyn std::fmt::Display) {
        let job = &self.facts.description.id;
        tracing::warn!(%job, %error, "cannot make an image of a job; its journal grows until the next start");
    }

    /// Removes the journal after a failure, so that a restart does not go back to what it held.
    pub(crate) fn discard(self) {
        let job = self.facts.description.id.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = DiskStorage::remove_all(&self.directory) {
                tracing::error!(%job, %error, "cannot remove the failed journal of a job; remove it before the next start");
            }
        });
    }
}

impl NewImage {
    /// Stores the image, once the history before it is safe.
    pub(crate) async fn store(self) {
        let NewImage { log, number, pieces, mark, _permit } = self;
        if !mark.wait_until_safe().await {
            return log.no_image(&"its history is not kept");
        }
        let journal = log.journal.clone();
        let store = move || {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            journal.store_image(number, &pieces)
        };
        match tokio::task::spawn_blocking(store).await {
            Ok(Ok(())) => log.imaging.store(false, Ordering::Release),
            // What is wrong is what the next record meets.
            Ok(Err(error)) => log.no_image(&error),
            Err(error) => log.no_image(&error),
        }
    }
}

fn read_image(bytes: &[u8]) -> Result<Image, corona_journal::Rejected> {
    match bytes.split_first() {
        Some((&IMAGE_FORM, image)) => Ok(postcard::from_bytes(image)?),
        Some((form, _)) => {
            Err(format!("an image of form {form}, which this version cannot read").into())
        }
        None => Err("an empty image".into()),
    }
}

impl Replayed {
    fn of_base(base: Base) -> Replayed {
        let Base { description, spec, session } = base;
        let engine = JobEngine::new(spec);
        Replayed::of_image(Image {
            facts: Facts { description, session },
            engine,
            history_bytes: 0,
        })
    }

    fn of_image(image: Image) -> Replayed {
        let Image { facts: Facts { description, session }, engine, history_bytes } = image;
        Replayed {
            description,
            session,
            engine,
            history_bytes,
            history: String::new(),
            end: None,
            closed: false,
            parent: None,
        }
    }

    fn apply(&mut self, at: Millis, input: JobInput) {
        for effect in self.engine.apply(at, input).effects {
            match effect {
                // The file is written again.
                JobEffect::Record(record) => {
                    self.history.push_str(&record.lines(&self.description.id));
                }
                JobEffect::EndSession { status, feedback } => self.end = Some((status, feedback)),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::OnceLock;

    use corona_journal::testing::Faults;
    use proptest::prelude::*;

    use super::*;
    use crate::jobs::job::tests::report;
    use crate::submit::submission::tests::submission;
    use corona_job_engine::parent::{ParentReply, Remote, SavedUpdate};
    use corona_job_engine::testing::{Step, input, steps};
    use corona_job_engine::{GrantedSlot, RequestId};
    use corona_mapreduce::{TaskKey, TaskKind};

    /// Journals with images after so many bytes.
    pub(crate) fn journals(image_bytes: u64) -> Journals {
        let no_lock = Path::new("/no/lock");
        Journals::start(JournalSync::Write, image_bytes, no_lock).unwrap()
    }

    pub(crate) fn base(maps: usize, reduces: &str) -> Base {
        let submission = submission(&[("mapred.reduce.tasks", reduces)], maps);
        let (description, spec) = (submission.description, submission.spec);
        let session = SessionBase {
            handle: "202611210043.1".into(),
            pool: description.pool.clone(),
            log_path: "/history/1".into(),
        };
        Base { description, spec, session }
    }

    /// A journal with a job that is to be resumed.
    pub(crate) fn opened(directory: &Path, journals: &Journals) -> (Log, Box<Replayed>) {
        match Log::open(directory, journals).unwrap() {
            Opened::Job(log, replayed) => (log, replayed),
            other => panic!("{other:?}"),
        }
    }

    /// A journal whose disk can get faults.
    pub(crate) fn breakable(directory: &Path, base: &Base) -> (Log, Faults) {
        let faults = Faults::default();
        let storage = faults.on(DiskStorage::open(directory).unwrap());
        (Log::begin_on(storage, directory, &journals(1 << 20), base).unwrap(), faults)
    }

    #[tokio::test]
    async fn a_journal_leads_back_to_the_same_engine() {
        let dir = tempfile::tempdir().unwrap();
        let (base, journals) = (base(3, "1"), journals(1 << 20));
        let mut engine = JobEngine::new(base.spec.clone());
        let inputs =
            [JobInput::Submitted, JobInput::Granted { slots: vec![slot(1)] }, JobInput::Tick];
        {
            let log = Log::begin(&dir.path().join("journal"), &journals, &base).unwrap();
            let mut last = 0;
            for (at, input) in inputs.into_iter().enumerate() {
                let at = Millis(at as i64);
                last = log.input(at, &input).unwrap();
                engine.apply(at, input).reply.unwrap();
            }
            log.committed(last).await.unwrap();
            assert!(log.image(&engine, || Some(Mark::kept(0))).is_none(), "none is due");
        }
        let (log, replayed) = opened(&dir.path().join("journal"), &journals);
        assert_eq!(replayed.description, base.description);
        assert_eq!((&replayed.session, replayed.history_bytes), (&base.session, 0));
        assert_eq!(replayed.engine, engine);
        assert!(replayed.history.starts_with("Meta VERSION"), "{}", replayed.history);
        assert_eq!(replayed.end, None);
        let last = log.close().unwrap();
        log.committed(last).await.unwrap();
        drop(log);
        assert!(matches!(Log::open(&dir.path().join("journal"), &journals), Ok(Opened::Closed)));
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(Log::open(empty.path(), &journals), Ok(Opened::Empty)));
    }

    #[tokio::test]
    async fn images_keep_a_journal_small() {
        let dir = tempfile::tempdir().unwrap();
        let (base, journals) = (base(3, "1"), journals(100 << 10));
        let mut engine = JobEngine::new(base.spec.clone());
        let log = Log::begin(&dir.path().join("journal"), &journals, &base).unwrap();
        engine.apply(Millis(0), JobInput::Submitted).reply.unwrap();
        log.input(Millis(0), &JobInput::Submitted).unwrap();
        let mut written = 0;
        for at in 1..2000 {
            // A list of hosts that does not change: only the journal grows.
            let hosts = (0..100).map(|host| format!("host{host}").into()).collect();
            let input = JobInput::HostsKnown { kind: corona_mapreduce::TaskKind::Map, hosts };
            let last = log.input(Millis(at), &input).unwrap();
            written += postcard::to_stdvec(&input).unwrap().len() as u64;
            engine.apply(Millis(at), input).reply.unwrap();
            log.committed(last).await.unwrap();
            if let Some(image) = log.image(&engine, || Some(Mark::kept(0))) {
                image.store().await;
            }
        }
        assert!(written > 1 << 20, "{written}");
        let size =
            |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().metadata().unwrap().len();
        let kept: u64 = std::fs::read_dir(dir.path().join("journal")).unwrap().map(size).sum();
        assert!(kept < 500 << 10, "{kept}");
        drop(log);
        assert_eq!(opened(&dir.path().join("journal"), &journals).1.engine, engine);
    }

    #[tokio::test]
    async fn without_a_history_that_is_kept_there_is_no_image() {
        let dir = tempfile::tempdir().unwrap();
        let base = base(1, "0");
        let log = Log::begin(&dir.path().join("journal"), &journals(1), &base).unwrap();
        let engine = JobEngine::new(base.spec);
        assert!(log.image(&engine, || None).is_none());
        log.image(&engine, || Some(Mark::lost(7))).unwrap().store().await;
        assert_eq!(log.journal.status().image, 0);
        assert!(log.image(&engine, || Some(Mark::kept(7))).is_none(), "it is not tried again");
    }

    /// An image of a job with an attempt that was heard of.
    fn image() -> Vec<u8> {
        let base = base(2, "1");
        let mut engine = JobEngine::new(base.spec);
        let heard = report(3, corona_mapreduce::TaskState::Running);
        for input in [JobInput::Submitted, JobInput::Granted { slots: vec![slot(1)] }, heard] {
            engine.apply(Millis(1_790_000_000_000), input).reply.unwrap();
        }
        let facts = Facts { description: base.description, session: base.session };
        let image = ImageRef { facts: &facts, engine: &engine, history_bytes: 7 };
        image.pieces().unwrap().concat()
    }

    #[test]
    fn pieces_hold_all_bytes() {
        let text = "x".repeat(3 * PIECE_BYTES - 9);
        let value = (1u8, &text, [2u8; 9], &text);
        let pieces = postcard::serialize_with_flavor(&value, Pieces::new()).unwrap();
        assert!(pieces.iter().all(|piece| piece.capacity() == PIECE_BYTES), "none was copied");
        assert_eq!(pieces.len(), 6);
        assert_eq!(pieces.concat(), postcard::to_stdvec(&value).unwrap());
    }

    #[test]
    fn an_image_that_is_read_and_written_again_is_the_same() {
        let bytes = image();
        let Image { facts, engine, history_bytes } = read_image(&bytes).unwrap();
        assert_eq!((history_bytes, engine.state()), (7, JobState::Prep));
        let again = ImageRef { facts: &facts, engine: &engine, history_bytes };
        assert_eq!(again.pieces().unwrap().concat(), bytes);
    }

    /// The journals of jobs of the first version that kept any. Later versions must read them.
    const FIRST_VERSION: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/job_journal/version_1");

    fn slot(id: i32) -> GrantedSlot {
        GrantedSlot {
            id: RequestId(id),
            node: "tracker_a:1".into(),
            host: "a".into(),
            address: "a:2".into(),
        }
    }

    /// A task tracker reports that a map has succeeded, after the three of the work the clean-up and
    /// the set-up.
    fn succeeded(number: u32) -> JobInput {
        use corona_mapreduce::{TaskState, TaskStatus};

        let map = TaskKey { kind: TaskKind::Map, number };
        JobInput::Heartbeat {
            node: "tracker_a:1".into(),
            host: "a".into(),
            http_port: 50060,
            reports: vec![TaskStatus::new(map.attempt(0), TaskState::Succeeded)],
        }
    }

    /// Writes the fixtures, if `CORONA_WRITE_FIXTURES` is set and they are not there. They are never
    /// written again: another form gets others.
    async fn write_first_version() {
        let path = Path::new(FIRST_VERSION);
        if std::env::var_os("CORONA_WRITE_FIXTURES").is_none() || path.exists() {
            return;
        }
        let (job, handed) = (path.join("job"), path.join("handed"));
        let base = base(3, "1");
        let (journals, mut engine) = (journals(1), JobEngine::new(base.spec.clone()));
        let log = Log::begin(&job, &journals, &base).unwrap();
        let inputs = [
            JobInput::Submitted,
            JobInput::Granted { slots: vec![slot(1)] },
            succeeded(4),
            JobInput::Granted { slots: (2..=4).map(slot).collect() },
            succeeded(0),
        ];
        for (at, input) in (1_790_000_000_000..).zip(inputs) {
            let last = log.input(Millis(at), &input).unwrap();
            engine.apply(Millis(at), input).reply.unwrap();
            log.committed(last).await.unwrap();
            if at == 1_790_000_000_003 {
                log.image(&engine, || Some(Mark::kept(0))).unwrap().store().await;
            }
        }
        drop(log);
        let log = Log::begin(&handed, &journals, &base).unwrap();
        log.hand_over(&parent_settings()).unwrap();
        let update =
            SavedUpdate { status_of: None, is_passing: false, at_ms: 5, bytes: vec![1, 2, 3] };
        let inputs = [
            ParentInput::Submitted,
            ParentInput::Granted { slots: vec![slot(1)] },
            ParentInput::Reported(remote()),
            ParentInput::Pushed { attempt: 0, updates: vec![update] },
        ];
        for (at, input) in (1_790_000_000_000..).zip(&inputs) {
            let last = log.parent_input(Millis(at), input).unwrap();
            log.committed(last).await.unwrap();
        }
        drop(log);
        for directory in [job, handed] {
            // Only one of them has it.
            let _ = std::fs::remove_file(directory.join("lock"));
        }
    }

    /// The journal of the fixture of this name, opened in a directory that may be written.
    fn first_version(name: &str) -> (tempfile::TempDir, Box<Replayed>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        std::fs::create_dir(&path).unwrap();
        for entry in std::fs::read_dir(Path::new(FIRST_VERSION).join(name)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), path.join(entry.file_name())).unwrap();
        }
        let (_, replayed) = opened(&dir.path().join("journal"), &journals(1 << 20));
        (dir, replayed)
    }

    fn parent_settings() -> ParentSettings {
        ParentSettings {
            maps: 3,
            reduces: 1,
            max_restarts: 1,
            start_attempts: 4,
            start_timeout_ms: 60_000,
            exclude_failed: true,
            exclusion_wait_ms: 3_000,
            max_state_bytes: 1 << 20,
        }
    }

    fn remote() -> Remote {
        Remote { attempt: 0, host: "a".into(), port: 7, session: "202611210043.2".into() }
    }

    /// The next attempt of a task learns which one may commit, as before the restart.
    #[tokio::test]
    async fn a_commit_that_was_allowed_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (at, journals) = (dir.path().join("journal"), journals(1 << 20));
        let log = Log::begin(&at, &journals, &base(3, "1")).unwrap();
        log.hand_over(&parent_settings()).unwrap();
        let task = TaskKey { kind: TaskKind::Map, number: 0 };
        let commit =
            |number| ParentInput::Committing { attempt: 0, tasks: vec![task.attempt(number)] };
        for input in [
            ParentInput::Submitted,
            ParentInput::Granted { slots: vec![slot(1)] },
            ParentInput::Reported(remote()),
            commit(0),
        ] {
            let last = log.parent_input(Millis(1), &input).unwrap();
            log.committed(last).await.unwrap();
        }
        drop(log);
        let mut parent = opened(&at, &journals).1.parent.unwrap();
        let reply = parent.apply(Millis(2), commit(1)).reply;
        assert_eq!(reply, Ok(ParentReply::Committed(vec![Some(task.attempt(0))])));
    }

    #[test]
    fn an_image_of_a_later_form_is_refused_by_its_number() {
        for (bytes, why) in [
            (&[IMAGE_FORM + 1, 0, 0][..], "an image of form 2, which this version cannot read"),
            (&[], "an empty image"),
        ] {
            assert_eq!(read_image(bytes).unwrap_err().to_string(), why);
        }
        assert!(read_image(&[IMAGE_FORM, 1, 2]).is_err());
    }

    #[tokio::test]
    async fn journals_of_the_first_version_are_read() {
        write_first_version().await;
        let files = |name: &str| {
            let entries = std::fs::read_dir(Path::new(FIRST_VERSION).join(name)).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert!(files("job").iter().any(|name| name.ends_with(".image")), "{:?}", files("job"));
        let (_dir, replayed) = first_version("job");
        let Replayed { description, session, mut engine, history, end, parent, .. } = *replayed;
        assert_eq!(
            (description.id.as_str(), &*description.user),
            ("job_202611210043.1_0001", "alice")
        );
        assert_eq!((&*session.handle, &*session.log_path), ("202611210043.1", "/history/1"));
        assert_eq!((end, parent), (None, None));
        assert_eq!(engine.state(), JobState::Running);
        let progress = engine.progress();
        assert_eq!((progress.finished.map, progress.live.map), (1, 2));
        // The lines behind the image.
        assert!(history.contains("TASK_STATUS=\"SUCCESS\""), "{history}");
        // The engine continues from there.
        for number in [1, 2] {
            engine.apply(Millis(1_790_000_001_000), succeeded(number)).reply.unwrap();
        }
        assert_eq!(engine.progress().finished.map, 3);

        let (_dir, replayed) = first_version("handed");
        let mut parent = replayed.parent.unwrap();
        assert_eq!(parent.remote().map(|remote| (&*remote.host, remote.port)), Some(("a", 7)));
        let (saved, session) = parent.saved(0).unwrap();
        let saved: Vec<&[u8]> = saved.in_order().iter().map(|update| &*update.bytes).collect();
        assert_eq!((saved, session), (vec![&[1_u8, 2, 3][..]], "202611210043.2"));
        let lost = parent.apply(Millis(1_790_000_001_000), ParentInput::Unreachable { attempt: 0 });
        assert!(lost.reply.is_ok() && parent.lost() == 1, "{lost:?}");
    }

    /// A run of a job in which the service ends and starts again.
    struct Run {
        dir: tempfile::TempDir,
        journals: Journals,
        log: Option<Log>,
        engine: JobEngine,
        history: String,
        images: usize,
    }

    impl Run {
        fn new(maps: usize, image_bytes: u64) -> Run {
            static WRITERS: OnceLock<Journals> = OnceLock::new();
            let journals = WRITERS.get_or_init(|| journals(1)).clone();
            let journals = Journals { image_bytes, ..journals };
            let dir = tempfile::tempdir().unwrap();
            let base = base(maps, "1");
            let log = Log::begin(&dir.path().join("journal"), &journals, &base).unwrap();
            let engine = JobEngine::new(base.spec);
            Run { dir, journals, log: Some(log), engine, history: String::new(), images: 0 }
        }

        async fn apply(&mut self, at: Millis, input: JobInput) {
            let log = self.log.as_ref().unwrap();
            let last = log.input(at, &input).unwrap();
            for effect in self.engine.apply(at, input).effects {
                if let JobEffect::Record(record) = effect {
                    self.history.push_str(&record.lines(self.engine.id()));
                }
            }
            log.committed(last).await.unwrap();
            let length = self.history.len() as u64;
            if let Some(image) = log.image(&self.engine, || Some(Mark::kept(length))) {
                image.store().await;
                self.images += 1;
            }
        }

        /// The process ends and another one begins; the engine must be the same, and the history.
        fn restart(&mut self) {
            drop(self.log.take());
            let (log, replayed) = opened(&self.dir.path().join("journal"), &self.journals);
            assert_eq!(replayed.engine, self.engine);
            let kept = usize::try_from(replayed.history_bytes).unwrap();
            assert_eq!(replayed.history, self.history[kept..]);
            self.engine = replayed.engine;
            self.log = Some(log);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

        #[test]
        fn a_job_that_is_cut_anywhere_goes_on_from_its_image(
            steps in steps(),
            cuts in prop::collection::vec(0..120_usize, 1..6),
            image_bytes in prop::sample::select(vec![1_u64, 1_000, 10_000]),
            maps in 0..5_usize,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let mut run = Run::new(maps, image_bytes);
                let mut now = Millis(1000);
                run.apply(now, JobInput::Submitted).await;
                for (at, step) in steps.iter().enumerate() {
                    if let Step::Wait(span_ms) = step {
                        now = now.plus_ms(*span_ms);
                    }
                    if cuts.contains(&at) {
                        run.restart();
                    }
                    if let Some(input) = input(&run.engine, step) {
                        run.apply(now, input).await;
                    }
                }
                run.restart();
                assert!(run.images > 0 || image_bytes > 1);
            });
        }
    }
}
