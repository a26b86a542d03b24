//! The ledger of an emulated session: its requests, their grants, and grants that must not have
//! come. The session driver's books correct a peer's faults silently; this ledger reports them.
//!
//! Pure: no sockets, no clock, no locks. Spec: cluster-manager/02 §3.6 to §3.8, 05 §4, §5.

use corona_model::types::ResourceType;
use corona_session_driver::slots::{GrantOutcome, RequestStanding, Slots};

/// A request that a session made.
#[derive(Clone, Copy, Debug)]
struct Asked {
    asked_us: u32,
    kind: ResourceType,
}

/// The part of a grant that distinguishes two grants of the same request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slip {
    /// The node, by its number in the run.
    pub(super) node: u32,
    /// `grantedTime`, its lower half.
    pub(super) granted_ms: u32,
    /// The port from which the cluster manager sent it.
    pub(super) from_port: u16,
}

/// The meaning of a grant to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The slot is the session's from now on. Has the time of its request.
    Fresh {
        /// Microseconds, as given to [`SlotLedger::ask`].
        asked_us: u32,
    },
    /// The request was withdrawn while the grant was on its way: nothing to do.
    Late,
    /// The same grant over another connection, as after a lost answer: nothing to do.
    Repeated,
    /// Must not be: granted before.
    Twice,
    /// Must not be: the request does not exist.
    NeverRequested,
    /// Must not be: the request was for another type.
    WrongType,
}

/// Requests whose end is remembered, to know a second grant when it comes.
const REMEMBERED: usize = 1 << 14;

/// The requests of one session. Ids count from 1.
#[derive(Debug)]
pub(super) struct SlotLedger(Slots<Asked, Slip>);

impl Default for SlotLedger {
    fn default() -> SlotLedger {
        SlotLedger(Slots::starting_at(1))
    }
}

impl SlotLedger {
    /// Requests that wait for a grant.
    pub(super) fn waiting(&self) -> usize {
        self.0.waiting()
    }

    /// Requests that have not been released.
    pub(super) fn outstanding(&self) -> usize {
        self.0.outstanding()
    }

    /// Requests made.
    pub(super) fn asked(&self) -> u64 {
        self.0.asked()
    }

    /// A new request, to be called before it is sent. Returns its id; none when ids have run out.
    pub(super) fn ask(&mut self, kind: ResourceType, now_us: u32) -> Option<i32> {
        let mut given = 0;
        self.0.want(|id| {
            given = id;
            Asked { asked_us: now_us, kind }
        })?;
        Some(given)
    }

    /// A grant has come.
    pub(super) fn grant(&mut self, id: i32, kind: ResourceType, slip: Slip) -> Taken {
        if self.0.get(id).is_some_and(|(asked, _)| asked.kind != kind) {
            return Taken::WrongType;
        }
        match self.0.grant(id, &slip) {
            GrantOutcome::Fresh(asked) => Taken::Fresh { asked_us: asked.asked_us },
            GrantOutcome::Late => Taken::Late,
            GrantOutcome::Again(
                RequestStanding::Granted(first)
                | RequestStanding::Lost(first)
                | RequestStanding::Releasing(Some(first)),
            ) => {
                let from_port = first.from_port;
                let same = Slip { from_port, ..slip } == *first && slip.from_port != from_port;
                if same { Taken::Repeated } else { Taken::Twice }
            }
            GrantOutcome::Again(_) | GrantOutcome::Forgotten => Taken::Twice,
            GrantOutcome::Stray => Taken::NeverRequested,
        }
    }

    /// A request is about to be released; none when it is not outstanding. Returns the node and
    /// type of the released slot, if one was held.
    pub(super) fn release(&mut self, id: i32) -> Option<Option<(u32, ResourceType)>> {
        let (asked, before) = self.0.release(id)?;
        let slot = match before {
            RequestStanding::Granted(slip) => Some((slip.node, asked.kind)),
            _ => None,
        };
        self.0.forget_beyond(REMEMBERED);
        Some(slot)
    }

    /// A slot was revoked. Returns its node and type if it was held.
    pub(super) fn revoke(&mut self, id: i32) -> Option<(u32, ResourceType)> {
        self.0.lose(id, None).map(|(slip, asked)| (slip.node, asked.kind))
    }

    /// A node is lost. Returns the ids and types of the grants held there.
    pub(super) fn lose_node(&mut self, node: u32) -> Vec<(i32, ResourceType)> {
        let is_there = |standing: &RequestStanding<Slip>| matches!(standing, RequestStanding::Granted(slip) if slip.node == node);
        let ids = self.ids(is_there);
        ids.into_iter().filter_map(|id| Some((id, self.revoke(id)?.1))).collect()
    }

    /// The ids of all that is outstanding.
    pub(super) fn outstanding_ids(&self) -> Vec<i32> {
        self.ids(|standing| !matches!(standing, RequestStanding::Releasing(_)))
    }

    fn ids(&self, wanted: impl Fn(&RequestStanding<Slip>) -> bool) -> Vec<i32> {
        self.0.iter().filter(|(_, _, standing)| wanted(standing)).map(|(id, ..)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::ResourceType::{Map, Reduce};
    use super::*;

    fn slip(node: u32) -> Slip {
        Slip { node, granted_ms: 5, from_port: 1 }
    }

    /// A ledger with `asked` maps asked for at 100 + their id.
    fn ledger(asked: u32) -> SlotLedger {
        let mut ledger = SlotLedger::default();
        for id in 1..=asked {
            assert_eq!(ledger.ask(Map, 100 + id), Some(id as i32));
        }
        ledger
    }

    fn numbers(ledger: &SlotLedger) -> (usize, usize) {
        (ledger.waiting(), ledger.outstanding())
    }

    #[test]
    fn a_request_is_granted_and_released_once() {
        let mut ledger = ledger(2);
        assert_eq!(ledger.grant(2, Map, slip(7)), Taken::Fresh { asked_us: 102 });
        assert_eq!(ledger.grant(1, Reduce, slip(7)), Taken::WrongType);
        assert_eq!(ledger.grant(3, Map, slip(7)), Taken::NeverRequested);
        assert_eq!(numbers(&ledger), (1, 2));
        assert_eq!(ledger.release(2), Some(Some((7, Map))));
        assert_eq!((ledger.release(2), ledger.release(3)), (None, None));
        assert_eq!((numbers(&ledger), ledger.outstanding_ids()), ((1, 1), vec![1]));
        assert_eq!(ledger.release(1), Some(None));
        assert_eq!(ledger.grant(1, Map, slip(7)), Taken::Late);
        assert_eq!(ledger.grant(1, Map, slip(7)), Taken::Twice);
    }

    #[test]
    fn a_second_grant_is_a_fault_unless_it_is_the_same_over_another_connection() {
        type End = (&'static str, fn(&mut SlotLedger));
        let end: [End; 3] = [
            ("held", |_| {}),
            ("released", |ledger| assert_eq!(ledger.release(1), Some(Some((7, Map))))),
            ("revoked", |ledger| assert_eq!(ledger.revoke(1), Some((7, Map)))),
        ];
        for (name, end) in end {
            let mut ledger = ledger(1);
            ledger.grant(1, Map, slip(7));
            end(&mut ledger);
            for (second, expected) in [
                (slip(7), Taken::Twice),
                (slip(8), Taken::Twice),
                (Slip { from_port: 2, ..slip(7) }, Taken::Repeated),
                (Slip { from_port: 2, ..slip(8) }, Taken::Twice),
                (Slip { from_port: 2, granted_ms: 6, ..slip(7) }, Taken::Twice),
            ] {
                assert_eq!(ledger.grant(1, Map, second), expected, "{name} {second:?}");
            }
        }
    }

    #[test]
    fn a_dead_node_takes_what_was_held_there_and_it_stays_to_be_released() {
        let mut ledger = ledger(4);
        for (id, node) in [(1, 7), (2, 8), (3, 7)] {
            ledger.grant(id, Map, slip(node));
        }
        assert_eq!(ledger.lose_node(7), [(1, Map), (3, Map)]);
        assert_eq!(numbers(&ledger), (1, 4));
        assert_eq!(ledger.revoke(1), None);
        assert_eq!(ledger.release(1), Some(None));
        assert_eq!(ledger.outstanding_ids(), [2, 3, 4]);
    }

    #[test]
    fn ends_are_forgotten_after_long() {
        let asked = REMEMBERED as u32 + 10;
        let mut ledger = ledger(asked);
        for id in 1..=asked as i32 {
            ledger.grant(id, Map, slip(7));
            assert_eq!(ledger.release(id), Some(Some((7, Map))));
        }
        assert_eq!(ledger.0.iter().count(), REMEMBERED);
        assert_eq!(ledger.grant(1, Map, slip(7)), Taken::Twice);
        assert_eq!(numbers(&ledger), (0, 0));
    }
}
