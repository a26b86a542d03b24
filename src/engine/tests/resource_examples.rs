//! The examples of `docs/operate/resources.md`.

use super::resources::{counting, node, taking};
use super::*;

#[test]
fn shares_of_different_resources_are_equal() {
    for (cpus, expected) in [(2, [7, 6]), (4, [3, 8])] {
        let mut world = counting(|_| {});
        for (handle, pool, cpus, memory_mb) in
            [("2026.1", "g.a", cpus, 50), ("2026.2", "g.b", 1, 100)]
        {
            world.session(handle, pool, taking(1..=20, cpus, memory_mb));
        }
        node(&mut world, "n1", 20, 1_000);
        assert_eq!(world.held(2), expected);
    }
}

#[test]
fn a_node_is_kept_for_a_large_request_when_it_was_passed_over_for_a_minute() {
    let mut world = counting(|settings| {
        settings.resources.reservation.0.0 = 60_000;
        settings.session_expiry_ms = i64::MAX / 4;
        settings.node_expiry_ms = i64::MAX / 4;
    });
    node(&mut world, "n1", 20, 1_000);
    world.session("2026.1", "g.small", taking(1..=30, 1, 100));
    world.session("2026.2", "g.large", taking(1..=1, 1, 600));
    world.release("2026.1", &[1]);
    assert_eq!(world.holds("2026.1", Map), 10);
    world.wait(62_000);
    world.release("2026.1", &[3, 5, 7, 9, 11]);
    assert_eq!(world.held(2), [5, 0]);
    world.release("2026.1", &[13]);
    assert_eq!(world.held(2), [4, 1]);
}

#[test]
fn preemption_ends_when_both_pools_hold_as_much() {
    let mut world = counting(|settings| {
        settings.session_expiry_ms = i64::MAX / 4;
        settings.node_expiry_ms = i64::MAX / 4;
        // The tasks of the first pool run for minutes.
        settings.scheduling.preempted_task_max_running_time_ms = 3_600_000;
    });
    for name in ["n1", "n2", "n3"] {
        node(&mut world, name, 20, 1_000);
    }
    world.session("2026.1", "g.a", taking(1..=40, 1, 100));
    world.session("2026.2", "g.b", taking(1..=10, 1, 300));
    world.wait(299_000);
    assert_eq!(world.held(2), [30, 0]);
    world.wait(1_800_000);
    assert_eq!(world.held(2), [15, 5]);
}
