//! What is kept of a run beside its results, so that another process can go on with it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// The version of the form of the file. In the first one, no results were kept by job trackers.
const VERSION: u32 = 2;
/// The directory below that of the results.
const NAME: &str = ".corona-run";

/// A run, in the directory of its results.
pub(super) struct Run {
    directory: PathBuf,
    state: RunFile,
    /// Whether this process has begun it.
    is_new: bool,
    /// Held while the run is this process's.
    _lock: File,
}

#[derive(Debug, Serialize, Deserialize)]
struct RunFile {
    version: u32,
    /// The command that runs for each number or line.
    #[serde(default)]
    command: Vec<String>,
    rounds: Vec<Round>,
}

/// A job for the commands that had no results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Round {
    /// Its id, from before it is submitted.
    pub(super) job: Option<String>,
    /// The directory of its output, below that of the run.
    pub(super) output: String,
    /// Where the job tracker keeps results until they are brought there; none if the machines share the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<String>,
}

/// A file in a directory that has the name of one of a run.
fn result_in(directory: &Path) -> anyhow::Result<Option<String>> {
    let is_output = |name: &str| {
        let parts = name.rsplit_once('.');
        parts.is_some_and(|(id, end)| matches!(end, "out" | "err") && id.parse::<u64>().is_ok())
    };
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let name = entry.with_context(|| directory.display().to_string())?.file_name();
        let name = name.to_string_lossy();
        if name == "results.jsonl" || is_output(&name) {
            return Ok(Some(name.into_owned()));
        }
    }
    Ok(None)
}

impl Run {
    /// The run in a directory, or a new one.
    ///
    /// # Errors
    /// There is one and it is not to be resumed or is of another command, there is none to resume, the directory
    /// has files that a run would replace, or another process has it.
    pub(super) fn open(results: &Path, command: &[String], resumes: bool) -> anyhow::Result<Run> {
        let directory = results.join(NAME);
        let shown = results.display();
        if directory.exists() && !resumes {
            bail!(
                "{shown} has the results of an earlier run; add --resume to go on with it, or name another \
                 directory"
            );
        }
        ensure!(directory.exists() || !resumes, "{shown} has no run to resume");
        if !resumes && let Some(name) = result_in(results)? {
            bail!("{shown} has a file {name}, which the run would replace; name another directory");
        }
        fs::create_dir_all(&directory).with_context(|| shown.to_string())?;
        let lock = File::create(directory.join("lock")).with_context(|| shown.to_string())?;
        let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        ensure!(locked.is_ok(), "another process writes the results in {shown}");
        let path = directory.join("state.json");
        let (mut state, is_new): (RunFile, bool) = match fs::read(&path) {
            Ok(bytes) => {
                let read = serde_json::from_slice(&bytes);
                (read.with_context(|| format!("{} cannot be read", path.display()))?, false)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let command = command.to_owned();
                (RunFile { version: VERSION, command, rounds: Vec::new() }, true)
            }
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        ensure!(
            (1..=VERSION).contains(&state.version),
            "{} is of version {}, which this program does not know",
            path.display(),
            state.version
        );
        ensure!(
            state.command == command,
            "the command is not that of the run; --resume needs the same one: {}",
            state.command.join(" ")
        );
        state.version = VERSION;
        let run = Run { directory, state, is_new, _lock: lock };
        run.save()?;
        Ok(run)
    }

    /// The path of a file of the run.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn rounds(&self) -> &[Round] {
        &self.state.rounds
    }

    /// Notes a new round, before its job is submitted.
    pub(super) fn begin_round(&mut self) -> anyhow::Result<Round> {
        let output = format!("job-{}", self.state.rounds.len() + 1);
        let round = Round { output, ..Round::default() };
        self.state.rounds.push(round.clone());
        self.save()?;
        Ok(round)
    }

    /// Notes the job of the last round, which is submitted then, and where its results are kept.
    pub(super) fn note_job(&mut self, job: String, kept: Option<String>) -> anyhow::Result<()> {
        if let Some(round) = self.state.rounds.last_mut() {
            (round.job, round.kept) = (Some(job), kept);
        }
        self.save()
    }

    /// Forgets where the results of a round are kept: nobody can take them any more.
    pub(super) fn give_up(&mut self, round: &Round) -> anyhow::Result<()> {
        for known in self.state.rounds.iter_mut().filter(|known| known.output == round.output) {
            known.kept = None;
        }
        self.save()
    }

    /// Takes the last round back: its job was not submitted.
    pub(super) fn forget_round(&mut self) -> anyhow::Result<()> {
        if let Some(round) = self.state.rounds.pop() {
            let _ = fs::remove_file(self.path(&format!("{}.list", round.output)));
        }
        self.save()
    }

    /// Whether this process has begun the run, and nothing was submitted.
    pub(super) fn is_unused(&self) -> bool {
        self.is_new && self.state.rounds.is_empty()
    }

    /// Deletes it, if nothing was submitted: a wrong line leaves nothing behind.
    pub(super) fn discard_if_unused(self) {
        if self.is_unused() {
            // What stays is found by the next run, which says so.
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    fn save(&self) -> anyhow::Result<()> {
        let path = self.path("state.json");
        let new = self.path("state.json.new");
        let write = || -> anyhow::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(&serde_json::to_vec(&self.state)?)?;
            file.sync_data()?;
            Ok(fs::rename(&new, &path)?)
        };
        write().with_context(|| path.display().to_string())
    }

    /// Deletes what is only needed while commands have no results: lists and outputs of jobs.
    pub(super) fn clean_up(&self) {
        for round in &self.state.rounds {
            // What stays is of no use, and does no harm.
            let _ = fs::remove_dir_all(self.path(&round.output));
            let _ = fs::remove_file(self.path(&format!("{}.list", round.output)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_resumed_by_one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let command = ["true".to_owned()];
        let open = |resumes| Run::open(dir.path(), &command, resumes);
        let error = |resumes| open(resumes).err().unwrap().to_string();
        assert!(error(true).ends_with("has no run to resume"));
        let mut run = open(false).unwrap();
        assert_eq!(run.begin_round().unwrap().output, "job-1");
        run.note_job("job_1".to_owned(), None).unwrap();
        assert!(error(false).contains("add --resume to go on with it"));
        assert!(error(true).starts_with("another process writes"));
        drop(run);
        let mut run = open(true).unwrap();
        assert_eq!(run.rounds()[0].job.as_deref(), Some("job_1"));
        assert_eq!(run.begin_round().unwrap().output, "job-2");
        run.forget_round().unwrap();
        assert_eq!(run.begin_round().unwrap().output, "job-2");
        run.discard_if_unused();
        let other = Run::open(dir.path(), &["false".to_owned()], true).err().unwrap().to_string();
        assert!(other.contains("is not that of the run"), "{other}");
        let mut run = open(true).unwrap();
        let kept = Some("corona://jt:8881/job_2/output".to_owned());
        run.note_job("job_2".to_owned(), kept.clone()).unwrap();
        drop(run);
        let mut run = open(true).unwrap();
        assert_eq!(run.rounds()[1].kept, kept);
        let round = run.rounds()[1].clone();
        run.give_up(&round).unwrap();
        assert_eq!(run.rounds()[1].kept, None);
        run.note_job("job_2".to_owned(), kept.clone()).unwrap();
        drop(run);
        let file = dir.path().join(".corona-run/state.json");
        let fixture = include_str!("../../../fixtures/versions/run-state-2.json");
        assert_eq!(fs::read_to_string(&file).unwrap(), fixture.trim_end());
        fs::write(&file, include_str!("../../../fixtures/versions/run-state.json")).unwrap();
        assert_eq!(open(true).unwrap().rounds().len(), 2);
        fs::write(&file, r#"{"version":3,"rounds":[]}"#).unwrap();
        assert!(error(true).contains("is of version 3, which this program does not know"));
    }

    #[test]
    fn a_run_without_a_job_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let mut run = Run::open(dir.path(), &[], false).unwrap();
        run.begin_round().unwrap();
        assert!(!run.is_unused());
        run.forget_round().unwrap();
        run.discard_if_unused();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_with_files_that_a_run_would_replace_is_refused() {
        for name in ["1.out", "77.err", "results.jsonl"] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(name), "mine").unwrap();
            let refused = Run::open(dir.path(), &[], false).err().unwrap().to_string();
            assert!(
                refused.contains(name) && !dir.path().join(".corona-run").exists(),
                "{refused}"
            );
            assert_eq!(fs::read_to_string(dir.path().join(name)).unwrap(), "mine");
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes.out"), "mine").unwrap();
        Run::open(dir.path(), &[], false).unwrap();
    }
}
