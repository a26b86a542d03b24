//! The output of late attempts: a task tracker that hung may carry out an order after the end of the job, and
//! its attempt makes the directory of unfinished output again. When task trackers have reported nothing on a
//! job that has ended for a while, what its attempts have left there is removed. Where attempts did not succeed,
//! some may have ended without a report, so that this is done once after the end of the job in any case.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corona_filesystem::{FileSystems, ObjectAccess};
use corona_mapreduce::JobId;
use corona_process::panics::spawn_detached;
use tokio::time::{Instant, sleep_until};

use super::left_output;
use crate::submit::submission::Description;

/// So long after the last report on a job that has ended its last attempt counts as ended too.
pub(crate) const QUIET: Duration = Duration::from_secs(10);
/// Jobs that wait; the late output of others stays.
const MAX_WAITING: usize = 1000;

/// The jobs that have ended and are reported on.
#[derive(Debug)]
pub(crate) struct Sweeps {
    files: Arc<FileSystems>,
    quiet: Duration,
    waiting: Mutex<BTreeMap<JobId, Waiting>>,
}

/// A job that has ended.
#[derive(Debug)]
struct Waiting {
    /// When it was last reported on.
    last: Instant,
    /// Its access to the object store of its output, which went with its files.
    access: Option<Arc<ObjectAccess>>,
}

impl Sweeps {
    pub(crate) fn new(files: Arc<FileSystems>, quiet: Duration) -> Arc<Sweeps> {
        Arc::new(Sweeps { files, quiet, waiting: Mutex::default() })
    }

    /// A task tracker reports attempts of a job that has ended, or some may run though nobody reports them.
    /// The access to an object store is known at the end of the job alone: nothing is done later without it.
    pub(crate) fn reported(self: &Arc<Self>, job: &Description, access: Option<Arc<ObjectAccess>>) {
        let Some(output) = &job.output else { return };
        let mut waiting = self.lock();
        let is_known = waiting.contains_key(&job.id);
        let is_lost = !is_known && access.is_none() && ObjectAccess::is_for(output);
        if is_lost || (!is_known && waiting.len() >= MAX_WAITING) {
            return;
        }
        let last = Instant::now();
        let known = waiting.entry(job.id.clone()).or_insert(Waiting { last, access: None });
        known.last = last;
        known.access = known.access.take().or(access);
        if !is_known {
            let (sweeps, id) = (self.clone(), job.id.clone());
            let (user, temporary) = (job.user.clone(), left_output::below(output));
            spawn_detached("the removal of late output", async move {
                sweeps.sweep(id, &user, &temporary).await;
            });
        }
    }

    async fn sweep(&self, job: JobId, user: &str, temporary: &str) {
        loop {
            let due =
                self.lock().get(&job).map_or_else(Instant::now, |known| known.last + self.quiet);
            if due <= Instant::now() {
                break;
            }
            sleep_until(due).await;
        }
        let access = self.lock().remove(&job).and_then(|known| known.access);
        match left_output::sweep(&self.files.as_user(user, access), temporary, &job).await {
            Ok(0) => {}
            Ok(attempts) => {
                tracing::info!(%job, attempts, temporary, "removed the output of attempts that came after the end of their job");
            }
            Err(error) => {
                tracing::warn!(%job, temporary, %error, "cannot remove the output of late attempts");
            }
        }
    }

    /// No panic happens while it is held.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use corona_filesystem::FileSystemSettings;
    use corona_net::testing::until;

    use super::*;
    use crate::submit::submission::tests::submission;

    #[tokio::test]
    async fn the_output_of_late_attempts_is_removed_when_they_are_over_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let settings =
            FileSystemSettings { default_fs: "file:///".into(), ..FileSystemSettings::default() };
        let files = Arc::new(FileSystems::new(settings).unwrap());
        let output = dir.path().join("out");
        let mut job = submission(&[], 1).description;
        job.output = Some(format!("file:{}", output.display()).into());
        let temporary = output.join("_temporary");
        let late = temporary.join("_attempt_202611210043.1_0001_m_000000_1");
        let others = temporary.join("_attempt_202611210043.2_0001_m_000000_0");
        for attempt in [&late, &others] {
            std::fs::create_dir_all(attempt).unwrap();
            std::fs::write(attempt.join("part-00000"), "").unwrap();
        }
        let sweeps = Sweeps::new(files, Duration::from_millis(200));
        let begun = Instant::now();
        for _ in 0..3 {
            sweeps.reported(&job, None);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        until("a sweep", || !late.exists()).await;
        assert!(begun.elapsed() >= Duration::from_millis(240), "not before the last report is old");
        assert!(others.join("part-00000").exists(), "another job writes to the same directory");
        // The last one takes the directory with it.
        std::fs::remove_dir_all(&others).unwrap();
        std::fs::create_dir_all(&late).unwrap();
        sweeps.reported(&job, None);
        until("another sweep", || !temporary.exists()).await;
        assert!(output.exists());
    }
}
