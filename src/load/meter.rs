//! Measurements by name, while the measured time runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corona_process::histogram::{Histogram, Snapshot};

/// Durations to 1.6 %, and to 125 ns at best.
pub(super) type Times = Snapshot<PRECISION>;

/// Buckets for each doubling of a duration.
const PRECISION: usize = 64;

/// One thing that takes time again and again.
#[derive(Debug)]
pub(super) struct Measure {
    name: String,
    open: Arc<AtomicBool>,
    times: Histogram<PRECISION>,
    /// Since the start of the run, measured or not.
    seen: AtomicU64,
}

impl Measure {
    pub(super) fn record(&self, time: Duration) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        if self.open.load(Ordering::Relaxed) {
            self.times.record(time);
        }
    }

    /// It has begun then and ends now.
    pub(super) fn record_since(&self, begin: Instant) {
        self.record(begin.elapsed());
    }

    /// How often it was seen since the start of the run.
    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }
}

/// A number of things that happened, which take no time of their own.
#[derive(Debug)]
pub(super) struct Count {
    name: &'static str,
    open: Arc<AtomicBool>,
    number: AtomicU64,
}

impl Count {
    /// So many more.
    pub(super) fn add(&self, number: u64) {
        if self.open.load(Ordering::Relaxed) {
            self.number.fetch_add(number, Ordering::Relaxed);
        }
    }
}

/// All that is measured in a run.
#[derive(Debug, Default)]
pub(super) struct Meter {
    open: Arc<AtomicBool>,
    measures: Mutex<Vec<Arc<Measure>>>,
    counts: Mutex<Vec<Arc<Count>>>,
}

impl Meter {
    /// The measure of this name. They are listed in the order in which they were first named.
    pub(super) fn measure(&self, name: &str) -> Arc<Measure> {
        let mut measures = locked(&self.measures);
        if let Some(known) = measures.iter().find(|measure| measure.name == name) {
            return known.clone();
        }
        let measure = Arc::new(Measure {
            name: name.into(),
            open: self.open.clone(),
            times: Histogram::default(),
            seen: AtomicU64::new(0),
        });
        measures.push(measure.clone());
        measure
    }

    pub(super) fn count(&self, name: &'static str) -> Arc<Count> {
        let mut counts = locked(&self.counts);
        if let Some(known) = counts.iter().find(|count| count.name == name) {
            return known.clone();
        }
        let count = Arc::new(Count { name, open: self.open.clone(), number: AtomicU64::new(0) });
        counts.push(count.clone());
        count
    }

    /// From now on, or no longer.
    pub(super) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Relaxed);
    }

    /// The measurements since the last call, by name.
    pub(super) fn take(&self) -> Vec<(String, Times)> {
        let measures = locked(&self.measures);
        measures.iter().map(|measure| (measure.name.clone(), measure.times.take())).collect()
    }

    /// The counters.
    pub(super) fn counted(&self) -> Vec<(&'static str, u64)> {
        let counts = locked(&self.counts);
        counts.iter().map(|count| (count.name, count.number.load(Ordering::Relaxed))).collect()
    }

    /// How often each was seen since the start of the run.
    pub(super) fn seen(&self) -> Vec<(String, u64)> {
        let measures = locked(&self.measures);
        measures.iter().map(|measure| (measure.name.clone(), measure.seen())).collect()
    }
}

/// No panic happens while one of these locks is held.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happens_while_it_is_open_is_measured() {
        let meter = Meter::default();
        let (measure, count) = (meter.measure("a"), meter.count("b"));
        let happen = || {
            measure.record(Duration::from_secs(1));
            count.add(2);
        };
        happen();
        meter.set_open(true);
        happen();
        meter.measure("a").record(Duration::from_secs(3));
        meter.set_open(false);
        happen();
        let [(name, times)] = &meter.take()[..] else { panic!("one measure") };
        assert_eq!(
            (name.as_str(), times.count(), times.mean()),
            ("a", 2, Some(Duration::from_secs(2)))
        );
        assert_eq!(meter.counted(), [("b", 2)]);
        assert_eq!(meter.seen(), [("a".to_owned(), 4)]);
    }
}
