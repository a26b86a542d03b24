//! Every struct and every message of the contract against the bytes of an independent encoder:
//! `fixtures/wire/golden.jsonl`, made by `scripts/golden-bytes`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use thrift::TConfiguration;
use thrift::protocol::{TBinaryInputProtocol, TInputProtocol, TType};

use crate::calls::{ClusterManager, CoronaTaskTracker, ProxyJobTracker, SessionDriver};
use crate::check::Walk;
use crate::decode::Reader;
use crate::encode::{Output, Wire};
use crate::message::{write_call, write_fault, write_result};
use crate::scan::Bounds;
use crate::schema::{Kind, schema};
use crate::server::Answer;
use crate::service::MethodTable;
use crate::value::{Message, MessageKind, StreamReader, read_struct, write_value};
use crate::{Framing, Service, generated};

const GOLDEN: &str = include_str!("../../../fixtures/wire/golden.jsonl");

/// A line of the file.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Row {
    Struct {
        #[serde(rename = "struct")]
        name: String,
        case: String,
        value: serde_json::Value,
        bytes: Hex,
    },
    Message {
        service: String,
        method: String,
        kind: String,
        case: String,
        seqid: i32,
        value: serde_json::Value,
        /// The output of a typed writer, where it differs: it always writes truth values.
        typed: Option<Hex>,
        bytes: Hex,
    },
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(try_from = "String")]
struct Hex(Vec<u8>);

impl TryFrom<String> for Hex {
    type Error = String;

    fn try_from(text: String) -> Result<Hex, String> {
        let digits = |at| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        let bytes: Option<_> = (0..text.len()).step_by(2).map(digits).collect();
        bytes.map(Hex).ok_or(format!("not hexadecimal: {text}"))
    }
}

fn rows() -> Vec<Row> {
    GOLDEN.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn every_struct_has_a_row_for_each_case() {
    let rows = rows();
    let found = rows.iter().filter_map(|row| match row {
        Row::Struct { name, case, value, .. } => Some(((name.as_str(), case.as_str()), value)),
        Row::Message { .. } => None,
    });
    let found: BTreeMap<_, _> = found.collect();
    let methods = schema().services().iter().flat_map(|service| &service.methods);
    let of_methods: Vec<_> = methods.flat_map(|method| [method.args, method.result]).collect();
    for (id, structure) in schema().structs() {
        let name = structure.name.as_str();
        // The body of EXCEPTION messages is not a struct of the contract; messages have its rows.
        let apart = [schema().application_exception(), schema().empty()];
        if of_methods.contains(&id) || apart.contains(&id) {
            continue;
        }
        for case in ["all", "least", "lowest", "highest"] {
            let row = found.get(&(name, case)).and_then(|value| value.as_object());
            let row = row.unwrap_or_else(|| panic!("no row for {name}, {case}"));
            let wanted = structure.fields.iter().filter(|field| field.required || case != "least");
            let wanted: BTreeSet<_> = wanted.map(|field| &field.name).collect();
            assert_eq!(row.keys().collect::<BTreeSet<_>>(), wanted, "{name}, {case}");
        }
    }
}

#[test]
fn every_method_has_a_row_for_its_call_and_each_of_its_answers() {
    let rows = rows();
    let found = rows.iter().filter_map(|row| match row {
        Row::Message { service, method, kind, case, .. } => {
            Some((service.clone(), method.clone(), format!("{kind} {case}")))
        }
        Row::Struct { .. } => None,
    });
    let found: BTreeSet<_> = found.collect();
    for service in schema().services() {
        for method in &service.methods {
            let mut wanted: Vec<_> =
                ["CALL all", "CALL least", "CALL lowest", "CALL highest", "EXCEPTION 6"]
                    .map(str::to_owned)
                    .into();
            let results = &schema().structure(method.result).fields;
            if !results.iter().any(|field| field.id == 0) {
                wanted.push("REPLY void".to_owned());
            }
            wanted.extend(results.iter().map(|field| format!("REPLY {} all", field.name)));
            for row in wanted {
                let row = (service.name.clone(), method.name.clone(), row);
                assert!(found.contains(&row), "no row for {row:?}");
            }
        }
    }
}

#[test]
fn structs_are_read_and_written_as_in_the_rows() {
    for row in rows() {
        let Row::Struct { name, case, value, bytes: Hex(bytes) } = row else { continue };
        let row = format!("{name}, {case}");
        let id = schema().struct_named(&name).expect(&row);
        let bounds = Bounds { max_bytes: 1 << 20, max_depth: 64 };
        let mut walk = Walk::new(&bytes, schema(), bounds);
        let (read, end) = read_struct(&mut walk, 0, id).ok().expect(&row);
        assert_eq!(end, bytes.len(), "{row}");
        assert_eq!(serde_json::to_value(&read).unwrap(), value, "{row}");
        let mut out = vec![];
        write_value(&Kind::Struct(id), &read, &mut out).expect(&row);
        assert_eq!(out, bytes, "{row}");
        assert_eq!(typed(&name, &bytes), bytes, "{row}");
    }
}

/// The bytes that the generated type of this name writes after it has read `bytes`. The `thrift` crate
/// finds the same end.
fn typed(name: &str, bytes: &[u8]) -> Vec<u8> {
    fn again<T: Wire + std::fmt::Debug + PartialEq>(bytes: &[u8]) -> Vec<u8> {
        let bounds = Bounds { max_bytes: 1 << 20, max_depth: 64 };
        let mut reader = Reader::new(bytes, 0, bounds);
        let value = T::decode(&mut reader).expect("it is whole");
        assert_eq!(reader.position(), bytes.len());
        let config = TConfiguration::no_limits();
        let mut rest = bytes;
        let input = &mut rest;
        TBinaryInputProtocol::with_config(input, true, config.clone()).skip(TType::Struct).unwrap();
        assert!(rest.is_empty());
        let mut out = vec![];
        let mut output = Output::with_config(&mut out, true, config);
        value.write(&mut output).unwrap();
        out
    }
    macro_rules! by_name {
        ($($name:ident)*) => {
            match name {
                $( stringify!($name) => again::<generated::$name>(bytes), )*
                other => panic!("no generated type is listed here for {other}"),
            }
        };
    }
    by_name! {
        ActualPoolInfoArgs ActualPoolInfoResponse ClusterManagerInfo ClusterNodeInfo ComputeSpecs
        DisallowedNode HeartbeatArgs InetAddress InvalidPoolInfo InvalidSessionHandle
        KillSessionsArgs NodeHeartbeatResponse NodeUsageReport PoolInfoStrings Program ResourceGrant
        ResourceRequest RestartNodesArgs RestartNodesResponse RunningSession SafeModeException
        SessionInfo SessionRegistrationData
    }
}

#[test]
fn messages_are_read_and_written_as_in_the_rows() {
    for row in rows() {
        let Row::Message { service, method, kind, case, seqid, value, typed, bytes } = row else {
            continue;
        };
        let row = format!("{service}.{method} {kind} {case}");
        let check = match service.as_str() {
            ClusterManager::NAME => check::<ClusterManager>,
            SessionDriver::NAME => check::<SessionDriver>,
            CoronaTaskTracker::NAME => check::<CoronaTaskTracker>,
            ProxyJobTracker::NAME => check::<ProxyJobTracker>,
            other => panic!("no service {other}"),
        };
        let message = check(&row, &bytes.0, &typed.unwrap_or(bytes.clone()).0);
        assert_eq!((message.kind.name(), message.seqid), (kind.as_str(), seqid), "{row}");
        assert_eq!(message.name, method, "{row}");
        let read = serde_json::to_value(message.body.expect(&row)).unwrap();
        assert_eq!(read, value, "{row}");
    }
}

/// Reads a message both as plain values and typed, and compares the bytes written from them.
fn check<S: Service>(row: &str, bytes: &[u8], typed: &[u8]) -> Message {
    let mut reader = StreamReader::new(S::schema(), S::FRAMING, 1 << 20);
    reader.push(bytes);
    let message = reader.next_message().expect(row).expect(row);
    assert!(reader.is_empty(), "{row}");
    let mut plain = vec![];
    message.write(S::schema(), S::FRAMING, &mut plain).expect(row);
    assert_eq!(plain, bytes, "{row}");
    assert_eq!(written::<S>(row, &message, S::FRAMING), typed, "{row}");
    message
}

fn written<S: Service>(row: &str, message: &Message, framing: Framing) -> Vec<u8> {
    let mut out = vec![];
    let seqid = message.seqid;
    if message.kind == MessageKind::Call {
        let call = message.call::<S>().expect(row);
        write_call::<S>(&mut out, &call, seqid, framing).expect(row);
        return out;
    }
    let place = <S as MethodTable>::place(&message.name).expect(row);
    match message.answer::<S>().expect(row) {
        Answer::Reply(reply) => {
            write_result::<S>(&mut out, place, Ok(&reply), seqid, framing).expect(row);
        }
        Answer::Exception(exception) => {
            write_result::<S>(&mut out, place, Err(&exception), seqid, framing).expect(row);
        }
        Answer::Fault(fault) => {
            write_fault(&mut out, &message.name, &fault, seqid, framing).expect(row);
        }
        Answer::Close => panic!("{row}: no answer"),
    }
    out
}
