//! Skipping of bad records: the ranges in which attempts failed are narrowed down until few enough
//! records are lost. Spec: mapreduce/09 §C.

use corona_mapreduce::{RecordRange, SortedRanges};
use serde::{Deserialize, Serialize};

/// The known bad records of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Skipping {
    /// Small enough to be left out by all later attempts.
    bad: SortedRanges,
    /// A range that is too large: the next attempt tests its first half.
    test: Option<Test>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Test {
    tested: RecordRange,
    other: RecordRange,
    passed: bool,
}

impl Skipping {
    /// Whether the attempts of now only test a range.
    pub(super) fn is_testing(&self) -> bool {
        self.test.is_some()
    }

    /// The attempt that tests a range got through it: the other half is the bad one.
    pub(super) fn test_passed(&mut self) {
        if let Some(test) = &mut self.test {
            test.passed = true;
        }
    }

    /// An attempt failed, and would have read `range` next. At most `most` records are left out at once.
    pub(super) fn failed(&mut self, range: RecordRange, most: i64) {
        let range = match self.test.take() {
            Some(test) if test.passed => test.other,
            Some(test) => test.tested,
            None => range,
        };
        // Reports may say anything; sums must stay numbers of records.
        let start = range.start.max(0);
        let range = RecordRange { start, length: range.length.clamp(0, i64::MAX - start) };
        if range.length <= most {
            self.bad.add(range);
            return;
        }
        let half = range.length / 2;
        let tested = RecordRange { start: range.start, length: half };
        let other = RecordRange { start: tested.end(), length: range.length - half };
        self.test = Some(Test { tested, other, passed: false });
    }

    /// The records that the next attempt skips: the bad ones, and in a test all but the tested range.
    pub(super) fn skipped(&self) -> SortedRanges {
        let mut skipped = self.bad.clone();
        if let Some(Test { tested, .. }) = self.test {
            skipped.add(RecordRange { start: 0, length: tested.start });
            let end = tested.end();
            skipped.add(RecordRange { start: end, length: i64::MAX - end });
        }
        skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: i64, length: i64) -> RecordRange {
        RecordRange { start, length }
    }

    #[test]
    fn a_small_range_is_left_out_at_once() {
        let mut skipping = Skipping::default();
        skipping.failed(range(10, 3), 3);
        assert!(!skipping.is_testing());
        assert_eq!(skipping.skipped().ranges(), [range(10, 3)]);
        skipping.failed(range(0, 0), 3);
        assert_eq!(skipping.skipped().ranges(), [range(10, 3)], "no record is to blame");
    }

    #[test]
    fn a_large_range_is_halved_until_the_bad_record_is_found() {
        // Record 13 is bad, and one record may be lost.
        let mut skipping = Skipping::default();
        skipping.failed(range(10, 8), 1);
        let mut attempts = 0;
        while skipping.is_testing() {
            let skipped = skipping.skipped();
            let reads_bad = !skipped.ranges().iter().any(|it| (it.start..it.end()).contains(&13));
            if !reads_bad {
                skipping.test_passed();
            }
            skipping.failed(range(0, 0), 1);
            attempts += 1;
            assert!(attempts < 10);
        }
        assert_eq!((attempts, skipping.skipped().ranges()), (3, &[range(13, 1)][..]));
    }
}
