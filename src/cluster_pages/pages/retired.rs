//! Sessions that have ended and are remembered.

use maud::{Markup, html};

use super::sessions::{first_columns, is_named, search};
use crate::exchange::Parameters;
use crate::filter::Filter;
use crate::gather::Overview;
use corona_engine::RetiredSession;
use corona_model::types::SessionStatus;
use corona_web::filter;
use corona_web::table::{Column, Table};
use corona_web::units::{Span, Time, class_of};

const PATH: &str = "/retired";

/// The content of the page.
pub(crate) fn content(
    sessions: &[RetiredSession],
    overview: &Overview,
    parameters: &Parameters,
) -> Markup {
    let ended = SessionStatus::ALL.into_iter().filter(|status| *status != SessionStatus::Running);
    html! {
        h1 { "Retired sessions" }
        (search(PATH, parameters, &html! {
            (filter::words(parameters, "status", "Status", ended.map(SessionStatus::name)))
        }))
        div #retired data-live { (table(sessions, overview, parameters)) }
    }
}

fn table(sessions: &[RetiredSession], overview: &Overview, parameters: &Parameters) -> Markup {
    let filter = Filter::new(parameters);
    let text = parameters.text("q").map(str::to_lowercase).unwrap_or_default();
    let status = parameters.text("status");
    let chosen: Vec<&RetiredSession> = sessions
        .iter()
        .rev()
        .filter(|session| {
            filter.wants_session(&session.info.user_id, &session.pool.group, &session.pool.pool)
                && is_named(&text, &session.handle, &session.info)
                && status.is_none_or(|name| session.status.name() == name)
        })
        .collect();
    let table = Table {
        id: "retired-table",
        caption: "Ended sessions",
        rows_are: ("session", "sessions"),
        path: PATH,
        parameters,
        usual_sort: "-ended",
        key: |session: &RetiredSession| session.handle.to_string(),
        columns: columns(overview),
        empty: if sessions.is_empty() { "No session has ended." } else { "No session matches." },
    };
    table.render(chosen, sessions.len())
}

/// How an end is shown: failures stand out.
pub(super) fn status_badge(status: SessionStatus) -> Markup {
    let class = match status {
        SessionStatus::Successful => "good",
        SessionStatus::Running => "plain",
        SessionStatus::Killed | SessionStatus::KilledAborted => "warn",
        SessionStatus::Failed | SessionStatus::TimedOut | SessionStatus::FailedJobtracker => "bad",
    };
    html! { span.badge.(class) { (status.name()) } }
}

fn columns(overview: &Overview) -> Vec<Column<'_, RetiredSession>> {
    type Row = RetiredSession;
    let mut columns = first_columns(|row: &Row| &row.handle, |row| &row.info, |row| &row.pool);
    columns.extend([
        Column::text("status", "Status", |row: &Row| status_badge(row.status))
            .sorted_by(|a: &Row, b| a.status.cmp(&b.status)),
        Column::text("ended", "Ended", |row: &Row| html! { (Time(row.ended)) })
            .sorted_by(|a: &Row, b| a.ended.cmp(&b.ended))
            .largest_first(),
        Column::text("ran", "Ran for", |row: &Row| {
            html! { (Span(row.ended.since(row.started)).to_string()) }
        })
        .sorted_by(|a: &Row, b| a.ended.since(a.started).cmp(&b.ended.since(b.started)))
        .numeric(),
    ]);
    for kind in overview.kinds.iter().copied() {
        let key = |what: &str| format!("{}-{what}", class_of(kind));
        columns.extend([
            Column::number(&key("fulfilled"), "Granted", move |row: &Row| {
                row.fulfilled[kind] + row.revoked[kind]
            })
            .under(kind.name()),
            Column::number(&key("revoked"), "Revoked", move |row: &Row| row.revoked[kind])
                .under(kind.name()),
        ]);
    }
    columns
}
