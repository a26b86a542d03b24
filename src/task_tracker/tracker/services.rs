//! The calls of job trackers and of the processes of tasks. Spec: mapreduce/03 §3.1, §3.3.
//!
//! Every call is answered at once: its effects run elsewhere.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Tracker, TrackerCore, now};
use corona_hadoop::object::Object;
use corona_hadoop::protocols;
use corona_hadoop::protocols::corona_task_tracker::{self, CoronaTaskTracker};
use corona_hadoop::protocols::task_umbilical::{self, TaskUmbilical};
use corona_hadoop::rpc::{Answer, Caller, Fault, Method, Protocol, Service, Services};
use corona_hadoop::writables::{
    JobId, JvmContext, JvmTask, MapTaskCompletionEventsUpdate, RecordRange, SessionInfo, Task,
    TaskAttemptId, TaskStatus, TaskTrackerAction,
};
use corona_process::panics::blocking;
use corona_process::sockets::Owners;

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
        Services::new()
            .offer(OwnTasks::new(service, self.shared.parts.umbilical))
            .know(protocols::ALL)
    }
}

/// The user that owns the connection between two addresses.
type Find = Arc<dyn Fn(SocketAddr, SocketAddr) -> io::Result<Option<u32>> + Send + Sync>;

/// A service for processes on this machine of the user that tasks run as, or of root. Nothing else proves that a
/// caller is a task; the tasks of one user cannot be told apart.
struct OwnTasks<S> {
    service: Arc<S>,
    /// The address to which such callers connect, and from which their connections come then.
    own: SocketAddr,
    user: u32,
    find: Find,
    /// Connections whose owner was looked up, and whether it may call.
    known: Mutex<Vec<(Weak<Caller>, bool)>>,
}

impl<S: Service> OwnTasks<S> {
    fn new(service: Arc<S>, own: SocketAddr) -> Self {
        let user = rustix::process::geteuid().as_raw();
        let owners = Owners::of_machine();
        let find = Arc::new(move |peer, own| owners.of(peer, own));
        OwnTasks { service, own, user, find, known: Mutex::default() }
    }

    /// Whether the owner of a connection may call. Each connection is looked up once.
    async fn admits(&self, caller: &Arc<Caller>) -> bool {
        let is_same =
            |(known, _): &&(Weak<Caller>, bool)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(caller));
        if let Some((_, admitted)) = self.lock().iter().find(is_same) {
            return *admitted;
        }
        let (find, peer, own) = (self.find.clone(), caller.peer.address, self.own);
        let found = blocking(move || find(peer, own)).await;
        let admitted = matches!(&found, Ok(Some(owner)) if [self.user, 0].contains(owner));
        if !admitted {
            tracing::warn!(%peer, owner = ?found, "refused a report for a task: its sender is not the user of tasks");
        }
        let mut known = self.lock();
        known.retain(|(caller, _)| caller.strong_count() > 0);
        // A look-up that failed, as without a free descriptor, is made again for the next call.
        if found.is_ok() {
            known.push((Arc::downgrade(caller), admitted));
        }
        admitted
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Weak<Caller>, bool)>> {
        // Each change leaves it whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Service> Service for OwnTasks<S> {
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
        let is_near = from.is_loopback() || from == self.own.ip().to_canonical();
        Box::pin(async move {
            if is_near && self.admits(&caller).await {
                return self.service.clone().call(caller, method, parameters).await;
            }
            let protocol = self.protocol().name;
            let who = if is_near { "this user" } else { "this machine" };
            Err(Fault::io(format!("{protocol} is for tasks of this node, not for {who} ({from})")))
        })
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
    shared: Arc<TrackerCore>,
}

impl Umbilical {
    /// Whether the process of an attempt only shows which classes are to be archived.
    fn is_of_archive(&self, attempt: &TaskAttemptId) -> bool {
        self.shared.parts.archives.as_ref().is_some_and(|own| own.is_own(attempt))
    }
}

impl TaskUmbilical for Umbilical {
    async fn get_task(&self, _caller: &Caller, context: JvmContext) -> Result<JvmTask, Fault> {
        if let Some(task) =
            self.shared.parts.archives.as_ref().and_then(|own| own.task(&context.jvm))
        {
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

    fn service(
        own: &str,
        find: impl Fn(SocketAddr, SocketAddr) -> io::Result<Option<u32>> + Send + Sync + 'static,
    ) -> Arc<OwnTasks<Anything>> {
        let (service, own) = (Arc::new(Anything), SocketAddr::new(own.parse().unwrap(), 7));
        let (find, known) = (Arc::new(find), Mutex::default());
        Arc::new(OwnTasks { service, own, user: 1000, find, known })
    }

    fn caller(from: &str) -> Arc<Caller> {
        let peer = SocketAddr::new(from.parse().unwrap(), 1);
        Arc::new(Caller {
            peer: corona_access::Peer::plain(peer),
            user: Some(User { name: "u".into(), groups: vec![] }),
        })
    }

    async fn is_served(service: &Arc<OwnTasks<Anything>>, caller: &Arc<Caller>) -> bool {
        let method = &task_umbilical::PROTOCOL.methods[0];
        service.clone().call(caller.clone(), method, vec![]).await.is_ok()
    }

    #[tokio::test]
    async fn other_users_of_the_machine_report_nothing() {
        let refusal = io::ErrorKind::PermissionDenied;
        for (owner, served) in [
            (Ok(Some(1000)), true),
            (Ok(Some(0)), true),
            (Ok(Some(1001)), false),
            (Ok(None), false),
            (Err(refusal), false),
        ] {
            let service = service("127.0.0.1", move |_, _| owner.map_err(io::Error::from));
            assert_eq!(is_served(&service, &caller("127.0.0.1")).await, served, "{owner:?}");
        }
    }

    #[tokio::test]
    async fn the_owner_of_a_connection_is_looked_up_once() {
        let service = service("127.0.0.1", |peer, own| {
            assert_eq!((peer.port(), own), (1, "127.0.0.1:7".parse().unwrap()));
            Ok(Some(1000))
        });
        let first = caller("127.0.0.1");
        assert!(is_served(&service, &first).await);
        let changed = OwnTasks {
            service: Arc::new(Anything),
            own: service.own,
            user: 1000,
            find: Arc::new(|_, _| Ok(Some(1001))),
            known: Mutex::new(service.lock().drain(..).collect()),
        };
        let changed = Arc::new(changed);
        assert!(is_served(&changed, &first).await, "as it was when the connection began");
        // A later connection from the same port is another one's.
        assert!(!is_served(&changed, &caller("127.0.0.1")).await);
        drop(first);
        assert!(!is_served(&changed, &caller("127.0.0.1")).await);
        assert!(changed.lock().len() <= 2, "connections that have ended are forgotten");
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
            let service = service(own, |_, _| Ok(Some(1000)));
            assert_eq!(is_served(&service, &caller(from)).await, served, "{own} {from}");
        }
    }
}
