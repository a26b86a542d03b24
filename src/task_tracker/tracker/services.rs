//! The calls of job trackers and of the processes of tasks. Spec: mapreduce/03 §3.1, §3.3.
//!
//! Every call is answered at once: what it leads to is done elsewhere.

use std::sync::Arc;

use super::{Shared, Tracker, now};
use corona_hadoop::protocols;
use corona_hadoop::protocols::corona_task_tracker::{self, CoronaTaskTracker};
use corona_hadoop::protocols::task_umbilical::{self, TaskUmbilical};
use corona_hadoop::rpc::{Caller, Fault, Services};
use corona_hadoop::writables::{
    JobId, JvmContext, JvmTask, MapTaskCompletionEventsUpdate, RecordRange, SessionInfo, Task,
    TaskAttemptId, TaskStatus, TaskTrackerAction,
};

/// Who starts job trackers as processes of their own. Spec: mapreduce/04 §4.12.
pub trait JobTrackers: Send + Sync + 'static {
    /// Prepares a job tracker and starts it without waiting for it. An error is that it cannot be
    /// prepared.
    fn start(
        &self,
        task: Task,
        session: SessionInfo,
    ) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// Starts none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJobTrackers;

impl JobTrackers for NoJobTrackers {
    async fn start(&self, _task: Task, _session: SessionInfo) -> Result<(), Fault> {
        Err(Fault::io("this task tracker is not configured to run job trackers"))
    }
}

impl Tracker {
    /// What the servers for job trackers and for processes of tasks offer: both protocols each, as in
    /// the original.
    pub fn services<J: JobTrackers>(&self, job_trackers: Arc<J>) -> Services {
        let actions = Actions { tracker: self.clone(), job_trackers };
        Services::new()
            .offer(task_umbilical::Served::new(Arc::new(Umbilical { shared: self.shared.clone() })))
            .offer(corona_task_tracker::Served::new(Arc::new(actions)))
            .know(protocols::ALL)
    }
}

/// For job trackers.
struct Actions<J> {
    tracker: Tracker,
    job_trackers: Arc<J>,
}

impl<J: JobTrackers> CoronaTaskTracker for Actions<J> {
    async fn submit_actions(
        &self,
        _caller: &Caller,
        actions: Option<Vec<TaskTrackerAction>>,
    ) -> Result<(), Fault> {
        self.tracker.submit_actions(actions.unwrap_or_default());
        Ok(())
    }

    async fn start_corona_job_tracker(
        &self,
        _caller: &Caller,
        task: Task,
        session: SessionInfo,
    ) -> Result<(), Fault> {
        self.job_trackers.start(task, session).await
    }
}

/// For processes of tasks.
struct Umbilical {
    shared: Arc<Shared>,
}

impl TaskUmbilical for Umbilical {
    async fn get_task(&self, _caller: &Caller, context: JvmContext) -> Result<JvmTask, Fault> {
        Ok(self.shared.lock().table.get_task(&context))
    }

    async fn status_update(
        &self,
        _caller: &Caller,
        attempt: TaskAttemptId,
        status: TaskStatus,
    ) -> Result<bool, Fault> {
        Ok(self.shared.lock().table.status_update(&attempt, status, now()))
    }

    async fn ping(&self, _caller: &Caller, attempt: TaskAttemptId) -> Result<bool, Fault> {
        Ok(self.shared.lock().table.ping(&attempt))
    }

    async fn report_diagnostic_info(
        &self,
        _caller: &Caller,
        attempt: TaskAttemptId,
        text: Option<String>,
    ) -> Result<(), Fault> {
        let text = text.unwrap_or_default();
        self.shared.lock().table.report_diagnostic_info(&attempt, &text);
        Ok(())
    }

    async fn report_next_record_range(
        &self,
        _caller: &Caller,
        attempt: TaskAttemptId,
        range: RecordRange,
    ) -> Result<(), Fault> {
        self.shared.lock().table.report_next_record_range(&attempt, range);
        Ok(())
    }

    async fn commit_pending(
        &self,
        _caller: &Caller,
        attempt: TaskAttemptId,
        status: TaskStatus,
    ) -> Result<(), Fault> {
        self.shared.apply(|table, now| table.commit_pending(&attempt, status, now));
        Ok(())
    }

    async fn can_commit(&self, _caller: &Caller, attempt: TaskAttemptId) -> Result<bool, Fault> {
        Ok(self.shared.lock().table.can_commit(&attempt))
    }

    async fn done(&self, _caller: &Caller, attempt: TaskAttemptId) -> Result<(), Fault> {
        self.shared.apply(|table, now| table.done(&attempt, now));
        Ok(())
    }

    async fn shuffle_error(
        &self,
        _caller: &Caller,
        attempt: TaskAttemptId,
        message: Option<String>,
    ) -> Result<(), Fault> {
        let message = message.unwrap_or_default();
        self.shared.apply(|table, now| table.shuffle_error(&attempt, &message, now));
        Ok(())
    }

    async fn fs_error(
        &self,
        _caller: &Caller,
        attempt: TaskAttemptId,
        message: Option<String>,
    ) -> Result<(), Fault> {
        let message = message.unwrap_or_default();
        self.shared.apply(|table, now| table.fs_error(&attempt, &message, now));
        Ok(())
    }

    async fn fatal_error(
        &self,
        _caller: &Caller,
        attempt: TaskAttemptId,
        message: Option<String>,
    ) -> Result<(), Fault> {
        let message = message.unwrap_or_default();
        self.shared.apply(|table, now| table.fatal_error(&attempt, &message, now));
        Ok(())
    }

    /// In Corona nobody fetches events here: reduces ask the job tracker.
    async fn get_map_completion_events(
        &self,
        _caller: &Caller,
        _job: JobId,
        _from: i32,
        _max: i32,
        _attempt: TaskAttemptId,
    ) -> Result<MapTaskCompletionEventsUpdate, Fault> {
        Ok(MapTaskCompletionEventsUpdate::default())
    }
}
