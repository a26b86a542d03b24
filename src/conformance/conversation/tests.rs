//! Recorded conversations, compared with another program's reading of the same captures.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::capture::{Opening, StreamEvent};
use crate::recorded::{conversations_of, job, scenario, unpacked};

/// A message, without anything that depends on how connections are numbered.
#[derive(Debug, PartialEq)]
struct MessageLine {
    client_port: u16,
    server_port: u16,
    from: Side,
    kind: String,
    name: String,
    sequence: i32,
    framed: bool,
    body: Json,
}

/// The messages of a recording as `thrift.txt` lists them: time in seconds, and the message.
///
/// ```text
///    0.4083 #003 -- connect to CM :18888 from :40396
///    5.1253 #004 -> CM CALL nodeHeartbeat seq=1 framed {"node": ...}
/// ```
fn listed(name: &str) -> Vec<(f64, MessageLine)> {
    let text = unpacked(&job(name).join("thrift.txt.gz"));
    let mut ports: HashMap<&str, (u16, u16)> = HashMap::new();
    let mut lines = Vec::new();
    let port = |word: &str| word.trim_start_matches(':').parse::<u16>().unwrap();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let at: f64 = words.next().unwrap().parse().unwrap();
        let connection = words.next().unwrap();
        let from = match words.next().unwrap() {
            "->" => Side::Client,
            "<-" => Side::Server,
            _ => {
                if words.next() == Some("connect") {
                    let server = port(words.nth(2).unwrap());
                    ports.insert(connection, (port(words.nth(1).unwrap()), server));
                }
                continue;
            }
        };
        let mut word = || words.next().unwrap().to_owned();
        let (client_port, server_port) = ports[connection];
        let (_peer, kind, name, sequence, framing) = (word(), word(), word(), word(), word());
        lines.push((
            at,
            MessageLine {
                client_port,
                server_port,
                from,
                kind,
                name,
                sequence: sequence.trim_start_matches("seq=").parse().unwrap(),
                framed: framing == "framed",
                body: serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap(),
            },
        ));
    }
    lines
}

fn found(conversations: &[Conversation]) -> Vec<(f64, MessageLine)> {
    let mut lines = Vec::new();
    for conversation in conversations {
        for (part, message) in conversation.messages() {
            lines.push((
                part.at.as_secs_f64(),
                MessageLine {
                    client_port: conversation.client.port(),
                    server_port: conversation.server.port(),
                    from: part.from,
                    kind: message.kind.name().to_owned(),
                    name: message.name.clone(),
                    sequence: message.seqid,
                    framed: conversation.service.framing() == Framing::Framed,
                    body: serde_json::to_value(message.body.as_ref().unwrap()).unwrap(),
                },
            ));
        }
    }
    lines
}

#[test]
fn jobs_say_what_another_decoder_found() {
    for (name, messages) in [
        ("inproc-sleep", 46),
        ("remote-sleep", 70),
        ("wc-remote", 76),
        ("nodedeath", 80),
        ("preempt", 200),
    ] {
        let conversations = conversations_of(&job(name));
        let mut found = found(&conversations);
        let mut listed = listed(name);
        assert!(listed.len() >= messages, "{name}: {} messages listed", listed.len());
        let order = |lines: &mut Vec<(f64, MessageLine)>| {
            lines.sort_by(|(at_a, a), (at_b, b)| {
                let key = |line: &MessageLine| (line.client_port, line.server_port);
                (key(a), *at_a).partial_cmp(&(key(b), *at_b)).unwrap()
            });
        };
        order(&mut found);
        order(&mut listed);
        for ((found_at, found), (listed_at, listed)) in found.iter().zip(&listed) {
            assert_eq!(found, listed, "{name} at {listed_at}");
            assert!((found_at - listed_at).abs() < 0.02, "{name}: {found_at}, not {listed_at}");
        }
        assert_eq!(found.len(), listed.len(), "{name}");
        assert!(bytes(&conversations).is_empty(), "{name}: {:?}", bytes(&conversations));
    }
}

/// The bytes that are no message.
fn bytes(conversations: &[Conversation]) -> Vec<&Part> {
    let parts = conversations.iter().flat_map(|conversation| &conversation.parts);
    parts.filter(|part| matches!(part.what, Said::Bytes(_) | Said::Missing(_))).collect()
}

#[test]
fn broken_peers_are_kept_as_they_were() {
    let conversations = conversations_of(&scenario("wire"));
    let strange: Vec<_> =
        bytes(&conversations).into_iter().map(|part| (part.from, part.what.clone())).collect();
    let unversioned =
        [&[0, 0, 0, 26, 0, 0, 0, 16][..], b"getNextSessionId\x01\0\0\0\x01\0"].concat();
    assert_eq!(
        strange,
        [
            (Side::Client, Said::Bytes(b"\0\0\0\x05hello".to_vec())),
            (Side::Client, Said::Bytes(vec![0xff; 4])),
            (Side::Client, Said::Bytes(unversioned)),
        ]
    );
    let names: Vec<_> = conversations
        .iter()
        .flat_map(Conversation::messages)
        .map(|(_, message)| (message.kind.name(), message.name.as_str(), message.seqid))
        .collect();
    assert_eq!(
        names,
        [
            ("CALL", "getNextSessionId", 1),
            ("REPLY", "getNextSessionId", 1),
            ("CALL", "getSessions", 42),
            ("REPLY", "getSessions", 42),
            ("CALL", "getNextSessionId", 7),
            ("CALL", "getNextSessionId", 8),
            ("REPLY", "getNextSessionId", 7),
            ("REPLY", "getNextSessionId", 8),
        ]
    );
}

proptest! {
    /// No data of the two sides are lost or reordered, whatever the data are.
    #[test]
    fn any_bytes_are_kept(
        whole in any::<bool>(),
        offered in 0..3_usize,
        sent in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec(any_byte(), 0..60)),
            0..20,
        ),
    ) {
        let service =
            [Offered::ClusterManager, Offered::ProxyJobTracker, Offered::SessionDriver][offered];
        let opening = Opening {
            client: ([127, 0, 0, 1], 1).into(),
            server: ([127, 0, 0, 1], 2).into(),
            at: Duration::ZERO,
            whole,
        };
        let events = sent.iter().map(|(from_client, data)| StreamEvent {
            at: Duration::ZERO,
            from: if *from_client { Side::Client } else { Side::Server },
            what: EventKind::Data(data.clone()),
        });
        let connection =
            Connection { id: ConnectionId(0), opening, accepted: true, events: events.collect() };
        let conversation = cut(&connection, service, false);
        for side in [Side::Client, Side::Server] {
            let of_side = sent.iter().filter(|(client, _)| *client == (side == Side::Client));
            let expected: Vec<u8> = of_side.flat_map(|(_, data)| data.clone()).collect();
            let of_side = conversation.parts.iter().filter(|part| part.from == side);
            let kept: Vec<u8> = of_side
                .flat_map(|part| match &part.what {
                    Said::Messages { raw, .. } | Said::Bytes(raw) => raw.clone(),
                    _ => Vec::new(),
                })
                .collect();
            prop_assert_eq!(kept, expected);
        }
    }
}

/// Bytes that often look like lengths, versions, kinds and types.
fn any_byte() -> impl Strategy<Value = u8> {
    prop_oneof![
        3 => Just(0_u8),
        1 => Just(0x80),
        2 => 1..16_u8,
        1 => any::<u8>(),
    ]
}
