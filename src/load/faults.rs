//! Faults: events that must not happen under any load. One of them makes a run a failure, whatever its timings.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Something that a cluster manager, or a connection to it, must not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A request was granted again, with another slot or without a reason to repeat the call.
    GrantedTwice,
    /// A grant has an id that the session did not request.
    NeverRequested,
    /// A grant names an unknown node, or contradicts the node's report.
    WrongGrant,
    /// More slots of a node were held at a time than it has.
    OverCapacity,
    /// A slot counts as in use after its release was acknowledged.
    LostRelease,
    /// There were requests and free slots, and no grant came for long.
    Stalled,
    /// A session was ended by the cluster manager, or declared unknown.
    SessionLost,
    /// A node was ordered to restart, or refused.
    NodeRefused,
    /// A node's connection or call failed although it did nothing wrong.
    CallFailed,
}

impl FaultKind {
    /// All of them, the gravest first.
    pub const ALL: [FaultKind; 9] = [
        FaultKind::GrantedTwice,
        FaultKind::NeverRequested,
        FaultKind::WrongGrant,
        FaultKind::OverCapacity,
        FaultKind::LostRelease,
        FaultKind::Stalled,
        FaultKind::SessionLost,
        FaultKind::NodeRefused,
        FaultKind::CallFailed,
    ];

    /// A few words for people.
    pub fn text(self) -> &'static str {
        match self {
            FaultKind::GrantedTwice => "granted twice",
            FaultKind::NeverRequested => "granted, but never requested",
            FaultKind::WrongGrant => "grants of slots that do not exist",
            FaultKind::OverCapacity => "slots held beyond a node's capacity",
            FaultKind::LostRelease => "releases lost",
            FaultKind::Stalled => "requests left waiting beside free slots",
            FaultKind::SessionLost => "sessions lost",
            FaultKind::NodeRefused => "nodes refused or ordered to restart",
            FaultKind::CallFailed => "calls or connections failed",
        }
    }
}

/// The number of faults of a kind, and the first instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// How often; at least once.
    pub count: u64,
    /// The first instance, as a sentence for people.
    pub first: String,
}

/// The faults so far.
#[derive(Debug, Default)]
pub(super) struct Faults {
    counts: [AtomicU64; FaultKind::ALL.len()],
    first: Mutex<[Option<String>; FaultKind::ALL.len()]>,
}

impl Faults {
    /// Notes an instance. The sentence is only made for the first of its kind.
    pub(super) fn note(&self, kind: FaultKind, sentence: impl FnOnce() -> String) {
        self.note_times(kind, 1, sentence);
    }

    /// Notes several instances at once.
    pub(super) fn note_times(&self, kind: FaultKind, times: u64, what: impl FnOnce() -> String) {
        let place = kind as usize;
        let Some(counter) = self.counts.get(place) else { return };
        if times > 0 && counter.fetch_add(times, Ordering::Relaxed) == 0 {
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(slot) = first.get_mut(place) {
                slot.get_or_insert_with(what);
            }
        }
    }

    /// The faults, the gravest first.
    pub(super) fn list(&self) -> Vec<Fault> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let faults = FaultKind::ALL.iter().zip(&self.counts).zip(first.iter());
        let told = faults.filter_map(|((kind, count), first)| {
            let count = count.load(Ordering::Relaxed);
            let first = first.clone().unwrap_or_default();
            (count > 0).then_some(Fault { kind: *kind, count, first })
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_instance_is_kept_and_all_are_counted() {
        let faults = Faults::default();
        assert!(faults.list().is_empty());
        faults.note(FaultKind::CallFailed, || "one".into());
        faults.note(FaultKind::CallFailed, || unreachable!("only the first is described"));
        faults.note_times(FaultKind::LostRelease, 0, || unreachable!("nothing was lost"));
        faults.note_times(FaultKind::LostRelease, 7, || "seven".into());
        let fault = |kind, count, first: &str| Fault { kind, count, first: first.into() };
        let expected =
            [fault(FaultKind::LostRelease, 7, "seven"), fault(FaultKind::CallFailed, 2, "one")];
        assert_eq!(faults.list(), expected);
    }

    #[test]
    fn kinds_stand_at_their_places() {
        for (place, kind) in FaultKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, place);
        }
    }
}
