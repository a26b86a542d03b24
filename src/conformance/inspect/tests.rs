//! The texts of items, the selection, and the statistics.

use super::*;
use crate::conversation::Part;
use crate::samples::{self, conversation, word};
use corona_wire::value::MessageKind;

fn message(kind: MessageKind, name: &str, seqid: i32, body: Vec<(&'static str, Value)>) -> Message {
    Message { seqid, ..samples::message(kind, name, body) }
}

fn said(us: u64, from: Side, messages: Vec<Message>) -> Part {
    let what = Said::Messages { raw: vec![0; 10 * messages.len()], messages };
    Part { at: Duration::from_micros(us), from, what }
}

fn part(us: u64, from: Side, what: Said) -> Part {
    Part { at: Duration::from_micros(us), from, what }
}

fn handle(handle: &str) -> Vec<(&'static str, Value)> {
    vec![("handle", word(handle))]
}

/// A heartbeat of a session, one that is refused, a list of sessions asked for twice, and noise.
fn talk() -> Conversation {
    let call = |name, seqid, body| message(MessageKind::Call, name, seqid, body);
    let reply = |name, seqid, body| message(MessageKind::Reply, name, seqid, body);
    let sessions = vec![("success", Value::List(vec![Value::Struct(handle("1.9"))]))];
    let invalid = vec![("e", Value::Struct(handle("1.2")))];
    let parts = vec![
        said(10, Side::Client, vec![call("sessionHeartbeat", 1, handle("1.1"))]),
        said(1_510, Side::Server, vec![reply("sessionHeartbeat", 1, vec![])]),
        said(2_000, Side::Client, vec![call("sessionHeartbeat", 2, handle("1.2"))]),
        said(2_004, Side::Server, vec![reply("sessionHeartbeat", 2, invalid)]),
        said(
            3_000,
            Side::Client,
            vec![call("getSessions", 0, vec![]), call("getSessions", 0, vec![])],
        ),
        said(3_001, Side::Server, vec![reply("getSessions", 0, sessions)]),
        part(4_000, Side::Client, Said::Bytes(b"\xffab".to_vec())),
        part(4_001, Side::Client, Said::Missing(7)),
        part(4_002, Side::Client, Said::End),
        part(4_003, Side::Server, Said::Reset),
    ];
    conversation(Offered::ClusterManager, parts)
}

#[test]
fn every_item_is_a_line() {
    let talk = [talk()];
    let lines: Vec<String> = items(&talk).iter().map(|item| text(item, Shape::Short)).collect();
    let expected = [
        "#3 + CM 10.0.0.1:5 -> 10.0.0.2:9",
        "#3 > CM sessionHeartbeat handle: 1.1",
        "#3 < CM [1.500 ms] sessionHeartbeat = done",
        "#3 > CM sessionHeartbeat handle: 1.2",
        "#3 < CM [0.004 ms] sessionHeartbeat ! e: {handle: 1.2}",
        "#3 > CM getSessions",
        "#3 > CM getSessions",
        "#3 < CM [0.001 ms] getSessions = [{handle: 1.9}]",
        "#3 > CM 3 bytes that are not a message: ff6162",
        "#3 > CM 7 bytes are not in the file",
        "#3 > CM end",
        "#3 < CM reset",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn short_messages_leave_out_and_say_so() {
    let ids = (1..=5).map(Value::I32).collect();
    let body = vec![
        ("idList", Value::List(ids)),
        ("name", word(&"x".repeat(50))),
        ("address", Value::Struct(vec![("host", word("h")), ("port", Value::I32(9))])),
        ("url", word("a \"b\"")),
        ("type", Value::Enum(0, Some("MAP"))),
        ("usages", Value::Map(vec![(Value::Enum(1, Some("REDUCE")), Value::I64(-4))])),
        ("empty", word("")),
    ];
    let message = message(MessageKind::Call, "m", 1, body);
    let rest = "address: h:9, url: \"a \\\"b\\\"\", type: MAP, usages: {REDUCE: -4}, empty: \"\"";
    let x = |count| "x".repeat(count);
    assert_eq!(
        body_text(&message, Shape::Short),
        format!("idList: [1, 2, 3, and 2 more], name: {}…, {rest}", x(40))
    );
    assert_eq!(
        body_text(&message, Shape::Full),
        format!("idList: [1, 2, 3, 4, 5], name: {}, {rest}", x(50))
    );
}

#[test]
fn objects_have_everything() {
    let talk = [talk()];
    let items = items(&talk);
    let object = json(&items[2], 1_000_000);
    let expected = serde_json::json!({
        "at_us": 1_510, "time_us": 1_001_510, "connection": 3, "client": "10.0.0.1:5",
        "server": "10.0.0.2:9", "service": "cluster-manager", "from": "server",
        "what": "answer", "bytes": 10, "error": false, "took_us": 1_500,
        "kind": "REPLY", "method": "sessionHeartbeat", "seqid": 1, "body": {},
    });
    assert_eq!(object, expected);
    let all: Vec<_> = items.iter().map(|item| json(item, 0)).collect();
    let members = all.iter().flat_map(|object| object.as_object().unwrap().values());
    assert!(members.into_iter().all(|member| !member.is_null()), "what has no value is left out");
    let whats: Vec<_> =
        all.iter().map(|object| object["what"].as_str().unwrap().to_owned()).collect();
    let expected = [
        "opened", "call", "answer", "call", "answer", "call", "call", "answer", "bytes", "missing",
        "end", "reset",
    ];
    assert_eq!(whats, expected);
}

#[test]
fn filters_keep_calls_with_their_answers() {
    let node = |name: &str, host: &str| {
        let address = Value::Struct(vec![("host", word(host)), ("port", Value::I32(1))]);
        vec![("node", Value::Struct(vec![("name", word(name)), ("address", address)]))]
    };
    let mut conversation = talk();
    conversation.parts.push(said(
        9_000,
        Side::Client,
        vec![message(MessageKind::Call, "nodeHeartbeat", 8, node("n1", "h1"))],
    ));
    conversation.parts.push(said(
        9_001,
        Side::Server,
        vec![message(MessageKind::Reply, "nodeHeartbeat", 8, vec![])],
    ));
    let conversations = [conversation];
    let items = items(&conversations);
    let text = |text: &str| Some(text.to_owned());
    let ms = |ms| Some(Duration::from_millis(ms));
    let all = Filter::default();
    for (filter, expected) in [
        (all.clone(), 14),
        (Filter { session: text("1.1"), ..all.clone() }, 2),
        (Filter { session: text("1.2"), ..all.clone() }, 2),
        // Only one of the two equal calls was answered, the first.
        (Filter { session: text("1.9"), ..all.clone() }, 2),
        (Filter { session: text("1"), ..all.clone() }, 0),
        (Filter { node: text("n1"), ..all.clone() }, 2),
        (Filter { node: text("h1"), ..all.clone() }, 2),
        (Filter { node: text("1.1"), ..all.clone() }, 0),
        (Filter { method: text("getSessions"), ..all.clone() }, 3),
        (Filter { method: text("getSessions"), session: text("1.1"), ..all.clone() }, 0),
        (Filter { from: ms(4), ..all.clone() }, 6),
        (Filter { until: ms(2), ..all.clone() }, 4),
        (Filter { from: ms(2), until: ms(3), ..all.clone() }, 4),
    ] {
        let wanted = items.iter().filter(|item| filter.wants(item)).count();
        assert_eq!(wanted, expected, "{filter:?}");
    }
}

#[test]
fn statistics_count_calls_and_answers() {
    let talk = [talk()];
    let us = Duration::from_micros;
    let found = statistics(&items(&talk));
    let heartbeats = MethodStatistics {
        service: Offered::ClusterManager,
        method: "sessionHeartbeat".into(),
        calls: 2,
        answered: 2,
        errors: 1,
        median: Some(us(4)),
        slowest_percent: Some(us(1_500)),
        call_bytes: 20,
        answer_bytes: 10 + 10,
    };
    let lists = MethodStatistics {
        method: "getSessions".into(),
        calls: 2,
        answered: 1,
        errors: 0,
        median: Some(us(1)),
        slowest_percent: Some(us(1)),
        call_bytes: 20,
        answer_bytes: 10,
        ..heartbeats.clone()
    };
    assert_eq!(found, [lists, heartbeats]);
}
