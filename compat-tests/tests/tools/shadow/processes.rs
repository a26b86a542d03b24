//! The programs of these tests: a shadow, and a cluster manager to shadow.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use compat_tests::serving::{fetch, status};
use compat_tests::task_tracker::node::signal;
use compat_tests::{PATIENCE, corona_program, until};

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
        signal("TERM", self.child.id());
        let mut summary = String::new();
        self.out.read_to_string(&mut summary).unwrap();
        let status = until("the end of the shadow", || self.child.try_wait().unwrap());
        (status.code(), summary)
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
        let (head, page) = fetch(&http.to_string(), path).expect("a page");
        assert_eq!(status(&head), "200", "{path}: {head}{page}");
        if page.contains(one) && page.contains(other) {
            return;
        }
        assert!(Instant::now() < deadline, "no {one} and {other} at {path}: {page}");
        sleep(Duration::from_millis(20));
    }
}
