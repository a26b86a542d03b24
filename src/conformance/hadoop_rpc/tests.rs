//! All messages of the recorded jobs, compared with the values that the original's own objects
//! read.

use super::*;
use crate::capture::Limits;
use crate::open;
use crate::recorded::{JOBS, job, unpacked};
use corona_hadoop::io::Writer;
use corona_hadoop::object::{Object, Value};
use corona_hadoop::protocols;
use corona_hadoop::rpc::{HANDSHAKE, Method, Outcome, Protocol};
use corona_hadoop::writables::{Action, TaskStatus};
use corona_model::random::Random;

fn recorded(name: &str) -> Vec<HadoopConversation> {
    let traffic = open(&job(name).join("traffic.pcap"), &Limits::default()).unwrap();
    hadoop_conversations(&traffic.capture)
}

fn protocol(conversation: &HadoopConversation) -> &'static Protocol {
    let mut all = protocols::ALL.iter();
    all.find(|protocol| protocol.name == conversation.header.protocol).unwrap()
}

fn written(object: &impl Writable) -> Vec<u8> {
    let mut writer = Writer::new(1 << 24);
    object.encode(&mut writer);
    writer.finish().unwrap()
}

/// The statuses of attempts in a value, in order.
fn statuses(object: &Object) -> Vec<&TaskStatus> {
    match object {
        Object::Array(_, items) => items.iter().flat_map(statuses).collect(),
        Object::Writable(_, value) => match value {
            Value::TaskStatus(status) => vec![&**status],
            Value::TaskTrackerStatus(tracker) => tracker.tasks.iter().collect(),
            Value::Task(task) => vec![&task.status],
            Value::JvmTask(task) => task.task.iter().map(|task| &task.status).collect(),
            Value::TaskTrackerAction(action) => match &action.action {
                Action::Launch(task) => vec![&task.status],
                _ => vec![],
            },
            _ => vec![],
        },
        _ => vec![],
    }
}

fn summary<'a>(objects: impl IntoIterator<Item = &'a Object>) -> String {
    let all = objects.into_iter().flat_map(statuses);
    all.map(|status| {
        format!(" {} {} {}", status.state, status.start_time_ms, status.finish_time_ms)
    })
    .collect()
}

/// The same of a line that another program wrote.
fn listed_summary(line: &str) -> String {
    let value = |text: &str, key: &str| {
        let (_, value) = text.split_once(key)?;
        Some(value.split([',', '}']).next()?.to_owned())
    };
    let statuses = line.split(" runState=").skip(1);
    let all = statuses.filter(|status| status.starts_with(|first: char| first.is_alphabetic()));
    all.map(|status| {
        let state = status.split([',', '}']).next().unwrap();
        let start = value(status, " startTime=").unwrap();
        let finish = value(status, " finishTime=").unwrap();
        format!(" {state} {start} {finish}")
    })
    .collect()
}

/// The messages of one side, one line each.
fn told(conversation: &HadoopConversation, side: Side) -> Vec<String> {
    let parts = conversation.parts.iter().filter(|part| part.from == side);
    let lines = parts.filter_map(|part| match &part.said {
        HadoopSaid::Call(call) => Some(format!(
            "-> CALL id={} len={} {}{}",
            call.id,
            part.raw.len() - 4,
            call.method,
            summary(&call.parameters)
        )),
        HadoopSaid::Reply(reply) => match &reply.outcome {
            Outcome::Value(value) => {
                Some(format!("<- REPLY id={} {}{}", reply.id, value.class(), summary([value])))
            }
            other => panic!("{other:?}"),
        },
        HadoopSaid::Ping => None,
        HadoopSaid::Unread(error) => panic!("{}: {error}", conversation.header.protocol),
    });
    lines.collect()
}

/// A line of the list in the same words, with the connection in front.
fn listed(line: &str) -> Option<(String, Side, String)> {
    let mut words = line.split_whitespace().skip(1);
    let connection = words.next()?.to_owned();
    let direction = words.next()?;
    let summary = listed_summary(line);
    match (direction, words.next()?) {
        ("->", "CALL") => {
            let (id, length) = (words.next()?, words.next()?);
            let method = words.next()?.split('(').next()?;
            Some((connection, Side::Client, format!("-> CALL {id} {length} {method}{summary}")))
        }
        ("<-", "REPLY") => {
            let (id, _method, _ok, class) =
                (words.next()?, words.next()?, words.next()?, words.next()?);
            Some((connection, Side::Server, format!("<- REPLY {id} {class}{summary}")))
        }
        _ => None,
    }
}

/// Every connection, call and reply agrees with a list that the original's own objects were read
/// for: ids, lengths, methods, classes, and the statuses of attempts.
#[test]
fn recorded_conversations_agree_with_their_list() {
    for name in JOBS {
        let list = unpacked(&job(name).join("hadoop-rpc.txt.gz"));
        let mut expected = std::collections::BTreeMap::<_, [Vec<String>; 2]>::new();
        for (connection, side, line) in list.lines().filter_map(listed) {
            let place = usize::from(side == Side::Server);
            expected.entry(connection).or_default()[place].push(line);
        }
        let mut expected: Vec<_> = expected.into_values().collect();
        let found = recorded(name).into_iter();
        let found = found.map(|found| [told(&found, Side::Client), told(&found, Side::Server)]);
        let mut found: Vec<_> = found.filter(|told| !told[0].is_empty()).collect();
        expected.sort();
        found.sort();
        assert!(found.len() >= 14, "{name}");
        assert_eq!(found, expected, "{name}");
    }
}

/// Objects read from the recordings are written as the same bytes.
#[test]
fn recorded_calls_and_replies_are_written_as_they_were() {
    let (mut calls, mut replies) = (0, 0);
    for conversation in JOBS.iter().flat_map(|job| recorded(job)) {
        for part in &conversation.parts {
            match &part.said {
                HadoopSaid::Call(call) => {
                    assert_eq!(written(call), part.raw[4..], "{call:?}");
                    calls += 1;
                }
                HadoopSaid::Reply(reply) => {
                    assert_eq!(written(reply), part.raw, "{reply:?}");
                    replies += 1;
                }
                HadoopSaid::Ping => {}
                HadoopSaid::Unread(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!((calls, replies), (1008, 1002));
}

/// Every recorded call names a method of its protocol, and its reply has that method's class, or is
/// a null of it.
#[test]
fn recorded_calls_fit_their_protocols() {
    for conversation in JOBS.iter().flat_map(|job| recorded(job)) {
        let protocol = protocol(&conversation);
        let mut open = std::collections::HashMap::new();
        for part in &conversation.parts {
            match &part.said {
                HadoopSaid::Call(call) => {
                    let methods = HANDSHAKE.iter().chain(protocol.methods);
                    let classes: Vec<_> =
                        call.parameters.iter().map(|value| value.class().to_string()).collect();
                    let fits = |method: &&Method| {
                        method.name == call.method && method.parameters == classes
                    };
                    let method = methods.clone().find(fits);
                    open.insert(call.id, method.unwrap_or_else(|| panic!("{call:?}")).returns);
                    if call.method == "getProtocolSignature" {
                        assert_eq!(call.parameters[1], Object::Long(protocol.version));
                        assert_eq!(call.parameters[2], Object::Int(protocol.fingerprint()));
                    }
                }
                HadoopSaid::Reply(Reply { id, outcome: Outcome::Value(value) }) => {
                    assert_eq!(open.remove(id), Some(value.class().to_string().as_str()));
                }
                _ => {}
            }
        }
    }
}

/// Recorded calls with a few bytes changed are refused, or read as something that is written and
/// read again as the same.
#[test]
fn damaged_calls_are_refused_or_kept() {
    let mut random = Random::new(7);
    let (mut refused, mut kept) = (0, 0);
    for conversation in recorded("remote-sleep") {
        for part in conversation.parts.iter().filter(|part| part.from == Side::Client) {
            for _ in 0..100 {
                let mut call = part.raw[4..].to_vec();
                for _ in 0..=random.below(3) {
                    let place = random.below(call.len());
                    call[place] = u8::try_from(random.below(256)).unwrap();
                }
                let Ok(read) = Call::decode(&mut Reader::new(&call)) else {
                    refused += 1;
                    continue;
                };
                let again = written(&read);
                let read = Call::decode(&mut Reader::new(&again)).unwrap();
                assert_eq!(written(&read), again);
                kept += 1;
            }
        }
    }
    assert!(refused > 1000 && kept > 1000, "{refused} refused, {kept} kept");
}

#[test]
fn streams_that_are_no_conversations() {
    use crate::capture::{Opening, StreamEvent};

    let address = ([127, 0, 0, 1], 1).into();
    let opening = Opening { client: address, server: address, at: Duration::ZERO, whole: true };
    let at = |ms, from, data: &[u8]| StreamEvent {
        at: Duration::from_millis(ms),
        from,
        what: EventKind::Data(data.to_vec()),
    };
    let connection = |events| Connection {
        id: ConnectionId(0),
        opening: opening.clone(),
        accepted: true,
        events,
    };
    for bytes in ["", "GET / HTTP/1.1", "hrpc\x03", "hrpc\x03\0\0\0\x7f", "hrpc\x03\x7f\0\0\0"] {
        let one = connection(vec![at(1, Side::Client, bytes.as_bytes())]);
        assert!(conversation(&one).is_none(), "{bytes:?}");
    }
    let opening = b"hrpc\x03\0\0\0\x03\x01x\0\xff\xff\xff\xff\0\0\0\x08";
    let mut one = connection(vec![
        at(1, Side::Client, opening),
        at(2, Side::Server, &[0; 7]),
        at(3, Side::Client, &[0; 7]),
    ]);
    let told = conversation(&one).unwrap();
    assert_eq!(told.header, ConnectionHeader { protocol: "x".to_owned(), user: None });
    let said: Vec<_> = told.parts.iter().map(|part| (part.at.as_millis(), &part.said)).collect();
    let cut_short = HadoopSaid::Unread(DecodeError::Truncated);
    let beyond = HadoopSaid::Unread(DecodeError::Length { length: 8, left: 7 });
    assert_eq!(said, [(1, &HadoopSaid::Ping), (2, &cut_short), (3, &beyond)]);
    one.events[2].what = EventKind::Missing(3);
    let told = conversation(&one).unwrap();
    assert_eq!(told.parts.len(), 3);
    let raw: Vec<_> = told.parts.iter().map(|part| part.raw.len()).collect();
    assert_eq!(raw, [4, 4, 7]);
}
