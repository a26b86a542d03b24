//! The cluster manager's HTTP server: admission of connections, and the pages that are served when
//! it is full.
//!
//! It knows no page. Limits on a connection are those of [`corona_net::http`].

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::{Request, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{Pages, exchange};
use corona_net::connections::{Place, accept};
use corona_net::http;
use corona_process::panics::restart_on_panic;

impl Pages {
    /// Serves until `stop` becomes true.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let (pages, stop_sampling) = (self.clone(), stop.clone());
        let sampling = tokio::spawn(async move {
            let sample = || pages.clone().sample(stop_sampling.clone());
            restart_on_panic("the sampler of the pages", sample).await;
        });
        let stopped = stop.clone();
        let admit = |peer| self.admit(peer);
        accept(listener, stop, admit, |stream, peer, place, probes_only| {
            self.clone().serve_connection(stream, peer, stopped.clone(), place, probes_only)
        })
        .await;
        let _ = sampling.await;
    }

    /// A place for a connection, and whether only probes are served on it: when there is no room
    /// for pages, monitors of this program still have a place.
    fn admit(&self, peer: SocketAddr) -> Option<(Place, bool)> {
        let admitted = if self.access.may_see_pages(peer) {
            let place = self.connections.admit(peer.ip()).map(|place| (place, false));
            place.or_else(|_| self.probes.admit(peer.ip()).map(|place| (place, true))).ok()
        } else {
            None
        };
        if admitted.is_none() {
            self.metrics.web_refused.add(1);
        }
        admitted
    }

    async fn serve_connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        stopped: watch::Receiver<bool>,
        place: Arc<Place>,
        probes_only: bool,
    ) {
        let answer = |request: Request<Incoming>| {
            let (pages, stopped) = (self.clone(), stopped.clone());
            async move {
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
                answer
            }
        };
        http::serve(stream, &place, http::Limits::default(), answer).await;
    }
}

/// Paths that are served even when there are no places for pages.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];
