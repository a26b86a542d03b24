//! A cluster without machines: the built program, nodes that only heartbeat, and sessions that
//! request slots and accept their grants.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use compat_tests::corona_program;
use compat_tests::serving::serve;
use corona::conformance::launch::{Launch, LaunchedManager};
use corona::wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply, SessionDriver,
    SessionDriverCall, SessionDriverReply,
};
use corona::wire::client::{Client, ClientOptions};
use corona::wire::generated::*;
use corona::wire::server::{Answer, Peer};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The token to end sessions from a page.
pub(crate) const TOKEN: &str = "let me end this session";

pub(crate) struct Cluster {
    runtime: Runtime,
    manager: LaunchedManager,
    client: Client<ClusterManager>,
    driver: SocketAddr,
    /// The session drivers' server lives as long as this.
    _stop: watch::Sender<bool>,
    _directory: TempDir,
}

impl Cluster {
    /// Starts the program with pools, waits and host files, and some settings more.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Cluster {
        let directory = tempfile::tempdir().expect("a directory for the configuration");
        write_configuration(directory.path());
        let path = |file: &str| directory.path().join(file).display().to_string();
        let mut overrides: Vec<(String, String)> = [
            ("cm.server.address", "localhost:0".to_owned()),
            ("cm.server.http.address", "localhost:0".to_owned()),
            ("cm.state", path("cm.state")),
            // Nodes of these tests heartbeat once.
            ("corona.cm.node.late.heartbeats", "0".to_owned()),
            ("cm.hosts", path("include")),
            ("cm.hosts.exclude", path("exclude")),
            ("corona.cm.web.kill.token", TOKEN.to_owned()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into();
        overrides.extend(settings.iter().map(|(key, value)| ((*key).into(), (*value).into())));
        let launch = Launch {
            program: corona_program().to_path_buf(),
            conf_dir: Some(directory.path().to_path_buf()),
            overrides,
            arguments: vec![],
            ready_within: Duration::from_secs(30),
        };
        let manager = launch.start().unwrap_or_else(|error| panic!("{error}"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime for the peers");
        let (driver, stop, client) = runtime.block_on(async {
            let (driver, stop) = serve::<SessionDriver>(driver_answers);
            let client = Client::connect(manager.thrift(), ClientOptions::default()).await;
            (driver, stop, client.expect("the program takes calls"))
        });
        Cluster { runtime, manager, client, driver, _stop: stop, _directory: directory }
    }

    /// The address of a page.
    pub(crate) fn address(&self, path: &str) -> String {
        format!("http://{}{path}", self.manager.http().expect("it has pages"))
    }

    pub(crate) fn call(&mut self, call: Call) -> Reply {
        let Cluster { runtime, client, .. } = self;
        runtime.block_on(client.call(&call)).expect("the call is answered")
    }

    pub(crate) fn node(&mut self, name: &str, host: &str, cpus: i16) {
        let specs = |memory_mb| ComputeSpecs::new(cpus, Some(1000), Some(memory_mb), Some(2000));
        let apps = [ResourceType::MAP, ResourceType::REDUCE, ResourceType::JOBTRACKER]
            .map(|kind| (kind, format!("{host}:{}", 9000 + kind.0)));
        let node = ClusterNodeInfo {
            name: name.into(),
            address: InetAddress::new(host.into(), 8021),
            total: specs(65_536),
            free: Some(specs(40_000)),
            resource_infos: Some(BTreeMap::from(apps)),
            ended: None,
            program: None,
        };
        self.call(Call::NodeHeartbeat { node: Some(node) });
    }

    /// Starts a session and returns its handle.
    pub(crate) fn session(&mut self, name: &str, user: &str, pool: (&str, &str)) -> String {
        let Reply::GetNextSessionId(handle) = self.call(Call::GetNextSessionId) else {
            unreachable!("the client gives the reply of the method")
        };
        let info = SessionInfo {
            address: InetAddress::new(self.driver.ip().to_string(), self.driver.port().into()),
            name: name.into(),
            user_id: user.into(),
            group_ids: None,
            pool_info_strings: Some(PoolInfoStrings::new(pool.0.into(), pool.1.into())),
            priority: Some(SessionPriority::NORMAL),
            no_preempt: Some(false),
            url: Some(format!("http://proxy.example.com/job?id={handle}&page=details")),
            deadline: None,
        };
        self.call(Call::SessionStart { handle: Some(handle.clone()), info: Some(info) });
        handle
    }

    /// Asks for slots of a type, near some hosts or anywhere.
    pub(crate) fn ask(
        &mut self,
        handle: &str,
        kind: ResourceType,
        ids: std::ops::RangeInclusive<i32>,
        hosts: &[&str],
    ) {
        let request = |id| ResourceRequest {
            id,
            hosts: Some(hosts.iter().map(ToString::to_string).collect()),
            specs: Some(ComputeSpecs::new(1, Some(10), Some(1024), Some(10))),
            type_: kind,
            exclude_hosts: None,
        };
        let requests = Some(ids.map(request).collect());
        self.call(Call::RequestResource { handle: Some(handle.into()), requests });
    }

    pub(crate) fn release(&mut self, handle: &str, ids: std::ops::RangeInclusive<i32>) {
        let ids = Some(ids.collect());
        self.call(Call::ReleaseResource { handle: Some(handle.into()), ids });
    }

    /// Reports a session's use of memory, and that it has received all its notifications.
    pub(crate) fn heartbeat(&mut self, handle: &str, request_id: i32) {
        const GIB: i64 = 1 << 30;
        let usages = [
            (ResourceType::MAP, vec![3 * GIB, 9 * GIB, 2 * GIB + 12_345]),
            (ResourceType::REDUCE, vec![5 * GIB, 6 * GIB, 4 * GIB]),
        ];
        let args = HeartbeatArgs {
            request_id,
            grant_id: 0,
            resource_usages: BTreeMap::from(usages),
            program: None,
        };
        self.call(Call::SessionHeartbeatV2 { handle: Some(handle.into()), args: Some(args) });
    }

    /// Reports failures on a node.
    pub(crate) fn complain(&mut self, handle: &str, node: &str) {
        let report = NodeUsageReport {
            node_name: node.into(),
            num_total_tasks: 3,
            num_succeeded: 0,
            num_killed: 0,
            num_failed: 3,
            num_timeout: 0,
            num_slow: 0,
            num_failed_connections: 0,
        };
        let types = Some(vec![ResourceType::MAP]);
        let (handle, reports) = (Some(handle.into()), Some(vec![report]));
        self.call(Call::NodeFeedback { handle, types, reports });
    }

    pub(crate) fn end(&mut self, handle: &str, status: SessionStatus) {
        self.call(Call::SessionEnd { handle: Some(handle.into()), status: Some(status) });
    }

    /// Handles of all sessions that run.
    pub(crate) fn running(&mut self) -> Vec<String> {
        let Reply::GetSessions(sessions) = self.call(Call::GetSessions) else {
            unreachable!("the client gives the reply of the method")
        };
        sessions.into_iter().map(|session| session.handle).collect()
    }
}

async fn driver_answers(_peer: Peer, call: SessionDriverCall) -> Answer<SessionDriverReply> {
    Answer::Reply(match call {
        SessionDriverCall::GrantResource { .. } => SessionDriverReply::GrantResource,
        SessionDriverCall::RevokeResource { .. } => SessionDriverReply::RevokeResource,
        SessionDriverCall::ProcessDeadNode { .. } => SessionDriverReply::ProcessDeadNode,
    })
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
