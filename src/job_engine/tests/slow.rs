//! Second attempts at slow tasks. Spec: mapreduce/09 §E.

use super::*;
use TaskState::{CommitPending, Killed, KilledUnclean, Running, Succeeded};

/// Four maps, of which each but the last one is half done after a minute.
pub(super) fn one_is_slow(progress: f32) -> TestJob {
    let mut world = world(4, 0);
    world.set_up("m5.0");
    for (id, node) in [(2, "b"), (3, "c"), (4, "d")] {
        world.grant(id, node);
    }
    world.after(60_000);
    for (attempt, node) in [("m0.0", "a"), ("m1.0", "b"), ("m2.0", "c"), ("m3.0", "d")] {
        let progress = if attempt == "m3.0" { progress } else { 0.5 };
        let report = TaskStatus { progress, ..TaskStatus::new(key(attempt), Running) };
        world.heartbeat(node, vec![report]);
    }
    world
}

#[test]
fn a_task_far_below_the_mean_gets_a_second_attempt_elsewhere() {
    for (progress, slow) in [(0.1, true), (0.5, false)] {
        let mut world = one_is_slow(progress);
        let effects = world.tick();
        assert_eq!(!effects.is_empty(), slow, "{progress}: {effects:?}");
        if slow {
            assert_eq!(effects, ["request 5 MAP not d"]);
            assert_eq!(world.grant(5, "a"), ["launch m3.1 on a with 5"]);
        }
    }
}

#[test]
fn candidates_are_looked_for_every_five_seconds_and_requested_once() {
    let mut world = one_is_slow(0.1);
    assert_eq!(world.tick(), ["request 5 MAP not d"]);
    assert_eq!(world.job.next_deadline(), Some(world.now.plus_ms(5_000)));
    assert_eq!(world.after(4_999).tick(), [""; 0]);
    assert_eq!(world.after(1).tick(), [""; 0], "it was a candidate before");
}

#[test]
fn a_slot_that_comes_too_late_is_returned() {
    let mut world = one_is_slow(0.1);
    world.tick();
    world.report("d", "m3.0", CommitPending);
    assert_eq!(world.grant(5, "a"), ["release 5"]);
    // With the task's success the request is withdrawn.
    let mut world = one_is_slow(0.1);
    world.tick();
    assert_eq!(world.report("d", "m3.0", Succeeded), ["event 1 m3.0 SUCCEEDED", "release 5,4"]);
}

#[test]
fn a_slot_beside_the_slow_attempt_is_of_no_use() {
    let mut world = one_is_slow(0.1);
    world.tick();
    assert_eq!(world.grant(5, "d"), ["release 5"]);
    // Another one may be. Spec: mapreduce/09 §E.
    assert_eq!(world.after(5_000).tick(), ["request 6 MAP not d"]);
    assert_eq!(world.grant(6, "a"), ["launch m3.1 on a with 6"]);
}

#[test]
fn a_request_for_a_second_attempt_that_was_withdrawn_is_filed_again() {
    let revoked = || JobInput::Revoked { ids: vec![RequestId(5)] };
    for lose in [revoked(), JobInput::Resumed] {
        let mut world = one_is_slow(0.1);
        assert_eq!(world.tick(), ["request 5 MAP not d"]);
        assert_eq!(world.apply(lose.clone()), ["request 6 MAP not d", "release 5"], "{lose:?}");
        assert_eq!(world.grant(6, "a"), ["launch m3.1 on a with 6"], "{lose:?}");
    }
    // A node that must not be used is no place for it.
    let mut world = one_is_slow(0.1);
    world.tick();
    let orders = vec![Order::Commit(key("m0.0")), Order::Commit(key("m0.0"))];
    world.apply(JobInput::CallFailed { node: "tracker_a:1".into(), orders });
    assert_eq!(world.grant(5, "a"), ["request 6 MAP not a,d", "release 5"]);
}

#[test]
fn a_request_beside_an_attempt_that_ends_takes_the_host_of_that_one_too() {
    // It may be the only host.
    for (state, records) in [(Killed, "event 1 m3.0 KILLED"), (KilledUnclean, "")] {
        let mut world = one_is_slow(0.1);
        assert_eq!(world.tick(), ["request 5 MAP not d"]);
        let effects = world.report("d", "m3.0", state);
        let expected = [records, "request 6 MAP", "release 5,4"];
        let expected: Vec<&str> = expected.into_iter().filter(|it| !it.is_empty()).collect();
        assert_eq!(effects, expected, "{state:?}");
        world.hosts(TaskKind::Map, &["d"]);
        assert!(world.grant(6, "d")[0].starts_with("launch m3."), "{state:?}");
    }
}

#[test]
fn a_request_for_a_second_attempt_waits_however_long_it_takes() {
    let mut world = one_is_slow(0.1);
    assert_eq!(world.tick(), ["request 5 MAP not d"]);
    world.hosts(TaskKind::Map, &["a", "b", "c", "d"]);
    assert_eq!(world.hosts(TaskKind::Map, &["a", "b", "d"]), [""; 0], "it still excludes one only");
    world.hosts(TaskKind::Map, &[]);
    let wait_ms = JobSettings::default().exclusion_wait_ms;
    assert_eq!(world.after(wait_ms).tick(), [""; 0], "the slow one runs on d");
    assert_eq!(world.grant(5, "b"), ["launch m3.1 on b with 5"]);
}

#[test]
fn the_last_task_counts_as_slow() {
    let mut world = one_is_slow(0.5);
    for (attempt, node) in [("m0.0", "a"), ("m1.0", "b"), ("m2.0", "c")] {
        world.report(node, attempt, Succeeded);
    }
    assert_eq!(world.tick(), ["request 5 MAP not d"]);
}

#[test]
fn fast_and_young_tasks_do_not_count_as_slow() {
    let mut fast = one_is_slow(0.1);
    // At least a thirteenth of the work in a minute: done in less than 800 seconds.
    fast.job.spec.settings.speculation.map.duration_s = 800;
    assert_eq!(fast.tick(), [""; 0]);
    let mut young = one_is_slow(0.1);
    young.job.spec.settings.speculation.map.lag_ms = 60_001;
    assert_eq!(young.tick(), [""; 0]);
    let mut off = one_is_slow(0.1);
    off.job.spec.settings.speculation.map.enabled = false;
    assert_eq!((off.tick().len(), off.job.may_speculate()), (0, false));
    let mut skipping = one_is_slow(0.1);
    skipping.job.spec.settings.max_skipped.map = 1;
    skipping.job.spec.settings.attempts_before_skipping = 0;
    assert_eq!(skipping.tick(), [""; 0]);
}

#[test]
fn the_number_of_second_attempts_is_bounded_and_the_slowest_come_first() {
    let mut world = world(120, 0);
    world.set_up("m121.0");
    for id in 2..=120 {
        world.grant(id, "a");
    }
    world.after(60_000);
    let report = |number: u32| {
        let progress = if number < 20 { 0.01 + 0.001 * number as f32 } else { 0.5 };
        TaskStatus { progress, ..TaskStatus::new(key(&format!("m{number}.0")), Running) }
    };
    world.heartbeat("a", (0..120).map(report).collect());
    let requests = world.tick();
    assert_eq!(requests.len(), 12, "a tenth of those that run");
    let candidates: Vec<bool> = world.job.tasks.map.iter().map(|task| task.candidate).collect();
    assert!(candidates[..12].iter().all(|it| *it) && !candidates[12]);
}

#[test]
fn a_user_may_want_a_second_attempt_at_any_running_task() {
    let mut world = world(2, 0);
    world.set_up("m3.0");
    let want = |number| JobInput::Speculate { kind: TaskKind::Map, number };
    assert_eq!(world.apply(want(0)), ["request 3 MAP not a"]);
    assert_eq!(world.grant(3, "b"), ["launch m0.1 on b with 3"]);
    for number in [0, 1, 7] {
        let outcome = world.job.apply(world.now, want(number));
        assert_eq!(outcome.reply, Err(JobRefusal::UnknownTask), "{number}");
    }
}
