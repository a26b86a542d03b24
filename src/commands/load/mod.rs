//! `corona load`: emulated nodes and sessions for a cluster manager without other users.
//!
//! Wiring only: the plan, the target, and the report.

mod compare;
mod jobs;
mod scenarios;
mod show;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use corona::access::use_in_clients;
use corona::load::{self, Plan, Progress, Report};

use super::EXIT_FAILED;
use super::arguments::create_file;
use super::closed::required;
use super::signals::shutdown_signal;
use corona_terminal::console::Console;
use corona_terminal::progress::{PAUSE, clear_line, write_stderr};

const EXAMPLES: &str = "\
Examples:
  Slots granted and released per second:
    corona load churn --address localhost:9090
  Time from request to grant on an idle cluster of 1,000 nodes:
    corona load request-to-grant --address localhost:9090 --nodes 1000
  The same as a picture:
    corona load request-to-grant --address localhost:9090 --plot grant.svg
  Heartbeats of 5,000 nodes every 3 seconds, as JSON:
    corona load heartbeats --address localhost:9090 --nodes 5000 \\
        --interval 3 --seconds 60 --output json

Before it sends anything, it prints the plan on stderr. SIGINT and SIGTERM end a
run early and in order. docs/operate/load.md describes the scenarios.
Exit status: 0 done, and all responses were correct; 1 not done, or a response
was wrong or missing, as the report shows; 2 wrong usage.";

/// Put load on a cluster manager and check its replies
///
/// Emulates task trackers and job trackers over the real protocol, against the
/// original or this cluster manager. Emulated nodes start no tasks, so use it
/// only on a cluster manager without other users.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: Mode,
}

#[derive(Clone, Debug, Subcommand)]
enum Mode {
    #[command(flatten)]
    Scenario(Box<scenarios::Scenario>),
    Compare(compare::Arguments),
    Jobs(jobs::Arguments),
}

/// The target, the duration, and the outputs.
#[derive(Args, Clone, Debug)]
struct RunArguments {
    /// Address of the cluster manager (cm.server.address)
    #[arg(long, value_name = "HOST:PORT")]
    address: String,

    /// Duration of the measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u64,

    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    warm_up: u64,

    /// Time for which nodes and sessions try to reconnect while the cluster
    /// manager is restarted; with 0, a lost connection is an error
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    reconnect: u64,

    /// Threads of the load generator [default: one for each processor, at most
    /// 4]
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,

    /// Directory of a certificate of the cluster, with which all connections are
    /// TLS: that of a node or an administrator
    #[arg(long, value_name = "DIR")]
    tls_directory: Option<PathBuf>,

    /// Process id of the cluster manager, to report its memory and CPU time
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Output as text for people or as JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text)]
    output: Form,

    /// Draw the result as an SVG picture
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Overwrite the picture if it exists
    #[arg(long, requires = "plot")]
    force: bool,
}

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Json,
}

/// Runs the scenario.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let scenario = match arguments.what {
        Mode::Scenario(scenario) => scenario,
        Mode::Compare(arguments) => return compare::run(&arguments, console),
        Mode::Jobs(arguments) => return jobs::run(&arguments, console),
    };
    let (run, plan) = scenario.into_plan()?;
    plan.check()?;
    if let Some(directory) = &run.tls_directory {
        use_in_clients(&required(directory))?;
    }
    // Opened first, so that a long run is not for nothing.
    let plot = run.plot.as_ref().map(|path| create_file(path, run.force)).transpose()?;
    announce(&plan, console);
    let report = make_load(plan)?;
    if let Some(mut plot) = plot {
        plot.write_all(load::svg(&report).as_bytes()).context("cannot write the picture")?;
    }
    match run.output {
        // On one line: its curves would fill many pages.
        Form::Json => console.print(&(serde_json::to_string(&report)? + "\n"))?,
        Form::Text => {
            let text = show::text(&report, console);
            console.print(&text)?;
        }
    }
    let status = if report.errors.is_empty() { 0 } else { EXIT_FAILED };
    Ok(ExitCode::from(status))
}

/// Announces the load before the run.
fn announce(plan: &Plan, console: &mut Console<'_>) {
    let mut text = format!("load on {}: {}\n", plan.manager, plan.scenario);
    for line in plan.describe() {
        text += &format!("  {line}\n");
    }
    text += &format!("  at most {} connections\n", load::number(plan.most_connections() as u64));
    console.complain(&text);
}

fn make_load(plan: Plan) -> anyhow::Result<Report> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(plan.threads).enable_all().build();
    let runtime = runtime.context("cannot start the threads of the load")?;
    let progress = Progress::default();
    let report = runtime.block_on(async {
        let signal = shutdown_signal().context("cannot listen for signals")?;
        let stop = async {
            signal.await;
        };
        let run = load::run(plan, &progress, stop);
        tokio::select! {
            report = run => anyhow::Ok(report?),
            never = show_progress(&progress) => match never {},
        }
    });
    if std::io::stderr().is_terminal() {
        clear_line();
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    report
}

/// Repeatedly updates a line on stderr if it is a terminal.
async fn show_progress(progress: &Progress) -> std::convert::Infallible {
    let visible = std::io::stderr().is_terminal();
    loop {
        tokio::time::sleep(PAUSE).await;
        if visible {
            let line: String = progress.line().chars().take(79).collect();
            write_stderr(&format!("\r{line:79}"));
        }
    }
}
