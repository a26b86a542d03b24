//! The standby's side of the copies: a journal of its own, and an engine that goes through it, so that
//! it can lead at once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::copy_out::{Ended, Frames, PROTOCOL};
use super::instance_role::Leader;
use crate::hash_seed;
use crate::journal::follower::Reader;
use crate::journal::images::{Images, make_images};
use crate::journal::opening::{self, JournalError, Opened, Recovery, Resumed};
use corona_config::JournalSettings;
use corona_journal::{DiskStorage, Journal, RECORD_HEADER, Recovered, records, seed};
use corona_process::panics::blocking;
use corona_standby::Copy;
use corona_standby::stream::{self, Head, Kind, OPENING};

/// The name that a copy's directory has until it is complete, as a file in it.
const INCOMPLETE: &str = "incomplete";
/// Between two attempts to reach the leader.
const RECONNECT: Duration = Duration::from_millis(200);

/// Copies the leader's journal.
pub(super) struct Copying {
    pub(super) me: Arc<str>,
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
pub(super) struct Held(Mutex<State>);

#[derive(Debug, Default)]
struct State {
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Copying {
    /// Copies forever.
    pub(super) async fn run(mut self) {
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
                tracing::info!("Not copying from {}: {ended}", leader.instance);
            }
            sleep(RECONNECT).await;
        }
    }

    async fn follow(&self, leader: &Leader) -> Result<(), Ended> {
        let connecting = TcpStream::connect(&leader.instance);
        let mut stream = timeout(self.patience, connecting).await.map_err(|_| Ended::Silent)??;
        stream.set_nodelay(true)?;
        let mut opening = OPENING.to_vec();
        let hello = Head { kind: Kind::Hello, epoch: leader.epoch, number: PROTOCOL };
        stream::write(&mut opening, hello, self.me.as_bytes());
        stream.write_all(&opening).await?;
        let (mut read, write) = stream.into_split();
        let mut frames = Frames::default();
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
                Kind::Image => {
                    let (_, bytes) = image.get_or_insert_with(|| (head.number, Vec::new()));
                    bytes.extend(payload);
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
                Kind::Hello | Kind::Acknowledged => {
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
        tokio::spawn(async move {
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
        let State { copy: Some(copy), progress } = &mut *state else { return Ok(()) };
        copy.rest.extend(bytes);
        let rest = std::mem::take(&mut copy.rest);
        let mut taken = 0;
        let protocol = |text: String| Ended::Protocol(text);
        for record in records(&rest) {
            // The end of a piece. The checksums of frames notice damage.
            let Ok((number, payload)) = record else { break };
            taken += RECORD_HEADER + payload.len();
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
        copy.rest = rest[taken..].to_vec();
        progress.record = copy.last;
        Ok(())
    }

    /// The copy has everything up to this record.
    fn complete(&self, number: u64) -> Result<(), Ended> {
        let mut state = self.held.state();
        let last = state.copy.as_ref().map_or(0, |copy| copy.last);
        if last < number {
            return Err(Ended::Protocol(format!("record {number} is missing behind {last}")));
        }
        state.progress.is_complete = true;
        drop(state);
        let marker = self.directory.join(INCOMPLETE);
        std::fs::remove_file(&marker).map_err(Ended::Io)?;
        tracing::info!("The copy of the leader's journal is complete, up to record {last}");
        self.copy.send_replace(Some(Copy::Live));
        Ok(())
    }
}

/// What an instance finds on its disk at its start: nothing to lead with if the copy there is incomplete.
pub(super) fn copy_at_start(directory: &Path) -> Option<Copy> {
    (!directory.join(INCOMPLETE).exists()).then_some(Copy::Disk)
}

/// Starts the journal of a copy. The directory that is there is kept under another name, unless it is
/// an incomplete copy itself.
fn open_copy(
    directory: &Path,
    settings: &JournalSettings,
    image: Option<(u64, Vec<u8>)>,
) -> Result<(Arc<Journal>, Reader), JournalError> {
    let system = |operation, path: &Path| {
        let path = path.to_owned();
        move |source| corona_journal::StorageError::System { path, operation, source }
    };
    if directory.join(INCOMPLETE).exists() {
        DiskStorage::remove_all(directory)?;
    } else {
        let mut before = directory.as_os_str().to_owned();
        before.push(".before");
        let before = Path::new(&before);
        if directory.exists() {
            DiskStorage::remove_all(before)?;
        }
        DiskStorage::rename_all(directory, before)?;
    }
    let storage = DiskStorage::open(directory)?;
    let marker = directory.join(INCOMPLETE);
    std::fs::write(&marker, b"").map_err(system("create", &marker))?;
    if let Some((number, bytes)) = image {
        seed(&storage, number, &bytes)?;
    }
    let mut reader = Reader::new(hash_seed());
    let options = opening::options(settings);
    let (journal, _) = Journal::open(storage, options, |entry| Ok(reader.visit(entry)?))?;
    Ok((Arc::new(journal), reader))
}

/// Acknowledges what is stored, until it is dropped.
#[derive(Debug, Default)]
struct Acknowledging(Option<tokio::task::JoinHandle<Ended>>);

impl Acknowledging {
    fn start(journal: Arc<Journal>, mut write: OwnedWriteHalf, epoch: u64) -> Acknowledging {
        let acknowledge = async move {
            let mut committed = journal.committed();
            loop {
                let number = *committed.borrow_and_update();
                let mut frame = Vec::new();
                let head = Head { kind: Kind::Acknowledged, epoch, number };
                stream::write(&mut frame, head, b"");
                if let Err(error) = write.write_all(&frame).await {
                    return error.into();
                }
                tokio::select! {
                    changed = committed.changed() => if changed.is_err() {
                        return Ended::Protocol("the journal has ended".into());
                    },
                    failed = journal.failed() => return Ended::Protocol(failed.to_string()),
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
