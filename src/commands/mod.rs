//! The command line: what may be said, in which spellings, and which status the process ends with.
//!
//! A subcommand has a file of its own with its arguments as a type and its wiring as a function.
//! Nothing here decides anything about a cluster. Only this room prints.

mod arguments;
mod cluster_manager;
mod logging;
mod signals;
mod simulate;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use arguments::accept_java_spellings;

/// Exit status of a command that could not do what it was told.
const EXIT_FAILED: u8 = 1;

/// Exit status of a command line that says nothing sensible.
const EXIT_USAGE: u8 = 2;

/// Runs the command line `arguments`, the program's name first. The status is 0 when all went
/// well, 1 with one line `corona: <what>` on stderr when not, 2 for wrong usage.
pub(crate) fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let parsed = Cli::try_parse_from(accept_java_spellings(arguments));
    match parsed {
        Ok(cli) => conclude(cli.command.run()),
        Err(usage) => {
            // When stdout or stderr is closed there is nobody left to tell.
            let _ = usage.print();
            if usage.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS }
        }
    }
}

/// A cluster manager for Hadoop Corona, compatible on the wire with the original.
#[derive(Debug, Parser)]
#[command(name = "corona", version, term_width = 80, disable_help_subcommand = true)]
#[command(after_help = "\
Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.
'corona <COMMAND> --help' tells more about a command.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    ClusterManager(cluster_manager::Arguments),
    Simulate(simulate::Arguments),
}

impl Command {
    fn run(self) -> anyhow::Result<()> {
        match self {
            Command::ClusterManager(arguments) => cluster_manager::run(arguments),
            Command::Simulate(arguments) => simulate::run(arguments),
        }
    }
}

#[expect(clippy::print_stderr, reason = "the one line that says why the command failed")]
fn conclude(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corona: {}", one_line(&error));
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// The error and its causes on one line, so that a log or a script finds the whole of it.
fn one_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.split(char::is_control)
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;
    use clap::CommandFactory;

    use super::*;

    fn status_of(line: &[&str]) -> ExitCode {
        main(line.iter().map(OsString::from))
    }

    #[test]
    fn definition_of_the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn exit_status_tells_usage_from_success() {
        let usage = ExitCode::from(2);
        for (line, expected) in [
            (&["corona", "--version"][..], ExitCode::SUCCESS),
            (&["corona", "--help"], ExitCode::SUCCESS),
            (&["corona", "cluster-manager", "--help"], ExitCode::SUCCESS),
            (&["corona"], usage),
            (&["corona", "no-such-command"], usage),
            (&["corona", "cluster-manager", "--no-such-option"], usage),
            (&["corona", "cluster-manager", "stray"], usage),
            (&["corona", "cluster-manager", "-D", "no-equals-sign"], usage),
        ] {
            assert_eq!(status_of(line), expected, "{line:?}");
        }
    }

    #[test]
    fn failure_has_status_one() {
        assert_eq!(conclude(Err(anyhow!("no such directory"))), ExitCode::from(1));
        assert_eq!(conclude(Ok(())), ExitCode::SUCCESS);
    }

    #[test]
    fn error_and_causes_fit_one_line() {
        let error = anyhow!("bad token:\n  line 3\r\n").context("cannot read core-site.xml");
        assert_eq!(one_line(&error), "cannot read core-site.xml: bad token: line 3");
    }

    #[test]
    fn help_fits_a_terminal_of_80_columns() {
        let mut cli = Cli::command();
        cli.build();
        let subcommands = cli.get_subcommands_mut().map(|each| each.render_long_help());
        let mut pages: Vec<String> = subcommands.map(|page| page.to_string()).collect();
        pages.push(cli.render_long_help().to_string());
        assert!(pages.len() >= 2);
        for line in pages.iter().flat_map(|page| page.lines()) {
            assert!(line.chars().count() <= 80, "wider than 80 columns: {line}");
        }
    }
}
