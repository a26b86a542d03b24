//! Jobs that go well, and attempts that are cleaned up after.

use compat_tests::task_tracker::steps::TaskRole;
use corona::hadoop::writables::{Phase, TaskState};

use super::{TestNode, block_on, note, note_of};

#[test]
fn a_map_succeeds_and_is_reported_once() {
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, job) = world.session().await;
        let job = job.sized(2, 2);
        job.write().unwrap();
        let (first, second) = (job.map(0), job.map(1));
        job_tracker.launch([job.task(&first)]).await;
        let report = job_tracker.ended(&first, 1).await;
        assert_eq!((report.state, report.progress), (TaskState::Succeeded, 1.0));
        assert_eq!((report.phase, report.slots), (Phase::Map, 1));
        assert_eq!((&*report.state_string, &*report.diagnostics), ("at 1", ""));
        assert_eq!(report.output_size, 1000 + 1001);
        assert!(0 < report.start_time_ms && report.start_time_ms <= report.finish_time_ms);
        let counters = report.counters.expect("the counters of a map that has ended");
        assert_eq!(counters.get("test", "STEPS"), Some(7));
        // Its process ended by itself, in the directory that it was given.
        assert!(note(&job, &first, "directory").await.ends_with(&format!("{first}/work")));
        job_tracker.launch([job.task(&second)]).await;
        job_tracker.ended(&second, 1).await;
        let reports = job_tracker.reports(&first);
        let last = reports.iter().filter(|report| report.state == TaskState::Succeeded);
        assert_eq!(last.count(), 1);

        // A tracker's report of itself.
        let node = world.manager.heartbeat(0).await;
        {
            let state = job_tracker.state();
            let (status, [restarted, initial, accepts], response_id) = state.heartbeats[0].clone();
            assert_eq!((restarted, initial, accepts, response_id), (true, true, true, -1));
            assert_eq!((&*status.name, &*status.host), (&*node.name, "localhost"));
            assert!(status.name.starts_with("tracker_localhost:"), "{}", status.name);
            assert_eq!((status.max_maps, status.max_reduces, status.failures), (20, 20, 0));
            assert!(status.health.is_healthy);
            let ids: Vec<i16> = state.heartbeats.iter().map(|(.., id)| *id).collect();
            let counted: Vec<i16> = (-1..).take(ids.len()).collect();
            assert_eq!(ids, counted);
            assert!(
                state.heartbeats.iter().skip(1).all(|(_, flags, _)| *flags == [false, true, true])
            );
            assert_eq!((state.build_versions, &*state.errors), (1, &[][..]));
        }

        world.end_last_job(&job_tracker, &job).await;
    });
}

#[test]
fn a_whole_job_is_prepared_mapped_reduced_committed_and_cleaned_up() {
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, job) = world.session().await;
        let job = job.sized(3, 2).with("test.output.bytes", "300000");
        job.write().unwrap();
        job_tracker.launch([job.setup_task()]).await;
        let report = job_tracker.ended(&job.setup(), 1).await;
        assert_eq!((report.state, report.output_size), (TaskState::Succeeded, 0));
        assert_eq!(note(&job, &job.setup(), "task").await, TaskRole::Setup.name());

        let maps = [0, 1, 2].map(|number| job.map(number));
        let reduces = [0, 1].map(|number| job.reduce(number));
        job_tracker.launch(reduces.iter().chain(&maps).map(|attempt| job.task(attempt))).await;
        for map in &maps {
            assert_eq!(job_tracker.ended(map, 1).await.output_size, 600_001);
        }
        for reduce in &reduces {
            let report = job_tracker.state_of(reduce, TaskState::CommitPending).await;
            assert_eq!(report.phase, Phase::Reduce);
            let fetched = job.notes().of(&reduce.to_string(), "fetched");
            assert_eq!(fetched.len(), maps.len(), "{fetched:?}");
        }
        // One permission is for one attempt.
        job_tracker.permit(&reduces[0]).await;
        let report = job_tracker.ended(&reduces[0], 1).await;
        assert_eq!((report.state, report.progress), (TaskState::Succeeded, 1.0));
        let phases = report.reduce.expect("what a reduce adds");
        assert!(phases.shuffle_finish_time_ms > 0 && phases.sort_finish_time_ms > 0);
        assert_eq!(phases.failed_fetches, []);
        assert_eq!(job.notes().of(&reduces[1].to_string(), "commits").len(), 0);
        job_tracker.permit(&reduces[1]).await;
        assert_eq!(job_tracker.ended(&reduces[1], 1).await.state, TaskState::Succeeded);

        job_tracker.launch([job.cleanup_task()]).await;
        assert_eq!(job_tracker.ended(&job.cleanup(), 1).await.state, TaskState::Succeeded);
        assert_eq!(note(&job, &job.cleanup(), "task").await, TaskRole::Cleanup.name());
        assert_eq!(job_tracker.state().errors, [""; 0]);
        world.end_last_job(&job_tracker, &job).await;
    });
}

/// How attempts end by themselves, the reports about them, and how the attempts that clean up after
/// them end.
#[test]
fn attempts_that_fail_are_cleaned_up_after() {
    let cases = [
        ("ask,exit=3", TaskState::FailedUnclean, "nonzero status of 3"),
        ("exit=7", TaskState::FailedUnclean, "nonzero status of 7"),
        (
            "ask,exit=0",
            TaskState::FailedUnclean,
            "exited with status 0 before it reported that its work is done",
        ),
        ("ask,abort", TaskState::FailedUnclean, "nonzero status of 134"),
        ("update=0.5,fatal-error=out of wit,hang", TaskState::FailedUnclean, "Error: out of wit"),
        ("fs-error=no disk,hang", TaskState::FailedUnclean, "FSError: no disk"),
        ("shuffle-error=lost,hang", TaskState::FailedUnclean, "Shuffle Error: lost"),
        // A task that cleans up by itself after an exception needs no other attempt for it.
        ("clean-up,diagnose=an exception,exit=0", TaskState::Failed, "an exception"),
    ];
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, mut job) = world.session().await;
        for (number, (steps, ..)) in (0..).zip(&cases) {
            job = job.map_steps(number, steps);
        }
        job = job.sized(i32::try_from(cases.len()).unwrap(), 0);
        job.write().unwrap();
        for (number, (steps, state, diagnostics)) in (0..).zip(cases) {
            let map = job.map(number);
            job_tracker.launch([job.task(&map)]).await;
            let report = job_tracker.ended(&map, 1).await;
            assert_eq!((report.state, report.progress), (state, 0.0), "{steps}: {report:?}");
            // Diagnostics may have been reported before the end.
            let told = job_tracker.diagnostics(&map);
            assert!(told.contains(diagnostics), "{steps}: {told:?}");
            assert!(report.finish_time_ms > 0, "{steps}");
            if state == TaskState::Failed {
                continue;
            }
            job_tracker.launch([job.task_cleanup(&map, state)]).await;
            let report = job_tracker.ended(&map, 2).await;
            assert_eq!(report.state, TaskState::Failed, "{steps}");
            let name = format!("{map}.cleanup");
            assert_eq!(note_of(&job, &name, "task").await, TaskRole::TaskCleanup.name());
        }
        let failures = job_tracker.state().heartbeats.last().map(|(status, ..)| status.failures);
        assert_eq!(failures, Some(i32::try_from(cases.len()).unwrap()));
        world.end_last_job(&job_tracker, &job).await;
    });
}
