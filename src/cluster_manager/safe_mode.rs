//! Safe mode: the cluster manager's flag and its copy in the proxy job tracker, which clients poll.
//!
//! Spec: cluster-manager/02 §3.17, 07 §6. The proxy job tracker is called with a time limit and
//! outside the engine, so that a hanging one blocks only the caller that wants the change.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Mutex, MutexGuard};

use super::clock::Clock;
use super::core::Core;
use corona_api::cluster as api;
use corona_config::HostPort;
use corona_engine::Input;
use corona_model::types::Millis;
use corona_wire::calls::{ProxyJobTracker, ProxyJobTrackerCall};
use corona_wire::client::{CallError, Client, ClientOptions, ConnectError};

/// How long the proxy job tracker may take to accept a connection, and then to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sets the flag here and in the proxy job tracker; one change at a time.
#[derive(Debug)]
pub(super) struct SafeModeSwitch {
    proxy_job_tracker: HostPort,
    /// Whether there should be one. At the default address there may be none.
    expected: bool,
    clock: Clock,
    one_at_a_time: Arc<Mutex<()>>,
    history: std::sync::Mutex<History>,
}

/// When the flag and its copy were last changed.
#[derive(Clone, Copy, Debug)]
struct History {
    /// When the flag last changed here, or when the process started.
    since: Millis,
    /// The value that the proxy job tracker last acknowledged, and when.
    acknowledged: Option<(bool, Millis)>,
}

/// The proxy job tracker does not have the flag's new value.
#[derive(Debug, Error)]
#[error("the proxy job tracker at {address} did not accept the flag: {error}")]
pub(super) struct NotAccepted {
    address: HostPort,
    error: CallFailure,
}

#[derive(Debug, Error)]
enum CallFailure {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Call(#[from] CallError),
}

impl CallFailure {
    /// Whether no server listens at the address.
    fn is_refused(&self) -> bool {
        matches!(self, CallFailure::Connect(ConnectError::Io(error))
            if error.kind() == io::ErrorKind::ConnectionRefused)
    }
}

impl SafeModeSwitch {
    /// `expected` is whether the configuration names a proxy job tracker: if not, that none is there at the
    /// start is not a problem.
    pub(super) fn new(proxy_job_tracker: HostPort, expected: bool, clock: Clock) -> SafeModeSwitch {
        let history = History { since: clock.now(), acknowledged: None };
        SafeModeSwitch {
            proxy_job_tracker,
            expected,
            clock,
            one_at_a_time: Arc::default(),
            history: std::sync::Mutex::new(history),
        }
    }

    /// Ends safe mode at the start: at once here; the returned future notifies the proxy job
    /// tracker, so that the start does not wait for it. Until it completes, other changes wait. A state
    /// that was resumed from the journal was not in safe mode: nodes and sessions keep their ages.
    /// Spec: cluster-manager/02 §1, step 11.
    pub(super) fn clear_at_start(
        self: Arc<Self>,
        core: &Core,
        is_resumed: bool,
    ) -> impl Future<Output = ()> + use<> {
        // The switch is not shared yet.
        let turn = self.one_at_a_time.clone().try_lock_owned();
        if is_resumed && !core.look(|engine, _| engine.safe_mode()) {
            core.resume_notifications();
        } else {
            self.apply(core, false);
        }
        async move {
            let _turn = turn;
            match self.call_proxy_job_tracker(false).await {
                Err(error) if !self.expected && error.is_refused() => tracing::info!(
                    "No proxy job tracker was notified: none is configured (corona.proxy.job.tracker.thriftaddr), and none listens at {}",
                    self.proxy_job_tracker
                ),
                // A failure is logged; no caller waits for the outcome.
                outcome => {
                    let _ = self.conclude(false, outcome);
                }
            }
        }
    }

    /// Keeps the flag as it is until the guard is dropped.
    pub(super) async fn hold(&self) -> MutexGuard<'_, ()> {
        self.one_at_a_time.lock().await
    }

    /// Turning it on needs the proxy job tracker, turning it off takes effect here in any case.
    ///
    /// # Errors
    /// The proxy job tracker does not have the new value.
    pub(super) async fn set(&self, core: &Core, on: bool) -> Result<(), NotAccepted> {
        let _one_at_a_time = self.one_at_a_time.lock().await;
        if !on {
            self.apply(core, false);
        }
        self.notify(on).await?;
        if on {
            self.apply(core, true);
        }
        Ok(())
    }

    /// The API's representation. `on` is the engine's flag.
    pub(super) fn to_api(&self, on: bool) -> (api::SafeModeStatus, api::ProxyJobTrackerStatus) {
        let History { since, acknowledged } = *self.history();
        let safe_mode = api::SafeModeStatus { on, since_ms: since.0 };
        let proxy_job_tracker = api::ProxyJobTrackerStatus {
            address: self.proxy_job_tracker.to_string(),
            flag: acknowledged.map(|(flag, _)| flag),
            acknowledged_ms: acknowledged.map(|(_, at)| at.0),
        };
        (safe_mode, proxy_job_tracker)
    }

    fn apply(&self, core: &Core, on: bool) {
        let changes = core.look(|engine, _| engine.safe_mode()) != on;
        // The engine never refuses this input.
        let _ = core.apply(Input::SetSafeMode { on });
        if changes {
            self.history().since = self.clock.now();
        }
    }

    async fn notify(&self, on: bool) -> Result<(), NotAccepted> {
        let outcome = self.call_proxy_job_tracker(on).await;
        self.conclude(on, outcome)
    }

    fn conclude(&self, on: bool, outcome: Result<(), CallFailure>) -> Result<(), NotAccepted> {
        match outcome {
            Ok(()) => {
                self.history().acknowledged = Some((on, self.clock.now()));
                tracing::info!("Flag successfully set in ProxyJobTracker");
                Ok(())
            }
            Err(error) => {
                tracing::warn!(
                    "Exception while setting the safe mode flag in ProxyJobTracker: {error}"
                );
                Err(NotAccepted { address: self.proxy_job_tracker.clone(), error })
            }
        }
    }

    async fn call_proxy_job_tracker(&self, on: bool) -> Result<(), CallFailure> {
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

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
