//! Metrics of this process, under the names that Prometheus' own libraries use. They are read from
//! `/proc`; missing values are left out.

use super::prometheus::{Family, Shape, Text};
use corona_process::procfs::Usage;

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
    let own = Usage::own();
    text.family(RESIDENT).labelled_if_any(&[], own.resident_bytes);
    text.family(OPEN_FILES).labelled_if_any(&[], own.open_files);
    text.family(OPEN_FILES_LIMIT).labelled_if_any(&[], own.open_files_limit);
    text.family(THREADS).labelled_if_any(&[], own.threads);
    text.family(CPU).labelled_if_any(&[], own.cpu_seconds);
    text.family(STARTED).labelled_if_any(&[], own.started_seconds);
}
