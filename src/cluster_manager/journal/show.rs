//! Records of the journal for people and tools.

use serde::Serialize;
use serde_json::Value;

use super::entry::{Entry, Step};
use corona_engine::codec::CodecError;

/// A record of the journal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JournalRecord {
    /// Its number in the journal; numbers ascend by 1.
    pub number: u64,
    /// Bytes of its contents, without its head.
    pub bytes: usize,
    /// The time of its input, or of the state that it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<i64>,
    /// The name of its input, `State` for a record that holds the whole state, or `Heartbeats` for one
    /// without an input.
    pub input: String,
    /// The session or node that the input is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Heartbeats of nodes that changed nothing.
    pub heartbeats: usize,
    /// Sessions that have acknowledged notifications.
    pub acknowledged: usize,
    /// The input with all its members, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<Value>,
}

impl JournalRecord {
    /// The record of these bytes.
    ///
    /// # Errors
    /// They are not those of a record of this version.
    pub fn read(number: u64, bytes: &[u8]) -> Result<JournalRecord, CodecError> {
        let record = |input: &str| JournalRecord {
            number,
            bytes: bytes.len(),
            time_ms: None,
            input: input.to_owned(),
            subject: None,
            heartbeats: 0,
            acknowledged: 0,
            members: None,
        };
        Ok(match Entry::decode(bytes)? {
            Entry::Base(base) => {
                JournalRecord { time_ms: Some(base.engine.now().0), ..record("State") }
            }
            Entry::Step(step) => {
                let Step { heard, acknowledged, input } = *step;
                let (heartbeats, acknowledged) = (heard.len(), acknowledged.len());
                let described = match input {
                    None => record("Heartbeats"),
                    Some((at, input)) => {
                        let (input, members) = described(&input);
                        let subject = members.as_ref().and_then(subject);
                        let time_ms = Some(at.0);
                        JournalRecord { time_ms, subject, members, ..record(&input) }
                    }
                };
                JournalRecord { heartbeats, acknowledged, ..described }
            }
        })
    }
}

/// The name of an input, and its members.
fn described(input: &impl Serialize) -> (String, Option<Value>) {
    match serde_json::to_value(input) {
        Ok(Value::String(name)) => (name, None),
        Ok(Value::Object(variant)) => match variant.into_iter().next() {
            Some((name, members)) => (name, Some(members)),
            None => (String::new(), None),
        },
        // Settings have keys that JSON has no form for.
        Ok(_) | Err(_) => ("SettingsChanged".to_owned(), None),
    }
}

fn subject(members: &Value) -> Option<String> {
    let named = ["handle", "node"].into_iter().find_map(|name| members.get(name));
    let named = named.or_else(|| members.get("report")?.get("name"));
    named?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corona_engine::{Engine, Input, Start, testing};
    use corona_model::types::Millis;

    #[test]
    fn records_are_described() {
        let start = Start { now: Millis(5), id_prefix: "1".into(), hash_seed: 1 };
        let engine = Engine::new(testing::settings(), start);
        let first = super::super::opening::first_record(&engine, Default::default()).unwrap();
        let state = JournalRecord::read(1, &first).unwrap();
        assert_eq!((&*state.input, state.time_ms), ("State", Some(5)));
        let settings = Box::new(testing::settings());
        for (input, name, subject) in [
            (Some(testing::session("1.1", "g.p")), "StartSession", Some("1.1")),
            (Some(testing::heartbeat("a", 2)), "HeartbeatNode", Some("a")),
            (Some(Input::Pass), "Pass", None),
            (Some(Input::SettingsChanged { settings }), "SettingsChanged", None),
            (None, "Heartbeats", None),
        ] {
            let heard = [(Millis(7), "b".into())];
            let timed = input.as_ref().map(|input| (Millis(9), input));
            let bytes = super::super::entry::encode_step(vec![], &heard, &[], timed).unwrap();
            let record = JournalRecord::read(2, &bytes).unwrap();
            assert_eq!((&*record.input, record.subject.as_deref()), (name, subject));
            assert_eq!((record.heartbeats, record.time_ms), (1, input.map(|_| 9)));
        }
        assert!(JournalRecord::read(3, b"").is_err());
    }
}
