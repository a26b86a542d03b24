//! The settings of the proxy job tracker, and how they come from the keys. It reads no file.

use std::path::PathBuf;
use std::time::Duration;

use super::access::TlsSettings;
use super::problem::ConfigErrors;
use super::service::LoadedService;
use super::settings::SettingsReader;
use super::typed::{self, HostPort, Wrong};
use super::{InForce, Source, keys, web};

/// Everything that the proxy job tracker can be configured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyJobTrackerSettings {
    /// Whether TLS is spoken.
    pub tls: TlsSettings,
    /// The cluster manager's Thrift service.
    pub cluster_manager: HostPort,
    /// Where its pages are.
    pub cluster_manager_pages: HostPort,
    /// Port of the Thrift service.
    pub thrift: HostPort,
    /// Whether it listens on all addresses of this machine: if it is configured, and other machines may
    /// reach it.
    pub thrift_on_all: bool,
    /// Where Hadoop RPC listens.
    pub rpc: HostPort,
    /// Where the pages are.
    pub http: HostPort,
    /// The directory for the files of jobs.
    pub system_dir: String,
    /// The directory of the histories of all sessions.
    pub sessions_dir: String,
    /// Sessions whose histories share one directory, at least 1.
    pub sessions_per_dir: i32,
    /// The directories of the histories of classic job trackers, if there are any.
    pub classic_histories: Option<ClassicHistories>,
    /// The directory of the index.
    pub data_dir: PathBuf,
    /// Time between two searches for new histories.
    pub scan_interval: Duration,
    /// Jobs in the index.
    pub max_jobs: usize,
    /// Histories in memory.
    pub cached_histories: usize,
    /// Bytes of a history that are read.
    pub max_history_bytes: u64,
    /// How long a page waits for a file system.
    pub file_timeout: Duration,
    /// How long a connection to a job tracker is tried.
    pub relay_connect_timeout: Duration,
    /// How long a job tracker may take to answer, and between two parts of an answer.
    pub relay_timeout: Duration,
    /// Relayed requests at a time.
    pub max_relays: usize,
    /// Connections to the pages.
    pub max_connections: usize,
    /// Those of one peer.
    pub max_connections_per_peer: usize,
    /// Connections beyond these for monitors of the program.
    pub probe_connections: usize,
    /// Hosts to which requests are relayed, besides those of sessions; `*` for every host.
    pub relay_hosts: Vec<Box<str>>,
    /// Host names under which the pages are served, besides the machine's.
    pub hosts: Vec<Box<str>>,
    /// What is done with what has expired.
    pub clean_up: CleanUp,
    /// Directories of jobs: age and interval.
    pub job_files: (Duration, Duration),
    /// Directories of histories: age and interval.
    pub histories: (Duration, Duration),
    /// Files of the shared cache: time without access and interval.
    pub shared_cache: (Duration, Duration),
}

/// Where classic job trackers leave histories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicHistories {
    /// Of jobs that run.
    pub running: String,
    /// Of ended jobs.
    pub done: String,
}

/// What is done with directories and files that have expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CleanUp {
    /// They are deleted.
    #[default]
    Delete,
    /// What would be deleted is logged.
    Report,
    /// Nobody looks for them.
    Off,
}

fn clean_up(text: &str) -> Result<CleanUp, Wrong> {
    match text {
        "delete" => Ok(CleanUp::Delete),
        "report" => Ok(CleanUp::Report),
        "off" => Ok(CleanUp::Off),
        _ => Err(Wrong::new("is not one of the choices", "delete, report or off")),
    }
}

/// A configuration of the proxy job tracker that can be used.
pub type LoadedProxyJobTracker = LoadedService<ProxyJobTrackerSettings>;

impl Source<'_> {
    /// Reads the property files as the proxy job tracker does. The errors are all that is wrong.
    pub fn load_proxy_job_tracker(&self) -> Result<LoadedProxyJobTracker, ConfigErrors> {
        self.load_service(|reader| reader.read_proxy_job_tracker())
    }
}

impl SettingsReader<'_> {
    pub(super) fn read_proxy_job_tracker(mut self) -> (ProxyJobTrackerSettings, Vec<InForce>) {
        let http = match self.is_set(&keys::CLIENT_PROXY) {
            true => self.value(&keys::CLIENT_PROXY, typed::address),
            false => HostPort { host: "0.0.0.0".into(), port: 0 },
        };
        let [running, done] = [&keys::PJT_CLASSIC_HISTORIES, &keys::PJT_CLASSIC_DONE]
            .map(|key| self.value(key, typed::directory));
        let classic_histories = (!running.is_empty()).then(|| ClassicHistories {
            done: match &*done {
                "" => format!("{}/done", running.trim_end_matches('/')),
                _ => done,
            },
            running,
        });
        let settings = ProxyJobTrackerSettings {
            tls: self.tls(),
            classic_histories,
            cluster_manager: self.value(&keys::SERVER_ADDRESS, typed::address),
            cluster_manager_pages: self.value(&keys::HTTP_ADDRESS, typed::address),
            thrift: self.value(&keys::PROXY_JOB_TRACKER_THRIFT, typed::address),
            thrift_on_all: self.is_set(&keys::PROXY_JOB_TRACKER_THRIFT)
                && !self.value(&keys::LOOPBACK_ONLY, typed::boolean),
            rpc: self.value(&keys::PROXY_JOB_TRACKER_RPC, typed::address),
            http,
            system_dir: self.value(&keys::JT_SYSTEM_DIR, typed::directory),
            sessions_dir: self.value(&keys::SESSIONS_LOG_DIR, typed::directory),
            sessions_per_dir: self.number::<i32>(&keys::SESSIONS_PER_LOG_DIR).max(1),
            data_dir: self.text(&keys::PJT_DATA_DIR).into(),
            scan_interval: self.span(&keys::PJT_SCAN_INTERVAL),
            max_jobs: self.number(&keys::PJT_MAX_JOBS),
            cached_histories: self.number(&keys::PJT_HISTORY_CACHE),
            max_history_bytes: self.number(&keys::PJT_MAX_HISTORY_BYTES),
            file_timeout: self.span(&keys::PJT_FILE_TIMEOUT),
            relay_connect_timeout: self.span(&keys::PJT_RELAY_CONNECT_TIMEOUT),
            relay_timeout: self.span(&keys::PJT_RELAY_TIMEOUT),
            max_relays: self.number(&keys::PJT_MAX_RELAYS),
            max_connections: self.number(&keys::PJT_MAX_CONNECTIONS),
            max_connections_per_peer: self.number(&keys::PJT_MAX_CONNECTIONS_PER_PEER),
            probe_connections: self.number(&keys::PJT_PROBES),
            relay_hosts: self.value(&keys::PJT_RELAY_HOSTS, web::hosts),
            hosts: self.value(&keys::PJT_HOSTS, web::hosts),
            clean_up: self.value(&keys::PJT_CLEAN_UP, clean_up),
            job_files: (
                self.span(&keys::PJT_JOB_FILE_THRESHOLD),
                self.span(&keys::PJT_JOB_FILE_INTERVAL),
            ),
            histories: (
                self.span(&keys::PJT_HISTORY_THRESHOLD),
                self.span(&keys::PJT_HISTORY_INTERVAL),
            ),
            shared_cache: (
                self.span(&keys::PJT_SHARED_THRESHOLD),
                self.span(&keys::PJT_SHARED_INTERVAL),
            ),
        };
        self.look_at_the_rest();
        (settings, self.in_force)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests;

    fn load(overrides: &[(&str, &str)]) -> Result<LoadedProxyJobTracker, ConfigErrors> {
        let overrides = tests::overrides(overrides);
        Source { overrides: &overrides, ..Source::default() }.load_proxy_job_tracker()
    }

    #[test]
    fn every_key_of_the_service_is_read() {
        let loaded = load(&[]).unwrap();
        tests::every_key_is_read(&loaded.in_force, [keys::Use::Proxy, keys::Use::ProxyOwn]);
        assert_eq!(loaded.settings.http.to_string(), "0.0.0.0:0");
    }

    #[test]
    fn histories_and_files_of_jobs_are_not_in_object_stores() {
        for key in [
            "corona.sessions.log.dir",
            "corona.system.dir",
            "hadoop.job.history.location",
            "mapred.job.tracker.history.completed.location",
        ] {
            let refused = load(&[(key, "s3://bucket/dir")]).unwrap_err().to_string();
            assert!(refused.contains(key), "{refused}");
            assert!(refused.contains("is in an object store, where services keep no"), "{refused}");
        }
    }

    #[test]
    fn values_reach_their_settings() {
        let effects = [
            ("corona.proxy.job.tracker.rpcaddr", "pjt:6666", "port: 6666"),
            ("corona.proxy.job.tracker.thriftaddr", "pjt:7777", "port: 7777"),
            ("mapred.job.tracker.corona.proxyaddr", "pjt:5555", "port: 5555"),
            ("corona.sessions.log.dir", "/seven", "sessions_dir: \"/seven\""),
            ("corona.history.max.per.dir", "7", "sessions_per_dir: 7"),
            ("corona.system.dir", "/seven", "system_dir: \"/seven\""),
            ("hadoop.job.history.location", "/seven/", "done: \"/seven/done\""),
            ("mapred.job.tracker.jobhistory.lru.cache.size", "7", "cached_histories: 7"),
            ("mapred.job.file.expirethreshold", "1234", "job_files: (1.234s, 86400s)"),
            ("mapred.job.file.checkinterval", "1234", "job_files: (864000s, 1.234s)"),
            ("mapred.job.history.expirethreshold", "1234", "histories: (1.234s, 86400s)"),
            ("mapred.job.history.checkinterval", "1234", "histories: (864000s, 1.234s)"),
            ("mapred.cache.shared.expire_threshold", "1234", "shared_cache: (1.234s, 86400s)"),
            ("mapred.cache.shared.check_interval", "1234", "shared_cache: (86400s, 1.234s)"),
            ("corona.pjt.clean.up", "report", "clean_up: Report"),
            ("corona.pjt.data.dir", "/seven", "data_dir: \"/seven\""),
            ("corona.pjt.index.interval.ms", "1234", "scan_interval: 1.234s"),
            ("corona.pjt.index.max.jobs", "7", "max_jobs: 7"),
            ("corona.pjt.max.history.bytes", "70000", "max_history_bytes: 70000"),
            ("corona.pjt.file.timeout.ms", "1234", "file_timeout: 1.234s"),
            ("corona.pjt.relay.connect.timeout.ms", "1234", "relay_connect_timeout: 1.234s"),
            ("corona.pjt.relay.timeout.ms", "1234", "relay_timeout: 1.234s"),
            ("corona.pjt.relay.max.requests", "7", "max_relays: 7"),
            ("corona.pjt.relay.hosts", "seven", "relay_hosts: [\"seven\"]"),
            ("corona.pjt.http.max.connections", "7", "max_connections: 7"),
            ("corona.pjt.http.max.connections.per.peer", "7", "max_connections_per_peer: 7"),
            ("corona.pjt.http.probe.connections", "7", "probe_connections: 7"),
            ("corona.pjt.http.hosts", "seven", "hosts: [\"seven\"]"),
        ];
        tests::values_reach_their_settings(&effects, |set| load(set).unwrap().settings);
    }

    #[test]
    fn ended_jobs_of_classic_job_trackers_may_have_a_directory_of_their_own() {
        let location = ("hadoop.job.history.location", "file:/h");
        let done = ("mapred.job.tracker.history.completed.location", "hdfs://n:1/d");
        let classic = |own: &[_]| load(own).unwrap().settings.classic_histories;
        let both = ClassicHistories { running: "file:/h".into(), done: "hdfs://n:1/d".into() };
        assert_eq!(classic(&[location, done]), Some(both));
        assert_eq!(classic(&[done]), None);
    }

    #[test]
    fn wrong_values_are_refused_with_what_was_expected() {
        for (key, value, expected) in [
            ("corona.pjt.clean.up", "perhaps", "delete, report or off"),
            ("mapred.job.tracker.corona.proxyaddr", "nowhere", "host:port"),
            ("corona.pjt.index.max.jobs", "0", "jobs, 1 to"),
        ] {
            let problem = load(&[(key, value)]).unwrap_err().to_string();
            assert!(problem.contains(key) && problem.contains(value), "{problem}");
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
