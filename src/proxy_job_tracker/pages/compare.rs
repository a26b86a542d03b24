//! Two runs of a job, side by side.

use std::sync::Arc;

use corona_mapreduce::Counters;
use corona_mapreduce::history::TaskRole;
use corona_web::units::Count;
use hyper::StatusCode;
use maud::{Markup, html};

use super::figures::{Took, counts, phases, span};
use super::{Page, Parameters, ProxyContext, failed, file_of, frame_in, page};
use crate::histories::Contents;

pub(super) async fn answer(shared: &Arc<ProxyContext>, query: &Parameters) -> Page {
    let given = |name: &str| query.get(name).unwrap_or_default().trim().to_owned();
    let (a, b) = (given("a"), given("b"));
    let nothing = Parameters::parse(b"");
    let content = if a.is_empty() || b.is_empty() {
        html! { h1 { "Compare two runs" } (form(&a, &b)) (runs(shared, &a)) }
    } else {
        let mut found = Vec::new();
        for job in [&a, &b] {
            let read = match file_of(shared, Some(job), &nothing).await {
                Ok(file) => shared.histories.read(&file).await,
                Err(error) => Err(error),
            };
            match read {
                Ok(contents) => found.push(contents),
                Err(error) => return failed(shared, &error),
            }
        }
        match &found[..] {
            [one, other] => html! {
                h1 { "Two runs side by side" }
                p {
                    "Of " a href={ "/jobs/" (one.file.job) } { (one.file.job) }
                    " and " a href={ "/jobs/" (other.file.job) } { (other.file.job) } "."
                }
                (form(&a, &b))
                (table(one, other))
            },
            _ => html! {},
        }
    };
    page(StatusCode::OK, frame_in(shared, Some("/compare"), "Compare two runs", &content))
}

fn form(a: &str, b: &str) -> Markup {
    html! {
        form.filter method="get" action="/compare" {
            div { label for="f-a" { "Job" } input #f-a type="text" size="28" name="a" value=(a) placeholder="job_..."; }
            div { label for="f-b" { "Other job" } input #f-b type="text" size="28" name="b" value=(b) placeholder="job_..."; }
            div { button type="submit" { "Compare" } }
        }
    }
}

/// Other runs of the same job: those of its user with its name.
fn runs(shared: &ProxyContext, job: &str) -> Markup {
    const MOST: usize = 20;
    let Some(own) = shared.index.job(job) else { return html! {} };
    let jobs = shared.index.jobs();
    let is_run = |entry: &&Arc<crate::index::Entry>| {
        entry.name == own.name && entry.user == own.user && entry.id != own.id
    };
    let others: Vec<_> = jobs.iter().filter(is_run).take(MOST).collect();
    html! {
        @if !others.is_empty() {
            h2 { "Other runs of " (own.name) }
            ul {
                @for other in others {
                    li { a href={ "/compare?a=" (job) "&b=" (other.id) } { (other.id) } " " (other.state_name()) }
                }
            }
        }
    }
}

/// A row: the label, both values as text, and as numbers.
struct Row {
    label: String,
    shown: [String; 2],
    values: [i64; 2],
}

fn table(one: &Contents, other: &Contents) -> Markup {
    let both = [&one.history, &other.history];
    let time = |label: &str, values: [i64; 2]| Row {
        label: label.to_owned(),
        shown: values.map(|ms| Took(ms).to_string()),
        values,
    };
    let number = |label: String, values: [i64; 2]| Row {
        label,
        shown: values.map(|value| Count(value).to_string()),
        values,
    };
    let mut rows = vec![
        time("From submission to end", both.map(|job| span(job.submit_ms, job.finish_ms))),
        time("From launch to end", both.map(|job| span(job.launch_ms, job.finish_ms))),
    ];
    let [first, second] = both.map(phases);
    for ((name, _, a), (_, _, b)) in first.into_iter().zip(second) {
        rows.push(time(&format!("All attempts: {name}"), [a, b]));
    }
    let as_number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    for (role, name) in [(TaskRole::Map, "Maps"), (TaskRole::Reduce, "Reduces")] {
        let counts = both.map(|job| counts(job, role));
        rows.push(number(name.to_owned(), counts.map(|counts| as_number(counts.tasks))));
        let failed = counts.map(|counts| as_number(counts.failed + counts.killed));
        rows.push(number(format!("{name}: failed and killed attempts"), failed));
    }
    let [first, second] = both.map(|job| Counters::of_text(&job.counters[2]).unwrap_or_default());
    for group in &first.groups {
        for counter in &group.counters {
            let other = second.get(&group.name, &counter.name).unwrap_or(0);
            let label = format!("{}: {}", group.display_name, counter.display_name);
            rows.push(number(label, [counter.value, other]));
        }
    }
    // Those that only the second run has.
    for group in &second.groups {
        for counter in &group.counters {
            if first.get(&group.name, &counter.name).is_none() {
                let label = format!("{}: {}", group.display_name, counter.display_name);
                rows.push(number(label, [0, counter.value]));
            }
        }
    }
    html! {
        div.scroll {
            table.rows #comparison {
                thead {
                    tr {
                        th { "What" }
                        @for contents in [one, other] {
                            th.n { (contents.file.job) }
                        }
                        th.n { "Change" }
                    }
                }
                tbody {
                    @for row in &rows {
                        tr {
                            th scope="row" { span.long { (row.label) } }
                            @for (shown, run) in row.shown.iter().zip(["First", "Second"]) {
                                td.n data-label=(run) { (shown) }
                            }
                            td.n data-label="Change" { (change(row.values)) }
                        }
                    }
                }
            }
        }
    }
}

/// The change from the first to the second value in percent.
fn change([from, to]: [i64; 2]) -> String {
    match (from, to) {
        _ if from == to => "0 %".to_owned(),
        (0, _) => "–".to_owned(),
        _ => match format!("{:+.0} %", (to as f64 - from as f64) / (from as f64).abs() * 100.0) {
            less if ["-0 %", "+0 %"].contains(&less.as_str()) => "0 %".to_owned(),
            text => text,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_in_percent_of_the_first_run() {
        for (values, text) in [
            ([100, 150], "+50 %"),
            ([100, 100], "0 %"),
            ([1000, 999], "0 %"),
            ([1000, 1001], "0 %"),
            ([0, 5], "–"),
            ([200, 100], "-50 %"),
        ] {
            assert_eq!(change(values), text);
        }
    }
}
