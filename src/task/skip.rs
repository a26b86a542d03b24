//! Records that an attempt leaves out because earlier attempts failed near them, and how far it has come.
//! Spec: mapreduce/09 §C. Pure.
//!
//! An attempt that skips reports after each record which ones its program has got and may not have
//! processed yet. If it fails, these are the ones that the job tracker suspects.

use std::collections::VecDeque;

use corona_hadoop::writables::RecordRange;

/// The numbers of the records that are kept, in order, counted from 0. Without an end: all further ones
/// are kept.
#[derive(Clone, Debug)]
pub(crate) struct KeptRecords {
    ranges: VecDeque<RecordRange>,
    range: RecordRange,
    next: i64,
}

impl KeptRecords {
    /// What is left if these ranges, which are in order, are left out.
    pub(crate) fn new(left_out: &[RecordRange]) -> KeptRecords {
        let ranges = left_out.iter().copied().collect();
        let mut kept = KeptRecords { ranges, range: RecordRange::default(), next: -1 };
        kept.advance();
        kept
    }

    /// Whether all ranges lie before the record that was returned last.
    pub(crate) fn is_behind_ranges(&self) -> bool {
        self.ranges.is_empty() && self.next > end(self.range)
    }

    fn advance(&mut self) {
        self.next = self.next.saturating_add(1);
        self.leave_out();
        while self.next >= end(self.range) {
            let Some(range) = self.ranges.pop_front() else { return };
            self.range = range;
            self.leave_out();
        }
    }

    fn leave_out(&mut self) {
        if (self.range.start..end(self.range)).contains(&self.next) {
            self.next = end(self.range);
        }
    }
}

impl Iterator for KeptRecords {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        let next = (self.next < i64::MAX).then_some(self.next)?;
        self.advance();
        Some(next)
    }
}

fn end(range: RecordRange) -> i64 {
    range.start.saturating_add(range.length)
}

/// Records that a program has got and may not have processed.
#[derive(Clone, Debug)]
pub(crate) struct Unprocessed {
    /// The first of them, and those after it.
    first: Option<i64>,
    kept: KeptRecords,
    read: i64,
}

impl Unprocessed {
    /// Before the first record.
    pub(crate) fn new(left_out: &[RecordRange]) -> Unprocessed {
        let mut kept = KeptRecords::new(left_out);
        Unprocessed { first: kept.next(), kept, read: -1 }
    }

    /// The program gets this record.
    pub(crate) fn read(&mut self, record: i64) {
        self.read = record;
    }

    /// The program has processed so many records. Without such reports, all that it got are suspect.
    pub(crate) fn processed(&mut self, records: i64) {
        for _ in 0..records {
            match self.first {
                Some(first) if first <= self.read => self.first = self.kept.next(),
                _ => return,
            }
        }
    }

    /// These records. Those that are left out may be among them.
    pub(crate) fn range(&self) -> RecordRange {
        let start = self.first.unwrap_or(i64::MAX);
        RecordRange { start, length: self.read.saturating_sub(start).saturating_add(1).max(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: i64, length: i64) -> RecordRange {
        RecordRange { start, length }
    }

    fn first(left_out: &[RecordRange], most: usize) -> Vec<i64> {
        KeptRecords::new(left_out).take(most).collect()
    }

    #[test]
    fn records_of_the_ranges_are_left_out() {
        for (left_out, expected) in [
            (&[][..], &[0, 1, 2, 3][..]),
            (&[range(0, 2)], &[2, 3, 4, 5]),
            (&[range(1, 1), range(3, 2)], &[0, 2, 5, 6]),
            // A test of the records 2 and 3.
            (&[range(0, 2), range(4, i64::MAX - 4)], &[2, 3]),
            (&[range(0, i64::MAX)], &[]),
        ] {
            assert_eq!(first(left_out, 4), expected, "{left_out:?}");
        }
    }

    #[test]
    fn the_end_of_the_ranges_is_noticed() {
        let mut kept = KeptRecords::new(&[range(3, 1)]);
        let found: Vec<(i64, bool)> =
            std::iter::from_fn(|| kept.next().map(|n| (n, kept.is_behind_ranges())))
                .take(4)
                .collect();
        assert_eq!(found, [(0, false), (1, false), (2, false), (4, true)]);
    }

    #[test]
    fn records_that_may_not_be_processed_are_suspect() {
        let mut records = Unprocessed::new(&[range(1, 1)]);
        assert_eq!(records.range(), range(0, 0));
        records.read(0);
        assert_eq!(records.range(), range(0, 1));
        records.read(2);
        records.read(3);
        assert_eq!(records.range(), range(0, 4));
        records.processed(2);
        assert_eq!(records.range(), range(3, 1));
        // More than the program has got cannot be processed.
        records.processed(i64::MAX);
        assert_eq!(records.range(), range(4, 0));
        records.read(4);
        assert_eq!(records.range(), range(4, 1));
    }

    proptest! {
        #[test]
        fn nothing_else_is_left_out(gaps in prop::collection::vec((1_i64..4, 1_i64..4), 0..6)) {
            let mut left_out = Vec::new();
            let mut at = -1;
            for (gap, length) in gaps {
                left_out.push(range(at + gap, length));
                at += gap + length;
            }
            let is_left_out = |record: i64| {
                left_out.iter().any(|range| (range.start..end(*range)).contains(&record))
            };
            let expected: Vec<i64> = (0..).filter(|record| !is_left_out(*record)).take(20).collect();
            prop_assert_eq!(first(&left_out, 20), expected);
        }

        #[test]
        fn no_ranges_panic(
            ranges in prop::collection::vec((any::<i64>(), any::<i64>()), 0..5),
            reports in prop::collection::vec((any::<i64>(), -3_i64..9), 0..5),
        ) {
            let ranges: Vec<RecordRange> = ranges.into_iter().map(|(s, l)| range(s, l)).collect();
            let mut records = Unprocessed::new(&ranges);
            for (read, processed) in reports {
                records.read(read);
                records.processed(processed);
                prop_assert!(records.range().length >= 0);
            }
            first(&ranges, 10);
        }
    }
}
