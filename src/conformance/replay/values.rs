//! Recorded messages as the live run has them: names and addresses translated.

use corona_wire::value::{Message, Value};

use super::names::LiveNames;

/// A recorded value as the live run has it. `SessionInfo.address` is where a session driver
/// listens, which is another port in each run.
pub(super) fn translate(value: &Value, names: &LiveNames) -> Value {
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
fn registration(fields: &[(&'static str, Value)], names: &LiveNames) -> Option<Value> {
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
fn driver(address: &Value, names: &LiveNames) -> Option<Value> {
    let (Value::String(host), Value::I32(port)) = (address.field("host")?, address.field("port")?)
    else {
        return None;
    };
    let (host, port) = names.live_driver(host, *port)?;
    Some(Value::Struct(vec![("host", Value::String(host.clone())), ("port", Value::I32(*port))]))
}

/// The same message with translated texts.
pub(super) fn translate_message(message: &Message, names: &LiveNames) -> Message {
    let body = match &message.body {
        Ok(value) => Ok(translate(value, names)),
        Err(text) => Err(names.live_text(text)),
    };
    Message { body, ..message.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::word;

    #[test]
    fn only_the_address_of_a_session_is_a_driver() {
        let mut names = LiveNames::default();
        names.driver(("127.0.0.1".to_owned(), 7), ("127.0.0.1".to_owned(), 8));
        let address =
            |port| Value::Struct(vec![("host", word("127.0.0.1")), ("port", Value::I32(port))]);
        let info = |port| Value::Struct(vec![("address", address(port)), ("userId", word("u"))]);
        let node = |port| Value::Struct(vec![("name", word("n")), ("address", address(port))]);
        assert_eq!(translate(&info(7), &names), info(8));
        assert_eq!(translate(&info(9), &names), info(9));
        assert_eq!(translate(&node(7), &names), node(7));
    }

    #[test]
    fn the_history_of_a_session_is_in_the_directory_of_its_live_number() {
        let mut names = LiveNames::new(None, ["202611210043.2001"]);
        names.session("202611210043.2001", "203001010000.1");
        let started = |handle: &str, directory: &str| {
            let manager = vec![("url", word("")), ("jobHistoryLocation", word(directory))];
            Value::Struct(vec![
                ("handle", word(handle)),
                ("clusterManagerInfo", Value::Struct(manager)),
            ])
        };
        assert_eq!(
            translate(&started("202611210043.2001", "/h/202611210043.2"), &names),
            started("203001010000.1", "/h/203001010000.0")
        );
    }
}
