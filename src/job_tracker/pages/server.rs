//! The job tracker's pages as a site of the common HTTP server.

use std::net::SocketAddr;
use std::sync::Arc;

use corona_access::Peer;
use corona_web::events::Stream;
use corona_web::server::{Admission, Site};
use hyper::Request;
use hyper::body::Incoming;
use tokio::sync::watch;

use super::{Answer, Pages};

impl Site for Pages {
    type Stream = Stream;

    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn may_connect(&self, peer: SocketAddr) -> bool {
        self.shown.settings.web.networks.contain(peer.ip())
    }

    fn count_request(&self) {
        self.shown.meter.web_requests.add(1);
    }

    fn count_refused(&self) {
        self.shown.meter.web_refused.add(1);
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        caller: Peer,
        stop: watch::Receiver<bool>,
    ) -> Answer {
        self.respond(request, caller, stop).await
    }
}
