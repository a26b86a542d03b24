//! `corona simulate`: runs seeded random clusters around the engine.
//!
//! Wiring only: which seeds, on how many threads, and how the result is shown.

mod jobs;
mod seeds;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use corona_simulation::{self as simulation, Digest, Failure, History, Plan, Summary};
use serde::Serialize;

use self::seeds::Seeds;
use corona_terminal::console::{Console, FormArguments, TextForm};
use corona_terminal::counted;
use corona_terminal::progress::{bar, clear_line, write_stderr};

const EXAMPLES: &str = "\
Examples:
  One run:
    corona simulate --seed 7 --steps 10000
  The simulations that every change must pass:
    corona simulate --seed 1 --seeds 1000 --steps 10000
  Save the inputs of a failing run, and replay them:
    corona simulate --seed 7 --steps 10000 --save inputs.jsonl
    corona simulate --replay inputs.jsonl
  Check that a change of the scheduler changes no decision:
    corona simulate --seeds 100 --digest >before.txt
    corona simulate --seeds 100 --compare before.txt
  Whole jobs on a cluster where nodes die, hang and lie:
    corona simulate --with-jobs --seeds 1000

Exit status: 0 all rules held; 1 a rule was broken, with the command that
repeats it and the inputs up to there, or a digest differs; 2 wrong usage.";

/// Run simulated clusters around the scheduler and check that its rules hold
///
/// Nodes join, die, change and report wrong numbers; sessions request, release,
/// repeat calls and vanish; settings change; time jumps. The seed determines
/// everything. The command ends at the first seed that fails, shows how to
/// repeat it with the fewest steps, and prints the inputs, one per line.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Number of inputs in each run
    #[arg(long, value_name = "M", default_value_t = 10_000)]
    steps: u64,

    /// Number of runs, with consecutive seeds
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    seeds: u64,

    /// Number of concurrent runs [default: one for each processor]
    #[arg(long, value_name = "COUNT")]
    jobs: Option<NonZeroUsize>,

    /// Write the inputs of a failing run to a file instead of stdout
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// Replay saved inputs instead of a seed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "seeds", "steps", "save"])]
    replay: Option<PathBuf>,

    /// Print a digest of each run's inputs and outcomes, instead of a summary
    #[arg(long, conflicts_with = "replay")]
    digest: bool,

    /// Compare each run's digest with those in a file that --digest has printed
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    compare: Option<PathBuf>,

    /// Simulate jobs as well, each decided by the job engine; runs end by themselves
    #[arg(long, conflicts_with_all = ["steps", "replay", "digest", "compare"])]
    with_jobs: bool,

    /// Put the groups into random trees of queues with rules, and change them while sessions run
    #[arg(long, conflicts_with = "with_jobs")]
    trees: bool,

    /// Count random resources beside slots, and change that while sessions run
    #[arg(long)]
    resources: bool,

    #[command(flatten)]
    form: FormArguments,
}

impl Arguments {
    fn wants_digests(&self) -> bool {
        self.digest || self.compare.is_some()
    }
}

/// Runs the simulations.
///
/// # Errors
/// When a rule is violated in a run, a digest differs, or a file cannot be read or written.
pub fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<()> {
    let form = arguments.form.output;
    if arguments.with_jobs {
        let Arguments { seed: first, seeds: count, jobs: threads, .. } = arguments;
        let seeds = Seeds { first, count, threads };
        return jobs::run(&seeds, arguments.save.as_deref(), form, console);
    }
    if let Some(file) = &arguments.replay {
        let summary = replay(file)?;
        return match form {
            TextForm::Text => {
                Ok(console.print(&format!("everything held: {} inputs\n", summary.inputs))?)
            }
            TextForm::Json => console.print_json(&Report::of(&summary)),
        };
    }
    let kept = arguments.compare.as_ref().map(|file| read_digests(file, arguments.steps));
    let kept = kept.transpose()?;
    let started = Instant::now();
    let Total { summary, digests } = match run_all(&arguments) {
        Ok(total) => total,
        Err(failure) => return report(&arguments, &failure, form, console),
    };
    match form {
        TextForm::Text => {
            let text = match arguments.digest {
                true => digests_text(arguments.steps, &digests),
                false => summary_text(&arguments, &summary, started.elapsed()),
            };
            console.print(&text)?;
        }
        TextForm::Json => {
            let Arguments { seed, seeds, steps, .. } = arguments;
            let runs = Some(Runs { seed, seeds, steps, seconds: started.elapsed().as_secs_f64() });
            let digests = arguments.digest.then(|| {
                digests.iter().map(|(seed, digest)| (*seed, digest.to_string())).collect()
            });
            console.print_json(&Report { runs, digests, ..Report::of(&summary) })?;
        }
    }
    match kept {
        Some(kept) => compare(&kept, &digests),
        None => Ok(()),
    }
}

/// The sum of all runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Total {
    summary: Summary,
    /// By seed; empty unless they are wanted.
    digests: BTreeMap<u64, Digest>,
}

/// The input of [`read_digests`].
fn digests_text(steps: u64, digests: &BTreeMap<u64, Digest>) -> String {
    let mut text = format!("# steps {steps}\n");
    for (seed, digest) in digests {
        let _ = writeln!(text, "{seed} {digest}");
    }
    text
}

/// The digests in a file, by seed, as text. The file must be of runs with `steps` steps.
fn read_digests(file: &Path, steps: u64) -> anyhow::Result<BTreeMap<u64, String>> {
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("cannot read {}", file.display()))?;
    let place = |number: usize| format!("{}, line {}", file.display(), number + 1);
    let mut digests = BTreeMap::new();
    let mut steps_of_file = None;
    for (number, line) in text.lines().enumerate() {
        if let Some(comment) = line.strip_prefix('#') {
            if let Some(steps) = comment.trim().strip_prefix("steps ") {
                let steps = steps.parse::<u64>();
                steps_of_file = Some(steps.with_context(|| place(number))?);
            }
            continue;
        }
        let parsed = line
            .split_once(' ')
            .and_then(|(seed, digest)| Some((seed.parse::<u64>().ok()?, digest.trim().to_owned())));
        let Some((seed, digest)) = parsed else {
            bail!("{}: expected a seed and a digest, found {line:?}", place(number))
        };
        digests.insert(seed, digest);
    }
    match steps_of_file {
        Some(of_file) if of_file == steps => Ok(digests),
        Some(of_file) => {
            bail!("{} has digests of runs of {of_file} steps, not {steps}", file.display())
        }
        None => bail!("{} has no line \"# steps N\"", file.display()),
    }
}

/// Refuses the first digest that differs from the kept one.
fn compare(kept: &BTreeMap<u64, String>, digests: &BTreeMap<u64, Digest>) -> anyhow::Result<()> {
    for (seed, digest) in digests {
        let kept = kept.get(seed).with_context(|| format!("no digest of seed {seed} was kept"))?;
        let digest = digest.to_string();
        if *kept != digest {
            bail!("seed {seed} has the digest {digest}, not {kept}: an input or outcome differs");
        }
    }
    Ok(())
}

/// The result as JSON.
#[derive(Serialize)]
struct Report {
    /// Whether every rule held.
    held: bool,
    #[serde(flatten)]
    runs: Option<Runs>,
    #[serde(flatten)]
    counts: Option<Counts>,
    /// By seed; present only with `--digest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    digests: Option<BTreeMap<u64, String>>,
    /// Present only if a rule was violated.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<FailureReport>,
}

#[derive(Serialize)]
struct Runs {
    seed: u64,
    seeds: u64,
    steps: u64,
    seconds: f64,
}

#[derive(Serialize)]
struct Counts {
    inputs: u64,
    refused: u64,
    granted: u64,
    revoked: u64,
    dead_nodes: u64,
    reserved: u64,
}

#[derive(Serialize)]
struct FailureReport {
    /// The violated rule, as a sentence.
    what: String,
    /// The run that shows it, with the fewest steps.
    seed: u64,
    steps: u64,
    /// Where its inputs are.
    #[serde(skip_serializing_if = "Option::is_none")]
    saved: Option<String>,
}

impl Report {
    fn of(summary: &Summary) -> Report {
        let Summary { inputs, granted, revoked, dead_nodes, refused, reserved } = *summary;
        let counts = Counts { inputs, refused, granted, revoked, dead_nodes, reserved };
        Report { held: true, runs: None, counts: Some(counts), digests: None, failure: None }
    }
}

/// Runs all seeds.
fn run_all(arguments: &Arguments) -> Result<Total, Box<Failure>> {
    let Arguments { seed, seeds, steps, trees, resources, .. } = *arguments;
    let progress = Progress::new(seeds);
    let run = |seed| {
        let plan = Plan { seed, steps, restarts: false, trees, resources };
        let result = match arguments.wants_digests() {
            true => simulation::run_with_digest(plan).map(|(sum, digest)| (sum, Some(digest))),
            false => simulation::run(plan).map(|summary| (summary, None)),
        };
        progress.advance();
        result.map(|(summary, digest)| (seed, summary, digest))
    };
    let add = |total: &mut Total, (seed, summary, digest): (u64, Summary, Option<Digest>)| {
        total.summary.add(summary);
        total.digests.extend(digest.map(|digest| (seed, digest)));
    };
    let total = Seeds { first: seed, count: seeds, threads: arguments.jobs }.run_all(run, add);
    progress.clear();
    total
}

fn summary_text(arguments: &Arguments, summary: &Summary, took: Duration) -> String {
    let Summary { inputs, granted, revoked, dead_nodes, refused, reserved } = summary;
    let Arguments { seed, seeds, steps, .. } = arguments;
    let per_second = *inputs as f64 / took.as_secs_f64().max(1e-9);
    format!(
        "everything held: {} of {} from seed {seed}\n\
         inputs {inputs}, refused {refused}, slots granted {granted}, revoked {revoked}, \
         notices of dead nodes {dead_nodes}, nodes reserved {reserved}\n\
         {:.1} s, {per_second:.0} inputs a second\n",
        counted(*seeds, "run"),
        counted(*steps, "step"),
        took.as_secs_f64(),
    )
}

fn report(
    arguments: &Arguments,
    failure: &Failure,
    form: TextForm,
    console: &mut Console<'_>,
) -> anyhow::Result<()> {
    let Plan { seed, steps, trees, resources, .. } = failure.plan;
    if let Some(file) = &arguments.save {
        let out = std::fs::File::create(file);
        let out = out.with_context(|| format!("cannot write {}", file.display()))?;
        write_history(&failure.history, BufWriter::new(out))?;
    }
    if form == TextForm::Json {
        let saved = arguments.save.as_ref().map(|file| file.display().to_string());
        let failure = FailureReport { what: failure.what.clone(), seed, steps, saved };
        let failure = Some(failure);
        let report = Report { held: false, runs: None, counts: None, digests: None, failure };
        console.print_json(&report)?;
    } else {
        let kinds = [(trees, " --trees"), (resources, " --resources")];
        let kinds: String =
            kinds.into_iter().filter_map(|(is_set, kind)| is_set.then_some(kind)).collect();
        let mut text = format!(
            "{failure}\nrepeat with: corona simulate --seed {seed} --steps {steps}{kinds}\n"
        );
        match &arguments.save {
            Some(file) => {
                let _ = writeln!(text, "its inputs are in {}", file.display());
                console.print(&text)?;
            }
            None => {
                text.push_str("its settings and inputs, one per line:\n");
                console.print(&text)?;
                let mut inputs = Vec::new();
                write_history(&failure.history, &mut inputs)?;
                console.print(&String::from_utf8_lossy(&inputs))?;
            }
        }
    }
    bail!("seed {seed} fails at step {}: {}", failure.history.inputs.len(), failure.what)
}

/// The settings in the first line, then an input with its time in each line.
fn write_history(history: &History, mut out: impl Write) -> anyhow::Result<()> {
    writeln!(out, "{}", serde_json::to_string(&history.settings)?)?;
    for input in &history.inputs {
        writeln!(out, "{}", serde_json::to_string(input)?)?;
    }
    Ok(out.flush()?)
}

fn replay(file: &Path) -> anyhow::Result<Summary> {
    let history = read_history(file).with_context(|| format!("cannot read {}", file.display()))?;
    simulation::replay(&history).map_err(|(at, what)| anyhow!("input {at} fails: {what}"))
}

fn read_history(file: &Path) -> anyhow::Result<History> {
    let mut lines = BufReader::new(std::fs::File::open(file)?).lines();
    let settings = lines.next().context("the file is empty")??;
    let settings = serde_json::from_str(&settings).context("line 1 holds no settings")?;
    let inputs = lines.enumerate().map(|(number, line)| {
        let input = serde_json::from_str(&line?);
        input.with_context(|| format!("line {} holds no input", number + 2))
    });
    Ok(History { settings, inputs: inputs.collect::<anyhow::Result<_>>()? })
}

/// A progress line on stderr if it is a terminal.
struct Progress {
    total: u64,
    done: AtomicU64,
    visible: bool,
}

impl Progress {
    fn new(total: u64) -> Self {
        let visible = total > 1 && std::io::stderr().is_terminal();
        Progress { total, done: AtomicU64::new(0), visible }
    }

    fn advance(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if self.visible {
            let count = format!("{done} of {} runs", self.total);
            write_stderr(&format!("\r{}", bar(done, self.total, &count)));
        }
    }

    fn clear(&self) {
        if self.visible {
            clear_line();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn arguments(line: &[&str]) -> Arguments {
        let words = ["simulate"].iter().chain(line);
        <Line as clap::Parser>::parse_from(words).arguments
    }

    #[test]
    fn runs_are_shared_among_threads_and_summed() {
        let one = |seed: &str| {
            run_all(&arguments(&["--seed", seed, "--steps", "300", "--jobs", "1", "--digest"]))
                .unwrap()
        };
        let mut sum = one("5");
        for Total { summary, digests } in [one("6"), one("7")] {
            sum.summary.add(summary);
            sum.digests.extend(digests);
        }
        let line = ["--seed", "5", "--seeds", "3", "--steps", "300", "--jobs", "2", "--digest"];
        assert_eq!(run_all(&arguments(&line)).unwrap(), sum);
    }

    #[test]
    fn digests_are_compared_with_those_that_were_printed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("digests.txt");
        let runs = ["--seed", "5", "--seeds", "2", "--steps", "300"];
        let run = |line: &[&str]| {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut console = Console::of_test(&mut out, &mut err);
            let result = run(arguments(line), &mut console);
            result.map(|()| String::from_utf8(out).unwrap()).map_err(|error| error.to_string())
        };
        let printed = run(&[&runs[..], &["--digest"]].concat()).unwrap();
        assert!(printed.starts_with("# steps 300\n5 "), "{printed}");
        let file_name = file.to_str().unwrap();
        let compare = [&runs[..], &["--compare", file_name]].concat();
        let damaged = printed.replacen("\n6 ", "\n6 0", 1);
        for (kept, line, error) in [
            (&*printed, &*compare, None),
            (&*damaged, &*compare, Some("seed 6 has the digest")),
            ("# steps 300\n", &*compare, Some("no digest of seed 5 was kept")),
            ("# steps 30\n", &*compare, Some("has digests of runs of 30 steps, not 300")),
            ("5 abc\n", &*compare, Some("has no line \"# steps N\"")),
            ("# steps 300\nseed\n", &*compare, Some("line 2: expected a seed and a digest")),
        ] {
            std::fs::write(&file, kept).unwrap();
            let found = run(line).err();
            let as_expected = match (error, &found) {
                (None, None) => true,
                (Some(error), Some(found)) => found.contains(error),
                _ => false,
            };
            assert!(as_expected, "{error:?}: {found:?}");
        }
        let json = run(&[&runs[..], &["--digest", "--output", "json"]].concat()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let digest = json["digests"]["5"].as_str().unwrap();
        assert!(printed.contains(&format!("\n5 {digest}\n")), "{json}");
    }

    #[test]
    fn a_failure_is_told_and_its_inputs_are_kept() {
        let file = std::env::temp_dir().join(format!("corona-failure-{}", std::process::id()));
        let inputs = vec![(corona_engine::types::Millis(5), corona_engine::Input::NextSessionId)];
        let failure = Failure {
            plan: Plan { seed: 9, steps: 1, restarts: false, trees: true, resources: true },
            what: "nothing adds up".into(),
            history: History { settings: Default::default(), inputs },
        };
        let arguments = arguments(&["--save", file.to_str().unwrap()]);
        for (form, part) in [
            (
                TextForm::Text,
                "repeat with: corona simulate --seed 9 --steps 1 --trees --resources\n",
            ),
            (TextForm::Json, "\"what\": \"nothing adds up\",\n    \"seed\": 9,"),
        ] {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut console = Console::of_test(&mut out, &mut err);
            let error = report(&arguments, &failure, form, &mut console).unwrap_err();
            assert_eq!(error.to_string(), "seed 9 fails at step 1: nothing adds up");
            let out = String::from_utf8(out).unwrap();
            assert!(out.contains(part), "{out}");
        }
        assert_eq!(read_history(&file).unwrap(), failure.history);
        replay(&file).unwrap();
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_result_is_counted_and_has_a_form_for_programs() {
        let told = |line: &[&str]| {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut console = Console::of_test(&mut out, &mut err);
            run(arguments(&[&["--seed", "5", "--steps", "300"], line].concat()), &mut console)
                .unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(told(&[]).starts_with("everything held: 1 run of 300 steps from seed 5\n"));
        assert!(told(&["--seeds", "2"]).starts_with("everything held: 2 runs of 300 steps from"));
        let json: serde_json::Value = serde_json::from_str(&told(&["--output", "json"])).unwrap();
        assert_eq!((&json["held"], &json["seeds"]), (&true.into(), &1.into()));
        assert!(json["inputs"].as_u64() >= Some(300), "{json}");
        assert_eq!(json.get("failure"), None);
    }

    #[test]
    fn histories_survive_their_file() {
        let inputs = vec![
            (corona_engine::types::Millis(5), corona_engine::Input::Tick),
            (corona_engine::types::Millis(6), corona_engine::Input::NextSessionId),
        ];
        let history = History { settings: Default::default(), inputs };
        let file = std::env::temp_dir().join(format!("corona-history-{}", std::process::id()));
        write_history(&history, std::fs::File::create(&file).unwrap()).unwrap();
        assert_eq!(read_history(&file).unwrap(), history);
        std::fs::write(&file, "{}").unwrap();
        assert!(read_history(&file).is_err());
        std::fs::remove_file(file).unwrap();
    }
}
