//! A client for any service of the contract: one connection, one call at a time.
//!
//! Spec: cluster-manager/01 §1, §2.2, §7.

use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::time::timeout;

use super::inbox::Inbox;
use super::limits::Limits;
use super::message::{self, AnswerBody};
use super::scan::{Bounds, Malformed};
use super::service::{ApplicationFault, Exception, Outcome, Service};
use corona_access::{Stream, dial, send};
use corona_net::memory::{Holding, Memory, Revoked};

/// How long a client waits, and for how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// For a connection, the look-up of the host's name included.
    pub connect_timeout: Duration,
    /// For a call, from the first byte written to the last byte of the answer.
    pub call_timeout: Duration,
    /// Bytes of one answer.
    pub max_reply_bytes: usize,
    /// Structs and containers inside one another in an answer.
    pub max_depth: usize,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            connect_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(60),
            max_reply_bytes: 64 << 20,
            max_depth: 64,
        }
    }
}

/// Why a call has no value. After any but [`Exception`](CallError::Exception),
/// [`Fault`](CallError::Fault) and [`MissingResult`](CallError::MissingResult) the connection is of
/// no more use.
#[derive(Debug, Error)]
pub enum CallError {
    /// The peer answered with an error that the contract declares.
    #[error(transparent)]
    Exception(#[from] Exception),
    /// The peer answered with an error outside the contract.
    #[error("the peer replied: {0}")]
    Fault(ApplicationFault),
    /// The peer answered with neither a value nor an exception.
    #[error("the answer is empty")]
    MissingResult,
    /// The answer belongs to another call.
    #[error("answer {found} where {expected} was due")]
    OutOfSequence {
        /// The sequence id of the call.
        expected: i32,
        /// The sequence id of the answer.
        found: i32,
    },
    /// The answer lacks a required field.
    #[error("incomplete answer: {0}")]
    Incomplete(String),
    /// The response cannot be decoded.
    #[error("not an answer: {0}")]
    Malformed(#[from] Malformed),
    /// The response is a message of another kind than responses have.
    #[error("a message of kind {0} instead of an answer")]
    Kind(u8),
    /// There is no room for more of the answer.
    #[error(transparent)]
    Revoked(#[from] Revoked),
    /// The call is too large to be sent.
    #[error("the call is too large")]
    TooLarge,
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// An earlier call failed or was given up, so that the connection is of no more use.
    #[error("the connection is of no more use after an earlier call")]
    Spent,
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The peer did not answer in time.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// The name cannot be resolved, or the connection was refused.
    #[error("no connection: {0}")]
    Io(#[from] io::Error),
}

/// A call that is encoded once and can be made many times, by any client of its service.
#[derive(Clone, Debug)]
pub struct PreparedCall<S> {
    bytes: Box<[u8]>,
    seqid_at: usize,
    place: usize,
    service: PhantomData<fn() -> S>,
}

impl<S> PreparedCall<S>
where
    S: Service,
{
    /// Encodes a call.
    ///
    /// Errors: [`CallError::TooLarge`].
    pub fn new(call: &S::Call) -> Result<PreparedCall<S>, CallError> {
        let mut bytes = vec![];
        message::write_call::<S>(&mut bytes, call, 0, S::FRAMING)
            .map_err(|_| CallError::TooLarge)?;
        let seqid_at = message::seqid_at(S::method_name(call), S::FRAMING);
        let place = S::place_of_call(call);
        Ok(PreparedCall { bytes: bytes.into(), seqid_at, place, service: PhantomData })
    }

    /// The call as a server with these limits reads it.
    ///
    /// Errors: those of a call that is larger or deeper than the limits allow.
    pub fn read(&self, limits: &Limits) -> Result<S::Call, Malformed> {
        let mut inbox = Inbox::new(S::FRAMING, limits.bounds(), limits.max_frame_bytes);
        inbox.space().extend_from_slice(&self.bytes);
        let taken = inbox.take(|bytes| message::read_call::<S>(bytes, limits.bounds()))?;
        let read = taken.and_then(|incoming| incoming.call.ok());
        read.map(|(_, call)| call).ok_or(Malformed::Unreadable)
    }

    /// How many bytes go over the wire.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// A connection to a server of the service `S`.
#[derive(Debug)]
pub struct Client<S> {
    stream: Stream,
    inbox: Inbox,
    request: Vec<u8>,
    last_seqid: i32,
    /// False while a call is in flight and after one that left the stream in an unknown state.
    usable: bool,
    options: ClientOptions,
    /// Bytes of an incomplete response, among those of other connections.
    held: Option<Holding>,
    service: PhantomData<fn() -> S>,
}

impl<S> Client<S>
where
    S: Service,
{
    /// Connects. `address` may be `(host, port)`; all addresses of a host are tried in turn.
    pub async fn connect(
        address: impl ToSocketAddrs,
        options: ClientOptions,
    ) -> Result<Client<S>, ConnectError> {
        let due = options.connect_timeout;
        let connecting = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            dial(S::NAME, stream).await
        };
        let connected = timeout(due, connecting).await;
        let stream = connected.map_err(|_| ConnectError::Timeout(due))??;
        Ok(Client::over(stream, options))
    }

    /// A client over an existing connection that has carried nothing.
    pub fn over(stream: impl Into<Stream>, options: ClientOptions) -> Client<S> {
        let bounds = bounds(&options);
        Client {
            stream: stream.into(),
            inbox: Inbox::new(S::FRAMING, bounds, options.max_reply_bytes),
            request: vec![],
            last_seqid: 0,
            usable: true,
            options,
            held: None,
            service: PhantomData,
        }
    }

    /// Counts the bytes of incomplete responses among the bytes that other connections hold. A call
    /// fails when there is no room for more, and this connection is one of those that hold most.
    pub fn hold_in(&mut self, memory: &Arc<Memory>) -> io::Result<()> {
        self.held = Some(memory.holding(self.peer_addr()?.ip()));
        Ok(())
    }

    /// Where the peer is.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.tcp().peer_addr()
    }

    /// Whether another call may be made.
    pub fn is_usable(&self) -> bool {
        self.usable
    }

    /// Makes a call and waits for its answer. A future that is dropped before its end leaves the
    /// connection of no use, since the answer may still come.
    pub async fn call(&mut self, call: &S::Call) -> Result<S::Reply, CallError> {
        if !self.usable {
            return Err(CallError::Spent);
        }
        self.last_seqid = self.last_seqid.wrapping_add(1);
        self.request.clear();
        message::write_call::<S>(&mut self.request, call, self.last_seqid, S::FRAMING)
            .map_err(|_| CallError::TooLarge)?;
        self.exchange(S::place_of_call(call)).await
    }

    /// Makes a call that was encoded before. All else is as with [`Client::call`].
    pub async fn call_prepared(&mut self, call: &PreparedCall<S>) -> Result<S::Reply, CallError> {
        if !self.usable {
            return Err(CallError::Spent);
        }
        self.last_seqid = self.last_seqid.wrapping_add(1);
        self.request.clear();
        self.request.extend_from_slice(&call.bytes);
        if let Some(seqid) = self.request.get_mut(call.seqid_at..call.seqid_at + 4) {
            seqid.copy_from_slice(&self.last_seqid.to_be_bytes());
        }
        self.exchange(call.place).await
    }

    /// Sends the encoded request and waits for its answer.
    async fn exchange(&mut self, place: usize) -> Result<S::Reply, CallError> {
        self.usable = false;
        let due = self.options.call_timeout;
        let answer = timeout(due, self.converse(place)).await;
        let result = answer.unwrap_or(Err(CallError::Timeout(due)));
        self.usable = matches!(
            result,
            Ok(_) | Err(CallError::Exception(_) | CallError::Fault(_) | CallError::MissingResult)
        );
        result
    }

    /// Writes the request in one piece and reads until there is an answer.
    async fn converse(&mut self, place: usize) -> Result<S::Reply, CallError> {
        send(&mut self.stream, &self.request).await?;
        let bounds = bounds(&self.options);
        loop {
            let answer =
                self.inbox.take(|bytes| message::read_answer::<S>(bytes, place, bounds))?;
            if let Some(answer) = answer {
                if let Some(held) = &mut self.held {
                    held.set(self.inbox.len())?;
                }
                return self.judge(answer);
            }
            let Some(held) = &mut self.held else {
                match self.stream.read_buf(self.inbox.space()).await? {
                    0 => return Err(CallError::Closed),
                    _ => continue,
                }
            };
            let arrived = tokio::select! {
                biased;
                arrived = self.stream.read_buf(self.inbox.space()) => arrived?,
                () = held.revoked() => return Err(Revoked.into()),
            };
            if arrived == 0 {
                return Err(CallError::Closed);
            }
            held.set(self.inbox.len())?;
        }
    }

    /// The original compares the sequence id of a REPLY only.
    fn judge(&self, answer: message::Answered<S::Reply>) -> Result<S::Reply, CallError> {
        let outcome = match answer.body {
            AnswerBody::Fault(fault) => return Err(CallError::Fault(fault)),
            AnswerBody::Incomplete(text) => return Err(CallError::Incomplete(text)),
            AnswerBody::Kind(kind) => return Err(CallError::Kind(kind)),
            AnswerBody::Result(outcome) => outcome,
        };
        if answer.seqid != self.last_seqid {
            let expected = self.last_seqid;
            return Err(CallError::OutOfSequence { expected, found: answer.seqid });
        }
        match outcome {
            Outcome::Reply(reply) => Ok(reply),
            Outcome::Exception(exception) => Err(exception.into()),
            Outcome::Nothing => Err(CallError::MissingResult),
        }
    }
}

fn bounds(options: &ClientOptions) -> Bounds {
    Bounds { max_bytes: options.max_reply_bytes, max_depth: options.max_depth }
}
