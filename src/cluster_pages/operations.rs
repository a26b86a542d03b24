//! The outcomes of administrative calls: the last one of each kind and the last that failed.
//!
//! The contract's `setSafeMode` and `persistState` return only true or false. The reasons are kept
//! here for the API. It knows nothing of the calls' effects.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use corona_api::cluster as api;
use corona_model::text::boundary;
use corona_model::types::Millis;

/// The most bytes of a reason; a reason may quote a peer's input.
const REASON_BYTES: usize = 1024;
/// How long a failure is listed among the problems.
const SHOWN_MS: i64 = 60 * 60 * 1000;

/// A kind of administrative call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Safe mode is turned on or off.
    SetSafeMode {
        /// Whether it is turned on.
        on: bool,
    },
    /// The state is saved.
    PersistState,
    /// The host files are read again.
    RefreshNodes,
    /// Nodes are restarted.
    RestartNodes,
}

impl Operation {
    /// Its name in the API.
    fn name(self) -> &'static str {
        match self {
            Operation::SetSafeMode { on: true } => "set_safe_mode",
            Operation::SetSafeMode { on: false } => "unset_safe_mode",
            Operation::PersistState => "persist_state",
            Operation::RefreshNodes => "refresh_nodes",
            Operation::RestartNodes => "restart_nodes",
        }
    }

    /// Its purpose, to follow the word "to".
    fn aim(self) -> &'static str {
        match self {
            Operation::SetSafeMode { on: true } => "turn safe mode on",
            Operation::SetSafeMode { on: false } => "turn safe mode off in the proxy job tracker",
            Operation::PersistState => "save the state",
            Operation::RefreshNodes => "read the host files again",
            Operation::RestartNodes => "restart the nodes",
        }
    }
}

/// The outcomes of administrative calls since the start of the process.
#[derive(Debug, Default)]
pub struct Operations(Mutex<Vec<Outcomes>>);

/// Outcomes of the calls of one kind.
#[derive(Clone, Debug)]
struct Outcomes {
    operation: Operation,
    last: Attempt,
    last_failure: Option<Attempt>,
}

/// The outcome of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Attempt {
    finished: Millis,
    caller: IpAddr,
    /// Why it failed.
    reason: Option<String>,
}

impl Operations {
    /// Records the outcome of a call that has just finished.
    pub fn note(
        &self,
        operation: Operation,
        finished: Millis,
        caller: IpAddr,
        outcome: Result<(), String>,
    ) {
        let reason = outcome.err().map(shortened);
        let last = Attempt { finished, caller: caller.to_canonical(), reason };
        let failure = last.reason.is_some().then(|| last.clone());
        let mut all = self.all();
        match all.iter_mut().find(|known| known.operation == operation) {
            Some(known) => {
                known.last = last;
                known.last_failure = failure.or(known.last_failure.take());
            }
            None => {
                all.push(Outcomes { operation, last, last_failure: failure });
                all.sort_unstable_by_key(|known| known.operation);
            }
        }
    }

    /// The API's representation.
    pub(crate) fn to_api(&self) -> Vec<api::OperationStatus> {
        let attempt = |attempt: &Attempt| api::OperationAttempt {
            finished_ms: attempt.finished.0,
            caller: attempt.caller.to_string(),
            succeeded: attempt.reason.is_none(),
            reason: attempt.reason.clone(),
        };
        let status = |known: &Outcomes| api::OperationStatus {
            operation: known.operation.name().to_owned(),
            last: attempt(&known.last),
            last_failure: known.last_failure.as_ref().map(attempt),
        };
        self.all().iter().map(status).collect()
    }

    /// Operations whose last attempt failed, and why; for an hour after the attempt.
    pub(crate) fn failing(&self, now: Millis) -> Vec<(&'static str, String)> {
        let lately = |known: &&Outcomes| now.since(known.last.finished) < SHOWN_MS;
        let reason = |known: &Outcomes| {
            known.last.reason.clone().map(|reason| (known.operation.aim(), reason))
        };
        self.all().iter().filter(lately).filter_map(reason).collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Outcomes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shortened(mut reason: String) -> String {
    if reason.len() > REASON_BYTES {
        reason.truncate(boundary(&reason, REASON_BYTES));
        reason.push('…');
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_call_of_each_kind_is_kept_and_the_last_failure_beside_it() {
        let operations = Operations::default();
        let caller = "::ffff:10.0.0.1".parse().unwrap();
        let note = |operation, at, outcome: Result<(), &str>| {
            operations.note(operation, Millis(at), caller, outcome.map_err(str::to_owned));
        };
        note(Operation::PersistState, 1, Err("safe mode is off"));
        note(Operation::SetSafeMode { on: true }, 2, Ok(()));
        note(Operation::PersistState, 3, Ok(()));
        note(Operation::RefreshNodes, 4, Err(&"é".repeat(REASON_BYTES)));

        let served = operations.to_api();
        let names: Vec<&str> = served.iter().map(|status| &*status.operation).collect();
        assert_eq!(names, ["set_safe_mode", "persist_state", "refresh_nodes"]);
        let persist = &served[1];
        assert_eq!((persist.last.finished_ms, persist.last.succeeded), (3, true));
        let failure = persist.last_failure.as_ref().unwrap();
        assert_eq!((failure.finished_ms, failure.reason.as_deref()), (1, Some("safe mode is off")));
        assert_eq!(failure.caller, "10.0.0.1");
        assert_eq!(served[0].last_failure, None);

        let failing = operations.failing(Millis(4 + SHOWN_MS - 1));
        let [("read the host files again", reason)] = &failing[..] else { panic!("{failing:?}") };
        assert!(reason.len() <= REASON_BYTES + '…'.len_utf8() && reason.ends_with('…'));
        assert_eq!(operations.failing(Millis(4 + SHOWN_MS)), []);
    }
}
