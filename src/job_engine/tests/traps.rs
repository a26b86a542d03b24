//! What goes wrong in the original and must not go wrong here: each marked place of mapreduce/09.

use super::*;
use TaskState::{Failed, FailedUnclean, KilledUnclean, Running, Succeeded};

#[test]
fn exclusions_never_cover_every_host() {
    // mapreduce/09 §A: the original requests what can never be granted, and its job hangs.
    let mut world = world(1, 0);
    world.set_up("m2.0");
    world.hosts(TaskKind::Map, &["a", "b"]);
    assert_eq!(world.report("a", "m0.0", Failed)[1], "request 2 MAP not a");
    world.grant(2, "b");
    // The host where it failed last is still left out: a node that fails everything always has a free slot.
    assert_eq!(world.report("b", "m0.1", Failed)[1], "request 3 MAP not b");
    assert_eq!(world.grant(3, "a"), ["launch m0.2 on a with 3"]);
    assert_eq!(world.report("a", "m0.2", Failed)[1], "request 4 MAP not a");
}

/// A report of a failure for want of room on the disks of the node.
fn no_room(attempt: &str, state: TaskState) -> TaskStatus {
    let diagnostics = "java.io.IOException: No space left on device".to_owned();
    TaskStatus { diagnostics, ..TaskStatus::new(key(attempt), state) }
}

#[test]
fn a_failure_that_is_the_fault_of_the_node_does_not_count_against_the_task() {
    let mut world = world(1, 0);
    world.set_up("m2.0");
    let nodes = ["a", "b", "c", "d", "e"];
    for (number, pair) in nodes.windows(2).enumerate() {
        let attempt = format!("m0.{number}");
        let effects = world.heartbeat(pair[0], vec![no_room(&attempt, Failed)]);
        assert_eq!(effects[0], format!("event {} {attempt} KILLED", number + 1));
        let avoided = nodes[..=number].join(",");
        let request = number + 2;
        assert_eq!(effects[1], format!("request {request} MAP not {avoided}"));
        let launched = format!("launch m0.{} on {} with {request}", number + 1, pair[1]);
        assert_eq!(world.grant(request as i32, pair[1]), [launched]);
    }
    // Four attempts were spared, and four may fail for reasons of their own.
    for (number, node) in [(4, "e"), (5, "f"), (6, "g")] {
        let effects = world.report(node, &format!("m0.{number}"), Failed);
        assert!(effects[0].ends_with("FAILED") && !effects[0].contains("TIP"), "{effects:?}");
        world.grant(number + 2, ["f", "g", "h"][number as usize - 4]);
    }
    assert!(world.report("h", "m0.7", Failed)[0].contains("TIPFAILED"));
}

#[test]
fn leftovers_of_an_attempt_without_room_are_cleaned_up_as_after_a_kill() {
    let mut world = world(1, 0);
    world.set_up("m2.0");
    let effects = world.heartbeat("a", vec![no_room("m0.0", FailedUnclean)]);
    assert_eq!(effects, ["request 2 MAP not a", "release 1"]);
    assert_eq!(world.grant(2, "b"), ["launch m0.0 on b with 2 cleaned, failed false"]);
    assert_eq!(world.report("b", "m0.0", TaskState::Killed)[0], "event 1 m0.0 KILLED");
}

#[test]
fn a_fault_that_follows_a_task_from_node_to_node_counts_in_the_end() {
    let mut world = world(1, 0);
    world.set_up("m2.0");
    world.hosts(TaskKind::Map, &["a", "b"]);
    let allowed = world.job.spec.settings.max_attempts.map as usize + MAX_NODE_FAULTS;
    for number in 0..allowed {
        let (node, next) = if number % 2 == 0 { ("a", "b") } else { ("b", "a") };
        let effects = world.heartbeat(node, vec![no_room(&format!("m0.{number}"), Failed)]);
        let is_last = number + 1 == allowed;
        let expected = if number < MAX_NODE_FAULTS { "KILLED" } else { "FAILED" };
        assert!(effects[0].ends_with(expected), "{effects:?}");
        assert_eq!(effects[0].contains("TIPFAILED"), is_last, "{effects:?}");
        world.grant(number as i32 + 2, next);
    }
}

#[test]
fn a_node_without_room_gets_no_further_tasks_of_the_job() {
    let mut world = world_with(3, 0, |settings| settings.max_node_failures = 1);
    world.set_up("m4.0");
    world.grant(2, "a");
    world.heartbeat("a", vec![no_room("m0.0", Failed), no_room("m1.0", Failed)]);
    assert_eq!(world.grant(3, "a")[0], "request 6 MAP not a", "of a map that has not run yet");
}

#[test]
fn a_request_waits_longer_for_other_hosts_that_work_and_not_for_ever() {
    let mut world = world_with(2, 0, |settings| settings.exclusion_wait_ms = 500);
    world.set_up("m3.0");
    world.grant(2, "b");
    assert_eq!(world.report("a", "m0.0", Failed)[1], "request 3 MAP not a");
    // The node of the other map is busy.
    let patience = 10;
    for _ in 1..patience {
        assert_eq!(world.after(500).tick(), [""; 0]);
    }
    assert_eq!(world.after(500).tick(), ["request 4 MAP", "release 3"]);
    assert_eq!(world.grant(4, "a"), ["launch m0.1 on a with 4"]);
}

#[test]
fn a_job_on_one_host_goes_on_after_a_failure() {
    let mut world = world(1, 0);
    world.set_up("m2.0");
    world.hosts(TaskKind::Map, &["a"]);
    assert_eq!(world.report("a", "m0.0", FailedUnclean), ["request 2 MAP", "release 1"]);
    assert_eq!(world.grant(2, "a"), ["launch m0.0 on a with 2 cleaned, failed true"]);
    assert_eq!(world.report("a", "m0.0", Failed)[1], "request 3 MAP");
    assert_eq!(world.grant(3, "a"), ["launch m0.1 on a with 3"]);
}

#[test]
fn exclusions_are_dropped_when_the_last_other_host_is_gone() {
    let mut world = world(1, 0);
    world.set_up("m2.0");
    world.hosts(TaskKind::Map, &["a", "b"]);
    assert_eq!(world.report("a", "m0.0", Failed)[1], "request 2 MAP not a");
    assert_eq!(world.hosts(TaskKind::Map, &["a", "b", "c"]), [""; 0]);
    assert_eq!(world.hosts(TaskKind::Map, &["a"]), ["request 3 MAP", "release 2"]);
}

#[test]
fn exclusions_are_dropped_after_a_while_where_it_is_not_known_which_hosts_there_are() {
    let mut world = world_with(1, 0, |settings| settings.exclusion_wait_ms = 500);
    world.set_up("m2.0");
    assert_eq!(world.report("a", "m0.0", Failed)[1], "request 2 MAP not a");
    assert_eq!(world.job.next_deadline(), Some(world.now.plus_ms(500)));
    assert_eq!(world.after(500).tick(), ["request 3 MAP", "release 2"]);
    assert_eq!(world.grant(3, "a"), ["launch m0.1 on a with 3"]);
    // The cluster may only have been busy: other hosts are tried first again.
    assert_eq!(world.report("a", "m0.1", Failed)[1], "request 4 MAP not a");
    assert_eq!(world.grant(4, "a"), ["request 5 MAP not a", "release 4"]);
    assert_eq!(world.grant(5, "b"), ["launch m0.2 on b with 5"]);
}

#[test]
fn a_slot_on_the_only_host_left_is_used_though_its_node_is_faulty() {
    let mut world = world_with(2, 0, |settings| settings.max_failed_connections = 0);
    world.set_up("m3.0");
    world.hosts(TaskKind::Map, &["a"]);
    let node = "tracker_a:1".into();
    world.apply(JobInput::CallFailed { node, orders: vec![Order::Launch(key("m0.0"))] });
    assert_eq!(world.grant(2, "a"), ["launch m1.0 on a with 2"]);
}

#[test]
fn a_job_without_any_task_is_set_up_and_cleaned_up_after() {
    // mapreduce/09 §D: the original requests nothing and waits until it is killed.
    let mut world = world(0, 0);
    assert_eq!(world.submit(), ["request 1 MAP"]);
    assert_eq!(world.grant(1, "a"), ["launch m1.0 on a with 1 as set-up"]);
    assert_eq!(
        world.report("a", "m1.0", Succeeded),
        ["event 0 m1.0 SUCCEEDED", "launch m0.0 on a with 1 as clean-up Succeeded"]
    );
    assert_eq!(world.report("a", "m0.0", Succeeded).last().unwrap(), "end SUCCESSFUL");
}

#[test]
fn a_slot_whose_task_has_used_up_its_numbers_is_returned() {
    // mapreduce/09 §B: the original looks at it forever.
    let mut world = world_with(2, 0, |settings| settings.max_attempts.map = 1);
    world.set_up("m3.0");
    assert_eq!(
        world.apply(JobInput::Speculate { kind: TaskKind::Map, number: 0 }),
        ["request 3 MAP not a"]
    );
    world.job.spec.settings.max_attempts.map = 0;
    assert_eq!(world.grant(3, "b"), ["release 3"]);
}

#[test]
fn leftovers_of_a_slower_attempt_are_cleaned_up() {
    // mapreduce/09 §A: the original gives the slot back, and the attempt never ends.
    let mut world = world(2, 0);
    world.set_up("m3.0");
    world.apply(JobInput::Speculate { kind: TaskKind::Map, number: 0 });
    world.grant(3, "b");
    world.report("b", "m0.1", Succeeded);
    assert_eq!(world.report("a", "m0.0", KilledUnclean), ["request 4 MAP", "release 1"]);
    assert_eq!(world.grant(4, "c"), ["launch m0.0 on c with 4 cleaned, failed false"]);
    assert_eq!(world.report("c", "m0.0", TaskState::Killed), ["event 2 m0.0 KILLED", "release 4"]);
}

#[test]
fn an_attempt_that_waits_to_be_cleaned_up_after_is_booked_when_the_job_ends() {
    let mut world = world(1, 0);
    world.set_up("m2.0");
    world.apply(JobInput::Speculate { kind: TaskKind::Map, number: 0 });
    world.grant(2, "b");
    world.report("a", "m0.0", KilledUnclean);
    assert_eq!(
        world.report("b", "m0.1", Succeeded),
        [
            "event 1 m0.1 SUCCEEDED",
            "event 2 m0.0 KILLED",
            "launch m1.0 on b with 2 as clean-up Succeeded",
            "release 3"
        ]
    );
}

#[test]
fn a_clean_up_whose_slot_is_lost_gets_another_one() {
    // mapreduce/09 §I: the original's request for it belongs to no task, and its look-up fails.
    let mut world = world(1, 0);
    world.set_up("m2.0");
    assert_eq!(
        world.report("a", "m0.0", Succeeded)[1],
        "launch m1.0 on a with 1 as clean-up Succeeded"
    );
    assert_eq!(world.lose("a"), ["event 2 m1.0 KILLED", "request 2 MAP", "release 1"]);
    assert_eq!(world.grant(2, "b"), ["launch m1.1 on b with 2 as clean-up Succeeded"]);
}

#[test]
fn a_set_up_whose_slot_is_lost_gets_another_one() {
    let mut world = world(0, 0);
    world.submit();
    world.grant(1, "a");
    assert_eq!(world.lose("a"), ["event 0 m1.0 KILLED", "request 2 MAP", "release 1"]);
    assert_eq!(world.grant(2, "b"), ["launch m1.1 on b with 2 as set-up"]);
}

#[test]
fn attempts_that_are_killed_for_ever_fail_their_task_in_the_end() {
    let mut world = world_with(1, 0, |settings| settings.max_killed_attempts = 3);
    world.set_up("m2.0");
    for number in 0..3 {
        world.report("a", &format!("m0.{number}"), Running);
        world.report("a", &format!("m0.{number}"), TaskState::Killed);
        world.grant(number + 2, "a");
    }
    assert_eq!(world.events().last().unwrap(), "m0.2 TIPFAILED");
    assert_eq!(world.report("a", "m1.0", Succeeded).last().unwrap(), "end FAILED");
}
