//! The service is killed and started again while its jobs run.

use std::time::Instant;

use compat_tests::task_tracker::notes::Notes;
use compat_tests::task_tracker::steps::TaskRole;
use corona::hadoop::protocols::job_submission;
use corona::hadoop::rpc::{Call, ConnectionHeader};

use super::super::task_tracker::block_on;
use super::super::task_tracker::recorded::{Talk, framed, read};
use super::*;

#[test]
fn a_job_goes_on_after_the_service_was_killed_and_after_it_was_stopped() {
    goes_on(&[]);
}

#[test]
fn a_job_goes_on_from_an_image() {
    // One after almost every record.
    goes_on(&[("corona.jt.journal.image.bytes", "1")]);
}

fn goes_on(settings: &[(&str, &str)]) {
    block_on(async {
        let mut world = TestCluster::new(settings).await;
        let mut client = world.client("alice");
        let (job, notes) = half_done(&world, &mut client, 2, 1).await;
        let data = world.root.path().join("jt/jobs").join(job.id.to_string());
        let has_image = || {
            let mut names = fs::read_dir(data.join("journal")).ok()?.flatten();
            names.any(|entry| entry.file_name().to_string_lossy().ends_with(".image")).then_some(())
        };
        if settings.is_empty() {
            assert_eq!(has_image(), None);
        } else {
            until("an image", has_image).await;
        }

        let address = world.job_tracker.address.clone();
        world.job_tracker.crash();
        world.job_tracker = JobTracker::start(world.root.path(), &world.manager, settings);
        assert_eq!(world.job_tracker.address, address, "clients find it at the same address");
        assert!(world.job_tracker.ready.contains("jobs resumed 1"), "{}", world.job_tracker.ready);
        let mut client = world.client("alice");
        let listed = client.jobs_to_complete().await.unwrap().unwrap();
        assert_eq!((listed.len(), &listed[0].job), (1, &job.id));
        world.job_tracker.stop().await;
        world.job_tracker = JobTracker::start(world.root.path(), &world.manager, settings);
        assert!(world.job_tracker.ready.contains("jobs resumed 1"), "{}", world.job_tracker.ready);
        let mut client = world.client("alice");
        for map in 0..2 {
            notes.let_go(&job.map(map).to_string()).unwrap();
        }
        let status = world.ended(&mut client, &job).await;
        assert_eq!(status.run_state, SUCCEEDED, "{status:?}\n{}", world.job_tracker.log());
        // The maps that ran while it was away were not run again.
        let events = client.get_task_completion_events(job.id.clone(), 0, 100).await.unwrap();
        let names: Vec<String> = events
            .unwrap()
            .iter()
            .filter(|event| event.is_map)
            .map(|event| event.attempt.to_string())
            .collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names.iter().all(|name| name.ends_with("_0")), "{names:?}");
        // Another run still knows how it has ended.
        until("the end of the job's journal", || {
            let directory = world.root.path().join("jt/jobs").join(job.id.to_string());
            (!directory.exists()).then_some(())
        })
        .await;
        world.job_tracker.crash();
        world.job_tracker = JobTracker::start(world.root.path(), &world.manager, settings);
        let mut client = world.client("alice");
        let status = client.get_job_status(job.id.clone()).await.unwrap().unwrap();
        assert_eq!(status.run_state, SUCCEEDED, "{status:?}");
        let counters = client.get_job_counters(job.id.clone()).await.unwrap().unwrap();
        assert!(!counters.groups.is_empty());
        // Its history is whole.
        let history = world.root.path().join("history");
        let done = until("the history", || find(&history, &job.id.to_string())).await;
        let text = fs::read_to_string(done).unwrap();
        assert_eq!(text.matches("Meta VERSION").count(), 1, "{text}");
        assert!(text.contains("JOB_STATUS=\"SUCCESS\""), "{text}");
        world.home.nothing_left().await;
        drop(world.node);
    });
}

#[test]
fn many_jobs_go_on_after_the_service_was_killed_and_share_the_threads_of_their_journals() {
    const JOBS: usize = 12;
    block_on(async {
        let mut world = TestCluster::new(&[("corona.jt.journal.image.bytes", "2000")]).await;
        let mut client = world.client("alice");
        let mut jobs = Vec::new();
        for _ in 0..JOBS {
            let job = world.prepare(&mut client, 1, 0, |job| job).await;
            client.submit_job(job.id.clone()).await.unwrap();
            jobs.push(job);
        }
        let tasks = fs::read_dir(format!("/proc/{}/task", world.job_tracker.child.id())).unwrap();
        let names =
            tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        let of_journals = names.filter(|name| name.starts_with("journal-")).count();
        assert_eq!(of_journals, 8, "whatever the number of jobs");
        // It was started plainly, and has begun again as the same process with a frugal allocator.
        let environment = format!("/proc/{}/environ", world.job_tracker.child.id());
        let environment = String::from_utf8(fs::read(environment).unwrap()).unwrap();
        for (name, value) in corona::process::memory::FRUGAL {
            let variable = format!("{name}={value}");
            assert!(environment.split('\0').any(|found| found == variable), "{environment}");
        }
        world.ended(&mut client, &jobs[0]).await;
        world.job_tracker.crash();
        world.job_tracker = JobTracker::start(world.root.path(), &world.manager, &[]);
        let mut client = world.client("alice");
        for job in &jobs {
            let status = world.ended(&mut client, job).await;
            assert_eq!(status.run_state, SUCCEEDED, "{status:?}\n{}", world.job_tracker.log());
        }
        let history = world.root.path().join("history");
        for job in &jobs {
            let done = until("the history", || find(&history, &job.id.to_string())).await;
            let text = fs::read_to_string(done).unwrap();
            assert_eq!(text.matches("Meta VERSION").count(), 1, "{text}");
            assert_eq!(text.matches("JOB_STATUS=\"SUCCESS\"").count(), 1, "{text}");
        }
        world.home.nothing_left().await;
        // The service may be killed while it removes what it kept of a job that has ended.
        world.job_tracker.crash();
        let kept = world.root.path().join("jt/jobs").join(jobs[0].id.to_string());
        fs::create_dir_all(kept).unwrap();
        world.job_tracker = JobTracker::start(world.root.path(), &world.manager, &[]);
        let mut client = world.client("alice");
        let status = client.get_job_status(jobs[0].id.clone()).await.unwrap();
        assert_eq!(status.expect("a job that is known").run_state, SUCCEEDED);
        // Its history and its configuration are still found.
        let id = jobs[0].id.to_string();
        let history = super::pages::page(&world, &format!("/jobs/{id}/history"));
        assert!(history.contains("JOB_STATUS=\"SUCCESS\""), "{history}");
        let configuration = super::pages::page(&world, &format!("/jobs/{id}/configuration"));
        assert!(configuration.contains("mapred.job.name"), "{configuration}");
    });
}

/// The finished history of a job below a directory.
pub(super) fn find(history: &Path, job: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(history).ok()?.flatten();
    let done = entries.map(|entry| entry.path().join("done").join(job));
    done.into_iter().find(|path| path.exists())
}

#[test]
fn a_node_ends_what_it_runs_for_a_job_that_the_service_has_forgotten() {
    block_on(async {
        let mut world = TestCluster::new(&[]).await;
        let mut client = world.client("alice");
        let (job, _notes) = half_done(&world, &mut client, 1, 0).await;
        // As if the job's end had never reached the node.
        world.job_tracker.crash();
        fs::remove_dir_all(world.root.path().join("jt/jobs").join(job.id.to_string())).unwrap();
        world.job_tracker = JobTracker::start(world.root.path(), &world.manager, &[]);
        assert!(world.job_tracker.ready.contains("jobs resumed 0"), "{}", world.job_tracker.ready);
        world.home.nothing_left().await;
    });
}

/// How often the service has started, by its log.
fn starts(world: &TestCluster) -> usize {
    world.job_tracker.log().matches("STARTUP_MSG").count()
}

/// As with `systemctl reload`: the service starts again in the same process, and its clients keep their
/// connections. A Java client does not repeat a call that finds its connection closed.
#[test]
fn clients_keep_their_connections_over_a_restart_in_place() {
    block_on(async {
        let mut world = TestCluster::new(&[]).await;
        let mut client = world.client("alice");
        let (job, notes) = half_done(&world, &mut client, 1, 0).await;
        let user = Some(User { name: "alice".to_owned(), groups: vec![] });
        let protocol = job_submission::PROTOCOL.name.to_owned();
        // It never connects again.
        let header = ConnectionHeader { protocol, user };
        let mut raw = Talk::open(&world.job_tracker.address.to_string(), &header).await;
        assert_eq!(ask(&mut raw, 1).await, 1);
        for round in 1..=3 {
            let before = starts(&world);
            signal("HUP", world.job_tracker.child.id());
            // Calls are answered at any moment of the restart.
            let mut id = 100 * round;
            while starts(&world) == before {
                id += 1;
                assert_eq!(ask(&mut raw, id).await, id);
            }
            id += 1;
            assert_eq!(ask(&mut raw, id).await, id);
            assert_eq!(world.job_tracker.child.try_wait().unwrap(), None, "the same process");
        }
        let log = world.job_tracker.log();
        assert!(log.contains("connections of clients and task trackers have been kept"), "{log}");

        // Signals that come at any moment of a restart lead to another one, and end nothing.
        let before = starts(&world);
        let end = Instant::now() + PATIENCE;
        while starts(&world) < before + 5 {
            assert!(Instant::now() < end, "{}", world.job_tracker.log());
            signal("HUP", world.job_tracker.child.id());
            assert_eq!(
                world.job_tracker.child.try_wait().unwrap(),
                None,
                "{}",
                world.job_tracker.log()
            );
        }
        assert_eq!(ask(&mut raw, 7).await, 7);

        notes.let_go(&job.map(0).to_string()).unwrap();
        let status = world.ended(&mut client, &job).await;
        assert_eq!(status.run_state, SUCCEEDED, "{status:?}\n{}", world.job_tracker.log());
        world.job_tracker.stop().await;
    });
}

/// Submits a job whose maps wait when they are half done, and returns when their progress is known: launches that
/// nobody has reported would be repeated after a restart.
async fn half_done(
    world: &TestCluster,
    client: &mut JobSubmissionClient,
    maps: i32,
    reduces: i32,
) -> (Job, Notes) {
    let waits = |job: Job| job.steps(TaskRole::Map, "update=0.5,wait,output,update=1.0,done");
    let job = world.prepare(client, maps, reduces, waits).await;
    client.submit_job(job.id.clone()).await.unwrap();
    let notes = world.notes(&job);
    for map in 0..maps {
        let map = job.map(map).to_string();
        until("a map that waits", || notes.of(&map, "waits").into_iter().next()).await;
    }
    until_progress(client, &job, 0.5).await;
    (job, notes)
}

/// Asks with this number, and returns that of the reply.
async fn ask(talk: &mut Talk, id: i32) -> i32 {
    let method = "getFilesystemName".to_owned();
    read(&talk.exchange(&framed(&Call { id, method, parameters: vec![] })).await).id
}
