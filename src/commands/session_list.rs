//! `corona sessions list`: the sessions that run, or those that have ended.
//!
//! Every cluster manager has a call that lists running sessions. Pending requests and start times
//! are only on the pages, of this program and of the original, so the list has them if the pages
//! can be read.

use std::collections::HashMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use corona::api::cluster::{
    self as api, ByResource, ByType, Paging, PoolName, RetiredSession, RetiredSessions,
    handle_order,
};
use corona::engine::types::ResourceType;
use corona::wire::Exception;
use corona::wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply,
};
use corona::wire::generated::{self as wire, ActualPoolInfoArgs, PoolInfoStrings};
use serde::Serialize;

use super::cluster::{CallAndPageArguments, Cluster, Peer, block_on};
use super::java_pages;
use super::resources;
use super::session_calls::{
    granted, pool_name, pool_text, priority_name, running, unless_in_safe_mode,
};
use super::times::Ago;
use super::watch::WatchArguments;
use super::web::{Answer, Web};
use corona_terminal::console::{Console, Form, OutputArguments, printable};
use corona_terminal::table::{Column, Table, number};

const EXAMPLES: &str = "\
WAITING is the number of pending requests, AGE the time since the session
started. No call returns them, so they are read from the pages, and left out if
the pages cannot be read. With --address, add --http-address. If the terminal
is too narrow, PRIORITY is left out if every session has NORMAL.

Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.";

/// List running sessions and their slots, or sessions that have ended
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct List {
    /// Only sessions of this user
    #[arg(long)]
    user: Option<String>,

    /// Only sessions in this pool or group
    #[arg(long, value_name = "GROUP[.POOL]")]
    pool: Option<String>,

    /// List sessions that have ended instead, the latest first
    #[arg(long)]
    retired: bool,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    watch: WatchArguments,

    #[command(flatten)]
    cluster: CallAndPageArguments,
}

/// The list as JSON. Members have the names that the JSON API gives them.
#[derive(Serialize)]
struct Sessions {
    /// When the pages were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    now_ms: Option<i64>,
    sessions: Vec<ListedSession>,
    /// The pool to which sessions of the pool of `--pool` are redirected, if
    /// they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    redirected_to: Option<PoolName>,
}

/// A session as any cluster manager reports it.
#[derive(Serialize)]
struct ListedSession {
    handle: String,
    name: String,
    user: String,
    /// After redirects.
    pool: PoolName,
    priority: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<i64>,
    /// Present if the pages could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_ms: Option<i64>,
    types: ByType<Counts>,
    /// What its grants take, if the pages could be read and the cluster counts resources.
    #[serde(skip_serializing_if = "ByResource::is_empty")]
    resources: ByResource<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dominant_share: Option<f64>,
}

#[derive(Serialize)]
struct Counts {
    granted: i64,
    /// Present if the pages could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<i64>,
}

impl From<wire::RunningSession> for ListedSession {
    fn from(session: wire::RunningSession) -> ListedSession {
        let holds =
            |kind| Some((kind, Counts { granted: granted(&session, kind)?.into(), waiting: None }));
        let types = ResourceType::ALL.into_iter().filter_map(holds).collect();
        ListedSession {
            types,
            pool: pool_name(&session.pool_info),
            priority: priority_name(session.priority).to_owned(),
            deadline_ms: session.deadline.filter(|deadline| *deadline != 0),
            started_ms: None,
            resources: ByResource::new(),
            dominant_share: None,
            handle: session.handle,
            name: session.name,
            user: session.user_id,
        }
    }
}

impl From<api::Session> for ListedSession {
    fn from(session: api::Session) -> ListedSession {
        let counts = |counts: api::SessionCounts| Counts {
            granted: counts.granted,
            waiting: Some(counts.waiting),
        };
        ListedSession {
            types: session.types.into_iter().map(|(kind, of)| (kind, counts(of))).collect(),
            pool: session.pool,
            priority: session.priority,
            deadline_ms: session.deadline_ms,
            started_ms: Some(session.started_ms),
            resources: session.resources,
            dominant_share: session.dominant_share,
            handle: session.handle,
            name: session.name,
            user: session.user,
        }
    }
}

impl List {
    /// Asks and prints.
    ///
    /// # Errors
    /// When the cluster manager cannot be reached, or is in safe mode and its
    /// pages cannot be read.
    pub(super) fn run(self, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
        let List { user, pool, retired, output, watch, cluster } = self;
        let (cluster, pages) = cluster.find()?;
        let wanted = Wanted { user, pool };
        watch.run(console, |console| match (retired, &pages) {
            (false, pages) => show_running(&cluster, pages.as_ref(), &wanted, output, console),
            (true, Some(pages)) => show_retired(pages, &wanted, output, console),
            (true, None) => {
                bail!("only the pages list sessions that have ended; pass their address with --http-address")
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Which sessions are wanted.
struct Wanted {
    user: Option<String>,
    pool: Option<String>,
}

impl Wanted {
    fn wants(&self, user: &str, pool: &PoolName) -> bool {
        let is_in = |wanted: &String| *wanted == pool.group || *wanted == pool_text(pool);
        self.user.as_deref().is_none_or(|wanted| user == wanted)
            && self.pool.as_ref().is_none_or(is_in)
    }
}

fn show_running(
    cluster: &Cluster,
    pages: Option<&Web>,
    wanted: &Wanted,
    output: OutputArguments,
    console: &mut Console<'_>,
) -> anyhow::Result<()> {
    let mut list = block_on(read(cluster, pages, wanted))?;
    list.sessions.retain(|session| wanted.wants(&session.user, &session.pool));
    list.sessions.sort_by(|a, b| handle_order(&a.handle, &b.handle));
    if output.output == Form::Json {
        return console.print_json(&list);
    }
    let mut text = match list.sessions.is_empty() {
        true => "No sessions.\n".into(),
        false => {
            let all = running_table(&list, Priorities::Shown);
            let is_usual = |session: &ListedSession| session.priority == "NORMAL";
            let needs_room = list.now_ms.is_some() && !all.fits(console, output.wide);
            let table = match needs_room && list.sessions.iter().all(is_usual) {
                // The column has no information.
                true => running_table(&list, Priorities::LeftOut),
                false => all,
            };
            table.render(console, output.wide)
        }
    };
    if let (Some(from), Some(to)) = (&wanted.pool, &list.redirected_to) {
        let (from, to) = (printable(from), pool_text(to));
        // Writing to a string does not fail.
        let _ = writeln!(text, "Sessions submitted to {from} run in {}.", printable(&to));
    }
    Ok(console.print(&text)?)
}

/// The sessions as the calls list them, with further data of the pages; as the pages list them if
/// calls are refused in safe mode.
async fn read(cluster: &Cluster, pages: Option<&Web>, wanted: &Wanted) -> anyhow::Result<Sessions> {
    let of_calls = async {
        let mut manager = cluster.cluster_manager().await?;
        let sessions = running(&mut manager).await?;
        anyhow::Ok((sessions, redirect(&mut manager, wanted.pool.as_deref()).await))
    };
    let of_pages = async {
        match pages {
            // Beside the point of a list, so that it waits for them for less long.
            Some(pages) => read_pages(&pages.within(PATIENCE)).await.ok(),
            None => None,
        }
    };
    let (of_calls, of_pages) = tokio::join!(of_calls, of_pages);
    let (sessions, redirected_to) = of_calls?;
    let (now_ms, details) = of_pages.unzip();
    let sessions = match (sessions, details) {
        (Err(Exception::SafeMode(_)), Some(Details::Ours(sessions))) => {
            sessions.into_iter().map(ListedSession::from).collect()
        }
        (sessions, details) => {
            let sessions = unless_in_safe_mode(sessions, "list sessions")?;
            let sessions = sessions.into_iter().map(ListedSession::from).collect();
            match details {
                Some(details) => details.add_to(sessions),
                None => sessions,
            }
        }
    };
    Ok(Sessions { now_ms, sessions, redirected_to })
}

/// How long the list waits for pages.
const PATIENCE: Duration = Duration::from_secs(5);

/// The running sessions as the pages list them.
enum Details {
    Ours(Vec<api::Session>),
    Originals(Vec<java_pages::ActiveSession>),
}

async fn read_pages(pages: &Web) -> anyhow::Result<(i64, Details)> {
    match sessions_of_pages(pages).await? {
        Some(sessions) => Ok((sessions.now_ms, Details::Ours(sessions.sessions))),
        None => {
            let sessions = java_pages::active_sessions(pages).await?;
            let now_ms = jiff::Timestamp::now().as_millisecond();
            Ok((now_ms, Details::Originals(sessions)))
        }
    }
}

/// All sessions that this program's pages list, page by page; none if they are the original's.
pub(super) async fn sessions_of_pages(pages: &Web) -> anyhow::Result<Option<api::Sessions>> {
    let mut all: Option<api::Sessions> = None;
    loop {
        let after = all.as_ref().and_then(|all| all.next.clone());
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &Paging::MOST.to_string());
        if let Some(after) = &after {
            query.append_pair("after", after);
        }
        let path = format!("/api/v1/sessions?{}", query.finish());
        let mut page: api::Sessions = match pages.api(&path).await? {
            Answer::Found(page) => page,
            Answer::NotFound(what) => bail!("{} list no sessions: {what}", pages.who()),
            Answer::NoApi => return Ok(None),
        };
        // A handle that does not lead on would lead round and round.
        let leads_on = page.next.is_some() && page.next != after;
        // The list grows in place: a copy for each page would cost the square of their number.
        if let Some(mut before) = all {
            before.sessions.append(&mut page.sessions);
            page.sessions = before.sessions;
        }
        if !leads_on {
            page.next = None;
            return Ok(Some(page));
        }
        all = Some(page);
    }
}

impl Details {
    /// Adds start and waiting requests to the sessions that the pages list too. Another cluster
    /// manager's pages may have a session of the same handle, but hardly of that name.
    fn add_to(self, mut sessions: Vec<ListedSession>) -> Vec<ListedSession> {
        type Holding = (ByResource<u64>, Option<f64>);
        type Known = (String, String, Option<i64>, ByType<i64>, Holding);
        let known: HashMap<String, Known> = match self {
            Details::Ours(ours) => ours
                .into_iter()
                .map(|session| {
                    let waiting = session.types.iter();
                    let waiting = waiting.map(|(kind, counts)| (*kind, counts.waiting)).collect();
                    let started_ms = Some(session.started_ms);
                    let holding = (session.resources, session.dominant_share);
                    let known = (session.name, session.user, started_ms, waiting, holding);
                    (session.handle, known)
                })
                .collect(),
            Details::Originals(theirs) => theirs
                .into_iter()
                .map(|session| {
                    let (started_ms, waiting) = (session.started_ms, session.waiting);
                    let holding = Holding::default();
                    let known = (session.name, session.user, started_ms, waiting, holding);
                    (session.handle, known)
                })
                .collect(),
        };
        for session in &mut sessions {
            let Some((name, user, started_ms, waiting, holding)) = known.get(&session.handle)
            else {
                continue;
            };
            if (name, user) != (&session.name, &session.user) {
                continue;
            }
            session.started_ms = *started_ms;
            (session.resources, session.dominant_share) = holding.clone();
            for (kind, waiting) in waiting {
                if let Some(counts) = session.types.get_mut(kind) {
                    counts.waiting = Some(*waiting);
                } else if *waiting > 0 {
                    session.types.insert(*kind, Counts { granted: 0, waiting: Some(*waiting) });
                }
            }
        }
        sessions
    }
}

/// The pool in which sessions run that ask for `wanted`, if that is another pool. A group has none.
/// Secondary for a list, so no error if a cluster manager does not report it.
async fn redirect(manager: &mut Peer<ClusterManager>, wanted: Option<&str>) -> Option<PoolName> {
    let (group, pool) = wanted?.split_once('.')?;
    let asked = PoolInfoStrings { pool_group_name: group.into(), pool_name: pool.into() };
    // The pool of a small job; only large ones are redirected by their size.
    let args = ActualPoolInfoArgs { pool_info_string: asked.clone(), job_input_size: 0 };
    let call = Call::GetActualPoolInfo { args: Some(args) };
    let Ok(Ok(Reply::GetActualPoolInfo(actual))) = manager.call(&call).await else { return None };
    (actual != asked).then(|| pool_name(&actual))
}

/// Whether the table has the priorities.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Priorities {
    Shown,
    LeftOut,
}

fn running_table(list: &Sessions, priorities: Priorities) -> Table {
    // Without pages there is nothing to show in two columns.
    let is_known = list.now_ms.is_some();
    let more = |column: Column| is_known.then_some(column);
    let has_priorities = priorities == Priorities::Shown;
    let is_counted = list.sessions.iter().any(|session| session.dominant_share.is_some());
    let columns = [
        Some(Column::whole("SESSION")),
        Some(Column::text("USER", 6)),
        Some(Column::text("POOL", 16)),
        has_priorities.then_some(Column::whole("PRIORITY")),
        Some(Column::number("MAP")),
        Some(Column::number("RED")),
        Some(Column::number("JT")),
        is_counted.then_some(Column::number("RESOURCES")),
        more(Column::number("WAITING")),
        more(Column::number("AGE")),
        Some(Column::text("NAME", 10)),
    ];
    let mut table = Table::new(&columns.into_iter().flatten().collect::<Vec<_>>());
    for session in &list.sessions {
        let slots = |kind| number(session.types.get(&kind).map(|counts| counts.granted));
        let waiting: Vec<i64> =
            session.types.values().filter_map(|counts| counts.waiting).collect();
        let waiting = (!waiting.is_empty()).then(|| waiting.iter().sum::<i64>());
        let age = list.now_ms.zip(session.started_ms);
        let age = age.map(|(now_ms, then_ms)| Ago { now_ms, then_ms }.short());
        let cells = [
            Some(session.handle.as_str().into()),
            Some(session.user.as_str().into()),
            Some(pool_text(&session.pool).into()),
            has_priorities.then(|| session.priority.as_str().into()),
            Some(slots(ResourceType::Map)),
            Some(slots(ResourceType::Reduce)),
            Some(slots(ResourceType::JobTracker)),
            is_counted.then(|| number(session.dominant_share.map(resources::percent))),
            is_known.then(|| number(waiting)),
            is_known.then(|| number(age)),
            Some(session.name.as_str().into()),
        ];
        table.row(cells.into_iter().flatten());
    }
    table
}

fn show_retired(
    pages: &Web,
    wanted: &Wanted,
    output: OutputArguments,
    console: &mut Console<'_>,
) -> anyhow::Result<()> {
    let mut list = block_on(read_retired(pages))?;
    list.sessions.retain(|session| wanted.wants(&session.user, &session.pool));
    output.show(console, &list, |console| match list.sessions.is_empty() {
        true => "No sessions have ended.\n".to_owned(),
        false => retired_table(&list).render(console, output.wide),
    })
}

async fn read_retired(pages: &Web) -> anyhow::Result<RetiredSessions> {
    match pages.api(&format!("/api/v1/retired?limit={}", Paging::MOST)).await? {
        Answer::Found(sessions) => Ok(sessions),
        Answer::NotFound(what) => Err(anyhow!("{} list no sessions: {what}", pages.who())),
        Answer::NoApi => java_pages::retired_sessions(pages).await,
    }
}

fn retired_table(list: &RetiredSessions) -> Table {
    let mut table = Table::new(&[
        Column::whole("SESSION"),
        Column::text("USER", 6),
        Column::text("POOL", 10),
        Column::whole("STATUS"),
        Column::number("ENDED"),
        Column::number("RAN"),
        Column::number("MAP"),
        Column::number("RED"),
        Column::text("NAME", 10),
    ]);
    for session in &list.sessions {
        let RetiredSession {
            handle, name, user, pool, started_ms, ended_ms, status, types, ..
        } = session;
        let slots = |kind| number(types.get(&kind).map(|counts| counts.fulfilled));
        table.row([
            handle.as_str().into(),
            user.as_str().into(),
            pool_text(pool).into(),
            status.as_str().into(),
            Ago { now_ms: list.now_ms, then_ms: *ended_ms }.short().into(),
            Ago { now_ms: *ended_ms, then_ms: *started_ms }.short().into(),
            slots(ResourceType::Map),
            slots(ResourceType::Reduce),
            name.as_str().into(),
        ]);
    }
    table
}
