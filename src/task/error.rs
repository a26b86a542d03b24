//! Why a task fails.

use std::io;
use std::path::PathBuf;

use corona_filesystem::FsError;
use corona_hadoop::rpc::CallError;
use corona_mapreduce::native::NotNative;
use thiserror::Error;

use crate::ifile::IFileError;
use crate::lines::LineError;
use crate::sequence_file::SequenceError;

/// Why a task fails.
#[derive(Debug, Error)]
pub enum TaskError {
    /// The job is none for native tasks.
    #[error(transparent)]
    NotNative(#[from] NotNative),
    /// The configuration of the job cannot be used.
    #[error("{path}: {why}", path = path.display())]
    Configuration {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The task names something that is needed and wrong.
    #[error("{0}")]
    Task(String),
    /// A file of the job.
    #[error(transparent)]
    Files(#[from] FsError),
    /// A file on this machine.
    #[error("{path}: {error}", path = path.display())]
    Local {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The input.
    #[error("cannot read the input {path}: {error}")]
    Input {
        /// The file.
        path: String,
        /// Why.
        error: LineError,
    },
    /// Records of the input.
    #[error("cannot read the input {path}: {error}")]
    Sequence {
        /// The file.
        path: String,
        /// Why.
        error: SequenceError,
    },
    /// A line of a program.
    #[error("cannot read the output of {program}: {error}")]
    ProgramOutput {
        /// The program.
        program: String,
        /// Why.
        error: LineError,
    },
    /// A program that cannot be started.
    #[error("cannot start {program}: {why}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        why: String,
    },
    /// A program that failed. The wording begins as the original's.
    #[error(
        "PipeMapRed.waitOutputThreads(): subprocess failed with code {code}\n{step}{hint}{stderr}"
    )]
    Exit {
        /// Its status, or 128 and the number of the signal.
        code: i32,
        /// The step of the job, and its command.
        step: String,
        /// What the status usually means, with a line before it; may be empty.
        hint: String,
        /// The last lines of its stderr, with a line before them; may be empty.
        stderr: String,
    },
    /// A program that did not read its input.
    #[error("Broken pipe: {program} ended before it had read its input\n{step}{stderr}")]
    Unread {
        /// The program.
        program: String,
        /// As above.
        step: String,
        /// As above.
        stderr: String,
    },
    /// Intermediate data.
    #[error("{path}: {error}", path = path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// Why.
        error: IFileError,
    },
    /// Records in memory.
    #[error(transparent)]
    Records(#[from] IFileError),
    /// The output.
    #[error("cannot write the output {path}: {error}")]
    Output {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The task tracker.
    #[error("the task tracker: {0}")]
    Umbilical(#[from] CallError),
    /// Outputs of maps cannot be fetched.
    #[error("{0}")]
    Shuffle(String),
    /// The task was ordered to end.
    #[error("the task was ordered to end")]
    Stopped,
}

/// The start of a text, at most so many bytes.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

impl TaskError {
    /// For results of calls that concern a file on this machine.
    pub(crate) fn local(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> TaskError {
        let path = path.into();
        move |error| TaskError::Local { path, error }
    }
}
