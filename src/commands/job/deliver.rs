//! Puts the files of a job where the job tracker finds them, and submits it.

use anyhow::{Context, anyhow};
use corona::config::JobConf;
use corona::filesystem::{CreateOptions, FileSystem, FileSystems, FsPath};
use corona::hadoop::writables::JobId;

use super::follow::again;
use crate::commands::jobs::Caller;

/// The file of splits in a job's directory, and beside its configuration.
pub(super) const SPLITS: &str = "job.split";
/// The largest split file, in bytes.
pub(super) const MAX_SPLIT_BYTES: usize = 256 << 20;

/// Submits a job with this split file and configuration. `ship` puts what else the job needs into the
/// job's directory, and names it in the configuration, which is written last.
///
/// # Errors
/// A file cannot be written, or the job tracker refuses the job. Its directory is deleted then.
pub(super) async fn deliver(
    caller: &mut Caller,
    systems: &FileSystems,
    splits: &[u8],
    conf: &mut JobConf,
    ship: impl AsyncFnOnce(&dyn FileSystem, &FsPath, &mut JobConf) -> anyhow::Result<()>,
) -> anyhow::Result<JobId> {
    let client = &mut caller.client;
    let id = again(async || client.get_new_job_id().await).await;
    let id = caller.checked(id)?.ok_or_else(|| anyhow!("{} gives no id", caller.who))?;
    let client = &mut caller.client;
    let system = again(async || client.get_system_dir().await).await;
    let system = caller.checked(system)?;
    let system = system.ok_or_else(|| anyhow!("{} has no system directory", caller.who))?;
    let (files, system) = systems.resolve(&system)?;
    let directory = system.join(&id.to_string());
    let submitted = async {
        files.mkdirs(&directory, None).await?;
        files.set_permission(&directory, 0o700).await?;
        ship(&*files, &directory, conf).await?;
        write(&*files, &directory.join(SPLITS), splits).await?;
        let xml = conf.to_xml().context("the configuration of the job")?;
        write(&*files, &directory.join("job.xml"), xml.as_bytes()).await?;
        let client = &mut caller.client;
        let submitted = again(async || client.submit_job(id.clone()).await).await;
        caller.checked(submitted).map(drop)
    };
    if let Err(error) = submitted.await {
        // What cannot be deleted is removed by an operator; the error matters more.
        let _ = files.delete(&directory, true).await;
        return Err(error);
    }
    Ok(id)
}

async fn write(files: &dyn FileSystem, path: &FsPath, bytes: &[u8]) -> anyhow::Result<()> {
    let mut writer = files.create(path, CreateOptions::default()).await?;
    writer.write(bytes).await?;
    Ok(writer.close().await?)
}
