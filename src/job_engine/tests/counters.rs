//! The counters of the job itself have the names of the original's, when the original has them.

use std::collections::BTreeSet;

use corona_mapreduce::Counters;
use corona_mapreduce::counters::JOB_GROUP;

use super::*;
use TaskState::{Failed, Running, Succeeded};

/// The history of a job that the original has run.
macro_rules! recorded {
    ($job:literal) => {
        recorded(include_bytes!(concat!(
            "../../../fixtures/recordings/job-clients/history/job_202611221049.",
            $job,
            "_0001"
        )))
    };
}

/// The names of the counters of the job itself in the last line of a recorded history.
fn recorded(history: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(history).replace('\\', "");
    let line = text.lines().rfind(|line| line.contains(" COUNTERS=")).unwrap();
    let (_, counters) = line.split_once(" COUNTERS=").unwrap();
    let (_, group) = counters.split_once(&format!("({JOB_GROUP})")).unwrap();
    let (group, _) = group.split_once('}').unwrap();
    let names = group.split("[(").skip(1).filter_map(|counter| counter.split(')').next());
    names.map(str::to_owned).collect()
}

fn names(job: &JobEngine) -> BTreeSet<String> {
    let counters = job.counters();
    let group = counters.groups.iter().find(|group| *group.name == *JOB_GROUP).unwrap();
    group.counters.iter().map(|counter| counter.name.to_string()).collect()
}

/// A report with the time that the attempt took, and the counters of a task.
fn after_work(world: &mut TestJob, node: &str, attempt: &str, state: TaskState) {
    let mut counters = Counters::default();
    counters.set(TASK_COUNTERS, "MAP_INPUT_BYTES", 46);
    counters.set(TASK_COUNTERS, "MAX_MEMORY_BYTES", 700);
    counters.set(TASK_COUNTERS, "MAX_RSS_MEMORY_BYTES", 600);
    counters.set(TASK_COUNTERS, "INST_MEMORY_BYTES", 500);
    let (start, finish) = (world.now.0, world.now.0 + 60);
    let report = TaskStatus {
        counters: Some(counters),
        start_time_ms: start,
        finish_time_ms: finish,
        reduce: Some(ReduceProgress {
            shuffle_finish_time_ms: start + 20,
            sort_finish_time_ms: start + 40,
            ..ReduceProgress::default()
        }),
        ..TaskStatus::new(key(attempt), state)
    };
    world.heartbeat(node, vec![report]);
}

/// A job with one map near its split and one in the rack of its split, and perhaps a reduce, that runs to its end.
fn run(reduces: u32, hosts: [&str; 2], ends: TaskState) -> TestJob {
    let mut world = world_with(2, reduces, |settings| settings.max_attempts.map = 1);
    for (split, host) in world.job.spec.splits.iter_mut().zip(hosts) {
        split.hosts = vec![host.into()];
    }
    world.submit();
    world.grant(1, "a");
    after_work(&mut world, "a", "m3.0", Succeeded);
    world.grant(2, "a");
    if reduces > 0 {
        world.grant(3, "a");
        world.report("a", "r0.0", Running);
    }
    after_work(&mut world, "a", "m0.0", ends);
    if ends == Succeeded {
        after_work(&mut world, "a", "m1.0", Succeeded);
        if reduces > 0 {
            after_work(&mut world, "a", "r0.0", Succeeded);
        }
        // The clean-up runs on the slot of the last task.
        let cleanup = if reduces > 0 { "r1.0" } else { "m2.0" };
        after_work(&mut world, "a", cleanup, Succeeded);
    }
    world
}

#[test]
fn the_job_counters_of_jobs_that_succeed_have_the_names_of_recorded_ones() {
    // With maps near and in the rack of their splits; with one map, near its split; without reduces.
    for (recorded, reduces, hosts) in [
        (recorded!("8"), 1, ["a", "b"]),
        (recorded!("2"), 1, ["a", "a"]),
        (recorded!("10"), 0, ["a", "b"]),
    ] {
        let world = run(reduces, hosts, Succeeded);
        assert_eq!(names(&world.job), recorded);
    }
}

#[test]
fn the_job_counters_are_those_of_the_original_in_value() {
    let world = run(1, ["a", "b"], Succeeded);
    let counters = world.job.counters();
    let value = |name: &str| counters.get(JOB_GROUP, name);
    for (name, expected) in [
        ("LOCAL_MAP_INPUT_BYTES", 46),
        ("RACK_MAP_INPUT_BYTES", 46),
        ("MAX_MAP_MEM_BYTES", 700),
        ("MAX_MAP_RSS_MEM_BYTES", 600),
        ("MAX_MAP_INST_MEM_BYTES", 500),
        ("MAX_REDUCE_MEM_BYTES", 700),
        ("FALLOW_SLOTS_MILLIS_MAPS", 0),
    ] {
        assert_eq!(value(name), Some(expected), "{name}");
    }
}

#[test]
fn a_job_that_fails_before_a_map_succeeds_has_no_bytes_of_input() {
    let world = run(1, ["a", "b"], Failed);
    let names = names(&world.job);
    for name in ["LOCAL_MAP_INPUT_BYTES", "RACK_MAP_INPUT_BYTES", "FALLOW_SLOTS_MILLIS_MAPS"] {
        assert!(!names.contains(name) && !recorded!("4").contains(name), "{name}");
    }
    assert!(names.contains("MAX_REDUCE_RSS_MEM_BYTES"));
}
