//! Puts the files of a job where the job tracker finds them, and submits it.

use std::fmt;

use anyhow::{Context, anyhow};
use corona::config::{JobConf, keys};
use corona::filesystem::{CreateOptions, FileSystem, FileSystems, FsPath, ObjectAccess};
use corona::hadoop::writables::JobId;

use super::output::Output;
use super::sight::Sight;
use super::stop::Stop;
use super::waiting::Waiting;
use crate::commands::jobs::Caller;
use corona_terminal::console::Console;

/// The file of splits in a job's directory, and beside its configuration.
pub(super) const SPLITS: &str = "job.split";
/// The largest split file, in bytes.
pub(super) const MAX_SPLIT_BYTES: usize = 256 << 20;

/// The error of a submission that was not answered.
#[derive(Debug)]
pub(in crate::commands) struct MayRun(JobId);

impl fmt::Display for MayRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MayRun(id) = self;
        write!(f, "{id} may run; see corona jobs info {id}")
    }
}

impl std::error::Error for MayRun {}

/// Where a job is delivered.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) systems: &'a FileSystems,
    pub(super) output: &'a Output,
    pub(super) sight: &'a Sight,
    pub(super) waiting: &'a Waiting,
}

/// The id of a job that is to be submitted, and the directory of the job tracker for files of jobs.
pub(super) type Named = (JobId, String);

/// Submits a job with this split file and configuration, if the machines see its files. `ship` puts what else the
/// job needs into the job's directory, and names it in the configuration, which is written last.
///
/// # Errors
/// Those of [`deliver_as`], or a machine does not see the files.
pub(super) async fn deliver(
    caller: &mut Caller,
    place: &Place<'_>,
    splits: &[u8],
    conf: &mut JobConf,
    ship: impl AsyncFnOnce(&dyn FileSystem, &FsPath, &mut JobConf) -> anyhow::Result<()>,
    stop: &mut Stop,
    console: &mut Console<'_>,
) -> anyhow::Result<JobId> {
    let found = place.waiting.on(name(caller), console);
    let named = stop.before_submission(found).await?;
    stop.before_submission(place.sight.check(caller)).await?;
    deliver_as(named, caller, place, splits, conf, ship, stop, console).await
}

/// Submits a job that has an id, whose files are seen.
///
/// # Errors
/// A file cannot be written, the job tracker refuses the job, or a signal came before the submission;
/// the job's directory is deleted then. Or a second signal came before the job tracker answered.
#[allow(clippy::too_many_arguments, reason = "one place submits jobs")]
pub(super) async fn deliver_as(
    (id, system): Named,
    caller: &mut Caller,
    place: &Place<'_>,
    splits: &[u8],
    conf: &mut JobConf,
    ship: impl AsyncFnOnce(&dyn FileSystem, &FsPath, &mut JobConf) -> anyhow::Result<()>,
    stop: &mut Stop,
    console: &mut Console<'_>,
) -> anyhow::Result<JobId> {
    let Place { systems, output, waiting, .. } = *place;
    let (files, system) = systems.resolve(&system)?;
    let directory = system.join(&id.to_string());
    let written = async {
        files.mkdirs(&directory, None).await?;
        files.set_permission(&directory, 0o700).await?;
        ship(&*files, &directory, conf).await?;
        if let Some(access) = systems.used_access()? {
            // Only nodes read it: what else says how the job is run is shown to people.
            write(&*files, &directory.join(ObjectAccess::FILE), &access.to_json()).await?;
            conf.set(keys::JOB_OBJECT_ACCESS.name, ObjectAccess::FILE);
        }
        write(&*files, &directory.join(SPLITS), splits).await?;
        let xml = conf.to_xml().context("the configuration of the job")?;
        write(&*files, &directory.join("job.xml"), xml.as_bytes()).await?;
        // As late as it can be: the earlier output is kept when the job cannot be submitted.
        output.clear().await
    };
    let mut submitted = stop.before_submission(written).await;
    if submitted.is_ok() {
        // From here on the job may run, whether or not the answer arrives.
        let client = &mut caller.client;
        let answer = caller.retry.patiently(async || client.submit_job(id.clone()).await);
        let note = format!("killing {id} when it is submitted; again to stop at once\n");
        let answer = stop.after_first(answer, waiting, &note, console).await;
        let answer = answer.with_context(|| MayRun(id.clone()))?;
        let is_unknown = answer.as_ref().is_err_and(|error| !error.is_answer());
        submitted = caller.checked(answer).map(drop);
        if is_unknown {
            return submitted.with_context(|| MayRun(id.clone())).map(|()| id);
        }
    }
    if let Err(error) = submitted {
        // What cannot be deleted is removed by an operator; the error matters more.
        let _ = files.delete(&directory, true).await;
        return Err(error);
    }
    Ok(id)
}

/// Asks for the id of the next job.
///
/// # Errors
/// The job tracker gives none.
pub(super) async fn name(caller: &mut Caller) -> anyhow::Result<Named> {
    let client = &mut caller.client;
    let id = caller.retry.patiently(async || client.get_new_job_id().await).await;
    let id = caller.checked(id)?.ok_or_else(|| anyhow!("{} gives no id", caller.who))?;
    caller.has_answered();
    let client = &mut caller.client;
    let system = caller.retry.again(async || client.get_system_dir().await).await;
    let system = caller.checked(system)?;
    Ok((id, system.ok_or_else(|| anyhow!("{} has no system directory", caller.who))?))
}

async fn write(files: &dyn FileSystem, path: &FsPath, bytes: &[u8]) -> anyhow::Result<()> {
    let mut writer = files.create(path, CreateOptions::default()).await?;
    writer.write(bytes).await?;
    Ok(writer.close().await?)
}
