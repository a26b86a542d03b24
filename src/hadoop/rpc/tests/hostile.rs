//! Peers that violate the protocol lose only their own connection.

use corona_model::random::Random;
use proptest::prelude::*;

use super::*;
use crate::testing::unhex;
use corona_access::NO_TLS;

/// Sends this, and checks that the connection ends without a word, for this reason.
async fn check(limits: &Limits, what: &str, sent: &[u8], ending: Ending) {
    let running = start(limits.clone()).await;
    let mut raw = Raw::connect(&running).await;
    // The server may close before everything is sent.
    let _ = soon(raw.stream.write_all(sent)).await;
    assert_eq!(raw.rest().await, b"", "{what}");
    until("all connections end", || running.counters.open() == 0).await;
    assert_eq!(running.counters.ended(ending), 1, "{what}");
    assert_eq!(running.counters.inflight_bytes(), 0, "{what}");
    let mut other = Raw::open(&running).await;
    other.send(&frame(1, "getFilesystemName", vec![])).await;
    assert_eq!(other.receive::<Reply>().await.id, 1, "{what}");
}

fn after_header(bytes: &str) -> Vec<u8> {
    [preamble(inter_tracker::PROTOCOL.name), unhex(bytes)].concat()
}

#[tokio::test]
async fn bytes_that_are_no_connections() {
    let with_header = |header: &str| {
        let header = unhex(header);
        let length = u32::try_from(header.len()).unwrap().to_be_bytes();
        [&MAGIC[..], &length, &header].concat()
    };
    let known = format!(r#"2d"{}""#, inter_tracker::PROTOCOL.name);
    assert_eq!(inter_tracker::PROTOCOL.name.len(), 0x2d);
    for (what, sent) in [
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("the wrong magic, early", b"hrpx".to_vec()),
        ("another version", b"hrpc\x04\0\0\0\x00".to_vec()),
        ("a negative length", b"hrpc\x03\xff\xff\xff\xff".to_vec()),
        ("a long header", b"hrpc\x03\x00\x01\x00\x01".to_vec()),
        ("an unknown protocol", preamble("a.B")),
        ("no protocol", with_header("00 00")),
        ("another kind of user", with_header(&format!(r#"{known} 01 01"X" 01"a" 01 01"g""#))),
        ("a header cut short", with_header(&format!(r#"{known} 01 0a"STRING_UGI" 05"a""#))),
        ("endless groups", with_header(&format!(r#"{known} 01 0a"STRING_UGI" 01"a" 8c7fffffff"#))),
        ("no header at all", vec![]),
    ] {
        let limits = Limits { frame_timeout: Duration::from_millis(300), ..Limits::default() };
        let ending = if sent.is_empty() { Ending::SlowFrame } else { Ending::Malformed };
        check(&limits, what, &sent, ending).await;
    }
}

#[tokio::test]
async fn a_peer_that_begins_with_tls_is_told_that_it_is_not_spoken() {
    let running = start(Limits::default()).await;
    let mut raw = Raw::connect(&running).await;
    raw.send(b"\x16\x03\x01\x02\0").await;
    assert_eq!(raw.rest().await, NO_TLS);
}

#[tokio::test]
async fn bytes_that_are_no_calls() {
    let limits = Limits { max_call_bytes: 1000, ..Limits::default() };
    for (what, bytes) in [
        ("a negative length", "fffffffe"),
        ("a long call", "000003e9"),
        ("an empty call", "00000000"),
        ("a call cut short", r#"00000009 00000001 0003"abc""#),
        ("endless parameters", r#"0000000d 00000001 0003"abc" 7fffffff"#),
        ("negative parameters", r#"0000000d 00000001 0003"abc" ffffffff"#),
        ("an unknown class", r#"00000014 00000001 0003"abc" 00000001 0005"a.b.C""#),
        ("a short class", r#"00000011 00000001 0003"abc" 00000001 0002"aB""#),
    ] {
        check(&limits, what, &after_header(bytes), Ending::Malformed).await;
    }
    let truncated = {
        let whole = frame(1, "getTaskCompletionEvents", vec![event(1).into_object()]);
        let call = &whole[4..whole.len() - 2];
        let length = u32::try_from(call.len()).unwrap().to_be_bytes();
        [&after_header("")[..], &length, call].concat()
    };
    check(&limits, "an object cut short", &truncated, Ending::Malformed).await;
}

#[tokio::test]
async fn peers_that_are_too_slow() {
    let limits = Limits {
        frame_timeout: Duration::from_millis(100),
        idle_timeout: Duration::from_millis(100),
        ..Limits::default()
    };
    check(&limits, "half a magic", b"hr", Ending::SlowFrame).await;
    check(&limits, "half a header", &preamble("x")[..12], Ending::SlowFrame).await;
    check(&limits, "half a length", &after_header("0000"), Ending::SlowFrame).await;
    check(&limits, "half a call", &after_header("00000100 0000"), Ending::SlowFrame).await;
    check(&limits, "nothing", &after_header(""), Ending::Idle).await;
    check(&limits, "a ping and nothing", &after_header("ffffffff"), Ending::Idle).await;
}

#[tokio::test]
async fn a_peer_that_reads_nothing() {
    let limits = Limits { write_timeout: Duration::from_millis(100), ..Limits::default() };
    let running = start(limits).await;
    let mut raw = Raw::open(&running).await;
    let call = frame(1, "getBuildVersion", vec![]);
    let calls = call.repeat(2000);
    // 120 MB of answers fit into no buffer.
    let _ = soon(raw.stream.write_all(&calls)).await;
    until("the connection ends", || running.counters.ended(Ending::SlowReader) == 1).await;
    until("all memory is free", || running.counters.inflight_bytes() == 0).await;
}

#[tokio::test]
async fn a_peer_that_takes_too_much_memory() {
    let limits = Limits { max_total_inflight_bytes: 5000, ..Limits::default() };
    let mut sent = after_header("00100000");
    sent.extend([0; 6000]);
    check(&limits, "a large call", &sent, Ending::Memory).await;
}

/// Unfinished calls fill the memory again and again. Only their own connections are closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_calls_cost_those_who_sent_them() {
    let limits = Limits {
        max_total_inflight_bytes: 1 << 20,
        max_connections: 100,
        // Unfinished calls are not ended by time while others wait for their memory.
        frame_timeout: Duration::from_secs(600),
        ..Limits::default()
    };
    let running = start(limits).await;
    let call = |id| frame(id, "getFilesystemName", vec![]);
    let mut idle = Raw::open(&running).await;
    idle.send(&call(1)).await;
    assert_eq!(idle.receive::<Reply>().await.id, 1);
    let mut busy = Raw::open(&running).await;
    let port = running.address.port;
    let attackers: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn(async move {
                let mut sent = after_header("00100000");
                sent.extend(vec![0; 200 << 10]);
                loop {
                    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    let _ = stream.write_all(&sent).await;
                    // Until it is closed.
                    let _ = stream.read(&mut [0]).await;
                }
            })
        })
        .collect();
    let mut id = 1;
    while running.counters.ended(Ending::Memory) < 20 || id < 200 {
        id += 1;
        let served = async {
            busy.send(&call(id)).await;
            assert_eq!(busy.receive::<Reply>().await.id, id);
            let mut fresh = Raw::open(&running).await;
            fresh.send(&call(id)).await;
            assert_eq!(fresh.receive::<Reply>().await.id, id);
        };
        soon(served).await;
    }
    idle.send(&call(2)).await;
    assert_eq!(idle.receive::<Reply>().await.id, 2);
    for attacker in attackers {
        attacker.abort();
        assert!(attacker.await.unwrap_err().is_cancelled());
    }
    drop((idle, busy));
    until("all connections end", || running.counters.open() == 0).await;
    assert_eq!(running.counters.inflight_bytes(), 0);
}

#[tokio::test]
async fn a_peer_too_many() {
    let running = start(Limits { max_connections: 1, ..Limits::default() }).await;
    let mut first = Raw::open(&running).await;
    first.send(&frame(1, "getFilesystemName", vec![])).await;
    assert_eq!(first.receive::<Reply>().await.id, 1);
    assert_eq!(Raw::connect(&running).await.rest().await, b"");
    assert_eq!(running.counters.refused(), 1);
    first.send(&frame(2, "getFilesystemName", vec![])).await;
    assert_eq!(first.receive::<Reply>().await.id, 2);
}

/// Calls with a few bytes changed, one after another against one server.
#[tokio::test]
async fn damaged_calls_do_no_harm() {
    let running = start(Limits { max_call_bytes: 10_000, ..Limits::default() }).await;
    let whole = {
        let job: JobId = "job_201401011200.7_0001".parse().unwrap();
        let parameters = vec![job.into_object(), 0_i32.into_object(), 3_i32.into_object()];
        let opening = preamble(inter_tracker::PROTOCOL.name);
        [opening, frame(1, "getTaskCompletionEvents", parameters)].concat()
    };
    let mut random = Random::new(7);
    for _ in 0..500 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(3) {
            let place = random.below(bytes.len());
            bytes[place] = u8::try_from(random.below(256)).unwrap();
        }
        bytes.truncate(bytes.len() - random.below(2) * random.below(bytes.len()));
        let mut raw = Raw::connect(&running).await;
        let _ = soon(raw.stream.write_all(&bytes)).await;
        let _ = raw.stream.shutdown().await;
        raw.rest().await;
    }
    until("all connections end", || running.counters.open() == 0).await;
    assert_eq!(running.counters.ended(Ending::Panic), 0);
    assert_eq!(running.counters.inflight_bytes(), 0);
    let mut raw = Raw::open(&running).await;
    raw.send(&frame(1, "getFilesystemName", vec![])).await;
    assert_eq!(raw.receive::<Reply>().await.id, 1);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Call::decode(&mut Reader::new(&bytes));
        let _ = Reply::decode(&mut Reader::partial(&bytes, 1 << 20));
        let _ = ConnectionHeader::decode(&mut Reader::new(&bytes));
    }
}
