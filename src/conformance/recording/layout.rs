//! The bytes of headers, blocks and records. Big-endian throughout.
//!
//! Pure: slices in and out. Unreadable bytes give none, never a panic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::{Entry, GapReason, Header, Origin, Record, Unrecorded, VERSION};
use crate::capture::{ConnectionId, Opening, Side};
use crate::conversation::Offered;
use corona_model::text::cut;

/// How every recording begins. The first byte is no text and the line ends show a transfer that
/// changed them.
pub(crate) const MAGIC: [u8; 8] = *b"\x89CREC\r\n\x1a";

/// Magic, version and the length of the header's content.
pub(super) const HEADER_HEAD_BYTES: usize = 12;

/// The most bytes that a header's content may have.
pub(super) const MAX_HEADER_BYTES: usize = 4096;

/// How every block begins.
pub(super) const BLOCK_MARK: [u8; 4] = *b"CBLK";

/// Mark, packed length, unpacked length and checksum.
pub(super) const BLOCK_HEAD_BYTES: usize = 16;

/// Kind, time, connection and length.
pub(super) const RECORD_HEAD_BYTES: usize = 21;

/// The most characters that are kept of a text in the header.
const MAX_TEXT_BYTES: usize = 1024;

/// The whole header with its checksum.
pub(super) fn header_bytes(header: &Header) -> Vec<u8> {
    let mut content = header.started_at_us.to_be_bytes().to_vec();
    content.push(match header.origin {
        Origin::Relay => 1,
        Origin::Import => 2,
    });
    content.push(u8::from(header.relay_callbacks));
    push_text(&mut content, &header.listener);
    push_text(&mut content, &header.upstream);
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_be_bytes());
    bytes.extend(u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend(content);
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_be_bytes());
    bytes
}

/// The version and the length of the content that the first bytes of a file announce.
pub(super) fn header_head(head: &[u8; HEADER_HEAD_BYTES]) -> Option<(u16, usize)> {
    let mut input = Input(head.strip_prefix(&MAGIC)?);
    Some((input.u16()?, usize::from(input.u16()?)))
}

/// The content of a header. Unknown further bytes are ignored: a later program may write them.
pub(super) fn header_content(content: &[u8]) -> Option<Header> {
    let mut input = Input(content);
    Some(Header {
        started_at_us: input.u64()?,
        origin: match input.u8()? {
            1 => Origin::Relay,
            2 => Origin::Import,
            _ => return None,
        },
        relay_callbacks: input.u8()? & 1 == 1,
        listener: input.text()?,
        upstream: input.text()?,
    })
}

/// The head of a block with these packed bytes.
pub(super) fn block_head(packed: &[u8], unpacked_bytes: usize) -> [u8; BLOCK_HEAD_BYTES] {
    let lengths = [packed.len(), unpacked_bytes].map(length_bytes);
    let mut head = [0; BLOCK_HEAD_BYTES];
    let sum = checksum(lengths.as_flattened(), packed).to_be_bytes();
    let parts = BLOCK_MARK.iter().chain(lengths.as_flattened()).chain(&sum);
    head.iter_mut().zip(parts).for_each(|(place, byte)| *place = *byte);
    head
}

/// The contents of a block's head.
pub(super) struct BlockHead {
    pub(super) packed_bytes: usize,
    pub(super) unpacked_bytes: usize,
    lengths: [u8; 8],
    checksum: u32,
}

impl BlockHead {
    /// None when no block begins like this.
    pub(super) fn read(head: &[u8; BLOCK_HEAD_BYTES]) -> Option<Self> {
        let rest = head.strip_prefix(&BLOCK_MARK)?;
        let mut input = Input(rest);
        Some(BlockHead {
            packed_bytes: usize::try_from(input.u32()?).ok()?,
            unpacked_bytes: usize::try_from(input.u32()?).ok()?,
            checksum: input.u32()?,
            lengths: *rest.first_chunk()?,
        })
    }

    /// Whether these are the packed bytes that were written.
    pub(super) fn fits(&self, packed: &[u8]) -> bool {
        checksum(&self.lengths, packed) == self.checksum
    }
}

fn length_bytes(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

fn checksum(lengths: &[u8], packed: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(lengths);
    hasher.update(packed);
    hasher.finalize()
}

/// Appends a record.
pub(super) fn push_entry(out: &mut Vec<u8>, entry: &Entry) {
    let start = out.len();
    out.push(kind_of(&entry.record));
    out.extend(u64::try_from(entry.at.as_micros()).unwrap_or(u64::MAX).to_be_bytes());
    out.extend(entry.connection.0.to_be_bytes());
    out.extend([0; 4]);
    let content = out.len();
    match &entry.record {
        Record::Opened { opening, service } => {
            push_address(out, opening.client);
            push_address(out, opening.server);
            out.push(service_number(*service));
            out.push(u8::from(opening.whole));
        }
        Record::Data(side, data) => {
            out.push(side_number(*side));
            out.extend_from_slice(data);
        }
        Record::End(side) | Record::Reset(side) => out.push(side_number(*side)),
        Record::Gap(side, bytes, why) => {
            out.push(side_number(*side));
            out.extend(bytes.to_be_bytes());
            out.push(match why {
                GapReason::NotCaptured => 1,
                GapReason::BufferFull => 2,
            });
        }
        Record::Finished(unrecorded) => {
            out.extend(unrecorded.connections.to_be_bytes());
            out.extend(unrecorded.bytes.to_be_bytes());
        }
        Record::Note { more, text } => {
            out.push(u8::from(*more));
            out.extend_from_slice(text);
        }
        Record::Accepted | Record::Closed => {}
    }
    let length = length_bytes(out.len() - content);
    if let Some(place) = out.get_mut(start + RECORD_HEAD_BYTES - 4..content) {
        place.copy_from_slice(&length);
    }
}

/// The result of reading where a record should begin.
pub(super) enum RecordStart {
    Entry(Entry),
    /// A record of a kind from a later program.
    Unknown,
}

/// Takes the next record off the front of `bytes`; none when it cannot be read.
pub(super) fn take_entry(bytes: &mut &[u8]) -> Option<RecordStart> {
    let mut input = Input(bytes);
    let kind = input.u8()?;
    let at = Duration::from_micros(input.u64()?);
    let connection = ConnectionId(input.u64()?);
    let length = usize::try_from(input.u32()?).ok()?;
    let mut content = Input(input.take(length)?);
    *bytes = input.0;
    let record = match kind {
        1 => {
            let (client, server) = (content.address()?, content.address()?);
            let service = service_of(content.u8()?);
            let whole = content.u8()? & 1 == 1;
            Record::Opened { opening: Opening { client, server, at, whole }, service }
        }
        2 => Record::Accepted,
        3 => Record::Data(content.side()?, content.0.to_vec()),
        4 => Record::End(content.side()?),
        5 => Record::Reset(content.side()?),
        6 => Record::Gap(
            content.side()?,
            content.u64()?,
            match content.u8()? {
                1 => GapReason::NotCaptured,
                2 => GapReason::BufferFull,
                _ => return None,
            },
        ),
        7 => Record::Closed,
        8 => Record::Finished(Unrecorded { connections: content.u64()?, bytes: content.u64()? }),
        9 => Record::Note { more: content.u8()? & 1 == 1, text: content.0.to_vec() },
        _ => return Some(RecordStart::Unknown),
    };
    Some(RecordStart::Entry(Entry { at, connection, record }))
}

fn kind_of(record: &Record) -> u8 {
    match record {
        Record::Opened { .. } => 1,
        Record::Accepted => 2,
        Record::Data(..) => 3,
        Record::End(_) => 4,
        Record::Reset(_) => 5,
        Record::Gap(..) => 6,
        Record::Closed => 7,
        Record::Finished(_) => 8,
        Record::Note { .. } => 9,
    }
}

fn side_number(side: Side) -> u8 {
    side.of([0, 1])
}

/// Services by their numbers, from 1 on; 0 is none.
const SERVICES: [Offered; 3] =
    [Offered::ClusterManager, Offered::ProxyJobTracker, Offered::SessionDriver];

fn service_number(service: Option<Offered>) -> u8 {
    let found = SERVICES.into_iter().zip(1..).find(|(known, _)| Some(*known) == service);
    found.map_or(0, |(_, number)| number)
}

/// A number that is not known is that of a later program's service.
fn service_of(number: u8) -> Option<Offered> {
    SERVICES.get(usize::from(number.checked_sub(1)?)).copied()
}

fn push_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend(ip.octets());
        }
    }
    out.extend(address.port().to_be_bytes());
}

/// A text of bounded length.
fn push_text(out: &mut Vec<u8>, text: &str) {
    let kept = cut(text, MAX_TEXT_BYTES);
    out.extend(u16::try_from(kept.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(kept.as_bytes());
}

/// Bytes that are read from the front.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn side(&mut self) -> Option<Side> {
        match self.u8()? {
            0 => Some(Side::Client),
            1 => Some(Side::Server),
            _ => None,
        }
    }

    fn address(&mut self) -> Option<SocketAddr> {
        let ip = match self.u8()? {
            4 => IpAddr::V4(Ipv4Addr::from(self.array::<4>()?)),
            6 => IpAddr::V6(Ipv6Addr::from(self.array::<16>()?)),
            _ => return None,
        };
        Some(SocketAddr::new(ip, self.u16()?))
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::from(self.u16()?);
        Some(String::from_utf8_lossy(self.take(length)?).into_owned())
    }
}
