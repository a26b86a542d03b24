//! The server as a whole, on loopback.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::child::LogFile;
use crate::layout;
use crate::local_dirs::LocalDirs;
use crate::local_dirs::tests::settings;
use crate::map_output::tests::{attempt, put};
use corona_conformance::capture::{EventKind, Limits, Side};
use corona_hadoop::io::Reader;
use corona_hadoop::io::formats::Writable;
use corona_hadoop::writables::{IndexRecord, ShuffleHeader, SpillIndex};
use corona_net::connections::Connections;
use corona_net::testing::{soon, until};
use corona_web::exchange;

/// How long a head may take where a test does not wait for that.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// More bytes than sockets keep for a reader that does not read.
const LARGE: u64 = 32 << 20;

/// A page that is as large.
struct LargePage;

impl Pages for LargePage {
    fn page(&self, path: &str, _query: &str) -> Option<Page> {
        let kind = "text/plain";
        match path {
            "/large" => Some(exchange::respond(StatusCode::OK, kind, vec![b'x'; LARGE as usize])),
            "/small" => Some(exchange::respond(StatusCode::OK, kind, "small")),
            "/rows" => Some(exchange::respond(StatusCode::OK, kind, "row\n".repeat(1000))),
            _ => None,
        }
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn sickness(&self) -> Option<String> {
        None
    }
}

struct TestServer {
    root: tempfile::TempDir,
    dirs: Arc<LocalDirs>,
    address: SocketAddr,
    lost: mpsc::Receiver<LostOutput>,
    connections: Arc<Connections>,
    counters: Arc<HttpCounters>,
    _stop: watch::Sender<bool>,
}

/// The usual settings of these tests.
fn usual() -> TrackerHttpSettings {
    TrackerHttpSettings {
        address: "127.0.0.1:0".parse().unwrap(),
        max_connections: 100,
        max_connections_per_peer: 100,
        threads: 4,
        write_timeout: Duration::from_secs(180),
        hosts: Vec::new(),
    }
}

impl TestServer {
    async fn new(given: &TrackerHttpSettings) -> Self {
        TestServer::with(given, HEAD_TIMEOUT).await
    }

    async fn with(given: &TrackerHttpSettings, head_timeout: Duration) -> Self {
        let root = tempfile::tempdir().unwrap();
        let dirs = Arc::new(LocalDirs::open(&settings(&[&root.path().join("l")])).unwrap());
        let outputs = Arc::new(MapOutputs::new(dirs.clone(), 1 << 20));
        let (sender, lost) = mpsc::channel(10);
        let logs = super::super::child::test_logs(root.path());
        let hosts = Hosts::of_machine(&given.hosts);
        let server = HttpServer::new(outputs, logs, sender, given, hosts, Gate::off());
        let mut server = server.unwrap();
        server.limits.head_timeout = head_timeout;
        let (connections, counters) = (server.front.connections().clone(), server.counters());
        let server = server.with_pages(Arc::new(LargePage));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, stopped) = watch::channel(false);
        tokio::spawn(Arc::new(server).serve(listener, stopped));
        TestServer { root, dirs, address, lost, connections, counters, _stop }
    }

    async fn plain() -> Self {
        TestServer::new(&usual()).await
    }

    async fn ask(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        // A connection that is cut ends too.
        let _ = stream.read_to_end(&mut answer).await;
        answer
    }

    /// Connections from an address of loopback that ask for something and read nothing.
    async fn do_not_read(&self, from: [u8; 4], paths: &[String], count: usize) -> Vec<TcpStream> {
        let mut readers = vec![];
        for path in paths.iter().cycle().take(count) {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            socket.bind((from, 0).into()).unwrap();
            let mut reader = socket.connect(self.address).await.unwrap();
            reader
                .write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
                .await
                .unwrap();
            readers.push(reader);
        }
        readers
    }

    /// A log and a map output that fit into no buffer of a socket, and the addresses of these and of a
    /// page as large.
    fn large(&self) -> [String; 3] {
        let logs = super::super::child::test_logs(self.root.path());
        let log = logs.create(&attempt(7)).unwrap().join("stdout");
        fs::File::create(log).unwrap().set_len(LARGE).unwrap();
        put(&self.dirs, &attempt(7), &[&vec![b'x'; LARGE as usize]]);
        let log = format!("/tasklog?taskid={}&filter=stdout&plaintext=true", attempt(7));
        [log, query(&[7], 0), "/large".into()]
    }

    /// In the older version of the protocol, in which the text comes as it is.
    async fn get(&self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        String::from_utf8(self.ask(request.as_bytes()).await).unwrap()
    }
}

fn query(maps: &[u32], reduce: i32) -> String {
    let maps: Vec<String> = maps.iter().map(|map| attempt(*map).to_string()).collect();
    format!("/mapOutput?job=job_20.1_0001&map={}&reduce={reduce}", maps.join(","))
}

/// The headers and data of an answer.
fn parts(answer: &[u8]) -> Vec<(ShuffleHeader, Vec<u8>)> {
    let mut reader = Reader::new(answer.strip_prefix(b"HTTP/1.1 200 OK\r\n\r\n").unwrap());
    let mut parts = Vec::new();
    while !reader.rest().is_empty() {
        let header = ShuffleHeader::decode(&mut reader).unwrap();
        let bytes = if header.found { header.part_length } else { 0 };
        let data = reader.take(usize::try_from(bytes).unwrap()).unwrap().to_vec();
        parts.push((header, data));
    }
    parts
}

#[tokio::test]
async fn parts_come_in_the_order_asked_for() {
    let world = TestServer::plain().await;
    let large = vec![b'x'; 5 << 20];
    put(&world.dirs, &attempt(0), &[b"zero-0", b"zero-1"]);
    put(&world.dirs, &attempt(1), &[b"one-0", &large]);
    let answer = world.ask(format!("GET {} HTTP/1.1\r\n\r\n", query(&[1, 0], 1)).as_bytes()).await;
    let parts = parts(&answer);
    let told: Vec<_> =
        parts.iter().map(|(header, data)| (&*header.attempt, header.reduce, data.len())).collect();
    assert_eq!(told, [(attempt(1).as_str(), 1, 5 << 20), (attempt(0).as_str(), 1, 6)]);
    assert!(parts[0].1 == large && parts[1].1 == b"zero-1");
    assert_eq!((parts[1].0.part_length, parts[1].0.raw_length), (6, 2));
}

#[tokio::test]
async fn a_missing_map_output_is_reported_to_both_sides() {
    let mut world = TestServer::plain().await;
    put(&world.dirs, &attempt(0), &[b"zero-0"]);
    let answer = world.ask(format!("GET {} HTTP/1.1\r\n\r\n", query(&[1, 0], 0)).as_bytes()).await;
    let parts = parts(&answer);
    let missing = ShuffleHeader {
        attempt: attempt(1).to_string(),
        part_length: 0,
        raw_length: 0,
        reduce: 0,
        found: false,
    };
    assert_eq!(parts[0], (missing, Vec::new()));
    assert_eq!(parts[1].1, b"zero-0");
    let lost = world.lost.recv().await.unwrap();
    assert_eq!(lost.attempt, attempt(1));
    assert!(
        lost.diagnostics.starts_with(&format!("Couldn't get mapId = {}, reduce 0: ", attempt(1)))
    );
}

#[tokio::test]
async fn an_output_is_not_lost_because_somebody_asks_for_a_part_that_its_job_has_not() {
    let mut world = TestServer::plain().await;
    put(&world.dirs, &attempt(0), &[b"zero-0"]);
    for reduce in [1, 999_999, -1] {
        let request = format!("GET {} HTTP/1.1\r\n\r\n", query(&[0], reduce));
        let parts = parts(&world.ask(request.as_bytes()).await);
        assert!(!parts[0].0.found && parts[0].0.reduce == reduce);
    }
    // Reports come in the order of requests.
    world.ask(format!("GET {} HTTP/1.1\r\n\r\n", query(&[1], 0)).as_bytes()).await;
    assert_eq!(world.lost.recv().await.unwrap().attempt, attempt(1));
}

#[tokio::test]
async fn recorded_requests_are_answered_as_they_were() {
    let capture = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("fixtures/recordings/jobs/inproc-sleep/traffic.pcap");
    let capture = corona_conformance::open(&capture, &Limits::default()).unwrap().capture;
    let mut compared = 0;
    for connection in &capture.connections {
        let said = |side: Side| -> Vec<u8> {
            let data = connection.events.iter().filter(|event| event.from == side);
            data.filter_map(|event| match &event.what {
                EventKind::Data(bytes) => Some(bytes.clone()),
                _ => None,
            })
            .collect::<Vec<_>>()
            .concat()
        };
        let (request, answer) = (said(Side::Client), said(Side::Server));
        if !request.starts_with(b"GET /mapOutput")
            || !answer.starts_with(b"HTTP/1.1 200 OK\r\n\r\n")
        {
            continue;
        }
        // The outputs as they must have been for this answer, on a node of any name.
        let anywhere = TrackerHttpSettings { hosts: vec!["*".into()], ..usual() };
        let world = TestServer::new(&anywhere).await;
        for (header, data) in parts(&answer) {
            let map: AttemptId = header.attempt.parse().unwrap();
            let (raw_length, part_length) = (header.raw_length, header.part_length);
            let record = IndexRecord { start: 3, raw_length, part_length };
            let index = SpillIndex { records: vec![record] };
            let write = |relative: &Path, bytes: &[u8]| {
                fs::write(world.dirs.for_write(relative, None).unwrap(), bytes).unwrap();
            };
            write(&layout::map_output_index(&map), &index.encode());
            write(&layout::map_output(&map), &[b"...", &*data].concat());
        }
        assert_eq!(world.ask(&request).await, answer);
        compared += 1;
    }
    assert_eq!(compared, 2);
}

#[tokio::test]
async fn other_requests_get_an_answer_of_http() {
    let world = TestServer::plain().await;
    for (request, expected, told) in [
        (
            "GET /mapOutput?job=1 HTTP/1.1\r\n\r\n",
            "400 Bad Request",
            "Required param job, map and reduce",
        ),
        (
            "GET /mapOutput HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "400 Bad Request",
            "Required param job, map and reduce",
        ),
        (
            "POST /mapOutput?x=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
            "405 Method Not Allowed",
            "",
        ),
        ("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", "404 Not Found", "No such page"),
        ("nonsense\r\n\r\n", "400 Bad Request", ""),
    ] {
        let answer = String::from_utf8(world.ask(request.as_bytes()).await).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}\r\n")), "{request}: {answer}");
        assert!(answer.ends_with(told), "{request}: {answer}");
    }
}

/// A page of another site may have a name that leads here.
#[tokio::test]
async fn only_requests_under_own_names_are_answered() {
    let named = TrackerHttpSettings { hosts: vec!["node.example".into()], ..usual() };
    let world = TestServer::new(&named).await;
    let [log, output, _] = world.large();
    for (path, host, is_answered) in [
        (&*log, "evil.example", false),
        (&output, "evil.example:50060", false),
        (&output, "localhost:22421, evil", false),
        (&output, "127.0.0.1:22421@evil", false),
        (&output, "localhost\r\nHost: evil", false),
        ("/small", "evil.example", false),
        (&output, "node.example:50060", true),
        (&output, "127.0.0.1:50060", true),
        ("/small", "localhost", true),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = world.ask(request.as_bytes()).await;
        let refused = b"HTTP/1.1 421 ";
        assert_eq!(!answer.starts_with(refused), is_answered, "{path} {host}");
        let status = String::from_utf8_lossy(&answer[..answer.len().min(40)]).into_owned();
        assert!(!is_answered || status.starts_with("HTTP/1.1 200 "), "{path} {host}: {status}");
    }
}

#[tokio::test]
async fn pages_are_compressed_for_readers_that_accept_it() {
    let world = TestServer::plain().await;
    for (path, accepted, is_packed) in
        [("/rows", "br, gzip", true), ("/rows", "br", false), ("/small", "gzip", false)]
    {
        let request = format!("GET {path} HTTP/1.0\r\nAccept-Encoding: {accepted}\r\n\r\n");
        let answer = world.ask(request.as_bytes()).await;
        let end = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
        let (head, body) = (String::from_utf8_lossy(&answer[..end]), &answer[end + 4..]);
        assert!(head.contains("vary: accept-encoding"), "{path}: {head}");
        assert_eq!(head.contains("content-encoding: gzip"), is_packed, "{path}: {head}");
        if is_packed {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(body), &mut text)
                .unwrap();
            assert_eq!(text, "row\n".repeat(1000));
            assert!(body.len() < text.len() / 10, "{}", body.len());
        }
    }
}

#[tokio::test]
async fn peers_that_hold_connections_lose_them() {
    let world = TestServer::with(&usual(), Duration::from_millis(200)).await;
    let mut slow = TcpStream::connect(world.address).await.unwrap();
    slow.write_all(b"GET /mapOutput?").await.unwrap();
    let mut answer = Vec::new();
    let closed = slow.read_to_end(&mut answer);
    let _ = tokio::time::timeout(HEAD_TIMEOUT, closed).await.expect("it keeps its connection");
    assert_eq!(answer, b"");
    // A head without an end is refused before it takes more than it may.
    let world = TestServer::plain().await;
    let head = vec![b'x'; 2 * http::Limits::default().head_bytes];
    let answer = tokio::time::timeout(HEAD_TIMEOUT / 2, world.ask(&head)).await;
    assert_eq!(answer.expect("it may send any head"), b"");
}

/// With one thread, whatever a reader that does not read held would be missed at once.
#[tokio::test]
async fn readers_that_do_not_read_delay_no_other() {
    let one_thread = TrackerHttpSettings { threads: 1, ..usual() };
    let world = TestServer::new(&one_thread).await;
    put(&world.dirs, &attempt(0), &[b"zero-0"]);
    let readers = world.do_not_read([127, 0, 0, 2], &world.large(), 30).await;
    let served = async {
        for _ in 0..20 {
            assert!(world.get("/small").await.ends_with("small"));
            let request = format!("GET {} HTTP/1.1\r\n\r\n", query(&[0], 0));
            assert_eq!(parts(&world.ask(request.as_bytes()).await)[0].1, b"zero-0");
            let tail = format!("/tasklog?taskid={}&filter=stdout&start=-9", attempt(7));
            assert!(world.get(&tail).await.starts_with("HTTP/1.0 200 OK"));
        }
    };
    soon(served).await;
    // They have held their connections all the while, and get their responses.
    for mut reader in readers.into_iter().take(3) {
        let (mut answer, mut length) = (vec![0; 1 << 20], 0);
        while let Ok(read @ 1..) = reader.read(&mut answer).await {
            length += read as u64;
        }
        assert!(length > LARGE, "{length}");
    }
}

/// A log, a map output and a page, each larger than what the sockets keep.
#[tokio::test]
async fn readers_that_do_not_read_lose_their_connections() {
    let impatient = TrackerHttpSettings { write_timeout: Duration::from_millis(300), ..usual() };
    let world = TestServer::new(&impatient).await;
    let mut readers = world.do_not_read([127, 0, 0, 2], &world.large(), 3).await;
    for reader in &mut readers {
        reader.read_u8().await.unwrap();
    }
    until("the readers lose their connections", || world.connections.open() == 0).await;
    for mut reader in readers {
        let mut rest = vec![];
        let _ = reader.read_to_end(&mut rest).await;
        assert!((rest.len() as u64) < LARGE, "the whole answer was sent");
    }
}

#[tokio::test]
async fn a_peer_with_too_many_connections_takes_none_of_another_peer() {
    let few = TrackerHttpSettings { max_connections_per_peer: 2, ..usual() };
    let world = TestServer::new(&few).await;
    let (peer, large) = ([127, 0, 0, 2], world.large());
    let mut served = world.do_not_read(peer, &large, 2).await;
    for reader in &mut served {
        // A connection that is served does not give way to another one.
        reader.read_u8().await.unwrap();
    }
    for mut refused in world.do_not_read(peer, &large, 3).await {
        let mut answer = vec![];
        // It is closed, whether or not the sent bytes were read.
        let _ = refused.read_to_end(&mut answer).await;
        assert_eq!(answer, b"");
    }
    assert_eq!((world.counters.refused(), world.counters.refused_of_peer()), (0, 3));
    assert!(world.get("/small").await.ends_with("small"));
    assert_eq!(world.connections.open(), 2);
}

/// The recorded addresses of logs, for an attempt of this test. `tasktracker.jsp` is tested with the pages.
#[tokio::test]
async fn recorded_addresses_of_logs_are_answered_as_they_were() {
    let world = TestServer::plain().await;
    let logs = super::super::child::test_logs(world.root.path());
    let dir = logs.create(&attempt(0)).unwrap();
    let contents = ["stdout", "stderr", "syslog"].map(|file| (file, format!("text of {file}")));
    for (file, text) in &contents {
        fs::write(dir.join(file), text).unwrap();
    }
    let urls = include_str!("../../../fixtures/recordings/job-clients/pages/urls.txt");
    let mut asked = 0;
    for line in urls.lines().filter(|line| line.starts_with("tt-tasklog")) {
        let (_, path) = line.split_once("http://localhost:28361").unwrap();
        let path = path.replace("attempt_202611221042.4_0001_m_000001_0", &attempt(0).to_string());
        let recorded = &line.split("HTTP/1.1 ").nth(1).unwrap()[..3];
        let answer = world.get(&path).await;
        assert!(answer.starts_with(&format!("HTTP/1.0 {recorded} ")), "{path}: {answer}");
        let filter = path.split("filter=").nth(1).map(|rest| rest.split('&').next().unwrap());
        for (file, text) in &contents {
            let is_wanted = recorded == "200" && filter.is_none_or(|wanted| wanted == *file);
            assert_eq!(answer.contains(text), is_wanted, "{path} {file}: {answer}");
        }
        asked += 1;
    }
    assert_eq!(asked, 5);
}

#[tokio::test]
async fn logs_are_shown() {
    let world = TestServer::plain().await;
    let logs = super::super::child::test_logs(world.root.path());
    let dir = logs.create(&attempt(0)).unwrap();
    let long = "line <b>&\n".repeat(50_000);
    fs::write(dir.join("stdout"), &long).unwrap();
    fs::write(dir.join("stderr"), "0123456789").unwrap();
    let id = attempt(0);
    let body = |answer: String| answer.split_once("\r\n\r\n").unwrap().1.to_owned();
    let tail =
        world.get(&format!("/tasklog?taskid={id}&filter=stderr&plaintext=true&start=-4")).await;
    assert!(tail.starts_with("HTTP/1.0 200 OK\r\n") && tail.contains("text/plain"), "{tail}");
    assert_eq!(body(tail), "789");
    let page = world.get(&format!("/tasklog?taskid={id}")).await;
    assert!(page.contains("text/html") && page.contains("nosniff"));
    assert!(page.contains(&format!("<h1>Task Logs: '{id}'</h1>")));
    assert_eq!(page.matches("line &lt;b&gt;&amp;\n").count(), 50_000);
    assert!(page.contains("<u>stderr logs</u>") && !page.contains("<u>syslog logs</u>"));
    for (path, expected) in [
        (format!("/tasklog?taskid={id}&filter=syslog"), "410 Gone"),
        (format!("/tasklog?taskid={}", attempt(9)), "410 Gone"),
        ("/tasklog".into(), "400 Bad Request"),
        ("/tasklog?taskid=../../etc".into(), "400 Bad Request"),
        (format!("/tasklog?taskid={id}&filter=passwd"), "400 Bad Request"),
        (format!("/tasklog?taskid={id}&plaintext=true"), "400 Bad Request"),
        (format!("/tasklog?taskid={id}&start=x"), "400 Bad Request"),
    ] {
        let answer = world.get(&path).await;
        assert!(answer.starts_with(&format!("HTTP/1.0 {expected}\r\n")), "{path}: {answer}");
    }
    assert_eq!(LogFile::of_filter("STDOUT"), Some(LogFile::Stdout));
}
