//! The header and the index of a map's output. Spec: mapreduce/02 §2.13.

use super::writable;
use crate::io::formats::{Bool, Long, Text, VInt, VLong, Writable};
use crate::io::{DecodeError, Reader, Writer};

writable! {
    /// The header of a map output that a reduce fetches.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ShuffleHeader {
        /// The attempt whose output it is, by name.
        pub attempt: String as Text,
        /// Bytes that follow.
        pub part_length: i64 as VLong,
        /// Bytes of the same when it is not compressed.
        pub raw_length: i64 as VLong,
        /// The number of the reduce.
        pub reduce: i32 as VInt,
        /// Whether there is such an output. If not, no bytes follow, whatever the lengths are.
        pub found: bool as Bool,
    }
}

writable! {
    /// Where a reduce's part of a map output lies.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IndexRecord {
        /// Its first byte in the output file.
        pub start: i64 as Long,
        /// Its bytes when it is not compressed.
        pub raw_length: i64 as Long,
        /// Its bytes in the file.
        pub part_length: i64 as Long,
    }
}

/// The index of a map output, `file.out.index`: one record for each reduce, and a checksum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpillIndex {
    /// The records, by number of the reduce.
    pub records: Vec<IndexRecord>,
}

const RECORD_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 8;

impl SpillIndex {
    /// Reads the whole of a file.
    ///
    /// Errors: [`Truncated`](DecodeError::Truncated) if it does not hold a whole number of records
    /// and a checksum, [`Checksum`](DecodeError::Checksum) if that is wrong.
    pub fn decode(file: &[u8]) -> Result<SpillIndex, DecodeError> {
        let records = file.len().checked_sub(CHECKSUM_BYTES).ok_or(DecodeError::Truncated)?;
        if records % RECORD_BYTES != 0 {
            return Err(DecodeError::Truncated);
        }
        let mut reader = Reader::new(file);
        let checksum = crc32fast::hash(reader.take(records)?);
        if reader.i64()? != i64::from(checksum) {
            return Err(DecodeError::Checksum);
        }
        let mut reader = Reader::new(file);
        let records = (0..records / RECORD_BYTES).map(|_| IndexRecord::decode(&mut reader));
        Ok(SpillIndex { records: records.collect::<Result<_, _>>()? })
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(usize::MAX);
        for record in &self.records {
            record.encode(&mut writer);
        }
        let mut file = writer.finish().unwrap_or_default();
        let checksum = i64::from(crc32fast::hash(&file));
        file.extend(checksum.to_be_bytes());
        file
    }
}
