//! Resources beside slots, as short stories.

use super::*;
use corona_model::form;
use corona_model::queues::Part;
use corona_model::resources::Amounts;

/// A cluster that counts CPUs and memory.
pub(super) fn counting(change: impl FnOnce(&mut Settings)) -> TestEngine {
    TestEngine::new(|settings| {
        settings.resources.counted = [true, true, false, false];
        settings.resources.requested = PerType::all(Amounts([1, 100, 0, 0]));
        change(settings);
    })
}

pub(super) fn node(world: &mut TestEngine, name: &str, cpus: i16, memory_mb: i32) {
    node_on(world, name, name, cpus, memory_mb);
}

fn node_on(world: &mut TestEngine, host: &str, name: &str, cpus: i16, memory_mb: i32) {
    let mut report = report(name, host, cpus);
    report.total.memory_mb = Some(memory_mb);
    report.free = Some(report.total);
    world.try_node(report).unwrap();
}

pub(super) fn taking(
    ids: std::ops::RangeInclusive<i32>,
    cpus: i16,
    memory_mb: i32,
) -> Vec<ResourceRequest> {
    let specs = ComputeSpecs { num_cpus: cpus, memory_mb: Some(memory_mb), ..Default::default() };
    let mut all = requests(ids, Map);
    all.iter_mut().for_each(|request| request.specs = Some(specs));
    all
}

#[test]
fn a_node_gives_out_what_it_has_in_every_dimension() {
    let mut world = counting(|settings| settings.reserved_memory_mb = 100);
    node(&mut world, "n1", 8, 1_000);
    world.session("2026.1", "g.p", taking(1..=9, 1, 300));
    assert_eq!(world.holds("2026.1", Map), 3, "100 of 1,000 MB are kept");
    let why = "each needs 1 CPU and 300 MB of memory on one node; all nodes together have 5 CPUs left, \
               and the one that lacks least has 5 CPUs";
    assert_eq!(world.reasons("2026.1"), why);
    world.release("2026.1", &[1]);
    assert_eq!(world.holds("2026.1", Map), 3);
    world.end("2026.1");
    world.session("2026.2", "g.p", taking(1..=9, 3, 10));
    assert_eq!(world.holds("2026.2", Map), 2, "8 CPUs");
    world.session("2026.3", "g.p", taking(1..=1, 9, 10));
    let why = "it needs 9 CPUs and 10 MB of memory on one node, and no node has so much: it can never be \
               served";
    assert_eq!(world.reasons("2026.3"), why);
}

#[test]
fn types_share_the_resources_of_a_node() {
    let mut world = counting(|_| {});
    node(&mut world, "n1", 4, 400);
    world.session("2026.1", "g.p", requests(1..=3, Map));
    world.ask("2026.1", requests(4..=9, Reduce));
    assert_eq!((world.holds("2026.1", Map), world.holds("2026.1", Reduce)), (3, 1));
    world.release("2026.1", &[1, 2]);
    assert_eq!((world.holds("2026.1", Map), world.holds("2026.1", Reduce)), (1, 3));
}

#[test]
fn more_or_less_than_a_node_reports_is_given_out() {
    let mut world = counting(|settings| settings.resources.overcommit[1] = Part(15_000));
    node(&mut world, "n1", 8, 400);
    world.session("2026.1", "g.p", requests(1..=9, Map));
    assert_eq!(world.holds("2026.1", Map), 6);
    world.change(|settings| settings.resources.overcommit[1] = Part(5_000));
    assert_eq!(world.holds("2026.1", Map), 6, "grants stay");
    world.change(|settings| settings.resources.counted = [false; 4]);
    assert_eq!(world.holds("2026.1", Map), 8, "slots alone count again");
}

#[test]
fn a_request_goes_where_the_least_is_left_on_its_hosts_and_elsewhere() {
    for host in [None, Some("h")] {
        let mut world = counting(|_| {});
        for (name, memory_mb) in [("large", 4_000), ("small", 500), ("middle", 1_000)] {
            node_on(&mut world, host.unwrap_or(name), name, 8, memory_mb);
        }
        world.start("2026.1", "g.p");
        for (id, memory_mb, expected) in [(1, 400, "small"), (2, 400, "middle"), (3, 900, "large")]
        {
            let mut asked = taking(id..=id, 1, memory_mb);
            asked[0].hosts = host.into_iter().map(Arc::from).collect();
            world.ask("2026.1", asked);
            let on = world.engine.grants("2026.1").unwrap();
            let on = on.iter().find(|view| view.grant.id == id).unwrap();
            assert_eq!(*on.grant.node_name, *expected, "{id} {host:?}");
        }
    }
}

#[test]
fn queues_are_served_by_their_dominant_shares() {
    let mut world = counting(|_| {});
    world.start("2026.1", "g.cpus");
    world.start("2026.2", "g.memory");
    // Each takes a tenth of what there is most of in its own dimension, and a twentieth of the other.
    world.ask("2026.1", taking(1..=20, 2, 50));
    world.ask("2026.2", taking(1..=20, 1, 100));
    node(&mut world, "n1", 20, 1_000);
    assert_eq!(world.held(2), [7, 6], "one of each in turn");
}

#[test]
fn shares_are_of_the_whole_rounded_up_to_seven_digits() {
    let mut world = counting(|_| {});
    // 65 of 129 CPUs, which count as 130, are as much as 500 of 1,000 MB: the first name comes next.
    for (handle, pool, cpus, memory_mb) in [("2026.1", "g.a", 65, 1), ("2026.2", "g.b", 1, 500)] {
        world.start(handle, pool);
        world.ask(handle, [taking(1..=1, cpus, memory_mb), taking(2..=2, 1, 300)].concat());
    }
    node(&mut world, "n1", 129, 1_000);
    assert_eq!(world.held(2), [2, 1], "there is room for one of the second requests");
}

#[test]
fn an_image_keeps_what_is_held() {
    let mut world = counting(|_| {});
    node(&mut world, "n1", 4, 400);
    world.session("2026.1", "g.p", taking(1..=9, 1, 150));
    // Nothing is reserved.
    let mut again = world.restored(form::SECOND);
    again.release("2026.1", &[1]);
    assert_eq!(again.holds("2026.1", Map), 2);
}

/// A node that small requests fill, and a large one that has waited for a node for its time.
fn with_reservation() -> TestEngine {
    with_reservation_for(3_600_000)
}

/// As [`with_reservation`], for no longer than this.
fn with_reservation_for(limit_ms: i64) -> TestEngine {
    let mut world = counting(|settings| {
        settings.resources.reservation.0.0 = 5_000;
        settings.resources.reservation_limit.0.0 = limit_ms;
    });
    node(&mut world, "n1", 16, 1_000);
    world.session("2026.1", "g.small", taking(1..=30, 1, 100));
    assert_eq!(world.holds("2026.1", Map), 10);
    world.session("2026.2", "g.large", taking(1..=1, 2, 300));
    world.release("2026.1", &[1]);
    assert_eq!(world.holds("2026.1", Map), 10, "a small one takes the place of a small one");
    world.wait(6_100);
    world
}

#[test]
fn a_request_that_is_passed_over_reserves_a_node() {
    let mut world = with_reservation();
    world.release("2026.1", &[3, 5]);
    assert_eq!(world.holds("2026.1", Map), 8, "nothing else is granted there");
    let why = "it needs 2 CPUs and 300 MB of memory on one node; all nodes together have nothing left, and \
               the one that lacks least has nothing; node n1 has been kept for request 1 for 1 s";
    world.now += 100;
    let told = world.reasons("2026.2");
    assert_eq!(told.split(" for 1 s").next(), why.split(" for 1 s").next(), "{told}");
    assert!(world.reasons("2026.1").contains("another node is kept for a request of others"));
    world.release("2026.1", &[7]);
    assert_eq!(world.granted("2026.2"), [1]);
    world.release("2026.1", &[9]);
    assert_eq!(world.holds("2026.1", Map), 7, "the node serves everybody again");
}

#[test]
fn a_reservation_ends_with_its_reason() {
    type Event = fn(&mut TestEngine);
    let events: [(&str, Event); 5] = [
        ("the request is released", |world| world.release("2026.2", &[1])),
        ("its session ends", |world| world.end("2026.2")),
        ("another node serves it", |world| node(world, "n2", 2, 300)),
        ("its pool may have no more", |world| {
            world.change(|settings| pool(settings, "g.large", |pool| pool.maximum[Map] = 0));
            world.release("2026.1", &[3, 5, 7]);
        }),
        ("only slots are counted", |world| {
            world.change(|settings| settings.resources.counted = [false; 4]);
        }),
    ];
    for (what, event) in events {
        let mut world = with_reservation();
        event(&mut world);
        let before = world.holds("2026.1", Map);
        world.release("2026.1", &[9]);
        assert_eq!(world.holds("2026.1", Map), before, "{what}");
    }
}

#[test]
fn a_reservation_ends_with_its_node() {
    let mut world = with_reservation();
    world.drain("n1", true);
    world.wait(1_100);
    node(&mut world, "n2", 16, 200);
    assert_eq!(world.holds("2026.1", Map), 12);
    world.drain("n1", false);
    world.release("2026.1", &[3]);
    world.wait(1_100);
    assert!(world.reasons("2026.2").contains("node n1 has been kept"), "and is made again");
    let host: Arc<str> = "n1".into();
    world.run(Input::NodesEnded { host: host.clone(), names: vec![host] }).unwrap();
    assert!(!world.reasons("2026.2").contains("kept"));
}

#[test]
fn a_reservation_ends_in_time() {
    let mut world = with_reservation_for(20_000);
    world.start("2026.3", "g.other");
    let kept = world.reasons("2026.2");
    assert!(kept.contains("kept for request 1 for 1 s, and for another"), "{kept}");
    // It waits for less long than the first one.
    world.ask("2026.3", taking(1..=1, 2, 300));
    world.wait(17_000);
    world.release("2026.1", &[3]);
    assert_eq!(world.holds("2026.1", Map), 9, "it is kept");
    world.wait(4_000);
    assert_eq!(world.holds("2026.1", Map), 10, "it serves everybody again");
    // The other one comes first now.
    world.wait(1_100);
    assert!(world.reasons("2026.3").contains("has been kept for request 1"));
    assert!(!world.reasons("2026.2").contains("has been kept"));
    // It is known that it has waited without a result.
    world.restored(form::FIFTH);
}

#[test]
fn an_image_knows_no_pool_that_has_left_with_its_reservation() {
    let mut world = with_reservation_for(10_000);
    world.now += 9_900;
    world.end("2026.2");
    world.wait(200);
    let bytes = codec::encode(&world.engine.image()).unwrap();
    assert!(Engine::from_image(codec::decode(&bytes).unwrap(), 99).is_ok());
}

#[test]
fn the_way_back_to_slots_forgets_what_only_later_programs_read() {
    let mut world = with_reservation_for(10_000);
    world.wait(10_500);
    let form = |world: &TestEngine| codec::encode(&world.engine.image()).unwrap()[0];
    assert_eq!(form(&world), form::FIFTH, "a reservation has taken too long");
    world.change(|settings| settings.resources = Settings::default().resources);
    assert!(form(&world) < form::FIFTH);
}

#[test]
fn a_reservation_that_took_too_long_goes_to_another_node() {
    let mut world = counting(|settings| {
        settings.resources.reservation.0.0 = 5_000;
        settings.resources.reservation_limit.0.0 = 10_000;
    });
    for (name, memory_mb) in [("n1", 1_000), ("n2", 900)] {
        node(&mut world, name, 16, memory_mb);
    }
    world.session("2026.1", "g.small", taking(1..=1, 1, 999));
    world.ask("2026.1", taking(2..=2, 1, 899));
    world.ask("2026.1", taking(3..=3, 9, 999));
    world.session("2026.2", "g.large", taking(1..=1, 2, 300));
    let mut nodes = Vec::new();
    for _ in 0..80 {
        world.wait(1_000);
        let told = world.reasons("2026.2");
        let node = ["n1", "n2"].into_iter().find(|node| told.contains(&format!("node {node} has")));
        if let Some(node) = node.filter(|node| nodes.last() != Some(node)) {
            nodes.push(node);
        }
    }
    assert_eq!(nodes[..4], ["n1", "n2", "n1", "n2"], "in turn");
}

#[test]
fn an_image_keeps_reservations() {
    let world = with_reservation();
    let mut again = world.restored(form::THIRD);
    again.release("2026.1", &[3, 5, 7]);
    assert_eq!(again.granted("2026.2"), [1]);
}
