//! The text forms of identifiers, such as `attempt_202611210044.1_0001_m_000003_0`.
//! Spec: mapreduce/02 §2.2.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::{JobId, JvmId, TaskAttemptId, TaskId};

/// A text that is no identifier.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a valid {kind} id")]
pub struct NameError {
    kind: &'static str,
    text: String,
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job_{}", Job(self))
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task_{}", Task(self))
    }
}

impl fmt::Display for TaskAttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt_{}_{}", Task(&self.task), self.number)
    }
}

impl fmt::Display for JvmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "jvm_{}_{}_", Job(&self.job), letter(self.is_map))?;
        at_least(f, self.number, 6)
    }
}

/// A job without the word in front.
struct Job<'a>(&'a JobId);

impl fmt::Display for Job<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_", self.0.tracker)?;
        at_least(f, self.0.number, 4)
    }
}

/// A task without the word in front.
struct Task<'a>(&'a TaskId);

impl fmt::Display for Task<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_", Job(&self.0.job), letter(self.0.is_map))?;
        at_least(f, self.0.number, 6)
    }
}

fn letter(is_map: bool) -> char {
    if is_map { 'm' } else { 'r' }
}

/// A number of at least so many digits, its sign not counted.
fn at_least(f: &mut fmt::Formatter<'_>, number: i32, digits: usize) -> fmt::Result {
    let sign = if number < 0 { "-" } else { "" };
    write!(f, "{sign}{:0digits$}", number.unsigned_abs())
}

/// The parts of a name, from the front.
struct Parts<'a>(std::str::Split<'a, char>);

impl<'a> Parts<'a> {
    /// The parts after `word`.
    fn after(text: &'a str, word: &str) -> Option<Parts<'a>> {
        let mut parts = text.split('_');
        (parts.next()? == word).then_some(Parts(parts))
    }

    fn job(&mut self) -> Option<JobId> {
        let tracker = self.0.next()?.to_owned();
        Some(JobId { number: self.number()?, tracker })
    }

    fn task(&mut self) -> Option<TaskId> {
        let (job, is_map) = (self.job()?, self.is_map()?);
        Some(TaskId { number: self.number()?, job, is_map })
    }

    fn is_map(&mut self) -> Option<bool> {
        match self.0.next()? {
            "m" => Some(true),
            "r" => Some(false),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<i32> {
        self.0.next()?.parse().ok()
    }

    /// `value` if nothing is left.
    fn end<T>(mut self, value: T) -> Option<T> {
        self.0.next().is_none().then_some(value)
    }
}

/// Implements `FromStr` with a function that gives nothing for a text that is no such name.
macro_rules! parsed {
    ($($type:ty, $kind:literal, $parse:expr;)*) => {$(
        impl FromStr for $type {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                let parse: fn(&str) -> Option<Self> = $parse;
                parse(text).ok_or_else(|| NameError { kind: $kind, text: text.to_owned() })
            }
        }
    )*};
}

parsed! {
    JobId, "job", |text| {
        let mut parts = Parts::after(text, "job")?;
        let job = parts.job()?;
        parts.end(job)
    };
    TaskId, "task", |text| {
        let mut parts = Parts::after(text, "task")?;
        let task = parts.task()?;
        parts.end(task)
    };
    TaskAttemptId, "attempt", |text| {
        let mut parts = Parts::after(text, "attempt")?;
        let task = parts.task()?;
        let number = parts.number()?;
        parts.end(TaskAttemptId { number, task })
    };
    JvmId, "jvm", |text| {
        let mut parts = Parts::after(text, "jvm")?;
        let TaskId { number, job, is_map } = parts.task()?;
        parts.end(JvmId { number, job, is_map })
    };
}

/// By tracker, then by number.
impl Ord for JobId {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.tracker, self.number).cmp(&(&other.tracker, other.number))
    }
}

impl PartialOrd for JobId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By job, then maps before reduces, then by number.
impl Ord for TaskId {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.job, !self.is_map, self.number).cmp(&(&other.job, !other.is_map, other.number))
    }
}

impl PartialOrd for TaskId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By task, then by number.
impl Ord for TaskAttemptId {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.task, self.number).cmp(&(&other.task, other.number))
    }
}

impl PartialOrd for TaskAttemptId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: FromStr<Err = NameError> + fmt::Display + PartialEq + fmt::Debug>(text: &str) -> T {
        let value: T = text.parse().unwrap();
        assert_eq!(value.to_string(), text);
        value
    }

    #[test]
    fn names_are_read_and_written() {
        let attempt: TaskAttemptId = check("attempt_201401011200.7_0001_m_000003_0");
        let job = JobId { number: 1, tracker: "201401011200.7".to_owned() };
        let task = TaskId { number: 3, job: job.clone(), is_map: true };
        assert_eq!(attempt, TaskAttemptId { number: 0, task: task.clone() });
        assert_eq!(check::<JobId>("job_201401011200.7_0001"), job);
        assert_eq!(check::<TaskId>("task_201401011200.7_0001_m_000003"), task);
        let far: TaskAttemptId = check("attempt_201401011200.7_12345_r_1234567_12");
        assert_eq!((far.number, far.task.number, far.task.is_map), (12, 1_234_567, false));
        assert_eq!(check::<JvmId>("jvm_201401011200.7_0001_m_-000123").number, -123);
        assert_eq!(check::<JvmId>("jvm_201401011200.7_0001_r_000123").number, 123);
    }

    #[test]
    fn other_texts_are_no_names() {
        let table = [
            "",
            "attempt",
            "attempt_",
            "job_201401011200.7_0001",
            "attempt_201401011200.7_0001_m_000003",
            "attempt_201401011200.7_0001_m_000003_0_1",
            "attempt_201401011200.7_0001_x_000003_0",
            "attempt_201401011200.7_0001_m_3x_0",
            "attempt_201401011200.7_99999999999_m_000003_0",
            "attempt_a_b_0001_m_000003_0",
        ];
        for text in table {
            let error = text.parse::<TaskAttemptId>().unwrap_err();
            assert_eq!(error.to_string(), format!("{text:?} is not a valid attempt id"));
        }
    }

    #[test]
    fn maps_come_before_reduces_and_numbers_count_as_numbers() {
        let sorted = [
            "attempt_201401011200.10_0001_m_000000_0",
            "attempt_201401011200.7_0001_m_000002_0",
            "attempt_201401011200.7_0001_m_000002_1",
            "attempt_201401011200.7_0001_m_000010_0",
            "attempt_201401011200.7_0001_r_000001_0",
            "attempt_201401011200.7_0002_m_000000_0",
        ];
        let mut ids: Vec<TaskAttemptId> =
            sorted.iter().rev().map(|text| text.parse().unwrap()).collect();
        ids.sort();
        let texts: Vec<_> = ids.iter().map(ToString::to_string).collect();
        assert_eq!(texts, sorted);
    }
}
