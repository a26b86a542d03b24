//! The outlet of a live cluster manager: it notifies sessions, and counts, logs and publishes
//! events.

use std::sync::Arc;
use std::time::Duration;

use super::arrivals::Arrivals;
use super::log;
use super::notifier::{JournalPosition, Notifier, Wake};
use super::outlet::Outlet;
use super::pages::Events;
use corona_cluster_pages::events::event_of;
use corona_cluster_pages::metrics::Metrics;
use corona_engine::{Notification, Record};
use corona_model::types::{Address, Millis, ResourceType};

/// Hands effects to the notifier, the stream of events, the metrics and the log.
#[derive(Debug)]
pub(super) struct Live {
    notifier: Arc<Notifier>,
    events: Arc<Events>,
    metrics: Arc<Metrics>,
    /// The types that are scheduled.
    kinds: Vec<ResourceType>,
}

impl Live {
    /// `kinds` are the types that are scheduled.
    pub(super) fn new(
        notifier: Arc<Notifier>,
        events: Arc<Events>,
        metrics: Arc<Metrics>,
        kinds: impl IntoIterator<Item = ResourceType>,
    ) -> Live {
        Live { notifier, events, metrics, kinds: kinds.into_iter().collect() }
    }

    /// Notifies a session once a record is committed and the returned task was woken.
    pub(super) fn notify_from(
        &self,
        place: JournalPosition,
        handle: Arc<str>,
        to: Address,
        notification: Notification,
    ) -> Wake {
        self.notifier.enqueue(&handle, to, notification, place)
    }

    /// Counts events, and publishes them once the record `committed` of the journal is.
    pub(super) fn record_from(
        &self,
        committed: u64,
        now: Millis,
        record: &Record,
        arrivals: &Arrivals,
    ) {
        if let Some(event) = event_of(record) {
            self.events.add(now, event, committed);
            self.metrics.events.add(1);
        }
        if let Record::Assigned { kind, asked, .. } = record {
            let waits = &self.metrics.request_to_grant[*kind];
            arrivals.waits(asked, now, |wait, count| waits.record_times(wait, count));
        }
    }
}

impl Outlet for Live {
    fn notify(&self, handle: Arc<str>, to: Address, notification: Notification) -> Option<Wake> {
        self.notify_from(JournalPosition::default(), handle, to, notification).now();
        None
    }

    fn forget_session(&self, handle: &Arc<str>) {
        self.notifier.forget(handle);
    }

    fn resume_notifications(&self) {
        self.notifier.resume();
    }

    fn record(&self, now: Millis, record: &Record, arrivals: &Arrivals) {
        self.record_from(0, now, record, arrivals);
    }

    fn records(&self, records: &[Record]) {
        for record in records {
            self.metrics.record(record);
            log::record(record, &self.kinds);
        }
    }

    fn pass(&self, records: &[Record], took: Duration) {
        self.metrics.count_pass(took);
        log::pass(records, took);
    }
}
