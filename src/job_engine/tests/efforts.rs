//! What attempts took, for the proxy job tracker. Spec: mapreduce/09 §G.

use corona_mapreduce::{Counters, PerKind};

use super::*;
use TaskState::{Failed, Killed, Succeeded};

/// A report of an attempt that began and ended at these times.
fn ended(attempt: &str, state: TaskState, start: i64, finish: i64) -> TaskStatus {
    let status = TaskStatus::new(key(attempt), state);
    TaskStatus { start_time_ms: start, finish_time_ms: finish, ..status }
}

fn reading(status: TaskStatus, bytes: i64) -> TaskStatus {
    let mut counters = Counters::default();
    counters.set("org.apache.hadoop.mapred.Task$Counter", "MAP_INPUT_BYTES", bytes);
    counters.set("mine", "MAP_INPUT_BYTES", 7);
    TaskStatus { counters: Some(counters), ..status }
}

#[test]
fn bytes_count_by_the_place_of_the_attempt_that_succeeded() {
    let mut world = world(4, 0);
    for (split, host) in world.job.spec.splits.iter_mut().zip(["a", "b", "x", "y"]) {
        split.hosts = vec![host.into()];
    }
    let racks = [("c", "/r1"), ("d", "/r2"), ("x", "/r1"), ("y", "/r3")];
    world.job.spec.racks = racks.map(|(host, rack)| (host.into(), rack.into())).into();
    world.set_up("m5.0");
    for (id, node) in [(2, "b"), (3, "c"), (4, "d")] {
        world.grant(id, node);
    }
    for (attempt, node, bytes) in
        [("m0.0", "a", 1), ("m1.0", "b", 10), ("m2.0", "c", 100), ("m3.0", "d", 1000)]
    {
        let (start, end) = (world.now.0, world.now.0 + 5);
        world.heartbeat(node, vec![reading(ended(attempt, Succeeded, start, end), bytes)]);
    }
    let efforts = world.job.efforts();
    let bytes =
        (efforts.map_input_bytes, efforts.local_map_input_bytes, efforts.rack_map_input_bytes);
    assert_eq!(bytes, (1111, 11, 100));
    assert_eq!((efforts.failed_ms, efforts.speculative), Default::default());
}

#[test]
fn a_retry_is_not_speculative_and_its_time_counts_by_its_outcome() {
    let mut world = world(2, 0);
    world.set_up("m3.0");
    world.grant(2, "b");
    let start = world.now.0;
    world.after(400);
    world.heartbeat("a", vec![ended("m0.0", Failed, start, start + 300)]);
    world.heartbeat("b", vec![ended("m1.0", Killed, start + 10, start + 50)]);
    // The requests of the second attempts.
    for (id, node) in [(3, "c"), (4, "d")] {
        world.grant(id, node);
    }
    let efforts = world.job.efforts();
    assert_eq!(efforts.failed_ms, PerKind { map: 300, reduce: 0 });
    assert_eq!(efforts.killed_ms, PerKind { map: 40, reduce: 0 });
    assert_eq!(efforts.speculative, PerKind::default());
    assert_eq!(world.job.totals().launched.map, 4);
}

#[test]
fn an_attempt_beside_a_running_one_is_speculative_and_one_of_them_is_wasted() {
    for (wins, wasted_ms) in [(true, 0), (false, 30)] {
        let mut world = super::slow::one_is_slow(0.1);
        world.tick();
        assert_eq!(world.grant(5, "a"), ["launch m3.1 on a with 5"]);
        let start = world.now.0;
        world.after(50);
        let (winner, at, loser, beside) =
            if wins { ("m3.1", "a", "m3.0", "d") } else { ("m3.0", "d", "m3.1", "a") };
        world.heartbeat(at, vec![ended(winner, Succeeded, start, start + 40)]);
        world.heartbeat(beside, vec![ended(loser, Killed, start, start + 30)]);
        let efforts = world.job.efforts();
        assert_eq!(efforts.speculative, PerKind { map: 1, reduce: 0 });
        assert_eq!(efforts.speculative_succeeded.map, u32::from(wins));
        assert_eq!(efforts.speculative_wasted.map, u32::from(!wins));
        assert_eq!(efforts.speculative_wasted_ms.map, wasted_ms);
        assert_eq!(efforts.killed_ms.map, 30);
    }
}

#[test]
fn maps_whose_output_cannot_be_fetched_are_counted() {
    let mut world = fetching();
    for reduce in ["r0.0", "r1.0"] {
        world.heartbeat("b", vec![fetch_failure(reduce, "m0.0")]);
    }
    let counts = |world: &TestJob| {
        let efforts = world.job.efforts();
        (efforts.fetch_failures, efforts.failed_by_fetch_failures)
    };
    assert_eq!(counts(&world), (2, 0));
    world.heartbeat("b", vec![fetch_failure("r2.0", "m0.0")]);
    assert_eq!(counts(&world), (3, 1));
}
