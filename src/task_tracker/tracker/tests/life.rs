//! Attempts whose processes do as they should.

use super::*;
use crate::child::CgroupLimits;

/// The CPUs that a job names make the weight of its tasks, else their slots do.
#[tokio::test]
async fn limits_of_a_task_are_those_that_its_job_names() {
    let named = [
        ("corona.job.map.cpus", "3"),
        ("corona.job.reduce.cpus", "2"),
        ("mapred.job.map.memory.mb", "1024"),
        ("mapred.job.reduce.memory.mb", "2048"),
    ];
    for (name, properties, cpus, memory_mb) in
        [("map", &named[..], 3, 1024), ("reduce", &named, 2, 2048), ("map", &[], 5, 5120)]
    {
        let world = TestTracker::new().await;
        let task = world.task(name, PROGRAM, properties);
        let child = world.launched(&task).await;
        let ready = world.tracker.shared.lock().live.values().find_map(|live| live.ready.clone());
        let memory_bytes = Some(memory_mb << 20);
        assert_eq!(ready.unwrap().limits(5), CgroupLimits { memory_bytes, cpus }, "{name}");
        child.leave(1);
        world.end(&task).await;
    }
}

#[tokio::test]
async fn a_tracker_that_stops_takes_no_more_work() {
    let world = TestTracker::new().await;
    world.tracker.stop().await;
    world.launch(&world.task("map", PROGRAM, &[])).await;
    assert!(world.tracker.snapshot().jobs.is_empty());
}

#[tokio::test]
async fn tasks_wait_for_slots_and_those_of_the_other_type_do_not() {
    let world = TestTracker::with(|parts| parts.slots = SlotCounts { maps: 1, reduces: 1 }).await;
    let first = world.task("map", PROGRAM, &[]);
    let mut second = first.clone();
    second.attempt.task.number += 1;
    let reduce = Task { job_file: first.job_file.clone(), ..kind("reduce") };
    let mut child = world.launched(&first).await;
    world.launch(&second).await;
    let other = world.launched(&reduce).await;
    assert_eq!(world.state(&second), Some(TaskState::Unassigned));
    let snapshot = world.tracker.snapshot();
    assert_eq!(snapshot.maps, SlotUse { total: 1, used: 1 });
    assert_eq!(snapshot.reduces, SlotUse { total: 1, used: 1 });
    let mut pids: Vec<_> = snapshot.jobs[0].attempts.iter().map(|attempt| attempt.pid).collect();
    pids.sort();
    let mut expected = [None, Some(child.pid), Some(other.pid)];
    expected.sort();
    assert_eq!(pids, expected);
    child.done().await;
    let next = world.child(&second).await;
    assert!(child.runs(), "its slot was free as soon as its work was done");
    child.leave(0);
    next.leave(1);
    other.leave(1);
    world.peer.told(&second.attempt, TaskState::FailedUnclean).await;
    world.end(&first).await;
}

/// Whichever thread begins first with one of them, the slots are theirs in this order as soon as they are launched.
#[tokio::test]
async fn tasks_take_slots_in_the_order_of_their_launches() {
    let world = TestTracker::with(|parts| parts.slots = SlotCounts { maps: 1, reduces: 1 }).await;
    let first = world.task("map", PROGRAM, &[]);
    let mut second = first.clone();
    second.attempt.task.number += 1;
    let shared = &world.tracker.shared;
    {
        let mut state = shared.lock();
        for task in [&first, &second] {
            let action = Action::Launch(Box::new(task.clone()));
            let action = TaskTrackerAction { session: Some(world.session.clone()), action };
            for order in state.table.submit(action, now()).unwrap() {
                shared.carry_out(&mut state, order);
            }
            assert_eq!(shared.map_slots.available_permits(), 0, "{}", task.attempt);
        }
    }
    let child = world.child(&first).await;
    assert_eq!(world.state(&second), Some(TaskState::Unassigned));
    child.leave(1);
    world.child(&second).await.leave(1);
    world.peer.told(&second.attempt, TaskState::FailedUnclean).await;
    world.end(&first).await;
}

#[tokio::test]
async fn a_task_that_crashed_keeps_no_slot_for_processes_that_it_has_left() {
    let world = TestTracker::with(|parts| parts.slots = SlotCounts { maps: 1, reduces: 1 }).await;
    // SIGTERM is ignored, and SIGKILL far away.
    let script = "(trap '' TERM; while sleep 1; do :; done) & echo $! > below; ";
    let first = world.task("map", &format!("{script}{PROGRAM}"), &[]);
    let mut second = first.clone();
    second.attempt.task.number += 1;
    let child = world.launched(&first).await;
    let below = fs::read_to_string(child.work.join("below")).unwrap();
    let below: i32 = below.trim().parse().unwrap();
    world.launch(&second).await;
    child.leave(1);
    world.peer.told(&first.attempt, TaskState::FailedUnclean).await;
    let next = world.child(&second).await;
    assert!(next.runs() && procfs::Process::of(below).is_some_and(|it| !it.is_zombie));
    next.leave(1);
    world.peer.told(&second.attempt, TaskState::FailedUnclean).await;
    for child in [child, next] {
        let below = fs::read_to_string(child.work.join("below")).unwrap();
        let below = rustix::process::Pid::from_raw(below.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(below, rustix::process::Signal::KILL).unwrap();
    }
    world.end(&first).await;
}

#[tokio::test]
async fn a_job_that_comes_back_waits_for_the_end_of_its_first_life() {
    let world = TestTracker::new().await;
    let task = world.task("map", PROGRAM, &[]);
    let first = world.launched(&task).await;
    let lives = 5;
    for _ in 0..lives {
        world.act(Action::KillJob(task.attempt.job().clone())).await;
        world.launch(&task).await;
    }
    first.gone().await;
    until("the last life has begun", || {
        let live = &world.tracker.shared.lock().live;
        let last = live.values().find(|live| live.run.number == lives + 1);
        live.len() == 1 && last.is_some_and(|live| live.process.is_some())
    })
    .await;
    let last = world.child(&task).await;
    assert!(last.runs() && last.pid != first.pid);
    last.leave(1);
    world.peer.told(&task.attempt, TaskState::FailedUnclean).await;
    world.end(&task).await;
}

#[tokio::test]
async fn logs_in_use_are_kept() {
    let world = TestTracker::with(|parts| {
        parts.settings.log_cleanup_interval = Duration::from_millis(10);
    })
    .await;
    let userlogs = world.root.path().join("logs/userlogs");
    let age = |name: &str| {
        let dir = userlogs.join(name);
        fs::create_dir_all(&dir).unwrap();
        let old = std::time::SystemTime::now() - Duration::from_secs(1_000_000);
        fs::File::open(&dir).unwrap().set_modified(old).unwrap();
        dir
    };
    let task = world.task("map", PROGRAM, &[]);
    let child = world.launched(&task).await;
    let kept: AttemptId = "attempt_20.1_0001_m_100000_0".parse().unwrap();
    let reasons = [world.tracker.keep_logs(&kept), world.tracker.keep_logs(&kept)];
    let running = age(&task.attempt.to_string());
    let kept = age(kept.as_str());
    let old = age("attempt_20.1_0001_m_000001_0");
    until("old logs are deleted", || !old.exists()).await;
    assert!(running.exists() && kept.exists());
    drop(reasons);
    until("logs that nobody needs any more are deleted", || !kept.exists()).await;
    child.leave(1);
    until("the logs of what has ended are deleted", || !running.exists()).await;
    world.end(&task).await;
}
