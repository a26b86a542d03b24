//! `corona demo`: a small busy cluster in one process, for a first look.
//!
//! Wiring only: the size of the demo, its end, and how its news are printed.

use std::future::pending;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use corona::cluster_manager::StartError;
use corona::demo::{self, Demo, DemoError, News, Options};
use corona::net::CannotListen;
use serde::Serialize;
use tokio::time::sleep;

use super::daemon::threads;
use super::logging::{LogArguments, parse_filter};
use super::signals::{on_hangup, shutdown_signal};
use corona_terminal::console::Console;

/// The tools' default port of the Thrift service.
const THRIFT_PORT: u16 = 8888;
/// The tools' default port of the pages.
const WEB_PORT: u16 = 8889;

const EXAMPLES: &str = "\
Examples:
  A cluster of 24 nodes until Ctrl-C:
    corona demo
  A larger cluster, three times as fast:
    corona demo --nodes 120 --speed 3
  On free ports for a minute, with all events as JSON:
    corona demo --port 0 --thrift-port 0 --for 60 --output json

The demo listens on the loopback interface only, and leaves nothing behind.
SIGHUP has the pools file read again at once.
Exit status: 0 stopped; 1 could not start or failed; 2 wrong usage.";

/// Show a small busy cluster: manager, pages, nodes and jobs in one process
///
/// Starts a cluster manager with its pages, emulated nodes in several racks,
/// and users who submit jobs. Within a minute a job fills the cluster, a pool
/// with a minimum preempts slots, a node dies, another one is blacklisted, and
/// a new one joins. The demo starts no tasks and needs no other program. All
/// other commands work with it from another terminal.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Port of the pages; 0: any free one
    #[arg(long, value_name = "PORT", default_value_t = WEB_PORT)]
    port: u16,

    /// Port of the Thrift service; 0: any free one
    #[arg(long, value_name = "PORT", default_value_t = THRIFT_PORT)]
    thrift_port: u16,

    /// Emulated nodes, from 6 to 500
    #[arg(long, value_name = "COUNT", default_value_t = 24, value_parser = parse_nodes)]
    nodes: usize,

    /// Speed factor, from 0.1 to 20
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_speed)]
    speed: f64,

    /// Seed that determines the jobs and the failing nodes
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Stop after this many seconds [default: at SIGINT or SIGTERM]
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    duration: Option<u64>,

    /// Print notable events as sentences, or all events as lines of JSON
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text)]
    output: Form,

    /// Log level on stderr, or levels by part of the program
    #[arg(long, value_name = "FILTER", default_value = "error", value_parser = parse_filter)]
    log_level: String,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Json,
}

fn parse_nodes(text: &str) -> Result<usize, String> {
    let nodes = text.parse().ok().filter(|nodes| demo::NODES.contains(nodes));
    nodes.ok_or_else(|| {
        let (least, most) = (demo::NODES.start(), demo::NODES.end());
        format!("expected a number of nodes from {least} to {most}")
    })
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| demo::SPEEDS.contains(speed));
    speed.ok_or_else(|| {
        let (least, most) = (demo::SPEEDS.start(), demo::SPEEDS.end());
        format!("expected a factor from {least} to {most}")
    })
}

/// Runs the demo until it is stopped.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let _log = LogArguments::of_levels(arguments.log_level.clone()).init()?;
    corona::process::descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads())
        .enable_all()
        .build()
        .context("cannot start the threads of the demo")?;
    let status = runtime.block_on(show(&arguments, console));
    runtime.shutdown_timeout(Duration::from_secs(1));
    status.map(|()| ExitCode::SUCCESS)
}

async fn show(arguments: &Arguments, console: &mut Console<'_>) -> anyhow::Result<()> {
    let signal = shutdown_signal().context("cannot listen for signals")?;
    let options = Options {
        web_port: arguments.port,
        thrift_port: arguments.thrift_port,
        nodes: arguments.nodes,
        seed: arguments.seed,
        speed: arguments.speed,
    };
    let demo = Demo::start(&options).await.map_err(|error| explain(error, &options))?;
    let mut printer = Printer { form: arguments.output, console };
    printer.welcome(&demo)?;
    // As in a cluster manager in service.
    let request = demo.reload_request();
    on_hangup(move || request.send())?;
    let time_is_up = async {
        match arguments.duration {
            Some(seconds) => sleep(Duration::from_secs(seconds)).await,
            None => pending().await,
        }
    };
    let stop = async {
        tokio::select! {
            _ = signal => {}
            () = time_is_up => {}
        }
    };
    let mut failed = None;
    let report = |elapsed, news: &News| {
        if let Err(error) = printer.tell(elapsed, news) {
            failed.get_or_insert(error);
        }
    };
    let summary = demo.run(stop, report).await?;
    if let Some(error) = failed {
        return Err(error.context("cannot write to stdout"));
    }
    printer.farewell(&summary)
}

/// A taken port is the most likely problem of a newcomer.
fn explain(error: DemoError, options: &Options) -> anyhow::Error {
    let DemoError::Start(StartError::Listen(CannotListen { key, error, .. })) = &error else {
        return error.into();
    };
    let (port, what, option) = match *key {
        "cm.server.address" => (options.thrift_port, "calls", "--thrift-port"),
        _ => (options.web_port, "pages", "--port"),
    };
    anyhow!(
        "cannot listen on port {port} for {what}: {error}; choose another port with {option}; 0 selects a free one"
    )
}

struct Printer<'a, 'c> {
    form: Form,
    console: &'a mut Console<'c>,
}

/// The first line of JSON.
#[derive(Serialize)]
struct Ready<'a> {
    event: &'a str,
    pages: &'a str,
    thrift: &'a str,
    directory: &'a str,
    nodes: usize,
    racks: usize,
    slots: demo::Slots,
}

/// A line of JSON about something that happened, or the last one.
#[derive(Serialize)]
struct EventLine<'a, T> {
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a str>,
    #[serde(flatten)]
    what: &'a T,
}

impl Printer<'_, '_> {
    fn welcome(&mut self, demo: &Demo) -> anyhow::Result<()> {
        let (web, thrift) = (demo.web_address().port(), demo.thrift_address().port());
        let (pages, calls) = (format!("http://localhost:{web}/"), format!("localhost:{thrift}"));
        let (nodes, racks, slots) = demo.size();
        let directory = demo.directory().display().to_string();
        if self.form == Form::Json {
            let (pages, thrift, directory) = (&*pages, &*calls, &*directory);
            let event = "ready";
            let ready = Ready { event, pages, thrift, directory, nodes, racks, slots };
            return self.line(&ready);
        }
        let option = |is_usual: bool, option: &str, port: u16| match is_usual {
            true => String::new(),
            false => format!(" {option} localhost:{port}"),
        };
        let over_http = option(web == WEB_PORT, "--http-address", web);
        let over_thrift = option(thrift == THRIFT_PORT, "--address", thrift);
        let text = format!(
            "corona demo: {nodes} emulated nodes in {racks} racks, {} MAP and {} REDUCE slots

    {pages}

In another terminal, for example:
    corona sessions list{over_thrift}
    corona nodes list{over_http}
    corona pools{over_http}
Pools: {directory}/pools.xml, read again when it changes.
Ctrl-C stops everything.

",
            slots.map, slots.reduce,
        );
        Ok(self.console.print(&text)?)
    }

    fn tell(&mut self, elapsed: Duration, news: &News) -> anyhow::Result<()> {
        match self.form {
            Form::Json => {
                self.line(&EventLine { seconds: elapsed.as_secs_f64(), event: None, what: news })
            }
            Form::Text if !news.is_notable() => Ok(()),
            Form::Text => {
                let seconds = elapsed.as_secs();
                let text = format!("{:>3}:{:02}  {news}\n", seconds / 60, seconds % 60);
                Ok(self.console.print(&text)?)
            }
        }
    }

    fn farewell(&mut self, summary: &demo::Summary) -> anyhow::Result<()> {
        match self.form {
            Form::Json => self.line(&EventLine {
                seconds: summary.seconds,
                event: Some("summary"),
                what: summary,
            }),
            Form::Text => Ok(self.console.print(&format!("\n{summary}\n"))?),
        }
    }

    fn line(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        Ok(self.console.print(&(serde_json::to_string(value)? + "\n"))?)
    }
}
