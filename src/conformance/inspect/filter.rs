//! The filter for the items of a listing.

use std::time::Duration;

use super::{Act, Item};
use corona_wire::value::{Message, Value};

/// Conditions on items. All that are given must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The handle of a session.
    pub session: Option<String>,
    /// The name or the host of a node.
    pub node: Option<String>,
    /// The name of a method.
    pub method: Option<String>,
    /// Not before this, since the start of the file.
    pub from: Option<Duration>,
    /// Not after this, since the start of the file.
    pub until: Option<Duration>,
}

/// Fields that hold the handle of a session.
const SESSION_FIELDS: &[&str] = &["handle", "sessionId", "sessionIds"];

/// Fields that hold the name of a node or of its host. The name of a node in its own heartbeat is
/// `name`, which means something else elsewhere.
const NODE_FIELDS: &[&str] = &["nodeName", "node", "host", "hosts", "excludeHosts"];

impl Filter {
    /// Whether an item is wanted. A call and its answer are wanted together, since an answer seldom
    /// names its subject; bytes that are no message belong to no session, node or method.
    pub fn wants(&self, item: &Item<'_>) -> bool {
        let in_time = self.from.is_none_or(|from| item.at >= from)
            && self.until.is_none_or(|until| item.at <= until);
        in_time && self.is_about(item)
    }

    fn is_about(&self, item: &Item<'_>) -> bool {
        if self.session.is_none() && self.node.is_none() && self.method.is_none() {
            return true;
        }
        let (one, other) = match &item.act {
            Act::Call { call, answer, .. } => (*call, *answer),
            Act::Answer { answer, call, .. } => (*answer, *call),
            _ => return false,
        };
        let either = |holds: &dyn Fn(&Message) -> bool| holds(one) || other.is_some_and(holds);
        let named = |wanted: &Option<String>, fields: &[&str], of_node: bool| {
            wanted.as_ref().is_none_or(|wanted| {
                either(&|message| {
                    let body = message.body.as_ref().ok();
                    body.is_some_and(|body| names(body, wanted, fields, of_node))
                })
            })
        };
        self.method.as_ref().is_none_or(|method| *method == one.name)
            && named(&self.session, SESSION_FIELDS, false)
            && named(&self.node, NODE_FIELDS, true)
    }
}

/// Whether a field with one of these names holds the text, at any depth.
fn names(value: &Value, wanted: &str, fields: &[&str], of_node: bool) -> bool {
    match value {
        Value::Struct(members) => members.iter().any(|(field, value)| {
            let heartbeat = of_node
                && *field == "node"
                && value.field("name").is_some_and(|name| holds(name, wanted));
            heartbeat
                || fields.contains(field) && holds(value, wanted)
                || names(value, wanted, fields, of_node)
        }),
        Value::List(values) => values.iter().any(|value| names(value, wanted, fields, of_node)),
        Value::Map(pairs) => pairs.iter().any(|(_, value)| names(value, wanted, fields, of_node)),
        _ => false,
    }
}

/// Whether a value is the text, or a list with it.
fn holds(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::List(values) => values.iter().any(|value| holds(value, wanted)),
        _ => false,
    }
}
