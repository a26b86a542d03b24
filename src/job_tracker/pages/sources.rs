//! What pages show, and where it is: the same for the service and for a job tracker of one job.

use std::sync::Arc;

use corona_config::{HostPort, JobTrackerServiceSettings};
use corona_filesystem::FileSystems;
use corona_mapreduce::JobId;
use corona_web::events::Committed;

use super::events::Events;
use super::manager::{Manager, NoAnswer};
use super::sessions::JobSessions;
use crate::clock::now;
use crate::home::Home;
use crate::jobs::store::{KnownJob, Store};
use crate::launch::cluster::Cluster;
use crate::meter::Meter;
use corona_api::jobs::JobWait;

/// What pages show.
pub(crate) struct PageSources {
    pub(crate) settings: Arc<JobTrackerServiceSettings>,
    pub(crate) store: Arc<Store>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) files: Arc<FileSystems>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) events: Arc<Events>,
    pub(crate) manager: Manager,
    pub(crate) sessions: JobSessions,
    /// The directory with what is kept of jobs on this machine; a job tracker of one job has none.
    pub(crate) home: Option<Arc<Home>>,
    /// The job of a job tracker of one job.
    pub(crate) only: Option<JobId>,
    /// When the program started, in milliseconds since the Unix epoch.
    pub(crate) started_ms: i64,
    /// The name of this machine for clients and task trackers.
    pub(crate) name: String,
    /// Where the pages are, as their addresses name it.
    pub(crate) at: HostPort,
}

impl PageSources {
    /// No events so far. Streams may take half of the connections, so that pages stay reachable.
    pub(crate) fn new(
        settings: Arc<JobTrackerServiceSettings>,
        store: Store,
        files: Arc<FileSystems>,
        home: Option<Arc<Home>>,
        only: Option<JobId>,
        name: &str,
        at: HostPort,
    ) -> Arc<PageSources> {
        let (streams, now) = (settings.web.max_connections.div_ceil(2), now());
        let manager = &settings.cluster_manager_pages;
        Arc::new(PageSources {
            store: Arc::new(store),
            cluster: Arc::new(Cluster::new(settings.node_expiry)),
            files,
            meter: Arc::default(),
            events: Arc::new(Events::new(now, streams, Committed)),
            manager: Manager::new(&manager.host, manager.port),
            sessions: JobSessions::default(),
            home,
            only,
            started_ms: now.0,
            name: name.to_owned(),
            at,
            settings,
        })
    }

    /// The address before the name of a page.
    pub(crate) fn address(&self) -> String {
        format!("http://{}/", self.at)
    }

    /// The job that an address means. That of a job tracker of one job is announced with the first job of
    /// the session, whose place this one may have taken. Spec: mapreduce/05 §5.6.
    pub(crate) fn meant(&self, id: JobId) -> JobId {
        let first = |only: &JobId| JobId::new(only.session()?, 1).ok();
        match &self.only {
            Some(only) if first(only).as_ref() == Some(&id) => only.clone(),
            _ => id,
        }
    }

    /// Why requests of a job wait, as the cluster manager explains it.
    pub(super) async fn waits(&self, job: &JobId) -> Result<Vec<JobWait>, NoAnswer> {
        match self.session(job) {
            Some(session) => self.manager.waits(&session).await,
            None => Ok(Vec::new()),
        }
    }

    /// The session in which a job requests its slots. A remote job tracker has one of its own; until it
    /// works, the one that is in the job's id requests a slot for it.
    pub(super) fn session(&self, job: &JobId) -> Option<Arc<str>> {
        let of_remote = match self.store.get(job) {
            Some(KnownJob::Remote(remote)) => remote.session(),
            _ => None,
        };
        let noted = || self.sessions.get(job)?.handle;
        of_remote.or_else(noted).or_else(|| job.session().map(Into::into))
    }
}
