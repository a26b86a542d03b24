//! `corona journal`: looks at the journal of a cluster manager, and repairs a damaged one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use corona::cluster_manager::JournalRecord;
use corona::journal::{self, DiskStorage, Entry};
use serde::Serialize;

use super::EXIT_FAILED;
use super::arguments::SourceArguments;
use super::daemon::usable;
use super::times::Date;
use corona_terminal::console::{Console, Form, OutputArguments, printable};
use corona_terminal::table::{Cell, Column, Table, Tone, number};

const EXAMPLES: &str = "\
Examples:
  Is the journal of a stopped cluster manager whole?
    corona journal check --conf-dir /etc/hadoop/conf
  The last inputs before a crash:
    corona journal show /var/lib/corona/cm.state.journal --last 50
  Go back to the state before the damage:
    corona journal repair /var/lib/corona/cm.state.journal

The directory is DIR, else corona.cm.journal.dir of the configuration.
Exit status: 0 done; 1 the journal is damaged or cannot be read, with one line
on stderr; 2 wrong usage.";

/// Look at the journal of a cluster manager, or repair it
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Check every file of the journal; nothing is changed
    ///
    /// Of a running cluster manager the last record may be incomplete.
    Check(JournalArguments),
    Show(ShowArguments),
    /// Set damaged records and everything after them aside
    ///
    /// The state is then the one before the damage. Files that are set aside stay
    /// in the directory and get names that end in .damaged. The cluster manager
    /// must be stopped. A journal that is whole stays as it is.
    Repair(JournalArguments),
}

/// List the last records with their time, input, and session or node
#[derive(Args, Clone, Debug)]
struct ShowArguments {
    /// Maximum number of records
    #[arg(long, value_name = "N", default_value_t = 20)]
    last: usize,

    #[command(flatten)]
    journal: JournalArguments,
}

/// Where the journal is, and how the result is shown.
#[derive(Args, Clone, Debug)]
struct JournalArguments {
    /// Directory of the journal
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,

    /// The same, as an option
    #[arg(long, value_name = "DIR", conflicts_with = "directory")]
    dir: Option<PathBuf>,

    #[command(flatten)]
    source: SourceArguments,

    #[command(flatten)]
    output: OutputArguments,
}

impl JournalArguments {
    fn directory(self) -> anyhow::Result<PathBuf> {
        if let Some(directory) = self.directory.or(self.dir) {
            return Ok(directory);
        }
        let source = self.source.found()?;
        let loaded = usable(source.of_service().load())?;
        loaded
            .settings
            .journal
            .directory
            .context("no journal is configured: corona.cm.journal.dir is none; name a directory")
    }
}

/// Runs one of the commands.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Check(arguments) => check(arguments, console),
        Command::Show(arguments) => show(arguments, console),
        Command::Repair(arguments) => repair(arguments, console),
    }
}

/// The contents of a journal's files.
#[derive(Serialize)]
struct Checked {
    directory: String,
    whole: bool,
    /// Why it cannot be used as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    files: Vec<CheckedFile>,
    /// The number of the last record that a start would recover.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_record: Option<u64>,
    /// The record up to which everything was stored, as the marker beside the directory says.
    #[serde(skip_serializing_if = "Option::is_none")]
    marker_record: Option<u64>,
}

#[derive(Serialize)]
struct CheckedFile {
    name: String,
    bytes: u64,
    /// Left out for images.
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<u64>,
    /// Bytes behind the last whole record.
    bytes_behind: u64,
    whole: bool,
}

fn check(arguments: JournalArguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let output = arguments.output;
    let directory = arguments.directory()?;
    let report = journal::check(&DiskStorage::look(&directory)?)?;
    let image = |(number, bytes, whole): &(u64, u64, bool)| CheckedFile {
        name: journal::image_name(*number),
        bytes: *bytes,
        records: None,
        bytes_behind: 0,
        whole: *whole,
    };
    let segment = |segment: &journal::SegmentReport| CheckedFile {
        name: segment.name.clone(),
        bytes: segment.bytes,
        records: Some(segment.records),
        bytes_behind: segment.bytes_behind,
        whole: segment.problem.is_none(),
    };
    let files = report.images.iter().map(image).chain(report.segments.iter().map(segment));
    let (last_record, problem) = match &report.outcome {
        Some(Ok(recovered)) => (Some(recovered.last), None),
        Some(Err(error)) => (None, Some(error.to_string())),
        None => (None, None),
    };
    let checked = Checked {
        directory: directory.display().to_string(),
        whole: problem.is_none(),
        files: files.collect(),
        problem,
        last_record,
        marker_record: report.marker,
    };
    if checked.files.is_empty() && output.output == Form::Table {
        console.complain(&format!("corona: {}\n", printable(&no_files(&directory))));
    }
    output.show(console, &checked, |console| checked.text(console, output.wide))?;
    let Some(problem) = &checked.problem else { return Ok(ExitCode::SUCCESS) };
    console.complain(&format!(
        "corona: {}; 'corona journal repair' goes back to the state before the damage\n",
        printable(problem)
    ));
    Ok(ExitCode::from(EXIT_FAILED))
}

impl Checked {
    fn text(&self, console: &Console<'_>, wide: bool) -> String {
        if self.files.is_empty() {
            return String::new();
        }
        let mut table = Table::new(&[
            Column::path("FILE", 20),
            Column::number("RECORDS"),
            Column::number("BYTES"),
            Column::text("STATE", 6),
        ]);
        for file in &self.files {
            let state = match (file.whole, file.bytes_behind) {
                (false, _) => Cell::new("damaged", Tone::Bad),
                (true, 0) => "whole".into(),
                (true, bytes) => Cell::new(format!("{bytes} torn bytes"), Tone::Notable),
            };
            let name = file.name.as_str().into();
            table.row([name, number(file.records), number(Some(file.bytes)), state]);
        }
        let last = self.last_record.map(|last| format!("A start resumes after record {last}.\n"));
        table.render(console, wide) + &last.unwrap_or_default()
    }
}

/// The note about a directory without files of a journal.
fn no_files(directory: &Path) -> String {
    let inner = directory.join("journal");
    let hint = match inner.is_dir() {
        true => format!("; the journal may be {}", inner.display()),
        false => String::new(),
    };
    format!("{} has no files of a journal{hint}", directory.display())
}

fn show(arguments: ShowArguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let output = arguments.journal.output;
    let directory = arguments.journal.directory()?;
    let mut records = std::collections::VecDeque::new();
    let shown = journal::show(&DiskStorage::look(&directory)?, |entry| {
        if let Entry::Record { number, bytes } = entry {
            records.push_back((number, bytes.to_vec()));
            if records.len() > arguments.last {
                records.pop_front();
            }
        }
        Ok(())
    });
    let read = records.iter().map(|(number, bytes)| {
        JournalRecord::read(*number, bytes).with_context(|| format!("record {number}"))
    });
    let records = read.collect::<anyhow::Result<Vec<_>>>()?;
    output.show(console, &records, |console| {
        let mut table = Table::new(&[
            Column::number("RECORD"),
            Column::whole("TIME"),
            Column::text("INPUT", 12),
            Column::text("SESSION OR NODE", 15),
            Column::number("BYTES"),
        ]);
        for record in &records {
            let time = record.time_ms.map(|ms| Date(ms).to_string()).unwrap_or_default();
            table.row([
                number(Some(record.number)),
                time.into(),
                record.input.clone().into(),
                record.subject.clone().unwrap_or_default().into(),
                number(Some(record.bytes)),
            ]);
        }
        table.render(console, output.wide)
    })?;
    shown?;
    Ok(ExitCode::SUCCESS)
}

/// The result of a repair.
#[derive(Serialize)]
struct Repaired {
    directory: String,
    last_record: u64,
    set_aside: Vec<SetAside>,
}

#[derive(Serialize)]
struct SetAside {
    file: String,
    name: String,
}

fn repair(arguments: JournalArguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let output = arguments.output;
    let directory = arguments.directory()?;
    DiskStorage::look(&directory)
        .with_context(|| format!("there is no journal in {}", directory.display()))?;
    let journal::Repaired { last, set_aside } = journal::repair(&DiskStorage::open(&directory)?)?;
    let set_aside = set_aside.into_iter().map(|(file, name)| SetAside { file, name }).collect();
    let repaired =
        Repaired { directory: directory.display().to_string(), last_record: last, set_aside };
    output.show(console, &repaired, |_| {
        let mut text = String::new();
        for SetAside { file, name } in &repaired.set_aside {
            text.push_str(&format!("{file} is now {name}\n"));
        }
        if repaired.set_aside.is_empty() {
            text.push_str("The journal is whole; nothing was changed.\n");
        }
        text + &format!("A start resumes after record {last}.\n")
    })?;
    Ok(ExitCode::SUCCESS)
}
