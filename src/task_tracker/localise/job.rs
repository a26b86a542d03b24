//! The part of localisation that is done once for each job.

use std::collections::{HashMap, HashSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::cache::{Cache, HandedFile};
use super::unpack::{Kind, Limits, unpack};
use super::{LocaliseError, Slot, blocking, keep, make_dir, replace};
use crate::deletion::Deletion;
use crate::ids::JobId;
use crate::job_files::{JobFiles, Location};
use crate::layout;
use crate::local_dirs::LocalDirs;
use corona_config::{JobConf, JobFileSettings, SiteProperties, keys};
use corona_filesystem::ObjectAccess;

/// The most jobs that are known at a time.
const MAX_JOBS: usize = 10_000;
/// Main class of tasks, which the original sets for every job.
const CHILD_CLASS: &str = "org.apache.hadoop.mapred.CoronaChild";

/// A job as a launch action describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// The job's id.
    pub id: JobId,
    /// Its configuration.
    pub job_file: Location,
    /// Where its job tracker listens: `host:port`.
    pub job_tracker: String,
    /// Where another one would, if there is one.
    pub secondary: Option<String>,
}

/// A job on this machine.
#[derive(Debug)]
pub struct LocalJob {
    /// The job's id.
    pub id: JobId,
    /// Its configuration, adjusted.
    pub conf: JobConf,
    /// The directory that its tasks share.
    pub work: PathBuf,
    /// Its jar, which is unpacked beside itself; with a shared cache it is the cache's first archive
    /// and comes with the first attempt.
    pub jar: Option<PathBuf>,
    /// Job tracker and secondary that are written in its configuration.
    tracker: Mutex<(String, Option<String>)>,
    /// Held while the jar is made of the shared cache.
    pub(super) jar_from_cache: tokio::sync::Mutex<()>,
}

/// Brings jobs to this machine, each once.
#[derive(Clone)]
pub struct Localiser {
    shared: Arc<LocaliserCore>,
}

struct LocaliserCore {
    site: SiteProperties,
    host: Option<String>,
    dirs: Arc<LocalDirs>,
    files: Arc<dyn JobFiles>,
    deletion: Deletion,
    cache: Cache,
    limits: Limits,
    jobs: Mutex<HashMap<JobId, Slot<Arc<LocalJob>>>>,
    /// Jobs of tasks that a former program in this process has begun, whose files are not known here.
    unknown: Mutex<HashSet<JobId>>,
}

/// A job on this machine, for the program that takes the place of this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HandedJob {
    id: String,
    work: PathBuf,
    jar: Option<PathBuf>,
    /// Job tracker and secondary that are written in its configuration.
    tracker: (String, Option<String>),
}

/// All that is on this machine of jobs, for the program that takes the place of this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedFiles {
    jobs: Vec<HandedJob>,
    cache: Vec<HandedFile>,
}

impl HandedFiles {
    /// The names of the jobs.
    pub fn jobs(&self) -> impl Iterator<Item = &str> {
        self.jobs.iter().map(|job| &*job.id)
    }
}

impl Localiser {
    /// Hands over what is whole. The rest is brought here again.
    pub fn hand_over(&self) -> HandedFiles {
        let of = |slot: &Slot<Arc<LocalJob>>| {
            let job = slot.try_lock().ok()?.clone()?;
            let tracker = job.tracker.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let (id, work, jar) = (job.id.to_string(), job.work.clone(), job.jar.clone());
            Some(HandedJob { id, work, jar, tracker })
        };
        let jobs = self.lock().values().filter_map(of).collect();
        HandedFiles { jobs, cache: self.shared.cache.hand_over() }
    }

    /// Takes over what a former program has handed over. `held` are files of the cache that its tasks use, and `running`
    /// the jobs of those tasks. It blocks.
    pub fn take_over(&self, handed: &HandedFiles, held: &[&PathBuf], running: HashSet<JobId>) {
        self.shared.cache.take_over(&handed.cache, held);
        for job in &handed.jobs {
            match self.shared.read(job) {
                Ok(local) => {
                    let id = local.id.clone();
                    let slot = Slot::new(tokio::sync::Mutex::new(Some(Arc::new(local))));
                    self.lock().insert(id, slot);
                }
                Err(error) => {
                    tracing::warn!(job = job.id, %error, "cannot read the files of a job that a former program had");
                }
            }
        }
        let jobs = self.lock();
        self.shared.unknown().extend(running.into_iter().filter(|id| !jobs.contains_key(id)));
    }

    /// One for the whole task tracker. `host` is `slave.host.name` where it is configured.
    pub fn new(
        site: SiteProperties,
        host: Option<String>,
        settings: &JobFileSettings,
        dirs: Arc<LocalDirs>,
        files: Arc<dyn JobFiles>,
        deletion: Deletion,
    ) -> Self {
        let limits = Limits {
            max_bytes: settings.max_unpacked_bytes,
            max_entries: settings.max_unpacked_entries,
        };
        let cache = Cache::new(dirs.clone(), files.clone(), deletion.clone(), limits);
        let (jobs, unknown) = (Mutex::default(), Mutex::default());
        let shared =
            LocaliserCore { site, host, dirs, files, deletion, cache, limits, jobs, unknown };
        Localiser { shared: Arc::new(shared) }
    }

    /// The job, localised if it is not here yet. Concurrent callers wait for the one copy; if
    /// it fails, the next caller tries again.
    pub async fn job(&self, spec: &JobSpec) -> Result<Arc<LocalJob>, LocaliseError> {
        let slot = self.slot(&spec.id)?.lock_owned().await;
        if let Some(job) = &*slot {
            job.follow(spec, &self.shared).await?;
            return Ok(job.clone());
        }
        // It would begin with the deletion of what they use.
        if self.shared.unknown().contains(&spec.id) {
            return Err(LocaliseError::InUse);
        }
        let (shared, spec, mut slot) = (self.shared.clone(), spec.clone(), slot);
        // A separate task: it holds the slot to its end, even if the caller stops waiting.
        let localising = tokio::spawn(async move {
            let localised = shared.localise(&spec).await;
            match localised {
                Ok(job) => Ok(slot.insert(Arc::new(job)).clone()),
                Err(error) => {
                    shared.discard_job(&spec.id).await;
                    Err(error)
                }
            }
        });
        localising.await.unwrap_or(Err(LocaliseError::Stopped))
    }

    /// Forgets a job and deletes all that it has on this machine, unless it wants files of attempts
    /// that have failed to stay. If it is being brought here, that ends first.
    pub async fn forget(&self, id: &JobId) {
        self.shared.unknown().remove(id);
        let Some(slot) = self.lock().get(id).cloned() else {
            return self.shared.discard_job(id).await;
        };
        let mut slot_guard = slot.lock().await;
        let job = slot_guard.take();
        if !job.is_some_and(|job| keep::keeps_job(&job.conf)) {
            self.shared.discard_job(id).await;
        }
        drop(slot_guard);
        let mut jobs = self.lock();
        // The table's and ours: no task waits to localise it again.
        if Arc::strong_count(&slot) <= 2 {
            jobs.remove(id);
        }
    }

    /// The distributed cache.
    pub fn cache(&self) -> &Cache {
        &self.shared.cache
    }

    pub(super) fn dirs(&self) -> &Arc<LocalDirs> {
        &self.shared.dirs
    }

    /// The deleter of files on this machine.
    pub fn deletion(&self) -> &Deletion {
        &self.shared.deletion
    }

    pub(super) fn limits(&self) -> Limits {
        self.shared.limits
    }

    pub(super) fn host(&self) -> Option<&str> {
        self.shared.host.as_deref()
    }

    fn slot(&self, id: &JobId) -> Result<Slot<Arc<LocalJob>>, LocaliseError> {
        let mut jobs = self.lock();
        if jobs.len() >= MAX_JOBS && !jobs.contains_key(id) {
            return Err(LocaliseError::TooMany { what: "jobs", limit: MAX_JOBS });
        }
        Ok(jobs.entry(id.clone()).or_default().clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Slot<Arc<LocalJob>>>> {
        self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LocaliserCore {
    fn unknown(&self) -> MutexGuard<'_, HashSet<JobId>> {
        // Each change is one step.
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, job: &HandedJob) -> Result<LocalJob, LocaliseError> {
        let HandedJob { id, work, jar, tracker } = job.clone();
        let not_an_id = |_| LocaliseError::Stopped;
        let id: JobId = id.parse().map_err(not_an_id)?;
        let job_xml = self.dirs.find(&layout::job_xml(&id)).unwrap_or_default();
        let conf = JobConf::read(&self.site, &job_xml)?;
        let (tracker, jar_from_cache) = (Mutex::new(tracker), tokio::sync::Mutex::new(()));
        Ok(LocalJob { id, conf, work, jar, tracker, jar_from_cache })
    }

    async fn localise(&self, spec: &JobSpec) -> Result<LocalJob, LocaliseError> {
        self.discard_job(&spec.id).await;
        let job_xml = self.fetch(&spec.job_file, layout::job_xml(&spec.id)).await?;
        let (site, dirs, id) = (self.site.clone(), self.dirs.clone(), spec.id.clone());
        let path = job_xml.clone();
        let (mut conf, work) = blocking(move || {
            let conf = JobConf::read(&site, &path)?;
            let work = dirs.for_write(&layout::job_work(&id), None)?;
            make_dir(&work)?;
            Ok((conf, work))
        })
        .await?;
        conf.set("job.local.dir", &work.display().to_string());
        if conf.text_if_set(&keys::JOB_OBJECT_ACCESS).is_some() {
            let access = self.access(spec).await?;
            conf.set(keys::JOB_OBJECT_ACCESS.name, &access.display().to_string());
        }
        let jar = match conf.text_if_set(&keys::JOB_JAR) {
            None => None,
            Some(jar) => Some(self.jar(&spec.id, &conf, &Location::from_path(&jar)?).await?),
        };
        if let Some(jar) = &jar {
            conf.set(keys::JOB_JAR.name, &jar.display().to_string());
        }
        conf.set(keys::JOB_CHILD_CLASS.name, CHILD_CLASS);
        name_job_tracker(&mut conf, &spec.job_tracker, spec.secondary.as_deref());
        write(&conf, job_xml).await?;
        let tracker = Mutex::new((spec.job_tracker.clone(), spec.secondary.clone()));
        let jar_from_cache = tokio::sync::Mutex::new(());
        Ok(LocalJob { id: spec.id.clone(), conf, work, jar, tracker, jar_from_cache })
    }

    /// Copies the access of a job to object stores to where only the user of the tasks sees it.
    async fn access(&self, spec: &JobSpec) -> Result<PathBuf, LocaliseError> {
        let (dirs, to) = (self.dirs.clone(), layout::job_access(&spec.id));
        let path = blocking(move || {
            let path = dirs.for_write(&to, Some(ObjectAccess::MAX_BYTES))?;
            let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
            let made = std::fs::set_permissions(&directory, Permissions::from_mode(0o700));
            made.map_err(|error| LocaliseError::Io { path: directory, error })?;
            Ok(path)
        });
        let path = path.await?;
        self.files.fetch(&spec.job_file.beside(ObjectAccess::FILE), &path).await?;
        let copy = path.clone();
        blocking(move || {
            let made = std::fs::set_permissions(&copy, Permissions::from_mode(0o600));
            made.map_err(|error| LocaliseError::Io { path: copy, error })
        })
        .await?;
        Ok(path)
    }

    /// The place of the jar, which is there and unpacked unless it comes with the shared cache.
    async fn jar(
        &self,
        id: &JobId,
        conf: &JobConf,
        from: &Location,
    ) -> Result<PathBuf, LocaliseError> {
        if conf.is_true(&keys::JOB_SHARED_CACHE) {
            let (dirs, id) = (self.dirs.clone(), id.clone());
            return blocking(move || Ok(dirs.for_write(&layout::job_jar(&id), None)?)).await;
        }
        let jar = self.fetch(from, layout::job_jar(id)).await?;
        unpack_jar(&jar, self.limits).await?;
        Ok(jar)
    }

    /// Copies a file to a local directory that has room for it.
    async fn fetch(&self, from: &Location, to: PathBuf) -> Result<PathBuf, LocaliseError> {
        let status = self.files.status(from).await?;
        let dirs = self.dirs.clone();
        let path = blocking(move || Ok(dirs.for_write(&to, Some(status.bytes))?)).await?;
        self.files.fetch(from, &path).await?;
        Ok(path)
    }

    async fn discard_job(&self, id: &JobId) {
        let (dirs, deletion, id) = (self.dirs.clone(), self.deletion.clone(), id.clone());
        let discarded = blocking(move || {
            let attempts = dirs.of_attempts(|attempt| *attempt.job() == id);
            for path in dirs.all(&layout::job(&id)).into_iter().chain(attempts) {
                deletion.discard(&path).map_err(|error| LocaliseError::Io { path, error })?;
            }
            Ok(())
        });
        if let Err(error) = discarded.await {
            tracing::warn!(%error, "cannot delete the files of a job");
        }
    }
}

impl LocalJob {
    /// Writes the configuration again if the job tracker is another one by now.
    async fn follow(&self, spec: &JobSpec, shared: &LocaliserCore) -> Result<(), LocaliseError> {
        let wanted = (spec.job_tracker.clone(), spec.secondary.clone());
        if *self.tracker.lock().unwrap_or_else(PoisonError::into_inner) == wanted {
            return Ok(());
        }
        let mut conf = self.conf.clone();
        name_job_tracker(&mut conf, &spec.job_tracker, spec.secondary.as_deref());
        let (dirs, id) = (shared.dirs.clone(), self.id.clone());
        let place = blocking(move || {
            let relative = layout::job_xml(&id);
            Ok(dirs.find(&relative).map_or_else(|| dirs.for_write(&relative, None), Ok)?)
        });
        write(&conf, place.await?).await?;
        *self.tracker.lock().unwrap_or_else(PoisonError::into_inner) = wanted;
        Ok(())
    }
}

fn name_job_tracker(conf: &mut JobConf, primary: &str, secondary: Option<&str>) {
    conf.set("mapred.direct.task.umbilical.address", primary);
    match secondary {
        Some(secondary) => conf.set("mapred.direct.task.umbilical.secondary", secondary),
        None => conf.remove("mapred.direct.task.umbilical.secondary"),
    }
}

async fn write(conf: &JobConf, path: PathBuf) -> Result<(), LocaliseError> {
    let xml = conf.to_xml()?;
    blocking(move || replace(&path, xml.as_bytes())).await
}

/// Unpacks a job's jar beside itself.
pub(super) async fn unpack_jar(jar: &Path, limits: Limits) -> Result<(), LocaliseError> {
    let jar = jar.to_owned();
    blocking(move || {
        let into = jar.parent().unwrap_or(Path::new("/")).to_owned();
        unpack(&jar, Kind::Zip, &into, &limits)?;
        Ok(())
    })
    .await
}
