//! `persistState`: one moment of the engine and of the notifier's queues, written down.
//!
//! Spec: cluster-manager/02 §3.18, 07 §7.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::safe_mode::SafeModeSwitch;
use super::state_file;

/// How long sessions that are being told something may take to answer.
const SETTLE: Duration = Duration::from_secs(5);

/// Writes the state file.
#[derive(Debug)]
pub(super) struct Persist {
    pub(super) core: Arc<Core>,
    pub(super) safe_mode: Arc<SafeModeSwitch>,
    pub(super) path: PathBuf,
    pub(super) compress: bool,
}

impl Persist {
    /// Returns whether the state is in the file. To be spawned, so that it comes to its end even if
    /// the caller does not wait for it.
    ///
    /// Sessions are told nothing from before the moment that is written until safe mode ends: what
    /// they were told in between would be told again by a cluster manager that goes on from the
    /// file.
    pub(super) async fn run(self: Arc<Self>) -> bool {
        let _unchanged = self.safe_mode.hold().await;
        if !self.core.look(|engine, _| engine.safe_mode()) {
            tracing::info!("Cannot persist state because ClusterManager is not in Safe Mode");
            return false;
        }
        let notifier = self.core.notifier();
        notifier.pause();
        notifier.settle(SETTLE).await;
        let this = self.clone();
        let written = tokio::task::spawn_blocking(move || {
            let state = this.core.save();
            state_file::write(&this.path, this.compress, &state)
        });
        let problem = match written.await {
            Ok(Ok(())) => {
                tracing::info!("Persisted the state to {}", self.path.display());
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::error!("Could not persist the state: {}: {problem}", self.path.display());
        notifier.resume();
        false
    }
}
