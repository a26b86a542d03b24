//! Views of nodes and administrative calls about them.

use super::views::pieces;
use super::*;

fn clear(world: &mut TestEngine, node: &str, kind: Option<ResourceType>) -> Vec<ResourceType> {
    match world.run(Input::ClearBlacklist { node: node.into(), kind }) {
        Ok(Reply::BlacklistCleared { kinds }) => kinds,
        other => panic!("{other:?}"),
    }
}

/// A node of nine CPUs on which some sessions hold a map and a reduce slot. More than one complaint
/// of a kind blacklists it.
fn used_node(sessions: i32) -> TestEngine {
    let mut world = TestEngine::new(|settings| {
        settings.faults.failure_sessions = 1;
        settings.faults.failed_connection_sessions = 1;
    });
    world.node("n1", "h1", 9);
    for session in 1..=sessions {
        let handle = format!("2026.{session}");
        world.session(&handle, "g.p", [requests(1..=1, Map), requests(2..=2, Reduce)].concat());
    }
    world
}

#[test]
fn a_node_tells_what_runs_on_it_and_who_has_complained() {
    let mut world = used_node(3);
    let start = world.now;
    world.wait(500);
    world.blame("2026.1", "n1", &[Map], [6, 0]);
    world.wait(500);
    world.blame("2026.2", "n1", &[Map, Reduce], [7, 2]);
    // Neither counts: too few, and the same again.
    world.blame("2026.3", "n1", &[Map], [5, 1]);
    world.blame("2026.2", "n1", &[Map, Reduce], [8, 3]);

    let detail = world.engine.node_detail("n1").unwrap();
    assert_eq!(detail.node, world.engine.nodes()[0]);
    assert_eq!(detail.node.blacklisted, PerType([true, false, false]));
    let since = Some(Millis(start + 1_000));
    let faults = |failures, failed_connections, blacklisted_since| NodeFaults {
        failures,
        failed_connections,
        blacklisted_since,
    };
    assert_eq!(
        detail.faults,
        PerType([faults(2, 1, since), faults(1, 1, None), faults(0, 0, None)])
    );
    let complaint = |session: &str, at, kinds, failed, failed_connections| Complaint {
        session: session.into(),
        user: "user".into(),
        at: Millis(at),
        kinds: PerType(kinds),
        failed,
        failed_connections,
    };
    assert_eq!(
        detail.complaints,
        [
            complaint("2026.1", start + 500, [true, false, false], 6, 0),
            complaint("2026.2", start + 1_000, [true, true, false], 7, 2),
        ]
    );

    let take = |engine: &Engine, at| engine.node_grants_slice("n1", at, 2).unwrap();
    let mut rows = pieces(&mut world, take, |_| {});
    rows.sort_by(|a, b| (&a.session, a.id).cmp(&(&b.session, b.id)));
    let all: Vec<_> = rows.iter().map(|row| (&*row.session, row.id, row.kind, row.slots)).collect();
    assert_eq!(
        all,
        [
            ("2026.1", 1, Map, 1),
            ("2026.1", 2, Reduce, 1),
            ("2026.2", 1, Map, 1),
            ("2026.2", 2, Reduce, 1),
            ("2026.3", 1, Map, 1),
            ("2026.3", 2, Reduce, 1),
        ]
    );
    assert_eq!((&*rows[0].user, &rows[0].pool), ("user", &PoolName::new("g", "p")));
    assert_eq!(rows[0].granted_at, Millis(start));
    assert_eq!(world.engine.node_detail("n2"), None);
    assert_eq!(world.engine.node_grants_slice("n2", 0, 1), None);
}

#[test]
fn of_many_complaints_the_last_are_remembered() {
    let mut world = TestEngine::new(|settings| settings.faults.failure_sessions = 1_000);
    world.node("n1", "h1", 1_000);
    for session in 1..=100 {
        let handle = format!("2026.{session}");
        world.session(&handle, "g.p", requests(1..=1, Map));
        world.blame(&handle, "n1", &[Map], [6, 0]);
        world.end(&handle);
    }
    let detail = world.engine.node_detail("n1").unwrap();
    assert_eq!(detail.faults[Map].failures, 100);
    assert_eq!(detail.complaints.len(), 32);
    assert_eq!(&*detail.complaints[31].session, "2026.100");
}

#[test]
fn an_operator_lifts_a_blacklisting() {
    let mut world = used_node(4);
    for handle in ["2026.1", "2026.2"] {
        world.blame(handle, "n1", &[Map, Reduce], [6, 0]);
    }
    world.ask("2026.1", requests(11..=12, Map));
    assert_eq!(world.holds("2026.1", Map), 1, "the node is blacklisted");

    assert_eq!(clear(&mut world, "n2", None), [], "there is no such node");
    assert_eq!(clear(&mut world, "n1", Some(JobTracker)), [], "it is not blacklisted for that");
    assert_eq!(clear(&mut world, "n1", Some(Map)), [Map]);
    assert_eq!(world.holds("2026.1", Map), 3, "what waits is granted at once");
    let detail = world.engine.node_detail("n1").unwrap();
    assert_eq!(detail.node.blacklisted, PerType([false, true, false]));
    assert_eq!((detail.faults[Map], detail.faults[Reduce].failures), (NodeFaults::default(), 2));
    let kinds: Vec<_> = detail.complaints.iter().map(|complaint| complaint.kinds).collect();
    assert_eq!(kinds, [PerType([false, true, false]); 2]);

    // Sessions report totals, so those that were counted are not counted again.
    for handle in ["2026.1", "2026.2"] {
        world.blame(handle, "n1", &[Map], [60, 0]);
    }
    assert_eq!(world.engine.node_detail("n1").unwrap().faults[Map].failures, 0);
    for handle in ["2026.3", "2026.4"] {
        world.blame(handle, "n1", &[Map], [6, 0]);
    }
    assert_eq!(world.engine.nodes()[0].blacklisted, PerType([true, true, false]));
    assert_eq!(clear(&mut world, "n1", None), [Map, Reduce]);
    assert_eq!(world.engine.node_detail("n1").unwrap().complaints, []);
    world.run(Input::SetSafeMode { on: true }).unwrap();
    let refused = world.run(Input::ClearBlacklist { node: "n1".into(), kind: None });
    assert_eq!(refused, Err(Refusal::SafeMode));
}

#[test]
fn a_node_that_drains_is_granted_nothing_until_that_is_undone_or_it_has_left() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h1", 3);
    world.session("2026.1", "g.p", requests(1..=1, Map));
    world.drain("n2", true);
    world.drain("n1", true);
    world.ask("2026.1", requests(2..=2, Map));
    world.node("n1", "h1", 3);
    assert_eq!(world.holds("2026.1", Map), 1, "the grant stays, and no other one is made");
    let detail = world.engine.node_detail("n1").unwrap();
    assert!(detail.node.draining && !detail.node.is_usable(Map));
    let visitors: Vec<&str> = detail.visitors.iter().map(|it| &*it.session).collect();
    assert_eq!(visitors, ["2026.1"]);
    let restored = Engine::from_image(world.engine.image(), 7).unwrap();
    assert_eq!(restored.node_detail("n1"), Some(detail));

    world.drain("n1", false);
    assert_eq!(world.holds("2026.1", Map), 2, "what waits is granted at once");
    world.drain("n1", true);
    let names = vec!["n1".into()];
    world.run(Input::NodesEnded { host: "h1".into(), names }).unwrap();
    world.node("n1", "h1", 3);
    assert!(!world.engine.nodes()[0].draining);
    world.run(Input::SetSafeMode { on: true }).unwrap();
    let refused = world.run(Input::DrainNode { node: "n1".into(), on: true });
    assert_eq!(refused, Err(Refusal::SafeMode));
}

#[test]
fn a_node_whose_access_is_revoked_loses_its_work_at_once_and_serves_again_with_another_certificate()
{
    const FIRST: AccessId = AccessId(42);
    const OTHER: AccessId = AccessId(43);
    let mut world = TestEngine::new(|_| {});
    let show = |world: &mut TestEngine, node: &str, access| {
        world.run(Input::NodeAccess { node: node.into(), access }).unwrap();
    };
    let revoke = |world: &mut TestEngine, ids: &[AccessId]| {
        assert_eq!(world.run(Input::AccessRevoked { ids: ids.to_vec() }), Ok(Reply::Done));
    };
    show(&mut world, "unknown", Some(FIRST));
    for (node, access) in [("bad", Some(FIRST)), ("good", Some(OTHER)), ("plain", None)] {
        world.node(node, node, 1);
        show(&mut world, node, access);
    }
    assert_eq!(world.engine.node_accesses(), [FIRST, OTHER]);
    world.session("2026.1", "g.p", requests(1..=3, Map));
    world.told("2026.1");
    world.session("2026.2", "g.q", requests(1..=1, Map));

    revoke(&mut world, &[AccessId(41), FIRST]);
    assert_eq!(world.told("2026.1"), [Dead("bad".into())]);
    assert_eq!((world.told("2026.2"), world.holds("2026.1", Map)), (vec![], 2));
    // A heartbeat that was accepted a moment before changes nothing, and the others do not notice.
    world.node("bad", "bad", 1);
    show(&mut world, "bad", Some(FIRST));
    revoke(&mut world, &[FIRST]);
    assert_eq!((world.told("2026.1"), world.holds("2026.2", Map)), (vec![], 0));
    let detail = world.engine.node_detail("bad").unwrap();
    assert!(detail.node.revoked && !detail.node.is_usable(Map) && detail.visitors.is_empty());
    let others = world.engine.nodes().into_iter().filter(|node| node.revoked).count();
    assert_eq!((others, world.engine.node_accesses()), (1, vec![OTHER]));
    let restored = world.restored(corona_model::form::FOURTH);
    assert_eq!(restored.engine.node_detail("bad"), Some(detail));
    let kept: Vec<_> = world.engine.snapshot().nodes.into_iter().map(|node| node.name).collect();
    assert!(!kept.contains(&"bad".into()) && kept.len() == 2, "{kept:?}");

    show(&mut world, "bad", Some(AccessId(44)));
    assert_eq!(world.told("2026.2"), [Granted(vec![(1, "bad".into())])]);
    // Safe mode does not let it in.
    world.run(Input::SetSafeMode { on: true }).unwrap();
    revoke(&mut world, &[AccessId(44)]);
    assert!(world.engine.nodes()[0].revoked);
    world.run(Input::SetSafeMode { on: false }).unwrap();
    world.ask("2026.2", requests(2..=2, Map));
    assert_eq!(world.holds("2026.2", Map), 0);
    // It expires as any silent node.
    world.wait(world.engine.settings().node_expiry_ms + 1);
    assert_eq!(world.engine.node_access_of("bad"), None);
}

#[test]
fn slots_are_counted_on_the_nodes_that_serve_the_type() {
    let mut world = TestEngine::new(|_| {});
    let total = |world: &TestEngine| ResourceType::ALL.map(|kind| world.engine.slots(kind).total);
    let mut without = report("n1", "h1", 10);
    without.apps[JobTracker] = None;
    world.try_node(without.clone()).unwrap();
    assert_eq!(total(&world), [10, 10, 0]);
    world.node("n2", "h2", 3);
    assert_eq!(total(&world), [13, 13, 3]);
    world.session("2026.1", "g.p", requests(1..=9, JobTracker));
    assert_eq!(world.engine.slots(JobTracker), SlotCounts { total: 3, used: 3 });
    // As the Java cluster manager counts.
    assert_eq!(world.engine.slots_of_all_nodes(JobTracker), SlotCounts { total: 13, used: 3 });

    // It changes its size, then its services, and leaves.
    without.total.num_cpus = 12;
    world.try_node(without.clone()).unwrap();
    assert_eq!(total(&world), [15, 15, 3]);
    without.apps = PerType([None, Some("r:2".into()), Some("j:1".into())]);
    world.try_node(without).unwrap();
    assert_eq!(total(&world), [3, 15, 15]);
    world.run(Input::RestartNodes { force: false, batch_size: 10 }).unwrap();
    world.node("n1", "h1", 12);
    assert_eq!(total(&world), [3, 3, 3]);
}

fn late(world: &TestEngine) -> Vec<String> {
    let nodes = world.engine.nodes().into_iter().filter(|node| node.late);
    nodes.map(|node| node.name.to_string()).collect()
}

#[test]
fn silent_nodes_are_late_before_they_are_lost() {
    let mut world = TestEngine::new(|settings| {
        settings.node_late_ms = 1_000;
        settings.node_expiry_ms = 5_000;
    });
    assert_eq!(world.engine.oldest_heartbeat(), None);
    let start = world.now;
    world.node("n1", "h1", 1);
    world.wait(600);
    world.node("n2", "h2", 1);
    world.wait(400);
    assert_eq!(late(&world), [""; 0], "it was silent for as long as it may be");
    world.wait(1);
    assert_eq!(late(&world), ["n1"]);
    assert_eq!((world.engine.late_nodes(), world.engine.node_count()), (1, 2));
    assert_eq!(world.engine.oldest_heartbeat(), Some(Millis(start)));
    // It keeps getting grants.
    world.session("2026.1", "g.p", requests(1..=2, Map));
    assert_eq!(world.holds("2026.1", Map), 2);

    world.wait(600);
    assert_eq!(late(&world), ["n1", "n2"]);
    world.node("n1", "h1", 1);
    assert_eq!(late(&world), ["n2"]);
    world.wait(500);
    assert_eq!(late(&world), ["n2"], "it is counted from the last heartbeat");
    world.wait(60_000);
    assert_eq!((world.engine.late_nodes(), world.engine.node_count()), (0, 0));
    assert_eq!(world.told("2026.1").len(), 3, "the grants, and that both nodes are lost");
}

#[test]
fn drained_nodes_that_were_stopped_are_not_handed_over() {
    let mut world = TestEngine::new(|settings| settings.node_late_ms = 1_000);
    // The session has a slot of the only node, and keeps it.
    world.node("used", "h1", 1);
    world.session("2026.1", "g.p", requests(1..=1, Map));
    for (node, host) in [("lives", "h2"), ("silent", "h3"), ("stopped", "h4")] {
        world.node(node, host, 1);
    }
    for node in ["used", "lives", "stopped"] {
        world.drain(node, true);
    }
    world.wait(1_001);
    world.node("lives", "h2", 1);
    let names = |state: crate::snapshot::EngineState| {
        let mut names: Vec<_> = state.nodes.iter().map(|node| node.name.to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(world.engine.snapshot()), ["lives", "silent", "stopped", "used"]);
    assert_eq!(names(world.engine.handover()), ["lives", "silent", "used"]);
}

#[test]
fn that_a_node_is_late_and_on_time_again_is_recorded_once() {
    let mut world = TestEngine::new(|settings| settings.node_late_ms = 1_000);
    let records = |world: &mut TestEngine, ms: i64, input: Input| {
        world.now += ms;
        let outcome = world.engine.apply(Millis(world.now), input);
        assert_eq!(world.engine.audit(), Ok(()));
        let records = outcome.effects.into_iter().filter_map(|effect| match effect {
            Effect::Record(Record::NodeLate { name, silent_ms }) => {
                Some(format!("{name} late {silent_ms}"))
            }
            Effect::Record(Record::NodeOnTime { name }) => Some(format!("{name} on time")),
            _ => None,
        });
        records.collect::<Vec<_>>()
    };
    let heartbeat = || Input::HeartbeatNode { report: report("n1", "h1", 1), rack: None };
    assert_eq!(records(&mut world, 0, heartbeat()), [""; 0]);
    assert_eq!(records(&mut world, 1_000, Input::Tick), [""; 0]);
    assert_eq!(records(&mut world, 500, Input::Tick), ["n1 late 1500"]);
    assert_eq!(records(&mut world, 500, Input::Tick), [""; 0]);
    assert_eq!(records(&mut world, 0, heartbeat()), ["n1 on time"]);
    assert_eq!(records(&mut world, 0, heartbeat()), [""; 0]);
    // Pardoned silence and a heartbeat that is refused count as well.
    assert_eq!(records(&mut world, 1_500, Input::Tick), ["n1 late 1500"]);
    assert_eq!(records(&mut world, 0, Input::HeldUp { ms: 100 }), [""; 0]);
    assert_eq!(records(&mut world, 0, Input::HeldUp { ms: 400 }), ["n1 on time"]);
    assert_eq!(records(&mut world, 1, Input::Tick), ["n1 late 1001"]);
    let settings = Settings { node_late_ms: 1_001, ..Settings::clone(world.engine.settings()) };
    let settings = Input::SettingsChanged { settings: Box::new(settings) };
    assert_eq!(records(&mut world, 0, settings), ["n1 on time"]);
    assert_eq!(records(&mut world, 1, Input::Tick), ["n1 late 1002"]);
    // No heartbeat is accepted in safe mode, so no node is late after it.
    assert_eq!(records(&mut world, 0, Input::SetSafeMode { on: true }), [""; 0]);
    assert_eq!(records(&mut world, 9_000, Input::Tick), [""; 0]);
    assert_eq!(records(&mut world, 0, Input::SetSafeMode { on: false }), ["n1 on time"]);
}

#[test]
fn nodes_stay_in_the_order_of_their_heartbeats_when_silence_is_pardoned() {
    let mut world = TestEngine::new(|settings| settings.node_late_ms = 1_000);
    for number in 0..10 {
        world.node(&format!("n{number}"), "h", 1);
        world.wait(200);
    }
    // The books compare the order after each input.
    assert_eq!(world.engine.late_nodes(), 5);
    world.run(Input::HeldUp { ms: 500 }).unwrap();
    assert_eq!(late(&world), ["n0", "n1", "n2"]);
    world.wait(201);
    assert_eq!(late(&world), ["n0", "n1", "n2", "n3"]);
    world.run(Input::HeldUp { ms: i64::MAX }).unwrap();
    assert_eq!(late(&world), [""; 0]);
    world.wait(1_001);
    assert_eq!(world.engine.late_nodes(), 10);
}

#[test]
fn late_nodes_are_skipped_where_an_operator_wants_that() {
    let mut world = TestEngine::new(|settings| {
        settings.node_late_ms = 1_000;
        settings.skip_late_nodes = true;
    });
    world.start("2026.1", "g.p");
    for name in ["n1", "n2"] {
        world.node(name, name, 2);
    }
    world.ask("2026.1", requests(1..=1, Map));
    world.wait(600);
    world.node("n2", "n2", 2);
    world.wait(401);
    assert_eq!(late(&world), ["n1"]);
    world.told("2026.1");
    world.ask("2026.1", requests(2..=9, Map));
    let told = world.told("2026.1");
    assert_eq!(told.len(), 1);
    assert!(matches!(&told[0], Granted(of) if of.iter().all(|(_, on)| on == "n2")), "{told:?}");
    let view = &world.engine.nodes()[0];
    assert!(view.skipped && !view.is_usable(Map) && view.room(Map) > 0, "{view:?}");
    // Its earlier grants stay, and it is used again after its next heartbeat.
    let before = world.holds("2026.1", Map);
    world.node("n1", "n1", 2);
    assert_eq!(world.holds("2026.1", Map), 4);
    assert!(before < 4);

    // The setting can be turned off while nodes are late, and heartbeats can be refused.
    world.release("2026.1", &(1..=9).collect::<Vec<i32>>());
    world.wait(1_001);
    world.ask("2026.1", requests(11..=19, Map));
    assert_eq!((world.engine.late_nodes(), world.holds("2026.1", Map)), (2, 0));
    world.change(|settings| settings.skip_late_nodes = false);
    assert_eq!(world.holds("2026.1", Map), 4);
}

#[test]
fn a_refused_heartbeat_ends_lateness() {
    let mut world = TestEngine::new(|settings| {
        settings.node_late_ms = 1_000;
        settings.skip_late_nodes = true;
        let two = settings.partitioning.0.remove(&1).unwrap();
        settings.partitioning.0.insert(2, two);
    });
    world.node("n1", "h1", 2);
    world.start("2026.1", "g.p");
    world.wait(1_001);
    world.ask("2026.1", requests(1..=1, Map));
    assert_eq!((world.engine.late_nodes(), world.holds("2026.1", Map)), (1, 0));
    let refused = world.try_node(report("n1", "h1", 3));
    assert_eq!(refused, Err(Refusal::UnknownCpuCount { num_cpus: 3 }));
    assert_eq!((world.engine.late_nodes(), world.holds("2026.1", Map)), (0, 1));
}

#[test]
fn many_nodes_that_are_late_together_are_found_in_pieces() {
    let mut world = TestEngine::new(|settings| settings.node_late_ms = 1_000);
    let start = world.now;
    for number in 0..2_500 {
        let report = report(&format!("n{number}"), "h", 1);
        let input = Input::HeartbeatNode { report, rack: None };
        world.engine.apply(Millis(start), input).reply.unwrap();
    }
    world.now = start + 2_000;
    for expected in [1_000, 2_000, 2_500] {
        assert!(world.engine.next_deadline().unwrap() <= Millis(world.now));
        world.engine.apply(Millis(world.now), Input::Tick).reply.unwrap();
        assert_eq!(world.engine.late_nodes(), expected);
    }
    assert!(world.engine.next_deadline().unwrap() > Millis(world.now));
    assert_eq!(world.engine.audit(), Ok(()));
}

#[test]
fn nodes_that_are_lost_before_their_restart_leave_nothing_behind() {
    let mut world = TestEngine::new(|settings| settings.node_expiry_ms = 1_000);
    for number in 0..100 {
        world.node(&format!("n{number}"), "h", 1);
    }
    world.run(Input::RestartNodes { force: false, batch_size: 0 }).unwrap();
    // The books are looked at after each of them.
    world.wait(2_000);
    assert_eq!((world.engine.node_count(), world.engine.next_deadline()), (0, None));
}
