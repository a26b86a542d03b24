//! The steps of a test's task, as a text in the job's configuration: names with commas between,
//! some with `=` and a value.
//!
//! The steps of an attempt are the value of `test.steps.<attempt>` (with `.cleanup` for the run that
//! cleans up after it), else of `test.steps`, else of `test.steps.<role>`, else those of
//! [`TaskRole::steps`]. For its role a task asks its tracker.

use std::str::FromStr;

use corona::hadoop::writables::Task;

/// One thing that a task does.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Asks for the task, again and again until there is one. Ends if it is to.
    Ask,
    /// Reports this progress.
    Update(f32),
    /// Reports that it cleans up, as a task does after an error.
    CleanUp,
    /// Gives signs of life until the test releases it.
    Wait,
    /// Gives signs of life forever.
    Hang,
    /// Sends nothing until the test releases it.
    Rest,
    /// Writes a part of a map output for each reduce of the job.
    Output,
    /// Fetches its part of every map's output and compares it.
    Fetch,
    /// Waits for the permission to commit.
    Commit,
    /// Reports that the work is done.
    Done,
    /// Ends with this status.
    Exit(u8),
    /// Ends by a signal.
    Abort,
    /// Starts processes that outlive it: one of its group, one that has left it.
    Fork,
    /// Ignores SIGTERM from now on.
    IgnoreTerm,
    /// Writes so many MiB to its standard output.
    Flood(u64),
    /// Takes so many MiB of memory.
    Memory(u64),
    /// Reports diagnostics.
    Diagnose(String),
    /// Reports that it cannot fetch.
    ShuffleError(String),
    /// Reports that it lacks a file system.
    FsError(String),
    /// Reports a fatal error.
    FatalError(String),
}

/// A text that is no step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no step")]
pub struct NoStep(String);

impl FromStr for Step {
    type Err = NoStep;

    fn from_str(text: &str) -> Result<Step, NoStep> {
        let bad = || NoStep(text.to_owned());
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let said = || value.to_owned();
        Ok(match name {
            "ask" => Step::Ask,
            "update" => Step::Update(value.parse().map_err(|_| bad())?),
            "clean-up" => Step::CleanUp,
            "wait" => Step::Wait,
            "hang" => Step::Hang,
            "rest" => Step::Rest,
            "output" => Step::Output,
            "fetch" => Step::Fetch,
            "commit" => Step::Commit,
            "done" => Step::Done,
            "exit" => Step::Exit(value.parse().map_err(|_| bad())?),
            "abort" => Step::Abort,
            "fork" => Step::Fork,
            "ignore-term" => Step::IgnoreTerm,
            "flood" => Step::Flood(value.parse().map_err(|_| bad())?),
            "memory" => Step::Memory(value.parse().map_err(|_| bad())?),
            "diagnose" => Step::Diagnose(said()),
            "shuffle-error" => Step::ShuffleError(said()),
            "fs-error" => Step::FsError(said()),
            "fatal-error" => Step::FatalError(said()),
            _ => return Err(bad()),
        })
    }
}

/// The steps of a text.
///
/// Errors: the first word that is not a step.
pub fn parse(text: &str) -> Result<Vec<Step>, NoStep> {
    text.split(',').map(str::trim).filter(|step| !step.is_empty()).map(str::parse).collect()
}

/// The purpose of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRole {
    /// Prepares the job.
    Setup,
    /// Cleans up after the job.
    Cleanup,
    /// Cleans up after an attempt.
    TaskCleanup,
    /// Maps.
    Map,
    /// Reduces.
    Reduce,
}

impl TaskRole {
    /// The purpose of this task.
    pub fn of(task: &Task) -> TaskRole {
        match task {
            Task { task_cleanup: true, .. } => TaskRole::TaskCleanup,
            Task { job_setup: true, .. } => TaskRole::Setup,
            Task { job_cleanup: Some(_), .. } => TaskRole::Cleanup,
            _ if task.is_map() => TaskRole::Map,
            _ => TaskRole::Reduce,
        }
    }

    /// Its name in keys.
    pub fn name(self) -> &'static str {
        match self {
            TaskRole::Setup => "setup",
            TaskRole::Cleanup => "cleanup",
            TaskRole::TaskCleanup => "task-cleanup",
            TaskRole::Map => "map",
            TaskRole::Reduce => "reduce",
        }
    }

    /// The steps of such a task if the job does not name any.
    pub fn steps(self) -> &'static str {
        match self {
            TaskRole::Setup => "update=0.0,done",
            TaskRole::Cleanup | TaskRole::TaskCleanup => "clean-up,done",
            TaskRole::Map => "update=0.5,output,update=1.0,done",
            TaskRole::Reduce => "fetch,update=0.9,commit,update=1.0,done",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_steps() {
        let steps = parse(" ask,update=0.25, exit=3,diagnose=a b=c,").unwrap();
        let expected =
            [Step::Ask, Step::Update(0.25), Step::Exit(3), Step::Diagnose("a b=c".to_owned())];
        assert_eq!(steps, expected);
        assert_eq!(parse("ask,exit"), Err(NoStep("exit".to_owned())));
        assert_eq!(parse("askew").unwrap_err().to_string(), "\"askew\" is no step");
        use TaskRole::{Cleanup, Map, Reduce, Setup, TaskCleanup};
        for role in [Setup, Cleanup, TaskCleanup, Map, Reduce] {
            assert!(parse(role.steps()).is_ok());
        }
    }
}
