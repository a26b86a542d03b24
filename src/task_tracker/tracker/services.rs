//! The calls of job trackers and of the processes of tasks. Spec: mapreduce/03 §3.1, §3.3.
//!
//! Every call is answered at once: its effects run elsewhere.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Shared, Tracker, now};
use corona_hadoop::object::Object;
use corona_hadoop::protocols;
use corona_hadoop::protocols::corona_task_tracker::{self, CoronaTaskTracker};
use corona_hadoop::protocols::task_umbilical::{self, TaskUmbilical};
use corona_hadoop::rpc::{Answer, Caller, Fault, Method, Protocol, Service, Services};
use corona_hadoop::writables::{
    JobId, JvmContext, JvmTask, MapTaskCompletionEventsUpdate, RecordRange, SessionInfo, Task,
    TaskAttemptId, TaskStatus, TaskTrackerAction,
};

/// The launcher of job trackers as processes of their own. Spec: mapreduce/04 §4.12.
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
    /// The calls that job trackers may make.
    pub fn action_services<J: JobTrackers>(&self, job_trackers: Arc<J>) -> Services {
        let actions = Actions { tracker: self.clone(), job_trackers };
        let actions = corona_task_tracker::Served::new(Arc::new(actions));
        Services::new().offer(actions).know(protocols::ALL)
    }

    /// The calls that processes of tasks may make, on this machine only.
    pub fn umbilical_services(&self) -> Services {
        let umbilical = Umbilical { shared: self.shared.clone() };
        let service = Arc::new(task_umbilical::Served::new(Arc::new(umbilical)));
        let own = self.shared.umbilical.ip();
        Services::new().offer(OwnMachine { service, own }).know(protocols::ALL)
    }
}

/// A service for callers on this machine alone.
struct OwnMachine<S> {
    service: Arc<S>,
    /// The address to which such callers connect, and from which their connections come then.
    own: IpAddr,
}

impl<S: Service> Service for OwnMachine<S> {
    fn protocol(&self) -> &'static Protocol {
        self.service.protocol()
    }

    fn call(
        self: Arc<Self>,
        caller: Arc<Caller>,
        method: &'static Method,
        parameters: Vec<Object>,
    ) -> Answer {
        let from = caller.peer.ip().to_canonical();
        if from.is_loopback() || from == self.own.to_canonical() {
            return self.service.clone().call(caller, method, parameters);
        }
        let refused = format!("{} is for tasks of this node, not for {from}", self.protocol().name);
        Box::pin(std::future::ready(Err(Fault::io(refused))))
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

impl Umbilical {
    /// Whether the process of an attempt only shows which classes are to be archived.
    fn is_of_archive(&self, attempt: &TaskAttemptId) -> bool {
        self.shared.archives.as_ref().is_some_and(|own| own.is_own(attempt))
    }
}

impl TaskUmbilical for Umbilical {
    async fn get_task(&self, _caller: &Caller, context: JvmContext) -> Result<JvmTask, Fault> {
        if let Some(task) = self.shared.archives.as_ref().and_then(|own| own.task(&context.jvm)) {
            return Ok(JvmTask { should_die: false, task: Some(task) });
        }
        Ok(self.shared.lock().table.get_task(&context))
    }

    async fn status_update(
        &self,
        _caller: &Caller,
        attempt: TaskAttemptId,
        status: TaskStatus,
    ) -> Result<bool, Fault> {
        let is_known = self.shared.lock().table.status_update(&attempt, status, now());
        Ok(is_known || self.is_of_archive(&attempt))
    }

    async fn ping(&self, _caller: &Caller, attempt: TaskAttemptId) -> Result<bool, Fault> {
        Ok(self.shared.lock().table.ping(&attempt) || self.is_of_archive(&attempt))
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

    /// In Corona events are not fetched here: reduces ask the job tracker.
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

#[cfg(test)]
mod tests {
    use super::*;
    use corona_hadoop::rpc::{Argument, User};

    /// A service that answers every call with nothing.
    struct Anything;

    impl Service for Anything {
        fn protocol(&self) -> &'static Protocol {
            &task_umbilical::PROTOCOL
        }

        fn call(self: Arc<Self>, _: Arc<Caller>, _: &'static Method, _: Vec<Object>) -> Answer {
            Box::pin(std::future::ready(Ok(true.into_object())))
        }
    }

    #[tokio::test]
    async fn tasks_report_from_the_machine_of_their_tracker_alone() {
        for (own, from, served) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.9", true),
            ("127.0.0.1", "10.0.0.9", false),
            ("::1", "::ffff:127.0.0.1", true),
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "::ffff:10.0.0.7", true),
            ("10.0.0.7", "10.0.0.8", false),
            ("10.0.0.7", "2001:db8::7", false),
        ] {
            let service = OwnMachine { service: Arc::new(Anything), own: own.parse().unwrap() };
            let peer = (from.parse::<IpAddr>().unwrap(), 1).into();
            let caller = Caller { peer, user: Some(User { name: "u".into(), groups: vec![] }) };
            let method = &task_umbilical::PROTOCOL.methods[0];
            let answer = Arc::new(service).call(Arc::new(caller), method, vec![]).await;
            assert_eq!(answer.is_ok(), served, "{own} {from}");
        }
    }
}
