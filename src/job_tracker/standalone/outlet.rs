//! The outlet of the job of a remote job tracker: that of every job, but that the parent has each launch
//! before it leaves, and that the parent's files stay at the end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corona_hadoop::writables::{StateUpdate, Update};
use corona_mapreduce::HistoryRecord;
use corona_mapreduce::history::{AttemptEnd, AttemptResult};
use corona_model::types::{ResourceRequest, SessionPriority, SessionStatus};
use corona_process::panics::caught;
use corona_session_driver::SessionDriver;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::Running;
use super::parent::Item;
use crate::clock;
use crate::jobs::history::History;
use crate::jobs::live::Live;
use crate::jobs::outlet::{NoSession, Outlet};
use crate::jobs::session_types::{self, usage};
use crate::jobs::statistics::Report;
use corona_job_engine::{Launch, NodeUsage, Order, RequestId, TIMEOUT_TEXTS, Tracker};
use corona_job_wire::saved;

/// How long the files of the history may take to be complete.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(60);
/// Task trackers whose addresses are remembered.
const MAX_TRACKERS: usize = 100_000;

/// Leaves updates with the parent. Copies are the same.
#[derive(Clone)]
pub(super) struct ToParent {
    items: mpsc::Sender<Item>,
    /// An item had no room.
    full: Arc<AtomicBool>,
    trackers: Arc<Mutex<HashMap<String, (String, i32)>>>,
}

impl ToParent {
    pub(super) fn new(items: mpsc::Sender<Item>) -> ToParent {
        ToParent { items, full: Arc::default(), trackers: Arc::default() }
    }

    /// Whether something was lost because too much waits; the job tracker ends then.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    fn send(&self, item: Item) -> bool {
        let sent = self.items.try_send(item);
        if matches!(sent, Err(mpsc::error::TrySendError::Full(_))) {
            self.full.store(true, Ordering::Release);
        }
        // A saver that has failed ends the job tracker.
        sent.is_ok() && !self.is_full()
    }

    /// Queues an update.
    pub(super) fn update(&self, update: Update) {
        let update = StateUpdate { update, at_ms: clock::now().0 };
        self.send(Item::Update(Box::new(update)));
    }

    /// Queues where a task tracker is, if that is new.
    pub(super) fn tracker(&self, name: &str, host: &str, http_port: i32) {
        let at = (host.to_owned(), http_port);
        {
            // No panic happens while it is held.
            let mut known = self.trackers.lock().unwrap_or_else(PoisonError::into_inner);
            if known.get(name) == Some(&at) {
                return;
            }
            if known.len() >= MAX_TRACKERS {
                known.clear();
            }
            known.insert(name.to_owned(), at);
        }
        self.update(saved::tracker(name, host, http_port));
    }

    /// Returns when the parent has all that was queued; false if it never will.
    pub(super) async fn settled(&self) -> bool {
        let (tell, told) = oneshot::channel();
        self.send(Item::Settled(tell)) && told.await.is_ok()
    }
}

/// What carries out the decisions of the job.
pub(super) struct RemoteOutlet {
    pub(super) live: Live,
    /// Absent if no other job tracker may continue the job.
    pub(super) to_parent: Option<ToParent>,
    /// Task trackers are not ordered to forget the job: another job tracker continues it.
    pub(super) keeps_tasks: Arc<AtomicBool>,
    pub(super) ending: Option<Ending>,
}

/// What remains to be done when the job is over.
pub(super) struct Ending {
    pub(super) history: History,
    /// For the proxy job tracker, if there is one.
    pub(super) report: Option<Report>,
    pub(super) running: Arc<Running>,
    /// Becomes true when everything is done.
    pub(super) closed: watch::Sender<bool>,
}

impl RemoteOutlet {
    fn save(&self, update: Option<Update>) {
        // The end of this job tracker is not that of its attempts: another one decides about them.
        let ends = self.keeps_tasks.load(Ordering::Acquire);
        if let (Some(to_parent), Some(update), false) = (&self.to_parent, update, ends) {
            to_parent.update(update);
        }
    }

    fn save_end(&self, end: &AttemptEnd) {
        if let AttemptResult::Killed { error } = &end.result
            && TIMEOUT_TEXTS.iter().any(|text| error.ends_with(text))
        {
            self.save(Some(saved::timed_out(&end.tracker)));
        }
        self.save(saved::ended(&self.live.spec.id, end));
    }
}

impl Outlet for RemoteOutlet {
    fn request(&mut self, requests: Vec<ResourceRequest>) -> Result<(), NoSession> {
        self.live.request(requests)
    }

    fn release(&mut self, ids: Vec<RequestId>) -> Result<(), NoSession> {
        self.live.release(ids)
    }

    fn launch(&mut self, launch: Launch) {
        self.save(saved::launched(&self.live.spec.id, &launch));
        self.live.launch(launch);
    }

    fn order(&mut self, at: Tracker, order: Order) {
        if order != Order::KillJob || !self.keeps_tasks.load(Ordering::Acquire) {
            self.live.order(at, order);
        }
    }

    fn record(&mut self, record: &HistoryRecord) {
        if let HistoryRecord::Attempt(end) = record {
            self.save_end(end);
        }
        if let Some(ending) = &mut self.ending {
            ending.history.record(record);
        }
    }

    fn priority(&mut self, priority: SessionPriority) {
        self.live.priority(priority);
    }

    fn flush(&mut self) {
        match &self.to_parent {
            None => self.live.flush(),
            Some(to_parent) => {
                for (to, orders) in std::mem::take(&mut self.live.orders) {
                    to_parent.send(Item::Orders(to, orders));
                }
            }
        }
    }

    fn end(&mut self, status: SessionStatus, feedback: Vec<NodeUsage>) {
        if let Some(ending) = self.ending.take() {
            let driver = self.live.driver.clone();
            let closed = ending.closed.clone();
            tokio::spawn(async move {
                if let Err(panic) = caught(ending.carry_out(driver, status, feedback)).await {
                    tracing::error!(%panic, "the end of the job panicked");
                    closed.send_replace(true);
                }
            });
        }
    }

    /// The session ends with this process.
    fn leave(&mut self) {}
}

impl Ending {
    async fn carry_out(
        self,
        driver: Arc<SessionDriver>,
        status: SessionStatus,
        feedback: Vec<NodeUsage>,
    ) {
        if let (Some(report), Some(job)) = (self.report, self.running.job()) {
            report.make(&job).await;
        }
        // The session may be lost already.
        let _ = driver.feedback(feedback.into_iter().map(usage).collect());
        let ended = driver.end(session_types::status(status)).await;
        tracing::info!(session = %driver.handle(), %ended, "the job is over");
        if timeout(HISTORY_TIMEOUT, self.history.close()).await.is_err() {
            tracing::warn!("timed out writing the job history");
        }
        self.closed.send_replace(true);
    }
}
