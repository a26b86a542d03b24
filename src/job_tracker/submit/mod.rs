//! How a job begins, and how it resumes after a restart.
//!
//! * `submission`: reads the files of a job; `ids`: which ids were given out;
//! * `waiting`: a job that waits for a place; `queue`: how it begins, or ends before that.

pub(crate) mod ids;
pub(crate) mod queue;
pub(crate) mod submission;
pub(crate) mod waiting;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use corona_api::cluster::Status;
use corona_config::{JobConf, JobTrackerServiceSettings, JournalSync, SiteProperties, keys};
use corona_filesystem::FsError;
use corona_hadoop::rpc::{Fault, User};
use corona_hadoop::writables as wire;
use corona_hadoop::writables::{InetAddress, JobStatus, SessionInfo};
use corona_journal::DiskStorage;
use corona_mapreduce::{Counters, JobId, PerKind, TaskDemand};
use corona_model::types::{Address, Grant, Millis, ResourceRequest, ResourceType, SessionStatus};
use corona_session_driver::{
    DriverHost, Options, SavedSession, SessionDriver, SessionEvents, StartError,
};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use self::ids::Ids;
use self::submission::{
    Bounds, CONF, Description, MAX_CONF_BYTES, Refused, SPLITS, SplitStore, Submission,
    SubmittedFiles, parent_settings, read_staged,
};
use self::waiting::Waiting;
use crate::clock;
use crate::home::{self, Home};
use crate::jobs::end::Jobs;
use crate::jobs::finished::KeptJob;
use crate::jobs::history::{self, History, KeptHistory, UserCopy};
use crate::jobs::inbox::inbox;
use crate::jobs::job::{AskError, Job, Parts};
use crate::jobs::left_output::temporary_output;
use crate::jobs::live::{Ending, Live, ToJob};
use crate::jobs::log::{Base, Journals, Log, LogError, Opened, Replayed, SessionBase};
use crate::jobs::owed::Debt;
use crate::jobs::remote::{self, RemoteJob};
use crate::jobs::session_types;
use crate::jobs::statistics::Report;
use crate::jobs::store::{ARRIVING_PAUSE, JobArrival, KnownJob, Retired, memory_of};
use crate::launch::launcher::Launcher;
use crate::pages::manager::NoAnswer;
use crate::pages::sessions::JobSession;
use crate::pages::sources::PageSources;
use crate::rpc::answers;
use crate::rpc::answers::known_id;
use crate::rpc::inter_tracker::session_trackers;
use crate::service::session_options;
use corona_job_engine::parent::{Parent, ParentInput, ParentSettings};
use corona_job_engine::{
    GrantedSlot, JobEngine, JobInput, JobProgress, NodeUsage, Order, RequestId,
};

pub(crate) const JOURNAL: &str = "journal";
/// The lines of its history, for a restart.
const HISTORY: &str = "history";
/// How long the tasks of jobs may take to stop.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a job does not begin. The text is for its user.
#[derive(Debug, Error)]
pub(crate) enum SubmitError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Files(#[from] FsError),
    #[error("the job tracker cannot keep the files of the job below corona.jt.data.dir: {error}")]
    Keep { error: io::Error },
    #[error("the job's journal: {0}")]
    Log(#[from] LogError),
    #[error("no session at the cluster manager: {0}")]
    Session(#[from] StartError),
    #[error("{0}; try again later")]
    NoReply(String),
    #[error("the id {0} cannot be that of a job")]
    Id(JobId),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(
        "the job is to have a job tracker on a node (mapred.coronajobtracker.forceremote, \
         mapred.coronajobtracker.remote.threshold), but no node has slots of type JOBTRACKER \
         (cm.cpu.to.resource.partitioning of the cluster manager): its request could never be served"
    )]
    NoJobTrackers,
    #[error(
        "the job is to have a job tracker on a node, and whether nodes have slots of type JOBTRACKER is not \
         known: {0}"
    )]
    UnknownSlots(NoAnswer),
    #[error("a part of the job tracker has failed")]
    Broken,
    #[error("its journal has no record, though the job was accepted")]
    Lost,
    #[error("it was killed before it began")]
    Killed,
}

/// A failed submission.
struct Failed {
    error: SubmitError,
    /// Whether its session may live.
    may_have_session: bool,
}

impl From<SubmitError> for Failed {
    fn from(error: SubmitError) -> Failed {
        Failed { error, may_have_session: true }
    }
}

impl From<io::Error> for SubmitError {
    fn from(error: io::Error) -> SubmitError {
        SubmitError::Keep { error }
    }
}

/// How many reports of a task tracker a job waits for after a restart in place.
const REPORTS_AFTER_RESTART: u32 = 3;
/// The least and the longest time of that wait. The first report may have been lost with a connection within TLS.
const REPORT_WAIT: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];

/// Submits, starts and resumes jobs.
pub(crate) struct Submitter {
    pub(crate) settings: Arc<JobTrackerServiceSettings>,
    pub(crate) site: SiteProperties,
    pub(crate) jobs: Arc<Jobs>,
    /// What must survive a restart; no other process uses it.
    pub(crate) home: Arc<Home>,
    /// Ids that were given out.
    pub(crate) ids: Arc<Ids>,
    pub(crate) journals: Journals,
    /// Has the sessions.
    pub(crate) host: DriverHost,
    pub(crate) launcher: Launcher,
    /// Of this service, for task trackers.
    pub(crate) address: InetAddress,
    /// The user of the service, for calls to others.
    pub(crate) service_user: User,
    /// Shows the jobs.
    pub(crate) sources: Arc<PageSources>,
    /// Becomes true when the program ends.
    pub(crate) stop: watch::Sender<bool>,
}

impl Submitter {
    /// An id for a job of this user.
    pub(crate) async fn new_job_id(&self, user: String) -> Result<wire::JobId, Fault> {
        let options = self.options(user.clone());
        let handle = timeout(self.patience(), self.host.next_session_id(&options)).await;
        let handle = handle.map_err(|_| fault(&self.no_reply()))?;
        let handle = handle.map_err(|error| fault(&SubmitError::Session(error)))?;
        let id = JobId::new(&handle, 1).map_err(|error| Fault::io(error.to_string()))?;
        let of_wire = answers::job_id(&id).ok_or_else(|| fault(&SubmitError::Id(id.clone())))?;
        let (ids, given, owner) = (self.ids.clone(), id.clone(), user.clone());
        let kept = blocking(move || ids.give(given, owner, clock::now())).await;
        kept.and_then(|kept| Ok(kept?)).map_err(|error| fault(&error))?;
        self.jobs.store.give(id, user);
        Ok(of_wire)
    }

    /// How long a call waits for the cluster manager.
    pub(crate) fn patience(&self) -> Duration {
        self.settings.submission_wait
    }

    /// The cluster manager does not answer, as far as that is known.
    pub(crate) fn no_reply(&self) -> SubmitError {
        let silence = self.host.contact().silence();
        SubmitError::NoReply(silence.map_or_else(
            || "the cluster manager does not reply".to_owned(),
            |silence| silence.to_string(),
        ))
    }

    /// Starts a job of this user; if it was started before, that is all.
    pub(crate) async fn submit(&self, id: &wire::JobId, user: &str) -> Result<JobStatus, Fault> {
        let id = known_id(id).ok_or_else(|| Fault::io(format!("{id} is not the id of a job")))?;
        let known = loop {
            match self.jobs.store.arrive(&id, user) {
                Err(error) => {
                    self.jobs.meter.jobs_refused.add(1);
                    return Err(Fault::io(error.to_string()));
                }
                // Its client asks again, and an earlier call is at work.
                Ok(JobArrival::Taken(KnownJob::Arriving(..))) => sleep(ARRIVING_PAUSE).await,
                Ok(JobArrival::Taken(known)) => break known,
                Ok(JobArrival::Free) => break self.accept(&id, user, true).await?,
                Ok(JobArrival::Full) => break self.accept(&id, user, false).await?,
            }
        };
        known.status().ok_or_else(|| Fault::io(format!("{id} is being submitted; try again")))
    }

    async fn accept(&self, id: &JobId, user: &str, has_place: bool) -> Result<KnownJob, Fault> {
        match self.start(id, user, has_place).await {
            Ok(known) => {
                self.jobs.meter.jobs_submitted.add(1);
                Ok(known)
            }
            Err(error) => {
                self.jobs.meter.jobs_refused.add(1);
                tracing::info!(job = %id, user, %error, "a job was not accepted");
                self.jobs.store.give_up(id);
                Err(fault(&error))
            }
        }
    }

    /// From before anything is kept of the job until its journal is safe, it is noted that its session must
    /// end: a death of the service in between leaves neither a session nor a job that nobody knows.
    async fn start(
        &self,
        id: &JobId,
        user: &str,
        has_place: bool,
    ) -> Result<KnownJob, SubmitError> {
        let handle: Arc<str> = id.session().ok_or_else(|| SubmitError::Id(id.clone()))?.into();
        // A session of this id that was begun before a restart ends first.
        let settled = timeout(self.patience(), self.jobs.owed.settled(&handle)).await;
        settled.map_err(|_| self.no_reply())?;
        let debt = Debt {
            handle: handle.clone(),
            user: user.into(),
            status: SessionStatus::Killed,
            feedback: Vec::new(),
        };
        self.jobs.owed.note(debt.clone()).await?;
        match self.begin(id, user, has_place).await {
            Ok(known) => {
                let (ids, used) = (self.ids.clone(), id.clone());
                // A restart finds the job in any case.
                let _ = blocking(move || ids.used(&used, clock::now())).await;
                self.jobs.owed.settle(&handle).await;
                Ok(known)
            }
            Err(Failed { error, may_have_session }) => {
                let directory = self.jobs.dirs.data_dir(id.as_str());
                // While the note is there the next start removes what is left. Without it that would look like
                // a job whose journal is lost.
                let _ = blocking(move || home::remove_job(&directory)).await;
                match may_have_session {
                    true => self.jobs.owed.pay(debt),
                    false => self.jobs.owed.settle(&handle).await,
                }
                Err(error)
            }
        }
    }

    /// Starts a job, or lets it wait if there is no place for it.
    async fn begin(&self, id: &JobId, user: &str, has_place: bool) -> Result<KnownJob, Failed> {
        let without = |error| Failed { error, may_have_session: false };
        let submission = self.fetch(id, user).await.map_err(without)?;
        let to_node = self.to_node(&submission);
        if to_node.is_some() {
            self.must_offer_job_trackers().await.map_err(without)?;
        }
        let total =
            PerKind { map: submission.files.splits.count(), reduce: submission.spec.reduces };
        if !has_place || !self.jobs.store.claim(id, memory_of(total)) {
            return self.line_up(submission.description, total).await.map_err(without);
        }
        match to_node {
            Some(settings) => {
                Ok(KnownJob::Remote(self.hand_over(submission, settings, None).await?))
            }
            None => Ok(KnownJob::Job(self.run_here(submission, None).await?)),
        }
    }

    /// The settings of the parent of a job that a remote job tracker is to run.
    pub(crate) fn to_node(&self, submission: &Submission) -> Option<ParentSettings> {
        let most = self.settings.max_remote_state_bytes;
        let (maps, reduces) = (submission.files.splits.count(), submission.spec.reduces);
        parent_settings(&submission.files.conf, maps, reduces, most)
    }

    /// Starts a job, which may have been submitted some time ago.
    pub(crate) async fn run_here(
        &self,
        submission: Submission,
        submitted: Option<Millis>,
    ) -> Result<Job, SubmitError> {
        let Submission { description, spec, files } = submission;
        let (driver, events, session) = self.open_session(&description).await?;
        let base = Base { description, spec, session };
        let directory = self.jobs.dirs.data_dir(base.description.id.as_str());
        let journals = self.journals.clone();
        let log = blocking(move || {
            let log = Log::begin(&directory.join(JOURNAL), &journals, &base)?;
            Ok::<_, LogError>((log, base))
        });
        let (log, Base { description, spec, .. }) = log.await??;
        let (engine, written) = (JobEngine::new(spec), (0, String::new()));
        self.note_session(&description.id, driver.session_log());
        let session = (driver, events);
        let mut parts = self.parts(description, engine, files, log, session, written)?;
        parts.first_at = submitted;
        let job = Job::start(parts, JobInput::Submitted);
        self.jobs.store.begin(job.clone());
        // Its first input is safe when it answers.
        job.look(|_| ()).await?;
        Ok(job)
    }

    /// Fails unless the cluster has slots for job trackers, as far as its cluster manager says: a Java one does not
    /// say it, and one that does not answer may have them.
    pub(crate) async fn must_offer_job_trackers(&self) -> Result<(), SubmitError> {
        match self.sources.manager.ask("/api/v1/status").await {
            Ok(status) if !offers_job_trackers(&status) => Err(SubmitError::NoJobTrackers),
            Ok(_) => Ok(()),
            Err(reason @ NoAnswer::Unreadable) => Err(SubmitError::UnknownSlots(reason)),
            Err(reason @ (NoAnswer::Unknown | NoAnswer::NoLeader | NoAnswer::Silent)) => {
                tracing::debug!(%reason, "not known whether the cluster has slots for job trackers");
                Ok(())
            }
        }
    }

    /// Starts the parent of a job that a remote job tracker is to run, which may have been submitted some time
    /// ago.
    pub(crate) async fn hand_over(
        &self,
        submission: Submission,
        settings: ParentSettings,
        submitted: Option<Millis>,
    ) -> Result<RemoteJob, SubmitError> {
        let Submission { description, mut spec, files } = submission;
        // Only the remote job tracker uses them.
        spec.splits.clear();
        let (driver, events, session) = self.open_session(&description).await?;
        let base = Base { description: description.clone(), spec, session };
        let directory = self.jobs.dirs.data_dir(description.id.as_str()).join(JOURNAL);
        let (journals, handed) = (self.journals.clone(), settings.clone());
        let log = blocking(move || {
            let log = Log::begin(&directory, &journals, &base)?;
            log.hand_over(&handed)?;
            Ok::<_, LogError>(log)
        });
        let log = log.await??;
        let parent = Parent::new(settings);
        let temporary = temporary_output(&files.conf);
        self.note_session(&description.id, driver.session_log());
        let mut parts = self.remote_parts(description, parent, log, driver, events, temporary);
        parts.submitted = submitted.unwrap_or(parts.submitted);
        let job = RemoteJob::start(parts, ParentInput::Submitted);
        self.jobs.store.begin_remote(job.clone());
        // Its first input is safe when it answers.
        let _ = job.apply(ParentInput::Tick).await?;
        Ok(job)
    }

    fn remote_parts(
        &self,
        description: Description,
        parent: Parent,
        log: Log,
        driver: SessionDriver,
        events: SessionEvents,
        temporary: Option<String>,
    ) -> remote::Parts {
        let priority = parent.priority().unwrap_or(description.priority);
        remote::Parts {
            priority,
            total: parent.total(),
            submitted: parent.submitted().unwrap_or_else(clock::now),
            parent,
            log: Some(log),
            driver: Arc::new(driver),
            events: Some(events),
            jobs: self.jobs.clone(),
            temporary,
            address: self.address.clone(),
            service_user: self.service_user.clone(),
            connect_timeout: self.settings.launch_connect_timeout,
            call_timeout: self.settings.launch_call_timeout,
            max_queued: self.settings.max_queued_inputs,
            stop: self.stop.subscribe(),
            description: Arc::new(description),
        }
    }

    /// Resumes a job that a remote job tracker runs.
    async fn resume_remote(
        &self,
        replayed: Replayed,
        log: Log,
        temporary: Option<String>,
    ) -> Result<(), SubmitError> {
        let Replayed { description, session, parent, .. } = replayed;
        let parent = parent.ok_or(SubmitError::Broken)?;
        // The service died before the first input was safe, so that nothing has followed from it.
        let first = match parent.submitted() {
            None => ParentInput::Submitted,
            Some(_) => ParentInput::Resumed,
        };
        let (last_id, open) = parent.open_request();
        // Before the session resumes: the page of a job that cannot be resumed finds its history.
        self.note_session(&description.id, &session.log_path);
        let mut saved = saved_session(session);
        saved.last_id = last_id;
        saved.open.extend(
            open.map(|(id, slot)| {
                session_types::open(open_request(id, slot), TaskDemand::default())
            }),
        );
        let mut options = self.session_options(&description);
        let priority = parent.priority().unwrap_or(description.priority);
        options.priority = session_types::priority(priority);
        let (driver, events) = self.host.resume(saved, options).await?;
        let parts = self.remote_parts(description, parent, log, driver, events, temporary);
        self.jobs.store.begin_remote(RemoteJob::start(parts, first));
        Ok(())
    }

    /// Brings the files of a job here and reads them.
    pub(crate) async fn fetch(&self, id: &JobId, user: &str) -> Result<Submission, SubmitError> {
        let from = self.jobs.dirs.job_dir(id.as_str());
        let directory = self.jobs.dirs.data_dir(id.as_str());
        let made = directory.clone();
        blocking(move || {
            // What an earlier try has left.
            match std::fs::remove_dir_all(&made) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => std::fs::create_dir_all(&made),
            }
        })
        .await??;
        let splits =
            read_staged(&self.jobs.dirs.files, &from, SPLITS, self.settings.max_split_bytes)
                .await?;
        let conf = read_staged(&self.jobs.dirs.files, &from, CONF, MAX_CONF_BYTES).await?;
        let (sync, kept) = (self.settings.journal_sync, directory.clone());
        let splits = blocking(move || {
            keep(&kept.join(CONF), &conf, sync)?;
            keep(&kept.join(SPLITS), &splits, sync)?;
            Ok::<_, io::Error>(splits)
        });
        self.read_kept(id.clone(), user, Some(splits.await??)).await
    }

    /// Reads the files of a job that are here; those of its splits unless they are given.
    async fn read_kept(
        &self,
        id: JobId,
        user: &str,
        splits: Option<Vec<u8>>,
    ) -> Result<Submission, SubmitError> {
        let conf_uri = self.jobs.dirs.given_conf(id.as_str());
        let directory = self.jobs.dirs.data_dir(id.as_str());
        let (site, user) = (self.site.clone(), user.to_owned());
        let (bounds, pages) = (Bounds::of(&self.settings), self.sources.address());
        blocking(move || {
            let job_xml = directory.join(CONF);
            let splits = match splits {
                Some(splits) => splits,
                None => std::fs::read(directory.join(SPLITS))?,
            };
            let read =
                Submission::read(id, &user, &site, &job_xml, splits, &conf_uri, &pages, bounds);
            Ok(read?)
        })
        .await?
    }

    /// Reads the files of a job that has waited.
    pub(crate) async fn read_submission(
        &self,
        job: &Description,
    ) -> Result<Submission, SubmitError> {
        self.read_kept(job.id.clone(), &job.user, None).await
    }

    /// Starts the session of a job, under the name that is in the job's id.
    async fn open_session(
        &self,
        job: &Description,
    ) -> Result<(SessionDriver, SessionEvents, SessionBase), SubmitError> {
        let handle: Arc<str> =
            job.id.session().ok_or_else(|| SubmitError::Id(job.id.clone()))?.into();
        let options = self.session_options(job);
        let session = timeout(self.patience(), self.host.start_named(handle.clone(), options));
        let session = tokio::select! {
            session = session => session,
            () = self.jobs.store.killed(&job.id) => return Err(SubmitError::Killed),
        };
        let (driver, events) = session.map_err(|_| self.no_reply())??;
        let (pool, log_path) =
            (session_types::pool_of(driver.pool()), driver.session_log().to_owned());
        let (name, user) = (&*job.name, &*job.user);
        tracing::info!(job = %job.id, name, user, %pool, session = &*handle, "job started");
        Ok((driver, events, SessionBase { handle, pool, log_path }))
    }

    fn session_options(&self, job: &Description) -> Options {
        let mut options = self.options(job.user.to_string());
        options.name = Some(job.name.to_string());
        options.pool = session_types::pool(&job.pool);
        options.priority = session_types::priority(job.priority);
        options.url = Some(job.url.to_string());
        // The engine releases what is lost.
        options.release_lost = false;
        // And knows what it has requested.
        options.outline_requests = true;
        options
    }

    /// A session of this user. Ends of sessions are delivered for as long as it takes.
    fn options(&self, user: String) -> Options {
        let mut options = session_options(&self.settings, user);
        options.timers.start_timeout = self.patience();
        options.timers.end_timeout = Duration::MAX;
        options
    }

    /// Notes where the history of a job is, so that the job's page finds it.
    fn note_session(&self, job: &JobId, log_path: &str) {
        let session = JobSession { handle: None, log_path: log_path.into() };
        self.sources.sessions.note(job.clone(), session, |id| self.jobs.store.get(id).is_some());
    }

    /// Begins the history of a job, with what an earlier run has written: so many bytes that are kept, and
    /// these lines.
    fn history(
        &self,
        job: &Description,
        conf: &JobConf,
        log_path: &str,
        (bytes, lines): (u64, String),
    ) -> History {
        let location = conf.get(keys::JOB_HISTORY_LOCATION.name);
        let host = &self.address.host;
        let place = history::HistoryTarget {
            files: self.jobs.dirs.files.clone(),
            log_path: log_path.to_owned(),
            conf: conf.to_xml().unwrap_or_else(|error| {
                tracing::warn!(job = %job.id, %error, "the history has no configuration of a job");
                String::new()
            }),
            user_copy: UserCopy::of(job, location.as_deref(), host, self.sources.started_ms),
        };
        let path = self.jobs.dirs.data_dir(job.id.as_str()).join(HISTORY);
        History::begin(job.id.clone(), place, Some(KeptHistory { path, bytes }), lines)
    }

    /// What the task of a job works with.
    fn parts(
        &self,
        description: Description,
        engine: JobEngine,
        files: SubmittedFiles,
        log: Log,
        (driver, events): (SessionDriver, SessionEvents),
        written: (u64, String),
    ) -> Result<Parts, SubmitError> {
        let SubmittedFiles { splits, conf } = files;
        let history = self.history(&description, &conf, driver.session_log(), written);
        let inbox = inbox(self.settings.max_queued_inputs);
        let (contact, standing) = (driver.contact(), history.standing());
        let (id, description) = (description.id.clone(), Arc::new(description));
        let report = self.settings.proxy_job_tracker_reports.as_ref().map(|proxy| Report {
            proxy: InetAddress { host: proxy.host.to_string(), port: proxy.port },
            user: self.service_user.clone(),
            job: id.clone(),
            pool: driver.pool().to_string(),
        });
        let trackers = session_trackers(&self.address);
        let meter = &self.jobs.meter;
        let outlet = Live {
            maps: splits.count(),
            splits: Arc::new(splits),
            demand: TaskDemand::of(&conf),
            spec: Arc::new(engine.spec().without_splits()),
            session: SessionInfo { handle: Some(driver.handle().to_string()), trackers },
            driver: Arc::new(driver),
            launcher: self.launcher.clone(),
            meter: meter.clone(),
            events: self.sources.events.clone(),
            job: answers::job_id(&id).ok_or(SubmitError::Id(id))?,
            sender: Arc::new(ToJob { job: inbox.0.downgrade(), meter: meter.clone() }),
            orders: Vec::new(),
            ending: Some(Ending {
                jobs: self.jobs.clone(),
                description: description.clone(),
                log: log.clone(),
                history,
                temporary: temporary_output(&conf),
                report,
                lost: None,
            }),
        };
        Ok(Parts {
            description,
            engine,
            log: Some(log),
            outlet: Box::new(outlet),
            events: Some(events),
            contact: Some(contact),
            history: Some(standing),
            inbox,
            first_at: None,
            stop: self.stop.subscribe(),
        })
    }

    /// Resumes the jobs that an earlier run has left; returns how many. One that cannot be resumed is
    /// logged, left where it is, and shown as lost. Then it ends the sessions that are to be ended, `debts`.
    pub(crate) async fn resume_jobs(&self, debts: Vec<Debt>, in_place: bool) -> usize {
        let names = self.home.job_names().unwrap_or_else(|error| {
            tracing::error!(%error, "cannot look for the jobs of an earlier run");
            Vec::new()
        });
        // Before jobs are resumed, which may end at once: they write files there, and are the last to have ended.
        let has_files = |kept: &KeptJob| {
            let id = kept.job.description.id.as_str();
            names.iter().any(|name| name == id)
        };
        let (unfinished, ended): (Vec<_>, Vec<_>) =
            self.jobs.finished.load().into_iter().partition(has_files);
        ended.into_iter().for_each(|kept| self.retire(kept));
        let (mut resumed, mut lost) = (0, Vec::new());
        for name in &names {
            match self.resume(name, in_place).await {
                Ok(true) => resumed += 1,
                Ok(false) => {}
                Err(error) => lost.push((name, error)),
            }
        }
        // One that was ended again is known, and a lost one is shown as that. Of the others only files were left.
        for kept in unfinished {
            let id = kept.job.description.id.as_str();
            if !lost.iter().any(|(name, _)| *name == id) {
                self.retire(kept);
            }
        }
        for (name, error) in lost {
            self.is_lost(name, &error).await;
        }
        for debt in debts {
            let id = JobId::new(&debt.handle, 1).ok();
            let known = id.and_then(|id| self.jobs.store.get(&id));
            match known {
                // It was about to begin, and may begin again when that session has ended.
                Some(KnownJob::Waiting(..)) => self.jobs.owed.pay(debt),
                // Its journal knows the session.
                Some(known) if known.is_active() => self.jobs.owed.settle(&debt.handle).await,
                // It is ended again.
                Some(KnownJob::Job(_) | KnownJob::Remote(_)) => {}
                _ => self.jobs.owed.pay(debt),
            }
        }
        resumed
    }

    /// Shows a job that ended in an earlier run, unless it has been resumed.
    fn retire(&self, KeptJob { job, log_path }: KeptJob) {
        let id = job.description.id.clone();
        if self.jobs.store.get(&id).is_none() {
            self.jobs.store.retire(job);
            if let Some(log_path) = log_path {
                self.note_session(&id, &log_path);
            }
        }
    }

    /// A job of an earlier run cannot be resumed: its files stay, and its status has the reason.
    async fn is_lost(&self, name: &str, error: &SubmitError) {
        let directory = self.jobs.dirs.data_dir(name);
        tracing::error!(
            job = name, %error, files = %directory.display(),
            "a job of an earlier run is lost; its files are kept"
        );
        let Ok(id) = name.parse::<JobId>() else { return };
        self.jobs.store.not_resumed(id.clone());
        let reason =
            format!("the job is lost: {error}; its files are kept in {}", directory.display());
        let progress = Arc::new(JobProgress::failed(clock::now()));
        let description = self.description_of(id, directory).await;
        let (description, reason) = (Arc::new(description), Some(reason.into()));
        let counters = Counters::default();
        self.jobs.store.retire(Retired { description, progress, counters, reason });
    }

    /// What the files of a job say of it; little if they say nothing.
    async fn description_of(&self, id: JobId, directory: PathBuf) -> Description {
        let (site, lost) = (self.site.clone(), id.clone());
        let (bounds, pages) = (Bounds::of(&self.settings), self.sources.address());
        let conf_uri = self.jobs.dirs.given_conf(id.as_str());
        let read = blocking(move || {
            let job_xml = directory.join(CONF);
            let conf = JobConf::read(&site, &job_xml).ok()?;
            let user = conf.text_if_set(&keys::JOB_USER).unwrap_or_default();
            let splits = std::fs::read(directory.join(SPLITS)).ok()?;
            Submission::read(lost, &user, &site, &job_xml, splits, &conf_uri, &pages, bounds).ok()
        });
        match read.await {
            Ok(Some(submission)) => submission.description,
            Ok(None) | Err(_) => Description::of_lost(id),
        }
    }

    /// Whether there was a job of an earlier run to resume.
    async fn resume(&self, name: &str, in_place: bool) -> Result<bool, SubmitError> {
        let directory = self.jobs.dirs.data_dir(name);
        let journals = self.journals.clone();
        let of_waiting = (directory.clone(), journals.clone());
        let waiting = blocking(move || read_waiting(&of_waiting.0, &of_waiting.1));
        if let Some(job) = waiting.await?? {
            self.resume_waiting(job).await;
            return Ok(true);
        }
        let site = self.site.clone();
        let most = self.settings.max_remote_state_bytes;
        let was_never_accepted = self.was_never_accepted(name);
        let found = blocking(move || {
            let (log, replayed) = match Log::open(&directory.join(JOURNAL), &journals)? {
                Opened::Job(log, replayed) => (log, replayed),
                Opened::Empty if !was_never_accepted => return Err(SubmitError::Lost),
                Opened::Empty | Opened::Closed => {
                    home::remove_job(&directory)?;
                    return Ok(None);
                }
            };
            Left::read(&directory, &site, most, log, replayed).map(Some)
        });
        let (replayed, log, files) = match found.await?? {
            Some(Left::Here { replayed, log, files }) => (replayed, log, *files),
            Some(Left::Remote(replayed, log, temporary)) => {
                self.resume_remote(*replayed, log, temporary).await?;
                tracing::info!(job = name, "resumed a job of an earlier run that runs on a node");
                return Ok(true);
            }
            None => return Ok(false),
        };
        let Replayed { description, session, engine, history_bytes, history, end, .. } = *replayed;
        // Before the session resumes: the page of a job that cannot be resumed finds its history.
        self.note_session(&description.id, &session.log_path);
        let mut saved = saved_session(session);
        saved.last_id = engine.last_request().0;
        let demand = TaskDemand::of(&files.conf);
        let open = engine.open_requests().into_iter();
        saved.open = open.map(|open| session_types::open(open, demand)).collect();
        let options = self.session_options(&description);
        let (driver, events) = self.host.resume(saved, options).await?;
        let id = description.id.clone();
        let (session, written) = ((driver, events), (history_bytes, history));
        let parts = self.parts(description, engine, files, log, session, written)?;
        self.go_on(parts, end, in_place);
        tracing::info!(job = %id, "resumed a job of an earlier run");
        Ok(true)
    }

    /// A job of an earlier run waits again, unless it has ended meanwhile.
    async fn resume_waiting(&self, job: Waiting) {
        let id = job.description.id.clone();
        match self.jobs.finished.find(&id) {
            Some(ended) => {
                self.remove_waiting(&job.description, ended.progress.state).await;
            }
            None => {
                tracing::info!(job = %id, "a job of an earlier run waits");
                self.jobs.store.wait(job);
            }
        }
    }

    /// Whether a job without a record in its journal was being submitted when the service died, or has ended.
    fn was_never_accepted(&self, name: &str) -> bool {
        let Ok(id) = name.parse::<JobId>() else { return false };
        let is_noted = id.session().is_some_and(|handle| self.jobs.owed.has(handle));
        is_noted || self.jobs.finished.find(&id).is_some()
    }

    /// Starts the task of a job of an earlier run; one that was over is ended again.
    fn go_on(
        &self,
        mut parts: Parts,
        end: Option<(SessionStatus, Vec<NodeUsage>)>,
        in_place: bool,
    ) {
        // Where the service died before the first input was safe, nothing has followed from it.
        let job = match (end, parts.engine.has_begun(), in_place) {
            (Some((status, feedback)), _, _) => {
                // Without its events the session would end as killed.
                for at in parts.engine.trackers() {
                    parts.outlet.order(at, Order::KillJob);
                }
                parts.outlet.flush();
                parts.outlet.end(status, feedback);
                (parts.log, parts.contact) = (None, None);
                Job::start(parts, JobInput::Tick)
            }
            (None, false, _) => Job::start(parts, JobInput::Submitted),
            (None, true, false) => Job::start(parts, JobInput::Resumed),
            (None, true, true) => {
                let patience = self.settings.heartbeat_interval * REPORTS_AFTER_RESTART;
                let [least, most] = REPORT_WAIT;
                Job::resume_in_place(parts, patience.clamp(least, most))
            }
        };
        self.jobs.store.begin(job);
    }

    /// Leaves the jobs that run as they are: the next run resumes them.
    pub(crate) async fn leave_jobs(&self) {
        self.stop.send_replace(true);
        // Each task of a job holds a receiver.
        if timeout(LEAVE_TIMEOUT, self.stop.closed()).await.is_err() {
            tracing::warn!("some jobs did not stop in time");
        }
    }
}

/// The job in this directory if it waits. One whose journal has a record has begun.
fn read_waiting(directory: &Path, journals: &Journals) -> Result<Option<Waiting>, SubmitError> {
    let Some(job) = Waiting::read(directory)? else { return Ok(None) };
    let journal = directory.join(JOURNAL);
    // One that cannot be read is kept: what has followed from it is not known.
    if journal.exists() && !matches!(Log::open(&journal, journals)?, Opened::Empty) {
        Waiting::forget(directory)?;
        return Ok(None);
    }
    // It was about to begin, and nothing has followed from that.
    DiskStorage::remove_all(&journal).map_err(LogError::from)?;
    Ok(Some(job))
}

/// What an earlier run has left of a job.
enum Left {
    /// The service runs it.
    Here { replayed: Box<Replayed>, log: Log, files: Box<SubmittedFiles> },
    /// A remote job tracker does. Its unfinished output is in this directory.
    Remote(Box<Replayed>, Log, Option<String>),
}

impl Left {
    /// Reads what belongs to a journal. Errors: a file is missing or damaged.
    fn read(
        directory: &Path,
        site: &SiteProperties,
        max_state_bytes: usize,
        log: Log,
        mut replayed: Box<Replayed>,
    ) -> Result<Left, SubmitError> {
        let conf = JobConf::read(site, &directory.join(CONF)).map_err(Refused::from);
        if replayed.parent.is_some() {
            let temporary = conf.ok().as_ref().and_then(temporary_output);
            return Ok(Left::Remote(replayed, log, temporary));
        }
        let conf = conf?;
        let splits = SplitStore::read(std::fs::read(directory.join(SPLITS))?);
        let (splits, _) = splits.map_err(Refused::from)?;
        // The service died before the journal said that a remote job tracker runs the job.
        if !replayed.engine.has_begun() {
            let reduces = replayed.engine.spec().reduces;
            let settings = parent_settings(&conf, splits.count(), reduces, max_state_bytes);
            if let Some(settings) = settings {
                log.hand_over(&settings)?;
                replayed.parent = Some(Parent::new(settings));
                return Ok(Left::Remote(replayed, log, temporary_output(&conf)));
            }
        }
        Ok(Left::Here { replayed, log, files: Box::new(SubmittedFiles { splits, conf }) })
    }
}

/// A session of an earlier run, as its journal names it, without requests.
fn saved_session(session: SessionBase) -> SavedSession {
    let mut saved = SavedSession::new(session.handle, session_types::pool(&session.pool));
    saved.session_log = session.log_path;
    saved
}

/// The request of a parent, as its session must know it after a restart.
fn open_request(id: RequestId, slot: Option<&GrantedSlot>) -> (ResourceRequest, Option<Grant>) {
    let kind = ResourceType::JobTracker;
    let (hosts, exclude_hosts) = (Vec::new(), Vec::new());
    let request = ResourceRequest { id: id.0, hosts, specs: None, kind, exclude_hosts };
    let grant = slot.map(|slot| Grant {
        id: id.0,
        node_name: slot.node.clone(),
        address: Address { host: slot.host.clone(), port: 0 },
        granted_at: Millis(0),
        kind,
        app_info: slot.address.clone(),
    });
    (request, grant)
}

/// Writes a file that is needed after a restart.
fn keep(path: &Path, bytes: &[u8], sync: JournalSync) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    match sync {
        JournalSync::Write => Ok(()),
        JournalSync::Always => file.sync_all(),
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SubmitError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| SubmitError::Broken)
}

fn fault(error: &SubmitError) -> Fault {
    Fault::io(error.to_string())
}

fn offers_job_trackers(status: &Status) -> bool {
    status.slots.contains_key(&ResourceType::JobTracker)
}

#[cfg(test)]
mod tests {
    use corona_mapreduce::{JobState, TaskState};
    use corona_net::testing::until;
    use tokio::io::AsyncWriteExt;
    use tokio::sync::watch;
    use tokio::time::Instant;

    use self::submission::tests::{split, split_file, submission, write_conf};
    use super::*;
    use crate::jobs::finished::tests::job as finished_job;
    use crate::jobs::job::tests::{grant_at, report};
    use crate::jobs::log::tests::breakable;
    use crate::jobs::store::NoPlace;
    use crate::launch::launcher::tests::tracker;
    use crate::service::tests::{service, service_with};
    use corona_job_engine::parent::Remote;

    /// A job and its session, at a cluster manager that cannot be reached.
    async fn prepared(
        shared: &Submitter,
        root: &Path,
        properties: &[(&str, &str)],
    ) -> (Submission, Base, SessionDriver, SessionEvents) {
        let submission = submission(properties, 1);
        let description = submission.description.clone();
        let session = SessionBase {
            handle: description.id.session().unwrap().into(),
            pool: description.pool.clone(),
            log_path: root.join("history").display().to_string(),
        };
        let saved = saved_session(session.clone());
        let options = shared.session_options(&description);
        let (driver, events) = shared.host.resume(saved, options).await.unwrap();
        std::fs::create_dir_all(shared.jobs.dirs.data_dir(description.id.as_str())).unwrap();
        let base = Base { description, spec: submission.spec.clone(), session };
        (submission, base, driver, events)
    }

    #[test]
    fn a_cluster_without_slots_of_job_trackers_is_known() {
        let status = |slots: &[ResourceType]| Status {
            slots: slots.iter().map(|kind| (*kind, Default::default())).collect(),
            ..Status::default()
        };
        assert!(offers_job_trackers(&status(&[ResourceType::Map, ResourceType::JobTracker])));
        assert!(!offers_job_trackers(&status(&[ResourceType::Map, ResourceType::Reduce])));
    }

    #[tokio::test]
    async fn an_answer_about_slots_of_job_trackers_that_cannot_be_read_refuses_the_job() {
        let pages = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let root = tempfile::tempdir().unwrap();
        let at = pages.local_addr().unwrap().to_string();
        let shared = service_with(root.path(), &[("cm.server.http.address", &at)]).await.submitter;
        let answering = async {
            let (mut stream, _) = pages.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"slots\": 7}").await.unwrap();
            stream.shutdown().await.unwrap();
        };
        let (refused, ()) = tokio::join!(shared.must_offer_job_trackers(), answering);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("JOBTRACKER is not known"), "{refused}");
    }

    /// What a death of the service in the middle of a submission has left of a job.
    async fn left_behind(root: &Path, properties: &[(&str, &str)], has_base: bool) -> JobId {
        let shared = service(root).await.submitter;
        let (submission, base, driver, _events) = prepared(&shared, root, properties).await;
        driver.leave();
        let id = submission.description.id.clone();
        let directory = shared.jobs.dirs.data_dir(id.as_str());
        write_conf(&directory.join(CONF), properties);
        std::fs::write(directory.join(SPLITS), split_file(vec![split(1, &["a"])])).unwrap();
        if has_base {
            let log = Log::begin(&directory.join(JOURNAL), &shared.journals, &base).unwrap();
            // Whatever follows is behind the first record.
            let last = log.input(Millis(0), &JobInput::Tick).unwrap();
            log.committed(last).await.unwrap();
        }
        id
    }

    async fn note(root: &Path, id: &JobId) {
        let shared = service(root).await.submitter;
        let (handle, status) = (id.session().unwrap().into(), SessionStatus::Killed);
        let debt = Debt { handle, user: "alice".into(), status, feedback: Vec::new() };
        shared.jobs.owed.note(debt).await.unwrap();
    }

    #[tokio::test]
    async fn a_job_whose_submission_a_death_of_the_service_has_cut_runs() {
        let root = tempfile::tempdir().unwrap();
        let id = left_behind(root.path(), &[("mapred.reduce.tasks", "0")], true).await;
        let shared = service(root.path()).await.submitter;
        let Some(KnownJob::Job(job)) = shared.jobs.store.get(&id) else {
            panic!("it is not known")
        };
        assert!(job.look(JobEngine::has_begun).await.unwrap());
        until("a request", || job.progress().requested > 0).await;

        let root = tempfile::tempdir().unwrap();
        let to_node = [("mapred.coronajobtracker.forceremote", "true")];
        let id = left_behind(root.path(), &to_node, true).await;
        let shared = service(root.path()).await.submitter;
        let Some(KnownJob::Remote(job)) = shared.jobs.store.get(&id) else {
            panic!("it is not known")
        };
        until("a job that waits for its job tracker", || job.awaits_job_tracker()).await;
        drop((job, shared));
        // Another death finds the parent in the journal, as soon as the first process has let that go.
        let begun = Instant::now();
        loop {
            let shared = service(root.path()).await.submitter;
            if matches!(shared.jobs.store.get(&id), Some(KnownJob::Remote(_))) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it is not known");
        }
    }

    #[tokio::test]
    async fn a_submission_that_was_not_accepted_leaves_nothing_and_may_be_repeated() {
        let root = tempfile::tempdir().unwrap();
        let id = {
            let shared = service(root.path()).await.submitter;
            let id: JobId = "job_202611210043.1_0001".parse().unwrap();
            shared.ids.give(id.clone(), "alice".into(), clock::now()).unwrap();
            id
        };
        note(root.path(), &id).await;
        assert_eq!(left_behind(root.path(), &[], false).await, id);
        let shared = service(root.path()).await.submitter;
        assert!(!shared.jobs.dirs.data_dir(id.as_str()).exists());
        assert!(
            shared.jobs.store.get(&id).is_none() && shared.jobs.owed.has(id.session().unwrap())
        );
        assert!(matches!(shared.jobs.store.arrive(&id, "bob"), Err(NoPlace::NotOwner { .. })));
        assert!(matches!(shared.jobs.store.arrive(&id, "alice"), Ok(JobArrival::Free)));
    }

    #[tokio::test]
    async fn a_job_whose_journal_is_lost_is_listed_and_its_files_are_kept() {
        type Damage = fn(&Path);
        let damages: [(&str, Damage); 3] = [
            ("the journal is removed", |journal| std::fs::remove_dir_all(journal).unwrap()),
            ("its first segment is removed", |journal| {
                each_segment(journal, |path| std::fs::remove_file(path).unwrap());
            }),
            ("its first segment is empty", |journal| {
                each_segment(journal, |path| std::fs::write(path, "").unwrap());
            }),
        ];
        for (what, damage) in damages {
            let root = tempfile::tempdir().unwrap();
            let id = left_behind(root.path(), &[("user.name", "alice")], true).await;
            let directory = root.path().join("data/jobs").join(id.as_str());
            damage(&directory.join(JOURNAL));
            // However often it starts.
            for _ in 0..2 {
                let shared = service(root.path()).await.submitter;
                let status = shared.jobs.store.get(&id).and_then(|known| known.status());
                let status = status.unwrap_or_else(|| panic!("{what}: the job is not known"));
                assert_eq!(answers::state_of(status.run_state), Some(JobState::Failed));
                let reason = &status.scheduling_info;
                assert!(reason.contains("the job is lost"), "{what}: {reason}");
                assert!(shared.jobs.store.was_not_resumed(&id));
                assert!(directory.join(CONF).exists() && directory.join(SPLITS).exists());
            }
        }
    }

    #[tokio::test]
    async fn a_lost_job_is_shown_before_those_that_ended_earlier() {
        let root = tempfile::tempdir().unwrap();
        let id = left_behind(root.path(), &[("user.name", "alice")], true).await;
        let directory = root.path().join("data/jobs").join(id.as_str());
        std::fs::remove_dir_all(directory.join(JOURNAL)).unwrap();
        let full = [("corona.jt.finished.jobs", "1")];
        let shared = service_with(root.path(), &full).await.submitter;
        let earlier = finished_job(7);
        shared.jobs.finished.keep(&earlier, "/history").unwrap();
        drop(shared);
        let shared = service_with(root.path(), &full).await.submitter;
        assert!(shared.jobs.store.get(&id).is_some());
        assert!(shared.jobs.store.get(&earlier.description.id).is_none());
    }

    fn each_segment(journal: &Path, act: impl Fn(&Path)) {
        for entry in std::fs::read_dir(journal).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().is_some_and(|name| name != "lock") {
                act(&path);
            }
        }
    }

    /// Checks that a job has failed, why, and that nothing else is left of it.
    async fn has_failed(shared: &Submitter, id: &JobId) {
        let known = || shared.jobs.store.get(id).unwrap();
        until("the end of the job", || matches!(known(), KnownJob::Retired(_))).await;
        let status = known().status().unwrap();
        assert_eq!(answers::state_of(status.run_state), Some(JobState::Failed));
        let why = "a bug in the job tracker ended the job (panic: a test)";
        assert!(status.scheduling_info.contains(why), "{status:?}");
        assert_eq!(shared.jobs.store.running(), 0);
        let directory = shared.jobs.dirs.data_dir(id.as_str());
        until("the end of its directory", || !directory.exists()).await;
        let kept = shared.jobs.finished.load();
        let ends = kept.iter().map(|kept| (kept.job.progress.state, kept.job.progress.live));
        assert_eq!(ends.collect::<Vec<_>>(), [(JobState::Failed, PerKind::default())]);
    }

    #[tokio::test]
    async fn a_job_whose_handling_panics_has_failed_for_all_who_ask() {
        let root = tempfile::tempdir().unwrap();
        let shared = service(root.path()).await.submitter;
        let (submission, base, driver, events) = prepared(&shared, root.path(), &[]).await;
        let Submission { description, spec, files } = submission;
        let id = description.id.clone();
        let directory = shared.jobs.dirs.data_dir(id.as_str()).join(JOURNAL);
        let log = Log::begin(&directory, &shared.journals, &base).unwrap();
        let (engine, session) = (JobEngine::new(spec), (driver, events));
        let parts = shared.parts(description, engine, files, log, session, (0, String::new()));
        let job = Job::start(parts.unwrap(), JobInput::Submitted);
        shared.jobs.store.begin(job.clone());
        let (_stop, stopped) = watch::channel(false);
        let (at, mut hears) = tracker(false, &stopped);
        job.apply(grant_at(1, &at.address)).await.unwrap();
        job.apply(report(2, TaskState::Running)).await.unwrap();
        let launched = hears.recv().await.unwrap();
        assert!(matches!(launched[0].action, wire::Action::Launch(_)), "{launched:?}");
        let looked = job.look(|_| panic!("a test")).await;
        assert_eq!(looked, Err(AskError::Gone));
        has_failed(&shared, &id).await;
        let sent = hears.recv().await.unwrap();
        assert!(matches!(sent[0].action, wire::Action::KillJob(_)), "{sent:?}");
    }

    /// A job submitted at this time that a remote job tracker is to run, with the journal that `log` begins in a
    /// directory.
    async fn on_a_node(
        shared: &Submitter,
        root: &Path,
        submitted: Millis,
        log: impl FnOnce(&Path, &Base) -> Log,
    ) -> RemoteJob {
        let to_node = [("mapred.coronajobtracker.forceremote", "true")];
        let (submission, base, driver, events) = prepared(shared, root, &to_node).await;
        let settings = parent_settings(&submission.files.conf, 1, 1, 1 << 20).unwrap();
        let log = log(
            &shared.jobs.dirs.data_dir(submission.description.id.as_str()).join(JOURNAL),
            &base,
        );
        log.hand_over(&settings).unwrap();
        let (description, parent) = (submission.description, Parent::new(settings));
        let mut parts = shared.remote_parts(description, parent, log, driver, events, None);
        parts.submitted = submitted;
        let job = RemoteJob::start(parts, ParentInput::Submitted);
        shared.jobs.store.begin_remote(job.clone());
        job
    }

    #[tokio::test]
    async fn a_job_on_a_node_whose_handling_panics_has_failed_for_all_who_ask() {
        let root = tempfile::tempdir().unwrap();
        let shared = service(root.path()).await.submitter;
        let begin = |at: &Path, base: &Base| Log::begin(at, &shared.journals, base).unwrap();
        let job = on_a_node(&shared, root.path(), clock::now(), begin).await;
        job.panic().await;
        has_failed(&shared, &job.description().id).await;
    }

    /// Has the job's tracker begun on a node, which is the listener, with a session of its own.
    async fn begun_on_a_node(job: &RemoteJob, session: Arc<str>) -> tokio::net::TcpListener {
        let at = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = at.local_addr().unwrap().port();
        let slots = vec![GrantedSlot {
            id: RequestId(1),
            node: "tracker_a:1".into(),
            host: "127.0.0.1".into(),
            address: format!("127.0.0.1:{port}").into(),
        }];
        job.apply(ParentInput::Granted { slots }).await.unwrap().unwrap();
        let remote = Remote { attempt: 0, host: "127.0.0.1".into(), port, session };
        job.apply(ParentInput::Reported(remote)).await.unwrap().unwrap();
        at
    }

    #[tokio::test]
    async fn the_session_of_a_job_tracker_on_a_node_is_owed_an_end_during_an_outage() {
        let root = tempfile::tempdir().unwrap();
        // Its cluster manager does not answer.
        let shared = service(root.path()).await.submitter;
        let begin = |at: &Path, base: &Base| Log::begin(at, &shared.journals, base).unwrap();
        let job = on_a_node(&shared, root.path(), clock::now(), begin).await;
        let session: Arc<str> = "202611210043.77".into();
        let _node = begun_on_a_node(&job, session.clone()).await;
        job.ends(0).await;
        until("the end of the job", || job.progress().state == JobState::Succeeded).await;
        let own = job.description().id.session().unwrap();
        assert!(shared.jobs.owed.has(own) && shared.jobs.owed.has(&session));
        assert!(shared.home.owed().join(&*session).exists(), "a restart knows it");
    }

    #[tokio::test]
    async fn a_job_on_a_node_that_has_waited_keeps_its_time_and_says_that_it_has_no_history() {
        let root = tempfile::tempdir().unwrap();
        let shared = service(root.path()).await.submitter;
        let submitted = Millis(clock::now().0 - 3_600_000);
        let begin = |at: &Path, base: &Base| Log::begin(at, &shared.journals, base).unwrap();
        let job = on_a_node(&shared, root.path(), submitted, begin).await;
        let id = &job.description().id;
        let _node = begun_on_a_node(&job, "202611210043.77".into()).await;
        assert_eq!(job.progress().submitted, submitted);
        // The job still writes to its own.
        let copy = root.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        let directory = shared.jobs.dirs.data_dir(id.as_str()).join(JOURNAL);
        for file in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
        let Opened::Job(_, replayed) = Log::open(&copy, &shared.journals).unwrap() else {
            panic!("its journal")
        };
        assert_eq!(replayed.parent.unwrap().submitted(), Some(submitted), "after a restart");

        let mut status = shared.jobs.store.get(id).unwrap().status().unwrap();
        status.scheduling_info = "without a history: a full disk".into();
        job.stands(0, status).await;
        job.ends(0).await;
        until("the end of the job", || job.progress().state == JobState::Succeeded).await;
        until("its note", || job.note().is_some()).await;
        assert_eq!(job.note().as_deref(), Some("without a history: a full disk"));
        assert!(!job.awaits_job_tracker());
        until("what a restart knows", || shared.jobs.finished.find(id).is_some()).await;
        let kept = shared.jobs.finished.load();
        assert_eq!(kept[0].job.reason.as_deref(), Some("without a history: a full disk"));
        assert_eq!(shared.jobs.meter.without_history.get(), 1);
    }

    /// Another start must not go back to what the job was when its journal failed.
    #[tokio::test]
    async fn a_job_on_a_node_whose_journal_fails_goes_on_and_a_restart_does_not_know_it() {
        let root = tempfile::tempdir().unwrap();
        let shared = service(root.path()).await.submitter;
        let mut broken = None;
        let breaks = |at: &Path, base: &Base| {
            let (log, breaks) = breakable(at, base);
            broken = Some(breaks);
            log
        };
        let job = on_a_node(&shared, root.path(), clock::now(), breaks).await;
        job.apply(ParentInput::Tick).await.unwrap().unwrap();
        let directory = shared.jobs.dirs.data_dir(job.description().id.as_str()).join(JOURNAL);
        assert!(directory.exists());
        broken.unwrap().fail_writes(std::io::ErrorKind::StorageFull);
        job.apply(ParentInput::Tick).await.unwrap().unwrap();
        until("the end of its journal", || !directory.exists()).await;
        job.apply(ParentInput::KillJob).await.unwrap().unwrap();
        let known = || shared.jobs.store.get(&job.description().id).unwrap();
        until("the end of the job", || matches!(known(), KnownJob::Retired(_))).await;
        assert_eq!(job.progress().state, JobState::Killed);
    }
}
