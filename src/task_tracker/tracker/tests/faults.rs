//! Misbehaving processes, and tasks that cannot be started.

use tokio::sync::Semaphore;

use super::super::run::Runner;
use super::*;
use crate::job_files::{Answer, FileStatus, JobFiles, Location};

/// The reports on an attempt, once it has ended.
async fn end_of(world: &TestTracker, task: &Task, state: TaskState) -> String {
    let status = world.peer.told(&task.attempt, state).await;
    assert!(status.finish_time_ms > 0 && status.counters.is_some());
    status.diagnostics
}

/// A Java task that has met an exception reports it, and ends with status 0. Nothing more is expected of it.
#[tokio::test]
async fn a_failure_that_was_reported_is_not_explained_again() {
    const EXCEPTION: &str = "java.io.IOException: no more\n\tat Map.map(Map.java:7)\n";
    let world =
        TestTracker::with(|parts| parts.settings.late_done = Duration::from_secs(600)).await;
    for (status, more) in [
        (0, ""),
        (
            1,
            "java.lang.Throwable: Child Error\nCaused by: java.io.IOException: Task process exit \
             with nonzero status of 1.\n",
        ),
    ] {
        let task = world.task("map", PROGRAM, &[]);
        let mut child = world.launched(&task).await;
        let (id, text) = (task.attempt.clone(), Some(EXCEPTION.to_owned()));
        soon(child.umbilical.report_diagnostic_info(id, text)).await.unwrap();
        child.leave(status);
        let why = end_of(&world, &task, TaskState::FailedUnclean).await;
        // The exception may have been reported before the end.
        let all: String =
            world.peer.said(&task.attempt).into_iter().map(|status| status.diagnostics).collect();
        assert!(all == format!("{EXCEPTION}{more}"), "{status}: {all} {why}");
        world.peer.heartbeats.lock().unwrap().clear();
        world.end(&task).await;
    }
}

#[tokio::test]
async fn a_done_that_comes_after_its_process_counts() {
    let world =
        TestTracker::with(|parts| parts.settings.late_done = Duration::from_secs(600)).await;
    let task = world.task("map", PROGRAM, &[]);
    let mut child = world.launched(&task).await;
    child.leave(0);
    child.gone().await;
    child.done().await;
    end_of(&world, &task, TaskState::Succeeded).await;
    world.end(&task).await;
}

#[tokio::test]
async fn a_process_that_stays_after_its_work_is_ended() {
    let world =
        TestTracker::with(|parts| parts.settings.exit_grace = Duration::from_millis(1)).await;
    let task = world.task("map", PROGRAM, &[]);
    let mut child = world.launched(&task).await;
    child.done().await;
    child.gone().await;
    end_of(&world, &task, TaskState::Succeeded).await;
    world.end(&task).await;
}

/// How far a run comes before it ends early.
#[derive(Clone, Copy, Debug, PartialEq)]
enum EndsEarly {
    /// Without a word.
    Silently,
    WithSlots,
    WithProcess,
}

async fn break_off(mut runner: Runner, when: EndsEarly) {
    let slots = runner.slots().await.unwrap();
    if when == EndsEarly::Silently {
        return;
    }
    if when == EndsEarly::WithSlots {
        panic!("out of luck");
    }
    let (spec, _) = runner.spec().unwrap();
    let (ready, slots) = runner.localise(spec, slots).await.unwrap();
    let _task = runner.start(ready.into(), slots).await.unwrap();
    panic!("out of luck");
}

#[tokio::test]
async fn an_attempt_whose_run_ends_early_has_failed_and_leaves_no_files() {
    let world = TestTracker::with(|parts| parts.slots = SlotCounts { maps: 1, reduces: 1 }).await;
    let cases = [
        (EndsEarly::Silently, TaskState::Failed, "it ended without an outcome"),
        (EndsEarly::WithSlots, TaskState::Failed, "panic: out of luck"),
        (EndsEarly::WithProcess, TaskState::FailedUnclean, "panic: out of luck"),
    ];
    for (number, (when, state, why)) in (20..).zip(cases) {
        let mut task = world.task("map", PROGRAM, &[]);
        task.attempt.task.job.number = number;
        task.status.attempt = task.attempt.clone();
        let session = Some(world.session.clone());
        let action = TaskTrackerAction { session, action: Action::Launch(Box::new(task.clone())) };
        {
            let shared = &world.tracker.shared;
            let mut state = shared.lock();
            for order in state.table.submit(action, now()).unwrap() {
                match order {
                    Order::Start(run) => {
                        let work = move |runner, _: &_| break_off(runner, when);
                        run::begin_with(shared, &mut state, run, work);
                    }
                    other => shared.carry_out(&mut state, other),
                }
            }
        }
        let told = end_of(&world, &task, state).await;
        assert_eq!(
            told,
            format!("The task tracker failed while it handled {}: {why}\n", task.attempt)
        );
        // Neither its slots nor its place among the works are kept: the same attempt runs again.
        let child = world.launched(&task).await;
        assert!(child.runs(), "{when:?}");
        world.end(&task).await;
    }
}

#[tokio::test]
async fn a_session_whose_reporter_panics_is_ended() {
    let world = TestTracker::new().await;
    let task = world.task("map", PROGRAM, &[]);
    let child = world.launched(&task).await;
    let reporting = async {
        tokio::task::yield_now().await;
        panic!("out of luck");
    };
    let (shared, job) = (&world.tracker.shared, task.attempt.job());
    reporter::or_give_up::<&str>(shared, job, "s1", reporting).await;
    until("nothing is left", || world.is_empty()).await;
    assert!(!child.runs());
}

#[tokio::test]
async fn work_that_panics_does_not_block_the_next() {
    let world = TestTracker::new().await;
    let (shared, id) = (&world.tracker.shared, kind("map").attempt);
    let job = id.job().clone();
    let [first, second] = [(); 2].map(|()| shared.lock().queues.attempt(&id));
    shared.spawn(shared.clone().in_turn(job.clone(), first, async { panic!("out of luck") }));
    soon(shared.clone().in_turn(job, second, async {})).await;
    world.tracker.stop().await;
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_refused() {
    let world = TestTracker::new().await;
    let mut task = world.task("map", PROGRAM, &[]);
    task.attempt.task.job.tracker = "../../up".to_owned();
    world.launch(&task).await;
    let why = end_of(&world, &task, TaskState::Failed).await;
    assert!(why.contains("is not an attempt, such as"), "{why}");
    world.end(&task).await;
    // The program, the job's file and the local directory: not even logs.
    assert_eq!(fs::read_dir(world.root.path()).unwrap().count(), 3);
}

/// Files of this machine; those with "stuck" in their names take a permit.
struct Stuck {
    files: LocalFiles,
    permits: Semaphore,
}

impl JobFiles for Stuck {
    fn status<'a>(&'a self, location: &'a Location) -> Answer<'a, FileStatus> {
        self.files.status(location)
    }

    fn fetch<'a>(&'a self, location: &'a Location, to: &'a Path) -> Answer<'a, u64> {
        Box::pin(async move {
            if location.path().contains("stuck") {
                self.permits.acquire().await.unwrap().forget();
            }
            self.files.fetch(location, to).await
        })
    }
}

/// A tracker with one slot a type, a job whose file does not come, and one that is well.
async fn stuck(localise_timeout: Duration) -> (TestTracker, Arc<Stuck>, Task, Task) {
    let files = LocalFiles { timeout: Duration::from_secs(600), max_bytes: 1 << 20 };
    let files = Arc::new(Stuck { files, permits: Semaphore::new(0) });
    let theirs = files.clone();
    let world = TestTracker::with(|parts| {
        parts.localiser = localiser(&parts.dirs, theirs);
        parts.settings.localise_timeout = localise_timeout;
        parts.slots = SlotCounts { maps: 1, reduces: 1 };
    })
    .await;
    let well = world.task("map", PROGRAM, &[]);
    let mut stuck = well.clone();
    stuck.attempt.task.job.number = 77;
    let path = world.root.path().join("stuck.xml");
    fs::copy(world.root.path().join("job.xml"), &path).unwrap();
    stuck.job_file = format!("file:{}", path.display());
    world.launch(&stuck).await;
    until("its file is fetched", || world.tracker.snapshot().maps.used == 1).await;
    (world, files, stuck, well)
}

#[tokio::test]
async fn a_job_that_does_not_come_fails_and_gives_its_slot_back() {
    let (world, files, stuck, _) = stuck(Duration::from_millis(20)).await;
    let why = end_of(&world, &stuck, TaskState::Failed).await;
    assert!(why.ends_with("its files were not here within 20ms\n"), "{why}");
    until("its slot is free", || world.tracker.snapshot().maps.used == 0).await;
    // It comes nonetheless, and all its files are deleted.
    files.permits.add_permits(1);
    world.end(&stuck).await;
}

#[tokio::test]
async fn a_kill_frees_the_slot_of_a_job_that_does_not_come() {
    let (world, files, stuck, well) = stuck(Duration::from_secs(600)).await;
    world.launch(&well).await;
    world.act(Action::KillJob(stuck.attempt.job().clone())).await;
    let child = world.child(&well).await;
    // It comes too late, and all its files are deleted.
    world.launch(&stuck).await;
    files.permits.add_permits(2);
    child.leave(1);
    world.child(&stuck).await.leave(1);
    end_of(&world, &stuck, TaskState::FailedUnclean).await;
    world.act(Action::KillJob(stuck.attempt.job().clone())).await;
    world.end(&well).await;
}

/// A map may use any amount here, a reduce none: only the reduce is too large.
#[tokio::test]
async fn the_memory_of_a_reduce_is_bounded_by_its_own_key() {
    let total = procfs::Machine::now().memory_bytes;
    let world = TestTracker::with(|parts| {
        parts.settings.memory.reserved_bytes = Some(total);
        parts.settings.memory.interval = Duration::from_millis(10);
    })
    .await;
    let sizes = [("mapred.job.map.memory.mb", "1000000000"), ("mapred.job.reduce.memory.mb", "0")];
    let task = world.task("reduce", PROGRAM, &sizes);
    world.launch(&task).await;
    let why = end_of(&world, &task, TaskState::FailedUnclean).await;
    assert!(why.starts_with(&format!("Failing high-memory task:{} pid:", task.attempt)), "{why}");
    world.end(&task).await;
}

#[tokio::test]
async fn calls_of_unknown_attempts() {
    let world = TestTracker::new().await;
    let mut umbilical = TaskUmbilicalClient::new(world.umbilical.address.clone(), options());
    let id = kind("map").attempt;
    let status = kind("map").status;
    assert!(!soon(umbilical.ping(id.clone())).await.unwrap());
    assert!(!soon(umbilical.status_update(id.clone(), status.clone())).await.unwrap());
    assert!(!soon(umbilical.can_commit(id.clone())).await.unwrap());
    soon(umbilical.commit_pending(id.clone(), status)).await.unwrap();
    soon(umbilical.done(id.clone())).await.unwrap();
    soon(umbilical.fatal_error(id.clone(), None)).await.unwrap();
    soon(umbilical.report_diagnostic_info(id.clone(), None)).await.unwrap();
    let jvm = JvmId { number: 1, job: id.job().clone(), is_map: true };
    let context = JvmContext { jvm, pid: String::new() };
    let answer = soon(umbilical.get_task(context)).await.unwrap();
    assert!(answer.should_die && answer.task.is_none());
    let events = soon(umbilical.get_map_completion_events(id.job().clone(), 0, 9, id)).await;
    assert_eq!(events.unwrap(), Default::default());
    let mut actions = CoronaTaskTrackerClient::new(world.actions.address.clone(), options());
    soon(actions.submit_actions(None)).await.unwrap();
    let session = world.session.clone();
    let refused = soon(actions.start_corona_job_tracker(kind("map"), session)).await.unwrap_err();
    assert!(refused.to_string().contains("is not configured to run job trackers"), "{refused}");
}

/// The job's directory on the node, if it is there.
fn job_dir(world: &TestTracker, task: &Task) -> Option<PathBuf> {
    let name = task.attempt.job().to_string().parse().unwrap();
    let path = world.root.path().join("local").join(layout::job(&name));
    path.exists().then_some(path)
}

#[tokio::test]
async fn an_order_that_is_older_than_the_end_of_its_job_starts_nothing() {
    let world = TestTracker::new().await;
    // The process was stopped for a minute, and the order waited in a socket.
    let minute = Duration::from_secs(60);
    let long_ago = Instant::now().checked_sub(minute).unwrap();
    *world.tracker.shared.pulse() = Pulse::new(long_ago);
    world.peer.is_over.store(true, std::sync::atomic::Ordering::SeqCst);
    let task = world.task("map", "touch started", &[]);
    world.launch(&task).await;
    until("the question", || world.peer.questions.load(std::sync::atomic::Ordering::SeqCst) > 0)
        .await;
    until("the end of the job", || world.tracker.snapshot().jobs.is_empty()).await;
    until("the end of its files", || job_dir(&world, &task).is_none()).await;
    assert!(
        world.peer.said(&task.attempt).iter().all(|status| status.state == TaskState::Unassigned)
    );
}

#[tokio::test]
async fn an_order_that_waited_here_while_the_node_hung_is_as_old() {
    let world = TestTracker::with(|parts| parts.slots = SlotCounts { maps: 1, reduces: 1 }).await;
    let first = world.task("map", PROGRAM, &[]);
    let mut second = first.clone();
    second.attempt.task.number += 1;
    let mut child = world.launched(&first).await;
    world.launch(&second).await;
    assert_eq!(world.state(&second), Some(TaskState::Unassigned), "it waits for the slot");
    let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    *world.tracker.shared.pulse() = Pulse::new(long_ago);
    world.peer.is_over.store(true, std::sync::atomic::Ordering::SeqCst);
    child.done().await;
    until("the end of the job", || world.tracker.snapshot().jobs.is_empty()).await;
    until("the end of its files", || job_dir(&world, &first).is_none()).await;
    assert!(world.peer.said(&second.attempt).iter().all(|it| it.state == TaskState::Unassigned));
}

#[tokio::test]
async fn an_order_after_a_pause_of_the_node_is_carried_out_if_its_job_runs() {
    let world = TestTracker::new().await;
    let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    *world.tracker.shared.pulse() = Pulse::new(long_ago);
    let task = world.task("map", PROGRAM, &[]);
    let child = world.launched(&task).await;
    assert_eq!(world.peer.questions.load(std::sync::atomic::Ordering::SeqCst), 1);
    world.end(&task).await;
    assert!(!child.runs());
}

#[tokio::test]
async fn the_files_of_a_job_go_when_its_end_was_missed() {
    let world =
        TestTracker::with(|parts| parts.settings.reports.slow_interval = Duration::from_millis(1))
            .await;
    let task = world.task("map", PROGRAM, &[]);
    let child = world.launched(&task).await;
    assert!(job_dir(&world, &task).is_some());
    child.leave(1);
    end_of(&world, &task, TaskState::FailedUnclean).await;
    until("a question", || world.peer.questions.load(std::sync::atomic::Ordering::SeqCst) > 0)
        .await;
    assert!(job_dir(&world, &task).is_some(), "the job runs");
    // It ends while the node is away: nobody sends its end.
    world.peer.is_over.store(true, std::sync::atomic::Ordering::SeqCst);
    until("the end of its files", || job_dir(&world, &task).is_none()).await;
    assert!(world.tracker.snapshot().jobs.is_empty());
}
