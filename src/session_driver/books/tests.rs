//! The rules of the books as tables, and against a model of the other side that repeats itself.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::types::Address;
use super::*;

fn grant(id: i32, node: &str) -> Grant {
    Grant {
        id,
        node_name: node.into(),
        address: Address { host: "10.0.0.1".into(), port: 1 },
        granted_at_ms: 7,
        kind: ResourceType::Map,
        app_info: "10.0.0.1:2".into(),
    }
}

fn maps(count: usize) -> Vec<SlotRequest> {
    vec![SlotRequest::new(ResourceType::Map); count]
}

/// Something that happens to the books.
enum Event {
    Want(usize),
    Requested(&'static [i32]),
    Granted(&'static [(i32, &'static str)]),
    Revoked(&'static [i32]),
    NodeDied(&'static str),
    Release(&'static [i32]),
    Released(&'static [i32]),
}

use Event::*;

/// Applies the event and describes the result.
fn happen(books: &mut SlotBooks, event: &Event) -> String {
    let ids = |lost: Vec<Lost>| lost.iter().map(|lost| lost.grant.id).collect::<Vec<_>>();
    match event {
        Want(count) => {
            let requests = books.want(maps(*count)).unwrap();
            format!("{:?}", requests.iter().map(|request| request.id).collect::<Vec<_>>())
        }
        Requested(acknowledged) => {
            books.requested(acknowledged.iter().copied());
            format!("request id {}", books.last_request_id())
        }
        Granted(told) => {
            let news = books.granted(told.iter().map(|(id, node)| grant(*id, node)).collect());
            let fresh: Vec<_> = news.fresh.iter().map(|grant| grant.id).collect();
            let id = books.last_grant_id().unwrap();
            format!("fresh {fresh:?} back {:?} id {id}", news.give_back)
        }
        Revoked(told) => {
            let told = told.iter().map(|id| grant(*id, "told")).collect();
            format!("lost {:?}", ids(books.revoked(told)))
        }
        NodeDied(node) => format!("lost {:?}", ids(books.node_died(node))),
        Release(released) => format!("tell {:?}", books.release(released.iter().copied())),
        Released(acknowledged) => {
            books.released(acknowledged.iter().copied());
            format!("{} known", books.slots().count())
        }
    }
}

fn check(story: &[(Event, &str)], totals: Totals) {
    let mut books = SlotBooks::default();
    for (step, (event, expected)) in story.iter().enumerate() {
        assert_eq!(happen(&mut books, event), *expected, "step {step}");
    }
    assert_eq!(books.totals(), totals);
}

#[test]
fn books_in_outline_keep_types_and_count_the_same() {
    let slot = SlotRequest::new(ResourceType::Reduce).near(["a"]).avoiding(["b"]);
    let mut books = SlotBooks::default().in_outline();
    let requests = books.want(vec![slot.clone(), slot]).unwrap();
    assert_eq!(&*requests[0].slot.hosts[0], "a", "the call names the hosts");
    books.requested([1]);
    let kept: Vec<_> = books.slots().map(|slot| slot.request.slot.hosts.len()).collect();
    assert_eq!(kept, [0, 1], "the second request is not acknowledged");
    let standings: Vec<_> = books.slots().map(|slot| slot.standing).collect();
    assert_eq!(
        Standings::of(standings.iter()),
        Standings { pending: 1, wanted: 1, ..Standings::default() }
    );
    let told = books.revoked(vec![Grant { kind: ResourceType::Reduce, ..grant(1, "a") }]);
    assert_eq!((told[0].request.id, told[0].request.slot.kind), (1, ResourceType::Reduce));
}

#[test]
fn a_slot_is_asked_for_granted_and_given_back() {
    check(
        &[
            (Want(2), "[1, 2]"),
            (Requested(&[1, 2]), "request id 2"),
            (Granted(&[(2, "a")]), "fresh [2] back [] id 2"),
            (Granted(&[(1, "a")]), "fresh [1] back [] id 1"),
            (Release(&[2]), "tell [2]"),
            (Released(&[2]), "1 known"),
            (Want(1), "[3]"),
        ],
        Totals { requested: 3, granted: 2, released: 1, ..Totals::default() },
    );
}

#[test]
fn a_grant_may_overtake_the_answer_to_its_request() {
    check(
        &[
            (Want(1), "[1]"),
            (Granted(&[(1, "a")]), "fresh [1] back [] id 1"),
            (Requested(&[1]), "request id 1"),
            (Granted(&[(1, "a")]), "fresh [] back [] id 1"),
        ],
        Totals { requested: 1, granted: 1, repeated_grants: 1, ..Totals::default() },
    );
}

#[test]
fn grants_without_a_request_are_released() {
    check(
        &[
            (Want(2), "[1, 2]"),
            (Granted(&[(9, "a"), (0, "a"), (-3, "a"), (9, "a")]), "fresh [] back [-3, 0, 9] id 9"),
            // On the way back already: once is enough.
            (Release(&[1]), "tell [1]"),
            (Granted(&[(1, "a")]), "fresh [] back [] id 1"),
            (Released(&[1]), "1 known"),
            // From a manager that was restored from an older state.
            (Granted(&[(1, "a")]), "fresh [] back [1] id 1"),
        ],
        Totals { requested: 2, released: 1, late_grants: 2, stray_grants: 4, ..Totals::default() },
    );
}

#[test]
fn a_revocation_concerns_what_is_held_and_nothing_else() {
    check(
        &[
            (Want(4), "[1, 2, 3, 4]"),
            (Granted(&[(1, "a"), (2, "a"), (3, "a")]), "fresh [1, 2, 3] back [] id 3"),
            (Release(&[1]), "tell [1]"),
            // Released, held, held, pending, never asked for.
            (Revoked(&[1, 3, 2, 4, 77]), "lost [3, 2, 4]"),
            (Revoked(&[3]), "lost []"),
            (Granted(&[(3, "a")]), "fresh [] back [] id 3"),
            (Release(&[2, 3, 4]), "tell [2, 3, 4]"),
            (Released(&[1, 2, 3, 4]), "0 known"),
        ],
        Totals {
            requested: 4,
            granted: 3,
            released: 4,
            revoked: 3,
            late_grants: 1,
            stale_revocations: 3,
            ..Totals::default()
        },
    );
}

#[test]
fn a_dead_node_takes_its_grants_with_it() {
    check(
        &[
            (Want(3), "[1, 2, 3]"),
            (Granted(&[(3, "a"), (2, "b"), (1, "a")]), "fresh [3, 2, 1] back [] id 3"),
            (NodeDied("c"), "lost []"),
            (NodeDied("a"), "lost [1, 3]"),
            (NodeDied("a"), "lost []"),
            (Revoked(&[1]), "lost []"),
        ],
        Totals { requested: 3, granted: 3, died: 2, stale_revocations: 1, ..Totals::default() },
    );
}

#[test]
fn only_what_is_known_is_released_and_only_once() {
    check(
        &[
            (Want(2), "[1, 2]"),
            (Release(&[2, 1, 1, 5, -1]), "tell [1, 2]"),
            (Release(&[1]), "tell []"),
            // An acknowledgement of something that is not being released changes nothing.
            (Want(1), "[3]"),
            (Released(&[1, 3]), "2 known"),
        ],
        Totals { requested: 3, released: 2, ..Totals::default() },
    );
}

#[test]
fn heartbeats_tell_the_latest_batch_not_the_greatest_id() {
    check(
        &[
            (Want(3), "[1, 2, 3]"),
            (Requested(&[3]), "request id 3"),
            (Requested(&[1, 2]), "request id 2"),
            (Requested(&[]), "request id 0"),
            (Granted(&[]), "fresh [] back [] id 0"),
            (Granted(&[(-5, "a")]), "fresh [] back [-5] id 0"),
        ],
        Totals { requested: 3, stray_grants: 1, ..Totals::default() },
    );
}

#[test]
fn a_lost_slot_tells_what_was_asked_for_and_what_was_granted() {
    let mut books = SlotBooks::default();
    let slot = SlotRequest::new(ResourceType::Reduce).near(["h"]).avoiding(["x", "y"]);
    books.want(vec![slot.clone()]).unwrap();
    books.granted(vec![grant(1, "a")]);
    let lost = books.revoked(vec![grant(1, "told")]);
    assert_eq!(&*lost[0].grant.node_name, "a");
    assert_eq!(*lost[0].request.slot, slot);
}

#[test]
fn ids_end_and_none_is_used_twice() {
    let mut books = SlotBooks::starting_at(i32::MAX - 2);
    assert_eq!(books.want(maps(4)), Err(IdsExhausted { wanted: 4, left: 3 }));
    let ids: Vec<_> = books.want(maps(2)).unwrap().iter().map(|request| request.id).collect();
    assert_eq!(ids, [i32::MAX - 2, i32::MAX - 1]);
    assert_eq!(books.want(maps(1)).unwrap()[0].id, i32::MAX);
    assert_eq!(books.want(maps(1)), Err(IdsExhausted { wanted: 1, left: 0 }));
    assert_eq!(books.want(vec![]), Ok(vec![]));
    assert_eq!(books.granted(vec![grant(i32::MAX, "a")]).fresh.len(), 1);
    assert_eq!(books.granted(vec![grant(1, "a")]).give_back, [1]);
    assert_eq!(books.totals().stray_grants, 1);
}

/// A cluster manager, as far as one session sees it. Calls reach it at least once; its
/// notifications arrive at least once and in order.
#[derive(Default)]
struct Manager {
    /// Requested and not released; with the node where it is granted, and whether it is in limbo.
    known: BTreeMap<i32, (Option<usize>, bool)>,
}

impl Manager {
    fn request(&mut self, ids: &[i32]) {
        for id in ids {
            self.known.entry(*id).or_default();
        }
    }

    fn release(&mut self, ids: &[i32]) {
        self.known.retain(|id, _| !ids.contains(id));
    }

    fn grant(&mut self, nth: usize, node: usize) -> Option<i32> {
        let free: Vec<_> = self
            .known
            .iter()
            .filter(|(_, state)| **state == (None, false))
            .map(|(id, _)| *id)
            .collect();
        let id = *free.get(nth.checked_rem(free.len())?)?;
        self.known.insert(id, (Some(node), false));
        Some(id)
    }

    fn revoke(&mut self, nth: usize) -> Option<i32> {
        let granted: Vec<_> = self.granted().map(|(id, _)| id).collect();
        let id = *granted.get(nth.checked_rem(granted.len())?)?;
        self.known.insert(id, (None, true));
        Some(id)
    }

    fn lose_node(&mut self, node: usize) {
        for state in self.known.values_mut().filter(|state| state.0 == Some(node)) {
            *state = (None, true);
        }
    }

    fn granted(&self) -> impl Iterator<Item = (i32, usize)> {
        self.known.iter().filter_map(|(id, state)| Some((*id, state.0?)))
    }
}

#[derive(Clone, Debug)]
enum Act {
    Request { count: usize, twice: bool },
    Release { nth: usize, twice: bool },
    Grant { nth: usize, node: usize, twice: bool },
    Stray { id: i32 },
    Revoke { nth: usize, twice: bool },
    LoseNode { node: usize, twice: bool },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..4_usize, any::<bool>()).prop_map(|(count, twice)| Act::Request { count, twice }),
        (any::<usize>(), any::<bool>()).prop_map(|(nth, twice)| Act::Release { nth, twice }),
        (any::<usize>(), 0..3_usize, any::<bool>()).prop_map(|(nth, node, twice)| Act::Grant {
            nth,
            node,
            twice
        }),
        (-3..40_i32).prop_map(|id| Act::Stray { id }),
        (any::<usize>(), any::<bool>()).prop_map(|(nth, twice)| Act::Revoke { nth, twice }),
        (0..3_usize, any::<bool>()).prop_map(|(node, twice)| Act::LoseNode { node, twice }),
    ]
}

/// Both ends and how many ids were handed out.
#[derive(Default)]
struct BothEnds {
    books: SlotBooks,
    manager: Manager,
    handed_out: i32,
    fresh: Vec<i32>,
}

impl BothEnds {
    fn step(&mut self, act: Act) {
        match act {
            Act::Request { count, twice } => {
                let requests = self.books.want(maps(count)).unwrap();
                let ids: Vec<_> = requests.iter().map(|request| request.id).collect();
                for id in &ids {
                    assert_eq!(*id, self.handed_out + 1, "ids ascend without gaps or repeats");
                    self.handed_out = *id;
                }
                self.manager.request(&ids);
                if twice {
                    self.manager.request(&ids);
                }
                self.books.requested(ids);
            }
            Act::Release { nth, twice } => {
                let ids: Vec<_> = self.books.slots().map(|slot| slot.request.id).collect();
                let Some(nth) = nth.checked_rem(ids.len()) else { return };
                self.give_back(vec![ids[nth]], twice);
            }
            Act::Grant { nth, node, twice } => {
                let Some(id) = self.manager.grant(nth, node) else { return };
                for _ in 0..=usize::from(twice) {
                    self.tell_grant(id, node);
                }
            }
            Act::Stray { id } => {
                if !self.manager.known.contains_key(&id) {
                    self.tell_grant(id, 0);
                }
            }
            Act::Revoke { nth, twice } => {
                let Some(id) = self.manager.revoke(nth) else { return };
                for _ in 0..=usize::from(twice) {
                    let lost = self.books.revoked(vec![grant(id, "told")]);
                    self.give_back(lost.iter().map(|lost| lost.grant.id).collect(), false);
                }
            }
            Act::LoseNode { node, twice } => {
                self.manager.lose_node(node);
                for _ in 0..=usize::from(twice) {
                    let lost = self.books.node_died(&node.to_string());
                    self.give_back(lost.iter().map(|lost| lost.grant.id).collect(), false);
                }
            }
        }
    }

    fn tell_grant(&mut self, id: i32, node: usize) {
        let news = self.books.granted(vec![grant(id, &node.to_string())]);
        for grant in &news.fresh {
            assert!(!self.fresh.contains(&grant.id), "a grant is new once");
            self.fresh.push(grant.id);
        }
        self.manager.release(&news.give_back);
        self.books.released(news.give_back);
    }

    fn give_back(&mut self, ids: Vec<i32>, twice: bool) {
        let ids = self.books.release(ids);
        for _ in 0..=usize::from(twice) {
            self.manager.release(&ids);
        }
        self.books.released(ids);
    }

    fn check(&self) {
        let held: Vec<_> =
            self.books.grants().map(|grant| (grant.id, grant.node_name.parse().unwrap())).collect();
        assert_eq!(held, self.manager.granted().collect::<Vec<_>>());
        let known: Vec<_> = self.books.slots().map(|slot| slot.request.id).collect();
        assert_eq!(known, self.manager.known.keys().copied().collect::<Vec<_>>());
        let totals = self.books.totals();
        assert_eq!(totals.requested, totals.released + known.len() as u64);
        let gone = totals.revoked + totals.died;
        assert!(
            totals.granted >= gone && totals.granted <= gone + totals.released + held.len() as u64
        );
    }
}

proptest! {
    #[test]
    fn both_ends_agree_whatever_is_repeated(acts in prop::collection::vec(act(), 1..120)) {
        let mut world = BothEnds::default();
        for act in acts {
            world.step(act);
            world.check();
        }
    }
}
