//! The page of a finished job, and the analysis of its tasks.

use std::collections::BTreeMap;

use corona_mapreduce::history::TaskRole;
use corona_mapreduce::{Counters, HistoryAttempt, JobHistory, JobState, PartState, TaskKey};
use corona_model::types::{Millis, ResourceType, Span};
use corona_web::table::Head::{Number, Text};
use corona_web::table::simple_table;
use corona_web::units::{Count, Name, Time, bar};
use maud::{Markup, html};

use super::figures::{
    self, ROLES, Took, counts, durations, phases, plot, running, shown_span, span,
};
use super::list::badge;
use super::{Parameters, View};
use crate::index::state_name;

/// Hosts with failures that are listed.
const MAX_HOSTS: usize = 50;

pub(super) fn content(view: &View<'_>) -> Markup {
    let history = &view.contents.history;
    html! {
        p.crumbs { a href="/" { "Jobs" } }
        h1 { "Job " (Name(view.job().as_str())) }
        (problems(view))
        (facts(view))
        @if let Some((task, error)) = failure(history) {
            @let task = view.job().task(task);
            h2 { a href=(view.link(&format!("/tasks/{task}"))) { (Name(&task)) } " failed" }
            pre.text tabindex="0" { (error) }
        }
        h2 { "Tasks" }
        (kinds(view))
        (plots(view))
        (failures(view))
        (counters(&history.counters))
    }
}

/// Why a job failed: its first task that did, and what that said.
fn failure(history: &JobHistory) -> Option<(TaskKey, &str)> {
    let has_failed = history.has_ended() && history.state == Some(JobState::Failed);
    let mut tasks = history.tasks.iter().filter(|_| has_failed);
    tasks.find_map(|(key, task)| {
        let failed = |attempt: &&HistoryAttempt| attempt.state == PartState::Failed;
        let last = task.attempts.iter().rev().filter(failed).map(|attempt| &*attempt.error);
        let mut said = last.chain([&*task.error]).filter(|error| !error.is_empty());
        (task.state == PartState::Failed).then(|| said.next())?.map(|error| (*key, error))
    })
}

fn problems(view: &View<'_>) -> Markup {
    let contents = view.contents;
    let history = &contents.history;
    html! {
        @if !history.has_ended() {
            p.problem.warn {
                "Incomplete: the end of the job is not in its history. The job runs, or its job tracker ended before it."
            }
        }
        @if contents.damaged > 0 {
            p.problem.warn { (Count(contents.damaged)) " records of the history are damaged and left out." }
        }
        @if contents.is_cut || history.left_out > 0 {
            p.problem.warn { "The history is too long to be shown completely (corona.pjt.max.history.bytes)." }
        }
    }
}

fn time(at_ms: i64) -> Markup {
    html! { @if at_ms > 0 { (Time(Millis(at_ms))) } @else { "–" } }
}

fn facts(view: &View<'_>) -> Markup {
    let history = &view.contents.history;
    let state = state_name(history.state.filter(|_| history.has_ended()));
    let entry = view.shared.index.job(view.job().as_str());
    let pool = entry.map(|entry| entry.pool.to_string()).unwrap_or_default();
    let since = |from, to| match shown_span(from, to).as_str() {
        "–" => String::new(),
        span => format!(" ({span})"),
    };
    html! {
        dl.facts {
            div { dt { "User" } dd { (history.user) } }
            div { dt { "Name" } dd { span.long { (history.name) } } }
            div { dt { "State" } dd { (badge(state)) } }
            @if !pool.is_empty() { div { dt { "Pool" } dd { (Name(&pool)) } } }
            div { dt { "Submitted" } dd { (time(history.submit_ms)) } }
            div {
                dt { "Launched" }
                dd { (time(history.launch_ms)) (since(history.submit_ms, history.launch_ms)) }
            }
            div {
                dt { "Finished" }
                dd { (time(history.finish_ms)) (since(history.launch_ms, history.finish_ms)) }
            }
            div.wide {
                dt { "Configuration" }
                dd { a href=(view.link("/configuration")) { span.long { (history.conf) } } }
            }
            @if let Some((host, port, attempt)) = remote(&history.job_tracker) {
                div {
                    dt { "Log of the job tracker" }
                    dd {
                        @let at = format!("http://{host}:{port}/tasklog?taskid={attempt}");
                        a href={ (at) "&start=-4097" } { "Last 4KB" } " "
                        a href={ (at) "&start=-8193" } { "Last 8KB" } " "
                        a href={ (at) "&all=true" } { "All" }
                    }
                }
            }
            div {
                dt { "More" }
                dd {
                    a href=(view.link("/analysis")) { "Analyse This Job" } " · "
                    a href={ "/compare?a=" (view.job()) } { "Compare" } " · "
                    a href=(view.link("/history")) { "History file" } " · "
                    a href={ "/api/v1/jobs/" (view.job()) } { "JSON" }
                }
            }
        }
    }
}

/// Host, port and attempt of a remote job tracker.
fn remote(tracker: &str) -> Option<(&str, u16, &str)> {
    let mut parts = tracker.splitn(3, ':');
    let (host, port, attempt) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let fits = host != "null" && !host.is_empty() && host.bytes().chain(attempt.bytes()).all(legal);
    fits.then_some((host, port, attempt))
}

fn kinds(view: &View<'_>) -> Markup {
    let history = &view.contents.history;
    html! {
        div.scroll {
            (simple_table(Some("kinds"), &[
                Text("Kind"), Number("Tasks"), Number("Attempts"), Number("Successful"), Number("Failed"),
                Number("Killed"), Text("Start"), Text("Finish"),
            ], &html! {
                @for (role, name) in ROLES {
                    @let counts = counts(history, role);
                    @let link = |status: &str| view.link(
                        &format!("/tasks?taskType={}&status={status}", role.name()),
                    );
                    tr {
                        th scope="row" { (name) }
                        td.n data-label="Tasks" { (Count(counts.tasks)) }
                        td.n data-label="Attempts" { a href=(link("all")) { (Count(counts.attempts)) } }
                        td.n data-label="Successful" { a href=(link("SUCCESS")) { (Count(counts.succeeded)) } }
                        td.n data-label="Failed" { a href=(link("FAILED")) { (Count(counts.failed)) } }
                        td.n data-label="Killed" { a href=(link("KILLED")) { (Count(counts.killed)) } }
                        td data-label="Start" { (time(counts.start_ms)) }
                        td data-label="Finish" {
                            (time(counts.finish_ms))
                            @if counts.finish_ms > 0 {
                                " (" (shown_span(counts.start_ms, counts.finish_ms)) ")"
                            }
                        }
                    }
                }
            }))
        }
    }
}

fn plots(view: &View<'_>) -> Markup {
    let history = &view.contents.history;
    let starts = ROLES.iter().map(|(role, _)| counts(history, *role));
    let all: Vec<_> = starts.filter(|counts| counts.finish_ms > 0).collect();
    let from = all.iter().map(|counts| counts.start_ms).filter(|at| *at > 0).min().unwrap_or(0);
    let to = all.iter().map(|counts| counts.finish_ms).max().unwrap_or(0);
    let whole = span(from, to);
    let phases = phases(history);
    let total: i64 = phases.iter().map(|(_, _, ms)| ms).sum();
    let ends = (String::from("first start"), format!("{} later", Span(whole)));
    let part = |ms: i64| u64::try_from(ms).unwrap_or(0);
    html! {
        @if whole > 0 {
            h2 { "Where time went" }
            div.cards {
                @for (role, kind, name) in [
                    (TaskRole::Map, ResourceType::Map, "maps"),
                    (TaskRole::Reduce, ResourceType::Reduce, "reduces"),
                ] {
                    @if counts(history, role).attempts > 0 {
                        section.card {
                            h3 { "Running " (name) }
                            (plot(
                                kind,
                                &format!("Running {name}"),
                                &format!("running-{name}"),
                                &running(history, role, from, to),
                                (&ends.0, &ends.1),
                            ))
                            @let (bars, longest) = durations(history, role);
                            h3 { "How long " (name) " took" }
                            (plot(
                                kind,
                                &format!("{name} that took so long"),
                                &format!("took-{name}"),
                                &bars,
                                ("0 s", &Took(longest).to_string()),
                            ))
                        }
                    }
                }
            }
            div.scroll {
                (simple_table(Some("phases"), &[
                    Text("Phase"), Number("Time of all attempts"), Text("Part"),
                ], &html! {
                    @for (name, kind, ms) in &phases {
                        tr {
                            th scope="row" { (name) }
                            td.n data-label="Time" { (Took(*ms)) }
                            td data-label="Part" { (bar(*kind, part(*ms), part(total))) }
                        }
                    }
                }))
            }
        }
    }
}

/// Which hosts had failures: their tasks, and how many attempts.
fn failures(view: &View<'_>) -> Markup {
    let mut hosts: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for attempt in view.contents.history.tasks.values().flat_map(|task| &task.attempts) {
        let of_host = match attempt.state {
            PartState::Failed => 0,
            PartState::Killed => 1,
            _ => continue,
        };
        if let Some(count) = hosts.entry(&attempt.host).or_default().get_mut(of_host) {
            *count += 1;
        }
    }
    let mut hosts: Vec<_> = hosts.into_iter().collect();
    hosts.sort_by_key(|(_, [failed, killed])| std::cmp::Reverse((*failed, *killed)));
    let more = hosts.len().saturating_sub(MAX_HOSTS);
    html! {
        @if !hosts.is_empty() {
            h2 { "Failed and killed attempts by nodes" }
            div.scroll {
                (simple_table(Some("hosts"), &[Text("Host"), Number("Failed"), Number("Killed")], &html! {
                    @for (host, [failed, killed]) in hosts.iter().take(MAX_HOSTS) {
                        tr {
                            th scope="row" { @if host.is_empty() { "unknown" } @else { (Name(host)) } }
                            td.n data-label="Failed" { (Count(failed)) }
                            td.n data-label="Killed" { (Count(killed)) }
                        }
                    }
                }))
            }
            @if more > 0 { p.note { "And " (Count(more)) " more hosts." } }
        }
    }
}

/// The counters of a job: of maps, of reduces, and all.
fn counters(texts: &[String; 3]) -> Markup {
    let [maps, reduces, all] =
        [0, 1, 2].map(|at| texts.get(at).and_then(|text| Counters::of_text(text).ok()));
    let none = Counters::default();
    let (maps, reduces) = (maps.unwrap_or_default(), reduces.unwrap_or_default());
    let is_damaged = all.is_none();
    let all = all.unwrap_or(none);
    let value = |counters: &Counters, group: &str, name: &str| {
        counters.get(group, name).map_or_else(|| "0".to_owned(), |value| Count(value).to_string())
    };
    html! {
        @if is_damaged { p.problem.warn { "The counters of the job are damaged." } }
        @if !all.groups.is_empty() {
            h2 { "Counters" }
            div.scroll {
                (simple_table(Some("counters"), &[
                    Text("Counter"), Number("Map"), Number("Reduce"), Number("Total"),
                ], &html! {
                    @for group in &all.groups {
                        tr { th.group colspan="4" { (group.display_name) } }
                        @for counter in &group.counters {
                            tr {
                                th scope="row" { span.long { (counter.display_name) } }
                                td.n data-label="Map" { (value(&maps, &group.name, &counter.name)) }
                                td.n data-label="Reduce" { (value(&reduces, &group.name, &counter.name)) }
                                td.n data-label="Total" { (Count(counter.value)) }
                            }
                        }
                    }
                }))
            }
        }
    }
}

/// The best, average and worst tasks of a job.
pub(super) fn analysis(view: &View<'_>, query: &Parameters) -> Markup {
    const MOST: usize = 1000;
    let wanted = query.get("numTasks").and_then(|number| number.parse().ok()).unwrap_or(10);
    let wanted: usize = std::cmp::min(wanted, MOST);
    let history = &view.contents.history;
    type TimeOf = fn(&HistoryAttempt) -> i64;
    let took: [(&str, TaskRole, TimeOf); 3] = [
        ("map", TaskRole::Map, |attempt| span(attempt.start_ms, attempt.finish_ms)),
        ("shuffle", TaskRole::Reduce, |attempt| span(attempt.start_ms, attempt.shuffle_ms)),
        ("reduce", TaskRole::Reduce, |attempt| span(attempt.shuffle_ms, attempt.finish_ms)),
    ];
    html! {
        p.crumbs { a href="/" { "Jobs" } " / " a href=(view.link("")) { (view.job()) } }
        h1 { "Analysis of " (view.job()) }
        (problems(view))
        @for (name, role, time_of) in took {
            @let attempts = ranked(history, role, time_of);
            @if let (Some((_, best, _)), Some((_, worst, _))) = (attempts.first(), attempts.last()) {
                @let sum: i64 = attempts.iter().map(|(_, took, _)| *took).sum();
                @let average = sum / i64::try_from(attempts.len()).unwrap_or(1).max(1);
                h2 { "Time taken by " (name) " tasks" }
                p {
                    "Best " (Took(*best)) ", average " (Took(average)) ", worst " (Took(*worst)) ", of "
                    (Count(attempts.len())) " tasks."
                }
                h3 { "Worst performing " (name) " tasks" }
                div.scroll {
                    (simple_table(None, &[
                        Text("Task"), Text("Host"), Number("Time taken"), Text("Of the worst"),
                    ], &html! {
                        @for (key, took, attempt) in attempts.iter().rev().take(wanted) {
                            @let task = view.job().task(*key);
                            tr {
                                th scope="row" { a href=(view.link(&format!("/tasks/{task}"))) { (Name(&task)) } }
                                td data-label="Host" { (Name(&attempt.host)) }
                                td.n data-label="Time taken" { (Took(*took)) }
                                td data-label="Of the worst" {
                                    (bar(
                                        figures_kind(role),
                                        u64::try_from(*took).unwrap_or(0),
                                        u64::try_from(*worst).unwrap_or(0),
                                    ))
                                }
                            }
                        }
                    }))
                }
            }
        }
        @if figures::counts(history, TaskRole::Map).succeeded == 0
            && figures::counts(history, TaskRole::Reduce).succeeded == 0 {
            p { "No map and no reduce of this job succeeded, so there is nothing to analyse." }
        }
    }
}

/// The attempts that succeeded of each task, the quickest first.
fn ranked(
    history: &JobHistory,
    role: TaskRole,
    time_of: fn(&HistoryAttempt) -> i64,
) -> Vec<(TaskKey, i64, &HistoryAttempt)> {
    let tasks = history.tasks.iter().filter(|(_, task)| task.role == role);
    let attempts = tasks.filter_map(|(key, task)| {
        let mut attempts = task.attempts.iter().rev();
        let attempt = attempts.find(|attempt| attempt.state == PartState::Succeeded)?;
        Some((*key, time_of(attempt), attempt))
    });
    let mut attempts: Vec<_> = attempts.collect();
    attempts.sort_by_key(|(key, took, _)| (*took, *key));
    attempts
}

fn figures_kind(role: TaskRole) -> ResourceType {
    match role {
        TaskRole::Map => ResourceType::Map,
        _ => ResourceType::Reduce,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_and_a_port_are_a_remote_job_tracker() {
        let attempt = "attempt_202611221049.13_0001_m_100003_1";
        let whole = format!("tt1:80:{attempt}");
        assert_eq!(remote(&whole), Some(("tt1", 80, attempt)));
        for tracker in
            ["null:null:null", "null:null:attempt_1", "", "a:b", "\"><script>:80:x", "h:80:a&b"]
        {
            assert_eq!(remote(tracker), None, "{tracker}");
        }
    }
}
