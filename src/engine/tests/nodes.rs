//! What can be seen of nodes and done about them.

use super::*;

fn blame(world: &mut World, handle: &str, kinds: &[ResourceType], failed: i32, connections: i32) {
    let report =
        NodeUsageReport { node_name: "n1".into(), failed, failed_connections: connections };
    let (kinds, reports) = (kinds.to_vec(), vec![report]);
    world.run(Input::NodeFeedback { handle: handle.into(), kinds, reports }).unwrap();
}

fn clear(world: &mut World, node: &str, kind: Option<ResourceType>) -> Vec<ResourceType> {
    match world.run(Input::ClearBlacklist { node: node.into(), kind }) {
        Ok(Reply::BlacklistCleared { kinds }) => kinds,
        other => panic!("{other:?}"),
    }
}

/// A node of nine CPUs on which some sessions hold a map and a reduce slot. More than one complaint
/// of a kind blacklists it.
fn used_node(sessions: i32) -> World {
    let mut world = World::new(|settings| {
        settings.faults.failure_sessions = 1;
        settings.faults.failed_connection_sessions = 1;
    });
    world.node("n1", "h1", 9);
    for session in 1..=sessions {
        let handle = format!("2026.{session}");
        world.start(&handle, "g.p");
        world.ask(&handle, [requests(1..=1, Map), requests(2..=2, Reduce)].concat());
    }
    world
}

#[test]
fn a_node_tells_what_runs_on_it_and_who_has_complained() {
    let mut world = used_node(3);
    let start = world.now;
    world.wait(500);
    blame(&mut world, "2026.1", &[Map], 6, 0);
    world.wait(500);
    blame(&mut world, "2026.2", &[Map, Reduce], 7, 2);
    // Neither counts: too few, and the same again.
    blame(&mut world, "2026.3", &[Map], 5, 1);
    blame(&mut world, "2026.2", &[Map, Reduce], 8, 3);

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

    let mut rows = Vec::new();
    let mut from = Some(0);
    while let Some(place) = from {
        let piece = world.engine.node_grants_slice("n1", place, 2).unwrap();
        rows.extend(piece.rows);
        from = piece.next;
    }
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
    let mut world = World::new(|settings| settings.faults.failure_sessions = 1_000);
    world.node("n1", "h1", 1_000);
    for session in 1..=100 {
        let handle = format!("2026.{session}");
        world.start(&handle, "g.p");
        world.ask(&handle, requests(1..=1, Map));
        blame(&mut world, &handle, &[Map], 6, 0);
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
        blame(&mut world, handle, &[Map, Reduce], 6, 0);
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

    // What sessions report are totals, so those that were counted are not counted again.
    for handle in ["2026.1", "2026.2"] {
        blame(&mut world, handle, &[Map], 60, 0);
    }
    assert_eq!(world.engine.node_detail("n1").unwrap().faults[Map].failures, 0);
    for handle in ["2026.3", "2026.4"] {
        blame(&mut world, handle, &[Map], 6, 0);
    }
    assert_eq!(world.engine.nodes()[0].blacklisted, PerType([true, true, false]));
    assert_eq!(clear(&mut world, "n1", None), [Map, Reduce]);
    assert_eq!(world.engine.node_detail("n1").unwrap().complaints, []);
    world.run(Input::SetSafeMode { on: true }).unwrap();
    let refused = world.run(Input::ClearBlacklist { node: "n1".into(), kind: None });
    assert_eq!(refused, Err(Refusal::SafeMode));
}

#[test]
fn slots_are_counted_on_the_nodes_that_serve_the_type() {
    let mut world = World::new(|_| {});
    let total = |world: &World| ResourceType::ALL.map(|kind| world.engine.slots(kind).total);
    let mut without = report("n1", "h1", 10);
    without.apps[JobTracker] = None;
    world.try_node(without.clone()).unwrap();
    assert_eq!(total(&world), [10, 10, 0]);
    world.node("n2", "h2", 3);
    assert_eq!(total(&world), [13, 13, 3]);
    world.start("2026.1", "g.p");
    world.ask("2026.1", requests(1..=9, JobTracker));
    assert_eq!(world.engine.slots(JobTracker), SlotCounts { total: 3, used: 3 });
    // What the Java cluster manager counts.
    assert_eq!(world.engine.slots_of_all_nodes(JobTracker), SlotCounts { total: 13, used: 3 });

    // It changes its size, then what it serves, and goes.
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
