//! The cluster manager goes away and comes back, and the service dies in the middle of submissions: no job is
//! lost, and no session is left.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use compat_tests::serving::fetch;
use compat_tests::task_tracker::steps::TaskRole;
use corona::model::random::Random;
use corona::wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply,
};
use corona::wire::client::{Client, ClientOptions as ThriftOptions};

use super::super::task_tracker::block_on;
use super::*;

/// Longer than the sessions of the service once lived without a cluster manager.
const LONG_SECONDS: u64 = 13;

/// A cluster whose cluster manager resumes from its journal.
struct Durable {
    world: TestCluster,
    settings: Vec<(&'static str, String)>,
    _journal: TempDir,
}

impl Durable {
    async fn new() -> Durable {
        let journal = tempfile::tempdir().expect("a directory");
        let settings =
            vec![("corona.cm.journal.dir", journal.path().join("journal").display().to_string())];
        let world = TestCluster::with(&borrowed(&settings), &[]).await;
        Durable { world, settings, _journal: journal }
    }

    /// The cluster manager goes away.
    fn manager_goes(&mut self) {
        let manager = &mut self.world.manager;
        let addresses = [manager.thrift(), manager.http().expect("its pages")];
        manager.stop();
        addresses.into_iter().for_each(keep_address);
        if self.settings.len() == 1 {
            let history = self.world.root.path().join("history").display().to_string();
            let at = |address: SocketAddr| format!("localhost:{}", address.port());
            self.settings.extend([
                ("corona.sessions.log.dir", history),
                ("cm.cpu.to.resource.partitioning", r#"{"1":{"MAP":1,"REDUCE":1}}"#.to_owned()),
                ("cm.server.address", at(addresses[0])),
                ("cm.server.http.address", at(addresses[1])),
            ]);
        }
    }

    /// It is back, with all that it knew.
    fn manager_is_back(&mut self) {
        self.world.manager = start_with(&borrowed(&self.settings));
    }

    fn service_dies(&mut self) {
        let world = &mut self.world;
        world.job_tracker.crash();
        world.job_tracker = JobTracker::start(world.root.path(), &world.manager, &[]);
    }

    /// The sessions that the service still owes an end.
    fn owed(&self) -> Vec<String> {
        let mut names = names(&self.world.root.path().join("jt/owed"));
        // One that is being written again has its old form until then.
        names.retain(|name| !name.starts_with("new-"));
        names
    }

    async fn until_nothing_is_left(&self) {
        until("the ends of all sessions", || self.owed().is_empty().then_some(())).await;
        let address = (Ipv4Addr::LOCALHOST, self.world.manager.thrift().port());
        let mut client = Client::<ClusterManager>::connect(address, ThriftOptions::default())
            .await
            .expect("a cluster manager");
        match client.call(&Call::GetSessions).await.expect("an answer") {
            Reply::GetSessions(sessions) => assert!(sessions.is_empty(), "{sessions:?}"),
            other => panic!("{other:?}"),
        }
    }
}

fn borrowed<'a>(settings: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    settings.iter().map(|(key, value)| (*key, value.as_str())).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// For how many seconds the cluster manager has not answered, as a job says it.
fn silence(status: &JobStatus) -> Option<u64> {
    let (_, rest) = status.scheduling_info.split_once("has not answered for ")?;
    rest.split_once(" s;")?.0.parse().ok()
}

#[test]
fn a_job_goes_on_without_its_cluster_manager_and_its_session_ends_afterwards() {
    block_on(async {
        let mut cluster = Durable::new().await;
        let mut client = cluster.world.client("alice");
        let waits = |job: Job| job.steps(TaskRole::Map, "update=0.5,wait,output,update=1.0,done");
        let job = cluster.world.prepare(&mut client, 1, 0, waits).await;
        client.submit_job(job.id.clone()).await.unwrap();
        let (notes, map) = (cluster.world.notes(&job), job.map(0).to_string());
        until("a map that waits", || notes.of(&map, "waits").into_iter().next()).await;
        until_progress(&mut client, &job, 0.5).await;
        assert_eq!(cluster.owed(), [""; 0], "the journal knows the session");

        cluster.manager_goes();
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let status = client.get_job_status(job.id.clone()).await.unwrap().unwrap();
            assert_eq!(status.run_state, RUNNING, "{status:?}");
            if silence(&status).is_some_and(|seconds| seconds >= LONG_SECONDS) {
                let said = &status.scheduling_info;
                assert!(said.contains("1 task continues"), "{said}");
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{status:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let page = super::pages::page(&cluster.world, &format!("/jobs/{}", job.id));
        assert!(page.contains("the cluster manager has not answered for"), "{page}");

        // The job ends, and its session does not know that yet.
        notes.let_go(&map).unwrap();
        let status = cluster.world.ended(&mut client, &job).await;
        assert_eq!(status.run_state, SUCCEEDED, "{status:?}");
        let session = job.id.tracker.clone();
        until("the end that is owed", || (cluster.owed() == [session.clone()]).then_some(())).await;
        cluster.service_dies();
        assert_eq!(cluster.owed(), std::slice::from_ref(&session));

        cluster.manager_is_back();
        cluster.until_nothing_is_left().await;
        // The log is written by a thread of its own.
        let line = format!("Session {session}: ended as SUCCESSFUL");
        let log = || cluster.world.job_tracker.log().contains(&line).then_some(());
        until("the line about the end of the session", log).await;
        drop(cluster.world.node);
    });
}

#[test]
fn those_who_wait_for_the_cluster_manager_are_told_so() {
    block_on(async {
        let mut cluster = Durable::new().await;
        cluster.manager_goes();
        let input = cluster.world.root.path().join("input");
        fs::write(&input, "a line\n").unwrap();
        let output = cluster.world.root.path().join("output");
        let address = &cluster.world.job_tracker.address;
        let mut run = Command::new(corona_program())
            .args(["job", "run", "--mapper", "cat", "--reduces", "0", "--input"])
            .arg(&input)
            .arg("--output")
            .arg(&output)
            .arg("--job-tracker")
            .arg(format!("{}:{}", address.host, address.port))
            .env_remove("HADOOP_CONF_DIR")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut stderr = BufReader::new(run.stderr.take().unwrap());
        stderr.read_line(&mut said).unwrap();
        assert!(said.contains("has not answered for") && said.contains("still waiting"), "{said}");
        // It goes on by itself.
        cluster.manager_is_back();
        said.clear();
        stderr.read_line(&mut said).unwrap();
        assert!(said.contains("1 map, 0 reduces") || said.contains("still waiting"), "{said}");
        let _ = run.kill();
        let _ = run.wait();
    });
}

/// A client that asks again until it has an answer, with another id where its own was not kept.
async fn submit(cluster: &Durable, client: &mut JobSubmissionClient) -> Job {
    let deadline = std::time::Instant::now() + PATIENCE;
    let pause = async || {
        assert!(std::time::Instant::now() < deadline, "no answer to a submission");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    loop {
        let id = loop {
            match client.get_new_job_id().await {
                Ok(id) => break id.expect("an id"),
                Err(_) => pause().await,
            }
        };
        let directory = cluster.world.root.path().join("system").join(id.to_string());
        let root = cluster.world.root.path();
        let job = write_files(root, &directory, id, 1, 0, |job| job);
        loop {
            match client.submit_job(job.id.clone()).await {
                Ok(_) => return job,
                Err(corona::hadoop::rpc::CallError::Remote(error)) => {
                    assert!(!error.message().contains("no id that"), "ids survive: {error:?}");
                    break;
                }
                Err(_) => pause().await,
            }
        }
    }
}

/// More rounds with `CORONA_KILL_ROUNDS`, others with `CORONA_KILL_SEED`.
#[test]
fn a_service_that_is_killed_during_a_submission_runs_the_job_or_refuses_it() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let (rounds, seed) = (number("CORONA_KILL_ROUNDS", 12), number("CORONA_KILL_SEED", 1));
    block_on(async {
        let mut cluster = Durable::new().await;
        let mut jobs = Vec::new();
        for round in 0..rounds {
            let mut client = cluster.world.client("alice");
            let child = cluster.world.job_tracker.child.id();
            let delay = Duration::from_micros(Random::new(seed * 1000 + round).next() % 40_000);
            let killing = std::thread::spawn(move || {
                std::thread::sleep(delay);
                signal("KILL", child);
            });
            let job = {
                let submitting = submit(&cluster, &mut client);
                tokio::pin!(submitting);
                let early =
                    tokio::time::timeout(delay + Duration::from_millis(50), &mut submitting);
                let early = early.await.ok();
                killing.join().expect("the killer");
                early
            };
            cluster.service_dies();
            let mut client = cluster.world.client("alice");
            let job = match job {
                Some(job) => job,
                None => submit(&cluster, &mut client).await,
            };
            jobs.push((round, job));
        }
        let mut client = cluster.world.client("alice");
        for (round, job) in &jobs {
            let status = cluster.world.ended(&mut client, job).await;
            let log = cluster.world.job_tracker.log();
            assert_eq!(status.run_state, SUCCEEDED, "round {round}: {status:?}\n{log}");
        }
        // Jobs that were submitted and whose clients did not hear of it run as well.
        until("the end of all jobs", || {
            names(&cluster.world.root.path().join("jt/jobs")).is_empty().then_some(())
        })
        .await;
        cluster.until_nothing_is_left().await;
        drop(cluster.world.node);
    });
}

/// The cluster manager grants the slots of a dead node until it expires.
#[test]
fn a_job_soon_keeps_away_from_a_node_that_was_killed() {
    block_on(async {
        let mut world = TestCluster::new(&[("corona.jt.launch.connect.timeout.ms", "500")]).await;
        let mut client = world.client("alice");
        world.node.crash();
        // After the second failure it keeps away; the other slot may be used meanwhile.
        let is_few = |launched: &serde_json::Value| (2..=3).contains(&launched.as_u64().unwrap());
        let mut jobs = Vec::new();
        for _ in 0..3 {
            let job = world.prepare(&mut client, 4, 0, |job| job).await;
            client.submit_job(job.id.clone()).await.unwrap();
            jobs.push(job);
        }
        let pages = world.job_tracker.pages().trim_start_matches("http://").to_owned();
        let node_of = |job: &Job| {
            let (_, body) = fetch(&pages, &format!("/api/v1/jobs/{}", job.id))?;
            let detail: serde_json::Value = serde_json::from_str(&body).ok()?;
            Some(detail["nodes"][0].clone())
        };
        for job in &jobs {
            let gave_up = || node_of(job).filter(|node| node["faulty"] == true);
            let node = until("a job that keeps away", gave_up).await;
            assert!(is_few(&node["launched"]), "{node}");
        }
        world.node = world.home.start().await;
        for job in &jobs {
            let status = world.ended(&mut client, job).await;
            assert_eq!(status.run_state, SUCCEEDED, "{status:?}");
            assert!(is_few(&node_of(job).unwrap()["launched"]));
        }
    });
}
