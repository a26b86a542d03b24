//! `corona inspect`: the messages in a recording or a packet capture.
//!
//! Wiring only: arguments to a filter, items to lines.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use corona::config::similar;
use corona::conformance::Traffic;
use corona::conformance::capture::Limits;
use corona::conformance::conversation::Offered;
use corona::conformance::inspect::{
    Filter, Item, MethodStatistics, Shape, items, json, statistics, text,
};
use corona::conformance::recording::Header;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json as value;

use super::traffic::{PortArguments, ending_text, skipped_text};
use corona_terminal::console::{Console, harmless_json, printable};
use corona_terminal::progress::WatchedFile;
use corona_terminal::table::{Cell, Column, Table, cut};

const EXAMPLES: &str = "\
Examples:
  All messages:
    corona inspect monday.corec
  All messages about one session, complete:
    corona inspect monday.corec --session 202611210005.1 --full
  Response times of the cluster manager:
    corona inspect monday.corec --stats
  A capture of tcpdump:
    corona inspect cm.pcap --port cluster-manager=9090 --method sessionStart

A line has the time, the connection, the direction and the service: '>' is sent
to it, '<' by it; '+' opens the connection. CM is the cluster manager, PJT the
proxy job tracker, SD a session driver. '=' comes before a result, '!' before an
error, the time that an answer took is in brackets.
Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.";

/// Show the messages in a recording or a packet capture
///
/// Reads recordings of 'corona record', and pcap and pcapng files of tcpdump
/// and Wireshark, optionally compressed with gzip. Messages are decoded; other
/// bytes are shown as they are.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The recording or packet capture
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Show only calls about this session, and their replies
    #[arg(long, value_name = "HANDLE")]
    session: Option<String>,

    /// Show only calls about this node, by name or host, and their replies
    #[arg(long, value_name = "NODE")]
    node: Option<String>,

    /// Show only calls of this method, and their replies
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,

    /// Start of the interval: seconds since the start, or a time such as 2026-11-21T00:05:39Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<Time>,

    /// End of the interval, in the same form as --from
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    until: Option<Time>,

    /// Show statistics by method instead
    #[arg(long)]
    stats: bool,

    /// Show complete messages, and do not cut lines
    #[arg(long)]
    full: bool,

    /// Output as text for people or as JSON for programs, one object per line
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text)]
    output: Form,

    #[command(flatten)]
    ports: PortArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Json,
}

/// A time on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Time {
    /// Since the start of the file.
    Since(Duration),
    /// Microseconds since the Unix epoch.
    At(u64),
}

fn parse_time(text: &str) -> Result<Time, String> {
    let seconds = text.parse::<f64>().ok().filter(|_| !text.contains(['e', 'E', 'n', 'N']));
    if let Some(seconds) = seconds {
        let since = Duration::try_from_secs_f64(seconds);
        return since.map(Time::Since).map_err(|_| format!("{text} is no time since the start"));
    }
    let at: Timestamp = text
        .parse()
        .map_err(|_| "expected seconds since the start, or 2026-11-21T00:05:39Z".to_owned())?;
    u64::try_from(at.as_microsecond()).map(Time::At).map_err(|_| format!("{text} is too early"))
}

impl Time {
    fn since(self, started_at_us: u64) -> Duration {
        match self {
            Time::Since(since) => since,
            Time::At(us) => Duration::from_micros(us.saturating_sub(started_at_us)),
        }
    }
}

/// Prints the requested items.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let ports = arguments.ports.ports(|name| std::env::var_os(name))?;
    let name = arguments.file.display().to_string();
    let name = printable(&name).into_owned();
    let file = WatchedFile::open(&arguments.file).with_context(|| format!("cannot open {name}"))?;
    let mut limits = Limits::default();
    limits.server_ports.extend(ports.iter().map(|ports| ports.cluster_manager));
    let traffic = Traffic::read(file, &limits).with_context(|| name.clone())?;
    if ports.is_none() && traffic.services.is_empty() && !traffic.capture.connections.is_empty() {
        bail!(
            "{name} does not contain the cluster manager's port; pass its configuration with --conf-dir, or the port with --port cluster-manager=N"
        );
    }
    let ports = ports.unwrap_or_default();
    let conversations = traffic.conversations(&ports);
    let started_at_us = traffic.capture.started_at_us;
    let filter = Filter {
        session: arguments.session,
        node: arguments.node,
        method: arguments.method,
        from: arguments.from.map(|from| from.since(started_at_us)),
        until: arguments.until.map(|until| until.since(started_at_us)),
    };
    if filter.from.zip(filter.until).is_some_and(|(from, until)| from > until) {
        bail!("--from is after --until; exchange their times");
    }
    let all = items(&conversations);
    if let Some(method) = filter.method.as_deref().filter(|method| !is_method(method))
        && !all.iter().any(|item| item.method() == Some(method))
    {
        let meant = similar(method, methods()).map(|meant| format!("; did you mean {meant}?"));
        bail!(
            "no service has a method {}, and {name} has no message of this name{}",
            printable(method),
            meant.unwrap_or_default()
        );
    }
    let wanted = all.iter().filter(|item| filter.wants(item));
    let is_empty = wanted.clone().next().is_none();
    match (arguments.stats, arguments.output) {
        (true, form) => print_statistics(&statistics(wanted), form, arguments.full, console)?,
        (false, Form::Json) => print_json(wanted, started_at_us, console)?,
        (false, Form::Text) => {
            let shape = if arguments.full { Shape::Full } else { Shape::Short };
            console.print(&head(&traffic, conversations.len()))?;
            print_text(wanted, started_at_us, shape, console)?;
        }
    }
    let capture = &traffic.capture;
    if conversations.is_empty() && !capture.connections.is_empty() && ports.cluster_manager != 0 {
        console.complain(&format!("{name} has no connection to port {}\n", ports.cluster_manager));
    } else if is_empty && !all.is_empty() && arguments.output == Form::Text {
        console.complain(&format!("{name}: no message matches\n"));
    }
    for note in [skipped_text(&capture.packets), ending_text(capture.ending)].into_iter().flatten()
    {
        console.complain(&format!("{name}: {note}\n"));
    }
    if let Some(lost) = traffic.unrecorded.filter(|lost| lost.bytes > 0 || lost.connections > 0) {
        let (connections, bytes) = (lost.connections, lost.bytes);
        console.complain(&format!(
            "{name}: not recorded: {bytes} bytes and {connections} connections\n"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// All methods of the contract.
fn methods() -> impl Iterator<Item = &'static str> {
    let services = [Offered::ClusterManager, Offered::ProxyJobTracker, Offered::SessionDriver];
    let methods = services.into_iter().flat_map(|service| &service.schema().methods);
    methods.map(|method| method.name.as_str())
}

fn is_method(name: &str) -> bool {
    methods().any(|method| method == name)
}

/// The kind of file, and the date of the times in the lines.
fn head(traffic: &Traffic, conversations: usize) -> String {
    let others = match traffic.capture.connections.len().saturating_sub(conversations) {
        0 => String::new(),
        others => format!(", {others} more of other services"),
    };
    let started = zoned(traffic.capture.started_at_us);
    let started = started
        .map_or("?".to_owned(), |started| started.strftime("%Y-%m-%d %H:%M:%S%:z").to_string());
    let what = match &traffic.recording {
        Some(Header { upstream, listener, .. }) if !listener.is_empty() => {
            format!("recording of {} at {}", printable(upstream), printable(listener))
        }
        Some(Header { upstream, .. }) => format!("recording from {}", printable(upstream)),
        None => "packet capture".to_owned(),
    };
    format!("{what}\nstarted {started}, {conversations} connections{others}\n\n")
}

fn zoned(us: u64) -> Option<jiff::Zoned> {
    let at = Timestamp::from_microsecond(i64::try_from(us).ok()?).ok()?;
    Some(at.to_zoned(TimeZone::system()))
}

/// Lines are printed in batches, to save system calls.
const LOT_BYTES: usize = 64 * 1024;

fn print_text<'a>(
    wanted: impl Iterator<Item = &'a Item<'a>>,
    started_at_us: u64,
    shape: Shape,
    console: &mut Console<'_>,
) -> anyhow::Result<()> {
    let width = console.width.filter(|_| shape == Shape::Short);
    let mut lot = String::new();
    for item in wanted {
        let at_us = started_at_us.saturating_add(item.at.as_micros() as u64);
        let time = zoned(at_us).map_or(String::new(), |at| at.strftime("%H:%M:%S%.6f").to_string());
        let line = text(item, shape);
        let line = format!("{time} {}", printable(&line));
        match width {
            Some(width) => lot.push_str(&cut(&line, width)),
            None => lot.push_str(&line),
        }
        lot.push('\n');
        if lot.len() >= LOT_BYTES {
            console.print(&lot)?;
            lot.clear();
        }
    }
    Ok(console.print(&lot)?)
}

fn print_json<'a>(
    wanted: impl Iterator<Item = &'a Item<'a>>,
    started_at_us: u64,
    console: &mut Console<'_>,
) -> anyhow::Result<()> {
    let mut lot = String::new();
    for item in wanted {
        let object = serde_json::to_string(&json(item, started_at_us))?;
        lot.push_str(&harmless_json(&object));
        lot.push('\n');
        if lot.len() >= LOT_BYTES {
            console.print(&lot)?;
            lot.clear();
        }
    }
    Ok(console.print(&lot)?)
}

/// The statistics of a method for programs. A time that is not known is left out.
fn object(method: &MethodStatistics) -> serde_json::Value {
    let mut object = value!({
        "service": method.service.name(),
        "method": method.method,
        "calls": method.calls,
        "answered": method.answered,
        "errors": method.errors,
        "call_bytes": method.call_bytes,
        "answer_bytes": method.answer_bytes,
    });
    let times = [("median_us", method.median), ("percentile_99_us", method.slowest_percent)];
    for (name, time) in times {
        if let (Some(object), Some(time)) = (object.as_object_mut(), time) {
            object.insert(name.to_owned(), value!(time.as_micros() as u64));
        }
    }
    object
}

fn print_statistics(
    methods: &[MethodStatistics],
    form: Form,
    full: bool,
    console: &mut Console<'_>,
) -> anyhow::Result<()> {
    if form == Form::Json {
        let methods: Vec<_> = methods.iter().map(object).collect();
        return console.print_json(&methods);
    }
    let mut table = Table::new(&[
        Column::text("METHOD", 12),
        Column::number("CALLS"),
        Column::number("ANSWERED"),
        Column::number("ERRORS"),
        Column::number("MEDIAN"),
        Column::number("99 %"),
        Column::number("BYTES"),
    ]);
    for method in methods {
        let time = |time: Option<Duration>| {
            Cell::from(time.map_or("-".to_owned(), |time| {
                format!("{:.3} ms", time.as_micros() as f64 / 1000.0)
            }))
        };
        table.row([
            Cell::from(method.method.as_str()),
            Cell::from(method.calls.to_string()),
            Cell::from(method.answered.to_string()),
            Cell::from(method.errors.to_string()),
            time(method.median),
            time(method.slowest_percent),
            Cell::from((method.call_bytes + method.answer_bytes).to_string()),
        ]);
    }
    Ok(console.print(&table.render(console, full))?)
}
