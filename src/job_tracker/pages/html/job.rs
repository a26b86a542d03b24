//! One job: how far it is, where its time goes, why it waits, its counters and its nodes.

use corona_mapreduce::{TaskKind, TaskRole};
use corona_model::types::Millis;
use corona_web::exchange::encode_segment;
use corona_web::table::Head::{Number, Text};
use corona_web::table::framed;
use corona_web::units::{Count, Name, Span, Time, class_of};
use maud::{Markup, html};

use super::shapes::{heat_legend, heat_map, sentence, time_line};
use super::{
    between, counter_table, job_path, kind_name, part_bar, percent, slot_type, standing_badge,
    state_badge, task_path, text_block, time, took,
};
use crate::pages::gather::{Detail, Row};
use crate::pages::manager::NoAnswer;
use corona_api::jobs::JobWait;
use corona_job_engine::{NodeOutline, TaskOutline, TaskStanding};

/// Slow tasks that are listed, and nodes.
const MOST_SLOW: usize = 10;
const MOST_NODES: usize = 50;

/// What the page shows.
pub(in super::super) struct View {
    pub(in super::super) row: Row,
    /// Nothing for a job of which only the end is kept.
    pub(in super::super) detail: Option<std::sync::Arc<Detail>>,
    /// The counters of a job of which only the end is kept.
    pub(in super::super) kept: Option<corona_mapreduce::Counters>,
    /// Of a job that a job tracker on a node runs: where the pages of that are.
    pub(in super::super) job_tracker: Option<Option<std::sync::Arc<str>>>,
    /// What it waits for, or why the service has ended it.
    pub(in super::super) note: Option<std::sync::Arc<str>>,
    /// Why it waits; nothing for a job that waits for no slot.
    pub(in super::super) waits: Option<Result<Vec<JobWait>, NoAnswer>>,
    pub(in super::super) may_be_ended: bool,
    pub(in super::super) cluster_manager: Option<String>,
    pub(in super::super) now: Millis,
}

/// The content of the page.
pub(in super::super) fn content(view: &View) -> Markup {
    let Row { description: job, progress } = &view.row;
    let path = job_path(&job.id);
    let is_over = progress.finished_at.is_some();
    html! {
        p.crumbs {
            @if is_over { a href="/ended" { "Ended jobs" } } @else { a href="/" { "Running jobs" } }
        }
        div.title {
            h1 { (Name(&job.id)) }
            @if view.may_be_ended && !is_over {
                a.button.danger href={ (path) "/end" } { "End this job…" }
            }
        }
        div #job data-live {
            (facts(view))
            @if let Some((task, error)) = view.detail.as_ref().and_then(|it| it.failure.as_ref()) {
                @let name = job.id.task(*task);
                h2 { a href=(task_path(&job.id, &name)) { (Name(&name)) } " failed" }
                (text_block(error))
            }
            (links(view, &path))
            @if let Some(detail) = &view.detail {
                (kinds(view, detail))
                @if let Some(waits) = &view.waits { (waiting(waits)) }
                (time_went(view, detail))
                (slow(view, detail))
                (nodes(detail))
                (counter_table(&[
                    ("Map", &detail.by_kind.map),
                    ("Reduce", &detail.by_kind.reduce),
                    ("Total", &detail.counters),
                ]))
            } @else if let Some(waits) = &view.waits {
                (waiting(waits))
            } @else if let Some(pages) = &view.job_tracker {
                p {
                    "A job tracker on a node runs this job"
                    @match pages {
                        Some(pages) => {
                            ": " a href={ (pages) "coronajobdetails.jsp?jobid=" (encode_segment(job.id.as_str())) } {
                                "its tasks"
                            } "."
                        },
                        None => "."
                    }
                }
                @if let Some(counters) = &view.kept { (counter_table(&[("Total", counters)])) }
            } @else if let Some(counters) = &view.kept {
                p { "The details of this job are not kept any more: the service keeps those of so many tasks (corona.jt.finished.tasks) until it is started again. Its history has them." }
                (counter_table(&[("Total", counters)]))
            }
        }
    }
}

fn facts(view: &View) -> Markup {
    let Row { description: job, progress } = &view.row;
    html! {
        dl.facts {
            div.wide { dt { "Name" } dd { (Name(&job.name)) } }
            div { dt { "State" } dd { (state_badge(progress.state)) } }
            div { dt { "User" } dd { (Name(&job.user)) } }
            div { dt { "Pool" } dd { (Name(&job.pool)) } }
            div { dt { "Queue" } dd { (Name(&job.queue)) } }
            div { dt { "Priority" } dd { (progress.priority.name()) } }
            div { dt { "Submitted" } dd { (Time(progress.submitted)) } }
            @match progress.finished_at {
                Some(at) => div {
                    dt { "Ended" }
                    dd { (Time(at)) " after " (took(at.since(progress.submitted))) }
                },
                None => div { dt { "Age" } dd { (Span(view.now.since(progress.submitted))) } },
            }
            @if let Some(note) = &view.note {
                div.wide { dt { "Note" } dd { (note) } }
            }
            @if let Some(output) = &job.output {
                div.wide { dt { "Output" } dd { (Name(output)) } }
            }
        }
    }
}

fn links(view: &View, path: &str) -> Markup {
    let id = &view.row.description.id;
    let session = id.as_str().strip_prefix("job_").and_then(|rest| rest.rsplit_once('_'));
    let session = session.map(|(session, _)| encode_segment(session));
    html! {
        ul.links {
            @if view.detail.is_some() {
                li { a href={ (path) "/tasks?kind=map" } { "Maps" } }
                li { a href={ (path) "/tasks?kind=reduce" } { "Reduces" } }
                li { a href={ (path) "/failures" } { "Failed and killed attempts" } }
            }
            li { a href={ (path) "/configuration" } { "Configuration" } }
            li { a href={ (path) "/history" } { "History" } }
            @if let (Some(session), Some(manager)) = (session, &view.cluster_manager) {
                li { a href={ (manager) "sessions/" (session) } { "Session at the cluster manager" } }
            }
        }
    }
}

/// The tasks of the work of a kind.
fn work(detail: &Detail, kind: TaskKind) -> Vec<&TaskOutline> {
    let of_kind = |task: &&TaskOutline| task.task.kind == kind && task.role.is_work();
    detail.tasks.iter().filter(of_kind).collect()
}

fn kinds(view: &View, detail: &Detail) -> Markup {
    let job = &view.row.description;
    html! {
        div.cards {
            @for kind in TaskKind::ALL {
                @let tasks = work(detail, kind);
                @let totals = &detail.totals;
                section class={ "card " (class_of(slot_type(kind))) } {
                    h3 { (title(kind)) }
                    p.big {
                        strong { (percent(view.row.done(kind))) }
                        span { (sentence(&tasks)) }
                    }
                    (part_bar(kind, view.row.done(kind)))
                    dl.facts.small {
                        div { dt { "Launched" } dd { (Count(totals.launched[kind])) } }
                        div { dt { "Failed attempts" } dd { (Count(totals.failed_attempts[kind])) } }
                        div { dt { "Killed attempts" } dd { (Count(totals.killed_attempts[kind])) } }
                        @if kind == TaskKind::Map {
                            div { dt { "On a host of their split" } dd { (Count(totals.data_local)) } }
                        }
                    }
                    @if !tasks.is_empty() { (heat_map(&job.id, kind, &tasks)) }
                    p.note { (states(view, kind)) }
                }
            }
        }
        (heat_legend())
        (for_the_job(view, detail))
    }
}

fn title(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Map => "Maps",
        TaskKind::Reduce => "Reduces",
    }
}

/// Links to the tasks by their state.
fn states(view: &View, kind: TaskKind) -> Markup {
    let path = job_path(&view.row.description.id);
    html! {
        "Tasks: "
        a href={ (path) "/tasks?kind=" (kind_name(kind)) } { "all" }
        @for standing in super::STANDINGS {
            ", "
            @let name = super::standing_name(standing);
            a href={ (path) "/tasks?kind=" (kind_name(kind)) "&state=" (name) } { (name) }
        }
    }
}

/// The tasks that set the job up and clean up after it.
fn for_the_job(view: &View, detail: &Detail) -> Markup {
    let job = &view.row.description.id;
    let of_role = |role| {
        let tasks = detail.tasks.iter().filter(move |task| task.role == role);
        tasks
            .filter(|task| task.attempts > 0 && task.standing != TaskStanding::Pending)
            .max_by_key(|task| task.standing == TaskStanding::Complete)
    };
    html! {
        dl.facts.small {
            @for (role, name) in [(TaskRole::Setup, "Set-up"), (TaskRole::Cleanup, "Clean-up")] {
                div {
                    dt { (name) }
                    dd {
                        @match of_role(role) {
                            Some(task) => {
                                (standing_badge(task.standing))
                                a href=(task_path(job, &job.task(task.task))) {
                                    (between(task.start_ms, task.finish_ms))
                                }
                            }
                            None => "has not run",
                        }
                    }
                }
            }
        }
    }
}

fn waiting(waits: &Result<Vec<JobWait>, NoAnswer>) -> Markup {
    html! {
        h2 #waits-title { "Why it waits" }
        @match waits {
            Err(why) => p { (why) },
            Ok(waits) if waits.is_empty() => p { "No request of its session is waiting." },
            Ok(waits) => {
                (framed("waits", "wait-table", &[
                    Text("Slots"), Number("Requests"), Text("Why"),
                ], &html! {
                    @for (at, wait) in waits.iter().enumerate() {
                        tr data-key=(at) {
                            th scope="row" { (Name(&wait.kind)) }
                            td.n data-label="Requests" { (Count(wait.requests)) }
                            td.wide data-label="Why" { (Name(&wait.text)) }
                        }
                    }
                }))
            }
        }
    }
}

/// The steps of a job, with when each began and ended; 0 for what has not happened.
fn steps(view: &View, detail: &Detail) -> Vec<(&'static str, i64, i64)> {
    let of_role = |role| detail.tasks.iter().filter(move |task| task.role == role);
    let first =
        |role| of_role(role).map(|task| task.start_ms).filter(|ms| *ms > 0).min().unwrap_or(0);
    let last = |role: TaskRole| {
        let is_done = of_role(role)
            .all(|task| !matches!(task.standing, TaskStanding::Pending | TaskStanding::Running));
        let last = of_role(role).map(|task| task.finish_ms).max().unwrap_or(0);
        // One of the two tasks of these roles is enough.
        if is_done || !role.is_work() { last } else { 0 }
    };
    let mut steps = Vec::new();
    let submitted = view.row.progress.submitted.0;
    // The launch of an attempt that has failed since counts as well.
    let begin = detail.tasks.iter().map(|task| task.launched_ms);
    let begin = begin.filter(|ms| *ms > 0).min().unwrap_or(0);
    steps.push(("Wait for the first slot", submitted, begin));
    for (role, name) in [
        (TaskRole::Setup, "Set-up"),
        (TaskRole::Map, "Maps"),
        (TaskRole::Reduce, "Reduces"),
        (TaskRole::Cleanup, "Clean-up"),
    ] {
        if first(role) > 0 {
            steps.push((name, first(role), last(role)));
        }
    }
    steps
}

fn time_went(view: &View, detail: &Detail) -> Markup {
    let totals = &detail.totals;
    let [copy, sort, reduce] = totals.reduce_phase_millis;
    let mean = |millis: i64, kind: TaskKind| {
        let done = work(detail, kind).iter().filter(|task| task.finish_ms > 0).count();
        i64::try_from(done).ok().filter(|done| *done > 0).map(|done| millis / done)
    };
    // What has not ended goes on, or ended with the job.
    let end = view.row.progress.finished_at.unwrap_or(detail.now).0;
    html! {
        h2 #time-title { "Where the time went" }
        (time_line(&detail.time_line))
        div.columns {
            section {
                (framed("time", "step-table", &[
                    Text("Step"), Text("From"), Text("To"), Number("Took"),
                ], &html! {
                    @for (name, from, to) in steps(view, detail) {
                        tr data-key=(name) {
                            th scope="row" { (name) }
                            td data-label="From" { (time(from)) }
                            td data-label="To" { (time(to)) }
                            td.n data-label="Took" {
                                (between(from, if to > 0 { to } else if from > 0 { end } else { 0 }))
                            }
                        }
                    }
                }))
            }
            section {
                dl.facts {
                    div { dt { "Slot time of maps" } dd { (took(totals.slot_millis.map)) } }
                    @if let Some(mean) = mean(totals.slot_millis.map, TaskKind::Map) {
                        div { dt { "For each map that is done" } dd { (took(mean)) } }
                    }
                    div { dt { "Slot time of reduces" } dd { (took(totals.slot_millis.reduce)) } }
                    @if totals.slot_millis.reduce > 0 {
                        div { dt { "of this, copying" } dd { (took(copy)) } }
                        div { dt { "sorting" } dd { (took(sort)) } }
                        div { dt { "reducing" } dd { (took(reduce)) } }
                    }
                }
            }
        }
    }
}

/// The tasks that took longest, or that have run for longest.
fn slow(view: &View, detail: &Detail) -> Markup {
    let job = &view.row.description.id;
    let span = |task: &TaskOutline| match (task.start_ms, task.finish_ms) {
        (..=0, _) => 0,
        (start, ..=0) => detail.now.0.saturating_sub(start),
        (start, finish) => finish.saturating_sub(start),
    };
    let mut slow: Vec<&TaskOutline> = Vec::new();
    let mut medians = Vec::new();
    for kind in TaskKind::ALL {
        let mut tasks = work(detail, kind);
        tasks.retain(|task| {
            matches!(task.standing, TaskStanding::Complete | TaskStanding::Running)
                && span(task) > 0
        });
        tasks.sort_by_key(|task| std::cmp::Reverse(span(task)));
        let median = tasks.get(tasks.len() / 2).map_or(0, |task| span(task));
        medians.push((kind, median));
        tasks.truncate(MOST_SLOW);
        slow.extend(tasks);
    }
    let median =
        |kind| medians.iter().find(|(own, _)| *own == kind).map_or(0, |(_, median)| *median);
    if slow.is_empty() {
        return html! {};
    }
    html! {
        h2 #slow-title { "Slowest tasks" }
        (framed("slow", "slow-table", &[
            Text("Task"), Text("State"), Number("Progress"), Number("Took"),
            Number("Against the median"), Number("Attempts"),
        ], &html! {
            @for task in slow {
                @let name = job.task(task.task);
                tr data-key=(name) {
                    th scope="row" {
                        span.dot.(class_of(slot_type(task.task.kind))) {}
                        a href=(task_path(job, &name)) { (name) }
                    }
                    td data-label="State" { (standing_badge(task.standing)) }
                    td.n data-label="Progress" { (percent(task.progress)) }
                    td.n data-label="Took" { (took(span(task))) }
                    td.n data-label="Against the median" {
                        @match median(task.task.kind) {
                            0 => "–",
                            median => (format!("{:.1} ×", span(task) as f64 / median as f64)),
                        }
                    }
                    td.n data-label="Attempts" { (Count(task.attempts)) }
                }
            }
        }))
    }
}

/// The nodes that gave trouble first, then those with the most attempts.
fn nodes(detail: &Detail) -> Markup {
    let mut nodes: Vec<&NodeOutline> =
        detail.nodes.iter().filter(|node| node.launched > 0).collect();
    nodes.sort_by_key(|node| {
        let trouble =
            node.failed.saturating_add(node.timeouts).saturating_add(node.failed_connections);
        (std::cmp::Reverse(trouble), std::cmp::Reverse(node.launched))
    });
    if nodes.is_empty() {
        return html! {};
    }
    let all = nodes.len();
    nodes.truncate(MOST_NODES);
    html! {
        div.table-head {
            h2 #nodes-title { "Nodes" }
            p.count { @if all > nodes.len() { (Count(nodes.len())) " of " } (Count(all)) }
        }
        (framed("nodes", "node-table", &[
            Text("Node"), Number("Launched"), Number("Succeeded"), Number("Failed"),
            Number("Killed"), Number("Silent"), Number("Failed calls"), Text("State"),
        ], &html! {
            @for node in nodes {
                tr data-key=(node.node) {
                    th scope="row" { span.word { (Name(&node.node)) } }
                    @for (label, count) in [
                        ("Launched", node.launched),
                        ("Succeeded", node.succeeded),
                        ("Failed", node.failed),
                        ("Killed", node.killed),
                        ("Silent", node.timeouts),
                        ("Failed calls", node.failed_connections),
                    ] {
                        td.n data-label=(label) { (Count(count)) }
                    }
                    td data-label="State" {
                        @if node.lost { span.badge.bad { "lost" } }
                        @else if node.faulty { span.badge.warn { "not used any more" } }
                        @else { "used" }
                    }
                }
            }
        }))
    }
}
