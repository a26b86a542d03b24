//! Jobs that run the commands of a list, for `corona run`.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, bail};
use corona::config::JobConf;
use corona::filesystem::{
    CreateOptions, FileSystem, FileSystems, FsPath, LocalFiles, copy_to_local, put,
};
use corona::hadoop::protocols::job_files::OUTPUT;
use corona::hadoop::writables::JobId;

pub(in crate::commands) use super::conf::check_settings;
pub(in crate::commands) use super::deliver::MayRun;
use super::deliver::{Named, Place, deliver_as, name};
use super::inputs::InputSplit;
pub(in crate::commands) use super::notes::{Asked, of_asked};
use super::output::Output;
use super::sight::Sight;
use super::stop::Stop;
use super::waiting::Waiting;
use super::{CLUSTER_PATIENCE, conf, split_file};
use crate::commands::jobs::{Caller, Reports, Which, is_over, note, state};
use corona_terminal::console::Console;

/// What the maps run: parts of a list.
pub(in crate::commands) struct Parts<'a> {
    pub(in crate::commands) list: &'a Path,
    /// The first byte of each, and its length.
    pub(in crate::commands) cuts: &'a [(u64, u64)],
}

/// The scheme of files that a job tracker keeps.
const KEPT: &str = "corona";
/// The name of the list among the files of the job.
const LIST: &str = "list";
/// Entries of an output.
const MOST_ENTRIES: usize = 100_000;

/// A job that was submitted.
pub(in crate::commands) struct Job {
    pub(in crate::commands) id: JobId,
    caller: Caller,
}

/// What a look at a job has found.
pub(in crate::commands) enum Look {
    Runs,
    /// Its state, and what the job tracker adds.
    Over {
        state: &'static str,
        note: Option<String>,
    },
    /// The job tracker does not know it any more.
    Forgotten,
}

/// Sets what all native jobs have.
pub(in crate::commands) fn base(conf: &mut JobConf) {
    conf::base(conf);
}

impl Job {
    /// Slots for maps of the cluster, if its job tracker says so in time.
    pub(in crate::commands) async fn map_slots(which: &Which) -> Option<usize> {
        let mut caller = which.caller().ok()?;
        let asked = caller.client.get_cluster_status(false);
        let status = tokio::time::timeout(CLUSTER_PATIENCE, asked).await.ok()?.ok()??;
        usize::try_from(status.max_maps).ok().filter(|slots| *slots > 0)
    }

    /// A job that was submitted before.
    ///
    /// # Errors
    /// The configuration names no job tracker.
    pub(in crate::commands) fn again(id: JobId, which: &Which) -> anyhow::Result<Job> {
        Ok(Job { id, caller: which.caller()? })
    }

    /// Submits a job of these parts, whose results go to a directory of this machine that does not exist yet; or to
    /// the job tracker, if the machines do not share that and it keeps files of jobs. `note` gets the id before that,
    /// and where the results are kept.
    ///
    /// # Errors
    /// It cannot be submitted, or a machine does not see the directory. [`MayRun`]: whether it is submitted is not
    /// known.
    #[allow(clippy::too_many_arguments, reason = "one place submits jobs of lists")]
    pub(in crate::commands) async fn submit(
        which: &Which,
        systems: &FileSystems,
        mut conf: JobConf,
        parts: Parts<'_>,
        output: &Path,
        note: impl FnOnce(&JobId, Option<&FsPath>) -> anyhow::Result<()>,
        stop: &mut Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<Job> {
        let Parts { list, cuts } = parts;
        conf.set("mapred.map.tasks", &cuts.len().to_string());
        conf::check_tasks(&conf, cuts.len())?;
        let shared = found(systems, &FsPath::local(output)?, stop).await?;
        let list_here = FsPath::local(list)?;
        let mut caller = which.caller()?;
        let waiting = Waiting::of(&caller, which);
        let named = stop.before_submission(waiting.on(name(&mut caller), console)).await?;
        let here = list_here.to_string();
        let end = cuts.last().map_or(0, |(start, length)| start.saturating_add(*length));
        let sight = Sight::new(&shared, [(&*here, end)].into_iter());
        let (list_there, output, kept) = match stop
            .before_submission(kept(&caller, &sight, systems, &named))
            .await?
        {
            None => (list_here, shared, None),
            Some(directory) => {
                console.complain(&format!(
                        "the machines share no directory with this one: {} keeps the list and the results\n",
                        caller.who
                    ));
                let output = found(systems, &directory.join(OUTPUT), stop).await?;
                let path = output.path.clone();
                (directory.join(LIST), output, Some(path))
            }
        };
        conf.set("mapred.output.dir", &output.path.to_string());
        let place = Place { systems, output: &output, sight: &sight, waiting: &waiting };
        let splits = split_file(&splits_of(&list_there.to_string(), cuts))?;
        let local = LocalFiles::new(&which.file_systems()?);
        let id = named.0.clone();
        let ship = async |files: &dyn FileSystem, _: &FsPath, _: &mut JobConf| {
            note(&id, kept.as_ref())?;
            if kept.is_some() {
                let options = CreateOptions::default();
                put(list, files, &list_there, &local, options, &mut |_| ()).await?;
            }
            Ok(())
        };
        let submitted =
            deliver_as(named, &mut caller, &place, &splits, &mut conf, ship, stop, console);
        let id = submitted.await?;
        Ok(Job { id, caller })
    }

    /// Looks at the job.
    ///
    /// # Errors
    /// The job tracker cannot be reached any more.
    pub(in crate::commands) async fn look(&mut self) -> anyhow::Result<Look> {
        let client = &mut self.caller.client;
        let status =
            self.caller.retry.again(async || client.get_job_status(self.id.clone()).await).await;
        Ok(match self.caller.checked(status)? {
            None => Look::Forgotten,
            Some(status) if is_over(status.run_state) => Look::Over {
                state: state(status.run_state),
                note: note(&status).map(str::to_owned),
            },
            Some(_) => Look::Runs,
        })
    }

    /// Kills the job.
    ///
    /// # Errors
    /// The job tracker cannot be reached, or refuses.
    pub(in crate::commands) async fn kill(&mut self) -> anyhow::Result<()> {
        let client = &mut self.caller.client;
        let killed = self.caller.retry.again(async || client.kill_job(self.id.clone()).await).await;
        self.caller.checked(killed)
    }

    /// Why tasks of it have failed.
    pub(in crate::commands) async fn failures(&mut self) -> Vec<String> {
        let reports = Reports::of(&mut self.caller, &self.id).await;
        let failures = reports.failures(&mut self.caller, &self.id).await;
        failures.iter().map(|failure| failure.text()).collect()
    }
}

/// The splits of a list.
fn splits_of(path: &str, cuts: &[(u64, u64)]) -> Vec<InputSplit> {
    let split = |&(start, length): &(u64, u64)| InputSplit {
        path: path.to_owned(),
        start,
        length,
        hosts: Vec::new(),
        version: None,
    };
    cuts.iter().map(split).collect()
}

/// An output directory that does not exist yet.
async fn found(systems: &FileSystems, path: &FsPath, stop: &mut Stop) -> anyhow::Result<Output> {
    let path = path.to_string();
    let output =
        Output::find(systems, &path, false, "name a new directory with --output", [].into_iter());
    stop.before_submission(output).await
}

/// The directory of a job at its job tracker, if the machines do not see the files of this one: none if they do.
///
/// # Errors
/// They do not, and the job tracker keeps no outputs of jobs.
async fn kept(
    caller: &Caller,
    sight: &Sight,
    systems: &FileSystems,
    (id, system): &Named,
) -> anyhow::Result<Option<FsPath>> {
    let Some(unseen) = sight.unseen(caller).await? else { return Ok(None) };
    let (files, system) = systems.resolve(system)?;
    let directory = system.join(&id.to_string());
    // One of an earlier version keeps no outputs.
    if files.root().scheme() == KEPT && files.find(&directory.join(OUTPUT)).await.is_ok() {
        return Ok(Some(directory));
    }
    bail!(
        "{unseen}: all machines must see the working directory, or that of --output; name a directory that all of \
         them mount at the same path"
    )
}

/// The results of a job that its job tracker keeps.
pub(in crate::commands) struct KeptResults {
    files: std::sync::Arc<dyn FileSystem>,
    path: FsPath,
}

impl KeptResults {
    /// Those of a directory that `note` of [`Job::submit`] got.
    pub(in crate::commands) fn open(systems: &FileSystems, path: &str) -> anyhow::Result<Self> {
        let (files, path) = systems.resolve(path)?;
        Ok(KeptResults { files, path })
    }

    /// Moves what was committed to a directory of this machine.
    ///
    /// # Errors
    /// The job tracker cannot be asked, or a file cannot be written.
    pub(in crate::commands) async fn bring(&self, to: &Path) -> anyhow::Result<()> {
        if self.files.find(&self.path).await?.is_none() {
            return Ok(());
        }
        for entry in self.files.list(&self.path, MOST_ENTRIES).await? {
            if entry.is_directory || !super::output::is_part(entry.path.name()) {
                continue;
            }
            std::fs::create_dir_all(to).with_context(|| to.display().to_string())?;
            let target = to.join(entry.path.name());
            copy_to_local(&*self.files, &entry.path, &target, u64::MAX, &mut |_| ()).await?;
            // It is safe here before it goes there.
            let synced = File::open(&target).and_then(|file| file.sync_all());
            synced.with_context(|| target.display().to_string())?;
            self.files.delete(&entry.path, false).await?;
        }
        Ok(())
    }

    /// The same for a job that is over. Afterwards the job tracker keeps nothing of it.
    ///
    /// # Errors
    /// As of [`bring`](KeptResults::bring).
    pub(in crate::commands) async fn bring_rest(&self, to: &Path) -> anyhow::Result<()> {
        self.bring(to).await?;
        // What cannot be deleted is removed by the job tracker later.
        let _ = self.files.delete(&self.path, true).await;
        Ok(())
    }

    /// Whether the job tracker has none, or does not answer.
    pub(in crate::commands) async fn are_lost(&self) -> bool {
        !matches!(self.files.find(&self.path).await, Ok(Some(_)))
    }
}
