//! How far the journal is committed, for all that must not leave before.

use std::future::pending;

use tokio::sync::watch;

/// The number of the last committed record.
#[derive(Clone, Debug)]
pub(super) struct Commits(watch::Receiver<u64>);

impl Commits {
    /// Without a journal everything counts as committed.
    pub(super) fn everything() -> Commits {
        Commits(watch::channel(u64::MAX).1)
    }

    /// Of a journal.
    pub(super) fn of(committed: watch::Receiver<u64>) -> Commits {
        Commits(committed)
    }

    /// Whether a record is committed.
    pub(super) fn has(&self, number: u64) -> bool {
        number <= *self.0.borrow()
    }

    /// Waits until a record is committed: for ever if the journal has failed, so that nothing leaves
    /// that could be lost. The process is about to end then.
    pub(super) async fn wait_for(&self, number: u64) {
        if self.has(number) {
            return;
        }
        if self.0.clone().wait_for(|committed| number <= *committed).await.is_err() {
            pending().await
        }
    }
}
