//! Requests, exclusions, and nodes that are faulty, lost or silent.
//! Spec: mapreduce/05 §5.3, §5.5, mapreduce/09 §A, §K.

use super::*;
use TaskState::{CommitPending, Failed, FailedUnclean, Killed, Running, Succeeded};

const NOTHING: [&str; 0] = [];

fn failed_call(node: &str, orders: Vec<Order>) -> JobInput {
    JobInput::CallFailed { node: format!("tracker_{node}:1").into(), orders }
}

#[test]
fn requests_name_the_hosts_of_the_split_but_excluded_ones() {
    let mut world = world(1, 0);
    world.job.spec.splits[0].hosts = vec!["a".into(), "b".into()];
    assert_eq!(world.submit(), ["request 1 MAP near a,b"]);
    world.grant(1, "a");
    world.report("a", "m2.0", Succeeded);
    assert_eq!(world.report("a", "m0.0", Failed)[1], "request 2 MAP near b not a");
    // A kill excludes nothing more.
    world.grant(2, "b");
    assert_eq!(world.report("b", "m0.1", Killed)[1], "request 3 MAP near b not a");
}

#[test]
fn a_slot_on_a_host_where_the_task_failed_is_returned() {
    let mut world = world(2, 0);
    world.set_up("m3.0");
    world.report("a", "m0.0", Failed);
    assert_eq!(world.grant(3, "a"), ["request 4 MAP not a", "release 3"]);
    assert_eq!(world.grant(2, "a"), ["launch m1.0 on a with 2"], "other tasks may run there");
}

#[test]
fn grants_that_were_not_requested_are_dropped() {
    let mut world = world(1, 0);
    world.submit();
    assert_eq!(world.grant(9, "a"), NOTHING);
    assert_eq!(world.grant(1, "a"), ["launch m2.0 on a with 1 as set-up"]);
    assert_eq!(world.grant(1, "b"), NOTHING);
}

#[test]
fn a_revoked_slot_goes_back_when_its_attempt_has_ended() {
    // Spec: mapreduce/09 §J.
    let mut world = world(2, 0);
    world.submit();
    world.grant(1, "a");
    world.grant(2, "b");
    // One that runs nothing goes back at once, under a new request.
    let revoked = |id| JobInput::Revoked { ids: vec![RequestId(id)] };
    assert_eq!(world.apply(revoked(2)), ["request 3 MAP", "release 2"]);
    assert_eq!(world.apply(revoked(1)), ["kill m3.0 on a"]);
    // Even a set-up that ends well does not keep it.
    assert_eq!(world.report("a", "m3.0", Succeeded)[..1], ["event 0 m3.0 KILLED"]);
    assert_eq!(world.last.len(), 4, "{:?}", world.last);
    assert_eq!(world.apply(revoked(77)), NOTHING);
}

#[test]
fn a_call_that_fails_ends_its_launches_and_makes_its_node_faulty() {
    // Spec: mapreduce/09 §K.
    let mut world = world(3, 0);
    world.set_up("m4.0");
    world.grant(2, "b");
    assert_eq!(
        world.apply(failed_call("b", vec![Order::Launch(key("m1.0"))])),
        ["event 1 m1.0 KILLED", "request 4 MAP", "release 2"]
    );
    // One failed order may be chance.
    assert_eq!(world.grant(4, "b"), ["launch m1.1 on b with 4"]);
    // More than one failed order: the node is no longer used, for any slot.
    world.apply(failed_call("b", vec![Order::Commit(key("m0.0"))]));
    assert_eq!(world.grant(3, "b"), ["request 5 MAP not b", "release 3"]);
    // A kill that cannot be delivered ends the attempt.
    world.report("a", "m0.0", Running);
    world.apply(JobInput::KillAttempt { attempt: key("m0.0"), fail: false });
    let orders = vec![Order::Kill(key("m0.0"))];
    assert_eq!(world.apply(failed_call("a", orders))[0], "event 2 m0.0 KILLED");
}

#[test]
fn many_unclean_failures_make_a_node_faulty() {
    // Spec: mapreduce/09 §C: a failure that left nothing behind does not count.
    for (state, faulty) in [(FailedUnclean, true), (Failed, false)] {
        let mut world = world_with(3, 0, |settings| {
            settings.max_node_failures = 1;
            settings.task_cleanup_needed = false;
        });
        world.set_up("m4.0");
        world.grant(2, "a");
        world.report("a", "m0.0", state);
        world.report("a", "m1.0", state);
        let effects = world.grant(3, "a");
        let expected = if faulty { "request 6 MAP not a" } else { "launch m2.0 on a with 3" };
        assert_eq!(effects[0], expected, "{state:?}");
    }
}

#[test]
fn a_lost_node_loses_what_runs_and_maps_whose_output_is_needed() {
    // Spec: mapreduce/09 §A.
    let mut world = world(2, 1);
    world.set_up("m3.0");
    world.grant(2, "a");
    world.report("a", "m0.0", Succeeded);
    assert_eq!(
        world.lose("a"),
        [
            "obsolete 1",
            "event 2 m0.0 KILLED",
            "event 3 m1.0 KILLED",
            "request 4 MAP",
            "request 5 MAP",
            "release 2"
        ]
    );
    // It may come back: its late reports are answered with a kill, and new slots on it are used.
    assert_eq!(world.report("a", "m1.0", Running), ["kill m1.0 on a"]);
    assert_eq!(world.grant(4, "a"), ["launch m0.1 on a with 4"]);
}

#[test]
fn free_slots_of_a_lost_node_are_requested_again() {
    let mut world = world(2, 0);
    world.submit();
    world.grant(1, "a");
    world.grant(2, "b");
    assert_eq!(world.lose("b"), ["request 3 MAP", "release 2"]);
}

#[test]
fn an_attempt_that_is_not_heard_of_is_given_up() {
    // Spec: mapreduce/09 §A.
    let mut world = world_with(2, 0, |settings| {
        settings.launch_timeout_ms = 5_000;
        settings.task_timeout_ms = 60_000;
        settings.speculation.map.enabled = false;
        settings.max_failed_connections = 10;
    });
    world.set_up("m3.0");
    assert_eq!(world.job.next_deadline(), Some(Millis(6_000)));
    world.after(1_000).report("a", "m0.0", TaskState::Unassigned);
    assert_eq!(world.after(3_999).tick(), NOTHING);
    assert_eq!(
        world.after(1).tick(),
        ["kill m0.0 on a", "event 1 m0.0 KILLED", "request 3 MAP", "release 1"]
    );
    assert_eq!(world.job.next_deadline(), None);
    // Reports of a running attempt start its time again, those of one that wants to commit do not.
    world.grant(3, "b");
    world.after(1_000).report("b", "m0.1", Running);
    world.after(50_000).report("b", "m0.1", Running);
    world.after(50_000).report("b", "m0.1", CommitPending);
    assert_eq!(world.after(9_999).tick(), NOTHING);
    assert_eq!(world.after(1).tick()[..2], ["kill m0.1 on b", "event 2 m0.1 KILLED"]);
}

#[test]
fn a_cut_excuses_the_nodes_behind_it_and_no_other() {
    let mut world = world_with(2, 0, |settings| {
        settings.task_timeout_ms = 60_000;
        settings.speculation.map.enabled = false;
    });
    world.set_up("m3.0");
    world.grant(2, "b");
    for (node, attempt) in [("a", "m0.0"), ("b", "m1.0")] {
        world.report(node, attempt, Running);
    }
    let nodes = ["tracker_b:1".into(), "unknown".into()].into();
    assert_eq!(world.after(30_000).apply(JobInput::CutOff { nodes, ms: 20_000 }), NOTHING);
    assert_eq!(world.after(30_000).tick()[0], "kill m0.0 on a");
    assert_eq!(world.after(19_999).tick(), NOTHING);
    assert_eq!(world.after(1).tick()[0], "kill m1.0 on b");
}

#[test]
fn a_timeout_of_0_is_none() {
    let mut world = world_with(1, 0, |settings| {
        settings.launch_timeout_ms = 0;
        settings.task_timeout_ms = 0;
        settings.speculation.map.enabled = false;
    });
    world.set_up("m2.0");
    world.report("a", "m0.0", Running);
    assert_eq!(world.job.next_deadline(), None);
    assert_eq!(world.after(i64::MAX / 2).tick(), NOTHING);
}

#[test]
fn nodes_that_let_attempts_time_out_are_used_no_more() {
    let mut world = world_with(3, 0, |settings| settings.launch_timeout_ms = 1_000);
    world.set_up("m4.0");
    world.grant(2, "a");
    world.after(1_000).tick();
    assert_eq!(world.grant(3, "a"), ["request 6 MAP not a", "release 3"]);
}

#[test]
fn time_does_not_go_back() {
    let mut world = world(1, 0);
    world.set_up("m2.0");
    let deadline = world.job.next_deadline();
    world.now = Millis(5);
    world.report("a", "m0.0", Running);
    assert!(world.job.next_deadline() >= deadline);
}

#[test]
fn feedback_counts_what_happened_on_each_node() {
    // Spec: mapreduce/05 §5.5.
    let mut world = world(1, 0);
    world.set_up("m2.0");
    world.report("a", "m0.0", FailedUnclean);
    world.grant(2, "b");
    world.report("b", "m0.0", Failed);
    world.grant(3, "b");
    world.report("b", "m0.1", Succeeded);
    world.report("b", "m1.0", Succeeded);
    let Some(JobEffect::EndSession { feedback, .. }) = world.last.last() else { panic!() };
    let counts: Vec<_> =
        feedback.iter().map(|it| (&*it.node, it.total, it.succeeded, it.failed)).collect();
    assert_eq!(counts, [("tracker_a:1", 2, 1, 1), ("tracker_b:1", 3, 2, 0)]);
}

#[test]
fn after_a_restart_requests_are_filed_again_and_silent_launches_are_repeated() {
    let mut world = world(4, 0);
    world.set_up("m5.0");
    world.grant(2, "b");
    world.grant(3, "c");
    world.report("a", "m0.0", Running);
    world.report("b", "m1.0", Running);
    let timeout = JobSettings::default().task_timeout_ms;
    world.after(timeout + 1);
    // m2.0 was never heard of; request 4 may have been granted while no job tracker was running.
    assert_eq!(
        world.apply(JobInput::Resumed),
        ["kill m2.0 on c", "event 1 m2.0 KILLED", "request 5 MAP", "request 6 MAP", "release 4,3"]
    );
    // Those that were heard of get the time for another report.
    assert_eq!(world.tick(), NOTHING);
    world.report("a", "m0.0", Succeeded);
    world.after(timeout + 1);
    assert_eq!(world.tick()[..2], ["kill m1.0 on b", "event 3 m1.0 KILLED"]);
    assert_eq!(world.grant(4, "d"), NOTHING, "a grant that comes late is not used");
}

#[test]
fn after_a_restart_in_place_launches_get_the_time_for_a_report() {
    let mut world = world(4, 0);
    world.set_up("m5.0");
    world.grant(2, "b");
    world.grant(3, "c");
    world.report("a", "m0.0", Running);
    world.after(JobSettings::default().launch_timeout_ms + 1);
    assert_eq!(world.apply(JobInput::ResumedInPlace), ["request 5 MAP", "release 4"]);
    assert_eq!(world.tick(), NOTHING, "launches have their time again");
    let in_doubt = world.job.attempts_in_doubt();
    assert_eq!(in_doubt.len(), 2);
    world.report("b", "m1.0", Running);
    let is_on_c = |key: &AttemptKey| world.job.is_on(*key, "tracker_c:1");
    let attempts = in_doubt.into_iter().filter(is_on_c).collect();
    let told = world.apply(JobInput::NotLaunched { attempts });
    assert_eq!(told[..2], ["kill m2.0 on c", "event 1 m2.0 KILLED"]);
    world.report("b", "m1.0", Succeeded);
}

#[test]
fn after_a_restart_clean_ups_of_attempts_get_the_time_for_a_report() {
    let JobSettings { task_timeout_ms, launch_timeout_ms, .. } = JobSettings::default();
    // Whether the clean-up has reported before, and the timeout that the restart finds.
    for (reports, timeout_ms) in [(true, task_timeout_ms), (false, launch_timeout_ms)] {
        let mut world = cleaning(|_| {});
        if reports {
            world.report("b", "m0.0", FailedUnclean);
        }
        world.after(timeout_ms + 1);
        assert_eq!(world.apply(JobInput::Resumed), NOTHING);
        assert_eq!(world.tick(), NOTHING, "nobody could hear it");
        world.after(task_timeout_ms);
        assert_eq!(world.tick()[..2], ["kill m0.0 on b", "event 1 m0.0 FAILED"]);
    }
    // Without a timeout, a clean-up that was never launched would wait forever.
    let mut world = cleaning(|settings| settings.launch_timeout_ms = 0);
    assert_eq!(
        world.apply(JobInput::Resumed),
        ["kill m0.0 on b", "event 1 m0.0 FAILED", "request 3 MAP not a", "release 2"]
    );
}

/// A job of one map, whose failed attempt on `a` is cleaned up after on `b`.
fn cleaning(change: impl FnOnce(&mut JobSettings)) -> TestJob {
    let mut world = world_with(1, 0, change);
    world.set_up("m2.0");
    world.report("a", "m0.0", FailedUnclean);
    assert_eq!(world.grant(2, "b"), ["launch m0.0 on b with 2 cleaned, failed true"]);
    world
}

#[test]
fn a_node_is_needed_while_attempts_run_there_or_reduces_may_fetch_from_it() {
    let mut world = world(1, 1);
    let of = |world: &TestJob, node: &str| {
        let of = world.job.use_of_node(&format!("tracker_{node}:1"));
        (of.running_attempts, of.map_outputs)
    };
    world.set_up("m2.0");
    world.grant(2, "b");
    assert_eq!((of(&world, "a"), of(&world, "b"), of(&world, "z")), ((1, 0), (1, 0), (0, 0)));
    world.report("a", "m0.0", Succeeded);
    assert_eq!((of(&world, "a"), of(&world, "b")), ((0, 1), (1, 0)));
    world.report("b", "r0.0", Succeeded);
    assert_eq!(of(&world, "a"), (0, 0), "nothing is fetched any more");
    assert_eq!(world.lose("a"), NOTHING);

    // The output of a job without reduces is not on the node.
    let mut world = self::world(1, 0);
    world.set_up("m2.0");
    world.report("a", "m0.0", Succeeded);
    assert_eq!(of(&world, "a").1, 0);
}
