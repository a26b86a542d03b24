//! Inputs that are no call of the contract.

use corona::wire::calls::ClusterManager;
use corona::wire::schema::schema;
use corona::wire::value::{Message, MessageKind, Value};
use corona::wire::{Framing, Service};
use serde_json::json;

use crate::any_manager::world::CaseState;
use compat_tests::cluster_peers::{Connection, call};

pub(crate) const BYTES_THAT_ARE_NO_CALLS: &str = "
    garbage => closed
    a negative length => closed
    an empty frame => closed
    the old header => closed
    another version => closed
    a message without a length => closed
";

pub(crate) fn bytes_that_are_no_calls(world: &mut CaseState<'_>) {
    let framed = |message: &[u8]| [&(message.len() as u32).to_be_bytes(), message].concat();
    let old = b"\0\0\0\x10getNextSessionId\x01\0\0\0\x07\0";
    let version = b"\x80\x02\0\x01\0\0\0\x10getNextSessionId\0\0\0\x07\0";
    for (step, bytes) in [
        // A length that the original believes would end it: this one is small.
        ("garbage", framed(b"GET / HTTP/1.0\r\n\r\n")),
        ("a negative length", b"\xff\xff\xff\xff".to_vec()),
        ("an empty frame", framed(b"")),
        ("the old header", framed(old)),
        ("another version", framed(version)),
        ("a message without a length", call("getNextSessionId", &json!({}), 7)[4..].to_vec()),
    ] {
        let mut connection = Connection::open(world.peers.address);
        connection.send(&bytes);
        connection.end();
        let outcome = connection.receive().map(|message| world.outcome(&message));
        world.note(step, outcome.unwrap_or("closed".to_owned()));
    }
}

pub(crate) const ODD_MESSAGES: &str = "
    an unknown method => fault 1: Invalid method name: 'noSuchMethod'
    an unknown field => InvalidSessionHandle: x
    one-way => REPLY 7
    two calls at once => 8 9
    two calls in one frame => 10 11
    a required field is missing => fault 7: Required field 'address' was not present! Struct: SessionInfo(address:null, name:n, userId:u)
    the call after that => original: closed | ours: InvalidSessionHandle: x | D-2.7
";

pub(crate) fn odd_messages(world: &mut CaseState<'_>) {
    let unknown = message("noSuchMethod", MessageKind::Call, 7);
    let outcome = answer(world, &unknown);
    world.note("an unknown method", outcome);

    // A field 99 of an unexpected type, before the handle.
    let body = b"\x0f\0\x63\x0b\0\0\0\x01\0\0\0\x01z\x0b\0\x01\0\0\0\x01x\0";
    let head = b"\x80\x01\0\x01\0\0\0\x10sessionHeartbeat\0\0\0\x07";
    let length = (head.len() + body.len()) as u32;
    let bytes = [&length.to_be_bytes(), head.as_slice(), body].concat();
    let outcome = answer(world, &bytes);
    world.note("an unknown field", outcome);

    let reply = world.exchange(&message("getNextSessionId", MessageKind::Oneway, 7));
    let reply = reply.map(|reply| format!("{} {}", reply.kind.name(), reply.seqid));
    world.note("one-way", reply.unwrap_or("closed".to_owned()));

    let two = |world: &mut CaseState<'_>, bytes: &[u8]| {
        let first = world.exchange(bytes).expect("an answer").seqid;
        let second = world.exchange(b"").expect("another one").seqid;
        format!("{first} {second}")
    };
    let calls = [8, 9].map(|seqid| call("getNextSessionId", &json!({}), seqid)).concat();
    let outcome = two(world, &calls);
    world.note("two calls at once", outcome);
    let bare = [10, 11].map(|seqid| call("getNextSessionId", &json!({}), seqid).split_off(4));
    let bare = bare.concat();
    let outcome = two(world, &[&(bare.len() as u32).to_be_bytes(), bare.as_slice()].concat());
    world.note("two calls in one frame", outcome);

    let info = json!({ "name": "n", "userId": "u" });
    let bytes = call("sessionStart", &json!({ "handle": "x", "info": info }), 12);
    let outcome = answer(world, &bytes);
    world.note("a required field is missing", outcome);
    world.step("the call after that", "sessionHeartbeat", json!({ "handle": "x" }));
}

/// A call without arguments, of any name and kind.
fn message(name: &str, kind: MessageKind, seqid: i32) -> Vec<u8> {
    assert!(schema().service(ClusterManager::NAME).is_some());
    let message = Message { kind, name: name.to_owned(), seqid, body: Ok(Value::Struct(vec![])) };
    let mut bytes = vec![];
    let written = message.write(ClusterManager::schema(), Framing::Framed, &mut bytes);
    written.expect("a struct without fields suits every method");
    bytes
}

fn answer(world: &mut CaseState<'_>, bytes: &[u8]) -> String {
    let answer = world.exchange(bytes);
    answer.map_or("closed".to_owned(), |message| world.outcome(&message))
}
