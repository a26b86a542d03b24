//! The attempts of a job that failed or were killed.

use corona_web::exchange::Parameters;
use corona_web::filter;
use corona_web::table::Head::{Number, Text};
use corona_web::table::framed;
use corona_web::units::{Name, class_of};
use maud::{Markup, html};

use super::{
    attempt_badge, attempt_path, between, job_path, kind_name, slot_type, text_block, time,
};
use crate::pages::gather::{MOST_ENDED, Row, TaskDetail};
use crate::pages::trackers::Places;
use corona_job_engine::AttemptView;

/// Characters of an error that are shown.
const SHOWN: usize = 1000;

/// The content of the page.
pub(in super::super) fn content(
    row: &Row,
    tasks: &[TaskDetail],
    places: &Places,
    parameters: &Parameters,
) -> Markup {
    let job = &row.description.id;
    let kind = parameters.text("kind").filter(|kind| ["map", "reduce"].contains(kind));
    let cause = parameters.text("cause").filter(|cause| ["failed", "killed"].contains(cause));
    let wanted = |attempt: &&AttemptView| {
        let is_cause = match cause {
            Some("failed") => attempt.state.is_failed(),
            Some(_) => attempt.state.is_killed(),
            None => attempt.state.is_failed() || attempt.state.is_killed(),
        };
        is_cause && kind.is_none_or(|kind| kind_name(attempt.attempt.task.kind) == kind)
    };
    let attempts: Vec<&AttemptView> =
        tasks.iter().flat_map(|task| &task.view.attempts).filter(wanted).take(MOST_ENDED).collect();
    let path = format!("{}/failures", job_path(job));
    html! {
        p.crumbs { a href=(job_path(job)) { "Job " (Name(job)) } }
        h1 { "Failed and killed attempts of " (Name(&row.description.name)) }
        form.filter method="get" action=(path) data-swap {
            (filter::words(parameters, "kind", "Tasks", ["map", "reduce"]))
            (filter::words(parameters, "cause", "How they ended", ["failed", "killed"]))
            div { button type="submit" { "Apply" } }
        }
        div #failures data-live {
            div.table-head {
                h2 #failures-title { "Attempts" }
                p.count {
                    (attempts.len())
                    @if attempts.len() >= MOST_ENDED { ", the first ones only" }
                }
            }
            (framed("failures", "failure-table", &[
                Text("Attempt"), Text("State"), Text("Node"), Text("Ended"), Number("Took"),
                Text("Error"),
            ], &html! {
                @for attempt in &attempts {
                    @let name = job.attempt(attempt.attempt);
                    tr data-key=(name) {
                        th scope="row" {
                            span.dot.(class_of(slot_type(attempt.attempt.task.kind))) {}
                            a href=(attempt_path(job, &name)) { (name) }
                        }
                        td data-label="State" { (attempt_badge(attempt.state)) }
                        td.wide data-label="Node" {
                            span.word {
                                @match places.of(&attempt.node) {
                                    Some(address) => a href=(address) rel="noreferrer" {
                                        (Name(&attempt.node))
                                    },
                                    None => (Name(&attempt.node)),
                                }
                            }
                        }
                        td data-label="Ended" { (time(attempt.finish_ms)) }
                        td.n data-label="Took" { (between(attempt.start_ms, attempt.finish_ms)) }
                        td.wide data-label="Error" {
                            @let shown: String = attempt.diagnostics.chars().take(SHOWN).collect();
                            // The white space of a traceback is a part of it.
                            @if !shown.is_empty() { (text_block(shown.trim_end())) }
                        }
                    }
                }
                @if attempts.is_empty() {
                    tr { td.empty colspan="6" { "No attempt has failed or was killed." } }
                }
            }))
        }
    }
}
