//! Connections of browsers and scripts: HTTP/1.1, with bounds on what one may hold.
//!
//! It knows no page. A reader that does not read, or a request that does not arrive, ends.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

use super::Pages;
use super::exchange::Answer;
use corona_process::panics::begun_anew;

/// How long a request's head may take to arrive, and a connection may wait for one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a reader may take no byte of what is written to it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a request's head at most, and of what is read ahead.
const HEAD_BYTES: usize = 64 * 1024;
/// Pause after a failure to accept, such as a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Pages {
    /// Serves until `stop` becomes true.
    pub(crate) async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        mut stop: watch::Receiver<bool>,
    ) {
        let (pages, stop_sampling) = (self.clone(), stop.clone());
        let sampling = tokio::spawn(async move {
            let sample = || pages.clone().sample(stop_sampling.clone());
            begun_anew("taking samples for the pages", sample).await;
        });
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.clone().admit(stream, peer, stop.clone()),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
        let _ = sampling.await;
    }

    /// Serves a connection on a task of its own, if there is room for it.
    fn admit(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, stop: watch::Receiver<bool>) {
        let place = match self.places.clone().try_acquire_owned() {
            Ok(place) if self.access.may_see_pages(peer) => place,
            _ => return self.metrics.web_refused.add(1),
        };
        tokio::spawn(async move {
            self.serve_connection(stream, peer, stop).await;
            drop(place);
        });
    }

    async fn serve_connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        mut stop: watch::Receiver<bool>,
    ) {
        // Without it answers are slower; that is no reason to refuse the peer.
        let _ = stream.set_nodelay(true);
        let stopped = stop.clone();
        let service = service_fn(|request: Request<Incoming>| {
            let (pages, stopped) = (self.clone(), stopped.clone());
            async move {
                pages.metrics.web_requests.add(1);
                Ok::<Answer, Infallible>(pages.answer(request, peer, stopped).await)
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(Patient::new(stream)), service);
        tokio::select! {
            // What goes wrong with one browser is of no interest to the cluster.
            _ = connection => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }
}

/// A connection on which a write fails that makes no headway for [`WRITE_TIMEOUT`].
#[derive(Debug)]
struct Patient<S> {
    stream: S,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    fn new(stream: S) -> Self {
        Patient { stream, stalled: None }
    }

    /// What a write has come to, or its failure when it has been waiting for too long.
    fn limited<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT)));
        stalled.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
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
        let (near, mut far) = duplex(4);
        let mut near = Patient::new(near);
        let writing = tokio::spawn(async move { near.write_all(b"more than four").await });
        sleep(WRITE_TIMEOUT / 2).await;
        let mut some = [0; 4];
        far.read_exact(&mut some).await.unwrap();
        sleep(WRITE_TIMEOUT - Duration::from_secs(1)).await;
        assert!(!writing.is_finished(), "it made headway in between");
        let error = writing.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
