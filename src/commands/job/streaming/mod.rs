//! `corona hadoop jar hadoop-streaming.jar`: the options of the original's streaming jobs as native jobs, with
//! the original's words and exit statuses.
//!
//! `line.rs` reads the options, `steps.rs` says them in keys of a job; this file runs the job.

mod line;
mod steps;

use std::collections::VecDeque;
use std::process::ExitCode;

use corona::config::JobConf;
use corona::filesystem::{FileSystem, FileSystems, FsPath, LocalFiles};
use corona::mapreduce::native::NativeJob;

use super::deliver::{Place, deliver};
use super::follow::{Follower, Voice, logged};
use super::inputs::{Inputs, NoSuchInput, Selection};
use super::output::Output;
use super::sight::Sight;
use super::stop::Stop;
use super::submit::describe_cache;
use super::waiting::Waiting;
use super::{Shipment, conf, list_of, split_file};
use crate::commands::cluster::block_on_two_threads;
use crate::commands::hadoop::generic::Generic;
use crate::commands::hadoop::table::{Fate, STREAMING};
use crate::commands::jobs::Which;
use corona_terminal::console::{Console, printable};
use line::Line;
use steps::Steps;

/// The exit statuses of the original, by what has failed.
const USAGE: u8 = 1;
const INVALID_CONFIGURATION: u8 = 3;
const OUTPUT_EXISTS: u8 = 4;
const NOT_LAUNCHED: u8 = 5;

/// Why a job was not run, with its status.
struct NotRun {
    status: u8,
    line: String,
}

impl NotRun {
    /// An error of the line or of the files that it names.
    fn of_line(why: String) -> NotRun {
        NotRun { status: USAGE, line: why }
    }

    fn invalid(why: &str) -> NotRun {
        let line = logged("ERROR", &format!("Error launching job , Invalid job conf : {why}"));
        NotRun { status: INVALID_CONFIGURATION, line }
    }

    fn exists(path: &FsPath) -> NotRun {
        let line = logged(
            "ERROR",
            &format!(
                "Error launching job , Output path already exists : Output directory {path} already \
                 exists"
            ),
        );
        NotRun { status: OUTPUT_EXISTS, line }
    }
}

impl From<anyhow::Error> for NotRun {
    fn from(error: anyhow::Error) -> NotRun {
        let why = match error.downcast_ref::<NoSuchInput>() {
            Some(NoSuchInput { path, is_pattern: true, .. }) => {
                format!("Input Pattern {path} matches 0 files")
            }
            Some(NoSuchInput { path, .. }) => format!("Input path does not exist: {path}"),
            None => crate::commands::one_line(&error),
        };
        let line = logged("ERROR", &format!("Error Launching job : {why}"));
        NotRun { status: NOT_LAUNCHED, line }
    }
}

/// Runs a streaming job.
pub(in crate::commands) fn run(
    generic: Generic,
    words: VecDeque<String>,
    console: &mut Console<'_>,
) -> anyhow::Result<ExitCode> {
    let line = match Line::of(generic, words) {
        Ok(line) => line,
        Err(wrong) => {
            let text = format!("{}\n{}", printable(&wrong), usage());
            return Ok(failed(&NotRun::of_line(text), console));
        }
    };
    if line.has("-help") || line.has("-info") {
        return Ok(failed(&NotRun::of_line(usage()), console));
    }
    Ok(match block_on_two_threads(run_job(&line, console))? {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => failed(&NotRun::of_line(String::new()), console),
        Err(not_run) => failed(&not_run, console),
    })
}

fn failed(not_run: &NotRun, console: &mut Console<'_>) -> ExitCode {
    let NotRun { status, line } = not_run;
    if !line.is_empty() {
        console.complain(&format!("{}\n", line.trim_end()));
    }
    console.complain("Streaming Job Failed!\n");
    ExitCode::from(*status)
}

fn usage() -> String {
    let known = STREAMING.iter().filter(|it| !matches!(it.option.fate, Fate::Refused(_)));
    let lines = known.map(|it| format!("  {} {}", it.option.name, it.option.value));
    let lines: Vec<String> = lines.map(|line| line.trim_end().to_owned() + "\n").collect();
    format!("Usage: hadoop jar hadoop-streaming.jar [options]\nOptions:\n{}", lines.concat())
}

/// Runs the job to its end. Returns whether it has succeeded.
async fn run_job(line: &Line, console: &mut Console<'_>) -> Result<bool, NotRun> {
    // Before there are other threads: no signal is lost from here on.
    let mut stop = Stop::listen()?;
    let which = Which::of_generic(&line.generic);
    let settings = which.file_systems()?;
    let systems = FileSystems::new(settings.clone()).map_err(anyhow::Error::from)?;
    let steps = Steps::of(line).map_err(NotRun::of_line)?;
    let mut conf = which.job_conf()?;
    conf::base(&mut conf);
    // Clients read the history of a job beside its output.
    conf.remove("hadoop.job.history.user.location");
    for (key, value) in which.settings() {
        conf.set(&key, &value);
    }
    steps.set(&mut conf);
    conf.set("user.name", &settings.user);
    if let Ok(directory) = std::env::current_dir() {
        conf.set("mapred.working.dir", &format!("file:{}", directory.display()));
    }
    if let Err(why) = NativeJob::of(&conf) {
        let why = format!("{why}; what needs Java is run by the original's hadoop jar");
        return Err(NotRun::invalid(&why));
    }
    conf::check_priority(&conf).map_err(|wrong| NotRun::invalid(&wrong))?;
    let selection = Selection::of(&conf, None).map_err(|why| NotRun::invalid(&why.to_string()))?;
    let wanted = line.output();
    let (files, path) = systems.resolve(wanted).map_err(anyhow::Error::from)?;
    let exists = async { Ok(files.find(&path).await?) };
    if stop.before_submission(exists).await?.is_some() {
        return Err(NotRun::exists(&path));
    }
    let inputs = line.inputs();
    let found = Inputs::find(&systems, &inputs, &selection);
    let found = stop.before_submission(found).await?;
    let splits = found.splits.iter().map(|split| split.path.as_str());
    let output = Output::find(&systems, wanted, false, "name a new directory with -output", splits);
    let output = stop.before_submission(output).await?;
    conf.set("mapred.output.dir", &output.path.to_string());
    conf.set("mapred.input.dir", &list_of(&inputs));
    conf.set("mapred.map.tasks", &found.splits.len().to_string());
    conf::check_tasks(&conf, found.splits.len())?;
    stop.before_submission(describe_cache(&systems, &mut conf)).await?;
    let text = format!("Total input paths to process : {}", found.files);
    console.complain(&super::follow::logged_by("INFO", "mapred.FileInputFormat", &text));
    if line.has("-verbose") {
        show(&conf, console)?;
    }
    Ok(submit(line, &steps, &which, &systems, (found, output, conf), stop, console).await?)
}

async fn submit(
    line: &Line,
    steps: &Steps,
    which: &Which,
    systems: &FileSystems,
    (inputs, output, mut conf): (Inputs, Output, JobConf),
    mut stop: Stop,
    console: &mut Console<'_>,
) -> anyhow::Result<bool> {
    let mut caller = which.caller()?;
    let waiting = Waiting::of(&caller, which);
    let ends = inputs.splits.iter().map(|it| (&*it.path, it.start.saturating_add(it.length)));
    let sight = Sight::new(&output, ends);
    let place = Place { systems, output: &output, sight: &sight, waiting: &waiting };
    let splits = split_file(&inputs.splits)?;
    let local = LocalFiles::new(&which.file_systems()?);
    let shipment =
        Shipment { files: &steps.files, archives: &steps.archives, words: ("-file", "-archives") };
    let ship = async |files: &dyn FileSystem, directory: &FsPath, conf: &mut JobConf| {
        shipment.ship(files, directory, &local, conf).await
    };
    let id = deliver(&mut caller, &place, &splits, &mut conf, ship, &mut stop, console).await?;
    let at = format!("{}:{}", caller.address().host, caller.address().port);
    for text in [
        format!("Running job: {id}"),
        "To kill this job, run:".to_owned(),
        format!("hadoop job -Dmapred.job.tracker={at} -kill {id}"),
    ] {
        console.complain(&logged("INFO", &text));
    }
    if line.has("-background") && !stop.is_wanted() {
        return Ok(true);
    }
    let follower = Follower {
        id,
        maps: inputs.splits.len(),
        reduces: conf::reduces(&conf),
        bytes: inputs.bytes,
        output: line.output().to_owned(),
        parts: 0,
        voice: Voice::Streaming,
    };
    follower.follow(&mut caller, &output, waiting, stop, console).await
}

/// Prints the configuration of the job, as `-verbose` does.
fn show(conf: &JobConf, console: &mut Console<'_>) -> anyhow::Result<()> {
    let mut names: Vec<&str> = conf.names().collect();
    names.sort_unstable();
    let line = |name: &str| {
        let value = conf.get(name).unwrap_or_default();
        format!("STREAM: {}={}\n", printable(name), printable(&value))
    };
    let lines: String = names.into_iter().map(line).collect();
    Ok(console.print(&format!("STREAM: ==== JobConf properties:\n{lines}STREAM: ====\n"))?)
}
