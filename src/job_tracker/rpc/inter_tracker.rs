//! What task trackers and reduces ask. One port serves all jobs: the reports say of which job they are.
//! Spec: mapreduce/03 §3.2, mapreduce/07 §7.13.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use corona_config::JobTrackerServiceSettings;
use corona_hadoop::io::TooLarge;
use corona_hadoop::protocols::inter_corona_job_tracker::InterCoronaJobTracker;
use corona_hadoop::protocols::inter_tracker::{InterTracker, JOB_IS_OVER};
use corona_hadoop::rpc::{Caller, Fault};
use corona_hadoop::writables as wire;
use corona_hadoop::writables::{
    HeartbeatResponse, InetAddress, SessionInfo, SessionTrackers, TaskTrackerStatus,
};
use corona_mapreduce::AttemptKey;
use corona_model::types::Millis;

use super::answers::{self, known_id};
use crate::clock::now;
use crate::jobs::end::Jobs;
use crate::jobs::job::{AskError, Job};
use crate::jobs::remote::RemoteJob;
use crate::jobs::store::{KnownJob, Store};
use crate::launch::builds::Builds;
use crate::launch::cluster::Cluster;
use crate::launch::launcher::{Launcher, Nobody};
use corona_job_engine::parent::{ParentInput, ParentReply, Remote};
use corona_job_engine::{JobEngine, JobInput, JobProgress, JobRefusal};
use corona_job_wire::{saved, translate};

/// Reports of task trackers that are welcome in a second, and the shortest time between two of one.
const REPORTS_PER_SECOND: u32 = 1000;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(300);
/// So long after the end of a job the order to forget it may be in flight: reports on the job are normal.
const END_GRACE_MS: i64 = 10_000;
/// The longest text of a task tracker that is logged, in characters.
const MAX_LOGGED: usize = 1000;
/// The longest name of a host or a session, in bytes.
const MAX_NAME: usize = 1000;
/// The largest update of a state, in bytes.
const MAX_UPDATE_BYTES: usize = 16 << 20;

/// When a task tracker reports on a job again. What a task has finished waits for that, so few task trackers
/// report often; many share what the service takes. Each reports on each of its jobs separately.
pub(crate) fn report_interval(longest: Duration, trackers: usize, jobs: usize) -> Duration {
    let reports = u32::try_from(trackers.saturating_mul(jobs)).unwrap_or(u32::MAX);
    let shared = Duration::from_secs(reports.into()) / REPORTS_PER_SECOND;
    shared.max(SHORTEST_INTERVAL).min(longest)
}

/// The calls of task trackers, of tasks, and of job trackers on nodes.
pub(crate) struct TrackerCalls {
    pub(crate) settings: Arc<JobTrackerServiceSettings>,
    pub(crate) jobs: Arc<Jobs>,
    /// The task trackers that report.
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) builds: Builds,
    pub(crate) launcher: Launcher,
    /// Of this service.
    pub(crate) address: InetAddress,
}

/// The addresses of a job's job tracker, for task trackers: those of this service.
pub(crate) fn session_trackers(address: &InetAddress) -> SessionTrackers {
    // See the protocol's implementation: a caller that misses this one waits for it.
    SessionTrackers { job_tracker: address.clone(), secondary: Some(address.clone()) }
}

impl TrackerCalls {
    fn report_interval(&self) -> Duration {
        let (trackers, jobs) = (self.cluster.count(), self.jobs.store.running());
        report_interval(self.settings.heartbeat_interval, trackers, jobs)
    }
}

/// What to do about reports on a job.
#[derive(Debug)]
enum Place {
    /// It runs here, or has ended a moment ago.
    Here(Job),
    /// It ended some time ago, or nothing is known of it. Its details may still be there.
    Over(Option<Job>),
    /// Its reports are for others, or for a later run.
    Elsewhere,
}

impl TrackerCalls {
    fn place_of(&self, id: &wire::JobId, at: Millis) -> Place {
        let ended = |progress: &JobProgress, ahead_ms: i64| {
            // What is kept of a job may say that it ends later than now: an earlier process has seen its end, by
            // a clock that was set back since.
            let is_recent = |end| (0..END_GRACE_MS).contains(&at.plus_ms(ahead_ms).since(end));
            progress.finished_at.is_some_and(|end| !is_recent(end))
        };
        let Some(id) = known_id(id) else { return Place::Over(None) };
        if self.jobs.store.was_not_resumed(&id) {
            return Place::Elsewhere;
        }
        match self.jobs.store.get(&id) {
            Some(KnownJob::Job(job)) if ended(&job.progress(), job.ahead_ms()) => {
                Place::Over(Some(job))
            }
            Some(KnownJob::Job(job)) => Place::Here(job),
            Some(KnownJob::Retired(retired)) if ended(&retired.progress, 0) => Place::Over(None),
            Some(
                KnownJob::Arriving(..)
                | KnownJob::Waiting(..)
                | KnownJob::Remote(_)
                | KnownJob::Retired(_),
            ) => Place::Elsewhere,
            None => Place::Over(None),
        }
    }

    /// A task tracker reports on a job that is over, so it has missed the end: it is sent the end again.
    /// False if its address is not known. It then gets errors, and ends the job after some of them.
    /// Spec: mapreduce/04 §4.8 (7).
    async fn remind(&self, node: &Arc<str>, id: &wire::JobId, job: Option<&Job>) -> bool {
        let Some(job) = job else { return false };
        let name = node.clone();
        let find = move |job: &JobEngine| job.trackers().into_iter().find(|at| at.node == name);
        let Ok(Some(at)) = job.look(find).await else { return false };
        if self.launcher.may_remind(&at.node, id) {
            tracing::info!(%node, job = %id, "a task tracker reports on a job that has ended; sending it the end again");
            let handle = job.description().id.session().map(str::to_owned);
            let session = SessionInfo { handle, trackers: session_trackers(&self.address) };
            self.launcher.forget(&at, Arc::new(Nobody), id.clone(), session);
        }
        true
    }
}

impl InterTracker for TrackerCalls {
    async fn heartbeat(
        &self,
        _caller: &Caller,
        mut status: TaskTrackerStatus,
        _restarted: bool,
        _initial_contact: bool,
        _accept_new_tasks: bool,
        response_id: i16,
    ) -> Result<HeartbeatResponse, Fault> {
        let mut of_jobs: BTreeMap<wire::JobId, Vec<wire::TaskStatus>> = BTreeMap::new();
        for report in std::mem::take(&mut status.tasks) {
            of_jobs.entry(report.attempt.job().clone()).or_default().push(report);
        }
        let (node, host): (Arc<str>, Arc<str>) =
            (status.name.as_str().into(), status.host.as_str().into());
        let http_port = status.http_port;
        let meter = &self.jobs.meter;
        meter.heartbeats.add(1);
        self.cluster.heard(status);
        self.launcher.heard(&node);
        let mut over = None;
        for (id, reports) in of_jobs {
            let job = match self.place_of(&id, now()) {
                Place::Here(job) => {
                    if job.progress().finished_at.is_some() {
                        self.jobs.sweeps.reported(job.description(), None);
                    }
                    job
                }
                Place::Over(job) => {
                    let known = known_id(&id).and_then(|id| self.jobs.store.get(&id));
                    if let Some(description) = known.as_ref().and_then(KnownJob::description) {
                        self.jobs.sweeps.reported(description, None);
                    }
                    if !self.remind(&node, &id, job.as_ref()).await {
                        over = Some(id);
                    }
                    continue;
                }
                Place::Elsewhere => {
                    tracing::debug!(%node, job = %id, "reports of a job that is not run here");
                    continue;
                }
            };
            let id = &job.description().id;
            let reports = reports.into_iter().filter_map(|report| translate::status(id, report));
            let reports: Vec<corona_mapreduce::TaskStatus> = reports.collect();
            let (node, host) = (node.clone(), host.clone());
            let news = meter.news(&reports);
            let begun = tokio::time::Instant::now();
            let applied = job.apply(JobInput::Heartbeat { node, host, http_port, reports }).await;
            meter.applied(news, begun.elapsed());
            match applied {
                Ok(_) | Err(AskError::Gone | AskError::Refused(JobRefusal::Ended)) => {}
                Err(error @ AskError::Refused(_)) => {
                    tracing::debug!(job = %id, %error, "reports of a node that the job does not know");
                }
                Err(AskError::Busy) => {
                    meter.busy.add(1);
                    return Err(Fault::io(AskError::Busy.to_string()));
                }
            }
        }
        if let Some(job) = over {
            return Err(is_over(&job));
        }
        Ok(HeartbeatResponse {
            response_id: response_id.wrapping_add(1),
            interval_ms: i32::try_from(self.report_interval().as_millis()).unwrap_or(i32::MAX),
            ..HeartbeatResponse::default()
        })
    }

    async fn get_build_version(&self, caller: &Caller) -> Result<String, Fault> {
        Ok(self.builds.of(caller.peer.ip()))
    }

    async fn get_task_completion_events(
        &self,
        _caller: &Caller,
        job: wire::JobId,
        from: i32,
        max: i32,
    ) -> Result<Vec<wire::TaskCompletionEvent>, Fault> {
        let most = usize::try_from(max).unwrap_or(0).min(self.settings.max_events);
        // The question of a task tracker whether the job still runs.
        if max == 0 && matches!(self.place_of(&job, now()), Place::Over(_)) {
            return Err(is_over(&job));
        }
        Ok(events(&self.jobs.store, &job, from, most).await?.unwrap_or_default())
    }

    async fn get_system_dir(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        Ok(Some(self.jobs.dirs.given_dir.clone()))
    }

    async fn get_filesystem_name(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        Ok(None)
    }

    async fn report_task_tracker_error(
        &self,
        caller: &Caller,
        tracker: Option<String>,
        error_class: Option<String>,
        message: Option<String>,
    ) -> Result<(), Fault> {
        let text = message.as_deref().unwrap_or_default();
        if let Some(id) = self.builds.refused(caller.peer.ip(), text)
            && let (Some(job), Some(node)) = (self.jobs.store.job(&id), tracker.as_deref())
        {
            let handle = job.description().id.session().map(str::to_owned);
            let session = SessionInfo { handle, trackers: session_trackers(&self.address) };
            self.builds.begin_again(job, node, self.launcher.clone(), session);
        }
        log_error(tracker, error_class, message);
        Ok(())
    }
}

/// The reply to reports and questions about a job that is not run any more.
fn is_over(job: &wire::JobId) -> Fault {
    Fault::io(format!("the job {job} {JOB_IS_OVER}"))
}

/// Logs the error of a task tracker.
pub(crate) fn log_error(tracker: Option<String>, class: Option<String>, message: Option<String>) {
    let cut = |text: Option<String>| -> String {
        text.unwrap_or_default().chars().take(MAX_LOGGED).collect()
    };
    let (tracker, class, message) = (cut(tracker), cut(class), cut(message));
    tracing::warn!(%tracker, %class, %message, "a task tracker reports an error");
}

/// Completion events; `None` for a job that is not known or whose events are not kept.
pub(crate) async fn events(
    store: &Store,
    job: &wire::JobId,
    from: i32,
    most: usize,
) -> Result<Option<Vec<wire::TaskCompletionEvent>>, Fault> {
    let Some(job) = store.job(job) else { return Ok(None) };
    let from = usize::try_from(from).unwrap_or(0);
    match job.look(move |job| answers::events(job, from, most)).await {
        Ok(events) => Ok(Some(events)),
        Err(AskError::Busy) => Err(Fault::io(AskError::Busy.to_string())),
        Err(_) => Ok(None),
    }
}

impl TrackerCalls {
    /// The job of a remote job tracker, and the number of its attempt.
    fn remote_job(&self, attempt: &wire::TaskAttemptId) -> Result<(RemoteJob, u32), Fault> {
        let known = known_id(attempt.job()).and_then(|id| self.jobs.store.get(&id));
        let found = match known {
            Some(KnownJob::Remote(job)) => {
                let key = translate::attempt_key(&job.description().id, attempt);
                key.and_then(|key| job.attempt(key)).map(|number| (job, number))
            }
            _ => None,
        };
        found.ok_or_else(|| {
            Fault::io(format!("there is no remote job tracker {attempt} of this one"))
        })
    }
}

/// Remote job trackers report here. Task trackers and reduces that do not reach their job tracker ask here
/// whether there is a new one: those of a remote job tracker get the address of the next one, and all
/// others this address, so they wait while the service restarts, instead of giving its jobs up.
impl InterCoronaJobTracker for TrackerCalls {
    async fn report_remote_corona_job_tracker(
        &self,
        _caller: &Caller,
        attempt: String,
        host: String,
        port: i32,
        session: String,
    ) -> Result<(), Fault> {
        let wrong = |what: &str| Fault::io(format!("{what} of a job tracker"));
        let id = attempt.parse().map_err(|_| wrong("not the name"))?;
        let (job, attempt) = self.remote_job(&id)?;
        let port = u16::try_from(port).map_err(|_| wrong("not the port"))?;
        if host.len() > MAX_NAME || session.len() > MAX_NAME {
            return Err(wrong("too long a name"));
        }
        job.reported(Remote { attempt, host: host.into(), port, session: session.into() }).await
    }

    async fn get_new_job_tracker_address(
        &self,
        _caller: &Caller,
        failed: InetAddress,
    ) -> Result<Option<InetAddress>, Fault> {
        let remotes = self.jobs.store.all().into_iter().filter_map(|known| match known {
            KnownJob::Remote(job) => Some(job),
            _ => None,
        });
        let mut answers = remotes.filter_map(|job| job.successor(&failed));
        // A port may have been used by one job after the other.
        let first = answers.next();
        let best = answers.find(|answer| matches!(answer, Ok(Some(_))));
        match best.or(first) {
            Some(answer) => answer,
            None => Ok(Some(self.address.clone())),
        }
    }

    async fn push_corona_job_tracker_state_update(
        &self,
        _caller: &Caller,
        attempt: wire::TaskAttemptId,
        updates: Vec<wire::StateUpdate>,
    ) -> Result<(), Fault> {
        let (job, attempt) = self.remote_job(&attempt)?;
        let id = &job.description().id;
        let updates = updates.iter().map(|update| saved::kept(id, update, MAX_UPDATE_BYTES));
        let too_large = |error: TooLarge| Fault::io(format!("an update has {error}"));
        let updates = updates.collect::<Result<_, TooLarge>>().map_err(too_large)?;
        job.asked(ParentInput::Pushed { attempt, updates }).await.map(drop)
    }

    async fn get_corona_job_tracker_state(
        &self,
        _caller: &Caller,
        attempt: wire::TaskAttemptId,
    ) -> Result<wire::JobTrackerState, Fault> {
        let (job, attempt) = self.remote_job(&attempt)?;
        job.saved(attempt).await
    }

    async fn get_and_set_committing(
        &self,
        _caller: &Caller,
        attempt: wire::TaskAttemptId,
        to_commit: Vec<wire::TaskAttemptId>,
    ) -> Result<Vec<Option<wire::TaskAttemptId>>, Fault> {
        let (job, attempt) = self.remote_job(&attempt)?;
        let id = job.description().id.clone();
        let tasks = to_commit.iter().map(|task| {
            let other = || Fault::io(format!("{task} is of another job"));
            translate::attempt_key(&id, task).ok_or_else(other)
        });
        let tasks = tasks.collect::<Result<_, Fault>>()?;
        match job.asked(ParentInput::Committing { attempt, tasks }).await? {
            ParentReply::Committed(before) => {
                let name = |key: Option<AttemptKey>| translate::attempt_id(&id, key?);
                Ok(before.into_iter().map(name).collect())
            }
            ParentReply::Done => Ok(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use corona_hadoop::writables::Action;
    use corona_mapreduce::JobId;
    use tokio::sync::watch;

    use super::*;
    use crate::jobs::job::tests::{Notes, all_succeed, grant_at, start, start_ahead};
    use crate::jobs::store::Retired;
    use crate::launch::launcher::tests::tracker;
    use crate::service::tests::service;
    use crate::submit::submission::tests::submission;
    use corona_job_engine::JobEngine;

    const NODE: &str = "tracker_a:1";

    async fn heartbeat(
        shared: &TrackerCalls,
        reports: &[&str],
    ) -> Result<HeartbeatResponse, Fault> {
        let caller =
            Caller { peer: corona_access::Peer::plain(([127, 0, 0, 1], 1).into()), user: None };
        let tasks = reports.iter().map(|attempt| wire::TaskStatus {
            progress: 0.5,
            start_time_ms: 1,
            ..wire::TaskStatus::new(attempt.parse().unwrap(), wire::TaskState::Running)
        });
        let status = TaskTrackerStatus {
            name: NODE.into(),
            host: "a".into(),
            http_port: 1,
            failures: 0,
            max_maps: 1,
            max_reduces: 1,
            resources: wire::ResourceStatus::default(),
            tasks: tasks.collect(),
            health: wire::NodeHealth::default(),
        };
        shared.heartbeat(&caller, status, false, false, false, 4).await
    }

    #[tokio::test]
    async fn a_task_tracker_that_reports_on_an_unknown_job_gets_errors() {
        let root = tempfile::tempdir().unwrap();
        let shared = service(root.path()).await.calls.trackers;
        assert_eq!(heartbeat(&shared, &[]).await.unwrap().response_id, 5);
        let attempt = "attempt_202611210043.7_0001_m_000000_0";
        let refused = heartbeat(&shared, &[attempt]).await.unwrap_err();
        let expected = "the job job_202611210043.7_0001 has ended or is not known here";
        assert!(refused.to_string().ends_with(expected), "{refused}");

        // One that is being submitted, or that a later run may resume.
        let id: JobId = "job_202611210043.7_0001".parse().unwrap();
        shared.jobs.store.give(id.clone(), "alice".into());
        shared.jobs.store.arrive(&id, "alice").unwrap();
        assert!(heartbeat(&shared, &[attempt]).await.is_ok());
        shared.jobs.store.give_up(&id);
        assert!(heartbeat(&shared, &[attempt]).await.is_err());
        shared.jobs.store.not_resumed(id);
        assert!(heartbeat(&shared, &[attempt]).await.is_ok());

        // One that ended a moment ago, one that ended long ago, and one that an earlier process saw end by a
        // clock that was set back since.
        for (number, ago_ms) in [(8, 0), (9, END_GRACE_MS), (10, -3_600_000)] {
            let submission = submission(&[], 1);
            let mut description = submission.description;
            description.id = JobId::new(&format!("202611210043.{number}"), 1).unwrap();
            let mut progress = JobEngine::new(submission.spec).progress();
            progress.finished_at = Some(Millis(now().0 - ago_ms));
            let (description, progress) = (description.into(), progress.into());
            let counters = corona_mapreduce::Counters::default();
            shared.jobs.store.retire(Retired { description, progress, counters, reason: None });
            let attempt = format!("attempt_202611210043.{number}_0001_m_000000_0");
            let reply = heartbeat(&shared, &[&attempt]).await;
            assert_eq!(reply.is_ok(), ago_ms == 0, "{number}");
            let job = attempt.parse::<wire::TaskAttemptId>().unwrap().job().clone();
            let caller =
                Caller { peer: corona_access::Peer::plain(([127, 0, 0, 1], 1).into()), user: None };
            let asked = shared.get_task_completion_events(&caller, job.clone(), 0, 0).await;
            assert_eq!(asked.is_ok(), ago_ms == 0, "{number}");
            // A reduce that asks for events learns of none, as from a job tracker of Java.
            let events = shared.get_task_completion_events(&caller, job, 0, 10).await;
            assert_eq!(events.unwrap(), []);
        }
    }

    #[tokio::test]
    async fn a_task_tracker_that_reports_after_the_end_of_a_job_is_sent_the_end_again() {
        let root = tempfile::tempdir().unwrap();
        let shared = service(root.path()).await.calls.trackers;
        let (_stop, stopped) = watch::channel(false);
        let (at, mut hears) = tracker(false, &stopped);
        let (job, _running) = start(&Notes::default(), None);
        job.apply(grant_at(1, &at.address)).await.unwrap();
        shared.jobs.store.begin(job.clone());
        let id = answers::job_id(&job.description().id).unwrap();
        let much_later = || Millis(now().0 + END_GRACE_MS);
        assert!(matches!(shared.place_of(&id, much_later()), Place::Here(_)), "it runs");
        all_succeed(&job).await;
        assert!(matches!(shared.place_of(&id, now()), Place::Here(_)), "it has just ended");
        let Place::Over(Some(job)) = shared.place_of(&id, much_later()) else { panic!() };

        assert!(!shared.remind(&"another".into(), &id, Some(&job)).await);
        for _ in 0..3 {
            assert!(shared.remind(&NODE.into(), &id, Some(&job)).await);
        }
        let sent = hears.recv().await.unwrap();
        assert_eq!(sent[0].action, Action::KillJob(id.clone()));
        let handle = sent[0].session.as_ref().unwrap().handle.as_deref();
        assert_eq!(handle, job.description().id.session());
        shared.launcher.drained(Duration::from_secs(10)).await;
        assert!(hears.try_recv().is_err(), "once in a while");
    }

    /// The clock was set back, and the time of a job does not run backwards.
    #[tokio::test]
    async fn a_job_whose_time_is_ahead_of_the_clock_has_its_grace_when_it_ends() {
        let root = tempfile::tempdir().unwrap();
        let shared = service(root.path()).await.calls.trackers;
        let (_stop, stopped) = watch::channel(false);
        let (at, _hears) = tracker(false, &stopped);
        let (job, _running) = start_ahead(&Notes::default(), 3_600_000);
        job.apply(grant_at(1, &at.address)).await.unwrap();
        shared.jobs.store.begin(job.clone());
        all_succeed(&job).await;
        let id = answers::job_id(&job.description().id).unwrap();
        assert!(job.progress().finished_at.unwrap().since(now()) > 3_000_000);
        assert!(matches!(shared.place_of(&id, now()), Place::Here(_)), "it has just ended");
        let much_later = Millis(now().0 + END_GRACE_MS);
        assert!(matches!(shared.place_of(&id, much_later), Place::Over(_)));
    }

    #[tokio::test]
    async fn a_task_tracker_that_refuses_again_and_again_begins_again_once() {
        let root = tempfile::tempdir().unwrap();
        let shared = service(root.path()).await.calls.trackers;
        let (job, _running) = start(&Notes::default(), None);
        let begin = |node| {
            let session = SessionInfo { handle: None, trackers: session_trackers(&shared.address) };
            shared.builds.begin_again(job.clone(), node, shared.launcher.clone(), session)
        };
        assert!(begin("tracker_a:1"));
        assert!(!(0..1000).any(|_| begin("tracker_a:1")));
        assert!(begin("tracker_b:1"), "another one does not wait for it");
        while !begin("tracker_a:1") {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_task_tracker_of_another_build_reports_after_it_has_refused_once() {
        let root = tempfile::tempdir().unwrap();
        let shared = service(root.path()).await.calls.trackers;
        let (_stop, stopped) = watch::channel(false);
        let (at, mut hears) = tracker(false, &stopped);
        let notes = Notes::default();
        let (job, _running) = start(&notes, None);
        job.apply(grant_at(1, &at.address)).await.unwrap();
        shared.jobs.store.begin(job.clone());
        let caller =
            Caller { peer: corona_access::Peer::plain(([127, 0, 0, 1], 1).into()), user: None };
        let id = &job.description().id;
        let refusal = format!(
            "JobTrackerReporter({id}) shutting down. Incompatible buildVersion.\n\
             JobTracker's: another\nTaskTracker's: 0.20 from r1 by me on a day"
        );
        let error =
            shared.report_task_tracker_error(&caller, Some(NODE.into()), None, Some(refusal));
        error.await.unwrap();
        let build = shared.get_build_version(&caller).await.unwrap();
        assert_eq!(build, "0.20 from r1 by me on a day");
        let sent = hears.recv().await.unwrap();
        assert_eq!(sent[0].action, Action::KillJob(answers::job_id(id).unwrap()));
        // What was launched there was never reported: it is requested again.
        let requested = || notes.all().iter().any(|note| note == "request 2");
        while !requested() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[test]
    fn few_task_trackers_report_more_often_than_many() {
        let longest = Duration::from_secs(3);
        let interval = |trackers, jobs| report_interval(longest, trackers, jobs).as_millis();
        assert_eq!(interval(2, 1), 300);
        assert_eq!(interval(1000, 1), 1000);
        assert_eq!(interval(1000, 3), 3000);
        assert_eq!(interval(usize::MAX, usize::MAX), 3000);
        let short = Duration::from_millis(50);
        assert_eq!(report_interval(short, 2, 1), short);
    }
}
