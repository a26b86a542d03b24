//! A semaphore that is fair between its users: each user may hold only some of the permits, and
//! waiting users take turns, so that no user waits behind the long queue of another one.
//!
//! It knows nothing of the permits' purpose.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Permits, shared by users with different keys.
#[derive(Debug)]
pub struct Permits<K: Clone + Eq + Hash> {
    most_of_one: usize,
    state: Mutex<PermitState<K>>,
}

#[derive(Debug)]
struct PermitState<K: Clone + Eq + Hash> {
    free: usize,
    users: HashMap<K, User<K>>,
    /// Users that wait for a permit and may have one, in the order of their turns.
    turns: VecDeque<K>,
}

#[derive(Debug)]
struct User<K: Clone + Eq + Hash> {
    held: usize,
    waiting: VecDeque<oneshot::Sender<Permit<K>>>,
    has_turn: bool,
    /// When so many wait, those that were dropped are removed.
    sweep_at: usize,
}

/// A queue is swept when it has grown to this length, and to twice the length that was left.
const SWEEP_FROM: usize = 64;

/// A permit. Dropping it gives it back.
#[derive(Debug)]
pub struct Permit<K: Clone + Eq + Hash> {
    permits: Arc<Permits<K>>,
    key: Option<K>,
}

impl<K: Clone + Eq + Hash> Permits<K> {
    /// `most` permits, of which one user may hold `most_of_one`. Both are at least one.
    pub fn new(most: usize, most_of_one: usize) -> Arc<Permits<K>> {
        let state =
            PermitState { free: most.max(1), users: HashMap::new(), turns: VecDeque::new() };
        Arc::new(Permits { most_of_one: most_of_one.max(1), state: Mutex::new(state) })
    }

    /// Takes a permit when it is this user's turn. Dropping the future gives up the turn.
    pub async fn take(self: &Arc<Self>, key: K) -> Permit<K> {
        let given = {
            let mut state = self.state();
            let PermitState { free, users, turns } = &mut *state;
            let user = users.entry(key.clone()).or_insert_with(|| User {
                held: 0,
                waiting: VecDeque::new(),
                has_turn: false,
                sweep_at: SWEEP_FROM,
            });
            if *free > 0 && user.held < self.most_of_one && user.waiting.is_empty() {
                *free -= 1;
                user.held += 1;
                return Permit { permits: self.clone(), key: Some(key) };
            }
            if user.waiting.len() >= user.sweep_at {
                user.waiting.retain(|waiting| !waiting.is_closed());
                user.sweep_at = (2 * user.waiting.len()).max(SWEEP_FROM);
            }
            let (give, given) = oneshot::channel();
            user.waiting.push_back(give);
            if user.held < self.most_of_one && !user.has_turn {
                user.has_turn = true;
                turns.push_back(key.clone());
            }
            given
        };
        match given.await {
            Ok(permit) => permit,
            // A sender is dropped only after its receiver, or with all permits.
            Err(_) => std::future::pending().await,
        }
    }

    /// Permits that are held.
    pub fn held(&self) -> usize {
        self.state().users.values().map(|user| user.held).sum()
    }

    fn give_back(self: &Arc<Self>, key: K) {
        let mut handed_on = Vec::new();
        {
            let mut state = self.state();
            let PermitState { free, users, turns } = &mut *state;
            *free += 1;
            if let Entry::Occupied(mut entry) = users.entry(key.clone()) {
                let user = entry.get_mut();
                user.held -= 1;
                if user.waiting.is_empty() && user.held == 0 {
                    entry.remove();
                } else if !user.waiting.is_empty() && !user.has_turn {
                    user.has_turn = true;
                    turns.push_back(key);
                }
            }
            while *free > 0 {
                let Some(key) = turns.pop_front() else { break };
                let Entry::Occupied(mut entry) = users.entry(key.clone()) else { continue };
                let user = entry.get_mut();
                user.has_turn = false;
                let next = std::iter::from_fn(|| user.waiting.pop_front())
                    .find(|waiting| !waiting.is_closed());
                if let Some(waiting) = next {
                    *free -= 1;
                    user.held += 1;
                    let permit = Permit { permits: self.clone(), key: Some(key.clone()) };
                    handed_on.push((waiting, permit));
                }
                if user.waiting.is_empty() {
                    if user.held == 0 {
                        entry.remove();
                    }
                } else if user.held < self.most_of_one {
                    user.has_turn = true;
                    turns.push_back(key);
                }
            }
        }
        // A permit whose receiver was dropped is dropped here, and so released again.
        for (waiting, permit) in handed_on {
            let _ = waiting.send(permit);
        }
    }

    /// No panic happens while the lock is held.
    fn state(&self) -> MutexGuard<'_, PermitState<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> Drop for Permit<K> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.permits.give_back(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::{Pin, pin};
    use std::task::Poll;

    use super::*;

    async fn poll<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
    }

    #[tokio::test]
    async fn a_user_holds_only_its_part_and_leaves_the_rest_to_others() {
        let permits = Permits::new(3, 2);
        let first = [permits.take('a').await, permits.take('a').await];
        let mut third = pin!(permits.take('a'));
        assert!(poll(third.as_mut()).await.is_pending());
        let other = permits.take('b').await;
        let mut second_other = pin!(permits.take('b'));
        assert!(poll(second_other.as_mut()).await.is_pending(), "all are held");
        assert_eq!(permits.held(), 3);
        drop(first);
        let (third, second_other) = (third.await, second_other.await);
        drop((third, second_other, other));
        assert_eq!(permits.held(), 0);
        assert!(permits.state().users.is_empty() && permits.state().turns.is_empty());
    }

    #[tokio::test]
    async fn users_take_turns() {
        let permits = Permits::new(1, 1);
        let held = permits.take(0).await;
        let mut waiting: Vec<_> = [1, 1, 1, 2, 3, 3]
            .map(|user| (user, Box::pin(permits.take(user))))
            .into_iter()
            .collect();
        for (_, take) in &mut waiting {
            assert!(poll(take.as_mut()).await.is_pending());
        }
        drop(held);
        let mut order = Vec::new();
        while !waiting.is_empty() {
            let mut next = None;
            for (at, (_, take)) in waiting.iter_mut().enumerate() {
                if let Poll::Ready(permit) = poll(take.as_mut()).await {
                    next = Some((at, permit));
                    break;
                }
            }
            let (at, permit) = next.expect("somebody's turn");
            order.push(waiting.remove(at).0);
            drop(permit);
        }
        assert_eq!(order, [1, 2, 3, 1, 3, 1]);
    }

    #[tokio::test]
    async fn users_that_give_up_their_turn_delay_nobody_and_leave_nothing_behind() {
        let permits = Permits::new(1, 1);
        let held = permits.take('a').await;
        for _ in 0..10 * SWEEP_FROM {
            let mut left = pin!(permits.take('a'));
            assert!(poll(left.as_mut()).await.is_pending());
        }
        assert!(permits.state().users[&'a'].waiting.len() <= SWEEP_FROM);
        let mut given = Box::pin(permits.take('b'));
        assert!(poll(given.as_mut()).await.is_pending());
        let mut last = pin!(permits.take('a'));
        assert!(poll(last.as_mut()).await.is_pending());
        drop(held);
        // It had been granted the permit, which passes to the next user.
        drop(given);
        drop(last.await);
        assert_eq!(permits.held(), 0);
        assert!(permits.state().users.is_empty());
    }
}
