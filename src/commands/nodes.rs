//! `corona nodes`: the nodes of a cluster, their slots, grants and problems.
//!
//! No call of the protocol returns nodes, so they are read from the pages: all data from this
//! program's, and fewer from the original's.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use corona::api::cluster::{
    BlacklistCleared, Node, NodeDetail, NodeProblem, NodeSlots, Nodes, Paging, Specs,
};
use corona::engine::types::ResourceType;
use corona::model::resources::Dimension;
use corona::model::text::natural_order;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::cluster::{WebArguments, block_on};
use super::drain;
use super::java_pages;
use super::resources;
use super::times::Ago;
use super::watch::WatchArguments;
use super::web::{Answer, Web};
use corona_terminal::console::{Console, Form, OutputArguments, printable};
use corona_terminal::facts;
use corona_terminal::table::{Cell, Column, Table, Tone, number};

const EXAMPLES: &str = "\
Examples:
  All nodes, with used and total slots of each type:
    corona nodes list
  Nodes with a problem:
    corona nodes list --problems
  The grants on a node, and the failures reported there:
    corona nodes info tt-000.dc1.example.com
  Let its work end before it is stopped:
    corona nodes drain tt-000.dc1.example.com --wait
  Lift its blacklisting after a repair:
    corona nodes clear-blacklist tt-000.dc1.example.com --token-file token

Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.";

/// List and describe nodes, drain them, and lift blacklistings
///
/// Reads the pages at cm.server.http.address. The original's pages contain only
/// names and blacklisted nodes: 'info', 'drain' and 'clear-blacklist' require a
/// cluster manager of this program.
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
    ClearBlacklist(ClearBlacklist),
    Drain(drain::Arguments),
}

/// List the nodes
#[derive(Args, Clone, Debug)]
struct List {
    /// Only nodes with a problem: late, or not granted slots of at least one
    /// type
    #[arg(long)]
    problems: bool,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    watch: WatchArguments,

    #[command(flatten)]
    web: WebArguments,
}

/// Describe a node: its slots, its grants, and the failures reported there
#[derive(Args, Clone, Debug)]
struct Info {
    /// The host of a single node, or the node's name, as shown in the list
    node: String,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    web: WebArguments,
}

/// Lift the blacklisting of a node, so that its slots are granted again
///
/// The cluster manager must have a token, corona.cm.web.kill.token, and allow administrative calls
/// from here. The token is read from --token-file, else from the configuration.
#[derive(Args, Clone, Debug)]
struct ClearBlacklist {
    /// The host of a single node, or the node's name, as shown in the list
    node: String,

    /// Only for this type of slots
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_type)]
    kind: Option<ResourceType>,

    /// File whose first line is the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    web: WebArguments,
}

fn parse_type(text: &str) -> Result<ResourceType, String> {
    let kind = ResourceType::from_name(&text.to_ascii_uppercase());
    kind.ok_or_else(|| "expected MAP, REDUCE or JOBTRACKER".into())
}

/// Reads and prints.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    match arguments.action {
        Action::List(list) => list.run(console)?,
        Action::Info(info) => info.run(console)?,
        Action::ClearBlacklist(clear) => clear.run(console)?,
        Action::Drain(drain) => return drain::run(drain, console),
    }
    Ok(ExitCode::SUCCESS)
}

impl List {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let List { problems, output, watch, web } = self;
        let web = web.find()?;
        watch.run(console, |console| {
            let mut nodes = block_on(read(&web))?;
            nodes.nodes.sort_by(|a, b| natural_order(&a.name, &b.name));
            let has_nodes = !nodes.nodes.is_empty();
            if problems {
                nodes.nodes.retain(|node| !node.problems.is_empty());
            }
            match output.output {
                Form::Json => console.print_json(&nodes),
                Form::Table if nodes.nodes.is_empty() && problems && has_nodes => {
                    Ok(console.print("No nodes with problems.\n")?)
                }
                Form::Table if nodes.nodes.is_empty() => Ok(console.print("No nodes.\n")?),
                Form::Table => {
                    let mut shown = table(&nodes, output.wide, true);
                    // A rack that all nodes have in common says less than their names.
                    if !shown.fits(console, output.wide) && have_one_rack(&nodes) {
                        shown = table(&nodes, output.wide, false);
                    }
                    let spread = resources::spread(&nodes.resources);
                    Ok(console.print(&(shown.render(console, output.wide) + &spread))?)
                }
            }
        })
    }
}

impl Info {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let web = self.web.find()?;
        let asked = async |name: &str| match web.api::<NodeDetail>(&path_of(name)).await? {
            Answer::Found(detail) => Ok(Some(detail)),
            Answer::NotFound(_) => Ok(None),
            Answer::NoApi => bail!("{} do not describe nodes", web.who()),
        };
        let detail = block_on(by_name_or_host(&web, &self.node, asked))?;
        let output = self.output;
        output.show(console, &detail, |console| description(&detail, console, output.wide))
    }
}

impl ClearBlacklist {
    fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let token = match &self.token_file {
            Some(file) => first_line(file)?,
            None => self.web.operator_token()?.context(
                "no token: corona.cm.web.kill.token is not set in the configuration here; name a \
                 file with --token-file",
            )?,
        };
        let web = self.web.find()?;
        let mut fields = vec![("token", token.as_str())];
        fields.extend(self.kind.map(|kind| ("type", kind.name())));
        let send = async |name: &str| {
            let path = format!("{}/clear-blacklist", path_of(name));
            match web.send_form::<BlacklistCleared>(&path, &fields).await? {
                Answer::Found(done) => Ok(Some(done)),
                Answer::NotFound(_) => Ok(None),
                Answer::NoApi => bail!("{} cannot lift a blacklisting", web.who()),
            }
        };
        let done = block_on(by_name_or_host(&web, &self.node, send))?;
        self.output.show(console, &done, |_| {
            let kinds: Vec<&str> = done.cleared.iter().map(|kind| kind.name()).collect();
            let node = printable(&self.node);
            match kinds.is_empty() {
                true => format!("Node {node} was not blacklisted.\n"),
                false => {
                    format!("Node {node} is no longer blacklisted for {}.\n", kinds.join(", "))
                }
            }
        })
    }
}

/// The answer about the node of this name, else about the only one on the host of this name.
async fn by_name_or_host<T>(
    web: &Web,
    name: &str,
    ask: impl AsyncFn(&str) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    if let Some(found) = ask(name).await? {
        return Ok(found);
    }
    let name = one_on_host(web, name).await?;
    ask(&name).await?.with_context(|| format!("there is no node {name}"))
}

/// The name of the only node of this name or host.
async fn one_on_host(web: &Web, name: &str) -> anyhow::Result<String> {
    let mut found = drain::meant(&[name.to_owned()], &read(web).await?.nodes)?;
    match (found.pop(), found.len()) {
        (Some(only), 0) => Ok(only),
        (last, _) => {
            found.extend(last);
            bail!("host {name} has several nodes; name one of {}", found.join(", "))
        }
    }
}

/// So much of a node's name is shown if other columns can be cut: it ends with the port, and is needed in
/// the next command. Names of task trackers such as `tracker_n1:localhost/127.0.0.1:38549` have it.
const MOST_OF_NAME: usize = 46;

/// The path of a node in the API.
pub(super) fn path_of(node: &str) -> String {
    format!("/api/v1/nodes/{}", utf8_percent_encode(node, NON_ALPHANUMERIC))
}

fn first_line(file: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("the token cannot be read from {}", file.display()))?;
    let line = text.lines().next().unwrap_or_default().trim();
    ensure!(!line.is_empty(), "{} has no token in its first line", file.display());
    Ok(line.to_owned())
}

/// A node for people: facts, slots, complaints, grants.
fn description(detail: &NodeDetail, console: &Console<'_>, wide: bool) -> String {
    let node = &detail.node;
    let ago = |then_ms| Ago { now_ms: detail.now_ms, then_ms }.to_string();
    let free_of = |free: Option<i32>, total: Option<i32>, unit: &str| {
        let total = total.map(|total| format!(" of {total}")).unwrap_or_default();
        free.map(|free| format!("{free}{total} {unit}"))
    };
    let (free, total) = (node.free.as_ref(), node.total.as_ref());
    let of = |specs: Option<&Specs>, part: fn(&Specs) -> Option<i32>| specs.and_then(part);
    let lines = [
        ("Node", Some(node.name.clone())),
        ("State", Some(state_words(node))),
        ("Address", node.address.as_ref().map(|at| format!("{}:{}", at.host, at.port))),
        ("Rack", node.rack.clone()),
        ("Last heartbeat", node.last_heartbeat_ms.map(ago)),
        ("CPUs", total.map(|specs| specs.cpus.to_string())),
        ("Memory free", {
            let memory = |specs: &Specs| specs.memory_mb;
            free_of(of(free, memory), of(total, memory), "MB")
        }),
        ("Disk free", {
            let disk = |specs: &Specs| specs.disk_gb;
            free_of(of(free, disk).map(|free| free.max(0)), of(total, disk), "GB")
        }),
        ("Kept for", {
            let kept = node.reserved_for.as_ref();
            kept.map(|it| {
                let left = it.until_ms.map(|until_ms| {
                    let left = Ago { now_ms: until_ms, then_ms: detail.now_ms }.span();
                    format!(", for another {left} at most")
                });
                let (since, left) = (ago(it.since_ms), left.unwrap_or_default());
                format!("request {} of session {}, {since}{left}", it.id, it.session)
            })
        }),
        ("Sessions seen", node.sessions.map(|sessions| sessions.to_string())),
        ("Version", node.program.as_ref().map(|program| program.version.clone())),
        ("Restart refused", node.program.as_ref().and_then(|it| it.restart_refused.clone())),
    ];
    let mut text = facts(lines);
    let mut add = |title: &str, table: Table| {
        text.push_str(title);
        text.push_str(&table.render(console, wide));
    };
    add("\n", types_table(detail));
    if !node.resources.is_empty() {
        add("\n", resources::of_node(&node.resources));
    }
    if !detail.complaints.is_empty() {
        add("\nReports that count, the latest first:\n", complaints_table(detail));
    }
    if detail.grants.is_empty() {
        text.push_str("\nNo grants.\n");
        return text;
    }
    add("\nGrants, the oldest first:\n", grants_table(detail));
    let left_out = detail.grants_total.saturating_sub(detail.grants.len());
    if left_out > 0 {
        let _ = writeln!(text, "and {left_out} more");
    }
    text
}

/// Slots by type, and how near the node is to being blacklisted.
fn types_table(detail: &NodeDetail) -> Table {
    let mut table = Table::new(&[
        Column::whole("TYPE"),
        Column::number("USED"),
        Column::number("FAILURES"),
        Column::number("CONNECTIONS"),
        Column::number("BLACKLISTED FOR"),
    ]);
    for (kind, NodeSlots { used, total, .. }) in detail.node.slots.iter().flatten() {
        let faults = detail.faults.get(kind).copied().unwrap_or_default();
        let since = faults.blacklisted_since_ms;
        let since = since.map(|then_ms| Ago { now_ms: detail.now_ms, then_ms }.span());
        let tone = if since.is_some() { Tone::Bad } else { Tone::Plain };
        table.row([
            kind.name().into(),
            format!("{used}/{total}").into(),
            format!("{}/{}", faults.failures, faults.failures_limit).into(),
            format!("{}/{}", faults.failed_connections, faults.failed_connections_limit).into(),
            Cell::new(since.unwrap_or_else(|| "-".into()), tone),
        ]);
    }
    table
}

fn complaints_table(detail: &NodeDetail) -> Table {
    let mut table = Table::new(&[
        Column::whole("SESSION"),
        Column::text("USER", 6),
        Column::whole("TYPES"),
        Column::number("FAILURES"),
        Column::number("CONNECTIONS"),
        Column::number("AGO"),
    ]);
    for complaint in detail.complaints.iter().rev() {
        let kinds: Vec<&str> = complaint.types.iter().map(|kind| kind.name()).collect();
        table.row([
            complaint.session.as_str().into(),
            complaint.user.as_str().into(),
            kinds.join("+").into(),
            complaint.failed.to_string().into(),
            complaint.failed_connections.to_string().into(),
            Ago { now_ms: detail.now_ms, then_ms: complaint.at_ms }.span().into(),
        ]);
    }
    table
}

fn grants_table(detail: &NodeDetail) -> Table {
    let is_counted = !detail.node.resources.is_empty();
    let takes = Column::text("TAKES", 20);
    let mut table = Table::new(&[
        Column::whole("SESSION"),
        Column::text("USER", 6),
        Column::text("POOL", 16),
        Column::whole("TYPE"),
        // Where resources are counted, each grant takes one slot.
        if is_counted { takes } else { Column::number("SLOTS") },
        Column::number("REQUEST"),
        Column::number("HELD FOR"),
        Column::text("NAME", 10),
    ]);
    for grant in &detail.grants {
        table.row([
            grant.session.as_str().into(),
            grant.user.as_str().into(),
            format!("{}.{}", grant.pool.group, grant.pool.pool).into(),
            grant.kind.name().into(),
            match is_counted {
                true => text(resources::brief(&grant.resources)),
                false => grant.slots.to_string().into(),
            },
            grant.id.to_string().into(),
            Ago { now_ms: detail.now_ms, then_ms: grant.granted_ms }.span().into(),
            grant.name.as_str().into(),
        ]);
    }
    table
}

/// All nodes, page by page; where there is no API, from the pages of the original.
pub(super) async fn read(web: &Web) -> anyhow::Result<Nodes> {
    let mut all = Nodes::default();
    loop {
        let page = match web.api::<Nodes>(&path(all.next.as_deref())).await? {
            Answer::Found(page) => page,
            Answer::NotFound(what) => bail!("{} list no nodes: {what}", web.who()),
            Answer::NoApi => return java_pages::nodes(web).await,
        };
        // A name that does not lead on would lead round and round.
        let leads_on = page.next > all.next;
        // The list grows in place: a copy for each page would cost the square of their number.
        let mut nodes = all.nodes;
        nodes.extend(page.nodes);
        all = Nodes { nodes, ..page };
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

fn have_one_rack(nodes: &Nodes) -> bool {
    let mut racks = nodes.nodes.iter().map(|node| &node.rack);
    let first = racks.next();
    racks.all(|rack| Some(rack) == first)
}

fn table(nodes: &Nodes, wide: bool, with_racks: bool) -> Table {
    // The original's pages do not contain slots.
    if nodes.nodes.iter().all(|node| node.slots.is_none()) {
        let mut table = Table::new(&[Column::whole("NODE"), Column::whole("STATE")]);
        for node in &nodes.nodes {
            table.row([node.name.as_str().into(), state(node)]);
        }
        return table;
    }
    let more = |column: Column| wide.then_some(column);
    let counted = || nodes.resources.keys().copied();
    // What is counted has a column of its own.
    let is_more = |dimension: Dimension| wide && counted().all(|counted| counted != dimension);
    let [cpus, memory, disk] = [Dimension::Cpus, Dimension::Memory, Dimension::Disk].map(is_more);
    let first = [
        Some(Column::text("NODE", MOST_OF_NAME)),
        more(Column::whole("ADDRESS")),
        with_racks.then_some(Column::text("RACK", 8)),
        Some(Column::number("MAP")),
        Some(Column::number("RED")),
        Some(Column::number("JT")),
    ];
    let granted = counted().map(|dimension| Column::number(resources::heading(dimension)));
    let last = [
        cpus.then_some(Column::number("CPUS")),
        memory.then_some(Column::number("FREE MB")),
        disk.then_some(Column::number("FREE GB")),
        more(Column::number("SESSIONS")),
        more(Column::whole("VERSION")),
        Some(Column::number("HEARD")),
        Some(Column::text("STATE", 10)),
    ];
    let columns = first.into_iter().flatten().chain(granted).chain(last.into_iter().flatten());
    let mut table = Table::new(&columns.collect::<Vec<_>>());
    for node in &nodes.nodes {
        let first = [
            Some(node.name.as_str().into()),
            wide.then(|| text(node.address.as_ref().map(|at| format!("{}:{}", at.host, at.port)))),
            with_racks.then(|| text(node.rack.clone())),
            Some(slots(node, ResourceType::Map)),
            Some(slots(node, ResourceType::Reduce)),
            Some(slots(node, ResourceType::JobTracker)),
        ];
        let granted = counted().map(|dimension| resources::granted(node, dimension));
        let last = [
            cpus.then(|| number(node.total.map(|specs| specs.cpus))),
            memory.then(|| number(node.free.and_then(|specs| specs.memory_mb))),
            disk.then(|| number(node.free.and_then(|specs| specs.disk_gb).map(|free| free.max(0)))),
            wide.then(|| number(node.sessions)),
            wide.then(|| {
                text(node.program.as_ref().map(|program| printable(&program.version).into_owned()))
            }),
            Some(heard(nodes, node)),
            Some(state(node)),
        ];
        table.row(first.into_iter().flatten().chain(granted).chain(last.into_iter().flatten()));
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
    let tone = if node.problems.is_empty() { Tone::Plain } else { Tone::Bad };
    Cell::new(state_words(node), tone)
}

fn state_words(node: &Node) -> String {
    if node.problems.is_empty() {
        return if node.reserved_for.is_some() { "kept" } else { "ok" }.into();
    }
    let words: Vec<String> = node.problems.iter().map(|problem| words(*problem, node)).collect();
    words.join(", ")
}

fn words(problem: NodeProblem, node: &Node) -> String {
    match problem {
        NodeProblem::Late => "late".into(),
        NodeProblem::Excluded => "excluded".into(),
        NodeProblem::Draining => "draining".into(),
        NodeProblem::Revoked => "revoked".into(),
        // The report of a node that takes no tasks, by its own look at its disks and descriptors.
        NodeProblem::BelowReserve
            if node.free.as_ref().and_then(|free| free.disk_gb).is_some_and(|free| free < 0) =>
        {
            "takes no tasks".into()
        }
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
