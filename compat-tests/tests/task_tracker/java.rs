//! Real Java children: the tasks of the recorded sleep job, run by a Hadoop install's own classes.
//!
//! `CORONA_TEST_HADOOP_CLASSPATH` is the class path of an install of the original with its example
//! jobs and a directory with `log4j.properties`; `CORONA_TEST_JAVA_OPTIONS` may hold options that the
//! installed Java needs for it, `CORONA_TEST_JAVA_HOME` another Java than that of `PATH`.

use std::env;
use std::fs;

use compat_tests::repository;
use compat_tests::skipping::{Missing, skip};
use compat_tests::task_tracker::job_tracker::JobTracker;
use corona::hadoop::writables::{Task, TaskState, TaskStatus};

use super::recorded::{launches, recorded_ends};
use super::{World, block_on};

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

/// The recorded configuration of the job, with what this machine's Java needs.
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
        // The last one is not told any more: the job is over.
        let mut theirs = recorded_ends(RECORDING).into_iter();
        let Some(theirs) = theirs.rfind(|end| end.attempt == task.attempt) else { continue };
        assert_eq!(counted(&ours), counted(&theirs), "{}", task.attempt);
        *compared += 1;
    }
}

#[test]
fn java_children_run_a_recorded_job() {
    let Ok(class_path) = env::var(CLASS_PATH) else {
        return skip("java_children_run_a_recorded_job", Missing::HadoopInstall);
    };
    block_on(async {
        let java_home = env::var("CORONA_TEST_JAVA_HOME").unwrap_or_default();
        let mut settings = vec![("corona.tt.child.class.path", &*class_path)];
        if !java_home.is_empty() {
            settings.push(("corona.tt.java.home", &*java_home));
        }
        let world = World::with(&settings).await;
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
        // What a child writes beside its output.
        let logs = world.home.logs_of(&work[0].attempt.to_string());
        assert!(logs.join("log.index").is_file(), "{}", logs.display());
        job_tracker.kill_job(&id).await;
        world.home.nothing_left().await;
    });
}
