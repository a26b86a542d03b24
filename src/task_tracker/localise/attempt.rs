//! The part of localisation that is done for each attempt: directories, cache, configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::cache::{Held, link};
use super::job::{LocalJob, Localiser, unpack_jar};
use super::{LocaliseError, blocking, keep, make_dir, replace};
use crate::ids::AttemptId;
use crate::job_files::Location;
use crate::layout;
use crate::table::Keep;
use corona_config::{JobConf, keys};

/// Files of the cache that are fetched at a time for one attempt.
const MAX_PARALLEL: usize = 8;

/// A task that ends with its owner.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The purpose of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TaskKind {
    /// A map or a reduce, according to its name.
    Work,
    /// Sets the job up.
    JobSetup,
    /// Cleans up after the job.
    JobCleanup,
    /// Cleans up after a failed attempt, whose name it has.
    AttemptCleanup,
}

/// An attempt as a launch action describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptSpec {
    /// Its name.
    pub id: AttemptId,
    /// Its purpose.
    pub kind: TaskKind,
    /// Whether it is started as a map, as some set-up and clean-up tasks are.
    pub is_map: bool,
    /// The number of its task, as the action has it.
    pub partition: i32,
    /// The number of maps of the job, for a reduce.
    pub num_maps: i32,
    /// The bytes of `split.dta`, for a map.
    pub split: Option<Arc<[u8]>>,
    /// Whether the memory of tasks is looked after.
    pub memory_managed: bool,
}

/// An attempt that can be started.
#[derive(Debug)]
pub struct LocalAttempt {
    /// Its name.
    pub id: AttemptId,
    /// Its purpose.
    pub kind: TaskKind,
    /// Whether it is started as a map.
    pub is_map: bool,
    /// The directory that it runs in.
    pub work: PathBuf,
    /// Its configuration.
    pub job_xml: PathBuf,
    /// Its contents.
    pub conf: JobConf,
    /// The job's jar.
    pub jar: Option<PathBuf>,
    /// Files and archives of the cache that belong on its class path, in order.
    pub cached_classes: Vec<PathBuf>,
    /// Its files in the cache, which stay as long as this.
    pub held: Vec<Held>,
    /// Which of its files stay when they are not needed any more.
    pub keep: Keep,
}

/// An attempt that was started, for the program that takes the place of this one. Its configuration is in its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedLocalAttempt {
    id: String,
    kind: TaskKind,
    is_map: bool,
    work: PathBuf,
    job_xml: PathBuf,
    jar: Option<PathBuf>,
    cached_classes: Vec<PathBuf>,
    held: Vec<PathBuf>,
    keep: Keep,
}

impl HandedLocalAttempt {
    /// The files of the cache that it uses.
    pub fn held(&self) -> &[PathBuf] {
        &self.held
    }
}

impl LocalAttempt {
    /// What the next program needs to go on with it.
    pub fn hand_over(&self) -> HandedLocalAttempt {
        HandedLocalAttempt {
            id: self.id.to_string(),
            kind: self.kind,
            is_map: self.is_map,
            work: self.work.clone(),
            job_xml: self.job_xml.clone(),
            jar: self.jar.clone(),
            cached_classes: self.cached_classes.clone(),
            held: self.held.iter().map(|held| held.path.clone()).collect(),
            keep: self.keep,
        }
    }

    /// Takes one over, with its files in the cache as far as they are known there. It blocks.
    ///
    /// # Errors
    /// Its configuration cannot be read.
    pub fn take_over(
        handed: HandedLocalAttempt,
        localiser: &Localiser,
    ) -> Result<LocalAttempt, LocaliseError> {
        let held = handed.held.iter().filter_map(|path| localiser.cache().held_at(path));
        Ok(LocalAttempt {
            id: handed.id.parse().map_err(|_| LocaliseError::Stopped)?,
            kind: handed.kind,
            is_map: handed.is_map,
            work: handed.work,
            conf: JobConf::localised(&handed.job_xml)?,
            job_xml: handed.job_xml,
            jar: handed.jar,
            cached_classes: handed.cached_classes,
            held: held.collect(),
            keep: handed.keep,
        })
    }
}

/// A list of the job's configuration that names files of the cache.
struct CacheList {
    files: &'static keys::Key,
    /// The times of the files; `None`: their names identify the version.
    times: Option<&'static keys::Key>,
    class_path: &'static keys::Key,
    /// Where tasks look for the local paths.
    result: &'static str,
    is_archive: bool,
}

/// In the order in which they stand on the class path.
const LISTS: [CacheList; 4] = [
    CacheList {
        files: &keys::JOB_CACHE_ARCHIVES,
        times: Some(&keys::JOB_CACHE_ARCHIVES_TIMES),
        class_path: &keys::JOB_CLASS_PATH_ARCHIVES,
        result: "mapred.cache.localArchives",
        is_archive: true,
    },
    CacheList {
        files: &keys::JOB_SHARED_ARCHIVES,
        times: None,
        class_path: &keys::JOB_CLASS_PATH_ARCHIVES,
        result: "mapred.cache.shared.localArchives",
        is_archive: true,
    },
    CacheList {
        files: &keys::JOB_CACHE_FILES,
        times: Some(&keys::JOB_CACHE_FILES_TIMES),
        class_path: &keys::JOB_CLASS_PATH_FILES,
        result: "mapred.cache.localFiles",
        is_archive: false,
    },
    CacheList {
        files: &keys::JOB_SHARED_FILES,
        times: None,
        class_path: &keys::JOB_CLASS_PATH_FILES,
        result: "mapred.cache.shared.localFiles",
        is_archive: false,
    },
];

/// Whether the settings of a job want a process for each of its maps, or of its reduces.
fn has_own_process(conf: &JobConf, is_map: bool) -> bool {
    let script = if is_map { &keys::JOB_MAP_DEBUG } else { &keys::JOB_REDUCE_DEBUG };
    conf.text_if_set(script).is_some() || conf.is_true(&keys::JOB_PROFILE)
}

impl AttemptSpec {
    fn is_cleanup(&self) -> bool {
        self.kind == TaskKind::AttemptCleanup
    }
}

impl Localiser {
    /// Makes everything that an attempt needs to start. Leftovers of an earlier try of the same
    /// name are deleted.
    pub async fn attempt(
        &self,
        job: &LocalJob,
        spec: &AttemptSpec,
    ) -> Result<LocalAttempt, LocaliseError> {
        let (dir, work) = self.directories(spec).await?;
        let mut conf = job.conf.clone();
        conf.set("mapred.local.dir", &self.dirs().as_property());
        if let Some(host) = self.host() {
            conf.set("slave.host.name", host);
        }
        let id = &spec.id;
        conf.set("mapred.task.id", id.as_str());
        conf.set("mapred.tip.id", &id.task());
        conf.set("mapred.task.is.map", if spec.is_map { "true" } else { "false" });
        conf.set("mapred.task.partition", &spec.partition.to_string());
        conf.set("mapred.job.id", id.job().as_str());
        if !spec.is_map {
            conf.set("mapred.map.tasks", &spec.num_maps.to_string());
        }
        if spec.memory_managed {
            conf.set("task.memory.mgmt.enabled", "true");
        }
        let keep = keep::keep(&conf, id)?;
        if keep.needs_own_process() || has_own_process(&conf, spec.is_map) {
            // As the original: its process is not to ask for another task.
            conf.set(keys::JOB_REUSE.name, "1");
        }
        let (held, cached_classes) = self.cached(job, &mut conf, &work).await?;
        let job_xml = dir.join(layout::JOB_XML);
        let (xml, path, split) = (conf.to_xml()?, job_xml.clone(), spec.split.clone());
        blocking(move || {
            if let Some(split) = split {
                replace(&dir.join("split.dta"), &split)?;
            }
            replace(&path, xml.as_bytes())
        })
        .await?;
        let (id, kind, is_map, jar) = (id.clone(), spec.kind, spec.is_map, job.jar.clone());
        Ok(LocalAttempt { id, kind, is_map, work, job_xml, conf, jar, cached_classes, held, keep })
    }

    /// Deletes the directories of an attempt, or, of a map whose output is to be served, all but that.
    /// The process of the attempt must have ended.
    pub async fn forget_attempt(
        &self,
        id: &AttemptId,
        kind: TaskKind,
        keep_output: bool,
    ) -> Result<(), LocaliseError> {
        let (dirs, deletion, id) = (self.dirs().clone(), self.deletion().clone(), id.clone());
        let attempt = layout::attempt(&id, kind == TaskKind::AttemptCleanup);
        let gone = if keep_output { attempt.join(layout::WORK) } else { attempt };
        blocking(move || {
            let at_top = dirs.all(Path::new(id.as_str()));
            for path in dirs.all(&gone).into_iter().chain(at_top) {
                deletion.discard(&path).map_err(|error| LocaliseError::Io { path, error })?;
            }
            Ok(())
        })
        .await
    }

    /// The attempt's directory and its working directory, which may be on another disk.
    async fn directories(&self, spec: &AttemptSpec) -> Result<(PathBuf, PathBuf), LocaliseError> {
        self.forget_attempt(&spec.id, spec.kind, false).await?;
        let dirs = self.dirs().clone();
        let relative = layout::attempt(&spec.id, spec.is_cleanup());
        let shared = layout::job_work(spec.id.job());
        blocking(move || {
            let dir = dirs.for_write(&relative, None)?;
            make_dir(&dir)?;
            // Tasks may look for shared files beside their own directory.
            if let (Some(shared), Some(job)) = (dirs.find(&shared), dir.parent()) {
                let beside = job.join(layout::WORK);
                match std::os::unix::fs::symlink(&shared, &beside) {
                    Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                        return Err(LocaliseError::Io { path: beside, error });
                    }
                    _ => {}
                }
            }
            let work = dirs.for_write(&relative.join(layout::WORK), None)?;
            make_dir(&work)?;
            Ok((dir, work))
        })
        .await
    }

    /// Copies the files of the cache, adds their paths to the configuration, and returns those that
    /// belong on the class path.
    async fn cached(
        &self,
        job: &LocalJob,
        conf: &mut JobConf,
        work: &Path,
    ) -> Result<(Vec<Held>, Vec<PathBuf>), LocaliseError> {
        let (mut all, mut classes) = (Vec::new(), Vec::new());
        // Java tasks make the links themselves.
        let links = conf.text_if_set(&keys::JOB_COMMAND).is_some()
            && conf.get("mapred.create.symlink").as_deref() == Some("yes");
        let gate = Arc::new(Semaphore::new(MAX_PARALLEL));
        let shared_jar = job.jar.as_deref().filter(|_| conf.is_true(&keys::JOB_SHARED_CACHE));
        for list in &LISTS {
            let files = conf.list(list.files);
            let times = match list.times {
                None => vec![None; files.len()],
                Some(times) => times_of(conf, list.files, times, files.len())?,
            };
            let on_class_path = conf.text(list.class_path);
            let mut local = Vec::new();
            let locations: Result<Vec<_>, _> =
                files.iter().map(|file| Location::from_uri(file)).collect();
            let fetching = locations?.into_iter().zip(times).map(|(location, time)| {
                let (cache, gate) = (self.cache().clone(), gate.clone());
                let is_archive = list.is_archive;
                let held = tokio::spawn(async move {
                    // The semaphore is never closed.
                    let _permit = gate.acquire().await;
                    let held = cache.get(&location, time, is_archive).await;
                    held.map(|held| (location, held))
                });
                AbortOnDrop(held)
            });
            let fetching: Vec<_> = fetching.collect();
            for (index, mut fetched) in fetching.into_iter().enumerate() {
                let fetched = (&mut fetched.0).await;
                let (location, held) = fetched.unwrap_or(Err(LocaliseError::Stopped))?;
                let is_job_jar = index == 0 && list.is_archive && list.times.is_none();
                match shared_jar.filter(|_| is_job_jar) {
                    Some(jar) => self.jar_from_cache(job, jar, &held, location.name()).await?,
                    None if on_class_path.split(':').any(|path| path == location.path()) => {
                        classes.push(held.path.clone());
                    }
                    None => {}
                }
                if let Some(name) = location.fragment().filter(|_| links) {
                    link(&held, work, name)?;
                }
                local.push(held.path.display().to_string());
                all.push(held);
            }
            if !local.is_empty() {
                conf.set(list.result, &local.join(","));
            }
        }
        Ok((all, classes))
    }

    /// Copies the job's jar out of the shared cache, once for the job.
    async fn jar_from_cache(
        &self,
        job: &LocalJob,
        jar: &Path,
        held: &Held,
        name: &str,
    ) -> Result<(), LocaliseError> {
        let _one_at_a_time = job.jar_from_cache.lock().await;
        let (from, to) = (held.path.join(name), jar.to_owned());
        let copied = blocking(move || {
            if to.exists() {
                return Ok(false);
            }
            let part = to.with_extension("part");
            let copied = std::fs::copy(&from, &part).and_then(|_| std::fs::rename(&part, &to));
            copied.map_err(|error| LocaliseError::Io { path: to, error })?;
            Ok(true)
        });
        if !copied.await? {
            return Ok(());
        }
        let unpacked = unpack_jar(jar, self.limits()).await;
        if unpacked.is_err() {
            // The next attempt is to find out by itself.
            let _ = std::fs::remove_file(jar);
        }
        unpacked
    }
}

/// The times of the files of a list, in milliseconds.
fn times_of(
    conf: &JobConf,
    files: &'static keys::Key,
    times: &'static keys::Key,
    count: usize,
) -> Result<Vec<Option<i64>>, LocaliseError> {
    let texts = conf.list(times);
    let numbers: Vec<Option<i64>> =
        texts.iter().filter_map(|text| text.trim().parse().ok()).map(Some).collect();
    if numbers.len() != count || numbers.len() != texts.len() {
        let time_count = numbers.len();
        return Err(LocaliseError::Lists {
            files: files.name,
            count,
            times: times.name,
            time_count,
        });
    }
    Ok(numbers)
}
