//! Samples of the last hour: the use of slots, and latencies.
//!
//! Both are rings of a fixed size; a sample reads only a few numbers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::metrics::{Metrics, Snapshot};
use corona_engine::SlotCounts;
use corona_model::types::{Millis, PerType, ResourceType};

/// Samples that are kept.
pub(crate) const SAMPLES: usize = 360;
/// The span that "lately" covers, and the interval between its samples.
const LATELY_MS: i64 = 60_000;
const LATELY_STEP_MS: i64 = 10_000;

/// The use of slots at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// When.
    pub(crate) at: Millis,
    /// Slots, all and used.
    pub(crate) slots: PerType<SlotCounts>,
}

impl Sample {
    /// The used part in percent; 0 without slots. A node that has lost slots may have more grants
    /// than slots.
    pub(crate) fn percent(&self, kind: ResourceType) -> f64 {
        let SlotCounts { total, used } = self.slots[kind];
        corona_web::units::percent(used as f64, total as f64)
    }
}

/// How long things took: from request to grant, from grant to delivered, a pass, a wait for the
/// engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    pub(crate) request_to_grant: Snapshot,
    pub(crate) grant_to_delivered: Snapshot,
    pub(crate) pass: Snapshot,
    pub(crate) lock_wait: Snapshot,
}

impl Latencies {
    /// All that was counted so far.
    pub(crate) fn of(metrics: &Metrics) -> Latencies {
        Latencies {
            request_to_grant: metrics.request_to_grant_of_all_types(),
            grant_to_delivered: metrics.grant_to_delivered.snapshot(),
            pass: metrics.pass.snapshot(),
            lock_wait: metrics.lock_wait.snapshot(),
        }
    }

    /// The counts since an earlier sample.
    pub(crate) fn since(&self, earlier: &Latencies) -> Latencies {
        Latencies {
            request_to_grant: self.request_to_grant.since(&earlier.request_to_grant),
            grant_to_delivered: self.grant_to_delivered.since(&earlier.grant_to_delivered),
            pass: self.pass.since(&earlier.pass),
            lock_wait: self.lock_wait.since(&earlier.lock_wait),
        }
    }
}

/// The rings.
#[derive(Debug)]
pub(crate) struct History {
    period: Duration,
    rings: Mutex<Rings>,
}

#[derive(Debug, Default)]
struct Rings {
    samples: VecDeque<Sample>,
    lately: VecDeque<(Millis, Latencies)>,
}

impl History {
    pub(crate) fn new(period: Duration) -> History {
        History { period, rings: Mutex::default() }
    }

    /// The pause between two samples.
    pub(crate) fn period(&self) -> Duration {
        self.period
    }

    /// The span that all samples cover once there are enough.
    pub(crate) fn span(&self) -> Duration {
        self.period.saturating_mul(u32::try_from(SAMPLES).unwrap_or(u32::MAX))
    }

    /// Adds a sample.
    pub(crate) fn add(&self, sample: Sample, metrics: &Metrics) {
        let mut rings = self.rings();
        if rings.samples.len() >= SAMPLES {
            rings.samples.pop_front();
        }
        rings.samples.push_back(sample);
        let last = rings.lately.back().map(|(at, _)| *at);
        if last.is_none_or(|last| sample.at.since(last) >= LATELY_STEP_MS) {
            rings.lately.push_back((sample.at, Latencies::of(metrics)));
        }
        while rings.lately.get(1).is_some_and(|(at, _)| sample.at.since(*at) >= LATELY_MS) {
            rings.lately.pop_front();
        }
    }

    /// All samples, the oldest first.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.rings().samples.iter().copied().collect()
    }

    /// How long things took in the last minute or, at the start, since the first sample.
    pub(crate) fn lately(&self, metrics: &Metrics) -> Latencies {
        let now = Latencies::of(metrics);
        match self.rings().lately.front() {
            Some((_, earlier)) => now.since(earlier),
            None => now,
        }
    }

    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: i64, used: u64) -> Sample {
        Sample { at: Millis(at_ms), slots: PerType::all(SlotCounts { total: 10, used }) }
    }

    #[test]
    fn the_last_samples_are_kept() {
        let history = History::new(Duration::from_secs(10));
        let metrics = Metrics::default();
        for number in 0..SAMPLES as i64 + 5 {
            history.add(sample(number * 10_000, number as u64 % 11), &metrics);
        }
        let samples = history.samples();
        assert_eq!(samples.len(), SAMPLES);
        assert_eq!(samples[0].at, Millis(50_000));
        assert_eq!(samples[0].percent(ResourceType::Map), 50.0);
        assert_eq!(history.span(), Duration::from_secs(3600));
    }

    #[test]
    fn lately_is_the_last_minute() {
        let history = History::new(Duration::from_secs(1));
        let metrics = Metrics::default();
        for second in 0..300 {
            history.add(sample(second * 1000, 0), &metrics);
            metrics.pass.record(Duration::from_millis(1));
        }
        let lately = history.lately(&metrics).pass.count();
        assert!((60..=70).contains(&lately), "{lately}");
        assert!(history.rings().lately.len() <= 8);
        assert_eq!(Latencies::of(&metrics).pass.count(), 300);
    }

    #[test]
    fn before_the_first_sample_everything_is_lately() {
        let history = History::new(Duration::from_secs(1));
        let metrics = Metrics::default();
        metrics.lock_wait.record(Duration::ZERO);
        assert_eq!(history.lately(&metrics).lock_wait.count(), 1);
    }
}
