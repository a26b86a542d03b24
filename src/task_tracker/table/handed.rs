//! The table, for the program that takes the place of this one.

use serde::{Deserialize, Serialize};

use super::{AttemptRun, AttemptTable, Entry, Job, JvmUse, Keep, Lengths, Started, TableLimits};
use crate::attempt::{Attempt, HandedAttempt, Now};
use crate::child::TaskUsage;
use crate::handover::encoded::{Encoded, NotEncoded, named};
use corona_hadoop::writables::{JobId, JvmId};

/// All jobs and attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedTable {
    jobs: Vec<HandedJob>,
    blacklisted: Vec<String>,
    runs: u64,
    failures: u32,
    used: TaskUsage,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HandedJob {
    id: String,
    session: Encoded,
    attempts: Vec<HandedEntry>,
    processes: Vec<HandedUse>,
    keeps_failed: bool,
    maps: Lengths,
    reduces: Lengths,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HandedEntry {
    attempt: HandedAttempt,
    run: u64,
    started: Option<HandedStart>,
    is_given: bool,
    keep: Keep,
    usage: TaskUsage,
    to_report: bool,
    may_commit: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HandedStart {
    jvm: Encoded,
    job_file: String,
    keep: Keep,
    has_more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HandedUse {
    jvm: Encoded,
    host: HandedRun,
    current: Option<HandedRun>,
}

/// A run of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedRun {
    attempt: String,
    number: u64,
}

impl HandedRun {
    /// The same, as text.
    pub fn of(run: &AttemptRun) -> HandedRun {
        HandedRun { attempt: run.attempt.to_string(), number: run.number }
    }

    /// The run.
    ///
    /// # Errors
    /// Its name is none.
    pub fn read(&self) -> Result<AttemptRun, NotEncoded> {
        Ok(AttemptRun { attempt: named(&self.attempt)?, number: self.number })
    }
}

impl AttemptTable {
    /// Hands all jobs and attempts over.
    pub fn hand_over(&self, now: Now) -> HandedTable {
        HandedTable {
            jobs: self.jobs.iter().map(|(id, job)| job.hand_over(id, now)).collect(),
            blacklisted: self.blacklisted.iter().cloned().collect(),
            runs: self.runs,
            failures: self.failures,
            used: self.used,
        }
    }

    /// How long the text of all of it is when it is handed over, at most.
    pub fn handed_bytes(&self) -> usize {
        /// Names, numbers and the session of a job, and of an attempt with its processes and files.
        const OF_EACH: usize = 4096;
        let of_job = |job: &Job| {
            let attempts = job.attempts.values();
            OF_EACH + attempts.map(|entry| OF_EACH + entry.attempt.handed_bytes()).sum::<usize>()
        };
        self.jobs.values().map(of_job).sum()
    }

    /// Takes them over, within these limits for what comes later. A job or attempt that cannot be read is lost alone.
    pub fn take_over(handed: &HandedTable, limits: TableLimits, now: Now) -> AttemptTable {
        let mut table = AttemptTable {
            limits,
            blacklisted: handed.blacklisted.iter().cloned().collect(),
            runs: handed.runs,
            failures: handed.failures,
            used: handed.used,
            ..AttemptTable::default()
        };
        let jobs = handed.jobs.iter();
        for (id, job) in readable("a job", jobs, |handed| Job::take_over(handed, now)) {
            for entry in job.attempts.values() {
                table.attempts += 1;
                table.task_bytes = table.task_bytes.saturating_add(entry.attempt.task().bytes());
            }
            table.jobs.insert(id, job);
        }
        table
    }

    /// Whether a run is known.
    pub fn knows(&self, run: &AttemptRun) -> bool {
        self.run(run).is_some()
    }
}

/// Those that can be read. Each of the others is lost alone, and logged.
pub fn readable<H, T>(
    what: &'static str,
    handed: impl Iterator<Item = H>,
    read: impl Fn(H) -> Result<T, NotEncoded>,
) -> Vec<T> {
    let read = |handed| {
        let read = read(handed);
        read.inspect_err(|error| {
            tracing::error!(%error, "lost {what} in a restart: what the former program has handed over cannot be read");
        })
        .ok()
    };
    handed.filter_map(read).collect()
}

impl Job {
    fn hand_over(&self, id: &JobId, now: Now) -> HandedJob {
        let processes = self.processes.iter().map(|(jvm, used)| HandedUse {
            jvm: Encoded::of(jvm),
            host: HandedRun::of(&used.host),
            current: used.current.as_ref().map(HandedRun::of),
        });
        HandedJob {
            id: id.to_string(),
            session: Encoded::of(&self.session),
            attempts: self.attempts.values().map(|entry| entry.hand_over(now)).collect(),
            processes: processes.collect(),
            keeps_failed: self.keeps_failed,
            maps: self.maps,
            reduces: self.reduces,
        }
    }

    fn take_over(handed: &HandedJob, now: Now) -> Result<(JobId, Job), NotEncoded> {
        let read_entry = |handed: &HandedEntry| {
            let entry = Entry::take_over(handed, now)?;
            Ok((entry.attempt.task().attempt.clone(), entry))
        };
        let read_use = |used: &HandedUse| {
            let current = used.current.as_ref().map(HandedRun::read).transpose()?;
            Ok((used.jvm.read::<JvmId>()?, JvmUse { host: used.host.read()?, current }))
        };
        let job = Job {
            session: handed.session.read()?,
            attempts: readable("an attempt", handed.attempts.iter(), read_entry)
                .into_iter()
                .collect(),
            processes: readable("a process", handed.processes.iter(), read_use)
                .into_iter()
                .collect(),
            keeps_failed: handed.keeps_failed,
            maps: handed.maps,
            reduces: handed.reduces,
        };
        Ok((named::<JobId>(&handed.id)?, job))
    }
}

impl Entry {
    fn hand_over(&self, now: Now) -> HandedEntry {
        let started = self.started.as_ref().map(|started| HandedStart {
            jvm: Encoded::of(&started.jvm),
            job_file: started.job_file.clone(),
            keep: started.keep,
            has_more: started.has_more,
        });
        HandedEntry {
            attempt: self.attempt.hand_over(now),
            run: self.run,
            started,
            is_given: self.is_given,
            keep: self.keep,
            usage: self.usage,
            to_report: self.to_report,
            may_commit: self.may_commit,
        }
    }

    fn take_over(handed: &HandedEntry, now: Now) -> Result<Entry, NotEncoded> {
        let started = handed.started.as_ref().map(|started| {
            Ok(Started {
                jvm: started.jvm.read()?,
                job_file: started.job_file.clone(),
                keep: started.keep,
                has_more: started.has_more,
            })
        });
        Ok(Entry {
            attempt: Attempt::take_over(&handed.attempt, now)?,
            run: handed.run,
            started: started.transpose()?,
            is_given: handed.is_given,
            keep: handed.keep,
            usage: handed.usage,
            to_report: handed.to_report,
            may_commit: handed.may_commit,
        })
    }
}
