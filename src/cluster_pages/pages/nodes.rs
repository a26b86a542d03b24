//! Nodes: their slots, the use of these, and the reasons why no more are used.

use std::sync::Arc;

use maud::{Markup, html};

use super::links::{node_link, tracker_page};
use super::resources;
use crate::exchange::Parameters;
use crate::gather::{Overview, silent_hosts};
use corona_engine::NodeView;
use corona_model::resources::Dimension;
use corona_model::text::natural_order;
use corona_model::types::ResourceType;
use corona_web::filter;
use corona_web::table::{Column, Table};
use corona_web::units::{Bytes, Count, Name, Span, bar, class_of};

const PATH: &str = "/nodes";

/// States to filter nodes by, with the word in the address.
const STATES: [(&str, &str); 10] = [
    ("", "all"),
    ("usable", "usable: has slots to grant"),
    ("full", "full"),
    ("late", "late: missed heartbeats"),
    ("excluded", "excluded by the host files"),
    ("draining", "draining"),
    ("revoked", "without access: it was revoked"),
    ("blacklisted", "blacklisted"),
    ("below-reserve", "short of memory or disk"),
    ("silent", "silent: included, but no heartbeats"),
];

/// The content of the page.
pub(crate) fn content(nodes: &[NodeView], overview: &Overview, parameters: &Parameters) -> Markup {
    let silent = parameters.text("state") == Some("silent");
    html! {
        h1 { "Nodes" }
        (search(overview, parameters))
        div #nodes data-live {
            @if silent {
                (silent_table(nodes, overview, parameters))
            } @else {
                (table(nodes, overview, parameters))
            }
        }
    }
}

fn search(overview: &Overview, parameters: &Parameters) -> Markup {
    let state = parameters.text("state").unwrap_or_default();
    let kinds = overview.kinds.iter().map(|kind| (kind.name(), kind.name()));
    let kind = parameters.text("type").unwrap_or_default();
    let fields = html! {
        (filter::search(parameters, "name, host or rack"))
        (filter::choice("state", "State", state, STATES))
        (filter::choice("type", "For", kind, [("", "any type")].into_iter().chain(kinds)))
    };
    filter::form(PATH, parameters, &fields)
}

/// Whether a node is in the requested state. Unknown words match all nodes.
fn is_in_state(node: &NodeView, state: &str, kinds: &[ResourceType]) -> bool {
    let any = |is: &dyn Fn(ResourceType) -> bool| kinds.iter().any(|kind| is(*kind));
    match state {
        "usable" => any(&|kind| node.is_usable(kind)),
        "full" => any(&|kind| {
            node.slots[kind].total > 0 && node.slots[kind].used >= node.slots[kind].total
        }),
        "late" => node.late,
        "excluded" => !node.allowed,
        "draining" => node.draining,
        "revoked" => node.revoked,
        "blacklisted" => any(&|kind| node.blacklisted[kind]),
        "below-reserve" => !node.has_reserve,
        _ => true,
    }
}

fn table(nodes: &[NodeView], overview: &Overview, parameters: &Parameters) -> Markup {
    let text = parameters.text("q").map(str::to_lowercase).unwrap_or_default();
    let state = parameters.text("state").unwrap_or_default();
    let kind = parameters.text("type").and_then(ResourceType::from_name);
    let kinds = kind.map_or_else(|| overview.kinds.clone(), |kind| vec![kind]);
    let named = |node: &NodeView| {
        [&node.name, &node.address.host, &node.rack]
            .into_iter()
            .any(|name| name.to_lowercase().contains(&text))
    };
    let mut chosen: Vec<&NodeView> = nodes
        .iter()
        .filter(|node| text.is_empty() || named(node))
        .filter(|node| is_in_state(node, state, &kinds))
        .collect();
    chosen.sort_by(|a, b| natural_order(&a.name, &b.name));
    let table = Table {
        id: "node-table",
        caption: "Nodes",
        rows_are: ("node", "nodes"),
        path: PATH,
        parameters,
        usual_sort: "name",
        key: |node: &NodeView| node.name.to_string(),
        columns: columns(overview, &kinds),
        empty: if nodes.is_empty() {
            "No node has joined the cluster."
        } else {
            "No node matches."
        },
    };
    table.render(chosen, nodes.len())
}

/// `kinds` are the types by which a node counts as usable.
fn columns<'a>(overview: &'a Overview, kinds: &'a [ResourceType]) -> Vec<Column<'a, NodeView>> {
    type Row = NodeView;
    let now = overview.now;
    let mut columns = vec![
        Column::text("name", "Node", |row: &Row| html! { span.word { (node_link(&row.name)) } })
            .sorted_by(|a: &Row, b| natural_order(&a.name, &b.name)),
        Column::text("state", "State", |row: &Row| state(row, kinds))
            .sorted_by(|a: &Row, b| problems(a, kinds).len().cmp(&problems(b, kinds).len()))
            .largest_first(),
        Column::text("place", "Host and rack", |row: &Row| {
            html! {
                span.word { (Name(&row.address.host)) ":" (row.address.port) }
                span.note {
                    (Name(&row.rack))
                    @if let Some(page) = tracker_page(&row.address.host, overview) {
                        " · "
                        a href=(page) rel="noreferrer" aria-label={ "Task tracker of " (row.name) } {
                            "task tracker"
                        }
                    }
                }
            }
        })
        .wide()
        .sorted_by(|a: &Row, b| {
            natural_order(&a.rack, &b.rack)
                .then_with(|| natural_order(&a.address.host, &b.address.host))
                .then_with(|| a.address.port.cmp(&b.address.port))
        }),
    ];
    for kind in overview.kinds.iter().copied() {
        let key = format!("{}-used", class_of(kind));
        let used = Column::text(&key, kind.name(), move |row: &Row| used(row, kind))
            .sorted_by(move |a: &Row, b| a.slots[kind].used.cmp(&b.slots[kind].used))
            .largest_first();
        columns.push(used);
    }
    columns.extend(resources::node_columns(overview));
    let is_counted = |dimension| overview.settings.resources.dimensions().any(|it| it == dimension);
    let reported = [
        (Dimension::Cpus, Column::number("cpus", "CPUs", |row: &Row| row.total.num_cpus.into())),
        (
            Dimension::Memory,
            Column::text("memory", "Memory free", |row: &Row| {
                resource(row.free.memory_mb, row.total.memory_mb, 20)
            })
            .sorted_by(|a: &Row, b| a.free.memory_mb.cmp(&b.free.memory_mb))
            .numeric(),
        ),
        (
            Dimension::Disk,
            Column::text("disk", "Disk free", |row: &Row| {
                resource(row.free.disk_gb, row.total.disk_gb, 30)
            })
            .sorted_by(|a: &Row, b| a.free.disk_gb.cmp(&b.free.disk_gb))
            .numeric(),
        ),
    ];
    let reported = reported.into_iter().filter(|(dimension, _)| !is_counted(*dimension));
    columns.extend(reported.map(|(_, column)| column));
    columns.extend([
        Column::number("sessions", "Sessions", |row: &Row| {
            i64::try_from(row.sessions).unwrap_or(i64::MAX)
        }),
        Column::text("version", "Version", |row: &Row| {
            html! { (version(overview, &row.name).unwrap_or_else(|| "–".to_owned())) }
        })
        .sorted_by(|a: &Row, b| version(overview, &a.name).cmp(&version(overview, &b.name))),
        Column::text("heard", "Last heartbeat", move |row: &Row| {
            html! { (Span(now.since(row.last_heartbeat)).to_string()) " ago" }
        })
        .sorted_by(|a: &Row, b| b.last_heartbeat.cmp(&a.last_heartbeat))
        .numeric(),
    ]);
    columns
}

/// The version of the program that runs a node.
fn version(overview: &Overview, name: &str) -> Option<String> {
    overview.programs.of_node(name).map(|program| program.version)
}

/// Why a node is given no more, in words.
fn problems(node: &NodeView, kinds: &[ResourceType]) -> Vec<String> {
    let mut problems = Vec::new();
    if node.late {
        problems.push("late".to_owned());
    }
    if !node.allowed {
        problems.push("excluded".to_owned());
    }
    if node.draining {
        problems.push("draining".to_owned());
    }
    if node.revoked {
        problems.push("access revoked".to_owned());
    }
    if !node.has_reserve {
        let itself = node.free.disk_gb.is_some_and(|free| free < 0);
        let why = if itself { "takes no tasks" } else { "short of memory or disk" };
        problems.push(why.to_owned());
    }
    let blacklisted: Vec<&str> =
        kinds.iter().filter(|kind| node.blacklisted[**kind]).map(|kind| kind.name()).collect();
    if !blacklisted.is_empty() {
        problems.push(format!("blacklisted for {}", blacklisted.join(", ")));
    }
    problems
}

pub(super) fn state(node: &NodeView, kinds: &[ResourceType]) -> Markup {
    let problems = problems(node, kinds);
    let usable = kinds.iter().any(|kind| node.is_usable(*kind));
    let serves = kinds.iter().any(|kind| node.apps[*kind].is_some());
    html! {
        @for problem in &problems { span.badge.bad { (problem) } }
        @if problems.is_empty() {
            @if node.reserved_for.is_some() {
                span.badge.warn { "kept for a request" }
            } @else if usable {
                span.badge.good { "usable" }
            } @else if serves {
                span.badge.plain { "full" }
            } @else {
                span.badge.plain { "serves nothing" }
            }
        }
    }
}

pub(super) fn used(node: &NodeView, kind: ResourceType) -> Markup {
    let slots = node.slots[kind];
    html! {
        @if node.apps[kind].is_none() {
            span.note { "not served" }
        } @else {
            div.used {
                (bar(kind, slots.used, slots.total))
                span { (Count(slots.used)) " of " (Count(slots.total)) }
            }
        }
    }
}

/// The free part of a resource. `shift` is the unit as a power of 2, in bytes.
pub(super) fn resource(free: Option<i32>, total: Option<i32>, shift: u32) -> Markup {
    // A node that takes no tasks reports less than nothing.
    let bytes = |count: i32| Bytes(i64::from(count.max(0)) << shift).to_string();
    match (free, total) {
        (None, _) => html! { "–" },
        (Some(free), None) => html! { (bytes(free)) },
        (Some(free), Some(total)) => html! { (bytes(free)) span.note { "of " (bytes(total)) } },
    }
}

fn silent_table(nodes: &[NodeView], overview: &Overview, parameters: &Parameters) -> Markup {
    let text = parameters.text("q").map(str::to_lowercase).unwrap_or_default();
    let silent: Vec<Arc<str>> = silent_hosts(nodes, &overview.hosts).cloned().collect();
    let chosen: Vec<&Arc<str>> =
        silent.iter().filter(|host| host.to_lowercase().contains(&text)).collect();
    let table = Table {
        id: "node-table",
        caption: "Hosts of the include file that send no heartbeats",
        rows_are: ("host", "hosts"),
        path: PATH,
        parameters,
        usual_sort: "name",
        key: |host: &Arc<str>| host.to_string(),
        columns: vec![
            Column::text("name", "Host", |host: &Arc<str>| html! { span.word { (Name(host)) } })
                .sorted_by(|a: &Arc<str>, b| natural_order(a, b)),
        ],
        empty: if overview.hosts.include.is_empty() {
            "There is no include file: every host may join."
        } else {
            "Each of them has a node."
        },
    };
    table.render(chosen, silent.len())
}
