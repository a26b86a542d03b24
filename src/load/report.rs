//! The results of a run: measurements, and violations.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::faults::Fault;
use super::machine::ProcessUse;
use super::meter::Times;

/// The result of a run, for people, as JSON, and for comparisons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The name of the scenario, such as `churn`.
    pub scenario: String,
    /// The cluster manager's address.
    pub manager: String,
    /// The load, one line for each part.
    pub plan: Vec<String>,
    /// How long was measured.
    pub measured_ms: u64,
    /// Timings in a fixed order, without those that never occurred.
    pub measures: Vec<Timing>,
    /// Counters by name, without zeros.
    pub counts: BTreeMap<String, u64>,
    /// The resources that the cluster manager's process used, if requested and known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessUse>,
    /// How often each measure was seen in each step of time, for plots.
    pub timeline: Timeline,
    /// Faults, the gravest first. Empty if there were none.
    pub errors: Vec<Fault>,
    /// The run was stopped before its time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped_early: bool,
}

/// How long something took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The name of the timing.
    pub name: String,
    /// In which part of the run; left out where it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// How often it happened.
    pub count: u64,
    /// The same for each second.
    pub per_second: f64,
    /// Microseconds, each within 1.6 % and, below 8, to 0.125, as all the others.
    pub median_us: f64,
    /// 99 of 100 took no longer.
    pub percentile_99_us: f64,
    /// 999 of 1000 took no longer.
    pub percentile_99_9_us: f64,
    /// The longest, rounded up like the others.
    pub max_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// More of the distribution, for plots: the share in percent and the time, ascending.
    pub percentiles: Vec<(f64, f64)>,
}

/// The counts of each measure over the time of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The length of a step.
    pub step_ms: u64,
    /// For each measure, how often it was seen in each step since the measured time began.
    pub seen: BTreeMap<String, Vec<u64>>,
}

/// The shares in percent that a plot needs, so that its curve is smooth to the far end.
const SHARES: [f64; 18] = [
    0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.75, 99.9, 99.95, 99.99, 99.995,
    99.999, 99.9999, 100.0,
];

impl Timing {
    /// Computes it from the counts of a span. None if it never happened.
    pub(super) fn new(
        name: String,
        part: Option<String>,
        times: &Times,
        measured: Duration,
    ) -> Option<Timing> {
        let us = |share| times.quantile(share).map(micros);
        let shares = SHARES.iter().filter_map(|share| Some((*share, us(share / 100.0)?)));
        Some(Timing {
            name,
            part,
            count: times.count(),
            per_second: thousandths(times.count() as f64 / measured.as_secs_f64().max(1e-9)),
            median_us: us(0.5)?,
            percentile_99_us: us(0.99)?,
            percentile_99_9_us: us(0.999)?,
            max_us: us(1.0)?,
            mean_us: times.mean().map(micros)?,
            percentiles: shares.collect(),
        })
    }
}

/// More digits would be meaningless, and not survive a text.
fn thousandths(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1_000.0
}
