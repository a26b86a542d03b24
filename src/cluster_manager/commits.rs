//! How far the journal is committed, for everything that must wait for a commit.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;

use super::ha::lease::Lease;

/// The number of the last committed record, and whether anything may leave at all.
#[derive(Clone, Debug)]
pub(super) struct Commits {
    committed: watch::Receiver<u64>,
    /// Of one of several instances.
    lease: Option<Arc<Lease>>,
}

impl Commits {
    /// Without a journal everything counts as committed.
    pub(super) fn everything() -> Commits {
        Commits::of(watch::channel(u64::MAX).1)
    }

    /// Of a journal.
    pub(super) fn of(committed: watch::Receiver<u64>) -> Commits {
        Commits { committed, lease: None }
    }

    /// The same for an instance that may lose its leadership.
    pub(super) fn within(self, lease: Arc<Lease>) -> Commits {
        Commits { lease: Some(lease), ..self }
    }

    /// Whether something may leave now. To be looked at just before it does.
    pub(super) fn may_leave(&self) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.holds())
    }

    /// Waits forever if nothing may be sent any more. The process is then about to end.
    pub(super) async fn check_lease(&self) {
        if !self.may_leave() {
            pending().await
        }
    }
}

impl corona_web::events::Commits for Commits {
    fn has(&self, number: u64) -> bool {
        number <= *self.committed.borrow()
    }

    /// If the journal has failed it waits forever, so that nothing is sent that could be lost; the
    /// process is then about to end.
    async fn wait_for(&self, number: u64) {
        if self.has(number) {
            return;
        }
        if self.committed.clone().wait_for(|committed| number <= *committed).await.is_err() {
            pending().await
        }
    }
}
