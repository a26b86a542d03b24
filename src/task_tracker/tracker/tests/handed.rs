//! A tracker that goes on with what a former one in the same process has handed over.

use super::reuse::JavaWorld;
use super::*;
use crate::table::TableLimits;

impl TestTracker {
    /// Lets another tracker go on, which gets a text alone. It may be changed.
    async fn hand_over(&mut self, change: impl FnOnce(String) -> String) {
        self.hand_over_to(change, |_| {}).await;
    }

    async fn hand_over_to(
        &mut self,
        change: impl FnOnce(String) -> String,
        change_parts: impl FnOnce(&mut Parts),
    ) {
        let most = self.tracker.handed_bytes();
        let handed = soon(self.tracker.hand_over()).await;
        let text = serde_json::to_string(&handed).unwrap();
        let same: HandedTracker = serde_json::from_str(&text).unwrap();
        assert_eq!(same, handed);
        assert!(text.len() <= most, "{} bytes, and {most} were expected: {text}", text.len());
        let handed: HandedTracker = serde_json::from_str(&change(text)).unwrap();
        let umbilical = nobody();
        let mut parts = parts(self.root.path(), umbilical.address());
        change_parts(&mut parts);
        let former = Former::read(handed, &parts.localiser, TableLimits::default());
        self.tracker = Tracker::go_on(parts, former);
        let actions = self.tracker.action_services(Arc::new(NoJobTrackers));
        self.actions = Running::start(actions);
        self.umbilical = Running::on(umbilical, self.tracker.umbilical_services());
    }

    /// The umbilical of a process that was started by the former tracker.
    fn reconnected(&self, child: Child) -> Child {
        let umbilical = TaskUmbilicalClient::new(self.umbilical.address.clone(), options());
        Child { umbilical, ..child }
    }
}

#[tokio::test]
async fn a_process_that_is_not_found_is_no_failure_of_its_task() {
    let mut world = TestTracker::new().await;
    let task = world.task("map", PROGRAM, &[]);
    let child = world.launched(&task).await;
    let another_start = |text: String| {
        let (before, after) = text.split_once("\"start_ticks\":").unwrap();
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap();
        format!("{before}\"start_ticks\":1{}", &after[digits..])
    };
    world.hand_over(another_start).await;
    let report = world.peer.told(&task.attempt, TaskState::KilledUnclean).await;
    let why = "Lost in a restart of the task tracker: its process was not found";
    assert!(report.diagnostics.starts_with(why), "{report:?}");
    assert_eq!(world.tracker.snapshot().failures, 0);
    child.leave(0);
    world.end(&task).await;
}

#[tokio::test]
async fn an_unreadable_part_is_lost_alone() {
    let mut world = TestTracker::new().await;
    let task = world.task("map", PROGRAM, &[]);
    let child = world.launched(&task).await;
    let mut damaged = task.clone();
    damaged.attempt.task.job.number += 1;
    let lost = world.launched(&damaged).await;
    // A name that can be no name of a directory.
    let mut odd = task.clone();
    odd.attempt.task.job.tracker = "a_b".into();
    world.launch(&odd).await;
    until("it is known", || world.state(&odd).is_some()).await;
    let id = format!("\"id\":\"{}\"", damaged.attempt.job());
    let damage = |text: String| {
        let job = text.find(&id).unwrap();
        let status = job + text[job..].find("\"status\":").unwrap();
        let digits = status + text[status..].find("\"hex\":\"").unwrap() + 7;
        format!("{}0{}", &text[..digits], &text[digits..])
    };
    world.hand_over(damage).await;
    assert_eq!((world.state(&odd), world.state(&damaged)), (None, None));
    let mut child = world.reconnected(child);
    assert!(child.runs() && child.update(|status| status.progress = 0.5).await);
    lost.gone().await;
    child.done().await;
    child.leave(0);
    world.peer.told(&task.attempt, TaskState::Succeeded).await;
    world.act(Action::KillJob(damaged.attempt.job().clone())).await;
    world.end(&task).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_that_come_while_works_end_are_handed_over() {
    let world = TestTracker::new().await;
    let task = world.task("map", PROGRAM, &[]);
    let child = world.launched(&task).await;
    let (tracker, shared) = (world.tracker.clone(), world.tracker.shared.clone());
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    world.tracker.shared.spawn(async move {
        begun.send(()).unwrap();
        // It does not wait, so it is not cut off.
        while !*shared.frozen.borrow() {
            std::thread::sleep(Duration::from_millis(1));
        }
        tracker.purge_session("s1");
    });
    has_begun.await.unwrap();
    soon(world.tracker.hand_over()).await;
    assert_eq!(world.state(&task), None, "the session is gone");
    child.leave(0);
    child.gone().await;
}

#[tokio::test]
async fn files_of_running_tasks_stay_though_those_of_their_job_cannot_be_read() {
    let mut world = TestTracker::new().await;
    let task = world.task("map", PROGRAM, &[]);
    let child = world.launched(&task).await;
    let id: crate::ids::JobId = task.attempt.job().to_string().parse().unwrap();
    let job_xml = world.local().join(layout::job_xml(&id));
    let damage = |text| {
        fs::remove_file(&job_xml).unwrap();
        text
    };
    world.hand_over(damage).await;
    let mut second = task.clone();
    second.attempt.task.number += 1;
    world.launch(&second).await;
    until("it has ended", || world.state(&second) != Some(TaskState::Unassigned)).await;
    world.peer.told(&second.attempt, TaskState::Failed).await;
    let said = world.peer.said(&second.attempt);
    let why: String = said.into_iter().map(|status| status.diagnostics).collect();
    assert!(why.contains("tasks from before a restart"), "{why}");
    let mut child = world.reconnected(child);
    assert!(child.work.exists() && child.update(|status| status.progress = 0.5).await);
    child.done().await;
    child.leave(0);
    world.peer.told(&task.attempt, TaskState::Succeeded).await;
    world.end(&task).await;
}

#[tokio::test]
async fn an_end_meanwhile_is_not_missed() {
    let mut world = TestTracker::new().await;
    let task = world.task("map", PROGRAM, &[]);
    let child = world.launched(&task).await;
    let ends = |text| {
        child.leave(5);
        let deadline = Instant::now() + Duration::from_secs(60);
        while child.runs() {
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::sleep(Duration::from_millis(2));
        }
        text
    };
    world.hand_over(ends).await;
    world.peer.told(&task.attempt, TaskState::FailedUnclean).await;
    let said = world.peer.said(&task.attempt);
    let why: String = said.into_iter().map(|status| status.diagnostics).collect();
    assert!(why.contains("nonzero status of 5"), "{why}");
    world.end(&task).await;
}

#[tokio::test]
async fn an_idle_process_waits_for_the_next_tracker() {
    let mut java = JavaWorld::with(|_| {}).await;
    let maps = java.maps();
    let program = java.program();
    let world = &mut java.world;
    let mut child = world.launched(&maps[0]).await;
    child.next_task().await;
    child.done().await;
    until("it is idle", || world.tracker.snapshot().idle_processes == 1).await;
    let with_java = |parts: &mut Parts| parts.install.java = program.clone();
    world.hand_over_to(|text| text, with_java).await;
    let mut child = world.reconnected(child);
    world.launch(&maps[1]).await;
    let task = child.next_task().await;
    assert_eq!(task.attempt, maps[1].attempt);
    assert!(task.job_file.contains(&task.attempt.to_string()), "{}", task.job_file);
    // It has the task of another run than the one that has started it.
    world.hand_over_to(|text| text, with_java).await;
    child = world.reconnected(child);
    assert!(child.update(|_| {}).await);
    child.done().await;
    world.peer.told(&maps[1].attempt, TaskState::Succeeded).await;
    assert!(child.runs() && child.work.exists(), "it works where it was started");
    world.end(&maps[0]).await;
    assert!(!child.runs());
}

/// Whatever stands first among the works: tasks that run keep their slots, and those that wait go on to.
#[tokio::test]
async fn running_tasks_keep_their_slots_and_the_next_one_waits() {
    let one_slot = |parts: &mut Parts| parts.slots = SlotCounts { maps: 1, reduces: 1 };
    let mut world = TestTracker::with(one_slot).await;
    let first = world.task("map", PROGRAM, &[]);
    let mut second = first.clone();
    second.attempt.task.number += 1;
    let child = world.launched(&first).await;
    world.launch(&second).await;
    until("it is known", || world.state(&second).is_some()).await;
    let reversed = |text: String| {
        let mut handed: serde_json::Value = serde_json::from_str(&text).unwrap();
        let works = handed["works"].as_array_mut().unwrap();
        assert_eq!(works.len(), 2, "{text}");
        works.reverse();
        handed.to_string()
    };
    world.hand_over_to(reversed, one_slot).await;
    assert_eq!(world.tracker.snapshot().maps, SlotUse { total: 1, used: 1 });
    let before = world.peer.count();
    until("reports", || world.peer.count() > before + 3).await;
    assert_eq!(world.state(&second), Some(TaskState::Unassigned));
    assert!(child.runs());
    child.leave(1);
    world.peer.told(&first.attempt, TaskState::FailedUnclean).await;
    world.child(&second).await.leave(1);
    world.peer.told(&second.attempt, TaskState::FailedUnclean).await;
    world.end(&first).await;
}
