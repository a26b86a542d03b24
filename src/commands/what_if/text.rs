//! The report of what-if as text.

use corona::what_if::report::{Comparison, Report, words};
use corona::what_if::{GroupResult, LackResult, Run};

use corona_terminal::console::{Console, printable};
use corona_terminal::table::{Column, Table};
use corona_terminal::wrap::wrapped;

/// Columns of a report that is not shown on a terminal.
const USUAL_WIDTH: usize = 80;

/// A report is read by people wherever it goes, so it has a width where a list for other programs has none.
pub(super) fn width(console: &Console<'_>) -> usize {
    console.width.unwrap_or(USUAL_WIDTH)
}

pub(super) fn render(table: &Table, console: &Console<'_>) -> String {
    table.render_within(width(console), console.colours)
}

/// A line of text, wrapped.
pub(super) fn line(text: &str, indent: &str, console: &Console<'_>) -> String {
    wrapped(&printable(text), indent, Some(width(console)))
}

/// The whole report.
pub(super) fn report(report: &Report, console: &Console<'_>) -> String {
    let mut all = head(report, console);
    all += "\nCluster\n";
    all += &cluster(&report.runs, console);
    if report.runs.iter().any(|run| !run.cluster.resources.is_empty()) {
        all += "\nResources\n";
        all += &resources(&report.runs, console);
        all += "\nWhat requests that wait lack\n";
        all += &lacks(&report.runs, console);
    }
    for one in report.runs.iter().flat_map(words::undone) {
        all += &line(&one, "  ", console);
    }
    all += "\nPools\n";
    all += &groups(&report.runs, |run| &run.pools, "POOL", console);
    all += "\nUsers\n";
    all += &groups(&report.runs, |run| &run.users, "USER", console);
    for comparison in &report.comparisons {
        all += "\n";
        all += &line(&words::comparison(comparison), "  ", console);
        all += &sessions(comparison, console);
    }
    all + &tail(report, console)
}

/// What was played, how true that is, and what was changed.
pub(super) fn head(report: &Report, console: &Console<'_>) -> String {
    let mut all = line(&format!("What if: {}", report.name), "", console);
    all += &line(&words::workload(report), "", console);
    all += "\n";
    all += &line(&words::verdict(&report.check), "", console);
    for row in &report.check.rows {
        let [recorded, simulated] =
            [row.recorded, row.simulated].map(|value| words::figure(row.unit, value));
        let error = words::error(row.error);
        let row = format!("  {}: {simulated}, recorded {recorded} ({error})", row.name);
        all += &line(&row, "    ", console);
    }
    for change in &report.changes {
        all += &line(&format!("Changed: {change}"), "  ", console);
    }
    all
}

/// What is assumed and was left out.
pub(super) fn tail(report: &Report, console: &Console<'_>) -> String {
    let mut all = "\nAssumed\n".to_owned();
    for one in &report.assumptions {
        all += &line(&format!("* {one}"), "  ", console);
    }
    if !report.left_out.is_empty() {
        all += "\nLeft out\n";
    }
    for one in &report.left_out {
        all += &line(&format!("* {one}"), "  ", console);
    }
    all
}

fn cluster(runs: &[Run], console: &Console<'_>) -> String {
    let mut table = Table::new(&[
        Column::text("SETTINGS", 12),
        Column::whole("SLOTS"),
        Column::number("NUMBER"),
        Column::number("IN USE"),
        Column::number("IDLE*"),
        Column::number("TAKEN BACK"),
        Column::number("LOST"),
    ]);
    for run in runs {
        for (place, of) in run.cluster.types.iter().enumerate() {
            // Of all types together.
            let once = |text: String| if place == 0 { text } else { String::new() };
            table.row([
                run.name.as_str().into(),
                of.kind.name().into(),
                words::number(of.slots).into(),
                words::share(of.used).into(),
                words::share(of.free_while_waiting).into(),
                once(words::number(run.cluster.revoked)).into(),
                once(words::short_time(run.cluster.lost_ms as f64)).into(),
            ]);
        }
    }
    render(&table, console) + "* free while requests of the type waited\n"
}

fn resources(runs: &[Run], console: &Console<'_>) -> String {
    let mut table = Table::new(&[
        Column::text("SETTINGS", 12),
        Column::whole("RESOURCE"),
        Column::number("ALL"),
        Column::number("IN USE"),
        Column::number("IDLE*"),
        Column::number("LARGEST*"),
        Column::number("TOO SMALL*"),
    ]);
    for run in runs {
        for of in &run.cluster.resources {
            table.row([
                run.name.as_str().into(),
                of.resource.name().into(),
                of.resource.short(of.all).into(),
                words::share(of.used).into(),
                words::share(of.free_while_waiting).into(),
                words::largest(of).into(),
                words::share(of.too_small).into(),
            ]);
        }
    }
    let what = "* while requests waited: what was free, the most of it on one node on average, and the share of it on \
                nodes where none of them fitted";
    render(&table, console) + &line(what, "  ", console)
}

fn lacks(runs: &[Run], console: &Console<'_>) -> String {
    let mut table = Table::new(&[
        Column::text("POOL", 12),
        Column::text("SETTINGS", 9),
        Column::text("LACKS*", 20),
    ]);
    let mut row = |name: &str, run: &Run, lacks: &[LackResult]| {
        if !lacks.is_empty() {
            table.row([name.into(), run.name.as_str().into(), words::lacks(lacks).into()]);
        }
    };
    for run in runs {
        row("all", run, &run.cluster.lacks);
    }
    for (name, run) in runs.iter().flat_map(|run| run.pools.iter().map(move |pool| (pool, run))) {
        row(&name.name, run, &name.lacks);
    }
    render(&table, console) + &line(&format!("* {}", words::LACKS), "  ", console)
}

/// Rows of a table of users or pools at most, for each run.
const ROWS: usize = 40;

fn groups(
    runs: &[Run],
    of: impl Fn(&Run) -> &Vec<GroupResult>,
    head: &'static str,
    console: &Console<'_>,
) -> String {
    let mut table = Table::new(&[
        Column::text(head, 12),
        Column::text("SETTINGS", 9),
        Column::number("REQUESTS"),
        Column::number("MEDIAN"),
        Column::number("95 %"),
        Column::number("99 %"),
        Column::number("LONGEST"),
        Column::number("LOST"),
    ]);
    let mut names: Vec<&str> = runs.iter().flat_map(&of).map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let more = names.len().saturating_sub(ROWS);
    for name in names.into_iter().take(ROWS) {
        for run in runs {
            let Some(one) = of(run).iter().find(|one| one.name == name) else { continue };
            let time = |ms: u32| words::short_time(ms.into()).into();
            table.row([
                name.into(),
                run.name.as_str().into(),
                words::number(one.waits.count).into(),
                time(one.waits.median_ms),
                time(one.waits.p95_ms),
                time(one.waits.p99_ms),
                time(one.waits.longest_ms),
                words::short_time(one.lost_ms as f64).into(),
            ]);
        }
    }
    let rest = if more > 0 { format!("{more} more are in the JSON\n") } else { String::new() };
    render(&table, console) + &rest
}

fn sessions(comparison: &Comparison, console: &Console<'_>) -> String {
    let mut table = Table::new(&[
        Column::whole(""),
        Column::whole("SESSION"),
        Column::text("NAME", 10),
        Column::text("USER", 8),
        Column::number("BEFORE"),
        Column::number("AFTER"),
    ]);
    let all = [("slower", &comparison.most_slower), ("faster", &comparison.most_faster)];
    for (way, session) in
        all.into_iter().flat_map(|(way, all)| all.iter().map(move |one| (way, one)))
    {
        table.row([
            way.into(),
            session.id.as_str().into(),
            session.name.as_str().into(),
            session.user.as_str().into(),
            words::short_time(session.before_ms as f64).into(),
            words::short_time(session.after_ms as f64).into(),
        ]);
    }
    let is_empty = comparison.most_slower.is_empty() && comparison.most_faster.is_empty();
    if is_empty { String::new() } else { render(&table, console) }
}
