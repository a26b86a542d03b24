//! Whole jobs, from their clients to the processes of their tasks.

use compat_tests::task_tracker::steps::TaskRole;
use corona::hadoop::writables::{EventStatus, TaskReportState};

use super::super::task_tracker::block_on;
use super::*;

/// The group of the counters that the job tracker counts.
const JOB_COUNTERS: &str = "org.apache.hadoop.mapred.JobInProgress$Counter";

#[test]
fn a_job_of_a_client_runs_to_its_end() {
    block_on(async {
        let world = World::new(&[]).await;
        let mut client = world.client("alice");
        let job = world.prepare(&mut client, 3, 2, |job| job).await;
        let status = client.submit_job(job.id.clone()).await.unwrap().unwrap();
        assert_eq!((&*status.user, status.job.clone()), ("alice", job.id.clone()));
        assert!(status.start_time_ms > 0);
        let profile = client.get_job_profile(job.id.clone()).await.unwrap().unwrap();
        assert_eq!((&*profile.name, &*profile.queue), ("a job of a test", "default"));
        assert!(profile.job_file.ends_with(&format!("/{}/job.xml", job.id)), "{profile:?}");
        assert!(profile.url.starts_with("http://"), "{profile:?}");

        let status = world.ended(&mut client, &job).await;
        assert_eq!(status.run_state, SUCCEEDED, "{status:?}");
        assert_eq!((status.map_progress, status.reduce_progress), (1.0, 1.0));
        assert_eq!((status.setup_progress, status.cleanup_progress), (1.0, 1.0));
        let counters = client.get_job_counters(job.id.clone()).await.unwrap().unwrap();
        assert_eq!(counters.get(JOB_COUNTERS, "TOTAL_LAUNCHED_MAPS"), Some(3));
        assert_eq!(counters.get(JOB_COUNTERS, "TOTAL_LAUNCHED_REDUCES"), Some(2));
        assert!(counters.get("test", "STEPS").is_some());
        let events = client.get_task_completion_events(job.id.clone(), 0, 100).await.unwrap();
        let events = events.unwrap();
        // Set-up, three maps, two reduces, clean-up.
        assert_eq!(events.len(), 7, "{events:?}");
        assert!(events.iter().all(|event| event.status == EventStatus::Succeeded));
        let places: Vec<i32> = events.iter().map(|event| event.event_id).collect();
        assert_eq!(places, (0..7).collect::<Vec<_>>());
        assert_eq!(events.iter().filter(|event| event.is_map).count(), 3);
        let reports = client.get_map_task_reports(job.id.clone()).await.unwrap().unwrap();
        assert_eq!(reports.len(), 3);
        assert!(reports.iter().all(|it| matches!(it.state, TaskReportState::Complete(_))));
        let setup = client.get_setup_task_reports(job.id.clone()).await.unwrap().unwrap();
        assert!(matches!(setup[0].state, TaskReportState::Complete(_)), "{setup:?}");
        assert_eq!((setup.len(), &setup[1].state), (2, &TaskReportState::Killed));

        // The command line shows the same.
        let address = world.job_tracker.address.to_string();
        let corona = |words: &[&str]| {
            let mut command = Command::new(corona_program());
            command.arg("jobs").args(words).args(["--job-tracker", &address, "--output", "json"]);
            let out = command.env_remove("HADOOP_CONF_DIR").output().expect("an output");
            assert!(out.status.success(), "{words:?}: {out:?}");
            serde_json::from_slice::<serde_json::Value>(&out.stdout).expect("JSON")
        };
        let id = job.id.to_string();
        assert_eq!(corona(&["list"]), serde_json::json!([]));
        assert_eq!(corona(&["list", "--all"])[0]["id"], id);
        let info = corona(&["info", &id]);
        assert_eq!((&info["state"], &info["user"]), (&"SUCCEEDED".into(), &"alice".into()));
        assert_eq!(info["profile"]["name"], "a job of a test");
        let tasks = corona(&["tasks", &id, "--type", "reduce"]);
        assert_eq!(
            (tasks.as_array().map(Vec::len), &tasks[1]["state"]),
            (Some(2), &"COMPLETE".into())
        );
        let counters = corona(&["counters", &id]);
        let launched =
            counters.as_array().unwrap().iter().find(|it| it["name"] == "TOTAL_LAUNCHED_MAPS");
        assert_eq!(launched.unwrap()["value"], 3);

        // Every reduce has fetched the output of every map.
        let fetched = world.notes(&job).all().into_iter().filter(|note| note.what == "fetched");
        assert_eq!(fetched.count(), 6);
        // Nothing is left: no files of the job, no processes, no session.
        let directory = world.root.path().join("system").join(job.id.to_string());
        until("the end of the job's files", || (!directory.exists()).then_some(())).await;
        let data = world.root.path().join("jt/jobs").join(job.id.to_string());
        until("the end of the journal", || (!data.exists()).then_some(())).await;
        world.home.nothing_left().await;
    });
}

#[test]
fn a_job_that_fails_or_is_killed_says_why() {
    block_on(async {
        let world = World::new(&[]).await;
        let mut client = world.client("alice");
        let fails = |job: Job| {
            // There is one host: what cleans up after the attempt runs there although it is excluded.
            job.steps(TaskRole::Map, "diagnose=no luck,exit=1").with("mapred.map.max.attempts", "1")
        };
        let job = world.prepare(&mut client, 1, 0, fails).await;
        client.submit_job(job.id.clone()).await.unwrap();
        assert_eq!(world.ended(&mut client, &job).await.run_state, FAILED);
        let texts = client.get_task_diagnostics(job.map(0)).await.unwrap().unwrap();
        let text = texts.first().cloned().flatten().unwrap_or_default();
        assert!(text.contains("no luck"), "{texts:?}");

        let waits = |job: Job| job.steps(TaskRole::Map, "update=0.5,wait,done");
        let job = world.prepare(&mut client, 1, 0, waits).await;
        client.submit_job(job.id.clone()).await.unwrap();
        let waiting = job.map(0).to_string();
        let notes = world.notes(&job);
        until("a map that waits", || notes.of(&waiting, "waits").into_iter().next()).await;
        let error = world.client("mallory").kill_job(job.id.clone()).await.unwrap_err();
        assert!(error.to_string().contains("AccessControlException"), "{error}");
        client.kill_job(job.id.clone()).await.unwrap();
        assert_eq!(world.ended(&mut client, &job).await.run_state, KILLED);
        world.home.nothing_left().await;
    });
}
