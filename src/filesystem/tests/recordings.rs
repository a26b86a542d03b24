//! Recordings of the original: every one reads and writes as the same bytes. Spec: hdfs/01.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::PathBuf;

use crate::hdfs::transfer::{
    Ack, HEADER_BYTES, Next, PacketHeader, ReadAnswer, ReadEnd, Request, request_bytes, verify,
};
use corona_hadoop::io::formats::Writable;
use corona_hadoop::io::{DecodeError, Reader};
use corona_hadoop::rpc::{Call, ConnectionHeader, MAGIC, Outcome, Reply};
use corona_hadoop::writables::to_bytes;

/// One connection: the port of the server, what the client sent, what the server sent.
pub(super) struct Conversation {
    pub(super) port: u16,
    pub(super) sent: Vec<u8>,
    pub(super) answered: Vec<u8>,
}

fn fixtures() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hdfs"))
}

/// The connections of a packet capture: Ethernet, IPv4, no packet lost.
pub(super) fn conversations(name: &str) -> Vec<Conversation> {
    let file = std::fs::File::open(fixtures().join(name)).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    let u16_at = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let u32_at =
        |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut at = 24;
    let mut order: Vec<(u16, u16)> = vec![];
    let mut streams: HashMap<(u16, u16), (u32, Vec<u8>)> = HashMap::new();
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        let packet = &bytes[at + 16 + 14..at + 16 + length];
        at += 16 + length;
        if packet[0] >> 4 != 4 {
            continue;
        }
        let header = usize::from(packet[0] & 15) * 4;
        let segment = &packet[header..usize::from(u16_at(packet, 2))];
        let ports = (u16_at(segment, 0), u16_at(segment, 2));
        let (number, flags) = (u32_at(segment, 4), segment[13]);
        let data = &segment[usize::from(segment[12] >> 4) * 4..];
        if flags & 2 != 0 {
            if flags & 16 == 0 {
                order.push(ports);
            }
            streams.insert(ports, (number.wrapping_add(1), vec![]));
        } else if let Some((first, stream)) = streams.get_mut(&ports) {
            let offset = number.wrapping_sub(*first) as usize;
            if !data.is_empty() && offset < 1 << 31 && offset + data.len() > stream.len() {
                assert!(offset <= stream.len(), "{name}: a packet is missing");
                stream.extend_from_slice(&data[stream.len() - offset..]);
            }
        }
    }
    let mut stream = |ports| streams.remove(&ports).map(|(_, bytes)| bytes).unwrap_or_default();
    let found = order.into_iter().map(|(client, server)| Conversation {
        port: server,
        sent: stream((client, server)),
        answered: stream((server, client)),
    });
    found.collect()
}

pub(super) fn bytes(object: &impl Writable) -> Vec<u8> {
    to_bytes(object, 1 << 24).unwrap()
}

/// Reads one object, checks that it writes as the same bytes, and takes them.
fn same<T: Writable + std::fmt::Debug>(from: &mut &[u8]) -> T {
    let mut reader = Reader::new(from);
    let value = T::decode(&mut reader).unwrap_or_else(|error| panic!("{error}: {from:02x?}"));
    let (own, rest) = from.split_at(reader.position());
    assert!(bytes(&value) == own, "{value:?}");
    *from = rest;
    value
}

const CLIENT_PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";
const DATANODE_PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol";

/// The calls of a connection with their replies.
pub(super) fn calls(conversation: &Conversation) -> Vec<(Call, Option<Outcome>)> {
    let mut sent = conversation.sent.as_slice();
    let Some(rest) = sent.strip_prefix(&MAGIC) else { return vec![] };
    let (length, rest) = rest.split_first_chunk::<4>().unwrap();
    let (mut header, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
    let protocol = same::<ConnectionHeader>(&mut header).protocol;
    // Data nodes have a protocol of their own with the name node.
    if ![CLIENT_PROTOCOL, DATANODE_PROTOCOL].contains(&protocol.as_str()) {
        return vec![];
    }
    sent = rest;
    let mut calls = BTreeMap::new();
    while let Some((length, rest)) = sent.split_first_chunk::<4>() {
        let length = i32::from_be_bytes(*length);
        sent = rest;
        if length == -1 {
            continue;
        }
        let (mut call, rest) = sent.split_at(length as usize);
        sent = rest;
        let call: Call = same(&mut call);
        calls.insert(call.id, (call, None));
    }
    let mut answered = conversation.answered.as_slice();
    while !answered.is_empty() {
        let reply: Reply = same(&mut answered);
        calls.get_mut(&reply.id).unwrap().1 = Some(reply.outcome);
    }
    calls.into_values().collect()
}

/// Packets up to the end mark, and the number of wrong chunks. False: the stream ends within.
pub(super) fn packets(
    from: &mut &[u8],
    version: i16,
    sums: crate::hdfs::transfer::Sums,
) -> (bool, usize) {
    let mut wrong = 0;
    loop {
        let mut reader = Reader::partial(from, 1 << 24);
        let next = match PacketHeader::decode(&mut reader, version, sums, 1 << 20) {
            Err(DecodeError::Truncated) => return (false, wrong),
            next => next.unwrap(),
        };
        let (own, rest) = from.split_at(reader.position());
        let Next::Packet(header) = next else {
            *from = rest;
            return (true, wrong);
        };
        if own.len() == HEADER_BYTES {
            assert_eq!(header.bytes(), own);
        }
        if rest.len() < header.payload {
            return (false, wrong);
        }
        let (payload, rest) = rest.split_at(header.payload);
        wrong += usize::from(verify(&header, sums, &mut payload.to_vec()).is_err());
        *from = rest;
    }
}

/// Reads the stream to a data node, and returns its requests and the number of wrong chunks.
fn transfers(conversation: &Conversation) -> (usize, usize) {
    let (mut sent, mut answered) = (conversation.sent.as_slice(), conversation.answered.as_slice());
    let (mut requests, mut wrong) = (0, 0);
    while !sent.is_empty() {
        let mut reader = Reader::new(sent);
        let request = match Request::decode(&mut reader) {
            Ok(request) => request,
            // A version that no data node takes, or a request that was never finished.
            Err(_) => {
                assert!(answered.is_empty(), "nobody answers what cannot be read");
                return (requests, wrong);
            }
        };
        let (own, rest) = sent.split_at(reader.position());
        assert!(request_bytes(&request) == own, "{request:?}");
        sent = rest;
        requests += 1;
        if answered.is_empty() {
            return (requests, wrong);
        }
        match request {
            Request::Read(read) => {
                let reply = match same::<ReadAnswer>(&mut answered) {
                    ReadAnswer::Status(_) => return (requests, wrong),
                    ReadAnswer::Packets(reply) => reply,
                };
                let (is_whole, bad) = packets(&mut answered, read.version, reply.sums);
                wrong += bad;
                if !is_whole {
                    return (requests, wrong);
                }
                same::<ReadEnd>(&mut answered);
                if let Some((status, rest)) = sent.split_first_chunk::<2>() {
                    assert_eq!(i16::from_be_bytes(*status), 5);
                    sent = rest;
                }
            }
            Request::Write(write) => {
                let mut reader = Reader::new(answered);
                reader.text().unwrap();
                answered = &answered[reader.position()..];
                while !sent.is_empty() {
                    let (is_whole, bad) = packets(&mut sent, write.version, write.sums);
                    wrong += bad;
                    if !is_whole {
                        break;
                    }
                }
                let nodes = write.targets.len() + 1;
                while !answered.is_empty() {
                    let mut reader = Reader::new(answered);
                    let Ok(ack) = Ack::decode(&mut reader, nodes) else { break };
                    let (own, rest) = answered.split_at(reader.position());
                    if ack.bad.is_none() {
                        assert_eq!(ack.bytes(nodes), own);
                    }
                    answered = rest;
                }
                return (requests, wrong);
            }
        }
    }
    (requests, wrong)
}

#[test]
fn every_recording_reads_and_writes_as_the_same_bytes() {
    let mut names: Vec<_> = std::fs::read_dir(fixtures())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".pcap.gz"))
        .collect();
    names.sort();
    assert_eq!(names.len(), 21);
    let (mut called, mut moved, mut wrong) = (0, 0, 0);
    for name in names {
        for conversation in conversations(&name) {
            if (59_010..=59_012).contains(&conversation.port) {
                let (requests, bad) = transfers(&conversation);
                moved += requests;
                wrong += bad;
            } else {
                called += calls(&conversation).len();
            }
        }
    }
    assert_eq!((called, moved), (369, 119), "calls and transfers");
    // Checksums that were made wrong on purpose: recordings 16 and 17.
    assert!((1..20).contains(&wrong), "{wrong} wrong packets");
}
