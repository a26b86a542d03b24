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
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::child::Logs;
use super::ids::AttemptId;
use super::map_output::MapOutputs;
use corona_access::{Gate, Peer, Stream, rights};
use corona_config::TrackerHttpSettings;
use corona_net::connections::{ConnectionPermit, Refused, accept};
use corona_process::threads::Threads;
use corona_web::exchange::{Parameters, in_form_of};
use corona_web::hosts::Hosts;
use corona_web::server::{Front, RequestBody, Room, Site, respond};
use corona_web::session::{self, Last};
use corona_web::{http, prometheus};

mod head;
mod pages;
mod shuffle;
mod tasklog;

use self::tasklog::LogBody;
pub use pages::{NoPages, Page, Pages};

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
    front: Front,
    counters: Arc<HttpCounters>,
    /// The threads that read logs and map output.
    threads: Arc<Threads>,
    limits: http::Limits,
}

impl HttpServer {
    /// Serves outputs and logs, under these names, to peers that the gate lets in. Outputs that are not
    /// there are reported to `lost`, as far as it has room; a reduce will ask again.
    ///
    /// Errors: threads cannot be started.
    pub fn new(
        outputs: Arc<MapOutputs>,
        logs: Logs,
        lost: mpsc::Sender<LostOutput>,
        settings: &TrackerHttpSettings,
        hosts: Hosts,
        gate: Arc<Gate>,
    ) -> io::Result<Self> {
        let room = Room {
            connections: settings.max_connections,
            of_peer: settings.max_connections_per_peer,
            probes: 0,
        };
        Ok(HttpServer {
            outputs,
            logs,
            pages: Arc::new(NoPages),
            lost,
            front: Front::new(("task tracker", "corona.tt.http.hosts"), room, hosts, gate),
            counters: Arc::default(),
            threads: Arc::new(Threads::start("http", settings.threads)?),
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

    /// Its counters, which may be read while it serves.
    pub fn counters(&self) -> Arc<HttpCounters> {
        self.counters.clone()
    }

    /// Serves until `stop` becomes true. Replies that are being written then are aborted.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let admit = |peer| self.admit(peer).map(|permit| (permit, ()));
        let (server, stopped) = (self.clone(), stop.clone());
        accept(listener, stop, self.front.gate(), admit, move |stream, peer, permit, ()| {
            let (server, stopped) = (server.clone(), stopped.clone());
            async move { server.connection(stream, &peer, &permit, stopped).await }
        })
        .await;
    }

    fn admit(&self, peer: SocketAddr) -> Option<ConnectionPermit> {
        let why = match self.front.connections().admit(peer.ip()) {
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

    async fn connection(
        self: Arc<Self>,
        mut stream: Stream,
        peer: &Peer,
        permit: &Arc<ConnectionPermit>,
        stopped: watch::Receiver<bool>,
    ) {
        let head = head::read(&mut stream, self.limits.head_bytes);
        let Ok(Ok(head)) = timeout(self.limits.head_timeout, head).await else { return };
        permit.serves();
        // What a page of another site asks for is refused below, in the form of a page.
        let is_own = self.front.hosts().foreign(head::hosts(&head)).is_none();
        let may_shuffle = peer.objection(|| rights::page("GET", "/mapOutput")).is_none();
        match head::shuffle_query(&head).filter(|_| is_own && may_shuffle) {
            Some(query) => self.shuffle(stream, query).await,
            None => {
                let stream = head::Reread::new(head, stream);
                let (site, stopped) = (&self, &stopped);
                let answer = |last: Last, request: Request<Incoming>| async move {
                    let path = request.uri().path().to_owned();
                    let answer = match session::admit(site.front.gate(), &request, peer) {
                        Continue(admitted) => {
                            last.is(admitted.who.clone());
                            let answer =
                                respond(site, request, admitted.who, stopped.clone()).await;
                            session::end(admitted.noted, answer.status());
                            answer
                        }
                        Break(answer) => answer,
                    };
                    in_form_of(&path, answer).await
                };
                session::serve(peer, |last| {
                    let answer = move |request| answer(last.clone(), request);
                    http::serve(stream, permit, self.limits, answer)
                })
                .await;
            }
        }
    }
}

impl Site for HttpServer {
    type Stream = LogBody;

    fn front(&self) -> &Front {
        &self.front
    }

    fn sickness(&self) -> Option<String> {
        self.pages.sickness()
    }

    async fn metrics(self: Arc<Self>, _: Parameters) -> Page {
        let pages = self.pages.clone();
        self.front.make_metrics(move || prometheus::answer(pages.metrics())).await
    }

    async fn answer<B: RequestBody>(
        self: Arc<Self>,
        request: Request<B>,
        _: Peer,
        _: watch::Receiver<bool>,
    ) -> Page {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        match (&*path, request.method()) {
            ("/tasklog", &Method::GET) => {
                tasklog::answer(&self.logs, self.threads.clone(), &query).await
            }
            // Map output is served before this.
            ("/tasklog" | "/mapOutput", _) => text(StatusCode::METHOD_NOT_ALLOWED, ""),
            (_, &Method::GET | &Method::HEAD) => {
                let pages = self.pages.clone();
                let page = move || pages.page(&path, &query);
                let none = || text(StatusCode::NOT_FOUND, "No such page");
                self.front.make(move || page().unwrap_or_else(none)).await
            }
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are supported"),
        }
    }
}

impl std::fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpServer").field("outputs", &self.outputs).finish_non_exhaustive()
    }
}

/// A short answer.
fn text(status: StatusCode, text: impl Into<Bytes>) -> Page {
    let mut response = Response::new(Either::Left(Full::new(text.into())));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; charset=UTF-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests;
