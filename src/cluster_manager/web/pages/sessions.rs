//! Running sessions, sorted and filtered.

use maud::{Markup, html};

use super::links::session_path;
use super::resources;
use crate::web::exchange::Parameters;
use crate::web::filter::Filter;
use crate::web::gather::Overview;
use corona_api::cluster::handle_order;
use corona_engine::RunningSession;
use corona_model::text::natural_order;
use corona_model::types::{SessionInfo, SessionPriority};
use corona_web::table::{Column, Table};
use corona_web::units::{Name, Span, class_of};

const PATH: &str = "/sessions";

/// The content of the page.
pub(in crate::web) fn content(
    sessions: &[RunningSession],
    overview: &Overview,
    parameters: &Parameters,
) -> Markup {
    html! {
        h1 { "Sessions" }
        (search(PATH, parameters, &html! {
            div {
                label for="priority" { "Priority" }
                select #priority name="priority" {
                    option value="" { "any" }
                    @for priority in SessionPriority::ALL {
                        option value=(priority.name())
                            selected[parameters.text("priority") == Some(priority.name())] {
                            (priority.name())
                        }
                    }
                }
            }
            div.check {
                input #waiting type="checkbox" name="waiting" value="1"
                    checked[parameters.text("waiting").is_some()];
                label for="waiting" { "Only with waiting requests" }
            }
        }))
        div #sessions data-live { (table(sessions, overview, parameters)) }
    }
}

/// The fields by which sessions are chosen, running ones or ended ones, and some more.
pub(super) fn search(path: &str, parameters: &Parameters, more: &Markup) -> Markup {
    let field = |name: &'static str, title: &str, hint: &str, kind: &str| {
        html! {
            div {
                label for=(name) { (title) }
                input #(name) type=(kind) name=(name) value=[parameters.text(name)] placeholder=(hint);
            }
        }
    };
    html! {
        form.filter method="get" action=(path) role="search" data-swap {
            (field("q", "Search", "id or name", "search"))
            (field("users", "User", "alice,bob", "text"))
            (field("poolGroups", "Pool group", "group", "text"))
            (field("poolInfos", "Pool", "group.pool", "text"))
            (more)
            @if let Some(sort) = parameters.text("sort") {
                input type="hidden" name="sort" value=(sort);
            }
            div { button type="submit" { "Apply" } " " a href=(path) data-swap { "Reset" } }
        }
    }
}

/// Whether a session has this text, in lower case, in its id or name.
pub(super) fn is_named(text: &str, handle: &str, info: &SessionInfo) -> bool {
    text.is_empty() || handle.contains(text) || info.name.to_lowercase().contains(text)
}

fn table(sessions: &[RunningSession], overview: &Overview, parameters: &Parameters) -> Markup {
    let filter = Filter::new(parameters);
    let text = parameters.text("q").map(str::to_lowercase).unwrap_or_default();
    let priority = parameters.text("priority");
    let waiting = parameters.text("waiting").is_some();
    let mut chosen: Vec<&RunningSession> = sessions
        .iter()
        .filter(|session| {
            let pool = &session.scheduling_pool;
            filter.wants_session(&session.info.user_id, &pool.group, &pool.pool)
                && is_named(&text, &session.handle, &session.info)
                && priority.is_none_or(|name| session.priority.name() == name)
                && (!waiting
                    || overview.kinds.iter().any(|kind| session.counts[*kind].now.pending > 0))
        })
        .collect();
    chosen.sort_by(|a, b| handle_order(&a.handle, &b.handle));
    let table = Table {
        id: "session-table",
        caption: "Running sessions",
        rows_are: ("session", "sessions"),
        path: PATH,
        parameters,
        usual_sort: "id",
        key: |session: &RunningSession| session.handle.to_string(),
        columns: columns(overview),
        empty: if sessions.is_empty() { "No session is running." } else { "No session matches." },
    };
    table.render(chosen, sessions.len())
}

fn columns(overview: &Overview) -> Vec<Column<'_, RunningSession>> {
    type Row = RunningSession;
    let now = overview.now;
    let mut columns = vec![
        Column::text("id", "Session", |row: &Row| {
            html! { a href=(session_path(&row.handle)) { (row.handle) } }
        })
        .sorted_by(|a: &Row, b| handle_order(&a.handle, &b.handle)),
        Column::text(
            "name",
            "Name",
            |row: &Row| html! { span.long title=(row.info.name) { (Name(&row.info.name)) } },
        )
        .wide()
        .sorted_by(|a: &Row, b| natural_order(&a.info.name, &b.info.name)),
        Column::text("user", "User", |row: &Row| html! { span.word { (Name(&row.info.user_id)) } })
            .sorted_by(|a: &Row, b| a.info.user_id.cmp(&b.info.user_id)),
        Column::text(
            "pool",
            "Pool",
            |row: &Row| html! { span.word { (Name(&row.scheduling_pool)) } },
        )
        .sorted_by(|a: &Row, b| a.scheduling_pool.cmp(&b.scheduling_pool)),
        Column::text("priority", "Priority", |row: &Row| html! { (row.priority.name()) })
            .sorted_by(|a: &Row, b| a.priority.cmp(&b.priority))
            .largest_first(),
        Column::text("runs", "Age", move |row: &Row| {
            html! { (Span(now.since(row.started)).to_string()) }
        })
        .sorted_by(|a: &Row, b| b.started.cmp(&a.started))
        .numeric(),
    ];
    for kind in overview.kinds.iter().copied() {
        let key = |what: &str| format!("{}-{what}", class_of(kind));
        columns.extend([
            Column::number(&key("running"), "Running", move |row: &Row| {
                row.counts[kind].now.granted
            })
            .under(kind.name()),
            Column::number(&key("waiting"), "Waiting", move |row: &Row| {
                row.counts[kind].now.pending
            })
            .under(kind.name()),
        ]);
    }
    columns.extend(resources::holding_column(overview, |row: &Row| &row.holding));
    columns
}
