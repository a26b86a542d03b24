//! The server's side of one connection: a task that reads calls, starts them and writes replies.
//!
//! Calls of a connection are carried out at the same time and answered as they end, as in the
//! original. A call whose connection ends is carried out to its end: the peer cannot know how far
//! it came. Spec: mapreduce/01 §1.2 to §1.4, §1.8.

use std::sync::Arc;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::call::{Call, PING};
use super::fault::Fault;
use super::header::{Caller, ConnectionHeader, MAGIC};
use super::reply::{Outcome, Reply};
use super::server::ServerContext;
use super::services::Target;
use crate::io::formats::Writable;
use crate::io::{DecodeError, Reader, Writer};
use corona_access::{NO_TLS, Peer, Stream, is_tls, send};
use corona_net::Ending;
use corona_net::memory::Holding;

/// Replies are written once they amount to this much, even if more are there.
const WRITE_BYTES: usize = 64 << 10;
/// Room for received bytes: at first, and at most in one step.
const READ_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=64 << 10;
const LENGTH_BYTES: usize = 4;

pub(super) struct Connection {
    stream: Stream,
    peer: Peer,
    shared: Arc<ServerContext>,
    /// Bytes that are received but not handled.
    inbox: BytesMut,
    /// The header as it has arrived, for a server that goes on with the connection.
    header: Vec<u8>,
    /// The caller and its protocol, once the header is there.
    opened: Option<(Arc<Caller>, Target)>,
    calls: JoinSet<Done>,
    /// Bytes of the calls that are carried out.
    inflight_bytes: usize,
    /// When the header or the call that has begun to arrive must be there.
    frame_due: Option<Instant>,
    account: Account,
}

/// A call that has been carried out.
struct Done {
    call_bytes: usize,
    reply: Vec<u8>,
    /// The reply's bytes among those in flight.
    _held: Holding,
}

/// The state of the received bytes.
enum Arrived {
    /// Nothing: more must arrive.
    Incomplete,
    /// Nothing: a call must wait until others have ended.
    Waiting,
    /// A call, to be carried out.
    Call { bytes: BytesMut },
    /// Something that needs no answer.
    Handled,
}

impl Connection {
    /// A connection of which a former server has received something that is to be read first.
    pub(super) fn new(
        stream: Stream,
        peer: Peer,
        received: &[u8],
        shared: Arc<ServerContext>,
    ) -> Connection {
        shared.counters.count_accepted();
        let account = Account {
            held: shared.memory.holding(peer.ip()),
            shared: shared.clone(),
            ending: Ending::Shutdown,
        };
        let frame_due = Instant::now().checked_add(shared.limits.frame_timeout);
        let inbox = BytesMut::from(received);
        Connection {
            stream,
            peer,
            shared,
            inbox,
            header: Vec::new(),
            opened: None,
            calls: JoinSet::new(),
            inflight_bytes: 0,
            frame_due,
            account,
        }
    }

    pub(super) async fn run(mut self, stop: watch::Receiver<bool>) {
        let _ = self.stream.tcp().set_nodelay(true);
        let Err(ending) = self.converse(stop).await;
        self.account.ending = ending;
        self.calls.detach_all();
        if ending == Ending::Shutdown {
            self.header.extend_from_slice(&self.inbox);
            self.shared.keep(self.stream, self.header);
        }
        tracing::debug!(peer = %self.peer, why = ending.name(), "Hadoop RPC connection closed");
    }

    async fn converse(
        &mut self,
        mut stop: watch::Receiver<bool>,
    ) -> Result<std::convert::Infallible, Ending> {
        let mut stopping = false;
        loop {
            let reading = !stopping && self.handle_arrived().await?;
            if stopping && self.calls.is_empty() {
                return Err(Ending::Shutdown);
            }
            let due = self.due(reading);
            let alarm = sleep_until(due.unwrap_or_else(Instant::now));
            let stopped = async {
                let _ = stop.wait_for(|stop| *stop).await;
            };
            tokio::select! {
                biased;
                () = stopped, if !stopping => stopping = true,
                () = self.account.held.revoked() => return Err(Ending::Memory),
                Some(done) = self.calls.join_next() => self.answer(done).await?,
                arrival = self.stream.read_buf(&mut self.inbox), if reading => match arrival {
                    Err(_) => return Err(Ending::Broken),
                    Ok(0) if self.inbox.is_empty() => return Err(Ending::Peer),
                    Ok(0) => return Err(Ending::Broken),
                    Ok(_) => self.hold_inbox()?,
                },
                () = alarm, if due.is_some() => {
                    return Err(if self.begun() { Ending::SlowFrame } else { Ending::Idle });
                }
            }
        }
    }

    /// Whether a header or a call has begun to arrive. A header is due from the start.
    fn begun(&self) -> bool {
        self.opened.is_none() || !self.inbox.is_empty()
    }

    /// When the peer must have sent something; never, if it waits for us.
    fn due(&mut self, reading: bool) -> Option<Instant> {
        let limits = &self.shared.limits;
        if !reading {
            return None;
        }
        if self.begun() {
            let frame_timeout = limits.frame_timeout;
            return Some(*self.frame_due.get_or_insert_with(|| Instant::now() + frame_timeout));
        }
        self.frame_due = None;
        let idle = Some(limits.idle_timeout).filter(|idle| !idle.is_zero());
        idle.filter(|_| self.calls.is_empty()).and_then(|idle| Instant::now().checked_add(idle))
    }

    /// Starts every complete call that may start. Returns whether more is to be read.
    async fn handle_arrived(&mut self) -> Result<bool, Ending> {
        loop {
            // A peer that has sent many calls at once must not keep others from being served.
            tokio::task::coop::consume_budget().await;
            let arrived = match self.opened {
                None => self.take_header(),
                Some(_) => self.take_frame(),
            };
            match arrived.map_err(|error| self.malformed(&error))? {
                Arrived::Handled => {}
                Arrived::Call { bytes } => self.start(&bytes)?,
                Arrived::Waiting => return Ok(false),
                Arrived::Incomplete => {
                    let room = self.inbox.len().clamp(*READ_BYTES.start(), *READ_BYTES.end());
                    self.inbox.reserve(room);
                    return Ok(true);
                }
            }
            self.frame_due = None;
            self.hold_inbox()?;
        }
    }

    /// Takes the header of a connection, once it is complete. A faulty one is refused at once.
    fn take_header(&mut self) -> Result<Arrived, DecodeError> {
        let magic = self.inbox.iter().zip(MAGIC).find(|(found, due)| **found != *due);
        if let Some((found, _)) = magic {
            if is_tls(&self.inbox) {
                let _ = self.stream.write_now(NO_TLS);
            }
            let value = i64::from(*found);
            return Err(DecodeError::Number { kind: "connection header", value });
        }
        let Some(length) = self.length(MAGIC.len(), self.shared.limits.max_header_bytes)? else {
            return Ok(Arrived::Incomplete);
        };
        let start = MAGIC.len() + LENGTH_BYTES;
        let Some(header) = self.inbox.get(start..start + length) else {
            return Ok(Arrived::Incomplete);
        };
        let header = ConnectionHeader::decode(&mut Reader::new(header))?;
        let target = self.shared.services.target(&header.protocol);
        let target = target.ok_or_else(|| DecodeError::class(&header.protocol))?;
        let caller = Caller::new(self.peer.clone(), header.user);
        self.opened = Some((Arc::new(caller), target));
        self.header = self.inbox.split_to(start + length).to_vec();
        Ok(Arrived::Handled)
    }

    /// Takes a call or a sign of life, once it is complete.
    fn take_frame(&mut self) -> Result<Arrived, DecodeError> {
        if self.inbox.starts_with(&PING.to_be_bytes()) {
            self.inbox.advance(LENGTH_BYTES);
            return Ok(Arrived::Handled);
        }
        let limits = &self.shared.limits;
        let Some(length) = self.length(0, limits.max_call_bytes)? else {
            return Ok(Arrived::Incomplete);
        };
        if self.inbox.len() < LENGTH_BYTES + length {
            return Ok(Arrived::Incomplete);
        }
        let many = self.calls.len() >= limits.max_calls;
        let large = self.inflight_bytes.saturating_add(length) > limits.max_inflight_bytes;
        if many || (large && !self.calls.is_empty()) {
            return Ok(Arrived::Waiting);
        }
        self.inbox.advance(LENGTH_BYTES);
        Ok(Arrived::Call { bytes: self.inbox.split_to(length) })
    }

    /// The length at this place, if it is complete.
    fn length(&self, at: usize, limit: usize) -> Result<Option<usize>, DecodeError> {
        let bytes = self.inbox.get(at..).and_then(|bytes| bytes.first_chunk());
        let Some(length) = bytes.map(|bytes| i32::from_be_bytes(*bytes)) else {
            return Ok(None);
        };
        match usize::try_from(length) {
            Ok(length) if length <= limit => Ok(Some(length)),
            _ => Err(DecodeError::Length { length: length.into(), left: limit }),
        }
    }

    /// Starts to carry out a call. One that cannot be read ends the connection without a word, as
    /// in the original.
    fn start(&mut self, bytes: &[u8]) -> Result<(), Ending> {
        let Some((caller, target)) = self.opened.clone() else { return Ok(()) };
        let call = Call::decode(&mut Reader::new(bytes)).map_err(|error| self.malformed(&error))?;
        let call_bytes = bytes.len();
        let mut held = self.account.held.part();
        self.inflight_bytes += call_bytes;
        held.set(call_bytes)?;
        self.shared.counters.count_call();
        let shared = self.shared.clone();
        self.calls.spawn(async move {
            // The semaphore is never closed.
            let _permit = shared.running.acquire().await;
            let id = call.id;
            let result = shared.services.call(target, caller, call).await;
            if result.is_err() {
                shared.counters.count_fault();
            }
            let reply = encode(id, result.map_or_else(error, Outcome::Value), &shared);
            // If there is no room for it, the connection itself notices that it is to end.
            let _ = held.set(reply.len());
            Done { call_bytes, reply, _held: held }
        });
        Ok(())
    }

    /// Writes this reply and other finished ones.
    async fn answer(&mut self, first: Result<Done, JoinError>) -> Result<(), Ending> {
        let mut next = Some(first);
        let mut replies = Vec::new();
        let mut written = Vec::new();
        while let Some(done) = next {
            let done = done.map_err(|_| Ending::Panic)?;
            self.inflight_bytes -= done.call_bytes;
            replies.extend_from_slice(&done.reply);
            written.push(done);
            let more = replies.len() < WRITE_BYTES;
            next = if more { self.calls.try_join_next() } else { None };
        }
        let due = self.shared.limits.write_timeout;
        tokio::select! {
            biased;
            written = timeout(due, send(&mut self.stream, &replies)) => match written {
                Err(_) => Err(Ending::SlowReader),
                Ok(Err(_)) => Err(Ending::Broken),
                Ok(Ok(())) => Ok(()),
            },
            () = self.account.held.revoked() => Err(Ending::Memory),
        }
    }

    fn hold_inbox(&mut self) -> Result<(), Ending> {
        Ok(self.account.held.set(self.inbox.len())?)
    }

    fn malformed(&self, error: &DecodeError) -> Ending {
        tracing::debug!(peer = %self.peer, %error, "not Hadoop RPC; closing the connection");
        Ending::Malformed
    }
}

fn error(fault: Fault) -> Outcome {
    Outcome::Error(fault.into())
}

/// The bytes of a reply. If the value is too large, the caller gets an error.
fn encode(id: i32, outcome: Outcome, shared: &ServerContext) -> Vec<u8> {
    let encoded = |outcome, max_bytes| {
        let mut writer = Writer::new(max_bytes);
        Reply { id, outcome }.encode(&mut writer);
        writer.finish()
    };
    encoded(outcome, shared.limits.max_reply_bytes).unwrap_or_else(|too_large| {
        tracing::error!(%too_large, "reply is too large; sending an error instead");
        let fault = Fault::io(format!("the reply has {too_large}"));
        encoded(error(fault), usize::MAX).unwrap_or_default()
    })
}

/// A connection's part in the counters. It is settled when the connection ends, for any reason.
struct Account {
    held: Holding,
    shared: Arc<ServerContext>,
    ending: Ending,
}

impl Drop for Account {
    fn drop(&mut self) {
        self.shared.counters.count_ended(self.ending);
    }
}
