//! Heartbeats: their contents, and job trackers that are not there.

use super::*;

#[tokio::test]
async fn a_job_tracker_that_answers_with_errors_is_given_up() {
    let world = TestTracker::with(|parts| parts.settings.reports.max_errors = 3).await;
    world.peer.refuse.store(i32::MAX, std::sync::atomic::Ordering::SeqCst);
    let task = world.task("map", PROGRAM, &[]);
    world.launch(&task).await;
    until("nothing is left", || world.is_empty()).await;
    let refused = i32::MAX - world.peer.refuse.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(refused, 3);
}

#[tokio::test]
async fn a_secondary_knows_the_successor_of_a_job_tracker() {
    let mut world =
        TestTracker::with(|parts| parts.settings.reports.connect_patience = Duration::ZERO).await;
    let parent = Arc::new(Peer::default());
    let parent_server = parent.serve();
    world.session.trackers.secondary = Some(parent_server.address.clone());
    let task = world.task("map", PROGRAM, &[]);
    let child = world.launched(&task).await;
    until("a heartbeat", || world.peer.count() >= 1).await;
    let next = Arc::new(Peer::default());
    let next_server = next.serve();
    let old = std::mem::replace(&mut world.job_tracker, next_server);
    let old_address = old.address.clone();
    let _port = old.stop().await;
    until("the parent is asked", || parent.asked_for.lock().unwrap().len() >= 2).await;
    assert!(parent.asked_for.lock().unwrap().iter().all(|address| *address == old_address));
    *parent.new_address.lock().unwrap() = Some(world.job_tracker.address.clone());
    next.told(&task.attempt, TaskState::Running).await;
    child.leave(1);
    next.told(&task.attempt, TaskState::FailedUnclean).await;
    world.end(&task).await;
}

#[tokio::test]
async fn a_secondary_without_a_successor_is_not_asked_for_ever() {
    let mut world = TestTracker::with(|parts| {
        parts.settings.reports.connect_patience = Duration::ZERO;
        parts.settings.reports.fail_over_queries = 3;
    })
    .await;
    let parent = Arc::new(Peer::default());
    let parent_server = parent.serve();
    world.session.trackers.secondary = Some(parent_server.address.clone());
    let task = world.task("map", PROGRAM, &[]);
    world.launched(&task).await;
    until("a heartbeat", || world.peer.count() >= 1).await;
    let other = Arc::new(Peer::default()).serve();
    let _port = std::mem::replace(&mut world.job_tracker, other).stop().await;
    until("nothing is left", || world.is_empty()).await;
    assert_eq!(parent.asked_for.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_job_tracker_of_another_build_gets_only_that_report() {
    let world = TestTracker::with(|parts| {
        parts.settings.reports.build_version = Some("another".to_owned());
    })
    .await;
    let task = world.task("map", PROGRAM, &[]);
    world.launched(&task).await;
    until("an error", || !world.peer.errors.lock().unwrap().is_empty()).await;
    let told = world.peer.errors.lock().unwrap().join("");
    let job = task.attempt.job();
    let expected = format!(
        "tracker_here:localhost/127.0.0.1:1: JobTrackerReporter({job}) shutting down. \
         Incompatible buildVersion.\nJobTracker's: 0.20 from r1 by me on a day\n\
         TaskTracker's: another"
    );
    assert_eq!(told, expected);
    assert_eq!(world.peer.count(), 0);
    world.end(&task).await;
    assert_eq!(world.peer.errors.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn changes_are_reported_at_once_if_that_is_configured() {
    let world = TestTracker::with(|parts| {
        parts.settings.reports.out_of_band = true;
        // Longer than the test may take.
        parts.settings.reports.interval = Duration::from_secs(600);
        parts.settings.reports.min_interval = Duration::from_secs(600);
    })
    .await;
    let task = world.task("map", PROGRAM, &[]);
    let mut child = world.launched(&task).await;
    child.update(|status| status.state = TaskState::CommitPending).await;
    world.peer.told(&task.attempt, TaskState::CommitPending).await;
    child.done().await;
    world.peer.told(&task.attempt, TaskState::Succeeded).await;
    child.leave(0);
    world.end(&task).await;
}

#[tokio::test]
async fn a_job_tracker_that_says_nothing_is_given_up() {
    let mut world = TestTracker::with(|parts| {
        parts.settings.reports.call_timeout = Duration::from_millis(20);
        parts.settings.reports.max_errors = 2;
    })
    .await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.session.trackers.job_tracker = local(silent.local_addr().unwrap().port());
    let task = world.task("map", PROGRAM, &[]);
    world.launch(&task).await;
    until("nothing is left", || world.is_empty()).await;
}

#[tokio::test]
async fn a_job_tracker_that_launches_is_the_one_to_tell_when_the_old_one_has_gone() {
    let mut world =
        TestTracker::with(|parts| parts.settings.reports.connect_patience = Duration::ZERO).await;
    let task = world.task("map", PROGRAM, &[]);
    let child = world.launched(&task).await;
    until("a heartbeat", || world.peer.count() >= 1).await;
    let next = Arc::new(Peer::default());
    let next_server = next.serve();
    let old = std::mem::replace(&mut world.job_tracker, next_server);
    world.session.trackers.job_tracker = world.job_tracker.address.clone();
    let mut second = task.clone();
    second.attempt.task.number += 1;
    world.launch(&second).await;
    let _port = old.stop().await;
    next.told(&task.attempt, TaskState::Running).await;
    next.told(&second.attempt, TaskState::Running).await;
    child.leave(1);
    world.end(&task).await;
}
