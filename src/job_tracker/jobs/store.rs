//! The jobs of the service: those that wait, those that run, those that have ended, and ids that were given out.
//!
//! A job that runs has a place. Without a free one a job waits: those of a higher priority begin first, and then
//! those that were submitted first.
//!
//! What is remembered of jobs that have ended is bounded: first the oldest ones lose their details, then
//! they are forgotten. Spec: mapreduce/07 §7.5.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corona_config::JobTrackerServiceSettings;
use corona_hadoop::writables as wire;
use corona_hadoop::writables::JobStatus;
use corona_mapreduce::{Counters, JobId, PerKind};
use corona_model::types::{Millis, SessionPriority};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::job::Job;
use super::remote::RemoteJob;
use crate::rpc::answers;
use crate::submit::submission::Description;
use crate::submit::waiting::Waiting;
use corona_job_engine::JobProgress;

/// The pause between two looks whether a job has been submitted by another call.
pub(crate) const ARRIVING_PAUSE: Duration = Duration::from_millis(100);

/// How long an id that nobody submits is remembered, and how many are.
const ID_AGE: Duration = Duration::from_secs(24 * 3600);
const MAX_IDS: usize = 100_000;

/// The jobs of the service.
#[derive(Debug)]
pub(crate) struct Store {
    state: Mutex<StoreState>,
    most: StoreLimits,
    places: Arc<Places>,
    /// A job may wait, or a place is free.
    changed: Notify,
    /// Held while what is kept of a job that waits is written again or removed.
    pub(crate) waiting_files: tokio::sync::Mutex<()>,
}

/// The places of jobs that run or begin.
#[derive(Debug)]
pub(crate) struct Places {
    jobs: Bound<usize>,
    /// In bytes.
    memory: Bound<u64>,
    /// The jobs that hold one, and the memory that each takes. Changed under the lock of the store.
    holders: Mutex<HashMap<JobId, u64>>,
}

/// How much there is of something, and what the number comes from: a key, or a limit of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Bound<T> {
    pub(crate) most: T,
    pub(crate) from: Arc<str>,
}

/// The memory of a job in this process: of the job, and of each task. Measured: 170 KiB for each of many small jobs,
/// and 0.95 KiB for each map of a large one (docs/reference/performance.md).
const JOB_BYTES: u64 = 256 << 10;
const TASK_BYTES: u64 = 1 << 10;

/// The memory of a job with so many tasks, in bytes.
pub(crate) fn memory_of(total: PerKind<u32>) -> u64 {
    JOB_BYTES + TASK_BYTES * (u64::from(total.map) + u64::from(total.reduce))
}

/// How many jobs run and wait, and how many may.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) used: usize,
    pub(crate) most: usize,
    /// What `most` comes from.
    pub(crate) from: Arc<str>,
    /// The memory of those that run, in bytes, as it is estimated.
    pub(crate) memory_used: u64,
    pub(crate) memory: Bound<u64>,
    pub(crate) waiting: usize,
    pub(crate) most_waiting: usize,
}

/// What is remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreLimits {
    /// Jobs that wait.
    pub(crate) waiting: usize,
    pub(crate) jobs_per_user: usize,
    pub(crate) finished_jobs: usize,
    pub(crate) finished_tasks: usize,
}

#[derive(Debug, Default)]
struct StoreState {
    jobs: BTreeMap<JobId, KnownJob>,
    /// Jobs that have ended, oldest first, those without details before the others.
    retired: VecDeque<JobId>,
    finished: VecDeque<JobId>,
    /// Those that wait and do not begin yet, in the order in which they begin.
    waiting: BTreeSet<Turn>,
    /// Those that are killed before they begin.
    to_end: Vec<Arc<Waiting>>,
    /// Those that are being submitted and will wait.
    arriving: usize,
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

/// When a job that waits begins, compared with others.
type Turn = (Reverse<SessionPriority>, Millis, JobId);

/// What is known of a job.
#[derive(Clone, Debug)]
pub(crate) enum KnownJob {
    /// It is being submitted by this user. Whether it has a place.
    Arriving(Arc<str>, bool),
    /// It waits for a place, or has one and is about to begin.
    Waiting(Arc<Waiting>, Arc<Places>),
    /// It runs, or has ended and its details are kept.
    Job(Job),
    /// A remote job tracker runs it, or has run it a moment ago.
    Remote(RemoteJob),
    /// It has ended.
    Retired(Arc<Retired>),
}

/// What remains of a job.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) description: Arc<Description>,
    pub(crate) progress: Arc<JobProgress>,
    pub(crate) counters: Counters,
    /// Why the service has ended it, or why it has no history; none if there is nothing to say.
    pub(crate) reason: Option<Arc<str>>,
}

/// Why a job may not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoPlace {
    /// Nobody was given the id here.
    #[error("job id {0} was not issued by this job tracker")]
    UnknownId(JobId),
    /// Somebody else was.
    #[error("User {user} is not the owner of the job {id}")]
    NotOwner { id: JobId, user: String },
    /// Too many jobs wait.
    #[error(
        "{running} jobs run and {waiting} wait, and no more may wait \
         (corona.jt.max.waiting.jobs); try again later"
    )]
    Full { running: usize, waiting: usize },
    /// Too many jobs of the user run or wait.
    #[error(
        "user {user} has {running} jobs already (corona.jt.max.jobs.per.user); try again later"
    )]
    FullForUser { user: String, running: usize },
}

/// Whether a job begins now.
#[derive(Debug)]
pub(crate) enum JobArrival {
    /// It may be submitted, and begins at once: it holds a place until [`Store::begin`] or [`Store::give_up`].
    Free,
    /// It may be submitted, and waits: it holds a place among those that do until [`Store::wait`] or
    /// [`Store::give_up`].
    Full,
    /// It was submitted before.
    Taken(KnownJob),
}

impl KnownJob {
    /// What does not change of it; none while it is being submitted.
    pub(crate) fn description(&self) -> Option<&Arc<Description>> {
        match self {
            KnownJob::Arriving(..) => None,
            KnownJob::Waiting(job, _) => Some(&job.description),
            KnownJob::Job(job) => Some(job.description()),
            KnownJob::Remote(job) => Some(job.description()),
            KnownJob::Retired(retired) => Some(&retired.description),
        }
    }

    /// How far it is; none while it is being submitted.
    pub(crate) fn progress(&self) -> Option<Arc<JobProgress>> {
        match self {
            KnownJob::Arriving(..) => None,
            KnownJob::Waiting(job, _) => Some(job.progress.clone()),
            KnownJob::Job(job) => Some(job.progress()),
            KnownJob::Remote(job) => Some(job.progress()),
            KnownJob::Retired(retired) => Some(retired.progress.clone()),
        }
    }

    /// How it stands, for clients; none while it is being submitted.
    pub(crate) fn status(&self) -> Option<JobStatus> {
        answers::status(self.description()?, &*self.progress()?, self.note().as_deref())
    }

    /// What it waits for, why the service has ended it, or that its history is missing, if there is anything to
    /// say.
    pub(crate) fn note(&self) -> Option<Arc<str>> {
        match self {
            KnownJob::Arriving(..) => None,
            KnownJob::Waiting(job, places) => Some(job.reason(|| places.reason().into())),
            KnownJob::Job(job) => job.note().map(Into::into),
            KnownJob::Remote(job) => job.note(),
            KnownJob::Retired(retired) => retired.reason.clone(),
        }
    }

    fn user(&self) -> &str {
        match self {
            KnownJob::Arriving(user, _) => user,
            KnownJob::Waiting(job, _) => &job.description.user,
            KnownJob::Job(job) => &job.description().user,
            KnownJob::Remote(job) => &job.description().user,
            KnownJob::Retired(retired) => &retired.description.user,
        }
    }

    /// Whether it waits and does not begin.
    fn only_waits(&self) -> bool {
        matches!(self, KnownJob::Waiting(job, _) if !job.begins)
    }

    pub(crate) fn is_active(&self) -> bool {
        match self {
            KnownJob::Arriving(..) | KnownJob::Waiting(..) => true,
            KnownJob::Job(job) => job.progress().finished_at.is_none(),
            KnownJob::Remote(job) => job.progress().finished_at.is_none(),
            KnownJob::Retired(_) => false,
        }
    }
}

impl Places {
    pub(crate) fn new(jobs: Bound<usize>, memory: Bound<u64>) -> Places {
        Places { jobs, memory, holders: Mutex::default() }
    }

    /// How many are taken.
    pub(crate) fn used(&self) -> usize {
        self.holders().len()
    }

    /// The memory that they take, in bytes.
    pub(crate) fn memory_used(&self) -> u64 {
        self.holders().values().sum()
    }

    /// Whether another job that takes so much memory may run. One that is larger than all memory runs alone.
    fn has_room(&self, bytes: u64) -> bool {
        let (used, memory) = (self.used(), self.memory_used());
        used < self.jobs.most && (used == 0 || memory.saturating_add(bytes) <= self.memory.most)
    }

    fn take(&self, job: &JobId, bytes: u64) {
        self.holders().insert(job.clone(), bytes);
    }

    fn release(&self, job: &JobId) {
        self.holders().remove(job);
    }

    /// No panic happens while it is held.
    fn holders(&self) -> MutexGuard<'_, HashMap<JobId, u64>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why a job without a place waits.
    pub(crate) fn reason(&self) -> String {
        let (used, Bound { most, from }) = (self.used(), &self.jobs);
        if used >= *most {
            return format!("waits: {used} jobs run, the limit of {most} comes from {from}");
        }
        let (mib, Bound { most, from }) = (self.memory_used() >> 20, &self.memory);
        let most = most >> 20;
        format!(
            "waits: {used} jobs run and take some {mib} MiB of memory, the limit of {most} MiB comes from {from}"
        )
    }
}

impl Store {
    /// An empty one with the limits of the configuration.
    pub(crate) fn of(settings: &JobTrackerServiceSettings) -> Store {
        let most = StoreLimits {
            waiting: settings.max_waiting_jobs,
            jobs_per_user: settings.max_jobs_per_user,
            finished_jobs: settings.finished_jobs,
            finished_tasks: settings.finished_tasks,
        };
        let (jobs, memory) = (&*settings.max_jobs_from, &*settings.max_jobs_memory_from);
        let jobs = Bound { most: settings.max_jobs, from: jobs.into() };
        let memory = Bound { most: settings.max_jobs_memory, from: memory.into() };
        Store::new(most, Places::new(jobs, memory))
    }

    /// That of a job tracker that has one job.
    pub(crate) fn of_one() -> Store {
        let most = StoreLimits {
            waiting: 0,
            jobs_per_user: 1,
            finished_jobs: 1,
            finished_tasks: usize::MAX,
        };
        let from: Arc<str> = "its only job".into();
        let jobs = Bound { most: 1, from: from.clone() };
        Store::new(most, Places::new(jobs, Bound { most: u64::MAX, from }))
    }

    pub(crate) fn new(most: StoreLimits, places: Places) -> Store {
        let (state, places) = (Mutex::default(), Arc::new(places));
        let waiting_files = tokio::sync::Mutex::default();
        Store { state, most, places, changed: Notify::new(), waiting_files }
    }

    /// The places of jobs that run.
    pub(crate) fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// A job does not run any more: it holds no place. Called under the lock.
    fn release(&self, job: &JobId) {
        self.places.release(job);
        self.changed.notify_one();
    }

    /// Remembers an id that was given to a user.
    pub(crate) fn give(&self, id: JobId, user: String) {
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
    pub(crate) fn arrive(&self, id: &JobId, user: &str) -> Result<JobArrival, NoPlace> {
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
        let active = state.jobs.values().filter(|known| known.user() == user && known.is_active());
        let running = active.count();
        if running >= self.most.jobs_per_user {
            return Err(NoPlace::FullForUser { user: user.to_owned(), running });
        }
        // Nobody overtakes those that wait. How large it is shows when its files are read.
        let has_place = state.waiting.is_empty() && self.places.has_room(JOB_BYTES);
        let waiting = state.waiting.len() + state.arriving;
        if has_place {
            self.places.take(id, JOB_BYTES);
        } else if waiting < self.most.waiting {
            state.arriving += 1;
        } else {
            return Err(NoPlace::Full { running: self.places.used(), waiting });
        }
        state.jobs.insert(id.clone(), KnownJob::Arriving(user.into(), has_place));
        Ok(if has_place { JobArrival::Free } else { JobArrival::Full })
    }

    /// Whether a job that arrives has a place and may take so much memory. If not, it waits.
    pub(crate) fn claim(&self, id: &JobId, bytes: u64) -> bool {
        let state = self.lock();
        let has_place = matches!(state.jobs.get(id), Some(KnownJob::Arriving(_, true)));
        self.places.release(id);
        let claimed = has_place && self.places.has_room(bytes);
        if has_place {
            self.places.take(id, if claimed { bytes } else { JOB_BYTES });
        }
        claimed
    }

    /// Whether a user may leave files for a job: the id was given to the user, and there is no job yet.
    pub(crate) fn may_prepare(&self, id: &JobId, user: &str) -> bool {
        let state = self.lock();
        !state.jobs.contains_key(id) && state.ids.get(id).is_some_and(|given| given.user == user)
    }

    /// Whether tasks of a job may write output as this user: it is the job's, and the job is not over.
    pub(crate) fn may_write_output(&self, id: &JobId, user: &str) -> bool {
        let state = self.lock();
        state.jobs.get(id).is_some_and(|known| known.is_active() && known.user() == user)
    }

    /// Whether a job is known and not over.
    pub(crate) fn is_active(&self, id: &JobId) -> bool {
        self.lock().jobs.get(id).is_some_and(KnownJob::is_active)
    }

    /// The user of a job, or to whom its id was given.
    pub(crate) fn owner(&self, id: &JobId) -> Option<String> {
        let state = self.lock();
        let known = state.jobs.get(id).map(|known| known.user().to_owned());
        known.or_else(|| state.ids.get(id).map(|given| given.user.clone()))
    }

    /// Jobs that run, begin, or are being submitted and do not wait.
    pub(crate) fn running(&self) -> usize {
        self.places.used()
    }

    /// How many jobs run and wait, and how many may.
    pub(crate) fn load(&self) -> Load {
        Load {
            used: self.places.used(),
            most: self.places.jobs.most,
            from: self.places.jobs.from.clone(),
            memory_used: self.places.memory_used(),
            memory: self.places.memory.clone(),
            waiting: self.lock().waiting.len(),
            most_waiting: self.most.waiting,
        }
    }

    /// The submission failed; it may be tried again.
    pub(crate) fn give_up(&self, id: &JobId) {
        let mut state = self.lock();
        match state.jobs.get(id) {
            Some(KnownJob::Arriving(_, true)) => {}
            Some(KnownJob::Arriving(_, false)) => state.arriving -= 1,
            // Its handling panicked before it was here.
            Some(KnownJob::Job(job)) if job.is_gone() && !state.finished.contains(id) => {}
            _ => return,
        }
        state.jobs.remove(id);
        self.release(id);
    }

    /// The job waits for a place.
    pub(crate) fn wait(&self, job: Waiting) {
        let mut state = self.lock();
        let id = job.description.id.clone();
        state.ids.remove(&id);
        match state.jobs.get(&id) {
            Some(KnownJob::Arriving(_, false)) => state.arriving -= 1,
            _ => self.places.release(&id),
        }
        state.waiting.insert(turn(&job));
        state.jobs.insert(id, KnownJob::Waiting(Arc::new(job), self.places.clone()));
        self.changed.notify_one();
    }

    /// Gives the next job that waits a place: it is to begin now.
    pub(crate) fn next_to_begin(&self) -> Option<Arc<Waiting>> {
        let mut state = self.lock();
        let now = Instant::now();
        let may_begin = |(.., id): &&Turn| match state.jobs.get(id) {
            Some(KnownJob::Waiting(job, _)) => job.not_before.is_none_or(|at| at <= now),
            _ => true,
        };
        let next = state.waiting.iter().find(may_begin).cloned()?;
        let total = state.jobs.get(&next.2).and_then(KnownJob::progress).map(|it| it.total);
        let bytes = memory_of(total.unwrap_or_default());
        // A small one that comes later does not overtake it.
        if !self.places.has_room(bytes) {
            return None;
        }
        state.waiting.remove(&next);
        let Some(KnownJob::Waiting(job, _)) = state.jobs.get_mut(&next.2) else { return None };
        *job = Arc::new(Waiting { begins: true, ..Waiting::clone(job) });
        self.places.take(&next.2, bytes);
        Some(job.clone())
    }

    /// Returns when a job may wait, or a place may be free.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Lets [`changed`](Store::changed) return.
    pub(crate) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// The job could not begin, for this reason; it waits again, for this time at least.
    pub(crate) fn wait_again(&self, id: &JobId, reason: &str, pause: Duration) {
        let mut state = self.lock();
        let Some(KnownJob::Waiting(job, _)) = state.jobs.get_mut(id) else { return };
        let (begins, reason) = (job.ends, Some(reason.into()));
        let not_before = Instant::now().checked_add(pause);
        *job = Arc::new(Waiting { begins, reason, not_before, ..Waiting::clone(job) });
        let job = job.clone();
        match job.ends {
            true => state.to_end.push(job),
            false => drop(state.waiting.insert(turn(&job))),
        }
        self.release(id);
    }

    /// Gives a job that waits another priority, and returns it; none if it does not wait, or begins.
    pub(crate) fn set_priority(
        &self,
        id: &JobId,
        priority: SessionPriority,
    ) -> Option<Arc<Waiting>> {
        let mut state = self.lock();
        let Some(KnownJob::Waiting(job, _)) = state.jobs.get_mut(id).filter(|it| it.only_waits())
        else {
            return None;
        };
        let before = turn(job);
        *job = Arc::new(job.with_priority(priority));
        let job = job.clone();
        state.waiting.remove(&before);
        state.waiting.insert(turn(&job));
        Some(job)
    }

    /// Returns when a job is killed that waits, and is about to begin.
    pub(crate) async fn killed(&self, id: &JobId) {
        loop {
            match self.get(id) {
                Some(KnownJob::Waiting(job, _)) if job.ends => return,
                Some(KnownJob::Waiting(..)) => sleep(ARRIVING_PAUSE).await,
                _ => std::future::pending().await,
            }
        }
    }

    /// Ends a job if it waits. Returns when it does not wait any more: it has ended, or it has begun.
    pub(crate) async fn kill_waiting(&self, id: &JobId) {
        self.end_waiting(id);
        while matches!(self.get(id), Some(KnownJob::Waiting(..))) {
            sleep(ARRIVING_PAUSE).await;
        }
    }

    /// Marks a job that waits for its end: it does not begin, unless it is about to.
    pub(crate) fn end_waiting(&self, id: &JobId) {
        let mut state = self.lock();
        let Some(KnownJob::Waiting(job, _)) = state.jobs.get_mut(id) else { return };
        let (before, is_free) = (turn(job), !job.begins);
        *job = Arc::new(Waiting { begins: true, ends: true, ..Waiting::clone(job) });
        let job = job.clone();
        if is_free {
            state.waiting.remove(&before);
            state.to_end.push(job);
            self.changed.notify_one();
        }
    }

    /// A job that is to end before it begins. It is [retired](Store::retire) next.
    pub(crate) fn next_to_end(&self) -> Option<Arc<Waiting>> {
        self.lock().to_end.pop()
    }

    /// The job runs.
    pub(crate) fn begin(&self, job: Job) {
        let id = job.description().id.clone();
        self.begin_known(id, KnownJob::Job(job));
    }

    /// The job runs, by a remote job tracker.
    pub(crate) fn begin_remote(&self, job: RemoteJob) {
        let id = job.description().id.clone();
        self.begin_known(id, KnownJob::Remote(job));
    }

    fn begin_known(&self, id: JobId, known: KnownJob) {
        let mut state = self.lock();
        state.ids.remove(&id);
        let total = known.progress().map(|progress| progress.total).unwrap_or_default();
        self.places.take(&id, memory_of(total));
        state.jobs.insert(id, known);
    }

    /// The job that a remote job tracker ran has ended. It is asked until the job is retired.
    pub(crate) fn remote_ended(&self, id: &JobId) {
        let _state = self.lock();
        self.release(id);
    }

    /// The job has ended. Gives the jobs whose details are to be let go.
    pub(crate) fn ended(&self, id: &JobId) -> Vec<Job> {
        let mut state = self.lock();
        self.release(id);
        let Some(KnownJob::Job(job)) = state.jobs.get(id) else { return Vec::new() };
        if state.finished.contains(id) {
            return Vec::new();
        }
        let tasks = tasks(&job.progress());
        state.finished_tasks += tasks;
        state.finished.push_back(id.clone());
        let mut old = Vec::new();
        while state.finished_tasks > self.most.finished_tasks
            || state.finished.len() > self.most.finished_jobs
        {
            let Some(oldest) = state.finished.pop_front() else { break };
            if let Some(KnownJob::Job(job)) = state.jobs.get(&oldest) {
                let job = job.clone();
                state.finished_tasks -= self::tasks(&job.progress());
                old.push(job);
            }
        }
        old
    }

    /// The job has failed, and only this remains of it.
    pub(crate) fn lost(&self, retired: Retired) {
        {
            let _state = self.lock();
            self.release(&retired.description.id);
        }
        self.retire(retired);
    }

    /// Only this is kept of a job.
    pub(crate) fn retire(&self, retired: Retired) {
        let mut state = self.lock();
        let id = retired.description.id.clone();
        state.jobs.insert(id.clone(), KnownJob::Retired(Arc::new(retired)));
        state.retired.push_back(id);
        while state.retired.len() + state.finished.len() > self.most.finished_jobs {
            let Some(oldest) = state.retired.pop_front() else { break };
            state.jobs.remove(&oldest);
        }
    }

    /// A job of an earlier run could not be resumed. A later run may.
    pub(crate) fn not_resumed(&self, id: JobId) {
        self.lock().not_resumed.insert(id);
    }

    /// Whether a job of an earlier run could not be resumed.
    pub(crate) fn was_not_resumed(&self, id: &JobId) -> bool {
        self.lock().not_resumed.contains(id)
    }

    /// What is known of a job.
    pub(crate) fn get(&self, id: &JobId) -> Option<KnownJob> {
        self.lock().jobs.get(id).cloned()
    }

    /// A job whose details are there.
    pub(crate) fn job(&self, id: &wire::JobId) -> Option<Job> {
        match self.get(&answers::known_id(id)?)? {
            KnownJob::Job(job) => Some(job),
            KnownJob::Arriving(..)
            | KnownJob::Waiting(..)
            | KnownJob::Remote(_)
            | KnownJob::Retired(_) => None,
        }
    }

    /// All jobs, in the order of their ids.
    pub(crate) fn all(&self) -> Vec<KnownJob> {
        self.lock().jobs.values().cloned().collect()
    }

    /// No panic happens while it is held.
    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn turn(job: &Waiting) -> Turn {
    (Reverse(job.progress.priority), job.progress.submitted, job.description.id.clone())
}

/// Tasks of a job, one at least: each job takes room.
fn tasks(progress: &JobProgress) -> usize {
    (progress.total.map + progress.total.reduce).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(jobs: usize, waiting: usize, per_user: usize) -> Store {
        store_with_memory(jobs, waiting, per_user, u64::MAX)
    }

    fn store_with_memory(jobs: usize, waiting: usize, per_user: usize, bytes: u64) -> Store {
        let most =
            StoreLimits { waiting, jobs_per_user: per_user, finished_jobs: 2, finished_tasks: 10 };
        let jobs = Bound { most: jobs, from: "corona.jt.max.jobs".into() };
        let memory = Bound { most: bytes, from: "464 MiB of memory".into() };
        Store::new(most, Places::new(jobs, memory))
    }

    fn id(number: u32) -> JobId {
        JobId::new(&format!("202611210043.{number}"), 1).unwrap()
    }

    #[test]
    fn only_who_was_given_an_id_may_submit_it() {
        let store = store(10, 10, 10);
        store.give(id(1), "alice".into());
        assert_eq!(store.arrive(&id(2), "alice").unwrap_err(), NoPlace::UnknownId(id(2)));
        let error = store.arrive(&id(1), "bob").unwrap_err();
        assert_eq!(error.to_string(), format!("User bob is not the owner of the job {}", id(1)));
        assert!(matches!(store.arrive(&id(1), "alice"), Ok(JobArrival::Free)));
        assert!(matches!(
            store.arrive(&id(1), "alice"),
            Ok(JobArrival::Taken(KnownJob::Arriving(..)))
        ));
        assert!(store.arrive(&id(1), "bob").is_err());
        store.give_up(&id(1));
        assert!(matches!(store.arrive(&id(1), "alice"), Ok(JobArrival::Free)));
    }

    fn waiting(number: u32, submitted: i64, priority: SessionPriority) -> Waiting {
        let description = Description { user: "alice".into(), ..Description::of_lost(id(number)) };
        Waiting::new(description, Millis(submitted), priority, PerKind { map: 3, reduce: 0 })
    }

    fn next(store: &Store) -> Option<u32> {
        let job = store.next_to_begin()?;
        job.description.id.as_str().split(['.', '_']).nth(2)?.parse().ok()
    }

    fn reason(store: &Store, number: u32) -> String {
        store.get(&id(number)).unwrap().note().unwrap().to_string()
    }

    #[test]
    fn jobs_without_a_place_wait_in_the_order_of_priority_and_submission() {
        let store = store(2, 10, 100);
        for (number, submitted, priority) in [
            (5, 30, SessionPriority::Normal),
            (4, 20, SessionPriority::Low),
            (3, 10, SessionPriority::Normal),
            (2, 40, SessionPriority::High),
            (1, 50, SessionPriority::Low),
        ] {
            store.wait(waiting(number, submitted, priority));
        }
        assert_eq!((next(&store), next(&store), next(&store)), (Some(2), Some(3), None));
        let status = store.get(&id(5)).unwrap().status().unwrap();
        assert_eq!(answers::state_of(status.run_state), Some(corona_mapreduce::JobState::Prep));
        let text = "waits: 2 jobs run, the limit of 2 comes from corona.jt.max.jobs";
        assert_eq!(status.scheduling_info, text);
        store.set_priority(&id(1), SessionPriority::VeryHigh).unwrap();
        assert!(store.set_priority(&id(2), SessionPriority::Low).is_none(), "it begins");
        // One that could not begin has its turn again, and says why.
        store.wait_again(&id(2), "no session", Duration::ZERO);
        assert_eq!(reason(&store, 2), "waits: no session");
        assert_eq!((next(&store), next(&store)), (Some(1), None));
        store.lost(retired(3));
        assert_eq!(next(&store), Some(2));
        store.lost(retired(1));
        assert_eq!((next(&store), next(&store)), (Some(5), None));
        let Load { used, waiting, .. } = store.load();
        assert_eq!((used, waiting), (2, 1));
    }

    #[test]
    fn jobs_that_take_more_memory_than_others_leave_wait_and_one_larger_than_all_runs_alone() {
        let large = |number, maps| {
            let mut job = waiting(number, number.into(), SessionPriority::Normal);
            Arc::make_mut(&mut job.progress).total.map = maps;
            job
        };
        let store = store_with_memory(10, 10, 100, 10 << 20);
        for (number, maps) in [(1, 4_000), (2, 4_000), (3, 40_000), (4, 1)] {
            store.wait(large(number, maps));
        }
        assert_eq!((next(&store), next(&store), next(&store)), (Some(1), Some(2), None));
        let text = "waits: 2 jobs run and take some 8 MiB of memory, the limit of 10 MiB comes from \
                    464 MiB of memory";
        assert_eq!(reason(&store, 3), text);
        assert_eq!(reason(&store, 4), text, "nobody overtakes a large one");
        let Load { memory_used, memory, .. } = store.load();
        assert_eq!((memory_used >> 20, memory.most >> 20), (8, 10));
        store.lost(retired(1));
        assert_eq!(next(&store), None);
        store.lost(retired(2));
        assert_eq!((next(&store), next(&store)), (Some(3), None), "alone");
        store.lost(retired(3));
        assert_eq!(next(&store), Some(4));
    }

    #[test]
    fn a_job_that_turns_out_to_be_too_large_gives_its_place_back_and_waits() {
        let store = store_with_memory(10, 10, 100, 10 << 20);
        for number in 1..=3 {
            store.give(id(number), "alice".into());
        }
        let arrive = |number| store.arrive(&id(number), "alice").unwrap();
        assert!(matches!(arrive(1), JobArrival::Free));
        assert!(store.claim(&id(1), 8 << 20), "no other runs");
        assert!(matches!(arrive(2), JobArrival::Free));
        assert!(!store.claim(&id(2), 8 << 20));
        store.wait(waiting(2, 1, SessionPriority::Normal));
        assert_eq!(store.load().memory_used, 8 << 20);
        assert_eq!((store.running(), store.load().waiting), (1, 1));
        assert!(matches!(arrive(3), JobArrival::Full));
        assert!(!store.claim(&id(3), 1), "it has no place");
        assert_eq!(store.running(), 1);
    }

    #[test]
    fn a_job_that_cannot_begin_holds_up_no_other() {
        let store = store(1, 10, 100);
        for number in [1, 2] {
            store.wait(waiting(number, number.into(), SessionPriority::Normal));
        }
        assert_eq!((next(&store), next(&store)), (Some(1), None));
        store.wait_again(&id(1), "a fault each time", Duration::from_secs(3600));
        assert_eq!((next(&store), next(&store)), (Some(2), None));
        store.lost(retired(2));
        assert_eq!(next(&store), None, "its pause is not over");
        assert_eq!(store.load().waiting, 1);
    }

    #[test]
    fn a_second_release_of_a_place_takes_none_from_another_job() {
        let store = store(2, 10, 100);
        for number in 1..=4 {
            store.wait(waiting(number, number.into(), SessionPriority::Normal));
        }
        assert_eq!((next(&store), next(&store), next(&store)), (Some(1), Some(2), None));
        for _ in 0..2 {
            store.remote_ended(&id(1));
            store.lost(retired(1));
        }
        assert_eq!(store.running(), 1, "the other job holds its place");
        assert_eq!((next(&store), next(&store)), (Some(3), None));
    }

    fn retired(number: u32) -> Retired {
        let description = Arc::new(Description::of_lost(id(number)));
        let progress = Arc::new(JobProgress::failed(Millis(1)));
        Retired { description, progress, counters: Counters::default(), reason: None }
    }

    #[test]
    fn a_job_that_is_killed_while_it_waits_does_not_begin() {
        let store = store(1, 10, 100);
        for number in [1, 2, 3] {
            store.wait(waiting(number, number.into(), SessionPriority::Normal));
        }
        assert_eq!(next(&store), Some(1));
        for number in [1, 2, 2] {
            store.end_waiting(&id(number));
        }
        assert!(reason(&store, 2).contains("killed"));
        let ends = |store: &Store| store.next_to_end().map(|job| job.description.id.clone());
        assert_eq!((ends(&store), ends(&store)), (Some(id(2)), None));
        // One that was about to begin ends when it could not.
        store.wait_again(&id(1), "no session", Duration::ZERO);
        assert_eq!((ends(&store), ends(&store)), (Some(id(1)), None));
        for number in [1, 2] {
            store.retire(retired(number));
        }
        assert_eq!((next(&store), next(&store)), (Some(3), None));
        assert_eq!(store.running(), 1);
    }

    #[test]
    fn waiting_jobs_are_not_overtaken_and_the_queue_is_bounded() {
        let store = store(1, 2, 100);
        for number in 1..=6 {
            store.give(id(number), "alice".into());
        }
        let arrive = |number| store.arrive(&id(number), "alice");
        assert!(matches!(arrive(1), Ok(JobArrival::Free)));
        assert!(matches!(arrive(2), Ok(JobArrival::Full)));
        store.wait(waiting(2, 1, SessionPriority::Normal));
        assert!(matches!(arrive(3), Ok(JobArrival::Full)));
        let full = NoPlace::Full { running: 1, waiting: 2 };
        assert_eq!(arrive(4).unwrap_err(), full);
        assert_eq!(
            full.to_string(),
            "1 jobs run and 2 wait, and no more may wait (corona.jt.max.waiting.jobs); \
             try again later"
        );
        store.give_up(&id(3));
        store.give_up(&id(1));
        assert!(matches!(arrive(4), Ok(JobArrival::Full)), "another one waits for the place");
        assert_eq!((next(&store), next(&store)), (Some(2), None));
        store.give_up(&id(4));
        store.lost(retired(2));
        assert!(matches!(arrive(5), Ok(JobArrival::Free)));
    }

    #[test]
    fn jobs_have_limits_in_all_and_for_each_user() {
        let store = store(3, 0, 2);
        for number in 1..=5 {
            store.give(id(number), if number <= 3 { "alice" } else { "bob" }.into());
        }
        for number in [1, 2] {
            assert!(matches!(store.arrive(&id(number), "alice"), Ok(JobArrival::Free)));
        }
        let full = NoPlace::FullForUser { user: "alice".into(), running: 2 };
        assert_eq!(store.arrive(&id(3), "alice").unwrap_err(), full);
        assert!(matches!(store.arrive(&id(4), "bob"), Ok(JobArrival::Free)), "others have room");
        assert_eq!(
            store.arrive(&id(5), "bob").unwrap_err(),
            NoPlace::Full { running: 3, waiting: 0 }
        );
        store.give_up(&id(1));
        assert!(matches!(store.arrive(&id(5), "bob"), Ok(JobArrival::Free)));
    }

    #[test]
    fn ids_that_nobody_uses_do_not_pile_up() {
        let store = store(1, 0, 1);
        for number in 0..u32::try_from(MAX_IDS).unwrap() + 10 {
            store.give(id(number), "alice".into());
        }
        assert_eq!(store.lock().ids.len(), MAX_IDS);
        assert!(store.arrive(&id(0), "alice").is_err(), "the oldest are forgotten");
        assert!(store.arrive(&id(100), "alice").is_ok());
    }
}
