//! An ordered set whose first element changes often.
//!
//! A pass grants slots to the first element, which moves back a little with each slot: in most
//! cases it stays first. So the first is kept apart from the others, and is entered again only if
//! it has to move behind another.

use std::collections::BTreeSet;

/// Elements in order, each once.
#[derive(Debug)]
pub(super) struct Queue<K> {
    /// Comes before all of `rest`.
    first: Option<K>,
    rest: BTreeSet<K>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Queue { first: None, rest: BTreeSet::new() }
    }
}

impl<K: Ord> Queue<K> {
    pub(super) fn first(&self) -> Option<&K> {
        self.first.as_ref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.first.as_ref() == Some(key) || self.rest.contains(key)
    }

    /// Those that come before `key`, in order.
    pub(super) fn before(&self, key: &K) -> impl Iterator<Item = &K> {
        self.first.as_ref().filter(|first| *first < key).into_iter().chain(self.rest.range(..key))
    }

    pub(super) fn insert(&mut self, key: K) {
        match &mut self.first {
            Some(first) if *first == key => {}
            Some(first) if key < *first => {
                let second = std::mem::replace(first, key);
                self.rest.insert(second);
            }
            Some(_) => {
                self.rest.insert(key);
            }
            None => self.first = Some(key),
        }
    }

    pub(super) fn remove(&mut self, key: &K) {
        if self.first.as_ref() == Some(key) {
            self.first = self.rest.pop_first();
        } else {
            self.rest.remove(key);
        }
    }

    /// Changes an element that equals `key`, if there is one, and moves it to its new place. No
    /// other element may equal the changed one.
    pub(super) fn change(&mut self, key: &K, change: impl FnOnce(&mut K)) {
        match &mut self.first {
            Some(first) if first == key => {
                change(first);
                if self.rest.first().is_some_and(|second| second < first) {
                    let second = self.rest.pop_first();
                    let moved = std::mem::replace(&mut self.first, second);
                    self.rest.extend(moved);
                }
            }
            _ => {
                if let Some(mut key) = self.rest.take(key) {
                    change(&mut key);
                    self.insert(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_queue_is_an_ordered_set(
            steps in prop::collection::vec((0..3u8, 0..30u32, 0..30u32), 0..100),
        ) {
            let (mut queue, mut plain) = (Queue::default(), BTreeSet::new());
            for (what, key, to) in steps {
                match what {
                    0 => {
                        queue.insert(key);
                        plain.insert(key);
                    }
                    1 => {
                        queue.remove(&key);
                        plain.remove(&key);
                    }
                    _ if plain.contains(&to) => {}
                    _ => {
                        queue.change(&key, |key| *key = to);
                        if plain.remove(&key) {
                            plain.insert(to);
                        }
                    }
                }
                prop_assert_eq!(queue.first(), plain.first());
                prop_assert_eq!((queue.len(), queue.is_empty()), (plain.len(), plain.is_empty()));
                for key in 0..30 {
                    prop_assert_eq!(queue.contains(&key), plain.contains(&key));
                    prop_assert!(queue.before(&key).eq(plain.range(..key)));
                }
            }
        }
    }
}
