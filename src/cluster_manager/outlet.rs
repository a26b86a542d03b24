//! The receiver of the engine's effects: the interface between the [`Core`](super::core::Core) and
//! everything outside. The core does not know whether sessions are really notified.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::arrivals::Arrivals;
use super::commits::Commits;
use super::notifier::Wake;
use corona_engine::{Engine, Input, Notification, Record, Refusal, Reply};
use corona_model::types::{Address, Millis};

/// Receives inputs and their effects.
///
/// All functions but the last three are called while the engine is locked, in the order in which the
/// engine decided. They must not wait for anything.
pub(super) trait Outlet: fmt::Debug + Send + Sync {
    /// How far records are committed. No consequence of a record may be sent before.
    fn commits(&self) -> Commits {
        Commits::everything()
    }

    /// Whether the next process resumes from the last input that was applied.
    fn is_recorded(&self) -> bool {
        false
    }

    /// An input is about to be applied.
    fn before(&self, _now: Millis, _input: &Input, _engine: &Engine) {}

    /// That input was applied, and its effects follow. Returns the number of the record that must be
    /// committed before they leave; 0 for none.
    fn after(&self, _reply: &Result<Reply, Refusal>) -> u64 {
        0
    }

    /// Appends entries that wait for a later record. Called about once a second. Returns the number of
    /// the record for [`Outlet::write`]; 0 for none.
    fn flush(&self) -> u64 {
        0
    }

    /// Notifies a session, after all earlier notifications. If it cannot be sent yet, the returned task
    /// is woken after [`Outlet::write`].
    fn notify(&self, handle: Arc<str>, to: Address, notification: Notification) -> Option<Wake>;

    /// Drops the pending notifications of a session, which has ended.
    fn forget_session(&self, handle: &Arc<str>);

    /// Starts to deliver notifications after a pause.
    fn resume_notifications(&self);

    /// Handles an event at `now`. `arrivals` has the instants of the last inputs.
    fn record(&self, now: Millis, record: &Record, arrivals: &Arrivals);

    /// Has the journal written up to this record; 0 for none. The engine is not locked any more.
    fn write(&self, _record: u64) {}

    /// Handles all records of an input. The engine is not locked any more.
    fn records(&self, records: &[Record]);

    /// Handles a scheduling pass that took so long, and of its records. The engine is not locked
    /// any more; [`Outlet::records`] was called for the same records.
    fn pass(&self, records: &[Record], took: Duration);
}
