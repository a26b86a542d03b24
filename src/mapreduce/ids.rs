//! Names of jobs and attempts. They come from peers and become names of directories, so only names
//! of the original's form are names.
//!
//! Spec: mapreduce/02 §2.2.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Index, IndexMut};
use std::str::FromStr;
use std::sync::Arc;

use corona_model::text::natural_order;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest name in bytes, so that names with an ending still fit a directory entry.
const MAX_BYTES: usize = 200;

/// A job: `job_<job tracker>_<number>`. Jobs are in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobId(Arc<str>);

impl Ord for JobId {
    fn cmp(&self, other: &JobId) -> Ordering {
        natural_order(&self.0, &other.0)
    }
}

impl PartialOrd for JobId {
    fn partial_cmp(&self, other: &JobId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// An attempt at a task: `attempt_<job tracker>_<job>_<m or r>_<task>_<attempt>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId {
    name: Arc<str>,
    job: JobId,
    is_map: bool,
    partition: u32,
    number: u32,
}

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not {expected}")]
pub struct NotAnId {
    /// The text, cut if it is long.
    pub text: String,
    /// The expected form.
    pub expected: &'static str,
}

/// Whether a task maps or reduces. Set-up and clean-up tasks are of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TaskKind {
    /// `m` in ids.
    Map,
    /// `r` in ids.
    Reduce,
}

impl TaskKind {
    /// Both kinds, maps first.
    pub const ALL: [TaskKind; 2] = [Self::Map, Self::Reduce];

    fn letter(self) -> char {
        match self {
            Self::Map => 'm',
            Self::Reduce => 'r',
        }
    }
}

/// A value for maps and one for reduces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerKind<T> {
    /// For maps.
    pub map: T,
    /// For reduces.
    pub reduce: T,
}

impl<T> PerKind<T> {
    /// The value that `make` gives for each kind.
    pub fn of(mut make: impl FnMut(TaskKind) -> T) -> Self {
        PerKind { map: make(TaskKind::Map), reduce: make(TaskKind::Reduce) }
    }
}

impl<T> Index<TaskKind> for PerKind<T> {
    type Output = T;

    fn index(&self, kind: TaskKind) -> &T {
        match kind {
            TaskKind::Map => &self.map,
            TaskKind::Reduce => &self.reduce,
        }
    }
}

impl<T> IndexMut<TaskKind> for PerKind<T> {
    fn index_mut(&mut self, kind: TaskKind) -> &mut T {
        match kind {
            TaskKind::Map => &mut self.map,
            TaskKind::Reduce => &mut self.reduce,
        }
    }
}

/// A task within its job. [`JobId::task`] returns its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskKey {
    /// Among which tasks its number counts.
    pub kind: TaskKind,
    /// Its number, from 0.
    pub number: u32,
}

impl TaskKey {
    /// The attempt at this task with this number.
    pub fn attempt(self, number: u32) -> AttemptKey {
        AttemptKey { task: self, number }
    }
}

/// An attempt within its job. [`JobId::attempt`] returns its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AttemptKey {
    /// Its task.
    pub task: TaskKey,
    /// Its number among the attempts at the task, from 0.
    pub number: u32,
}

impl JobId {
    /// The job with this number of the job tracker `tracker`: the id of its session.
    ///
    /// # Errors
    /// `tracker` has characters that a name cannot have, or is too long.
    pub fn new(tracker: &str, number: u32) -> Result<JobId, NotAnId> {
        format!("job_{tracker}_{number:04}").parse()
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of a task of this job, such as `task_202611210043.1_0001_m_000002`.
    pub fn task(&self, task: TaskKey) -> String {
        format!("task_{}_{}_{:06}", self.inner(), task.kind.letter(), task.number)
    }

    /// The name of an attempt of this job, such as `attempt_202611210043.1_0001_m_000002_0`.
    pub fn attempt(&self, attempt: AttemptKey) -> String {
        let AttemptKey { task, number } = attempt;
        format!("attempt_{}_{}_{:06}_{number}", self.inner(), task.kind.letter(), task.number)
    }

    /// The id of its session: `202611210043.1` of `job_202611210043.1_0001`.
    pub fn session(&self) -> Option<&str> {
        Some(self.inner().rsplit_once('_')?.0)
    }

    /// The name without its first word.
    fn inner(&self) -> &str {
        self.0.strip_prefix("job_").unwrap_or(&self.0)
    }
}

impl AttemptId {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The job that it belongs to.
    pub fn job(&self) -> &JobId {
        &self.job
    }

    /// Whether its task has a number among the maps, as set-up and clean-up tasks may have too.
    pub fn is_map(&self) -> bool {
        self.is_map
    }

    /// The number of its task among the maps or the reduces.
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// The attempt within its job.
    pub fn key(&self) -> AttemptKey {
        let kind = if self.is_map { TaskKind::Map } else { TaskKind::Reduce };
        TaskKey { kind, number: self.partition }.attempt(self.number)
    }

    /// The name of its task: `task_` and all but the last number.
    pub fn task(&self) -> String {
        let inner = self.name.strip_prefix("attempt_").unwrap_or(&self.name);
        format!("task_{}", inner.rsplit_once('_').map_or(inner, |(task, _)| task))
    }
}

impl FromStr for JobId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let refuse = || not_an_id(text, "a job, such as job_202611210043.1_0001");
        let fields: Vec<&str> = text.split('_').take(4).collect();
        match fields.as_slice() {
            ["job", tracker, number]
                if text.len() <= MAX_BYTES && is_tracker(tracker) && is_number(number) =>
            {
                Ok(JobId(text.into()))
            }
            _ => Err(refuse()),
        }
    }
}

impl FromStr for AttemptId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let refuse =
            || not_an_id(text, "an attempt, such as attempt_202611210043.1_0001_m_000000_0");
        let fields: Vec<&str> = text.split('_').take(7).collect();
        let ["attempt", tracker, job, kind @ ("m" | "r"), task, attempt] = fields.as_slice() else {
            return Err(refuse());
        };
        let legal = text.len() <= MAX_BYTES
            && is_tracker(tracker)
            && [job, task, attempt].into_iter().all(|number| is_number(number));
        match (task.parse(), attempt.parse()) {
            (Ok(partition), Ok(number)) if legal => Ok(AttemptId {
                name: text.into(),
                job: JobId(format!("job_{tracker}_{job}").into()),
                is_map: *kind == "m",
                partition,
                number,
            }),
            _ => Err(refuse()),
        }
    }
}

/// A job is written by its name.
impl Serialize for JobId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'a> Deserialize<'a> for JobId {
    fn deserialize<D: serde::Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The name that a job tracker gave itself: a start time and a number, or any word.
fn is_tracker(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('.')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
}

/// A number that fits the original's.
fn is_number(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<i32>().is_ok()
}

fn not_an_id(text: &str, expected: &'static str) -> NotAnId {
    NotAnId { text: text.chars().take(MAX_BYTES).collect(), expected }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_the_original() {
        let attempt: AttemptId = "attempt_202611210043.1_0001_m_000002_3".parse().unwrap();
        assert_eq!(attempt.job().as_str(), "job_202611210043.1_0001");
        assert_eq!(attempt.task(), "task_202611210043.1_0001_m_000002");
        assert_eq!((attempt.is_map(), attempt.partition()), (true, 2));
        assert_eq!(attempt.to_string().parse(), Ok(attempt));
        let reduce: AttemptId = "attempt_202611210043.1_12345_r_1000000_0".parse().unwrap();
        assert_eq!((reduce.is_map(), reduce.partition()), (false, 1_000_000));
        assert!("job_202611210043.1_0001".parse::<JobId>().is_ok());
        assert!("job_local_0001".parse::<JobId>().is_ok());
    }

    #[test]
    fn jobs_are_in_the_order_of_their_numbers() {
        let ids =
            ["job_202611210043.9_0001", "job_202611210043.10_0001", "job_202611210043.10_0002"];
        let ids = ids.map(|id| id.parse::<JobId>().unwrap());
        assert!(ids.is_sorted());
        assert_ne!(ids[0].cmp(&ids[1]), Ordering::Equal);
    }

    #[test]
    fn the_session_of_a_job_is_in_its_id() {
        for (job, session) in [
            ("job_202611210043.7_0001", "202611210043.7"),
            ("job_202611210043_0001", "202611210043"),
        ] {
            assert_eq!(job.parse::<JobId>().unwrap().session(), Some(session));
        }
    }

    #[test]
    fn keys_within_a_job_have_the_names_of_the_original() {
        let job = JobId::new("202611210043.1", 1).unwrap();
        assert_eq!(job.as_str(), "job_202611210043.1_0001");
        for (kind, number, attempt, name) in [
            (TaskKind::Map, 3, 0, "attempt_202611210043.1_0001_m_000003_0"),
            (TaskKind::Reduce, 2, 1, "attempt_202611210043.1_0001_r_000002_1"),
            (TaskKind::Map, 1_000_000, 12, "attempt_202611210043.1_0001_m_1000000_12"),
        ] {
            let key = TaskKey { kind, number }.attempt(attempt);
            assert_eq!(job.attempt(key), name);
            let id: AttemptId = name.parse().unwrap();
            assert_eq!((id.key(), id.job(), id.task()), (key, &job, job.task(key.task)));
        }
        assert!(JobId::new("a_b", 1).is_err() && JobId::new("../x", 1).is_err());
    }

    #[test]
    fn other_texts_are_refused() {
        let long = format!("job_{}_0001", "1".repeat(300));
        for text in [
            "",
            "job",
            "job_1",
            "job_1_2_3",
            "job__1",
            "job_1_",
            "job_../x_1",
            "job_.._1",
            "job_1/_1",
            "job_1_x",
            "job_1_-1",
            "job_1_99999999999",
            "task_1_1",
            "job_1\0_1",
            &long,
        ] {
            assert!(text.parse::<JobId>().is_err(), "{text:?}");
        }
        for text in [
            "",
            "attempt_1_1_m_1",
            "attempt_1_1_x_1_1",
            "attempt_1_1_m_1_1_1",
            "attempt_1_1_m_1_1/..",
            "attempt_/_1_m_1_1",
            "attempt_1_1_m_+1_1",
            "job_1_1_m_1_1",
        ] {
            assert!(text.parse::<AttemptId>().is_err(), "{text:?}");
        }
        let told = "a b".parse::<JobId>().unwrap_err().to_string();
        assert_eq!(told, "\"a b\" is not a job, such as job_202611210043.1_0001");
    }

    proptest! {
        #[test]
        fn a_name_is_one_harmless_entry_of_a_directory(text in "(attempt|job)_[0-9./_a-z\\\\-]{1,30}") {
            let accepted = text.parse::<AttemptId>().is_ok() || text.parse::<JobId>().is_ok();
            prop_assert!(!accepted || !(text.contains('/') || text.contains('\\') || text == ".."));
        }
    }
}
