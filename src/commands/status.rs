//! `corona status` and `corona admin status`: the state of a cluster manager and its cluster.
//!
//! This program's cluster manager serves the whole status; the original only the data of its calls
//! and its page.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use corona::api::cluster::{
    self as api, ByType, OperationAttempt, OperationStatus, Severity, Slots,
};
use corona::wire::Exception;
use serde::Serialize;

use super::EXIT_FAILED;
use super::cluster::{CallAndPageArguments, Cluster, block_on};
use super::java_pages::{self, Partial, PartialSafeMode};
use super::resources;
use super::session_calls::running;
use super::times::{Ago, Date};
use super::watch::WatchArguments;
use super::web::{Answer, Web};
use corona_terminal::console::{Console, OutputArguments, printable};
use corona_terminal::table::{Column, Table, Tone};
use corona_terminal::{counted, facts};

pub(super) const EXAMPLES: &str = "\
Examples:
  At a glance:
    corona status
  Repeatedly, while you change something:
    corona status --watch
  Is safe mode on?
    corona status --output json | jq .safe_mode.on

With --address, add --http-address; otherwise only safe mode and the number of
sessions are known.
Exit status: 0 the cluster manager answers; 1 its calls or its pages do not, as
the output and a line on stderr report; 2 wrong usage.";

/// Show the state of the cluster: safe mode, uptime, nodes, slots, problems
///
/// Calls cm.server.address and reads the pages at cm.server.http.address, of
/// this cluster manager or of the original, which reports less.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    shown: ShownArguments,

    #[command(flatten)]
    cluster: CallAndPageArguments,
}

/// How the status is shown.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct ShownArguments {
    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    watch: WatchArguments,
}

/// Asks and prints.
///
/// # Errors
/// When neither service replies.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let (cluster, pages) = arguments.cluster.find()?;
    show(&cluster, pages.as_ref(), arguments.shown, console)
}

/// The same for a cluster that was found already.
pub(super) fn show(
    cluster: &Cluster,
    pages: Option<&Web>,
    shown: ShownArguments,
    console: &mut Console<'_>,
) -> anyhow::Result<ExitCode> {
    let mut all_answered = true;
    let ShownArguments { output, watch } = shown;
    watch.run(console, |console| {
        let report = block_on(ask(cluster, pages))?;
        all_answered = report.failures().next().is_none();
        output.show(console, &report, |console| text(&report, console, output.wide))?;
        for failure in report.failures() {
            console.complain(&format!("corona: {}\n", printable(failure)));
        }
        Ok(())
    })?;
    Ok(if all_answered { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
}

/// The known part of the status, as JSON: the members of `/api/v1/status`, as far as they are
/// known, and the source.
#[derive(Debug, Serialize)]
struct Report {
    calls: Asked,
    #[serde(skip_serializing_if = "Option::is_none")]
    pages: Option<Asked>,
    #[serde(flatten)]
    status: Status,
}

/// The result of asking one of the two services.
#[derive(Debug, Serialize)]
struct Asked {
    address: String,
    answers: bool,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Status {
    /// This program's.
    Ours(Box<api::Status>),
    /// The original's, or the data of the calls if there are no pages.
    Partial(Partial),
}

impl Report {
    /// Why something does not answer.
    fn failures(&self) -> impl Iterator<Item = &str> {
        [Some(&self.calls), self.pages.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|asked| asked.error.as_deref())
    }
}

/// Asks both services at the same time.
async fn ask(cluster: &Cluster, pages: Option<&Web>) -> anyhow::Result<Report> {
    // Calls would be held for a leader, and closed in the end.
    if let Some(pages) = pages
        && let Ok(Some(standby)) = pages.standby().await
        && standby.ha.leader_pages.is_none()
    {
        bail!("{}: {}", pages.who(), standby.error);
    }
    let of_pages = async {
        match pages {
            Some(pages) => Some(ask_pages(pages).await),
            None => None,
        }
    };
    let (of_calls, of_pages) = tokio::join!(ask_calls(cluster), of_pages);
    let asked = |address: String, error: Option<&anyhow::Error>| Asked {
        address,
        answers: error.is_none(),
        error: error.map(super::one_line),
    };
    let calls = asked(cluster.address().to_string(), of_calls.as_ref().err());
    let asked_pages =
        pages.zip(of_pages.as_ref()).map(|(web, answer)| asked(web.url(), answer.as_ref().err()));
    let status = match (of_calls, of_pages) {
        (Err(calls), None) => return Err(calls),
        (Err(calls), Some(Err(pages))) => {
            let (calls, pages) = (super::one_line(&calls), super::one_line(&pages));
            // What to do is the same for both, and is said once.
            let calls = match (calls.split_once("; "), pages.split_once("; ")) {
                (Some((calls, hint)), Some((_, other))) if hint == other => calls,
                _ => &calls,
            };
            bail!("{calls}; {pages}")
        }
        (Ok(calls), None | Some(Err(_))) => Status::Partial(calls),
        (_, Some(Ok(Status::Ours(ours)))) => Status::Ours(ours),
        // The original's calls have data that an older page of it leaves out.
        (Ok(calls), Some(Ok(Status::Partial(page)))) => Status::Partial(Partial {
            safe_mode: calls.safe_mode,
            sessions: calls.sessions.or(page.sessions),
            ..page
        }),
        (Err(_), Some(Ok(page))) => page,
    };
    Ok(Report { calls, pages: asked_pages, status })
}

/// Whether safe mode is on, and how many sessions run.
async fn ask_calls(cluster: &Cluster) -> anyhow::Result<Partial> {
    let mut manager = cluster.cluster_manager().await?;
    let (on, sessions) = match running(&mut manager).await? {
        Ok(sessions) => (false, Some(sessions.len())),
        Err(Exception::SafeMode(_)) => (true, None),
        Err(other) => return Err(other.into()),
    };
    Ok(Partial { safe_mode: Some(PartialSafeMode { on }), sessions, ..Partial::default() })
}

async fn ask_pages(pages: &Web) -> anyhow::Result<Status> {
    match pages.api("/api/v1/status").await? {
        Answer::Found(status) => Ok(Status::Ours(Box::new(status))),
        Answer::NotFound(what) => bail!("{} serve no status: {what}", pages.who()),
        Answer::NoApi => Ok(Status::Partial(java_pages::cluster(pages).await?)),
    }
}

/// Why an administrative call failed, as the cluster manager reports
/// afterwards; none if it does not. `operation` is the name that its status has
/// for the call.
pub(super) async fn reason_of_failure(pages: &Web, operation: &str) -> Option<String> {
    let status = soon(pages).await?;
    let of_call = status.operations.into_iter().find(|known| known.operation == operation)?;
    of_call.last.reason.filter(|_| !of_call.last.succeeded)
}

/// Which host files are in force, after they were read again. None if the pages do not say it.
pub(super) async fn host_files(pages: &Web) -> Option<String> {
    Some(host_file_lines(&soon(pages).await?.host_files?))
}

/// The status, unless it takes long.
async fn soon(pages: &Web) -> Option<api::Status> {
    const PATIENCE: Duration = Duration::from_secs(5);
    pages.within(PATIENCE).found("/api/v1/status").await
}

fn host_file_lines(files: &api::HostFilesStatus) -> String {
    let api::HostFilesStatus { include, exclude } = files;
    let line = |key: &str, file: &Option<api::HostFileStatus>| match file {
        Some(api::HostFileStatus { path, hosts }) => {
            format!("{key}: {path}, {}\n", counted(*hosts as u64, "host"))
        }
        None => {
            format!("{key}: not set when the cluster manager was started; a restart reads it\n")
        }
    };
    line("cm.hosts", include) + &line("cm.hosts.exclude", exclude)
}

fn text(report: &Report, console: &Console<'_>, wide: bool) -> String {
    let calls = report.calls.address.as_str();
    let calls = if report.calls.answers { calls.to_owned() } else { format!("{calls}, no answer") };
    let pages = report.pages.as_ref().map(|asked| match asked.answers {
        true => asked.address.clone(),
        false => format!("{}, no answer", asked.address),
    });
    let mut lines = vec![("Calls", Some(calls)), ("Pages", pages)];
    let (slots, problems) = match &report.status {
        Status::Ours(status) => {
            lines.extend(our_lines(status));
            (Some(&status.slots), &status.problems)
        }
        Status::Partial(partial) => {
            lines.extend(partial_lines(partial));
            (partial.slots.as_ref(), &partial.problems)
        }
    };
    let mut text = facts(lines);
    if let Some(slots) = slots.filter(|slots| !slots.is_empty()) {
        text.push('\n');
        text.push_str(&slots_table(slots).render(console, wide));
    }
    if let Status::Ours(status) = &report.status {
        if !status.resources.is_empty() {
            text.push('\n');
            text.push_str(&resources::of_cluster(&status.resources).render(console, wide));
            text.push_str(&resources::spread(&status.resources));
        }
        text.push_str(&failed_calls(&status.operations));
    }
    text.push_str(&problem_lines(problems, matches!(report.status, Status::Ours(_)), console));
    text
}

type StatusLine = (&'static str, Option<String>);

fn our_lines(status: &api::Status) -> Vec<StatusLine> {
    let now_ms = status.now_ms;
    let since = |then_ms| format!("since {}", Date(then_ms));
    let safe_mode = match status.safe_mode.on {
        true => format!("ON, {}", since(status.safe_mode.since_ms)),
        false => "off".to_owned(),
    };
    let file = &status.state_file;
    let saved = match (file.saved_ms, file.bytes) {
        (Some(saved_ms), Some(bytes)) => {
            format!("saved {}, {}", Ago { now_ms, then_ms: saved_ms }, Bytes(bytes))
        }
        (Some(saved_ms), None) => format!("saved {}", Ago { now_ms, then_ms: saved_ms }),
        (None, _) => "not there".to_owned(),
    };
    let proxy = &status.proxy_job_tracker;
    let flag = match (proxy.flag, proxy.acknowledged_ms) {
        (Some(flag), Some(then_ms)) => {
            let flag = if flag { "ON" } else { "off" };
            format!("has the flag {flag} {}", since(then_ms))
        }
        _ => "has not acknowledged the flag yet".to_owned(),
    };
    let up = Ago { now_ms, then_ms: status.process_started_ms }.span();
    // The first start of a process is a moment before it counts as started.
    const START_MS: i64 = 10_000;
    let first = (status.process_started_ms - status.first_started_ms > START_MS)
        .then(|| Date(status.first_started_ms).to_string());
    let mut lines = vec![
        ("Version", Some(status.version.clone())),
        ("Up", Some(format!("{up}, {}", since(status.process_started_ms)))),
        ("First started", first),
        ("Safe mode", Some(safe_mode)),
        ("Proxy job tracker", Some(format!("{}, {flag}", proxy.address))),
    ];
    lines.extend(status.ha.iter().flat_map(role_lines));
    lines.extend(status.journal.iter().flat_map(|journal| journal_lines(journal, now_ms)));
    lines.extend([
        ("State file", Some(format!("{}, {saved}", file.path))),
        ("Nodes", Some(status.nodes.to_string())),
        ("Sessions", Some(status.sessions.to_string())),
        ("Notifications", Some(format!("{} pending", status.pending_notifications))),
    ]);
    lines
}

/// The role among several instances, and the standbys.
fn role_lines(ha: &api::HaStatus) -> [StatusLine; 2] {
    let standby = |one: &api::StandbyOfLeader| {
        let may = match (one.in_sync, one.slow) {
            (true, _) => "may take over",
            (false, true) => "slow",
            (false, false) => "copying",
        };
        format!("{} ({may})", one.instance)
    };
    let standbys: Vec<String> = ha.standbys.iter().map(standby).collect();
    let standbys = if standbys.is_empty() { "none".to_owned() } else { standbys.join(", ") };
    [
        ("Role", Some(format!("{}, instance {}, epoch {}", ha.role, ha.instance, ha.epoch))),
        ("Standbys", Some(standbys)),
    ]
}

/// The journal, its last image, and the recovery of this process; nothing if none is kept.
fn journal_lines(journal: &api::JournalStatus, now_ms: i64) -> [StatusLine; 3] {
    let image = match journal.image_ms {
        Some(then_ms) => format!("made {}", Ago { now_ms, then_ms }),
        None => "none yet".to_owned(),
    };
    let recovery = journal.recovery.as_ref();
    [
        (
            "Journal",
            Some(format!("{}, {}, sync {}", journal.directory, Bytes(journal.bytes), journal.sync)),
        ),
        ("Last image", Some(format!("{image}, {} of records since", Bytes(journal.tail_bytes)))),
        (
            "Recovery",
            recovery.map(|it| format!("took {} ms, with {} records", it.took_ms, it.records)),
        ),
    ]
}

fn partial_lines(partial: &Partial) -> Vec<StatusLine> {
    let up = partial.now_ms.zip(partial.process_started_ms).map(|(now_ms, then_ms)| {
        format!("{}, since {}", Ago { now_ms, then_ms }.span(), Date(then_ms))
    });
    let on = partial.safe_mode.as_ref().map(|safe_mode| if safe_mode.on { "ON" } else { "off" });
    vec![
        ("Version", partial.version.clone()),
        ("Up", up),
        ("Safe mode", on.map(str::to_owned)),
        ("Nodes", partial.nodes.map(|nodes| nodes.to_string())),
        ("Sessions", partial.sessions.map(|sessions| sessions.to_string())),
    ]
}

fn slots_table(slots: &ByType<Slots>) -> Table {
    let mut table = Table::new(&[
        Column::whole("TYPE"),
        Column::number("USED"),
        Column::number("TOTAL"),
        Column::number("FREE"),
    ]);
    for (kind, Slots { total, used, .. }) in slots {
        table.row([
            kind.name().into(),
            used.to_string().into(),
            total.to_string().into(),
            total.saturating_sub(*used).to_string().into(),
        ]);
    }
    table
}

/// Administrative calls whose last one failed.
fn failed_calls(operations: &[OperationStatus]) -> String {
    let mut text = String::new();
    for OperationStatus { operation, last, .. } in operations {
        let OperationAttempt { finished_ms, caller, succeeded, reason } = last;
        if *succeeded {
            continue;
        }
        let name = operation.replace('_', "-");
        let why = reason.as_deref().unwrap_or("no reason is known");
        if text.is_empty() {
            text.push_str("\nFailed calls:\n");
        }
        let line = format!("{name} from {caller} at {}: {why}", Date(*finished_ms));
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {}", printable(&line));
    }
    text
}

fn problem_lines(problems: &[api::Problem], is_complete: bool, console: &Console<'_>) -> String {
    match (problems.is_empty(), is_complete) {
        (true, true) => return "\nNo problems.\n".into(),
        (true, false) => return String::new(),
        (false, _) => {}
    }
    let mut text = String::from("\nProblems:\n");
    for api::Problem { severity, text: what, .. } in problems {
        let (word, tone) = match severity {
            Severity::Error => ("error", Tone::Bad),
            Severity::Warning => ("warning", Tone::Notable),
            Severity::Other => ("problem", Tone::Notable),
        };
        let word = tone.paint(word, console.colours);
        let _ = writeln!(text, "  {word}: {}", printable(what));
    }
    text
}

/// A size in at most four digits.
struct Bytes(u64);

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0..0x400 => write!(f, "{} bytes", self.0),
            0x400..0x10_0000 => write!(f, "{} KiB", self.0 >> 10),
            0x10_0000..0x4000_0000 => write!(f, "{} MiB", self.0 >> 20),
            _ => write!(f, "{} GiB", self.0 >> 30),
        }
    }
}
