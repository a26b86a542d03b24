//! Tests that cannot run on a machine: nothing is left out in silence.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;

/// A prerequisite of a test that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The right to mount a small file system (`unshare --mount`).
    SmallDisks,
    /// The right to make network namespaces, and iproute2 (`unshare --user --net`, `ip`, `ss`).
    Namespaces,
    /// Prometheus' tool for rules. Its Debian package, `prometheus`, would start a server.
    Promtool,
    /// A real HDFS, which `CORONA_TARGET_HDFS` names.
    Hdfs,
    /// The server of ZooKeeper, which `CORONA_SKIP_CLIENTS=1` leaves out.
    ZooKeeper,
    /// The right to make control groups of version 2.
    Cgroups,
    /// The controller of memory in control groups that this user may make.
    MemoryController,
    /// Clients in Java and Python, which `CORONA_SKIP_CLIENTS=1` leaves out.
    Clients,
}

impl Missing {
    fn reason(self) -> &'static str {
        match self {
            Missing::SmallDisks => "this user may not mount a small disk (unshare --mount)",
            Missing::Namespaces => {
                "the kernel allows this user no network namespaces, or iproute2 is missing"
            }
            Missing::Promtool => "promtool is not installed (Debian: prometheus)",
            Missing::Hdfs => "CORONA_TARGET_HDFS names no HDFS",
            Missing::ZooKeeper => "ZooKeeper is not installed (Debian: zookeeper)",
            Missing::Cgroups => "this user may not make cgroups of version 2",
            Missing::MemoryController => {
                "this user may not make cgroups with a controller of memory"
            }
            Missing::Clients => "CORONA_SKIP_CLIENTS=1 leaves out clients in Java and Python",
        }
    }

    /// Whether `scripts/test` could have provided it.
    fn is_avoidable(self) -> bool {
        matches!(self, Missing::Clients | Missing::ZooKeeper)
    }
}

/// Records that the test of this thread does not run here. The test returns after it.
///
/// `scripts/test` prints the records as a list at its end; they are in the file that the variable
/// `CORONA_SKIPPED` names.
///
/// # Panics
/// In continuous integration (`CI=true`) when the test could have run, and when the record cannot be
/// written.
#[allow(clippy::print_stderr, reason = "the developer of one test must see that it did not run")]
pub fn skip(missing: Missing) {
    // Each test has a thread with its name.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let line = format!("{test}: {}", missing.reason());
    let is_ci = env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!(is_ci && missing.is_avoidable()), "{line}");
    eprintln!("skipped: {line}");
    if let Some(list) = env::var_os("CORONA_SKIPPED") {
        let list = OpenOptions::new().append(true).create(true).open(list);
        list.and_then(|mut list| writeln!(list, "{line}")).expect("the list can be written");
    }
}
