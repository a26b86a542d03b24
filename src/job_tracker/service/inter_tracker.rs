//! What task trackers and reduces ask. One port serves all jobs: the reports say of which job they are.
//! Spec: mapreduce/03 §3.2, mapreduce/07 §7.13.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use corona_hadoop::protocols::inter_corona_job_tracker::InterCoronaJobTracker;
use corona_hadoop::protocols::inter_tracker::InterTracker;
use corona_hadoop::rpc::{Caller, Fault};
use corona_hadoop::writables as wire;
use corona_hadoop::writables::{HeartbeatResponse, InetAddress, TaskTrackerStatus};
use corona_mapreduce::{AttemptKey, JobId};

use super::job::{AskError, Job};
use super::remote::{RemoteJob, saved_update};
use super::store::Known;
use super::{Shared, answers};
use crate::engine::{JobInput, JobRefusal};
use crate::parent::{ParentInput, ParentReply, Remote};
use crate::translate;

/// Reports of task trackers that are welcome in a second, and the shortest time between two of one.
const REPORTS_PER_SECOND: u32 = 1000;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(300);
/// The longest text of a task tracker that is logged, in characters.
const MAX_LOGGED: usize = 1000;
/// The longest name of a host or a session, in bytes.
const MAX_NAME: usize = 1000;

/// When a task tracker reports on a job again. What a task has finished waits for that, so few task trackers
/// report often; many share what the service takes. Each reports on each of its jobs separately.
pub(super) fn report_interval(longest: Duration, trackers: usize, jobs: usize) -> Duration {
    let reports = u32::try_from(trackers.saturating_mul(jobs)).unwrap_or(u32::MAX);
    let shared = Duration::from_secs(reports.into()) / REPORTS_PER_SECOND;
    shared.max(SHORTEST_INTERVAL).min(longest)
}

impl Shared {
    fn report_interval(&self) -> Duration {
        let (trackers, jobs) = (self.cluster.count(), self.store.running());
        report_interval(self.settings.heartbeat_interval, trackers, jobs)
    }

    /// A job whose details are there.
    pub(super) fn job(&self, id: &wire::JobId) -> Option<Job> {
        match self.store.get(&known_id(id)?)? {
            Known::Job(job) => Some(job),
            Known::Arriving(_) | Known::Remote(_) | Known::Retired(_) => None,
        }
    }
}

/// An id of a peer, if it is one.
pub(super) fn known_id(id: &wire::JobId) -> Option<JobId> {
    id.to_string().parse().ok()
}

impl InterTracker for Shared {
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
        let meter = &self.meter;
        meter.heartbeats.add(1);
        self.cluster.heard(status);
        for (id, reports) in of_jobs {
            let Some(job) = self.job(&id) else {
                tracing::debug!(%node, job = %id, "reports of a job that is not known");
                continue;
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
        Ok(HeartbeatResponse {
            response_id: response_id.wrapping_add(1),
            interval_ms: i32::try_from(self.report_interval().as_millis()).unwrap_or(i32::MAX),
            ..HeartbeatResponse::default()
        })
    }

    async fn get_build_version(&self, _caller: &Caller) -> Result<String, Fault> {
        Ok(self.build_version.clone())
    }

    async fn get_task_completion_events(
        &self,
        _caller: &Caller,
        job: wire::JobId,
        from: i32,
        max: i32,
    ) -> Result<Vec<wire::TaskCompletionEvent>, Fault> {
        let most = usize::try_from(max).unwrap_or(0).min(self.settings.max_events);
        Ok(self.events(&job, from, most).await?.unwrap_or_default())
    }

    async fn get_system_dir(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        Ok(Some(self.system_dir.clone()))
    }

    async fn get_filesystem_name(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        Ok(None)
    }

    async fn report_task_tracker_error(
        &self,
        _caller: &Caller,
        tracker: Option<String>,
        error_class: Option<String>,
        message: Option<String>,
    ) -> Result<(), Fault> {
        log_error(tracker, error_class, message);
        Ok(())
    }
}

/// Logs the error of a task tracker.
pub(super) fn log_error(tracker: Option<String>, class: Option<String>, message: Option<String>) {
    let cut = |text: Option<String>| -> String {
        text.unwrap_or_default().chars().take(MAX_LOGGED).collect()
    };
    let (tracker, class, message) = (cut(tracker), cut(class), cut(message));
    tracing::warn!(%tracker, %class, %message, "a task tracker reports an error");
}

impl Shared {
    /// Completion events; `None` for a job that is not known or whose events are not kept.
    pub(super) async fn events(
        &self,
        job: &wire::JobId,
        from: i32,
        most: usize,
    ) -> Result<Option<Vec<wire::TaskCompletionEvent>>, Fault> {
        let Some(job) = self.job(job) else { return Ok(None) };
        let from = usize::try_from(from).unwrap_or(0);
        match job.look(move |job| answers::events(job, from, most)).await {
            Ok(events) => Ok(Some(events)),
            Err(AskError::Busy) => Err(Fault::io(AskError::Busy.to_string())),
            Err(_) => Ok(None),
        }
    }
}

impl Shared {
    /// The job of a remote job tracker, and the number of its attempt.
    fn remote_job(&self, attempt: &wire::TaskAttemptId) -> Result<(RemoteJob, u32), Fault> {
        let known = known_id(attempt.job()).and_then(|id| self.store.get(&id));
        let found = match known {
            Some(Known::Remote(job)) => {
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
impl InterCoronaJobTracker for Shared {
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
        let remotes = self.store.all().into_iter().filter_map(|known| match known {
            Known::Remote(job) => Some(job),
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
        let updates = updates.iter().map(|update| saved_update(id, update));
        let updates = updates.collect::<Result<_, Fault>>()?;
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
    use super::*;

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
