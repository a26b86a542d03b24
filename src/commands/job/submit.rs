//! `corona job submit`: runs a job whose configuration is ready, as `hadoop job -submit` does.
//!
//! The splits are those that lie beside the configuration, or are cut here for jobs that read lines. The
//! job is run by the job tracker service, or by one in this process that runs no other job.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use corona::config::JobConf;
use corona::filesystem::{CreateOptions, FileSystem, FileSystems, FsPath, LocalFiles, put};
use corona::hadoop::io::Reader;
use corona::hadoop::io::formats::Writable;
use corona::hadoop::writables::{FileSplit, JobId, SplitFile};
use corona::job_tracker::JobTracker;
use corona::mapreduce::native::{N_LINE_FORMAT, SEQUENCE_FORMATS};
use corona::session_driver::{Endpoint, address_towards};
use corona::task_tracker::job_files::Location;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::deliver::{MAX_SPLIT_BYTES, Place, SPLITS, deliver};
use super::follow::{Follower, Voice};
use super::inputs::{Inputs, Selection, paths_of};
use super::output::Output;
use super::sight::Sight;
use super::stop::Stop;
use super::waiting::Waiting;
use super::{conf, split_file};
use crate::commands::EXIT_FAILED;
use crate::commands::jobs::{Caller, Which, for_browsers};
use corona_terminal::console::{Console, printable};

pub(super) const HELP: &str = "\
JOB_XML is a configuration as a client of Hadoop writes it. The splits are read
from --splits, or from the file job.split beside JOB_XML. Without one the files
of mapred.input.dir are cut into splits, which is right for jobs whose input
format is TextInputFormat, KeyValueTextInputFormat, lib.NLineInputFormat,
SequenceFileInputFormat or SequenceFileAsTextInputFormat.
-D overrides what JOB_XML says; the files of --conf-dir do not.
Ctrl-C kills the job; again, it stops this program within 2 s, even if the
job tracker has not answered.";

/// How long the end of a job tracker in this process may take.
const END_TIMEOUT: Duration = Duration::from_secs(30);
const END_PAUSE: Duration = Duration::from_millis(50);

#[derive(Args, Clone, Debug)]
pub(super) struct Submit {
    /// Configuration of the job
    #[arg(value_name = "JOB_XML")]
    conf: PathBuf,

    /// Jar of the job, in place of the one that JOB_XML names
    #[arg(long, value_name = "FILE")]
    jar: Option<PathBuf>,

    /// Split file of the job [default: job.split beside JOB_XML, if it exists]
    #[arg(long, value_name = "FILE")]
    splits: Option<PathBuf>,

    /// Replace the output of an earlier job; a directory that has anything
    /// else is refused
    #[arg(long)]
    overwrite: bool,

    /// Return when the job is submitted, and print its id
    #[arg(long, conflicts_with = "in_process")]
    no_wait: bool,

    /// Run the job tracker of this job in this process, without a service
    #[arg(long, conflicts_with = "job_tracker")]
    in_process: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    which: Which,
}

/// A job that was submitted, as JSON.
#[derive(Serialize)]
struct Submitted {
    job: String,
    page: String,
}

/// A job that can be submitted.
struct Ready {
    conf: JobConf,
    splits: Vec<u8>,
    maps: usize,
    bytes: u64,
    jar: Option<PathBuf>,
}

/// A job tracker in this process.
struct Own {
    stop: watch::Sender<bool>,
    served: tokio::task::JoinHandle<()>,
    caller: Caller,
    /// The directory of its state, removed at the end.
    home: tempfile::TempDir,
}

impl Submit {
    /// The submission of a job whose end is not waited for.
    pub(super) fn of_file(conf: PathBuf, which: Which) -> Submit {
        Submit {
            conf,
            jar: None,
            splits: None,
            overwrite: false,
            no_wait: true,
            in_process: false,
            json: false,
            which,
        }
    }

    pub(super) async fn run(self, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
        // Before there are other threads: no signal is lost from here on.
        let mut stop = Stop::listen()?;
        let systems = FileSystems::new(self.which.file_systems()?)?;
        let ready = stop.before_submission(self.ready(&systems)).await?;
        let output = stop.before_submission(self.find_output(&systems, &ready)).await?;
        if !self.in_process {
            let mut caller = self.which.caller()?;
            let ended = self.run_by(&mut caller, ready, &systems, &output, stop, console);
            return Ok(status(ended.await?));
        }
        let mut own = stop.before_submission(Own::start(&self.which)).await?;
        let ended = self.run_by(&mut own.caller, ready, &systems, &output, stop, console).await;
        own.end().await;
        Ok(status(ended?))
    }

    /// Where the job writes. There the success of a job is seen that the job tracker has forgotten.
    async fn find_output(&self, systems: &FileSystems, ready: &Ready) -> anyhow::Result<Output> {
        let conf = &ready.conf;
        let directory = conf.get("mapred.output.dir").filter(|dir| !dir.is_empty());
        let directory = directory.unwrap_or_else(|| "file:/nonexistent".to_owned());
        let mut inputs = paths_of(&conf.get("mapred.input.dir").unwrap_or_default())?;
        // Patterns, and directories above the output, lead to files that only the splits name.
        inputs.extend(splits_of(&ready.splits)?.into_iter().map(|(path, _)| path));
        let inputs = inputs.iter().map(String::as_str);
        let instead = "name a new directory as mapred.output.dir of JOB_XML";
        Output::find(systems, &directory, self.overwrite, instead, inputs).await
    }

    /// Submits the job and follows it to its end. Returns whether it succeeded.
    async fn run_by(
        &self,
        caller: &mut Caller,
        ready: Ready,
        systems: &FileSystems,
        output: &Output,
        mut stop: Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<bool> {
        let (maps, bytes) = (ready.maps, ready.bytes);
        let reduces = conf::reduces(&ready.conf);
        let shown = ready.conf.get("mapred.output.dir").unwrap_or_default();
        let waiting = Waiting::of(caller, &self.which);
        let ends = splits_of(&ready.splits)?;
        let sight = Sight::new(output, ends.iter().map(|(path, end)| (&**path, *end)));
        let place = Place { systems, output, sight: &sight, waiting: &waiting };
        let id = self.submit(caller, &place, ready, &mut stop, console).await?;
        if self.no_wait && !stop.is_wanted() {
            let client = &mut caller.client;
            let profile =
                caller.retry.again(async || client.get_job_profile(id.clone()).await).await;
            let page = caller.checked(profile)?.map(|profile| for_browsers(&profile.url));
            let page = page.unwrap_or_default();
            match self.json {
                true => console.print_json(&Submitted { job: id.to_string(), page })?,
                false => console.print(&format!("{id}\n"))?,
            }
            return Ok(true);
        }
        let shown = if shown.is_empty() { "none".to_owned() } else { output.path.to_string() };
        // Whether a job of any class writes files to it is not known.
        let parts = 0;
        let voice = Voice::of(self.json);
        let follower = Follower { id, maps, reduces, bytes, output: shown, parts, voice };
        follower.follow(caller, output, waiting, stop, console).await
    }

    /// Reads the configuration, and reads or cuts the splits.
    async fn ready(&self, systems: &FileSystems) -> anyhow::Result<Ready> {
        let path = &self.conf;
        ensure!(path.is_file(), "{}: there is no such file", path.display());
        let mut conf = self.which.job_conf_of(path)?;
        let beside = path.with_file_name(SPLITS);
        let file = self.splits.clone().or_else(|| beside.is_file().then_some(beside));
        let (splits, maps, bytes) = match file {
            Some(file) => read_splits(&file)?,
            None => cut(systems, &conf).await?,
        };
        conf::check_tasks(&conf, maps)?;
        conf.set("mapred.map.tasks", &maps.to_string());
        let settings = self.which.file_systems()?;
        conf.set("user.name", &settings.user);
        if conf.get("mapred.working.dir").is_none()
            && let Ok(directory) = std::env::current_dir()
        {
            conf.set("mapred.working.dir", &format!("file:{}", directory.display()));
        }
        let named = conf.get("mapred.jar").filter(|jar| !jar.is_empty());
        let local = named.map(|jar| PathBuf::from(jar.strip_prefix("file:").unwrap_or(&jar)));
        let jar = self.jar.clone().or(local.filter(|jar| jar.is_absolute() || jar.exists()));
        if let Some(jar) = &jar {
            ensure!(jar.is_file(), "the jar {}: there is no such file", jar.display());
        }
        Ok(Ready { conf, splits, maps, bytes, jar })
    }

    /// Puts the files of the job where the job tracker finds them, and submits it.
    async fn submit(
        &self,
        caller: &mut Caller,
        place: &Place<'_>,
        ready: Ready,
        stop: &mut Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<JobId> {
        let Ready { mut conf, splits, jar, .. } = ready;
        let local = LocalFiles::new(&self.which.file_systems()?);
        let ship = async |files: &dyn FileSystem, directory: &FsPath, conf: &mut JobConf| {
            if let Some(jar) = &jar {
                let target = directory.join("job.jar");
                put(jar, files, &target, &local, CreateOptions::default(), &mut |_| ())
                    .await
                    .with_context(|| format!("the jar {}", jar.display()))?;
                conf.set("mapred.jar", &target.to_string());
            }
            conf.set("mapred.job.split.file", &directory.join(SPLITS).to_string());
            describe_cache(place.systems, conf).await
        };
        deliver(caller, place, &splits, &mut conf, ship, stop, console).await
    }
}

/// The files of a split file, and where each split ends. Splits of another kind are left out.
fn splits_of(file: &[u8]) -> anyhow::Result<Vec<(String, u64)>> {
    let splits = SplitFile::decode(&mut Reader::new(file))?.splits;
    let of_file = |data: &[u8]| {
        let FileSplit { path, start, length } = FileSplit::decode(&mut Reader::new(data)).ok()?;
        Some((path, u64::try_from(start.saturating_add(length)).unwrap_or(0)))
    };
    Ok(splits.iter().filter_map(|split| of_file(&split.data)).collect())
}

/// Adds what tasks must know of the files of the cache, as Hadoop's `JobClient` does: their times, and the
/// sizes of those that jobs share.
///
/// # Errors
/// One of them does not exist, or one that is to be shipped is not among them.
pub(super) async fn describe_cache(
    systems: &FileSystems,
    conf: &mut JobConf,
) -> anyhow::Result<()> {
    for (list, described, is_shared) in [
        ("mapred.cache.files", "mapred.cache.files.timestamps", false),
        ("mapred.cache.archives", "mapred.cache.archives.timestamps", false),
        ("mapred.cache.shared.files", "mapred.cache.shared.files.length", true),
        ("mapred.cache.shared.archives", "mapred.cache.shared.archives.length", true),
    ] {
        let mut texts = Vec::new();
        for uri in items(conf, list) {
            let location = Location::from_uri(&uri).with_context(|| list.to_owned())?;
            let (files, path) = systems.resolve(&location.to_string())?;
            let status = files.status(&path).await.with_context(|| list.to_owned())?;
            texts.push(if is_shared {
                status.bytes.to_string()
            } else {
                status.modified_ms.to_string()
            });
        }
        if !texts.is_empty() {
            conf.set(described, &texts.join(","));
        }
    }
    // Hadoop's client copies these and adds them to the cache; JOB_XML is as it leaves it.
    for (shipped, lists) in [
        ("tmpfiles", ["mapred.cache.files", "mapred.cache.shared.files"]),
        ("tmparchives", ["mapred.cache.archives", "mapred.cache.shared.archives"]),
        ("tmpjars", ["mapred.cache.archives", "mapred.cache.shared.archives"]),
    ] {
        let cached: Vec<String> = lists.iter().flat_map(|list| items(conf, list)).collect();
        for file in items(conf, shipped) {
            let name = file.rsplit('/').next().unwrap_or_default();
            ensure!(
                cached.iter().any(|uri| uri.contains(name)),
                "{shipped} names {file}, which is not in the cache of the job; copy it to where nodes \
                 find it, and add it to {}",
                lists.first().copied().unwrap_or_default()
            );
        }
    }
    Ok(())
}

/// The items of a list with commas between. Unlike lists of paths, it has no escapes.
fn items(conf: &JobConf, key: &str) -> Vec<String> {
    let list = conf.get(key).unwrap_or_default();
    list.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn status(has_succeeded: bool) -> ExitCode {
    if has_succeeded { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) }
}

/// The bytes of a split file, the number of its splits, and the bytes that they name.
fn read_splits(file: &Path) -> anyhow::Result<(Vec<u8>, usize, u64)> {
    let read = || -> anyhow::Result<(Vec<u8>, usize, u64)> {
        let length = std::fs::metadata(file)?.len();
        ensure!(
            length <= MAX_SPLIT_BYTES as u64,
            "it has {length} bytes; at most {MAX_SPLIT_BYTES} are allowed"
        );
        let bytes = std::fs::read(file)?;
        let splits = SplitFile::decode(&mut Reader::new(&bytes))?.splits;
        let lengths = splits.iter().map(|split| u64::try_from(split.length).unwrap_or(0));
        let total = lengths.fold(0, u64::saturating_add);
        let count = splits.len();
        Ok((bytes, count, total))
    };
    read().with_context(|| format!("the splits in {}", file.display()))
}

/// Cuts the input of a job that reads lines or sequence files.
async fn cut(systems: &FileSystems, conf: &JobConf) -> anyhow::Result<(Vec<u8>, usize, u64)> {
    const OF_LINES: [&str; 3] = [
        "org.apache.hadoop.mapred.TextInputFormat",
        "org.apache.hadoop.mapred.KeyValueTextInputFormat",
        N_LINE_FORMAT,
    ];
    let format = conf.get("mapred.input.format.class");
    let format = format.unwrap_or_else(|| OF_LINES[0].to_owned());
    ensure!(
        OF_LINES.iter().chain(&SEQUENCE_FORMATS).any(|known| *known == format),
        "the splits of {} cannot be made without Java; name a split file with --splits",
        printable(&format)
    );
    let inputs = paths_of(&conf.get("mapred.input.dir").unwrap_or_default())
        .context("JOB_XML, mapred.input.dir")?;
    ensure!(!inputs.is_empty(), "JOB_XML names no mapred.input.dir, and there is no split file");
    let inputs = Inputs::find(systems, &inputs, &Selection::of(conf, None)?).await?;
    Ok((split_file(&inputs.splits)?, inputs.splits.len(), inputs.bytes))
}

impl Own {
    async fn start(which: &Which) -> anyhow::Result<Own> {
        let home = tempfile::tempdir().context("cannot make a directory for the job tracker")?;
        let mut loaded = which.service()?;
        let manager = &loaded.settings.cluster_manager;
        // Nodes reach this machine as the cluster manager does.
        let endpoint = Endpoint::new(manager.host.to_string(), manager.port);
        let ip = address_towards(&endpoint)
            .await
            .with_context(|| format!("the cluster manager at {manager} cannot be reached"))?;
        let any = SocketAddr::new(ip, 0).to_string();
        loaded.settings.address = any.parse().map_err(|wrong| anyhow!("{wrong}"))?;
        loaded.settings.http_address = loaded.settings.address.clone();
        loaded.settings.notification_port = 0;
        loaded.settings.data_dir = home.path().to_owned();
        let tracker = JobTracker::bind(loaded).await?;
        let address = tracker.addresses().rpc.parse().map_err(|wrong| anyhow!("{wrong}"))?;
        let caller = which.caller_at(address)?;
        let (stop, stopped) = watch::channel(false);
        let served = tokio::spawn(async move {
            let ending = tracker.run(stopped).await;
            tracing::debug!(?ending, "the job tracker in this process has ended");
        });
        Ok(Own { stop, served, caller, home })
    }

    /// Ends it when everything that follows the end of its job is done.
    async fn end(self) {
        let due = Instant::now() + END_TIMEOUT;
        let is_empty = || {
            let left = std::fs::read_dir(self.home.path().join("jobs"));
            left.is_ok_and(|mut left| left.next().is_none())
        };
        while !is_empty() && Instant::now() < due {
            sleep(END_PAUSE).await;
        }
        self.stop.send_replace(true);
        // A job that does not end in time is left: its session expires.
        let _ = tokio::time::timeout(END_TIMEOUT, self.served).await;
    }
}
