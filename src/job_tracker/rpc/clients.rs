//! What clients ask: every answer of the original's job tracker to them. Spec: mapreduce/07 §7.6 to §7.8.

use std::collections::BTreeSet;
use std::sync::Arc;

use corona_api::cluster::{NodeProblem, Slots, Status};
use corona_hadoop::protocols::job_submission::JobSubmission;
use corona_hadoop::rpc::{Caller, Fault};
use corona_hadoop::writables as wire;
use corona_hadoop::writables::{
    ClusterState, ClusterStatus, JobProfile, JobQueueInfo, JobStatus, QueueAclsInfo, TaskAttemptId,
    TaskCompletionEvent, TaskReport, TrackerTasks,
};
use corona_mapreduce::{Counters, PerKind, TaskKind, TaskRole};
use corona_model::types::ResourceType;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::sleep;

use super::access::Access;
use super::answers::known_id;
use super::inter_tracker::events;
use crate::jobs::job::{AskError, is_shown};
use crate::jobs::remote::RemoteJob;
use crate::jobs::store::{ARRIVING_PAUSE, KnownJob};
use crate::rpc::answers;
use crate::submit::Submitter;
use crate::submit::submission::priority;
use corona_job_engine::parent::ParentInput;
use corona_job_engine::{JobEngine, JobInput, JobProgress, JobRefusal, JobReply};
use corona_job_wire::translate;

/// Events in one reply to a client.
const MAX_EVENTS: usize = 10_000;
/// Answers about all tasks of a large job that are made at once, and how many tasks such a job has.
const LARGE_ANSWERS: usize = 2;
const LARGE_JOB: u32 = 5_000;
/// The queue that exists always.
const DEFAULT_QUEUE: &str = "default";
const NO_SCHEDULING_INFO: &str = "N/A";
/// The operations on queues, as the original names them.
const OPERATIONS: [&str; 2] = ["acl-submit-job", "acl-administer-jobs"];

/// Forwards a call to the remote job tracker of a job, if one runs it.
macro_rules! forward {
    ($shared:ident, $caller:ident, $job:expr, $client:ident => $call:expr) => {
        if let Some(KnownJob::Remote(remote)) = $shared.visible($caller, $job)? {
            let mut $client = remote.client().await?;
            return remote.checked($call.await);
        }
    };
}

/// Turns for answers that show all tasks of a large job. Each is tens of megabytes, and clients may ask for
/// many at once. Answers of other jobs do not wait.
#[derive(Debug)]
pub(crate) struct LargeAnswers(Semaphore);

impl Default for LargeAnswers {
    fn default() -> LargeAnswers {
        LargeAnswers(Semaphore::new(LARGE_ANSWERS))
    }
}

impl LargeAnswers {
    /// Returns when such an answer about a job may be made. What it returns is held meanwhile.
    async fn turn(&self, progress: &JobProgress) -> Option<SemaphorePermit<'_>> {
        let is_large =
            TaskKind::ALL.iter().map(|kind| progress.total[*kind]).sum::<u32>() > LARGE_JOB;
        // It is never closed.
        if is_large { self.0.acquire().await.ok() } else { None }
    }
}

/// The calls of clients.
pub(crate) struct ClientCalls {
    pub(crate) access: Arc<Access>,
    pub(crate) submitter: Arc<Submitter>,
    pub(crate) large_answers: LargeAnswers,
}

impl ClientCalls {
    /// What is known of a job that the caller may see.
    fn visible(&self, caller: &Caller, id: &wire::JobId) -> Result<Option<KnownJob>, Fault> {
        let known = known_id(id).and_then(|id| self.submitter.jobs.store.get(&id));
        if let Some(description) = known.as_ref().and_then(KnownJob::description) {
            self.access.must_see(caller, description)?;
        }
        Ok(known)
    }

    /// What is known of a job that the caller may change.
    fn changeable(&self, caller: &Caller, id: &wire::JobId) -> Result<Option<KnownJob>, Fault> {
        let known = known_id(id).and_then(|id| self.submitter.jobs.store.get(&id));
        if let Some(description) = known.as_ref().and_then(KnownJob::description) {
            self.access.must_change(caller, description)?;
        }
        Ok(known)
    }

    /// A look at a job; nothing for one whose details are not there.
    async fn look<T: Send + 'static>(
        &self,
        caller: &Caller,
        id: &wire::JobId,
        look: impl FnOnce(&JobEngine) -> T + Send + 'static,
    ) -> Result<Option<T>, Fault> {
        let Some(KnownJob::Job(job)) = self.visible(caller, id)? else { return Ok(None) };
        match job.look(look).await {
            Ok(seen) => Ok(Some(seen)),
            Err(AskError::Busy) => Err(Fault::io(AskError::Busy.to_string())),
            Err(_) => Ok(None),
        }
    }

    /// An input for a job; nothing for one that has ended or is not known.
    async fn change(
        &self,
        caller: &Caller,
        id: &wire::JobId,
        input: JobInput,
    ) -> Result<Option<JobReply>, Fault> {
        let Some(KnownJob::Job(job)) = self.changeable(caller, id)? else { return Ok(None) };
        match job.apply(input).await {
            Ok(reply) => Ok(Some(reply)),
            Err(AskError::Refused(JobRefusal::Ended) | AskError::Gone) => Ok(None),
            Err(AskError::Refused(JobRefusal::UnknownAttempt)) => Ok(None),
            Err(error) => Err(Fault::io(error.to_string())),
        }
    }

    /// The statuses of the jobs that the caller may see.
    fn statuses(
        &self,
        caller: &Caller,
        which: impl Fn(&KnownJob, &JobProgress) -> bool,
    ) -> Vec<JobStatus> {
        let known = self.submitter.jobs.store.all().into_iter();
        let statuses = known.filter_map(|known| {
            let (description, progress) = (known.description()?, known.progress()?);
            let shown = self.access.sees(caller, description) && which(&known, &progress);
            shown.then(|| known.status()).flatten()
        });
        statuses.collect()
    }

    async fn task_reports(
        &self,
        caller: &Caller,
        job: &wire::JobId,
        look: impl FnOnce(&JobEngine) -> Vec<TaskReport> + Send + 'static,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        let known = self.visible(caller, job)?;
        let _turn = match known.as_ref().and_then(KnownJob::progress) {
            Some(progress) => self.large_answers.turn(&progress).await,
            None => None,
        };
        Ok(Some(self.look(caller, job, look).await?.unwrap_or_default()))
    }

    /// The queues: the cluster manager's pools, the queues that jobs named, and the pools in which they are.
    /// Spec: mapreduce/07 §7.7.
    async fn queues(&self) -> BTreeSet<String> {
        // A cluster manager of another kind does not list them.
        let pools = self.submitter.sources.manager.pools().await.unwrap_or_default();
        let pools = pools.iter().map(ToString::to_string);
        let known = self.submitter.jobs.store.all();
        let described = known.iter().filter_map(KnownJob::description);
        let of_jobs = described.flat_map(|job| [job.queue.to_string(), job.pool.to_string()]);
        let all = of_jobs.chain(pools).chain([DEFAULT_QUEUE.to_owned()]);
        all.filter(|name| !name.is_empty()).collect()
    }

    /// Whether a job counts as one of a queue.
    fn is_in_queue(known: &KnownJob, queue: &str) -> bool {
        let description = known.description();
        description.is_some_and(|job| *job.queue == *queue || job.pool.to_string() == queue)
    }

    /// What is said of a queue, if it exists.
    fn queue_info(&self, queue: &str, exists: bool) -> JobQueueInfo {
        let (mut running, mut pending) = (0, 0);
        for known in self
            .submitter
            .jobs
            .store
            .all()
            .iter()
            .filter(|known| ClientCalls::is_in_queue(known, queue))
        {
            if let Some(progress) = known.progress().filter(|it| it.finished_at.is_none()) {
                running += (progress.live.map + progress.live.reduce) as usize;
                pending += progress.requested;
            }
        }
        let scheduling_info = match exists {
            true => format!("{running} tasks running, {pending} slots requested"),
            false => NO_SCHEDULING_INFO.to_owned(),
        };
        let silence = self.submitter.host.contact().silence().filter(is_shown);
        let scheduling_info = match silence {
            Some(silence) => format!("{scheduling_info}; submissions wait: {silence}"),
            None => scheduling_info,
        };
        JobQueueInfo { name: queue.to_owned(), scheduling_info }
    }
}

impl JobSubmission for ClientCalls {
    async fn submit_job(
        &self,
        caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<JobStatus>, Fault> {
        let user = self.access.submitter(caller)?.name.clone();
        self.submitter.submit(&job, &user).await.map(Some)
    }

    async fn get_job_profile(
        &self,
        caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<JobProfile>, Fault> {
        let known = self.visible(caller, &job)?;
        Ok(known.as_ref().and_then(KnownJob::description).and_then(|job| answers::profile(job)))
    }

    async fn get_job_status(
        &self,
        caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<JobStatus>, Fault> {
        let known = loop {
            match self.visible(caller, &job)? {
                None => return Ok(None),
                // Who lost the answer to a submission learns the outcome.
                Some(KnownJob::Arriving(..)) => sleep(ARRIVING_PAUSE).await,
                Some(known) => break known,
            }
        };
        if let KnownJob::Job(job) = &known {
            // Who sees the end sees whether the job has a history.
            job.history_is_settled().await;
        }
        Ok(known.status())
    }

    async fn get_job_counters(
        &self,
        caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<wire::Counters>, Fault> {
        if let Some(KnownJob::Remote(remote)) = self.visible(caller, &job)?
            && let Some(counters) = remote.counters()
        {
            return Ok(Some(translate::counters_to_wire(&counters)));
        }
        forward!(self, caller, &job, client => client.get_job_counters(job));
        match self.visible(caller, &job)? {
            Some(KnownJob::Retired(retired)) => {
                return Ok(Some(translate::counters_to_wire(&retired.counters)));
            }
            Some(KnownJob::Waiting(..)) => {
                return Ok(Some(translate::counters_to_wire(&Counters::default())));
            }
            _ => {}
        }
        self.look(caller, &job, |job| translate::counters_to_wire(&job.counters())).await
    }

    async fn get_map_task_reports(
        &self,
        caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        forward!(self, caller, &job, client => client.get_map_task_reports(job));
        self.task_reports(caller, &job, |job| answers::work_reports(job, TaskKind::Map)).await
    }

    async fn get_reduce_task_reports(
        &self,
        caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        forward!(self, caller, &job, client => client.get_reduce_task_reports(job));
        self.task_reports(caller, &job, |job| answers::work_reports(job, TaskKind::Reduce)).await
    }

    async fn get_setup_task_reports(
        &self,
        caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        forward!(self, caller, &job, client => client.get_setup_task_reports(job));
        self.task_reports(caller, &job, |job| answers::reports_for_the_job(job, TaskRole::Setup))
            .await
    }

    async fn get_cleanup_task_reports(
        &self,
        caller: &Caller,
        job: wire::JobId,
    ) -> Result<Option<Vec<TaskReport>>, Fault> {
        forward!(self, caller, &job, client => client.get_cleanup_task_reports(job));
        self.task_reports(caller, &job, |job| answers::reports_for_the_job(job, TaskRole::Cleanup))
            .await
    }

    async fn get_task_completion_events(
        &self,
        caller: &Caller,
        job: wire::JobId,
        from: i32,
        max: i32,
    ) -> Result<Option<Vec<TaskCompletionEvent>>, Fault> {
        if let Some(KnownJob::Remote(remote)) = self.visible(caller, &job)? {
            // A client that waits for a job asks again and again, and gives up at the first error.
            let Some(mut client) = remote.present_client() else { return Ok(Some(Vec::new())) };
            return remote.checked(client.get_task_completion_events(job, from, max).await);
        }
        self.visible(caller, &job)?;
        let most = usize::try_from(max).unwrap_or(0).min(MAX_EVENTS);
        Ok(Some(events(&self.submitter.jobs.store, &job, from, most).await?.unwrap_or_default()))
    }

    async fn get_task_diagnostics(
        &self,
        caller: &Caller,
        attempt: TaskAttemptId,
    ) -> Result<Option<Vec<Option<String>>>, Fault> {
        forward!(self, caller, attempt.job(), client => client.get_task_diagnostics(attempt));
        let job = attempt.job().clone();
        let look = move |job: &JobEngine| answers::diagnostics(job, &attempt);
        let text = self.look(caller, &job, look).await?.flatten();
        Ok(Some(text.into_iter().map(Some).collect()))
    }

    async fn kill_job(&self, caller: &Caller, job: wire::JobId) -> Result<(), Fault> {
        let user = Access::user(caller)?;
        tracing::info!(%job, user = user.name, peer = %caller.peer, "a client kills a job");
        if let Some(KnownJob::Waiting(waiting, _)) = self.changeable(caller, &job)? {
            self.submitter.jobs.store.kill_waiting(&waiting.description.id).await;
        }
        if let Some(KnownJob::Remote(remote)) = self.changeable(caller, &job)? {
            return change_remote(&remote, ParentInput::KillJob).await;
        }
        self.change(caller, &job, JobInput::KillJob).await.map(drop)
    }

    async fn kill_task(
        &self,
        caller: &Caller,
        attempt: TaskAttemptId,
        should_fail: bool,
    ) -> Result<bool, Fault> {
        if let Some(KnownJob::Remote(remote)) = self.changeable(caller, attempt.job())? {
            let mut client = remote.client().await?;
            return remote.checked(client.kill_task(attempt, should_fail).await);
        }
        let Some(job) = known_id(attempt.job()) else { return Ok(false) };
        let Some(key) = translate::attempt_key(&job, &attempt) else { return Ok(false) };
        let input = JobInput::KillAttempt { attempt: key, fail: should_fail };
        let reply = self.change(caller, attempt.job(), input).await?;
        Ok(reply == Some(JobReply::Killed(true)))
    }

    async fn set_job_priority(
        &self,
        caller: &Caller,
        job: wire::JobId,
        name: String,
    ) -> Result<(), Fault> {
        let unknown = || {
            let text = "the priorities are VERY_HIGH, HIGH, NORMAL, LOW and VERY_LOW";
            Fault::unexpected("java.lang.IllegalArgumentException", text)
        };
        let priority = priority(&name).ok_or_else(unknown)?;
        if let Some(KnownJob::Waiting(waiting, _)) = self.changeable(caller, &job)? {
            let set =
                self.submitter.set_priority_of_waiting(&waiting.description.id, priority).await;
            if set.map_err(|error| Fault::io(error.to_string()))? {
                return Ok(());
            }
        }
        if let Some(KnownJob::Remote(remote)) = self.changeable(caller, &job)? {
            change_remote(&remote, ParentInput::SetPriority { priority }).await?;
            // The slots of its tasks are those of the remote job tracker's session.
            let mut client = remote.client().await?;
            return remote.checked(client.set_job_priority(job, name).await);
        }
        self.change(caller, &job, JobInput::SetPriority { priority }).await.map(drop)
    }

    async fn get_new_job_id(&self, caller: &Caller) -> Result<Option<wire::JobId>, Fault> {
        let user = self.access.submitter(caller)?.name.clone();
        self.submitter.new_job_id(user).await.map(Some)
    }

    async fn get_system_dir(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        Ok(Some(self.submitter.jobs.dirs.given_dir.clone()))
    }

    async fn get_filesystem_name(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        Ok(Some(format!("{}/", self.submitter.jobs.dirs.files.default_root())))
    }

    async fn jobs_to_complete(&self, caller: &Caller) -> Result<Option<Vec<JobStatus>>, Fault> {
        Ok(Some(self.statuses(caller, |_, progress| progress.finished_at.is_none())))
    }

    async fn get_all_jobs(&self, caller: &Caller) -> Result<Option<Vec<JobStatus>>, Fault> {
        Ok(Some(self.statuses(caller, |_, _| true)))
    }

    async fn get_queues(&self, _caller: &Caller) -> Result<Option<Vec<JobQueueInfo>>, Fault> {
        let queues = self.queues().await;
        Ok(Some(queues.iter().map(|queue| self.queue_info(queue, true)).collect()))
    }

    async fn get_queue_info(
        &self,
        _caller: &Caller,
        queue: String,
    ) -> Result<Option<JobQueueInfo>, Fault> {
        let exists = queue == DEFAULT_QUEUE || self.queues().await.contains(&queue);
        Ok(Some(self.queue_info(&queue, exists)))
    }

    async fn get_jobs_from_queue(
        &self,
        caller: &Caller,
        queue: String,
    ) -> Result<Option<Vec<JobStatus>>, Fault> {
        let runs_there = |known: &KnownJob, progress: &JobProgress| {
            progress.finished_at.is_none() && ClientCalls::is_in_queue(known, &queue)
        };
        Ok(Some(self.statuses(caller, runs_there)))
    }

    async fn get_queue_acls_for_current_user(
        &self,
        caller: &Caller,
    ) -> Result<Option<Vec<QueueAclsInfo>>, Fault> {
        let submits = self.access.submitter(caller).is_ok();
        let operations: Vec<String> = match submits {
            true => OPERATIONS.map(str::to_owned).into(),
            false => Vec::new(),
        };
        let queues = self.queues().await.into_iter();
        Ok(Some(
            queues.map(|name| QueueAclsInfo { name, operations: operations.clone() }).collect(),
        ))
    }

    async fn get_cluster_status(
        &self,
        caller: &Caller,
        detailed: bool,
    ) -> Result<Option<ClusterStatus>, Fault> {
        Ok(Some(self.cluster_status(caller, detailed).await))
    }
}

impl ClientCalls {
    /// Spec: mapreduce/07 §7.8.
    async fn cluster_status(&self, caller: &Caller, detailed: bool) -> ClusterStatus {
        let trackers = self.submitter.sources.cluster.trackers();
        let sum = |count: fn(&wire::TaskTrackerStatus) -> i32| {
            trackers.iter().map(count).fold(0_i32, i32::saturating_add)
        };
        let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let known = self.submitter.jobs.store.all();
        let (mut live, mut all) = (PerKind::<u32>::default(), PerKind::<u32>::default());
        for progress in known.iter().filter_map(KnownJob::progress) {
            if progress.finished_at.is_none() {
                for kind in TaskKind::ALL {
                    live[kind] = live[kind].saturating_add(progress.live[kind]);
                    all[kind] = all[kind].saturating_add(progress.total[kind]);
                }
            }
        }
        // The cluster manager knows the whole cluster; a Java one is not asked.
        let manager = &self.submitter.sources.manager;
        let cluster = manager.ask::<Status>("/api/v1/status").await;
        let (blacklisted, excluded) = match &cluster {
            Ok(_) => {
                tokio::join!(
                    manager.nodes_with(NodeProblem::Blacklisted),
                    manager.nodes_with(NodeProblem::Excluded)
                )
            }
            // It is not waited for again.
            Err(no_answer) => (Err(*no_answer), Err(*no_answer)),
        };
        let (blacklisted, excluded) =
            (blacklisted.unwrap_or_default(), excluded.unwrap_or_default());
        let cluster = cluster.ok();
        let of_type = |kind| cluster.as_ref()?.slots.get(&kind);
        let number = |slots: u64| i32::try_from(slots).unwrap_or(i32::MAX);
        let total = |kind| of_type(kind).map(|slots: &Slots| number(slots.total));
        let used = |kind| of_type(kind).map(|slots: &Slots| number(slots.used));
        let whole = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let is_active = |name: &String| !blacklisted.contains(name);
        let names = || trackers.iter().map(|tracker| tracker.name.clone()).filter(is_active);
        let (used_memory, max_memory) = memory();
        let tasks = if detailed { self.tracker_tasks(caller, &trackers).await } else { Vec::new() };
        ClusterStatus {
            active: cluster
                .as_ref()
                .map_or(count(trackers.len()), |of| count(of.nodes) - count(blacklisted.len()))
                // The answers may be of different moments.
                .max(0),
            active_names: if detailed { names().collect() } else { Vec::new() },
            blacklisted: count(blacklisted.len()),
            blacklisted_names: if detailed { blacklisted.clone() } else { Vec::new() },
            excluded: count(excluded.len()),
            tracker_expiry_ms: i64::try_from(
                self.submitter.sources.settings.node_expiry.as_millis(),
            )
            .unwrap_or(i64::MAX),
            maps: used(ResourceType::Map).unwrap_or_else(|| whole(live.map)),
            reduces: used(ResourceType::Reduce).unwrap_or_else(|| whole(live.reduce)),
            max_maps: total(ResourceType::Map).unwrap_or_else(|| sum(|tracker| tracker.max_maps)),
            max_reduces: total(ResourceType::Reduce)
                .unwrap_or_else(|| sum(|tracker| tracker.max_reduces)),
            used_memory,
            max_memory,
            state: cluster_state(cluster.as_ref()),
            total_maps: whole(all.map),
            total_reduces: whole(all.reduce),
            trackers: if detailed { with_running(trackers, &tasks) } else { Vec::new() },
            tasks,
        }
    }

    /// The tasks of the jobs that the caller may see, for each task tracker: an entry for each.
    async fn tracker_tasks(
        &self,
        caller: &Caller,
        trackers: &[wire::TaskTrackerStatus],
    ) -> Vec<TrackerTasks> {
        let names: Arc<[String]> = trackers.iter().map(|tracker| tracker.name.clone()).collect();
        let mut of_trackers: Vec<Vec<wire::TaskStatus>> = vec![Vec::new(); names.len()];
        for known in self.submitter.jobs.store.all() {
            let KnownJob::Job(job) = known else { continue };
            let is_over = job.progress().finished_at.is_some();
            if is_over || !self.access.sees(caller, job.description()) {
                continue;
            }
            let names = names.clone();
            let look = move |job: &JobEngine| answers::statuses_at(job, &names);
            for (tracker, statuses) in job.look(look).await.unwrap_or_default() {
                if let Some(found) = of_trackers.get_mut(tracker) {
                    found.extend(statuses);
                }
            }
        }
        let entries = names.iter().cloned().zip(of_trackers);
        entries.map(|(tracker, tasks)| TrackerTasks { tracker, tasks }).collect()
    }
}

/// Task trackers with the attempts that run on them, which clients count.
fn with_running(
    mut trackers: Vec<wire::TaskTrackerStatus>,
    tasks: &[TrackerTasks],
) -> Vec<wire::TaskTrackerStatus> {
    let runs = |task: &&wire::TaskStatus| {
        matches!(task.state, wire::TaskState::Running | wire::TaskState::Unassigned)
    };
    for (tracker, of_tracker) in trackers.iter_mut().zip(tasks) {
        tracker.tasks = of_tracker.tasks.iter().filter(runs).cloned().collect();
    }
    trackers
}

/// An input for the parent of a job; nothing for one that has ended.
async fn change_remote(job: &RemoteJob, input: ParentInput) -> Result<(), Fault> {
    match job.apply(input).await {
        Ok(_) | Err(AskError::Gone) => Ok(()),
        Err(error) => Err(Fault::io(error.to_string())),
    }
}

/// Whether the cluster grants slots, as its cluster manager says.
fn cluster_state(status: Option<&Status>) -> ClusterState {
    match status {
        Some(status) if status.safe_mode.on => ClusterState::Initializing,
        // A Java cluster manager, or none that answers, is taken to run.
        Some(_) | None => ClusterState::Running,
    }
}

/// Bytes of memory that this process uses, and that it could use.
fn memory() -> (i64, i64) {
    let own = i32::try_from(std::process::id()).ok().and_then(corona_process::procfs::Process::of);
    let used = own.map_or(0, |process| process.resident_bytes);
    let most = corona_process::procfs::Machine::allowed().memory_bytes.max(1);
    let whole = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    (whole(used), whole(most))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corona_api::cluster::SafeModeStatus;
    use tokio::time::timeout;

    use super::*;
    use crate::submit::submission::tests::submission;

    #[test]
    fn a_cluster_in_safe_mode_is_not_ready() {
        let on = |on: bool| Status {
            safe_mode: SafeModeStatus { on, since_ms: 0 },
            ..Status::default()
        };
        assert_eq!(cluster_state(Some(&on(true))), ClusterState::Initializing);
        assert_eq!(cluster_state(Some(&on(false))), ClusterState::Running);
        assert_eq!(cluster_state(None), ClusterState::Running);
    }

    #[tokio::test(start_paused = true)]
    async fn large_answers_take_turns_and_delay_no_others() {
        let answers = LargeAnswers::default();
        let small = JobEngine::new(submission(&[], 1).spec).progress();
        let total = PerKind { map: LARGE_JOB, reduce: 1 };
        let large = JobProgress { total, ..small.clone() };
        let mut turns = Vec::new();
        for _ in 0..LARGE_ANSWERS {
            turns.push(answers.turn(&large).await);
        }
        assert!(timeout(Duration::from_secs(60), answers.turn(&large)).await.is_err());
        assert!(answers.turn(&small).await.is_none(), "no turn is needed");
        turns.pop();
        assert!(answers.turn(&large).await.is_some());
    }
}
