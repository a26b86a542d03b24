//! The sessions of jobs, as pages need them: where the files are that a job writes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use corona_mapreduce::JobId;

/// The sessions of the jobs that are known, by job.
#[derive(Debug, Default)]
pub(crate) struct JobSessions(Mutex<BTreeMap<JobId, JobSession>>);

/// The session of a job.
#[derive(Clone, Debug)]
pub(crate) struct JobSession {
    /// Its handle, if it is not the one in the job's id.
    pub(crate) handle: Option<Arc<str>>,
    /// The directory in which the job writes its history.
    pub(crate) log_path: Arc<str>,
}

impl JobSessions {
    /// Notes the session of a job. Those of jobs for which `is_known` fails are forgotten at times.
    pub(crate) fn note(&self, job: JobId, session: JobSession, is_known: impl Fn(&JobId) -> bool) {
        const OFTEN: usize = 256;
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(job.clone(), session);
        if sessions.len().is_multiple_of(OFTEN) {
            sessions.retain(|id, _| *id == job || is_known(id));
        }
    }

    pub(super) fn get(&self, job: &JobId) -> Option<JobSession> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(job).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_jobs_that_are_gone_are_forgotten() {
        let sessions = JobSessions::default();
        let session = |number: u32| JobSession {
            handle: Some(format!("202611210043.{number}").into()),
            log_path: "/logs".into(),
        };
        let id = |number: u32| JobId::new(&format!("202611210043.{number}"), 1).unwrap();
        for number in 0..1000 {
            sessions.note(id(number), session(number), |_| false);
        }
        assert!(sessions.0.lock().unwrap().len() <= 256);
        let found = sessions.get(&id(999)).unwrap();
        assert_eq!(found.handle.as_deref(), Some("202611210043.999"));
        assert_eq!(&*found.log_path, "/logs");
    }
}
