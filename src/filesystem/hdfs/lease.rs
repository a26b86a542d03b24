//! The lease of a client on all files that it writes: renewed while there is one. Spec: hdfs/01 §1.4.6.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::name_node::NameNode;
use crate::{ErrorKind, FileSystemSettings};
use corona_process::panics::restart_on_panic;

/// The pause before a renewal that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Renews the lease of one client as long as somebody holds it.
#[derive(Debug)]
pub(super) struct Lease {
    name: String,
    name_node: Arc<NameNode>,
    every: Duration,
    retries: u32,
    state: Mutex<LeaseState>,
    /// Whether the lease could not be renewed; every file is lost then.
    lost: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct LeaseState {
    files: usize,
    renewing: Option<AbortHandle>,
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Held(Arc<Lease>);

impl Lease {
    pub(super) fn new(
        name: String,
        name_node: Arc<NameNode>,
        settings: &FileSystemSettings,
    ) -> Arc<Lease> {
        Arc::new(Lease {
            name,
            name_node,
            every: settings.lease_renewal,
            retries: settings.lease_renewal_retries,
            state: Mutex::default(),
            lost: watch::Sender::new(false),
        })
    }

    /// The name of the client, which is the holder of the lease.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Holds the lease for one more file. The first one starts the renewals.
    pub(super) fn hold(self: &Arc<Lease>) -> Held {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.files += 1;
        if state.renewing.is_none() {
            self.lost.send_replace(false);
            let lease = Arc::downgrade(self);
            let renewing = async move {
                restart_on_panic("the renewal of a lease", || renew(lease.clone())).await;
            };
            state.renewing = Some(tokio::spawn(renewing).abort_handle());
        }
        drop(state);
        Held(self.clone())
    }
}

impl Held {
    /// Whether the lease has been given up.
    pub(super) fn is_lost(&self) -> bool {
        *self.0.lost.borrow()
    }

    pub(super) fn client_name(&self) -> &str {
        &self.0.name
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.files -= 1;
        if state.files == 0
            && let Some(renewing) = state.renewing.take()
        {
            renewing.abort();
        }
    }
}

/// Renews at once and then again and again. In safe mode it keeps trying; when the name node cannot
/// be reached for long, all files are given up.
async fn renew(lease: Weak<Lease>) {
    let mut failures = 0;
    loop {
        let Some(held) = lease.upgrade() else { return };
        let pause = match held.name_node.renew_lease(&held.name).await {
            Ok(()) => {
                failures = 0;
                held.every
            }
            Err(error) => {
                failures += u32::from(error.kind != ErrorKind::SafeMode);
                tracing::warn!(client = held.name, %error, failures, "the lease is not renewed");
                if failures > held.retries {
                    held.lost.send_replace(true);
                    return;
                }
                RETRY_PAUSE.min(held.every)
            }
        };
        drop(held);
        sleep(pause).await;
    }
}
