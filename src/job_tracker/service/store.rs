//! The jobs of the service: those that run, those that have ended, and ids that were given out.
//!
//! What is remembered of jobs that have ended is bounded: first the oldest ones lose their details, then
//! they are forgotten. Spec: mapreduce/07 §7.5.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corona_hadoop::writables::JobStatus;
use corona_mapreduce::{Counters, JobId};
use tokio::time::Instant;

use super::answers;
use super::job::Job;
use super::remote::RemoteJob;
use super::submission::Description;
use corona_job_engine::JobProgress;

/// How long an id that nobody submits is remembered, and how many are.
const ID_AGE: Duration = Duration::from_secs(24 * 3600);
const MAX_IDS: usize = 100_000;

/// The jobs of the service.
#[derive(Debug)]
pub(super) struct Store {
    state: Mutex<State>,
    most: Most,
}

/// What is remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub(super) jobs: usize,
    pub(super) jobs_per_user: usize,
    pub(super) finished_jobs: usize,
    pub(super) finished_tasks: usize,
}

#[derive(Debug, Default)]
struct State {
    jobs: BTreeMap<JobId, Known>,
    /// Jobs that have ended, oldest first, those without details before the others.
    retired: VecDeque<JobId>,
    finished: VecDeque<JobId>,
    running: usize,
    finished_tasks: usize,
    ids: HashMap<JobId, Given>,
    ids_in_order: VecDeque<JobId>,
    /// Jobs of an earlier run that could not be resumed.
    not_resumed: BTreeSet<JobId>,
}

/// An id that was given out, and to whom.
#[derive(Clone, Debug)]
struct Given {
    user: String,
    at: Instant,
}

/// What is known of a job.
#[derive(Clone, Debug)]
pub(super) enum Known {
    /// It is being submitted by this user.
    Arriving(Arc<str>),
    /// It runs, or has ended and its details are kept.
    Job(Job),
    /// A remote job tracker runs it, or has run it a moment ago.
    Remote(RemoteJob),
    /// It has ended.
    Retired(Arc<Retired>),
}

/// What remains of a job.
#[derive(Debug)]
pub(super) struct Retired {
    pub(super) description: Arc<Description>,
    pub(super) progress: Arc<JobProgress>,
    pub(super) counters: Counters,
    /// Why the service has ended it; none if its tasks or a user have.
    pub(super) reason: Option<Arc<str>>,
}

/// Why a job may not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPlace {
    /// Nobody was given the id here.
    #[error("{0} is no id that this job tracker has given out")]
    UnknownId(JobId),
    /// Somebody else was.
    #[error("User {user} is not the owner of the job {id}")]
    NotOwner { id: JobId, user: String },
    /// Too many jobs run.
    #[error("{0} jobs run already (corona.jt.max.jobs); try again later")]
    Full(usize),
    /// Too many jobs of the user run.
    #[error(
        "user {user} has {running} jobs already (corona.jt.max.jobs.per.user); try again later"
    )]
    FullForUser { user: String, running: usize },
}

/// Whether a job begins now.
#[derive(Debug)]
pub(super) enum JobArrival {
    /// It may be submitted, and holds a place until [`Store::begin`] or [`Store::give_up`].
    Free,
    /// It was submitted before.
    Taken(Known),
}

impl Known {
    /// What does not change of it; none while it is being submitted.
    pub(super) fn description(&self) -> Option<&Arc<Description>> {
        match self {
            Known::Arriving(_) => None,
            Known::Job(job) => Some(job.description()),
            Known::Remote(job) => Some(job.description()),
            Known::Retired(retired) => Some(&retired.description),
        }
    }

    /// How far it is; none while it is being submitted.
    pub(super) fn progress(&self) -> Option<Arc<JobProgress>> {
        match self {
            Known::Arriving(_) => None,
            Known::Job(job) => Some(job.progress()),
            Known::Remote(job) => Some(job.progress()),
            Known::Retired(retired) => Some(retired.progress.clone()),
        }
    }

    /// How it stands, for clients; none while it is being submitted.
    pub(super) fn status(&self) -> Option<JobStatus> {
        answers::status(self.description()?, &*self.progress()?, self.note().as_deref())
    }

    /// What it waits for, or why the service has ended it, if there is anything to say.
    pub(super) fn note(&self) -> Option<Arc<str>> {
        match self {
            Known::Arriving(_) => None,
            Known::Job(job) => job.note().map(Into::into),
            Known::Remote(job) => job.note(),
            Known::Retired(retired) => retired.reason.clone(),
        }
    }

    fn user(&self) -> &str {
        match self {
            Known::Arriving(user) => user,
            Known::Job(job) => &job.description().user,
            Known::Remote(job) => &job.description().user,
            Known::Retired(retired) => &retired.description.user,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        match self {
            Known::Arriving(_) => true,
            Known::Job(job) => job.progress().finished_at.is_none(),
            Known::Remote(job) => job.progress().finished_at.is_none(),
            Known::Retired(_) => false,
        }
    }
}

impl Store {
    pub(super) fn new(most: Most) -> Store {
        Store { state: Mutex::default(), most }
    }

    /// Remembers an id that was given to a user.
    pub(super) fn give(&self, id: JobId, user: String) {
        let mut state = self.lock();
        let now = Instant::now();
        while let Some(oldest) = state.ids_in_order.front().cloned() {
            let given = state.ids.get(&oldest);
            let old = given.is_none_or(|given| now.duration_since(given.at) > ID_AGE);
            if !old && state.ids_in_order.len() < MAX_IDS {
                break;
            }
            state.ids.remove(&oldest);
            state.ids_in_order.pop_front();
        }
        state.ids_in_order.push_back(id.clone());
        state.ids.insert(id, Given { user, at: now });
    }

    /// Whether a user may submit a job now.
    pub(super) fn arrive(&self, id: &JobId, user: &str) -> Result<JobArrival, NoPlace> {
        let mut state = self.lock();
        let not_owner = || NoPlace::NotOwner { id: id.clone(), user: user.to_owned() };
        if let Some(known) = state.jobs.get(id) {
            return match known.user() == user {
                true => Ok(JobArrival::Taken(known.clone())),
                false => Err(not_owner()),
            };
        }
        let given = state.ids.get(id).ok_or_else(|| NoPlace::UnknownId(id.clone()))?;
        if given.user != user {
            return Err(not_owner());
        }
        if state.running >= self.most.jobs {
            return Err(NoPlace::Full(state.running));
        }
        let active = state.jobs.values().filter(|known| known.user() == user && known.is_active());
        let running = active.count();
        if running >= self.most.jobs_per_user {
            return Err(NoPlace::FullForUser { user: user.to_owned(), running });
        }
        state.running += 1;
        state.jobs.insert(id.clone(), Known::Arriving(user.into()));
        Ok(JobArrival::Free)
    }

    /// Whether a user may leave files for a job: the id was given to the user, and there is no job yet.
    pub(super) fn may_prepare(&self, id: &JobId, user: &str) -> bool {
        let state = self.lock();
        !state.jobs.contains_key(id) && state.ids.get(id).is_some_and(|given| given.user == user)
    }

    /// Jobs that run or are being submitted.
    pub(super) fn running(&self) -> usize {
        self.lock().running
    }

    /// The submission came to nothing; it may be tried again.
    pub(super) fn give_up(&self, id: &JobId) {
        let mut state = self.lock();
        let has_begun = match state.jobs.get(id) {
            Some(Known::Arriving(_)) => false,
            // Its handling panicked before it was here.
            Some(Known::Job(job)) => !job.is_gone(),
            _ => true,
        };
        if !has_begun {
            state.jobs.remove(id);
            state.running -= 1;
        }
    }

    /// The job runs.
    pub(super) fn begin(&self, job: Job) {
        let id = job.description().id.clone();
        self.begin_known(id, Known::Job(job));
    }

    /// The job runs, by a remote job tracker.
    pub(super) fn begin_remote(&self, job: RemoteJob) {
        let id = job.description().id.clone();
        self.begin_known(id, Known::Remote(job));
    }

    fn begin_known(&self, id: JobId, known: Known) {
        let mut state = self.lock();
        state.ids.remove(&id);
        if state.jobs.insert(id, known).is_none() {
            state.running += 1;
        }
    }

    /// The job that a remote job tracker ran has ended. It is asked until the job is retired.
    pub(super) fn remote_ended(&self, id: &JobId) {
        let mut state = self.lock();
        if matches!(state.jobs.get(id), Some(Known::Remote(_))) {
            state.running -= 1;
        }
    }

    /// The job has ended. Gives the jobs whose details are to be let go.
    pub(super) fn ended(&self, id: &JobId) -> Vec<Job> {
        let mut state = self.lock();
        let Some(Known::Job(job)) = state.jobs.get(id) else { return Vec::new() };
        let tasks = tasks(&job.progress());
        state.running -= 1;
        state.finished_tasks += tasks;
        state.finished.push_back(id.clone());
        let mut old = Vec::new();
        while state.finished_tasks > self.most.finished_tasks
            || state.finished.len() > self.most.finished_jobs
        {
            let Some(oldest) = state.finished.pop_front() else { break };
            if let Some(Known::Job(job)) = state.jobs.get(&oldest) {
                let job = job.clone();
                state.finished_tasks -= self::tasks(&job.progress());
                old.push(job);
            }
        }
        old
    }

    /// The job has failed, and only this remains of it.
    pub(super) fn lost(&self, retired: Retired) {
        {
            let mut state = self.lock();
            let known = state.jobs.get(&retired.description.id);
            if known.is_some_and(|known| !matches!(known, Known::Retired(_))) {
                state.running -= 1;
            }
        }
        self.retire(retired);
    }

    /// Only this is kept of a job.
    pub(super) fn retire(&self, retired: Retired) {
        let mut state = self.lock();
        let id = retired.description.id.clone();
        state.jobs.insert(id.clone(), Known::Retired(Arc::new(retired)));
        state.retired.push_back(id);
        while state.retired.len() + state.finished.len() > self.most.finished_jobs {
            let Some(oldest) = state.retired.pop_front() else { break };
            state.jobs.remove(&oldest);
        }
    }

    /// A job of an earlier run could not be resumed. A later run may.
    pub(super) fn not_resumed(&self, id: JobId) {
        self.lock().not_resumed.insert(id);
    }

    /// Whether a job of an earlier run could not be resumed.
    pub(super) fn was_not_resumed(&self, id: &JobId) -> bool {
        self.lock().not_resumed.contains(id)
    }

    /// What is known of a job.
    pub(super) fn get(&self, id: &JobId) -> Option<Known> {
        self.lock().jobs.get(id).cloned()
    }

    /// All jobs, in the order of their ids.
    pub(super) fn all(&self) -> Vec<Known> {
        self.lock().jobs.values().cloned().collect()
    }

    /// No panic happens while it is held.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tasks of a job, one at least: each job takes room.
fn tasks(progress: &JobProgress) -> usize {
    (progress.total.map + progress.total.reduce).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(jobs: usize, per_user: usize) -> Store {
        let most = Most { jobs, jobs_per_user: per_user, finished_jobs: 2, finished_tasks: 10 };
        Store::new(most)
    }

    fn id(number: u32) -> JobId {
        JobId::new(&format!("202611210043.{number}"), 1).unwrap()
    }

    #[test]
    fn only_who_was_given_an_id_may_submit_it() {
        let store = store(10, 10);
        store.give(id(1), "alice".into());
        assert_eq!(store.arrive(&id(2), "alice").unwrap_err(), NoPlace::UnknownId(id(2)));
        let error = store.arrive(&id(1), "bob").unwrap_err();
        assert_eq!(error.to_string(), format!("User bob is not the owner of the job {}", id(1)));
        assert!(matches!(store.arrive(&id(1), "alice"), Ok(JobArrival::Free)));
        assert!(matches!(store.arrive(&id(1), "alice"), Ok(JobArrival::Taken(Known::Arriving(_)))));
        assert!(store.arrive(&id(1), "bob").is_err());
        store.give_up(&id(1));
        assert!(matches!(store.arrive(&id(1), "alice"), Ok(JobArrival::Free)));
    }

    #[test]
    fn jobs_have_limits_in_all_and_for_each_user() {
        let store = store(3, 2);
        for number in 1..=5 {
            store.give(id(number), if number <= 3 { "alice" } else { "bob" }.into());
        }
        for number in [1, 2] {
            assert!(matches!(store.arrive(&id(number), "alice"), Ok(JobArrival::Free)));
        }
        let full = NoPlace::FullForUser { user: "alice".into(), running: 2 };
        assert_eq!(store.arrive(&id(3), "alice").unwrap_err(), full);
        assert!(matches!(store.arrive(&id(4), "bob"), Ok(JobArrival::Free)), "others have room");
        assert_eq!(store.arrive(&id(5), "bob").unwrap_err(), NoPlace::Full(3));
        store.give_up(&id(1));
        assert!(matches!(store.arrive(&id(5), "bob"), Ok(JobArrival::Free)));
    }

    #[test]
    fn ids_that_nobody_uses_do_not_pile_up() {
        let store = store(1, 1);
        for number in 0..u32::try_from(MAX_IDS).unwrap() + 10 {
            store.give(id(number), "alice".into());
        }
        assert_eq!(store.lock().ids.len(), MAX_IDS);
        assert!(store.arrive(&id(0), "alice").is_err(), "the oldest are forgotten");
        assert!(store.arrive(&id(100), "alice").is_ok());
    }
}
