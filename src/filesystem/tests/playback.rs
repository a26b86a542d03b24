//! Recordings of the original played against the client: a name node and data nodes that expect what
//! was sent and give the replies that were recorded. Spec: hdfs/01.

use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::recordings::{bytes, calls, conversations, packets};
use super::*;
use crate::hdfs::transfer::{
    Ack, HEARTBEAT, Next, PacketHeader, ReadRequest, Request, WriteRequest, request_bytes,
};
use crate::{ErrorKind, Summary};
use corona_hadoop::io::formats::Writable;
use corona_hadoop::io::{DecodeError, Reader};
use corona_hadoop::object::{Class, Object};
use corona_hadoop::rpc::{Call, Outcome, Reply};
use corona_hadoop::writables::{FsPermission, HdfsFileStatus};

/// Ports of data nodes in the recordings: data, and calls.
const DATA_PORTS: [u16; 3] = [59_010, 59_011, 59_012];
const CALL_PORTS: [u16; 3] = [59_020, 59_021, 59_022];
/// How names of clients begin. One stands for any.
const CLIENT_NAMES: [&[u8]; 3] = [b"DFSClient_", b"RustLike_", b"C_"];
/// What the original asks for when it opens a file.
const OPENED_BYTES: i64 = 10 * 65_536;

/// A recording that is played: replies by method and parameters, answers of data nodes by request, to
/// any client.
struct Playback {
    replies: Vec<(Call, Outcome)>,
    /// How often each reply was given.
    given: Mutex<Vec<usize>>,
    transfers: Vec<Transfer>,
}

/// What was said to a data node.
struct Transfer {
    /// Where the data node listens now.
    port: u16,
    request: Request,
    /// What the client sent behind the request, and what it got.
    sent: Vec<u8>,
    answered: Vec<u8>,
}

/// Which of the replies to one question comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Which {
    #[default]
    First,
    Last,
}

/// How a recording is played.
#[derive(Clone, Default)]
struct Play {
    which: Which,
    /// Statuses that the recorded client did not ask for.
    statuses: Vec<(&'static str, HdfsFileStatus)>,
    /// Data nodes that do not listen.
    dead: Vec<u16>,
    packet_bytes: Option<u32>,
}

fn status(bytes: i64, block_bytes: i64) -> HdfsFileStatus {
    HdfsFileStatus {
        name: vec![],
        length: bytes,
        is_directory: false,
        replication: 2,
        block_size: block_bytes,
        modified_ms: 0,
        accessed_ms: 0,
        permission: FsPermission(0o644),
        owner: "alice".to_owned(),
        group: "users".to_owned(),
    }
}

fn without_names(text: &[u8]) -> Vec<u8> {
    let mut shown = Vec::new();
    let mut rest = text;
    'all: while !rest.is_empty() {
        for name in CLIENT_NAMES {
            // A length of one or two bytes stands before it.
            if rest.get(..2).is_some() && rest[2..].starts_with(name) {
                let before = if rest[1] as usize >= name.len() && rest[0] == 0 { 2 } else { 1 };
                shown.extend_from_slice(&rest[..2 - before]);
                shown.extend_from_slice(b"CLIENT");
                rest = &rest[2 + name.len()..];
                let digits = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
                rest = &rest[rest.iter().position(|byte| !digits(byte)).unwrap_or(rest.len())..];
                continue 'all;
            }
        }
        shown.push(rest[0]);
        rest = &rest[1..];
    }
    shown
}

/// A call as it is compared. What a client may choose is as this one chooses it: no favoured nodes
/// for a block, and ten blocks of 64 KiB when a file is opened.
fn comparable(call: &Call) -> Vec<u8> {
    let mut call = Call { id: 0, ..call.clone() };
    if call.method == "addBlockAndFetchMetaInfo" && call.parameters.len() == 6 {
        call.parameters[3] = Object::Null(call.parameters[3].class());
    }
    if call.method == "openAndFetchMetaInfo" {
        call.parameters[2] = Object::Long(OPENED_BYTES);
    }
    without_names(&bytes(&call))
}

impl Playback {
    /// The reply to a call: the first that fits and was not given yet, else the last that was.
    fn reply(&self, call: &Call) -> Outcome {
        let wanted = comparable(call);
        let mut given = self.given.lock().unwrap();
        let fits = (0..given.len()).filter(|at| comparable(&self.replies[*at].0) == wanted);
        let fits: Vec<usize> = fits.collect();
        let at = fits.iter().find(|at| given[**at] == 0).or(fits.last());
        match at {
            Some(at) => {
                given[*at] += 1;
                self.replies[*at].1.clone()
            }
            // The trial client and tools renew and sync less often.
            None if ["renewLease", "fsync"].contains(&call.method.as_str()) => {
                Outcome::Value(Object::Null(Class::Void))
            }
            None => panic!("never called so: {call:?}"),
        }
    }
}

/// Serves calls to a name node, or to a data node.
async fn serve_calls(listener: TcpListener, play: Arc<Playback>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let play = play.clone();
        tokio::spawn(async move {
            let mut header = [0; 9];
            stream.read_exact(&mut header).await?;
            let length = u32::from_be_bytes(header[5..].try_into().unwrap());
            stream.read_exact(&mut vec![0; length as usize]).await?;
            while let Ok(length) = stream.read_u32().await {
                let mut call = vec![0; length as usize];
                stream.read_exact(&mut call).await?;
                let call = Call::decode(&mut Reader::new(&call)).unwrap();
                let reply = Reply { id: call.id, outcome: play.reply(&call) };
                stream.write_all(&bytes(&reply)).await?;
            }
            Ok::<_, std::io::Error>(())
        });
    }
}

async fn serve_data(listener: TcpListener, play: Arc<Playback>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(play_transfer(stream, play.clone()));
    }
}

/// Requests are compared without what the original says of connections that it uses again.
fn comparable_request(request: &Request) -> Vec<u8> {
    let request = match request {
        Request::Read(read) => Request::Read(ReadRequest { reuse: false, ..read.clone() }),
        write @ Request::Write(_) => write.clone(),
    };
    without_names(&request_bytes(&request))
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
    let (port, wanted) = (stream.local_addr()?.port(), comparable_request(&request));
    let transfer = play
        .transfers
        .iter()
        .find(|transfer| transfer.port == port && comparable_request(&transfer.request) == wanted)
        .unwrap_or_else(|| panic!("never requested so: {request:?}"));
    let arrived = inbox[request_bytes(&request).len()..].to_vec();
    match &request {
        Request::Read(_) => stream.write_all(&transfer.answered).await,
        Request::Write(write) => play_write(stream, arrived, write, transfer).await,
    }
}

/// A packet with its payload.
type Packet = (PacketHeader, Vec<u8>);

/// The next packet, without those that keep a connection alive.
fn next_packet(from: &mut &[u8], write: &WriteRequest) -> Option<Packet> {
    loop {
        let mut reader = Reader::partial(from, 1 << 24);
        let next = PacketHeader::decode(&mut reader, write.version, write.sums, 1 << 24);
        let header = match next {
            Err(DecodeError::Truncated) => return None,
            Ok(Next::End) => return None,
            Ok(Next::Packet(header)) => header,
            Err(error) => panic!("{error}"),
        };
        let payload = from.get(reader.position()..reader.position() + header.payload)?;
        let packet = (header, payload.to_vec());
        *from = &from[reader.position() + header.payload..];
        if header.seqno != HEARTBEAT {
            return Some(packet);
        }
    }
}

/// Takes packets, which must be those that were recorded but for the number of the first, and gives
/// the recorded acknowledgements.
async fn play_write(
    mut stream: TcpStream,
    mut arrived: Vec<u8>,
    write: &WriteRequest,
    transfer: &Transfer,
) -> std::io::Result<()> {
    let mut answer = transfer.answered.as_slice();
    let mut reader = Reader::new(answer);
    let bad_link = reader.text().unwrap();
    let (own, rest) = answer.split_at(reader.position());
    stream.write_all(own).await?;
    answer = rest;
    if !bad_link.is_empty() {
        return Ok(());
    }
    let nodes = write.targets.len() + 1;
    let (mut recorded, mut begin) = (transfer.sent.as_slice(), None);
    while let Some((due, payload)) = next_packet(&mut recorded, write) {
        let (found, content) = loop {
            let mut waiting = arrived.as_slice();
            if let Some(packet) = next_packet(&mut waiting, write) {
                let left = waiting.len();
                arrived.drain(..arrived.len() - left);
                break packet;
            }
            if stream.read_buf(&mut arrived).await? == 0 {
                return Ok(());
            }
        };
        let begin = *begin.get_or_insert(found.seqno - due.seqno);
        assert_eq!(found, PacketHeader { seqno: due.seqno + begin, ..due });
        assert!(content == payload, "another payload of {due:?}");
        // What was said of it, without what was said of packets that keep alive.
        while let (mut reader, rest) = (Reader::new(answer), answer)
            && let Ok(ack) = Ack::decode(&mut reader, nodes)
        {
            answer = &rest[reader.position()..];
            if ack.seqno != HEARTBEAT {
                let ack = Ack { seqno: ack.seqno + begin, ..ack };
                stream.write_all(&ack.bytes(nodes)).await?;
                break;
            }
        }
    }
    // The end mark, and that the client closes.
    while stream.read_buf(&mut arrived).await? > 0 {}
    Ok(())
}

/// Puts addresses of listeners in the place of those of the recording; all have five digits.
fn at_ports(bytes: Vec<u8>, ports: &[(u16, u16)]) -> Vec<u8> {
    let mut bytes = bytes;
    let mut put = |from: Vec<u8>, to: Vec<u8>| {
        assert_eq!(from.len(), to.len());
        let windows = bytes.windows(from.len()).enumerate();
        let places = windows.filter(|(_, window)| *window == from).map(|(at, _)| at);
        for at in places.collect::<Vec<_>>() {
            bytes[at..at + to.len()].copy_from_slice(&to);
        }
    };
    for (from, to) in ports {
        let text = |port: &u16| format!("127.0.0.1:{port}").into_bytes();
        put(text(from), text(to));
        // A data node's port for calls stands behind that of its pages.
        let pages = (from + 55).to_be_bytes();
        let both = |port: &u16| [pages, port.to_be_bytes()].concat();
        put(both(from), both(to));
    }
    bytes
}

/// A listener of which the port has as many digits as those of the recordings.
async fn listener() -> TcpListener {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if listener.local_addr().unwrap().port() >= 10_000 {
            return listener;
        }
    }
}

/// What was said, at the ports where it is played.
fn load(name: &str, play: &Play, ports: &[(u16, u16)]) -> Playback {
    let (mut replies, mut transfers) = (vec![], vec![]);
    for conversation in conversations(name) {
        if DATA_PORTS.contains(&conversation.port) {
            let sent = at_ports(conversation.sent, ports);
            let Ok(request) = Request::decode(&mut Reader::new(&sent)) else { continue };
            let mut behind = sent[request_bytes(&request).len()..].to_vec();
            if let Request::Write(write) = &request {
                // The original sometimes says twice that a block ends.
                let mut twice = behind.as_slice();
                packets(&mut twice, write.version, write.sums);
                let left = twice.len();
                behind.truncate(behind.len() - left);
            }
            let answered = at_answers(conversation.answered, ports);
            let to = ports.iter().find(|(from, _)| *from == conversation.port);
            let port = to.map(|(_, to)| *to).unwrap();
            transfers.push(Transfer { port, request, sent: behind, answered });
            continue;
        }
        for (call, outcome) in calls(&conversation) {
            let call = Call::decode(&mut Reader::new(&at_ports(bytes(&call), ports))).unwrap();
            let Some(outcome) = outcome else { continue };
            let reply = bytes(&Reply { id: 0, outcome });
            let reply = Reply::decode(&mut Reader::new(&at_ports(reply, ports))).unwrap();
            replies.push((call, reply.outcome));
        }
    }
    if play.which == Which::Last {
        replies.reverse();
    }
    for (path, status) in &play.statuses {
        let call = Call {
            id: 0,
            method: "getHdfsFileInfo".to_owned(),
            parameters: vec![Object::String((*path).to_owned())],
        };
        let class = Class::Object("org.apache.hadoop.hdfs.protocol.HdfsFileStatus");
        let status = Object::Writable(class, status.clone().into());
        replies.push((call, Outcome::Value(status)));
    }
    let given = Mutex::new(vec![0; replies.len()]);
    Playback { replies, given, transfers }
}

/// Of an answer only the name of a node that cannot be reached has a port.
fn at_answers(answered: Vec<u8>, ports: &[(u16, u16)]) -> Vec<u8> {
    match answered.get(1..).is_some_and(|text| text.starts_with(b"127.0.0.1:")) {
        true => at_ports(answered, ports),
        false => answered,
    }
}

/// A client of a name node and data nodes that say what was recorded.
async fn played(name: &str, play: Play) -> FileSystems {
    let (mut data, mut further) = (vec![], vec![]);
    for port in DATA_PORTS {
        data.push((port, listener().await));
    }
    for port in CALL_PORTS {
        further.push((port, listener().await));
    }
    let own = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let both = data.iter().chain(&further);
    let ports: Vec<(u16, u16)> = both.map(|(port, at)| (*port, own(at))).collect();
    let loaded = Arc::new(load(name, &play, &ports));
    let name_node = listener().await;
    let port = own(&name_node);
    tokio::spawn(serve_calls(name_node, loaded.clone()));
    for (_, listener) in further {
        tokio::spawn(serve_calls(listener, loaded.clone()));
    }
    data.retain(|(port, _)| !play.dead.contains(port));
    for (_, listener) in data {
        tokio::spawn(serve_data(listener, loaded.clone()));
    }
    let default = FileSystemSettings::default();
    FileSystems::new(FileSystemSettings {
        default_fs: format!("hdfs://127.0.0.1:{port}/"),
        user: "alice".to_owned(),
        groups: vec!["users".to_owned()],
        replication: 2,
        block_bytes: 65_536,
        packet_bytes: play.packet_bytes.unwrap_or(default.packet_bytes),
        // What is not in the recording is a failure, and no reason to wait.
        max_acquire_failures: 0,
        block_write_retries: 1,
        create_retries: 0,
        ..default
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

async fn read_of(systems: &FileSystems, path: &str) -> Result<Vec<u8>, FsError> {
    let (files, path) = systems.resolve(path).unwrap();
    soon(async {
        let mut reader = files.open(&path).await?;
        all(&mut *reader).await
    })
    .await
}

#[tokio::test]
async fn the_client_reads_what_was_recorded() {
    let small = b"Hello HDFS of hadoop-20\n".to_vec();
    // Which of the replies: most files were looked for before they were written.
    let table = [
        ("03-cat-multi", "in/multi.bin", multi()),
        ("04-get-small-empty", "in/small.txt", small.clone()),
        ("04-get-small-empty", "in/empty", vec![]),
        ("10-separate-checksum-dn", "in/sep.bin", multi()[..70_000].to_vec()),
        ("11-inline-write", "in/inl2.bin", multi()[..2100].to_vec()),
        ("18-safemode", "in/small.txt", small),
    ];
    for (name, path, expected) in table {
        let play = Play { which: Which::Last, ..Play::default() };
        let systems = played(&format!("{name}.pcap.gz"), play).await;
        let read = read_of(&systems, path).await.unwrap();
        assert_eq!(read.len(), expected.len(), "{name} {path}");
        assert!(read == expected, "{name} {path}");
    }
}

/// Writes a file as the recorded clients did, with pauses in which it is flushed.
async fn write_to(
    systems: &FileSystems,
    path: &str,
    options: CreateOptions,
    (bytes, flushed): (&[u8], &[usize]),
) -> Result<(), FsError> {
    let (files, path) = systems.resolve(path).unwrap();
    soon(async {
        let mut writer = files.create(&path, options).await?;
        let mut written = 0;
        for upto in flushed {
            writer.write(&bytes[written..*upto]).await?;
            writer.flush().await?;
            written = *upto;
        }
        for piece in bytes[written..].chunks(7000) {
            writer.write(piece).await?;
        }
        writer.close().await
    })
    .await
}

#[tokio::test]
async fn the_client_writes_what_was_recorded() {
    let multi = multi();
    // What the recorded client wrote with a pause after 2000 bytes.
    let stepped: Vec<u8> = (0..70_000_u32).map(|at| (at * 7) as u8).collect();
    // The original asks for all bits, and the name node takes some away.
    let java = CreateOptions { permission: Some(0o777), ..CreateOptions::default() };
    let over = CreateOptions { overwrite: true, ..java.clone() };
    let single = CreateOptions { replication: Some(1), ..over.clone() };
    let none: &[usize] = &[];
    let table = [
        (
            "01-mkdir-put-small",
            "in/small.txt",
            java.clone(),
            &b"Hello HDFS of hadoop-20\n"[..],
            none,
            None,
        ),
        ("02-put-multi", "in/multi.bin", java.clone(), &multi, none, None),
        ("10-separate-checksum-dn", "in/sep.bin", single, &multi[..70_000], none, None),
        ("12-sync-heartbeat", "in/slow.bin", over, &stepped, &[2000], None),
        // Two chunks a packet, so that the last one is empty.
        ("13-empty-last-packet", "in/two4", java, &multi[..2048], none, Some(1000)),
    ];
    for (name, path, options, bytes, flushed, packet_bytes) in table {
        let play = Play { packet_bytes, ..Play::default() };
        let systems = played(&format!("{name}.pcap.gz"), play).await;
        write_to(&systems, path, options, (bytes, flushed)).await.unwrap();
        assert_eq!(systems.counters().rebuilt_blocks.get(), 0, "{name}");
    }
}

#[tokio::test]
async fn a_block_is_written_again_as_was_recorded() {
    let plain = |replication, block_bytes| CreateOptions {
        replication: Some(replication),
        block_bytes: Some(block_bytes),
        ..CreateOptions::default()
    };
    let multi = multi();
    // Data node 3 is dead from the beginning. Spec: hdfs/01 §1.6.6.
    let play = Play { dead: vec![59_012], ..Play::default() };
    let systems = played("14-dead-node-in-pipeline.pcap.gz", play).await;
    // The recording ends within the fourth file.
    for number in 0..3 {
        let before = systems.counters().rebuilt_blocks.get();
        let path = format!("dde{number}");
        write_to(&systems, &path, plain(2, 2048), (&multi[..5000], &[])).await.unwrap();
        assert_eq!(systems.counters().rebuilt_blocks.get() - before, 1, "{path}");
    }
    // The last of three nodes dies in the middle of a block of four packets.
    let play = Play { packet_bytes: Some(4157), ..Play::default() };
    let systems = played("15-node-dies-while-writing.pcap.gz", play).await;
    write_to(&systems, "mmid", plain(3, 16_384), (&multi[..40_000], &[])).await.unwrap();
    assert_eq!(systems.counters().rebuilt_blocks.get(), 1);
}

#[tokio::test]
async fn listings_come_in_the_recorded_pages() {
    for (name, directory, count) in [
        ("05-ls.pcap.gz", "ls", 6),
        ("20-startup-safemode-no-datanodes.pcap.gz", "/user/alice", 31),
    ] {
        let systems = played(name, Play::default()).await;
        let (files, path) = systems.resolve(directory).unwrap();
        let listed = soon(files.list(&path, 100)).await.unwrap();
        let names: Vec<_> = listed.iter().map(|entry| entry.path.name()).collect();
        assert_eq!(names.len(), count, "{names:?}");
        assert!(names.is_sorted());
    }
}

#[tokio::test]
async fn a_file_is_renamed_and_deleted_as_recorded() {
    let systems = played("06-mv-rm.pcap.gz", Play::default()).await;
    let path = |text: &str| systems.resolve(text).unwrap().1;
    let files = systems.resolve("/").unwrap().0;
    soon(files.rename(&path("ls/f1"), &path("ls/g1"))).await.unwrap();
    assert!(soon(files.delete(&path("ls/g1"), false)).await.unwrap());
}

#[tokio::test]
async fn ranges_are_read_as_recorded() {
    let statuses = vec![("/user/alice/in/multi.bin", status(197_908, 65_536))];
    let play = Play { statuses, ..Play::default() };
    let systems = played("07-seek-pread.pcap.gz", play).await;
    let (files, path) = systems.resolve("in/multi.bin").unwrap();
    let multi = multi();
    let mut reader = soon(files.open(&path)).await.unwrap();
    // From the middle of a chunk to the end of the block.
    reader.seek(70_000);
    let mut piece = vec![0; 61_072];
    let mut filled = 0;
    while filled < piece.len() {
        filled += soon(reader.read(&mut piece[filled..])).await.unwrap();
    }
    assert!(piece == multi[70_000..131_072]);
    let reader: &mut dyn FileReader = &mut *reader;
    for from in [65_536 + 513, 65_500] {
        let mut piece = vec![0; 100];
        soon(reader.read_exact_at(from as u64, &mut piece)).await.unwrap();
        assert!(piece == multi[from..from + 100], "{from}");
    }
}

#[tokio::test]
async fn metadata_and_refusals_are_those_that_were_recorded() {
    let statuses = vec![
        ("/user/alice/in/multi.bin", status(197_908, 65_536)),
        ("/user/alice/empty", status(0, 65_536)),
    ];
    let play = Play { statuses, ..Play::default() };
    let systems = played("08-metadata-and-errors.pcap.gz", play).await;
    let path = |text: &str| systems.resolve(text).unwrap().1;
    let files = systems.resolve("/").unwrap().0;
    let (small, nope) = (path("in/small.txt"), path("in/nope"));
    soon(files.set_replication(&small, 1)).await.unwrap();
    let error = soon(files.set_replication(&nope, 1)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    soon(files.set_permission(&small, 0o600)).await.unwrap();
    soon(files.set_times(&small, Some(1_700_000_000_123), None)).await.unwrap();
    let summary = soon(files.summary(&path("in"))).await.unwrap();
    assert_eq!(summary, Summary { bytes: 197_932, files: 3, directories: 1 });
    let found = soon(files.status(&small)).await.unwrap();
    assert_eq!((found.bytes, found.replication, found.permission), (24, 1, 0o600));
    assert_eq!((found.modified_ms, found.owner.as_str()), (1_700_000_000_123, "alice"));
    soon(files.rename(&path("in/empty"), &path("/user/alice"))).await.unwrap();
    soon(files.rename(&path("empty"), &path("in/empty"))).await.unwrap();
    assert!(!soon(files.delete(&nope, true)).await.unwrap());
    soon(files.mkdirs(&path("in"), None)).await.unwrap();
    let odd = path("in/d\u{e9}\u{20ac}\u{1f600}");
    soon(files.mkdirs(&odd, None)).await.unwrap();
    let listed = soon(files.list(&path("in"), 10)).await.unwrap();
    assert!(listed.iter().any(|entry| entry.path == odd), "{listed:?}");
    assert!(soon(files.delete(&odd, true)).await.unwrap());
    let itself = soon(files.list(&small, 10)).await.unwrap();
    assert_eq!((itself.len(), &itself[0].path), (1, &small));
    let refused = [
        (soon(files.list(&nope, 10)).await.unwrap_err(), ErrorKind::NotFound),
        (soon(files.rename(&nope, &path("in/nope2"))).await.unwrap_err(), ErrorKind::NotFound),
        (soon(files.delete(&path("in"), false)).await.unwrap_err(), ErrorKind::NotEmpty),
        (
            soon(files.mkdirs(&path("in/small.txt/x"), None)).await.unwrap_err(),
            ErrorKind::Permission,
        ),
        (soon(files.open(&small)).await.err().unwrap(), ErrorKind::Permission),
        (soon(files.open(&nope)).await.err().unwrap(), ErrorKind::NotFound),
        (
            soon(files.rename(&small, &path("in/multi.bin"))).await.unwrap_err(),
            ErrorKind::AlreadyExists,
        ),
    ];
    for (error, kind) in refused {
        assert_eq!(error.kind, kind, "{error}");
        assert!(!error.message.contains("\tat "), "{error}");
    }
    let java = CreateOptions { permission: Some(0o777), ..CreateOptions::default() };
    let over = CreateOptions { overwrite: true, ..java.clone() };
    let many = CreateOptions { replication: Some(600), ..over.clone() };
    for (text, options, kind) in [
        ("in/small.txt", java, ErrorKind::AlreadyExists),
        ("in", over.clone(), ErrorKind::IsADirectory),
        ("in/small.txt/x", over.clone(), ErrorKind::Permission),
        ("/x", over, ErrorKind::Permission),
        ("in/big", many, ErrorKind::Invalid),
    ] {
        let error = soon(files.create(&path(text), options)).await.err().unwrap();
        assert_eq!(error.kind, kind, "{error}");
    }
}

#[tokio::test]
async fn leases_end_as_recorded() {
    let systems = played("09-lease-errors.pcap.gz", Play::default()).await;
    let path = |text: &str| systems.resolve(text).unwrap().1;
    let files = systems.resolve("/").unwrap().0;
    let over = CreateOptions { overwrite: true, replication: Some(1), ..CreateOptions::default() };
    let first = soon(files.create(&path("in/l1"), over.clone())).await.unwrap();
    for text in ["current leaseholder is trying to recreate file", "already being created by C_1"] {
        let error = soon(files.create(&path("in/l1"), over.clone())).await.err().unwrap();
        assert_eq!(error.kind, ErrorKind::BeingWritten);
        assert!(error.message.contains(text), "{error}");
    }
    soon(first.abort()).await.unwrap();
    // The second file is deleted while it is written.
    let second = soon(files.create(&path("in/l2"), over)).await.unwrap();
    assert!(soon(files.delete(&path("in/l2"), false)).await.unwrap());
    let error = soon(second.close()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Lease, "{error}");
}

#[tokio::test]
async fn lost_blocks_and_odd_cases_are_as_recorded() {
    let systems = played("16-python-odd-cases.pcap.gz", Play::default()).await;
    // A file of one small block, and one whose second block was abandoned after it was written.
    let plain = CreateOptions { replication: Some(2), ..CreateOptions::default() };
    write_to(&systems, "ff", plain, (b"abc", &[])).await.unwrap();
    let systems =
        played("16-python-odd-cases.pcap.gz", Play { which: Which::Last, ..Play::default() }).await;
    let expected = [vec![b'a'; 1024], vec![b'c'; 200]].concat();
    // The name node was asked for blocks of a file that counted as open before.
    assert!(read_of(&systems, "idem").await.unwrap() == expected);
}

#[tokio::test]
async fn corrupt_replicas_are_reported_as_recorded() {
    let systems = played("17-corrupt-replica.pcap.gz", Play::default()).await;
    let multi = multi();
    // The first replica of the second file has a flipped byte.
    for number in 0..2 {
        let path = format!("cor{number}");
        assert!(read_of(&systems, &path).await.unwrap() == multi[..3000], "{path}");
        assert_eq!(systems.counters().corrupt_replicas.get(), number, "{path}");
    }
}

#[tokio::test]
async fn safe_mode_refuses_changes_as_recorded() {
    let systems = played("18-safemode.pcap.gz", Play::default()).await;
    let path = |text: &str| systems.resolve(text).unwrap().1;
    let files = systems.resolve("/").unwrap().0;
    let java = CreateOptions { permission: Some(0o777), ..CreateOptions::default() };
    let refused = [
        soon(files.mkdirs(&path("sm"), None)).await.unwrap_err(),
        soon(files.create(&path("sm.txt"), java)).await.err().unwrap(),
        soon(files.delete(&path("in/small.txt"), false)).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind, ErrorKind::SafeMode, "{error}");
        assert!(error.message.contains("\nThe ratio of reported blocks "), "{error}");
    }
    let systems = played("20-startup-safemode-no-datanodes.pcap.gz", Play::default()).await;
    // No data node has reported its blocks so far.
    let error = read_of(&systems, "in/multi.bin").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::BlockMissing, "{error}");
    let (files, directory) = systems.resolve("/user/alice").unwrap();
    soon(files.mkdirs(&directory, None)).await.unwrap();
    let error = soon(files.mkdirs(&directory.join("new"), None)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::SafeMode, "{error}");
}

#[tokio::test]
async fn a_file_that_is_written_is_seen_as_recorded() {
    let statuses = vec![("/user/alice/open1", status(0, 65_536))];
    let play = Play { statuses, ..Play::default() };
    let systems = played("19-under-construction.pcap.gz", play).await;
    let (files, path) = systems.resolve("open1").unwrap();
    let over = CreateOptions { overwrite: true, ..CreateOptions::default() };
    let mut writer = soon(files.create(&path, over)).await.unwrap();
    soon(writer.write(&[b'a'; 1024])).await.unwrap();
    soon(writer.flush()).await.unwrap();
    let seen = read_of(&systems, "open1").await.unwrap();
    assert!(seen == vec![b'a'; 1024]);
    soon(writer.write(&[b'b'; 100])).await.unwrap();
    // The name node has not heard of the block at first.
    soon(writer.close()).await.unwrap();
    let seen = read_of(&systems, "open1").await.unwrap();
    assert!(seen == [vec![b'a'; 1024], vec![b'b'; 100]].concat());
}
