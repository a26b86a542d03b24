//! Whole jobs, from their clients to the processes of their tasks.

use compat_tests::cluster_peers::{Connection, call};
use compat_tests::task_tracker::steps::TaskRole;
use corona::hadoop::writables::{ClusterState, EventStatus, TaskReportState};
use corona_filesystem::testing::MiniCluster;
use corona_filesystem::{CreateOptions, FileSystems};
use serde_json::{Value as Json, json};

use super::super::task_tracker::block_on;
use super::*;

/// The group of the counters that the job tracker counts.
const JOB_COUNTERS: &str = "org.apache.hadoop.mapred.JobInProgress$Counter";

#[test]
fn a_job_of_a_client_runs_to_its_end() {
    block_on(async {
        let world = TestCluster::new(&[]).await;
        let mut client = world.client("alice");
        let job = world.prepare(&mut client, 3, 2, |job| job).await;
        let status = client.submit_job(job.id.clone()).await.unwrap().unwrap();
        assert_eq!((&*status.user, status.job.clone()), ("alice", job.id.clone()));
        assert!(status.start_time_ms > 0);
        let profile = client.get_job_profile(job.id.clone()).await.unwrap().unwrap();
        assert_eq!((&*profile.name, &*profile.queue), ("a job of a test", "default"));
        assert!(profile.job_file.ends_with(&format!("/{}/job.xml", job.id)), "{profile:?}");
        assert!(profile.url.starts_with("http://"), "{profile:?}");
        let refused = world.client("mallory").kill_job(job.id.clone()).await.unwrap_err();
        assert!(refused.to_string().contains("AccessControlException"), "{refused}");

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
            let as_json = ["--job-tracker", &address, "--output", "json"];
            let out = corona(&[&["jobs"][..], words, &as_json].concat()).output();
            let out = out.expect("an output");
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
fn nested_arrays_in_calls_end_no_daemon_and_no_job() {
    block_on(async {
        let mut world = TestCluster::new(&[]).await;
        let mut client = world.client("alice");
        let waits = |job: Job| job.steps(TaskRole::Map, "update=0.5,wait,done");
        let job = world.prepare(&mut client, 1, 0, waits).await;
        client.submit_job(job.id.clone()).await.unwrap();
        until_progress(&mut client, &job, 0.5).await;
        let port = |name: &str| {
            let mut words = world.node.ready().split_whitespace().skip_while(|word| *word != name);
            words.nth(1).unwrap_or_else(|| panic!("{:?}", world.node.ready())).to_owned()
        };
        for (address, protocol) in [
            (world.job_tracker.address.to_string(), "JobSubmissionProtocol"),
            (world.job_tracker.address.to_string(), "InterCoronaJobTrackerProtocol"),
            (port("actions"), "CoronaTaskTrackerProtocol"),
            (port("umbilical"), "TaskUmbilicalProtocol"),
        ] {
            let protocol = format!("org.apache.hadoop.mapred.{protocol}");
            compat_tests::nested::send_call(&address, &protocol).await;
        }
        // The same connection, the same task.
        world.notes(&job).let_go(&job.map(0).to_string()).unwrap();
        assert_eq!(world.ended(&mut client, &job).await.run_state, SUCCEEDED);
        let counters = client.get_job_counters(job.id.clone()).await.unwrap().unwrap();
        assert_eq!(counters.get(JOB_COUNTERS, "TOTAL_LAUNCHED_MAPS"), Some(1));
        assert!(world.node.is_alive());
        assert!(world.job_tracker.child.try_wait().unwrap().is_none());
    });
}

#[test]
fn a_job_whose_session_is_ended_is_cleaned_up_after() {
    block_on(async {
        let world = TestCluster::new(&[]).await;
        let mut client = world.client("alice");
        let output = world.root.path().join("out");
        let waits = |job: Job| {
            let output = format!("file:{}", output.display());
            job.steps(TaskRole::Map, "update=0.5,wait,done").with("mapred.output.dir", &output)
        };
        let job = world.prepare(&mut client, 1, 0, waits).await;
        // What the attempts of such a job leave while they run.
        let temporary = output.join("_temporary/_attempt_0");
        fs::create_dir_all(&temporary).unwrap();
        fs::write(temporary.join("part-00000"), "half").unwrap();
        client.submit_job(job.id.clone()).await.unwrap();
        let waiting = job.map(0).to_string();
        let notes = world.notes(&job);
        until("a map that waits", || notes.of(&waiting, "waits").into_iter().next()).await;
        let manager = world.manager.thrift().to_string();
        let kill = ["sessions", "kill", &job.id.tracker, "--address", &manager];
        let killed = corona(&kill).output().unwrap();
        assert!(killed.status.success(), "{killed:?}");
        assert_eq!(world.ended(&mut client, &job).await.run_state, KILLED);
        until("the end of its unfinished output", || (!temporary.exists()).then_some(())).await;
        assert!(output.exists());
        let history = world.root.path().join("history");
        let done =
            until("the history", || super::restarts::find(&history, &job.id.to_string())).await;
        let text = fs::read_to_string(done).unwrap();
        assert!(text.contains("JOB_STATUS=\"KILLED\""), "{text}");
        for directory in ["jt/jobs", "system"] {
            let directory = world.root.path().join(directory).join(job.id.to_string());
            until("the end of its files", || (!directory.exists()).then_some(())).await;
        }
        world.home.nothing_left().await;
        // Lines after the end of the session do not concern orders.
        let log = world.job_tracker.log();
        assert!(!log.contains("orders to a task tracker failed"), "{log}");
        assert!(!log.contains("cannot release slots"), "{log}");
    });
}

#[test]
fn the_pools_of_the_cluster_manager_are_queues() {
    block_on(async {
        let world = TestCluster::new(&[]).await;
        let mut client = world.client("alice");
        let own = |job: Job| {
            job.with("mapred.fairscheduler.pool", "science.space").steps(TaskRole::Map, "wait,done")
        };
        let job = world.prepare(&mut client, 1, 0, own).await;
        client.submit_job(job.id.clone()).await.unwrap();
        // Another service, which has seen no job, knows the pool.
        let root = tempfile::tempdir().unwrap();
        let other = JobTracker::start(root.path(), &world.manager, &[]);
        let user = User { name: "bob".to_owned(), groups: vec!["users".to_owned()] };
        let mut client = JobSubmissionClient::new(other.address.clone(), ClientOptions::new(user));
        let queues = client.get_queues().await.unwrap().unwrap();
        let names: Vec<&str> = queues.iter().map(|queue| &*queue.name).collect();
        assert!(names.contains(&"default"), "{names:?}");
        assert!(names.contains(&"science.space"), "{names:?}");
        let info = client.get_queue_info("science.space".to_owned()).await.unwrap().unwrap();
        assert!(info.scheduling_info.contains("0 slots requested"), "{info:?}");
        let info = client.get_queue_info("nosuch".to_owned()).await.unwrap().unwrap();
        assert!(!info.scheduling_info.contains("slots"), "{info:?}");
        let mut owner = world.client("alice");
        owner.kill_job(job.id.clone()).await.unwrap();
        world.ended(&mut owner, &job).await;
        world.home.nothing_left().await;
    });
}

#[test]
fn a_job_whose_files_are_on_hdfs_runs() {
    block_on(async {
        let hdfs = MiniCluster::start(2).await;
        let system = format!("hdfs://{}/mapred/system", hdfs.address());
        let world = TestCluster::new(&[("corona.system.dir", &system)]).await;
        let mut client = world.client("alice");
        let id = client.get_new_job_id().await.unwrap().unwrap();
        assert_eq!(client.get_system_dir().await.unwrap().as_deref(), Some(&*system));
        // As a client does: the files of the job, job.xml last.
        let staging = world.root.path().join("staging");
        let steps = |job: Job| job.steps(TaskRole::Map, "output,update=1.0,done");
        let job = write_files(world.root.path(), &staging, id, 3, 1, steps);
        let files = FileSystems::new(hdfs.settings()).unwrap();
        let directory = format!("{system}/{}", job.id);
        let (target, path) = files.resolve(&directory).unwrap();
        target.mkdirs(&path, None).await.unwrap();
        for name in ["job.split", "job.xml"] {
            let (target, path) = files.resolve(&format!("{directory}/{name}")).unwrap();
            let mut writer = target.create(&path, CreateOptions::default()).await.unwrap();
            writer.write(&fs::read(staging.join(name)).unwrap()).await.unwrap();
            writer.close().await.unwrap();
        }
        client.submit_job(job.id.clone()).await.unwrap();
        let status = world.ended(&mut client, &job).await;
        assert_eq!(status.run_state, SUCCEEDED, "{status:?}\n{}", world.job_tracker.log());
        let deadline = std::time::Instant::now() + PATIENCE;
        while target.find(&path).await.unwrap().is_some() {
            assert!(std::time::Instant::now() < deadline, "the files of the job are still there");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        world.home.nothing_left().await;
    });
}

/// The cluster manager knows which nodes are blacklisted.
#[test]
fn clients_see_blacklisted_nodes() {
    block_on(async {
        let world = TestCluster::with(&[("cm.node.max.failures", "0")], &[]).await;
        let mut client = world.client("alice");
        let status = async |client: &mut JobSubmissionClient| {
            client.get_cluster_status(true).await.unwrap().unwrap()
        };
        // The task tracker reports to the service when it runs a job.
        let job = world.prepare(&mut client, 1, 0, |job| job).await;
        client.submit_job(job.id.clone()).await.unwrap();
        world.ended(&mut client, &job).await;
        let before = status(&mut client).await;
        assert_eq!((before.active, before.blacklisted, before.excluded), (1, 0, 0), "{before:?}");
        assert_eq!(before.state, ClusterState::Running);
        let node = before.active_names[0].clone();

        // A session that has had a slot complains of the node, which is enough here.
        let mut connection = Connection::open(world.manager.thrift());
        let mut ask = |method: &str, args: &Json| {
            connection.send(&call(method, args, 1));
            let body = connection.receive().expect("an answer").body.expect("a well-formed one");
            serde_json::to_value(body).unwrap()
        };
        let id = ask("getNextSessionId", &json!({}))["success"].clone();
        let address = json!({ "host": "127.0.0.1", "port": 1 });
        let info = json!({ "address": address, "name": "complains", "userId": "u" });
        ask("sessionStart", &json!({ "handle": id, "info": info }));
        let request = json!({ "id": 1, "type": 0 });
        ask("requestResource", &json!({ "handle": id, "requestList": [request] }));
        let report = json!({
            "nodeName": node, "numTotalTasks": 9, "numSucceeded": 0, "numKilled": 0,
            "numFailed": 9, "numTimeout": 0, "numSlow": 0, "numFailedConnections": 0,
        });
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            ask("nodeFeedback", &json!({ "handle": id, "resourceTypes": [0], "stats": [report] }));
            let now = status(&mut client).await;
            if now.blacklisted == 1 {
                assert_eq!(now.blacklisted_names, [&*node]);
                assert_eq!((now.active, now.active_names.len(), now.trackers.len()), (0, 0, 1));
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{now:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}
