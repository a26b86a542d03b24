//! The list of finished jobs, and its search.

use corona_model::types::Millis;
use corona_web::units::{Count, Name, Time, plural};
use maud::{Markup, html};

use super::figures::shown_span;
use super::{Parameters, Shared, frame_in};
use crate::index::{Entry, Query};

/// Jobs of one page.
const ROWS: usize = 100;

pub(super) fn page(shared: &Shared, wanted: &Query, query: &Parameters) -> Markup {
    let found = shared.index.find(wanted);
    let pages = found.len().div_ceil(ROWS).max(1);
    let number = query.get("page").or(query.get("pageno")).and_then(|page| page.parse().ok());
    let number: usize = number.unwrap_or(1).clamp(1, pages);
    let rows = found.iter().skip((number - 1) * ROWS).take(ROWS);
    let all = shared.index.jobs().len();
    let content = html! {
        h1 { "Finished jobs" }
        (state(shared))
        (form(wanted, query))
        div.table-head {
            h2 { "Jobs" }
            p.count {
                @if found.len() == all { (plural(all as u64, "job", "jobs")) }
                @else { (Count(found.len())) " of " (plural(all as u64, "job", "jobs")) }
            }
        }
        (pager(query, number, pages))
        div.scroll {
            table.rows #jobs {
                thead {
                    tr {
                        th { "Job" } th { "Name" } th { "User" } th { "Pool" } th { "State" }
                        th { "Submitted" } th.n { "Took" } th.n { "Maps" } th.n { "Reduces" }
                        th.n { "Failures" }
                    }
                }
                tbody { @for entry in rows { (row(entry)) } }
            }
            @if found.is_empty() {
                p.empty { @if all == 0 { "No job has a history yet." } @else { "No job matches." } }
            }
        }
        (pager(query, number, pages))
    };
    frame_in(shared, Some("/"), "Finished jobs", &content)
}

/// What keeps the list from being complete.
fn state(shared: &Shared) -> Markup {
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
            p.problem.warn { (Count(unreadable)) " histories could not be read." }
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

fn row(entry: &Entry) -> Markup {
    let failures = u64::from(entry.failed_maps) + u64::from(entry.failed_reduces);
    let link = format!("/jobs/{}", entry.id);
    html! {
        tr data-key=(entry.id) {
            th scope="row" { a href=(link) { (Name(&entry.id)) } }
            td data-label="Name" { span.long { (entry.name) } }
            td data-label="User" { (entry.user) }
            td data-label="Pool" { @if entry.pool.is_empty() { "–" } @else { (Name(&entry.pool)) } }
            td data-label="State" { (badge(entry.state_name())) }
            td data-label="Submitted" {
                @if entry.submit_ms > 0 { (Time(Millis(entry.submit_ms))) } @else { "–" }
            }
            td.n data-label="Took" { (shown_span(entry.submit_ms, entry.finish_ms)) }
            td.n data-label="Maps" { (Count(entry.maps)) }
            td.n data-label="Reduces" { (Count(entry.reduces)) }
            td.n data-label="Failures" { (Count(failures)) }
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
