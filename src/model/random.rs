//! Random numbers that are the same for a seed on every machine and in every version.
//!
//! A seed appears in bug reports and in logs of test runs for years, so the numbers must not depend
//! on a crate's next version. SplitMix64 is ten lines and good enough to vary a simulation. It is
//! not for secrets.

/// A sequence of numbers that follows from its seed.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    /// The next number of the sequence: any one of 64 bits.
    #[expect(clippy::should_implement_trait, reason = "the sequence does not end")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound` - 1; 0 when `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.below_u64(bound as u64)).unwrap_or_default()
    }

    fn below_u64(&mut self, bound: u64) -> u64 {
        // The upper half of the product: uniform, except for a bias that no simulation can detect.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `least` to `most`, both included; `least` when `most` is smaller.
    pub fn between(&mut self, least: i64, most: i64) -> i64 {
        let count = if most < least { 0 } else { most.abs_diff(least).saturating_add(1) };
        least.saturating_add_unsigned(self.below_u64(count))
    }

    /// True so many times out of a hundred.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// One of the items; the list must not be empty.
    #[allow(clippy::indexing_slicing, reason = "below the length of a list that is not empty")]
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_forever() {
        let mut random = Random::new(1);
        let numbers = [random.next(), random.next(), random.next()];
        assert_eq!(numbers, [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67, 0xf893_a2ee_fb32_555e]);
    }

    #[test]
    fn ranges_are_filled_and_not_left() {
        let mut random = Random::new(7);
        let mut seen = [0; 6];
        for _ in 0..600 {
            seen[(random.between(-2, 3) + 2) as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
        assert_eq!((random.below(0), random.between(3, 2), random.between(3, -9)), (0, 3, 3));
    }

    #[test]
    fn the_widest_range_has_numbers_on_both_sides_of_zero() {
        let mut random = Random::new(7);
        let numbers: Vec<i64> = (0..64).map(|_| random.between(i64::MIN, i64::MAX)).collect();
        assert!(numbers.iter().any(|number| *number >= 0), "{numbers:?}");
        assert!(numbers.iter().any(|number| *number < 0), "{numbers:?}");
    }
}
