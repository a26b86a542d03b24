//! What a job tracker on a node has left of a job that it has not ended itself.

use std::sync::Arc;

use corona_filesystem::FileSystems;
use corona_mapreduce::history::JobEnd;
use corona_mapreduce::{JobId, JobState};

use crate::jobs::history;
use crate::jobs::live::remove_output;

/// A history without its end, and perhaps unfinished output.
pub(super) struct Remains {
    pub(super) job: JobId,
    pub(super) user: Arc<str>,
    pub(super) end: JobEnd,
    /// The directory of the history.
    pub(super) log_path: String,
    /// The directory of the unfinished output.
    pub(super) temporary: Option<String>,
    /// The job's directory in the system directory.
    pub(super) job_dir: String,
    pub(super) files: Arc<FileSystems>,
}

impl Remains {
    /// Ends the history and removes the unfinished output. It may be done again.
    pub(super) async fn complete(self) {
        let (job, state) = (&self.job, self.end.state);
        if let Err(error) = history::complete(&self.files, &self.log_path, job, self.end).await {
            tracing::warn!(%job, %error, "cannot end the history of a job without its job tracker");
        }
        if let Some(temporary) = self.temporary.as_deref().filter(|_| state != JobState::Succeeded)
        {
            remove_output(&self.files, job, &self.user, temporary, &self.job_dir).await;
        }
    }
}
