//! What clients and data nodes send each other, byte for byte, in both directions.
//!
//! It reads and writes bytes and knows no connection. Spec: hdfs/01 §1.5, §1.6.

use corona_hadoop::io::formats::Writable;
use corona_hadoop::io::{DecodeError, Reader, Writer};
use corona_hadoop::writables::{Block, DatanodeInfo};

/// The version of the protocol that is spoken here, and the range that data nodes accept.
pub const VERSION: i16 = 30;
/// The oldest version that the data nodes accept.
pub const OLDEST_VERSION: i16 = 23;
/// The oldest version in which packets are written: headers of earlier ones have another form.
pub const OLDEST_WRITTEN_VERSION: i16 = 28;
/// Packets say how they are laid out from this version on.
const VERSIONED_PACKETS: i16 = 28;
/// Bytes of a checksum.
pub const SUM_BYTES: usize = 4;
/// Bytes of the header of a packet, its length included.
pub const HEADER_BYTES: usize = 29;
/// The number of the packet that keeps a connection alive.
pub const HEARTBEAT: i64 = -1;
/// What data nodes are asked to do with the disk cache of a block: sync_file_range as the original.
const WRITE_OPTIONS: [i64; 2] = [0x808, 0];
/// The most nodes of a pipeline, and options of a request, that are believed.
const MAX_ITEMS: i32 = 1024;
/// The longest name of a client.
const MAX_NAME_BYTES: usize = 64 << 10;

const WRITE: u8 = 80;
const READ: u8 = 81;
const APPEND: u8 = 88;

/// The status of an answer: all is well.
pub const SUCCESS: i16 = 0;
/// The status that a reader sends when all checksums were right.
pub const CHECKSUM_OK: i16 = 5;

/// How bytes are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumKind {
    /// Not at all.
    None,
    /// CRC-32 as in zlib.
    Crc32,
    /// CRC-32C.
    Crc32c,
}

impl SumKind {
    fn number(self) -> u8 {
        match self {
            SumKind::None => 0,
            SumKind::Crc32 => 1,
            SumKind::Crc32c => 2,
        }
    }

    fn of(number: u8) -> Result<SumKind, DecodeError> {
        match number {
            0 => Ok(SumKind::None),
            1 => Ok(SumKind::Crc32),
            2 => Ok(SumKind::Crc32c),
            other => Err(DecodeError::Number { kind: "type of checksum", value: other.into() }),
        }
    }

    /// The checksum of some bytes; none without checksums.
    pub fn sum(self, bytes: &[u8]) -> Option<u32> {
        match self {
            SumKind::None => None,
            SumKind::Crc32 => Some(crc32fast::hash(bytes)),
            SumKind::Crc32c => Some(super::crc32c::hash(bytes)),
        }
    }
}

/// The checksums of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Their kind.
    pub kind: SumKind,
    /// Bytes that one covers, at least 1.
    pub covered: usize,
}

/// The most bytes that one checksum is believed to cover.
const MAX_COVERED: i32 = 1 << 20;

impl Sums {
    fn decode(reader: &mut Reader<'_>) -> Result<Sums, DecodeError> {
        let kind = SumKind::of(reader.i8()?.cast_unsigned())?;
        let covered = reader.i32()?;
        if !(1..=MAX_COVERED).contains(&covered) {
            let kind = "number of bytes for a checksum";
            return Err(DecodeError::Number { kind, value: covered.into() });
        }
        Ok(Sums { kind, covered: usize::try_from(covered).unwrap_or(1) })
    }

    fn encode(self, writer: &mut Writer) {
        writer.i8(self.kind.number().cast_signed());
        writer.i32(i32::try_from(self.covered).unwrap_or(MAX_COVERED));
    }

    /// Checksums of so many bytes from a place in a block on.
    pub fn count(self, offset: u64, bytes: usize) -> usize {
        match self.kind {
            SumKind::None => 0,
            // Nothing is continued.
            _ if bytes == 0 => 0,
            _ => (self.begun(offset) + bytes).div_ceil(self.covered),
        }
    }

    /// Bytes of a chunk before a place in a block.
    pub(super) fn begun(self, offset: u64) -> usize {
        usize::try_from(offset % self.covered.max(1) as u64).unwrap_or_default()
    }
}

/// A request to read a part of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The version that both sides speak.
    pub version: i16,
    /// The name node's namespace.
    pub namespace: i32,
    /// The block; its length is not sent.
    pub block: i64,
    /// Its generation.
    pub generation: i64,
    /// Where to begin in the block.
    pub offset: i64,
    /// How many bytes.
    pub length: i64,
    /// Who reads.
    pub client: String,
    /// Whether another request may follow; from version 24 on.
    pub reuse: bool,
    /// From version 27 on.
    pub profile: bool,
    /// From version 30 on.
    pub options: Vec<i64>,
}

/// A request to write a block through a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRequest {
    /// The version that both sides speak.
    pub version: i16,
    /// The name node's namespace.
    pub namespace: i32,
    /// The block; its length is not sent.
    pub block: i64,
    /// Bytes that the block has if it is complete and is appended to; none for a new block, and for
    /// one whose pipeline is set up again.
    pub appended_at: Option<i64>,
    /// Its generation; of a block that is appended to, the new one.
    pub generation: i64,
    /// Nodes of the pipeline, the receiver included.
    pub depth: i32,
    /// Whether a broken pipeline is set up again.
    pub recovery: bool,
    /// Who writes; empty for another data node.
    pub client: String,
    /// The data node that sends, if it is one.
    pub source: Option<DatanodeInfo>,
    /// The nodes behind the receiver.
    pub targets: Vec<DatanodeInfo>,
    /// From version 26 on.
    pub options: Vec<i64>,
    /// The checksums that follow.
    pub sums: Sums,
}

/// What is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// A block that no data node has.
    New,
    /// A block that was complete.
    Append,
    /// A block whose pipeline failed, and whose replicas have been brought to one length.
    Recovered,
}

/// What a connection to a data node begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read.
    Read(ReadRequest),
    /// Write.
    Write(WriteRequest),
}

fn options(reader: &mut Reader<'_>) -> Result<Vec<i64>, DecodeError> {
    (0..items(reader)?).map(|_| reader.i64()).collect()
}

fn items(reader: &mut Reader<'_>) -> Result<i32, DecodeError> {
    match reader.i32()? {
        count @ 0..=MAX_ITEMS => Ok(count),
        count => Err(DecodeError::Length { length: count.into(), left: MAX_ITEMS as usize }),
    }
}

fn put_options(options: &[i64], writer: &mut Writer) {
    let count = writer.count(options.len());
    writer.i32(count);
    for option in options {
        writer.i64(*option);
    }
}

impl ReadRequest {
    /// A request of this client for a part of a block.
    pub fn new(
        version: i16,
        namespace: i32,
        block: Block,
        (offset, length): (i64, i64),
        client: &str,
    ) -> ReadRequest {
        ReadRequest {
            version,
            namespace,
            block: block.id,
            generation: block.generation,
            offset,
            length,
            client: client.to_owned(),
            reuse: false,
            profile: false,
            options: vec![0, 0],
        }
    }
}

impl WriteRequest {
    /// A request of this client for a block. The first of the nodes is the receiver.
    pub fn new(
        (version, namespace): (i16, i32),
        block: Block,
        kind: WriteKind,
        nodes: &[DatanodeInfo],
        client: &str,
        sums: Sums,
    ) -> WriteRequest {
        WriteRequest {
            version,
            namespace,
            block: block.id,
            appended_at: (kind == WriteKind::Append).then_some(block.bytes),
            generation: block.generation,
            depth: i32::try_from(nodes.len()).unwrap_or(MAX_ITEMS),
            recovery: kind == WriteKind::Recovered,
            client: client.to_owned(),
            source: None,
            targets: nodes.get(1..).unwrap_or_default().to_vec(),
            options: WRITE_OPTIONS.to_vec(),
            sums,
        }
    }
}

impl Writable for Request {
    fn decode(reader: &mut Reader<'_>) -> Result<Request, DecodeError> {
        let version = reader.i16()?;
        if !(OLDEST_VERSION..=VERSION).contains(&version) {
            let kind = "version of data transfer";
            return Err(DecodeError::Number { kind, value: version.into() });
        }
        let operation = reader.i8()?.cast_unsigned();
        if ![READ, WRITE, APPEND].contains(&operation) {
            let kind = "operation of data transfer";
            return Err(DecodeError::Number { kind, value: operation.into() });
        }
        let (namespace, block) = (reader.i32()?, reader.i64()?);
        let appended_at = (operation == APPEND).then(|| reader.i64()).transpose()?;
        let generation = reader.i64()?;
        if operation == READ {
            return Ok(Request::Read(ReadRequest {
                version,
                namespace,
                block,
                generation,
                offset: reader.i64()?,
                length: reader.i64()?,
                client: reader.text()?,
                reuse: version >= 24 && reader.bool()?,
                profile: version >= 27 && reader.bool()?,
                options: if version >= 30 { options(reader)? } else { Vec::new() },
            }));
        }
        let depth = reader.i32()?;
        let recovery = operation == WRITE && reader.bool()?;
        let client = reader.text()?;
        let source = reader.bool()?.then(|| DatanodeInfo::decode(reader)).transpose()?;
        let mut targets = Vec::new();
        for _ in 0..items(reader)? {
            targets.push(DatanodeInfo::decode(reader)?);
        }
        let options = if version >= 26 { options(reader)? } else { Vec::new() };
        let sums = Sums::decode(reader)?;
        Ok(Request::Write(WriteRequest {
            version,
            namespace,
            block,
            appended_at,
            generation,
            depth,
            recovery,
            client,
            source,
            targets,
            options,
            sums,
        }))
    }

    fn encode(&self, writer: &mut Writer) {
        match self {
            Request::Read(read) => {
                writer.i16(read.version);
                writer.i8(READ.cast_signed());
                writer.i32(read.namespace);
                for number in [read.block, read.generation, read.offset, read.length] {
                    writer.i64(number);
                }
                writer.text(&read.client);
                if read.version >= 24 {
                    writer.bool(read.reuse);
                }
                if read.version >= 27 {
                    writer.bool(read.profile);
                }
                if read.version >= 30 {
                    put_options(&read.options, writer);
                }
            }
            Request::Write(write) => {
                writer.i16(write.version);
                let operation = if write.appended_at.is_some() { APPEND } else { WRITE };
                writer.i8(operation.cast_signed());
                writer.i32(write.namespace);
                writer.i64(write.block);
                if let Some(bytes) = write.appended_at {
                    writer.i64(bytes);
                }
                writer.i64(write.generation);
                writer.i32(write.depth);
                if write.appended_at.is_none() {
                    writer.bool(write.recovery);
                }
                writer.text(&write.client);
                writer.bool(write.source.is_some());
                if let Some(source) = &write.source {
                    source.encode(writer);
                }
                let count = writer.count(write.targets.len());
                writer.i32(count);
                for target in &write.targets {
                    target.encode(writer);
                }
                if write.version >= 26 {
                    put_options(&write.options, writer);
                }
                write.sums.encode(writer);
            }
        }
    }
}

/// The bytes of a request.
pub fn request_bytes(request: &Request) -> Vec<u8> {
    let mut writer = Writer::new(MAX_NAME_BYTES * 64);
    request.encode(&mut writer);
    writer.finish().unwrap_or_default()
}

/// What stands before the packets of an answer to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadReply {
    /// The checksums that follow.
    pub sums: Sums,
    /// Where the first chunk begins in the block: at the wanted place or before it.
    pub first_chunk: i64,
}

/// The answer to a reader: a status, and what follows it if all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAnswer {
    /// Packets follow.
    Packets(ReadReply),
    /// A refusal; the connection ends.
    Status(i16),
}

impl Writable for ReadAnswer {
    fn decode(reader: &mut Reader<'_>) -> Result<ReadAnswer, DecodeError> {
        match reader.i16()? {
            SUCCESS => {
                let sums = Sums::decode(reader)?;
                Ok(ReadAnswer::Packets(ReadReply { sums, first_chunk: reader.i64()? }))
            }
            status => Ok(ReadAnswer::Status(status)),
        }
    }

    fn encode(&self, writer: &mut Writer) {
        match self {
            ReadAnswer::Status(status) => writer.i16(*status),
            ReadAnswer::Packets(reply) => {
                writer.i16(SUCCESS);
                reply.sums.encode(writer);
                writer.i64(reply.first_chunk);
            }
        }
    }
}

/// How the bytes of a packet lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All checksums before the bytes.
    SumsFirst,
    /// Each checksum behind its chunk.
    Inline,
}

/// What stands before the bytes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// Bytes that follow the header: checksums and data.
    pub payload: usize,
    /// How they lie.
    pub layout: Layout,
    /// Where the data begin in the block.
    pub offset: i64,
    /// The packet's number.
    pub seqno: i64,
    /// Bit 0: the last one. Bit 1: it is to be synced.
    pub flags: u8,
    /// Bytes of data.
    pub data: usize,
}

/// What comes next in a stream of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A packet, whose payload follows.
    Packet(PacketHeader),
    /// The end.
    End,
}

impl PacketHeader {
    /// Whether it is the last one of its block, or of an answer.
    pub fn is_last(&self) -> bool {
        self.flags & 1 == 1
    }

    /// Reads the header of a packet of this version, or the end mark.
    ///
    /// # Errors
    /// Also a packet of more than `max_bytes`, and one whose length does not fit its data.
    pub fn decode(
        reader: &mut Reader<'_>,
        version: i16,
        sums: Sums,
        max_bytes: usize,
    ) -> Result<Next, DecodeError> {
        let length = reader.i32()?;
        if length == 0 {
            return Ok(Next::End);
        }
        let wrong = DecodeError::Length { length: length.into(), left: max_bytes };
        let length = usize::try_from(length).ok().filter(|length| *length <= max_bytes);
        let payload = length.and_then(|length| length.checked_sub(4)).ok_or(wrong)?;
        let layout = match version >= VERSIONED_PACKETS {
            false => Layout::SumsFirst,
            true => match reader.i32()? {
                1 => Layout::SumsFirst,
                2 => Layout::Inline,
                other => {
                    let kind = "version of a packet";
                    return Err(DecodeError::Number { kind, value: other.into() });
                }
            },
        };
        let (offset, seqno) = (reader.i64()?, reader.i64()?);
        let (flags, data) = (reader.i8()?.cast_unsigned(), reader.i32()?);
        let from = u64::try_from(offset);
        let from = from.map_err(|_| DecodeError::Number { kind: "offset", value: offset })?;
        let bytes = usize::try_from(data).ok().filter(|data| {
            *data <= payload && data + SUM_BYTES * sums.count(from, *data) == payload
        });
        let data = bytes.ok_or(DecodeError::Length { length: data.into(), left: payload })?;
        Ok(Next::Packet(PacketHeader { payload, layout, offset, seqno, flags, data }))
    }

    /// The bytes of the header as it is written, always with a version of the packet.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let version: i32 = if self.layout == Layout::SumsFirst { 1 } else { 2 };
        let fields: [&[u8]; 6] = [
            &u32::try_from(self.payload + 4).unwrap_or(u32::MAX).to_be_bytes(),
            &version.to_be_bytes(),
            &self.offset.to_be_bytes(),
            &self.seqno.to_be_bytes(),
            &[self.flags],
            &u32::try_from(self.data).unwrap_or(u32::MAX).to_be_bytes(),
        ];
        let all = fields.into_iter().flatten();
        for (to, from) in bytes.iter_mut().zip(all) {
            *to = *from;
        }
        bytes
    }
}

/// Bytes of data that do not fit their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongSum {
    /// Where the chunk begins in the block.
    pub at: u64,
}

/// Checks the payload of a packet and moves its data together. Gives where in the payload they are.
pub fn verify(
    header: &PacketHeader,
    sums: Sums,
    payload: &mut [u8],
) -> Result<std::ops::Range<usize>, WrongSum> {
    let (mut offset, mut left) = (header.offset.unsigned_abs(), header.data);
    let has_sums = sums.kind != SumKind::None;
    let count = sums.count(offset, header.data);
    let at_front =
        if has_sums && header.layout == Layout::SumsFirst { count * SUM_BYTES } else { 0 };
    // Where data are read, where they are moved to, and where the next checksum of the front is.
    let (mut from, mut to, mut sum_at) = (at_front, at_front, 0);
    while left > 0 {
        let in_chunk = sums.begun(offset);
        let length = left.min(sums.covered - in_chunk);
        let wrong = WrongSum { at: offset };
        let chunk = payload.get(from..from + length).ok_or(wrong)?;
        if has_sums {
            let place = if header.layout == Layout::Inline { from + length } else { sum_at };
            let expected = payload.get(place..place + SUM_BYTES).ok_or(wrong)?;
            if sums.kind.sum(chunk).map(u32::to_be_bytes).as_ref().map(<[u8; 4]>::as_slice)
                != Some(expected)
            {
                return Err(wrong);
            }
        }
        if from != to {
            payload.copy_within(from..from + length, to);
        }
        let behind = has_sums && header.layout == Layout::Inline;
        from += length + if behind { SUM_BYTES } else { 0 };
        to += length;
        sum_at += SUM_BYTES;
        offset += length as u64;
        left -= length;
    }
    Ok(at_front..to)
}

/// What follows the end mark of an answer to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadEnd {
    /// Whether the replica is no longer written.
    pub finalized: bool,
    /// Bytes of the replica that readers may see.
    pub visible: i64,
}

impl Writable for ReadEnd {
    fn decode(reader: &mut Reader<'_>) -> Result<ReadEnd, DecodeError> {
        Ok(ReadEnd { finalized: reader.bool()?, visible: reader.i64()? })
    }

    fn encode(&self, writer: &mut Writer) {
        writer.bool(self.finalized);
        writer.i64(self.visible);
    }
}

/// What a pipeline says of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The packet's number.
    pub seqno: i64,
    /// The number of the node that failed in the pipeline; none if all wrote it.
    pub bad: Option<usize>,
}

impl Ack {
    /// Reads what a pipeline of so many nodes says: one status after the other, up to the first that
    /// is no success.
    pub fn decode(reader: &mut Reader<'_>, nodes: usize) -> Result<Ack, DecodeError> {
        let seqno = reader.i64()?;
        for node in 0..nodes {
            if reader.i16()? != SUCCESS {
                return Ok(Ack { seqno, bad: Some(node) });
            }
        }
        Ok(Ack { seqno, bad: None })
    }

    /// The bytes for a pipeline of so many nodes.
    pub fn bytes(&self, nodes: usize) -> Vec<u8> {
        let mut bytes = self.seqno.to_be_bytes().to_vec();
        let good = self.bad.unwrap_or(nodes);
        bytes.extend(std::iter::repeat_n([0, 0], good).flatten());
        if self.bad.is_some() {
            bytes.extend([0, 1]);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(pair).collect()
    }

    #[test]
    fn requests_to_write_say_what_they_write_to() {
        let block = Block { id: 5, bytes: 700, generation: 1002 };
        let sums = Sums { kind: SumKind::Crc32, covered: 512 };
        // As the original's headers for new blocks and for appends write themselves.
        let end = "01 61 00 00000000 00000002 0000000000000808 0000000000000000 01 00000200";
        let table = [
            (WriteKind::New, "001e 50 00000007 0000000000000005 00000000000003ea 00000001 00"),
            (
                WriteKind::Recovered,
                "001e 50 00000007 0000000000000005 00000000000003ea 00000001 01",
            ),
            (
                WriteKind::Append,
                "001e 58 00000007 0000000000000005 00000000000002bc 00000000000003ea 00000001",
            ),
        ];
        for (kind, begin) in table {
            let request = WriteRequest::new((VERSION, 7), block, kind, &[], "a", sums);
            let request = Request::Write(WriteRequest { depth: 1, ..request });
            let golden = unhex(&format!("{begin} {end}"));
            assert_eq!(request_bytes(&request), golden, "{kind:?}");
            assert_eq!(Request::decode(&mut Reader::new(&golden)), Ok(request));
        }
    }

    #[test]
    fn the_first_packet_of_a_file_has_the_bytes_of_the_original() {
        // Spec: hdfs/01 §1.6.2.
        let golden = unhex(
            "00000020 00000001 0000000000000000 0000000000000000 01 00000018 63b0fe1c
             48656c6c6f2048444653206f66206861646f6f702d32300a",
        );
        let sums = Sums { kind: SumKind::Crc32, covered: 512 };
        let next = PacketHeader::decode(&mut Reader::new(&golden), VERSION, sums, 1000).unwrap();
        let Next::Packet(header) = next else { panic!("is no end") };
        assert_eq!(header.bytes(), golden[..HEADER_BYTES]);
        let mut payload = golden[HEADER_BYTES..].to_vec();
        let data = verify(&header, sums, &mut payload).unwrap();
        assert_eq!(&payload[data], b"Hello HDFS of hadoop-20\n");
        for flipped in 0..payload.len() {
            let mut payload = golden[HEADER_BYTES..].to_vec();
            payload[flipped] ^= 1;
            assert_eq!(verify(&header, sums, &mut payload), Err(WrongSum { at: 0 }));
        }
        // Checksums that lie behind their chunk. Spec: hdfs/01 §1.5.3.
        let inline = PacketHeader { layout: Layout::Inline, ..header };
        let mut payload = [&golden[HEADER_BYTES + 4..], &golden[HEADER_BYTES..][..4]].concat();
        let data = verify(&inline, sums, &mut payload).unwrap();
        assert_eq!(&payload[data], b"Hello HDFS of hadoop-20\n");
    }

    #[test]
    fn headers_that_make_no_sense_are_refused() {
        let sums = Sums { kind: SumKind::Crc32, covered: 512 };
        let good = PacketHeader {
            payload: 516,
            layout: Layout::SumsFirst,
            offset: 0,
            seqno: 0,
            flags: 0,
            data: 512,
        };
        let decode = |header: PacketHeader, most| {
            PacketHeader::decode(&mut Reader::new(&header.bytes()), VERSION, sums, most)
        };
        assert_eq!(decode(good, 1000), Ok(Next::Packet(good)));
        assert!(decode(good, 519).is_err(), "larger than allowed");
        assert!(decode(PacketHeader { payload: 515, ..good }, 1000).is_err());
        assert!(decode(PacketHeader { payload: 520, ..good }, 1000).is_err());
        assert!(decode(PacketHeader { data: 513, ..good }, 1000).is_err());
        assert!(decode(PacketHeader { offset: -1, ..good }, 1000).is_err());
        // A chunk that is continued takes two checksums more than a whole one.
        let continued = PacketHeader { payload: 520, offset: 100, ..good };
        assert_eq!(decode(continued, 1000), Ok(Next::Packet(continued)));
        assert!(SumKind::of(3).is_err());
    }

    #[test]
    fn acknowledgements_end_behind_the_first_failure() {
        let table = [
            (Ack { seqno: 0, bad: None }, 2, "0000000000000000 0000 0000"),
            (Ack { seqno: 7, bad: Some(2) }, 3, "0000000000000007 0000 0000 0001"),
            (Ack { seqno: -1, bad: Some(0) }, 3, "ffffffffffffffff 0001"),
        ];
        for (ack, nodes, bytes) in table {
            assert_eq!(ack.bytes(nodes), unhex(bytes));
            let bytes = unhex(bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(Ack::decode(&mut reader, nodes), Ok(ack));
            assert_eq!(reader.rest(), b"");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_refused_or_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Reader::new(&bytes);
            if let Ok(request) = Request::decode(&mut reader) {
                let again = request_bytes(&request);
                prop_assert_eq!(Request::decode(&mut Reader::new(&again)), Ok(request));
            }
        }

        #[test]
        fn data_are_found_in_both_layouts(
            data in proptest::collection::vec(any::<u8>(), 0..3000),
            offset in 0_u64..2000,
            covered in 1_usize..700,
        ) {
            for kind in [SumKind::None, SumKind::Crc32, SumKind::Crc32c] {
                let sums = Sums { kind, covered };
                let (mut front, mut inline) = (vec![], vec![]);
                let mut rest = data.as_slice();
                let mut at = offset;
                while !rest.is_empty() {
                    let length = rest.len().min(covered - (at % covered as u64) as usize);
                    let (chunk, more) = rest.split_at(length);
                    inline.extend_from_slice(chunk);
                    if let Some(sum) = kind.sum(chunk) {
                        front.extend(sum.to_be_bytes());
                        inline.extend(sum.to_be_bytes());
                    }
                    (rest, at) = (more, at + length as u64);
                }
                front.extend_from_slice(&data);
                for (layout, mut payload) in [(Layout::SumsFirst, front), (Layout::Inline, inline)] {
                    let header = PacketHeader {
                        payload: payload.len(),
                        layout,
                        offset: offset as i64,
                        seqno: 0,
                        flags: 0,
                        data: data.len(),
                    };
                    let decoded = PacketHeader::decode(
                        &mut Reader::new(&header.bytes()), VERSION, sums, 1 << 20,
                    );
                    prop_assert_eq!(decoded, Ok(Next::Packet(header)));
                    let place = verify(&header, sums, &mut payload).unwrap();
                    prop_assert_eq!(&payload[place], data.as_slice());
                }
            }
        }
    }
}
