//! One session: its description, its slots and requests, and why it waits.

use std::fmt::Display;

use maud::{Markup, html};

use super::links::{node_link, session_path};
use super::resources;
use super::retired::status_badge;
use crate::exchange::{Parameters, encode_segment};
use crate::gather::Overview;
use crate::original::web_address;
use corona_engine::{RetiredSession, RunningSession, SessionTally, WaitingRequests};
use corona_model::text::natural_order;
use corona_model::types::{Grant, PoolName, ResourceType, SessionInfo};
use corona_web::table::Head::{Number, Text};
use corona_web::table::{Column, Table, fixed_table, framed};
use corona_web::units::{Bytes, Count, Name, Span, Time, class_of};

/// Ranges of ids that are shown of requests that wait for the same reason.
const RANGES: usize = 12;

/// The data of the page of a running session.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) session: RunningSession,
    pub(crate) grants: Vec<Grant>,
    pub(crate) waits: Vec<WaitingRequests>,
    /// Whether it can be ended from a page.
    pub(crate) may_be_killed: bool,
}

/// The content of the page of a running session.
pub(crate) fn running(view: &View, overview: &Overview, parameters: &Parameters) -> Markup {
    let session = &view.session;
    html! {
        p.crumbs { a href="/sessions" { "Sessions" } }
        div.title {
            h1 { "Session " (session.handle) }
            @if view.may_be_killed {
                a.button.danger href=(format!("{}/kill", session_path(&session.handle))) { "End this session…" }
            }
        }
        div #session data-live {
            (facts(session, overview))
            (requests(&overview.kinds, counts_of(session), &session.usages))
            (waits(&view.waits))
            (grants(view, overview, parameters))
        }
    }
}

fn facts(session: &RunningSession, overview: &Overview) -> Markup {
    let now = overview.now;
    let RunningSession { info, scheduling_pool, .. } = session;
    html! {
        dl.facts {
            (identity(info, true))
            div { dt { "Pool" } dd { (pool_link(scheduling_pool, info)) } }
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
            div { dt { "Last heartbeat" } dd { (Span(now.since(session.last_heartbeat))) " ago" } }
            div { dt { "Callback address" } dd { (Name(&info.address.host)) ":" (info.address.port) } }
            @if overview.settings.resources.are_counted() {
                div {
                    dt { "Share of resources" }
                    dd { (resources::holding(&session.holding)) }
                }
            }
            @if info.no_preempt == Some(true) {
                div { dt { "Preemption" } dd { "Requested no preemption" } }
            }
            @if let Some(program) = overview.programs.of_session(&session.handle) {
                div { dt { "Version" } dd { (program.version) } }
            }
        }
    }
}

/// The session's identity: name, user, groups, its own page.
fn identity(info: &SessionInfo, is_linked: bool) -> Markup {
    let groups = info.group_ids.as_deref().unwrap_or_default();
    html! {
        div.wide { dt { "Name" } dd { (Name(&info.name)) } }
        @if let Some(url) = info.url.as_deref().filter(|url| !url.is_empty()) {
            div.wide {
                dt { "Page" }
                dd {
                    @match web_address(url).filter(|_| is_linked) {
                        Some(address) => a href=(address) rel="noreferrer" { (Name(url)) },
                        None => (Name(url)),
                    }
                }
            }
        }
        div { dt { "User" } dd { (Name(&info.user_id)) } }
        @if !groups.is_empty() { div { dt { "Groups" } dd { (Name(groups.join(", "))) } } }
    }
}

/// The pool in which a session is scheduled, and the one that it was submitted to if that is
/// another.
fn pool_link(pool: &PoolName, info: &SessionInfo) -> Markup {
    let name = pool.to_string();
    let address = Parameters::default().with(&[("poolInfos", &name)]).address("/sessions");
    html! {
        a href=(address) { (Name(&name)) }
        @if let Some(asked) = info.pool.as_ref().filter(|asked| *asked != pool) {
            span.note { "asked for " (Name(asked)) }
        }
    }
}

/// Memory, as sessions report it. Spec: cluster-manager/02 §3.6.
const USAGES: [&str; 3] = ["Maximum", "Momentary maximum", "Resident maximum"];

/// The requests of a session: for each type these counts, and the memory of its tasks.
fn requests<'a>(
    kinds: &[ResourceType],
    counts: Vec<Column<'a, ResourceType>>,
    usages: &'a [Vec<i64>],
) -> Markup {
    let mut columns = vec![Column::text("type", "Type", |kind: &ResourceType| {
        html! { span.dot.(class_of(*kind)) {} (kind) }
    })];
    columns.extend(counts);
    columns.extend(USAGES.iter().enumerate().map(|(at, title)| {
        let usage = move |kind: &ResourceType| usages.get(kind.index())?.get(at).copied();
        // A session that measures nothing reports 0.
        let bytes = move |kind: &_| usage(kind).filter(|bytes| *bytes > 0).map(Bytes);
        Column::text(title, *title, move |kind| html! { (or_none(bytes(kind))) })
            .numeric()
            .under("Memory")
    }));
    html! {
        h2 #requests-title { "Requests" }
        div.scroll tabindex="0" role="region" aria-labelledby="requests-title" {
            (fixed_table("request-table", &columns, kinds, ResourceType::to_string))
        }
    }
}

fn or_none(shown: Option<impl Display>) -> String {
    shown.map_or_else(|| "–".to_owned(), |shown| shown.to_string())
}

fn counts_of(session: &RunningSession) -> Vec<Column<'_, ResourceType>> {
    let count = |title, count: fn(&SessionTally) -> i64| {
        Column::number(title, title, move |kind: &ResourceType| count(&session.counts[*kind]))
    };
    vec![
        count("Running", |of| of.now.granted),
        count("Waiting", |of| of.now.pending),
        // Their slots were revoked, and the session has not released the requests yet.
        count("Awaiting release", |of| of.now.requested - of.now.granted - of.now.pending),
        count("Most at a time", |of| of.max_granted),
        count("Granted in total", |of| of.fulfilled + of.revoked),
        count("Revoked", |of| of.revoked),
        Column::text("First wait", "First wait", |kind: &ResourceType| {
            html! { (or_none(session.counts[*kind].first_wait_ms.map(Span))) }
        })
        .numeric(),
    ]
}

fn waits(waits: &[WaitingRequests]) -> Markup {
    html! {
        h2 #waits-title { "Why it waits" }
        @if waits.is_empty() {
            p { "No request is waiting." }
        } @else {
            (framed("waits", "wait-table", &[
                Text("Type"), Number("Requests"), Text("Why"), Text("Ids"),
            ], &html! {
                @for wait in waits {
                    tr data-key={ (wait.kind) " " (wait.ids.first().map_or(0, |range| range.first)) } {
                        th scope="row" { span.dot.(class_of(wait.kind)) {} (wait.kind) }
                        td.n data-label="Requests" { (Count(wait.count)) }
                        td.wide data-label="Why" { (Name(&wait.text)) }
                        td.ids data-label="Ids" { (ids(wait)) }
                    }
                }
            }))
        }
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
        @if wait.ids.len() > RANGES { " and more" }
    }
}

fn grants(view: &View, overview: &Overview, parameters: &Parameters) -> Markup {
    type Row = Grant;
    let path = session_path(&view.session.handle);
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
        key: |grant: &Grant| format!("{} {}", grant.id, grant.granted_at.0),
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
                |row: &Row| html! { span.word { (node_link(&row.node_name)) } },
            )
            .wide()
            .sorted_by(|a: &Row, b| natural_order(&a.node_name, &b.node_name)),
            Column::text("address", "Address", |row: &Row| {
                html! { span.word { (Name(&row.address.host)) ":" (row.address.port) } }
            })
            .wide()
            .sorted_by(|a: &Row, b| a.address.cmp(&b.address)),
            Column::text("granted", "Granted", |row: &Row| html! { (Time(row.granted_at)) })
                .sorted_by(|a: &Row, b| a.granted_at.cmp(&b.granted_at))
                .largest_first(),
            Column::text("age", "Held for", move |row: &Row| {
                html! { (Span(now.since(row.granted_at)).to_string()) }
            })
            .numeric(),
        ],
        empty: "This session holds no slots.",
    };
    table.render(grants, view.grants.len())
}

/// The job of a session: the one that its page is about, since a remote job tracker has a session of its
/// own, or the one whose id was made of the session's.
fn job_of(handle: &str, url: Option<&str>) -> String {
    let named = url.and_then(|url| url.split_once("jobid=")?.1.split('&').next());
    let job = named.filter(|job| job.starts_with("job_"));
    job.map_or_else(|| format!("job_{handle}_0001"), str::to_owned)
}

/// The content of the page of a session that has ended.
///
/// The page of its job tracker may have ended with it, as that of a job tracker in a client does. So where
/// finished jobs are shown, at `finished_jobs`, the link leads there.
pub(crate) fn ended(
    session: &RetiredSession,
    overview: &Overview,
    finished_jobs: Option<&str>,
) -> Markup {
    let RetiredSession { handle, info, pool, started, ended, status, .. } = session;
    let counts = vec![
        Column::number("most", "Most at a time", |kind| session.max_granted[*kind]),
        Column::number("granted", "Granted in total", |kind| {
            session.fulfilled[*kind] + session.revoked[*kind]
        }),
        Column::number("revoked", "Revoked", |kind| session.revoked[*kind]),
    ];
    html! {
        p.crumbs { a href="/retired" { "Retired" } }
        h1 { "Session " (handle) }
        dl.facts {
            (identity(info, finished_jobs.is_none()))
            @if let Some(pages) = finished_jobs {
                @let job = job_of(handle, info.url.as_deref());
                div.wide {
                    dt { "Finished job" }
                    dd {
                        a href=(format!("{pages}jobs/{}", encode_segment(&job))) rel="noreferrer" {
                            (Name(&job))
                        }
                    }
                }
            }
            div { dt { "Pool" } dd { (pool_link(pool, info)) } }
            div { dt { "Status" } dd { (status_badge(*status)) } }
            div { dt { "Started" } dd { (Time(*started)) } }
            div { dt { "Ended" } dd { (Time(*ended)) " after " (Span(ended.since(*started))) } }
        }
        (requests(&overview.kinds, counts, &session.usages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_of_a_session_is_the_one_that_its_page_is_about() {
        for (url, job) in [
            (None, "job_2026.7_0001"),
            (Some("http://h:1/jobs/x"), "job_2026.7_0001"),
            (Some("http://h:1/jobdetails.jsp?jobid="), "job_2026.7_0001"),
            (Some("http://h:1/jobdetails.jsp?jobid=job_2026.5_0001"), "job_2026.5_0001"),
            (Some("http://h:1/proxy?jobid=job_2026.5_0001&port=2"), "job_2026.5_0001"),
        ] {
            assert_eq!(job_of("2026.7", url), job, "{url:?}");
        }
    }
}
