//! Bytes as a server writes and reads them, and a server that does everything wrong.

use std::time::Duration;

use proptest::prelude::{any, prop};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::messages::{Credentials, Reply, Request, fuzz_reply, opened, opening};
use crate::{Change, Client, Code, Error, Lifetime, MAX_FRAME_BYTES, Malformed, Options};

const PATIENCE: Duration = Duration::from_secs(60);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn requests_have_the_bytes_of_the_original() {
    let path = || "/a".to_owned();
    let acl = "000000010000001f00000005776f726c6400000006616e796f6e65";
    let data = || b"xy".to_vec();
    let create = format!("000000022f61000000027879{acl}00000001");
    let set = "000000022f610000000278790000000700".trim_end_matches("00");
    for (request, expected) in [
        (
            Request::Create { path: path(), data: data(), lifetime: Lifetime::Session },
            format!("0000000900000001{create}"),
        ),
        (
            Request::Set { path: path(), data: data(), version: Some(7) },
            "0000000900000005000000022f6100000002787900000007".to_owned(),
        ),
        (Request::Get { path: path(), watch: true }, "0000000900000004000000022f6101".to_owned()),
        (
            Request::Exists { path: path(), watch: false },
            "0000000900000003000000022f6100".to_owned(),
        ),
        (Request::Close, "00000009fffffff5".to_owned()),
        (
            Request::Transaction(vec![
                Change::Check { path: path(), version: 1 },
                Change::Set { path: path(), data: data(), version: Some(7) },
            ]),
            format!(
                "000000090000000e0000000d00ffffffff000000022f6100000001\
                 0000000500ffffffff{set}ffffffff01ffffffff"
            ),
        ),
    ] {
        let frame = request.frame(9);
        assert_eq!(frame[..4], u32::try_from(frame.len() - 4).unwrap().to_be_bytes());
        assert_eq!(hex(&frame[4..]), expected, "{request:?}");
    }
    let session = Credentials { id: 0x0102, password: [7; 16] };
    let expected = format!("0000002d{}{}", "00000000", "0000000000000005");
    let frame = hex(&opening(&session, 5, 4000));
    assert!(frame.starts_with(&expected), "{frame}");
    assert!(frame.ends_with(&format!("00000fa0000000000000010200000010{}00", "07".repeat(16))));
}

fn stat(version: i32) -> Vec<u8> {
    [&[1; 32][..], &version.to_be_bytes(), &[2; 32]].concat()
}

#[test]
fn replies_are_read_and_anything_else_is_refused() {
    let path = || "/a".to_owned();
    let get = Request::Get { path: path(), watch: false };
    let data = [&[0, 0, 0, 2][..], b"xy", &stat(3)].concat();
    assert_eq!(get.reply(0, &data), Ok(Reply::Data(b"xy".to_vec(), 3)));
    assert_eq!(get.reply(-101, &[]), Ok(Reply::Refused(Code::NO_NODE)));
    for length in 0..data.len() {
        assert_eq!(get.reply(0, &data[..length]), Err(Malformed::TooShort), "{length}");
    }
    assert_eq!(get.reply(0, &[&data[..], &[0]].concat()), Err(Malformed::TrailingBytes));
    assert_eq!(get.reply(0, &[0xff, 0xff, 0xff, 0xfe]), Err(Malformed::Length(-2)));

    let changes = vec![
        Change::Check { path: path(), version: 1 },
        Change::Set { path: path(), data: vec![], version: None },
    ];
    let multi = Request::Transaction(changes);
    let part = |operation: i32, content: &[u8]| {
        [&operation.to_be_bytes()[..], &[0, 0, 0, 0, 0], content].concat()
    };
    let end = [0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff];
    let done = [part(13, &[]), part(5, &stat(8)), end.to_vec()].concat();
    assert_eq!(multi.reply(0, &done), Ok(Reply::Versions(vec![0, 8])));
    let refused = [part(-1, &[0; 4]), part(-1, &(-103_i32).to_be_bytes()), end.to_vec()].concat();
    assert_eq!(multi.reply(0, &refused), Ok(Reply::ChangeRefused(1, Code::BAD_VERSION)));
    for wrong in [
        [part(5, &stat(8)), part(13, &[]), end.to_vec()].concat(),
        [part(13, &[]), end.to_vec(), end.to_vec()].concat(),
        [part(-1, &[0; 4]), part(-1, &[0; 4]), end.to_vec()].concat(),
        [part(13, &[]), part(5, &stat(8)), part(13, &[])].concat(),
    ] {
        assert_eq!(multi.reply(0, &wrong), Err(Malformed::Results), "{wrong:?}");
    }
    assert_eq!(opened(&[0; 36]), Ok(None), "a session that has expired");
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz_reply(&bytes);
    }
}

/// The reply to the opening of a connection: a session of 2 s.
fn welcome() -> Vec<u8> {
    let message =
        [&[0; 4][..], &2000_i32.to_be_bytes(), &[1; 8], &[0, 0, 0, 16], &[3; 16], &[0]].concat();
    framed(&message)
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

fn message(number: i32, code: i32, content: &[u8]) -> Vec<u8> {
    framed(&[&number.to_be_bytes()[..], &[0; 8], &code.to_be_bytes(), content].concat())
}

async fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let length = stream.read_u32().await.ok()?;
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut bytes).await.ok()?;
    Some(bytes)
}

/// A server that begins sessions and sends these bytes again and again after the first request.
async fn server(bytes: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let bytes = bytes.clone();
            tokio::spawn(async move {
                read_frame(&mut stream).await?;
                stream.write_all(&welcome()).await.ok()?;
                read_frame(&mut stream).await?;
                while stream.write_all(&bytes).await.is_ok() {}
                Some(())
            });
        }
    });
    address
}

fn options(server: String) -> Options {
    let timeout = Duration::from_secs(2);
    Options { servers: vec![server], session_timeout: timeout, connect_timeout: timeout }
}

#[tokio::test]
async fn a_hostile_server_costs_a_request_and_nothing_else() {
    let event = [&[0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 2][..], b"/a"].concat();
    for (what, bytes) in [
        ("a gigabyte is announced", (1_u32 << 30).to_be_bytes().to_vec()),
        ("a negative length", vec![0xff; 4096]),
        ("one byte too many", framed(&vec![0; MAX_FRAME_BYTES + 1])),
        ("no message", framed(&[])),
        ("a part of a header", framed(&[0, 0, 0])),
        ("a reply to nothing", message(7, 0, &[])),
        ("a reply without content", message(1, 0, &[])),
        ("data of an impossible length", message(1, 0, &[0x7f, 0xff, 0xff, 0xff])),
        ("data of a negative length", message(1, 0, &[0x80, 0, 0, 0])),
        ("a flood of events", message(-1, 0, &event)),
        ("bytes that are not an event", message(-1, 0, &[0xff; 3])),
        ("a flood of pings", message(-2, 0, &[])),
    ] {
        let client = Client::connect(options(server(bytes).await)).await.unwrap();
        let mut events = client.events();
        let reply = timeout(PATIENCE, client.get("/a")).await.unwrap();
        assert!(matches!(reply, Err(Error::Disconnected)), "{what}: {reply:?}");
        // The session goes on with another connection, where the server does the same.
        timeout(PATIENCE, events.changed()).await.unwrap().unwrap();
        let reply = timeout(PATIENCE, client.get_and_watch("/a")).await.unwrap();
        assert!(reply.is_err(), "{what}: {reply:?}");
    }
}

#[tokio::test]
async fn a_server_that_answers_nothing_does_not_delay_its_client_for_long() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut options = options(listener.local_addr().unwrap().to_string());
    options.connect_timeout = Duration::from_millis(200);
    let mute = timeout(PATIENCE, Client::connect(options)).await.unwrap();
    assert!(matches!(mute, Err(Error::Unreachable(_))), "{mute:?}");
    let none = Options { servers: vec![], session_timeout: PATIENCE, connect_timeout: PATIENCE };
    assert!(matches!(Client::connect(none).await, Err(Error::Unreachable(_))));
}

#[tokio::test]
async fn a_session_that_no_server_continues_is_over() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = options(listener.local_addr().unwrap().to_string());
    let accepting = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_frame(&mut stream).await.unwrap();
        stream.write_all(&welcome()).await.unwrap();
        // Both are closed.
        drop(stream);
        drop(listener);
    };
    let (client, ()) = tokio::join!(Client::connect(options), accepting);
    let client = client.unwrap();
    let mut over = client.is_over.clone();
    timeout(PATIENCE, over.wait_for(|is_over| *is_over)).await.unwrap().unwrap();
    assert!(client.is_over());
    assert_eq!(client.get("/a").await, Err(Error::SessionOver));
}
