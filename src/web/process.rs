//! Metrics of this process, under the names that Prometheus' own libraries use. They are read from
//! `/proc`; missing values are left out.

use super::prometheus::{Family, Shape, Text};
use corona_access::PlainPeers;
use corona_process::budget::{Budget, Resource};
use corona_process::procfs::Usage;

macro_rules! families {
    ($($(#[$doc:meta])* $constant:ident = $shape:ident $name:literal $help:literal;)*) => { $(
        $(#[$doc])*
        pub const $constant: Family = Family { name: $name, shape: Shape::$shape, help: $help };
    )* };
}

families! {
    /// Resident memory.
    RESIDENT = Gauge "process_resident_memory_bytes"
        "Resident memory of the process in bytes.";
    /// Open file descriptors.
    OPEN_FILES = Gauge "process_open_fds"
        "Open file descriptors of the process.";
    /// Limit on open file descriptors.
    OPEN_FILES_LIMIT = Gauge "process_max_fds"
        "Maximum of open file descriptors of the process.";
    /// What the machine allows.
    ALLOWED = Gauge "process_allowed"
        "Connections, jobs, files, threads and MiB that the process allows itself at a time, by use: as many as are configured, or fewer where process_max_fds, process_memory_limit_bytes or process_max_threads allow no more.";
    /// The part of the machine's or the control group's memory that the process allows itself.
    MEMORY_LIMIT = Gauge "process_memory_limit_bytes"
        "Memory that the process allows itself in bytes: half of the machine's, or 90 % of its control group's.";
    /// Threads that its control group allows.
    THREADS_LIMIT = Gauge "process_max_threads"
        "Threads that the control group of the process allowed at its start.";
    /// Peers without TLS.
    PLAIN_CONNECTIONS = Counter "process_plain_connections_total"
        "Connections of peers that do not speak TLS where corona.tls is allow or require, by outcome. /access/peers has their addresses.";
    /// Threads.
    THREADS = Gauge "process_threads"
        "Threads of the process.";
    /// Processor time.
    CPU = Counter "process_cpu_seconds_total"
        "CPU time used by the process in seconds.";
    /// Start time.
    STARTED = Gauge "process_start_time_seconds"
        "Start time of the process in seconds since the epoch.";
}

/// Writes the numbers of this process. It reads files of the kernel.
pub fn process(text: &mut Text) {
    let own = Usage::own();
    text.family(RESIDENT).labelled_if_any(&[], own.resident_bytes);
    text.family(OPEN_FILES).labelled_if_any(&[], own.open_files);
    text.family(OPEN_FILES_LIMIT).labelled_if_any(&[], own.open_files_limit);
    let mut allowed = text.family(ALLOWED);
    let budget = Budget::of_process();
    for share in budget.into_iter().flat_map(|budget| &budget.shares) {
        allowed.labelled(&[("use", share.of.name)], share.allowed);
    }
    let limit = |resource| budget.and_then(|budget| budget.limits.of(resource));
    text.family(MEMORY_LIMIT).labelled_if_any(&[], limit(Resource::Memory));
    text.family(THREADS_LIMIT).labelled_if_any(&[], limit(Resource::Threads));
    let plain = PlainPeers::of_process().total();
    let mut connections = text.family(PLAIN_CONNECTIONS);
    connections.labelled(&[("outcome", "served")], plain.served);
    connections.labelled(&[("outcome", "refused")], plain.refused);
    text.family(THREADS).labelled_if_any(&[], own.threads);
    text.family(CPU).labelled_if_any(&[], own.cpu_seconds);
    text.family(STARTED).labelled_if_any(&[], own.started_seconds);
}
