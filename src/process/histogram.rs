//! Histograms of durations, in buckets that grow with the duration.
//!
//! Each octave has `STEPS` buckets, so a duration is accurate to a part of `STEPS`, and to 125 ns at best. Counting
//! is one addition to a bucket and one to a sum, in a part of the histogram that few threads share, without a lock.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The width of the first buckets. Eight of them make a microsecond.
const UNIT_NS: u64 = 125;
/// Buckets of an octave where a metric shows the counts.
pub const COARSE: usize = 8;
/// Rows of `STEPS` buckets: the first is of the spans below `STEPS` units, each further one an octave, beyond
/// 76 hours. Longer spans count in the last bucket.
const ROWS: usize = 39;

/// Counts of spans, in `STEPS` buckets for each octave, a power of two. To be shared by threads as it is.
#[derive(Debug)]
pub struct Histogram<const STEPS: usize = COARSE> {
    parts: Box<[Part<STEPS>]>,
}

/// Counts of some of the threads.
#[derive(Debug)]
#[repr(align(128))]
struct Part<const STEPS: usize> {
    rows: [[AtomicU64; STEPS]; ROWS],
    sum_ns: AtomicU64,
}

impl<const STEPS: usize> Default for Histogram<STEPS> {
    fn default() -> Self {
        let part = |_| Part {
            rows: [const { [const { AtomicU64::new(0) }; STEPS] }; ROWS],
            sum_ns: AtomicU64::new(0),
        };
        Histogram { parts: (0..part_count()).map(part).collect() }
    }
}

impl<const STEPS: usize> Histogram<STEPS> {
    /// Counts a span.
    pub fn record(&self, span: Duration) {
        self.record_times(span, 1);
    }

    /// Counts a span `times` times.
    pub fn record_times(&self, span: Duration, times: u64) {
        let span_ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let Some(part) = self.parts.get(own_part() % self.parts.len()) else { return };
        if let Some(bucket) = part.rows.as_flattened().get(bucket_of::<STEPS>(span_ns)) {
            bucket.fetch_add(times, Ordering::Relaxed);
        }
        part.sum_ns.fetch_add(span_ns.saturating_mul(times), Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn snapshot(&self) -> Snapshot<STEPS> {
        self.sums(|count| count.load(Ordering::Relaxed))
    }

    /// The counts since the last call, which resets them. Spans that are counted meanwhile are in this result or in
    /// the next.
    pub fn take(&self) -> Snapshot<STEPS> {
        self.sums(|count| count.swap(0, Ordering::Relaxed))
    }

    fn sums(&self, read: impl Fn(&AtomicU64) -> u64) -> Snapshot<STEPS> {
        let mut snapshot = Snapshot::default();
        for part in &self.parts {
            for (total, bucket) in snapshot.buckets.iter_mut().zip(part.rows.as_flattened()) {
                *total += read(bucket);
            }
            snapshot.sum_ns = snapshot.sum_ns.wrapping_add(read(&part.sum_ns));
        }
        snapshot
    }
}

/// The counts of a histogram at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot<const STEPS: usize = COARSE> {
    buckets: Box<[u64]>,
    sum_ns: u64,
}

impl<const STEPS: usize> Default for Snapshot<STEPS> {
    fn default() -> Self {
        Snapshot { buckets: vec![0; STEPS * ROWS].into(), sum_ns: 0 }
    }
}

impl<const STEPS: usize> Snapshot<STEPS> {
    /// All spans that were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of all spans.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// The mean of all spans. `None` when nothing was counted.
    pub fn mean(&self) -> Option<Duration> {
        self.sum_ns.checked_div(self.count()).map(Duration::from_nanos)
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (total, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *total += more;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// The counts since an earlier snapshot.
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |(now, then): (&u64, &u64)| now.saturating_sub(*then);
        Snapshot {
            buckets: self.buckets.iter().zip(&earlier.buckets).map(less).collect(),
            sum_ns: self.sum_ns.wrapping_sub(earlier.sum_ns),
        }
    }

    /// The span that a part of all spans, from 0 to 1, does not exceed, give or take a part of `STEPS`.
    /// `None` when nothing was counted.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = (count as f64 * part).ceil().clamp(1.0, count as f64);
        let mut seen = 0_u64;
        let bucket = self.buckets.iter().position(|in_bucket| {
            seen += in_bucket;
            seen as f64 >= wanted
        });
        bucket.map(|bucket| Duration::from_nanos(end_of::<STEPS>(bucket)))
    }
}

impl Snapshot {
    /// Counts of spans below 1, 2, 4, ... microseconds, with that bound, for the first `octaves`
    /// bounds.
    pub fn octaves(&self, octaves: usize) -> impl Iterator<Item = (Duration, u64)> {
        let mut seen = 0;
        self.buckets.chunks(COARSE).take(octaves).enumerate().map(move |(octave, buckets)| {
            seen += buckets.iter().sum::<u64>();
            (Duration::from_micros(1 << octave), seen)
        })
    }
}

fn bucket_of<const STEPS: usize>(span_ns: u64) -> usize {
    let units = span_ns / UNIT_NS;
    if units < STEPS as u64 {
        return units as usize;
    }
    let octave = units.ilog2() - STEPS.ilog2();
    let step = (units >> octave) as usize & (STEPS - 1);
    (STEPS * (octave as usize + 1) + step).min(STEPS * ROWS - 1)
}

/// Where a bucket ends.
fn end_of<const STEPS: usize>(bucket: usize) -> u64 {
    let (octave, step) = (bucket / STEPS, (bucket % STEPS) as u64 + 1);
    match octave.checked_sub(1) {
        None => step * UNIT_NS,
        Some(octave) => ((STEPS as u64 + step) << octave) * UNIT_NS,
    }
}

/// Parts of a histogram: enough that threads seldom meet.
fn part_count() -> usize {
    const MOST: usize = 16;
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        threads.next_power_of_two().min(MOST)
    })
}

/// The number of this thread, by which it finds its part.
fn own_part() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    OWN.with(|own| {
        own.get().unwrap_or_else(|| {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            own.set(Some(number));
            number
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow_each_other<const STEPS: usize>() {
        let mut end = 0;
        for bucket in 0..STEPS * ROWS {
            assert_eq!(bucket_of::<STEPS>(end), bucket, "the first span of bucket {bucket}");
            assert!(end_of::<STEPS>(bucket) > end);
            end = end_of::<STEPS>(bucket);
            assert_eq!(bucket_of::<STEPS>(end - 1), bucket, "the last span of bucket {bucket}");
        }
        assert_eq!(bucket_of::<STEPS>(u64::MAX), STEPS * ROWS - 1);
    }

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        follow_each_other::<COARSE>();
        follow_each_other::<64>();
    }

    fn are_right<const STEPS: usize>() {
        let histogram = Histogram::<STEPS>::default();
        assert_eq!((histogram.snapshot().quantile(0.5), histogram.snapshot().mean()), (None, None));
        for micros in 1..=10_000 {
            histogram.record(Duration::from_micros(micros));
        }
        let snapshot = histogram.take();
        assert_eq!(snapshot.count(), 10_000);
        assert_eq!(snapshot.sum(), Duration::from_micros(50_005_000));
        assert_eq!(snapshot.mean(), Some(Duration::from_nanos(5_000_500)));
        for (part, exact) in [(0.0, 1.0), (0.5, 5_000.0), (0.99, 9_900.0), (1.0, 10_000.0)] {
            let found = snapshot.quantile(part).unwrap().as_secs_f64() * 1e6;
            let most = exact * (1.0 + 1.0 / STEPS as f64) + 0.125;
            assert!(found >= exact && found <= most, "{part}: {found}");
        }
        assert_eq!(histogram.take(), Snapshot::default(), "taken before");
    }

    #[test]
    fn quantiles_are_right_to_a_step() {
        are_right::<COARSE>();
        are_right::<64>();
    }

    #[test]
    fn octaves_count_what_is_below_them() {
        let histogram = <Histogram>::default();
        for (micros, times) in [(0, 1), (1, 2), (3, 4), (4, 8), (70_000_000_000_000, 16)] {
            histogram.record_times(Duration::from_micros(micros), times);
        }
        let counts: Vec<(u128, u64)> =
            histogram.snapshot().octaves(4).map(|(end, count)| (end.as_micros(), count)).collect();
        assert_eq!(counts, [(1, 1), (2, 3), (4, 7), (8, 15)]);
        assert_eq!(histogram.snapshot().count(), 31);
    }

    #[test]
    fn threads_lose_nothing_and_differences_are_differences() {
        let histogram = <Histogram>::default();
        histogram.record(Duration::from_secs(1));
        let before = histogram.snapshot();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        histogram.record(Duration::from_micros(10));
                    }
                });
            }
        });
        let after = histogram.snapshot().since(&before);
        assert_eq!((after.count(), after.sum()), (40_000, Duration::from_millis(400)));
        assert!(after.quantile(1.0).unwrap() < Duration::from_micros(12));
        let mut both = before;
        both.add(&after);
        assert_eq!(both, histogram.snapshot());
    }
}
