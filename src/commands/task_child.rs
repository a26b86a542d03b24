//! `corona task-child`: the process of a native task, which a task tracker starts.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use corona::task::child::{Birth, run as run_task};

/// The name of the command.
pub(super) const NAME: &str = "task-child";

/// Run a native task; task trackers start it
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {}

/// Runs the task that the environment names.
///
/// # Errors
/// The process was not started by a task tracker, or cannot reach it.
pub(super) fn run(_arguments: &Arguments) -> anyhow::Result<ExitCode> {
    // The stderr of a task is its log.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .init();
    corona::access::use_as_parent(|name| std::env::var(name).ok())?;
    let work = std::env::current_dir().context("cannot find the working directory")?;
    let birth = Birth::of(&|name| std::env::var(name).ok(), work)?;
    Ok(ExitCode::from(run_task(&birth)?))
}
