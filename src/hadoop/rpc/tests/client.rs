//! A client's behaviour towards faulty peers.

use corona_net::testing::nobody;
use corona_net::{ListenOn, Reserved, listen};

use super::*;
use crate::io::DecodeError;
use crate::testing::unhex;
use crate::writables::ProtocolSignature;

struct Fake {
    /// Held by tests that close the listener, so that no other test gets its port.
    port: Reserved,
    listener: TcpListener,
    client: inter_tracker::InterTrackerClient,
}

async fn fake(change: impl FnOnce(&mut ClientOptions)) -> Fake {
    let port = nobody();
    let listener = listen(ListenOn::Address(port.address())).unwrap();
    let address = local(port.address().port());
    let mut options = ClientOptions::new(alice());
    options.connect_patience = Duration::ZERO;
    change(&mut options);
    Fake { port, listener, client: inter_tracker::InterTrackerClient::new(address, options) }
}

impl Fake {
    /// A client's connection, with its header read.
    async fn accept(listener: &TcpListener) -> Raw {
        let mut raw = Raw::over(soon(listener.accept()).await.unwrap().0);
        let opening = preamble(inter_tracker::PROTOCOL.name);
        assert_eq!(raw.take(opening.len()).await, opening);
        raw
    }

    /// The same, with the handshake done.
    async fn greet(listener: &TcpListener) -> Raw {
        let mut raw = Fake::accept(listener).await;
        let call = raw.call().await;
        assert_eq!(call.method, "getProtocolSignature");
        raw.reply(call.id, signature()).await;
        raw
    }

    /// The result of a call to a peer that does this after the greeting.
    async fn meets<F: Future<Output = Raw>>(
        mut self,
        peer: impl FnOnce(Raw, Call) -> F,
    ) -> Result<Option<String>, CallError> {
        let peer = async {
            let mut raw = Fake::greet(&self.listener).await;
            let call = raw.call().await;
            peer(raw, call).await
        };
        let (result, _raw) =
            soon(async { tokio::join!(self.client.get_filesystem_name(), peer) }).await;
        result
    }
}

fn signature() -> Outcome {
    // Longer than our own server's.
    let signature = ProtocolSignature { version: 29, methods: Some(vec![1, 2]) };
    Outcome::Value(signature.into_object())
}

fn text(text: &str) -> Outcome {
    Outcome::Value(text.to_owned().into_object())
}

fn remote(text: &str) -> RemoteError {
    let class = text.split(':').next().unwrap_or_default();
    RemoteError { class: Some(class.to_owned()), text: Some(text.to_owned()) }
}

#[tokio::test]
async fn a_closed_connection_is_opened_again_without_a_handshake() {
    let Fake { listener, mut client, .. } = fake(|_| {}).await;
    let peer = async {
        let mut raw = Fake::greet(&listener).await;
        let call = raw.call().await;
        assert_eq!((call.id, call.method.as_str()), (1, "getFilesystemName"));
        raw.reply(call.id, text("first")).await;
        drop(raw);
        let mut raw = Fake::accept(&listener).await;
        let call = raw.call().await;
        assert_eq!((call.id, call.method.as_str()), (2, "getFilesystemName"));
        raw.reply(call.id, text("second")).await;
    };
    let calls = async {
        assert_eq!(client.get_filesystem_name().await.unwrap().unwrap(), "first");
        until("the connection ends", || !client.client().is_connected()).await;
        assert_eq!(client.get_filesystem_name().await.unwrap().unwrap(), "second");
    };
    soon(async { tokio::join!(peer, calls) }).await;
}

#[tokio::test]
async fn an_idle_connection_is_not_used_again() {
    let Fake { listener, mut client, .. } = fake(|options| options.max_idle = Duration::ZERO).await;
    let peer = async {
        let mut raw = Fake::accept(&listener).await;
        let call = raw.call().await;
        raw.reply(call.id, signature()).await;
        let mut connections = vec![raw];
        for id in 1..4 {
            let mut raw = Fake::accept(&listener).await;
            let call = raw.call().await;
            assert_eq!((call.id, call.method.as_str()), (id, "getFilesystemName"));
            raw.reply(call.id, text("name")).await;
            connections.push(raw);
        }
    };
    let calls = async {
        for _ in 1..4 {
            client.get_filesystem_name().await.unwrap();
        }
    };
    soon(async { tokio::join!(peer, calls) }).await;
}

#[tokio::test]
async fn versions_are_compared_when_there_are_no_signatures() {
    for (version, accepted) in [(29, true), (28, false)] {
        let Fake { listener, mut client, .. } = fake(|_| {}).await;
        let peer = async {
            let mut raw = Fake::accept(&listener).await;
            let call = raw.call().await;
            let none = "java.io.IOException: java.lang.NoSuchMethodException: x\n\tat y";
            raw.reply(call.id, Outcome::Error(remote(none))).await;
            let call = raw.call().await;
            assert_eq!(call.method, "getProtocolVersion");
            raw.reply(call.id, Outcome::Value(Object::Long(version))).await;
            if accepted {
                let call = raw.call().await;
                raw.reply(call.id, text("name")).await;
            }
            raw
        };
        let (result, _raw) = soon(async { tokio::join!(client.get_filesystem_name(), peer) }).await;
        match result {
            Ok(name) => assert_eq!((name.as_deref(), accepted), (Some("name"), true)),
            Err(error) => assert_eq!(
                error.to_string(),
                "org.apache.hadoop.mapred.InterTrackerProtocol has version 28 there and 29 here"
            ),
        }
    }
}

#[tokio::test]
async fn an_address_without_a_server() {
    let Fake { port: _port, listener, mut client } = fake(|_| {}).await;
    drop(listener);
    let error = soon(client.get_filesystem_name()).await.unwrap_err();
    assert!(error.is_connect(), "{error}");
}

#[tokio::test]
async fn somebody_there_a_little_later() {
    let Fake { port, listener, mut client } = fake(|options| {
        options.connect_patience = Duration::from_secs(60);
        options.connect_pause = Duration::from_millis(10);
    })
    .await;
    drop(listener);
    let peer = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let listener = listen(ListenOn::Address(port.address())).unwrap();
        let mut raw = Fake::greet(&listener).await;
        let call = raw.call().await;
        raw.reply(call.id, text("name")).await;
        raw
    };
    let (name, _raw) = soon(async { tokio::join!(client.get_filesystem_name(), peer) }).await;
    assert_eq!(name.unwrap().unwrap(), "name");
}

#[tokio::test]
async fn a_reply_byte_by_byte() {
    let result = fake(|_| {})
        .await
        .meets(async |mut raw, call| {
            for byte in bytes(&Reply { id: call.id, outcome: text("name") }) {
                raw.send(&[byte]).await;
                tokio::task::yield_now().await;
            }
            raw
        })
        .await;
    assert_eq!(result.unwrap().unwrap(), "name");
}

#[tokio::test]
async fn signs_of_life_while_waiting() {
    let ping = |options: &mut ClientOptions| options.ping_interval = Duration::from_millis(20);
    let result = fake(ping)
        .await
        .meets(async |mut raw, call| {
            for _ in 0..3 {
                assert_eq!(raw.take(4).await, [0xff; 4]);
            }
            raw.reply(call.id, text("name")).await;
            raw
        })
        .await;
    assert_eq!(result.unwrap().unwrap(), "name");
}

#[tokio::test]
async fn no_reply_in_time() {
    let impatient = |options: &mut ClientOptions| {
        options.call_timeout = Some(Duration::from_millis(200));
    };
    let Fake { listener, mut client, .. } = fake(impatient).await;
    let (result, _silent) =
        soon(async { tokio::join!(client.get_filesystem_name(), Fake::accept(&listener)) }).await;
    let error = result.unwrap_err();
    assert!(matches!(error, CallError::Timeout(_)), "{error}");
    assert!(!client.client().is_connected(), "the reply may still come");
}

/// A call that is abandoned leaves no connection on which its reply could be taken for another
/// call's.
#[tokio::test]
async fn a_call_that_is_dropped() {
    let Fake { listener, mut client, .. } = fake(|_| {}).await;
    let peer = async {
        let mut raw = Fake::greet(&listener).await;
        raw.call().await;
        raw
    };
    soon(async {
        tokio::select! {
            _ = client.get_filesystem_name() => panic!("nobody answers"),
            _raw = peer => {}
        }
    })
    .await;
    assert!(!client.client().is_connected());
}

#[tokio::test]
async fn replies_that_are_none() {
    type Check = fn(&CallError) -> bool;
    let table: [(&str, Vec<u8>, Check); 8] = [
        ("another id", bytes(&Reply { id: 7, outcome: text("x") }), |error| {
            matches!(error, CallError::OutOfSequence { expected: 1, found: 7 })
        }),
        ("another status", unhex("00000001 00000002"), |error| {
            matches!(error, CallError::Malformed(_))
        }),
        ("an unknown class", unhex(r#"00000001 00000000 0003"a.B""#), |error| {
            matches!(error, CallError::Malformed(_))
        }),
        ("a length beyond the limit", unhex("00000001 00000001 7fffffff"), |error| {
            matches!(error, CallError::Malformed(_))
        }),
        (
            "a result of another class",
            bytes(&Reply { id: 1, outcome: Outcome::Value(Object::Int(3)) }),
            |error| matches!(error, CallError::WrongResult(..)),
        ),
        (
            "an error",
            bytes(&Reply { id: 1, outcome: Outcome::Error(remote("java.io.IOException: no")) }),
            |error| matches!(error, CallError::Remote(_)),
        ),
        (
            "a refusal, which has an id of its own",
            bytes(&Reply { id: -1, outcome: Outcome::Fatal(remote("java.io.IOException: no")) }),
            |error| matches!(error, CallError::Refused(_)),
        ),
        ("half a reply and the end", unhex("00000001 0000"), |error| {
            matches!(error, CallError::Closed | CallError::Io(_))
        }),
    ];
    for (what, reply, check) in table {
        let result = fake(|_| {})
            .await
            .meets(async |mut raw, _call| {
                raw.send(&reply).await;
                let _ = raw.stream.shutdown().await;
                raw
            })
            .await;
        let error = result.unwrap_err();
        assert!(check(&error), "{what}: {error:?}");
    }
}

#[tokio::test]
async fn a_reply_that_comes_in_pieces() {
    let Fake { listener, mut client, .. } = fake(|_| {}).await;
    let long = "x".repeat(65_535);
    let calls = 20;
    let peer = async {
        let mut raw = Fake::greet(&listener).await;
        for _ in 0..calls {
            let call = raw.call().await;
            let reply = bytes(&Reply { id: call.id, outcome: text(&long) });
            // Mostly, the rest comes while the client still waits for more than the first half.
            for piece in reply.chunks(reply.len().div_ceil(2)) {
                raw.send(piece).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        raw
    };
    let client = async {
        for _ in 0..calls {
            let name = client.get_filesystem_name().await.unwrap();
            assert!(name.is_some_and(|name| name == long));
        }
    };
    soon(async { tokio::join!(client, peer) }).await;
}

#[tokio::test]
async fn a_reply_without_end() {
    let small = |options: &mut ClientOptions| options.max_reply_bytes = 200_000;
    let result = fake(small)
        .await
        .meets(async |mut raw, call| {
            // An array with more items than will ever come.
            let mut array = bytes(&call.id.into_object())[5..].to_vec();
            array.extend(unhex(r#"00000000 0013"[Ljava.lang.String;" 00030000"#));
            let item = bytes(&"x".repeat(500).into_object());
            let _ = soon(raw.stream.write_all(&[array, item.repeat(1000)].concat())).await;
            raw
        })
        .await;
    let error = result.unwrap_err();
    assert!(
        matches!(
            error,
            CallError::ReplyTooLarge(_) | CallError::Malformed(DecodeError::Length { .. })
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_call_that_is_too_large() {
    let small = |options: &mut ClientOptions| options.max_call_bytes = 300;
    let Fake { listener, mut client, .. } = fake(small).await;
    let peer = Fake::greet(&listener);
    let long = Some("x".repeat(301));
    let call = client.report_task_tracker_error(long, None, None);
    let (result, _raw) = soon(async { tokio::join!(call, peer) }).await;
    assert!(matches!(result, Err(CallError::CallTooLarge(_))), "{result:?}");
}
