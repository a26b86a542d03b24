//! Listeners beside one another, each with a queue of its own.

use super::*;
use crate::capture::ConnectionId;
use crate::recording::{Entry, GapReason, Record, Unrecorded};

/// All entries until the end of the feed.
async fn all(mut entries: FeedEntries) -> Vec<Entry> {
    let mut all = Vec::new();
    while let Some(entry) = soon(entries.next()).await {
        all.push(entry);
    }
    all
}

/// Connects through the relay, asks, answers, and closes.
async fn question_and_answer(relay: SocketAddr, server: &TcpListener) {
    let mut client = TcpStream::connect(relay).await.unwrap();
    let (mut served, _) = soon(server.accept()).await.unwrap();
    client.write_all(b"question").await.unwrap();
    soon(served.read_exact(&mut [0; 8])).await.unwrap();
    served.write_all(b"--answer").await.unwrap();
    soon(client.read_exact(&mut [0; 8])).await.unwrap();
    drop(client);
    soon(served.read_to_end(&mut Vec::new())).await.unwrap();
}

fn records(entries: Vec<Entry>) -> Vec<Record> {
    assert!(entries.is_sorted_by_key(|entry| entry.at));
    assert!(entries.iter().all(|entry| entry.connection == ConnectionId(0)));
    entries.into_iter().map(|entry| entry.record).collect()
}

#[tokio::test]
async fn every_listener_gets_the_traffic_and_none_delays_another() {
    let (server, upstream) = listener().await;
    let relay =
        Relay::bind(RelayOptions::new(LOOPBACK.parse().unwrap(), upstream.to_string())).unwrap();
    let address = relay.address();
    let (live, live_entries) = feed(1 << 20, "full");
    let (small, small_entries) = feed(4, "full");
    let (gone, gone_entries) = feed(1 << 20, "full");
    drop(gone_entries);
    let disk = Disk::default();
    let recorder = Recorder::start(disk.clone(), &header(), 1 << 20).unwrap();
    let feeds = vec![live.clone(), small.clone(), recorder.feed(), gone.clone()];
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(relay.run(feeds, stopped));
    // One of them listens all the while.
    let live_entries = tokio::spawn(all(live_entries));

    question_and_answer(address, &server).await;
    stop.send_replace(true);
    soon(task).await.unwrap();

    let told = records(live_entries.await.unwrap());
    assert!(matches!(told[0], Record::Opened { service: Some(Offered::ClusterManager), .. }));
    let expected = [
        Record::Accepted,
        Record::Data(Side::Client, b"question".to_vec()),
        Record::Data(Side::Server, b"--answer".to_vec()),
        Record::End(Side::Client),
    ];
    assert_eq!(told[1..5], expected);
    assert_eq!(told.last(), Some(&Record::Closed));
    assert_eq!(live.left_out(), Unrecorded::default());

    let told = records(all(small_entries).await);
    let gap = |side| Record::Gap(side, 8, GapReason::BufferFull);
    let gaps = [Record::Accepted, gap(Side::Client), gap(Side::Server), Record::End(Side::Client)];
    assert_eq!(told[1..5], gaps);
    assert_eq!(small.left_out(), Unrecorded { connections: 0, bytes: 16 });

    assert!(gone.has_stopped());
    assert_eq!(gone.left_out(), Unrecorded { connections: 1, bytes: 16 });

    let recorded = tokio::task::spawn_blocking(move || recorder.finish(PATIENCE)).await.unwrap();
    assert_eq!((recorded.connections, recorded.bytes, recorded.failure), (1, 16, None));
    assert_eq!(disk.traffic().capture.ending, Ending::Complete);
}

#[tokio::test]
async fn a_listener_that_reads_makes_room() {
    let (feed, mut entries) = feed(1_000, "full");
    let feeds = feed::Feeds(vec![feed.clone()]);
    let at = LOOPBACK.parse().unwrap();
    let opening = Opening { client: at, server: at, at: Duration::ZERO, whole: true };
    let taps = feeds.open(&opening, Offered::SessionDriver);
    soon(entries.next()).await.unwrap();
    for round in 0..10 {
        taps.data(Side::Client, &[round; 700]);
        taps.data(Side::Client, &[0; 700]);
        assert!(feed.waiting_bytes() > 700);
        let data = soon(entries.next()).await.unwrap().record;
        assert_eq!(data, Record::Data(Side::Client, vec![round; 700]));
        assert_eq!(feed.waiting_bytes(), 0);
        taps.end(Side::Client);
        let gap = soon(entries.next()).await.unwrap().record;
        assert_eq!(gap, Record::Gap(Side::Client, 700, GapReason::BufferFull));
        soon(entries.next()).await.unwrap();
    }
    // An answer does not come before the gap in which its call was.
    taps.data(Side::Client, &[0; 2_000]);
    taps.data(Side::Server, &[1; 7]);
    let told = [soon(entries.next()).await.unwrap(), soon(entries.next()).await.unwrap()];
    let gap = Record::Gap(Side::Client, 2_000, GapReason::BufferFull);
    assert_eq!(told.map(|entry| entry.record), [gap, Record::Data(Side::Server, vec![1; 7])]);
    // The next entry is waited for, and so is the end.
    let waiting = tokio::spawn(all(entries));
    tokio::task::yield_now().await;
    taps.reset(Side::Server);
    drop(taps);
    drop(feeds);
    let rest = records(soon(waiting).await.unwrap());
    assert_eq!(rest, [Record::Reset(Side::Server), Record::Closed]);
    assert_eq!(feed.left_out(), Unrecorded { connections: 0, bytes: 9_000 });
}
