//! The conversations between the programs of a cluster: the connections of a capture, cut into
//! Thrift messages.
//!
//! Cutting follows the wire (spec: cluster-manager/01 §1, §2). Whatever is no message is kept as it
//! was: peers that break the protocol are part of a recording, too.

mod cutter;
mod managers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::capture::{Capture, Connection, ConnectionId, EventKind, Side};
use corona_wire::calls::{ClusterManager, ProxyJobTracker, SessionDriver};
use corona_wire::schema::ServiceSchema;
use corona_wire::value::{Message, RawMessage, StreamReader, Value};
use corona_wire::{Framing, Service};

pub(crate) use cutter::{Cutter, StreamPiece};
pub use managers::{FoundManager, managers};

/// Which service the server of a conversation offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Offered {
    /// A cluster manager: framed.
    ClusterManager,
    /// A proxy job tracker: framed.
    ProxyJobTracker,
    /// A session driver: bare.
    SessionDriver,
}

/// The ports whose services are known beforehand. Those of session drivers are found in the
/// registrations of their sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Where the cluster manager takes calls.
    pub cluster_manager: u16,
    /// Its addresses, if there are other cluster managers on that port; empty for any.
    pub cluster_manager_at: BTreeSet<IpAddr>,
    /// Where the proxy job tracker takes Thrift calls, if it is known.
    pub proxy_job_tracker: Option<u16>,
}

/// One connection as a conversation.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The connection in the capture.
    pub connection: ConnectionId,
    /// The caller's address.
    pub client: SocketAddr,
    /// The server's address.
    pub server: SocketAddr,
    /// The service that was called.
    pub service: Offered,
    /// When it was opened, since the first packet of the capture.
    pub opened_at: Duration,
    /// Whether the capture holds its beginning.
    pub whole: bool,
    /// Whether the server took it.
    pub accepted: bool,
    /// Messages and ends, in the order of time.
    pub parts: Vec<Part>,
}

/// Messages of one side, or the end of its side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// When its last byte came, since the first packet of the capture.
    pub at: Duration,
    /// The side that sent it.
    pub from: Side,
    /// The contents.
    pub what: Said,
}

/// The contents of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Whole messages: one as a rule; several when they share a frame.
    Messages {
        /// The bytes on the stream, frame lengths included.
        raw: Vec<u8>,
        /// The messages in them.
        messages: Vec<Message>,
    },
    /// Bytes that are no message.
    Bytes(Vec<u8>),
    /// This number of bytes is missing from the capture.
    Missing(u64),
    /// The side sends no more.
    End,
    /// The side reset the connection.
    Reset,
}

impl Ports {
    /// Whether the cluster manager may listen at this address.
    pub(crate) fn has_manager(&self, at: SocketAddr) -> bool {
        self.cluster_manager_at.is_empty() || self.cluster_manager_at.contains(&at.ip())
    }
}

impl Offered {
    /// The service in the contract.
    pub fn schema(self) -> &'static ServiceSchema {
        match self {
            Self::ClusterManager => ClusterManager::schema(),
            Self::ProxyJobTracker => ProxyJobTracker::schema(),
            Self::SessionDriver => SessionDriver::schema(),
        }
    }

    /// How its messages follow one another.
    pub fn framing(self) -> Framing {
        match self {
            Self::ClusterManager | Self::ProxyJobTracker => Framing::Framed,
            Self::SessionDriver => Framing::Bare,
        }
    }
}

/// The conversations of a capture with the cluster manager, the proxy job tracker and the session
/// drivers, in the order in which they were opened. Other connections are left out.
pub fn conversations(capture: &Capture, ports: &Ports) -> Vec<Conversation> {
    conversations_of_known_servers(capture, ports, &BTreeMap::new())
}

/// The same if the protocols of some connections' servers are known, whatever their ports.
pub fn conversations_of_known_servers(
    capture: &Capture,
    ports: &Ports,
    known: &BTreeMap<ConnectionId, Offered>,
) -> Vec<Conversation> {
    let mut services = BTreeMap::from([(ports.cluster_manager, Offered::ClusterManager)]);
    if let Some(port) = ports.proxy_job_tracker {
        services.insert(port, Offered::ProxyJobTracker);
    }
    let mut found: Vec<_> = capture
        .connections
        .iter()
        .filter_map(|connection| match known.get(&connection.id) {
            Some(service) => Some(cut(connection, *service, false)),
            None => cut_by_port(connection, &services),
        })
        .filter(|one| one.service != Offered::ClusterManager || ports.has_manager(one.server))
        .collect();
    let drivers: BTreeSet<u16> = found.iter().flat_map(session_driver_ports).collect();
    let drivers: BTreeMap<u16, Offered> = drivers
        .into_iter()
        .filter(|port| !services.contains_key(port))
        .map(|port| (port, Offered::SessionDriver))
        .collect();
    let others = capture.connections.iter().filter(|other| !known.contains_key(&other.id));
    found.extend(others.filter_map(|connection| cut_by_port(connection, &drivers)));
    let at_port = capture.connections.iter().map(|connection| connection.opening.server);
    let at_port = at_port.filter(|server| server.port() == ports.cluster_manager);
    let strangers: BTreeSet<IpAddr> =
        at_port.filter(|server| !ports.has_manager(*server)).map(|server| server.ip()).collect();
    found.retain(|one| {
        one.service == Offered::ClusterManager || !strangers.contains(&one.client.ip())
    });
    found.sort_by_key(|conversation| (conversation.opened_at, conversation.connection));
    found
}

fn cut_by_port(connection: &Connection, services: &BTreeMap<u16, Offered>) -> Option<Conversation> {
    let opening = &connection.opening;
    if let Some(service) = services.get(&opening.server.port()) {
        return Some(cut(connection, *service, false));
    }
    // The capture does not show which end of this connection is the server: this is a guess by port.
    let service = services.get(&opening.client.port()).filter(|_| !opening.whole)?;
    Some(cut(connection, *service, true))
}

/// Cuts one connection; `turned` when client and server were guessed the wrong way round.
fn cut(connection: &Connection, service: Offered, turned: bool) -> Conversation {
    let opening = &connection.opening;
    let cutter = || Cutter::new(service, opening.whole);
    let mut client = cutter();
    let mut server = cutter();
    let mut parts = Vec::new();
    for event in &connection.events {
        let from = if turned { event.from.other() } else { event.from };
        let cutter = if from == Side::Client { &mut client } else { &mut server };
        let at = event.at;
        let mut take = |at, piece| parts.push(Part { at, from, what: decoded(piece) });
        let what = match &event.what {
            EventKind::Data(data) => {
                cutter.data(at, data, &mut take);
                continue;
            }
            EventKind::Missing(bytes) => {
                cutter.lose(&mut take);
                Said::Missing(*bytes)
            }
            EventKind::End => {
                cutter.finish(&mut take);
                Said::End
            }
            EventKind::Reset => {
                cutter.finish(&mut take);
                Said::Reset
            }
        };
        parts.push(Part { at, from, what });
    }
    for (from, mut cutter) in [(Side::Client, client), (Side::Server, server)] {
        cutter.finish(&mut |at, piece| parts.push(Part { at, from, what: decoded(piece) }));
    }
    parts.sort_by_key(|part| part.at);
    let (caller, called) =
        if turned { (opening.server, opening.client) } else { (opening.client, opening.server) };
    Conversation {
        connection: connection.id,
        client: caller,
        server: called,
        service,
        opened_at: opening.at,
        whole: opening.whole,
        accepted: connection.accepted,
        parts,
    }
}

fn decoded(piece: StreamPiece) -> Said {
    match piece {
        StreamPiece::Messages { raw, messages } => {
            Said::Messages { raw, messages: messages.iter().map(RawMessage::decode).collect() }
        }
        StreamPiece::Bytes(bytes) => Said::Bytes(bytes),
    }
}

impl Conversation {
    /// All messages with their times and senders.
    pub fn messages(&self) -> impl Iterator<Item = (&Part, &Message)> {
        self.parts.iter().flat_map(|part| {
            let messages = match &part.what {
                Said::Messages { messages, .. } => messages.as_slice(),
                _ => &[],
            };
            messages.iter().map(move |message| (part, message))
        })
    }
}

/// The typed calls of whole messages, from their bytes. Messages that a server would refuse are left out.
pub fn typed_calls<S: Service>(raw: &[u8]) -> Vec<S::Call> {
    let mut reader = StreamReader::new(S::schema(), S::FRAMING, raw.len());
    reader.push(raw);
    let mut calls = Vec::new();
    while let Ok(Some(call)) = reader.next_call::<S>() {
        calls.extend(call);
    }
    calls
}

/// The ports at which the sessions that start in a conversation expect their notifications.
fn session_driver_ports(conversation: &Conversation) -> Vec<u16> {
    let starts = conversation.messages().filter(|(part, message)| {
        part.from == Side::Client && message.name == "sessionStart" && !message.kind.is_answer()
    });
    let port = |message: &Message| {
        let info = message.body.as_ref().ok()?.field("info")?;
        match info.field("address")?.field("port")? {
            Value::I32(port) => u16::try_from(*port).ok(),
            _ => None,
        }
    };
    starts.filter_map(|(_, message)| port(message)).collect()
}
