//! The slots of one session as its client sees them: each from its request to its release.
//!
//! Pure: no sockets, no clock, no locks. Notifications may arrive twice, late, or for slots that
//! were never requested; their meaning is returned as an outcome, on which the caller acts. The
//! caller chooses the types that represent a request (`R`) and a grant (`G`). Spec:
//! cluster-manager/02 §3.6 to §3.8, 05 §2, §4, §5.

use std::collections::BTreeMap;

/// The state of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestStanding<G> {
    /// The cluster manager has not acknowledged it.
    Wanted,
    /// The cluster manager knows it and has granted nothing yet.
    Pending,
    /// This slot was granted.
    Granted(G),
    /// This grant was taken back, or its node died. The cluster manager still counts the request
    /// until it is released.
    Lost(G),
    /// Released here, with the grant if there was one. The cluster manager has not acknowledged that.
    Releasing(Option<G>),
}

impl<G> RequestStanding<G> {
    /// Whether the slot is held or waited for.
    pub fn is_open(&self) -> bool {
        matches!(
            self,
            RequestStanding::Wanted | RequestStanding::Pending | RequestStanding::Granted(_)
        )
    }

    /// Whether a grant is waited for.
    pub fn is_waiting(&self) -> bool {
        matches!(self, RequestStanding::Wanted | RequestStanding::Pending)
    }
}

/// The meaning of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantOutcome<'a, R, G> {
    /// The slot is the session's from now on.
    Fresh(&'a R),
    /// The request was released before any grant came.
    Late,
    /// There was a grant before; this is the present state of the request.
    Again(&'a RequestStanding<G>),
    /// The request was released and forgotten.
    Forgotten,
    /// There never was such a request.
    Stray,
}

/// The requests of a session that are not forgotten, by id. Ids ascend without gaps.
#[derive(Clone, Debug)]
pub struct Slots<R, G> {
    first_id: i32,
    /// The id of the next request; beyond `i32::MAX` when all are used.
    next_id: i64,
    requests: BTreeMap<i32, (R, RequestStanding<G>)>,
    waiting: usize,
    releasing: usize,
}

impl<R, G: Clone> Slots<R, G> {
    /// No requests. The first one gets this id.
    pub fn starting_at(first_id: i32) -> Slots<R, G> {
        let requests = BTreeMap::new();
        Slots { first_id, next_id: first_id.into(), requests, waiting: 0, releasing: 0 }
    }

    /// The slots of an earlier run that used the ids from 1 up to `last_id`: these requests are not
    /// released, granted or not.
    pub fn restored(
        last_id: i32,
        open: impl IntoIterator<Item = (i32, R, Option<G>)>,
    ) -> Slots<R, G> {
        let mut slots = Slots { next_id: i64::from(last_id) + 1, ..Slots::starting_at(1) };
        for (id, request, grant) in open {
            slots.waiting += usize::from(grant.is_none());
            let standing = grant.map_or(RequestStanding::Pending, RequestStanding::Granted);
            slots.requests.insert(id, (request, standing));
        }
        slots
    }

    /// Requests made so far, the forgotten ones included.
    pub fn asked(&self) -> u64 {
        u64::try_from(self.next_id - i64::from(self.first_id)).unwrap_or_default()
    }

    /// The id of the last request; that before the first id if there was none.
    pub fn last_id(&self) -> i32 {
        // Ids end with the greatest number of this type.
        i32::try_from(self.next_id - 1).unwrap_or(i32::MAX)
    }

    /// How many more requests there are ids for.
    pub fn ids_left(&self) -> usize {
        let left = (i64::from(i32::MAX) + 1 - self.next_id).max(0);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Requests that wait for a grant.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Requests that have not been released.
    pub fn outstanding(&self) -> usize {
        self.requests.len() - self.releasing
    }

    /// A new request, made of its id; none when ids have run out.
    pub fn want(&mut self, request: impl FnOnce(i32) -> R) -> Option<&R> {
        let id = i32::try_from(self.next_id).ok()?;
        self.next_id += 1;
        self.waiting += 1;
        let (request, _) =
            self.requests.entry(id).or_insert((request(id), RequestStanding::Wanted));
        Some(request)
    }

    /// The cluster manager has acknowledged the request.
    pub fn acknowledge(&mut self, id: i32) {
        if let Some((_, standing @ RequestStanding::Wanted)) = self.requests.get_mut(&id) {
            *standing = RequestStanding::Pending;
        }
    }

    /// Changes what is kept of a request.
    pub fn change(&mut self, id: i32, change: impl FnOnce(&mut R)) {
        if let Some((request, _)) = self.requests.get_mut(&id) {
            change(request);
        }
    }

    /// A grant has come.
    pub fn grant(&mut self, id: i32, grant: &G) -> GrantOutcome<'_, R, G> {
        let Some((request, standing)) = self.requests.get_mut(&id) else {
            let asked = id >= self.first_id && i64::from(id) < self.next_id;
            return if asked { GrantOutcome::Forgotten } else { GrantOutcome::Stray };
        };
        match standing {
            RequestStanding::Wanted | RequestStanding::Pending => {
                self.waiting -= 1;
                *standing = RequestStanding::Granted(grant.clone());
                GrantOutcome::Fresh(request)
            }
            RequestStanding::Releasing(first @ None) => {
                *first = Some(grant.clone());
                GrantOutcome::Late
            }
            _ => GrantOutcome::Again(standing),
        }
    }

    /// A slot was revoked: one that was held or, if the cluster manager describes it, one that was
    /// pending. Returns the void grant and its request.
    pub fn lose(&mut self, id: i32, told: Option<&G>) -> Option<(G, &R)> {
        let (request, standing) = self.requests.get_mut(&id)?;
        let grant = match standing {
            RequestStanding::Granted(grant) => grant.clone(),
            RequestStanding::Wanted | RequestStanding::Pending => {
                let told = told?.clone();
                self.waiting -= 1;
                told
            }
            RequestStanding::Lost(_) | RequestStanding::Releasing(_) => return None,
        };
        *standing = RequestStanding::Lost(grant.clone());
        Some((grant, request))
    }

    /// Releases a request. Returns it and its former state; none when there is nothing to release.
    pub fn release(&mut self, id: i32) -> Option<(&R, RequestStanding<G>)> {
        let (request, standing) = self.requests.get_mut(&id)?;
        let grant = match standing {
            RequestStanding::Wanted | RequestStanding::Pending => {
                self.waiting -= 1;
                None
            }
            RequestStanding::Granted(grant) | RequestStanding::Lost(grant) => Some(grant.clone()),
            RequestStanding::Releasing(_) => return None,
        };
        self.releasing += 1;
        let before = std::mem::replace(standing, RequestStanding::Releasing(grant));
        Some((request, before))
    }

    /// The release of a request is acknowledged: it is forgotten.
    pub fn forget(&mut self, id: i32) {
        if self.requests.get(&id).is_some_and(|(_, standing)| is_releasing(standing)) {
            self.requests.remove(&id);
            self.releasing -= 1;
        }
    }

    /// Forgets the oldest requests that are released, until no more than `most` are known.
    pub fn forget_beyond(&mut self, most: usize) {
        while self.requests.len() > most
            && let Some(oldest) = self.requests.first_entry()
            && is_releasing(&oldest.get().1)
        {
            oldest.remove();
            self.releasing -= 1;
        }
    }

    /// A request and its state; none once it is forgotten.
    pub fn get(&self, id: i32) -> Option<&(R, RequestStanding<G>)> {
        self.requests.get(&id)
    }

    /// All requests that are not forgotten, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (i32, &R, &RequestStanding<G>)> {
        self.requests.iter().map(|(id, (request, standing))| (*id, request, standing))
    }
}

fn is_releasing<G>(standing: &RequestStanding<G>) -> bool {
    matches!(standing, RequestStanding::Releasing(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Plain = Slots<i32, char>;

    fn slots(count: usize) -> Plain {
        let mut slots = Plain::starting_at(1);
        (0..count).for_each(|_| assert!(slots.want(|id| id).is_some()));
        slots
    }

    fn numbers(slots: &Plain) -> (usize, usize, usize) {
        (slots.waiting(), slots.outstanding(), slots.requests.len())
    }

    #[test]
    fn each_step_from_request_to_release() {
        let mut slots = slots(3);
        assert_eq!((slots.asked(), numbers(&slots)), (3, (3, 3, 3)));
        slots.acknowledge(1);
        assert_eq!(slots.get(1), Some(&(1, RequestStanding::Pending)));
        assert_eq!(slots.grant(1, &'a'), GrantOutcome::Fresh(&1));
        assert_eq!(slots.grant(1, &'b'), GrantOutcome::Again(&RequestStanding::Granted('a')));
        assert_eq!(slots.lose(1, Some(&'b')), Some(('a', &1)));
        assert_eq!(slots.lose(1, Some(&'b')), None);
        assert_eq!(numbers(&slots), (2, 3, 3));
        assert_eq!(slots.release(1), Some((&1, RequestStanding::Lost('a'))));
        assert_eq!(slots.release(1), None);
        assert_eq!(numbers(&slots), (2, 2, 3));
        slots.forget(1);
        slots.forget(2);
        assert_eq!(numbers(&slots), (2, 2, 2));
        assert_eq!(slots.grant(1, &'a'), GrantOutcome::Forgotten);
        // A pending slot is lost only if the cluster manager describes it.
        assert_eq!(slots.lose(2, None), None);
        assert_eq!(slots.lose(2, Some(&'c')), Some(('c', &2)));
        assert_eq!(numbers(&slots), (1, 2, 2));
    }

    #[test]
    fn a_grant_without_a_request_is_a_stray() {
        let mut slots = slots(1);
        for id in [i32::MIN, -1, 0, 2, i32::MAX] {
            assert_eq!(slots.grant(id, &'a'), GrantOutcome::Stray, "{id}");
            assert_eq!(slots.release(id), None, "{id}");
            assert_eq!(slots.lose(id, Some(&'a')), None, "{id}");
        }
        assert_eq!(numbers(&slots), (1, 1, 1));
    }

    #[test]
    fn one_grant_may_come_after_the_release() {
        let mut slots = slots(1);
        assert_eq!(slots.release(1), Some((&1, RequestStanding::Wanted)));
        assert_eq!(slots.grant(1, &'a'), GrantOutcome::Late);
        assert_eq!(
            slots.grant(1, &'b'),
            GrantOutcome::Again(&RequestStanding::Releasing(Some('a')))
        );
        assert_eq!(numbers(&slots), (0, 0, 1));
    }

    #[test]
    fn the_oldest_releases_are_forgotten_and_ids_go_on() {
        let mut slots = slots(5);
        for id in [1, 2, 4] {
            slots.release(id);
        }
        slots.forget_beyond(3);
        assert_eq!(slots.iter().map(|(id, ..)| id).collect::<Vec<_>>(), [3, 4, 5]);
        // Slots that are not released stay, and so do those behind them.
        slots.forget_beyond(0);
        assert_eq!((numbers(&slots), slots.asked()), ((2, 2, 3), 5));
        assert_eq!(slots.want(|id| id), Some(&6));
    }

    #[test]
    fn slots_of_an_earlier_run_go_on() {
        let mut slots = Plain::restored(5, [(2, 2, None), (4, 4, Some('a'))]);
        assert_eq!((numbers(&slots), slots.asked()), ((1, 2, 2), 5));
        assert_eq!(slots.grant(2, &'b'), GrantOutcome::Fresh(&2));
        assert_eq!(slots.grant(4, &'b'), GrantOutcome::Again(&RequestStanding::Granted('a')));
        assert_eq!(slots.grant(3, &'b'), GrantOutcome::Forgotten);
        assert_eq!(slots.want(|id| id), Some(&6));
    }
}
