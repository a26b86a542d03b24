//! One session: what it says of itself, what it has and asks for, and why it waits.

use maud::{Markup, html};

use super::node::link;
use super::retired::status_badge;
use crate::web::exchange::{Parameters, encode_segment};
use crate::web::gather::Overview;
use crate::web::original::web_address;
use crate::web::table::{Column, Table};
use corona_engine::{RetiredSession, RunningSession, WaitReason, WaitingRequests};
use corona_model::types::{Grant, ResourceType, SessionInfo};
use corona_web::units::{Bytes, Count, Span, Time, class_of};

/// Ranges of ids that are shown of requests that wait for the same reason.
const RANGES: usize = 20;

/// What the page shows of a running session.
#[derive(Debug)]
pub(in crate::web) struct View {
    pub(in crate::web) session: RunningSession,
    pub(in crate::web) grants: Vec<Grant>,
    pub(in crate::web) waits: Vec<WaitingRequests>,
    /// Whether it can be ended from a page.
    pub(in crate::web) may_be_killed: bool,
}

/// The address of a session's page.
pub(super) fn path(handle: &str) -> String {
    format!("/sessions/{}", encode_segment(handle))
}

/// The content of the page of a running session.
pub(in crate::web) fn running(view: &View, overview: &Overview, parameters: &Parameters) -> Markup {
    let session = &view.session;
    html! {
        p.crumbs { a href="/sessions" { "Sessions" } }
        div.title {
            h1 { "Session " (session.handle) }
            @if view.may_be_killed {
                a.button.danger href=(format!("{}/kill", path(&session.handle))) { "End this session…" }
            }
        }
        div #session data-live {
            (facts(session, overview))
            (requests(session, overview))
            (waits(&view.waits, overview))
            (grants(view, overview, parameters))
        }
    }
}

fn facts(session: &RunningSession, overview: &Overview) -> Markup {
    let now = overview.now;
    let RunningSession { info, pool, scheduling_pool, .. } = session;
    html! {
        dl.facts {
            (identity(info))
            div {
                dt { "Pool" }
                dd {
                    (pool_link(&scheduling_pool.to_string()))
                    @if pool != scheduling_pool { span.note { "asked for " (pool) } }
                }
            }
            div { dt { "Priority" } dd { (session.priority.name()) } }
            @if session.deadline != 0 {
                div {
                    dt { "Deadline" }
                    dd { (Time(corona_model::types::Millis(session.deadline))) }
                }
            }
            div {
                dt { "Started" }
                dd { (Time(session.started)) " (" (Span(now.since(session.started))) " ago)" }
            }
            div { dt { "Heard" } dd { (Span(now.since(session.last_heartbeat))) " ago" } }
            div { dt { "Told at" } dd { (info.address.host) ":" (info.address.port) } }
            @if info.no_preempt == Some(true) {
                div { dt { "Preemption" } dd { "asked not to be taken from" } }
            }
        }
    }
}

/// Who it is: name, user, groups, its own page.
fn identity(info: &SessionInfo) -> Markup {
    let groups = info.group_ids.as_deref().unwrap_or_default();
    html! {
        div.wide { dt { "Name" } dd { (info.name) } }
        @if let Some(url) = info.url.as_deref().filter(|url| !url.is_empty()) {
            div.wide {
                dt { "Page" }
                dd {
                    @match web_address(url) {
                        Some(address) => a href=(address) rel="noreferrer" { (url) },
                        None => (url),
                    }
                }
            }
        }
        div { dt { "User" } dd { (info.user_id) } }
        @if !groups.is_empty() { div { dt { "Groups" } dd { (groups.join(", ")) } } }
    }
}

fn pool_link(pool: &str) -> Markup {
    let address = Parameters::default().with(&[("poolInfos", pool)]).address("/sessions");
    html! { a href=(address) { (pool) } }
}

/// Memory, as sessions report it. Spec: cluster-manager/02 §3.6.
const USAGES: [&str; 3] = ["Most", "At a time", "Resident"];

/// The heading of a table of requests, which ends with the memory.
fn requests_head(titles: &[&str]) -> Markup {
    html! {
        tr {
            @for (position, title) in titles.iter().enumerate() {
                th scope="col" rowspan="2" .n[position > 0] { (title) }
            }
            th.group scope="colgroup" colspan=(USAGES.len()) { "Memory" }
        }
        tr {
            @for title in USAGES { th.n scope="col" { (title) } }
        }
    }
}

fn requests(session: &RunningSession, overview: &Overview) -> Markup {
    html! {
        h2 #requests-title { "Requests" }
        div.scroll tabindex="0" role="region" aria-labelledby="requests-title" {
            table #request-table {
                thead {
                    (requests_head(&[
                        "Type", "Running", "Waiting", "Lost", "Most at a time", "Had", "Taken back",
                        "First wait",
                    ]))
                }
                tbody {
                    @for kind in &overview.kinds { (requests_row(session, *kind)) }
                }
            }
        }
    }
}

fn requests_row(session: &RunningSession, kind: ResourceType) -> Markup {
    let counts = session.counts[kind];
    let lost = counts.now.requested - counts.now.granted - counts.now.pending;
    let usages = session.usages.get(kind.index()).map(Vec::as_slice).unwrap_or_default();
    html! {
        tr {
            th scope="row" { span.dot.(class_of(kind)) {} (kind) }
            @for number in [
                counts.now.granted,
                counts.now.pending,
                lost,
                counts.max_concurrent,
                counts.fulfilled,
                counts.revoked,
            ] {
                td.n { (Count(number)) }
            }
            td.n { @match counts.first_wait_ms { Some(ms) => (Span(ms)), None => "–" } }
            @for usage in 0..USAGES.len() {
                td.n { @match usages.get(usage) { Some(bytes) => (Bytes(*bytes)), None => "–" } }
            }
        }
    }
}

fn waits(waits: &[WaitingRequests], overview: &Overview) -> Markup {
    html! {
        h2 #waits-title { "Why it waits" }
        @if waits.is_empty() {
            p { "No request waits." }
        } @else {
            div.scroll tabindex="0" role="region" aria-labelledby="waits-title" {
                table #wait-table {
                    thead {
                        tr {
                            th scope="col" { "Type" }
                            th.n scope="col" { "Requests" }
                            th scope="col" { "Why" }
                            th scope="col" { "Ids" }
                        }
                    }
                    tbody {
                        @for wait in waits {
                            tr {
                                th scope="row" { span.dot.(class_of(wait.kind)) {} (wait.kind) }
                                td.n { (Count(wait.count)) }
                                td { (reason(&wait.reason, overview)) }
                                td.ids { (ids(wait)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn reason(reason: &WaitReason, overview: &Overview) -> Markup {
    match reason {
        WaitReason::NearNode { until, hosts, host_count } => html! {
            "waits another " (Span(until.since(overview.now))) " for a node near "
            (hosts.join(", "))
            @if *host_count > hosts.len() { " or " (host_count - hosts.len()) " other hosts" }
        },
        other => html! { (other) },
    }
}

fn ids(wait: &WaitingRequests) -> Markup {
    let ranges = wait.ids.iter().take(RANGES).map(|range| match range.first == range.last {
        true => range.first.to_string(),
        false => format!("{}–{}", range.first, range.last),
    });
    let ranges: Vec<String> = ranges.collect();
    html! {
        (ranges.join(", "))
        @if wait.ids.len() > RANGES { ", …" }
    }
}

fn grants(view: &View, overview: &Overview, parameters: &Parameters) -> Markup {
    type Row = Grant;
    let path = path(&view.session.handle);
    let now = overview.now;
    let mut grants: Vec<&Grant> = view.grants.iter().collect();
    grants.sort_by_key(|grant| grant.id);
    let table = Table {
        id: "grant-table",
        caption: "Grants",
        rows_are: ("grant", "grants"),
        path: &path,
        parameters,
        usual_sort: "id",
        columns: vec![
            Column::text("id", "Request", |row: &Row| html! { (row.id) })
                .sorted_by(|a: &Row, b| a.id.cmp(&b.id)),
            Column::text("type", "Type", |row: &Row| {
                html! { span.dot.(class_of(row.kind)) {} (row.kind) }
            })
            .sorted_by(|a: &Row, b| a.kind.cmp(&b.kind)),
            Column::text(
                "node",
                "Node",
                |row: &Row| html! { span.word { (link(&row.node_name)) } },
            )
            .sorted_by(|a: &Row, b| a.node_name.cmp(&b.node_name)),
            Column::text("address", "Address", |row: &Row| {
                html! { span.word { (row.address.host) ":" (row.address.port) } }
            })
            .sorted_by(|a: &Row, b| a.address.cmp(&b.address)),
            Column::text("granted", "Granted", |row: &Row| html! { (Time(row.granted_at)) })
                .sorted_by(|a: &Row, b| a.granted_at.cmp(&b.granted_at))
                .largest_first(),
            Column::text("age", "Held for", move |row: &Row| {
                html! { (Span(now.since(row.granted_at)).to_string()) }
            })
            .numeric(),
        ],
        empty: "It holds no slot.",
    };
    table.render(grants, view.grants.len())
}

/// The content of the page of a session that has ended.
pub(in crate::web) fn ended(session: &RetiredSession, overview: &Overview) -> Markup {
    let RetiredSession { handle, info, pool, started, ended, status, .. } = session;
    html! {
        p.crumbs { a href="/retired" { "Retired" } }
        h1 { "Session " (handle) }
        dl.facts {
            (identity(info))
            div { dt { "Pool" } dd { (pool_link(&pool.to_string())) } }
            div { dt { "Status" } dd { (status_badge(*status)) } }
            div { dt { "Started" } dd { (Time(*started)) } }
            div { dt { "Ended" } dd { (Time(*ended)) " after " (Span(ended.since(*started))) } }
        }
        h2 #requests-title { "Requests" }
        div.scroll tabindex="0" role="region" aria-labelledby="requests-title" {
            table #request-table {
                thead {
                    (requests_head(&["Type", "Most at a time", "Had", "Taken back"]))
                }
                tbody {
                    @for kind in &overview.kinds {
                        @let usages = session.usages.get(kind.index());
                        tr {
                            th scope="row" { span.dot.(class_of(*kind)) {} (kind) }
                            td.n { (Count(session.max_concurrent[*kind])) }
                            td.n { (Count(session.fulfilled[*kind])) }
                            td.n { (Count(session.revoked[*kind])) }
                            @for usage in 0..USAGES.len() {
                                td.n {
                                    @match usages.and_then(|usages| usages.get(usage)) {
                                        Some(bytes) => (Bytes(*bytes)),
                                        None => "–",
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
