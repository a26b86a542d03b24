//! The standby's side of the copies: a journal of its own, and an engine that goes through it, so that
//! it can lead at once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::copy_out::{Ended, Frames, PROTOCOL};
use super::instance_role::{Leader, Standby};
use crate::hash_seed;
use crate::journal::follower::Reader;
use crate::journal::images::{Images, make_images};
use crate::journal::opening::{self, JournalError, Opened, Recovery, Resumed};
use corona_access::rights::INSTANCE;
use corona_access::{Stream, dial, send};
use corona_config::JournalSettings;
use corona_journal::{
    DiskStorage, Journal, RECORD_HEADER, Recovered, Status, StorageError, first_record, seed,
};
use corona_model::types::Millis;
use corona_process::panics::{blocking, spawn_detached};
use corona_standby::Copy;
use corona_standby::stream::{self, Head, Kind, MAX_PAYLOAD, OPENING};

/// The end of the name of a file beside a copy's directory, from before the copy begins until it is complete.
const INCOMPLETE: &str = ".incomplete";
/// The same as a file in the directory. Earlier versions have only this one.
const INCOMPLETE_INSIDE: &str = "incomplete";
/// The end of the name of the directory that a copy has replaced.
const BEFORE: &str = ".before";
/// Bytes of an image, or of a record, at most.
const MAX_STATE_BYTES: usize = 1 << 30;
/// Records that were written and not synced for longer are not acknowledged: the disk hangs.
const HUNG_SYNC: Duration = Duration::from_secs(1);
/// Between two attempts to reach the leader.
const RECONNECT: Duration = Duration::from_millis(200);
/// A reason that stays is logged again after this time.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// Copies the leader's journal.
pub(super) struct Copying {
    pub(super) me: Arc<str>,
    /// When this instance was started.
    pub(super) started: Millis,
    pub(super) directory: PathBuf,
    pub(super) settings: JournalSettings,
    /// After how long without a frame the leader counts as disconnected.
    pub(super) patience: Duration,
    pub(super) leader: watch::Receiver<Option<Leader>>,
    /// What this instance would lead with.
    pub(super) copy: watch::Sender<Option<Copy>>,
    pub(super) held: Arc<Held>,
}

/// The copy that an instance has, and what is known of it.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<CopyState>);

#[derive(Debug, Default)]
struct CopyState {
    copy: Option<LiveCopy>,
    progress: Progress,
}

/// How far the copy is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Whether records arrive at the moment.
    pub(super) is_connected: bool,
    /// Whether the copy has everything up to `record`.
    pub(super) is_complete: bool,
    /// The last record.
    pub(super) record: u64,
}

/// A journal that is open, and the engine that has gone through it.
#[derive(Debug)]
struct LiveCopy {
    journal: Arc<Journal>,
    reader: Reader,
    image: u64,
    last: u64,
    /// Bytes of records that are not complete.
    rest: Vec<u8>,
    stop_images: watch::Sender<bool>,
}

impl Held {
    pub(super) fn progress(&self) -> Progress {
        self.state().progress.clone()
    }

    /// The complete copy, to lead with. `None` if there is none.
    pub(super) fn take(&self, directory: &Path) -> Option<Opened> {
        let mut state = self.state();
        if !state.progress.is_complete {
            return None;
        }
        let LiveCopy { journal, reader, image, last, stop_images, .. } = state.copy.take()?;
        drop(state);
        stop_images.send_replace(true);
        let follower = reader.finish()?;
        let found = Recovered { image, last, records: last - image, ..Recovered::default() };
        let facts = Recovery { took: Duration::ZERO, found };
        let recovered = Some(Resumed::new(follower, facts));
        Some(Opened { journal, directory: directory.to_owned(), recovered })
    }

    fn state(&self) -> MutexGuard<'_, CopyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Copying {
    /// Copies forever.
    pub(super) async fn run(mut self) {
        let mut told = None;
        loop {
            let leader = self.leader.borrow_and_update().clone();
            let Some(leader) = leader.filter(|leader| *leader.instance != *self.me) else {
                let _ = self.leader.changed().await;
                continue;
            };
            let mut changes = self.leader.clone();
            let ended = tokio::select! {
                ended = self.follow(&leader) => ended.err(),
                _ = changes.changed() => None,
            };
            self.held.state().progress.is_connected = false;
            if let Some(ended) = ended {
                let reason = format!("Not copying from {}: {ended}", leader.instance);
                let is_told = told.as_ref().is_some_and(|(text, at): &(String, Instant)| {
                    *text == reason && at.elapsed() < TOLD_AGAIN
                });
                if !is_told {
                    tracing::info!("{reason}");
                    told = Some((reason, Instant::now()));
                }
            }
            sleep(RECONNECT).await;
        }
    }

    async fn follow(&self, leader: &Leader) -> Result<(), Ended> {
        let connecting = TcpStream::connect(&leader.instance);
        let stream = timeout(self.patience, connecting).await.map_err(|_| Ended::Silent)??;
        stream.set_nodelay(true)?;
        let mut stream = dial(INSTANCE, stream).await?;
        let mut opening = OPENING.to_vec();
        let hello = Head { kind: Kind::Hello, epoch: leader.epoch, number: PROTOCOL };
        let program = (env!("CARGO_PKG_VERSION").into(), self.started);
        let program = (!leader.version.is_empty()).then_some(program);
        let standby = Standby { name: self.me.clone(), program };
        stream::write(&mut opening, hello, &standby.write());
        send(&mut stream, &opening).await?;
        let (mut read, write) = split(stream);
        let mut frames = Frames::within(MAX_PAYLOAD);
        let mut image: Option<(u64, Vec<u8>)> = None;
        let mut has_begun = false;
        let mut write = Some(write);
        let mut acknowledging = Acknowledging::default();
        loop {
            // While the leader takes the earlier copy of this instance out of the succession, it is silent.
            let next = timeout(self.patience, frames.next(&mut read)).await;
            let (head, payload) = next.map_err(|_| Ended::Silent)??;
            if head.epoch != leader.epoch {
                return Err(Ended::Protocol(format!("a frame of epoch {}", head.epoch)));
            }
            match head.kind {
                Kind::Image if !has_begun => {
                    add_piece(&mut image, head.number, &payload, MAX_STATE_BYTES)?;
                }
                // The leader is alive, and has nothing to send yet.
                Kind::Alive if !has_begun => {}
                Kind::Records | Kind::CaughtUp | Kind::Alive => {
                    if !has_begun {
                        let journal = self.begin(image.take()).await?;
                        has_begun = true;
                        if let Some(write) = write.take() {
                            acknowledging = Acknowledging::start(journal, write, leader.epoch);
                        }
                    }
                    if head.kind == Kind::CaughtUp {
                        self.complete(head.number)?;
                    }
                    self.take_records(&payload)?;
                }
                Kind::Image | Kind::Hello | Kind::Acknowledged => {
                    return Err(Ended::Protocol(format!("an unexpected frame: {head:?}")));
                }
            }
            acknowledging.check()?;
        }
    }

    /// Sets the earlier copy aside and starts a new one from an image.
    async fn begin(&self, image: Option<(u64, Vec<u8>)>) -> Result<Arc<Journal>, Ended> {
        tracing::info!(
            "Copying the leader's journal to {}, from an image of {} bytes",
            self.directory.display(),
            image.as_ref().map_or(0, |(_, bytes)| bytes.len())
        );
        let earlier = {
            let mut state = self.held.state();
            state.progress = Progress { is_connected: true, ..Progress::default() };
            state.copy.take()
        };
        self.copy.send_replace(None);
        let (directory, settings) = (self.directory.clone(), self.settings.clone());
        let number = image.as_ref().map_or(0, |(number, _)| *number);
        let opened = blocking(move || {
            if let Some(LiveCopy { journal, stop_images, .. }) = earlier {
                stop_images.send_replace(true);
                // Its result no longer matters.
                let _ = journal.close();
            }
            open_copy(&directory, &settings, image)
        });
        let (journal, reader) = opened.await.map_err(|error| Ended::Protocol(error.to_string()))?;
        let (stop_images, stopped) = watch::channel(false);
        let (making, image_bytes) = (journal.clone(), self.settings.image_bytes);
        spawn_detached("the images of a copy", async move {
            make_images(&making, &Images::default(), image_bytes, stopped).await;
        });
        let mut state = self.held.state();
        let copy = LiveCopy {
            journal: journal.clone(),
            reader,
            image: number,
            last: number,
            rest: Vec::new(),
            stop_images,
        };
        state.copy = Some(copy);
        state.progress.record = number;
        Ok(journal)
    }

    /// Appends whole records, and applies them.
    fn take_records(&self, bytes: &[u8]) -> Result<(), Ended> {
        let mut state = self.held.state();
        let CopyState { copy: Some(copy), progress } = &mut *state else { return Ok(()) };
        copy.rest.extend(bytes);
        let rest = std::mem::take(&mut copy.rest);
        let mut left = rest.as_slice();
        let protocol = |text: String| Ended::Protocol(text);
        // What is left is the beginning of a record whose end is in the next piece.
        while let Some((number, payload)) = first_record(left, copy.last.saturating_add(1))
            .map_err(|_| {
                protocol(format!("bytes behind record {} that are no record", copy.last))
            })?
        {
            left = left.get(RECORD_HEADER + payload.len()..).unwrap_or_default();
            if number <= copy.last {
                continue;
            }
            let appended =
                copy.journal.append(payload).map_err(|error| protocol(error.to_string()))?;
            if appended != number {
                return Err(protocol(format!("record {number} came in place of {appended}")));
            }
            copy.last = number;
            let entry = corona_journal::Entry::Record { number, bytes: payload };
            copy.reader.visit(entry).map_err(|error| protocol(error.to_string()))?;
        }
        copy.rest = left.to_vec();
        progress.record = copy.last;
        Ok(())
    }

    /// The copy has everything up to this record.
    fn complete(&self, number: u64) -> Result<(), Ended> {
        let mut state = self.held.state();
        let (last, rest) = state.copy.as_ref().map_or((0, 0), |copy| (copy.last, copy.rest.len()));
        if last < number {
            return Err(Ended::Protocol(format!("record {number} is missing behind {last}")));
        }
        // A journal begins with the state of its leader.
        if last == 0 || rest > 0 {
            let text =
                format!("a copy that ends with record {last} and {rest} bytes of another one");
            return Err(Ended::Protocol(text));
        }
        state.progress.is_complete = true;
        drop(state);
        complete_copy(&self.directory).map_err(Ended::Io)?;
        tracing::info!("The copy of the leader's journal is complete, up to record {last}");
        self.copy.send_replace(Some(Copy::Live));
        Ok(())
    }
}

/// What an instance finds on its disk at its start: nothing to lead with if the copy there is incomplete.
pub(super) fn copy_at_start(directory: &Path) -> Option<Copy> {
    (!is_incomplete(directory)).then_some(Copy::Disk)
}

fn beside(directory: &Path, end: &str) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn is_incomplete(directory: &Path) -> bool {
    beside(directory, INCOMPLETE).exists() || directory.join(INCOMPLETE_INSIDE).exists()
}

fn complete_copy(directory: &Path) -> std::io::Result<()> {
    std::fs::remove_file(directory.join(INCOMPLETE_INSIDE))?;
    std::fs::remove_file(beside(directory, INCOMPLETE))
}

/// Makes room for a copy. What is there is kept under another name, unless it is an incomplete copy itself. A
/// death between any two steps leaves no directory that looks complete and is not.
fn make_room(directory: &Path) -> Result<(), StorageError> {
    let (before, marker) = (beside(directory, BEFORE), beside(directory, INCOMPLETE));
    let is_incomplete = match (directory.join(INCOMPLETE_INSIDE).exists(), marker.exists()) {
        (true, _) => true,
        // It was replaced, and its copy not begun.
        (false, true) => before.exists(),
        (false, false) => false,
    };
    if !marker.exists() {
        if directory.exists() && !is_incomplete {
            DiskStorage::remove_all(&before)?;
        }
        if let Some(parent) = directory.parent() {
            // As the journal of a leader, whose directory is made with those above it.
            std::fs::create_dir_all(parent).map_err(system("make the directory", parent))?;
        }
        std::fs::write(&marker, b"").map_err(system("create", &marker))?;
        sync_parent(directory).map_err(system("sync the parent of", directory))?;
    }
    match is_incomplete {
        true => DiskStorage::remove_all(directory),
        false => DiskStorage::rename_all(directory, &before),
    }
}

fn sync_parent(directory: &Path) -> std::io::Result<()> {
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn system<'a>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(std::io::Error) -> StorageError + use<'a> {
    move |source| StorageError::System { path: path.to_owned(), operation, source }
}

/// Starts the journal of a copy.
fn open_copy(
    directory: &Path,
    settings: &JournalSettings,
    image: Option<(u64, Vec<u8>)>,
) -> Result<(Arc<Journal>, Reader), JournalError> {
    make_room(directory)?;
    let storage = DiskStorage::open(directory)?;
    let marker = directory.join(INCOMPLETE_INSIDE);
    std::fs::write(&marker, b"").map_err(system("create", &marker))?;
    if let Some((number, bytes)) = image {
        seed(&storage, number, &bytes)?;
    }
    let mut reader = Reader::new(hash_seed());
    let options = opening::options(settings);
    let (journal, _) = Journal::open(storage, options, |entry| Ok(reader.visit(entry)?))?;
    Ok((Arc::new(journal), reader))
}

/// Adds a piece to an image of at most so many bytes.
fn add_piece(
    image: &mut Option<(u64, Vec<u8>)>,
    of: u64,
    piece: &[u8],
    most: usize,
) -> Result<(), Ended> {
    let (number, bytes) = image.get_or_insert_with(|| (of, Vec::new()));
    if *number != of {
        return Err(Ended::Protocol(format!("a piece of image {of} behind one of image {number}")));
    }
    if bytes.len() + piece.len() > most {
        return Err(Ended::Protocol(format!("an image of more than {most} bytes")));
    }
    bytes.extend(piece);
    Ok(())
}

/// The last record that may be acknowledged: what is written, unless the disk does not sync it.
fn acknowledgeable(status: &Status) -> u64 {
    if status.unsynced > HUNG_SYNC { status.durable } else { status.committed }
}

/// Acknowledges what is stored, until it is dropped.
#[derive(Debug, Default)]
struct Acknowledging(Option<tokio::task::JoinHandle<Ended>>);

impl Acknowledging {
    fn start(journal: Arc<Journal>, mut write: WriteHalf<Stream>, epoch: u64) -> Acknowledging {
        let acknowledge = async move {
            let mut committed = journal.committed();
            let mut acknowledged = None;
            loop {
                committed.borrow_and_update();
                let status = journal.status();
                let number = acknowledgeable(&status);
                let is_held = number < status.committed;
                if acknowledged.is_none_or(|before| number > before) {
                    acknowledged = Some(number);
                    let mut frame = Vec::new();
                    let head = Head { kind: Kind::Acknowledged, epoch, number };
                    stream::write(&mut frame, head, b"");
                    if let Err(error) = send(&mut write, &frame).await {
                        return error.into();
                    }
                }
                tokio::select! {
                    changed = committed.changed() => if changed.is_err() {
                        return Ended::Protocol("the journal has ended".into());
                    },
                    failed = journal.failed() => return Ended::Protocol(failed.to_string()),
                    () = sleep(RECONNECT), if is_held => {}
                }
            }
        };
        Acknowledging(Some(tokio::spawn(acknowledge)))
    }

    /// Whether it has failed.
    fn check(&self) -> Result<(), Ended> {
        match &self.0 {
            Some(task) if task.is_finished() => {
                Err(Ended::Protocol("acknowledgements cannot be sent".into()))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Acknowledging {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corona_engine::testing::{engine, settings};
    use corona_journal::frame_record;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// The names in a directory.
    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_death_between_two_steps_of_a_copy_leaves_nothing_to_lead_with_by_mistake() {
        // What a death leaves, whether there is something to lead with, and what the next copy keeps.
        let complete = &["journal/", "journal/record"][..];
        for (left, leads, kept) in [
            (complete, true, true),
            (&["journal/", "journal/record", "journal.before/"], true, true),
            // The mark was made, and the directory not renamed.
            (&["journal/", "journal/record", "journal.incomplete"], false, true),
            // It was renamed, and the new one not made, not marked inside, or half written.
            (&["journal.before/", "journal.before/record", "journal.incomplete"], false, true),
            (
                &["journal/", "journal.before/", "journal.before/record", "journal.incomplete"],
                false,
                true,
            ),
            (
                &[
                    "journal/",
                    "journal/incomplete",
                    "journal/new",
                    "journal.before/",
                    "journal.before/record",
                    "journal.incomplete",
                ],
                false,
                true,
            ),
            // It was removed in part: the mark inside went first.
            (
                &[
                    "journal/",
                    "journal/new",
                    "journal.before/",
                    "journal.before/record",
                    "journal.incomplete",
                ],
                false,
                true,
            ),
            // Of an earlier version.
            (&["journal/", "journal/incomplete", "journal/new"], false, false),
            (&[], true, false),
        ] {
            let root = tempfile::tempdir().unwrap();
            for name in left {
                let path = root.path().join(name);
                match name.ends_with('/') {
                    true => std::fs::create_dir(path).unwrap(),
                    false => std::fs::write(path, name).unwrap(),
                }
            }
            let directory = root.path().join("journal");
            assert_eq!(copy_at_start(&directory).is_some(), leads, "{left:?}");
            make_room(&directory).unwrap();
            let now = names(root.path());
            assert!(!directory.exists() && !is_complete(&directory), "{left:?}: {now:?}");
            let before = root.path().join("journal.before");
            let keeps = before.exists() && names(&before) == ["record"];
            assert_eq!(keeps, kept, "{left:?}: {now:?}");
            assert!(!before.join("new").exists(), "{left:?}");
        }
    }

    fn is_complete(directory: &Path) -> bool {
        copy_at_start(directory).is_some()
    }

    #[test]
    fn the_first_copy_makes_the_directories_above_it() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("new/instance/journal");
        make_room(&directory).unwrap();
        assert_eq!(names(&root.path().join("new/instance")), ["journal.incomplete"]);
    }

    #[test]
    fn an_image_has_an_end() {
        let mut image = None;
        add_piece(&mut image, 7, &[1; 60], 100).unwrap();
        add_piece(&mut image, 7, &[2; 40], 100).unwrap();
        assert!(add_piece(&mut image, 7, &[3], 100).is_err());
        assert!(add_piece(&mut image, 8, &[], 100).is_err());
        assert_eq!(image.map(|(number, bytes)| (number, bytes.len())), Some((7, 100)));
    }

    #[test]
    fn a_disk_that_does_not_sync_is_not_acknowledged() {
        let status = |unsynced| Status { committed: 9, durable: 4, unsynced, ..Status::default() };
        assert_eq!(acknowledgeable(&status(Duration::from_millis(300))), 9);
        assert_eq!(acknowledgeable(&status(Duration::from_secs(2))), 4);
    }

    /// What a leader sends behind the standby's hello: its frames, each of kind, number and payload.
    type Frames<'a> = &'a [(Kind, u64, &'a [u8])];

    /// A standby that copies from what this leader sends, and how far it has come when the leader is done or
    /// the standby has disconnected.
    async fn copied(frames: Frames<'_>) -> Progress {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let instance = listener.local_addr().unwrap().to_string();
        let leader = Leader { instance, epoch: 1, ..Leader::default() };
        let (_leader, seen) = watch::channel(Some(leader));
        let held = Arc::new(Held::default());
        let loaded = corona_config::load(None, &[]).unwrap();
        let copying = Copying {
            me: "me".into(),
            started: Millis(1),
            directory: directory.path().join("journal"),
            settings: loaded.settings.journal,
            patience: PATIENCE,
            leader: seen,
            copy: watch::Sender::new(None),
            held: held.clone(),
        };
        let copying = tokio::spawn(copying.run());
        let (mut standby, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        for (kind, number, payload) in frames {
            stream::write(&mut bytes, Head { kind: *kind, epoch: 1, number: *number }, payload);
        }
        // A standby that has seen enough may have closed it.
        let _ = standby.write_all(&bytes).await;
        let (started, closed) = (Instant::now(), std::sync::atomic::AtomicBool::new(false));
        let waiting = async {
            let mut rest = Vec::new();
            let _ = tokio::io::AsyncReadExt::read_to_end(&mut standby, &mut rest).await;
            closed.store(true, std::sync::atomic::Ordering::Release);
        };
        let looking = async {
            while !held.progress().is_complete {
                assert!(started.elapsed() < PATIENCE);
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = waiting => {}
            () = looking => {}
        }
        let progress = held.progress();
        copying.abort();
        let _ = copying.await;
        progress
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_copy_is_complete_when_all_of_it_are_records_that_lead_to_a_state() {
        let base = opening::first_record(&engine(settings()), Default::default()).unwrap();
        let (mut record, mut second) = (Vec::new(), Vec::new());
        frame_record(&mut record, 1, &base);
        frame_record(&mut second, 3, b"a gap");
        let (first, end) = record.split_at(30);
        let caught_up = |number| (Kind::CaughtUp, number, &b""[..]);
        let good =
            copied(&[(Kind::Records, 1, first), (Kind::Records, 1, end), caught_up(1)]).await;
        assert_eq!((good.is_complete, good.record), (true, 1));
        let bad: [Frames<'_>; 6] = [
            &[caught_up(0)],
            &[(Kind::Records, 1, &[b'x'; 100]), caught_up(0)],
            &[(Kind::Records, 1, &[0; 100]), caught_up(0)],
            &[(Kind::Records, 1, first), caught_up(0)],
            &[(Kind::Records, 1, &record), caught_up(2)],
            &[(Kind::Records, 1, &record), (Kind::Records, 3, &second), caught_up(1)],
        ];
        for (number, frames) in bad.into_iter().enumerate() {
            let progress = copied(frames).await;
            assert!(!progress.is_complete, "{number}: {progress:?}");
        }
    }
}
