//! `corona load compare`: reports of two sides, as ratios.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use corona::load::{Change, LoadComparison, Report, compare, number};
use serde::Serialize;

use super::show::time;
use corona_terminal::console::{Console, FormArguments, printable};
use corona_terminal::table::{Column, Table};

const EXAMPLES: &str = "\
Example, with three runs on each side:
  corona load churn --address localhost:9090 --output json > before1.json
  ...
  corona load compare --before before*.json --after after*.json

scripts/compare-managers and scripts/compare-commits automate this.
Exit status: 0 compared; 1 a file cannot be read, or there is nothing that
both sides measured; 2 wrong usage.";

/// Compare the reports of two cluster managers, or before and after a change
///
/// Reads reports of --output json. With several runs on a side it compares the
/// medians. RATIO is after divided by before; the last column is the ratio of
/// the 99th percentiles. A ratio above 1 is better for rates and worse for
/// times.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Reports of one side
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    before: Vec<PathBuf>,

    /// Reports of the other side
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    after: Vec<PathBuf>,

    #[command(flatten)]
    form: FormArguments,
}

/// The result as JSON.
#[derive(Serialize)]
struct Compared<'a> {
    before: Side<'a>,
    after: Side<'a>,
    measures: &'a [LoadComparison],
}

/// The reports of one side.
#[derive(Serialize)]
struct Side<'a> {
    scenario: &'a str,
    runs: usize,
    /// Runs in which something was wrong.
    with_errors: usize,
}

impl<'a> Side<'a> {
    fn of(reports: &'a [Report]) -> Side<'a> {
        Side {
            scenario: reports.first().map(|report| report.scenario.as_str()).unwrap_or_default(),
            runs: reports.len(),
            with_errors: reports.iter().filter(|report| !report.errors.is_empty()).count(),
        }
    }
}

/// Reads and compares.
pub(super) fn run(arguments: &Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let before = read_all(&arguments.before)?;
    let after = read_all(&arguments.after)?;
    let compared = compare(&before, &after);
    if compared.is_empty() {
        bail!("there is nothing that both sides measured");
    }
    let result =
        Compared { before: Side::of(&before), after: Side::of(&after), measures: &compared };
    arguments.form.show(console, &result, |console| text(&before, &after, &compared, console))?;
    Ok(ExitCode::SUCCESS)
}

fn read_all(files: &[PathBuf]) -> anyhow::Result<Vec<Report>> {
    files.iter().map(|file| read(file)).collect()
}

fn read(file: &Path) -> anyhow::Result<Report> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} holds no report", file.display()))
}

fn text(
    before: &[Report],
    after: &[Report],
    compared: &[LoadComparison],
    console: &Console<'_>,
) -> String {
    let mut text = String::new();
    for (side, reports) in [("before", before), ("after", after)] {
        let Side { scenario, runs, with_errors } = Side::of(reports);
        let word = if runs == 1 { "run" } else { "runs" };
        text += &format!("{side}: {runs} {word} of {}", printable(scenario));
        text += &match with_errors {
            0 => "\n".to_owned(),
            wrong => format!(", {wrong} WITH ERRORS\n"),
        };
    }
    text.push('\n');
    let mut table = Table::new(&[
        Column::text("WHAT", 12),
        Column::number("PER S"),
        Column::number("AFTER"),
        Column::number("RATIO"),
        Column::number("MEDIAN"),
        Column::number("AFTER"),
        Column::number("RATIO"),
        Column::number("99%"),
    ]);
    for LoadComparison { name, per_second, median_us, percentile_99_us } in compared {
        let rate = |rate: f64| number(rate.round() as u64);
        table.row([
            name.clone().into(),
            rate(per_second.before).into(),
            rate(per_second.after).into(),
            ratio(*per_second).into(),
            time(median_us.before).into(),
            time(median_us.after).into(),
            ratio(*median_us).into(),
            ratio(*percentile_99_us).into(),
        ]);
    }
    text + &table.render(console, false)
}

fn ratio(change: Change) -> String {
    change.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}
