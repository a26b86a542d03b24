//! Why requests wait: a situation for each row, and the engine's explanation.

use super::settings::{PoolSettings, SchedulingMode, Settings};
use super::testing;
use super::tests::{TestEngine, cpus, pool, report, request, requests};
use super::types::{
    ComputeSpecs, Millis, NodeReport, PoolName, ResourceRequest, ResourceType, SessionPriority,
};
use super::{
    IdRange, Input, Precedence, Rivals, Starvation, Unusable, WaitReason, WaitingRequests,
};

use ResourceType::{JobTracker, Map, Reduce};

/// The session that asks why it waits.
const SESSION: &str = "2026.50";
/// One that started before it.
const EARLIER: &str = "2026.1";

fn explain(world: &TestEngine) -> Vec<WaitingRequests> {
    world.engine.explain(SESSION, Millis(world.now)).unwrap()
}

/// Nodes `n1`, `n2`, ... on hosts `h1`, `h2`, ..., each with so many slots of each type.
fn nodes(cpus: &[i16], change: impl FnOnce(&mut Settings)) -> TestEngine {
    let mut world = TestEngine::new(change);
    for (number, cpus) in (1..).zip(cpus) {
        world.node(&format!("n{number}"), &format!("h{number}"), *cpus);
    }
    world
}

/// A session of the pool that asks for so many maps.
fn asks(world: &mut TestEngine, handle: &str, pool: &str, maps: i32) {
    world.session(handle, pool, requests(1..=maps, Map));
}

fn exclude_hosts(world: &mut TestEngine, hosts: &[&str]) {
    world.exclude(hosts);
    // Nodes on hosts that are allowed again serve from their next heartbeat on.
    for node in world.engine.nodes() {
        let report = world.engine.last_report(&node.name).unwrap();
        world.try_node(report).unwrap();
    }
}

/// Blacklists the node of this number for maps: a session that has used it blames it.
fn blacklist(world: &mut TestEngine, number: i32) {
    let (name, host) = (format!("n{number}"), format!("h{number}"));
    world.session("2026.0", "g.blamer", vec![request(99, Map, &[&host])]);
    world.blame("2026.0", &name, &[Map], [99, 0]);
    world.end("2026.0");
}

/// One session is enough to blacklist a node.
fn easily_blacklisted(settings: &mut Settings) {
    settings.faults.failure_sessions = 0;
}

fn late_nodes_are_skipped(settings: &mut Settings) {
    settings.node_late_ms = 1_000;
    settings.skip_late_nodes = true;
}

fn excluding(mut request: ResourceRequest, hosts: &[&str]) -> ResourceRequest {
    request.exclude_hosts = hosts.iter().map(|host| (*host).into()).collect();
    request
}

fn locality_waits(node_ms: i64, rack_ms: i64) -> impl FnOnce(&mut Settings) {
    move |settings| {
        settings.scheduling.node_locality_wait_ms[Map] = node_ms;
        settings.scheduling.rack_locality_wait_ms[Map] = rack_ms;
    }
}

/// A node with so much memory left.
fn with_memory(name: &str, host: &str, cpus: i16, memory_mb: i32) -> NodeReport {
    let mut node = report(name, host, cpus);
    node.free = Some(ComputeSpecs { memory_mb: Some(memory_mb), ..ComputeSpecs::default() });
    node
}

/// A node with little memory left.
fn poor(name: &str, cpus: i16) -> NodeReport {
    with_memory(name, name, cpus, 9)
}

fn node_without_reduces(world: &mut TestEngine, name: &str) {
    let mut without = report(name, name, 4);
    without.apps[Reduce] = None;
    world.try_node(without).unwrap();
}

fn reason_name(reason: &WaitReason) -> &'static str {
    match reason {
        WaitReason::SafeMode => "safe mode",
        WaitReason::NotServed { .. } => "not served",
        WaitReason::GroupAtMaximum { .. } => "group at maximum",
        WaitReason::PoolAtMaximum { .. } => "pool at maximum",
        WaitReason::SessionsAtMaximum { .. } => "sessions at maximum",
        WaitReason::UserAtMaximum { .. } => "user at maximum",
        WaitReason::AboveMaximum { .. } => "above maximum",
        WaitReason::AmountsReserved { .. } => "resources reserved",
        WaitReason::Reserved { .. } => "reserved",
        WaitReason::NodesUnusable(_) => "nodes unusable",
        WaitReason::NoFreeSlot { .. } => "no free slot",
        WaitReason::TooLarge { .. } => "too large",
        WaitReason::TooLittle { .. } => "too little",
        WaitReason::HostsExcluded { .. } => "hosts excluded",
        WaitReason::NearNode { .. } => "near node",
        WaitReason::NextPass { .. } => "next pass",
    }
}

/// The situation, its world, and for each group of requests: their number, the reason, and the
/// text.
type Situation = (&'static str, fn() -> TestEngine, &'static [(u64, &'static str, &'static str)]);

const SITUATIONS: &[Situation] = &[
    (
        "the pool has a maximum",
        || {
            let mut world = nodes(&[8], |s| pool(s, "g.p", |p| p.maximum[Map] = 3));
            asks(&mut world, SESSION, "g.p", 10);
            world
        },
        &[(
            7,
            "pool at maximum",
            "pool g.p holds 3 grants, its maximum; this session is next in the pool",
        )],
    ),
    (
        "a maximum counts grants, however many slots each takes",
        || {
            let mut world = nodes(&[8], |s| pool(s, "g.p", |p| p.maximum[Map] = 3));
            world.start(SESSION, "g.p");
            let two_cpus = requests(1..=10, Map).into_iter().map(|request| cpus(request, 2));
            world.ask(SESSION, two_cpus.collect());
            world
        },
        &[(
            7,
            "pool at maximum",
            "pool g.p holds 3 grants, its maximum; this session is next in the pool",
        )],
    ),
    (
        "another session of a pool at its maximum comes first",
        || {
            let mut world = nodes(&[8], |s| pool(s, "g.p", |p| p.maximum[Map] = 1));
            asks(&mut world, EARLIER, "g.p", 2);
            world.now += 1;
            asks(&mut world, SESSION, "g.p", 1);
            world
        },
        &[(
            1,
            "pool at maximum",
            "pool g.p holds 1 grant, its maximum; session 2026.1 of the same pool comes first \
             (started earlier)",
        )],
    ),
    (
        "the maximum was lowered below what the pool holds",
        || {
            let mut world = nodes(&[8], |_| {});
            asks(&mut world, SESSION, "g.p", 5);
            world.change(|settings| pool(settings, "g.p", |p| p.maximum[Map] = 2));
            world.ask(SESSION, requests(6..=6, Map));
            world
        },
        &[(
            1,
            "pool at maximum",
            "pool g.p holds 5 grants, more than its maximum of 2; this session is next in the pool",
        )],
    ),
    (
        "the pool may have nothing",
        || {
            let mut world = nodes(&[8], |s| pool(s, "g.p", |p| p.maximum[Map] = 0));
            asks(&mut world, SESSION, "g.p", 2);
            world
        },
        &[(2, "pool at maximum", "pool g.p may hold no MAP grants: they can never be served")],
    ),
    (
        "the group has a maximum, and a pool of it with a higher priority waits as well",
        || {
            let mut world = nodes(&[8], |settings| {
                settings.pools.groups.entry("g".into()).or_default().maximum[Map] = 2;
                pool(settings, "g.q", |p| p.priority = 5);
            });
            asks(&mut world, EARLIER, "g.q", 3);
            asks(&mut world, SESSION, "g.p", 2);
            world
        },
        &[(
            2,
            "group at maximum",
            "group g holds 2 grants, its maximum; pool g.q comes first (higher priority)",
        )],
    ),
    (
        "all slots are in use, and sessions of the pool come first",
        || {
            let mut world = nodes(&[2], |_| {});
            asks(&mut world, "2026.2", "g.p", 3);
            world.now += 1;
            asks(&mut world, SESSION, "g.p", 4);
            world.now += 1;
            world
                .start_with("2026.9", "g.p", |info| info.priority = Some(SessionPriority::High))
                .unwrap();
            world.ask("2026.9", requests(1..=1, Map));
            world
        },
        &[(
            4,
            "no free slot",
            "all 2 slots are in use; pool g.p holds 2 grants, its share is 2.0; 2 sessions of the \
             same pool come first: 2026.9 (higher priority) and 2026.2 (started earlier)",
        )],
    ),
    (
        "only the first few of those that come first are named",
        || {
            let mut world = nodes(&[1], |_| {});
            for number in 1..=9 {
                asks(&mut world, &format!("2026.{number}"), "g.p", 1);
                world.now += 1;
            }
            asks(&mut world, SESSION, "g.p", 1);
            world
        },
        &[(
            1,
            "no free slot",
            "the only slot is in use; pool g.p holds 1 grant, its share is 1.0; 8 sessions of the \
             same pool come first: 2026.2, 2026.3, 2026.4 (started earlier) and 5 more",
        )],
    ),
    (
        "the pool shares its slots fairly",
        || {
            let fair = |p: &mut PoolSettings| p.mode = Some(SchedulingMode::Fair);
            let mut world = nodes(&[1], |s| pool(s, "g.p", fair));
            asks(&mut world, SESSION, "g.p", 2);
            world.now += 1;
            asks(&mut world, "2026.60", "g.p", 1);
            world
        },
        &[(
            1,
            "no free slot",
            "the only slot is in use; pool g.p holds 1 grant, its share is 1.0; session 2026.60 of \
             the same pool comes first (fewer grants)",
        )],
    ),
    (
        "the pool goes by deadlines",
        || {
            let by_deadline = |p: &mut PoolSettings| p.mode = Some(SchedulingMode::Deadline);
            let mut world = nodes(&[1], |s| pool(s, "g.p", by_deadline));
            asks(&mut world, SESSION, "g.p", 2);
            world.start_with("2026.60", "g.p", |info| info.deadline = Some(5)).unwrap();
            world.ask("2026.60", requests(1..=1, Map));
            world
        },
        &[(
            1,
            "no free slot",
            "the only slot is in use; pool g.p holds 1 grant, its share is 1.0; session 2026.60 of \
             the same pool comes first (earlier deadline)",
        )],
    ),
    (
        "another pool of the group has a higher priority, holds everything and waits for more",
        || {
            let mut world = nodes(&[2], |s| pool(s, "g.high", |p| p.priority = 3));
            asks(&mut world, EARLIER, "g.high", 5);
            asks(&mut world, SESSION, "g.p", 1);
            world
        },
        &[(
            1,
            "no free slot",
            "all 2 slots are in use; pool g.p holds no grants and is due none at present; pool \
             g.high holds 2 (higher priority); pool g.high comes first (higher priority)",
        )],
    ),
    (
        "a pool of the group is below its minimum",
        || {
            let mut world = nodes(&[2], |s| pool(s, "g.min", |p| p.minimum[Map] = 2));
            asks(&mut world, "2026.2", "g.x", 2);
            asks(&mut world, EARLIER, "g.min", 2);
            asks(&mut world, SESSION, "g.p", 1);
            world
        },
        &[(
            1,
            "no free slot",
            "all 2 slots are in use; pool g.p holds no grants and is due none at present; pool g.x \
             holds 2; pool g.min comes first (below its minimum)",
        )],
    ),
    (
        "another pool holds its minimum, which is everything",
        || {
            let mut world = nodes(&[6], |s| pool(s, "g.min", |p| p.minimum[Map] = 6));
            asks(&mut world, EARLIER, "g.min", 6);
            asks(&mut world, SESSION, "g.p", 5);
            world
        },
        &[(
            5,
            "no free slot",
            "all 6 slots are in use; pool g.p holds no grants and is due none at present; pool g.min \
             holds 6 (guaranteed by its minimum of 6); this session is next",
        )],
    ),
    (
        "another group holds its minimum, which is everything",
        || {
            let mut world = nodes(&[6], |settings| {
                settings.pools.groups.entry("big".into()).or_default().minimum[Map] = 6;
            });
            asks(&mut world, EARLIER, "big.a", 7);
            asks(&mut world, SESSION, "g.p", 1);
            world
        },
        &[(
            1,
            "no free slot",
            "all 6 slots are in use; pool g.p holds no grants and is due none at present; pool big.a \
             holds 6 (its group's minimum is 6); this session is next",
        )],
    ),
    (
        "a group is below its minimum",
        || {
            let mut world = nodes(&[2], |settings| {
                settings.pools.groups.entry("big".into()).or_default().minimum[Map] = 2;
            });
            asks(&mut world, "2026.2", "x.y", 2);
            asks(&mut world, EARLIER, "big.a", 1);
            asks(&mut world, SESSION, "g.p", 1);
            world
        },
        &[(
            1,
            "no free slot",
            "all 2 slots are in use; pool g.p holds no grants, its share is 0.5; pool x.y holds 2; \
             group big comes first (below its minimum)",
        )],
    ),
    (
        "the pool is below its minimum, and a preemption is coming",
        || {
            let mut world = nodes(&[4], |s| pool(s, "g.p", |p| p.minimum[Map] = 4));
            asks(&mut world, EARLIER, "g.x", 8);
            asks(&mut world, SESSION, "g.p", 5);
            world.wait(150_000);
            world
        },
        &[(
            5,
            "no free slot",
            "all 4 slots are in use; pool g.p holds no grants, its share is 4.0, its minimum is 4; \
             it is below its minimum, and preemption for it is due in 30 s; pool g.x holds 4; this \
             session is next",
        )],
    ),
    (
        "the pool is below its share, and a preemption is coming",
        || {
            let mut world = nodes(&[4], |_| {});
            asks(&mut world, EARLIER, "g.x", 8);
            asks(&mut world, SESSION, "g.p", 5);
            world.wait(100_000);
            world
        },
        &[(
            5,
            "no free slot",
            "all 4 slots are in use; pool g.p holds no grants, its share is 2.0; it is below its \
             share, and preemption for it is due in 3 min 20 s; pool g.x holds 4; this session is \
             next",
        )],
    ),
    (
        "the pool is below its share, but nothing can be preempted",
        || {
            let mut world = nodes(&[4], |s| pool(s, "g.x", |p| p.preemptable = false));
            asks(&mut world, EARLIER, "g.x", 8);
            asks(&mut world, SESSION, "g.p", 5);
            world
        },
        &[(
            5,
            "no free slot",
            "all 4 slots are in use; pool g.p holds no grants, its share is 2.0; it is below its \
             share, but no grant can be preempted for it; pool g.x holds 4; this session is next",
        )],
    ),
    (
        "many pools hold the slots",
        || {
            let mut world = nodes(&[9], |_| {});
            for (number, maps) in [(1, 1), (2, 2), (3, 1), (4, 3), (5, 2)] {
                asks(&mut world, &format!("2026.{number}"), &format!("x.p{number}"), maps);
            }
            asks(&mut world, SESSION, "g.p", 1);
            world
        },
        &[(
            1,
            "no free slot",
            "all 9 slots are in use; pool g.p holds no grants, its share is 1.0; pool x.p4 holds 3, \
             pool x.p2 holds 2, pool x.p5 holds 2 and 2 more pools hold 2; this session is next",
        )],
    ),
    (
        "a node is free, but the session still waits for a preferred host",
        || {
            let mut world = nodes(&[2, 2], locality_waits(4_000, 8_000));
            world.start(SESSION, "g.p");
            world.ask(SESSION, vec![request(1, Map, &["far"]), request(2, Map, &["far"])]);
            world.now += 1_500;
            world
        },
        &[(2, "near node", "they wait another 3 s for a slot on far")],
    ),
    (
        "several hosts are preferred",
        || {
            let mut world = nodes(&[2], locality_waits(4_000, 8_000));
            world.start(SESSION, "g.p");
            let hosts: Vec<String> = (1..=11).map(|number| format!("far{number:02}")).collect();
            let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
            world.ask(SESSION, vec![request(1, Map, &hosts)]);
            world
        },
        &[(
            1,
            "near node",
            "it waits another 5 s for a slot on far01, far02, far03, far04, far05, far06, far07, \
             far08 or 3 other hosts",
        )],
    ),
    (
        "the cluster is full, and the session still waits for a preferred host",
        || {
            let mut world = nodes(&[1], locality_waits(4_000, 8_000));
            asks(&mut world, EARLIER, "g.p", 1);
            world.session(SESSION, "g.p", vec![request(1, Map, &["far"])]);
            world
        },
        &[(
            1,
            "no free slot",
            "the only slot is in use; pool g.p holds 1 grant, its share is 1.0; this session is \
             next for slots on preferred hosts",
        )],
    ),
    (
        "the wait for a preferred host ends after the node wait, the rack wait being longer",
        || {
            let mut world = nodes(&[2], locality_waits(4_000, 8_000));
            world.session(SESSION, "g.p", vec![request(1, Map, &["far"])]);
            world.wait(4_001);
            world
        },
        &[],
    ),
    (
        "a node wait without a rack wait is no wait",
        || {
            let mut world = nodes(&[2], locality_waits(8_000, 0));
            world.session(SESSION, "g.p", vec![request(1, Map, &["far"])]);
            world
        },
        &[],
    ),
    (
        "the only node is blacklisted for the type",
        || {
            let mut world = nodes(&[2], easily_blacklisted);
            blacklist(&mut world, 1);
            asks(&mut world, SESSION, "g.p", 2);
            world.ask(SESSION, vec![request(3, Reduce, &[])]);
            world
        },
        &[(2, "nodes unusable", "the only node that serves MAP is blacklisted")],
    ),
    (
        "a blacklisted node has room, and the others are full",
        || {
            let mut world = nodes(&[2, 3], easily_blacklisted);
            blacklist(&mut world, 1);
            asks(&mut world, SESSION, "g.p", 4);
            world
        },
        &[(
            1,
            "no free slot",
            "all 3 slots are in use; 2 more slots are free on 1 blacklisted node; pool g.p holds 3 \
             grants, its share is 3.0; this session is next",
        )],
    ),
    (
        "safe mode is on",
        || {
            let mut world = nodes(&[], |_| {});
            asks(&mut world, SESSION, "g.p", 1);
            world.run(Input::SetSafeMode { on: true }).unwrap();
            world
        },
        &[(1, "safe mode", "safe mode is on")],
    ),
    (
        "the session was redirected into a pool at its maximum",
        || {
            let mut world = nodes(&[4], |settings| {
                let (old, new) = (PoolName::new("g", "old"), PoolName::new("g", "new"));
                settings.scheduling.redirects.insert(old, new);
                pool(settings, "g.new", |p| p.maximum[Map] = 1);
            });
            asks(&mut world, SESSION, "g.old", 3);
            world
        },
        &[(
            2,
            "pool at maximum",
            "pool g.new (the session asked for g.old) holds 1 grant, its maximum; this session is \
             next in the pool",
        )],
    ),
    (
        "the session was redirected into another group, which is at its maximum",
        || {
            let mut world = nodes(&[4], |settings| {
                let (old, new) = (PoolName::new("g", "old"), PoolName::new("new", "p"));
                settings.scheduling.redirects.insert(old, new);
                settings.pools.groups.entry("new".into()).or_default().maximum[Map] = 1;
            });
            asks(&mut world, SESSION, "g.old", 3);
            world
        },
        &[(
            2,
            "group at maximum",
            "group new (the session asked for g.old) holds 1 grant, its maximum; this session is \
             next in the group",
        )],
    ),
    (
        "the session was redirected, and the cluster is full",
        || {
            let mut world = nodes(&[1], |settings| {
                let (old, new) = (PoolName::new("g", "old"), PoolName::new("g", "new"));
                settings.scheduling.redirects.insert(old, new);
            });
            asks(&mut world, SESSION, "g.old", 2);
            world
        },
        &[(
            1,
            "no free slot",
            "the only slot is in use; pool g.new (the session asked for g.old) holds 1 grant, its \
             share is 1.0; this session is next",
        )],
    ),
    (
        "the name of the pool is not legal",
        || {
            let mut world = nodes(&[1], |_| {});
            asks(&mut world, SESSION, "Nightly Jobs.x", 2);
            world
        },
        &[(
            1,
            "no free slot",
            "the only slot is in use; pool default.defaultpool (the session asked for Nightly \
             Jobs.x) holds 1 grant, its share is 1.0; this session is next",
        )],
    ),
    (
        "the requests exclude all hosts",
        || {
            let mut world = nodes(&[2, 2], |_| {});
            world.start(SESSION, "g.p");
            let each = |id| excluding(request(id, Map, &[]), &["h1", "h2", "unknown", "h1"]);
            world.ask(SESSION, vec![each(1), each(2)]);
            world
        },
        &[(
            2,
            "hosts excluded",
            "they exclude the hosts of all 2 nodes that could serve them: they can never be served",
        )],
    ),
    (
        "a request excludes the only host, which is also full",
        || {
            let mut world = nodes(&[1], |_| {});
            asks(&mut world, EARLIER, "g.p", 1);
            world.session(SESSION, "g.p", vec![excluding(request(1, Map, &[]), &["h1"])]);
            world
        },
        &[(
            1,
            "hosts excluded",
            "it excludes the host of the only node that could serve it: it can never be served",
        )],
    ),
    (
        "a request excludes the host with room, and the other node is full",
        || {
            let mut world = nodes(&[2, 2], |_| {});
            world.session(EARLIER, "g.p", vec![request(1, Map, &["h2"]), request(2, Map, &["h2"])]);
            world.session(SESSION, "g.p", vec![excluding(request(1, Map, &[]), &["h1"])]);
            world
        },
        &[(
            1,
            "hosts excluded",
            "it excludes the host of the only node with room; 1 other node is full",
        )],
    ),
    (
        "requests exclude the hosts with room, and the other nodes are full or may not be used",
        || {
            let mut world = nodes(&[1, 1, 1, 1, 1], |settings| {
                settings.reserved_memory_mb = 10;
                easily_blacklisted(settings);
            });
            for number in 1..=5 {
                let node = with_memory(&format!("n{number}"), &format!("h{number}"), 1, 10);
                world.try_node(node).unwrap();
            }
            world.session(EARLIER, "g.p", vec![request(1, Map, &["h3"]), request(2, Map, &["h4"])]);
            blacklist(&mut world, 5);
            world.start(SESSION, "g.p");
            let each = |id| excluding(request(id, Map, &[]), &["h1", "h2"]);
            world.ask(SESSION, vec![each(1), each(2)]);
            world
        },
        &[(
            2,
            "hosts excluded",
            "they exclude the hosts of all 2 nodes with room; 2 other nodes are full; 1 other node \
             is blacklisted",
        )],
    ),
    (
        "the host files exclude the only node",
        || {
            let mut world = nodes(&[2], |_| {});
            exclude_hosts(&mut world, &["h1"]);
            asks(&mut world, SESSION, "g.p", 1);
            world
        },
        &[(1, "nodes unusable", "the only node that serves MAP is excluded by the host files")],
    ),
    (
        "an operator drains one of two nodes, and the other one is full",
        || {
            let mut world = nodes(&[2, 2], |_| {});
            world.drain("n1", true);
            asks(&mut world, SESSION, "g.p", 3);
            world
        },
        &[(
            1,
            "no free slot",
            "all 2 slots are in use; 2 more slots are free on 1 draining node; pool g.p holds 2 grants, its \
             share is 2.0; this session is next",
        )],
    ),
    (
        "an operator drains the only node",
        || {
            let mut world = nodes(&[2], |_| {});
            world.drain("n1", true);
            asks(&mut world, SESSION, "g.p", 1);
            world
        },
        &[(1, "nodes unusable", "the only node that serves MAP is draining")],
    ),
    (
        "a full cluster with one excluded node, whose slots are free",
        || {
            let mut world = nodes(&[2; 50], |s| pool(s, "g.min", |p| p.minimum[Map] = 98));
            exclude_hosts(&mut world, &["h7"]);
            asks(&mut world, EARLIER, "g.min", 98);
            asks(&mut world, SESSION, "g.p", 5);
            world
        },
        &[(
            5,
            "no free slot",
            "all 98 slots are in use; 2 more slots are free on 1 excluded node; pool g.p holds no \
             grants and is due none at present; pool g.min holds 98 (guaranteed by its minimum of \
             98); this session is next",
        )],
    ),
    (
        "late nodes are skipped, and both are late",
        || {
            let mut world = nodes(&[2, 2], late_nodes_are_skipped);
            asks(&mut world, SESSION, "g.p", 1);
            world.wait(1_001);
            world.ask(SESSION, requests(2..=2, Map));
            world
        },
        &[(1, "nodes unusable", "all 2 nodes that serve MAP are late")],
    ),
    (
        "late nodes are skipped, and the others are full",
        || {
            let mut world = nodes(&[2, 3], late_nodes_are_skipped);
            world.wait(500);
            world.node("n1", "h1", 2);
            world.wait(501);
            asks(&mut world, SESSION, "g.p", 3);
            world
        },
        &[(
            1,
            "no free slot",
            "all 2 slots are in use; 3 more slots are free on 1 late node; pool g.p holds 2 grants, \
             its share is 2.0; this session is next",
        )],
    ),
    (
        "free slots on nodes that may not be used for several reasons",
        || {
            let mut world = nodes(&[], |settings| {
                settings.reserved_memory_mb = 10;
                easily_blacklisted(settings);
            });
            for number in 1..=4 {
                let node = with_memory(&format!("n{number}"), &format!("h{number}"), 1, 10);
                world.try_node(node).unwrap();
            }
            blacklist(&mut world, 1);
            world.try_node(poor("poor1", 2)).unwrap();
            world.try_node(poor("poor2", 2)).unwrap();
            exclude_hosts(&mut world, &["h2", "h3"]);
            asks(&mut world, SESSION, "g.p", 2);
            world
        },
        &[(
            1,
            "no free slot",
            "the only slot is in use; 7 more slots are free on 1 blacklisted node, 2 excluded nodes \
             and 2 nodes short of memory or disk space; pool g.p holds 1 grant, its share is 1.0; \
             this session is next",
        )],
    ),
    (
        "no node serves the type",
        || {
            let mut world = TestEngine::new(|_| {});
            for name in ["n1", "n2"] {
                node_without_reduces(&mut world, name);
            }
            world.session(SESSION, "g.p", requests(1..=1, Reduce));
            world
        },
        &[(1, "not served", "none of the 2 nodes serves REDUCE")],
    ),
    (
        "the only node does not serve the type",
        || {
            let mut world = TestEngine::new(|_| {});
            node_without_reduces(&mut world, "n1");
            world.session(SESSION, "g.p", requests(1..=1, Reduce));
            world
        },
        &[(1, "not served", "the only node does not serve REDUCE")],
    ),
    (
        "slots count only where they are served",
        || {
            let mut world = TestEngine::new(|_| {});
            for number in 1..=11 {
                let mut node = report(&format!("n{number}"), &format!("h{number}"), 1);
                if number > 1 {
                    node.apps[JobTracker] = None;
                }
                world.try_node(node).unwrap();
            }
            world.session(SESSION, "g.p", requests(1..=2, JobTracker));
            world
        },
        &[(
            1,
            "no free slot",
            "the only slot is in use; pool g.p holds 1 grant, its share is 1.0; this session is next",
        )],
    ),
    (
        "there are no nodes",
        || {
            let mut world = TestEngine::new(|_| {});
            asks(&mut world, SESSION, "g.p", 1);
            world
        },
        &[(1, "not served", "the cluster has no nodes")],
    ),
    (
        "all nodes are short of memory",
        || {
            let mut world = TestEngine::new(|settings| settings.reserved_memory_mb = 10);
            world.try_node(poor("poor1", 1)).unwrap();
            world.try_node(poor("poor2", 1)).unwrap();
            asks(&mut world, SESSION, "g.p", 1);
            world
        },
        &[(1, "nodes unusable", "all 2 nodes that serve MAP are short of memory or disk space")],
    ),
    (
        "no node may be used, for different reasons",
        || {
            let mut world = TestEngine::new(|settings| settings.reserved_memory_mb = 10);
            for number in 1..=3 {
                world.try_node(poor(&format!("h{number}"), 1)).unwrap();
            }
            exclude_hosts(&mut world, &["h1"]);
            asks(&mut world, SESSION, "g.p", 1);
            world
        },
        &[(
            1,
            "nodes unusable",
            "none of the 3 nodes that serve MAP may be used: 1 is excluded by the host files, 2 are \
             short of memory or disk space",
        )],
    ),
    (
        "requests want more CPUs than any node has",
        || {
            let mut world = nodes(&[2, 2], |_| {});
            world.start(SESSION, "g.p");
            world.ask(SESSION, vec![cpus(request(1, Map, &[]), 4), cpus(request(2, Map, &[]), 4)]);
            world
        },
        &[(
            2,
            "too large",
            "each needs 4 slots on one node, and no node has more than 2: they can never be served",
        )],
    ),
    (
        "a request wants more CPUs than any node has, in a full cluster and a pool at its maximum",
        || {
            let mut world = nodes(&[2], |s| pool(s, "g.p", |p| p.maximum[Map] = 2));
            world.session(SESSION, "g.p", requests(1..=3, Map));
            world.ask(SESSION, vec![cpus(request(4, Map, &[]), 3)]);
            world
        },
        &[
            (
                1,
                "pool at maximum",
                "pool g.p holds 2 grants, its maximum; this session is next in the pool",
            ),
            (
                1,
                "too large",
                "it needs 3 slots on one node, and no node has more than 2: it can never be served",
            ),
        ],
    ),
    (
        "the nodes with enough CPUs are partly used",
        || {
            let mut world = nodes(&[3, 3], |_| {});
            world.start(EARLIER, "g.x");
            let on = |id, host| request(id, Map, &[host]);
            let ask = vec![on(1, "h1"), on(2, "h1"), on(3, "h2"), on(4, "h2")];
            world.ask(EARLIER, ask);
            world.start(SESSION, "g.p");
            world.ask(SESSION, vec![cpus(request(1, Map, &[]), 3), cpus(request(2, Map, &[]), 3)]);
            world
        },
        &[(2, "too large", "each needs 3 slots on one node, and at most 1 is free on any")],
    ),
    (
        "only nodes that may not be used have enough CPUs",
        || {
            let mut world = nodes(&[2, 4], |_| {});
            exclude_hosts(&mut world, &["h2"]);
            world.session(SESSION, "g.p", vec![cpus(request(1, Map, &[]), 4)]);
            world
        },
        &[(
            1,
            "too large",
            "it needs 4 slots on one node, and the only node with so many is excluded by the host \
             files",
        )],
    ),
    (
        "requests of one session wait for different reasons",
        || {
            let mut world = nodes(&[3], locality_waits(5_000, 5_000));
            world.start(SESSION, "g.p");
            let far = |id| request(id, Map, &["far", "away"]);
            let excluding = excluding(request(7, Map, &[]), &["h1"]);
            let large = cpus(request(9, Map, &[]), 4);
            world.ask(SESSION, vec![far(2), far(1), far(3), far(6), excluding, large]);
            world
        },
        &[
            (4, "near node", "they wait another 6 s for a slot on away or far"),
            (
                1,
                "hosts excluded",
                "it excludes the host of the only node that could serve it: it can never be served",
            ),
            (
                1,
                "too large",
                "it needs 4 slots on one node, and no node has more than 3: it can never be served",
            ),
        ],
    ),
    (
        "a slot is free, and the next pass is due",
        || {
            let mut world = nodes(&[3], |_| {});
            world.start(SESSION, "g.p");
            world.apply(testing::ask(SESSION, requests(1..=2, Map))).unwrap();
            world
        },
        &[(2, "next pass", "a slot is free, and this session is considered next")],
    ),
    (
        "a slot is free, and others are considered first in the next pass",
        || {
            let mut world = nodes(&[3], |_| {});
            world.start("2026.2", "g.p");
            world.now += 1;
            world.start(SESSION, "g.p");
            for handle in ["2026.2", SESSION] {
                world.apply(testing::ask(handle, requests(1..=2, Map))).unwrap();
            }
            world
        },
        &[(
            2,
            "next pass",
            "a slot is free; session 2026.2 of the same pool comes first (started earlier)",
        )],
    ),
];

#[test]
fn each_situation_has_its_reason_and_text() {
    for (situation, world, expected) in SITUATIONS {
        let explained = explain(&world());
        let said: Vec<(u64, &str, &str)> = explained
            .iter()
            .map(|each| (each.count, reason_name(&each.reason), each.text.as_str()))
            .collect();
        assert_eq!(said, *expected, "{situation}");
    }
}

/// The world of a situation.
fn world_of(name: &str) -> TestEngine {
    let (_, world, _) = SITUATIONS.iter().find(|(situation, ..)| *situation == name).unwrap();
    world()
}

#[test]
fn a_reason_has_the_numbers_of_its_text() {
    let world = world_of("a full cluster with one excluded node, whose slots are free");
    let [WaitingRequests { ids, reason, .. }] = &explain(&world)[..] else { panic!() };
    assert_eq!(*ids, [IdRange { first: 1, last: 5 }]);
    let WaitReason::NoFreeSlot { used, total, unusable, competition } = reason else {
        panic!("{reason:?}");
    };
    assert_eq!((*used, *total), (98, 98));
    assert_eq!(*unusable, Unusable { excluded: 1, free_slots: 2, ..Unusable::default() });
    assert_eq!((competition.granted, competition.minimum), (0, 0));
    assert_eq!(competition.preemption, None);

    let world = world_of("the pool is below its minimum, and a preemption is coming");
    let [WaitingRequests { reason, .. }] = &explain(&world)[..] else { panic!() };
    let WaitReason::NoFreeSlot { competition, .. } = reason else { panic!("{reason:?}") };
    let preemption = competition.preemption.unwrap();
    assert_eq!((preemption.cause, preemption.possible), (Starvation::Minimum, true));
    let mut later = world_of("the pool is below its minimum, and a preemption is coming");
    later.wait(preemption.due.since(Millis(later.now)) - 1);
    assert_eq!(later.holds(SESSION, Map), 0);
    later.wait(1_002);
    assert_eq!(later.holds(SESSION, Map), 4, "the preemption came when it was due");

    let world = world_of("only the first few of those that come first are named");
    let [WaitingRequests { reason, .. }] = &explain(&world)[..] else { panic!() };
    let WaitReason::NoFreeSlot { competition, .. } = reason else { panic!("{reason:?}") };
    let named = ["2026.2", "2026.3", "2026.4"];
    let named = named.map(|handle| (handle.into(), Precedence::EarlierStart)).to_vec();
    assert_eq!(competition.ahead.sessions, Rivals { named, count: 8 });
}

#[test]
fn ids_are_given_as_ranges() {
    let world = world_of("requests of one session wait for different reasons");
    let near = explain(&world).remove(0);
    let range = |first, last| IdRange { first, last };
    assert_eq!(near.ids, [range(1, 3), range(6, 6)]);
}

#[test]
fn an_impossible_request_stays_impossible_when_slots_become_free() {
    for (name, never) in [
        ("requests want more CPUs than any node has", true),
        ("the requests exclude all hosts", true),
        ("a request excludes the only host, which is also full", true),
        ("the nodes with enough CPUs are partly used", false),
        ("only nodes that may not be used have enough CPUs", false),
        ("a request excludes the host with room, and the other node is full", false),
    ] {
        let mut world = world_of(name);
        assert_eq!(explain(&world)[0].reason.is_for_ever(), never, "{name}");
        if world.engine.session_at(EARLIER, Millis(world.now)).is_some() {
            world.end(EARLIER);
        }
        exclude_hosts(&mut world, &[]);
        let waits = !explain(&world).is_empty();
        assert_eq!(waits, never, "{name}");
    }
}

#[test]
fn waits_that_are_over_and_sessions_that_want_nothing() {
    let mut world = world_of("a node is free, but the session still waits for a preferred host");
    // The wait is over, but the tick has not come.
    world.now += 10_000;
    let near = explain(&world).remove(0);
    assert!(matches!(near.reason, WaitReason::NextPass { .. }), "{near:?}");
    assert_eq!(world.engine.explain("2026.9", Millis(0)), None);
    world.release(SESSION, &[1, 2]);
    assert_eq!(explain(&world), []);
}

#[test]
fn the_most_at_a_time_counts_grants_and_not_requests() {
    let mut world = nodes(&[8], |s| pool(s, "g.p", |p| p.maximum[Map] = 3));
    let tally = |world: &TestEngine| {
        world.engine.session_at(SESSION, Millis(world.now)).unwrap().counts[Map]
    };
    world.start(SESSION, "g.p");
    world.now += 500;
    assert_eq!((tally(&world).first_wait_ms, tally(&world).ungranted_ms), (None, None));
    exclude_hosts(&mut world, &["h1"]);
    world.ask(SESSION, requests(1..=10, Map));
    world.now += 500;
    let waiting = tally(&world);
    assert_eq!((waiting.max_granted, waiting.first_wait_ms), (0, None), "nothing was held yet");
    assert_eq!(waiting.ungranted_ms, Some(1_000), "as the original counts its first wait");
    exclude_hosts(&mut world, &[]);
    world.now += 1_000;
    world.node("n1", "h1", 8);
    let served = tally(&world);
    assert_eq!((served.max_granted, served.now.requested), (3, 10));
    assert!(served.first_wait_ms.is_some() && served.ungranted_ms.is_none(), "{served:?}");
    world.release(SESSION, &(1..=10).collect::<Vec<_>>());
    assert_eq!((tally(&world).max_granted, tally(&world).now.granted), (3, 0));
    world.end(SESSION);
    assert_eq!(world.engine.retired_sessions().back().unwrap().max_granted[Map], 3);
}
