//! `corona what-if`: a cluster's past against other settings.
//!
//! Wiring only: inputs to a workload, changes to settings, runs to a report.

mod input;
mod suggestion;
mod text;

use std::fs;
use std::io::{BufWriter, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, anyhow, ensure};
use clap::{Args, Subcommand};
use corona::config::{Loaded, Lookup, Source, keys};
use corona::model::resources::Dimension;
use corona::what_if::report::{Report, html, words};
use corona::what_if::suggest::span_ms;
use corona::what_if::{Progress, Reading, Run, Setting, Workload, change, file, simulate};

use super::EXIT_FAILED;
use super::arguments::{FoundSource, SourceArguments, create_file};
use super::daemon::usable;
use super::signals::shutdown_signal;
use corona_terminal::console::{Console, printable};
use corona_terminal::progress::{ProgressLine, bar};

const EXAMPLES: &str = "\
Examples:
  How true the simulation is for a recording, with nothing changed:
    corona what-if monday.corec --conf-dir /etc/corona
  The same week with other pools, and a page with plots:
    corona what-if monday.corec --conf-dir /etc/corona --pools new.xml \\
        --report out/
  Three pools files side by side:
    corona what-if monday.corec --conf-dir /etc/corona --compare a.xml b.xml c.xml
  A third more work, and two nodes that fail after an hour for ten minutes:
    corona what-if monday.corec --load 1.33 --fail-nodes 2@1h+10m
  A trace of the Parallel Workloads Archive:
    corona what-if CTC-SP2-1996-3.1-cln.swf.gz --nodes 512

Exit status: 0 done; 1 failed, with one line on stderr, or interrupted; 2 wrong
usage.";

/// Play a cluster's past against other settings, in virtual time
///
/// INPUT is a recording or packet capture, the events that a shadow has kept, the
/// directory of a cluster manager's journal, histories of jobs (a file, or a
/// directory with all below it), a trace in the Standard Workload Format (.swf), or
/// a workload that --save has written; files may be compressed with gzip. With
/// nothing changed the simulation must come out as recorded: the report begins
/// with this check.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    /// The recording, journal, histories, trace or workload
    #[arg(value_name = "INPUT", required = true)]
    input: Option<PathBuf>,

    /// Use this pools file instead of the configured one
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    pools: Option<PathBuf>,

    /// Use these pools files, one after the other
    #[arg(long, value_name = "FILE", num_args = 1..)]
    compare: Vec<PathBuf>,

    /// Use this general scheduling file instead of the configured one
    #[arg(long, value_name = "FILE")]
    general: Option<PathBuf>,

    #[command(flatten)]
    changes: Changes,

    /// Write report.html, report.json and report.txt to this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,

    /// Write the workload to this file and do nothing else; compressed if its
    /// name ends in .gz
    #[arg(long, value_name = "FILE", conflicts_with_all = ["report", "json"])]
    save: Option<PathBuf>,

    /// Overwrite the file of --save if it exists
    #[arg(long, requires = "save")]
    force: bool,

    /// Replace the names of users, pools, sessions and nodes by numbers
    #[arg(long)]
    anonymise: bool,

    #[command(flatten)]
    source: SourceArguments,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    Suggest(suggestion::Arguments),
}

/// Changes of what the cluster was and was asked for.
#[derive(Args, Clone, Debug)]
struct Changes {
    /// Number of nodes: the first ones, or more that are like them; with xCPUS
    /// all have so many CPUs, with xCPUSxMEMORY so much memory, such as 60x16x64g
    #[arg(long, value_name = "N[xCPUS[xMEMORY]]", value_parser = parse_nodes)]
    nodes: Option<Size>,

    /// Count these resources instead of those that the configuration names:
    /// slots, or a list of cpus, memory, disk and network
    #[arg(long, value_name = "LIST")]
    resources: Option<String>,

    /// Spread the nodes evenly over so many racks
    #[arg(long, value_name = "N")]
    racks: Option<NonZeroU32>,

    /// Let sessions come so many times as often, such as 1.3
    #[arg(long, value_name = "FACTOR", value_parser = parse_load)]
    load: Option<f64>,

    /// Let nodes fail at a time since the beginning, for good or for a while;
    /// may be repeated
    ///
    /// NODES is a number, or names with commas: 3@2h, n1,n2@30m+10m
    #[arg(long, value_name = "NODES@TIME[+SPAN]", value_parser = parse_failure)]
    fail_nodes: Vec<Failing>,
}

/// A number of nodes, and what each has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    count: usize,
    cpus: Option<i16>,
    memory_mb: Option<i32>,
}

/// Nodes that fail.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failing {
    which: String,
    at_ms: i64,
    for_ms: Option<i64>,
}

fn parse_load(text: &str) -> Result<f64, String> {
    let factor =
        text.parse().ok().filter(|factor: &f64| *factor > 0.0 && *factor <= change::MOST_LOAD);
    factor.ok_or_else(|| format!("expected a factor above 0, at most {}", change::MOST_LOAD))
}

fn parse_nodes(text: &str) -> Result<Size, String> {
    const EXPECTED: &str =
        "expected a number of nodes, NODESxCPUS or NODESxCPUSxMEMORY such as 60x16x64g";
    let mut parts = text.splitn(3, 'x');
    let count = parts.next().and_then(|count| count.parse().ok());
    let count = count.filter(|count| *count <= change::MOST_NODES).ok_or(EXPECTED)?;
    let cpus = parts.next().map(|cpus| cpus.parse().ok().filter(|cpus| *cpus > 0).ok_or(EXPECTED));
    let memory_mb = parts.next().map(|memory| megabytes(memory).ok_or(EXPECTED));
    Ok(Size { count, cpus: cpus.transpose()?, memory_mb: memory_mb.transpose()? })
}

/// Memory such as `512m`, `64g` or `1t`.
fn megabytes(text: &str) -> Option<i32> {
    let units = [('m', 1), ('g', 1_024), ('t', 1_024 * 1_024)];
    let (number, factor) =
        units.into_iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    number.parse::<i32>().ok()?.checked_mul(factor).filter(|memory_mb| *memory_mb > 0)
}

fn parse_failure(text: &str) -> Result<Failing, String> {
    const EXPECTED: &str = "expected NODES@TIME or NODES@TIME+SPAN, such as 3@2h or n1@30m+10m";
    let (which, time) = text.rsplit_once('@').ok_or(EXPECTED)?;
    let (at, span) = match time.split_once('+') {
        Some((at, span)) => (at, Some(span)),
        None => (time, None),
    };
    let for_ms = span.map(|span| span_ms(span).ok_or(EXPECTED)).transpose()?;
    let at_ms = span_ms(at).ok_or(EXPECTED)?;
    if which.is_empty() {
        return Err(EXPECTED.to_owned());
    }
    Ok(Failing { which: which.to_owned(), at_ms, for_ms })
}

/// Runs the simulations and reports.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    if let Some(Command::Suggest(arguments)) = arguments.command {
        return suggestion::run(arguments, console);
    }
    let path = arguments.input.clone().context("no input is named")?;
    let source = arguments.source.clone().found()?;
    let base = settings(&source, &[])?;
    let counting = settings(&source, &arguments.changes.counted())?;
    let mut reading = input::read(&path, &counting)?;
    if arguments.anonymise {
        change::anonymise(&mut reading.workload);
    }
    if let Some(to) = &arguments.save {
        save(&reading.workload, to, arguments.force)?;
        notes(&reading, console);
        return Ok(ExitCode::SUCCESS);
    }
    let (changed, of_workload) = changed(&reading.workload, &arguments.changes)?;
    let mut changes = changed_files(&arguments);
    changes.extend(of_workload);
    let mut plans = vec![(&reading.workload, setting("as it was", base))];
    for (name, overrides) in alternatives(&arguments)? {
        let loaded = settings(&source, &overrides)?;
        plans.push((&changed, setting(&name, loaded)));
    }
    let stop = stop_on_signals()?;
    let runs = run_all(&plans, &stop);
    let interrupted = runs.iter().any(|run| run.stopped_at_ms.is_some());
    let mut runs = runs.into_iter();
    let first = runs.next().context("no run")?;
    let others = plans.iter().skip(1).map(|(workload, _)| *workload).zip(runs).collect();
    let report = Report::new(&reading, first, others, changes);
    publish(&report, &arguments, console)?;
    if interrupted {
        console.complain("corona: interrupted: the report has what was simulated by then\n");
        return Ok(ExitCode::from(EXIT_FAILED));
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(source: &FoundSource, more: &[(String, String)]) -> anyhow::Result<Loaded> {
    let overrides = [source.overrides.clone(), more.to_vec()].concat();
    let conf_dir = source.conf_dir.as_deref();
    usable(Source { conf_dir, overrides: &overrides, lookup: Lookup::AlsoByName }.load())
}

fn setting(name: &str, loaded: Loaded) -> Setting {
    Setting { name: name.to_owned(), settings: loaded.settings.engine }
}

/// Keys and values that override the configuration.
type Overrides = Vec<(String, String)>;

/// The settings to compare: names, and what overrides the configuration.
fn alternatives(arguments: &Arguments) -> anyhow::Result<Vec<(String, Overrides)>> {
    let absolute = |path: &Path| {
        let path =
            fs::canonicalize(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok::<_, anyhow::Error>(path.display().to_string())
    };
    let mut always = arguments.changes.counted();
    if let Some(path) = &arguments.general {
        always.push((keys::GENERAL_FILE.name.to_owned(), absolute(path)?));
    }
    let files: Vec<&PathBuf> = arguments.pools.iter().chain(&arguments.compare).collect();
    let mut all = Vec::new();
    for path in &files {
        let mut overrides = always.clone();
        overrides.push((keys::POOLS_FILE.name.to_owned(), absolute(path)?));
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        all.push((name, overrides));
    }
    let Changes { nodes, racks, load, fail_nodes, .. } = &arguments.changes;
    let others = nodes.is_some() || racks.is_some() || load.is_some() || !fail_nodes.is_empty();
    if files.is_empty() && (!always.is_empty() || others) {
        all.push(("changed".to_owned(), always));
    }
    Ok(all)
}

impl Changes {
    /// The resources that are counted, as what overrides the configuration.
    fn counted(&self) -> Overrides {
        let counted = self.resources.iter();
        counted.map(|list| (keys::RESOURCES.name.to_owned(), list.clone())).collect()
    }
}

/// The files that take the place of configured ones, as sentences.
fn changed_files(arguments: &Arguments) -> Vec<String> {
    let pools = arguments.pools.iter().chain(&arguments.compare);
    let pools = pools.map(|path| format!("Pools file {}.", path.display()));
    let general = arguments.general.iter();
    pools.chain(general.map(|path| format!("General file {}.", path.display()))).collect()
}

/// The workload with its changes, and these as sentences.
fn changed(workload: &Workload, arguments: &Changes) -> anyhow::Result<(Workload, Vec<String>)> {
    let (mut changed, mut changes) = (workload.clone(), Vec::new());
    if let Some(list) = &arguments.resources {
        changes.push(format!("{list} counted."));
    }
    if let Some(Size { count, cpus, memory_mb }) = arguments.nodes {
        ensure!(
            !changed.nodes.is_empty() || count == 0,
            "the input has no nodes to take as models"
        );
        change::resize(&mut changed, count);
        changes.push(format!("{count} nodes instead of {}.", workload.nodes.len()));
        if let Some(cpus) = cpus {
            changed.nodes.iter_mut().for_each(|node| node.cpus = cpus);
            changes.push(format!("All nodes have {cpus} CPUs."));
        }
        if let Some(memory_mb) = memory_mb {
            changed.nodes.iter_mut().for_each(|node| node.memory_mb = Some(memory_mb));
            changes.push(format!(
                "All nodes have {}.",
                Dimension::Memory.brief(memory_mb.unsigned_abs().into())
            ));
        }
    }
    if let Some(count) = arguments.racks {
        change::spread(&mut changed, count);
        changes.push(format!("Nodes are spread over {count} racks."));
    }
    if let Some(factor) = arguments.load {
        change::load(&mut changed, factor);
        changes.push(format!("{factor} times the sessions."));
    }
    for Failing { which, at_ms, for_ms } in &arguments.fail_nodes {
        change::fail(&mut changed, which, *at_ms, *for_ms).map_err(|node| {
            anyhow!("--fail-nodes: no node {} is in the input", printable(&node))
        })?;
        let at = words::time(*at_ms as f64);
        changes.push(match for_ms {
            Some(span) => {
                format!("Nodes {which} fail after {at} for {}.", words::time(*span as f64))
            }
            None => format!("Nodes {which} fail after {at}."),
        });
    }
    Ok((changed, changes))
}

fn save(workload: &Workload, to: &Path, force: bool) -> anyhow::Result<()> {
    let context = || format!("cannot write {}", to.display());
    let out = BufWriter::new(create_file(to, force).with_context(context)?);
    if to.extension().is_some_and(|extension| extension == "gz") {
        let mut packed = flate2::write::GzEncoder::new(out, flate2::Compression::default());
        file::write(workload, &mut packed).with_context(context)?;
        return packed.finish().and_then(|mut out| out.flush()).with_context(context);
    }
    file::write(workload, out).with_context(context)
}

fn notes(reading: &Reading, console: &mut Console<'_>) {
    for one in &reading.left_out {
        console.complain(&format!("left out: {one}\n"));
    }
}

/// A flag that SIGINT and SIGTERM set.
fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signal = {
        let _inside = runtime.enter();
        shutdown_signal()?
    };
    let flag = stop.clone();
    thread::spawn(move || {
        runtime.block_on(signal);
        flag.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}

/// Runs all plans, on all processors.
fn run_all(plans: &[(&Workload, Setting)], stop: &AtomicBool) -> Vec<Run> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(plans.len());
    let (next, meter) = (AtomicUsize::new(0), Mutex::new(Meter::new(plans.len())));
    let results: Vec<Mutex<Option<Run>>> = plans.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some((workload, setting)) = plans.get(place) else { return };
                    let run = simulate(workload, setting, &mut |progress| {
                        meter.lock().unwrap_or_else(PoisonError::into_inner).show(place, progress);
                        !stop.load(Ordering::Relaxed)
                    });
                    *results[place].lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
                }
            });
        }
    });
    let results = results.into_iter();
    results.filter_map(|run| run.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// The progress of runs, as a line.
struct Meter {
    runs: Vec<Progress>,
    line: ProgressLine,
}

impl Meter {
    fn new(runs: usize) -> Meter {
        Meter { runs: vec![Progress::default(); runs], line: ProgressLine::default() }
    }

    fn show(&mut self, place: usize, progress: Progress) {
        self.runs[place] = progress;
        self.line.show(|| {
            let sum = |of: fn(&Progress) -> usize| self.runs.iter().map(of).sum::<usize>() as u64;
            let (ended, all) = (sum(|one| one.ended), sum(|one| one.tasks));
            let count = format!("{} of {} tasks", words::number(ended), words::number(all));
            bar(ended, all, &count)
        });
    }
}

/// Prints the report, or writes its files.
fn publish(
    report: &Report,
    arguments: &Arguments,
    console: &mut Console<'_>,
) -> anyhow::Result<()> {
    if let Some(dir) = &arguments.report {
        let write = |name: &str, contents: &str| {
            let path = dir.join(name);
            fs::write(&path, contents).with_context(|| format!("cannot write {}", path.display()))
        };
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        write("report.html", &html(report))?;
        write("report.json", &(serde_json::to_string_pretty(report)? + "\n"))?;
        write("report.txt", &text::report(report, console))?;
    }
    if arguments.json {
        return console.print_json(report);
    }
    Ok(console.print(&text::report(report, console))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_a_number_and_perhaps_cpus_and_memory() {
        let size = |count, cpus, memory_mb| Ok(Size { count, cpus, memory_mb });
        assert_eq!(parse_nodes("60"), size(60, None, None));
        assert_eq!(parse_nodes("60x16"), size(60, Some(16), None));
        assert_eq!(parse_nodes("60x16x64g"), size(60, Some(16), Some(65_536)));
        assert_eq!(parse_nodes("1x1x512m"), size(1, Some(1), Some(512)));
        for wrong in
            ["", "x", "60x", "60x0", "60x16x", "60x16x0g", "60x16x64", "60x16x4000t", "1x1x1gx1"]
        {
            assert!(parse_nodes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn failures_have_nodes_a_time_and_perhaps_a_span() {
        let failing =
            |which: &str, at_ms, for_ms| Ok(Failing { which: which.to_owned(), at_ms, for_ms });
        assert_eq!(parse_failure("3@2h"), failing("3", 7_200_000, None));
        assert_eq!(parse_failure("n1,n2@30m+10s"), failing("n1,n2", 1_800_000, Some(10_000)));
        for wrong in ["", "3", "@2h", "3@", "3@2", "3@2h+", "3@-2h", "3@2x", "3@99999999999999999d"]
        {
            assert!(parse_failure(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_load("1.3"), Ok(1.3));
        assert!(["0", "-1", "NaN", "101", "x"].iter().all(|wrong| parse_load(wrong).is_err()));
    }
}
