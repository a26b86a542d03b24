//! The HTTP server of a task tracker: map output for reduces, logs of tasks and pages for people.
//!
//! Reduces read a response in a form that no HTTP library writes, so `shuffle.rs` writes it; hyper
//! does the rest. A connection carries one request. Disks are read, and pages made, on the server's
//! own threads, and only while a client reads: a client that does not read holds a connection and
//! some memory, no thread, and is disconnected in the end. Spec: mapreduce/04 §4.9, §4.11.

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;

use super::child::Logs;
use super::ids::AttemptId;
use super::map_output::MapOutputs;
use corona_access::{Gate, Peer, Stream, rights};
use corona_config::TrackerHttpSettings;
use corona_net::connections::{ConnectionPermit, Connections, Refused, accept};
use corona_process::threads::Threads;
use corona_web::compression;
use corona_web::exchange::in_form_of;
use corona_web::hosts::Hosts;
use corona_web::http;
use corona_web::session::{self, Last};

mod head;
mod pages;
mod shuffle;
mod tasklog;

pub use pages::{NoPages, Page, Pages};

/// Pages that are made at a time: each may hold a copy of all that is known of tasks.
const MAKERS: usize = 2;

/// A requested map output that is missing: the map has to run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostOutput {
    /// The attempt whose output it was.
    pub attempt: AttemptId,
    /// The message.
    pub diagnostics: String,
}

/// The server's counters.
#[derive(Debug, Default)]
pub struct HttpCounters {
    refused: AtomicU64,
    refused_of_peer: AtomicU64,
}

impl HttpCounters {
    /// Connections that were refused because the limit was reached.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Connections that were refused since their peer had as many open as one peer may have.
    pub fn refused_of_peer(&self) -> u64 {
        self.refused_of_peer.load(Ordering::Relaxed)
    }
}

/// The contents that the server serves.
pub struct HttpServer {
    outputs: Arc<MapOutputs>,
    logs: Logs,
    pages: Arc<dyn Pages>,
    lost: mpsc::Sender<LostOutput>,
    connections: Arc<Connections>,
    counters: Arc<HttpCounters>,
    /// The threads that read disks and make pages.
    threads: Arc<Threads>,
    makers: Arc<Semaphore>,
    /// The names under which requests are answered.
    hosts: Hosts,
    gate: Arc<Gate>,
    /// The turn of metrics requests, which do not wait for pages.
    scraper: Arc<Semaphore>,
    limits: http::Limits,
}

type Body = Either<Full<Bytes>, tasklog::LogBody>;

impl HttpServer {
    /// Serves outputs and logs, under addresses and the names of the machine. Outputs that are not
    /// there are reported to `lost`, as far as it has room; a reduce will ask again.
    ///
    /// Errors: threads cannot be started.
    pub fn new(
        outputs: Arc<MapOutputs>,
        logs: Logs,
        lost: mpsc::Sender<LostOutput>,
        settings: &TrackerHttpSettings,
    ) -> io::Result<Self> {
        Ok(HttpServer {
            outputs,
            logs,
            pages: Arc::new(NoPages),
            lost,
            connections: Connections::new(
                settings.max_connections,
                settings.max_connections_per_peer,
            ),
            counters: Arc::default(),
            threads: Arc::new(Threads::start("http", settings.threads)?),
            makers: Arc::new(Semaphore::new(MAKERS)),
            hosts: Hosts::of_machine([""; 0]),
            gate: Gate::off(),
            scraper: Arc::new(Semaphore::new(1)),
            limits: http::Limits {
                write_timeout: settings.write_timeout,
                keep_alive: false,
                ..http::Limits::default()
            },
        })
    }

    /// Serves these pages too.
    #[must_use]
    pub fn with_pages(self, pages: Arc<dyn Pages>) -> Self {
        HttpServer { pages, ..self }
    }

    /// Answers under these names.
    #[must_use]
    pub fn with_hosts(self, hosts: Hosts) -> Self {
        HttpServer { hosts, ..self }
    }

    /// Lets peers in through this gate.
    #[must_use]
    pub fn with_gate(self, gate: Arc<Gate>) -> Self {
        HttpServer { gate, ..self }
    }

    /// Its counters, which may be read while it serves.
    pub fn counters(&self) -> Arc<HttpCounters> {
        self.counters.clone()
    }

    /// Serves until `stop` becomes true. Replies that are being written then are aborted.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let admit = |peer| self.admit(peer).map(|permit| (permit, ()));
        let server = self.clone();
        accept(listener, stop, &self.gate, admit, move |stream, peer, permit, ()| {
            let server = server.clone();
            async move { server.connection(stream, &peer, &permit).await }
        })
        .await;
    }

    fn admit(&self, peer: SocketAddr) -> Option<ConnectionPermit> {
        let why = match self.connections.admit(peer.ip()) {
            Ok(permit) => return Some(permit),
            Err(why) => why,
        };
        match why {
            Refused::Full => {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%peer, "HTTP connection refused: the limit corona.tt.http.max.connections is reached");
            }
            Refused::FullForPeer => {
                self.counters.refused_of_peer.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    %peer,
                    "HTTP connection refused: the peer has reached corona.tt.http.max.connections.per.peer"
                );
            }
        }
        None
    }

    async fn connection(&self, mut stream: Stream, peer: &Peer, permit: &Arc<ConnectionPermit>) {
        let head = head::read(&mut stream, self.limits.head_bytes);
        let Ok(Ok(head)) = timeout(self.limits.head_timeout, head).await else { return };
        permit.serves();
        // What a page of another site asks for is refused below, in the form of a page.
        let is_own = self.hosts.foreign(head::hosts(&head)).is_none();
        let may_shuffle = peer.objection(|| rights::page("GET", "/mapOutput")).is_none();
        match head::shuffle_query(&head).filter(|_| is_own && may_shuffle) {
            Some(query) => self.shuffle(stream, query).await,
            None => {
                let stream = head::Reread::new(head, stream);
                let answer = |last: Last, request: Request<Incoming>| async move {
                    let answer = match session::admit(&self.gate, &request, peer) {
                        Continue(admitted) => {
                            last.is(admitted.who);
                            let answer = self.answer(&request).await;
                            session::end(admitted.noted, answer.status());
                            answer
                        }
                        Break(answer) => answer,
                    };
                    in_form_of(request.uri().path(), answer).await
                };
                session::serve(peer, |last| {
                    let answer = move |request| answer(last.clone(), request);
                    http::serve(stream, permit, self.limits, answer)
                })
                .await;
            }
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let own = ("task tracker", "corona.tt.http.hosts");
        if let Some(refused) = self.hosts.misdirected(path, request.headers(), own) {
            return refused;
        }
        let takes_gzip = compression::is_accepted(request.headers());
        match (path, request.method()) {
            ("/tasklog", &Method::GET) => {
                tasklog::answer(&self.logs, self.threads.clone(), query).await
            }
            // Map output is served before this.
            ("/tasklog" | "/mapOutput", _) => text(StatusCode::METHOD_NOT_ALLOWED, ""),
            (_, &Method::GET | &Method::HEAD) => match self.made(path, query, takes_gzip).await {
                Some(page) => page,
                None => text(StatusCode::NOT_FOUND, "No such page"),
            },
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are supported"),
        }
    }

    /// The page at a path, made and compressed on a thread that may take its time, unless it takes
    /// none.
    async fn made(&self, path: &str, query: &str, takes_gzip: bool) -> Option<Response<Body>> {
        if let Some(page) = self.pages.probe(path) {
            return Some(pages::respond(page));
        }
        let makers = if path == "/metrics" { &self.scraper } else { &self.makers };
        // The semaphores are never closed.
        let turn = makers.clone().acquire_owned().await.ok()?;
        let (pages, path, query) = (self.pages.clone(), path.to_owned(), query.to_owned());
        let making = self.threads.run(move || {
            // Held while the response is made, also after the client has disconnected.
            let _turn = turn;
            pages.page(&path, &query).map(|page| pages::respond_packed(page, takes_gzip))
        });
        making.await
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
