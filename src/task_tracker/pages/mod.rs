//! The task tracker's pages: a page for people, JSON and metrics for programs.
//!
//! It changes nothing. Names and texts come from job trackers and tasks, and are escaped.

mod api;
mod metrics;
mod sees;
mod status;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use percent_encoding::percent_decode_str;

use super::http::{HttpCounters, Page, Pages};
use super::job_trackers::JobTrackerSnapshot;
use super::local_dirs::{DirState, LocalDirs};
use super::node::link::{Link, LinkState};
use super::tracker::{AttemptSnapshot, SlotCounts, Snapshot};
use corona_config::HostPort;
use corona_filesystem::Counters;
use corona_hadoop::writables::TaskState;
use corona_process::procfs::{Machine, Traffic};
use corona_web::exchange::html;

/// Where a task tracker listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Map output, logs and pages.
    pub http: SocketAddr,
    /// Actions of job trackers.
    pub actions: SocketAddr,
    /// Reports of tasks.
    pub umbilical: SocketAddr,
    /// The Thrift service.
    pub callbacks: SocketAddr,
}

/// Facts that do not change while a task tracker runs.
#[derive(Clone, Debug)]
pub struct About {
    /// Where it listens.
    pub addresses: Addresses,
    /// The cluster manager that it heartbeats to.
    pub cluster_manager: HostPort,
    /// The address of the cluster manager's pages, if it is known.
    pub cluster_manager_pages: Option<String>,
    /// Where the proxy job tracker shows finished jobs.
    pub finished_jobs: Option<String>,
    /// The slots of this machine, as the cluster manager grants them.
    pub granted: SlotCounts,
    /// Attempts that are accepted, in times of these slots.
    pub slot_multiplier: u32,
    /// Why no Java task can run here; `None` if nothing is known against it.
    pub java_problem: Option<String>,
    /// Whether Java tasks are expected here, so that it is a problem if none can run.
    pub expects_java: bool,
    /// Without an answer for longer than this the cluster manager has forgotten it.
    pub node_expiry: Duration,
    /// When it was started.
    pub started: SystemTime,
}

/// Returns the tracker's status.
pub type Look = Box<dyn Fn() -> Snapshot + Send + Sync>;

/// Returns the job trackers that run here; `None` where none may.
pub type LookAtJobTrackers = Box<dyn Fn() -> Option<Vec<JobTrackerSnapshot>> + Send + Sync>;

/// The pages of a task tracker.
pub struct NodePages {
    pub(super) about: About,
    pub(super) look: Look,
    pub(super) job_trackers: LookAtJobTrackers,
    pub(super) link: Arc<Link>,
    pub(super) dirs: Arc<LocalDirs>,
    /// Of the server that shows the pages.
    pub(super) http: Arc<HttpCounters>,
    /// Of the client of HDFS.
    pub(super) files: Arc<Counters>,
}

/// The contents of a page, looked up once for each reply.
struct View<'a> {
    about: &'a About,
    tracker: Snapshot,
    job_trackers: Option<Vec<JobTrackerSnapshot>>,
    link: LinkState,
    dirs: Vec<DirState>,
    http: &'a HttpCounters,
    files: &'a Counters,
    machine: Machine,
    traffic: Traffic,
    now: SystemTime,
}

/// Something that an operator should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    /// Whether tasks fail for it.
    is_bad: bool,
    text: String,
}

impl View<'_> {
    /// The problems, the worst first.
    fn problems(&self) -> Vec<Problem> {
        let bad = |text: String| Problem { is_bad: true, text };
        let java = self.about.java_problem.iter().filter(|_| self.about.expects_java);
        let java = java.map(|why| bad(format!("No Java task can run here: {why}")));
        let dirs = self.dirs.iter().filter_map(|dir| dir.failed.as_ref());
        let dirs = dirs.map(|why| bad(format!("Local directory: {why}")));
        let link = self.link.trouble.iter();
        let link =
            link.map(|why| Problem { is_bad: false, text: format!("Cluster manager: {why}") });
        let health = &self.tracker.health;
        let health = (!health.is_healthy)
            .then(|| bad(format!("The health script reports: {}", health.report.trim_end())));
        let obstacles = self.tracker.obstacles.iter();
        let obstacles = obstacles.map(|why| bad(format!("This node takes no new tasks: {why}")));
        obstacles.chain(health).chain(java).chain(dirs).chain(link).collect()
    }
}

impl NodePages {
    fn view(&self) -> View<'_> {
        View {
            about: &self.about,
            tracker: (self.look)(),
            job_trackers: (self.job_trackers)(),
            link: self.link.state(),
            dirs: self.dirs.states(),
            http: &self.http,
            files: &self.files,
            machine: Machine::allowed(),
            traffic: Traffic::now(),
            now: SystemTime::now(),
        }
    }
}

impl Pages for NodePages {
    fn page(&self, path: &str, query: &str) -> Option<Page> {
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let name = |segment: &str| percent_decode_str(segment).decode_utf8_lossy().into_owned();
        match segments[..] {
            // The second is the original's.
            [""] | ["tasktracker.jsp"] => Some(html(StatusCode::OK, status::whole(&self.view()))),
            ["jobs", job] => {
                let view = self.view();
                Some(match status::job(&view, &name(job)) {
                    Some(page) => html(StatusCode::OK, page),
                    None => html(StatusCode::NOT_FOUND, status::no_job(&view)),
                })
            }
            ["api", "v1", ref segments @ ..] => {
                let segments: Vec<String> = segments.iter().map(|one| name(one)).collect();
                api::answer(&self.view(), &segments, query)
            }
            _ => None,
        }
    }

    fn metrics(&self) -> String {
        metrics::render(&self.view())
    }

    fn sickness(&self) -> Option<String> {
        let is_alive = self.link.is_alive(self.about.node_expiry);
        (!is_alive).then(|| {
            let silent = self.link.state().last_answer.elapsed().as_secs();
            format!("no answer of the cluster manager for {silent} s")
        })
    }
}

/// The rough progress of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    Waiting,
    Succeeded,
    Failed,
    Killed,
}

impl Stage {
    const ALL: [(Stage, &str); 5] = [
        (Stage::Running, "running"),
        (Stage::Waiting, "waiting"),
        (Stage::Succeeded, "succeeded"),
        (Stage::Failed, "failed"),
        (Stage::Killed, "killed"),
    ];

    fn of(attempt: &AttemptSnapshot) -> Stage {
        match attempt.state {
            // A clean-up has the state of the attempt that it cleans up after.
            _ if attempt.finish_time_ms == 0 && attempt.start_time_ms > 0 => Stage::Running,
            TaskState::Running | TaskState::CommitPending => Stage::Running,
            _ if attempt.finish_time_ms == 0 => Stage::Waiting,
            TaskState::Unassigned => Stage::Waiting,
            TaskState::Succeeded => Stage::Succeeded,
            TaskState::Failed | TaskState::FailedUnclean => Stage::Failed,
            TaskState::Killed | TaskState::KilledUnclean => Stage::Killed,
        }
    }
}

/// How many attempts there are in each stage.
fn count<'a>(attempts: impl Iterator<Item = &'a AttemptSnapshot>) -> [(&'static str, usize); 5] {
    let mut counts = Stage::ALL.map(|(_, name)| (name, 0));
    for attempt in attempts {
        let stage = Stage::of(attempt);
        for ((own, _), (_, count)) in Stage::ALL.iter().zip(&mut counts) {
            *count += usize::from(*own == stage);
        }
    }
    counts
}
