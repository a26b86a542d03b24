//! The ways to the cluster manager and to the proxy job tracker.

use std::time::Duration;

use thiserror::Error;
use tokio::time::sleep;

use super::options::{Endpoint, Timers};
use crate::wire::calls::{
    ClusterManager, ClusterManagerCall, ClusterManagerReply, ProxyJobTracker, ProxyJobTrackerCall,
    ProxyJobTrackerReply,
};
use crate::wire::client::{CallError, Client, ClientOptions, ConnectError};
use crate::wire::{ApplicationFault, Exception};

/// Answers to a session are short.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// Why a call did not get through. It may have been carried out all the same.
#[derive(Debug, Error)]
pub enum CallFailure {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// There is no answer, or not the one that was due.
    #[error(transparent)]
    Call(#[from] CallError),
    /// There was not enough time.
    #[error("not done within {0:?}")]
    TooLate(Duration),
}

/// Why a call has no result, as far as a session cares.
#[derive(Debug)]
pub(super) enum Trouble {
    SafeMode,
    /// With the handle, or with a sentence.
    InvalidSession(String),
    /// An answer outside the contract. The connection is still good.
    Fault(ApplicationFault),
    Failed(CallFailure),
}

impl Trouble {
    /// For where all that matters is that the call did not get through.
    pub(super) fn into_failure(self) -> CallFailure {
        match self {
            Trouble::Failed(failure) => failure,
            Trouble::Fault(fault) => CallError::Fault(fault).into(),
            Trouble::SafeMode => CallError::Exception(Exception::safe_mode()).into(),
            Trouble::InvalidSession(text) => {
                CallError::Exception(Exception::invalid_session_handle(text)).into()
            }
        }
    }
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Trouble {
        match error {
            CallError::Exception(Exception::SafeMode(_)) => Trouble::SafeMode,
            CallError::Exception(Exception::InvalidSessionHandle(invalid)) => {
                Trouble::InvalidSession(invalid.handle)
            }
            CallError::Fault(fault) => Trouble::Fault(fault),
            error => Trouble::Failed(error.into()),
        }
    }
}

impl From<ConnectError> for Trouble {
    fn from(error: ConnectError) -> Trouble {
        Trouble::Failed(error.into())
    }
}

/// The way to the cluster manager: one connection, opened when it is needed and kept.
#[derive(Debug)]
pub(super) struct Link {
    address: Endpoint,
    options: ClientOptions,
    connection: Option<Client<ClusterManager>>,
}

impl Link {
    pub(super) fn new(address: Endpoint, timers: &Timers) -> Link {
        let timeout = timers.client_timeout;
        Link { address, options: client_options(timeout), connection: None }
    }

    /// Makes a call. A kept connection may have been closed by the cluster manager while nothing
    /// was to be said: that counts only if a fresh one fails as well.
    pub(super) async fn call(
        &mut self,
        call: &ClusterManagerCall,
    ) -> Result<ClusterManagerReply, Trouble> {
        if let Some(kept) = self.connection.as_mut().filter(|kept| kept.is_usable()) {
            match kept.call(call).await {
                Err(CallError::Closed | CallError::Io(_)) => {}
                result => return Ok(result?),
            }
        }
        self.close();
        let fresh = Client::connect(self.address.pair(), self.options.clone()).await?;
        Ok(self.connection.insert(fresh).call(call).await?)
    }

    pub(super) fn close(&mut self) {
        self.connection = None;
    }
}

/// The proxy job tracker cannot be asked whether the cluster manager is down on purpose.
#[derive(Debug, Error)]
#[error("could not check the safe mode flag on the proxy job tracker: {0}")]
pub struct ProxyError(#[from] CallFailure);

/// The way to the proxy job tracker. Spec: cluster-manager/07 §6.
#[derive(Debug)]
pub(super) struct Proxy {
    address: Option<Endpoint>,
    timeout: Duration,
    poll: Duration,
}

impl Proxy {
    pub(super) fn new(address: Option<Endpoint>, timers: &Timers) -> Proxy {
        Proxy { address, timeout: timers.proxy_timeout, poll: timers.safe_mode_poll }
    }

    /// Waits until the flag is not set, for ever if need be. Returns whether it was. A connection
    /// that breaks while waiting is opened once more.
    pub(super) async fn wait_while_in_safe_mode(&self) -> Result<bool, ProxyError> {
        let Some(address) = &self.address else { return Ok(false) };
        let ask = ProxyJobTrackerCall::GetClusterManagerSafeModeFlag;
        let mut waited = false;
        loop {
            let options = client_options(self.timeout);
            let connected = Client::<ProxyJobTracker>::connect(address.pair(), options).await;
            let mut client = connected.map_err(CallFailure::from)?;
            let mut answered = false;
            loop {
                match client.call(&ask).await {
                    Ok(ProxyJobTrackerReply::GetClusterManagerSafeModeFlag(true)) => {}
                    Ok(_) => return Ok(waited),
                    Err(CallError::Closed | CallError::Io(_)) if answered => break,
                    Err(error) => return Err(CallFailure::from(error).into()),
                }
                (answered, waited) = (true, true);
                sleep(self.poll).await;
            }
        }
    }
}

fn client_options(timeout: Duration) -> ClientOptions {
    ClientOptions {
        connect_timeout: timeout,
        call_timeout: timeout,
        max_reply_bytes: MAX_REPLY_BYTES,
        ..ClientOptions::default()
    }
}
