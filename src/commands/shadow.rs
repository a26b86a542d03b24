//! `corona shadow`: compares this program's decisions with those of a cluster manager in service.
//!
//! Wiring only: the relay, the shadow, an optional recording, signals, and the output.

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use corona::access::TlsMode;
use corona::config::{self, Loaded, Networks};
use corona::conformance::recording::{Header, Origin};
use corona::conformance::relay::{RELAYS_IN_TLS, Recorder, Relay, RelayOptions, feed};
use corona::conformance::shadow::{
    KeepEvents, Shadow, ShadowOptions, ShadowPages, Stats, html, json, replay_events, text,
};
use tokio::sync::watch;

use super::EXIT_FAILED;
use super::arguments::{
    Override, create_file, existing_conf_dir, parse_address, parse_networks, parse_override,
    parse_size,
};
use super::daemon::{ready, usable};
use super::logging::LogArguments;
use super::record::now_us;
use super::replay::{Form, parse_report};
use super::signals::shutdown_signal;
use corona_terminal::console::{Console, harmless_json, printable};

const USAGE: &str = "\
corona shadow [OPTIONS] --listen <HOST:PORT> --primary <HOST:PORT>
                     --conf-dir <DIR>
       corona shadow [OPTIONS] --events <FILE>";

const EXAMPLES: &str = "\
Examples:
  Beside this machine's cluster manager, for clients that connect to port 9191,
  with a page that shows the findings:
    corona shadow --listen 0.0.0.0:9191 --primary localhost:9090 \\
        --conf-dir /etc/hadoop/conf --http 0.0.0.0:9192
  The same with a recording:
    corona shadow --listen 0.0.0.0:9191 --primary localhost:9090 \\
        --conf-dir /etc/hadoop/conf --recording monday.corec
  The findings of an earlier run with --keep-events monday.events:
    corona shadow --events monday.events

SIGTERM and SIGINT end it, and the summary is printed.
Exit status: 0 no unexplained differences; 1 some, nothing compared, or it could
not start or record everything, with one line on stderr; 2 wrong usage.";

/// Run beside a cluster manager in service and compare
///
/// Clients and session drivers talk to the primary through this program, which
/// changes only the address for callbacks and adds no waits. It passes the same
/// calls to its own cluster manager and compares the replies and grants.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub(super) struct Arguments {
    /// Address that clients connect to
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address,
          required_unless_present = "events")]
    listen: Option<SocketAddr>,

    /// Address of the cluster manager in service
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "events")]
    primary: Option<String>,

    /// Replay the events of an earlier run, and print its report
    ///
    /// FILE was written with --keep-events. Nothing is relayed, and the
    /// findings are those of the run.
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["listen", "primary", "conf_dir", "overrides", "http", "recording",
                                "keep_events"])]
    events: Option<PathBuf>,

    /// Directory of the primary's configuration
    ///
    /// [default: $HADOOP_CONF_DIR, else built-in defaults only]
    #[arg(long, value_name = "DIR")]
    conf_dir: Option<PathBuf>,

    /// Set a configuration key, overriding the files; may be repeated
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<Override>,

    /// The host that the primary calls back
    ///
    /// [default: that of --listen; if that is the wildcard address, the relay's
    /// local address on the way to the primary]
    #[arg(long, value_name = "HOST")]
    callback_host: Option<String>,

    /// Also relay callbacks to session drivers in these networks
    ///
    /// By default a session driver must be on the host that its session
    /// connects from; other addresses are passed on unchanged. Networks are
    /// separated by commas, such as 10.0.0.0/8,::1.
    #[arg(long, value_name = "NETWORKS", value_parser = parse_networks)]
    callback_drivers: Option<Networks>,

    /// Also accept callbacks from these networks
    ///
    /// By default, callbacks are accepted only from the addresses of --primary.
    #[arg(long, value_name = "NETWORKS", value_parser = parse_networks)]
    callback_sources: Option<Networks>,

    /// Wait this many seconds for the primary to make the same decision
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,

    /// How much the times of grants, revocations and dead nodes may differ from
    /// the primary's, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500,
          value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    time_tolerance: u64,

    /// Address that serves the current report: a page, /report.json and
    /// /metrics
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    http: Option<SocketAddr>,

    /// Also record the traffic to this file
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,

    /// Keep all inputs of the shadow in this file, for --events
    ///
    /// It is a recording of the traffic as well.
    #[arg(long, value_name = "FILE")]
    keep_events: Option<PathBuf>,

    /// Maximum size of the file of --keep-events, in bytes: 64m, 1g
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = parse_size)]
    max_events: usize,

    /// Format of the printed report
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text,
          help_heading = "Report")]
    output: Form,

    /// Also write the report to a file: .txt, .json or .html
    #[arg(long, value_name = "FILE", value_parser = parse_report, help_heading = "Report")]
    report: Option<(PathBuf, Form)>,

    /// Overwrite the files of --recording, --keep-events and --report if they
    /// exist
    #[arg(long)]
    force: bool,

    /// Limit of each buffer, for the shadow and for the disk, in bytes: 64m, 1g
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = parse_size)]
    max_buffer: usize,

    /// Maximum number of open connections, including callbacks
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    max_connections: usize,

    #[command(flatten)]
    log: LogArguments,
}

/// How long the end waits for the disk.
const LAST_WRITES: Duration = Duration::from_secs(30);

/// Runs until a signal, and prints the findings.
///
/// # Errors
/// When it cannot start, or when some traffic is not in the recording.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let _log = arguments.log.clone().init()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the relay")?;
    let (output, force) = (arguments.output, arguments.force);
    let file = arguments.report.clone();
    // Checks the output file now, not after a week.
    let file = file.map(|(path, form)| Ok::<_, anyhow::Error>((create_file(&path, force)?, form)));
    let file = file.transpose()?;
    let (stats, recorder) = match arguments.events.clone() {
        Some(events) => (replayed(&events)?, None),
        None => runtime.block_on(shadow(arguments))?,
    };
    if let Some((mut file, form)) = file {
        let written = shown(&stats, form, None)?;
        file.write_all(written.as_bytes()).context("cannot write the report")?;
    }
    console.print(&shown(&stats, output, console.width)?)?;
    if let Some(recorder) = recorder {
        whole(&recorder)?;
    }
    Ok(if stats.agrees() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
}

/// Columns of text if their number is unknown.
const USUAL_WIDTH: usize = 80;

fn shown(stats: &Stats, form: Form, width: Option<usize>) -> anyhow::Result<String> {
    Ok(match form {
        Form::Text => {
            let text = text(stats, width.unwrap_or(USUAL_WIDTH));
            text.lines().flat_map(|line| [printable(line), "\n".into()]).collect()
        }
        Form::Json => {
            let json = serde_json::to_string_pretty(&json(stats))?;
            json.lines().flat_map(|line| [harmless_json(line), "\n".into()]).collect()
        }
        Form::Html => html(stats, None),
    })
}

/// The results of a run whose events were kept.
fn replayed(events: &Path) -> anyhow::Result<Stats> {
    let name = events.display().to_string();
    let name = printable(&name).into_owned();
    let file = File::open(events).with_context(|| format!("cannot open {name}"))?;
    replay_events(BufReader::new(file)).with_context(|| format!("cannot replay {name}"))
}

async fn shadow(arguments: Arguments) -> anyhow::Result<(Stats, Option<Recorder>)> {
    let stop = shutdown_signal().context("cannot listen for signals")?;
    let (Some(listen), Some(primary)) = (arguments.listen, arguments.primary.clone()) else {
        bail!("--listen and --primary are needed");
    };
    let loaded = read(&arguments)?;
    let tls = &loaded.settings.tls;
    if tls.mode == TlsMode::Require && Vec::<String>::from(tls.plain_networks.clone()).is_empty() {
        bail!("corona.tls=require: {RELAYS_IN_TLS}");
    }
    let options = ShadowOptions {
        primary: primary.clone(),
        patience: Duration::from_secs(arguments.patience),
        time_tolerance: Duration::from_millis(arguments.time_tolerance),
    };
    let relay = Relay::bind(RelayOptions {
        relay_callbacks: true,
        callback_host: arguments.callback_host.clone(),
        callback_drivers: arguments.callback_drivers.clone(),
        callback_sources: arguments.callback_sources.clone(),
        max_connections: arguments.max_connections,
        ..RelayOptions::new(listen, &primary)
    });
    let relay = relay.with_context(|| format!("cannot listen on {listen}"))?;
    let address = relay.address();
    let recorder = record(&arguments, address, &primary)?;
    let keep = arguments.keep_events.as_ref().map(|path| {
        let file = create_file(path, arguments.force)?;
        Ok::<_, anyhow::Error>(KeepEvents { file, max_bytes: arguments.max_events as u64 })
    });
    let keep = keep.transpose()?;
    let (own, entries) = feed(
        arguments.max_buffer,
        format!(
            "the shadow is too slow: its buffer of {} bytes is full; resynchronising, connections are not affected",
            arguments.max_buffer
        ),
    );
    let again = arguments.clone();
    let configuration = Box::new(move || read(&again).map_err(|error| error.to_string()));
    let shadow = Shadow::start(loaded, configuration, options, entries, keep)?;
    let watched = shadow.stats();
    let feeds = recorder.iter().map(Recorder::feed).chain([own]).collect();
    let (stop_sender, stopped) = watch::channel(false);
    let relaying = tokio::spawn(relay.run(feeds, stopped));
    let primary = printable(&primary).into_owned();
    let pages = arguments.http.map(|address| {
        ShadowPages::start(address, watched.clone())
            .with_context(|| format!("cannot listen on {address}"))
    });
    let pages = pages.transpose()?;
    let http = pages.as_ref().map(|pages| format!(" http {}", pages.address()));
    let http = http.unwrap_or_default();
    ready(&format!("corona shadow ready: listen {address} primary {primary}{http}"));
    let signal = stop.await;
    tracing::info!("ending after {signal}");
    stop_sender.send_replace(true);
    relaying.await.context("the relay panicked")?;
    let finished = tokio::task::spawn_blocking(move || shadow.finish()).await?;
    if let Some(pages) = pages {
        pages.end();
    }
    if !finished {
        bail!("the shadow panicked; this is a bug");
    }
    Ok((watched.now(), recorder))
}

fn read(arguments: &Arguments) -> anyhow::Result<Loaded> {
    let conf_dir =
        existing_conf_dir(arguments.conf_dir.clone(), |variable| std::env::var_os(variable))?;
    let source = config::Source {
        conf_dir: conf_dir.as_deref(),
        overrides: &arguments.overrides,
        lookup: config::Lookup::AlsoByName,
    };
    usable(source.load()).map_err(|wrong| anyhow!("the configuration is wrong: {wrong}"))
}

fn record(
    arguments: &Arguments,
    listener: SocketAddr,
    primary: &str,
) -> anyhow::Result<Option<Recorder>> {
    let Some(out) = &arguments.recording else { return Ok(None) };
    let file = create_file(out, arguments.force)?;
    let header = Header {
        started_at_us: now_us(),
        origin: Origin::Relay,
        relay_callbacks: true,
        listener: listener.to_string(),
        upstream: primary.to_owned(),
    };
    let recorder = Recorder::start(file, &header, arguments.max_buffer);
    Ok(Some(recorder.with_context(|| format!("cannot write {}", out.display()))?))
}

fn whole(recorder: &Recorder) -> anyhow::Result<()> {
    let recorded = recorder.finish(LAST_WRITES);
    let lost = recorded.unrecorded;
    match recorded.failure {
        Some(failure) => bail!("the recording is incomplete: {failure}"),
        None if lost.bytes > 0 || lost.connections > 0 => bail!(
            "the recording has gaps: {} bytes and {} connections are missing",
            lost.bytes,
            lost.connections
        ),
        None => Ok(()),
    }
}
