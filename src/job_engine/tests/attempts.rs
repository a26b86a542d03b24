//! What reports lead to. Spec: mapreduce/05 §5.5, mapreduce/09 §A, §C.

use super::*;
use TaskState::{
    CommitPending, Failed, FailedUnclean, Killed, KilledUnclean, Running, Succeeded, Unassigned,
};
use corona_mapreduce::{Counters, JobState};

const NOTHING: [&str; 0] = [];

/// A job whose first map runs on `a`, and whose second one waits for slot 2.
fn mapping() -> TestJob {
    let mut world = world(2, 0);
    world.set_up("m3.0");
    world
}

#[test]
fn a_final_state_counts_once_and_nothing_follows_it() {
    // Spec: mapreduce/05 §5.5.
    let mut world = mapping();
    world.report("a", "m0.0", Succeeded);
    for state in [Succeeded, Running, Failed, FailedUnclean, CommitPending, Unassigned] {
        assert_eq!(world.report("a", "m0.0", state), NOTHING, "{state:?}");
    }
    assert_eq!(world.events(), ["m3.0 SUCCEEDED", "m0.0 SUCCEEDED"]);
}

#[test]
fn an_attempt_that_goes_on_after_its_end_is_killed() {
    // Spec: mapreduce/09 §A.
    let mut world = mapping();
    world.report("a", "m0.0", Killed);
    for _ in 0..2 {
        assert_eq!(world.report("a", "m0.0", Running), ["kill m0.0 on a"]);
    }
    assert_eq!(world.report("a", "m0.0", Killed), NOTHING);
}

#[test]
fn reports_that_cannot_be_true_change_nothing() {
    let mut world = mapping();
    world.grant(2, "b");
    // Attempts that do not exist, and attempts that run elsewhere.
    for attempt in ["m0.7", "m9.0", "r0.0", "r4000000000.0", "m1.0"] {
        assert_eq!(world.report("a", attempt, Failed), NOTHING, "{attempt}");
    }
    let unknown = JobInput::Heartbeat {
        node: "nobody".into(),
        host: "a".into(),
        http_port: 1,
        reports: vec![TaskStatus::new(key("m0.0"), Failed)],
    };
    assert_eq!(world.job.apply(world.now, unknown).reply, Err(JobRefusal::UnknownNode));
    let odd = TaskStatus {
        progress: f32::NAN,
        start_time_ms: -5,
        finish_time_ms: i64::MAX,
        next_records: RecordRange { start: i64::MIN, length: i64::MAX },
        ..TaskStatus::new(key("m0.0"), Running)
    };
    assert_eq!(world.heartbeat("a", vec![odd]), NOTHING);
    let progress = world.job.task_view(key("m0.0").task).unwrap().progress;
    assert_eq!(progress, 0.0);
    assert_eq!(world.report("b", "m1.0", Succeeded)[0], "event 1 m1.0 SUCCEEDED");
}

#[test]
fn exactly_one_attempt_commits() {
    // Spec: mapreduce/05 §5.5, mapreduce/09 §A.
    let mut world = mapping();
    world.apply(JobInput::Speculate { kind: TaskKind::Map, number: 0 });
    assert_eq!(world.grant(3, "b"), ["launch m0.1 on b with 3"]);
    assert_eq!(world.report("b", "m0.1", CommitPending), ["commit m0.1 on b"]);
    // The other one is killed; the order to the first is repeated while it waits.
    assert_eq!(world.report("a", "m0.0", CommitPending), ["kill m0.0 on a"]);
    assert_eq!(world.report("b", "m0.1", CommitPending), ["commit m0.1 on b"]);
    assert_eq!(world.report("a", "m0.0", CommitPending), ["kill m0.0 on a"]);
    // A success without permission is none.
    assert_eq!(world.report("a", "m0.0", Succeeded), ["event 1 m0.0 KILLED", "release 1"]);
    assert_eq!(world.report("b", "m0.1", Succeeded)[0], "event 2 m0.1 SUCCEEDED");
}

#[test]
fn another_attempt_commits_only_when_the_chosen_one_has_ended() {
    let mut world = mapping();
    world.apply(JobInput::Speculate { kind: TaskKind::Map, number: 0 });
    world.grant(3, "b");
    world.report("a", "m0.0", CommitPending);
    assert_eq!(world.lose("a")[..1], ["event 1 m0.0 KILLED"]);
    assert_eq!(world.report("b", "m0.1", CommitPending), ["commit m0.1 on b"]);
}

#[test]
fn the_slower_attempt_is_killed_when_its_task_is_complete() {
    let mut world = mapping();
    world.apply(JobInput::Speculate { kind: TaskKind::Map, number: 0 });
    world.grant(3, "b");
    assert_eq!(
        world.report("b", "m0.1", Succeeded),
        ["event 1 m0.1 SUCCEEDED", "kill m0.0 on a", "release 3"]
    );
    // The order may be lost, so each report repeats it. Its slot goes back when it has ended.
    assert_eq!(world.report("a", "m0.0", Running), ["kill m0.0 on a"]);
    assert_eq!(world.report("a", "m0.0", Killed), ["event 2 m0.0 KILLED", "release 1"]);
}

#[test]
fn an_unclean_end_is_cleaned_up_after_before_the_next_attempt() {
    // Spec: mapreduce/09 §A.
    let mut world = mapping();
    assert_eq!(world.report("a", "m0.0", FailedUnclean), ["request 3 MAP not a", "release 1"]);
    assert_eq!(world.grant(3, "b"), ["launch m0.0 on b with 3 cleaned, failed true"]);
    assert_eq!(world.report("b", "m0.0", FailedUnclean), NOTHING);
    // The host that only cleaned up is not blamed.
    assert_eq!(
        world.report("b", "m0.0", Failed),
        ["event 1 m0.0 FAILED", "request 4 MAP not a", "release 3"]
    );
    assert_eq!(world.grant(4, "b"), ["launch m0.1 on b with 4"]);
    // A kill excludes no host.
    assert_eq!(world.report("b", "m0.1", KilledUnclean), ["request 5 MAP not a", "release 4"]);
    assert_eq!(world.grant(5, "b"), ["launch m0.1 on b with 5 cleaned, failed false"]);
    assert_eq!(world.report("b", "m0.1", Killed)[0], "event 2 m0.1 KILLED");
}

#[test]
fn both_attempts_at_a_task_may_be_cleaned_up_after() {
    let mut world = mapping();
    world.apply(JobInput::Speculate { kind: TaskKind::Map, number: 0 });
    world.grant(3, "b");
    assert_eq!(world.report("a", "m0.0", FailedUnclean), ["request 4 MAP not a", "release 1"]);
    assert_eq!(world.report("b", "m0.1", KilledUnclean), ["request 5 MAP not a", "release 4,3"]);
    assert_eq!(
        world.grant(5, "c"),
        ["launch m0.0 on c with 5 cleaned, failed true", "request 6 MAP not a"]
    );
    assert_eq!(world.grant(6, "c"), ["launch m0.1 on c with 6 cleaned, failed false"]);
}

#[test]
fn attempts_are_not_cleaned_up_after_where_the_job_does_without() {
    let mut world = world_with(1, 0, |settings| settings.task_cleanup_needed = false);
    world.set_up("m2.0");
    assert_eq!(
        world.report("a", "m0.0", FailedUnclean),
        ["event 1 m0.0 FAILED", "request 2 MAP not a", "release 1"]
    );
}

#[test]
fn a_clean_up_that_is_lost_is_not_repeated() {
    let mut world = mapping();
    world.report("a", "m0.0", FailedUnclean);
    world.grant(3, "b");
    assert_eq!(world.lose("b"), ["event 1 m0.0 FAILED", "request 4 MAP not a", "release 3"]);
}

#[test]
fn a_clean_up_that_is_silent_is_given_up_however_late_it_began() {
    let mut world = mapping();
    world.hosts(TaskKind::Map, &["a", "b"]);
    world.report("a", "m0.0", Running);
    world.report("a", "m0.0", FailedUnclean);
    // The time-out of the attempt itself passes while its clean-up waits for a slot.
    world.after(30 * 60_000).tick();
    assert_eq!(world.grant(3, "b"), ["launch m0.0 on b with 3 cleaned, failed true"]);
    let late = world.after(30 * 60_000).tick();
    assert_eq!(late[..2], ["kill m0.0 on b", "event 1 m0.0 FAILED"], "{late:?}");
}

#[test]
fn a_kill_by_a_user_counts_as_the_user_says() {
    // Spec: mapreduce/09 §A.
    let mut world = mapping();
    let kill = |fail| JobInput::KillAttempt { attempt: key("m0.0"), fail };
    let ask = |world: &mut TestJob, fail| world.job.apply(world.now, kill(fail)).reply;
    assert_eq!(ask(&mut world, true), Ok(JobReply::Killed(false)), "it was not heard of");
    world.report("a", "m0.0", Running);
    assert_eq!(ask(&mut world, true), Ok(JobReply::Killed(true)));
    assert_eq!(ask(&mut world, true), Ok(JobReply::Killed(false)), "it is being killed");
    assert_eq!(world.report("a", "m0.0", Running), ["kill m0.0 on a"]);
    assert_eq!(world.report("a", "m0.0", Killed)[0], "event 1 m0.0 FAILED");
    assert_eq!(ask(&mut world, true), Ok(JobReply::Killed(false)), "it has ended");
    let unknown = JobInput::KillAttempt { attempt: key("m0.9"), fail: false };
    assert_eq!(world.job.apply(world.now, unknown).reply, Err(JobRefusal::UnknownAttempt));
}

#[test]
fn a_success_on_the_kill_list_is_a_kill() {
    // Spec: mapreduce/05 §5.5.
    let mut world = mapping();
    world.report("a", "m0.0", Running);
    world.apply(JobInput::KillAttempt { attempt: key("m0.0"), fail: false });
    assert_eq!(world.report("a", "m0.0", Succeeded)[0], "event 1 m0.0 KILLED");
}

#[test]
fn fetch_failures_fail_a_map_whose_event_becomes_obsolete() {
    // Three reports, and half of the running reduces or more than the limit. Spec: mapreduce/09 §A.
    let mut world = fetching();
    let fetch = |world: &mut TestJob, reduce: &str| {
        world.heartbeat("b", vec![fetch_failure(reduce, "m0.0")])
    };
    assert_eq!(fetch(&mut world, "r0.0"), NOTHING);
    assert_eq!(fetch(&mut world, "r1.0"), NOTHING);
    assert_eq!(
        fetch(&mut world, "r2.0"),
        ["obsolete 1", "event 2 m0.0 FAILED", "request 7 MAP not a"]
    );
    assert_eq!(world.events(), ["m2.0 SUCCEEDED", "m0.0 OBSOLETE", "m0.0 FAILED"]);
    assert_eq!(fetch(&mut world, "r3.0"), NOTHING, "it is known already");
    assert_eq!(world.grant(7, "b"), ["launch m0.1 on b with 7"]);
}

#[test]
fn a_fetch_failure_that_fails_the_job_ends_the_reduce_that_reported_it() {
    let mut world = world_with(1, 1, |settings| settings.max_attempts.map = 1);
    world.set_up("m2.0");
    world.grant(2, "b");
    world.report("a", "m0.0", Succeeded);
    let mut report = fetch_failure("r0.0", "m0.0");
    if let Some(reduce) = &mut report.reduce {
        reduce.failed_fetches = vec![key("m0.0"); 3];
    }
    let effects = world.heartbeat("b", vec![report]);
    assert_eq!(effects[1], "event 2 m0.0 TIPFAILED");
    assert_eq!(effects[3], "event 3 r0.0 KILLED");
    let reduce = world.job.task_view(key("r0.0").task).unwrap();
    assert_eq!(reduce.attempts[0].state, Killed);
}

#[test]
fn few_fetch_failures_of_many_reduces_do_not_fail_a_map() {
    let mut world = world_with(1, 5, |settings| settings.max_fetch_failures = 4);
    world.set_up("m2.0");
    for id in 2..=6 {
        world.grant(id, "b");
    }
    // Pretend that there are many reduces: only the other limit counts.
    world.job.counts.reduce.live += 100;
    let outcomes: Vec<_> = {
        let job = &mut world.job;
        let beat = |reports| JobInput::Heartbeat {
            node: "tracker_b:1".into(),
            host: "b".into(),
            http_port: 1,
            reports,
        };
        let success = JobInput::Heartbeat {
            node: "tracker_a:1".into(),
            host: "a".into(),
            http_port: 1,
            reports: vec![TaskStatus::new(key("m0.0"), Succeeded)],
        };
        job.apply(world.now, success);
        let reports = || vec![fetch_failure("r0.0", "m0.0")];
        (0..5).map(|_| job.apply(world.now, beat(reports())).effects.is_empty()).collect()
    };
    assert_eq!(outcomes, [true, true, true, true, false]);
}

#[test]
fn bad_records_are_found_by_halves_and_skipped() {
    // Spec: mapreduce/09 §C.
    let mut world = world_with(1, 0, |settings| {
        settings.max_skipped.map = 1;
        settings.max_attempts.map = 10;
    });
    world.set_up("m2.0");
    for (slot, node) in [(2, "b"), (3, "c")] {
        let attempt = format!("m0.{}", slot - 2);
        let at = if slot == 2 { "a" } else { "b" };
        world.heartbeat(at, vec![failure_at(&attempt, 10, 4)]);
        world.grant(slot, node);
    }
    // The second failure was the test of records 10 and 11: they are bad, and 10 is tested next.
    let launch = world.last.iter().find_map(|effect| match effect {
        JobEffect::Launch(launch) => Some(launch.work.clone()),
        _ => None,
    });
    let Some(Work::Task { skip, skipping, write_skipped }) = launch else { panic!("{launch:?}") };
    assert_eq!((skipping, write_skipped), (true, false));
    let skipped: Vec<_> = skip.ranges().iter().map(|range| (range.start, range.end())).collect();
    assert_eq!(skipped, [(0, 10), (11, i64::MAX)]);
    // A test that succeeds is no success: the other half is bad.
    assert_eq!(world.report("c", "m0.2", Succeeded)[0], "event 3 m0.2 FAILED");
    assert_eq!(world.grant(4, "d"), ["launch m0.3 on d with 4 skipping 1 true"]);
    assert_eq!(world.report("d", "m0.3", Succeeded)[0], "event 4 m0.3 SUCCEEDED");
}

/// A job of one map, whose attempt on `b` tests record 10. Record 11 is the other suspect.
fn testing() -> TestJob {
    let mut world = world_with(1, 0, |settings| settings.max_skipped.map = 1);
    world.set_up("m2.0");
    world.heartbeat("a", vec![failure_at("m0.0", 10, 2)]);
    assert_eq!(world.grant(2, "b"), ["launch m0.1 on b with 2"]);
    world
}

#[test]
fn a_test_of_some_records_does_not_commit() {
    // However it ends: record 10 is good, so record 11 is bad.
    for end in [Some(Killed), Some(KilledUnclean), Some(Failed), Some(Succeeded), None] {
        let mut world = testing();
        for _ in 0..2 {
            assert_eq!(world.report("b", "m0.1", CommitPending), ["kill m0.1 on b"], "{end:?}");
        }
        match end {
            Some(end) => world.report("b", "m0.1", end),
            None => world.lose("b"),
        };
        let mut slot = 3;
        if end == Some(KilledUnclean) {
            assert_eq!(world.grant(3, "c"), ["launch m0.1 on c with 3 cleaned, failed true"]);
            world.report("c", "m0.1", Failed);
            slot = 4;
        }
        assert_eq!(world.events().last().unwrap(), "m0.1 FAILED", "{end:?}");
        assert!(world.job.nodes.iter().all(|node| node.failed == 0), "no node is to blame");
        let launch = format!("launch m0.2 on d with {slot} skipping 1 true");
        assert_eq!(world.grant(slot, "d"), [launch], "{end:?}");
        assert_eq!(world.report("d", "m0.2", CommitPending), ["commit m0.2 on d"]);
    }
}

#[test]
fn a_test_that_a_user_fails_is_repeated() {
    let mut world = testing();
    world.report("b", "m0.1", Running);
    world.apply(JobInput::KillAttempt { attempt: key("m0.1"), fail: true });
    world.report("b", "m0.1", Killed);
    world.grant(3, "c");
    let skips = |effect: &JobEffect| match effect {
        JobEffect::Launch(Launch { work: Work::Task { skip, .. }, .. }) => Some(skip.clone()),
        _ => None,
    };
    let skip = world.last.iter().find_map(skips).unwrap();
    let skipped: Vec<_> = skip.ranges().iter().map(|range| (range.start, range.end())).collect();
    assert_eq!(skipped, [(0, 10), (11, i64::MAX)]);
}

#[test]
fn counters_are_summed_and_bounded() {
    // Spec: mapreduce/09 §F.
    let mut world = world_with(2, 0, |settings| settings.counters.counters = 2);
    world.set_up("m3.0");
    world.grant(2, "b");
    let report = |attempt: &str, counters: &[(&str, i64)]| {
        let mut all = Counters::default();
        counters.iter().for_each(|(name, value)| all.set("g", name, *value));
        TaskStatus { counters: Some(all), ..TaskStatus::new(key(attempt), Succeeded) }
    };
    world.heartbeat("a", vec![report("m0.0", &[("x", 3), ("y", 4)])]);
    let greedy = world.heartbeat("b", vec![report("m1.0", &[("x", 1), ("z", 1)])]);
    assert_eq!(greedy[0], "m1.0 loses 1 counters");
    let counters = world.job.counters();
    assert_eq!((counters.get("g", "x"), counters.get("g", "y")), (Some(4), Some(4)));
    assert_eq!(counters.get("g", "z"), None);
    let own = "org.apache.hadoop.mapred.JobInProgress$Counter";
    assert_eq!(counters.get(own, "TOTAL_LAUNCHED_MAPS"), Some(2));
}

#[test]
fn texts_are_cut() {
    let mut world = world_with(1, 0, |settings| settings.max_text_bytes = 10);
    world.set_up("m2.0");
    for _ in 0..3 {
        let report = TaskStatus {
            diagnostics: "é".repeat(4),
            state_string: "x".repeat(1000),
            ..TaskStatus::new(key("m0.0"), Running)
        };
        world.heartbeat("a", vec![report]);
    }
    let view = world.job.task_view(key("m0.0").task).unwrap();
    assert_eq!(view.attempts[0].state_string.len(), 10);
    assert!(view.attempts[0].diagnostics.len() <= 11, "{}", view.attempts[0].diagnostics);
    assert_eq!(world.job.state(), JobState::Running);
}
