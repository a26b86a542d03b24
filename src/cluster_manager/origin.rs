//! The state from which a cluster manager starts: that of the journal, of the state file, or none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::clock::Clock;
use super::ha::Takeover;
use super::journal::KeptJournal;
use super::journal::opening::{self, Disk, Opened, outbox_of};
use super::journal::outbox::Outbox;
use super::names::Resolver;
use super::racks::Racks;
use super::recovery::recover;
use super::state_file;
use super::{StartError, hash_seed};
use corona_config::{ClusterManagerSettings, JournalSettings};
use corona_engine::{Engine, Input, Start};
use corona_model::settings::Hosts;
use corona_model::types::Millis;
use corona_process::panics::blocking;

/// The state from which a cluster manager starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// From the journal, or from nothing if that is empty. There must be no state file.
    Resume,
    /// From nothing; the journal is set aside. There must be no state file.
    Fresh,
    /// From the state file, which stays where it is; the journal is set aside.
    StateFile,
    /// From the state file if there is one, else as [`Beginning::Resume`]. The file is moved aside,
    /// and so is one that is written later when safe mode ends without a stop: no later start
    /// recovers from a state that is out of date by then.
    StateFileIfPresent,
    /// From the journal if it leads back to any state: it is never older than the state file, which is
    /// then moved aside. Else as [`Beginning::StateFileIfPresent`].
    JournalIfPresent,
}

impl Beginning {
    /// Whether a state file is moved aside when the state has been recovered or is out of date.
    pub(super) fn sets_state_file_aside(self) -> bool {
        matches!(self, Beginning::StateFileIfPresent | Beginning::JournalIfPresent)
    }
}

/// The state, and the time of the last input if it comes from the journal.
pub(super) struct RecoveredState {
    pub(super) engine: Engine,
    pub(super) outbox: Outbox,
    pub(super) clock: Clock,
    pub(super) last_input: Option<Millis>,
}

/// The state, and what was read to find it.
pub(super) struct Origin {
    pub(super) state: RecoveredState,
    pub(super) hosts: Hosts,
    pub(super) racks: Racks,
    pub(super) state_file: PathBuf,
    /// Whether a state file is moved aside that is written later.
    pub(super) sets_aside: bool,
    /// The ending under which the state file that is there is moved aside.
    pub(super) aside: Option<&'static str>,
    opened: Option<Opened>,
}

impl Origin {
    pub(super) async fn find(
        settings: &ClusterManagerSettings,
        beginning: Beginning,
        takeover: Option<&mut Takeover>,
        resolver: &Resolver,
        disk: &Disk,
    ) -> Result<Origin, StartError> {
        let goes_on = takeover.as_ref().is_some_and(|one| one.goes_on || one.opened.is_some());
        let copy = takeover.and_then(|takeover| takeover.opened.take());
        let beginning = if goes_on { Beginning::Resume } else { beginning };
        let state_file = absolute(&settings.state_file);
        let is_there = state_file.exists() && !goes_on;
        let (resumes, recovers) = match beginning {
            Beginning::Resume | Beginning::Fresh if is_there => {
                return Err(StartError::StateFileExists { path: state_file });
            }
            Beginning::Resume => (true, false),
            Beginning::Fresh => (false, false),
            Beginning::StateFile => (false, true),
            Beginning::StateFileIfPresent => (!is_there, is_there),
            Beginning::JournalIfPresent => (true, is_there),
        };
        let hosts = settings.host_files.load()?.hosts;
        tracing::info!(
            "Included hosts: {} Excluded hosts: {}",
            hosts.include.len(),
            hosts.exclude.len()
        );
        let racks = Racks::new(settings.topology.clone(), settings.racks.clone(), resolver);
        let mut opened = match &settings.journal.directory {
            Some(path) if copy.is_none() && resumes => {
                Some(open_journal(disk, absolute(path), &settings.journal).await?)
            }
            _ => copy,
        };
        let resumed = opened.as_mut().and_then(Opened::take_state);
        let recovers = recovers && resumed.is_none();
        let state = match resumed {
            Some((engine, outbox, now)) => {
                let last_input = Some(engine.now());
                RecoveredState { engine, outbox, clock: Clock::not_before(now), last_input }
            }
            None => {
                let clock = Clock::new();
                let (engine, outbox) = match recovers {
                    true => recovered(settings, &state_file, clock.now(), &hosts, &racks).await?,
                    false => (new_engine(settings, clock.now(), &hosts)?, Outbox::default()),
                };
                RecoveredState { engine, outbox, clock, last_input: None }
            }
        };
        let sets_aside = beginning.sets_state_file_aside();
        let aside = if recovers { state_file::RECOVERED } else { state_file::OUTDATED };
        let aside = (is_there && sets_aside).then_some(aside);
        Ok(Origin { state, hosts, racks, state_file, sets_aside, aside, opened })
    }

    /// Continues the journal that the state comes from. If the state comes from elsewhere, starts a journal: in the
    /// one that is open if that is empty, else in place of it, and the old one is set aside.
    pub(super) async fn keep_journal(
        &mut self,
        disk: &Disk,
        settings: &JournalSettings,
    ) -> Result<Option<Arc<KeptJournal>>, StartError> {
        let Some(path) = settings.directory.as_deref().map(absolute) else { return Ok(None) };
        let opened = match self.opened.take() {
            Some(opened) if self.state.last_input.is_some() => opened,
            empty => {
                let failed = |error| StartError::Journal { path: path.clone(), error };
                let first = opening::first_record(&self.state.engine, self.state.outbox.clone());
                let first = first.map_err(failed)?;
                let (disk, directory, options) = (disk.clone(), path.clone(), settings.clone());
                let started = blocking(move || match empty {
                    Some(opened) => opening::begin(opened, &first).map(|opened| (opened, None)),
                    None => opening::start_new(&disk, &directory, &options, &first),
                });
                let (opened, aside) = started.await.map_err(failed)?;
                match aside {
                    Some(aside) => tracing::info!("The old journal is now {}", aside.display()),
                    None => tracing::info!("Starting a journal in {}", path.display()),
                }
                opened
            }
        };
        Ok(Some(Arc::new(KeptJournal::new(opened, settings.clone()))))
    }
}

pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Opens the journal and goes through it.
async fn open_journal(
    disk: &Disk,
    path: PathBuf,
    settings: &JournalSettings,
) -> Result<Opened, StartError> {
    let (disk, directory, options) = (disk.clone(), path.clone(), settings.clone());
    let opened = blocking(move || opening::open(&disk, &directory, &options, hash_seed())).await;
    let opened = opened.map_err(|error| StartError::Journal { path: path.clone(), error })?;
    if let Some(resumed) = &opened.recovered {
        resumed.log(&path);
    }
    Ok(opened)
}

async fn recovered(
    settings: &ClusterManagerSettings,
    path: &Path,
    now: Millis,
    hosts: &Hosts,
    racks: &Racks,
) -> Result<(Engine, Outbox), StartError> {
    let (engine, undelivered) = recover(settings, path, now, hosts.clone(), racks)
        .await
        .map_err(|error| StartError::Recovery { path: path.to_owned(), error })?;
    Ok((engine, outbox_of(&undelivered)))
}

pub(super) fn new_engine(
    settings: &ClusterManagerSettings,
    now: Millis,
    hosts: &Hosts,
) -> Result<Engine, StartError> {
    tracing::info!("Starting Cluster Manager with clean state");
    let id_prefix = state_file::id_prefix(now).map_err(StartError::Clock)?;
    let start = Start { now, id_prefix, hash_seed: hash_seed() };
    let mut engine = Engine::new(settings.engine.clone(), start);
    // A fresh engine is not in safe mode and has no nodes: it refuses nothing, and nothing happens.
    let _ = engine.apply(now, Input::HostsChanged { hosts: hosts.clone() });
    Ok(engine)
}
