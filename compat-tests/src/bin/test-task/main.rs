//! A task of a test: a program that a task tracker starts instead of Java, that speaks the umbilical
//! protocol and does the steps that its job's configuration has for it.
//!
//! See `compat_tests::task_tracker::steps` for the steps, `notes` for its messages to the test.

mod acts;
mod fetch;
mod umbilical;

use std::env;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use compat_tests::task_tracker::notes::Notes;
use compat_tests::task_tracker::steps::{Step, TaskRole, parse};
use corona::config::{JobConf, Source};
use corona::hadoop::writables::TaskAttemptId;

use umbilical::Umbilical;

type Failure = Box<dyn Error>;

/// The status of a task that its tracker does not know. The number is the original's.
const UNKNOWN: u8 = 66;
/// The exit status of a task that failed for a reason of its own.
const BROKEN: u8 = 70;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(Failure::from).and_then(|runtime| {
        let outcome = runtime.block_on(run());
        // Threads that ignore signals are not waited for.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // There is no other receiver of the error.
            let _ = writeln!(std::io::stderr(), "test-task: {error}");
            ExitCode::from(BROKEN)
        }
    }
}

/// A task's knowledge of itself.
struct Itself {
    attempt: TaskAttemptId,
    /// The name of its steps: that of the attempt, with an ending if it cleans up after it.
    name: String,
    conf: JobConf,
    notes: Notes,
}

impl Itself {
    /// Reads the files that the task tracker has left for it, and compares duplicate data.
    fn read() -> Result<Itself, Failure> {
        let attempt: TaskAttemptId = variable("mapred_task_id")?.parse()?;
        let file = PathBuf::from(variable("CORONA_JOB_XML")?);
        let site = Source::default().load_task_tracker()?.site;
        let conf = JobConf::read(&site, &file)?;
        let get = |name: &str| conf.get(name).ok_or_else(|| format!("{name} is missing"));
        for name in ["mapred.task.id", "mapred.job.id", "mapred.task.partition", "job.local.dir"] {
            let (said, told) = (get(name)?, variable(&name.replace('.', "_"))?);
            if said != told {
                return Err(format!("{name} is {said} in the file and {told} outside").into());
            }
        }
        let own = std::process::id().to_string();
        let pid = variable("JVM_PID")?;
        if pid != own {
            return Err(format!("it is process {own} and was told {pid}").into());
        }
        let is_cleanup =
            file.parent().is_some_and(|dir| dir.to_string_lossy().ends_with(".cleanup"));
        let name = format!("{attempt}{}", if is_cleanup { ".cleanup" } else { "" });
        let notes = Notes::new(Path::new(&get("test.directory")?));
        Ok(Itself { attempt, name, conf, notes })
    }

    fn note(&self, what: &str, value: &str) -> Result<(), Failure> {
        Ok(self.notes.add(&self.name, what, value)?)
    }
}

fn variable(name: &str) -> Result<String, Failure> {
    env::var(name).map_err(|_| format!("the variable {name} is missing").into())
}

async fn run() -> Result<u8, Failure> {
    let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let itself = Itself::read()?;
    itself.note("started", &began.as_nanos().to_string())?;
    itself.note("directory", &env::current_dir()?.display().to_string())?;
    itself.note("job file", &variable("CORONA_JOB_XML")?)?;
    itself.note("umbilical", &variable("CORONA_UMBILICAL")?)?;
    itself.note("jvm", &variable("CORONA_JVM_NUMBER")?)?;
    let mut umbilical = Umbilical::new(&itself)?;
    let own = itself.conf.get(&format!("test.steps.{}", itself.name));
    let own = own.or_else(|| itself.conf.get("test.steps"));
    let steps = match own {
        Some(steps) => steps,
        None => {
            let Some(role) = umbilical.task(&itself).await?.map(TaskRole::of) else { return Ok(0) };
            let steps = itself.conf.get(&format!("test.steps.{}", role.name()));
            steps.unwrap_or_else(|| role.steps().to_owned())
        }
    };
    for step in parse(&steps)? {
        if let Some(code) = take(&itself, &mut umbilical, step).await? {
            itself.note("ends", &code.to_string())?;
            return Ok(code);
        }
    }
    Ok(0)
}

/// Takes a step. The task ends with the status that this gives, if it does.
async fn take(
    itself: &Itself,
    umbilical: &mut Umbilical,
    step: Step,
) -> Result<Option<u8>, Failure> {
    match step {
        Step::Exit(code) => return Ok(Some(code)),
        Step::Abort => acts::abort(),
        Step::Fork => acts::fork(itself)?,
        Step::IgnoreTerm => acts::ignore_term(itself)?,
        Step::Flood(mib) => acts::flood(mib)?,
        Step::Memory(mib) => acts::take_memory(itself, mib)?,
        Step::Rest => acts::rest(itself).await,
        speaks => return umbilical.step(itself, speaks).await,
    }
    Ok(None)
}
