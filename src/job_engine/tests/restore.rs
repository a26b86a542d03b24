//! Another job tracker continues a job. Spec: mapreduce/09 §I.

use super::*;
use TaskState::{CommitPending, Failed, FailedUnclean, Killed, Running, Succeeded};
use corona_mapreduce::{EventStatus, JobState};

/// What an earlier job tracker left, in the form of a script: `launch m0.0 a`, `m0.0 SUCCEEDED a`,
/// `tracker a`, `timeout a`, one each 10 ms from 100 on.
fn saved(script: &[&str]) -> Vec<(Millis, SavedEvent)> {
    let event = |line: &&str| {
        let words: Vec<&str> = line.split(' ').collect();
        let node = |name: &str| Arc::<str>::from(format!("tracker_{name}:1"));
        match words[..] {
            ["launch", attempt, at] => SavedEvent::Launched {
                attempt: key(attempt),
                node: node(at),
                host: at.into(),
                address: format!("{at}:2").into(),
            },
            ["tracker", at] => {
                SavedEvent::Tracker { node: node(at), host: at.into(), http_port: 50060 }
            }
            ["timeout", at] => SavedEvent::TimedOut { node: node(at) },
            [attempt, state, at] => {
                let states = [Succeeded, Failed, Killed, CommitPending, FailedUnclean, Running];
                let state = states.into_iter().find(|it| it.name() == state).unwrap();
                let report = TaskStatus {
                    start_time_ms: 50,
                    finish_time_ms: 90,
                    ..TaskStatus::new(key(attempt), state)
                };
                SavedEvent::Reported { node: node(at), report }
            }
            _ => panic!("{line}"),
        }
    };
    (0..).map(|at| Millis(100 + 10 * at)).zip(script.iter().map(event)).collect()
}

fn restored(world: &mut TestJob, script: &[&str]) -> Vec<String> {
    world.apply(JobInput::Restored { fail_overs: 1, events: saved(script) })
}

const SET_UP: [&str; 3] = ["launch m3.0 a", "tracker a", "m3.0 SUCCEEDED a"];

#[test]
fn finished_work_counts_and_what_ran_runs_again() {
    let mut world = world(2, 1);
    let script = [
        &SET_UP[..],
        &["launch m0.0 a", "launch r0.0 b", "m0.0 SUCCEEDED a", "launch m1.0 b", "tracker b"],
    ]
    .concat();
    assert_eq!(
        restored(&mut world, &script),
        [
            "event 0 m3.0 SUCCEEDED",
            "event 1 m0.0 SUCCEEDED",
            "kill m1.0 on b",
            "event 2 m1.0 KILLED",
            "kill r0.0 on b",
            "event 3 r0.0 KILLED",
            "request 1 MAP",
            "request 2 REDUCE",
        ]
    );
    assert_eq!(world.job.state(), JobState::Running);
    let counters = world.job.counters();
    let group = &counters.groups[0];
    let counter = |name: &str| group.counters.iter().find(|it| &*it.name == name).unwrap().value;
    assert_eq!((counter("NUM_RJT_FAILOVER"), counter("NUM_SAVED_MAPPERS")), (1, 1));
    assert_eq!(counter("SAVED_MAP_WALLCLOCK_MILLIS"), 40);
    // Further attempts have further numbers; reduces learn of the maps that are done.
    assert_eq!(world.grant(1, "b"), ["launch m1.1 on b with 1"]);
    assert_eq!(world.grant(2, "b"), ["launch r0.1 on b with 2"]);
    world.report("b", "m1.1", Succeeded);
    assert_eq!(
        world.report("b", "r0.1", Succeeded)[1],
        "launch r1.0 on b with 2 as clean-up Succeeded"
    );
    let events = world.job.events(0, 9);
    let urls: Vec<&str> = events
        .iter()
        .filter(|event| event.is_map && event.status == EventStatus::Succeeded)
        .filter_map(|event| event.tracker_http.as_deref())
        .collect();
    assert_eq!(urls, ["http://a:50060", "http://b:50060"]);
    assert_eq!(world.report("b", "r1.0", Succeeded).last().unwrap(), "end SUCCESSFUL");
    // The history has the times of the work that was taken over.
    let launched = world.records.iter().find_map(|record| match record {
        HistoryRecord::Launched { launch_ms, .. } => Some(*launch_ms),
        _ => None,
    });
    assert_eq!(launched, Some(100));
}

#[test]
fn a_set_up_that_ran_runs_again() {
    let mut world = world(2, 0);
    assert_eq!(
        restored(&mut world, &["launch m3.0 a"]),
        ["kill m3.0 on a", "event 0 m3.0 KILLED", "request 1 MAP", "request 2 MAP"]
    );
    assert_eq!(world.grant(1, "b"), ["launch m3.1 on b with 1 as set-up"]);
}

#[test]
fn a_state_that_is_empty_is_a_submission() {
    let mut world = world(1, 1);
    assert_eq!(restored(&mut world, &[]), ["request 1 MAP", "request 2 REDUCE"]);
    let again = world.job.apply(Millis(2000), JobInput::Submitted);
    assert_eq!(again.reply, Err(JobRefusal::AlreadySubmitted));
}

#[test]
fn only_the_clean_up_may_be_left_or_nothing() {
    let mut script = vec!["launch m2.0 a", "m2.0 SUCCEEDED a", "launch m0.0 a", "m0.0 SUCCEEDED a"];
    let mut first = world(1, 0);
    // The original requests a slot that belongs to no task, and fails at its grant.
    assert_eq!(restored(&mut first, &script).last().unwrap(), "request 1 MAP");
    assert_eq!(first.grant(1, "b"), ["launch m1.0 on b with 1 as clean-up Succeeded"]);
    script.extend(["launch m1.0 a", "m1.0 SUCCEEDED a"]);
    let mut second = world(1, 0);
    let effects = restored(&mut second, &script);
    assert_eq!(effects[effects.len() - 2..], ["forget on a", "end SUCCESSFUL"]);
}

#[test]
fn an_output_that_was_lost_is_made_again_and_failures_count() {
    let mut world = world_with(2, 1, |settings| settings.max_attempts.map = 2);
    let script = [
        &SET_UP[..],
        &["launch m0.0 a", "m0.0 SUCCEEDED a", "m0.0 KILLED a"],
        &["launch m1.0 a", "m1.0 FAILED a"],
    ]
    .concat();
    let effects = restored(&mut world, &script);
    assert_eq!(effects[1..4], ["event 1 m0.0 SUCCEEDED", "obsolete 1", "event 2 m0.0 KILLED"]);
    assert_eq!(effects[5..], ["request 1 MAP", "request 2 MAP not a", "request 3 REDUCE"]);
    world.grant(2, "b");
    // The second failure is the last one that is allowed.
    assert!(world.report("b", "m1.1", Failed).contains(&"event 4 m1.1 TIPFAILED".to_owned()));
}

#[test]
fn clean_ups_of_attempts_run_again() {
    let mut world = world(1, 0);
    let script = [
        "launch m2.0 a",
        "m2.0 SUCCEEDED a",
        "launch m0.0 a",
        "m0.0 FAILED_UNCLEAN a",
        // The launch of its clean-up.
        "launch m0.0 b",
    ];
    assert_eq!(restored(&mut world, &script)[1..], ["kill m0.0 on b", "request 1 MAP not a"]);
    assert_eq!(world.grant(1, "b"), ["launch m0.0 on b with 1 cleaned, failed true"]);
}

#[test]
fn impossible_saved_state_is_left_out() {
    let mut world = world(1, 0);
    let script = [
        "m0.0 SUCCEEDED a",
        "launch m0.1 a",
        "launch m77.0 a",
        "launch r9.0 a",
        "tracker nobody",
        "timeout nobody",
        "launch m2.0 a",
        // Not where it runs.
        "launch m0.0 b",
        "m2.0 SUCCEEDED b",
        "m0.7 SUCCEEDED b",
    ];
    let effects = restored(&mut world, &script);
    assert_eq!(effects.last().unwrap(), "request 1 MAP");
    assert_eq!(world.job.state(), JobState::Prep);
    // A state from the future does not stop the clock.
    let mut late = self::world(1, 0);
    let mut events = saved(&["launch m2.0 a", "m2.0 SUCCEEDED a"]);
    events.iter_mut().for_each(|(at, _)| *at = Millis(i64::MAX));
    late.apply(JobInput::Restored { fail_overs: 1, events });
    assert_eq!(late.job.progress().submitted, late.now);
    late.grant(1, "b");
    assert!(late.job.next_deadline().is_some_and(|due| due < Millis(1_000_000)));
}
