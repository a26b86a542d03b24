//! Task trackers that have died without a word. The cluster manager notices a lost node only when it has
//! expired, and the original's job trackers wait for that, or for the timeout of each attempt. Here a node
//! counts as lost for the jobs that use it when it has not reported, and its task tracker could not be
//! connected to, for `corona.jt.node.unreachable.ms`, unless it is this machine that is cut off: see
//! [`corona_job_engine::reach`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::cluster::Cluster;
use crate::clock::now;
use crate::jobs::job::Job;
use corona_config::HostPort;
use corona_job_engine::reach::{Answer, Judgement, Reach, machine};
use corona_job_engine::{JobEngine, JobInput, Tracker};

/// The shortest and the longest pause between two attempts to connect.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long an attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Task trackers that are tried at a time; more wait for their turn.
const MAX_TRIED: usize = 64;

/// Watches the task trackers of these jobs, for as long as the program runs. The cluster manager is another
/// machine that answers, if it is one.
pub(crate) async fn watch(
    cluster: Arc<Cluster>,
    cluster_manager: HostPort,
    jobs: impl Fn() -> Vec<Job>,
    unreachable: Duration,
) {
    if unreachable.is_zero() {
        return;
    }
    let pause = (unreachable / 6).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    let mut reach = Reach::new(i64::try_from(unreachable.as_millis()).unwrap_or(i64::MAX));
    let mut was_cut_off = false;
    loop {
        sleep(pause).await;
        let Used { silent, others } = Used::look(&cluster, &jobs(), 2 * pause).await;
        let attempts = try_all(silent).await;
        let mut in_contact: BTreeSet<&str> = others.iter().map(machine).collect();
        let doubts = attempts.iter().any(|(_, answer)| *answer == Answer::Nothing);
        if doubts && is_elsewhere_and_answers(&cluster_manager).await {
            in_contact.insert(&cluster_manager.host);
        }
        let Judgement { lost, cut_off_ms, out_of_reach } =
            reach.judge(now(), &in_contact, &attempts);
        for at in lost {
            give_up(&jobs(), &at).await;
        }
        report(was_cut_off, cut_off_ms > 0);
        was_cut_off = cut_off_ms > 0;
        if was_cut_off {
            excuse(&jobs(), out_of_reach, cut_off_ms).await;
        }
    }
}

/// The task trackers that jobs use.
#[derive(Debug, Default)]
struct Used {
    /// Those that have not reported for a while.
    silent: BTreeSet<Tracker>,
    others: BTreeSet<Tracker>,
}

impl Used {
    async fn look(cluster: &Cluster, jobs: &[Job], silence: Duration) -> Used {
        let mut trackers = BTreeSet::new();
        for job in jobs.iter().filter(|job| runs(job)) {
            trackers.extend(job.look(JobEngine::trackers).await.unwrap_or_default());
        }
        let is_silent = |at: &Tracker| cluster.silence(&at.node) >= silence;
        let (silent, others) = trackers.into_iter().partition(is_silent);
        Used { silent, others }
    }
}

fn runs(job: &Job) -> bool {
    job.progress().finished_at.is_none()
}

/// Tries to connect to task trackers.
async fn try_all(trackers: BTreeSet<Tracker>) -> Vec<(Tracker, Answer)> {
    let mut tries = JoinSet::new();
    let turns = Arc::new(Semaphore::new(MAX_TRIED));
    for at in trackers {
        let turns = turns.clone();
        tries.spawn(async move {
            // It is never closed.
            let _turn = turns.acquire().await;
            let answer =
                connect(&*at.address).await.map_or_else(|answer| answer, |_| Answer::Connected);
            (at, answer)
        });
    }
    tries.join_all().await
}

async fn connect(to: impl ToSocketAddrs) -> Result<TcpStream, Answer> {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, TimedOut};

    match timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(match error.kind() {
            ConnectionRefused => Answer::Refused,
            HostUnreachable | TimedOut => Answer::Nothing,
            // A lack of descriptors, ports or routes here says nothing of the other side.
            _ => Answer::NotTried,
        }),
        Err(_) => Err(Answer::Nothing),
    }
}

/// Whether the cluster manager answers, from another machine than this one.
async fn is_elsewhere_and_answers(cluster_manager: &HostPort) -> bool {
    let HostPort { host, port } = cluster_manager;
    let ends = |stream: TcpStream| Some((stream.local_addr().ok()?, stream.peer_addr().ok()?));
    let ends = connect((&**host, *port)).await.ok().and_then(ends);
    ends.is_some_and(|(here, there)| here.ip() != there.ip())
}

fn report(was_cut_off: bool, is_cut_off: bool) {
    match (was_cut_off, is_cut_off) {
        (false, true) => tracing::warn!(
            "most task trackers neither report nor answer; taking it for a fault of the network here: no node counts as lost, and the time is not counted as the silence of those that cannot be reached"
        ),
        (true, false) => tracing::info!("task trackers answer again"),
        _ => {}
    }
}

/// A node counts as lost. It may come back: then it is granted again.
async fn give_up(jobs: &[Job], at: &Tracker) {
    tracing::warn!(node = %at.node, address = %at.address, "a task tracker cannot be connected to; jobs run elsewhere what it has of them");
    for job in jobs {
        let lost = at.clone();
        let uses = move |job: &JobEngine| job.trackers().contains(&lost);
        if job.look(uses).await.unwrap_or(false) {
            // A job that has ended a moment ago refuses it.
            let _ = job.apply(JobInput::NodeLost { node: at.node.clone() }).await;
        }
    }
}

/// These nodes could not report for so long.
async fn excuse(jobs: &[Job], nodes: BTreeSet<Arc<str>>, ms: i64) {
    for job in jobs.iter().filter(|job| runs(job)) {
        // As above.
        let _ = job.apply(JobInput::CutOff { nodes: nodes.clone(), ms }).await;
    }
}

#[cfg(test)]
mod tests {
    use corona_mapreduce::TaskState;
    use tokio::net::TcpListener;

    use super::*;
    use crate::jobs::job::tests::{Notes, grant_at, report, start};

    /// A job whose set-up runs on a task tracker at this address.
    async fn on(address: &str) -> (Notes, Job, tokio::sync::watch::Sender<bool>) {
        let notes = Notes::default();
        let (job, running) = start(&notes, None);
        job.apply(grant_at(1, address)).await.unwrap();
        job.apply(report(2, TaskState::Running)).await.unwrap();
        (notes, job, running)
    }

    fn nobody() -> HostPort {
        HostPort { host: "127.0.0.1".into(), port: 1 }
    }

    async fn running(job: &Job) -> usize {
        job.look(|job| job.attempts_that_run().count()).await.unwrap()
    }

    #[tokio::test]
    async fn a_task_tracker_that_refuses_connections_is_given_up_after_a_while() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gone = corona_net::testing::nobody();
        let dead = gone.address().to_string();
        let alive = listener.local_addr().unwrap().to_string();
        let (_notes, lost, _stop) = on(&dead).await;
        let (_other_notes, kept, _other_stop) = on(&alive).await;
        let cluster = Arc::new(Cluster::new(Duration::from_secs(60)));
        let jobs = vec![lost.clone(), kept.clone()];
        let watching = tokio::spawn(watch(
            cluster,
            nobody(),
            move || jobs.clone(),
            Duration::from_millis(300),
        ));
        while running(&lost).await > 0 {
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(running(&kept).await, 1, "one that is silent and can be connected to");
        watching.abort();
    }

    #[tokio::test]
    async fn a_time_of_0_leaves_it_to_the_cluster_manager() {
        let cluster = Arc::new(Cluster::new(Duration::from_secs(60)));
        watch(cluster, nobody(), Vec::new, Duration::ZERO).await;
    }

    #[tokio::test]
    async fn attempts_to_connect_say_who_is_to_blame() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let alive = listener.local_addr().unwrap();
        assert!(connect(alive).await.is_ok());
        let nobody = corona_net::testing::nobody();
        let gone = nobody.address();
        assert_eq!(connect(gone).await.unwrap_err(), Answer::Refused);
        // Addresses of which this machine has no route are none that it can try.
        assert_eq!(connect("[ff02::1]:9").await.unwrap_err(), Answer::NotTried);
        let manager = |port| HostPort { host: "127.0.0.1".into(), port };
        assert!(!is_elsewhere_and_answers(&manager(alive.port())).await, "it is this machine");
        assert!(!is_elsewhere_and_answers(&manager(gone.port())).await);
    }
}
