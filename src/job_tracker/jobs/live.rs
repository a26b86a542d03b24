//! The outlet of a job that runs: a session at the cluster manager, task trackers, and what follows
//! when the job is over.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use corona_filesystem::{FileSystems, FsError};
use corona_hadoop::rpc::CallError;
use corona_hadoop::writables as wire;
use corona_hadoop::writables::{Action, SessionInfo, TaskTrackerAction};
use corona_mapreduce::{Counters, HistoryRecord, JobId, JobState, TaskDemand};
use corona_model::types::{ResourceRequest, SessionPriority, SessionStatus};
use corona_process::panics::caught;
use corona_session_driver::{InfoUpdate, SessionDriver};
use tokio::time::timeout;

use super::end_notice;
use super::finished::Finished;
use super::history::{History, Mark};
use super::inbox::WeakInbox;
use super::job::Job;
use super::left_output;
use super::log::Log;
use super::outlet::{NoSession, Outlet};
use super::owed::{Debt, Owed};
use super::session_types;
use super::statistics::Report;
use super::store::{KnownJob, Retired, Store};
use super::sweeps::Sweeps;
use crate::clock;
use crate::home;
use crate::launch::launcher::{Dispatch, Launcher, Sender};
use crate::meter::Meter;
use crate::pages::events::{self, Events};
use crate::submit::submission::{EndNotice, SplitStore};
use corona_job_engine::{
    JobEngine, JobInput, JobProgress, JobSpec, Launch, NodeUsage, Order, RequestId, Tracker,
};
use corona_job_wire::translate;

/// What carries out a job's decisions.
pub(crate) struct Live {
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) maps: u32,
    pub(crate) splits: Arc<SplitStore>,
    /// What its tasks take of a node.
    pub(crate) demand: TaskDemand,
    pub(crate) driver: Arc<SessionDriver>,
    pub(crate) launcher: Launcher,
    pub(crate) meter: Arc<Meter>,
    pub(crate) events: Arc<Events>,
    /// What each order says of its job.
    pub(crate) session: SessionInfo,
    pub(crate) job: wire::JobId,
    pub(crate) sender: Arc<dyn Sender>,
    /// Orders that were decided and not sent.
    pub(crate) orders: Vec<(Tracker, Vec<Dispatch>)>,
    pub(crate) ending: Option<Ending>,
}

/// What remains to be done when a job is over.
pub(crate) struct Ending {
    pub(crate) log: Option<Log>,
    pub(crate) history: Option<History>,
    /// Where its unfinished output is, if no task needs to know that.
    pub(crate) temporary: Option<String>,
    pub(crate) notice: Option<EndNotice>,
    /// For the proxy job tracker, if there is one.
    pub(crate) report: Option<Report>,
    pub(crate) owed: Arc<Owed>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) store: Arc<Store>,
    pub(crate) finished: Arc<Finished>,
    pub(crate) sweeps: Arc<Sweeps>,
    pub(crate) id: JobId,
    /// The user of the job.
    pub(crate) user: Arc<str>,
    /// The job's directory in the system directory.
    pub(crate) job_dir: String,
    /// What the service keeps of it on this machine.
    pub(crate) data_dir: PathBuf,
    pub(crate) files: Arc<FileSystems>,
    /// The job, if its handling panicked.
    pub(crate) lost: Option<Retired>,
    /// Called when its details may go, possibly twice.
    pub(crate) done: Arc<dyn Fn() + Send + Sync>,
}

/// Tells a job of orders that could not be delivered.
pub(crate) struct ToJob {
    pub(crate) job: WeakInbox,
    pub(crate) meter: Arc<Meter>,
}

impl Sender for ToJob {
    fn not_delivered(&self, node: Arc<str>, orders: Vec<Order>, _why: &CallError) {
        self.meter.undelivered.add(orders.len() as u64);
        // The job may have ended.
        if let Some(inbox) = self.job.upgrade() {
            inbox.note(JobInput::CallFailed { node, orders });
        }
    }
}

impl Live {
    fn dispatch(&mut self, at: Tracker, order: Order, action: Action) {
        let action = TaskTrackerAction { session: Some(self.session.clone()), action };
        let dispatch = Dispatch { order, action };
        match self.orders.iter_mut().find(|(to, _)| *to == at) {
            Some((_, orders)) => orders.push(dispatch),
            None => self.orders.push((at, vec![dispatch])),
        }
    }

    /// An order that cannot be written down cannot be delivered either.
    fn impossible(&self, at: Tracker, order: Order) {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidData, "a number is too large");
        let address = wire::InetAddress { host: at.address.to_string(), port: 0 };
        self.sender.not_delivered(at.node, vec![order], &CallError::Connect { address, error });
    }
}

impl Outlet for Live {
    fn request(&mut self, requests: Vec<ResourceRequest>) -> Result<(), NoSession> {
        let expected = requests.first().map(|request| request.id);
        let slot = |request| session_types::slot(request, self.demand);
        match self.driver.request(requests.into_iter().map(slot).collect()) {
            Ok(ids) if ids.first().copied() == expected => Ok(()),
            Ok(ids) => {
                let given = ids.first().copied();
                tracing::error!(job = %self.spec.id, ?expected, ?given, "request ids differ");
                Err(NoSession)
            }
            Err(error) => {
                tracing::warn!(job = %self.spec.id, %error, "cannot request slots; the job ends");
                Err(NoSession)
            }
        }
    }

    fn release(&mut self, ids: Vec<RequestId>) -> Result<(), NoSession> {
        match self.driver.release(ids.into_iter().map(|id| id.0)) {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::warn!(job = %self.spec.id, %error, "cannot release slots; the job ends");
                Err(NoSession)
            }
        }
    }

    fn launch(&mut self, launch: Launch) {
        self.meter.launched(&launch);
        let event = events::launched(&self.spec.id, launch.attempt, &launch.at.node);
        self.events.add(clock::now(), event, 0);
        let order = Order::Launch(launch.attempt);
        let split = self.splits.get(launch.attempt.task.number);
        match translate::task(&self.spec, &launch, split, self.maps) {
            Some(task) => self.dispatch(launch.at, order, Action::Launch(Box::new(task))),
            None => self.impossible(launch.at, order),
        }
    }

    fn order(&mut self, at: Tracker, order: Order) {
        let id = |key| translate::attempt_id(&self.spec.id, key);
        let action = match order {
            Order::Kill(key) => id(key).map(Action::KillTask),
            Order::Commit(key) => id(key).map(Action::Commit),
            Order::KillJob => Some(Action::KillJob(self.job.clone())),
            Order::Launch(_) => None,
        };
        match action {
            Some(action) => self.dispatch(at, order, action),
            None => self.impossible(at, order),
        }
    }

    fn record(&mut self, record: &HistoryRecord) {
        self.meter.recorded(record);
        self.done_without(record);
        if let Some(history) = self.ending.as_mut().and_then(|ending| ending.history.as_mut()) {
            history.record(record);
        }
    }

    fn done_without(&mut self, record: &HistoryRecord) {
        if let Some(event) = events::of_record(&self.spec.id, record) {
            self.events.add(clock::now(), event, 0);
        }
    }

    fn history_mark(&mut self) -> Option<Mark> {
        self.ending.as_mut()?.history.as_mut()?.mark()
    }

    fn priority(&mut self, priority: SessionPriority) {
        let mut update = InfoUpdate::default();
        update.priority = Some(session_types::priority(priority));
        if let Err(error) = self.driver.update_info(update) {
            tracing::warn!(job = %self.spec.id, %error, "cannot update the priority of the session");
        }
    }

    fn flush(&mut self) {
        for (to, orders) in std::mem::take(&mut self.orders) {
            self.launcher.send(&to, self.sender.clone(), orders);
        }
    }

    fn end(&mut self, status: SessionStatus, feedback: Vec<NodeUsage>) {
        let Some(ending) = self.ending.take() else { return };
        match state(status) {
            JobState::Succeeded => self.meter.jobs_succeeded.add(1),
            JobState::Failed => self.meter.jobs_failed.add(1),
            _ => self.meter.jobs_killed.add(1),
        }
        log_end(&self.spec.id, &self.spec.name, &ending.user, self.driver.handle(), state(status));
        let driver = self.driver.clone();
        let (job, done) = (ending.id.clone(), ending.done.clone());
        tokio::spawn(async move {
            if let Err(panic) = caught(ending.carry_out(driver, status, feedback)).await {
                tracing::error!(%job, %panic, "what follows the end of a job panicked; the next start does it again");
                done();
            }
        });
    }

    fn lost(&mut self, progress: Arc<JobProgress>, reason: &str) {
        self.flush();
        if let Some(ending) = &mut self.ending {
            ending.lost(progress, reason);
        }
        self.end(SessionStatus::Failed, Vec::new());
    }

    fn leave(&mut self) {
        self.driver.leave();
    }
}

impl Ending {
    /// Keeps what clients ask of a job that has failed. Nothing else remains of it.
    fn lost(&mut self, progress: Arc<JobProgress>, reason: &str) {
        let Some(KnownJob::Job(job)) = self.store.get(&self.id) else { return };
        let retired = || Retired {
            description: job.description().clone(),
            progress: progress.clone(),
            counters: Counters::default(),
            reason: Some(reason.into()),
        };
        self.store.lost(retired());
        self.lost = Some(retired());
    }

    /// Everything that follows the end of a job. When it is done a restart has nothing to do for it.
    async fn carry_out(
        self,
        driver: Arc<SessionDriver>,
        status: SessionStatus,
        feedback: Vec<NodeUsage>,
    ) {
        let handle = driver.handle().clone();
        let debt = Debt { handle, user: self.user.clone(), status, feedback };
        let close = async {
            if let Some(history) = self.history
                && history.close().await.is_some()
            {
                self.meter.without_history.add(1);
            }
        };
        tokio::join!(end_session(&self.owed, driver.clone(), debt), close);
        if let Some(lost) = self.lost {
            keep(self.finished, lost, driver.session_log()).await;
            if let Some(temporary) = &self.temporary {
                remove_output(&self.files, &self.id, &self.user, temporary, &self.job_dir).await;
            }
        } else if let Some(KnownJob::Job(job)) = self.store.get(&self.id) {
            keep_job(self.finished, &job, driver.session_log()).await;
            if let Some(temporary) = &self.temporary
                && let Ok(true) = job.look(JobEngine::was_left_uncleaned).await
            {
                remove_output(&self.files, &self.id, &self.user, temporary, &self.job_dir).await;
            }
            if let Ok(true) = job.look(JobEngine::may_have_late_attempts).await {
                let description = job.description();
                let output = description.output.as_deref().unwrap_or_default();
                let access = left_output::access_to(output, &self.files, &self.job_dir).await;
                self.sweeps.reported(description, access.unwrap_or_default());
            }
            if let Some(report) = self.report {
                report.make(&job).await;
            }
        }
        (self.done)();
        let closing = Closing {
            job: self.id,
            state: state(status),
            notice: self.notice,
            files: self.files,
            job_dir: self.job_dir,
            log: self.log.clone(),
        };
        closing.carry_out().await;
        remove_data(self.data_dir, self.log).await;
    }
}

/// How long what follows the end of a job waits for the cluster manager to acknowledge the end of the session,
/// which is delivered for as long as it takes.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The line of the log for the end of a job.
pub(crate) fn log_end(job: &JobId, name: &str, user: &str, session: &str, state: JobState) {
    tracing::info!(%job, name, user, session, ?state, "job ended");
}

/// Ends the session of a job that is over. Whether the cluster manager has acknowledged that soon.
pub(crate) async fn end_session(owed: &Arc<Owed>, driver: Arc<SessionDriver>, debt: Debt) -> bool {
    let session = driver.handle().clone();
    let delivery = owed.end(driver, debt).await;
    match timeout(END_PATIENCE, delivery).await {
        Ok(Ok(ended)) => {
            tracing::debug!(%session, %ended, "the cluster manager knows that a job is over");
            ended.is_settled()
        }
        Ok(Err(_)) => false,
        Err(_) => {
            tracing::warn!(
                %session,
                "a job has ended; the cluster manager does not answer; retrying the end of its session until it is acknowledged"
            );
            false
        }
    }
}

/// The last that follows the end of a job. A restart before it is done does it again.
pub(crate) struct Closing {
    pub(crate) job: JobId,
    pub(crate) state: JobState,
    pub(crate) notice: Option<EndNotice>,
    pub(crate) files: Arc<FileSystems>,
    /// The job's directory in the system directory.
    pub(crate) job_dir: String,
    pub(crate) log: Option<Log>,
}

impl Closing {
    pub(crate) async fn carry_out(self) {
        if let Some(notice) = &self.notice {
            end_notice::notify(notice, &self.job, self.state).await;
        }
        if let Err(error) = remove(&self.files, &self.job_dir).await {
            tracing::warn!(directory = self.job_dir, %error, "cannot remove the files of a job");
        }
        if let Some(log) = &self.log
            && let Ok(number) = log.close()
        {
            // If it cannot be written the next start does all this again.
            let _ = log.committed(number).await;
        }
    }
}

/// Removes what the service keeps of a job whose journal is closed.
pub(crate) async fn remove_data(directory: PathBuf, log: Option<Log>) {
    let removed = tokio::task::spawn_blocking(move || {
        let removed = home::remove_job(&directory);
        // It is closed once what it has written is on the disk, which takes a while.
        drop(log);
        removed
    });
    if let Ok(Err(error)) = removed.await {
        tracing::warn!(%error, "cannot remove what was kept of a job; the next start will");
    }
}

/// Removes what a job has left that was not cleaned up after, with the rights of its user: the job names
/// the directory.
pub(crate) async fn remove_output(
    files: &FileSystems,
    job: &JobId,
    user: &str,
    temporary: &str,
    job_dir: &str,
) {
    let removed = async {
        let access = left_output::access_to(temporary, files, job_dir).await?;
        left_output::remove(&files.as_user(user, access), temporary).await
    };
    match removed.await {
        Ok(true) => {
            tracing::info!(%job, temporary, "removed the unfinished output of a job that ended without its clean-up")
        }
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(%job, temporary, %error, "cannot remove the unfinished output of a job");
        }
    }
}

/// Notes for the next run how a job has ended.
async fn keep_job(finished: Arc<Finished>, job: &Job, log_path: &str) {
    let look = |job: &JobEngine| (job.progress(), job.counters());
    let Ok((progress, counters)) = job.look(look).await else { return };
    let description = job.description().clone();
    let reason = job.history_note().map(Into::into);
    let ended = Retired { description, progress: progress.into(), counters, reason };
    keep(finished, ended, log_path).await;
}

pub(crate) async fn keep(finished: Arc<Finished>, ended: Retired, log_path: &str) {
    let job = ended.description.id.clone();
    let log_path = log_path.to_owned();
    let kept = tokio::task::spawn_blocking(move || finished.keep(&ended, &log_path)).await;
    if let Ok(Err(error)) = kept {
        tracing::warn!(%job, %error, "a restart will not know this job, which has ended");
    }
}

/// The state of a job whose session ended so.
fn state(status: SessionStatus) -> JobState {
    match status {
        SessionStatus::Successful => JobState::Succeeded,
        SessionStatus::Failed => JobState::Failed,
        _ => JobState::Killed,
    }
}

async fn remove(files: &FileSystems, path: &str) -> Result<(), FsError> {
    let (files, path) = files.resolve(path)?;
    files.delete(&path, true).await.map(drop)
}
