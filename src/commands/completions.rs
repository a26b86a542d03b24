//! `corona completions`: what a shell needs to complete command lines.

use std::process::ExitCode;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell as Generator, generate};

use super::Cli;
use super::console::Console;

const EXAMPLES: &str = "\
Examples:
  bash, for all users:
    corona completions bash > /etc/bash_completion.d/corona
  zsh, in a directory of $fpath:
    corona completions zsh > /usr/local/share/zsh/site-functions/_corona
  fish:
    corona completions fish > ~/.config/fish/completions/corona.fish";

/// Print a script that completes command lines in a shell
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script.
///
/// # Errors
/// When it cannot be written.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let generator = match arguments.shell {
        Shell::Bash => Generator::Bash,
        Shell::Zsh => Generator::Zsh,
        Shell::Fish => Generator::Fish,
    };
    let mut script = Vec::new();
    generate(generator, &mut Cli::command(), "corona", &mut script);
    console.print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
