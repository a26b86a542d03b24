//! Items as lines of text and as JSON. Texts from peers are unchanged: the code that prints a line
//! escapes them first.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use super::{Act, Item, is_error};
use crate::capture::Side;
use crate::conversation::Offered;
use crate::report::json::us;
use corona_wire::value::{Message, MessageKind, Value};

/// How much of a message is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The first elements of lists, the start of long texts.
    Short,
    /// The whole item.
    Full,
}

/// Elements of a list or map in the short shape.
const SHORT_ELEMENTS: usize = 3;

/// Characters of a text in the short shape, and bytes that are no message.
const SHORT_CHARACTERS: usize = 40;

/// An item as text without its time: connection, direction, service and contents.
///
/// `#3 > CM sessionHeartbeat handle: 1.1` is a call from the client of connection 3 to a cluster
/// manager, `<` a reply. PJT is a proxy job tracker, SD a session driver.
pub fn text(item: &Item<'_>, shape: Shape) -> String {
    let direction = match item.from {
        Side::Client => '>',
        Side::Server => '<',
    };
    let start = |sign: char| format!("#{} {sign} {}", item.connection.0, letters(item.service));
    match &item.act {
        Act::Opened { accepted, whole } => {
            let how = match (accepted, whole) {
                (false, _) => ", refused",
                (_, false) => ", open before",
                _ => "",
            };
            format!("{} {} -> {}{how}", start('+'), item.client, item.server)
        }
        Act::Call { call, .. } => {
            let kind = match call.kind {
                MessageKind::Call => "",
                _ => call.kind.name(),
            };
            let gap = if kind.is_empty() { "" } else { " " };
            let body = body_text(call, shape);
            let space = if body.is_empty() { "" } else { " " };
            format!("{} {kind}{gap}{}{space}{body}", start(direction), call.name)
        }
        Act::Answer { answer, took, .. } => {
            let took = took.map_or(String::new(), |took| {
                format!(" [{:.3} ms]", took.as_micros() as f64 / 1000.0)
            });
            let sign = if is_error(answer) { "!" } else { "=" };
            let body = body_text(answer, shape);
            let body = if body.is_empty() { "done" } else { &body };
            format!("{}{took} {} {sign} {body}", start(direction), answer.name)
        }
        Act::Bytes(bytes) => {
            format!(
                "{} {} bytes that are not a message: {}",
                start(direction),
                bytes.len(),
                hex(bytes, shape)
            )
        }
        Act::Missing(bytes) => format!("{} {bytes} bytes are not in the file", start(direction)),
        Act::End => format!("{} end", start(direction)),
        Act::Reset => format!("{} reset", start(direction)),
    }
}

/// The arguments or the result of a message.
pub fn body_text(message: &Message, shape: Shape) -> String {
    let mut out = String::new();
    match &message.body {
        Ok(Value::Struct(fields)) => match fields.as_slice() {
            [("success", value)] => write_value(&mut out, value, shape),
            fields => write_fields(&mut out, fields, shape),
        },
        Ok(other) => write_value(&mut out, other, shape),
        Err(text) => write_text(&mut out, text, shape),
    }
    out
}

fn write_fields(out: &mut String, fields: &[(&'static str, Value)], shape: Shape) {
    for (place, (name, value)) in fields.iter().enumerate() {
        let separator = if place == 0 { "" } else { ", " };
        // Writing to a text does not fail.
        let _ = write!(out, "{separator}{name}: ");
        write_value(out, value, shape);
    }
}

fn write_value(out: &mut String, value: &Value, shape: Shape) {
    let shown =
        |count: usize| if shape == Shape::Short { count.min(SHORT_ELEMENTS) } else { count };
    let rest = |out: &mut String, count: usize| {
        if count > shown(count) {
            let _ = write!(out, ", and {} more", count - shown(count));
        }
    };
    let _ = match value {
        Value::Bool(value) => write!(out, "{value}"),
        Value::I16(value) => write!(out, "{value}"),
        Value::I32(value) | Value::Enum(value, None) => write!(out, "{value}"),
        Value::I64(value) => write!(out, "{value}"),
        Value::Enum(_, Some(name)) => write!(out, "{name}"),
        Value::String(text) => {
            write_text(out, text, shape);
            Ok(())
        }
        Value::Struct(fields) => match fields.as_slice() {
            [("host", Value::String(host)), ("port", Value::I32(port))] => {
                write_text(out, host, shape);
                write!(out, ":{port}")
            }
            fields => {
                out.push('{');
                write_fields(out, fields, shape);
                out.push('}');
                Ok(())
            }
        },
        Value::List(values) => {
            out.push('[');
            for (place, value) in values.iter().take(shown(values.len())).enumerate() {
                out.push_str(if place == 0 { "" } else { ", " });
                write_value(out, value, shape);
            }
            rest(out, values.len());
            out.push(']');
            Ok(())
        }
        Value::Map(pairs) => {
            out.push('{');
            for (place, (key, value)) in pairs.iter().take(shown(pairs.len())).enumerate() {
                out.push_str(if place == 0 { "" } else { ", " });
                write_value(out, key, shape);
                out.push_str(": ");
                write_value(out, value, shape);
            }
            rest(out, pairs.len());
            out.push('}');
            Ok(())
        }
    };
}

/// A text, in quotes unless it is one plain word.
fn write_text(out: &mut String, text: &str, shape: Shape) {
    let end = text.char_indices().nth(SHORT_CHARACTERS).map(|(at, _)| at);
    let end = end.filter(|_| shape == Shape::Short);
    let shown = end.and_then(|end| text.get(..end)).unwrap_or(text);
    let plain = |character: char| character.is_alphanumeric() || "._-/:@%+".contains(character);
    let dots = if end.is_some() { "…" } else { "" };
    let _ = match !shown.is_empty() && shown.chars().all(plain) {
        true => write!(out, "{shown}{dots}"),
        false => write!(out, "\"{}\"{dots}", shown.replace('"', "\\\"")),
    };
}

fn hex(bytes: &[u8], shape: Shape) -> String {
    let shown =
        if shape == Shape::Short { bytes.len().min(SHORT_CHARACTERS / 2) } else { bytes.len() };
    let mut text = String::with_capacity(2 * shown + 3);
    for byte in bytes.iter().take(shown) {
        let _ = write!(text, "{byte:02x}");
    }
    if shown < bytes.len() {
        text.push('…');
    }
    text
}

fn letters(service: Offered) -> &'static str {
    match service {
        Offered::ClusterManager => "CM",
        Offered::ProxyJobTracker => "PJT",
        Offered::SessionDriver => "SD",
    }
}

impl Offered {
    /// The word for it on the command line and in JSON, such as `cluster-manager`.
    pub fn name(self) -> &'static str {
        match self {
            Offered::ClusterManager => "cluster-manager",
            Offered::ProxyJobTracker => "proxy-job-tracker",
            Offered::SessionDriver => "session-driver",
        }
    }
}

/// An item as an object. Everything is in it, whatever its length. `started_at_us` is the start of
/// the file, in microseconds since the Unix epoch.
pub fn json(item: &Item<'_>, started_at_us: u64) -> Json {
    let at_us = us(item.at);
    let mut object = Map::new();
    let mut put = |name: &str, value: Json| object.insert(name.to_owned(), value);
    put("at_us", json!(at_us));
    put("time_us", json!(started_at_us.saturating_add(at_us)));
    put("connection", json!(item.connection.0));
    put("client", json!(item.client.to_string()));
    put("server", json!(item.server.to_string()));
    put("service", json!(item.service.name()));
    put("from", json!(if item.from == Side::Client { "client" } else { "server" }));
    let (what, message) = match &item.act {
        Act::Opened { accepted, whole } => {
            put("accepted", json!(accepted));
            put("whole", json!(whole));
            ("opened", None)
        }
        Act::Call { call, bytes, .. } => {
            put("bytes", json!(bytes));
            ("call", Some(call))
        }
        Act::Answer { answer, took, bytes, .. } => {
            put("bytes", json!(bytes));
            put("error", json!(is_error(answer)));
            if let Some(took) = took {
                put("took_us", json!(us(*took)));
            }
            ("answer", Some(answer))
        }
        Act::Bytes(bytes) => {
            put("hex", json!(hex(bytes, Shape::Full)));
            ("bytes", None)
        }
        Act::Missing(bytes) => {
            put("bytes", json!(bytes));
            ("missing", None)
        }
        Act::End => ("end", None),
        Act::Reset => ("reset", None),
    };
    put("what", json!(what));
    if let Some(message) = message {
        put("kind", json!(message.kind.name()));
        put("method", json!(message.name));
        put("seqid", json!(message.seqid));
        match &message.body {
            Ok(body) => put("body", json!(body)),
            Err(text) => put("unreadable", json!(text)),
        };
    }
    Json::Object(object)
}
