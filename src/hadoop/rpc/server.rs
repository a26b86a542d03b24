//! A server: accepts connections and stops them. [`connection`](super::connection) serves each.

use std::io;
use std::net::{self, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connection::Connection;
use super::limits::Limits;
use super::services::Services;
use corona_access::{Gate, Stream};
use corona_net::Counters;
use corona_net::accept::accept_until_stopped;
use corona_net::memory::Memory;

/// A server of Hadoop RPC, ready to run.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    /// Connections of a former server.
    former: Vec<KeptConnection>,
    gate: Arc<Gate>,
    shared: Arc<ServerContext>,
}

/// What a server has kept open for the next one: [`Keeper::keep`].
#[derive(Debug, Default)]
pub struct KeptServer {
    /// Where it listened. Connections that arrive meanwhile wait there.
    pub listener: Option<net::TcpListener>,
    /// Its connections, none of which waits for a reply to a call that has begun.
    pub connections: Vec<KeptConnection>,
}

/// A connection that has not ended with its server.
#[derive(Debug)]
pub struct KeptConnection {
    /// The connection itself.
    pub stream: net::TcpStream,
    /// What the next server must read before what arrives: the header of the connection, and what has arrived of
    /// the next call.
    pub received: Vec<u8>,
}

/// Lets a server that is going to stop keep its connections.
#[derive(Clone, Debug)]
pub struct Keeper(Arc<ServerContext>);

impl Keeper {
    /// From now on, connections are not closed when the server stops, except those whose calls do not end in
    /// time.
    pub fn keep(&self) {
        lock(&self.0.kept).get_or_insert_default();
    }

    /// What was kept, once the server has stopped.
    pub fn take(&self) -> KeptServer {
        lock(&self.0.kept).take().unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State that all connections of a server share.
#[derive(Debug)]
pub(super) struct ServerContext {
    pub(super) services: Services,
    pub(super) limits: Limits,
    pub(super) counters: Arc<Counters>,
    pub(super) memory: Arc<Memory>,
    /// A permit for each call that is carried out.
    pub(super) running: Semaphore,
    /// What is kept for the next server, if anything is.
    kept: Mutex<Option<KeptServer>>,
}

impl ServerContext {
    /// Keeps a plain connection for the next server, if this one keeps any. The state of one within TLS cannot
    /// be handed over: its peer connects again.
    pub(super) fn keep(&self, stream: Stream, received: Vec<u8>) {
        if let Some(kept) = &mut *lock(&self.kept)
            && let Stream::Plain(stream) = stream
            && let Ok(stream) = stream.into_std()
        {
            kept.connections.push(KeptConnection { stream, received });
        }
    }
}

impl Server {
    /// A server of these protocols on this listener. [`listen`](corona_net::listen) makes
    /// one.
    pub fn new(listener: TcpListener, services: Services, limits: Limits) -> Server {
        let running = Semaphore::new(limits.max_running_calls);
        let memory = Memory::new(limits.max_total_inflight_bytes, limits.max_connections);
        let counters = memory.counters().clone();
        let kept = Mutex::default();
        let shared = ServerContext { services, limits, counters, memory, running, kept };
        Server { listener, former: Vec::new(), gate: Gate::off(), shared: Arc::new(shared) }
    }

    /// Lets it go on with the connections of a former server.
    #[must_use]
    pub fn with_former(self, connections: Vec<KeptConnection>) -> Server {
        Server { former: connections, ..self }
    }

    /// Lets peers in through this gate.
    #[must_use]
    pub fn with_gate(self, gate: Arc<Gate>) -> Server {
        Server { gate, ..self }
    }

    /// Keeps its connections for the next server.
    pub fn keeper(&self) -> Keeper {
        Keeper(self.shared.clone())
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
    /// connections, closes those without calls, answers calls in progress, and ends the rest after
    /// [`Limits::drain_timeout`].
    pub async fn run(self, stop: watch::Receiver<bool>) {
        let shared = self.shared.clone();
        let second = self.listener.as_fd().try_clone_to_owned();
        let stopped = stop.clone();
        let serve = move |stream, peer, received: &[u8]| {
            Connection::new(stream, peer, received, shared.clone()).run(stopped.clone())
        };
        let mut former = JoinSet::new();
        for KeptConnection { stream, received } in self.former {
            // One that has ended meanwhile, or must speak TLS by now, is dropped.
            let peer = stream.peer_addr().ok().and_then(|address| self.gate.plain(address));
            let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            if let (Some(peer), Ok(stream)) = (peer, stream) {
                former.spawn(serve(stream.into(), peer, &received));
            }
        }
        let mut connections = accept_until_stopped(
            former,
            self.listener,
            stop.clone(),
            self.shared.limits.max_connections,
            &self.shared.counters,
            "Hadoop RPC",
            &self.gate,
            move |stream, peer| serve(stream, peer, &[]),
        )
        .await;
        if let (Some(kept), Ok(second)) = (&mut *lock(&self.shared.kept), second) {
            kept.listener = Some(second.into());
        }
        let calls = u32::try_from(self.shared.limits.max_running_calls).unwrap_or(u32::MAX);
        let drained = async {
            while connections.join_next().await.is_some() {}
            // Calls whose connection ended are carried out nonetheless.
            let _ = self.shared.running.acquire_many(calls).await;
        };
        if timeout(self.shared.limits.drain_timeout, drained).await.is_err() {
            connections.shutdown().await;
        }
    }
}
