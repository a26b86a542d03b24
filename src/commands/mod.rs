//! The command line: its syntax, its spellings, and the exit statuses.
//!
//! A subcommand has a file of its own with its arguments as a type and its wiring as a function.
//! Nothing here decides anything about a cluster. Only this room prints.

mod access;
mod admin;
mod arguments;
mod check_config;
mod client;
mod closed;
mod cluster;
mod cluster_manager;
mod completions;
mod daemon;
mod daemons;
mod demo;
mod drain;
mod events;
mod finished_jobs;
mod fs;
mod gateway;
mod hadoop;
mod head;
mod import;
mod inspect;
mod invitation;
mod java;
mod java_pages;
mod job;
mod job_tracker;
mod jobs;
mod join;
mod journal;
mod load;
mod logging;
mod login;
mod man_pages;
mod mini_cluster;
mod mistakes;
mod nodes;
mod open;
mod parts;
mod pool_explain;
mod pool_import;
mod pool_info;
mod pools;
mod profile;
mod proxy_job_tracker;
mod record;
mod replay;
mod resources;
mod rolling;
mod run;
mod session_calls;
mod session_list;
mod sessions;
mod shadow;
mod signals;
mod status;
mod task_child;
mod task_tracker;
#[cfg(test)]
mod tests;
mod times;
mod traffic;
mod upgrade_check;
mod version;
mod watch;
mod web;
mod what_if;

use std::ffi::OsString;
use std::fmt;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use corona_terminal::console::{Console, printable};
use java::{JavaUsage, accept_java_spellings};

/// Exit status of a command that failed.
const EXIT_FAILED: u8 = 1;

/// Exit status of wrong usage.
const EXIT_USAGE: u8 = 2;

/// Runs the command line `arguments`, the program's name first. The status is 0 on success, 1 with
/// one line `corona: <error>` on stderr on failure, 2 for wrong usage.
pub(crate) fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let _ = corona::process::started_ms();
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    run(arguments, &mut Console::of_process(&mut out, &mut err))
}

/// The same with other streams than those of the process.
fn run(arguments: impl IntoIterator<Item = OsString>, console: &mut Console<'_>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // A node starts such a process for each task. To know all other commands would cost it milliseconds.
    if matches!(&arguments[..], [_, command] if command == task_child::NAME) {
        return conclude(task_child::run(&task_child::Arguments {}), console);
    }
    if let Some((program, words)) = arguments.split_first()
        && hadoop::is_name(program)
    {
        return hadoop::run_words(words.to_vec(), console);
    }
    let arguments = match accept_java_spellings(arguments) {
        Ok(arguments) => arguments,
        Err(JavaUsage { text, asked_for }) => {
            console.complain(&text);
            return if asked_for { ExitCode::SUCCESS } else { ExitCode::from(EXIT_USAGE) };
        }
    };
    match Cli::try_parse_from(&arguments) {
        Ok(cli) => conclude(cli.command.run(console), console),
        Err(usage) if usage.use_stderr() => {
            console.complain(&mistakes::explained(&usage.render().to_string(), &arguments));
            ExitCode::from(EXIT_USAGE)
        }
        Err(help) => {
            // Failures to write are ignored.
            let _ = help.print();
            ExitCode::SUCCESS
        }
    }
}

/// MapReduce and scheduling on Hadoop Corona's protocols.
#[derive(Debug, Parser)]
#[command(name = "corona", version = version::VERSION, term_width = 80)]
#[command(after_help = "\
Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.
'corona help <COMMAND>' or 'corona <COMMAND> --help' shows more about a command.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Head(head::Arguments),
    Join(join::Arguments),
    Login(login::Arguments),
    Logout(login::LogoutArguments),
    Open(open::Arguments),
    ClusterManager(cluster_manager::Arguments),
    TaskTracker(task_tracker::Arguments),
    JobTracker(job_tracker::Arguments),
    ProxyJobTracker(proxy_job_tracker::Arguments),
    Gateway(gateway::Arguments),
    Status(status::Arguments),
    Events(events::Arguments),
    Access(access::Arguments),
    Admin(admin::Arguments),
    Sessions(sessions::Arguments),
    Nodes(nodes::Arguments),
    Pools(pools::Arguments),
    CheckConfig(check_config::Arguments),
    Job(job::Arguments),
    Jobs(jobs::Arguments),
    Run(Box<run::Arguments>),
    Journal(journal::Arguments),
    Client(client::Arguments),
    Fs(fs::Arguments),
    Hadoop(hadoop::Arguments),
    Record(record::Arguments),
    Inspect(inspect::Arguments),
    Import(import::Arguments),
    Replay(replay::Arguments),
    Shadow(shadow::Arguments),
    WhatIf(what_if::Arguments),
    Load(load::Arguments),
    Demo(demo::Arguments),
    MiniCluster(mini_cluster::Arguments),
    Simulate(corona_simulate::Arguments),
    Completions(completions::Arguments),
    Version(version::Arguments),
    #[command(hide = true)]
    ManPages(man_pages::Arguments),
    #[command(hide = true)]
    TaskChild(task_child::Arguments),
}

impl Command {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
        match self {
            Command::Head(arguments) => head::run(arguments, console),
            Command::Join(arguments) => join::run(arguments, console),
            Command::Login(arguments) => login::run(arguments, console),
            Command::Logout(arguments) => login::logout(arguments, console),
            Command::Open(arguments) => open::run(arguments, console),
            Command::ClusterManager(arguments) => {
                cluster_manager::run(arguments).map(|()| ExitCode::SUCCESS)
            }
            Command::TaskTracker(arguments) => {
                task_tracker::run(arguments).map(|()| ExitCode::SUCCESS)
            }
            Command::JobTracker(arguments) => job_tracker::run(arguments),
            Command::ProxyJobTracker(arguments) => {
                proxy_job_tracker::run(arguments).map(|()| ExitCode::SUCCESS)
            }
            Command::Gateway(arguments) => gateway::run(arguments).map(|()| ExitCode::SUCCESS),
            Command::Status(arguments) => status::run(arguments, console),
            Command::Events(arguments) => events::run(arguments, console),
            Command::Access(arguments) => access::run(arguments, console),
            Command::Admin(arguments) => admin::run(arguments, console),
            Command::Sessions(arguments) => sessions::run(arguments, console),
            Command::Nodes(arguments) => nodes::run(arguments, console),
            Command::Pools(arguments) => pools::run(arguments, console),
            Command::CheckConfig(arguments) => check_config::run(arguments, console),
            Command::Job(arguments) => job::run(arguments, console),
            Command::Jobs(arguments) => jobs::run(arguments, console),
            Command::Run(arguments) => run::run(*arguments, console),
            Command::Journal(arguments) => journal::run(arguments, console),
            Command::Client(arguments) => client::run(arguments, console),
            Command::Fs(arguments) => fs::run(arguments, console),
            Command::Hadoop(arguments) => Ok(hadoop::run(arguments, console)),
            Command::Record(arguments) => record::run(arguments, console),
            Command::Inspect(arguments) => inspect::run(arguments, console),
            Command::Import(arguments) => import::run(arguments, console),
            Command::Replay(arguments) => replay::run(arguments, console),
            Command::Shadow(arguments) => shadow::run(arguments, console),
            Command::WhatIf(arguments) => what_if::run(arguments, console),
            Command::Load(arguments) => load::run(arguments, console),
            Command::Demo(arguments) => demo::run(arguments, console),
            Command::MiniCluster(arguments) => mini_cluster::run(arguments, console),
            Command::Simulate(arguments) => {
                corona_simulate::run(arguments, console).map(|()| ExitCode::SUCCESS)
            }
            Command::Completions(arguments) => completions::run(arguments, console),
            Command::Version(arguments) => version::run(arguments, console),
            Command::ManPages(arguments) => man_pages::run(&arguments, console),
            Command::TaskChild(arguments) => task_child::run(&arguments),
        }
    }
}

fn conclude(outcome: anyhow::Result<ExitCode>, console: &mut Console<'_>) -> ExitCode {
    match outcome {
        Ok(status) => status,
        Err(error) => {
            let text = one_line(&error);
            let user = rustix::process::geteuid().as_raw();
            console.complain(&format!("corona: {text}{}\n", of_rights(&text, user)));
            ExitCode::from(if error.is::<UsageError>() { EXIT_USAGE } else { EXIT_FAILED })
        }
    }
}

/// Who lacks a right on this machine, and needs it.
fn of_rights(text: &str, user: u32) -> String {
    match text.contains("Permission denied (os error 13)") {
        true => format!("; this process runs as user {user}, which needs the right to do so"),
        false => String::new(),
    }
}

/// Options that do not fit together, which no single one of them shows.
#[derive(Debug)]
struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// The error and its causes on one line, so that a log or a script gets them together.
fn one_line(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        // Many errors name their cause in their own text.
        if !text.ends_with(&cause) {
            let colon = if text.is_empty() { "" } else { ": " };
            text.push_str(&format!("{colon}{cause}"));
        }
    }
    let parts = text.split(char::is_control).map(str::trim).filter(|part| !part.is_empty());
    printable(&parts.collect::<Vec<_>>().join(" ")).into_owned()
}
