//! What follows the end of a job whose job tracker was on a node.

use std::sync::Arc;

use corona_filesystem::FileSystems;
use corona_mapreduce::history::JobEnd;
use corona_mapreduce::{JobId, JobState};

use super::super::live::{remove, remove_output};
use super::super::log::Log;
use super::super::submission::EndNotice;
use super::super::{end_notice, history};

/// What follows the end of a job once clients see it. A restart before it is done does it again.
pub(super) struct Closing {
    pub(super) job: JobId,
    pub(super) user: Arc<str>,
    pub(super) end: JobEnd,
    /// The directory of the history and that of the unfinished output, if nobody has completed them.
    pub(super) left: Option<(String, Option<String>)>,
    pub(super) notice: Option<EndNotice>,
    pub(super) files: Arc<FileSystems>,
    pub(super) job_dir: String,
    pub(super) log: Log,
}

impl Closing {
    pub(super) async fn carry_out(self) {
        let (job, state) = (&self.job, self.end.state);
        if let Some((log_path, temporary)) = &self.left {
            if let Err(error) =
                history::complete(&self.files, log_path, job, self.end.clone()).await
            {
                tracing::warn!(%job, %error, "cannot end the history of a job without its job tracker");
            }
            if let Some(temporary) = temporary.as_deref().filter(|_| state != JobState::Succeeded) {
                remove_output(&self.files, job, &self.user, temporary).await;
            }
        }
        if let Some(notice) = &self.notice {
            end_notice::notify(notice, job, state).await;
        }
        if let Err(error) = remove(&self.files, &self.job_dir).await {
            tracing::warn!(directory = self.job_dir, %error, "cannot remove the files of a job");
        }
        if let Ok(number) = self.log.close() {
            // If it cannot be written the next start does all this again.
            let _ = self.log.committed(number).await;
        }
    }
}
