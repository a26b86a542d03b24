//! The task trackers that report to this service.

use corona_hadoop::writables::TaskTrackerStatus;
use corona_web::exchange::Parameters;
use corona_web::table::{Column, Table};
use corona_web::units::Name;
use maud::{Markup, html};

use crate::pages::trackers::address;

/// The content of the page.
pub(in super::super) fn content(
    trackers: &[TaskTrackerStatus],
    cluster_manager: Option<&str>,
    parameters: &Parameters,
) -> Markup {
    type Row = TaskTrackerStatus;
    let text = parameters.text("q").map(str::to_lowercase).unwrap_or_default();
    let chosen: Vec<&Row> =
        trackers.iter().filter(|row| row.name.to_lowercase().contains(&text)).collect();
    let number = |of: fn(&Row) -> i32| move |row: &Row| i64::from(of(row));
    let table = Table {
        id: "tracker-table",
        caption: "Task trackers",
        rows_are: ("task tracker", "task trackers"),
        path: "/trackers",
        parameters,
        usual_sort: "name",
        key: |row: &Row| row.name.clone(),
        columns: vec![
            Column::text("name", "Name", |row: &Row| {
                html! {
                    span.word {
                        @match address(row) {
                            Some(address) => a href=(address) rel="noreferrer" { (Name(&row.name)) },
                            None => (Name(&row.name)),
                        }
                    }
                }
            })
            .sorted_by(|a: &Row, b| a.name.cmp(&b.name)),
            Column::text("host", "Host", |row: &Row| html! { span.word { (Name(&row.host)) } })
                .sorted_by(|a: &Row, b| a.host.cmp(&b.host)),
            Column::number("maps", "Map slots", number(|row| row.max_maps)),
            Column::number("reduces", "Reduce slots", number(|row| row.max_reduces)),
            Column::number("failures", "Failed attempts", number(|row| row.failures)),
        ],
        empty: "No task tracker has reported lately.",
    };
    html! {
        h1 { "Task trackers" }
        p {
            "Those that report to this service, because they run tasks of its jobs."
            @if let Some(address) = cluster_manager {
                " " a href={ (address) "nodes" } { "All nodes of the cluster" }
            }
        }
        form.filter method="get" action="/trackers" role="search" data-swap {
            div {
                label for="q" { "Search" }
                input #q type="search" name="q" value=[parameters.text("q")] placeholder="name";
            }
            div { button type="submit" { "Apply" } " " a href="/trackers" data-swap { "Reset" } }
        }
        div #trackers data-live { (table.render(chosen, trackers.len())) }
    }
}
