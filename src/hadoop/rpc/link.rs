//! The client's side of one connection: a call out, its reply in, and what can go wrong meanwhile.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::call::{Call, PING};
use super::fault::RemoteError;
use super::header::{ConnectionHeader, User};
use super::reply::Reply;
use crate::io::formats::Writable;
use crate::io::{DecodeError, Reader, TooLarge, Writer};
use crate::writables::InetAddress;
use corona_access::{Stream, dial, send};

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

/// An open connection.
#[derive(Debug)]
pub(super) struct Link {
    stream: Stream,
    /// Received bytes of a reply.
    inbox: BytesMut,
    /// Bytes to send before the first call; sent with it, as the original does.
    preamble: Vec<u8>,
    last_used: Instant,
}

/// Room for received bytes, in one step.
const READ_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=256 << 10;

impl Link {
    /// Connects. All addresses of a host are tried in turn.
    pub(super) async fn open(
        address: &InetAddress,
        protocol: &str,
        options: &ClientOptions,
    ) -> io::Result<Link> {
        let user = Some(options.user.clone());
        let header = ConnectionHeader { protocol: protocol.to_owned(), user };
        let preamble = header.preamble(options.max_call_bytes);
        let preamble =
            preamble.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        stream.set_nodelay(true)?;
        let stream = dial(protocol, stream).await?;
        Ok(Link { stream, inbox: BytesMut::new(), preamble, last_used: Instant::now() })
    }

    /// Whether another call can be sent: the connection was not idle for too long, the peer has not
    /// closed it, and nothing unsolicited has arrived.
    pub(super) fn is_usable(&mut self, max_idle: Duration) -> bool {
        self.stream.is_quiet() && self.inbox.is_empty() && self.last_used.elapsed() <= max_idle
    }

    /// Sends a call and waits for a reply. After an error, or a future dropped before its end, the
    /// connection is of no use.
    pub(super) async fn exchange(
        &mut self,
        call: &Call,
        options: &ClientOptions,
    ) -> Result<Reply, CallError> {
        let mut writer = Writer::new(options.max_call_bytes);
        call.encode(&mut writer);
        let call = writer.finish().map_err(CallError::CallTooLarge)?;
        let mut bytes = std::mem::take(&mut self.preamble);
        let length = i32::try_from(call.len()).unwrap_or(i32::MAX);
        bytes.extend(length.to_be_bytes());
        bytes.extend(call);
        self.write(&bytes, options.ping_interval).await?;
        let reply = self.receive(options).await?;
        self.last_used = Instant::now();
        Ok(reply)
    }

    /// Writes, but not for longer than a peer may be silent.
    async fn write(&mut self, bytes: &[u8], due: Duration) -> Result<(), CallError> {
        let written = timeout(due, send(&mut self.stream, bytes)).await;
        Ok(written.map_err(|_| CallError::Timeout(due))??)
    }

    /// Reads until there is a reply. It has no length, so decoding is tried with the bytes
    /// received; it is not tried after every piece, or the cost would grow with the square of the
    /// length.
    async fn receive(&mut self, options: &ClientOptions) -> Result<Reply, CallError> {
        let mut tried_bytes = 0;
        loop {
            // The bytes received during a wait may have completed it.
            if self.inbox.len() == tried_bytes {
                self.read_on(options).await?;
            }
            tried_bytes = self.inbox.len();
            let mut reader = Reader::partial(&self.inbox, options.max_reply_bytes);
            match Reply::decode(&mut reader) {
                Ok(reply) => {
                    let read = reader.position();
                    self.inbox.advance(read);
                    return Ok(reply);
                }
                Err(DecodeError::Truncated) if tried_bytes >= options.max_reply_bytes => {
                    let max_bytes = options.max_reply_bytes;
                    return Err(CallError::ReplyTooLarge(TooLarge { max_bytes }));
                }
                Err(DecodeError::Truncated) => {}
                Err(error) => return Err(error.into()),
            }
            // Trying takes some nanoseconds a byte: this keeps it to a small part of the time.
            let again = Instant::now()
                + Duration::from_nanos(50) * u32::try_from(tried_bytes).unwrap_or(u32::MAX);
            while self.inbox.len() < 2 * tried_bytes {
                match timeout_at(again, self.read()).await {
                    Ok(read) => read?,
                    Err(_) => break,
                }
            }
        }
    }

    /// Waits for some bytes, with signs of life meanwhile.
    async fn read_on(&mut self, options: &ClientOptions) -> Result<(), CallError> {
        loop {
            match timeout(options.ping_interval, self.read()).await {
                Ok(read) => return read,
                Err(_) => self.write(&PING.to_be_bytes(), options.ping_interval).await?,
            }
        }
    }

    async fn read(&mut self) -> Result<(), CallError> {
        let room = self.inbox.len().clamp(*READ_BYTES.start(), *READ_BYTES.end());
        self.inbox.reserve(room);
        match self.stream.read_buf(&mut self.inbox).await? {
            0 => Err(CallError::Closed),
            _ => Ok(()),
        }
    }
}
