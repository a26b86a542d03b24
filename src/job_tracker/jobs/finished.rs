//! What a restart still knows of jobs that have ended, a file each: what they were, how they ended, and
//! their counters.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use corona_mapreduce::{Counters, JobId};
use serde::{Deserialize, Serialize};

use super::store::Retired;
use crate::submit::submission::Description;
use corona_job_engine::JobProgress;

/// The beginning of the name of a file that is being written.
const NEW: &str = "new-";

/// The directory of the files.
#[derive(Debug)]
pub(crate) struct Finished {
    directory: PathBuf,
    most: usize,
}

/// A job that was kept.
#[derive(Debug)]
pub(crate) struct KeptJob {
    pub(crate) job: Retired,
    /// The directory of its history. Earlier versions did not keep it.
    pub(crate) log_path: Option<String>,
}

/// A file. **Its form is a promise** to later versions. The reason why the service has ended the job
/// follows, empty if there is none, and then the directory of its history; in files of earlier versions
/// both may be missing.
#[derive(Serialize, Deserialize)]
struct Stored {
    description: Arc<Description>,
    progress: Arc<JobProgress>,
    counters: Counters,
}

impl Finished {
    /// Keeps at most so many files in a directory, which is made when it is needed.
    pub(crate) fn new(directory: PathBuf, most: usize) -> Finished {
        Finished { directory, most }
    }

    /// Keeps a job whose history is in this directory, and drops the oldest ones that are too many.
    pub(crate) fn keep(&self, job: &Retired, log_path: &str) -> io::Result<()> {
        let Retired { description, progress, counters, reason } = job;
        let stored = Stored {
            description: description.clone(),
            progress: progress.clone(),
            counters: counters.clone(),
        };
        let mut bytes = postcard::to_stdvec(&stored).map_err(io::Error::other)?;
        for text in [reason.as_deref().unwrap_or_default(), log_path] {
            bytes = postcard::to_extend(text, bytes).map_err(io::Error::other)?;
        }
        fs::create_dir_all(&self.directory)?;
        let new = self.directory.join(format!("{NEW}{}", description.id));
        fs::write(&new, bytes)?;
        fs::rename(&new, self.file(job))?;
        let mut names = self.names()?;
        names.retain(|name| !name.starts_with(NEW));
        let too_many = names.len().saturating_sub(self.most);
        for name in names.iter().take(too_many) {
            match fs::remove_file(self.directory.join(name)) {
                // Another job that has just ended dropped it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                dropped => dropped?,
            }
        }
        Ok(())
    }

    /// The file of a job, whose name sorts by the time of its end.
    fn file(&self, job: &Retired) -> PathBuf {
        let ended = job.progress.finished_at.map_or(0, |at| at.0.max(0));
        self.directory.join(format!("{ended:020}-{}", job.description.id))
    }

    /// The jobs that were kept, oldest first. Files that cannot be read are logged and dropped. Called before any job
    /// runs, since a file that is being written would be dropped too.
    pub(crate) fn load(&self) -> Vec<KeptJob> {
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
            let path = self.directory.join(&name);
            match read(&path) {
                Ok(job) => {
                    // Whole, but the service was ended before it had its name.
                    if name.starts_with(NEW)
                        && let Err(error) = fs::rename(&path, self.file(&job.job))
                    {
                        tracing::warn!(file = %path.display(), %error, "cannot rename the file of a job that has ended");
                    }
                    jobs.push(job);
                }
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "dropped a job that has ended");
                    // It is tried again at the next start.
                    let _ = fs::remove_file(&path);
                }
            }
        }
        jobs.sort_by_key(|kept| kept.job.progress.finished_at);
        jobs
    }

    /// How a job has ended, if it was kept.
    pub(crate) fn find(&self, id: &JobId) -> Option<Retired> {
        let ending = format!("-{id}");
        let is_it = |name: &String| name.ends_with(&ending) && !name.starts_with(NEW);
        let name = self.names().ok()?.into_iter().rev().find(is_it)?;
        Some(read(&self.directory.join(name)).ok()?.job)
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

fn read(path: &Path) -> io::Result<KeptJob> {
    let bytes = fs::read(path)?;
    let (stored, mut rest) = postcard::take_from_bytes(&bytes).map_err(io::Error::other)?;
    let Stored { description, progress, counters } = stored;
    let mut text = || {
        let (text, after) = match rest {
            [] => ("", rest),
            rest => postcard::take_from_bytes(rest).map_err(io::Error::other)?,
        };
        rest = after;
        Ok::<_, io::Error>((!text.is_empty()).then_some(text))
    };
    let reason = text()?.map(Into::into);
    let log_path = text()?.map(str::to_owned);
    Ok(KeptJob { job: Retired { description, progress, counters, reason }, log_path })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::submit::submission::tests::submission;
    use corona_job_engine::JobEngine;
    use corona_model::types::Millis;

    /// A job that has ended; the lower its number, the later.
    pub(crate) fn job(number: u32) -> Retired {
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
            finished.keep(&job(number), &format!("/history/{number}")).unwrap();
        }
        fs::write(path.join("00000000000000000999-damaged"), "x").unwrap();
        let found = finished.load();
        let kept: Vec<(String, Option<&str>)> = found
            .iter()
            .map(|kept| (kept.job.description.id.to_string(), kept.log_path.as_deref()))
            .collect();
        let expected = [
            ("job_202611210043.2_0001".to_owned(), Some("/history/2")),
            ("job_202611210043.1_0001".to_owned(), Some("/history/1")),
        ];
        assert_eq!(kept, expected);
        assert_eq!(found[0].job.description, job(2).description);
        assert_eq!(found[0].job.progress, job(2).progress);
        assert_eq!(found[0].job.reason, job(2).reason);
        assert_eq!(found[1].job.reason, None);
        assert_eq!(fs::read_dir(path).unwrap().count(), 2, "what is damaged is gone");
        let of = |number: u32| finished.find(&job(number).description.id);
        assert_eq!(of(2).unwrap().reason, job(2).reason);
        assert!(of(3).is_none());
    }

    #[test]
    fn jobs_that_end_at_the_same_time_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let finished = Finished::new(directory.path().to_owned(), 3);
        std::thread::scope(|scope| {
            for first in [0, 100, 200, 300] {
                let finished = &finished;
                scope.spawn(move || {
                    for number in first..first + 100 {
                        finished.keep(&job(number), "/history").unwrap();
                    }
                });
            }
        });
        let kept = finished.load();
        let ids = kept.iter().map(|kept| kept.job.description.id.to_string());
        let expected = [2, 1, 0].map(|number| format!("job_202611210043.{number}_0001"));
        assert_eq!(ids.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_file_that_is_being_written_is_not_counted_and_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let finished = Finished::new(path.to_owned(), 2);
        finished.keep(&job(1), "/history").unwrap();
        let being_written = path.join(format!("{NEW}{}", job(1).description.id));
        fs::write(&being_written, "half").unwrap();
        finished.keep(&job(2), "/history").unwrap();
        for number in [1, 2] {
            assert!(finished.find(&job(number).description.id).is_some(), "{number}");
        }
        assert!(being_written.exists());
    }

    #[test]
    fn a_whole_file_that_was_not_named_yet_is_found_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let finished = Finished::new(path.to_owned(), 2);
        for number in [1, 2] {
            finished.keep(&job(number), "/history").unwrap();
        }
        let new = path.join(format!("{NEW}{}", job(2).description.id));
        fs::rename(finished.file(&job(2)), new).unwrap();
        for _ in 0..2 {
            let ids = finished.load().into_iter().map(|kept| kept.job.description.id.clone());
            assert_eq!(
                ids.collect::<Vec<_>>(),
                [2, 1].map(|number| job(number).description.id.clone())
            );
        }
        assert!(finished.find(&job(2).description.id).is_some());
    }

    #[test]
    fn files_of_earlier_versions_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (number, reason) in [(1, None), (2, Some("its session was lost"))] {
            let Retired { description, progress, counters, .. } = job(number);
            let mut bytes =
                postcard::to_stdvec(&Stored { description, progress, counters }).unwrap();
            if let Some(reason) = reason {
                bytes = postcard::to_extend(reason, bytes).unwrap();
            }
            fs::write(&path, bytes).unwrap();
            let kept = read(&path).unwrap();
            assert_eq!((kept.job.reason.as_deref(), kept.log_path), (reason, None));
        }
    }
}
