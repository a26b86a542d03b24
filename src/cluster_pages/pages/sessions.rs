//! Running sessions, sorted and filtered.

use maud::{Markup, html};

use super::links::session_path;
use super::resources;
use crate::exchange::Parameters;
use crate::filter::Filter;
use crate::gather::Overview;
use corona_api::cluster::handle_order;
use corona_engine::RunningSession;
use corona_model::text::natural_order;
use corona_model::types::{PoolName, SessionInfo, SessionPriority};
use corona_web::filter;
use corona_web::table::{Column, Table};
use corona_web::units::{Name, Span, class_of};

const PATH: &str = "/sessions";

/// The content of the page.
pub(crate) fn content(
    sessions: &[RunningSession],
    overview: &Overview,
    parameters: &Parameters,
) -> Markup {
    html! {
        h1 { "Sessions" }
        (search(PATH, parameters, &html! {
            (filter::words(parameters, "priority", "Priority", SessionPriority::ALL.map(|it| it.name())))
            (filter::check(parameters, "waiting", "Only with waiting requests"))
        }))
        div #sessions data-live { (table(sessions, overview, parameters)) }
    }
}

/// The fields by which sessions are chosen, running ones or ended ones, and some more.
pub(super) fn search(path: &str, parameters: &Parameters, more: &Markup) -> Markup {
    let fields = html! {
        (filter::search(parameters, "id or name"))
        (filter::text(parameters, "users", "User", "alice,bob"))
        (filter::text(parameters, "poolGroups", "Pool group", "group"))
        (filter::text(parameters, "poolInfos", "Pool", "group.pool"))
        (more)
    };
    filter::form(path, parameters, &fields)
}

/// The first columns of sessions, running ones or ended ones.
pub(super) fn first_columns<'a, Row: 'a>(
    handle: fn(&Row) -> &str,
    info: fn(&Row) -> &SessionInfo,
    pool: fn(&Row) -> &PoolName,
) -> Vec<Column<'a, Row>> {
    vec![
        Column::text("id", "Session", move |row: &Row| {
            html! { a href=(session_path(handle(row))) { (handle(row)) } }
        })
        .sorted_by(move |a: &Row, b| handle_order(handle(a), handle(b))),
        Column::text("name", "Name", move |row: &Row| {
            let name = &info(row).name;
            html! { span.long title=(name) { (Name(name)) } }
        })
        .wide()
        .sorted_by(move |a: &Row, b| natural_order(&info(a).name, &info(b).name)),
        Column::text("user", "User", move |row: &Row| {
            html! { span.word { (Name(&info(row).user_id)) } }
        })
        .sorted_by(move |a: &Row, b| info(a).user_id.cmp(&info(b).user_id)),
        Column::text("pool", "Pool", move |row: &Row| html! { span.word { (Name(pool(row))) } })
            .sorted_by(move |a: &Row, b| pool(a).cmp(pool(b))),
    ]
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
    let mut columns =
        first_columns(|row: &Row| &row.handle, |row| &row.info, |row| &row.scheduling_pool);
    columns.extend([
        Column::text("priority", "Priority", |row: &Row| html! { (row.priority.name()) })
            .sorted_by(|a: &Row, b| a.priority.cmp(&b.priority))
            .largest_first(),
        Column::text("runs", "Age", move |row: &Row| {
            html! { (Span(now.since(row.started)).to_string()) }
        })
        .sorted_by(|a: &Row, b| b.started.cmp(&a.started))
        .numeric(),
    ]);
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
