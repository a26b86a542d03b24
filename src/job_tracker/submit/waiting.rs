//! A job that waits for a place: what is kept of it, in memory and in a file beside its configuration. It has no
//! session, no journal and no open file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use corona_config::JournalSync;
use corona_mapreduce::PerKind;
use corona_model::types::{Millis, SessionPriority};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::submission::Description;
use corona_job_engine::JobProgress;

/// The file in the directory of a job that waits, and the beginning of its name while it is written.
pub(crate) const FILE: &str = "waiting";
const NEW: &str = "new-";
/// The form of the file. **It is a promise** to later versions; what changes it gets a number of its own.
pub(crate) const FORM: u8 = 1;

/// A job that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) description: Arc<Description>,
    /// With its present priority.
    pub(crate) progress: Arc<JobProgress>,
    /// It has a place and is about to begin, or it is about to end.
    pub(crate) begins: bool,
    /// It was killed.
    pub(crate) ends: bool,
    /// Why it could not begin when it had a place.
    pub(crate) reason: Option<Arc<str>>,
    /// It is not tried again before that, and others begin meanwhile.
    pub(crate) not_before: Option<Instant>,
}

#[derive(Debug, Deserialize)]
struct Stored {
    description: Description,
    submitted: Millis,
    priority: SessionPriority,
    total: PerKind<u32>,
}

/// The same, of parts that are not copied.
#[derive(Debug, Serialize)]
struct StoredRef<'a> {
    description: &'a Description,
    submitted: Millis,
    priority: SessionPriority,
    total: PerKind<u32>,
}

impl Waiting {
    /// A job with so many maps and reduces.
    pub(crate) fn new(
        description: Description,
        submitted: Millis,
        priority: SessionPriority,
        total: PerKind<u32>,
    ) -> Waiting {
        let progress = JobProgress::waiting(submitted, priority, total).into();
        Waiting {
            description: description.into(),
            progress,
            begins: false,
            ends: false,
            reason: None,
            not_before: None,
        }
    }

    /// What it waits for. `of_place` says it of a job that can begin in a free place.
    pub(crate) fn reason(&self, of_place: impl FnOnce() -> Arc<str>) -> Arc<str> {
        match &self.reason {
            Some(reason) => format!("waits: {reason}").into(),
            None if self.ends => "waits: it was killed and is about to end".into(),
            None if self.begins => "waits: it is about to begin".into(),
            None => of_place(),
        }
    }

    pub(crate) fn with_priority(&self, priority: SessionPriority) -> Waiting {
        let progress = JobProgress { priority, ..JobProgress::clone(&self.progress) };
        Waiting { progress: progress.into(), ..self.clone() }
    }

    /// Keeps it in the directory of the job, in place of what was kept before. A restart finds it there.
    pub(crate) fn write(&self, directory: &Path, sync: JournalSync) -> io::Result<()> {
        let JobProgress { submitted, priority, total, .. } = *self.progress;
        let stored = StoredRef { description: &self.description, submitted, priority, total };
        let bytes = postcard::to_extend(&stored, vec![FORM]).map_err(io::Error::other)?;
        let new = directory.join(format!("{NEW}{FILE}"));
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        if sync == JournalSync::Always {
            file.sync_all()?;
        }
        fs::rename(&new, directory.join(FILE))?;
        if sync == JournalSync::Always {
            for directory in [Some(directory), directory.parent()].into_iter().flatten() {
                File::open(directory)?.sync_all()?;
            }
        }
        Ok(())
    }

    /// What is kept in the directory of a job; none if that does not wait.
    pub(crate) fn read(directory: &Path) -> io::Result<Option<Waiting>> {
        let bytes = match fs::read(directory.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        let Stored { description, submitted, priority, total } = match bytes.split_first() {
            Some((&FORM, stored)) => postcard::from_bytes(stored).map_err(io::Error::other)?,
            Some((form, _)) => {
                let text = format!("{FILE} has form {form}, which this version cannot read");
                return Err(io::Error::other(text));
            }
            None => return Err(io::Error::other(format!("{FILE} is empty"))),
        };
        Ok(Some(Waiting::new(description, submitted, priority, total)))
    }

    /// The job waits no more: its journal knows it.
    pub(crate) fn forget(directory: &Path) -> io::Result<()> {
        match fs::remove_file(directory.join(FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use corona_mapreduce::JobId;

    use super::*;

    /// A version that writes the file of a job that waits in another way has to give the form another number.
    #[test]
    fn files_of_the_first_version_are_read_and_written() {
        let fixture =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/versions/job-waiting");
        let description = Description {
            name: "a job".into(),
            user: "alice".into(),
            queue: "default".into(),
            conf: "file:/system/job.xml".into(),
            url: "http://jt:1/job".into(),
            output: Some("file:/out".into()),
            ..Description::of_lost(JobId::new("202611210043.1", 1).unwrap())
        };
        let total = PerKind { map: 7, reduce: 300 };
        let waiting =
            Waiting::new(description.clone(), Millis(1_000), SessionPriority::High, total);
        let dir = tempfile::tempdir().unwrap();
        waiting.write(dir.path(), JournalSync::Write).unwrap();
        let written = dir.path().join(FILE);
        if std::env::var_os("CORONA_WRITE_FIXTURES").is_some() && !fixture.exists() {
            fs::copy(&written, &fixture).unwrap();
        }
        assert_eq!(fs::read(&written).unwrap(), fs::read(&fixture).unwrap());
        fs::copy(&fixture, &written).unwrap();
        let read = Waiting::read(dir.path()).unwrap().unwrap();
        assert_eq!(*read.description, description);
        let JobProgress { submitted, priority, total: kept, .. } = *read.progress;
        assert_eq!((submitted, priority, kept), (Millis(1_000), SessionPriority::High, total));
    }
}
