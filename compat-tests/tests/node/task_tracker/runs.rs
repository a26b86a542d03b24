//! The program as a process: how it ends, the leftovers of an earlier run, how it refuses to start.

use compat_tests::task_tracker::node::{Home, runs};
use compat_tests::task_tracker::until;

use super::{TestNode, block_on, family, note};

#[test]
fn a_node_that_is_asked_to_end_ends_its_tasks() {
    block_on(async {
        let mut world = TestNode::new().await;
        let (_job_tracker, job, map) = world.waiting_map("update=0.5,ignore-term,fork,hang").await;
        let pids = family(&job, &map).await;
        world.node.ask_to_end();
        assert_eq!(world.node.ended().await.code(), Some(0), "{}", world.node.log());
        assert_eq!(pids.map(runs), [false; 3]);
    });
}

#[test]
fn processes_of_a_crashed_run_are_ended_by_the_next_one() {
    block_on(async {
        let mut world = TestNode::new().await;
        let (job_tracker, job) = world.session().await;
        let job = job.sized(2, 1).map_steps(1, "update=0.5,ignore-term,fork,hang");
        job.write().unwrap();
        let (good, stuck) = (job.map(0), job.map(1));
        job_tracker.launch([job.task(&good), job.task(&stuck)]).await;
        job_tracker.ended(&good, 1).await;
        note(&job, &stuck, "waits").await;
        let pids = family(&job, &stuck).await;
        world.node.crash();
        assert!(world.home.left().len() > 2, "{:?}", world.home.left());
        world.start_again().await;
        until("their ends", || (!pids.into_iter().any(runs)).then_some(())).await;
        world.home.nothing_left().await;
    });
}

#[test]
fn bad_configurations_are_refused_with_the_reason() {
    let cases: [(&str, &str, &[&str]); 4] = [
        ("mapred.local.dir", "/dev/null/no", &["/dev/null/no"]),
        ("mapred.task.tracker.report.address", "nowhere", &["mapred.task.tracker.report.address"]),
        ("corona.slot.multiplier", "many", &["corona.slot.multiplier", "many"]),
        ("cm.cpu.to.resource.partitioning", "{", &["cm.cpu.to.resource.partitioning"]),
    ];
    block_on(async {
        let root = tempfile::tempdir().unwrap();
        let nobody = ([127, 0, 0, 1], 9).into();
        let home = Home::new(root.path(), nobody, nobody);
        for (key, value, expected) in cases {
            let mut node = home.clone().with(key, value).spawn();
            let status = node.ended().await;
            let log = node.log();
            assert_eq!(status.code(), Some(1), "{key}: {log}");
            assert!(expected.iter().all(|text| log.contains(text)), "{key}: {log}");
            // One line reports it, whatever else is in the log.
            let told = log.lines().filter(|line| line.starts_with("corona: "));
            assert_eq!(told.count(), 1, "{key}: {log}");
            std::fs::remove_file(root.path().join("task-tracker.log")).unwrap();
        }
    });
}
