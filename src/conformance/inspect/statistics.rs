//! How often each method was called, with which results, and how long answers took.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Act, Item, is_error};
use crate::conversation::Offered;

/// The statistics of one method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodStatistics {
    /// The service that has it.
    pub service: Offered,
    /// Its name.
    pub method: String,
    /// How often it was called.
    pub calls: u64,
    /// How many of these calls were answered.
    pub answered: u64,
    /// How many answers were exceptions, declared or not.
    pub errors: u64,
    /// The answer time that half of the answers kept.
    pub median: Option<Duration>,
    /// The answer time that 99 of 100 answers kept.
    pub slowest_percent: Option<Duration>,
    /// Bytes of calls.
    pub call_bytes: u64,
    /// Bytes of answers.
    pub answer_bytes: u64,
}

/// Statistics of every method, by service and name. An answer without its call counts only with
/// its bytes.
pub fn statistics<'a>(items: impl IntoIterator<Item = &'a Item<'a>>) -> Vec<MethodStatistics> {
    let mut tallies: BTreeMap<(Offered, &str), MethodTally> = BTreeMap::new();
    for item in items {
        match &item.act {
            Act::Call { call, bytes, .. } => {
                let tally = tallies.entry((item.service, &call.name)).or_default();
                tally.calls += 1;
                tally.call_bytes += *bytes as u64;
            }
            Act::Answer { answer, took, bytes, .. } => {
                let tally = tallies.entry((item.service, &answer.name)).or_default();
                tally.answer_bytes += *bytes as u64;
                if let Some(took) = took {
                    tally.times.push(*took);
                    tally.errors += u64::from(is_error(answer));
                }
            }
            _ => {}
        }
    }
    tallies.into_iter().map(|((service, method), tally)| tally.finish(service, method)).collect()
}

#[derive(Default)]
struct MethodTally {
    calls: u64,
    errors: u64,
    times: Vec<Duration>,
    call_bytes: u64,
    answer_bytes: u64,
}

impl MethodTally {
    fn finish(mut self, service: Offered, method: &str) -> MethodStatistics {
        self.times.sort_unstable();
        MethodStatistics {
            service,
            method: method.to_owned(),
            calls: self.calls,
            answered: self.times.len() as u64,
            errors: self.errors,
            median: percentile(&self.times, 50),
            slowest_percent: percentile(&self.times, 99),
            call_bytes: self.call_bytes,
            answer_bytes: self.answer_bytes,
        }
    }
}

/// The smallest of the sorted times that so many of a hundred do not exceed.
fn percentile(times: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (times.len() * percent).div_ceil(100);
    times.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_micros).collect();
        for (times, percent, expected) in [
            (&times[..0], 50, None),
            (&times[..1], 50, Some(1)),
            (&times[..1], 99, Some(1)),
            (&times[..2], 50, Some(1)),
            (&times[..3], 50, Some(2)),
            (&times[..100], 99, Some(99)),
            (&times[..200], 99, Some(198)),
        ] {
            assert_eq!(percentile(times, percent), expected.map(Duration::from_micros));
        }
    }
}
