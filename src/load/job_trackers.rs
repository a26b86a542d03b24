//! Job trackers of jobs, which the emulated task trackers start as real ones do: processes of their own.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use corona_hadoop::rpc::Fault;
use corona_hadoop::writables::{JobId, SessionInfo, Task};
use corona_process::memory::FRUGAL;
use serde::Serialize;
use tokio::process::{Child, Command};

use super::machine::ProcessUse;

/// The name of the emulated node and its port for pages, for job trackers that run on it.
const NODE: [&str; 2] = ["127.0.0.1", "50060"];

/// How job trackers are started.
#[derive(Clone, Debug, Serialize)]
pub struct JobTrackersPlan {
    /// The program and its first arguments, such as `corona job-tracker --remote`.
    pub command: Vec<String>,
    /// Where they run, and leave their logs.
    pub directory: PathBuf,
    /// Kill each job's first one when half of its maps have succeeded.
    pub lose_first: bool,
}

/// The job trackers that run.
#[derive(Debug, Default)]
pub(super) struct JobTrackers(Mutex<HashMap<JobId, Child>>);

impl JobTrackers {
    /// Starts the job tracker of a job; one that was there before is killed.
    pub(super) fn start(
        &self,
        plan: &JobTrackersPlan,
        task: &Task,
        session: &SessionInfo,
    ) -> Result<(), Fault> {
        let started = spawn(plan, task, session).map_err(|error| Fault::io(error.to_string()))?;
        self.lock().insert(task.attempt.job().clone(), started);
        Ok(())
    }

    /// Kills the job tracker of a job. False: there is none.
    pub(super) fn kill(&self, job: &JobId) -> bool {
        let child = self.lock().remove(job);
        child.is_some_and(|mut child| child.start_kill().is_ok())
    }

    /// What the job tracker of a job has used.
    pub(super) fn used(&self, job: &JobId) -> Option<ProcessUse> {
        let process = self.lock().get(job).and_then(Child::id);
        process.and_then(ProcessUse::of)
    }

    /// No panic happens while it is held.
    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Child>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn spawn(plan: &JobTrackersPlan, task: &Task, session: &SessionInfo) -> io::Result<Child> {
    let job = task.attempt.job().to_string();
    let directory = plan.directory.join(task.attempt.to_string());
    fs::create_dir_all(&directory)?;
    let conf = task.job_file.strip_prefix("file:").unwrap_or(&task.job_file);
    fs::copy(Path::new(conf), directory.join(format!("{job}.xml")))?;
    let log = fs::File::create(directory.join("log"))?;
    let parent = &session.trackers.job_tracker;
    let missing = || io::Error::other("no command starts job trackers");
    let (program, arguments) = plan.command.split_first().ok_or_else(missing)?;
    Command::new(program)
        .args(arguments)
        .args([job, task.attempt.to_string(), parent.host.clone(), parent.port.to_string()])
        .args(NODE)
        .current_dir(&directory)
        // As task trackers do.
        .envs(FRUGAL)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
}
