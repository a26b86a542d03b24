//! One relayed connection as the shadow sees it: its bytes cut into messages as they pass.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use crate::conformance::capture::{Opening, Side};
use crate::conformance::conversation::{Cutter, Offered, Said};
use crate::wire::value::Message;

/// A connection.
pub(super) struct Line {
    /// Who is called.
    pub(super) service: Offered,
    /// Who calls.
    pub(super) client: SocketAddr,
    cutters: [Cutter; 2],
    /// Calls that wait for an answer, oldest first, with what the shadow made of each.
    pub(super) unanswered: VecDeque<Asked>,
    /// Whether the client has ended it.
    pub(super) client_has_ended: bool,
    /// The port of who is called.
    pub(super) server_port: u16,
    /// Whether that one has taken the connection.
    pub(super) accepted: bool,
    /// Sessions that are told something on it and have not answered, oldest first.
    pub(super) telling: VecDeque<String>,
    /// Whether something passed on it that cannot be understood. Nothing more is compared then.
    pub(super) strange: bool,
}

/// A call that was seen.
pub(super) struct Asked {
    /// The call.
    pub(super) call: Message,
    /// What becomes of its answer.
    pub(super) ours: Ours,
    /// Whether it changes what others are answered.
    pub(super) changes: bool,
}

/// What the shadow says to a call.
pub(super) enum Ours {
    /// This answer.
    Answer(Box<Message>),
    /// It would close the connection.
    Close,
    /// Nothing is compared, for this reason.
    Nothing(&'static str),
}

/// Calls of one connection that may wait. Clients send one at a time.
const MAX_UNANSWERED: usize = 4_096;

impl Line {
    pub(super) fn new(opening: &Opening, service: Offered) -> Line {
        let cutter = || Cutter::new(service, opening.whole);
        Line {
            service,
            client: opening.client,
            cutters: [cutter(), cutter()],
            unanswered: VecDeque::new(),
            client_has_ended: false,
            server_port: opening.server.port(),
            accepted: false,
            telling: VecDeque::new(),
            strange: false,
        }
    }

    /// Takes bytes of one side and gives the messages that they complete.
    pub(super) fn data(&mut self, from: Side, data: &[u8]) -> Vec<Message> {
        if self.strange {
            return Vec::new();
        }
        let [client, server] = &mut self.cutters;
        let cutter = if from == Side::Client { client } else { server };
        let mut found = Vec::new();
        let mut strange = false;
        cutter.data(Duration::ZERO, data, &mut |_, said| match said {
            Said::Messages { mut messages, .. } => found.append(&mut messages),
            _ => strange = true,
        });
        self.strange |= strange;
        found
    }

    /// Bytes of messages of which the rest has not come.
    pub(super) fn held_bytes(&self) -> usize {
        self.cutters.iter().map(Cutter::held_bytes).sum()
    }

    /// Looks at nothing any more.
    pub(super) fn give_up(&mut self) {
        self.strange = true;
        self.unanswered.clear();
        self.cutters = [Cutter::new(self.service, true), Cutter::new(self.service, true)];
    }

    /// A call waits for its answer.
    pub(super) fn asks(&mut self, asked: Asked) {
        self.unanswered.push_back(asked);
        if self.unanswered.len() > MAX_UNANSWERED {
            self.strange = true;
            self.unanswered.clear();
        }
    }
}
