//! The tables, the generated types and the contract agree.

use super::dice::Dice;
use crate::calls::{ClusterManager, CoronaTaskTracker, ProxyJobTracker, SessionDriver};
use crate::message::{write_call, write_result};
use crate::schema::{Kind, schema};
use crate::server::Answer;
use crate::service::MethodTable;
use crate::value::{Message, RawMessage, StreamReader, Value};
use crate::{Framing, Service};

/// Decodes the only message in some bytes.
fn read_one<S: Service>(bytes: &[u8], framing: Framing) -> Message {
    let mut reader = StreamReader::new(S::schema(), framing, 1 << 20);
    reader.push(bytes);
    let message = reader.next_message().unwrap().unwrap();
    assert!(reader.is_empty());
    message
}

/// Every method's arguments and results, of any shape, come through the typed calls unchanged.
fn round_trip<S: Service>() {
    let names: Vec<_> = S::schema().methods.iter().map(|method| method.name.as_str()).collect();
    assert_eq!(S::METHODS, names);
    let mut dice = Dice::new(1);
    for (place, method) in S::schema().methods.iter().enumerate() {
        assert_eq!(S::place(&method.name), Some(place));
        for _ in 0..40 {
            let message = dice.call(method);
            let call = message.call::<S>().unwrap();
            assert_eq!(
                (S::method_name(&call), S::place_of_call(&call)),
                (S::METHODS[place], place)
            );
            let mut bytes = vec![];
            write_call::<S>(&mut bytes, &call, message.seqid, Framing::Framed).unwrap();
            assert_eq!(read_one::<S>(&bytes, Framing::Framed), message);
            let mut reader = StreamReader::new(S::schema(), Framing::Framed, 1 << 20);
            reader.push(&bytes);
            let raw = reader.next_raw().unwrap().unwrap();
            assert_eq!((raw.call::<S>().unwrap(), raw.decode()), (call.clone(), message.clone()));
            let own = RawMessage::of_call::<S>(&call).unwrap();
            assert_eq!(own.decode(), Message { seqid: 0, ..message.clone() });
            assert_eq!(own.has_bytes_of(&raw), message.seqid == 0);

            let fields = schema().structure(method.result).fields.len();
            for field in 0..fields {
                let message = dice.reply(method, Some(field));
                check_answer::<S>(place, &message);
            }
        }
        if schema().structure(method.result).field(0).is_none() {
            check_answer::<S>(place, &dice.reply(method, None));
        } else {
            let nothing = dice.reply(method, None);
            assert!(nothing.answer::<S>().is_err(), "{} needs a value", method.name);
        }
    }
}

fn check_answer<S: Service>(place: usize, message: &Message) {
    let answer = message.answer::<S>().unwrap();
    let result = match &answer {
        Answer::Reply(reply) => Ok(reply),
        Answer::Exception(exception) => Err(exception),
        Answer::Fault(_) | Answer::Close => panic!("{answer:?}"),
    };
    let mut bytes = vec![];
    write_result::<S>(&mut bytes, place, result, message.seqid, S::FRAMING).unwrap();
    assert_eq!(read_one::<S>(&bytes, S::FRAMING), *message);
    let raw = RawMessage::of_answer::<S>(&message.name, &answer, message.seqid).unwrap();
    assert_eq!(raw.decode(), *message);
    assert!(raw.call::<S>().is_err(), "an answer is no call");
}

#[test]
fn every_method_comes_through_the_typed_calls() {
    round_trip::<ClusterManager>();
    round_trip::<SessionDriver>();
    round_trip::<CoronaTaskTracker>();
    round_trip::<ProxyJobTracker>();
}

#[test]
fn the_contract_has_the_services_of_the_tables() {
    let names: Vec<_> = schema().services().iter().map(|service| service.name.as_str()).collect();
    let tables =
        [ClusterManager::NAME, SessionDriver::NAME, CoronaTaskTracker::NAME, ProxyJobTracker::NAME];
    assert_eq!(names, tables);
}

#[test]
fn an_answer_of_another_method_is_not_written() {
    use crate::Exception;
    use crate::calls::ClusterManagerReply as Reply;
    use crate::message::Unsendable;

    fn refused(method: &str, result: Result<&Reply, &Exception>) {
        let place = ClusterManager::METHODS.iter().position(|name| *name == method).unwrap();
        let mut out = b"before".to_vec();
        let written = write_result::<ClusterManager>(&mut out, place, result, 1, Framing::Framed);
        assert!(matches!(written, Err(Unsendable::Undeclared(_))), "{method}");
        assert_eq!(out, b"before");
    }
    refused("sessionEnd", Ok(&Reply::PersistState(true)));
    refused("persistState", Err(&Exception::safe_mode()));
    refused("getSessions", Err(&Exception::invalid_session_handle("x")));
    refused("nodeHeartbeat", Err(&Exception::invalid_pool_info("x")));
}

/// A list of structs costs more memory than bytes on the wire, but only by a factor, because an
/// element without its required fields is refused before the list is built.
#[test]
fn structs_in_containers_have_a_required_field() {
    fn elements<'a>(kind: &'a Kind, found: &mut Vec<&'a Kind>) {
        match kind {
            Kind::List(element) => found.push(element),
            Kind::Map(key, value) => {
                found.push(key);
                elements(value, found);
            }
            _ => {}
        }
    }
    for (_, schema_of) in schema().structs() {
        let mut found = vec![];
        schema_of.fields.iter().for_each(|field| elements(&field.kind, &mut found));
        for kind in found {
            if let Kind::Struct(id) = kind {
                assert_ne!(schema().structure(*id).required, 0, "{}", schema_of.name);
            }
        }
    }
}

/// Those of session drivers; the others are read and answered in `streams`. Spec: cluster-manager/01 §8.
#[test]
fn the_samples_of_the_specification() {
    use crate::calls::SessionDriverCall;
    use crate::generated::{InetAddress, ResourceGrant, ResourceType};

    let mut out = vec![];
    let call = SessionDriverCall::GrantResource {
        handle: Some("202611210009.1".to_owned()),
        granted: Some(vec![ResourceGrant {
            id: 1,
            node_name: "node1".to_owned(),
            address: InetAddress { host: "127.0.0.1".to_owned(), port: 4000 },
            granted_time: 0x0102_0304_0506_0708,
            type_: ResourceType::MAP,
            app_info: Some("127.0.0.1:5000".to_owned()),
        }]),
    };
    write_call::<SessionDriver>(&mut out, &call, 1, Framing::Bare).unwrap();
    assert_eq!(
        out,
        b"\x80\x01\0\x01\0\0\0\x0dgrantResource\0\0\0\x01\
          \x0b\0\x01\0\0\0\x0e202611210009.1\
          \x0f\0\x02\x0c\0\0\0\x01\
          \x08\0\x01\0\0\0\x01\
          \x0b\0\x02\0\0\0\x05node1\
          \x0c\0\x03\x0b\0\x01\0\0\0\x09127.0.0.1\x08\0\x02\0\0\x0f\xa0\0\
          \x0a\0\x04\x01\x02\x03\x04\x05\x06\x07\x08\
          \x08\0\x05\0\0\0\0\
          \x0b\0\x06\0\0\0\x0e127.0.0.1:5000\
          \0\0"
    );

    out.clear();
    let call = SessionDriverCall::RevokeResource {
        handle: Some("s".to_owned()),
        revoked: Some(vec![]),
        force: false,
    };
    write_call::<SessionDriver>(&mut out, &call, 1, Framing::Framed).unwrap();
    assert_eq!(
        out,
        b"\0\0\0\x2f\x80\x01\0\x01\0\0\0\x0erevokeResource\0\0\0\x01\
          \x0b\0\x01\0\0\0\x01s\x0f\0\x02\x0c\0\0\0\0\x02\0\x03\0\0"
    );

    out.clear();
    let call = SessionDriverCall::ProcessDeadNode {
        handle: Some("s".to_owned()),
        node: Some("node1".to_owned()),
    };
    write_call::<SessionDriver>(&mut out, &call, 1, Framing::Bare).unwrap();
    assert_eq!(
        out,
        b"\x80\x01\0\x01\0\0\0\x0fprocessDeadNode\0\0\0\x01\
          \x0b\0\x01\0\0\0\x01s\x0b\0\x02\0\0\0\x05node1\0"
    );
}

/// As recorded from a node of a Java cluster.
#[test]
fn a_value_shows_as_json_with_names() {
    let json = r#"{"node":{"name":"tracker_localhost:localhost/127.0.0.1:36123","address":{"host":"localhost","port":40919},"total":{"numCpus":2,"networkMBps":100,"memoryMB":24105,"diskGB":251},"resourceInfos":{"MAP":"127.0.0.1:45065","JOBTRACKER":""}}}"#;
    let address = Value::Struct(vec![
        ("host", Value::String("localhost".to_owned())),
        ("port", Value::I32(40919)),
    ]);
    let total = Value::Struct(vec![
        ("numCpus", Value::I16(2)),
        ("networkMBps", Value::I16(100)),
        ("memoryMB", Value::I32(24105)),
        ("diskGB", Value::I32(251)),
    ]);
    let infos = Value::Map(vec![
        (Value::Enum(0, Some("MAP")), Value::String("127.0.0.1:45065".to_owned())),
        (Value::Enum(2, Some("JOBTRACKER")), Value::String(String::new())),
    ]);
    let name = "tracker_localhost:localhost/127.0.0.1:36123".to_owned();
    let node = Value::Struct(vec![
        ("name", Value::String(name)),
        ("address", address),
        ("total", total),
        ("resourceInfos", infos),
    ]);
    let body = Value::Struct(vec![("node", node)]);
    assert_eq!(serde_json::to_string(&body).unwrap(), json);
    let odd = Value::Map(vec![(Value::Enum(77, None), Value::I32(1))]);
    assert_eq!(serde_json::to_string(&odd).unwrap(), r#"{"77":1}"#);
}
