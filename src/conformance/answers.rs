//! Decoded answers of two cluster managers, compared, without orders that mean nothing.

use std::collections::BTreeMap;

use crate::report::Rule;
use corona_wire::value::{Message, MessageKind, Value};

/// The judgement of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Equal once names are translated.
    Equal,
    /// A difference that this row allows.
    Explained(Rule),
    /// A difference that no row allows.
    Different,
}

/// Judges an answer to a call on which the original closed the connection without a word.
/// Spec: cluster-manager/01 §3.
pub(crate) fn answer_instead_of_close(call: &Message, live: &Message) -> Verdict {
    if live.seqid != call.seqid || live.name != call.name {
        return Verdict::Different;
    }
    let is_fault = live.kind == MessageKind::Exception;
    let rule = match call.name.as_str() {
        // Would turn a Java client to the older method for good.
        "sessionHeartbeatV2" if is_fault => return Verdict::Different,
        _ if is_fault => Rule::FAULT_INSTEAD_OF_CLOSE,
        "killSession" | "killSessions" => Rule::KILLED_UNKNOWN,
        "getActualPoolInfo" => Rule::NO_POOLS_FILE,
        "getActualPoolInfoV2" => Rule::NO_WHITELIST,
        "sessionStart" if succeeded(live) => Rule::NO_POOL,
        "sessionStart" => Rule::MALFORMED_HANDLE,
        "nodeHeartbeat" => Rule::OFFER_CHANGED,
        _ => return Verdict::Different,
    };
    Verdict::Explained(rule)
}

fn succeeded(answer: &Message) -> bool {
    answer.body.as_ref().is_ok_and(|body| body.field("success").is_some())
}

/// Whether two bodies are equal up to the order of sessions and of maps.
pub(crate) fn same_body(expected: &Message, live: &Message) -> bool {
    match (&expected.body, &live.body) {
        (Ok(expected), Ok(live)) if expected == live => true,
        (Ok(expected), Ok(live)) if live_is_list_of_sessions(live) => {
            by_handle(expected) == by_handle(live)
        }
        (Ok(expected), Ok(live)) => ordered(expected) == ordered(live),
        (Err(expected), Err(live)) => expected == live,
        _ => false,
    }
}

/// The answer of `getSessions` is the only list; its order is not specified.
fn live_is_list_of_sessions(body: &Value) -> bool {
    matches!(body.field("success"), Some(Value::List(_)))
}

/// The sessions of a list by their handles; none if it is no such list, or has one twice.
pub(crate) fn by_handle(body: &Value) -> Option<BTreeMap<String, Value>> {
    let Some(Value::List(sessions)) = body.field("success") else { return None };
    let mut by_handle = BTreeMap::new();
    for session in sessions {
        let handle = text(session, "handle")?.to_owned();
        if by_handle.insert(handle, ordered(session)).is_some() {
            return None;
        }
    }
    Some(by_handle)
}

/// The same value with maps in the order of their keys: senders may choose it.
pub(crate) fn ordered(value: &Value) -> Value {
    match value {
        Value::List(values) => Value::List(values.iter().map(ordered).collect()),
        Value::Map(pairs) => {
            let mut pairs: Vec<_> =
                pairs.iter().map(|(key, value)| (ordered(key), ordered(value))).collect();
            pairs.sort_by_cached_key(|(key, _)| json(key));
            Value::Map(pairs)
        }
        Value::Struct(fields) => {
            Value::Struct(fields.iter().map(|(name, field)| (*name, ordered(field))).collect())
        }
        other => other.clone(),
    }
}

/// A value for people.
pub(crate) fn json(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("not shown: {error}"))
}

/// A message for people.
pub(crate) fn show(message: &Message) -> String {
    let body = match &message.body {
        Ok(value) => json(value),
        Err(text) => text.clone(),
    };
    format!("{} {} seq={} {body}", message.kind.name(), message.name, message.seqid)
}

/// A text of a struct.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    match value.field(field)? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// The session that a decoded call names: every such argument is called `handle`.
pub(crate) fn handle_of(call: &Message) -> Option<&str> {
    text(call.body.as_ref().ok()?, "handle")
}

/// Whether an answer is the declared exception for a session that is not known.
pub(crate) fn is_unknown_session(answer: &Message, handle: &str) -> bool {
    let body = answer.body.as_ref().ok();
    let exception = body.and_then(|body| body.field("e"));
    exception.and_then(|exception| text(exception, "handle")) == Some(handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{message, word};

    #[test]
    fn the_order_of_a_map_means_nothing_that_of_a_list_does() {
        let pair = |key: &str| (word(key), Value::I32(1));
        let map = |keys: [&str; 2]| Value::Map(keys.map(pair).to_vec());
        let list = |keys: [&str; 2]| Value::List(keys.map(word).to_vec());
        assert_eq!(ordered(&map(["a", "b"])), ordered(&map(["b", "a"])));
        assert_ne!(ordered(&list(["a", "b"])), ordered(&list(["b", "a"])));
    }

    #[test]
    fn a_word_instead_of_a_closed_connection_has_a_row() {
        let call = |name| message(MessageKind::Call, name, vec![]);
        let fault = |name| {
            let fields = vec![("message", word("broken")), ("type", Value::I32(6))];
            message(MessageKind::Exception, name, fields)
        };
        let reply = |name| message(MessageKind::Reply, name, vec![]);
        for (name, live, verdict) in [
            (
                "requestResource",
                fault("requestResource"),
                Verdict::Explained(Rule::FAULT_INSTEAD_OF_CLOSE),
            ),
            ("sessionHeartbeatV2", fault("sessionHeartbeatV2"), Verdict::Different),
            ("killSession", reply("killSession"), Verdict::Explained(Rule::KILLED_UNKNOWN)),
            ("requestResource", reply("requestResource"), Verdict::Different),
        ] {
            assert_eq!(answer_instead_of_close(&call(name), &live), verdict, "{name}");
        }
    }
}
