//! Native tasks on a node, of jobs as the original's streaming client submits them.

use std::fs;
use std::path::PathBuf;

use compat_tests::task_tracker::job::Job;
use compat_tests::task_tracker::job_tracker::JobTracker;
use compat_tests::task_tracker::until;
use corona::hadoop::writables::{
    EventStatus, FileSplit, Split, Task, TaskAttemptId, TaskCompletionEvent, TaskKind, TaskState,
    TaskStatus, to_bytes,
};

use super::complete::get;
use super::{TestNode, block_on};

/// The properties that `hadoop jar hadoop-streaming.jar` adds to a job.
const STREAMING: &[(&str, &str)] = &[
    ("mapred.mapper.class", "org.apache.hadoop.streaming.PipeMapper"),
    ("mapred.map.runner.class", "org.apache.hadoop.streaming.PipeMapRunner"),
    ("mapred.reducer.class", "org.apache.hadoop.streaming.PipeReducer"),
    ("mapred.input.format.class", "org.apache.hadoop.mapred.TextInputFormat"),
    ("mapred.output.format.class", "org.apache.hadoop.mapred.TextOutputFormat"),
    ("mapred.output.key.class", "org.apache.hadoop.io.Text"),
    ("mapred.output.value.class", "org.apache.hadoop.io.Text"),
    ("mapred.event.sleep.ms", "20"),
    ("corona.task.report.ms", "50"),
    ("io.sort.mb", "1"),
];

const TEXT: &str = "the quick brown fox\njumps over the lazy dog\r\nthe end\n\nof the\tstory";

/// A job with an input and an output, at work on a node.
struct Native {
    world: TestNode,
    job_tracker: JobTracker,
    job: Job,
    input: PathBuf,
    output: PathBuf,
}

impl Native {
    async fn new(reduces: i32, properties: &[(&str, &str)]) -> Native {
        let world = TestNode::with(&[("corona.tt.native.tasks", "streaming")]).await;
        let (job_tracker, job) = world.session().await;
        let (input, output) = (world.root.path().join("input"), world.root.path().join("output"));
        fs::write(&input, TEXT).unwrap();
        let all = STREAMING.iter().chain(properties);
        let job =
            all.fold(job.in_java().sized(2, reduces), |job, (key, value)| job.with(key, value));
        let job = job.with("mapred.output.dir", &format!("file:{}", output.display()));
        job.write().unwrap();
        Native { world, job_tracker, job, input, output }
    }

    /// A map of a half of the input.
    fn map_task(&self, number: i32) -> Task {
        let (bytes, half) = (TEXT.len() as i64, TEXT.len() as i64 / 2);
        let (start, length) = if number == 0 { (0, half) } else { (half, bytes - half) };
        let split = FileSplit { path: format!("file:{}", self.input.display()), start, length };
        let class = "org.apache.hadoop.mapred.FileSplit".to_owned();
        let split = Split { class, data: to_bytes(&split, 1 << 20).unwrap() };
        Task { kind: TaskKind::Map { split: Some(split) }, ..self.job.task(&self.job.map(number)) }
    }

    async fn set_up(&self) {
        self.job_tracker.launch([self.job.setup_task()]).await;
        self.succeeded(&self.job.setup()).await;
        assert!(self.output.join("_temporary").is_dir());
    }

    async fn succeeded(&self, attempt: &TaskAttemptId) -> TaskStatus {
        let report = self.job_tracker.ended(attempt, 1).await;
        assert_eq!(report.state, TaskState::Succeeded, "{}", self.job_tracker.diagnostics(attempt));
        report
    }

    /// Runs all tasks.
    async fn whole(&self) {
        self.set_up().await;
        let maps = [0, 1].map(|number| self.job.map(number));
        self.job_tracker.launch([self.map_task(0), self.map_task(1)]).await;
        for map in &maps {
            if self.job.reduces == 0 {
                self.job_tracker.permit(map).await;
            }
            let has_output = self.succeeded(map).await.output_size > 0;
            assert_eq!(has_output, self.job.reduces > 0);
        }
        let http = self.world.http(&self.job_tracker).await;
        let events = maps.iter().enumerate().map(|(at, map)| TaskCompletionEvent {
            attempt: map.clone(),
            id_within_job: at as i32,
            is_map: true,
            status: EventStatus::Succeeded,
            tracker_http: Some(format!("http://{http}")),
            run_time_ms: 1,
            event_id: at as i32,
        });
        self.job_tracker.state().events.extend(events);
        for number in 0..self.job.reduces {
            let reduce = self.job.reduce(number);
            self.job_tracker.launch([self.job.task(&reduce)]).await;
            self.job_tracker.state_of(&reduce, TaskState::CommitPending).await;
            self.job_tracker.permit(&reduce).await;
            let phases = self.succeeded(&reduce).await.reduce.expect("what a reduce adds");
            assert!(0 < phases.shuffle_finish_time_ms);
            assert!(phases.shuffle_finish_time_ms <= phases.sort_finish_time_ms);
        }
        self.job_tracker.launch([self.job.cleanup_task()]).await;
        self.succeeded(&self.job.cleanup()).await;
        let mut names: Vec<String> = fs::read_dir(&self.output)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.ends_with(".crc"))
            .collect();
        names.sort();
        let parts = if self.job.reduces == 0 { 2 } else { self.job.reduces };
        assert_eq!((names.len() as i32, names[0].as_str()), (parts + 1, "_SUCCESS"), "{names:?}");
    }

    async fn end(&self) {
        self.world.end_last_job(&self.job_tracker, &self.job).await;
    }
}

/// As an order does that a task tracker carries out late.
#[test]
fn a_task_of_a_job_that_has_ended_makes_no_directory() {
    block_on(async {
        let job = Native::new(0, &[("stream.map.streamprocessor", "cat")]).await;
        job.set_up().await;
        job.job_tracker.launch([job.job.cleanup_task()]).await;
        job.succeeded(&job.job.cleanup()).await;
        let temporary = job.output.join("_temporary");
        assert!(!temporary.exists());
        let map = job.job.map(0);
        job.job_tracker.launch([job.map_task(0)]).await;
        assert_eq!(job.job_tracker.ended(&map, 1).await.state, TaskState::Failed);
        let why = job.job_tracker.diagnostics(&map);
        assert!(
            why.contains("_temporary does not exist: the job was not set up, or has ended"),
            "{why}"
        );
        assert!(!temporary.exists());
        job.end().await;
    });
}

#[test]
fn a_debug_script_sees_a_native_task_that_has_failed() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("debug.sh");
        let text = "echo first\necho \"$# $1 $2 $3 $4 in $PWD\"\ncat \"$2\"\necho last\n";
        fs::write(&script, text).unwrap();
        let script = format!("sh {}", script.display());
        let fails = "sh -c 'cat > /dev/null; echo it is broken >&2; exit 3'";
        let steps = [
            ("stream.map.streamprocessor", fails),
            ("mapred.map.task.debug.script", &script),
            ("mapred.debug.out.lines", "3"),
        ];
        let job = Native::new(0, &steps).await;
        job.set_up().await;
        let map = job.job.map(0);
        job.job_tracker.launch([job.map_task(0)]).await;
        assert_eq!(job.job_tracker.ended(&map, 1).await.state, TaskState::Failed);
        let logs = job.world.home.logs_of(&map.to_string());
        let debugout = fs::read_to_string(logs.join("debugout")).unwrap();
        let [stdout, stderr, syslog] =
            ["stdout", "stderr", "syslog"].map(|log| logs.join(log).display().to_string());
        let paths = format!("first\n4 {stdout} {stderr} {syslog} ");
        assert!(debugout.starts_with(&paths), "{debugout}");
        assert!(debugout.contains(&format!("{map}/job.xml in ")), "{debugout}");
        assert!(debugout.contains(&format!("{map}/work\n")), "{debugout}");
        assert!(debugout.contains("\nit is broken\n"), "{debugout}");
        let http = job.world.http(&job.job_tracker).await;
        let path = format!("/tasklog?taskid={map}&filter=debugout&plaintext=true");
        let served = get(http, &path).await;
        assert!(served.contains(&paths), "{served}");
        let why = job.job_tracker.diagnostics(&map);
        let (before, debugged) = why.split_once("-------------------- DEBUG OUT").unwrap();
        assert!(before.contains("subprocess failed with code 3"), "{why}");
        assert!(debugged.ends_with("\nlast\n") && !debugged.contains("first"), "{why}");
        assert!(!job.output.join(format!("_temporary/_{map}")).exists());
        job.end().await;
    });
}

#[test]
fn profiled_native_tasks_have_a_profile() {
    block_on(async {
        let busy = "sh -c 'cat; i=0; while [ $i -lt 20000 ]; do i=$((i %2B 1)); done'";
        let profile = ("mapred.task.profile", "true");
        let of = async |params: &str, reduces: i32| {
            let steps = [
                ("stream.map.streamprocessor", busy),
                ("stream.reduce.streamprocessor", "cat"),
                profile,
                ("mapred.task.profile.maps", "1-"),
                ("mapred.task.profile.reduces", "0"),
                ("mapred.task.profile.params", params),
            ];
            let job = Native::new(reduces, &steps).await;
            job.whole().await;
            let read = |attempt: &TaskAttemptId| {
                let logs = job.world.home.logs_of(&attempt.to_string());
                fs::read_to_string(logs.join("profile.out")).ok()
            };
            let profiles = [job.job.map(0), job.job.map(1), job.job.reduce(0)].map(|it| read(&it));
            let http = job.world.http(&job.job_tracker).await;
            let path = format!("/tasklog?taskid={}&filter=profile&plaintext=true", job.job.map(1));
            let served = get(http, &path).await;
            let first = profiles[1].as_deref().and_then(|profile| profile.lines().next());
            assert!(served.contains(first.unwrap()), "{served}");
            job.end().await;
            profiles
        };
        // Options of Java have no meaning here: what the programs have used.
        let [none, map, reduce] = of("-agentlib:hprof=file=%s", 1).await;
        assert_eq!(none, None);
        let map = map.unwrap();
        let value = |name: &str| -> u64 {
            let line = map.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {map}")).trim().parse().unwrap()
        };
        assert!(value("programs user ms") + value("programs system ms") > 0, "{map}");
        assert!(value("programs peak resident KiB") > 100 && value("wall ms") > 0, "{map}");
        assert!(reduce.unwrap().contains("\ntask peak resident KiB "));
        // A program that starts that of the job.
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("profiler.sh");
        fs::write(&script, "file=$1; shift; echo \"runs $1 $2\" > \"$file\"; exec \"$@\"\n")
            .unwrap();
        let [none, map, _] = of(&format!("sh {} %s", script.display()), 0).await;
        assert_eq!((none, map.as_deref()), (None, Some("runs sh -c\n")));
    });
}

#[test]
fn a_killed_task_leaves_no_program_and_no_output() {
    block_on(async {
        let job =
            Native::new(0, &[("stream.map.streamprocessor", "sh -c 'echo x; sleep 600'")]).await;
        job.set_up().await;
        let map = job.job.map(0);
        job.job_tracker.launch([job.map_task(0)]).await;
        let temporary = job.output.join(format!("_temporary/_{map}"));
        until("the output of the map", || temporary.exists().then_some(())).await;
        job.job_tracker.kill_task(&map).await;
        let report = job.job_tracker.ended(&map, 1).await;
        assert_eq!(report.state, TaskState::KilledUnclean);
        let cleanup = job.job.task_cleanup(&map, TaskState::KilledUnclean);
        job.job_tracker.launch([cleanup]).await;
        assert_eq!(job.job_tracker.ended(&map, 2).await.state, TaskState::Killed);
        assert!(!temporary.exists());
        job.end().await;
    });
}
