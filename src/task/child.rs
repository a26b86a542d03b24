//! The process of a task, from its first call to its exit status. Spec: mapreduce/04 §4.6.
//!
//! A thread does the work. Meanwhile this one reports to the task tracker, and ends the process when the
//! task tracker does not know the task any more or cannot be reached.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use corona_config::{JobConf, keys};
use corona_filesystem::{FileSystems, ObjectAccess};
use corona_hadoop::writables::{
    CleanupState, InetAddress, JvmContext, JvmId, Phase, Task, TaskAttemptId, TaskKind, TaskState,
    TaskStatus,
};
use corona_mapreduce::native::NativeJob;
use corona_net::Backoff;
use corona_process::procfs;
use thiserror::Error;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use crate::counters::{Count, TaskCounters};
use crate::error::TaskError;
use crate::files::JobFiles;
use crate::output::{Committer, RecordFormat, RecordOutput};
use crate::profile::Profile;
use crate::program::{Programs, environment};
use crate::scratch::Scratch;
use crate::settings::TaskSettings;
use crate::status::Status;
use crate::umbilical::{MOST_ERRORS, MapEvents, Umbilical, address};
use crate::{map, reduce};

/// Exit statuses, as the original's children have them.
const UNREACHABLE: u8 = 65;
const UNKNOWN: u8 = 66;
/// The longest reason of a failure that is reported.
const MOST_REASON_BYTES: usize = 32 << 10;

/// The data that a task tracker passes to the process of a task.
#[derive(Clone, Debug)]
pub struct Birth {
    /// Where the task tracker listens.
    pub umbilical: InetAddress,
    /// The attempt that the process is started for.
    pub attempt: TaskAttemptId,
    /// The number of the process.
    pub number: i32,
    /// The process id, as the shell that has started it knows it, if there was one.
    pub pid: String,
    /// The directory that the task runs in.
    pub work: PathBuf,
    /// The file for its profile, if it is to be profiled.
    pub profile: Option<PathBuf>,
}

/// The reason why a process cannot be that of a task.
#[derive(Debug, Error)]
#[error("{name} {wrong}; this program is started by a task tracker")]
pub struct NotATask {
    name: &'static str,
    wrong: &'static str,
}

impl Birth {
    /// Reads the environment.
    ///
    /// # Errors
    /// A variable that task trackers set is missing or is not of its form.
    pub fn of(variable: &dyn Fn(&str) -> Option<String>, work: PathBuf) -> Result<Birth, NotATask> {
        let get = |name| variable(name).ok_or(NotATask { name, wrong: "is not set" });
        let wrong = |name| NotATask { name, wrong: "cannot be read" };
        Ok(Birth {
            umbilical: address(&get("CORONA_UMBILICAL")?)
                .ok_or_else(|| wrong("CORONA_UMBILICAL"))?,
            attempt: get("mapred_task_id")?.parse().map_err(|_| wrong("mapred_task_id"))?,
            number: get("CORONA_JVM_NUMBER")?.parse().map_err(|_| wrong("CORONA_JVM_NUMBER"))?,
            pid: variable("JVM_PID").unwrap_or_else(|| std::process::id().to_string()),
            work,
            profile: variable("CORONA_PROFILE").map(PathBuf::from),
        })
    }

    fn context(&self) -> JvmContext {
        let job = self.attempt.job().clone();
        let jvm = JvmId { number: self.number, job, is_map: self.attempt.task.is_map };
        JvmContext { jvm, pid: self.pid.clone() }
    }
}

/// Runs the task of this process, and returns the exit status.
///
/// # Errors
/// The task tracker could not be asked for the task, or the process has no threads.
pub fn run(birth: &Birth) -> Result<u8, TaskError> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(TaskError::local("(threads)"))?;
    let status = runtime.block_on(serve(birth, runtime.handle().clone()));
    // A file system that does not answer must not keep the process from ending.
    Runtime::shutdown_background(runtime);
    status
}

async fn serve(birth: &Birth, runtime: Handle) -> Result<u8, TaskError> {
    let umbilical = Arc::new(Umbilical::new(birth.umbilical.clone(), runtime.clone()));
    let Some(task) = first_task(&umbilical, birth).await? else { return Ok(0) };
    let status = Arc::new(Status::new(task.is_map()));
    let counters = Arc::new(TaskCounters::default());
    let programs = Arc::new(std::sync::OnceLock::<Arc<Programs>>::new());
    let reports = Reports {
        umbilical: umbilical.clone(),
        attempt: task.attempt.clone(),
        slots: task.slots,
        has_counters: task.status.counters.is_some(),
        status: status.clone(),
        counters: counters.clone(),
    };
    let (done, is_done) = oneshot::channel();
    let (mine, theirs, birth) = (reports.clone(), programs.clone(), birth.clone());
    let thread = std::thread::Builder::new().name("task".to_owned()).spawn(move || {
        let worker = Worker { task, reports: mine, runtime, birth, programs: theirs };
        // Without a receiver the process ends anyway.
        let _ = done.send(worker.finish());
    });
    thread.map_err(TaskError::local("(threads)"))?;
    let ended = tokio::select! {
        // A thread that panicked has sent nothing: the task tracker sees that the task was not done.
        ended = is_done => ended.unwrap_or(1),
        lost = reports.until_lost() => lost,
    };
    if let Some(programs) = programs.get() {
        programs.stop();
    }
    Ok(ended)
}

/// Requests the task. None: this process has none.
async fn first_task(umbilical: &Umbilical, birth: &Birth) -> Result<Option<Task>, TaskError> {
    for asked in 0_u64.. {
        let answer = umbilical.get_task(birth.context()).await?;
        if answer.should_die {
            return Ok(None);
        }
        if let Some(task) = answer.task {
            return Ok(Some(task));
        }
        sleep(Duration::from_millis(if asked < 5 { 500 } else { 1500 })).await;
    }
    Ok(None)
}

/// Reports to the task tracker.
#[derive(Clone, Debug)]
struct Reports {
    umbilical: Arc<Umbilical>,
    attempt: TaskAttemptId,
    slots: i32,
    has_counters: bool,
    status: Arc<Status>,
    counters: Arc<TaskCounters>,
}

impl Reports {
    fn status(&self) -> TaskStatus {
        if let Some(bytes) = procfs::Usage::own().peak_resident_bytes {
            self.counters.set(Count::RssBytes, bytes);
        }
        self.counters.set(Count::CpuMillis, cpu_ms());
        let counters = self.has_counters.then(|| self.counters.report());
        self.status.report(&self.attempt, self.slots, counters)
    }

    /// Reports now and then, until the task tracker is lost or has lost the task. The exit status.
    async fn until_lost(&self) -> u8 {
        let mut errors = 0;
        let mut due = Instant::now() + self.interval();
        loop {
            let read = tokio::select! {
                () = sleep_until(due) => None,
                // Should the process be killed, the node knows which record it was at.
                records = self.status.next_records() => Some(records),
            };
            let known = match read {
                Some(records) => self.umbilical.next_records(&self.attempt, records).await,
                None => {
                    let known = match self.counters.take_progress() {
                        true => self.umbilical.status_update(self.status()).await,
                        false => self.umbilical.ping(&self.attempt).await,
                    };
                    due = Instant::now() + self.interval();
                    known
                }
            };
            match known {
                Ok(true) => errors = 0,
                Ok(false) => {
                    tracing::warn!("the task tracker does not know this task; ending");
                    return UNKNOWN;
                }
                Err(error) => {
                    errors += 1;
                    tracing::warn!(%error, "cannot report to the task tracker; retrying");
                    if errors >= MOST_ERRORS {
                        return UNREACHABLE;
                    }
                }
            }
        }
    }

    fn interval(&self) -> Duration {
        self.status.report_interval()
    }
}

/// Processor time of this process and of the programs that it waited for, in milliseconds.
fn cpu_ms() -> u64 {
    let own = procfs::Process::of(std::process::id().cast_signed());
    own.map_or(0, |own| procfs::ticks_to_ms(own.cpu_ticks))
}

/// Does the work of a task.
struct Worker {
    task: Task,
    reports: Reports,
    runtime: Handle,
    birth: Birth,
    programs: Arc<std::sync::OnceLock<Arc<Programs>>>,
}

impl Worker {
    /// Does the work and reports how it ended. Returns the exit status.
    fn finish(self) -> u8 {
        let umbilical = self.reports.umbilical.clone();
        let attempt = &self.task.attempt;
        let failed = match self.work() {
            Ok(()) => match umbilical.done(attempt) {
                Ok(()) => return 0,
                Err(error) => TaskError::Umbilical(error),
            },
            Err(TaskError::Stopped) => return UNKNOWN,
            Err(error) => error,
        };
        let why = failed.to_string();
        let why = crate::error::cut(&why, MOST_REASON_BYTES);
        tracing::error!(%attempt, why, "the task failed");
        let told = match failed {
            TaskError::Shuffle(_) => umbilical.shuffle_error(attempt, why),
            TaskError::Local { .. } => umbilical.fs_error(attempt, why),
            _ => umbilical.diagnose(attempt, &format!("{why}\n")),
        };
        if let Err(error) = told {
            tracing::error!(%error, "cannot report the failure");
            return UNREACHABLE;
        }
        0
    }

    fn work(&self) -> Result<(), TaskError> {
        let conf = self.configuration()?;
        let files = self.files(&conf)?;
        let committer =
            Committer::new(&files, conf.get("mapred.output.dir").filter(|dir| !dir.is_empty()));
        let (status, attempt) = (&self.reports.status, self.task.attempt.to_string());
        let task = &self.task;
        if task.task_cleanup {
            self.enter_cleanup("cleanup")?;
            committer.abort_task(&attempt)?;
        } else if let Some(end) = task.job_cleanup {
            self.enter_cleanup("cleanup")?;
            match end {
                CleanupState::Succeeded => committer.end_job(true, is_marked(&conf))?,
                CleanupState::Failed | CleanupState::Killed => committer.end_job(false, false)?,
                CleanupState::Running | CleanupState::Prep => {
                    return Err(TaskError::Task(format!(
                        "a job that is {end} cannot be cleaned up after"
                    )));
                }
            }
        } else if task.job_setup {
            status.set_text("setup");
            committer.set_up_job()?;
        } else {
            let has_end = conf.is_true(&keys::JOB_SETUP_CLEANUP_NEEDED);
            let worked = self.map_or_reduce(conf, &files, &committer);
            let worked = worked.and_then(|()| self.commit(&committer, &attempt, has_end));
            if worked.is_err() {
                self.abort(&committer, &attempt);
                return worked;
            }
        }
        self.last_report()
    }

    /// The configuration of the attempt. Everything of the site is in it.
    fn configuration(&self) -> Result<JobConf, TaskError> {
        let path = PathBuf::from(&self.task.job_file);
        JobConf::localised(&path)
            .map_err(|error| TaskError::Configuration { path, why: error.to_string() })
    }

    fn files(&self, conf: &JobConf) -> Result<JobFiles, TaskError> {
        let mut settings = conf.file_systems().map_err(|error| TaskError::Configuration {
            path: PathBuf::from(&self.task.job_file),
            why: error.to_string(),
        })?;
        if !self.task.user.is_empty() {
            settings.user.clone_from(&self.task.user);
        }
        // Never with the keys of the node.
        let access = conf.text_if_set(&keys::JOB_OBJECT_ACCESS);
        let access = access.map(|path| ObjectAccess::read(Path::new(&path))).transpose()?;
        let systems = FileSystems::new(settings)?.with_access(access);
        Ok(JobFiles::new(systems, self.runtime.clone(), self.reports.counters.clone()))
    }

    fn enter_cleanup(&self, text: &str) -> Result<(), TaskError> {
        self.reports.status.set_phase(Phase::Cleanup);
        self.reports.status.set_text(text);
        self.report()
    }

    fn report(&self) -> Result<(), TaskError> {
        match self.reports.umbilical.report(&self.reports.status())? {
            true => Ok(()),
            false => Err(TaskError::Stopped),
        }
    }

    fn last_report(&self) -> Result<(), TaskError> {
        self.reports.status.set_progress(1.0);
        self.report()
    }

    fn map_or_reduce(
        &self,
        conf: JobConf,
        files: &JobFiles,
        committer: &Committer<'_>,
    ) -> Result<(), TaskError> {
        let began = std::time::Instant::now();
        let params = conf.text(&keys::JOB_PROFILE_PARAMS);
        let profile = self.birth.profile.as_deref().map(|file| Profile::of(&params, file));
        let work = self.prepared(conf, files, committer, profile.as_ref())?;
        let done = match &self.task.kind {
            TaskKind::Map { split } => map::run(&work, self.task.partition, split.as_ref()),
            TaskKind::Reduce { maps } => {
                let maps = usize::try_from(*maps).unwrap_or(0);
                reduce::run(&work, self.task.partition, maps)
            }
        };
        if let Some(Err(error)) = profile.map(|profile| profile.write(began)) {
            tracing::warn!(%error, "cannot write the profile of the task");
        }
        done
    }

    fn prepared<'a>(
        &'a self,
        mut conf: JobConf,
        files: &'a JobFiles,
        committer: &Committer<'_>,
        profile: Option<&Profile>,
    ) -> Result<Work<'a>, TaskError> {
        let job = NativeJob::of(&conf)?;
        let settings = TaskSettings::of(&conf, &job);
        self.reports.status.set_report_interval(settings.report_interval);
        conf.set("mapred.skip.on", if self.task.skipping { "true" } else { "false" });
        let attempt = self.task.attempt.to_string();
        let output_dir = committer.work_dir(&attempt);
        if let Some(dir) = &output_dir {
            conf.set("mapred.work.output.dir", dir);
        }
        if let TaskKind::Map { split } = &self.task.kind {
            let (split, _) = map::file_split(split.as_ref())?;
            conf.set("map.input.file", &split.path);
            conf.set("map.input.start", &split.start.to_string());
            conf.set("map.input.length", &split.length.to_string());
        }
        let local = conf.list(&keys::TT_LOCAL_DIRS);
        let local: Vec<PathBuf> = local.iter().map(|dir| PathBuf::from(dir.trim())).collect();
        let scratch = Scratch::new(&local, &self.task.attempt.job().to_string(), &attempt);
        link_files(&conf, &self.birth.work)?;
        let mut programs = Programs::new(&self.birth.work);
        programs.environment = variables(&conf, &self.birth.work);
        programs.reporter_prefix.clone_from(&job.reporter_prefix);
        programs.exit_status_counts = job.exit_status_counts;
        programs.stderr_lines = settings.stderr_lines;
        programs.max_line_bytes = settings.max_record_bytes;
        programs.max_output_bytes = settings.max_output_bytes;
        programs.small_pipes = self.task.skipping;
        programs.profiler = profile.map(|profile| profile.words().to_vec()).unwrap_or_default();
        let programs = self.programs.get_or_init(|| Arc::new(programs)).clone();
        Ok(Work {
            job,
            settings,
            attempt: self.task.attempt.clone(),
            files,
            scratch,
            programs,
            counters: self.reports.counters.clone(),
            status: self.reports.status.clone(),
            output_dir,
            local_dirs: local,
            conf,
            worker: self,
        })
    }

    /// Commits the output, if there is one, when the job tracker allows it.
    fn commit(
        &self,
        committer: &Committer<'_>,
        attempt: &str,
        has_end: bool,
    ) -> Result<(), TaskError> {
        if !committer.needs_commit(attempt)? {
            return Ok(());
        }
        let reports = &self.reports;
        reports.status.set_state(TaskState::CommitPending);
        reports.umbilical.commit_pending(&reports.status())?;
        let mut pauses = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
        while !reports.umbilical.can_commit(&self.task.attempt)? {
            // A task that waits is no task that hangs.
            reports.counters.progressed();
            std::thread::sleep(pauses.pause());
        }
        committer.commit_task(attempt)?;
        if !has_end {
            committer.complete()?;
        }
        Ok(())
    }

    /// Deletes the output of a failed task, so that no other attempt has to.
    fn abort(&self, committer: &Committer<'_>, attempt: &str) {
        let aborted =
            self.enter_cleanup("cleanup").and_then(|()| Ok(committer.abort_task(attempt)?));
        if let Err(error) = aborted {
            tracing::warn!(%error, "cannot delete the output of the failed task");
        }
    }
}

fn is_marked(conf: &JobConf) -> bool {
    conf.get("mapreduce.fileoutputcommitter.marksuccessfuljobs").as_deref() != Some("false")
}

/// What the names of properties that are variables of programs begin with.
const ENVIRONMENT: &str = "corona.task.env.";

/// The variables of programs: the properties of the job, its own variables, and its temporary
/// directory.
fn variables(conf: &JobConf, work: &Path) -> Vec<(String, String)> {
    let properties = conf.names().filter_map(|name| Some((name, conf.get(name)?)));
    let mut variables = environment(properties);
    let own = conf.get("stream.addenvironment").unwrap_or_default();
    let own = own.split(' ').filter_map(|setting| setting.split_once('='));
    variables.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let own =
        conf.names().filter_map(|name| Some((name.strip_prefix(ENVIRONMENT)?, conf.get(name)?)));
    variables.extend(own.map(|(name, value)| (name.to_owned(), value)));
    // As programs below a shell that has set it for this process.
    variables.push(("JVM_PID".to_owned(), std::process::id().to_string()));
    let temporary = conf.text(&keys::JOB_TEMPORARY_DIR);
    variables.push(("TMPDIR".to_owned(), work.join(temporary).display().to_string()));
    variables
}

/// Puts links into the working directory: to the content of the job's jar, and to cached files that have
/// a name there.
fn link_files(conf: &JobConf, work: &Path) -> Result<(), TaskError> {
    if conf.get("mapred.create.symlink").as_deref() != Some("yes") {
        return Ok(());
    }
    let link = |target: &Path, name: &str| {
        let at = work.join(name);
        match std::os::unix::fs::symlink(target, &at) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(TaskError::local(&at)(error))
            }
            _ => Ok(()),
        }
    };
    for (files, local) in [
        ("mapred.cache.files", "mapred.cache.localFiles"),
        ("mapred.cache.archives", "mapred.cache.localArchives"),
        ("mapred.cache.shared.files", "mapred.cache.shared.localFiles"),
        ("mapred.cache.shared.archives", "mapred.cache.shared.localArchives"),
    ] {
        let list = |key: &str| {
            let text = conf.get(key).unwrap_or_default();
            text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        for (file, local) in list(files).iter().zip(list(local)) {
            let name = file.rsplit_once('#').map(|(_, name)| name);
            if let Some(name) = name.filter(|name| is_plain(name)) {
                link(Path::new(&local), name)?;
            }
        }
    }
    let jar = conf.get("mapred.jar").map(PathBuf::from);
    let Some(jars) = jar.as_deref().and_then(Path::parent) else { return Ok(()) };
    for entry in std::fs::read_dir(jars).into_iter().flatten().flatten() {
        if let Some(name) = entry.file_name().to_str() {
            link(&entry.path(), name)?;
        }
    }
    Ok(())
}

/// Whether a name stays in its directory.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && name != "." && name != ".."
}

/// The environment of a map or a reduce.
pub(crate) struct Work<'a> {
    pub(crate) job: NativeJob,
    pub(crate) settings: TaskSettings,
    pub(crate) attempt: TaskAttemptId,
    pub(crate) files: &'a JobFiles,
    pub(crate) scratch: Scratch,
    pub(crate) programs: Arc<Programs>,
    pub(crate) counters: Arc<TaskCounters>,
    pub(crate) status: Arc<Status>,
    output_dir: Option<String>,
    local_dirs: Vec<PathBuf>,
    conf: JobConf,
    worker: &'a Worker,
}

impl Work<'_> {
    /// Reports the task's status.
    pub(crate) fn report(&self) -> Result<(), TaskError> {
        self.worker.report()
    }

    /// The task, as the task tracker gave it.
    pub(crate) fn task(&self) -> &Task {
        &self.worker.task
    }

    /// Where records that were skipped are written. None: nowhere.
    pub(crate) fn skip_output_dir(&self) -> Option<String> {
        match self.conf.text_if_set(&keys::JOB_SKIP_DIR) {
            Some(none) if none == "none" => None,
            Some(directory) => Some(directory),
            None => {
                let output = self.conf.get("mapred.output.dir").filter(|dir| !dir.is_empty())?;
                Some(format!("{}/_logs/skip", output.trim_end_matches('/')))
            }
        }
    }

    /// Counts what a built-in step has processed, as the original does for classes of Java.
    pub(crate) fn count_processed(&self, group: &str, name: &str, records: u64) {
        self.counters.add_own(group, name, i64::try_from(records).unwrap_or(i64::MAX));
    }

    /// The directory of the attempt's output, of a job that runs.
    pub(crate) fn output_dir(&self) -> Result<&str, TaskError> {
        let Some(dir) = &self.output_dir else {
            return Err(TaskError::Task(
                "the job has no output directory (mapred.output.dir)".to_owned(),
            ));
        };
        self.refuse_after_the_end(dir)?;
        Ok(dir)
    }

    /// The file that the task writes for its job.
    pub(crate) fn record_output(
        &self,
        partition: i32,
        bare_keys: bool,
        counted: Count,
    ) -> Result<RecordOutput<'_>, TaskError> {
        let format = RecordFormat {
            files: self.job.output_format,
            separator: &self.job.text_separator,
            bare_keys,
        };
        let dir = self.output_dir()?;
        RecordOutput::create(self.files, dir, partition, format, counted, &self.counters)
    }

    /// The directory of all attempts is made by the setup of the job and deleted at its end, and by nobody else: an
    /// attempt that starts late must not make it again.
    fn refuse_after_the_end(&self, work_dir: &str) -> Result<(), TaskError> {
        let of_all = work_dir.rsplit_once('/').map_or(work_dir, |(parent, _)| parent);
        if !self.conf.is_true(&keys::JOB_SETUP_CLEANUP_NEEDED) || self.files.find(of_all)?.is_some()
        {
            return Ok(());
        }
        Err(TaskError::Task(format!(
            "{of_all} does not exist: the job was not set up, or has ended"
        )))
    }

    /// Where the reduce learns of maps: the job tracker that the newest configuration of the job names.
    pub(crate) fn map_events(&self) -> Result<MapEvents, TaskError> {
        let job = self.attempt.job();
        let below: PathBuf =
            ["taskTracker", "jobcache", &job.to_string(), "job.xml"].iter().collect();
        let newest = self.local_dirs.iter().map(|dir| dir.join(&below)).find(|path| path.exists());
        let newest = newest.and_then(|path| JobConf::localised(&path).ok());
        let conf = newest.as_ref().unwrap_or(&self.conf);
        let at = |key| conf.get(key).and_then(|text| address(&text));
        let Some(job_tracker) = at("mapred.direct.task.umbilical.address") else {
            let why = "the job's configuration names no job tracker (mapred.direct.task.umbilical.address)";
            return Err(TaskError::Task(why.to_owned()));
        };
        let secondary = at("mapred.direct.task.umbilical.secondary");
        Ok(MapEvents::new(job_tracker, secondary, job.clone(), self.worker.runtime.clone()))
    }
}
