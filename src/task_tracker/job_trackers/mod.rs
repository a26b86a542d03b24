//! Job trackers that run on this node, each as a process, for parents elsewhere.
//!
//! It copies the job's configuration and starts the process; nothing is reported about it, because
//! the parent talks to it directly. It decides nothing about tasks. Spec: mapreduce/04 §4.12.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::child::{
    CommandError, HandedChild, Install, JobTrackerLaunch, Logs, ProcessNotes, RunningChild,
    StartError, adopt, job_tracker, start,
};
use super::deletion::Deletion;
use super::ids::{AttemptId, NotAnId};
use super::job_files::{FileError, JobFiles, Location, NotALocation};
use super::layout;
use super::local_dirs::{LocalDirError, LocalDirs, any_jvm_number};
use super::tracker::{self, KeptLogs};
use corona_config::{ConfigErrors, JobConf, SiteProperties};
use corona_hadoop::rpc::Fault;
use corona_hadoop::writables::{SessionInfo, Task};
use corona_process::panics::spawn_detached;

/// Returns a guard that keeps the logs of an attempt from being deleted for their age, as long as
/// it lives.
pub type KeepLogs = Box<dyn Fn(&AttemptId) -> Option<KeptLogs> + Send + Sync>;

/// The settings that job trackers are started with.
pub struct Parts {
    /// How many may run at a time.
    pub limit: usize,
    /// A program that is run instead of Java, with its first arguments; empty for Java.
    pub program: Vec<String>,
    /// The programs on the machine.
    pub install: Install,
    /// The properties under those of a job.
    pub site: SiteProperties,
    /// Where the job's configuration is copied to.
    pub dirs: Arc<LocalDirs>,
    /// Where it comes from.
    pub files: Arc<dyn JobFiles>,
    /// The directory of jobs' files, as job trackers receive it.
    pub system_dir: String,
    /// Where notes of processes are left for the next run of the program.
    pub notes: ProcessNotes,
    /// Deletes files of ended job trackers.
    pub deletion: Deletion,
    /// The directories of logs.
    pub logs: Logs,
    /// Where logs are served: the name of this machine, and the port.
    pub http: (String, u16),
    /// The time between SIGTERM and SIGKILL.
    pub sigkill_delay: Duration,
}

/// The job trackers of a node. Copies are the same.
#[derive(Clone)]
pub struct JobTrackers {
    shared: Arc<JobTrackersCore>,
}

struct JobTrackersCore {
    parts: Parts,
    keep_logs: KeepLogs,
    state: Mutex<JobTrackersState>,
}

#[derive(Default)]
struct JobTrackersState {
    running: BTreeMap<AttemptId, Running>,
    stopped: bool,
    /// Whether another program goes on with those that run.
    is_handed_over: bool,
}

/// One that is being prepared, or runs.
#[derive(Clone)]
struct Running {
    since: SystemTime,
    parent: String,
    child: Option<RunningChild>,
    /// Its directory, once there is one.
    work: Option<PathBuf>,
}

/// A job tracker that runs, for the program that takes the place of this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedJobTracker {
    attempt: String,
    parent: String,
    since: SystemTime,
    work: Option<PathBuf>,
    child: HandedChild,
}

/// All job trackers, for the program that takes the place of this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedJobTrackers {
    /// Those whose process runs.
    pub running: Vec<HandedJobTracker>,
    /// Directories of those that were being started, whose parents start them again elsewhere.
    pub unfinished: Vec<PathBuf>,
}

impl HandedJobTracker {
    /// Its process.
    pub fn child(&self) -> &HandedChild {
        &self.child
    }
}

/// A job tracker, for people to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTrackerSnapshot {
    /// The name under which it runs, in which the job's is.
    pub attempt: String,
    /// The job's id.
    pub job: String,
    /// The session driver that waits for it: `host:port`.
    pub parent: String,
    /// Since when.
    pub since: SystemTime,
    /// Its process, once there is one.
    pub pid: Option<i32>,
}

/// Why a job tracker is not started. The parent gets this error.
#[derive(Debug, Error)]
enum Refusal {
    #[error(transparent)]
    Name(#[from] NotAnId),
    #[error("{0} is started already")]
    Started(AttemptId),
    #[error("{0} job trackers run here already, which is the maximum")]
    Full(usize),
    #[error("this task tracker stops")]
    Stopped,
    #[error(transparent)]
    Location(#[from] NotALocation),
    #[error(transparent)]
    LocalDir(#[from] LocalDirError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0}")]
    Configuration(#[from] ConfigErrors),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Start(#[from] StartError),
}

impl JobTrackers {
    /// None runs yet. The logs of those that run are kept.
    pub fn new(parts: Parts, keep_logs: KeepLogs) -> JobTrackers {
        JobTrackers {
            shared: Arc::new(JobTrackersCore { parts, keep_logs, state: Mutex::default() }),
        }
    }

    /// Those that run, in the order of their names.
    pub fn snapshot(&self) -> Vec<JobTrackerSnapshot> {
        let snapshot = |(id, running): (&AttemptId, &Running)| JobTrackerSnapshot {
            attempt: id.to_string(),
            job: id.job().as_str().to_owned(),
            parent: running.parent.clone(),
            since: running.since,
            pid: running.child.as_ref().map(RunningChild::pid),
        };
        self.shared.lock().running.iter().map(snapshot).collect()
    }

    /// Starts no more, ends the running ones with all that they have started, and waits for that,
    /// but not forever.
    pub async fn stop(&self) {
        let children: Vec<RunningChild> = {
            let mut state = self.shared.lock();
            state.stopped = true;
            state.running.values().filter_map(|running| running.child.clone()).collect()
        };
        for child in &children {
            child.kill();
        }
        let gone = async {
            for child in &children {
                child.wait_until_gone().await;
            }
        };
        let most = self.shared.parts.sigkill_delay + Duration::from_secs(10);
        if timeout(most, gone).await.is_err() {
            tracing::warn!("shutdown timed out; some remote job trackers are still running");
        }
    }

    async fn begin(&self, task: Task, session: SessionInfo) -> Result<(), Refusal> {
        let id: AttemptId = task.attempt.to_string().parse()?;
        self.shared.enter(&id, &session)?;
        // Releases the place, and deletes the files, unless a process takes both over.
        let logs = (self.shared.keep_logs)(&id);
        let shared = self.shared.clone();
        let mut place = RunningPlace { shared, id: id.clone(), work: None, _logs: logs };
        let started = self.shared.clone().prepare_and_start(&mut place, &task, &session).await;
        let child = match started {
            Ok(child) => child,
            Err(refusal) => {
                clear(place).await;
                return Err(refusal);
            }
        };
        tracing::info!(job_tracker = %id, pid = child.pid(), "started a remote job tracker");
        if !self.shared.started(&place, &child) {
            child.kill();
        }
        follow(place, child);
        Ok(())
    }

    /// Starts no more, and hands over those that run.
    pub async fn hand_over(&self) -> HandedJobTrackers {
        {
            let mut state = self.shared.lock();
            (state.stopped, state.is_handed_over) = (true, true);
        }
        self.shared.parts.notes.let_go().await;
        let handed = |(id, running): (&AttemptId, &Running)| {
            Some(HandedJobTracker {
                attempt: id.to_string(),
                parent: running.parent.clone(),
                since: running.since,
                work: running.work.clone(),
                child: running.child.as_ref()?.hand_over(),
            })
        };
        let state = self.shared.lock();
        let is_unfinished = |running: &&Running| running.child.is_none();
        let unfinished = state.running.values().filter(is_unfinished);
        HandedJobTrackers {
            running: state.running.iter().filter_map(handed).collect(),
            unfinished: unfinished.filter_map(|running| running.work.clone()).collect(),
        }
    }

    /// Goes on with those of a former program.
    pub fn take_over(&self, handed: HandedJobTrackers) {
        for work in &handed.unfinished {
            self.shared.discard(work);
        }
        for HandedJobTracker { attempt, parent, since, work, child } in handed.running {
            let Ok(id) = attempt.parse::<AttemptId>() else { continue };
            let parts = &self.shared.parts;
            let (child, _) = adopt(child, &parts.notes, parts.sigkill_delay);
            let running = Running { since, parent, child: Some(child.clone()), work: work.clone() };
            self.shared.lock().running.insert(id.clone(), running);
            let logs = (self.shared.keep_logs)(&id);
            follow(RunningPlace { shared: self.shared.clone(), id, work, _logs: logs }, child);
        }
    }
}

/// Clears up when the process of a job tracker has ended.
fn follow(place: RunningPlace, child: RunningChild) {
    spawn_detached("what follows the end of a remote job tracker", async move {
        let exit = child.wait().await;
        tracing::info!(job_tracker = %place.id, status = exit.shell_status(), "a remote job tracker ended");
        child.wait_until_gone().await;
        clear(place).await;
    });
}

impl tracker::JobTrackers for JobTrackers {
    async fn start(&self, task: Task, session: SessionInfo) -> Result<(), Fault> {
        let name = task.attempt.to_string();
        self.begin(task, session).await.map_err(|refusal| {
            tracing::warn!(job_tracker = %name, %refusal, "cannot start a remote job tracker");
            Fault::io(refusal.to_string())
        })
    }
}

impl JobTrackersCore {
    fn lock(&self) -> MutexGuard<'_, JobTrackersState> {
        // Its entries need not agree, so it can be used after a panic too.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for it.
    fn enter(&self, id: &AttemptId, session: &SessionInfo) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.stopped {
            return Err(Refusal::Stopped);
        }
        if state.running.contains_key(id) {
            return Err(Refusal::Started(id.clone()));
        }
        if state.running.len() >= self.parts.limit {
            return Err(Refusal::Full(self.parts.limit));
        }
        let parent = session.trackers.job_tracker.to_string();
        let running = Running { since: SystemTime::now(), parent, child: None, work: None };
        state.running.insert(id.clone(), running);
        Ok(())
    }

    /// Enters its directory, which there will be.
    fn has_directory(&self, place: &RunningPlace) {
        if let Some(running) = self.lock().running.get_mut(&place.id) {
            running.work.clone_from(&place.work);
        }
    }

    fn discard(&self, work: &Path) {
        if let Err(error) = self.parts.deletion.discard(work) {
            tracing::warn!(path = %work.display(), %error, "cannot move the directory of a remote job tracker aside");
        }
    }

    /// Enters its process. False if it is to be ended at once.
    fn started(&self, place: &RunningPlace, child: &RunningChild) -> bool {
        let mut state = self.lock();
        if let Some(running) = state.running.get_mut(&place.id) {
            running.child = Some(child.clone());
        }
        !state.stopped
    }

    async fn prepare_and_start(
        self: Arc<Self>,
        place: &mut RunningPlace,
        task: &Task,
        session: &SessionInfo,
    ) -> Result<RunningChild, Refusal> {
        let id = place.id.clone();
        let job_file = Location::from_path(&task.job_file)?;
        let job_xml = layout::job_tracker_xml(&id);
        let (dirs, relative) = (self.parts.dirs.clone(), job_xml);
        let to = blocking(move || Ok(dirs.for_write(&relative, None)?)).await?;
        let work = to.parent().unwrap_or(Path::new("/")).to_owned();
        place.work = work.parent().map(Path::to_owned);
        self.has_directory(place);
        self.parts.files.fetch(&job_file, &to).await?;
        let parent = session.trackers.job_tracker.clone();
        let command = blocking(move || {
            let parts = &self.parts;
            let conf = JobConf::read(&parts.site, &to)?;
            let created = parts.logs.create_for_job_tracker(&id);
            let own_log_dir = created
                .map_err(|error| Refusal::Io { path: parts.logs.log_dir().to_owned(), error })?;
            let launch = JobTrackerLaunch {
                install: &parts.install,
                program: &parts.program,
                attempt: &id,
                conf: &conf,
                work: &work,
                log_dir: &parts.logs.job_tracker_log_dir(),
                own_log_dir: &own_log_dir,
                parent: &parent,
                http: (&parts.http.0, parts.http.1),
                system_dir: &parts.system_dir,
                jvm_number: any_jvm_number(),
            };
            let command = job_tracker(&launch, &|name| std::env::var(name).ok())?;
            Ok((self, id, command))
        });
        let (shared, id, command) = command.await?;
        Ok(start(&id, &command, &shared.parts.notes, shared.parts.sigkill_delay, None)?)
    }
}

/// The place of a job tracker among those that run, and its directory.
struct RunningPlace {
    shared: Arc<JobTrackersCore>,
    id: AttemptId,
    work: Option<PathBuf>,
    _logs: Option<KeptLogs>,
}

impl Drop for RunningPlace {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            if state.is_handed_over {
                return;
            }
            state.running.remove(&self.id);
        }
        if let Some(work) = &self.work {
            self.shared.discard(work);
        }
    }
}

/// Releases a place on a thread that may wait for a disk.
async fn clear(place: RunningPlace) {
    // It fails only when the executor stops.
    let _ = spawn_blocking(move || drop(place)).await;
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    spawn_blocking(work).await.unwrap_or(Err(Refusal::Stopped))
}

#[cfg(test)]
mod tests;
