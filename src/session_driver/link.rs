//! The ways to the cluster manager and to the proxy job tracker.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::lookup_host;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::contact::{Caller, Contact};
use super::options::{Endpoint, Timers};
use corona_wire::calls::{
    ClusterManager, ClusterManagerCall, ClusterManagerReply, ProxyJobTracker, ProxyJobTrackerCall,
    ProxyJobTrackerReply,
};
use corona_wire::client::{CallError, Client, ClientOptions, ConnectError};
use corona_wire::{ApplicationFault, Exception, Service};

/// Answers to a session are short.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// Why a call did not get through.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// There is no connection: the name cannot be resolved, or the peer does not accept.
    #[error("no connection: {0}")]
    Connect(#[source] io::Error),
    /// The connection broke, or the peer closed it.
    #[error("{0}")]
    Broken(#[source] io::Error),
    /// The peer did not reply in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The peer's reply is an error, or no reply to the call. The text is for people.
    #[error("{0}")]
    Reply(String),
    /// There was not enough time for the call to get through: [`Timers::end_timeout`].
    #[error("not done within {0:?}")]
    TooLate(Duration),
}

impl CallFailure {
    /// Whether the peer may have carried out the call all the same.
    pub fn may_be_carried_out(&self) -> bool {
        !matches!(self, CallFailure::Connect(_) | CallFailure::TooLate(_))
    }

    pub(super) fn from_call(error: CallError) -> CallFailure {
        match error {
            CallError::Timeout(due) => CallFailure::Timeout(due),
            CallError::Closed => {
                let text = "the peer closed the connection";
                CallFailure::Broken(io::Error::new(io::ErrorKind::ConnectionAborted, text))
            }
            CallError::Io(error) => {
                let text = format!("the connection broke: {error}");
                CallFailure::Broken(io::Error::new(error.kind(), text))
            }
            other => CallFailure::Reply(other.to_string()),
        }
    }

    fn from_connect(error: ConnectError) -> CallFailure {
        match error {
            ConnectError::Timeout(due) => {
                let text = format!("timed out after {due:?}");
                CallFailure::Connect(io::Error::new(io::ErrorKind::TimedOut, text))
            }
            ConnectError::Io(error) => CallFailure::Connect(error),
        }
    }
}

/// Why a call has no result, as far as a session cares.
#[derive(Debug)]
pub(super) enum LinkError {
    SafeMode,
    /// With the handle, or with a sentence.
    InvalidSession(String),
    /// An answer outside the contract. The connection is still good.
    Fault(ApplicationFault),
    Failed(CallFailure),
}

impl LinkError {
    /// For where all that matters is that the call did not get through.
    pub(super) fn into_failure(self) -> CallFailure {
        match self {
            LinkError::Failed(failure) => failure,
            LinkError::Fault(fault) => CallFailure::from_call(CallError::Fault(fault)),
            LinkError::SafeMode => {
                CallFailure::from_call(CallError::Exception(Exception::safe_mode()))
            }
            LinkError::InvalidSession(text) => {
                let exception = Exception::invalid_session_handle(text);
                CallFailure::from_call(CallError::Exception(exception))
            }
        }
    }
}

impl From<CallError> for LinkError {
    fn from(error: CallError) -> LinkError {
        match error {
            CallError::Exception(Exception::SafeMode(_)) => LinkError::SafeMode,
            CallError::Exception(Exception::InvalidSessionHandle(invalid)) => {
                LinkError::InvalidSession(invalid.handle)
            }
            CallError::Fault(fault) => LinkError::Fault(fault),
            error => LinkError::Failed(CallFailure::from_call(error)),
        }
    }
}

impl From<ConnectError> for LinkError {
    fn from(error: ConnectError) -> LinkError {
        LinkError::Failed(CallFailure::from_connect(error))
    }
}

/// Opens connections for the sessions of a host. Looking up a name takes a thread while it lasts,
/// so that sessions which all start or reconnect at once take turns.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    lookups: Arc<Semaphore>,
}

/// Names that may be looked up at the same time.
const MAX_LOOKUPS: usize = 4;

impl Default for Connector {
    fn default() -> Connector {
        Connector { lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }
}

impl Connector {
    /// Connects. The time-out is that of the options, for the look-up and then for the connection.
    async fn connect<S: Service>(
        &self,
        to: &Endpoint,
        options: ClientOptions,
    ) -> Result<Client<S>, ConnectError> {
        let due = options.connect_timeout;
        let found = timeout(due, self.look_up(to)).await;
        let addresses = found.map_err(|_| ConnectError::Timeout(due))??;
        Client::connect(addresses.as_slice(), options).await
    }

    async fn look_up(&self, name: &Endpoint) -> std::io::Result<Vec<SocketAddr>> {
        if let Ok(literal) = name.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(literal, name.port)]);
        }
        // It is never closed.
        let _turn = self.lookups.acquire().await;
        Ok(lookup_host(name.pair()).await?.collect())
    }
}

/// The way to the cluster manager: one connection, opened when it is needed and kept.
#[derive(Debug)]
pub(super) struct Link {
    connector: Connector,
    address: Endpoint,
    options: ClientOptions,
    connection: Option<Client<ClusterManager>>,
    contact: Contact,
    /// Its owner waits for an answer.
    _caller: Caller,
}

impl Link {
    pub(super) fn new(
        connector: Connector,
        address: Endpoint,
        timers: &Timers,
        contact: Contact,
    ) -> Link {
        let options = client_options(timers.client_timeout);
        let _caller = contact.caller();
        Link { connector, address, options, connection: None, contact, _caller }
    }

    /// Makes a call. A kept connection may have been closed by the cluster manager while it was
    /// idle: that counts as a failure only if a new one fails as well.
    pub(super) async fn call(
        &mut self,
        call: &ClusterManagerCall,
    ) -> Result<ClusterManagerReply, LinkError> {
        self.contact.asks();
        let result = self.exchange(call).await;
        match &result {
            Err(LinkError::Failed(_)) => {}
            Err(LinkError::SafeMode) => self.contact.pauses(),
            Ok(_) | Err(LinkError::InvalidSession(_) | LinkError::Fault(_)) => {
                self.contact.answers();
            }
        }
        result
    }

    async fn exchange(
        &mut self,
        call: &ClusterManagerCall,
    ) -> Result<ClusterManagerReply, LinkError> {
        if let Some(kept) = self.connection.as_mut().filter(|kept| kept.is_usable()) {
            match kept.call(call).await {
                Err(CallError::Closed | CallError::Io(_)) => {}
                result => return Ok(result?),
            }
        }
        self.close();
        let fresh = self.connector.connect(&self.address, self.options.clone()).await?;
        Ok(self.connection.insert(fresh).call(call).await?)
    }

    pub(super) fn close(&mut self) {
        self.connection = None;
    }
}

/// The way to the proxy job tracker. Spec: cluster-manager/07 §6.
#[derive(Debug)]
pub(super) struct Proxy {
    connector: Connector,
    address: Option<Endpoint>,
    timeout: Duration,
    poll: Duration,
    contact: Contact,
}

impl Proxy {
    pub(super) fn new(
        connector: Connector,
        address: Option<Endpoint>,
        timers: &Timers,
        contact: Contact,
    ) -> Proxy {
        let Timers { proxy_timeout, safe_mode_poll, .. } = *timers;
        Proxy { connector, address, timeout: proxy_timeout, poll: safe_mode_poll, contact }
    }

    /// Waits until the flag is not set, forever if necessary. Returns whether it was set. A proxy
    /// job tracker that does not answer cannot say that it is: the cluster manager is asked again.
    pub(super) async fn wait_while_in_safe_mode(&self) -> bool {
        let mut waited = false;
        match self.wait(&mut waited).await {
            Ok(()) => {}
            Err(error) => tracing::debug!(
                "could not check the safe mode flag on the proxy job tracker: {error}"
            ),
        }
        waited
    }

    /// A connection that breaks while the flag is set is reopened.
    async fn wait(&self, waited: &mut bool) -> Result<(), CallFailure> {
        let Some(address) = &self.address else { return Ok(()) };
        let ask = ProxyJobTrackerCall::GetClusterManagerSafeModeFlag;
        loop {
            let options = client_options(self.timeout);
            let client = self.connector.connect::<ProxyJobTracker>(address, options).await;
            let mut client = client.map_err(CallFailure::from_connect)?;
            let mut answered = false;
            loop {
                match client.call(&ask).await {
                    Ok(ProxyJobTrackerReply::GetClusterManagerSafeModeFlag(true)) => {}
                    Ok(_) => return Ok(()),
                    Err(CallError::Closed | CallError::Io(_)) if answered => break,
                    Err(error) => return Err(CallFailure::from_call(error)),
                }
                self.contact.pauses();
                (answered, *waited) = (true, true);
                sleep(self.poll).await;
            }
        }
    }
}

/// The directory of the files of jobs, as the proxy job tracker names it, within this time for a
/// connection and again for the reply. Spec: mapreduce/03 §3.9.
///
/// # Errors
/// The proxy job tracker does not answer.
pub async fn system_dir(proxy: &Endpoint, timeout: Duration) -> Result<String, CallFailure> {
    let options = client_options(timeout);
    let address = (proxy.host.as_str(), proxy.port);
    let client = Client::<ProxyJobTracker>::connect(address, options).await;
    let mut client = client.map_err(CallFailure::from_connect)?;
    match client.call(&ProxyJobTrackerCall::GetSystemDir).await {
        Ok(ProxyJobTrackerReply::GetSystemDir(directory)) => Ok(directory),
        Ok(_) => Err(CallFailure::from_call(CallError::MissingResult)),
        Err(error) => Err(CallFailure::from_call(error)),
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
