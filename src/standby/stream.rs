//! The frames in which a leader sends its journal to a standby, and the standby acknowledges it. All
//! numbers are little-endian.
//!
//! | part | bytes |
//! |---|---|
//! | opening of the standby | [`OPENING`] (12) |
//! | frame | length of the payload (4), CRC-32 of all that follows (4), kind (1), epoch (8), number (8), payload |
//!
//! A standby says [`Kind::Hello`], with its name as payload. The leader then sends an image in pieces, the
//! records behind it, and all that are appended from then on. Each frame of the leader has the number of
//! its leadership, so that a standby refuses the frames of an old leader.

use crc32fast::Hasher;
use thiserror::Error;

/// The first bytes of a connection of a standby.
pub const OPENING: &[u8; 12] = b"CORONA-COPY\n";
/// Bytes of a frame before its payload.
pub const HEADER: usize = 25;
/// Bytes of a payload at most. The leader cuts what is longer into pieces.
pub const MAX_PAYLOAD: usize = 4 << 20;

/// What a frame is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the standby: its name. The number is that of the protocol.
    Hello,
    /// From the leader: a piece of the image of this record. The first frames of a connection.
    Image,
    /// From the leader: a piece of the framed records up to this one; an empty payload ends them.
    Records,
    /// From the leader: the standby has now got all that is in the succession's interest, up to this record.
    CaughtUp,
    /// From the leader: it is alive, and has committed up to this record.
    Alive,
    /// From the standby: it has stored all records up to this one.
    Acknowledged,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Hello, Kind::Image, Kind::Records, Kind::CaughtUp, Kind::Alive, Kind::Acknowledged];

    fn code(self) -> u8 {
        match self {
            Kind::Hello => 1,
            Kind::Image => 2,
            Kind::Records => 3,
            Kind::CaughtUp => 4,
            Kind::Alive => 5,
            Kind::Acknowledged => 6,
        }
    }
}

/// A frame without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is about.
    pub kind: Kind,
    /// The number of the leadership.
    pub epoch: u64,
    /// The number of a record.
    pub number: u64,
}

/// A whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is about.
    pub head: Head,
    /// What it carries.
    pub payload: &'a [u8],
    /// Its bytes in all.
    pub length: usize,
}

/// Bytes that are no frame. The connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// The payload is too long.
    #[error("a frame of {0} bytes")]
    TooLong(usize),
    /// The checksum does not fit.
    #[error("a frame with a wrong checksum")]
    Checksum,
    /// The kind is not known.
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
}

/// Appends a frame, whose payload has [`MAX_PAYLOAD`] bytes at most.
pub fn write(out: &mut Vec<u8>, head: Head, payload: &[u8]) {
    let (kind, epoch, number) =
        ([head.kind.code()], head.epoch.to_le_bytes(), head.number.to_le_bytes());
    let checked: [&[u8]; 4] = [&kind, &epoch, &number, payload];
    let mut checksum = Hasher::new();
    checked.iter().for_each(|part| checksum.update(part));
    out.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(checksum.finalize().to_le_bytes());
    checked.iter().for_each(|part| out.extend(*part));
}

/// The frame that the bytes start with. `None` while it is not complete.
///
/// # Errors
/// The bytes are not a frame, or its payload has more than `most` bytes.
pub fn read(bytes: &[u8], most: usize) -> Result<Option<Frame<'_>>, Malformed> {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let length = u32_at(header, 0) as usize;
    if length > most.min(MAX_PAYLOAD) {
        return Err(Malformed::TooLong(length));
    }
    let whole = HEADER + length;
    let Some(payload) = bytes.get(HEADER..whole) else { return Ok(None) };
    if bytes.get(8..whole).map(crc32fast::hash) != Some(u32_at(header, 4)) {
        return Err(Malformed::Checksum);
    }
    let kind = Kind::ALL.into_iter().find(|kind| kind.code() == header[8]);
    let kind = kind.ok_or(Malformed::Kind(header[8]))?;
    let head = Head { kind, epoch: u64_at(header, 9), number: u64_at(header, 17) };
    Ok(Some(Frame { head, payload, length: whole }))
}

/// The number at a place of a header, which has it.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let number = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    number.map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let number = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    number.map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head = Head { kind: Kind::Records, epoch: 3, number: 7 };

    #[test]
    fn bytes_are_those_of_the_table() {
        let mut bytes = Vec::new();
        write(&mut bytes, HEAD, b"ab");
        assert_eq!(&bytes[..4], [2, 0, 0, 0]);
        assert_eq!(&bytes[8..], b"\x03\x03\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0ab");
        assert_eq!(bytes[4..8], crc32fast::hash(&bytes[8..]).to_le_bytes());
        bytes.extend(b"next");
        assert_eq!(read(&bytes, 1), Err(Malformed::TooLong(2)));
        assert_eq!(
            read(&bytes, MAX_PAYLOAD),
            Ok(Some(Frame { head: HEAD, payload: b"ab", length: HEADER + 2 }))
        );
    }

    #[test]
    fn a_flipped_bit_is_noticed_and_a_missing_byte_is_waited_for() {
        let mut bytes = Vec::new();
        write(&mut bytes, HEAD, b"payload");
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length], MAX_PAYLOAD), Ok(None));
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let found = read(&damaged, MAX_PAYLOAD);
            // A length that has grown is waited for, within the bound.
            assert!(found.is_err() || (bit < 32 && found == Ok(None)), "{bit}: {found:?}");
        }
        for kind in Kind::ALL {
            let mut bytes = Vec::new();
            write(&mut bytes, Head { kind, ..HEAD }, b"");
            assert_eq!(read(&bytes, MAX_PAYLOAD).unwrap().unwrap().head.kind, kind);
        }
    }
}
