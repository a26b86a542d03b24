//! Job trackers that are scripts.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::attempt::tests::kind;
use crate::child::{Native, test_logs};
use crate::job_files::{Answer, FileStatus, LocalFiles};
use crate::local_dirs::tests::settings;
use crate::tracker::JobTrackers as _;
use corona_config::Source;
use corona_hadoop::writables::{InetAddress, SessionTrackers};
use corona_net::testing::{soon, until};
use corona_process::procfs::Process;

const ATTEMPT: &str = "attempt_20.1_0001_m_100000_0";
/// Prints its arguments, and stays.
const STAY: &str = "echo \"$@\" > \"$OUT.new\"; pwd >> \"$OUT.new\"; cat *.xml >> \"$OUT.new\"; \
                    mv \"$OUT.new\" \"$OUT\"; exec sleep 600";

struct TestJobTrackers {
    root: TempDir,
    job_trackers: JobTrackers,
    task: Task,
    session: SessionInfo,
}

impl TestJobTrackers {
    fn new(script: &str, limit: usize) -> TestJobTrackers {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let script = script.replace("$OUT", &path("out").display().to_string());
        fs::write(path("program.sh"), script).unwrap();
        fs::write(path("job.xml"), "<configuration></configuration>").unwrap();
        let parts = TestJobTrackers::parts(root.path(), limit);
        let job_file = format!("file:{}", path("job.xml").display());
        let mut task = Task { job_file, ..kind("map") };
        task.attempt = ATTEMPT.parse().unwrap();
        let job_tracker = InetAddress { host: "parent".into(), port: 7 };
        let trackers = SessionTrackers { job_tracker, secondary: None };
        let session = SessionInfo { handle: Some("20.1".into()), trackers };
        TestJobTrackers {
            root,
            job_trackers: JobTrackers::new(parts, Box::new(|_| None)),
            task,
            session,
        }
    }

    fn parts(root: &Path, limit: usize) -> Parts {
        let path = |name: &str| root.join(name);
        let loaded = Source::default().load_task_tracker().unwrap();
        let local = settings(&[&path("local")]);
        let dirs = Arc::new(LocalDirs::open(&local).unwrap());
        let files = LocalFiles { timeout: Duration::from_secs(600), max_bytes: 1 << 20 };
        let install = Install {
            java: "java".into(),
            class_path: String::new(),
            library_path: String::new(),
            native: Native::default(),
        };
        Parts {
            limit,
            program: vec!["bash".into(), path("program.sh").display().to_string()],
            install,
            site: loaded.site,
            files: Arc::new(files),
            system_dir: "file:/system".into(),
            notes: ProcessNotes::in_local_dir(&local.dirs[0]).unwrap(),
            deletion: Deletion::start(&local.dirs).unwrap(),
            logs: test_logs(&path("logs")),
            dirs,
            http: ("n1".into(), 50060),
            sigkill_delay: Duration::from_secs(600),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    async fn start(&self, task: &Task) -> Result<(), String> {
        let started = self.job_trackers.start(task.clone(), self.session.clone());
        soon(started).await.map_err(|fault| fault.to_string())
    }

    /// Waits until no job tracker runs, and nothing is left of any.
    async fn nothing_left(&self) {
        let entries = |dir: PathBuf| fs::read_dir(dir).map_or(0, Iterator::count);
        until("nothing is left", || {
            self.job_trackers.snapshot().is_empty()
                && entries(self.path("local/taskTracker/jobtrackers")) == 0
                && entries(self.path("local").join(layout::PROCESSES)) == 0
                && entries(self.path("local").join(layout::DISCARDED)) == 0
        })
        .await;
    }
}

/// Files that are never read to their end.
#[derive(Debug)]
struct Endless;

impl JobFiles for Endless {
    fn status<'a>(&'a self, _location: &'a Location) -> Answer<'a, FileStatus> {
        Box::pin(std::future::pending())
    }

    fn fetch<'a>(&'a self, _location: &'a Location, _to: &'a Path) -> Answer<'a, u64> {
        Box::pin(std::future::pending())
    }
}

/// Its directory is not left until the next start of the node.
#[tokio::test]
async fn the_directory_of_one_that_is_being_started_is_deleted_by_the_next_program() {
    let mut world = TestJobTrackers::new(STAY, 1);
    let parts = Parts { files: Arc::new(Endless), ..TestJobTrackers::parts(world.root.path(), 1) };
    world.job_trackers = JobTrackers::new(parts, Box::new(|_| None));
    let (job_trackers, task) = (world.job_trackers.clone(), world.task.clone());
    let session = world.session.clone();
    let starting = tokio::spawn(async move { job_trackers.start(task, session).await });
    let directory = world.path("local/taskTracker/jobtrackers").join(ATTEMPT);
    let is_noted =
        || !world.job_trackers.shared.lock().running.values().all(|it| it.work.is_none());
    until("its directory", is_noted).await;
    fs::create_dir_all(&directory).unwrap();
    let handed = soon(world.job_trackers.hand_over()).await;
    assert_eq!((handed.running.len(), &*handed.unfinished), (0, &[directory][..]));
    let parts = TestJobTrackers::parts(world.root.path(), 1);
    let next =
        TestJobTrackers { job_trackers: JobTrackers::new(parts, Box::new(|_| None)), ..world };
    next.job_trackers.take_over(handed);
    next.nothing_left().await;
    starting.abort();
}

#[tokio::test]
async fn a_job_tracker_gets_what_it_needs_and_ends_with_the_node() {
    let world = TestJobTrackers::new(STAY, 1);
    world.start(&world.task).await.unwrap();
    until("its words", || world.path("out").exists()).await;
    let said = fs::read_to_string(world.path("out")).unwrap();
    let mut lines = said.lines();
    let words: Vec<&str> = lines.next().unwrap().split(' ').collect();
    let expected = ["job_20.1_0001", ATTEMPT, "parent", "7", "n1", "50060"];
    assert_eq!(words[..6], expected);
    assert!(words.len() == 7 && words[6].parse::<i32>().is_ok(), "{words:?}");
    let work = format!("/taskTracker/jobtrackers/{ATTEMPT}/work");
    assert!(lines.next().unwrap().ends_with(&work), "{said}");
    assert_eq!(lines.next(), Some("<configuration></configuration>"), "its own job.xml");
    assert!(world.path("logs/jtlogs/userlogs").join(ATTEMPT).join("stdout").exists());

    let snapshot = world.job_trackers.snapshot();
    let [JobTrackerSnapshot { attempt, job, parent, pid: Some(pid), .. }] = &*snapshot else {
        panic!("{snapshot:?}")
    };
    assert_eq!((&**attempt, &**job, &**parent), (ATTEMPT, "job_20.1_0001", "parent:7"));
    assert!(Process::of(*pid).is_some());

    let again = world.start(&world.task).await.unwrap_err();
    assert_eq!(again, format!("java.io.IOException: {ATTEMPT} is started already"));
    let mut other = world.task.clone();
    other.attempt.number = 1;
    let full = world.start(&other).await.unwrap_err();
    assert!(full.ends_with("1 job trackers run here already, which is the maximum"), "{full}");

    soon(world.job_trackers.stop()).await;
    world.nothing_left().await;
    let stopped = world.start(&world.task).await.unwrap_err();
    assert!(stopped.ends_with("this task tracker stops"), "{stopped}");
}

#[tokio::test]
async fn one_that_runs_goes_on_under_the_next_program() {
    let mut world = TestJobTrackers::new(STAY, 1);
    world.start(&world.task).await.unwrap();
    until("its words", || world.path("out").exists()).await;
    let before = world.job_trackers.snapshot();
    let handed = soon(world.job_trackers.hand_over()).await;
    let handed = serde_json::to_string(&handed).unwrap();
    let next = JobTrackers::new(TestJobTrackers::parts(world.root.path(), 1), Box::new(|_| None));
    next.take_over(serde_json::from_str(&handed).unwrap());
    let former = std::mem::replace(&mut world.job_trackers, next);
    assert_eq!(world.job_trackers.snapshot(), before);
    assert!(Process::of(before[0].pid.unwrap()).is_some_and(|process| !process.is_zombie));
    let again = world.start(&world.task).await.unwrap_err();
    assert!(again.ends_with("is started already"), "{again}");
    soon(world.job_trackers.stop()).await;
    world.nothing_left().await;
    drop(former);
}

#[tokio::test]
async fn one_that_ends_leaves_nothing_and_gives_its_place_back() {
    let world = TestJobTrackers::new("sleep 600 & exit 3", 1);
    for number in 0..3 {
        let mut task = world.task.clone();
        task.attempt.number = number;
        world.start(&task).await.unwrap();
        world.nothing_left().await;
    }
}

#[tokio::test]
async fn a_failed_preparation_is_reported_and_leaves_no_files() {
    let world = TestJobTrackers::new(STAY, 1);
    fs::write(world.path("broken.xml"), "<configuration><property>").unwrap();
    let root = world.path("").display().to_string();
    let table = [
        (format!("file:{root}none.xml"), "File does not exist: "),
        (format!("file:{root}broken.xml"), "is not well-formed XML"),
        ("relative/job.xml".into(), "has no absolute path"),
        ("file:/a/../b".into(), "has a .. in it"),
    ];
    for (job_file, told) in table {
        let task = Task { job_file, ..world.task.clone() };
        let refused = world.start(&task).await.unwrap_err();
        assert!(refused.contains(told), "{refused}");
        world.nothing_left().await;
    }
    let mut task = world.task.clone();
    task.attempt.task.job.tracker = "../..".into();
    let refused = world.start(&task).await.unwrap_err();
    assert!(refused.contains("is not an attempt"), "{refused}");
    world.start(&world.task).await.unwrap();
    soon(world.job_trackers.stop()).await;
}
