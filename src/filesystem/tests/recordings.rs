//! What the original said: every recording reads and writes as the same bytes, and the client gets
//! through what it was told. Spec: hdfs/01.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::PathBuf;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::hdfs::transfer::{
    Ack, HEADER_BYTES, Next, PacketHeader, ReadAnswer, ReadEnd, Request, request_bytes, verify,
};
use corona_hadoop::io::formats::Writable;
use corona_hadoop::io::{DecodeError, Reader};
use corona_hadoop::object::Object;
use corona_hadoop::rpc::{Call, ConnectionHeader, MAGIC, Outcome, Reply};
use corona_hadoop::writables::to_bytes;

/// One connection: the port of the server, what the client sent, what the server sent.
struct Conversation {
    port: u16,
    sent: Vec<u8>,
    answered: Vec<u8>,
}

fn fixtures() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hdfs"))
}

/// The connections of a packet capture: Ethernet, IPv4, no packet lost.
fn conversations(name: &str) -> Vec<Conversation> {
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

fn bytes(object: &impl Writable) -> Vec<u8> {
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
fn calls(conversation: &Conversation) -> Vec<(Call, Option<Outcome>)> {
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

/// Packets up to the end mark; tells how many chunks were wrong. False: the stream ends within.
fn packets(from: &mut &[u8], version: i16, sums: crate::hdfs::transfer::Sums) -> (bool, usize) {
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

/// Reads what was said to a data node. Tells requests and wrong chunks.
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

/// Plays a recording: replies of the name node by method and parameters, answers of data nodes by
/// request, whoever asks.
struct Playback {
    replies: Vec<(Call, Outcome)>,
    answers: Vec<(Request, Vec<u8>, Vec<u8>)>,
}

/// A name of a client stands for any.
fn without_names(text: &[u8]) -> Vec<u8> {
    let mut shown = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.windows(10).position(|window| window == b"DFSClient_") {
        shown.extend_from_slice(&rest[..at.saturating_sub(2)]);
        shown.extend_from_slice(b"CLIENT");
        rest = &rest[at + 10..];
        let digits = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
        rest = &rest[rest.iter().position(|byte| !digits(byte)).unwrap_or(rest.len())..];
    }
    shown.extend_from_slice(rest);
    shown
}

fn comparable(call: &Call) -> Vec<u8> {
    without_names(&bytes(&Call { id: 0, ..call.clone() }))
}

async fn name_node(listener: TcpListener, play: Arc<Playback>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let play = play.clone();
        tokio::spawn(async move {
            let mut header = [0; 9];
            stream.read_exact(&mut header).await?;
            let length = u32::from_be_bytes(header[5..].try_into().unwrap());
            stream.read_exact(&mut vec![0; length as usize]).await?;
            let mut given = vec![0_usize; play.replies.len()];
            while let Ok(length) = stream.read_u32().await {
                let mut call = vec![0; length as usize];
                stream.read_exact(&mut call).await?;
                let call = Call::decode(&mut Reader::new(&call)).unwrap();
                let wanted = comparable(&call);
                let mut fits =
                    (0..given.len()).filter(|at| comparable(&play.replies[*at].0) == wanted);
                let first = fits.next().unwrap_or_else(|| panic!("never called so: {call:?}"));
                let at =
                    std::iter::once(first).chain(fits).find(|at| given[*at] == 0).unwrap_or(first);
                given[at] += 1;
                let reply = Reply { id: call.id, outcome: play.replies[at].1.clone() };
                stream.write_all(&bytes(&reply)).await?;
            }
            Ok::<_, std::io::Error>(())
        });
    }
}

async fn data_node(listener: TcpListener, play: Arc<Playback>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(play_transfer(stream, play.clone()));
    }
}

/// Takes a request and what follows it, which must be what was recorded, and answers.
async fn play_transfer(mut stream: TcpStream, play: Arc<Playback>) -> std::io::Result<()> {
    let mut inbox = Vec::new();
    let request = loop {
        if let Ok(request) = Request::decode(&mut Reader::partial(&inbox, 1 << 20)) {
            break request;
        }
        if stream.read_buf(&mut inbox).await? == 0 {
            return Ok(());
        }
    };
    let wanted = without_names(&request_bytes(&request));
    let (_, behind, answer) = play
        .answers
        .iter()
        .find(|(recorded, ..)| without_names(&request_bytes(recorded)) == wanted)
        .unwrap_or_else(|| panic!("never requested so: {request:?}"));
    let mut arrived = inbox[request_bytes(&request).len()..].to_vec();
    if let Request::Read(_) = request {
        return stream.write_all(answer).await;
    }
    // The first target's name of a bad link, then acknowledgements.
    stream.write_all(&answer[..1]).await?;
    while arrived.len() < behind.len() {
        if stream.read_buf(&mut arrived).await? == 0 {
            break;
        }
    }
    assert!(arrived == *behind, "other packets");
    stream.write_all(&answer[1..]).await
}

/// Puts addresses of listeners in the place of those of the recording; all have five digits.
fn at_ports(bytes: Vec<u8>, ports: &[(u16, u16)]) -> Vec<u8> {
    let mut bytes = bytes;
    for (from, to) in ports {
        let from = format!("127.0.0.1:{from}").into_bytes();
        let to = format!("127.0.0.1:{to}").into_bytes();
        assert_eq!(from.len(), to.len());
        let places: Vec<usize> = bytes
            .windows(from.len())
            .enumerate()
            .filter(|(_, window)| *window == from)
            .map(|(at, _)| at)
            .collect();
        for at in places {
            bytes[at..at + to.len()].copy_from_slice(&to);
        }
    }
    bytes
}

/// Which of the replies to one question comes first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    First,
    Last,
}

/// A client of a name node and data nodes that say what was recorded.
async fn played(name: &str, which: Which) -> FileSystems {
    let mut listeners = vec![];
    for port in [59_010, 59_011, 59_012] {
        let listener = loop {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            if listener.local_addr().unwrap().port() >= 10_000 {
                break listener;
            }
        };
        listeners.push((port, listener));
    }
    let ports: Vec<(u16, u16)> = listeners
        .iter()
        .map(|(port, listener)| (*port, listener.local_addr().unwrap().port()))
        .collect();
    let (mut replies, mut answers) = (vec![], vec![]);
    for conversation in conversations(name) {
        if (59_010..=59_012).contains(&conversation.port) {
            let sent = at_ports(conversation.sent, &ports);
            let Ok(request) = Request::decode(&mut Reader::new(&sent)) else { continue };
            let mut behind = sent[request_bytes(&request).len()..].to_vec();
            if let Request::Write(write) = &request {
                // The original sometimes says twice that a block ends.
                let mut twice = behind.as_slice();
                packets(&mut twice, write.version, write.sums);
                let left = twice.len();
                behind.truncate(behind.len() - left);
            }
            answers.push((request, behind, conversation.answered));
            continue;
        }
        for (call, outcome) in calls(&conversation) {
            let call = Call::decode(&mut Reader::new(&at_ports(bytes(&call), &ports))).unwrap();
            let Some(outcome) = outcome else { continue };
            let reply = bytes(&Reply { id: 0, outcome });
            let reply = Reply::decode(&mut Reader::new(&at_ports(reply, &ports))).unwrap();
            replies.push((call, reply.outcome));
        }
    }
    assert!(
        replies.iter().any(|(call, _)| matches!(&call.parameters[..], [Object::String(_), ..]))
    );
    if which == Which::Last {
        replies.reverse();
    }
    let play = Arc::new(Playback { replies, answers });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(name_node(listener, play.clone()));
    for (_, listener) in listeners {
        tokio::spawn(data_node(listener, play.clone()));
    }
    FileSystems::new(FileSystemSettings {
        default_fs: format!("hdfs://127.0.0.1:{port}/"),
        user: "alice".to_owned(),
        groups: vec!["users".to_owned()],
        replication: 2,
        block_bytes: 65_536,
        // What is not in the recording is a failure, and no reason to wait.
        max_acquire_failures: 0,
        block_write_retries: 0,
        ..FileSystemSettings::default()
    })
    .unwrap()
}

/// Seven digits and a line's end, from 0 on.
fn multi() -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..).flat_map(|n| format!("{n:07}\n").into_bytes()).take(197_908).collect();
    bytes.truncate(197_908);
    bytes
}

async fn read_played(recording: &str, path: &str) -> Vec<u8> {
    // The file was looked for before it was written.
    let systems = played(recording, Which::Last).await;
    let (files, path) = systems.resolve(path).unwrap();
    let mut reader = soon(files.open(&path)).await.unwrap();
    soon(all(&mut *reader)).await.unwrap()
}

#[tokio::test]
async fn the_client_reads_what_was_recorded() {
    let small = b"Hello HDFS of hadoop-20\n";
    assert_eq!(read_played("04-get-small-empty.pcap.gz", "in/small.txt").await, small);
    assert_eq!(read_played("04-get-small-empty.pcap.gz", "in/empty").await, b"");
    let read = read_played("03-cat-multi.pcap.gz", "in/multi.bin").await;
    assert_eq!(read.len(), 197_908);
    assert!(read == multi());
}

#[tokio::test]
async fn the_client_writes_what_was_recorded() {
    for (recording, path, bytes) in [
        ("01-mkdir-put-small.pcap.gz", "in/small.txt", b"Hello HDFS of hadoop-20\n".to_vec()),
        ("02-put-multi.pcap.gz", "in/multi.bin", multi()),
    ] {
        let systems = played(recording, Which::First).await;
        let (files, path) = systems.resolve(path).unwrap();
        // The original asks for all bits, and the name node takes some away.
        let options = CreateOptions { permission: Some(0o777), ..CreateOptions::default() };
        let mut writer = soon(files.create(&path, options)).await.unwrap();
        for piece in bytes.chunks(7000) {
            soon(writer.write(piece)).await.unwrap();
        }
        soon(writer.close()).await.unwrap();
        assert_eq!(systems.counters().rebuilt_blocks.get(), 0, "{recording}");
    }
}

#[tokio::test]
async fn listings_come_in_the_recorded_pages() {
    let systems = played("05-ls.pcap.gz", Which::First).await;
    let (files, path) = systems.resolve("ls").unwrap();
    let listed = soon(files.list(&path, 100)).await.unwrap();
    let names: Vec<_> = listed.iter().map(|entry| entry.path.name()).collect();
    assert_eq!(names.len(), 6, "{names:?}");
    assert!(names.is_sorted());
}
