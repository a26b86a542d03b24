//! A task with its attempts, and an attempt.

use corona_mapreduce::{JobId, TaskKind};
use corona_model::types::Millis;
use corona_web::table::Head::{Number, Text};
use corona_web::table::framed;
use corona_web::units::Name;
use maud::{Markup, html};

use super::{
    attempt_badge, attempt_path, between, counter_table, job_path, percent, task_path, text_block,
    time,
};
use crate::pages::gather::{Row, TaskDetail};
use crate::pages::trackers::Places;
use corona_job_engine::{AttemptTimes, AttemptView};

/// The logs of an attempt, as a task tracker names them.
const LOGS: [&str; 4] = ["stdout", "stderr", "syslog", "debugout"];
/// Characters of an error in a table. The page of the attempt has it all.
const SHOWN: usize = 300;

/// What both pages show.
pub(in super::super) struct View {
    pub(in super::super) row: Row,
    pub(in super::super) task: TaskDetail,
    pub(in super::super) places: Places,
    pub(in super::super) may_be_ended: bool,
    pub(in super::super) now: Millis,
}

/// The content of the page of a task.
pub(in super::super) fn task(view: &View) -> Markup {
    let job = &view.row.description.id;
    let task = &view.task.view;
    let name = job.task(task.task);
    let shown = task
        .succeeded
        .and_then(|number| task.attempts.iter().find(|attempt| attempt.attempt.number == number));
    let shown = shown.or(task.attempts.last());
    let runs = task.attempts.iter().any(|attempt| attempt.state.is_live());
    html! {
        p.crumbs {
            a href=(job_path(job)) { "Job " (Name(job)) } " / "
            a href={ (job_path(job)) "/tasks?kind=" (super::kind_name(task.task.kind)) } { "Tasks" }
        }
        div.title {
            h1 { "Task " (Name(&name)) }
            @if view.may_be_ended && runs {
                a.button.danger href={ (task_path(job, &name)) "/end" } { "End its attempts…" }
            }
        }
        div #task data-live {
            dl.facts {
                div { dt { "Purpose" } dd { (task.role.name()) } }
                div { dt { "Progress" } dd { (percent(task.progress)) } }
                div {
                    dt { "State" }
                    dd {
                        @if task.succeeded.is_some() { span.badge.good { "complete" } }
                        @else if task.failed { span.badge.bad { "failed" } }
                        @else if task.killed { span.badge.warn { "killed" } }
                        @else if runs { span.badge { "running" } }
                        @else { span.badge { "pending" } }
                    }
                }
                @if !task.hosts.is_empty() {
                    div.wide { dt { "Hosts of its split" } dd { (Name(task.hosts.join(", "))) } }
                }
            }
            (attempts(view))
            @if let Some(attempt) = shown {
                p { "Counters of " (Name(job.attempt(attempt.attempt))) ":" }
                (counter_table(&[("Value", &attempt.counters)]))
            }
        }
    }
}

fn attempts(view: &View) -> Markup {
    let job = &view.row.description.id;
    html! {
        h2 #attempts-title { "Attempts" }
        (framed("attempts", "attempt-table", &[
            Text("Attempt"), Text("State"), Number("Progress"), Text("Node"), Text("Started"),
            Number("Took"), Text("Logs"), Text("Status and errors"),
        ], &html! {
            @for attempt in &view.task.view.attempts {
                @let name = job.attempt(attempt.attempt);
                tr data-key=(name) {
                    th scope="row" {
                        a href=(attempt_path(job, &name)) { span.word { (Name(&name)) } }
                    }
                    td data-label="State" { (attempt_badge(attempt.state)) }
                    td.n data-label="Progress" { (percent(attempt.progress)) }
                    td.wide data-label="Node" { (node(view, attempt)) }
                    td data-label="Started" { (time(attempt.start_ms)) }
                    td.n data-label="Took" { (attempt_took(view, attempt)) }
                    td data-label="Logs" { (logs(view, job, attempt)) }
                    td.wide data-label="Status and errors" {
                        span.long {
                            (Name(cut(&attempt.state_string)))
                            @if !attempt.diagnostics.is_empty() {
                                span.note { (Name(cut(&attempt.diagnostics))) }
                            }
                        }
                    }
                }
            }
            @if view.task.view.attempts.is_empty() {
                tr { td.empty colspan="8" { "No attempt was launched yet." } }
            }
        }))
    }
}

fn cut(text: &str) -> String {
    match text.chars().nth(SHOWN) {
        None => text.to_owned(),
        Some(_) => text.chars().take(SHOWN).chain(['…']).collect(),
    }
}

fn attempt_took(view: &View, attempt: &AttemptView) -> String {
    let end = if attempt.state.is_live() { view.now.0 } else { attempt.finish_ms };
    between(attempt.start_ms, end)
}

/// The node, with a link to its task tracker's pages if it was heard of lately.
fn node(view: &View, attempt: &AttemptView) -> Markup {
    html! {
        span.word {
            @match view.places.of(&attempt.node) {
                Some(address) => a href=(address) rel="noreferrer" { (Name(&attempt.node)) },
                None => (Name(&attempt.node)),
            }
        }
    }
}

fn logs(view: &View, job: &JobId, attempt: &AttemptView) -> Markup {
    let Some(address) = view.places.of(&attempt.node) else { return html! { "–" } };
    let logs = format!("{address}tasklog?taskid={}", job.attempt(attempt.attempt));
    html! {
        a href={ (logs) "&start=-8193" } rel="noreferrer" { "last 8 KB" } " "
        a href=(logs) rel="noreferrer" { "all" }
    }
}

/// The content of the page of an attempt.
pub(in super::super) fn attempt(view: &View, number: u32) -> Option<Markup> {
    let job = &view.row.description.id;
    let task = &view.task.view;
    let attempt = task.attempts.iter().find(|attempt| attempt.attempt.number == number)?;
    let times = usize::try_from(number).ok().and_then(|at| view.task.times.get(at).copied());
    let name = job.attempt(attempt.attempt);
    let path = attempt_path(job, &name);
    let task_name = job.task(task.task);
    Some(html! {
        p.crumbs {
            a href=(job_path(job)) { "Job " (Name(job)) } " / "
            a href=(task_path(job, &task_name)) { "Task " (Name(&task_name)) }
        }
        div.title {
            h1 { "Attempt " (Name(&name)) }
            @if view.may_be_ended && attempt.state.is_live() {
                a.button.danger href={ (path) "/end" } { "End this attempt…" }
            }
        }
        div #attempt data-live {
            dl.facts {
                div { dt { "State" } dd { (attempt_badge(attempt.state)) } }
                div { dt { "Phase" } dd { (format!("{:?}", attempt.phase).to_lowercase()) } }
                div { dt { "Progress" } dd { (percent(attempt.progress)) } }
                div { dt { "Node" } dd { (node(view, attempt)) } }
                div { dt { "Took" } dd { (attempt_took(view, attempt)) } }
                @if !attempt.state_string.is_empty() {
                    div.wide { dt { "Status" } dd { (Name(&attempt.state_string)) } }
                }
            }
            (times_of(attempt, times))
            @if let Some(address) = view.places.of(&attempt.node) {
                h2 { "Logs" }
                @let logs = format!("{address}tasklog?taskid={name}");
                ul.links {
                    li { a href=(logs) rel="noreferrer" { "all" } }
                    @for log in LOGS {
                        li {
                            a href={ (logs) "&plaintext=true&filter=" (log) } rel="noreferrer" { (log) }
                        }
                    }
                }
            } @else {
                p.note { "Nothing was heard of its task tracker lately: no links to its logs." }
            }
            @if !attempt.diagnostics.is_empty() {
                h2 { "Errors" }
                (text_block(&attempt.diagnostics))
            }
            (counter_table(&[("Value", &attempt.counters)]))
        }
    })
}

fn times_of(attempt: &AttemptView, times: Option<AttemptTimes>) -> Markup {
    let is_reduce = attempt.attempt.task.kind == TaskKind::Reduce;
    let Some(times) = times else { return html! {} };
    html! {
        dl.facts {
            div { dt { "Launched" } dd { (time(times.launched_ms)) } }
            div { dt { "Started" } dd { (time(attempt.start_ms)) } }
            @if is_reduce {
                div {
                    dt { "All map outputs fetched" }
                    dd { (time(times.shuffle_ms)) " (" (between(attempt.start_ms, times.shuffle_ms)) ")" }
                }
                div {
                    dt { "Merged" }
                    dd { (time(times.sort_ms)) " (" (between(times.shuffle_ms, times.sort_ms)) ")" }
                }
            }
            div { dt { "Ended" } dd { (time(attempt.finish_ms)) } }
            @if times.fetch_failures > 0 {
                div { dt { "Reports that its output cannot be fetched" } dd { (times.fetch_failures) } }
            }
        }
    }
}

/// The number of an attempt in its name, with the key of its task.
pub(in super::super) fn attempt_key(
    job: &JobId,
    name: &str,
) -> Option<(corona_mapreduce::TaskKey, u32)> {
    let rest = name.strip_prefix("attempt_")?;
    let (task, number) = rest.rsplit_once('_')?;
    let key = crate::pages::gather::task_key(job, &format!("task_{task}"))?;
    let number: u32 = number.parse().ok()?;
    (job.attempt(key.attempt(number)) == name).then_some((key, number))
}
