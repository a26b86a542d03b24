//! The jobs that run, and those that have ended: sorted and filtered.

use corona_mapreduce::TaskKind;
use corona_model::types::{Millis, SessionPriority};
use corona_web::budget;
use corona_web::exchange::Parameters;
use corona_web::filter;
use corona_web::table::{Column, Table};
use corona_web::units::{Count, Name, Span, Time};
use maud::{Markup, html};

use super::{job_path, part_bar, state_badge};
use crate::jobs::store::Load;
use crate::pages::gather::Row;

/// Which of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum List {
    Running,
    Ended,
}

/// Which jobs are wanted, as the address says it.
pub(in super::super) struct Filter {
    text: String,
    users: Vec<String>,
    pools: Vec<String>,
    state: Option<String>,
}

impl Filter {
    pub(in super::super) fn new(parameters: &Parameters) -> Filter {
        let list = |name| -> Vec<String> {
            let text = parameters.text(name).unwrap_or_default();
            text.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect()
        };
        Filter {
            text: parameters.text("q").map(str::to_lowercase).unwrap_or_default(),
            users: list("users"),
            pools: list("pools"),
            state: parameters.text("state").map(str::to_uppercase),
        }
    }

    pub(in super::super) fn wants(&self, row: &Row) -> bool {
        let job = &row.description;
        let named = || {
            self.text.is_empty()
                || job.id.as_str().contains(&self.text)
                || job.name.to_lowercase().contains(&self.text)
        };
        let is_one =
            |names: &[String], name: &str| names.is_empty() || names.iter().any(|own| own == name);
        let pool = job.pool.to_string();
        is_one(&self.users, &job.user)
            && (is_one(&self.pools, &pool) || is_one(&self.pools, &job.queue))
            && self.state.as_ref().is_none_or(|state| row.progress.state.name() == state)
            && named()
    }
}

/// The content of the page.
pub(in super::super) fn content(
    list: List,
    rows: &[Row],
    load: &Load,
    now: Millis,
    hidden: bool,
    parameters: &Parameters,
) -> Markup {
    let (title, path) = match list {
        List::Running => ("Running jobs", "/"),
        List::Ended => ("Ended jobs", "/ended"),
    };
    html! {
        h1 { (title) }
        (search(list, path, parameters))
        div #jobs data-live {
            @if hidden {
                p.problem { "Jobs are not shown on pages: corona.jt.viewers does not admit everybody." }
            }
            @if list == List::Running { (totals(rows, load)) }
            (table(list, path, rows, now, parameters))
        }
    }
}

fn search(list: List, path: &str, parameters: &Parameters) -> Markup {
    let states: &[&str] = match list {
        List::Running => &["PREP", "RUNNING"],
        List::Ended => &["SUCCEEDED", "FAILED", "KILLED"],
    };
    let fields = html! {
        (filter::search(parameters, "id or name"))
        (filter::text(parameters, "users", "User", "alice,bob"))
        (filter::text(parameters, "pools", "Pool or queue", "group.pool"))
        (filter::words(parameters, "state", "State", states.iter().copied()))
    };
    filter::form(path, parameters, &fields)
}

fn totals(rows: &[Row], load: &Load) -> Markup {
    let running: Vec<&Row> = rows.iter().filter(|row| row.progress.finished_at.is_none()).collect();
    let sum = |of: fn(&Row) -> u64| -> u64 { running.iter().map(|row| of(row)).sum() };
    let live = |kind: TaskKind| -> u64 {
        running.iter().map(|row| u64::from(row.progress.live[kind])).sum()
    };
    html! {
        dl.facts {
            div { dt { "Jobs" } dd { (Count(running.len())) } }
            div { dt { "Jobs at work" } dd { (Count(load.used)) " of " (Count(load.most)) " (" (load.from) ")" } }
            div { dt { "Waiting jobs" } dd { (Count(load.waiting)) " of " (Count(load.most_waiting)) } }
            div { dt { "Running map attempts" } dd { (Count(live(TaskKind::Map))) } }
            div { dt { "Running reduce attempts" } dd { (Count(live(TaskKind::Reduce))) } }
            div { dt { "Requested slots" } dd { (Count(sum(|row| row.progress.requested as u64))) } }
            div {
                dt { "Memory of jobs, MiB" }
                dd { (Count(load.memory_used >> 20)) " of " (Count(load.memory.most >> 20)) }
            }
            (budget::facts(&budget::now()))
        }
    }
}

fn table(list: List, path: &str, rows: &[Row], now: Millis, parameters: &Parameters) -> Markup {
    let filter = Filter::new(parameters);
    let of_list: Vec<&Row> = rows
        .iter()
        .filter(|row| row.progress.finished_at.is_none() == (list == List::Running))
        .collect();
    let all = of_list.len();
    let chosen: Vec<&Row> = of_list.into_iter().filter(|row| filter.wants(row)).collect();
    let (caption, empty, usual_sort) = match (list, all) {
        (List::Running, 0) => ("Jobs", "No job is running.", "-submitted"),
        (List::Ended, 0) => ("Jobs", "No job has ended since this service started.", "-ended"),
        (List::Running, _) => ("Jobs", "No job matches.", "-submitted"),
        (List::Ended, _) => ("Jobs", "No job matches.", "-ended"),
    };
    let table = Table {
        id: "job-table",
        caption,
        rows_are: ("job", "jobs"),
        path,
        parameters,
        usual_sort,
        key: |row: &Row| row.description.id.to_string(),
        columns: columns(list, now),
        empty,
    };
    table.render(chosen, all)
}

fn columns<'a>(list: List, now: Millis) -> Vec<Column<'a, Row>> {
    let priority = |row: &Row| {
        let own = row.progress.priority;
        SessionPriority::ALL.iter().position(|priority| *priority == own)
    };
    let mut columns = vec![
        Column::text("id", "Job", |row: &Row| {
            html! { a href=(job_path(&row.description.id)) { span.word { (Name(&row.description.id)) } } }
        })
        .sorted_by(|a: &Row, b| a.description.id.cmp(&b.description.id)),
        Column::text("name", "Name", |row: &Row| {
            html! { span.long title=(row.description.name) { (Name(&row.description.name)) } }
        })
        .wide()
        .sorted_by(|a: &Row, b| a.description.name.cmp(&b.description.name)),
        Column::text("user", "User", |row: &Row| {
            html! { span.word { (Name(&row.description.user)) } }
        })
        .sorted_by(|a: &Row, b| a.description.user.cmp(&b.description.user)),
        Column::text("pool", "Pool", |row: &Row| {
            html! { span.word { (Name(&row.description.pool)) } }
        })
        .sorted_by(|a: &Row, b| a.description.pool.cmp(&b.description.pool)),
        Column::text("state", "State", |row: &Row| state_badge(row.progress.state))
            .sorted_by(|a: &Row, b| a.progress.state.name().cmp(b.progress.state.name())),
    ];
    if list == List::Running {
        columns.push(
            Column::text("priority", "Priority", |row: &Row| {
                html! { (row.progress.priority.name()) }
            })
            .sorted_by(move |a: &Row, b| priority(a).cmp(&priority(b)))
            .largest_first(),
        );
    }
    for kind in TaskKind::ALL {
        let title = match kind {
            TaskKind::Map => "Maps",
            TaskKind::Reduce => "Reduces",
        };
        columns.push(
            Column::text(super::kind_name(kind), title, move |row: &Row| progress(row, kind))
                .sorted_by(move |a: &Row, b| a.done(kind).total_cmp(&b.done(kind)))
                .largest_first(),
        );
    }
    if list == List::Running {
        columns.push(Column::number("requested", "Requested", |row: &Row| {
            i64::try_from(row.progress.requested).unwrap_or(i64::MAX)
        }));
    }
    columns.push(
        Column::text(
            "submitted",
            "Submitted",
            |row: &Row| html! { (Time(row.progress.submitted)) },
        )
        .sorted_by(|a: &Row, b| a.progress.submitted.cmp(&b.progress.submitted))
        .largest_first(),
    );
    let took =
        move |row: &Row| row.progress.finished_at.unwrap_or(now).since(row.progress.submitted);
    if list == List::Ended {
        columns.push(
            Column::text("ended", "Ended", |row: &Row| {
                html! { @if let Some(at) = row.progress.finished_at { (Time(at)) } }
            })
            .sorted_by(|a: &Row, b| a.progress.finished_at.cmp(&b.progress.finished_at))
            .largest_first(),
        );
    }
    columns.push(
        Column::text("took", if list == List::Ended { "Took" } else { "Age" }, move |row: &Row| {
            html! { (Span(took(row)).to_string()) }
        })
        .sorted_by(move |a: &Row, b| took(a).cmp(&took(b)))
        .numeric(),
    );
    columns
}

/// How far the tasks of a kind are: a bar and numbers.
fn progress(row: &Row, kind: TaskKind) -> Markup {
    let (done, all) = (row.progress.finished[kind], row.progress.total[kind]);
    html! {
        div.used {
            @if all == 0 { "–" } @else {
                (part_bar(kind, row.done(kind)))
                span { (Count(done)) " of " (Count(all)) }
            }
        }
    }
}
