//! The journal at the start: what it leads back to, or the first record of a new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::entry::{Base, Entry};
use super::follower::{Follower, Reader};
use super::outbox::Outbox;
use crate::undelivered::Undelivered;
use corona_config::JournalSettings;
use corona_engine::Engine;
use corona_engine::codec::CodecError;
use corona_journal::{
    DiskStorage, Failed, Journal, OpenError, Options, Recovered, Storage, StorageError,
};
use corona_model::types::{Millis, ResourceType};

/// Why the journal cannot be used.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The directory cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The files are damaged, of another version, or do not fit together.
    #[error(
        "{0}; 'corona journal check' shows more, 'corona journal repair' goes back to the state \
         before the damage, and --fresh starts without it"
    )]
    Open(#[from] OpenError),
    /// It cannot be written.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The state has no form in which it could be written.
    #[error("the state cannot be encoded: {0}")]
    Codec(#[from] CodecError),
}

/// A journal that is open, and what came out of it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) journal: Arc<Journal>,
    pub(crate) directory: PathBuf,
    /// What the journal led back to; `None` if there was nothing in it.
    pub(crate) recovered: Option<Resumed>,
}

/// The state that a journal led back to.
#[derive(Debug)]
pub(crate) struct Resumed {
    /// Until it is taken.
    follower: Option<Follower>,
    pub(crate) facts: Recovery,
}

impl Opened {
    /// The engine, the notifications that were not acknowledged, and the time of the last input, if the
    /// journal led back to any. Once.
    pub(crate) fn take_state(&mut self) -> Option<(Engine, Outbox, Millis)> {
        let Follower { engine, outbox, now } = self.recovered.as_mut()?.follower.take()?;
        Some((engine, outbox, now))
    }
}

impl Resumed {
    pub(crate) fn new(follower: Follower, facts: Recovery) -> Resumed {
        Resumed { follower: Some(follower), facts }
    }

    /// Reports in the log what has come out.
    pub(crate) fn log(&self, directory: &Path) {
        let Recovery { took, found } = &self.facts;
        let Some(Follower { engine, outbox, .. }) = &self.follower else { return };
        tracing::info!(
            "Resuming from the journal in {}: image {} and {} records, up to record {}, in {} ms",
            directory.display(),
            found.image,
            found.records,
            found.last,
            took.as_millis()
        );
        let used: u64 = ResourceType::ALL.into_iter().map(|kind| engine.slots(kind).used).sum();
        tracing::info!(
            "Resumed {} sessions with {used} slots in use and {} notifications to be delivered",
            engine.session_count(),
            outbox.len()
        );
        if found.torn_bytes > 0 {
            tracing::warn!(
                "The last {} bytes of the journal were torn; they are now in a file that ends in .torn",
                found.torn_bytes
            );
        }
        for image in &found.damaged_images {
            tracing::warn!("{image} is damaged; an older image took its place");
        }
    }
}

/// How the last recovery went.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    /// How long it took.
    pub(crate) took: Duration,
    /// What was found.
    pub(crate) found: Recovered,
}

/// How a journal with these settings is written.
pub(crate) fn options(settings: &JournalSettings) -> Options {
    Options {
        sync: match settings.sync {
            corona_config::JournalSync::Write => corona_journal::Sync::Write,
            corona_config::JournalSync::Always => corona_journal::Sync::Always,
        },
        sync_interval: settings.sync_interval,
        segment_bytes: settings.segment_bytes,
    }
}

/// What journals lie on: the disk itself, except in tests.
#[derive(Clone)]
pub(crate) struct Disk(Arc<dyn Fn(DiskStorage) -> Arc<dyn Storage> + Send + Sync>);

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").finish_non_exhaustive()
    }
}

impl Disk {
    /// The disk of this machine.
    pub(crate) fn system() -> Disk {
        Disk(Arc::new(|storage| Arc::new(storage)))
    }

    /// The disk of this machine with these faults.
    #[cfg(test)]
    pub(crate) fn with(faults: &corona_journal::testing::Faults) -> Disk {
        let faults = faults.clone();
        Disk(Arc::new(move |storage| faults.on(storage)))
    }

    fn open(&self, directory: &Path) -> Result<Arc<dyn Storage>, StorageError> {
        DiskStorage::open(directory).map(|storage| (self.0)(storage))
    }
}

/// Opens the journal in a directory and goes through it. Takes its time.
pub(crate) fn open(
    disk: &Disk,
    directory: &Path,
    settings: &JournalSettings,
    hash_seed: u64,
) -> Result<Opened, JournalError> {
    let started = Instant::now();
    let storage = disk.open(directory)?;
    let mut reader = Reader::new(hash_seed);
    let (journal, found) =
        Journal::open_on(storage, options(settings), |entry| Ok(reader.visit(entry)?))?;
    let recovered = reader.finish().map(|follower| Resumed {
        follower: Some(follower),
        facts: Recovery { took: started.elapsed(), found },
    });
    Ok(Opened { journal: Arc::new(journal), directory: directory.to_owned(), recovered })
}

/// The first record of a new journal: the present state.
pub(crate) fn first_record(engine: &Engine, outbox: Outbox) -> Result<Vec<u8>, JournalError> {
    Ok(Entry::Base(Box::new(Base { engine: engine.image(), outbox })).encode()?)
}

/// Starts a new journal with its first record, which is durable when this returns. A journal that is
/// there is set aside; its new name is returned. Takes its time.
pub(crate) fn start_new(
    disk: &Disk,
    directory: &Path,
    settings: &JournalSettings,
    first: &[u8],
) -> Result<(Opened, Option<PathBuf>), JournalError> {
    let aside = DiskStorage::set_aside(directory)?;
    let (journal, _) = Journal::open_on(disk.open(directory)?, options(settings), |_| Ok(()))?;
    let opened =
        Opened { journal: Arc::new(journal), directory: directory.to_owned(), recovered: None };
    Ok((begin(opened, first)?, aside))
}

/// Writes the first record of a journal, which is durable when this returns. Takes its time.
pub(crate) fn begin(opened: Opened, first: &[u8]) -> Result<Opened, JournalError> {
    let number = opened.journal.append(first)?;
    opened.journal.sync(number)?;
    Ok(opened)
}

/// The notifications of a state file, as the journal counts them.
pub(crate) fn outbox_of(undelivered: &[Undelivered]) -> Outbox {
    let mut outbox = Outbox::default();
    for Undelivered { handle, to, calls } in undelivered {
        for call in calls {
            outbox.push(handle.clone(), to.clone(), call.clone());
        }
    }
    outbox
}
