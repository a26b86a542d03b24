//! Records in memory, sorted by reduce and key.
//!
//! All records lie in one block of memory, as they will be written; the sort moves small entries
//! with the first bytes of the key. Adding a record allocates nothing. Pure.

use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::Arc;

use ahash::RandomState;
use corona_mapreduce::native::KeyOrder;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;

use crate::ifile::IFileError;
use crate::order::{compare, prefix};
use crate::run::RecordStream;
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
/// Comparisons of a sort after which it notes its progress.
const COMPARISONS: u32 = 1 << 16;
/// The largest memory that an offset can address.
const MOST_BYTES: usize = u32::MAX as usize;

/// The memory that the place of a key in the table of sums takes at most, also while the table grows.
const PLACE_BYTES: usize = 16;
/// The bytes of a sum.
const SUM_BYTES: usize = size_of::<i64>();

/// What became of a number that was added to the sum of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is part of the sum.
    Yes,
    /// There is no room for another key, and nothing was added.
    Full,
    /// The sum would not fit into 64 bits, and nothing was added.
    TooLarge,
}

/// Records until they are sorted and written, or one record with a sum for each key
/// ([`sum`](SortBuffer::sum)); a buffer holds one kind or the other.
#[derive(Debug)]
pub struct SortBuffer {
    data: Vec<u8>,
    entries: Vec<Entry>,
    limit: usize,
    order: Arc<KeyOrder>,
    /// The memory that a record takes besides key and value, also while records are sorted.
    entry_bytes: usize,
    /// The number of the entry of each key that has a sum.
    places: HashTable<u32>,
    hasher: RandomState,
    /// Numbers in the sums.
    numbers: u64,
}

impl SortBuffer {
    /// A buffer for so many bytes, entries included.
    pub fn new(limit: usize, order: Arc<KeyOrder>) -> SortBuffer {
        let limit = limit.min(MOST_BYTES);
        let entry_bytes = match *order {
            KeyOrder::Bytes => ENTRY_BYTES,
            // The sort needs room for half of the entries.
            KeyOrder::Fields { .. } => ENTRY_BYTES + ENTRY_BYTES / 2,
        };
        // The system gives the pages when they are used.
        let entries = Vec::with_capacity(limit / entry_bytes);
        SortBuffer {
            data: Vec::with_capacity(limit),
            entries,
            limit,
            order,
            entry_bytes,
            places: HashTable::new(),
            hasher: RandomState::new(),
            numbers: 0,
        }
    }

    /// Adds a record: the contents of two texts. False: it does not fit any more, and nothing was added.
    #[inline]
    pub fn add(&mut self, partition: u32, key: &[u8], value: &[u8]) -> bool {
        let bytes = key.len() + value.len() + 2 * vint::MOST_BYTES;
        if self.used() + bytes + self.entry_bytes > self.limit {
            return false;
        }
        let offset = self.data.len();
        vint::put_text(key, &mut self.data);
        let key_end = self.data.len();
        vint::put_text(value, &mut self.data);
        self.entries.push(Entry {
            prefix: prefix(&self.order, key),
            partition,
            offset: small(offset),
            key_bytes: small(key_end - offset),
            value_bytes: small(self.data.len() - key_end),
        });
        true
    }

    /// Adds a number to the sum of a key.
    #[inline]
    pub fn sum(&mut self, partition: u32, key: &[u8], number: i64) -> Added {
        let used = self.used() + key.len() + vint::MOST_BYTES + SUM_BYTES + self.entry_bytes;
        let has_room = used + PLACE_BYTES <= self.limit;
        let (data, entries) = (&mut self.data, &mut self.entries);
        let hash = self.hasher.hash_one(key);
        let is_key = |place: &u32| {
            entries.get(*place as usize).is_some_and(|entry| key_of(data, entry) == key)
        };
        let hash_of = |place: &u32| {
            entries
                .get(*place as usize)
                .map_or(0, |entry| self.hasher.hash_one(key_of(data, entry)))
        };
        match self.places.entry(hash, is_key, hash_of) {
            Place::Occupied(place) => {
                let sum = entries.get(*place.get() as usize).and_then(|entry| {
                    let from = (entry.offset + entry.key_bytes) as usize;
                    data.get_mut(from..)?.first_chunk_mut::<SUM_BYTES>()
                });
                let Some(sum) = sum else { return Added::TooLarge };
                match i64::from_le_bytes(*sum).checked_add(number) {
                    Some(total) => *sum = total.to_le_bytes(),
                    None => return Added::TooLarge,
                }
            }
            Place::Vacant(_) if !has_room => return Added::Full,
            Place::Vacant(place) => {
                place.insert(small(entries.len()));
                let offset = data.len();
                vint::put_text(key, data);
                entries.push(Entry {
                    prefix: prefix(&self.order, key),
                    partition,
                    offset: small(offset),
                    key_bytes: small(data.len() - offset),
                    value_bytes: small(SUM_BYTES),
                });
                data.extend_from_slice(&number.to_le_bytes());
            }
        }
        self.numbers += 1;
        Added::Yes
    }

    /// Numbers that are part of the sums.
    pub fn numbers(&self) -> u64 {
        self.numbers
    }

    /// Changes the limit. It must not be above the one of the beginning.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(MOST_BYTES);
    }

    /// The memory in use, in bytes.
    #[inline]
    pub fn used(&self) -> usize {
        self.data.len() + self.entries.len() * self.entry_bytes + self.places.len() * PLACE_BYTES
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many records there are.
    pub fn records(&self) -> usize {
        self.entries.len()
    }

    /// Sorts by partition, then by key, then by the order in which records were added. Calls `progressed`
    /// again and again until it is done.
    pub fn sort(&mut self, progressed: &dyn Fn()) {
        let (data, order) = (&self.data, &self.order);
        let compared = Cell::new(0_u32);
        let count = || {
            compared.set(compared.get().wrapping_add(1));
            if compared.get().is_multiple_of(COMPARISONS) {
                progressed();
            }
        };
        let content = |entry: &Entry| key_of(data, entry);
        if matches!(**order, KeyOrder::Fields { .. }) {
            let is_before = |one: &Entry, other: &Entry| {
                count();
                match one.partition.cmp(&other.partition) {
                    Ordering::Equal => compare(order, content(one), content(other)).is_lt(),
                    partitions => partitions.is_lt(),
                }
            };
            merge_sort(&mut self.entries, &mut Vec::new(), &is_before);
            return;
        }
        self.entries.sort_unstable_by(|one, other| {
            count();
            let first = (one.partition, one.prefix).cmp(&(other.partition, other.prefix));
            first.then_with(|| {
                // Short keys with the same prefix and length are the same.
                let is_short = one.key_bytes == other.key_bytes && one.key_bytes <= 9;
                let keys = match is_short {
                    true => Ordering::Equal,
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
        let sum = (!self.places.is_empty()).then(Vec::new);
        SortedRecords { data: &self.data, entries, current: None, sum }
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.data.clear();
        self.entries.clear();
        self.places.clear();
        self.numbers = 0;
    }
}

/// A place or a size in the buffer: its limit is [`MOST_BYTES`] at most.
#[inline]
fn small(number: usize) -> u32 {
    debug_assert!(u32::try_from(number).is_ok(), "{number} is beyond the limit");
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The content of the key of an entry.
#[inline]
fn key_of<'a>(data: &'a [u8], entry: &Entry) -> &'a [u8] {
    let from = entry.offset as usize;
    vint::text(data.get(from..from + entry.key_bytes as usize).unwrap_or_default())
}

/// Sorts stably, with room for half of the entries. Unlike those of the standard library, it works for
/// any relation: where that is no order, the result has some sequence.
fn merge_sort(
    entries: &mut [Entry],
    spare: &mut Vec<Entry>,
    is_before: &impl Fn(&Entry, &Entry) -> bool,
) {
    let middle = entries.len() / 2;
    if middle == 0 {
        return;
    }
    let (left, right) = entries.split_at_mut(middle);
    merge_sort(left, spare, is_before);
    merge_sort(right, spare, is_before);
    spare.clear();
    spare.extend_from_slice(left);
    let (mut to, mut from, mut other) = (0, 0, middle);
    // The left half is in the spare room, so its place is free for what comes first.
    while let Some(one) = spare.get(from) {
        let first = match entries.get(other).copied().filter(|right| is_before(right, one)) {
            Some(right) => {
                other += 1;
                right
            }
            None => {
                from += 1;
                *one
            }
        };
        let Some(place) = entries.get_mut(to) else {
            debug_assert!(false, "more entries than places");
            return;
        };
        *place = first;
        to += 1;
    }
}

/// The records of a partition, in order.
#[derive(Debug)]
pub struct SortedRecords<'a> {
    data: &'a [u8],
    entries: &'a [Entry],
    current: Option<Entry>,
    /// The sum of the current record as a text, if the records are sums.
    sum: Option<Vec<u8>>,
}

impl SortedRecords<'_> {
    #[inline]
    fn written(&self) -> &[u8] {
        let range = |e: Entry| {
            let from = (e.offset + e.key_bytes) as usize;
            from..from + e.value_bytes as usize
        };
        self.current.and_then(|entry| self.data.get(range(entry))).unwrap_or_default()
    }
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
        if let Some(mut text) = self.sum.take() {
            text.clear();
            if let Some(sum) = self.written().first_chunk() {
                vint::put_text(i64::from_le_bytes(*sum).to_string().as_bytes(), &mut text);
            }
            self.sum = Some(text);
        }
        Ok(first.is_some())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        let range = |e: Entry| e.offset as usize..(e.offset + e.key_bytes) as usize;
        self.current.and_then(|entry| self.data.get(range(entry))).unwrap_or_default()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.sum.as_deref().unwrap_or_else(|| self.written())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::numbers_from_large_to_small;
    use proptest::prelude::*;

    #[test]
    fn a_long_sort_notes_its_progress() {
        for order in [Arc::default(), Arc::new(numbers_from_large_to_small())] {
            let mut buffer = SortBuffer::new(8 << 20, order);
            for number in 0..50_000_u32 {
                assert!(buffer.add(
                    0,
                    number.wrapping_mul(0x9e37_79b9).to_string().as_bytes(),
                    b""
                ));
            }
            let noted = Cell::new(0);
            buffer.sort(&|| noted.set(noted.get() + 1));
            assert!(noted.get() > 3, "{noted:?}");
        }
    }

    proptest! {
        #[test]
        fn records_come_as_a_stable_sort_gives_them(
            keys in prop::collection::vec((0_u32..3, prop::collection::vec(0_u8..3, 0..14)), 0..200),
        ) {
            let mut buffer = SortBuffer::new(1 << 20, Arc::default());
            let mut expected = Vec::new();
            for (at, (partition, key)) in keys.into_iter().enumerate() {
                let value = at.to_string().into_bytes();
                prop_assert!(buffer.add(partition, &key, &value));
                expected.push((partition, key, value));
            }
            expected.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
            buffer.sort(&|| ());
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

    proptest! {
        /// However small the buffer is, no number gets lost or counts twice.
        #[test]
        fn sums_are_those_of_a_map(
            numbers in prop::collection::vec((prop::collection::vec(0_u8..3, 0..12), -5_i64..1000), 0..200),
            limit in prop::sample::select(vec![200_usize, 600, 1 << 20]),
        ) {
            let mut buffer = SortBuffer::new(limit, Arc::default());
            let mut expected = std::collections::BTreeMap::new();
            let mut taken = 0;
            for (key, number) in numbers {
                let partition = u32::from(key.first().copied().unwrap_or_default());
                match buffer.sum(partition, &key, number) {
                    Added::Yes => {
                        taken += 1;
                        *expected.entry((partition, key)).or_insert(0) += number;
                    }
                    added => {
                        prop_assert_eq!(added, Added::Full);
                        prop_assert!(limit < 1 << 20 && !expected.contains_key(&(partition, key)));
                    }
                }
                prop_assert!(buffer.used() <= limit);
            }
            buffer.sort(&|| ());
            let mut found = Vec::new();
            for partition in 0..3 {
                let mut records = buffer.partition(partition);
                while records.advance().unwrap() {
                    let text = String::from_utf8(vint::text(records.value()).to_vec()).unwrap();
                    let key = vint::text(records.key()).to_vec();
                    found.push(((partition, key), text.parse().unwrap()));
                }
            }
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(buffer.numbers(), taken);
        }
    }

    #[test]
    fn a_sum_beyond_64_bits_is_refused_and_keeps_what_it_had() {
        let mut buffer = SortBuffer::new(1000, Arc::default());
        assert_eq!(buffer.sum(0, b"a", i64::MAX), Added::Yes);
        assert_eq!(buffer.sum(0, b"a", 1), Added::TooLarge);
        assert_eq!(buffer.sum(0, b"a", -1), Added::Yes);
        let mut records = buffer.partition(0);
        assert!(records.advance().unwrap());
        assert_eq!(vint::text(records.value()), (i64::MAX - 1).to_string().as_bytes());
    }

    proptest! {
        #[test]
        fn records_come_in_the_order_of_parts_of_their_keys(
            keys in prop::collection::vec((0_u32..2, -20_i32..20), 0..200),
        ) {
            let mut buffer = SortBuffer::new(1 << 20, Arc::new(numbers_from_large_to_small()));
            let mut expected = Vec::new();
            for (at, (partition, key)) in keys.into_iter().enumerate() {
                let value = at.to_string();
                prop_assert!(buffer.add(partition, key.to_string().as_bytes(), value.as_bytes()));
                expected.push((partition, key, value));
            }
            expected.sort_by_key(|record| (record.0, std::cmp::Reverse(record.1)));
            buffer.sort(&|| ());
            let mut found = Vec::new();
            for partition in 0..2 {
                let mut records = buffer.partition(partition);
                let text = |bytes: &[u8]| String::from_utf8(vint::text(bytes).to_vec()).unwrap();
                while records.advance().unwrap() {
                    found.push((partition, text(records.key()).parse().unwrap(), text(records.value())));
                }
            }
            prop_assert_eq!(found, expected);
        }

        /// Texts that are no numbers, which the comparison does not put into one order.
        #[test]
        fn no_keys_panic(keys in prop::collection::vec("[-0. x]{0,4}", 0..200)) {
            let mut buffer = SortBuffer::new(1 << 20, Arc::new(numbers_from_large_to_small()));
            for key in &keys {
                buffer.add(0, key.as_bytes(), b"");
            }
            buffer.sort(&|| ());
            prop_assert_eq!(buffer.records(), keys.len());
        }
    }

    #[test]
    fn the_limit_holds_for_records_and_entries() {
        let mut buffer = SortBuffer::new(1000, Arc::default());
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
