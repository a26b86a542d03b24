//! Messages that deviate from the contract. Spec: cluster-manager/01 §2.3, §2.4.

use super::dice::Dice;
use crate::calls::{ClusterManager, ClusterManagerCall as Call};
use crate::generated::{ComputeSpecs, ResourceRequest, ResourceType, SessionPriority};
use crate::message::{Incoming, Read, read_call};
use crate::scan::{Bounds, Malformed};
use crate::value::{Message, StreamReader, read_message};
use crate::{FaultKind, Framing, Service};

const BOUNDS: Bounds = Bounds { max_bytes: 1 << 20, max_depth: 64 };

/// A call with the seqid 7 and these bytes as its arguments, STOP not included.
pub(super) fn call(name: &str, args: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, 0x01, 0, 1];
    bytes.extend((name.len() as u32).to_be_bytes());
    bytes.extend(name.as_bytes());
    bytes.extend([0, 0, 0, 7]);
    bytes.extend(args);
    bytes.push(0);
    bytes
}

fn read(name: &str, args: &[u8]) -> Result<Read<Incoming<Call>>, Malformed> {
    read_call::<ClusterManager>(&call(name, args), BOUNDS)
}

/// The call that is read.
fn accepted(name: &str, args: &[u8]) -> Call {
    match read(name, args) {
        Ok(Read::Done(Incoming { call: Ok((_, call)), .. }, used)) => {
            assert_eq!(used, call_length(name, args));
            call
        }
        other => panic!("{other:?}"),
    }
}

fn call_length(name: &str, args: &[u8]) -> usize {
    13 + name.len() + args.len()
}

/// The text of the fault that a call with a missing field gets.
fn refused(name: &str, args: &[u8]) -> String {
    match read(name, args) {
        Ok(Read::Refused(Incoming { call: Err(fault), seqid: 7, .. })) => {
            assert_eq!(fault.kind, FaultKind::ProtocolError);
            fault.message
        }
        other => panic!("{other:?}"),
    }
}

fn broken(name: &str, args: &[u8]) -> Malformed {
    read(name, args).unwrap_err()
}

#[test]
fn missing_fields_are_named_as_the_original_names_them() {
    for (name, args, text) in [
        (
            "nodeHeartbeat",
            b"\x0c\0\x01\x0b\0\x01\0\0\0\x05nodeX\0".as_slice(),
            "Required field 'address' was not present! \
             Struct: ClusterNodeInfo(name:nodeX, address:null, total:null)",
        ),
        (
            "sessionStart",
            b"\x0b\0\x01\0\0\0\x01x\x0c\0\x02\0",
            "Required field 'address' was not present! \
             Struct: SessionInfo(address:null, name:null, userId:null)",
        ),
        (
            "requestResource",
            b"\x0f\0\x02\x0c\0\0\0\x01\x08\0\x01\0\0\0\x07\
              \x0c\0\x03\x06\0\x01\0\x01\x06\0\x02\0\x0a\x08\0\x03\0\0\x04\0\x08\0\x04\0\0\0\x0a\0\
              \x08\0\x04\0\0\0\x4d\0",
            "Required field 'type' was not present! Struct: ResourceRequest(id:7, \
             specs:ComputeSpecs(numCpus:1, networkMBps:10, memoryMB:1024, diskGB:10), type:null)",
        ),
        // Numbers are looked at before the rest.
        (
            "requestResource",
            b"\x0f\0\x02\x0c\0\0\0\x01\x0f\0\x02\x0b\0\0\0\x02\0\0\0\x01a\0\0\0\x01b\0",
            "Required field 'id' was not found in serialized data! \
             Struct: ResourceRequest(id:0, hosts:[a, b], type:null)",
        ),
        (
            "restartNodes",
            b"\x0c\0\x01\x08\0\x02\0\0\0\x03\0",
            "Required field 'force' was not found in serialized data! \
             Struct: RestartNodesArgs(force:false, batchSize:3)",
        ),
        // The innermost struct is the first to be complete.
        (
            "nodeHeartbeat",
            b"\x0c\0\x01\x0c\0\x02\x0b\0\x01\0\0\0\x01h\0\0",
            "Required field 'port' was not found in serialized data! \
             Struct: InetAddress(host:h, port:0)",
        ),
        (
            "nodeHeartbeat",
            b"\x0c\0\x01\x0b\0\x01\0\0\0\x01n\
              \x0d\0\x05\x08\x0b\0\0\0\x02\0\0\0\x01\0\0\0\x01r\0\0\0\x09\0\0\0\0\0",
            "Required field 'address' was not present! Struct: ClusterNodeInfo(name:n, \
             address:null, total:null, resourceInfos:{REDUCE=r, null=})",
        ),
        (
            "sessionHeartbeatV2",
            b"\x0c\0\x02\x0d\0\x03\x08\x0f\0\0\0\x01\0\0\0\0\x0a\0\0\0\x02\
              \0\0\0\0\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xfe\0",
            "Required field 'requestId' was not found in serialized data! \
             Struct: HeartbeatArgs(requestId:0, grantId:0, resourceUsages:{MAP=[1, -2]})",
        ),
        (
            "sessionStart",
            b"\x0c\0\x02\x02\0\x07\x02\x08\0\x06\0\0\0\x03\x0a\0\x09\0\0\0\0\0\0\0\x05\0",
            "Required field 'address' was not present! Struct: SessionInfo(address:null, \
             name:null, userId:null, priority:HIGH, noPreempt:false, deadline:5)",
        ),
    ] {
        assert_eq!(refused(name, args), text);
    }
}

#[test]
fn the_text_about_a_missing_field_has_an_end() {
    let mut args = b"\x0c\0\x02\x0b\0\x02".to_vec();
    args.extend(500_000u32.to_be_bytes());
    args.extend("文".bytes().cycle().take(500_000 - 500_000 % 3));
    args.extend([b'x'; 2]);
    args.push(0);
    let text = refused("sessionStart", &args);
    assert!(text.len() <= 64 * 1024 + 3 && text.ends_with("文..."), "{}", text.len());
}

fn handle_of(call: Call) -> Option<String> {
    match call {
        Call::SessionHeartbeat { handle } => handle,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_argument_that_is_not_there_or_not_of_its_type_is_absent() {
    let heartbeat = |args| handle_of(accepted("sessionHeartbeat", args));
    assert_eq!(heartbeat(b""), None);
    assert_eq!(heartbeat(b"\x08\0\x01\0\0\0\x05"), None);
    assert_eq!(heartbeat(b"\x0b\0\x01\0\0\0\x01a"), Some("a".to_owned()));
    // The last one counts, and one of another type does not.
    let twice = b"\x0b\0\x01\0\0\0\x01a\x0b\0\x01\0\0\0\x01b\x08\0\x01\0\0\0\x05";
    assert_eq!(heartbeat(twice), Some("b".to_owned()));
    assert_eq!(accepted("setSafeMode", b""), Call::SetSafeMode { safe_mode: false });
}

#[test]
fn unknown_fields_are_skipped_whatever_they_hold() {
    for field in [
        b"\x0b\0\x63\0\0\0\x03abc".as_slice(),
        b"\x02\xff\xff\x01",
        b"\x03\0\x09\x01",
        b"\x04\0\x09\0\0\0\0\0\0\0\0",
        b"\x0e\0\x09\x08\0\0\0\x02\0\0\0\x01\0\0\0\x02",
        b"\x0d\0\x09\x0b\x0c\0\0\0\x02\0\0\0\x01k\0\0\0\0\0\x08\0\x01\0\0\0\x01\0",
        b"\x0f\0\x09\x0f\0\0\0\x02\x0c\0\0\0\x01\0\x0d\0\0\0\0",
        // The list is empty, so its type does not matter.
        b"\x0d\0\x09\0\0\0\0\0\0",
        b"\x0f\0\x09\x7f\0\0\0\0",
    ] {
        let mut args = field.to_vec();
        args.extend(b"\x0b\0\x01\0\0\0\x01a");
        assert_eq!(
            handle_of(accepted("sessionHeartbeat", &args)),
            Some("a".to_owned()),
            "{field:?}"
        );
    }
}

#[test]
fn truth_is_1_and_nothing_else() {
    for (byte, safe_mode) in [(0, false), (1, true), (2, false), (255, false)] {
        assert_eq!(accepted("setSafeMode", &[2, 0, 1, byte]), Call::SetSafeMode { safe_mode });
    }
}

#[test]
fn text_that_is_not_utf_8_gets_replacement_characters() {
    let handle = handle_of(accepted("sessionHeartbeat", b"\x0b\0\x01\0\0\0\x03a\xffb"));
    assert_eq!(handle, Some("a\u{fffd}b".to_owned()));
}

fn priority_of(fields: &[u8]) -> Option<SessionPriority> {
    let mut args = b"\x0c\0\x02\x0c\0\x01\x0b\0\x01\0\0\0\0\x08\0\x02\0\0\0\x01\0\
                     \x0b\0\x02\0\0\0\0\x0b\0\x03\0\0\0\0"
        .to_vec();
    args.extend(fields);
    args.push(0);
    match accepted("sessionStart", &args) {
        Call::SessionStart { info: Some(info), .. } => info.priority,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unknown_number_of_an_enumeration_is_absent() {
    let high = b"\x08\0\x06\0\0\0\x03";
    let unknown = b"\x08\0\x06\0\0\0\x4d";
    assert_eq!(priority_of(b""), None);
    assert_eq!(priority_of(high), Some(SessionPriority::HIGH));
    assert_eq!(priority_of(unknown), None);
    assert_eq!(priority_of(&[high.as_slice(), unknown].concat()), None);
    assert_eq!(priority_of(&[unknown.as_slice(), high].concat()), Some(SessionPriority::HIGH));
    let end = accepted("sessionEnd", b"\x08\0\x02\0\0\0\0");
    assert_eq!(end, Call::SessionEnd { handle: None, status: None });
    // In a list it is kept.
    let feedback = accepted("nodeFeedback", b"\x0f\0\x02\x08\0\0\0\x01\0\0\0\x4d");
    let types = Some(vec![ResourceType(77)]);
    assert_eq!(feedback, Call::NodeFeedback { handle: None, types, reports: None });
}

#[test]
fn fields_of_a_struct_may_come_in_any_order() {
    let args = b"\x0f\0\x02\x0c\0\0\0\x01\x08\0\x04\0\0\0\x01\x06\0\x07\0\0\
                 \x0c\0\x03\x06\0\x01\0\x02\0\x08\0\x01\0\0\0\x07\0";
    let specs = ComputeSpecs { num_cpus: 2, network_m_bps: None, memory_m_b: None, disk_g_b: None };
    let request = ResourceRequest {
        id: 7,
        hosts: None,
        specs: Some(specs),
        type_: ResourceType::REDUCE,
        exclude_hosts: None,
    };
    let call = accepted("requestResource", args);
    assert_eq!(call, Call::RequestResource { handle: None, requests: Some(vec![request]) });
}

#[test]
fn elements_must_be_of_the_type_of_the_contract() {
    let bytes_as_requests = b"\x0f\0\x02\x03\0\0\0\x02\x01\x01";
    assert_eq!(
        broken("requestResource", bytes_as_requests),
        Malformed::ElementType { expected: 12, found: 3 }
    );
    let keys = b"\x0c\0\x01\x0d\0\x05\x0b\x0b\0\0\0\x01\0\0\0\0\0\0\0\0\0";
    assert_eq!(broken("nodeHeartbeat", keys), Malformed::ElementType { expected: 8, found: 11 });
    // None at all are of any type.
    let none = accepted("requestResource", b"\x0f\0\x02\x7f\0\0\0\0");
    assert_eq!(none, Call::RequestResource { handle: None, requests: Some(vec![]) });
}

#[test]
fn malformed_messages_differ_from_incomplete_ones() {
    let huge = Malformed::TooLarge { bytes: 0, limit: BOUNDS.max_bytes };
    for (name, args, expected) in [
        (
            "sessionHeartbeat",
            b"\x0b\0\x01\xff\xff\xff\xff".as_slice(),
            Malformed::NegativeLength(-1),
        ),
        ("sessionHeartbeat", b"\x0b\0\x01\x7f\xff\xff\xff", huge),
        ("sessionHeartbeat", b"\x07\0\x01\0", Malformed::TypeCode(7)),
        ("sessionHeartbeat", b"\x0f\0\x09\x07\0\0\0\x01\0", Malformed::TypeCode(7)),
        ("sessionHeartbeat", b"\x0f\0\x09\x03\x7f\xff\xff\xff", huge),
        ("sessionHeartbeat", b"\x0d\0\x09\x03\x0b\x7f\xff\xff\xff", huge),
        ("requestResource", b"\x0f\0\x02\x0c\x7f\xff\xff\xff", huge),
        ("releaseResource", b"\x0f\0\x02\x08\x7f\xff\xff\xff", huge),
        ("releaseResource", b"\x0f\0\x02\x08\x80\0\0\0", Malformed::NegativeLength(i32::MIN)),
        ("noSuch", b"\x0b\0\x01\x7f\xff\xff\xff", huge),
    ] {
        match (broken(name, args), expected) {
            (Malformed::TooLarge { limit, .. }, Malformed::TooLarge { .. }) => {
                assert_eq!(limit, BOUNDS.max_bytes);
            }
            (found, expected) => assert_eq!(found, expected, "{name} {args:?}"),
        }
    }
    let whole = call("sessionHeartbeat", b"\x0b\0\x01\0\0\0\x05abcde\x0b\0\x09\0\0\0\x02ab");
    for length in 0..whole.len() {
        let read = read_call::<ClusterManager>(&whole[..length], BOUNDS);
        assert!(matches!(read, Ok(Read::Incomplete)), "{length}: {read:?}");
    }
}

#[test]
fn nesting_has_an_end() {
    let nested = |depth: usize| {
        let mut args = b"\x0c\0\x09".repeat(depth);
        args.extend(vec![0; depth]);
        args
    };
    // The arguments themselves are one.
    assert!(matches!(read("sessionHeartbeat", &nested(63)), Ok(Read::Done(..))));
    assert_eq!(broken("sessionHeartbeat", &nested(64)), Malformed::TooDeep(63));
    let lists =
        b"\x0f\0\x09".iter().copied().chain(b"\x0f\0\0\0\x01".repeat(100_000)).collect::<Vec<_>>();
    assert!(matches!(broken("sessionHeartbeat", &lists), Malformed::TooDeep(_)));
}

#[test]
fn headers() {
    let heartbeat = call("sessionHeartbeat", b"");
    let with_version = |version: u32| {
        let mut bytes = heartbeat.clone();
        bytes[..4].copy_from_slice(&version.to_be_bytes());
        read_call::<ClusterManager>(&bytes, BOUNDS)
    };
    // Whatever kind it is, it is a call.
    for kind in [1, 2, 3, 4, 0, 0xff, 0x0101] {
        assert!(matches!(with_version(0x8001_0000 | kind), Ok(Read::Done(..))), "{kind}");
    }
    for version in [0, 0x10, 0x8000_0001, 0x8002_0001, 0xffff_ffff] {
        assert_eq!(with_version(version).unwrap_err(), Malformed::Version(version));
    }
    let long = call(&"n".repeat(1025), b"");
    let error = read_call::<ClusterManager>(&long, BOUNDS).unwrap_err();
    assert_eq!(error, Malformed::NameLength(1025));
}

/// As the original does, but with the rest of the frame thrown away.
#[test]
fn a_refused_message_takes_its_frame_along() {
    let bad = call("nodeHeartbeat", b"\x0c\0\x01\x0b\0\x01\0\0\0\x05nodeX\0");
    let good = call("sessionHeartbeat", b"");
    let frame = |parts: &[&[u8]]| {
        let content = parts.concat();
        [&(content.len() as u32).to_be_bytes()[..], &content].concat()
    };
    let stream = [frame(&[&bad, &good, b"rubbish"]), frame(&[&good, &good])].concat();
    assert_eq!(
        names(Framing::Framed, &stream),
        ["!nodeHeartbeat", "sessionHeartbeat", "sessionHeartbeat"]
    );
    // A bare stream has no frame to discard, so the message ends where its encoding does.
    assert_eq!(names(Framing::Bare, &[bad, good].concat()), ["!nodeHeartbeat", "sessionHeartbeat"]);
}

/// The names of the messages of a stream; `!` for those that lack a field.
fn names(framing: Framing, stream: &[u8]) -> Vec<String> {
    let mut reader = StreamReader::new(ClusterManager::schema(), framing, 1 << 20);
    reader.push(stream);
    let mut names = vec![];
    while let Some(raw) = reader.next_raw().unwrap() {
        let Message { name, body, .. } = raw.decode();
        assert_eq!(raw.call::<ClusterManager>().is_err(), body.is_err());
        names.push(format!("{}{name}", if body.is_err() { "!" } else { "" }));
    }
    assert!(reader.is_empty());
    names
}

/// The typed readers and the plain ones, which follow the schema, are separate code.
#[test]
fn changed_messages_are_read_alike_typed_and_as_plain_values() {
    let service = ClusterManager::schema();
    let mut dice = Dice::new(7);
    let (mut read, mut refused, mut incomplete, mut broken) = (0, 0, 0, 0);
    for round in 0..20_000 {
        let method = &service.methods[round % service.methods.len()];
        let mut bytes = vec![];
        dice.call(method).write(service, Framing::Bare, &mut bytes).unwrap();
        let body = 12 + method.name.len();
        for _ in 0..dice.below(3) {
            if bytes.len() == body {
                break;
            }
            let at = body + dice.below(bytes.len() - body);
            match dice.below(4) {
                0 => bytes[at] = dice.roll() as u8,
                1 => bytes[at] = dice.below(16) as u8,
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, dice.below(16) as u8),
            }
        }
        let plain = read_message(&bytes, service, BOUNDS);
        match (read_call::<ClusterManager>(&bytes, BOUNDS), plain) {
            (Ok(Read::Done(call, end)), Ok(Read::Done(message, plain_end))) => {
                read += 1;
                assert_eq!(end, plain_end, "{bytes:?}");
                let (_, call) = call.call.unwrap();
                assert_eq!(message.call::<ClusterManager>().unwrap(), call, "{bytes:?}");
            }
            (Ok(Read::Refused(call)), Ok(Read::Refused(message))) => {
                refused += 1;
                assert_eq!(call.call.unwrap_err().message, message.body.unwrap_err());
            }
            (Ok(Read::Incomplete), Ok(Read::Incomplete)) => incomplete += 1,
            (Err(error), Err(plain)) => {
                broken += 1;
                assert_eq!(error, plain, "{bytes:?}");
            }
            (typed, plain) => panic!("{typed:?} {plain:?} {bytes:?}"),
        }
    }
    let counts = [read, refused, incomplete, broken];
    assert!(counts.iter().all(|count| *count > 300), "{counts:?}");
}
