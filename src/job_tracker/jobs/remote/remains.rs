//! What a job tracker on a node has left of a job that it has not ended itself.

use corona_mapreduce::JobState;
use corona_mapreduce::history::JobEnd;

use crate::jobs::end::Jobs;
use crate::jobs::history;
use crate::submit::submission::Description;

/// A history without its end, and perhaps unfinished output.
pub(super) struct Remains {
    pub(super) end: JobEnd,
    /// The directory of the history.
    pub(super) log_path: String,
    /// The directory of the unfinished output.
    pub(super) temporary: Option<String>,
}

impl Remains {
    /// Ends the history and removes the unfinished output. It may be done again.
    pub(super) async fn complete(self, jobs: &Jobs, job: &Description) {
        let (files, state) = (&jobs.dirs.files, self.end.state);
        if let Err(error) = history::complete(files, &self.log_path, &job.id, self.end).await {
            tracing::warn!(job = %job.id, %error, "cannot end the history of a job without its job tracker");
        }
        if let Some(temporary) = self.temporary.filter(|_| state != JobState::Succeeded) {
            jobs.remove_output(job, &temporary).await;
        }
    }
}
