//! Values by small numbers that are used again after a removal.
//!
//! Numbers decide ties and orders, so which number a new value gets is part of the engine's state:
//! the one released last, or else the next one. An [`ArenaImage`] keeps that.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

use super::check::ImageError;
use super::index::Idx;

/// Values of type `T` by numbers of type `I`. Insertion, removal and look-up are O(1).
#[derive(Debug)]
pub(super) struct Arena<I, T> {
    entries: Vec<Entry<T>>,
    /// The number that the next value gets. Where that is vacant, the one after it is in the entry.
    next: u32,
    len: usize,
    index: PhantomData<I>,
}

#[derive(Debug)]
enum Entry<T> {
    Occupied(T),
    /// Has the number that is used after this one.
    Vacant(u32),
}

impl<T> Entry<T> {
    fn get(&self) -> Option<&T> {
        match self {
            Entry::Occupied(value) => Some(value),
            Entry::Vacant(_) => None,
        }
    }

    fn get_mut(&mut self) -> Option<&mut T> {
        match self {
            Entry::Occupied(value) => Some(value),
            Entry::Vacant(_) => None,
        }
    }
}

impl<I: Idx, T> Arena<I, T> {
    pub(super) const fn new() -> Self {
        Arena { entries: Vec::new(), next: 0, len: 0, index: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All numbers are below this one.
    pub(super) fn places(&self) -> usize {
        self.entries.len()
    }

    /// Makes room for so many more values.
    pub(super) fn reserve(&mut self, more: usize) {
        let vacant = self.entries.len() - self.len;
        self.entries.reserve(more.saturating_sub(vacant));
    }

    pub(super) fn insert(&mut self, value: T) -> I {
        let number = self.next;
        match self.entries.get_mut(number as usize) {
            Some(entry) => {
                if let Entry::Vacant(next) = *entry {
                    self.next = next;
                }
                *entry = Entry::Occupied(value);
            }
            None => {
                self.entries.push(Entry::Occupied(value));
                self.next = self.entries.len() as u32;
            }
        }
        self.len += 1;
        I::from_number(number)
    }

    /// Takes a value out. `None` where there is none.
    pub(super) fn take(&mut self, index: I) -> Option<T> {
        let number = index.number();
        let entry = self.entries.get_mut(number as usize)?;
        if let Entry::Vacant(_) = entry {
            return None;
        }
        let taken = std::mem::replace(entry, Entry::Vacant(self.next));
        self.next = number;
        self.len -= 1;
        match taken {
            Entry::Occupied(value) => Some(value),
            Entry::Vacant(_) => None,
        }
    }

    /// Takes a value out that is there.
    ///
    /// # Panics
    /// If it is not, as an index does.
    pub(super) fn remove(&mut self, index: I) -> T {
        match self.take(index) {
            Some(value) => value,
            None => absent(index.number()),
        }
    }

    pub(super) fn get(&self, index: I) -> Option<&T> {
        self.entries.get(index.place()).and_then(Entry::get)
    }

    pub(super) fn get_mut(&mut self, index: I) -> Option<&mut T> {
        self.entries.get_mut(index.place()).and_then(Entry::get_mut)
    }

    pub(super) fn contains(&self, index: I) -> bool {
        self.get(index).is_some()
    }

    /// The values in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        let entries = (0..).zip(&self.entries);
        entries.filter_map(|(number, entry)| Some((I::from_number(number), entry.get()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        let entries = (0..).zip(&mut self.entries);
        entries.filter_map(|(number, entry)| Some((I::from_number(number), entry.get_mut()?)))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter_map(Entry::get_mut)
    }

    #[cfg(test)]
    pub(super) fn clear(&mut self) {
        *self = Arena::new();
    }

    /// The arena as data, each value as `image` gives it.
    pub(super) fn image<U>(&self, mut image: impl FnMut(I, &T) -> U) -> ArenaImage<U> {
        let mut entries = Vec::with_capacity(self.entries.len());
        let numbered = (0..).zip(&self.entries);
        entries.extend(
            numbered.map(|(number, entry)| {
                entry.get().map(|value| image(I::from_number(number), value))
            }),
        );
        let mut vacant = Vec::with_capacity(self.entries.len() - self.len);
        let mut next = self.next;
        while let Some(Entry::Vacant(after)) = self.entries.get(next as usize) {
            vacant.push(next);
            next = *after;
        }
        ArenaImage { entries, vacant }
    }

    /// The arena of which this is the image, each value as `restore` makes it.
    pub(super) fn from_image<U>(
        image: ArenaImage<U>,
        mut restore: impl FnMut(I, U) -> Result<T, ImageError>,
    ) -> Result<Self, ImageError> {
        let ArenaImage { entries, vacant } = image;
        let places = u32::try_from(entries.len()).ok().filter(|places| *places < u32::MAX);
        let places = places.ok_or(ImageError::new("there are too many numbers"))?;
        let mut arena = Arena {
            entries: Vec::with_capacity(entries.len()),
            next: places,
            len: entries.len().saturating_sub(vacant.len()),
            index: PhantomData,
        };
        let mut found_vacant = 0;
        for (number, entry) in (0..).zip(entries) {
            arena.entries.push(match entry {
                Some(value) => Entry::Occupied(restore(I::from_number(number), value)?),
                None => {
                    found_vacant += 1;
                    Entry::Vacant(u32::MAX)
                }
            });
        }
        if found_vacant != vacant.len() {
            return Err(ImageError::new("the vacant numbers are not those of the arena"));
        }
        for number in vacant.into_iter().rev() {
            match arena.entries.get_mut(number as usize) {
                Some(Entry::Vacant(next)) if *next == u32::MAX => *next = arena.next,
                _ => return Err(ImageError::new("the vacant numbers are not those of the arena")),
            }
            arena.next = number;
        }
        Ok(arena)
    }
}

impl<I: Idx, T> Index<I> for Arena<I, T> {
    type Output = T;

    fn index(&self, index: I) -> &T {
        match self.get(index) {
            Some(value) => value,
            None => absent(index.number()),
        }
    }
}

impl<I: Idx, T> IndexMut<I> for Arena<I, T> {
    fn index_mut(&mut self, index: I) -> &mut T {
        match self.get_mut(index) {
            Some(value) => value,
            None => absent(index.number()),
        }
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn absent(number: u32) -> ! {
    panic!("nothing has the number {number}")
}

/// An [`Arena`] as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ArenaImage<T> {
    /// By number.
    pub(super) entries: Vec<Option<T>>,
    /// The numbers without a value, in the order in which they will be used.
    vacant: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::index::SlotIdx;

    fn restore(image: ArenaImage<u32>) -> Result<Arena<SlotIdx, u32>, ImageError> {
        Arena::from_image(image, |_, value| Ok(value))
    }

    proptest! {
        #[test]
        fn an_arena_is_a_map_that_numbers_what_is_put_in(
            steps in prop::collection::vec((any::<bool>(), 0..20u32), 0..100),
            cut in 0..100usize,
        ) {
            let mut arena = Arena::<SlotIdx, u32>::new();
            let (mut plain, mut free, mut next) = (BTreeMap::new(), Vec::new(), 0);
            for (step, (insert, number)) in steps.into_iter().enumerate() {
                if step == cut {
                    let image = arena.image(|_, value| *value);
                    arena = restore(image.clone()).unwrap();
                    prop_assert_eq!(arena.image(|_, value| *value), image);
                }
                if insert {
                    let expected = free.pop().unwrap_or_else(|| {
                        next += 1;
                        next - 1
                    });
                    prop_assert_eq!(arena.insert(number).number(), expected);
                    plain.insert(expected, number);
                } else {
                    let taken = plain.remove(&number);
                    free.extend(taken.map(|_| number));
                    prop_assert_eq!(arena.take(SlotIdx::from_number(number)), taken);
                }
                prop_assert_eq!(arena.len(), plain.len());
                let all: Vec<_> = arena.iter().map(|(slot, value)| (slot.number(), *value)).collect();
                prop_assert_eq!(all, plain.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn images_that_contradict_themselves_are_refused() {
        for (entries, vacant) in [
            (vec![Some(1), None], vec![]),
            (vec![Some(1), None], vec![0]),
            (vec![Some(1), None], vec![2]),
            (vec![None, None], vec![1, 1]),
            (vec![Some(1)], vec![1]),
        ] {
            let image = ArenaImage { entries, vacant };
            assert!(restore(image.clone()).is_err(), "{image:?}");
        }
    }
}
