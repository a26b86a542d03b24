//! `corona nodes`: the nodes of a cluster, what they have and what is wrong with them.
//!
//! No call of the protocol tells of nodes, so they are read from the pages: this program's in full,
//! the original's as far as they go.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use corona::cluster_manager::api::{Node, NodeProblem, NodeSlots, Nodes, Paging};
use corona::engine::types::ResourceType;

use super::cluster::{WebArguments, block_on};
use super::console::{Console, Form, OutputArguments};
use super::java_pages;
use super::table::{Cell, Column, Table, Tone, number};
use super::times::Ago;
use super::web::{Answer, Web};

const EXAMPLES: &str = "\
Examples:
  All nodes, with used and all slots of each type:
    corona nodes list
  Nodes that are given no more work, and why:
    corona nodes list --problems

Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.";

/// See the nodes of the cluster
///
/// Reads the pages at cm.server.http.address. Those of the original tell
/// names and blacklisted nodes only.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    List(List),
}

/// Tell which nodes there are
#[derive(Args, Clone, Debug)]
struct List {
    /// Only nodes that are given no more work, of some type at least
    #[arg(long)]
    problems: bool,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    web: WebArguments,
}

/// Reads and prints.
///
/// # Errors
/// When there are no pages, or none that can be read.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let Action::List(list) = arguments.action;
    let (address, timeout) = list.web.find()?;
    let web = Web::new(address, timeout);
    let mut nodes = block_on(read(&web))?;
    if list.problems {
        nodes.nodes.retain(|node| !node.problems.is_empty());
    }
    match list.output.output {
        Form::Json => console.print_json(&nodes)?,
        Form::Table if nodes.nodes.is_empty() => console.print("No nodes.\n")?,
        Form::Table => {
            let text = table(&nodes, list.output.wide).render(console, list.output.wide);
            console.print(&text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All nodes, page by page; where there is no API, from the pages of the original.
async fn read(web: &Web) -> anyhow::Result<Nodes> {
    let mut all = Nodes::default();
    loop {
        let page = match web.api::<Nodes>(&path(all.next.as_deref())).await? {
            Answer::Found(page) => page,
            Answer::NotFound(what) => bail!("{} tell of no nodes: {what}", web.who()),
            Answer::NoApi => return java_pages::nodes(web).await,
        };
        // A name that does not lead on would lead round and round.
        let leads_on = page.next > all.next;
        all = Nodes {
            now_ms: page.now_ms,
            total: page.total,
            next: page.next,
            nodes: [all.nodes, page.nodes].concat(),
        };
        if all.next.is_none() || !leads_on {
            all.next = None;
            return Ok(all);
        }
    }
}

fn path(after: Option<&str>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &Paging::MOST.to_string());
    if let Some(after) = after {
        query.append_pair("after", after);
    }
    format!("/api/v1/nodes?{}", query.finish())
}

fn table(nodes: &Nodes, wide: bool) -> Table {
    // The pages of the original tell of no slots.
    if nodes.nodes.iter().all(|node| node.slots.is_none()) {
        let mut table = Table::new(&[Column::whole("NODE"), Column::whole("STATE")]);
        for node in &nodes.nodes {
            table.row([node.name.as_str().into(), state(node)]);
        }
        return table;
    }
    let more = |column: Column| wide.then_some(column);
    let columns = [
        Some(Column::text("NODE", 12)),
        more(Column::whole("ADDRESS")),
        Some(Column::text("RACK", 8)),
        Some(Column::number("MAP")),
        Some(Column::number("RED")),
        Some(Column::number("JT")),
        more(Column::number("CPUS")),
        more(Column::number("FREE MB")),
        more(Column::number("FREE GB")),
        more(Column::number("SESSIONS")),
        Some(Column::number("HEARD")),
        Some(Column::text("STATE", 14)),
    ];
    let mut table = Table::new(&columns.into_iter().flatten().collect::<Vec<_>>());
    for node in &nodes.nodes {
        let cells = [
            Some(node.name.as_str().into()),
            wide.then(|| text(node.address.as_ref().map(|at| format!("{}:{}", at.host, at.port)))),
            Some(text(node.rack.clone())),
            Some(slots(node, ResourceType::Map)),
            Some(slots(node, ResourceType::Reduce)),
            Some(slots(node, ResourceType::JobTracker)),
            wide.then(|| number(node.total.map(|specs| specs.cpus))),
            wide.then(|| number(node.free.and_then(|specs| specs.memory_mb))),
            wide.then(|| number(node.free.and_then(|specs| specs.disk_gb))),
            wide.then(|| number(node.sessions)),
            Some(heard(nodes, node)),
            Some(state(node)),
        ];
        table.row(cells.into_iter().flatten());
    }
    table
}

fn text(text: Option<String>) -> Cell {
    text.unwrap_or_else(|| "-".into()).into()
}

fn heard(nodes: &Nodes, node: &Node) -> Cell {
    let times = nodes.now_ms.zip(node.last_heartbeat_ms);
    number(times.map(|(now_ms, then_ms)| Ago { now_ms, then_ms }.span()))
}

/// Used and all slots of a type: `3/4`.
fn slots(node: &Node, kind: ResourceType) -> Cell {
    let slots = node.slots.as_ref().and_then(|slots| slots.get(&kind));
    number(slots.map(|NodeSlots { used, total, .. }| format!("{used}/{total}")))
}

fn state(node: &Node) -> Cell {
    if node.problems.is_empty() {
        return "ok".into();
    }
    let words: Vec<String> = node.problems.iter().map(|problem| words(*problem, node)).collect();
    Cell::new(words.join(", "), Tone::Bad)
}

fn words(problem: NodeProblem, node: &Node) -> String {
    match problem {
        NodeProblem::Excluded => "excluded".into(),
        NodeProblem::BelowReserve => "below reserve".into(),
        NodeProblem::Other => "unknown problem".into(),
        NodeProblem::Blacklisted => {
            let slots = node.slots.iter().flatten();
            let kinds = slots.filter(|(_, slots)| slots.blacklisted).map(|(kind, _)| kind.name());
            let kinds: Vec<&str> = kinds.collect();
            match kinds.is_empty() {
                true => "blacklisted".into(),
                false => format!("blacklisted {}", kinds.join("+")),
            }
        }
    }
}
