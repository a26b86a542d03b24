//! A cluster without machines: the built program, nodes that only heartbeat, and sessions that
//! request slots and accept their grants.

use std::path::Path;

use compat_tests::cluster_peers::{Caller, Driver};
use compat_tests::{launch, start};
use corona::conformance::launch::{Launch, LaunchedManager};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// The token to end sessions from a page.
pub(crate) const TOKEN: &str = "let me end this session";

pub(crate) struct Cluster {
    manager: LaunchedManager,
    pub(crate) calls: Caller,
    driver: Driver,
    _directory: TempDir,
}

impl Cluster {
    /// Starts the program with pools, waits and host files, and some settings more.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Cluster {
        let directory = tempfile::tempdir().expect("a directory for the configuration");
        write_configuration(directory.path());
        let path = |file: &str| directory.path().join(file).display().to_string();
        let own = [
            ("cm.state", &*path("cm.state")),
            // Nodes of these tests heartbeat once.
            ("corona.cm.node.late.heartbeats", "0"),
            ("cm.hosts", &path("include")),
            ("cm.hosts.exclude", &path("exclude")),
            ("corona.cm.web.kill.token", TOKEN),
        ];
        let conf_dir = Some(directory.path().to_path_buf());
        let manager = start(&Launch { conf_dir, ..launch(&[&own, settings].concat()) });
        let calls = Caller::open(manager.thrift());
        Cluster { manager, calls, driver: Driver::start(), _directory: directory }
    }

    /// The address of a page.
    pub(crate) fn address(&self, path: &str) -> String {
        format!("http://{}{path}", self.manager.http().expect("it has pages"))
    }

    pub(crate) fn node(&mut self, name: &str, host: &str, cpus: i16) {
        let free = json!({ "numCpus": cpus, "networkMBps": 1000, "memoryMB": 40_000,
                           "diskGB": 2000 });
        self.calls.heartbeat(name, host, cpus, &json!({ "free": free }));
    }

    /// Starts a session and returns its handle.
    pub(crate) fn session(&mut self, name: &str, user: &str, pool: (&str, &str)) -> String {
        let more = json!({
            "name": name, "userId": user, "priority": "NORMAL", "noPreempt": false,
            "poolInfoStrings": { "poolGroupName": pool.0, "poolName": pool.1 },
            "url": "http://proxy.example.com/job?id=1.1&page=details",
        });
        self.calls.session(self.driver.port, &more)
    }

    /// Requests slots of a type, near some hosts or anywhere.
    pub(crate) fn ask(
        &mut self,
        handle: &str,
        kind: &str,
        ids: std::ops::RangeInclusive<i32>,
        hosts: &[&str],
    ) {
        self.calls.request(handle, ids, &json!({ "hosts": hosts, "type": kind }));
    }

    /// Reports a session's use of memory, and that it has received all its notifications.
    pub(crate) fn heartbeat(&mut self, handle: &str, request_id: i32) {
        const GIB: i64 = 1 << 30;
        let usages = json!({
            "MAP": [3 * GIB, 9 * GIB, 2 * GIB + 12_345], "REDUCE": [5 * GIB, 6 * GIB, 4 * GIB],
        });
        let info = json!({ "requestId": request_id, "grantId": 0, "resourceUsages": usages });
        let args = json!({ "handle": handle, "heartbeatArgs": info });
        self.calls.notify("sessionHeartbeatV2", &args);
    }

    /// Reports failures on a node.
    pub(crate) fn complain(&mut self, handle: &str, node: &str) {
        let report = json!({
            "nodeName": node, "numTotalTasks": 3, "numSucceeded": 0, "numKilled": 0, "numFailed": 3,
            "numTimeout": 0, "numSlow": 0, "numFailedConnections": 0,
        });
        let args = json!({ "handle": handle, "resourceTypes": ["MAP"], "stats": [report] });
        self.calls.notify("nodeFeedback", &args);
    }

    /// Handles of all sessions that run.
    pub(crate) fn running(&mut self) -> Vec<String> {
        let handle = |session: &Json| session["handle"].as_str().expect("a handle").to_owned();
        self.calls.sessions().iter().map(handle).collect()
    }
}

fn write_configuration(directory: &Path) {
    let property = |(name, value): &(&str, &str)| {
        format!("<property><name>{name}</name><value>{value}</value></property>\n")
    };
    let properties: String = [
        ("cm.cpu.to.resource.partitioning", "{\"1\":{\"MAP\":2,\"REDUCE\":1,\"JOBTRACKER\":1}}"),
        ("cm.config.file", "corona.xml"),
        ("cm.pools.config.file", "pools.xml"),
        ("cm.node.max.failures", "0"),
        ("cm.node.max.failures.session", "1"),
        ("cm.session.expiryinterval", "600000"),
        ("cm.unheard.of", "1"),
    ]
    .iter()
    .map(property)
    .collect();
    let pools = "<configuration>
  <group name=\"ads\">
    <maxMAP>90</maxMAP>
    <pool name=\"nightly\"><minMAP>30</minMAP><minREDUCE>8</minREDUCE><weight>2.0</weight></pool>
    <pool name=\"adhoc\"><maxMAP>12</maxMAP><preemptable>false</preemptable></pool>
  </group>
  <group name=\"search\">
    <minMAP>20</minMAP>
    <pool name=\"index\"><minMAP>20</minMAP><schedulingMode>FIFO</schedulingMode></pool>
    <pool name=\"crawl\"/>
  </group>
</configuration>";
    let general = "<configuration>
  <defaultSchedulingMode>FAIR</defaultSchedulingMode>
  <nodeLocalityWaitMAP>600000</nodeLocalityWaitMAP>
  <rackLocalityWaitMAP>600000</rackLocalityWaitMAP>
  <redirect source=\"ads.old\" destination=\"ads.nightly\"/>
</configuration>";
    let hosts: String = (1..=14).map(|number| format!("node{number:02}.example.com\n")).collect();
    for (file, text) in [
        ("core-site.xml", format!("<configuration>\n{properties}</configuration>")),
        ("corona.xml", general.to_owned()),
        ("pools.xml", pools.to_owned()),
        ("include", format!("{hosts}absent.example.com\n")),
        ("exclude", String::new()),
    ] {
        std::fs::write(directory.join(file), text).expect("the configuration can be written");
    }
}
