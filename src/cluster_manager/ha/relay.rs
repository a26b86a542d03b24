//! Relays: connections of peers are passed on to the leader, and held for a bounded time while there is
//! none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::instance_role::Leader;
use corona_net::accept::{Acceptor, Failure};
use corona_net::proxy_protocol;
use corona_net::relay::{has_closed, relay, write};

/// How long a connection to the leader may take.
const CONNECT: Duration = Duration::from_secs(2);
/// Between two attempts to connect to the leader.
const RETRY: Duration = Duration::from_millis(100);

/// Passes connections on to whichever instance leads.
#[derive(Clone, Debug)]
pub(super) struct Relays {
    pub(super) leader: watch::Receiver<Option<Leader>>,
    pub(super) to: To,
    /// How long a connection waits for a leader.
    pub(super) hold: Duration,
    pub(super) max_connections: usize,
    pub(super) counts: Arc<Counts>,
}

/// How the leader is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// As an instance: the leader learns the address of the peer.
    Instance,
    /// As any program.
    Service,
}

/// Connections, for metrics and pages.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) open: AtomicU64,
    pub(super) relayed: AtomicU64,
    pub(super) given_up: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl Relays {
    /// Accepts connections until `stop` becomes true, and returns those that are still relayed.
    pub(super) async fn accept(
        self,
        listener: TcpListener,
        mut stop: watch::Receiver<bool>,
    ) -> JoinSet<()> {
        let mut acceptor = Acceptor::new(listener);
        let mut relayed = JoinSet::new();
        let failed = |Failure { error, lasts }| {
            if lasts {
                tracing::error!(%error, "cannot accept connections");
            }
        };
        loop {
            let (stream, peer) = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return relayed,
                Some(_) = relayed.join_next() => continue,
                accepted = acceptor.next(failed) => accepted,
            };
            if relayed.len() >= self.max_connections {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            relayed.spawn(self.clone().serve(stream, peer));
        }
    }

    async fn serve(mut self, client: TcpStream, peer: SocketAddr) {
        let counts = self.counts.clone();
        counts.open.fetch_add(1, Ordering::Relaxed);
        let _open = Open(&counts);
        let deadline = Instant::now() + self.hold;
        let Ok(Some((server, leader))) = timeout_at(deadline, self.reach(&client, peer)).await
        else {
            counts.given_up.fetch_add(1, Ordering::Relaxed);
            return;
        };
        // Its call may have waited here for long, and the peer may have repeated it elsewhere since.
        if has_closed(&client) {
            counts.given_up.fetch_add(1, Ordering::Relaxed);
            return;
        }
        counts.relayed.fetch_add(1, Ordering::Relaxed);
        // Without it calls are slower; that is no reason to refuse the peer.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        tokio::select! {
            // How it ended makes no difference: both connections are closed.
            _ = relay(&client, &server) => {}
            // A leader that hangs would never close it.
            _ = self.leader.wait_for(|now| now.as_ref() != Some(&leader)) => {}
        }
    }

    /// A connection to the leader. `None` if the peer has gone.
    async fn reach(&mut self, client: &TcpStream, peer: SocketAddr) -> Option<(TcpStream, Leader)> {
        loop {
            let leader = self.leader.borrow_and_update().clone();
            if let Some(leader) = leader {
                match timeout(CONNECT, self.connect(&leader, peer)).await {
                    Ok(Ok(server)) => return Some((server, leader)),
                    Ok(Err(error)) => tracing::debug!("leader {}: {error}", leader.instance),
                    Err(_) => tracing::debug!("leader {} does not answer", leader.instance),
                }
            }
            tokio::select! {
                _ = self.leader.changed() => {}
                () = sleep(RETRY) => {}
                _ = client.ready(tokio::io::Interest::ERROR) => return None,
            }
        }
    }

    async fn connect(&self, leader: &Leader, peer: SocketAddr) -> std::io::Result<TcpStream> {
        match self.to {
            To::Service => TcpStream::connect(&leader.thrift).await,
            To::Instance => {
                let server = TcpStream::connect(&leader.instance).await?;
                let header = proxy_protocol::header(peer, server.peer_addr()?);
                write(&server, &header).await?;
                Ok(server)
            }
        }
    }
}

struct Open<'a>(&'a Counts);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A peer repeats its call when its connection is lost: what it sent before may have been undone by
    /// a later call when a leader is found.
    #[tokio::test]
    async fn calls_of_peers_that_have_gone_are_not_relayed() {
        let bind = || TcpListener::bind("127.0.0.1:0");
        let (gateway, leader) = (bind().await.unwrap(), bind().await.unwrap());
        let address = gateway.local_addr().unwrap();
        let (lead, leader_seen) = watch::channel(None);
        let relays = Relays {
            leader: leader_seen,
            to: To::Service,
            hold: Duration::from_secs(60),
            max_connections: 10,
            counts: Arc::default(),
        };
        let counts = relays.counts.clone();
        let (_stop, stopped) = watch::channel(false);
        tokio::spawn(relays.accept(gateway, stopped));
        let mut gone = TcpStream::connect(address).await.unwrap();
        gone.write_all(b"stale").await.unwrap();
        drop(gone);
        let mut waiting = TcpStream::connect(address).await.unwrap();
        waiting.write_all(b"fresh").await.unwrap();
        while counts.open.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        lead.send_replace(Some(Leader {
            thrift: leader.local_addr().unwrap().to_string(),
            ..Leader::default()
        }));
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        while count(&counts.relayed) + count(&counts.given_up) < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!((count(&counts.relayed), count(&counts.given_up)), (1, 1));
        // A connection that was made for the other peer carries nothing.
        let mut relayed = loop {
            let (mut relayed, _) = leader.accept().await.unwrap();
            let mut piece = [0; 5];
            if relayed.read_exact(&mut piece).await.is_ok() {
                assert_eq!(piece, *b"fresh");
                break relayed;
            }
        };
        relayed.write_all(b"reply").await.unwrap();
        let mut reply = [0; 5];
        waiting.read_exact(&mut reply).await.unwrap();
    }
}
