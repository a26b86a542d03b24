//! The marker of a journal: a small file beside its directory that says that there is a journal, and up
//! to which record it was durable. It tells a first start from lost files, and damage from a torn tail.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `CORONAMK` |
//! | 4 | version |
//! | 8 | number of a record up to which everything was durable; 0 before the first record |
//! | 4 | checksum of that record; 0 if it is not known |
//! | 4 | CRC-32 of these 24 bytes |
//!
//! It is written and synced before the first record, and then after records have become durable, when
//! nothing follows them or after a second. Those writes are not synced: what a power cut leaves is an
//! earlier number, which is true as well. A journal of an earlier version has no marker and gets one
//! when it is opened.

use super::frame::{self, VERSION};
use super::recovery::OpenError;
use super::storage::{Storage, StorageError};

/// The name under which a [`Storage`] has the marker.
pub(crate) const MARKER: &str = "marker";
const MAGIC: &[u8; 8] = b"CORONAMK";
const LENGTH: usize = 28;

/// What a marker says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marker {
    /// Everything up to this record was durable. 0: a journal was begun.
    pub(crate) number: u64,
    /// The checksum of that record; 0 if it is not known.
    pub(crate) checksum: u32,
}

impl Marker {
    /// The marker of a journal. `None` at a first start, and for a journal of an earlier version. A
    /// damaged marker says only that there is a journal.
    pub(crate) fn read(storage: &dyn Storage) -> Result<Option<Marker>, OpenError> {
        if !storage.list()?.iter().any(|name| name == MARKER) {
            return Ok(None);
        }
        match Marker::decode(&storage.read(MARKER)?) {
            Ok(marker) => Ok(Some(marker)),
            Err(Some(version)) => Err(OpenError::Version { file: MARKER.to_owned(), version }),
            Err(None) => Ok(Some(Marker::default())),
        }
    }

    /// Replaces the marker of a journal.
    pub(crate) fn write(self, storage: &dyn Storage, durably: bool) -> Result<(), StorageError> {
        storage.replace(MARKER, &self.encode(), durably)
    }

    fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.checksum.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// Fails with the version that is not known, or with none if the bytes are damaged.
    fn decode(bytes: &[u8]) -> Result<Marker, Option<u32>> {
        let checksum = crc32fast::hash(bytes.get(..24).ok_or(None)?);
        if !bytes.starts_with(MAGIC) || frame::u32_at(bytes, 24) != Some(checksum) {
            return Err(None);
        }
        match (frame::u32_at(bytes, 8), frame::u64_at(bytes, 12), frame::u32_at(bytes, 20)) {
            (Some(VERSION), Some(number), Some(checksum)) => Ok(Marker { number, checksum }),
            (version, ..) => Err(version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Later versions must read these bytes.
    #[test]
    fn bytes_are_those_of_the_table() {
        let marker = Marker { number: 7, checksum: 0x0102_0304 };
        let bytes = marker.encode();
        assert_eq!(&bytes[..24], b"CORONAMK\x01\0\0\0\x07\0\0\0\0\0\0\0\x04\x03\x02\x01");
        assert_eq!(bytes[24..], crc32fast::hash(&bytes[..24]).to_le_bytes());
        assert_eq!(Marker::decode(&bytes), Ok(marker));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Marker::decode(&damaged), Err(None), "bit {bit}");
        }
        let mut newer = bytes;
        newer[8] = 9;
        let checksum = crc32fast::hash(&newer[..24]).to_le_bytes();
        newer[24..].copy_from_slice(&checksum);
        assert_eq!(Marker::decode(&newer), Err(Some(9)));
    }
}
