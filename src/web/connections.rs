//! Connections of an HTTP server: how many may be open, in all and of one peer, and how long a peer
//! may leave unread what is written to it.
//!
//! It knows no request and no page. Both HTTP servers of this program admit and limit connections
//! through it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::{Sleep, sleep};

/// Pause after a failure to accept, such as a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    /// As many connections as there may be are open.
    Full,
    /// This peer has as many as one peer may have.
    FullForPeer,
}

/// The place of an open connection. Dropped, it is free for another one.
#[derive(Debug)]
pub struct Place {
    connections: Arc<Connections>,
    /// Its number; another one each time that it begins to wait.
    number: AtomicU64,
    close: Arc<Notify>,
}

impl Place {
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
        let Some(number) = longest.map(|(number, _)| *number) else { return false };
        if let Some(held) = self.release(number) {
            held.close.notify_one();
        }
        true
    }
}

impl Connections {
    /// Admits `max` connections at a time, and `max_per_peer` of one peer.
    pub fn new(max: usize, max_per_peer: usize) -> Arc<Connections> {
        Arc::new(Connections { max, max_per_peer, open: Mutex::default() })
    }

    /// A place for a connection of this peer.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<Place, Refused> {
        let peer = counted_as(peer);
        let mut open = self.lock();
        let of_peer = open.by_peer.get(&peer).copied().unwrap_or_default();
        if of_peer >= self.max_per_peer && !open.close_waiting(Some(peer)) {
            return Err(Refused::FullForPeer);
        }
        if open.places.len() >= self.max && !open.close_waiting(None) {
            return Err(Refused::Full);
        }
        *open.by_peer.entry(peer).or_default() += 1;
        let close = Arc::new(Notify::new());
        let number = open.hold(Held { peer, waits: false, close: close.clone() });
        Ok(Place { connections: self.clone(), number: AtomicU64::new(number), close })
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.lock().places.len()
    }

    /// Accepts connections until `stop` becomes true or its sender is gone, and has `serve` serve
    /// each that is admitted, on a task of its own. What is served then ends too, and what waits for a
    /// request when its place is needed. `refused` learns of those that are not admitted, which are
    /// closed.
    pub async fn accept<F>(
        self: Arc<Self>,
        listener: TcpListener,
        mut stop: watch::Receiver<bool>,
        refused: impl Fn(SocketAddr, Refused),
        serve: impl Fn(TcpStream, Arc<Place>) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, peer)) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            match self.admit(peer.ip()) {
                Err(why) => refused(peer, why),
                Ok(place) => {
                    // Without it answers are slower; that is no reason to refuse the peer.
                    let _ = stream.set_nodelay(true);
                    let place = Arc::new(place);
                    let (serving, mut stop) = (serve(stream, place.clone()), stop.clone());
                    tokio::spawn(async move {
                        tokio::select! {
                            () = serving => {}
                            () = place.closed() => {}
                            _ = stop.wait_for(|stop| *stop) => {}
                        }
                    });
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // It is not left half changed, so it can be used after a panic too.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Where it was closed for another one, nothing is held any more.
        let _ = self.connections.lock().release(self.number.load(Ordering::Relaxed));
    }
}

/// The address that stands for a peer: in IPv6 its network, since a machine has all addresses of one.
pub fn counted_as(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

/// A connection on which a write fails if the peer reads nothing for too long.
#[derive(Debug)]
pub struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    /// A write to this stream may make no headway for so long.
    pub fn new(stream: S, timeout: Duration) -> Self {
        WriteTimeout { stream, timeout, stalled: None }
    }

    /// What became of a write, or its failure when it has been waiting for too long.
    fn limited<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timeout = self.timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        stalled.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limited(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.limited(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.limited(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limited(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_that_makes_no_headway_fails() {
        const TIMEOUT: Duration = Duration::from_secs(30);
        let (near, mut far) = duplex(4);
        let mut near = WriteTimeout::new(near, TIMEOUT);
        let writing = tokio::spawn(async move { near.write_all(b"more than four").await });
        sleep(TIMEOUT / 2).await;
        let mut some = [0; 4];
        far.read_exact(&mut some).await.unwrap();
        sleep(TIMEOUT - Duration::from_secs(1)).await;
        assert!(!writing.is_finished(), "it made headway in between");
        let error = writing.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

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
        assert_eq!(admit("10.0.0.2").unwrap_err(), Refused::Full);
        drop(first);
        let fourth = [admit("10.0.0.2").unwrap(), admit("10.0.0.1").unwrap()];
        assert_eq!(connections.lock().by_peer.len(), 4);
        drop((second, third, fourth));
        let open = connections.lock();
        assert!(open.places.is_empty() && open.by_peer.is_empty(), "{open:?}");
    }

    #[tokio::test]
    async fn a_connection_that_waits_is_closed_for_another_one() {
        let connections = Connections::new(4, 3);
        let admit = |peer: &str| connections.admit(peer.parse().unwrap()).unwrap();
        let is_closed = async |place: &Place| {
            tokio::time::timeout(Duration::ZERO, place.closed()).await.is_ok()
        };
        let attacker = [(); 3].map(|()| admit("10.0.0.1"));
        let innocent = admit("10.0.0.2");
        innocent.waits();
        attacker.iter().for_each(Place::waits);
        attacker[0].serves();
        // Of the peer with the most connections, the one that has waited for the longest time.
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
