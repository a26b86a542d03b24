//! The configuration in force, the origin of each value, and errors in it.

use maud::{Markup, html};

use crate::ConfigStatus;
use crate::exchange::Parameters;
use corona_config::{InForce, Origin, keys};
use corona_model::types::Millis;
use corona_web::filter;
use corona_web::table::{Column, Table};
use corona_web::units::{Count, Name, Time};

const PATH: &str = "/configuration";

/// The content of the page.
pub(crate) fn content(status: &ConfigStatus, loaded_at: Millis, parameters: &Parameters) -> Markup {
    html! {
        h1 { "Configuration" }
        div #status data-live {
            dl.facts {
                div { dt { "In force since" } dd { (Time(loaded_at)) } }
                div { dt { "Reloads" } dd { (Count(status.reloads)) } }
                div { dt { "Failed reloads" } dd { (Count(status.failures)) } }
            }
            (problems("Errors", "bad", &status.errors, "The scheduling files have errors. The previous values stay in force."))
            (problems("Warnings", "warn", &status.warnings, "These values are in force, but may not be intended."))
            @if status.errors.is_empty() && status.warnings.is_empty() {
                p.fine { span aria-hidden="true" { "✓ " } "No problems." }
            }
        }
        (search(parameters))
        div #keys data-live { (table(status, parameters)) }
        p {
            "For programs: " a href="/conf?format=xml" { "XML" } ", "
            a href="/conf?format=json" { "JSON" } "."
        }
    }
}

fn problems(title: &str, class: &str, problems: &[String], meaning: &str) -> Markup {
    html! {
        @if !problems.is_empty() {
            h2 { (title) }
            p { (meaning) }
            ul.problems {
                @for problem in problems { li.(class) { code { (problem) } } }
            }
        }
    }
}

fn search(parameters: &Parameters) -> Markup {
    let fields = html! {
        (filter::search(parameters, "key, value or meaning"))
        (filter::check(parameters, "set", "Only keys that are set"))
    };
    filter::form(PATH, parameters, &fields)
}

fn meaning(key: &str) -> &'static str {
    keys::find(key).map_or("", |key| key.meaning)
}

fn table(status: &ConfigStatus, parameters: &Parameters) -> Markup {
    type Row = InForce;
    let text = parameters.text("q").map(str::to_lowercase).unwrap_or_default();
    let only_set = parameters.text("set").is_some();
    let has = |row: &InForce| {
        [row.key, &row.value, meaning(row.key)]
            .into_iter()
            .any(|part| part.to_lowercase().contains(&text))
    };
    let mut chosen: Vec<&InForce> = status
        .in_force
        .iter()
        .filter(|row| (!only_set || row.origin != Origin::Default) && (text.is_empty() || has(row)))
        .collect();
    chosen.sort_by_key(|row| keys::ALL.iter().position(|key| key.name == row.key));
    let table = Table {
        id: "key-table",
        caption: "Keys and values",
        rows_are: ("key", "keys"),
        path: PATH,
        parameters,
        usual_sort: "",
        key: |row: &Row| row.key.to_owned(),
        columns: vec![
            Column::text("key", "Key", |row: &Row| html! { code { (Name(row.key)) } })
                .sorted_by(|a: &Row, b| a.key.cmp(b.key)),
            Column::text("value", "Value", |row: &Row| {
                let unit = keys::find(row.key).map_or("", |key| key.unit);
                html! {
                    @if row.value.is_empty() {
                        span.note { "none" }
                    } @else {
                        code.value { (Name(&row.value)) } " " (unit)
                    }
                }
            }),
            Column::text("origin", "From", |row: &Row| {
                html! {
                    @match row.origin {
                        Origin::Default => span.note { "default" },
                        _ => strong.origin { (row.origin) },
                    }
                }
            })
            .sorted_by(|a: &Row, b| a.origin.to_string().cmp(&b.origin.to_string())),
            Column::text("meaning", "Meaning", |row: &Row| html! { (meaning(row.key)) }).wide(),
        ],
        empty: "No key matches.",
    };
    table.render(chosen, status.in_force.len())
}
