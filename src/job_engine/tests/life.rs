//! From submission to the end. Spec: mapreduce/05 §5.3, §5.6, mapreduce/09 §D.

use super::*;
use TaskState::{CommitPending, Failed, Running, Succeeded};
use corona_mapreduce::JobState;
use corona_model::types::SessionPriority;

#[test]
fn a_job_is_set_up_mapped_reduced_and_cleaned_up_after() {
    let mut world = world(2, 1);
    assert_eq!(world.submit(), ["request 1 MAP", "request 2 MAP", "request 3 REDUCE"]);
    // The first grant runs the set-up, and other maps wait for it.
    assert_eq!(world.grant(1, "a"), ["launch m3.0 on a with 1 as set-up"]);
    assert_eq!(world.grant(2, "b"), [""; 0]);
    // A reduce starts beside the set-up: it only copies. Spec: mapreduce/09 §A.
    assert_eq!(world.grant(3, "b"), ["launch r0.0 on b with 3"]);
    // Its slot is kept, since it belongs to a map.
    assert_eq!(
        world.report("a", "m3.0", Succeeded),
        ["event 0 m3.0 SUCCEEDED", "launch m0.0 on a with 1", "launch m1.0 on b with 2"]
    );
    assert_eq!(world.report("a", "m0.0", Running), [""; 0]);
    assert_eq!(world.report("a", "m0.0", Succeeded), ["event 1 m0.0 SUCCEEDED", "release 1"]);
    assert_eq!(world.report("b", "m1.0", CommitPending), ["commit m1.0 on b"]);
    assert_eq!(world.report("b", "m1.0", Succeeded), ["event 2 m1.0 SUCCEEDED", "release 2"]);
    // The last slot of the work runs the clean-up.
    assert_eq!(
        world.report("b", "r0.0", Succeeded),
        ["event 3 r0.0 SUCCEEDED", "launch r1.0 on b with 3 as clean-up Succeeded"]
    );
    assert_eq!(world.job.state(), JobState::Running);
    assert_eq!(
        world.report("b", "r1.0", Succeeded),
        ["event 4 r1.0 SUCCEEDED", "forget on a", "forget on b", "end SUCCESSFUL"]
    );
    assert_eq!((world.job.state(), world.job.next_deadline()), (JobState::Succeeded, None));
    let is_map: Vec<bool> = world.job.events(0, 9).iter().map(|event| event.is_map).collect();
    assert_eq!(is_map, [false, true, true, false, false]);
}

#[test]
fn a_job_without_maps_is_set_up_on_a_reduce() {
    // Spec: mapreduce/09 §D.
    let mut world = world(0, 1);
    assert_eq!(world.submit(), ["request 1 REDUCE"]);
    assert_eq!(world.grant(1, "a"), ["launch r2.0 on a with 1 as set-up"]);
    assert_eq!(world.report("a", "r2.0", Succeeded)[1], "launch r0.0 on a with 1");
    assert_eq!(
        world.report("a", "r0.0", Succeeded)[1],
        "launch r1.0 on a with 1 as clean-up Succeeded"
    );
    assert_eq!(world.report("a", "r1.0", Succeeded).last().unwrap(), "end SUCCESSFUL");
}

#[test]
fn a_map_only_job_does_not_run_maps_of_lost_nodes_again() {
    // Spec: mapreduce/09 §D.
    let mut world = world(2, 0);
    world.set_up("m3.0");
    world.grant(2, "b");
    world.report("a", "m0.0", Succeeded);
    assert_eq!(world.lose("a"), [""; 0]);
    assert_eq!(
        world.report("b", "m1.0", Succeeded)[1],
        "launch m2.0 on b with 2 as clean-up Succeeded"
    );
}

#[test]
fn set_up_and_clean_up_may_be_left_out() {
    // Spec: mapreduce/09 §D.
    let mut world = world_with(1, 0, |settings| settings.setup_cleanup_needed = false);
    assert_eq!(world.submit(), ["request 1 MAP"]);
    assert_eq!(world.grant(1, "a"), ["launch m0.0 on a with 1"]);
    let end = world.report("a", "m0.0", Succeeded);
    assert_eq!(end, ["event 0 m0.0 SUCCEEDED", "forget on a", "end SUCCESSFUL"]);

    let mut nothing = world_with(0, 0, |settings| settings.setup_cleanup_needed = false);
    assert_eq!(nothing.submit(), ["end SUCCESSFUL"]);
}

#[test]
fn reduces_are_requested_when_enough_maps_are_finished() {
    // Spec: mapreduce/05 §5.3.
    for (maps, reduces, slow_start, at_once) in
        [(5, 100, 1.0, true), (100, 5, 1.0, true), (6, 6, 0.0, true), (6, 6, 0.05, false)]
    {
        let mut world = world_with(maps, reduces, |settings| settings.slow_start = slow_start);
        let requests = world.submit().len();
        assert_eq!(requests, maps + if at_once { reduces as usize } else { 0 }, "{maps} {reduces}");
    }
    let mut world = world_with(10, 6, |settings| settings.slow_start = 0.11);
    world.set_up("m11.0");
    assert_eq!(world.report("a", "m0.0", Succeeded), ["event 1 m0.0 SUCCEEDED", "release 1"]);
    world.grant(2, "a");
    let effects = world.report("a", "m1.0", Succeeded);
    assert_eq!(effects.iter().filter(|it| it.ends_with("REDUCE")).count(), 6, "{effects:?}");
}

#[test]
fn a_job_may_end_with_its_reduces() {
    // Spec: mapreduce/09 §D.
    let mut world = world_with(2, 1, |settings| settings.finish_when_reduces_done = true);
    world.set_up("m3.0");
    world.grant(2, "b");
    world.grant(3, "b");
    assert_eq!(
        world.report("b", "r0.0", Succeeded),
        ["event 1 r0.0 SUCCEEDED", "launch r1.0 on b with 3 as clean-up Succeeded"]
    );
    let end = world.report("b", "r1.0", Succeeded);
    assert_eq!(end.last().unwrap(), "end SUCCESSFUL");
}

#[test]
fn a_failed_task_fails_the_job_which_is_cleaned_up_after() {
    // Spec: mapreduce/09 §C, §D.
    let mut world = world_with(2, 1, |settings| settings.max_attempts.map = 2);
    world.set_up("m3.0");
    world.grant(2, "b");
    world.grant(3, "b");
    assert_eq!(
        world.report("a", "m0.0", Failed),
        ["event 1 m0.0 FAILED", "request 4 MAP not a", "release 1"]
    );
    world.grant(4, "b");
    assert_eq!(
        world.report("b", "m0.1", Failed),
        [
            "event 2 m0.1 TIPFAILED",
            "kill m1.0 on b",
            "event 3 m1.0 KILLED",
            "kill r0.0 on b",
            "event 4 r0.0 KILLED",
            "request 5 MAP",
            "release 2,3,4"
        ]
    );
    assert_eq!(world.job.state(), JobState::Running);
    assert_eq!(world.grant(5, "c"), ["launch m2.0 on c with 5 as clean-up Failed"]);
    assert_eq!(
        world.report("c", "m2.0", Succeeded),
        ["event 5 m2.0 SUCCEEDED", "forget on a", "forget on b", "forget on c", "end FAILED"]
    );
    let progress = world.job.progress();
    assert_eq!((progress.work.map, progress.work.reduce, progress.cleanup), (1.0, 1.0, 1.0));
}

#[test]
fn a_job_that_is_about_to_fail_is_not_complete() {
    let mut world = world_with(1, 0, |settings| settings.max_attempts.map = 1);
    world.set_up("m2.0");
    world.report("a", "m0.0", Failed);
    let progress = world.job.progress();
    assert_eq!((progress.state, progress.work.map), (JobState::Running, 0.0));
}

#[test]
fn some_tasks_may_fail() {
    // More than the percentage, strictly. Spec: mapreduce/09 §C.
    let mut world = world_with(2, 0, |settings| {
        settings.max_attempts.map = 1;
        settings.failures_percent.map = 50;
    });
    world.set_up("m3.0");
    world.grant(2, "b");
    assert_eq!(
        world.report("a", "m0.0", Failed),
        ["event 1 m0.0 TIPFAILED", "without m0", "release 1"]
    );
    assert_eq!(
        world.report("b", "m1.0", Succeeded)[1],
        "launch m2.0 on b with 2 as clean-up Succeeded"
    );
}

/// A task that has not run when the job ends never will: nobody waits for it.
#[test]
fn no_task_of_a_job_that_has_ended_is_pending() {
    let killed = |world: &mut TestJob| {
        world.submit();
        world.apply(JobInput::KillJob);
    };
    let failed = |world: &mut TestJob| {
        world.set_up("m3.0");
        world.report("a", "m0.0", Failed);
        world.grant(3, "b");
        world.report("b", "m2.0", Succeeded);
    };
    let succeeded = |world: &mut TestJob| {
        world.set_up("m3.0");
        world.grant(2, "b");
        world.report("a", "m0.0", Succeeded);
        world.report("b", "m1.0", Succeeded);
        world.report("b", "m2.0", Succeeded);
    };
    type End = fn(&mut TestJob);
    let ends: [(End, JobState); 3] =
        [(killed, JobState::Killed), (failed, JobState::Failed), (succeeded, JobState::Succeeded)];
    for (end, state) in ends {
        let mut world = world_with(2, 0, |settings| settings.max_attempts.map = 1);
        end(&mut world);
        assert_eq!(world.job.state(), state);
        let over = [TaskStanding::Complete, TaskStanding::Failed, TaskStanding::Killed];
        for task in world.job.task_outlines() {
            assert!(over.contains(&task.standing), "{state:?}: {task:?}");
        }
    }
}

/// Pages show how the attempts on each node ended. What the cluster manager hears is less: attempts that
/// left output.
#[test]
fn nodes_count_all_attempts_that_failed_or_were_killed() {
    let counts = |world: &TestJob| -> Vec<_> {
        world.job.node_outlines().into_iter().map(|node| (node.failed, node.killed)).collect()
    };
    let mut world = world_with(2, 0, |_| {});
    world.set_up("m3.0");
    world.grant(2, "b");
    world.report("a", "m0.0", Failed);
    world.apply(JobInput::KillJob);
    assert_eq!(counts(&world), [(1, 0), (0, 1)]);

    // One that is cleaned up after elsewhere has failed where it ran.
    let mut world = world_with(1, 0, |_| {});
    world.set_up("m2.0");
    assert_eq!(
        world.report("a", "m0.0", TaskState::FailedUnclean),
        ["request 2 MAP not a", "release 1"]
    );
    assert_eq!(world.grant(2, "b"), ["launch m0.0 on b with 2 cleaned, failed true"]);
    assert_eq!(counts(&world), [(1, 0), (0, 0)]);
    world.report("b", "m0.0", Failed);
    assert_eq!(counts(&world), [(1, 0), (0, 0)]);
}

#[test]
fn a_failed_set_up_or_clean_up_fails_the_job() {
    // Spec: mapreduce/09 §C.
    let mut setup = world_with(1, 0, |settings| settings.max_attempts.map = 2);
    setup.submit();
    setup.grant(1, "a");
    // Its slot was borrowed: the exclusion is that of the map which owns it.
    assert_eq!(
        setup.report("a", "m2.0", Failed),
        ["event 0 m2.0 FAILED", "request 2 MAP not a", "release 1"]
    );
    assert_eq!(setup.grant(2, "b"), ["launch m2.1 on b with 2 as set-up"]);
    let failed = setup.report("b", "m2.1", Failed);
    assert_eq!(failed, ["event 1 m2.1 TIPFAILED", "request 3 MAP", "release 2"]);
    assert_eq!(setup.grant(3, "b"), ["launch m1.0 on b with 3 as clean-up Failed"]);

    let mut cleanup = world_with(1, 0, |settings| settings.max_attempts.map = 1);
    cleanup.set_up("m2.0");
    cleanup.report("a", "m0.0", Succeeded);
    let end = cleanup.report("a", "m1.0", Failed);
    assert_eq!(end, ["event 2 m1.0 TIPFAILED", "forget on a", "end FAILED"]);
    assert_eq!(cleanup.job.state(), JobState::Failed);
}

#[test]
fn a_killed_job_is_cleaned_up_after() {
    // mapreduce/09 §D: the original leaves its temporary output where it is.
    let mut world = world(2, 0);
    world.set_up("m3.0");
    assert_eq!(
        world.apply(JobInput::KillJob),
        ["kill m0.0 on a", "event 1 m0.0 KILLED", "request 3 MAP", "release 1,2"]
    );
    assert_eq!(world.grant(3, "b"), ["launch m2.0 on b with 3 as clean-up Killed"]);
    assert_eq!(world.job.state(), JobState::Running);
    assert_eq!(
        world.report("b", "m2.0", TaskState::Succeeded),
        ["event 2 m2.0 SUCCEEDED", "forget on a", "forget on b", "end KILLED"]
    );
    assert_eq!(world.job.state(), JobState::Killed);
    assert_eq!(world.apply(JobInput::KillJob), [""; 0]);
    let late = JobInput::Heartbeat {
        node: "tracker_a:1".into(),
        host: "a".into(),
        http_port: 1,
        reports: Vec::new(),
    };
    assert_eq!(world.job.apply(world.now, late).reply, Err(JobRefusal::Ended));
}

#[test]
fn a_killed_job_does_not_wait_long_for_its_clean_up() {
    let killed = || {
        let mut world = world_with(1, 0, |settings| settings.killed_cleanup_ms = 500);
        world.set_up("m2.0");
        world.apply(JobInput::KillJob);
        world
    };
    let mut no_slot = killed();
    assert_eq!(no_slot.job.next_deadline(), Some(no_slot.now.plus_ms(500)));
    assert_eq!(no_slot.after(499).tick(), [""; 0]);
    assert_eq!(no_slot.after(1).tick(), ["forget on a", "end KILLED"]);

    let mut hangs = killed();
    hangs.grant(2, "a");
    let end = ["kill m1.0 on a", "event 2 m1.0 KILLED", "forget on a", "end KILLED"];
    assert_eq!(hangs.after(500).tick(), end);

    // Who kills it twice means it.
    assert_eq!(killed().apply(JobInput::KillJob), ["forget on a", "end KILLED"]);
    let mut failing = killed();
    for number in 0..4 {
        failing.grant(number + 2, "a");
        failing.report("a", &format!("m1.{number}"), TaskState::Failed);
    }
    assert_eq!(failing.job.state(), JobState::Killed);
}

#[test]
fn a_killed_job_that_has_set_nothing_up_ends_at_once() {
    let mut unsubmitted = world(1, 0);
    assert_eq!(unsubmitted.apply(JobInput::KillJob), ["end KILLED"]);
    let mut waits = world(1, 0);
    waits.submit();
    assert_eq!(waits.apply(JobInput::KillJob), ["end KILLED"]);
    let mut without = world_with(1, 0, |settings| settings.killed_cleanup_ms = 0);
    without.set_up("m2.0");
    assert_eq!(without.apply(JobInput::KillJob).last().unwrap(), "end KILLED");
}

#[test]
fn a_job_that_ends_without_its_clean_up_says_so() {
    let lost = || JobInput::SessionLost { aborted: false };
    let mut world = world(1, 0);
    world.set_up("m2.0");
    assert!(!world.job.was_left_uncleaned(), "it has not ended");
    world.apply(lost());
    assert!(world.job.was_left_uncleaned());
    // One that was cleaned up after, one that has set nothing up, and one that does without.
    let mut world = self::world(1, 0);
    world.set_up("m2.0");
    world.report("a", "m0.0", TaskState::Succeeded);
    world.report("a", "m1.0", TaskState::Succeeded);
    assert_eq!(world.job.state(), JobState::Succeeded);
    assert!(!world.job.was_left_uncleaned());
    let mut world = self::world(1, 0);
    world.submit();
    world.apply(lost());
    assert!(!world.job.was_left_uncleaned());
    let mut world = world_with(1, 0, |settings| settings.setup_cleanup_needed = false);
    world.submit();
    world.grant(1, "a");
    world.apply(lost());
    assert!(!world.job.was_left_uncleaned());
    let mut world = self::world(1, 0);
    world.apply(lost());
    assert!(!world.job.was_left_uncleaned(), "it was never submitted");
}

#[test]
fn the_history_of_a_job_that_did_not_succeed_says_how_long_it_waited() {
    // Spec: mapreduce/09 §F.
    let waits = |world: &TestJob| {
        let end = world.records.iter().find_map(|record| match record {
            HistoryRecord::Ended(end) => Some(&end.counters),
            _ => None,
        });
        let groups = end.unwrap().groups.iter().filter(|group| &*group.name == "extMet");
        let counters = groups.flat_map(|group| &group.counters);
        counters.map(|it| format!("{} {}", it.name, it.value)).collect::<Vec<_>>()
    };
    let mut world = world_with(2, 0, |settings| settings.max_attempts.map = 1);
    world.submit();
    world.after(100).grant(1, "a");
    world.after(200).report("a", "m3.0", Succeeded);
    world.after(50).grant(2, "b");
    world.after(500).report("a", "m0.0", Succeeded);
    world.report("b", "m1.0", Failed);
    world.grant(3, "c");
    world.after(1000).report("c", "m2.0", Succeeded);
    assert_eq!(world.job.state(), JobState::Failed);
    let mut found = waits(&world);
    found.sort();
    let expected = [
        "avg_map_wait_time 300",
        "cleanup_time 1850",
        "max_map_wait_time 300",
        "setup_time 300",
        "submit_time 0",
    ];
    assert_eq!(found, expected);
    let mut world = self::world(1, 0);
    world.set_up("m2.0");
    world.report("a", "m0.0", Succeeded);
    world.report("a", "m1.0", Succeeded);
    assert!(waits(&world).is_empty(), "it succeeded");
}

#[test]
fn a_lost_session_kills_the_job() {
    // Spec: mapreduce/05 §5.2.
    for (aborted, end) in [(false, "end KILLED"), (true, "end KILLED_ABORTED")] {
        let mut world = world(1, 0);
        world.submit();
        assert_eq!(world.apply(JobInput::SessionLost { aborted }), [end]);
    }
}

#[test]
fn priorities_go_to_the_session() {
    let mut world = world(1, 0);
    world.submit();
    let effects = world.apply(JobInput::SetPriority { priority: SessionPriority::High });
    assert_eq!(effects, ["priority HIGH"]);
    assert_eq!(world.job.progress().priority, SessionPriority::High);
}

#[test]
fn the_history_has_the_records_of_the_original_in_their_order() {
    // Spec: mapreduce/08 §8.3.
    let mut world = world(1, 0);
    world.set_up("m2.0");
    world.report("a", "m0.0", Succeeded);
    world.report("a", "m1.0", Succeeded);
    let lines: String = world.records.iter().map(|it| it.lines(world.job.id())).collect();
    let kinds: Vec<String> = lines
        .lines()
        .map(|line| {
            let kind = line.split(' ').next().unwrap();
            let status = line
                .split_once("STATUS=\"")
                .map_or("", |(_, rest)| rest.split('"').next().unwrap());
            let role = line
                .split_once("TASK_TYPE=\"")
                .map_or("", |(_, rest)| rest.split('"').next().unwrap());
            format!("{kind} {role} {status}").split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "Meta",
            "Job",
            "Job PREP",
            "Task SETUP",
            "MapAttempt SETUP",
            "MapAttempt SETUP SUCCESS",
            "Task SETUP SUCCESS",
            "Job RUNNING",
            "Task MAP",
            "MapAttempt MAP",
            "MapAttempt MAP SUCCESS",
            "Task MAP SUCCESS",
            "Task CLEANUP",
            "MapAttempt CLEANUP",
            "MapAttempt CLEANUP SUCCESS",
            "Task CLEANUP SUCCESS",
            "Job SUCCESS",
        ]
    );
}
