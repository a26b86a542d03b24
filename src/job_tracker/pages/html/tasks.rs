//! The tasks of a job, by kind and state.

use corona_mapreduce::{TaskKind, TaskRole};
use corona_model::types::Millis;
use corona_web::exchange::Parameters;
use corona_web::filter;
use corona_web::table::{Column, Table};
use corona_web::units::Name;
use maud::{Markup, html};

use super::{
    STANDINGS, between, job_path, part_bar, percent, standing_badge, standing_name, task_path, time,
};
use crate::pages::gather::{Detail, Row};
use corona_job_engine::{TaskOutline, TaskStanding};

/// What the original calls the tasks of a job.
pub(in super::super) const KINDS: [(&str, &str, TaskRole); 4] = [
    ("map", "Maps", TaskRole::Map),
    ("reduce", "Reduces", TaskRole::Reduce),
    ("setup", "Set-up", TaskRole::Setup),
    ("cleanup", "Clean-up", TaskRole::Cleanup),
];

/// Which tasks are wanted.
struct Which {
    role: TaskRole,
    state: Option<TaskStanding>,
}

impl Which {
    /// From `kind` and `state`; maps of every state where they say nothing that is known.
    fn new(parameters: &Parameters) -> Which {
        let kind = parameters.text("kind").unwrap_or_default();
        let found = KINDS.iter().find(|(name, ..)| *name == kind);
        let role = found.map_or(TaskRole::Map, |(.., role)| *role);
        let state = parameters.text("state").unwrap_or_default();
        let state = STANDINGS.into_iter().find(|standing| standing_name(*standing) == state);
        Which { role, state }
    }

    fn is_of_kind(&self, task: &TaskOutline) -> bool {
        task.role == self.role
    }

    fn wants(&self, task: &TaskOutline) -> bool {
        self.is_of_kind(task) && self.state.is_none_or(|state| state == task.standing)
    }
}

/// The content of the page.
pub(in super::super) fn content(row: &Row, detail: &Detail, parameters: &Parameters) -> Markup {
    let job = &row.description.id;
    let which = Which::new(parameters);
    let path = format!("{}/tasks", job_path(job));
    let title =
        KINDS.iter().find(|(.., role)| *role == which.role).map_or("Tasks", |(_, title, _)| title);
    let all = detail.tasks.iter().filter(|task| which.is_of_kind(task)).count();
    let chosen: Vec<&TaskOutline> = detail.tasks.iter().filter(|task| which.wants(task)).collect();
    html! {
        p.crumbs { a href=(job_path(job)) { "Job " (Name(job)) } }
        h1 { (title) " of " (Name(&row.description.name)) }
        (choice(&which, &path, parameters))
        div #tasks data-live { (table(row, &path, chosen, all, detail.now, parameters)) }
    }
}

fn choice(which: &Which, path: &str, parameters: &Parameters) -> Markup {
    let kind = KINDS.iter().find(|(.., role)| *role == which.role).map_or("", |(name, ..)| name);
    html! {
        form.filter method="get" action=(path) role="search" data-swap {
            (filter::choice("kind", "Tasks", kind, KINDS.map(|(name, title, _)| (name, title))))
            (filter::words(parameters, "state", "State", STANDINGS.map(standing_name)))
            @if let Some(sort) = parameters.text("sort") {
                input type="hidden" name="sort" value=(sort);
            }
            div { button type="submit" { "Apply" } }
        }
    }
}

fn table(
    row: &Row,
    path: &str,
    chosen: Vec<&TaskOutline>,
    all: usize,
    now: Millis,
    parameters: &Parameters,
) -> Markup {
    type Task = TaskOutline;
    let job = row.description.id.clone();
    let took = move |task: &Task| match (task.start_ms, task.finish_ms) {
        (..=0, _) => 0,
        (start, ..=0) if task.standing == TaskStanding::Running => now.0.saturating_sub(start),
        (_, ..=0) => 0,
        (start, finish) => finish.saturating_sub(start),
    };
    let count = |of: fn(&Task) -> u32| move |task: &Task| i64::from(of(task));
    let table = Table {
        id: "task-table",
        caption: "Tasks",
        rows_are: ("task", "tasks"),
        path,
        parameters,
        usual_sort: "id",
        key: |task: &Task| format!("{:?} {}", task.task.kind, task.task.number),
        columns: vec![
            Column::text("id", "Task", move |task: &Task| {
                let name = job.task(task.task);
                html! { a href=(task_path(&job, &name)) { span.word { (Name(&name)) } } }
            })
            .sorted_by(|a: &Task, b| {
                (a.task.kind == TaskKind::Reduce, a.task.number)
                    .cmp(&(b.task.kind == TaskKind::Reduce, b.task.number))
            }),
            Column::text("state", "State", |task: &Task| standing_badge(task.standing))
                .sorted_by(|a: &Task, b| a.standing.cmp(&b.standing)),
            Column::text("progress", "Progress", |task: &Task| {
                html! {
                    div.used {
                        (part_bar(task.task.kind, task.progress))
                        span { (percent(task.progress)) }
                    }
                }
            })
            .sorted_by(|a: &Task, b| a.progress.total_cmp(&b.progress))
            .largest_first(),
            Column::text("started", "Started", |task: &Task| time(task.start_ms))
                .sorted_by(|a: &Task, b| a.start_ms.cmp(&b.start_ms))
                .largest_first(),
            Column::text("took", "Took", move |task: &Task| {
                html! { (between(task.start_ms, task.start_ms.saturating_add(took(task)))) }
            })
            .sorted_by(move |a: &Task, b| took(a).cmp(&took(b)))
            .numeric(),
            Column::number("attempts", "Attempts", count(|task| task.attempts)),
            Column::number("failed", "Failed", count(|task| task.failed)),
            Column::number("killed", "Killed", count(|task| task.killed)),
        ],
        empty: if all == 0 { "The job has no such tasks." } else { "No task is in this state." },
    };
    table.render(chosen, all)
}
