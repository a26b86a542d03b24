//! The status of a task, which its threads share and its reports show. Spec: mapreduce/04 §4.6.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::cut;
use crate::skip::Unprocessed;
use corona_hadoop::writables::{
    Counters, Phase, RecordRange, ReduceProgress, TaskAttemptId, TaskState, TaskStatus,
};

/// The longest text that a task may show.
const MOST_TEXT_BYTES: usize = 1000;

/// The status of a task.
#[derive(Debug)]
pub struct Status {
    inner: Mutex<Inner>,
    /// Another record was read by an attempt that skips.
    has_read: Notify,
}

/// Pause between reports until the configuration of the job was read.
const FIRST_INTERVAL: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
struct Inner {
    state: TaskState,
    phase: Phase,
    progress: f32,
    text: String,
    output_bytes: i64,
    reduce: Option<ReduceProgress>,
    report_interval: Duration,
    /// If the attempt skips records: those that may not be processed.
    unprocessed: Option<Unprocessed>,
}

impl Status {
    /// A task that has begun.
    pub fn new(is_map: bool) -> Status {
        let inner = Inner {
            state: TaskState::Running,
            phase: if is_map { Phase::Map } else { Phase::Shuffle },
            progress: 0.0,
            text: String::new(),
            output_bytes: -1,
            reduce: (!is_map).then(ReduceProgress::default),
            report_interval: FIRST_INTERVAL,
            unprocessed: None,
        };
        Status { inner: Mutex::new(inner), has_read: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a text, cut if it is long.
    pub fn set_text(&self, text: &str) {
        self.lock().text = cut(text, MOST_TEXT_BYTES).to_owned();
    }

    /// The text that is shown.
    pub fn text(&self) -> String {
        self.lock().text.clone()
    }

    /// The pause between reports.
    pub fn report_interval(&self) -> Duration {
        self.lock().report_interval
    }

    /// Changes the pause between reports.
    pub fn set_report_interval(&self, interval: Duration) {
        self.lock().report_interval = interval;
    }

    /// Enters a phase.
    pub fn set_phase(&self, phase: Phase) {
        self.lock().phase = phase;
    }

    /// Changes the state.
    pub fn set_state(&self, state: TaskState) {
        self.lock().state = state;
    }

    /// How much is done, from 0 to 1.
    pub fn set_progress(&self, progress: f32) {
        self.lock().progress = progress.clamp(0.0, 1.0);
    }

    /// The bytes of a map's output.
    pub fn set_output_bytes(&self, bytes: u64) {
        self.lock().output_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    }

    /// Changes the fields that only reduces report.
    pub fn change_reduce(&self, change: impl FnOnce(&mut ReduceProgress)) {
        if let Some(reduce) = &mut self.lock().reduce {
            change(reduce);
        }
    }

    /// The attempt leaves out these records, and reports which ones it may not have processed.
    pub(crate) fn start_skipping(&self, left_out: &[RecordRange]) {
        self.lock().unprocessed = Some(Unprocessed::new(left_out));
    }

    /// The program gets the record of this number.
    pub(crate) fn read_record(&self, record: i64) {
        if let Some(unprocessed) = &mut self.lock().unprocessed {
            unprocessed.read(record);
        }
        self.has_read.notify_one();
    }

    /// The program has processed so many further records.
    pub(crate) fn processed_records(&self, records: i64) {
        if let Some(unprocessed) = &mut self.lock().unprocessed {
            unprocessed.processed(records);
        }
    }

    /// The records that may not be processed, when the program of an attempt that skips got another one.
    pub(crate) async fn next_records(&self) -> RecordRange {
        self.has_read.notified().await;
        self.lock().unprocessed.as_ref().map(Unprocessed::range).unwrap_or_default()
    }

    /// The report. Failed fetches are reported once.
    pub fn report(
        &self,
        attempt: &TaskAttemptId,
        slots: i32,
        counters: Option<Counters>,
    ) -> TaskStatus {
        let mut inner = self.lock();
        let reduce = inner.reduce.clone();
        if let Some(reduce) = &mut inner.reduce {
            reduce.failed_fetches.clear();
        }
        TaskStatus {
            progress: inner.progress,
            slots,
            state_string: inner.text.clone(),
            phase: inner.phase,
            output_size: inner.output_bytes,
            counters,
            next_records: inner.unprocessed.as_ref().map(Unprocessed::range).unwrap_or_default(),
            reduce,
            ..TaskStatus::new(attempt.clone(), inner.state)
        }
    }
}
