//! Import of packet captures: classic pcap and pcapng in, TCP connections with their bytes out.
//!
//! Knows no cluster and no Thrift. A capture is hostile input: whatever the file holds, reading it
//! ends, within the memory that [`Limits`] allow, and with all that was good before the damage.

mod clock;
mod file;
mod order;
mod packet;
mod stream;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod written;

use std::io::{self, Read};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use clock::Clock;
use file::Packet;
use order::Sorter;
use packet::Unusable;
use table::{ConnectionTable, TableEvent};

/// The connections of a capture file, in the order in which they were opened.
#[derive(Clone, Debug)]
pub struct Capture {
    /// When the first packet was taken: microseconds since the Unix epoch.
    pub started_at_us: u64,
    /// The connections, each with all that happened on it.
    pub connections: Vec<Connection>,
    /// Counts of packets that were read and that were skipped.
    pub packets: PacketCounts,
    /// How the file ended.
    pub ending: Ending,
}

/// One TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its number in the capture, from 0.
    pub id: ConnectionId,
    /// The two ends of a connection, and its time.
    pub opening: Opening,
    /// Whether the server took the connection; false when it was refused or never answered.
    pub accepted: bool,
    /// Data, ends and resets of both directions in the order of time.
    pub events: Vec<StreamEvent>,
}

/// The number of a connection within its capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// How a connection begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The end that opened it; a guess by port if the capture began later than the connection.
    pub client: SocketAddr,
    /// The end that listens.
    pub server: SocketAddr,
    /// Time of the first packet, since the first packet of the capture.
    pub at: Duration,
    /// Whether the capture holds the beginning. If not, the first bytes may be the middle of a
    /// message.
    pub whole: bool,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The side that opened it.
    Client,
    /// The side that listens.
    Server,
}

impl Side {
    /// The opposite end.
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// The client's or the server's of both.
    pub(crate) fn of<T>(self, [client, server]: [T; 2]) -> T {
        match self {
            Self::Client => client,
            Self::Server => server,
        }
    }
}

/// An event at one end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// When, since the first packet of the capture, in whole microseconds. Data that was lost on
    /// the way or overtaken counts from when the reader could have it.
    pub at: Duration,
    /// The end that did it.
    pub from: Side,
    /// The event.
    pub what: EventKind,
}

/// The events of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// These bytes were sent.
    Data(Vec<u8>),
    /// This many bytes were sent, but are not in the capture.
    Missing(u64),
    /// Nothing more will be sent (FIN).
    End,
    /// The connection was reset (RST).
    Reset,
}

/// How the reading of a capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// At the end of the file.
    Complete,
    /// The file ends within a packet, as that of a killed tcpdump.
    Truncated,
    /// The rest of the file cannot be read.
    Damaged,
    /// This one of the [`Limits`] was reached.
    LimitReached(&'static str),
    /// The reader of the events wanted no more.
    Stopped,
}

/// How many packets of a capture could be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// TCP segments, which the connections are made of.
    pub used: u64,
    /// Packets of other protocols.
    pub other_protocols: u64,
    /// Pieces of IP packets, which are not put together.
    pub fragments: u64,
    /// Packets of an interface whose link type is not known.
    pub unknown_link_types: u64,
    /// Packets whose headers cannot be read.
    pub malformed: u64,
}

/// The limits of an import.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest packet, in bytes. Default 1 MiB.
    pub packet_bytes: usize,
    /// Connections that are followed at a time; beyond it the stalest one is taken as ended.
    /// Default 65,536.
    pub connections: usize,
    /// Interfaces of a section. Default 4,096.
    pub interfaces: usize,
    /// Data of one direction that waits for a hole to be filled, in bytes. Default 4 MiB.
    pub waiting_bytes: usize,
    /// The same over all connections, in bytes. Default 64 MiB.
    pub all_waiting_bytes: usize,
    /// How long a hole may stay open once the receiver has acknowledged it; ten times that when
    /// the capture has no acknowledgements. Default one second.
    pub hole_patience: Duration,
    /// Memory of all connections of a [`Capture`] together, in bytes. Default 1 GiB.
    pub kept_bytes: usize,
    /// Ports of known servers: they distinguish client from server if the capture does not contain
    /// the start of a connection.
    pub server_ports: Vec<u16>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            packet_bytes: 1 << 20,
            connections: 1 << 16,
            interfaces: 1 << 12,
            waiting_bytes: 4 << 20,
            all_waiting_bytes: 64 << 20,
            hole_patience: Duration::from_secs(1),
            kept_bytes: 1 << 30,
            server_ports: Vec::new(),
        }
    }
}

/// Why a capture could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Neither classic pcap nor pcapng nor a recording.
    #[error("not a packet capture and not a recording: neither a pcap nor a pcapng header")]
    NotACapture,
    /// A file without a byte.
    #[error("the file is empty")]
    Empty,
    /// A recording that a later program wrote.
    #[error("a recording of version {0}, which this program does not read")]
    UnknownVersion(u16),
    /// A recording whose first bytes are damaged.
    #[error("a recording with a damaged header")]
    DamagedHeader,
    /// The file could not be read.
    #[error("cannot read the capture: {0}")]
    Read(io::Error),
}

/// The events of an import.
#[derive(Debug)]
pub enum Imported {
    /// A new connection.
    Opened(ConnectionId, Opening),
    /// The server took a connection.
    Accepted(ConnectionId),
    /// Something on a connection. Events of one direction come in the order of time; those of two
    /// directions or connections nearly so.
    Event(ConnectionId, StreamEvent),
}

/// The summary of a file that [`import`] has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportSummary {
    /// See [`Capture::started_at_us`].
    pub started_at_us: u64,
    /// See [`Capture::packets`].
    pub packets: PacketCounts,
    /// See [`Capture::ending`].
    pub ending: Ending,
}

impl Capture {
    /// Reads a whole capture. Fails only if `source` is not a capture or cannot be read;
    /// [`Capture::ending`] reports a damaged rest.
    pub fn read(source: impl Read + Send, limits: &Limits) -> Result<Self, CaptureError> {
        let mut collector = Collector::new(limits);
        let summary = import(source, limits, |imported| collector.take(imported))?;
        Ok(collector.finish(summary))
    }
}

/// Collects events into a [`Capture`], within the memory that limits allow.
pub(crate) struct Collector {
    connections: Vec<Connection>,
    kept_bytes: usize,
    allowed_bytes: usize,
}

impl Collector {
    pub(crate) fn new(limits: &Limits) -> Self {
        Collector { connections: Vec::new(), kept_bytes: 0, allowed_bytes: limits.kept_bytes }
    }

    /// Keeps an event, or breaks when the limit is reached.
    pub(crate) fn take(&mut self, imported: Imported) -> ControlFlow<()> {
        self.kept_bytes = self.kept_bytes.saturating_add(cost(&imported));
        if self.kept_bytes > self.allowed_bytes {
            return ControlFlow::Break(());
        }
        keep(&mut self.connections, imported);
        ControlFlow::Continue(())
    }

    /// All events, in the order of time.
    pub(crate) fn finish(self, summary: ImportSummary) -> Capture {
        let mut connections = self.connections;
        for connection in &mut connections {
            connection.events.sort_by_key(|event| event.at);
        }
        connections.sort_by_key(|connection| connection.opening.at);
        let full = self.kept_bytes > self.allowed_bytes;
        Capture {
            started_at_us: summary.started_at_us,
            connections,
            packets: summary.packets,
            ending: if full { Ending::LimitReached("kept bytes") } else { summary.ending },
        }
    }
}

/// Connections are numbered in the order of their events.
fn keep(connections: &mut Vec<Connection>, imported: Imported) {
    let place = |id: ConnectionId| usize::try_from(id.0).unwrap_or(usize::MAX);
    match imported {
        Imported::Opened(id, opening) => {
            connections.push(Connection {
                id,
                accepted: !opening.whole,
                opening,
                events: Vec::new(),
            });
        }
        Imported::Accepted(id) => {
            if let Some(connection) = connections.get_mut(place(id)) {
                connection.accepted = true;
            }
        }
        Imported::Event(id, event) => {
            if let Some(connection) = connections.get_mut(place(id)) {
                connection.events.push(event);
            }
        }
    }
}

fn cost(imported: &Imported) -> usize {
    match imported {
        Imported::Opened(..) => size_of::<Connection>(),
        Imported::Accepted(_) => 0,
        Imported::Event(_, event) => {
            let data = if let EventKind::Data(data) = &event.what { data.len() } else { 0 };
            size_of::<StreamEvent>() + data
        }
    }
}

/// Reads a capture and passes its events to `sink`, without keeping them; for captures larger than
/// memory. `sink` ends the import by breaking.
pub fn import(
    source: impl Read + Send,
    limits: &Limits,
    mut sink: impl FnMut(Imported) -> ControlFlow<()>,
) -> Result<ImportSummary, CaptureError> {
    let mut table = ConnectionTable::default();
    let mut packets = PacketCounts::default();
    let mut clock = Clock::default();
    let mut wanted = ControlFlow::Continue(());
    let mut sorter = Sorter::default();
    let mut take = |packet: Packet<'_>| {
        clock.shows(packet.at_us);
        match packet::segment(packet.link_type, packet.bytes) {
            Ok(segment) => {
                packets.used += 1;
                clock.is_at_least(table.latest(&segment));
                table.segment(clock.now(), &segment, limits, &mut pass(&mut sink, &mut wanted));
            }
            Err(Unusable::OtherProtocol) => packets.other_protocols += 1,
            Err(Unusable::Fragment) => packets.fragments += 1,
            Err(Unusable::UnknownLinkType) => packets.unknown_link_types += 1,
            Err(Unusable::Malformed) => packets.malformed += 1,
        }
        if wanted.is_break() { Err(Ending::Stopped) } else { Ok(()) }
    };
    let ending = file::read_packets(source, limits, |packet| sorter.take(&packet, &mut take))?;
    // The packets before the end count, even if the end is damaged.
    let ending = sorter.finish(&mut take).err().unwrap_or(ending);
    if wanted.is_continue() {
        table.finish(clock.now(), &mut pass(&mut sink, &mut wanted));
    }
    Ok(ImportSummary { started_at_us: clock.started_at_us(), packets, ending })
}

fn pass<'a>(
    sink: &'a mut dyn FnMut(Imported) -> ControlFlow<()>,
    wanted: &'a mut ControlFlow<()>,
) -> impl FnMut(TableEvent) + 'a {
    move |told| {
        if wanted.is_continue() {
            *wanted = sink(match told {
                TableEvent::Opened(id, opening) => Imported::Opened(id, opening),
                TableEvent::Accepted(id) => Imported::Accepted(id),
                TableEvent::Event(id, event) => Imported::Event(id, event),
            });
        }
    }
}
