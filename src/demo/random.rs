//! Numbers that follow from a seed, in streams.

use corona_model::random::Random as Sequence;

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(Sequence);

impl Random {
    /// The same seed and stream give the same numbers.
    pub(super) fn new(seed: u64, stream: u64) -> Random {
        Random(Sequence::new(Sequence::new(seed).next() ^ stream))
    }

    /// From 0 to `bound` - 1; 0 when `bound` is 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }

    /// From `least` to `most`.
    pub(super) fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.unit()
    }

    /// True so many times out of a hundred.
    pub(super) fn percent(&mut self, chance: usize) -> bool {
        self.0.percent(chance)
    }

    /// One of the items; `None` when there are none.
    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// The time to the next of events that happen `rate` times a second on average.
    pub(super) fn pause(&mut self, rate: f64) -> f64 {
        -(1.0 - self.unit()).ln() / rate
    }

    /// From 0 to just below 1.
    fn unit(&mut self) -> f64 {
        (self.0.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
