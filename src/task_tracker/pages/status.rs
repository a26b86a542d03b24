//! The page for people: attempts, their jobs, and the connection to the cluster manager.

use std::time::SystemTime;

use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Stage, View, count};
use crate::localise::TaskKind;
use crate::tracker::{AttemptSnapshot, JobSnapshot, SlotUse};
use corona_model::types::{Millis, ResourceType};
use corona_process::since_epoch_ms;
use corona_web::budget;
use corona_web::frame::{Frame, Updates};
use corona_web::table::Head::{Number, Text};
use corona_web::table::simple_table;
use corona_web::units::{Bytes, Count, Name, Span, Time, bar, class_of, plural};

/// The least pause between two looks of one browser at the same page.
const REFRESH_MS: u64 = 1000;
/// Rows of a table at most.
const MOST_ROWS: usize = 1000;

/// The page of the task tracker.
pub(super) fn whole(view: &View<'_>) -> Markup {
    let attempts = view.tracker.jobs.iter().flat_map(|job| &job.attempts);
    let mut active: Vec<&AttemptSnapshot> = attempts
        .filter(|attempt| matches!(Stage::of(attempt), Stage::Running | Stage::Waiting))
        .collect();
    active.sort_by_key(|attempt| (Stage::of(attempt), attempt.start_time_ms));
    page(
        view,
        "Task tracker",
        &html! {
            h1 { "Task tracker " (Name(&view.tracker.identity.host)) }
            div #state data-live { (trouble(view)) (facts(view)) }
            div #slots data-live {
                div.cards {
                    (card(ResourceType::Map, "Maps", view.tracker.maps, view.about.granted.maps))
                    (card(
                        ResourceType::Reduce,
                        "Reduces",
                        view.tracker.reduces,
                        view.about.granted.reduces,
                    ))
                }
                p.note {
                    "The cluster manager grants the slots that cm.cpu.to.resource.partitioning has for this "
                    "machine. The node itself accepts " (Count(view.about.slot_multiplier))
                    " times as many attempts (corona.slot.multiplier), so that only the cluster manager "
                    "limits how many run."
                }
            }
            div #attempts data-live {
                div.table-head {
                    h2 { "Running and waiting" }
                    p.count { (plural(active.len() as u64, "attempt", "attempts")) }
                }
                (attempts_table(view, &active, "Nothing runs here."))
            }
            div #jobs data-live { (jobs(view)) }
            div #job-trackers data-live { (job_trackers(view)) }
            div #dirs data-live { (dirs(view)) }
        },
    )
}

/// The page of a job.
pub(super) fn job(view: &View<'_>, id: &str) -> Option<Markup> {
    let job = view.tracker.jobs.iter().find(|job| job.id == id)?;
    let mut attempts: Vec<&AttemptSnapshot> = job.attempts.iter().collect();
    attempts.sort_by(|a, b| (Stage::of(a), &a.id).cmp(&(Stage::of(b), &b.id)));
    Some(page(
        view,
        &format!("Job {}", job.id),
        &html! {
            p.crumbs { a href="/" { "Task tracker" } }
            h1 { "Job " (job.id) }
            dl.facts {
                div { dt { "Session" } dd { (session_link(view, &job.session)) } }
                div { dt { "Job tracker" } dd { (Name(&job.job_tracker)) } }
            }
            div #attempts data-live { (attempts_table(view, &attempts, "It has no attempts on this node.")) }
        },
    ))
}

/// The text in place of a job that has ended.
pub(super) fn no_job(view: &View<'_>) -> Markup {
    page(
        view,
        "No such job",
        &html! {
            p.crumbs { a href="/" { "Task tracker" } }
            h1 { "No such job" }
            p { "This node has no job with this name." }
        },
    )
}

fn page(view: &View<'_>, title: &str, content: &Markup) -> Markup {
    let frame = Frame {
        title,
        host: &view.tracker.identity.host,
        service: view.tracker.identity.host.to_string(),
        links: vec![
            (view.about.finished_jobs.clone(), "Finished jobs"),
            (Some("/api/v1/tracker".into()), "API"),
            (Some("/metrics".into()), "Metrics"),
        ],
        now: Millis(since_epoch_ms(view.now)),
        refresh_ms: Some(REFRESH_MS),
        updates: Updates::Polled,
        ..Frame::default()
    };
    frame.page(content)
}

fn time(time: SystemTime) -> Time {
    Time(Millis(since_epoch_ms(time)))
}

/// How long ago, in milliseconds.
fn since(view: &View<'_>, at_ms: i64) -> i64 {
    since_epoch_ms(view.now).saturating_sub(at_ms)
}

fn trouble(view: &View<'_>) -> Markup {
    let problems = view.problems();
    html! {
        @if !problems.is_empty() {
            ul.problems {
                @for problem in &problems {
                    li.(if problem.is_bad { "bad" } else { "warn" }) { (problem.text) }
                }
            }
        }
    }
}

fn facts(view: &View<'_>) -> Markup {
    let View { about, tracker, link, .. } = view;
    let ago = |time: SystemTime| Span(since(view, since_epoch_ms(time)));
    html! {
        dl.facts {
            div.wide {
                dt { "Name" }
                dd {
                    @match &about.cluster_manager_pages {
                        Some(pages) => {
                            a href={ (pages) "nodes/" (escaped(&tracker.identity.name)) } {
                                (Name(&tracker.identity.name))
                            }
                        },
                        None => { (Name(&tracker.identity.name)) },
                    }
                }
            }
            div {
                dt { "Cluster manager" }
                dd {
                    @match &about.cluster_manager_pages {
                        Some(pages) => { a href=(pages) { (about.cluster_manager) } },
                        None => { (about.cluster_manager) },
                    }
                    " "
                    @if link.trouble.is_none() { span.badge.good { "answers" } }
                    @else { span.badge.warn { "does not reply" } }
                }
            }
            div { dt { "Last reply" } dd { (ago(link.last_answer_at)) " ago" } }
            div {
                dt { "Heartbeats" }
                dd { (Count(link.answered)) " answered, " (Count(link.failed)) " failed" }
            }
            div { dt { "Started" } dd { (time(about.started)) " (" (ago(about.started)) " ago)" } }
            div {
                dt { "Java tasks" }
                dd {
                    @if about.java_problem.is_none() { span.badge.good { "can run" } }
                    @else if about.expects_java { span.badge.bad { "cannot run" } }
                    @else { "not set up" }
                }
            }
            div {
                dt { "Memory" }
                dd {
                    (bytes(view.machine.available_bytes)) " of " (bytes(view.machine.memory_bytes))
                    " available"
                }
            }
            div {
                dt { "Disks" }
                dd {
                    (bytes(view.traffic.disk_read_bytes)) " read, "
                    (bytes(view.traffic.disk_written_bytes)) " written"
                }
            }
            div {
                dt { "Network" }
                dd {
                    (bytes(view.traffic.network_received_bytes)) " received, "
                    (bytes(view.traffic.network_sent_bytes)) " sent"
                }
            }
            div {
                dt { "Used by tasks" }
                dd {
                    (Span(signed(tracker.used.cpu_ms))) " of CPU, "
                    (bytes(tracker.used.read_bytes)) " read, "
                    (bytes(tracker.used.written_bytes)) " written"
                }
            }
            @if let Some(archive) = &tracker.class_archive {
                div { dt { "Class archive" } dd { (archive) } }
            }
            @if tracker.idle_processes > 0 {
                div { dt { "Idle processes" } dd { (Count(tracker.idle_processes)) } }
            }
            div { dt { "Failed attempts" } dd { (Count(tracker.failures)) } }
            div { dt { "Job trackers connect to" } dd { (about.addresses.actions) } }
            div { dt { "Tasks report to" } dd { (about.addresses.umbilical) } }
            (budget::facts(&budget::now()))
        }
    }
}

fn card(kind: ResourceType, name: &str, slots: SlotUse, granted: u32) -> Markup {
    html! {
        section.card.(class_of(kind)) {
            h3 { (name) }
            p.big {
                strong { (Count(slots.used)) }
                span.unit { "of " (Count(granted)) " slots" }
            }
            (bar(kind, slots.used.into(), granted.into()))
            p.note { "Accepts up to " (Count(slots.total)) "." }
        }
    }
}

fn attempts_table(view: &View<'_>, attempts: &[&AttemptSnapshot], none: &str) -> Markup {
    html! {
        div.scroll {
            @if attempts.is_empty() {
                p.empty { (none) }
            } @else {
                (simple_table(None, &[
                    Text("Attempt"), Text("State"), Text("Progress"), Text("Status"), Text("Started"),
                    Number("CPU"), Number("Memory"), Number("Process"),
                ], &html! {
                    @for attempt in attempts.iter().take(MOST_ROWS) { (row(view, attempt)) }
                }))
            }
        }
        @if attempts.len() > MOST_ROWS {
            p.count { "And " (Count(attempts.len() - MOST_ROWS)) " more, see the API." }
        }
    }
}

fn row(view: &View<'_>, attempt: &AttemptSnapshot) -> Markup {
    let cleans_up = attempt.kind == TaskKind::AttemptCleanup;
    let kind = if attempt.is_map { ResourceType::Map } else { ResourceType::Reduce };
    let (color, percent) = (stage_class(attempt), percent(attempt));
    html! {
        tr data-key={ (attempt.id) (if cleans_up { " cleanup" } else { "" }) } {
            th scope="row" {
                span class={ "dot " (class_of(kind)) } {}
                a href={ "/tasklog?taskid=" (escaped(&attempt.id)) (if cleans_up { "&cleanup=true" } else { "" }) } {
                    (Name(&attempt.id))
                }
                @match attempt.kind {
                    TaskKind::Work => {},
                    TaskKind::JobSetup => span.note { "sets the job up" },
                    TaskKind::JobCleanup => span.note { "cleans up after the job" },
                    TaskKind::AttemptCleanup => span.note { "cleans up after this attempt" },
                }
            }
            td data-label="State" { span class={ "badge " (color) } { (attempt.state) } " " span.tag { (attempt.phase) } }
            td data-label="Progress" { div.used { span { (percent) " %" } (bar(kind, percent, 100)) } }
            td.wide data-label="Status" { span.long { (Name(&attempt.state_string)) } }
            td data-label="Started" {
                @if attempt.start_time_ms > 0 {
                    (Time(Millis(attempt.start_time_ms)))
                    span.note {
                        @if attempt.finish_time_ms > 0 {
                            "took " (Span(attempt.finish_time_ms.saturating_sub(attempt.start_time_ms)))
                        } @else {
                            (Span(since(view, attempt.start_time_ms))) " ago"
                        }
                    }
                } @else { "–" }
            }
            td.n data-label="CPU" { (Span(signed(attempt.usage.cpu_ms))) }
            td.n data-label="Memory" {
                (bytes(attempt.usage.memory_bytes))
                span.note { "at most " (bytes(attempt.usage.peak_memory_bytes)) }
            }
            td.n data-label="Process" { @match attempt.pid { Some(pid) => { (pid) }, None => { "–" } } }
        }
    }
}

/// A number of bytes that the kernel has counted.
fn bytes(number: u64) -> Bytes {
    Bytes(signed(number))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The progress of an attempt, which tasks give as they like.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 100")]
fn percent(attempt: &AttemptSnapshot) -> u64 {
    (attempt.progress.clamp(0.0, 1.0) * 100.0) as u64
}

fn stage_class(attempt: &AttemptSnapshot) -> &'static str {
    match Stage::of(attempt) {
        Stage::Running | Stage::Succeeded => "good",
        Stage::Waiting => "",
        Stage::Failed => "bad",
        Stage::Killed => "warn",
    }
}

fn jobs(view: &View<'_>) -> Markup {
    let jobs: &[JobSnapshot] = &view.tracker.jobs;
    html! {
        div.table-head {
            h2 { "Jobs" }
            p.count { (plural(jobs.len() as u64, "job", "jobs")) }
        }
        div.scroll {
            @if jobs.is_empty() {
                p.empty { "No jobs on this node." }
            } @else {
                table.rows {
                    thead {
                        tr {
                            th scope="col" { "Job" }
                            th scope="col" { "Session" }
                            th scope="col" { "Job tracker" }
                            @for (_, name) in Stage::ALL { th.n scope="col" { (capital(name)) } }
                        }
                    }
                    tbody {
                        @for job in jobs.iter().take(MOST_ROWS) {
                            tr data-key=(job.id) {
                                th scope="row" {
                                    a href={ "/jobs/" (escaped(&job.id)) } { (Name(&job.id)) }
                                }
                                td data-label="Session" {
                                    span.word { (session_link(view, &job.session)) }
                                }
                                td data-label="Job tracker" {
                                    span.word { (Name(&job.job_tracker)) }
                                }
                                @for (name, count) in count(job.attempts.iter()) {
                                    td.n data-label=(capital(name)) { (Count(count)) }
                                }
                            }
                        }
                    }
                }
            }
        }
        @if jobs.len() > MOST_ROWS {
            p.count { "And " (Count(jobs.len() - MOST_ROWS)) " more, see the API." }
        }
    }
}

/// A session, which leads to its page at the cluster manager.
fn session_link(view: &View<'_>, session: &str) -> Markup {
    html! {
        @match &view.about.cluster_manager_pages {
            Some(pages) => { a href={ (pages) "sessions/" (escaped(session)) } { (Name(session)) } },
            None => { (Name(session)) },
        }
    }
}

/// A name as part of an address, whatever is in it.
fn escaped(name: &str) -> String {
    const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(name, PLAIN).to_string()
}

fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn job_trackers(view: &View<'_>) -> Markup {
    let Some(running) = &view.job_trackers else { return html! {} };
    html! {
        div.table-head {
            h2 { "Job trackers" }
            p.count { (plural(running.len() as u64, "process", "processes")) }
        }
        div.scroll {
            @if running.is_empty() {
                p.empty { "No job tracker runs here." }
            } @else {
                (simple_table(None, &[
                    Text("Attempt"), Text("Job"), Text("For"), Text("Started"), Number("Process"),
                ], &html! {
                    @for one in running.iter().take(MOST_ROWS) {
                        tr data-key=(one.attempt) {
                            th scope="row" {
                                a href={ "/tasklog?taskid=" (escaped(&one.attempt)) } {
                                    (Name(&one.attempt))
                                }
                            }
                            td data-label="Job" { span.word { (Name(&one.job)) } }
                            td data-label="For" { span.word { (Name(&one.parent)) } }
                            td data-label="Started" { (time(one.since)) }
                            td.n data-label="Process" { @match one.pid { Some(pid) => { (pid) }, None => { "–" } } }
                        }
                    }
                }))
            }
        }
    }
}

fn dirs(view: &View<'_>) -> Markup {
    let bytes = |bytes: u64| Bytes(i64::try_from(bytes).unwrap_or(i64::MAX));
    html! {
        h2 { "Local directories" }
        div.scroll {
            (simple_table(None, &[Text("Directory"), Text("State"), Number("Free"), Number("Size")], &html! {
                @for dir in &view.dirs {
                    tr data-key=(dir.path.display()) {
                        th scope="row" { span.word { (Name(dir.path.display())) } }
                        td data-label="State" {
                            @if dir.failed.is_none() { span.badge.good { "usable" } }
                            @else { span.badge.bad { "left out" } }
                        }
                        @match dir.space {
                            Some(space) => {
                                td.n data-label="Free" { (bytes(space.free_bytes)) }
                                td.n data-label="Size" { (bytes(space.total_bytes)) }
                            },
                            None => { td.n data-label="Free" { "–" } td.n data-label="Size" { "–" } },
                        }
                    }
                }
            }))
        }
    }
}
