//! `corona job`: runs a job of programs that read and write lines, without Java.
//!
//! It does what the original's streaming client does: it cuts the input into splits, puts the files of the
//! job where the job tracker finds them, submits, and follows the job to its end. `inputs.rs` has the
//! splits, `conf.rs` the configuration, `follow.rs` the rest of the job's life, `stop.rs` what Ctrl-C does,
//! and `submit.rs` a job whose configuration is ready.

mod archive;
mod checks;
pub(super) mod commands;
mod conf;
mod deliver;
mod follow;
mod inputs;
mod notes;
mod output;
mod sight;
pub(super) mod stop;
pub(super) mod streaming;
mod submit;
mod waiting;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use corona::config::JobConf;
use corona::filesystem::{CreateOptions, FileSystem, FileSystems, FsPath, LocalFiles, put};
use corona::hadoop::io::Writer;
use corona::hadoop::io::formats::Writable;
use corona::hadoop::writables::{FileSplit, FileVersion, JobId, RawSplit, SplitFile, to_bytes};
use serde::Serialize;

use super::arguments::{mib, parse_memory, parse_size};
use super::cluster::block_on_two_threads;
use super::jobs::{Caller, Which};
use super::{EXIT_FAILED, UsageError};
use conf::{Chosen, ShippedFile, Variable};
use corona_terminal::console::{Console, printable};
use corona_terminal::counted;
use corona_terminal::table::{Column, Table};
use deliver::{MAX_SPLIT_BYTES, Place, deliver};
use follow::{Follower, Voice};
use inputs::{InputSplit, Inputs, Selection, list_of};
use output::Output;
use sight::Sight;
use stop::Stop;
use waiting::Waiting;

const EXAMPLES: &str = "\
Examples:
  Count the words of a file with built-in steps:
    corona job run --input notes.txt --output words \\
      --mapper builtin:wc --combiner builtin:wc --reducer builtin:wc
  A job of Java or of native tasks whose configuration is ready:
    corona job submit job.xml --jar wordcount.jar

'corona job run --help' has more of them.

Exit status: 0 the job succeeded; 1 it failed or was killed, with the reason on
stderr; 2 wrong usage.";

const RUN_HELP: &str = "\
Examples:
  Count the words of a file with built-in steps:
    corona job run --input notes.txt --output words \\
      --mapper builtin:wc --combiner builtin:wc --reducer builtin:wc
  The same with programs, in two reduces:
    corona job run --input 'logs/*.txt' --output words --reduces 2 \\
      --mapper \"tr -s ' ' '\\n'\" --reducer 'uniq -c'
  With a script of your own, and a package that it imports:
    corona job run --input in --output out --file map.py --file package \\
      --mapper 'python3 map.py' --reduces 0
  What it would read:
    corona job run --input in --output out --mapper cat --dry-run

A CMD that has any of the characters |&;<>()$`\\\"'*?[]#~=%!{} is run by sh -c;
any other is split into words at blanks. It reads lines and writes lines: what
stands before the first tab is the key. A CMD of the form builtin:NAME is a
built-in step: cat, wc, sort, grep TEXT or sh COMMAND, which runs COMMAND by
sh -c whatever characters it has. A combiner is wc or sh COMMAND.
A line on its stderr such as reporter:counter:GROUP,NAME,1 or
reporter:status:TEXT is for the job; other lines go to the task's log.
Ctrl-C kills the job; again, it stops this program within 2 s, even if the
job tracker has not answered.";

/// Run a job of programs that read and write lines
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
#[command(subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Run a job and wait for its end
    #[command(after_help = RUN_HELP)]
    Run(Box<Run>),
    /// Run a job whose configuration is ready and wait for its end
    #[command(after_help = submit::HELP)]
    Submit(Box<submit::Submit>),
}

#[derive(Args, Clone, Debug)]
struct Run {
    /// Files, directories or patterns to read, plain or compressed (.gz,
    /// .bz2, .deflate, .xz, .zst); may be repeated
    #[arg(long, value_name = "URI", required = true, num_args = 1..)]
    #[arg(value_parser = conf::parse_uri)]
    input: Vec<String>,

    /// Directory to write, which must not exist without --overwrite
    #[arg(long, value_name = "URI", value_parser = conf::parse_uri)]
    output: String,

    /// Replace the output of an earlier job; a directory that has anything
    /// else is refused
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    steps: Steps,

    /// Number of reduces; 0: the mappers' output is the output
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(..=100_000))]
    reduces: Option<u32>,

    /// Bytes that one map reads, such as 64m [default: a block of the file]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    split_size: Option<usize>,

    /// Memory that each task may use, such as 2g; it is also what is requested
    /// for each, where the cluster counts memory
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<usize>,

    /// CPUs that are requested for each task: where the cluster counts only
    /// slots, as many slots
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    cpus: Option<u16>,

    /// Name of the job for people [default: the mapper]
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,

    /// Show what the job would read and how much each task would get, and
    /// submit nothing
    #[arg(long)]
    dry_run: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    which: Which,
}

/// What the job does with its records.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Steps")]
struct Steps {
    /// Program that maps lines to lines
    #[arg(long, value_name = "CMD", value_parser = conf::parse_command)]
    mapper: String,

    /// Program that reduces the output of each map; it keeps the order of the
    /// keys
    #[arg(long, value_name = "CMD", value_parser = conf::parse_combiner)]
    combiner: Option<String>,

    /// Program that reduces lines sorted by key [default: builtin:cat]
    #[arg(long, value_name = "CMD", value_parser = conf::parse_command)]
    reducer: Option<String>,

    /// Text between the fields of the mapper's and the reducer's lines
    /// [default: tab]
    #[arg(long, value_name = "TEXT", value_parser = conf::parse_separator)]
    separator: Option<String>,

    /// Number of fields that are the key [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    key_fields: Option<u32>,

    /// Distribute records by these parts of the key, as sort -k names them,
    /// such as 1,2
    #[arg(long, value_name = "FIELDS", value_parser = conf::parse_key_part)]
    partition_by: Option<String>,

    /// Order the keys by this part, as sort -k names it, such as 2,2nr: n for
    /// numbers, r for the largest first; may be repeated
    #[arg(long, value_name = "FIELDS", value_parser = conf::parse_key_part)]
    sort_by: Vec<String>,

    /// File or directory for the tasks, in their working directory, under its
    /// own name or another one; may be repeated
    #[arg(long, value_name = "FILE[#NAME]", value_parser = conf::parse_file)]
    file: Vec<ShippedFile>,

    /// Archive for the tasks (.jar, .zip, .tar, .tar.gz, .tgz), unpacked in a
    /// directory of its own name or another one; may be repeated
    #[arg(long, value_name = "FILE[#NAME]", value_parser = conf::parse_archive)]
    archive: Vec<ShippedFile>,

    /// Variable for the programs; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = conf::parse_variable)]
    env: Vec<Variable>,

    /// Compress the output, with gzip if no codec is named
    #[arg(long, value_name = "CODEC", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "gzip")]
    compress_output: Option<OutputCodec>,

    /// Compress what goes from maps to reduces
    #[arg(long)]
    compress_map_output: bool,

    /// Skip records that are too large (corona.task.max.record.bytes) instead
    /// of failing, and count them
    #[arg(long)]
    skip_bad_records: bool,

    /// Lines that a map may leave out around one on which its program fails,
    /// in its third attempt or a later one
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    max_skipped_records: Option<u32>,

    /// Keys that a reduce may leave out in the same way
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    max_skipped_groups: Option<u32>,

    /// Maps that may fail without failing the job, in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(..=100))]
    max_failed_maps: Option<u8>,
}

#[cfg(test)]
impl Steps {
    /// As the parser reads them from these words.
    fn of_line(words: &[&str]) -> Steps {
        use clap::FromArgMatches;

        let line = Steps::augment_args(clap::Command::new("x"));
        let found = line.get_matches_from([&["x"], words].concat());
        Steps::from_arg_matches(&found).unwrap()
    }
}

impl Steps {
    /// The commands that are named, with their options.
    fn commands(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let commands = [
            ("--mapper", Some(&self.mapper)),
            ("--combiner", self.combiner.as_ref()),
            ("--reducer", self.reducer.as_ref()),
        ];
        commands.into_iter().filter_map(|(option, command)| Some((option, command?.as_str())))
    }
}

/// How the output is compressed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OutputCodec {
    Gzip,
    Deflate,
}

/// Runs a job.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    act(arguments.action, console)
}

/// Submits a job whose configuration is ready, and prints its id.
///
/// # Errors
/// When it cannot be submitted.
pub(super) fn submit(conf: &str, which: Which, console: &mut Console<'_>) -> anyhow::Result<()> {
    let submit = submit::Submit::of_file(conf.into(), which);
    act(Action::Submit(Box::new(submit)), console).map(drop)
}

fn act(action: Action, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    block_on_two_threads(async {
        match action {
            Action::Run(run) => run.run(console).await,
            Action::Submit(submit) => submit.run(console).await,
        }
    })?
}

/// What a job would do, as JSON.
#[derive(Serialize)]
struct DryRun<'a> {
    files: usize,
    bytes: u64,
    maps: usize,
    reduces: u32,
    output: String,
    /// Bytes of the largest split.
    largest_split: u64,
    /// Maps whose input has a host: they run there if they can.
    maps_with_hosts: usize,
    /// Bytes that a reduce gets if the mapper writes as much as it reads and the keys are spread evenly.
    bytes_per_reduce: Option<u64>,
    #[serde(flatten)]
    waves: Option<Waves>,
    splits: &'a [InputSplit],
}

/// How often the slots of the cluster are filled with tasks of the job, if no other job runs.
#[derive(Clone, Copy, Debug, Serialize)]
struct Waves {
    map_slots: usize,
    map_waves: usize,
    reduce_slots: usize,
    reduce_waves: usize,
}

/// How long a job tracker may take to answer a question that is not needed.
const CLUSTER_PATIENCE: Duration = Duration::from_secs(2);

impl Run {
    async fn run(self, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
        checks::check(&self.steps)?;
        // Before there are other threads: no signal is lost from here on.
        let mut stop = Stop::listen()?;
        let site = self.which.job_conf()?;
        let systems = FileSystems::new(self.which.file_systems()?)?;
        let selection = self.selection(&site)?;
        let inputs = Inputs::find(&systems, &self.input, &selection);
        let waiting = Waiting::new("the file system of the inputs");
        let inputs = stop.before_submission(waiting.on(inputs, console)).await?;
        let output = self.find_output(&systems, &inputs);
        let output = stop.before_submission(output).await?;
        let mut conf = self.conf(site, &inputs, &output.path)?;
        let reduces = conf::reduces(&conf);
        conf::check(&conf, &self.steps, &self.which.settings())?;
        conf::check_tasks(&conf, inputs.splits.len())?;
        let mut caller = self.which.caller()?;
        let settings = self.which.settings();
        let mut noted = notes::of(&self, &settings, &inputs, &output.path);
        let mut asked = notes::Asked::of(&settings);
        asked.extend(self.memory.map(|bytes| notes::Asked::memory(mib(bytes))));
        asked.extend(self.cpus.map(notes::Asked::cpus));
        let of_asked = async { Ok(notes::of_asked(asked, self.which.manager()).await) };
        noted.extend(stop.before_submission(of_asked).await?);
        for note in noted {
            console.complain_wrapped(&format!("note: {}", printable(&note)));
        }
        if self.dry_run {
            let waves = async { Ok(waves(&mut caller, inputs.splits.len(), reduces).await) };
            let planned = DryRun {
                files: inputs.files,
                bytes: inputs.bytes,
                maps: inputs.splits.len(),
                reduces,
                output: output.path.to_string(),
                largest_split: inputs.splits.iter().map(|split| split.length).max().unwrap_or(0),
                maps_with_hosts: inputs.splits.iter().filter(|s| !s.hosts.is_empty()).count(),
                bytes_per_reduce: inputs.bytes.checked_div(reduces.into()),
                waves: stop.before_submission(waves).await?,
                splits: &inputs.splits,
            };
            show(&planned, self.json, console)?;
            return Ok(ExitCode::SUCCESS);
        }
        let waiting = Waiting::of(&caller, &self.which);
        let splits = inputs.splits.iter().map(|it| (&*it.path, it.start.saturating_add(it.length)));
        let sight = Sight::new(&output, splits);
        let place = Place { systems: &systems, output: &output, sight: &sight, waiting: &waiting };
        let id = self.submit(&mut caller, &place, &inputs, &mut conf, &mut stop, console).await?;
        let follower = Follower {
            id,
            maps: inputs.splits.len(),
            reduces,
            bytes: inputs.bytes,
            output: output.path.to_string(),
            parts: self.parts(inputs.splits.len(), &conf),
            voice: Voice::of(self.json),
        };
        match follower.follow(&mut caller, &output, waiting, stop, console).await? {
            true => Ok(ExitCode::SUCCESS),
            false => Ok(ExitCode::from(EXIT_FAILED)),
        }
    }

    /// How many parts the output has at least.
    fn parts(&self, maps: usize, conf: &JobConf) -> usize {
        let may_fail = |key: &str| conf.get(key).is_some_and(|percent| percent.trim() != "0");
        match conf::reduces(conf) {
            0 if may_fail("mapred.max.map.failures.percent") => 0,
            0 => maps,
            _ if may_fail("mapred.max.reduce.failures.percent") => 0,
            reduces => reduces as usize,
        }
    }

    /// Where the job writes, which its tasks must see as it is seen here.
    async fn find_output(&self, systems: &FileSystems, inputs: &Inputs) -> anyhow::Result<Output> {
        if self.output.contains("${") {
            let wrong = "has ${, which tasks replace by settings; expected a name without it";
            bail!(UsageError(format!("--output {} {wrong}", self.output)));
        }
        let splits = inputs.splits.iter().map(|split| split.path.as_str());
        Output::find(
            systems,
            &self.output,
            self.overwrite,
            "name a new directory with --output",
            splits,
        )
        .await
    }

    /// Which files the job reads, and how they are cut.
    fn selection(&self, site: &JobConf) -> anyhow::Result<Selection> {
        let mut conf = site.clone();
        conf::base(&mut conf);
        for (key, value) in self.which.settings() {
            conf.set(&key, &value);
        }
        Selection::of(&conf, self.split_size.map(|bytes| bytes as u64))
    }

    /// The configuration of the job, all but what follows from its id.
    fn conf(&self, mut conf: JobConf, inputs: &Inputs, output: &FsPath) -> anyhow::Result<JobConf> {
        let steps = &self.steps;
        conf::base(&mut conf);
        conf.set("mapred.job.name", &steps.mapper);
        let user = self.which.file_systems()?.user;
        conf.set("user.name", &user);
        if let Ok(directory) = std::env::current_dir() {
            conf.set("mapred.working.dir", &format!("file:{}", directory.display()));
        }
        let mut chosen = Chosen::new(&mut conf);
        chosen.set("--output", "mapred.output.dir", &output.to_string());
        chosen.set("--input", "mapred.input.dir", &list_of(&self.input));
        conf::steps(&mut chosen, steps);
        if let Some(reduces) = self.reduces {
            chosen.set("--reduces", "mapred.reduce.tasks", &reduces.to_string());
        }
        if let Some(bytes) = self.memory {
            let mib = mib(bytes).to_string();
            chosen.set("--memory", "mapred.job.map.memory.mb", &mib);
            chosen.set("--memory", "mapred.job.reduce.memory.mb", &mib);
        }
        if let Some(cpus) = self.cpus {
            chosen.set("--cpus", "corona.job.map.cpus", &cpus.to_string());
            chosen.set("--cpus", "corona.job.reduce.cpus", &cpus.to_string());
        }
        if let Some(name) = &self.name {
            chosen.set("--name", "mapred.job.name", name);
        }
        chosen.override_with(&self.which.settings())?;
        // The number of the splits, whatever was wished for.
        conf.set("mapred.map.tasks", &inputs.splits.len().to_string());
        Ok(conf)
    }

    /// Puts the files of the job where the job tracker finds them, and submits it.
    async fn submit(
        &self,
        caller: &mut Caller,
        place: &Place<'_>,
        inputs: &Inputs,
        conf: &mut JobConf,
        stop: &mut Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<JobId> {
        let splits = split_file(&inputs.splits)?;
        let local = LocalFiles::new(&self.which.file_systems()?);
        let Steps { file, archive, .. } = &self.steps;
        let shipment = Shipment { files: file, archives: archive, words: ("--file", "--archive") };
        let ship = async |files: &dyn FileSystem, directory: &FsPath, conf: &mut JobConf| {
            shipment.ship(files, directory, &local, conf).await
        };
        deliver(caller, place, &splits, conf, ship, stop, console).await
    }
}

/// What the cluster makes of so many tasks. None if the job tracker does not answer or has no slots.
async fn waves(caller: &mut Caller, maps: usize, reduces: u32) -> Option<Waves> {
    let asked = caller.client.get_cluster_status(false);
    let status = tokio::time::timeout(CLUSTER_PATIENCE, asked).await.ok()?.ok()??;
    let slots = |count: i32| usize::try_from(count).ok().filter(|count| *count > 0);
    let (map_slots, reduce_slots) = (slots(status.max_maps)?, slots(status.max_reduces)?);
    Some(Waves {
        map_slots,
        map_waves: maps.div_ceil(map_slots),
        reduce_slots,
        reduce_waves: (reduces as usize).div_ceil(reduce_slots),
    })
}

/// Files of this machine that a job takes with it.
struct Shipment<'a> {
    files: &'a [ShippedFile],
    archives: &'a [ShippedFile],
    /// The options that name them, for errors.
    words: (&'static str, &'static str),
}

impl Shipment<'_> {
    /// Copies them, and lists them in the configuration.
    async fn ship(
        &self,
        files: &dyn FileSystem,
        directory: &FsPath,
        local: &LocalFiles,
        conf: &mut JobConf,
    ) -> anyhow::Result<()> {
        let (mut shipped, mut archives) = (Shipped::default(), Shipped::default());
        let copy = async |from: &Path, target: &FsPath| {
            put(from, files, target, local, CreateOptions::default(), &mut |_| ()).await?;
            anyhow::Ok(files.status(target).await?.modified_ms)
        };
        // Each archive has a directory of its own: names of links differ, but not those of archives.
        let place_of = |number: usize, name: String| {
            directory.join("archives").join(&number.to_string()).join(&name)
        };
        for (number, file) in self.files.iter().enumerate() {
            let what = || format!("{} {}", self.words.0, file.path.display());
            if file.path.is_dir() {
                let packed = archive::pack(&file.path).with_context(what)?;
                let target = place_of(number, format!("{}.tar", file.name));
                let time = copy(packed.path(), &target).await.with_context(what)?;
                archives.add(&target, &file.name, time);
            } else {
                let target = directory.join("files").join(&file.name);
                let time = copy(&file.path, &target).await.with_context(what)?;
                shipped.add(&target, &file.name, time);
            }
        }
        for (number, archive) in self.archives.iter().enumerate() {
            let ending = archive::ending(&archive.path).unwrap_or_default();
            let name = archive.name.strip_suffix(ending).unwrap_or(&archive.name);
            let target = place_of(self.files.len() + number, format!("{name}{ending}"));
            let time = copy(&archive.path, &target).await;
            let time =
                time.with_context(|| format!("{} {}", self.words.1, archive.path.display()))?;
            archives.add(&target, &archive.name, time);
        }
        for (of, key) in [(shipped, "mapred.cache.files"), (archives, "mapred.cache.archives")] {
            conf::add(conf, key, &of.uris);
            conf::add(conf, &format!("{key}.timestamps"), &of.times);
        }
        Ok(())
    }
}

/// Files or archives for the tasks: where they are and when they were written.
#[derive(Default)]
struct Shipped {
    uris: Vec<String>,
    times: Vec<String>,
}

impl Shipped {
    fn add(&mut self, target: &FsPath, name: &str, modified_ms: i64) {
        self.uris.push(format!("{target}#{name}"));
        self.times.push(modified_ms.to_string());
    }
}

/// The bytes of the split file. Spec: mapreduce/02 §2.11.
fn split_file(splits: &[InputSplit]) -> anyhow::Result<Vec<u8>> {
    const MOST_SPLIT_BYTES: usize = 1 << 20;
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let raw = |split: &InputSplit| -> anyhow::Result<RawSplit> {
        let (start, length) = (whole(split.start), whole(split.length));
        let mut data =
            to_bytes(&FileSplit { path: split.path.clone(), start, length }, MOST_SPLIT_BYTES)?;
        if let Some((version, bytes)) = &split.version {
            let version = FileVersion { version: (**version).to_owned(), bytes: whole(*bytes) };
            data.extend(to_bytes(&version, MOST_SPLIT_BYTES)?);
        }
        let class = "org.apache.hadoop.mapred.FileSplit".to_owned();
        Ok(RawSplit { class, length, data, hosts: split.hosts.clone() })
    };
    let splits: Vec<RawSplit> = splits.iter().map(raw).collect::<anyhow::Result<_>>()?;
    let mut writer = Writer::new(MAX_SPLIT_BYTES);
    SplitFile { splits }.encode(&mut writer);
    Ok(writer.finish()?)
}

/// Shows what a job would do.
fn show(planned: &DryRun<'_>, json: bool, console: &mut Console<'_>) -> anyhow::Result<()> {
    if json {
        return console.print_json(planned);
    }
    let DryRun { files, bytes, maps, reduces, output, splits, largest_split, .. } = planned;
    let mut table = Table::new(&[
        Column::number("MAP"),
        Column::path("FILE", 20),
        Column::number("START"),
        Column::number("BYTES"),
        Column::path("HOSTS", 10),
    ]);
    for (number, split) in splits.iter().enumerate() {
        let number = number.to_string();
        let (start, length) = (split.start.to_string(), split.length.to_string());
        let (path, hosts) = (split.path.clone(), split.hosts.join(","));
        table.row([number.into(), path.into(), start.into(), length.into(), hosts.into()]);
    }
    let shown = table.render(console, false);
    console.print(&shown)?;
    let mut lines = vec![
        format!(
            "{}, {bytes} bytes, {}, {}; output {output}",
            counted(*files as u64, "file"),
            counted(*maps as u64, "map"),
            counted((*reduces).into(), "reduce")
        ),
        format!("at most {largest_split} bytes a map; {} maps have hosts", planned.maps_with_hosts),
    ];
    if let Some(bytes) = planned.bytes_per_reduce {
        lines.push(format!("{bytes} bytes a reduce if the mapper writes as much as it reads"));
    }
    lines.push(match planned.waves {
        None => {
            "the job tracker does not answer or has no slots, so waves are not known".to_owned()
        }
        Some(Waves { map_slots, map_waves, reduce_slots, reduce_waves }) => format!(
            "waves of tasks on an idle cluster: {map_waves} of maps ({map_slots} slots), \
             {reduce_waves} of reduces ({reduce_slots} slots)"
        ),
    });
    for line in lines {
        console.print(&printable(&line))?;
        console.print("\n")?;
    }
    Ok(())
}
