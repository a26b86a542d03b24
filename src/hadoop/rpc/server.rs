//! A server: accepts connections and stops them. [`connection`](super::connection) serves each.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::connection::Connection;
use super::limits::Limits;
use super::services::Services;
use corona_net::Counters;
use corona_net::accept::accept_until_stopped;
use corona_net::memory::Memory;

/// A server of Hadoop RPC, ready to run.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// State that all connections of a server share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) services: Services,
    pub(super) limits: Limits,
    pub(super) counters: Arc<Counters>,
    pub(super) memory: Arc<Memory>,
    /// A permit for each call that is carried out.
    pub(super) running: Semaphore,
}

impl Server {
    /// A server of these protocols on this listener. [`listen`](corona_net::listen) makes
    /// one.
    pub fn new(listener: TcpListener, services: Services, limits: Limits) -> Server {
        let running = Semaphore::new(limits.max_running_calls);
        let memory = Memory::new(limits.max_total_inflight_bytes, limits.max_connections);
        let counters = memory.counters().clone();
        let shared = Shared { services, limits, counters, memory, running };
        Server { listener, shared: Arc::new(shared) }
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
        let mut connections = accept_until_stopped(
            self.listener,
            stop.clone(),
            shared.limits.max_connections,
            &shared.counters,
            "Hadoop RPC",
            |stream, peer| Connection::new(stream, peer, shared.clone()).run(stop.clone()),
        )
        .await;
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
