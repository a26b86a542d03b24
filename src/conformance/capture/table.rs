//! The TCP connections of a capture: the segments of each, its client, and its end.
//!
//! Knows nothing of the connections' data. Closed connections stay known for a while, so that late
//! copies of their segments do not look like new ones.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use super::packet::Segment;
use super::stream::{Direction, SegmentPiece};
use super::{ConnectionId, EventKind, Limits, Opening, Side, StreamEvent};

/// The table's events, in the order in which it finds them.
#[derive(Debug)]
pub(super) enum TableEvent {
    /// A connection that was not known before.
    Opened(ConnectionId, Opening),
    /// The server answered the opening of a connection.
    Accepted(ConnectionId),
    /// Something on a connection.
    Event(ConnectionId, StreamEvent),
}

type Key = (SocketAddr, SocketAddr);

/// All connections that may still get segments.
#[derive(Default)]
pub(super) struct ConnectionTable {
    by_addresses: HashMap<Key, Tracked>,
    /// The same by the number of the latest segment, the stalest first.
    by_age: BTreeMap<u64, Key>,
    segments: u64,
    opened: u64,
    /// Data that waits beyond holes, over all connections.
    waiting_bytes: usize,
}

struct Tracked {
    id: ConnectionId,
    /// The time of its latest segment.
    latest: Duration,
    client: SocketAddr,
    age: u64,
    accepted: bool,
    closed: bool,
    /// Sequence numbers of the SYNs, client first.
    syn: [Option<u32>; 2],
    directions: [Direction; 2],
}

impl ConnectionTable {
    /// Takes one segment and emits the resulting events.
    pub(super) fn segment(
        &mut self,
        at: Duration,
        segment: &Segment<'_>,
        limits: &Limits,
        tell: &mut dyn FnMut(TableEvent),
    ) {
        let key = key(segment.from, segment.to);
        if self.starts_new_connection(&key, segment) {
            self.end(&key, at, tell);
        }
        self.segments += 1;
        let age = self.segments;
        if let Some(known) = self.by_addresses.get_mut(&key) {
            self.by_age.remove(&known.age);
            known.age = age;
            self.by_age.insert(age, key);
            known.latest = known.latest.max(at);
            let before = known.waiting_bytes();
            known.segment(at, segment, limits, tell);
            if self.waiting_bytes + known.waiting_bytes() > before + limits.all_waiting_bytes {
                known.finish(at, tell);
            }
            self.waiting_bytes = self.waiting_bytes + known.waiting_bytes() - before;
            return;
        }
        if segment.reset || !segment.syn && segment.data.is_empty() {
            // The tail of a connection from before the capture is useless.
            return;
        }
        while self.by_addresses.len() >= limits.connections.max(1) {
            let Some((_, stalest)) = self.by_age.first_key_value() else { break };
            let stalest = *stalest;
            self.end(&stalest, at, tell);
        }
        let mut tracked = self.open(at, segment, age, limits, tell);
        // A first segment leaves no hole before it, so nothing waits yet.
        tracked.segment(at, segment, limits, tell);
        self.by_age.insert(age, key);
        self.by_addresses.insert(key, tracked);
    }

    /// The time of the latest segment of an open connection that this segment belongs to as well.
    pub(super) fn latest(&self, segment: &Segment<'_>) -> Option<Duration> {
        let key = key(segment.from, segment.to);
        let known = self.by_addresses.get(&key).filter(|known| !known.closed)?;
        (!self.starts_new_connection(&key, segment)).then_some(known.latest)
    }

    /// Ends every connection where the capture ends.
    pub(super) fn finish(&mut self, at: Duration, tell: &mut dyn FnMut(TableEvent)) {
        for key in std::mem::take(&mut self.by_age).into_values() {
            if let Some(mut tracked) = self.by_addresses.remove(&key) {
                tracked.finish(at, tell);
            }
        }
    }

    /// Whether a SYN uses the addresses of a known connection again.
    fn starts_new_connection(&self, key: &Key, segment: &Segment<'_>) -> bool {
        let Some(known) = self.by_addresses.get(key) else { return false };
        if !segment.syn {
            return false;
        }
        if segment.acknowledged.is_some() {
            // The answer to a SYN: only where the SYN itself was not captured.
            let side = known.side_of(segment.from);
            return known.closed && side.of(known.syn) != Some(segment.sequence);
        }
        match known.syn[0] {
            Some(sequence) => sequence != segment.sequence || known.client != segment.from,
            None => {
                known.client != segment.from
                    || known.closed
                    || !known.directions[0].could_begin_with(segment.sequence)
            }
        }
    }

    fn open(
        &mut self,
        at: Duration,
        segment: &Segment<'_>,
        age: u64,
        limits: &Limits,
        tell: &mut dyn FnMut(TableEvent),
    ) -> Tracked {
        let from_client = match (segment.syn, segment.acknowledged) {
            (true, None) => true,
            (true, Some(_)) => false,
            (false, _) => looks_like_client(segment, limits),
        };
        let (client, server) =
            if from_client { (segment.from, segment.to) } else { (segment.to, segment.from) };
        self.opened += 1;
        let id = ConnectionId(self.opened - 1);
        tell(TableEvent::Opened(id, Opening { client, server, at, whole: segment.syn }));
        Tracked {
            id,
            latest: at,
            client,
            age,
            accepted: !segment.syn,
            closed: false,
            syn: [None, None],
            directions: [Direction::default(), Direction::default()],
        }
    }

    /// Takes a connection as ended and forgets it.
    fn end(&mut self, key: &Key, at: Duration, tell: &mut dyn FnMut(TableEvent)) {
        if let Some(mut tracked) = self.by_addresses.remove(key) {
            self.by_age.remove(&tracked.age);
            self.waiting_bytes -= tracked.waiting_bytes();
            tracked.finish(at, tell);
        }
    }
}

/// Servers are where many connect to: a port named in the limits, else the lower port.
fn looks_like_client(segment: &Segment<'_>, limits: &Limits) -> bool {
    let named = |address: SocketAddr| limits.server_ports.contains(&address.port());
    match (named(segment.from), named(segment.to)) {
        (true, false) => false,
        (false, true) => true,
        _ => segment.from.port() >= segment.to.port(),
    }
}

fn key(one: SocketAddr, other: SocketAddr) -> Key {
    if one <= other { (one, other) } else { (other, one) }
}

impl Tracked {
    fn side_of(&self, address: SocketAddr) -> Side {
        if address == self.client { Side::Client } else { Side::Server }
    }

    fn segment(
        &mut self,
        at: Duration,
        segment: &Segment<'_>,
        limits: &Limits,
        tell: &mut dyn FnMut(TableEvent),
    ) {
        if self.closed {
            return;
        }
        let side = self.side_of(segment.from);
        let id = self.id;
        if side == Side::Server && !self.accepted && !segment.reset {
            self.accepted = true;
            tell(TableEvent::Accepted(id));
        }
        let [client, server] = &mut self.directions;
        let (own, other) = match side {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        let mut out = |at, what| tell(TableEvent::Event(id, StreamEvent { at, from: side, what }));
        let mut first_byte = segment.sequence;
        if segment.syn {
            own.begin(segment.sequence);
            side.of(self.syn.each_mut()).get_or_insert(segment.sequence);
            first_byte = first_byte.wrapping_add(1);
        }
        if segment.reset {
            own.finish(at, &mut out);
            out(at, EventKind::Reset);
            let mut out = |at, what| {
                tell(TableEvent::Event(id, StreamEvent { at, from: side.other(), what }))
            };
            other.finish(at, &mut out);
            self.closed = true;
            return;
        }
        if !segment.data.is_empty() || segment.fin {
            let piece = SegmentPiece {
                at,
                sequence: first_byte,
                data: segment.data,
                sent_bytes: i64::try_from(segment.sent_bytes).unwrap_or(i64::MAX),
                fin: segment.fin,
            };
            own.piece(&piece, limits, &mut out);
        }
        own.lose_patience(at, limits, &mut out);
        let mut out =
            |at, what| tell(TableEvent::Event(id, StreamEvent { at, from: side.other(), what }));
        if let Some(sequence) = segment.acknowledged {
            other.acknowledge(sequence);
        }
        other.lose_patience(at, limits, &mut out);
        self.closed = self.directions.iter().all(Direction::ended);
    }

    fn waiting_bytes(&self) -> usize {
        self.directions.iter().map(Direction::waiting_bytes).sum()
    }

    /// Reports all waiting data and gaps, as the connection will get no more.
    fn finish(&mut self, at: Duration, tell: &mut dyn FnMut(TableEvent)) {
        let id = self.id;
        let [client, server] = &mut self.directions;
        for (side, direction) in [(Side::Client, client), (Side::Server, server)] {
            let mut out =
                |at, what| tell(TableEvent::Event(id, StreamEvent { at, from: side, what }));
            direction.finish(at, &mut out);
        }
    }
}
