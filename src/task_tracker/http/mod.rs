//! The HTTP server of a task tracker: map output for reduces, logs of tasks and pages for people.
//!
//! Reduces read an answer of a form that no HTTP library writes, so `shuffle.rs` writes it; the rest
//! is hyper's. A connection carries one request. Spec: mapreduce/04 §4.9, §4.11.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};

use super::child::Logs;
use super::ids::AttemptId;
use super::map_output::MapOutputs;

mod head;
mod pages;
mod shuffle;
mod tasklog;

pub use pages::{NoPages, Page, Pages};

/// Bytes of a request's head at most.
const HEAD_BYTES: usize = 64 * 1024;
/// How long a request's head may take to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a reader may take no byte of what is written to it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(180);
/// Pause after a failure to accept, such as a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A map output that was asked for and is not there: the map has to run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostOutput {
    /// The attempt whose output it was.
    pub attempt: AttemptId,
    /// What to tell.
    pub diagnostics: String,
}

/// Pages that are made at a time: each may hold a copy of all that is known of tasks.
const MAKERS: usize = 2;

/// What the server serves.
pub struct HttpServer {
    outputs: Arc<MapOutputs>,
    logs: Logs,
    pages: Arc<dyn Pages>,
    lost: mpsc::Sender<LostOutput>,
    places: Arc<Semaphore>,
    makers: Arc<Semaphore>,
    head_timeout: Duration,
}

type Body = Either<Full<Bytes>, tasklog::LogBody>;

impl HttpServer {
    /// Serves outputs and logs, on so many connections at a time. Outputs that are not there are told
    /// to `lost`, as far as it has room; a reduce will ask again.
    pub fn new(
        outputs: Arc<MapOutputs>,
        logs: Logs,
        lost: mpsc::Sender<LostOutput>,
        max_connections: usize,
    ) -> Self {
        let places = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        let makers = Arc::new(Semaphore::new(MAKERS));
        let pages = Arc::new(NoPages);
        HttpServer { outputs, logs, pages, lost, places, makers, head_timeout: HEAD_TIMEOUT }
    }

    /// Serves these pages too.
    #[must_use]
    pub fn with_pages(self, pages: Arc<dyn Pages>) -> Self {
        HttpServer { pages, ..self }
    }

    /// Serves until `stop` becomes true. What is being written then is broken off.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.clone().admit(stream, peer, stop.clone()),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    /// Serves a connection on a task of its own, if there is room for it.
    fn admit(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        mut stop: watch::Receiver<bool>,
    ) {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            tracing::warn!(%peer, "connection refused: there are too many");
            return;
        };
        tokio::spawn(async move {
            tokio::select! {
                // What goes wrong with one reader is its own affair.
                () = self.connection(stream) => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
            drop(place);
        });
    }

    async fn connection(&self, mut stream: TcpStream) {
        // Without it answers are slower; that is no reason to refuse the peer.
        let _ = stream.set_nodelay(true);
        let head = tokio::time::timeout(self.head_timeout, head::read(&mut stream, HEAD_BYTES));
        let Ok(Ok(head)) = head.await else { return };
        match head::shuffle_query(&head) {
            Some(query) => self.shuffle(stream, query).await,
            None => self.page(head::Reread::new(head, stream)).await,
        }
    }

    async fn page(&self, stream: head::Reread) {
        let service = service_fn(|request: Request<Incoming>| async move {
            Ok::<_, Infallible>(self.answer(&request).await)
        });
        let serving = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.head_timeout)
            .max_buf_size(HEAD_BYTES)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        // What goes wrong with one browser is its own affair.
        let _ = serving.await;
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        match (path, request.method()) {
            ("/tasklog", &Method::GET) => tasklog::answer(&self.logs, query).await,
            // Map output is served before this.
            ("/tasklog" | "/mapOutput", _) => text(StatusCode::METHOD_NOT_ALLOWED, ""),
            (_, &Method::GET | &Method::HEAD) => match self.made(path, query).await {
                Some(page) => pages::respond(page),
                None => text(StatusCode::NOT_FOUND, "There is no such page"),
            },
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are known here"),
        }
    }

    /// The page at a path, made on a thread that may take its time.
    async fn made(&self, path: &str, query: &str) -> Option<Page> {
        // The semaphore is never closed.
        let turn = self.makers.clone().acquire_owned().await.ok()?;
        let (pages, path, query) = (self.pages.clone(), path.to_owned(), query.to_owned());
        let making = tokio::task::spawn_blocking(move || {
            // Held while it is made, also when nobody waits for it any more.
            let _turn = turn;
            pages.page(&path, &query)
        });
        // It fails when the executor stops.
        making.await.ok()?
    }
}

impl std::fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpServer").field("outputs", &self.outputs).finish_non_exhaustive()
    }
}

/// A short answer.
fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(text.into())));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; charset=UTF-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests;
