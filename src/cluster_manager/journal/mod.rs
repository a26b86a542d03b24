//! The journal of the cluster manager: what is written when, and how an engine comes out of it again.
//!
//! Every input that changes something is a record, written before its reply and its notifications
//! leave ([`appender`]). Heartbeats that change nothing and acknowledgements of notifications travel
//! with the next record, or once a second. Images are made by an engine of their own, on a thread of
//! its own, from the files ([`images`]): the live engine never waits for one. `docs/operate/journal.md` is for
//! operators.

pub(crate) mod appender;
mod entry;
pub(crate) mod follower;
pub(crate) mod images;
pub(crate) mod opening;
pub(crate) mod outbox;
pub(crate) mod show;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use self::images::{Images, make_images};
use self::opening::{Opened, Recovery};
use corona_api::cluster as api;
use corona_config::JournalSettings;
use corona_journal::{Failed, Journal};
use corona_process::panics::blocking;

/// The journal that a cluster manager keeps.
#[derive(Debug)]
pub(super) struct KeptJournal {
    journal: Arc<Journal>,
    directory: PathBuf,
    settings: JournalSettings,
    recovery: Option<Recovery>,
    images: Images,
}

impl KeptJournal {
    pub(super) fn new(opened: Opened, settings: JournalSettings) -> KeptJournal {
        let Opened { journal, directory, recovered } = opened;
        let recovery = recovered.map(|resumed| resumed.facts);
        KeptJournal { journal, directory, settings, recovery, images: Images::default() }
    }

    /// The journal itself.
    pub(super) fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Makes images until `stop` becomes true.
    pub(super) async fn make_images(self: Arc<Self>, stop: watch::Receiver<bool>) {
        make_images(&self.journal, &self.images, self.settings.image_bytes, stop).await;
    }

    /// Waits until the journal fails.
    pub(super) async fn failed(&self) -> Failed {
        self.journal.failed().await
    }

    /// Makes everything durable, and ends.
    pub(super) async fn close(&self) -> Result<(), Failed> {
        let journal = self.journal.clone();
        blocking(move || journal.close()).await
    }

    /// What the API serves of it.
    pub(super) fn to_api(&self) -> api::JournalStatus {
        let status = self.journal.status();
        let files = files(&self.directory);
        api::JournalStatus {
            directory: self.directory.display().to_string(),
            sync: self.settings.sync.name().to_owned(),
            last_record: status.appended,
            committed_record: status.committed,
            durable_record: status.durable,
            bytes: files.bytes,
            tail_bytes: status.tail_bytes,
            pending_bytes: status.pending_bytes as u64,
            stalled_ms: ms(status.stalled),
            writes: status.writes,
            syncs: status.syncs,
            image_record: (status.image > 0).then_some(status.image),
            image_bytes: (status.image > 0).then_some(status.image_bytes),
            image_ms: files.image.and_then(since_epoch_ms),
            image_took_ms: self.images.took().map(ms),
            image_failure: self.images.failure(),
            recovery: self.recovery.as_ref().map(|recovery| api::JournalRecovery {
                took_ms: ms(recovery.took),
                image_record: recovery.found.image,
                records: recovery.found.records,
                torn_bytes: recovery.found.torn_bytes,
            }),
        }
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// What lies in the directory of a journal.
#[derive(Debug, Default)]
struct Files {
    bytes: u64,
    /// When the newest image was written.
    image: Option<SystemTime>,
}

/// A directory that cannot be read counts as empty: writing to it fails by itself.
fn files(directory: &Path) -> Files {
    let mut files = Files::default();
    let Ok(entries) = std::fs::read_dir(directory) else { return files };
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        files.bytes += metadata.len();
        if entry.path().extension().is_some_and(|ending| ending == "image") {
            files.image = files.image.max(metadata.modified().ok());
        }
    }
    files
}

fn since_epoch_ms(time: SystemTime) -> Option<i64> {
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}
