//! The bytes of records, segments and images. All numbers are little-endian.
//!
//! | part | bytes |
//! |---|---|
//! | segment | `CORONAJL`, version (4), number of its first record (8), CRC-32 of these 20 bytes (4), then records |
//! | record | length of the payload (4), CRC-32 of all that follows (4), number (8), number up to which everything was durable when it was appended (8), payload |
//! | image | `CORONAIM`, version (4), number (8), length (8), CRC-32 of the payload (4), CRC-32 of these 32 bytes (4), payload |

use crc32fast::Hasher;
use thiserror::Error;

const SEGMENT_MAGIC: &[u8; 8] = b"CORONAJL";
const IMAGE_MAGIC: &[u8; 8] = b"CORONAIM";
/// The version of both layouts that this program writes.
pub(crate) const VERSION: u32 = 1;
/// Bytes before the first record of a segment.
pub(crate) const SEGMENT_HEADER: usize = 24;
/// Bytes of a record before its payload.
pub const RECORD_HEADER: usize = 24;
const IMAGE_HEADER: usize = 36;
/// Bytes of a payload at most.
pub(crate) const MAX_PAYLOAD: usize = 1 << 30;

const SEGMENT_SUFFIX: &str = ".journal";
const IMAGE_SUFFIX: &str = ".image";
/// The suffix of a file while it is being written.
pub(crate) const NEW_SUFFIX: &str = ".new";

/// A record as it lies in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) checksum: u32,
    pub(crate) number: u64,
    pub(crate) durable: u64,
    pub(crate) payload: &'a [u8],
}

impl Frame<'_> {
    /// Bytes of the whole record.
    pub(crate) fn len(&self) -> usize {
        RECORD_HEADER + self.payload.len()
    }
}

/// Appends a record, whose payload has [`MAX_PAYLOAD`] bytes at most, and returns its checksum.
pub(crate) fn write_record(out: &mut Vec<u8>, number: u64, durable: u64, payload: &[u8]) -> u32 {
    let (number, durable) = (number.to_le_bytes(), durable.to_le_bytes());
    let checked: [&[u8]; 3] = [&number, &durable, payload];
    let mut hasher = Hasher::new();
    checked.iter().for_each(|part| hasher.update(part));
    let checksum = hasher.finalize();
    out.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(checksum.to_le_bytes());
    checked.iter().for_each(|part| out.extend(*part));
    checksum
}

/// The whole and undamaged record that the bytes start with.
pub(crate) fn read_record(bytes: &[u8]) -> Option<Frame<'_>> {
    let length = u32_at(bytes, 0)? as usize;
    if length > MAX_PAYLOAD {
        return None;
    }
    let (number, durable) = (u64_at(bytes, 8)?, u64_at(bytes, 16)?);
    let payload = bytes.get(RECORD_HEADER..RECORD_HEADER + length)?;
    // The cheap test first: most bytes that are searched are no record.
    if number == 0 || durable >= number {
        return None;
    }
    let checksum = crc32fast::hash(bytes.get(8..RECORD_HEADER + length)?);
    (checksum == u32_at(bytes, 4)?).then_some(Frame { checksum, number, durable, payload })
}

/// Goes through whole records as [`Tapped`](super::Tapped) has them: their numbers and contents.
/// Ends with an error at the first bytes that are no whole record.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<(u64, &[u8]), NoRecord>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let found = read_record(rest);
        rest = found.and_then(|record| rest.get(record.len()..)).unwrap_or_default();
        Some(found.map(|record| (record.number, record.payload)).ok_or(NoRecord))
    })
}

/// The record that the bytes start with, of a stream of records up to the number `most` that arrives in pieces.
/// `None` while it may still become one.
///
/// # Errors
/// The bytes are no record, whatever follows.
pub fn first_record(bytes: &[u8], most: u64) -> Result<Option<(u64, &[u8])>, NoRecord> {
    let (Some(length), Some(number), Some(durable)) =
        (u32_at(bytes, 0), u64_at(bytes, 8), u64_at(bytes, 16))
    else {
        return Ok(None);
    };
    let length = length as usize;
    if length > MAX_PAYLOAD || number == 0 || number > most || durable >= number {
        return Err(NoRecord);
    }
    if bytes.len() < RECORD_HEADER + length {
        return Ok(None);
    }
    let record = read_record(bytes).ok_or(NoRecord)?;
    Ok(Some((record.number, record.payload)))
}

/// Bytes that are no whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a record is not whole")]
pub struct NoRecord;

/// Appends a record in the form that [`records`] reads.
pub fn frame_record(out: &mut Vec<u8>, number: u64, payload: &[u8]) {
    write_record(out, number, 0, payload);
}

/// The header of a segment.
pub(crate) fn segment_header(first: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(SEGMENT_HEADER);
    header.extend(SEGMENT_MAGIC);
    header.extend(VERSION.to_le_bytes());
    header.extend(first.to_le_bytes());
    header.extend(crc32fast::hash(&header).to_le_bytes());
    header
}

/// The type of a file, from its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// The number that it is about.
    Good(u64),
    /// It was written by another version.
    Version(u32),
    /// It is damaged, or not all there.
    Bad,
}

/// Reads the header of a segment.
pub(crate) fn read_segment_header(bytes: &[u8]) -> Header {
    let Some(header) = bytes.get(..SEGMENT_HEADER) else { return Header::Bad };
    if !header.starts_with(SEGMENT_MAGIC)
        || u32_at(header, 20) != header.get(..20).map(crc32fast::hash)
    {
        return Header::Bad;
    }
    match (u32_at(header, 8), u64_at(header, 12)) {
        (Some(VERSION), Some(first)) => Header::Good(first),
        (Some(version), _) => Header::Version(version),
        _ => Header::Bad,
    }
}

/// The header of an image whose payload has these pieces.
pub(crate) fn image_header(number: u64, pieces: &[&[u8]]) -> Vec<u8> {
    let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
    let mut crc = crc32fast::Hasher::new();
    pieces.iter().for_each(|piece| crc.update(piece));
    let mut header = Vec::with_capacity(IMAGE_HEADER);
    header.extend(IMAGE_MAGIC);
    header.extend(VERSION.to_le_bytes());
    header.extend(number.to_le_bytes());
    header.extend(length.to_le_bytes());
    header.extend(crc.finalize().to_le_bytes());
    header.extend(crc32fast::hash(&header).to_le_bytes());
    header
}

/// The number and the payload of an image.
pub(crate) fn read_image(bytes: &[u8]) -> Result<(u64, &[u8]), Header> {
    let header = bytes.get(..IMAGE_HEADER).ok_or(Header::Bad)?;
    if !header.starts_with(IMAGE_MAGIC)
        || u32_at(header, 32) != header.get(..32).map(crc32fast::hash)
    {
        return Err(Header::Bad);
    }
    let version = u32_at(header, 8).ok_or(Header::Bad)?;
    if version != VERSION {
        return Err(Header::Version(version));
    }
    let number = u64_at(header, 12).ok_or(Header::Bad)?;
    let length = u64_at(header, 20).ok_or(Header::Bad)?;
    let payload = bytes.get(IMAGE_HEADER..).ok_or(Header::Bad)?;
    let mut hasher = Hasher::new();
    hasher.update(payload);
    let is_whole = payload.len() as u64 == length && u32_at(header, 28) == Some(hasher.finalize());
    if is_whole { Ok((number, payload)) } else { Err(Header::Bad) }
}

/// The name of the segment that starts with this record.
pub(crate) fn segment_name(first: u64) -> String {
    format!("{first:020}{SEGMENT_SUFFIX}")
}

/// The name of an image.
pub fn image_name(number: u64) -> String {
    format!("{number:020}{IMAGE_SUFFIX}")
}

/// The first record of the segment of this name.
pub(crate) fn segment_of(name: &str) -> Option<u64> {
    number_of(name, SEGMENT_SUFFIX)
}

/// The number of the image of this name.
pub(crate) fn image_of(name: &str) -> Option<u64> {
    number_of(name, IMAGE_SUFFIX)
}

fn number_of(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Later versions must read these bytes.
    #[test]
    fn bytes_are_those_of_the_table() {
        let mut record = Vec::new();
        let checksum = write_record(&mut record, 7, 3, b"ab");
        assert_eq!(&record[..4], [2, 0, 0, 0]);
        assert_eq!(&record[8..], b"\x07\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0ab");
        assert_eq!(record[4..8], crc32fast::hash(&record[8..]).to_le_bytes());
        let frame = Frame { checksum, number: 7, durable: 3, payload: b"ab" };
        assert_eq!(read_record(&record), Some(frame));
        let header = segment_header(7);
        assert_eq!(&header[..20], b"CORONAJL\x01\0\0\0\x07\0\0\0\0\0\0\0");
        assert_eq!(read_segment_header(&header), Header::Good(7));
        let image = [image_header(9, &[b"a", b"bc"]), b"abc".to_vec()].concat();
        assert_eq!(&image[..28], b"CORONAIM\x01\0\0\0\x09\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
        assert_eq!(read_image(&image), Ok((9, &b"abc"[..])));
    }

    #[test]
    fn records_are_read_until_one_is_not_whole() {
        let mut bytes = Vec::new();
        frame_record(&mut bytes, 7, b"ab");
        frame_record(&mut bytes, 8, b"");
        let whole = bytes.clone();
        assert_eq!(records(&whole).collect::<Vec<_>>(), [Ok((7, &b"ab"[..])), Ok((8, &b""[..]))]);
        bytes.pop();
        assert_eq!(records(&bytes).collect::<Vec<_>>(), [Ok((7, &b"ab"[..])), Err(NoRecord)]);
    }

    #[test]
    fn bytes_that_cannot_become_a_record_are_refused_at_once() {
        let mut bytes = Vec::new();
        write_record(&mut bytes, 7, 3, b"ab");
        assert_eq!(first_record(&bytes, 7), Ok(Some((7, &b"ab"[..]))));
        assert_eq!(first_record(&bytes, 6), Err(NoRecord), "the stream is not there yet");
        for length in 0..bytes.len() {
            assert_eq!(first_record(&bytes[..length], 7), Ok(None), "{length}");
        }
        assert_eq!(first_record(&[b'x'; RECORD_HEADER], u64::MAX), Err(NoRecord));
        assert_eq!(first_record(&[0; RECORD_HEADER], u64::MAX), Err(NoRecord));
        bytes[25] ^= 1;
        assert_eq!(first_record(&bytes, 7), Err(NoRecord));
    }

    #[test]
    fn a_flipped_bit_or_a_missing_byte_is_noticed() {
        let mut record = Vec::new();
        write_record(&mut record, 7, 3, b"payload");
        let image = [image_header(9, &[b"payload"]), b"payload".to_vec()].concat();
        let segment = segment_header(7);
        for bit in 0..record.len() * 8 {
            let mut damaged = record.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_record(&damaged), None, "bit {bit}");
        }
        for bit in 0..image.len() * 8 {
            let mut damaged = image.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read_image(&damaged).is_err(), "bit {bit}");
        }
        for bit in 0..segment.len() * 8 {
            let mut damaged = segment.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_segment_header(&damaged), Header::Bad, "bit {bit}");
        }
        for length in 0..record.len() {
            assert_eq!(read_record(&record[..length]), None);
        }
        for length in 0..image.len() {
            assert!(read_image(&image[..length]).is_err());
        }
    }

    #[test]
    fn names_sort_as_their_numbers_and_others_are_none() {
        assert_eq!(segment_name(7), "00000000000000000007.journal");
        assert_eq!(segment_of(&segment_name(u64::MAX)), Some(u64::MAX));
        assert_eq!(image_of(&image_name(7)), Some(7));
        for name in ["7.journal", "0000000000000000000x.journal", "00000000000000000007.image"] {
            assert_eq!(segment_of(name), None, "{name}");
        }
    }
}
