//! Records in memory, sorted by reduce and key.
//!
//! All records lie in one block of memory, as they will be written; the sort moves small entries
//! with the first bytes of the key. Adding a record allocates nothing. Pure.

use crate::ifile::IFileError;
use crate::run::{RecordStream, prefix};
use crate::vint;

/// A record: its place, and the bytes that are compared first.
#[derive(Clone, Copy, Debug)]
struct Entry {
    prefix: u64,
    partition: u32,
    offset: u32,
    key_bytes: u32,
    value_bytes: u32,
}

/// The memory that the entry of a record takes.
const ENTRY_BYTES: usize = size_of::<Entry>();
/// The largest memory that an offset can address.
const MOST_BYTES: usize = u32::MAX as usize;

/// Records until they are sorted and written.
#[derive(Debug)]
pub struct SortBuffer {
    data: Vec<u8>,
    entries: Vec<Entry>,
    limit: usize,
}

impl SortBuffer {
    /// A buffer for so many bytes, entries included.
    pub fn new(limit: usize) -> SortBuffer {
        let limit = limit.min(MOST_BYTES);
        // The system gives the pages when they are used.
        let entries = Vec::with_capacity(limit / ENTRY_BYTES);
        SortBuffer { data: Vec::with_capacity(limit), entries, limit }
    }

    /// Adds a record: the contents of two texts. False: it does not fit any more, and nothing was added.
    #[inline]
    pub fn add(&mut self, partition: u32, key: &[u8], value: &[u8]) -> bool {
        let bytes = key.len() + value.len() + 2 * vint::MOST_BYTES;
        if self.used() + bytes + ENTRY_BYTES > self.limit {
            return false;
        }
        let offset = self.data.len();
        vint::put_text(key, &mut self.data);
        let key_end = self.data.len();
        vint::put_text(value, &mut self.data);
        self.entries.push(Entry {
            prefix: prefix(key),
            partition,
            // All of these are below the limit.
            offset: offset as u32,
            key_bytes: (key_end - offset) as u32,
            value_bytes: (self.data.len() - key_end) as u32,
        });
        true
    }

    /// The memory in use, in bytes.
    #[inline]
    pub fn used(&self) -> usize {
        self.data.len() + self.entries.len() * ENTRY_BYTES
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many records there are.
    pub fn records(&self) -> usize {
        self.entries.len()
    }

    /// Sorts by partition, then by key, then by the order in which records were added.
    pub fn sort(&mut self) {
        let data = &self.data;
        let content = |entry: &Entry| {
            let from = entry.offset as usize;
            vint::text(data.get(from..from + entry.key_bytes as usize).unwrap_or_default())
        };
        self.entries.sort_unstable_by(|one, other| {
            let first = (one.partition, one.prefix).cmp(&(other.partition, other.prefix));
            first.then_with(|| {
                // Short keys with the same prefix and length are the same.
                let is_short = one.key_bytes == other.key_bytes && one.key_bytes <= 9;
                let keys = match is_short {
                    true => std::cmp::Ordering::Equal,
                    false => content(one).cmp(content(other)),
                };
                keys.then_with(|| one.offset.cmp(&other.offset))
            })
        });
    }

    /// The records of a partition, after [`sort`](SortBuffer::sort).
    pub fn partition(&self, partition: u32) -> SortedRecords<'_> {
        let from = self.entries.partition_point(|entry| entry.partition < partition);
        let to = self.entries.partition_point(|entry| entry.partition <= partition);
        let entries = self.entries.get(from..to).unwrap_or_default();
        SortedRecords { data: &self.data, entries, current: None }
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.data.clear();
        self.entries.clear();
    }
}

/// The records of a partition, in order.
#[derive(Debug)]
pub struct SortedRecords<'a> {
    data: &'a [u8],
    entries: &'a [Entry],
    current: Option<Entry>,
}

impl RecordStream for SortedRecords<'_> {
    #[inline]
    fn advance(&mut self) -> Result<bool, IFileError> {
        let (first, rest) = match self.entries.split_first() {
            Some((first, rest)) => (Some(*first), rest),
            None => (None, self.entries),
        };
        self.current = first;
        self.entries = rest;
        Ok(first.is_some())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        let range = |e: Entry| e.offset as usize..(e.offset + e.key_bytes) as usize;
        self.current.and_then(|entry| self.data.get(range(entry))).unwrap_or_default()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        let range = |e: Entry| {
            let from = (e.offset + e.key_bytes) as usize;
            from..from + e.value_bytes as usize
        };
        self.current.and_then(|entry| self.data.get(range(entry))).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_come_as_a_stable_sort_gives_them(
            keys in prop::collection::vec((0_u32..3, prop::collection::vec(0_u8..3, 0..14)), 0..200),
        ) {
            let mut buffer = SortBuffer::new(1 << 20);
            let mut expected = Vec::new();
            for (at, (partition, key)) in keys.into_iter().enumerate() {
                let value = at.to_string().into_bytes();
                prop_assert!(buffer.add(partition, &key, &value));
                expected.push((partition, key, value));
            }
            expected.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
            buffer.sort();
            let mut found = Vec::new();
            for partition in 0..3 {
                let mut records = buffer.partition(partition);
                while records.advance().unwrap() {
                    let key = vint::text(records.key()).to_vec();
                    found.push((partition, key, vint::text(records.value()).to_vec()));
                }
            }
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_limit_holds_for_records_and_entries() {
        let mut buffer = SortBuffer::new(1000);
        let mut records = 0;
        while buffer.add(0, b"key", b"value") {
            records += 1;
        }
        assert!((15..=1000 / (10 + ENTRY_BYTES)).contains(&records), "{records}");
        assert!(buffer.used() <= 1000);
        assert!(!buffer.add(0, &[b'x'; 2000], b""));
        buffer.clear();
        assert!(buffer.is_empty() && buffer.add(0, b"k", b"v"));
    }
}
