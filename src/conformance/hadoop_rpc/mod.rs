//! The Hadoop RPC traffic of a capture: its connections, cut into calls and replies.
//!
//! No port needs to be known: the first bytes of such a connection identify it. Unreadable bytes
//! are kept as they were. Spec: mapreduce/01.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use crate::capture::{Capture, Connection, ConnectionId, EventKind, Side};
use corona_hadoop::io::formats::Writable;
use corona_hadoop::io::{DecodeError, Reader};
use corona_hadoop::rpc::{Call, ConnectionHeader, MAGIC, Reply};

/// One connection as a conversation.
#[derive(Clone, Debug)]
pub struct HadoopConversation {
    /// The connection in the capture.
    pub connection: ConnectionId,
    /// The caller's address.
    pub client: SocketAddr,
    /// The server's address.
    pub server: SocketAddr,
    /// When it was opened, since the first packet of the capture.
    pub opened_at: Duration,
    /// The connection header that the client sent.
    pub header: ConnectionHeader,
    /// Calls and replies, in the order of time.
    pub parts: Vec<HadoopPart>,
}

/// A call or reply of one side.
#[derive(Clone, Debug, PartialEq)]
pub struct HadoopPart {
    /// When its last byte came, since the first packet of the capture.
    pub at: Duration,
    /// The side that sent it.
    pub from: Side,
    /// The bytes on the stream, a call's length included.
    pub raw: Vec<u8>,
    /// The contents.
    pub said: HadoopSaid,
}

/// The contents of a part.
#[derive(Clone, Debug, PartialEq)]
pub enum HadoopSaid {
    /// A call of the client.
    Call(Call),
    /// A sign of life.
    Ping,
    /// The reply to a call.
    Reply(Reply),
    /// All that is left of this side: bytes that cannot be read, and why.
    Unread(DecodeError),
}

/// The conversations of a capture over Hadoop RPC, in the order in which they were opened. Those
/// whose beginning is missing are left out, and so is the rest of each after a gap.
pub fn hadoop_conversations(capture: &Capture) -> Vec<HadoopConversation> {
    capture.connections.iter().filter_map(conversation).collect()
}

fn conversation(connection: &Connection) -> Option<HadoopConversation> {
    let sent = Stream::of(connection, Side::Client);
    let rest = sent.bytes.strip_prefix(&MAGIC)?;
    let mut reader = Reader::new(rest);
    let length = usize::try_from(reader.i32().ok()?).ok()?;
    let header = ConnectionHeader::decode(&mut Reader::new(reader.take(length).ok()?)).ok()?;
    let start = sent.bytes.len() - reader.rest().len();
    let mut parts = sent.parts(start, Side::Client, next_call);
    let replies = Stream::of(connection, Side::Server);
    parts.extend(replies.parts(0, Side::Server, next_reply));
    parts.sort_by_key(|part| part.at);
    Some(HadoopConversation {
        connection: connection.id,
        client: connection.opening.client,
        server: connection.opening.server,
        opened_at: connection.opening.at,
        header,
        parts,
    })
}

fn next_call(reader: &mut Reader<'_>) -> Result<HadoopSaid, DecodeError> {
    let length = reader.i32()?;
    if length == -1 {
        return Ok(HadoopSaid::Ping);
    }
    let length = reader.length(length.into())?;
    Call::decode(&mut Reader::new(reader.take(length)?)).map(HadoopSaid::Call)
}

fn next_reply(reader: &mut Reader<'_>) -> Result<HadoopSaid, DecodeError> {
    Reply::decode(reader).map(HadoopSaid::Reply)
}

/// The bytes of one side, up to the first gap.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    /// How many bytes there were, and when.
    arrivals: Vec<(usize, Duration)>,
}

impl Stream {
    fn of(connection: &Connection, side: Side) -> Stream {
        let mut stream = Stream::default();
        for event in connection.events.iter().filter(|event| event.from == side) {
            match &event.what {
                EventKind::Data(data) => {
                    stream.bytes.extend_from_slice(data);
                    stream.arrivals.push((stream.bytes.len(), event.at));
                }
                EventKind::Missing(_) => break,
                EventKind::End | EventKind::Reset => {}
            }
        }
        stream
    }

    /// Cuts the bytes from `start` on.
    fn parts(
        &self,
        start: usize,
        from: Side,
        next: fn(&mut Reader<'_>) -> Result<HadoopSaid, DecodeError>,
    ) -> Vec<HadoopPart> {
        let mut rest = self.bytes.get(start..).unwrap_or_default();
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let mut reader = Reader::new(rest);
            let (said, read) = match next(&mut reader) {
                Ok(said) => (said, reader.position()),
                Err(error) => (HadoopSaid::Unread(error), rest.len()),
            };
            let (raw, after) = rest.split_at(read);
            rest = after;
            let at = self.arrival(self.bytes.len() - rest.len());
            parts.push(HadoopPart { at, from, raw: raw.to_vec(), said });
        }
        parts
    }

    /// When so many bytes were there.
    fn arrival(&self, bytes: usize) -> Duration {
        let place = self.arrivals.partition_point(|(total, _)| *total < bytes);
        self.arrivals.get(place).map(|(_, at)| *at).unwrap_or_default()
    }
}
