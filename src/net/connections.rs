//! Connections of an HTTP server: how many may be open, in all and of one peer, and which of them
//! gives way when another one needs its place.
//!
//! It knows no request and no page. All HTTP servers of this program admit connections through it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corona_access::{Gate, Peer, Stream};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

use super::accept::Acceptor;
use super::peer_of;

/// Counts the open connections of a server, in all and by peer.
#[derive(Debug)]
pub struct Connections {
    max: usize,
    max_per_peer: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    by_peer: HashMap<IpAddr, usize>,
    /// In the order in which they were opened, or began to wait.
    places: BTreeMap<u64, Held>,
    next: u64,
}

#[derive(Debug)]
struct Held {
    peer: IpAddr,
    /// Whether it waits for a request, so that it may be closed for another one.
    waits: bool,
    close: Arc<Notify>,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The limit of all connections is reached.
    Full,
    /// The limit of connections from one peer is reached.
    FullForPeer,
}

/// The permission to keep a connection open. Dropping it admits another connection.
#[derive(Debug)]
pub struct ConnectionPermit {
    connections: Arc<Connections>,
    /// Its number; another one each time that it begins to wait.
    number: AtomicU64,
    close: Arc<Notify>,
}

impl ConnectionPermit {
    /// The connection waits for a request from here on: it may be closed for another one.
    pub fn waits(&self) {
        let mut open = self.connections.lock();
        let Some(mut held) = open.places.remove(&self.number.load(Ordering::Relaxed)) else {
            return;
        };
        held.waits = true;
        let number = open.hold(held);
        self.number.store(number, Ordering::Relaxed);
    }

    /// A request is served from here on.
    pub fn serves(&self) {
        let mut open = self.connections.lock();
        if let Some(held) = open.places.get_mut(&self.number.load(Ordering::Relaxed)) {
            held.waits = false;
        }
    }

    /// Done when the connection is to be closed for another one.
    pub async fn closed(&self) {
        self.close.notified().await;
    }
}

impl Open {
    fn hold(&mut self, held: Held) -> u64 {
        let number = self.next;
        self.next += 1;
        self.places.insert(number, held);
        number
    }

    fn release(&mut self, number: u64) -> Option<Held> {
        let held = self.places.remove(&number)?;
        if let Some(of_peer) = self.by_peer.get_mut(&held.peer) {
            *of_peer = of_peer.saturating_sub(1);
            if *of_peer == 0 {
                self.by_peer.remove(&held.peer);
            }
        }
        Some(held)
    }

    /// Closes the connection that has waited for a request for the longest time: of one peer, or of
    /// the peer with the most connections. Whether there is one.
    fn close_waiting(&mut self, of: Option<IpAddr>) -> bool {
        let waiting = self.places.iter().filter(|(_, held)| held.waits);
        let waiting = waiting.filter(|(_, held)| of.is_none_or(|peer| peer == held.peer));
        let longest = waiting.min_by_key(|(number, held)| {
            (Reverse(self.by_peer.get(&held.peer).copied().unwrap_or_default()), **number)
        });
        let longest = longest.map(|(number, _)| *number);
        longest.is_some_and(|number| self.close(number))
    }

    /// Closes the oldest connection of the peer with the most, also while a request is served, if the
    /// peer keeps another one. Whether there is one.
    fn close_of_largest(&mut self) -> bool {
        let largest = self.by_peer.iter().filter(|(_, count)| **count > 1);
        let largest = largest.map(|(peer, count)| (*count, *peer)).max();
        let Some((_, largest)) = largest else { return false };
        let oldest = self.places.iter().find(|(_, held)| held.peer == largest);
        let oldest = oldest.map(|(number, _)| *number);
        oldest.is_some_and(|number| self.close(number))
    }

    fn close(&mut self, number: u64) -> bool {
        let held = self.release(number);
        held.inspect(|held| held.close.notify_one()).is_some()
    }
}

impl Connections {
    /// Admits `max` connections at a time, and `max_per_peer` of one peer.
    pub fn new(max: usize, max_per_peer: usize) -> Arc<Connections> {
        Arc::new(Connections { max, max_per_peer, open: Mutex::default() })
    }

    /// A place for a connection of this peer. Where there is none, a connection that waits for a request
    /// gives way; for a peer that has no connection also one of the peer with the most, so that a few
    /// peers cannot keep all places by reading slowly.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<ConnectionPermit, Refused> {
        let peer = peer_of(peer);
        let mut open = self.lock();
        let of_peer = open.by_peer.get(&peer).copied().unwrap_or_default();
        if of_peer >= self.max_per_peer && !open.close_waiting(Some(peer)) {
            return Err(Refused::FullForPeer);
        }
        let is_full = open.places.len() >= self.max;
        if is_full && !open.close_waiting(None) && (of_peer > 0 || !open.close_of_largest()) {
            return Err(Refused::Full);
        }
        *open.by_peer.entry(peer).or_default() += 1;
        let close = Arc::new(Notify::new());
        let number = open.hold(Held { peer, waits: false, close: close.clone() });
        Ok(ConnectionPermit { connections: self.clone(), number: AtomicU64::new(number), close })
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.lock().places.len()
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // It is not left half changed, so it can be used after a panic too.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        // Where it was closed for another one, nothing is held any more.
        let _ = self.connections.lock().release(self.number.load(Ordering::Relaxed));
    }
}

/// Accepts connections until `stop` becomes true or its sender is dropped, and runs `serve` as a
/// task for each that `admit` gives a place and the gate lets in. The others are closed at once. A
/// connection counts as idle from its start on, ends when its place is needed or the access of its peer is
/// revoked, and all end with the loop.
pub async fn accept<A, F>(
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
    gate: &Arc<Gate>,
    admit: impl Fn(SocketAddr) -> Option<(ConnectionPermit, A)>,
    serve: impl Fn(Stream, Peer, Arc<ConnectionPermit>, A) -> F + Clone + Send + 'static,
) where
    A: Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let mut acceptor = Acceptor::new(listener);
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = acceptor.next(drop) => accepted,
        };
        let Some((permit, admitted)) = admit(peer) else { continue };
        // Without it answers are slower; that is no reason to refuse the peer.
        let _ = stream.set_nodelay(true);
        let permit = Arc::new(permit);
        permit.waits();
        let (gate, serve) = (gate.clone(), serve.clone());
        let held = permit.clone();
        let serving = async move {
            // Its state is large, and of no use once the peer is in.
            let entered = Box::pin(gate.admit(stream, peer, true)).await;
            if let Ok((stream, peer)) = entered {
                let revoked = peer.access_ends();
                tokio::select! {
                    () = serve(stream, peer, held, admitted) => {}
                    () = revoked => {}
                }
            }
        };
        let mut stop = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = serving => {}
                () = permit.closed() => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_peer_cannot_take_the_places_of_the_others() {
        let connections = Connections::new(5, 2);
        let admit = |peer: &str| connections.admit(peer.parse().unwrap());
        let first = [admit("10.0.0.1").unwrap(), admit("::ffff:10.0.0.1").unwrap()];
        assert_eq!(admit("10.0.0.1").unwrap_err(), Refused::FullForPeer);
        // All addresses of a network of IPv6 may be one machine.
        let second = [admit("2001:db8::1").unwrap(), admit("2001:db8::2").unwrap()];
        assert_eq!(admit("2001:db8::3").unwrap_err(), Refused::FullForPeer);
        let third = admit("2001:db8:0:1::1").unwrap();
        assert_eq!(admit("2001:db8:0:1::2").unwrap_err(), Refused::Full);
        drop(first);
        let fourth = [admit("10.0.0.2").unwrap(), admit("10.0.0.1").unwrap()];
        assert_eq!(connections.lock().by_peer.len(), 4);
        drop((second, third, fourth));
        let open = connections.lock();
        assert!(open.places.is_empty() && open.by_peer.is_empty(), "{open:?}");
    }

    async fn is_closed(permit: &ConnectionPermit) -> bool {
        tokio::time::timeout(Duration::ZERO, permit.closed()).await.is_ok()
    }

    #[tokio::test]
    async fn slow_readers_of_a_few_peers_do_not_keep_a_newcomer_out() {
        let connections = Connections::new(7, 3);
        let admit = |peer: &str| connections.admit(peer.parse().unwrap());
        let of = |peer| [(); 3].map(|()| admit(peer).unwrap());
        // All of them are served, and none ends.
        let (first, second) = (of("10.0.0.1"), of("10.0.0.2"));
        let innocent = admit("10.0.0.3").unwrap();
        assert_eq!(admit("10.0.0.3").unwrap_err(), Refused::Full, "it has one");
        // The oldest connection of each of those with the most, until none has more than the others.
        let newcomers: Vec<_> = ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"]
            .map(|peer| admit(peer).unwrap())
            .into();
        for attacker in [&first, &second] {
            for (place, is_taken) in [true, true, false].into_iter().enumerate() {
                assert_eq!(is_closed(&attacker[place]).await, is_taken, "{place}");
            }
        }
        assert_eq!(admit("10.0.0.8").unwrap_err(), Refused::Full, "nobody has two");
        for open in newcomers.iter().chain([&innocent]) {
            assert!(!is_closed(open).await);
        }
        assert_eq!(connections.open(), 7);
        drop((first, second, innocent, newcomers));
        assert!(connections.lock().by_peer.is_empty());
    }

    #[tokio::test]
    async fn a_connection_that_waits_is_closed_for_another_one() {
        let connections = Connections::new(4, 3);
        let admit = |peer: &str| connections.admit(peer.parse().unwrap()).unwrap();
        let attacker = [(); 3].map(|()| admit("10.0.0.1"));
        let innocent = admit("10.0.0.2");
        innocent.waits();
        attacker.iter().for_each(ConnectionPermit::waits);
        attacker[0].serves();
        // The connection that has waited longest, of the peer with the most connections.
        let other = admit("10.0.0.3");
        assert!(is_closed(&attacker[1]).await);
        for open in [&attacker[0], &attacker[2], &innocent, &other] {
            assert!(!is_closed(open).await);
        }
        assert_eq!(connections.open(), 4);
        drop((attacker, innocent, other));
        assert_eq!(connections.open(), 0);
        assert!(connections.lock().by_peer.is_empty());
    }
}
