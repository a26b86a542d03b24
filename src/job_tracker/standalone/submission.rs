//! What the parent asks: the submission of the job, and every question and order of its client.
//! Spec: mapreduce/03 §3.5.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use corona_hadoop::protocols::job_submission::JobSubmission;
use corona_hadoop::rpc::{CallError, Caller, Fault};
use corona_hadoop::writables as wire;
use corona_hadoop::writables::{
    ClusterStatus, InetAddress, JobProfile, JobQueueInfo, JobStatus, QueueAclsInfo, TaskAttemptId,
    TaskCompletionEvent, TaskReport,
};
use corona_mapreduce::{TaskDemand, TaskKind, TaskRole};
use corona_process::panics::caught;
use corona_session_driver::InfoUpdate;
use tokio::time::timeout;

use super::outlet::{Ending, RemoteOutlet};
use super::parent::Saver;
use super::{Beginning, Running, session_log, tracking_url};
use crate::jobs::history::{self, History};
use crate::jobs::inbox::inbox;
use crate::jobs::job::{AskError, Job, Parts};
use crate::jobs::live::{Live, ToJob};
use crate::jobs::session_types;
use crate::jobs::statistics::Report;
use crate::pages::sessions::JobSession;
use crate::rpc::answers;
use crate::submit::submission::{
    Bounds, MAX_CONF_BYTES, SPLITS, Submission, SubmittedFiles, priority, read_staged,
};
use corona_job_engine::{JobEngine, JobInput, JobRefusal, JobReply, JobSpec};
use corona_job_wire::translate;

/// How long a caller waits for the end of a job that is over, or is killed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(150);
/// Updates of the state of a job in one call to the parent.
const MAX_UPDATES: usize = 1000;

impl Running {
    /// Fails for another job than this one. Spec: mapreduce/03 §3.5.
    fn check(&self, job: &wire::JobId) -> Result<(), Fault> {
        let own = self.arguments.attempt.job();
        (job == own).then_some(()).ok_or_else(|| {
            let text = format!("JobId {job} does not match the expected id of: {own}");
            Fault::unexpected("java.lang.RuntimeException", &text)
        })
    }

    /// The job, once it was submitted. Before that the original fails with this exception.
    fn submitted(&self, job: &wire::JobId) -> Result<Job, Fault> {
        self.check(job)?;
        let none = || Fault::unexpected("java.lang.NullPointerException", "no job was submitted");
        self.job().ok_or_else(none)
    }

    /// Begins the job; if that was done before, nothing happens.
    async fn begin(self: &Arc<Self>) -> Result<Job, Fault> {
        let mut beginning = self.beginning.lock().await;
        if let Some(job) = self.job() {
            return Ok(job);
        }
        let submission = self.fetch().await?;
        let Some(begins) = beginning.take() else {
            return Err(Fault::io("this job tracker ends"));
        };
        let job = self.start_job(submission, begins)?;
        self.sources.store.begin(job.clone());
        // No other caller sets it: the lock is held.
        Ok(self.job.get_or_init(|| job).clone())
    }

    /// Reads the job's splits. Its configuration was copied when this process was started.
    async fn fetch(&self) -> Result<Submission, Fault> {
        let fault = |error: &dyn std::fmt::Display| Fault::io(error.to_string());
        let most = self.settings.max_split_bytes;
        let splits = read_staged(&self.files, &self.job_dir, SPLITS, most).await;
        let splits = splits.map_err(|error| fault(&error))?;
        let conf = format!("{}/job.xml", self.job_dir);
        let (site, job_xml) = (self.site.clone(), self.job_xml.clone());
        let (id, user) = (self.arguments.job.clone(), self.user.name.clone());
        let bounds = Bounds::of(&self.settings);
        let read = tokio::task::spawn_blocking(move || {
            let size = std::fs::metadata(&job_xml).map(|file| file.len());
            if size.is_ok_and(|size| size > MAX_CONF_BYTES) {
                return Err(format!("job.xml has more than {MAX_CONF_BYTES} bytes"));
            }
            Submission::read(id, &user, &site, &job_xml, splits, &conf, "", bounds)
                .map_err(|error| error.to_string())
        });
        let read = read.await.map_err(|error| fault(&error))?;
        let mut submission = read.map_err(|error| fault(&error))?;
        submission.description.url =
            tracking_url(&self.conf, &self.arguments, &self.sources.at).into();
        submission.spec.tracker = self.arguments.tracker().into();
        Ok(submission)
    }

    fn start_job(
        self: &Arc<Self>,
        submission: Submission,
        begins: Beginning,
    ) -> Result<Job, Fault> {
        let Submission { description, spec, files: SubmittedFiles { splits, conf } } = submission;
        let Beginning { events, first, items, save_failed } = begins;
        let mut info = InfoUpdate::default();
        info.name = Some(description.name.to_string());
        info.url = Some(description.url.to_string());
        info.priority = Some(session_types::priority(description.priority));
        self.driver.update_info(info).map_err(|error| Fault::io(error.to_string()))?;
        let place = history::HistoryTarget {
            files: self.files.clone(),
            log_path: session_log(&self.conf, &self.arguments.attempt.job().tracker),
            conf: conf.to_xml().unwrap_or_else(|error| {
                tracing::warn!(%error, "the history has no configuration of the job");
                String::new()
            }),
            user_copy: None,
        };
        let session = JobSession {
            handle: Some(self.driver.handle().clone()),
            log_path: place.log_path.as_str().into(),
        };
        self.sources.sessions.note(description.id.clone(), session, |_| true);
        let history = History::begin(description.id.clone(), place, None, String::new());
        let standing = history.standing();
        let inbox = inbox(self.settings.max_queued_inputs);
        let sender = Arc::new(ToJob { job: inbox.0.downgrade(), meter: self.meter.clone() });
        let report = self.settings.proxy_job_tracker_reports.as_ref().map(|proxy| Report {
            proxy: InetAddress { host: proxy.host.to_string(), port: proxy.port },
            user: self.user.clone(),
            job: description.id.clone(),
            pool: self.driver.pool().to_string(),
        });
        let live = Live {
            maps: splits.count(),
            splits: Arc::new(splits),
            spec: Arc::new(JobSpec { splits: Vec::new(), ..spec.clone() }),
            session: self.session_info(),
            demand: TaskDemand::of(&conf),
            driver: self.driver.clone(),
            launcher: self.launcher.clone(),
            meter: self.meter.clone(),
            events: self.sources.events.clone(),
            job: self.arguments.attempt.job().clone(),
            sender: sender.clone(),
            orders: Vec::new(),
            ending: None,
        };
        if let Some(items) = items {
            let saver = Saver {
                parent: self.parent.clone(),
                job: description.id.clone(),
                launcher: self.launcher.clone(),
                sender,
                inbox: inbox.0.downgrade(),
                most: MAX_UPDATES,
            };
            let address = self.parent.address.clone();
            tokio::spawn(async move {
                let saved = caught(saver.run(items)).await.unwrap_or_else(|panic| {
                    Err(CallError::Connect { address, error: io::Error::other(panic) })
                });
                if let Err(error) = saved {
                    // A job tracker that ends already does not need the reason.
                    let _ = save_failed.send(error);
                }
            });
        }
        let outlet = RemoteOutlet {
            live,
            to_parent: self.to_parent.clone(),
            keeps_tasks: self.keeps_tasks.clone(),
            ending: Some(Ending {
                history,
                report,
                running: self.clone(),
                closed: self.closed.clone(),
            }),
        };
        let parts = Parts {
            description: Arc::new(description),
            engine: JobEngine::new(spec),
            log: None,
            outlet: Box::new(outlet),
            events: Some(events),
            contact: Some(self.driver.contact()),
            history: Some(standing),
            inbox,
            first_at: None,
            stop: self.stop.subscribe(),
        };
        Ok(Job::start(parts, first))
    }

    /// Waits until everything that follows the end of the job is done. Spec: mapreduce/05 §5.6.
    async fn until_closed(&self) {
        let mut closed = self.closed.subscribe();
        if timeout(CLOSE_TIMEOUT, closed.wait_for(|closed| *closed)).await.is_err() {
            tracing::warn!("the end of the job takes long");
        }
    }

    async fn look<T: Send + 'static>(
        &self,
        job: &wire::JobId,
        look: impl FnOnce(&JobEngine) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        self.submitted(job)?.look(look).await.map_err(|error| Fault::io(error.to_string()))
    }

    /// Task reports; none before the submission. Spec: mapreduce/09 §A.
    async fn task_reports(
        &self,
        job: &wire::JobId,
        look: impl FnOnce(&JobEngine) -> Vec<TaskReport> + Send + 'static,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        self.check(job)?;
        if self.job().is_none() {
            return Ok(Some(Vec::new()));
        }
        self.look(job, look).await.map(Some)
    }

    async fn change(&self, job: &wire::JobId, input: JobInput) -> Result<Option<JobReply>, Fault> {
        match self.submitted(job)?.apply(input).await {
            Ok(reply) => Ok(Some(reply)),
            Err(AskError::Refused(JobRefusal::Ended | JobRefusal::UnknownAttempt)) => Ok(None),
            Err(error) => Err(Fault::io(error.to_string())),
        }
    }

    /// Completion events from a place on; none for another job, or before the submission.
    pub(super) async fn events(
        &self,
        job: &wire::JobId,
        from: i32,
        most: i32,
    ) -> Result<Vec<TaskCompletionEvent>, Fault> {
        let Some(known) = self.job().filter(|_| job == self.arguments.attempt.job()) else {
            return Ok(Vec::new());
        };
        let from = usize::try_from(from).unwrap_or(0);
        let most = usize::try_from(most).unwrap_or(0).min(self.settings.max_events);
        let events = known.look(move |job| answers::events(job, from, most)).await;
        events.map_err(|error| Fault::io(error.to_string()))
    }
}

fn not_here(method: &str) -> Fault {
    let text = format!("{method} is not supported by a job tracker of one job");
    Fault::unexpected("java.lang.UnsupportedOperationException", &text)
}

/// `JobSubmission` for shared state: the submission hands the state on.
pub(super) struct Submissions(pub(super) Arc<Running>);

impl JobSubmission for Submissions {
    async fn submit_job(
        &self,
        _caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<JobStatus>, Fault> {
        self.0.check(&job)?;
        let job = self.0.begin().await.inspect_err(|error| {
            tracing::error!(%error, "the job cannot begin");
        })?;
        // Its first input is applied when it answers.
        job.look(|_| ()).await.map_err(|error| Fault::io(error.to_string()))?;
        Ok(answers::status(job.description(), &job.progress(), None))
    }

    async fn get_job_profile(
        &self,
        _caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<JobProfile>, Fault> {
        Ok(answers::profile(self.0.submitted(&job)?.description()))
    }

    async fn get_job_status(
        &self,
        _caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<JobStatus>, Fault> {
        let job = self.0.submitted(&job)?;
        if job.progress().finished_at.is_some() {
            self.0.until_closed().await;
        }
        // Only what concerns the history: its parent has a session of its own.
        let note = job.history_note();
        Ok(answers::status(job.description(), &job.progress(), note.as_deref()))
    }

    async fn get_job_counters(
        &self,
        _caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<wire::Counters>, Fault> {
        let look = |job: &JobEngine| translate::counters_to_wire(&job.counters());
        self.0.look(&job, look).await.map(Some)
    }

    async fn get_map_task_reports(
        &self,
        _caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        self.0.task_reports(&job, |job| answers::work_reports(job, TaskKind::Map)).await
    }

    async fn get_reduce_task_reports(
        &self,
        _caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        self.0.task_reports(&job, |job| answers::work_reports(job, TaskKind::Reduce)).await
    }

    async fn get_setup_task_reports(
        &self,
        _caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        self.0.task_reports(&job, |job| answers::reports_for_the_job(job, TaskRole::Setup)).await
    }

    async fn get_cleanup_task_reports(
        &self,
        _caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        self.0.task_reports(&job, |job| answers::reports_for_the_job(job, TaskRole::Cleanup)).await
    }

    async fn get_task_completion_events(
        &self,
        _caller: &Caller,
        job: wire::JobId,
        from: i32,
        max: i32,
    ) -> Result<Option<Vec<TaskCompletionEvent>>, Fault> {
        self.0.events(&job, from, max).await.map(Some)
    }

    async fn get_task_diagnostics(
        &self,
        _caller: &Caller,
        attempt: TaskAttemptId,
    ) -> Result<Option<Vec<Option<String>>>, Fault> {
        let job = attempt.job().clone();
        let look = move |job: &JobEngine| answers::diagnostics(job, &attempt);
        let text = self.0.look(&job, look).await?;
        Ok(Some(text.into_iter().map(Some).collect()))
    }

    /// Returns when the job has ended: the parent ends its session then.
    async fn kill_job(&self, caller: &Caller, job: wire::JobId) -> Result<(), Fault> {
        tracing::info!(%job, peer = %caller.peer, "the job is killed");
        self.0.change(&job, JobInput::KillJob).await?;
        self.0.until_closed().await;
        Ok(())
    }

    async fn kill_task(
        &self,
        _caller: &Caller,
        attempt: TaskAttemptId,
        should_fail: bool,
    ) -> Result<bool, Fault> {
        let Some(key) = translate::attempt_key(&self.0.arguments.job, &attempt) else {
            return Ok(false);
        };
        let input = JobInput::KillAttempt { attempt: key, fail: should_fail };
        let reply = self.0.change(attempt.job(), input).await?;
        Ok(reply == Some(JobReply::Killed(true)))
    }

    async fn set_job_priority(
        &self,
        _caller: &Caller,
        job: wire::JobId,
        name: String,
    ) -> Result<(), Fault> {
        let unknown = || Fault::unexpected("java.lang.IllegalArgumentException", &name);
        let priority = priority(&name).ok_or_else(unknown)?;
        self.0.change(&job, JobInput::SetPriority { priority }).await.map(drop)
    }

    async fn get_new_job_id(&self, _caller: &Caller) -> Result<Option<wire::JobId>, Fault> {
        Err(not_here("getNewJobId"))
    }

    async fn get_system_dir(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        let parent = self.0.job_dir.rsplit_once('/').map(|(parent, _)| parent.to_owned());
        Ok(parent)
    }

    async fn get_filesystem_name(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        Ok(None)
    }

    async fn jobs_to_complete(&self, _caller: &Caller) -> Result<Option<Vec<JobStatus>>, Fault> {
        Ok(None)
    }

    async fn get_all_jobs(&self, _caller: &Caller) -> Result<Option<Vec<JobStatus>>, Fault> {
        Ok(None)
    }

    async fn get_queues(&self, _caller: &Caller) -> Result<Option<Vec<JobQueueInfo>>, Fault> {
        Ok(None)
    }

    async fn get_queue_info(
        &self,
        _caller: &Caller,
        _queue: String,
    ) -> Result<Option<JobQueueInfo>, Fault> {
        Ok(None)
    }

    async fn get_jobs_from_queue(
        &self,
        _caller: &Caller,
        _queue: String,
    ) -> Result<Option<Vec<JobStatus>>, Fault> {
        Ok(None)
    }

    async fn get_queue_acls_for_current_user(
        &self,
        _caller: &Caller,
    ) -> Result<Option<Vec<QueueAclsInfo>>, Fault> {
        Ok(None)
    }

    async fn get_cluster_status(
        &self,
        _caller: &Caller,
        _detailed: bool,
    ) -> Result<Option<ClusterStatus>, Fault> {
        Err(not_here("getClusterStatus"))
    }
}
