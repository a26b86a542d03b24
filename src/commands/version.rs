//! `corona version`: the version and its build.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use corona_terminal::console::{Console, FormArguments};

/// The version and, of a release that was built from a git checkout, the commit with its date.
pub(super) const VERSION: &str = env!("CORONA_VERSION");

const EXAMPLES: &str = "\
Commit and date are those of the git checkout that the program was built from.
Debug builds and builds without git do not have them.

Exit status: 0.";

/// Print the version
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    form: FormArguments,
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    date: Option<&'static str>,
}

/// Prints it.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("CORONA_COMMIT"),
        date: option_env!("CORONA_COMMIT_DATE"),
    };
    arguments.form.show(console, &version, |_| format!("corona {VERSION}\n"))?;
    Ok(ExitCode::SUCCESS)
}
