//! Tasks and attempts of a finished job.

use corona_mapreduce::history_reader::task_key;
use corona_mapreduce::{Counters, HistoryAttempt, HistoryTask, TaskKey};
use corona_model::types::Millis;
use corona_web::table::Head::{Number, Text};
use corona_web::table::simple_table;
use corona_web::units::{Count, Name, Time, plural};
use maud::{Markup, html};

use super::figures::{ROLES, shown_span};
use super::list::{badge, pager};
use super::{Parameters, View};

/// Attempts of one page.
const ROWS: usize = 500;
/// Characters of an error in a list.
const MAX_ERROR: usize = 500;

/// The attempts of a kind and a status: the parameters are the original's.
pub(super) fn list(view: &View<'_>, query: &Parameters) -> Markup {
    let wanted = query.get("taskType").unwrap_or_default();
    let status = query.get("status").unwrap_or("all");
    let history = &view.contents.history;
    let role = ROLES.iter().find(|(role, _)| role.name().eq_ignore_ascii_case(wanted));
    let attempts: Vec<(TaskKey, &HistoryTask, &HistoryAttempt)> = history
        .tasks
        .iter()
        .filter(|(_, task)| role.is_none_or(|(role, _)| *role == task.role))
        .flat_map(|(key, task)| task.attempts.iter().map(move |attempt| (*key, task, attempt)))
        .filter(|(_, _, attempt)| status == "all" || attempt.state.name() == status)
        .collect();
    let pages = attempts.len().div_ceil(ROWS).max(1);
    let number = query.get("page").or(query.get("pagenum")).and_then(|page| page.parse().ok());
    let number: usize = number.unwrap_or(1).clamp(1, pages);
    let kind = role.map_or("All", |(_, name)| name);
    let status =
        if status == "all" { String::new() } else { format!(" {}", status.to_lowercase()) };
    html! {
        p.crumbs { a href="/" { "Jobs" } " / " a href=(view.link("")) { (view.job()) } }
        h1 { (kind) (status) " attempts of " (view.job()) }
        p.count { (plural(attempts.len() as u64, "attempt", "attempts")) }
        (pager(query, number, pages))
        div.scroll {
            (simple_table(Some("attempts"), &[
                Text("Task"), Number("Attempt"), Text("State"), Text("Host"), Text("Start"), Text("Finish"),
                Number("Took"), Text("Error"),
            ], &html! {
                @for (key, _, attempt) in attempts.iter().skip((number - 1) * ROWS).take(ROWS) {
                    @let task = view.job().task(*key);
                    tr {
                        th scope="row" { a href=(view.link(&format!("/tasks/{task}"))) { (Name(&task)) } }
                        td.n data-label="Attempt" { (attempt.number) }
                        td data-label="State" { (state(attempt)) }
                        td data-label="Host" { (Name(&attempt.host)) }
                        td data-label="Start" { (time(attempt.start_ms)) }
                        td data-label="Finish" { (time(attempt.finish_ms)) }
                        td.n data-label="Took" { (shown_span(attempt.start_ms, attempt.finish_ms)) }
                        td data-label="Error" { span.long.lines { (short(&attempt.error)) } }
                    }
                }
            }))
            @if attempts.is_empty() { p.empty { "There are no such attempts." } }
        }
        (pager(query, number, pages))
    }
}

fn short(error: &str) -> String {
    error.chars().take(MAX_ERROR).collect()
}

fn time(at_ms: i64) -> Markup {
    html! { @if at_ms > 0 { (Time(Millis(at_ms))) } @else { "–" } }
}

fn state(attempt: &HistoryAttempt) -> Markup {
    badge(match attempt.state.name() {
        "SUCCESS" => "succeeded",
        "FAILED" => "failed",
        "KILLED" => "killed",
        _ => "unfinished",
    })
}

/// One task with its attempts.
pub(super) fn one(view: &View<'_>, id: &str) -> Markup {
    let found = task_key(id).and_then(|key| Some((key, view.contents.history.tasks.get(&key)?)));
    let crumbs = html! {
        p.crumbs { a href="/" { "Jobs" } " / " a href=(view.link("")) { (view.job()) } }
        h1 { "Task " (id) }
    };
    let Some((key, task)) = found else {
        return html! { (crumbs) p { "The history of the job has no such task." } };
    };
    let id = view.job().task(key);
    html! {
        (crumbs)
        dl.facts {
            div { dt { "Kind" } dd { (task.role.name().to_lowercase()) } }
            div { dt { "Start" } dd { (time(task.start_ms)) } }
            div { dt { "Finish" } dd { (time(task.finish_ms)) " (" (shown_span(task.start_ms, task.finish_ms)) ")" } }
            @if !task.splits.is_empty() {
                div.wide { dt { "Input split locations" } dd { @for host in task.splits.split(',') { (Name(host)) " " } } }
            }
            @if !task.error.is_empty() {
                div.wide { dt { "Error" } dd { span.long.lines { (task.error) } } }
            }
            div {
                dt { "Counters" }
                dd { (counters_link(view, id.as_ref(), "of the task", task.has_counters)) }
            }
        }
        h2 { "Attempts" }
        div.scroll {
            (simple_table(Some("attempts"), &[
                Text("Attempt"), Text("State"), Text("Start"), Text("Shuffle finished"),
                Text("Sort finished"), Text("Finish"), Text("Host"), Text("Said last"), Text("Error"),
                Text("Log"), Text("Counters"),
            ], &html! {
                @for attempt in &task.attempts {
                    @let name = view.job().attempt(key.attempt(attempt.number));
                    tr {
                        th scope="row" { (Name(&name)) }
                        td data-label="State" { (state(attempt)) }
                        td data-label="Start" { (time(attempt.start_ms)) }
                        td data-label="Shuffle finished" { (time(attempt.shuffle_ms)) }
                        td data-label="Sort finished" { (time(attempt.sort_ms)) }
                        td data-label="Finish" {
                            (time(attempt.finish_ms)) " (" (shown_span(attempt.start_ms, attempt.finish_ms)) ")"
                        }
                        td data-label="Host" { (Name(&attempt.host)) }
                        td data-label="Said last" { span.long { (attempt.state_text) } }
                        td data-label="Error" { span.long.lines { (attempt.error) } }
                        td data-label="Log" { (logs(attempt, &name)) }
                        td data-label="Counters" {
                            (counters_link(view, &name, "show", attempt.has_counters))
                        }
                    }
                }
            }))
        }
    }
}

/// Links to the log on the node, if its address is known.
fn logs(attempt: &HistoryAttempt, name: &str) -> Markup {
    let host = attempt.tracker.strip_prefix("tracker_").and_then(|rest| rest.split(':').next());
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let host = host.filter(|host| !host.is_empty() && host.bytes().all(legal));
    let Some(host) = host.filter(|_| attempt.http_port != 0) else {
        return html! { "n/a" };
    };
    let at = format!("http://{host}:{}/tasklog?taskid={name}", attempt.http_port);
    html! {
        a href={ (at) "&start=-4097" } { "Last 4KB" } " "
        a href={ (at) "&start=-8193" } { "Last 8KB" } " "
        a href={ (at) "&all=true" } { "All" }
    }
}

/// A link to counters, if the history has them.
fn counters_link(view: &View<'_>, id: &str, text: &str, has_counters: bool) -> Markup {
    html! {
        @if has_counters { a href=(view.link(&format!("/counters/{id}"))) { (text) } } @else { "–" }
    }
}

/// The counters of a task or an attempt.
pub(super) fn counters(view: &View<'_>, id: &str, text: &str) -> Markup {
    let counters = Counters::of_text(text);
    let task = task_key(id).map(|key| view.job().task(key)).unwrap_or_default();
    html! {
        p.crumbs {
            a href="/" { "Jobs" } " / " a href=(view.link("")) { (view.job()) } " / "
            a href=(view.link(&format!("/tasks/{task}"))) { (task) }
        }
        h1 { "Counters of " (id) }
        @match counters {
            Err(error) => p.problem.warn { "The counters are damaged: " (error.to_string()) },
            Ok(counters) => div.scroll {
                (simple_table(None, &[Text("Counter"), Number("Value")], &html! {
                    @for group in &counters.groups {
                        tr { th.group colspan="2" { (group.display_name) } }
                        @for counter in &group.counters {
                            tr {
                                th scope="row" { span.long { (counter.display_name) } }
                                td.n data-label="Value" { (Count(counter.value)) }
                            }
                        }
                    }
                }))
            },
        }
    }
}
