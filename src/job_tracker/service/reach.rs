//! Task trackers that have died without a word. The cluster manager notices a lost node only when it has
//! expired, and the original's job trackers wait for that, or for the timeout of each attempt. Here a node
//! counts as lost for the jobs that use it when it has not reported, and its task tracker could not be
//! connected to, for `corona.jt.node.unreachable.ms`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::cluster::Cluster;
use super::job::Job;
use corona_job_engine::{JobEngine, JobInput, Tracker};

/// The shortest and the longest pause between two tries to connect.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a try to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Task trackers that are tried at a time; more wait for their turn.
const MAX_TRIED: usize = 64;

/// Watches the task trackers of these jobs, for as long as the program runs.
pub(super) async fn watch(
    cluster: Arc<Cluster>,
    jobs: impl Fn() -> Vec<Job>,
    unreachable: Duration,
) {
    if unreachable.is_zero() {
        return;
    }
    let pause = (unreachable / 6).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    // Since when task trackers cannot be connected to.
    let mut missed = BTreeMap::<Tracker, Instant>::new();
    loop {
        sleep(pause).await;
        let silent = silent_trackers(&cluster, &jobs(), 2 * pause).await;
        missed.retain(|at, _| silent.contains(at));
        for (at, answers) in try_all(silent).await {
            if answers {
                missed.remove(&at);
                continue;
            }
            let since = *missed.entry(at.clone()).or_insert_with(Instant::now);
            if since.elapsed() >= unreachable {
                missed.remove(&at);
                give_up(&jobs(), &at).await;
            }
        }
    }
}

/// The task trackers that jobs use and that have not reported for so long.
async fn silent_trackers(cluster: &Cluster, jobs: &[Job], silence: Duration) -> BTreeSet<Tracker> {
    let mut silent = BTreeSet::new();
    for job in jobs.iter().filter(|job| job.progress().finished_at.is_none()) {
        let used = job.look(JobEngine::trackers).await.unwrap_or_default();
        silent.extend(used.into_iter().filter(|at| cluster.silence(&at.node) >= silence));
    }
    silent
}

/// Tries to connect to task trackers; whether each answers.
async fn try_all(trackers: BTreeSet<Tracker>) -> Vec<(Tracker, bool)> {
    let mut tries = JoinSet::new();
    let turns = Arc::new(Semaphore::new(MAX_TRIED));
    for at in trackers {
        let turns = turns.clone();
        tries.spawn(async move {
            // It is never closed.
            let _turn = turns.acquire().await;
            let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(&*at.address)).await;
            // A lack of descriptors or ports here says nothing of the other side.
            let answers = match connected {
                Ok(Err(error)) => !is_unreachable(&error),
                Ok(Ok(_)) => true,
                Err(_) => false,
            };
            (at, answers)
        });
    }
    tries.join_all().await
}

fn is_unreachable(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, TimedOut};

    // A network that cannot be reached is one to which this machine has lost its route.
    matches!(error.kind(), ConnectionRefused | HostUnreachable | TimedOut)
}

/// A node counts as lost. It may come back: then it is granted again.
async fn give_up(jobs: &[Job], at: &Tracker) {
    tracing::warn!(node = %at.node, address = %at.address, "a task tracker cannot be connected to; jobs run elsewhere what it has of them");
    for job in jobs {
        let lost = at.clone();
        let uses = move |job: &JobEngine| job.trackers().contains(&lost);
        if job.look(uses).await.unwrap_or(false) {
            // A job that has ended a moment ago does not mind.
            let _ = job.apply(JobInput::NodeLost { node: at.node.clone() }).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use corona_mapreduce::TaskState;
    use tokio::net::TcpListener;

    use super::super::job::tests::{Notes, grant_at, report, start};
    use super::*;

    /// A job whose set-up runs on a task tracker at this address.
    async fn on(address: &str) -> (Notes, Job, tokio::sync::watch::Sender<bool>) {
        let notes = Notes::default();
        let (job, running) = start(&notes, None);
        job.apply(grant_at(1, address)).await.unwrap();
        job.apply(report(2, TaskState::Running)).await.unwrap();
        (notes, job, running)
    }

    async fn running(job: &Job) -> usize {
        job.look(|job| job.attempts_that_run().count()).await.unwrap()
    }

    #[tokio::test]
    async fn a_task_tracker_that_refuses_connections_is_given_up_after_a_while() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dead = {
            let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
            port.local_addr().unwrap().to_string()
        };
        let alive = listener.local_addr().unwrap().to_string();
        let (_notes, lost, _stop) = on(&dead).await;
        let (_other_notes, kept, _other_stop) = on(&alive).await;
        let cluster = Arc::new(Cluster::new(Duration::from_secs(60)));
        let jobs = vec![lost.clone(), kept.clone()];
        let watching =
            tokio::spawn(watch(cluster, move || jobs.clone(), Duration::from_millis(300)));
        while running(&lost).await > 0 {
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(running(&kept).await, 1, "one that is silent and can be connected to");
        watching.abort();
    }

    #[tokio::test]
    async fn a_time_of_0_leaves_it_to_the_cluster_manager() {
        watch(Arc::new(Cluster::new(Duration::from_secs(60))), Vec::new, Duration::ZERO).await;
    }
}
