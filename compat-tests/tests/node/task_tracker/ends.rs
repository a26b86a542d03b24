//! Attempts, jobs and sessions that are ended by others.

use compat_tests::task_tracker::node::runs;
use compat_tests::task_tracker::steps::TaskRole;
use compat_tests::task_tracker::{PATIENCE, until};
use corona::hadoop::writables::TaskState;
use corona::wire::calls::{CoronaTaskTracker, CoronaTaskTrackerCall};
use corona::wire::client::{Client, ClientOptions};

use super::{TestNode, block_on, family, note, note_of, process, readers, run_map};

async fn callback(world: &TestNode, call: CoronaTaskTrackerCall) {
    let node = world.manager.heartbeat(0).await;
    assert_eq!(node.address.host, "localhost");
    let port = u16::try_from(node.address.port).unwrap();
    let options = ClientOptions { call_timeout: PATIENCE, ..ClientOptions::default() };
    let client = Client::<CoronaTaskTracker>::connect(("127.0.0.1", port), options).await;
    client.unwrap().call(&call).await.unwrap();
}

#[test]
fn a_task_that_is_killed_ends_with_all_that_it_started() {
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, job, map) = world.waiting_map("update=0.5,ignore-term,fork,hang").await;
        let pids = family(&job, &map).await;
        assert_eq!(pids.map(runs), [true; 3]);
        job_tracker.kill_task(&map).await;
        let report = job_tracker.ended(&map, 1).await;
        assert_eq!((report.state, report.progress), (TaskState::KilledUnclean, 0.0));
        // It had its time to end by itself.
        note(&job, &map, "ignored").await;
        until("their ends", || (!pids.into_iter().any(runs)).then_some(())).await;
        job_tracker.launch([job.task_cleanup(&map, TaskState::KilledUnclean)]).await;
        assert_eq!(job_tracker.ended(&map, 2).await.state, TaskState::Killed);
        // None of them counts as a failure.
        assert!(job_tracker.state().heartbeats.iter().all(|(status, ..)| status.failures == 0));
        world.end_last_job(&job_tracker, &job).await;
    });
}

#[test]
fn a_clean_up_attempt_ends_what_runs_under_its_name() {
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, job, map) = world.waiting_map("update=0.5,hang").await;
        let pid = process(&job, &map).await;
        job_tracker.launch([job.task_cleanup(&map, TaskState::KilledUnclean)]).await;
        let killed =
            job_tracker.report("its end", &map, |report| report.state == TaskState::Killed);
        killed.await;
        note_of(&job, &format!("{map}.cleanup"), "done").await;
        until("its end", || (!runs(pid)).then_some(())).await;
        world.end_last_job(&job_tracker, &job).await;
    });
}

#[test]
fn a_killed_map_that_had_succeeded_is_forgotten_with_its_output() {
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, job) = world.session().await;
        let job = job.sized(1, 1);
        job.write().unwrap();
        let map = run_map(&job_tracker, &job, 0).await;
        let output = note(&job, &map, "output").await;
        assert!(std::path::Path::new(&output).exists());
        let http = world.http(&job_tracker).await;
        assert!(part(http, &job.id.to_string(), &map.to_string()).await > 1000);
        job_tracker.kill_task(&map).await;
        until("the end of the output", || (!std::path::Path::new(&output).exists()).then_some(()))
            .await;
        assert!(part(http, &job.id.to_string(), &map.to_string()).await < 200);
        world.end_last_job(&job_tracker, &job).await;
    });
}

/// The response to a request for a map's output.
async fn part(http: std::net::SocketAddr, job: &str, map: &str) -> usize {
    let answer = readers::get(http, &format!("/mapOutput?job={job}&map={map}&reduce=0")).await;
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n\r\n"));
    answer.len()
}

#[test]
fn a_killed_job_leaves_nothing_and_is_not_reported() {
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, job) = world.session().await;
        let job = job.sized(3, 1).map_steps(1, "update=0.1,ignore-term,fork,hang");
        let job = job.map_steps(2, "exit=1");
        job.write().unwrap();
        let attempts = [job.map(0), job.map(1), job.map(2), job.reduce(0)];
        job_tracker.launch(attempts.iter().map(|attempt| job.task(attempt))).await;
        job_tracker.ended(&attempts[0], 1).await;
        job_tracker.ended(&attempts[2], 1).await;
        note(&job, &attempts[1], "waits").await;
        job_tracker.kill_job(&job.id).await;
        let before = job_tracker.state().heartbeats.len();
        world.home.nothing_left().await;
        // One may have been in flight.
        assert!(job_tracker.state().heartbeats.len() <= before + 1);
        assert!(job_tracker.reports(&attempts[1]).iter().all(|report| {
            report.state == TaskState::Running || report.state == TaskState::Unassigned
        }));
        // The same job may come again.
        job_tracker.launch([job.task(&attempts[0])]).await;
        let look = || {
            let ends = job_tracker.reports(&attempts[0]).into_iter();
            (ends.filter(|report| report.state == TaskState::Succeeded).count() == 2).then_some(())
        };
        until("the second end of a map", look).await;
        world.end_last_job(&job_tracker, &job).await;
    });
}

#[test]
fn a_purged_session_leaves_nothing_and_others_go_on() {
    block_on(async {
        let world = TestNode::new().await;
        let (doomed, doomed_job) = world.session().await;
        let (other, other_job) = world.session().await;
        for (job_tracker, job) in [(&doomed, &doomed_job), (&other, &other_job)] {
            let job = job.clone().steps(TaskRole::Map, "update=0.5,wait,done");
            job.write().unwrap();
            job_tracker.launch([job.task(&job.map(0))]).await;
            note(&job, &job.map(0), "waits").await;
        }
        let pid = process(&doomed_job, &doomed_job.map(0)).await;
        let handle = doomed.session().handle.clone();
        callback(&world, CoronaTaskTrackerCall::PurgeSession { handle }).await;
        until("the end of a process", || (!runs(pid)).then_some(())).await;
        let unknown = Some("202611220000.99".to_owned());
        callback(&world, CoronaTaskTrackerCall::PurgeSession { handle: unknown }).await;
        // Tasks of a session that is blacklisted are not launched.
        let handle = doomed.session().handle.clone();
        callback(&world, CoronaTaskTrackerCall::BlacklistSession { handle }).await;
        doomed.launch([doomed_job.task(&doomed_job.map(1))]).await;
        other.launch([other_job.task(&other_job.map(1))]).await;
        for map in [other_job.map(0), other_job.map(1)] {
            note(&other_job, &map, "waits").await;
            other_job.notes().let_go(&map.to_string()).unwrap();
            assert_eq!(other.ended(&map, 1).await.state, TaskState::Succeeded);
        }
        let launched = doomed_job.notes().of(&doomed_job.map(1).to_string(), "started");
        assert_eq!(launched.len(), 0);
        for (job_tracker, job) in [(&doomed, &doomed_job), (&other, &other_job)] {
            let state = job_tracker.state();
            let mut reports = state.heartbeats.iter().flat_map(|(status, ..)| &status.tasks);
            assert!(reports.all(|report| *report.attempt.job() == job.id));
        }
        world.end_last_job(&other, &other_job).await;
    });
}

#[test]
fn a_session_whose_job_tracker_has_gone_is_purged() {
    block_on(async {
        let world = TestNode::with(&[("corona.jobtracker.connect.timeout.msec", "300")]).await;
        let (job_tracker, _job, map) = world.waiting_map("update=0.5,hang").await;
        job_tracker.state_of(&map, TaskState::Running).await;
        job_tracker.vanish().await;
        world.home.nothing_left().await;
        // The node continues.
        world.still_works().await;
    });
}

#[test]
fn a_job_tracker_that_fails_for_a_while_is_told_all_in_the_end() {
    block_on(async {
        let world = TestNode::new().await;
        let steps = "update=0.5,wait,diagnose=told once,done";
        let (job_tracker, job, map) = world.waiting_map(steps).await;
        job_tracker.state_of(&map, TaskState::Running).await;
        job_tracker.state().failing_heartbeats = 3;
        job.notes().let_go(&map.to_string()).unwrap();
        let report = job_tracker.ended(&map, 1).await;
        assert_eq!(report.state, TaskState::Succeeded);
        assert_eq!(job_tracker.diagnostics(&map).matches("told once").count(), 1);
        world.end_last_job(&job_tracker, &job).await;
    });
}
