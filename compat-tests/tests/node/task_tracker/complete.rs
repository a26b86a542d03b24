//! What a node of the original does besides running tasks: several tasks in one process of Java, an
//! archive of its classes, a health script, debug scripts, profiling, files that stay, control groups,
//! and what tasks use.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use compat_tests::skipping::{Missing, skip};
use compat_tests::task_tracker::job_tracker::JobTracker;
use compat_tests::task_tracker::node::runs;
use compat_tests::task_tracker::steps::TaskRole;
use compat_tests::task_tracker::until;
use corona::hadoop::writables::{TaskAttemptId, TaskState};

use super::java::{own_classes, session, world, world_with};
use super::{TestNode, block_on, process, readers, run_map};

/// A page of the task tracker, without its head.
pub(super) async fn get(node: SocketAddr, path: &str) -> String {
    let answer = String::from_utf8(readers::get(node, path).await).expect("text");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    body.to_owned()
}

/// The part of the standard output that belongs to an attempt of our Java child, and its process.
pub(super) async fn printed(
    world: &TestNode,
    job_tracker: &JobTracker,
    attempt: &TaskAttemptId,
) -> (String, u32) {
    let http = world.http(job_tracker).await;
    let path = format!("/tasklog?taskid={attempt}&filter=stdout&plaintext=true");
    let text = get(http, &path).await;
    let line = format!("task {attempt} in process ");
    let pid = text.lines().find_map(|shown| shown.strip_prefix(&*line)?.parse().ok());
    (text.clone(), pid.unwrap_or_else(|| panic!("{line:?} is not in {text}")))
}

/// Waits until a process waits for a further task.
pub(super) async fn until_idle(world: &TestNode, job_tracker: &JobTracker) {
    let http = world.http(job_tracker).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !get(http, "/metrics").await.contains("\ncorona_task_tracker_idle_processes 1\n") {
        assert!(Instant::now() < deadline, "no process is idle");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn tasks_of_a_job_share_a_process_of_java() {
    let Some(classes) = own_classes() else { return };
    block_on(async {
        let world = world(&classes.display().to_string()).await;
        let (job_tracker, job) = session(&world, "").await;
        let job = job.sized(3, 1).with("mapred.job.reuse.jvm.num.tasks", "-1");
        job.write().unwrap();
        let mut pids = BTreeSet::new();
        for number in 0..3 {
            let map = run_map(&job_tracker, &job, number).await;
            until_idle(&world, &job_tracker).await;
            let (text, pid) = printed(&world, &job_tracker, &map).await;
            assert_eq!(text.matches("in process").count(), 1, "only its own part: {text}");
            pids.insert(pid);
            let index = fs::read_to_string(world.home.logs_of(&map.to_string()).join("log.index"));
            assert!(index.unwrap().starts_with(&format!("LOG_DIR:{}\n", job.map(0))));
        }
        assert_eq!(pids.len(), 1, "{pids:?}");
        let reduce = job.reduce(0);
        job_tracker.launch([job.task(&reduce)]).await;
        assert_eq!(job_tracker.ended(&reduce, 1).await.state, TaskState::Succeeded);
        let (_, of_reduce) = printed(&world, &job_tracker, &reduce).await;
        assert!(!pids.contains(&of_reduce), "maps and reduces share none");
        // Both wait for tasks, until their job is over.
        let all: Vec<i32> =
            pids.into_iter().chain([of_reduce]).map(|pid| i32::try_from(pid).unwrap()).collect();
        assert!(all.iter().all(|pid| runs(*pid)));
        world.end_last_job(&job_tracker, &job).await;
        assert!(!all.iter().any(|pid| runs(*pid)));
    });
}

#[test]
fn a_process_of_java_ends_after_as_many_tasks_as_its_job_wants_or_when_none_come() {
    let Some(classes) = own_classes() else { return };
    block_on(async {
        let idle = ("corona.tt.jvm.idle.ms", "10000");
        let world = world_with(&classes.display().to_string(), &[idle]).await;
        let (job_tracker, job) = session(&world, "").await;
        let job = job.sized(4, 0).with("mapred.job.reuse.jvm.num.tasks", "2");
        job.write().unwrap();
        let mut pids = Vec::new();
        for number in 0..3 {
            let map = run_map(&job_tracker, &job, number).await;
            if number == 0 {
                until_idle(&world, &job_tracker).await;
            }
            pids.push(printed(&world, &job_tracker, &map).await.1);
        }
        assert!(pids[0] == pids[1] && pids[0] != pids[2], "{pids:?}");
        // The first behind its last task, the other one while it is idle.
        for pid in [pids[0], pids[2]] {
            let pid = i32::try_from(pid).unwrap();
            until("the end of a process", || (!runs(pid)).then_some(())).await;
        }
        // The next task does not depend on it.
        run_map(&job_tracker, &job, 3).await;
        world.end_last_job(&job_tracker, &job).await;
    });
}

#[test]
fn the_health_script_is_reported_to_job_trackers_and_shown() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let (script, sick) = (dir.path().join("health.sh"), dir.path().join("sick"));
        let text =
            format!("#!/bin/bash\n[ -e {} ] && echo \"ERROR disk $1\"\nexit 0\n", sick.display());
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&sick, "").unwrap();
        let script = script.display().to_string();
        let world = TestNode::with(&[
            ("mapred.healthChecker.script.path", &*script),
            ("mapred.healthChecker.script.args", "sda,sdb"),
            ("mapred.healthChecker.interval", "50"),
        ])
        .await;
        let (job_tracker, job, map) = world.waiting_map("wait").await;
        let reported = |is_healthy: bool, report: &'static str| {
            let job_tracker = &job_tracker;
            until("the health of the node", move || {
                let state = job_tracker.state();
                let (status, ..) = state.heartbeats.last()?;
                let health = &status.health;
                (health.is_healthy == is_healthy && health.report == report).then_some(())
            })
        };
        reported(false, "ERROR disk sda\n").await;
        let http = world.http(&job_tracker).await;
        let page = get(http, "/").await;
        assert!(page.contains("The health script reports: ERROR disk sda"), "{page}");
        fs::remove_file(&sick).unwrap();
        reported(true, "").await;
        assert!(get(http, "/metrics").await.contains("\ncorona_task_tracker_healthy 1\n"));
        job_tracker.kill_task(&map).await;
        world.end_last_job(&job_tracker, &job).await;
    });
}

#[test]
fn a_debug_script_that_hangs_delays_no_other_task() {
    block_on(async {
        let world = TestNode::with(&[("corona.tt.debug.script.timeout.ms", "3000")]).await;
        let (job_tracker, job) = world.session().await;
        let job = job
            .steps(TaskRole::Map, "exit=3")
            .with("mapred.map.task.debug.script", "bash -c 'while :; do echo x; done'");
        job.write().unwrap();
        let map = job.map(0);
        job_tracker.launch([job.task(&map)]).await;
        // An innocent job runs meanwhile.
        let (other_tracker, other) = world.session().await;
        other.write().unwrap();
        run_map(&other_tracker, &other, 0).await;
        job_tracker.ended(&map, 1).await;
        let output = world.home.logs_of(&map.to_string()).join("debugout");
        let bytes = fs::metadata(output).unwrap().len();
        assert!((1 << 10..2 << 20).contains(&bytes), "{bytes}");
        other_tracker.kill_job(&other.id).await;
        world.end_last_job(&job_tracker, &job).await;
    });
}

#[test]
fn files_of_attempts_that_match_a_pattern_stay() {
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, job) = world.session().await;
        let job = job.sized(2, 0).with("keep.task.files.pattern", ".*_m_000001_\\d");
        job.write().unwrap();
        for number in 0..2 {
            run_map(&job_tracker, &job, number).await;
        }
        let cache = |attempt: &TaskAttemptId| -> Vec<PathBuf> {
            let work = format!("taskTracker/jobcache/{}/{attempt}/work", job.id);
            let dirs = world.home.local_dirs().into_iter();
            dirs.map(|dir| dir.join(&work)).filter(|work| work.exists()).collect()
        };
        let gone = || cache(&job.map(0)).is_empty().then_some(());
        until("the end of the files of another attempt", gone).await;
        job_tracker.kill_job(&job.id).await;
        // The deletion of another job shows that the first one was over.
        world.still_keeps(&job_tracker, || !cache(&job.map(1)).is_empty()).await;
    });
}

impl TestNode {
    /// Whether something still holds when another job has come and gone.
    async fn still_keeps(&self, _first: &JobTracker, holds: impl Fn() -> bool) {
        let (job_tracker, job) = self.session().await;
        job.write().unwrap();
        run_map(&job_tracker, &job, 0).await;
        job_tracker.kill_job(&job.id).await;
        let dir = format!("taskTracker/jobcache/{}", job.id);
        let gone = || {
            let dirs = self.home.local_dirs();
            (!dirs.iter().any(|local| local.join(&dir).exists())).then_some(())
        };
        until("the end of the files of another job", gone).await;
        assert!(holds());
    }
}

#[test]
fn profiled_tasks_of_java_have_the_option_of_their_job() {
    let Some(classes) = own_classes() else { return };
    block_on(async {
        let world = world(&classes.display().to_string()).await;
        let (job_tracker, job) = session(&world, "").await;
        let job = job
            .sized(2, 0)
            .with("mapred.task.profile", "true")
            .with("mapred.task.profile.maps", "1-")
            .with("mapred.task.profile.params", "-Dtest.profile=%s");
        job.write().unwrap();
        for (number, is_profiled) in [(0, false), (1, true)] {
            let map = run_map(&job_tracker, &job, number).await;
            let logs = world.home.logs_of(&map.to_string());
            let expected = match is_profiled {
                true => format!("test.profile={}", logs.join("profile.out").display()),
                false => "test.profile=null".to_owned(),
            };
            let (text, _) = printed(&world, &job_tracker, &map).await;
            assert!(text.lines().any(|line| line == expected), "{expected} is not in {text}");
        }
        world.end_last_job(&job_tracker, &job).await;
    });
}

/// A jar of our classes, as an archive needs one.
fn jar(classes: &Path, jar: &Path) {
    let status = std::process::Command::new("jar")
        .arg("cf")
        .arg(jar)
        .arg("-C")
        .arg(classes)
        .arg(".")
        .status();
    assert!(status.expect("jar").success());
}

#[test]
fn tasks_of_java_start_with_an_archive_of_the_classes_of_the_install() {
    let Some(classes) = own_classes() else { return };
    block_on(async {
        let install = tempfile::tempdir().unwrap();
        let file = install.path().join("child.jar");
        jar(&classes, &file);
        let conf = install.path().join("conf");
        fs::create_dir(&conf).unwrap();
        fs::write(conf.join("core-site.xml"), "<configuration/>").unwrap();
        let class_path = format!("{}:{}", conf.display(), file.display());
        let settings =
            [("corona.tt.class.archive", "true"), ("corona.tt.java.short.task.ms", "600000")];
        let mut world = world_with(&class_path, &settings).await;
        let (job_tracker, job) = session(&world, "").await;
        let options = "-Xmx64m -Xlog:class+load:file=@taskid@.classes -XX:+PrintCommandLineFlags";
        let job = job.sized(8, 0).with("mapred.child.java.opts", options);
        let job = job.with("keep.task.files.pattern", ".*");
        job.write().unwrap();
        let http = world.http(&job_tracker);
        run_map(&job_tracker, &job, 0).await;
        let http = http.await;
        archived(http).await;
        let archived = |map: &TaskAttemptId| {
            let work = format!("taskTracker/jobcache/{}/{map}/work/{map}.classes", job.id);
            let dirs = world.home.local_dirs().into_iter();
            let found = dirs.map(|dir| dir.join(&work)).find(|file| file.exists()).unwrap();
            let loaded = fs::read_to_string(found).unwrap();
            let line = loaded.lines().find(|line| line.contains(".CoronaChild "));
            line.unwrap().ends_with("source: shared objects file")
        };
        assert!(!archived(&job.map(0)), "nothing waits for the archive");
        let map = run_map(&job_tracker, &job, 1).await;
        assert!(archived(&map));
        let (text, _) = printed(&world, &job_tracker, &map).await;
        assert!(!text.contains("[warning]"), "{text}");
        // A damaged archive fails no task.
        let archives = world.home.local_dirs()[0].join("corona-class-archives");
        let file = fs::read_dir(archives).unwrap().next().unwrap().unwrap().path();
        fs::remove_file(&file).unwrap();
        fs::write(&file, "no archive").unwrap();
        let map = run_map(&job_tracker, &job, 2).await;
        let (flags, _) = printed(&world, &job_tracker, &map).await;
        assert!(flags.contains("MaxHeapSize") && !flags.contains("TieredStopAt"), "{flags}");
        // Three maps were short, so the next one is expected to be short, once the processes of these
        // have ended, which is later than their reports.
        let mut flags = String::new();
        for number in 3..8 {
            let map = run_map(&job_tracker, &job, number).await;
            flags = printed(&world, &job_tracker, &map).await.0;
            if flags.contains("-XX:TieredStopAtLevel=1") {
                break;
            }
        }
        assert!(flags.contains("-XX:TieredStopAtLevel=1"), "{flags}");
        job_tracker.kill_job(&job.id).await;
        world.node.ask_to_end();
        world.node.ended().await;
    });
}

/// Waits until the archive of classes is there.
async fn archived(http: SocketAddr) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let state = get(http, "/api/v1/tracker").await;
        if state.contains(r#""class_archive":"ready""#) {
            return;
        }
        let is_made = !state.contains(r#""class_archive":"none"#) && Instant::now() < deadline;
        assert!(is_made, "{state}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The time from the start of a map's process to its `done`, without an archive and with one, one
/// after the other on the same machine. `CORONA_TEST_HADOOP_CLASSPATH` may name another class path
/// with the classes of this project's own child.
#[test]
#[ignore = "a measurement, see docs/reference/performance.md"]
fn measured_starts_of_java_with_and_without_an_archive() {
    const MAPS: i32 = 21;

    let Some(classes) = own_classes() else { return };
    block_on(async {
        let install = tempfile::tempdir().unwrap();
        let file = install.path().join("child.jar");
        jar(&classes, &file);
        let class_path = std::env::var("CORONA_TEST_HADOOP_CLASSPATH");
        let class_path = class_path.unwrap_or_else(|_| file.display().to_string());
        let without = world(&class_path).await;
        let with = world_with(&class_path, &[("corona.tt.class.archive", "true")]).await;
        let mut times: [Vec<i64>; 2] = Default::default();
        let mut jobs = Vec::new();
        for world in [&without, &with] {
            let (job_tracker, job) = session(world, "").await;
            let job = job.sized(MAPS, 0).with("mapred.child.java.opts", "-Xmx200m");
            job.write().unwrap();
            run_map(&job_tracker, &job, 0).await;
            jobs.push((job_tracker, job));
        }
        archived(with.http(&jobs[1].0).await).await;
        for number in 1..MAPS {
            for ((job_tracker, job), times) in jobs.iter().zip(&mut times) {
                let map = job.map(number);
                job_tracker.launch([job.task(&map)]).await;
                let report = job_tracker.ended(&map, 1).await;
                times.push(report.finish_time_ms - report.start_time_ms);
            }
        }
        let [without, with] = times.map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2]
        });
        let ratio = with as f64 / without as f64;
        println!("median start to done: {without} ms without, {with} ms with, {ratio:.2} x");
    });
}

/// The directory in which this user may make control groups, if there is one.
fn cgroup(test: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "));
    let mount = mount.and_then(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let made = mount.map(|mount| mount.join(format!("corona-test-{}-{test}", std::process::id())));
    let made = made.filter(|dir| fs::create_dir(dir).is_ok());
    if made.is_none() {
        skip(Missing::Cgroups);
    }
    made
}

#[test]
fn tasks_have_control_groups_and_what_they_use_is_reported() {
    let test = "tasks_have_control_groups_and_what_they_use_is_reported";
    let Some(root) = cgroup(test) else { return };
    block_on(async {
        let shown = root.display().to_string();
        let world = TestNode::with(&[
            ("mapred.tasktracker.cgroup.cpu", "true"),
            ("corona.tt.cgroup.root", &*shown),
            ("mapred.tasktracker.taskmemorymanager.monitoring-interval", "50"),
        ])
        .await;
        let (job_tracker, job, map) = world.waiting_map("memory=8,wait").await;
        let pid = process(&job, &map).await;
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let own = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned();
        assert!(own.contains("/corona-tasks-") && own.contains(&map.to_string()), "{groups}");
        let http = world.http(&job_tracker).await;
        let api = format!("/api/v1/jobs/{}", job.id);
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let state: serde_json::Value = serde_json::from_str(&get(http, &api).await).unwrap();
            let attempt = &state["attempts"][0];
            let used = attempt["cpu_ms"].as_u64().zip(attempt["memory_bytes"].as_u64());
            if used.is_some_and(|(cpu_ms, memory)| cpu_ms > 0 && memory > 8 << 20) {
                break;
            }
            assert!(Instant::now() < deadline, "{state}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let metrics = get(http, "/metrics").await;
        assert!(!metrics.contains("corona_task_tracker_tasks_cpu_seconds_total 0\n"), "{metrics}");
        job_tracker.kill_task(&map).await;
        world.end_last_job(&job_tracker, &job).await;
        let left = || {
            let dirs = fs::read_dir(&root).unwrap().flatten();
            let tasks = dirs.filter(|dir| dir.path().is_dir());
            tasks
                .flat_map(|dir| fs::read_dir(dir.path()).unwrap().flatten())
                .any(|entry| entry.path().is_dir())
        };
        assert!(!left(), "the group goes with its task");
    });
    remove_groups(&root);
}

#[test]
fn the_kernel_ends_a_task_that_takes_more_memory_than_its_job_allows() {
    let test = "the_kernel_ends_a_task_that_takes_more_memory_than_its_job_allows";
    let Some(root) = cgroup(test) else { return };
    let offered = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    if !offered.split_whitespace().any(|name| name == "memory") {
        remove_groups(&root);
        return skip(Missing::MemoryController);
    }
    block_on(async {
        let shown = root.display().to_string();
        let world = TestNode::with(&[
            ("mapred.tasktracker.cgroup.mem", "true"),
            ("corona.tt.cgroup.root", &*shown),
        ])
        .await;
        let (job_tracker, job) = world.session().await;
        let job =
            job.steps(TaskRole::Map, "memory=300,hang").with("mapred.job.map.memory.mb", "100");
        job.write().unwrap();
        let map = job.map(0);
        job_tracker.launch([job.task(&map)]).await;
        assert_eq!(job_tracker.ended(&map, 1).await.state, TaskState::FailedUnclean);
        let told = job_tracker.diagnostics(&map);
        assert!(told.split_whitespace().any(|word| word == "CGroup_high_memory"), "{told}");
        job_tracker.kill_job(&job.id).await;
        world.still_works().await;
    });
    remove_groups(&root);
}

#[test]
fn without_control_groups_memory_is_limited_by_checks() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().display().to_string();
        let world = TestNode::with(&[
            ("mapred.tasktracker.cgroup.mem", "true"),
            ("corona.tt.cgroup.root", &*root),
            ("mapred.tasktracker.taskmemorymanager.monitoring-interval", "50"),
        ])
        .await;
        let logged = "tasks have no cgroups; the memory of each task";
        let log =
            until("a warning", || Some(world.node.log()).filter(|log| log.contains(logged))).await;
        assert_eq!(log.matches(logged).count(), 1, "{log}");
        let (job_tracker, job) = world.session().await;
        let job = job.sized(2, 0).steps(TaskRole::Map, "update=0.5,memory=64,hang");
        let job = job.with("mapred.job.map.memory.mb", "32").map_steps(1, "done");
        job.write().unwrap();
        let (greedy, innocent) = (job.map(0), job.map(1));
        job_tracker.launch([job.task(&greedy), job.task(&innocent)]).await;
        assert_eq!(job_tracker.ended(&greedy, 1).await.state, TaskState::FailedUnclean);
        assert_eq!(job_tracker.ended(&innocent, 1).await.state, TaskState::Succeeded);
        let told = job_tracker.diagnostics(&greedy);
        assert!(told.starts_with("Failing high-memory task:"), "{told}");
        world.end_last_job(&job_tracker, &job).await;
    });
}

/// Deletes a control group of a test and those below it, which are empty.
fn remove_groups(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_groups(&entry.path());
        }
    }
    fs::remove_dir(dir).unwrap();
}
