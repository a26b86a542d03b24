//! `corona shadow` as a process: beside this program's own cluster manager it finds nothing, and
//! whatever a falsifying relay between the two changes is reported.

mod falsifier;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use compat_tests::{corona_program, repository, start_plain};
use corona::conformance::launch::{Launch, Running};
use corona::conformance::setup::RecordedSetup;
use corona::wire::value::{Message, Value};

use falsifier::{Edit, Falsifier, find};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A shadow. It is ended when this is dropped.
struct Shadow {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    address: SocketAddr,
    http: Option<SocketAddr>,
}

impl Shadow {
    fn start(primary: SocketAddr, options: &[&str]) -> Shadow {
        let mut command = Command::new(corona_program());
        command.args(["shadow", "--listen", "127.0.0.1:0", "--primary", &primary.to_string()]);
        command.args(options);
        Shadow::of(command)
    }

    fn of(mut command: Command) -> Shadow {
        command.env_remove("HADOOP_CONF_DIR").env_remove("COLUMNS").stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        out.read_line(&mut said).unwrap();
        let after = |name: &str| {
            let mut words = said.split_whitespace().skip_while(|word| *word != name);
            words.nth(1).and_then(|word| word.parse().ok())
        };
        let address = after("listen").unwrap_or_else(|| panic!("not ready: {said}"));
        Shadow { child, out, address, http: after("http") }
    }

    /// Status and summary.
    fn end(mut self) -> (Option<i32>, String) {
        let script = format!("kill -s TERM {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
        let mut summary = String::new();
        self.out.read_to_string(&mut summary).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the shadow ends");
            std::thread::sleep(Duration::from_millis(10));
        }
        (self.child.wait().unwrap().code(), summary)
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// The count in a row of the summary's table: equal, explained, different, not compared.
fn counts(summary: &str, method: &str) -> [u64; 4] {
    let row = summary.lines().find(|line| line.split_whitespace().next() == Some(method));
    let row = row.unwrap_or_else(|| panic!("no {method} in {summary}"));
    let numbers: Vec<u64> = row.split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

#[test]
fn beside_itself_under_load_it_finds_nothing() {
    let manager = start_plain();
    let shadow = Shadow::start(manager.thrift(), &[]);
    let address = shadow.address.to_string();
    let small = ["--nodes", "40", "--cpus", "4", "--seconds", "1", "--warm-up", "0"];
    for (scenario, options) in [
        ("churn", &["--sessions", "3", "--maps", "50"][..]),
        ("churn", &["--sessions", "3", "--maps", "500", "--hold", "0.05"]),
        ("small-jobs", &[]),
        ("mixed", &["--sessions", "3", "--maps", "50", "--hold", "0.05", "--interval", "0.2"]),
    ] {
        let mut load = Command::new(corona_program());
        load.args(["load", scenario, "--address", &address, "--threads", "1"]);
        let output = load.args(small).args(options).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{scenario}: {stderr}");
    }
    let (status, summary) = shadow.end();
    assert_eq!(status, Some(0), "{summary}");
    assert!(summary.starts_with("AGREES: "), "{summary}");
    for method in
        ["getNextSessionId", "sessionStart", "requestResource", "releaseResource", "grantResource"]
    {
        let [equal, _, different, _] = counts(&summary, method);
        assert!(equal > 10 && different == 0, "{method}: {summary}");
    }
}

/// A recorded scenario is played against this program through a falsifier and a shadow. Gives the
/// shadow's status and summary.
fn shadowed(scenario: &str, edit: Edit) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().unwrap();
    let conf_dir = repository().join("fixtures/recordings/scenarios").join(scenario);
    let manager = start(&conf_dir, directory.path());
    let primary = Falsifier::start(manager.thrift(), edit);
    let conf = conf_dir.to_str().unwrap();
    let shadow = Shadow::start(primary, &["--conf-dir", conf, "--patience", "2"]);
    let mut replay = Command::new(corona_program());
    replay.arg("replay").arg(conf_dir.join("traffic.pcap"));
    replay.args(["--target", &shadow.address.to_string(), "--conf-dir", conf]);
    // What it finds is the falsifier's work, and not looked at here.
    let output = replay.args(["--speed", "max", "--timeout", "4"]).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    shadow.end()
}

fn start(conf_dir: &Path, scratch: &Path) -> Running {
    let setup = RecordedSetup::read(conf_dir).unwrap();
    let nobody = "127.0.0.1:9".parse().unwrap();
    let launch = Launch {
        program: PathBuf::from(corona_program()),
        conf_dir: Some(conf_dir.to_path_buf()),
        overrides: setup.overrides(1.0, nobody, &scratch.join("cm.state")),
        arguments: vec![],
        ready_within: Duration::from_secs(30),
    };
    launch.start().unwrap_or_else(|error| panic!("{error}"))
}

/// Checks that a scenario is found to agree, and to differ in one place when `edit` has been at it;
/// gives the summary.
fn found(scenario: &str, edit: Edit) -> String {
    let (status, summary) = shadowed(scenario, Box::new(|_| {}));
    assert_eq!(status, Some(0), "{summary}");
    assert!(summary.starts_with("AGREES: "), "{summary}");
    let (status, summary) = shadowed(scenario, edit);
    assert_eq!(status, Some(1), "{summary}");
    assert!(summary.starts_with("DIFFERS: 1 difference that nothing explains."), "{summary}");
    summary
}

fn list<'a>(message: &'a mut Message, name: &str) -> &'a mut Vec<Value> {
    match find(message.body.as_mut().unwrap(), name) {
        Some(Value::List(values)) => values,
        other => panic!("no list {name}: {other:?}"),
    }
}

/// The commands of the page, each between clients and a cluster manager.
#[test]
fn every_documented_command_runs_and_tells_what_it_found() {
    let text = std::fs::read_to_string(repository().join("docs/conformance.md")).unwrap();
    let commands: Vec<&str> =
        text.lines().filter_map(|line| line.trim_start().strip_prefix("corona shadow ")).collect();
    assert!(commands.len() >= 2, "{commands:?}");
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let conf_dir = here.join("conf");
    std::fs::create_dir(&conf_dir).unwrap();
    let configuration = "<configuration><property><name>cm.cpu.to.resource.partitioning</name>\
        <value>{\"1\":{\"MAP\":1,\"REDUCE\":1}}</value></property></configuration>";
    std::fs::write(conf_dir.join("core-site.xml"), configuration).unwrap();
    for command in commands {
        let manager = start(&conf_dir, here);
        let line = command
            .replace("localhost:9090", &manager.thrift().to_string())
            .replace("0.0.0.0:9191", "127.0.0.1:0")
            .replace("0.0.0.0:9192", "127.0.0.1:0");
        let mut program = Command::new(corona_program());
        program.arg("shadow").args(line.split(' ')).current_dir(here);
        let shadow = Shadow::of(program);
        let mut load = Command::new(corona_program());
        load.args(["load", "churn", "--address", &shadow.address.to_string(), "--nodes", "10"]);
        load.args(["--seconds", "1", "--warm-up", "0", "--sessions", "1", "--maps", "20"]);
        assert!(load.output().unwrap().status.success());
        if let Some(http) = shadow.http {
            until_it_shows(http, "/", "<td>0</td>", "sessionStart");
            until_it_shows(http, "/report.json", "\"agrees\":true", "\"method\":\"sessionStart\"");
            let sample = "corona_shadow_answers_total{method=\"sessionStart\",verdict=\"equal\"}";
            until_it_shows(http, "/metrics", "# TYPE", sample);
        }
        let (status, summary) = shadow.end();
        assert_eq!(status, Some(0), "{summary}");
        assert!(summary.lines().all(|line| line.chars().count() <= 80), "{summary}");
    }
    let page = std::fs::read_to_string(here.join("week.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("AGREES: "), "{page}");
    let mut inspect = Command::new(corona_program());
    let output = inspect.args(["inspect", "week.corec", "--stats"]).current_dir(here).output();
    let output = output.unwrap();
    let stats = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && stats.contains("grantResource"), "{stats}");
}

/// Waits until a page has both texts.
fn until_it_shows(http: SocketAddr, path: &str, one: &str, other: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut stream = std::net::TcpStream::connect(http).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        if answer.contains(one) && answer.contains(other) {
            return;
        }
        assert!(Instant::now() < deadline, "no {one} and {other} in {answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn one_flipped_field_is_reported() {
    let mut done = false;
    let summary = found(
        "session_lifecycle",
        Box::new(move |message| {
            if message.name == "getSessionInfo" && message.kind.is_answer() && !done {
                let info = find(message.body.as_mut().unwrap(), "success");
                let flag = info.and_then(|info| find(info, "noPreempt")).unwrap();
                assert_eq!(*flag, Value::Bool(false));
                *flag = Value::Bool(true);
                done = true;
            }
        }),
    );
    let expected = "  success.noPreempt\n    primary true\n    here    false\n";
    assert!(summary.contains(expected), "{summary}");
}

#[test]
fn a_connection_closed_instead_of_an_answer_is_reported() {
    let mut done = false;
    let summary = found(
        "session_lifecycle",
        Box::new(move |message| {
            if message.name == "getSessionInfo" && message.kind.is_answer() && !done {
                message.name.clear();
                done = true;
            }
        }),
    );
    assert!(summary.contains("  primary   the connection is closed\n"), "{summary}");
}

#[test]
fn one_grant_too_many_is_reported() {
    let mut done = false;
    let summary = found(
        "exclude_hosts",
        Box::new(move |message| {
            if message.name == "grantResource" && !message.kind.is_answer() && !done {
                let granted = list(message, "granted");
                let mut one_more = granted[0].clone();
                *find(&mut one_more, "id").unwrap() = Value::I32(9_999);
                granted.push(one_more);
                done = true;
            }
        }),
    );
    assert!(summary.contains("grantResource of request 9999 to session"), "{summary}");
    assert!(summary.contains("the request was never made"), "{summary}");
}

#[test]
fn a_grant_told_twice_and_one_not_told_are_reported() {
    for (copies, expected) in [(2, "it has been granted already"), (0, "nothing within 2 s")] {
        let mut done = false;
        let summary = found(
            "exclude_hosts",
            Box::new(move |message| {
                if message.name == "grantResource" && !message.kind.is_answer() && !done {
                    let granted = list(message, "granted");
                    let last = granted.pop().unwrap();
                    granted.extend(std::iter::repeat_n(last, copies));
                    done = true;
                }
            }),
        );
        assert!(summary.contains(expected), "{summary}");
    }
}

#[test]
fn a_reordered_revocation_is_reported() {
    let summary = found(
        "preemption",
        Box::new(|message| {
            if message.name == "revokeResource" && !message.kind.is_answer() {
                list(message, "revoked").reverse();
            }
        }),
    );
    assert!(summary.contains("revokeResource of request"), "{summary}");
    assert!(summary.contains("is revoked before"), "{summary}");
}
