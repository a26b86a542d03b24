//! `corona simulate --with-jobs`: runs seeded random jobs on a simulated cluster.
//!
//! Wiring only: which seeds, on how many threads, and how the result is shown.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use corona_job_simulation::{self as job_simulation, Failure, History, Summary};
use serde::Serialize;

use super::seeds::Seeds;
use corona_terminal::console::{Console, TextForm};

/// Runs the seeds and prints the result.
///
/// # Errors
/// When something does not hold in a run, or a file cannot be written.
pub(crate) fn run(
    seeds: &Seeds,
    save: Option<&Path>,
    form: TextForm,
    console: &mut Console<'_>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    match seeds.run_all(job_simulation::run, Summary::add) {
        Ok(summary) => {
            let report = Report::of(seeds, &summary, started.elapsed());
            match form {
                TextForm::Text => Ok(console.print(&report.text())?),
                TextForm::Json => console.print_json(&report),
            }
        }
        Err(failure) => fail(&failure, save, form, console),
    }
}

/// The result of runs in which everything held.
#[derive(Serialize)]
struct Report {
    held: bool,
    seed: u64,
    seeds: u64,
    seconds: f64,
    inputs: u64,
    jobs_succeeded: u64,
    jobs_failed: u64,
    jobs_killed: u64,
    launched: u64,
    second_attempts: u64,
    skipped_tasks: u64,
    committed: u64,
    revoked: u64,
    dead_nodes: u64,
    lost_calls: u64,
    restored: u64,
    restarts: u64,
    lost_job_trackers: u64,
    parent_restarts: u64,
    saved_tasks: u64,
}

impl Report {
    fn of(seeds: &Seeds, summary: &Summary, took: Duration) -> Report {
        Report {
            held: true,
            seed: seeds.first,
            seeds: seeds.count,
            seconds: took.as_secs_f64(),
            inputs: summary.inputs,
            jobs_succeeded: summary.succeeded,
            jobs_failed: summary.failed,
            jobs_killed: summary.killed,
            launched: summary.launched,
            second_attempts: summary.second_attempts,
            skipped_tasks: summary.skipped,
            committed: summary.committed,
            revoked: summary.revoked,
            dead_nodes: summary.lost_nodes,
            lost_calls: summary.lost_calls,
            restored: summary.restored,
            restarts: summary.restarts,
            lost_job_trackers: summary.lost_job_trackers,
            parent_restarts: summary.parent_restarts,
            saved_tasks: summary.saved,
        }
    }

    fn text(&self) -> String {
        format!(
            "everything held: seeds {} to {}\n\
             jobs succeeded {}, failed {}, killed {}\n\
             inputs {}, attempts launched {} (second ones {}), committed {}, tasks without bad records {}\n\
             slots revoked {}, notices of dead nodes {}, calls lost {}, engines restored {}\n\
             job trackers restarted {}, on nodes lost {}, their parents restarted {}, tasks taken over {}\n\
             {:.1} s, {:.0} inputs a second\n",
            self.seed,
            self.seed.wrapping_add(self.seeds.saturating_sub(1)),
            self.jobs_succeeded,
            self.jobs_failed,
            self.jobs_killed,
            self.inputs,
            self.launched,
            self.second_attempts,
            self.committed,
            self.skipped_tasks,
            self.revoked,
            self.dead_nodes,
            self.lost_calls,
            self.restored,
            self.restarts,
            self.lost_job_trackers,
            self.parent_restarts,
            self.saved_tasks,
            self.seconds,
            self.inputs as f64 / self.seconds.max(1e-9),
        )
    }
}

/// A failure as JSON.
#[derive(Serialize)]
struct FailureReport<'a> {
    held: bool,
    failure: FailureDetail<'a>,
}

#[derive(Serialize)]
struct FailureDetail<'a> {
    what: &'a str,
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    saved: Option<String>,
}

fn fail(
    failure: &Failure,
    save: Option<&Path>,
    form: TextForm,
    console: &mut Console<'_>,
) -> anyhow::Result<()> {
    let seed = failure.seed;
    let inputs = history_text(&failure.histories)?;
    if let Some(file) = save {
        let written = std::fs::write(file, &inputs);
        written.with_context(|| format!("cannot write {}", file.display()))?;
    }
    let saved = save.map(|file| file.display().to_string());
    match form {
        TextForm::Json => {
            let failure = FailureDetail { what: &failure.what, seed, saved };
            console.print_json(&FailureReport { held: false, failure })?;
        }
        TextForm::Text => {
            let repeat = format!("repeat it with: corona simulate --with-jobs --seed {seed}\n");
            let inputs = match &saved {
                Some(file) => format!("its jobs and their inputs are in {file}\n"),
                None => format!("its jobs and their inputs, one per line:\n{inputs}"),
            };
            console.print(&format!("{failure}\n{repeat}{inputs}"))?;
        }
    }
    bail!("{failure}")
}

/// For each job a line with its submission, then a line for each input with its time.
fn history_text(histories: &[History]) -> anyhow::Result<String> {
    let mut text = String::new();
    for History { spec, inputs } in histories {
        text.push_str(&serde_json::to_string(spec)?);
        text.push('\n');
        for input in inputs {
            text.push_str(&serde_json::to_string(input)?);
            text.push('\n');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    fn print(save: Option<&Path>, form: TextForm, failure: Option<&Failure>) -> (String, bool) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::of_test(&mut out, &mut err);
        let seeds = Seeds { first: 5, count: 3, threads: NonZeroUsize::new(2) };
        let result = match failure {
            Some(failure) => fail(failure, save, form, &mut console),
            None => run(&seeds, save, form, &mut console),
        };
        (String::from_utf8(out).unwrap(), result.is_ok())
    }

    #[test]
    fn runs_are_shared_among_threads_and_counted() {
        let (text, held) = print(None, TextForm::Text, None);
        assert!(
            held && text.starts_with("everything held: seeds 5 to 7\njobs succeeded "),
            "{text}"
        );
        let (json, _) = print(None, TextForm::Json, None);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["held"], &json["seeds"]), (&true.into(), &3.into()));
        let alone: u64 = (5..=7).map(|seed| job_simulation::run(seed).unwrap().inputs).sum();
        assert_eq!(json["inputs"].as_u64(), Some(alone));
    }

    #[test]
    fn a_failure_says_how_to_repeat_it_and_keeps_its_inputs() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("inputs");
        let failure = Failure { seed: 9, what: "nothing adds up".into(), histories: Vec::new() };
        let (text, held) = print(Some(&file), TextForm::Text, Some(&failure));
        assert!(!held && text.contains("corona simulate --with-jobs --seed 9\n"), "{text}");
        assert!(file.exists());
        let (json, _) = print(None, TextForm::Json, Some(&failure));
        assert!(json.contains("\"what\": \"nothing adds up\""), "{json}");
    }
}
