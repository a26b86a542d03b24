//! The preparation of an attempt's process: its files and its command line.
//!
//! Spec: mapreduce/04 §4.4, §4.5.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::TrackerCore;
use crate::child::{ChildCommand, ClassArchives, CommandError, Launch, command};
use crate::handover::encoded::{Encoded, NotEncoded};
use crate::ids::AttemptId;
use crate::job_files::{Location, NotALocation};
use crate::localise::{
    AttemptSpec, HandedLocalAttempt, JobSpec, LocalAttempt, LocaliseError, Localiser, TaskKind,
};
use corona_config::{JobConf, keys};
use corona_hadoop::io::formats::Writable;
use corona_hadoop::io::{Reader, TooLarge};
use corona_hadoop::writables::{self, FileSplit, JvmId, SessionInfo, Task};
use corona_mapreduce::native::{InputCodec, InputCodecs};

/// The largest split of a map, in bytes. No call that brings one can be larger.
const MAX_SPLIT_BYTES: usize = 64 << 20;
/// The most files of `jars/lib` that are looked at.
const MAX_LIBRARIES: usize = 100_000;

/// Why an attempt cannot be started.
#[derive(Debug, Error)]
pub(super) enum LaunchError {
    #[error(transparent)]
    Location(#[from] NotALocation),
    #[error("the split has {0}")]
    Split(#[from] TooLarge),
    #[error(transparent)]
    Localise(#[from] LocaliseError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("localisation was stopped")]
    Stopped,
    #[error("what the former program has handed over: {0}")]
    Handed(#[from] NotEncoded),
}

/// The files to localise.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) job: JobSpec,
    pub(super) attempt: AttemptSpec,
    /// Whether its work is expected to be short.
    is_short: bool,
    jvm_job: writables::JobId,
    jvm_is_map: bool,
}

/// A launch that is ready to start.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) attempt: LocalAttempt,
    pub(super) command: ChildCommand,
    pub(super) jvm: JvmId,
    /// How many tasks its process may run; `None` if no more than one.
    pub(super) reuse: Option<Reuse>,
}

/// A process that may run several tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reuse {
    /// How many after the first one; `None` for any number.
    pub(super) further: Option<u32>,
}

/// A launch, for the program that takes the place of this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandedReady {
    attempt: HandedLocalAttempt,
    command: ChildCommand,
    jvm: Encoded,
    reuse: Option<Reuse>,
}

impl HandedReady {
    /// The files of the cache that its process uses.
    pub(super) fn held(&self) -> &[PathBuf] {
        self.attempt.held()
    }
}

impl Ready {
    pub(super) fn hand_over(&self) -> HandedReady {
        HandedReady {
            attempt: self.attempt.hand_over(),
            command: self.command.clone(),
            jvm: Encoded::of(&self.jvm),
            reuse: self.reuse,
        }
    }

    /// Takes one over. It blocks.
    ///
    /// # Errors
    /// A part of it, or the configuration of the attempt, cannot be read.
    pub(super) fn take_over(
        handed: HandedReady,
        localiser: &Localiser,
    ) -> Result<Ready, LaunchError> {
        let HandedReady { attempt, command, jvm, reuse } = handed;
        let attempt = LocalAttempt::take_over(attempt, localiser)?;
        Ok(Ready { attempt, command, jvm: jvm.read()?, reuse })
    }
}

impl Reuse {
    /// As a job wants it. Only processes of Java take several tasks.
    fn of(conf: &JobConf, command: &ChildCommand) -> Option<Reuse> {
        let tasks = conf.number(&keys::JOB_REUSE).filter(|_| command.is_java).unwrap_or(1);
        // The original's tasks take any number for one below 1.
        match u32::try_from(tasks) {
            Ok(1) => None,
            Ok(tasks @ 2..) => Some(Reuse { further: Some(tasks - 1) }),
            Ok(0) | Err(_) => Some(Reuse { further: None }),
        }
    }
}

/// A task's description, checked. `is_short` says whether its work is expected to be short.
pub(super) fn spec(
    task: &Task,
    is_short: bool,
    session: &SessionInfo,
    name: &AttemptId,
    reserved_bytes: Option<u64>,
) -> Result<Spec, LaunchError> {
    let trackers = &session.trackers;
    let job = JobSpec {
        id: name.job().clone(),
        job_file: Location::from_path(&task.job_file)?,
        job_tracker: trackers.job_tracker.to_string(),
        secondary: trackers.secondary.as_ref().map(ToString::to_string),
    };
    let (split, num_maps) = match &task.kind {
        writables::TaskKind::Map { split } => (split.as_ref(), 0),
        writables::TaskKind::Reduce { maps } => (None, *maps),
    };
    let split = split.map(|split| writables::to_bytes(split, MAX_SPLIT_BYTES)).transpose()?;
    let attempt = AttemptSpec {
        id: name.clone(),
        kind: kind(task),
        is_map: task.is_map(),
        partition: task.partition,
        num_maps,
        split: split.map(Into::into),
        memory_managed: reserved_bytes.is_some(),
    };
    let id = &task.attempt;
    Ok(Spec { job, attempt, is_short, jvm_job: id.job().clone(), jvm_is_map: id.task.is_map })
}

/// The purpose of a task.
pub(super) fn kind(task: &Task) -> TaskKind {
    match task {
        Task { task_cleanup: true, .. } => TaskKind::AttemptCleanup,
        Task { job_setup: true, .. } => TaskKind::JobSetup,
        Task { job_cleanup: Some(_), .. } => TaskKind::JobCleanup,
        _ => TaskKind::Work,
    }
}

/// Brings everything here.
pub(super) async fn prepare(shared: Arc<TrackerCore>, spec: Spec) -> Result<Ready, LaunchError> {
    let job = shared.parts.localiser.job(&spec.job).await?;
    let attempt = shared.parts.localiser.attempt(&job, &spec.attempt).await?;
    let number = shared.next_jvm.fetch_add(1, Ordering::Relaxed);
    let jvm = JvmId { number, job: spec.jvm_job, is_map: spec.jvm_is_map };
    let split = spec.attempt.split.clone();
    let prepared = tokio::task::spawn_blocking(move || {
        let logs = &shared.parts.logs;
        let created = logs.create(&attempt.id);
        let task_log_dir =
            created.map_err(|error| LaunchError::Io { path: logs.dir(&attempt.id), error })?;
        let libraries = match attempt.jar.as_deref().and_then(Path::parent) {
            None => vec![],
            Some(jars) => files(&jars.join("lib"))?,
        };
        let launch = Launch {
            install: &shared.parts.install,
            log_dir: logs.log_dir(),
            task_log_dir: &task_log_dir,
            umbilical: shared.parts.umbilical,
            jvm_number: number,
            jar_libraries: &libraries,
            is_work_short: spec.is_short,
            is_input_native: split
                .as_deref()
                .is_none_or(|split| is_native_input(split, &attempt.conf)),
            archive: &|| shared.parts.archives.as_ref().and_then(ClassArchives::get),
        };
        let command = command(&attempt, &launch, &|name| std::env::var(name).ok())?;
        let reuse = Reuse::of(&attempt.conf, &command);
        Ok(Ready { attempt, command, jvm, reuse })
    });
    prepared.await.unwrap_or(Err(LaunchError::Stopped))
}

/// Whether a native task reads a split as a task of Java does: a part of a file whose name marks it as text,
/// plain or in a codec that both know.
fn is_native_input(split: &[u8], conf: &JobConf) -> bool {
    let split = writables::Split::decode(&mut Reader::new(split));
    let file = split.ok().filter(|split| split.class == "org.apache.hadoop.mapred.FileSplit");
    let file = file.and_then(|split| FileSplit::decode(&mut Reader::new(&split.data)).ok());
    let (Some(file), Ok(codecs)) = (file, InputCodecs::of(conf)) else { return false };
    codecs.of_file(&file.path).is_ok_and(|codec| codec.is_none_or(InputCodec::is_of_original))
}

/// The files in a directory, in the order of their names. None if it does not exist.
fn files(dir: &Path) -> Result<Vec<PathBuf>, LaunchError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(LaunchError::Io { path: dir.to_owned(), error }),
    };
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).take(MAX_LIBRARIES).collect();
    files.sort();
    Ok(files)
}
