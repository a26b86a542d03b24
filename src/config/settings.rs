//! The cluster manager's settings, and how they come from the keys.
//!
//! The only place that joins a key to a field. It reads no file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::access::{self, AccessSettings, TlsSettings};
use super::high_availability::{self, GatewaySettings, HaSettings, ZooKeeperSettings};
use super::hosts::{HostFile, HostFiles};
use super::journal::{self, JournalSettings};
use super::keys::{self, Key, Kind, Use};
use super::limits::{CallSettings, NameSettings, RackSettings};
use super::partitioning;
use super::problem::{Origin, Problem, ProblemKind, SimilarKey};
use super::properties::{Properties, Property};
use super::scheduling::SchedulingFiles;
use super::secret::Secret;
use super::suggest::similar;
use super::topology::{self, Mapping, Topology};
use super::typed::{self, HostPort, Wrong};
use super::web::{self, WebSettings};
use super::{InForce, Source};
use corona_model::form::Later;
use corona_model::queues::Part;
use corona_model::resources::{Amounts, Dimension, ReservationLimit, ReserveAfter, Resources};
use corona_model::settings::{Bounds, FaultLimits, Partitioning, Settings};
use corona_model::types::PerType;

/// On which of the machine's addresses calls are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interfaces {
    /// Only on that for programs of the same machine.
    Loopback,
    /// On every one, as the original.
    All,
}

/// Everything that the cluster manager can be configured with.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterManagerSettings {
    /// Where clients reach the cluster manager. Only the port determines where it listens.
    pub server_address: HostPort,
    /// Where it listens on that port: on every interface once the address is set.
    pub interfaces: Interfaces,
    /// Where the web pages are served, and the name that they show.
    pub http_address: HostPort,
    /// The longest silence on a connection, and the time that a session has to accept a connection
    /// and to answer; `None` forever.
    pub socket_timeout: Option<Duration>,
    /// The proxy job tracker's Thrift service.
    pub proxy_job_tracker_address: HostPort,
    /// Whether that is set, and so there should be one.
    pub proxy_job_tracker_expected: bool,
    /// How sessions are notified.
    pub notifier: NotifierSettings,
    /// The state file of safe mode.
    pub state_file: PathBuf,
    /// Whether the state file is compressed.
    pub compress_state: bool,
    /// How the journal is kept.
    pub journal: JournalSettings,
    /// How it is one of several instances; `None` if it is the only one.
    pub ha: Option<HaSettings>,
    /// Where the general scheduling file and the pools file are looked for.
    pub scheduling_files: SchedulingFiles,
    /// How often both are looked at for changes.
    pub reload_period: Duration,
    /// Where the host files are.
    pub host_files: HostFiles,
    /// How hosts are put into racks.
    pub topology: Topology,
    /// Nodes that restart together when the administrator names no number.
    pub restart_batch: u32,
    /// Limits on messages of peers.
    pub wire: WireSettings,
    /// Bounds on the texts and lists in calls.
    pub calls: CallSettings,
    /// How the names of hosts are looked up.
    pub names: NameSettings,
    /// How the racks of hosts are looked up.
    pub racks: RackSettings,
    /// Access control.
    pub access: AccessSettings,
    /// Whether TLS is spoken.
    pub tls: TlsSettings,
    /// How the web pages are served.
    pub web: WebSettings,
    /// The engine's settings, including those of the scheduling files.
    pub engine: Settings,
}

/// How sessions are notified. Spec: cluster-manager/05 §4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifierSettings {
    /// Pause between attempts towards a session that was never reached.
    pub poll_interval: Duration,
    /// First pause after a failure towards one that was.
    pub retry_start: Duration,
    /// Each pause is this many times the one before.
    pub retry_factor: u32,
    /// The session is ended when this many retries and one more have failed.
    pub retry_max: u32,
    /// Calls of one session that may wait.
    pub max_queue: usize,
    /// Bytes of an answer.
    pub max_reply_bytes: usize,
}

/// Limits on messages of peers. The original has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireSettings {
    /// The largest message.
    pub max_frame_bytes: usize,
    /// How deep structures in a message may be nested.
    pub max_depth: u32,
    /// Connections that may be open at a time.
    pub max_connections: usize,
    /// Bytes of messages of one connection that may wait for their answer.
    pub max_inflight_bytes: usize,
    /// The same bytes of all connections together.
    pub max_total_inflight_bytes: usize,
    /// Time for a message that has begun to be there as a whole.
    pub frame_timeout: Duration,
}

/// Reads keys into fields; wrong values are problems, and replaced by the default to continue and
/// find more.
pub(super) struct SettingsReader<'a> {
    source: &'a Source<'a>,
    properties: &'a Properties,
    problems: &'a mut Vec<Problem>,
    pub(super) in_force: Vec<InForce>,
}

impl<'a> SettingsReader<'a> {
    pub(super) fn new(
        source: &'a Source<'a>,
        properties: &'a Properties,
        problems: &'a mut Vec<Problem>,
    ) -> Self {
        SettingsReader { source, properties, problems, in_force: Vec::new() }
    }

    /// The settings, without the contents of the scheduling files, and every key with its value in
    /// force.
    pub(super) fn read(mut self) -> (ClusterManagerSettings, Vec<InForce>) {
        let engine = self.engine();
        let legal_types = match engine.partitioning.0.is_empty() {
            true => PerType::all(true),
            false => engine.partitioning.legal_types(),
        };
        let is_on_loopback_only = self.value(&keys::LOOPBACK_ONLY, typed::boolean);
        let settings = ClusterManagerSettings {
            server_address: self.value(&keys::SERVER_ADDRESS, typed::address),
            interfaces: match self.is_set(&keys::SERVER_ADDRESS) && !is_on_loopback_only {
                true => Interfaces::All,
                false => Interfaces::Loopback,
            },
            http_address: self.value(&keys::HTTP_ADDRESS, typed::address),
            socket_timeout: Some(self.span(&keys::SOCKET_TIMEOUT)).filter(|span| !span.is_zero()),
            proxy_job_tracker_address: self.value(&keys::PROXY_JOB_TRACKER_THRIFT, typed::address),
            proxy_job_tracker_expected: self.is_set(&keys::PROXY_JOB_TRACKER_THRIFT),
            notifier: self.notifier(),
            state_file: self.text(&keys::STATE_FILE).into(),
            compress_state: self.value(&keys::COMPRESS_STATE, typed::boolean),
            journal: self.journal(),
            ha: self.ha(),
            scheduling_files: SchedulingFiles {
                general: self.text(&keys::GENERAL_FILE),
                general_set_in: self.property(&keys::GENERAL_FILE).origin,
                pools: self.text(&keys::POOLS_FILE),
                pools_set_in: self.property(&keys::POOLS_FILE).origin,
                named: self.is_set(&keys::GENERAL_FILE) || self.source.conf_dir.is_some(),
                conf_dir: self.source.conf_dir.map(Path::to_path_buf),
                lookup: self.source.lookup,
                legal_types,
                configured_pools_only: engine.configured_pools_only,
                counted: engine.resources.counted,
            },
            reload_period: self.span(&keys::RELOAD_PERIOD),
            host_files: HostFiles {
                include: self.host_file(&keys::HOSTS),
                exclude: self.host_file(&keys::HOSTS_EXCLUDE),
            },
            topology: self.topology(),
            restart_batch: self.number(&keys::RESTART_BATCH),
            wire: self.wire(),
            calls: self.calls(),
            names: self.names(),
            racks: self.racks(),
            access: self.access(),
            tls: self.tls(),
            web: self.web(),
            engine,
        };
        self.check_ports(&settings);
        self.check_expiries();
        self.look_at_the_rest();
        self.hide_secrets();
        (settings, self.in_force)
    }

    fn host_file(&mut self, key: &'static Key) -> Option<HostFile> {
        let path = self.path(key)?;
        Some(HostFile { path, set_in: self.property(key).origin })
    }

    /// Calls and pages cannot be on one port.
    fn check_ports(&mut self, settings: &ClusterManagerSettings) {
        let (calls, pages) = (&settings.server_address, &settings.http_address);
        let is_shared = match settings.interfaces {
            Interfaces::All => true,
            Interfaces::Loopback => is_on_loopback(&pages.host),
        };
        if calls.port == 0 || calls.port != pages.port || !is_shared {
            return;
        }
        let property = self.property(&keys::HTTP_ADDRESS);
        let wrong = Wrong::new(
            format!("has the port of {}, {calls}", keys::SERVER_ADDRESS.name),
            "another port, or 0 for any free one",
        );
        self.problems.push(wrong_value(&keys::HTTP_ADDRESS, property, wrong));
    }

    /// Warns of intervals that end nodes and sessions between two of their heartbeats.
    fn check_expiries(&mut self) {
        let heartbeat = self.number_beside(&keys::TT_HEARTBEAT);
        let (expiry, at) = self.number_with_origin(&keys::NODE_EXPIRY);
        if expiry < heartbeat.saturating_mul(2) {
            let what = format!(
                "{expiry} ms is less than two intervals of {}, {heartbeat} ms: nodes are lost while \
                 they work",
                keys::TT_HEARTBEAT.name
            );
            let problem = Problem::warning(at, ProblemKind::NoEffect(what));
            self.problems.push(problem.of(keys::NODE_EXPIRY.name));
        }
        let poll = self.number_with_origin(&keys::NOTIFIER_POLL).0;
        let (expiry, at) = self.number_with_origin(&keys::SESSION_EXPIRY);
        // Sessions look each interval whether a heartbeat is due. Spec: cluster-manager/05 §6.
        if expiry != 0 && expiry < poll.saturating_mul(2) {
            let what = format!(
                "{expiry} ms is less than two intervals of {}, {poll} ms, at which job trackers \
                 heartbeat at most: sessions are ended while they work",
                keys::NOTIFIER_POLL.name
            );
            let problem = Problem::warning(at, ProblemKind::NoEffect(what));
            self.problems.push(problem.of(keys::SESSION_EXPIRY.name));
        }
    }

    /// The number that is used for a key of the cluster manager, and where it is set.
    fn number_with_origin(&mut self, key: &'static Key) -> (i64, Origin) {
        let Property { value, origin } = self.property(key);
        (number_or_default(key, &value), origin)
    }

    /// The value of a key that another component reads, if it is set. That component reports its errors.
    fn beside(&self, key: &Key) -> Option<String> {
        Some(self.properties.get(key.name, &mut Vec::new()).ok().flatten()?.value)
    }

    /// The same of a number, or its default.
    fn number_beside(&self, key: &'static Key) -> i64 {
        number_or_default(key, self.beside(key).as_deref().unwrap_or(key.default))
    }

    /// The port in an address that others listen on; `None` if they choose it or cannot read it.
    pub(super) fn port_beside(&self, key: &'static Key) -> Option<u16> {
        let address = self.beside(key);
        Some(fixed_address(address.as_deref().unwrap_or(key.default))?.port)
    }

    /// The address of the pages of the job tracker service; `None` if none is configured.
    pub(super) fn running_jobs(&self) -> Option<HostPort> {
        self.beside(&keys::JT_ADDRESS)?;
        fixed_address(&self.beside(&keys::JT_HTTP_ADDRESS)?)
    }

    /// The address of the pages of finished jobs, which the proxy job tracker serves; `None` if it
    /// chooses a free port, or cannot read its address.
    pub(super) fn finished_jobs(&self) -> Option<HostPort> {
        fixed_address(&self.beside(&keys::CLIENT_PROXY)?)
    }

    /// The user that the process runs as.
    pub(super) fn user(&self) -> String {
        self.properties.system_property("user.name").unwrap_or("nobody").to_owned()
    }

    /// The token that actions of operators need.
    pub(super) fn read_operator_token(mut self) -> Option<String> {
        let token: Option<Secret> = self.value(&keys::WEB_KILL_TOKEN, typed::secret);
        self.hide_secrets();
        token.map(|token| token.reveal().to_owned())
    }

    fn engine(&mut self) -> Settings {
        Settings {
            partitioning: self.partitioning(),
            node_expiry_ms: self.number(&keys::NODE_EXPIRY),
            node_late_ms: self.node_late_ms(),
            skip_late_nodes: self.value(&keys::NODE_LATE_SKIP, typed::boolean),
            session_expiry_ms: self.session_expiry_ms(),
            retired_sessions: self.number(&keys::RETIRED_SESSIONS),
            reserved_memory_mb: self.number(&keys::RESERVED_MEMORY),
            reserved_disk_gb: self.number(&keys::RESERVED_DISK),
            faults: FaultLimits {
                failed_connection_sessions: self.number(&keys::MAX_FAILED_CONNECTIONS),
                failed_connections_of_a_session: self.number(&keys::MAX_FAILED_CONNECTIONS_SESSION),
                failure_sessions: self.number(&keys::MAX_FAILURES),
                failures_of_a_session: self.number(&keys::MAX_FAILURES_SESSION),
            },
            restart_interval_ms: self.number(&keys::RESTART_INTERVAL),
            heartbeat_delay_max_ms: self.number(&keys::HEARTBEAT_DELAY_MAX),
            sessions_log_dir: self.value(&keys::SESSIONS_LOG_DIR, typed::directory).into(),
            sessions_per_log_dir: self.number(&keys::SESSIONS_PER_LOG_DIR),
            configured_pools_only: self.value(&keys::CONFIGURED_POOLS_ONLY, typed::boolean),
            bounds: Bounds {
                sessions: self.number(&keys::MAX_SESSIONS),
                requests_per_session: self.number(&keys::MAX_REQUESTS),
                nodes: self.number(&keys::MAX_NODES),
                pools: self.number(&keys::MAX_POOLS),
            },
            resources: Later(self.resources()),
            ..Settings::default()
        }
    }

    fn resources(&mut self) -> Resources {
        let overcommit = [
            &keys::OVERCOMMIT_CPUS,
            &keys::OVERCOMMIT_MEMORY,
            &keys::OVERCOMMIT_DISK,
            &keys::OVERCOMMIT_NETWORK,
        ];
        let requested = PerType([
            [
                &keys::REQUEST_MAP_CPUS,
                &keys::REQUEST_MAP_MEMORY,
                &keys::REQUEST_MAP_DISK,
                &keys::REQUEST_MAP_NETWORK,
            ],
            [
                &keys::REQUEST_REDUCE_CPUS,
                &keys::REQUEST_REDUCE_MEMORY,
                &keys::REQUEST_REDUCE_DISK,
                &keys::REQUEST_REDUCE_NETWORK,
            ],
            [
                &keys::REQUEST_JOBTRACKER_CPUS,
                &keys::REQUEST_JOBTRACKER_MEMORY,
                &keys::REQUEST_JOBTRACKER_DISK,
                &keys::REQUEST_JOBTRACKER_NETWORK,
            ],
        ]);
        Resources {
            counted: self.value(&keys::RESOURCES, counted),
            overcommit: overcommit
                .map(|key| Part(self.number::<u32>(key).saturating_mul(Part::WHOLE.0 / 100))),
            requested: PerType(requested.0.map(|keys| Amounts(keys.map(|key| self.number(key))))),
            reservation: Later(match self.number(&keys::RESERVATION_AFTER) {
                0 => ReserveAfter::NEVER,
                after_ms => ReserveAfter(after_ms),
            }),
            reservation_limit: Later(ReservationLimit(self.number(&keys::RESERVATION_LIMIT))),
        }
    }

    /// With a configuration directory the key must be set, as in the original; without any the
    /// default lets a cluster manager start.
    pub(super) fn partitioning(&mut self) -> Partitioning {
        let key = &keys::PARTITIONING;
        // A file that could not be read may contain the key: that problem is already reported.
        let readable = self.problems.iter().all(|p| p.severity == super::Severity::Warning);
        if let Some(conf_dir) = self.source.conf_dir.filter(|_| readable && !self.is_set(key)) {
            let expected =
                format!("{} (in mapred-site.xml or core-site.xml)", partitioning::EXPECTED);
            let kind = ProblemKind::Required { expected };
            self.problems.push(Problem::error(Origin::file(conf_dir), kind).of(key.name));
        }
        let partitioning = self.value(key, partitioning::parse);
        if partitioning.0.is_empty() && readable && self.is_set(key) {
            let kind = ProblemKind::NoEffect("names no type: no node can be used".into());
            let origin = self.property(key).origin;
            self.problems.push(Problem::warning(origin, kind).of(key.name));
        }
        partitioning
    }

    /// The span of as many heartbeats as are configured; forever when that is 0.
    fn node_late_ms(&mut self) -> i64 {
        let heartbeats: i64 = self.number(&keys::NODE_LATE);
        let interval_ms: i64 = self.number(&keys::TT_HEARTBEAT);
        if heartbeats == 0 { i64::MAX } else { heartbeats.saturating_mul(interval_ms) }
    }

    /// The interval as set; else from the notifier's retries. Spec: cluster-manager/05 §3.
    pub(super) fn session_expiry_ms(&mut self) -> i64 {
        let set: i64 = self.number(&keys::SESSION_EXPIRY);
        if set != 0 {
            return set;
        }
        let start = self.number(&keys::RETRY_START);
        let factor = self.number(&keys::RETRY_FACTOR);
        let retries = self.number(&keys::RETRY_MAX);
        computed_session_expiry_ms(start, factor, retries).unwrap_or_else(|| {
            let kind = ProblemKind::Value {
                value: "0".into(),
                wrong: "is computed from cm.notifier.retry.* and becomes too large".into(),
                expected: "milliseconds, 1 to 2147483647, or fewer retries".into(),
            };
            let origin = self.property(&keys::SESSION_EXPIRY).origin;
            self.problems.push(Problem::error(origin, kind).of(keys::SESSION_EXPIRY.name));
            set
        })
    }

    fn notifier(&mut self) -> NotifierSettings {
        NotifierSettings {
            poll_interval: self.span(&keys::NOTIFIER_POLL),
            retry_start: self.span(&keys::RETRY_START),
            retry_factor: self.number(&keys::RETRY_FACTOR),
            retry_max: self.number(&keys::RETRY_MAX),
            max_queue: self.number(&keys::NOTIFIER_MAX_QUEUE),
            max_reply_bytes: self.number(&keys::NOTIFIER_MAX_REPLY),
        }
    }

    fn wire(&mut self) -> WireSettings {
        WireSettings {
            max_frame_bytes: self.number(&keys::WIRE_MAX_FRAME),
            max_depth: self.number(&keys::WIRE_MAX_DEPTH),
            max_connections: self.number(&keys::WIRE_MAX_CONNECTIONS),
            max_inflight_bytes: self.number(&keys::WIRE_MAX_INFLIGHT),
            max_total_inflight_bytes: self.number(&keys::WIRE_MAX_TOTAL_INFLIGHT),
            frame_timeout: self.span(&keys::WIRE_FRAME_TIMEOUT),
        }
    }

    fn calls(&mut self) -> CallSettings {
        CallSettings {
            name_bytes: self.number(&keys::MAX_NAME_BYTES),
            url_bytes: self.number(&keys::MAX_URL_BYTES),
            host_bytes: self.number(&keys::MAX_HOST_BYTES),
            id_bytes: self.number(&keys::MAX_ID_BYTES),
            hosts_per_request: self.number(&keys::MAX_HOSTS_PER_REQUEST),
            list_entries: self.number(&keys::MAX_LIST_ENTRIES),
        }
    }

    fn journal(&mut self) -> JournalSettings {
        let state_file = self.text(&keys::STATE_FILE);
        let directory = self.text(&keys::JOURNAL_DIR);
        JournalSettings {
            directory: journal::directory(&directory, Path::new(&state_file)),
            sync: self.value(&keys::JOURNAL_SYNC, journal::sync),
            sync_interval: self.span(&keys::JOURNAL_SYNC_INTERVAL),
            segment_bytes: self.number(&keys::JOURNAL_SEGMENT_BYTES),
            image_bytes: self.number(&keys::JOURNAL_IMAGE_BYTES),
        }
    }

    fn zookeeper(&mut self) -> Option<ZooKeeperSettings> {
        let servers = self.value(&keys::HA_ZOOKEEPER, high_availability::servers);
        let path = self.value(&keys::HA_PATH, high_availability::path);
        let session_timeout = self.span(&keys::HA_SESSION_TIMEOUT);
        Some(ZooKeeperSettings { servers: servers?, path, session_timeout })
    }

    /// With servers, an address, the other instances and a journal are needed.
    fn ha(&mut self) -> Option<HaSettings> {
        let zookeeper = self.zookeeper();
        let address = self.value(&keys::HA_ADDRESS, high_availability::address);
        let instances = self.value(&keys::HA_INSTANCES, high_availability::instances);
        let ack = self.value(&keys::HA_ACK, high_availability::ack);
        let ack_timeout = self.span(&keys::HA_ACK_TIMEOUT);
        let hold = self.span(&keys::HA_HOLD);
        let max_lag_bytes = self.number(&keys::HA_MAX_LAG);
        let zookeeper = zookeeper?;
        let journal = self.text(&keys::JOURNAL_DIR);
        let has_journal = journal::directory(&journal, Path::new("")).is_some();
        let to_be_set = |key: &Key| format!("{} to be set as well", key.name);
        for (is_there, needed) in [
            (address.is_some(), to_be_set(&keys::HA_ADDRESS)),
            (instances.is_some(), to_be_set(&keys::HA_INSTANCES)),
            (has_journal, "a journal to copy".to_owned()),
        ] {
            if !is_there {
                let wrong = Wrong::new("makes this one of several instances", needed);
                let property = self.property(&keys::HA_ZOOKEEPER);
                self.problems.push(wrong_value(&keys::HA_ZOOKEEPER, property, wrong));
            }
        }
        let (address, instances) = (address?, instances?);
        Some(HaSettings { zookeeper, address, instances, ack, ack_timeout, hold, max_lag_bytes })
    }

    /// The settings of a gateway; other keys are not read.
    pub(super) fn read_gateway(mut self) -> GatewaySettings {
        GatewaySettings {
            address: self.value(&keys::HA_GATEWAY_ADDRESS, typed::address),
            zookeeper: self.zookeeper(),
            hold: self.span(&keys::HA_HOLD),
            max_connections: self.number(&keys::WIRE_MAX_CONNECTIONS),
        }
    }

    fn names(&mut self) -> NameSettings {
        NameSettings {
            max_lookups: self.number(&keys::NAMES_MAX_LOOKUPS),
            max_lookups_per_peer: self.number(&keys::NAMES_PER_PEER),
            timeout: self.span(&keys::NAMES_TIMEOUT),
            keep: self.span(&keys::NAMES_KEEP),
        }
    }

    fn racks(&mut self) -> RackSettings {
        RackSettings {
            max_lookups: self.number(&keys::RACKS_MAX_LOOKUPS),
            max_lookups_per_peer: self.number(&keys::RACKS_PER_PEER),
            timeout: self.span(&keys::RACKS_TIMEOUT),
            max_names_per_call: self.number(&keys::RACKS_MAX_NAMES),
        }
    }

    fn access(&mut self) -> AccessSettings {
        AccessSettings {
            admin_networks: self.value(&keys::ADMIN_NETWORKS, access::networks),
            web_networks: self.value(&keys::WEB_NETWORKS, access::networks),
            sessions_same_host: self.value(&keys::SESSIONS_SAME_HOST, typed::boolean),
        }
    }

    pub(super) fn tls(&mut self) -> TlsSettings {
        TlsSettings {
            mode: self.value(&keys::TLS, access::tls_mode),
            plain_networks: self.value(&keys::TLS_PLAIN_NETWORKS, access::networks),
            directory: self.path(&keys::TLS_DIRECTORY),
            authority: self.path(&keys::TLS_AUTHORITY),
        }
    }

    fn web(&mut self) -> WebSettings {
        WebSettings {
            kill_token: self.value(&keys::WEB_KILL_TOKEN, typed::secret),
            sample_period: self.span(&keys::WEB_SAMPLE_PERIOD),
            max_connections: self.number(&keys::WEB_MAX_CONNECTIONS),
            max_connections_per_peer: self.number(&keys::WEB_MAX_PER_PEER),
            probe_connections: self.number(&keys::WEB_PROBES),
            hosts: self.value(&keys::WEB_HOSTS, web::hosts),
            max_subscribers: self.number(&keys::WEB_MAX_SUBSCRIBERS),
            tracker_port: self.port_beside(&keys::TT_HTTP_ADDRESS),
            running_jobs: self.running_jobs(),
            finished_jobs: self.finished_jobs(),
        }
    }

    fn topology(&mut self) -> Topology {
        match self.value(&keys::TOPOLOGY, topology::mapping) {
            Mapping::Script => match self.path(&keys::TOPOLOGY_SCRIPT) {
                None => Topology::DefaultRack,
                Some(path) => Topology::Script {
                    path,
                    args_per_call: self.number(&keys::TOPOLOGY_SCRIPT_ARGUMENTS),
                },
            },
            Mapping::Ipv4Truncation => Topology::Ipv4Truncation { header: self.rack_header() },
            Mapping::Ipv6Truncation => Topology::Ipv6Truncation { header: self.rack_header() },
            Mapping::Static => {
                Topology::Static { racks: self.value(&keys::TOPOLOGY_STATIC, topology::racks) }
            }
        }
    }

    fn rack_header(&mut self) -> std::sync::Arc<str> {
        self.value(&keys::TOPOLOGY_HEADER, topology::header)
    }

    /// A whole number within the key's bounds, which fit the field's type.
    pub(super) fn number<T: TryFrom<i64> + Default>(&mut self, key: &'static Key) -> T {
        let (Kind::Int { least, most } | Kind::Long { least, most }) = key.kind else {
            return T::default();
        };
        self.value(key, |text| {
            let number = typed::whole(text, least, most, key.unit)?;
            T::try_from(number)
                .map_err(|_| Wrong::new("is too large for this machine", "a smaller number"))
        })
    }

    pub(super) fn span(&mut self, key: &'static Key) -> Duration {
        Duration::from_millis(self.number(key))
    }

    pub(super) fn path(&mut self, key: &'static Key) -> Option<PathBuf> {
        Some(self.text(key)).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    pub(super) fn text(&mut self, key: &'static Key) -> String {
        self.value(key, |text| Ok(text.to_owned()))
    }

    /// A value of any type; after an error that of the default, which a test holds to be legal.
    pub(super) fn value<T: Default>(
        &mut self,
        key: &'static Key,
        parse: impl Fn(&str) -> Result<T, Wrong>,
    ) -> T {
        let property = self.property(key);
        parse(&property.value).unwrap_or_else(|wrong| {
            self.problems.push(wrong_value(key, property, wrong));
            parse(key.default).unwrap_or_default()
        })
    }

    /// The text of a key with its variables replaced, or its default.
    fn property(&mut self, key: &'static Key) -> Property {
        if let Some(known) = self.in_force.iter().find(|in_force| in_force.key == key.name) {
            return Property { value: known.value.clone(), origin: known.origin.clone() };
        }
        let default = Property { value: key.default.to_owned(), origin: Origin::Default };
        let found = match self.properties.get(key.name, self.problems) {
            Ok(None) => self.properties.expanded(key.name, &default, self.problems),
            Ok(Some(set)) => Ok(set),
            Err(problem) => Err(problem),
        };
        let property = found.unwrap_or_else(|problem| {
            self.problems.push(problem);
            default
        });
        self.in_force.push(InForce {
            key: key.name,
            value: property.value.clone(),
            origin: property.origin.clone(),
        });
        property
    }

    pub(super) fn is_set(&self, key: &Key) -> bool {
        self.properties.names().any(|(name, _)| name == key.name)
    }

    /// From here on the value of a secret is not visible any more.
    pub(super) fn hide_secrets(&mut self) {
        let is_secret = |name: &str| keys::find(name).is_some_and(|key| key.kind == Kind::Secret);
        for in_force in &mut self.in_force {
            if is_secret(in_force.key) && !in_force.value.is_empty() {
                in_force.value = Secret::HIDDEN.into();
            }
        }
        let of_secrets = self
            .problems
            .iter_mut()
            .filter(|problem| problem.subject.as_deref().is_some_and(is_secret));
        for problem in of_secrets {
            match &mut problem.kind {
                ProblemKind::Value { value, .. } => *value = Secret::HIDDEN.into(),
                ProblemKind::UndefinedVariable { value, .. } => *value = Secret::HIDDEN.into(),
                _ => {}
            }
        }
    }

    /// Reports keys that are set and have no effect, or that are unknown.
    pub(super) fn look_at_the_rest(&mut self) {
        for key in keys::ALL {
            if !self.is_set(key) {
                continue;
            }
            match key.usage {
                Use::Used | Use::Own | Use::Client | Use::Files | Use::FilesOwn => {}
                Use::Tracker | Use::TrackerOwn | Use::Job | Use::JobTracker => {}
                Use::JobService | Use::JobServiceOwn | Use::Proxy | Use::ProxyOwn => {}
                Use::Accepted => {
                    let property = self.property(key);
                    if let Err(wrong) = typed::check(key.kind, &property.value, key.unit) {
                        self.problems.push(wrong_value(key, property, wrong).into_warning());
                    }
                }
                Use::Unsupported => {
                    let property = self.property(key);
                    if !property.value.trim().is_empty() {
                        let kind = ProblemKind::NoEffect(format!("has no effect: {}", key.meaning));
                        self.problems.push(Problem::warning(property.origin, kind).of(key.name));
                    }
                }
            }
        }
        for (name, origin) in self.properties.names() {
            // Jobs choose the names of variables.
            let ours = (name.starts_with("cm.") || name.starts_with("corona."))
                && !name.starts_with("corona.task.env.");
            if ours && keys::find(name).is_none() {
                let meant = similar(name, keys::ALL.iter().map(|key| key.name));
                let meant = meant.and_then(keys::find).map(|key| SimilarKey {
                    name: key.name,
                    default: (!self.is_set(key)).then_some(key.default),
                });
                let kind = ProblemKind::UnknownKey { meant };
                self.problems.push(Problem::warning(origin.clone(), kind).of(name));
            }
        }
    }
}

/// The dimensions of a list; none for `slots`.
fn counted(text: &str) -> Result<[bool; 4], Wrong> {
    const EXPECTED: &str = "slots, or some of cpus,memory,disk,network";
    let mut counted = [false; 4];
    if text == "slots" {
        return Ok(counted);
    }
    for name in text.split(',').map(str::trim) {
        let dimension = Dimension::from_name(name);
        let dimension =
            dimension.ok_or_else(|| Wrong::new("is not a list of resources", EXPECTED))?;
        *dimension.item_mut(&mut counted) = true;
    }
    Ok(counted)
}

/// A whole number of a key, or its default where that is not one: it is complained of elsewhere.
fn number_or_default(key: &Key, text: &str) -> i64 {
    let (Kind::Int { least, most } | Kind::Long { least, most }) = key.kind else { return 0 };
    let number = |text: &str| typed::whole(text, least, most, key.unit);
    number(text).or_else(|_| number(key.default)).unwrap_or_default()
}

/// An address with a port that is not any free one.
fn fixed_address(text: &str) -> Option<HostPort> {
    typed::address(text).ok().filter(|address| address.port != 0)
}

/// Whether a service on this host is on the loopback interface, among others perhaps.
fn is_on_loopback(host: &str) -> bool {
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

fn wrong_value(key: &Key, property: Property, wrong: Wrong) -> Problem {
    let Wrong { wrong, expected } = wrong;
    let kind = ProblemKind::Value {
        value: property.value.into(),
        wrong: wrong.into(),
        expected: expected.into(),
    };
    Problem::error(property.origin, kind).of(key.name)
}

/// `start` and then `retries - 1` times as much again times `factor`; `None` beyond 32 bits, where
/// the original's number wraps around.
fn computed_session_expiry_ms(start: i64, factor: i64, retries: i64) -> Option<i64> {
    let mut interval = start;
    for _ in 1..retries {
        interval = interval.checked_mul(factor.checked_add(1)?)?;
        if interval > i64::from(i32::MAX) {
            return None;
        }
    }
    Some(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_legal_value() {
        for key in keys::ALL.iter().filter(|key| !key.default.is_empty()) {
            assert_eq!(typed::check(key.kind, key.default, key.unit), Ok(()), "{}", key.name);
        }
        assert!(partitioning::parse(keys::PARTITIONING.default).is_ok());
        assert!(topology::mapping(keys::TOPOLOGY.default).is_ok());
        assert!(topology::header(keys::TOPOLOGY_HEADER.default).is_ok());
    }

    #[test]
    fn session_expiry_from_the_retries() {
        let cases = [
            ((5000, 4, 5), Some(3_125_000)),
            ((5000, 4, 2), Some(25_000)),
            ((5000, 4, 1), Some(5000)),
            ((5000, 4, 0), Some(5000)),
            ((1, 1, 31), Some(1 << 30)),
            ((1, 1, 32), None),
            ((5000, 4, 2_147_483_647), None),
            ((2_147_483_647, 2_147_483_647, 2), None),
        ];
        for ((start, factor, retries), expected) in cases {
            assert_eq!(computed_session_expiry_ms(start, factor, retries), expected);
        }
    }
}
