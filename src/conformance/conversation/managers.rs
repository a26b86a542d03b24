//! The cluster managers of a capture: several may listen on one port, each at its own addresses.
//!
//! Addresses belong to one cluster manager if a node sends heartbeats to both. A cluster manager that serves
//! its own machine at another address gets calls there about sessions that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{Conversation, Offered};
use corona_wire::value::Value;

/// One cluster manager in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundManager {
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// The number of connections to it with messages.
    pub connections: usize,
}

/// What is known of the cluster manager at one address.
#[derive(Default)]
struct Seen<'a> {
    connections: usize,
    nodes: BTreeSet<&'a str>,
    sessions: BTreeSet<&'a str>,
}

/// The cluster managers that conversations were with, in the order of their addresses. Connections without a
/// message are left out.
pub fn managers(conversations: &[Conversation]) -> Vec<FoundManager> {
    let mut seen: BTreeMap<IpAddr, Seen<'_>> = BTreeMap::new();
    for one in conversations.iter().filter(|one| one.service == Offered::ClusterManager) {
        let mut messages = one.messages().peekable();
        if messages.peek().is_none() {
            continue;
        }
        let at = seen.entry(one.server.ip()).or_default();
        at.connections += 1;
        for (_, message) in messages {
            let Ok(body) = &message.body else { continue };
            let node = body.field("node").and_then(|node| node.field("name"));
            if let (true, Some(Value::String(name))) = (message.name == "nodeHeartbeat", node) {
                at.nodes.insert(name);
            }
            handles(body, &mut at.sessions);
        }
    }
    let mut found: Vec<(FoundManager, Seen<'_>)> = Vec::new();
    for (address, at) in seen {
        let (same, others) = found.into_iter().partition(|(_, other)| at.is_same(other));
        found = others;
        let new = FoundManager { addresses: [address].into(), connections: at.connections };
        found.push(Vec::into_iter(same).fold((new, at), together));
    }
    let mut found: Vec<FoundManager> = found.into_iter().map(|(manager, _)| manager).collect();
    found.sort_by(|one, other| one.addresses.cmp(&other.addresses));
    found
}

fn together<'a>(
    (mut one, mut seen): (FoundManager, Seen<'a>),
    (other, more): (FoundManager, Seen<'a>),
) -> (FoundManager, Seen<'a>) {
    one.addresses.extend(other.addresses);
    one.connections += other.connections;
    seen.nodes.extend(more.nodes);
    seen.sessions.extend(more.sessions);
    (one, seen)
}

impl Seen<'_> {
    /// Two cluster managers that started in the same minute hand out the same session ids, so these decide
    /// only where no node does.
    fn is_same(&self, other: &Self) -> bool {
        match self.nodes.is_empty() || other.nodes.is_empty() {
            true => !self.sessions.is_disjoint(&other.sessions),
            false => !self.nodes.is_disjoint(&other.nodes),
        }
    }
}

/// The handles of sessions in a message.
fn handles<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Struct(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(handle) if *name == "handle" => {
                        found.insert(handle);
                    }
                    other => handles(other, found),
                }
            }
        }
        Value::List(values) => values.iter().for_each(|value| handles(value, found)),
        _ => {}
    }
}
