//! Reports side by side: the medians of several runs before a change and after it, or of two cluster
//! managers.

use serde::Serialize;

use super::report::{Report, Timing};

/// One measure, before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadComparison {
    /// The name of the timing, with the part of the run if it has several.
    pub name: String,
    /// How often in a second.
    pub per_second: Change,
    /// Microseconds.
    pub median_us: Change,
    /// Microseconds.
    pub percentile_99_us: Change,
}

/// The same number before and after: medians of all runs that have it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
}

impl Change {
    /// How many times as much it is after. None where it was nothing.
    pub fn ratio(self) -> Option<f64> {
        (self.before > 0.0).then(|| self.after / self.before)
    }
}

/// Compares the measurements of both sides, in the order of the first report.
pub fn compare(before: &[Report], after: &[Report]) -> Vec<LoadComparison> {
    let Some(first) = before.first() else { return vec![] };
    let compared = first.measures.iter().filter_map(|timing| {
        let of = |reports: &[Report], number: fn(&Timing) -> f64| {
            let measures = reports.iter().flat_map(|report| &report.measures);
            let same = measures.filter(|one| one.name == timing.name && one.part == timing.part);
            median(same.map(number).collect())
        };
        let change =
            |number| Some(Change { before: of(before, number)?, after: of(after, number)? });
        let part = timing.part.as_ref().map(|part| format!("{part} ")).unwrap_or_default();
        Some(LoadComparison {
            name: part + &timing.name,
            per_second: change(|timing| timing.per_second)?,
            median_us: change(|timing| timing.median_us)?,
            percentile_99_us: change(|timing| timing.percentile_99_us)?,
        })
    });
    compared.collect()
}

/// The middle one; of an even number the mean of the two in the middle.
fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let upper = *numbers.get(numbers.len() / 2)?;
    let lower = *numbers.get(numbers.len().checked_sub(1)? / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Timeline;

    fn report(measures: &[(&str, f64)]) -> Report {
        let timing = |(name, number): &(&str, f64)| Timing {
            name: (*name).into(),
            part: None,
            count: 1,
            per_second: *number,
            median_us: number * 2.0,
            percentile_99_us: number * 3.0,
            percentile_99_9_us: 0.0,
            max_us: 0.0,
            mean_us: 0.0,
            percentiles: vec![],
        };
        Report {
            scenario: "churn".into(),
            manager: "here".into(),
            plan: vec![],
            measured_ms: 1_000,
            measures: measures.iter().map(timing).collect(),
            counts: BTreeMap::new(),
            process: None,
            timeline: Timeline::default(),
            errors: vec![],
            stopped_early: false,
        }
    }

    #[test]
    fn medians_of_what_both_sides_have_are_compared() {
        let before = [report(&[("a", 1.0), ("b", 9.0)]), report(&[("a", 3.0)])];
        let after = [10.0, 8.0, 100.0].map(|number| report(&[("a", number), ("c", 1.0)]));
        let [a] = &compare(&before, &after)[..] else { panic!("one is on both sides") };
        assert_eq!(a.name, "a");
        assert_eq!(a.per_second, Change { before: 2.0, after: 10.0 });
        assert_eq!(a.median_us, Change { before: 4.0, after: 20.0 });
        assert_eq!(a.percentile_99_us.ratio(), Some(5.0));
        assert_eq!(Change { before: 0.0, after: 1.0 }.ratio(), None);
        assert_eq!(compare(&[], &after), []);
        assert_eq!(compare(&before, &[]), []);
    }
}
