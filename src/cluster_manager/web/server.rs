//! Connections of browsers and scripts: HTTP/1.1, with bounds on what one may hold.
//!
//! It knows no page. A reader that does not read, or a request that does not arrive, ends.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Pages, exchange};
use corona_process::panics::begun_anew;
use corona_web::connections::{Place, WriteTimeout};

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

    /// Serves a connection on a task of its own, if there is room for it. Where there is none, what
    /// watches this program still has a place.
    fn admit(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, stop: watch::Receiver<bool>) {
        if !self.access.may_see_pages(peer) {
            return self.metrics.web_refused.add(1);
        }
        let (place, probes_only) = match self.connections.admit(peer.ip()) {
            Ok(place) => (place, false),
            Err(_) => match self.probes.admit(peer.ip()) {
                Ok(place) => (place, true),
                Err(_) => return self.metrics.web_refused.add(1),
            },
        };
        tokio::spawn(self.serve_connection(stream, peer, stop, Arc::new(place), probes_only));
    }

    async fn serve_connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        mut stop: watch::Receiver<bool>,
        place: Arc<Place>,
        probes_only: bool,
    ) {
        // Without it answers are slower; that is no reason to refuse the peer.
        let _ = stream.set_nodelay(true);
        let stopped = stop.clone();
        place.waits();
        let serving = place.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (pages, stopped, place) = (self.clone(), stopped.clone(), serving.clone());
            async move {
                place.serves();
                pages.metrics.web_requests.add(1);
                let is_probe = PROBES.contains(&request.uri().path());
                let mut answer = if probes_only && !is_probe {
                    pages.metrics.web_refused.add(1);
                    let sentence = "too many connections are open\n";
                    exchange::text(StatusCode::SERVICE_UNAVAILABLE, sentence)
                } else {
                    pages.answer(request, peer, stopped).await
                };
                if probes_only {
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(answer.map(|body| Served { body, place }))
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(WriteTimeout::new(stream, WRITE_TIMEOUT)), service);
        tokio::select! {
            // What goes wrong with one browser is of no interest to the cluster.
            _ = connection => {}
            () = place.closed() => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }
}

/// What is served also when there are no places for pages.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// A body. When it is dropped, sent or not, its connection waits for the next request.
struct Served<B> {
    body: B,
    place: Arc<Place>,
}

impl<B: Body + Unpin> Body for Served<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Served<B> {
    fn drop(&mut self) {
        self.place.waits();
    }
}
