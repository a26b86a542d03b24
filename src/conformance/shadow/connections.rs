//! The relayed connections as the shadow sees them: their bytes cut into messages, and the calls on them
//! that wait for the primary's answers.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::capture::{ConnectionId, Opening, Side};
use crate::conversation::{Cutter, Offered, StreamPiece};
use corona_wire::value::RawMessage;

/// All connections that are open.
#[derive(Debug, Default)]
pub(super) struct WatchedConnections {
    open: HashMap<ConnectionId, Connection>,
    /// Bytes of incomplete messages, of all connections.
    held_bytes: usize,
    /// Pending calls that change the answers to others.
    changes: usize,
}

#[derive(Debug)]
pub(super) struct Connection {
    /// The service that is called.
    pub(super) service: Offered,
    pub(super) client: SocketAddr,
    cutters: [Cutter; 2],
    /// Calls that wait for an answer, oldest first.
    pending: VecDeque<PendingCall>,
    /// Whether the client has ended it.
    pub(super) client_has_ended: bool,
    pub(super) server_port: u16,
    /// Whether the server has accepted it.
    pub(super) accepted: bool,
    /// Sessions whose drivers have not answered a notification on it, oldest first.
    pub(super) notified: VecDeque<String>,
    /// Whether something passed on it that cannot be understood. Nothing more is compared then.
    strange: bool,
    /// Whether some of the bytes on it were missed.
    has_gaps: bool,
}

/// A call that waits for the primary's answer.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) call: RawMessage,
    /// The session that it names.
    pub(super) handle: Option<Arc<str>>,
    pub(super) ours: OurAnswer,
    /// Whether it changes the answers to others.
    pub(super) changes: bool,
    /// When it was made.
    pub(super) at: Duration,
}

/// This program's reply to a call.
#[derive(Debug)]
pub(super) enum OurAnswer {
    /// Send this.
    Message(Box<OurMessage>),
    /// Close the connection.
    Close,
    /// Nothing is compared, for this reason.
    NotCompared(&'static str),
}

/// An answer as this program would send it.
#[derive(Debug)]
pub(super) struct OurMessage {
    pub(super) message: RawMessage,
    /// Whether it is the result of the call, and no exception.
    pub(super) is_reply: bool,
    /// Whether it is the exception for safe mode.
    pub(super) is_safe_mode: bool,
}

/// The call that an answer of the primary belongs to.
#[derive(Debug)]
pub(super) struct Answered {
    /// The call; none if no call waited.
    pub(super) call: Option<PendingCall>,
    /// Earlier calls whose answers were missed.
    pub(super) missed: VecDeque<PendingCall>,
    /// Whether the answer must belong to a call that was seen.
    pub(super) is_certain: bool,
}

pub(super) const GAP: &str = "calls whose answers may have been missed";

/// Calls of one connection that may wait. Clients send one at a time.
const MAX_PENDING: usize = 4_096;
/// Bytes of incomplete messages, of all connections. A connection that exceeds this is not watched
/// any more.
const MAX_HELD_BYTES: usize = 256 << 20;

impl WatchedConnections {
    pub(super) fn opened(&mut self, id: ConnectionId, opening: &Opening, service: Offered) {
        self.open.insert(id, Connection::new(opening, service));
    }

    pub(super) fn get(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.open.get_mut(&id)
    }

    /// Takes bytes of one side, and returns the messages that they complete, and whether the connection
    /// is given up because too much is held.
    pub(super) fn data(
        &mut self,
        id: ConnectionId,
        from: Side,
        data: &[u8],
    ) -> (Vec<RawMessage>, bool) {
        let Some(connection) = self.open.get_mut(&id) else { return (Vec::new(), false) };
        let before = connection.held_bytes();
        let messages = connection.data(from, data);
        self.held_bytes = self.held_bytes.saturating_sub(before) + connection.held_bytes();
        let is_given_up = self.held_bytes > MAX_HELD_BYTES;
        if is_given_up {
            self.held_bytes = self.held_bytes.saturating_sub(connection.held_bytes());
            self.changes = self.changes.saturating_sub(connection.changes());
            connection.give_up();
        }
        (messages, is_given_up)
    }

    /// Some of the bytes of one side were missed. Returns the sessions whose notifications on the
    /// connection are not waited for any more.
    pub(super) fn lose(&mut self, id: ConnectionId, from: Side) -> VecDeque<String> {
        let Some(connection) = self.open.get_mut(&id) else { return VecDeque::new() };
        self.held_bytes = self.held_bytes.saturating_sub(connection.held_bytes());
        self.changes = self.changes.saturating_sub(connection.changes());
        connection.lose(from);
        self.held_bytes += connection.held_bytes();
        self.changes += connection.changes();
        std::mem::take(&mut connection.notified)
    }

    /// A call waits for its answer. Returns whether other calls that change something wait as well.
    pub(super) fn called(&mut self, id: ConnectionId, call: PendingCall) -> bool {
        let crosses = call.changes && self.changes > 0;
        self.changes += usize::from(call.changes);
        match self.open.get_mut(&id) {
            Some(connection) => {
                let before = connection.changes();
                let adds = usize::from(call.changes);
                connection.called(call);
                self.changes = (self.changes + connection.changes()).saturating_sub(before + adds);
            }
            None => self.changes -= usize::from(call.changes),
        }
        crosses
    }

    /// The primary has answered a call.
    pub(super) fn answered(&mut self, id: ConnectionId, answer: &RawMessage) -> Option<Answered> {
        let connection = self.open.get_mut(&id)?;
        let before = connection.changes();
        let mut missed = connection.answered(answer);
        self.changes = (self.changes + connection.changes()).saturating_sub(before);
        let is_certain = !connection.strange && !connection.has_gaps;
        Some(Answered { call: missed.pop_back(), missed, is_certain })
    }

    /// The primary has ended a connection. Returns the call that gets no answer, if that is
    /// to be compared.
    pub(super) fn server_ended(&mut self, id: ConnectionId) -> Option<PendingCall> {
        let connection = self.open.get_mut(&id)?;
        if connection.service != Offered::ClusterManager {
            return None;
        }
        let is_compared = !connection.client_has_ended && !connection.strange;
        self.changes = self.changes.saturating_sub(connection.changes());
        let first = std::mem::take(&mut connection.pending).pop_front();
        first.filter(|_| is_compared)
    }

    /// A connection is closed on both sides.
    pub(super) fn closed(&mut self, id: ConnectionId) -> Option<Connection> {
        let connection = self.open.remove(&id)?;
        self.held_bytes = self.held_bytes.saturating_sub(connection.held_bytes());
        self.changes = self.changes.saturating_sub(connection.changes());
        Some(connection)
    }

    /// None of the calls that wait is compared, for this reason.
    pub(super) fn forget_calls(&mut self, reason: &'static str) {
        self.open.values_mut().for_each(|connection| connection.forget_calls(reason));
        self.changes = 0;
    }
}

impl Connection {
    fn new(opening: &Opening, service: Offered) -> Connection {
        let cutter = || Cutter::new(service, opening.whole);
        Connection {
            service,
            client: opening.client,
            cutters: [cutter(), cutter()],
            pending: VecDeque::new(),
            client_has_ended: false,
            server_port: opening.server.port(),
            accepted: false,
            notified: VecDeque::new(),
            strange: false,
            has_gaps: !opening.whole,
        }
    }

    fn cutter(&mut self, from: Side) -> &mut Cutter {
        from.of(self.cutters.each_mut())
    }

    /// Takes bytes of one side and returns the messages that they complete.
    fn data(&mut self, from: Side, data: &[u8]) -> Vec<RawMessage> {
        if self.strange {
            return Vec::new();
        }
        let mut found = Vec::new();
        let mut strange = false;
        self.cutter(from).data(Duration::ZERO, data, &mut |_, piece| match piece {
            StreamPiece::Messages { mut messages, .. } => found.append(&mut messages),
            StreamPiece::Bytes(_) => strange = true,
        });
        // After a gap there may be the rest of a message.
        self.strange |= strange && !self.has_gaps;
        found
    }

    /// Some bytes of one side were missed, and perhaps answers to the calls that wait.
    fn lose(&mut self, from: Side) {
        self.has_gaps = true;
        self.cutter(from).lose(&mut |_, _| {});
        self.forget_calls(GAP);
    }

    fn forget_calls(&mut self, reason: &'static str) {
        for pending in &mut self.pending {
            pending.ours = OurAnswer::NotCompared(reason);
            pending.changes = false;
        }
    }

    /// Takes out the call that is answered now, which is the last one returned. After a gap earlier ones
    /// may come before it, whose answers were missed.
    fn answered(&mut self, answer: &RawMessage) -> VecDeque<PendingCall> {
        let is_it = |pending: &PendingCall| {
            pending.call.name == answer.name && pending.call.seqid == answer.seqid
        };
        let answered = match self.has_gaps {
            false => usize::from(!self.pending.is_empty()),
            true => self.pending.iter().rposition(is_it).map_or(0, |place| place + 1),
        };
        let waiting = self.pending.split_off(answered);
        std::mem::replace(&mut self.pending, waiting)
    }

    /// Pending calls that change the answers to others.
    fn changes(&self) -> usize {
        self.pending.iter().filter(|pending| pending.changes).count()
    }

    /// Bytes of incomplete messages.
    fn held_bytes(&self) -> usize {
        self.cutters.iter().map(Cutter::held_bytes).sum()
    }

    /// Nothing on it is looked at any more.
    fn give_up(&mut self) {
        self.strange = true;
        self.pending.clear();
        self.cutters = [Cutter::new(self.service, true), Cutter::new(self.service, true)];
    }

    fn called(&mut self, call: PendingCall) {
        self.pending.push_back(call);
        if self.pending.len() > MAX_PENDING {
            self.strange = true;
            self.pending.clear();
        }
    }
}
