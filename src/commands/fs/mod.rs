//! `corona fs`: files on HDFS and on this machine, without Java.
//!
//! Messages are those of the original's `hadoop fs` where it has one.

mod copy;
pub(super) mod hadoop;
pub(super) mod protect;
mod remove;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use corona::config::ClientSource;
use corona::filesystem::{
    CreateOptions, ErrorKind, FileReader, FileStatus, FileSystem, FileSystemSettings, FileSystems,
    FsError, FsPath, Listing, LocalFiles, all_given_up, expand,
};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::EXIT_FAILED;
use super::arguments::{Override, conf_dir_of_client, parse_override, parse_size};
use super::cluster::block_on;
use super::signals::{StopSignal, StopSignals};
use corona_terminal::console::{Console, TextForm, printable};
use protect::is_local;
use remove::Removal;

const EXAMPLES: &str = "\
Paths are as for hadoop fs: hdfs://host:port/path, file:/path, or a path in the
default file system (fs.default.name), below /user/USER if it is relative.
Patterns: *, ?, [a-z], [^a-z], {a,b}.

Examples:
  corona fs --conf-dir /etc/hadoop/conf ls /user
  corona fs put job.jar hdfs://namenode:8020/user/alice/
  corona fs get 'logs/part-*' /tmp
  date | corona fs put - /tmp/now

Exit status: 0 done; 1 failed, with a line on stderr for each path; 2 wrong
usage.";

/// Names stdin as a source, and stdout as a target.
const STANDARD: &str = "-";
/// The most files of a directory or a pattern.
const MAX_FILES: usize = 1_000_000;
/// Directories inside one another that are copied.
const MAX_DEPTH: usize = 200;

/// List, read, write and delete files on HDFS, without Java
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub(super) struct Arguments {
    #[command(flatten)]
    configuration: Configuration,

    #[command(flatten)]
    form: Form,

    #[command(subcommand)]
    action: Action,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Configuration")]
struct Configuration {
    /// Directory of the configuration files [default: $HADOOP_CONF_DIR,
    /// else the cluster of 'corona login', else the head of this user here]
    #[arg(long, value_name = "DIR", global = true)]
    conf_dir: Option<PathBuf>,

    /// Also read this property file, after those of the directory; may be
    /// repeated
    #[arg(long, value_name = "FILE", global = true)]
    conf_file: Vec<PathBuf>,

    /// Set a configuration key, overriding the files; may be repeated
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = parse_override, global = true)]
    overrides: Vec<Override>,
}

/// The form of the result. Contents of files are printed as they are in both forms.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Output")]
struct Form {
    /// Output as text for people or as JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TextForm::Text, global = true)]
    output: TextForm,

    /// The same as --output json
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List a directory, or the files that a pattern names
    Ls {
        /// List what is below, too
        #[arg(short, long)]
        recursive: bool,
        /// The files or directories [default: the home directory]
        paths: Vec<String>,
    },
    /// Show what is known of files and directories
    Stat {
        /// The files or directories
        #[arg(required = true)]
        paths: Vec<String>,
    },
    /// Print files, as they are also with --output json
    Cat {
        /// The files
        #[arg(required = true)]
        paths: Vec<String>,
    },
    /// Copy files or directories to this machine
    Get {
        /// The files or directories, then where to; - prints files
        #[arg(required = true, num_args = 2.., value_name = "FROM... TO")]
        paths: Vec<String>,
    },
    /// Copy files or directories of this machine
    Put {
        /// Replace files that exist, and add to directories that do
        #[arg(short, long)]
        force: bool,
        /// Append to a file, creating it if needed
        #[arg(long, conflicts_with_all = ["force", "replication", "block_size"])]
        append: bool,
        /// Replicas of each block [default: dfs.replication]
        #[arg(long, value_parser = clap::value_parser!(i16).range(1..=512))]
        replication: Option<i16>,
        /// Size of a block, such as 64m [default: dfs.block.size]
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        block_size: Option<usize>,
        /// The files or directories, then where to; - reads stdin
        #[arg(required = true, num_args = 2.., value_name = "FROM... TO")]
        paths: Vec<String>,
    },
    /// Make directories, and those above them
    Mkdir {
        /// Do not fail for one that exists
        #[arg(short, long)]
        parents: bool,
        /// The directories
        #[arg(required = true)]
        paths: Vec<String>,
    },
    /// Delete files, or move them to the trash where there is one
    Rm {
        #[command(flatten)]
        how: Removal,
        /// The files or directories
        #[arg(required = true)]
        paths: Vec<String>,
    },
    /// Rename files or directories, or move them into a directory
    Mv {
        /// The files or directories, then where to
        #[arg(required = true, num_args = 2.., value_name = "FROM... TO")]
        paths: Vec<String>,
    },
}

impl Action {
    fn name(&self) -> &'static str {
        match self {
            Action::Ls { recursive: false, .. } => "ls",
            Action::Ls { recursive: true, .. } => "lsr",
            Action::Stat { .. } => "stat",
            Action::Cat { .. } => "cat",
            Action::Get { .. } => "get",
            Action::Put { .. } => "put",
            Action::Mkdir { .. } => "mkdir",
            Action::Rm { .. } => "rm",
            Action::Mv { .. } => "mv",
        }
    }
}

impl Action {
    /// Whether stdout gets what files have.
    fn prints_contents(&self) -> bool {
        match self {
            Action::Cat { .. } => true,
            Action::Get { paths } => paths.last().is_some_and(|to| to == STANDARD),
            _ => false,
        }
    }
}

/// A file or directory, for programs.
#[derive(Serialize)]
struct Entry {
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    bytes: u64,
    replication: i16,
    block_bytes: u64,
    modified_ms: i64,
    accessed_ms: i64,
    permission: String,
    owner: String,
    group: String,
}

impl From<&FileStatus> for Entry {
    fn from(status: &FileStatus) -> Entry {
        Entry {
            path: status.path.to_string(),
            kind: if status.is_directory { "directory" } else { "file" },
            bytes: status.bytes,
            replication: status.replication,
            block_bytes: status.block_bytes,
            modified_ms: status.modified_ms,
            accessed_ms: status.accessed_ms,
            permission: format!("{:03o}", status.permission),
            owner: status.owner.clone(),
            group: status.group.clone(),
        }
    }
}

/// Something that was done, for programs.
#[derive(Serialize)]
struct Done {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

/// Does what is asked for each path. One that fails does not keep the others from being done.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let Configuration { conf_dir, conf_file, overrides } = arguments.configuration;
    let json = arguments.form.json || arguments.form.output == TextForm::Json;
    let conf_dir = conf_dir_of_client(conf_dir, |name| std::env::var_os(name))?;
    let source =
        ClientSource { conf_dir: conf_dir.as_deref(), further: &conf_file, overrides: &overrides };
    let settings = source.load_file_systems()?;
    let shell = Shell {
        local: LocalFiles::new(&settings),
        systems: FileSystems::new(settings.clone())?,
        settings,
    };
    let mut output = Output { json, ..Output::of_command(console, arguments.action.name()) };
    let is_contents = arguments.action.prints_contents();
    let is_put = matches!(arguments.action, Action::Put { .. });
    let act = shell.act(arguments.action, &mut output);
    // One thread for all connections, which need not be handed from one to another; files of this
    // machine are read and written on others.
    let done = block_on(unless_stopped(is_put, act));
    let (has_failed, entries, finished) = (output.has_failed, output.entries, output.done);
    if let Ended::Stopped { by, is_given_up } = done? {
        return Ok(stopped(by, is_given_up, console));
    }
    // What follows the contents of files would look like a part of them.
    if json && !is_contents {
        match entries.is_empty() && !finished.is_empty() {
            true => console.print_json(&finished)?,
            false => console.print_json(&entries)?,
        }
    }
    Ok(if has_failed { ExitCode::from(EXIT_FAILED) } else { ExitCode::SUCCESS })
}

/// How long what has been stopped may be given up.
const GIVING_UP_PATIENCE: Duration = Duration::from_secs(10);

/// How a command has ended.
enum Ended<T> {
    Done(T),
    Stopped {
        by: StopSignal,
        /// Whether nothing unfinished is left.
        is_given_up: bool,
    },
}

/// Does what a command has to do. If it writes files, SIGINT and SIGTERM stop it, and what is unfinished then is given
/// up; a second one ends that as well.
async fn unless_stopped<T>(
    writes: bool,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<Ended<T>> {
    if !writes {
        return work.await.map(Ended::Done);
    }
    let mut signals = StopSignals::listen().context("cannot listen for signals")?;
    let by = tokio::select! {
        done = work => return done.map(Ended::Done),
        signal = signals.next() => signal,
    };
    let is_given_up = tokio::select! {
        done = tokio::time::timeout(GIVING_UP_PATIENCE, all_given_up()) => done == Ok(true),
        _ = signals.next() => false,
    };
    Ok(Ended::Stopped { by, is_given_up })
}

/// The exit status of a command that a signal has stopped, as a shell names it.
fn stopped(by: StopSignal, is_given_up: bool, console: &mut Console<'_>) -> ExitCode {
    let rest = match is_given_up {
        true => "what was unfinished has been given up",
        false => {
            "NAME, an unfinished upload of it or a file NAME.*.tmp may be left; `corona fs rm -r NAME` aborts the upload \
             and deletes what NAME has"
        }
    };
    console.complain(&format!("stopped by {by}; {rest}\n"));
    let number = match by {
        StopSignal::Interrupt => 2,
        StopSignal::Terminate | StopSignal::Hangup => 15,
    };
    ExitCode::from(128 + number)
}

/// Where a command prints, and what it has to print at the end.
struct Output<'a, 'b> {
    console: &'a mut Console<'b>,
    command: &'static str,
    json: bool,
    entries: Vec<Entry>,
    done: Vec<Done>,
    has_failed: bool,
}

impl Done {
    fn copied(from: &str, to: &FsPath, bytes: u64) -> Done {
        Done { path: from.to_owned(), to: Some(to.to_string()), bytes: Some(bytes) }
    }
}

impl<'a, 'b> Output<'a, 'b> {
    /// The text of a command.
    fn of_command(console: &'a mut Console<'b>, command: &'static str) -> Output<'a, 'b> {
        Output {
            console,
            command,
            json: false,
            entries: Vec::new(),
            done: Vec::new(),
            has_failed: false,
        }
    }

    fn fail(&mut self, message: &str) {
        self.has_failed = true;
        let line = format!("{}: {message}", self.command);
        self.console.complain(&format!("{}\n", printable(&line)));
    }

    /// The outcome of a step. A failure is reported.
    fn reported<T>(&mut self, result: Result<T, impl Into<Failure>>) -> Option<T> {
        result.map_err(|failure| self.fail(&failure.into().0)).ok()
    }

    /// Prints a line, unless the result is JSON.
    fn say(&mut self, line: &str) -> anyhow::Result<()> {
        match self.json {
            true => Ok(()),
            false => Ok(self.console.print(&format!("{}\n", printable(line)))?),
        }
    }
}

/// A failure as `hadoop fs` words it.
fn worded(error: &FsError) -> String {
    match error.kind {
        ErrorKind::NotFound => format!("{}: No such file or directory", error.path),
        ErrorKind::Permission | ErrorKind::SafeMode | ErrorKind::Quota => error.first_line().into(),
        _ => error.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

/// The words of a failure.
struct Failure(String);

impl From<FsError> for Failure {
    fn from(error: FsError) -> Failure {
        Failure(worded(&error))
    }
}

impl From<String> for Failure {
    fn from(words: String) -> Failure {
        Failure(words)
    }
}

struct Shell {
    systems: FileSystems,
    local: LocalFiles,
    settings: FileSystemSettings,
}

impl Shell {
    async fn act(&self, action: Action, output: &mut Output<'_, '_>) -> anyhow::Result<()> {
        match action {
            Action::Ls { recursive, paths } => {
                let paths = if paths.is_empty() { vec![".".to_owned()] } else { paths };
                for path in &paths {
                    self.list(path, recursive, output).await?;
                }
            }
            Action::Stat { paths } => {
                for path in &paths {
                    self.stat(path, output).await?;
                }
            }
            Action::Cat { paths } => {
                for path in &paths {
                    self.cat(path, output).await?;
                }
            }
            Action::Get { mut paths } => {
                let to = paths.pop().unwrap_or_default();
                if to == STANDARD {
                    for path in &paths {
                        self.cat(path, output).await?;
                    }
                } else {
                    self.get(&paths, Path::new(&to), output).await?;
                }
            }
            Action::Put { append: true, mut paths, .. } => {
                let to = paths.pop().unwrap_or_default();
                for from in &paths {
                    let done = output.reported(self.append(from, &to).await);
                    output.done.extend(done);
                }
            }
            Action::Put { force, replication, block_size, mut paths, .. } => {
                let to = paths.pop().unwrap_or_default();
                let options = CreateOptions {
                    overwrite: force,
                    replication,
                    block_bytes: block_size.map(|bytes| bytes as u64),
                    ..CreateOptions::default()
                };
                self.put(&paths, &to, options, output).await?;
            }
            Action::Mkdir { parents, paths } => {
                for path in &paths {
                    if let Some(path) = output.reported(self.make_directory(path, parents).await) {
                        output.done.push(Done { path, to: None, bytes: None });
                    }
                }
            }
            Action::Rm { how, paths } => {
                for path in &paths {
                    self.remove(path, how, output).await?;
                }
            }
            Action::Mv { mut paths } => {
                let to = paths.pop().unwrap_or_default();
                self.rename(&paths, &to, output).await?;
            }
        }
        Ok(())
    }

    /// The files that a path or a pattern names.
    async fn found(
        &self,
        text: &str,
    ) -> Result<(Arc<dyn FileSystem>, FsPath, Vec<FileStatus>), FsError> {
        let (files, path) = self.systems.resolve(text)?;
        let found = expand(&*files, &path).await?;
        Ok((files, path, found))
    }

    /// A path and what lies there.
    async fn looked_up(
        &self,
        text: &str,
    ) -> Result<(Arc<dyn FileSystem>, FsPath, Option<FileStatus>), FsError> {
        let (files, path) = self.systems.resolve(text)?;
        let found = files.find(&path).await?;
        Ok((files, path, found))
    }

    /// All files that the arguments name. What cannot be found is reported and left out.
    async fn sources(
        &self,
        from: &[String],
        output: &mut Output<'_, '_>,
    ) -> Vec<(Arc<dyn FileSystem>, FileStatus)> {
        let mut sources = Vec::new();
        for text in from {
            let Some((files, path, found)) = output.reported(self.found(text).await) else {
                continue;
            };
            if found.is_empty() {
                output.fail(&format!("{path}: No such file or directory"));
            }
            sources.extend(found.into_iter().map(|status| (files.clone(), status)));
        }
        sources
    }

    async fn list(
        &self,
        text: &str,
        recursive: bool,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let Some((files, _, found)) = output.reported(self.found(text).await) else {
            return Ok(());
        };
        if found.is_empty() {
            output.fail(&format!("Cannot access {text}: No such file or directory."));
        }
        let has_header = found.len() == 1 && !recursive;
        let mut waiting: Vec<FileStatus> = found.into_iter().rev().collect();
        while let Some(status) = waiting.pop() {
            let items = match status.is_directory {
                false => Ok(Listing { entries: vec![status.clone()], odd: Vec::new() }),
                true => files.list_all(&status.path, MAX_FILES).await,
            };
            let items = match items {
                Ok(Listing { entries, odd }) => {
                    for odd in odd {
                        output.fail(&worded(&odd.error("list", &status.path)));
                    }
                    entries
                }
                Err(error) => {
                    let reason = error.first_line();
                    output.fail(&format!("could not get listing for '{}' : {reason}", status.path));
                    continue;
                }
            };
            if has_header && !items.is_empty() {
                output.say(&format!("Found {} items", items.len()))?;
            }
            if output.json {
                output.entries.extend(items.iter().map(Entry::from));
            } else {
                for line in printed(&items, false) {
                    output.console.print(&format!("{line}\n"))?;
                }
            }
            if recursive {
                let below = items.into_iter().rev();
                waiting.extend(below.filter(|item| item.is_directory && !is_link(&*files, item)));
            }
        }
        Ok(())
    }

    /// The files that `stat` describes. Paths that are not found are reported.
    async fn to_stat(&self, text: &str, output: &mut Output<'_, '_>) -> Vec<FileStatus> {
        let found = output.reported(self.found(text).await);
        let found = found.map(|(_, _, found)| found);
        if found.as_ref().is_some_and(Vec::is_empty) {
            output.fail(&format!("cannot stat `{text}': No such file or directory"));
        }
        found.unwrap_or_default()
    }

    async fn stat(&self, text: &str, output: &mut Output<'_, '_>) -> anyhow::Result<()> {
        for status in self.to_stat(text, output).await {
            if output.json {
                output.entries.push(Entry::from(&status));
                continue;
            }
            let kind = if status.is_directory { "directory" } else { "regular file" };
            output.say(&status.path.to_string())?;
            let size = match status.is_directory {
                true => String::new(),
                false => format!(
                    ", {} bytes, replication {}, blocks of {} bytes",
                    status.bytes, status.replication, status.block_bytes
                ),
            };
            output.say(&format!("  {kind}{size}"))?;
            output.say(&format!(
                "  {} {}:{}, modified {}",
                status.mode(),
                status.owner,
                status.group,
                date(status.modified_ms, "%Y-%m-%d %H:%M:%S"),
            ))?;
        }
        Ok(())
    }

    async fn cat(&self, text: &str, output: &mut Output<'_, '_>) -> anyhow::Result<()> {
        let Some((files, path, found)) = output.reported(self.found(text).await) else {
            return Ok(());
        };
        if found.is_empty() {
            output.fail(&format!("File does not exist: {path}"));
        }
        for status in found {
            if status.is_directory {
                output.fail(&format!("{}: Source must be a file.", status.path));
                continue;
            }
            let Some(mut reader) = output.reported(files.open(&status.path).await) else {
                continue;
            };
            let printed = print_all(&mut *reader, output).await?;
            if output.reported(printed) == Some(false) {
                // Nobody reads what would follow.
                break;
            }
        }
        Ok(())
    }

    async fn make_directory(&self, text: &str, may_exist: bool) -> Result<String, String> {
        let made = async {
            let (files, path, found) = self.looked_up(text).await?;
            if found.is_none() {
                files.mkdirs(&path, None).await?;
            }
            Ok::<_, FsError>((path, found))
        };
        match made.await {
            Ok((path, None)) => Ok(path.to_string()),
            Ok((_, Some(found))) if !found.is_directory => {
                Err(format!("{text} exists but is not a directory"))
            }
            Ok((path, Some(_))) if may_exist => Ok(path.to_string()),
            Ok(_) => Err(format!("cannot create directory {text}: File exists")),
            Err(error) => Err(worded(&error)),
        }
    }
}

/// Prints the rest of a file. The outer error is that of the output. False: nobody reads it.
async fn print_all(
    reader: &mut dyn FileReader,
    output: &mut Output<'_, '_>,
) -> anyhow::Result<Result<bool, FsError>> {
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = match reader.read(&mut piece).await {
            Ok(0) => return Ok(Ok(true)),
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        if !output.console.print_bytes(piece.get(..read).unwrap_or_default())? {
            return Ok(Ok(false));
        }
    }
}

fn date(ms: i64, form: &str) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime(form).to_string(),
        Err(_) => format!("{ms} ms"),
    }
}

/// Whether what is listed is a link of this machine, which may lead round and round.
fn is_link(files: &dyn FileSystem, item: &FileStatus) -> bool {
    is_local(files) && Path::new(item.path.path()).is_symlink()
}

/// Lines as the original prints them: columns as wide as their widest value.
fn printed(items: &[FileStatus], has_blocks: bool) -> Vec<String> {
    let widest = |least: usize, width: fn(&FileStatus) -> usize| {
        items.iter().map(width).fold(least, usize::max)
    };
    let replication = widest(3, |item| item.replication.to_string().len());
    let length = widest(10, |item| item.bytes.to_string().len());
    let owner = widest(0, |item| item.owner.chars().count());
    let group = widest(0, |item| item.group.chars().count());
    let line = |item: &FileStatus| {
        let replicas = match item.is_directory {
            true => "-".to_owned(),
            false => item.replication.to_string(),
        };
        let block = match has_blocks {
            true => format!("{:>length$} ", item.block_bytes),
            false => String::new(),
        };
        let line = format!(
            "{} {replicas:>replication$} {:<owner$} {:<group$} {:>length$} {block}{} {}",
            item.mode(),
            item.owner,
            item.group,
            item.bytes,
            date(item.modified_ms, "%Y-%m-%d %H:%M"),
            item.path.path(),
        );
        printable(&line).into_owned()
    };
    items.iter().map(line).collect()
}
