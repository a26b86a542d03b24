//! Why requests wait: a world for each reason, and what the engine says in it.

use super::settings::Hosts;
use super::tests::{World, cpus, pool, report, request, requests};
use super::types::{Millis, PoolName, ResourceType};
use super::{IdRange, Input, NodeUsageReport, WaitReason, WaitingRequests};

use ResourceType::{JobTracker, Map, Reduce};

const SESSION: &str = "2026.1";

fn explain(world: &World) -> Vec<WaitingRequests> {
    world.engine.explain(SESSION, Millis(world.now)).unwrap()
}

/// A world with a session and, on host `h1`, a node with so many slots of each type.
fn world(slots: i16, change: impl FnOnce(&mut super::settings::Settings)) -> World {
    let mut world = World::new(change);
    world.node("n1", "h1", slots);
    world.start(SESSION, "g.p");
    world
}

fn safe_mode() -> World {
    let mut world = world(0, |_| {});
    world.ask(SESSION, requests(1..=1, Map));
    world.run(Input::SetSafeMode { on: true }).unwrap();
    world
}

fn group_at_its_maximum() -> World {
    let mut world = world(4, |settings| {
        settings.pools.groups.entry("g".into()).or_default().maximum[Map] = 1;
        pool(settings, "g.p", |pool| pool.maximum[Map] = 1);
    });
    world.ask(SESSION, requests(1..=3, Map));
    world
}

fn pool_at_its_maximum() -> World {
    let mut world = world(4, |settings| pool(settings, "g.p", |pool| pool.maximum[Map] = 2));
    world.ask(SESSION, requests(1..=3, Map));
    world
}

fn no_node_serves_the_type() -> World {
    let mut world = World::new(|_| {});
    let mut without = report("n1", "h1", 4);
    without.apps[Reduce] = None;
    world.try_node(without).unwrap();
    world.start(SESSION, "g.p");
    world.ask(SESSION, requests(1..=1, Reduce));
    world
}

fn no_free_slot() -> World {
    let mut world = world(2, |_| {});
    world.start("2026.2", "g.p");
    world.start("2026.3", "g.other");
    world.ask("2026.3", requests(1..=2, Map));
    world.ask("2026.2", requests(1..=2, Map));
    world.start_with("2026.0", "g.p", |info| info.name = "0".into()).unwrap();
    world.ask("2026.0", requests(1..=2, Map));
    world.ask(SESSION, requests(1..=2, Map));
    world
}

fn nodes_that_may_not_be_used() -> World {
    let mut world = world(1, |settings| {
        settings.reserved_memory_mb = 10;
        settings.faults.failure_sessions = 0;
    });
    for (name, memory_mb) in [("poor", 9), ("bad", 10), ("out", 10)] {
        let mut node = report(name, name, 1);
        node.free = Some(super::types::ComputeSpecs {
            memory_mb: Some(memory_mb),
            ..super::types::ComputeSpecs::default()
        });
        world.try_node(node).unwrap();
    }
    // The session must have used a node before it may blame it.
    world.ask(SESSION, vec![request(1, Map, &["bad"])]);
    let reports =
        vec![NodeUsageReport { node_name: "bad".into(), failed: 99, failed_connections: 0 }];
    world.run(Input::NodeFeedback { handle: SESSION.into(), kinds: vec![Map], reports }).unwrap();
    world.release(SESSION, &[1]);
    let hosts = Hosts { include: Default::default(), exclude: ["out".into()].into() };
    world.run(Input::HostsChanged { hosts }).unwrap();
    world.ask(SESSION, requests(2..=2, Map));
    world
}

fn several_reasons_of_one_type() -> World {
    let mut world = world(3, |settings| {
        settings.scheduling.node_locality_wait_ms[Map] = 5_000;
        settings.scheduling.rack_locality_wait_ms[Map] = 5_000;
    });
    let far = |id| request(id, Map, &["far", "away"]);
    let mut excluding = request(7, Map, &[]);
    excluding.exclude_hosts = vec!["h1".into(), "h1".into(), "unknown".into()];
    let large = cpus(request(9, Map, &[]), 4);
    world.ask(SESSION, vec![far(2), far(1), far(3), far(6), excluding, large]);
    world
}

fn before_the_next_pass() -> World {
    let mut world = world(3, |_| {});
    let handle = SESSION.into();
    let requests = requests(1..=2, JobTracker);
    world.apply(Input::RequestResources { handle, requests, racks: Vec::new() }).unwrap();
    world
}

#[test]
fn each_reason_is_named() {
    let pool = PoolName::new("g", "p");
    let near = WaitReason::NearNode {
        until: Millis(6_001),
        hosts: vec!["away".into(), "far".into()],
        host_count: 2,
    };
    type Explained = (ResourceType, Vec<(i32, i32)>, u64, WaitReason);
    let cases: Vec<(World, Vec<Explained>)> = vec![
        (safe_mode(), vec![(Map, vec![(1, 1)], 1, WaitReason::SafeMode)]),
        (
            group_at_its_maximum(),
            vec![(
                Map,
                vec![(2, 3)],
                2,
                WaitReason::GroupAtMaximum { group: "g".into(), granted: 1, maximum: 1 },
            )],
        ),
        (
            pool_at_its_maximum(),
            vec![(
                Map,
                vec![(2, 2)],
                1,
                WaitReason::PoolAtMaximum { pool: pool.clone(), granted: 2, maximum: 2 },
            )],
        ),
        (no_node_serves_the_type(), vec![(Reduce, vec![(1, 1)], 1, WaitReason::NotServed)]),
        (
            nodes_that_may_not_be_used(),
            vec![(
                Map,
                vec![(2, 2)],
                1,
                WaitReason::NodesUnusable { blacklisted: 1, excluded: 1, below_reserve: 2 },
            )],
        ),
        (
            several_reasons_of_one_type(),
            vec![
                (Map, vec![(1, 3), (6, 6)], 4, near),
                (Map, vec![(7, 7)], 1, WaitReason::HostsExcluded { nodes: 1 }),
                (Map, vec![(9, 9)], 1, WaitReason::TooLarge { need: 4, most_free: 3 }),
            ],
        ),
        (
            before_the_next_pass(),
            vec![(JobTracker, vec![(1, 2)], 2, WaitReason::NextPass { sessions_ahead: 0 })],
        ),
    ];
    for (world, expected) in cases {
        let expected: Vec<WaitingRequests> = expected
            .into_iter()
            .map(|(kind, ids, count, reason)| {
                let ids = ids.into_iter().map(|(first, last)| IdRange { first, last }).collect();
                WaitingRequests { kind, ids, count, reason }
            })
            .collect();
        assert_eq!(explain(&world), expected);
    }
}

#[test]
fn a_full_cluster_is_told_with_the_shares() {
    let explained = explain(&no_free_slot());
    let [WaitingRequests { kind: Map, count: 2, reason, .. }] = &explained[..] else {
        panic!("{explained:?}");
    };
    let WaitReason::NoFreeSlot { used, total, pool_granted, pool_share, sessions_ahead, .. } =
        reason
    else {
        panic!("{reason:?}");
    };
    assert_eq!((*used, *total, *pool_granted, *sessions_ahead), (2, 2, 0, 1));
    assert!((0.9..=1.0).contains(pool_share), "{pool_share}");
    let text = reason.to_string();
    assert!(text.starts_with("no free slot: 2 of 2 are in use; pool g.p has 0"), "{text}");
}

#[test]
fn waits_that_are_over_and_sessions_that_want_nothing() {
    let mut world = several_reasons_of_one_type();
    // The wait is over, but nobody has sent the tick.
    world.now += 10_000;
    let near = explain(&world).remove(0);
    assert_eq!(near.reason, WaitReason::NextPass { sessions_ahead: 0 });
    assert_eq!(world.engine.explain("2026.9", Millis(0)), None);
    world.release(SESSION, &[1, 2, 3, 6, 7, 9]);
    assert_eq!(explain(&world), []);
}
