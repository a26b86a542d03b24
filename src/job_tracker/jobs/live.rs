//! The outlet of a job that runs: a session at the cluster manager, task trackers, and what follows
//! when the job is over.

use std::sync::Arc;

use corona_hadoop::rpc::CallError;
use corona_hadoop::writables as wire;
use corona_hadoop::writables::{Action, SessionInfo, TaskTrackerAction};
use corona_mapreduce::{Counters, HistoryRecord, JobId, JobState, TaskDemand};
use corona_model::types::{ResourceRequest, SessionPriority, SessionStatus};
use corona_process::panics::{caught, spawn_detached};
use corona_session_driver::{InfoUpdate, SessionDriver};

use super::end::Jobs;
use super::history::{History, Mark};
use super::inbox::WeakInbox;
use super::job::Job;
use super::left_output;
use super::log::Log;
use super::outlet::{NoSession, Outlet};
use super::owed::Debt;
use super::session_types;
use super::statistics::Report;
use super::store::{KnownJob, Retired, Store};
use crate::clock;
use crate::launch::launcher::{Dispatch, Launcher, Sender};
use crate::meter::Meter;
use crate::pages::events::{self, Events};
use crate::submit::submission::{Description, SplitStore};
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
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) description: Arc<Description>,
    pub(crate) log: Log,
    pub(crate) history: History,
    /// Where its unfinished output is, if no task needs to know that.
    pub(crate) temporary: Option<String>,
    /// For the proxy job tracker, if there is one.
    pub(crate) report: Option<Report>,
    /// The job, if its handling panicked.
    pub(crate) lost: Option<Retired>,
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
        if let Some(ending) = &mut self.ending {
            ending.history.record(record);
        }
    }

    fn done_without(&mut self, record: &HistoryRecord) {
        if let Some(event) = events::of_record(&self.spec.id, record) {
            self.events.add(clock::now(), event, 0);
        }
    }

    fn history_mark(&mut self) -> Option<Mark> {
        self.ending.as_mut()?.history.mark()
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
        let (jobs, description) = (ending.jobs.clone(), ending.description.clone());
        jobs.ended(&description, self.driver.handle(), state(status));
        let driver = self.driver.clone();
        tokio::spawn(async move {
            if let Err(panic) = caught(ending.carry_out(driver, status, feedback)).await {
                let job = &description.id;
                tracing::error!(%job, %panic, "the end of a job panicked; the next start ends it again");
                retire_ended(&jobs.store, job);
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
        let store = &self.jobs.store;
        let Some(KnownJob::Job(job)) = store.get(&self.description.id) else { return };
        let retired = || Retired {
            description: job.description().clone(),
            progress: progress.clone(),
            counters: Counters::default(),
            reason: Some(reason.into()),
        };
        store.lost(retired());
        self.lost = Some(retired());
    }

    /// Everything that follows the end of a job. When it is done a restart has nothing to do for it.
    async fn carry_out(
        self,
        driver: Arc<SessionDriver>,
        status: SessionStatus,
        feedback: Vec<NodeUsage>,
    ) {
        let Ending { jobs, description, log, history, temporary, report, lost } = self;
        let handle = driver.handle().clone();
        let debt = Debt { handle, user: description.user.clone(), status, feedback };
        let close = async {
            if history.close().await.is_some() {
                jobs.meter.without_history.add(1);
            }
        };
        tokio::join!(jobs.end_session(driver.clone(), debt), close);
        if let Some(lost) = lost {
            jobs.keep(lost, driver.session_log()).await;
            if let Some(temporary) = &temporary {
                jobs.remove_output(&description, temporary).await;
            }
        } else if let Some(KnownJob::Job(job)) = jobs.store.get(&description.id) {
            keep_job(&jobs, &job, driver.session_log()).await;
            if let Some(temporary) = &temporary
                && let Ok(true) = job.look(JobEngine::was_left_uncleaned).await
            {
                jobs.remove_output(&description, temporary).await;
            }
            if let Ok(true) = job.look(JobEngine::may_have_late_attempts).await {
                let output = description.output.as_deref().unwrap_or_default();
                let job_dir = jobs.dirs.job_dir(description.id.as_str());
                let access = left_output::access_to(output, &jobs.dirs.files, &job_dir).await;
                jobs.sweeps.reported(&description, access.unwrap_or_default());
            }
            if let Some(report) = report {
                report.make(&job).await;
            }
        }
        retire_ended(&jobs.store, &description.id);
        jobs.close(&description, state(status), Some(&log)).await;
        jobs.remove_data(&description, Some(log)).await;
    }
}

/// Retires a job that has ended, and others whose details may go. It may be done twice.
fn retire_ended(store: &Arc<Store>, job: &JobId) {
    for job in store.ended(job) {
        spawn_detached("the retirement of a job", retire(store.clone(), job));
    }
}

/// Lets the details of a job go.
async fn retire(store: Arc<Store>, job: Job) {
    // They are gone if its handling panicked after its end.
    let counters = job.look(JobEngine::counters).await.unwrap_or_default();
    let (description, progress) = (job.description().clone(), job.progress());
    let reason = job.history_note().map(Into::into);
    store.retire(Retired { description, progress, counters, reason });
    job.retire().await;
}

/// Notes for the next run how a job has ended.
async fn keep_job(jobs: &Arc<Jobs>, job: &Job, log_path: &str) {
    let look = |job: &JobEngine| (job.progress(), job.counters());
    let Ok((progress, counters)) = job.look(look).await else { return };
    let description = job.description().clone();
    let reason = job.history_note().map(Into::into);
    let ended = Retired { description, progress: progress.into(), counters, reason };
    jobs.keep(ended, log_path).await;
}

/// The state of a job whose session ended so.
fn state(status: SessionStatus) -> JobState {
    match status {
        SessionStatus::Successful => JobState::Succeeded,
        SessionStatus::Failed => JobState::Failed,
        _ => JobState::Killed,
    }
}
