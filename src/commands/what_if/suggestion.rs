//! `corona what-if suggest`: a search for settings that reach a goal.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use corona::what_if::report::{Check, Report, words};
use corona::what_if::suggest::{Goal, Knob, Suggestion, suggest, usual_knobs};
use corona::what_if::{Run, Setting, Workload};
use serde::Serialize;

use super::text::render;
use super::{Changes, EXIT_FAILED, changed, input, run_all, settings, stop_on_signals, text};
use crate::commands::arguments::SourceArguments;
use corona_terminal::console::Console;
use corona_terminal::table::{Column, Table, Tone};

const EXAMPLES: &str = "\
Examples:
  Which minimum or weight keeps the analysts' waits short?
    corona what-if suggest monday.corec --conf-dir /etc/corona \\
        --goal 'p95 of ads.* < 60s'
  The same with a third more work, and other knobs:
    corona what-if suggest monday.corec --conf-dir /etc/corona --load 1.33 \\
        --goal 'p95 of ads.* < 60s' --knob min:ads.hourly --knob nodeWait

Exit status: 0 the goals are reached; 1 failed, with one line on stderr,
interrupted, or no settings that were tried reach the goals; 2 wrong usage.";

/// Search settings that reach a goal, among a few knobs
///
/// Each knob has a few values. The search turns one knob at a time, keeps what
/// helps most, and goes on until nothing helps any more or --tries are used up.
/// All that it tried is reported.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The recording, journal, histories, trace or workload
    #[arg(value_name = "INPUT")]
    input: PathBuf,

    /// A time of waits to stay below: mean, median, p95, p99 or longest, of
    /// pools, such as 'p95 of ads.* < 60s'; may be repeated
    #[arg(long, value_name = "GOAL", required = true)]
    goal: Vec<Goal>,

    /// What may be changed: min:GROUP.POOL, weight:GROUP.POOL,
    /// minRuntime:GROUP.POOL, nodeWait or rackWait; may be repeated
    ///
    /// By default minimum and weight of the pools of the goals, and the waits
    /// for locality if tasks prefer hosts.
    #[arg(long, value_name = "KNOB")]
    knob: Vec<Knob>,

    /// Settings to try at most
    #[arg(long, value_name = "N", default_value_t = 100)]
    tries: usize,

    #[command(flatten)]
    changes: Changes,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    source: SourceArguments,
}

/// The result as JSON.
#[derive(Serialize)]
struct Found<'a> {
    name: &'a str,
    changes: &'a [String],
    check: &'a Check,
    assumptions: &'a [String],
    left_out: &'a [String],
    #[serde(flatten)]
    suggestion: &'a Suggestion,
}

/// Searches and reports.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let source = arguments.source.clone().found()?;
    let base = settings(&source, &[])?;
    let counting = settings(&source, &arguments.changes.counted())?;
    let reading = input::read(&arguments.input, &counting)?;
    let (before, present) = (base.settings.engine, counting.settings.engine);
    let (workload, changes) = changed(&reading.workload, &arguments.changes)?;
    let stop = stop_on_signals()?;
    let plan = |workload, settings| (workload, Setting { name: "as it was".to_owned(), settings });
    let mut plans = vec![plan(&reading.workload, before)];
    if !changes.is_empty() {
        plans.push(plan(&workload, present.clone()));
    }
    let mut runs = run_all(&plans, &stop);
    ensure!(runs.iter().all(|run| run.stopped_at_ms.is_none()), "interrupted");
    let from = runs.pop().context("no run")?;
    let is_named = |goal: &Goal| from.pools.iter().any(|pool| goal.matches(&pool.name));
    for goal in &arguments.goal {
        ensure!(is_named(goal), "no pool of the input fits {}", goal.pools);
    }
    let knobs = match arguments.knob.is_empty() {
        true => usual_knobs(&workload, &from, &arguments.goal),
        false => arguments.knob.clone(),
    };
    let play = &mut |all: Vec<_>| played(&workload, all, &stop);
    let wanted = (&arguments.goal[..], &knobs[..]);
    let suggestion = suggest(&present, &from, wanted, arguments.tries, play);
    // What shows how true it is has nothing changed.
    let report = match runs.pop() {
        Some(first) => Report::new(&reading, first, vec![(&workload, from)], changes),
        None => Report::new(&reading, from, vec![], changes),
    };
    if arguments.json {
        console.print_json(&Found {
            name: &report.name,
            changes: &report.changes,
            check: &report.check,
            assumptions: &report.assumptions,
            left_out: &report.left_out,
            suggestion: &suggestion,
        })?;
    } else {
        console.print(&whole_text(&report, &suggestion, console))?;
    }
    if suggestion.interrupted {
        console.complain("corona: interrupted: the report has what was tried by then\n");
    }
    let reached = suggestion.trials.get(suggestion.best).is_some_and(|best| best.reached);
    Ok(match reached && !suggestion.interrupted {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXIT_FAILED),
    })
}

/// The runs of these settings that came to their end.
fn played(
    workload: &Workload,
    all: Vec<corona::model::settings::Settings>,
    stop: &std::sync::atomic::AtomicBool,
) -> Vec<Run> {
    let named =
        all.into_iter().map(|settings| (workload, Setting { name: "tried".to_owned(), settings }));
    let plans: Vec<_> = named.collect();
    run_all(&plans, stop).into_iter().take_while(|run| run.stopped_at_ms.is_none()).collect()
}

/// Rows of the table of what was tried.
const ROWS: usize = 60;

fn whole_text(report: &Report, found: &Suggestion, console: &Console<'_>) -> String {
    let line = |text: &str, indent: &str| text::line(text, indent, console);
    let mut all = text::head(report, console);
    all += "\n";
    for goal in &found.goals {
        all += &line(&format!("Goal: {goal}"), "  ");
    }
    all += &line(&format!("Knobs: {}", found.knobs.join(", ")), "  ");
    let tried = found.trials.len();
    let reached = found.trials.iter().filter(|trial| trial.reached).count();
    all += &line(
        &format!(
            "{tried} of {} possible settings were tried{}; {reached} of them reach the goals.",
            words::number(found.possible as u64),
            if found.exhausted { ", and more may not be (--tries)" } else { "" },
        ),
        "  ",
    );
    all += "\n";
    if let Some(best) = found.trials.get(found.best) {
        all += match (best.reached, best.changes.is_empty()) {
            (true, true) => "The present settings reach the goals.\n",
            (true, false) => "Reached, at the least cost to others among those tried, by\n",
            (false, true) => {
                "Not reached. Nothing that was tried comes nearer than the present settings.\n"
            }
            (false, false) => "Not reached. The nearest is\n",
        };
        for change in &best.changes {
            all += &line(&format!("  {change}"), "    ");
        }
    }
    all += "\n";
    all += &trials(found, console);
    all += &line(
        "OTHERS: by how much longer requests of all other pools wait on average. The search turns one knob at a \
         time and knows a few values of each, so other settings may be better.",
        "",
    );
    all + &text::tail(report, console)
}

fn trials(found: &Suggestion, console: &Console<'_>) -> String {
    let mut columns = vec![Column::number(""), Column::whole("GOAL")];
    columns.extend(found.goals.iter().map(|_| Column::number("TIME")));
    columns.extend([Column::number("OTHERS"), Column::number("LOST"), Column::text("CHANGES", 12)]);
    let mut table = Table::new(&columns);
    for (place, trial) in found.trials.iter().enumerate().take(ROWS) {
        let tone = if place == found.best { Tone::Strong } else { Tone::Plain };
        let cell = |text: String| corona_terminal::table::Cell::new(text, tone);
        let reached = if trial.reached { "reached" } else { "missed" };
        let mut row = vec![cell((place + 1).to_string()), cell(reached.to_owned())];
        row.extend(trial.times_ms.iter().map(|ms| match *ms >= f64::from(u32::MAX) {
            true => cell("never".to_owned()),
            false => cell(words::short_time(*ms)),
        }));
        row.push(cell(format!("{:+.1} %", trial.others * 100.0)));
        row.push(cell(words::short_time(trial.lost_ms as f64)));
        row.push(cell(match trial.changes.is_empty() {
            true => "nothing".to_owned(),
            false => trial.changes.join(" "),
        }));
        table.row(row);
    }
    let more = found.trials.len().saturating_sub(ROWS);
    let rest = if more > 0 { format!("{more} more are in the JSON\n") } else { String::new() };
    render(&table, console) + &rest
}
