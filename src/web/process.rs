//! Metrics of this process, under the names that Prometheus' own libraries use. They are read from
//! `/proc`; what is not there is left out.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use super::prometheus::{Family, Shape, Text};
use corona_process::proc_text::{Stat, number_after};

/// Resident memory.
pub const RESIDENT: Family = Family {
    name: "process_resident_memory_bytes",
    shape: Shape::Gauge,
    help: "Resident memory of the process in bytes.",
};
/// Open file descriptors.
pub const OPEN_FILES: Family = Family {
    name: "process_open_fds",
    shape: Shape::Gauge,
    help: "Open file descriptors of the process.",
};
/// Limit on open file descriptors.
pub const OPEN_FILES_LIMIT: Family = Family {
    name: "process_max_fds",
    shape: Shape::Gauge,
    help: "Maximum of open file descriptors of the process.",
};
/// Threads.
pub const THREADS: Family =
    Family { name: "process_threads", shape: Shape::Gauge, help: "Threads of the process." };
/// Processor time.
pub const CPU: Family = Family {
    name: "process_cpu_seconds_total",
    shape: Shape::Counter,
    help: "CPU time used by the process in seconds.",
};
/// Start time.
pub const STARTED: Family = Family {
    name: "process_start_time_seconds",
    shape: Shape::Gauge,
    help: "Start time of the process in seconds since the epoch.",
};

/// Writes the numbers of this process. It reads files of the kernel.
pub fn process(text: &mut Text) {
    let process = Process::now();
    let Process { resident_bytes, open_files, open_files_limit, threads, cpu_seconds, .. } =
        process;
    text.family(RESIDENT).labelled_if_any(&[], resident_bytes);
    text.family(OPEN_FILES).labelled_if_any(&[], open_files);
    text.family(OPEN_FILES_LIMIT).labelled_if_any(&[], open_files_limit);
    text.family(THREADS).labelled_if_any(&[], threads);
    text.family(CPU).labelled_if_any(&[], cpu_seconds);
    text.family(STARTED).labelled_if_any(&[], process.started_seconds);
}

/// Numbers about this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// Resident memory in bytes.
    pub resident_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_files: Option<u64>,
    /// Limit on open file descriptors.
    pub open_files_limit: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// User and system time in seconds.
    pub cpu_seconds: Option<f64>,
    /// Start time in seconds since the epoch.
    pub started_seconds: Option<f64>,
}

impl Process {
    /// Reads the numbers of this process.
    pub fn now() -> Process {
        let read =
            |file: &str| fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
        let (status, stat) = (read("status"), read("stat"));
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let clocks = Clocks::of(&stat);
        let limits = read("limits");
        Process {
            resident_bytes: number_after(&status, "VmRSS:").map(|kib| kib * 1024),
            open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64),
            open_files_limit: number_after(&limits, "Max open files"),
            threads: number_after(&status, "Threads:"),
            cpu_seconds: clocks.map(|clocks| clocks.used),
            started_seconds: clocks.and_then(|clocks| clocks.started_at(&uptime)),
        }
    }
}

/// Seconds of a process, counted in the kernel's hundredths.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Clocks {
    used: f64,
    /// After the machine's start.
    started: f64,
}

impl Clocks {
    /// From `/proc/self/stat`.
    fn of(stat: &str) -> Option<Clocks> {
        const TICKS_PER_SECOND: f64 = 100.0;
        let stat = Stat::of(stat)?;
        let seconds = |field: usize| -> Option<f64> {
            Some(stat.field(field)?.parse::<f64>().ok()? / TICKS_PER_SECOND)
        };
        Some(Clocks { used: seconds(14)? + seconds(15)?, started: seconds(22)? })
    }

    fn started_at(self, uptime: &str) -> Option<f64> {
        let up: f64 = uptime.split_whitespace().next()?.parse().ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
        Some(now - up + self.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_counted_in_hundredths() {
        let stat = "42 (a) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 17 18 12345 20";
        assert_eq!(Clocks::of(stat), Some(Clocks { used: 2.0, started: 123.45 }));
        assert_eq!(Clocks::of("42 (a) S 1"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_all_of_them() {
        let process = Process::now();
        assert!(process.resident_bytes.is_some_and(|bytes| bytes > 100_000));
        assert!(process.open_files.is_some_and(|files| files > 2));
        assert!(process.threads.is_some_and(|threads| threads > 0));
        assert!(process.cpu_seconds.is_some());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - process.started_seconds.unwrap();
        assert!((-5.0..100_000.0).contains(&age), "{age}");
    }
}
