//! Collections that keep the engine deterministic: a hash map that cannot be iterated, and
//! intrusive lists over dense indices.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::hint::black_box;

use ahash::RandomState;

use super::check::{ImageError, hold};
use super::index::{Idx, IdxVec};

/// The key of every hash in one engine. Peers choose names and ids; a secret seed keeps them from
/// choosing ones that collide. It never affects the engine's decisions, since a [`Lookup`] cannot
/// be iterated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HashSeed(pub(super) u64);

impl HashSeed {
    /// The hasher's state for this seed.
    pub(super) fn state(self) -> RandomState {
        RandomState::with_seeds(self.0, self.0.rotate_left(17), !self.0, self.0.rotate_right(23))
    }
}

/// A hash map for looking up only.
#[derive(Debug)]
pub(super) struct Lookup<K, V>(HashMap<K, V, RandomState>);

impl<K: Hash + Eq, V> Lookup<K, V> {
    pub(super) fn new(seed: HashSeed) -> Self {
        Lookup(HashMap::with_hasher(seed.state()))
    }

    pub(super) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    pub(super) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.remove(key)
    }
}

/// Finds numbers that are listed twice, or are too large, in lists of an image.
#[derive(Debug)]
pub(super) struct Unique<I>(IdxVec<I, bool>);

impl<I: Idx> Unique<I> {
    /// For numbers below `places`.
    pub(super) fn new(places: usize) -> Self {
        Unique(IdxVec::of(false, places))
    }

    fn note(&mut self, item: I) -> Result<(), ImageError> {
        match self.0.get_mut(item) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(ImageError::new(format!("{item:?} does not belong in a list"))),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Link<I> {
    prev: I,
    next: I,
}

#[derive(Clone, Copy, Debug)]
struct Ends<I> {
    head: I,
    tail: I,
}

/// Many first-in-first-out lists that share one set of items, sorted into lists in `N` ways at
/// once; each item is in at most one list of each way. All operations are O(1) but iteration. The
/// links of an item are kept together, since a move changes it in all ways.
#[derive(Debug)]
pub(super) struct Chains<I, const N: usize> {
    ends: [Vec<Ends<I>>; N],
    links: IdxVec<I, [Link<I>; N]>,
}

impl<I: Idx, const N: usize> Default for Chains<I, N> {
    fn default() -> Self {
        Chains { ends: [const { Vec::new() }; N], links: IdxVec::new() }
    }
}

impl<I: Idx, const N: usize> Chains<I, N> {
    /// Appends `item` to list `chain` of the way `way`. The item must not be in a list of that way.
    pub(super) fn push_back(&mut self, way: usize, chain: usize, item: I) {
        let ends = &mut self.ends[way];
        if ends.len() <= chain {
            ends.resize(chain + 1, Ends { head: I::NONE, tail: I::NONE });
        }
        self.links.reach(item, [Link { prev: I::NONE, next: I::NONE }; N]);
        let ends = &mut ends[chain];
        self.links[item][way] = Link { prev: ends.tail, next: I::NONE };
        if ends.tail == I::NONE {
            ends.head = item;
        } else {
            self.links[ends.tail][way].next = item;
        }
        ends.tail = item;
    }

    /// Appends the items of a list of an image.
    pub(super) fn fill(
        &mut self,
        way: usize,
        chain: usize,
        items: &[I],
        unique: &mut Unique<I>,
    ) -> Result<(), ImageError> {
        for item in items {
            unique.note(*item)?;
            self.push_back(way, chain, *item);
        }
        Ok(())
    }

    /// Takes `item` out of list `chain` of the way, in which it must be.
    pub(super) fn remove(&mut self, way: usize, chain: usize, item: I) {
        let Link { prev, next } = self.links[item][way];
        let ends = &mut self.ends[way][chain];
        if prev == I::NONE {
            ends.head = next;
        } else {
            self.links[prev][way].next = next;
        }
        if next == I::NONE {
            ends.tail = prev;
        } else {
            self.links[next][way].prev = prev;
        }
    }

    /// The oldest item of a list.
    pub(super) fn first(&self, way: usize, chain: usize) -> Option<I> {
        self.ends[way].get(chain).map(|ends| ends.head).filter(|head| *head != I::NONE)
    }

    /// Whether a list has no item.
    pub(super) fn is_empty(&self, way: usize, chain: usize) -> bool {
        self.first(way, chain).is_none()
    }

    /// The items of a list, oldest first.
    pub(super) fn iter(&self, way: usize, chain: usize) -> impl Iterator<Item = I> + '_ {
        self.iter_from(way, self.first(way, chain))
    }

    /// The items of a list from `first` on.
    pub(super) fn iter_from(&self, way: usize, first: Option<I>) -> impl Iterator<Item = I> + '_ {
        std::iter::successors(first, move |item| {
            Some(self.links[*item][way].next).filter(|next| *next != I::NONE)
        })
    }

    /// Prefetches the links of an item.
    pub(super) fn prefetch(&self, item: I) {
        black_box(self.links.get(item).copied());
    }

    /// One more than the largest list of the way ever used.
    pub(super) fn chains(&self, way: usize) -> usize {
        self.ends[way].len()
    }

    /// Whether the lists of a way are well linked and hold exactly the `count` items for which
    /// `chain_of` names a list.
    pub(super) fn audit(
        &self,
        way: usize,
        what: &str,
        count: usize,
        chain_of: impl Fn(I) -> Option<usize>,
    ) -> Result<(), String> {
        let mut found = 0;
        for (chain, ends) in self.ends[way].iter().enumerate() {
            let mut last = I::NONE;
            let mut item = ends.head;
            while item != I::NONE {
                let link = self.links.get(item).map(|links| links[way]);
                let link = link.ok_or_else(|| format!("{what}: item {item:?} has no link"))?;
                hold(link.prev == last, || format!("{what}: {item:?} is badly linked"))?;
                hold(chain_of(item) == Some(chain), || {
                    format!("{what}: {item:?} is in chain {chain}, not {:?}", chain_of(item))
                })?;
                found += 1;
                (last, item) = (item, link.next);
            }
            hold(ends.tail == last, || format!("{what}: chain {chain} has the wrong end"))?;
        }
        hold(found == count, || format!("{what}: {found} items, not {count}"))
    }
}

/// A set of dense indices: O(1) insertion, removal and membership, iteration in a defined order.
#[derive(Debug)]
pub(super) struct DenseSet<I> {
    items: Vec<I>,
    /// [`ABSENT`] for those that are not in the set.
    position: IdxVec<I, u32>,
    /// A bit for each index, set for members: most queries are for indexes that are not members,
    /// and all bits fit into the nearest cache.
    bits: Vec<u64>,
}

const ABSENT: u32 = u32::MAX;

impl<I: Idx> Default for DenseSet<I> {
    fn default() -> Self {
        DenseSet { items: Vec::new(), position: IdxVec::new(), bits: Vec::new() }
    }
}

impl<I: Idx> DenseSet<I> {
    pub(super) fn insert(&mut self, item: I) {
        if self.contains(item) {
            return;
        }
        if self.position.len() <= item.place() {
            self.position.reach(item, ABSENT);
            self.bits.resize(item.place() / 64 + 1, 0);
        }
        self.bits[item.place() / 64] |= 1 << (item.place() % 64);
        self.position[item] = self.items.len() as u32;
        self.items.push(item);
    }

    pub(super) fn remove(&mut self, item: I) {
        if !self.contains(item) {
            return;
        }
        let position = self.position[item];
        self.items.swap_remove(position as usize);
        if let Some(moved) = self.items.get(position as usize) {
            self.position[*moved] = position;
        }
        self.position[item] = ABSENT;
        self.bits[item.place() / 64] &= !(1 << (item.place() % 64));
    }

    pub(super) fn contains(&self, item: I) -> bool {
        let bits = self.bits.get(item.place() / 64);
        bits.is_some_and(|bits| bits & 1 << (item.place() % 64) != 0)
    }

    /// Where in [`Self::items`] the item is.
    pub(super) fn place(&self, item: I) -> Option<usize> {
        let position = self.position.get(item).filter(|position| **position != ABSENT)?;
        Some(*position as usize)
    }

    pub(super) fn items(&self) -> &[I] {
        &self.items
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the set is sound and holds items for which `belongs` only. That it holds all of
    /// them is for the caller to compare.
    pub(super) fn audit(&self, what: &str, belongs: impl Fn(I) -> bool) -> Result<(), String> {
        for (position, item) in self.items.iter().enumerate() {
            let noted = self.position.get(*item).copied();
            hold(noted == Some(position as u32), || format!("{what}: {item:?} is misplaced"))?;
            hold(belongs(*item), || format!("{what}: {item:?} does not belong"))?;
        }
        let placed = self.position.iter().filter(|position| **position != ABSENT).count();
        hold(placed == self.items.len(), || format!("{what}: {placed} items have a place"))?;
        let noted: usize = self.bits.iter().map(|bits| bits.count_ones() as usize).sum();
        let sound = noted == placed && self.items.iter().all(|item| self.contains(*item));
        hold(sound, || format!("{what}: {noted} items have a bit"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::NodeIdx;

    fn node(number: u32) -> NodeIdx {
        NodeIdx::from_number(number)
    }

    fn numbers(items: impl IntoIterator<Item = NodeIdx>) -> Vec<u32> {
        items.into_iter().map(NodeIdx::number).collect()
    }

    #[test]
    fn chains_keep_arrival_order_through_removal_and_return() {
        let mut chains = Chains::<NodeIdx, 2>::default();
        for item in [3, 1, 2].map(node) {
            chains.push_back(0, 7, item);
            chains.push_back(1, 0, item);
        }
        chains.remove(0, 7, node(1));
        chains.push_back(0, 0, node(1));
        chains.push_back(0, 7, node(9));
        assert_eq!(numbers(chains.iter(0, 7)), [3, 2, 9]);
        assert_eq!(numbers(chains.iter(0, 0)), [1]);
        assert_eq!(numbers(chains.iter(1, 0)), [3, 1, 2]);
        chains.remove(0, 0, node(1));
        assert!(chains.is_empty(0, 0) && chains.is_empty(0, 100) && !chains.is_empty(1, 0));
    }

    #[test]
    fn dense_sets_hold_each_item_once() {
        let mut set = DenseSet::<NodeIdx>::default();
        for item in [5, 0, 5, 9].map(node) {
            set.insert(item);
        }
        set.remove(node(5));
        set.remove(node(5));
        assert_eq!(set.items(), [node(9), node(0)]);
        assert!(set.contains(node(9)) && !set.contains(node(5)) && !set.contains(node(1000)));
    }
}
