//! Daemons that tests start: their settings, what they print, and their logs.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts a daemon with these settings, and without the configuration and the supervisor of the tests. It
/// prints to a pipe, and writes its log at the end of this file.
///
/// # Panics
/// When it cannot be started.
pub fn start_daemon<'a>(
    mut command: Command,
    settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    log: &Path,
) -> Child {
    for (key, value) in settings {
        command.arg("-D").arg(format!("{key}={value}"));
    }
    command.env_remove("HADOOP_CONF_DIR").env_remove("NOTIFY_SOCKET");
    let log = File::options().create(true).append(true).open(log).expect("a file for the log");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    command.spawn().expect("the program can be started")
}

/// The first line that a program prints: that it is ready.
///
/// # Panics
/// When its output cannot be read.
pub fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let stdout = child.stdout.take().expect("its output");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    line
}

/// Tells the reader of a failed test the last lines of a log.
#[allow(clippy::print_stderr, reason = "a failed test tells the log")]
pub fn tell_end(what: &str, log: &str, lines: usize) {
    let earlier = log.lines().count().saturating_sub(lines);
    let last: Vec<&str> = log.lines().skip(earlier).collect();
    eprintln!("{what}:\n{}", last.join("\n"));
}
