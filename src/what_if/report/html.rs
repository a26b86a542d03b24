//! The report as one page that needs nothing else: no script, no file, no network.
//!
//! Markup is written with `maud`, which escapes every text.

use corona_model::resources::Dimension;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::{Line, over_time};
use super::words::{
    self, comparison, error, figure, number, share, time, undone, verdict, workload,
};
use super::{Comparison, Report, SessionChange};
use crate::measure::{Bin, GroupResult, LackResult, Run};

/// Plots of so many pools, those with the most work.
const PLOTTED: usize = 24;
/// Rows of users, those with the most work.
const USERS: usize = 50;
/// The classes of runs, which give them their colours.
const CLASSES: [&str; 5] = ["c0", "c1", "c2", "c3", "c4"];

/// The page.
pub fn html(report: &Report) -> String {
    let Report { check, runs, comparisons, .. } = report;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'";
                title { "What if: " (report.name) }
                style { (PreEscaped(include_str!("report.css"))) }
            }
            body { main {
                h1 { "What if: " (report.name) }
                p.soft { (workload(report)) }
                p.verdict.(if check.is_good() { "good" } else { "bad" }) { (verdict(check)) }
                (check_table(report))
                @if !report.changes.is_empty() {
                    h2 { "Changes" }
                    ul { @for change in &report.changes { li { (change) } } }
                }
                h2 { "Cluster" }
                (cluster(runs))
                (legend(runs, false))
                (PreEscaped(plot("Slots in use", runs, |run| Some(&run.cluster.over_time), false)))
                (resources(runs))
                h3 { "Requests that wait" }
                (PreEscaped(waiting(runs)))
                h2 { "Pools" }
                (groups(runs, |run| &run.pools, usize::MAX))
                @for pool in most_used(runs, |run| &run.pools, PLOTTED) {
                    h3 { (pool) }
                    (legend(runs, true))
                    (PreEscaped(plot(&pool, runs, |run| over_time_of(run, &pool), true)))
                }
                h2 { "Users" }
                (groups(runs, |run| &run.users, USERS))
                @if !comparisons.is_empty() {
                    h2 { "Sessions" }
                    @for one in comparisons { (sessions(one)) }
                }
                h2 { "What is assumed" }
                ul { @for one in &report.assumptions { li { (one) } } }
                @if !report.left_out.is_empty() {
                    h2 { "What was left out" }
                    ul { @for one in &report.left_out { li { (one) } } }
                }
            } }
        }
    };
    page.into_string()
}

fn check_table(report: &Report) -> Markup {
    html! {
        @if !report.check.rows.is_empty() {
            div.wide { table {
                thead { tr {
                    th.name scope="col" { "Nothing changed" } th scope="col" { "Recorded" }
                    th scope="col" { "Simulated" } th scope="col" { "Error" }
                } }
                tbody { @for row in &report.check.rows { tr {
                    td.name { (row.name) }
                    td { (figure(row.unit, row.recorded)) }
                    td { (figure(row.unit, row.simulated)) }
                    td { (error(row.error)) }
                } } }
            } }
        }
    }
}

fn sessions(one: &Comparison) -> Markup {
    let table = |title: &str, all: &[SessionChange]| {
        html! {
            @if !all.is_empty() {
                h3 { (title) }
                div.wide { table {
                    thead { tr {
                        th.name scope="col" { "Session" } th scope="col" { "Before" }
                        th scope="col" { "After" } th.name scope="col" { "User" } th.name scope="col" { "Name" }
                    } }
                    tbody { @for session in all { tr {
                        td.name { (session.id) } td { (time(session.before_ms as f64)) }
                        td { (time(session.after_ms as f64)) } td.name { (session.user) }
                        td.name { (session.name) }
                    } } }
                } }
            }
        }
    };
    html! {
        p { (comparison(one)) }
        (table("Slower", &one.most_slower))
        (table("Faster", &one.most_faster))
    }
}

fn cluster(runs: &[Run]) -> Markup {
    html! {
        div.wide { table {
            thead { tr {
                th.name scope="col" { "Settings" } th.name scope="col" { "Slots" } th scope="col" { "Number" }
                th scope="col" { "In use" } th scope="col" { "Free while requests wait" }
                th scope="col" { "Taken back" } th scope="col" { "Work lost" }
            } }
            tbody { @for run in runs { @for (place, of) in run.cluster.types.iter().enumerate() { tr {
                td.name { @if place == 0 { (run.name) } } td.word { (of.kind) } td { (number(of.slots)) }
                td { (share(of.used)) } td { (share(of.free_while_waiting)) }
                // Of all types together.
                td { @if place == 0 { (number(run.cluster.revoked)) } }
                td { @if place == 0 { (time(run.cluster.lost_ms as f64)) } }
            } } } }
        } }
        @for run in runs { @for line in undone(run) { p.undone { (line) } } }
    }
}

/// Nothing if only slots are counted.
fn resources(runs: &[Run]) -> Markup {
    let are_counted = runs.iter().any(|run| !run.cluster.resources.is_empty());
    html! {
        @if are_counted {
            h3 { "Resources" }
            div.wide { table {
                thead { tr {
                    th.name scope="col" { "Settings" } th.name scope="col" { "Resource" } th scope="col" { "All" }
                    th scope="col" { "In use" } th scope="col" { "Free while requests wait" }
                    th scope="col" { "Most of it on one node" } th scope="col" { "Where none of them fits" }
                } }
                tbody { @for run in runs { @for of in &run.cluster.resources { tr {
                    td.name { (run.name) } td.word { (of.resource.name()) }
                    td { (of.resource.short(of.all)) } td { (share(of.used)) }
                    td { (share(of.free_while_waiting)) } td { (words::largest(of)) }
                    td { (share(of.too_small)) }
                } } } }
            } }
            (lacking(runs))
        }
    }
}

fn lacking(runs: &[Run]) -> Markup {
    let row = |name: &str, run: &Run, lacks: &[LackResult]| {
        html! {
            @if !lacks.is_empty() { tr {
                td.name { (name) } td.name { (run.name) } td.name { (words::lacks(lacks)) }
            } }
        }
    };
    html! {
        h3 { "What requests that wait lack" }
        div.wide { table {
            thead { tr {
                th.name scope="col" { "Pool" } th.name scope="col" { "Settings" } th.name scope="col" { "Lacks" }
            } }
            tbody {
                @for run in runs { (row("all", run, &run.cluster.lacks)) }
                @for name in most_used(runs, |run| &run.pools, PLOTTED) { @for run in runs {
                    @for pool in run.pools.iter().filter(|pool| pool.name == name) {
                        (row(&pool.name, run, &pool.lacks))
                    }
                } }
            }
        } }
        p.soft { "Lacks: " (words::LACKS) "." }
    }
}

fn groups(runs: &[Run], of: impl Fn(&Run) -> &Vec<GroupResult>, most: usize) -> Markup {
    let names = most_used(runs, &of, most);
    let mut resources: Vec<Dimension> = Vec::new();
    for of in runs.iter().flat_map(|run| &run.cluster.resources) {
        if !resources.contains(&of.resource) {
            resources.push(of.resource);
        }
    }
    let hours = |one: &GroupResult, of: Dimension| match one.resource_hours.get(of.name()) {
        Some(hours) => format!("{} h", of.short(hours.round() as u64)),
        None => String::new(),
    };
    html! {
        div.wide { table {
            thead { tr {
                th.name scope="col" { "Name" } th.name scope="col" { "Settings" }
                th scope="col" { "Requests" } th scope="col" { "Median wait" } th scope="col" { "95 %" }
                th scope="col" { "99 %" } th scope="col" { "Longest" } th scope="col" { "Slot hours" }
                @for of in &resources { th scope="col" { (of.name()) } }
                th scope="col" { "Taken back" } th scope="col" { "Work lost" }
            } }
            tbody { @for name in &names { @for run in runs {
                @if let Some(one) = of(run).iter().find(|one| one.name == *name) { tr {
                    td.name { (one.name) } td.name { (run.name) } td { (number(one.waits.count)) }
                    td { (time(one.waits.median_ms.into())) } td { (time(one.waits.p95_ms.into())) }
                    td { (time(one.waits.p99_ms.into())) } td { (time(one.waits.longest_ms.into())) }
                    td { (format!("{:.1}", one.used_ms as f64 / 3_600_000.0)) }
                    @for of in &resources { td { (hours(one, *of)) } }
                    td { (number(one.revoked)) } td { (time(one.lost_ms as f64)) }
                } }
            } } }
        } }
    }
}

/// The names of those with the most work in any run, most first.
fn most_used(runs: &[Run], of: impl Fn(&Run) -> &Vec<GroupResult>, most: usize) -> Vec<String> {
    let mut all: Vec<(u64, &str)> = Vec::new();
    for one in runs.iter().flat_map(&of) {
        match all.iter_mut().find(|known| known.1 == one.name) {
            Some(known) => known.0 = known.0.max(one.used_ms),
            None => all.push((one.used_ms, &one.name)),
        }
    }
    all.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
    all.truncate(most);
    all.into_iter().map(|(_, name)| name.to_owned()).collect()
}

fn over_time_of<'a>(run: &'a Run, pool: &str) -> Option<&'a Vec<Bin>> {
    Some(&run.pools.iter().find(|one| one.name == *pool)?.over_time)
}

fn class(place: usize) -> &'static str {
    CLASSES[place % CLASSES.len()]
}

fn legend(runs: &[Run], with_share: bool) -> Markup {
    html! {
        ul.legend {
            @for (place, run) in runs.iter().enumerate() {
                li class=(class(place)) { i {} (run.name) }
            }
            @if with_share { li.due.c0 { i {} "dashed: guaranteed, as far as it is requested" } }
        }
    }
}

fn points(bins: &[Bin], width_ms: i64, of: impl Fn(&Bin) -> f64) -> Vec<(f64, f64)> {
    let at = |place: usize| (place as f64 + 0.5) * width_ms as f64;
    bins.iter().enumerate().map(|(place, bin)| (at(place), of(bin))).collect()
}

fn plot<'a>(
    title: &str,
    runs: &'a [Run],
    bins: impl Fn(&'a Run) -> Option<&'a Vec<Bin>>,
    with_share: bool,
) -> String {
    let mut lines = Vec::new();
    for (place, run) in runs.iter().enumerate() {
        let Some(bins) = bins(run) else { continue };
        let width_ms = run.cluster.bin_ms;
        // A pool that comes later has no stretches before it.
        let missing = run.cluster.over_time.len().saturating_sub(bins.len()) as f64;
        let shift = |(at, value): (f64, f64)| (at + missing * width_ms as f64, value);
        let line = |class, name: String, of: fn(&Bin) -> f64| Line {
            class,
            name,
            points: points(bins, width_ms, of).into_iter().map(shift).collect(),
        };
        lines.push(line(class(place), run.name.clone(), |bin| bin.used));
        if with_share && bins.iter().any(|bin| bin.guaranteed > 0.0) {
            let class = ["c0 due", "c1 due", "c2 due", "c3 due", "c4 due"][place % CLASSES.len()];
            lines.push(line(class, format!("{}, guaranteed", run.name), |bin| bin.guaranteed));
        }
    }
    let until = runs.iter().map(|run| run.ended_ms).max().unwrap_or(0) as f64;
    over_time(title, &lines, until, words::short_time, mark)
}

/// A round value at an axis.
fn mark(value: f64) -> String {
    if value >= 1_000.0 { number(value as u64) } else { format!("{value}") }
}

fn waiting(runs: &[Run]) -> String {
    let line = |(place, run): (usize, &Run)| Line {
        class: class(place),
        name: run.name.clone(),
        points: points(&run.cluster.over_time, run.cluster.bin_ms, |bin| bin.pending),
    };
    let lines: Vec<Line> = runs.iter().enumerate().map(line).collect();
    let until = runs.iter().map(|run| run.ended_ms).max().unwrap_or(0) as f64;
    over_time("Requests that wait", &lines, until, words::short_time, mark)
}
