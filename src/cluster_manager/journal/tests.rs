//! What the journal leads back to is what the live engine was, whatever has happened.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::appender::{Acknowledged, Journaled};
use super::follower::{Follower, Reader};
use super::images::make_image;
use super::opening::{Disk, first_record, start_new};
use super::outbox::Outbox;
use crate::clock::Clock;
use crate::commits::Commits;
use crate::core::Core;
use crate::live::Live;
use crate::notifier::{Notifier, Patience, Recorded};
use crate::pages::Events;
use crate::testing::reach;
use corona_cluster_pages::metrics::Metrics;
use corona_config::{JournalSettings, JournalSync};
use corona_engine::{
    Effect, Engine, Input, NodeUsageReport, Notification, Outcome, Start, testing,
};
use corona_journal::Journal;
use corona_journal::testing::Faults;
use corona_model::form;
use corona_model::types::{Millis, ResourceType, SessionStatus};

fn settings() -> JournalSettings {
    JournalSettings {
        directory: None,
        sync: JournalSync::Write,
        sync_interval: Duration::from_millis(10),
        segment_bytes: 4096,
        image_bytes: 65_536,
    }
}

/// A core that keeps a journal, whose sessions are never notified.
struct TestJournal {
    core: Arc<Core>,
    notifier: Arc<Notifier>,
    acknowledged: Arc<Acknowledged>,
    journal: Arc<Journal>,
}

impl TestJournal {
    fn new(directory: &Path) -> TestJournal {
        TestJournal::on(&Disk::system(), directory)
    }

    fn on(disk: &Disk, directory: &Path) -> TestJournal {
        let mut engine_settings = testing::settings();
        engine_settings.partitioning.0.insert(1, ResourceType::ALL.map(|kind| (kind, 2)).into());
        let clock = Clock::new();
        let start = Start { now: clock.now(), id_prefix: "2026".into(), hash_seed: 1 };
        let engine = Engine::new(engine_settings, start);
        let first = first_record(&engine, Outbox::default()).unwrap();
        let (opened, _) = start_new(disk, directory, &settings(), &first).unwrap();
        let acknowledged = Arc::new(Acknowledged::default());
        let metrics = Arc::<Metrics>::default();
        let patience = Patience {
            timeout: Duration::from_secs(1),
            poll_interval: Duration::from_secs(1),
            retry_start: Duration::from_secs(1),
            retry_factor: 1,
            retry_max: 1,
            max_queue: 1_000_000,
            max_reply_bytes: 1 << 16,
            linger: Duration::ZERO,
        };
        let names = corona_config::load(None, &[]).unwrap().settings.names;
        let recorded = Recorded::nowhere();
        let (notifier, _) = Notifier::new(patience, metrics.clone(), reach(&names), recorded);
        notifier.pause();
        let events = Arc::new(Events::new(clock.now(), 1, Commits::everything()));
        let live = Live::new(notifier.clone(), events, metrics.clone(), engine.legal_types());
        let journal = opened.journal;
        let commits = Commits::of(journal.committed());
        let outlet = Journaled::new(live, journal.clone(), commits, acknowledged.clone(), 0);
        let core = Arc::new(Core::new(engine, clock, Arc::new(outlet), metrics));
        TestJournal { core, notifier, acknowledged, journal }
    }

    /// Checks that the journal leads back to the live engine, and to the notifications that wait.
    async fn check(&self) {
        self.core.flush();
        let last = self.journal.status().appended;
        self.journal.wait_for(last).await.unwrap();
        let mut reader = Reader::new(99);
        self.journal.read(|entry| Ok(reader.visit(entry)?)).unwrap();
        let follower = reader.finish().unwrap();
        follower.engine.audit().unwrap();
        let live = self.core.look(|engine, _| engine.image());
        assert_eq!(follower.engine.image(), live);
        let expected = self.notifier.snapshot();
        let found: Vec<_> = follower.outbox.into_sessions().collect();
        assert_eq!(found.len(), expected.len());
        for ((handle, pending), undelivered) in found.iter().zip(&expected) {
            assert_eq!(*handle, undelivered.handle);
            let calls: Vec<_> = pending.calls.iter().map(|(_, call)| call.clone()).collect();
            assert_eq!(calls, undelivered.calls, "{handle}");
        }
    }
}

/// Numbers that look random and are always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

#[tokio::test]
async fn the_journal_leads_back_to_the_live_engine() {
    for seed in 1..=4 {
        let directory = tempfile::tempdir().unwrap();
        let world = TestJournal::new(&directory.path().join("journal"));
        let mut numbers = Numbers(seed);
        let (mut sessions, mut started, mut id) = (Vec::<String>::new(), 0, 0);
        for turn in 0..1500 {
            let some = |numbers: &mut Numbers, of: &[String]| {
                (!of.is_empty()).then(|| of[numbers.below(of.len() as u64) as usize].clone())
            };
            let input = match numbers.below(20) {
                // Most heartbeats repeat the last one.
                0..=7 => {
                    let node = format!("n{}", numbers.below(8));
                    testing::heartbeat(&node, if numbers.below(20) == 0 { 3 } else { 2 })
                }
                8 if sessions.len() < 6 => {
                    started += 1;
                    let handle = format!("2026.{started}");
                    sessions.push(handle.clone());
                    testing::session(&handle, "g.p")
                }
                9..=13 => match some(&mut numbers, &sessions) {
                    Some(handle) => {
                        let requests = (0..=numbers.below(3)).map(|_| {
                            id += 1;
                            let kind = ResourceType::ALL[numbers.below(2) as usize];
                            testing::request(id, kind, &[])
                        });
                        let requests = requests.collect();
                        testing::ask(&handle, requests)
                    }
                    None => Input::NextSessionId,
                },
                14..=16 => match some(&mut numbers, &sessions) {
                    Some(handle) => {
                        let ids = (0..4).map(|_| numbers.below(id as u64 + 1) as i32).collect();
                        Input::ReleaseResources { handle: handle.into(), ids }
                    }
                    None => Input::NextSessionId,
                },
                17 => match some(&mut numbers, &sessions) {
                    Some(handle) => {
                        let node_name = format!("n{}", numbers.below(8)).into();
                        let reports =
                            vec![NodeUsageReport { node_name, failed: 99, failed_connections: 99 }];
                        let kinds = vec![ResourceType::Map];
                        Input::NodeFeedback { handle: handle.into(), kinds, reports }
                    }
                    None => Input::NextSessionId,
                },
                18 if numbers.below(8) == 0 && !sessions.is_empty() => {
                    let handle = sessions.remove(numbers.below(sessions.len() as u64) as usize);
                    let status = SessionStatus::Successful;
                    Input::EndSession { handle: handle.into(), status }
                }
                18 => Input::RestartNodes { force: false, batch_size: 1 },
                _ => match some(&mut numbers, &sessions) {
                    Some(handle) => Input::HeartbeatSession { handle: handle.into(), view: None },
                    None => Input::Tick,
                },
            };
            let _ = world.core.apply(input);
            world.core.settle(|| 0).await;
            if numbers.below(3) == 0 {
                acknowledge_one(&world);
            }
            if turn % 500 == 250 {
                world.check().await;
                make_image(&world.journal).unwrap();
            }
        }
        world.check().await;
        assert!(world.journal.status().image > 0);
    }
}

/// A session acknowledges its oldest notification.
fn acknowledge_one(world: &TestJournal) {
    let Some(undelivered) = world.notifier.snapshot().into_iter().next() else { return };
    let serial = world.notifier.deliver_first(&undelivered.handle);
    world.acknowledged.note(&undelivered.handle, serial);
}

#[tokio::test]
async fn heartbeats_that_change_nothing_take_few_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let world = TestJournal::new(&directory.path().join("journal"));
    for node in 0..100 {
        world.core.apply(testing::heartbeat(&format!("node{node}"), 2)).unwrap();
    }
    world.core.settle(|| 0).await;
    let before = world.journal.status();
    for _ in 0..50 {
        for node in 0..100 {
            world.core.apply(testing::heartbeat(&format!("node{node}"), 2)).unwrap();
        }
    }
    world.core.flush();
    let after = world.journal.status();
    assert!(after.appended - before.appended <= 2, "{after:?}");
    assert!(after.tail_bytes - before.tail_bytes < 5000 * 20, "{after:?}");
    world.check().await;
}

/// A reply waits for the record of its own input. A heartbeat that changes nothing has none, however long
/// the disk takes for those of others.
#[tokio::test]
async fn a_reply_waits_for_its_own_record_only() {
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::default();
    let world = TestJournal::on(&Disk::with(&faults), &directory.path().join("journal"));
    let apply = |input| world.core.apply_recorded(input);
    let mut committed = world.journal.committed();
    let first = apply(testing::heartbeat("n1", 2)).record;
    world.core.committed_up_to(first).await;
    faults.hold(true);
    let second = apply(testing::heartbeat("n2", 2)).record;
    let third = apply(testing::session("2026.1", "g.p")).record;
    assert_eq!([second, third], [first + 1, first + 2]);
    assert_eq!(apply(testing::heartbeat("n1", 2)).record, 0, "it has said so before");
    // What is refused depends on all that was decided before.
    let unknown = Input::HeartbeatSession { handle: "2026.9".into(), view: None };
    assert_eq!(apply(unknown).record, third);
    world.core.committed_up_to(0).await;
    let waits = tokio::time::timeout(Duration::from_millis(20), world.core.committed_up_to(second));
    assert!(waits.await.is_err(), "the disk has not accepted it");
    assert_eq!(*committed.borrow_and_update(), first);
    faults.hold(false);
    world.core.committed().await;
    assert_eq!(*committed.borrow_and_update(), third);
}

/// Within several threads, a record is committed when the call returns, and its thread has waited for
/// no other. A disk that accepts nothing blocks one thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_applies_an_input_writes_its_record() {
    let directory = tempfile::tempdir().unwrap();
    let faults = Faults::default();
    let world = TestJournal::on(&Disk::with(&faults), &directory.path().join("journal"));
    let committed = world.journal.committed();
    let mut is_own = false;
    // A busy machine can make any write slow, and then the thread of the journal does the next.
    for turn in 0..1000 {
        let record = world.core.apply_recorded(testing::heartbeat("n1", 2 + turn)).record;
        is_own = *committed.borrow() == record;
        if is_own {
            break;
        }
        world.core.committed_up_to(record).await;
    }
    assert!(is_own);

    faults.hold(true);
    let before = *committed.borrow();
    let core = world.core.clone();
    let blocked =
        std::thread::spawn(move || core.apply_recorded(testing::heartbeat("n2", 2)).record);
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while world.journal.status().appended == before {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // An innocent peer is not blocked.
    let other = world.core.apply_recorded(testing::heartbeat("n3", 2)).record;
    assert_eq!(other, before + 2);
    world.core.settle(|| 0).await;
    assert_eq!(*committed.borrow(), before, "the disk has accepted neither");
    faults.hold(false);
    world.core.committed_up_to(other).await;
    assert_eq!(blocked.join().unwrap(), before + 1);
    world.check().await;
}

/// The clock continues from the image, even where the machine's clock was set back.
#[tokio::test]
async fn time_does_not_run_backwards_after_a_recovery() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let ahead = Clock::new().now().plus_ms(3_600_000);
    let start = Start { now: ahead, id_prefix: "2026".into(), hash_seed: 1 };
    let engine = Engine::new(testing::settings(), start);
    let first = first_record(&engine, Outbox::default()).unwrap();
    let (opened, _) = start_new(&Disk::system(), &path, &settings(), &first).unwrap();
    drop(opened);
    let mut opened = super::opening::open(&Disk::system(), &path, &settings(), 7).unwrap();
    let (engine, _, now) = opened.take_state().unwrap();
    assert_eq!((engine.now(), now), (ahead, ahead));
    assert!(Clock::not_before(now).now() >= ahead);
}

#[tokio::test]
async fn refused_calls_of_unknown_sessions_take_no_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let world = TestJournal::new(&directory.path().join("journal"));
    let before = world.journal.status();
    for _ in 0..100 {
        let heartbeat = Input::HeartbeatSession { handle: "2026.7".into(), view: None };
        world.core.apply(heartbeat).unwrap_err();
    }
    world.core.flush();
    assert_eq!(world.journal.status().appended, before.appended);
    assert_eq!(before.appended, 1);
}

/// The journal that a cluster manager of the first version wrote: it acknowledged one of two notifications, made an
/// image, and then took requests, a release and a restart of nodes. Later versions must read it.
const FIRST_VERSION: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/journal/version_1");

#[test]
fn the_journal_of_the_first_version_is_read() {
    let storage = corona_journal::DiskStorage::look(Path::new(FIRST_VERSION)).unwrap();
    let mut reader = Reader::new(99);
    let found = corona_journal::show(&storage, |entry| Ok(reader.visit(entry)?)).unwrap();
    assert!(found.image > 0 && found.records > 3, "{found:?}");
    let mut engine = reader.finish().unwrap();
    engine.engine.audit().unwrap();
    assert_eq!(engine.outbox.len(), 1, "one was acknowledged, one was not");
    let Follower { engine, now, .. } = &mut engine;
    assert!(engine.is_running("2026.1") && engine.is_running("2026.2"));
    assert!(!engine.is_running("2026.3"));
    let tally = |engine: &Engine, handle: &str| {
        let session = engine.session_at(handle, *now).unwrap();
        let counts = &session.counts[ResourceType::Map].now;
        (counts.requested, counts.granted)
    };
    assert_eq!(tally(engine, "2026.1"), (3, 3));
    assert_eq!(tally(engine, "2026.2"), (9, 3));
    // It continues: free slots are granted, and a node restarts.
    while engine.wants_pass() {
        engine.apply(*now, Input::Pass).reply.unwrap();
    }
    let reply = engine.apply(*now, testing::heartbeat("n1", 2)).reply;
    assert_eq!(reply, Ok(corona_engine::Reply::NodeHeard { restart: true }));
    engine.audit().unwrap();
}

/// The journal that a cluster manager wrote whose queues have limits in resources: its values are in the sixth form.
/// After its image a limit was changed, and the first pool took a slot again that it had released: it has a minimum.
const SIXTH_FORM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/journal/form_6");

#[test]
fn the_journal_of_the_sixth_form_is_read() {
    let storage = corona_journal::DiskStorage::look(Path::new(SIXTH_FORM)).unwrap();
    let mut reader = Reader::new(99);
    let found = corona_journal::show(&storage, |entry| Ok(reader.visit(entry)?)).unwrap();
    assert!(found.image > 0 && found.records > 1, "{found:?}");
    let Follower { engine, now, .. } = reader.finish().unwrap();
    engine.audit().unwrap();
    let bytes = corona_engine::codec::encode(&engine.image()).unwrap();
    assert_eq!(bytes.first(), Some(&form::SIXTH));
    // The group may hold 900 MB, its first pool is guaranteed 600 of them, the second one may have 4 CPUs.
    let held = |engine: &Engine| {
        ["2026.1", "2026.2"].map(|handle| {
            engine.session_at(handle, now).unwrap().counts[ResourceType::Map].now.granted
        })
    };
    assert_eq!(held(&engine), [6, 3]);
    let pools = engine.pools();
    let limits = |pool: Option<&str>| {
        let view = pools.iter().find(|view| view.pool.as_deref() == pool).unwrap();
        [view.minimum_amounts.0[1], view.maximum_amounts.0[0], view.maximum_amounts.0[1]]
    };
    let no = u64::MAX;
    assert_eq!(limits(None), [0, no, 900]);
    assert_eq!([limits(Some("p")), limits(Some("q"))], [[600, no, no], [0, 4, no]]);
}

/// What happened to sessions.
#[derive(Default)]
struct Seen {
    states: usize,
    inputs: Vec<&'static str>,
    grants: usize,
}

impl crate::JournalWatcher for Seen {
    fn state(&mut self, engine: &Engine) {
        self.states += 1;
        assert_eq!(engine.session_count(), 0, "it begins with the oldest state");
    }

    fn input(&mut self, _: Millis, input: &Input, outcome: &Outcome) {
        let granted = outcome.effects.iter().map(|effect| match effect {
            Effect::Notify { notification: Notification::Granted(grants), .. } => grants.len(),
            _ => 0,
        });
        self.grants += granted.sum::<usize>();
        self.inputs.extend(match input {
            Input::StartSession { .. } => Some("start"),
            Input::EndSession { .. } => Some("end"),
            Input::RequestResources { .. } => Some("request"),
            Input::ReleaseResources { .. } => Some("release"),
            _ => None,
        });
    }
}

#[test]
fn a_journal_shows_everything_since_its_oldest_state() {
    let storage = corona_journal::DiskStorage::look(Path::new(FIRST_VERSION)).unwrap();
    let mut seen = Seen::default();
    let found = crate::watch_journal(&storage, &mut seen).unwrap();
    assert_eq!((found.image, seen.states), (0, 1), "{found:?}");
    let expected = ["start", "start", "start", "request", "end", "request", "release"];
    assert_eq!((&seen.inputs[..], seen.grants), (&expected[..], 8));
}
