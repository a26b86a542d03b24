//! Starts a cluster manager program for a replay and finds its addresses.
//!
//! Knows the command line and the line that the program prints when it is ready, nothing else.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How to start a cluster manager.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The `corona` program.
    pub program: PathBuf,
    /// Directory of the configuration files; none for embedded defaults.
    pub conf_dir: Option<PathBuf>,
    /// Settings that win over the files: key and value.
    pub overrides: Vec<(String, String)>,
    /// Further arguments of the subcommand.
    pub arguments: Vec<OsString>,
    /// How long it may take until it is ready.
    pub ready_within: Duration,
}

/// A cluster manager that is ready. It is ended when this is dropped.
#[derive(Debug)]
pub struct LaunchedManager {
    child: Child,
    thrift: SocketAddr,
    http: Option<SocketAddr>,
    log: Log,
}

/// Why a cluster manager is not ready.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The program cannot be started.
    #[error("cannot start {program}: {error}")]
    Start {
        /// Its path or name.
        program: String,
        /// The system's error.
        #[source]
        error: std::io::Error,
    },
    /// The program ended before it was ready.
    #[error("the cluster manager ended before it was ready ({status}); its log ends with:\n{log}")]
    Ended {
        /// How it ended.
        status: String,
        /// The last lines that it wrote.
        log: String,
    },
    /// The program did not report that it is ready.
    #[error("the cluster manager was not ready in time; its log ends with:\n{log}")]
    NotReady {
        /// The last lines that it wrote.
        log: String,
    },
}

/// Lines of the log that are kept.
const LOG_LINES: usize = 200;

impl Launch {
    /// Starts the program and waits for its line with `thrift ADDRESS` and `http ADDRESS`.
    pub fn start(&self) -> Result<LaunchedManager, LaunchError> {
        let mut command = Command::new(&self.program);
        command.arg("cluster-manager").env_remove("HADOOP_CONF_DIR");
        if let Some(conf_dir) = &self.conf_dir {
            command.arg("--conf-dir").arg(conf_dir);
        }
        for (key, value) in &self.overrides {
            command.arg("-D").arg(format!("{key}={value}"));
        }
        command.args(&self.arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| LaunchError::Start {
            program: self.program.display().to_string(),
            error,
        })?;
        let log = Log::default();
        let (found, ready) = sync_channel(1);
        let (at_end, log_ends) = sync_channel::<()>(1);
        if let Some(stderr) = child.stderr.take() {
            let log = log.clone();
            thread::spawn(move || {
                log.follow(stderr, None);
                drop(at_end);
            });
        }
        if let Some(stdout) = child.stdout.take() {
            let log = log.clone();
            thread::spawn(move || log.follow(stdout, Some(found)));
        }
        let mut running = LaunchedManager { child, thrift: NOWHERE, http: None, log };
        match ready.recv_timeout(self.ready_within) {
            Ok((thrift, http)) => {
                running.thrift = reachable(thrift);
                running.http = http.map(reachable);
                Ok(running)
            }
            Err(RecvTimeoutError::Timeout) => Err(LaunchError::NotReady { log: running.log() }),
            Err(RecvTimeoutError::Disconnected) => {
                let status = running.ended_within(Duration::from_secs(5));
                let status = status.map_or("stdout closed".to_owned(), |status| status.to_string());
                // The last lines of its log may still be in the pipe, which processes that it started may keep open.
                let _ = log_ends.recv_timeout(Duration::from_secs(1));
                Err(LaunchError::Ended { status, log: running.log() })
            }
        }
    }
}

const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl LaunchedManager {
    /// Where it takes calls.
    pub fn thrift(&self) -> SocketAddr {
        self.thrift
    }

    /// Where its pages are, if it has any.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The last lines that it wrote.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// How long it was stalled since its start, as its metrics report. It must have pages.
    pub fn held_up(&self) -> io::Result<Duration> {
        let http = self.http.ok_or(io::ErrorKind::NotConnected)?;
        let mut stream = TcpStream::connect_timeout(&http, METRICS_WITHIN)?;
        stream.set_read_timeout(Some(METRICS_WITHIN))?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.take(MAX_METRICS_BYTES).read_to_string(&mut text)?;
        held_up(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The number of its process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it at once, as a crash would.
    pub fn stop(&mut self) {
        // It may have ended by itself; either way nothing is left behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn ended_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                _ => return None,
            }
        }
    }
}

impl Drop for LaunchedManager {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How long its metrics may take.
const METRICS_WITHIN: Duration = Duration::from_secs(10);
const MAX_METRICS_BYTES: u64 = 1 << 20;

/// The stalled time in the metrics.
fn held_up(metrics: &str) -> Option<Duration> {
    let value =
        |line: &str| line.strip_prefix("corona_held_up_seconds_total ")?.trim().parse().ok();
    metrics.lines().find_map(value).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

/// A wildcard address is reached through loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        ip if !ip.is_unspecified() => address,
        IpAddr::V4(_) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        IpAddr::V6(_) => SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), address.port()),
    }
}

/// The addresses in a line such as `corona cluster manager ready: thrift 0.0.0.0:1 http [::1]:2`.
fn addresses(line: &str) -> Option<(SocketAddr, Option<SocketAddr>)> {
    let after = |word: &str| {
        let mut words = line.split_whitespace().skip_while(|next| *next != word);
        words.nth(1)?.trim_end_matches([',', ';']).parse().ok()
    };
    Some((after("thrift")?, after("http")))
}

type FoundAddresses = SyncSender<(SocketAddr, Option<SocketAddr>)>;

/// The last lines of a program's output.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<VecDeque<String>>>);

impl Log {
    /// Reads to the end, so that the program never waits for a reader.
    fn follow(&self, output: impl Read, mut found: Option<FoundAddresses>) {
        let mut lines = BufReader::new(output);
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line), Ok(size) if size > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if let Some(addresses) = addresses(&text)
                && let Some(found) = found.take()
            {
                // The receiver has been dropped if the deadline has passed.
                let _ = found.try_send(addresses);
            }
            self.push(text);
        }
    }

    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if lines.len() == LOG_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_contain_the_time_of_stalls() {
        let text = "HTTP/1.1 200 OK\r\n\r\n# TYPE corona_held_up_seconds_total counter\n\
            corona_held_up_seconds_total 1.25\ncorona_x 3\n";
        assert_eq!(held_up(text), Some(Duration::from_millis(1_250)));
        for text in ["", "corona_held_up_seconds_total -1\n", "corona_held_up_seconds_total x"] {
            assert_eq!(held_up(text), None, "{text}");
        }
    }

    #[test]
    fn the_ready_line_tells_both_addresses() {
        let both =
            |thrift: &str, http: &str| Some((thrift.parse().unwrap(), Some(http.parse().unwrap())));
        for (line, expected) in [
            (
                "corona cluster manager ready: thrift 0.0.0.0:41234 http 127.0.0.1:41235",
                both("0.0.0.0:41234", "127.0.0.1:41235"),
            ),
            ("ready, thrift [::]:1, http [::1]:2", both("[::]:1", "[::1]:2")),
            ("thrift 127.0.0.1:9", Some(("127.0.0.1:9".parse().unwrap(), None))),
            ("thrift is what peers speak", None),
            ("", None),
        ] {
            assert_eq!(addresses(line), expected, "{line}");
        }
    }

    #[test]
    fn a_program_that_ends_at_once_is_reported_with_its_log() {
        let launch = Launch {
            program: "/bin/sh".into(),
            conf_dir: None,
            overrides: vec![],
            arguments: vec![],
            ready_within: Duration::from_secs(60),
        };
        // `sh cluster-manager` finds no such script.
        let error = launch.start().unwrap_err();
        assert!(matches!(error, LaunchError::Ended { .. }), "{error}");
        assert!(error.to_string().contains("cluster-manager"), "{error}");
    }

    #[test]
    fn wildcard_addresses_are_reached_through_loopback() {
        assert_eq!(reachable("0.0.0.0:5".parse().unwrap()), "127.0.0.1:5".parse().unwrap());
        assert_eq!(reachable("[::]:5".parse().unwrap()), "[::1]:5".parse().unwrap());
        assert_eq!(reachable("10.0.0.1:5".parse().unwrap()), "10.0.0.1:5".parse().unwrap());
    }
}
