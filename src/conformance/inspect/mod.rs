//! Conversations for people: one item for each message or event, in the order of time, with filters
//! and statistics.
//!
//! Knows the contract by its names only, and prints nothing.

mod filter;
mod show;
mod statistics;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use crate::capture::{ConnectionId, Side};
use crate::conversation::{Conversation, Offered, Said};
use corona_wire::value::{Message, Value};

pub use filter::Filter;
pub use show::{Shape, body_text, json, text};
pub use statistics::{MethodStatistics, statistics};

/// A message or an event.
#[derive(Clone, Debug)]
pub struct Item<'a> {
    /// When, since the start of the file.
    pub at: Duration,
    /// On which connection.
    pub connection: ConnectionId,
    /// The end that opened the connection.
    pub client: SocketAddr,
    /// The end that listens.
    pub server: SocketAddr,
    /// The server's service.
    pub service: Offered,
    /// The end that did it.
    pub from: Side,
    /// The contents.
    pub act: Act<'a>,
}

impl<'a> Item<'a> {
    /// The method of a call or an answer.
    pub fn method(&self) -> Option<&'a str> {
        match &self.act {
            Act::Call { call: message, .. } | Act::Answer { answer: message, .. } => {
                Some(&message.name)
            }
            _ => None,
        }
    }
}

/// The contents of an item.
#[derive(Clone, Debug)]
pub enum Act<'a> {
    /// The connection was opened.
    Opened {
        /// Whether the server took it.
        accepted: bool,
        /// Whether this is the beginning, and not where the file begins.
        whole: bool,
    },
    /// A call, with its reply if the recording has it.
    Call {
        /// The call, decoded.
        call: &'a Message,
        /// The reply, if there was one.
        answer: Option<&'a Message>,
        /// Its size on the stream in bytes, that of its frame included.
        bytes: usize,
    },
    /// A reply, with its call if the recording has it.
    Answer {
        /// The reply, decoded.
        answer: &'a Message,
        /// The call that it answers, if the file has it.
        call: Option<&'a Message>,
        /// The time since the end of the call.
        took: Option<Duration>,
        /// Its size on the stream in bytes, that of its frame included.
        bytes: usize,
    },
    /// Bytes that are no message.
    Bytes(&'a [u8]),
    /// So many bytes are not in the file.
    Missing(u64),
    /// This side sent no more.
    End,
    /// This side broke the connection off.
    Reset,
}

/// Whether an answer reports a failure: an exception, declared or not.
pub fn is_error(answer: &Message) -> bool {
    use corona_wire::value::MessageKind;
    match (&answer.body, answer.kind) {
        (_, MessageKind::Exception) | (Err(_), _) => true,
        (Ok(Value::Struct(fields)), _) => fields.iter().any(|(name, _)| *name != "success"),
        _ => false,
    }
}

/// All messages and events, in the order of time.
pub fn items(conversations: &[Conversation]) -> Vec<Item<'_>> {
    let mut items: Vec<Item<'_>> = conversations.iter().flat_map(of_conversation).collect();
    items.sort_by_key(|item| item.at);
    items
}

fn of_conversation(conversation: &Conversation) -> Vec<Item<'_>> {
    let item = |at, from, act| Item {
        at,
        connection: conversation.connection,
        client: conversation.client,
        server: conversation.server,
        service: conversation.service,
        from,
        act,
    };
    let Conversation { accepted, whole, .. } = *conversation;
    let opened = Act::Opened { accepted, whole };
    let mut items = vec![item(conversation.opened_at, Side::Client, opened)];
    // Places of the calls that wait for an answer, by sequence id and name: servers answer in
    // order.
    let mut open: HashMap<(i32, &str), VecDeque<usize>> = HashMap::new();
    for part in &conversation.parts {
        let act = match &part.what {
            Said::Messages { raw, messages } => {
                // Messages that share a frame share its bytes.
                let bytes = raw.len() / messages.len().max(1);
                for message in messages {
                    let key = (message.seqid, message.name.as_str());
                    if part.from == Side::Client {
                        open.entry(key).or_default().push_back(items.len());
                        let call = Act::Call { call: message, answer: None, bytes };
                        items.push(item(part.at, part.from, call));
                        continue;
                    }
                    let asked = open.get_mut(&key).and_then(VecDeque::pop_front);
                    let asked = asked.and_then(|place| items.get_mut(place));
                    let mut act = Act::Answer { answer: message, call: None, took: None, bytes };
                    if let (Some(asked), Act::Answer { call, took, .. }) = (asked, &mut act)
                        && let Act::Call { call: question, answer, .. } = &mut asked.act
                    {
                        *answer = Some(message);
                        *call = Some(question);
                        *took = Some(part.at.saturating_sub(asked.at));
                    }
                    items.push(item(part.at, part.from, act));
                }
                continue;
            }
            Said::Bytes(bytes) => Act::Bytes(bytes),
            Said::Missing(bytes) => Act::Missing(*bytes),
            Said::End => Act::End,
            Said::Reset => Act::Reset,
        };
        items.push(item(part.at, part.from, act));
    }
    items
}
