//! A second cluster manager that runs beside the one in service, sees what that one sees, and says
//! where it would have answered or granted otherwise.
//!
//! # How it works
//!
//! Clients talk to the primary through a [relay](super::relay), callbacks included. The shadow is a
//! listener of that relay: it reads from a bounded queue, on a thread of its own, so that nothing it
//! does holds up a byte. What does not fit into the queue is left out; the shadow is told, forgets
//! all it knows, and begins anew.
//!
//! * `line` cuts each connection into messages as they pass;
//! * `run` gives each call to a [`DryRun`](corona_cluster_manager::DryRun), which is this program's
//!   cluster manager without ends, and keeps its answer until the primary's comes;
//! * `answers` compares the two, exactly but for what a row of the compatibility table allows;
//! * `notices` matches what sessions are told by the primary with what they would have been told, one
//!   after the other; `grants` and `revocations` know what makes two of them the same;
//! * `books` is what either side has decided and the other has not yet;
//! * `anew` forgets all and begins again, with sessions that run and are not followed;
//! * `ids` learns the primary's session ids, by which the shadow goes as well;
//! * `figures` is what has come of it; `text`, `json`, `html` and `metrics` are its forms.
//!
//! # How a difference does not become a thousand
//!
//! Two correct managers choose differently, and what each can do next depends on what it chose. So
//! the shadow makes its own choice, compares, and then goes on from the primary's: a grant moves to the
//! primary's node; a grant of ours that is in the way there, and that the primary has not made,
//! changes places with it or waits again; what the primary does not grant within
//! [`ShadowOptions::patience`] is reported and held back; a session that the primary has ended ends.
//! What cannot be followed concerns the one request.
//!
//! Calls that were under way at the same time may have been processed in either order. Decisions
//! shortly after such a crossing that differ only in order are counted as a free choice.
//!
//! # What it does not compare
//!
//! Sessions that began before the shadow, and what depends on the slots that they hold; `setSafeMode`
//! and `persistState`, which act outside (it goes along with the safe mode that the primary shows);
//! sessions whose drivers could not be reached, which the primary ends when it gives up. All of it is
//! counted by reason.
//!
//! # How it stays small
//!
//! Every table is bounded by what runs now, by a number, or by a time: unconfirmed decisions by the
//! patience, what was given back and which sessions ended by a minute and a number, differences by
//! [`figures::MAX_KEPT`]. What is beyond is counted.

mod anew;
mod answers;
mod books;
pub mod figures;
mod grants;
mod html;
mod http;
mod ids;
mod json;
mod line;
pub(crate) mod metrics;
mod notices;
mod revocations;
mod run;
#[cfg(test)]
mod tests;
mod text;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use figures::Figures;
pub use html::html;
pub use http::Pages;
pub use json::json;
pub use text::text;

use self::run::Run;
use crate::relay::Entries;
use corona_cluster_manager::StartError;
use corona_config::Loaded;

/// How to shadow.
#[derive(Clone, Debug)]
pub struct ShadowOptions {
    /// The primary, as `HOST:PORT`. It is asked for its sessions, nothing else.
    pub primary: String,
    /// How much later than this program the primary may tell what it grants or revokes.
    pub patience: Duration,
}

/// Reads the primary's configuration again, or says what is wrong with it.
pub type ReadConfiguration = Box<dyn Fn() -> Result<Loaded, String> + Send>;

/// Why there is no shadow.
#[derive(Debug, thiserror::Error)]
pub enum ShadowError {
    /// The cluster manager cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// There is no thread for it.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

/// A shadow at work.
#[derive(Debug)]
pub struct Shadow {
    figures: Arc<Mutex<Figures>>,
    thread: JoinHandle<()>,
}

impl Shadow {
    /// Starts with the primary's configuration, which is read again whenever the shadow begins anew,
    /// since the primary may have been started with another one. `entries` is what passes the relay.
    ///
    /// Errors: the host files cannot be read, the clock is wrong, or there is no thread.
    pub fn start(
        loaded: Loaded,
        configuration: ReadConfiguration,
        options: ShadowOptions,
        entries: Entries,
    ) -> Result<Shadow, ShadowError> {
        let figures = Arc::new(Mutex::new(Figures::new(&options.primary)));
        let run = Run::new(loaded, configuration, options, figures.clone())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("shadow".to_owned());
        let thread = thread.spawn(move || runtime.block_on(run.run(entries)))?;
        Ok(Shadow { figures, thread })
    }

    /// What it has found so far. The copies are the same.
    pub fn figures(&self) -> Watched {
        Watched(self.figures.clone())
    }

    /// Waits until all that passed has been looked at, which needs the end of the relay. Blocks the
    /// thread. False when the shadow broke down.
    pub fn finish(self) -> bool {
        self.thread.join().is_ok()
    }
}

/// The figures of a shadow at work.
#[derive(Clone, Debug)]
pub struct Watched(Arc<Mutex<Figures>>);

impl Watched {
    /// As they are now.
    pub fn now(&self) -> Figures {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
