//! One relayed connection as the shadow sees it: its bytes cut into messages as they pass.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::capture::{Opening, Side};
use crate::conversation::{Cutter, Offered, Piece};
use corona_wire::value::RawMessage;

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
    /// Whether some of what passed on it is not known.
    pub(super) has_gaps: bool,
}

/// A call that was seen.
pub(super) struct Asked {
    /// The call.
    pub(super) call: RawMessage,
    /// The session that it names.
    pub(super) handle: Option<Arc<str>>,
    /// What becomes of its answer.
    pub(super) ours: Ours,
    /// Whether it changes what others are answered.
    pub(super) changes: bool,
}

/// What the shadow says to a call.
pub(super) enum Ours {
    /// This answer.
    Answer(Box<OurAnswer>),
    /// It would close the connection.
    Close,
    /// Nothing is compared, for this reason.
    Nothing(&'static str),
}

/// An answer of the shadow, as it would be sent.
pub(super) struct OurAnswer {
    pub(super) message: RawMessage,
    /// Whether it is the result of the call, and no exception.
    pub(super) is_reply: bool,
    /// Whether it is the exception for safe mode.
    pub(super) is_safe_mode: bool,
}

pub(super) const GAP: &str = "calls whose answers may have been missed";

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
            has_gaps: !opening.whole,
        }
    }

    /// Takes bytes of one side and gives the messages that they complete.
    pub(super) fn data(&mut self, from: Side, data: &[u8]) -> Vec<RawMessage> {
        if self.strange {
            return Vec::new();
        }
        let [client, server] = &mut self.cutters;
        let cutter = if from == Side::Client { client } else { server };
        let mut found = Vec::new();
        let mut strange = false;
        cutter.data(Duration::ZERO, data, &mut |_, piece| match piece {
            Piece::Messages { mut messages, .. } => found.append(&mut messages),
            Piece::Bytes(_) => strange = true,
        });
        // After a gap there may be the rest of a message.
        self.strange |= strange && !self.has_gaps;
        found
    }

    /// Some of what one side said is not known. Nothing is known of the answers to calls that wait.
    pub(super) fn lose(&mut self, from: Side) {
        self.has_gaps = true;
        let [client, server] = &mut self.cutters;
        let cutter = if from == Side::Client { client } else { server };
        cutter.lose(&mut |_, _| {});
        for asked in &mut self.unanswered {
            asked.ours = Ours::Nothing(GAP);
            asked.changes = false;
        }
    }

    /// Takes out the call that is answered now, which is the last one given. After a gap others may
    /// come before it, of which the answers were missed.
    pub(super) fn answered(&mut self, answer: &RawMessage) -> VecDeque<Asked> {
        let is_it =
            |asked: &Asked| asked.call.name == answer.name && asked.call.seqid == answer.seqid;
        let answered = match self.has_gaps {
            false => usize::from(!self.unanswered.is_empty()),
            true => self.unanswered.iter().rposition(is_it).map_or(0, |place| place + 1),
        };
        let waiting = self.unanswered.split_off(answered);
        std::mem::replace(&mut self.unanswered, waiting)
    }

    /// Calls that wait and change what others are answered.
    pub(super) fn changes(&self) -> usize {
        self.unanswered.iter().filter(|asked| asked.changes).count()
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use corona_wire::value::{Message, MessageKind, StreamReader, Value};

    fn bytes(kind: MessageKind, name: &str, seqid: i32) -> Vec<u8> {
        let body = Ok(Value::Struct(Vec::new()));
        let message = Message { kind, name: name.to_owned(), seqid, body };
        let (mut bytes, service) = (Vec::new(), Offered::ClusterManager);
        message.write(service.schema(), service.framing(), &mut bytes).unwrap();
        bytes
    }

    fn message(kind: MessageKind, name: &str, seqid: i32) -> RawMessage {
        let service = Offered::ClusterManager;
        let mut reader = StreamReader::new(service.schema(), service.framing(), 1 << 20);
        reader.push(&bytes(kind, name, seqid));
        reader.next_raw().unwrap().unwrap()
    }

    /// A line on which these calls wait.
    fn line(calls: &[(&str, i32)]) -> Line {
        let at = SocketAddr::from(([127, 0, 0, 1], 1));
        let opening = Opening { client: at, server: at, at: Duration::ZERO, whole: true };
        let mut line = Line::new(&opening, Offered::ClusterManager);
        for (name, seqid) in calls {
            let call = message(MessageKind::Call, name, *seqid);
            line.asks(Asked { call, handle: None, ours: Ours::Close, changes: true });
        }
        line
    }

    /// Calls that an answer takes out.
    fn taken(line: &mut Line, name: &str, seqid: i32) -> Vec<i32> {
        let answer = message(MessageKind::Reply, name, seqid);
        line.answered(&answer).iter().map(|asked| asked.call.seqid).collect()
    }

    #[test]
    fn without_a_gap_an_answer_is_for_the_first_call_whatever_it_says() {
        let mut line = line(&[("a", 1), ("b", 2)]);
        assert_eq!(taken(&mut line, "b", 2), [1]);
        assert_eq!((taken(&mut line, "c", 9), line.changes()), (vec![2], 0));
        assert!(taken(&mut line, "c", 9).is_empty());
    }

    #[test]
    fn after_a_gap_an_answer_is_for_its_own_call() {
        let mut line = line(&[("a", 1), ("b", 2), ("b", 3), ("b", 3), ("c", 4)]);
        line.lose(Side::Server);
        assert_eq!(line.changes(), 0, "nothing is known of what waited");
        assert!(taken(&mut line, "b", 7).is_empty(), "that call was missed");
        assert_eq!(taken(&mut line, "b", 3), [1, 2, 3, 3]);
        assert_eq!(taken(&mut line, "c", 4), [4]);
    }

    #[test]
    fn a_line_falls_into_step_after_a_gap() {
        let bytes = framed(3);
        let mut line = line(&[]);
        assert!(line.data(Side::Client, &bytes[..9]).is_empty());
        line.lose(Side::Client);
        assert_eq!(line.held_bytes(), 0);
        let whole = [&bytes[9..], &bytes, &bytes[..5]].concat();
        assert_eq!(line.data(Side::Client, &whole).len(), 1);
        assert_eq!((line.strange, line.held_bytes()), (false, 5));
        assert!(line.data(Side::Server, b"GET / HTTP/1.0").is_empty());
        assert_eq!(
            (line.strange, line.held_bytes()),
            (false, 5),
            "it may be the rest of something"
        );
    }

    /// A call in its frame.
    fn framed(seqid: i32) -> Vec<u8> {
        bytes(MessageKind::Call, "getSessions", seqid)
    }

    proptest! {
        /// Whatever passes, in whatever pieces, and whatever of it is missed: nothing is kept but the
        /// beginning of a message, and after the last gap whole messages are found again.
        #[test]
        fn whatever_passes_is_understood_again_after_a_gap(
            passed in vec((any::<bool>(), vec(any::<u8>(), 0..40), any::<bool>()), 0..20),
            piece in 1..30_usize,
        ) {
            let mut line = line(&[("getSessions", 1)]);
            for (is_garbage, garbage, is_lost) in passed {
                let bytes = if is_garbage { garbage } else { framed(7) };
                let held = line.held_bytes();
                if is_lost {
                    line.lose(Side::Client);
                } else {
                    line.data(Side::Client, &bytes);
                    prop_assert!(line.held_bytes() <= held + bytes.len());
                }
            }
            if line.strange {
                prop_assert!(!line.has_gaps || line.held_bytes() == 0);
                return Ok(());
            }
            line.lose(Side::Client);
            prop_assert_eq!(line.held_bytes(), 0);
            let calls = [framed(8), framed(9)].concat();
            let found: Vec<i32> = calls
                .chunks(piece)
                .flat_map(|piece| line.data(Side::Client, piece))
                .map(|message| message.seqid)
                .collect();
            prop_assert_eq!(found, [8, 9]);
        }
    }
}
