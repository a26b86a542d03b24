//! `corona record`: a relay in front of a cluster manager that records the traffic to a file.
//!
//! Wiring only: addresses, the file, signals, and the output at the start and at the end.

use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use clap::Args;
use corona::config::Networks;
use corona::conformance::recording::{Header, Origin};
use corona::conformance::relay::{Recorder, RecorderSummary, Relay, RelayOptions};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::arguments::{create_file, parse_address, parse_networks, parse_size};
use super::daemon::ready;
use super::logging::LogArguments;
use super::signals::{StopSignal, shutdown_signal};
use corona_terminal::console::{Console, FormArguments, TextForm};

const USAGE: &str = "\
corona record [OPTIONS] --listen <HOST:PORT> --upstream <HOST:PORT>
                     --out <FILE>";

const EXAMPLES: &str = "\
Examples:
  This machine's cluster manager, for clients that connect to port 9191:
    corona record --listen 0.0.0.0:9191 --upstream localhost:9090 \\
        --out monday.corec
  The same with the callbacks to session drivers:
    corona record --listen 10.1.2.3:9191 --upstream cm.example.com:9090 \\
        --relay-callbacks --out monday.corec
  Show the recording:
    corona inspect monday.corec

SIGTERM and SIGINT end the relay and complete the file.
Exit status: 0 ended, and everything is in the file; 1 could not start, or
something that passed is not in the file, with one line on stderr; 2 wrong
usage.";

/// Relay to a cluster manager and record the traffic
///
/// Forwards the traffic between clients and any cluster manager, the original
/// or this one, unchanged, and writes a copy to a file. Relaying never waits
/// for the disk: data that does not fit into the buffer becomes a gap in the
/// file. When the disk is full, recording ends and relaying continues.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub(super) struct Arguments {
    /// Address that clients connect to
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    listen: SocketAddr,

    /// Address of the cluster manager
    #[arg(long, value_name = "HOST:PORT")]
    upstream: String,

    /// Recording to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Overwrite the file if it exists
    #[arg(long)]
    force: bool,

    /// Also relay the connections from the cluster manager to session drivers
    ///
    /// The cluster manager receives an address of the relay for each session
    /// that starts through it; the relay forwards to the session driver. Such
    /// sessions need the relay as long as they run.
    #[arg(long)]
    relay_callbacks: bool,

    /// The host that the cluster manager calls back
    ///
    /// [default: that of --listen; if that is the wildcard address, the relay's
    /// local address on the way to the cluster manager]
    #[arg(long, value_name = "HOST", requires = "relay_callbacks")]
    callback_host: Option<String>,

    /// Also relay callbacks to session drivers in these networks
    ///
    /// By default a session driver must be on the host that its session
    /// connects from; other addresses are passed on unchanged. Networks are
    /// separated by commas, such as 10.0.0.0/8,::1.
    #[arg(long, value_name = "NETWORKS", requires = "relay_callbacks", value_parser = parse_networks)]
    callback_drivers: Option<Networks>,

    /// Also accept callbacks from these networks
    ///
    /// By default, callbacks are accepted only from the addresses of
    /// --upstream.
    #[arg(long, value_name = "NETWORKS", requires = "relay_callbacks", value_parser = parse_networks)]
    callback_sources: Option<Networks>,

    /// Limit of the buffer between the relay and the disk, in bytes: 64m, 1g
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = parse_size)]
    max_buffer: usize,

    /// Maximum number of open connections, including callbacks
    #[arg(long, value_name = "COUNT", default_value = "10000")]
    max_connections: NonZeroUsize,

    #[command(flatten)]
    form: FormArguments,

    #[command(flatten)]
    log: LogArguments,
}

/// The result as JSON.
#[derive(Serialize)]
struct Report<'a> {
    file: &'a str,
    connections: u64,
    bytes: u64,
    unrecorded: Unrecorded,
    /// Why recording ended before the relay.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

/// Traffic that is not in the file.
#[derive(Serialize)]
struct Unrecorded {
    connections: u64,
    bytes: u64,
}

/// How long the end waits for the disk.
const LAST_WRITES: Duration = Duration::from_secs(30);

/// Runs the relay until a signal stops it.
///
/// # Errors
/// When it cannot start, or when some traffic is not in the file.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let _log = arguments.log.init()?;
    let form = arguments.form.output;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the relay")?;
    let (recorder, out) = runtime.block_on(async {
        let stop = shutdown_signal().context("cannot listen for signals")?;
        relay(arguments, stop).await
    })?;
    let recorded = recorder.finish(LAST_WRITES);
    conclude(&recorded, &out, form, console)
}

async fn relay(
    arguments: Arguments,
    stop: impl Future<Output = StopSignal>,
) -> anyhow::Result<(Recorder, PathBuf)> {
    // Makes a limit on the size of files an error of the write that exceeds it.
    let _file_size = signal(SignalKind::from_raw(SIGXFSZ)).context("cannot listen for signals")?;
    let Arguments { listen, upstream, out, relay_callbacks, .. } = arguments;
    let options = RelayOptions {
        relay_callbacks,
        callback_host: arguments.callback_host,
        callback_drivers: arguments.callback_drivers,
        callback_sources: arguments.callback_sources,
        max_connections: arguments.max_connections.get(),
        ..RelayOptions::new(listen, &upstream)
    };
    let relay = Relay::bind(options).with_context(|| format!("cannot listen on {listen}"))?;
    let address = relay.address();
    let file = create_file(&out, arguments.force)?;
    let header = Header {
        started_at_us: now_us(),
        origin: Origin::Relay,
        relay_callbacks,
        listener: address.to_string(),
        upstream: upstream.clone(),
    };
    let recorder = Recorder::start(file, &header, arguments.max_buffer)
        .with_context(|| format!("cannot write {}", out.display()))?;
    let (stop_sender, stopped) = watch::channel(false);
    let relaying = tokio::spawn(relay.run(vec![recorder.feed()], stopped));
    let file = corona_terminal::console::printable(&out.display().to_string()).into_owned();
    ready(&format!("corona record ready: listen {address} upstream {upstream} out {file}"));
    let signal = stop.await;
    tracing::info!("ending after {signal}");
    stop_sender.send_replace(true);
    relaying.await.context("the relay panicked")?;
    Ok((recorder, out))
}

/// The same number on all machines with Linux that the program is built for.
const SIGXFSZ: i32 = 25;

fn conclude(
    recorded: &RecorderSummary,
    out: &std::path::Path,
    form: TextForm,
    console: &mut Console<'_>,
) -> anyhow::Result<ExitCode> {
    let RecorderSummary { connections, bytes, unrecorded, failure } = recorded;
    let out = out.display().to_string();
    let out = corona_terminal::console::printable(&out);
    let (lost, of) = (unrecorded.bytes, unrecorded.connections);
    match form {
        TextForm::Text => console
            .print(&format!("recorded {connections} connections, {bytes} bytes in {out}\n"))?,
        TextForm::Json => console.print_json(&Report {
            file: &out,
            connections: *connections,
            bytes: *bytes,
            unrecorded: Unrecorded { connections: of, bytes: lost },
            failure: failure.as_ref().map(ToString::to_string),
        })?,
    }
    match failure {
        Some(failure) => bail!(
            "{out} is incomplete: recording stopped early ({failure}); {lost} bytes and {of} connections are missing"
        ),
        None if lost > 0 || of > 0 => bail!(
            "{out} has gaps: {lost} bytes and {of} connections are missing because the disk was too slow for a buffer of this size"
        ),
        None => Ok(ExitCode::SUCCESS),
    }
}

pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
