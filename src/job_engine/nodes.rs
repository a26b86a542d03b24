//! The nodes on which a job had slots, and the hosts that it knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use corona_mapreduce::JobSettings;
use serde::{Deserialize, Serialize};

use super::input::{GrantedSlot, NodeUsage, Tracker};

/// A host, as a small number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct HostIdx(u32);

/// A node, as a small number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct NodeIdx(u32);

/// Names of hosts, each once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Hosts {
    names: Vec<Arc<str>>,
    numbers: BTreeMap<Arc<str>, HostIdx>,
}

impl Hosts {
    pub(super) fn number(&mut self, name: &Arc<str>) -> HostIdx {
        *self.numbers.entry(name.clone()).or_insert_with(|| {
            self.names.push(name.clone());
            HostIdx(self.names.len() as u32 - 1)
        })
    }

    pub(super) fn name(&self, host: HostIdx) -> &Arc<str> {
        &self.names[host.0 as usize]
    }
}

/// A node on which the job has or had a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Node {
    pub(super) name: Arc<str>,
    pub(super) host: HostIdx,
    /// The address of its latest grant.
    address: Arc<str>,
    /// Where map output can be fetched, once a heartbeat said so: host, port, and both as a URL.
    pub(super) http: Option<Http>,
    /// The cluster manager has given it up and has not granted it again.
    pub(super) lost: bool,
    pub(super) launched: u32,
    pub(super) succeeded: u32,
    pub(super) killed: u32,
    pub(super) failed: u32,
    pub(super) timeouts: u32,
    pub(super) failed_connections: u32,
}

/// Where map output of a node can be fetched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Http {
    pub(super) host: Arc<str>,
    pub(super) port: i32,
    pub(super) url: Arc<str>,
}

impl Node {
    /// Whether the job starts nothing here any more. Spec: mapreduce/05 §5.5. So many attempts that time
    /// out are as bad as failed connections: a node that takes orders and reports nothing is of no use
    /// either. They are not added up, since a launch that failed is both.
    pub(super) fn is_faulty(&self, settings: &JobSettings) -> bool {
        self.lost
            || self.failed_connections > settings.max_failed_connections
            || self.timeouts > settings.max_failed_connections
            || self.failed > settings.max_node_failures
    }

    pub(super) fn tracker(&self) -> Tracker {
        Tracker { node: self.name.clone(), address: self.address.clone() }
    }

    /// The entry of the feedback. Jobs that did not succeed blame no node for failures.
    pub(super) fn usage(&self, job_succeeded: bool) -> NodeUsage {
        NodeUsage {
            node: self.name.clone(),
            total: self.launched,
            succeeded: self.succeeded,
            killed: self.killed,
            failed: if job_succeeded { self.failed } else { 0 },
            timeouts: self.timeouts,
            failed_connections: self.failed_connections,
        }
    }
}

/// All nodes of a job, in the order of their first grants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    numbers: BTreeMap<Arc<str>, NodeIdx>,
}

impl Nodes {
    pub(super) fn find(&self, name: &str) -> Option<NodeIdx> {
        self.numbers.get(name).copied()
    }

    /// Enters the node of a grant. A node that is granted again after its loss is there again.
    pub(super) fn granted(&mut self, slot: &GrantedSlot, host: HostIdx) -> NodeIdx {
        if let Some(known) = self.find(&slot.node) {
            let node = &mut self[known];
            node.lost = false;
            node.host = host;
            node.address = slot.address.clone();
            return known;
        }
        let number = NodeIdx(self.nodes.len() as u32);
        self.numbers.insert(slot.node.clone(), number);
        self.nodes.push(Node {
            name: slot.node.clone(),
            host,
            address: slot.address.clone(),
            http: None,
            lost: false,
            launched: 0,
            succeeded: 0,
            killed: 0,
            failed: 0,
            timeouts: 0,
            failed_connections: 0,
        });
        number
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    pub(super) fn numbered(&self) -> impl Iterator<Item = (NodeIdx, &Node)> {
        (0..).map(NodeIdx).zip(&self.nodes)
    }
}

impl std::ops::Index<NodeIdx> for Nodes {
    type Output = Node;

    fn index(&self, node: NodeIdx) -> &Node {
        &self.nodes[node.0 as usize]
    }
}

impl std::ops::IndexMut<NodeIdx> for Nodes {
    fn index_mut(&mut self, node: NodeIdx) -> &mut Node {
        &mut self.nodes[node.0 as usize]
    }
}
