//! Collections that keep the engine deterministic: a hash map that cannot be iterated, and
//! intrusive lists over dense indices.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::hint::black_box;

use ahash::RandomState;

use super::check::hold;
use super::image::ImageError;

/// The key of every hash in one engine. Peers choose names and ids; a secret seed keeps them from
/// choosing ones that collide. It never shows in what the engine decides, since a [`Lookup`]
/// cannot be iterated.
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

/// No item: the end of a chain.
pub(super) const NONE: u32 = u32::MAX;

/// Finds numbers that are listed twice, or are too large, in lists of an image.
#[derive(Debug)]
pub(super) struct Unique(Vec<bool>);

impl Unique {
    /// For numbers below `places`.
    pub(super) fn new(places: usize) -> Unique {
        Unique(vec![false; places])
    }

    fn note(&mut self, number: u32) -> Result<(), ImageError> {
        match self.0.get_mut(number as usize) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(ImageError::new(format!("number {number} does not belong in a list"))),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    head: u32,
    tail: u32,
}

const EMPTY: Ends = Ends { head: NONE, tail: NONE };

const UNLINKED: Link = Link { prev: NONE, next: NONE };

/// Many first-in-first-out lists that share one set of items, sorted into lists in `N` ways at once;
/// each item is in at most one list of each way. All operations are O(1) but iteration. The links of
/// an item are kept together, since who moves it moves it in all ways.
#[derive(Debug)]
pub(super) struct Chains<const N: usize> {
    ends: [Vec<Ends>; N],
    links: Vec<[Link; N]>,
}

impl<const N: usize> Default for Chains<N> {
    fn default() -> Self {
        Chains { ends: [const { Vec::new() }; N], links: Vec::new() }
    }
}

impl<const N: usize> Chains<N> {
    /// Appends `item` to list `chain` of the way `way`. The item must not be in a list of that way.
    pub(super) fn push_back(&mut self, way: usize, chain: usize, item: u32) {
        let ends = &mut self.ends[way];
        if ends.len() <= chain {
            ends.resize(chain + 1, EMPTY);
        }
        if self.links.len() <= item as usize {
            self.links.resize(item as usize + 1, [UNLINKED; N]);
        }
        let ends = &mut ends[chain];
        self.links[item as usize][way] = Link { prev: ends.tail, next: NONE };
        match ends.tail {
            NONE => ends.head = item,
            tail => self.links[tail as usize][way].next = item,
        }
        ends.tail = item;
    }

    /// Appends the items of a list of an image.
    pub(super) fn fill(
        &mut self,
        way: usize,
        chain: usize,
        items: &[u32],
        unique: &mut Unique,
    ) -> Result<(), ImageError> {
        for item in items {
            unique.note(*item)?;
            self.push_back(way, chain, *item);
        }
        Ok(())
    }

    /// Takes `item` out of list `chain` of the way, in which it must be.
    pub(super) fn remove(&mut self, way: usize, chain: usize, item: u32) {
        let Link { prev, next } = self.links[item as usize][way];
        let ends = &mut self.ends[way][chain];
        match prev {
            NONE => ends.head = next,
            prev => self.links[prev as usize][way].next = next,
        }
        match next {
            NONE => ends.tail = prev,
            next => self.links[next as usize][way].prev = prev,
        }
    }

    /// The oldest item of a list.
    pub(super) fn first(&self, way: usize, chain: usize) -> Option<u32> {
        self.ends[way].get(chain).map(|ends| ends.head).filter(|head| *head != NONE)
    }

    /// Whether a list has no item.
    pub(super) fn is_empty(&self, way: usize, chain: usize) -> bool {
        self.first(way, chain).is_none()
    }

    /// The items of a list, oldest first.
    pub(super) fn iter(&self, way: usize, chain: usize) -> impl Iterator<Item = u32> + '_ {
        self.iter_from(way, self.first(way, chain))
    }

    /// The items of a list from `first` on.
    pub(super) fn iter_from(
        &self,
        way: usize,
        first: Option<u32>,
    ) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(first, move |item| {
            Some(self.links[*item as usize][way].next).filter(|next| *next != NONE)
        })
    }

    /// Brings the links of an item into the near caches.
    pub(super) fn bring_near(&self, item: u32) {
        black_box(self.links.get(item as usize).copied());
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
        chain_of: impl Fn(u32) -> Option<usize>,
    ) -> Result<(), String> {
        let mut found = 0;
        for (chain, ends) in self.ends[way].iter().enumerate() {
            let mut last = NONE;
            let mut item = ends.head;
            while item != NONE {
                let link = self.links.get(item as usize).map(|links| links[way]);
                let link = link.ok_or_else(|| format!("{what}: item {item} has no link"))?;
                hold(link.prev == last, || format!("{what}: {item} is badly linked"))?;
                hold(chain_of(item) == Some(chain), || {
                    format!("{what}: {item} is in chain {chain}, not {:?}", chain_of(item))
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
#[derive(Debug, Default)]
pub(super) struct DenseSet {
    items: Vec<u32>,
    position: Vec<u32>,
    /// A bit for each index, set for those in the set: mostly it is asked for ones that are not,
    /// and the bits of all stay in the nearest cache.
    bits: Vec<u64>,
}

impl DenseSet {
    pub(super) fn insert(&mut self, item: u32) {
        if self.contains(item) {
            return;
        }
        if self.position.len() <= item as usize {
            self.position.resize(item as usize + 1, NONE);
            self.bits.resize(item as usize / 64 + 1, 0);
        }
        self.bits[item as usize / 64] |= 1 << (item % 64);
        self.position[item as usize] = self.items.len() as u32;
        self.items.push(item);
    }

    pub(super) fn remove(&mut self, item: u32) {
        if !self.contains(item) {
            return;
        }
        let position = self.position[item as usize] as usize;
        self.items.swap_remove(position);
        if let Some(moved) = self.items.get(position) {
            self.position[*moved as usize] = position as u32;
        }
        self.position[item as usize] = NONE;
        self.bits[item as usize / 64] &= !(1 << (item % 64));
    }

    pub(super) fn contains(&self, item: u32) -> bool {
        self.bits.get(item as usize / 64).is_some_and(|bits| bits & 1 << (item % 64) != 0)
    }

    /// Where in [`Self::items`] the item is.
    pub(super) fn place(&self, item: u32) -> Option<usize> {
        let position = self.position.get(item as usize).filter(|position| **position != NONE)?;
        Some(*position as usize)
    }

    pub(super) fn items(&self) -> &[u32] {
        &self.items
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the set is sound and holds items for which `belongs` only. That it holds all of
    /// them is for the caller to compare.
    pub(super) fn audit(&self, what: &str, belongs: impl Fn(u32) -> bool) -> Result<(), String> {
        for (position, item) in self.items.iter().enumerate() {
            let noted = self.position.get(*item as usize).copied();
            hold(noted == Some(position as u32), || format!("{what}: {item} is misplaced"))?;
            hold(belongs(*item), || format!("{what}: {item} does not belong"))?;
        }
        let placed = self.position.iter().filter(|position| **position != NONE).count();
        hold(placed == self.items.len(), || format!("{what}: {placed} items have a place"))?;
        let noted: usize = self.bits.iter().map(|bits| bits.count_ones() as usize).sum();
        let sound = noted == placed && self.items.iter().all(|item| self.contains(*item));
        hold(sound, || format!("{what}: {noted} items have a bit"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_keep_arrival_order_through_removal_and_return() {
        let mut chains = Chains::<2>::default();
        for item in [3, 1, 2] {
            chains.push_back(0, 7, item);
            chains.push_back(1, 0, item);
        }
        chains.remove(0, 7, 1);
        chains.push_back(0, 0, 1);
        chains.push_back(0, 7, 9);
        assert_eq!(chains.iter(0, 7).collect::<Vec<_>>(), [3, 2, 9]);
        assert_eq!(chains.iter(0, 0).collect::<Vec<_>>(), [1]);
        assert_eq!(chains.iter(1, 0).collect::<Vec<_>>(), [3, 1, 2]);
        chains.remove(0, 0, 1);
        assert!(chains.is_empty(0, 0) && chains.is_empty(0, 100) && !chains.is_empty(1, 0));
    }

    #[test]
    fn dense_sets_hold_each_item_once() {
        let mut set = DenseSet::default();
        for item in [5, 0, 5, 9] {
            set.insert(item);
        }
        set.remove(5);
        set.remove(5);
        assert_eq!(set.items(), [9, 0]);
        assert!(set.contains(9) && !set.contains(5) && !set.contains(1000));
    }
}
