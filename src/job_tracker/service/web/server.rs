//! The job tracker's HTTP server: who is admitted, and what is served when there is no room.
//!
//! It knows no page. Limits on a connection are those of [`corona_net::http`].

use std::net::SocketAddr;
use std::sync::Arc;

use corona_net::connections::{Place, accept};
use corona_net::http;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::{Request, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::Pages;
use corona_web::exchange;

/// What is served also when there are no places for pages.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

impl Pages {
    /// Serves until `stop` becomes true.
    pub(in crate::service) async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        stop: watch::Receiver<bool>,
    ) {
        let stopped = stop.clone();
        let admit = |peer| self.admit(peer);
        accept(listener, stop, admit, |stream, peer, place, probes_only| {
            self.clone().serve_connection(stream, peer, stopped.clone(), place, probes_only)
        })
        .await;
    }

    /// A place for a connection, and whether only probes are served on it.
    fn admit(&self, peer: SocketAddr) -> Option<(Place, bool)> {
        let admitted = if self.shared.settings.web.networks.contain(peer.ip()) {
            let place = self.connections.admit(peer.ip()).map(|place| (place, false));
            place.or_else(|_| self.probes.admit(peer.ip()).map(|place| (place, true))).ok()
        } else {
            None
        };
        if admitted.is_none() {
            self.shared.meter.web_refused.add(1);
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
                pages.shared.meter.web_requests.add(1);
                let is_probe = PROBES.contains(&request.uri().path());
                let mut answer = if probes_only && !is_probe {
                    pages.shared.meter.web_refused.add(1);
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
