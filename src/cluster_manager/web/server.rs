//! The cluster manager's pages as a site of the common HTTP server.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::Pages;
use super::events::Stream;
use super::exchange::Answer;
use corona_access::Peer;
use corona_process::panics::restart_on_panic;
use corona_web::server::{Admission, Site, serve};

impl Pages {
    /// Serves until `stop` becomes true.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let (pages, stop_sampling) = (self.clone(), stop.clone());
        let sampling = tokio::spawn(async move {
            let sample = || pages.clone().sample(stop_sampling.clone());
            restart_on_panic("the sampler of the pages", sample).await;
        });
        serve(self, listener, stop).await;
        let _ = sampling.await;
    }
}

impl Site for Pages {
    type Stream = Stream;

    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn may_connect(&self, peer: SocketAddr) -> bool {
        self.parts.access.may_see_pages(peer)
    }

    fn count_request(&self) {
        self.parts.metrics.web_requests.add(1);
    }

    fn count_refused(&self) {
        self.parts.metrics.web_refused.add(1);
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
