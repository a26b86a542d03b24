//! The settings of the job tracker service, and how they come from the keys.
//!
//! Settings of a job are in [`JobConf`](super::JobConf). It reads no file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::problem::ConfigErrors;
use super::secret::Secret;
use super::service::LoadedService;
use super::settings::SettingsReader;
use super::typed::{self, HostPort};
use super::web;
use super::{InForce, JobConf, JournalSync, Networks, Source, TlsSettings, access, journal, keys};

/// Everything that the job tracker service can be configured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTrackerServiceSettings {
    /// Whether TLS is spoken.
    pub tls: TlsSettings,
    /// The cluster manager's Thrift service.
    pub cluster_manager: HostPort,
    /// Where its pages are.
    pub cluster_manager_pages: HostPort,
    /// The port of the pages of nodes.
    pub node_pages_port: u16,
    /// Where the proxy job tracker shows finished jobs; `None` if that is not configured.
    pub finished_job_pages: Option<HostPort>,
    /// The proxy job tracker's Thrift service; `None` where none is set.
    pub proxy_job_tracker: Option<HostPort>,
    /// Where it takes reports of jobs that have ended, if that is configured.
    pub proxy_job_tracker_reports: Option<HostPort>,
    /// Without a heartbeat for longer than this the cluster manager ends a session.
    pub session_expiry: Duration,
    /// The time without a heartbeat after which the cluster manager gives up a node.
    pub node_expiry: Duration,
    /// Where clients and task trackers reach it, and where it listens.
    pub address: HostPort,
    /// Where it serves pages, and the name in the addresses of jobs.
    pub http_address: HostPort,
    /// The port for the cluster manager's notifications; 0 for any.
    pub notification_port: u16,
    /// The directory of all that must survive a restart.
    pub data_dir: PathBuf,
    /// When an input of a job is safe.
    pub journal_sync: JournalSync,
    /// Bytes of records of a job's journal after which an image of the job is made.
    pub journal_image_bytes: u64,
    /// The directory for the files of jobs, as clients learn it.
    pub system_dir: String,
    /// Whether the configuration names it.
    pub system_dir_is_set: bool,
    /// Whether clients and task trackers get the files of jobs by calls of the job tracker.
    pub deliver_files: bool,
    /// Bytes of the files that a job may then have.
    pub job_files_max_bytes: u64,
    /// Bytes of those of all jobs.
    pub job_files_max_total_bytes: u64,
    /// Bytes of the outputs that are kept for one user.
    pub job_output_max_user_bytes: u64,
    /// Bytes of those of all users.
    pub job_output_max_total_bytes: u64,
    /// How long they are kept after their jobs.
    pub job_output_retention: Duration,
    /// What nodes and clients get that join the cluster; `None` if there is nothing.
    pub cluster_file: Option<PathBuf>,
    /// The build that task trackers compare with their own.
    pub build_version: String,
    /// The pause between the heartbeats of task trackers.
    pub heartbeat_interval: Duration,
    /// Completion events in one reply to a task.
    pub max_events: usize,
    /// Connections of clients and task trackers.
    pub rpc_max_connections: usize,
    /// Jobs that may run at a time.
    pub max_jobs: usize,
    /// What that number comes from, for people: the key, or a limit of the machine.
    pub max_jobs_from: String,
    /// Memory that running jobs may take, in bytes, and what the number comes from.
    pub max_jobs_memory: u64,
    /// What `max_jobs_memory` comes from, for people, as in [`max_jobs_from`](Self::max_jobs_from).
    pub max_jobs_memory_from: String,
    /// Further jobs that may wait.
    pub max_waiting_jobs: usize,
    /// Jobs of one user that may run or wait at a time.
    pub max_jobs_per_user: usize,
    /// Maps and reduces of one job.
    pub max_tasks: usize,
    /// Bytes of a split file.
    pub max_split_bytes: u64,
    /// Inputs of one job that may wait.
    pub max_queued_inputs: usize,
    /// Finished jobs that are remembered.
    pub finished_jobs: usize,
    /// Tasks of finished jobs whose reports are kept, all together.
    pub finished_tasks: usize,
    /// Bytes of state that a remote job tracker may leave for the next one.
    pub max_remote_state_bytes: usize,
    /// MiB of Java heap that a task may ask for.
    pub max_java_heap_mib: u64,
    /// A node that is silent and cannot be connected to for so long counts as lost; 0: never.
    pub node_unreachable: Duration,
    /// How long a connection to a task tracker is tried.
    pub launch_connect_timeout: Duration,
    /// How long a submission waits for the cluster manager.
    pub submission_wait: Duration,
    /// How long a task tracker may take for a call.
    pub launch_call_timeout: Duration,
    /// How long a remote job tracker tries to connect to its parent.
    pub parent_connect_timeout: Duration,
    /// How long the parent may take for a call.
    pub parent_call_timeout: Duration,
    /// How long a remote job tracker answers when its job is over.
    pub linger: Duration,
    /// Bytes of unfinished calls that the server holds at most.
    pub rpc_max_total_inflight_bytes: usize,
    /// Users and groups that may submit.
    pub submitters: AccessList,
    /// Users and groups that may see jobs of others.
    pub viewers: AccessList,
    /// Users and groups that may kill and change jobs of others.
    pub administrators: AccessList,
    /// How the pages are served.
    pub web: JobTrackerWebSettings,
}

/// What the pages of the job tracker service may do and cost. The original has none of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTrackerWebSettings {
    /// From where jobs may be ended. `corona.jt.admin.networks`
    pub admin_networks: Networks,
    /// Who may see the pages. `corona.jt.web.networks`
    pub networks: Networks,
    /// The token that is needed to end something from a page; without it that is not possible.
    /// `corona.jt.web.kill.token`
    pub kill_token: Option<Secret>,
    /// Connections of browsers and scripts that may be open at a time.
    /// `corona.jt.web.max.connections`
    pub max_connections: usize,
    /// Those of one peer. `corona.jt.web.max.connections.per.peer`
    pub max_connections_per_peer: usize,
    /// Connections beyond these for what watches the program. `corona.jt.web.probe.connections`
    pub probe_connections: usize,
    /// Host names under which the pages are served, besides the machine's. `corona.jt.web.hosts`
    pub hosts: Vec<Box<str>>,
}

/// Users and groups, as Hadoop writes them: users with commas between, a blank, groups with commas
/// between; `*` for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList {
    everybody: bool,
    users: Vec<String>,
    groups: Vec<String>,
}

impl AccessList {
    /// Reads a list. Every text is one.
    pub fn parse(text: &str) -> AccessList {
        let text = text.trim_end();
        if text.trim() == "*" {
            return AccessList { everybody: true, ..AccessList::default() };
        }
        let (users, groups) = text.split_once(' ').unwrap_or((text, ""));
        let names = |text: &str| -> Vec<String> {
            text.split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect()
        };
        AccessList { everybody: false, users: names(users), groups: names(groups) }
    }

    /// Whether a user of these groups is on the list.
    pub fn admits(&self, user: &str, groups: &[String]) -> bool {
        self.everybody
            || self.users.iter().any(|name| name == user)
            || self.groups.iter().any(|name| groups.contains(name))
    }
}

/// A configuration of the job tracker service that can be used.
pub type LoadedJobTracker = LoadedService<JobTrackerServiceSettings>;

impl Source<'_> {
    /// Reads the property files as the job tracker service does. The errors are all that is wrong.
    pub fn load_job_tracker(&self) -> Result<LoadedJobTracker, ConfigErrors> {
        self.load_service(|reader| reader.read_job_tracker())
    }
}

impl Source<'_> {
    /// Reads the settings of a remote job tracker: those of the service, with what the configuration of
    /// its job says about the cluster above the files of this node. The errors are all that is wrong.
    pub fn load_remote_job_tracker(
        &self,
        job_xml: &Path,
    ) -> Result<LoadedJobTracker, ConfigErrors> {
        let node = self.load_job_tracker()?;
        let conf = JobConf::read(&node.site, job_xml)?;
        let of_cluster = keys::ALL.iter().filter(|key| {
            let usage =
                matches!(key.usage, keys::Use::Used | keys::Use::Files | keys::Use::JobService);
            (usage || key.name == keys::TT_DEFAULT_FS.name) && key.kind != keys::Kind::Secret
        });
        let of_job = of_cluster.filter_map(|key| Some((key.name.to_owned(), conf.get(key.name)?)));
        let overrides: Vec<(String, String)> =
            self.overrides.iter().cloned().chain(of_job).collect();
        Source { overrides: &overrides, ..*self }.load_job_tracker()
    }
}

impl SettingsReader<'_> {
    pub(super) fn read_job_tracker(mut self) -> (JobTrackerServiceSettings, Vec<InForce>) {
        let reports = self.value(&keys::PROXY_JOB_TRACKER_RPC, typed::address);
        let proxy = self.value(&keys::PROXY_JOB_TRACKER_THRIFT, typed::address);
        let list = |text: String| AccessList::parse(&text);
        let settings = JobTrackerServiceSettings {
            tls: self.tls(),
            cluster_manager: self.value(&keys::SERVER_ADDRESS, typed::address),
            cluster_manager_pages: self.value(&keys::HTTP_ADDRESS, typed::address),
            node_pages_port: self.port_beside(&keys::TT_HTTP_ADDRESS).unwrap_or(0),
            finished_job_pages: self.finished_jobs(),
            proxy_job_tracker: self.is_set(&keys::PROXY_JOB_TRACKER_THRIFT).then_some(proxy),
            proxy_job_tracker_reports: self.is_set(&keys::PROXY_JOB_TRACKER_RPC).then_some(reports),
            session_expiry: Duration::from_millis(self.session_expiry_ms().max(0).unsigned_abs()),
            node_expiry: self.span(&keys::NODE_EXPIRY),
            address: self.value(&keys::JT_ADDRESS, typed::address),
            http_address: self.value(&keys::JT_HTTP_ADDRESS, typed::address),
            notification_port: self.number(&keys::JT_NOTIFICATION_PORT),
            data_dir: self.text(&keys::JT_DATA_DIR).into(),
            journal_sync: self.value(&keys::JT_JOURNAL_SYNC, journal::sync),
            journal_image_bytes: self.number(&keys::JT_JOURNAL_IMAGE),
            system_dir: self.value(&keys::JT_SYSTEM_DIR, typed::directory),
            system_dir_is_set: self.is_set(&keys::JT_SYSTEM_DIR),
            deliver_files: self.value(&keys::JT_DELIVER_FILES, typed::boolean),
            job_files_max_bytes: self.number(&keys::JT_JOB_FILES_MAX),
            job_files_max_total_bytes: self.number(&keys::JT_JOB_FILES_TOTAL),
            job_output_max_user_bytes: self.number(&keys::JT_JOB_OUTPUT_USER),
            job_output_max_total_bytes: self.number(&keys::JT_JOB_OUTPUT_TOTAL),
            job_output_retention: Duration::from_secs(
                3600 * self.number::<u64>(&keys::JT_JOB_OUTPUT_RETAIN),
            ),
            cluster_file: self.path(&keys::JT_CLUSTER_FILE),
            build_version: self.text(&keys::JT_BUILD_VERSION),
            heartbeat_interval: self.span(&keys::JT_HEARTBEAT),
            max_events: self.number(&keys::JT_MAX_EVENTS),
            rpc_max_connections: self.number(&keys::JT_RPC_CONNECTIONS),
            max_jobs: self.number(&keys::JT_MAX_JOBS),
            max_jobs_from: keys::JT_MAX_JOBS.name.to_owned(),
            max_jobs_memory: self.number(&keys::JT_JOBS_MEMORY),
            max_jobs_memory_from: keys::JT_JOBS_MEMORY.name.to_owned(),
            max_waiting_jobs: self.number(&keys::JT_MAX_WAITING_JOBS),
            max_jobs_per_user: self.number(&keys::JT_MAX_JOBS_PER_USER),
            max_tasks: self.number(&keys::JT_MAX_TASKS),
            max_split_bytes: self.number(&keys::JT_MAX_SPLIT_BYTES),
            max_queued_inputs: self.number(&keys::JT_MAX_QUEUED),
            finished_jobs: self.number(&keys::JT_FINISHED_JOBS),
            finished_tasks: self.number(&keys::JT_FINISHED_TASKS),
            max_remote_state_bytes: self.number(&keys::JT_MAX_REMOTE_STATE),
            max_java_heap_mib: self.number(&keys::JT_MAX_HEAP),
            node_unreachable: self.span(&keys::JT_NODE_UNREACHABLE),
            launch_connect_timeout: self.span(&keys::JT_CONNECT_TIMEOUT),
            submission_wait: self.span(&keys::JT_SUBMISSION_WAIT),
            launch_call_timeout: self.span(&keys::JT_CALL_TIMEOUT),
            parent_connect_timeout: self.span(&keys::JT_PARENT_CONNECT_TIMEOUT),
            parent_call_timeout: self.span(&keys::JT_PARENT_CALL_TIMEOUT),
            linger: self.span(&keys::JT_LINGER),
            rpc_max_total_inflight_bytes: self.number(&keys::JT_RPC_TOTAL),
            submitters: list(self.text(&keys::JT_SUBMITTERS)),
            viewers: list(self.text(&keys::JT_VIEWERS)),
            administrators: list(self.text(&keys::JT_ADMINISTRATORS)),
            web: JobTrackerWebSettings {
                admin_networks: self.value(&keys::JT_ADMIN_NETWORKS, access::networks),
                networks: self.value(&keys::JT_WEB_NETWORKS, access::networks),
                kill_token: self.value(&keys::JT_WEB_KILL_TOKEN, typed::secret),
                max_connections: self.number(&keys::JT_WEB_MAX_CONNECTIONS),
                max_connections_per_peer: self.number(&keys::JT_WEB_MAX_PER_PEER),
                probe_connections: self.number(&keys::JT_WEB_PROBES),
                hosts: self.value(&keys::JT_WEB_HOSTS, web::hosts),
            },
        };
        self.look_at_the_rest();
        self.hide_secrets();
        (settings, self.in_force)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests;

    fn load(overrides: &[(&str, &str)]) -> Result<LoadedJobTracker, ConfigErrors> {
        let overrides = tests::overrides(overrides);
        Source { overrides: &overrides, ..Source::default() }.load_job_tracker()
    }

    #[test]
    fn every_key_of_the_service_is_read() {
        let loaded = load(&[]).unwrap();
        tests::every_key_is_read(
            &loaded.in_force,
            [keys::Use::JobService, keys::Use::JobServiceOwn],
        );
        assert_eq!(loaded.settings.proxy_job_tracker, None);
    }

    #[test]
    fn sessions_expire_as_the_cluster_manager_computes_it() {
        let expiry = |overrides: &[_]| load(overrides).unwrap().settings.session_expiry;
        assert_eq!(expiry(&[]), Duration::from_millis(3_125_000));
        assert_eq!(expiry(&[("cm.session.expiryinterval", "8000")]), Duration::from_secs(8));
        // Five seconds, times one and the factor of four.
        assert_eq!(expiry(&[("cm.notifier.retry.max", "2")]), Duration::from_secs(25));
    }

    #[test]
    fn values_reach_their_settings() {
        let effects = [
            ("corona.jt.address", "jt:6666", "port: 6666"),
            ("mapred.job.tracker.http.address", "jt:7777", "port: 7777"),
            ("corona.jt.notification.port", "9", "notification_port: 9"),
            ("corona.jt.data.dir", "/seven", "data_dir: \"/seven\""),
            ("corona.jt.journal.sync", "always", "journal_sync: Always"),
            ("corona.jt.journal.image.bytes", "9", "journal_image_bytes: 9"),
            ("corona.system.dir", "/seven", "system_dir: \"/seven\""),
            ("corona.jt.deliver.files", "true", "deliver_files: true"),
            ("corona.jt.job.files.max.bytes", "7", "job_files_max_bytes: 7"),
            ("corona.jt.job.files.max.total.bytes", "7", "job_files_max_total_bytes: 7"),
            ("corona.jt.job.output.max.user.bytes", "7", "job_output_max_user_bytes: 7"),
            ("corona.jt.job.output.max.total.bytes", "7", "job_output_max_total_bytes: 7"),
            ("corona.jt.job.output.retain.hours", "7", "job_output_retention: 25200s"),
            ("corona.jt.cluster.file", "/seven", "cluster_file: Some(\"/seven\")"),
            ("corona.jt.build.version", "seven", "build_version: \"seven\""),
            ("corona.proxy.job.tracker.rpcaddr", "proxy:4444", "port: 4444"),
            ("corona.jobtracker.heartbeat.interval", "1234", "heartbeat_interval: 1.234s"),
            ("corona.jobtracker.tce.per.rpc", "7", "max_events: 7"),
            ("corona.jt.rpc.max.connections", "7", "rpc_max_connections: 7"),
            ("corona.jt.max.jobs", "7", "max_jobs: 7"),
            ("corona.jt.max.jobs.memory.bytes", "7000000", "max_jobs_memory: 7000000"),
            ("corona.jt.max.waiting.jobs", "7", "max_waiting_jobs: 7"),
            ("corona.jt.max.jobs.per.user", "7", "max_jobs_per_user: 7"),
            ("corona.jt.max.tasks.per.job", "7", "max_tasks: 7"),
            ("corona.jt.max.split.file.bytes", "70000", "max_split_bytes: 70000"),
            ("corona.jt.max.queued.inputs", "7", "max_queued_inputs: 7"),
            ("corona.jt.finished.jobs", "7", "finished_jobs: 7"),
            ("corona.jt.finished.tasks", "7", "finished_tasks: 7"),
            ("mapred.child.java.max.memory.mb", "7", "max_java_heap_mib: 7"),
            ("corona.jt.node.unreachable.ms", "1234", "node_unreachable: 1.234s"),
            ("corona.jt.launch.connect.timeout.ms", "1234", "launch_connect_timeout: 1.234s"),
            ("corona.jt.submission.wait.ms", "1234", "submission_wait: 1.234s"),
            ("corona.jt.launch.call.timeout.ms", "1234", "launch_call_timeout: 1.234s"),
            ("corona.jt.parent.connect.timeout.ms", "1234", "parent_connect_timeout: 1.234s"),
            ("corona.jt.parent.call.timeout.ms", "1234", "parent_call_timeout: 1.234s"),
            ("corona.jt.linger.ms", "1234", "linger: 1.234s"),
            ("corona.jt.rpc.max.total.inflight.bytes", "70000", "inflight_bytes: 70000"),
            ("corona.jt.submitters", "seven", "users: [\"seven\"]"),
            ("corona.jt.viewers", "seven", "users: [\"seven\"]"),
            ("corona.jt.administrators", "seven", "users: [\"seven\"]"),
            ("corona.jt.admin.networks", "10.0.0.7", "admin_networks: Networks([10.0.0.7/32])"),
            ("corona.jt.web.networks", "10.0.0.7", " networks: Networks([10.0.0.7/32])"),
            ("corona.jt.web.kill.token", "seven times seven", "kill_token: Some"),
            ("corona.jt.web.max.connections", "7", "max_connections: 7"),
            ("corona.jt.web.max.connections.per.peer", "7", "max_connections_per_peer: 7"),
            ("corona.jt.web.probe.connections", "7", "probe_connections: 7"),
            ("corona.jt.web.hosts", "seven", "hosts: [\"seven\"]"),
        ];
        tests::values_reach_their_settings(&effects, |set| load(set).unwrap().settings);
        assert!(load(&[("corona.jt.address", "nowhere")]).is_err());
    }

    #[test]
    fn secrets_reach_no_job() {
        let token = "seven times seven";
        let loaded =
            load(&[("corona.jt.web.kill.token", token), ("corona.cm.web.kill.token", token)]);
        let loaded = loaded.unwrap();
        assert!(loaded.settings.web.kill_token.is_some());
        assert!(
            !format!("{:?} {:?} {:?}", loaded.site, loaded.in_force, loaded.settings)
                .contains(token)
        );
    }

    #[test]
    fn an_access_list_names_users_and_groups() {
        let groups =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let list = AccessList::parse("alice,bob staff,ops");
        assert!(list.admits("alice", &[]) && list.admits("bob", &[]));
        assert!(list.admits("carol", &groups(&["ops"])));
        assert!(!list.admits("carol", &groups(&["alice"])) && !list.admits("staff", &[]));
        assert!(AccessList::parse(" * ").admits("anybody", &[]));
        assert!(!AccessList::parse("").admits("", &groups(&[""])));
        assert!(AccessList::parse(" staff").admits("x", &groups(&["staff"])));
    }
}
