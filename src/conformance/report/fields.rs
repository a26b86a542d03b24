//! Two decoded messages side by side, field by field.
//!
//! Structs are aligned by the names of their fields, maps by their keys, lists by their places; a
//! list of sessions by their handles, since its order means nothing.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

use super::cut;
use corona_wire::value::{Message, Value};

/// The fields of two messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// In the order of the contract; of more than 200, those that differ go first.
    pub pairs: Vec<FieldPair>,
    /// Fields that are not among them.
    pub left_out: usize,
}

/// One field on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPair {
    /// Where it is, such as `success[202611210005.1].name`.
    pub path: String,
    /// The recorded value as JSON; none when it is not there.
    pub recorded: Option<String>,
    /// The value of the run under test.
    pub live: Option<String>,
}

/// Fields of one finding that are kept.
const MAX_FIELDS: usize = 200;

/// Characters of one value that are kept.
const MAX_VALUE: usize = 1_000;

impl FieldPair {
    /// Whether both sides have the same.
    pub fn is_equal(&self) -> bool {
        self.recorded == self.live
    }
}

impl Fields {
    /// The fields that differ.
    pub fn different(&self) -> impl Iterator<Item = &FieldPair> {
        self.pairs.iter().filter(|pair| !pair.is_equal())
    }

    pub(super) fn of_messages(recorded: &Message, live: &Message) -> Fields {
        let mut pairs = Vec::new();
        for (path, recorded, live) in [
            ("kind", recorded.kind.name().to_owned(), live.kind.name().to_owned()),
            ("method", recorded.name.clone(), live.name.clone()),
            ("seqid", recorded.seqid.to_string(), live.seqid.to_string()),
        ] {
            if recorded != live {
                let path = path.to_owned();
                pairs.push(FieldPair { path, recorded: Some(recorded), live: Some(live) });
            }
        }
        match (&recorded.body, &live.body) {
            (Ok(recorded), Ok(live)) => walk("", Some(recorded), Some(live), &mut pairs),
            (recorded, live) => {
                let text = |body: &Result<Value, String>| match body {
                    Ok(value) => shown(value),
                    Err(why) => cut(why.clone(), MAX_VALUE),
                };
                let (recorded, live) = (Some(text(recorded)), Some(text(live)));
                pairs.push(FieldPair { path: "body".to_owned(), recorded, live });
            }
        }
        bounded(pairs)
    }
}

fn bounded(mut pairs: Vec<FieldPair>) -> Fields {
    let all = pairs.len();
    if all > MAX_FIELDS {
        pairs.sort_by_key(FieldPair::is_equal);
        pairs.truncate(MAX_FIELDS);
    }
    Fields { left_out: all - pairs.len(), pairs }
}

/// Adds the leaves of two values, at least one of which is present.
fn walk(path: &str, recorded: Option<&Value>, live: Option<&Value>, out: &mut Vec<FieldPair>) {
    let leaves = || FieldPair {
        path: path.to_owned(),
        recorded: recorded.map(shown),
        live: live.map(shown),
    };
    let (recorded, live) = match (recorded, live) {
        (Some(one), Some(other)) if discriminant(one) != discriminant(other) => {
            return out.push(leaves());
        }
        (one, other) => match (one.map(parts), other.map(parts)) {
            // A leaf, on the side or sides that are there.
            (Some(None), _) | (_, Some(None)) => return out.push(leaves()),
            (one, other) => {
                (one.flatten().unwrap_or_default(), other.flatten().unwrap_or_default())
            }
        },
    };
    if recorded.is_empty() && live.is_empty() {
        return out.push(leaves());
    }
    let live_by_name: HashMap<&str, &Value> =
        live.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let known: HashSet<&str> = recorded.iter().map(|(name, _)| name.as_str()).collect();
    for (name, value) in &recorded {
        walk(&join(path, name), Some(value), live_by_name.get(name.as_str()).copied(), out);
    }
    for (name, value) in live.iter().filter(|(name, _)| !known.contains(name.as_str())) {
        walk(&join(path, name), None, Some(value), out);
    }
}

/// The parts of a value, each with a unique name; none for a leaf.
fn parts(value: &Value) -> Option<Vec<(String, &Value)>> {
    match value {
        Value::Struct(fields) => {
            Some(fields.iter().map(|(name, value)| ((*name).to_owned(), value)).collect())
        }
        Value::List(values) => Some(elements(values)),
        Value::Map(pairs) => {
            let key = |key: &Value| match key {
                Value::String(text) => format!("[{text}]"),
                other => format!("[{}]", shown(other).trim_matches('"')),
            };
            Some(numbered(pairs.iter().map(|(name, value)| (key(name), value)).collect()))
        }
        _ => None,
    }
}

fn elements(values: &[Value]) -> Vec<(String, &Value)> {
    let handle = |value: &Value| match value.field("handle") {
        Some(Value::String(handle)) => Some(format!("[{handle}]")),
        _ => None,
    };
    let by_place = || values.iter().enumerate().map(|(place, value)| (format!("[{place}]"), value));
    let by_handle: Option<Vec<_>> =
        values.iter().map(|value| Some((handle(value)?, value))).collect();
    by_handle.map_or_else(|| by_place().collect(), numbered)
}

/// Names that come twice get a number.
fn numbered(mut parts: Vec<(String, &Value)>) -> Vec<(String, &Value)> {
    let mut seen = HashSet::new();
    for (place, (name, _)) in parts.iter_mut().enumerate() {
        if !seen.insert(name.clone()) {
            *name = format!("{name}#{place}");
        }
    }
    parts
}

fn join(path: &str, name: &str) -> String {
    let dot = if path.is_empty() || name.starts_with('[') { "" } else { "." };
    format!("{path}{dot}{name}")
}

fn shown(value: &Value) -> String {
    cut(crate::answers::json(value), MAX_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::word;
    use corona_wire::value::MessageKind;

    fn session(handle: &str, maps: i32) -> Value {
        let running = vec![(Value::Enum(0, Some("MAP")), Value::I32(maps))];
        Value::Struct(vec![("handle", word(handle)), ("running", Value::Map(running))])
    }

    fn reply(body: Value) -> Message {
        Message { kind: MessageKind::Reply, name: "m".to_owned(), seqid: 1, body: Ok(body) }
    }

    fn lines(recorded: Value, live: Value) -> Vec<String> {
        let fields = Fields::of_messages(&reply(recorded), &reply(live));
        let line = |pair: &FieldPair| {
            let side = |side: &Option<String>| side.clone().unwrap_or("-".to_owned());
            format!("{} {} {}", pair.path, side(&pair.recorded), side(&pair.live))
        };
        fields.pairs.iter().map(line).collect()
    }

    #[test]
    fn sides_are_aligned_by_name_place_key_and_handle() {
        let list =
            |values: &[Value]| Value::Struct(vec![("success", Value::List(values.to_vec()))]);
        for (recorded, live, expected) in [
            (
                list(&[session("1.1", 1), session("1.2", 2)]),
                list(&[session("1.2", 3), session("1.1", 1)]),
                &[
                    "success[1.1].handle \"1.1\" \"1.1\"",
                    "success[1.1].running[MAP] 1 1",
                    "success[1.2].handle \"1.2\" \"1.2\"",
                    "success[1.2].running[MAP] 2 3",
                ][..],
            ),
            (
                list(&[Value::I32(1)]),
                list(&[Value::I32(1), Value::I32(2)]),
                &["success[0] 1 1", "success[1] - 2"],
            ),
            (list(&[]), list(&[]), &["success [] []"]),
            (list(&[]), list(&[Value::I32(7)]), &["success[0] - 7"]),
            (
                Value::Struct(vec![("e", Value::Struct(vec![("handle", word("x"))]))]),
                Value::Struct(vec![]),
                &["e.handle \"x\" -"],
            ),
            (Value::Struct(vec![]), Value::Struct(vec![]), &[" {} {}"]),
            (word("a"), Value::I32(1), &[" \"a\" 1"]),
        ] {
            assert_eq!(lines(recorded, live), expected);
        }
    }

    #[test]
    fn heads_and_unreadable_bodies_show() {
        let (one, mut other) = (reply(word("a")), reply(word("a")));
        other.kind = MessageKind::Exception;
        other.seqid = 2;
        other.body = Err("no".to_owned());
        let fields = Fields::of_messages(&one, &other);
        let paths: Vec<&str> = fields.different().map(|pair| pair.path.as_str()).collect();
        assert_eq!(paths, ["kind", "seqid", "body"]);
    }

    #[test]
    fn of_too_many_fields_those_that_differ_are_kept() {
        let list = |last| {
            let mut values = vec![Value::I32(0); 1_000];
            values[999] = Value::I32(last);
            Value::List(values)
        };
        let fields = Fields::of_messages(&reply(list(1)), &reply(list(2)));
        assert_eq!((fields.pairs.len(), fields.left_out), (MAX_FIELDS, 1_000 - MAX_FIELDS));
        assert_eq!(fields.different().count(), 1);
        let long = Fields::of_messages(&reply(word(&"x".repeat(5_000))), &reply(word("")));
        assert!(long.pairs[0].recorded.as_ref().unwrap().len() < 1_100);
    }
}
