//! Reads a recording, block by block.
//!
//! Every entry of every whole block is handed on; bytes after the first damage are not read. Needs
//! the memory of one block and a number for each open connection.

use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::ControlFlow;

use flate2::read::DeflateDecoder;

use super::layout::{
    BLOCK_HEAD_BYTES, BlockHead, HEADER_HEAD_BYTES, MAX_HEADER_BYTES, RecordStart, header_content,
    header_head, take_entry,
};
use super::{Entry, Header, MAX_BLOCK_BYTES, Record, Unrecorded, VERSION};
use crate::capture::{CaptureError, ConnectionId, Ending, Limits};

/// The summary of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingSummary {
    /// The head of the file: when, where and of what the recording was made.
    pub header: Header,
    /// How it ended. [`Ending::Truncated`]: the writer did not finish it.
    pub ending: Ending,
    /// Data that its writer reported as not recorded; none if it did not finish.
    pub unrecorded: Option<Unrecorded>,
}

/// Passes all entries of a recording to `sink`, which ends the reading by breaking. Connections are
/// renumbered from 0, in the order in which they were opened. Of `limits` only the number of open
/// connections matters here.
///
/// Errors: not a recording, an unknown version, a damaged header, or a failed read. The summary
/// reports later damage.
pub fn read(
    mut source: impl Read,
    limits: &Limits,
    mut sink: impl FnMut(Entry) -> ControlFlow<()>,
) -> Result<RecordingSummary, CaptureError> {
    let header = read_header(&mut source)?;
    let mut numbers = Numbers::default();
    let mut unrecorded = None;
    let ending = loop {
        let records = match read_block(&mut source)? {
            Ok(records) => records,
            Err(ending) => break ending,
        };
        let mut sink = |entry: Entry| {
            if let Record::Finished(found) = entry.record {
                unrecorded = Some(found);
                return Err(Ending::Complete);
            }
            let Some(entry) = numbers.number(entry, limits)? else { return Ok(()) };
            if sink(entry).is_break() { Err(Ending::Stopped) } else { Ok(()) }
        };
        if let Err(ending) = each_entry(&records, &mut sink) {
            break ending;
        }
    };
    Ok(RecordingSummary { header, ending, unrecorded })
}

fn read_header(source: &mut impl Read) -> Result<Header, CaptureError> {
    let mut head = [0; HEADER_HEAD_BYTES];
    fill(source, &mut head)?.map_err(|_| CaptureError::NotACapture)?;
    let (version, length) = header_head(&head).ok_or(CaptureError::NotACapture)?;
    if version != VERSION {
        return Err(CaptureError::UnknownVersion(version));
    }
    if length > MAX_HEADER_BYTES {
        return Err(CaptureError::DamagedHeader);
    }
    let mut rest = vec![0; length + 4];
    fill(source, &mut rest)?.map_err(|_| CaptureError::DamagedHeader)?;
    let (content, checksum) = rest.split_at(length);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head);
    hasher.update(content);
    if hasher.finalize().to_be_bytes() != checksum {
        return Err(CaptureError::DamagedHeader);
    }
    header_content(content).ok_or(CaptureError::DamagedHeader)
}

/// The records of the next block, unpacked, or how the file ends.
fn read_block(source: &mut impl Read) -> Result<Result<Vec<u8>, Ending>, CaptureError> {
    let mut head = [0; BLOCK_HEAD_BYTES];
    if fill(source, &mut head)?.is_err() {
        return Ok(Err(Ending::Truncated));
    }
    let Some(head) = BlockHead::read(&head) else { return Ok(Err(Ending::Damaged)) };
    if head.packed_bytes > MAX_BLOCK_BYTES || head.unpacked_bytes > MAX_BLOCK_BYTES {
        return Ok(Err(Ending::Damaged));
    }
    let mut packed = vec![0; head.packed_bytes];
    if fill(source, &mut packed)?.is_err() {
        return Ok(Err(Ending::Truncated));
    }
    if !head.fits(&packed) {
        return Ok(Err(Ending::Damaged));
    }
    let mut records = Vec::with_capacity(head.unpacked_bytes);
    // One byte more than announced shows a block that unpacks to more.
    let mut unpacked = DeflateDecoder::new(&*packed).take(head.unpacked_bytes as u64 + 1);
    let fits = unpacked.read_to_end(&mut records).is_ok() && records.len() == head.unpacked_bytes;
    Ok(if fits { Ok(records) } else { Err(Ending::Damaged) })
}

fn each_entry(
    mut records: &[u8],
    sink: &mut dyn FnMut(Entry) -> Result<(), Ending>,
) -> Result<(), Ending> {
    while !records.is_empty() {
        match take_entry(&mut records) {
            Some(RecordStart::Entry(entry)) => sink(entry)?,
            Some(RecordStart::Unknown) => {}
            None => return Err(Ending::Damaged),
        }
    }
    Ok(())
}

/// The source ended before the buffer was full.
struct TooShort;

fn fill(source: &mut impl Read, buffer: &mut [u8]) -> Result<Result<(), TooShort>, CaptureError> {
    match source.read_exact(buffer) {
        Ok(()) => Ok(Ok(())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Err(TooShort)),
        // A compressed file that is damaged.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(Err(TooShort)),
        Err(error) => Err(CaptureError::Read(error)),
    }
}

/// Numbers of connections, as in the file and as handed on.
#[derive(Default)]
struct Numbers {
    open: HashMap<ConnectionId, ConnectionId>,
    opened: u64,
}

impl Numbers {
    /// The entry with its new number; none when it is about a connection that is not open.
    fn number(&mut self, entry: Entry, limits: &Limits) -> Result<Option<Entry>, Ending> {
        let number = match entry.record {
            Record::Opened { .. } => {
                if self.open.len() >= limits.connections.max(1) {
                    return Err(Ending::LimitReached("connections"));
                }
                let number = ConnectionId(self.opened);
                self.opened += 1;
                self.open.insert(entry.connection, number);
                Some(number)
            }
            Record::Closed => self.open.remove(&entry.connection),
            Record::Note { .. } => Some(entry.connection),
            _ => self.open.get(&entry.connection).copied(),
        };
        Ok(number.map(|connection| Entry { connection, ..entry }))
    }
}
