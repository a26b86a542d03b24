//! Whole sessions by clients in Python and Java, each of which also serves the program's calls: two
//! session drivers and the proxy job tracker. Both see the same.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use compat_tests::clients::{JAVA_LIBRARIES, generate, python, run, skipped};
use compat_tests::{repository, start_with};
use corona::conformance::launch::LaunchedManager;

/// The expected output of each client, after the line about its proxy job tracker.
const EXPECTED: &str = include_str!("../../../clients/whole_sessions.txt");

/// For a whole client, which itself waits up to a minute for each thing.
const PATIENCE: Duration = Duration::from_secs(180);

const CORONA_XML: &str = "<configuration>
    <starvingTimeForMinimum>500</starvingTimeForMinimum>
    <starvingTimeForShare>600000</starvingTimeForShare>
    <preemptedTaskMaxRunningTime>600000</preemptedTaskMaxRunningTime>
</configuration>";

const POOLS_XML: &str = r#"<configuration>
    <group name="g"><pool name="hog"/><pool name="poor"><minMAP>2</minMAP></pool></group>
</configuration>"#;

#[test]
fn python_goes_through_whole_sessions() {
    if skipped() {
        return;
    }
    let generated = tempfile::tempdir().unwrap();
    generate("py", generated.path());
    let client = repository().join("compat-tests/clients/python/whole_sessions.py");
    check(Command::new(python()).arg("-B").arg(client).arg(generated.path()));
}

#[test]
fn java_goes_through_whole_sessions() {
    if skipped() {
        return;
    }
    let generated = tempfile::tempdir().unwrap();
    let classes = generated.path().join("classes");
    generate("java:generated_annotations=suppress", generated.path());
    let sources = std::fs::read_dir(generated.path()).unwrap().map(|entry| entry.unwrap().path());
    let sources = sources.filter(|path| path.extension().is_some_and(|end| end == "java"));
    let client = repository().join("compat-tests/clients/java/WholeSessions.java");
    let mut javac = Command::new("javac");
    javac.args(["-nowarn", "-cp", JAVA_LIBRARIES, "-d"]).arg(&classes).args(sources).arg(client);
    run(&mut javac);
    let class_path = format!("{JAVA_LIBRARIES}:{}", classes.display());
    check(Command::new("java").args(["-cp", &class_path, "WholeSessions"]));
}

/// Lets a client go through its sessions at a program of its own.
fn check(command: &mut Command) {
    let scratch = tempfile::tempdir().unwrap();
    let mut client = Client::start(command);
    let port = client.line().strip_prefix("proxy job tracker on ").map(str::to_owned);
    let mut manager = start(scratch.path(), &port.expect("the client's first line"));
    writeln!(client.stdin(), "{}", manager.thrift().port()).unwrap();
    let printed: Vec<String> = std::iter::from_fn(|| client.next()).collect();
    let status = client.child.wait().unwrap();
    let said = client.stderr.take().map(|stderr| stderr.join().unwrap()).unwrap_or_default();
    assert!(status.success(), "{status}\n{}\n{said}\n{}", printed.join("\n"), manager.log());
    // Line by line, so that a difference is seen at once.
    for (place, expected) in EXPECTED.lines().enumerate() {
        assert_eq!(printed.get(place).map(String::as_str), Some(expected), "line {place}\n{said}");
    }
    assert_eq!(printed.len(), EXPECTED.lines().count(), "{printed:?}");
    assert!(manager.is_alive(), "{}", manager.log());
}

fn start(directory: &Path, proxy: &str) -> LaunchedManager {
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    start_with(&[
        ("corona.proxy.job.tracker.thriftaddr", &format!("127.0.0.1:{proxy}")),
        ("cm.hosts.exclude", &file("exclude", "127.0.0.9\n")),
        ("cm.config.file", &file("corona.xml", CORONA_XML)),
        ("cm.pools.config.file", &file("pools.xml", POOLS_XML)),
        // A client's node heartbeats five times a second; a busy machine may hold it up.
        ("cm.node.expiryinterval", "5000"),
        ("cm.state", &directory.join("cm.state").display().to_string()),
    ])
}

/// A client program and the lines that it prints, until a deadline. It ends when this is dropped.
struct Client {
    child: Child,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    deadline: Instant,
}

impl Client {
    fn start(command: &mut Command) -> Client {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        let (send, lines) = sync_channel(1000);
        let stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        thread::spawn(move || {
            for line in stdout.lines() {
                // The receiver is dropped when the test is over.
                if line.is_ok_and(|line| send.send(line).is_ok()) {
                    continue;
                }
                break;
            }
        });
        let mut stderr = child.stderr.take().expect("stderr is a pipe");
        let stderr = thread::spawn(move || {
            let mut text = vec![];
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Client { child, lines, stderr: Some(stderr), deadline: Instant::now() + PATIENCE }
    }

    fn stdin(&mut self) -> impl Write {
        self.child.stdin.take().expect("stdin is a pipe")
    }

    /// The next line; none when it prints no more.
    fn next(&mut self) -> Option<String> {
        use std::sync::mpsc::RecvTimeoutError;
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the client takes too long"),
        }
    }

    fn line(&mut self) -> String {
        self.next().unwrap_or_else(|| {
            let said = self.stderr.take().map(|stderr| stderr.join().unwrap());
            panic!("the client ends at once:\n{}", said.unwrap_or_default())
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing is left behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
