//! Native tasks on a node: whole jobs as the original's streaming client submits them, without Java.

use std::collections::BTreeMap;
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
    bytes: i64,
}

impl Native {
    async fn new(text: &[u8], reduces: i32, properties: &[(&str, &str)]) -> Native {
        let world = TestNode::with(&[("corona.tt.native.tasks", "streaming")]).await;
        let (job_tracker, job) = world.session().await;
        let (input, output) = (world.root.path().join("input"), world.root.path().join("output"));
        fs::write(&input, text).unwrap();
        let all = STREAMING.iter().chain(properties);
        let job =
            all.fold(job.in_java().sized(2, reduces), |job, (key, value)| job.with(key, value));
        let job = job.with("mapred.output.dir", &format!("file:{}", output.display()));
        job.write().unwrap();
        let bytes = text.len() as i64;
        Native { world, job_tracker, job, input, output, bytes }
    }

    /// A map of a half of the input.
    fn map_task(&self, number: i32) -> Task {
        let half = self.bytes / 2;
        let (start, length) = if number == 0 { (0, half) } else { (half, self.bytes - half) };
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

    /// Runs all tasks and returns the last reports of maps and reduces.
    async fn whole(&self) -> Vec<TaskStatus> {
        self.set_up().await;
        let maps = [0, 1].map(|number| self.job.map(number));
        self.job_tracker.launch([self.map_task(0), self.map_task(1)]).await;
        let mut reports = Vec::new();
        for map in &maps {
            if self.job.reduces == 0 {
                self.job_tracker.permit(map).await;
            }
            reports.push(self.succeeded(map).await);
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
            reports.push(self.succeeded(&reduce).await);
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
        reports
    }

    fn part(&self, number: i32) -> String {
        fs::read_to_string(self.output.join(format!("part-{number:05}"))).unwrap()
    }

    async fn end(&self) {
        self.world.end_last_job(&self.job_tracker, &self.job).await;
    }
}

fn count(reports: &[TaskStatus], name: &str) -> i64 {
    let of = |report: &TaskStatus| {
        report.counters.as_ref().and_then(|c| c.get("org.apache.hadoop.mapred.Task$Counter", name))
    };
    reports.iter().filter_map(of).sum()
}

/// The number of occurrences of each word in the text.
fn words(text: &str) -> BTreeMap<String, usize> {
    let mut words = BTreeMap::new();
    for word in text.split_whitespace() {
        *words.entry(word.to_owned()).or_default() += 1;
    }
    words
}

#[test]
fn a_streaming_job_runs_without_java() {
    block_on(async {
        let count_words =
            "awk -F '\t' '{ n[$1] %2B= $2 } END { for (w in n) print w \"\t\" n[w] }'";
        let steps = [
            (
                "stream.map.streamprocessor",
                "sh -c 'tr -s \" \t\" \"\\n\" | sed \"/^$/d;s/$/\t1/\"; echo reporter:counter:mine,runs,1 >&2'",
            ),
            ("stream.reduce.streamprocessor", count_words),
        ];
        let job = Native::new(TEXT.as_bytes(), 2, &steps).await;
        let reports = job.whole().await;
        let lines = job.part(0) + &job.part(1);
        let found: BTreeMap<String, usize> = lines
            .lines()
            .map(|line| line.split_once('\t').unwrap())
            .map(|(word, count)| (word.to_owned(), count.parse().unwrap()))
            .collect();
        assert_eq!(found, words(TEXT));
        // Each part has the keys that Java's hash assigns to it.
        assert!(job.part(0).contains("the\t4") != job.part(1).contains("the\t4"));
        let total: usize = found.values().sum();
        for (name, expected) in [
            ("MAP_INPUT_RECORDS", 5),
            ("MAP_INPUT_BYTES", TEXT.len()),
            ("MAP_OUTPUT_RECORDS", total),
            ("REDUCE_INPUT_RECORDS", total),
            ("REDUCE_OUTPUT_RECORDS", found.len()),
            ("REDUCE_INPUT_GROUPS", found.len()),
            ("SPILLED_RECORDS", total),
        ] {
            assert_eq!(count(&reports, name), expected as i64, "{name}");
        }
        let runs = reports.iter().filter_map(|r| r.counters.as_ref()?.get("mine", "runs"));
        assert_eq!(runs.sum::<i64>(), 2);
        let reduce = reports[2].reduce.clone().expect("what a reduce adds");
        assert!(
            0 < reduce.shuffle_finish_time_ms
                && reduce.shuffle_finish_time_ms <= reduce.sort_finish_time_ms
        );
        assert!(reports[0].output_size > 0);
        job.end().await;
    });
}

#[test]
fn built_in_steps_count_words_with_compressed_data() {
    block_on(async {
        let steps = [
            ("corona.task.native", "true"),
            ("corona.task.mapper", "wc"),
            ("corona.task.combiner", "wc"),
            ("corona.task.reducer", "wc"),
            ("mapred.compress.map.output", "true"),
            ("io.sort.mb", "1"),
        ];
        // So many words that maps spill their sums.
        let lines = (0..120_000).map(|number| format!("word{} the\n", number % 60_000));
        let text: String = lines.collect();
        let job = Native::new(text.as_bytes(), 1, &steps).await;
        let reports = job.whole().await;
        let expected: String =
            words(&text).iter().map(|(word, n)| format!("{word}\t{n}\n")).collect();
        assert_eq!(job.part(0), expected);
        assert!(count(&reports, "MAP_SPILL_NUMBER") > 2);
        assert!(count(&reports, "COMBINE_INPUT_RECORDS") >= count(&reports, "MAP_OUTPUT_RECORDS"));
        job.end().await;
    });
}

#[test]
fn a_job_without_reduces_commits_what_its_mappers_write() {
    block_on(async {
        let steps = [
            ("stream.map.streamprocessor", "sed+s%2Fthe%2FTHE%2F"),
            ("mapred.output.compress", "false"),
        ];
        let job = Native::new(b"a the\nb\tthe\n", 0, &steps).await;
        job.whole().await;
        // A line without a tab is a key, and the original writes the tab behind it.
        assert_eq!(job.part(0) + &job.part(1), "a THE\t\nb\tTHE\n");
        job.end().await;
    });
}

#[test]
fn a_mapper_that_fails_says_why_and_leaves_nothing() {
    block_on(async {
        let fails = "sh -c 'cat > /dev/null; echo it is broken >&2; exit 3'";
        let job = Native::new(TEXT.as_bytes(), 0, &[("stream.map.streamprocessor", fails)]).await;
        job.set_up().await;
        let map = job.job.map(0);
        job.job_tracker.launch([job.map_task(0)]).await;
        let report = job.job_tracker.ended(&map, 1).await;
        // The task removes its own files, so the tracker finds none.
        assert_eq!(report.state, TaskState::Failed);
        let why = job.job_tracker.diagnostics(&map);
        assert!(
            why.contains(
                "subprocess failed with code 3\nin the map: cat > /dev/null; echo it is broken"
            ) && why.contains("\nLast lines of stderr:\nit is broken"),
            "{why}"
        );
        assert!(!job.output.join(format!("_temporary/_{map}")).exists());
        job.end().await;
    });
}

/// As an order does that a task tracker carries out late.
#[test]
fn a_task_of_a_job_that_has_ended_makes_no_directory() {
    block_on(async {
        let job = Native::new(TEXT.as_bytes(), 0, &[("stream.map.streamprocessor", "cat")]).await;
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
        let job = Native::new(TEXT.as_bytes(), 0, &steps).await;
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
        let why = job.job_tracker.diagnostics(&map);
        let (before, debugged) = why.split_once("-------------------- DEBUG OUT").unwrap();
        assert!(before.contains("subprocess failed with code 3"), "{why}");
        assert!(debugged.ends_with("\nlast\n") && !debugged.contains("first"), "{why}");
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
            let job = Native::new(TEXT.as_bytes(), reduces, &steps).await;
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
fn a_mapper_that_hangs_is_ended_with_its_program() {
    block_on(async {
        let steps = [("stream.map.streamprocessor", "sleep 600"), ("mapred.task.timeout", "700")];
        let job = Native::new(TEXT.as_bytes(), 0, &steps).await;
        job.set_up().await;
        let map = job.job.map(0);
        job.job_tracker.launch([job.map_task(0)]).await;
        let report = job.job_tracker.ended(&map, 1).await;
        assert_eq!(report.state, TaskState::FailedUnclean);
        let why = job.job_tracker.diagnostics(&map);
        assert!(why.contains("failed to report status"), "{why}");
        job.end().await;
    });
}

#[test]
fn a_killed_task_leaves_no_program_and_no_output() {
    block_on(async {
        let job = Native::new(
            TEXT.as_bytes(),
            0,
            &[("stream.map.streamprocessor", "sh -c 'echo x; sleep 600'")],
        )
        .await;
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
