//! Serves the pages over HTTP.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::access::Access;
use super::api::routes;
use super::core::Core;
use super::notifier::Notifier;

mod page;

/// Connections of browsers that are open at a time.
const MAX_CONNECTIONS: usize = 256;
/// Answers of the API that are made at a time: each may hold a copy of all sessions or nodes.
const MAX_API_ANSWERS: usize = 2;
/// How long a request's head may take to arrive, and a connection may wait for one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failure to accept, such as a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the pages show.
#[derive(Debug)]
pub(super) struct Pages {
    core: Arc<Core>,
    notifier: Arc<Notifier>,
    access: Arc<Access>,
    /// A place for each answer of the API that is being made.
    api: Semaphore,
}

impl Pages {
    pub(super) fn new(core: Arc<Core>, notifier: Arc<Notifier>, access: Arc<Access>) -> Pages {
        Pages { core, notifier, access, api: Semaphore::new(MAX_API_ANSWERS) }
    }

    /// Serves until `stop` becomes true.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut stopped = stop.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop) => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, peer)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            if !self.access.may_see_pages(peer) {
                continue;
            }
            let Ok(place) = places.clone().try_acquire_owned() else { continue };
            let (pages, stop) = (self.clone(), stop.clone());
            tokio::spawn(async move {
                pages.serve_connection(stream, stop).await;
                drop(place);
            });
        }
    }

    async fn serve_connection(self: Arc<Self>, stream: TcpStream, mut stop: watch::Receiver<bool>) {
        let service = service_fn(|request| {
            let pages = self.clone();
            async move { Ok::<_, Infallible>(pages.answer(&request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            // What goes wrong with one browser is of no interest to the cluster.
            _ = connection => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are known here\n");
        }
        let path = request.uri().path();
        if let Some(path) = path.strip_prefix(routes::PREFIX) {
            return self.answer_api(path, request.uri().query().unwrap_or_default()).await;
        }
        match path {
            "/" => {
                let calls = self.notifier.pending_calls();
                let page = self.core.look(|engine, now| page::render(engine, now, calls));
                respond(StatusCode::OK, "text/html; charset=utf-8", page)
            }
            "/healthz" => text(StatusCode::OK, "ok\n"),
            _ => text(StatusCode::NOT_FOUND, "no such page\n"),
        }
    }

    async fn answer_api(&self, path: &str, query: &str) -> Response<Full<Bytes>> {
        let Ok(_place) = self.api.acquire().await else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
        };
        let (core, calls) = (self.core.clone(), self.notifier.pending_calls());
        let (path, query) = (path.to_owned(), query.to_owned());
        let made =
            tokio::task::spawn_blocking(move || routes::answer(&core, calls, &path, &query)).await;
        match made {
            Ok((status, json)) => respond(status, "application/json", json),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the answer was not made\n"),
        }
    }
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", body.to_owned())
}

fn respond(status: StatusCode, content_type: &str, body: String) -> Response<Full<Bytes>> {
    let response = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, content_type)
        .header(CACHE_CONTROL, "no-store")
        .header(X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'")
        .body(Full::new(Bytes::from(body)));
    // All parts are constants that make a valid head.
    response.unwrap_or_default()
}
