//! Bad input, and tasks and machines that misbehave: each ends with the right report, and nothing is
//! left behind.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use compat_tests::skipping::{Missing, skip};
use compat_tests::task_tracker::job::Job;
use compat_tests::task_tracker::job_tracker::JobTracker;
use compat_tests::task_tracker::node::runs;
use compat_tests::task_tracker::steps::TaskRole;
use compat_tests::task_tracker::{PATIENCE, until};
use corona::hadoop::writables::{Phase, TaskState};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::complete::get;
use super::{TestNode, block_on, note, run_map};

/// Runs the first map to its end; returns all its diagnostics.
async fn diagnostics(job_tracker: &JobTracker, job: &Job) -> String {
    job_tracker.launch([job.task(&job.map(0))]).await;
    job_tracker.ended(&job.map(0), 1).await;
    job_tracker.diagnostics(&job.map(0))
}

#[test]
fn processes_that_a_task_leaves_behind_are_ended() {
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, job) = world.session().await;
        let job = job.steps(TaskRole::Map, "update=0.5,fork,done");
        let job = job.map_steps(1, "fork,exit=0").map_steps(2, "ask,fork,abort");
        job.write().unwrap();
        let maps = [0, 1, 2].map(|number| job.map(number));
        job_tracker.launch(maps.iter().map(|map| job.task(map))).await;
        for map in &maps {
            let report = job_tracker.ended(map, 1).await;
            let good = *map == maps[0];
            let expected = if good { TaskState::Succeeded } else { TaskState::FailedUnclean };
            assert_eq!(report.state, expected);
            for what in ["near", "away"] {
                let pid: i32 = note(&job, map, what).await.parse().unwrap();
                until("the end of what it left", || (!runs(pid)).then_some(())).await;
            }
        }
        world.end_last_job(&job_tracker, &job).await;
    });
}

/// The bytes that a file takes on its disk.
fn on_disk(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512)
}

#[test]
fn a_task_that_floods_its_log_keeps_only_the_end_of_it() {
    block_on(async {
        let world = TestNode::with(&[("corona.tt.task.log.max.mb", "1")]).await;
        let (job_tracker, job, map) = world.waiting_map("update=0.5,flood=24,wait,done").await;
        let log = world.home.logs_of(&map.to_string()).join("stdout");
        until("a shorter log", || (on_disk(&log) <= 2 << 20).then_some(())).await;
        job.notes().let_go(&map.to_string()).unwrap();
        assert_eq!(job_tracker.ended(&map, 1).await.state, TaskState::Succeeded);
        // The last line is there for readers over HTTP.
        let http = world.http(&job_tracker).await;
        let path = format!("/tasklog?taskid={map}&filter=stdout&plaintext=true&start=-64&end=-1");
        let answer = get(http, &path).await;
        let last = (24 << 20) / 64 - 1;
        assert!(answer.contains(&format!("0{last}")), "{answer}");
        world.end_last_job(&job_tracker, &job).await;
    });
}

#[test]
fn jobs_whose_files_cannot_be_used_fail_with_the_reason() {
    block_on(async {
        let world = TestNode::new().await;
        type Spoil = fn(&Job);
        let cases: [(&str, Spoil, &str); 4] = [
            ("no file", |job| fs::remove_file(job.path()).unwrap(), "job.xml"),
            ("no configuration", |job| fs::write(job.path(), "<conf").unwrap(), "job.xml"),
            (
                "a broken jar",
                |job| {
                    let jar = job.path().with_file_name("job.jar");
                    fs::write(&jar, "no archive").unwrap();
                    let job = job.clone().with("mapred.jar", &jar.display().to_string());
                    job.write().unwrap();
                },
                "job.jar",
            ),
            (
                "a file of the cache that has changed",
                |job| {
                    let file = format!("file:{}", job.path().display());
                    let job = job.clone().with("mapred.cache.files", &file);
                    job.with("mapred.cache.files.timestamps", "1").write().unwrap();
                },
                "has changed on HDFS since job started",
            ),
        ];
        for (what, spoil, expected) in cases {
            let (job_tracker, job) = world.session().await;
            job.write().unwrap();
            spoil(&job);
            let told = diagnostics(&job_tracker, &job).await;
            assert!(told.starts_with("Error initializing attempt_"), "{what}: {told}");
            assert!(told.contains(expected), "{what}: {told}");
            assert_eq!(job_tracker.ended(&job.map(0), 1).await.state, TaskState::Failed, "{what}");
            world.end_last_job(&job_tracker, &job).await;
            assert_eq!(job.notes().all(), [], "{what}");
        }
        world.still_works().await;
    });
}

/// Nonsense on each port loses its own connection and nothing else.
#[test]
fn nonsense_disturbs_nobody() {
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, job, map) = world.waiting_map("update=0.5,wait,done").await;
        let umbilical = note(&job, &map, "umbilical").await;
        let actions = world.manager.actions().await;
        let node = world.manager.heartbeat(0).await;
        let callback = format!("127.0.0.1:{}", node.address.port);
        let http = world.http(&job_tracker).await.to_string();
        let header = |protocol: &str| {
            let mut bytes = b"hrpc\x03".to_vec();
            bytes.extend(i32::try_from(protocol.len() + 2).unwrap().to_be_bytes());
            bytes.push(u8::try_from(protocol.len()).unwrap());
            bytes.extend(protocol.as_bytes());
            bytes.push(0);
            bytes
        };
        let known = "org.apache.hadoop.mapred.CoronaTaskTrackerProtocol";
        let call = |parameter: &[u8]| {
            let mut call = b"\0\0\0\x01\0\x0dsubmitActions\0\0\0\x01".to_vec();
            call.extend(parameter);
            let mut bytes = header(known);
            bytes.extend(i32::try_from(call.len()).unwrap().to_be_bytes());
            bytes.extend(call);
            bytes
        };
        let huge = [header(known), vec![0x7f, 0xff, 0xff, 0xff]].concat();
        let truncated = call(b"\0\x34[Lorg.apache.hadoop.mapred.TaskTrackerAction;\0\0");
        let unknown_class = call(b"\0\x0fjava.lang.Class");
        let many = call(b"\0\x30[Lorg.apache.hadoop.mapred.TaskTrackerAction;\x7f\xff\xff\xff");
        let table: [(&str, Vec<u8>); 7] = [
            ("text", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
            ("zeros", vec![0; 4096]),
            ("an unknown protocol", header("java.lang.Object")),
            ("a huge call", huge),
            ("a truncated array", truncated),
            ("an unknown class", unknown_class),
            ("a huge array", many),
        ];
        for address in [&umbilical, &actions, &callback] {
            for (what, bytes) in &table {
                let mut stream = TcpStream::connect(address.as_str()).await.unwrap();
                // It may be closed before all is written.
                let _ = stream.write_all(bytes).await;
                let _ = stream.shutdown().await;
                let mut answer = Vec::new();
                let end = stream.read_to_end(&mut answer);
                let end = tokio::time::timeout(PATIENCE, end).await;
                assert!(end.is_ok(), "{what} at {address}");
                assert!(answer.len() < 1000, "{what} at {address}: {answer:?}");
            }
        }
        let mut stream = TcpStream::connect(&http).await.unwrap();
        let _ = stream.write_all(&vec![b'x'; 100_000]).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
        job.notes().let_go(&map.to_string()).unwrap();
        assert_eq!(job_tracker.ended(&map, 1).await.state, TaskState::Succeeded);
        world.end_last_job(&job_tracker, &job).await;
        world.still_works().await;
    });
}

/// A task that reports something illegal has no more influence than others.
#[test]
fn a_map_whose_output_is_gone_is_reported_again_as_failed() {
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, job) = world.session().await;
        let job = job.sized(1, 1);
        job.write().unwrap();
        let (map, reduce) = (run_map(&job_tracker, &job, 0).await, job.reduce(0));
        fs::remove_dir_all(note(&job, &map, "output").await).unwrap();
        job_tracker.launch([job.task(&reduce)]).await;
        // The reduce reports which output it cannot fetch, and the tracker that the map has failed.
        let lost = |report: &corona::hadoop::writables::TaskStatus| {
            let reduce = report.reduce.as_ref();
            reduce.is_some_and(|reduce| reduce.failed_fetches == [map.clone()])
        };
        let report = job_tracker.report("failed fetches", &reduce, lost).await;
        assert_eq!(report.phase, Phase::Shuffle);
        let report = job_tracker.ended(&map, 2).await;
        assert_eq!((report.state, report.progress), (TaskState::Failed, 0.0));
        assert!(report.diagnostics.starts_with("Map output lost, rescheduling: "), "{report:?}");
        world.end_last_job(&job_tracker, &job).await;
    });
}

/// A node that wants more free space than there can be ends tasks, one after another.
#[test]
fn tasks_make_room_on_a_full_disk() {
    block_on(async {
        let too_much = (1_u64 << 60).to_string();
        let world = TestNode::with(&[("mapred.local.dir.minspacekill", &*too_much)]).await;
        let (job_tracker, job) = world.session().await;
        let job = job.steps(TaskRole::Map, "update=0.5,hang");
        job.write().unwrap();
        let maps = [0, 1].map(|number| job.map(number));
        job_tracker.launch(maps.iter().map(|map| job.task(map))).await;
        for map in &maps {
            let report = job_tracker.ended(map, 1).await;
            let ended = matches!(report.state, TaskState::KilledUnclean | TaskState::Killed);
            assert!(ended, "{report:?}");
        }
        world.end_last_job(&job_tracker, &job).await;
    });
}

/// Writes to a file until its disk is full.
fn fill(path: &Path) -> fs::File {
    let mut file = fs::File::create(path).unwrap();
    let (mut piece, mut pieces) = (vec![0; 64 << 10], 0);
    while !piece.is_empty() {
        match file.write(&piece) {
            Ok(_) => pieces += 1,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
                piece.truncate(piece.len() / 2);
            }
        }
        assert!(pieces < 10_000, "the disk is not small");
    }
    file
}

/// Leftovers of jobs on the disks that only the node sees.
fn left_on_disks(world: &TestNode) -> Vec<String> {
    let of_jobs = ["taskTracker/jobcache", "toBeDeleted", "corona-processes"];
    let dirs = world.home.local_dirs().into_iter();
    let dirs = dirs.flat_map(|dir| of_jobs.map(|of_jobs| world.node.inside(&dir).join(of_jobs)));
    let entries = dirs.flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    entries.map(|entry| entry.path().display().to_string()).collect()
}

#[test]
fn a_full_disk_fails_tasks_with_the_reason_and_is_used_again_when_it_has_room() {
    block_on(async {
        let Some(world) = TestNode::on_small_disks(4 << 20).await else {
            return skip(Missing::SmallDisks);
        };
        let disks = world.home.local_dirs();
        let fillers: Vec<_> =
            disks.iter().map(|dir| world.node.inside(dir).join("filler")).collect();
        for filler in &fillers {
            fill(filler).sync_all().unwrap();
        }
        let (job_tracker, job) = world.session().await;
        job.write().unwrap();
        let told = diagnostics(&job_tracker, &job).await;
        assert!(told.starts_with("Error initializing attempt_"), "{told}");
        assert!(told.contains("No space "), "{told}");
        assert_eq!(job_tracker.ended(&job.map(0), 1).await.state, TaskState::Failed);
        for filler in &fillers {
            fs::remove_file(filler).unwrap();
        }
        run_map(&job_tracker, &job, 1).await;
        job_tracker.kill_job(&job.id).await;
        let left = || Some(left_on_disks(&world)).filter(Vec::is_empty);
        until("nothing left on the disks", left).await;
        assert_eq!(world.home.left_running(), Vec::<String>::new());
    });
}

#[test]
fn local_directories_that_vanish_fail_tasks_and_nothing_else() {
    block_on(async {
        let world = TestNode::new().await;
        let dirs = world.home.local_dirs();
        for dir in &dirs {
            fs::rename(dir, dir.with_extension("away")).unwrap();
            fs::write(dir, "").unwrap();
        }
        let (job_tracker, job) = world.session().await;
        job.write().unwrap();
        let told = diagnostics(&job_tracker, &job).await;
        assert!(told.starts_with("Error initializing attempt_"), "{told}");
        assert_eq!(job_tracker.ended(&job.map(0), 1).await.state, TaskState::Failed);
        job_tracker.kill_job(&job.id).await;
        for dir in &dirs {
            fs::remove_file(dir).unwrap();
            fs::rename(dir.with_extension("away"), dir).unwrap();
        }
        world.home.nothing_left().await;
    });
}

/// Unfinished calls fill the memory for calls again and again: their connections are closed, and job
/// trackers and tasks are served as ever.
#[test]
fn unfinished_calls_do_not_disturb_job_trackers_and_tasks() {
    block_on(async {
        let world = TestNode::with(&[("corona.tt.rpc.max.total.inflight.bytes", "262144")]).await;
        let (job_tracker, _) = world.session().await;
        let actions = world.manager.actions().await;
        let closed = Arc::new(AtomicUsize::new(0));
        let attackers: Vec<_> = (0..16)
            .map(|_| {
                let (actions, closed) = (actions.clone(), closed.clone());
                tokio::spawn(async move {
                    let unfinished = [&b"hrpc\x03\0\x01\0\0"[..], &vec![0; 40 << 10]].concat();
                    loop {
                        let mut stream = TcpStream::connect(&actions).await.unwrap();
                        let _ = stream.write_all(&unfinished).await;
                        // Until it is closed.
                        let _ = stream.read(&mut [0]).await;
                        closed.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut calls = 0;
        while closed.load(Ordering::Relaxed) < 50 || calls < 100 {
            let call = job_tracker.submit(Vec::new());
            // After a minute unfinished calls are ended.
            timeout(Duration::from_secs(30), call).await.expect("a reply in time");
            calls += 1;
        }
        world.still_works().await;
        for attacker in attackers {
            attacker.abort();
            assert!(attacker.await.unwrap_err().is_cancelled());
        }
    });
}

/// Memory: when the machine lacks it the largest task ends, as a failure if it took more than it may.
#[test]
fn tasks_make_room_in_memory() {
    block_on(async {
        // More than any machine has is to be left free.
        let settings = [
            ("mapred.tasktracker.reserved.physicalmemory.mb", "2000000000"),
            ("mapred.tasktracker.taskmemorymanager.monitoring-interval", "50"),
        ];
        let world = TestNode::with(&settings).await;
        for (limit_mb, expected) in
            [("1", TaskState::FailedUnclean), ("5120", TaskState::KilledUnclean)]
        {
            let (job_tracker, job) = world.session().await;
            let job = job.with("mapred.job.map.memory.mb", limit_mb);
            let job = job.steps(TaskRole::Map, "update=0.5,memory=8,hang");
            job.write().unwrap();
            let told = diagnostics(&job_tracker, &job).await;
            assert!(told.split_whitespace().any(|word| word == "high-memory"), "{told}");
            assert_eq!(job_tracker.ended(&job.map(0), 1).await.state, expected);
            world.end_last_job(&job_tracker, &job).await;
        }
    });
}
