//! The ledger of an emulated session: what it asked for, what came of it, and what must not have
//! come. The session driver's books put right in silence what a peer does wrong; here it is told.
//!
//! Pure: no sockets, no clock, no locks. Spec: cluster-manager/02 §3.6 to §3.8, 05 §4, §5.

use std::collections::VecDeque;

use corona_model::types::ResourceType;

/// A request that a session made.
#[derive(Clone, Copy, Debug)]
struct Entry {
    asked_us: u32,
    state: State,
    kind: ResourceType,
    /// Of the grant, if there was one.
    slip: Slip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Held,
    /// Taken back, or gone with its node. Known to the cluster manager until it is released.
    Lost,
    Released,
    /// Released before a grant had come.
    Withdrawn,
}

/// By what two grants of the same request are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slip {
    /// The node, by its number in the run.
    pub(super) node: u32,
    /// `grantedTime`, its lower half.
    pub(super) granted_ms: u32,
    /// The port from which the cluster manager told it.
    pub(super) told_from: u16,
}

/// What a grant means to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The slot is the session's from now on. Tells when it was asked for.
    Fresh {
        /// Microseconds, as given to [`Ledger::ask`].
        asked_us: u32,
    },
    /// The request was withdrawn while the grant was on its way: nothing to do.
    Late,
    /// The same grant over another connection, as after a lost answer: nothing to do.
    Repeated,
    /// Must not be: granted before.
    Twice,
    /// Must not be: there is no such request.
    NeverRequested,
    /// Must not be: the request was for another type.
    WrongType,
}

/// Requests whose end is remembered, to know a second grant when it comes.
const REMEMBERED: usize = 1 << 14;

/// The requests of one session. Ids count from 1.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Requests before the first entry, all of which have ended.
    forgotten: usize,
    entries: VecDeque<Entry>,
    waiting: usize,
    held: usize,
    lost: usize,
}

impl Ledger {
    /// Requests that wait for a grant.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Requests that have not been released.
    pub(super) fn outstanding(&self) -> usize {
        self.waiting + self.held + self.lost
    }

    /// Requests made.
    pub(super) fn asked(&self) -> u64 {
        (self.forgotten + self.entries.len()) as u64
    }

    /// A new request, to be called before it is sent. Gives its id; none when ids have run out.
    pub(super) fn ask(&mut self, kind: ResourceType, now_us: u32) -> Option<i32> {
        let id = i32::try_from(self.asked() + 1).ok()?;
        let (state, slip) = (State::Waiting, Slip::default());
        self.entries.push_back(Entry { asked_us: now_us, state, kind, slip });
        self.waiting += 1;
        Some(id)
    }

    /// A grant has come.
    pub(super) fn grant(&mut self, id: i32, kind: ResourceType, slip: Slip) -> Taken {
        let Ok(place) = usize::try_from(i64::from(id) - 1) else { return Taken::NeverRequested };
        let Some(place) = place.checked_sub(self.forgotten) else { return Taken::Twice };
        let Some(entry) = self.entries.get_mut(place) else { return Taken::NeverRequested };
        if entry.kind != kind {
            return Taken::WrongType;
        }
        match entry.state {
            State::Waiting => {
                entry.state = State::Held;
                entry.slip = slip;
                self.waiting -= 1;
                self.held += 1;
                Taken::Fresh { asked_us: entry.asked_us }
            }
            // Whatever comes next for it is a second grant.
            State::Withdrawn => {
                entry.state = State::Released;
                entry.slip = slip;
                Taken::Late
            }
            State::Held | State::Lost | State::Released => {
                let told_from = entry.slip.told_from;
                let same = Slip { told_from, ..slip } == entry.slip && slip.told_from != told_from;
                if same { Taken::Repeated } else { Taken::Twice }
            }
        }
    }

    /// A request is about to be released. Gives the node and type of the slot that is given back,
    /// if one was held. None as well for what is not outstanding.
    pub(super) fn release(&mut self, id: i32) -> Option<(u32, ResourceType)> {
        let entry = self.outstanding_entry(id)?;
        let (state, slot) = (entry.state, (entry.slip.node, entry.kind));
        entry.state = if state == State::Waiting { State::Withdrawn } else { State::Released };
        match state {
            State::Waiting => self.waiting -= 1,
            State::Held => self.held -= 1,
            _ => self.lost -= 1,
        }
        self.forget();
        (state == State::Held).then_some(slot)
    }

    /// A slot was taken back. Gives its node and type if it was held.
    pub(super) fn revoke(&mut self, id: i32) -> Option<(u32, ResourceType)> {
        let entry = self.outstanding_entry(id).filter(|entry| entry.state == State::Held)?;
        entry.state = State::Lost;
        let slot = (entry.slip.node, entry.kind);
        self.held -= 1;
        self.lost += 1;
        Some(slot)
    }

    /// A node is gone. Gives the ids and types of what was held there.
    pub(super) fn lose_node(&mut self, node: u32) -> Vec<(i32, ResourceType)> {
        let of_node = |entry: &Entry| entry.state == State::Held && entry.slip.node == node;
        let ids = self.ids(of_node);
        ids.into_iter().filter_map(|id| Some((id, self.revoke(id)?.1))).collect()
    }

    /// The ids of all that is outstanding.
    pub(super) fn outstanding_ids(&self) -> Vec<i32> {
        self.ids(|entry| is_outstanding(entry.state))
    }

    fn ids(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<i32> {
        let ids = self.entries.iter().enumerate().filter(|(_, entry)| wanted(entry));
        ids.filter_map(|(place, _)| i32::try_from(self.forgotten + place + 1).ok()).collect()
    }

    fn outstanding_entry(&mut self, id: i32) -> Option<&mut Entry> {
        let place = usize::try_from(id).ok()?.checked_sub(1 + self.forgotten)?;
        self.entries.get_mut(place).filter(|entry| is_outstanding(entry.state))
    }

    fn forget(&mut self) {
        while self.entries.len() > REMEMBERED
            && self.entries.front().is_some_and(|entry| !is_outstanding(entry.state))
        {
            self.entries.pop_front();
            self.forgotten += 1;
        }
    }
}

fn is_outstanding(state: State) -> bool {
    matches!(state, State::Waiting | State::Held | State::Lost)
}

#[cfg(test)]
mod tests {
    use super::ResourceType::{Map, Reduce};
    use super::*;

    fn slip(node: u32) -> Slip {
        Slip { node, granted_ms: 5, told_from: 1 }
    }

    /// A ledger with `asked` maps asked for at 100 + their id.
    fn ledger(asked: u32) -> Ledger {
        let mut ledger = Ledger::default();
        for id in 1..=asked {
            assert_eq!(ledger.ask(Map, 100 + id), Some(id as i32));
        }
        ledger
    }

    fn numbers(ledger: &Ledger) -> (usize, usize, usize) {
        (ledger.waiting, ledger.held, ledger.outstanding())
    }

    #[test]
    fn a_request_is_granted_and_released_once() {
        let mut ledger = ledger(2);
        assert_eq!(ledger.grant(2, Map, slip(7)), Taken::Fresh { asked_us: 102 });
        assert_eq!(numbers(&ledger), (1, 1, 2));
        assert_eq!(ledger.release(2), Some((7, Map)));
        assert_eq!(ledger.release(2), None);
        assert_eq!(ledger.release(3), None);
        assert_eq!(numbers(&ledger), (1, 0, 1));
        assert_eq!(ledger.outstanding_ids(), [1]);
    }

    #[test]
    fn what_was_never_requested_is_told() {
        let mut ledger = ledger(1);
        for id in [i32::MIN, -1, 0, 2, i32::MAX] {
            assert_eq!(ledger.grant(id, Map, slip(7)), Taken::NeverRequested, "{id}");
            assert_eq!(ledger.release(id), None, "{id}");
        }
        assert_eq!(ledger.grant(1, Reduce, slip(7)), Taken::WrongType);
        assert_eq!(numbers(&ledger), (1, 0, 1));
    }

    #[test]
    fn a_second_grant_is_a_fault_unless_it_is_the_same_over_another_connection() {
        type End = (&'static str, fn(&mut Ledger));
        let end: [End; 3] = [
            ("held", |_| {}),
            ("released", |ledger| assert_eq!(ledger.release(1), Some((7, Map)))),
            ("revoked", |ledger| assert_eq!(ledger.revoke(1), Some((7, Map)))),
        ];
        for (name, end) in end {
            let mut ledger = ledger(1);
            ledger.grant(1, Map, slip(7));
            end(&mut ledger);
            for (second, expected) in [
                (slip(7), Taken::Twice),
                (slip(8), Taken::Twice),
                (Slip { told_from: 2, ..slip(7) }, Taken::Repeated),
                (Slip { told_from: 2, ..slip(8) }, Taken::Twice),
                (Slip { told_from: 2, granted_ms: 6, ..slip(7) }, Taken::Twice),
            ] {
                assert_eq!(ledger.grant(1, Map, second), expected, "{name} {second:?}");
            }
        }
    }

    #[test]
    fn a_withdrawn_request_may_be_granted_once_more() {
        let mut ledger = ledger(1);
        assert_eq!(ledger.release(1), None);
        assert_eq!(ledger.grant(1, Map, slip(7)), Taken::Late);
        assert_eq!(ledger.grant(1, Map, slip(7)), Taken::Twice);
        assert_eq!(numbers(&ledger), (0, 0, 0));
    }

    #[test]
    fn a_dead_node_takes_what_was_held_there_and_it_stays_to_be_released() {
        let mut ledger = ledger(4);
        for (id, node) in [(1, 7), (2, 8), (3, 7)] {
            ledger.grant(id, Map, slip(node));
        }
        assert_eq!(ledger.lose_node(7), [(1, Map), (3, Map)]);
        assert_eq!(numbers(&ledger), (1, 1, 4));
        assert_eq!(ledger.revoke(1), None);
        assert_eq!(ledger.release(1), None);
        assert_eq!(ledger.outstanding_ids(), [2, 3, 4]);
    }

    #[test]
    fn ends_are_forgotten_after_long_and_ids_go_on() {
        let asked = REMEMBERED as u32 + 10;
        let mut ledger = ledger(asked);
        for id in 1..=asked as i32 {
            ledger.grant(id, Map, slip(7));
            assert_eq!(ledger.release(id), Some((7, Map)));
        }
        assert_eq!(ledger.entries.len(), REMEMBERED);
        assert_eq!(ledger.grant(1, Map, slip(7)), Taken::Twice);
        assert_eq!(ledger.ask(Map, 0), Some(asked as i32 + 1));
        assert_eq!(ledger.outstanding_ids(), [asked as i32 + 1]);
        assert_eq!(ledger.release(asked as i32 + 1), None);
        assert_eq!(numbers(&ledger), (0, 0, 0));
    }
}
