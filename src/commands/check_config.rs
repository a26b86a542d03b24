//! `corona check-config`: all problems of a configuration, and its values.
//!
//! Reading and checking belong to the crate `config`; this file prints the
//! results.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use corona::config::{Checked, InForce, Origin, Problem, ProblemKind, Severity, SimilarKey};
use serde::Serialize;

use super::EXIT_FAILED;
use super::arguments::SourceArguments;
use corona_terminal::console::{Console, Form, OutputArguments, printable};
use corona_terminal::counted;
use corona_terminal::table::{Cell, Column, Table, Tone};

const EXAMPLES: &str = "\
Reads core-site.xml, mapred-site.xml with their includes, the general
scheduling file, the pools file, the host files and the rack script, and checks
the keys of all daemons but the gateway, directories and the names of hosts on this machine.
Relative paths start at the working directory: run it where the daemon runs.

Examples:
  Check changed files before deploying them:
    corona check-config --conf-dir /etc/hadoop/conf
  Find out where a value is set:
    corona check-config --conf-dir /etc/hadoop/conf --show | grep expiry

Exit status: 0 the daemons start with it, there may be warnings;
1 one does not; 2 wrong usage.";

/// Report the problems of a configuration
///
/// Each problem is one line: file and line, key or element, the value, and the expected form.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: SourceArguments,

    /// Also list every key with its current value and where it is set
    #[arg(long)]
    show: bool,

    #[command(flatten)]
    output: OutputArguments,
}

/// Reads the configuration and reports.
///
/// # Errors
/// When the directory does not exist.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let source = arguments.source.found()?;
    let checked = source.of_service().check();
    let report = Report::of(&checked, arguments.show);
    match arguments.output.output {
        Form::Json => console.print_json(&report)?,
        Form::Table => {
            let mut text = lines(&checked, &report, console.colours);
            if arguments.show {
                text.push('\n');
                let values = values(&checked);
                // Padded to the longest value, a line would be unreadable.
                text.push_str(&match console.width.is_some() && !arguments.output.wide {
                    true => values.render(console, false),
                    false => values.render_unaligned(console),
                });
            }
            console.print(&text)?;
        }
    }
    Ok(if report.usable { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
}

/// The result as JSON.
#[derive(Serialize)]
struct Report {
    /// Whether a cluster manager starts with it.
    usable: bool,
    errors: usize,
    warnings: usize,
    problems: Vec<ProblemReport>,
    /// Present only with `--show`.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_force: Option<Vec<Value>>,
}

#[derive(Serialize)]
struct ProblemReport {
    /// `error` or `warning`.
    severity: &'static str,
    #[serde(flatten)]
    place: Location,
    /// The key, or the element with the names around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// The problem, as a sentence.
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<String>,
    /// The known key or element that is spelled like this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    did_you_mean: Option<String>,
}

/// Where a problem is, or a value comes from.
#[derive(Serialize)]
struct Location {
    /// `file`, `command line` or `default`.
    origin: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
struct Value {
    key: &'static str,
    value: String,
    #[serde(flatten)]
    place: Location,
}

impl Report {
    fn of(checked: &Checked, show: bool) -> Report {
        let count = |severity| checked.problems.iter().filter(|p| p.severity == severity).count();
        let errors = count(Severity::Error);
        Report {
            usable: errors == 0,
            errors,
            warnings: count(Severity::Warning),
            problems: checked.problems.iter().map(ProblemReport::from).collect(),
            in_force: show.then(|| checked.in_force.iter().map(Value::from).collect()),
        }
    }
}

impl From<&Problem> for ProblemReport {
    fn from(problem: &Problem) -> ProblemReport {
        let (value, expected) = match &problem.kind {
            ProblemKind::Value { value, expected, .. } => {
                (Some(value.to_string()), Some(expected.to_string()))
            }
            ProblemKind::Replaced { value, .. } => (Some(value.to_string()), None),
            ProblemKind::UndefinedVariable { value, .. } => (Some(value.clone()), None),
            ProblemKind::Required { expected } => (None, Some(expected.clone())),
            ProblemKind::Absent { path, .. } => (Some(path.to_string()), None),
            _ => (None, None),
        };
        let did_you_mean = match &problem.kind {
            ProblemKind::UnknownElement { meant, .. } => meant.as_deref().map(str::to_owned),
            ProblemKind::UnknownKey { meant } => {
                meant.as_ref().map(|SimilarKey { name, .. }| (*name).to_owned())
            }
            _ => None,
        };
        ProblemReport {
            severity: severity_name(problem.severity),
            place: (&problem.origin).into(),
            subject: problem.subject.clone(),
            message: problem.kind.to_string(),
            value,
            expected,
            did_you_mean,
        }
    }
}

impl From<&Origin> for Location {
    fn from(origin: &Origin) -> Location {
        let (origin, file, line) = match origin {
            Origin::File { path, line } => ("file", Some(path.display().to_string()), *line),
            Origin::CommandLine => ("command line", None, None),
            Origin::Default => ("default", None, None),
        };
        Location { origin, file, line }
    }
}

impl From<&InForce> for Value {
    fn from(in_force: &InForce) -> Value {
        let InForce { key, value, origin } = in_force;
        Value { key, value: value.clone(), place: origin.into() }
    }
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// A line for each problem, and the counts.
fn lines(checked: &Checked, report: &Report, colours: bool) -> String {
    let mut text = String::new();
    for problem in &checked.problems {
        let tone = match problem.severity {
            Severity::Error => Tone::Bad,
            Severity::Warning => Tone::Notable,
        };
        let severity = tone.paint(severity_name(problem.severity), colours);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{severity}: {}", printable(&problem.to_string()));
    }
    let count = |count: usize, what: &str| counted(count as u64, what);
    let _ = match (report.errors, report.warnings) {
        (0, 0) => writeln!(text, "No problems."),
        (0, warnings) => {
            writeln!(text, "{}; the configuration can be used.", count(warnings, "warning"))
        }
        (errors, warnings) => writeln!(
            text,
            "{}, {}; the configuration cannot be used.",
            count(errors, "error"),
            count(warnings, "warning")
        ),
    };
    text
}

fn values(checked: &Checked) -> Table {
    let mut table =
        Table::new(&[Column::whole("KEY"), Column::text("VALUE", 12), Column::path("SET IN", 20)]);
    for InForce { key, value, origin } in &checked.in_force {
        let tone = match origin {
            Origin::Default => Tone::Plain,
            _ => Tone::Strong,
        };
        table.row([(*key).into(), Cell::new(value.as_str(), tone), origin.to_string().into()]);
    }
    table
}
