//! The jobs of the service, and what follows the end of each, whichever engine has run it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use corona_filesystem::{FileSystems, FsError};
use corona_mapreduce::JobState;
use corona_session_driver::SessionDriver;
use tokio::time::timeout;

use super::end_notice;
use super::finished::Finished;
use super::left_output;
use super::log::Log;
use super::owed::{Debt, Owed};
use super::store::{Retired, Store};
use super::sweeps::Sweeps;
use crate::home;
use crate::meter::Meter;
use crate::submit::submission::{self, Description};

/// How long what follows the end of a job waits for the cluster manager to acknowledge the end of the session,
/// which is delivered for as long as it takes.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The jobs of the service.
pub(crate) struct Jobs {
    pub(crate) store: Arc<Store>,
    pub(crate) finished: Finished,
    pub(crate) owed: Arc<Owed>,
    pub(crate) sweeps: Arc<Sweeps>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) dirs: JobDirs,
}

/// Where the files of jobs are.
pub(crate) struct JobDirs {
    pub(crate) files: Arc<FileSystems>,
    /// The directory of the files of jobs, qualified.
    pub(crate) system_dir: String,
    /// The same as clients and task trackers are given it.
    pub(crate) given_dir: String,
    /// The directory of what the service keeps of jobs on this machine.
    pub(crate) kept: PathBuf,
}

impl JobDirs {
    /// The directory of a job in the system directory.
    pub(crate) fn job_dir(&self, id: &str) -> String {
        format!("{}/{id}", self.system_dir.trim_end_matches('/'))
    }

    /// Where task trackers fetch the configuration of a job.
    pub(crate) fn given_conf(&self, id: &str) -> String {
        format!("{}/{id}/{}", self.given_dir.trim_end_matches('/'), submission::CONF)
    }

    /// What the service keeps of a job on this machine.
    pub(crate) fn data_dir(&self, id: &str) -> PathBuf {
        self.kept.join(id)
    }
}

impl Jobs {
    /// Counts and logs the end of a job.
    pub(crate) fn ended(&self, job: &Description, session: &str, state: JobState) {
        self.meter.job_ended(state);
        let (name, user) = (&*job.name, &*job.user);
        tracing::info!(job = %job.id, name, user, session, ?state, "job ended");
    }

    /// Ends the session of a job that is over. Whether the cluster manager has acknowledged that soon.
    pub(crate) async fn end_session(&self, driver: Arc<SessionDriver>, debt: Debt) -> bool {
        let session = driver.handle().clone();
        let delivery = self.owed.end(driver, debt).await;
        match timeout(END_PATIENCE, delivery).await {
            Ok(Ok(Ok(ended))) => {
                tracing::debug!(%session, %ended, "the cluster manager knows that a job is over");
                ended.is_settled()
            }
            Ok(_) => false,
            Err(_) => {
                tracing::warn!(
                    %session,
                    "a job has ended; the cluster manager does not answer; retrying the end of its session until it is acknowledged"
                );
                false
            }
        }
    }

    /// Notes for the next run how a job has ended.
    pub(crate) async fn keep(self: &Arc<Self>, ended: Retired, log_path: &str) {
        let job = ended.description.id.clone();
        let (jobs, log_path) = (self.clone(), log_path.to_owned());
        let kept = tokio::task::spawn_blocking(move || jobs.finished.keep(&ended, &log_path)).await;
        if let Ok(Err(error)) = kept {
            tracing::warn!(%job, %error, "a restart will not know this job, which has ended");
        }
    }

    /// Removes what a job has left that was not cleaned up after, with the rights of its user: the job names
    /// the directory.
    pub(crate) async fn remove_output(&self, job: &Description, temporary: &str) {
        let (job, user, files) = (&job.id, &*job.user, &self.dirs.files);
        let removed = async {
            let job_dir = self.dirs.job_dir(job.as_str());
            let access = left_output::access_to(temporary, files, &job_dir).await?;
            left_output::remove(&files.as_user(user, access), temporary).await
        };
        match removed.await {
            Ok(true) => {
                tracing::info!(%job, temporary, "removed the unfinished output of a job that ended without its clean-up")
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%job, temporary, %error, "cannot remove the unfinished output of a job");
            }
        }
    }

    /// The last that follows the end of a job: its user's notice, the removal of its files, and the end of its
    /// journal. A restart before that is done does it again.
    pub(crate) async fn close(&self, job: &Description, state: JobState, log: Option<&Log>) {
        if let Some(notice) = &job.end_notice {
            end_notice::notify(notice, &job.id, state).await;
        }
        let directory = self.dirs.job_dir(job.id.as_str());
        if let Err(error) = remove(&self.dirs.files, &directory).await {
            tracing::warn!(directory, %error, "cannot remove the files of a job");
        }
        if let Some(log) = log
            && let Ok(number) = log.close()
        {
            // If it cannot be written the next start does all this again.
            let _ = log.committed(number).await;
        }
    }

    /// Removes what the service keeps of a job whose journal is closed.
    pub(crate) async fn remove_data(&self, job: &Description, log: Option<Log>) {
        let directory = self.dirs.data_dir(job.id.as_str());
        let removed = tokio::task::spawn_blocking(move || {
            let removed = home::remove_job(&directory);
            // It is closed once what it has written is on the disk, which takes a while.
            drop(log);
            removed
        });
        if let Ok(Err(error)) = removed.await {
            tracing::warn!(%error, "cannot remove what was kept of a job; the next start will");
        }
    }
}

async fn remove(files: &FileSystems, path: &str) -> Result<(), FsError> {
    let (files, path) = files.resolve(path)?;
    files.delete(&path, true).await.map(drop)
}
