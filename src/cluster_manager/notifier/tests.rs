//! Sessions that answer, hang, refuse, close early or never were there.

use std::time::Instant;

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::clock::Clock;
use crate::commits::Commits;
use crate::core::Core;
use crate::journal::opening::outbox_of;
use crate::live::Live;
use crate::pages::Events;
use crate::testing::{driver, reach};
use crate::unreachable::end_unreachable;
use corona_cluster_pages::metrics::Metrics;
use corona_config::NameSettings;
use corona_engine::{Input, Reply, testing};
use corona_model::types::{ResourceType, SessionInfo, SessionStatus};
use corona_net::testing::{nobody, soon, until};

/// Longer than a test waits.
const LONG: Duration = Duration::from_secs(600);

fn patience() -> Patience {
    Patience {
        timeout: Duration::from_millis(300),
        poll_interval: Duration::from_millis(10),
        retry_start: Duration::from_millis(10),
        retry_factor: 1,
        retry_max: 2,
        max_queue: 1000,
        max_reply_bytes: 64 << 10,
        linger: Duration::from_secs(5),
    }
}

/// A core with one node of many slots.
fn core(patience: Patience) -> (Arc<Core>, Arc<Notifier>) {
    core_with(patience, reach(&name_settings()))
}

fn name_settings() -> NameSettings {
    corona_config::load(None, &[]).unwrap().settings.names
}

fn core_with(patience: Patience, reach: Reach) -> (Arc<Core>, Arc<Notifier>) {
    let clock = Clock::new();
    let metrics = Arc::<Metrics>::default();
    let (notifier, give_ups) = Notifier::new(patience, metrics.clone(), reach, Recorded::nowhere());
    let engine = testing::engine(testing::settings());
    let events = Arc::new(Events::new(clock.now(), 1, Commits::everything()));
    let kinds = engine.legal_types();
    let live = Live::new(notifier.clone(), events, metrics.clone(), kinds);
    let core = Arc::new(Core::new(engine, clock, Arc::new(live), metrics));
    tokio::spawn(end_unreachable(core.clone(), notifier.clone(), give_ups));
    core.apply(testing::heartbeat("node", 10_000)).unwrap();
    (core, notifier)
}

fn start(core: &Core, handle: &str, port: i32) {
    let info = info(port);
    core.apply(Input::StartSession { handle: handle.into(), info }).unwrap();
}

fn info(port: i32) -> SessionInfo {
    let address = Address { host: "127.0.0.1".into(), port };
    SessionInfo { address, ..testing::info("name", "g.p") }
}

/// Asks for one slot and lets the engine give it.
fn ask(core: &Core, handle: &str, id: i32) {
    core.apply(testing::ask(handle, testing::requests(id..=id, ResourceType::Map))).unwrap();
    core.apply(Input::Pass).unwrap();
}

fn is_running(core: &Core, handle: &str) -> bool {
    core.look(|engine, _| engine.session_info(handle).is_ok())
}

async fn next(told: &mut mpsc::Receiver<Vec<i32>>) -> Vec<i32> {
    soon(told.recv()).await.expect("it serves")
}

#[tokio::test]
async fn calls_arrive_in_order_whatever_other_sessions_do() {
    let (core, _notifier) = core(Patience { timeout: Duration::from_secs(60), ..patience() });
    // One accepts and never answers, one is not there.
    let stuck = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = nobody();
    let absent = nobody.address().port();
    let (port, mut told, _stop) = driver(0);
    for (handle, port) in
        [("2026.1", stuck.local_addr().unwrap().port()), ("2026.2", absent), ("2026.3", port)]
    {
        start(&core, handle, port.into());
    }
    for id in 1..=50 {
        for handle in ["2026.1", "2026.2", "2026.3"] {
            ask(&core, handle, id);
        }
        assert_eq!(next(&mut told).await, [id]);
        if !is_running(&core, "2026.2") {
            start(&core, "2026.2", absent.into());
        }
    }
}

#[tokio::test]
async fn a_session_that_is_never_reached_is_given_up() {
    let (core, notifier) = core(patience());
    let nobody = nobody();
    let absent = nobody.address().port();
    for (handle, port) in [("2026.1", i32::from(absent)), ("2026.2", 70_000), ("2026.3", -1)] {
        start(&core, handle, port);
        notifier.note_peer(&handle.into(), [10, 9, 9, 9].into());
        ask(&core, handle, 1);
        until("the session ends", || !is_running(&core, handle)).await;
        let status = core.look(|engine, _| engine.retired_sessions().back().unwrap().status);
        assert_eq!(status, SessionStatus::TimedOut);
    }
    assert_eq!(notifier.counts().calls, 0);
    until("nothing is left of them", || notifier.peers().is_empty()).await;
    assert_eq!(core.look(|engine, _| engine.slots(ResourceType::Map).used), 0);
}

#[tokio::test]
async fn a_session_is_given_up_when_the_talk_with_it_breaks_off() {
    let (core, notifier) = core(patience());
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    start(&core, "2026.1", silent.local_addr().unwrap().port().into());
    ask(&core, "2026.1", 1);
    core.apply(Input::SetSafeMode { on: true }).unwrap();
    let safe_mode = async {
        sleep(notifier.patience.poll_interval).await;
        let ended = core.look(|engine, _| engine.retired_sessions().len());
        assert_eq!(ended, 0, "nothing ends in safe mode");
        core.apply(Input::SetSafeMode { on: false }).unwrap();
    };
    let handle: Arc<str> = "2026.1".into();
    let own = notifier.queues()[&handle].signals.clone();
    let talk = async { panic!("out of luck") };
    tokio::join!(notifier.or_give_up(&handle, &own, talk), safe_mode);
    let status = core.look(|engine, _| engine.retired_sessions().back().unwrap().status);
    assert_eq!((status, notifier.counts().calls), (SessionStatus::TimedOut, 0));
}

#[tokio::test]
async fn a_conversation_that_was_ended_leaves_the_next_one_alone() {
    let (core, notifier) = core(Patience { timeout: LONG, ..patience() });
    let stuck = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = stuck.local_addr().unwrap().port().into();
    let handle: Arc<str> = "2026.1".into();
    start(&core, &handle, port);
    ask(&core, &handle, 1);
    let old = notifier.queues()[&handle].signals.clone();
    let status = SessionStatus::Successful;
    core.apply(Input::EndSession { handle: handle.clone(), status }).unwrap();
    start(&core, &handle, port);
    ask(&core, &handle, 2);
    // Whatever the old one does before it notices that it was aborted.
    assert!(matches!(notifier.head(&handle, &old), Head::Empty));
    notifier.delivered(&handle, &old);
    assert!(notifier.retire(&handle, &old), "it has ended");
    assert!(notifier.give_up(&handle, &old).await, "it has ended");
    assert!(is_running(&core, &handle));
    let waiting = notifier.snapshot();
    let [Undelivered { calls, .. }] = &waiting[..] else { panic!("{waiting:?}") };
    let [Notification::Granted(grants)] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(grants[0].id, 2);
    let own = notifier.queues()[&handle].signals.clone();
    notifier.delivered(&handle, &own);
    assert_eq!(notifier.snapshot(), []);
}

#[tokio::test]
async fn a_stuck_session_is_given_up_after_as_many_attempts_as_the_original_makes() {
    let (core, _notifier) = core(patience());
    let stuck = TcpListener::bind("127.0.0.1:0").await.unwrap();
    start(&core, "2026.1", stuck.local_addr().unwrap().port().into());
    ask(&core, "2026.1", 1);
    let mut attempts = 0;
    let mut open = Vec::new();
    while is_running(&core, "2026.1") {
        if let Ok(accepted) = timeout(Duration::from_millis(50), stuck.accept()).await {
            open.push(accepted);
            attempts += 1;
        }
    }
    // Spec: cluster-manager/05 §4: retries + 2.
    assert_eq!(attempts, 4);
}

#[tokio::test]
async fn a_call_without_an_answer_is_made_again() {
    let (core, _notifier) = core(patience());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    start(&core, "2026.1", listener.local_addr().unwrap().port().into());
    ask(&core, "2026.1", 7);
    let mut calls = Vec::new();
    for _ in 0..2 {
        calls.push(call_under_way(&listener).await.1);
    }
    assert!(!calls[0].is_empty());
    assert_eq!(calls[0], calls[1]);
}

#[tokio::test]
async fn a_kept_connection_that_the_session_closed_is_no_failure() {
    let (core, _notifier) = core(Patience { poll_interval: LONG, retry_start: LONG, ..patience() });
    let (port, mut told, stop) = driver(0);
    start(&core, "2026.1", port.into());
    ask(&core, "2026.1", 1);
    assert_eq!(next(&mut told).await, [1]);
    stop.send_replace(true);
    assert_eq!(soon(told.recv()).await, None, "the driver is gone");
    // The same port is served again; a failure would cost a pause longer than the test waits.
    let (_, mut told, _stop) = driver(port);
    ask(&core, "2026.1", 2);
    assert_eq!(next(&mut told).await, [2]);
}

#[tokio::test]
async fn a_session_with_too_much_waiting_is_given_up() {
    let (core, _notifier) =
        core(Patience { timeout: Duration::from_secs(60), max_queue: 3, ..patience() });
    let stuck = TcpListener::bind("127.0.0.1:0").await.unwrap();
    start(&core, "2026.1", stuck.local_addr().unwrap().port().into());
    ask(&core, "2026.1", 1);
    let _hangs = soon(stuck.accept()).await.unwrap();
    for id in 2..=4 {
        ask(&core, "2026.1", id);
    }
    until("the session ends", || !is_running(&core, "2026.1")).await;
}

#[tokio::test]
async fn safe_mode_keeps_a_session_that_cannot_be_reached() {
    let (core, notifier) = core(patience());
    let nobody = nobody();
    let absent = nobody.address().port();
    start(&core, "2026.1", absent.into());
    ask(&core, "2026.1", 1);
    assert_eq!(core.apply(Input::SetSafeMode { on: true }), Ok(Reply::Done));
    // Far more than all attempts take.
    sleep(Duration::from_millis(300)).await;
    assert_eq!(notifier.counts().calls, 1);
    assert_eq!(core.apply(Input::SetSafeMode { on: false }), Ok(Reply::Done));
    until("the session ends", || !is_running(&core, "2026.1")).await;
}

/// A listener that stands for a driver, and the bytes of the first call that it is sent.
async fn call_under_way(listener: &TcpListener) -> (tokio::net::TcpStream, Vec<u8>) {
    let (mut stream, _) = soon(listener.accept()).await.unwrap();
    let mut call = vec![0; 4096];
    let length = soon(stream.read(&mut call)).await.unwrap();
    call.truncate(length);
    (stream, call)
}

#[tokio::test]
async fn while_it_is_paused_nobody_is_told_anything() {
    let (core, notifier) = core(patience());
    let (port, mut told, _stop) = driver(0);
    start(&core, "2026.1", port.into());
    ask(&core, "2026.1", 1);
    assert_eq!(next(&mut told).await, [1]);
    // Whether it is idle with a connection open or new.
    notifier.pause();
    start(&core, "2026.2", port.into());
    for (handle, id) in [("2026.1", 2), ("2026.2", 3), ("2026.1", 4)] {
        ask(&core, handle, id);
    }
    notifier.settle(LONG).await;
    assert!(timeout(Duration::from_millis(100), told.recv()).await.is_err());
    let waiting = notifier.snapshot();
    let ids = waiting.iter().map(|queue| {
        let ids = queue.calls.iter().map(|call| match call {
            Notification::Granted(grants) => grants[0].id,
            other => panic!("{other:?}"),
        });
        (&*queue.handle, queue.to.port, ids.collect::<Vec<_>>())
    });
    let port = i32::from(port);
    assert_eq!(ids.collect::<Vec<_>>(), [("2026.1", port, vec![2, 4]), ("2026.2", port, vec![3])]);

    notifier.resume();
    let mut told = [next(&mut told).await, next(&mut told).await, next(&mut told).await];
    told.sort();
    assert_eq!(told, [[2], [3], [4]]);
    until("nothing waits", || notifier.snapshot().is_empty()).await;
}

#[tokio::test]
async fn a_pause_waits_for_calls_under_way_but_not_for_ever() {
    let (core, notifier) = core(Patience { timeout: LONG, ..patience() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    start(&core, "2026.1", listener.local_addr().unwrap().port().into());
    ask(&core, "2026.1", 1);
    let (stream, call) = call_under_way(&listener).await;
    notifier.pause();
    notifier.settle(Duration::from_millis(20)).await;
    assert_eq!(notifier.snapshot().len(), 1, "whether it arrives nobody knows");

    // The answer comes while the pause waits for it.
    let answer = async {
        let seqid = &call[8 + "grantResource".len()..][..4];
        let mut reply = vec![0x80, 1, 0, 2, 0, 0, 0, 13];
        reply.extend_from_slice(b"grantResource");
        reply.extend_from_slice(seqid);
        reply.push(0);
        sleep(Duration::from_millis(20)).await;
        stream.try_write(&reply).unwrap();
    };
    tokio::join!(soon(notifier.settle(LONG)), answer);
    assert_eq!(notifier.snapshot(), []);
}

#[tokio::test]
async fn pending_notifications_of_another_cluster_manager_are_delivered_in_order() {
    let (core, notifier) = core(patience());
    let (port, mut told, _stop) = driver(0);
    notifier.pause();
    start(&core, "2026.1", port.into());
    (1..=3).for_each(|id| ask(&core, "2026.1", id));
    let undelivered = notifier.snapshot();
    notifier.forget(&"2026.1".into());
    assert_eq!(notifier.snapshot(), []);
    notifier.restore(outbox_of(&undelivered));
    notifier.resume();
    for id in 1..=3 {
        assert_eq!(next(&mut told).await, [id]);
    }
}

/// Sends `bytes` instead of replies, over and over, and counts the bytes that the peer took.
async fn endless(bytes: Vec<u8>) -> (u16, Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = taken.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (bytes, counted) = (bytes.clone(), counted.clone());
            tokio::spawn(async move {
                use tokio::io::AsyncWriteExt;
                while let Ok(sent) = stream.write(&bytes).await {
                    counted.fetch_add(sent, std::sync::atomic::Ordering::SeqCst);
                }
            });
        }
    });
    (port, taken)
}

/// The beginning of an answer that never ends: a list of empty texts, none of them long.
fn unfinished_answer() -> Vec<u8> {
    let head = b"\x80\x01\0\x02\0\0\0\x0dgrantResource\0\0\0\x01\x0f\0\x09\x0b\x01\0\0\0";
    [&head[..], &[0; 2000]].concat()
}

#[tokio::test]
async fn an_answer_that_does_not_end_is_not_read_to_its_end() {
    let patience = Patience { max_reply_bytes: 64 << 10, timeout: LONG, ..patience() };
    let (core, notifier) = core(patience);
    let (port, mut told, _stop) = driver(0);
    let mut all = Vec::new();
    for number in 1..=8 {
        let (port, taken) = endless(unfinished_answer()).await;
        let handle = format!("2026.{number}");
        start(&core, &handle, port.into());
        ask(&core, &handle, 1);
        all.push((handle, taken));
    }
    start(&core, "2026.99", port.into());
    let memory = notifier.reach.memory.counters().clone();
    let (mut id, mut most, mut slowest) = (0, 0, Duration::ZERO);
    while all.iter().any(|(handle, _)| is_running(&core, handle)) {
        id += 1;
        let asked = Instant::now();
        ask(&core, "2026.99", id);
        assert_eq!(next(&mut told).await, [id]);
        slowest = slowest.max(asked.elapsed());
        most = most.max(memory.inflight_bytes());
    }
    // A session that answers is notified at once all the while.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    // Eight at a time, each beyond its bound by no more than it has sent at once.
    assert!(most < 8 * (64 << 10) * 2 + 4096, "{most}");
    for (handle, taken) in all {
        let taken = taken.load(std::sync::atomic::Ordering::SeqCst);
        assert!(taken < 64 << 20, "{handle}: {taken} bytes, most of them in buffers of the system");
    }
    until("all is given back", || memory.inflight_bytes() == 0).await;
}

#[tokio::test]
async fn answers_share_the_memory_of_all_connections() {
    let memory = Memory::new(200_000, 100);
    let reach = Reach { memory: memory.clone(), ..reach(&name_settings()) };
    let patience = Patience { max_reply_bytes: 1 << 20, timeout: LONG, ..patience() };
    let (core, _notifier) = core_with(patience, reach);
    let (port, mut told, _stop) = driver(0);
    for number in 1..=8 {
        // 100 kB that are not yet an answer, and then silence.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let handle = format!("2026.{number}");
        start(&core, &handle, listener.local_addr().unwrap().port().into());
        ask(&core, &handle, 1);
        tokio::spawn(async move {
            use tokio::io::AsyncWriteExt;
            let head = b"\x80\x01\0\x02\0\0\0\x0dgrantResource\0\0\0\x01\x0b\0\x09\0\x0f\0\0";
            while let Ok((mut stream, _)) = listener.accept().await {
                let answer = [&head[..], &vec![b'x'; 100_000]].concat();
                let _ = stream.write_all(&answer).await;
                tokio::spawn(async move { stream.read(&mut [0; 4096]).await });
            }
        });
    }
    start(&core, "2026.99", port.into());
    let (mut id, mut ended) = (0, 0);
    while ended < 3 {
        id += 1;
        ask(&core, "2026.99", id);
        assert_eq!(next(&mut told).await, [id]);
        assert!(memory.counters().inflight_bytes() < 500_000);
        ended = (1..=8).filter(|n| !is_running(&core, &format!("2026.{n}"))).count();
    }
    assert!(is_running(&core, "2026.99"));
}
