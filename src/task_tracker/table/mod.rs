//! The jobs and attempts of a tracker: the changes of each action and call, and the orders that
//! follow.
//!
//! It has no effects and knows no process, no file and no connection: it returns [`Order`]s to
//! their owners, which report the results. Everything in it is bounded, because the input of job
//! trackers and tasks is not trusted. Spec: mapreduce/03 §3.1, §3.3, mapreduce/04 §4.3 to §4.10.

mod choice;
mod handed;
mod processes;
mod reports;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::attempt::{Attempt, Cause, Now};
use super::child::TaskUsage;
use corona_hadoop::writables::{
    Action, JobId, JvmId, SessionInfo, Task, TaskAttemptId, TaskState, TaskTrackerAction,
};

pub use handed::{HandedRun, HandedTable, readable};
pub use processes::{Keep, Started};

/// The longest handle of a session, in bytes.
const MAX_HANDLE_BYTES: usize = 1024;

/// How much a tracker knows at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    /// Jobs at a time.
    pub jobs: usize,
    /// Attempts of all jobs, those included that have ended and whose output is served.
    pub attempts: usize,
    /// Memory of all tasks as they were sent, in bytes.
    pub task_bytes: usize,
    /// Blacklisted sessions. The oldest is forgotten for the sake of a new one.
    pub blacklisted: usize,
    /// The processor time up to which a task is short, in milliseconds. 0: no task is.
    pub short_cpu_ms: u64,
}

impl Default for TableLimits {
    fn default() -> Self {
        TableLimits {
            jobs: 10_000,
            attempts: 200_000,
            task_bytes: 1 << 30,
            blacklisted: 1000,
            short_cpu_ms: 0,
        }
    }
}

/// One run of an attempt here. An attempt that failed returns under the same name to be cleaned up
/// after; that is another run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttemptRun {
    /// The attempt that runs.
    pub attempt: TaskAttemptId,
    /// Which run this is of all that the tracker has seen.
    pub number: u64,
}

/// Something that is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Fetch its files and start its process, as soon as there are slots, and not before an earlier
    /// run of the same attempt has ended. [`AttemptTable::start`] returns whether it is still wanted.
    Start(AttemptRun),
    /// End its process; one that is not there yet is not started.
    End(AttemptRun),
    /// Its work is done: its slots are free, and its process is to be ended if it does not end by
    /// itself.
    Release(AttemptRun),
    /// Delete the directory of an attempt.
    DeleteAttempt(TaskAttemptId),
    /// Delete the working directory of an attempt, and keep its output.
    DeleteWork(TaskAttemptId),
    /// Delete all files of a job, once the processes of its attempts have ended.
    DeleteJob(JobId),
    /// Begin to send heartbeats to the job tracker of a job.
    StartReporter(JobId, SessionInfo),
    /// Send it no more heartbeats.
    StopReporter(JobId),
    /// There is news for a job tracker that would have it before the next heartbeat is due.
    ReportSoon(JobId),
}

/// Why an action changes nothing. The sender is not notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Ignored {
    /// It comes without the handle of a session, or with one of absurd length.
    #[error("it names no session")]
    NoSession,
    /// Its session is blacklisted.
    #[error("its session is blacklisted")]
    Blacklisted,
    /// It concerns a job or an attempt that is not here.
    #[error("its subject is not known here")]
    Unknown,
    /// The attempt that it launches runs.
    #[error("the attempt has been launched before")]
    Launched,
    /// One of the [`TableLimits`] is reached.
    #[error("there are too many jobs or attempts, or they are too large")]
    Full,
    /// Job trackers do not restart Corona's trackers.
    #[error("job trackers cannot restart a tracker")]
    Reinit,
}

/// The jobs and attempts of a tracker.
#[derive(Debug, Default)]
pub struct AttemptTable {
    limits: TableLimits,
    jobs: BTreeMap<JobId, Job>,
    attempts: usize,
    task_bytes: usize,
    blacklisted: VecDeque<String>,
    runs: u64,
    failures: u32,
    /// What all attempts have used, those included that are forgotten. Memory is not counted.
    used: TaskUsage,
}

#[derive(Debug)]
struct Job {
    session: SessionInfo,
    attempts: BTreeMap<TaskAttemptId, Entry>,
    /// Processes that have not ended, or are not known to.
    processes: HashMap<JvmId, JvmUse>,
    /// Whether the files of its attempts that have failed are to stay, and its own.
    keeps_failed: bool,
    /// How long its maps and its reduces are.
    maps: Lengths,
    reduces: Lengths,
}

/// How long the tasks of a job that have ended here were, of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Lengths {
    short: u32,
    has_long: bool,
}

impl Lengths {
    /// Tasks after which further ones are expected to be as short.
    const ENOUGH: u32 = 3;

    fn are_short(self) -> bool {
        self.short >= Lengths::ENOUGH && !self.has_long
    }
}

/// The use of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct JvmUse {
    /// The run that it was started for.
    host: AttemptRun,
    /// The run whose task it has; `None` between two tasks.
    current: Option<AttemptRun>,
}

#[derive(Debug)]
struct Entry {
    attempt: Attempt,
    run: u64,
    /// The process that was started for it, if there was one.
    started: Option<Started>,
    /// Whether its process has asked for the task and got it.
    is_given: bool,
    /// Which of its files stay.
    keep: Keep,
    /// What it has used, as far as that is known.
    usage: TaskUsage,
    /// Whether it must still be reported to its job tracker.
    to_report: bool,
    may_commit: bool,
}

impl JvmUse {
    /// The runs that end with it.
    fn runs(self) -> impl Iterator<Item = AttemptRun> {
        std::iter::once(self.host).chain(self.current)
    }
}

impl Entry {
    fn run(&self) -> AttemptRun {
        AttemptRun { attempt: self.attempt.task().attempt.clone(), number: self.run }
    }

    /// The work after a premature end.
    fn end_orders(&self) -> Vec<Order> {
        let job = self.attempt.task().attempt.job().clone();
        vec![Order::End(self.run()), Order::ReportSoon(job)]
    }
}

impl AttemptTable {
    /// An empty table.
    pub fn new(limits: TableLimits) -> AttemptTable {
        AttemptTable { limits, ..AttemptTable::default() }
    }

    /// Attempts that failed since the tracker began.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Its jobs, with the session that each was first launched for, and where its job tracker
    /// listened when it last launched something.
    pub fn jobs(&self) -> impl Iterator<Item = (&JobId, &SessionInfo)> {
        self.jobs.iter().map(|(job, known)| (job, &known.session))
    }

    /// The attempts of a job, in order.
    pub fn attempts(&self, job: &JobId) -> impl Iterator<Item = &Attempt> {
        let known = self.jobs.get(job).into_iter();
        known.flat_map(|known| known.attempts.values().map(|entry| &entry.attempt))
    }

    /// The session of a job, as in [`jobs`](Table::jobs).
    pub fn session(&self, job: &JobId) -> Option<&SessionInfo> {
        self.jobs.get(job).map(|known| &known.session)
    }

    /// The task of a run; nothing if it is forgotten, or another run has its place.
    pub fn task(&self, run: &AttemptRun) -> Option<&Task> {
        self.run(run).map(|entry| entry.attempt.task())
    }

    /// The last runs of the attempts of a job, in order: the number of each, and its state.
    pub fn runs(&self, job: &JobId) -> impl Iterator<Item = (u64, &Attempt)> {
        let known = self.jobs.get(job).into_iter();
        known.flat_map(|known| known.attempts.values().map(|entry| (entry.run, &entry.attempt)))
    }

    /// What an attempt has used, as far as that is known.
    pub fn usage(&self, id: &TaskAttemptId) -> TaskUsage {
        let entry = self.jobs.get(id.job()).and_then(|job| job.attempts.get(id));
        entry.map(|entry| entry.usage).unwrap_or_default()
    }

    /// What all attempts have used since the tracker began. Memory is not counted.
    pub fn usage_of_all(&self) -> TaskUsage {
        self.used
    }

    /// Records what a run has used since its start.
    pub fn used(&mut self, run: &AttemptRun, usage: TaskUsage) {
        let Some(entry) = self.run_mut(run) else { return };
        let before = entry.usage;
        entry.usage = usage.after(&before);
        let added = entry.usage.since(&before);
        let all = self.used.and(&added);
        self.used = TaskUsage { memory_bytes: 0, peak_memory_bytes: 0, ..all };
    }

    /// Counts a map or a reduce whose work is done as short or long, by what it has used.
    pub fn count_length(&mut self, run: &AttemptRun) {
        let Some(entry) = self.run(run) else { return };
        let is_short = entry.usage.cpu_ms <= self.limits.short_cpu_ms;
        let Some(job) = self.jobs.get_mut(run.attempt.job()) else { return };
        let lengths = if run.attempt.task.is_map { &mut job.maps } else { &mut job.reduces };
        lengths.has_long |= !is_short;
        lengths.short = lengths.short.saturating_add(is_short.into());
    }

    /// Whether a map or a reduce is expected to be short: enough of its kind and job were, and none was
    /// long.
    pub fn is_short(&self, attempt: &TaskAttemptId) -> bool {
        let Some(job) = self.jobs.get(attempt.job()) else { return false };
        let lengths = if attempt.task.is_map { job.maps } else { job.reduces };
        self.limits.short_cpu_ms > 0 && lengths.are_short()
    }

    /// For how long the process of a run has reported nothing, if it should have.
    pub fn silence(&self, run: &AttemptRun, now: Now) -> Option<Duration> {
        self.run(run)?.attempt.silence(now)
    }

    /// Whether a run has still to come to an end: its attempt has not ended, or its process is not
    /// known to have.
    pub fn is_open(&self, run: &AttemptRun) -> bool {
        self.run(run).is_some_and(|entry| !entry.attempt.has_ended() || entry.started.is_some())
    }

    /// Takes an action of a job tracker.
    ///
    /// Errors: it changes nothing, for the reason given.
    pub fn submit(&mut self, action: TaskTrackerAction, now: Now) -> Result<Vec<Order>, Ignored> {
        let session = action.session.ok_or(Ignored::NoSession)?;
        let handle = session.handle.as_ref().ok_or(Ignored::NoSession)?;
        if handle.len() > MAX_HANDLE_BYTES {
            return Err(Ignored::NoSession);
        }
        if self.blacklisted.contains(handle) {
            return Err(Ignored::Blacklisted);
        }
        match action.action {
            Action::Launch(task) => self.launch(session, *task, now),
            Action::KillTask(attempt) => self.kill_task(&attempt, now),
            Action::KillJob(job) => self.forget_job(&job),
            Action::Commit(attempt) => {
                self.entry_mut(&attempt).ok_or(Ignored::Unknown)?.may_commit = true;
                Ok(vec![])
            }
            Action::Reinit => Err(Ignored::Reinit),
        }
    }

    fn launch(
        &mut self,
        session: SessionInfo,
        task: Task,
        now: Now,
    ) -> Result<Vec<Order>, Ignored> {
        let id = task.attempt.clone();
        let task_bytes = self.task_bytes.saturating_add(task.bytes());
        let full = self.attempts >= self.limits.attempts;
        if task_bytes > self.limits.task_bytes {
            return Err(Ignored::Full);
        }
        let mut orders = vec![];
        match self.entry_mut(&id) {
            None if full => return Err(Ignored::Full),
            Some(known) if !known.attempt.has_ended() => {
                // The cleanup of an attempt treats it as dead.
                if !task.task_cleanup || known.attempt.task().task_cleanup {
                    return Err(Ignored::Launched);
                }
                orders.push(Order::End(known.run()));
            }
            None | Some(_) => {}
        }
        if !self.jobs.contains_key(id.job()) {
            if self.jobs.len() >= self.limits.jobs {
                return Err(Ignored::Full);
            }
            orders.push(Order::StartReporter(id.job().clone(), session.clone()));
        }
        self.runs += 1;
        let number = self.runs;
        let trackers = session.trackers.clone();
        let job = self.jobs.entry(id.job().clone()).or_insert_with(|| Job {
            session,
            attempts: BTreeMap::new(),
            processes: HashMap::new(),
            keeps_failed: false,
            maps: Lengths::default(),
            reduces: Lengths::default(),
        });
        // Another job tracker may have taken the place of the first one.
        job.session.trackers = trackers;
        let attempt = Attempt::new(task, now);
        let entry = Entry {
            attempt,
            run: number,
            started: None,
            is_given: false,
            keep: Keep::Nothing,
            usage: TaskUsage::default(),
            to_report: true,
            may_commit: false,
        };
        self.attempts += 1;
        self.task_bytes = task_bytes;
        if let Some(before) = job.attempts.insert(id.clone(), entry) {
            self.gone(&before);
        }
        orders.push(Order::Start(AttemptRun { attempt: id, number }));
        Ok(orders)
    }

    /// Ends an attempt; one that succeeded is forgotten with its output.
    fn kill_task(&mut self, id: &TaskAttemptId, now: Now) -> Result<Vec<Order>, Ignored> {
        let entry = self.entry_mut(id).ok_or(Ignored::Unknown)?;
        if entry.attempt.status().state == TaskState::Succeeded {
            self.forget(id);
            return Ok(vec![Order::DeleteAttempt(id.clone())]);
        }
        let killed = entry.attempt.kill(Cause::Request, now);
        Ok(if killed { entry.end_orders() } else { vec![] })
    }

    /// Ends all attempts of a job and forgets it: it is not reported any more.
    fn forget_job(&mut self, id: &JobId) -> Result<Vec<Order>, Ignored> {
        let job = self.jobs.remove(id).ok_or(Ignored::Unknown)?;
        for entry in job.attempts.values() {
            self.gone(entry);
        }
        let waiting = job.attempts.values().filter(|entry| !entry.attempt.has_ended());
        let mut runs: Vec<AttemptRun> = waiting
            .map(Entry::run)
            .chain(job.processes.into_values().flat_map(JvmUse::runs))
            .collect();
        runs.sort_by_key(|run| run.number);
        runs.dedup();
        let mut orders = vec![Order::StopReporter(id.clone())];
        orders.extend(runs.into_iter().map(Order::End));
        if job.keeps_failed {
            // They do not go with the files of their job.
            let is_served = |entry: &&Entry| {
                entry.attempt.status().state == TaskState::Succeeded && entry.keep != Keep::All
            };
            let served = job.attempts.values().filter(is_served);
            orders.extend(served.map(|entry| Order::DeleteAttempt(entry.run().attempt)));
        }
        orders.push(Order::DeleteJob(id.clone()));
        Ok(orders)
    }

    /// Ends and forgets all jobs of a session that is over.
    pub fn purge_session(&mut self, handle: &str) -> Vec<Order> {
        let of_session = |(id, job): (&JobId, &Job)| {
            (job.session.handle.as_deref() == Some(handle)).then(|| id.clone())
        };
        let jobs: Vec<JobId> = self.jobs.iter().filter_map(of_session).collect();
        jobs.iter().filter_map(|job| self.forget_job(job).ok()).flatten().collect()
    }

    /// Refuses further actions of a session. Its jobs continue: see
    /// [`purge_session`](Table::purge_session).
    pub fn blacklist_session(&mut self, handle: &str) {
        // Actions with a longer one are ignored anyway.
        let useless = handle.len() > MAX_HANDLE_BYTES || self.limits.blacklisted == 0;
        if useless || self.blacklisted.iter().any(|known| known == handle) {
            return;
        }
        if self.blacklisted.len() >= self.limits.blacklisted {
            self.blacklisted.pop_front();
        }
        self.blacklisted.push_back(handle.to_owned());
    }

    fn entry_mut(&mut self, id: &TaskAttemptId) -> Option<&mut Entry> {
        self.jobs.get_mut(id.job())?.attempts.get_mut(id)
    }

    fn run(&self, run: &AttemptRun) -> Option<&Entry> {
        let entry = self.jobs.get(run.attempt.job())?.attempts.get(&run.attempt);
        entry.filter(|entry| entry.run == run.number)
    }

    fn run_mut(&mut self, run: &AttemptRun) -> Option<&mut Entry> {
        self.entry_mut(&run.attempt).filter(|entry| entry.run == run.number)
    }

    fn forget(&mut self, id: &TaskAttemptId) {
        let job = self.jobs.get_mut(id.job());
        if let Some(entry) = job.and_then(|job| job.attempts.remove(id)) {
            self.gone(&entry);
        }
    }

    /// An entry takes no more room.
    fn gone(&mut self, entry: &Entry) {
        self.attempts = self.attempts.saturating_sub(1);
        self.task_bytes = self.task_bytes.saturating_sub(entry.attempt.task().bytes());
    }
}
