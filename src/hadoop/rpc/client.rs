//! A client of one protocol: one connection, one call at a time.
//!
//! It connects at its first call, sends its identity and compares versions. When the connection has
//! been closed, or has been idle for long, the next call opens another, without that comparison, as
//! the original's clients do. A call is sent once: failures on the way are returned, because it is
//! not known how far the call came. Spec: mapreduce/01 §1.6, §1.7.

use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, timeout};

use super::argument::Argument;
use super::call::Call;
use super::fault::RemoteError;
use super::header::User;
use super::link::Link;
use super::protocol::{Protocol, SIGNATURE, VERSION};
use super::reply::Outcome;
use crate::io::{DecodeError, TooLarge};
use crate::object::Object;
use crate::writables::{InetAddress, ProtocolSignature};

/// A client's identity, timeouts and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Its claimed identity.
    pub user: User,
    /// For one attempt to connect, the look-up of the host's name included.
    pub attempt_timeout: Duration,
    /// How long it tries again after a failed attempt; zero is a single attempt.
    pub connect_patience: Duration,
    /// The pause between two attempts.
    pub connect_pause: Duration,
    /// For a call, from the first byte written to the last byte of the reply. `None` is as long as
    /// the connection lasts; signs of life are sent meanwhile.
    pub call_timeout: Option<Duration>,
    /// After how long a time without a reply a sign of life is sent. A peer that does not take a
    /// call within this time is given up.
    pub ping_interval: Duration,
    /// A connection that was idle for longer is not used again.
    pub max_idle: Duration,
    /// Bytes of a call. A longer one is not sent.
    pub max_call_bytes: usize,
    /// Bytes of a reply. A longer one ends the connection.
    pub max_reply_bytes: usize,
}

impl ClientOptions {
    /// The original's values for a user, and limits that it does not have.
    pub fn new(user: User) -> ClientOptions {
        ClientOptions {
            user,
            attempt_timeout: Duration::from_secs(20),
            connect_patience: Duration::from_secs(11),
            connect_pause: Duration::from_secs(1),
            call_timeout: None,
            ping_interval: Duration::from_secs(60),
            max_idle: Duration::from_secs(10),
            max_call_bytes: 64 << 20,
            max_reply_bytes: 64 << 20,
        }
    }
}

/// Why a call has no value.
#[derive(Debug, Error)]
pub enum CallError {
    /// There is no connection: nothing was sent.
    #[error("no connection to {address}: {error}")]
    Connect {
        /// Where to.
        address: InetAddress,
        /// The error of the last attempt.
        error: std::io::Error,
    },
    /// The peer answered with an error.
    #[error("the peer replied: {0}")]
    Remote(RemoteError),
    /// The peer refused the connection with an error.
    #[error("the peer refuses the connection: {0}")]
    Refused(RemoteError),
    /// The peer's protocol has another version.
    #[error("{protocol} has version {theirs} there and {ours} here")]
    Version {
        /// The protocol's name.
        protocol: &'static str,
        /// The peer's version.
        theirs: i64,
        /// The version that this program knows.
        ours: i64,
    },
    /// The reply is to another call.
    #[error("a reply to call {found} where {expected} was due")]
    OutOfSequence {
        /// The id of the call.
        expected: i32,
        /// The id of the reply.
        found: i32,
    },
    /// The reply's type is not the method's.
    #[error("{0} where {1} was due")]
    WrongResult(String, &'static str),
    /// The received bytes are not a reply.
    #[error("not a reply: {0}")]
    Malformed(#[from] DecodeError),
    /// The call is too large to be sent.
    #[error("the call has {0}")]
    CallTooLarge(TooLarge),
    /// The reply is larger than allowed.
    #[error("the reply has {0}")]
    ReplyTooLarge(TooLarge),
    /// No reply in time, or the peer did not take the call in time.
    #[error("no reply within {0:?}")]
    Timeout(Duration),
    /// The peer closed the connection. It does so without a word when it cannot read a call.
    #[error("the peer closed the connection")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
}

impl CallError {
    /// Whether the connection failed, so that another address may be the right one.
    pub fn is_connect(&self) -> bool {
        matches!(self, CallError::Connect { .. })
    }

    /// Whether the peer has answered that it did not carry out the call. Any other error leaves that open.
    pub fn is_answer(&self) -> bool {
        matches!(self, CallError::Remote(_) | CallError::Refused(_) | CallError::Version { .. })
            || self.is_http()
    }

    /// Whether the received bytes are the start of an HTTP response, as the port of pages sends it:
    /// `HTTP` was read as the id of the call, and `/1.1` or `/1.0` as the status.
    pub fn is_http(&self) -> bool {
        let CallError::Malformed(DecodeError::Number { value, .. }) = self else { return false };
        [*b"/1.1", *b"/1.0"].iter().any(|text| *value == i64::from(i32::from_be_bytes(*text)))
    }
}

/// A client of a protocol at an address.
#[derive(Debug)]
pub struct Client {
    address: InetAddress,
    protocol: &'static Protocol,
    options: ClientOptions,
    link: Option<Link>,
    next_id: i32,
    /// Whether versions have been compared.
    greeted: bool,
}

impl Client {
    /// A client that has not connected yet.
    pub fn new(
        address: InetAddress,
        protocol: &'static Protocol,
        options: ClientOptions,
    ) -> Client {
        Client { address, protocol, options, link: None, next_id: 0, greeted: false }
    }

    /// Where it connects to.
    pub fn address(&self) -> &InetAddress {
        &self.address
    }

    /// Whether an open connection exists that the next call will use. Its end may be detected late,
    /// so a call may fail nonetheless.
    pub fn is_connected(&mut self) -> bool {
        self.link.as_mut().is_some_and(|link| link.is_usable(self.options.max_idle))
    }

    /// Connects and compares versions, unless that has been done. Calls do it automatically; this
    /// is for callers that want to know first.
    pub async fn greet(&mut self) -> Result<(), CallError> {
        if self.greeted {
            return Ok(());
        }
        let Protocol { name, version, .. } = self.protocol;
        let (name, ours) = (name.to_string(), *version);
        let fingerprint = self.protocol.fingerprint();
        let parameters =
            vec![name.clone().into_object(), ours.into_object(), fingerprint.into_object()];
        match self.send::<ProtocolSignature>(SIGNATURE.name, parameters).await {
            Ok(_) => {}
            Err(CallError::Remote(error)) if error.is_no_such_method() => {
                let parameters = vec![name.into_object(), ours.into_object()];
                let theirs: i64 = self.send(VERSION.name, parameters).await?;
                if theirs != ours {
                    let protocol = self.protocol.name;
                    return Err(CallError::Version { protocol, theirs, ours });
                }
            }
            Err(error) => return Err(error),
        }
        self.greeted = true;
        Ok(())
    }

    /// Calls the protocol's method of this name and waits for its result. A future that is dropped
    /// before its end closes the connection, since the reply may still come.
    pub async fn call<T: Argument>(
        &mut self,
        method: &str,
        parameters: Vec<Object>,
    ) -> Result<T, CallError> {
        self.greet().await?;
        self.send(method, parameters).await
    }

    async fn send<T: Argument>(
        &mut self,
        method: &str,
        parameters: Vec<Object>,
    ) -> Result<T, CallError> {
        // While a call is in flight the link is not here, so that it is dropped with the future.
        let usable = self.link.take_if(|link| link.is_usable(self.options.max_idle));
        let mut link = match usable {
            Some(link) => link,
            None => self.connect().await?,
        };
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let call = Call { id, method: method.to_owned(), parameters };
        let exchange = link.exchange(&call, &self.options);
        let reply = match self.options.call_timeout {
            None => exchange.await?,
            Some(due) => timeout(due, exchange).await.map_err(|_| CallError::Timeout(due))??,
        };
        if let Outcome::Fatal(error) = reply.outcome {
            return Err(CallError::Refused(error));
        }
        if reply.id != id {
            return Err(CallError::OutOfSequence { expected: id, found: reply.id });
        }
        self.link = Some(link);
        match reply.outcome {
            Outcome::Value(object) => T::from_object(object)
                .map_err(|object| CallError::WrongResult(object.class().to_string(), T::CLASS)),
            Outcome::Error(error) | Outcome::Fatal(error) => Err(CallError::Remote(error)),
        }
    }

    /// Connects, with as many attempts as the options allow.
    async fn connect(&self) -> Result<Link, CallError> {
        let begun = Instant::now();
        loop {
            let due = self.options.attempt_timeout;
            let attempt = Link::open(&self.address, self.protocol.name, &self.options);
            let error = match timeout(due, attempt).await {
                Ok(Ok(link)) => return Ok(link),
                Ok(Err(error)) => error,
                Err(_) => std::io::ErrorKind::TimedOut.into(),
            };
            let pause = self.options.connect_pause;
            // A peer that is no member of the cluster any more will not become one in a moment.
            let is_refused = error.kind() == std::io::ErrorKind::PermissionDenied;
            if is_refused || begun.elapsed() + pause > self.options.connect_patience {
                let address = self.address.clone();
                return Err(CallError::Connect { address, error });
            }
            tracing::debug!(address = %self.address, %error, "cannot connect yet; retrying");
            tokio::time::sleep(pause).await;
        }
    }
}
