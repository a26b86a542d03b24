//! `corona run`: runs the commands of a list on the nodes of a cluster.
//!
//! A map of a native job runs many commands, and writes their results. This process cuts the list, submits the
//! job, and takes the results of each map when the map has been committed, each command's once. `list.rs` has
//! the list, `results.rs` the results, `state.rs` what another process needs to go on.

mod list;
mod results;
mod state;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use corona::config::JobConf;
use corona::filesystem::{FileSystems, FsPath};
use corona::hadoop::writables::JobId;
use corona::mapreduce::commands::CommandList;
use corona::mapreduce::native::{NativeJob, encoded};
use corona::model::text::word_of_line;
use corona::net::Backoff;

use super::arguments::{mib, parse_memory};
use super::cluster::block_on_two_threads;
use super::job::commands::{Asked, Job, KeptResults, Look, MayRun, Parts, of_asked};
use super::job::stop::Stop;
use super::jobs::Which;
use super::{EXIT_FAILED, UsageError};
use corona_terminal::console::{Console, printable};
use corona_terminal::counted;
use list::{Numbers, Source};
use results::{Results, Sink};
use state::{Round, Run};

/// Maps for each slot: so that slow commands do not leave other slots without work for long.
const MAPS_PER_SLOT: usize = 8;
/// Slots, if the job tracker does not say how many there are.
const USUAL_SLOTS: usize = 8;
/// The most commands of a map: they run again if its node is lost.
const MOST_COMMANDS_OF_A_MAP: u64 = 1_000;
/// The most maps.
const MOST_MAPS: u64 = 10_000;
/// The pause between two looks at the job, which grows from the first to the second while nothing new is found.
const PAUSES: Backoff =
    Backoff::new(Duration::from_millis(50), Duration::from_secs(1)).with_factor(5, 4);
/// How long the results of a map that has ended may take to be seen.
const SIGHT_PATIENCE: Duration = Duration::from_secs(65);
/// Characters for which a command of one word is given to the shell.
const SHELL: &str = "|&;<>()$`\\\"'*?[]#~=%! \t";

const HELP: &str = "\
Examples:
  A thousand tasks, each with its number:
    corona run --array 1-1000 -- \"$PWD/simulate\" --seed {}
  A command for each line of a file, or of stdin:
    ls \"$PWD\"/*.wav | corona run --each-line - -- lame {} {}.mp3
  A file of commands, four of them at a time:
    corona run --commands jobs.txt --max-running 4 --output results
  The rest of them, after whatever happened:
    corona run --commands jobs.txt --output results --resume

{} stands for the number or the line, which CORONA_TASK_ID numbers as well. A
CMD of one word with blanks or characters of a shell is run by sh -c, and the
value is quoted there; any other is started as it is. Commands run in a directory
of their own: name files of yours by their whole paths. Where the machines do not
share your directory, the job tracker keeps the list and the results meanwhile.
Ctrl-C ends all commands.

Exit status: 0 all commands have succeeded; 1 one has failed, or has no result;
2 wrong usage.";

/// Run the commands of a list on the nodes
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// Run CMD for each of these numbers
    #[arg(long, value_name = "A-B[:STEP]", value_parser = list::parse_numbers, group = "list")]
    array: Option<Numbers>,

    /// Run CMD for each line of a file that is not empty; - is stdin
    #[arg(long, value_name = "FILE", group = "list")]
    each_line: Option<PathBuf>,

    /// Run each line of a file by sh -c; - is stdin
    #[arg(long, value_name = "FILE", group = "list", conflicts_with = "command")]
    commands: Option<PathBuf>,

    /// Directory for the results: results.jsonl, and N.out and N.err with what
    /// command N has written
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Run only commands that have no result in DIR yet
    #[arg(long, requires = "output")]
    resume: bool,

    /// Run commands again whose results a job tracker keeps that cannot be
    /// reached any more
    #[arg(long, requires = "resume")]
    rerun_lost: bool,

    /// Print outputs in the order of the list
    #[arg(long)]
    keep_order: bool,

    /// Try a command that has failed again, so many times
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1000))]
    retries: u32,

    /// Commands that run at a time [default: all slots of the cluster]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    max_running: Option<u32>,

    /// Seconds that a command may take
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    time: Option<u64>,

    /// Memory that a command may use, such as 2g, where nodes limit it
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<usize>,

    /// CPUs that are requested for each command: where the cluster counts only
    /// slots, as many slots
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    cpus: Option<u16>,

    /// Table of the results, to which lines are added
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Name of the job for people [default: the command]
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,

    /// Show how many commands would run, in how many maps, and run none
    #[arg(long)]
    dry_run: bool,

    /// Print the results as lines of JSON, in place of the outputs
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    which: Which,

    /// The command
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Seconds, as milliseconds.
fn parse_seconds(text: &str) -> Result<u64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    match (0.001..1e9).contains(&seconds) {
        true => Ok((seconds * 1000.0) as u64),
        false => Err("expected a number of seconds above 0".to_owned()),
    }
}

/// Runs the commands.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let commands = arguments.commands()?;
    block_on_two_threads(arguments.run(commands, console))?
}

/// Makes a directory and those above it. Returns the new ones, the inner ones first.
fn make_directories(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let above = directory.ancestors().filter(|it| !it.as_os_str().is_empty());
    let missing = above.take_while(|it| !it.exists()).map(Path::to_owned).collect();
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    Ok(missing)
}

impl Arguments {
    /// The command of all lines.
    fn commands(&self) -> anyhow::Result<CommandList> {
        let wrong = |text: &str| Err(anyhow!(UsageError(text.to_owned())));
        let base = CommandList {
            retries: self.retries,
            time_ms: self.time.unwrap_or(0),
            ..CommandList::default()
        };
        let shell = |script: &str| ["sh", "-c", script].map(str::to_owned).to_vec();
        if self.commands.is_some() {
            return Ok(CommandList { words: shell("{}"), ..base });
        }
        match &self.command[..] {
            [] => wrong("name a command behind --, or a file of commands with --commands"),
            words if words.iter().any(|word| word.contains('\0')) => {
                wrong("the command has a NUL byte, which no command takes")
            }
            [word] if word.trim().is_empty() => wrong("the command is empty"),
            [word] if word.contains(|c| SHELL.contains(c)) => {
                Ok(CommandList { words: shell(word), is_quoted: true, ..base })
            }
            words => Ok(CommandList { words: words.to_vec(), ..base }),
        }
    }

    fn source(&self) -> Source<'_> {
        match (&self.array, &self.each_line, &self.commands) {
            (Some(numbers), ..) => Source::Numbers(*numbers),
            (_, Some(file), _) | (_, _, Some(file)) => Source::Lines(file),
            _ => Source::One,
        }
    }

    async fn run(
        &self,
        commands: CommandList,
        console: &mut Console<'_>,
    ) -> anyhow::Result<ExitCode> {
        // Before there are other threads: no signal is lost from here on.
        let mut stop = Stop::listen()?;
        let conf = self.conf(&commands)?;
        let mut asked = Asked::of(&self.which.settings());
        asked.extend(self.memory.map(|bytes| Asked::memory(mib(bytes))));
        asked.extend(self.cpus.map(Asked::cpus));
        let of_asked = async { Ok(of_asked(asked, self.which.manager()).await) };
        for note in stop.before_submission(of_asked).await? {
            console.complain_wrapped(&format!("note: {}", printable(&note)));
        }
        let temporary = match self.output {
            Some(_) => None,
            None => Some(
                tempfile::Builder::new()
                    .prefix(".corona-run-")
                    .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
                    .tempdir_in(".")
                    .context(
                        "the working directory cannot be written; name another with --output",
                    )?,
            ),
        };
        let chosen = self.output.clone();
        let directory = match (&chosen, &temporary) {
            (Some(chosen), _) => chosen.as_path(),
            (None, Some(temporary)) => temporary.path(),
            (None, None) => Path::new("."),
        };
        if self.dry_run {
            return self.plan(directory, &mut stop, console).await;
        }
        let made = make_directories(directory)?;
        let ended = self.run_in(directory, conf, &mut stop, console).await;
        if ended.is_err() {
            // Those that have nothing in them.
            made.iter().map_while(|directory| std::fs::remove_dir(directory).ok()).count();
        }
        if ended.as_ref().is_err_and(|error| error.is::<StillKept>()) {
            temporary.map(tempfile::TempDir::keep);
        }
        ended
    }

    /// Runs the commands, with their results in a directory. If nothing is submitted, nothing stays there.
    async fn run_in(
        &self,
        directory: &Path,
        conf: JobConf,
        stop: &mut Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<ExitCode> {
        let directory =
            directory.canonicalize().with_context(|| directory.display().to_string())?;
        let systems = FileSystems::new(self.which.file_systems()?)?;
        let run = Run::open(&directory, &self.command, self.resume)?;
        let began = Instant::now();
        let begun = self.list(&run).and_then(|all| Ok((all, self.results(&directory)?)));
        let (all, results) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                run.discard_if_unused();
                return Err(error);
            }
        };
        let mut work = Work { arguments: self, conf, systems, run, results, all, total: 0 };
        let mut ended = work.until_done(stop, console).await;
        if work.run.rounds().iter().any(|round| round.kept.is_some()) {
            ended = ended.with_context(|| StillKept(directory.clone()));
        }
        if work.run.is_unused() {
            work.results.discard();
            work.run.discard_if_unused();
            return ended.map(|()| ExitCode::SUCCESS);
        }
        let (total, done) = (work.total, work.results.count());
        let failures = work.results.failures();
        for failed in work.results.failed() {
            let (node, tries) =
                (printable(&failed.node), counted(failed.attempts.into(), "attempt"));
            let how = failed.how();
            let how = printable(&how);
            console.complain(&format!("command {} failed: {how} ({node}, {tries})\n", failed.id));
        }
        console.complain(&format!(
            "{}: {} succeeded, {failures} failed, {} without a result; {:.1} s\n",
            counted(total, "command"),
            done.saturating_sub(failures),
            total.saturating_sub(done),
            began.elapsed().as_secs_f64()
        ));
        ended?;
        let succeeded = done >= total && failures == 0;
        if done >= total {
            work.run.clean_up();
        }
        Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
    }

    fn results(&self, directory: &Path) -> anyhow::Result<Results> {
        let sink = match (self.json, &self.output) {
            (_, Some(_)) => Sink::Files,
            (true, None) => Sink::None,
            (false, None) => Sink::Streams,
        };
        Results::open(directory, self.log.as_deref(), sink, self.json)
    }

    /// The file of the list, which is the same as before if the run is resumed.
    fn list(&self, run: &Run) -> anyhow::Result<PathBuf> {
        let (path, new) = (run.path("list"), run.path("list.new"));
        if self.resume && path.exists() {
            // Stdin can be read only once.
            if !matches!(self.source(), Source::Lines(file) if file.as_os_str() == "-") {
                list::write(&self.source(), &new)?;
                let is_same = list::is_same(&path, &new)?;
                std::fs::remove_file(&new).with_context(|| new.display().to_string())?;
                ensure!(is_same, "the list is not that of the run; --resume needs the same list");
            }
            return Ok(path);
        }
        list::write(&self.source(), &new)?;
        std::fs::rename(&new, &path).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Commands of a map.
    async fn commands_of_a_map(&self, count: u64) -> u64 {
        let slots = Job::map_slots(&self.which).await.unwrap_or(USUAL_SLOTS);
        let wanted = slots.saturating_mul(MAPS_PER_SLOT) as u64;
        let maps = match self.max_running {
            // As many maps as may run at a time: there is no other limit for one job.
            Some(most) => u64::from(most).min(MOST_MAPS),
            None => wanted.max(count.div_ceil(MOST_COMMANDS_OF_A_MAP)).min(MOST_MAPS),
        };
        count.div_ceil(maps.max(1)).max(1)
    }

    async fn plan(
        &self,
        directory: &Path,
        stop: &mut Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<ExitCode> {
        let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
        let list = scratch.path().join("list");
        list::write(&self.source(), &list)?;
        let has_result = match self.resume {
            true => Some(results::numbers_in(directory)?),
            false => None,
        };
        let is_wanted = |number| has_result.as_ref().is_none_or(|results| !results.has(number));
        let count = list::select(&list, &scratch.path().join("rest"), is_wanted)?;
        let of_a_map = stop.before_submission(async { Ok(self.commands_of_a_map(count).await) });
        let of_a_map = of_a_map.await?;
        let maps = count.div_ceil(of_a_map);
        match self.json {
            true => console.print_json(&serde_json::json!({
                "commands": count, "maps": maps, "commands_of_a_map": of_a_map,
            }))?,
            false => console.print(&format!(
                "{} in {}, {of_a_map} each\n",
                counted(count, "command"),
                counted(maps, "map")
            ))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The configuration of the job.
    fn conf(&self, commands: &CommandList) -> anyhow::Result<JobConf> {
        let mut conf = self.which.job_conf()?;
        super::job::commands::base(&mut conf);
        let name = match (&self.name, &self.commands) {
            (Some(name), _) => name.clone(),
            (None, Some(file)) => file.display().to_string(),
            (None, None) => self.command.join(" "),
        };
        conf.set("mapred.job.name", &name);
        conf.set("user.name", &self.which.file_systems()?.user);
        conf.set("mapred.reduce.tasks", "0");
        // A command must not run twice at a time.
        conf.set("mapred.map.tasks.speculative.execution", "false");
        let list = serde_json::to_string(commands)?;
        conf.set("corona.task.mapper", &format!("commands {}", encoded(&list)));
        if let Some(bytes) = self.memory {
            conf.set("mapred.job.map.memory.mb", &mib(bytes).to_string());
        }
        if let Some(cpus) = self.cpus {
            conf.set("corona.job.map.cpus", &cpus.to_string());
        }
        let settings = self.which.settings();
        for (key, value) in &settings {
            conf.set(key, value);
        }
        super::job::commands::check_settings(&conf, &settings).map_err(UsageError)?;
        NativeJob::of(&conf).context("the job cannot be run")?;
        Ok(conf)
    }
}

/// A run that goes on.
struct Work<'a> {
    arguments: &'a Arguments,
    /// The configuration of its jobs.
    conf: JobConf,
    systems: FileSystems,
    run: Run,
    results: Results,
    /// The file of the list.
    all: PathBuf,
    /// The number of commands.
    total: u64,
}

/// An error after which a job tracker may keep results that were not taken.
#[derive(Debug)]
struct StillKept(PathBuf);

impl fmt::Display for StillKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not finished; to go on: --resume --output {}",
            word_of_line(&self.0.to_string_lossy())
        )
    }
}

impl Work<'_> {
    /// Takes the results of earlier jobs, and runs the commands that have none.
    async fn until_done(
        &mut self,
        stop: &mut Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<()> {
        let earlier = self.run.rounds().to_vec();
        self.total = list::select(&self.all, Path::new("/dev/null"), |_| true)?;
        for round in earlier {
            let job = round.job.as_deref().and_then(|job| job.parse::<JobId>().ok());
            let job = job.map(|id| Job::again(id, &self.arguments.which)).transpose()?;
            self.follow(&round, job, None, stop, console).await?;
            ensure!(!stop.is_wanted(), "stopped; --resume goes on with what is left");
        }
        if self.results.count() >= self.total {
            return Ok(());
        }
        let round = self.run.begin_round()?;
        let (job, count, parts) = match self.submit(&round, stop, console).await {
            Ok(submitted) => submitted,
            Err(error) => {
                if !error.is::<MayRun>() {
                    self.run.forget_round()?;
                }
                return Err(error);
            }
        };
        console.complain(&format!(
            "{}: {} in {}\n",
            job.id,
            counted(count, "command"),
            counted(parts as u64, "map")
        ));
        let round = self.run.rounds().last().cloned().unwrap_or(round);
        self.follow(&round, Some(job), Some(parts), stop, console).await?;
        let missing = self.total.saturating_sub(self.results.count());
        ensure!(
            missing == 0,
            "{} have no result; --output DIR --resume runs them",
            counted(missing, "command")
        );
        Ok(())
    }

    /// Submits a job for the commands that have no result. Returns it, and how many commands and maps it has.
    async fn submit(
        &mut self,
        round: &Round,
        stop: &mut Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<(Job, u64, usize)> {
        let part = self.run.path(&format!("{}.list", round.output));
        let results = &self.results;
        let count = list::select(&self.all, &part, |number| !results.has(number))?;
        let of_a_map = self.arguments.commands_of_a_map(count);
        let of_a_map = stop.before_submission(async { Ok(of_a_map.await) }).await?;
        let cuts = list::cut(&part, of_a_map)?;
        let output = self.run.path(&round.output);
        let (which, systems) = (&self.arguments.which, &self.systems);
        let conf = self.conf.clone();
        let parts = Parts { list: &part, cuts: &cuts };
        // Before it is submitted: another process must find a job that runs.
        let note = |id: &JobId, kept: Option<&FsPath>| {
            self.run.note_job(id.to_string(), kept.map(FsPath::to_string))
        };
        let job = Job::submit(which, systems, conf, parts, &output, note, stop, console).await?;
        Ok((job, count, cuts.len()))
    }

    /// The results of a round that its job tracker keeps; none if the machines share the directory.
    fn kept(&self, round: &Round) -> anyhow::Result<Option<KeptResults>> {
        round.kept.as_deref().map(|path| KeptResults::open(&self.systems, path)).transpose()
    }

    /// Takes the results of a job until it is over; without one, those that are there. `parts` is their number,
    /// which is not known of an earlier job.
    async fn follow(
        &mut self,
        round: &Round,
        mut job: Option<Job>,
        parts: Option<usize>,
        stop: &mut Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<()> {
        let output = self.run.path(&round.output);
        let kept = self.kept(round)?;
        let mut taken = BTreeSet::new();
        let (mut pauses, mut is_killed, mut shown) = (PAUSES, false, 0);
        let mut is_named = parts.is_some();
        let mut over_since = None;
        loop {
            if let (Some(kept), Some(_), false) = (&kept, &job, is_killed) {
                // What cannot be brought now is brought later: the next look waits for the job tracker.
                let _ = stop.or(kept.bring(&output)).await;
            }
            let before = taken.len();
            self.take(&output, &mut taken, job.is_none(), console)?;
            if taken.len() > before {
                pauses.reset();
            }
            self.show(&mut shown, console);
            let Some(job) = &mut job else { return Ok(()) };
            // It was wanted while the job was submitted.
            if stop.is_wanted() && !is_killed {
                is_killed = true;
                job.kill().await?;
            }
            let look = match over_since {
                Some(_) => Look::Over { state: "SUCCEEDED", note: None },
                None => job.look().await?,
            };
            if let (Some(kept), false) = (&kept, matches!(look, Look::Runs)) {
                let is_forgotten = matches!(look, Look::Forgotten);
                self.bring_rest(kept, round, &job.id, is_forgotten, stop, console).await?;
            }
            match look {
                Look::Forgotten => {
                    self.take(&output, &mut taken, true, console)?;
                    return Ok(());
                }
                // What an earlier job has left undone is done by the next one.
                Look::Over { .. } if parts.is_none() => {
                    self.take(&output, &mut taken, true, console)?;
                    return Ok(());
                }
                Look::Over { state: "SUCCEEDED", .. } => {
                    let since = *over_since.get_or_insert_with(Instant::now);
                    self.take(&output, &mut taken, false, console)?;
                    if parts.is_none_or(|parts| taken.len() >= parts) {
                        return Ok(());
                    }
                    ensure!(
                        kept.is_none(),
                        "{} has succeeded, but its job tracker does not have all results",
                        job.id
                    );
                    ensure!(
                        since.elapsed() < SIGHT_PATIENCE,
                        "{} has succeeded, but this machine does not see all results in {}: the machines \
                         do not share the directory",
                        job.id,
                        output.display()
                    );
                }
                Look::Over { state, note } => {
                    self.take(&output, &mut taken, true, console)?;
                    for text in job.failures().await {
                        console.complain(&text);
                    }
                    let note =
                        note.map(|note| format!(": {}", printable(&note))).unwrap_or_default();
                    return Err(anyhow!("{} was {}{note}", job.id, state.to_lowercase()));
                }
                Look::Runs if !is_named => {
                    is_named = true;
                    console.complain(&format!("{}: started before, and runs still\n", job.id));
                }
                Look::Runs => {}
            }
            if stop.or(tokio::time::sleep(pauses.pause())).await.is_none() {
                ensure!(!is_killed, "stopped before the end of {}; it may still run", job.id);
                console.complain(&format!("killing {}; again to stop at once\n", job.id));
                is_killed = true;
                job.kill().await?;
                pauses.reset();
            }
        }
    }

    /// Brings the results that are still where the job of a round ran. Where the job is forgotten and they cannot be
    /// brought, they are given up if the user wants that.
    async fn bring_rest(
        &mut self,
        kept: &KeptResults,
        round: &Round,
        job: &JobId,
        is_forgotten: bool,
        stop: &mut Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<()> {
        let brought = stop.or(kept.bring_rest(&self.run.path(&round.output))).await;
        let brought = brought.unwrap_or_else(|| Err(anyhow!("stopped")));
        // The job is forgotten, and its results cannot be brought.
        let is_lost = self.arguments.rerun_lost
            && is_forgotten
            && brought.is_err()
            && !stop.is_wanted()
            && stop.or(kept.are_lost()).await == Some(true);
        match brought {
            Err(error) if is_lost => {
                console.complain(&format!(
                    "{job}: runs its commands without a result again: {}\n",
                    printable(&format!("{error:#}"))
                ));
                self.run.give_up(round)?;
            }
            brought => brought.with_context(|| {
                format!(
                    "{job} has results that its job tracker keeps; --resume takes them, and if that job \
                     tracker is gone for good, --resume --rerun-lost runs those commands again"
                )
            })?,
        }
        Ok(())
    }

    /// Takes the results of maps that have been committed. With `--keep-order`, those of a map wait for those of
    /// the maps before it, unless these `are_last` and no others come.
    fn take(
        &mut self,
        output: &Path,
        taken: &mut BTreeSet<u64>,
        are_last: bool,
        console: &mut Console<'_>,
    ) -> anyhow::Result<()> {
        let entries = match std::fs::read_dir(output) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(|| output.display().to_string()),
        };
        let mut new = BTreeSet::new();
        for entry in entries {
            let name = entry.with_context(|| output.display().to_string())?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("part-")?.parse().ok());
            new.extend(number.filter(|number| !taken.contains(number)));
        }
        for number in new {
            if self.arguments.keep_order && !are_last && number != taken.len() as u64 {
                break;
            }
            self.results.collect(&output.join(format!("part-{number:05}")), console)?;
            taken.insert(number);
        }
        Ok(())
    }

    /// Says how far the run is, at each tenth.
    fn show(&self, shown: &mut u64, console: &mut Console<'_>) {
        let (done, total) = (self.results.count(), self.total.max(1));
        let tenth = done.saturating_mul(10) / total;
        if tenth > *shown && done < self.total {
            *shown = tenth;
            console.complain(&format!("{done} of {} done\n", counted(total, "command")));
        }
    }
}
