//! The journal of one job: what it was when it began, and every input since. After a restart they lead
//! back to the same engine.

use std::path::Path;
use std::sync::Arc;

use corona_config::JournalSync;
use corona_journal::{DiskStorage, Entry as Stored, Failed, Journal, OpenError, Options, Sync};
use corona_model::types::{Millis, PoolName};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;

use super::submission::Description;
use crate::engine::{JobInput, JobSpec};
use crate::parent::{Parent, ParentInput, ParentSettings};

/// A record. **Its form is a promise** to later versions: new variants come last.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Entry {
    /// The first record.
    Base(Box<Base>),
    /// An input and its time.
    Input(Millis, JobInput),
    /// Everything about the job is done: nothing of it has to be kept.
    Closed,
    /// The second record of a job that a remote job tracker runs.
    Handed(ParentSettings),
    /// An input of its parent, and its time.
    Parent(Millis, Box<ParentInput>),
}

/// What a job was when it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Base {
    pub(super) description: Description,
    pub(super) spec: JobSpec,
    pub(super) session: SessionBase,
}

/// The session of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SessionBase {
    pub(super) handle: Arc<str>,
    pub(super) pool: PoolName,
    pub(super) log_path: String,
}

/// What a journal led back to.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) base: Option<Box<Base>>,
    pub(super) inputs: Vec<(Millis, JobInput)>,
    /// The parent, with all its inputs, of a job that a remote job tracker runs.
    pub(super) parent: Option<Parent>,
    pub(super) closed: bool,
}

/// Why a journal cannot be used.
#[derive(Debug, Error)]
pub(super) enum LogError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Storage(#[from] corona_journal::StorageError),
    #[error(transparent)]
    Failed(#[from] Failed),
    #[error("cannot write a record: {0}")]
    Encode(#[from] postcard::Error),
}

/// The journal of a job that runs.
#[derive(Clone, Debug)]
pub(super) struct Log {
    journal: Arc<Journal>,
    committed: watch::Receiver<u64>,
}

impl Log {
    /// Opens the journal in a directory, which is made if it does not exist.
    pub(super) fn open(directory: &Path, sync: JournalSync) -> Result<(Log, Found), LogError> {
        let mut found = Found::default();
        let options = Options {
            sync: match sync {
                JournalSync::Write => Sync::Write,
                JournalSync::Always => Sync::Always,
            },
            ..Options::default()
        };
        let storage = DiskStorage::open(directory)?;
        let (journal, _) = Journal::open(storage, options, |stored| {
            // There are no images.
            let Stored::Record { bytes, .. } = stored else { return Ok(()) };
            match postcard::from_bytes(bytes)? {
                Entry::Base(base) => found.base = Some(base),
                Entry::Input(at, input) => found.inputs.push((at, input)),
                Entry::Closed => found.closed = true,
                Entry::Handed(settings) => found.parent = Some(Parent::new(settings)),
                Entry::Parent(at, input) => {
                    if let Some(parent) = &mut found.parent {
                        parent.apply(at, *input);
                    }
                }
            }
            Ok(())
        })?;
        let committed = journal.committed();
        Ok((Log { journal: Arc::new(journal), committed }, found))
    }

    /// Appends a record and returns its number.
    pub(super) fn append(&self, entry: &Entry) -> Result<u64, LogError> {
        Ok(self.journal.append(&postcard::to_stdvec(entry)?)?)
    }

    /// Waits until a record is safe.
    pub(super) async fn committed(&mut self, number: u64) -> Result<(), LogError> {
        let done = self.committed.wait_for(|committed| *committed >= number).await;
        match done {
            Ok(_) => Ok(()),
            // It never is: what failed is what the next record would meet.
            Err(_) => self.journal.sync(number).map_err(LogError::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::submission::tests::submission;
    use super::*;
    use crate::engine::{GrantedSlot, JobEngine, RequestId};

    #[tokio::test]
    async fn a_journal_leads_back_to_the_same_engine() {
        let dir = tempfile::tempdir().unwrap();
        let submission = submission(&[("mapred.reduce.tasks", "1")], 3);
        let (description, spec) = (submission.description, submission.spec);
        let mut engine = JobEngine::new(spec.clone());
        let session = SessionBase {
            handle: "202611210043.1".into(),
            pool: description.pool.clone(),
            log_path: "/history/1".into(),
        };
        let base = Base { description, spec, session };
        let slot = GrantedSlot {
            id: RequestId(1),
            node: "tracker_a:1".into(),
            host: "a".into(),
            address: "a:2".into(),
        };
        let inputs = [JobInput::Submitted, JobInput::Granted { slots: vec![slot] }, JobInput::Tick];
        {
            let (mut log, found) = Log::open(dir.path(), JournalSync::Write).unwrap();
            assert!(found.base.is_none() && found.inputs.is_empty());
            log.append(&Entry::Base(Box::new(base.clone()))).unwrap();
            let mut last = 0;
            for (at, input) in inputs.into_iter().enumerate() {
                let at = Millis(at as i64);
                last = log.append(&Entry::Input(at, input.clone())).unwrap();
                engine.apply(at, input).reply.unwrap();
            }
            log.committed(last).await.unwrap();
        }
        let (log, found) = Log::open(dir.path(), JournalSync::Always).unwrap();
        assert_eq!(found.base.as_deref(), Some(&base));
        let mut again = JobEngine::new(base.spec);
        for (at, input) in found.inputs {
            again.apply(at, input).reply.unwrap();
        }
        assert_eq!(again, engine);
        assert!(!found.closed);
        log.append(&Entry::Closed).unwrap();
        drop(log);
        assert!(Log::open(dir.path(), JournalSync::Write).unwrap().1.closed);
    }
}
