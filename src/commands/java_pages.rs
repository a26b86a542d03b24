//! Reads what the pages of the original tell, into the shapes of this program's API.
//!
//! The original escapes nothing and gives no format a promise, so whatever does not look as
//! expected is an error, never a guess. Spec: cluster-manager/08 §2.3, §3.

use anyhow::{Context, bail, ensure};
use corona::cluster_manager::api::{
    ByType, Node, NodeProblem, Nodes, Pool, PoolCounts, PoolSettings, Pools,
};
use corona::engine::types::ResourceType;
use serde::Deserialize;
use serde_json::Value;

use super::web::Web;

/// Nodes that are alive, with those that are blacklisted marked.
///
/// # Errors
/// When the pages are not there, or others than expected.
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
/// When the page is not there, or another than expected.
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
    let (configured, redirected_to) = (None, None);
    Ok(Pool { group: text(group)?, pool, configured, redirected_to, sessions, settings, types })
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
