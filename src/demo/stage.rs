//! The state that all parts of a demo share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use super::machine::Machines;
use super::news::{News, Summary};
use super::pace::Pace;
use corona_session_driver::{DriverHost, Endpoint};

/// Machines, running jobs, and the channel to the listeners.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) machines: Machines,
    pub(super) host: DriverHost,
    pub(super) manager: Endpoint,
    pub(super) pace: Pace,
    pub(super) counts: Counts,
    /// Names of running jobs by session.
    running: Mutex<HashMap<Arc<str>, Arc<str>>>,
    news: mpsc::Sender<News>,
}

/// The counts so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) started: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) succeeded: AtomicU64,
    pub(super) tasks: AtomicU64,
    pub(super) tasks_failed: AtomicU64,
    preempted: AtomicU64,
    lost: AtomicU64,
    joined: AtomicU64,
    blacklistings: AtomicU64,
}

impl Stage {
    pub(super) fn new(
        machines: Machines,
        host: DriverHost,
        manager: Endpoint,
        pace: Pace,
        news: mpsc::Sender<News>,
    ) -> Stage {
        let (counts, running) = Default::default();
        Stage { machines, host, manager, pace, counts, running, news }
    }

    /// Reports an event. Events that are not read in time are dropped: the demo continues.
    pub(super) fn tell(&self, news: News) {
        let counts = &self.counts;
        match &news {
            News::SlotsPreempted { count, .. } => add(&counts.preempted, *count),
            News::NodeLost { expired: true, .. } => add(&counts.lost, 1),
            News::NodeJoined { .. } => add(&counts.joined, 1),
            News::NodeBlacklisted { .. } => add(&counts.blacklistings, 1),
            _ => {}
        }
        let _ = self.news.try_send(news);
    }

    pub(super) fn job_started(&self, session: Arc<str>, name: Arc<str>) {
        add(&self.counts.started, 1);
        self.running().insert(session, name);
    }

    pub(super) fn job_ended(&self, session: &str) {
        add(&self.counts.ended, 1);
        self.running().remove(session);
    }

    /// The name of a running job.
    pub(super) fn job_of(&self, session: &str) -> Option<Arc<str>> {
        self.running().get(session).cloned()
    }

    /// How many jobs run.
    pub(super) fn jobs_running(&self) -> usize {
        self.running().len()
    }

    pub(super) fn status(&self) -> News {
        News::Status {
            running: self.jobs_running(),
            ended: get(&self.counts.ended),
            tasks: self.machines.tasks(),
            slots: self.machines.slots(),
        }
    }

    pub(super) fn summary(&self, elapsed: Duration) -> Summary {
        let counts = &self.counts;
        Summary {
            seconds: elapsed.as_secs_f64(),
            jobs_started: get(&counts.started),
            jobs_succeeded: get(&counts.succeeded),
            tasks: get(&counts.tasks),
            tasks_failed: get(&counts.tasks_failed),
            slots_preempted: get(&counts.preempted),
            nodes_lost: get(&counts.lost),
            nodes_joined: get(&counts.joined),
            blacklistings: get(&counts.blacklistings),
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<str>>> {
        // Each change is one call, so that a panic leaves a whole map behind.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts so many more.
pub(super) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
