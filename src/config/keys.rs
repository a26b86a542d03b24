//! Every key of the property files: its name, type, default, unit, use and meaning, once.
//!
//! The typed read takes the defaults and bounds from here, and the tables of `docs/reference/configuration.md` are
//! made of it. Spec: cluster-manager/06 §2. It knows nothing of files and values.

use Kind::{Address, Boolean, Class, Int, List, Long, Partitioning, Path, Secret, Text};
use Use::{
    Accepted, Client, Files, FilesOwn, Job, JobService, JobServiceOwn, JobTracker, Own, Proxy,
    ProxyOwn, Tracker, TrackerOwn, Unsupported, Used,
};

use super::suggest::similar;

/// A key that a property file may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The name in the file.
    pub name: &'static str,
    /// The form of its value.
    pub kind: Kind,
    /// The value when it is not set; empty for none.
    pub default: &'static str,
    /// The unit of the value; empty for none.
    pub unit: &'static str,
    /// Its readers.
    pub usage: Use,
    /// Its purpose.
    pub meaning: &'static str,
}

impl Key {
    /// A whole number within the bounds of the key: of the text, else of the default; absent where
    /// neither is one. So the original reads the configuration of a job.
    pub fn number_of(&self, text: Option<&str>) -> Option<i64> {
        let (Kind::Int { least, most } | Kind::Long { least, most }) = self.kind else {
            return None;
        };
        let whole = |text: &str| super::typed::whole(text, least, most, self.unit).ok();
        text.and_then(whole).or_else(|| whole(self.default))
    }

    /// Why a text is no value of the key, and what would be one; none if it is a value.
    pub fn wrong(&self, text: &str) -> Option<String> {
        let wrong = super::typed::check(self.kind, text, self.unit).err()?;
        Some(format!("{}; expected {}", wrong.wrong, wrong.expected))
    }
}

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number of 32 bits in the original, within bounds.
    Int {
        /// The smallest legal value.
        least: i64,
        /// The largest legal value.
        most: i64,
    },
    /// A whole number of 64 bits in the original, within bounds.
    Long {
        /// The smallest legal value.
        least: i64,
        /// The largest legal value.
        most: i64,
    },
    /// `true` or `false`, in any case.
    Boolean,
    /// `host:port`
    Address,
    /// A path; a relative one starts at the working directory.
    Path,
    /// Any text.
    Text,
    /// The name of a Java class.
    Class,
    /// Items with a comma between.
    List,
    /// Slots by CPU count, as JSON.
    Partitioning,
    /// A text that is never shown.
    Secret,
}

impl Kind {
    /// The name of the type in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Int { .. } => "int",
            Long { .. } => "long",
            Boolean => "boolean",
            Address => "host:port",
            Path => "path",
            Text => "text",
            Class => "class",
            List => "list",
            Partitioning => "JSON",
            Secret => "secret",
        }
    }
}

/// The readers of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The cluster manager, as the original does.
    Used,
    /// Clients of file systems, as the original does.
    Files,
    /// Clients of file systems; the original does not know it.
    FilesOwn,
    /// The cluster manager; the original does not know it.
    Own,
    /// None: it controlled something that is not needed here. Accepted silently.
    Accepted,
    /// None, although its effect would be missed. Setting it gives a warning.
    Unsupported,
    /// Job trackers, task trackers and tools, which read the same files.
    Client,
    /// The task tracker, as the original does.
    Tracker,
    /// The task tracker; the original does not know it.
    TrackerOwn,
    /// The task tracker, from the `job.xml` of each job, under which its own files lie.
    Job,
    /// The job engine, from the `job.xml` of each job.
    JobTracker,
    /// The job tracker service, as the original's job tracker does.
    JobService,
    /// The job tracker service; the original does not know it.
    JobServiceOwn,
    /// The proxy job tracker, as the original does.
    Proxy,
    /// The proxy job tracker; the original does not know it.
    ProxyOwn,
}

impl Use {
    /// The word for it in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Used => "used",
            Own => "used, own",
            Accepted => "accepted, no effect",
            Unsupported => "not supported, warns",
            Client => "clients only",
            Tracker => "task tracker",
            TrackerOwn => "task tracker, own",
            Job => "task tracker, by job",
            Files => "files",
            FilesOwn => "files, own",
            JobTracker => "job tracker, by job",
            JobService => "job tracker",
            JobServiceOwn => "job tracker, own",
            Proxy => "proxy job tracker",
            ProxyOwn => "proxy job tracker, own",
        }
    }
}

const MAX_INT: i64 = i32::MAX as i64;

const fn int(least: i64) -> Kind {
    Int { least, most: MAX_INT }
}

const fn long(least: i64) -> Kind {
    Long { least, most: i64::MAX }
}

/// A span in milliseconds: at most a thousand years, so that sums of times stay times.
const fn span(least: i64) -> Kind {
    Long { least, most: 31_557_600_000_000 }
}

macro_rules! keys {
    ($($constant:ident = $name:literal, $kind:expr, $default:literal, $unit:literal, $usage:expr, $meaning:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $meaning)]
            pub const $constant: Key = Key {
                name: $name,
                kind: $kind,
                default: $default,
                unit: $unit,
                usage: $usage,
                meaning: $meaning,
            };
        )*

        /// All keys, in the order of the documentation.
        pub const ALL: &[Key] = &[$($constant),*];
    };
}

keys! {
    SERVER_ADDRESS = "cm.server.address", Address, "localhost:8888", "", Used,
        "Address at which clients reach the cluster manager. It listens on this port, on every interface if the key is set, and for the same machine only otherwise.";
    HTTP_ADDRESS = "cm.server.http.address", Address, "localhost:8889", "", Used,
        "Address of the web pages, and the name that they show. Port 0: any free port, which is the original's default.";
    SOCKET_TIMEOUT = "cm.server.sotimeout", int(0), "60000", "ms", Used,
        "Idle timeout of connections, and timeout for connecting to a session and for its reply. 0: no timeout.";
    PROXY_JOB_TRACKER_THRIFT = "corona.proxy.job.tracker.thriftaddr", Address, "localhost:50036", "", Used,
        "The proxy job tracker's Thrift service, which is notified of safe mode. If the key is unset, the start does not report that nothing listens at the default address.";
    PROXY_JOB_TRACKER_RPC = "corona.proxy.job.tracker.rpcaddr", Address, "localhost:50035", "", JobService,
        "The proxy job tracker's Hadoop RPC, to which job trackers report the statistics of jobs that have ended. Unset: they are not reported.";
    PARTITIONING = "cm.cpu.to.resource.partitioning", Partitioning,
        "{\"1\":{\"MAP\":1,\"REDUCE\":1,\"JOBTRACKER\":1}}", "", Used,
        "Slots of a node by its CPU count. The default applies only to a start without any files: with a configuration directory the key must be set.";
    HOSTS = "cm.hosts", Path, "", "", Used,
        "File listing the hosts that may heartbeat; unset: every host.";
    HOSTS_EXCLUDE = "cm.hosts.exclude", Path, "", "", Used,
        "File listing the hosts that may not heartbeat; it overrides cm.hosts.";
    NODE_EXPIRY = "cm.node.expiryinterval", int(1), "600000", "ms", Used,
        "A node without a heartbeat for longer than this expires.";
    RESERVED_MEMORY = "cm.node.reserved.memory.mb", int(0), "0", "MB", Used,
        "Free memory that a node must keep; below it, its slots are not granted.";
    RESERVED_DISK = "cm.node.reserved.disk.gb", int(0), "0", "GB", Used,
        "Free disk space that a node must keep; below it, its slots are not granted.";
    MAX_FAILED_CONNECTIONS = "cm.node.max.failed.connections", int(0), "20", "sessions", Used,
        "A node is blacklisted when more sessions than this could not connect to it.";
    MAX_FAILED_CONNECTIONS_SESSION = "cm.node.max.failed.connections.session", int(0), "1", "connections", Used,
        "A session counts for that when it failed to connect more often than this.";
    MAX_FAILURES = "cm.node.max.failures", int(0), "40", "sessions", Used,
        "A node is blacklisted when more sessions than this had failures on it.";
    MAX_FAILURES_SESSION = "cm.node.max.failures.session", int(0), "5", "failures", Used,
        "A session counts for that when it had more failures than this.";
    SESSION_EXPIRY = "cm.session.expiryinterval", int(0), "0", "ms", Used,
        "A session without a heartbeat for longer than this expires. 0: computed from the notifier's retries; 3125000 with their defaults.";
    RETIRED_SESSIONS = "cm.sessions.num.retired", int(0), "1000", "sessions", Used,
        "Number of ended sessions that are kept.";
    NOTIFIERS = "cm.notifier.numnotifiers", int(1), "17", "threads", Accepted,
        "Threads of the original's notifier. Here no session waits for another.";
    NOTIFIER_POLL = "cm.notifier.pollinterval", int(1), "1000", "ms", Used,
        "Pause between attempts to notify a session that was never reached.";
    RETRY_START = "cm.notifier.retry.interval.start", int(1), "5000", "ms", Used,
        "First pause after a failed notification.";
    RETRY_FACTOR = "cm.notifier.retry.interval.factor", int(1), "4", "", Used,
        "Factor by which each pause exceeds the previous one.";
    RETRY_MAX = "cm.notifier.retry.max", int(0), "5", "retries", Used,
        "The session is ended when this many retries and one more have failed.";
    HEARTBEAT_DELAY_MAX = "cm.heartbeat.delay.max", span(0), "600000", "ms", Used,
        "How late a session's view of its grants may be before an error is logged.";
    STATE_FILE = "cm.state", Path, "cm.state", "", Used,
        "The state file of safe mode.";
    COMPRESS_STATE = "cm.compress.state", Boolean, "false", "", Used,
        "Whether the state file is compressed with gzip.";
    SESSIONS_LOG_DIR = "corona.sessions.log.dir", Path, "/tmp/history", "", Used,
        "Root of the session log paths that sessions receive.";
    SESSIONS_PER_LOG_DIR = "corona.history.max.per.dir", int(1), "1000", "sessions", Used,
        "Sessions that share a log directory.";
    HISTORY_ROLL = "corona.history.roll.period", span(0), "3600000", "ms", Accepted,
        "Not read by the original either.";
    GENERAL_FILE = "cm.config.file", Path, "corona.xml", "", Used,
        "The general scheduling file: a path, else a name in the configuration directory.";
    POOLS_FILE = "cm.pools.config.file", Path, "corona.xml", "", Used,
        "The pools file: a path, else a name in the configuration directory.";
    RELOAD_PERIOD = "cm.config.reload.period.ms", span(1), "60000", "ms", Used,
        "How often both files are checked for changes.";
    POOLS_RELOAD_PERIOD = "cm.pools.reload.period.ms", span(1), "300000", "ms", Accepted,
        "How often the pools document generator runs in the original.";
    POOLS_GENERATOR = "cm.pools.config.document.generator", Class, "", "", Unsupported,
        "A Java class that writes the pools file. Run a program that writes it instead.";
    CONFIGURED_POOLS_ONLY = "cm.configured.pools.only", Boolean, "false", "", Used,
        "Whether only pools of the pools file may be used.";
    RESTART_BATCH = "corona.node.restart.batch", int(1), "1000", "nodes", Used,
        "Nodes that restart together if the administrator gives no number.";
    RESTART_INTERVAL = "corona.node.restart.interval", span(1), "1800000", "ms", Used,
        "Pause between restart batches.";
    TOPOLOGY = "topology.node.switch.mapping.impl", Class, "org.apache.hadoop.net.ScriptBasedMapping", "", Used,
        "How hosts are assigned to racks: one of the four classes below.";
    TOPOLOGY_SCRIPT = "topology.script.file.name", Path, "", "", Used,
        "The script of ScriptBasedMapping; none: every host is in /default-rack.";
    TOPOLOGY_SCRIPT_ARGUMENTS = "topology.script.number.args", int(1), "100", "hosts", Used,
        "Maximum number of hosts for one run of the script.";
    TOPOLOGY_HEADER = "topology.node.rackid.header", Text, "/", "", Used,
        "Prefix that the address truncation mappings put before the address. Starts with a slash.";
    TOPOLOGY_STATIC = "hadoop.configured.node.mapping", List, "", "", Used,
        "The table of StaticMapping: host=/rack, separated by commas. The original never reads it.";
    TEMPORARY_DIR = "hadoop.tmp.dir", Path, "/tmp/hadoop-${user.name}", "", Used,
        "Read only if another value names it as ${hadoop.tmp.dir}.";
    HTTP_MAX_THREADS = "hadoop.http.max.threads", int(-1), "-1", "threads", Accepted,
        "Threads of the original's web server.";
    HTTP_STOP_TIME = "hadoop.http.threadpool.max.stoptime", int(0), "1000", "ms", Accepted,
        "How long the original's web server waits for its threads.";
    HTTP_FILTERS = "hadoop.http.filter.initializers", List, "", "", Unsupported,
        "Java servlet filters. If one of them restricts access to the pages, use a proxy instead.";
    HTTP_BLOCKING = "hadoop.http.bio", Boolean, "false", "", Accepted,
        "Whether the original's web server uses blocking sockets.";
    HTTP_HEADER_BUFFER = "hadoop.http.header.buffer.size", int(0), "4096", "bytes", Accepted,
        "Header buffer of the original's web server.";
    HTTP_IDLE = "dfs.http.timeout", int(0), "200000", "ms", Accepted,
        "Idle time of the original's web connections.";

    WIRE_MAX_FRAME = "corona.cm.wire.max.frame.bytes", int(1024), "67108864", "bytes", Own,
        "Maximum size of a message.";
    WIRE_MAX_DEPTH = "corona.cm.wire.max.depth", Int { least: 8, most: 256 }, "64", "levels", Own,
        "Maximum nesting of structures in a message.";
    WIRE_MAX_CONNECTIONS = "corona.cm.wire.max.connections", int(1), "100000", "connections", Own,
        "Maximum number of open connections.";
    WIRE_MAX_INFLIGHT = "corona.cm.wire.max.inflight.bytes", long(1024), "134217728", "bytes", Own,
        "Maximum of bytes of messages of one connection that wait for their reply.";
    WIRE_MAX_TOTAL_INFLIGHT = "corona.cm.wire.max.total.inflight.bytes", long(1024), "1073741824", "bytes", Own,
        "Maximum of these bytes over all connections, replies to notifications included. Above it, the connections that hold most of them are closed.";
    WIRE_FRAME_TIMEOUT = "corona.cm.wire.frame.timeout.ms", int(1), "60000", "ms", Own,
        "Maximum time from the first to the last byte of a message.";
    NOTIFIER_MAX_QUEUE = "corona.cm.notifier.max.queue", int(1), "100000", "calls", Own,
        "Maximum number of pending notifications of one session.";
    NOTIFIER_MAX_REPLY = "corona.cm.notifier.max.reply.bytes", int(1024), "65536", "bytes", Own,
        "Maximum size of a session's reply to a notification. The contract's replies have some thirty bytes.";
    MAX_NAME_BYTES = "corona.cm.max.name.bytes", int(64), "4096", "bytes", Own,
        "Maximum length of the name of a session, user, group, pool or administrator in a call.";
    MAX_URL_BYTES = "corona.cm.max.url.bytes", int(64), "4096", "bytes", Own,
        "Maximum length of the URL of a session.";
    MAX_HOST_BYTES = "corona.cm.max.host.bytes", int(64), "1024", "bytes", Own,
        "Maximum length of a host name.";
    MAX_ID_BYTES = "corona.cm.max.id.bytes", int(64), "1024", "bytes", Own,
        "Maximum length of the id of a session or node, and of the text in which a node reports its address for a type.";
    MAX_HOSTS_PER_REQUEST = "corona.cm.max.hosts.per.request", int(1), "10000", "hosts", Own,
        "Maximum number of preferred hosts of a request, and of excluded hosts.";
    MAX_LIST_ENTRIES = "corona.cm.max.list.entries", int(16), "1000", "entries", Own,
        "Maximum number of entries in a list of groups, types or usage numbers in a call.";
    NAMES_MAX_LOOKUPS = "corona.cm.names.max.lookups", Int { least: 1, most: 4096 }, "64", "look-ups", Own,
        "Maximum number of concurrent look-ups of the host names of sessions, each on a thread. IP addresses need no look-up.";
    NAMES_PER_PEER = "corona.cm.names.max.lookups.per.peer", Int { least: 1, most: 4096 }, "8", "look-ups", Own,
        "Maximum number of these look-ups for the sessions of one peer. In IPv6 a /64 network is one peer.";
    NAMES_TIMEOUT = "corona.cm.names.timeout.ms", int(1), "10000", "ms", Own,
        "Timeout of a look-up; after it the notification counts as failed.";
    NAMES_KEEP = "corona.cm.names.cache.ms", int(0), "30000", "ms", Own,
        "How long addresses that were found are reused. 0: not at all.";
    RACKS_MAX_LOOKUPS = "corona.cm.racks.max.lookups", Int { least: 1, most: 4096 }, "16", "look-ups", Own,
        "Maximum number of concurrent look-ups of names and runs of the topology script, separately for heartbeats and for requests.";
    RACKS_PER_PEER = "corona.cm.racks.max.lookups.per.peer", Int { least: 1, most: 4096 }, "4", "look-ups", Own,
        "Maximum number of these for the calls of one peer.";
    RACKS_TIMEOUT = "corona.cm.racks.timeout.ms", int(1), "60000", "ms", Own,
        "Maximum time to find the racks of all hosts of a call; after it the call fails.";
    RACKS_MAX_NAMES = "corona.cm.racks.max.names.per.call", int(1), "10000", "hosts", Own,
        "Maximum number of hosts of one call whose racks are not known yet. A call with more fails; racks that were found are kept.";
    LOOPBACK_ONLY = "corona.loopback.only", Boolean, "false", "", Own,
        "Whether the Thrift ports of the cluster manager and of task trackers are open to programs of the same machine only.";
    JOURNAL_DIR = "corona.cm.journal.dir", Path, "", "", Own,
        "Directory of the journal, from which the next start resumes. Unset: the path of cm.state with .journal behind it. none: no journal.";
    JOURNAL_SYNC = "corona.cm.journal.sync", Text, "write", "", Own,
        "When a reply or notification may leave: write, when its record is written; always, when it is on disk.";
    JOURNAL_SYNC_INTERVAL = "corona.cm.journal.sync.interval.ms", span(1), "100", "ms", Own,
        "With write: how often written records are synced to the disk. A power cut loses at most this span.";
    JOURNAL_SEGMENT_BYTES = "corona.cm.journal.segment.bytes", Long { least: 65_536, most: 1 << 30 }, "16777216", "bytes", Own,
        "Size of a file of the journal after which the next one is started.";
    JOURNAL_IMAGE_BYTES = "corona.cm.journal.image.bytes", Long { least: 65_536, most: 1 << 40 }, "33554432", "bytes", Own,
        "An image of the state is made when the records behind the last one have this size. It bounds the time of a start and the size of the journal.";
    HA_ZOOKEEPER = "corona.cm.ha.zookeeper", List, "", "", Own,
        "ZooKeeper servers, as host:port with commas between, through which several cluster managers choose a leader. Unset: there is one cluster manager.";
    HA_PATH = "corona.cm.ha.path", Text, "/corona/cluster-manager", "", Own,
        "Node of ZooKeeper under which the instances of one cluster meet.";
    HA_SESSION_TIMEOUT = "corona.cm.ha.session.timeout.ms", Long { least: 1000, most: 600_000 }, "6000", "ms", Own,
        "Timeout of the ZooKeeper session. A standby takes over when the leader has been silent for it; a leader that hears nothing from ZooKeeper stops after two thirds of it.";
    HA_ADDRESS = "corona.cm.ha.replication.address", Text, "", "", Own,
        "Address of this instance, as host:port, at which the others connect: to copy the journal, and to relay connections. It is the name of the instance. Needed with corona.cm.ha.zookeeper.";
    HA_INSTANCES = "corona.cm.ha.instances", List, "", "", Own,
        "Addresses or networks of the instances. Only they may copy the journal, and only they are believed which peer they relay. Needed with corona.cm.ha.zookeeper.";
    HA_ACK = "corona.cm.ha.ack", Text, "none", "", Own,
        "When a reply or notification may leave: none, when the leader has its record; standby, when each standby that may take over has it as well.";
    HA_ACK_TIMEOUT = "corona.cm.ha.ack.timeout.ms", Long { least: 10, most: 600_000 }, "2000", "ms", Own,
        "A standby that does not store a record for longer is disconnected, and may not take over until it has copied the journal again.";
    HA_HOLD = "corona.cm.ha.hold.ms", Long { least: 0, most: 600_000 }, "15000", "ms", Own,
        "How long a standby or gateway holds a new connection while there is no leader, before it closes the connection.";
    HA_MAX_LAG = "corona.cm.ha.max.lag.bytes", Long { least: 1 << 20, most: 1 << 40 }, "268435456", "bytes", Own,
        "Bytes of records that may wait to be sent to a standby; with more it is disconnected.";
    HA_GATEWAY_ADDRESS = "corona.gateway.address", Address, "localhost:8888", "", Client,
        "Address at which corona gateway listens for the programs of its machine.";
    MAX_SESSIONS = "corona.cm.max.sessions", int(1), "100000", "sessions", Own,
        "Maximum number of running sessions, and of sessions that are killed in one call.";
    MAX_REQUESTS = "corona.cm.max.requests.per.session", int(1), "5000000", "requests", Own,
        "Maximum number of requests of one session, granted ones included, and of ids that it releases in one call.";
    MAX_NODES = "corona.cm.max.nodes", int(1), "200000", "nodes", Own,
        "Maximum number of nodes, and of nodes that a session reports on in one call.";
    MAX_POOLS = "corona.cm.max.pools", int(1), "10000", "pools", Own,
        "Maximum number of pools created by sessions, not counting configured ones.";
    NODE_LATE = "corona.cm.node.late.heartbeats", int(0), "4", "heartbeats", Own,
        "A node is shown as late if its last heartbeat is older than this many times corona.clustermanager.heartbeat.interval. 0: never.";
    NODE_LATE_SKIP = "corona.cm.node.late.skip", Boolean, "false", "", Own,
        "Whether no slots are granted on late nodes until they heartbeat again.";
    RESOURCES = "corona.cm.resources", Text, "slots", "", Own,
        "What is counted beside the slots of a type: slots for nothing, or some of cpus,memory,disk,network.";
    RESERVATION_AFTER = "corona.cm.reservation.after.ms", long(0), "0", "ms", Own,
        "Where resources are counted: how long a request that an empty node could serve waits before a node is reserved for it; 0: none is.";
    RESERVATION_LIMIT = "corona.cm.reservation.limit.ms", long(1), "3600000", "ms", Own,
        "Where resources are counted: how long a node is reserved for a request at most; after that it serves everybody, and another node may be reserved.";
    OVERCOMMIT_CPUS = "corona.cm.overcommit.cpus", int(1), "100", "%", Own,
        "How much of the CPUs that a node reports is given out.";
    OVERCOMMIT_MEMORY = "corona.cm.overcommit.memory", int(1), "100", "%", Own,
        "How much of the memory that a node reports is given out.";
    OVERCOMMIT_DISK = "corona.cm.overcommit.disk", int(1), "100", "%", Own,
        "How much of the disk space that a node reports is given out.";
    OVERCOMMIT_NETWORK = "corona.cm.overcommit.network", int(1), "100", "%", Own,
        "How much of the network that a node reports is given out.";
    REQUEST_MAP_CPUS = "corona.cm.request.default.MAP.cpus", int(1), "1", "CPUs", Own,
        "The CPUs that a request for a map takes if it does not say how much, or says what the original's job trackers always say.";
    REQUEST_MAP_MEMORY = "corona.cm.request.default.MAP.memory", int(1), "1024", "MB", Own,
        "The memory that a request for a map takes if it does not say how much, or says what the original's job trackers always say.";
    REQUEST_MAP_DISK = "corona.cm.request.default.MAP.disk", int(1), "10", "GB", Own,
        "The disk space that a request for a map takes if it does not say how much, or says what the original's job trackers always say.";
    REQUEST_MAP_NETWORK = "corona.cm.request.default.MAP.network", int(1), "10", "MB/s", Own,
        "The network that a request for a map takes if it does not say how much, or says what the original's job trackers always say.";
    REQUEST_REDUCE_CPUS = "corona.cm.request.default.REDUCE.cpus", int(1), "1", "CPUs", Own,
        "The CPUs that a request for a reduce takes if it does not say how much, or says what the original's job trackers always say.";
    REQUEST_REDUCE_MEMORY = "corona.cm.request.default.REDUCE.memory", int(1), "1024", "MB", Own,
        "The memory that a request for a reduce takes if it does not say how much, or says what the original's job trackers always say.";
    REQUEST_REDUCE_DISK = "corona.cm.request.default.REDUCE.disk", int(1), "10", "GB", Own,
        "The disk space that a request for a reduce takes if it does not say how much, or says what the original's job trackers always say.";
    REQUEST_REDUCE_NETWORK = "corona.cm.request.default.REDUCE.network", int(1), "10", "MB/s", Own,
        "The network that a request for a reduce takes if it does not say how much, or says what the original's job trackers always say.";
    REQUEST_JOBTRACKER_CPUS = "corona.cm.request.default.JOBTRACKER.cpus", int(1), "1", "CPUs", Own,
        "The CPUs that a request for a job tracker takes if it does not say how much, or says what the original's job trackers always say.";
    REQUEST_JOBTRACKER_MEMORY = "corona.cm.request.default.JOBTRACKER.memory", int(1), "1024", "MB", Own,
        "The memory that a request for a job tracker takes if it does not say how much, or says what the original's job trackers always say.";
    REQUEST_JOBTRACKER_DISK = "corona.cm.request.default.JOBTRACKER.disk", int(1), "10", "GB", Own,
        "The disk space that a request for a job tracker takes if it does not say how much, or says what the original's job trackers always say.";
    REQUEST_JOBTRACKER_NETWORK = "corona.cm.request.default.JOBTRACKER.network", int(1), "10", "MB/s", Own,
        "The network that a request for a job tracker takes if it does not say how much, or says what the original's job trackers always say.";
    ADMIN_NETWORKS = "corona.cm.admin.networks", List, "", "", Own,
        "Networks that may kill sessions, restart or refresh nodes, set safe mode and persist the state; unset: all.";
    TLS = "corona.tls", Text, "off", "", Own,
        "Whether every daemon that reads it speaks TLS on its ports: off, allow (beside plain peers) or require.";
    TLS_PLAIN_NETWORKS = "corona.tls.plain.networks", List, "", "", Own,
        "Networks of peers that are served without TLS although it is required, such as Java programs; unset: none.";
    TLS_DIRECTORY = "corona.tls.directory", Path, "", "", Own,
        "Directory of the certificate and its key, which TLS needs.";
    TLS_AUTHORITY = "corona.tls.authority.directory", Path, "", "", Own,
        "Directory of the cluster's certificate authority, in a daemon that issues certificates; unset: it issues none.";
    WEB_NETWORKS = "corona.cm.web.networks", List, "", "", Own,
        "Networks that may see the pages; unset: all.";
    WEB_KILL_TOKEN = "corona.cm.web.kill.token", Secret, "", "", Own,
        "The token that an operator must enter to end a session or to lift a blacklisting, at least 16 characters; unset: neither is possible over HTTP.";
    WEB_SAMPLE_PERIOD = "corona.cm.web.sample.period.ms", int(10), "10000", "ms", Own,
        "Time between samples of the utilisation plot, which shows 360 of them.";
    WEB_MAX_CONNECTIONS = "corona.cm.web.max.connections", int(1), "256", "connections", Own,
        "Maximum number of open HTTP connections.";
    WEB_MAX_PER_PEER = "corona.cm.web.max.connections.per.peer", int(1), "64", "connections", Own,
        "Maximum number of open HTTP connections of one peer. At the limit, the connection that has been idle longest is closed.";
    WEB_PROBES = "corona.cm.web.probe.connections", int(1), "8", "connections", Own,
        "Further connections that may request only /healthz, /readyz and /metrics.";
    WEB_HOSTS = "corona.cm.web.hosts", List, "", "", Own,
        "Further host names under which pages are served, besides addresses, localhost and the machine's names; *: every name.";
    WEB_MAX_SUBSCRIBERS = "corona.cm.web.max.subscribers", int(0), "64", "connections", Own,
        "Maximum number of event streams among these connections.";
    SESSIONS_SAME_HOST = "corona.cm.sessions.same.host", Boolean, "false", "", Own,
        "Whether notifications of a session are sent only to the host that it registered from; a session that names another host is refused.";

    CLIENT_DRIVER_TIMEOUT = "corona.sessiondriver.cm.client.timeout", int(0), "300000", "ms", Client,
        "Timeout of a session driver's connection to the cluster manager.";
    CLIENT_DRIVER_QUEUE = "corona.sessiondriver.max.incoming.queue.size", int(1), "1000", "calls", Client,
        "Maximum number of notifications that wait in a session driver.";
    CLIENT_POOL = "mapred.fairscheduler.pool", Text, "", "", Client,
        "The pool of a job: group.pool.";
    CLIENT_POOL_PROPERTY = "mapred.fairscheduler.poolnameproperty", Text, "user.name", "", Client,
        "The key whose value is the pool if none is set.";
    CLIENT_PROXY = "mapred.job.tracker.corona.proxyaddr", Address, "", "", Client,
        "The proxy job tracker's web address, to which the pages of the other services link. The proxy job tracker itself listens at 0.0.0.0 and any free port if it is unset.";

    TT_HEARTBEAT = "corona.clustermanager.heartbeat.interval", int(1), "3000", "ms", Tracker,
        "Time between the heartbeats of a task tracker. The cluster manager uses it to find late nodes.";
    TT_CALLBACK_TIMEOUT = "corona.task.tracker.server.clienttimeout", int(0), "30000", "ms", Tracker,
        "Idle timeout of connections to a task tracker's Thrift service. 0: no timeout.";
    TT_CPUS = "mapred.coronatasktracker.num.cpus", Int { least: 1, most: 32767 }, "", "CPUs", Tracker,
        "CPUs that a task tracker reports; unset: counted.";
    TT_SLOT_MULTIPLIER = "corona.slot.multiplier", int(1), "10", "", Tracker,
        "Maximum number of concurrent tasks, as a multiple of the slot count.";
    TT_HOST = "slave.host.name", Text, "", "", Tracker,
        "The name of this machine in the cluster; unset: its host name.";
    TT_HTTP_ADDRESS = "mapred.task.tracker.http.address", Address, "0.0.0.0:50060", "", Tracker,
        "Address of map output, task logs and the status page. Port 0: any free port.";
    TT_HTTP_THREADS = "tasktracker.http.threads", Int { least: 1, most: 1000 }, "40", "threads", Tracker,
        "Threads that read disks and render pages for HTTP clients. A client that does not read holds no thread.";
    TT_REPORT_ADDRESS = "mapred.task.tracker.report.address", Address, "127.0.0.1:0", "", Tracker,
        "Address that tasks report to. Port 0: any free port.";
    TT_OUT_OF_BAND = "mapreduce.tasktracker.outofband.heartbeat", Boolean, "false", "", Tracker,
        "Whether the end of a task is reported to the job tracker at once, and not with the next heartbeat.";
    TT_JOB_TRACKER_TIMEOUT = "corona.jobtracker.connect.timeout.msec", span(0), "60000", "ms", Tracker,
        "How long a task tracker tries to reach a job tracker for the first time.";
    TT_BUILD_CHECK = "mapreduce.tasktracker.build.version.check", Boolean, "true", "", Tracker,
        "Whether job trackers must have the build corona.tt.build.version, if that is set.";
    TT_LOCAL_DIRS = "mapred.local.dir", List, "${hadoop.tmp.dir}/mapred/local", "", Tracker,
        "Directories for the files of tasks, preferably one on each disk. Files of an earlier run in their taskTracker are deleted at the start.";
    TT_MIN_SPACE_START = "mapred.local.dir.minspacestart", long(0), "0", "bytes", Tracker,
        "A new task is accepted only if one of these directories has more free space than this.";
    TT_MIN_SPACE_KILL = "mapred.local.dir.minspacekill", long(0), "0", "bytes", Tracker,
        "Tasks are killed if no directory has more free space than this. 0: never.";
    TT_RESERVED_DISK = "corona.tt.reserved.disk.bytes", long(0), "1073741824", "bytes", TrackerOwn,
        "Free space that the node keeps in its local directories and for logs, at most a twentieth of each file system. Without it the node takes no new tasks.";
    TT_SYSTEM_DIR = "mapred.system.dir", Text, "${hadoop.tmp.dir}/mapred/system", "", Tracker,
        "Names the file system from which the files of jobs are fetched.";
    TT_DEFAULT_FS = "fs.default.name", Text, "file:///", "", Tracker,
        "The file system of paths without one.";
    TT_LOG_DIR = "hadoop.log.dir", Path, "${hadoop.tmp.dir}/logs", "", Tracker,
        "Directory whose userlogs has the logs of tasks. A property here; the original takes it from the command line.";
    TT_TASK_LOG_DIR = "mapred.tasktracker.log.dir", Path, "", "", Tracker,
        "If set, the reported free space is at most that of this directory.";
    TT_USERLOG_RETAIN = "mapred.userlog.retain.hours", int(0), "24", "hours", Tracker,
        "Logs of tasks are kept this long.";
    TT_USERLOG_CLEANUP = "mapred.userlog.cleanup.interval", span(1), "300000", "ms", Tracker,
        "Time between checks for old logs.";
    TT_USERLOG_FILES = "mapred.userlog.files.limit", int(2), "20000", "attempts", Tracker,
        "When the logs of more attempts than this exist, the older half of them is deleted.";
    TT_SIGKILL_DELAY = "mapred.tasktracker.tasks.sleeptime.before.sigkill", span(0), "5000", "ms", Tracker,
        "Time between SIGTERM and SIGKILL when a task is ended.";
    TT_CACHE_SIZE = "local.cache.size", long(0), "10737418240", "bytes", Tracker,
        "When the distributed cache in a local directory is larger than this, unused files are deleted.";
    TT_CACHE_ENTRIES = "local.cache.numbersubdir", int(1), "10000", "files", Tracker,
        "When it has more files than this, unused files are deleted.";
    TT_INDEX_CACHE = "mapred.tasktracker.indexcache.mb", Int { least: 1, most: 65536 }, "10", "MiB", Tracker,
        "Memory for the indexes of map output.";
    TT_RESERVED_MEMORY = "mapred.tasktracker.reserved.physicalmemory.mb", int(0), "0", "MiB", Tracker,
        "Memory that tasks must leave free; the largest task is killed otherwise. 0: not checked.";
    TT_MEMORY_INTERVAL = "mapred.tasktracker.taskmemorymanager.monitoring-interval", span(1), "5000", "ms", Tracker,
        "Time between checks of the memory of tasks.";
    TT_CGROUP_MEMORY = "mapred.tasktracker.cgroup.mem", Boolean, "false", "", Tracker,
        "Whether each task is limited to the memory of its job (`mapred.job.map.memory.mb`), by cgroups of version 2 or, without them, by checks.";
    TT_CGROUP_CPU = "mapred.tasktracker.cgroup.cpu", Boolean, "false", "", Tracker,
        "Whether the kernel divides the CPUs among tasks by those that their jobs name (`corona.job.map.cpus`) or else by their slots, with cgroups of version 2.";
    TT_HEALTH_SCRIPT = "mapred.healthChecker.script.path", Path, "", "", Tracker,
        "A program that reports whether the node can run tasks: it cannot if a line begins with `ERROR`.";
    TT_HEALTH_ARGS = "mapred.healthChecker.script.args", List, "", "", Tracker,
        "Arguments of the health script, separated by commas.";
    TT_HEALTH_INTERVAL = "mapred.healthChecker.interval", span(1), "600000", "ms", Tracker,
        "Time between runs of the health script.";
    TT_HEALTH_TIMEOUT = "mapred.healthChecker.script.timeout", span(1), "1200000", "ms", Tracker,
        "Time for one run of the health script; a node whose script does not end in time is unhealthy.";
    TT_MEMORY = "corona.tt.memory.mb", int(0), "0", "MiB", TrackerOwn,
        "Memory that a task tracker reports at most; 0: all that the machine has and its control groups allow.";
    TT_CGROUP_ROOT = "corona.tt.cgroup.root", Path, "", "", TrackerOwn,
        "The directory of cgroups of version 2 below which tasks get their groups; unset: the group of the task tracker.";
    TT_CGROUP_CPU_PERCENT = "corona.tt.cgroup.cpu.percent", int(0), "0", "%", TrackerOwn,
        "With `mapred.tasktracker.cgroup.cpu`, the most that a task uses of one CPU, for each CPU that its job names or else each of its slots; 0: no limit.";
    TT_HADOOP_COMMAND = "corona.tt.hadoop.command", Path, "hadoop", "", TrackerOwn,
        "The command of a Hadoop installation. It copies files of jobs that are neither on file: nor on an HDFS that this program reads itself, and prints its class path.";
    TT_JAVA_HOME = "corona.tt.java.home", Path, "", "", TrackerOwn,
        "Directory with bin/java; unset: $JAVA_HOME, else the java in $PATH.";
    TT_CHILD_CLASS_PATH = "corona.tt.child.class.path", Text, "", "", TrackerOwn,
        "Class path of tasks, without the job's own; unset: $MAPREDUCE_TASK_SYSTEM_CLASSPATH, else that of the Hadoop installation.";
    TT_LIBRARY_PATH = "corona.tt.library.path", Text, "", "", TrackerOwn,
        "Native libraries for tasks: directories separated by colons.";
    TT_BUILD_VERSION = "corona.tt.build.version", Text, "", "", TrackerOwn,
        "The build of the Hadoop installation, as its job trackers report it: version from revision by user on date; unset: job trackers of any build are accepted.";
    TT_FETCH_TIMEOUT = "corona.tt.fetch.timeout.ms", span(1), "600000", "ms", TrackerOwn,
        "Timeout for copying one file of a job.";
    TT_FETCH_MAX = "corona.tt.fetch.max.bytes", long(1), "17179869184", "bytes", TrackerOwn,
        "Maximum size of a file of a job.";
    TT_UNPACK_MAX = "corona.tt.unpack.max.bytes", long(1), "34359738368", "bytes", TrackerOwn,
        "Maximum unpacked size of an archive.";
    TT_UNPACK_ENTRIES = "corona.tt.unpack.max.entries", int(1), "1000000", "files", TrackerOwn,
        "Maximum number of files and directories in an archive.";
    TT_TASK_LOG_MAX = "corona.tt.task.log.max.mb", int(0), "1024", "MiB", TrackerOwn,
        "When stdout or stderr of a running task is larger than this, its older half is deleted. 0: never.";
    TT_HTTP_CONNECTIONS = "corona.tt.http.max.connections", int(1), "1024", "connections", TrackerOwn,
        "Maximum number of open connections for map output, logs and pages.";
    TT_HTTP_PER_PEER = "corona.tt.http.max.connections.per.peer", int(1), "256", "connections", TrackerOwn,
        "Maximum number of these connections for one peer. In IPv6 a /64 network is one peer.";
    TT_HTTP_WRITE_TIMEOUT = "corona.tt.http.write.timeout.ms", span(1), "180000", "ms", TrackerOwn,
        "A connection for map output, logs or pages is closed when its peer reads nothing for this long.";
    TT_HTTP_HOSTS = "corona.tt.http.hosts", List, "", "", TrackerOwn,
        "Further host names under which map output, logs and pages are served, besides addresses, localhost, the machine's names and slave.host.name; *: every name.";

    TT_RPC_CONNECTIONS = "corona.tt.rpc.max.connections", int(1), "16384", "connections", TrackerOwn,
        "Connections of job trackers, and of tasks, at a time, or fewer if the limit of open files allows no more.";
    TT_RPC_TOTAL = "corona.tt.rpc.max.total.inflight.bytes", long(1024), "1073741824", "bytes", TrackerOwn,
        "Maximum of bytes of calls of job trackers, or of tasks, that wait for their reply. Above it, the connections that hold most of them are closed.";
    TT_HANDOVER_BYTES = "corona.tt.handover.max.bytes", long(1024), "268435456", "bytes", TrackerOwn,
        "Maximum of what a restart in place hands over about jobs and attempts. Such a restart is refused while there is more.";
    TT_NATIVE_TASKS = "corona.tt.native.tasks", Text, "none", "", TrackerOwn,
        "Which jobs run without Java: `none`; `jobs`: those that set `corona.task.native`; `streaming`: also streaming jobs that native tasks can run.";
    TT_ACTION_PORT = "corona.tt.action.port", Int { least: 0, most: 65_535 }, "0", "", TrackerOwn,
        "Port for the orders of job trackers. 0: any free one.";
    TT_CALLBACK_PORT = "corona.tt.callback.port", Int { least: 0, most: 65_535 }, "0", "", TrackerOwn,
        "Port for the calls of the cluster manager. 0: any free one.";
    TT_JVM_IDLE = "corona.tt.jvm.idle.ms", span(0), "60000", "ms", TrackerOwn,
        "How long the process of a job that allows several tasks in one (`mapred.job.reuse.jvm.num.tasks`) waits for the next task.";
    TT_DEBUG_TIMEOUT = "corona.tt.debug.script.timeout.ms", span(1), "300000", "ms", TrackerOwn,
        "Time for a job's debug script, which runs after a failure of a task.";
    TT_CLASS_ARCHIVE = "corona.tt.class.archive", Boolean, "true", "", TrackerOwn,
        "Whether tasks of Java start with an archive of the classes of the install, which is made once (Java 11 or later).";
    TT_CLASS_ARCHIVE_TIMEOUT = "corona.tt.class.archive.timeout.ms", span(1), "120000", "ms", TrackerOwn,
        "Time for each of the two runs of Java that make the archive of classes.";
    TT_SHORT_TASK = "corona.tt.java.short.task.ms", span(0), "2000", "ms", TrackerOwn,
        "When three tasks of a job and type have used no more processor time than this, and none has used more, further ones start with Java's quick compiler only. 0: never.";
    TT_JOB_TRACKERS = "corona.tt.job.trackers", Boolean, "true", "", TrackerOwn,
        "Whether this node runs remote job trackers. Without it no JOBTRACKER slots are offered.";
    TT_JOB_TRACKER_COMMAND = "corona.tt.job.tracker.command", Text, "", "", TrackerOwn,
        "The program of remote job trackers, with its first arguments separated by blanks; `java`: the original's, from the Hadoop installation; unset: this program.";

    JOB_JAR = "mapred.jar", Text, "", "", Job,
        "The jar of the job: fetched, unpacked, and replaced by its local path.";
    JOB_TASK_TIMEOUT = "mapred.task.timeout", span(0), "600000", "ms", Job,
        "A task that does not report progress for longer is killed. 0: never.";
    JOB_JAVA_OPTIONS = "mapred.child.java.opts", Text, "-Xmx200m", "", Job,
        "Java options for tasks, separated by blanks; @taskid@ is the attempt.";
    JOB_MAP_JAVA_OPTIONS = "mapred.map.child.java.opts", Text, "", "", Job,
        "The same for maps; it overrides all others.";
    JOB_REDUCE_JAVA_OPTIONS = "mapred.reduce.child.java.opts", Text, "", "", Job,
        "The same for reduces.";
    JOB_SETUP_JAVA_OPTIONS = "mapred.jobsetup.child.java.opts", Text, "", "", Job,
        "The same for set-up tasks; unset: -Xmx200m.";
    JOB_CLEANUP_JAVA_OPTIONS = "mapred.jobcleanup.child.java.opts", Text, "", "", Job,
        "The same for clean-up tasks; unset: -Xmx200m.";
    JOB_TASK_CLEANUP_JAVA_OPTIONS = "mapred.taskcleanup.child.java.opts", Text, "", "", Job,
        "The same for clean-up attempts; unset: -Xmx200m.";
    JOB_TRACKER_JAVA_OPTIONS = "mapred.corona.standalonecjt.java.opts", Text, "-Xmx200m", "", Job,
        "The same for a remote job tracker.";
    JOB_ADMIN_JAVA_OPTIONS = "mapred.admin.child.java.opts", Text, "", "", Job,
        "Further options, after those of the job.";
    JOB_ENVIRONMENT = "mapred.child.env", Text, "", "", Job,
        "Environment of tasks: A=1,B=$B:2, where $B is the inherited value.";
    JOB_MAP_ENVIRONMENT = "mapred.map.child.env", Text, "", "", Job,
        "The same for maps, in place of mapred.child.env.";
    JOB_REDUCE_ENVIRONMENT = "mapred.reduce.child.env", Text, "", "", Job,
        "The same for reduces, in place of mapred.child.env.";
    JOB_ULIMIT = "mapred.child.ulimit", int(-1), "", "KiB", Job,
        "Limit of virtual memory of a task; unset: none.";
    JOB_MAP_ULIMIT = "mapred.map.child.ulimit", int(-1), "", "KiB", Job,
        "The same for maps.";
    JOB_REDUCE_ULIMIT = "mapred.reduce.child.ulimit", int(-1), "", "KiB", Job,
        "The same for reduces.";
    JOB_TEMPORARY_DIR = "mapred.child.tmp", Path, "./tmp", "", Job,
        "java.io.tmpdir of tasks, relative to the working directory.";
    JOB_NICE_LEVEL = "mapred.task.nicelevel", Text, "default", "", Job,
        "Nice level of tasks: a number; default: none.";
    JOB_OBJECT_ACCESS = "corona.job.object.access", Text, "", "", Job,
        "Set by clients for a job that names objects of a store: the access to it, keys included, comes in a file beside the configuration. Nodes replace it by the path of their copy.";
    JOB_CHILD_CLASS = "mapred.taskrunner.child.class", Class, "org.apache.hadoop.mapred.CoronaChild", "", Job,
        "Main class of tasks.";
    JOB_USER_CLASSES_FIRST = "mapreduce.job.user.classpath.first", Boolean, "false", "", Job,
        "Whether the job's classes precede those of the installation.";
    JOB_DEBUG_CLASS_PATH = "mapred.task.debug.runtime.classpath", Text, "", "", Job,
        "Entries before the class path of the installation.";
    JOB_LOG_LIMIT = "mapred.userlog.limit.kb", Long { least: 0, most: 9_007_199_254_740_991 }, "100", "KiB", Job,
        "Maximum size of the syslog of a task, which the task itself enforces. 0: no limit.";
    JOB_MAP_MEMORY = "mapred.job.map.memory.mb", Long { least: -1, most: 1 << 40 }, "5120", "MiB", Job,
        "A map that uses more than this and is killed for lack of memory counts as failed.";
    JOB_REDUCE_MEMORY = "mapred.job.reduce.memory.mb", Long { least: -1, most: 1 << 40 }, "5120", "MiB", Job,
        "The same for reduces.";
    JOB_CACHE_FILES = "mapred.cache.files", List, "", "", Job,
        "URIs of files for tasks, each with #link if it gets a link.";
    JOB_CACHE_FILES_TIMES = "mapred.cache.files.timestamps", List, "", "ms", Job,
        "Modification time of each: a file that was changed since then fails the task.";
    JOB_CACHE_ARCHIVES = "mapred.cache.archives", List, "", "", Job,
        "The same for archives, which are unpacked: .jar, .zip, .tar, .tar.gz, .tgz.";
    JOB_CACHE_ARCHIVES_TIMES = "mapred.cache.archives.timestamps", List, "", "ms", Job,
        "Modification time of each.";
    JOB_SHARED_CACHE = "mapred.cache.shared.enabled", Boolean, "false", "", Job,
        "Whether the jar is the first of the shared archives instead.";
    JOB_SHARED_FILES = "mapred.cache.shared.files", List, "", "", Job,
        "Files that never change, because their names contain a checksum.";
    JOB_SHARED_ARCHIVES = "mapred.cache.shared.archives", List, "", "", Job,
        "Archives that never change.";
    JOB_CLASS_PATH_FILES = "mapred.job.classpath.files", Text, "", "", Job,
        "Cache files on the class path: paths separated by colons.";
    JOB_CLASS_PATH_ARCHIVES = "mapred.job.classpath.archives", Text, "", "", Job,
        "Cache archives on the class path.";
    JOB_KEEP_FAILED = "keep.failed.task.files", Boolean, "false", "", Job,
        "Whether files of failed attempts, and of their job, are kept when the job is over.";
    JOB_KEEP_PATTERN = "keep.task.files.pattern", Text, "", "", Job,
        "A regular expression: the files of attempts whose whole name matches are kept, with those of their job.";
    JOB_REUSE = "mapred.job.reuse.jvm.num.tasks", Int { least: -2_147_483_648, most: 2_147_483_647 }, "1", "tasks", Job,
        "How many tasks of the job one process of Java runs, one after another; -1: any number.";
    JOB_MAP_DEBUG = "mapred.map.task.debug.script", Text, "", "", Job,
        "A command that runs after a map has failed, with the paths of its stdout, stderr, syslog and configuration.";
    JOB_REDUCE_DEBUG = "mapred.reduce.task.debug.script", Text, "", "", Job,
        "The same for reduces.";
    JOB_DEBUG_LINES = "mapred.debug.out.lines", int(-1), "-1", "lines", Job,
        "The last lines of the output of a debug script that are added to the diagnostics; -1: all.";
    JOB_PIPES_PROGRAM = "hadoop.pipes.executable", Text, "", "", Job,
        "The program of a job of Hadoop Pipes; a debug script gets the fragment of its URI as its last argument.";
    JOB_PROFILE = "mapred.task.profile", Boolean, "false", "", Job,
        "Whether tasks of the job are profiled.";
    JOB_PROFILE_PARAMS = "mapred.task.profile.params", Text, "-agentlib:hprof=cpu=samples,heap=sites,force=n,thread=y,verbose=n,file=%s", "", Job,
        "The option of Java for profiled tasks; for native tasks, the command that starts the program. `%s` stands for the path of `profile.out`.";
    JOB_PROFILE_MAPS = "mapred.task.profile.maps", Text, "0-2", "", Job,
        "The numbers of the maps that are profiled.";
    JOB_PROFILE_REDUCES = "mapred.task.profile.reduces", Text, "0-2", "", Job,
        "The numbers of the reduces that are profiled.";
    JOB_COMMAND = "corona.task.command", Text, "", "", Job,
        "A program to run instead of Java, with its arguments separated by blanks.";
    JOB_NATIVE = "corona.task.native", Boolean, "false", "", Job,
        "Whether the tasks of the job are native ones, which a node must allow by `corona.tt.native.tasks`.";
    JOB_MAPPER = "corona.task.mapper", Text, "", "", Job,
        "Built-in mapper of native tasks, instead of a program: `cat`, `wc`, `sort`, `grep TEXT` or `sh COMMAND`.";
    JOB_COMBINER = "corona.task.combiner", Text, "", "", Job,
        "Built-in combiner of native tasks: `wc` or `sh COMMAND`.";
    JOB_COMBINER_FIELDS = "corona.task.combiner.key.fields", int(0), "0", "", Job,
        "How many fields of a line of the combiner are the key, for native tasks. 0: as many as of a line of the reducer, as in the original.";
    JOB_REDUCER = "corona.task.reducer", Text, "", "", Job,
        "Built-in reducer of native tasks: `cat`, `wc`, `sort` or `sh COMMAND`.";
    JOB_MAX_RECORD = "corona.task.max.record.bytes", int(1024), "67108864", "bytes", Job,
        "The largest line, key or value of a native task. A task with a larger one fails.";
    JOB_SKIP_BAD = "corona.task.skip.bad.records", Boolean, "false", "", Job,
        "Whether a native map skips lines of its input that are larger, and counts them, instead of failing.";
    JOB_SKIP_DIR = "mapred.skip.out.dir", Text, "", "", Job,
        "Where native tasks write records that they skip, in sequence files; unset: _logs/skip in the output directory. none: nowhere.";
    JOB_COUNT_RECORDS = "mapred.skip.map.auto.incr.proc.count", Boolean, "true", "", Job,
        "Whether the built-in mapper of a job that skips bad records counts those that it has processed.";
    JOB_COUNT_GROUPS = "mapred.skip.reduce.auto.incr.proc.count", Boolean, "true", "", Job,
        "The same for the groups of a built-in reducer.";
    JOB_MAX_OUTPUT = "corona.task.max.output.bytes", long(0), "0", "bytes", Job,
        "What a program of a native task may write. A task with a program that writes more fails. 0: any number.";
    JOB_STDERR_LINES = "corona.task.stderr.lines", int(0), "20", "lines", Job,
        "Last lines of the stderr of a program that become part of the reason why its task failed.";
    JOB_SORT_MB = "io.sort.mb", Int { least: 1, most: 2047 }, "100", "MiB", Job,
        "Memory in which a native map sorts its output.";
    JOB_SORT_SPILL = "io.sort.spill.percent", Text, "0.80", "", Job,
        "The part of that memory which is filled before it is written to disk.";
    JOB_SORT_FACTOR = "io.sort.factor", Int { least: 2, most: 10_000 }, "10", "files", Job,
        "Files that a native task merges at a time.";
    JOB_COMBINE_SPILLS = "min.num.spills.for.combine", int(1), "3", "spills", Job,
        "Spills from which on a native map combines again when it merges them.";
    JOB_COMPRESS_MAP_OUTPUT = "mapred.compress.map.output", Boolean, "false", "", Job,
        "Whether outputs of maps are compressed.";
    JOB_COMPRESS_OUTPUT = "mapred.output.compress", Boolean, "false", "", Job,
        "Whether the output of the job is compressed.";
    JOB_PARALLEL_COPIES = "mapred.reduce.parallel.copies", Int { least: 1, most: 1000 }, "5", "connections", Job,
        "Connections over which a native reduce fetches outputs of maps.";
    JOB_SHUFFLE_MEMORY = "mapred.job.reduce.total.mem.bytes", long(0), "0", "bytes", Job,
        "Memory of a native reduce; the shuffle gets a part of it. 0: the size in `-Xmx` of `mapred.child.java.opts`.";
    JOB_SHUFFLE_INPUT_PERCENT = "mapred.job.shuffle.input.buffer.percent", Text, "0.70", "", Job,
        "The part of the memory of a native reduce which holds fetched outputs of maps.";
    JOB_SHUFFLE_MERGE_PERCENT = "mapred.job.shuffle.merge.percent", Text, "0.66", "", Job,
        "How full that memory may be before its outputs are merged to disk.";
    JOB_SHUFFLE_CONNECT_TIMEOUT = "mapreduce.reduce.shuffle.connect.timeout", span(1), "180000", "ms", Job,
        "How long a native reduce tries to connect to a node.";
    JOB_SHUFFLE_READ_TIMEOUT = "mapreduce.reduce.shuffle.read.timeout", span(1), "180000", "ms", Job,
        "How long a node may send nothing to a native reduce.";
    JOB_SHUFFLE_MAX_FAILURES = "mapreduce.reduce.shuffle.maxfetchfailures", int(1), "10", "failures", Job,
        "Failed connections for one output after which a native reduce reports it, and then every so many.";
    JOB_SHUFFLE_ABORT = "corona.task.shuffle.abort.failures", int(1), "30", "failures", Job,
        "Failures to fetch one output after which a native reduce fails; a tenth of the number of maps if that is more.";
    JOB_SHUFFLE_PAUSE = "corona.task.shuffle.retry.ms", span(1), "10000", "ms", Job,
        "Pause after a failed fetch from a node, which grows by three tenths with each further failure, ten times at most.";
    JOB_REPORT_INTERVAL = "corona.task.report.ms", span(1), "3000", "ms", Job,
        "Pause between reports of a native task to its task tracker.";

    FS_UGI = "hadoop.job.ugi", Text, "", "", Files,
        "The user and its groups, separated by commas, for HDFS; unset: those of the process.";
    FS_CLASS = "fs.hdfs.impl", Class, "org.apache.hadoop.hdfs.DistributedFileSystem", "", Files,
        "The class for hdfs. Classes with another protocol are refused by name.";
    FS_INNER_CLASS = "fs.raid.underlyingfs.impl", Class, "", "", Files,
        "The class that a wrapping file system uses.";
    FS_NAME_0 = "fs.default.name0", Text, "", "", Files,
        "An address of the default name node with DistributedAvatarFileSystem: the addresses are tried in order when one cannot be connected to.";
    FS_NAME_1 = "fs.default.name1", Text, "", "", Files,
        "Another one.";
    FS_SECURITY = "hadoop.security.authentication", Text, "simple", "", Files,
        "kerberos is refused.";
    FS_SOCKS = "hadoop.socks.server", Text, "", "", Files,
        "A SOCKS server is refused.";
    FS_REPLICATION = "dfs.replication", Int { least: 1, most: 512 }, "3", "replicas", Files,
        "Replicas of a new file.";
    FS_BLOCK = "dfs.block.size", long(1), "67108864", "bytes", Files,
        "Size of a block of a new file, a multiple of io.bytes.per.checksum.";
    FS_SUM_BYTES = "io.bytes.per.checksum", Int { least: 1, most: 1_048_576 }, "512", "bytes", Files,
        "How much one checksum of a new file covers.";
    FS_UMASK = "dfs.umaskmode", Text, "022", "", Files,
        "Permissions that new files and directories do not get, in octal.";
    FS_OLD_UMASK = "dfs.umask", Text, "", "", Files,
        "The same as a decimal number; it wins.";
    FS_PACKET = "dfs.write.packet.size", Int { least: 1024, most: 1_048_576 }, "65536", "bytes", Files,
        "Size of a packet of a block that is written.";
    FS_SOCKET_TIMEOUT = "dfs.socket.timeout", span(1), "60000", "ms", Files,
        "How long a data node may be silent.";
    FS_READ_EXTENSION = "dfs.datanode.socket.read.extension.timeout", span(0), "3000", "ms", Files,
        "Added to it for each node of a pipeline.";
    FS_WRITE_TIMEOUT = "dfs.datanode.socket.write.timeout", span(1), "480000", "ms", Files,
        "How long a data node may leave written data unread.";
    FS_WRITE_EXTENSION = "dfs.datanode.socket.write.extension.timeout", span(0), "5000", "ms", Files,
        "Added to it for each node of a pipeline.";
    FS_WRITE_RETRIES = "dfs.client.block.write.retries", Int { least: 0, most: 1000 }, "3", "tries", Files,
        "Further tries to write a block.";
    FS_LOCATE_RETRIES = "dfs.client.block.write.locateFollowingBlock.retries", Int { least: 0, most: 20 }, "5", "tries", Files,
        "Further requests for a block while the one before has too few replicas.";
    FS_ACQUIRE_FAILURES = "dfs.client.max.block.acquire.failures", Int { least: 0, most: 1000 }, "3", "rounds", Files,
        "How often the name node is asked again for replicas of a block that cannot be read.";
    FS_ACQUIRE_WINDOW = "dfs.client.baseTimeWindow.waitOn.BlockMissingException", span(1), "3000", "ms", Files,
        "Unit of the pauses before that.";
    FS_CREATE_PAUSE = "dfs.client.rpc.retry.sleep", span(0), "60000", "ms", Files,
        "Pause before the creation of a file is retried that another client is writing.";
    FS_SOFT_LEASE = "dfs.softlease.period", span(2), "60000", "ms", Files,
        "The name node's soft limit of a lease; half of it is the time between renewals.";
    FS_HARD_LEASE = "dfs.hardlease.period", span(2), "3600000", "ms", Files,
        "The name node's hard limit of a lease.";
    FS_LEASE_RETRIES = "dfs.lease.renewal.retries", Int { least: 0, most: 1000 }, "10", "tries", Files,
        "Renewals that may fail, a second apart, before files that are written are given up.";
    FS_TRASH = "fs.trash.interval", Int { least: 0, most: 2_147_483_647 }, "1440", "min", Files,
        "Whether corona fs rm moves files of HDFS to the trash; the name node empties it. 0: no.";
    FS_CALL_TIMEOUT = "corona.fs.call.timeout.ms", span(1), "60000", "ms", FilesOwn,
        "Timeout of a call of a name node.";
    FS_CONNECT_PATIENCE = "corona.fs.connect.patience.ms", span(0), "11000", "ms", FilesOwn,
        "How long a connection to a name node is retried.";
    FS_OBJECT_PATIENCE = "corona.fs.object.patience.ms", span(0), "120000", "ms", FilesOwn,
        "How long a request to an object store is retried that is too busy or does not answer.";
    FS_CREATE_RETRIES = "corona.fs.create.retries", Int { least: 0, most: 1000 }, "5", "tries", FilesOwn,
        "How often the creation of a file is retried that another client is writing.";
    FS_CLOSE_TIMEOUT = "corona.fs.close.timeout.ms", span(1), "300000", "ms", FilesOwn,
        "How long the end of a file may wait for the data nodes to report its last block.";
    FS_SAFE_MODE_WAIT = "corona.fs.safe.mode.wait.ms", span(0), "0", "ms", FilesOwn,
        "How long a change waits for the end of safe mode. 0: not at all.";
    FS_DATA_CONNECTIONS = "corona.fs.max.data.connections", Int { least: 1, most: 10_000 }, "64", "connections", FilesOwn,
        "Maximum number of connections to data nodes.";
    FS_NAME_CONNECTIONS = "corona.fs.max.name.node.connections", Int { least: 1, most: 1000 }, "8", "connections", FilesOwn,
        "Maximum number of connections to one name node.";
    FS_MAX_PACKET = "corona.fs.max.packet.bytes", Int { least: 65_536, most: 67_108_864 }, "2097152", "bytes", FilesOwn,
        "Maximum size of a packet of a block that is read.";
    FS_BUFFER_DIR = "corona.fs.buffer.dir", Path, "${java.io.tmpdir}", "", FilesOwn,
        "Directory for blocks that are written, until data nodes have them. Files in it have no name.";

    JOB_SETUP_CLEANUP_NEEDED = "mapred.committer.job.setup.cleanup.needed", Boolean, "true", "", JobTracker,
        "Whether a task prepares the job and another one commits or aborts its output.";
    JOB_TASK_CLEANUP_NEEDED = "mapred.committer.task.cleanup.needed", Boolean, "true", "", JobTracker,
        "Whether an attempt that failed or was killed is cleaned up after by another one.";
    JOB_MAP_MAX_ATTEMPTS = "mapred.map.max.attempts", int(1), "4", "attempts", JobTracker,
        "Failed attempts that fail a map.";
    JOB_REDUCE_MAX_ATTEMPTS = "mapred.reduce.max.attempts", int(1), "4", "attempts", JobTracker,
        "Failed attempts that fail a reduce.";
    JOB_MAP_CPUS = "corona.job.map.cpus", Int { least: 1, most: 1024 }, "", "CPUs", JobTracker,
        "The CPUs that the job tracker requests for each map; where only slots are counted, as many slots. Unset: the default of the cluster.";
    JOB_MAP_DISK = "corona.job.map.disk.gb", int(1), "", "GB", JobTracker,
        "The disk space that it requests for each map.";
    JOB_MAP_NETWORK = "corona.job.map.network.mbps", Int { least: 1, most: 32767 }, "", "MB/s", JobTracker,
        "The network that it requests for each map.";
    JOB_REDUCE_CPUS = "corona.job.reduce.cpus", Int { least: 1, most: 1024 }, "", "CPUs", JobTracker,
        "The CPUs that the job tracker requests for each reduce; where only slots are counted, as many slots. Unset: the default of the cluster.";
    JOB_REDUCE_DISK = "corona.job.reduce.disk.gb", int(1), "", "GB", JobTracker,
        "The disk space that it requests for each reduce.";
    JOB_REDUCE_NETWORK = "corona.job.reduce.network.mbps", Int { least: 1, most: 32767 }, "", "MB/s", JobTracker,
        "The network that it requests for each reduce.";
    JOB_MAX_KILLED_ATTEMPTS = "corona.jt.task.max.killed.attempts", int(1), "1000", "attempts", JobTracker,
        "Killed attempts that fail a task, so that a job ends even where no node keeps its tasks.";
    JOB_MAP_FAILURES_PERCENT = "mapred.max.map.failures.percent", Int { least: 0, most: 100 }, "0", "%", JobTracker,
        "Maps that may fail without failing the job.";
    JOB_REDUCE_FAILURES_PERCENT = "mapred.max.reduce.failures.percent", Int { least: 0, most: 100 }, "0", "%", JobTracker,
        "Reduces that may fail without failing the job.";
    JOB_SLOW_START = "mapred.reduce.slowstart.completed.maps", Text, "0.05", "", JobTracker,
        "The part of the maps that must be finished before reduces are requested.";
    JOB_RUSH_MAPS = "mapred.job.rushreduce.map.threshold", int(0), "5", "maps", JobTracker,
        "A job of at most so many maps requests its reduces at once.";
    JOB_RUSH_REDUCES = "mapred.job.rushreduce.reduce.threshold", int(0), "5", "reduces", JobTracker,
        "A job of at most so many reduces requests them at once.";
    JOB_FINISH_WHEN_REDUCES_DONE = "mapred.job.finish.when.reduces.done", Boolean, "false", "", JobTracker,
        "Whether the job ends when its reduces have, whatever its maps do.";
    JOB_LAUNCH_TIMEOUT = "mapred.task.launch.timeout", span(0), "", "ms", JobTracker,
        "An attempt of which no report comes for longer after its launch is killed; unset: mapred.task.timeout. 0: never.";
    JOB_MAX_FETCH_FAILURES = "mapred.job.per.map.maxfetchfailures", int(1), "50", "reports", JobTracker,
        "Fetch failures of one map that fail it, however many reduces run.";
    JOB_MAP_SPECULATION = "mapred.map.tasks.speculative.execution", Boolean, "true", "", JobTracker,
        "Whether slow maps get a second attempt.";
    JOB_REDUCE_SPECULATION = "mapred.reduce.tasks.speculative.execution", Boolean, "true", "", JobTracker,
        "Whether slow reduces get a second attempt.";
    JOB_SPECULATION_REFRESH = "mapreduce.job.speculative.refresh.timeout", span(1), "5000", "ms", JobTracker,
        "How often slow tasks are looked for, at most once a second.";
    JOB_SLOW_TASK_THRESHOLD = "mapreduce.job.speculative.slowtaskthreshold", Text, "1.0", "", JobTracker,
        "How many standard deviations below the mean a rate is slow.";
    JOB_MAX_DEVIATION_RATIO = "mapreduce.job.speculative.stddevmeanratio.max", Text, "0.33", "", JobTracker,
        "The largest distance from the mean that makes a rate slow, as a part of the mean.";
    JOB_SPECULATIVE_CAP = "mapreduce.job.speculative.speculativecap", Text, "0.1", "", JobTracker,
        "The part of the running tasks that may have a second attempt; ten always may.";
    JOB_MAP_SPECULATION_LAG = "mapred.speculative.map.lag", span(0), "60000", "ms", JobTracker,
        "No map is slow for so long after its launch.";
    JOB_REDUCE_SPECULATION_LAG = "mapred.speculative.reduce.lag", span(0), "60000", "ms", JobTracker,
        "The same for reduces.";
    JOB_MAP_SPECULATION_DURATION = "mapred.speculative.map.duration", Long { least: 0, most: 31_557_600_000 }, "0", "s", JobTracker,
        "Maps that would be done in less are not slow. 0: no such test.";
    JOB_REDUCE_SPECULATION_DURATION = "mapred.speculative.reduce.duration", Long { least: 0, most: 31_557_600_000 }, "0", "s", JobTracker,
        "The same for reduces.";
    JOB_MAP_SPECULATION_UNFINISHED = "mapred.map.tasks.speculation.unfinished.threshold", Text, "0.001", "", JobTracker,
        "Where a smaller part of the maps is unfinished, each of them is slow.";
    JOB_REDUCE_SPECULATION_UNFINISHED = "mapred.reduce.tasks.speculation.unfinished.threshold", Text, "0.001", "", JobTracker,
        "The same for reduces.";
    JOB_MAX_SKIPPED_RECORDS = "mapred.skip.map.max.skip.records", long(0), "0", "records", JobTracker,
        "Records that a map may skip around a bad one. 0: none is skipped.";
    JOB_MAX_SKIPPED_GROUPS = "mapred.skip.reduce.max.skip.groups", long(0), "0", "groups", JobTracker,
        "The same for the groups of a reduce.";
    JOB_ATTEMPTS_BEFORE_SKIPPING = "mapred.skip.attempts.to.start.skipping", int(0), "2", "attempts", JobTracker,
        "Failed attempts after which a task skips.";
    JOB_EXCLUSION_WAIT = "corona.jt.exclusion.wait.ms", span(1), "60000", "ms", JobTracker,
        "How long a request waits with excluded hosts while it is not known which hosts there are; then any host will do, except for a second attempt beside one that runs.";
    JOB_USER = "user.name", Text, "", "", JobTracker,
        "The user of the job, whose session a remote job tracker opens.";
    JOB_KILLED_CLEANUP = "corona.jt.killed.cleanup.ms", span(0), "60000", "ms", JobTracker,
        "How long the clean-up of a killed job may take, from the kill on; then the job ends without it. 0: a killed job ends at once, as in Java.";
    JOB_MAX_COUNTER_GROUPS = "corona.jt.max.counter.groups", int(1), "200", "groups", JobTracker,
        "Groups of counters that the tasks of a job may have together. Further ones are left out.";
    JOB_MAX_COUNTERS = "corona.jt.max.counters", int(1), "5000", "counters", JobTracker,
        "Counters that the tasks of a job may have together. Further ones are left out.";
    JOB_MAX_COUNTER_NAME = "corona.jt.max.counter.name.bytes", int(1), "1024", "bytes", JobTracker,
        "The longest name of a counter or a group. Counters with longer ones are left out.";
    JOB_MAX_TEXT = "corona.jt.max.text.bytes", int(64), "32768", "bytes", JobTracker,
        "Limit of the diagnostics, and of the status text, kept of an attempt.";

    JT_ADDRESS = "corona.jt.address", Address, "localhost:8021", "", JobServiceOwn,
        "Address of the job tracker service, as clients name it in mapred.job.tracker and task trackers reach it. It listens on this address. Port 0: any free one, and the same one after a restart.";
    JT_HTTP_ADDRESS = "mapred.job.tracker.http.address", Address, "localhost:50030", "", JobService,
        "Address of its pages, and the name in the tracking URLs of jobs. Port 0 as above. The original's default is 0.0.0.0:50030.";
    JT_NOTIFICATION_PORT = "corona.jt.notification.port", Int { least: 0, most: 65_535 }, "0", "", JobServiceOwn,
        "Port for the cluster manager's notifications. 0: any free one, and the same one after a restart.";
    JT_DATA_DIR = "corona.jt.data.dir", Path, "${hadoop.tmp.dir}/corona-job-tracker", "", JobServiceOwn,
        "Directory of the state that must survive a restart: a journal for each job that runs. One service at a time can use it.";
    JT_JOURNAL_SYNC = "corona.jt.journal.sync", Text, "write", "", JobServiceOwn,
        "When an input of a job counts as safe: write (when it is in the file) or always (when it is on the disk).";
    JT_JOURNAL_IMAGE = "corona.jt.journal.image.bytes", long(1), "16777216", "bytes", JobServiceOwn,
        "Bytes of records in the journal of a job after which an image of the job is stored, so that a restart does not apply all records again. With a large image it takes twice its bytes.";
    JT_SYSTEM_DIR = "corona.system.dir", Text, "/tmp/hadoop/mapred/system", "", JobService,
        "Directory of the files of jobs, in the default file system unless it names one. Every user must be able to make entries in it.";
    JT_DELIVER_FILES = "corona.jt.deliver.files", Boolean, "false", "", JobServiceOwn,
        "Whether clients and task trackers of this program send and fetch the files of jobs through the job tracker: corona.system.dir is then a directory of its machine that no other needs to see. Java programs cannot.";
    JT_JOB_FILES_MAX = "corona.jt.job.files.max.bytes", long(1), "10737418240", "bytes", JobServiceOwn,
        "With corona.jt.deliver.files, maximum size of the files of one job: configuration, splits, jar, and what it ships.";
    JT_JOB_FILES_TOTAL = "corona.jt.job.files.max.total.bytes", long(1), "107374182400", "bytes", JobServiceOwn,
        "With corona.jt.deliver.files, maximum size of the files of all jobs together. Each file counts 4096 bytes more.";
    JT_JOB_OUTPUT_USER = "corona.jt.job.output.max.user.bytes", long(1), "10737418240", "bytes", JobServiceOwn,
        "With corona.jt.deliver.files, maximum size of the outputs of one user's lists of commands that the job tracker keeps until the user's client has taken them.";
    JT_JOB_OUTPUT_TOTAL = "corona.jt.job.output.max.total.bytes", long(1), "107374182400", "bytes", JobServiceOwn,
        "The same for all users together. Each file counts 4096 bytes more.";
    JT_JOB_OUTPUT_RETAIN = "corona.jt.job.output.retain.hours", int(1), "72", "hours", JobServiceOwn,
        "How long such outputs are kept after the end of their job.";
    JT_CLUSTER_FILE = "corona.jt.cluster.file", Path, "", "", JobServiceOwn,
        "A file that nodes and clients get when they join; `corona head` writes it. Unset: there is nothing to join.";
    JT_BUILD_VERSION = "corona.jt.build.version", Text, "", "", JobServiceOwn,
        "Build that task trackers of the original compare with their own: <version> from <revision> by <user> on <date>. Unset: learnt from the first task tracker that refuses the one of this program; a job tracker on a node takes that of the Hadoop installation there.";
    JT_HEARTBEAT = "corona.jobtracker.heartbeat.interval", span(1), "3000", "ms", JobService,
        "Longest time between the reports of a task tracker on a job. Where few task trackers report on few jobs they report more often, down to 300 ms.";
    JT_MAX_EVENTS = "corona.jobtracker.tce.per.rpc", int(1), "100", "events", JobService,
        "Completion events in one reply to a reduce.";
    JT_MAX_JOBS = "corona.jt.max.jobs", int(1), "5000", "jobs", JobServiceOwn,
        "Jobs that may run at a time, or fewer if the limit of open files allows no more. Further ones wait.";
    JT_JOBS_MEMORY = "corona.jt.max.jobs.memory.bytes", long(1), "68719476736", "bytes", JobServiceOwn,
        "Memory that running jobs may take, or less if the machine or the control group has no more. Jobs that need more than the others leave wait; a job counts 256 KiB and 1 KiB for each task.";
    JT_MAX_WAITING_JOBS = "corona.jt.max.waiting.jobs", int(0), "10000", "jobs", JobServiceOwn,
        "Jobs that may wait until others have ended. Further ones are refused.";
    JT_RPC_CONNECTIONS = "corona.jt.rpc.max.connections", int(1), "16384", "connections", JobServiceOwn,
        "Connections of clients and task trackers at a time, or fewer if the limit of open files allows no more.";
    JT_MAX_JOBS_PER_USER = "corona.jt.max.jobs.per.user", int(1), "1000", "jobs", JobServiceOwn,
        "Jobs of one user that may run or wait at a time. Further ones are refused.";
    JT_MAX_TASKS = "corona.jt.max.tasks.per.job", int(1), "500000", "tasks", JobServiceOwn,
        "Maps and reduces of one job. Larger jobs are refused.";
    JT_MAX_SPLIT_BYTES = "corona.jt.max.split.file.bytes", long(65_536), "268435456", "bytes", JobServiceOwn,
        "Maximum size of a job's split file, which is kept in memory while the job runs.";
    JT_MAX_QUEUED = "corona.jt.max.queued.inputs", int(1), "1000", "calls", JobServiceOwn,
        "Calls for one job that may wait. Further ones wait to be queued, and fail after ten seconds.";
    JT_FINISHED_JOBS = "corona.jt.finished.jobs", int(0), "1000", "jobs", JobServiceOwn,
        "Finished jobs whose status and counters clients can ask for.";
    JT_FINISHED_TASKS = "corona.jt.finished.tasks", int(0), "100000", "tasks", JobServiceOwn,
        "Tasks of finished jobs, all together, whose reports, events and diagnostics clients can ask for. The oldest jobs lose theirs first.";
    JT_MAX_REMOTE_STATE = "corona.jt.max.remote.state.bytes", long(1024), "536870912", "bytes", JobServiceOwn,
        "Maximum bytes that a remote job tracker may leave for the next one. A job that needs more ends with its remote job tracker.";
    JT_MAX_HEAP = "mapred.child.java.max.memory.mb", int(1), "4096", "MiB", JobService,
        "Largest Java heap (-Xmx) that the options of a job's tasks may name. Jobs with a larger one are refused.";
    JT_NODE_UNREACHABLE = "corona.jt.node.unreachable.ms", span(0), "60000", "ms", JobServiceOwn,
        "A node counts as lost for the jobs that use it when it has not reported and its task tracker could not be connected to for this long. 0: only the cluster manager gives nodes up.";
    JT_SUBMISSION_WAIT = "corona.jt.submission.wait.ms", span(1), "600000", "ms", JobServiceOwn,
        "How long a submission waits for a cluster manager that does not answer, or is in safe mode.";
    JT_CONNECT_TIMEOUT = "corona.jt.launch.connect.timeout.ms", span(1), "3000", "ms", JobServiceOwn,
        "How long a connection to a task tracker is tried. One that could not be connected to within the last minute is tried once.";
    JT_CALL_TIMEOUT = "corona.jt.launch.call.timeout.ms", span(1), "60000", "ms", JobServiceOwn,
        "How long a task tracker may take for a call with orders.";
    JT_PARENT_CONNECT_TIMEOUT = "corona.jt.parent.connect.timeout.ms", span(0), "11000", "ms", JobServiceOwn,
        "How long a remote job tracker tries to connect to its parent before it ends.";
    JT_PARENT_CALL_TIMEOUT = "corona.jt.parent.call.timeout.ms", span(1), "120000", "ms", JobServiceOwn,
        "How long the parent of a remote job tracker may take for a call.";
    JT_LINGER = "corona.jt.linger.ms", span(1), "3600000", "ms", JobServiceOwn,
        "How long a remote job tracker answers its parent when its job is over.";
    JT_RPC_TOTAL = "corona.jt.rpc.max.total.inflight.bytes", long(1024), "1073741824", "bytes", JobServiceOwn,
        "Maximum bytes of unfinished calls of all connections together. Above it, the connections that hold the most are closed.";
    JT_SUBMITTERS = "corona.jt.submitters", Text, "*", "", JobServiceOwn,
        "Who may submit: users with commas between, a blank, groups with commas between; * for everybody. Clients name their user themselves.";
    JT_VIEWERS = "corona.jt.viewers", Text, "*", "", JobServiceOwn,
        "Who may see the jobs of others, in the same form.";
    JT_ADMINISTRATORS = "corona.jt.administrators", Text, "", "", JobServiceOwn,
        "Who may kill and change the jobs of others, in the same form. The user of the service may.";

    JT_ADMIN_NETWORKS = "corona.jt.admin.networks", List, "", "", JobServiceOwn,
        "Networks from which jobs and tasks may be ended over HTTP; unset: all.";
    JT_WEB_NETWORKS = "corona.jt.web.networks", List, "", "", JobServiceOwn,
        "Networks that may see the pages; unset: all.";
    JT_WEB_KILL_TOKEN = "corona.jt.web.kill.token", Secret, "", "", JobServiceOwn,
        "The token that an operator must enter to end a job, a task or an attempt on a page, at least 16 characters; unset: that is not possible over HTTP.";
    JT_WEB_MAX_CONNECTIONS = "corona.jt.web.max.connections", int(1), "256", "connections", JobServiceOwn,
        "Maximum number of open HTTP connections.";
    JT_WEB_MAX_PER_PEER = "corona.jt.web.max.connections.per.peer", int(1), "64", "connections", JobServiceOwn,
        "Maximum number of open HTTP connections of one peer. At the limit, the connection that has been idle longest is closed.";
    JT_WEB_PROBES = "corona.jt.web.probe.connections", int(1), "8", "connections", JobServiceOwn,
        "Further connections that may request only /healthz, /readyz and /metrics.";
    JT_WEB_HOSTS = "corona.jt.web.hosts", List, "", "", JobServiceOwn,
        "Further host names under which pages are served, besides addresses, localhost and the machine's names; *: every name.";

    JOB_QUEUE = "mapred.job.queue.name", Text, "default", "", JobTracker,
        "The queue that clients see. It is the pool if no pool is set and it is not default.";
    JOB_REDUCES = "mapred.reduce.tasks", int(0), "1", "tasks", JobTracker,
        "The reduces of the job.";
    JOB_NAME = "mapred.job.name", Text, "", "", JobTracker,
        "The job's name for people.";
    JOB_PRIORITY = "mapred.job.priority", Text, "NORMAL", "", JobTracker,
        "The priority of the job's session: VERY_LOW, LOW, NORMAL, HIGH or VERY_HIGH.";
    JOB_FORCE_REMOTE = "mapred.coronajobtracker.forceremote", Boolean, "false", "", JobTracker,
        "Whether the job is run by a remote job tracker, which runs on a node, however few maps it has.";
    JOB_REMOTE_THRESHOLD = "mapred.coronajobtracker.remote.threshold", int(0), "", "maps", JobTracker,
        "A job with more maps is run by a remote job tracker. Unset: none is.";
    JOB_REMOTE_RESTARTS = "mapred.coronajobtracker.restart.count", int(0), "0", "times", JobTracker,
        "How often a remote job tracker that is lost is replaced.";
    JOB_REMOTE_RESTORES = "mapred.coronajobtracker.remote.state.restoring", Boolean, "true", "", JobTracker,
        "Whether the next one continues the job. Otherwise none is started.";
    JOB_REMOTE_STARTS = "mapred.coronajobtracker.remotejobtracker.attempts", int(1), "4", "attempts", JobTracker,
        "How often a remote job tracker is started that does not report.";
    JOB_REMOTE_START_TIMEOUT = "mapred.coronajobtracker.remotejobtracker.wait", int(1), "60", "s", JobTracker,
        "How long a remote job tracker may take until it reports.";
    JOB_REMOTE_EXCLUDES = "mpared.coronajobtracker.remotejobtracker.exclude", Boolean, "true", "", JobTracker,
        "Whether a host where one was lost, or did not start, is avoided. Its name is written like this in the original.";
    JOB_END_URL = "job.end.notification.url", Text, "", "", JobTracker,
        "An http address that is fetched when the job has ended, $jobId and $jobStatus replaced.";
    JOB_HISTORY_LOCATION = "hadoop.job.history.user.location", Text, "", "", JobTracker,
        "Where the user's copy of the job's history goes, in _logs/history below it; none: no copy. Unset: the output directory.";
    JOB_END_RETRIES = "job.end.retry.attempts", int(0), "0", "attempts", JobTracker,
        "Further tries if that fails, at most 100.";
    JOB_END_PAUSE = "job.end.retry.interval", span(0), "30000", "ms", JobTracker,
        "The pause between them, at most 10 minutes.";

    PJT_HANDLERS = "corona.proxy.job.tracker.handler.count", int(1), "10", "threads", Accepted,
        "Threads of the original's RPC server.";
    PJT_CLASSIC_HISTORIES = "hadoop.job.history.location", Text, "", "", Proxy,
        "Directory of the histories of classic job trackers, which are listed as well; unset: none.";
    PJT_CLASSIC_DONE = "mapred.job.tracker.history.completed.location", Text, "", "", Proxy,
        "Directory of those histories of ended jobs; unset: done in hadoop.job.history.location.";
    PJT_HISTORY_CACHE = "mapred.job.tracker.jobhistory.lru.cache.size", int(1), "5", "jobs", Proxy,
        "Histories of jobs that are kept in memory after they were shown.";
    PJT_JOB_FILE_THRESHOLD = "mapred.job.file.expirethreshold", span(0), "864000000", "ms", Proxy,
        "Age at which a job's directory in corona.system.dir is deleted.";
    PJT_JOB_FILE_INTERVAL = "mapred.job.file.checkinterval", span(0), "86400000", "ms", Proxy,
        "Time between two searches for such directories. 0: one search at the start.";
    PJT_HISTORY_THRESHOLD = "mapred.job.history.expirethreshold", span(0), "864000000", "ms", Proxy,
        "Age at which a directory of histories in corona.sessions.log.dir is deleted.";
    PJT_HISTORY_INTERVAL = "mapred.job.history.checkinterval", span(0), "86400000", "ms", Proxy,
        "Time between two searches for such directories. 0: one search at the start.";
    PJT_SHARED_THRESHOLD = "mapred.cache.shared.expire_threshold", span(0), "86400000", "ms", Proxy,
        "Time without access after which a file of the shared cache, CAR in corona.system.dir, is deleted.";
    PJT_SHARED_INTERVAL = "mapred.cache.shared.check_interval", span(0), "86400000", "ms", Proxy,
        "Time between two searches for such files. 0: one search at the start.";
    PJT_CLEAN_UP = "corona.pjt.clean.up", Text, "delete", "", ProxyOwn,
        "What is done with expired directories and files: delete, report (only log what would be deleted) or off.";
    PJT_DATA_DIR = "corona.pjt.data.dir", Path, "${hadoop.tmp.dir}/corona-proxy-job-tracker", "", ProxyOwn,
        "Directory of the index of finished jobs, which is built again if it is lost.";
    PJT_SCAN_INTERVAL = "corona.pjt.index.interval.ms", span(100), "10000", "ms", ProxyOwn,
        "Time between two searches for new histories.";
    PJT_MAX_JOBS = "corona.pjt.index.max.jobs", int(1), "500000", "jobs", ProxyOwn,
        "Jobs in the index. Further ones can be shown by their id, but are not listed.";
    PJT_MAX_HISTORY_BYTES = "corona.pjt.max.history.bytes", long(65_536), "1073741824", "bytes", ProxyOwn,
        "Bytes of a history that are read for a page. Longer ones are shown as far as that.";
    PJT_FILE_TIMEOUT = "corona.pjt.file.timeout.ms", span(100), "30000", "ms", ProxyOwn,
        "How long a page waits for the file system of the histories.";
    PJT_RELAY_CONNECT_TIMEOUT = "corona.pjt.relay.connect.timeout.ms", span(10), "3000", "ms", ProxyOwn,
        "How long a connection to a job tracker's pages is tried.";
    PJT_RELAY_TIMEOUT = "corona.pjt.relay.timeout.ms", span(100), "60000", "ms", ProxyOwn,
        "How long a job tracker may take to answer a relayed request, and to continue its reply.";
    PJT_MAX_RELAYS = "corona.pjt.relay.max.requests", int(1), "256", "requests", ProxyOwn,
        "Relayed requests at a time. One job tracker gets at most an eighth of them. Further ones are refused.";
    PJT_RELAY_HOSTS = "corona.pjt.relay.hosts", List, "", "", ProxyOwn,
        "Further hosts to whose pages requests are relayed. Without them, pages that a session announces must be on the host of the session itself; *: every host.";
    PJT_MAX_CONNECTIONS = "corona.pjt.http.max.connections", int(1), "1000", "connections", ProxyOwn,
        "Connections to the pages. Further ones are refused.";
    PJT_MAX_CONNECTIONS_PER_PEER = "corona.pjt.http.max.connections.per.peer", int(1), "100", "connections", ProxyOwn,
        "Connections of one peer to the pages. Further ones are refused.";
    PJT_PROBES = "corona.pjt.http.probe.connections", int(1), "8", "connections", ProxyOwn,
        "Further connections that may request only /healthz, /readyz and /metrics.";
    PJT_HOSTS = "corona.pjt.http.hosts", List, "", "", ProxyOwn,
        "Further host names under which pages are served, besides addresses, localhost and the machine's names; *: every name.";
}

/// The key with this name.
pub fn find(name: &str) -> Option<&'static Key> {
    ALL.iter().find(|key| key.name == name)
}

/// The name that a mistyped one is most like, of these keys and `further` ones; none if nothing is like it.
pub fn meant<'a>(name: &str, further: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    similar(name, ALL.iter().map(|key| key.name).chain(further))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_own_keys_have_the_own_prefix() {
        let names: BTreeSet<&str> = ALL.iter().map(|key| key.name).collect();
        assert_eq!(names.len(), ALL.len());
        for key in ALL {
            // Those of all services count as own.
            let is_shared = key.name.starts_with("corona.tls") || *key == LOOPBACK_ONLY;
            let is_own = key.name.starts_with("corona.cm.") || is_shared;
            assert_eq!(is_own, key.usage == Own, "{}", key.name);
            assert_eq!(key.name.starts_with("corona.tt."), key.usage == TrackerOwn, "{}", key.name);
            assert_eq!(key.name.starts_with("corona.fs."), key.usage == FilesOwn, "{}", key.name);
            assert_eq!(key.name.starts_with("corona.pjt."), key.usage == ProxyOwn, "{}", key.name);
            assert_eq!(find(key.name), Some(key));
        }
    }
}
