//! Deletes what has expired, as the original does: directories of jobs, directories of histories, and
//! files of the shared cache. Only entries of exactly these forms, directly in the configured
//! directories, and never what a symbolic link leads to. Spec: mapreduce/08 §8.9.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corona_config::CleanUp;
use corona_filesystem::{FileStatus, FileSystem, FsError, FsPath};

use super::ProxyContext;
use super::histories::{is_session_dir, status};

/// The three directories of the shared cache, below `CAR` in the system directory.
const SHARED_CACHE: [&str; 3] = ["files", "archives", "libjars"];

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    JobFiles,
    Histories,
    SharedCache,
}

impl Kind {
    /// Whether an entry of a directory may be deleted when it is old.
    fn matches(self, entry: &FileStatus) -> bool {
        let name = entry.path.name();
        match self {
            Kind::JobFiles => entry.is_directory && is_job_dir(name),
            Kind::Histories => entry.is_directory && is_session_dir(name),
            Kind::SharedCache => !entry.is_directory,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::JobFiles => "directory of a job",
            Kind::Histories => "directory of histories",
            Kind::SharedCache => "file of the shared cache",
        }
    }
}

/// `job_<digits>.<digits>_<digits>`
fn is_job_dir(name: &str) -> bool {
    let parts = name.strip_prefix("job_").and_then(|rest| rest.split_once('_'));
    parts.is_some_and(|(session, number)| {
        is_session_dir(session)
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// What was done since the start.
#[derive(Debug, Default)]
pub(super) struct Cleaned {
    pub(super) deleted: AtomicU64,
    /// What would have been deleted.
    pub(super) reported: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// Cleans up until the program ends.
pub(super) async fn keep(shared: Arc<ProxyContext>) {
    if shared.settings.clean_up == CleanUp::Off {
        return;
    }
    let settings = &shared.settings;
    tokio::join!(
        repeat(&shared, Kind::JobFiles, settings.job_files),
        repeat(&shared, Kind::Histories, settings.histories),
        repeat(&shared, Kind::SharedCache, settings.shared_cache),
    );
}

async fn repeat(shared: &Arc<ProxyContext>, kind: Kind, (age, interval): (Duration, Duration)) {
    loop {
        let directories = match kind {
            Kind::Histories => vec![(shared.histories.system(), shared.histories.root().clone())],
            _ => match shared.files.resolve(&shared.system_dir) {
                Ok((system, root)) if kind == Kind::SharedCache => {
                    let cache = root.join("CAR");
                    SHARED_CACHE.map(|name| (system.clone(), cache.join(name))).to_vec()
                }
                Ok(found) => vec![found],
                Err(_) => Vec::new(),
            },
        };
        let system_dir = FsPath::parse(&shared.system_dir).ok();
        for (system, directory) in directories {
            let base = match kind {
                Kind::SharedCache => system_dir.as_ref().unwrap_or(&directory),
                _ => &directory,
            };
            if let Err(error) = clean(shared, &*system, base, &directory, kind, age).await {
                shared.cleaned.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%directory, %error, "cannot look for expired files; trying again later");
            }
        }
        if interval.is_zero() {
            return;
        }
        tokio::time::sleep(interval).await;
    }
}

/// Looks through one directory. Entries are judged one page at a time, so that a huge directory takes no
/// memory.
async fn clean(
    shared: &ProxyContext,
    system: &dyn FileSystem,
    base: &FsPath,
    directory: &FsPath,
    kind: Kind,
    age: Duration,
) -> Result<(), FsError> {
    match status(system, base, directory).await {
        Ok(found) if found.is_directory => {}
        Ok(_) => return Ok(()),
        Err(error) if error.kind == corona_filesystem::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let mut from = None;
    loop {
        let page = system.list_page(directory, from).await?;
        if let Some(odd) = page.odd.first() {
            let count = page.odd.len();
            shared.cleaned.failed.fetch_add(count as u64, Ordering::Relaxed);
            tracing::debug!(%directory, count, why = odd.why, "left entries that cannot be looked at");
        }
        for entry in page.entries.iter().filter(|entry| kind.matches(entry)) {
            // A link to a directory is no directory of a job.
            let Ok(entry) = status(system, directory, &entry.path).await else { continue };
            let used_ms = match kind {
                Kind::SharedCache => accessed_ms(&entry).await,
                _ => Some(entry.modified_ms),
            };
            let is_old = used_ms.is_some_and(|used| super::now().0.saturating_sub(used) > age_ms);
            if is_old {
                delete(shared, system, &entry.path, kind).await;
            }
        }
        from = page.next;
        if from.is_none() {
            return Ok(());
        }
    }
}

async fn delete(shared: &ProxyContext, system: &dyn FileSystem, path: &FsPath, kind: Kind) {
    let what = kind.name();
    if shared.settings.clean_up == CleanUp::Report {
        shared.cleaned.reported.fetch_add(1, Ordering::Relaxed);
        tracing::info!(%path, "would delete an expired {what}");
        return;
    }
    match system.delete(path, kind != Kind::SharedCache).await {
        Ok(_) => {
            shared.cleaned.deleted.fetch_add(1, Ordering::Relaxed);
            // The original's line.
            tracing::info!("Delete {path}");
        }
        Err(error) => {
            shared.cleaned.failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%path, %error, "cannot delete an expired {what}; trying again later");
        }
    }
}

/// When a file was last read or changed, in milliseconds since the Unix epoch; none if that is not
/// known: such a file stays.
async fn accessed_ms(entry: &FileStatus) -> Option<i64> {
    if entry.path.root().is_none_or(|root| root.scheme() != "file") {
        return (entry.accessed_ms > 0).then_some(entry.accessed_ms.max(entry.modified_ms));
    }
    let path = entry.path.path().to_owned();
    let read = tokio::task::spawn_blocking(move || fs::symlink_metadata(path));
    let metadata = read.await.ok()?.ok().filter(fs::Metadata::is_file)?;
    Some(metadata.atime().max(metadata.mtime()).saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_exactly_these_forms_are_of_jobs() {
        for (name, is_job) in [
            ("job_202611221049.2_0001", true),
            ("job_1.2_3", true),
            ("job_202611221049_0001", false),
            ("job_202611221049.2_0001x", false),
            ("xjob_202611221049.2_0001", false),
            ("job_202611221049.2_", false),
            ("job_.2_1", false),
            ("job_1.2_3_4", false),
            ("CAR", false),
            ("..", false),
        ] {
            assert_eq!(is_job_dir(name), is_job, "{name}");
        }
        for (name, is_session) in
            [("202611221049.0", true), ("202611221049", false), ("1.2.3", false), (".", false)]
        {
            assert_eq!(is_session_dir(name), is_session, "{name}");
        }
    }
}
