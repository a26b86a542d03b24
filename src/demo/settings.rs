//! The configuration of the demo's cluster manager, as files, since those may be edited and are read
//! again while it runs.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::Options;
use super::machine::{HEARTBEAT_SECONDS, Machines};
use super::pace::Pace;

/// Seconds of the demo without a heartbeat after which a node is dead.
pub(super) const NODE_EXPIRY_SECONDS: f64 = 15.0;
/// How long a pool may lack its minimum before slots are preempted for it.
const STARVING_SECONDS: f64 = 4.0;
/// A session without heartbeats is given up after so many milliseconds, at any pace.
pub(super) const SESSION_EXPIRY_MS: u64 = 60_000;

const GENERAL: &str = "general.xml";
const POOLS: &str = "pools.xml";
const EXCLUDED: &str = "hosts.exclude";

/// A directory that is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// A new one that only this user can read, below the system's directory for such.
    pub(super) fn create() -> io::Result<Directory> {
        let base = std::env::temp_dir();
        let mut number = 0_u32;
        loop {
            let path = base.join(format!("corona-demo-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Directory(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                    number += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Files that cannot be removed stay.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes the scheduling files and the list of excluded hosts, which is empty.
pub(super) fn write(directory: &Directory, machines: &Machines, pace: Pace) -> io::Result<()> {
    let path = |name: &str| directory.path().join(name);
    fs::write(path(GENERAL), general(pace))?;
    fs::write(path(POOLS), pools(machines.slots().map))?;
    fs::write(path(EXCLUDED), "")
}

/// All that differs from the defaults.
pub(super) fn overrides(
    directory: &Directory,
    machines: &Machines,
    options: &Options,
    pace: Pace,
) -> Vec<(String, String)> {
    let path = |name: &str| directory.path().join(name).display().to_string();
    let rack = |host: &str, rack: usize| format!("{host}=/rack{rack}");
    let racks: Vec<String> =
        machines.all().iter().map(|machine| rack(&machine.host, machine.rack)).collect();
    let overrides = [
        ("cm.server.address", format!("localhost:{}", options.thrift_port)),
        ("cm.server.http.address", format!("localhost:{}", options.web_port)),
        ("cm.config.file", path(GENERAL)),
        ("cm.pools.config.file", path(POOLS)),
        ("cm.config.reload.period.ms", "2000".into()),
        ("cm.hosts.exclude", path(EXCLUDED)),
        ("cm.state", path("cm.state")),
        ("cm.cpu.to.resource.partitioning", Machines::partitioning()),
        // Four missed heartbeats make a node late, as on a real cluster.
        ("corona.clustermanager.heartbeat.interval", pace.millis(HEARTBEAT_SECONDS)),
        ("cm.node.expiryinterval", pace.millis(NODE_EXPIRY_SECONDS)),
        // Two sessions with two failed tasks each are enough for a node to be blacklisted.
        ("cm.node.max.failures", "1".into()),
        ("cm.node.max.failures.session", "1".into()),
        ("cm.session.expiryinterval", SESSION_EXPIRY_MS.to_string()),
        ("topology.node.switch.mapping.impl", "org.apache.hadoop.net.StaticMapping".into()),
        ("hadoop.configured.node.mapping", racks.join(",")),
        // Emulated nodes have no pages to which the cluster manager could link.
        ("mapred.task.tracker.http.address", "0.0.0.0:0".into()),
        ("corona.cm.web.sample.period.ms", pace.millis(1.0).max("100".into())),
    ];
    overrides.map(|(key, value)| (key.to_owned(), value)).to_vec()
}

fn general(pace: Pace) -> String {
    format!(
        "<?xml version=\"1.0\"?>
<!-- Times are milliseconds, and much shorter than on a real cluster. -->
<configuration>
  <defaultSchedulingMode>FAIR</defaultSchedulingMode>
  <nodeLocalityWaitMAP>{wait}</nodeLocalityWaitMAP>
  <rackLocalityWaitMAP>{wait}</rackLocalityWaitMAP>
  <starvingTimeForMinimum>{minimum}</starvingTimeForMinimum>
  <starvingTimeForShare>{share}</starvingTimeForShare>
  <minPreemptPeriod>{minimum}</minPreemptPeriod>
</configuration>
",
        wait = pace.millis(1.0),
        minimum = pace.millis(STARVING_SECONDS),
        share = pace.millis(60.0),
    )
}

/// `slots` are the MAP slots of the cluster.
fn pools(slots: i64) -> String {
    let percent = |part: i64| (slots * part / 100).max(1);
    format!(
        "<?xml version=\"1.0\"?>
<!-- Edit this file while the demo runs: it is read again within two seconds. -->
<configuration>
  <group name=\"production\">
    <minMAP>{sixty}</minMAP>
    <pool name=\"nightly\">
      <minMAP>{fifty}</minMAP>
    </pool>
    <pool name=\"reports\">
      <minMAP>{ten}</minMAP>
    </pool>
  </group>
  <group name=\"ads\">
    <pool name=\"pipeline\">
      <weight>2.0</weight>
    </pool>
    <pool name=\"experiments\">
      <maxMAP>{fifteen}</maxMAP>
    </pool>
  </group>
  <group name=\"research\">
    <pool name=\"adhoc\">
      <maxMAP>{fifteen}</maxMAP>
    </pool>
    <pool name=\"backfill\"/>
  </group>
</configuration>
",
        sixty = percent(60),
        fifty = percent(50),
        fifteen = percent(15),
        ten = percent(10),
    )
}
