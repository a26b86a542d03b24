//! The build that a job tracker reports to task trackers. Those of the original compare it with their own
//! before their first report on a job, and do not report on it at all if the two differ. Then they send both
//! texts in an error, from which the right one is learnt. Spec: mapreduce/04 §4.8 (3).

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corona_hadoop::writables::{JobId, SessionInfo};
use corona_model::form::FileVersion;
use corona_process::panics::{caught, spawn_detached};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::launcher::{Launcher, Nobody};
use crate::jobs::job::Job;
use corona_job_engine::{JobEngine, JobInput};

/// The longest text of a build that is learnt, in bytes, and the hosts for which one is kept.
const MAX_TEXT: usize = 1000;
const MAX_HOSTS: usize = 10_000;
/// Task trackers that begin with a job again at a time. A further one refuses its next attempt as well.
const MAX_AGAIN: usize = 1_000;
/// A task tracker has forgotten a job so long after the order.
const FORGET_PAUSE: Duration = Duration::from_secs(3);

/// The texts that answer `getBuildVersion`.
#[derive(Debug)]
pub(crate) struct Builds {
    /// For hosts of which nothing was learnt, if it is configured.
    configured: Option<String>,
    learnt: Mutex<Learnt>,
    /// Where it is kept for the next run: otherwise each restart would end what runs on task trackers that
    /// refuse the configured one.
    file: Option<PathBuf>,
    /// The jobs with which task trackers are beginning again, and their names.
    again: Again,
}

/// The version of the form of the file. One that had no version was the first.
const VERSION: u32 = 1;

type Again = Arc<Mutex<HashSet<(corona_mapreduce::JobId, Arc<str>)>>>;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Learnt {
    #[serde(flatten)]
    version: FileVersion,
    #[serde(default)]
    latest: Option<String>,
    #[serde(default)]
    of_hosts: BTreeMap<IpAddr, String>,
}

impl Learnt {
    /// What an earlier run has learnt. Without it, or if it is damaged or of another version, the first task
    /// tracker that refuses teaches it again.
    fn read(path: &Path) -> Learnt {
        let learnt = fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let learnt: Learnt = learnt.unwrap_or_default();
        let FileVersion { version } = learnt.version;
        if version != VERSION {
            tracing::warn!(path = %path.display(), "form {version} is not known to this version of the program; the builds of task trackers are learnt again");
            return Learnt::default();
        }
        learnt
    }
}

impl Builds {
    /// `configured` is `corona.jt.build.version`; the file is that of an earlier run, if there is one.
    pub(crate) fn new(configured: &str, file: Option<PathBuf>) -> Builds {
        let configured = Some(configured.to_owned()).filter(|text| !text.is_empty());
        let learnt = file.as_deref().map(Learnt::read).unwrap_or_default();
        let learnt = Mutex::new(learnt);
        Builds { configured, learnt, file, again: Again::default() }
    }

    /// The text for a task tracker on this host.
    pub(crate) fn of(&self, host: IpAddr) -> String {
        let learnt = self.lock();
        let known = learnt.of_hosts.get(&host).or(self.configured.as_ref());
        known.or(learnt.latest.as_ref()).cloned().unwrap_or_else(|| {
            format!("corona {} from corona by corona on corona", env!("CARGO_PKG_VERSION"))
        })
    }

    /// Takes the error of a task tracker on this host. Returns the job on which it does not report, if it
    /// would after it has asked again.
    pub(crate) fn refused(&self, host: IpAddr, error: &str) -> Option<JobId> {
        let build = text_of(error)?;
        if given_in(error) == Some(build) {
            // It refuses its own build.
            return None;
        }
        // Others that were given the old one may refuse it when it is known already.
        if self.of(host) != build {
            self.learn(host, build);
            tracing::info!(%host, build, "a task tracker refuses this job tracker's build; its own is reported to it from now on");
        }
        let job = error.strip_prefix("JobTrackerReporter(")?.split_once(')')?.0;
        job.parse().ok()
    }

    /// Lets a task tracker begin with a job again: it does not report on the job, and would now. It forgets the job,
    /// so that it asks again with the next attempt, and what was launched there runs again. Returns whether that
    /// begins: it does not while an earlier one goes on.
    pub(crate) fn begin_again(
        &self,
        job: Job,
        node: &str,
        launcher: Launcher,
        session: SessionInfo,
    ) -> bool {
        let (again, key) = (self.again.clone(), (job.description().id.clone(), Arc::from(node)));
        {
            let mut again = again.lock().unwrap_or_else(PoisonError::into_inner);
            if again.len() >= MAX_AGAIN || !again.insert(key.clone()) {
                return false;
            }
        }
        spawn_detached("the orders for a node that has refused the build", async move {
            if let Err(panic) = caught(begin_again(job, key.1.clone(), launcher, session)).await {
                tracing::error!(node = %key.1, %panic, "a node that has refused the build does not begin again");
            }
            again.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        });
        true
    }

    fn learn(&self, host: IpAddr, build: &str) {
        let mut learnt = self.lock();
        if learnt.of_hosts.len() < MAX_HOSTS || learnt.of_hosts.contains_key(&host) {
            learnt.of_hosts.insert(host, build.to_owned());
        }
        learnt.latest = Some(build.to_owned());
        let Some(path) = &self.file else { return };
        let text = serde_json::to_vec(&*learnt).map_err(io::Error::from);
        if let Err(error) = text.and_then(|text| fs::write(path, text)) {
            tracing::warn!(path = %path.display(), %error, "cannot keep the build of task trackers; after a restart they refuse this job tracker's once more");
        }
    }

    /// No panic happens while it is held.
    fn lock(&self) -> std::sync::MutexGuard<'_, Learnt> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The build of a task tracker that refuses another one.
fn text_of(error: &str) -> Option<&str> {
    let (_, texts) = error.split_once("Incompatible buildVersion.")?;
    let (_, own) = texts.split_once("TaskTracker's: ")?;
    let own = own.lines().next()?.trim_end();
    (!own.is_empty() && own.len() <= MAX_TEXT).then_some(own)
}

/// The build that the task tracker was given.
fn given_in(error: &str) -> Option<&str> {
    error.split_once("JobTracker's: ")?.1.lines().next().map(str::trim_end)
}

async fn begin_again(job: Job, node: Arc<str>, launcher: Launcher, session: SessionInfo) {
    let name = node.clone();
    let find = move |job: &JobEngine| job.trackers().into_iter().find(|at| at.node == name);
    let Ok(Some(at)) = job.look(find).await else { return };
    let Ok(id) = job.description().id.to_string().parse() else { return };
    launcher.forget(&at, Arc::new(Nobody), id, session);
    sleep(FORGET_PAUSE).await;
    // A job that has ended refuses it.
    let _ = job.apply(JobInput::NodeLost { node }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn error(own: &str) -> String {
        format!(
            "JobTrackerReporter(job_201207010000.7_0001) shutting down. Incompatible buildVersion.\n\
             JobTracker's: corona 1 from corona by corona on corona\nTaskTracker's: {own}"
        )
    }

    #[test]
    fn a_build_is_learnt_from_the_first_refusal() {
        let builds = Builds::new("", None);
        assert!(builds.of(A).starts_with("corona "));
        let job = builds.refused(A, &error("0.20 from r1 by me on a day"));
        assert_eq!(job.unwrap().to_string(), "job_201207010000.7_0001");
        assert_eq!(builds.of(A), "0.20 from r1 by me on a day");
        assert_eq!(builds.of(B), builds.of(A), "other hosts need not refuse first");
        let other = builds.refused(B, &error("0.20 from r1 by me on a day"));
        assert!(other.is_some(), "it was given the old one before the new one was known");
        let own = error("corona 1 from corona by corona on corona");
        assert_eq!(builds.refused(A, &own), None, "it refuses its own");
        // A cluster in the middle of an upgrade.
        assert!(builds.refused(B, &error("0.21")).is_some());
        assert_eq!(
            (builds.of(A).as_str(), builds.of(B).as_str()),
            ("0.20 from r1 by me on a day", "0.21")
        );
    }

    #[test]
    fn a_configured_build_is_reported_to_hosts_that_have_not_refused_it() {
        let builds = Builds::new("0.20", None);
        assert!(builds.refused(A, &error("0.21")).is_some());
        assert_eq!((builds.of(A).as_str(), builds.of(B).as_str()), ("0.21", "0.20"));
    }

    #[test]
    fn a_learnt_build_is_known_to_the_next_run() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("builds.json");
        let run = || Builds::new("0.19", Some(file.clone()));
        assert!(run().refused(A, &error("0.20")).is_some());
        assert!(run().refused(B, &error("0.21")).is_some());
        assert_eq!((run().of(A).as_str(), run().of(B).as_str()), ("0.20", "0.21"));
        fs::write(&file, "{").unwrap();
        assert_eq!(run().of(A), "0.19", "a damaged file is none");
    }

    #[test]
    fn a_later_version_is_left_aside() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("builds.json");
        let fixture = include_str!("../../../fixtures/versions/builds.json");
        for (text, build) in [
            (fixture, "0.20"),
            // That of the first program had no version.
            (r#"{"latest":"0.21","of_hosts":{"10.0.0.1":"0.20"}}"#, "0.20"),
            (r#"{"version":2,"latest":"0.21","of_hosts":{"10.0.0.1":"0.20"}}"#, "0.19"),
            (r#"{"version":2,"hosts":[]}"#, "0.19"),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(Builds::new("0.19", Some(file.clone())).of(A), build, "{text}");
        }
        let learnt = Learnt::read(&file);
        assert_eq!((learnt.version.version, learnt.latest), (VERSION, None));
        fs::write(&file, fixture).unwrap();
        let again = serde_json::to_string(&Learnt::read(&file)).unwrap();
        assert_eq!(again, fixture.trim_end(), "it is as this version writes it");
    }

    #[test]
    fn other_errors_teach_nothing() {
        let builds = Builds::new("", None);
        let before = builds.of(A);
        let long = error(&"x".repeat(MAX_TEXT + 1));
        for text in ["", "disk error", "Incompatible buildVersion.", &error(""), &long] {
            assert_eq!(builds.refused(A, text), None, "{text}");
        }
        // That of a classic task tracker names no job.
        assert_eq!(builds.of(A), before);
        let classic =
            "Shutting down. Incompatible buildVersion.\nJobTracker's: a\nTaskTracker's: b";
        assert_eq!(builds.refused(A, classic), None);
        assert_eq!(builds.of(A), "b");
    }
}
