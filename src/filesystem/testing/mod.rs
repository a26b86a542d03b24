//! A small HDFS in one process, for tests: a name node and data nodes that follow the specification
//! strictly, and fail as a test asks them to. Nothing is kept on disk. Spec: hdfs/01 §1.10.

mod data_node;
mod name_node;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use data_node::{DataNode, Faults};
pub use name_node::{NameNode, NameNodeFault};

use crate::FileSystemSettings;
use corona_hadoop::protocols::client_protocol::Served;
use corona_hadoop::rpc::{Limits, Server, Services};

/// The namespace of the cluster.
pub const NAMESPACE: i32 = 83_248_249;

/// A running cluster. It ends when this is dropped.
#[derive(Debug)]
pub struct MiniCluster {
    /// The name node.
    pub name_node: Arc<NameNode>,
    /// The data nodes. New blocks go to the first ones that can take them.
    pub data_nodes: Vec<Arc<DataNode>>,
    port: u16,
    tasks: Vec<JoinHandle<()>>,
    _stop: watch::Sender<bool>,
}

impl MiniCluster {
    /// A cluster of so many data nodes on loopback.
    ///
    /// # Panics
    /// When it cannot listen.
    pub async fn start(count: usize) -> MiniCluster {
        let (stop, stopped) = watch::channel(false);
        let (mut data_nodes, mut tasks) = (Vec::new(), Vec::new());
        let name_node = Arc::new(NameNode::default());
        for number in 0..count {
            let started = DataNode::start(number, name_node.clone(), stopped.clone()).await;
            let (node, running) = started;
            tasks.extend(running);
            data_nodes.push(node);
        }
        for node in &data_nodes {
            node.set_peers(data_nodes.iter().map(Arc::downgrade).collect());
        }
        name_node.set_data_nodes(data_nodes.iter().map(|node| node.info()).collect());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let services = Services::new().offer(Served::new(name_node.clone()));
        let server = Server::new(listener, services, Limits::default());
        tasks.push(tokio::spawn(server.run(stopped)));
        MiniCluster { name_node, data_nodes, port, tasks, _stop: stop }
    }

    /// `host:port` of the name node.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Settings of a client of this cluster: small blocks, short pauses.
    pub fn settings(&self) -> FileSystemSettings {
        FileSystemSettings {
            default_fs: format!("hdfs://{}/", self.address()),
            user: "alice".to_owned(),
            groups: vec!["users".to_owned()],
            replication: 2,
            block_bytes: 64 << 10,
            connect_patience: Duration::ZERO,
            acquire_window: Duration::from_millis(10),
            create_pause: Duration::from_millis(10),
            ..FileSystemSettings::default()
        }
    }
}

impl Drop for MiniCluster {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
