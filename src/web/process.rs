//! Metrics of this process, under the names that Prometheus' own libraries use. They are read from
//! `/proc`; missing values are left out.

use super::prometheus::{Family, Shape, Text};
use corona_access::PlainPeers;
use corona_process::descriptors::Budget;
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
/// What the limit on open file descriptors allows.
pub const ALLOWED: Family = Family {
    name: "process_allowed",
    shape: Shape::Gauge,
    help: "Connections, jobs and files that the process allows itself at a time, by use: as many as are configured, or fewer where process_max_fds allows no more.",
};
/// Peers without TLS.
pub const PLAIN_CONNECTIONS: Family = Family {
    name: "process_plain_connections_total",
    shape: Shape::Counter,
    help: "Connections of peers that do not speak TLS where corona.tls is allow or require, by outcome. /access/peers has their addresses.",
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

/// What the process allows itself, and what of its descriptors it uses, as JSON.
pub fn open_files() -> serde_json::Value {
    let own = Usage::own();
    let uses = Budget::of_process().into_iter().flat_map(|budget| &budget.uses).map(|(of, allowed)| {
        serde_json::json!({ "use": of.name, "allowed": allowed, "configured": of.wanted })
    });
    serde_json::json!({
        "used": own.open_files,
        "limit": own.open_files_limit,
        "uses": uses.collect::<Vec<_>>(),
    })
}

/// The same for a page: `120 of 1,024; running jobs 66 (configured: 5000)`.
pub fn open_files_text() -> Option<String> {
    let own = Usage::own();
    let (used, limit) = (own.open_files?, own.open_files_limit?);
    let uses = Budget::of_process().map(|budget| format!("; {}", budget.uses_text()));
    Some(format!("{used} of {limit}{}", uses.unwrap_or_default()))
}

/// Writes the numbers of this process. It reads files of the kernel.
pub fn process(text: &mut Text) {
    let own = Usage::own();
    text.family(RESIDENT).labelled_if_any(&[], own.resident_bytes);
    text.family(OPEN_FILES).labelled_if_any(&[], own.open_files);
    text.family(OPEN_FILES_LIMIT).labelled_if_any(&[], own.open_files_limit);
    let mut allowed = text.family(ALLOWED);
    for (of, count) in Budget::of_process().into_iter().flat_map(|budget| &budget.uses) {
        allowed.labelled(&[("use", of.name)], count);
    }
    let plain = PlainPeers::of_process().total();
    let mut connections = text.family(PLAIN_CONNECTIONS);
    connections.labelled(&[("outcome", "served")], plain.served);
    connections.labelled(&[("outcome", "refused")], plain.refused);
    text.family(THREADS).labelled_if_any(&[], own.threads);
    text.family(CPU).labelled_if_any(&[], own.cpu_seconds);
    text.family(STARTED).labelled_if_any(&[], own.started_seconds);
}
