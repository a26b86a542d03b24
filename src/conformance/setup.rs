//! The configuration that a recording was made with: the values that a replay needs, and those that
//! must be changed to start another cluster manager with it on this machine.
//!
//! Knows configuration keys by name, since it hands them on as overrides; their meaning is the
//! [`config`](corona_config) room's.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::conversation::Ports;
use crate::replay::ReplayOptions;
use corona_config::{ConfigErrors, InForce, Loaded, Lookup, Source, keys};

/// A recorded configuration.
#[derive(Clone, Debug)]
pub struct RecordedSetup {
    /// Where the recorded programs listened.
    pub ports: Ports,
    /// `cm.session.expiryinterval`
    pub session_expiry: Duration,
    /// `cm.node.expiryinterval`
    pub node_expiry: Duration,
    /// `starvingTimeForMinimum` and `starvingTimeForShare`
    pub starving_times: [Duration; 2],
    /// `cm.cpu.to.resource.partitioning`, as JSON.
    pub partitioning: String,
    /// Whether `corona.cm.resources` has any beside slots.
    pub counts_resources: bool,
    /// `corona.history.max.per.dir`
    pub sessions_per_log_dir: i32,
    /// Files that are not at their recorded paths but in the directory: key and path.
    files: Vec<(&'static str, PathBuf)>,
}

impl RecordedSetup {
    /// Reads the configuration in `conf_dir`. A file that is named with a path that does not exist
    /// is looked up in `conf_dir` by its last name.
    pub fn read(conf_dir: &Path) -> Result<Self, ConfigErrors> {
        let source =
            Source { conf_dir: Some(conf_dir), overrides: &[], lookup: Lookup::AlsoByName };
        let Loaded { settings, in_force, .. } = source.load()?;
        let value = |key: &str| {
            let found = in_force.iter().find(|entry| entry.key == key);
            found.map(|entry| entry.value.clone())
        };
        let proxy = settings.proxy_job_tracker_address.port;
        Ok(Self {
            ports: Ports {
                cluster_manager: settings.server_address.port,
                proxy_job_tracker: Some(proxy),
                ..Ports::default()
            },
            session_expiry: milliseconds(settings.engine.session_expiry_ms),
            node_expiry: milliseconds(settings.engine.node_expiry_ms),
            starving_times: [
                settings.engine.scheduling.starving_time_for_minimum_ms,
                settings.engine.scheduling.starving_time_for_share_ms,
            ]
            .map(milliseconds),
            partitioning: value(keys::PARTITIONING.name).unwrap_or_default(),
            counts_resources: settings.engine.resources.are_counted(),
            sessions_per_log_dir: settings.engine.sessions_per_log_dir,
            files: moved_files(conf_dir, &in_force),
        })
    }

    /// The options of a replay at this speed.
    pub fn options(&self, name: &str, speed: f64) -> ReplayOptions {
        ReplayOptions {
            name: name.to_owned(),
            speed,
            session_expiry: Some(self.session_expiry),
            node_expiry: Some(self.node_expiry),
            starving_times: Some(self.starving_times),
            partitioning: Some(self.partitioning.clone()),
            counts_resources: self.counts_resources,
            sessions_per_log_dir: Some(self.sessions_per_log_dir),
            ..ReplayOptions::default()
        }
    }

    /// Settings with which another cluster manager starts on this machine as the recorded one did:
    /// on free ports, with the files of the recording, with `proxy` as its proxy job tracker, and
    /// with a state file that should not exist. At another speed than 1 nodes and sessions expire
    /// faster by as much; intervals in the scheduling files stay as they are. Where there are no pauses,
    /// they expire as recorded.
    pub fn overrides(
        &self,
        speed: f64,
        proxy: SocketAddr,
        state_file: &Path,
    ) -> Vec<(String, String)> {
        let any_port = "localhost:0".to_owned();
        let speed = if speed.is_finite() { speed } else { 1.0 };
        let faster = |interval: Duration| {
            let shorter = interval.div_f64(speed.max(f64::MIN_POSITIVE)).as_millis().max(1);
            shorter.to_string()
        };
        let mut overrides = vec![
            (keys::SERVER_ADDRESS.name, any_port.clone()),
            (keys::HTTP_ADDRESS.name, any_port),
            (keys::PROXY_JOB_TRACKER_THRIFT.name, proxy.to_string()),
            (keys::STATE_FILE.name, state_file.display().to_string()),
            // Each run starts empty.
            (keys::JOURNAL_DIR.name, "none".to_owned()),
            (keys::SESSION_EXPIRY.name, faster(self.session_expiry)),
            (keys::NODE_EXPIRY.name, faster(self.node_expiry)),
        ];
        let files = self.files.iter().map(|(key, path)| (*key, path.display().to_string()));
        overrides.extend(files);
        overrides.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

fn milliseconds(count: i64) -> Duration {
    Duration::from_millis(u64::try_from(count).unwrap_or(0))
}

/// Files that keys name and that lie in the directory instead.
fn moved_files(conf_dir: &Path, in_force: &[InForce]) -> Vec<(&'static str, PathBuf)> {
    let directory = std::path::absolute(conf_dir).unwrap_or_else(|_| conf_dir.to_path_buf());
    let moved = |entry: &InForce| {
        let name_of_file = [
            keys::GENERAL_FILE.name,
            keys::POOLS_FILE.name,
            keys::HOSTS.name,
            keys::HOSTS_EXCLUDE.name,
            keys::TOPOLOGY_SCRIPT.name,
        ];
        let path = Path::new(&entry.value);
        let beside = directory.join(path.file_name()?);
        let is_moved = name_of_file.contains(&entry.key) && !path.exists() && beside.is_file();
        is_moved.then_some((entry.key, beside))
    };
    in_force.iter().filter_map(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::directory;

    fn recorded(name: &str) -> RecordedSetup {
        RecordedSetup::read(&directory(name)).unwrap()
    }

    #[test]
    fn a_recorded_configuration_tells_ports_and_intervals() {
        let setup = recorded("scenarios/session_expiry");
        let ports =
            Ports { cluster_manager: 18_800, proxy_job_tracker: Some(18_802), ..Ports::default() };
        assert_eq!(setup.ports, ports);
        assert_eq!(setup.session_expiry, Duration::from_secs(2));
        assert_eq!(setup.node_expiry, Duration::from_secs(600));
        assert!(setup.partitioning.contains("JOBTRACKER"));
        let preemption = recorded("scenarios/preemption");
        assert_eq!(preemption.starving_times, [1_500, 600_000].map(Duration::from_millis));
    }

    #[test]
    fn files_beside_the_configuration_take_the_place_of_recorded_paths() {
        let setup = recorded("jobs/preempt");
        let proxy = "127.0.0.1:9".parse().unwrap();
        let overrides = setup.overrides(8.0, proxy, Path::new("/nowhere/state"));
        let value = |key: &str| {
            let found = overrides.iter().find(|(name, _)| name == key);
            found.map(|(_, value)| value.as_str()).unwrap()
        };
        assert!(value("cm.pools.config.file").ends_with("jobs/preempt/pools-preempt.xml"));
        assert!(value("cm.config.file").ends_with("jobs/preempt/corona-preempt.xml"));
        assert_eq!(value("corona.proxy.job.tracker.thriftaddr"), "127.0.0.1:9");
        assert_eq!(value("cm.server.address"), "localhost:0");
        assert_eq!(value("cm.node.expiryinterval"), "75000");
        let unhurried = setup.overrides(f64::INFINITY, proxy, Path::new("/nowhere/state"));
        assert!(unhurried.contains(&("cm.node.expiryinterval".into(), "600000".into())));
        assert_eq!(value("cm.state"), "/nowhere/state");
    }
}
