//! Preemption where resources are counted, as short stories.

use super::resources::{counting, node, taking};
use super::*;
use corona_model::form;
use corona_model::queues::{PreemptionRule, QueueRules};

/// A cluster that preempts after a second for pools that are below their minimum or share.
fn preempting(change: impl FnOnce(&mut Settings)) -> TestEngine {
    counting(|settings| {
        let scheduling = &mut settings.scheduling;
        scheduling.starving_time_for_minimum_ms = 1_000;
        scheduling.starving_time_for_share_ms = 1_000;
        scheduling.min_preempt_period_ms = 0;
        change(settings);
    })
}

/// One node of 1,000 MB for each of the numbers, filled with grants of so many megabytes of session 2026.1 in g.v.
fn filled(nodes: &[i32], change: impl FnOnce(&mut Settings)) -> TestEngine {
    let mut world = preempting(change);
    world.start("2026.1", "g.v");
    let mut next = 1;
    for (number, memory_mb) in nodes.iter().enumerate() {
        node(&mut world, &format!("n{number}"), 20, 1_000);
        let count = 1_000 / memory_mb;
        world.now += 1;
        world.ask("2026.1", taking(next..=next + count - 1, 1, *memory_mb));
        next += count;
    }
    world.told("2026.1");
    world
}

/// What 2026.1 and 2026.2 hold a minute after the second, in g.p, has made these requests.
fn held_after_a_minute(mut world: TestEngine, requests: Vec<ResourceRequest>) -> Vec<i64> {
    world.session("2026.2", "g.p", requests);
    world.wait(60_000);
    world.held(2)
}

fn revoked(world: &mut TestEngine, handle: &str) -> Vec<i32> {
    let told = world.told(handle).into_iter();
    told.filter_map(|told| if let Revoked(ids) = told { Some(ids) } else { None })
        .flatten()
        .collect()
}

#[test]
fn the_youngest_grants_on_one_node_make_room() {
    let mut world = filled(&[100, 100], |_| {});
    world.session("2026.2", "g.p", taking(1..=1, 1, 300));
    world.wait(500);
    assert_eq!(world.holds("2026.2", Map), 0, "not before its time");
    world.wait(1_600);
    assert_eq!(world.granted("2026.2"), [1]);
    // All are of the same age on a node, so the largest ids are the youngest.
    assert_eq!(revoked(&mut world, "2026.1"), [10, 9, 8]);
    assert_eq!(world.holds("2026.1", Map), 17);
}

#[test]
fn no_grant_is_taken_back_that_is_not_needed() {
    let mut world = preempting(|_| {});
    node(&mut world, "n1", 20, 1_000);
    node(&mut world, "n2", 1, 3_000);
    world.start("2026.1", "g.v");
    for (id, memory_mb) in [(1, 3_000), (2, 500), (3, 400), (4, 50), (5, 50)] {
        world.now += 10;
        world.ask("2026.1", taking(id..=id, 1, memory_mb));
    }
    world.told("2026.1");
    world.session("2026.2", "g.p", taking(1..=1, 1, 400));
    world.wait(2_100);
    assert_eq!(world.granted("2026.2"), [1]);
    assert_eq!(revoked(&mut world, "2026.1"), [3], "the two youngest are too small to help");
}

#[test]
fn nobody_is_left_with_a_smaller_share_than_the_preempting_queue() {
    // Each has half of what it asks for: the share of the first after it gives is that of the second.
    let world = filled(&[500, 500], |_| {});
    assert_eq!(held_after_a_minute(world, taking(1..=9, 1, 500)), [2, 2]);
    // One grant is all that the first has.
    let world = filled(&[900], |_| {});
    assert_eq!(held_after_a_minute(world, taking(1..=9, 1, 500)), [1, 0]);
}

#[test]
fn weights_and_minima_count() {
    let held = |rule: fn(&mut Settings)| {
        held_after_a_minute(filled(&[100, 100], rule), taking(1..=20, 1, 100))
    };
    assert_eq!(held(|settings| pool(settings, "g.p", |it| it.weight = 3.0)), [5, 15]);
    let minima = held(|settings| {
        settings.scheduling.starving_time_for_share_ms = i64::MAX / 4;
        pool(settings, "g.p", |it| it.minimum[Map] = 14);
        pool(settings, "g.v", |it| it.minimum[Map] = 4);
    });
    assert_eq!(minima[1], 14, "its minimum, and no more");
    let minimum = held(|settings| pool(settings, "g.v", |it| it.minimum[Map] = 15));
    assert_eq!(minimum[0], 15, "never below a minimum");
}

#[test]
fn a_pool_that_lacks_little_takes_nothing() {
    // It has two thirds of what the other one has.
    for (ratio, expected) in [(0.6, 8), (0.7, 10)] {
        let mut world = filled(&[100, 100], |it| it.scheduling.share_starving_ratio = ratio);
        world.release("2026.1", &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(held_after_a_minute(world, taking(1..=20, 1, 100))[1], expected, "{ratio}");
    }
}

#[test]
fn protected_grants_are_not_taken_back() {
    type Rule = fn(&mut Settings);
    fn group(settings: &mut Settings, name: &str, change: fn(&mut QueueRules)) {
        change(settings.pools.queues.groups.entry(name.into()).or_default());
    }
    let cases: [(&str, i64, Rule); 8] = [
        ("nothing is protected", 10, |_| {}),
        ("its pool", 20, |settings| pool(settings, "g.v", |it| it.preemptable = false)),
        ("its group", 20, |settings| {
            group(settings, "g", |rules| rules.preemption = PreemptionRule::Disabled);
        }),
        ("a fence around the other", 20, |settings| {
            group(settings, "f", |rules| rules.preemption = PreemptionRule::Fence);
        }),
        ("a fence around both", 10, |settings| {
            group(settings, "outer", |rules| rules.preemption = PreemptionRule::Fence);
            group(settings, "f", |rules| rules.parent = Some("outer".into()));
            group(settings, "g", |rules| rules.parent = Some("outer".into()));
        }),
        ("young grants", 20, |settings| {
            group(settings, "g", |rules| rules.min_runtime_ms = Some(100_000));
        }),
        ("old grants", 20, |settings| {
            settings.scheduling.preempted_task_max_running_time_ms = 100;
            settings.scheduling.preemption_rounds = 4;
        }),
        ("grants that are old enough after some doublings", 10, |settings| {
            settings.scheduling.preempted_task_max_running_time_ms = 100;
            settings.scheduling.preemption_rounds = 10;
        }),
    ];
    for (what, expected, rule) in cases {
        let mut world = filled(&[100, 100], rule);
        world.session("2026.2", "f.p", taking(1..=20, 1, 100));
        world.wait(60_000);
        assert_eq!(world.holds("2026.1", Map), expected, "{what}");
    }
    let protected = |settings: &mut Settings| {
        pool(settings, "g.v", |_| {});
        let rules = settings.pools.queues.pools.entry(PoolName::new("g", "v")).or_default();
        rules.preemption = PreemptionRule::Disabled;
    };
    let mut world = filled(&[100], protected);
    world.start_with("2026.2", "g.w", |info| info.no_preempt = Some(true)).unwrap();
    node(&mut world, "n2", 20, 1_000);
    world.ask("2026.2", taking(1..=10, 1, 100));
    world.session("2026.3", "f.p", taking(1..=20, 1, 100));
    world.wait(60_000);
    assert_eq!(world.held(3), [10, 10, 0], "a queue and a session that are protected");
}

/// A pool with small tasks would fill what a large one leaves, and take it from the other one again and again.
#[test]
fn pools_do_not_take_the_same_room_from_each_other_in_turn() {
    let mut world = filled(&[200, 200, 200, 50], |_| {});
    world.ask("2026.1", taking(1_000..=1_050, 1, 50));
    world.session("2026.2", "g.p", taking(1..=40, 1, 100));
    let mut taken = [0, 0];
    for second in 0..120 {
        world.wait(1_000);
        let ids = ["2026.1", "2026.2"].map(|handle| revoked(&mut world, handle));
        if second > 60 {
            assert_eq!(ids, [[0; 0], [0; 0]], "second {second}");
        }
        for (taken, ids) in taken.iter_mut().zip(&ids) {
            *taken += ids.len();
        }
        // As job trackers do, the first asks again for what it has lost.
        world.release("2026.1", &ids[0]);
        world.ask("2026.1", taking(2_000 + second..=2_000 + second, 1, 50));
    }
    assert!(taken[0] > 0 && taken[1] == 0, "{taken:?}");
}

#[test]
fn small_requests_do_not_get_the_room() {
    let mut world = filled(&[100, 100], |_| {});
    world.ask("2026.1", taking(100..=150, 1, 100));
    world.session("2026.2", "g.p", taking(1..=1, 1, 600));
    world.wait(2_100);
    assert_eq!(world.granted("2026.2"), [1]);
    world.wait(60_000);
    assert_eq!(revoked(&mut world, "2026.1").len(), 6, "nothing is taken back twice");
}

#[test]
fn a_grant_of_a_round_is_not_taken_back_in_it() {
    let mut world = filled(&[100, 100], |settings| {
        pool(settings, "g.p", |it| it.minimum[Map] = 6);
    });
    for (handle, pool) in [("2026.2", "g.q"), ("2026.3", "g.p")] {
        world.session(handle, pool, taking(1..=20, 1, 100));
    }
    world.wait(60_000);
    let [q, p] = ["2026.2", "2026.3"].map(|handle| revoked(&mut world, handle));
    assert_eq!((q, p), (vec![], vec![]), "only the first had too much");
    let held = world.held(3);
    assert!(held.iter().all(|held| (6..=7).contains(held)), "{held:?}");
}

fn at_most(settings: &mut Settings, group: &str, maximum: i32) {
    let limits = settings.pools.groups.entry(group.into()).or_default();
    limits.maximum = PerType::all(maximum);
}

#[test]
fn two_pools_of_a_group_do_not_exceed_its_maximum() {
    let mut world = preempting(|settings| at_most(settings, "g", 1));
    node(&mut world, "n1", 20, 1_000);
    world.session("2026.1", "h.v", taking(1..=10, 1, 100));
    for (handle, pool) in [("2026.2", "g.a"), ("2026.3", "g.b")] {
        world.session(handle, pool, taking(1..=5, 1, 100));
    }
    world.wait(60_000);
    let held = ["2026.2", "2026.3"].map(|handle| world.holds(handle, Map));
    assert_eq!(held.iter().sum::<i64>(), 1, "{held:?}");
}

#[test]
fn pools_of_a_full_group_share_it() {
    let world = filled(&[100], |settings| at_most(settings, "g", 10));
    assert_eq!(held_after_a_minute(world, taking(1..=10, 1, 100)), [5, 5]);
}

#[test]
fn pools_of_no_weight_do_not_take_from_each_other_without_end() {
    let world = filled(&[100], |settings| {
        for name in ["g.v", "g.p"] {
            pool(settings, name, |it| it.weight = 0.0);
        }
    });
    let held = held_after_a_minute(world, taking(1..=1, 1, 1_000));
    assert_eq!(held[0], 10, "it would hold all of the cluster");
}

#[test]
fn a_round_ends_when_it_has_looked_at_enough() {
    let mut world = preempting(|settings| {
        settings.resources.requested = PerType::all(corona_model::resources::Amounts([1, 1, 0, 0]));
    });
    // More grants than a round looks at, none of which may be taken back.
    for (number, slots) in [(1, 30_000), (2, 30_000), (3, 6_000)] {
        let handle = format!("2026.{number}");
        node(&mut world, &format!("n{number}"), slots, slots.into());
        let safe = |info: &mut SessionInfo| info.no_preempt = Some(true);
        world.start_with(&handle, "g.safe", safe).unwrap();
        world.ask(&handle, requests(1..=slots.into(), Map));
    }
    node(&mut world, "n4", 10, 1_000);
    world.session("2026.4", "g.v", taking(1..=10, 1, 100));
    world.session("2026.5", "g.p", taking(1..=1, 1, 100));
    world.wait(1_900);
    assert_eq!(world.holds("2026.5", Map), 0);
    // The image says where it goes on.
    let mut again = world.restored(form::SIXTH);
    for world in [&mut world, &mut again] {
        world.wait(1_100);
        assert_eq!(world.granted("2026.5"), [1]);
    }
    assert_eq!(again.engine.image(), world.engine.image());
}

#[test]
fn the_reason_to_wait_names_preemption() {
    let mut world = filled(&[100, 100], |settings| {
        settings.scheduling.starving_time_for_share_ms = 100_000;
    });
    world.session("2026.2", "g.p", taking(1..=1, 1, 300));
    world.wait(2_000);
    let told = world.reasons("2026.2");
    assert!(
        told.ends_with("its pool is below its share, and preemption for it is due in 1 min 38 s"),
        "{told}"
    );
}

#[test]
fn requests_that_nothing_can_help_do_not_keep_later_ones_waiting() {
    let mut world = filled(&[100, 100], |settings| pool(settings, "g.p", |it| it.weight = 0.1));
    world.start("2026.2", "g.p");
    for id in 1..=9 {
        // Its share would be larger than that of the others.
        world.ask("2026.2", taking(id..=id, 1, 990 + id));
    }
    world.ask("2026.2", taking(10..=10, 1, 50));
    world.wait(10_000);
    assert_eq!(world.granted("2026.2"), [10]);
    // The pool that nothing can help is not forgotten in an image.
    world.restored(form::SIXTH);
}

#[test]
fn protected_young_grants_do_not_hide_older_ones_of_others() {
    let mut world = preempting(|settings| {
        settings.scheduling.starving_time_for_share_ms = i64::MAX / 4;
        pool(settings, "g.w", |it| it.minimum[Map] = 70);
        pool(settings, "h.p", |it| it.minimum[Map] = 1);
    });
    node(&mut world, "n1", 100, 1_000);
    world.session("2026.1", "g.v", taking(1..=30, 1, 10));
    world.now += 10;
    world.session("2026.2", "g.w", taking(31..=100, 1, 10));
    world.session("2026.3", "h.p", taking(1..=1, 1, 10));
    world.wait(3_000);
    assert_eq!(world.held(3), [29, 70, 1]);
}
