//! A cluster in one process: an embedded cluster manager, nodes that do nothing but heartbeat, and
//! trouble.

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use corona::cluster_manager::{Beginning, ClusterManager};
use corona::config;
use corona::session_driver::{
    Endpoint, Event, Options, PoolName, ResourceType, SessionDriver, SessionStatus, SlotRequest,
};
use corona::wire::calls::{ClusterManager as Contract, ClusterManagerCall};
use corona::wire::client::{Client, ClientOptions};
use corona::wire::generated::ResourceType as WireType;
use corona::wire::generated::{ClusterNodeInfo, ComputeSpecs, InetAddress};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{interval, sleep};

const NODES: usize = 4;
/// CPUs of a node, which are its slots.
const CPUS: i16 = 4;
/// When the rival comes, and when a node dies, after the start of the work.
const RIVAL_AFTER: Duration = Duration::from_secs(1);
const DEATH_AFTER: Duration = Duration::from_secs(5);
/// Slots that the rival takes: the minimum of its pool.
const RIVAL_SLOTS: usize = 6;
const RIVAL_HOLDS: Duration = Duration::from_secs(3);

/// A cluster that is there until this is dropped.
pub(crate) struct Demo {
    port: u16,
    nodes: Vec<AbortHandle>,
    _stop: watch::Sender<bool>,
    /// Holds the scheduling files, which are read again and again.
    _files: TempDir,
}

impl Demo {
    pub(crate) async fn start() -> anyhow::Result<Demo> {
        let files = TempDir::with_prefix("slots-demo")?;
        let (general, pools) = (files.path().join("corona.xml"), files.path().join("pools.xml"));
        fs::write(&general, include_str!("corona.xml"))?;
        fs::write(&pools, include_str!("pools.xml"))?;
        let overrides = [
            ("cm.server.address", "localhost:0".into()),
            ("cm.server.http.address", "localhost:0".into()),
            ("cm.config.file", general.display().to_string()),
            ("cm.pools.config.file", pools.display().to_string()),
            ("cm.cpu.to.resource.partitioning", format!("{{\"{CPUS}\":{{\"MAP\":{CPUS}}}}}")),
            ("cm.node.expiryinterval", "2000".into()),
            ("cm.state", files.path().join("cm.state").display().to_string()),
        ];
        let overrides = overrides.map(|(key, value): (&str, String)| (key.to_owned(), value));
        let manager =
            ClusterManager::bind(config::load(None, &overrides)?, Beginning::Resume).await?;
        let port = manager.thrift_address().port();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(manager.run(stopped));
        let mut nodes = Vec::new();
        for number in 1..=NODES {
            nodes.push(start_node(port, number).await?);
        }
        Ok(Demo { port, nodes, _stop: stop, _files: files })
    }

    pub(crate) fn cluster_manager(&self) -> Endpoint {
        Endpoint::new(Ipv4Addr::LOCALHOST.to_string(), self.port)
    }

    /// Lets a rival come and a node die. `options` are those of a session at this cluster.
    pub(crate) fn make_trouble(&self, options: &Options) {
        let mut rival = options.clone();
        rival.name = Some("nightly".into());
        rival.pool = PoolName::new("production", "nightly");
        tokio::spawn(async move {
            sleep(RIVAL_AFTER).await;
            // The work is shown, not the rival; without it there is less to see.
            let _ = run_rival(rival).await;
        });
        if let Some(doomed) = self.nodes.last().cloned() {
            tokio::spawn(async move {
                sleep(DEATH_AFTER).await;
                doomed.abort();
            });
        }
    }
}

async fn run_rival(options: Options) -> anyhow::Result<()> {
    let (driver, mut events) = SessionDriver::start(options).await?;
    driver.request(vec![SlotRequest::new(ResourceType::Map); RIVAL_SLOTS])?;
    while driver.snapshot().grants().count() < RIVAL_SLOTS {
        match events.next().await {
            Some(Event::Revoked(lost) | Event::DeadNode { lost, .. }) => {
                driver.replace(&lost)?;
            }
            Some(Event::Ended(_)) | None => return Ok(()),
            Some(_) => {}
        }
    }
    sleep(RIVAL_HOLDS).await;
    driver.end(SessionStatus::Successful).await;
    Ok(())
}

/// A node that heartbeats until it is aborted.
async fn start_node(port: u16, number: usize) -> anyhow::Result<AbortHandle> {
    let host = format!("10.0.0.{number}");
    let specs = ComputeSpecs::new(CPUS, 1000, 64 << 10, 1000);
    let node = ClusterNodeInfo {
        name: format!("node{number}"),
        address: InetAddress::new(host.clone(), 7001),
        total: specs.clone(),
        free: Some(specs),
        resource_infos: Some([(WireType::MAP, format!("{host}:7002"))].into()),
        ended: None,
        program: None,
    };
    let report = ClusterManagerCall::NodeHeartbeat { node: Some(node) };
    let address = (Ipv4Addr::LOCALHOST, port);
    let mut client = Client::<Contract>::connect(address, ClientOptions::default()).await?;
    client.call(&report).await?;
    let heartbeats = async move {
        let mut due = interval(Duration::from_millis(300));
        while client.is_usable() {
            due.tick().await;
            let _ = client.call(&report).await;
        }
    };
    Ok(tokio::spawn(heartbeats).abort_handle())
}
