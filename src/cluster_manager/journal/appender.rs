//! The outlet of a cluster manager that keeps a journal: every input that changes something is
//! appended before anything of what it leads to can leave.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::entry::encode_step;
use crate::arrivals::Arrivals;
use crate::commits::Commits;
use crate::live::Live;
use crate::notifier::{JournalPosition, Wake};
use crate::outlet::Outlet;
use corona_engine::{Engine, Input, Notification, Record, Refusal, Reply};
use corona_journal::Journal;
use corona_model::types::{Address, Millis};

/// Heartbeats that are noted before they are written, at most.
const HEARD_AT_ONCE: usize = 4096;

/// The last notification that each session has acknowledged since that was last written.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged(Mutex<HashMap<Arc<str>, u64>>);

impl Acknowledged {
    /// A session has acknowledged its notifications up to this serial number.
    pub(crate) fn note(&self, handle: &Arc<str>, serial: u64) {
        let mut all = self.all();
        match all.get_mut(handle) {
            Some(last) => *last = serial.max(*last),
            None => drop(all.insert(handle.clone(), serial)),
        }
    }

    fn take(&self) -> Vec<(Arc<str>, u64)> {
        let mut all = self.all();
        // A map without entries keeps its memory.
        let mut taken: Vec<_> = all.drain().collect();
        drop(all);
        taken.sort_unstable();
        taken
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Arc<str>, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the journal, and hands everything on to the outlet that notifies.
pub(crate) struct Journaled {
    live: Live,
    journal: Arc<Journal>,
    commits: Commits,
    acknowledged: Arc<Acknowledged>,
    /// Threads that have applied an input may write its record themselves.
    writes: bool,
    pending: Mutex<Pending>,
}

/// What is to be written with the next record. The engine's lock is held whenever it is used.
#[derive(Debug, Default)]
struct Pending {
    heard: Vec<(Millis, Arc<str>)>,
    acknowledged: Vec<(Arc<str>, u64)>,
    /// The record of the input that is being applied.
    record: Vec<u8>,
    /// How that input counts.
    kind: Kind,
    /// The number of the last record.
    number: u64,
    /// The serial number of the last notification.
    serial: u64,
}

/// How an input counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// It is written if it changes something.
    #[default]
    Written,
    /// A heartbeat that is written with a later record.
    Heard,
}

impl std::fmt::Debug for Journaled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journaled").field("journal", &self.journal).finish_non_exhaustive()
    }
}

impl Journaled {
    /// `commits` is how far replies may leave, `serial` the serial number of the last notification so far.
    /// Within a runtime of several threads these write records themselves: one that is blocked by the
    /// disk leaves the others.
    pub(crate) fn new(
        live: Live,
        journal: Arc<Journal>,
        commits: Commits,
        acknowledged: Arc<Acknowledged>,
        serial: u64,
    ) -> Journaled {
        let number = journal.status().appended;
        let pending = Mutex::new(Pending { number, serial, ..Pending::default() });
        let runtime = tokio::runtime::Handle::try_current();
        let writes = runtime.is_ok_and(|runtime| runtime.metrics().num_workers() > 1);
        Journaled { live, journal, commits, acknowledged, writes, pending }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes the record of an input with all that waits to be written.
    fn encode(&self, pending: &mut Pending, input: Option<(Millis, &Input)>) {
        pending.acknowledged.extend(self.acknowledged.take());
        let Pending { heard, acknowledged, record, .. } = pending;
        // All inputs can be encoded: a test goes through them.
        *record =
            encode_step(std::mem::take(record), heard, acknowledged, input).unwrap_or_default();
    }

    /// Appends the record that was encoded. `has_write` is whether [`Outlet::write`] follows. After a failure of the journal nothing is committed any
    /// more, so that nothing leaves, and the process ends.
    fn append(&self, pending: &mut Pending, has_write: bool) {
        let appended = match self.writes && has_write {
            true => self.journal.append_unwritten(&pending.record),
            false => self.journal.append(&pending.record),
        };
        match appended {
            Ok(number) => pending.number = number,
            Err(_) => pending.number = u64::MAX,
        }
        pending.heard.clear();
        pending.acknowledged.clear();
    }
}

impl Outlet for Journaled {
    fn commits(&self) -> Commits {
        self.commits.clone()
    }

    fn is_recorded(&self) -> bool {
        true
    }

    fn before(&self, now: Millis, input: &Input, engine: &Engine) {
        let mut pending = self.pending();
        pending.kind = Kind::Written;
        if let Input::HeartbeatNode { report, .. } = input
            && engine.repeats_last_report(report)
        {
            pending.kind = Kind::Heard;
            pending.heard.push((now, report.name.clone()));
            if pending.heard.len() >= HEARD_AT_ONCE {
                self.encode(&mut pending, None);
                self.append(&mut pending, false);
            }
            return;
        }
        self.encode(&mut pending, Some((now, input)));
    }

    fn after(&self, reply: &Result<Reply, Refusal>) -> u64 {
        let mut pending = self.pending();
        if pending.kind == Kind::Heard {
            // Nothing follows from it that a crash could contradict.
            return 0;
        }
        if !reply.as_ref().is_err_and(changes_nothing) {
            self.append(&mut pending, true);
        }
        pending.number
    }

    fn notify(&self, handle: Arc<str>, to: Address, notification: Notification) -> Option<Wake> {
        let mut pending = self.pending();
        pending.serial += 1;
        let place = JournalPosition { record: pending.number, serial: pending.serial };
        drop(pending);
        Some(self.live.notify_from(place, handle, to, notification))
    }

    fn forget_session(&self, handle: &Arc<str>) {
        self.live.forget_session(handle);
    }

    fn resume_notifications(&self) {
        self.live.resume_notifications();
    }

    fn record(&self, now: Millis, record: &Record, arrivals: &Arrivals) {
        let number = self.pending().number;
        self.live.record_from(number, now, record, arrivals);
    }

    fn records(&self, records: &[Record]) {
        self.live.records(records);
    }

    fn pass(&self, records: &[Record], took: Duration) {
        self.live.pass(records, took);
    }

    fn flush(&self) -> u64 {
        let mut pending = self.pending();
        self.encode(&mut pending, None);
        if pending.heard.is_empty() && pending.acknowledged.is_empty() {
            return 0;
        }
        self.append(&mut pending, true);
        pending.number
    }

    fn write(&self, record: u64) {
        if record > 0 && self.writes {
            self.journal.write_appended();
        }
    }
}

/// Whether an input that is refused for this reason leaves the engine as it was.
fn changes_nothing(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::SafeMode | Refusal::UnknownSession(_) | Refusal::DisallowedNode(_))
}
