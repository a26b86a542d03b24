//! The configuration of a job, as its history has it.

use corona_mapreduce::JobId;
use corona_web::exchange::Parameters;
use corona_web::table::{Column, Table};
use corona_web::units::Name;
use maud::{Markup, html};

use super::job_path;
use corona_api::jobs::JobProperty;

/// The content of the page.
pub(in super::super) fn content(
    job: &JobId,
    properties: &[JobProperty],
    parameters: &Parameters,
) -> Markup {
    let path = format!("{}/configuration", job_path(job));
    let text = parameters.text("q").map(str::to_lowercase).unwrap_or_default();
    let chosen: Vec<&JobProperty> = properties
        .iter()
        .filter(|it| {
            it.name.to_lowercase().contains(&text) || it.value.to_lowercase().contains(&text)
        })
        .collect();
    let table = Table {
        id: "key-table",
        caption: "Properties",
        rows_are: ("property", "properties"),
        path: &path,
        parameters,
        usual_sort: "name",
        key: |it: &JobProperty| it.name.clone(),
        columns: vec![
            Column::text("name", "Name", |it: &JobProperty| html! { code { (Name(&it.name)) } })
                .sorted_by(|a: &JobProperty, b| a.name.cmp(&b.name)),
            Column::text("value", "Value", |it: &JobProperty| html! { code { (Name(&it.value)) } })
                .wide()
                .sorted_by(|a: &JobProperty, b| a.value.cmp(&b.value)),
        ],
        empty: "No property matches.",
    };
    html! {
        p.crumbs { a href=(job_path(job)) { "Job " (Name(job)) } }
        h1 { "Configuration of " (Name(job)) }
        form.filter method="get" action=(path) role="search" data-swap {
            div {
                label for="q" { "Search" }
                input #q type="search" name="q" value=[parameters.text("q")] placeholder="name or value";
            }
            div { button type="submit" { "Apply" } " " a href=(path) data-swap { "Reset" } }
        }
        div #configuration data-live { (table.render(chosen, properties.len())) }
    }
}
