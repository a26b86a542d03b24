//! The programs of these tests: a shadow, and a cluster manager to shadow.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use compat_tests::corona_program;

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A shadow. It is ended when this is dropped.
pub(crate) struct Shadow {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    pub(crate) address: SocketAddr,
    pub(crate) http: Option<SocketAddr>,
}

impl Shadow {
    pub(crate) fn start(primary: SocketAddr, options: &[&str]) -> Shadow {
        let mut command = Command::new(corona_program());
        command.args(["shadow", "--listen", "127.0.0.1:0", "--primary", &primary.to_string()]);
        command.args(options);
        Shadow::of(command)
    }

    pub(crate) fn of(mut command: Command) -> Shadow {
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
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
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
pub(crate) fn counts(summary: &str, method: &str) -> [u64; 4] {
    let row = summary.lines().find(|line| line.split_whitespace().next() == Some(method));
    let row = row.unwrap_or_else(|| panic!("no {method} in {summary}"));
    let numbers: Vec<u64> = row.split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

/// Waits until a page has both texts.
pub(crate) fn until_it_shows(http: SocketAddr, path: &str, one: &str, other: &str) {
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
