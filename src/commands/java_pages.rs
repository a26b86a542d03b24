//! Reads the original's pages into the shapes of this program's API.
//!
//! The original escapes nothing and does not document its formats, so anything unexpected is an
//! error, never a guess. Spec: cluster-manager/08 §2.3, §3.

use anyhow::{Context, bail, ensure};
use corona::api::cluster::{
    ByType, Node, NodeProblem, Nodes, Pool, PoolCounts, PoolName, PoolSettings, Pools, Problem,
    RetiredCounts, RetiredSession, RetiredSessions, Severity, Slots,
};
use corona::engine::types::ResourceType;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::web::Web;

/// The known data of a cluster manager that does not serve its status. Members are named as those
/// of this program's.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Partial {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) now_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_started_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) process_started_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uptime_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) safe_mode: Option<PartialSafeMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nodes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sessions: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slots: Option<ByType<Slots>>,
    /// The problems, as far as they are known.
    pub(super) problems: Vec<Problem>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct PartialSafeMode {
    pub(super) on: bool,
}

/// Nodes that are alive, with those that are blacklisted marked.
///
/// # Errors
/// When the pages do not exist, or are not as expected.
pub(super) async fn nodes(web: &Web) -> anyhow::Result<Nodes> {
    let names = async |kind| {
        let page = web.page(&format!("/machines.jsp?type={kind}")).await?;
        machines(&page).with_context(|| format!("{} list no machines", web.who()))
    };
    let alive = names("alive").await?;
    let blacklisted = names("blacklisted").await?;
    let nodes = alive.into_iter().map(|name| {
        let problems = match blacklisted.contains(&name) {
            true => vec![NodeProblem::Blacklisted],
            false => vec![],
        };
        Node { name, problems, ..Node::default() }
    });
    let nodes: Vec<Node> = nodes.collect();
    Ok(Nodes { total: nodes.len(), nodes, ..Nodes::default() })
}

/// The rows of the table on the page of machines.
fn machines(page: &str) -> anyhow::Result<Vec<String>> {
    const HEAD: &str = "<td><b>Host Name</b></td></tr>";
    let (_, rows) = page.split_once(HEAD).context("the page has no table of host names")?;
    let (rows, _) = rows.split_once("</table>").context("the table of host names has no end")?;
    let row = |line: &str| {
        let cell =
            line.trim().strip_prefix("<td>").and_then(|line| line.strip_suffix("</td></tr>"));
        cell.map(str::to_owned).with_context(|| format!("a row of an unknown form: {line:?}"))
    };
    rows.lines().filter(|line| !line.trim().is_empty()).map(row).collect()
}

/// Groups and pools.
///
/// # Errors
/// When the page does not exist, or is not as expected.
pub(super) async fn pools(web: &Web) -> anyhow::Result<Pools> {
    let page = web.page("/pool_json.jsp").await?;
    let pools = pool_rows(&page).with_context(|| format!("{} list no pools", web.who()))?;
    Ok(Pools { now_ms: None, pools })
}

/// Cells of a row before those of the types.
const PLAIN_CELLS: usize = 6;
/// Cells of each type.
const TYPE_CELLS: usize = 9;

#[derive(Deserialize)]
struct PoolJson {
    #[serde(rename = "aaData")]
    rows: Vec<Vec<Value>>,
}

fn pool_rows(page: &str) -> anyhow::Result<Vec<Pool>> {
    let page: PoolJson = serde_json::from_str(page).context("not the JSON that was expected")?;
    // The last row has the totals; its cells have no markup.
    let is_pool = |row: &&Vec<Value>| row.first().is_some_and(|cell| inner_text(cell).is_some());
    page.rows.iter().filter(is_pool).map(|row| pool(row)).collect()
}

fn pool(row: &[Value]) -> anyhow::Result<Pool> {
    let Some((plain, typed)) = row.split_at_checked(PLAIN_CELLS) else {
        bail!("a row of {} cells", row.len());
    };
    let [group, pool, mode, preemptable, request_max, priority] = plain else {
        bail!("a row of {} cells", row.len());
    };
    let kinds = kinds(typed.len())?;
    let text = |cell: &Value| inner_text(cell).context("a name without its markup");
    let pool = Some(text(pool)?).filter(|name| name != "-");
    let number = |cell: Option<&Value>| {
        let number = cell.and_then(Value::as_i64);
        number.with_context(|| format!("a cell that is no number: {cell:?}"))
    };
    let mut types = ByType::new();
    let (mut sessions, mut weight) = (0, 0);
    for (kind, cells) in kinds.iter().zip(typed.chunks_exact(TYPE_CELLS)) {
        // Sessions, requested, granted, share, minimum, maximum, weight, and two times.
        let at = |place: usize| number(cells.get(place));
        sessions = sessions.max(usize::try_from(at(0)?).unwrap_or_default());
        weight = at(6)?;
        let counts = PoolCounts {
            requested: at(1)?,
            granted: at(2)?,
            waiting: None,
            share: at(3)? as f64,
            minimum: at(4)?,
            maximum: match cells.get(5) {
                Some(Value::String(none)) if none == "-" => None,
                limit => Some(number(limit)?),
            },
            starving_ms: None,
            first_wait_ms: None,
        };
        types.insert(*kind, counts);
    }
    let settings = match &pool {
        None => None,
        Some(_) => Some(PoolSettings {
            mode: mode.as_str().context("a mode that is no text")?.to_owned(),
            preemptable: preemptable.as_bool().context("preemptable is no boolean")?,
            request_max: request_max.as_bool().context("requestMax is no boolean")?,
            priority: i32::try_from(number(Some(priority))?).context("a priority out of range")?,
            weight: weight as f64,
        }),
    };
    let group = text(group)?;
    Ok(Pool { group, pool, sessions, settings, types, ..Pool::default() })
}

/// The data in the head and the summary of the cluster page.
///
/// # Errors
/// When the page does not exist, or is not as expected.
pub(super) async fn cluster(web: &Web) -> anyhow::Result<Partial> {
    let page = web.page("/cm.jsp").await?;
    let now_ms = Timestamp::now().as_millisecond();
    summary(&page, now_ms).with_context(|| format!("{} show no summary of a cluster", web.who()))
}

fn summary(page: &str, now_ms: i64) -> anyhow::Result<Partial> {
    let line = |label: &str| {
        let (_, rest) = page.split_once(&format!("<b>{label}</b>"))?;
        let line = rest.split('<').next().unwrap_or_default();
        Some(line.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|line| !line.is_empty())
    };
    let (_, table) = page.split_once("<table id=\"summaryTable\"").context("it has no summary")?;
    let (table, _) = table.split_once("</table>").context("the summary has no end")?;
    let (heads, row) = table.split_once("<tbody>").context("the summary has no row")?;
    let kinds: Vec<ResourceType> =
        texts(heads, "th").iter().filter_map(|head| ResourceType::from_name(head)).collect();
    let numbers: Option<Vec<u64>> = texts(row, "td").iter().map(|cell| cell.parse().ok()).collect();
    let numbers = numbers.context("a cell of the summary is no number")?;
    let (per_type, nodes) = numbers
        .split_at_checked(4 * kinds.len())
        .filter(|(_, nodes)| nodes.len() == 4)
        .with_context(|| format!("{} cells in the summary", numbers.len()))?;
    // Running, waiting, all slots and free slots of each type.
    let slots = kinds.iter().zip(per_type.chunks_exact(4)).map(|(kind, cells)| {
        let at = |place: usize| cells.get(place).copied().unwrap_or_default();
        (*kind, Slots { total: at(2), used: at(2).saturating_sub(at(3)) })
    });
    // Alive, blacklisted and excluded nodes, then running sessions.
    let count = |place: usize| nodes.get(place).copied().unwrap_or_default();
    let whole = |number: u64| usize::try_from(number).ok();
    let problem = |number: u64, what: &str| {
        let nodes = if number == 1 { "node is" } else { "nodes are" };
        let text = format!("{number} {nodes} {what}.");
        (number > 0).then_some(Problem { severity: Severity::Warning, text, page: None })
    };
    let problems = [problem(count(1), "blacklisted"), problem(count(2), "excluded")];
    let started = line("Last Restarted:").as_deref().and_then(java_date);
    Ok(Partial {
        // Its revision follows behind a comma.
        version: line("Version:"),
        now_ms: Some(now_ms),
        process_started_ms: started,
        uptime_ms: started.map(|started| now_ms.saturating_sub(started)),
        safe_mode: line("Safe Mode :").map(|flag| PartialSafeMode { on: flag.starts_with("ON") }),
        nodes: whole(count(0)),
        sessions: whole(count(3)),
        slots: Some(slots.collect()),
        problems: problems.into_iter().flatten().collect(),
        ..Partial::default()
    })
}

/// The texts of the cells of a table, markup inside left out.
fn texts(rows: &str, cell: &str) -> Vec<String> {
    let start = format!("<{cell}");
    let end = format!("</{cell}>");
    let cells = rows.split(&*start).skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once('>')?;
        Some(rest.split(&*end).next().unwrap_or_default())
    });
    let plain = |cell: &str| {
        let mut text = String::new();
        for (index, part) in cell.split('<').enumerate() {
            text.push_str(if index == 0 { part } else { part.split_once('>').map_or("", |p| p.1) });
        }
        text.trim().to_owned()
    };
    cells.map(plain).collect()
}

/// A time as Java's `Date` writes it: `Sat Nov 21 00:37:13 UTC 2026`. The name of a time zone
/// implies no offset; it is that of this machine, or UTC.
fn java_date(text: &str) -> Option<i64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, month, day, time, zone, year] = words.as_slice() else { return None };
    let local = format!("{year} {month} {day} {time}");
    let local = DateTime::strptime("%Y %b %d %H:%M:%S", local).ok()?;
    let zone = match *zone {
        "UTC" | "GMT" => TimeZone::UTC,
        _ => TimeZone::system(),
    };
    Some(local.to_zoned(zone).ok()?.timestamp().as_millisecond())
}

/// The data of a session in the list of running sessions that its calls do not
/// return.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ActiveSession {
    pub(super) handle: String,
    pub(super) name: String,
    pub(super) user: String,
    pub(super) started_ms: Option<i64>,
    pub(super) waiting: ByType<i64>,
}

/// The running sessions.
///
/// # Errors
/// When the page does not exist, or is not as expected.
pub(super) async fn active_sessions(web: &Web) -> anyhow::Result<Vec<ActiveSession>> {
    let page = web.page("/active_json.jsp").await?;
    rows(&page, active_session).with_context(|| format!("{} list no sessions", web.who()))
}

fn active_session(row: &[Value]) -> anyhow::Result<ActiveSession> {
    let [id, started, name, user, _group, _pool, _priority, typed @ ..] = row else {
        bail!("a row of {} cells", row.len());
    };
    // Running, waiting and all requests of each type, then its memory as texts.
    let mut waiting = ByType::new();
    let mut kinds = ResourceType::ALL.into_iter();
    let mut rest = typed;
    while let [running, wait, total, others @ ..] = rest {
        let kind = kinds.next().context("cells of a fourth type")?;
        let (Some(_), Some(wait), Some(_)) = (running.as_i64(), wait.as_i64(), total.as_i64())
        else {
            bail!("a cell that is no number: {running}, {wait}, {total}");
        };
        waiting.insert(kind, wait);
        let texts = others.iter().take_while(|cell| cell.is_string()).count();
        rest = others.get(texts..).unwrap_or_default();
    }
    ensure!(rest.is_empty(), "{} cells too many", rest.len());
    Ok(ActiveSession {
        handle: link_text(id)?,
        name: link_text(name)?,
        user: plain_text(user)?,
        started_ms: started.as_str().and_then(table_date),
        waiting,
    })
}

/// The sessions that have ended, the latest first.
///
/// # Errors
/// When the page does not exist, or is not as expected.
pub(super) async fn retired_sessions(web: &Web) -> anyhow::Result<RetiredSessions> {
    let page = web.page("/retired_json.jsp").await?;
    let sessions = rows(&page, retired_session);
    let mut sessions =
        sessions.with_context(|| format!("{} list no retired sessions", web.who()))?;
    // The page has the oldest first.
    sessions.reverse();
    let now_ms = Timestamp::now().as_millisecond();
    Ok(RetiredSessions { now_ms, total: sessions.len(), sessions })
}

fn retired_session(row: &[Value]) -> anyhow::Result<RetiredSession> {
    let [id, started, ended, name, user, group, pool, priority, status, typed @ ..] = row else {
        bail!("a row of {} cells", row.len());
    };
    let time = |cell: &Value| {
        cell.as_str().and_then(table_date).with_context(|| format!("{cell} is no time"))
    };
    let mut types = ByType::new();
    let mut kinds = ResourceType::ALL.into_iter();
    let mut rest = typed;
    while let [fulfilled, others @ ..] = rest {
        let kind = kinds.next().context("cells of a fourth type")?;
        let fulfilled = fulfilled.as_i64().context("a cell that is no number")?;
        types.insert(kind, RetiredCounts { fulfilled, ..RetiredCounts::default() });
        let texts = others.iter().take_while(|cell| cell.is_string()).count();
        rest = others.get(texts..).unwrap_or_default();
    }
    Ok(RetiredSession {
        handle: link_text(id)?,
        name: plain_text(name)?,
        user: plain_text(user)?,
        pool: PoolName { group: plain_text(group)?, pool: plain_text(pool)? },
        asked_pool: None,
        priority: plain_text(priority)?,
        url: None,
        started_ms: time(started)?,
        ended_ms: time(ended)?,
        status: plain_text(status)?,
        types,
    })
}

/// The rows of a table that is served as JSON.
fn rows<T>(page: &str, row: fn(&[Value]) -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
    let page: PoolJson = serde_json::from_str(page).context("not the JSON that was expected")?;
    page.rows.iter().map(|cells| row(cells)).collect()
}

fn plain_text(cell: &Value) -> anyhow::Result<String> {
    cell.as_str().map(str::to_owned).with_context(|| format!("a cell that is no text: {cell}"))
}

/// The text in `<a href="...">text</a>`, or the text as it is.
fn link_text(cell: &Value) -> anyhow::Result<String> {
    let text = plain_text(cell)?;
    let inside = text.strip_prefix("<a ").and_then(|rest| rest.strip_suffix("</a>"));
    Ok(inside.and_then(|rest| rest.split_once("\">")).map_or(text.clone(), |p| p.1.to_owned()))
}

/// A time in a table: `2026/11/21 00:37:31`, in the zone of the cluster
/// manager, which is taken to be that of this machine.
fn table_date(text: &str) -> Option<i64> {
    let local = DateTime::strptime("%Y/%m/%d %H:%M:%S", text).ok()?;
    Some(local.to_zoned(TimeZone::system()).ok()?.timestamp().as_millisecond())
}

/// The types of a row. The page does not name them: they are those that the cluster has, in this
/// order, and it is the last that a cluster may do without.
fn kinds(cells: usize) -> anyhow::Result<&'static [ResourceType]> {
    const ALL: &[ResourceType] = &ResourceType::ALL;
    let count = cells / TYPE_CELLS;
    ensure!(cells.is_multiple_of(TYPE_CELLS), "{cells} cells for the types");
    ALL.get(..count).with_context(|| format!("{count} types"))
}

/// The text in `<span>text</span>`, whose start may have attributes.
fn inner_text(cell: &Value) -> Option<String> {
    let cell = cell.as_str()?.strip_prefix("<span")?.strip_suffix("</span>")?;
    if let Some(text) = cell.strip_prefix('>') {
        return Some(text.to_owned());
    }
    // Names have no quotation marks around them, attributes have.
    let (_, text) = cell.split_once("\">")?;
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_of_the_recorded_page() {
        let page = include_str!("../../fixtures/web/pool_json.json");
        let pools = pool_rows(page).unwrap();
        let names: Vec<_> = pools.iter().map(|p| (&*p.group, p.pool.as_deref())).collect();
        assert_eq!(
            names,
            [
                ("default", None),
                ("default", Some("default")),
                ("default", Some("defaultpool")),
                ("group_a", None),
                ("group_a", Some("pool_nonsla")),
                ("group_a", Some("pool_sla")),
            ]
        );
        assert_eq!(pools[0].settings, None);
        let sla = &pools[5];
        assert_eq!(sla.sessions, 2);
        let settings = sla.settings.as_ref().unwrap();
        assert_eq!((&*settings.mode, settings.preemptable, settings.weight), ("FIFO", true, 2.0));
        let map = PoolCounts {
            requested: 3,
            granted: 0,
            waiting: None,
            share: 1.0,
            minimum: 1,
            maximum: None,
            starving_ms: None,
            first_wait_ms: None,
        };
        assert_eq!(sla.types[&ResourceType::Map], map);
        assert_eq!(sla.types[&ResourceType::JobTracker].granted, 1);
    }

    #[test]
    fn a_redirected_pool_and_a_maximum() {
        let cells = "1,2,3,4,5,6,7,8,9";
        let page = format!(
            "\n\n{{\"aaData\":[[\"<span class=\\\"ui-state-disabled\\\" title=\\\"Redirected to g.q\\\">g\
             <\\/span>\",\"<span class=\\\"x\\\" title=\\\"y\\\">p<\\/span>\",\"FAIR\",false,true,-3,{cells}]]}}\n"
        );
        let pools = pool_rows(&page).unwrap();
        let [pool] = pools.as_slice() else { panic!("{pools:?}") };
        assert_eq!((&*pool.group, pool.pool.as_deref()), ("g", Some("p")));
        let settings = pool.settings.as_ref().unwrap();
        assert_eq!(
            (settings.preemptable, settings.request_max, settings.priority),
            (false, true, -3)
        );
        assert_eq!(pool.types.len(), 1);
        assert_eq!(pool.types[&ResourceType::Map].maximum, Some(6));
    }

    #[test]
    fn another_page_is_an_error() {
        let row = |cells: &str| format!("{{\"aaData\":[[\"<span>g</span>\",{cells}]]}}");
        for page in [
            String::new(),
            "<html>".into(),
            "{}".into(),
            "{\"aaData\":[[1]".into(),
            row("\"p\""),
            row("\"<span>p</span>\",\"FAIR\",true,false,0,1"),
            row("\"<span>p</span>\",\"FAIR\",true,false,0,1,2,3,4,5,\"6\",7,8,9"),
            row("\"<span>p</span>\",\"FAIR\",true,false,\"x\",1,2,3,4,5,6,7,8,9"),
            row(&format!("\"<span>p</span>\",\"FAIR\",true,false,0{}", ",1".repeat(36))),
        ] {
            assert!(pool_rows(&page).is_err(), "{page}");
        }
        assert_eq!(pool_rows("{\"aaData\":[]}").unwrap(), []);
    }

    /// The head of the page as the original writes it.
    fn cluster_page(safe_mode: &str, row: &str) -> String {
        format!(
            "<h1>cm Corona Cluster Manager </h1>\n\
             <b>Last Restarted:</b> Sat Nov 21 00:37:13 UTC 2026<br>\n\
             <b>Last Downtime:</b> Sat Nov 21 00:37:13 UTC 2026 (0 days ago)<br>\n\
             <b>Version:</b> 0.20.1-dev,\n                r1234<br>\n\
             <b>Safe Mode :</b> {safe_mode}\n\n<h2>Cluster Summary</h2>\n\
             <table id=\"summaryTable\" border=\"1\" cellpadding=\"5\" cellspacing=\"0\">\n\
             <thead><tr><th colspan=4>MAP</th><th colspan=4>REDUCE</th><th colspan=3>Nodes</th>\
             <th colspan=1>Session</th></tr>\n<tr><th>Running</th></tr></thead>\n\
             <tbody><tr>{row}</tr></tbody>\n</table>\n<br>"
        )
    }

    #[test]
    fn the_summary_of_a_cluster() {
        let link =
            |number| format!("<a href=\"machines.jsp?type=free&resourceType=MAP\">{number}</a>");
        let cells =
            ["3", "5", "8", &link(5), "0", "0", "4", &link(4), &link(2), &link(1), "0", "7"];
        let row: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        let known = summary(&cluster_page("ON", &row), 1_795_221_433_000 + 60_000).unwrap();
        let slots = |used, total| Slots { used, total };
        let expected = Partial {
            version: Some("0.20.1-dev, r1234".into()),
            now_ms: Some(1_795_221_493_000),
            process_started_ms: Some(1_795_221_433_000),
            uptime_ms: Some(60_000),
            safe_mode: Some(PartialSafeMode { on: true }),
            nodes: Some(2),
            sessions: Some(7),
            slots: Some(
                [(ResourceType::Map, slots(3, 8)), (ResourceType::Reduce, slots(0, 4))].into(),
            ),
            problems: vec![Problem {
                severity: Severity::Warning,
                text: "1 node is blacklisted.".into(),
                page: None,
            }],
            ..Partial::default()
        };
        assert_eq!(known, expected);
        assert_eq!(
            summary(&cluster_page("OFF", &row), 0).unwrap().safe_mode,
            Some(PartialSafeMode { on: false })
        );
        for wrong in ["", "<td>1</td>", &row.replace(">7<", ">many<"), &format!("{row}<td>1</td>")]
        {
            assert!(summary(&cluster_page("ON", wrong), 0).is_err(), "{wrong}");
        }
        assert!(summary("<html></html>", 0).is_err());
    }

    #[test]
    fn dates_of_java() {
        assert_eq!(java_date("Sat Nov 21 00:37:13 UTC 2026"), Some(1_795_221_433_000));
        assert_eq!(java_date("Sat Nov 21 00:37:13 GMT 2026"), Some(1_795_221_433_000));
        let local = table_date("2026/11/21 00:37:13");
        assert_eq!(java_date("Sat Nov 21 00:37:13 PST 2026"), local);
        for wrong in ["", "yesterday", "Sat Nov 41 00:37:13 UTC 2026", "2026/11/21"] {
            assert_eq!((java_date(wrong), table_date(wrong).is_some()), (None, false), "{wrong}");
        }
    }

    #[test]
    fn sessions_of_the_recorded_pages() {
        let page = include_str!("../../fixtures/web/active_json.json");
        let sessions = rows(page, active_session).unwrap();
        let short: Vec<_> = sessions
            .iter()
            .map(|s| {
                (&*s.handle, &*s.name, &*s.user, s.waiting.values().copied().collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(
            short,
            [
                ("202611210037.4", "Sleep job", "root", vec![3, 0, 0]),
                ("202611210037.3", "Launched session 202611210037.4", "root", vec![0, 0, 0]),
                ("202611210037.2", "Sleep job", "root", vec![4, 0, 0]),
            ]
        );
        assert!(sessions.iter().all(|session| session.started_ms.is_some()));

        let page = include_str!("../../fixtures/web/retired_json.json");
        let [session] = &rows(page, retired_session).unwrap()[..] else { panic!("one has ended") };
        assert_eq!((&*session.handle, &*session.status), ("202611210037.1", "SUCCESSFUL"));
        assert_eq!(session.ended_ms - session.started_ms, 13_000);
        assert_eq!(session.types[&ResourceType::Reduce].fulfilled, 1);

        let row = |cells: &str| format!("{{\"aaData\":[[{cells}]]}}");
        for wrong in [
            row(""),
            row("1,2,3,4,5,6,7"),
            row("\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",1,2"),
            row("\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",1,2,\"x\""),
            row(&format!("\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\"{}", ",1".repeat(12))),
        ] {
            assert!(rows(&wrong, active_session).is_err(), "{wrong}");
        }
    }

    #[test]
    fn machines_of_the_page() {
        let page = |rows: &str| {
            format!(
                "<html>\n<body>\n<center>\n<h2>Alive Nodes</h2>\n<table border=\"2\">\n<tr>\
                 <td><b>Host Name</b></td></tr>\n{rows}</table>\n</center>\n<hr />\n</body></html>\n"
            )
        };
        let rows = "<td>node-1</td></tr>\n<td>node-2:5</td></tr>\n";
        assert_eq!(machines(&page(rows)).unwrap(), ["node-1", "node-2:5"]);
        assert_eq!(machines(&page("")).unwrap(), Vec::<String>::new());
        for wrong in [page("<li>node</li>\n"), "Unknown type alive".into(), String::new()] {
            assert!(machines(&wrong).is_err(), "{wrong}");
        }
    }
}
