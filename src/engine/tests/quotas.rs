//! Limits of queues in resources, as short stories.

use super::resources::{counting, node, taking};
use super::*;
use corona_model::form;
use corona_model::queues::{Part, QueueRules, Quota, SiblingOrder};

const CPUS: usize = 0;
const MEMORY: usize = 1;

fn rules<'a>(settings: &'a mut Settings, name: &str) -> &'a mut QueueRules {
    let queues = &mut settings.pools.queues;
    match name.split_once('.') {
        None => queues.groups.entry(name.into()).or_default(),
        Some((group, of_group)) => {
            let name = PoolName::new(group, of_group);
            settings.pools.pools.entry(name.clone()).or_default();
            queues.pools.entry(name).or_default()
        }
    }
}

fn least(settings: &mut Settings, name: &str, dimension: usize, quota: Quota) {
    rules(settings, name).quotas.minimum[dimension] = Some(quota);
}

fn most(settings: &mut Settings, name: &str, dimension: usize, quota: Quota) {
    rules(settings, name).quotas.maximum[dimension] = Some(quota);
}

fn inside(settings: &mut Settings, group: &str, parent: &str) {
    rules(settings, group).parent = Some(parent.into());
}

/// Requests for reduces of a CPU and 100 MB.
fn reduces(ids: std::ops::RangeInclusive<i32>) -> Vec<ResourceRequest> {
    let all = taking(ids, 1, 100).into_iter();
    all.map(|request| ResourceRequest { kind: Reduce, ..request }).collect()
}

/// One node with 20 CPUs and 1,000 MB, and sessions of pools that each ask for 20 maps of a CPU and 100 MB.
fn crowded(pools: &[&str], change: impl FnOnce(&mut Settings)) -> TestEngine {
    let mut world = counting(change);
    for (number, pool) in (1..).zip(pools) {
        let handle = format!("2026.{number}");
        world.session(&handle, pool, taking(1..=20, 1, 100));
    }
    node(&mut world, "n1", 20, 1_000);
    world
}

/// Sets limits.
type Rule = fn(&mut Settings);

/// What two pools hold of a node that both want whole, under each of these rules.
fn held_under(cases: &[(&str, [i64; 2], Rule)]) {
    for (what, expected, rule) in cases {
        let world = crowded(&["g.a", "g.b"], *rule);
        assert_eq!(world.held(2), *expected, "{what}");
    }
}

#[test]
fn a_minimum_in_resources_comes_first() {
    let cases: [(&str, [i64; 2], Rule); 7] = [
        ("no minimum", [5, 5], |_| {}),
        ("memory", [7, 3], |s| least(s, "g.a", MEMORY, Quota::Amount(650))),
        ("CPUs", [6, 4], |s| least(s, "g.a", CPUS, Quota::Amount(6))),
        ("the first that is reached", [7, 3], |s| {
            least(s, "g.a", MEMORY, Quota::Amount(700));
            least(s, "g.a", CPUS, Quota::Amount(20));
        }),
        ("a part of the cluster, through its group", [8, 2], |s| {
            least(s, "g", MEMORY, Quota::Part(Part(10_000)));
            least(s, "g.a", MEMORY, Quota::Part(Part(8_000)));
        }),
        ("slots and resources, each by itself", [8, 2], |s| {
            pool(s, "g.a", |it| it.minimum[Map] = 8);
            least(s, "g.a", MEMORY, Quota::Amount(300));
        }),
        ("a resource that is not counted", [5, 5], |s| least(s, "g.a", 2, Quota::Amount(900))),
    ];
    held_under(&cases);
}

#[test]
fn a_minimum_is_that_of_all_types_together() {
    let mut world = counting(|s| least(s, "g.a", MEMORY, Quota::Amount(600)));
    node(&mut world, "n1", 20, 1_000);
    world.start("2026.1", "g.a");
    world.ask("2026.1", reduces(1..=5));
    node(&mut world, "n1", 20, 500);
    for number in 1..=2 {
        let handle = format!("2026.{number}");
        if number == 2 {
            world.start(&handle, "g.b");
        }
        world.ask(&handle, taking(10..=20, 1, 100));
    }
    node(&mut world, "n1", 20, 1_000);
    // The reduces hold 500 of the 600 MB, so one map comes first; then the shares of maps count.
    assert_eq!(world.held(2), [3, 2]);
}

#[test]
fn no_grant_exceeds_a_maximum_in_resources() {
    let cases: [(&str, [i64; 2], Rule); 6] = [
        ("no maximum", [5, 5], |_| {}),
        ("memory", [3, 7], |s| most(s, "g.a", MEMORY, Quota::Amount(350))),
        ("CPUs", [2, 8], |s| most(s, "g.a", CPUS, Quota::Amount(2))),
        ("of the group", [2, 2], |s| most(s, "g", MEMORY, Quota::Amount(400))),
        ("a part of the cluster, rounded up", [3, 7], |s| {
            most(s, "g.a", MEMORY, Quota::Part(Part(2_999)));
        }),
        ("a part of the group's", [2, 3], |s| {
            most(s, "g", MEMORY, Quota::Amount(500));
            most(s, "g.a", MEMORY, Quota::Part(Part(4_000)));
        }),
    ];
    held_under(&cases);
}

#[test]
fn a_maximum_keeps_large_requests_back_until_enough_is_released() {
    let mut world = counting(|s| most(s, "g", MEMORY, Quota::Amount(500)));
    node(&mut world, "n1", 20, 1_000);
    world.session("2026.1", "g.a", taking(1..=4, 1, 100));
    world.session("2026.2", "g.b", taking(1..=1, 1, 300));
    world.ask("2026.2", taking(2..=2, 1, 600));
    let why = "it needs 300 MB of memory; queue g holds 400 MB of memory, and its maximum is 500 MB of memory \
               | it needs 600 MB of memory, and the maximum of queue g is 500 MB of memory: it can never be served";
    assert_eq!(world.reasons("2026.2"), why);
    world.release("2026.1", &[1]);
    assert_eq!(world.held(2), [3, 0]);
    world.release("2026.1", &[2]);
    assert_eq!(world.held(2), [2, 1], "in another pool, below the same maximum");
    let why = "it needs 600 MB of memory, and the maximum of queue g is 500 MB of memory: it can never be served";
    assert_eq!(world.reasons("2026.2"), why);
    world.ask("2026.1", taking(5..=5, 1, 100));
    let why = "queue g holds 500 MB of memory, and its maximum is 500 MB of memory";
    assert_eq!(world.reasons("2026.1"), why);
}

#[test]
fn a_release_of_one_type_makes_room_for_another_below_a_maximum() {
    let mut world = counting(|s| most(s, "g.a", MEMORY, Quota::Amount(200)));
    node(&mut world, "n1", 20, 1_000);
    world.session("2026.1", "g.a", taking(1..=2, 1, 100));
    world.ask("2026.1", reduces(3..=4));
    assert_eq!((world.holds("2026.1", Map), world.holds("2026.1", Reduce)), (2, 0));
    world.release("2026.1", &[1]);
    assert_eq!((world.holds("2026.1", Map), world.holds("2026.1", Reduce)), (1, 1));
}

#[test]
fn a_minimum_in_resources_that_is_not_lent_stays_free() {
    let mut world = crowded(&["g.b"], |s| {
        least(s, "g.a", MEMORY, Quota::Amount(400));
        rules(s, "g.a").lend = false;
    });
    assert_eq!(world.held(1), [6]);
    let why = "each needs 1 CPU and 100 MB of memory; all nodes together have 14 CPUs and 400 MB of memory left, \
               of which 400 MB of memory stay free for g.a, which does not lend";
    assert_eq!(world.reasons("2026.1"), why);
    world.session("2026.2", "g.a", taking(1..=2, 1, 150));
    assert_eq!(world.held(2), [6, 2]);
    world.release("2026.1", &[1]);
    assert_eq!(world.held(2), [6, 2], "it takes what it has released, and no more");
    world.release("2026.2", &[1]);
    assert_eq!(world.held(2), [6, 1], "what the other releases stays free for it again");
    node(&mut world, "n2", 20, 200);
    assert_eq!(world.held(2), [8, 1]);
}

#[test]
fn room_that_stayed_free_for_a_pool_goes_with_it() {
    let mut world = counting(|s| {
        least(s, "g.a", MEMORY, Quota::Amount(400));
        rules(s, "g.a").lend = false;
        // Then it exists as long as it has sessions.
        s.pools.pools.clear();
    });
    world.start("2026.1", "g.b");
    world.start("2026.2", "g.a");
    world.ask("2026.1", taking(1..=20, 1, 100));
    node(&mut world, "n1", 20, 1_000);
    assert_eq!(world.held(2), [6, 0]);
    world.end("2026.2");
    assert_eq!(world.held(1), [10]);
}

/// The maps fit all the time, but would have taken what stays free.
#[test]
fn room_on_a_node_for_reduces_alone_lets_maps_be_served_elsewhere() {
    let mut world = counting(|s| {
        least(s, "g.a", MEMORY, Quota::Amount(400));
        rules(s, "g.a").lend = false;
    });
    for (name, memory_mb, closed) in [("n1", 400, ResourceType::Reduce), ("n2", 1_000, Map)] {
        let mut report = report(name, name, 20);
        report.total.memory_mb = Some(memory_mb);
        report.free = Some(report.total);
        report.apps[closed] = None;
        world.try_node(report).unwrap();
    }
    world.start("2026.1", "g.b");
    world.ask("2026.1", reduces(1..=10));
    world.ask("2026.1", taking(11..=20, 1, 100));
    let both = |world: &TestEngine| [ResourceType::Reduce, Map].map(|it| world.holds("2026.1", it));
    assert_eq!(both(&world), [10, 0]);
    world.release("2026.1", &[1, 2, 3]);
    assert_eq!(both(&world), [7, 3]);
}

#[test]
fn limits_follow_a_changed_file_and_a_growing_cluster() {
    let mut world = crowded(&["g.a", "g.b"], |s| most(s, "g.a", MEMORY, Quota::Amount(300)));
    assert_eq!(world.held(2), [3, 7]);
    world.change(|s| most(s, "g.a", MEMORY, Quota::Part(Part(2_500))));
    world.end("2026.2");
    assert_eq!(world.held(1), [3], "grants above the maximum stay");
    node(&mut world, "n2", 20, 1_000);
    assert_eq!(world.held(1), [5], "a quarter of 2,000 MB");
    world.change(|s| s.resources.counted = [false; 4]);
    assert!(world.held(1)[0] > 5, "where slots count, resources limit nothing");
}

#[test]
fn minima_in_resources_of_others_are_named() {
    let too_little = "each needs 1 CPU and 100 MB of memory on one node; all nodes together have 10 CPUs \
                      left, and the one that lacks least has 10 CPUs";
    let cases: [(&str, Rule); 4] = [
        ("pool g.a holds 7 (guaranteed by its minimum of 700 MB of memory)", |s| {
            least(s, "g.a", MEMORY, Quota::Amount(700));
        }),
        ("pool g.a holds 5 (its minimum is 2 CPUs)", |s| least(s, "g.a", CPUS, Quota::Amount(2))),
        ("pool g.a holds 8 (guaranteed by its minimum of 8)", |s| {
            least(s, "g.a", MEMORY, Quota::Amount(700));
            let name = PoolName::new("g", "a");
            s.pools.pools.entry(name).or_default().minimum[Map] = 8;
        }),
        ("", |_| {}),
    ];
    for (named, rule) in cases {
        let world = crowded(&["g.a", "g.b"], rule);
        let all = world.reasons("2026.2");
        match named.is_empty() {
            true => assert_eq!(all, too_little),
            false => assert_eq!(all, format!("{too_little}; {named}")),
        }
    }
    let world = crowded(&["h.a", "g.b"], |s| least(s, "h", MEMORY, Quota::Amount(700)));
    let named = "pool h.a holds 7 (its group's minimum is 700 MB of memory)";
    assert_eq!(world.reasons("2026.2"), format!("{too_little}; {named}"));
    // A group's minima in slots and in resources: the one that it is within.
    for (amount, named) in [
        (700, "pool h.a holds 8 (its group's minimum is 8)"),
        (900, "pool h.a holds 9 (its group's minimum is 900 MB of memory)"),
    ] {
        let world = crowded(&["h.a", "g.b"], |s| {
            least(s, "h", MEMORY, Quota::Amount(amount));
            s.pools.groups.entry("h".into()).or_default().minimum[Map] = 8;
        });
        assert_eq!(world.reasons("2026.2"), format!("{too_little}; {named}"));
    }
    // Grants of another type take the same resources. A minimum of maps does not protect reduces.
    for (slots, kind, memory_mb, named) in [
        (1, ResourceType::Reduce, 700, "holds 7 (guaranteed by its minimum of 700 MB of memory)"),
        (7, ResourceType::Reduce, 0, "holds 7 (guaranteed by its minimum of 7)"),
        (8, Map, 0, ""),
    ] {
        let mut world = counting(|s| {
            least(s, "g.a", MEMORY, Quota::Amount(memory_mb));
            s.pools.pools.entry(PoolName::new("g", "a")).or_default().minimum[kind] = slots;
        });
        node(&mut world, "n1", 20, 1_000);
        world.start("2026.1", "g.a");
        world.ask("2026.1", reduces(1..=7));
        world.session("2026.2", "g.b", taking(1..=9, 1, 100));
        let all = world.reasons("2026.2");
        match named.is_empty() {
            true => assert!(!all.contains("pool g.a"), "{all}"),
            false => assert!(all.ends_with(&format!("pool g.a {named}")), "{all}"),
        }
    }
    // A host whose slots are all in use: the same names.
    let mut world = counting(|s| least(s, "g.a", MEMORY, Quota::Amount(200)));
    node(&mut world, "n1", 2, 1_000);
    for (handle, pool) in [("2026.1", "g.a"), ("2026.2", "g.b")] {
        world.session(handle, pool, taking(1..=9, 1, 100));
    }
    let all = world.reasons("2026.2");
    assert!(all.starts_with("all 2 slots are in use; "), "{all}");
    assert!(
        all.contains("pool g.a holds 2 (guaranteed by its minimum of 200 MB of memory)"),
        "{all}"
    );
}

#[test]
fn strict_capacity_goes_by_minima_in_resources() {
    let world = crowded(&["g.a", "g.b", "g.c"], |s| {
        rules(s, "g").order = SiblingOrder::Capacity;
        least(s, "g.a", MEMORY, Quota::Amount(100));
        least(s, "g.b", MEMORY, Quota::Amount(400));
    });
    assert_eq!(world.held(3), [2, 8, 0]);
}

/// Shares are in slots, and those of pages know no minima in resources.
#[test]
fn shares_in_slots_are_the_same_in_explanations_and_on_pages() {
    let world = crowded(&["g.a", "g.b"], |s| {
        s.partitioning.0 = [(20, ResourceType::ALL.map(|kind| (kind, 4)).into())].into();
        rules(s, "g").order = SiblingOrder::Capacity;
        least(s, "g.a", MEMORY, Quota::Amount(400));
    });
    assert_eq!(world.held(2), [4, 0]);
    let mut pools = world.engine.pools();
    crate::fill_in_shares(&mut pools, PerType([4, 0, 0]));
    for (number, pool) in [(1, "a"), (2, "b")] {
        let reasons = world.engine.explain(&format!("2026.{number}"), Millis(world.now)).unwrap();
        let WaitReason::NoFreeSlot { competition, .. } = &reasons[0].reason else {
            panic!("{reasons:?}")
        };
        let view = pools.iter().find(|view| view.pool.as_deref() == Some(pool)).unwrap();
        assert_eq!(competition.share, view.share[Map], "{pool}");
    }
}

#[test]
fn an_image_goes_on_with_the_same_limits() {
    let world = crowded(&["g.a", "g.b"], |s| {
        most(s, "g.a", MEMORY, Quota::Part(Part(3_000)));
        least(s, "g.b", MEMORY, Quota::Amount(800));
        rules(s, "g.b").lend = false;
    });
    let mut world = world.restored(form::SIXTH);
    world.release("2026.2", &[1]);
    assert_eq!(world.held(2), [2, 8]);
    world.change(|s| s.pools.queues.groups.clear());
    world.change(|s| s.pools.queues.pools.clear());
    let bytes = crate::codec::encode(&world.engine.image()).unwrap();
    assert!(bytes.first() < Some(&form::SIXTH), "without limits, earlier versions can read it");
}

/// A cluster of full nodes of 1,000 MB, that preempts for pools below their minimum after a second.
fn filled(change: impl FnOnce(&mut Settings)) -> TestEngine {
    let mut world = counting(|settings| {
        settings.scheduling.starving_time_for_minimum_ms = 1_000;
        settings.scheduling.starving_time_for_share_ms = i64::MAX / 4;
        settings.scheduling.min_preempt_period_ms = 0;
        change(settings);
    });
    world.start("2026.1", "g.v");
    for name in ["n1", "n2"] {
        node(&mut world, name, 20, 1_000);
    }
    world.ask("2026.1", taking(1..=20, 1, 100));
    world.session("2026.2", "h.p", taking(1..=20, 1, 100));
    world
}

/// The minimum of the preempting pool, and as much for its group, since that is compared with the other group.
fn due(settings: &mut Settings, memory_mb: u64) {
    for name in ["h", "h.p"] {
        least(settings, name, MEMORY, Quota::Amount(memory_mb));
    }
}

#[test]
fn a_minimum_in_resources_is_taken_back_and_kept() {
    let cases: [(&str, [i64; 2], Rule); 7] = [
        ("no minimum", [20, 0], |_| {}),
        ("memory", [15, 5], |s| due(s, 500)),
        ("more than a half", [6, 14], |s| due(s, 1_400)),
        ("never below a minimum", [15, 5], |s| {
            due(s, 1_400);
            least(s, "g.v", MEMORY, Quota::Amount(1_450));
        }),
        ("nor below that of a group", [12, 8], |s| {
            due(s, 1_400);
            least(s, "g", CPUS, Quota::Amount(12));
        }),
        ("within the maximum of the pool", [17, 3], |s| {
            due(s, 1_400);
            most(s, "h.p", CPUS, Quota::Amount(3));
        }),
        ("within the maximum of the group", [17, 3], |s| {
            due(s, 1_400);
            most(s, "h", MEMORY, Quota::Amount(350));
        }),
    ];
    for (what, expected, rule) in cases {
        let mut world = filled(rule);
        world.wait(60_000);
        assert_eq!(world.held(2), expected, "{what}");
    }
}

#[test]
fn a_full_group_gives_to_its_own_queues() {
    let mut world = filled(|s| {
        inside(s, "g", "all");
        inside(s, "h", "all");
        most(s, "all", MEMORY, Quota::Amount(2_000));
        due(s, 500);
    });
    node(&mut world, "n3", 20, 1_000);
    assert_eq!(world.held(2), [20, 0], "the group is at its maximum");
    world.wait(60_000);
    assert_eq!(world.held(2), [15, 5]);
}

#[test]
fn nothing_is_taken_back_that_stays_free_for_others() {
    let mut world = filled(|s| {
        due(s, 1_000);
        least(s, "i.q", MEMORY, Quota::Amount(300));
        rules(s, "i.q").lend = false;
    });
    let before = world.held(2);
    assert_eq!(before, [17, 0], "the reserve is left");
    world.wait(60_000);
    assert_eq!(world.held(2), [7, 10]);
    world.session("2026.3", "i.q", taking(1..=20, 1, 100));
    assert_eq!(world.held(3), [7, 10, 3]);
}
