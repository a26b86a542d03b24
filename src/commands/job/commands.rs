//! Jobs that run the commands of a list, for `corona run`.

use std::path::{Path, PathBuf};

use corona::config::JobConf;
use corona::filesystem::{FileSystem, FileSystems, FsPath};
use corona::hadoop::writables::JobId;

pub(in crate::commands) use super::conf::check_settings;
pub(in crate::commands) use super::deliver::MayRun;
use super::deliver::{Place, deliver};
use super::inputs::InputSplit;
pub(in crate::commands) use super::notes::{memory_of, of_memory};
use super::output::Output;
use super::sight::Sight;
use super::stop::Stop;
use super::waiting::Waiting;
use super::{CLUSTER_PATIENCE, conf, split_file};
use crate::commands::jobs::{Caller, Reports, Which, is_over, note, state};
use corona_terminal::console::Console;

/// What one map runs: a part of a list.
pub(in crate::commands) struct Part {
    pub(in crate::commands) list: PathBuf,
    pub(in crate::commands) start: u64,
    pub(in crate::commands) length: u64,
}

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

    /// Submits a job of these parts, whose results go to a directory of this machine that does not exist yet. `note`
    /// gets its id before that.
    ///
    /// # Errors
    /// It cannot be submitted, or a machine does not see the directory. [`MayRun`]: whether it is submitted is not
    /// known.
    #[allow(clippy::too_many_arguments, reason = "one place submits jobs of lists")]
    pub(in crate::commands) async fn submit(
        which: &Which,
        systems: &FileSystems,
        mut conf: JobConf,
        parts: &[Part],
        output: &Path,
        note: impl FnOnce(&str) -> anyhow::Result<()>,
        stop: &mut Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<Job> {
        let mut splits = Vec::with_capacity(parts.len());
        for Part { list, start, length } in parts {
            let path = FsPath::local(list)?.to_string();
            splits.push(InputSplit { path, start: *start, length: *length, hosts: Vec::new() });
        }
        let directory = FsPath::local(output)?.to_string();
        let output = Output::find(
            systems,
            &directory,
            false,
            "name a new directory with --output",
            [].into_iter(),
        );
        let output = stop.before_submission(output).await?;
        conf.set("mapred.output.dir", &output.path.to_string());
        conf.set("mapred.map.tasks", &splits.len().to_string());
        conf::check_tasks(&conf, splits.len())?;
        let mut caller = which.caller()?;
        let waiting = Waiting::of(&caller, which);
        let ends = splits.iter().map(|it| (&*it.path, it.start.saturating_add(it.length)));
        let sight = Sight::new(&output, ends);
        let place = Place { systems, output: &output, sight: &sight, waiting: &waiting };
        let splits = split_file(&splits)?;
        // The directory has the name of the job.
        let ship = async |_: &dyn FileSystem, of: &FsPath, _: &mut JobConf| note(of.name());
        let id = deliver(&mut caller, &place, &splits, &mut conf, ship, stop, console).await?;
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
