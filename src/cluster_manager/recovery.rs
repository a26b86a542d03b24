//! The start from the state file.
//!
//! Spec: cluster-manager/07 §5. The file is read and not changed; racks are looked up again; the
//! restored engine is in safe mode.

use std::fmt::Display;
use std::io;
use std::path::Path;

use thiserror::Error;

use super::hash_seed;
use super::racks::Racks;
use super::state_file::{self, SavedState, StateFileError};
use super::undelivered::Undelivered;
use corona_config::ClusterManagerSettings;
use corona_engine::Engine;
use corona_engine::snapshot::{EngineState, Recovery, RestoreError, Restored, Standing};
use corona_model::settings::Hosts;
use corona_model::types::Millis;

/// Oddities of a file that are logged one by one.
const TOLD: usize = 100;

/// Why a state file is of no use.
#[derive(Debug, Error)]
pub enum RecoveryError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] StateFileError),
    /// The state in it contradicts itself.
    #[error(transparent)]
    State(#[from] RestoreError),
    /// The racks of the hosts in it are not known.
    #[error("the racks of its hosts are not known: {0}")]
    Racks(String),
}

/// An engine restored from the file at `path`, and the pending notifications.
pub(super) async fn recover(
    settings: &ClusterManagerSettings,
    path: &Path,
    now: Millis,
    hosts: Hosts,
    racks: &Racks,
) -> Result<(Engine, Vec<Undelivered>), RecoveryError> {
    tracing::info!("Restoring state from {}", path.display());
    tracing::info!("Safe mode is now: ON");
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || state_file::read(&path, now)).await;
    let read = read.unwrap_or_else(|error| Err(io::Error::other(error).into()));
    let (SavedState { engine: state, undelivered }, oddities) = read?;
    let racks = racks.of_all(state.hosts()).await;
    let racks = racks.map_err(|error| RecoveryError::Racks(error.to_string()))?;
    log_recovered_state(&state, &undelivered);
    tell_first(&oddities);
    let recovery = Recovery { now, hash_seed: hash_seed(), hosts, racks };
    let Restored { engine, repairs } = Engine::restore(settings.engine.clone(), state, recovery)?;
    tell_first(&repairs);
    Ok((engine, undelivered))
}

fn log_recovered_state(state: &EngineState, undelivered: &[Undelivered]) {
    let (mut pending, mut granted, mut lost) = (0, 0, 0);
    for known in state.sessions.iter().flat_map(|session| &session.requests) {
        match known.standing {
            Standing::Pending => pending += 1,
            Standing::Granted { .. } => granted += 1,
            Standing::Lost => lost += 1,
        }
    }
    let calls: usize = undelivered.iter().map(|queue| queue.calls.len()).sum();
    tracing::info!(
        "Restored {} nodes and {} sessions with {granted} grants, {pending} pending and {lost} \
         lost requests, and {calls} notifications to be delivered",
        state.nodes.len(),
        state.sessions.len(),
    );
}

fn tell_first(oddities: &[impl Display]) {
    for oddity in oddities.iter().take(TOLD) {
        tracing::warn!("{oddity}");
    }
    if oddities.len() > TOLD {
        tracing::warn!("... and {} more of this kind", oddities.len() - TOLD);
    }
}
