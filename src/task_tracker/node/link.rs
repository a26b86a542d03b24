//! The state of the connection to the cluster manager, for people.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;

/// The most characters of a reason against a restart that are reported.
const MAX_REASON: usize = 300;

/// The state of the connection to the cluster manager, for people.
#[derive(Debug)]
pub struct Link {
    state: Mutex<LinkState>,
    restart: Notify,
}

/// How it stood at some time.
#[derive(Clone, Debug)]
pub struct LinkState {
    /// When there was the last answer, or when the task tracker began.
    pub last_answer: Instant,
    /// The same by the clock of the machine.
    pub last_answer_at: SystemTime,
    /// Heartbeats that were answered.
    pub answered: u64,
    /// Heartbeats that failed.
    pub failed: u64,
    /// How many of them failed since the last answer.
    pub failed_in_a_row: u32,
    /// The event that it waits for, in words; `None` while all is well.
    pub trouble: Option<String>,
    /// Why the task tracker has not started again in place when it was asked to do so last.
    pub refused: Option<String>,
}

impl Default for Link {
    fn default() -> Self {
        Link {
            state: Mutex::new(LinkState {
                last_answer: Instant::now(),
                last_answer_at: SystemTime::now(),
                answered: 0,
                failed: 0,
                failed_in_a_row: 0,
                trouble: Some("no heartbeat has been answered yet".into()),
                refused: None,
            }),
            restart: Notify::new(),
        }
    }
}

impl Link {
    /// Its status.
    pub fn state(&self) -> LinkState {
        self.change(|state| state.clone())
    }

    /// Whether the cluster manager probably still knows this node: nodes expire after this time
    /// without a heartbeat.
    pub fn is_alive(&self, node_expiry: Duration) -> bool {
        self.state().last_answer.elapsed() <= node_expiry
    }

    pub(crate) fn answered(&self) {
        self.change(|state| {
            state.last_answer = Instant::now();
            state.last_answer_at = SystemTime::now();
            state.answered += 1;
            state.failed_in_a_row = 0;
            state.trouble = None;
        });
    }

    /// Returns how many have failed since the last answer.
    pub(super) fn failed(&self, why: String) -> u32 {
        self.change(|state| {
            state.failed += 1;
            state.failed_in_a_row += 1;
            state.trouble = Some(why);
            state.failed_in_a_row
        })
    }

    /// Completes when the cluster manager asks for a restart in place.
    pub async fn restart_asked(&self) {
        self.restart.notified().await;
    }

    /// Has the cluster manager learn why there is no restart.
    pub fn refuse_restart(&self, why: &str) {
        let why = why.chars().take(MAX_REASON).collect();
        self.change(|state| state.refused = Some(why));
    }

    pub(super) fn ask_restart(&self) {
        self.change(|state| state.refused = None);
        self.restart.notify_one();
    }

    pub(super) fn waits(&self, why: &str) {
        self.change(|state| state.trouble = Some(why.to_owned()));
    }

    fn change<T>(&self, change: impl FnOnce(&mut LinkState) -> T) -> T {
        // Its parts need not agree, so it can be used after a panic too.
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
