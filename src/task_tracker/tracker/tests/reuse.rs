//! Processes that run several tasks. The place of Java is taken by a script.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// Does the same as [`PROGRAM`], and reads its number where Java does.
const JAVA: &str = "#!/bin/bash\necho \"${@: -1} $$\" > told.new; mv told.new told\n\
    for _ in $(seq 6000); do [ -s leave ] && exit $(cat leave); sleep 0.01; done\n";

pub(super) struct JavaWorld {
    pub(super) world: TestTracker,
    java: TempDir,
}

impl JavaWorld {
    pub(super) async fn with(change: impl FnOnce(&mut TrackerSettings)) -> JavaWorld {
        let java = tempfile::tempdir().unwrap();
        let program = java.path().join("java");
        fs::write(&program, JAVA).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let world = TestTracker::with(|parts| {
            parts.install.java = program;
            change(&mut parts.settings);
        });
        JavaWorld { world: world.await, java }
    }

    /// A process that has run a map, and waits for the next task.
    async fn idle(&self, map: &Task) -> Child {
        let mut child = self.world.launched(map).await;
        child.next_task().await;
        child.done().await;
        until("it is idle", || self.world.tracker.snapshot().idle_processes == 1).await;
        assert_eq!(self.world.tracker.snapshot().maps.used, 0, "an idle process has no slot");
        child
    }

    pub(super) fn program(&self) -> PathBuf {
        self.java.path().join("java")
    }

    /// The maps of a job whose processes may run any number of tasks.
    pub(super) fn maps(&self) -> [Task; 3] {
        let first = self.world.task("map", "", &[]);
        let name = "mapred.job.reuse.jvm.num.tasks";
        let property = format!("<property><name>{name}</name><value>-1</value></property>");
        let xml = format!("<configuration>{property}</configuration>");
        fs::write(self.world.root.path().join("job.xml"), xml).unwrap();
        [0, 1, 2].map(|number| {
            let mut task = first.clone();
            task.attempt.task.number += number;
            task.partition += number;
            task
        })
    }
}

impl Child {
    /// Asks until there is a task, and continues as its process.
    pub(super) async fn next_task(&mut self) -> Task {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match self.task().await {
                Ok(task) => {
                    self.attempt = task.attempt.clone();
                    return task;
                }
                Err(should_die) => assert!(!should_die, "{} is to end", self.attempt),
            }
            assert!(Instant::now() < deadline, "no further task");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[tokio::test]
async fn a_task_whose_process_does_not_take_it_gets_another_one() {
    let short = Duration::from_millis(20);
    let java = JavaWorld::with(|settings| settings.jvm_take_timeout = short).await;
    let (world, maps) = (&java.world, java.maps());
    let child = java.idle(&maps[0]).await;
    // It hangs, and asks for nothing.
    let mut other = world.launched(&maps[1]).await;
    assert_ne!(other.pid, child.pid);
    assert_eq!(other.next_task().await.attempt, maps[1].attempt);
    child.gone().await;
    other.done().await;
    world.peer.told(&maps[1].attempt, TaskState::Succeeded).await;
    assert_eq!(world.tracker.snapshot().failures, 0);
    world.end(&maps[0]).await;
}

#[tokio::test]
async fn an_idle_process_that_has_ended_takes_no_task() {
    let java = JavaWorld::with(|_| {}).await;
    let (world, maps) = (&java.world, java.maps());
    let child = java.idle(&maps[0]).await;
    child.leave(0);
    child.gone().await;
    let mut other = world.launched(&maps[1]).await;
    assert_eq!(other.next_task().await.attempt, maps[1].attempt);
    // A failure ends its process, and its attempt alone.
    other.leave(3);
    world.peer.told(&maps[1].attempt, TaskState::FailedUnclean).await;
    assert_eq!(world.tracker.snapshot().failures, 1);
    world.end(&maps[0]).await;
}

#[tokio::test]
async fn an_idle_process_ends_when_no_task_comes() {
    let short = Duration::from_millis(20);
    let java = JavaWorld::with(|settings| settings.jvm_idle = short).await;
    let (world, maps) = (&java.world, java.maps());
    let mut child = world.launched(&maps[0]).await;
    child.next_task().await;
    child.done().await;
    child.gone().await;
    until("its files are gone", || !child.work.exists()).await;
    world.end(&maps[0]).await;
}

#[tokio::test]
async fn a_process_that_ends_in_its_first_task_is_forgotten() {
    let java = JavaWorld::with(|_| {}).await;
    let (world, maps) = (&java.world, java.maps());
    let mut child = world.launched(&maps[0]).await;
    child.next_task().await;
    child.leave(3);
    world.peer.told(&maps[0].attempt, TaskState::FailedUnclean).await;
    until("its process is over", || world.tracker.shared.lock().live.is_empty()).await;
    assert!(world.tracker.shared.lock().jvms.is_empty());
    world.end(&maps[0]).await;
}
