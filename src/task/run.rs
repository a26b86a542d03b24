//! Sorted records in sequence, and the merge of several such runs into one.
//!
//! The order is that of Hadoop's texts, by the bytes behind the length as unsigned numbers, or one by
//! parts of them (`order.rs`).

use std::sync::Arc;

use corona_mapreduce::native::KeyOrder;

use crate::ifile::IFileError;
use crate::order::{compare, prefix};
use crate::vint;

/// Records in sequence. A record is valid until the next one.
pub trait RecordStream {
    /// Moves to the next record; the first call to the first one. False: there is none.
    fn advance(&mut self) -> Result<bool, IFileError>;

    /// The key of the record, as written.
    fn key(&self) -> &[u8];

    /// The value of the record, as written.
    fn value(&self) -> &[u8];
}

/// Several runs as one, in order. Records with equal keys come in the order of their runs.
#[derive(Debug)]
pub struct Merge<R> {
    runs: Vec<R>,
    /// A heap of the runs that have a record: the prefix of its key, and its place among the runs.
    heap: Vec<(u64, u32)>,
    order: Arc<KeyOrder>,
    is_begun: bool,
}

impl<R: RecordStream> Merge<R> {
    /// The merge of these runs, which have this order. None of them has been advanced.
    pub fn new(runs: Vec<R>, order: Arc<KeyOrder>) -> Merge<R> {
        Merge { runs, heap: Vec::new(), order, is_begun: false }
    }

    fn is_before(&self, one: (u64, u32), other: (u64, u32)) -> bool {
        if one.0 != other.0 {
            return one.0 < other.0;
        }
        let key =
            |run: u32| self.runs.get(run as usize).map_or(&[][..], |run| vint::text(run.key()));
        match compare(&self.order, key(one.1), key(other.1)) {
            std::cmp::Ordering::Equal => one.1 < other.1,
            order => order.is_lt(),
        }
    }

    fn entry(&self, run: u32) -> (u64, u32) {
        let key = self.runs.get(run as usize).map_or(&[][..], |run| vint::text(run.key()));
        (prefix(&self.order, key), run)
    }

    fn begin(&mut self) -> Result<(), IFileError> {
        self.is_begun = true;
        for (at, run) in (0..).zip(&mut self.runs) {
            if run.advance()? {
                self.heap.push((0, at));
            }
        }
        self.heap = self.heap.iter().map(|(_, run)| self.entry(*run)).collect();
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
        Ok(())
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                let (child_entry, least_entry) = (self.heap.get(child), self.heap.get(least));
                if let (Some(one), Some(other)) = (child_entry, least_entry)
                    && self.is_before(*one, *other)
                {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    fn current(&self) -> Option<&R> {
        self.heap.first().and_then(|(_, run)| self.runs.get(*run as usize))
    }
}

impl<R: RecordStream> RecordStream for Merge<R> {
    fn advance(&mut self) -> Result<bool, IFileError> {
        if !self.is_begun {
            self.begin()?;
            return Ok(!self.heap.is_empty());
        }
        let Some((_, run)) = self.heap.first().copied() else { return Ok(false) };
        let has_more = match self.runs.get_mut(run as usize) {
            Some(run) => run.advance()?,
            None => false,
        };
        let next = has_more.then(|| self.entry(run));
        match (next, self.heap.first_mut()) {
            (Some(entry), Some(first)) => *first = entry,
            _ => {
                self.heap.swap_remove(0);
            }
        }
        self.sift_down(0);
        Ok(!self.heap.is_empty())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current().map_or(&[], RecordStream::key)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current().map_or(&[], RecordStream::value)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ifile::InMemory;
    use crate::testing;
    use proptest::prelude::*;

    /// Records with text keys as a run in memory.
    pub(crate) fn run_of(records: &[(Vec<u8>, Vec<u8>)]) -> InMemory {
        let mut writer = crate::ifile::Writer::new(Vec::new(), None);
        for (key, value) in records {
            let mut text = Vec::new();
            vint::put_text(key, &mut text);
            writer.append(&text, value).unwrap();
        }
        let (mut bytes, lengths) = writer.finish().unwrap();
        bytes.truncate(lengths.raw as usize);
        InMemory::new(bytes)
    }

    fn all(mut run: impl RecordStream) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut records = Vec::new();
        while run.advance().unwrap() {
            records.push((vint::text(run.key()).to_vec(), run.value().to_vec()));
        }
        assert!(!run.advance().unwrap() || records.is_empty());
        records
    }

    proptest! {
        #[test]
        fn a_merge_is_what_a_stable_sort_gives(
            runs in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(0_u8..3, 0..12), 0..20), 0..9),
        ) {
            let mut expected = Vec::new();
            let mut sorted = Vec::new();
            for (at, keys) in runs.into_iter().enumerate() {
                let mut run: Vec<_> = keys.into_iter().map(|key| (key, vec![at as u8])).collect();
                run.sort_by(|one, other| one.0.cmp(&other.0));
                expected.extend(run.clone());
                sorted.push(run_of(&run));
            }
            expected.sort_by(|one, other| one.0.cmp(&other.0));
            prop_assert_eq!(all(Merge::new(sorted, Arc::default())), expected);
        }
    }

    #[test]
    fn runs_that_are_ordered_by_parts_of_keys_are_merged_in_that_order() {
        let order = Arc::new(testing::numbers_from_large_to_small());
        let run = |numbers: &[i32]| {
            let record = |number: &i32| (number.to_string().into_bytes(), b"v".to_vec());
            run_of(&numbers.iter().map(record).collect::<Vec<_>>())
        };
        let merge = Merge::new(vec![run(&[100, 20, 3]), run(&[99, 20, 1]), run(&[])], order);
        let found: Vec<_> = all(merge).into_iter().map(|(key, _)| key).collect();
        assert_eq!(found, [&b"100"[..], b"99", b"20", b"20", b"3", b"1"]);
    }
}
