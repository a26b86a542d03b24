//! Java children, started as the original starts them: the tasks of the recorded sleep job, and the
//! environment and leftovers of a Java task.
//!
//! They are our own, from `compat-tests/clients/java/child`, or those of a Hadoop install, if
//! `CORONA_TEST_HADOOP_CLASSPATH` is the class path of one, its example jobs and a directory with
//! `log4j.properties` included. `CORONA_TEST_JAVA_OPTIONS` may hold options that the installed Java needs
//! for it, `CORONA_TEST_JAVA_HOME` names another Java than that of `PATH`.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use compat_tests::task_tracker::job::Job;
use compat_tests::task_tracker::job_tracker::JobTracker;
use compat_tests::task_tracker::until;
use compat_tests::{clients, repository};
use corona::hadoop::writables::{Task, TaskState, TaskStatus};

use super::recorded::{launches, recorded_ends};
use super::{TestNode, block_on};

const CLASS_PATH: &str = "CORONA_TEST_HADOOP_CLASSPATH";
const RECORDING: &str = "inproc-sleep";

/// Counters that depend on nothing but the job.
const COUNTERS: [&str; 5] = [
    "MAP_INPUT_RECORDS",
    "MAP_OUTPUT_RECORDS",
    "REDUCE_INPUT_GROUPS",
    "REDUCE_INPUT_RECORDS",
    "REDUCE_OUTPUT_RECORDS",
];

fn counted(status: &TaskStatus) -> Vec<Option<i64>> {
    let counters = status.counters.as_ref().expect("the counters of an attempt that has ended");
    let value = |name: &&str| counters.get("org.apache.hadoop.mapred.Task$Counter", name);
    COUNTERS.iter().map(value).collect()
}

/// The recorded configuration of the job, with settings that this machine's Java needs.
fn job_xml() -> String {
    let file = repository().join("fixtures/task_tracker/job.xml");
    let recorded = fs::read_to_string(file).unwrap();
    let options = env::var("CORONA_TEST_JAVA_OPTIONS").unwrap_or_default();
    let own = [("mapred.admin.child.java.opts", &*options), ("mapred.system.dir", "file:///")];
    let own = own.map(|(name, value)| {
        format!("<property><name>{name}</name><value>{value}</value></property>\n")
    });
    recorded.replace("</configuration>", &format!("{}</configuration>", own.concat()))
}

/// Runs tasks to their ends.
async fn run(job_tracker: &JobTracker, tasks: &[&Task], compared: &mut usize) {
    job_tracker.launch(tasks.iter().map(|task| (*task).clone())).await;
    for task in tasks {
        let ours = job_tracker.ended(&task.attempt, 1).await;
        assert_eq!(ours.state, TaskState::Succeeded, "{ours:?}");
        // The last one is not reported any more: the job is over.
        let mut theirs = recorded_ends(RECORDING).into_iter();
        let Some(theirs) = theirs.rfind(|end| end.attempt == task.attempt) else { continue };
        assert_eq!(counted(&ours), counted(&theirs), "{}", task.attempt);
        *compared += 1;
    }
}

/// The classes of our own child; nothing where clients in Java are left out.
pub(super) fn own_classes() -> Option<PathBuf> {
    if clients::skipped() {
        return None;
    }
    Some(clients::java_child())
}

/// A task tracker whose Java tasks are of this class path.
pub(super) async fn world(class_path: &str) -> TestNode {
    world_with(class_path, &[]).await
}

/// The same with further settings.
pub(super) async fn world_with(class_path: &str, more: &[(&str, &str)]) -> TestNode {
    let java_home = env::var("CORONA_TEST_JAVA_HOME").unwrap_or_default();
    // Most tests are sooner over without an archive of classes.
    let mut settings =
        vec![("corona.tt.child.class.path", class_path), ("corona.tt.class.archive", "false")];
    settings.extend(more);
    if !java_home.is_empty() {
        settings.push(("corona.tt.java.home", &*java_home));
    }
    TestNode::with(&settings).await
}

/// A new session, and a job of it whose tasks are our own Java children with this action.
pub(super) async fn session(world: &TestNode, act: &str) -> (JobTracker, Job) {
    let (job_tracker, job) = world.session().await;
    let job = job.in_java().with("test.java.act", act);
    // A small Java that starts soon.
    (job_tracker, job.with("mapred.child.java.opts", "-Xmx64m -XX:TieredStopAtLevel=1"))
}

#[test]
fn java_children_run_a_recorded_job() {
    let class_path = match env::var(CLASS_PATH) {
        Ok(class_path) => class_path,
        Err(_) => match own_classes() {
            Some(classes) => classes.display().to_string(),
            None => return,
        },
    };
    block_on(async {
        let world = world(&class_path).await;
        let tasks = launches(RECORDING);
        let id = tasks[0].attempt.job().clone();
        let job_tracker = JobTracker::start(&id.tracker);
        job_tracker.use_tracker(&world.manager.actions().await).await;
        let file = world.root.path().join("job.xml");
        fs::write(&file, job_xml()).unwrap();
        let job_file = format!("file:{}", file.display());
        let tasks: Vec<Task> =
            tasks.into_iter().map(|task| Task { job_file: job_file.clone(), ..task }).collect();
        let of =
            |wanted: fn(&Task) -> bool| tasks.iter().filter(move |task| wanted(task)).collect();
        let mut compared = 0;
        let setup: Vec<&Task> = of(|task| task.job_setup);
        let cleanup: Vec<&Task> = of(|task| task.job_cleanup.is_some());
        let work: Vec<&Task> = of(Task::is_work);
        assert_eq!((setup.len(), work.len(), cleanup.len()), (1, 4, 1));
        run(&job_tracker, &setup, &mut compared).await;
        run(&job_tracker, &work, &mut compared).await;
        run(&job_tracker, &cleanup, &mut compared).await;
        assert_eq!(compared, 5);
        // The files that a child writes beside its output.
        let logs = world.home.logs_of(&work[0].attempt.to_string());
        assert!(logs.join("log.index").is_file(), "{}", logs.display());
        job_tracker.kill_job(&id).await;
        world.home.nothing_left().await;
    });
}

/// The default of this machine's Java, without a task tracker.
fn default_library_path() -> String {
    let mut java = Command::new("java");
    java.args(["-XshowSettings:properties", "-version"]);
    let printed = java.output().unwrap().stderr;
    let printed = String::from_utf8(printed).unwrap();
    let (_, rest) = printed.split_once(" java.library.path = ").unwrap();
    let (path, _) = rest.split_once(" = ").unwrap();
    let parts: Vec<&str> = path.split_whitespace().collect();
    // The name of the next property is at the end.
    parts[..parts.len() - 1].join(":")
}

#[test]
fn java_tasks_get_what_a_java_task_tracker_gives_them() {
    let Some(classes) = own_classes() else { return };
    block_on(async {
        let world = world(&classes.display().to_string()).await;
        let (job_tracker, job) = session(&world, "").await;
        let job = job.sized(2, 1).with("test.java.commit", "true");
        job.write().unwrap();
        let (maps, reduce) = ([job.map(0), job.map(1)], job.reduce(0));
        job_tracker.launch(maps.iter().map(|map| job.task(map))).await;
        for map in &maps {
            let report = job_tracker.ended(map, 1).await;
            assert_eq!(report.state, TaskState::Succeeded, "{report:?}");
            assert!(report.output_size > 0, "{report:?}");
        }
        job_tracker.launch([job.task(&reduce)]).await;
        job_tracker.state_of(&reduce, TaskState::CommitPending).await;
        job_tracker.permit(&reduce).await;
        let report = job_tracker.ended(&reduce, 1).await;
        assert_eq!(report.state, TaskState::Succeeded, "{report:?}");
        let counted = counted(&report);
        assert_eq!(counted[2..], [Some(1), Some(0), Some(0)], "{report:?}");
        // A key of 4 bytes, two lengths, the end and a checksum, from each map.
        let counters = report.counters.as_ref().unwrap();
        let fetched = counters.get("org.apache.hadoop.mapred.Task$Counter", "REDUCE_SHUFFLE_BYTES");
        assert_eq!(fetched, Some(2 * 12));

        let logs = world.home.logs_of(&maps[0].to_string());
        let printed = fs::read_to_string(logs.join("stdout")).unwrap();
        let properties: HashMap<&str, &str> =
            printed.lines().filter_map(|line| line.split_once('=')).collect();
        let work = properties["user.dir"];
        assert!(work.ends_with(&format!("{}/work", maps[0])), "{work}");
        let libraries = format!("{}:{work}", default_library_path());
        let expected = [
            ("java.library.path", libraries),
            ("java.io.tmpdir", format!("{work}/tmp")),
            ("hadoop.log.dir", world.root.path().join("logs").display().to_string()),
            ("hadoop.root.logger", "INFO,TLA".to_owned()),
            ("hadoop.tasklog.taskid", maps[0].to_string()),
        ];
        for (name, value) in expected {
            assert_eq!(properties[name], value, "{name}");
        }
        world.end_last_job(&job_tracker, &job).await;
    });
}

#[test]
fn an_exception_of_a_java_task_is_all_that_is_reported() {
    let Some(classes) = own_classes() else { return };
    block_on(async {
        let world = world(&classes.display().to_string()).await;
        let (job_tracker, job) = session(&world, "throw").await;
        job.write().unwrap();
        let map = job.map(0);
        job_tracker.launch([job.task(&map)]).await;
        // It has cleaned up after itself, so no other attempt needs to.
        assert_eq!(job_tracker.ended(&map, 1).await.state, TaskState::Failed);
        let told = job_tracker.diagnostics(&map);
        assert!(told.starts_with("java.io.IOException: this task is to fail\n\tat "), "{told}");
        assert!(!told.contains("exited with status"), "{told}");
        job_tracker.kill_job(&job.id).await;
        let (job_tracker, job) = session(&world, "exit").await;
        job.write().unwrap();
        job_tracker.launch([job.task(&job.map(0))]).await;
        assert_eq!(job_tracker.ended(&job.map(0), 1).await.state, TaskState::FailedUnclean);
        let told = job_tracker.diagnostics(&job.map(0));
        assert!(told.ends_with("Task process exit with nonzero status of 3.\n"), "{told}");
        world.end_last_job(&job_tracker, &job).await;
    });
}

#[test]
fn merge_files_of_a_java_task_are_deleted_with_it() {
    let Some(classes) = own_classes() else { return };
    block_on(async {
        let world = world(&classes.display().to_string()).await;
        let (job_tracker, job) = session(&world, "merge").await;
        job.write().unwrap();
        let map = job.map(0);
        let local = world.home.local_dirs();
        let merged = local[0].join(map.to_string());
        let file = merged.join("intermediate.0");
        job_tracker.launch([job.task(&map)]).await;
        let there = || file.is_file().then_some(());
        until("a merge", there).await;
        // An attempt that is killed in the middle of it.
        job_tracker.kill_task(&map).await;
        job_tracker.ended(&map, 1).await;
        until("the end of what it merged", || (!merged.exists()).then_some(())).await;
        world.end_last_job(&job_tracker, &job).await;
    });
}
