//! `persistState`: one moment of the engine and of the notifier's queues, written to the state file.
//!
//! Spec: cluster-manager/02 §3.18, 07 §7.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thiserror::Error;

use super::StartError;
use super::core::Core;
use super::notifier::Notifier;
use super::safe_mode::SafeModeSwitch;
use super::state_file::{self, SavedState};
use corona_api::cluster as api;

/// How long deliveries in flight may take to be acknowledged.
const SETTLE: Duration = Duration::from_secs(5);

/// Writes the state file.
#[derive(Debug)]
pub(super) struct Persist {
    core: Arc<Core>,
    notifier: Arc<Notifier>,
    safe_mode: Arc<SafeModeSwitch>,
    path: PathBuf,
    compress: bool,
    /// Whether a file is set aside when safe mode ends, so that no later start recovers from it.
    sets_aside: bool,
    /// The file as it was when it was last written, or when the process started.
    saved: Mutex<Option<Saved>>,
}

#[derive(Clone, Copy, Debug)]
struct Saved {
    modified: SystemTime,
    bytes: u64,
}

/// Why the state was not written.
#[derive(Debug, Error)]
pub(super) enum PersistError {
    #[error("safe mode is off; turn it on first")]
    NotInSafeMode,
    #[error("cannot write the state file {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
}

impl Persist {
    /// For the file at `path`. Must be made where waiting for a disk does no harm.
    pub(super) fn new(
        core: Arc<Core>,
        notifier: Arc<Notifier>,
        safe_mode: Arc<SafeModeSwitch>,
        path: PathBuf,
        compress: bool,
        sets_aside: bool,
    ) -> Persist {
        let saved = Mutex::new(saved(&path));
        Persist { core, notifier, safe_mode, path, compress, sets_aside, saved }
    }

    /// Moves the file aside, from which the state has come, or which is older than it.
    pub(super) fn set_aside(&self, ending: &str) -> Result<(), StartError> {
        let aside = state_file::set_aside(&self.path, ending)
            .map_err(|error| StartError::SetAside { path: self.path.clone(), error })?;
        *self.saved() = None;
        tracing::info!("The state file is now {}", aside.display());
        Ok(())
    }

    /// To be called when safe mode has ended: the written state is then out of date.
    pub(super) async fn safe_mode_ended(self: Arc<Self>) {
        if !self.sets_aside {
            return;
        }
        let _unchanged = self.safe_mode.hold().await;
        if self.core.look(|engine, _| engine.safe_mode()) {
            return;
        }
        let path = self.path.clone();
        let moved = tokio::task::spawn_blocking(move || match path.exists() {
            true => state_file::set_aside(&path, state_file::OUTDATED).map(Some),
            false => Ok(None),
        });
        match moved.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(None) => {}
            Ok(Some(aside)) => {
                *self.saved() = None;
                tracing::info!("The state file is out of date; renamed to {}", aside.display());
            }
            Err(error) => tracing::error!(
                "State file {} is out of date and cannot be renamed: {error}; move it away before the next start",
                self.path.display()
            ),
        }
    }

    /// Writes the state. To be spawned, so that it runs to its end even if the caller does not wait
    /// for it.
    ///
    /// Sessions receive nothing from before the moment that is written until safe mode ends: whatever
    /// they received in between, a cluster manager that resumes from the file would send again.
    pub(super) async fn run(self: Arc<Self>) -> Result<(), PersistError> {
        let _unchanged = self.safe_mode.hold().await;
        if !self.core.look(|engine, _| engine.safe_mode()) {
            tracing::info!("Cannot persist state because ClusterManager is not in Safe Mode");
            return Err(PersistError::NotInSafeMode);
        }
        self.notifier.pause();
        self.notifier.settle(SETTLE).await;
        let this = self.clone();
        let written = tokio::task::spawn_blocking(move || {
            // Nothing is added to the queues while the engine is locked.
            let state = this.core.look(|engine, _| SavedState {
                engine: engine.handover(),
                undelivered: this.notifier.snapshot(),
            });
            state_file::write(&this.path, this.compress, &state)?;
            *this.saved() = saved(&this.path);
            Ok(())
        });
        match written.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(()) => {
                tracing::info!("Persisted the state to {}", self.path.display());
                Ok(())
            }
            Err(error) => {
                tracing::error!("Could not persist the state: {}: {error}", self.path.display());
                self.notifier.resume();
                Err(PersistError::Write { path: self.path.clone(), error })
            }
        }
    }

    /// The API's representation of the file.
    pub(super) fn to_api(&self) -> api::StateFileStatus {
        let saved = *self.saved();
        let since_epoch = |saved: Saved| saved.modified.duration_since(UNIX_EPOCH).ok();
        let modified_ms = saved.and_then(since_epoch).map(|since| since.as_millis());
        api::StateFileStatus {
            path: self.path.display().to_string(),
            saved_ms: modified_ms.and_then(|ms| i64::try_from(ms).ok()),
            bytes: saved.map(|saved| saved.bytes),
        }
    }

    fn saved(&self) -> std::sync::MutexGuard<'_, Option<Saved>> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file as it is now; `None` where there is none.
fn saved(path: &Path) -> Option<Saved> {
    let metadata = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some(Saved { modified: metadata.modified().ok()?, bytes: metadata.len() })
}
