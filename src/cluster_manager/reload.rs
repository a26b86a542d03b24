//! Reloads the scheduling files when they change, and keeps the state of the configuration.
//!
//! Spec: cluster-manager/06 §4.6. Both files are read together and applied together; a file with an
//! error changes nothing, and is reported once, not at each attempt.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::core::Core;
use corona_cluster_pages::ConfigStatus;
use corona_config::{FileStamp, Loaded, LoadedScheduling, Origin, Problem, SchedulingFiles};
use corona_engine::Input;
use corona_model::settings::Settings;

/// Asks for the scheduling files to be read again at once. A copy asks the same.
#[derive(Clone, Debug)]
pub struct ReloadRequest(Arc<Notify>);

impl ReloadRequest {
    /// Reads them soon, changed or not.
    pub fn send(&self) {
        self.0.notify_one();
    }
}

/// Looks after the scheduling files.
#[derive(Debug)]
pub(super) struct Reloader {
    files: SchedulingFiles,
    period: Duration,
    core: Arc<Core>,
    requested: Arc<Notify>,
    /// How the files looked when they were last read, well or not.
    stamps: Mutex<Vec<FileStamp>>,
    /// Warnings of the property files, which are read only at the start.
    start_warnings: Vec<String>,
    status: Mutex<ConfigStatus>,
}

impl Reloader {
    /// `loaded` is the configuration that the core was started with.
    pub(super) fn new(loaded: &Loaded, core: Arc<Core>) -> Reloader {
        let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
        let of_scheduling = |problem: &&Problem| match &problem.origin {
            Origin::File { path, .. } => {
                loaded.scheduling_files.iter().any(|stamp| *stamp.path == **path)
            }
            Origin::CommandLine | Origin::Default => false,
        };
        let start_warnings = loaded.warnings.iter().filter(|problem| !of_scheduling(problem));
        Reloader {
            files: loaded.settings.scheduling_files.clone(),
            period: loaded.settings.reload_period,
            core,
            requested: Arc::new(Notify::new()),
            stamps: Mutex::new(loaded.scheduling_files.clone()),
            start_warnings: start_warnings.map(ToString::to_string).collect(),
            status: Mutex::new(ConfigStatus {
                in_force: loaded.in_force.clone(),
                warnings,
                errors: Vec::new(),
                loaded_at: SystemTime::now(),
                reloads: 0,
                failures: 0,
            }),
        }
    }

    /// A way to ask for a reload.
    pub(super) fn request(&self) -> ReloadRequest {
        ReloadRequest(self.requested.clone())
    }

    /// The present state of the configuration.
    pub(super) fn status(&self) -> ConfigStatus {
        lock(&self.status).clone()
    }

    /// Looks at the files each period, and when asked, until `stop` becomes true.
    pub(super) async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        loop {
            let asked = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                () = self.requested.notified() => true,
                () = sleep(self.period) => false,
            };
            // Files may lie on a disk that hangs.
            let reloader = self.clone();
            let looked = tokio::task::spawn_blocking(move || reloader.look(asked)).await;
            if let Err(error) = looked {
                tracing::error!("Failed to reload config because of an unknown exception: {error}");
            }
        }
    }

    /// Takes the files over if they have changed, or in any case when asked.
    fn look(&self, asked: bool) {
        if asked {
            tracing::info!("Reloading the scheduling files on request");
        } else if !lock(&self.stamps).iter().any(FileStamp::has_changed) {
            return;
        }
        match self.files.load() {
            Ok(loaded) => self.take_over(loaded),
            Err(errors) => {
                let errors: Vec<String> = errors.errors().map(ToString::to_string).collect();
                self.refuse(errors);
            }
        }
    }

    fn take_over(&self, loaded: LoadedScheduling) {
        *lock(&self.stamps) = loaded.files;
        let mut settings = Settings::clone(&self.core.look(|engine, _| engine.settings().clone()));
        settings.scheduling = loaded.scheduling;
        settings.pools = loaded.pools;
        // Settings that were checked when they were read are not refused.
        let _ = self.core.apply(Input::SettingsChanged { settings: Box::new(settings) });
        let warnings = loaded.warnings.iter().map(ToString::to_string);
        for warning in warnings.clone() {
            tracing::warn!("{warning}");
        }
        tracing::info!("Scheduling files reloaded");
        let mut status = lock(&self.status);
        status.warnings = self.start_warnings.iter().cloned().chain(warnings).collect();
        status.errors.clear();
        status.loaded_at = SystemTime::now();
        status.reloads += 1;
    }

    /// Reports the errors, unless they are known already.
    fn refuse(&self, errors: Vec<String>) {
        let stamps = std::mem::take(&mut *lock(&self.stamps));
        *lock(&self.stamps) = stamps.into_iter().map(|stamp| FileStamp::of(&stamp.path)).collect();
        let mut status = lock(&self.status);
        if status.errors != errors {
            for error in &errors {
                tracing::error!("Failed to load the scheduling files: {error}");
            }
            status.failures += 1;
            status.errors = errors;
        }
    }
}

/// No panic happens while one of these locks is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clock::Clock;
    use crate::testing::Effects;
    use corona_cluster_pages::metrics::Metrics;
    use corona_engine::{Engine, Start};
    use corona_model::settings::SchedulingMode;
    use corona_model::types::Millis;
    use corona_net::testing::until;

    fn reloader(dir: &Path, period_ms: &str) -> Arc<Reloader> {
        let overrides = [("cm.cpu.to.resource.partitioning", "{\"1\":{\"MAP\":1}}")]
            .into_iter()
            .chain([("cm.config.reload.period.ms", period_ms)])
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect::<Vec<_>>();
        let loaded = corona_config::load(Some(dir), &overrides).unwrap();
        let start = Start { now: Millis(0), id_prefix: "2026".into(), hash_seed: 1 };
        let engine = Engine::new(loaded.settings.engine.clone(), start);
        let (effects, metrics) = (Arc::new(Effects::default()), Arc::<Metrics>::default());
        let core = Arc::new(Core::new(engine, Clock::new(), effects, metrics));
        Arc::new(Reloader::new(&loaded, core))
    }

    fn write(dir: &Path, mode: &str) {
        let text = format!(
            "<configuration><defaultSchedulingMode>{mode}</defaultSchedulingMode></configuration>"
        );
        std::fs::write(dir.join("corona.xml"), text).unwrap();
    }

    fn mode(reloader: &Reloader) -> SchedulingMode {
        reloader.core.look(|engine, _| engine.settings().scheduling.default_mode)
    }

    #[tokio::test]
    async fn changed_files_are_taken_over_and_broken_ones_are_told() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "FIFO");
        let reloader = reloader(dir.path(), "20");
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(reloader.clone().run(stopped));

        write(dir.path(), "FAIR");
        until("the change is in force", || mode(&reloader) == SchedulingMode::Fair).await;
        write(dir.path(), "BEST");
        until("the error is known", || !reloader.status().errors.is_empty()).await;
        assert!(reloader.status().errors[0].contains("corona.xml"));
        assert_eq!(mode(&reloader), SchedulingMode::Fair);
        write(dir.path(), "DEADLINE");
        until("the mended file is in force", || mode(&reloader) == SchedulingMode::Deadline).await;
        assert_eq!(reloader.status().errors, [""; 0]);
        stop.send_replace(true);
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_request_does_not_wait_for_the_period() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "FIFO");
        let reloader = reloader(dir.path(), "3600000");
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(reloader.clone().run(stopped));
        write(dir.path(), "FAIR");
        reloader.request().send();
        until("the change is in force", || mode(&reloader) == SchedulingMode::Fair).await;
        assert_eq!(reloader.status().failures, 0);
        stop.send_replace(true);
        task.await.unwrap();
    }
}
