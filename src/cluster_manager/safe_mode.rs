//! Safe mode: the cluster manager's flag and its copy in the proxy job tracker, which clients poll.
//!
//! Spec: cluster-manager/02 §3.17, 07 §6. The proxy job tracker is asked with a time limit and
//! outside the engine, so that one that hangs holds nobody up but who asked for the change.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use corona_config::HostPort;
use corona_engine::Input;
use corona_wire::calls::{ProxyJobTracker, ProxyJobTrackerCall};
use corona_wire::client::{CallError, Client, ClientOptions, ConnectError};

use super::core::Core;

/// How long the proxy job tracker may take to accept a connection, and then to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sets the flag here and in the proxy job tracker; one change at a time.
#[derive(Debug)]
pub(super) struct SafeModeSwitch {
    proxy_job_tracker: HostPort,
    one_at_a_time: Arc<Mutex<()>>,
}

impl SafeModeSwitch {
    pub(super) fn new(proxy_job_tracker: HostPort) -> SafeModeSwitch {
        SafeModeSwitch { proxy_job_tracker, one_at_a_time: Arc::default() }
    }

    /// Ends safe mode at the start: at once here; the proxy job tracker is told by the future that
    /// is given back, so that nobody waits for one that is not there. Until it is done, other
    /// changes wait. Spec: cluster-manager/02 §1, step 11.
    pub(super) fn clear_at_start(self: Arc<Self>, core: &Core) -> impl Future<Output = ()> + use<> {
        // Nobody else knows of the switch yet.
        let turn = self.one_at_a_time.clone().try_lock_owned();
        apply(core, false);
        async move {
            let _turn = turn;
            self.tell(false).await;
        }
    }

    /// Keeps the flag as it is until the guard is dropped.
    pub(super) async fn hold(&self) -> MutexGuard<'_, ()> {
        self.one_at_a_time.lock().await
    }

    /// Turning it on needs the proxy job tracker, turning it off takes effect here in any case.
    /// Returns whether the proxy job tracker has the new value.
    pub(super) async fn set(&self, core: &Core, on: bool) -> bool {
        let _one_at_a_time = self.one_at_a_time.lock().await;
        if !on {
            apply(core, false);
        }
        let told = self.tell(on).await;
        if told && on {
            apply(core, true);
        }
        told
    }

    /// Returns whether the proxy job tracker has the new value.
    async fn tell(&self, on: bool) -> bool {
        match self.tell_proxy_job_tracker(on).await {
            Ok(()) => {
                tracing::info!("Flag successfully set in ProxyJobTracker");
                true
            }
            Err(error) => {
                tracing::warn!(
                    "Exception while setting the safe mode flag in ProxyJobTracker: {error}"
                );
                false
            }
        }
    }

    async fn tell_proxy_job_tracker(&self, on: bool) -> Result<(), TellError> {
        let options = ClientOptions {
            connect_timeout: TIMEOUT,
            call_timeout: TIMEOUT,
            ..ClientOptions::default()
        };
        let address = (&*self.proxy_job_tracker.host, self.proxy_job_tracker.port);
        let mut client = Client::<ProxyJobTracker>::connect(address, options).await?;
        client.call(&ProxyJobTrackerCall::SetClusterManagerSafeModeFlag { flag: on }).await?;
        Ok(())
    }
}

fn apply(core: &Core, on: bool) {
    // The engine never refuses this input.
    let _ = core.apply(Input::SetSafeMode { on });
}

#[derive(Debug, thiserror::Error)]
enum TellError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Call(#[from] CallError),
}
