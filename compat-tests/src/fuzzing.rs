//! Entry points for fuzzers: each takes any bytes as one kind of input that comes from outside, and
//! panics when a promise about such input is broken. `fuzz/` runs them under libFuzzer, the test
//! `fuzzing` with inputs made from the same seeds on any toolchain.
//!
//! [`TARGETS`] lists them; [`seeds`] makes their first inputs from the recordings and fixtures.
//! Inputs have up to [`LARGEST_INPUT`] bytes and are taken on a small stack, so that recursion that
//! follows an input ends the process.

use std::cell::OnceCell;
use std::fmt::Debug;
use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;
use std::{panic, thread};

use corona::access::{AccessString, Authority, Gate, Identity, TlsMode, TlsSettings};
use corona::cluster_manager::rewritten_state;
use corona::config::{Lookup, Source};
use corona::conformance::capture::Limits;
use corona::conformance::conversation::{Ports, Said};
use corona::conformance::{Traffic, recording};
use corona::filesystem::hdfs::transfer::{
    Ack, Layout, Next, PacketHeader, ReadAnswer, ReadReply, ReadRequest, Request, SumKind, Sums,
    WriteKind, WriteRequest, request_bytes, verify,
};
use corona::hadoop::io::formats::Writable;
use corona::hadoop::io::{Reader, Writer};
use corona::hadoop::object::{Class, Object};
use corona::hadoop::writables::Block;
use corona::task::sequence_file::SequenceText;
use corona::wire::calls::{ClusterManager, CoronaTaskTracker, ProxyJobTracker, SessionDriver};
use corona::wire::editor::FrameEditor;
use corona::wire::value::{Message, MessageKind, StreamReader};
use corona::wire::{Framing, Malformed, Service};

use crate::repository;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// A kind of input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the fuzz target and of the folder of its corpus.
    pub name: &'static str,
    /// Takes any bytes. See [`Target::check`].
    run: fn(&[u8]),
    /// Makes the first inputs.
    seeds: fn() -> Vec<Vec<u8>>,
}

/// The largest input, in bytes. `scripts/fuzz` has the same.
pub const LARGEST_INPUT: usize = 1 << 20;
/// The stack on which inputs are taken: a quarter of what the program's threads have.
const STACK_BYTES: usize = 512 << 10;

impl Target {
    /// Takes an input on a small stack.
    ///
    /// # Panics
    /// When a promise about it is broken. When the stack overflows, the process ends.
    pub fn check(&self, bytes: &[u8]) {
        let run = self.run;
        thread::scope(|scope| {
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            let running = thread.spawn_scoped(scope, || run(bytes)).expect("a thread");
            running.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked));
        });
    }
}

/// The target of this name.
///
/// # Panics
/// When there is none.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no target {name}"))
}

/// All kinds.
pub const TARGETS: &[Target] = &[
    Target { name: "messages", run: messages, seeds: message_seeds },
    Target { name: "relayed_frames", run: relayed_frames, seeds: frame_seeds },
    Target { name: "configuration", run: configuration, seeds: configuration_seeds },
    Target { name: "scheduling_files", run: scheduling_files, seeds: scheduling_seeds },
    Target { name: "state_file", run: state_file, seeds: state_seeds },
    Target { name: "traffic", run: traffic, seeds: traffic_seeds },
    Target { name: "hadoop_objects", run: hadoop_objects, seeds: object_seeds },
    Target { name: "data_transfers", run: data_transfers, seeds: transfer_seeds },
    Target { name: "access_strings", run: access_strings, seeds: access_string_seeds },
    Target { name: "first_bytes", run: first_bytes, seeds: first_byte_seeds },
    Target { name: "sequence_files", run: sequence_files, seeds: sequence_seeds },
];

/// The first inputs of a kind, none of them large.
///
/// # Panics
/// When a fixture cannot be read.
pub fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let mut seeds = (target.seeds)();
    seeds.extend(found(target.name));
    seeds.retain(|seed| seed.len() <= LARGEST_SEED);
    seeds.sort();
    seeds.dedup();
    seeds
}

/// Inputs that a fuzzer found earlier, if there are any of this target.
fn found(target: &str) -> Vec<Vec<u8>> {
    let path = repository().join(format!("fixtures/fuzz/{target}.hex"));
    if !path.exists() {
        return Vec::new();
    }
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.lines()
        .map(|line| {
            let digits = |at: usize| u8::from_str_radix(&line[at..at + 2], 16);
            let bytes: Result<_, _> = (0..line.len()).step_by(2).map(digits).collect();
            bytes.unwrap_or_else(|error| panic!("{path:?}: {error}"))
        })
        .collect()
}

fn access_string_seeds() -> Vec<Vec<u8>> {
    let (hash, secret) = ("0123456789abcdef".repeat(4), "fedcba9876543210".repeat(4));
    let string = |host: &str| format!("corona1:submit:{host}:8889:{hash}:{secret}").into_bytes();
    let token = format!("1800000000/admin/head/00000000/3045{hash}");
    vec![string("head.example"), string("[2001:db8::1]"), token.into_bytes()]
}

fn first_byte_seeds() -> Vec<Vec<u8>> {
    // The hello of a client of TLS 1.3 with one protocol.
    let hello = [
        &b"\x16\x03\x01\x00\x7a\x01\x00\x00\x76\x03\x03"[..],
        &[7; 32],
        b"\x00\x00\x02\x13\x01\x01\x00\x00\x4b",
        b"\x00\x2b\x00\x03\x02\x03\x04",
        b"\x00\x0a\x00\x04\x00\x02\x00\x1d",
        b"\x00\x0d\x00\x04\x00\x02\x04\x03",
        b"\x00\x33\x00\x26\x00\x24\x00\x1d\x00\x20",
        &[9; 32],
    ];
    let plain = [&b"hrpc\x03"[..], b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x04\x80\x01\0\x01", b""];
    plain.into_iter().map(<[u8]>::to_vec).chain([hello.concat()]).collect()
}

/// Larger inputs make a fuzzer slow and show nothing more.
const LARGEST_SEED: usize = 64 << 10;

/// Text that was given as an access string, or as the token of a script. What is read is written as it was read, and
/// neither an error nor `Debug` shows a secret.
fn access_strings(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match text.parse::<AccessString>() {
        Ok(string) => {
            assert_eq!(string.to_string().parse(), Ok(string.clone()));
            let secret = string.to_string();
            let secret = secret.rsplit(':').next().expect("a secret");
            assert!(!format!("{string:?}").contains(secret));
        }
        Err(error) => {
            let error = error.to_string();
            assert!(!error.contains('\n') && error.len() < 1024, "{error}");
        }
    }
    let address = ([127, 0, 0, 1], 1).into();
    assert!(CLOSED.gate.holder(&text, address).is_none());
}

/// The first bytes of a connection to a daemon that requires TLS: none of them lets anybody in.
fn first_bytes(bytes: &[u8]) {
    CLOSED.runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut peer = TcpStream::connect(address).await.expect("a connection");
        let (stream, from) = listener.accept().await.expect("a connection");
        let sending = async {
            // The daemon may have closed it already.
            let _ = peer.write_all(bytes).await;
            let _ = peer.shutdown().await;
        };
        let admitted = CLOSED.gate.admit(stream, from, false);
        let (admitted, ()) = tokio::join!(admitted, sending);
        assert!(admitted.is_err(), "{admitted:?}");
    });
}

/// A daemon of a closed cluster.
struct Closed {
    gate: Arc<Gate>,
    runtime: tokio::runtime::Runtime,
}

impl Closed {
    fn new() -> Closed {
        let directory = tempfile::tempdir().expect("a directory");
        let now = SystemTime::now();
        let path = |name: &str| directory.path().join(name);
        let authority = Authority::create(&path("authority"), now).expect("an authority");
        let own = Identity::own(&path("own"), &authority, "head", ("127.0.0.1", 1), &[], now);
        let settings = TlsSettings { mode: TlsMode::Require, ..TlsSettings::default() };
        let own = Some(Arc::new(own.expect("a certificate")));
        let gate = Gate::new(settings, own, Some(Arc::new(authority))).expect("a gate");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Closed { gate, runtime: runtime.expect("a runtime") }
    }
}

static CLOSED: LazyLock<Closed> = LazyLock::new(Closed::new);

/// The first byte names the service, the rest is one direction of a stream. However it is split,
/// the same messages come out; each, written again, reads as itself; typed readers accept every
/// message that the check accepts.
fn messages(bytes: &[u8]) {
    match bytes.split_first() {
        None => {}
        Some((0, stream)) => stream_of::<ClusterManager>(stream),
        Some((1, stream)) => stream_of::<SessionDriver>(stream),
        Some((2, stream)) => stream_of::<CoronaTaskTracker>(stream),
        Some((_, stream)) => stream_of::<ProxyJobTracker>(stream),
    }
}

/// A name of so many bytes is not read.
const TOO_LONG_A_NAME: usize = 1_025;

fn stream_of<S: Service>(stream: &[u8]) {
    let whole = read::<S>(S::FRAMING, &[stream]);
    let (first, second) = stream.split_at(stream.len() / 2);
    let cut = read::<S>(S::FRAMING, &[first, second]);
    assert_eq!(whole, cut, "where a stream is cut makes no difference");
    for message in whole.0 {
        if message.body.is_err() {
            continue;
        }
        let mut again = vec![];
        message
            .write(S::schema(), Framing::Bare, &mut again)
            .expect("what was read can be written");
        let (read_again, end) = read::<S>(Framing::Bare, &[&again]);
        match message.name.len() {
            // A byte that is not UTF-8 takes three bytes afterwards.
            grown @ TOO_LONG_A_NAME.. => assert_eq!(end, Some(Malformed::NameLength(grown))),
            _ => assert_eq!((&*read_again, end), ([message.clone()].as_slice(), None)),
        }
        match message.kind {
            MessageKind::Reply | MessageKind::Exception => drop(message.answer::<S>()),
            _ => drop(message.call::<S>()),
        }
    }
}

/// The messages of a stream, and why it could not be read further.
fn read<S: Service>(framing: Framing, pieces: &[&[u8]]) -> (Vec<Message>, Option<Malformed>) {
    let mut reader = StreamReader::new(S::schema(), framing, 1 << 20);
    let mut messages = vec![];
    for piece in pieces {
        reader.push(piece);
        loop {
            match reader.next_message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(malformed) => return (messages, Some(malformed)),
            }
        }
    }
    (messages, None)
}

/// Without edits the stream passes through the relay unchanged, however it is split.
fn relayed_frames(bytes: &[u8]) {
    const METHODS: &[&str] = &["sessionStart", "sessionUpdateInfo"];
    for piece in [1, 7, bytes.len().max(1)] {
        let mut editor = FrameEditor::new(ClusterManager::schema(), METHODS, 1 << 16);
        let mut passed = vec![];
        for piece in bytes.chunks(piece) {
            editor.pass(piece, &mut passed, &mut |_| vec![]);
        }
        editor.finish(&mut passed);
        assert!(passed == bytes, "a relay changes nothing by itself");
    }
}

/// A directory of this thread for files that a target has read.
fn with_directory<T>(act: impl FnOnce(&Path) -> T) -> T {
    thread_local! {
        static DIRECTORY: OnceCell<tempfile::TempDir> = const { OnceCell::new() };
    }
    DIRECTORY.with(|directory| {
        // In memory where there is such a place: this happens thousands of times.
        let make = || tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        act(directory.get_or_init(|| make().expect("a directory for files")).path())
    })
}

/// A property file: loaded or refused, and each problem reported on a line of its own.
fn configuration(bytes: &[u8]) {
    with_directory(|directory| {
        fs::write(directory.join("core-site.xml"), bytes).expect("a file in it");
        check_configuration(directory, &[]);
    });
}

/// Both scheduling files at once, since one file may hold both.
fn scheduling_files(bytes: &[u8]) {
    with_directory(|directory| {
        let minimal = "<configuration><property><name>cm.cpu.to.resource.partitioning</name>\
                       <value>{\"1\":{\"MAP\":1,\"REDUCE\":1}}</value></property></configuration>";
        fs::write(directory.join("core-site.xml"), minimal).expect("a file in it");
        let path = directory.join("corona.xml");
        fs::write(&path, bytes).expect("a file in it");
        let path = path.display().to_string();
        let overrides = ["cm.config.file", "cm.pools.config.file"];
        check_configuration(directory, &overrides.map(|key| (key.to_owned(), path.clone())));
    });
}

fn check_configuration(directory: &Path, overrides: &[(String, String)]) {
    let source = Source { conf_dir: Some(directory), overrides, lookup: Lookup::AsGiven };
    let checked = source.check();
    for problem in &checked.problems {
        let line = problem.to_string();
        assert!(!line.chars().any(char::is_control), "a problem is one line: {line:?}");
        assert!(line.len() < 10_000, "a problem is a line that can be read: {line:?}");
    }
    let loaded = source.load();
    if let Ok(loaded) = &loaded {
        assert!(!loaded.in_force.is_empty());
    }
}

/// A state file: refused, or read and written so that it reads as the same.
fn state_file(bytes: &[u8]) {
    if let Ok(written) = rewritten_state(bytes) {
        let again = rewritten_state(&written).expect("what this program writes it reads");
        assert!(again == written, "what is written does not change when it is read again");
    }
}

/// A packet capture or a recording, compressed or not, with all its messages.
fn traffic(bytes: &[u8]) {
    let limits = Limits { kept_bytes: 64 << 20, ..Limits::default() };
    let Ok(traffic) = Traffic::read(bytes, &limits) else { return };
    let ports = ports();
    for conversation in traffic.conversations(&ports) {
        let mut before = None;
        for part in &conversation.parts {
            assert!(before <= Some(part.at), "parts are in the order of time");
            before = Some(part.at);
        }
    }
    if traffic.recording.is_none() {
        let mut converted = Cursor::new(vec![]);
        let written = recording::convert(bytes, "a capture", &limits, &ports, &mut converted);
        written.expect("what can be read can be written to memory");
        let converted = converted.into_inner();
        Traffic::read(converted.as_slice(), &limits).expect("what was written can be read");
    }
}

fn ports() -> Ports {
    Ports { cluster_manager: 18800, proxy_job_tracker: Some(18802), ..Ports::default() }
}

/// A parameter or a result of Hadoop's RPC: refused, or read and written so that it reads as the
/// same.
fn hadoop_objects(bytes: &[u8]) {
    let Ok(object) = Object::decode(&mut Reader::new(bytes)) else { return };
    let written = written(&object);
    let mut reader = Reader::new(&written);
    let again = Object::decode(&mut reader).expect("what is written can be read");
    assert_eq!(reader.rest(), b"", "nothing is left over");
    // Bytes and not values are compared: NaN differs from itself.
    assert!(self::written(&again) == written, "{object:?} came back as {again:?}");
}

/// Messages of HDFS data nodes in both directions: a request, an answer, an acknowledgement, or a
/// packet with its payload in a layout that the first byte names. Refused, or read so that the
/// bytes written from it read as the same.
fn data_transfers(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    // The old encoding of strings cuts long ones that are no text.
    if rest.len() < 20_000
        && let Ok(request) = Request::decode(&mut Reader::new(rest))
    {
        let again = Request::decode(&mut Reader::new(&request_bytes(&request)));
        assert_eq!(again, Ok(request), "what is written can be read");
    }
    if let Ok(answer) = ReadAnswer::decode(&mut Reader::new(rest)) {
        assert_eq!(ReadAnswer::decode(&mut Reader::new(&written(&answer))), Ok(answer));
    }
    let nodes = usize::from(first % 4) + 1;
    if let Ok(ack) = Ack::decode(&mut Reader::new(rest), nodes) {
        assert_eq!(Ack::decode(&mut Reader::new(&ack.bytes(nodes)), nodes), Ok(ack));
    }
    let kind = [SumKind::None, SumKind::Crc32, SumKind::Crc32c][usize::from(first % 3)];
    let sums = Sums { kind, covered: usize::from(*first) + 1 };
    let mut reader = Reader::new(rest);
    let version = 27 + i16::from(first % 4);
    if let Ok(Next::Packet(header)) = PacketHeader::decode(&mut reader, version, sums, 1 << 20)
        && let Some(payload) = reader.rest().get(..header.payload)
        && let Ok(data) = verify(&header, sums, &mut payload.to_vec())
    {
        assert_eq!(data.len(), header.data, "all data of a packet are found");
    }
}

fn written(object: &(impl Writable + Debug)) -> Vec<u8> {
    let mut writer = Writer::new(64 << 20);
    object.encode(&mut writer);
    writer.finish().unwrap_or_else(|_| panic!("it grew: {object:?}"))
}

/// Golden messages, and messages of the recordings.
fn message_seeds() -> Vec<Vec<u8>> {
    let with_service = |name: &str, stream: Vec<u8>| {
        let services = [
            ClusterManager::NAME,
            SessionDriver::NAME,
            CoronaTaskTracker::NAME,
            ProxyJobTracker::NAME,
        ];
        let place = services.iter().position(|service| *service == name).expect("a service");
        [vec![place as u8], stream].concat()
    };
    let golden = fs::read_to_string(repository().join("fixtures/wire/golden.jsonl"));
    let golden = golden.expect("the golden bytes");
    let rows = golden.lines().filter_map(|line| {
        let row: serde_json::Value = serde_json::from_str(line).expect("a row is JSON");
        Some(with_service(row["service"].as_str()?, unhex(row["bytes"].as_str()?)))
    });
    let said = said().into_iter().map(|(service, stream)| with_service(service, stream));
    rows.chain(said).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..text.len()).step_by(2).map_while(digits).collect()
}

/// Each message of the scenarios, and the service that it was sent to.
fn said() -> Vec<(&'static str, Vec<u8>)> {
    let mut said = vec![];
    for path in files("fixtures/recordings/scenarios", &["pcap"]) {
        let file = fs::File::open(path).expect("a recording");
        let traffic = Traffic::read(file, &Limits::default()).expect("a packet capture");
        for conversation in traffic.conversations(&ports()) {
            let service = conversation.service.schema().name.as_str();
            for part in conversation.parts {
                match part.what {
                    Said::Messages { raw, .. } => said.push((service, raw)),
                    Said::Bytes(bytes) => said.push((service, bytes)),
                    _ => {}
                }
            }
        }
    }
    said
}

fn frame_seeds() -> Vec<Vec<u8>> {
    let framed = said().into_iter().filter(|(service, _)| *service == ClusterManager::NAME);
    framed.map(|(_, stream)| stream).collect()
}

fn configuration_seeds() -> Vec<Vec<u8>> {
    let files = files("fixtures", &["xml"]).into_iter();
    let sites = files.filter(|path| path.to_string_lossy().ends_with("-site.xml"));
    contents(sites)
}

fn scheduling_seeds() -> Vec<Vec<u8>> {
    let files = files("fixtures", &["xml"]).into_iter();
    let others = files.filter(|path| !path.to_string_lossy().ends_with("-site.xml"));
    contents(others)
}

fn state_seeds() -> Vec<Vec<u8>> {
    contents(files("fixtures", &["state", "gz"]).into_iter())
}

/// Small captures, as they are and as recordings.
fn traffic_seeds() -> Vec<Vec<u8>> {
    let mut seeds = contents(files("fixtures/recordings/scenarios", &["pcap"]).into_iter());
    for capture in seeds.clone() {
        let mut converted = Cursor::new(vec![]);
        let limits = Limits::default();
        recording::convert(&capture[..], "a capture", &limits, &ports(), &mut converted)
            .expect("a recording of it");
        seeds.push(converted.into_inner());
    }
    seeds
}

fn object_seeds() -> Vec<Vec<u8>> {
    let class = |name: &str| Class::parse(name).expect("the name of a class");
    let objects = [
        Object::Null(class("org.apache.hadoop.mapred.TaskTrackerStatus")),
        Object::Boolean(true),
        Object::Long(-1),
        Object::String("ß".to_owned()),
        Object::Array(class("java.lang.String"), vec![Object::String("x".to_owned())]),
        Object::Constant(class("org.apache.hadoop.mapred.JobPriority"), "HIGH".to_owned()),
    ];
    objects.iter().map(written).collect()
}

fn transfer_seeds() -> Vec<Vec<u8>> {
    let sums = Sums { kind: SumKind::Crc32, covered: 512 };
    let block = Block { id: -1, bytes: 24, generation: 1001 };
    let read = ReadRequest::new(30, 7, block, (0, 24), "DFSClient_1");
    let write = |kind| {
        let write = WriteRequest::new((30, 7), block, kind, &[], "DFSClient_1", sums);
        request_bytes(&Request::Write(write))
    };
    let header = PacketHeader {
        payload: 9,
        layout: Layout::SumsFirst,
        offset: 0,
        seqno: 0,
        flags: 1,
        data: 5,
    };
    let packet =
        [&header.bytes()[..], &sums.kind.sum(b"hello").unwrap_or(0).to_be_bytes(), b"hello"];
    let seeds = [
        request_bytes(&Request::Read(read)),
        write(WriteKind::New),
        write(WriteKind::Append),
        written(&ReadAnswer::Packets(ReadReply { sums, first_chunk: 512 })),
        Ack { seqno: 3, bad: Some(1) }.bytes(2),
        packet.concat(),
    ];
    // Of all kinds of checksums and packets.
    (0..12_u8)
        .flat_map(|first| seeds.iter().map(move |seed| [&[first], &seed[..]].concat()))
        .collect()
}

fn contents(paths: impl Iterator<Item = PathBuf>) -> Vec<Vec<u8>> {
    paths.map(|path| fs::read(path).expect("a fixture")).collect()
}

/// Whatever a file has, its lines are read to an end or an error, and none is larger than a record may be.
fn sequence_files(bytes: &[u8]) {
    const MOST_RECORD_BYTES: usize = 1 << 16;
    // A small file may be unpacked to a very large one.
    const MOST_BYTES: u64 = 1 << 20;
    let Ok(lines) = SequenceText::new(bytes, MOST_RECORD_BYTES) else { return };
    let mut text = Vec::new();
    let _ = lines.take(MOST_BYTES).read_to_end(&mut text);
    // The line of a record of bytes has three letters for each.
    let mut lines = text.split(|byte| *byte == b'\n');
    assert!(lines.all(|line| line.len() <= 3 * MOST_RECORD_BYTES + 1));
}

fn sequence_seeds() -> Vec<Vec<u8>> {
    contents(files("src/task/golden/sequence", &["seq"]).into_iter())
}

/// The files below a folder of the repository whose names end so, in order.
fn files(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders = vec![repository().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of fixtures") {
            let path = entry.expect("an entry of it").path();
            let ending = path.extension().and_then(|ending| ending.to_str());
            if path.is_dir() {
                folders.push(path);
            } else if ending.is_some_and(|ending| endings.contains(&ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
