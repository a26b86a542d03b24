//! `corona pools info`: one pool or group, with its settings, its limits and its sessions.

use anyhow::bail;
use corona::api::cluster::{self as api, Pool, PoolCounts, handle_order};
use corona::engine::types::ResourceType;
use serde::Serialize;

use super::cluster::block_on;
use super::pools;
use super::resources;
use super::session_list::sessions_of_pages;
use super::times::Ago;
use super::web::Web;
use corona_terminal::console::{Console, OutputArguments};
use corona_terminal::facts;
use corona_terminal::table::{Cell, Column, Table, Tone, number};

/// The result as JSON.
#[derive(Serialize)]
struct Info {
    #[serde(flatten)]
    pool: Pool,
    /// The pools of a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pools: Option<Vec<String>>,
    /// The running sessions in it; the pages of the original do not have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    running_sessions: Option<Vec<api::Session>>,
}

/// Reads and prints a pool, `GROUP.POOL`, or a group.
///
/// # Errors
/// When there are no pages, or no such pool.
pub(super) fn show(
    web: &Web,
    name: &str,
    output: OutputArguments,
    console: &mut Console<'_>,
) -> anyhow::Result<()> {
    let (info, now_ms) = block_on(read(web, name))?;
    output.show(console, &info, |console| text(&info, now_ms, console, output.wide))
}

async fn read(web: &Web, name: &str) -> anyhow::Result<(Info, Option<i64>)> {
    let all = pools::read(web).await?.pools;
    let Some(pool) = all.iter().find(|pool| pools::is_named(pool, name)).cloned() else {
        bail!("{} list no pool {name}", web.who());
    };
    let pools = pool.pool.is_none().then(|| {
        let of_group = all.iter().filter(|other| other.group == pool.group);
        of_group.filter_map(|other| other.pool.clone()).collect()
    });
    let sessions = sessions_of_pages(web).await?;
    let now_ms = sessions.as_ref().map(|sessions| sessions.now_ms);
    let is_inside = |session: &api::Session| {
        let of = &session.scheduling_pool;
        of.group == pool.group && pool.pool.as_ref().is_none_or(|within| of.pool == *within)
    };
    let running_sessions = sessions.map(|all| {
        let mut inside: Vec<_> = all.sessions.into_iter().filter(is_inside).collect();
        inside.sort_by(|a, b| handle_order(&a.handle, &b.handle));
        inside
    });
    Ok((Info { pool, pools, running_sessions }, now_ms))
}

fn text(info: &Info, now_ms: Option<i64>, console: &Console<'_>, wide: bool) -> String {
    let Info { pool, pools, running_sessions } = info;
    let settings = pool.settings.as_ref();
    let yes_or_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let name = match &pool.pool {
        Some(within) => ("Pool", format!("{}.{within}", pool.group)),
        None => ("Group", pool.group.clone()),
    };
    let redirected_to = pool.redirected_to.as_ref().map(|to| format!("{}.{}", to.group, to.pool));
    let lines = [
        (name.0, Some(name.1)),
        ("Pools", pools.as_ref().map(|pools| pools.join(", ")).filter(|pools| !pools.is_empty())),
        ("In the pools file", pool.configured.map(yes_or_no)),
        ("Redirected to", redirected_to),
        ("Mode", settings.map(|settings| settings.mode.clone())),
        ("Priority", settings.map(|settings| settings.priority.to_string())),
        ("Weight", settings.map(|settings| settings.weight.to_string())),
        ("Can be preempted", settings.map(|settings| yes_or_no(settings.preemptable))),
        ("Requests limited", settings.map(|settings| yes_or_no(settings.request_max))),
        ("Path", pool.queue.as_ref().map(|queue| queue.path.clone())),
        ("State", pool.queue.as_ref().map(|queue| queue.state.clone())),
        ("Sessions", Some(pool.sessions.to_string())),
        ("Share of resources", resources::holding(&pool.resources, pool.dominant_share)),
    ];
    let mut text = facts(lines);
    text.push('\n');
    text.push_str(&types(pool).render(console, wide));
    if let Some(sessions) = running_sessions.as_ref().filter(|sessions| !sessions.is_empty()) {
        text.push('\n');
        text.push_str(&session_table(sessions, now_ms).render(console, wide));
    }
    text
}

fn types(pool: &Pool) -> Table {
    let mut table = Table::new(&[
        Column::whole("TYPE"),
        Column::number("HOLDS"),
        Column::number("WAITS"),
        Column::number("SHARE"),
        Column::number("MIN"),
        Column::number("MAX"),
        Column::number("STARVED FOR"),
        Column::number("FIRST WAIT"),
    ]);
    for (kind, counts) in &pool.types {
        let PoolCounts { granted, waiting, share, minimum, maximum, .. } = counts;
        let span = |ms: i64| Ago { now_ms: ms, then_ms: 0 }.span();
        let starved = counts.starving_ms.map(span);
        let tone = if starved.is_some() { Tone::Bad } else { Tone::Plain };
        table.row([
            kind.name().into(),
            granted.to_string().into(),
            number(*waiting),
            format!("{share:.1}").into(),
            minimum.to_string().into(),
            number(*maximum),
            Cell::new(starved.unwrap_or_else(|| "-".into()), tone),
            number(counts.first_wait_ms.map(span)),
        ]);
    }
    table
}

fn session_table(sessions: &[api::Session], now_ms: Option<i64>) -> Table {
    let mut table = Table::new(&[
        Column::whole("SESSION"),
        Column::text("USER", 6),
        Column::whole("PRIORITY"),
        Column::number("MAP"),
        Column::number("RED"),
        Column::number("JT"),
        Column::number("WAITING"),
        Column::number("AGE"),
        Column::text("NAME", 10),
    ]);
    for session in sessions {
        let slots = |kind| number(session.types.get(&kind).map(|counts| counts.granted));
        let waiting: i64 = session.types.values().map(|counts| counts.waiting).sum();
        let age = now_ms.map(|now_ms| Ago { now_ms, then_ms: session.started_ms }.short());
        table.row([
            session.handle.as_str().into(),
            session.user.as_str().into(),
            session.priority.as_str().into(),
            slots(ResourceType::Map),
            slots(ResourceType::Reduce),
            slots(ResourceType::JobTracker),
            waiting.to_string().into(),
            number(age),
            session.name.as_str().into(),
        ]);
    }
    table
}
