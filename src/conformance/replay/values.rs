//! Decoded answers, compared: texts translated, orders that mean nothing taken away.

use corona_wire::value::{Message, Value};

use super::names::Names;

/// A recorded value as the live run has it. `SessionInfo.address` is where a session driver
/// listens, which is another port in each run.
pub(super) fn translate(value: &Value, names: &Names) -> Value {
    match value {
        Value::String(text) => Value::String(names.live_text(text)),
        Value::List(values) => {
            Value::List(values.iter().map(|value| translate(value, names)).collect())
        }
        Value::Map(pairs) => Value::Map(
            pairs
                .iter()
                .map(|(key, value)| (translate(key, names), translate(value, names)))
                .collect(),
        ),
        Value::Struct(fields) => {
            if let Some(registration) = registration(fields, names) {
                return registration;
            }
            // Only a `SessionInfo` has both.
            let of_session = value.field("userId").is_some() && value.field("address").is_some();
            let one = |(name, field): &(&'static str, Value)| {
                let address = (of_session && *name == "address").then(|| driver(field, names));
                (*name, address.flatten().unwrap_or_else(|| translate(field, names)))
            };
            Value::Struct(fields.iter().map(one).collect())
        }
        other => other.clone(),
    }
}

/// The answer to a start, where the directory of the history follows from the session's id.
fn registration(fields: &[(&'static str, Value)], names: &Names) -> Option<Value> {
    let field = |name: &str| fields.iter().find(|(own, _)| *own == name).map(|(_, field)| field);
    let Some(Value::String(handle)) = field("handle") else { return None };
    let Some(Value::Struct(manager)) = field("clusterManagerInfo") else { return None };
    let of_manager = |(name, value): &(&'static str, Value)| match value {
        Value::String(path) if *name == "jobHistoryLocation" => {
            (*name, Value::String(names.live_log_dir(handle, path)))
        }
        value => (*name, translate(value, names)),
    };
    let one = |(name, value): &(&'static str, Value)| match *name {
        "clusterManagerInfo" => (*name, Value::Struct(manager.iter().map(of_manager).collect())),
        _ => (*name, translate(value, names)),
    };
    Some(Value::Struct(fields.iter().map(one).collect()))
}

/// The live address of a session driver.
fn driver(address: &Value, names: &Names) -> Option<Value> {
    let (Value::String(host), Value::I32(port)) = (address.field("host")?, address.field("port")?)
    else {
        return None;
    };
    let (host, port) = names.live_driver(host, *port)?;
    Some(Value::Struct(vec![("host", Value::String(host.clone())), ("port", Value::I32(*port))]))
}

/// The same message with translated texts.
pub(super) fn translate_message(message: &Message, names: &Names) -> Message {
    let body = match &message.body {
        Ok(value) => Ok(translate(value, names)),
        Err(text) => Err(names.live_text(text)),
    };
    Message { body, ..message.clone() }
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

    fn text_value(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    #[test]
    fn only_the_address_of_a_session_is_a_driver() {
        let mut names = Names::default();
        names.driver(("127.0.0.1".to_owned(), 7), ("127.0.0.1".to_owned(), 8));
        let address = |port| {
            Value::Struct(vec![("host", text_value("127.0.0.1")), ("port", Value::I32(port))])
        };
        let info =
            |port| Value::Struct(vec![("address", address(port)), ("userId", text_value("u"))]);
        let node =
            |port| Value::Struct(vec![("name", text_value("n")), ("address", address(port))]);
        assert_eq!(translate(&info(7), &names), info(8));
        assert_eq!(translate(&info(9), &names), info(9));
        assert_eq!(translate(&node(7), &names), node(7));
    }

    #[test]
    fn the_history_of_a_session_is_in_the_directory_of_its_live_number() {
        let mut names = Names::new(None, ["202611210043.2001"]);
        names.session("202611210043.2001", "203001010000.1");
        let started = |handle: &str, directory: &str| {
            let manager =
                vec![("url", text_value("")), ("jobHistoryLocation", text_value(directory))];
            Value::Struct(vec![
                ("handle", text_value(handle)),
                ("clusterManagerInfo", Value::Struct(manager)),
            ])
        };
        assert_eq!(
            translate(&started("202611210043.2001", "/h/202611210043.2"), &names),
            started("203001010000.1", "/h/203001010000.0")
        );
    }

    #[test]
    fn the_order_of_a_map_means_nothing_that_of_a_list_does() {
        let pair = |key: &str| (text_value(key), Value::I32(1));
        let map = |keys: [&str; 2]| Value::Map(keys.map(pair).to_vec());
        let list = |keys: [&str; 2]| Value::List(keys.map(text_value).to_vec());
        assert_eq!(ordered(&map(["a", "b"])), ordered(&map(["b", "a"])));
        assert_ne!(ordered(&list(["a", "b"])), ordered(&list(["b", "a"])));
    }
}
