//! Servers and clients over loopback.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::reading::call;
use crate::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply, ProxyJobTracker,
    SessionDriver, SessionDriverCall, SessionDriverReply,
};
use crate::client::{CallError, Client, ClientOptions, PreparedCall};
use crate::server::{Answer, Counters, Ending, Handler, Limits, ListenOn, Peer, Server, listen};
use crate::{Exception, FaultKind, Malformed, Service};
use corona_access::NO_TLS;
use corona_net::testing::{soon, until};

/// A server on a free port of loopback.
struct Running {
    address: SocketAddr,
    counters: Arc<Counters>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    fn start<S: Service>(handler: impl Handler<S>, limits: Limits) -> Running {
        let listener = listen(ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        let server = Server::new(listener, handler, limits);
        let (stop, stopped) = watch::channel(false);
        let address = server.local_addr().unwrap();
        let counters = server.counters();
        let task = tokio::spawn(server.run::<S>(stopped));
        Running { address, counters, stop, task }
    }

    async fn client<S: Service>(&self) -> Client<S> {
        Client::connect(self.address, ClientOptions::default()).await.unwrap()
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        tokio::time::timeout(Duration::from_secs(10), self.task).await.unwrap().unwrap();
    }
}

/// A cluster manager that answers a few calls in distinguishable ways.
async fn answer(_: Peer, call: Call) -> Answer<Reply> {
    match call {
        Call::GetNextSessionId => Answer::Reply(Reply::GetNextSessionId("202611210003.1".into())),
        Call::SessionHeartbeat { handle: Some(handle) } if handle == "good" => {
            Answer::Reply(Reply::SessionHeartbeat)
        }
        Call::SessionHeartbeat { handle } => {
            Answer::Exception(Exception::invalid_session_handle(handle.unwrap_or_default()))
        }
        Call::SetSafeMode { safe_mode } => Answer::Reply(Reply::SetSafeMode(safe_mode)),
        _ => Answer::Close,
    }
}

/// The same as a type of its own.
struct Manager;

impl Handler<ClusterManager> for Manager {
    async fn call(&self, peer: Peer, call: Call) -> Answer<Reply> {
        answer(peer, call).await
    }
}

#[tokio::test]
async fn calls_are_answered_on_a_framed_stream() {
    let server = Running::start::<ClusterManager>(Manager, Limits::default());
    let mut client = server.client::<ClusterManager>().await;
    assert_eq!(client.get_next_session_id().await.unwrap(), "202611210003.1");
    client.session_heartbeat("good".to_owned()).await.unwrap();
    let error = client.session_heartbeat("bad".to_owned()).await.unwrap_err();
    let CallError::Exception(Exception::InvalidSessionHandle(exception)) = error else {
        panic!("{error}");
    };
    assert_eq!(exception.handle, "bad");
    assert!(client.set_safe_mode(true).await.unwrap());
    assert!(matches!(client.persist_state().await, Err(CallError::Closed)));
    assert!(matches!(client.persist_state().await, Err(CallError::Spent)));
    server.stop().await;
}

#[tokio::test]
async fn prepared_calls_are_answered_among_others() {
    let server = Running::start::<ClusterManager>(Manager, Limits::default());
    let mut client = server.client::<ClusterManager>().await;
    let good = Call::SessionHeartbeat { handle: Some("good".into()) };
    let good = PreparedCall::<ClusterManager>::new(&good).unwrap();
    let bad = Call::SessionHeartbeat { handle: Some("bad".into()) };
    let bad = PreparedCall::new(&bad).unwrap();
    let read = good.read(&Limits::default());
    assert_eq!(read, Ok(Call::SessionHeartbeat { handle: Some("good".into()) }));
    let small = Limits { max_frame_bytes: good.size() - 5, ..Limits::default() };
    assert!(good.read(&small).is_err());
    for _ in 0..3 {
        assert_eq!(client.call_prepared(&good).await.unwrap(), Reply::SessionHeartbeat);
        assert!(matches!(client.call_prepared(&bad).await, Err(CallError::Exception(_))));
        assert_eq!(client.get_next_session_id().await.unwrap(), "202611210003.1");
    }
    server.stop().await;

    let driver = |_: Peer, _| async {
        Answer::<SessionDriverReply>::Reply(SessionDriverReply::ProcessDeadNode)
    };
    let server = Running::start::<SessionDriver>(driver, Limits::default());
    let mut client = server.client::<SessionDriver>().await;
    let dead = SessionDriverCall::ProcessDeadNode { handle: None, node: Some("n".into()) };
    let dead = PreparedCall::new(&dead).unwrap();
    for _ in 0..3 {
        let reply = client.call_prepared(&dead).await.unwrap();
        assert_eq!(reply, SessionDriverReply::ProcessDeadNode);
    }
    server.stop().await;
}

#[tokio::test]
async fn calls_are_answered_on_a_bare_stream() {
    let driver = |_: Peer, call| async move {
        Answer::<SessionDriverReply>::Reply(match call {
            SessionDriverCall::GrantResource { .. } => SessionDriverReply::GrantResource,
            SessionDriverCall::RevokeResource { .. } => SessionDriverReply::RevokeResource,
            SessionDriverCall::ProcessDeadNode { .. } => SessionDriverReply::ProcessDeadNode,
        })
    };
    let server = Running::start::<SessionDriver>(driver, Limits::default());
    let mut client = server.client::<SessionDriver>().await;
    client.process_dead_node("s".to_owned(), "node1".to_owned()).await.unwrap();
    client.revoke_resource("s".to_owned(), vec![], false).await.unwrap();
    client.grant_resource(None, None).await.unwrap();
    assert_eq!(server.counters.calls(), 3);
    server.stop().await;
}

/// A connection that sends and expects raw bytes.
struct Raw(TcpStream);

impl Raw {
    async fn connect(server: &Running) -> Raw {
        Raw(TcpStream::connect(server.address).await.unwrap())
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Reads exactly the expected bytes.
    async fn expect(&mut self, expected: &[u8]) {
        let mut found = vec![0; expected.len()];
        soon(self.0.read_exact(&mut found)).await.unwrap();
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(&found));
    }

    /// The server closes without another byte.
    async fn expect_end(&mut self) {
        let mut rest = vec![];
        match soon(self.0.read_to_end(&mut rest)).await {
            Ok(_) => assert_eq!(rest, b""),
            // The system reports it this way if the server left bytes unread.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}

fn frame(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32).to_be_bytes()[..], content].concat()
}

/// `getNextSessionId` with a sequence id.
fn id_call(seqid: u8) -> Vec<u8> {
    let mut bytes = call("getNextSessionId", b"");
    bytes[27] = seqid;
    bytes
}

/// The frame that answers it.
fn id_reply(seqid: u8) -> Vec<u8> {
    let head = b"\x80\x01\0\x02\0\0\0\x10getNextSessionId\0\0\0";
    frame(&[head, &[seqid][..], b"\x0b\0\0\0\0\0\x0e202611210003.1\0"].concat())
}

#[tokio::test]
async fn input_may_come_in_any_pieces() {
    let server = Running::start::<ClusterManager>(answer, Limits::default());
    let mut peer = Raw::connect(&server).await;
    for byte in frame(&id_call(1)) {
        peer.send(&[byte]).await;
        tokio::task::yield_now().await;
    }
    peer.expect(&id_reply(1)).await;

    // Without waiting for answers.
    peer.send(&[frame(&id_call(2)), frame(&id_call(3)), frame(&id_call(4))].concat()).await;
    peer.expect(&[id_reply(2), id_reply(3), id_reply(4)].concat()).await;

    // Two messages in a frame are answered in a frame each.
    peer.send(&frame(&[id_call(5), id_call(6)].concat())).await;
    peer.expect(&[id_reply(5), id_reply(6)].concat()).await;

    // Three messages over four frames, cut anywhere.
    let three = [id_call(7), id_call(8), id_call(9)].concat();
    for cut in 1..three.len() - 2 {
        let pieces =
            [&three[..cut], &three[cut..=cut], &three[cut + 1..=cut + 1], &three[cut + 2..]];
        peer.send(&pieces.map(frame).concat()).await;
        peer.expect(&[id_reply(7), id_reply(8), id_reply(9)].concat()).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn errors_of_a_peer_that_leave_the_connection_usable() {
    let server = Running::start::<ClusterManager>(answer, Limits::default());
    let mut peer = Raw::connect(&server).await;
    peer.send(&frame(&call("noSuch", b"\x0b\0\x01\0\0\0\x01x"))).await;
    peer.expect(&frame(
        b"\x80\x01\0\x03\0\0\0\x06noSuch\0\0\0\x07\x0b\0\x01\0\0\0\x1d\
          Invalid method name: 'noSuch'\x08\0\x02\0\0\0\x01\0",
    ))
    .await;
    // Byte for byte the original's answer.
    peer.send(&frame(&call("sessionStart", b"\x0b\0\x01\0\0\0\x01x\x0c\0\x02\0"))).await;
    peer.expect(
        b"\0\0\0\x8a\x80\x01\0\x03\0\0\0\x0csessionStart\0\0\0\x07\x0b\0\x01\0\0\0c\
          Required field 'address' was not present! \
          Struct: SessionInfo(address:null, name:null, userId:null)\x08\0\x02\0\0\0\x07\0",
    )
    .await;
    // The original would close the connection at this.
    peer.send(&frame(&id_call(9))).await;
    peer.expect(&id_reply(9)).await;
    // A call that wants no answer gets one.
    let mut oneway = id_call(7);
    oneway[3] = 4;
    peer.send(&frame(&oneway)).await;
    peer.expect(&id_reply(7)).await;
    assert_eq!((server.counters.calls(), server.counters.faults()), (2, 2));
    server.stop().await;
}

#[tokio::test]
async fn bytes_of_another_protocol_end_the_connection() {
    let server = Running::start::<ClusterManager>(answer, Limits::default());
    let old = b"\0\0\0\x10getNextSessionId\x01\0\0\0\x07\0";
    let inputs: [&[u8]; 7] = [
        b"GET / HTTP/1.0\r\n\r\n",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        &frame(old),
        &frame(b"\x80\x02\0\x01\0\0\0\x10getNextSessionId\0\0\0\x07\0"),
        &id_call(1),
        &frame(&call("sessionHeartbeat", b"\x0b\0\x01\xff\xff\xff\xff")),
    ];
    for input in inputs {
        let mut peer = Raw::connect(&server).await;
        // Earlier calls are answered.
        peer.send(&[&frame(&id_call(3)), input].concat()).await;
        peer.expect(&id_reply(3)).await;
        peer.expect_end().await;
    }
    until("all connections end", || server.counters.open() == 0).await;
    assert_eq!(server.counters.ended(Ending::Malformed), inputs.len() as u64);
    assert_eq!(server.counters.inflight_bytes(), 0);

    for input in [&frame(&id_call(1))[..20], b"\0\0"] {
        let mut peer = Raw::connect(&server).await;
        peer.send(input).await;
        peer.0.shutdown().await.unwrap();
        peer.expect_end().await;
    }
    let mut peer = Raw::connect(&server).await;
    peer.0.shutdown().await.unwrap();
    peer.expect_end().await;
    until("all connections end", || server.counters.open() == 0).await;
    assert_eq!(server.counters.ended(Ending::Broken), 2);
    assert_eq!(server.counters.ended(Ending::Peer), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_peer_that_begins_with_tls_is_told_that_it_is_not_spoken() {
    let driver = |_: Peer, _: SessionDriverCall| async { Answer::<SessionDriverReply>::Close };
    for server in [
        Running::start::<ClusterManager>(answer, Limits::default()),
        Running::start::<SessionDriver>(driver, Limits::default()),
    ] {
        let mut peer = Raw::connect(&server).await;
        peer.send(b"\x16\x03\x01\x02\0\x01\0\x01\xfc").await;
        peer.expect(NO_TLS).await;
        peer.expect_end().await;
        server.stop().await;
    }
}

#[tokio::test]
async fn a_bare_server_goes_on_after_a_missing_field() {
    let driver = |_: Peer, _| async { Answer::Reply(SessionDriverReply::GrantResource) };
    let server = Running::start::<SessionDriver>(driver, Limits::default());
    let mut peer = Raw::connect(&server).await;
    peer.send(&call("grantResource", b"\x0f\0\x02\x0c\0\0\0\x01\x08\0\x01\0\0\0\x05\0")).await;
    let text = b"Required field 'grantedTime' was not found in serialized data! Struct: \
                 ResourceGrant(id:5, nodeName:null, address:null, grantedTime:0, type:null)";
    let head = b"\x80\x01\0\x03\0\0\0\x0dgrantResource\0\0\0\x07\x0b\0\x01\0\0\0";
    peer.expect(&[head, &[text.len() as u8][..], text, b"\x08\0\x02\0\0\0\x07\0"].concat()).await;
    peer.send(&call("grantResource", b"")).await;
    peer.expect(b"\x80\x01\0\x02\0\0\0\x0dgrantResource\0\0\0\x07\0").await;
    server.stop().await;
}

#[tokio::test]
async fn silent_and_slow_peers_lose_their_connections() {
    let quick = Duration::from_millis(60);
    let long = Duration::from_secs(60);
    for (idle_timeout, frame_timeout, input, ending) in [
        (quick, long, b"".as_slice(), Ending::Idle),
        (long, quick, b"\0\0\0".as_slice(), Ending::SlowFrame),
        (long, quick, b"\0\0\0\x09abc".as_slice(), Ending::SlowFrame),
        // The frame is complete, its message is not.
        (long, quick, b"\0\0\0\x01\x80".as_slice(), Ending::SlowFrame),
    ] {
        let limits = Limits { idle_timeout, frame_timeout, ..Limits::default() };
        let server = Running::start::<ClusterManager>(answer, limits);
        let mut peer = Raw::connect(&server).await;
        peer.send(input).await;
        peer.expect_end().await;
        until("the connection ends", || server.counters.ended(ending) == 1).await;
        server.stop().await;
    }
}

/// A frame must be there in time as a whole; a byte now and then does not help.
#[tokio::test]
async fn a_dripping_peer_loses_its_connection() {
    let frame_timeout = Duration::from_millis(80);
    let limits = Limits { frame_timeout, ..Limits::default() };
    let server = Running::start::<ClusterManager>(answer, limits);
    let mut peer = Raw::connect(&server).await;
    peer.send(b"\0\x10\0\0").await;
    until("it is accepted", || server.counters.accepted() == 1).await;
    soon(async {
        while peer.0.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(server.counters.ended(Ending::SlowFrame), 1);
    server.stop().await;
}

#[tokio::test]
async fn zero_means_that_silence_may_last() {
    let limits = Limits { idle_timeout: Duration::ZERO, ..Limits::default() };
    let server = Running::start::<ClusterManager>(answer, limits);
    let mut client = server.client::<ClusterManager>().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    client.get_next_session_id().await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_peer_that_does_not_read_loses_its_connection() {
    let large = |_: Peer, _| async { Answer::Reply(Reply::GetNextSessionId("x".repeat(1 << 20))) };
    let limits = Limits { write_timeout: Duration::from_millis(100), ..Limits::default() };
    let server = Running::start::<ClusterManager>(large, limits);
    let mut peer = Raw::connect(&server).await;
    peer.send(&frame(&id_call(1)).repeat(200)).await;
    until("the connection ends", || server.counters.ended(Ending::SlowReader) == 1).await;
    // It was not asked to hold many megabytes of replies.
    assert!(server.counters.calls() < 100);
    assert_eq!(server.counters.inflight_bytes(), 0);
    server.stop().await;
}

#[tokio::test]
async fn too_much_ends_the_connection() {
    let limits = Limits { max_frame_bytes: 4096, ..Limits::default() };
    let frames: [(Limits, &[u8], Ending); 4] = [
        (limits.clone(), b"\0\0\x10\x01", Ending::Malformed),
        // A message over several frames may not be larger either.
        (limits.clone(), &frame(&[b'x'; 64]).repeat(2), Ending::Malformed),
        (Limits { max_inflight_bytes: 500, ..limits.clone() }, &frame(&[0; 4000]), Ending::Memory),
        (Limits { max_total_inflight_bytes: 500, ..limits }, &frame(&[0; 4000]), Ending::Memory),
    ];
    for (limits, input, ending) in frames {
        let server = Running::start::<ClusterManager>(answer, limits);
        let mut peer = Raw::connect(&server).await;
        peer.send(input).await;
        peer.expect_end().await;
        until("the connection ends", || server.counters.ended(ending) == 1).await;
        assert_eq!(server.counters.inflight_bytes(), 0);
        server.stop().await;
    }
}

#[tokio::test]
async fn a_long_message_over_short_frames_is_bounded() {
    let limits = Limits { max_frame_bytes: 4096, ..Limits::default() };
    let server = Running::start::<ClusterManager>(answer, limits);
    let mut peer = Raw::connect(&server).await;
    let text = |length: u32| {
        [b"\x0b\0\x01", &length.to_be_bytes()[..], &vec![b'x'; length as usize]].concat()
    };
    let fits = call("sessionHeartbeat", &text(4000));
    peer.send(&fits.chunks(100).map(frame).collect::<Vec<_>>().concat()).await;
    let mut head = [0; 8];
    soon(peer.0.read_exact(&mut head)).await.unwrap();
    assert_eq!(head[4..], [0x80, 1, 0, 2]);
    let beyond = call("sessionHeartbeat", &text(4100));
    peer.send(&beyond.chunks(100).map(frame).collect::<Vec<_>>().concat()).await;
    until("the connection ends", || server.counters.ended(Ending::Malformed) == 1).await;
    server.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_at_once() {
    let limits = Limits { max_connections: 2, ..Limits::default() };
    let server = Running::start::<ClusterManager>(answer, limits);
    let mut first = server.client::<ClusterManager>().await;
    let mut second = server.client::<ClusterManager>().await;
    first.get_next_session_id().await.unwrap();
    second.get_next_session_id().await.unwrap();
    let mut third = Raw::connect(&server).await;
    third.expect_end().await;
    assert_eq!(server.counters.refused(), 1);
    drop(first);
    until("a connection ends", || server.counters.open() == 1).await;
    let mut fourth = server.client::<ClusterManager>().await;
    fourth.get_next_session_id().await.unwrap();
    second.get_next_session_id().await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_faulty_handler_ends_its_connection_only() {
    let handler = |_: Peer, call| async move {
        match call {
            Call::GetNextSessionId => Answer::Reply(Reply::GetNextSessionId("1".to_owned())),
            Call::RefreshNodes => panic!("as the test wants it"),
            Call::SetSafeMode { .. } => Answer::Exception(Exception::safe_mode()),
            Call::PersistState => Answer::Reply(Reply::RefreshNodes),
            _ => Answer::Reply(Reply::GetNextSessionId("x".repeat(5000))),
        }
    };
    let limits = Limits { max_frame_bytes: 4096, ..Limits::default() };
    let server = Running::start::<ClusterManager>(handler, limits);
    let mut witness = server.client::<ClusterManager>().await;
    for (call, ending, count) in [
        (Call::RefreshNodes, Ending::Panic, 1),
        (Call::SetSafeMode { safe_mode: true }, Ending::Handler, 1),
        (Call::PersistState, Ending::Handler, 2),
        (Call::GetSessions, Ending::Handler, 3),
    ] {
        let mut client = server.client::<ClusterManager>().await;
        let result = client.call(&call).await;
        assert!(matches!(result, Err(CallError::Closed | CallError::Io(_))), "{result:?}");
        until("the connection ends", || server.counters.ended(ending) == count).await;
        assert_eq!(witness.get_next_session_id().await.unwrap(), "1");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_stopping_server_finishes_what_it_has_begun() {
    let (begun, mut has_begun) = watch::channel(false);
    let (go_on, may_go_on) = watch::channel(false);
    let handler = move |_: Peer, _| {
        begun.send_replace(true);
        let mut may_go_on = may_go_on.clone();
        async move {
            may_go_on.wait_for(|go_on| *go_on).await.unwrap();
            Answer::Reply(Reply::GetNextSessionId("late".to_owned()))
        }
    };
    let server = Running::start::<ClusterManager>(handler, Limits::default());
    let mut idle = Raw::connect(&server).await;
    let mut client = server.client::<ClusterManager>().await;
    let address = server.address;
    let calling = tokio::spawn(async move { client.get_next_session_id().await });
    soon(has_begun.wait_for(|begun| *begun)).await.unwrap();
    server.stop.send_replace(true);
    idle.expect_end().await;
    until("nobody listens", || std::net::TcpStream::connect(address).is_err()).await;
    go_on.send_replace(true);
    assert_eq!(soon(calling).await.unwrap().unwrap(), "late");
    let counters = server.counters.clone();
    server.stop().await;
    assert_eq!((counters.open(), counters.ended(Ending::Shutdown)), (0, 2));
}

#[tokio::test]
async fn a_stopping_server_does_not_wait_for_ever() {
    let never = |_: Peer, _| std::future::pending::<Answer<Reply>>();
    let limits = Limits { drain_timeout: Duration::from_millis(30), ..Limits::default() };
    let server = Running::start::<ClusterManager>(never, limits);
    let mut peer = Raw::connect(&server).await;
    peer.send(&frame(&id_call(1))).await;
    until("a call", || server.counters.calls() == 1).await;
    let counters = server.counters.clone();
    server.stop().await;
    peer.expect_end().await;
    assert_eq!((counters.open(), counters.ended(Ending::Shutdown)), (0, 1));
}

#[tokio::test]
async fn the_listener_takes_both_families_where_there_are_two() {
    let listener = listen(ListenOn::AnyAddress(0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    if listener.local_addr().unwrap().is_ipv6() {
        TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.unwrap();
    }
    let taken = listen(ListenOn::AnyAddress(port)).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
}

/// A server whose every byte the test determines.
async fn scripted(replies: Vec<Vec<u8>>) -> SocketAddr {
    let listener = listen(ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for reply in replies {
            let mut request = vec![0; 4];
            stream.read_exact(&mut request).await.unwrap();
            let length = u32::from_be_bytes([request[0], request[1], request[2], request[3]]);
            stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
            stream.write_all(&reply).await.unwrap();
        }
        // Keeps the connection open until the client has disconnected.
        let _ = stream.read_to_end(&mut vec![]).await;
    });
    address
}

/// Spec: cluster-manager/01 §7.
#[tokio::test]
async fn results_of_answers_for_clients() {
    let options = ClientOptions {
        call_timeout: Duration::from_millis(200),
        max_reply_bytes: 4096,
        ..ClientOptions::default()
    };
    let body = |kind: u8, seqid: u8, body: &[u8]| {
        let head = [0x80, 1, 0, kind, 0, 0, 0, 12];
        frame(
            &[&head, b"getSystemDirx".get(..12).unwrap(), &[0, 0, 0, seqid], body, b"\0"].concat(),
        )
    };
    let fault = b"\x0b\0\x01\0\0\0\x01x\x08\0\x02\0\0\0\x06";
    type Check = fn(&CallError) -> bool;
    let cases: [(Vec<u8>, Check, bool); 10] = [
        (body(3, 1, fault), |e| matches!(e, CallError::Fault(f) if f.message == "x"), true),
        // The sequence id of an exception is not compared.
        (body(3, 9, fault), |e| matches!(e, CallError::Fault(_)), true),
        (
            body(3, 1, b""),
            |e| matches!(e, CallError::Fault(f) if f.kind == FaultKind::Unknown),
            true,
        ),
        (body(2, 1, b""), |e| matches!(e, CallError::MissingResult), true),
        (
            body(2, 2, b"\x0b\0\0\0\0\0\x01d"),
            |e| matches!(e, CallError::OutOfSequence { expected: 1, found: 2 }),
            false,
        ),
        (body(1, 1, b""), |e| matches!(e, CallError::Kind(1)), false),
        (frame(b"\0\0\0\x01"), |e| matches!(e, CallError::Malformed(Malformed::Version(1))), false),
        (
            b"\0\0\x10\x01".to_vec(),
            |e| matches!(e, CallError::Malformed(Malformed::TooLarge { .. })),
            false,
        ),
        (b"\0\0\0\x05abc".to_vec(), |e| matches!(e, CallError::Timeout(_)), false),
        (vec![], |e| matches!(e, CallError::Timeout(_)), false),
    ];
    for (reply, check, usable) in cases {
        let good = [body(2, 2, b"\x0b\0\0\0\0\0\x01d"), vec![]].concat();
        let address = scripted(vec![reply.clone(), good]).await;
        let mut client =
            Client::<ProxyJobTracker>::connect(address, options.clone()).await.unwrap();
        let error = client.get_system_dir().await.unwrap_err();
        assert!(check(&error), "{reply:?}: {error:?}");
        assert_eq!(client.is_usable(), usable, "{error}");
        match client.get_system_dir().await {
            Ok(directory) => assert!(usable && directory == "d"),
            Err(error) => assert!(!usable && matches!(error, CallError::Spent), "{error}"),
        }
    }
}

#[tokio::test]
async fn an_answer_without_a_required_field_is_not_usable() {
    let reply = b"\x80\x01\0\x02\0\0\0\x0crestartNodes\0\0\0\x01\x0c\0\0\0\0";
    let heartbeat = b"\x80\x01\0\x02\0\0\0\x0dnodeHeartbeat\0\0\0\x02\x0c\0\0\0\0";
    let address = scripted(vec![frame(reply), frame(heartbeat)]).await;
    let mut client =
        Client::<ClusterManager>::connect(address, ClientOptions::default()).await.unwrap();
    client.restart_nodes(None).await.unwrap();
    let error = client.node_heartbeat(None).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "incomplete answer: Required field 'restartFlag' was not found in serialized data! \
         Struct: NodeHeartbeatResponse(restartFlag:false)"
    );
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_nothing_to_be_misread() {
    let never = |_: Peer, _| std::future::pending::<Answer<Reply>>();
    let limits = Limits { drain_timeout: Duration::ZERO, ..Limits::default() };
    let server = Running::start::<ClusterManager>(never, limits);
    let mut client = server.client::<ClusterManager>().await;
    {
        let mut call = Box::pin(client.get_next_session_id());
        let counters = server.counters.clone();
        tokio::select! {
            result = &mut call => panic!("{result:?}"),
            () = until("a call", || counters.calls() == 1) => {}
        }
    }
    assert!(!client.is_usable());
    assert!(matches!(client.get_next_session_id().await, Err(CallError::Spent)));
    server.stop().await;
}
