//! `corona replay`: replays recorded clients against a cluster manager, and prints the verdict.
//!
//! Wiring only: the file, the configuration, the target, and the report.

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{ArgGroup, Args, ValueEnum};
use corona::conformance::Traffic;
use corona::conformance::capture::Limits;
use corona::conformance::conversation::{Conversation, Offered};
use corona::conformance::replay::{self, Progress, ReplayOptions, Report, repeat_if_stalled};
use corona::conformance::trial::{Program, against_address, against_program, fitting};

use tokio::sync::watch;

use super::EXIT_FAILED;
use super::arguments::{create_file, is_same_file, parse_address};
use super::daemon::usable;
use super::signals::shutdown_signal;
use super::traffic::{PortArguments, ending_text, one_manager, skipped_text};
use corona_terminal::console::{Console, harmless_json, printable};
use corona_terminal::progress::{PAUSE, WatchedFile, bar, clear_line, write_stderr};

const USAGE: &str = "\
corona replay [OPTIONS] --spawn --conf-dir <DIR> <FILE>
       corona replay [OPTIONS] --target <HOST:PORT> <FILE>";

const EXAMPLES: &str = "\
Examples:
  Does this version decide as the recorded cluster manager did?
    corona replay monday.corec --spawn --conf-dir conf
  The same ten times faster, with a page to look at:
    corona replay monday.corec --spawn --conf-dir conf --speed 10 \\
        --report monday.html
  A capture of tcpdump, against a cluster manager that was just started:
    corona replay cm.pcap --port cluster-manager=9090 \\
        --target localhost:9191

SIGTERM and SIGINT end it, and the report up to there is printed.
Exit status: 0 something was compared, without unexplained differences; 1 some,
nothing was compared, or the replay ended early or could not be played, the last
with one line on stderr; 2 wrong usage.";

/// Replay recorded clients against a cluster manager and compare
///
/// Plays the task trackers and sessions of a recording or packet capture with
/// their timing, acts as their session drivers, and compares every reply and
/// notification with the recorded one. Session ids, times and ports are
/// translated. Differences that correct cluster managers may have are explained
/// by rules; every other difference is shown with both sides decoded.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
#[command(group(ArgGroup::new("against").args(["spawn", "target"]).required(true)))]
pub(super) struct Arguments {
    /// The recording or packet capture
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Start a cluster manager of this program for the replay
    ///
    /// It uses the configuration in --conf-dir. Files that are named there and
    /// do not exist are searched for in that directory by name. It has its own
    /// addresses and state file.
    #[arg(long, requires = "conf_dir")]
    spawn: bool,

    /// Address of a running cluster manager
    ///
    /// Start it freshly, with the recorded configuration. If it is on another
    /// machine, it must be able to connect to this one, where the replay's
    /// session drivers listen.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address, conflicts_with = "spawn")]
    target: Option<SocketAddr>,

    /// Factor by which pauses are shortened, or 'max' for no pauses
    ///
    /// With --spawn, nodes and sessions expire faster by the same factor; with
    /// 'max', as recorded. Intervals in the scheduling files do not change.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_speed)]
    speed: f64,

    /// Accept replies and notifications at most this many seconds late
    #[arg(long, value_name = "SECONDS", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,

    /// How much the times of grants, revocations and dead nodes may differ from
    /// the recorded ones, in milliseconds; for --speed 1
    #[arg(long, value_name = "MS", default_value_t = 500,
          value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    time_tolerance: u64,

    /// End the replay after it has waited this many seconds in all for replies
    /// and notifications that did not come
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    max_silence: u64,

    /// Repeat a replay that differs at most this many times, if the machine was
    /// too busy to keep the recorded times
    #[arg(long, value_name = "N", default_value_t = 0, requires = "spawn",
          value_parser = clap::value_parser!(u8).range(0..=20))]
    retries: u8,

    /// Format of the printed report
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text,
          help_heading = "Report")]
    output: Form,

    /// List each explained difference, too (in text)
    #[arg(long, help_heading = "Report")]
    full: bool,

    /// Also write the report to a file: .txt, .json or .html
    #[arg(long, value_name = "FILE", value_parser = parse_report, help_heading = "Report")]
    report: Option<(PathBuf, Form)>,

    /// Overwrite the file of --report if it exists
    #[arg(long, requires = "report", help_heading = "Report")]
    force: bool,

    #[command(flatten)]
    ports: PortArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    Text,
    Json,
    Html,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    if text == "max" {
        return Ok(f64::INFINITY);
    }
    let speed = text.parse().ok().filter(|speed| (0.01..=10_000.0).contains(speed));
    speed.ok_or_else(|| "expected a number from 0.01 to 10000, or max".to_owned())
}

pub(super) fn parse_report(text: &str) -> Result<(PathBuf, Form), String> {
    let path = PathBuf::from(text);
    let form = match path.extension().and_then(|extension| extension.to_str()) {
        Some("txt") => Form::Text,
        Some("json") => Form::Json,
        Some("html") => Form::Html,
        _ => return Err("expected a name that ends with .txt, .json or .html".to_owned()),
    };
    Ok((path, form))
}

/// Runs the replay and prints the verdict.
///
/// # Errors
/// When there is no verdict, or no place for it.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let name = arguments.file.display().to_string();
    let name = printable(&name).into_owned();
    let (traffic, conversations) = read(&arguments, &name)?;
    for note in [skipped_text(&traffic.capture.packets), ending_text(traffic.capture.ending)]
        .into_iter()
        .flatten()
    {
        console.complain(&format!("{name}: {note}\n"));
    }
    let mut file = report_file(&arguments, &name)?;
    let report = play(&arguments, &name, &traffic, &conversations);
    clear();
    if let (Err(_), Some((path, _))) = (&report, &arguments.report) {
        // An empty report would look like one. That it stays is not worth an error more.
        let _ = fs::remove_file(path);
    }
    let report = report?;
    // Print the verdict even if the report cannot be written.
    console.print(&shown(&report, arguments.output, console.width, arguments.full)?)?;
    if let (Some(file), Some((path, form))) = (&mut file, &arguments.report) {
        let written = file.write_all(shown(&report, *form, None, true)?.as_bytes());
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if report.agrees() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
}

/// The file of `--report`, made before the play, which may take days.
fn report_file(arguments: &Arguments, name: &str) -> anyhow::Result<Option<File>> {
    let Some((path, _)) = &arguments.report else { return Ok(None) };
    ensure!(!is_same_file(&arguments.file, path), "{name} cannot be read and overwritten at once");
    create_file(path, arguments.force).map(Some)
}

/// The traffic, and the messages from and to a cluster manager in it.
fn read(arguments: &Arguments, name: &str) -> anyhow::Result<(Traffic, Vec<Conversation>)> {
    let ports = arguments.ports.ports(|variable| std::env::var_os(variable))?;
    let file = WatchedFile::open(&arguments.file).with_context(|| format!("cannot open {name}"))?;
    let mut limits = Limits::default();
    limits.server_ports.extend(ports.iter().map(|ports| ports.cluster_manager));
    let traffic = Traffic::read(file, &limits).with_context(|| name.to_owned())?;
    let conversations = traffic.conversations(&ports.clone().unwrap_or_default());
    if conversations.iter().any(|one| one.service == Offered::ClusterManager && one.accepted) {
        let port = conversations.iter().find(|one| one.service == Offered::ClusterManager);
        let port = port.map_or(0, |one| one.server.port());
        one_manager(&conversations, port).with_context(|| name.to_owned())?;
        return Ok((traffic, conversations));
    }
    match ports {
        None if traffic.services.is_empty() => bail!(
            "{name} does not contain the cluster manager's port; pass its configuration with --conf-dir, or the port with --port cluster-manager=N"
        ),
        Some(ports) if traffic.services.is_empty() => {
            bail!("{name} has no connection to port {}", ports.cluster_manager)
        }
        _ => bail!("{name} has no connection to a cluster manager"),
    }
}

fn play(
    arguments: &Arguments,
    name: &str,
    traffic: &Traffic,
    conversations: &[Conversation],
) -> anyhow::Result<Report> {
    let program = arguments.ports.conf_dir().map(program).transpose()?;
    let of_setup = program.as_ref().map(|program| program.setup.options(name, arguments.speed));
    let patience = Duration::from_secs(arguments.timeout);
    let options = ReplayOptions {
        name: name.to_owned(),
        speed: arguments.speed,
        answer_within: patience,
        notice_within: patience,
        time_tolerance: Duration::from_millis(arguments.time_tolerance),
        silence: Duration::from_secs(arguments.max_silence),
        ..of_setup.unwrap_or_default()
    };
    let options = fitting(options, traffic);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the replay")?;
    if let Some(target) = arguments.target {
        let (stop, stopped) = watch::channel(None);
        let options = ReplayOptions { target: target.to_string(), stop: Some(stopped), ..options };
        let played = against_address(conversations, options, target, follow);
        return runtime.block_on(until_stopped(stop, played));
    }
    let Some(program) = program else { bail!("--spawn needs --conf-dir") };
    let version = format!("corona {}", env!("CARGO_PKG_VERSION"));
    let options = ReplayOptions { target: version, ..options };
    let mut failed = None;
    let is_final = |report: &Report| report.agrees() || report.ended.is_some();
    let report = repeat_if_stalled(1 + usize::from(arguments.retries), is_final, || {
        let (stop, stopped) = watch::channel(None);
        let options = ReplayOptions { stop: Some(stopped), ..options.clone() };
        let played = against_program(conversations, options, &program, follow);
        // A replay without a verdict was not stalled, so it is the last one.
        runtime.block_on(until_stopped(stop, played)).unwrap_or_else(|error| {
            failed = Some(error);
            Report::default()
        })
    });
    failed.map_or(Ok(report), Err)
}

/// This program with a configuration.
fn program(conf_dir: &Path) -> anyhow::Result<Program> {
    let own = std::env::current_exe().context("cannot find this program")?;
    usable(Program::read(&own, conf_dir))
}

/// A signal ends the replay with a report. A second one drops it, and with it the
/// cluster manager that was started for it.
async fn until_stopped<E>(
    end: watch::Sender<Option<String>>,
    played: impl Future<Output = Result<Report, E>>,
) -> anyhow::Result<Report>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let stop = shutdown_signal().context("cannot listen for signals")?;
    let mut played = pin!(played);
    tokio::select! {
        played = &mut played => return Ok(played?),
        signal = stop => end.send_replace(Some(signal.to_string())),
    };
    let again = shutdown_signal().context("cannot listen for signals")?;
    tokio::select! {
        played = played => Ok(played?),
        signal = again => bail!("ended by {signal}"),
    }
}

/// Columns of text if their number is unknown.
const USUAL_WIDTH: usize = 80;

fn shown(report: &Report, form: Form, width: Option<usize>, full: bool) -> anyhow::Result<String> {
    Ok(match form {
        Form::Text => {
            let text = replay::text(report, width.unwrap_or(USUAL_WIDTH), full);
            text.lines().flat_map(|line| [printable(line), "\n".into()]).collect()
        }
        Form::Json => {
            let json = serde_json::to_string_pretty(&replay::json(report))?;
            json.lines().flat_map(|line| [harmless_json(line), "\n".into()]).collect()
        }
        Form::Html => replay::html(report),
    })
}

/// How often a line tells the progress where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// Shows the progress of a replay until it ends. Must be called within a tokio
/// runtime.
fn follow(mut progress: watch::Receiver<Progress>) {
    if !io::stderr().is_terminal() {
        tokio::spawn(async move {
            let mut pause = tokio::time::interval(LINE_EVERY);
            pause.tick().await;
            loop {
                pause.tick().await;
                if progress.has_changed().is_err() {
                    return;
                }
                let Progress { played, of } = *progress.borrow_and_update();
                let (played, of) = (played.as_secs_f64(), of.as_secs_f64());
                write_stderr(&format!("replayed {played:.0} of {of:.0} s\n"));
            }
        });
        return;
    }
    tokio::spawn(async move {
        let mut pause = tokio::time::interval(PAUSE);
        // The sender is dropped when the replay has ended.
        while progress.has_changed().is_ok() {
            let Progress { played, of } = *progress.borrow_and_update();
            let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            let count = format!("{:.0} of {:.0} s", played.as_secs_f64(), of.as_secs_f64());
            write_stderr(&format!("\r{}", bar(ms(played), ms(of), &count)));
            pause.tick().await;
        }
    });
}

/// Removes the line of [`follow`]. The runtime must have ended.
fn clear() {
    if io::stderr().is_terminal() {
        clear_line();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_numbers_or_max() {
        for (text, speed) in [("1", 1.0), ("0.5", 0.5), ("10", 10.0), ("max", f64::INFINITY)] {
            assert_eq!(parse_speed(text), Ok(speed), "{text}");
        }
        for wrong in ["", "0", "-1", "inf", "NaN", "fast", "1e9"] {
            assert!(parse_speed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_name_of_a_report_says_its_form() {
        for (name, form) in
            [("a.txt", Form::Text), ("b/c.json", Form::Json), ("d.html", Form::Html)]
        {
            assert_eq!(parse_report(name), Ok((PathBuf::from(name), form)));
        }
        for wrong in ["report", "report.pdf", "html", ""] {
            assert!(parse_report(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn texts_of_peers_cannot_control_a_terminal() {
        let report = Report { name: "\u{1b}[2J\u{202e}x".to_owned(), ..Report::default() };
        for form in [Form::Text, Form::Json] {
            let shown = shown(&report, form, None, true).unwrap();
            assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
        }
    }
}
