//! Numbers of things: what the engine knows by name outside it knows by a small number inside.

/// A small number that stands for something.
pub(super) trait Idx: Copy + Eq + Ord + std::fmt::Debug {
    fn from_number(number: u32) -> Self;
    fn number(self) -> u32;
}

impl Idx for u32 {
    fn from_number(number: u32) -> Self {
        number
    }

    fn number(self) -> u32 {
        self
    }
}
