//! The program as a process: how it starts, reports that it is ready, refuses to start, and ends.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use compat_tests::cluster_peers::Caller;
use compat_tests::skipping::{Missing, skip};
use compat_tests::task_tracker::node::{in_own_mounts, may_mount};
use compat_tests::{PATIENCE, corona_program, until};
use serde_json::{Value as Json, json};

fn cluster_manager(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(corona_program());
    command.arg("cluster-manager").args(arguments).current_dir(directory);
    command.env_remove("HADOOP_CONF_DIR").env_remove("NOTIFY_SOCKET");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

const FREE_PORTS: [&str; 4] =
    ["-D", "cm.server.address=localhost:0", "-D", "cm.server.http.address=localhost:0"];

/// Starts it on embedded defaults and waits for its two lines.
fn start(command: &mut Command) -> (Child, String) {
    let mut child = command.spawn().unwrap();
    let mut lines = String::new();
    let mut stdout = BufReader::new(child.stdout.as_mut().unwrap());
    for _ in 0..2 {
        stdout.read_line(&mut lines).unwrap();
    }
    (child, lines)
}

fn send(signal: &str, child: &Child) {
    let script = format!("kill -s {signal} \"$0\"");
    let status = Command::new("sh").args(["-c", &script, &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

fn wait(mut child: Child) -> Option<i32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() >= deadline {
            child.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn address(line: &str, after: &str) -> SocketAddr {
    let mut words = line.split_whitespace().skip_while(|word| *word != after);
    words.nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

fn calls(lines: &str) -> Caller {
    Caller::open(([127, 0, 0, 1], address(lines, "thrift").port()).into())
}

#[test]
fn it_starts_on_defaults_says_where_it_listens_and_ends_on_signals() {
    let directory = tempfile::tempdir().unwrap();
    for signal in ["TERM", "INT"] {
        let (child, lines) = start(&mut cluster_manager(directory.path(), &FREE_PORTS));
        let (thrift, http) = (address(&lines, "thrift"), address(&lines, "http"));
        TcpStream::connect(("127.0.0.1", thrift.port())).unwrap();
        TcpStream::connect(http).unwrap();
        assert_eq!(lines.lines().nth(1), Some(&*format!("pages http://{http}/")));
        send(signal, &child);
        assert_eq!(wait(child), Some(0), "{signal}");
        assert!(TcpStream::connect(("127.0.0.1", thrift.port())).is_err());
    }
    let left = std::fs::read_dir(directory.path()).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort_unstable();
    let journal = ["cm.state.journal", "cm.state.journal.marker"];
    assert_eq!(left, journal, "nothing but the journal is left behind");
}

#[test]
fn a_start_without_configuration_warns_of_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (mut child, _) = start(&mut cluster_manager(directory.path(), &FREE_PORTS));
    let mut log = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    // The last thing that a start does.
    while !log.contains("roxy job tracker") && !log.contains("ProxyJobTracker") {
        assert_ne!(stderr.read_line(&mut log).unwrap(), 0, "it ended:\n{log}");
    }
    send("TERM", &child);
    stderr.read_to_string(&mut log).unwrap();
    assert_eq!(wait(child), Some(0));
    let bad: Vec<&str> =
        log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
    assert_eq!(bad, [""; 0]);
    assert!(log.contains("none is configured (corona.proxy.job.tracker.thriftaddr)"), "{log}");
}

/// It also feeds the watchdog of systemd if there is one.
#[test]
fn it_tells_systemd_that_it_is_ready_and_that_it_stops() {
    for has_watchdog in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = cluster_manager(directory.path(), &FREE_PORTS);
        command.env("NOTIFY_SOCKET", &path);
        if has_watchdog {
            command.env("WATCHDOG_USEC", "100000");
        }
        let (child, _) = start(&mut command);
        let times_fed = if has_watchdog { 5 } else { 0 };
        let (mut ready, mut fed) = (0, 0);
        loop {
            let mut bytes = [0; 100];
            let length = socket.recv(&mut bytes).unwrap();
            match bytes[..length].trim_ascii() {
                b"READY=1" => ready += 1,
                b"WATCHDOG=1" => fed += 1,
                other => {
                    assert_eq!(other, b"STOPPING=1");
                    break;
                }
            }
            if (ready, fed) == (1, times_fed) {
                send("TERM", &child);
            }
        }
        assert!(ready == 1 && has_watchdog == (fed > 0), "{ready} {fed}");
        // A socket that nothing reads any more does not keep the process.
        assert_eq!(wait(child), Some(0));
    }
}

#[test]
fn a_failed_start_has_one_line_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("[::]:0").unwrap();
    let taken_too = TcpListener::bind("127.0.0.1:0").unwrap();
    let thrift = format!("cm.server.address=localhost:{}", taken.local_addr().unwrap().port());
    std::fs::write(directory.path().join("cm.state"), "{}").unwrap();
    let http = format!("cm.server.http.address={}", taken_too.local_addr().unwrap());
    let any = "cm.server.address=localhost:0";
    let any_page = "cm.server.http.address=localhost:0";
    let cases: [(&[&str], &[&str]); 6] = [
        (
            &["-D", "cm.state=none", "-D", any_page, "-D", &thrift],
            &["in use", "set cm.server.address to another port, or to port 0 for any free one"],
        ),
        (
            &["-D", "cm.state=none", "-D", any, "-D", &http],
            &["in use", "set cm.server.http.address to another port"],
        ),
        (&["--conf-dir", "/no/such/directory"], &["/no/such/directory", "--conf-dir"]),
        (&["--conf-dir", "."], &["cm.cpu.to.resource.partitioning"]),
        (
            &["-D", "cm.node.expiryinterval=soon", "-D", "cm.server.sotimeout=-1"],
            &["cm.node.expiryinterval", "\"soon\"", "cm.server.sotimeout", "\"-1\"", "expected"],
        ),
        (&FREE_PORTS, &["cm.state", "exists"]),
    ];
    for (arguments, parts) in cases {
        let Output { status, stdout, stderr } =
            cluster_manager(directory.path(), arguments).output().unwrap();
        assert_eq!(status.code(), Some(1), "{arguments:?}");
        assert!(stdout.is_empty(), "{arguments:?}");
        let text = String::from_utf8(stderr).unwrap();
        let told: Vec<&str> = text.lines().filter(|line| line.starts_with("corona: ")).collect();
        assert_eq!(told.len(), 1, "{text}");
        for part in parts {
            assert!(told[0].contains(part), "{part} is missing in: {}", told[0]);
        }
    }
}

#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = cluster_manager(directory.path(), &FREE_PORTS);
    // stderr is a pipe without a reader; at this level it is full at once.
    let (child, line) = start(command.args(["--log-level", "trace"]));
    let http = address(&line, "http");
    for _ in 0..300 {
        let mut stream = TcpStream::connect(http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        std::io::Write::write_all(&mut stream, b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut page = Vec::new();
        stream.read_to_end(&mut page).unwrap();
        assert!(page.starts_with(b"HTTP/1.0 200"), "{}", String::from_utf8_lossy(&page));
    }
    let mut child = child;
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A cluster manager whose journal is on a disk of its own, mounted in this way.
fn on_own_disk(directory: &Path, mount: &str) -> Command {
    std::fs::create_dir_all(directory.join("disk")).unwrap();
    let script = format!("mount -t tmpfs -o {mount} tmpfs disk && exec \"$@\"");
    let mut command = in_own_mounts();
    command.args(["sh", "-c", &script, "sh"]).arg(corona_program()).arg("cluster-manager");
    command.args(FREE_PORTS).args(["-D", "corona.cm.journal.dir=disk/journal"]);
    command.current_dir(directory).env_remove("HADOOP_CONF_DIR").env_remove("NOTIFY_SOCKET");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_full_disk_of_the_journal_ends_the_process_with_one_line() {
    if !may_mount() {
        return skip(Missing::SmallDisks);
    }
    let directory = tempfile::tempdir().unwrap();
    let (mut child, line) = start(&mut on_own_disk(directory.path(), "size=128k"));
    let mut stderr = child.stderr.take().unwrap();
    let log = std::thread::spawn(move || {
        let mut log = String::new();
        stderr.read_to_string(&mut log).map(|_| log)
    });
    let mut calls = calls(&line);
    let mut answered = 0;
    while calls.try_call("getNextSessionId", &json!({})).is_some() {
        answered += 1;
        assert!(answered < 100_000, "the disk is not small");
    }
    assert!(answered > 100, "{answered}");
    assert_eq!(wait(child), Some(1));
    let log = log.join().unwrap().unwrap();
    let last = log.lines().last().unwrap_or_default();
    assert!(
        last.contains("the journal failed: ")
            && last.contains(".journal: cannot write: No space left on device"),
        "{log}"
    );
}

#[test]
fn a_journal_that_cannot_be_used_is_one_line_and_no_start() {
    let directory = tempfile::tempdir().unwrap();
    let (child, _) = start(&mut cluster_manager(directory.path(), &FREE_PORTS));
    let second = cluster_manager(directory.path(), &FREE_PORTS).output().unwrap();
    let mut refused = vec![("another process uses this journal", second)];
    if may_mount() {
        let read_only = on_own_disk(directory.path(), "ro").output().unwrap();
        refused.push(("disk/journal: cannot make the directory: Read-only file system", read_only));
    }
    std::fs::write(directory.path().join("file"), "").unwrap();
    let in_a_file = [&FREE_PORTS[..], &["-D", "corona.cm.journal.dir=file/journal"]].concat();
    let in_a_file = cluster_manager(directory.path(), &in_a_file).output().unwrap();
    refused.push(("file/journal: cannot make the directory: Not a directory", in_a_file));
    for (why, Output { status, stderr, .. }) in refused {
        assert_eq!(status.code(), Some(1), "{why}");
        let log = String::from_utf8(stderr).unwrap();
        let last = log.lines().last().unwrap_or_default();
        assert!(last.contains(why) && last.contains("(corona.cm.journal.dir)"), "{log}");
    }
    send("TERM", &child);
    assert_eq!(wait(child), Some(0));
}

/// Every file below a directory with its bytes, except the lock of the journal.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(contents(&path)),
            false if path.ends_with("lock") => {}
            false => files.push((path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    files.sort_unstable();
    files
}

/// Every cluster has a journal without an image for its first 32 MiB. Other harm is tested beside the journal.
#[test]
fn a_journal_that_is_lost_or_damaged_is_refused_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (mut child, line) = start(&mut cluster_manager(directory.path(), &FREE_PORTS));
    let mut calls = calls(&line);
    for _ in 0..50 {
        calls.call("getNextSessionId", &json!({}));
    }
    let journal = directory.path().join("cm.state.journal");
    let segment = journal.join("00000000000000000001.journal");
    // The marker follows the records at once when nothing more arrives.
    until("the marker has every record", || {
        let mut check = Command::new(corona_program());
        check.args(["journal", "check", "--output", "json", "--dir"]).arg(&journal);
        let report = check.output().unwrap().stdout;
        let report: Json = serde_json::from_slice(&report).unwrap();
        (report["marker_record"].as_u64() >= Some(51)).then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();

    let whole = contents(directory.path());
    let restore = || {
        std::fs::create_dir_all(&journal).unwrap();
        for (path, bytes) in &whole {
            std::fs::write(path, bytes).unwrap();
        }
    };
    let last_burst = whole.iter().find(|(path, _)| *path == segment).unwrap().1.len() - 10;
    let lose = || std::fs::remove_dir_all(&journal).unwrap();
    let flip = || {
        let mut bytes = std::fs::read(&segment).unwrap();
        bytes[last_burst] ^= 4;
        std::fs::write(&segment, bytes).unwrap();
    };
    let harms: [(&str, &dyn Fn()); 2] =
        [("lost: ", &lose), ("a record that was durable is not whole", &flip)];
    for (why, harm) in harms {
        harm();
        let before = contents(directory.path());
        let refused = cluster_manager(directory.path(), &FREE_PORTS).output().unwrap();
        let log = String::from_utf8(refused.stderr).unwrap();
        let last = log.lines().last().unwrap_or_default();
        assert!(refused.status.code() == Some(1) && last.contains(why), "{why}: {log}");
        assert_eq!(contents(directory.path()), before, "{why}: the evidence is kept");
        restore();
    }
    let (child, _) = start(&mut cluster_manager(directory.path(), &FREE_PORTS));
    send("TERM", &child);
    assert_eq!(wait(child), Some(0), "what was restored is whole");
}
