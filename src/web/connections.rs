//! Connections of an HTTP server: how many may be open, in all and of one peer, and how long a peer
//! may leave unread what is written to it.
//!
//! It knows no request and no page. Both HTTP servers of this program admit and limit connections
//! through it.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
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
    all: usize,
    by_peer: HashMap<IpAddr, usize>,
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
    peer: IpAddr,
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
        if open.all >= self.max {
            return Err(Refused::Full);
        }
        let of_peer = open.by_peer.entry(peer).or_default();
        if *of_peer >= self.max_per_peer {
            return Err(Refused::FullForPeer);
        }
        *of_peer += 1;
        open.all += 1;
        Ok(Place { connections: self.clone(), peer })
    }

    /// Accepts connections until `stop` becomes true or its sender is gone, and has `serve` serve
    /// each that is admitted, on a task of its own. What is served then ends too. `refused` learns of
    /// those that are not admitted, which are closed.
    pub async fn accept<F>(
        self: Arc<Self>,
        listener: TcpListener,
        mut stop: watch::Receiver<bool>,
        refused: impl Fn(SocketAddr, Refused),
        serve: impl Fn(TcpStream, SocketAddr) -> F,
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
                    let (serving, mut stop) = (serve(stream, peer), stop.clone());
                    tokio::spawn(async move {
                        tokio::select! {
                            () = serving => {}
                            _ = stop.wait_for(|stop| *stop) => {}
                        }
                        drop(place);
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
        let mut open = self.connections.lock();
        open.all = open.all.saturating_sub(1);
        if let Some(of_peer) = open.by_peer.get_mut(&self.peer) {
            *of_peer = of_peer.saturating_sub(1);
            if *of_peer == 0 {
                open.by_peer.remove(&self.peer);
            }
        }
    }
}

/// The address that stands for a peer: in IPv6 its network, since a machine has all addresses of one.
fn counted_as(peer: IpAddr) -> IpAddr {
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
        assert!(open.all == 0 && open.by_peer.is_empty(), "{open:?}");
    }
}
