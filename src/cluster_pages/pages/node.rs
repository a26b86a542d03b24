//! One node: its slots, its grants with their sessions, and the failures reported on it.

use maud::{Markup, html};

use super::kill::TOKEN_KEY;
use super::links::{node_path, session_path, tracker_page};
use super::nodes::{resource, state, used};
use super::resources;
use crate::exchange::Parameters;
use crate::gather::Overview;
use corona_api::cluster::handle_order;
use corona_engine::{Complaint, NodeDetail, NodeFaults, NodeGrant};
use corona_model::settings::FaultLimits;
use corona_model::text::{natural_order, word_of_line};
use corona_model::types::{Millis, ResourceType};
use corona_web::operator::{Objection, token_field};
use corona_web::table::Head::{Number, Text};
use corona_web::table::{Column, Table, framed};
use corona_web::units::{Count, Name, Span, Time, class_of};

/// The data of the page.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) detail: NodeDetail,
    pub(crate) grants: Vec<NodeGrant>,
    /// Whether a blacklisting can be lifted from a page.
    pub(crate) may_be_changed: bool,
}

/// The content of the page.
pub(crate) fn content(view: &View, overview: &Overview, parameters: &Parameters) -> Markup {
    let node = &view.detail.node;
    let blacklisted = node.blacklisted.0.contains(&true);
    html! {
        p.crumbs { a href="/nodes" { "Nodes" } }
        div.title {
            h1 { "Node " (Name(&node.name)) }
            @if blacklisted && view.may_be_changed {
                a.button href=(format!("{}/clear-blacklist", node_path(&node.name))) {
                    "Lift the blacklisting…"
                }
            }
        }
        div #node data-live {
            (facts(view, overview))
            @if blacklisted { (how_to_lift(&node.name, view.may_be_changed)) }
            @if node.draining { (how_to_undo(&node.name)) }
            (types(&view.detail, overview))
            (resources::of_node(&view.detail.node, overview))
            (complaints(&view.detail.complaints, overview))
            (grants(view, overview, parameters))
        }
    }
}

fn facts(view: &View, overview: &Overview) -> Markup {
    let node = &view.detail.node;
    html! {
        dl.facts {
            div { dt { "State" } dd { (state(node, &overview.kinds)) } }
            div { dt { "Address" } dd { (Name(&node.address.host)) ":" (node.address.port) } }
            @if let Some(page) = tracker_page(&node.address.host, overview) {
                div { dt { "Task tracker" } dd { a href=(page) rel="noreferrer" { "Its own page" } } }
            }
            div { dt { "Rack" } dd { (Name(&node.rack)) } }
            div { dt { "CPUs" } dd { (Count(node.total.num_cpus)) } }
            div {
                dt { "Memory free" }
                dd { (resource(node.free.memory_mb, node.total.memory_mb, 20)) }
            }
            div { dt { "Disk free" } dd { (resource(node.free.disk_gb, node.total.disk_gb, 30)) } }
            div {
                dt { "Last heartbeat" }
                dd { (Span(overview.now.since(node.last_heartbeat))) " ago" }
            }
            @if let Some(kept) = &node.reserved_for {
                div {
                    dt { "Kept for" }
                    dd {
                        "request " (kept.id) " of session "
                        a href=(session_path(&kept.session)) { (kept.session) }
                        span.note {
                            "for " (Span(overview.now.since(kept.since))) ", and for another "
                            (Span(kept.until.since(overview.now))) " at most"
                        }
                    }
                }
            }
            div { dt { "Sessions that had slots here" } dd { (Count(node.sessions)) } }
            @if let Some(program) = overview.programs.of_node(&node.name) {
                div {
                    dt { "Version" }
                    dd {
                        (program.version)
                        span.note { "for " (Span(overview.now.since(Millis(program.started_ms)))) }
                    }
                }
                @if let Some(reason) = &program.restart_refused {
                    div { dt { "Last restart in place" } dd { "refused: " (reason) } }
                }
            }
        }
    }
}

/// Advice for an operator about a blacklisting.
fn how_to_lift(name: &str, may_be_changed: bool) -> Markup {
    html! {
        p {
            "Slots of a blacklisted type are not granted until the node restarts or expires, or until an operator lifts the blacklisting"
            @if may_be_changed {
                ": " code { "corona nodes clear-blacklist " (word_of_line(name)) }
            } @else {
                ", which needs " code { "corona.cm.web.kill.token" } " to be set"
            }
            "."
        }
    }
}

/// Advice for an operator about a drain.
fn how_to_undo(name: &str) -> Markup {
    html! {
        p {
            "An operator drains this node: it is granted nothing. To see when it can be stopped: "
            code { "corona nodes drain " (word_of_line(name)) " --wait" }
            ". Let it serve again: " code { "corona nodes drain " (word_of_line(name)) " --undo" } "."
        }
    }
}

/// Slots by type, and how close the node is to being blacklisted.
fn types(detail: &NodeDetail, overview: &Overview) -> Markup {
    let node = &detail.node;
    let limits = &overview.settings.faults;
    html! {
        h2 #types-title { "Slots" }
        (framed("types", "type-table", &[
            Text("Type"), Text("Used"), Text("Served at"),
            Text("Sessions that reported failures"), Text("Sessions that could not connect"),
            Text("Blacklisted"),
        ], &html! {
            @for kind in overview.kinds.iter().copied() {
                tr data-key=(kind) {
                    th scope="row" { span.dot.(class_of(kind)) {} (kind) }
                    td data-label="Used" { (used(node, kind)) }
                    td.wide data-label="Served at" {
                        @match &node.apps[kind] {
                            Some(app) => span.word { (Name(app)) },
                            None => "–",
                        }
                    }
                    (faults(detail.faults[kind], limits))
                }
            }
        }))
    }
}

fn faults(faults: NodeFaults, limits: &FaultLimits) -> Markup {
    let counts = [
        ("Sessions that reported failures", faults.failures, limits.failure_sessions),
        (
            "Sessions that could not connect",
            faults.failed_connections,
            limits.failed_connection_sessions,
        ),
    ];
    html! {
        @for (label, count, limit) in counts {
            td data-label=(label) { (Count(count)) " (at most " (Count(limit)) ")" }
        }
        td data-label="Blacklisted" {
            @match faults.blacklisted_since {
                Some(since) => span.badge.bad { "since " (Time(since)) },
                None => "no",
            }
        }
    }
}

fn complaints(complaints: &[Complaint], overview: &Overview) -> Markup {
    let types = |complaint: &Complaint| {
        let kinds = ResourceType::ALL.into_iter().filter(|kind| complaint.kinds[*kind]);
        kinds.map(ResourceType::name).collect::<Vec<_>>().join(", ")
    };
    html! {
        @if !complaints.is_empty() {
            h2 #complaints-title { "Failures reported by sessions" }
            (framed("complaints", "complaint-table", &[
                Text("Session"), Text("User"), Text("Reported"), Text("Counted for"),
                Number("Failures"), Number("Failed connections"),
            ], &html! {
                @for complaint in complaints.iter().rev() {
                    tr data-key=(format!("{} {}", complaint.session, complaint.at.0)) {
                        th scope="row" {
                            a href=(session_path(&complaint.session)) {
                                (complaint.session)
                            }
                        }
                        td data-label="User" { span.word { (Name(&complaint.user)) } }
                        td data-label="Reported" {
                            (Time(complaint.at))
                            span.note { (Span(overview.now.since(complaint.at))) " ago" }
                        }
                        td data-label="Counted for" { (types(complaint)) }
                        td.n data-label="Failures" { (Count(complaint.failed)) }
                        td.n data-label="Failed connections" { (Count(complaint.failed_connections)) }
                    }
                }
            }))
        }
    }
}

fn grants(view: &View, overview: &Overview, parameters: &Parameters) -> Markup {
    type Row = NodeGrant;
    let path = node_path(&view.detail.node.name);
    let now = overview.now;
    let mut grants: Vec<&Row> = view.grants.iter().collect();
    grants.sort_by(|a, b| (a.granted_at, &a.session, a.id).cmp(&(b.granted_at, &b.session, b.id)));
    let takes = Column::text("takes", "Takes", |row: &Row| html! { (row.takes.brief()) });
    let takes = Some(takes).filter(|_| overview.settings.resources.are_counted());
    let table = Table {
        id: "grant-table",
        caption: "Running here",
        rows_are: ("grant", "grants"),
        path: &path,
        parameters,
        usual_sort: "age",
        key: |grant: &Row| format!("{} {} {}", grant.session, grant.id, grant.granted_at.0),
        columns: [
            Column::text("session", "Session", |row: &Row| {
                html! { a href=(session_path(&row.session)) { (row.session) } }
            })
            .sorted_by(|a: &Row, b| handle_order(&a.session, &b.session)),
            Column::text("name", "Name", |row: &Row| html! { span.long { (Name(&row.name)) } })
                .wide()
                .sorted_by(|a: &Row, b| natural_order(&a.name, &b.name)),
            Column::text("user", "User", |row: &Row| html! { span.word { (Name(&row.user)) } })
                .sorted_by(|a: &Row, b| a.user.cmp(&b.user)),
            Column::text("pool", "Pool", |row: &Row| html! { span.word { (Name(&row.pool)) } })
                .sorted_by(|a: &Row, b| a.pool.cmp(&b.pool)),
            Column::text("type", "Type", |row: &Row| {
                html! { span.dot.(class_of(row.kind)) {} (row.kind) }
            })
            .sorted_by(|a: &Row, b| a.kind.cmp(&b.kind)),
            Column::number("slots", "Slots", |row: &Row| row.slots.into()),
        ]
        .into_iter()
        .chain(takes)
        .chain([
            Column::text("id", "Request", |row: &Row| html! { (row.id) })
                .sorted_by(|a: &Row, b| a.id.cmp(&b.id))
                .numeric(),
            Column::text("age", "Held for", move |row: &Row| {
                html! { (Span(now.since(row.granted_at))) span.note { (Time(row.granted_at)) } }
            })
            .sorted_by(|a: &Row, b| b.granted_at.cmp(&a.granted_at))
            .numeric(),
        ])
        .collect(),
        empty: "No slot of this node is in use.",
    };
    table.render(grants, view.grants.len())
}

/// The question before a blacklisting is lifted, with the field for the token.
pub(crate) fn question(
    detail: &NodeDetail,
    overview: &Overview,
    objection: Option<Objection>,
) -> Markup {
    let node = &detail.node;
    let page = node_path(&node.name);
    let blacklisted = overview.kinds.iter().filter(|kind| node.blacklisted[**kind]);
    html! {
        p.crumbs { a href=(page) { "Node " (Name(&node.name)) } }
        h1 { "Lift the blacklisting of node " (Name(&node.name)) "?" }
        @if let Some(objection) = objection {
            p.problem role="alert" { (objection.sentence()) " The node stays as it is." }
        }
        dl.facts {
            @for kind in blacklisted {
                @let faults = detail.faults[*kind];
                div {
                    dt { span.dot.(class_of(*kind)) {} (kind) }
                    dd {
                        (Count(faults.failures)) " sessions reported failures, "
                        (Count(faults.failed_connections)) " could not connect"
                        @if let Some(since) = faults.blacklisted_since {
                            span.note { "blacklisted since " (Time(since)) }
                        }
                    }
                }
            }
        }
        p {
            "Its slots are granted again at once, and the reports so far are discarded. It is blacklisted again when as many other sessions report failures."
        }
        form.kill method="post" action=(format!("{page}/clear-blacklist")) {
            (token_field(objection, TOKEN_KEY))
            div.actions {
                button type="submit" { "Lift the blacklisting" }
                " "
                a.button href=(page) { "Leave it" }
            }
        }
    }
}
