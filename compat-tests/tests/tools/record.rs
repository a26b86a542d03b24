//! The built program as a relay: the relayed data, the contents of the file, and the behaviour when
//! peers, disks and processes fail.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use compat_tests::cluster_peers::{Caller, DEFAULT, Driver};
use compat_tests::serving::free_address;
use compat_tests::task_tracker::node::signal;
use compat_tests::{PATIENCE, corona, repository, start_plain, start_with, until, with_tls};
use corona::access::{Identity, Role};
use corona::conformance::capture::{Ending, EventKind, Limits, Side};
use corona::conformance::recording::Unrecorded;
use corona::conformance::{Traffic, open};
use corona::model::random::Random;
use serde_json::{Value, json};

/// The name of all sessions, which is not to be shown as it is.
const NAME: &str = "Sleep\u{1b}[2J";

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// The output of a tool that succeeds without complaints.
#[track_caller]
fn printed(words: &[&str]) -> String {
    let Output { status, stdout, stderr } = corona(words).output().unwrap();
    assert_eq!((status.code(), text(stderr).as_str()), (Some(0), ""), "{words:?}");
    text(stdout)
}

/// The output of `inspect` for a file, as objects.
fn inspected(file: &Path, more: &[&str]) -> Vec<Value> {
    let words = [&["inspect", file.to_str().unwrap(), "--output", "json"], more].concat();
    printed(&words).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A relay that runs. It is ended when this is dropped.
pub(super) struct Relay {
    child: Option<Child>,
    pub(super) address: SocketAddr,
    file: PathBuf,
}

/// How a relay ended.
pub(super) struct End {
    pub(super) status: Option<i32>,
    out: String,
    log: String,
}

impl Relay {
    pub(super) fn start(upstream: SocketAddr, directory: &Path, more: &[&str]) -> Relay {
        Relay::to_file(upstream, &directory.join("traffic.corec"), more)
    }

    pub(super) fn to_file(upstream: SocketAddr, file: &Path, more: &[&str]) -> Relay {
        let upstream = upstream.to_string();
        let words = ["record", "--listen", "127.0.0.1:0", "--upstream", &upstream, "--out"];
        let words = [&words, [file.to_str().unwrap()].as_slice(), more].concat();
        Relay::of(&mut corona(&words), file.to_owned())
    }

    fn of(command: &mut Command, file: PathBuf) -> Relay {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let mut words = line.split_whitespace().skip_while(|word| *word != "listen");
        let address = words.nth(1).and_then(|word| word.parse().ok());
        let Some(address) = address else {
            // It may have ended by itself.
            let _ = child.kill();
            panic!("{line}{}", text(child.wait_with_output().unwrap().stderr));
        };
        Relay { child: Some(child), address, file }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn id(&self) -> String {
        self.child.as_ref().unwrap().id().to_string()
    }

    /// Ends it and waits for its end.
    pub(super) fn end(mut self, name: &str) -> End {
        let child = self.child.as_mut().unwrap();
        signal(name, child.id());
        until("the end of the program", || child.try_wait().unwrap());
        let ended = self.child.take().unwrap().wait_with_output();
        let Output { status, stdout, stderr } = ended.unwrap();
        End { status: status.code(), out: text(stdout), log: text(stderr) }
    }

    fn traffic(&self) -> Traffic {
        open(&self.file, &Limits::default()).unwrap()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// All data of one side of the first connection, and the number of missing bytes.
fn said(traffic: &Traffic, side: Side) -> (Vec<u8>, u64) {
    let mut said = (Vec::new(), 0);
    for event in traffic.capture.connections.first().map_or(&[][..], |first| &first.events) {
        match &event.what {
            EventKind::Data(data) if event.from == side => said.0.extend_from_slice(data),
            EventKind::Missing(bytes) if event.from == side => said.1 += bytes,
            _ => {}
        }
    }
    said
}

/// A whole session through the relay: it starts, is granted a slot, and ends. Returns its handle, the port of its driver,
/// and that port as the relay's clients and as the cluster manager's own receive it.
fn whole_session(relay: SocketAddr, manager: SocketAddr) -> (String, u16, [Value; 2]) {
    let driver = Driver::start();
    let (mut through, mut beside) = (Caller::open(relay), Caller::open(manager));
    through.heartbeat("n1", "n1.example.com", 4, DEFAULT);
    let handle = through.session(driver.port, &json!({ "name": NAME }));
    through.request(&handle, [7], DEFAULT);
    driver.granted(&handle, 1);
    let args = json!({ "handle": handle });
    let info = [&mut through, &mut beside].map(|caller| caller.call("getSessionInfo", &args));
    through.end(&handle, "SUCCESSFUL");
    (handle, driver.port, info.map(|info| info["address"]["port"].clone()))
}

#[test]
fn a_session_and_its_callbacks_are_in_the_file_as_they_were_said() {
    let manager = start_plain();
    let directory = tempfile::tempdir().unwrap();
    let relay = Relay::start(manager.thrift(), directory.path(), &["--relay-callbacks"]);
    let (handle, driver, [through, beside]) = whole_session(relay.address, manager.thrift());
    assert_eq!(through, driver, "clients see the driver's own address");
    assert_ne!(beside, through, "the cluster manager was told the relay's");

    let file = relay.file.clone();
    let end = relay.end("TERM");
    assert_eq!(end.status, Some(0), "{}", end.log);
    assert!(end.out.starts_with("recorded 2 connections, "), "{}", end.out);
    assert_eq!(open(&file, &Limits::default()).unwrap().capture.ending, Ending::Complete);

    let items = inspected(&file, &[]);
    let of = |service: &str, what: &str| -> Vec<String> {
        let wanted = items.iter().filter(|item| item["service"] == service && item["what"] == what);
        wanted.map(|item| item["method"].as_str().unwrap().to_owned()).collect()
    };
    let calls = [
        "nodeHeartbeat",
        "getNextSessionId",
        "sessionStart",
        "requestResource",
        "getSessionInfo",
        "sessionEnd",
    ];
    assert_eq!(of("cluster-manager", "call"), calls);
    assert_eq!(of("cluster-manager", "answer"), calls);
    assert_eq!(of("session-driver", "call"), ["grantResource"]);
    assert_eq!(of("session-driver", "answer"), ["grantResource"]);

    let start = items.iter().find(|item| item["method"] == "sessionStart").unwrap();
    let address = json!({ "host": "127.0.0.1", "port": driver });
    assert_eq!(start["body"]["handle"], json!(handle));
    assert_eq!(start["body"]["info"]["address"], address);
    assert_eq!(start["server"], json!(manager.thrift().to_string()));
    let grant = items.iter().find(|item| item["method"] == "grantResource").unwrap();
    assert_eq!(grant["server"], json!(format!("127.0.0.1:{driver}")));
    assert_eq!(grant["body"]["granted"][0]["id"], 7);
    assert_eq!(grant["body"]["granted"][0]["nodeName"], "n1");

    let about_node = inspected(&file, &["--node", "n1"]);
    let methods: Vec<&str> =
        about_node.iter().map(|item| item["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["nodeHeartbeat", "nodeHeartbeat", "grantResource", "grantResource"]);
    assert_eq!(inspected(&file, &["--session", "another"]), Vec::<Value>::new());
    assert_eq!(inspected(&file, &["--session", &handle, "--method", "sessionStart"]).len(), 2);
    assert_eq!(inspected(&file, &["--until", "0"]), Vec::<Value>::new());

    let shown = printed(&["inspect", file.to_str().unwrap(), "--method", "sessionStart"]);
    assert!(shown.contains(r"Sleep\u{1b}[2J"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "a name has no power over the terminal");
    let statistics = printed(&["inspect", file.to_str().unwrap(), "--stats"]);
    let row = statistics.lines().find(|line| line.starts_with("grantResource ")).unwrap();
    assert_eq!(row.split_whitespace().skip(1).take(3).collect::<Vec<_>>(), ["1", "1", "0"]);
}

/// A cluster that was not freshly started is the usual one. Its session numbers are in the ids, and
/// in the directories of histories, `corona.history.max.per.dir` (1,000) sessions to each.
#[test]
fn a_recording_of_a_manager_that_had_run_sessions_agrees_with_itself() {
    const BEFORE: usize = 2_000;
    let manager = start_plain();
    let driver = Driver::start();
    let mut beside = Caller::open(manager.thrift());
    let mut handles = Vec::new();
    for _ in 0..BEFORE {
        let handle = beside.session(driver.port, &json!({ "name": NAME }));
        beside.end(&handle, "SUCCESSFUL");
        handles.push(handle);
    }

    let directory = tempfile::tempdir().unwrap();
    let relay = Relay::start(manager.thrift(), directory.path(), &["--relay-callbacks"]);
    let (handle, ..) = whole_session(relay.address, manager.thrift());
    assert!(handle.ends_with(".2001"), "{handle}");
    // Ids of sessions that had ended before the recording must not be taken for those of new ones.
    let mut through = Caller::open(relay.address);
    let mut have_ended = || {
        for old in &handles[..3] {
            let refused = through.call("sessionHeartbeat", &json!({ "handle": old }));
            assert!(refused["e"].is_object(), "{old} has ended: {refused}");
        }
    };
    have_ended();
    for _ in 0..3 {
        whole_session(relay.address, manager.thrift());
    }
    have_ended();
    let file = relay.file.clone();
    assert_eq!(relay.end("TERM").status, Some(0));

    // The key that a configuration must have, with the value that the manager had without one.
    let conf_dir = directory.path().join("conf");
    fs::create_dir(&conf_dir).unwrap();
    let slots = r#"{"1":{"MAP":1,"REDUCE":1,"JOBTRACKER":1}}"#;
    let property = format!("<name>cm.cpu.to.resource.partitioning</name><value>{slots}</value>");
    let site = format!("<configuration><property>{property}</property></configuration>");
    fs::write(conf_dir.join("core-site.xml"), site).unwrap();
    let words =
        ["replay", file.to_str().unwrap(), "--spawn", "--conf-dir", conf_dir.to_str().unwrap()];
    let replayed = printed(&[&words[..], &["--speed", "10", "--retries", "2"]].concat());
    assert!(replayed.starts_with("AGREES"), "{replayed}");
    let started = replayed.lines().find(|line| line.starts_with("sessionStart ")).unwrap();
    assert_eq!(
        started.split_whitespace().nth(2),
        Some("4"),
        "equal, not only explained: {started}"
    );
}

#[test]
fn nothing_is_changed_unless_callbacks_are_relayed() {
    let manager = start_plain();
    let directory = tempfile::tempdir().unwrap();
    let relay = Relay::start(manager.thrift(), directory.path(), &[]);
    let (_, driver, ports) = whole_session(relay.address, manager.thrift());
    assert_eq!(ports, [driver, driver]);
    let file = relay.file.clone();
    let end = relay.end("INT");
    assert_eq!(end.status, Some(0), "{}", end.log);
    let services: Vec<_> = inspected(&file, &["--method", "grantResource"]);
    assert_eq!(services, Vec::<Value>::new(), "callbacks went past the relay");
    assert_eq!(inspected(&file, &["--method", "requestResource"]).len(), 2);
}

/// Bytes that do not repeat soon and that packing does not make smaller.
fn noise(count: usize) -> Vec<u8> {
    let mut random = Random::new(1);
    std::iter::repeat_with(|| random.next() as u8).take(count).collect()
}

/// A server on which each connection is handled like this.
fn server(handle: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let handle = handle.clone();
            thread::spawn(move || handle(stream.unwrap()));
        }
    });
    address
}

fn echo(mut stream: TcpStream) {
    let mut piece = vec![0; 1 << 16];
    while let Ok(size @ 1..) = stream.read(&mut piece) {
        if stream.write_all(&piece[..size]).is_err() {
            return;
        }
    }
}

#[test]
fn a_slow_reader_gets_every_byte_and_the_relay_stays_small() {
    const BYTES: usize = 192 << 20;
    let (sent, all_sent) = std::sync::mpsc::sync_channel(1);
    let upstream = server(move |mut stream| {
        // The test measures the relay's memory, so no more than a piece is kept here.
        let piece = noise(1 << 20);
        for _ in 0..BYTES / piece.len() {
            stream.write_all(&piece).unwrap();
        }
        sent.send(()).unwrap();
    });
    let directory = tempfile::tempdir().unwrap();
    let relay = Relay::start(upstream, directory.path(), &["--max-buffer", "4m"]);
    // Pages of the program itself count, too, and those of an unoptimised one are many.
    let at_start = peak_kib(&relay.id());
    let mut client = relay.connect();
    let mut first = [0; 1];
    client.read_exact(&mut first).unwrap();
    // Without a reader the writer is held back, since the relay does not keep the data.
    let patience = Duration::from_millis(500);
    assert!(all_sent.recv_timeout(patience).is_err(), "nothing holds the writer back");
    let (mut heard, mut count, piece) = (vec![0; 1 << 16], 1, noise(1 << 20));
    loop {
        let size = client.read(&mut heard).unwrap();
        if size == 0 {
            break;
        }
        let mut rest = &heard[..size];
        while !rest.is_empty() {
            let expected = &piece[count % piece.len()..];
            let (these, later) = rest.split_at(rest.len().min(expected.len()));
            assert!(expected.starts_with(these), "bytes from {count} on");
            count += these.len();
            rest = later;
        }
    }
    assert_eq!(count, BYTES);
    let peak = peak_kib(&relay.id());
    let kept = peak - at_start;
    assert!(kept < BYTES as u64 / 1024 / 2, "of {BYTES} bytes the relay kept {kept} KiB");
    drop(client);
    let file = relay.file.clone();
    let end = relay.end("TERM");
    let traffic = open(&file, &Limits::default()).unwrap();
    let (kept, missing) = said(&traffic, Side::Server);
    assert_eq!(kept.len() as u64 + missing, BYTES as u64);
    // A disk that is too slow for 4 MiB leaves gaps, and then the status reports them.
    assert_eq!(end.status, Some(i32::from(missing > 0)), "{}", end.log);
    assert_eq!(traffic.unrecorded, Some(Unrecorded { connections: 0, bytes: missing }));
}

fn peak_kib(process: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).expect("a size")
}

/// Sends the bytes through the relay to the echo behind it, in pieces, each of which returns.
fn send_and_hear(stream: &mut TcpStream, bytes: &[u8]) {
    for piece in bytes.chunks(4096) {
        stream.write_all(piece).unwrap();
        let mut heard = vec![0; piece.len()];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(heard, piece);
    }
}

#[test]
fn a_full_disk_ends_the_recording_and_connections_go_on() {
    let upstream = server(echo);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("traffic.corec");
    // 64 KiB, so that less than the first block fits that is written because of its size.
    let script = "ulimit -f 128; exec \"$0\" \"$@\"";
    let program = corona(&[]).get_program().to_owned();
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(program).args(["record", "--listen", "127.0.0.1:0"]);
    command.args(["--upstream", &upstream.to_string(), "--out"]).arg(&file).env_remove("RUST_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let relay = Relay::of(&mut command, file.clone());
    let mut client = relay.connect();
    send_and_hear(&mut client, b"before the disk was full");
    until("the first block is written", || {
        (!said(&relay.traffic(), Side::Client).0.is_empty()).then_some(())
    });
    send_and_hear(&mut client, &noise(4 << 20));
    send_and_hear(&mut client, b"after");
    drop(client);
    let end = relay.end("TERM");
    assert_eq!(end.status, Some(1), "{}", end.log);
    let lines = |part: &str| end.log.lines().filter(|line| line.contains(part)).count();
    assert_eq!(lines("recording has stopped for good"), 1, "{}", end.log);
    assert_eq!(lines("corona: "), 1, "{}", end.log);
    assert_eq!(lines("is incomplete: recording stopped early"), 1, "{}", end.log);

    let traffic = open(&file, &Limits::default()).unwrap();
    assert_eq!(traffic.capture.ending, Ending::Truncated);
    let (kept, _) = said(&traffic, Side::Client);
    assert!(kept.starts_with(b"before the disk was full"));
    let told = corona(&["inspect", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(told.status.code(), Some(0));
    assert!(text(told.stderr).contains("the file is truncated"));
}

#[test]
fn a_disk_that_takes_nothing_keeps_the_relay_from_starting() {
    let words = ["record", "--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:1", "--force"];
    let full = corona(&[words.as_slice(), &["--out", "/dev/full"]].concat()).output().unwrap();
    assert_eq!((full.status.code(), full.stdout), (Some(1), vec![]));
    let told = text(full.stderr);
    assert!(told.starts_with("corona: cannot write /dev/full: No space left"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn a_killed_relay_leaves_what_it_had_written() {
    let directory = tempfile::tempdir().unwrap();
    let relay = Relay::start(server(echo), directory.path(), &[]);
    let mut client = relay.connect();
    send_and_hear(&mut client, b"this much is safe");
    until("a block is written", || {
        (said(&relay.traffic(), Side::Server).0.len() == 17).then_some(())
    });
    send_and_hear(&mut client, b"this may be lost");
    let file = relay.file.clone();
    assert_eq!(relay.end("KILL").status, None);
    let traffic = open(&file, &Limits::default()).unwrap();
    assert_eq!((traffic.capture.ending, traffic.unrecorded), (Ending::Truncated, None));
    for side in [Side::Client, Side::Server] {
        let (kept, missing) = said(&traffic, side);
        let all = b"this much is safethis may be lost";
        assert!(kept.len() >= 17 && all.starts_with(&kept), "{kept:?}");
        assert_eq!(missing, 0);
    }
    let told = corona(&["inspect", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(told.status.code(), Some(0));
    assert!(text(told.stdout).contains("bytes that are not a message"));
    assert!(text(told.stderr).contains("the file is truncated"));
}

#[test]
fn a_file_that_exists_is_not_overwritten_unasked() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("traffic.corec");
    fs::write(&file, "precious").unwrap();
    let name = file.to_str().unwrap();
    let pcap = repository().join("fixtures/recordings/scenarios/wire/traffic.pcap");
    let record = ["record", "--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:1", "--out", name];
    let import = ["import", pcap.to_str().unwrap(), "--out", name];
    for words in [record.as_slice(), &import] {
        let told = corona(words).output().unwrap();
        let expected = format!("corona: {name} exists already; --force overwrites it\n");
        assert_eq!((told.status.code(), text(told.stderr)), (Some(1), expected), "{words:?}");
        assert_eq!(fs::read(&file).unwrap(), b"precious");
    }
    let end = Relay::start(server(echo), directory.path(), &["--force"]).end("TERM");
    assert_eq!(end.status, Some(0), "{}", end.log);
    assert_eq!(open(&file, &Limits::default()).unwrap().capture.ending, Ending::Complete);

    let own = corona(&["import", name, "--out", name, "--force"]).output().unwrap();
    assert_eq!(text(own.stderr), format!("corona: {name} is a recording already\n"));
}

#[test]
fn a_manager_that_is_down_is_told_now_and_then() {
    let nobody = free_address();
    let directory = tempfile::tempdir().unwrap();
    let relay = Relay::start(nobody, directory.path(), &[]);
    for _ in 0..5 {
        let end = relay.connect().read(&mut [0]);
        assert!(matches!(end, Ok(0)) || end.is_err(), "{end:?}");
    }
    let file = relay.file.clone();
    let end = relay.end("TERM");
    assert_eq!(end.status, Some(0));
    let told = end.log.matches("cannot reach").count();
    // As a rule once; more often if the machine stalls for a while.
    assert!((1..5).contains(&told), "{}", end.log);
    let refused = inspected(&file, &[]);
    assert_eq!(refused.len(), 5);
    assert!(refused.iter().all(|item| item["accepted"] == json!(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_before_a_closed_manager_says_what_it_needs() {
    let directory = tempfile::tempdir().unwrap();
    let closed = |name: &str, networks: bool| {
        let mut settings = with_tls(&directory.path().join(name), true);
        settings.retain(|(key, _)| networks || key != "corona.tls.plain.networks");
        let settings: Vec<_> = settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        start_with(&settings)
    };
    let advice =
        "name its machine in corona.tls.plain.networks of the cluster manager and of the clients";

    // One that names the relay's machine serves it, and the recording has what was said.
    let manager = closed("named", true);
    let relay = Relay::start(manager.thrift(), directory.path(), &["--force"]);
    Caller::open(relay.address).sessions();
    // A client that begins with TLS learns that there is none here; the log says what to do.
    let member = Identity::open(&directory.path().join("named/own")).unwrap();
    let stream = tokio::net::TcpStream::connect(relay.address).await.unwrap();
    let refused = member.connect(stream, &Role::ALL).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported, "{refused}");
    let file = relay.file.clone();
    let end = relay.end("TERM");
    assert_eq!(end.status, Some(0));
    assert!(end.log.contains("which begins with TLS: ") && end.log.contains(advice), "{}", end.log);
    let calls = inspected(&file, &[]);
    assert!(calls.iter().any(|item| item.to_string().contains("getSessions")), "{calls:?}");

    // One that names it not closes the connection.
    let manager = closed("strict", false);
    let relay = Relay::start(manager.thrift(), directory.path(), &["--force"]);
    assert!(Caller::open(relay.address).try_call("getSessions", &json!({})).is_none());
    let end = relay.end("TERM");
    // A shadow knows the configuration, and does not start.
    let settings = ["-D", "corona.tls=require", "-D", "corona.tls.directory=none"];
    let words = ["shadow", "--listen", "127.0.0.1:0", "--primary", "127.0.0.1:1"];
    let refused = corona(&[&words[..], &settings].concat()).output().unwrap();
    let told = text(refused.stderr);
    assert!(refused.status.code() == Some(1) && told.contains(advice), "{told}");
    let unanswered = "without a reply, as one does that requires TLS: ";
    assert!(end.log.contains(unanswered) && end.log.contains(advice), "{}", end.log);
}

#[test]
fn causes_of_an_empty_recording_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let capture = repository().join("fixtures/recordings/scenarios/grants/traffic.pcap");
    let (capture, out) = (capture.to_str().unwrap(), directory.path().join("out.corec"));
    let import = ["import", capture, "--force", "--out", out.to_str().unwrap()];
    for (more, status, expected) in [
        (&[][..], 0, "the port of the cluster manager is not known"),
        (&["--port", "cluster-manager=7"], 1, "no connection goes to the cluster manager's port 7"),
    ] {
        let told = corona(&[&import, more].concat()).output().unwrap();
        let out = text(told.stdout);
        assert_eq!(told.status.code(), Some(status), "{out}");
        assert!(out.contains(expected), "{out}");
    }
    let told = printed(&[&import[..], &["--port", "cluster-manager=18800"]].concat());
    assert_eq!(told.lines().count(), 1, "{told}");
    for (words, status, expected) in [
        (["inspect", capture, "--port", "cluster-manager=7"], 0, "has no connection to port 7"),
        (["inspect", out.to_str().unwrap(), "--method", "sesionStart"], 1, "mean sessionStart?"),
        (["inspect", out.to_str().unwrap(), "--session", "2"], 0, "no message matches"),
    ] {
        let told = corona(&words).output().unwrap();
        let err = text(told.stderr);
        assert_eq!(told.status.code(), Some(status), "{words:?}: {err}");
        assert!(err.contains(expected) && err.lines().count() == 1, "{words:?}: {err}");
    }
}

#[test]
fn a_capture_says_the_same_after_its_import() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["scenarios/grants", "jobs/remote-sleep"] {
        let recorded = repository().join("fixtures/recordings").join(name);
        let (capture, file) = (recorded.join("traffic.pcap"), directory.path().join("out.corec"));
        let conf_dir = ["--conf-dir", recorded.to_str().unwrap()];
        let import = ["import", capture.to_str().unwrap(), "--force", "--out"];
        let told = printed(&[&import, [file.to_str().unwrap()].as_slice(), &conf_dir].concat());
        assert!(told.contains(" connections, "), "{told}");
        let items = inspected(&capture, &conf_dir);
        assert!(items.len() > 20);
        assert_eq!(inspected(&file, &[]), items, "{name}");
        for more in [["--output", "text"].as_slice(), &["--stats"]] {
            let words = [&["inspect", file.to_str().unwrap()], more].concat();
            let shown = corona(&words).env("COLUMNS", "80").output().unwrap();
            let shown = text(shown.stdout);
            assert!(shown.lines().count() > 5, "{shown}");
            assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        }
        assert!(fs::metadata(&file).unwrap().len() < fs::metadata(&capture).unwrap().len() / 2);
    }
    let empty = directory.path().join("empty.pcap");
    fs::write(&empty, "").unwrap();
    for (capture, expected) in [
        (empty.as_path(), "the file is empty"),
        (directory.path(), "cannot read the capture: Is a directory (os error 21)"),
    ] {
        let told = corona(&["inspect", capture.to_str().unwrap()]).output().unwrap();
        let expected = format!("corona: {}: {expected}\n", capture.display());
        assert_eq!((told.status.code(), text(told.stderr)), (Some(1), expected));
    }
    let nonsense = repository().join("Cargo.toml");
    let out = directory.path().join("nothing.corec");
    let import = ["import", nonsense.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let told = corona(&import).output().unwrap();
    assert_eq!(told.status.code(), Some(1));
    assert!(text(told.stderr).contains("neither a pcap nor a pcapng header"));
    assert!(!out.exists(), "no half file is left");
}
