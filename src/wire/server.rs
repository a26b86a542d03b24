//! A server for any service of the contract: one task for each connection, calls of a connection
//! strictly one after the other.
//!
//! A peer can do no more than lose its connection. What closes one is counted, see
//! [`Counters`]. Nothing is said to a peer that breaks the protocol, as in the original.
//! Spec: cluster-manager/01 §1.1, §2 to §4.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::accept::accept_until_stopped;
use super::inbox::Inbox;
pub use super::limits::{Counters, Ending, Limits};
use super::message::{self, Incoming};
use super::scan::Malformed;
use super::service::{ApplicationFault, Exception, Framing, Service};

/// What a service does with its calls.
///
/// Closures of the same shape are handlers too.
pub trait Handler<S: Service>: Send + Sync + 'static {
    /// Answers one call. Calls of one connection come one at a time, those of different
    /// connections at the same time. A panic ends the connection and nothing else.
    fn call(
        &self,
        peer: SocketAddr,
        call: S::Call,
    ) -> impl Future<Output = Answer<S::Reply>> + Send;
}

impl<S, F, A> Handler<S> for F
where
    S: Service,
    F: Fn(SocketAddr, S::Call) -> A + Send + Sync + 'static,
    A: Future<Output = Answer<S::Reply>> + Send,
{
    fn call(
        &self,
        peer: SocketAddr,
        call: S::Call,
    ) -> impl Future<Output = Answer<S::Reply>> + Send {
        self(peer, call)
    }
}

/// What a caller is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<R> {
    /// The call went well. The reply must be of the method that was called, or the connection is
    /// closed.
    Reply(R),
    /// An error that the contract declares. If it does not for this method, the connection is
    /// closed, as in the original.
    Exception(Exception),
    /// An error outside the contract. A Java client takes it for a lost connection, except in
    /// `sessionHeartbeatV2`, where it gives up that method for good.
    Fault(ApplicationFault),
    /// Nothing: the connection is closed. Replies to earlier calls are sent.
    Close,
}

impl<R> From<Result<R, Exception>> for Answer<R> {
    fn from(result: Result<R, Exception>) -> Answer<R> {
        result.map_or_else(Answer::Exception, Answer::Reply)
    }
}

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenOn {
    /// This port of all addresses, of both families where the machine has both. 0 is any free
    /// port. This is what the original does with `cm.server.address`.
    AnyAddress(u16),
    /// This address only.
    Address(SocketAddr),
}

/// Opens a listener with address reuse and room for as many connections that wait to be accepted as
/// the system allows (`net.core.somaxconn`), so that all task trackers may come back at once.
/// Must be called within a tokio runtime.
///
/// Errors: those of the system, such as a port that is taken.
pub fn listen(on: ListenOn) -> io::Result<TcpListener> {
    match on {
        ListenOn::Address(address) => open(address),
        ListenOn::AnyAddress(port) => match open((Ipv6Addr::UNSPECIFIED, port).into()) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                open((Ipv4Addr::UNSPECIFIED, port).into())
            }
            result => result,
        },
    }
}

/// Connections that wait to be accepted; the system's limit is lower.
const BACKLOG: i32 = 1 << 16;

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};

    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// A server of the service `S`, ready to run.
#[derive(Debug)]
pub struct Server<H> {
    listener: TcpListener,
    shared: Arc<Shared<H>>,
}

#[derive(Debug)]
struct Shared<H> {
    handler: H,
    limits: Limits,
    counters: Arc<Counters>,
    /// Held while much is read: see [`MUCH_BYTES`].
    reading_much: Semaphore,
}

impl<H> Server<H> {
    /// A server on this listener, which hands calls to this handler.
    pub fn new(listener: TcpListener, handler: H, limits: Limits) -> Server<H> {
        let (counters, reading_much) = (Arc::default(), Semaphore::new(1));
        let shared = Shared { handler, limits, counters, reading_much };
        Server { listener, shared: Arc::new(shared) }
    }

    /// What it counts; may be read while it runs and after.
    pub fn counters(&self) -> Arc<Counters> {
        self.shared.counters.clone()
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` becomes true or its sender is gone. Then accepts no more, closes
    /// connections that wait for a call, lets calls under way be answered, and ends the rest after
    /// [`Limits::drain_timeout`].
    pub async fn run<S>(self, stop: watch::Receiver<bool>)
    where
        S: Service,
        H: Handler<S>,
    {
        let shared = self.shared.clone();
        let mut connections = accept_until_stopped(
            self.listener,
            stop.clone(),
            shared.limits.max_connections,
            &shared.counters,
            S::NAME,
            |stream, peer| {
                Connection::new(stream, peer, shared.clone(), S::FRAMING).run::<S>(stop.clone())
            },
        )
        .await;
        let drained = async { while connections.join_next().await.is_some() {} };
        if timeout(self.shared.limits.drain_timeout, drained).await.is_err() {
            connections.shutdown().await;
        }
    }
}

/// Replies are written once they amount to this much, even if more calls wait.
const WRITE_BYTES: usize = 64 * 1024;
/// A connection that waits keeps a buffer of at most this size for its next reply.
const KEEP_BYTES: usize = 4 * 1024;
/// Connections that have sent this much at once take turns in having it read, first come first
/// served. So one thread at most reads long requests while the others serve heartbeats, releases
/// and whatever else is short.
const MUCH_BYTES: usize = 32 * 1024;

struct Connection<H> {
    stream: TcpStream,
    peer: SocketAddr,
    framing: Framing,
    inbox: Inbox,
    replies: Vec<u8>,
    /// When the frame or message that has begun to arrive must be there.
    frame_due: Option<Instant>,
    /// Rings at or before the time when the connection has waited too long. Each wait moves that
    /// time; moving the alarm each time would cost more than decoding most messages.
    alarm: Pin<Box<Sleep>>,
    account: Account<H>,
}

/// What a connection has in the counters. It is put right when the connection ends, however.
struct Account<H> {
    shared: Arc<Shared<H>>,
    inflight_bytes: usize,
    ending: Ending,
}

impl<H> Account<H> {
    /// Books the bytes that the connection holds now.
    fn hold(&mut self, bytes: usize) -> Result<(), Ending> {
        let total = self.shared.counters.move_inflight(self.inflight_bytes, bytes);
        let grown = bytes > self.inflight_bytes;
        self.inflight_bytes = bytes;
        if grown && total > self.shared.limits.max_total_inflight_bytes as u64 {
            return Err(Ending::Memory);
        }
        Ok(())
    }
}

impl<H> Drop for Account<H> {
    fn drop(&mut self) {
        self.shared.counters.move_inflight(self.inflight_bytes, 0);
        let panicked = std::thread::panicking();
        self.shared.counters.count_ended(if panicked { Ending::Panic } else { self.ending });
    }
}

impl<H> Connection<H> {
    fn new(
        stream: TcpStream,
        peer: SocketAddr,
        shared: Arc<Shared<H>>,
        framing: Framing,
    ) -> Connection<H> {
        shared.counters.count_accepted();
        let limits = &shared.limits;
        let inbox = Inbox::new(framing, limits.bounds(), limits.max_frame_bytes);
        let alarm = Box::pin(sleep(limits.frame_timeout));
        // A task that is dropped before its end was stopped with the server.
        let account = Account { shared, inflight_bytes: 0, ending: Ending::Shutdown };
        Connection {
            stream,
            peer,
            framing,
            inbox,
            replies: vec![],
            frame_due: None,
            alarm,
            account,
        }
    }

    async fn run<S>(mut self, mut stop: watch::Receiver<bool>)
    where
        S: Service,
        H: Handler<S>,
    {
        // Without it replies are slower; that is no reason to refuse the peer.
        let _ = self.stream.set_nodelay(true);
        let stop_now = stop.clone();
        let mut stopped = pin!(stop.wait_for(|stop| *stop));
        let ending = loop {
            let handled = self.handle_arrived::<S>(&stop_now).await;
            let written = self.write().await;
            if let Err(ending) = handled.and(written) {
                break ending;
            }
            if let Err(ending) = self.read(stopped.as_mut()).await {
                break ending;
            }
        };
        self.account.ending = ending;
        tracing::debug!(peer = %self.peer, service = S::NAME, why = ending.name(), "closed");
    }

    /// Handles every message that is there.
    async fn handle_arrived<S>(&mut self, stop: &watch::Receiver<bool>) -> Result<(), Ending>
    where
        S: Service,
        H: Handler<S>,
    {
        let bounds = self.account.shared.limits.bounds();
        let max_inflight = self.account.shared.limits.max_inflight_bytes;
        loop {
            // A peer that has sent many calls at once must not keep others from being served.
            tokio::task::coop::consume_budget().await;
            let inflight = self.inbox.len() + self.replies.len();
            if self.replies.len() >= WRITE_BYTES || inflight > max_inflight {
                self.write().await?;
            }
            let taken = {
                let much = self.inbox.len() >= MUCH_BYTES;
                // The semaphore is never closed.
                let _turn = match much {
                    true => self.account.shared.reading_much.acquire().await.ok(),
                    false => None,
                };
                self.inbox.take(|bytes| message::read_call::<S>(bytes, bounds))
            };
            let Some(incoming) = taken.map_err(|malformed| self.malformed(malformed))? else {
                return Ok(());
            };
            self.frame_due = None;
            if *stop.borrow() {
                return Err(Ending::Shutdown);
            }
            self.answer::<S>(incoming).await?;
        }
    }

    async fn answer<S>(&mut self, incoming: Incoming<S::Call>) -> Result<(), Ending>
    where
        S: Service,
        H: Handler<S>,
    {
        let Incoming { seqid, name, call } = incoming;
        let shared = &self.account.shared;
        let (place, call) = match call {
            Ok(call) => call,
            Err(fault) => {
                shared.counters.count_fault();
                return self
                    .send(|out, framing| message::write_fault(out, &name, &fault, seqid, framing));
            }
        };
        shared.counters.count_call();
        match shared.handler.call(self.peer, call).await {
            Answer::Reply(reply) => self.send(|out, framing| {
                message::write_result::<S>(out, place, Ok(&reply), seqid, framing)
            }),
            Answer::Exception(exception) => self.send(|out, framing| {
                message::write_result::<S>(out, place, Err(&exception), seqid, framing)
            }),
            Answer::Fault(fault) => {
                self.send(|out, framing| message::write_fault(out, &name, &fault, seqid, framing))
            }
            Answer::Close => Err(Ending::Handler),
        }
    }

    /// Adds a reply to those that wait to be written.
    fn send(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>, Framing) -> Result<(), message::Unsendable>,
    ) -> Result<(), Ending> {
        let start = self.replies.len();
        let written = write(&mut self.replies, self.framing);
        let limit = self.account.shared.limits.max_frame_bytes;
        let large = self.replies.len() - start > limit.saturating_add(4);
        let result = written.and(if large {
            self.replies.truncate(start);
            Err(message::Unsendable::TooLarge { limit })
        } else {
            Ok(())
        });
        if let Err(error) = result {
            tracing::error!(peer = %self.peer, %error, "a call has no answer");
            return Err(Ending::Handler);
        }
        self.account.hold(self.inbox.len() + self.replies.len())
    }

    /// Writes the replies that wait.
    async fn write(&mut self) -> Result<(), Ending> {
        if self.replies.is_empty() {
            return Ok(());
        }
        // Nearly always the socket takes all at once, and nobody need wait.
        let written = match self.stream.try_write(&self.replies) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => return Err(Ending::Broken),
        };
        if let rest @ [_, ..] = &self.replies[written..] {
            let due = self.account.shared.limits.write_timeout;
            match timeout(due, self.stream.write_all(rest)).await {
                Err(_) => return Err(Ending::SlowReader),
                Ok(Err(_)) => return Err(Ending::Broken),
                Ok(Ok(())) => {}
            }
        }
        self.replies.clear();
        if self.replies.capacity() > KEEP_BYTES {
            self.replies = vec![];
        }
        self.account.hold(self.inbox.len())
    }

    /// Waits for bytes from the peer.
    async fn read(&mut self, mut stopped: Pin<&mut impl Future>) -> Result<(), Ending> {
        let begun = !self.inbox.is_empty();
        let due = self.due(begun);
        if let Some(due) = due
            && (due < self.alarm.deadline() || self.alarm.is_elapsed())
        {
            self.alarm.as_mut().reset(due);
        }
        let arrival = loop {
            tokio::select! {
                biased;
                arrival = self.stream.read_buf(self.inbox.space()) => break arrival,
                _ = stopped.as_mut() => return Err(Ending::Shutdown),
                () = self.alarm.as_mut(), if due.is_some() => match due {
                    Some(due) if Instant::now() < due => self.alarm.as_mut().reset(due),
                    _ if begun => return Err(Ending::SlowFrame),
                    _ => return Err(Ending::Idle),
                },
            }
        };
        match arrival {
            Err(_) => Err(Ending::Broken),
            Ok(0) if begun => Err(Ending::Broken),
            Ok(0) => Err(Ending::Peer),
            Ok(_) if self.inbox.len() > self.account.shared.limits.max_inflight_bytes => {
                Err(Ending::Memory)
            }
            Ok(_) => self.account.hold(self.inbox.len()),
        }
    }

    /// When the peer must have sent something; never, if silence may last.
    fn due(&mut self, begun: bool) -> Option<Instant> {
        let limits = &self.account.shared.limits;
        if begun {
            let frame_timeout = limits.frame_timeout;
            return Some(*self.frame_due.get_or_insert_with(|| Instant::now() + frame_timeout));
        }
        self.frame_due = None;
        let idle = Some(limits.idle_timeout).filter(|idle| !idle.is_zero());
        idle.and_then(|idle| Instant::now().checked_add(idle))
    }

    fn malformed(&self, malformed: Malformed) -> Ending {
        tracing::debug!(peer = %self.peer, %malformed, "not a message");
        Ending::Malformed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::calls::{ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply};
    use crate::client::{Client, ClientOptions};

    #[tokio::test]
    async fn short_calls_do_not_wait_until_long_ones_are_read() {
        let listener = listen(ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        let answer = |_: SocketAddr, call: Call| async move {
            match call {
                Call::ReleaseResource { .. } => Answer::Reply(Reply::ReleaseResource),
                _ => Answer::Reply(Reply::SessionHeartbeat),
            }
        };
        let server = Server::new(listener, answer, Limits::default());
        let (address, shared) = (server.local_addr().unwrap(), server.shared.clone());
        let (_stop, stopped) = watch::channel(false);
        tokio::spawn(server.run::<ClusterManager>(stopped));
        let connect = move || async move {
            let to = (address.ip().to_string(), address.port());
            let options = ClientOptions::default();
            Client::<ClusterManager>::connect((&*to.0, to.1), options).await.unwrap()
        };

        let somebody_elses_turn = shared.reading_much.acquire().await.unwrap();
        let handle = Some("session".to_owned());
        let long =
            Call::ReleaseResource { handle: handle.clone(), ids: Some((0..20_000).collect()) };
        let long = tokio::spawn(async move { connect().await.call(&long).await });
        let arrived = async {
            while shared.counters.inflight_bytes() < MUCH_BYTES as u64 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), arrived).await.unwrap();
        let short = Call::SessionHeartbeat { handle };
        let mut client = connect().await;
        for _ in 0..10 {
            assert_eq!(client.call(&short).await.unwrap(), Reply::SessionHeartbeat);
        }
        assert!(!long.is_finished());
        drop(somebody_elses_turn);
        assert_eq!(long.await.unwrap().unwrap(), Reply::ReleaseResource);
    }
}
