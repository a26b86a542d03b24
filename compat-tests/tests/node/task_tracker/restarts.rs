//! Restarts in place: tasks, outputs of maps and orders go on, and nobody notices but a pause.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use compat_tests::corona_program;
use compat_tests::task_tracker::cluster_manager::ClusterManager;
use compat_tests::task_tracker::job::Job;
use compat_tests::task_tracker::job_tracker::JobTracker;
use compat_tests::task_tracker::node::{Home, runs};
use compat_tests::task_tracker::until;
use corona::hadoop::writables::{TaskAttemptId, TaskState};

use super::complete::{printed, until_idle};
use super::java::{self, own_classes};
use super::{TestNode, block_on, family, note, process, run_map};

/// How often an attempt was started.
fn started(job: &Job, attempt: &TaskAttemptId) -> usize {
    let name = attempt.to_string();
    let all = job.notes().all();
    all.iter().filter(|note| note.attempt == name && note.what == "started").count()
}

/// The names under which a node has sent heartbeats, and those that it has reported as ended.
fn names(manager: &ClusterManager) -> (BTreeSet<String>, Vec<String>) {
    let state = manager.state();
    let ended = state.heartbeats.iter().flat_map(|node| node.ended.clone().unwrap_or_default());
    (state.heartbeats.iter().map(|node| node.name.clone()).collect(), ended.collect())
}

/// One success in one run.
async fn succeeded_at_once(job_tracker: &JobTracker, job: &Job, attempt: &TaskAttemptId) {
    let report = job_tracker.ended(attempt, 1).await;
    assert_eq!(report.state, TaskState::Succeeded, "{report:?}");
    assert_eq!(started(job, attempt), 1, "{attempt}");
}

#[test]
fn tasks_go_on_over_restarts_in_place() {
    block_on(async {
        let mut world = TestNode::with(&[("corona.slot.multiplier", "1")]).await;
        let (job_tracker, job) = world.session().await;
        let waits = "update=0.5,wait,output,update=1.0,done";
        let job = [1, 2, 3].iter().fold(job.sized(4, 1), |job, map| job.map_steps(*map, waits));
        job.write().unwrap();
        let maps = [0, 1, 2, 3].map(|number| job.map(number));
        let reduce = job.reduce(0);
        run_map(&job_tracker, &job, 0).await;
        // Two run, and the third waits for a slot; the reduce is in its shuffle.
        job_tracker.launch([&maps[1], &maps[2], &maps[3], &reduce].map(|id| job.task(id))).await;
        note(&job, &maps[1], "waits").await;
        note(&job, &maps[2], "waits").await;
        note(&job, &reduce, "fetched").await;
        let pids = [
            process(&job, &maps[1]).await,
            process(&job, &maps[2]).await,
            process(&job, &reduce).await,
        ];
        let node = world.node.pid();

        for _ in 0..3 {
            let before = world.manager.state().heartbeats.len();
            world.node.restart().await;
            world.manager.heartbeat(before).await;
            job_tracker.heartbeats(2).await;
            assert_eq!((world.node.pid(), pids.map(runs)), (node, [true; 3]));
        }
        // An order comes after the restart to a task that was begun before, and a slot becomes free.
        job.notes().let_go(&maps[1].to_string()).unwrap();
        succeeded_at_once(&job_tracker, &job, &maps[1]).await;
        note(&job, &maps[3], "waits").await;
        world.node.restart().await;
        for map in &maps[2..] {
            job.notes().let_go(&map.to_string()).unwrap();
            succeeded_at_once(&job_tracker, &job, map).await;
        }
        job_tracker.state_of(&reduce, TaskState::CommitPending).await;
        world.node.restart().await;
        job_tracker.permit(&reduce).await;
        succeeded_at_once(&job_tracker, &job, &reduce).await;
        assert_eq!(started(&job, &maps[0]), 1);
        assert_eq!(job.notes().of(&reduce.to_string(), "fetched").len(), maps.len());

        let (names, ended) = names(&world.manager);
        assert_eq!((names.len(), ended), (1, vec![]), "{names:?}");
        {
            let state = job_tracker.state();
            let restarted = state.heartbeats.iter().filter(|(_, flags, _)| flags[0]).count();
            assert_eq!(restarted, 1, "the first one alone");
            // Each repeats the id of the last response that it has seen.
            let ids: Vec<i16> = state.heartbeats.iter().map(|(.., id)| *id).collect();
            assert!(ids.is_sorted() && ids.last() > Some(&0), "{ids:?}");
            assert_eq!(state.heartbeats.last().unwrap().0.failures, 0);
        }
        world.end_last_job(&job_tracker, &job).await;
        world.still_works().await;
    });
}

#[test]
fn a_restarted_node_ends_tasks_with_all_that_they_have_started() {
    block_on(async {
        let mut world = TestNode::new().await;
        let (job_tracker, job) = world.session().await;
        let stubborn = "update=0.5,ignore-term,fork,hang";
        let job = job.sized(2, 0).map_steps(0, stubborn).map_steps(1, stubborn);
        job.write().unwrap();
        let maps = [job.map(0), job.map(1)];
        job_tracker.launch(maps.iter().map(|map| job.task(map))).await;
        let mut families = Vec::new();
        for map in &maps {
            note(&job, map, "waits").await;
            families.push(family(&job, map).await);
        }
        world.node.restart().await;
        job_tracker.kill_task(&maps[0]).await;
        // It is being killed while the node starts again.
        world.node.restart().await;
        job_tracker.state_of(&maps[0], TaskState::KilledUnclean).await;
        until("its end", || (!families[0].into_iter().any(runs)).then_some(())).await;
        assert_eq!(families[1].map(runs), [true; 3]);
        world.node.ask_to_end();
        assert_eq!(world.node.ended().await.code(), Some(0), "{}", world.node.log());
        assert_eq!(families[1].map(runs), [false; 3]);
    });
}

#[test]
fn a_task_that_crashes_while_its_node_starts_again_has_failed_once() {
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, job) = world.session().await;
        let job = job.sized(3, 0);
        let waits = "update=0.5,wait,exit=7";
        let job = (0..3).fold(job, |job, map| job.map_steps(map, waits));
        job.write().unwrap();
        for number in 0..3 {
            let map = job.map(number);
            job_tracker.launch([job.task(&map)]).await;
            note(&job, &map, "waits").await;
            let pid = process(&job, &map).await;
            let before = world.node.starts();
            world.node.ask_to_restart();
            job.notes().let_go(&map.to_string()).unwrap();
            until("its end", || (!runs(pid)).then_some(())).await;
            until("a restart", || (world.node.starts() > before).then_some(())).await;
            let report = job_tracker.state_of(&map, TaskState::FailedUnclean).await;
            assert_eq!(started(&job, &map), 1);
            let why = job_tracker.diagnostics(&map);
            assert!(why.contains("exit with nonzero status of 7"), "{why} {report:?}");
        }
        world.end_last_job(&job_tracker, &job).await;
        world.still_works().await;
    });
}

/// A file of the program in a directory.
fn copy(directory: &Path, name: &str) -> std::path::PathBuf {
    let path = directory.join(name);
    fs::copy(corona_program(), &path).unwrap();
    path
}

#[test]
fn a_restart_in_place_runs_the_program_that_was_put_in_place_of_the_old_one() {
    block_on(async {
        let root = tempfile::tempdir().unwrap();
        let program = copy(root.path(), "corona");
        let manager = ClusterManager::start();
        let home = Home::new(root.path(), manager.address(), manager.proxy());
        let mut world = TestNode::at(root, manager, home.with_program(&program)).await;
        let (job_tracker, job, map) = world.waiting_map("update=0.5,wait,output,done").await;
        let pid = process(&job, &map).await;
        // A file that cannot be run changes nothing.
        let wrong = world.root.path().join("wrong");
        fs::write(&wrong, "#!/bin/sh\nexit 1\n").unwrap();
        fs::set_permissions(&wrong, fs::metadata(&program).unwrap().permissions()).unwrap();
        fs::rename(&wrong, &program).unwrap();
        world.node.ask_to_restart();
        until("a refusal", || world.node.log().contains("no restart after SIGHUP").then_some(()))
            .await;
        assert!(runs(pid) && world.node.is_alive());
        // As a package does.
        fs::rename(copy(world.root.path(), "corona.new"), &program).unwrap();
        world.node.restart().await;
        let running = fs::read_link(format!("/proc/{}/exe", world.node.pid())).unwrap();
        assert_eq!(running, program.canonicalize().unwrap());
        assert!(runs(pid));
        job.notes().let_go(&map.to_string()).unwrap();
        succeeded_at_once(&job_tracker, &job, &map).await;
    });
}

#[test]
fn a_process_of_java_takes_tasks_before_and_after_a_restart_in_place() {
    let Some(classes) = own_classes() else { return };
    block_on(async {
        let mut world = java::world(&classes.display().to_string()).await;
        let (job_tracker, job) = java::session(&world, "").await;
        let job = job.sized(3, 0).with("mapred.job.reuse.jvm.num.tasks", "-1");
        job.write().unwrap();
        let mut pids = BTreeSet::new();
        for number in 0..3 {
            let map = run_map(&job_tracker, &job, number).await;
            until_idle(&world, &job_tracker).await;
            world.node.restart().await;
            let (_, pid) = printed(&world, &job_tracker, &map).await;
            pids.insert(pid);
        }
        assert_eq!(pids.len(), 1, "{pids:?}");
        world.end_last_job(&job_tracker, &job).await;
    });
}

#[test]
fn a_restart_in_place_that_would_hand_over_too_much_is_refused() {
    block_on(async {
        let mut world = TestNode::with(&[("corona.tt.handover.max.bytes", "1024")]).await;
        let (job_tracker, job, map) = world.waiting_map("update=0.5,wait,output,done").await;
        let pid = process(&job, &map).await;
        world.node.ask_to_restart();
        let refused = || world.node.log().contains("at most 1024 may be").then_some(());
        until("a refusal", refused).await;
        assert!(runs(pid) && world.node.is_alive());
        job.notes().let_go(&map.to_string()).unwrap();
        succeeded_at_once(&job_tracker, &job, &map).await;
        // Without the job there is next to nothing.
        world.end_last_job(&job_tracker, &job).await;
        world.node.restart().await;
        world.still_works().await;
    });
}

/// A node whose next restart stops at two moments until it is let go on: while the program that is to come is asked, and
/// between the two programs.
struct Stepwise {
    world: TestNode,
    map: TaskAttemptId,
    job: Job,
    job_tracker: JobTracker,
    pid: i32,
}

const MOMENTS: [&str; 2] = ["check", "start"];

impl Stepwise {
    async fn begin(steps: &str) -> Stepwise {
        let root = tempfile::tempdir().unwrap();
        let program = copy(root.path(), "corona");
        let manager = ClusterManager::start();
        let home = Home::new(root.path(), manager.address(), manager.proxy());
        let world = TestNode::at(root, manager, home.with_program(&program)).await;
        let (job_tracker, job, map) = world.waiting_map(steps).await;
        let pid = process(&job, &map).await;
        let path = world.root.path().display();
        let script = format!(
            "#!/bin/bash\ncase \"$*\" in *--check-restart) at=check ;; *) at=start ;; esac\n\
             touch {path}/at-$at\nwhile [ ! -e {path}/go-$at ]; do sleep 0.05; done\n\
             exec {path}/real \"$@\"\n"
        );
        let next = world.root.path().join("next");
        fs::write(&next, script).unwrap();
        fs::set_permissions(&next, fs::metadata(&program).unwrap().permissions()).unwrap();
        fs::rename(copy(world.root.path(), "copy"), world.root.path().join("real")).unwrap();
        fs::rename(&next, &program).unwrap();
        Stepwise { world, map, job, job_tracker, pid }
    }

    fn let_go(&self, moment: &str) {
        fs::write(self.world.root.path().join(format!("go-{moment}")), "").unwrap();
    }

    /// Has the restart begin, and come to this moment.
    async fn restart_until(&self, moment: &str) {
        self.world.node.ask_to_restart();
        for earlier in MOMENTS.iter().take_while(|earlier| **earlier != moment) {
            self.let_go(earlier);
        }
        let at = self.world.root.path().join(format!("at-{moment}"));
        until(moment, || at.exists().then_some(())).await;
    }
}

#[test]
fn a_signal_to_stop_at_any_moment_of_a_restart_ends_all_in_order() {
    block_on(async {
        for moment in MOMENTS {
            let mut it = Stepwise::begin("update=0.5,hang").await;
            it.restart_until(moment).await;
            it.world.node.ask_to_end();
            if moment == "start" {
                it.let_go(moment);
            }
            let status = it.world.node.ended().await;
            assert_eq!(status.code(), Some(0), "{moment}: {}", it.world.node.log());
            assert!(!runs(it.pid), "{moment}");
            // The node has said that it ends.
            let (names, ended) = names(&it.world.manager);
            assert_eq!(names.into_iter().collect::<Vec<_>>(), ended, "{moment}");
        }
    });
}

#[test]
fn further_signals_to_restart_at_any_moment_of_one_cost_no_task() {
    block_on(async {
        for moment in MOMENTS {
            let mut it = Stepwise::begin("update=0.5,wait,output,done").await;
            let before = it.world.node.starts();
            it.restart_until(moment).await;
            for _ in 0..3 {
                it.world.node.ask_to_restart();
            }
            for moment in MOMENTS {
                it.let_go(moment);
            }
            // One that was begun is for those that come before its program is started, and another one for later ones.
            let expected = before + if moment == "check" { 1 } else { 2 };
            until("restarts", || (it.world.node.starts() >= expected).then_some(())).await;
            it.job_tracker.heartbeats(2).await;
            assert!(runs(it.pid) && it.world.node.is_alive(), "{moment}");
            it.job.notes().let_go(&it.map.to_string()).unwrap();
            succeeded_at_once(&it.job_tracker, &it.job, &it.map).await;
        }
    });
}
