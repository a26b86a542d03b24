//! What task trackers and reduces ask the remote job tracker. Spec: mapreduce/03 §3.2.

use std::sync::Arc;

use corona_hadoop::protocols::inter_tracker::InterTracker;
use corona_hadoop::rpc::{Caller, Fault};
use corona_hadoop::writables as wire;
use corona_hadoop::writables::{HeartbeatResponse, TaskTrackerStatus};

use super::Running;
use crate::jobs::job::AskError;
use crate::rpc::inter_tracker::{log_error, report_interval};
use corona_job_engine::JobInput;
use corona_job_wire::{saved, translate};

impl Running {
    async fn apply(&self, status: &mut TaskTrackerStatus) -> Result<(), Fault> {
        let Some(job) = self.job() else { return Ok(()) };
        let id = &job.description().id;
        let reports = std::mem::take(&mut status.tasks);
        let own = reports.into_iter().filter(|report| report.attempt.job() == self.job_id());
        let own: Vec<wire::TaskStatus> = own.collect();
        if let Some(to_parent) = self.to_parent.as_ref().filter(|_| !own.is_empty()) {
            to_parent.tracker(&status.name, &status.host, status.http_port);
            let matter = own.iter().filter_map(|report| saved::reported(report, &status.name));
            matter.for_each(|update| to_parent.update(update));
        }
        let reports = own.into_iter().filter_map(|report| translate::status(id, report));
        let input = JobInput::Heartbeat {
            node: status.name.as_str().into(),
            host: status.host.as_str().into(),
            http_port: status.http_port,
            reports: reports.collect(),
        };
        match job.apply(input).await {
            Ok(_) | Err(AskError::Gone | AskError::Refused(_)) => {}
            Err(AskError::Busy) => return Err(Fault::io(AskError::Busy.to_string())),
        }
        // What is acknowledged is forgotten there: the parent must have it.
        match &self.to_parent {
            Some(to_parent) if !to_parent.settled().await => {
                Err(Fault::io("this job tracker ends"))
            }
            _ => Ok(()),
        }
    }

    fn job_id(&self) -> &wire::JobId {
        self.arguments.attempt.job()
    }
}

/// `InterTracker` for shared state.
pub(super) struct Reports(pub(super) Arc<Running>);

impl InterTracker for Reports {
    async fn heartbeat(
        &self,
        _caller: &Caller,
        mut status: TaskTrackerStatus,
        _restarted: bool,
        _initial_contact: bool,
        _accept_new_tasks: bool,
        response_id: i16,
    ) -> Result<HeartbeatResponse, Fault> {
        self.0.apply(&mut status).await?;
        self.0.cluster.heard(status);
        let longest = self.0.settings.heartbeat_interval;
        let interval = report_interval(longest, self.0.cluster.count(), 1);
        Ok(HeartbeatResponse {
            response_id: response_id.wrapping_add(1),
            interval_ms: i32::try_from(interval.as_millis()).unwrap_or(i32::MAX),
            ..HeartbeatResponse::default()
        })
    }

    async fn get_build_version(&self, caller: &Caller) -> Result<String, Fault> {
        Ok(self.0.builds.of(caller.peer.ip()))
    }

    async fn get_task_completion_events(
        &self,
        _caller: &Caller,
        job: wire::JobId,
        from: i32,
        max: i32,
    ) -> Result<Vec<wire::TaskCompletionEvent>, Fault> {
        self.0.events(&job, from, max).await
    }

    async fn get_system_dir(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        Ok(self.0.job_dir.rsplit_once('/').map(|(parent, _)| parent.to_owned()))
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
        if let Some(id) = self.0.builds.refused(caller.peer.ip(), text)
            && id == *self.0.job_id()
            && let (Some(job), Some(node)) = (self.0.job(), tracker.as_deref())
        {
            let session = self.0.session_info();
            self.0.builds.begin_again(job, node, self.0.launcher.clone(), session);
        }
        log_error(tracker, error_class, message);
        Ok(())
    }
}
