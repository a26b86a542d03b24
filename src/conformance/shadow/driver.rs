//! The outermost layer of a shadow at work: it reads the clock, takes the relayed data, performs
//! the stepper's look-ups, and writes the events to a file if requested.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::event::{Configuration, Event, Learnt, Want};
use super::event_log::EventLog;
use super::stats::Stats;
use super::stepper::Stepper;
use super::{ReadConfiguration, ShadowOptions};
use crate::recording::Unrecorded;
use crate::relay::FeedEntries;
use crate::report::json::us;
use corona_cluster_manager::Lookups;
use corona_config::{FileStamp, Loaded, SchedulingFiles};
use corona_model::settings::Settings;
use corona_process::panics::{Panic, caught, spawn_detached};
use corona_wire::calls::ClusterManager;
use corona_wire::client::{Client, ClientOptions};

/// How long it rests after a panic, which may come again.
const REST: Duration = Duration::from_secs(1);
/// How often the stepper learns that nothing happens.
const IDLE: Duration = Duration::from_millis(100);
/// How long the primary may take to list its sessions.
const ASK_TIMEOUT: Duration = Duration::from_secs(3);

/// The stepper, and its lag.
#[derive(Debug)]
pub(super) struct SharedStepper {
    stepper: Mutex<Stepper>,
    started: Instant,
    lag_us: AtomicU64,
    worst_lag_us: AtomicU64,
    /// How long the run has lasted, once it is over.
    ran_for_us: AtomicU64,
}

impl SharedStepper {
    pub(super) fn new(stepper: Stepper, started: Instant) -> SharedStepper {
        SharedStepper {
            stepper: Mutex::new(stepper),
            started,
            lag_us: AtomicU64::new(0),
            worst_lag_us: AtomicU64::new(0),
            ran_for_us: AtomicU64::new(u64::MAX),
        }
    }

    /// The results so far.
    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.stepper().stats().clone();
        stats.ran_for = match self.ran_for_us.load(Ordering::Relaxed) {
            u64::MAX => self.started.elapsed(),
            ran_for => Duration::from_micros(ran_for),
        };
        stats.lag = Duration::from_micros(self.lag_us.load(Ordering::Relaxed));
        stats.worst_lag = Duration::from_micros(self.worst_lag_us.load(Ordering::Relaxed));
        stats
    }

    fn note_lag(&self, lag: Duration) {
        let lag = us(lag);
        self.lag_us.store(lag, Ordering::Relaxed);
        self.worst_lag_us.fetch_max(lag, Ordering::Relaxed);
    }

    /// After a panic the stepper restarts.
    fn stepper(&self) -> MutexGuard<'_, Stepper> {
        self.stepper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A shadow at work.
pub(super) struct ShadowDriver {
    shared: Arc<SharedStepper>,
    options: ShadowOptions,
    read: ReadConfiguration,
    lookups: Lookups,
    watcher: Watcher,
    log: Option<EventLog<File>>,
    /// The time of the last event, in whole microseconds.
    now: Duration,
    left_out: Unrecorded,
}

impl ShadowDriver {
    /// Needs a runtime around it.
    pub(super) fn new(
        shared: Arc<SharedStepper>,
        loaded: &Loaded,
        read: ReadConfiguration,
        options: ShadowOptions,
        log: Option<EventLog<File>>,
    ) -> ShadowDriver {
        ShadowDriver {
            shared,
            options,
            read,
            lookups: Lookups::new(&loaded.settings),
            watcher: Watcher::start(loaded),
            log,
            now: Duration::ZERO,
            left_out: Unrecorded::default(),
        }
    }

    /// Runs until nothing more will come.
    pub(super) async fn run(mut self, mut entries: FeedEntries) {
        loop {
            self.satisfy().await;
            let due = self.shared.started.checked_add(self.shared.stepper().due());
            let idle = Instant::now() + IDLE;
            let wake = due.map_or(idle, |due| due.min(idle));
            let (at, event) = tokio::select! {
                biased;
                entry = entries.next() => {
                    let Some(entry) = entry else { break };
                    self.shared.note_lag(self.shared.started.elapsed().saturating_sub(entry.at));
                    (entry.at, Event::Passed(entry.connection, entry.record))
                }
                settings = self.watcher.changed() => {
                    (self.now, Event::Learnt(Learnt::Settings(settings)))
                }
                () = tokio::time::sleep_until(wake.into()) => {
                    self.shared.note_lag(Duration::ZERO);
                    (self.shared.started.elapsed(), Event::Learnt(Learnt::Idle))
                }
            };
            self.step(at, event).await;
            let left_out = entries.left_out();
            if left_out != self.left_out {
                self.satisfy().await;
                self.left_out = left_out;
                self.step(self.now, Event::Learnt(Learnt::LeftOut(left_out))).await;
            }
        }
        self.step(self.shared.started.elapsed(), Event::Learnt(Learnt::End)).await;
        self.satisfy().await;
        self.shared.ran_for_us.store(us(self.now), Ordering::Relaxed);
        if let Some(log) = &mut self.log {
            log.finish(self.now, self.left_out);
        }
    }

    /// Performs the stepper's look-ups until none is left.
    async fn satisfy(&mut self) {
        loop {
            let Some(want) = self.shared.stepper().wants().cloned() else { return };
            let found = caught(self.find(want)).await;
            let learnt = found.unwrap_or_else(|panic| panicked(&panic));
            let is_panic = matches!(learnt, Learnt::Panicked(_));
            self.step(self.now, Event::Learnt(learnt)).await;
            if is_panic {
                tokio::time::sleep(REST).await;
            }
        }
    }

    /// Something happens. A panic on the way is a difference.
    async fn step(&mut self, at: Duration, event: Event) {
        self.now = self.now.max(Duration::from_micros(us(at)));
        if let Some(log) = &mut self.log {
            log.write(self.now, &event);
        }
        let (shared, now) = (self.shared.clone(), self.now);
        let stepped = catch_unwind(AssertUnwindSafe(|| shared.stepper().step(now, event)));
        match stepped {
            Ok(findings) => {
                for finding in findings.iter().filter(|finding| finding.rule.is_none()) {
                    tracing::debug!("different: {}", finding.place);
                }
            }
            Err(panic) => {
                let event = Event::Learnt(panicked(&Panic::of(&*panic)));
                if let Some(log) = &mut self.log {
                    log.write(self.now, &event);
                }
                self.shared.stepper().step(self.now, event);
                tokio::time::sleep(REST).await;
            }
        }
    }

    async fn find(&mut self, want: Want) -> Learnt {
        match want {
            Want::Sessions => Learnt::Sessions(self.ask_primary().await),
            Want::Lookup(lookup) => Learnt::Found(self.lookups.find(lookup).await),
            Want::Configuration => Learnt::Configuration(self.read_configuration()),
        }
    }

    fn read_configuration(&mut self) -> Result<Box<Configuration>, String> {
        let loaded = (self.read)()?;
        let configuration = Configuration::read(&loaded).map_err(|errors| errors.to_string())?;
        self.lookups = Lookups::new(&loaded.settings);
        self.watcher = Watcher::start(&loaded);
        Ok(Box::new(configuration))
    }

    /// Asks the primary which sessions run.
    async fn ask_primary(&self) -> Result<Vec<String>, String> {
        let options = ClientOptions {
            connect_timeout: ASK_TIMEOUT,
            call_timeout: ASK_TIMEOUT,
            ..ClientOptions::default()
        };
        let connected = Client::<ClusterManager>::connect(&*self.options.primary, options).await;
        let sessions = match connected {
            Ok(mut client) => client.get_sessions().await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = &sessions {
            tracing::warn!("cannot list the primary's sessions: {error}");
        }
        Ok(sessions?.into_iter().map(|session| session.handle).collect())
    }
}

fn panicked(panic: &Panic) -> Learnt {
    tracing::error!(%panic, "the shadow panicked; this is a bug");
    Learnt::Panicked(panic.to_string())
}

/// Watches the scheduling files for changes, as the cluster manager does.
struct Watcher {
    changes: mpsc::Receiver<Box<Settings>>,
    task: JoinHandle<()>,
}

impl Watcher {
    fn start(loaded: &Loaded) -> Watcher {
        let (sender, changes) = mpsc::channel(1);
        let settings = &loaded.settings;
        let watching = watch(
            settings.scheduling_files.clone(),
            loaded.scheduling_files.clone(),
            settings.reload_period,
            settings.engine.clone(),
            sender,
        );
        let task = spawn_detached("the watcher of the scheduling files", watching);
        Watcher { changes, task }
    }

    /// The settings after the next change. The future may be dropped before it is done.
    async fn changed(&mut self) -> Box<Settings> {
        match self.changes.recv().await {
            Some(settings) => settings,
            // The task has panicked, and watches no longer.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(
    files: SchedulingFiles,
    mut stamps: Vec<FileStamp>,
    period: Duration,
    mut settings: Settings,
    changes: mpsc::Sender<Box<Settings>>,
) {
    loop {
        tokio::time::sleep(period).await;
        let (look_at, seen) = (files.clone(), stamps.clone());
        // Files may lie on a disk that hangs.
        let looked = tokio::task::spawn_blocking(move || {
            seen.iter().any(FileStamp::has_changed).then(|| look_at.load())
        });
        match looked.await {
            Ok(Some(Ok(loaded))) => {
                stamps = loaded.files;
                settings.scheduling = loaded.scheduling;
                settings.pools = loaded.pools;
                if changes.send(Box::new(settings.clone())).await.is_err() {
                    return;
                }
            }
            Ok(Some(Err(errors))) => {
                stamps = stamps.iter().map(|stamp| FileStamp::of(&stamp.path)).collect();
                for error in errors.errors() {
                    tracing::error!("Failed to load the scheduling files: {error}");
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!("cannot check the scheduling files for changes, retrying: {error}")
            }
        }
    }
}
