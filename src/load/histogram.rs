//! A histogram of durations: counts in buckets that are never wider than 1.6 % of their duration.
//! Recording is one atomic addition, without allocation or waiting.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of each doubling are this many, as a power of two.
const PRECISION_BITS: u32 = 6;
/// Longer times are counted as this long: 2^42 ns, an hour and 13 minutes.
const LONGEST_NS: u64 = (1 << 42) - 1;
const BUCKETS: usize = bucket(LONGEST_NS) + 1;

/// Times, counted.
#[derive(Debug)]
pub(super) struct Histogram {
    buckets: Box<[AtomicU64]>,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        let buckets = std::iter::repeat_with(AtomicU64::default).take(BUCKETS).collect();
        Histogram { buckets, total_ns: AtomicU64::new(0), longest_ns: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts a time.
    pub(super) fn record(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(LONGEST_NS);
        if let Some(counter) = self.buckets.get(bucket(ns)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// The counts since the last call, which resets them. Values that are recorded meanwhile
    /// are in this result or in the next.
    pub(super) fn take(&self) -> Times {
        let counts = self.buckets.iter().enumerate().filter_map(|(bucket, counter)| {
            let count = counter.swap(0, Ordering::Relaxed);
            (count > 0).then_some((upper_edge(bucket), count))
        });
        let counts: Vec<(u64, u64)> = counts.collect();
        let count = counts.iter().map(|(_, count)| count).sum();
        Times {
            counts,
            count,
            total_ns: self.total_ns.swap(0, Ordering::Relaxed),
            longest_ns: self.longest_ns.swap(0, Ordering::Relaxed),
        }
    }
}

/// The bucket of a time: one each below 128 ns, then 64 for each doubling.
const fn bucket(ns: u64) -> usize {
    let bits = u64::BITS - ns.leading_zeros();
    let shift = bits.saturating_sub(PRECISION_BITS + 1);
    ((shift as usize) << PRECISION_BITS) + (ns >> shift) as usize
}

/// The longest time that belongs to a bucket.
fn upper_edge(bucket: usize) -> u64 {
    let shift = (bucket >> PRECISION_BITS).saturating_sub(1);
    let step = bucket - (shift << PRECISION_BITS);
    (((step as u64) + 1) << shift) - 1
}

/// Times that were counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// The longest time of a bucket in nanoseconds, and how many are in it; ascending.
    counts: Vec<(u64, u64)>,
    /// How many there are.
    pub(super) count: u64,
    total_ns: u64,
    longest_ns: u64,
}

impl Times {
    /// The time that at most this share of all exceed: 0.5 is the median, 1 the longest. None when
    /// nothing was counted.
    pub(super) fn at(&self, share: f64) -> Option<Duration> {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let wanted = wanted.clamp(1, self.count.max(1));
        let mut seen = 0;
        let (ns, _) = self.counts.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        })?;
        // A bucket may end later than the longest time that is in it.
        Some(Duration::from_nanos((*ns).min(self.longest_ns.max(1))))
    }

    /// The mean. None when nothing was counted.
    pub(super) fn mean(&self) -> Option<Duration> {
        self.total_ns.checked_div(self.count).map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_one_another_and_hold_what_belongs_to_them() {
        let mut lower = 0;
        for number in 0..BUCKETS {
            let upper = upper_edge(number);
            assert_eq!((bucket(lower), bucket(upper)), (number, number));
            assert!((upper - lower) as f64 <= lower as f64 * 0.016, "{lower} to {upper}");
            lower = upper + 1;
        }
        assert_eq!(lower, LONGEST_NS + 1);
    }

    #[test]
    fn nothing_was_counted() {
        let times = Histogram::default().take();
        assert_eq!((times.count, times.at(0.5), times.mean()), (0, None, None));
    }

    #[test]
    fn taking_forgets() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_secs(9_999));
        assert_eq!(histogram.take().at(1.0), Some(Duration::from_nanos(LONGEST_NS)));
        assert_eq!(histogram.take(), Times::default());
    }

    proptest! {
        #[test]
        fn shares_are_within_the_width_of_a_bucket(
            times_ns in prop::collection::vec(0..10_000_000_000_u64, 1..200),
            share in 0.0..=1.0_f64,
        ) {
            let histogram = Histogram::default();
            for ns in &times_ns {
                histogram.record(Duration::from_nanos(*ns));
            }
            let mut sorted = times_ns.clone();
            sorted.sort_unstable();
            let rank = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len());
            let exact = sorted[rank - 1];
            let times = histogram.take();
            let told = times.at(share).unwrap().as_nanos() as u64;
            prop_assert!(told >= exact && (told - exact) as f64 <= exact as f64 * 0.016 + 1.0);
            prop_assert_eq!(times.count, sorted.len() as u64);
            prop_assert!(times.at(1.0).unwrap().as_nanos() as u64 <= sorted[sorted.len() - 1].max(1));
        }
    }
}
