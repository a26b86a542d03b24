//! Ranges of a task's input records, which a job that skips bad records leaves out.
//! Spec: mapreduce/02 §2.6, mapreduce/09 §C.

use serde::{Deserialize, Serialize};

/// Records from `start`, `length` of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordRange {
    /// The first record.
    pub start: i64,
    /// How many.
    pub length: i64,
}

impl RecordRange {
    /// The record after the last one.
    pub fn end(self) -> i64 {
        self.start.saturating_add(self.length)
    }
}

/// Ranges in order, none of which touches another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortedRanges(Vec<RecordRange>);

impl SortedRanges {
    /// Adds a range and joins it with those that it touches. A range without records changes nothing.
    pub fn add(&mut self, range: RecordRange) {
        if range.length <= 0 || range.start < 0 {
            return;
        }
        let touches =
            |other: &RecordRange| other.start <= range.end() && range.start <= other.end();
        let (mut start, mut end) = (range.start, range.end());
        self.0.retain(|other| {
            if touches(other) {
                (start, end) = (start.min(other.start), end.max(other.end()));
            }
            !touches(other)
        });
        let at = self.0.partition_point(|other| other.start < start);
        self.0.insert(at, RecordRange { start, length: end - start });
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> &[RecordRange] {
        &self.0
    }

    /// How many records there are in the ranges.
    pub fn records(&self) -> i64 {
        self.0.iter().fold(0, |sum, range| sum.saturating_add(range.length))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_hold_what_was_added_and_do_not_touch(
            added in proptest::collection::vec((0..60_i64, -2..9_i64), 0..12),
        ) {
            let mut ranges = SortedRanges::default();
            for (start, length) in &added {
                ranges.add(RecordRange { start: *start, length: *length });
            }
            for record in 0..80 {
                let expected = added.iter().any(|(start, length)| (*start..start + length).contains(&record));
                let held = ranges.ranges().iter().any(|range| (range.start..range.end()).contains(&record));
                prop_assert_eq!(held, expected, "record {}", record);
            }
            prop_assert!(ranges.ranges().windows(2).all(|pair| pair[0].end() < pair[1].start));
        }
    }

    #[test]
    fn the_largest_range_does_not_overflow() {
        let mut ranges = SortedRanges::default();
        ranges.add(RecordRange { start: 5, length: i64::MAX });
        ranges.add(RecordRange { start: 1, length: 2 });
        assert_eq!(ranges.ranges().len(), 2);
        assert_eq!(ranges.records(), i64::MAX - 5 + 2);
    }
}
