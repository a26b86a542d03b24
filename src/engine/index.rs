//! Numbers of things: whatever has a name outside the engine has a small number inside.
//!
//! Each kind of thing has a number type of its own, so that none is taken for another.

use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

/// A small number that identifies something.
pub(super) trait Idx: Copy + Eq + Ord + Hash + Debug {
    /// The number of nothing.
    const NONE: Self;

    fn from_number(number: u32) -> Self;

    fn number(self) -> u32;

    /// The number as an index.
    fn place(self) -> usize {
        self.number() as usize
    }
}

macro_rules! define_idx {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub(super) struct $name(u32);

        impl Idx for $name {
            const NONE: Self = $name(u32::MAX);

            fn from_number(number: u32) -> Self {
                $name(number)
            }

            fn number(self) -> u32 {
                self.0
            }
        }
    )*};
}

define_idx! {
    NodeIdx,
    /// An entry in a node's list of grants.
    SlotIdx,
    /// A running session.
    SessionIdx,
    /// A request within its session.
    ReqIdx,
    /// A class of pending requests within its session and type.
    ClassIdx,
    HostIdx,
    RackIdx,
    PoolIdx,
    /// A pool group.
    GroupIdx,
}

/// A list by numbers of one kind.
#[derive(Debug)]
pub(super) struct IdxVec<I, T> {
    list: Vec<T>,
    index: PhantomData<I>,
}

impl<I: Idx, T> IdxVec<I, T> {
    pub(super) const fn new() -> Self {
        IdxVec { list: Vec::new(), index: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn get(&self, index: I) -> Option<&T> {
        self.list.get(index.place())
    }

    pub(super) fn get_mut(&mut self, index: I) -> Option<&mut T> {
        self.list.get_mut(index.place())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.list.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.list.iter_mut()
    }

    /// Makes the list so long that `places` values fit without another allocation.
    pub(super) fn reserve_for(&mut self, places: usize) {
        self.list.reserve(places.saturating_sub(self.list.len()));
    }
}

impl<I: Idx, T: Clone> IdxVec<I, T> {
    /// A list of so many equal values.
    pub(super) fn of(value: T, len: usize) -> Self {
        IdxVec { list: vec![value; len], index: PhantomData }
    }

    /// Makes the list long enough for the number, with `value` in new places.
    pub(super) fn reach(&mut self, index: I, value: T) {
        if self.list.len() <= index.place() {
            self.list.resize(index.place() + 1, value);
        }
    }
}

impl<I: Idx, T> Index<I> for IdxVec<I, T> {
    type Output = T;

    fn index(&self, index: I) -> &T {
        &self.list[index.place()]
    }
}

impl<I: Idx, T> IndexMut<I> for IdxVec<I, T> {
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.list[index.place()]
    }
}
