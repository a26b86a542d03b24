//! `corona sessions`: lists, describes and ends sessions, and explains why one waits.
//!
//! The first three are calls that every cluster manager has; the last is read from the pages of
//! this program's.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use corona::api::cluster::{self as api, ByType, Grant, PoolName, SessionDetail, Wait, WaitReason};
use corona::engine::types::ResourceType;
use corona::wire::Exception;
use corona::wire::calls::ClusterManagerCall as Call;
use corona::wire::generated::{self as wire, KillSessionsArgs};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::EXIT_FAILED;
use super::cluster::{CallAndPageArguments, Cluster, ClusterArguments, WebArguments, block_on};
use super::session_calls::{
    KILL, granted, pool_name, pool_text, priority_name, running, session_info, unless_in_safe_mode,
};
use super::session_list::List;
use super::times::{Ago, Date};
use super::web::{Answer, Web};
use corona_terminal::console::{Console, OutputArguments, printable};
use corona_terminal::facts;
use corona_terminal::table::{Column, Table, cut, number};
use corona_terminal::wrap::wrapped;

const EXAMPLES: &str = "\
Examples:
  Running sessions of a pool, with their slots:
    corona sessions list --pool default.defaultpool
  Sessions that have ended:
    corona sessions list --retired
  As JSON, for a program:
    corona sessions list --output json
  Why a job gets no slots:
    corona sessions explain 202611210005.1
  End two sessions:
    corona sessions kill 202611210005.1 202611210005.7

Exit status: 0 done; 1 failed or not all done, with a line on stderr; 2 wrong
usage.";

/// List, describe, explain and end sessions
///
/// 'list', 'info' and 'kill' call any cluster manager, the original or this
/// one. 'explain' requires the pages of a cluster manager of this program.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    List(List),
    #[command(aliases = ["describe", "show"])]
    Info(Info),
    Kill(Kill),
    Explain(Explain),
}

/// Describe a session: its registration and the slots that it holds
#[derive(Args, Clone, Debug)]
struct Info {
    /// The session's handle, as shown in the list
    session: String,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    cluster: CallAndPageArguments,
}

/// End sessions; their job trackers notice at their next call
#[derive(Args, Clone, Debug)]
struct Kill {
    /// Handles, as shown in the list
    #[arg(required = true)]
    sessions: Vec<String>,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Explain why a session's requests wait
#[derive(Args, Clone, Debug)]
struct Explain {
    /// The session's handle, as shown in the list
    session: String,

    /// Also list the slots that it holds
    #[arg(long)]
    grants: bool,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    web: WebArguments,
}

/// Does it and prints it.
///
/// # Errors
/// When the cluster manager cannot be reached, does not answer, or is in safe mode.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    match arguments.action {
        Action::List(list) => list.run(console),
        Action::Info(info) => info.run(console),
        Action::Kill(kill) => kill.run(console),
        Action::Explain(explain) => explain.run(console),
    }
}

#[derive(Serialize)]
struct Granted {
    granted: i64,
}

/// The slots that a session holds, as far as the cluster manager reports them.
fn slots_of(session: &wire::RunningSession) -> ByType<Granted> {
    let holds = |kind| Some((kind, Granted { granted: granted(session, kind)?.into() }));
    ResourceType::ALL.into_iter().filter_map(holds).collect()
}

/// A session's registration as JSON.
#[derive(Serialize)]
struct SessionInfo {
    handle: String,
    name: String,
    user: String,
    group_ids: Vec<String>,
    address: api::Address,
    /// The pool that it was submitted to.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_pool: Option<PoolName>,
    /// Its pool after redirects, if the cluster manager reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<PoolName>,
    priority: String,
    no_preempt: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    types: Option<ByType<Granted>>,
}

impl Info {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
        let (cluster, pages) = self.cluster.find()?;
        let info = block_on(look_up(&cluster, pages.as_ref(), self.session))?;
        self.output.show(console, &info, |_| info_table(&info))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Makes a call; if it is refused in safe mode, reads the page of this
/// program's cluster manager.
async fn look_up(
    cluster: &Cluster,
    pages: Option<&Web>,
    handle: String,
) -> anyhow::Result<SessionInfo> {
    let mut manager = cluster.cluster_manager().await?;
    let info = session_info(&mut manager, &handle).await?;
    if let (Err(Exception::SafeMode(_)), Some(pages)) = (&info, pages)
        && let Ok(Answer::Found(detail)) = pages.api(&page_of(&handle)).await
    {
        return Ok(detail_info(detail));
    }
    let Some(info) = unless_in_safe_mode(info, "show a session")? else {
        bail!("no session {handle} is running");
    };
    // Beside the point: the original fails in this call while any session has no pool.
    let listed = match running(&mut manager).await {
        Ok(Ok(sessions)) => sessions.into_iter().find(|session| session.handle == handle),
        _ => None,
    };
    let listed = listed.map(|session| (pool_name(&session.pool_info), slots_of(&session)));
    let (pool, types) = listed.unzip();
    Ok(SessionInfo {
        handle,
        name: info.name,
        user: info.user_id,
        group_ids: info.group_ids.unwrap_or_default(),
        address: api::Address { host: info.address.host, port: info.address.port },
        asked_pool: info.pool_info_strings.as_ref().map(pool_name),
        pool,
        priority: priority_name(info.priority).to_owned(),
        no_preempt: info.no_preempt.unwrap_or_default(),
        url: info.url.filter(|url| !url.is_empty()),
        deadline_ms: info.deadline.filter(|deadline| *deadline != 0),
        types,
    })
}

/// A session's registration, as its page has it.
fn detail_info(detail: SessionDetail) -> SessionInfo {
    let SessionDetail { session, address, group_ids, no_preempt, .. } = detail;
    let holds = |counts: &api::SessionCounts| Granted { granted: counts.granted };
    let types = session.types.iter().map(|(kind, counts)| (*kind, holds(counts))).collect();
    SessionInfo {
        handle: session.handle,
        name: session.name,
        user: session.user,
        group_ids,
        address,
        asked_pool: session.asked_pool,
        pool: Some(session.pool),
        priority: session.priority,
        no_preempt,
        url: session.url,
        deadline_ms: session.deadline_ms,
        types: Some(types),
    }
}

fn info_table(info: &SessionInfo) -> String {
    let slots = info.types.as_ref().map(|types| {
        let each = types.iter().map(|(kind, granted)| format!("{} {kind}", granted.granted));
        each.collect::<Vec<_>>().join(", ")
    });
    let asked = info.asked_pool.as_ref().map(pool_text);
    let pool = info.pool.as_ref().map(pool_text).or_else(|| asked.clone());
    let redirected_from = asked.filter(|asked| pool.as_ref() != Some(asked));
    let lines = [
        ("Session", Some(info.handle.clone())),
        ("Name", Some(info.name.clone())),
        ("User", Some(info.user.clone())),
        ("User's groups", Some(info.group_ids.join(", ")).filter(|groups| !groups.is_empty())),
        ("Pool", pool),
        ("Asked for pool", redirected_from),
        ("Priority", Some(info.priority.clone())),
        ("Deadline", info.deadline_ms.map(|deadline| Date(deadline).to_string())),
        ("Not to be preempted", info.no_preempt.then(|| "yes".to_owned())),
        ("Notified at", Some(format!("{}:{}", info.address.host, info.address.port))),
        ("Page", info.url.clone()),
        ("Slots held", slots),
    ];
    facts(lines)
}

/// The result as JSON.
#[derive(Default, Serialize)]
struct Killed {
    killed: Vec<String>,
    /// Handles that no running session has.
    unknown: Vec<String>,
}

impl Kill {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
        let cluster = self.cluster.find()?;
        let outcome = block_on(kill(&cluster, self.sessions))?;
        for handle in &outcome.unknown {
            console.complain(&format!("corona: no session {} is running\n", printable(handle)));
        }
        self.output.show(console, &outcome, |_| {
            outcome.killed.iter().map(|handle| format!("Killed {handle}\n")).collect()
        })?;
        let all_done = outcome.unknown.is_empty();
        Ok(if all_done { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
    }
}

/// Kills the running sessions of the list. It first asks which sessions run,
/// because the original stops at the first that does not, and this program
/// ignores it.
async fn kill(cluster: &Cluster, handles: Vec<String>) -> anyhow::Result<Killed> {
    let mut manager = cluster.cluster_manager().await?;
    let mut outcome = Killed::default();
    for handle in handles {
        if outcome.killed.contains(&handle) || outcome.unknown.contains(&handle) {
            continue;
        }
        let info = session_info(&mut manager, &handle).await?;
        match unless_in_safe_mode(info, KILL)? {
            Some(_) => outcome.killed.push(handle),
            None => outcome.unknown.push(handle),
        }
    }
    let call = match outcome.killed.as_slice() {
        [] => return Ok(outcome),
        [one] => Call::KillSession { id: Some(one.clone()) },
        several => {
            let session_ids = several.to_vec();
            Call::KillSessions { args: Some(KillSessionsArgs { session_ids, who: who() }) }
        }
    };
    unless_in_safe_mode(manager.call(&call).await?, KILL)?;
    Ok(outcome)
}

/// The user's name, for the cluster manager's log.
fn who() -> String {
    let user = std::env::var("USER").unwrap_or_default();
    if user.is_empty() { "corona".into() } else { user }
}

/// The path in the API of a session's details.
fn page_of(handle: &str) -> String {
    format!("/api/v1/sessions/{}", utf8_percent_encode(handle, NON_ALPHANUMERIC))
}

impl Explain {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
        let web = self.web.find()?;
        let path = page_of(&self.session);
        let detail: SessionDetail = match block_on(web.api(&path))? {
            Answer::Found(detail) => detail,
            Answer::NotFound(what) => bail!("{what}"),
            Answer::NoApi => bail!(
                "{} have no explanations: this is the original cluster manager, which does not report why requests wait",
                web.who()
            ),
        };
        let Explain { grants, output, .. } = self;
        output
            .show(console, &detail, |console| explanation(&detail, grants, console, output.wide))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Explains why the requests of a session wait.
///
/// # Errors
/// When the cluster manager does not answer, does not know the session, or does not explain.
pub(super) fn explain(
    session: String,
    grants: bool,
    output: OutputArguments,
    web: WebArguments,
    console: &mut Console<'_>,
) -> anyhow::Result<ExitCode> {
    Explain { session, grants, output, web }.run(console)
}

fn explanation(
    detail: &SessionDetail,
    with_grants: bool,
    console: &Console<'_>,
    wide: bool,
) -> String {
    let session = &detail.session;
    let title = format!("{} {}", printable(&session.handle), printable(&session.name));
    let width = console.width.filter(|_| !wide).unwrap_or(usize::MAX);
    let pool = pool_text(&session.scheduling_pool);
    let asked = session.asked_pool.as_ref().map(pool_text).filter(|asked| *asked != pool);
    let asked = asked.map(|asked| format!(" (asked for {asked})")).unwrap_or_default();
    let mut text = format!(
        "{}\nof {} in pool {}{}, priority {}, started {}\n\n",
        cut(&title, width),
        printable(&session.user),
        printable(&pool),
        printable(&asked),
        session.priority,
        Ago { now_ms: detail.now_ms, then_ms: session.started_ms },
    );
    text.push_str(&counts_table(session).render(console, wide));
    text.push('\n');
    let waits = waits(session, detail.waits.waits.as_deref());
    text.push_str(&wrapped(&waits, "", console.width.filter(|_| !wide)));
    if with_grants {
        text.push('\n');
        text.push_str(&grants_table(detail).render(console, wide));
        let left_out = detail.grants_total.saturating_sub(detail.grants.len());
        if left_out > 0 {
            let _ = writeln!(text, "and {left_out} more");
        }
    }
    text
}

fn counts_table(session: &api::Session) -> Table {
    let mut table = Table::new(&[
        Column::whole("TYPE"),
        Column::number("HOLDS"),
        Column::number("WAITING"),
        Column::number("REVOKED"),
        Column::number("MOST AT A TIME"),
        Column::number("FIRST WAIT"),
    ]);
    for (kind, counts) in &session.types {
        let first_wait = counts.first_wait_ms.map(|ms| format!("{}.{:03} s", ms / 1000, ms % 1000));
        table.row([
            kind.name().into(),
            counts.granted.to_string().into(),
            counts.waiting.to_string().into(),
            counts.revoked.to_string().into(),
            counts.max_concurrent.to_string().into(),
            number(first_wait),
        ]);
    }
    table
}

fn waits(session: &api::Session, waits: Option<&[Wait]>) -> String {
    let waiting: i64 = session.types.values().map(|counts| counts.waiting).sum();
    let Some(waits) = waits else {
        return match waiting {
            0 => "Nothing waits.\n".into(),
            _ => "This cluster manager does not report why requests wait.\n".into(),
        };
    };
    if waits.is_empty() {
        return "Nothing waits.\n".into();
    }
    let mut text = String::new();
    for wait in waits {
        let reason = reason_text(wait);
        let _ = writeln!(text, "{} {}: {}", wait.requests, wait.kind, printable(&reason));
    }
    text
}

/// The reason in English. Cluster managers before version 0.2 send none, so
/// what remains is the name of the reason.
fn reason_text(wait: &Wait) -> String {
    if let Some(text) = &wait.text {
        return text.clone();
    }
    match &wait.reason {
        WaitReason::Other => "the reason is not known to this version of corona".into(),
        known => known.name().replace('_', " "),
    }
}

fn grants_table(detail: &SessionDetail) -> Table {
    let mut table = Table::new(&[
        Column::number("REQUEST"),
        Column::whole("TYPE"),
        Column::text("NODE", 12),
        Column::text("ADDRESS", 12),
        Column::whole("HELD FOR"),
    ]);
    for Grant { id, kind, node, address, granted_ms } in &detail.grants {
        let held = Ago { now_ms: detail.now_ms, then_ms: *granted_ms };
        table.row([
            id.to_string().into(),
            kind.name().into(),
            node.as_str().into(),
            format!("{}:{}", address.host, address.port).into(),
            held.span().into(),
        ]);
    }
    table
}
