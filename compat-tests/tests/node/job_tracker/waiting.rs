//! Jobs beyond what the service may run wait, and have histories like all others.

use compat_tests::serving::fetch;
use compat_tests::task_tracker::steps::TaskRole;
use serde_json::Value;

use super::super::task_tracker::block_on;
use super::restarts::find;
use super::*;

const PREP: i32 = 4;

fn api(world: &TestCluster, path: &str) -> Value {
    let at = world.job_tracker.pages().trim_start_matches("http://").to_owned();
    let (_, body) = fetch(&at, &format!("/api/v1/{path}")).expect("an answer");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn page(world: &TestCluster, path: &str) -> String {
    let at = world.job_tracker.pages().trim_start_matches("http://").to_owned();
    fetch(&at, path).expect("a page").1
}

/// A command of the built program about jobs of this service: its output and its errors.
fn tool(world: &TestCluster, words: &[&str]) -> String {
    let mut command = corona(&[&["jobs"][..], words].concat());
    let InetAddress { host, port } = &world.job_tracker.address;
    let manager = world.manager.http().expect("its pages").to_string();
    for setting in
        [format!("corona.jt.address={host}:{port}"), format!("cm.server.http.address={manager}")]
    {
        command.args(["-D", &setting]);
    }
    let output = command.output().expect("the program can be started");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).expect("text")
}

#[test]
fn jobs_beyond_the_limit_of_open_files_wait_and_all_have_histories() {
    all_end(160, "160", 30);
}

/// Takes some minutes.
#[test]
#[ignore = "a measurement, to be run by hand"]
fn a_thousand_jobs_end_with_histories_at_1024_open_files() {
    all_end(1024, "1,024", 1000);
}

/// Submits so many jobs to a service that may open so many files, and follows them to their ends.
fn all_end(files: u32, number: &str, count: usize) {
    block_on(async {
        let mut world = TestCluster::new(&[]).await;
        let restart = |world: &mut TestCluster| {
            world.job_tracker.crash();
            let (root, manager) = (world.root.path(), &world.manager);
            world.job_tracker = JobTracker::limited(root, manager, &[], Some(files));
        };
        restart(&mut world);
        let mut client = world.client("alice");
        let mut jobs = Vec::new();
        for _ in 0..count {
            let waits = |job: Job| job.steps(TaskRole::Map, "wait,output,update=1.0,done");
            let job = world.prepare(&mut client, 1, 0, waits).await;
            let status = client.submit_job(job.id.clone()).await.unwrap().unwrap();
            assert_eq!(status.run_state, PREP, "{status:?}");
            jobs.push(job);
        }
        let limits = api(&world, "status")["limits"].clone();
        let limit = limits["running_jobs"]["limit"].as_u64().unwrap();
        assert!((1..count as u64 / 2).contains(&limit), "{limits}");
        assert_eq!(limits["running_jobs"]["used"], limit, "{limits}");
        assert_eq!(limits["waiting_jobs"]["used"], count as u64 - limit, "{limits}");
        let reason =
            format!("waits: {limit} jobs run, the limit of {limit} comes from {number} open files");

        // The last one waits, for all who look.
        let last = jobs.last().unwrap().id.clone();
        let name = last.to_string();
        let status = client.get_job_status(last.clone()).await.unwrap().unwrap();
        assert_eq!((status.run_state, &status.scheduling_info), (PREP, &reason));
        assert_eq!(client.get_map_task_reports(last.clone()).await.unwrap().unwrap().len(), 0);
        let events = client.get_task_completion_events(last.clone(), 0, 10).await.unwrap();
        assert_eq!(events.unwrap().len(), 0);
        assert!(client.get_job_counters(last.clone()).await.unwrap().unwrap().groups.is_empty());
        assert_eq!(api(&world, &format!("jobs/{name}"))["note"], reason.as_str());
        assert!(page(&world, &format!("/jobs/{name}")).contains(&reason));
        for words in [&["info", &name][..], &["explain", &name], &["list"]] {
            let printed = tool(&world, words).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(printed.contains(&reason), "{words:?}: {printed}");
        }
        let metrics = page(&world, "/metrics");
        for line in [
            format!("corona_job_tracker_waiting_jobs {}", count as u64 - limit),
            format!("corona_job_tracker_job_places {limit}"),
            format!("corona_job_tracker_job_places_used {limit}"),
            format!("process_allowed{{use=\"running jobs\"}} {limit}"),
        ] {
            assert!(metrics.contains(&line), "{line}\n{metrics}");
        }

        // They wait as before after a restart, can be killed, and the others go on.
        restart(&mut world);
        assert!(
            world.job_tracker.ready.contains(&format!("jobs resumed {count}")),
            "{}",
            world.job_tracker.ready
        );
        let mut client = world.client("alice");
        client.kill_job(last.clone()).await.unwrap();
        for directory in ["jt/jobs", "system"] {
            let directory = world.root.path().join(directory).join(&name);
            until("the end of its files", || (!directory.exists()).then_some(())).await;
        }
        for is_again in [false, true] {
            if is_again {
                restart(&mut world);
                client = world.client("alice");
            }
            let status = client.get_job_status(last.clone()).await.unwrap().unwrap();
            let ended = (status.run_state, &*status.scheduling_info);
            assert_eq!(ended, (KILLED, "killed before it began; it has no history"));
        }
        for job in &jobs[..count - 1] {
            world.notes(job).let_go(&job.map(0).to_string()).unwrap();
        }
        let history = world.root.path().join("history");
        for job in &jobs[..count - 1] {
            let status = world.ended(&mut client, job).await;
            assert_eq!(status.run_state, SUCCEEDED, "{status:?}\n{}", world.job_tracker.log());
            assert_eq!(status.scheduling_info, "NA", "{status:?}");
            let name = job.id.to_string();
            let done = find(&history, &name).unwrap_or_else(|| panic!("{name} has no history"));
            let text = fs::read_to_string(done).unwrap();
            assert!(text.contains("JOB_STATUS=\"SUCCESS\""), "{text}");
        }
        assert!(!world.job_tracker.log().contains("Too many open files"));
        until("free places", || {
            let limits = &api(&world, "status")["limits"];
            (limits["running_jobs"]["used"] == 0 && limits["waiting_jobs"]["used"] == 0)
                .then_some(())
        })
        .await;
    });
}

#[test]
fn jobs_beyond_the_memory_of_running_jobs_wait_with_the_reason_and_run_later() {
    block_on(async {
        // For three small jobs.
        let world = TestCluster::new(&[("corona.jt.max.jobs.memory.bytes", "1048576")]).await;
        let mut client = world.client("alice");
        let mut jobs = Vec::new();
        for _ in 0..4 {
            let waits = |job: Job| job.steps(TaskRole::Map, "wait,output,update=1.0,done");
            let job = world.prepare(&mut client, 1, 0, waits).await;
            client.submit_job(job.id.clone()).await.unwrap().unwrap();
            jobs.push(job);
        }
        let status = client.get_job_status(jobs[3].id.clone()).await.unwrap().unwrap();
        let reason = "waits: 3 jobs run and take some 0 MiB of memory, the limit of 1 MiB comes \
                      from corona.jt.max.jobs.memory.bytes";
        assert_eq!((status.run_state, &*status.scheduling_info), (PREP, reason));
        let status = api(&world, "status");
        let memory = &status["limits"]["running_jobs_memory_bytes"];
        assert_eq!(memory["limit"], 1_048_576, "{memory}");
        assert_eq!(memory["used"], 3 * ((256 << 10) + 1024), "{memory}");
        assert!(status["budget"]["threads"]["used"].as_u64().is_some_and(|used| used > 0));
        for job in &jobs {
            world.notes(job).let_go(&job.map(0).to_string()).unwrap();
        }
        for job in &jobs {
            let status = world.ended(&mut client, job).await;
            assert_eq!(status.run_state, SUCCEEDED, "{status:?}\n{}", world.job_tracker.log());
        }
    });
}

#[test]
fn a_job_that_succeeds_without_a_history_says_so() {
    block_on(async {
        let world = TestCluster::new(&[]).await;
        // A file where the directories of histories should be.
        let history = world.root.path().join("history");
        if history.exists() {
            fs::remove_dir_all(&history).unwrap();
        }
        fs::write(&history, "a file").unwrap();
        let mut client = world.client("alice");
        let job = world.prepare(&mut client, 1, 0, |job| job).await;
        client.submit_job(job.id.clone()).await.unwrap();
        let status = world.ended(&mut client, &job).await;
        assert_eq!(status.run_state, SUCCEEDED, "{status:?}");
        assert!(status.scheduling_info.starts_with("without a history: "), "{status:?}");
        let name = job.id.to_string();
        let note = status.scheduling_info.as_str();
        assert_eq!(api(&world, &format!("jobs/{name}"))["note"], note);
        assert!(page(&world, &format!("/jobs/{name}")).contains("without a history: "));
        let printed = tool(&world, &["info", &name]);
        assert!(printed.contains("without a history: "), "{printed}");
        let metrics = page(&world, "/metrics");
        assert!(metrics.contains("corona_job_tracker_jobs_without_history_total 1"), "{metrics}");
    });
}
