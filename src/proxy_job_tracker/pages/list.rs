//! The list of finished jobs, and its search.

use corona_model::types::Millis;
use corona_web::budget;
use corona_web::table::{Column, Table};
use corona_web::units::{Count, Name, Time};
use maud::{Markup, html};

use super::figures::shown_span;
use super::{Parameters, ProxyContext, frame_in};
use crate::index::{Entry, Query};

pub(super) fn page(shared: &ProxyContext, wanted: &Query, query: &Parameters) -> Markup {
    let found = shared.index.find(wanted);
    let all = shared.index.jobs().len();
    // The original's name of the number of a page.
    let number = query.get("page").or(query.get("pageno")).unwrap_or_default().to_owned();
    let parameters = query.with(&[("page", &number), ("pageno", "")]);
    let content = html! {
        h1 { "Finished jobs" }
        (state(shared))
        (form(wanted, query))
        (table(&parameters, all).render(found.iter().map(|entry| &**entry).collect(), all))
        h2 { "This process" }
        dl.facts { (budget::facts(&budget::now())) }
    };
    frame_in(shared, Some("/"), "Finished jobs", &content)
}

fn table(parameters: &Parameters, all: usize) -> Table<'_, Entry> {
    let text = |of: fn(&Entry) -> &str| move |a: &Entry, b: &Entry| of(a).cmp(of(b));
    let took = |entry: &Entry| (entry.finish_ms - entry.submit_ms).max(0);
    let failures = |entry: &Entry| i64::from(entry.failed_maps) + i64::from(entry.failed_reduces);
    let columns = vec![
        Column::text("id", "Job", |entry: &Entry| {
            html! { a href={ "/jobs/" (entry.id) } { (Name(&entry.id)) } }
        })
        .sorted_by(text(|entry| &entry.id)),
        Column::text("name", "Name", |entry: &Entry| html! { span.long { (entry.name) } })
            .sorted_by(text(|entry| &entry.name)),
        Column::text("user", "User", |entry: &Entry| html! { (entry.user) })
            .sorted_by(text(|entry| &entry.user)),
        Column::text("pool", "Pool", |entry: &Entry| {
            html! { @if entry.pool.is_empty() { "–" } @else { (Name(&entry.pool)) } }
        })
        .sorted_by(text(|entry| &entry.pool)),
        Column::text("state", "State", |entry: &Entry| badge(entry.state_name()))
            .sorted_by(text(|entry| entry.state_name())),
        Column::text("submitted", "Submitted", |entry: &Entry| {
            html! { @if entry.submit_ms > 0 { (Time(Millis(entry.submit_ms))) } @else { "–" } }
        })
        .sorted_by(|a, b| a.submit_ms.cmp(&b.submit_ms))
        .largest_first(),
        Column::text("took", "Took", |entry: &Entry| {
            html! { (shown_span(entry.submit_ms, entry.finish_ms)) }
        })
        .sorted_by(move |a, b| took(a).cmp(&took(b)))
        .numeric(),
        Column::number("maps", "Maps", |entry: &Entry| entry.maps.into()),
        Column::number("reduces", "Reduces", |entry: &Entry| entry.reduces.into()),
        Column::number("failures", "Failures", failures),
    ];
    Table {
        id: "jobs",
        caption: "Jobs",
        rows_are: ("job", "jobs"),
        key: |entry| entry.id.to_string(),
        path: "/jobs",
        parameters,
        usual_sort: "-submitted",
        columns,
        empty: if all == 0 { "No job has a history yet." } else { "No job matches." },
    }
}

/// What keeps the list from being complete.
fn state(shared: &ProxyContext) -> Markup {
    use std::sync::atomic::Ordering::Relaxed;
    let index = &shared.index;
    let (failed, left_out) = (index.has_failed.load(Relaxed), index.left_out.load(Relaxed));
    let unreadable = index.unreadable_now.load(Relaxed);
    html! {
        @if index.searched_ms.load(Relaxed) == 0 && !failed {
            p.note { "The index of jobs is being built; further jobs appear as they are found." }
        }
        @if failed {
            p.problem.bad {
                "Histories below " (shared.histories.roots())
                " cannot be read. The log says why."
            }
        }
        @if left_out > 0 {
            p.problem.warn { (Count(left_out)) " jobs are not listed: corona.pjt.index.max.jobs is reached." }
        }
        @if unreadable > 0 {
            p.problem.warn { (Count(unreadable)) " histories or other entries of their directories could not be read." }
        }
    }
}

fn form(wanted: &Query, query: &Parameters) -> Markup {
    let field = |name: &str, label: &str, hint: &str, value: &str| {
        html! {
            div {
                label for={ "f-" (name) } { (label) }
                input #{ "f-" (name) } type="text" name=(name) value=(value) placeholder=(hint);
            }
        }
    };
    let given = |name: &str| query.get(name).unwrap_or_default().to_owned();
    html! {
        form.filter method="get" action="/jobs" role="search" {
            (field("q", "Search", "id, name or user", &wanted.text))
            (field("user", "User", "alice", &wanted.user))
            (field("name", "Name", "a part of it", &wanted.name))
            (field("pool", "Pool", "group.pool", &wanted.pool))
            div {
                label for="f-state" { "State" }
                select #f-state name="state" {
                    @for (value, name) in [
                        ("", "any"), ("succeeded", "succeeded"), ("failed", "failed"),
                        ("killed", "killed"), ("incomplete", "incomplete"),
                    ] {
                        option value=(value) selected[wanted.state == value] { (name) }
                    }
                }
            }
            (field("from", "Submitted from", "2026-11-22", &given("from")))
            (field("until", "Before", "2026-11-23", &given("until")))
            div { button type="submit" { "Apply" } " " a href="/jobs" { "Reset" } }
        }
    }
}

/// A state with its colour.
pub(super) fn badge(state: &str) -> Markup {
    let class = match state {
        "succeeded" => "good",
        "failed" => "bad",
        _ => "warn",
    };
    html! { span.badge.(class) { (state) } }
}

/// Links to the other pages of a list.
pub(super) fn pager(query: &Parameters, number: usize, pages: usize) -> Markup {
    let to = |page: usize| {
        let others = query.others(&["page", "pageno"]);
        let mut text = form_urlencoded::Serializer::new(String::new());
        let address = text.extend_pairs(others).append_pair("page", &page.to_string()).finish();
        format!("?{address}")
    };
    html! {
        @if pages > 1 {
            nav.pager aria-label="Pages of the table" {
                @if number > 1 { a href=(to(number - 1)) rel="prev" { "Previous" } }
                span { "Page " (number) " of " (pages) }
                @if number < pages { a href=(to(number + 1)) rel="next" { "Next" } }
            }
        }
    }
}
