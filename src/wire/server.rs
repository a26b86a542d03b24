//! A server for any service of the contract: one task for each connection, calls of a connection
//! strictly one after another.
//!
//! A peer can do no more than lose its connection. The reasons for closing one are counted, see
//! [`Counters`]. A peer that breaks the protocol gets no reply, as in the original. Spec:
//! cluster-manager/01 §1.1, §2 to §4.

use std::future::Future;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::inbox::Inbox;
pub use super::limits::Limits;
use super::message::{self, Incoming};
use super::scan::Malformed;
use super::service::{ApplicationFault, Exception, FaultKind, Framing, Service};
pub use corona_access::{Gate, Peer};
use corona_access::{NO_TLS, Stream, is_tls, rights};
use corona_net::accept::{Acceptor, accept_until_stopped};
use corona_net::memory::{Holding, Memory};
use corona_net::peer_of;
use corona_net::permits::{Permit, Permits};
pub use corona_net::{Counters, Ending, ListenOn, listen};

/// The handler of a service's calls.
///
/// Closures of the same shape are handlers too.
pub trait Handler<S: Service>: Send + Sync + 'static {
    /// Answers one call. Calls of one connection come one at a time, those of different
    /// connections at the same time. A panic ends the connection and nothing else.
    fn call(&self, peer: Peer, call: S::Call) -> impl Future<Output = Answer<S::Reply>> + Send;

    /// Whether the call may be dropped while it waits, because its caller has closed the connection
    /// or takes too much memory. Only for calls that change nothing before their last wait.
    fn may_be_dropped(&self, _call: &S::Call) -> bool {
        false
    }

    /// Whether replies may still leave. Looked at just before bytes are handed to the system; if not,
    /// the connection is closed.
    fn may_reply(&self) -> bool {
        true
    }
}

impl<S, F, A> Handler<S> for F
where
    S: Service,
    F: Fn(Peer, S::Call) -> A + Send + Sync + 'static,
    A: Future<Output = Answer<S::Reply>> + Send,
{
    fn call(&self, peer: Peer, call: S::Call) -> impl Future<Output = Answer<S::Reply>> + Send {
        self(peer, call)
    }
}

/// The answer to a call.
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

/// A server of the service `S`, ready to run.
#[derive(Debug)]
pub struct Server<H> {
    listener: Acceptor,
    gate: Arc<Gate>,
    shared: Arc<ServerContext<H>>,
}

#[derive(Debug)]
struct ServerContext<H> {
    handler: H,
    limits: Limits,
    counters: Arc<Counters>,
    memory: Arc<Memory>,
    /// For messages from [`LONG_BYTES`] on.
    long: Lane,
    /// For messages from [`HUGE_BYTES`] on.
    huge: Lane,
}

/// Messages of one size class. Each is decoded when no other one of its class is, and so many are
/// decoded or handled at a time; the others wait as bytes, which take a tenth of the memory.
#[derive(Debug)]
struct Lane {
    /// By peer, in turn.
    handled: Arc<Permits<IpAddr>>,
    decoding: Semaphore,
}

impl Lane {
    fn new(handled: usize, of_one_peer: usize) -> Lane {
        Lane { handled: Permits::new(handled, of_one_peer), decoding: Semaphore::new(1) }
    }
}

impl<H> ServerContext<H> {
    fn lane(&self, message_bytes: usize) -> Option<&Lane> {
        match message_bytes {
            HUGE_BYTES.. => Some(&self.huge),
            LONG_BYTES.. => Some(&self.long),
            _ => None,
        }
    }
}

impl<H> Server<H> {
    /// A server on this listener, which hands calls to this handler.
    pub fn new(listener: TcpListener, handler: H, limits: Limits) -> Server<H> {
        let memory = Memory::new(limits.max_total_inflight_bytes, limits.max_connections);
        Server::with_memory(listener, handler, limits, memory)
    }

    /// The same, but its connections share their memory with others. The limit of `memory` takes
    /// the place of [`Limits::max_total_inflight_bytes`].
    pub fn with_memory(
        listener: TcpListener,
        handler: H,
        limits: Limits,
        memory: Arc<Memory>,
    ) -> Server<H> {
        let (long, huge) = (Lane::new(64, 16), Lane::new(2, 1));
        let counters = memory.counters().clone();
        let shared = ServerContext { handler, limits, counters, memory, long, huge };
        Server { listener: Acceptor::new(listener), gate: Gate::off(), shared: Arc::new(shared) }
    }

    /// Lets peers in through this gate.
    pub fn with_gate(self, gate: Arc<Gate>) -> Server<H> {
        Server { gate, ..self }
    }

    /// Serves connections that others have accepted as well, each with the address of its peer.
    pub fn with_handed(self, handed: mpsc::Receiver<(TcpStream, SocketAddr)>) -> Server<H> {
        Server { listener: self.listener.with_handed(handed), ..self }
    }

    /// Its counters; may be read while it runs and after.
    pub fn counters(&self) -> Arc<Counters> {
        self.shared.counters.clone()
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` becomes true or its sender is dropped. Then it accepts no more
    /// connections, closes those that wait for a call, answers calls in progress, and ends the rest
    /// after [`Limits::drain_timeout`].
    pub async fn run<S>(self, stop: watch::Receiver<bool>)
    where
        S: Service,
        H: Handler<S>,
    {
        let shared = self.shared.clone();
        let mut connections = accept_until_stopped(
            JoinSet::new(),
            self.listener,
            stop.clone(),
            self.shared.limits.max_connections,
            &self.shared.counters,
            S::NAME,
            &self.gate,
            move |stream, peer| {
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
/// Messages from this size on are decoded one at a time, and peers take turns. So no more than one
/// thread decodes long requests while the others serve heartbeats, releases and whatever else is
/// short.
const LONG_BYTES: usize = 32 * 1024;
/// The same for messages from this size on, among themselves: they do not delay those of an
/// ordinary job.
const HUGE_BYTES: usize = 1 << 20;
/// Bytes that are read ahead while a call is handled, to detect whether its caller is still there.
const AHEAD_BYTES: usize = 32 * 1024;

struct Connection<H> {
    stream: Stream,
    peer: Peer,
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

/// A connection's part in the counters. It is settled when the connection ends, for any reason.
struct Account<H> {
    shared: Arc<ServerContext<H>>,
    held: Holding,
    ending: Ending,
}

impl<H> Drop for Account<H> {
    fn drop(&mut self) {
        let panicked = std::thread::panicking();
        self.shared.counters.count_ended(if panicked { Ending::Panic } else { self.ending });
    }
}

impl<H> Connection<H> {
    fn new(
        stream: Stream,
        peer: Peer,
        shared: Arc<ServerContext<H>>,
        framing: Framing,
    ) -> Connection<H> {
        shared.counters.count_accepted();
        let limits = &shared.limits;
        let inbox = Inbox::new(framing, limits.bounds(), limits.max_frame_bytes);
        let alarm = Box::pin(sleep(limits.frame_timeout));
        // A task that is dropped before its end was stopped with the server.
        let held = shared.memory.holding(peer.ip());
        let account = Account { shared, held, ending: Ending::Shutdown };
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
        let _ = self.stream.tcp().set_nodelay(true);
        let stop_now = stop.clone();
        let mut stopped = pin!(stop.wait_for(|stop| *stop));
        let ending = loop {
            let handled = self.handle_arrived::<S>(&stop_now).await;
            let written = self.write::<S>().await;
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

    /// Handles every complete message.
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
                self.write::<S>().await?;
            }
            let Some(bytes) = self.inbox.next_bytes() else { return Ok(()) };
            // Released when the call has been answered.
            let _permit = self.lane_permit(bytes).await?;
            let taken = {
                let _turn = match self.account.shared.lane(bytes) {
                    // The semaphore is never closed.
                    Some(lane) => lane.decoding.acquire().await.ok(),
                    None => None,
                };
                if self.account.held.is_revoked() {
                    return Err(Ending::Memory);
                }
                self.inbox.take(|bytes| message::read_call::<S>(bytes, bounds))
            };
            let incoming = match taken {
                Ok(Some(incoming)) => incoming,
                Ok(None) => return Ok(()),
                Err(malformed) => return Err(self.malformed(malformed)),
            };
            self.frame_due = None;
            if *stop.borrow() {
                return Err(Ending::Shutdown);
            }
            self.answer::<S>(incoming).await?;
        }
    }

    /// Waits until a message of this size may be decoded and handled.
    async fn lane_permit(&self, bytes: usize) -> Result<Option<Permit<IpAddr>>, Ending> {
        let Account { shared, held, .. } = &self.account;
        let Some(lane) = shared.lane(bytes) else { return Ok(None) };
        tokio::select! {
            biased;
            () = held.revoked() => Err(Ending::Memory),
            permit = lane.handled.take(peer_of(self.peer.ip())) => Ok(Some(permit)),
        }
    }

    async fn answer<S>(&mut self, incoming: Incoming<S::Call>) -> Result<(), Ending>
    where
        S: Service,
        H: Handler<S>,
    {
        let Incoming { seqid, name, call } = incoming;
        let Account { shared, held, .. } = &mut self.account;
        let (place, call) = match call {
            Ok(call) => call,
            Err(fault) => {
                shared.counters.count_fault();
                return self
                    .send(|out, framing| message::write_fault(out, &name, &fault, seqid, framing));
            }
        };
        shared.counters.count_call();
        let method = S::method_name(&call);
        let answer = if let Some(objection) =
            self.peer.objection(|| rights::thrift(S::NAME, method))
        {
            tracing::warn!(peer = %self.peer, method, objection, "Refused a call");
            let message = format!("{method}: {objection}");
            Answer::Fault(ApplicationFault { kind: FaultKind::InternalError, message })
        } else {
            let noted = self.peer.note(S::NAME, method);
            let may_be_dropped = shared.handler.may_be_dropped(&call);
            let mut handled = pin!(shared.handler.call(self.peer.clone(), call));
            let answer = match may_be_dropped {
                false => handled.await,
                true => tokio::select! {
                    biased;
                    answer = handled.as_mut() => answer,
                    ending = left(&mut self.stream, &mut self.inbox, held) => return Err(ending),
                },
            };
            noted.end(match &answer {
                Answer::Reply(_) => Ok(()),
                Answer::Exception(exception) => Err(exception),
                Answer::Fault(fault) => Err(&fault.message),
                Answer::Close => Err(&"the connection was closed"),
            });
            answer
        };
        match answer {
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
        Ok(self.account.held.set(self.inbox.len() + self.replies.len())?)
    }

    /// Writes the replies that wait.
    async fn write<S>(&mut self) -> Result<(), Ending>
    where
        S: Service,
        H: Handler<S>,
    {
        if self.replies.is_empty() {
            return Ok(());
        }
        let Connection { stream, replies, account, .. } = self;
        let handler = &account.shared.handler;
        // Nearly always the socket accepts all bytes at once, without waiting.
        let written = write_some::<S>(handler, stream, replies)?;
        let rest = replies.get(written..).unwrap_or_default();
        if !rest.is_empty() || stream.is_tls() {
            let due = account.shared.limits.write_timeout;
            tokio::select! {
                biased;
                () = account.held.revoked() => return Err(Ending::Memory),
                written = timeout(due, write_rest::<S>(handler, stream, rest)) => {
                    written.map_err(|_| Ending::SlowReader)??;
                }
            }
        }
        self.replies.clear();
        if self.replies.capacity() > KEEP_BYTES {
            self.replies = vec![];
        }
        Ok(self.account.held.set(self.inbox.len())?)
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
                () = self.account.held.revoked() => return Err(Ending::Memory),
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
            Ok(_) => Ok(self.account.held.set(self.inbox.len())?),
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

    fn malformed(&mut self, malformed: Malformed) -> Ending {
        tracing::debug!(peer = %self.peer, %malformed, "not a message");
        if is_tls(self.inbox.arrived()) {
            let _ = self.stream.write_now(NO_TLS);
        }
        Ending::Malformed
    }
}

/// Writes as many bytes as are taken without waiting, if replies may still be sent.
fn write_some<S: Service>(
    handler: &impl Handler<S>,
    stream: &mut Stream,
    bytes: &[u8],
) -> Result<usize, Ending> {
    if !handler.may_reply() {
        return Err(Ending::Handler);
    }
    stream.write_now(bytes).map_err(|_| Ending::Broken)
}

/// Writes the rest and what TLS has kept of the beginning.
async fn write_rest<S: Service>(
    handler: &impl Handler<S>,
    stream: &mut Stream,
    mut rest: &[u8],
) -> Result<(), Ending> {
    poll_fn(|context| {
        while !rest.is_empty() {
            if !handler.may_reply() {
                return Poll::Ready(Err(Ending::Handler));
            }
            match Pin::new(&mut *stream).poll_write(context, rest) {
                Poll::Ready(Ok(written)) => rest = rest.get(written..).unwrap_or_default(),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Ending::Broken)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Pin::new(&mut *stream).poll_flush(context).map_err(|_| Ending::Broken)
    })
    .await
}

/// Waits until no answer is needed: the peer has closed the connection, or must lose it. Meanwhile
/// a little is read ahead. `held` covers the call that is handled as well.
async fn left(stream: &mut Stream, inbox: &mut Inbox, held: &mut Holding) -> Ending {
    let handled_bytes = held.bytes().saturating_sub(inbox.len());
    while inbox.len() < AHEAD_BYTES {
        tokio::select! {
            biased;
            () = held.revoked() => return Ending::Memory,
            read = stream.read_buf(inbox.space()) => match read {
                Err(_) => return Ending::Broken,
                Ok(0) => return Ending::Peer,
                Ok(_) => {}
            },
        }
        if held.set(handled_bytes + inbox.len()).is_err() {
            return Ending::Memory;
        }
    }
    held.revoked().await;
    Ending::Memory
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::calls::{ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply};
    use crate::client::{Client, ClientOptions};
    use corona_net::testing::{soon, until};

    /// A client whose connection comes from this address of loopback.
    async fn client_from(host: [u8; 4], server: SocketAddr) -> Client<ClusterManager> {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::from(host), 0).into()).unwrap();
        Client::over(socket.connect(server).await.unwrap(), ClientOptions::default())
    }

    fn release(ids: i32) -> Call {
        Call::ReleaseResource { handle: Some("session".into()), ids: Some((0..ids).collect()) }
    }

    fn serve<H: Handler<ClusterManager>>(
        handler: H,
    ) -> (SocketAddr, Arc<ServerContext<H>>, watch::Sender<bool>) {
        let listener = listen(ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        let server = Server::new(listener, handler, Limits::default());
        let (address, shared) = (server.local_addr().unwrap(), server.shared.clone());
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(server.run::<ClusterManager>(stopped));
        (address, shared, stop)
    }

    #[tokio::test]
    async fn short_calls_do_not_wait_until_long_ones_are_read() {
        let answer = |_: Peer, call: Call| async move {
            match call {
                Call::ReleaseResource { .. } => Answer::Reply(Reply::ReleaseResource),
                _ => Answer::Reply(Reply::SessionHeartbeat),
            }
        };
        let (address, shared, _stop) = serve(answer);
        let another_turn = shared.long.decoding.acquire().await.unwrap();
        let mut client = client_from([127, 0, 0, 1], address).await;
        let long = tokio::spawn(async move { client.call(&release(20_000)).await });
        until("arrived", || shared.counters.inflight_bytes() > 2 * LONG_BYTES as u64).await;
        let short = Call::SessionHeartbeat { handle: Some("session".into()) };
        let mut client = client_from([127, 0, 0, 1], address).await;
        for _ in 0..10 {
            assert_eq!(client.call(&short).await.unwrap(), Reply::SessionHeartbeat);
        }
        assert!(!long.is_finished());
        drop(another_turn);
        assert_eq!(long.await.unwrap().unwrap(), Reply::ReleaseResource);
    }

    /// Ordinary calls, long ones among them, are served while huge ones keep the server busy, and a
    /// huge one of one peer while there are any number of another peer.
    #[tokio::test]
    async fn huge_calls_delay_neither_long_ones_nor_those_of_other_peers() {
        const HUGE: i32 = 300_000;
        let attacker = IpAddr::from([127, 0, 0, 1]);
        let answer = move |peer: Peer, call: Call| async move {
            let Call::ReleaseResource { ids: Some(ids), .. } = call else { return Answer::Close };
            if peer.ip() == attacker && ids.len() as i32 >= HUGE {
                std::future::pending::<()>().await;
            }
            Answer::Reply(Reply::ReleaseResource)
        };
        let (address, shared, _stop) = serve(answer);
        for _ in 0..4 {
            let mut client = client_from([127, 0, 0, 1], address).await;
            tokio::spawn(async move { client.call(&release(HUGE)).await });
        }
        until("all but one wait as bytes", || {
            shared.counters.inflight_bytes() > 4 * HUGE as u64 * 4 && shared.counters.calls() == 1
        })
        .await;
        for (host, ids) in [(1, 20_000), (2, 20_000), (2, HUGE)] {
            let mut client = client_from([127, 0, 0, host], address).await;
            let answer = soon(client.call(&release(ids))).await;
            assert_eq!(answer.unwrap(), Reply::ReleaseResource, "{host} {ids}");
        }
        assert_eq!(shared.counters.calls(), 4, "of the attacker's calls one is handled");
    }

    /// Waits forever, and counts the calls that wait.
    #[derive(Debug, Default)]
    struct Waiting(Arc<std::sync::atomic::AtomicUsize>);

    struct One(Arc<std::sync::atomic::AtomicUsize>);

    impl Drop for One {
        fn drop(&mut self) {
            self.0.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
        }
    }

    impl Handler<ClusterManager> for Waiting {
        async fn call(&self, _: Peer, _: Call) -> Answer<Reply> {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let _one = One(self.0.clone());
            std::future::pending().await
        }

        fn may_be_dropped(&self, call: &Call) -> bool {
            matches!(call, Call::GetSessions)
        }
    }

    #[tokio::test]
    async fn a_call_that_changes_nothing_yet_ends_with_its_connection() {
        let waiting = Arc::default();
        let (address, shared, _stop) = serve(Waiting(Arc::clone(&waiting)));
        let count = || waiting.load(std::sync::atomic::Ordering::SeqCst);
        let mut client = client_from([127, 0, 0, 1], address).await;
        let call = tokio::spawn(async move { client.call(&Call::GetSessions).await });
        until("the call waits", || count() == 1).await;
        call.abort();
        until("the call is dropped", || count() == 0).await;
        until("counted", || shared.counters.ended(Ending::Peer) == 1).await;

        let mut client = client_from([127, 0, 0, 1], address).await;
        let call = tokio::spawn(async move { client.call(&Call::RefreshNodes).await });
        until("the call waits", || count() == 1).await;
        call.abort();
        let mut other = client_from([127, 0, 0, 1], address).await;
        let other = tokio::spawn(async move { other.call(&Call::GetSessions).await });
        until("both wait", || count() == 2).await;
        other.abort();
        until("one is left", || count() == 1).await;
    }
}
