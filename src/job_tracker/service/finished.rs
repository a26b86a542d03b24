//! What a restart still knows of jobs that have ended, a file each: what they were, how they ended, and
//! their counters.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use corona_mapreduce::Counters;
use serde::{Deserialize, Serialize};

use super::store::Retired;
use super::submission::Description;
use crate::engine::JobProgress;

/// The beginning of the name of a file that is being written.
const NEW: &str = "new-";

/// The directory of the files.
#[derive(Debug)]
pub(super) struct Finished {
    directory: PathBuf,
    most: usize,
}

/// A file. **Its form is a promise** to later versions. The reason why the service has ended the job
/// follows, if there is one.
#[derive(Serialize, Deserialize)]
struct Stored {
    description: Arc<Description>,
    progress: Arc<JobProgress>,
    counters: Counters,
}

impl Finished {
    /// Keeps at most so many files in a directory, which is made when it is needed.
    pub(super) fn new(directory: PathBuf, most: usize) -> Finished {
        Finished { directory, most }
    }

    /// Keeps a job, and drops the oldest ones that are too many.
    pub(super) fn keep(&self, job: &Retired) -> io::Result<()> {
        let Retired { description, progress, counters, reason } = job;
        let stored = Stored {
            description: description.clone(),
            progress: progress.clone(),
            counters: counters.clone(),
        };
        let mut bytes = postcard::to_stdvec(&stored).map_err(io::Error::other)?;
        if let Some(reason) = reason {
            bytes = postcard::to_extend(&**reason, bytes).map_err(io::Error::other)?;
        }
        let ended = progress.finished_at.map_or(0, |at| at.0.max(0));
        fs::create_dir_all(&self.directory)?;
        // A name that sorts by time.
        let id = &description.id;
        let new = self.directory.join(format!("{NEW}{id}"));
        fs::write(&new, bytes)?;
        fs::rename(&new, self.directory.join(format!("{ended:020}-{id}")))?;
        let names = self.names()?;
        let too_many = names.len().saturating_sub(self.most);
        names.iter().take(too_many).try_for_each(|name| fs::remove_file(self.directory.join(name)))
    }

    /// The jobs that were kept, oldest first. What cannot be read is logged and dropped.
    pub(super) fn load(&self) -> Vec<Retired> {
        let names = match self.names() {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                tracing::warn!(%error, "cannot look for the jobs that have ended");
                Vec::new()
            }
        };
        let mut jobs = Vec::new();
        for name in names {
            let path = self.directory.join(name);
            match read(&path) {
                Ok(job) => jobs.push(job),
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "dropped a job that has ended");
                    // It is tried again at the next start.
                    let _ = fs::remove_file(&path);
                }
            }
        }
        jobs
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    }
}

fn read(path: &Path) -> io::Result<Retired> {
    let bytes = fs::read(path)?;
    let (stored, rest) = postcard::take_from_bytes(&bytes).map_err(io::Error::other)?;
    let Stored { description, progress, counters } = stored;
    let reason = match rest {
        [] => None,
        rest => Some(postcard::from_bytes(rest).map_err(io::Error::other)?),
    };
    Ok(Retired { description, progress, counters, reason })
}

#[cfg(test)]
mod tests {
    use super::super::submission::tests::submission;
    use super::*;
    use crate::engine::JobEngine;
    use corona_model::types::Millis;

    fn job(number: u32) -> Retired {
        let submission = submission(&[], 1);
        let mut description = submission.description;
        description.id =
            corona_mapreduce::JobId::new(&format!("202611210043.{number}"), 1).unwrap();
        let mut progress = JobEngine::new(submission.spec).progress();
        progress.finished_at = Some(Millis(1000 - i64::from(number)));
        Retired {
            description: description.into(),
            progress: progress.into(),
            counters: Counters::default(),
            reason: (number == 2).then(|| "its session was lost".into()),
        }
    }

    #[test]
    fn the_jobs_that_ended_last_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("finished");
        let finished = Finished::new(path.clone(), 2);
        assert!(finished.load().is_empty());
        for number in [2, 1, 3] {
            finished.keep(&job(number)).unwrap();
        }
        fs::write(path.join("00000000000000000999-damaged"), "x").unwrap();
        let found = finished.load();
        let ids: Vec<String> = found.iter().map(|job| job.description.id.to_string()).collect();
        assert_eq!(ids, ["job_202611210043.2_0001", "job_202611210043.1_0001"]);
        assert_eq!(found[0].description, job(2).description);
        assert_eq!(found[0].progress, job(2).progress);
        assert_eq!(found[0].reason, job(2).reason);
        assert_eq!(found[1].reason, None);
        assert_eq!(fs::read_dir(path).unwrap().count(), 2, "what is damaged is gone");
    }
}
