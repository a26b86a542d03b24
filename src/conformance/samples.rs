//! Messages and conversations that nobody recorded, for tests.

use std::time::Duration;

use crate::capture::ConnectionId;
use crate::conversation::{Conversation, Offered, Part};
use corona_wire::value::{Message, MessageKind, Value};

pub(crate) fn word(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// A message whose body has these fields.
pub(crate) fn message(
    kind: MessageKind,
    name: &str,
    fields: Vec<(&'static str, Value)>,
) -> Message {
    Message { kind, name: name.to_owned(), seqid: 5, body: Ok(Value::Struct(fields)) }
}

/// A whole conversation with a server of this service.
pub(crate) fn conversation(service: Offered, parts: Vec<Part>) -> Conversation {
    Conversation {
        connection: ConnectionId(3),
        client: "10.0.0.1:5".parse().unwrap(),
        server: "10.0.0.2:9".parse().unwrap(),
        service,
        opened_at: Duration::ZERO,
        whole: true,
        accepted: true,
        parts,
    }
}
