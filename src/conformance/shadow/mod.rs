//! A second cluster manager that runs beside the one in service, sees the same messages, and
//! reports where its own answers and grants would differ.
//!
//! # How it works
//!
//! Clients talk to the primary through a [relay](super::relay), callbacks included. The shadow is a
//! listener of that relay: it reads from a bounded queue, on a thread of its own, so that nothing it
//! does delays a byte. Traffic that does not fit into the queue is left out; the shadow notices, forgets
//! everything, and restarts.
//!
//! * `stepper` is the shadow itself, a pure state machine: [`Event`]s and times in, findings out;
//! * `connections` cuts each connection into messages as they pass;
//! * `oracle` passes each call to a [`DryRun`](corona_cluster_manager::DryRun), which is this
//!   program's cluster manager without sockets, and its answer is kept until the primary's comes;
//! * `answers` compares the two, exactly, except where a row of the compatibility table allows a
//!   difference;
//! * `notices` matches the notifications of the primary with our own decisions, one after another;
//!   `grants` and `revocations` know when two of them are the same;
//! * `books` has the decisions of either side without a counterpart on the other side; `comparison`
//!   holds both sides together;
//! * `times` pairs the times of decisions that both sides made; `counts` knows how far their counts of a
//!   session's slots may differ while decisions are on their way;
//! * `ids` learns the primary's session ids, which the shadow uses as well;
//! * `stats` has the results; `text`, `json`, `html` and `metrics` are its forms;
//! * `driver` is the outermost layer, which reads the clock and asks others; `event_log` writes the
//!   events down and replays them.
//!
//! # How a difference does not become a thousand
//!
//! Two correct managers choose differently, and the next choices of each depend on its earlier
//! ones. So the shadow makes its own choice, compares, and then continues from the primary's: a
//! grant moves to the primary's node; a grant of ours that is in the way there, and that the
//! primary has not made, changes places with it or waits again; a grant that the primary does not
//! make within [`ShadowOptions::patience`] is reported and held back; a session that the primary
//! has ended ends. A decision that cannot be followed concerns one request only.
//!
//! Calls that were in flight at the same time may have been processed in either order. Decisions
//! shortly after such a crossing that differ only in order are counted as a free choice.
//!
//! # What it does not compare
//!
//! Sessions that began before the shadow, and decisions that depend on the slots that they hold;
//! `setSafeMode` and `persistState`, which act outside (it goes along with the safe mode that the
//! primary shows); sessions whose drivers could not be reached, which the primary ends when it
//! gives up. Everything skipped is counted by reason.
//!
//! # How it stays small
//!
//! Every table is bounded by the running sessions, by a number, or by a time: unconfirmed decisions
//! by the patience, releases and ended sessions by a minute and a number, differences by
//! [`stats::MAX_KEPT`]. More differences are only counted.

mod answers;
mod books;
mod comparison;
mod connections;
mod counts;
mod document;
mod driver;
mod event;
mod event_log;
mod grants;
mod http;
mod ids;
mod json;
pub(crate) mod metrics;
mod notices;
mod oracle;
#[cfg(test)]
mod recorded_tests;
mod revocations;
pub mod stats;
mod stepper;
#[cfg(test)]
mod tests;
mod times;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use document::{html, text};
pub use event::{Configuration, Event, Learnt, Want};
pub use event_log::{EventsError, replay_events};
pub use http::ShadowPages;
pub use json::json;
pub use stats::Stats;
pub use stepper::Stepper;

use self::driver::{ShadowDriver, SharedStepper};
use self::event_log::EventLog;
use crate::relay::FeedEntries;
use corona_cluster_manager::StartError;
use corona_config::{ConfigErrors, Loaded};
use corona_model::types::Millis;

/// How to shadow.
#[derive(Clone, Debug)]
pub struct ShadowOptions {
    /// The primary, as `HOST:PORT`. It is asked for its sessions, nothing else.
    pub primary: String,
    /// How much later than this program the primary may report a grant or a revocation.
    pub patience: Duration,
    /// How much the times of decisions that both make may differ.
    pub time_tolerance: Duration,
}

/// Reads the primary's configuration again, or returns the problem with it.
pub type ReadConfiguration = Box<dyn Fn() -> Result<Loaded, String> + Send>;

/// A file in which the events of a run are kept.
#[derive(Debug)]
pub struct KeepEvents {
    /// The file, which is empty.
    pub file: File,
    /// How large it may become, roughly.
    pub max_bytes: u64,
}

/// Why there is no shadow.
#[derive(Debug, thiserror::Error)]
pub enum ShadowError {
    /// The cluster manager cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The host files cannot be read.
    #[error(transparent)]
    Configuration(#[from] ConfigErrors),
    /// The system provides no thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The file of events cannot be written.
    #[error("cannot write the events: {0}")]
    Events(io::Error),
}

/// A shadow at work.
#[derive(Debug)]
pub struct Shadow {
    shared: Arc<SharedStepper>,
    thread: JoinHandle<()>,
}

impl Shadow {
    /// Starts with the primary's configuration, which is read again whenever the shadow restarts,
    /// since the primary may have been started with another one. `entries` are the relayed data.
    ///
    /// # Errors
    /// The host files cannot be read, the clock is wrong, the events cannot be written, or there is no
    /// thread.
    pub fn start(
        loaded: Loaded,
        read: ReadConfiguration,
        options: ShadowOptions,
        entries: FeedEntries,
        keep: Option<KeepEvents>,
    ) -> Result<Shadow, ShadowError> {
        let (started, epoch) = (entries.started(), epoch(entries.started()));
        let configuration = Configuration::read(&loaded)?;
        let log = keep.map(|KeepEvents { file, max_bytes }| {
            EventLog::start(file, max_bytes, &options, &configuration, epoch)
        });
        let log = log.transpose().map_err(ShadowError::Events)?;
        let stepper = Stepper::new(configuration, &options, epoch)?;
        let shared = Arc::new(SharedStepper::new(stepper, started));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ShadowError::Thread)?;
        let thread = thread::Builder::new().name("shadow".to_owned());
        let driven = shared.clone();
        let run = move || {
            runtime.block_on(async {
                ShadowDriver::new(driven, &loaded, read, options, log).run(entries).await;
            });
        };
        let thread = thread.spawn(run).map_err(ShadowError::Thread)?;
        Ok(Shadow { shared, thread })
    }

    /// The results so far. Copies are the same.
    pub fn stats(&self) -> Watched {
        Watched(self.shared.clone())
    }

    /// Waits until all that passed has been looked at, which needs the end of the relay. Blocks the
    /// thread. False when the shadow failed.
    pub fn finish(self) -> bool {
        self.thread.join().is_ok()
    }
}

/// The time since the Unix epoch at an instant.
fn epoch(at: Instant) -> Millis {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let then = now.saturating_sub(at.elapsed());
    Millis(i64::try_from(then.as_millis()).unwrap_or(i64::MAX))
}

/// The results of a shadow at work.
#[derive(Clone, Debug)]
pub struct Watched(Arc<SharedStepper>);

impl Watched {
    /// The results now.
    pub fn now(&self) -> Stats {
        self.0.stats()
    }
}
